"""Anthropic Messages: deltas to its events, its whole answer and its errors. Pure; the mirror of `answers`.

Blocks are numbered from 0, one is open at a time. A call that was cut gets no `content_block_stop`.
"""

import re
from typing import Any

from ...delta import ErrorDelta, ProviderItemDelta
from ...errors import ErrorCode
from ...message import FinishReason, ToolCall
from ...stream import AnswerPart, AnswerWriter, ErrorAnswer
from ...usage import TokenUsage
from ..encoding import argument_object, given
from ..error_answers import error_answer, error_message
from ..written_ids import MESSAGES_PREFIX, spell_call_id
from .dialects import SPECIFICATION

__all__ = ["Writer", "write_error"]

# The API has no word for a filter but its refusal, and none for a reason that is not known.
FINISH_WORDS: dict[FinishReason, str] = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.REFUSAL: "refusal",
    FinishReason.PAUSE: "pause_turn",
}

ERROR_TYPES: dict[ErrorCode, str] = {
    ErrorCode.AUTHENTICATION: "authentication_error",
    ErrorCode.PERMISSION: "permission_error",
    ErrorCode.INVALID_REQUEST: "invalid_request_error",
    ErrorCode.NOT_FOUND: "not_found_error",
    ErrorCode.UNSUPPORTED: "invalid_request_error",
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.LIMIT_REACHED: "rate_limit_error",
    ErrorCode.QUOTA_EXCEEDED: "billing_error",
    ErrorCode.OVERLOADED: "overloaded_error",
    ErrorCode.BUSY: "overloaded_error",
    ErrorCode.TIMEOUT: "timeout_error",
    ErrorCode.CONTEXT_OVERFLOW: "invalid_request_error",
    ErrorCode.CONTENT_FILTERED: "invalid_request_error",
}
_OTHER_ERROR = "api_error"
_STATUSES = {ErrorCode.OVERLOADED: 529, ErrorCode.BUSY: 529, ErrorCode.QUOTA_EXCEEDED: 402}
_OVERFLOW = "prompt is too long"  # the words by which clients know it
# How other vendors tell the sizes of an overflow: OpenAI and servers like it, Gemini.
_SIZES = (
    re.compile(
        r"maximum context length is (?P<most>\d+) tokens.{0,80}?(?:requested|resulted in) (?P<given>\d+) tokens"
    ),
    re.compile(r"input token count \(?(?P<given>\d+)\)? exceeds .{0,60}?\(?(?P<most>\d+)\)?(?!\d)"),
)

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Kind of part -> the API's name of its block, of its pieces, and of their text.
_PIECES: dict[str, tuple[str, str, str]] = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_call": ("tool_use", "input_json_delta", "partial_json"),
}


