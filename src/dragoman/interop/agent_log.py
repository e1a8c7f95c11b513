"""Recorded runs of agents in a neutral form (`docs/interop.md` has it), to messages here."""

from typing import Any

from ..errors import ErrorCode, UnreadableData
from ..message import Message, MessageMeta, Part, Role, Text, Thinking, ToolCall, ToolResult
from ..usage import TokenUsage
from ..wire.drafts import Draft, Imported
from ..wire.reading import JsonSource, Node, reading, require_new_id, take_json

__all__ = ["import_agent_log"]


def import_agent_log(record: JsonSource) -> Imported:
    """Return the conversation of one record; raise UnreadableData where it is none.

    Summaries that the recording agent put in when it compacted are left out: what they sum up is there.
    """
    root = take_json(record, "record")
    model = root.text_if("model") or None
    root.skip("id", "source", "tools", "stats")
    draft = Draft("agent_log")
    for node in root.child("messages").each():
        meta = node.child_if("meta").fields
        if meta.get("compact_summary"):
            node.skip("role", "parts", "timestamp")
            draft.notes.add(node.where, "a summary of what is there anyhow is left out")
            continue
        with reading(node.where):
            _read_message(node, draft, dict(meta), model)
    return draft.result(root)


def _read_message(node: Node, draft: Draft, notes: dict[str, Any], model: str | None) -> None:
    timestamp = node.time_in("timestamp")
    parts = node.child("parts").each()
    match node.text_in("role"):
        case "system":
            draft.add_system("\n\n".join(_user_text(part) for part in parts))
        case "user":
            said = [_user_part(part, draft) for part in parts]
            draft.add(Role.USER, said, timestamp=timestamp, extra=notes)
        case "assistant":
            seen: set[str] = set()
            made = tuple(_answer_part(part, seen) for part in parts)
            failures = tuple(part.tool_call_id for part in made if isinstance(part, ToolCall) and part.parse_error)
            meta = MessageMeta(
                usage=_usage(node.child("usage")), model_id=model, parse_failures=failures or None, extra=notes or None
            )
            known = None if meta == MessageMeta() else meta
            draft.messages.append(Message(Role.ASSISTANT, made, "", timestamp, known))
        case "tool":
            for part in parts:
                part.skip("kind", "name")
                result = ToolResult(part.name_in("id"), part.text_in("text"), part.flag_in("is_error"))
                # A stand-in for a result that was never recorded.
                code = ErrorCode.TOOL_INTERRUPTED if part.flag_in("synthetic") else None
                draft.add_result(result, timestamp=timestamp, error_code=code)
        case _:
            raise UnreadableData(f"{node.where}.role must be one of system, user, assistant, tool")


def _user_text(part: Node) -> str:
    part.skip("kind")
    return part.text_in("text")


def _user_part(part: Node, draft: Draft) -> Part:
    match part.text_in("kind"):
        case "text":
            return Text(part.text_in("text"))
        case "image":
            draft.notes.add(part.where, "the bytes of a picture were not recorded: a line of text stands for it")
            size = part.count_in("bytes")
            told = part.text_if("media_type") or "image"
            return Text(f"[{told}, {size} bytes: not recorded]" if size is not None else f"[{told}: not recorded]")
        case kind:
            return draft.unshown(part, kind)


def _answer_part(part: Node, seen: set[str]) -> Part:
    match part.text_in("kind"):
        case "text":
            return Text(part.text_in("text"))
        case "thinking":
            return Thinking(part.text_in("text"))
        case "tool_call":
            require_new_id(part, "id", seen)
            arguments = part.child("arguments")
            if isinstance(arguments.value, dict):
                return ToolCall(part.name_in("id"), part.name_in("name"), arguments.value)
            return ToolCall.parse(part.name_in("id"), part.name_in("name"), arguments.text())
        case _:
            raise UnreadableData(f"{part.where}.kind must be one of text, thinking, tool_call")


def _usage(node: Node) -> TokenUsage | None:
    """What was billed; `input` leaves out what the cache did."""
    if node.value is None:
        return None
    fresh, output, read, written = (node.count_in(name) for name in ("input", "output", "cache_read", "cache_write"))
    received = None if fresh is None else fresh + (read or 0) + (written or 0)
    total = None if received is None or output is None else received + output
    return TokenUsage(received, output, total, read, written)
