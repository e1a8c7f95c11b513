"""pydantic-ai messages, as `ModelMessagesTypeAdapter.dump_json` writes them, to messages here."""

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from .._jsontext import encode_json
from ..context import INJECTED_KEY
from ..errors import ErrorCode, UnreadableData
from ..message import (
    FileRef,
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
from ..wire.drafts import Draft, Imported
from ..wire.media import decoded, media_by_url, media_of_bytes, result_content, stored_file
from ..wire.reading import JsonSource, Node, reading, require_new_id, take_json

__all__ = ["import_pydantic_ai"]

FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "tool_call": FinishReason.TOOL_CALLS,
    "error": FinishReason.OTHER,
}
# How a call ended -> our code. `success` is none of them.
OUTCOMES = {
    "failed": ErrorCode.TOOL_FAILED,
    "retried": ErrorCode.TOOL_FAILED,
    "denied": ErrorCode.TOOL_DENIED,
    "interrupted": ErrorCode.TOOL_INTERRUPTED,
}

_URLS = {"image-url": "image/*", "document-url": None, "audio-url": None, "video-url": None}
_HOSTED = frozenset({"builtin-tool-call", "builtin-tool-return", "compaction"})
_REQUEST_FIELDS = frozenset({"parts", "kind", "instructions", "timestamp", "run_id", "state"})
_RESPONSE_FIELDS = frozenset(
    {"parts", "kind", "usage", "model_name", "timestamp", "run_id", "provider_response_id", "finish_reason", "state"}
)
# What the library keeps for itself.
_SKIPPED = (
    "tool_name",
    "tool_kind",
    "timestamp",
    "dynamic_ref",
    "context_id",
    "scope",
    "content_file_digests",
    "speaker",
)
# Of a part that a model made: what its provider wants back, in the words of this library.
_OPAQUE = ("id", "signature", "provider_details")


def import_pydantic_ai(messages: JsonSource) -> Imported:
    """Return the conversation that pydantic-ai's message JSON holds; raise UnreadableData where it is none."""
    draft = Draft("pydantic_ai")
    root = take_json(messages, "messages")
    nodes = root.each()
    instructions = [node.child("instructions") for node in nodes if node.text_if("instructions")]
    first = True
    for node in nodes:
        match node.text_in("kind"):
            case "request":
                _read_request(node, draft, instructions[-1].text() if first and instructions else None)
                first = False
            case "response":
                draft.messages.append(_read_response(node, draft))
            case _:
                raise UnreadableData(f"{node.where}.kind must be request or response")
    for earlier in instructions[:-1]:
        if earlier.value != instructions[-1].value:
            draft.notes.add(earlier.where, "instructions that later ones replaced are left out")
    return draft.result(root)


# ---------------------------------------------------------------- requests


def _read_request(node: Node, draft: Draft, instructions: str | None) -> None:
    """Add what a request says. The newest instructions of all hold from the first request on, after its own prompts."""
    run_id = node.text_if("run_id") or ""
    extra = draft.own_fields(node, _REQUEST_FIELDS)
    parts = [(part.text_in("part_kind"), part) for part in node.each_in("parts")]
    for _, part in parts:
        part.skip(*_SKIPPED)
    for kind, part in parts:
        if kind == "system-prompt":
            draft.add_system(part.text_in("content"))
    if instructions is not None:
        draft.add_system(instructions)
    for kind, part in parts:
        if kind == "user-prompt":
            said = _read_content(part.child("content"), draft)
            draft.add(Role.USER, [*said], timestamp=part.time_in("timestamp"), extra=extra, run_id=run_id)
            extra = None
        elif kind != "system-prompt":
            _add_part(kind, part, draft, run_id)
    if extra is not None and set(extra[draft.form]) - {"conversation_id"}:
        draft.notes.add(node.where, "the fields of a request without a user's words are not carried over")


