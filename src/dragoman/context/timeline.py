"""Entries to units, as they come: what a projection folds or shows whole, with its messages and tokens.

A unit is an input, an answer, or calls with all their results, so that pairs cannot be parted. Grows with the history;
each entry is looked at once. Knows no budget.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import repeat

from ..history import (
    CompactionEntry,
    ContextualHistoryEntry,
    EpochEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ResetEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
    live_screen_of,
)
from ..history.entries import interrupted_messages
from ..message import Message, ModelInvocationDescriptor
from .index import HistoryIndex
from .tokens import TokenCounter, UsageCorrection, count_message

__all__ = ["ESTIMATE_KEY", "Timeline", "Unit"]

# The metadata key under which a model output keeps what its request was counted as.
ESTIMATE_KEY = "contextTokens"


class Unit:
    """Entries that stand or fall together, and what they say whole."""

    __slots__ = ("_counts", "entries", "messages", "sizes")

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self._counts: list[int] = []  # how many messages each entry gives
        self.messages: list[Message] = []
        self.sizes: list[int] = []

    @property
    def serial(self) -> int:
        """The serial of its first entry."""
        return self.entries[0].serial

    @property
    def tokens(self) -> int:
        """What its messages count."""
        return sum(self.sizes)

    def put(self, entry: HistoryEntry, messages: Sequence[Message], sizes: Sequence[int]) -> None:
        """Take in an entry and its messages."""
        self.entries.append(entry)
        self._counts.append(len(messages))
        self.messages += messages
        self.sizes += sizes

    def owners(self) -> Iterator[HistoryEntry]:
        """Yield for each message the entry that it is from."""
        for entry, count in zip(self.entries, self._counts, strict=True):
            yield from repeat(entry, count)


class Timeline:
    """The units since the newest reset, and the newest of everything that decides how they are shown."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self.read = 0
        self._last: HistoryEntry | None = None
        self.instruction: str | None = None
        self.correction = UsageCorrection()
        self._begin(0)

    def _begin(self, serial: int) -> None:
        self._first_serial = serial  # everything before it is gone
        self.units: list[Unit] = []
        self.ends: list[int] = [0]  # tokens of all units up to each
        self.serials: list[int] = []  # each unit's first serial
        self.index = HistoryIndex()
        self._indexed = 0
        self.epoch: EpochEntry | None = None
        self.compactions: dict[int, CompactionEntry] = {}  # by their serials, those that cover something
        self.last_output: ModelOutputEntry | None = None
        self.asked_at: datetime | None = None  # when the newest answered request left
        self.answers = 0
        self.screen: str | None = None
        self._newest_at: datetime | None = None
        self._broken_off: InterruptionEntry | None = None
        self._open: Unit | None = None

    def follows(self, entries: Sequence[HistoryEntry]) -> bool:
        """Whether what was read is the beginning of `entries`."""
        return self.read <= len(entries) and (self.read == 0 or entries[self.read - 1] is self._last)

    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        """Read what is new of the entries."""
        for place in range(self.read, len(entries)):
            self._add(entries[place])
        self.read = len(entries)
        self._last = entries[-1] if entries else None

    def first_unit_from(self, serial: int) -> int:
        """Return the number of the first unit that begins at this serial or later."""
        return bisect_left(self.serials, serial)

    def tokens_from(self, unit: int) -> int:
        """Return the tokens of all units from this one on."""
        return self.ends[-1] - self.ends[unit]

    def indexed(self) -> HistoryIndex:
        """Return the index of all units so far."""
        while self._indexed < len(self.units):
            unit = self.units[self._indexed]
            if unit is self._open:  # its results are still to come
                break
            share = unit.tokens // len(unit.entries)
            for entry in unit.entries:
                self.index.add(entry, share)
            self._indexed += 1
        return self.index

    @property
    def compaction(self) -> CompactionEntry | None:
        """The newest compaction."""
        return next(reversed(self.compactions.values()), None)

    def summaries(self) -> list[int]:
        """Return the serials of the newest compaction and of older ones that cover what no newer one does."""
        chain: list[CompactionEntry] = []
        for entry in reversed(self.compactions.values()):
            if not chain or entry.last_serial < chain[-1].first_serial:
                chain.append(entry)
        return [entry.serial for entry in reversed(chain)]

    def units_covered(self) -> int:
        """Return how many units the newest compaction stands for; the last one never is among them."""
        if self.compaction is None:
            return 0
        last = self.compaction.last_serial
        covered = bisect_right(self.serials, last)
        if covered and self.units[covered - 1].entries[-1].serial > last:
            covered -= 1  # calls whose results came later
        return min(covered, len(self.units) - 1)

    @property
    def next_serial(self) -> int:
        """The serial of the entry to come."""
        return self._last.serial + 1 if self._last is not None else 0

    @property
    def invocation(self) -> ModelInvocationDescriptor | None:
        """Who answered last."""
        return self.last_output.invocation if self.last_output else None

    def _add(self, entry: HistoryEntry) -> None:
        if isinstance(entry, ContextualHistoryEntry):
            self._add_contextual(entry)
        elif isinstance(entry, InterruptionEntry):
            self._broken_off = entry if entry.partial is not None else None
        elif isinstance(entry, SystemInstructionEntry):
            self.instruction = entry.instruction or None
        elif isinstance(entry, EpochEntry):
            self.epoch = entry
        elif isinstance(entry, CompactionEntry):
            # One that reaches behind a reset would bring back what is gone.
            if entry.first_serial >= self._first_serial and self.units and entry.last_serial >= self.serials[0]:
                self.compactions[entry.serial] = entry
        elif isinstance(entry, ResetEntry):
            self._begin(entry.serial)

    def _add_contextual(self, entry: ContextualHistoryEntry) -> None:
        broken_off, self._broken_off = self._broken_off, None
        if isinstance(entry, ModelOutputEntry):
            self._note_output(entry)
        self._newest_at = entry.timestamp
        if isinstance(entry, ToolResultsEntry) and self._open is not None:
            self._put(self._open, entry, entry.messages())
            self._open = None
        else:
            # What broke off was tried again unless somebody spoke next: only then it is part of the conversation.
            if broken_off is not None and isinstance(entry, ModelInputEntry):
                self._put(self._new_unit(), broken_off, interrupted_messages(broken_off))
            unit = self._new_unit()
            self._put(unit, entry, entry.messages())
            is_calling = isinstance(entry, ModelOutputEntry) and bool(entry.message.tool_calls)
            self._open = unit if is_calling else None
        self.screen = None if isinstance(entry, ModelOutputEntry) else live_screen_of(entry)

    def _note_output(self, entry: ModelOutputEntry) -> None:
        self.last_output = entry
        self.asked_at = self._newest_at
        self.answers += 1
        estimate = entry.metadata.get(ESTIMATE_KEY)
        if type(estimate) is int and estimate > 0 and entry.usage is not None:
            self.correction = self.correction.updated_by(estimate, entry.usage.input_tokens)

    def _new_unit(self) -> Unit:
        unit = Unit()
        self.units.append(unit)
        self.ends.append(self.ends[-1])
        return unit

    def _put(self, unit: Unit, entry: HistoryEntry, messages: Sequence[Message]) -> None:
        if not unit.entries:
            self.serials.append(entry.serial)
        sizes = [count_message(message, self.counter) for message in messages]
        unit.put(entry, messages, sizes)
        self.ends[-1] += sum(sizes)
