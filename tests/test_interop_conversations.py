"""Every recorded conversation goes in, becomes a history, goes out as JSON Lines and comes back equal.

All of them: `pytest -m slow tests/test_interop_conversations.py`. Without the mark it is a fixed sample.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import Message, Role, Text, Thinking, ToolCall, ToolResult
from dragoman.interop import (
    Imported,
    append_imported,
    export_anthropic,
    export_openai_chat,
    import_agent_log,
    import_anthropic,
    import_openai_chat,
    read_jsonl,
    write_jsonl,
)

from .conversations import Record, needs_conversations, read_records
from .history_cases import fresh
from .interop_cases import messages_of, recorded

Said = tuple[str, list[tuple[Any, ...]]]


def said_in_record(record: Record) -> Iterator[Said]:
    """What a record says, message by message, one for each result."""
    for message in record["messages"]:
        if (message.get("meta") or {}).get("compact_summary"):
            continue
        parts = [_recorded_part(part) for part in message["parts"]]
        if message["role"] == "tool":
            yield from (("tool", [part]) for part in parts)
        else:
            yield message["role"], parts


def _recorded_part(part: dict[str, Any]) -> tuple[Any, ...]:
    match part["kind"]:
        case "tool_call":
            return "tool_call", part["id"], part["name"], part["arguments"]
        case "tool_result":
            return "tool_result", part["id"], part["text"], bool(part.get("is_error"))
        case "image":
            return "text", f"[{part['media_type']}, {part['bytes']} bytes: not recorded]"
        case kind:
            return kind, part["text"]


def said_in_messages(messages: tuple[Message, ...]) -> Iterator[Said]:
    """What messages say, in the same form."""
    for message in messages:
        yield str(message.role), [_said_part(part) for part in message.parts]


def _said_part(part: Any) -> tuple[Any, ...]:
    match part:
        case Text() | Thinking():
            return part.kind, part.text
        case ToolCall():
            return "tool_call", part.tool_call_id, part.tool_name, part.arguments
        case ToolResult():
            return "tool_result", part.tool_call_id, part.content, part.is_error
        case _:
            raise AssertionError(f"a part of kind {part.kind!r}")


@needs_conversations
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_conversation_comes_back_from_json_lines_as_it_was_recorded(every: int) -> None:
    count = 0
    for record in read_records(every):
        state = fresh(widgets=())
        warnings = append_imported(state, import_agent_log(record))
        assert all("left out" in warning or "not recorded" in warning for warning in warnings), record["id"]
        entries = list(read_jsonl(b"".join(write_jsonl(state.entries))))
        assert entries == list(state.entries), record["id"]
        assert list(said_in_messages(messages_of(state))) == list(said_in_record(record)), record["id"]
        count += 1
    assert count > 100 / every


@needs_conversations
def test_a_conversation_exported_and_imported_again_says_the_same() -> None:
    for record in read_records(every=23):
        messages = messages_of(recorded(import_agent_log(record)))
        system = messages[0].text if messages[0].role is Role.SYSTEM else None
        chat = import_openai_chat(export_openai_chat(messages))
        sent = export_anthropic(messages)
        claude = import_anthropic(sent["messages"], sent.get("system"))
        for again in (chat, claude):
            assert again.system == system
            assert _words(again) == _words(Imported(system, messages)), record["id"]


def _words(imported: Imported) -> list[tuple[Any, ...]]:
    """Everything said but what an export leaves behind by design: thoughts, blank texts, and who began."""
    words: list[tuple[Any, ...]] = []
    places: dict[str, int] = {}  # ids that an API does not take are written otherwise
    for role, parts in said_in_messages(imported.messages):
        for kind, *said in parts:
            if kind == "text" and role != "system" and "".join(said).strip(" \n."):
                words.append(("text", *("".join(said).split())))
            elif kind == "tool_call":
                words.append(("tool_call", places.setdefault(said[0], len(places)), *said[1:]))
            elif kind == "tool_result":
                words.append(("tool_result", places[said[0]], said[1]))
    return words
