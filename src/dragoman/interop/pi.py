"""Sessions of the coding agent pi (`~/.pi/agent/sessions/…/*.jsonl`) to messages here.

The lines are a tree: the conversation is the way from the last line back to the root.
"""

from datetime import datetime
from typing import Any

from .._jsontext import decode_json, encode_json
from ..context import INJECTED_KEY
from ..errors import UnreadableData
from ..message import (
    FinishReason,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    ResultPart,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..usage import TokenUsage
from ..wire import PROVIDERS
from ..wire.drafts import Draft, Imported
from ..wire.media import decoded, media_of_bytes
from ..wire.reading import Node, reading, require_new_id
from ..wire.stored_answers import read_answer
from .transcripts import TranscriptSource, find_path, no_conversation, read_lines, skip_line

__all__ = ["import_pi"]

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "toolUse": FinishReason.TOOL_CALLS,
}
_BROKEN_OFF = frozenset({"error", "aborted"})
_RESPONSES = "openai-responses"
_MESSAGE_FIELDS = frozenset(
    {"role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp", "responseId"}
    | {"toolCallId", "toolName", "isError"}
)


def import_pi(source: TranscriptSource) -> Imported:
    """Return the conversation of a session: a Path, its text, or its lines; raise UnreadableData where it is none.

    What was said before a compaction is in the file, so the summary of it is left out. So are branches that the person
    gave up.
    """
    draft = Draft("pi")
    lines = read_lines(source, draft.notes)
    has_tree = any("parentId" in line.value for line in lines)
    chosen = find_path(lines, "id", "parentId") if has_tree else set(range(len(lines)))
    for index, line in enumerate(lines):
        kind = line.text_if("type") or ""
        with reading(line.where):
            if kind == "session":
                draft.session_id = line.text_if("id")
                line.whole()
            elif index not in chosen:
                skip_line(line, draft, "a line of a branch that was given up")
            else:
                _read_line(line, kind, draft)
    if not draft.messages:
        raise no_conversation(lines, "session of pi")
    return draft.result(*lines)


def _read_line(line: Node, kind: str, draft: Draft) -> None:
    line.skip("id", "parentId")
    timestamp = line.time_in("timestamp")
    match kind:
        case "message":
            _read_message(line.child("message"), draft, timestamp)
        case "compaction" if draft.messages:
            skip_line(line, draft, "a summary of what is there anyhow")
        case "compaction" | "branch_summary":
            _inject(line, "summary", draft, timestamp)
        case "custom_message":
            line.skip("customType", "display")
            _inject(line, "content", draft, timestamp)
        case _:
            skip_line(line, draft, f"{kind[:40]!r} of the program itself")


def _inject(node: Node, field: str, draft: Draft, timestamp: datetime | None) -> None:
    """Add what the program said in the name of the person."""
    parts: list[Part] = list(_read_content(node.child(field), draft))
    node.whole()
    draft.add(Role.USER, parts, timestamp=timestamp, extra={INJECTED_KEY: True})


def _read_message(node: Node, draft: Draft, timestamp: datetime | None) -> None:
    match node.text_in("role"):
        case "user":
            said: list[Part] = list(_read_content(node.child("content"), draft))
            draft.add(Role.USER, said, timestamp=timestamp, extra=draft.own_fields(node, _MESSAGE_FIELDS))
        case "assistant":
            _read_answer(node, draft, timestamp)
        case "toolResult":
            content = tuple(_read_content(node.child("content"), draft))
            text = content[0].text if len(content) == 1 and isinstance(content[0], Text) else content
            result = ToolResult(_call_id(node.name_in("toolCallId")), text, is_error=node.flag_in("isError"))
            draft.add_result(result, timestamp=timestamp, extra=draft.own_fields(node, _MESSAGE_FIELDS))
        case "bashExecution":
            said = [Text(f"$ {node.text_in('command')}\n{node.text_if('output') or ''}")]
            draft.add(Role.USER, said, timestamp=timestamp, extra={INJECTED_KEY: True, draft.form: node.whole()})
        case "compactionSummary" if draft.messages:
            skip_line(node, draft, "a summary of what is there anyhow")
        case "compactionSummary" | "branchSummary":
            _inject(node, "summary", draft, timestamp)
        case "custom" | "hookMessage":
            _inject(node, "content", draft, timestamp)
        case _:
            raise UnreadableData(f"{node.where}.role is not one that pi writes")


def _read_content(node: Node, draft: Draft) -> list[ResultPart]:
    if isinstance(node.value, str):
        return [Text(node.value)]
    parts: list[ResultPart] = []
    for part in node.each():
        match part.text_in("type"):
            case "text":
                part.skip("textSignature")
                parts.append(Text(part.text_in("text")))
            case "image":
                data = decoded(part.child("data"))
                parts.append(media_of_bytes(data, part.text_if("mimeType"), None, part.where))
            case kind:
                parts.append(draft.unshown(part, kind))
    return parts