class Writer(AnswerWriter):
    """Deltas of one answer → events. `message_stop` is written for `done` alone."""

    specification = SPECIFICATION
    finish_words = FINISH_WORDS
    seal_field = "signature"

    def begin(self) -> None:
        """Write `message_start`, with what is known of the usage."""
        self._emit("message_start", message=self._message([], None))

    def open_part(self, part: AnswerPart) -> None:
        """Write the start of a block. Redacted thinking has no pieces."""
        _, piece, field = _PIECES[part.kind]
        self._emit("content_block_start", index=part.index, content_block=_opened(part))
        before = f'{{"type":"content_block_delta","index":{part.index},"delta":{{"type":"{piece}","{field}":'
        part.frame = self.frame("content_block_delta", before.encode(), b"}}")

    def close_part(self, part: AnswerPart) -> None:
        """Write the end of a block, after the fields that come with it."""
        data = part.data or {}
        if isinstance(part.delta, ProviderItemDelta):
            self._emit("content_block_start", index=part.index, content_block=part.delta.item)
        elif part.kind == "text":
            for citation in data.get("citations", ()):
                self._emit_delta(part, {"type": "citations_delta", "citation": citation})
        elif part.kind == "thinking" and data.get("signature"):
            self._emit_delta(part, {"type": "signature_delta", "signature": data["signature"]})
        self._emit("content_block_stop", index=part.index)

    def finish(self, word: str) -> None:
        """Write `message_delta` with the usage, which replaces the first one, and `message_stop`."""
        further = {name: value for name, value in self.message_data.items() if name != "usage"}
        delta = {"stop_reason": word, "stop_sequence": None, **further}
        self._emit("message_delta", delta=delta, usage=self._usage())
        self._emit("message_stop")

    def fail(self, error: ErrorDelta) -> None:
        """Write the error event."""
        self.emit("error", _error_body(error))

    def whole(self) -> dict[str, Any]:
        """Return the message. Calls that were cut are left out: `input` must be a whole object."""
        content = [_block(part) for part in self.parts if not part.is_cut]
        further = {name: value for name, value in self.message_data.items() if name != "usage"}
        return {**self._message(content, self.word or None), **further}

    def _emit(self, kind: str, **fields: Any) -> None:
        self.emit(kind, {"type": kind, **fields})

    def _emit_delta(self, part: AnswerPart, delta: dict[str, Any]) -> None:
        self._emit("content_block_delta", index=part.index, delta=delta)

    def _message(self, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": self.form.id_with("msg_"),
            "type": "message",
            "role": "assistant",
            "model": self.form.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        return {**_write_usage(self.usage), **self.message_data.get("usage", {})}


def _opened(part: AnswerPart) -> dict[str, Any]:
    """The block as its first event has it."""
    data = part.data or {}
    match part.kind:
        case "tool_call":
            return {**_call_head(part), "input": {}, **given({"caller": data.get("caller")})}
        case "thinking" if "data" in data:
            return {"type": "redacted_thinking", "data": data["data"]}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}


def _block(part: AnswerPart) -> dict[str, Any]:
    """The block as a whole answer has it."""
    if isinstance(part.delta, ProviderItemDelta):
        return part.delta.item
    opened, data = _opened(part), part.data or {}
    match part.kind:
        case "tool_call":
            call = part.value()
            assert isinstance(call, ToolCall)
            return {**opened, "input": argument_object(call)}
        case "text":
            return {**opened, "text": part.text, **given({"citations": data.get("citations")})}
        case "thinking" if "data" not in data:
            return {**opened, "thinking": part.text, "signature": data.get("signature", "")}
    return opened


def _call_head(part: AnswerPart) -> dict[str, Any]:
    return {"type": "tool_use", "id": spell_call_id(part.call_id, _CALL_ID, MESSAGES_PREFIX), "name": part.name}


def _write_usage(usage: TokenUsage) -> dict[str, Any]:
    """`input_tokens` leaves out cached tokens. The API demands the two numbers, known or not.

    OpenRouter counts the same tokens as read from the cache and as written to it: all input is still the sum of three.
    """
    left = usage.input_tokens or 0
    read = None if usage.cache_read_tokens is None else min(usage.cache_read_tokens, left)
    left -= read or 0
    written = None if usage.cache_write_tokens is None else min(usage.cache_write_tokens, left)
    fields: dict[str, Any] = {
        "input_tokens": left - (written or 0),
        "output_tokens": usage.output_tokens or 0,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    if usage.reasoning_tokens is not None:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return given(fields)


def _error_body(error: ErrorDelta) -> dict[str, Any]:
    kind, message = ERROR_TYPES.get(error.error_code, _OTHER_ERROR), error_message(error)
    if error.error_code is ErrorCode.CONTEXT_OVERFLOW and _OVERFLOW not in message:
        sizes = next((found for each in _SIZES if (found := each.search(message))), None)
        counted = f"{sizes['given']} tokens > {sizes['most']} maximum: " if sizes is not None else ""
        message = f"{_OVERFLOW}: {counted}{message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def write_error(error: ErrorDelta) -> ErrorAnswer:
    """Return the answer to a request that failed before its stream began."""
    return error_answer(error, _error_body(error), _STATUSES)
