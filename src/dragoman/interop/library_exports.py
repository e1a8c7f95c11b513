"""Messages here to the messages of other libraries, as their own loaders take them: plain dicts and lists.

Texts, thoughts, calls, results, pictures, files, usage and times have a place there. What only one provider
understands is left out, but for the signatures of Claude's thoughts.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from .._jsontext import decode_json, encode_json
from ..mediatypes import ANY_TYPE
from ..message import FileRef, FinishReason, Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult
from ..wire.encoding import base64_text, data_of, data_url

__all__ = ["export_langchain", "export_pydantic_ai", "export_vercel_ui"]

_ANTHROPIC = "anthropic-messages"
_PYDANTIC_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.TOOL_CALLS: "tool_call",
}


def export_pydantic_ai(messages: Iterable[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the conversation as pydantic-ai's `ModelMessagesTypeAdapter.validate_python` takes it."""
    spoken = _with_system(messages, system)
    names = _tool_names(spoken)
    exported: list[dict[str, Any]] = []
    for is_answer, group in groupby(spoken, key=lambda message: message.role is Role.ASSISTANT):
        if is_answer:
            exported += [_pydantic_response(message) for message in group]
        else:
            parts = [part for message in group for part in _pydantic_request_parts(message, names)]
            exported += [{"kind": "request", "parts": parts}] if parts else []
    return _plain(exported)


