"""Store files that another program has changed: a damaged session hides no other, and nothing hangs."""

import json
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Agent, ErrorCode, PostgresStore, SessionBusy, SQLiteStore, StoreError, open_session, start_session
from dragoman.cli.entrytext import local_time
from dragoman.history.entryform import ENTRY_LIMIT
from dragoman.store.chain import chained, digest_of
from dragoman.store.leases import machine_time, this_process
from dragoman.store.postgres_schema import MARK
from dragoman.testing.scripted import ScriptedModel
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture
from tests.postgres_server import Place
from tests.store_cases import with_store

pytestmark = pytest.mark.slow  # minutes, on a busy machine

Change = Callable[[sqlite3.Connection], object]


def changed(path: Path, *changes: Change) -> Path:
    """Store the sessions `bad` and `good`, then change the file past the triggers; the records' checksums are right."""

    async def fill(store: SQLiteStore) -> None:
        for name in ("bad", "good"):
            await (await start_session(store, name)).append_model_input("hi")

    with_store(path, fill)
    database = sqlite3.connect(path, isolation_level=None)
    database.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        database.execute(f"DROP TRIGGER {name}")
    for change in changes:
        change(database)
    for row in database.execute("SELECT key, session_id, created_at, metadata, parent, base FROM sessions").fetchall():
        database.execute("UPDATE sessions SET record = ? WHERE key = ?", (digest_of(*row), row[0]))
    for _, sql in triggers:
        database.execute(sql)
    database.close()
    return path


def column(name: str, value: Any) -> Change:
    """A change of the row of `bad`."""
    return lambda database: database.execute(f"UPDATE sessions SET {name} = ? WHERE key = 1", (value,))


def last_time(text: str) -> Change:
    """A change of the time in the last entry of `bad`, whose checksums are made right."""

    def change(database: sqlite3.Connection) -> None:
        ((entry,),) = database.execute("SELECT entry FROM entries WHERE session = 1").fetchall()
        data = json.dumps({**json.loads(entry), "timestamp": text}).encode()
        checksum = chained(bytes(32), data)
        database.execute("UPDATE entries SET entry = ?, checksum = ? WHERE session = 1", (data, checksum))
        database.execute("UPDATE heads SET checksum = ? WHERE session = 1", (checksum,))

    return change


