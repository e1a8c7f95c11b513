"""LangChain messages, as `messages_to_dict` or `dumpd` writes them, to messages here."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from .._jsontext import encode_json
from ..errors import UnreadableData
from ..message import (
    FinishReason,
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
from ..usage import TokenUsage
from ..wire.anthropic.requests import read_block as read_anthropic_block
from ..wire.drafts import Draft, Imported
from ..wire.media import decoded, media_by_url, media_of_bytes, stored_file
from ..wire.openai_chat.requests import read_part as read_chat_part
from ..wire.reading import JsonSource, Node, reading, require_new_id, take_json

__all__ = ["import_langchain"]

_ROLES = {"user": "human", "human": "human", "assistant": "ai", "ai": "ai", "system": "system", "developer": "system"}
_MEDIA = {"image": "image/*", "audio": "audio/*", "video": "video/*", "file": None, "text-plain": "text/plain"}
_BROKEN = "its arguments were not readable when they were recorded"
_PIECES = frozenset({"input_json_delta"})  # of a call's arguments, which stand whole in `tool_calls`
# Blocks that are Anthropic's own, word for word, and may go back to it. Its other blocks were translated.
_ANTHROPIC_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", *_PIECES})

# The words of the many providers behind LangChain, in lower case. Any other word is `other`.
_FINISH_WORDS = {
    FinishReason.STOP: "stop end_turn stop_sequence complete eos",
    FinishReason.LENGTH: "length max_tokens model_length model_context_window_exceeded",
    FinishReason.TOOL_CALLS: "tool_calls tool_use tool_call function_call",
    FinishReason.CONTENT_FILTER: "content_filter content_filtered guardrail_intervened sensitive safety recitation "
    "blocklist prohibited_content spii model_armor image_safety image_prohibited_content image_recitation",
    FinishReason.REFUSAL: "refusal",
    FinishReason.PAUSE: "pause_turn compaction",
}
_FINISH_REASONS = {word: reason for reason, words in _FINISH_WORDS.items() for word in words.split()}

_KNOWN_FIELDS = frozenset(
    {"content", "type", "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "tool_call_id"}
    | {"artifact", "status", "example", "response_metadata", "additional_kwargs", "chunk_position"}
)
_SKIPPED = ("type", "example", "tool_call_chunks", "chunk_position")
_CALL_FIELDS = ("name", "args", "input", "arguments", "partial_json", "index", "extras", "id", "error", "status")
_KNOWN_METADATA = frozenset({"model_name", "model", "finish_reason", "stop_reason"})
_KNOWN_KWARGS = frozenset({"tool_calls", "function_call", "reasoning_content", "refusal"})


def import_langchain(messages: JsonSource) -> Imported:
    """Return the conversation that LangChain's message JSON holds; raise UnreadableData where it is none."""
    draft = Draft("langchain")
    called: dict[str, str] = {}  # the newest call of each function in the old form, which has no ids
    root = take_json(messages, "messages")
    for node in root.each():
        kind, data = _kind_and_data(node)
        if kind == "chat":
            kind = _ROLES.get(data.text_in("role").lower(), "human")
        match kind:
            case "system":
                data.skip(*_SKIPPED, "role")
                draft.add_system("\n\n".join(part.text for part in _user_parts(data, draft) if isinstance(part, Text)))
            case "human":
                draft.add(Role.USER, list(_user_parts(data, draft)), extra=_own_fields(data, draft))
            case "ai":
                draft.messages.append(_read_answer(data, draft, called))
            case "tool":
                failed = data.text_if("status") == "error"
                result = ToolResult(data.name_in("tool_call_id"), _result_content(data, draft), failed)
                draft.add_result(result, extra=_result_fields(data, draft))
            case "function":
                name = data.name_in("name")
                result = ToolResult(called.pop(name, f"function_{name}"), _result_content(data, draft))
                draft.add_result(result, extra=_result_fields(data, draft))
            case "remove":
                data.skip(*_SKIPPED, "id", "content")
                draft.notes.add(node.where, "an order to remove a message is left out")
            case _:
                raise UnreadableData(f"{node.where} is not a message of a kind that is known")
    return draft.result(root)


def _kind_and_data(node: Node) -> tuple[str, Node]:
    """The kind of a message and its fields, in either of the two layouts."""
    if node.has("lc"):
        names = node.child("id").each()
        if node.text_in("type") != "constructor" or not names:
            raise UnreadableData(f"{node.where} is not a message that was written whole")
        return _kind_of(names[-1].text()), node.child("kwargs")
    return _kind_of(node.text_in("type")), node.child("data")


def _kind_of(name: str) -> str:
    """`AIMessage`, `AIMessageChunk` and `ai` are one kind."""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _result_fields(data: Node, draft: Draft) -> dict[str, Any] | None:
    """The fields beside a result: its id, the name that it gives its tool, what a provider said of it."""
    if data.has("artifact"):
        draft.notes.add(data.where, "'artifact' is not carried over")
    return _own_fields(data, draft)


