"""The PostgreSQL store's own promises: its numbers, what the database itself refuses, damage, what erasing leaves."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman import ErrorCode, Image, InvalidValue, StoreError, Text
from dragoman.history import HistoryEntry, ModelInputEntry
from dragoman.store import PostgresStore, postgres_database
from dragoman.store.database import Database
from dragoman.store.postgres_database import PostgresDatabase
from dragoman.store.postgres_schema import EARLIER_MARK, MIGRATIONS, migrate, require_current
from dragoman.store.sql_rows import find_sound_end
from dragoman.testing.stores import append_all, sample_entries
from tests.postgres_server import Place
from tests.store_cases import require_documented
from tests.test_docs import ROOT, python_blocks

psycopg = pytest.importorskip("psycopg")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATEST = len(MIGRATIONS)


def said(session_id: str, serial: int, *parts: Text | Image) -> HistoryEntry:
    return ModelInputEntry(parts, serial=serial, entry_id=f"{session_id}:{serial}", timestamp=NOW)


def stored(place: Place, *names: str, count: int | None = None) -> dict[str, tuple[HistoryEntry, ...]]:
    """Store sample sessions of these names and return them."""
    sessions = {name: sample_entries(name, count) for name in names}

    async def write(store: PostgresStore) -> None:
        for name, entries in sessions.items():
            await store.create(name, metadata={"name": name})
            await store.append(name, entries, 0)

    place.run(write)
    return sessions


# ---------------------------------------------------------------- the store


def test_nothing_is_asked_of_the_server_before_the_first_use() -> None:
    store = PostgresStore("host=127.0.0.1 port=1")
    asyncio.run(store.close())
    asyncio.run(store.close())


def test_one_store_serves_several_event_loops(postgres: Place) -> None:
    store = postgres.store()
    asyncio.run(store.create("a"))
    asyncio.run(append_all(store, "a", sample_entries("a")))
    assert asyncio.run(store.load("a")) == sample_entries("a")
    asyncio.run(store.close())


def test_a_store_is_not_carried_into_a_forked_process(postgres: Place) -> None:
    store = postgres.store()
    asyncio.run(store.create("a"))
    child = os.fork()
    if not child:
        try:
            asyncio.run(store.head("a"))
        except InvalidValue:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert asyncio.run(store.head("a")).serial == -1
    asyncio.run(store.close())


@pytest.mark.parametrize("is_between_batches", [True, False])
def test_a_client_that_stands_still_inside_of_an_append_does_not_keep_its_locks(
    postgres: Place, monkeypatch: pytest.MonkeyPatch, is_between_batches: bool
) -> None:
    for limit in ("IDLE_SECONDS", "LOCK_STEP_SECONDS"):
        monkeypatch.setattr(postgres_database, limit, 0.2)
    went_on: list[int] = []

    def stand_still(database: Database) -> None:
        assert isinstance(database, PostgresDatabase)
        database.hold("a")
        if is_between_batches:
            find_sound_end(database, "a")  # an append waits for this answer
        entry = said("a", 0, Text("by another"))
        went_on.append(postgres.run(lambda store: store.append("a", [entry], 0), lock_seconds=30.0).serial)
        find_sound_end(database, "a")

    async def use(store: PostgresStore) -> None:
        await store.create("a")
        (outcome,) = await asyncio.gather(store._write(stand_still), return_exceptions=True)
        if is_between_batches or outcome is not None:  # else the other was first at the lock when this was repeated
            assert isinstance(outcome, StoreError)
            assert outcome.code is ErrorCode.CONNECTION
        assert set(went_on) == {0}  # repeated on a new connection, and recognised
        assert (await store.append("a", [said("a", 1, Text("again"))], 1)).serial == 1

    postgres.run(use)


def test_a_client_that_sends_a_large_entry_for_long_keeps_its_lock(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("IDLE_SECONDS", "LOCK_STEP_SECONDS"):
        monkeypatch.setattr(postgres_database, limit, 0.1)
    entry = said("a", 0, Text("by another"))

    def send_slowly(database: Database) -> None:
        assert isinstance(database, PostgresDatabase)
        database.hold("a")
        database.connection.execute(postgres_database._LARGE)
        with pytest.raises(StoreError, match="locked for too long"):
            postgres.run(lambda store: store.append("a", [entry], 0), lock_seconds=1.0)

    async def use(store: PostgresStore) -> None:
        await store.create("a")
        await store._write(send_slowly)
        assert (await store.append("a", [said("a", 0, Text("x" * 2_000_000))], 0)).serial == 0

    postgres.run(use)


def test_it_keeps_no_more_connections_than_it_may(postgres: Place) -> None:
    async def use(store: PostgresStore) -> int:
        await asyncio.gather(*(store.create(f"s{number}") for number in range(20)))
        opened = await store.open("s1")
        assert len(opened.entries) == 0
        ours = f"WHERE application_name = '{postgres.schema}'"
        return int(postgres.scalar(f"SELECT count(*) FROM pg_stat_activity {ours}"))

    assert postgres.run(use, connections=3) <= 3


def test_a_long_append_goes_in_several_statements_and_is_one_transaction(postgres: Place) -> None:
    entries = [said("a", serial, *(Text(f"{number:04}" * 300) for number in range(7))) for serial in range(2_200)]

    async def use(store: PostgresStore) -> None:
        await store.create("a")
        assert (await store.append("a", entries, 0)).serial == 2_199
        assert await store.load("a") == tuple(entries)
        assert (await store.verify("a")).is_sound

    postgres.run(use)
    assert postgres.scalar("SELECT count(DISTINCT xmin::text) FROM entries") == 1


def test_commits_wait_for_the_disk_whatever_the_server_usually_does(postgres: Place) -> None:
    async def setting(value: str) -> str:
        conninfo = postgres.conninfo(options=f"-csynchronous_commit={value}")
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            found: str = await store._read(lambda database: database.execute("SHOW synchronous_commit").fetchone()[0])
            return found

    assert [asyncio.run(setting(value)) for value in ("off", "local", "on", "remote_apply")] == [
        "on",
        "on",
        "on",
        "remote_apply",
    ]


WITHOUT_PSYCOPG = """
import asyncio, sys
sys.modules["psycopg"] = None
import dragoman
store = dragoman.PostgresStore("host=127.0.0.1")
try:
    asyncio.run(store.head("a"))
