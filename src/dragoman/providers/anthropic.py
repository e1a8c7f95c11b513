"""Anthropic Messages: its events or whole answer to deltas, and its hosts. Pure; `anthropic_request` writes requests.

Also spoken by Bedrock (invoke, whose event stream wraps the same events) and Vertex.

`providerData` here, in the wire's own words: text `citations`; thinking `signature`, or `data` of a redacted block; the
further fields of a `tool_use`; on the message its `usage` as reported and every further field (`container` …).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import ErrorCode, ModelError
from ..jsontext import encode_json, parse_arguments
from ..message import FinishReason
from ..stream import Codec, DeltaWriter, TypedJson, WireEvent
from ..target import AWS_VARIABLES, VERTEX_VARIABLES, Dialect, NameRule, TargetRules
from ..usage import TokenUsage
from .anthropic_request import DOCUMENT_TYPES, IMAGE_TYPES, SPECIFICATION, AnthropicDialect, encode_request
from .failures import error_from_response, error_from_words, error_words

__all__ = ["CODEC", "DIALECTS", "AnthropicDialect"]

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "pause_turn": FinishReason.PAUSE,
    "refusal": FinishReason.REFUSAL,
}

_OWN_HOSTS = frozenset({"anthropic", "anthropic-bedrock", "anthropic-vertex"})
_IMAGES = frozenset(IMAGE_TYPES)
_MEDIA = _IMAGES | DOCUMENT_TYPES
_RULES = TargetRules(
    tool_names=NameRule(r"[a-zA-Z0-9_-]{1,128}", 128),
    opaque_providers=_OWN_HOSTS,
    final_thinking=False,
    blank_text=False,
    user_first=True,
    tools_for_history=True,
    user_media=_MEDIA,
    result_media=_MEDIA,
)
_ABILITIES = frozenset(
    [
        "streaming",
        "tools",
        "parallel_tools",
        "strict_tools",
        "structured_output",
        "reasoning",
        "images",
        "documents",
        "caching",
    ]
)
_VERTEX = "aiplatform.googleapis.com/v1/projects/{project}/locations"
_VERSION = {"anthropic-version": "2023-06-01"}

DIALECTS: tuple[AnthropicDialect, ...] = (
    AnthropicDialect(
        provider="anthropic",
        base_url="https://api.anthropic.com",
        auth="x-api-key",
        key_variables=("ANTHROPIC_API_KEY",),
        headers=_VERSION,
        abilities=_ABILITIES | {"hosted_tools"},
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-bedrock",
        base_url="https://bedrock-runtime.{region}.amazonaws.com",
        auth="aws",
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        address_variables=AWS_VARIABLES,
        stream_path="/model/{model}/invoke-with-response-stream",
        whole_path="/model/{model}/invoke",
        body_version="bedrock-2023-05-31",
        stream_field=False,
        abilities=_ABILITIES,
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-vertex",
        base_url=f"https://{{region}}-{_VERTEX}/{{region}}/publishers/anthropic/models",
        global_base_url=f"https://{_VERTEX}/global/publishers/anthropic/models",
        auth="token",
        address_variables=VERTEX_VARIABLES,
        stream_path="/{model}:streamRawPredict",
        whole_path="/{model}:rawPredict",
        body_version="vertex-2023-10-16",
        abilities=_ABILITIES | {"hosted_tools"},
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-compatible",
        base_url="",
        auth="x-api-key",
        headers=_VERSION,
        unsigned_thinking=True,
        abilities=frozenset({"streaming", "tools", "reasoning", "images"}),
        rules=msgspec.structs.replace(
            _RULES,
            opaque_providers=frozenset({"anthropic-compatible"}),
            user_media=_IMAGES,
            result_media=_IMAGES,
        ),
    ),
    AnthropicDialect(
        provider="llamacpp-anthropic",
        base_url="http://127.0.0.1:8080",
        auth="none",
        # It promises to keep a connection and closes it after every streamed answer.
        headers={**_VERSION, "connection": "close"},
        unsigned_thinking=True,
        abilities=frozenset({"streaming", "tools", "reasoning", "images"}),
        rules=msgspec.structs.replace(
            _RULES,
            opaque_providers=frozenset({"llamacpp-anthropic"}),
            user_media=_IMAGES,
            result_media=frozenset(),
        ),
    ),
)


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None


class _Chunk(msgspec.Struct, gc=False):
    """A frame of Bedrock's event stream: one event in base64, and padding."""

    event: bytes = msgspec.field(name="bytes", default=b"")


