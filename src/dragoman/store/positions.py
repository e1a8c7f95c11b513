"""Where a reader of a session is: between two entries, or within an answer that is under way. Values alone."""

import re
from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from ..delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    KnownDelta,
    ProviderItemDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
)
from ..errors import InvalidValue
from ..history import (
    HistoryEntry,
    InterruptionEntry,
    ModelOutputEntry,
    RunFinishedEntry,
    RunStartedEntry,
    TakeoverEntry,
)
from .refusals import MAX_SERIAL

__all__ = ["Followed", "FollowedDelta", "FollowedEntry", "Position", "ends_answer"]

OVER = -1  # in place of the number of ended calls: the answer has its last delta

# After one of these the answer that was under way is not under way any more.
ENDING_KINDS = (ModelOutputEntry, InterruptionEntry, RunStartedEntry, RunFinishedEntry, TakeoverEntry)

_FORM = re.compile(
    r"(\d{1,10})(?:\.([0-9a-z]{1,32})\.(\d{1,10})\.(\d{1,15})\.([0-9a-f]{1,8})\.(-1|\d{1,10}))?", re.ASCII
)


class Position(msgspec.Struct, frozen=True):
    """A place in a session: all entries before `serial` were read, and `index` deltas of the answer `stream`.

    `str` gives it a form that fits the id of a server-sent event, and `of` reads that. The last three fields say what
    those deltas held: characters and parts, a checksum of them, and how many calls have ended. By them a reader whose
    answer was recorded meanwhile finds its place in the message, and notices if that is another answer.
    """

    serial: int = 0
    stream: str = ""
    index: int = 0
    size: int = 0
    checksum: int = 0
    ended: int = 0

    def __str__(self) -> str:
        if not self.stream:
            return str(self.serial)
        return f"{self.serial}.{self.stream}.{self.index}.{self.size}.{self.checksum:x}.{self.ended}"

    @classmethod
    def of(cls, position: "Position | str | int") -> "Position":
        """Return the position that a text says; a number is the serial of the next entry. Raises InvalidValue."""
        if isinstance(position, Position):
            return position
        found = _FORM.fullmatch(str(position)) if type(position) in (str, int) else None
        if found is None or int(found[1]) > MAX_SERIAL:
            raise InvalidValue.of("position", position, "a serial from 0 up, or the text of a Position")
        if found[2] is None:
            return cls(int(found[1]))
        return cls(int(found[1]), found[2], int(found[3]), int(found[4]), int(found[5], 16), int(found[6]))

    def after_entry(self, entry: HistoryEntry) -> "Position":
        """Return the position after the next entry. It leaves the answer if the entry ends that."""
        if not self.stream or isinstance(entry, ENDING_KINDS):
            return Position(entry.serial + 1)
        return msgspec.structs.replace(self, serial=entry.serial + 1)

    def after_delta(self, stream: str, delta: KnownDelta) -> "Position":
        """Return the position after the next delta of an answer: another answer than before begins at 0."""
        if stream != self.stream:
            return Position(self.serial, stream).after_delta(stream, delta)
        size, content = _content(delta)
        checksum = crc32(content, self.checksum) if content else self.checksum
        ended = self.ended
        if isinstance(delta, ToolCallEndDelta):
            ended += 1
        elif isinstance(delta, (DoneDelta, ErrorDelta)):
            ended = OVER
        return Position(self.serial, stream, self.index + 1, self.size + size, checksum, ended)


def _content(delta: KnownDelta) -> tuple[int, bytes]:
    """How many characters and parts a delta adds, and the bytes that their checksum covers.

    A text gives the same bytes however it is cut into deltas.
    """
    if isinstance(delta, (TextDelta, ThinkingDelta)):
        return len(delta.text_delta), _bytes(delta.text_delta)
    if isinstance(delta, ToolCallArgsDelta):
        return len(delta.args_text_delta), _bytes(delta.args_text_delta)
    if isinstance(delta, ToolCallStartDelta):
        return 1, b"\0" + _bytes(delta.tool_name)
    if isinstance(delta, (ImageDelta, ProviderItemDelta)):
        return 1, b"\1"
    return 0, b""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def ends_answer(entries: Any) -> bool:
    """Return whether an entry among these ends the answer that is under way."""
    return any(isinstance(entry, ENDING_KINDS) for entry in entries)


class FollowedEntry(msgspec.Struct, frozen=True):
    """An entry, and the position after it."""

    entry: HistoryEntry
    position: Position


class FollowedDelta(msgspec.Struct, frozen=True):
    """A delta of an answer under way, and the position after it. Its `seq` is its index in that answer."""

    delta: KnownDelta
    position: Position


Followed: TypeAlias = FollowedEntry | FollowedDelta
