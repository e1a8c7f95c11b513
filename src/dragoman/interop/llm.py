"""Conversations in the database of the command line tool `llm` (`logs.db`) to messages here.

Two layouts: a row of `responses` holds a prompt and its answer (as of 0.27), or threads are chains of messages (0.36).
"""

import os
from collections import defaultdict, deque
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ..errors import ErrorCode, UnreadableData
from ..message import Message, MessageMeta, Part, ResultPart, Role, Text, Thinking, ToolCall, ToolResult
from ..usage import TokenUsage
from ..wire.drafts import Draft, Imported
from ..wire.media import media_by_url, media_of_bytes
from ..wire.reading import Node, reading, require_new_id, take_json
from .databases import Database, choose, open_database

__all__ = ["import_all_llm", "import_llm"]

# Columns of a response that repeat it, or say how the call went.
_OF_THE_CALL = (
    "rowid",
    "conversation_id",
    "prompt_json",
    "response_json",
    "duration_ms",
    "token_details",
    "model",
    "resolved_model",
)
_OF_THE_TURN = ("id", "thread_id", "parent_message_hash", "tip_message_hash", "datetime_utc")


def import_llm(path: str | os.PathLike[str], conversation_id: str | None = None) -> Imported:
    """Return a conversation of `llm`'s database, the newest unless one is named; raise UnreadableData where it is none.

    The file is only read. A file that the database merely names is never opened: a line of text stands for it.
    """
    with open_database(path) as database:
        return _read(database, [choose(_list(database), conversation_id, "conversation", database.name)])[0]


def import_all_llm(path: str | os.PathLike[str]) -> list[Imported]:
    """Return every conversation of a database, as `import_llm` does, the newest last. Each table is read once."""
    with open_database(path) as database:
        return _read(database, _list(database))


def _list(database: Database) -> list[str]:
    if "threads" not in database.tables:
        database.require("responses")
    ids: dict[str, None] = {}
    for table, column in (("responses", "conversation_id"), ("turns", "thread_id")):
        for node in database.rows(table, "order by rowid"):
            found = node.text_if(column)
            ids.pop(found or "", None)
            if found:
                ids[found] = None
    return list(ids)


def _read(database: Database, wanted: list[str]) -> list[Imported]:
    threads: dict[str, Node] = {}
    for thread in database.rows("threads"):
        if threads.setdefault(thread.text_in("id"), thread) is not thread:
            raise UnreadableData(f"{thread.where}.id repeats the id of another thread")
    chain = _Chain(database, threads) if not threads.keys().isdisjoint(wanted) else None
    responses = _Responses(database) if not threads.keys() >= set(wanted) else None
    readers = [(chain if found in threads else responses, found) for found in wanted]
    return [reader.import_one(found) for reader, found in readers if reader is not None]


