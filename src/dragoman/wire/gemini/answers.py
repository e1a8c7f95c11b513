"""Gemini generateContent: its chunks or whole answer to deltas, its errors to codes. Pure; no network, no clock.

`requests` writes requests. `providerData` here, in the wire's own words: on text, thinking and images every
further field of the part (`thoughtSignature` …); on a call these too, and `id`, the wire's own id where ours differs
(empty where the wire had none); on the message its `usage` as last reported and every further field of the answer.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from ..._jsontext import decode_json, encode_json
from ...errors import ModelError
from ...message import FinishReason
from ...stream import DeltaWriter, TypedJson, WireEvent
from ...usage import NUMBER_LIMIT, TokenUsage
from ..callids import CallIds
from ..failures import (
    ERROR_WORDS,
    error_from_event,
    error_from_response,
    error_from_words,
    error_words,
    not_an_answer,
)
from ..lenient import broken, decode_unlabelled, repaired
from ..wholeness import call_problem, finish_of, lost, require_unfinished, worst_word
from .arguments import FunctionCall, StreamedCall
from .dialects import GeminiDialect

__all__ = ["Decoder", "map_error"]

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "FUNCTION_CALL": FinishReason.TOOL_CALLS,  # not Google's word: the mock server aimock ends answers with calls by it
    "MAX_TOKENS": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "IMAGE_RECITATION": FinishReason.CONTENT_FILTER,
}
BLOCKED = "block:"  # before the reason why the prompt itself was refused

# Lists that each chunk continues; all other metadata of a candidate is replaced by a later report of it.
CONTINUED_METADATA = frozenset({"logprobsResult", "citationMetadata"})

# Fields of a part that say something about its content and are not the content.
_PART_ATTRIBUTES = frozenset({"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"})
_ANSWER_FIELDS = frozenset({"candidates", "promptFeedback", "usageMetadata"})
_UNFINISHED = "FINISH_REASON_UNSPECIFIED"  # the zero value of a field that is not set yet
_SENTINEL = b"[DONE]"  # some gateways end a stream with it; the API does not
_RETRY_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")

_Shape = TypeVar("_Shape")


# ---------------------------------------------------------------- shapes of the wire


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT)]


class _Usage(msgspec.Struct, rename="camel", gc=False):
    prompt_token_count: _Count | None = None
    tool_use_prompt_token_count: _Count | None = None
    candidates_token_count: _Count | None = None
    thoughts_token_count: _Count | None = None
    cached_content_token_count: _Count | None = None
    total_token_count: _Count | None = None


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A chunk that holds only text, as most do. The wide shape reads every other chunk."""


class _TextPart(_Strict, gc=False):
    text: str
    thought: bool = False


class _TextContent(_Strict, gc=False):
    parts: list[_TextPart]
    role: str = ""


class _TextCandidate(_Strict, gc=False):
    content: _TextContent
    index: int = 0


class _TextChunk(_Strict, gc=False):
    candidates: list[_TextCandidate]
    usage_metadata: _Usage | None = None
    model_version: str = ""
    response_id: str = ""
    create_time: str = ""


class _Content(msgspec.Struct, rename="camel", gc=False):
    parts: list[dict[str, Any]] | None = None


class _Candidate(msgspec.Struct, rename="camel", gc=False):
    content: _Content | None = None
    index: int | None = None
    finish_reason: str | None = None


class _PromptFeedback(msgspec.Struct, rename="camel", gc=False):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, rename="camel", gc=False):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    response_id: str | None = None


class _Blob(msgspec.Struct, rename="camel", gc=False):
    mime_type: str = ""
    data: str = ""


_TEXT_CHUNK = msgspec.json.Decoder(_TextChunk)
_NEEDED = frozenset({"candidates", "content", "parts", "name", "args", "partialArgs"})
_CALL_FIELDS = frozenset(FunctionCall.__struct_encode_fields__)
_ANY_CHUNK: TypedJson[dict[str, Any]] = TypedJson(dict)
_ANY_BODY: TypedJson[Any] = TypedJson(Any)


# ---------------------------------------------------------------- answers


