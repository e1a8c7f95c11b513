"""The small parts that all stores are made of: the chain, notices, lazy entries, lists, owners of leases."""

import asyncio
import inspect
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import ErrorCode, InvalidValue, MemoryStore, StoreError, start_session
from dragoman.history import ModelInputEntry
from dragoman.store import PostgresStore, Snapshot, SQLiteStore, leases, protocol, session
from dragoman.store.chain import chained, checked, digest_of
from dragoman.store.following import Notices
from dragoman.store.lazy import LazyEntries
from dragoman.store.listing import ListQuery
from dragoman.store.protocol import START
from dragoman.store.snapshots import name_snapshot, take_snapshot
from dragoman.store.sql_rows import _listed
from dragoman.store.sqlite_database import SQLiteDatabase
from dragoman.store.sqlite_files import is_open_here
from dragoman.store.sqlite_schema import _with_log, connect, store_error
from dragoman.testing.stores import sample_entries
from tests.agent_cases import run
from tests.postgres_server import Place
from tests.store_cases import stored, with_flipped_byte, with_store

# ---------------------------------------------------------------- the chain


def rows_of(*entries: bytes) -> list[tuple[int, bytes, bytes]]:
    rows, checksum = [], START
    for serial, entry in enumerate(entries):
        checksum = chained(checksum, entry)
        rows.append((serial, entry, checksum))
    return rows


def test_rows_of_a_chain_are_yielded_as_they_were_appended() -> None:
    rows = rows_of(b"a", b"b", b"c")
    assert list(checked(rows, 0, START)) == [b"a", b"b", b"c"]
    assert list(checked(rows[2:], 2, rows[1][2])) == [b"c"]


def test_a_missing_entry_is_told_even_if_the_others_were_chained_anew() -> None:
    (_, first, checksum), (_, second, after) = rows_of(b"a", b"b")
    rows = checked([(0, first, checksum), (2, second, after)], 0, START)
    assert next(rows) == b"a"
    with pytest.raises(StoreError, match="serial 1 is missing") as raised:
        next(rows)
    assert raised.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("serial", [0, 1, 2])
def test_rows_that_begin_elsewhere_are_not_the_ones_that_were_asked_for(serial: int) -> None:
    rows = rows_of(b"a", b"b", b"c", b"d")
    with pytest.raises(StoreError, match=f"serial {serial} is missing"):
        list(checked(rows[serial + 1 :], serial, rows[serial][2]))


# ---------------------------------------------------------------- notices


def test_a_follower_that_comes_after_the_end_does_not_wait() -> None:
    async def use() -> None:
        notices = Notices()
        notices.close()
        assert notices.expect("s").done()

    run(use())


def test_no_follower_is_remembered_after_it_has_ended() -> None:
    async def use() -> None:
        notices = Notices()
        first, second = notices.expect("s"), notices.expect("s")
        notices.forget("s", first)
        notices.tell(["s"])
        await asyncio.sleep(0)
        assert (first.done(), second.done()) == (False, True)
        notices.forget("s", second)
        notices.forget("s", second)  # and again
        assert notices._waiting == {}

    run(use())


def test_a_follower_of_a_session_that_is_erased_is_told_so() -> None:
    async def use() -> None:
        store = MemoryStore()
        started = await start_session(store, "s")
        await started.append_model_input("one")
        follower = store.follow("s")
        assert (await anext(follower)).serial == 0
        waiting = asyncio.ensure_future(anext(follower))
        for _ in range(10):
            await asyncio.sleep(0)
        await store.erase("s")
        with pytest.raises(StoreError, match="was erased"):
            await waiting

    run(use())


# ---------------------------------------------------------------- entries that are read when they are asked for


def test_an_index_outside_of_lazy_entries_is_an_error_at_both_ends() -> None:
    entries = sample_entries("s", 3)
    lazy = LazyEntries(3, _no_page, entries)
    assert [lazy[index] for index in (-3, -1, 0, 2)] == [entries[0], entries[2], entries[0], entries[2]]
    for index in (-4, 3):
        with pytest.raises(IndexError, match=f"index {index} of 3 entries"):
            lazy[index]


def _no_page(_first: int, _end: int) -> Sequence[bytes]:
    raise AssertionError("all of them were read already")


