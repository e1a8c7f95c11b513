"""OpenAI Chat Completions: deltas to its chunks, its whole answer and its errors. Pure; the mirror of `answers`.

Calls have an index, so their pieces may come side by side. Thinking has no official field; `reasoning_content` is the
one that most clients read.
"""

import re
from typing import Any

from ..._jsontext import encode_json
from ...delta import ErrorDelta, ImageDelta, ProviderItemDelta
from ...errors import ErrorCode
from ...message import FinishReason, ToolCall
from ...stream import AnswerForm, AnswerPart, AnswerWriter, ErrorAnswer
from ...usage import TokenUsage
from ..encoding import argument_text, data_url, given
from ..error_answers import error_answer, error_message
from ..written_ids import CHAT_PREFIX, spell_call_id
from .answers import REFUSAL_PART
from .dialects import SPECIFICATION

__all__ = ["ERROR_FORMS", "Writer", "error_form", "write_error"]

# A pause means that the answer is not at its end; `length` is the only word that says so.
FINISH_WORDS: dict[FinishReason, str] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.REFUSAL: "content_filter",
    FinishReason.PAUSE: "length",
}

# Code -> the `type` and the `code` of the error object.
ERROR_FORMS: dict[ErrorCode, tuple[str, str | None]] = {
    ErrorCode.AUTHENTICATION: ("invalid_request_error", "invalid_api_key"),
    ErrorCode.PERMISSION: ("permission_error", None),
    ErrorCode.INVALID_REQUEST: ("invalid_request_error", None),
    ErrorCode.NOT_FOUND: ("invalid_request_error", "model_not_found"),
    ErrorCode.UNSUPPORTED: ("invalid_request_error", "unsupported_value"),
    ErrorCode.RATE_LIMITED: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorCode.LIMIT_REACHED: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorCode.QUOTA_EXCEEDED: ("insufficient_quota", "insufficient_quota"),
    ErrorCode.CONTEXT_OVERFLOW: ("invalid_request_error", "context_length_exceeded"),
    ErrorCode.CONTENT_FILTERED: ("invalid_request_error", "content_filter"),
    ErrorCode.OVERLOADED: ("server_error", "overloaded"),
    ErrorCode.BUSY: ("server_error", "overloaded"),
    ErrorCode.TIMEOUT: ("server_error", "timeout_error"),
}
_OTHER_ERROR = ("server_error", None)

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Item of the decoder -> the field of a message that holds such items.
_ITEM_FIELDS = {"executed_tool": "executed_tools", "audio": "audio"}
# Provider data of texts and thinking that a message has beside them. In a stream, `reasoning_details` alone would be
# read as more thinking.
_STREAMED_FIELDS = frozenset({"annotations", "extra_content", "thought_signature"})
_MESSAGE_FIELDS = _STREAMED_FIELDS | {"reasoning_details"}


