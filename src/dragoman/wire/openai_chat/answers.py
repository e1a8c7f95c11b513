"""OpenAI Chat Completions and everything compatible: its chunks or whole answer to deltas. Pure; no network, no clock.

`requests` writes requests; how the vendors differ is data (`dialects`).

`providerData` here, in the wire's own words: thinking `reasoning_details`, `extra_content` and `thought_signature`;
text `annotations`, or `refusal: true`; tool call `extra_content`, `type` where it is no function, and the wire's `id`
where ours is another; on the message its `usage` as reported, `logprobs` and every further field.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from ...errors import ErrorCode, ModelError
from ...message import FinishReason
from ...stream import DeltaWriter, TypedJson, WireEvent
from ...usage import TokenUsage, count_of
from ..failures import error_from_event, error_from_words, error_words, not_an_answer
from ..lenient import UNREADABLE, LenientJson, decode_unlabelled, read_object, text_of
from ..wholeness import WHOLE_FINISHES, contradicted, finish_of, require_unfinished, worst_word
from .calls import CalledFunction, CallPiece, FurtherPiece, ToolCallJoiner
from .dialects import ChatDialect
from .thinking import ReasoningDetails

__all__ = ["Decoder"]

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,  # Together
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,  # Mistral: the context window is full
    "model_context_window_exceeded": FinishReason.LENGTH,  # Z.ai
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "sensitive": FinishReason.CONTENT_FILTER,  # Z.ai
    "safety": FinishReason.CONTENT_FILTER,
    # Google's words, which gateways pass on beside a finish reason of their own.
    "recitation": FinishReason.CONTENT_FILTER,
    "blocklist": FinishReason.CONTENT_FILTER,
    "prohibited_content": FinishReason.CONTENT_FILTER,
    "spii": FinishReason.CONTENT_FILTER,
    "malformed_function_call": FinishReason.OTHER,
    "max_output_tokens": FinishReason.LENGTH,  # OpenAI's Responses, behind a gateway
    "refusal": FinishReason.REFUSAL,
}

# Words with which a provider says that it failed, though it gave no error.
FAILURES: dict[str, ErrorCode] = {
    "error": ErrorCode.SERVER_ERROR,  # Mistral, OpenRouter, Together, vLLM
    "abort": ErrorCode.SERVER_ERROR,  # vLLM, SGLang: the server gave the request up
    "network_error": ErrorCode.SERVER_ERROR,  # Z.ai
    "insufficient_system_resource": ErrorCode.OVERLOADED,  # DeepSeek
}

# Where vendors report how much of the prompt came from the cache, best first.
_CACHED_FIELDS = ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
REFUSAL_PART = 1  # keeps the pieces of a refusal apart from the text before it


class _Delta(msgspec.Struct, gc=False):
    """A chunk's `delta`, or the `message` of a whole answer."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[Any] | None = None
    tool_calls: list[CallPiece] | None = None
    refusal: str | None = None
    function_call: CalledFunction | None = None
    annotations: list[Any] | None = None
    images: list[Any] | None = None
    audio: Any = None
    executed_tools: list[Any] | None = None
    extra_content: Any = None
    thought_signature: Any = None

    def has_rare_fields(self) -> bool:
        """Whether there is more than text, thinking and calls."""
        return (
            self.refusal is not None
            or self.function_call is not None
            or self.annotations is not None
            or self.images is not None
            or self.audio is not None
            or self.executed_tools is not None
            or self.extra_content is not None
            or self.thought_signature is not None
        )


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_Empty: TypeAlias = Annotated[list[Any], msgspec.Meta(max_length=0)] | None


