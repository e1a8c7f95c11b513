"""Databases of other programs: which ones are read, and of damaged or hostile ones what is refused, in which words."""

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman import UnreadableData
from dragoman.interop import Imported, import_claude_code, import_codex, import_llm, import_openai_agents, import_pi
from dragoman.interop.llm import import_all_llm
from dragoman.interop.openai_agents import import_all_openai_agents

from .interop_cases import make_database

RESPONSES = "create table responses (id text, conversation_id text, prompt text, response text, datetime_utc text)"
ONE = "insert into responses values ('r', 'c', 'ask', 'answer', null)"


def database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(UnreadableData) as caught:
        read()
    return str(caught.value)


def with_part(tmp_path: Path, role: str, kind: str, *payloads: dict[str, Any]) -> Path:
    """Return a database of one thread, whose one message has these parts."""
    return database(
        tmp_path / "logs.db",
        "create table threads (id text, tip_message_hash text)",
        "create table turns (thread_id text, tip_message_hash text)",
        "create table messages (hash text, parent_hash text, role text)",
        "create table parts (id integer primary key, message_hash text, position integer, type text, payload text)",
        "insert into threads values ('t', 'm')",
        "insert into turns values ('t', 'm')",
        f"insert into messages values ('m', null, '{role}')",
        *(
            f"insert into parts values ({at}, 'm', {at}, '{kind}', '{json.dumps(payload)}')"
            for at, payload in enumerate(payloads, 1)
        ),
    )


# ---------------------------------------------------------------- what an error says


def test_text_that_is_no_utf8_is_named_by_its_place_and_not_quoted(tmp_path: Path) -> None:
    prompt = "cast('my secret prompt ' || x'ff' as text)"
    path = database(tmp_path / "logs.db", RESPONSES, ONE, f"insert into responses values ('s', 'c', {prompt}, '', '')")
    said = refusal(lambda: import_llm(path))
    assert said == "logs.db responses row 2.prompt must be UTF-8 text"


def test_a_damaged_byte_anywhere_in_a_database_is_unreadable_data_or_read(tmp_path: Path) -> None:
    whole = make_database("llm_0.27", tmp_path).read_bytes()
    path = tmp_path / "damaged.db"
    for at in range(100, len(whole), 211):
        path.write_bytes(whole[:at] + b"\xff\xfe\xfd" + whole[at + 3 :])
        try:
            import_all_llm(path)
        except UnreadableData as error:
            assert "damaged.db" in str(error)  # noqa: PT017  # most of them are read


def test_a_time_before_the_first_year_is_named_by_its_row(tmp_path: Path) -> None:
    early = "insert into responses values ('r', 'c', 'ask', 'answer', '0001-01-01T00:00:00+14:00')"
    path = database(tmp_path / "logs.db", RESPONSES, early)
    assert "responses row 1.datetime_utc must be a time" in refusal(lambda: import_llm(path))


def test_a_second_thread_of_one_id_is_named_by_its_row(tmp_path: Path) -> None:
    path = database(with_part(tmp_path, "user", "text", {"text": "ask"}), "insert into threads values ('t', 'm')")
    assert refusal(lambda: import_llm(path)) == "logs.db threads row 2.id repeats the id of another thread"


@pytest.mark.parametrize(
    ("role", "kind", "payload"),
    [
        ("user", "text", {"text_ref": [{"fragment": [1]}]}),
        ("user", "attachment", {"attachment": {"id": [1]}}),
        ("tool", "tool_result", {"tool_call_id": "c", "attachments": [{"id": {}}]}),
    ],
)
def test_an_id_that_is_none_names_nothing_that_is_there(
    role: str, kind: str, payload: dict[str, Any], tmp_path: Path
) -> None:
    path = with_part(tmp_path, role, kind, payload)
    assert re.search("logs.db parts row 1.* is not there", refusal(lambda: import_llm(path)))


# ---------------------------------------------------------------- ids of calls


def test_an_answer_of_a_thread_has_no_id_twice(tmp_path: Path) -> None:
    calls = [{"name": "f", "tool_call_id": "c", "arguments": {"a": at}} for at in (1, 2)]
    path = with_part(tmp_path, "assistant", "tool_call", *calls)
    assert "parts row 2.tool_call_id repeats the id of another call" in refusal(lambda: import_llm(path))


