"""Requests of OpenAI's Responses API. Pure; `answers` reads the answers.

Write: a conversation that handoff has fitted → JSON. Assistant turns go back as the items they came as. A reasoning
item goes back whole or not at all. Without it, the ids of the items after it are left out too: the API refuses either
without the other.

Read: the items of a request → a conversation. The list is flat: the model's items in a row (reasoning, texts, calls,
hosted tools) become one assistant message.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ..._jsontext import encode_json
from ...errors import UnreadableData
from ...message import (
    FileRef,
    Image,
    Message,
    MessageMeta,
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
from ...stream import ConversationEncoder
from ...toolspec import OneTool, ToolChoice, ToolSpec
from ..drafts import Draft, Imported
from ..encoding import (
    UNREAD_FILE,
    argument_text,
    base64_text,
    cache_key_field,
    data_of,
    data_url,
    finish_request,
    given,
    merge_fields,
    unsupported,
)
from ..media import media_by_url, openai_file, stored_file
from ..reading import JsonSource, Node, require_new_id, take_json
from ..schemas import fit_schema
from ..stored_answers import invocation_of, read_answer
from ..turns import as_json
from .dialects import SPECIFICATION, ResponsesDialect

__all__ = ["Encoder", "ItemReader", "import_openai_responses", "own_items"]

EFFORTS = {"off": "none", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "max": "xhigh"}

# Our word for a hosted tool -> the API's form of it.
HOSTED_TOOLS: dict[str, dict[str, Any]] = {
    "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
}

# Items that the API takes without their id.
_ID_OPTIONAL = frozenset(
    {"message", "function_call", "custom_tool_call", "tool_search_call", "tool_search_output", "compaction"}
)


def _settings(config: ModelConfig, dialect: ResponsesDialect) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_output_tokens": config.max_tokens}
    thinking: dict[str, Any] = {}
    reasoning = config.reasoning
    if reasoning and reasoning.effort:
        thinking["effort"] = EFFORTS[reasoning.effort]
    if reasoning and reasoning.budget_tokens:
        if not dialect.reasoning_budget:
            raise unsupported(f"{dialect.provider} takes a reasoning effort, not a budget of tokens")
        thinking["max_tokens"] = reasoning.budget_tokens
    if reasoning and reasoning.summary:
        thinking["summary"] = "auto"
    # Models that reason refuse to have their sampling changed.
    if not thinking or thinking.get("effort") == "none":
        settings.update({"temperature": config.temperature, "top_p": config.top_p})
    settings["reasoning"] = thinking or None
    if config.output_schema is not None:
        schema, is_strict = fit_schema(config.output_schema, dialect.rules.schemas)
        form = {"type": "json_schema", "name": "output", "schema": schema, "strict": is_strict}
        settings["text"] = {"format": form}
    return given(settings)


def _encode_tool(tool: ToolSpec, dialect: ResponsesDialect) -> dict[str, Any]:
    encoded: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        encoded["description"] = tool.description
    schema = {"type": "object", "properties": {}, **tool.parameter_schema}
    schema, is_strict = fit_schema(schema, dialect.rules.schemas) if tool.strict else (schema, False)
    encoded["parameters"] = schema
    encoded["strict"] = is_strict  # left out, the API makes every argument required
    return encoded


def _encode_hosted_tool(tool: HostedTool, dialect: ResponsesDialect) -> dict[str, Any]:
    if not dialect.hosted_tools:
        raise unsupported(f"{dialect.provider} runs no tools of its own: {tool.kind!r} is not there")
    return merge_fields(HOSTED_TOOLS.get(tool.kind, {"type": tool.kind}), tool.options)


def _encode_tool_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "name": choice.tool_name} if isinstance(choice, OneTool) else choice


# ---------------------------------------------------------------- messages


class Encoder(ConversationEncoder):
    """Messages → items. `custom` has the ids of calls of free-text tools: their outputs have another type."""

    dialect: ResponsesDialect
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)
    custom: set[str] = msgspec.field(default_factory=set)

    def add(self, message: Message) -> None:
        """Encode the next message."""
        match message.role:
            case Role.ASSISTANT:
                items = _assistant_items(message, self.dialect)
                self.custom.update(item["call_id"] for item in items if item.get("type") == "custom_tool_call")
            case Role.TOOL:
                items = [_encode_result(part, self.custom) for part in message.parts if isinstance(part, ToolResult)]
            case role:
                items = [{"role": str(role), "content": _encode_content(message.parts)}]
        self.items.extend(map(as_json, items))

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request to the Responses API."""
        config, dialect = request.config, self.dialect
        body: dict[str, Any] = {"model": config.model_id}
        if request.system:
            body["instructions"] = request.system
        body["input"] = self.items
        if request.tools or config.hosted_tools:
            hosted = [_encode_hosted_tool(tool, dialect) for tool in config.hosted_tools]
            body["tools"] = [*(_encode_tool(tool, dialect) for tool in request.tools), *hosted]
            choice = request.tool_choice or config.tool_choice
            if choice is not None:
                body["tool_choice"] = _encode_tool_choice(choice)
            if request.tools and config.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = config.parallel_tool_calls
        body.update(_settings(config, dialect))
        if dialect.store:
            body["store"] = False
        if dialect.encrypted_reasoning and config.encrypted_reasoning:
            body["include"] = ["reasoning.encrypted_content"]
        if dialect.cache_key:
            body.update(cache_key_field(request))
        if request.stream:
            body["stream"] = True
        return finish_request(request, dialect, dialect.path, body)


