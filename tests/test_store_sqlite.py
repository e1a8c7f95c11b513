"""The SQLite store's own promises: its file, its numbers, what the database itself refuses, and what erasing leaves."""

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman import ErrorCode, Image, InvalidValue, StoreError, Text
from dragoman.history import HistoryEntry, ModelInputEntry
from dragoman.store import AppendConflict, SQLiteStore, sqlite_schema
from dragoman.store.sql_changes import erase_session
from dragoman.store.sqlite_schema import EARLIER_ID, MIGRATIONS, connect, migrate, prepare_file
from dragoman.testing.stores import append_all, sample_entries
from tests.store_cases import crash_image, require_documented, stored, with_flipped_byte, with_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATEST = len(MIGRATIONS)
AFTER_3 = "session, 4, position"
AFTER_11 = "session, 12, position"


def said(session_id: str, serial: int, *parts: Text | Image) -> HistoryEntry:
    return ModelInputEntry(parts, serial=serial, entry_id=f"{session_id}:{serial}", timestamp=NOW)


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def scalar(path: Path, query: str) -> Any:
    connection = raw(path)
    try:
        return connection.execute(query).fetchone()[0]
    finally:
        connection.close()


# ---------------------------------------------------------------- the file


def test_the_file_and_its_log_are_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "s.db"
    before = os.umask(0)
    try:

        async def look(store: SQLiteStore) -> dict[str, int]:
            await store.create("a")
            return {
                each.name: stat.S_IMODE(each.stat().st_mode) for each in (*path.parents[:2], *path.parent.iterdir())
            }

        modes = with_store(path, look)
    finally:
        os.umask(before)
    assert modes == {"new": 0o700, "folder": 0o700, "s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}


def test_the_settings_are_those_that_survive_a_power_cut(tmp_path: Path) -> None:
    connection = connect(_created(tmp_path / "s.db"), busy_seconds=1)
    settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    connection.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2}


def _created(path: Path) -> Path:
    with_store(path, lambda store: store.create("a"))
    return path


def test_closing_leaves_one_file(tmp_path: Path) -> None:
    stored(tmp_path / "s.db", "a")
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_nothing_is_created_before_the_first_use(tmp_path: Path) -> None:
    asyncio.run(SQLiteStore(tmp_path / "s.db").close())
    assert list(tmp_path.iterdir()) == []


def test_two_stores_may_create_one_file_at_the_same_time(tmp_path: Path) -> None:
    async def run() -> None:
        stores = [SQLiteStore(tmp_path / "s.db") for _ in range(6)]
        await asyncio.gather(*(store.create(f"s{number}") for number, store in enumerate(stores)))
        assert len((await stores[0].list()).sessions) == 6
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(run())


def test_a_file_that_is_made_while_it_is_looked_at_is_no_foreign_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    path.touch()
    maker, ask = connect(path, busy_seconds=1), sqlite_schema._number

    def ask_late(connection: sqlite3.Connection) -> int:
        monkeypatch.setattr(sqlite_schema, "_number", ask)
        migrate(maker, path)
        return ask(connection)

    monkeypatch.setattr(sqlite_schema, "_number", ask_late)
    assert path.stat().st_size  # the maker has turned the log on
    prepare_file(path, busy_seconds=1)
    assert ask(maker) == LATEST
    maker.close()