_EVENT = TypedJson(_Event)
_CHUNK = TypedJson(_Chunk)
_BODY = TypedJson(dict[str, Any])
_OWN_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_MODEL_ITSELF = {"type": "direct"}  # the default, which not every host takes back


class _Block:
    """A content block under way: what it opened with, and what its deltas added."""

    __slots__ = ("citations", "json_pieces", "kind", "opened", "signature")

    def __init__(self, opened: dict[str, Any]) -> None:
        self.opened = opened
        self.kind = str(opened.get("type") or "unknown")
        self.json_pieces: list[str] = []
        self.citations: list[Any] = list(opened.get("citations") or ())
        self.signature: str = opened.get("signature") or ""


class _Decoder:
    """Events of one answer to deltas. `message_stop` is the finish; without it the answer is cut short."""

    __slots__ = ("_blocks", "_called", "_message_data", "_reason", "_usage", "_writer", "unknown_events")

    def __init__(self, writer: DeltaWriter, _: Dialect) -> None:
        self._writer = writer
        self._blocks: dict[int, _Block] = {}
        self._called = False
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._message_data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        read, write_text = _EVENT.read, self._writer.text
        for name, framed in events:
            data = _CHUNK.read(framed).event if name == "chunk" else framed
            event = read(data)
            delta = event.delta
            if event.type == "content_block_delta" and delta is not None:
                if delta.type == "text_delta":
                    write_text(delta.text, event.index)
                else:
                    self._add_to_block(event.index, delta, data)
            else:
                self._decode_rare(event.type or name, event.index, _BODY.read(data))

    def decode_body(self, body: bytes) -> None:
        message = _BODY.read(body)
        if "error" in message and "content" not in message:
            raise error_from_words(*error_words(message))
        if not isinstance(message.get("content"), list):
            raise _broken("the answer is not a message of this API")
        self._start(message)
        for index, block in enumerate(message["content"]):
            self._open_block(index, block)
            self._close_block(index)
        self._note_message(message, message.get("usage"))
        self._finish()

    def end(self) -> None:
        pass

    def _decode_rare(self, kind: str, index: int, value: dict[str, Any]) -> None:
        match kind:
            case "message_start":
                self._start(_object(value, "message"))
            case "content_block_start":
                self._open_block(index, _object(value, "content_block"))
            case "content_block_stop":
                self._close_block(index)
            case "message_delta":
                further = {name: value[name] for name in value if name not in ("delta", "usage")}
                self._note_message({**further, **_object(value, "delta")}, value.get("usage"))
            case "message_stop":
                self._note_message(value, None)  # Bedrock adds its metrics here
                for open_index in tuple(self._blocks):
                    self._close_block(open_index)
                self._finish()
            case "ping":
                pass
            case _ if "error" in value or kind.endswith("Exception"):
                # llama.cpp and gateways send an envelope without a type; Bedrock names the frame by its exception.
                words, message = error_words(value)
                self._writer.error(error_from_words([*words, kind], message))
            case _:
                self.unknown_events += 1

    def _start(self, message: dict[str, Any]) -> None:
        self._writer.start(message.get("model") or "", message.get("id") or "")
        self._note_usage(message.get("usage"))

    def _open_block(self, index: int, opened: Any) -> None:
        if not isinstance(opened, dict):
            raise _broken("a content block is not an object")
        block = self._blocks[index] = _Block(opened)
        if block.kind == "text" and opened.get("text"):
            self._writer.text(opened["text"], index)
        elif block.kind == "thinking" and opened.get("thinking"):
            self._writer.thinking(opened["thinking"], index)
        elif block.kind == "tool_use":
            if not opened.get("id") or not opened.get("name"):
                raise _broken("a tool_use block has no id or no name")
            self._called = True
            further = {name: opened[name] for name in opened if name not in _CALL_FIELDS}
            if further.get("caller") == _MODEL_ITSELF:
                del further["caller"]
            self._writer.call_start(opened["id"], opened["name"], further or None)

    def _add_to_block(self, index: int, delta: _Delta, data: bytes) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise _broken("a delta came for a content block that is not open")
        match delta.type:
            case "input_json_delta":
                if block.kind == "tool_use" and delta.partial_json:
                    self._writer.call_args(block.opened["id"], delta.partial_json)
                block.json_pieces.append(delta.partial_json)
            case "thinking_delta":
                self._writer.thinking(delta.thinking, index)
            case "signature_delta":
                block.signature = delta.signature
            case "citations_delta":
                block.citations.append(_object(_BODY.read(data), "delta").get("citation"))
            case "compaction_delta":
                further = _object(_BODY.read(data), "delta")
                block.opened = {**block.opened, **{name: further[name] for name in further if name != "type"}}
            case _:
                self.unknown_events += 1

    def _close_block(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            raise _broken("a content block closed that was not open")
        opened, written_input = block.opened, "".join(block.json_pieces)
        match block.kind:
            case "text":
                if block.citations:
                    self._writer.text("", index, {"citations": block.citations})
            case "thinking":
                if block.signature:
                    self._writer.thinking("", index, {"signature": block.signature})
            case "redacted_thinking":
                self._writer.thinking("", index, {"data": opened.get("data") or ""})
            case "tool_use":
                if not written_input and opened.get("input"):
                    self._writer.call_args(opened["id"], encode_json(opened["input"]).decode())
                self._writer.call_end(opened["id"])
            case "compaction":
                summary = opened.get("content")
                self._writer.item("compaction", opened, summary if isinstance(summary, str) else None)
            case kind:
                self._writer.item(kind, _with_input(opened, written_input))

    def _note_message(self, message: dict[str, Any], usage: Any) -> None:
        self._note_usage(usage)
        self._reason = message.get("stop_reason") or self._reason
        self._message_data.update(
            {name: value for name, value in message.items() if name not in _OWN_FIELDS and value is not None}
        )

    def _note_usage(self, usage: Any) -> None:
        """A later report replaces the fields that it has. The API's `input_tokens` leaves out what the cache did."""
        if not isinstance(usage, dict):
            return
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        fresh, output = self._usage.get("input_tokens"), self._usage.get("output_tokens")
        read, written = (self._usage.get(f"cache_{what}_input_tokens") for what in ("read", "creation"))
        input_tokens = None if fresh is None else fresh + (read or 0) + (written or 0)
        self._writer.usage(
            TokenUsage(
                input_tokens=input_tokens,
                output_tokens=output,
                total_tokens=None if input_tokens is None or output is None else input_tokens + output,
                cache_read_tokens=read,
                cache_write_tokens=written,
                reasoning_tokens=(self._usage.get("output_tokens_details") or {}).get("thinking_tokens"),
            )
        )

    def _finish(self) -> None:
        reason = FINISH_REASONS.get(self._reason or "", FinishReason.OTHER)
        if self._called and self._reason == "end_turn":  # hosts of other models say so beside a call
            reason = FinishReason.TOOL_CALLS
        data = {**self._message_data, **({"usage": self._usage} if self._usage else {})}
        self._writer.done(reason, self._reason, data or None)


def _with_input(opened: dict[str, Any], written_input: str) -> dict[str, Any]:
    """The item with the input that its deltas wrote; text that a length limit cut is kept as text."""
    if not written_input:
        return opened
    arguments = parse_arguments(written_input).arguments
    return {**opened, "input": {"unparsed_arguments": written_input} if arguments is None else arguments}


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    inner = value.get(name)
    if not isinstance(inner, dict):
        raise _broken(f"an event has no {name}")
    return inner


def _broken(what: str) -> ModelError:
    return ModelError(what, code=ErrorCode.PROTOCOL_VIOLATION)


CODEC = Codec(
    specification=SPECIFICATION,
    encode_request=encode_request,
    open_decoder=_Decoder,
    map_error=error_from_response,
)