def _add_part(kind: str, part: Node, draft: Draft, run_id: str) -> None:
    """Add what a tool or the library itself says in a request."""
    match kind:
        case "tool-return":
            _add_return(part, draft, run_id)
        case "retry-prompt" if part.has("tool_name"):
            result = ToolResult(part.name_in("tool_call_id"), result_content(part.get("content")), True)
            draft.add_result(result, timestamp=part.time_in("timestamp"), run_id=run_id)
        case "retry-prompt" | "retry-feedback":
            part.skip("tool_call_id")
            said, extra = _as_text(part.child("content")), {INJECTED_KEY: True}
            draft.add(Role.USER, [said], timestamp=part.time_in("timestamp"), extra=extra, run_id=run_id)
        case "compaction":
            draft.add(Role.USER, [Text(part.text_if("content") or "")], extra={INJECTED_KEY: True}, run_id=run_id)
        case "speech":
            draft.add(Role.USER, [Text(part.text_if("transcript") or "")], run_id=run_id)
        case _:
            part.rest(frozenset())
            draft.notes.add(part.where, f"{kind[:40]!r} is not carried over")


def _add_return(part: Node, draft: Draft, run_id: str) -> None:
    outcome = part.text_if("outcome") or "success"
    code = OUTCOMES.get(outcome)
    if code is None and outcome != "success":
        raise UnreadableData(f"{part.where}.outcome is not one that a call can have")
    content = part.child("content")
    said: str | dict[str, Any] | tuple[ResultPart, ...]
    if _has_media(content.value):
        items = content.each() if isinstance(content.value, list) else [content]
        said = tuple(_read_item(item, draft) if _is_media(item.value) else _as_text(item) for item in items)
    else:
        said = result_content(content.value)
    result = ToolResult(part.name_in("tool_call_id"), said, is_error=code is not None)
    draft.add_result(result, timestamp=part.time_in("timestamp"), error_code=code, run_id=run_id)