def _encode_content(parts: Sequence[Part]) -> Any:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return list(_encode_inputs(parts)) or ""


def _encode_inputs(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if isinstance(part, (Text, Thinking)):
            yield {"type": "input_text", "text": part.text}
        elif isinstance(part, (Image, FileRef)):
            yield _encode_media(part)


def _encode_media(part: Image | FileRef) -> dict[str, Any]:
    file_id = part.file_id if isinstance(part, FileRef) else None
    if isinstance(part, FileRef) and part.path is not None:
        raise unsupported(UNREAD_FILE)
    url = part.url
    if part.data is not None:
        url = data_url(part.mime_type or "application/octet-stream", part.data)
    if isinstance(part, Image) or (part.mime_type or "").startswith("image/"):
        source = {"file_id": file_id} if file_id is not None else {"image_url": url}
        return {"type": "input_image", "detail": "auto", **source}
    if file_id is not None:
        return {"type": "input_file", "file_id": file_id}
    if part.data is None:
        return {"type": "input_file", "file_url": url}
    ending = (part.mime_type or "").rpartition("/")[2].replace("plain", "txt")  # the API goes by the ending
    return {"type": "input_file", "filename": part.name or f"file.{ending or 'bin'}", "file_data": url}


def _encode_result(result: ToolResult, custom: set[str]) -> dict[str, Any]:
    output: Any = result.content
    if isinstance(output, dict):
        output = encode_json(output).decode()
    elif isinstance(output, tuple):
        output = _encode_content(output)
    kind = "custom_tool_call_output" if result.tool_call_id in custom else "function_call_output"
    return {"type": kind, "call_id": result.tool_call_id, "output": output}


# ---------------------------------------------------------------- assistant turns


def _assistant_items(message: Message, dialect: ResponsesDialect) -> list[dict[str, Any]]:
    items = list(own_items(message))
    order = ((message.meta.provider_data if message.meta else None) or {}).get("order")
    if isinstance(order, list):  # the parts came in another order than the items have
        indices = {item_id: index for index, item_id in enumerate(order) if isinstance(item_id, str)}
        items.sort(key=lambda item: indices.get(str(item.get("id")), len(indices)))
    items = list(_accepted(items, dialect))
    while items and items[-1].get("type") == "reasoning":  # refused without the item that follows it
        items.pop()
    if dialect.calls_last:
        items.sort(key=lambda item: item.get("type") == "function_call")
    return items


def own_items(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the items that a turn's parts came as. Parts with the same item id are one item, where the first is."""
    parts = [part for part in message.parts if not isinstance(part, Text) or part.text or part.provider_data]
    pictures = {_data(part).get("id"): part for part in parts if isinstance(part, Image)}
    for same in _grouped(parts):
        part, data = same[0], _data(same[0])
        if isinstance(part, Text):
            yield (
                _message_item(same)
                if "id" in data
                else _text_item("".join(text.text for text in same if isinstance(text, Text)))
            )
        elif isinstance(part, Thinking) and data:
            yield _reasoning_item(same)
        elif isinstance(part, ToolCall):
            yield _call_item(part)
        elif isinstance(part, ProviderItem):
            item = _with_text_id(part.item)
            yield _hosted_item(dict(item), pictures.get(item.get("id")))


def _grouped(parts: Sequence[Part]) -> Iterable[list[Part]]:
    """Return the parts of each item: texts or thinking of one item id, texts in a row without an id, others alone."""
    groups: dict[tuple[type[Part], str | int], list[Part]] = {}
    key: str | int = -1
    for index, part in enumerate(parts):
        item_id = _data(part).get("id") if isinstance(part, (Text, Thinking)) else None
        if item_id is not None:
            key = item_id
        elif not isinstance(part, Text) or isinstance(key, str):
            key = index
        groups.setdefault((type(part), key), []).append(part)
    return groups.values()


def _data(part: Part) -> Mapping[str, Any]:
    return _with_text_id(data_of(part))


def _with_text_id(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields without an `id` that is not text. Records may hold one: older versions kept what the wire sent."""
    if isinstance(fields.get("id", ""), str):
        return fields
    return {name: value for name, value in fields.items() if name != "id"}


def _text_item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [_output_text(text, {})]}


def _message_item(parts: Sequence[Part]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    content = []
    for part in parts:
        assert isinstance(part, Text)
        data = _data(part)
        fields.update({name: value for name, value in data.items() if name != "content"})
        content.append(_output_text(part.text, data.get("content") or {}))
    return {"type": "message", "role": "assistant", "content": content, **fields}


def _output_text(text: str, further: dict[str, Any]) -> dict[str, Any]:
    kind = further.get("type", "output_text")
    if kind == "refusal":
        return {**further, "refusal": text}
    if kind != "output_text":
        return {**further, "text": text} if text else further
    further = {name: value for name, value in further.items() if name != "logprobs"}  # facts, not history
    return {"type": "output_text", "text": text, "annotations": [], **further}


def _reasoning_item(parts: Sequence[Part]) -> dict[str, Any]:
    text = "".join(part.text for part in parts if isinstance(part, Thinking))
    item: dict[str, Any] = {"type": "reasoning", **_data(parts[-1])}
    for name in ("summary", "content"):
        if not isinstance(item.get(name), list):
            item.pop(name, None)  # records may hold something else: older versions kept what the wire sent
            continue
        entries = []
        for entry in item[name]:
            if isinstance(entry, dict) and isinstance(entry.get("length"), int):
                entries.append({"type": entry.get("type"), "text": text[: entry["length"]], **entry})
                del entries[-1]["length"]
                text = text[entry["length"] :]
            else:
                entries.append(entry)
        item[name] = entries
    item.setdefault("summary", [])
    return item


def _call_item(call: ToolCall) -> dict[str, Any]:
    data = _data(call)
    fields = {"call_id": call.tool_call_id, "name": call.tool_name}
    if data.get("type") == "custom_tool_call" and call.arguments is not None:
        return {**data, **fields, "input": call.arguments.get("input", "")}
    return {"type": "function_call", **fields, "arguments": argument_text(call), **data}


def _hosted_item(item: dict[str, Any], picture: Part | None) -> dict[str, Any]:
    if isinstance(picture, Image) and picture.data is not None:
        return {**item, "result": base64_text(picture.data)}
    return item


def _accepted(items: Iterable[dict[str, Any]], dialect: ResponsesDialect) -> Iterator[dict[str, Any]]:
    """Yield the items that the host takes back: whole reasoning, and ids only beside the reasoning they belong to."""
    is_orphaned = False
    for item in items:
        kind = item.get("type") if isinstance(item.get("type"), str) else None
        if kind == "reasoning":
            plain = dialect.plain_reasoning and bool(item.get("content"))
            is_orphaned = not (item.get("encrypted_content") or plain)
            if not is_orphaned:
                yield item
        elif kind == "message" and item.get("role") == "assistant":
            yield _message_form(item, with_id=dialect.item_ids and not is_orphaned)
        elif dialect.item_ids and not is_orphaned:
            yield item
        elif kind in _ID_OPTIONAL:
            yield {name: value for name, value in item.items() if name != "id"}


def _message_form(item: dict[str, Any], *, with_id: bool) -> dict[str, Any]:
    if with_id and "id" in item:
        return {**item, "status": item.get("status", "completed")}
    text = "".join(content.get("text") or content.get("refusal") or "" for content in item["content"])
    return {**_text_item(text), **({"phase": item["phase"]} if "phase" in item else {})}


# ---------------------------------------------------------------- read: a request's messages → a conversation

_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_KINDS = frozenset({"message", "reasoning", "item_reference", "compaction", "mcp_list_tools", "mcp_approval_request"})
_TEXTS = frozenset({"input_text", "output_text", "text"})
_USER_FIELDS = frozenset({"type", "role", "content", "id", "status"})


def import_openai_responses(
    items: JsonSource, *, instructions: str | None = None, made_by: str | None = None
) -> Imported:
    """Return the conversation that a list of Responses items holds; raise UnreadableData where it is none.

    `instructions` are the request's own. `made_by` (`provider:model`) says which model gave the answers, if it was one.
    Without it, encrypted reasoning and hosted items are kept but never sent.
    """
    reader = ItemReader(Draft("openai_responses"), invocation_of(made_by, SPECIFICATION))
    if instructions is not None:
        reader.draft.add_system(Node(instructions, "instructions").text())
    root = take_json(items, "items")
    nodes = root.each()
    for node in nodes:
        reader.read(node)
    if nodes and not any(
        map(_is_known, nodes)
    ):  # an item of a new kind is kept; a list of nothing else is no list of items
        raise UnreadableData(f"{nodes[0].where}.type is of no item of the Responses API")
    reader.end_turn()
    return reader.draft.result(root)


class ItemReader:
    """Reads items one by one into a draft. The model's items wait until its turn ends."""

    def __init__(self, draft: Draft, invocation: ModelInvocationDescriptor | None) -> None:
        self.draft = draft
        # Of the answers that end from now on.
        self.invocation = invocation
        self.model_id: str | None = None
        self._turn: list[dict[str, Any]] = []
        self._began = ""
        self._said_at: datetime | None = None
        self._seen: set[str] = set()

    def read(self, node: Node, timestamp: datetime | None = None) -> None:
        """Read one item; `timestamp` is when it was said."""
        kind = node.text_if("type") or ("message" if node.has("role") else "item_reference")
        if kind == "message" and node.text_in("role") != "assistant":
            self.end_turn()
            self._read_message(node, timestamp)
        elif kind in _OUTPUTS:
            self.end_turn()
            node.skip("id", "status")
            result = ToolResult(node.name_in("call_id"), self._read_content(node.child("output")))
            self.draft.add_result(result, timestamp=timestamp)
        else:
            self._began = self._began or node.where
            self._said_at = timestamp
            self._turn.append(_answer_item(node, kind, self._seen))

    def end_turn(self) -> None:
        """Add the answer that the items of the model since the last one are, if there are any."""
        if self._turn:
            answer = read_answer({"output": self._turn}, SPECIFICATION, self.invocation, self._began)
            meta = answer.meta
            if self.model_id is not None:
                meta = replace(meta or MessageMeta(), model_id=self.model_id)
            self.draft.messages.append(replace(answer, timestamp=self._said_at, meta=meta))
        self._turn, self._began, self._seen = [], "", set()

    def _read_message(self, node: Node, timestamp: datetime | None) -> None:
        content = self._read_content(node.child("content"))
        parts = (Text(content),) if isinstance(content, str) else content
        match node.text_in("role"):
            case "system" | "developer":
                self.draft.add_system("\n\n".join(part.text for part in parts if isinstance(part, Text)))
            case "user":
                extra = self.draft.own_fields(node, _USER_FIELDS)
                self.draft.add(Role.USER, list(parts), timestamp=timestamp, extra=extra)
            case _:
                raise UnreadableData(f"{node.where}.role must be one of system, developer, user, assistant")

    def _read_content(self, node: Node) -> str | tuple[ResultPart, ...]:
        if isinstance(node.value, list):
            return tuple(self._read_part(part) for part in node.each())
        return "" if node.value is None else node.text()

    def _read_part(self, node: Node) -> ResultPart:
        kind = node.text_in("type")
        if kind in _TEXTS:
            node.skip("annotations", "logprobs")
            return Text(node.text_in("text"))
        if kind == "input_image":
            if node.value.get("detail") == "auto":
                node.skip("detail")
            if node.has("file_id"):
                return stored_file(node.child("file_id"), "image/png")
            return media_by_url(node.child("image_url"), "image/*")
        if kind == "input_file":
            return openai_file(node)
        return self.draft.unshown(node, kind)


def _is_known(node: Node) -> bool:
    kind = node.value.get("type") or "message"
    return kind in _KINDS or kind.endswith(("_call", "_call_output"))


def _answer_item(node: Node, kind: str, seen: set[str]) -> dict[str, Any]:
    """Return the item as an answer has it, after checking that its required fields are there."""
    item = {**node.fields, "type": kind}
    match kind:
        case "message":
            content = node.child("content")
            if not isinstance(content.value, list):
                return {**item, "content": [{"type": "output_text", "text": content.text()}]}
            for part in content.each():
                part.text_in("refusal" if part.fields.get("type") == "refusal" else "text")
        case "function_call":
            require_new_id(node, "call_id", seen)
            node.name_in("name")
            arguments = node.child("arguments")
            if isinstance(arguments.value, dict):
                return {**item, "arguments": encode_json(arguments.value).decode()}
            if arguments.value is not None:
                arguments.text()
        case "custom_tool_call":
            require_new_id(node, "call_id", seen)
            node.name_in("name")
            node.text_in("input")
        case "reasoning":
            for name in ("summary", "content"):
                for part in node.each_in(name):
                    Node(part.fields, part.where).text_in("text")
        case "item_reference":
            node.name_in("id")
        case _:
            pass
    return item
