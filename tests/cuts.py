"""Recorded streams cut short or cut into pieces: the same deltas, or the start of them and one error.

`python -m tests.cuts [STEP]` checks every streaming record at every byte, or at every STEP-th and around each end of
an event; the tests check a fixed sample.
"""

import copy
import random
import re
import sys
import time
from collections.abc import Iterable

from dragoman import MessageDelta
from dragoman.delta import DoneDelta, ErrorDelta
from dragoman.stream import ResponseReader, SseParser
from dragoman.wire import find_codec, find_recorded_dialect
from tests.corpus import Record, all_records, body_of, decode

# The bytes in which a provider says that it has finished; the event they stand in must have arrived whole.
FINISH = {
    "openai-chat": rb'"finish_reason":\s*"[a-z_]+"',
    "openai-compatible": rb'"finish_reason":\s*"[a-zA-Z_]+"|data: \[DONE\]',
    "openai-responses": rb'"type":\s*"response\.(?:completed|incomplete|failed)"|"type":\s*"error"',
    "anthropic-messages": rb'"type":\s*"message_stop"|"type":\s*"error"',
    "gemini": rb'"finishReason":\s*"[A-Z_]+"|"blockReason"',
    "bedrock-converse": rb'"stopReason"',
}


def streaming_records() -> list[tuple[str, Record]]:
    """Every recorded event stream."""
    return [(protocol, record) for protocol, record in all_records() if record["streaming"]]


def before_finish(protocol: str, body: bytes) -> int:
    """How many bytes come before the provider's own finish is whole: every shorter prefix is a stream cut short."""
    found = re.search(FINISH[protocol], body)
    return len(body) if found is None else found.end()


def open_reader(protocol: str, record: Record) -> ResponseReader:
    """A reader for the record's answer."""
    headers = {"content-type": record["response"]["content_type"]}
    dialect = find_recorded_dialect(protocol, record["vendor"])
    return ResponseReader(find_codec(dialect.specification), dialect, run_id="recorded", headers=headers)


def require_prefixes_fail(protocol: str, record: Record, cuts: Iterable[int]) -> int:
    """Assert that the answer, fed byte by byte and cut at each of these places, ends in one error after what came."""
    body, whole = body_of(record), decode(protocol, record)
    limit = before_finish(protocol, body)
    reader, fed, arrived = open_reader(protocol, record), 0, 0
    ending = Ending(reader)
    checked = 0
    for cut in sorted(set(cuts)):
        if cut >= limit:
            break
        for index in range(fed, cut):
            arrived += len(reader.feed(body[index : index + 1]))
            ending.note_byte()
        fed = cut
        last = ending.deltas()
        place = f"{record['id']} cut after {cut} of {len(body)} bytes"
        assert isinstance(last[-1], ErrorDelta), place
        assert not any(isinstance(delta, (ErrorDelta, DoneDelta)) for delta in last[:-1]), place
        assert last[:-1] == whole[arrived : arrived + len(last) - 1], place
        checked += 1
    return checked


class Ending:
    """What a reader would return if the body ended here, the reader left as it was.

    Inside an event, where the end adds nothing but the error, only the parser's buffer and the guard change: these two
    are put back. Everywhere else the whole reader is copied, which takes a thousand times as long.
    """

    def __init__(self, reader: ResponseReader) -> None:
        self._reader = reader
        self._buffered = 0
        self._adds_nothing: bool | None = None  # not known yet for the event under way

    def note_byte(self) -> None:
        """A byte was fed: a buffer that did not grow has given out an event."""
        parser = self._reader._parser
        size = len(parser._buffer) if isinstance(parser, SseParser) else 0
        if size <= self._buffered:
            self._adds_nothing = None
        self._buffered = size

    def deltas(self) -> list[MessageDelta]:
        """The deltas of an end here."""
        parser = self._reader._parser
        if not isinstance(parser, SseParser):
            return copy.deepcopy(self._reader).end()
        buffered = bytes(parser._buffer)
        data = buffered.find(b"data:")
        may_be_whole = data >= 0 and (buffered.find(b"\n", data) >= 0 or buffered[-1:] in (b"}", b"]"))
        if not self._adds_nothing or may_be_whole:
            last = copy.deepcopy(self._reader).end()
            if self._adds_nothing is None:
                self._adds_nothing = len(last) == 1
            return last
        guard = copy.copy(self._reader._guard)
        last = self._reader.end()
        parser._buffer += buffered
        self._reader._guard = guard
        return last


def cuts_of(body: bytes, step: int) -> set[int]:
    """Every `step`-th byte, and every byte near the end of a line or frame, where an event becomes whole."""
    line_ends = (found.end() + near for found in re.finditer(rb"\n|\}[^\n]{16}", body) for near in (-2, -1, 0, 1, 2))
    return {*range(0, len(body), step), *(cut for cut in line_ends if 0 <= cut < len(body))}


def require_same_in_pieces(protocol: str, record: Record, *, seed: int, splits: int = 3) -> None:
    """Assert that the answer gives equal deltas whole, byte by byte and in random pieces."""
    body, whole = body_of(record), decode(protocol, record)
    choose = random.Random(seed)
    cuttings = [[body[index : index + 1] for index in range(len(body))]]
    for _ in range(splits):
        places = sorted(choose.sample(range(1, len(body)), min(len(body) - 1, choose.randrange(1, 200))))
        cuttings.append([body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)])
    for chunks in cuttings:
        assert decode(protocol, record, chunks) == whole, record["id"]


def main() -> None:
    """Check every streaming record: in pieces, and cut at every byte before its finish."""
    started, prefixes, checked = time.monotonic(), 0, 0
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for protocol, record in streaming_records():
        require_same_in_pieces(protocol, record, seed=checked)
        prefixes += require_prefixes_fail(protocol, record, cuts_of(body_of(record), step))
        checked += 1
        print(f"{checked} records, {prefixes} prefixes", end="\r", file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{checked} streaming records in pieces, {prefixes} prefixes cut short: all as promised ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
