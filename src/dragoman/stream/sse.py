"""Server-sent-event bytes to events. Knows nothing of providers or JSON.

An event is `(name, data)`. All of the format is read: LF, CRLF and CR, comments, several data lines, a byte order
mark, fields in any order. Bytes may be cut anywhere; the events are the same.
"""

import re

from ..errors import ErrorCode, ModelError
from .events import WireEvent

__all__ = ["EVENT_LIMIT", "SseParser"]

EVENT_LIMIT = 32 * 1024 * 1024
LINES_LIMIT = 65_536  # of one event; each costs more than its bytes do
_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_EMPTY_LINES = re.compile(rb"\n{3,}")


class SseParser:
    """Feed bytes, get the events that they complete; `end` gives one that lacks only its final blank line."""

    __slots__ = ("_buffer", "_held", "_limit", "_name", "_prefix", "_started")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._buffer = bytearray()  # of one unfinished event, line ends already LF
        self._held = b""  # a CR that may be half of CRLF, or the first bytes of a byte order mark
        self._limit = limit
        self._started = False
        self._prefix, self._name = _DATA, ""  # the usual beginning of an event, and its name then

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """Return the events that `chunk` completes; raise ModelError where one grows past the limit."""
        if not self._started or self._held or b"\r" in chunk:
            chunk = self._normalised(chunk)
        buffer, prefix = self._buffer, self._prefix
        if buffer:
            seen = len(buffer)
            buffer += chunk
            if buffer.find(b"\n\n", seen - 1) < 0:
                self._require_size(len(buffer))
                return []
            chunk = bytes(buffer)
            buffer.clear()
        end = len(chunk) - 2
        if chunk.startswith(prefix) and len(prefix) < end == chunk.find(b"\n", len(prefix)) and chunk[-1:] == b"\n":
            return [(self._name, chunk[len(prefix) : end])]  # one usual event, as they come one by one
        blocks, _, tail = chunk.rpartition(b"\n\n")
        if tail:
            buffer += tail
            self._require_size(len(buffer))
            if not blocks:
                return []
        if not blocks.startswith(prefix):
            self._prefix, self._name = _prefix_and_name(blocks.rpartition(b"\n\n")[2])
        # Cut before every event that begins in the usual way: between two cuts stands one line of data, mostly.
        events: list[WireEvent] = []
        prefix, name = self._prefix, self._name
        before, *pieces = (b"\n\n" + blocks).split(b"\n\n" + prefix)
        if before:
            _append_events(events, before)
        for piece in pieces:
            if piece and b"\n" not in piece:
                events.append((name, piece))
            else:
                _append_events(events, prefix + piece)
        return events

    def end(self) -> list[WireEvent]:
        """Return the last event if its data arrived but the blank line after it did not."""
        events: list[WireEvent] = []
        _append_events(events, bytes(self._buffer))
        self._buffer.clear()
        return events

    def _normalised(self, chunk: bytes) -> bytes:
        chunk = self._held + chunk
        self._held = b""
        if not self._started:
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._held = chunk
                return b""
            self._started = True
            chunk = chunk.removeprefix(_BOM)
        if chunk.endswith(b"\r"):
            self._held = b"\r"
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _require_size(self, size: int) -> None:
        if size > self._limit:
            raise ModelError(
                f"one event of the stream is larger than {self._limit} bytes", code=ErrorCode.PROTOCOL_VIOLATION
            )


def _append_events(events: list[WireEvent], blocks: bytes) -> None:
    if b"\n\n\n" in blocks:
        blocks = _EMPTY_LINES.sub(b"\n\n", blocks)  # many empty lines end no more than two do
    for block in blocks.split(b"\n\n"):
        if b"data" not in block:
            continue
        if block.count(b"\n") > LINES_LIMIT:
            raise ModelError(
                f"one event of the stream has more than {LINES_LIMIT} lines", code=ErrorCode.PROTOCOL_VIOLATION
            )
        name = ""
        data: list[bytes] = []
        for line in block.split(b"\n"):
            if line.startswith(b"data:") or line == b"data":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:") or line == b"event":
                name = (line[7:] if line[6:7] == b" " else line[6:]).decode("utf-8", "replace")
        if any(data):  # an event that says nothing is no event
            events.append((name, b"\n".join(data)))


def _prefix_and_name(block: bytes) -> tuple[bytes, str]:
    """What comes before the data in an event of this form, if that is one of the two usual ones."""
    line, line_end, rest = block.partition(b"\n")
    if line.startswith(b"event: ") and rest.startswith(_DATA):
        return line + line_end + _DATA, line[7:].decode("utf-8", "replace")
    return _DATA, ""
