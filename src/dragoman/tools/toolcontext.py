"""What a tool gets beside its arguments. Models never see it: it is not part of a schema."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .._fieldtypes import require_field_types
from .asking import Asking

if TYPE_CHECKING:
    import typing_extensions

    RuntimeT_co = typing_extensions.TypeVar("RuntimeT_co", covariant=True, default=Any)
else:  # only checkers need the default; typing has it from Python 3.13 on
    RuntimeT_co = TypeVar("RuntimeT_co", covariant=True)

__all__ = ["ToolContext"]


class ToolContext(msgspec.Struct, Generic[RuntimeT_co], frozen=True, kw_only=True):
    """Which call this is, and what the user and the agent give to tools.

    `runtime` is the object that the user gave to the agent; `ToolContext[MyRuntime]` says of which type it is. The
    record never holds it. `agent` is the agent that runs the tool. `root` is the folder of `AgentConfig.runtime`,
    absolute and without links; `options` are its options, a copy for each call. `retries_left` is how often the tool
    may still raise `RetryTool`. `asking` is how a tool asks a person, or the agent's model, while it runs.
    """

    session_id: str = ""
    run_id: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    runtime: RuntimeT_co = None  # type: ignore[assignment]  # without a runtime the type is None
    agent: Any = None
    root: str | None = None
    options: dict[str, Any] = {}
    retries_left: int = 0
    asking: Asking | None = None

    def __post_init__(self) -> None:
        require_field_types(self)

    def __repr__(self) -> str:  # runtime and options may hold keys, and error reporters show local variables
        where = f"session {self.session_id!r}, run {self.run_id!r}"
        call = f"{self.tool_name!r}, call {self.tool_call_id!r}, " if self.tool_name else ""
        return f"<ToolContext {call}{where}, runtime of {type(self.runtime).__name__}>"