class _Reader:
    """What both layouts have: attachments, fragments, usage. It reads its tables once, for all conversations."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.draft = Draft("llm")
        self._attachments = {node.text_in("id"): node for node in database.rows("attachments")}
        self._fragments = {node.value["rowid"]: node for node in database.rows("fragments")}

    def import_one(self, conversation_id: str) -> Imported:
        """Return a conversation."""
        self.draft = Draft("llm")
        self.draft.session_id = conversation_id
        with reading(f"{self.database.name} conversation {conversation_id[:80]}"):
            return self.draft.result(*self.read(conversation_id))

    def read(self, conversation_id: str) -> list[Node]:
        """Add the messages of a conversation to the draft; return what they were read from."""
        raise NotImplementedError

    def fragment(self, fragment_id: Any, where: str) -> str:
        """Return a text that several prompts share."""
        if not isinstance(fragment_id, int) or fragment_id not in self._fragments:
            raise UnreadableData(f"{where} names a fragment that is not there")
        return self._fragments[fragment_id].text_in("content")

    def attachment(self, attachment_id: Any, where: str) -> ResultPart:
        """Return an attached file; text where the database has only its path on the machine that wrote it."""
        node = self._attachments.get(attachment_id) if isinstance(attachment_id, str) else None
        if node is None:
            raise UnreadableData(f"{where} names an attachment that is not there")
        kind = node.text_if("type")
        if isinstance(data := node.get("content"), bytes):
            return media_of_bytes(data, kind, None, node.where)
        if node.has("url"):
            return media_by_url(node.child("url"), kind)
        self.draft.notes.add(node.where, "the bytes of a file were not recorded: a line of text stands for it")
        return Text(f"[{kind or 'a file'}: not recorded]")

    def answer(self, parts: list[Part], row: Node | None) -> None:
        """Add an answer with what its row says of the call."""
        meta = None
        if row is not None:
            tokens = {name: row.get(name) for name in ("input_tokens", "output_tokens")}
            usage = TokenUsage.reported(**tokens) if any(count is not None for count in tokens.values()) else None
            meta = MessageMeta(usage=usage, model_id=row.text_if("resolved_model") or row.text_if("model"))
        failures = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
        if failures:
            meta = replace(meta or MessageMeta(), parse_failures=failures)
        when = None if row is None else _time_of(row)
        self.draft.messages.append(Message(Role.ASSISTANT, tuple(parts), "", when, meta))


def _time_of(row: Node) -> datetime | None:
    """Return when a call was made: the tool writes UTC, some versions without saying so."""
    written = row.text_if("datetime_utc")
    if not written:
        return None
    try:
        read = datetime.fromisoformat(written)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):  # a time in year 1 may lie before it in UTC
        raise UnreadableData(f"{row.where}.datetime_utc must be a time") from None


# ---------------------------------------------------------------- messages and parts


class _Chain(_Reader):
    """The layout of later versions. A thread names its last message, each message the one before it."""

    def __init__(self, database: Database, threads: dict[str, Node]) -> None:
        super().__init__(database)
        self._threads = threads
        self._messages = {node.text_in("hash"): node for node in database.rows("messages")}
        self._parts: dict[str, list[Node]] = defaultdict(list)
        for part in database.rows("parts", "order by position, id"):
            self._parts[part.text_in("message_hash")].append(part)
        self._turns = {node.text_in("tip_message_hash"): node for node in database.rows("turns")}
        self._sources: list[Node] = []

    def read(self, thread_id: str) -> list[Node]:
        messages, chain = self._messages, list[Node]()
        self._sources = []
        tip, seen = self._threads[thread_id].text_if("tip_message_hash"), set[str]()
        while tip is not None:
            if tip in seen or tip not in messages:
                reason = "are a circle" if tip in seen else "end in one that is not there"
                raise UnreadableData(f"the messages of thread {thread_id[:80]!r} {reason}")
            seen.add(tip)
            chain.append(messages[tip])
            tip = messages[tip].text_if("parent_hash")
        for message in reversed(chain):
            found = message.text_in("hash")
            if (turn := self._turns.get(found)) is not None:
                turn.skip(*_OF_THE_CALL, *_OF_THE_TURN)
                self._sources.append(turn)
            self._read_message(message, self._parts[found], turn)
        return self._sources

    def _read_message(self, message: Node, rows: list[Node], turn: Node | None) -> None:
        given = [self._payload(row) for row in rows]
        match message.text_in("role"):
            case "system":
                self.draft.add_system("\n\n".join(self._text(part) for part in given if part.get("type") == "text"))
            case "user":
                self.draft.add(Role.USER, [self._user_part(part) for part in given])
            case "assistant":
                seen = set[str]()
                self.answer([self._answer_part(part, seen) for part in given], turn)
            case "tool":
                for part in given:
                    self._add_result(part)
            case _:
                raise UnreadableData(f"{message.where}.role must be one of system, user, assistant, tool")

    def _payload(self, row: Node) -> Node:
        written = row.text_if("payload")
        fields = {} if written is None else take_json(written, f"{row.where}.payload").fields
        text = row.text_if("text")
        payload = {**fields, "type": row.text_in("type"), **({} if text is None else {"text": text})}
        self._sources.append(Node(payload, row.where))
        return self._sources[-1]

    def _text(self, part: Node) -> str:
        if not part.has("text_ref"):
            return part.text_if("text") or ""
        pieces = part.each_in("text_ref")
        return "".join(
            self.fragment(piece.get("fragment"), piece.where) if piece.has("fragment") else piece.text_in("literal")
            for piece in pieces
        )

    def _user_part(self, part: Node) -> Part:
        match part.text_in("type"):
            case "text":
                return Text(self._text(part))
            case "attachment":
                return self.attachment(part.child("attachment").get("id"), part.where)
            case kind:
                return self.draft.unshown(part, kind)

    def _answer_part(self, part: Node, seen: set[str]) -> Part:
        match part.text_in("type"):
            case "text":
                return Text(self._text(part))
            case "reasoning":
                return Thinking(self._text(part))
            case "tool_call" if not part.flag_in("server_executed"):
                name, call_id = part.name_in("name"), require_new_id(part, "tool_call_id", seen)
                given = part.get("arguments")
                if isinstance(given, dict):
                    return ToolCall(call_id, name, given)
                return ToolCall.parse(call_id, name, part.text_if("arguments") or "")
            case "attachment":
                shown = self.attachment(part.child("attachment").get("id"), part.where)
                return shown if shown.kind in ("image", "text") else self.draft.unshown(part, "attachment")
            case kind:
                return self.draft.unshown(part, kind)

    def _add_result(self, part: Node) -> None:
        part.skip("type", "name")
        output = part.text_if("output") or ""
        files = [self.attachment(each.get("id"), part.where) for each in part.each_in("attachments")]
        content = (Text(output), *files) if files else output
        failed = part.has("exception")
        result = ToolResult(part.name_in("tool_call_id"), content, is_error=failed)
        self.draft.add_result(result, error_code=ErrorCode.TOOL_FAILED if failed else None)


# ---------------------------------------------------------------- prompts and their answers


class _Responses(_Reader):
    """The layout of earlier versions. A row is a prompt, with the results that it brought, and its answer."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._rows: dict[str, list[Node]] = defaultdict(list)
        for row in database.rows("responses", "order by rowid"):
            self._rows[row.text_if("conversation_id") or ""].append(row)
        self._calls = self._by_response("tool_calls", "order by id")
        self._results = self._by_response("tool_results", "order by id")
        self._shared = {
            table: self._by_response(table, 'order by "order"') for table in ("prompt_fragments", "system_fragments")
        }
        self._attached = self._by_response("prompt_attachments", 'order by "order"')
        self._pending: dict[str, deque[str]] = {}  # calls without an id of their own, by tool

    def read(self, conversation_id: str) -> list[Node]:
        self._pending = defaultdict(deque)
        system = ""
        rows = self._rows[conversation_id]
        for row in rows:
            row.skip(*_OF_THE_CALL, *(["options_json"] if row.value.get("options_json") == "{}" else []))
            said = self._joined("system_fragments", row, "system")
            if said and said != system:
                self.draft.add_system(said)
                system = said
            self._read_prompt(row)
            self._read_answer(row)
        return rows

    def _by_response(self, table: str, rest: str) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self.database.rows(table, rest):
            found[node.text_if("response_id") or ""].append(node)
        return found

    def _joined(self, table: str, row: Node, field: str) -> str:
        shared = [self.fragment(each.get("fragment_id"), each.where) for each in self._shared[table][row.text_in("id")]]
        return "\n".join([*shared, row.text_if(field) or ""]).strip("\n") if shared else row.text_if(field) or ""

    def _read_prompt(self, row: Node) -> None:
        response_id, when = row.text_in("id"), _time_of(row)
        for each in self._results[response_id]:
            call_id = each.text_if("tool_call_id")
            if call_id is None:
                waiting = self._pending[each.text_if("name") or ""]
                call_id = waiting.popleft() if waiting else f"call_{each.value['rowid']}"
            failed = each.value.get("exception") is not None
            result = ToolResult(call_id, each.text_if("output") or "", is_error=failed)
            self.draft.add_result(result, timestamp=when, error_code=ErrorCode.TOOL_FAILED if failed else None)
        prompt = self._joined("prompt_fragments", row, "prompt")
        files = [self.attachment(each.get("attachment_id"), each.where) for each in self._attached[response_id]]
        if prompt or files:
            self.draft.add(Role.USER, [*([Text(prompt)] if prompt else []), *files], timestamp=when)

    def _read_answer(self, row: Node) -> None:
        thought, said = row.text_if("reasoning"), row.text_if("response")
        parts: list[Part] = [*([Thinking(thought)] if thought else []), *([Text(said)] if said else [])]
        seen = set[str]()
        for each in self._calls[row.text_in("id")]:
            name = each.name_in("name")
            if each.has("tool_call_id"):
                call_id = require_new_id(each, "tool_call_id", seen)
            else:
                call_id = f"call_{each.value['rowid']}"
                self._pending[name].append(call_id)
            parts.append(ToolCall.parse(call_id, name, each.text_if("arguments") or ""))
        if parts:
            self.answer(parts, row)
        else:
            self.draft.notes.add(row.where, "an answer of nothing is left out")