def _call_id(written: str) -> str:
    """Return the id of a call. For the Responses API, pi writes the id of the item behind it."""
    return written.partition("|")[0] or written


# ---------------------------------------------------------------- answers


def _read_answer(node: Node, draft: Draft, timestamp: datetime | None) -> None:
    reason, api = node.text_if("stopReason"), node.text_if("api")
    blocks = node.each_in("content")
    if not blocks:
        skip_line(node, draft, "an answer that failed before it said anything")
        return
    parts = _response_parts(node, blocks) if api == _RESPONSES else _parts(blocks, api, draft)
    failures = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
    meta = MessageMeta(
        usage=_usage(node.child("usage")),
        finish_reason=_FINISH_REASONS.get(reason or "", FinishReason.OTHER) if reason else None,
        raw_finish_reason=reason,
        invocation=_maker(node),
        model_id=node.text_if("model"),
        request_id=node.text_if("responseId"),
        parse_failures=failures or None,
        interrupted=True if reason in _BROKEN_OFF else None,
        extra=draft.own_fields(node, _MESSAGE_FIELDS),
    )
    draft.messages.append(Message(Role.ASSISTANT, tuple(parts), "", timestamp, meta))


def _maker(node: Node) -> ModelInvocationDescriptor | None:
    provider, api, model = node.text_if("provider") or "", node.text_if("api"), node.text_if("model")
    is_known = api in ("anthropic-messages", _RESPONSES) and PROVIDERS.get(provider) == api
    return ModelInvocationDescriptor(provider, api or "", model) if is_known and model else None


def _parts(blocks: list[Node], api: str | None, draft: Draft) -> list[Part]:
    parts: list[Part] = []
    seen: set[str] = set()
    for block in blocks:
        match block.text_in("type"):
            case "text":
                block.skip("textSignature")
                parts.append(Text(block.text_in("text")))
            case "thinking":
                parts.append(_thinking(block, api))
            case "toolCall":
                signature = block.text_if("thoughtSignature")
                data = {"thoughtSignature": signature} if signature else None
                call_id, given = _call_id(require_new_id(block, "id", seen)), block.child("arguments")
                name = block.name_in("name")
                if given.value is None or isinstance(given.value, dict):
                    parts.append(ToolCall(call_id, name, given.value or {}, provider_data=data))
                else:
                    parts.append(ToolCall.parse(call_id, name, given.text(), provider_data=data))
            case kind:
                parts.append(draft.unshown(block, kind))
    return parts


def _thinking(block: Node, api: str | None) -> Thinking:
    signature = block.text_if("thinkingSignature")
    if block.flag_in("redacted"):
        return Thinking("", provider_data={"data": signature or ""})
    data = {"signature": signature} if signature and api == "anthropic-messages" else None
    return Thinking(block.text_in("thinking"), provider_data=data)


def _response_parts(node: Node, blocks: list[Node]) -> list[Part]:
    """Return the parts of an answer of the Responses API, whose items pi keeps in its signatures."""
    items: list[dict[str, Any]] = []
    seen: set[str] = set()
    for block in blocks:
        match block.text_in("type"):
            case "text":
                content = [{"type": "output_text", "text": block.text_in("text"), "annotations": []}]
                named = _signed(block, "textSignature").get("id")
                items.append(
                    {"type": "message", "role": "assistant", "content": content, **({"id": named} if named else {})}
                )
            case "thinking":
                item = _signed(block, "thinkingSignature")
                summary = [{"type": "summary_text", "text": block.text_in("thinking")}]
                items.append(item if item.get("type") == "reasoning" else {"type": "reasoning", "summary": summary})
            case "toolCall":
                call_id, _, item_id = require_new_id(block, "id", seen).partition("|")
                arguments = encode_json(block.get("arguments") or {}).decode()
                call = {
                    "type": "function_call",
                    "call_id": call_id,
                    "name": block.name_in("name"),
                    "arguments": arguments,
                }
                items.append({**call, **({"id": item_id} if item_id else {})})
            case _:
                raise UnreadableData(f"{block.where}.type must be text, thinking or toolCall")
    return list(read_answer({"output": items}, _RESPONSES, None, node.where).parts)


def _signed(block: Node, field: str) -> dict[str, Any]:
    written = block.text_if(field) or ""
    try:
        value = decode_json(written)
    except UnreadableData:
        return {"id": written} if written.startswith("msg_") else {}
    return value if isinstance(value, dict) else {}


def _usage(node: Node) -> TokenUsage | None:
    """Return what was billed; `input` leaves out what the cache did."""
    if node.value is None:
        return None
    fresh, output, read, written = (node.count_in(name) for name in ("input", "output", "cacheRead", "cacheWrite"))
    received = None if fresh is None else fresh + (read or 0) + (written or 0)
    cost = node.get("cost")
    node.whole()
    return TokenUsage.reported(
        input_tokens=received,
        output_tokens=output,
        total_tokens=None if received is None or output is None else received + output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cost=cost.get("total") if isinstance(cost, dict) else None,
    )