def _is_media(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") in (*_URLS, "binary", "uploaded-file")


def _has_media(value: Any) -> bool:
    return _is_media(value) or (isinstance(value, list) and any(map(_is_media, value)))


def _as_text(node: Node) -> Text:
    content = result_content(node.value)
    return Text(content if isinstance(content, str) else encode_json(content).decode())


def _read_content(node: Node, draft: Draft) -> list[ResultPart]:
    if not isinstance(node.value, list):
        return [Text(node.text())]
    return [
        _read_item(item, draft)
        for item in node.each()
        if not (isinstance(item.value, dict) and item.value.get("kind") == "cache-point")  # a setting, not a word
    ]


def _read_item(node: Node, draft: Draft) -> ResultPart:
    if isinstance(node.value, str):
        return Text(node.value)
    kind = node.text_in("kind")
    mime_type = node.text_if("media_type")
    match kind:
        case "text-content" | "structured-content":
            return Text(node.text_in("content"))
        case "binary":
            data = decoded(node.child("data"))
            return _named(node, media_of_bytes(data, mime_type, None, node.where), data)
        case "uploaded-file":
            file = stored_file(node.child("file_id"), mime_type)
            return _named(node, file, node.text_in("file_id").encode("utf-8", "replace"))
        case _ if kind in _URLS:
            found = media_by_url(node.child("url"), mime_type or _URLS[kind])
            return _named(node, found, node.text_in("url").encode("utf-8", "replace"))
        case _:
            return draft.unshown(node, kind)


def _named(node: Node, part: Image | FileRef, hashed: bytes) -> Image | FileRef:
    """The file with its identifier as its name. A picture has no name: the import warns of its identifier.

    pydantic-ai makes an identifier of a hash where the program gave none; that one says nothing.
    """
    is_made = node.value.get("identifier") == hashlib.sha1(hashed, usedforsecurity=False).hexdigest()[:6]
    if is_made:
        node.skip("identifier")
    elif isinstance(part, FileRef) and (name := node.text_if("identifier")):
        with reading(node.where):
            return replace(part, name=name)
    return part


# ---------------------------------------------------------------- responses


def _read_response(node: Node, draft: Draft) -> Message:
    parts: list[Part] = []
    seen: set[str] = set()
    native = node.text_if("provider_name") == "anthropic" and node.has("model_name")
    for part in node.each_in("parts"):
        part.skip(*_SKIPPED)
        with reading(part.where):
            native = native and _is_anthropic(part)
            parts.extend(_answer_part(part, seen, draft))
    with reading(node.where):
        meta = _meta(node, parts, draft, native=native)
        return Message(Role.ASSISTANT, tuple(parts), node.text_if("run_id") or "", node.time_in("timestamp"), meta)


def _is_anthropic(part: Node) -> bool:
    """Whether the part carries nothing for its provider, or just what Anthropic itself calls so."""
    kind = part.text_in("part_kind")
    if kind == "thinking" and part.text_if("provider_name") == "anthropic":
        return not part.has("provider_details") and part.text_if("id") in (None, "redacted_thinking")
    return kind in ("text", "thinking", "tool-call") and _opaque(part) is None


def _answer_part(part: Node, seen: set[str], draft: Draft) -> Iterator[Part]:
    match part.text_in("part_kind"):
        case "text":
            yield Text(part.text_in("content"), provider_data=_opaque(part))
        case "thinking":
            yield Thinking(part.text_in("content"), provider_data=_thinking_data(part))
        case "tool-call":
            require_new_id(part, "tool_call_id", seen)
            call_id, name, given = part.text_in("tool_call_id"), part.name_in("tool_name"), part.get("args")
            if given is None or isinstance(given, dict):
                yield ToolCall(call_id, name, given or {}, provider_data=_opaque(part))
            else:
                yield ToolCall.parse(call_id, name, part.text_in("args"), provider_data=_opaque(part))
        case "file":
            file = _read_item(part.child("content"), draft)
            yield draft.unshown(part, "file") if isinstance(file, FileRef) else file
        case "speech":
            yield Text(part.text_if("transcript") or "")
        case kind if kind in _HOSTED:
            content = part.get("content")
            yield ProviderItem(kind, part.whole(), content if isinstance(content, str) else None)
        case kind:
            yield draft.unshown(part, kind)


def _opaque(part: Node) -> dict[str, Any] | None:
    data = {name: part.get(name) for name in _OPAQUE if part.has(name)}
    maker = part.get("provider_name")
    return {**data, "provider_name": maker} if data else None


def _thinking_data(part: Node) -> dict[str, Any] | None:
    """Return the provider fields of a thought: Anthropic's own, so that they can go back, or this library's."""
    if part.text_if("provider_name") != "anthropic" or part.has("provider_details"):
        return _opaque(part)
    if part.text_if("id") == "redacted_thinking":
        return {"data": part.text_if("signature") or ""}
    return {"signature": part.text_in("signature")} if part.has("signature") else None


def _meta(node: Node, parts: list[Part], draft: Draft, *, native: bool) -> MessageMeta | None:
    model, reason = node.text_if("model_name"), node.text_if("finish_reason")
    details = node.get("provider_details")
    raw = details.get("finish_reason") if isinstance(details, dict) else None
    failures = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
    invocation = ModelInvocationDescriptor("anthropic", "anthropic-messages", model) if native and model else None
    meta = MessageMeta(
        usage=_usage(node.child("usage")),
        finish_reason=FINISH_REASONS.get(reason, FinishReason.OTHER) if reason else None,
        raw_finish_reason=raw if isinstance(raw, str) else reason,
        invocation=invocation,
        model_id=model,
        request_id=node.text_if("provider_response_id"),
        parse_failures=failures or None,
        interrupted=True if node.text_if("state") == "interrupted" else None,
        extra=draft.own_fields(node, _RESPONSE_FIELDS),
    )
    return None if meta == MessageMeta() else meta


def _usage(node: Node) -> TokenUsage | None:
    """What the call used; the library writes zeros where nothing was reported."""
    if node.value is None:
        return None
    received = node.count_in("input_tokens") or node.count_in("request_tokens")
    sent = node.count_in("output_tokens") or node.count_in("response_tokens")
    if not received and not sent:
        return None
    return TokenUsage(
        input_tokens=received or 0,
        output_tokens=sent or 0,
        total_tokens=(received or 0) + (sent or 0),
        cache_read_tokens=node.count_in("cache_read_tokens") or None,
        cache_write_tokens=node.count_in("cache_write_tokens") or None,
        reasoning_tokens=node.count_in("output_reasoning_tokens") or None,
    )
