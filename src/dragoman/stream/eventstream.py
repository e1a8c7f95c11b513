"""AWS event-stream bytes to events, both checksums verified. Knows nothing of providers.

A frame is an event or a failure (`exception`, `error`). The event of a failure has a name that ends like one.
A frame is: total length, headers length, CRC of those two, headers, payload, CRC of all before it; big-endian.
"""

import struct
from collections.abc import Iterator
from zlib import crc32

import msgspec

from ..errors import ErrorCode, ModelError
from .events import WireEvent

__all__ = ["FRAME_LIMIT", "EventStreamParser", "encode_frame"]

FRAME_LIMIT = 32 * 1024 * 1024
_PRELUDE = struct.Struct(">III")
_CRC = struct.Struct(">I")
_OVERHEAD = _PRELUDE.size + _CRC.size

# Header value types: fixed sizes; 6 (bytes) and 7 (text) carry a two-byte length.
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _TEXT = 6, 7
# Message type -> the header with the name of the event.
_NAMES = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}
_FAILURE_ENDS = ("exception", "error", "failure")


class EventStreamParser:
    """Feed bytes, get the frames that they complete as events named by their event, exception or error type.

    A failure has a name that ends with Exception, Error or Failure, so that a decoder never takes it for an event.
    """

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """Return the events that `chunk` completes; raise ModelError for a frame that is damaged or too large."""
        buffer = self._buffer
        buffer += chunk
        events: list[WireEvent] = []
        start = 0
        while len(buffer) - start >= _PRELUDE.size:
            total, headers_size, checksum = _PRELUDE.unpack_from(buffer, start)
            if crc32(buffer[start : start + 8]) != checksum:
                raise _damaged("the checksum of a frame's length does not match")
            if total > self._limit or headers_size + _OVERHEAD > total:
                raise _damaged(f"a frame says that it has {total} bytes")
            if len(buffer) - start < total:
                break
            events.append(_frame_event(bytes(buffer[start : start + total]), headers_size))
            start += total
        del buffer[:start]
        return events

    def end(self) -> list[WireEvent]:
        """Return nothing: half a frame is no event."""
        return []


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one frame, for tests and for replaying recorded events."""
    written = b"".join(
        bytes([len(name.encode())]) + name.encode() + struct.pack(">BH", _TEXT, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", len(written) + len(payload) + _OVERHEAD, len(written))
    body = prelude + _CRC.pack(crc32(prelude)) + written + payload
    return body + _CRC.pack(crc32(body))


def _frame_event(frame: bytes, headers_size: int) -> WireEvent:
    if crc32(frame[:-4]) != _CRC.unpack_from(frame, len(frame) - 4)[0]:
        raise _damaged("the checksum of a frame does not match")
    headers_end = _PRELUDE.size + headers_size
    try:
        headers = dict(_text_headers(frame[_PRELUDE.size : headers_end]))
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        raise _damaged("the headers of a frame cannot be read") from None
    kind, payload = headers.get(":message-type", ""), frame[headers_end:-4]
    if kind not in _NAMES:
        raise _damaged(f"a frame is neither an event nor a failure but {kind[:40]!r}")
    name = headers.get(_NAMES[kind], "")
    if kind == "event":
        if not name:
            raise _damaged("an event has no type")
        return name, payload
    if not name.lower().endswith(_FAILURE_ENDS):
        name += kind.capitalize()
    if not payload and ":error-message" in headers:
        payload = msgspec.json.encode({"message": headers[":error-message"]})
    return name, payload


def _text_headers(data: bytes) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(data):
        name_end = position + 1 + data[position]
        name = data[position + 1 : name_end].decode()
        kind = data[name_end]
        position = name_end + 1
        if kind in (_BYTES, _TEXT):
            (size,) = struct.unpack_from(">H", data, position)
            position += 2
        else:
            size = _FIXED_SIZES[kind]
        if kind == _TEXT:
            yield name, data[position : position + size].decode()
        position += size


def _damaged(what: str) -> ModelError:
    return ModelError(f"the event stream is damaged: {what}", code=ErrorCode.PROTOCOL_VIOLATION)