def export_langchain(messages: Iterable[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the conversation as LangChain's `messages_from_dict` takes it."""
    spoken = _with_system(messages, system)
    names = _tool_names(spoken)
    exported: list[dict[str, Any]] = []
    for message in spoken:
        match message.role:
            case Role.SYSTEM:
                exported.append(_langchain("system", {"content": message.text}))
            case Role.USER:
                exported.append(_langchain("human", {"content": _langchain_content(message.parts)}))
            case Role.ASSISTANT:
                exported.append(_langchain_answer(message))
            case _:
                exported += [_langchain_result(part, names) for part in _results(message)]
    return _plain(exported)


def export_vercel_ui(messages: Iterable[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the conversation as UI messages of Vercel's AI SDK, from version 5 on; `validateUIMessages` takes them."""
    spoken = _with_system(messages, system)
    results = {part.tool_call_id: part for message in spoken for part in _results(message)}
    exported: list[dict[str, Any]] = []
    for message in spoken:
        if message.role is Role.TOOL:
            continue
        role = str(message.role)
        if role != "assistant" or not exported or exported[-1]["role"] != "assistant":
            exported.append({"id": f"m{len(exported)}", "role": role, "parts": []})
        parts = exported[-1]["parts"]
        parts += [{"type": "step-start"}] if role == "assistant" else []
        parts += [shown for part in message.parts for shown in _vercel_part(part, results)]
    return _plain([message for message in exported if message["parts"]])


def _with_system(messages: Iterable[Message], system: str | None) -> list[Message]:
    spoken = list(messages)
    return [Message.system(system), *spoken] if system else spoken


def _plain(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a copy of plain dicts and lists, which the record does not share."""
    copied: list[dict[str, Any]] = decode_json(encode_json(value))
    return copied


def _results(message: Message) -> Iterator[ToolResult]:
    yield from (part for part in message.parts if isinstance(part, ToolResult))


def _tool_names(messages: Sequence[Message]) -> dict[str, str]:
    return {call.tool_call_id: call.tool_name for message in messages for call in message.tool_calls}


def _is_claudes(message: Message) -> bool:
    invocation = message.meta.invocation if message.meta else None
    return invocation is not None and (invocation.provider, invocation.specification) == ("anthropic", _ANTHROPIC)


def _result_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else f"[{part.kind}]"


# ---------------------------------------------------------------- pydantic-ai


def _pydantic_request_parts(message: Message, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    when = {"timestamp": message.timestamp} if message.timestamp else {}
    if message.role is Role.SYSTEM:
        yield {"part_kind": "system-prompt", "content": message.text, **when}
    elif message.role is Role.USER:
        content = [shown for part in message.parts for shown in _pydantic_content(part)]
        if content:
            only = content[0] if len(content) == 1 and isinstance(content[0], str) else content
            yield {"part_kind": "user-prompt", "content": only, **when}
    for result in _results(message):
        said: Any = result.content
        if isinstance(said, tuple):
            said = [shown for part in said for shown in _pydantic_content(part)]
        outcome = {"outcome": "failed"} if result.is_error else {}
        named = {"tool_name": names.get(result.tool_call_id, "unknown"), "tool_call_id": result.tool_call_id}
        yield {"part_kind": "tool-return", **named, "content": said, **outcome, **when}


def _pydantic_content(part: Part) -> Iterator[str | dict[str, Any]]:
    match part:
        case Text():
            yield part.text
        case Image() | FileRef() if part.data is not None:
            kind = part.mime_type or ANY_TYPE
            name = {"identifier": part.name} if isinstance(part, FileRef) and part.name else {}
            yield {"kind": "binary", "data": base64_text(part.data), "media_type": kind, **name}
        case Image() if part.url is not None:
            yield {"kind": "image-url", "url": part.url}
        case FileRef() if part.url is not None:
            typed = {"media_type": part.mime_type} if part.mime_type else {}
            yield {"kind": "document-url", "url": part.url, **typed}
        case _:
            return


def _pydantic_response(message: Message) -> dict[str, Any]:
    meta = message.meta
    claudes = _is_claudes(message)
    exported: dict[str, Any] = {
        "kind": "response",
        "parts": [shown for part in message.parts for shown in _pydantic_answer_part(part, claudes=claudes)],
    }
    if message.timestamp is not None:
        exported["timestamp"] = message.timestamp
    if claudes:
        exported["provider_name"] = "anthropic"
    if meta is None:
        return exported
    invocation = meta.invocation
    exported["model_name"] = meta.model_id or (invocation.model if invocation else None)
    exported["provider_response_id"] = meta.request_id
    if meta.finish_reason in _PYDANTIC_REASONS:
        exported["finish_reason"] = _PYDANTIC_REASONS[meta.finish_reason]
    if (usage := meta.usage) is not None:
        exported["usage"] = {
            "input_tokens": usage.input_tokens or 0,
            "output_tokens": usage.output_tokens or 0,
            "cache_read_tokens": usage.cache_read_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        }
    return {name: value for name, value in exported.items() if value is not None}


def _pydantic_answer_part(part: Part, *, claudes: bool) -> Iterator[dict[str, Any]]:
    match part:
        case Text():
            yield {"part_kind": "text", "content": part.text}
        case Thinking():
            data = data_of(part) if claudes else {}
            if "data" in data:
                redacted = {"id": "redacted_thinking", "signature": data["data"], "provider_name": "anthropic"}
                yield {"part_kind": "thinking", "content": "", **redacted}
            else:
                signed = {"signature": data["signature"], "provider_name": "anthropic"} if "signature" in data else {}
                yield {"part_kind": "thinking", "content": part.text, **signed}
        case ToolCall():
            given = part.raw_args_text if part.arguments is None else part.arguments
            named = {"tool_name": part.tool_name, "tool_call_id": part.tool_call_id}
            yield {"part_kind": "tool-call", **named, "args": given}
        case Image() if part.data is not None:
            yield {"part_kind": "file", "content": next(_pydantic_content(part))}
        case _:
            return


# ---------------------------------------------------------------- LangChain


def _langchain(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "data": {"type": kind, "additional_kwargs": {}, "response_metadata": {}, **data}}


def _langchain_content(parts: Sequence[Part], *, claudes: bool = False) -> str | list[dict[str, Any]]:
    blocks = [block for part in parts for block in _langchain_blocks(part, claudes=claudes)]
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _langchain_blocks(part: Part, *, claudes: bool) -> Iterator[dict[str, Any]]:
    match part:
        case Text():
            yield {"type": "text", "text": part.text}
        case Thinking() if claudes and "signature" in data_of(part):
            yield {"type": "thinking", "thinking": part.text, "signature": data_of(part)["signature"]}
        case Thinking() if claudes and "data" in data_of(part):
            yield {"type": "redacted_thinking", "data": data_of(part)["data"]}
        case Thinking():
            yield {"type": "reasoning", "reasoning": part.text}
        case Image() | FileRef():
            kind = "image" if isinstance(part, Image) else "file"
            mime = {"mime_type": part.mime_type} if part.mime_type else {}
            name = {"filename": part.name} if isinstance(part, FileRef) and part.name else {}
            if part.data is not None:
                yield {"type": kind, "base64": base64_text(part.data), **mime, **name}
            elif part.url is not None:
                yield {"type": kind, "url": part.url, **mime, **name}
            elif isinstance(part, FileRef) and part.file_id is not None:
                yield {"type": kind, "file_id": part.file_id, **mime, **name}
        case _:
            return


def _langchain_answer(message: Message) -> dict[str, Any]:
    meta, claudes = message.meta, _is_claudes(message)
    calls = message.tool_calls
    told: dict[str, Any] = {"model_provider": "anthropic"} if claudes else {}
    usage = {}
    if meta is not None:
        told["model_name"] = meta.model_id or (meta.invocation.model if meta.invocation else None)
        told["finish_reason"] = meta.raw_finish_reason or (str(meta.finish_reason) if meta.finish_reason else None)
        if (used := meta.usage) is not None:
            received, sent = used.input_tokens or 0, used.output_tokens or 0
            counts = {"input_tokens": received, "output_tokens": sent, "total_tokens": received + sent}
            usage = {"usage_metadata": counts}
    return _langchain(
        "ai",
        {
            "content": _langchain_content(message.parts, claudes=claudes) or "",
            "tool_calls": [
                {"type": "tool_call", "id": call.tool_call_id, "name": call.tool_name, "args": call.arguments}
                for call in calls
                if call.arguments is not None
            ],
            "invalid_tool_calls": [
                {"type": "invalid_tool_call", "id": call.tool_call_id, "name": call.tool_name}
                | {"args": call.raw_args_text, "error": call.parse_error}
                for call in calls
                if call.arguments is None
            ],
            "response_metadata": {name: value for name, value in told.items() if value is not None},
            **usage,
        },
    )


def _langchain_result(result: ToolResult, names: dict[str, str]) -> dict[str, Any]:
    said: Any = result.content
    if isinstance(said, tuple):
        said = _langchain_content(said)
    elif isinstance(said, dict):
        said = encode_json(said).decode()
    status = "error" if result.is_error else "success"
    name = names.get(result.tool_call_id)
    data = {"content": said, "tool_call_id": result.tool_call_id, "status": status, **({"name": name} if name else {})}
    return _langchain("tool", data)


# ---------------------------------------------------------------- Vercel's AI SDK


def _vercel_part(part: Part, results: dict[str, ToolResult]) -> Iterator[dict[str, Any]]:
    match part:
        case Text():
            yield {"type": "text", "text": part.text}
        case Thinking():
            yield {"type": "reasoning", "text": part.text}
        case ToolCall():
            yield _vercel_call(part, results.get(part.tool_call_id))
        case Image() | FileRef() if part.data is not None or part.url is not None:
            kind = part.mime_type or ("image/png" if isinstance(part, Image) else ANY_TYPE)
            url = part.url if part.data is None else data_url(kind, part.data)
            name = {"filename": part.name} if isinstance(part, FileRef) and part.name else {}
            yield {"type": "file", "mediaType": kind, "url": url, **name}
        case _:
            return


def _vercel_call(call: ToolCall, result: ToolResult | None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "dynamic-tool", "toolName": call.tool_name, "toolCallId": call.tool_call_id}
    given = {"input": call.arguments} if call.arguments is not None else {"rawInput": call.raw_args_text}
    if result is None:
        return {**part, "state": "input-available", "input": call.arguments or {}}
    said: Any = result.content
    if isinstance(said, tuple):
        said = "\n".join(_result_text(each) for each in said)
    if result.is_error or call.arguments is None:
        text = said if isinstance(said, str) else encode_json(said).decode()
        return {**part, "state": "output-error", **given, "errorText": text}
    return {**part, "state": "output-available", **given, "output": said}
