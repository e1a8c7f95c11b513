"""Anthropic Messages: a request to its JSON, its events or whole answer to deltas. Pure; no network, no clock.

Also spoken by Bedrock (invoke) and Vertex, where the model stands in the path and a version in the body.

`providerData` here, in the wire's own words: text `citations`; thinking `signature`, or `data` of a redacted block; the
further fields of a `tool_use`; on the message its `usage` as reported and every further field (`container` …).
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ErrorCode, ModelError
from ..jsontext import decode_json, encode_json
from ..message import (
    FileRef,
    FinishReason,
    Image,
    Message,
    Part,
    ProviderItem,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..request import HostedTool, ModelConfig, ModelRequest, WireRequest
from ..stream import Codec, DeltaWriter, TypedJson, WireEvent
from ..target import Dialect
from ..toolspec import OneTool, ToolChoice, ToolSpec
from ..usage import TokenUsage
from .failures import error_from_response, error_from_words, error_words

__all__ = ["CODEC", "AnthropicDialect"]

SPECIFICATION = "anthropic-messages"
DEFAULT_MAX_TOKENS = 4_096  # the API demands a limit; the catalogue's is put into the config where one is known

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "pause_turn": FinishReason.PAUSE,
    "refusal": FinishReason.REFUSAL,
}

# Our word for a hosted tool -> the newest type of it that needs no beta header.
HOSTED_TOOLS: dict[str, tuple[str, str]] = {
    "web_search": ("web_search_20250305", "web_search"),
    "web_fetch": ("web_fetch_20250910", "web_fetch"),
    "code_execution": ("code_execution_20250825", "code_execution"),
}

EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max"}
CACHE_BREAKPOINTS = 4
_UNCACHEABLE = frozenset({"thinking", "redacted_thinking"})


class AnthropicDialect(Dialect, frozen=True, kw_only=True):
    """A host of the Messages API. `{model}` in the path is filled in; then the body has `body_version` instead."""

    specification: str = SPECIFICATION
    path: str = "/v1/messages"
    body_version: str | None = None


# ---------------------------------------------------------------- answers


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


_EVENT = TypedJson(_Event)
_OWN_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})


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

    __slots__ = ("_blocks", "_message_data", "_reason", "_usage", "_writer", "unknown_events")

    def __init__(self, writer: DeltaWriter, _: Dialect) -> None:
        self._writer = writer
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._message_data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        read, write_text = _EVENT.read, self._writer.text
        for _, data in events:
            event = read(data)
            delta = event.delta
            if event.type == "content_block_delta" and delta is not None:
                if delta.type == "text_delta":
                    write_text(delta.text, event.index)
                else:
                    self._add_to_block(event.index, delta, data)
            else:
                self._decode_rare(event, decode_json(data))

    def decode_body(self, body: bytes) -> None:
        message = decode_json(body)
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            raise ModelError("the answer is not a message of this API", code=ErrorCode.PROTOCOL_VIOLATION)
        self._start(message)
        for index, block in enumerate(message["content"]):
            self._open_block(index, block)
            self._close_block(index)
        self._note_message(message, message.get("usage"))
        self._finish()

    def end(self) -> None:
        pass

    def _decode_rare(self, event: _Event, value: dict[str, Any]) -> None:
        match event.type:
            case "message_start":
                self._start(value["message"])
            case "content_block_start":
                self._open_block(event.index, value["content_block"])
            case "content_block_stop":
                self._close_block(event.index)
            case "message_delta":
                further = {name: value[name] for name in value if name not in ("type", "delta", "usage")}
                self._note_message({**further, **value["delta"]}, value.get("usage"))
            case "message_stop":
                self._finish()
            case "ping":
                pass
            case "error" | "" if "error" in value:  # llama.cpp and gateways send an envelope without a type
                self._writer.error(error_from_words(*error_words(value)))
            case _:
                self.unknown_events += 1

    def _start(self, message: dict[str, Any]) -> None:
        self._writer.start(message.get("model") or "", message.get("id") or "")
        self._note_usage(message.get("usage"))

    def _open_block(self, index: int, opened: dict[str, Any]) -> None:
        block = self._blocks[index] = _Block(opened)
        if block.kind == "text" and opened.get("text"):
            self._writer.text(opened["text"], index)
        elif block.kind == "thinking" and opened.get("thinking"):
            self._writer.thinking(opened["thinking"], index)
        elif block.kind == "tool_use":
            further = {name: opened[name] for name in opened if name not in ("type", "id", "name", "input")}
            self._writer.call_start(opened["id"], opened["name"], further or None)

    def _add_to_block(self, index: int, delta: _Delta, data: bytes) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise ModelError("a delta came for a content block that is not open", code=ErrorCode.PROTOCOL_VIOLATION)
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
                block.citations.append(decode_json(data)["delta"]["citation"])
            case "compaction_delta":
                block.opened = {**block.opened, "content": decode_json(data)["delta"].get("content")}
            case _:
                self.unknown_events += 1

    def _close_block(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            raise ModelError("a content block closed that was not open", code=ErrorCode.PROTOCOL_VIOLATION)
        opened, written_input = block.opened, "".join(block.json_pieces)
        match block.kind:
            case "text":
                if block.citations:
                    self._writer.text("", index, {"citations": block.citations})
            case "thinking":
                if block.signature:
                    self._writer.thinking("", index, {"signature": block.signature})
            case "redacted_thinking":
                self._writer.thinking("", index, {"data": opened.get("data", "")})
            case "tool_use":
                if not written_input and opened.get("input"):
                    self._writer.call_args(opened["id"], encode_json(opened["input"]).decode())
                self._writer.call_end(opened["id"])
            case kind:
                item = {**opened, "input": decode_json(written_input)} if written_input else opened
                self._writer.item(kind, item)

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
            )
        )

    def _finish(self) -> None:
        reason = FINISH_REASONS.get(self._reason or "", FinishReason.OTHER)
        data = {**self._message_data, **({"usage": self._usage} if self._usage else {})}
        self._writer.done(reason, self._reason, data or None)


# ---------------------------------------------------------------- requests


def encode_request(request: ModelRequest, dialect: AnthropicDialect) -> WireRequest:
    """Return the request for a conversation that handoff has fitted to this API."""
    config = request.config
    body: dict[str, Any] = {}
    if dialect.body_version is None:
        body["model"] = config.model_id
    else:
        body["anthropic_version"] = dialect.body_version
    body["max_tokens"] = config.max_tokens or _default_max_tokens(config)
    if request.tools or config.hosted_tools:
        body["tools"] = [*map(_encode_tool, request.tools), *map(_encode_hosted_tool, config.hosted_tools)]
        body["tool_choice"] = _encode_tool_choice(request.tool_choice or config.tool_choice or "auto", config)
    if request.system:
        body["system"] = [{"type": "text", "text": request.system}]
    turns = list(_turns(request.messages))
    body["messages"] = [{"role": role, "content": content} for role, content, _ in turns]
    body.update(_settings(config))
    if config.cache_config is not None:
        _mark_cache(body, request.cache_anchors, [last for _, _, last in turns])
    if request.stream:
        body["stream"] = True
    body.update(config.extensions)
    path = dialect.path.format(model=config.model_id, method="stream" if request.stream else "whole")
    return WireRequest(path=path, body=encode_json(body), headers=dict(dialect.headers))


def _default_max_tokens(config: ModelConfig) -> int:
    budget = config.reasoning.budget_tokens if config.reasoning else None
    return DEFAULT_MAX_TOKENS + (budget or 0)


def _settings(config: ModelConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    output: dict[str, Any] = {}
    reasoning = config.reasoning
    if reasoning and reasoning.budget_tokens:
        settings["thinking"] = {"type": "enabled", "budget_tokens": reasoning.budget_tokens}
    elif reasoning and reasoning.effort == "off":
        settings["thinking"] = {"type": "disabled"}
    elif reasoning and reasoning.effort:
        settings["thinking"] = {"type": "adaptive"}
        output["effort"] = EFFORTS[reasoning.effort]
    # With thinking on, the API refuses to have its sampling changed.
    if settings.get("thinking", {}).get("type") not in ("enabled", "adaptive"):
        settings.update({"temperature": config.temperature, "top_p": config.top_p})
    if config.output_schema is not None:
        output["format"] = {"type": "json_schema", "schema": config.output_schema}
    settings["output_config"] = output or None
    settings["stop_sequences"] = list(config.stop_sequences) or None
    return {name: value for name, value in settings.items() if value is not None}


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **tool.parameter_schema}}
    if tool.description:
        encoded["description"] = tool.description
    if tool.strict is not None:
        encoded["strict"] = tool.strict
    return encoded


def _encode_hosted_tool(tool: HostedTool) -> dict[str, Any]:
    kind, name = HOSTED_TOOLS.get(tool.kind, (tool.kind, tool.kind))
    return {"type": kind, "name": name, **tool.options}


def _encode_tool_choice(choice: ToolChoice, config: ModelConfig) -> dict[str, Any]:
    if isinstance(choice, OneTool):
        encoded: dict[str, Any] = {"type": "tool", "name": choice.tool_name}
    else:
        encoded = {"type": {"auto": "auto", "required": "any", "none": "none"}[choice]}
    if config.parallel_tool_calls is not None and choice != "none":
        encoded["disable_parallel_tool_use"] = not config.parallel_tool_calls
    return encoded


def _turns(messages: Sequence[Message]) -> Iterator[tuple[str, list[dict[str, Any]], int]]:
    """Role, content and index of the last message of each turn: results and the words after them share one user turn."""
    role, content, last = "", [], -1  # type: tuple[str, list[dict[str, Any]], int]
    for index, message in enumerate(messages):
        next_role = "user" if message.role is Role.TOOL else message.role.value
        if next_role != role and content:
            yield role, content, last
            content = []
        role, last = next_role, index
        content = [*content, *(block for part in message.parts for block in _encode_part(part))]
    if content:
        yield role, content, last


def _encode_part(part: Part) -> Iterator[dict[str, Any]]:
    data: Mapping[str, Any] = getattr(part, "provider_data", None) or {}
    match part:
        case Text():
            if part.text:
                yield {"type": "text", "text": part.text, **data}
        case Thinking():
            if "data" in data:
                yield {"type": "redacted_thinking", "data": data["data"]}
            elif "signature" in data:  # thinking without its signature is refused
                yield {"type": "thinking", "thinking": part.text, "signature": data["signature"]}
        case ToolCall():
            fields = {"id": part.tool_call_id, "name": part.tool_name, "input": part.arguments or {}}
            yield {"type": "tool_use", **fields, **data}
        case ToolResult():
            yield _encode_result(part)
        case Image() | FileRef():
            yield _encode_media(part)
        case ProviderItem():
            yield part.item
        case _:
            return


def _encode_result(result: ToolResult) -> dict[str, Any]:
    content: Any = result.content
    if isinstance(content, dict):
        content = encode_json(content).decode()
    elif isinstance(content, tuple):
        content = [block for part in content for block in _encode_part(part)]
    encoded = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": content}
    return {**encoded, "is_error": True} if result.is_error else encoded


def _encode_media(part: Image | FileRef) -> dict[str, Any]:
    file_id = part.file_id if isinstance(part, FileRef) else None
    source: dict[str, Any]
    if file_id is not None:
        source = {"type": "file", "file_id": file_id}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        assert part.data is not None
        if isinstance(part, FileRef) and (part.mime_type or "").startswith("text/"):
            source = {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
        else:
            data = base64.b64encode(part.data).decode()
            source = {"type": "base64", "media_type": part.mime_type, "data": data}
    is_image = isinstance(part, Image) or (part.mime_type or "").startswith("image/")
    encoded: dict[str, Any] = {"type": "image" if is_image else "document", "source": source}
    if isinstance(part, FileRef) and part.name and not is_image:
        encoded["title"] = part.name
    return encoded


def _mark_cache(body: dict[str, Any], anchors: tuple[int, ...], last_messages: list[int]) -> None:
    """Breakpoints in the order in which the API caches: tools, system, then the newest anchors, or the last turn."""
    mark = {"cache_control": {"type": "ephemeral"}}
    left = CACHE_BREAKPOINTS
    for block in body.get("tools", [])[-1:] + body.get("system", [])[-1:]:
        block.update(mark)
        left -= 1
    turns = [turn for turn, last in enumerate(last_messages) if last in anchors] or [len(last_messages) - 1]
    for turn in turns[-left:]:
        content = body["messages"][turn]["content"] if turn >= 0 else []
        target = next(
            (index for index in reversed(range(len(content))) if content[index]["type"] not in _UNCACHEABLE), None
        )
        if target is not None:
            content[target] = {**content[target], **mark}


CODEC = Codec(
    specification=SPECIFICATION,
    encode_request=encode_request,
    open_decoder=_Decoder,
    map_error=error_from_response,
)
