"""What a run tells the standard `logging`: records with fields, no secrets, and no content unless it is asked for."""

import logging
import time
from typing import Any

from ..errors import redact
from ..history import HistoryToolCallResult, ToolCallRequest, ToolExecutionStatus
from ..request import ObservabilityConfig
from ..stream import Assembly
from ..tools import ToolContext
from .actions import Ending
from .hooks import Hooks, ModelCall

__all__ = ["LogHooks"]

LOGGER = logging.getLogger("dragoman.agent")
_CONTENT_LIMIT = 2_000


class LogHooks(Hooks):
    """Logs runs, model calls and tools as they end. The fields of a record stand in its attribute `dragoman`."""

    def __init__(self, config: ObservabilityConfig) -> None:
        self._level = logging.CRITICAL + 1 if config.log_level == "off" else getattr(logging, config.log_level.upper())
        self._with_content = config.record_content
        self._started: dict[str, float] = {}

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        """Note the time."""
        self._started[_key(call)] = time.perf_counter()
        return None

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        """Log how the call ended."""
        fields: dict[str, Any] = {
            "session_id": call.session_id,
            "run_id": call.run_id,
            "call_index": call.call_index,
            "attempt": call.attempt,
            "provider": call.invocation.provider,
            "model": call.invocation.model,
            "seconds": time.perf_counter() - self._started.pop(_key(call), time.perf_counter()),
        }
        if assembly.usage is not None:
            usage = assembly.usage
            fields |= {name: getattr(usage, name) for name in usage.__struct_fields__}
        if assembly.error is not None:
            fields["error_code"] = assembly.error.error_code.value
            self._log(logging.WARNING, "model call failed", fields)
            return
        fields["finish_reason"] = assembly.finish_reason.value if assembly.finish_reason else None
        if self._with_content and assembly.message is not None:
            fields["text"] = redact(assembly.message.text)[:_CONTENT_LIMIT]
        self._log(logging.INFO, "model call answered", fields)

    async def after_tool(self, call: ToolCallRequest, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """Log how the call ended."""
        fields: dict[str, Any] = {
            "session_id": context.session_id,
            "run_id": context.run_id,
            "tool_call_id": call.tool_call_id,
            "tool_name": call.tool_name,
            "status": result.status.value,
            "seconds": result.elapsed_seconds,
        }
        if result.error_code is not None:
            fields["error_code"] = result.error_code.value
        if self._with_content:
            fields["arguments"] = redact(call.raw_arguments)[:_CONTENT_LIMIT]
            fields["result"] = redact(result.text())[:_CONTENT_LIMIT]
        ok = result.status is ToolExecutionStatus.SUCCESS
        self._log(logging.INFO if ok else logging.WARNING, "tool finished" if ok else "tool failed", fields)

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """Log how the run ended."""
        fields = {"session_id": session_id, "run_id": run_id, "status": ending.status.value}
        if ending.error is not None:
            fields |= {"error_code": ending.error.code.value, "error": ending.error.message}
        self._log(logging.INFO if ending.error is None else logging.WARNING, "run ended", fields)

    def _log(self, level: int, what: str, fields: dict[str, Any]) -> None:
        if level >= self._level and LOGGER.isEnabledFor(level):
            said = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
            LOGGER.log(level, "%s: %s", what, said, extra={"dragoman": fields})


def _key(call: ModelCall) -> str:
    return f"{call.run_id}/{call.call_index}/{call.attempt}"
