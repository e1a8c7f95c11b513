"""What the settings of observability turn on: log records, spans and metrics, each as hooks."""

from typing import Any

from ..history import HistoryToolCallResult
from ..message import ToolCall
from ..request import ObservabilityConfig
from ..stream import Assembly
from ..telemetry import Telemetry
from ..telemetry.conventions import CANCELLED, UNKNOWN_ERROR
from ..telemetry.operations import ChatOperation, RunOperation, ToolOperation
from ..tools import ToolContext
from .actions import Ending
from .hooks import Hooks, ModelCall
from .logs import LogHooks

__all__ = ["TelemetryHooks", "observers"]


def observers(config: ObservabilityConfig, *, agent_name: str = "") -> tuple[Hooks, ...]:
    """Return the hooks that do what the settings say; raise MissingExtra if they need what is not installed."""
    found: list[Hooks] = []
    if config.log_level != "off":
        found.append(LogHooks(config))
    if config.traces or config.metrics:
        found.append(TelemetryHooks(Telemetry(config), agent_name=agent_name))
    return tuple(found)


class _OpenRun:
    """A run under way, and what is open inside it."""

    def __init__(self, operation: RunOperation) -> None:
        self.operation = operation
        self.chat: ChatOperation | None = None
        self.tools: dict[str, ToolOperation] = {}

    def cut(self, error_type: str) -> None:
        """End the open operations, which have no outcome."""
        if self.chat is not None:
            self.chat.cut(error_type)
        for tool in self.tools.values():
            tool.cut(error_type)


class TelemetryHooks(Hooks):
    """Records runs, model calls and tools. One object may serve any number of agents at once."""

    def __init__(self, telemetry: Telemetry, *, agent_name: str = "") -> None:
        self._telemetry = telemetry
        self._agent_name = agent_name
        self._runs: dict[tuple[str, str], _OpenRun] = {}

    async def before_run(self, session_id: str, run_id: str) -> None:
        """Begin the span around everything; what is current here is around it."""
        run = self._telemetry.begin_run(session_id=session_id, run_id=run_id, agent_name=self._agent_name)
        run.enter()
        self._runs[session_id, run_id] = _OpenRun(run)

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        """Begin a span that is current while the model is asked."""
        run = self._runs[call.session_id, call.run_id]
        if run.chat is not None:  # the call was refused before it was sent, and another model is asked
            run.chat.cut(UNKNOWN_ERROR)
        run.chat = self._telemetry.begin_chat(
            run.operation, call.invocation, params=call.params, call_index=call.call_index, attempt=call.attempt
        )
        run.chat.enter()
        return None

    async def after_first_delta(self, call: ModelCall) -> None:
        """Note when it came."""
        chat = self._runs[call.session_id, call.run_id].chat
        if chat is not None:
            chat.note_first_chunk()

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        """End the span with what was sent and what came back."""
        run = self._runs[call.session_id, call.run_id]
        chat, run.chat = run.chat, None
        if chat is not None:
            chat.leave()
            chat.end(assembly, params=call.params, system=call.system, messages=call.messages)

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        """Begin a span that is current inside the tool."""
        run = self._runs[context.session_id, context.run_id]
        tool = run.tools[call.tool_call_id] = self._telemetry.begin_tool(run.operation, call)
        tool.enter()  # in a context of the tool's own, which ends with it

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """End the span with the result."""
        tool = self._runs[context.session_id, context.run_id].tools.pop(call.tool_call_id, None)
        if tool is not None:
            tool.end(result)

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """End the span, and before it what was cut off inside."""
        run = self._runs.pop((session_id, run_id))
        error = ending.error
        run.cut(error.code.value if error is not None else CANCELLED)
        run.operation.leave()
        if error is None:
            run.operation.end(ending.status)
        else:
            run.operation.end(ending.status, error_code=error.code, error_message=error.message)