except dragoman.MissingExtra as error:
    print(error)
"""


def test_without_the_extra_the_error_says_what_to_install() -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_PSYCOPG]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == (
        "",
        "PostgresStore needs an optional package: pip install 'dragoman[postgres]'\n",
    )


@pytest.mark.parametrize("schema", ["", "a-b", 'a"b', "Upper", "pg_mine", "1st", "x" * 41, None, 7])
def test_a_name_that_no_schema_can_have_is_refused(schema: object) -> None:
    with pytest.raises(InvalidValue, match="schema"):
        PostgresStore("", schema=schema)  # type: ignore[arg-type]  # that is the point


def test_what_the_document_shows_is_true(empty_postgres: Place) -> None:
    namespace: dict[str, Any] = {"__name__": "sessions"}
    for block in python_blocks((ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")):
        exec(compile(block, "sessions.md", "exec", dont_inherit=True), namespace)
    with empty_postgres.database() as conninfo:
        asyncio.run(namespace["share"](conninfo))


# ---------------------------------------------------------------- numbers


def test_a_missing_schema_is_told_with_the_command_that_makes_it(empty_postgres: Place) -> None:
    with pytest.raises(StoreError, match=r"is not there.*dragoman sessions migrate") as raised:
        empty_postgres.run(lambda store: store.create("a"))
    assert raised.value.code is ErrorCode.UNSUPPORTED
    assert empty_postgres.scalar(f"SELECT to_regnamespace('{empty_postgres.schema}')") is None


def test_many_may_migrate_at_once(empty_postgres: Place) -> None:
    async def run() -> None:
        stores = [empty_postgres.store() for _ in range(6)]
        assert await asyncio.gather(*(store.migrate() for store in stores)) == [LATEST] * 6
        await stores[0].create("a")
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(run())


def test_the_tables_are_those_that_the_page_promises_to_a_third_backend(postgres: Place) -> None:
    columns: dict[str, list[str]] = {}
    with postgres.raw() as connection:
        select = (
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s ORDER BY"
            " table_name, ordinal_position"
        )
        for table, column in connection.execute(select, (postgres.schema,)):
            columns.setdefault(table, []).append(column)
    require_documented(columns)


LATER = ("CREATE TABLE {schema}.later (a integer)", "INSERT INTO {schema}.later VALUES (1)")


def test_a_schema_that_lacks_a_migration_is_brought_up_to_date_and_keeps_its_sessions(postgres: Place) -> None:
    entries = stored(postgres, "a")["a"]
    for _ in range(2):
        with postgres.raw() as connection:
            migrate(connection, postgres.schema, (*MIGRATIONS, LATER))
    assert postgres.scalar("SELECT count(*) FROM later") == 1  # applied once
    numbers = ",".join(str(number) for number in range(1, LATEST + 2))
    assert postgres.scalar("SELECT string_agg(number::text, ',' ORDER BY number) FROM migrations") == numbers
    assert postgres.scalar("SELECT count(*) FROM entries") == len(entries)


def test_a_schema_of_an_older_number_is_refused_with_the_command_that_updates_it(postgres: Place) -> None:
    with (
        postgres.raw() as connection,
        pytest.raises(StoreError, match=rf"has number {LATEST}.*sessions migrate") as raised,
    ):
        require_current(connection, postgres.schema, LATEST + 1)
    assert raised.value.code is ErrorCode.UNSUPPORTED


def test_a_migration_that_fails_leaves_the_number_before_it_and_everything_else(postgres: Place) -> None:
    from psycopg import errors

    entries = stored(postgres, "a")["a"]
    failing = (*MIGRATIONS, (*LATER, "CREATE TABLE {schema}.sessions (in_the_way text)"))
    for _ in range(2):
        with postgres.raw() as connection, pytest.raises(errors.DuplicateTable):
            migrate(connection, postgres.schema, failing)
        assert postgres.scalar("SELECT max(number) FROM migrations") == LATEST
        assert postgres.scalar("SELECT to_regclass('later')") is None
    assert postgres.run(lambda store: store.load("a")) == entries


def test_a_schema_of_an_earlier_version_is_refused_with_advice_and_left_untouched(empty_postgres: Place) -> None:
    with empty_postgres.raw() as connection:
        connection.execute(f"CREATE SCHEMA {empty_postgres.schema}".encode())
        connection.execute("CREATE TABLE migrations (number integer)")
        connection.execute(f"COMMENT ON TABLE migrations IS '{EARLIER_MARK}'".encode())
        connection.execute("INSERT INTO migrations VALUES (4)")
    before = everything(empty_postgres)
    for use in (PostgresStore.migrate, lambda store: store.create("b")):
        with pytest.raises(StoreError, match=r"made by an earlier dragoman.*export .* import") as raised:
            empty_postgres.run(use)
        assert raised.value.code is ErrorCode.UNSUPPORTED
    assert everything(empty_postgres) == before


def everything(place: Place) -> list[str]:
    """Return what every table of the schema holds, and what the tables are."""
    with place.raw() as connection:
        names = (
            "SELECT relname, relkind::text, oid::text FROM pg_class WHERE relnamespace = %s::regnamespace ORDER BY 1"
        )
        found = connection.execute(names, (place.schema,)).fetchall()
        tables = [name for name, kind, _ in found if kind == "r"]
        rows = [connection.execute(f"SELECT t::text, xmin::text FROM {name} t".encode()).fetchall() for name in tables]
        return [*map(repr, found), *map(repr, rows)]


def test_a_newer_schema_is_refused_with_its_number_and_left_untouched(postgres: Place) -> None:
    stored(postgres, "a")
    with postgres.raw() as connection:
        connection.execute("INSERT INTO migrations VALUES (4711)")
    before = everything(postgres)
    for use in (PostgresStore.migrate, lambda store: store.load("a"), lambda store: store.create("b")):
        with pytest.raises(StoreError, match=rf"number 4711, this dragoman reads up to {LATEST}") as raised:
            postgres.run(use)
        assert raised.value.code is ErrorCode.TOO_NEW
    assert everything(postgres) == before


def test_a_schema_of_another_program_is_refused(empty_postgres: Place) -> None:
    with empty_postgres.raw() as connection:
        connection.execute(f"CREATE SCHEMA {empty_postgres.schema}".encode())
        connection.execute("CREATE TABLE migrations (number integer)")
    before = everything(empty_postgres)
    with pytest.raises(StoreError, match="not one of sessions"):
        empty_postgres.migrate()
    assert everything(empty_postgres) == before


# ---------------------------------------------------------------- what the database refuses


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET entry = '{}'",
        "UPDATE entries SET serial = 99 WHERE serial = 3",
        "DELETE FROM entries WHERE serial = 3",
        "TRUNCATE entries",
        "INSERT INTO entries SELECT session, serial, checksum, '{}' FROM entries WHERE serial = 3",
        "INSERT INTO entries SELECT * FROM entries ON CONFLICT (session, serial) DO UPDATE SET entry = '{}'",
        "INSERT INTO entries SELECT session, 77, checksum, entry FROM entries WHERE serial = 3",
        "INSERT INTO entries SELECT session, serial + 13, checksum, entry FROM entries WHERE serial IN (0, 2)",
        "INSERT INTO entries VALUES (12345, 0, '', '{}')",
        "MERGE INTO entries AS e USING sessions AS s ON s.key = e.session WHEN MATCHED THEN DELETE",
        "UPDATE sessions SET metadata = '{}'",
        "DELETE FROM sessions",
        "TRUNCATE sessions CASCADE",
        "UPDATE heads SET serial = 2",
        "DELETE FROM heads",
        "TRUNCATE heads",
        "UPDATE blobs SET data = ''",
        "DELETE FROM blobs",
        "TRUNCATE blobs CASCADE",
        "UPDATE pieces SET at = at + 1",
        "DELETE FROM pieces",
        "TRUNCATE pieces",
        "DELETE FROM tombstones",
        "TRUNCATE tombstones",
    ],
)
def test_the_database_itself_refuses_to_change_what_was_appended(statement: str, postgres: Place) -> None:
    entries = stored(postgres, "a", count=13)["a"]
    with postgres.raw() as connection, pytest.raises(psycopg.errors.IntegrityError):
        connection.execute(statement.encode())
    assert postgres.run(lambda store: store.load("a")) == entries


def test_what_is_erased_in_one_transaction_may_not_be_deleted_in_another(postgres: Place) -> None:
    entries = stored(postgres, "a")["a"]
    with postgres.raw() as connection:
        connection.execute("INSERT INTO erasing (session) SELECT key FROM sessions")
        with pytest.raises(psycopg.errors.IntegrityError):
            connection.execute("DELETE FROM entries")
    assert postgres.run(lambda store: store.load("a")) == entries
    postgres.run(lambda store: store.erase("a"))


def test_an_entry_that_somebody_adds_by_hand_moves_the_head(postgres: Place) -> None:
    stored(postgres, "a", count=13)
    with postgres.raw() as connection:
        connection.execute("INSERT INTO entries SELECT key, 13, 'wrong', '{}' FROM sessions")
    report = postgres.run(lambda store: store.verify("a"))
    assert (report.is_sound, report.bad_serial, report.head.serial) == (False, 13, 12)


# ---------------------------------------------------------------- damage


OF_A = "(SELECT key FROM sessions WHERE session_id = 'a')"


@pytest.mark.parametrize(
    ("damage", "bad_serial"),
    [
        (f"UPDATE entries SET entry = set_byte(entry, 30, 65) WHERE serial = 7 AND session = {OF_A}", 7),
        (f"UPDATE entries SET checksum = set_byte(checksum, 3, 65) WHERE serial = 7 AND session = {OF_A}", 7),
        (f"DELETE FROM entries WHERE serial = 7 AND session = {OF_A}", 7),
        (f"DELETE FROM entries WHERE serial = 12 AND session = {OF_A}", 12),
        ("UPDATE blobs SET data = set_byte(data, 100, get_byte(data, 100) # 1) WHERE length(data) = 20000", 2),
        ("UPDATE pieces SET at = at + 1 WHERE serial = 2", 2),
        ("DELETE FROM pieces WHERE serial = 2", 2),
        (f"UPDATE heads SET serial = 11 WHERE session = {OF_A}", 11),
        (f"UPDATE heads SET checksum = 'x' WHERE session = {OF_A}", 12),
        (f"DELETE FROM heads WHERE session = {OF_A}", -1),
        ("UPDATE sessions SET metadata = '{}' WHERE session_id = 'a'", -1),
        ("UPDATE sessions SET base = 3 WHERE session_id = 'a'", -1),
    ],
)
def test_damage_past_the_triggers_is_found_and_named(damage: str, bad_serial: int, postgres: Place) -> None:
    entries = stored(postgres, "a", "b", count=13)
    postgres.damage(damage)

    async def look(store: PostgresStore) -> None:
        report = await store.verify("a")
        assert (report.is_sound, report.bad_serial) == (False, bad_serial)
        with pytest.raises(StoreError) as raised:
            await store.load("a")
        assert raised.value.code is ErrorCode.CORRUPT
        if bad_serial > 0 and "heads" not in damage:
            assert await store.load("a", until_serial=bad_serial) == entries["a"][:bad_serial]
        if "blobs" not in damage and "pieces" not in damage:
            assert await store.load("b") == entries["b"]
            assert (await store.verify("b")).is_sound

    postgres.run(look)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET metadata = '{}' WHERE session_id = 'a'",
        f"UPDATE heads SET checksum = '', serial = -7 WHERE session = {OF_A}",
        f"DELETE FROM heads WHERE session = {OF_A}",
        f"UPDATE entries SET entry = 'x' WHERE serial = 12 AND session = {OF_A}",
    ],
)
def test_a_damaged_session_does_not_hide_the_others_and_can_be_erased(damage: str, postgres: Place) -> None:
    stored(postgres, "a", "b", count=13)
    postgres.damage(damage)

    async def look(store: PostgresStore) -> None:
        page = await store.list()
        assert ([info.session_id for info in page.sessions], page.damaged) == (["b"], ("a",))
        assert (await store.erase("a")).entries == 13
        assert (await store.list()).damaged == ()
        assert (await store.verify("b")).is_sound

    postgres.run(look)


def test_content_that_is_damaged_is_not_used_for_what_is_new(postgres: Place) -> None:
    picture = os.urandom(50_000)

    async def append(store: PostgresStore, serial: int) -> None:
        await store.append("a", [said("a", serial, Image("image/png", picture))], serial)

    postgres.run(lambda store: store.create("a"))
    postgres.run(lambda store: append(store, 0))
    postgres.damage("UPDATE blobs SET data = set_byte(data, 100, get_byte(data, 100) # 1)")
    with pytest.raises(StoreError, match="damaged"):
        postgres.run(lambda store: append(store, 1))
    assert postgres.run(lambda store: store.head("a")).serial == 0


def test_a_picture_that_several_say_at_once_is_kept_once(postgres: Place) -> None:
    pictures = [Image("image/png", os.urandom(20_000)) for _ in range(4)]
    names = [f"s{number}" for number in range(8)]

    async def use(store: PostgresStore) -> None:
        await asyncio.gather(*(store.create(name) for name in names))
        for serial in range(5):
            order = pictures if serial % 2 else pictures[::-1]
            await asyncio.gather(*(store.append(name, [said(name, serial, *order)], serial) for name in names))
        for name in names:
            assert (await store.verify(name)).head.serial == 4

    postgres.run(use, connections=8)
    assert postgres.scalar("SELECT count(*) FROM blobs") == 4


# ---------------------------------------------------------------- erasing


def marked(name: str, serial: int) -> HistoryEntry:
    word = f"<{name}:{serial}>" * (3 if serial % 3 else 200)
    parts: list[Text | Image] = [Text(word)]
    if serial % 5 == 0:
        parts.append(Image("image/png", f"[{name}-picture-{serial}]".encode() * 400))
    if serial % 7 == 0:
        parts.append(Text("<everybody>" * 500))
    return said(name, serial, *parts)


def marks_of(name: str) -> Iterator[bytes]:
    yield f"<{name}:".encode()
    yield f"[{name}-picture".encode()


def files_of(place: Place) -> bytes:
    """Return the files of the database in one: tables, what they keep apart, indexes, the catalogue."""
    if place.server.data is None:
        pytest.skip("the files of the server that PG_DSN names cannot be read")
    with place.raw() as connection:
        connection.execute("CHECKPOINT")
        (number,) = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone() or (
            0,
        )
    return b"".join(path.read_bytes() for path in sorted((place.server.data / "base" / str(number)).iterdir()))


def write_marked(place: Place, *names: str, count: int = 40) -> None:
    async def write(store: PostgresStore) -> None:
        for name in names:
            await store.create(name, metadata={"note": f"<{name}:note>"})
        for serial in range(count):
            await asyncio.gather(*(store.append(name, [marked(name, serial)], serial) for name in names))

    place.run(write)


@pytest.mark.slow  # many seconds
def test_nothing_of_an_erased_session_is_left_in_any_file_of_the_database(postgres: Place) -> None:
    with postgres.raw() as connection:  # so that what is kept apart can be recognised in the files
        for table, column in (("entries", "entry"), ("blobs", "data"), ("snapshots", "data")):
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL".encode())
    write_marked(postgres, "going", "staying")
    with postgres.raw() as connection:
        connection.execute("ANALYZE entries, sessions, blobs, snapshots")
    before = files_of(postgres)
    assert all(mark in before for name in ("going", "staying") for mark in marks_of(name))

    async def erase(store: PostgresStore) -> None:
        await store.fork("going", 20, new_session_id="fork")
        await store.append("fork", [said("fork", 21, Text("<going:fork>"))], 21)
        await store.erase("going", forks=["fork"])
        assert await store.load("staying") == tuple(marked("staying", serial) for serial in range(40))

    postgres.run(erase)
    after = files_of(postgres)
    assert not any(mark in after for mark in marks_of("going"))
    assert all(mark in after for mark in marks_of("staying"))
    assert b"<everybody>" in after
    assert postgres.scalar("SELECT count(*) FROM cleanings") == 0


def test_shared_content_goes_with_its_last_user(postgres: Place) -> None:
    write_marked(postgres, "a", "b", count=8)
    shared = "SELECT count(*) FROM blobs WHERE position('<everybody>'::bytea in data) = 1"

    async def erase(store: PostgresStore) -> None:
        await store.erase("a")
        assert postgres.scalar(shared) == 1
        await store.erase("b")

    postgres.run(erase)
    assert postgres.scalar("SELECT count(*) FROM blobs") == 0


def test_what_another_transaction_still_sees_is_told_and_cleaned_when_it_is_over(postgres: Place) -> None:
    write_marked(postgres, "going", count=3)
    with postgres.raw() as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")  # from now on it keeps what it could look at
        with pytest.raises(StoreError, match="still open can see it; erase again") as raised:
            postgres.run(lambda store: store.erase("going"), lock_seconds=0.1)
        assert raised.value.code is ErrorCode.TIMEOUT
        assert postgres.scalar("SELECT count(*) FROM cleanings") == 1
        old.execute("COMMIT")
    assert postgres.run(lambda store: store.erase("going")).entries == 3
    assert postgres.scalar("SELECT count(*) FROM cleanings") == 0


def test_a_table_that_is_in_use_for_too_long_is_told(postgres: Place) -> None:
    write_marked(postgres, "going", count=3)
    with postgres.raw() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM blobs")
        with pytest.raises(StoreError, match="erase again") as raised:
            postgres.run(lambda store: store.erase("going"), lock_seconds=0.1)
        assert raised.value.code is ErrorCode.TIMEOUT
        reader.execute("ROLLBACK")
    postgres.run(lambda store: store.erase("going"))
    assert postgres.scalar("SELECT count(*) FROM cleanings") == 0


@pytest.mark.slow  # many seconds
def test_sessions_are_erased_while_others_append_and_fork(postgres: Place) -> None:
    picture = Image("image/png", os.urandom(9_000))

    async def use(store: PostgresStore) -> None:
        await store.create("trunk")
        await store.append("trunk", [said("trunk", 0, picture)], 0)

        async def live(name: str) -> None:
            for turn in range(4):
                each = f"{name}-{turn}"
                await store.fork("trunk", 0, new_session_id=each)
                for serial in range(1, 6):
                    await store.append(each, [said(each, serial, Text(each), picture)], serial)
                assert (await store.erase(each)).entries == 5

        await asyncio.gather(*(live(name) for name in ("a", "b", "c", "d")))
        assert (await store.verify("trunk")).is_sound
        assert [info.session_id for info in (await store.list()).sessions] == ["trunk"]

    postgres.run(use, connections=6)
    assert postgres.scalar("SELECT count(*) FROM blobs") == 1


def test_a_session_is_created_once_whoever_asks(postgres: Place) -> None:
    async def run() -> None:
        stores = [postgres.store() for _ in range(4)]
        made = await asyncio.gather(
            *(store.create("one") for store in stores for _ in range(4)), return_exceptions=True
        )
        codes = [outcome.code for outcome in made if isinstance(outcome, StoreError)]
        assert (len(codes), set(codes)) == (15, {ErrorCode.CONFLICT})
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(run())