class _Totals:
    """The usage of one stream. A later report replaces the counts that it has; the others stay.

    `promptTokenCount` leaves out the prompts of hosted tools, `candidatesTokenCount` the thoughts.
    """

    __slots__ = ("_cached", "_input", "_output", "_thoughts", "_total", "reports")

    def __init__(self) -> None:
        self.reports = 0
        self._input: int | None = None
        self._output: int | None = None
        self._total: int | None = None
        self._cached: int | None = None
        self._thoughts: int | None = None

    def add(self, report: _Usage) -> None:
        self.reports += 1
        prompt, candidates = report.prompt_token_count, report.candidates_token_count
        thoughts = report.thoughts_token_count
        if prompt is not None:
            self._input = prompt + (report.tool_use_prompt_token_count or 0)
        if candidates is not None or thoughts is not None:
            self._output = (candidates or 0) + (thoughts or 0)
        if report.total_token_count is not None:
            self._total = report.total_token_count
        if thoughts is not None:
            self._thoughts = thoughts
        if report.cached_content_token_count is not None:
            self._cached = report.cached_content_token_count

    def usage(self) -> TokenUsage:
        return TokenUsage.reported(
            input_tokens=self._input,
            output_tokens=self._output,
            total_tokens=self._total,
            cache_read_tokens=self._cached,
            reasoning_tokens=self._thoughts,
        )


