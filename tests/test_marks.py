"""Marks in databases: older files and schemas, rights, what erasing leaves, and that an index answers."""

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman import ErrorCode, StoreError
from dragoman.history import ClientRequestEntry
from dragoman.store import Mark, MemoryStore, PostgresStore, SessionStore, SQLiteStore
from dragoman.store.marks import MarkIndex
from dragoman.store.postgres_database import _MARKS as POSTGRES_MARKS
from dragoman.store.postgres_schema import MIGRATIONS as POSTGRES_MIGRATIONS
from dragoman.store.sqlite_schema import MIGRATIONS
from dragoman.testing.stores import sample_entries
from tests.postgres_server import Place
from tests.store_cases import stored, with_store
from tests.test_store_postgres_network import grants_of_the_document, role

ROOT = Path(__file__).parents[1]
BEFORE_MARKS = 3  # the number of a database that has none
WORD = "turn:5f3a"


def asked(session_id: str, serial: int, *marks: str) -> ClientRequestEntry:
    return ClientRequestEntry(
        "openai-chat",
        "/v1",
        "m",
        "{}",
        marks=marks,
        serial=serial,
        entry_id=f"{session_id}:{serial}",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )


async def add_marked(store: SessionStore, session_id: str = "b", word: str = WORD) -> tuple[Mark, ...]:
    await store.create(session_id)
    await store.append(session_id, [asked(session_id, 0, word)], 0)
    return await store.find_marks([word])