class Writer(AnswerWriter):
    """Deltas of one answer → chunks. The finish word and `[DONE]` are written for `done` alone."""

    specification = SPECIFICATION
    finish_words = FINISH_WORDS
    one_at_a_time = False
    says_images = True

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        head = encode_json({**self._head("chat.completion.chunk"), "choices": []})
        self._before = head.removesuffix(b"]}") + b'{"index":0,"delta":'
        self._called = 0  # how many calls have an index

    def begin(self) -> None:
        """Write the chunk that names the role."""
        self._emit({"role": "assistant", "content": ""})

    def open_part(self, part: AnswerPart) -> None:
        """Write a call's id and name; a text has no opening."""
        if part.kind == "tool_call":
            part.index = self._called
            self._called += 1
            if not _is_custom(part):
                head = {**_call_head(part), "function": {"name": part.name, "arguments": ""}}
                self._emit({"tool_calls": [{"index": part.index, **head}]})
                self._set_frame(part, b'{"tool_calls":[{"index":%d,"function":{"arguments":' % part.index, b"}}]}")
        elif part.kind == "thinking":
            self._set_frame(part, b'{"reasoning_content":', b"}")
        else:
            self._set_frame(part, b'{"refusal":' if self._is_refusal(part) else b'{"content":', b"}")

    def close_part(self, part: AnswerPart) -> None:
        """Write the fields that come with the end of a part; the API closes no part."""
        if part.delta is not None:
            self._emit(_unit_fields(part.delta))
        elif part.kind == "tool_call":
            further = _call_further(part)
            if _is_custom(part):
                self._emit({"tool_calls": [{"index": part.index, **_call_entry(part)}]})
            elif further:
                self._emit({"tool_calls": [{"index": part.index, **further}]})
        elif further := {name: value for name, value in (part.data or {}).items() if name in _STREAMED_FIELDS}:
            self._emit(further)

    def finish(self, word: str) -> None:
        """Write the finish word, the usage where the client asked for it, and the sentinel."""
        self._emit({}, word)
        if self.form.include_usage and (usage := self._usage()) is not None:
            self.emit("", {**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        self._events.append(("", b"[DONE]"))

    def fail(self, error: ErrorDelta) -> None:
        """Write the error; no finish word and no sentinel follow."""
        self.emit("", {"error": error_form(error)})

    def whole(self) -> dict[str, Any]:
        """Return the completion: its texts joined, its calls in a list."""
        texts = [part for part in self.parts if part.kind == "text"]
        refusals = [part.text for part in texts if self._is_refusal(part)]
        spoken = [part.text for part in texts if not self._is_refusal(part)]
        thoughts = [part for part in self.parts if part.kind == "thinking"]
        calls = [part for part in self.parts if part.kind == "tool_call"]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(spoken) if spoken or not calls else None,
            "refusal": "".join(refusals) if refusals else None,
        }
        for part in self.parts:
            if part.delta is not None:
                _add_fields(message, _unit_fields(part.delta))
            elif part.kind != "tool_call":
                fields = {name: value for name, value in (part.data or {}).items() if name in _MESSAGE_FIELDS}
                _add_fields(message, fields)
        if thinking := "".join(part.text for part in thoughts):
            message["reasoning_content"] = thinking
        if calls:
            message["tool_calls"] = [_call_entry(part) for part in calls]
        choice = {"index": 0, "message": message, "finish_reason": self.word or None, "logprobs": None}
        usage = self._usage()
        return {**self._head("chat.completion"), "choices": [choice], **({} if usage is None else {"usage": usage})}

    def _head(self, kind: str) -> dict[str, Any]:
        form = self.form
        return {"id": form.id_with("chatcmpl-"), "object": kind, "created": form.created, "model": form.model}

    def _set_frame(self, part: AnswerPart, before: bytes, after: bytes) -> None:
        part.frame = self.frame("", self._before + before, after + b',"finish_reason":null}]}')

    def _emit(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        self.emit("", {**self._head("chat.completion.chunk"), "choices": [choice]})

    def _is_refusal(self, part: AnswerPart) -> bool:
        return self.is_native and part.part_index == REFUSAL_PART

    def _usage(self) -> dict[str, Any] | None:
        native = self.message_data.get("usage")
        if self.usage == TokenUsage() and not native:
            return None
        return {**_write_usage(self.usage), **(native or {})}


def _call_head(part: AnswerPart) -> dict[str, Any]:
    return {
        "id": spell_call_id(part.call_id, _CALL_ID, CHAT_PREFIX),
        "type": "custom" if _is_custom(part) else "function",
    }


def _call_entry(part: AnswerPart) -> dict[str, Any]:
    """The call as a whole answer has it. A tool of free text has its text, not the object around it."""
    call = part.value()
    assert isinstance(call, ToolCall)
    head = {**_call_head(part), **_call_further(part)}
    if _is_custom(part):
        said = call.raw_args_text if call.arguments is None else call.arguments.get("input", call.raw_args_text)
        return {**head, "custom": {"name": part.name, "input": said}}
    return {**head, "function": {"name": part.name, "arguments": part.text if part.is_cut else _arguments(call)}}


def _arguments(call: ToolCall) -> str:
    """The argument text: the model's own also where it is no JSON, because a client may show it."""
    return argument_text(call) if call.arguments is not None and call.raw_args_text else call.raw_args_text


def _call_further(part: AnswerPart) -> dict[str, Any]:
    return given({"extra_content": (part.data or {}).get("extra_content")})


def _is_custom(part: AnswerPart) -> bool:
    return (part.data or {}).get("type") == "custom"


def _unit_fields(delta: ImageDelta | ProviderItemDelta) -> dict[str, Any]:
    """A picture or an item as a field of a message. OpenRouter's form of pictures is the only one."""
    if isinstance(delta, ImageDelta):
        url = delta.url if delta.data is None else data_url(delta.mime_type or "image/png", delta.data)
        return {"images": [{"type": "image_url", "image_url": {"url": url}}]}
    field = _ITEM_FIELDS.get(delta.item_type, "content")
    return {field: delta.item if field == "audio" else [delta.item]}


def _add_fields(message: dict[str, Any], fields: dict[str, Any]) -> None:
    """Add fields to a message; lists are joined, and a text before a list becomes its first part."""
    for name, value in fields.items():
        before = message.get(name)
        if name == "content" and isinstance(before, str):
            before = [{"type": "text", "text": before}] if before else []
        both = isinstance(before, list) and isinstance(value, list)
        message[name] = [*before, *value] if both and before is not None else value


def _write_usage(usage: TokenUsage) -> dict[str, Any]:
    """`prompt_tokens` counts cached tokens, `completion_tokens` reasoning. The API demands the three numbers."""
    prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
    cached = given({"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens})
    reasoning = given({"reasoning_tokens": usage.reasoning_tokens})
    total = prompt + completion if usage.total_tokens is None else usage.total_tokens
    fields: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    if cached:
        fields["prompt_tokens_details"] = cached
    if reasoning:
        fields["completion_tokens_details"] = reasoning
    return fields


def error_form(error: ErrorDelta) -> dict[str, Any]:
    """Return the error object of OpenAI's APIs."""
    kind, code = ERROR_FORMS.get(error.error_code, _OTHER_ERROR)
    return {"message": error_message(error), "type": kind, "param": None, "code": code}


def write_error(error: ErrorDelta) -> ErrorAnswer:
    """Return the answer to a request that failed before its stream began."""
    return error_answer(error, {"error": error_form(error)})