class _UsualDelta(msgspec.Struct, gc=False):
    """Text, thinking or the next piece of a call, without the rare fields."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[FurtherPiece], msgspec.Meta(max_length=1)] | None = None
    reasoning_text: None = None
    reasoning_details: _Empty = None
    refusal: None = None
    function_call: None = None
    annotations: _Empty = None
    images: _Empty = None
    audio: None = None
    executed_tools: _Empty = None
    extra_content: None = None
    thought_signature: None = None


class _UsualChoice(msgspec.Struct, gc=False):
    delta: _UsualDelta
    index: int | None = None
    finish_reason: None = None
    logprobs: None = None
    error: None = None


class _UsualChunk(msgspec.Struct, gc=False):
    """The shape of most chunks. The wide shape `_Chunk` reads the others."""

    choices: Annotated[list[_UsualChoice], msgspec.Meta(min_length=1, max_length=1)]
    usage: None = None
    error: None = None


_decode_usual = msgspec.json.Decoder(_UsualChunk).decode
# What an answer is made of: of another type, there is no answer. All else may have any.
_NEEDED = frozenset({"choices", "delta", "message", "content", "tool_calls", "function", "custom", "name", "input"})
_CHUNK = LenientJson(_Chunk, needed=_NEEDED)
_WHOLE = TypedJson(dict[str, Any])
_OWN_FIELDS = frozenset({"id", "object", "model", "choices", "usage", "error", "obfuscation"})
_CHOICE_FIELDS = frozenset({*_Choice.__struct_fields__, "usage", "text", "token_ids"})
_MESSAGE_FIELDS = frozenset({*_Delta.__struct_fields__, "role", "token_id"})


class Decoder:
    """Chunks of one answer → deltas. `finish_reason` is the finish; `[DONE]` or the end of the body then closes.

    `done` waits for that, since usage, or an error (OpenRouter), may follow the finish reason.
    """

    __slots__ = (
        "_annotations", "_audio", "_calls", "_details", "_dialect", "_ended", "_hidden", "_items", "_listed",
        "_logprobs", "_message_data", "_open", "_reason", "_refused", "_usage", "_watching", "_writer",
        "unknown_events",
    )  # fmt: skip

    def __init__(self, writer: DeltaWriter, dialect: ChatDialect) -> None:
        self._writer = writer
        self._dialect = dialect
        self._watching = True  # chunks are read whole: before the start and after the finish reason
        self._ended = False
        self._open = ""  # which kind of part the next piece may continue
        self._reason: str | None = None
        self._refused = False
        self._calls = ToolCallJoiner(writer)
        self._listed = False  # whether calls come in `tool_calls`
        self._details = ReasoningDetails()  # of the thinking that is open
        self._hidden: dict[str, Any] = {}  # signatures that belong to the message, not to a text of it
        self._annotations: list[Any] = []
        self._items: dict[str, dict[str, Any]] = {}
        self._audio: dict[str, list[Any]] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._usage: dict[str, Any] = {}
        self._message_data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        write_text, calls = self._writer.text, self._calls
        for name, data in events:
            if self._watching or name == "error":
                self._decode_any(name, data)
                continue
            try:
                choice = _decode_usual(data).choices[0]
            except UNREADABLE:
                self._decode_any(name, data)
                continue
            delta = choice.delta
            content, thought = delta.content, delta.reasoning_content or delta.reasoning
            if content and not (thought or delta.tool_calls or choice.index):
                if self._open != "text":
                    self._close_part("text")
                write_text(content, None, None)
            elif thought or content or self._open or choice.index or not calls.append_piece(delta.tool_calls):
                self._decode_any(name, data)

    def _decode_any(self, name: str, data: bytes) -> None:
        if name == "error":  # whatever its data looks like
            self._decode_error(data)
            return
        if len(data) < 9 and self._is_mark(data.strip()):
            return
        chunk = _CHUNK.read(data)
        choices = chunk.choices
        if (
            self._watching
            or not choices
            or choices[0].finish_reason
            or choices[0].error is not None
            # An unusual chunk: Azure's filter on the text before, or an unknown event.
            or (delta := choices[0].delta) is None
            or not (delta.content or delta.tool_calls or delta.reasoning_content or delta.reasoning)
        ):
            self._note_whole(chunk, _WHOLE.read(data))
        elif chunk.usage is not None or chunk.error is not None:
            self._note_usage(chunk.usage)
            self._note_error(chunk.error)
        for choice in choices or ():
            if not choice.index:
                self._add_choice(choice)

    def decode_body(self, body: bytes) -> None:
        if decode_unlabelled(self, body):
            return
        whole, chunk = read_object(body), _CHUNK.read(body)
        if not any(choice.message is not None for choice in chunk.choices or ()):
            if failure := _failure_of(whole, has_choices=False):
                raise _error_inside({"error": failure})
            raise not_an_answer("the answer is not a completion of this API", whole)
        self._note_whole(chunk, whole)
        for choice in chunk.choices or ():
            if not choice.index:
                self._add_choice(choice)
                self._reason = self._reason or choice.finish_reason  # Snowflake's is empty
        self._finish()

    def end(self) -> None:
        if self._reason:
            self._finish()
        else:
            self._calls.open_waiting()

    def _is_mark(self, data: bytes) -> bool:
        """Whether the event is the sentinel, which closes a finished answer, or empty."""
        if data == b"[DONE]":
            self._writer.has_finish = True  # without a reason before it, it is the end of an answer that was cut
            if self._reason or (self._dialect.finish_optional and self._writer.started):
                self._finish()
        return data in (b"[DONE]", b"")

    # ------------------------------------------------------------ what surrounds the answer

    def _note_whole(self, chunk: _Chunk, whole: dict[str, Any]) -> None:
        """Keep the fields of a chunk beside its delta. One of them may be an error."""
        if chunk.choices or chunk.usage:
            self._writer.start(text_of(whole.get("model")), text_of(whole.get("id")))
            self._watching = self._reason is not None
        self._note_usage(chunk.usage)
        if failure := _failure_of(whole, has_choices=bool(chunk.choices)):
            self._note_error(failure)
            return
        if not chunk.choices and chunk.usage is None and "choices" not in whole:
            self.unknown_events += 1
            return
        self._message_data.update(_further(whole, _OWN_FIELDS))
        choices = whole.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None, "0"):
                self._note_choice(choice)
        if isinstance(x_groq := whole.get("x_groq"), dict) and chunk.usage is None:
            self._note_usage(x_groq.get("usage"))

    def _note_choice(self, choice: dict[str, Any]) -> None:
        self._note_usage(choice.get("usage"))  # Moonshot
        self._note_error(choice.get("error"))  # OpenRouter
        self._note_native_finish(choice)
        self._message_data.update(_further(choice, _CHOICE_FIELDS))
        message = choice.get("message") or choice.get("delta")
        if isinstance(message, dict):
            self._message_data.update(_further(message, _MESSAGE_FIELDS))

    def _decode_error(self, data: bytes) -> None:
        try:
            whole = _WHOLE.read(data)
        except ModelError:
            self._writer.error(error_from_event("error", data))
        else:
            self._writer.error(_error_inside({"error": whole.get("error") or whole}))

    def _note_native_finish(self, choice: dict[str, Any]) -> None:
        """Take the word of the provider behind a gateway (OpenRouter), where it is one that is known to be bad."""
        native = text_of(choice.get("native_finish_reason"))
        if choice.get("finish_reason") and FINISH_REASONS.get(native.lower(), FinishReason.STOP) not in WHOLE_FINISHES:
            self._reason = worst_word(self._reason, native, _reason_of)

    def _note_error(self, error: Any) -> None:
        # Written, not raised: it counts also where the stream ends without a blank line after it.
        if error:  # some gateways send an empty one with every chunk
            self._writer.error(_error_inside({"error": error}))

    def _note_usage(self, usage: Any) -> None:
        """A later report replaces the fields that it has. `prompt_tokens` counts cached ones."""
        if not isinstance(usage, dict) or not usage:
            return
        self._writer.start()
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        reported = self._usage
        prompt, completion, total = (_count(reported, f"{what}_tokens") for what in ("prompt", "completion", "total"))
        if total is None and prompt is not None and completion is not None:
            total = prompt + completion
        if self._dialect.completion_without_reasoning and None not in (prompt, completion, total):
            completion = max(completion, total - prompt)  # type: ignore[type-var,operator]  # none of them is None
        input_details = reported.get("prompt_tokens_details")
        cached = _count(input_details, "cached_tokens")
        if cached is None:
            cached = next((count for name in _CACHED_FIELDS if (count := _count(reported, name)) is not None), None)
        cost = reported.get("cost") if self._dialect.reports_cost else None
        self._writer.usage(
            TokenUsage.reported(
                input_tokens=prompt,
                output_tokens=completion,
                total_tokens=total,
                cache_read_tokens=cached,
                cache_write_tokens=_count(input_details, "cache_write_tokens"),
                reasoning_tokens=_count(reported.get("completion_tokens_details"), "reasoning_tokens"),
                cost=cost,
            )
        )

    # ------------------------------------------------------------ the answer

    def _add_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is None and not (self._open or self._calls):  # Perplexity repeats the whole answer after its pieces
            delta = choice.message
        if delta is not None:
            thought = delta.reasoning_content or delta.reasoning or delta.reasoning_text
            if thought or delta.reasoning_details:
                self._add_thinking(thought, delta.reasoning_details or ())
            content = delta.content
            if content:
                self._add_content([content] if isinstance(content, str) else content)
            if delta.tool_calls:
                if self._reason and _reason_of(self._reason) is not FinishReason.TOOL_CALLS:
                    require_unfinished(self._reason)
                self._close_part("")
                self._listed = True
                self._calls.add(delta.tool_calls, are_whole=choice.delta is None)
            if delta.has_rare_fields():
                self._add_rare(delta)
        if choice.finish_reason or choice.logprobs is not None:
            self._note_finish(choice.finish_reason, choice.logprobs)

    def _note_finish(self, reason: str | None, logprobs: Any) -> None:
        if isinstance(logprobs, dict):
            for name, entries in logprobs.items():
                if isinstance(entries, list):
                    self._logprobs.setdefault(name, []).extend(entries)
        if reason:
            self._reason = worst_word(self._reason, reason, _reason_of)
            self._watching = self._writer.has_finish = True

    def _add_thinking(self, thought: str | None, details: Sequence[Any]) -> None:
        if self._open != "thinking":
            self._close_part("thinking")
        if not thought:
            known_details = (detail for detail in details if isinstance(detail, dict))
            thought = "".join(text_of(detail.get("text")) or text_of(detail.get("summary")) for detail in known_details)
        if thought:
            self._writer.thinking(thought)
        self._details.add(details)

    def _add_content(self, parts: list[Any]) -> None:
        """Write content. Mistral sends a list, with thinking among the texts and citations between them."""
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "thinking":
                self._add_thinking(_joined_text(part.get("thinking")), ())
            elif kind in ("text", "output_text") or isinstance(part, str):
                if self._open != "text":
                    self._close_part("text")
                self._writer.text(part if isinstance(part, str) else text_of(part.get("text")))
            elif kind == "image_url":
                self._close_part("")
                self._write_image(part)
            elif isinstance(part, dict):
                self._close_part("")
                self._writer.item(str(kind or "unknown"), part)

    def _add_rare(self, delta: _Delta) -> None:
        if delta.refusal:
            if self._open != "refusal":
                self._close_part("refusal")
            self._refused = True
            self._writer.text(delta.refusal, REFUSAL_PART)
        called = delta.function_call
        # The deprecated form: one call, without an id. llama-cpp-python says each piece of a call in both forms.
        if called is not None and (called.name or called.arguments) and not delta.tool_calls:
            if self._listed:
                raise contradicted("a piece of a tool call came in the deprecated form alone, after other pieces")
            self._close_part("")
            self._calls.add([CallPiece(index=0, function=called)], are_whole=False)
        self._annotations.extend(delta.annotations or ())
        for image in delta.images or ():
            self._close_part("")
            self._write_image(image)
        # Groq: the same tool again, once with its arguments, once with its output
        for tool in delta.executed_tools or ():
            if isinstance(tool, dict):
                self._items[str(tool.get("index", len(self._items)))] = tool
        if isinstance(delta.audio, dict):
            for name, value in delta.audio.items():
                if value:
                    self._audio.setdefault(name, []).append(value)
        for name in ("extra_content", "thought_signature"):
            if (value := getattr(delta, name)) is not None:
                self._hidden[name] = value

    def _write_image(self, image: Any) -> None:
        source = image.get("image_url") if isinstance(image, dict) else None
        url = source.get("url") if isinstance(source, dict) else source
        head, _, data = url.partition(";base64,") if isinstance(url, str) else ("", "", "")
        picture: dict[str, Any] = {"url": url}
        if head.startswith("data:"):
            try:
                picture = {"mime_type": head[5:] or "image/png", "data": base64.b64decode(data, validate=True)}
            except ValueError:
                picture = {}
        if not self._writer.image(**picture):
            self.unknown_events += 1

    def _close_part(self, next_kind: str) -> None:
        """Close the open part with the fields that its provider needs back. The next piece starts another part."""
        if self._open == "thinking" and self._details:
            self._writer.thinking("", None, {"reasoning_details": self._details.take()})
        elif self._open == "text" and self._annotations:
            self._writer.text("", None, {"annotations": self._annotations})
            self._annotations = []
        elif self._open == "refusal":
            self._writer.text("", REFUSAL_PART, {"refusal": True})
        if next_kind:
            self._calls.open_waiting()
        self._open = next_kind

    # ------------------------------------------------------------ the end

    def _finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._writer.start()
        failure = FAILURES.get((self._reason or "").lower())
        if failure is not None:
            self._writer.error(ModelError(f"the provider ended its answer with {self._reason!r}", code=failure))
            return
        if self._annotations and self._open != "text":
            self._close_part("text")
        self._close_part("")
        if self._details or self._hidden:
            data = {**({"reasoning_details": self._details.take()} if self._details else {}), **self._hidden}
            self._writer.thinking("", None, data)
        for tool in self._items.values():
            output = tool.get("output")
            self._writer.item("executed_tool", tool, output if isinstance(output, str) else None)
        if self._audio:
            audio = {name: _joined_audio(name, values) for name, values in self._audio.items()}
            self._writer.item("audio", audio, audio.get("transcript"))
        self._calls.finish()
        data = dict(self._message_data)
        if self._logprobs:
            data["logprobs"] = self._logprobs
        if self._usage:
            data["usage"] = self._usage
        self._writer.done(self._finish_reason(), self._reason, data or None)

    def _finish_reason(self) -> FinishReason:
        """Return our reason for the provider's word. Several vendors say `stop`, or nothing, after a refusal."""
        if self._reason:
            reason = _reason_of(self._reason)
        else:
            reason = FinishReason.STOP if self._dialect.finish_optional else FinishReason.OTHER
        reason = finish_of(reason, self._calls)
        return FinishReason.REFUSAL if self._refused and reason is FinishReason.STOP else reason


