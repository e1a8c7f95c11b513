"""OpenAI Responses: deltas to its events, its whole answer and its errors. Pure; the mirror of `answers`.

Each part is an item of its own, one is open at a time. A call that was cut gets no event that ends it; the last event
lists it as incomplete.
"""

import re
from typing import Any

from msgspec.structs import replace

from ..._jsontext import encode_json
from ...delta import ErrorDelta, ImageDelta, ProviderItemDelta
from ...errors import ErrorCode
from ...message import FinishReason, Message, ToolCall
from ...stream import AnswerForm, AnswerPart, AnswerWriter, ErrorAnswer
from ...usage import TokenUsage
from ..encoding import argument_text, base64_text, given
from ..error_answers import error_answer, error_message
from ..written_ids import CHAT_PREFIX, spell_call_id
from .dialects import SPECIFICATION
from .requests import own_items

__all__ = ["Writer", "write_error"]

# The status, with `:reason` where it is incomplete. A pause means that the answer is not at its end.
FINISH_WORDS: dict[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.LENGTH: "incomplete:max_output_tokens",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.CONTENT_FILTER: "incomplete:content_filter",
    FinishReason.REFUSAL: "incomplete:content_filter",
    FinishReason.PAUSE: "incomplete:max_output_tokens",
}

# Code -> the `type` and the `code` of the error object.
ERROR_FORMS: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.AUTHENTICATION: ("invalid_request_error", "invalid_api_key"),
    ErrorCode.PERMISSION: ("permission_error", "permission_denied"),
    ErrorCode.INVALID_REQUEST: ("invalid_request_error", "invalid_prompt"),
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
_OTHER_ERROR = ("server_error", "server_error")

_SENT_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')
_SENT_NUMBER = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,18})')
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CUSTOM = "custom_tool_call"
_ITEM_IDS = {"message": "msg_", "function_call": "fc_", _CUSTOM: "ctc_"}  # type of an item -> how its id begins
# What the type of a response demands, where the request does not say it.
_DEFAULTS: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
# Events of a text: the event of a piece, without `.delta`, and the further fields of each.
_TEXT_EVENT, _THOUGHT_EVENT = "response.output_text", "response.reasoning_summary_text"


