"""Gemini generateContent: deltas to its chunks, its whole answer and its errors. Pure; the mirror of `answers`.

A call is one part with all its arguments: one that was cut is not written. The stream has no keep-alive: the vendor's
SDK takes comments, event names and `[DONE]` for broken JSON.
"""

from typing import Any

from ..._jsontext import encode_json
from ...delta import ErrorDelta
from ...errors import ErrorCode
from ...message import FinishReason
from ...stream import AnswerForm, AnswerPart, AnswerWriter, ErrorAnswer
from ...usage import TokenUsage
from ..encoding import given
from ..error_answers import STATUSES, error_answer, error_message
from .answers import BLOCKED
from .dialects import DIALECTS, SPECIFICATION
from .requests import encode_part

__all__ = ["Writer", "write_error"]

# A pause means that the answer is not at its end; `MAX_TOKENS` is the only word that says so.
FINISH_WORDS: dict[FinishReason, str] = {
    FinishReason.STOP: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.CONTENT_FILTER: "SAFETY",
    FinishReason.REFUSAL: "SAFETY",
    FinishReason.PAUSE: "MAX_TOKENS",
    FinishReason.OTHER: "OTHER",
}

ERROR_STATUSES: dict[ErrorCode, str] = {
    ErrorCode.AUTHENTICATION: "UNAUTHENTICATED",
    ErrorCode.PERMISSION: "PERMISSION_DENIED",
    ErrorCode.INVALID_REQUEST: "INVALID_ARGUMENT",
    ErrorCode.NOT_FOUND: "NOT_FOUND",
    ErrorCode.UNSUPPORTED: "INVALID_ARGUMENT",
    ErrorCode.RATE_LIMITED: "RESOURCE_EXHAUSTED",
    ErrorCode.LIMIT_REACHED: "RESOURCE_EXHAUSTED",
    ErrorCode.QUOTA_EXCEEDED: "RESOURCE_EXHAUSTED",
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.BUSY: "UNAVAILABLE",
    ErrorCode.TIMEOUT: "DEADLINE_EXCEEDED",
    ErrorCode.CONTEXT_OVERFLOW: "INVALID_ARGUMENT",
    ErrorCode.CONTENT_FILTERED: "INVALID_ARGUMENT",
}
_OTHER_ERROR = "INTERNAL"
_OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"
_DIALECT = DIALECTS[0]


class Writer(AnswerWriter):
    """Deltas of one answer → chunks. `finishReason` is written for `done` alone."""

    specification = SPECIFICATION
    finish_words = FINISH_WORDS
    says_images = True

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        head = encode_json(self._head()).removeprefix(b"{")
        self._after = b'}]},"index":0}],' + head  # of a chunk with one text

    def open_part(self, part: AnswerPart) -> None:
        """Prepare the chunks of a text; nothing is written yet."""
        if part.kind != "tool_call":
            thought = b',"thought":true' if part.kind == "thinking" else b""
            part.frame = self.frame(
                "", b'{"candidates":[{"content":{"role":"model","parts":[{"text":', thought + self._after
            )

    def write_piece(self, part: AnswerPart, piece: str) -> None:
        """Write a piece of text. One with a signature, and a call, are written whole when they are closed."""
        if not part.data and part.kind != "tool_call":
            super().write_piece(part, piece)
            part.item = {"text": ""}  # what is still to be written of it

    def close_part(self, part: AnswerPart) -> None:
        """Write a call, a picture or an item, which come whole, and a text with its signature."""
        if part.data or part.kind not in ("text", "thinking"):
            self._emit([{**wire_part, **part.item} for wire_part in _wire_parts(part)])

    def finish(self, word: str) -> None:
        """Write the last chunk: the finish reason and the usage. The SDK's chats forget a turn with a chunk that has no
        part, so it has an empty text, as Gemini's own."""
        self.emit("", self._chunk([{"text": ""}], word))

    def fail(self, error: ErrorDelta) -> None:
        """Write the error. The SDK finds it only as the first key, with a number as its code."""
        self.emit("", _error_body(error))

    def whole(self) -> dict[str, Any]:
        """Return the answer with all its parts."""
        parts = [wire_part for part in self.parts if not part.is_cut for wire_part in _wire_parts(part)]
        return self._chunk(parts, self.word)

    def _head(self) -> dict[str, Any]:
        return {"modelVersion": self.form.model, "responseId": self.form.answer_id}

    def _emit(self, parts: list[dict[str, Any]]) -> None:
        content = {"role": "model", "parts": parts}
        self.emit("", {"candidates": [{"content": content, "index": 0}], **self._head()})

    def _chunk(self, parts: list[dict[str, Any]], word: str) -> dict[str, Any]:
        usage = {**_write_usage(self.usage), **self.message_data.get("usage", {})}
        chunk: dict[str, Any] = {}
        if word.startswith(BLOCKED):
            chunk["promptFeedback"] = {"blockReason": word.removeprefix(BLOCKED)}
        else:
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
            chunk["candidates"] = [{**candidate, "finishReason": word} if word else candidate]
        return {**chunk, **({"usageMetadata": usage} if usage else {}), **self._head()}


def _wire_parts(part: AnswerPart) -> list[dict[str, Any]]:
    return list(encode_part(part.value(), {}, _DIALECT))


def _write_usage(usage: TokenUsage) -> dict[str, Any]:
    """`candidatesTokenCount` leaves out the thoughts. A count that is not known is left out."""
    output, thoughts = usage.output_tokens, usage.reasoning_tokens
    total = usage.total_tokens
    if total is None and usage.input_tokens is not None and output is not None:
        total = usage.input_tokens + output
    return given(
        {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": None if output is None else max(output - (thoughts or 0), 0),
            "totalTokenCount": total,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "thoughtsTokenCount": thoughts,
        }
    )


def _error_body(error: ErrorDelta) -> dict[str, Any]:
    code, message = STATUSES.get(error.error_code, 500), error_message(error)
    if error.error_code is ErrorCode.CONTEXT_OVERFLOW:
        message = f"{_OVERFLOW}: {message}"
    status = ERROR_STATUSES.get(error.error_code, _OTHER_ERROR)
    return {"error": {"code": code, "message": message, "status": status}}


def write_error(error: ErrorDelta) -> ErrorAnswer:
    """Return the answer to a request that failed before its stream began."""
    return error_answer(error, _error_body(error))
