"""An agent as a tool of another one: each call gives a copy of it one task, in a session of its own."""

from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, ToolError
from ..history import AgentStatus, ToolStartedEntry
from ..tools import ToolContext, ToolDefinition
from .budget import Budget

if TYPE_CHECKING:
    from .agent import Agent

__all__ = ["make_task_tool"]

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, with everything one must know."}},
    "required": ["task"],
    "additionalProperties": False,
}


def make_task_tool(agent: "Agent[Any, Any]", name: str, description: str, timeout_ms: int | None) -> ToolDefinition:
    """Return the tool that `Agent.as_tool` promises."""

    async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        child = agent._copy()
        budget = getattr(context.agent, "_budget", None)
        around = budget if isinstance(budget, Budget) else None
        result = await child._start(arguments["task"], "", keeps_events=False, around=around).result()
        if result.status is not AgentStatus.COMPLETED:
            why = result.error.message if result.error else f"it is {result.status}"
            entries = child.session.entries if child.session is not None else ()
            has_acted = any(isinstance(entry, ToolStartedEntry) for entry in entries)
            effect = ". The tools that it ran before may have taken effect." if has_acted else ""
            raise ToolError(f"{name} did not finish: {why}{effect}", code=ErrorCode.TOOL_FAILED)
        return result.output

    return ToolDefinition(
        name=name,
        description=description,
        parameter_schema=_SCHEMA,
        execute=execute,
        requires_agent=True,
        timeout_ms=timeout_ms,
    )
