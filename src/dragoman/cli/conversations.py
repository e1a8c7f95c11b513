"""Files of conversations, in any format that `interop` reads, to entries. Finds out by itself which format it is.

Knows no store. What is in no known format is refused with a line that says what to do.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData
from ..files import read_file, read_stream
from ..history import AgentState, HistoryEntry
from ..interop import (
    Imported,
    append_imported,
    import_agent_log,
    import_anthropic,
    import_claude_code,
    import_langchain,
    import_openai_chat,
    import_openai_responses,
    import_pi,
    import_pydantic_ai,
    import_vercel_ui,
    read_jsonl,
)
from ..interop.codex import import_rollout, superseded_rollouts
from ..interop.databases import Database, open_database
from ..interop.llm import import_all_llm
from ..interop.openai_agents import has_sessions, import_all_openai_agents
from ..interop.planning import said_at
from ..interop.transcripts import NoConversation
from ..jsonform import from_json
from ..message import Message, Role

__all__ = [
    "FORMATS",
    "Conversation",
    "detect_format",
    "find_files",
    "read_conversations",
    "read_path",
    "read_source",
]

_WITH_MAKER = ("openai", "openai-responses", "anthropic", "openai-agents")
_SESSION_FILES = (".jsonl", ".jsonl.gz", ".db")
_SQLITE = b"SQLite format 3\0"
_ID_LENGTH = 200
# The fields of `history.jsonl`, the prompts that Codex and Claude Code keep for the arrow keys, and of
# `session_index.jsonl`, the names that people gave to sessions of Codex.
_LISTS = (
    frozenset({"session_id", "ts", "text"}),
    frozenset({"display", "timestamp", "project"}),
    frozenset({"id", "thread_name", "updated_at"}),
)
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


def find_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the session files under a folder, in order, and a warning for each that is not read.

    Those are links, and histories of a session of Codex that a newer one took the place of.
    """
    found: list[Path] = []
    warnings: list[str] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = Path(place, name)
            if path.is_symlink():
                warnings.append(f"{path} is a link: it is not read")
            elif name in names and name.endswith(_SESSION_FILES) and path.is_file():
                found.append(path)
    superseded = superseded_rollouts(found)
    warnings += [
        f"{path} is an earlier history of {newest.name}: it is not read" for path, newest in superseded.items()
    ]
    return [path for path in found if path not in superseded], warnings


def read_path(
    name: str,
    format: str | None = None,  # noqa: A002  # the option's name
    *,
    made_by: str | None = None,
    session_id: str | None = None,
) -> list[Conversation]:
    """Return the conversations of a file; every error names it. `-` is standard input."""
    try:
        if name != "-" and (format in _DATABASES or _is_database(name)):
            if Path(name).is_file() and not Path(name).stat().st_size:
                raise NoConversation("there is nothing in it")
            return _read_database(name, format, made_by, session_id)
        data = read_source(name)
        folder = None if name == "-" else Path(name).resolve().parent
        return read_conversations(data, format, made_by=made_by, session_id=session_id, folder=folder)
    except OSError as error:
        error.filename = error.filename or name  # an error of reading, unlike one of opening, names no file
        raise
    except UnreadableData as error:
        shown = "standard input" if name == "-" else name
        raise type(error)(str(error) if shown in str(error) else f"{shown}: {error}", code=error.code) from error


def read_conversations(
    data: bytes,
    format: str | None = None,  # noqa: A002  # the option's name
    *,
    made_by: str | None = None,
    session_id: str | None = None,
    folder: Path | None = None,
) -> list[Conversation]:
    """Return the conversations of a file: one, or several where the file has a recorded run in each line.

    Our own format says which session it was; others get `session_id`, or a random one. `folder` is where the file is:
    a rollout of Codex may begin in another one. Raises UnreadableData where it is in no known format, or not in the one
    that was named.
    """
    found = format or detect_format(data)
    if made_by is not None and found not in _WITH_MAKER:
        raise InvalidValue(f"made-by belongs to the formats {', '.join(_WITH_MAKER)}; this is {found}")
    if found == "dragoman":
        # Read through a state, which refuses what could not have been appended.
        state = AgentState.from_entries(read_jsonl(data), widgets=())
        own_id = session_id or state.session_id
        return [Conversation(format=found, session_id=own_id, entries=tuple(state.entries))]
    if found in _TRANSCRIPTS:
        return [_conversation(found, _TRANSCRIPTS[found](data, folder), session_id)]
    value = _parsed(data, _json_lines(data))
    if found == "agent-log":
        records = value if isinstance(value, list) else [value]
        return [_conversation(found, import_agent_log(record), session_id) for record in records]
    if found in _DATABASES:
        raise UnreadableData(f"{found} is read from a database, which this is not")
    return [_conversation(found, _READERS[found](value, made_by), session_id)]