def _reason_of(word: str) -> FinishReason:
    return FINISH_REASONS.get(word.lower(), FinishReason.OTHER)


def _joined_audio(name: str, values: list[Any]) -> Any:
    """Return the pieces of sound or transcript joined; of any other field the last value."""
    if name not in ("data", "transcript") or not all(isinstance(value, str) for value in values):
        return values[-1]
    if name == "transcript" or len(values) == 1:
        return "".join(values)
    try:  # each piece is padded base64 of its own
        return base64.b64encode(b"".join(map(base64.b64decode, values))).decode()
    except ValueError:
        return "".join(values)


def _joined_text(value: Any) -> str:
    """The text of a Mistral thinking part, whose `thinking` is a list of parts, or a plain string."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else ()
    return "".join(text_of(part.get("text")) for part in parts if isinstance(part, dict))


def _count(counts: Any, name: str) -> int | None:
    return count_of(counts.get(name)) if isinstance(counts, dict) else None


def _further(fields: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not known. Snowflake sends every field with a zero value: only values count."""
    return {name: value for name, value in fields.items() if value and name not in known}


def _failure_of(whole: dict[str, Any], *, has_choices: bool) -> Any:
    """Return the error that came instead of an answer; None where there is none."""
    if whole.get("error") or whole.get("object") == "error":
        return whole.get("error") or whole
    # MiniMax answers a failed request with a good status, no choices and its own code.
    result = whole.get("base_resp")
    if has_choices or not isinstance(result, dict) or not result.get("status_code"):
        return None
    return {"code": text_of(result["status_code"]), "message": text_of(result.get("status_msg"))}


def _error_inside(value: dict[str, Any]) -> ModelError:
    """Return the error inside an answer with status 200. Vendors put the real status into the body."""
    words, message = error_words(value)
    inner = value.get("error")
    numbers = map(inner.get, ("status_code", "code", "status")) if isinstance(inner, dict) else ()
    statuses = (count_of(number) for number in numbers)
    status = next((code for code in statuses if code is not None and 400 <= code < 600), None)
    return error_from_words(words, message, status=status)
