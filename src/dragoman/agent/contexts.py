"""The contexts of an agent's models, built where they keep nobody waiting: those of long conversations in a thread."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ..context import RECALL_TOOL, Compactor, ContextBuildInput, ContextBuildResult, ContextManager, ContextUpdateResult
from ..history import HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolResultsEntry
from ..message import ModelInvocationDescriptor, Part, Text, Thinking, ToolCall
from ..request import AgentConfig
from ..router import AnyModel

__all__ = ["Contexts"]

# Characters of a conversation. A context of so many takes milliseconds, whatever they are; of more it may take longer
# than an event loop should be kept from its other work.
THREAD_SIZE = 100_000

_Result = TypeVar("_Result")


class Contexts:
    """The context managers of an agent, one for each model: each reads an entry once."""

    def __init__(self, config: AgentConfig, compactor: Compactor | None) -> None:
        self.compactor = compactor
        self._config = config
        self._managers: dict[ModelInvocationDescriptor, ContextManager] = {}
        self._measured: tuple[HistoryEntry | None, int, int] = (None, 0, 0)  # the last entry, how many, their size

    async def build(self, model: AnyModel, given: ContextBuildInput) -> ContextBuildResult:
        """Return the context of the next call to this model."""
        return await self._work(self._manager(model).build_context, given)

    async def update(self, model: AnyModel, given: ContextBuildInput, *, overflow: bool = False) -> ContextUpdateResult:
        """Return what should change before the next call to this model."""
        return await self._work(partial(self._manager(model).compute_context_updates, overflow=overflow), given)

    def _manager(self, model: AnyModel) -> ContextManager:
        """The manager that knows what this model was sent."""
        manager = self._managers.get(model.invocation)
        if manager is None:
            context = self._config.context
            if RECALL_TOOL.name in self._config.tools.disabled:
                context = msgspec.structs.replace(context, recall=False)
            manager = self._managers[model.invocation] = ContextManager(
                context,
                compactor=self.compactor,
                result_limit_bytes=self._config.tools.result_limit_bytes,
            )
        return manager

    async def _work(self, work: Callable[[ContextBuildInput], _Result], given: ContextBuildInput) -> _Result:
        if self._size(given.entries) <= THREAD_SIZE:
            return work(given)
        # Entries are a view of what was there, all of it read by now: what is appended meanwhile is not in it.
        return await _in_thread(partial(work, given))

    def _size(self, entries: Sequence[HistoryEntry]) -> int:
        """About how many characters the entries say; each is measured once."""
        last, count, size = self._measured
        if count > len(entries) or (count and entries[count - 1] is not last):
            count = size = 0
        size += sum(map(_size_of, entries[count:]))
        self._measured = (entries[-1] if entries else None, len(entries), size)
        return size


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    """Do pure work in a thread. Cancelled, wait for its end all the same: what it remembers has one user at a time."""
    done = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        done.exception()  # seen, so that nobody is told of it as lost
        raise cancelled
    return done.result()


def _size_of(entry: HistoryEntry) -> int:
    if isinstance(entry, ModelInputEntry):
        return sum(map(_part_size, entry.parts))
    if isinstance(entry, ModelOutputEntry):
        return sum(map(_part_size, entry.message.parts))
    if isinstance(entry, ToolResultsEntry):
        return sum(len(section.value) for result in entry.results for section in result.result.live)
    return 0


def _part_size(part: Part) -> int:
    if isinstance(part, (Text, Thinking)):
        return len(part.text)
    return len(part.raw_args_text) if isinstance(part, ToolCall) else 0