def detect_format(data: bytes) -> str:
    """Return the name of the format that a file is in; raise UnreadableData if it is none of them.

    The last line of a coding agent's file may be cut off: the program may still be writing it.
    """
    lines = _json_lines(data)
    if lines is None and (found := _format_of_lines(_json_lines(data[: data.rfind(b"\n") + 1]) or [])) is not None:
        return found
    value = _parsed(data, lines)
    if lines is not None and isinstance(lines[0], dict) and "serial" in lines[0] and "kind" in lines[0]:
        return "dragoman"
    found = _format_of_lines(lines or []) or _format_of(value)
    if found is None and lines and any(lines[0].keys() >= fields for fields in _LISTS):
        raise NoConversation("this is a list of prompts or of sessions, without answers")
    if found is None:
        raise UnreadableData(f"this is in no format that is known: name it with --format ({', '.join(FORMATS)})")
    return found


def _conversation(name: str, imported: Imported, session_id: str | None) -> Conversation:
    own = imported.session_id
    if session_id is None and own and own.isprintable() and len(own) <= _ID_LENGTH:
        session_id = own
    state = AgentState.create_default(session_id=session_id, widgets=())
    warnings = append_imported(state, imported)
    entries = tuple(_with_own_times(state.entries))
    return Conversation(format=name, session_id=state.session_id, entries=entries, warnings=warnings)


def _with_own_times(entries: Iterable[HistoryEntry]) -> Iterator[HistoryEntry]:
    """The entries of a session that another program kept, with its times: an entry without one has that before it."""
    time: datetime | None = None
    for entry in entries:
        time = said_at(entry) or time
        yield entry if time is None else replace(entry, timestamp=time)


# ---------------------------------------------------------------- databases


def _is_database(name: str) -> bool:
    path = Path(name)
    if not path.is_file():
        return False
    if path.suffix == ".db":
        return True
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _read_database(name: str, form: str | None, made_by: str | None, session_id: str | None) -> list[Conversation]:
    found = form
    if found is None:
        with open_database(name) as database:
            found = _format_of_database(database)
    if found not in _DATABASES:
        raise UnreadableData(f"this database is of no program that is known ({', '.join(_DATABASES)})")
    if made_by is not None and found not in _WITH_MAKER:
        raise InvalidValue(f"made-by belongs to the formats {', '.join(_WITH_MAKER)}; this is {found}")
    imports = [imported for imported in _DATABASES[found](name, made_by) if imported.messages]
    if not imports:
        raise NoConversation("the database holds no conversation")
    return [_conversation(found, imported, session_id) for imported in imports]


_DATABASES: dict[str, Callable[[str, str | None], list[Imported]]] = {
    "llm": lambda name, _: import_all_llm(name),
    "openai-agents": lambda name, made_by: import_all_openai_agents(name, made_by=made_by),
}


def _format_of_database(database: Database) -> str | None:
    if database.tables >= {"conversations", "responses"}:  # `llm` keeps them beside its later tables
        return "llm"
    return "openai-agents" if has_sessions(database) else None


# ---------------------------------------------------------------- one format each


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
    for index, each in enumerate(_messages(value)):
        message = from_json(encode_json(each))
        if not isinstance(message, Message):
            raise UnreadableData(f"messages[{index}] is a delta, not a message")
        if message.role is Role.SYSTEM and not messages:
            system.append(message.text)
        else:
            messages.append(message)
    return Imported("\n\n".join(system) or None, tuple(messages))


_READERS: dict[str, Callable[[Any, str | None], Imported]] = {
    "messages": _read_messages,
    "openai": lambda value, made_by: import_openai_chat(_messages(value), made_by=made_by),
    "openai-responses": _read_responses,
    "anthropic": _read_anthropic,
    "vercel": lambda value, _: import_vercel_ui(_messages(value)),
    "langchain": lambda value, _: import_langchain(_messages(value)),
    "pydantic-ai": lambda value, _: import_pydantic_ai(_messages(value)),
}
_TRANSCRIPTS: dict[str, Callable[[bytes, Path | None], Imported]] = {
    "claude-code": lambda data, _: import_claude_code(data),
    "codex": import_rollout,
    "pi": lambda data, _: import_pi(data),
}
FORMATS = ("dragoman", *_READERS, *_TRANSCRIPTS, *_DATABASES, "agent-log")


