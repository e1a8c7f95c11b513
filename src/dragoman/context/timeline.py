"""Entries to units, as they come: what a projection folds or shows whole, with its messages and tokens.

A unit is an input, an answer, or calls with all their results, so that pairs cannot be parted. Grows with the history;
each entry is looked at once. What of a message counts depends on whom the request is for. Knows no budget.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate

import msgspec

from ..errors import UnreadableData
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
    ToolSetEntry,
    live_screen_of,
)
from ..history.entries import interrupted_messages
from ..history.toolsets import offered_digest
from ..message import Message, ModelInvocationDescriptor, Thinking
from ..target import TargetRules
from .index import INJECTED_KEY, HistoryIndex
from .limiting import limit_results
from .tokens import LARGEST_OVERHEAD, OVERHEADS, Overhead, TokenCounter, UsageCorrection, count_message, count_overhead

__all__ = ["COUNTER_KEY", "ESTIMATE_KEY", "Aim", "Timeline", "Unit"]

# The metadata keys under which a model output keeps what its request was counted as, and which counter it was.
ESTIMATE_KEY = "context_tokens"
COUNTER_KEY = "context_counter"


class Aim(msgspec.Struct, frozen=True):
    """Whom a request is for, which decides whose thinking goes back, and what is written around each message.

    Without rules all thinking of one provider goes back.
    """

    invocation: ModelInvocationDescriptor | None = None
    rules: TargetRules | None = None

    def takes_thinking_of(self, message: Message) -> bool:
        """Whether the handoff would send the thinking of a message."""
        meta, target = message.meta, self.invocation
        origin = None if meta is None or meta.interrupted else meta.invocation
        if origin is None or target is None:
            return False
        if self.rules is None:
            return (origin.provider, origin.specification) == (target.provider, target.specification)
        return self.rules.thinking and self.rules.takes_opaque_from(origin, target.specification, target.model)

    @property
    def overhead(self) -> Overhead:
        """What the target writes around what is said."""
        return OVERHEADS.get(self.invocation.specification, LARGEST_OVERHEAD) if self.invocation else LARGEST_OVERHEAD

    def count(self, message: Message, counter: TokenCounter) -> int:
        """Return what a message adds to the request."""
        return count_message(message, counter, include_thinking=self.takes_thinking_of(message), overhead=self.overhead)


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

    def by_entry(self) -> Iterator[tuple[HistoryEntry, Sequence[Message]]]:
        """Yield each entry with its messages."""
        end = 0
        for entry, count in zip(self.entries, self._counts, strict=True):
            end += count
            yield entry, self.messages[end - count : end]


class Timeline:
    """The units since the newest reset, and the newest of everything that decides how they are shown."""

    def __init__(self, counter: TokenCounter, *, result_limit_bytes: int | None = None) -> None:
        self.counter = counter
        self._result_limit = result_limit_bytes
        self.read = 0
        self._last: HistoryEntry | None = None
        self.instruction: str | None = None
        self.invocation: ModelInvocationDescriptor | None = None  # who answered last
        self._aim = Aim()
        self._corrections: dict[ModelInvocationDescriptor | None, UsageCorrection] = {}  # by whose usage it was
        self._offered: dict[ModelInvocationDescriptor, str] = {}  # the digest of the tools that each model was offered
        self._begin(0)

    def _begin(self, serial: int) -> None:
        self._first_serial = serial  # everything before it is gone
        self.units: list[Unit] = []
        self.ends: list[int] = [0]  # tokens of all units up to each
        self._messages: list[Message] = []  # of all units
        self._message_ends: list[int] = [0]  # how many all units up to each have
        self._entry_ends: list[int] = [0]
        self.serials: list[int] = []  # each unit's first serial
        self.index = HistoryIndex()
        self._indexed = 0
        self._said: list[int] = []  # each unit's text without thinking: the same whomever a request is for
        self._thoughtful: list[tuple[int, int]] = []  # where messages with thinking are: the unit, the place in it
        self.limited: dict[int, ToolResultsEntry] = {}  # by their serials, results as they are shown where that is less
        self.epoch: EpochEntry | None = None
        self.compactions: dict[int, CompactionEntry] = {}  # by their serials, those that cover something
        self.asked: list[int] = []  # the units in which a person spoke
        self.last_output: ModelOutputEntry | None = None
        self.asked_at: datetime | None = None  # when the newest answered request left
        # By model and digest of its tools, when the newest answered request left.
        self._tools_asked: dict[tuple[ModelInvocationDescriptor, str], datetime] = {}
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
        for entry in entries[self.read :]:
            self._add(entry)
            self._last = entry
        self.read = len(entries)

    def aim_at(self, aim: Aim) -> None:
        """Count everything as it is for a request to this model, from now on."""
        if aim == self._aim:
            return
        before, self._aim = self._aim, aim
        changed = before.overhead != aim.overhead
        if changed:
            for unit in self.units:
                for place, message in enumerate(unit.messages):
                    unit.sizes[place] += count_overhead(message, aim.overhead)
                    unit.sizes[place] -= count_overhead(message, before.overhead)
        for number, place in self._thoughtful:
            unit = self.units[number]
            message = unit.messages[place]
            if before.takes_thinking_of(message) != aim.takes_thinking_of(message):
                unit.sizes[place] = self.count(message)
                changed = True
        if changed:
            self.ends = [0, *accumulate(unit.tokens for unit in self.units)]

    def count(self, message: Message) -> int:
        """Return what a message adds to a request to the model that is aimed at."""
        return self._aim.count(message, self.counter)

    @property
    def correction(self) -> UsageCorrection:
        """What usage has taught of the model that the request is for, where this counter counted."""
        return self._corrections.get(self._aim.invocation, UsageCorrection())

    def find_unit(self, serial: int, epoch: EpochEntry) -> int:
        """Return the number of the unit that begins at this serial; UnreadableData if none before the epoch does."""
        number = bisect_left(self.serials, serial)
        if number == len(self.serials) or self.serials[number] != serial or serial >= epoch.serial:
            raise UnreadableData(f"epoch {epoch.serial}: no part of the conversation before it begins at {serial}")
        return number

    def serial_of(self, unit: int) -> int:
        """Return the serial at which a unit begins, that of the entry to come for the one after the last."""
        return self.serials[unit] if unit < len(self.serials) else self.next_serial

    def tokens_from(self, unit: int) -> int:
        """Return the tokens of all units from this one on."""
        return self.ends[-1] - self.ends[unit]

    @property
    def overhead(self) -> Overhead:
        """What the target that is aimed at writes around what is said."""
        return self._aim.overhead

    def said_in(self, unit: int) -> int:
        """Return the tokens of what a unit says, without thinking and without what is written around it."""
        return self._said[unit]

    def messages_from(self, unit: int) -> list[Message]:
        """Return the messages of all units from this one on."""
        return self._messages[self._message_ends[unit] :]

    def count_entries_from(self, unit: int) -> int:
        """Return how many entries the units from this one on are made of."""
        return self._entry_ends[-1] - self._entry_ends[unit]

    def indexed(self) -> HistoryIndex:
        """Return the index of all units so far."""
        while self._indexed < len(self.units):
            unit = self.units[self._indexed]
            if unit is self._open:  # its results are still to come
                break
            share = self._said[self._indexed] // len(unit.entries)
            for entry in unit.entries:
                self.index.add(entry, share)
            self._indexed += 1
        return self.index

    @property
    def compaction(self) -> CompactionEntry | None:
        """The newest compaction."""
        return next(reversed(self.compactions.values()), None)

    @property
    def is_renewed(self) -> bool:
        """Whether an epoch has followed the last answer: nothing is cached of it yet that another one could lose."""
        return self.epoch is not None and self.last_output is not None and self.epoch.serial > self.last_output.serial

    def knows_tools_of(self, invocation: ModelInvocationDescriptor | None) -> bool:
        """Whether it is recorded which tools the model was offered."""
        return invocation in self._offered

    def last_asked(self, invocation: ModelInvocationDescriptor, tool_set: str) -> datetime | None:
        """Return when the newest answered request with these tools left for the model; None if there was none."""
        return self._tools_asked.get((invocation, tool_set))

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

    def _add(self, entry: HistoryEntry) -> None:
        if isinstance(entry, ContextualHistoryEntry):
            self._add_contextual(entry)
        elif isinstance(entry, InterruptionEntry):
            self._broken_off = entry if entry.partial is not None else None
        elif isinstance(entry, SystemInstructionEntry):
            self.instruction = entry.instruction or None
        elif isinstance(entry, EpochEntry):
            self.epoch = entry
        elif isinstance(entry, ToolSetEntry):
            self._offered[entry.invocation] = offered_digest(entry)
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
        if isinstance(entry, ToolResultsEntry) and self._result_limit is not None:
            shown = limit_results(entry, self._result_limit)
            if shown is not entry:
                entry = self.limited[entry.serial] = shown
        if isinstance(entry, ToolResultsEntry) and self._open is not None:
            self._put(self._open, entry, entry.messages())
            self._open = None
        else:
            # What broke off was tried again unless somebody spoke next: only then it is part of the conversation.
            if broken_off is not None and isinstance(entry, ModelInputEntry):
                self._put(self._new_unit(), broken_off, interrupted_messages(broken_off))
            unit = self._new_unit()
            self._put(unit, entry, entry.messages())
            if isinstance(entry, ModelInputEntry) and not entry.metadata.get(INJECTED_KEY):
                self.asked.append(len(self.units) - 1)
            is_calling = isinstance(entry, ModelOutputEntry) and bool(entry.message.tool_calls)
            self._open = unit if is_calling else None
        self.screen = None if isinstance(entry, ModelOutputEntry) else live_screen_of(entry)

    def _note_output(self, entry: ModelOutputEntry) -> None:
        self.last_output = entry
        self.invocation = entry.invocation
        self.asked_at = self._newest_at
        self.answers += 1
        if entry.invocation in self._offered and self.asked_at is not None:
            self._tools_asked[entry.invocation, self._offered[entry.invocation]] = self.asked_at
        estimate, counter = entry.metadata.get(ESTIMATE_KEY), entry.metadata.get(COUNTER_KEY, self.counter.name)
        if type(estimate) is int and estimate > 0 and counter == self.counter.name and entry.usage is not None:
            learned = self._corrections.get(entry.invocation, UsageCorrection())
            self._corrections[entry.invocation] = learned.updated_by(estimate, entry.usage.input_tokens)

    def _new_unit(self) -> Unit:
        unit = Unit()
        self.units.append(unit)
        for ends in (self.ends, self._message_ends, self._entry_ends):
            ends.append(ends[-1])
        self._said.append(0)
        return unit

    def _put(self, unit: Unit, entry: HistoryEntry, messages: Sequence[Message]) -> None:
        if not unit.entries:
            self.serials.append(entry.serial)
        overhead = self._aim.overhead
        sizes = [count_message(message, self.counter, overhead=overhead) for message in messages]
        self._said[-1] += sum(sizes) - sum(count_overhead(message, overhead) for message in messages)
        for place, message in enumerate(messages):
            if any(isinstance(part, Thinking) for part in message.parts):
                self._thoughtful.append((len(self.units) - 1, len(unit.messages) + place))
                sizes[place] = self.count(message)
        unit.put(entry, messages, sizes)
        self.ends[-1] += sum(sizes)
        self._messages += messages
        self._message_ends[-1] += len(messages)
        self._entry_ends[-1] += 1
