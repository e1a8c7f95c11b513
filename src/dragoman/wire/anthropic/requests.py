"""A conversation and its settings to the JSON of Anthropic's Messages API, on any of its hosts. Pure.

Parts carry `providerData` in the wire's own words (`answers` says which); it goes back as it came.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from ...errors import ErrorCode, ModelError
from ...jsontext import encode_json
from ...message import FileRef, Image, Message, Part, ProviderItem, Role, Text, Thinking, ToolCall, ToolResult
from ...request import HostedTool, ModelConfig, ModelRequest, WireRequest
from ...toolspec import OneTool, ToolChoice, ToolSpec
from ..claude import claude_max_tokens, claude_thinking, require_free_choice, thinks_by_budget
from ..encoding import argument_object, merge_fields
from ..turns import Turns, read_back, write_conversation
from .dialects import IMAGE_TYPES, AnthropicDialect

__all__ = ["encode_request"]

# Our word for a hosted tool -> a type of it that every current model takes, and the one name that it may have.
HOSTED_TOOLS: dict[str, tuple[str, str]] = {
    "web_search": ("web_search_20250305", "web_search"),
    "web_fetch": ("web_fetch_20250910", "web_fetch"),
    "code_execution": ("code_execution_20250825", "code_execution"),
}
_DATED_TYPE = re.compile(r"(.+)_20\d{6}")
_UNNAMED_TOOLS = frozenset({"mcp_toolset"})

CACHE_BREAKPOINTS = 4
_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_UNCACHEABLE = frozenset({"thinking", "redacted_thinking"})
_EMPTY_TURN = {"type": "text", "text": "."}  # the API refuses a user turn of nothing or of white space


def encode_request(request: ModelRequest, dialect: AnthropicDialect) -> WireRequest:
    """Return the request for a conversation that handoff has fitted to this API."""
    config = request.config
    turns = write_conversation(request, partial(_Turns, dialect))
    turns.close()
    turns.strip_last_text()
    thinking, effort = claude_thinking(config)
    if thinks_by_budget(thinking) and _loop_began_without_thinking(turns):
        thinking = None  # the API refuses the request otherwise; the next turn thinks again
    body: dict[str, Any] = {}
    if dialect.body_version is None:
        body["model"] = config.model_id
    else:
        body["anthropic_version"] = dialect.body_version
    body["max_tokens"] = claude_max_tokens(config, thinking)
    if request.tools or config.hosted_tools:
        choice = request.tool_choice or config.tool_choice or "auto"
        require_free_choice(choice, thinking)
        body["tools"] = [*map(_encode_tool, request.tools), *map(_encode_hosted_tool, config.hosted_tools)]
        body["tool_choice"] = _encode_tool_choice(choice, config)
    if request.system and request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if config.cache_config is not None:
        _mark_cache(body, request.cache_anchors, turns)
    body["messages"] = turns.written()
    body.update(_settings(request, thinking, effort))
    if request.stream and dialect.stream_field:
        body["stream"] = True
    body = merge_fields(body, config.extensions)
    path = dialect.stream_path if request.stream else dialect.whole_path
    path = path.format(model=_quoted(config.model_id))
    return WireRequest(path=path, body=encode_json(body), headers=dict(dialect.headers))


_quoted = lru_cache(partial(quote, safe=":@"))  # the same few models, request after request


# ---------------------------------------------------------------- settings and tools


def _settings(request: ModelRequest, thinking: dict[str, Any] | None, effort: str | None) -> dict[str, Any]:
    config = request.config
    settings: dict[str, Any] = {"thinking": thinking}
    # Thinking models refuse to have their sampling changed, and newer ones take one of the two settings at most.
    if thinking is None or thinking["type"] == "disabled":
        if config.temperature is not None:
            settings["temperature"] = min(config.temperature, 1.0)
        else:
            settings["top_p"] = config.top_p
    output: dict[str, Any] = {"effort": effort} if effort else {}
    if config.output_schema is not None:
        output["format"] = {"type": "json_schema", "schema": config.output_schema}
    settings["output_config"] = output or None
    # A stop sequence of white space alone is refused.
    if config.stop_sequences:
        settings["stop_sequences"] = [text for text in config.stop_sequences if text.strip()] or None
    if user_id := request.metadata.get("user_id"):
        settings["metadata"] = {"user_id": user_id}
    return {name: value for name, value in settings.items() if value is not None}


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **tool.parameter_schema}}
    if tool.description:
        encoded["description"] = tool.description
    if tool.strict:
        encoded["strict"] = True
    return encoded


def _encode_hosted_tool(tool: HostedTool) -> dict[str, Any]:
    if tool.kind in HOSTED_TOOLS:
        kind, name = HOSTED_TOOLS[tool.kind]
        return {"type": kind, "name": name, **tool.options}
    if tool.kind in _UNNAMED_TOOLS:
        return {"type": tool.kind, **tool.options}
    dated = _DATED_TYPE.fullmatch(tool.kind)
    if dated is None:
        raise _unsupported(f"the hosted tool {tool.kind!r}: it has {', '.join(HOSTED_TOOLS)}, or a type with its date")
    return {"type": tool.kind, "name": dated[1], **tool.options}


def _encode_tool_choice(choice: ToolChoice, config: ModelConfig) -> dict[str, Any]:
    if isinstance(choice, OneTool):
        encoded: dict[str, Any] = {"type": "tool", "name": choice.tool_name}
    else:
        encoded = {"type": {"auto": "auto", "required": "any", "none": "none"}[choice]}
    if config.parallel_tool_calls is not None and choice != "none":
        encoded["disable_parallel_tool_use"] = not config.parallel_tool_calls
    return encoded


# ---------------------------------------------------------------- turns and parts


class _Turns(Turns):
    """Results and the words after them share one user turn; an assistant turn of nothing is left out."""

    dialect: AnthropicDialect

    def add(self, message: Message) -> None:
        role = "user" if message.role is Role.TOOL else str(message.role)
        blocks: list[dict[str, Any]] = []
        for part in message.parts:
            blocks += _encode_part(part, self.dialect)
        if role != self.role:
            if not blocks and role != "user":
                self.ends.append(-1)
                return
            self.begin(role)
        self.blocks += blocks
        self.ends.append(len(self.blocks))

    def close(self) -> None:
        if not self.blocks:
            self.blocks.append(_EMPTY_TURN)

    def strip_last_text(self) -> None:
        """A final assistant text must not end in white space: the model goes on from there."""
        last = self.blocks[-1]
        if self.role == "assistant" and last["type"] == "text":
            self.blocks[-1] = {**last, "text": last["text"].rstrip()}


def _loop_began_without_thinking(turns: _Turns) -> bool:
    if not turns.over or not any(block["type"] == "tool_result" for block in turns.blocks):
        return False
    before = read_back(turns.over[-1])
    return before["role"] == "assistant" and before["content"][0]["type"] not in _UNCACHEABLE


def _encode_part(part: Part, dialect: AnthropicDialect) -> Iterator[dict[str, Any]]:
    data: Mapping[str, Any] = getattr(part, "provider_data", None) or {}
    match part:
        case Text():
            if part.text.strip():  # blank text is refused, also beside other blocks
                yield {"type": "text", "text": part.text, **data}
        case Thinking():
            if "data" in data:
                yield {"type": "redacted_thinking", "data": data["data"]}
            elif data.get("signature") or dialect.unsigned_thinking:
                yield {"type": "thinking", "thinking": part.text, "signature": data.get("signature", "")}
        case ToolCall():
            written = argument_object(part)
            yield {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": written, **data}
        case ToolResult():
            yield _encode_result(part, dialect)
        case Image() | FileRef():
            yield _encode_media(part)
        case ProviderItem():
            yield part.item
        case _:
            return


def _encode_result(result: ToolResult, dialect: AnthropicDialect) -> dict[str, Any]:
    content: Any = result.content
    if isinstance(content, dict):
        content = encode_json(content).decode()
    elif isinstance(content, tuple):
        content = [block for part in content for block in _encode_part(part, dialect)]
    encoded = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": content}
    return {**encoded, "is_error": True} if result.is_error else encoded


def _encode_media(part: Image | FileRef) -> dict[str, Any]:
    mime_type = "image/jpeg" if part.mime_type == "image/jpg" else part.mime_type
    is_image = isinstance(part, Image) or (mime_type or "").startswith("image/")
    is_text = (mime_type or "").startswith("text/")
    source: dict[str, Any]
    if isinstance(part, FileRef) and part.file_id is not None:
        if mime_type is not None and not is_image and mime_type not in ("application/pdf", "text/plain"):
            return {"type": "container_upload", "file_id": part.file_id}
        source = {"type": "file", "file_id": part.file_id}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.data is None:
        raise _unsupported("a file by its path: read it first")
    elif is_text and not is_image:
        source = {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
    elif mime_type in IMAGE_TYPES or mime_type == "application/pdf":
        source = {"type": "base64", "media_type": mime_type, "data": base64.b64encode(part.data).decode()}
    else:
        raise _unsupported(f"media of type {mime_type!r}: it takes jpeg, png, gif, webp, pdf and text")
    encoded: dict[str, Any] = {"type": "image" if is_image else "document", "source": source}
    if isinstance(part, FileRef) and part.name and not is_image:
        encoded["title"] = part.name
    return encoded


def _unsupported(what: str) -> ModelError:
    return ModelError(f"the Messages API cannot take {what}", code=ErrorCode.UNSUPPORTED)


# ---------------------------------------------------------------- cache


def _mark_cache(body: dict[str, Any], anchors: tuple[int, ...], turns: _Turns) -> None:
    """Breakpoints in the order in which the API caches: tools, system, then the newest anchors, or the last turn."""
    left = CACHE_BREAKPOINTS
    loaded_tools = [tool for tool in body.get("tools", ()) if not tool.get("defer_loading")]
    for block in loaded_tools[-1:] + body.get("system", [])[-1:]:
        block.update(_CACHE_MARK)
        left -= 1
    for turn, end in turns.anchored(anchors)[-left:]:
        turns.change(turn, partial(_mark_last, end))


def _mark_last(end: int, blocks: list[dict[str, Any]]) -> None:
    """Mark the last of the first `end` blocks that can be cached."""
    for place in range(end - 1, -1, -1):
        if blocks[place]["type"] not in _UNCACHEABLE:
            blocks[place] = {**blocks[place], **_CACHE_MARK}
            return