def execute(path: Path, *statements: str) -> list[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [row for statement in statements for row in connection.execute(statement)]
    finally:
        connection.close()


# ---------------------------------------------------------------- older databases


def make_older(path: Path) -> None:
    """Make a file of now one of before there were marks."""
    execute(path, "DROP TABLE entry_marks", f"PRAGMA user_version = {BEFORE_MARKS}")


def test_a_file_from_before_marks_is_brought_up_to_date_and_keeps_its_sessions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    sessions = stored(path, "a")
    make_older(path)
    assert with_store(path, lambda store: store.find_marks([WORD])) == ()
    assert execute(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert with_store(path, lambda store: store.load("a")) == sessions["a"]
    assert with_store(path, add_marked) == (Mark(WORD, "b", 0),)
    assert with_store(path, lambda store: store.find_marks([WORD])) == (Mark(WORD, "b", 0),)


def test_a_schema_from_before_marks_is_refused_until_it_is_migrated(postgres: Place) -> None:
    postgres.run(lambda store: store.create("a"))
    with postgres.raw() as connection:
        connection.execute("DROP TABLE entry_marks")
        connection.execute(f"DELETE FROM migrations WHERE number > {BEFORE_MARKS}".encode())
    with pytest.raises(StoreError, match=r"has number 3.*dragoman sessions migrate") as raised:
        postgres.run(lambda store: store.find_marks([WORD]))
    assert raised.value.code is ErrorCode.UNSUPPORTED
    assert postgres.run(PostgresStore.migrate) == len(POSTGRES_MIGRATIONS)
    assert postgres.run(lambda store: store.load("a")) == ()
    assert postgres.run(add_marked) == (Mark(WORD, "b", 0),)


# ---------------------------------------------------------------- rights


READ_ONLY = """
import asyncio, os, sys
from dragoman import StoreError
from dragoman.store import SQLiteStore

async def run(path):
    async with SQLiteStore(path, busy_seconds=1) as store:
        try:
            print(*(f"{mark.session_id} {mark.serial}" for mark in await store.find_marks(["turn:5f3a"])))
        except StoreError as error:
            print(error.code)

asyncio.run(run(sys.argv[2]))  # loads whatever is loaded on first use, while that is allowed
if os.getuid() == 0:  # to whom permissions do not apply
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(run(sys.argv[1]))
"""


@pytest.mark.parametrize(("is_older", "printed"), [(False, "b 0"), (True, "permission")], ids=["of now", "older"])
def test_marks_are_found_in_a_read_only_file_and_an_older_one_is_a_clear_error(
    is_older: bool, printed: str, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.db"
        with_store(path, add_marked)
        if is_older:
            make_older(path)
        if os.getuid() == 0:
            for each in (path, path.parent):
                os.chown(each, 65534, 65534)
        path.chmod(0o400)
        before = path.read_bytes()
        command = [sys.executable, "-W", "error", "-c", READ_ONLY, str(path), str(tmp_path / "warm.db")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.stderr, done.stdout.splitlines()) == ("", ["", printed])
        assert path.read_bytes() == before


def test_a_role_that_may_only_read_finds_marks(postgres: Place) -> None:
    postgres.run(add_marked)
    conninfo = role(postgres, "mark_reader", "USAGE ON SCHEMA {schema}", "SELECT ON ALL TABLES IN SCHEMA {schema}")

    async def read() -> None:
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            assert await store.find_marks([WORD]) == (Mark(WORD, "b", 0),)

    asyncio.run(read())


def test_a_role_with_the_rights_that_the_document_names_can_add_marks(postgres: Place) -> None:
    conninfo = role(postgres, "mark_writer", *grants_of_the_document())

    async def write() -> None:
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            assert await add_marked(store) == (Mark(WORD, "b", 0),)

    asyncio.run(write())


def test_a_role_that_may_not_add_marks_appends_everything_else(postgres: Place) -> None:
    grants = (grant.replace(", {schema}.entry_marks", "") for grant in grants_of_the_document())
    conninfo = role(postgres, "mark_stranger", *grants)

    async def write() -> None:
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            await store.create("a")
            await store.append("a", sample_entries("a", 3), 0)
            with pytest.raises(StoreError) as raised:
                await store.append("a", [asked("a", 3, WORD)], 3)
            assert raised.value.code is ErrorCode.PERMISSION
            assert (await store.head("a")).serial == 2

    asyncio.run(write())


# ---------------------------------------------------------------- erasing


def test_no_mark_of_an_erased_session_is_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with_store(path, add_marked)
    with_store(path, lambda store: add_marked(store, "staying", "turn:other"))
    kept, going = (hashlib.sha256(word.encode()).digest() for word in ("turn:other", WORD))
    assert going in path.read_bytes()
    with_store(path, lambda store: store.erase("b"))
    assert going not in path.read_bytes()
    assert kept in path.read_bytes()


def test_an_erased_schema_has_no_mark_of_the_session(postgres: Place) -> None:
    postgres.run(add_marked)
    postgres.run(lambda store: add_marked(store, "staying", "turn:other"))
    node = postgres.scalar("SELECT relfilenode FROM pg_class WHERE oid = 'entry_marks'::regclass")
    postgres.run(lambda store: store.erase("b"))
    assert postgres.scalar("SELECT count(*) FROM entry_marks") == 1
    assert postgres.scalar("SELECT relfilenode FROM pg_class WHERE oid = 'entry_marks'::regclass") != node


def test_an_erased_session_leaves_nothing_in_the_index_of_the_memory_store() -> None:
    index = MarkIndex()
    for session_id, word in (("a", "one"), ("a", "two"), ("b", "two")):
        index.add(Mark(word, session_id, 0))
    index.remove(["a"])
    assert index._marks == {"two": [(2, Mark("two", "b", 0))]}
    index.add(Mark("two", "c", 7))
    assert index.find(["one", "two"]) == (Mark("two", "b", 0), Mark("two", "c", 7))


# ---------------------------------------------------------------- what a look costs


def test_sqlite_asks_the_index_for_marks(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    seen: list[str] = []

    async def use(store: SQLiteStore) -> None:
        await add_marked(store)

        def explain(database: Any) -> None:
            from dragoman.store.sqlite_database import _MARKS

            select = f"EXPLAIN QUERY PLAN {_MARKS} WHERE m.hash = ? ORDER BY m.number DESC LIMIT ?"
            seen.extend(row[3] for row in database.execute(select, (b"", 50)))

        await store._read(explain)

    with_store(path, use)
    assert len(seen) == 2
    assert "INDEX entry_marks_by_hash (hash=?)" in seen[0]
    assert "SEARCH s USING INTEGER PRIMARY KEY" in seen[1]


def test_postgres_asks_the_index_for_marks_before_it_knows_the_table(postgres: Place) -> None:
    postgres.run(add_marked)
    with postgres.raw() as connection:
        connection.execute("ALTER TABLE entry_marks SET (autovacuum_enabled = off)")
        connection.execute(
            "INSERT INTO entry_marks (hash, session, serial)"
            " SELECT sha256(number::text::bytea), 1, number FROM generate_series(1, 20000) AS number"
        )
        for number in ("entry_marks", ""):
            select = POSTGRES_MARKS.replace("?", "%s")
            plan = connection.execute(f"EXPLAIN {select}".encode(), ([b"x"] * 300, 50)).fetchall()
            assert any("Index" in line and "entry_marks_by_hash" in line for (line,) in plan), plan
            if number:
                connection.execute(f"ANALYZE {number}".encode())


def test_a_closed_store_finds_nothing_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        for store in (MemoryStore(), SQLiteStore(tmp_path / "s.db")):
            await store.close()
            with pytest.raises(StoreError, match="closed"):
                await store.find_marks([WORD])

    asyncio.run(run())