def _own_fields(data: Node, draft: Draft, known: frozenset[str] = frozenset()) -> dict[str, Any] | None:
    """The fields that a message here does not have; `known` are those of `response_metadata` that were read."""
    rest = data.rest(_KNOWN_FIELDS)
    for name, read in (("response_metadata", known), ("additional_kwargs", _KNOWN_KWARGS)):
        if inner := data.child_if(name).rest(read):
            rest[name] = inner
    return {draft.form: rest} if rest else None


# ---------------------------------------------------------------- what people and tools said


def _blocks(data: Node) -> list[Node]:
    """The blocks of a content; a text is short for a text block, there as a whole and inside a list."""
    content = data.child("content")
    nodes = content.each() if isinstance(content.value, list) else [content]
    return [
        Node({"type": "text", "text": node.value}, node.where) if isinstance(node.value, str) else node
        for node in nodes
        if node.value != ""
    ]


def _user_parts(data: Node, draft: Draft) -> list[ResultPart]:
    return [_user_part(block, draft) for block in _blocks(data)]


def _result_content(data: Node, draft: Draft) -> str | tuple[ResultPart, ...]:
    content = data.get("content")
    return content if isinstance(content, str) else tuple(_user_parts(data, draft))


def _user_part(block: Node, draft: Draft) -> ResultPart:
    kind = block.text_in("type")
    if kind == "text":
        return Text(block.text_in("text"))
    if kind == "image_url":
        source = block.child("image_url")
        return media_by_url(source if isinstance(source.value, str) else source.child("url"), "image/*")
    if kind in ("image", "document") and isinstance(block.get("source"), dict):
        return read_anthropic_block(block, draft)
    if kind == "input_audio" or (kind == "file" and isinstance(block.get("file"), dict)):
        return read_chat_part(block, draft)
    if kind == "media" and isinstance(block.get("data"), str):  # of LangChain's package for Google
        return media_of_bytes(decoded(block.child("data")), block.text_if("mime_type"), None, block.where)
    return _read_media(block, kind) or draft.unshown(block, kind)


def _read_media(block: Node, kind: str) -> ResultPart | None:
    """A picture or file of the standard blocks, of this version or the one before; None where it is none."""
    if kind not in _MEDIA:
        return None
    mime_type, name = block.text_if("mime_type") or _MEDIA[kind], block.text_if("filename") or block.text_if("name")
    if block.has("base64") or (block.has("data") and block.text_if("source_type") == "base64"):
        data = decoded(block.child("base64" if block.has("base64") else "data"))
        return media_of_bytes(data, mime_type, name, block.where)
    if block.has("url"):
        return media_by_url(block.child("url"), mime_type, name)
    if block.has("text"):
        return media_of_bytes(block.text_in("text").encode("utf-8", "replace"), "text/plain", name, block.where)
    for field in ("file_id", "id"):
        if block.has(field) and (field == "file_id" or block.text_if("source_type") == "id"):
            return stored_file(block.child(field), None if mime_type in (None, "image/*") else mime_type, name)
    return None


# ---------------------------------------------------------------- what a model said


def _read_answer(data: Node, draft: Draft, called: dict[str, str]) -> Message:
    kwargs = data.child_if("additional_kwargs")
    calls = {call.tool_call_id: call for call in _calls(data, kwargs, draft, called)}
    parts: list[Part] = []
    seen: set[str] = set()
    if kwargs.has("reasoning_content"):
        parts.append(Thinking(kwargs.text_in("reasoning_content")))
    for block in _blocks(data):
        with reading(block.where):
            parts.extend(_answer_parts(block, calls, draft, seen))
    if kwargs.has("refusal"):
        parts.append(Text(kwargs.text_in("refusal"), provider_data={"refusal": True}))
    parts.extend(calls.values())
    with reading(data.where):
        return Message(Role.ASSISTANT, tuple(parts), meta=_meta(data, parts, draft))


def _calls(data: Node, kwargs: Node, draft: Draft, called: dict[str, str]) -> Iterator[ToolCall]:
    """The calls that stand beside the content, each with its own id."""
    listed = [*data.each_in("tool_calls"), *data.each_in("invalid_tool_calls")]
    seen: set[str] = set()
    for call in listed or kwargs.each_in("tool_calls"):
        call_id = require_new_id(call, "id", seen)
        with reading(call.where):
            yield _read_raw_call(call, call_id) if not listed else _read_call(call, call_id)
    old_form = kwargs.child("function_call")
    if old_form.value is not None and not listed:
        name, call_id = old_form.name_in("name"), f"function_{len(draft.messages)}"
        called[name] = call_id
        yield ToolCall.parse(call_id, name, old_form.text_in("arguments"))