class Writer(AnswerWriter):
    """Deltas of one answer → events. `response.completed` or `.incomplete` is written for `done` alone."""

    specification = SPECIFICATION
    finish_words = FINISH_WORDS
    seal_field = "encrypted_content"
    says_images = True

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        self._sequence = 0
        self._pictures: dict[Any, ImageDelta] = {}  # of the same API: the item that follows tells the rest

    def begin(self) -> None:
        """Write the two events that show the response without content."""
        for kind in ("response.created", "response.in_progress"):
            self._emit(kind, response=self._response("in_progress", []))

    def take_up(self, sent: bytes) -> None:
        """Go on with the id and the numbers of the events that were sent: clients refuse others."""
        if found := _SENT_ID.search(sent):
            self.form = replace(self.form, answer_id=found[1].decode())
        numbers = _SENT_NUMBER.findall(sent)
        self._sequence = int(numbers[-1]) + 1 if numbers else 0

    def open_part(self, part: AnswerPart) -> None:
        """Write the item as it begins, and the beginning of its text."""
        part.item = self._opened(part)
        place = self._place(part)
        self._emit("response.output_item.added", output_index=part.index, item=part.item)
        if part.kind == "text":
            self._emit("response.content_part.added", **place, part=_output_text(""))
            self._set_frame(part, f"{_TEXT_EVENT}.delta", {**place, "logprobs": []})
        elif part.kind == "tool_call" and part.item["type"] != _CUSTOM:
            self._set_frame(part, "response.function_call_arguments.delta", place)

    def write_piece(self, part: AnswerPart, piece: str) -> None:
        """Write a piece. The first one of a thinking opens its summary: thinking may have no text."""
        if part.kind == "thinking" and part.frame is None and self.form.stream:
            place = self._place(part)
            self._emit("response.reasoning_summary_part.added", **place, part=_summary_text(""))
            self._set_frame(part, f"{_THOUGHT_EVENT}.delta", place)
        if part.frame is not None:
            name, before, after = part.frame
            number = self._sequence
            self._sequence += 1
            text = encode_json(piece)
            self._events.append((name, b'%b%b%b,"sequence_number":%d}' % (before, text, after, number)))

    def close_part(self, part: AnswerPart) -> None:
        """Write the end of an item's text and the whole item."""
        if part.delta is not None:
            self._write_unit(part)
            return
        place = self._place(part)
        part.item = self._closed(part)
        if part.kind == "text":
            content = part.item["content"][0]
            self._emit(f"{_TEXT_EVENT}.done", **place, text=part.text, logprobs=[])
            self._emit("response.content_part.done", **place, part=content)
        elif part.kind == "thinking" and part.frame is not None:
            self._emit(f"{_THOUGHT_EVENT}.done", **place, text=part.text)
            self._emit("response.reasoning_summary_part.done", **place, part=_summary_text(part.text))
        elif part.item["type"] == _CUSTOM:
            self._emit("response.custom_tool_call_input.delta", **place, delta=part.item["input"])
            self._emit("response.custom_tool_call_input.done", **place, input=part.item["input"])
        elif part.kind == "tool_call":
            written = part.item["arguments"]
            self._emit("response.function_call_arguments.done", **place, name=part.name, arguments=written)
        self._emit("response.output_item.done", output_index=part.index, item=part.item)

    def finish(self, word: str) -> None:
        """Write the last event, which holds the whole response."""
        kind = "incomplete" if word.startswith("incomplete") else "completed"
        self._emit(f"response.{kind}", response=self._finished(word, [part.item for part in self.parts if part.item]))

    def fail(self, error: ErrorDelta) -> None:
        """Write `response.failed`: some clients show the words of no other event."""
        said = {"code": _error_words(error)[1], "message": error_message(error)}
        self._emit("response.failed", response={**self._response("failed", []), "error": said})

    def whole(self) -> dict[str, Any]:
        """Return the response. An answer of this API has the items that it came as."""
        if not self.is_native:
            items = [part.item if part.delta is not None else self._closed(part) for part in self.parts]
            return self._finished(self.word, [item for item in items if item])
        return self._finished(self.word, self._native_items())

    def _native_items(self) -> list[dict[str, Any]]:
        """The items that the parts came as. A message or a call that lost its id gets another one."""
        answer = Message.assistant(*(part.value() for part in self.parts))
        items = []
        for number, item in enumerate(own_items(answer)):
            prefix = _ITEM_IDS.get(str(item.get("type")))
            made = {"id": self._item_id(prefix, number), "status": "completed"} if prefix and "id" not in item else {}
            items.append({**made, **item})
        return items

    # ------------------------------------------------------------ items

    def _opened(self, part: AnswerPart) -> dict[str, Any]:
        """The item as its first event has it."""
        if part.kind == "text":
            item_id = self._item_id("msg_", part.index)
            return {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        if part.kind == "thinking":
            return {"id": self._item_id("rs_", part.index), "type": "reasoning", "summary": []}
        kind = _CUSTOM if (part.data or {}).get("type") == _CUSTOM else "function_call"
        return {
            "id": self._item_id(_ITEM_IDS[kind], part.index),
            "type": kind,
            "status": "in_progress",
            "call_id": spell_call_id(part.call_id, _CALL_ID, CHAT_PREFIX),
            "name": part.name,
            **given({"namespace": (part.data or {}).get("namespace")}),
            ("input" if kind == _CUSTOM else "arguments"): "",
        }

    def _closed(self, part: AnswerPart) -> dict[str, Any]:
        """The item as it is in the end."""
        data, item = part.data or {}, part.item or self._opened(part)
        further = {name: data[name] for name in data if name not in item}
        further = further if self.is_native or part.kind == "thinking" else {}
        match part.kind:
            case "text":
                content = {**_output_text(part.text), **(data.get("content") or {})}
                if content["type"] == "refusal":
                    content = {"type": "refusal", "refusal": part.text}
                return {**item, **further, "status": "completed", "content": [content]}
            case "thinking":
                further.pop("content", None)
                return {**item, **further, "summary": [_summary_text(part.text)] if part.pieces else []}
        call = part.value()
        assert isinstance(call, ToolCall)
        status = "incomplete" if part.is_cut else "completed"
        if item["type"] == _CUSTOM:
            said = call.raw_args_text if call.arguments is None else call.arguments.get("input", call.raw_args_text)
            return {**item, **further, "status": status, "input": said}
        # The model's own text also where it is no JSON: pieces of it were sent.
        written = argument_text(call) if call.arguments is not None and not part.text else part.text
        return {**item, **further, "status": status, "arguments": part.text if self.form.stream else written}

    def _write_unit(self, part: AnswerPart) -> None:
        """Write a picture or an item whole. A picture of this API comes before the item that it belongs to."""
        delta = part.delta
        if isinstance(delta, ImageDelta) and self.is_native:
            self._pictures[(part.data or {}).get("id")] = delta
            return
        if isinstance(delta, ProviderItemDelta):
            picture = self._pictures.pop(delta.item.get("id"), None)
            part.item = {**delta.item, "result": base64_text(picture.data)} if picture and picture.data else delta.item
        else:
            assert delta is not None
            if delta.data is None:  # the API has no picture by its address
                return
            part.item = {
                "id": self._item_id("ig_", part.index),
                "type": "image_generation_call",
                "status": "completed",
                "result": base64_text(delta.data),
                "output_format": (delta.mime_type or "image/png").removeprefix("image/"),
            }
        for kind in ("added", "done"):
            self._emit(f"response.output_item.{kind}", output_index=part.index, item=part.item)

    def _item_id(self, prefix: str, number: int) -> str:
        return f"{prefix}{self.form.answer_id.removeprefix('resp_')}_{number}"

    def _place(self, part: AnswerPart) -> dict[str, Any]:
        place = {"item_id": part.item["id"], "output_index": part.index}
        match part.kind:
            case "text":
                return {**place, "content_index": 0}
            case "thinking":
                return {**place, "summary_index": 0}
        return place

    # ------------------------------------------------------------ events

    def _emit(self, kind: str, **fields: Any) -> None:
        self.emit(kind, {"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1

    def _set_frame(self, part: AnswerPart, kind: str, fields: dict[str, Any]) -> None:
        before = encode_json({"type": kind, **fields}).removesuffix(b"}") + b',"delta":'
        part.frame = self.frame(kind, before, b"")

    def _finished(self, word: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        status, _, reason = word.partition(":")
        cut = [self._closed(part) for part in self.parts if part.is_cut and part.item]
        if cut:
            last = {item["id"]: item for item in cut}
            output = [last.get(item.get("id"), item) for item in output]
        response = {**self._response(status or None, output), "usage": self._usage()}
        return {**response, "incomplete_details": {"reason": reason}} if reason else response

    def _response(self, status: str | None, output: list[dict[str, Any]]) -> dict[str, Any]:
        form = self.form
        return {
            "id": form.id_with("resp_"),
            "object": "response",
            "created_at": form.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": form.model,
            "output": output,
            **_DEFAULTS,
            **form.echo,
            "usage": None,
        }

    def _usage(self) -> dict[str, Any] | None:
        native: dict[str, Any] | None = self.message_data.get("usage")
        if self.usage == TokenUsage() and not native:
            return None
        return native or _write_usage(self.usage)


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary_text(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _write_usage(usage: TokenUsage) -> dict[str, Any]:
    """`input_tokens` counts cached tokens, `output_tokens` reasoning. The API demands all of these numbers."""
    read, output = usage.input_tokens or 0, usage.output_tokens or 0
    written = given({"cache_write_tokens": usage.cache_write_tokens})
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0, "cache_write_tokens": 0, **written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": read + output if usage.total_tokens is None else usage.total_tokens,
    }


def _error_words(error: ErrorDelta) -> tuple[str, str]:
    return ERROR_FORMS.get(error.error_code, _OTHER_ERROR)


def write_error(error: ErrorDelta) -> ErrorAnswer:
    """Return the answer to a request that failed before its stream began."""
    kind, code = _error_words(error)
    return error_answer(error, {"error": {"message": error_message(error), "type": kind, "param": None, "code": code}})