def test_one_store_serves_several_event_loops(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    asyncio.run(store.create("a"))
    asyncio.run(append_all(store, "a", sample_entries("a")))
    assert asyncio.run(store.load("a")) == sample_entries("a")
    asyncio.run(store.close())


@pytest.mark.parametrize("asked", ["create", "append", "load"])
def test_a_store_is_not_carried_into_a_forked_process(asked: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    child = os.fork()
    if not child:
        given = (sample_entries("a"), 0) if asked == "append" else ()
        try:
            asyncio.run(getattr(store, asked)("a", *given))
        except InvalidValue:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    asyncio.run(store.close())


# ---------------------------------------------------------------- numbers


def test_the_tables_are_those_that_the_page_promises_to_a_third_backend(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "a")
    connection = raw(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    connection.close()
    require_documented(columns)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_file_of_an_earlier_version_is_refused_with_advice_and_left_untouched(number: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    connection = raw(path)
    connection.execute(f"PRAGMA application_id = {EARLIER_ID}")
    connection.execute("CREATE TABLE sessions (key INTEGER PRIMARY KEY)")
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"s\.db was written by an earlier dragoman.*export .* import") as raised:
        with_store(path, lambda store: store.create("a"))
    assert raised.value.code is ErrorCode.UNSUPPORTED
    assert path.read_bytes() == before


def test_a_database_that_lacks_a_migration_is_brought_up_to_date_and_keeps_its_sessions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "a")
    later = (*MIGRATIONS, ("CREATE TABLE later (a)", "INSERT INTO later VALUES (1)"))
    connection, other = connect(path, busy_seconds=1), connect(path, busy_seconds=1)
    for each in (connection, other, connection):
        migrate(each, path, later)
    connection.close()
    other.close()
    assert scalar(path, "PRAGMA user_version") == LATEST + 1
    assert scalar(path, "SELECT count(*) FROM later") == 1  # applied once
    assert scalar(path, "SELECT count(*) FROM entries") == len(sample_entries("a"))


def test_a_migration_that_fails_leaves_the_number_before_it_and_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "a")
    failing = (*MIGRATIONS, ("CREATE TABLE later (a)", "CREATE TABLE sessions (in_the_way)"))
    connection = connect(path, busy_seconds=1)
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            migrate(connection, path, failing)
        assert scalar(path, "PRAGMA user_version") == LATEST
        assert scalar(path, "SELECT count(*) FROM sqlite_master WHERE name = 'later'") == 0
    connection.close()
    assert with_store(path, lambda store: store.load("a")) == sample_entries("a")


@pytest.mark.parametrize("is_in_log", [False, True], ids=["in the file", "in the log alone"])
def test_a_newer_database_is_refused_with_its_number_and_left_untouched(is_in_log: bool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "a")
    connection = raw(path)
    connection.execute("PRAGMA user_version = 4711")
    if is_in_log:
        path = crash_image(path, tmp_path / "image")
    else:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    with pytest.raises(StoreError, match=rf"number 4711, this dragoman reads up to {LATEST}") as raised:
        with_store(path, lambda store: store.load("a"))
    assert raised.value.code is ErrorCode.TOO_NEW
    after = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    after.pop("s.db-shm", None)  # says nothing: it is made anew from the log
    assert after == before


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    connection = raw(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database of sessions"):
        with_store(path, lambda store: store.create("a"))
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"Dear diary, today I met a database. " * 100)
    with pytest.raises(StoreError) as raised:
        with_store(path, lambda store: store.create("a"))
    assert raised.value.code is ErrorCode.CORRUPT


# ---------------------------------------------------------------- what the database refuses


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET entry = x'7b7d'",
        "UPDATE entries SET serial = 99 WHERE serial = 3",
        "DELETE FROM entries WHERE serial = 3",
        "DELETE FROM entries",
        f"INSERT OR REPLACE INTO entries SELECT position, {AFTER_3}, checksum, x'7b7d' FROM entries WHERE serial = 3",
        f"INSERT OR REPLACE INTO entries SELECT 1, {AFTER_11}, checksum, entry FROM entries WHERE serial = 11",
        f"INSERT INTO entries SELECT NULL, {AFTER_3}, checksum, entry FROM entries WHERE serial = 3",
        "INSERT INTO entries SELECT NULL, session, 77, position, checksum, entry FROM entries WHERE serial = 11",
        "INSERT INTO entries SELECT NULL, session, 12, previous, checksum, entry FROM entries WHERE serial = 11",
        "INSERT INTO entries SELECT NULL, session, 11, position, checksum, entry FROM entries WHERE serial = 11",
        "INSERT INTO entries VALUES (NULL, 12345, 0, 0, x'00', x'7b7d')",
        "UPDATE sessions SET metadata = x'7b7d'",
        "DELETE FROM sessions",
        "INSERT OR REPLACE INTO sessions SELECT * FROM sessions",
        "UPDATE blobs SET data = x'00'",
        "DELETE FROM blobs",
        "UPDATE pieces SET at = at + 1",
        "DELETE FROM pieces",
    ],
)
def test_the_database_itself_refuses_to_change_what_was_appended(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a")["a"]
    connection = raw(path)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    connection.close()
    assert with_store(path, lambda store: store.load("a")) == entries


def test_a_conflict_in_a_transaction_of_many_leaves_the_others_alone(tmp_path: Path) -> None:
    async def run(store: SQLiteStore) -> None:
        for name in ("a", "b", "c"):
            await store.create(name)
        first = [said(name, 0, Text(name)) for name in ("a", "b", "c")]
        rival = said("a", 0, Text("rival"))
        calls = [store.append("a", [first[0]], 0), store.append("a", [rival], 0), store.append("b", [first[1]], 0)]
        outcomes = await asyncio.gather(*calls, store.append("nobody", [rival], 0), return_exceptions=True)
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds == ["Head", "AppendConflict", "Head", "StoreError"]
        assert await store.load("a") == (first[0],)

    with_store(tmp_path / "s.db", run)


def commits_in_log(path: Path) -> int:
    """Count the transactions in a log: a frame that ends one says how large the database is then."""
    data = path.with_name(path.name + "-wal").read_bytes()
    frames = range(32, len(data), 24 + 4096)
    return sum(data[place + 8 : place + 16] == data[16:24] and any(data[place + 4 : place + 8]) for place in frames)


def test_appends_of_many_sessions_at_once_share_their_syncs(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def run(store: SQLiteStore) -> int:
        names = [f"s{number}" for number in range(32)]
        await asyncio.gather(*(store.create(name) for name in names))
        before = commits_in_log(path)

        async def write(name: str) -> None:
            for serial in range(5):
                await store.append(name, [said(name, serial, Text("x"))], serial)

        await asyncio.gather(*(write(name) for name in names))
        return commits_in_log(path) - before

    assert 5 <= with_store(path, run) <= 10  # of 160 appends


# ---------------------------------------------------------------- blobs


def test_a_picture_is_kept_once_however_often_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    picture = Image("image/png", os.urandom(200_000))
    entries = [said("a", serial, Text(f"again {serial}"), picture) for serial in range(20)]

    async def write(store: SQLiteStore) -> None:
        await store.create("a")
        await append_all(store, "a", entries)
        assert await store.load("a") == tuple(entries)

    with_store(path, write)
    assert path.stat().st_size < 320_000
    assert scalar(path, "SELECT count(*) FROM blobs") == 1
    assert scalar(path, "SELECT length(data) FROM blobs") == 200_000  # as it is, not as Base64


def test_content_that_is_damaged_is_not_used_for_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    picture = os.urandom(50_000)

    async def append(store: SQLiteStore, serial: int) -> None:
        await store.append("a", [said("a", serial, Image("image/png", picture))], serial)

    with_store(path, lambda store: store.create("a"))
    with_store(path, lambda store: append(store, 0))
    with_flipped_byte(path, path.read_bytes().index(picture[1000:1040]))
    with pytest.raises(StoreError, match="damaged"):
        with_store(path, lambda store: append(store, 1))
    assert with_store(path, lambda store: store.head("a")).serial == 0


# ---------------------------------------------------------------- erasing


def marked(name: str, serial: int) -> HistoryEntry:
    word = f"<{name}:{serial}>" * (3 if serial % 3 else 200)
    parts: list[Text | Image] = [Text(word)]
    if serial % 5 == 0:
        parts.append(Image("image/png", f"[{name}-picture-{serial}]".encode() * 400))
    if serial % 7 == 0:
        parts.append(Text("<everybody>" * 500))
    return said(name, serial, *parts)


def interleaved(path: Path, names: tuple[str, ...], count: int) -> None:
    async def write(store: SQLiteStore) -> None:
        for name in names:
            await store.create(name, metadata={"note": f"<{name}:note>"})
        for serial in range(count):
            await asyncio.gather(*(store.append(name, [marked(name, serial)], serial) for name in names))

    with_store(path, write)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def marks_of(name: str) -> Iterator[bytes]:
    yield f"<{name}:".encode()
    yield f"[{name}-picture".encode()


def test_nothing_of_an_erased_session_is_left_in_the_file_or_its_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    names = ("going", "staying", "other")
    interleaved(path, names, 60)
    assert all(mark in everything_in(tmp_path) for name in names for mark in marks_of(name))

    async def erase(store: SQLiteStore) -> bytes:
        await store.fork("going", 20, new_session_id="fork")
        await store.append("fork", [said("fork", 21, Text("<going:fork>"))], 21)
        await store.erase("going", forks=["fork"])
        return everything_in(tmp_path)  # while it is open: the log as well

    for data in (with_store(path, erase), everything_in(tmp_path)):
        assert not any(mark in data for mark in marks_of("going"))
        assert all(mark in data for name in ("staying", "other") for mark in marks_of(name))
        assert b"<everybody>" in data
    assert with_store(path, lambda store: store.load("staying")) == tuple(marked("staying", n) for n in range(60))


def test_shared_content_goes_with_its_last_user(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    interleaved(path, ("a", "b"), 8)

    async def erase(store: SQLiteStore) -> None:
        await store.erase("a")
        assert b"<everybody>" in everything_in(tmp_path)
        await store.erase("b")

    with_store(path, erase)
    assert b"<everybody>" not in everything_in(tmp_path)
    assert scalar(path, "SELECT count(*) FROM blobs") == 0


def test_a_cleaning_that_was_interrupted_is_finished_by_whoever_opens_the_file_next(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    interleaved(path, ("going", "staying"), 40)
    connection = connect(path, busy_seconds=1)
    connection.execute("PRAGMA secure_delete = OFF")  # as if pages had been left behind
    connection.execute("BEGIN IMMEDIATE")
    erase_session(connection, "going", (), NOW)
    connection.execute("COMMIT")
    image = crash_image(path, tmp_path / "image")
    connection.close()
    assert any(mark in everything_in(image.parent) for mark in marks_of("going"))
    with_store(image, lambda store: store.tombstone("going"))
    assert not any(mark in everything_in(image.parent) for mark in marks_of("going"))


def test_a_damaged_session_can_be_erased(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "a", "b", count=20)
    mark = b'"id":"a:19"'
    with_flipped_byte(path, path.read_bytes().index(mark) + 5)
    assert not with_store(path, lambda store: store.verify("a")).is_sound
    with_store(path, lambda store: store.erase("a"))
    assert with_store(path, lambda store: store.verify("b")).is_sound


def past_the_triggers(path: Path, *statements: str) -> None:
    """Change what the triggers protect, as somebody could who takes them away for a while."""
    connection = raw(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert connection.execute(statement).rowcount
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


def test_an_append_that_moves_no_head_is_not_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def use() -> None:
        async with SQLiteStore(path) as store:
            await store.create("a")
            first, second = said("a", 0, Text("one")), said("a", 1, Text("two"))
            await store.append("a", [first], 0)
            connection = raw(path)
            connection.execute("DROP TRIGGER entries_follow")
            connection.close()
            with pytest.raises(StoreError, match="does not move the heads") as raised:
                await store.append("a", [second], 1)
            assert raised.value.code is ErrorCode.CORRUPT
            assert await store.load("a") == (first,)

    asyncio.run(use())


OF_B = "(SELECT key FROM sessions WHERE session_id = 'b')"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET metadata = x'7b7d' WHERE session_id = 'b'",
        "UPDATE sessions SET created_at = 'yesterday' WHERE session_id = 'b'",
        "UPDATE sessions SET record = x'00' WHERE session_id = 'b'",
        f"UPDATE heads SET checksum = x'00', serial = -7 WHERE session = {OF_B}",
        f"DELETE FROM heads WHERE session = {OF_B}",
        f"UPDATE entries SET entry = x'ff' WHERE serial = 11 AND session = {OF_B}",
    ],
)
def test_a_damaged_session_does_not_hide_the_others_and_can_be_erased(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a", "b", "c", count=12)
    past_the_triggers(path, damage)

    async def look(store: SQLiteStore) -> None:
        page = await store.list()
        assert ([info.session_id for info in page.sessions], page.damaged) == (["c", "a"], ("b",))
        assert not (await store.verify("b")).is_sound
        tombstone = await store.erase("b")
        assert (tombstone.entries, await store.tombstone("b")) == (12, tombstone)
        assert (await store.list()).damaged == ()
        assert await store.load("a") == entries["a"]

    with_store(path, look)
    assert scalar(path, "SELECT count(*) FROM entries") == 24
    assert b'"id":"b:' not in path.read_bytes()


def test_a_damaged_session_is_named_on_the_page_where_it_would_stand(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, *"abcdef", count=1)
    past_the_triggers(path, "UPDATE sessions SET record = x'00' WHERE session_id IN ('f', 'c', 'b')")

    async def pages(store: SQLiteStore) -> list[tuple[str, tuple[str, ...]]]:
        found, page = [], await store.list(limit=1)
        while True:
            found.append((page.sessions[0].session_id, page.damaged))
            if page.next_page is None:
                return found
            page = await store.list(limit=1, page=page.next_page)

    assert with_store(path, pages) == [("e", ("f",)), ("d", ()), ("a", ("c", "b"))]


@pytest.mark.parametrize("name", ["the-other", "the-nther"], ids=["by the id that it had", "by the id that it has"])
def test_a_session_whose_id_was_changed_on_the_disk_can_be_erased(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "the-first", "the-other", count=3)
    with_flipped_byte(path, path.read_bytes().index(b"the-other2") + 4, 1)  # in its row, where the time comes next

    async def look(store: SQLiteStore) -> None:
        page = await store.list()
        assert ([info.session_id for info in page.sessions], page.damaged) == (["the-first"], ("the-nther",))
        assert (await store.erase(name)).entries == 3
        assert (await store.list()).damaged == ()
        assert await store.load("the-first") == entries["the-first"]

    with_store(path, look)
    assert scalar(path, "PRAGMA integrity_check") == "ok"


def test_an_id_that_is_no_text_any_more_is_still_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stored(path, "the-first", "the-other", count=3)
    with_flipped_byte(path, path.read_bytes().index(b"the-other2") + 4, 0x80)
    page = with_store(path, lambda store: store.list())
    assert ([info.session_id for info in page.sessions], page.damaged) == (["the-first"], (r"the-\xefther",))


def test_an_append_that_meets_another_process_at_its_place_is_a_conflict(tmp_path: Path) -> None:
    async def run() -> None:
        async with SQLiteStore(tmp_path / "s.db") as first, SQLiteStore(tmp_path / "s.db") as second:
            await first.create("a")
            await first.append("a", [said("a", 0, Text("first"))], 0)  # it now knows the next place
            await second.append("a", [said("a", 1, Text("second"))], 1)
            with pytest.raises(AppendConflict) as raised:
                await first.append("a", [said("a", 1, Text("late"))], 1)
            assert raised.value.head == await second.head("a")
            await second.erase("a")
            with pytest.raises(StoreError, match="erased"):
                await first.append("a", [said("a", 2, Text("too late"))], 2)

    asyncio.run(run())


def test_a_copy_of_the_file_is_a_backup(tmp_path: Path) -> None:
    entries = stored(tmp_path / "s.db", "a")["a"]
    shutil.copy(tmp_path / "s.db", tmp_path / "copy.db")
    assert with_store(tmp_path / "copy.db", lambda store: store.load("a")) == entries


@pytest.mark.parametrize("path", [":memory:", "file::memory:?cache=shared"])
def test_a_database_in_memory_is_refused_and_the_memory_store_named(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="use MemoryStore"):
        SQLiteStore(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["sqlite:///x.db", "file:///tmp/x.db", "sqlite:/x.db"])
def test_an_address_in_place_of_a_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidValue, match="takes the path of a file, got the address"):
        SQLiteStore(path)


def test_appends_go_on_when_the_ends_of_sessions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.store.sqlite_appending.ENDS", 3)

    async def run() -> list[int]:
        async with SQLiteStore(tmp_path / "s.db") as store:
            names = [f"s{index}" for index in range(8)]
            for name in names:
                await store.create(name)
            for serial in range(3):
                for name in names:
                    await store.append(name, sample_entries(name, 3)[serial : serial + 1], serial)
            return [len(await store.load(name)) for name in names]

    assert asyncio.run(run()) == [3] * 8