def _read_call(call: Node, call_id: str) -> ToolCall:
    name, arguments = call.name_in("name"), call.get("args")
    call.skip("type", "index", "error")
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    written = call.text_if("args") or ""
    parsed = ToolCall.parse(call_id, name, written)
    return parsed if parsed.parse_error is None else replace(parsed, parse_error=call.text_if("error") or _BROKEN)


def _read_raw_call(call: Node, call_id: str) -> ToolCall:
    function = call.child("function")
    call.skip("type", "index")
    return ToolCall.parse(call_id, function.name_in("name"), function.text_in("arguments"))


def _answer_parts(block: Node, calls: dict[str, ToolCall], draft: Draft, seen: set[str]) -> Iterator[Part]:
    match block.text_in("type"):
        case "text" | "output_text":
            yield Text(block.text_in("text"), provider_data=block.rest(frozenset({"type", "text", "index"})) or None)
        case "refusal":
            yield Text(block.text_in("refusal"), provider_data={"refusal": True})
        case "thinking":
            data = {"signature": block.text_in("signature")} if block.has("signature") else None
            block.skip("index")
            yield Thinking(block.text_in("thinking"), provider_data=data)
        case "redacted_thinking":
            block.skip("index")
            yield Thinking("", provider_data={"data": block.text_in("data")})
        case "reasoning":
            yield _read_reasoning(block)
        case "tool_use" | "tool_call" | "function_call" | "invalid_tool_call" as kind:
            field = "call_id" if kind == "function_call" and block.has("call_id") else "id"
            call_id = require_new_id(block, field, seen)
            if call_id in calls:  # the same call stands whole beside the content
                block.skip(*_CALL_FIELDS)
                yield calls.pop(call_id)
            else:
                yield _call_in_content(block, call_id)
        case kind if kind in _PIECES:
            block.skip("partial_json", "index")
        case kind:
            media = _user_part(block, draft) if kind == "image_url" else _read_media(block, kind)
            if isinstance(media, Image):
                yield media
            else:
                yield ProviderItem(kind, {name: value for name, value in block.whole().items() if name != "index"})


def _read_reasoning(block: Node) -> Thinking:
    text = block.text_if("reasoning")
    if text is None:
        text = "".join(part.text_in("text") for part in block.each_in("summary"))
    return Thinking(text, provider_data=block.rest(frozenset({"type", "reasoning", "index"})) or None)


def _call_in_content(block: Node, call_id: str) -> ToolCall:
    name = block.name_in("name")
    block.skip("index")
    given: Any = next((block.get(field) for field in ("args", "input", "arguments") if block.has(field)), {})
    if isinstance(given, dict):
        return ToolCall(call_id, name, given)
    return ToolCall.parse(call_id, name, given if isinstance(given, str) else encode_json(given).decode())


def _meta(data: Node, parts: list[Part], draft: Draft) -> MessageMeta | None:
    said = data.child_if("response_metadata")
    model = said.text_if("model_name") or said.text_if("model")
    reason = said.text_if("finish_reason") or said.text_if("stop_reason")
    invocation = None
    if said.text_if("model_provider") == "anthropic" and model and all(map(_is_anthropic, _blocks(data))):
        invocation = ModelInvocationDescriptor("anthropic", "anthropic-messages", model)
    failures = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
    meta = MessageMeta(
        usage=_usage(data.child("usage_metadata")),
        finish_reason=_finish_reason(reason, parts) if reason else None,
        raw_finish_reason=reason,
        invocation=invocation,
        model_id=model,
        parse_failures=failures or None,
        extra=_own_fields(data, draft, _KNOWN_METADATA | ({"model_provider"} if invocation is not None else set())),
    )
    return None if meta == MessageMeta() else meta


def _finish_reason(reason: str, parts: list[Part]) -> FinishReason:
    said = _FINISH_REASONS.get(reason.lower(), FinishReason.OTHER)
    if said is FinishReason.STOP and any(isinstance(part, ToolCall) for part in parts):
        return FinishReason.TOOL_CALLS  # Gemini has no word of its own for it
    return said


def _is_anthropic(block: Node) -> bool:
    kind = block.text_in("type")
    if kind == "text":
        return not block.rest(frozenset({"type", "text", "index", "citations"}))
    return kind in _ANTHROPIC_BLOCKS or kind.endswith("_tool_result")


def _usage(node: Node) -> TokenUsage | None:
    if node.value is None:
        return None
    received, sent = (node.child_if(name) for name in ("input_token_details", "output_token_details"))
    return TokenUsage(
        input_tokens=node.count_in("input_tokens"),
        output_tokens=node.count_in("output_tokens"),
        total_tokens=node.count_in("total_tokens"),
        cache_read_tokens=received.count_in("cache_read"),
        cache_write_tokens=received.count_in("cache_creation"),
        reasoning_tokens=sent.count_in("reasoning"),
    )
