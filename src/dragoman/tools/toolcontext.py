"""What a tool gets beside its arguments. Models never see it: it is not part of a schema."""

from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["ToolContext"]

RuntimeT = TypeVar("RuntimeT")


class ToolContext(msgspec.Struct, Generic[RuntimeT], frozen=True, kw_only=True):
    """Which call this is, and what the user and the agent give to tools.

    `runtime` is the object that the user handed to the agent; `ToolContext[MyRuntime]` says of which type it is.
    `agent` is the agent that runs the tool. `root` is the folder of `AgentConfig.runtime`, absolute and without links;
    `options` are its options, a copy for each call.
    """

    session_id: str = ""
    run_id: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    runtime: RuntimeT = None  # type: ignore[assignment]  # without a runtime the type is None
    agent: Any = None
    root: str | None = None
    options: dict[str, Any] = {}
