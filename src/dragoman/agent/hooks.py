"""Hooks: code of the user that is called before and after each model call and each tool. Telemetry uses them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec

from ..errors import InvalidValue
from ..history import HistoryToolCallResult
from ..message import Message, ModelInvocationDescriptor, ToolCall, require_text
from ..stream import Assembly
from ..tools import ToolContext
from ..tools.containing import Containing
from ..toolspec import ToolSpec
from .actions import Ending

__all__ = ["HookChain", "Hooks", "ModelCall"]

GRACE = 0.5  # seconds that a hook has to end once its run is stopped

_Given = ParamSpec("_Given")
_Said = TypeVar("_Said")


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call as it is about to be made."""

    session_id: str
    run_id: str
    call_index: int
    attempt: int
    invocation: ModelInvocationDescriptor
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    system: str = ""
    cache_anchors: tuple[int, ...] = ()
    params: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        for name, kind in (("messages", Message), ("tools", ToolSpec), ("cache_anchors", int)):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not all(isinstance(item, kind) for item in given):
                raise InvalidValue.of_content(f"ModelCall.{name}", given, f"a sequence of {kind.__name__}")
        if not isinstance(self.params, Mapping):
            raise InvalidValue.of_content("ModelCall.params", self.params, "a mapping of settings by name")
        require_text("ModelCall.system", self.system)


class Hooks:
    """Override what you want to know of. A hook that raises is logged and changes nothing.

    Where the run is aborted or its time is over, a hook that still runs is cancelled after half a second.

    `before_run`, `before_model` and `before_tool` run in the context (`contextvars`) of what they come before: a
    variable that they set is seen inside, and not beside it.
    """

    async def before_run(self, session_id: str, run_id: str) -> None:
        """A run begins, or goes on."""

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        """A model is about to be called; return another call to make that one instead."""

    async def after_first_delta(self, call: ModelCall) -> None:
        """The first delta of an answer has come."""

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        """A model call has ended, in a message or an error."""

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        """A tool is about to run; its start is recorded after this."""

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """A tool has its result, which is recorded."""

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """A run has ended, or waits for a person."""


class HookChain(Hooks):
    """Calls the hooks of one run, one after the other. What a hook raises is reported, and the run goes on.

    Once the run is stopped, a hook that does not end within `GRACE` seconds is cancelled.
    """

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._hooks = hooks
        self._limits: set[asyncio.Timeout] = set()  # of the hooks that run
        self.is_stopped = False

    def stop(self) -> None:
        """Limit the time of the hooks from now on: the run is aborted, or its time is over."""
        if not self.is_stopped:
            self.is_stopped = True
            for limit in self._limits:
                limit.reschedule(asyncio.get_running_loop().time() + GRACE)

    async def before_run(self, session_id: str, run_id: str) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "before_run", hooks.before_run, session_id, run_id)

    async def before_model(self, call: ModelCall) -> ModelCall:
        """Call each with the call that the one before it returned; return the last of them."""
        for hooks in self._hooks:
            said = await self._call(hooks, "before_model", hooks.before_model, call)
            if said is not None and not isinstance(said, ModelCall):
                raise InvalidValue.of_content(
                    f"what the hook {type(hooks).__name__}.before_model returns", said, "a ModelCall or None"
                )
            call = call if said is None else said
        return call

    async def after_first_delta(self, call: ModelCall) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "after_first_delta", hooks.after_first_delta, call)

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "after_model", hooks.after_model, call, assembly)

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "before_tool", hooks.before_tool, call, context)

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "after_tool", hooks.after_tool, call, context, result)

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """Call each."""
        for hooks in self._hooks:
            await self._call(hooks, "after_run", hooks.after_run, session_id, run_id, ending)

    async def _call(
        self,
        hooks: Hooks,
        name: str,
        method: Callable[_Given, Awaitable[_Said]],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Said | None:
        """Return what the hook returns; None if it raises, or was cancelled because the run is stopped."""
        # In this task and context: a variable that the hook sets is seen by what it comes before.
        with Containing(f"the hook {type(hooks).__name__}.{name}"):
            async with asyncio.timeout(GRACE if self.is_stopped else None) as limit:
                self._limits.add(limit)
                try:
                    return await method(*given, **named)
                finally:
                    self._limits.discard(limit)
        return None