ROWS: dict[str, tuple[Change, str]] = {
    "created in a year that UTC does not have": (column("created_at", "0001-01-01T00:00:00+23:59"), "bad"),
    "created at a time without a zone": (column("created_at", "2026-01-01T00:00:00"), "bad"),
    "created yesterday": (column("created_at", "yesterday"), "bad"),
    "metadata that are no object": (column("metadata", b"[1]"), "bad"),
    "metadata that are deep": (column("metadata", b'{"a":' + b"[" * 99_999), "bad"),
    "metadata that are large": (column("metadata", b'{"a":"%s"}' % (b"x" * 9_999)), "bad"),
    "a base without a parent": (column("base", 0), "bad"),
    "a base that is negative": (column("base", -5), "bad"),
    "its own parent": (column("parent", 1), "bad"),
    "a head far after the last entry": (
        lambda database: database.execute("UPDATE heads SET serial = 2000000000 WHERE session = 1"),
        "bad",
    ),
    "an id that clears the screen": (column("session_id", "\x1b[2Jbad"), "\x1b[2Jbad"),
    "an id that is too long": (column("session_id", "bad" * 100), "bad" * 100),
    "a last entry of a year that UTC does not have": (last_time("0001-01-01T00:00:00+23:59"), "bad"),
    "a last entry without a zone": (last_time("2026-01-01T00:00:00"), "bad"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_value_that_no_store_writes_damages_its_own_session_alone(name: str, tmp_path: Path) -> None:
    change, session_id = ROWS[name]

    async def look(store: SQLiteStore) -> None:
        for page in (await store.list(), await store.list(created_before=datetime(9000, 1, 1, tzinfo=UTC))):
            assert ([info.session_id for info in page.sessions], page.damaged) == (["good"], (session_id,))
        assert not (await store.verify(session_id)).is_sound
        assert (await store.verify("good")).is_sound
        await store.erase(session_id)
        assert (await store.list()).damaged == ()

    with_store(changed(tmp_path / "s.db", change), look)


@pytest.mark.parametrize("name", ROWS)
def test_no_command_over_all_sessions_fails_for_one_that_is_damaged(name: str, user: User) -> None:
    change, session_id = ROWS[name]
    user.store.parent.mkdir(parents=True)
    changed(user.store, change)
    listed = user.run("sessions", "list")
    assert (listed.status, "\x1b" in listed.out) == (0, False)
    assert {each["id"] for each in user.run("sessions", "list", "--json").json} == {"good", session_id}
    found = {each["id"]: each["sound"] for each in user.run("sessions", "verify", "--json").json}
    assert found == {"good": True, session_id: False}
    verified = user.run("sessions", "verify")
    assert (verified.status, verified.err, "\x1b" in verified.out) == (1, "", False)
    assert "hi" in user.run("sessions", "show", "@").out  # the newest that can be read
    shown = user.run("sessions", "show", session_id)
    assert shown.status == 1
    assert "mistake in dragoman" not in shown.err
    assert user.run("sessions", "erase", session_id, "--yes").status == 0
    assert user.run("sessions", "verify").status == 0


def test_an_id_that_is_no_text_any_more_keeps_no_other_from_being_verified(user: User) -> None:
    user.store.parent.mkdir(parents=True)
    changed(
        user.store, lambda file: file.execute("UPDATE sessions SET session_id = CAST(x'ef20' AS TEXT) WHERE key = 1")
    )
    found = {each["id"]: each["sound"] for each in user.run("sessions", "verify", "--json").json}
    assert found == {"good": True, r"\xef ": False}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_every_time_that_an_entry_can_have_is_shown(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_time(datetime.min.replace(tzinfo=UTC)).startswith("1-01-01")
        assert local_time(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31")
    finally:
        monkeypatch.undo()
        time.tzset()


# ---------------------------------------------------------------- leases

OWNER = msgspec.json.encode(this_process()).decode()
HUGE = msgspec.json.encode(msgspec.structs.replace(this_process(), pid=2**63)).decode()


@pytest.mark.parametrize(
    ("owner", "acquired", "expires"),
    [
        ("o", 0.0, 1.0),
        ("{}", 0.0, 1.0),
        ("[" * 99_999, 0.0, 1.0),
        (OWNER, 1e300, 1.0),
        (OWNER, float("-inf"), 1.0),
        (OWNER, 0.0, float("inf")),
        (OWNER, 0.0, 1e308),
        (HUGE, 0.0, machine_time().wall + 9_999),
    ],
    ids=[
        "no JSON",
        "no owner",
        "deep",
        "far",
        "before all time",
        "never",
        "after all time",
        "a process that cannot be",
    ],
)
def test_a_lease_that_is_free_is_taken_over_whatever_its_row_says(
    owner: str, acquired: float, expires: float, tmp_path: Path
) -> None:
    row = ("t", owner, acquired, 10.0, expires, "a boot", expires)

    async def use(store: SQLiteStore) -> None:
        session = await open_session(store, "bad")
        assert (await Agent(ScriptedModel("Here."), session=session).run("Who?")).output == "Here."
        assert await store.find_lease("bad") is None
        await store.erase("bad")

    def insert(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO leases VALUES (1, ?, ?, ?, ?, ?, ?, ?)", row)

    with_store(changed(tmp_path / "s.db", insert), use)


def test_a_lease_that_lasts_is_respected_though_its_owner_cannot_be_read(tmp_path: Path) -> None:
    row = ("t", "o", 0.0, 10.0, machine_time().wall + 9_999, "", 0.0)

    async def use(store: SQLiteStore) -> None:
        session = await open_session(store, "bad")
        with pytest.raises(SessionBusy, match="unknown host"):
            await session.append_model_input("Me too.")

    def insert(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO leases VALUES (1, ?, ?, ?, ?, ?, ?, ?)", row)

    with_store(changed(tmp_path / "s.db", insert), use)


# ---------------------------------------------------------------- tables that are none of ours

ENDLESS_TRIGGER = """CREATE TRIGGER endless BEFORE INSERT ON entries BEGIN
    SELECT 1 WHERE 1 IN (WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r);
END"""
ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"


@pytest.mark.parametrize(
    "table", ["sessions", "entries", "heads", "blobs", "pieces", "snapshots", "leases", "tombstones", "cleanings"]
)
def test_a_view_in_the_place_of_a_table_is_refused(table: str, user: User) -> None:
    user.store.parent.mkdir(parents=True)
    changed(user.store)
    database = sqlite3.connect(user.store, isolation_level=None)
    database.execute("PRAGMA legacy_alter_table = ON")
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {name}")
    database.execute(f"ALTER TABLE {table} RENAME TO other")
    database.execute(f"CREATE VIEW {table} AS {ENDLESS}")
    database.close()
    with pytest.raises(StoreError, match=f"the table '{table}' is not as it was made") as caught:
        with_store(user.store, lambda store: store.list())
    assert caught.value.code is ErrorCode.CORRUPT
    for command in ("list", "verify"):
        ended = user.run("sessions", command)
        assert (ended.status, "is not as it was made" in ended.err) == (1, True)


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        (ENDLESS_TRIGGER, True),
        ("CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN DELETE FROM snapshots; END", True),
        (f"CREATE VIEW mine AS {ENDLESS}", True),
        ("CREATE TABLE mine (a)", False),
        ("CREATE INDEX mine ON sessions (created_at)", False),
        ("ANALYZE", False),
    ],
)
def test_triggers_and_views_of_others_are_refused_and_their_tables_and_indexes_are_not(
    statement: str, refused: bool, tmp_path: Path
) -> None:
    path = changed(tmp_path / "s.db", lambda database: None)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(statement)
    database.close()
    if refused:
        with pytest.raises(StoreError, match="is not one of a store"):
            with_store(path, lambda store: store.load("good"))
    else:
        assert len(with_store(path, lambda store: store.load("good"))) == 1


# ---------------------------------------------------------------- PostgreSQL


def filled(place: Place, *statements: str) -> Place:
    """Store the sessions `bad` and `good`, then change the tables as a superuser can; the checksums are right."""

    async def fill(store: PostgresStore) -> None:
        for name in ("bad", "good"):
            await (await start_session(store, name)).append_model_input("hi")

    place.run(fill)
    place.damage(*statements)
    with place.raw() as connection:
        connection.execute("SET session_replication_role = replica")
        select = "SELECT key, session_id, created_at, metadata, parent, base FROM sessions"
        for row in connection.execute(select).fetchall():
            connection.execute("UPDATE sessions SET record = %s WHERE key = %s", (digest_of(*row), row[0]))
    return place


@pytest.mark.parametrize(
    ("change", "session_id"),
    [
        ("created_at = '0001-01-01T00:00:00+23:59'", "bad"),
        ("created_at = '2026-01-01T00:00:00'", "bad"),
        ("session_id = E'\\x1b[2Jbad'", "\x1b[2Jbad"),
        ("metadata = '[]'", "bad"),
        ("base = -5", "bad"),
    ],
)
def test_a_value_that_no_store_writes_damages_its_own_session_of_a_schema_alone(
    change: str, session_id: str, postgres: Place
) -> None:
    filled(postgres, f"UPDATE sessions SET {change} WHERE key = 1")

    async def look(store: PostgresStore) -> None:
        page = await store.list(created_before=datetime(9000, 1, 1, tzinfo=UTC))
        assert ([info.session_id for info in page.sessions], page.damaged) == (["good"], (session_id,))
        assert not (await store.verify(session_id)).is_sound
        await store.erase(session_id)
        assert (await store.list()).damaged == ()

    postgres.run(look)


def test_pieces_beyond_the_limit_of_an_entry_are_refused_by_postgresql_too(postgres: Place) -> None:
    count = ENTRY_LIMIT // 4_000_000 + 1
    blob = "INSERT INTO blobs OVERRIDING SYSTEM VALUE VALUES (999, 'x', convert_to(repeat('a', 4000000), 'UTF8'))"
    pieces = f"INSERT INTO pieces SELECT 1, 0, n, 999, false FROM generate_series(1, {count}) AS n"
    filled(postgres, blob, pieces)
    report = postgres.run(lambda store: store.verify("bad"))
    assert (report.bad_serial, "larger than" in report.problem) == (0, True)
    assert postgres.run(lambda store: store.verify("good")).is_sound


@pytest.mark.parametrize(("owner", "expires"), [("o", "1"), (OWNER, "'infinity'"), (OWNER, "'nan'")])
def test_a_lease_of_a_schema_that_is_free_is_taken_over_whatever_its_row_says(
    owner: str, expires: str, postgres: Place
) -> None:
    filled(postgres, f"INSERT INTO leases VALUES (1, 't', '{owner}', 0, 10, {expires}, '', 0)")

    async def use(store: PostgresStore) -> None:
        session = await open_session(store, "bad")
        assert (await Agent(ScriptedModel("Here."), session=session).run("Who?")).output == "Here."

    postgres.run(use)


@pytest.mark.parametrize("table", ["sessions", "migrations", "leases"])
def test_a_view_in_the_place_of_a_table_of_a_schema_is_refused(table: str, postgres: Place) -> None:
    with postgres.raw() as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO other".encode())
        connection.execute(f"CREATE VIEW {table} AS {ENDLESS}".encode())
        if table == "migrations":
            connection.execute(f"COMMENT ON VIEW migrations IS '{MARK}'".encode())
    with pytest.raises(StoreError, match=f"'{table}' is not a table of a store"):
        postgres.run(lambda store: store.list())
