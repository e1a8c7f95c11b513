"""Where others may look in: before and after each model call and each tool. Telemetry is made of these."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..history import HistoryToolCallResult
from ..message import Message, ModelInvocationDescriptor, ToolCall
from ..stream import Assembly
from ..tools import ToolContext
from ..toolspec import ToolSpec
from .actions import Ending

__all__ = ["Hooks", "ModelCall"]


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


class Hooks:
    """Override what you want to know of. A hook that raises is logged and changes nothing.

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
        """A tool is about to run; its start is recorded."""

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """A tool has its result, which is recorded."""

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """A run has ended, or waits for a person."""