# ---------------------------------------------------------------- lists and other questions


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_page_beyond_all_numbers_that_a_database_has_is_refused(kind: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db") as store:
            assert (await store.list(page="9" * 18)).sessions == ()
            with pytest.raises(InvalidValue, match="page"):
                await store.list(page="9" * 19)

    run(use())


def listing(**wanted: Any) -> ListQuery:
    nothing: dict[str, Any] = {
        "metadata": {},
        "forks_of": None,
        "created_from": None,
        "created_before": None,
        "limit": 5,
        "page": None,
    }
    return ListQuery.of(**{**nothing, **wanted})


@pytest.mark.parametrize("page", [5, "", "-1", "1.0", "²", "१"])
def test_what_is_no_next_page_is_refused(page: Any) -> None:
    with pytest.raises(InvalidValue, match="page"):
        listing(page=page)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("ask", ["head", "info", "load", "open", "verify", "erase", "tombstone", "find_lease"])
def test_what_is_no_id_is_refused_by_every_question(kind: str, ask: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db") as store:
            for wrong in (7, None, ""):
                with pytest.raises(InvalidValue, match="session_id"):
                    await getattr(store, ask)(wrong)

    run(use())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_closed_store_does_nothing_any_more(kind: str, tmp_path: Path) -> None:
    async def use() -> None:
        store: MemoryStore | SQLiteStore = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db")
        for name in ("s", "gone"):
            await store.create(name)
        await store.erase("gone")
        lease = await store.acquire_lease("s")
        await store.close()
        asked: list[Callable[[], Any]] = [
            lambda: store.create("t"),
            lambda: store.append("s", sample_entries("s", 1), 0),
            lambda: store.erase("s"),
            lambda: store.erase("gone"),
            lambda: store.tombstone("gone"),
            lambda: store.acquire_lease("s"),
            lambda: store.renew_lease(lease),
            lambda: store.find_lease("s"),
            lambda: store.load("s"),
            lambda: store.open("s"),
            lambda: store.head("s"),
            lambda: store.info("s"),
            lambda: store.list(),
            lambda: store.verify("s"),
            lambda: store.fork("s", -1),
            lambda: store.drop_snapshots("s"),
        ]
        for ask in asked:
            with pytest.raises(StoreError, match="closed"):
                await ask()

    run(use())


@pytest.mark.parametrize("module", [protocol, session])
def test_no_value_that_a_store_hands_out_can_be_changed(module: Any) -> None:
    values = [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, msgspec.Struct)]
    assert [each for each in values if not each.__struct_config__.frozen] == []


# ---------------------------------------------------------------- SQLite


def test_what_reads_a_file_cannot_change_it(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            await store.create("s")
            with pytest.raises(StoreError):
                await store._read(lambda database: database.execute("CREATE TABLE extra (name)"))
            assert (await store.info("s")).session_id == "s"

    run(use())


def test_a_store_waits_as_long_for_other_writers_as_it_was_told(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db", busy_seconds=7) as store:
            ask = "PRAGMA busy_timeout"
            assert await store._read(lambda database: database.execute(ask).fetchone()) == (7_000,)
            assert await store._writer.run(lambda database: database.execute(ask).fetchone(), alone=True) == (7_000,)

    run(use())


NO_SPANS: tuple[Any, ...] = (-1, float("nan"), float("inf"), 1e10, "x", None, True)
SPANS = [
    *((SQLiteStore, "busy_seconds", seconds) for seconds in NO_SPANS),  # 0 says not to wait
    *((SQLiteStore, "poll_seconds", seconds) for seconds in (0, *NO_SPANS)),
    *((PostgresStore, f"{name}_seconds", each) for name in ("lock", "poll", "statement") for each in (0, *NO_SPANS)),
]


@pytest.mark.parametrize(("kind", "name", "seconds"), SPANS)
def test_a_store_refuses_seconds_that_are_no_span_of_time(kind: type[Any], name: str, seconds: Any) -> None:
    with pytest.raises(InvalidValue, match=name):
        kind("not opened", **{name: seconds})


def test_the_longest_span_is_not_taken_for_none(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db", busy_seconds=1e9, poll_seconds=1e9) as store:
            ask = "PRAGMA busy_timeout"
            assert await store._read(lambda database: database.execute(ask).fetchone()) == (2_147_483_000,)
            assert await store._writer.run(lambda database: database.execute(ask).fetchone(), alone=True) == (
                2_147_483_000,
            )

    run(use())


def test_the_longest_spans_are_settings_of_a_server(postgres: Place) -> None:
    async def use(store: PostgresStore) -> str:
        await store.create("s")
        return await store._read(lambda database: str(database.execute("SHOW lock_timeout").fetchone()[0]))

    assert postgres.run(use, lock_seconds=1e9, statement_seconds=1e9, poll_seconds=1e9) == "2147483647ms"


def test_a_connection_that_comes_back_to_a_closed_store_is_closed(tmp_path: Path) -> None:
    async def use() -> None:
        store = SQLiteStore(tmp_path / "s.db")
        await store.create("s")
        await store.head("s")
        connection = store._take_idle()
        assert connection is not None
        await store.close()
        store._put_back(connection)
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")

    run(use())
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


def test_a_file_is_open_here_until_the_last_store_of_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def use() -> None:
        first, second = SQLiteStore(path), SQLiteStore(path)
        assert not is_open_here(path)
        await first.create("a")
        assert is_open_here(path)
        await second.create("b")
        await first.close()
        assert is_open_here(path)
        await second.close()
        await second.close()
        assert not is_open_here(path)
        assert not is_open_here(tmp_path / "none.db")

    run(use())


def test_looking_whether_a_file_is_sound_does_not_change_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE other (name)")  # without a log, as another program would make it
    before = path.read_bytes()
    assert SQLiteStore(path)._is_sound()
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (before, ["s.db"])


SQLITE_CODES = {
    "SQLITE_FULL": ErrorCode.QUOTA_EXCEEDED,
    "SQLITE_READONLY": ErrorCode.PERMISSION,
    "SQLITE_READONLY_DIRECTORY": ErrorCode.PERMISSION,
    "SQLITE_PERM": ErrorCode.PERMISSION,
    "SQLITE_CANTOPEN": ErrorCode.PERMISSION,
    "SQLITE_BUSY": ErrorCode.TIMEOUT,
    "SQLITE_BUSY_SNAPSHOT": ErrorCode.TIMEOUT,
    "SQLITE_LOCKED": ErrorCode.TIMEOUT,
    "SQLITE_PROTOCOL": ErrorCode.TIMEOUT,
    "SQLITE_CORRUPT": ErrorCode.CORRUPT,
    "SQLITE_NOTADB": ErrorCode.CORRUPT,
    "SQLITE_CONSTRAINT": ErrorCode.CORRUPT,
    "SQLITE_ERROR": ErrorCode.CORRUPT,
    "SQLITE_IOERR": ErrorCode.SERVER_ERROR,
    "SQLITE_TOOBIG": ErrorCode.INVALID_REQUEST,
    "SQLITE_INTERNAL": ErrorCode.INTERNAL,
}


@pytest.mark.parametrize(("name", "code"), SQLITE_CODES.items())
def test_an_error_of_sqlite_has_a_code_of_ours(name: str, code: ErrorCode) -> None:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorname = name
    told = store_error(error, Path("folder/s.db"))
    assert told.code is code
    assert f"{name}: as SQLite says it" in str(told)


def test_a_connection_to_what_is_no_database_raises_what_sqlite_says(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        connect(path, busy_seconds=1)


class Unlocking(sqlite3.Connection):
    """A connection that lets another one end its transaction after an error."""

    other: sqlite3.Connection
    errors = 0

    def execute(self, *given: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*given)
        except sqlite3.Error:
            self.errors += 1
            self.other.execute("ROLLBACK")
            raise


def test_the_log_is_turned_on_once_another_connection_has_ended_its_transaction(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with (
        closing(sqlite3.connect(path, isolation_level=None, timeout=0, factory=Unlocking)) as connection,
        closing(other),
    ):
        connection.other = other
        assert (_with_log(connection, 60), connection.errors) == ("wal", 1)


def test_turning_the_log_on_does_not_wait_longer_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        with closing(connection), pytest.raises(sqlite3.OperationalError, match="locked"):
            _with_log(connection, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER extra AFTER INSERT ON entries BEGIN DELETE FROM pieces; END",
        "CREATE VIEW extra AS SELECT * FROM entries",
    ],
)
def test_a_file_with_triggers_or_views_of_others_is_refused(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "s", count=2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    with pytest.raises(StoreError, match="'extra' is not one of a store") as raised:
        with_store(path, lambda store: store.head("s"))
    assert raised.value.code is ErrorCode.CORRUPT


def test_one_unreadable_row_does_not_take_its_neighbour_off_a_small_page(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "the-first", "the-other", count=3)
    with_flipped_byte(path, path.read_bytes().index(b"the-other2") + 4, 0x80)
    page = with_store(path, lambda store: store.list(limit=1))
    assert ([info.session_id for info in page.sessions], len(page.damaged)) == (["the-first"], 1)


class Torn(SQLiteDatabase):
    """A database in which no query can read all that is known of the session `bad`."""

    def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
        if "FROM sessions" in statement and "metadata" in statement:
            for row in super().execute(statement, *given):
                if row[1] == "bad":
                    raise sqlite3.DatabaseError("database disk image is malformed")
        return super().execute(statement, *given)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_page_names_the_session_that_the_database_cannot_read_and_no_other(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "old", "bad", "new", count=1)
    with closing(sqlite3.connect(path, isolation_level=None, factory=Torn)) as database:
        listed = list(_listed(database, listing(limit=limit)))
    assert [each if isinstance(each, str) else each.session_id for _, each in listed] == ["new", "bad", "old"]
    assert [each for _, each in listed if isinstance(each, str)] == ["bad"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("created_at", "'yesterday'"), ("metadata", "x'5b'"), ("metadata", "x'5b5d'"), ("created_at", "5")],
)
def test_a_forged_record_that_cannot_be_read_is_corrupt_though_its_checksum_is_right(
    column: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    stored(path, "s", count=2)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(f"UPDATE sessions SET {column} = {value}")
    *values, _ = connection.execute("SELECT * FROM sessions").fetchone()
    connection.execute("UPDATE sessions SET record = ?", (digest_of(*values),))
    connection.close()
    with pytest.raises(StoreError, match="record of session 's' cannot be read") as raised:
        with_store(path, lambda store: store.head("s"))
    assert raised.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("at", ["the first entry", "the base of a fork", "the first entry of a fork"])
def test_a_snapshot_of_any_entry_is_found_and_its_change_is_told(kind: str, at: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db") as store:
            session = await start_session(store, "s")
            await session.append_model_input("one")
            if "fork" in at:
                session = await session.fork(0, new_session_id="f")
            if at == "the first entry of a fork":
                await session.append_model_input("mine")
            name, snapshot = session.session_id, take_snapshot(session.state.derived)
            assert snapshot is not None
            naming = name_snapshot(snapshot, ModelInputEntry.of("two"))
            assert naming is not None
            await session.append(naming)
            await store.keep_snapshot(name, snapshot)
            assert (await store.open(name)).snapshot == snapshot
            assert (await store.verify(name)).is_sound
            await store.keep_snapshot(name, Snapshot(snapshot.serial, b"forged"))
            report = await store.verify(name)
            assert (report.bad_serial, "is not the one that was kept" in report.problem) == (snapshot.serial, True)

    run(use())


# ---------------------------------------------------------------- owners of leases


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says which boot this is")
def test_time_is_counted_since_this_boot() -> None:
    now, boot = leases.machine_time(), Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert now.boot == f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    assert 0 < now.uptime <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert now.after(2.0) == (now.wall + 2.0, now.boot, now.uptime + 2.0)


@pytest.mark.parametrize("unknown", ["_boot_id", "_namespace", "_start_of"])
def test_a_process_of_which_anything_is_unknown_is_on_no_machine(unknown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, unknown, lambda *_given: "")
    owner = leases._owner.__wrapped__(os.getpid())
    assert (owner.machine, owner.pid) == ("", os.getpid())
    assert not leases.is_gone(owner)


@pytest.mark.parametrize("unknown", ["_boot_id", "_namespace"])
def test_a_boot_of_which_anything_is_unknown_has_no_clock(unknown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, unknown, lambda *_given: "")
    assert leases._boot.__wrapped__() == ""
