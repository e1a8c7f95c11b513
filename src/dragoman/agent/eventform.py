"""The JSON form of run events: what `dragoman chat --json` prints and what a browser is sent.

An event is `{"kind", "runId", "callIndex", "seq", "payload"}`. In the payload a delta and a message are in their
published form, a result is as in the entry that keeps it, an error has a code, a message, whether a retry may help, and
what the provider said.
"""

from typing import Any, assert_never

import msgspec

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue
from ..history import HistoryToolCallResult, ToolFinishedEntry, entry_to_json
from ..jsonform import message_to_object, to_json
from ..message import ToolCall
from .actions import RunError
from .events import (
    ApprovalAskedEvent,
    DeltaEvent,
    ErrorEvent,
    FinishedEvent,
    MediaNotShownEvent,
    MessageEvent,
    QuestionAskedEvent,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)

__all__ = ["event_to_json"]


def event_to_json(event: RunEvent) -> bytes:
    """Return the event as compact JSON; the same event always gives the same bytes."""
    if not isinstance(event, RunEvent):
        raise InvalidValue.of("event_to_json: the value", event, "an event of one of the classes in dragoman.agent")
    written = {
        "kind": event.kind,
        "runId": event.run_id,
        "callIndex": event.call_index,
        "seq": event.seq,
        "payload": _payload(event),
    }
    return encode_json(written)


def _payload(event: RunEvent) -> dict[str, Any]:
    match event:
        case StatusEvent():
            return {"status": event.status.value}
        case DeltaEvent():
            return {"delta": msgspec.Raw(to_json(event.delta))}
        case MessageEvent():
            return {"message": message_to_object(event.message)}
        case ToolStartedEvent() | ApprovalAskedEvent():
            return {"call": _call_object(event.call)}
        case QuestionAskedEvent():
            return _question_object(event)
        case ToolResultEvent():
            return {"result": _result_object(event.result)}
        case MediaNotShownEvent():
            return {"what": event.what, "why": event.why}
        case ErrorEvent():
            return {"error": _error_object(event.error)}
        case FinishedEvent(error=None):
            return {"status": event.status.value}
        case FinishedEvent():
            assert event.error is not None
            return {"status": event.status.value, "error": _error_object(event.error)}
        case _:
            assert_never(event)


def _call_object(call: ToolCall) -> dict[str, Any]:
    written = {
        "toolName": call.tool_name,
        "toolCallId": call.tool_call_id,
        "rawArguments": call.raw_args_text,
        "arguments": call.arguments,
        "parseError": call.parse_error,
        "parseWarning": call.parse_warning,
    }
    return {name: value for name, value in written.items() if value is not None}


def _question_object(event: QuestionAskedEvent) -> dict[str, Any]:
    question = event.question
    written: dict[str, Any] = {
        "questionId": event.question_id,
        "toolCallId": event.call.tool_call_id,
        "toolName": event.call.tool_name,
        "text": question.text,
        "schema": question.schema,
        "url": question.url or None,
        "origin": question.origin or None,
    }
    return {name: value for name, value in written.items() if value is not None}


def _result_object(result: HistoryToolCallResult) -> Any:
    entry = ToolFinishedEntry(result, serial=0, entry_id="-")
    return decode_json(entry_to_json(entry))["payload"]["result"]


def _error_object(error: RunError) -> dict[str, Any]:
    written: dict[str, Any] = {"code": error.code.value, "message": error.message, "retryable": error.retryable}
    if error.retry_after is not None:
        written["retryAfter"] = error.retry_after
    if error.provider_message:
        written["providerMessage"] = error.provider_message
    return written
