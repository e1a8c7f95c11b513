"""Requests of Anthropic's Messages API, on any of its hosts. Pure.

Write: a conversation and its settings → JSON. Read: the messages of a request → a conversation.
Parts carry `providerData` in the wire's own words (`answers` says which); it goes back as it came.
"""

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from ..._jsontext import encode_json
from ...errors import UnreadableData
from ...message import (
    FileRef,
    Image,
    Message,
    ModelInvocationDescriptor,
    Part,
    ProviderItem,
    ResultPart,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ...request import HostedTool, ModelConfig, ModelRequest, WireRequest
from ...toolspec import OneTool, ToolChoice, ToolSpec
from ..claude import claude_max_tokens, claude_thinking, require_free_choice, thinks_by_budget
from ..drafts import Draft, Imported
from ..encoding import UNREAD_FILE, argument_object, base64_text, data_of, finish_request, given, unsupported
from ..media import decoded, media_by_url, media_of_bytes, stored_file
from ..reading import JsonSource, Node, require_new_id, take_json
from ..schemas import fit_schema
from ..stored_answers import invocation_of, read_answer
from ..turns import Turns, read_back
from .dialects import IMAGE_TYPES, SPECIFICATION, AnthropicDialect

__all__ = [
    "DATED_TYPE",
    "HOSTED_TOOLS",
    "Encoder",
    "import_anthropic",
    "read_assistant",
    "read_block",
    "read_system",
    "read_turn",
    "read_user",
]

# Our word for a hosted tool -> a type of it that every current model takes, and the one name that it may have.
HOSTED_TOOLS: dict[str, tuple[str, str]] = {
    "web_search": ("web_search_20250305", "web_search"),
    "web_fetch": ("web_fetch_20250910", "web_fetch"),
    "code_execution": ("code_execution_20250825", "code_execution"),
}
DATED_TYPE = re.compile(r"(.+)_20\d{6}")
_UNNAMED_TOOLS = frozenset({"mcp_toolset"})

CACHE_BREAKPOINTS = 4
_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_UNCACHEABLE = frozenset({"thinking", "redacted_thinking"})
_EMPTY_TURN = {"type": "text", "text": "."}  # the API refuses a user turn of nothing or of white space


_quoted = lru_cache(partial(quote, safe=":@"))  # the same few models, request after request


# ---------------------------------------------------------------- settings and tools


def _settings(
    request: ModelRequest, dialect: AnthropicDialect, thinking: dict[str, Any] | None, effort: str | None
) -> dict[str, Any]:
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
        schema, _ = fit_schema(config.output_schema, dialect.rules.schemas)
        output["format"] = {"type": "json_schema", "schema": schema}
    settings["output_config"] = output or None
    # A stop sequence of white space alone is refused.
    if config.stop_sequences:
        settings["stop_sequences"] = [text for text in config.stop_sequences if text.strip()] or None
    if user_id := request.metadata.get("user_id"):
        settings["metadata"] = {"user_id": user_id}
    return given(settings)


def _encode_tool(tool: ToolSpec, dialect: AnthropicDialect) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameter_schema}
    schema, is_strict = fit_schema(schema, dialect.rules.schemas) if tool.strict else (schema, False)
    encoded: dict[str, Any] = {"name": tool.name, "input_schema": schema}
    if tool.description:
        encoded["description"] = tool.description
    if is_strict:
        encoded["strict"] = True
    return encoded


def _encode_hosted_tool(tool: HostedTool) -> dict[str, Any]:
    if tool.kind in HOSTED_TOOLS:
        kind, name = HOSTED_TOOLS[tool.kind]
        return {"type": kind, "name": name, **tool.options}
    if tool.kind in _UNNAMED_TOOLS:
        return {"type": tool.kind, **tool.options}
    dated = DATED_TYPE.fullmatch(tool.kind)
    if dated is None:
        known = f"it has {', '.join(HOSTED_TOOLS)}, or a type with its date"
        raise unsupported(f"the Messages API cannot take the hosted tool {tool.kind!r}: {known}")
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


