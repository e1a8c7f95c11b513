"""What a model is sent now: its messages, instruction and tools. The loop, the chat and `render` get it here.

An agent builds the contexts of long conversations in a thread, so that the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from .._finishing import finish
from ..context import RECALL_TOOL, Compactor, ContextBuildInput, ContextBuildResult, ContextManager, ContextUpdateResult
from ..history import HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolResultsEntry
from ..message import ModelInvocationDescriptor, Part, Text, Thinking, ToolCall
from ..request import AgentConfig
from ..router import AnyModel
from ..toolspec import ToolSpec

__all__ = ["Contexts"]

# Characters of a conversation. A context of so many takes milliseconds, whatever they are; of more it may take longer
# than an event loop should be kept from its other work.
THREAD_SIZE = 100_000

Entries: TypeAlias = Sequence[HistoryEntry]
Tools: TypeAlias = tuple[ToolSpec, ...]
_Result = TypeVar("_Result")


class Contexts:
    """The context managers of an agent, one for each model: each reads an entry once.

    Tools are the ones that the agent offers, without `recall`: a context has that one where its settings want it.
    """

    def __init__(self, config: AgentConfig, compactor: Compactor | None = None) -> None:
        self.compactor = compactor
        self._limit = config.tools.result_limit_bytes
        self._config = config.context
        if RECALL_TOOL.name in config.tools.disabled:
            self._config = msgspec.structs.replace(self._config, recall=False)
        self._managers: dict[ModelInvocationDescriptor, ContextManager] = {}
        self._measured: tuple[HistoryEntry | None, int, int] = (None, 0, 0)  # the last entry, how many, their size

    @property
    def have_recall(self) -> bool:
        """Whether a context may offer the tool that brings a folded entry back."""
        return self._config.recall

    @property
    def shaping(self) -> dict[str, Any]:
        """The settings that decide how entries become messages, as a tool set keeps them."""
        policy = "" if self._config.policy == "epochs" else self._config.policy
        return {"result_limit_bytes": self._limit, "policy": policy}

    def build_now(self, model: AnyModel, entries: Entries, tools: Tools) -> ContextBuildResult:
        """Return the context of the next call to this model; build it here, however long it takes."""
        return self._manager(model).build_context(_given(model, entries, tools))

    async def build(self, model: AnyModel, entries: Entries, tools: Tools) -> ContextBuildResult:
        """Return the context of the next call to this model."""
        return await self._work(self._manager(model).build_context, _given(model, entries, tools))

    async def update(
        self, model: AnyModel, entries: Entries, tools: Tools, *, overflow: bool = False
    ) -> ContextUpdateResult:
        """Return what should change before the next call to this model."""
        work = partial(self._manager(model).compute_context_updates, overflow=overflow)
        return await self._work(work, _given(model, entries, tools))

    def _manager(self, model: AnyModel) -> ContextManager:
        """The manager that knows what this model was sent."""
        manager = self._managers.get(model.invocation)
        if manager is None:
            manager = self._managers[model.invocation] = ContextManager(
                self._config, compactor=self.compactor, result_limit_bytes=self._limit
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


def _given(model: AnyModel, entries: Entries, tools: Tools) -> ContextBuildInput:
    """What the context of this model is built from now."""
    return ContextBuildInput(
        entries=entries,
        now=datetime.now(UTC),
        tools=tools if model.supports("tools") else (),
        model_info=model.model_info(),
        invocation=model.invocation,
        rules=model.rules,
        screen_in_result=not model.rules.user_after_tool,
    )


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    """Do pure work in a thread. A cancelled caller still waits: its caches have one user at a time."""
    return await finish(asyncio.get_running_loop().run_in_executor(None, work))


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