def test_a_response_has_no_id_twice(tmp_path: Path) -> None:
    calls = "create table tool_calls (id integer primary key, response_id text, name text, arguments text, "
    path = database(
        tmp_path / "logs.db",
        RESPONSES,
        ONE,
        f"{calls} tool_call_id text)",
        *(f"insert into tool_calls values ({at}, 'r', 'f', '{{}}', 'c')" for at in (1, 2)),
    )
    assert "tool_calls row 2.tool_call_id repeats the id of another call" in refusal(lambda: import_llm(path))


# ---------------------------------------------------------------- all at once


@pytest.mark.parametrize("name", ["llm", "llm_0.27"])
def test_all_conversations_are_those_that_are_read_one_by_one(name: str, tmp_path: Path) -> None:
    path = make_database(name, tmp_path)
    found = import_all_llm(path)
    assert len(found) == 3
    assert found == [import_llm(path, each.session_id) for each in found]


def test_all_sessions_are_those_that_are_read_one_by_one(tmp_path: Path) -> None:
    path = make_database("openai_agents", tmp_path)
    found = import_all_openai_agents(path)
    assert len(found) == 2
    assert found == [import_openai_agents(path, each.session_id) for each in found]


# ---------------------------------------------------------------- what a file may not do


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("read", [import_llm, import_openai_agents, import_claude_code, import_codex, import_pi])
def test_a_pipe_is_refused_before_it_is_opened(read: Callable[[Path], Imported], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(lambda: read(tmp_path / "pipe")) == "pipe cannot be read: it is a folder, a pipe or a device"


@pytest.mark.parametrize("kept", ["virtual", "stored"])
def test_a_table_with_a_computed_column_is_refused(kept: str, tmp_path: Path) -> None:
    computed = "prompt text generated always as (printf('%.*c', 1000, 'x'))"
    path = database(tmp_path / "logs.db", f"create table responses (id text, conversation_id text, {computed} {kept})")
    assert "responses has a column that is computed" in refusal(lambda: import_llm(path))


def test_a_small_file_of_endless_rows_is_refused(tmp_path: Path) -> None:
    calls = "create table tool_calls (id, response_id text)"  # no key: to put them in order, all are read
    path = database(tmp_path / "logs.db", RESPONSES, ONE, calls, "insert into tool_calls values (1, 'r')")
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("select rootpage from sqlite_master where name = 'tool_calls'").fetchone()
        (size,) = connection.execute("pragma page_size").fetchone()
    data = bytearray(path.read_bytes())
    pages = len(data) // size
    data += data[(root - 1) * size : root * size]
    for _ in range(5):  # each page names the one before it 600 times
        pages += 1
        data += inner_page(pages, size)
    data[(root - 1) * size : root * size] = inner_page(pages + 1, size)
    data[28:32] = (pages + 1).to_bytes(4, "big")
    path.write_bytes(data)
    assert "takes more steps to read" in refusal(lambda: import_llm(path))


def inner_page(child: int, size: int) -> bytes:
    cells, cell = 600, size - 8
    head = b"\5\0\0" + cells.to_bytes(2, "big") + cell.to_bytes(2, "big") + b"\0" + child.to_bytes(4, "big")
    page = head + cell.to_bytes(2, "big") * cells
    return page.ljust(cell, b"\0") + child.to_bytes(4, "big") + b"\1\0\0\0"


def test_reading_leaves_nothing_beside_a_database_with_a_write_ahead_log(tmp_path: Path) -> None:
    path = database(tmp_path / "logs.db", "pragma journal_mode = wal", RESPONSES, ONE)
    assert list(tmp_path.iterdir()) == [path]
    assert len(import_llm(path).messages) == 2
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_only_in_the_write_ahead_log_is_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "logs.db")) as writer:
        for statement in ("pragma journal_mode = wal", RESPONSES, ONE):
            writer.execute(statement)
        writer.commit()
        assert len(import_llm(tmp_path / "logs.db").messages) == 2


# ---------------------------------------------------------------- what the SDK and `llm` may write besides

