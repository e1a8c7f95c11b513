"""Conversations in the database of the command line tool `llm` (`logs.db`) to messages here.

Two layouts: a row of `responses` holds a prompt and its answer (as of 0.27), or threads are chains of messages (0.36).
"""

import os
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from ..errors import ErrorCode, UnreadableData
from ..message import Message, MessageMeta, Part, ResultPart, Role, Text, Thinking, ToolCall, ToolResult
from ..usage import TokenUsage
from ..wire.drafts import Draft, Imported
from ..wire.media import media_by_url, media_of_bytes
from ..wire.reading import Node, reading, take_json
from .databases import Database, choose, open_database

__all__ = ["import_llm", "list_llm"]

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


def import_llm(path: str | os.PathLike[str], conversation_id: str | None = None) -> Imported:
    """Return a conversation of `llm`'s database, the newest unless one is named; raise UnreadableData where it is none.

    The file is only read. A file that the database merely names is never opened: a line of text stands for it.
    """
    with open_database(path) as database:
        found = choose(_list(database), conversation_id, "conversation", database.name)
        draft = Draft("llm")
        draft.session_id = found
        with reading(f"{database.name} conversation {found[:80]}"):
            if any(node.get("id") == found for node in database.rows("threads")):
                sources = _Chain(database, draft).read(found)
            else:
                sources = _Responses(database, draft).read(found)
        return draft.result(*sources)


def list_llm(path: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the conversations in a database, the newest last."""
    with open_database(path) as database:
        return _list(database)


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


class _Reader:
    """What both layouts have: attachments, fragments, usage."""

    def __init__(self, database: Database, draft: Draft) -> None:
        self.database = database
        self.draft = draft
        self._attachments = {node.text_in("id"): node for node in database.rows("attachments")}
        self._fragments = {node.value["rowid"]: node for node in database.rows("fragments")}

    def fragment(self, fragment_id: Any, where: str) -> str:
        """Return a text that several prompts share."""
        if fragment_id not in self._fragments:
            raise UnreadableData(f"{where} names a fragment that is not there")
        return self._fragments[fragment_id].text_in("content")

    def attachment(self, attachment_id: Any, where: str) -> ResultPart:
        """Return an attached file; text where the database has only its path on the machine that wrote it."""
        node = self._attachments.get(attachment_id)
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
            meta = MessageMeta(parse_failures=failures)
        when = None if row is None else _time_of(row)
        self.draft.messages.append(Message(Role.ASSISTANT, tuple(parts), "", when, meta))


def _time_of(row: Node) -> datetime | None:
    """Return when a call was made: the tool writes UTC, some versions without saying so."""
    written = row.text_if("datetime_utc")
    if not written:
        return None
    try:
        read = datetime.fromisoformat(written)
    except ValueError:
        raise UnreadableData(f"{row.where}.datetime_utc must be a time") from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


# ---------------------------------------------------------------- messages and parts


class _Chain(_Reader):
    """The layout of later versions. A thread names its last message, each message the one before it."""

    def read(self, thread_id: str) -> list[Node]:
        messages = {node.text_in("hash"): node for node in self.database.rows("messages")}
        parts: dict[str, list[Node]] = defaultdict(list)
        for part in self.database.rows("parts", "order by position, id"):
            parts[part.text_in("message_hash")].append(part)
        turns = {node.text_in("tip_message_hash"): node for node in self.database.rows("turns")}
        (thread,) = [node for node in self.database.rows("threads") if node.get("id") == thread_id]
        chain: list[Node] = []
        self._payloads: list[Node] = []
        tip, seen = thread.text_if("tip_message_hash"), set[str]()
        while tip is not None:
            if tip in seen or tip not in messages:
                reason = "are a circle" if tip in seen else "end in one that is not there"
                raise UnreadableData(f"the messages of thread {thread_id[:80]!r} {reason}")
            seen.add(tip)
            chain.append(messages[tip])
            tip = messages[tip].text_if("parent_hash")
        for message in reversed(chain):
            found = message.text_in("hash")
            self._read_message(message, parts[found], turns.get(found))
        return self._payloads

    def _read_message(self, message: Node, rows: list[Node], turn: Node | None) -> None:
        given = [self._payload(row) for row in rows]
        match message.text_in("role"):
            case "system":
                self.draft.add_system("\n\n".join(self._text(part) for part in given if part.get("type") == "text"))
            case "user":
                self.draft.add(Role.USER, [self._user_part(part) for part in given])
            case "assistant":
                self.answer([self._answer_part(part) for part in given], turn)
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
        self._payloads.append(Node(payload, row.where))
        return self._payloads[-1]

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

    def _answer_part(self, part: Node) -> Part:
        match part.text_in("type"):
            case "text":
                return Text(self._text(part))
            case "reasoning":
                return Thinking(self._text(part))
            case "tool_call" if not part.flag_in("server_executed"):
                name, call_id, given = part.name_in("name"), part.name_in("tool_call_id"), part.get("arguments")
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

    def read(self, conversation_id: str) -> list[Node]:
        self._calls = self._by_response("tool_calls", "order by id")
        self._results = self._by_response("tool_results", "order by id")
        self._shared = {
            table: self._by_response(table, 'order by "order"') for table in ("prompt_fragments", "system_fragments")
        }
        self._attached = self._by_response("prompt_attachments", 'order by "order"')
        self._pending: dict[str, list[str]] = defaultdict(list)  # calls without an id of their own, by tool
        system = ""
        rows = self.database.rows("responses", "where conversation_id = ? order by rowid", [conversation_id])
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
                call_id = waiting.pop(0) if waiting else f"call_{each.value['rowid']}"
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
        for each in self._calls[row.text_in("id")]:
            name, call_id = each.name_in("name"), each.text_if("tool_call_id")
            if call_id is None:
                call_id = f"call_{each.value['rowid']}"
                self._pending[name].append(call_id)
            parts.append(ToolCall.parse(call_id, name, each.text_if("arguments") or ""))
        if parts:
            self.answer(parts, row)
        else:
            self.draft.notes.add(row.where, "an answer of nothing is left out")
