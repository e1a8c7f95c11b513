"""What a run may use up, counted. Runs inside runs count for those around them too."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..history import (
    CompactionEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelOutputEntry,
    RunStartedEntry,
    SamplingEntry,
    ToolResultsEntry,
)
from ..request import LoopConfig
from ..usage import TokenUsage
from .answers import CONTINUES_KEY

__all__ = ["Budget"]


class Budget:
    """The limits of a run and what it has used. `seconds` is a monotonic clock."""

    def __init__(self, limits: LoopConfig, *, seconds: Callable[[], float], around: "Budget | None" = None) -> None:
        self.limits = limits
        self.usage = TokenUsage()
        self.model_calls = 0
        self.tool_rounds = 0
        self.sampling_calls = 0
        self.continuations = 0  # how often a model was asked to go on with a cut answer
        self._seconds = seconds
        self._started = seconds()
        self._pauses = 0
        self._paused_at = 0.0
        self._all: tuple[Budget, ...] = (self, *(around._all if around else ()))

    def note_record(self, entries: Sequence[HistoryEntry], run_id: str) -> None:
        """Count what the open run has used so far, by the record: a resumed run keeps its limits.

        The time is not in the record: `max_seconds` counts from each resumption, and not while a person is waited for.
        """
        for index in range(len(entries) - 1, -1, -1):
            entry = entries[index]
            if isinstance(entry, RunStartedEntry) and entry.run_id == run_id:
                return
            if isinstance(entry, (ModelOutputEntry, SamplingEntry)):
                self.model_calls += 1
            self.sampling_calls += isinstance(entry, SamplingEntry)
            self.tool_rounds += isinstance(entry, ToolResultsEntry)
            self.continuations += bool(entry.metadata.get(CONTINUES_KEY))
            if isinstance(entry, (ModelOutputEntry, CompactionEntry, SamplingEntry)):
                self.usage += entry.usage or TokenUsage()
            elif isinstance(entry, InterruptionEntry) and entry.partial is not None and entry.partial.meta is not None:
                self.usage += entry.partial.meta.usage or TokenUsage()

    @property
    def seconds_left(self) -> float | None:
        """How much longer the run may take, here or in the runs around it; None without a limit."""
        return min((left for each in self._all if (left := each._own_seconds_left()) is not None), default=None)

    @property
    def tokens_left(self) -> int | None:
        """How many tokens may still be used, here or in the runs around it; None without a limit."""
        limited = [each for each in self._all if each.limits.max_tokens is not None]
        return min((max(0, (each.limits.max_tokens or 0) - each._tokens()) for each in limited), default=None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of this block: a person is waited for."""
        for each in self._all:
            each._pause()
        try:
            yield
        finally:
            for each in self._all:
                each._resume()

    def note_sampling(self) -> None:
        """Count a model call that a tool asked for, before it is made."""
        for each in self._all:
            each.sampling_calls += 1
            each.model_calls += 1

    def note_call(self) -> None:
        """Count a model call that was answered."""
        for each in self._all:
            each.model_calls += 1

    def note_usage(self, usage: TokenUsage | None) -> None:
        """Count what a model call used, whether it was answered or not."""
        if usage is not None:
            for each in self._all:
                each.usage += usage

    def note_tool_round(self) -> None:
        """Count a round of tools."""
        for each in self._all:
            each.tool_rounds += 1

    def reached(self, *, before_tools: bool = False) -> str | None:
        """Return, in words, the limit that forbids another model call or another round of tools; None if none does."""
        found = (words for each in self._all for words in each._reached(before_tools))
        return next(found, None)

    def sampling_reached(self) -> str | None:
        """Return, in words, the limit that forbids another model call for a tool; None if none does."""
        for each in self._all:
            if each.sampling_calls >= each.limits.max_sampling_calls:
                return f"tools may ask the model {each.limits.max_sampling_calls} times in a run"
        return self.reached()

    def _own_seconds_left(self) -> float | None:
        limit = self.limits.max_seconds
        now = self._paused_at if self._pauses else self._seconds()
        return None if limit is None else max(0.0, self._started + limit - now)

    def _pause(self) -> None:
        if not self._pauses:
            self._paused_at = self._seconds()
        self._pauses += 1

    def _resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._started += self._seconds() - self._paused_at

    def _tokens(self) -> int:
        return (self.usage.input_tokens or 0) + (self.usage.output_tokens or 0)

    def _reached(self, before_tools: bool) -> Iterator[str]:
        limits, usage = self.limits, self.usage
        if self._own_seconds_left() == 0.0:
            yield f"a run may take {limits.max_seconds} seconds"
        if before_tools:
            if limits.max_tool_rounds is not None and self.tool_rounds >= limits.max_tool_rounds:
                yield f"a run may have {limits.max_tool_rounds} rounds of tools"
            return
        if self.model_calls >= limits.max_iterations:
            yield f"a run may make {limits.max_iterations} model calls"
        tokens = self._tokens()
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            yield f"a run may use {limits.max_tokens} tokens, {tokens} are used"
        if limits.max_cost is not None and (usage.cost or 0.0) >= limits.max_cost:
            yield f"a run may cost {limits.max_cost} dollars, {usage.cost or 0.0:.4f} are spent"