SDK_TABLES = (
    "create table {0} (session_id text primary key, created_at timestamp, updated_at timestamp)",
    "create table {1} (id integer primary key, session_id text, message_data text, created_at timestamp)",
    "insert into {0} values ('s', null, null)",
)
STRUCTURE = (
    "create table message_structure (id integer primary key, session_id text, message_id integer, branch_id text)"
)


def sdk_database(path: Path, items: list[dict[str, Any]], *more: str, sessions: str = "agent_sessions") -> Path:
    messages = sessions.replace("sessions", "messages")
    rows = [
        f"insert into {messages} values ({at}, 's', '{json.dumps(each)}', null)" for at, each in enumerate(items, 1)
    ]
    return database(path, *(each.format(sessions, messages) for each in SDK_TABLES), *rows, *more)


def asked(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


@pytest.mark.parametrize("sessions", ["my_sessions", '"two ""words"" sessions"'])
def test_tables_of_the_sdk_are_found_under_names_that_its_caller_chose(sessions: str, tmp_path: Path) -> None:
    path = sdk_database(tmp_path / "named.db", asked("one"), "create table other (id text)", sessions=sessions)
    assert [message.text for message in import_openai_agents(path).messages] == ["one"]


def test_two_tables_that_might_be_the_sessions_are_none(tmp_path: Path) -> None:
    copies = [each.format("b_sessions", "b_messages") for each in SDK_TABLES]
    path = sdk_database(tmp_path / "two.db", asked("one"), *copies, sessions="a_sessions")
    assert refusal(lambda: import_openai_agents(path)) == "two.db has no table 'agent_sessions'"


def test_items_of_another_branch_of_a_session_are_left_out_and_told(tmp_path: Path) -> None:
    branches = [("main", 1), ("main", 2), ("main", 3), ("other", 1), ("other", 4)]
    rows = [f"insert into message_structure values (null, 's', {item}, '{branch}')" for branch, item in branches]
    path = sdk_database(tmp_path / "branches.db", asked("one", "two", "three", "instead"), STRUCTURE, *rows)
    imported = import_openai_agents(path)
    assert [message.text for message in imported.messages] == ["one", "instead"]
    told = "branches.db agent_messages row 2: an item of a branch that was given up is left out (and 1 more)"
    assert imported.warnings == (told,)


def test_a_session_that_is_encrypted_is_refused(tmp_path: Path) -> None:
    path = sdk_database(tmp_path / "locked.db", [{"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAA"}])
    told = "locked.db agent_messages row 1 is encrypted, by the EncryptedSession of the SDK: it is not read"
    assert refusal(lambda: import_openai_agents(path)) == told


def test_an_object_that_is_no_item_is_refused(tmp_path: Path) -> None:
    path = sdk_database(tmp_path / "odd.db", [{"hello": 1}])
    assert refusal(lambda: import_openai_agents(path)) == "odd.db agent_messages row 1.id must be text, got nothing"


def test_options_and_the_schema_of_a_turn_are_told(tmp_path: Path) -> None:
    path = with_part(tmp_path, "assistant", "text", {"text": "Rain."})
    for column, value in (("options_json", '{"temperature": 0.5}'), ("schema_id", "848b"), ("duration_ms", "33")):
        database(path, f"alter table turns add {column} text", f"update turns set {column} = '{value}'")
    imported = import_llm(path)
    assert imported.warnings == (
        "logs.db turns row 1: 'options_json' is not carried over",
        "logs.db turns row 1: 'schema_id' is not carried over",
    )


def test_an_answer_whose_arguments_are_no_json_keeps_its_model_and_usage(tmp_path: Path) -> None:
    path = database(
        tmp_path / "logs.db",
        "create table responses (id text, conversation_id text, model text, prompt text, output_tokens integer)",
        "create table tool_calls (id integer, response_id text, name text, arguments text, tool_call_id text)",
        "insert into responses values ('r', 'c', 'gpt-5', 'ask', 7)",
        "insert into tool_calls values (1, 'r', 'look', '{', 'call_1')",
    )
    meta = import_llm(path).messages[1].meta
    assert meta is not None
    assert meta.usage is not None
    assert (meta.model_id, meta.usage.output_tokens, meta.parse_failures) == ("gpt-5", 7, ("call_1",))
