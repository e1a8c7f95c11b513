"""Files of conversations, in any format that `interop` reads, to entries. Finds out by itself which format it is.

Knows no store. What is in no known format is refused with a line that says what to do.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData
from ..files import read_file, read_stream
from ..history import AgentState, HistoryEntry
from ..interop import (
    Imported,
    append_imported,
    import_agent_log,
    import_anthropic,
    import_langchain,
    import_openai_chat,
    import_openai_responses,
    import_pydantic_ai,
    import_vercel_ui,
    read_jsonl,
)
from ..jsonform import from_json
from ..message import Message, Role

__all__ = ["FORMATS", "Conversation", "detect_format", "read_conversations", "read_source"]

_WITH_MAKER = ("openai", "openai-responses", "anthropic")
_RESPONSE_ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning"})
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document"})


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of a file: its entries, as a session of its own has them, and what was not carried over."""

    format: str
    session_id: str
    entries: tuple[HistoryEntry, ...]
    warnings: tuple[str, ...] = ()


def read_source(name: str) -> bytes:
    """Return what is in a file, unpacked if its name ends in `.gz`; `-` is standard input."""
    return read_stream(sys.stdin.buffer, "standard input") if name == "-" else read_file(name)


def read_conversations(
    data: bytes,
    format: str | None = None,  # noqa: A002  # the option's name
    *,
    made_by: str | None = None,
    session_id: str | None = None,
) -> list[Conversation]:
    """Return the conversations of a file: one, or several where the file has a recorded run in each line.

    Our own format says which session it was; others get `session_id`, or a random one. Raises UnreadableData where it
    is in no known format, or not in the one that was named.
    """
    lines = _json_lines(data)
    found = format or detect_format(data)
    if made_by is not None and found not in _WITH_MAKER:
        raise InvalidValue(f"made-by belongs to the formats {', '.join(_WITH_MAKER)}; this is {found}")
    if found == "dragoman":
        # Read through a state, which refuses what could not have been appended.
        state = AgentState.from_entries(read_jsonl(data), widgets=())
        own_id = session_id or state.session_id
        return [Conversation(format=found, session_id=own_id, entries=tuple(state.entries))]
    value = _parsed(data, lines)
    if found == "agent-log":
        records = value if isinstance(value, list) else [value]
        return [_conversation(found, import_agent_log(record), session_id) for record in records]
    return [_conversation(found, _READERS[found](value, made_by), session_id)]


def detect_format(data: bytes) -> str:
    """Return the name of the format that a file is in; raise UnreadableData if it is none of them."""
    lines = _json_lines(data)
    value = _parsed(data, lines)
    if lines is not None and isinstance(lines[0], dict) and "serial" in lines[0] and "kind" in lines[0]:
        return "dragoman"
    found = _format_of(value)
    if found is None:
        raise UnreadableData(f"this is in no format that is known: name it with --format ({', '.join(FORMATS)})")
    return found


def _conversation(name: str, imported: Imported, session_id: str | None) -> Conversation:
    state = AgentState.create_default(session_id=session_id, widgets=())
    warnings = append_imported(state, imported)
    return Conversation(format=name, session_id=state.session_id, entries=tuple(state.entries), warnings=warnings)


# ---------------------------------------------------------------- one format each


def _read_openai(value: Any, made_by: str | None) -> Imported:
    return import_openai_chat(_messages(value), made_by=made_by)


def _read_anthropic(value: Any, made_by: str | None) -> Imported:
    system = value.get("system") if isinstance(value, dict) else None
    return import_anthropic(_messages(value), system, made_by=made_by)


def _read_responses(value: Any, made_by: str | None) -> Imported:
    if not isinstance(value, dict):
        return import_openai_responses(value, made_by=made_by)
    items: list[Any] = []
    for name in ("input", "output"):
        part = value.get(name) or []
        items += [{"type": "message", "role": "user", "content": part}] if isinstance(part, str) else part
    return import_openai_responses(items, instructions=value.get("instructions"), made_by=made_by)


def _read_messages(value: Any, _made_by: str | None) -> Imported:
    """Messages in our own JSON form."""
    messages: list[Message] = []
    system: list[str] = []
    for place, each in enumerate(_messages(value)):
        message = from_json(encode_json(each))
        if not isinstance(message, Message):
            raise UnreadableData(f"messages[{place}] is a delta, not a message")
        if message.role is Role.SYSTEM and not messages:
            system.append(message.text)
        else:
            messages.append(message)
    return Imported("\n\n".join(system) or None, tuple(messages))


_READERS: dict[str, Callable[[Any, str | None], Imported]] = {
    "messages": _read_messages,
    "openai": _read_openai,
    "openai-responses": _read_responses,
    "anthropic": _read_anthropic,
    "vercel": lambda value, _: import_vercel_ui(_messages(value)),
    "langchain": lambda value, _: import_langchain(_messages(value)),
    "pydantic-ai": lambda value, _: import_pydantic_ai(_messages(value)),
}
FORMATS = ("dragoman", *_READERS, "agent-log")


def _messages(value: Any) -> Any:
    """The list that is meant: what is there, or what a request has under `messages`."""
    return value["messages"] if isinstance(value, dict) and isinstance(value.get("messages"), list) else value


# ---------------------------------------------------------------- which one it is


def _format_of(value: Any) -> str | None:
    if isinstance(value, dict):
        if isinstance(value.get("input"), (list, str)) or isinstance(value.get("output"), list):
            return "openai-responses"
        inner = value.get("messages")
        found = _format_of(inner) if isinstance(inner, list) else None
        return "anthropic" if found == "openai" and "system" in value else found
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        return None
    if all(isinstance(each.get("messages"), list) for each in value):  # a recorded run in each line
        inner_found = _format_of(value[0]["messages"])
        return inner_found if inner_found == "agent-log" else None
    return _format_of_messages(value)


def _format_of_messages(messages: list[dict[str, Any]]) -> str | None:
    first = messages[0]
    if first.get("kind") in ("request", "response"):
        return "pydantic-ai"
    if "lc" in first or isinstance(first.get("data"), dict):
        return "langchain"
    if all("role" not in each or each.get("type") == "message" for each in messages):
        kinds = {each.get("type") for each in messages}
        return "openai-responses" if kinds & _RESPONSE_ITEMS else None
    parts = [part for each in messages for part in _dicts(each.get("parts"))]
    if any("kind" in part for part in parts):
        return "messages" if any("payload" in part for part in parts) else "agent-log"
    if parts or any("toolInvocations" in each or "createdAt" in each for each in messages):
        return "vercel"
    if any(each.get("type") in ("function_call", "function_call_output", "reasoning") for each in messages):
        return "openai-responses"
    blocks = {part.get("type") for each in messages for part in _dicts(each.get("content"))}
    if blocks & {"input_text", "output_text"}:
        return "openai-responses"
    if blocks & _ANTHROPIC_BLOCKS:
        return "anthropic"
    is_spoken = all(isinstance(each.get("role"), str) for each in messages)
    return "openai" if is_spoken else None


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def _json_lines(data: bytes) -> list[Any] | None:
    """The values of a file that has one in each line, at least two lines of it or one that is an object; else None."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines or not all(line.lstrip()[:1] == b"{" for line in lines):
        return None
    try:
        return [decode_json(line) for line in lines]
    except UnreadableData:
        return None


def _parsed(data: bytes, lines: list[Any] | None) -> Any:
    if lines is not None:
        return lines[0] if len(lines) == 1 and not _is_message(lines[0]) else lines
    if not data.strip():
        raise UnreadableData("there is nothing in it")
    return decode_json(data)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "serial" in value)