class Decoder:
    """Chunks of one answer → deltas. `done` comes at the end of the body: usage may follow the finish reason."""

    __slots__ = (
        "_call_ids", "_data", "_part_index", "_raw_usage", "_reason", "_response_id", "_streamed_call", "_totals",
        "_writer", "unknown_events",
    )  # fmt: skip

    def __init__(self, writer: DeltaWriter, _: GeminiDialect) -> None:
        self._writer = writer
        self._part_index = 0
        self._call_ids = CallIds()
        self._streamed_call: StreamedCall | None = None
        self._totals = _Totals()
        self._raw_usage: dict[str, Any] | bytes | None = None  # bytes: of the chunk that has it
        self._reason: str | None = None
        self._response_id = ""
        self._data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        read = _TEXT_CHUNK.decode
        for name, data in events:
            if name == "error":  # whatever its data looks like
                self._writer.error(error_from_event(name, data))
                return
            try:
                chunk = read(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if data != _SENTINEL:
                    self._decode_chunk(_read(_ANY_CHUNK, data))
                continue
            if not self._writer.started:
                self._start(chunk.model_version, chunk.response_id)
            if chunk.usage_metadata is not None:
                self._note_usage(chunk.usage_metadata, data)
            for candidate in chunk.candidates:
                if not candidate.index:
                    self._write_texts(candidate.content.parts)
                    break

    def decode_body(self, body: bytes) -> None:
        if decode_unlabelled(self, body):
            return
        answer = _read(_ANY_BODY, body)
        # A list of chunks is a stream that was not asked for as server-sent events.
        if isinstance(answer, list) and all(isinstance(chunk, dict) for chunk in answer):
            for chunk in answer:
                self._decode_chunk(chunk)
            self.end()
            return
        if not isinstance(answer, dict) or (not answer.get("error") and _ANSWER_FIELDS.isdisjoint(answer)):
            raise not_an_answer("the answer is not one of this API", answer)
        self._decode_chunk(answer)
        if not answer.get("error"):
            self._finish()  # whole as it is, with a finish reason or without

    def end(self) -> None:
        if self._reason is not None:
            self._finish()

    def _decode_chunk(self, value: dict[str, Any]) -> None:
        if value.get("error"):
            self._writer.error(_error_inside(value))
            return
        if _ANSWER_FIELDS.isdisjoint(value):
            self.unknown_events += 1
            if self._streamed_call is not None:
                self._streamed_call.is_damaged = True
            return
        chunk = repaired(value, _Chunk, needed=_NEEDED)
        self._start(chunk.model_version or "", chunk.response_id or "")
        if chunk.usage_metadata is not None:
            self._note_usage(chunk.usage_metadata, value["usageMetadata"])
        further = {name: value[name] for name in value if name not in ("candidates", "usageMetadata") and value[name]}
        self._data.update(further)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._reason = worst_word(self._reason, BLOCKED + chunk.prompt_feedback.block_reason, _reason_of)
            self._writer.has_finish = True
        named = value.get("candidates")
        wire_candidates = [entry for entry in (named if isinstance(named, list) else [named]) if entry is not None]
        for candidate, fields in zip(chunk.candidates or (), wire_candidates, strict=False):
            if not candidate.index:  # only the first candidate is the answer
                self._note_candidate(candidate, fields if isinstance(fields, dict) else {})
                break

    def _start(self, model: str, response_id: str) -> None:
        if not self._writer.started:
            self._response_id = response_id
            self._writer.start(model, response_id)

    def _note_candidate(self, candidate: _Candidate, fields: dict[str, Any]) -> None:
        parts = candidate.content.parts if candidate.content else None
        for position, part in enumerate(parts or ()):
            # Only the first part of a chunk goes on with the last one of the chunk before; an empty text is no part.
            if position and part.get("text") != "":
                self._part_index += 1
            self._write_part({name: value for name, value in part.items() if value is not None})
        if candidate.finish_reason != _UNFINISHED:
            self._reason = worst_word(self._reason, candidate.finish_reason, _reason_of)
            self._writer.has_finish = self._reason is not None
        for name, value in fields.items():
            if name not in ("content", "index", "finishReason") and value not in (None, {}, []):
                self._data[name] = _merged(self._data.get(name), value, name in CONTINUED_METADATA)

    def _write_texts(self, parts: list[_TextPart]) -> None:
        for position, part in enumerate(parts):
            if part.text:
                if position:
                    self._part_index += 1
                write = self._writer.thinking if part.thought else self._writer.text
                write(part.text, self._part_index)

    def _write_part(self, part: dict[str, Any]) -> None:
        if "functionCall" in part and isinstance(part.get("text"), str):  # two contents: the rest is about the call
            self._write_text({name: part[name] for name in ("text", "thought") if name in part})
            part = {name: value for name, value in part.items() if name not in ("text", "thought")}
        if "functionCall" in part:
            self._write_call(part, repaired(part["functionCall"], FunctionCall, needed=_NEEDED))
        elif isinstance(part.get("text"), str):
            self._write_text(part)
        elif "inlineData" in part and not part.get("thought"):  # a draft among the thoughts is no picture of the answer
            self._write_blob(part, repaired(part["inlineData"], _Blob))
        else:
            self._write_item(part)

    def _write_text(self, part: dict[str, Any]) -> None:
        write = self._writer.thinking if part.get("thought") else self._writer.text
        further = {name: part[name] for name in part if name not in ("text", "thought")}
        if further:
            # A signature belongs to exactly this part: never joined with what came before it, or comes after.
            self._part_index += 1
            write(part["text"], self._part_index, further)
            self._part_index += 1
        elif part["text"]:
            write(part["text"], self._part_index)

    def _write_call(self, part: dict[str, Any], call: FunctionCall) -> None:
        data = {name: part[name] for name in part if name != "functionCall"}
        fields = part["functionCall"] or {}  # `[]`, `0` and `false` read as an empty object
        further = {name: value for name, value in fields.items() if name not in _CALL_FIELDS}
        streamed = self._streamed_call
        if streamed is not None:
            streamed.add(call)
            streamed.provider_data.update(data)
            streamed.is_damaged = streamed.is_damaged or bool(further)
        else:
            self._start_call(call, {**data, "functionCall": further} if further else data)
        if self._streamed_call is not None and not call.will_continue:
            self._close_streamed_call(self._streamed_call.is_whole)

    def _start_call(self, call: FunctionCall, data: dict[str, Any]) -> None:
        """Write a call that is whole, or keep one that comes in pieces. A call that is sent again is skipped."""
        if not call.name:
            raise lost("a function call has no name")
        require_unfinished(self._reason)
        arguments = "" if call.args is None else encode_json(call.args).decode()
        if call.id and self._call_ids.has(call.id):
            self._call_ids.require_repeat(call.id, call.name, arguments)
            return
        call_id = self._call_ids.claim(call.id or "", self._response_id)
        if call_id != call.id:
            data["id"] = call.id or ""
        self._writer.call_start(call_id, call.name, data or None)
        if call.will_continue or call.partial_args is not None:
            self._streamed_call = StreamedCall(call_id, call)
            return
        if arguments:
            self._writer.call_args(call_id, arguments)
        self._call_ids.note(call.id or "", call.name, arguments)
        self._writer.call_end(call_id)

    def _close_streamed_call(self, is_whole: bool) -> None:
        call, self._streamed_call = self._streamed_call, None
        if call is not None:
            arguments = encode_json(call.arguments).decode()
            self._writer.call_args(call.call_id, arguments)
            self._call_ids.note(call.wire_id, call.name, arguments)
            problem = call_problem(is_closed=is_whole, is_damaged=call.is_damaged)
            self._writer.call_end(call.call_id, call.provider_data or None, problem)

    def _write_blob(self, part: dict[str, Any], blob: _Blob) -> None:
        further = {name: part[name] for name in part if name != "inlineData"}
        inline = part["inlineData"] if isinstance(part["inlineData"], dict) else {}
        rest = {name: value for name, value in inline.items() if name not in ("mimeType", "data")}
        if rest:
            further["inlineData"] = rest
        try:
            data = base64.b64decode(blob.data, validate=True)
        except ValueError:
            data = b""
        if not self._writer.image(mime_type=blob.mime_type, data=data, provider_data=further or None):
            self._write_item(part)

    def _write_item(self, part: dict[str, Any]) -> None:
        if part:
            kind = next((name for name in part if name not in _PART_ATTRIBUTES), next(iter(part)))
            self._writer.item(kind, part, _rendered(kind, part[kind]))

    def _note_usage(self, report: _Usage, raw: dict[str, Any] | bytes) -> None:
        self._raw_usage = raw
        self._totals.add(report)
        if self._totals.reports == 1:  # what went in is known from the first; the rest is told at the end
            self._writer.usage(self._totals.usage())

    def _finish(self) -> None:
        self._close_streamed_call(is_whole=False)
        if self._totals.reports > 1:
            self._writer.usage(self._totals.usage())
        reason = finish_of(_reason_of(self._reason or ""), self._call_ids)
        usage = self._raw_usage
        if isinstance(usage, bytes):
            usage = _read(_ANY_CHUNK, usage)["usageMetadata"]
        data = {**self._data, **({"usage": usage} if usage else {})}
        self._writer.done(reason, self._reason, data or None)


def _reason_of(word: str) -> FinishReason:
    return FinishReason.CONTENT_FILTER if word.startswith(BLOCKED) else FINISH_REASONS.get(word, FinishReason.OTHER)


def _merged(before: Any, value: Any, continued: bool) -> Any:
    """Return a later report merged into the one before, which changes: a copy each time would cost the square."""
    if isinstance(before, dict) and isinstance(value, dict):
        for name in value:
            before[name] = _merged(before.get(name), value[name], continued)
        return before
    if continued and isinstance(before, list) and isinstance(value, list):
        before.extend(value)
        return before
    return value


def _rendered(kind: str, content: Any) -> str | None:
    """Return an item's text for other models: code and its output; None for any other item."""
    if not isinstance(content, dict):
        return None
    match kind:
        case "executableCode" if content.get("code"):
            return f"```{str(content.get('language') or '').lower()}\n{content['code']}\n```"
        case "codeExecutionResult" if content.get("output"):
            return f"```\n{content['output']}\n```"
        case "fileData" if isinstance(content.get("fileUri"), str):
            return str(content["fileUri"])
    return None


def _read(shape: TypedJson[_Shape], data: bytes) -> _Shape:
    try:
        return shape.read(data)
    except RecursionError:
        raise broken("the provider sent JSON that is nested too deep") from None


# ---------------------------------------------------------------- failures


def _error_inside(value: dict[str, Any]) -> ModelError:
    error = value["error"]
    status = error.get("code") if isinstance(error, dict) else None
    known = status if isinstance(status, int) and 400 <= status < 600 else None
    return error_from_words(*error_words(value), status=known, retry_after=_details(value)[1])


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Return the error of a response. Its details count more than its status: Google answers a bad key with 400."""
    error = error_from_response(status, headers, body)
    try:
        value = decode_json(body)
    except ValueError:
        return error
    reasons, delay = _details(value[0] if isinstance(value, list) and value else value)
    code = next((ERROR_WORDS[reason] for reason in reasons if reason in ERROR_WORDS), error.code)
    if code is not error.code:
        return ModelError(
            f"the provider refused or failed the request: {code} (HTTP {status})",
            code=code,
            request_id=error.request_id,
            provider_message=error.provider_message,
        )
    if error.retry_after is None:
        error.retry_after = delay
    return error


def _details(value: Any) -> tuple[list[str], float | None]:
    """The reasons that an error's details give, lower case, and how long they say to wait."""
    error = value.get("error") if isinstance(value, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    reasons: list[str] = []
    delay: float | None = None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            reasons.append(str(detail.get("reason") or "").lower())
            found = _RETRY_DELAY.fullmatch(str(detail.get("retryDelay") or ""))
            delay = float(found[1]) if found else delay
    return reasons, delay