class Encoder(Turns):
    """Messages → turns. Tool results share a turn with the user text after them; empty assistant turns are left out."""

    dialect: AnthropicDialect

    def add(self, message: Message) -> None:
        """Encode the next message."""
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
        """Make the open turn one that the API takes."""
        if not self.blocks:
            self.blocks.append(_EMPTY_TURN)

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request to the Messages API."""
        config = request.config
        dialect = self.dialect
        self.close()
        self._strip_last_text()
        thinking, effort = claude_thinking(config)
        if thinks_by_budget(thinking) and _loop_began_without_thinking(self):
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
            body["tools"] = [
                *(_encode_tool(tool, self.dialect) for tool in request.tools),
                *map(_encode_hosted_tool, config.hosted_tools),
            ]
            body["tool_choice"] = _encode_tool_choice(choice, config)
        if request.system and request.system.strip():
            body["system"] = [{"type": "text", "text": request.system}]
        if config.cache_config is not None:
            _mark_cache(body, request.cache_anchors, self)
        body["messages"] = self.written()
        body.update(_settings(request, self.dialect, thinking, effort))
        if request.stream and dialect.stream_field:
            body["stream"] = True
        path = dialect.stream_path if request.stream else dialect.whole_path
        path = path.format(model=_quoted(config.model_id))
        return finish_request(request, dialect, path, body)

    def _strip_last_text(self) -> None:
        """A final assistant text must not end in white space: the model goes on from there."""
        last = self.blocks[-1]
        if self.role == "assistant" and last["type"] == "text":
            self.blocks[-1] = {**last, "text": last["text"].rstrip()}


def _loop_began_without_thinking(turns: Encoder) -> bool:
    if not turns.over or not any(block["type"] == "tool_result" for block in turns.blocks):
        return False
    before = read_back(turns.over[-1])
    return before["role"] == "assistant" and before["content"][0]["type"] not in _UNCACHEABLE


def _encode_part(part: Part, dialect: AnthropicDialect) -> Iterator[dict[str, Any]]:
    data = data_of(part)
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
    if isinstance(part, FileRef) and part.file_id is not None:
        if mime_type is not None and not is_image and mime_type not in ("application/pdf", "text/plain"):
            return {"type": "container_upload", "file_id": part.file_id}
        source = {"type": "file", "file_id": part.file_id}
    else:
        source = _media_source(part, mime_type, is_image=is_image)
    encoded: dict[str, Any] = {"type": "image" if is_image else "document", "source": source}
    if isinstance(part, FileRef) and part.name and not is_image:
        encoded["title"] = part.name
    return encoded


def _media_source(part: Image | FileRef, mime_type: str | None, *, is_image: bool) -> dict[str, Any]:
    """Where the media are: at an address, or in the request."""
    if part.url is not None:
        if not is_image and mime_type not in (None, "application/pdf"):
            raise unsupported(f"the Messages API cannot take media of type {mime_type!r} by an address: give the bytes")
        return {"type": "url", "url": part.url}
    if part.data is None:
        raise unsupported(UNREAD_FILE)
    if (mime_type or "").startswith("text/") and not is_image:
        return {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
    if mime_type in IMAGE_TYPES or mime_type == "application/pdf":
        return {"type": "base64", "media_type": mime_type, "data": base64_text(part.data)}
    what = f"media of type {mime_type!r}: it takes jpeg, png, gif, webp, pdf and text"
    raise unsupported(f"the Messages API cannot take {what}")


# ---------------------------------------------------------------- cache


def _mark_cache(body: dict[str, Any], anchors: tuple[int, ...], turns: Encoder) -> None:
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
    for index in range(end - 1, -1, -1):
        if blocks[index]["type"] not in _UNCACHEABLE:
            blocks[index] = {**blocks[index], **_CACHE_MARK}
            return


# ---------------------------------------------------------------- read: a request's messages → a conversation

# Block of an answer -> the field of its text, and the field stored with it.
_ANSWER_TEXTS: dict[str, tuple[str, str | None]] = {
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data", None),
}
_USER_FIELDS = frozenset({"role", "content"})
_CACHE_FIELD = "cache_control"  # a setting of one request; sent back with every turn, it breaks the limit on them


def import_anthropic(
    messages: JsonSource, system: str | list[dict[str, Any]] | None = None, *, made_by: str | None = None
) -> Imported:
    """Return the conversation that a Messages API list holds; raise UnreadableData where it is none.

    `system` is the request's own, text or blocks. `made_by` (`provider:model`) says which model gave the answers, if it
    was one. Without it, signatures are kept but never sent.
    """
    invocation = invocation_of(made_by, SPECIFICATION)
    draft = Draft("anthropic")
    instruction = Node("", "system")
    if system is not None:
        instruction = Node(system, "system") if isinstance(system, str) else take_json(system, "system")
        draft.add_system(read_system(instruction, draft))
    root = take_json(messages, "messages")
    for node in root.each():
        read_turn(node, draft, invocation)
    return draft.result(instruction, root)


def read_turn(node: Node, draft: Draft, invocation: ModelInvocationDescriptor | None) -> None:
    """Add what one message of the API holds."""
    match node.text_in("role"):
        case "user":
            read_user(node, draft)
        case "assistant":
            read_assistant([node], draft, invocation)
        case "system":
            if text := read_system(node.child("content"), draft):
                draft.add_system(text)
        case _:
            raise UnreadableData(f"{node.where}.role must be user or assistant")


def read_system(node: Node, draft: Draft) -> str:
    """Return the system text: plain, or in blocks. Blocks of other types are named (tools that come later …)."""
    texts = []
    for block in _blocks(node):
        kind = block.text_if("type")
        if kind in (None, "text"):
            texts.append(block.text_in("text"))
        else:
            block.whole()
            draft.notes.add(block.where, f"{kind[:40]!r} is not carried over")
    return "\n\n".join(texts)


def _blocks(content: Node) -> list[Node]:
    """The blocks of a content. A plain text means one text block."""
    if isinstance(content.value, list):
        return content.each()
    return [Node({"type": "text", "text": content.text()}, content.where)]


# ---------------------------------------------------------------- user turns


def read_user(node: Node, draft: Draft) -> None:
    """Add what a user message holds: the results first, each as its own message, then what the user said."""
    node.skip("role")
    said: list[ResultPart] = []
    for block in _blocks(node.child("content")):
        if block.text_in("type") == "tool_result":
            _read_result(block, draft)
        else:
            said.append(read_block(block, draft))
    if said:
        draft.add(Role.USER, list(said), extra=draft.own_fields(node, _USER_FIELDS))


def _read_result(node: Node, draft: Draft) -> None:
    content = node.child("content")
    said: str | tuple[ResultPart, ...] = "" if content.value is None else ()
    if isinstance(content.value, list):
        said = tuple(read_block(block, draft) for block in content.each())
    elif content.value is not None:
        said = content.text()
    draft.add_result(ToolResult(node.name_in("tool_use_id"), said, is_error=node.flag_in("is_error")))


def read_block(node: Node, draft: Draft) -> ResultPart:
    """Return the part that a content block of a user turn or a result holds."""
    match node.text_in("type"):
        case "text":
            return Text(node.text_in("text"))
        case "image" | "document" as kind:
            return _read_media(node, kind, draft)
        case kind:
            return draft.unshown(node, kind)


def _read_media(node: Node, kind: str, draft: Draft) -> ResultPart:
    source, name = node.child("source"), node.text_if("title")
    default = "image/*" if kind == "image" else "application/pdf"
    match source.text_in("type"):
        case "base64":
            return media_of_bytes(decoded(source.child("data")), source.text_in("media_type"), name, node.where)
        case "text":
            source.skip("media_type")
            data = source.text_in("data").encode("utf-8", "replace")
            return FileRef(data=data, mime_type="text/plain", name=name or None)
        case "url":
            found = media_by_url(source.child("url"), default, name)
            return found if kind == "document" or isinstance(found, Image) else draft.unshown(node, kind)
        case "file":  # only the provider knows the picture's format; the part must still say that it is a picture
            return stored_file(source.child("file_id"), None if kind == "document" else "image/png", name)
        case _:
            return draft.unshown(node, kind)


# ---------------------------------------------------------------- assistant turns


_CALL_FIELDS = ("type", "id", "name", "input", "caller")  # which the API takes back; others are told


def read_assistant(nodes: list[Node], draft: Draft, invocation: ModelInvocationDescriptor | None) -> None:
    """Add one answer. Its blocks may stand in several messages; of their other fields the last ones hold."""
    seen: set[str] = set()
    content = [_answer_block(block, seen) for node in nodes for block in _blocks(node.child("content"))]
    fields: dict[str, Any] = {}
    for node in nodes:
        fields.update(node.fields)
    body = {**fields, "type": "message", "content": content}
    draft.messages.append(read_answer(body, SPECIFICATION, invocation, nodes[0].where))


def _answer_block(node: Node, seen: set[str]) -> dict[str, Any]:
    """Return the block as an answer has it, after checking that its required fields are there."""
    kind = node.text_in("type")
    if kind in _ANSWER_TEXTS:
        text, beside = _ANSWER_TEXTS[kind]
        block: dict[str, Any] = {"type": kind, text: node.text_in(text)}
        if beside is not None and node.has(beside):
            found = node.child(beside)
            block[beside] = found.text() if beside == "signature" else [each.value for each in found.each()]
        return block
    if kind == "tool_use":
        node.name_in("name")
        require_new_id(node, "id", seen)
        arguments = node.child("input")
        if arguments.value is not None and not isinstance(arguments.value, (dict, str)):
            raise arguments.wrong("an object")
        return {name: node.get(name) for name in _CALL_FIELDS if node.has(name)}
    return {name: node.get(name) for name in node.value if name != _CACHE_FIELD}
