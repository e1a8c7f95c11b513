"""SQLite sessions of the OpenAI Agents SDK (`agent_sessions`, `agent_messages`) to messages here.

A row holds one item of the Responses API, whichever API the model was reached by.
"""

import os
from collections import defaultdict
from datetime import UTC, datetime

import msgspec

from ..errors import UnreadableData
from ..message import ModelInvocationDescriptor
from ..wire.drafts import Draft, Imported
from ..wire.openai_responses.dialects import SPECIFICATION
from ..wire.openai_responses.requests import ItemReader
from ..wire.reading import Node, reading, take_json
from ..wire.stored_answers import invocation_of
from .databases import Database, choose, open_database

__all__ = ["has_sessions", "import_all_openai_agents", "import_openai_agents"]

_FAKE_ID = "__fake_id__"  # what the SDK writes where an API has no ids of items
_ENCRYPTED = "__enc__"  # what an EncryptedSession marks its rows with
# The usual names of the tables, and the columns that they have under every name.
_SESSIONS = ("agent_sessions", "session_id", "created_at", "updated_at")
_MESSAGES = ("agent_messages", "session_id", "message_data")


class _Rows(msgspec.Struct):
    """The rows of a session: those of its newest branch, and those of others."""

    kept: list[Node]
    left_out: list[Node]


def import_openai_agents(
    path: str | os.PathLike[str], session_id: str | None = None, *, made_by: str | None = None
) -> Imported:
    """Return a session of a database, the newest unless one is named; raise UnreadableData where it is none.

    The file is only read. `made_by` (`provider:model`) says which model gave the answers, if it was one of the
    Responses API: without it, encrypted reasoning is kept but never sent.
    """
    invocation = invocation_of(made_by, SPECIFICATION)
    with open_database(path) as database:
        found = choose(_list(database), session_id, "session", database.name)
        rows = _rows(database, found)
    return _import(found, rows.get(found), invocation)


def import_all_openai_agents(path: str | os.PathLike[str], *, made_by: str | None = None) -> list[Imported]:
    """Return every session of a database, as `import_openai_agents` does, the newest last. Each table is read once."""
    invocation = invocation_of(made_by, SPECIFICATION)
    with open_database(path) as database:
        listed, rows = _list(database), _rows(database)
        return [_import(found, rows.get(found), invocation) for found in listed]


def has_sessions(database: Database) -> bool:
    """Return whether a database has the tables of the SDK, under whichever names."""
    try:
        return all(database.find_table(*table) for table in (_SESSIONS, _MESSAGES))
    except UnreadableData:
        return False


def _import(session_id: str, rows: _Rows | None, invocation: ModelInvocationDescriptor | None) -> Imported:
    draft = Draft("openai_agents")
    draft.session_id = session_id
    reader = ItemReader(draft, invocation)
    items: list[Node] = []
    for row in rows.kept if rows else ():
        with reading(row.where):
            item = take_json(row.text_in("message_data"), row.where)
            _read_item(item, row, reader)
            items.append(item)
    with reading(items[-1].where if items else ""):
        reader.end_turn()
    for row in rows.left_out if rows else ():
        draft.notes.add(row.where, "an item of a branch that was given up is left out")
    return draft.result(*items)


def _list(database: Database) -> list[str]:
    table = database.find_table(*_SESSIONS)
    return [node.text_in("session_id") for node in database.rows(table, "order by updated_at, rowid")]


def _rows(database: Database, session_id: str | None = None) -> dict[str, _Rows]:
    """Return the rows of each session, or of one."""
    messages = _by_session(database, database.find_table(*_MESSAGES), session_id)
    branches = _by_session(database, "message_structure", session_id)
    return {session: _newest_branch(rows, branches.get(session, [])) for session, rows in messages.items()}


def _newest_branch(rows: list[Node], structure: list[Node]) -> _Rows:
    if not structure:
        return _Rows(rows, [])
    branch = structure[-1].get("branch_id")
    wanted = {node.get("message_id") for node in structure if node.get("branch_id") == branch}
    kept = [row for row in rows if row.get("id") in wanted]
    return _Rows(kept, [row for row in rows if row.get("id") not in wanted])


def _by_session(database: Database, table: str, session_id: str | None) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = defaultdict(list)
    condition, values = ("", []) if session_id is None else ("where session_id = ?", [session_id])
    for node in database.rows(table, f"{condition} order by id", values):
        found[node.text_in("session_id")].append(node)
    return found


def _read_item(item: Node, row: Node, reader: ItemReader) -> None:
    if not isinstance(item.value, dict):
        raise item.wrong("an object")
    if _ENCRYPTED in item.value:
        raise UnreadableData(f"{item.where} is encrypted, by the EncryptedSession of the SDK: it is not read")
    told = item.value.pop("provider_data", None)  # it would be sent back to an API that does not know it
    if item.value.get("id") == _FAKE_ID:
        del item.value["id"]
    reader.read(item, _time_of(row))
    if isinstance(told, dict):
        model = told.get("model")
        reader.model_id = model if isinstance(model, str) else None


def _time_of(row: Node) -> datetime | None:
    """Return when a row was written; SQLite's own clock is UTC."""
    written = row.text_if("created_at")
    try:
        return None if written is None else datetime.fromisoformat(written).replace(tzinfo=UTC)
    except ValueError:
        raise UnreadableData(f"{row.where}.created_at must be a time") from None