def _messages(value: Any) -> Any:
    """The list that is meant: what is there, or what a request has under `messages`."""
    return value["messages"] if isinstance(value, dict) and isinstance(value.get("messages"), list) else value


# ---------------------------------------------------------------- which one it is


def _format_of_lines(lines: list[dict[str, Any]]) -> str | None:
    """Return the coding agent whose session file has such lines."""
    if any("parentUuid" in line or ("sessionId" in line and "type" in line) or "leafUuid" in line for line in lines):
        return "claude-code"
    if lines and all(line.get("type") == "file-history-snapshot" for line in lines):
        return "claude-code"
    if any(isinstance(line.get("payload"), dict) and "type" in line and "timestamp" in line for line in lines):
        return "codex"
    if lines and lines[0].keys() >= {"id", "timestamp", "instructions"}:
        return "codex"
    return "pi" if lines and lines[0].get("type") == "session" and "timestamp" in lines[0] else None


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


class _Features(msgspec.Struct, frozen=True):
    """What tells formats apart."""

    first: dict[str, Any]
    fields: frozenset[str]  # of any message
    types: frozenset[str]  # of messages and items
    content_types: frozenset[str]
    part_fields: frozenset[str]
    has_parts: bool
    has_items_only: bool
    has_roles: bool


# The first rule that holds names the format.
_RULES: tuple[tuple[str | None, Callable[[_Features], Any]], ...] = (
    ("pydantic-ai", lambda seen: seen.first.get("kind") in ("request", "response")),
    ("langchain", lambda seen: "lc" in seen.first or isinstance(seen.first.get("data"), dict)),
    ("openai-responses", lambda seen: seen.has_items_only and seen.types & _RESPONSE_ITEMS),
    (None, lambda seen: seen.has_items_only),
    ("messages", lambda seen: seen.part_fields >= {"kind", "payload"}),
    ("agent-log", lambda seen: "kind" in seen.part_fields),
    ("vercel", lambda seen: seen.has_parts or seen.fields & {"toolInvocations", "createdAt"}),
    ("openai-responses", lambda seen: seen.types & {"function_call", "function_call_output", "reasoning"}),
    ("openai-responses", lambda seen: seen.content_types & {"input_text", "output_text"}),
    ("anthropic", lambda seen: seen.content_types & _ANTHROPIC_BLOCKS),
    ("openai", lambda seen: seen.has_roles),
)


def _format_of_messages(messages: list[dict[str, Any]]) -> str | None:
    parts = [part for message in messages for part in _dicts(message.get("parts"))]
    seen = _Features(
        first=messages[0],
        fields=frozenset().union(*messages),
        types=_types(messages),
        content_types=_types(part for message in messages for part in _dicts(message.get("content"))),
        part_fields=frozenset().union(*parts),
        has_parts=bool(parts),
        has_items_only=all("role" not in each or each.get("type") == "message" for each in messages),
        has_roles=all(isinstance(each.get("role"), str) for each in messages),
    )
    return next((name for name, holds in _RULES if holds(seen)), None)


def _types(values: Iterable[dict[str, Any]]) -> frozenset[str]:
    return frozenset(value["type"] for value in values if isinstance(value.get("type"), str))


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def _json_lines(data: bytes) -> list[Any] | None:
    """The values of a file that has one in each line, at least two lines of it or one that is an object; else None."""
    if data.lstrip()[:1] != b"{":  # before a list of millions of empty lines is made
        return None
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
        raise NoConversation("there is nothing in it")
    try:
        return decode_json(data)
    except UnreadableData as error:
        raise _bad_line(data) or error from None


def _bad_line(data: bytes) -> UnreadableData | None:
    """Return the error of the first line that is not readable, if the first line of all is an object."""
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            if line.strip() and not isinstance(decode_json(line), dict):
                return None
        except UnreadableData as error:
            return UnreadableData(f"line {number}: {error}") if number > 1 else None
    return None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "serial" in value)
