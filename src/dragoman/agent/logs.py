"""What a run tells the standard `logging`: records with fields, no secrets, and no content unless it is asked for.

    DEBUG    run started, model call started, tool started
    INFO     model call answered, tool finished, tool failed with RetryTool, run ended
    WARNING  model call failed, model call answered with what is not whole, tool failed
    ERROR    run failed

A record is made of what has just happened, never of the history, and nothing is done for a
record that no handler takes.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from ..errors import redact
from ..history import HistoryToolCallResult, ToolExecutionStatus
from ..message import FinishReason, ToolCall
from ..request import ObservabilityConfig
from ..stream import Assembly
from ..telemetry.conventions import error_words
from ..tools import ToolContext
from ..tools.executor import RETRY_TYPE
from .actions import Ending
from .hooks import Hooks, ModelCall

__all__ = ["LogHooks"]

LOGGER = logging.getLogger("dragoman.agent")
CONTENT_LIMIT = 2_000  # characters of a text that a record may hold
_READ_LIMIT = 32 * CONTENT_LIMIT  # of a longer one, this much is looked at


class LogHooks(Hooks):
    """Logs what happens in runs. The fields of a record stand in its attribute `dragoman`, a dict, and in its text.

    Records below the level of the settings are left out, whatever the level of the logger. All others are left to
    `logging`.
    """

    def __init__(self, config: ObservabilityConfig, *, clock: Callable[[], float] = time.perf_counter) -> None:
        off = logging.CRITICAL + 1
        self._level = off if config.log_level == "off" else logging.getLevelNamesMapping()[config.log_level.upper()]
        self._with_content = config.record_content
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}  # when the model call of a run began

    async def before_run(self, session_id: str, run_id: str) -> None:
        """Log that it begins."""
        if self._takes(logging.DEBUG):
            _log(logging.DEBUG, "run started", {"session_id": session_id, "run_id": run_id})

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        """Note the time, and log who is asked."""
        if self._takes(logging.WARNING):
            self._since[call.session_id, call.run_id] = self._clock()
        if self._takes(logging.DEBUG):
            counts = {"messages": len(call.messages), "tools": len(call.tools)}
            _log(logging.DEBUG, "model call started", _call_fields(call) | counts)
        return None

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        """Log how the call ended."""
        began = self._since.pop((call.session_id, call.run_id), None)
        reason = assembly.finish_reason
        is_whole = reason is not None and (reason.is_complete or reason is FinishReason.PAUSE)
        level = logging.INFO if is_whole else logging.WARNING
        if not self._takes(level):
            return
        fields = _call_fields(call)
        if began is not None:
            fields["seconds"] = round(self._clock() - began, 6)
        if assembly.usage is not None:
            fields |= {name: getattr(assembly.usage, name) for name in assembly.usage.__struct_fields__}
        if assembly.error is not None:
            error = assembly.error
            fields |= {"error_code": error.error_code.value, "error": error.message, "request_id": error.request_id}
            fields["provider_message"] = error.provider_message if self._with_content else None
            _log(level, "model call failed", fields)
            return
        fields["finish_reason"] = reason.value if reason else None
        if self._with_content and assembly.message is not None:
            fields["text"] = _excerpt(assembly.message.text)
        _log(level, "model call answered", fields)

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        """Log that it begins."""
        if self._takes(logging.DEBUG):
            _log(logging.DEBUG, "tool started", _tool_fields(call, context))

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        """Log how the call ended."""
        is_success = result.status is ToolExecutionStatus.SUCCESS
        is_usual = is_success or result.error_type == RETRY_TYPE  # the model is asked for another try
        level = logging.INFO if is_usual else logging.WARNING
        if not self._takes(level):
            return
        seconds = None if result.elapsed_seconds is None else round(result.elapsed_seconds, 6)
        fields = _tool_fields(call, context) | {"status": result.status.value, "seconds": seconds}
        if result.error_code is not None:
            fields |= {"error_code": result.error_code.value, "error_type": result.error_type}
        if self._with_content:
            fields |= {"arguments": _excerpt(call.raw_args_text), "result": _excerpt(result.text())}
        _log(level, "tool finished" if is_success else "tool failed", fields)

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        """Log how the run ended."""
        self._since.pop((session_id, run_id), None)  # of a call that was cut off
        error = ending.error
        level = logging.INFO if error is None else logging.ERROR
        if not self._takes(level):
            return
        fields: dict[str, Any] = {"session_id": session_id, "run_id": run_id, "status": ending.status.value}
        if error is not None:
            words = error_words(error.code, error.message, with_content=self._with_content)
            fields |= {"error_code": error.code.value, "error": words or None}
            # A provider may quote the prompt in its error.
            fields["provider_message"] = (error.provider_message or None) if self._with_content else None
        _log(level, "run ended" if error is None else "run failed", fields)

    def _takes(self, level: int) -> bool:
        return level >= self._level and LOGGER.isEnabledFor(level)


def _log(level: int, event: str, given: dict[str, Any]) -> None:
    fields = {name: _clean(value) for name, value in given.items() if value is not None}
    said = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    LOGGER.log(level, "%s: %s", event, said, extra={"dragoman": {"event": event, **fields}})


def _call_fields(call: ModelCall) -> dict[str, Any]:
    return {
        "session_id": call.session_id,
        "run_id": call.run_id,
        "call_index": call.call_index,
        "attempt": call.attempt,
        "provider": call.invocation.provider,
        "model": call.invocation.model,
    }


def _tool_fields(call: ToolCall, context: ToolContext[Any]) -> dict[str, Any]:
    return {
        "session_id": context.session_id,
        "run_id": context.run_id,
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
    }


def _excerpt(text: str) -> str:
    """The beginning of a text; secrets go before it is cut, so that none is cut into something unlike a secret."""
    return redact(text[:_READ_LIMIT])[:CONTENT_LIMIT]


def _clean(value: Any) -> Any:
    return redact(value) if isinstance(value, str) else value


def _shown(value: Any) -> str:
    """A value in one line: names and ids come from models and providers, and must not look like other records."""
    text = str(value)
    is_plain = text.isprintable() and not any(character in text for character in ' "=')
    return text if is_plain and text else repr(text)
