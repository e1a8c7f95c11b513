"""How appends reach a SQLite file: together where several sessions append, and never at the event loop's expense."""

import asyncio
import itertools
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman import ErrorCode, StoreError
from dragoman.history import HistoryEntry
from dragoman.store import Head, SQLiteStore, sqlite_writer
from dragoman.testing.stores import sample_entries
from tests.store_programs import entry_at

SESSIONS = 32


def commits_in(path: Path) -> int:
    """Count the transactions in the log of a database: frames that say how large the file is afterwards."""
    log = path.with_name(path.name + "-wal").read_bytes()
    size = 24 + int.from_bytes(log[8:12])
    salt = log[16:24]
    frames = [log[place : place + 24] for place in range(32, len(log) - size + 1, size)]
    return sum(1 for frame in frames if frame[8:16] == salt and any(frame[4:8]))


def test_sessions_that_append_at_the_same_time_share_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    names = [f"session-{number}" for number in range(SESSIONS)]
    entries = {name: sample_entries(name, 3) for name in names}

    async def run() -> None:
        async with SQLiteStore(path) as store:
            for name in names:
                await store.create(name)
            for serial in range(3):
                before = commits_in(path)
                await asyncio.gather(*(store.append(name, [entries[name][serial]], serial) for name in names))
                assert commits_in(path) - before <= 2
            for name in names:
                assert await store.load(name) == entries[name]

    asyncio.run(run())


def test_a_session_that_appends_again_and_again_leaves_the_event_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * 0.001)  # each look at it takes a millisecond
    monkeypatch.setattr(sqlite_writer, "time", clock)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            await store.create("one")
            counting = asyncio.ensure_future(count())
            for serial in range(60):
                await store.append("one", [entry_at("one", serial)], serial)
            counting.cancel()

    asyncio.run(run())
    assert turns >= 20


def test_a_lock_of_another_process_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first, second, *_ = sample_entries("one")

    async def run() -> tuple[HistoryEntry, ...]:
        async with SQLiteStore(path, busy_seconds=30) as store:
            await store.create("one")
            await store.append("one", [first], 0)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(store.append("one", [second], 1))
            for _ in range(100):  # the loop goes round while the append waits
                await asyncio.sleep(0)
            assert not waiting.done()
            other.execute("ROLLBACK")
            other.close()
            await waiting
            return await store.load("one")

    assert asyncio.run(run()) == (first, second)


def test_appends_that_nobody_awaits_in_between_keep_their_order(tmp_path: Path) -> None:
    entries = sample_entries("one", 20)

    async def run() -> tuple[HistoryEntry, ...]:
        async with SQLiteStore(tmp_path / "s.db") as store:
            await store.create("one")
            await asyncio.gather(*(store.append("one", [entry], entry.serial) for entry in entries))
            return await store.load("one")

    assert asyncio.run(run()) == entries


def test_a_program_that_leaves_a_store_open_ends(tmp_path: Path) -> None:
    program = "import asyncio, sys; from dragoman import SQLiteStore; asyncio.run(SQLiteStore(sys.argv[1]).create('s'))"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "s.db")], check=True, timeout=60)


def test_the_event_loop_writes_itself_once_the_file_is_open_and_gives_whole_transactions_to_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "LOOP_SECONDS", 60.0)  # however slow the disk is
    here, begin = threading.current_thread(), time.perf_counter()

    async def is_idle(store: SQLiteStore) -> None:
        while store._writer._handed_over:  # noqa: ASYNC110  # the thread wakes its callers first
            await asyncio.sleep(0)

    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            writer, threads = store._writer, []
            await store.create("s")
            await is_idle(store)
            assert writer._opened is not None
            append = writer._opened[0].append

            def told_append(*given: Any) -> Head:
                threads.append(threading.current_thread())
                return append(*given)

            writer._opened[0].append = told_append  # type: ignore[method-assign,assignment]  # it tells its thread
            await store.append("s", sample_entries("s", 1), 0)
            assert threads == [here]
            assert await store._write(lambda _database: threading.current_thread()) is here
            waits = store._write(lambda database: database.execute("PRAGMA busy_timeout").fetchone())
            assert await waits == (0,), "the event loop waits for no other process"
            assert await writer.run(lambda _database: threading.current_thread(), alone=True) is not here
            await is_idle(store)
            assert 0 < writer._usual_seconds < time.perf_counter() - begin

    asyncio.run(asyncio.wait_for(use(), 60))


def test_what_the_database_refuses_again_and_again_is_told_and_stops_no_other(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def use() -> None:
        async with SQLiteStore(path) as store:
            for name in ("bad", "good"):
                await store.create(name)
            with closing(sqlite3.connect(path)) as connection:
                refused = "BEFORE INSERT ON entries WHEN NEW.session = 1 BEGIN SELECT RAISE(ABORT, 'no'); END"
                connection.execute(f"CREATE TRIGGER refused {refused}")
            told, head = await asyncio.gather(
                *(store.append(name, sample_entries(name, 1), 0) for name in ("bad", "good")), return_exceptions=True
            )
            assert isinstance(told, StoreError)
            assert told.code is ErrorCode.CORRUPT
            assert head == await store.head("good")
            assert (await store.head("good")).serial == 0
            assert (await store.head("bad")).serial == -1

    asyncio.run(use())
