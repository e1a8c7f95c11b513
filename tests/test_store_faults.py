"""What a store makes of crashes, bad disks and damage: nothing acknowledged is lost, and nothing wrong is believed."""

import asyncio
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dragoman import ErrorCode, StoreError
from dragoman.history import HistoryEntry
from dragoman.store import Head, SQLiteStore
from dragoman.testing.stores import append_all, sample_entries
from tests.postgres_server import Place
from tests.store_cases import crash_image, stored, with_flipped_byte, with_store

ROOT = Path(__file__).parents[1]
FLIPS = 250


def run_program(*arguments: str, prefix: tuple[str, ...] = ()) -> str:
    """Run one of tests.store_programs and return what it printed."""
    command = [*prefix, sys.executable, "-W", "error", "-m", "tests.store_programs", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    """Return where a new store is, as the programs want it."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "s.db")
    place: Place = request.getfixturevalue("empty_postgres")
    return place.address


@pytest.mark.slow  # thousands of processes or runs
def test_a_writer_that_is_killed_loses_nothing_that_was_acknowledged(address: str) -> None:
    assert "200 kills" in run_program("kill", address, "--rounds", "200")


@pytest.mark.slow  # thousands of processes or runs
def test_twelve_processes_that_write_at_once_lose_and_double_nothing(address: str) -> None:
    assert "no gap, no double, no loss" in run_program("rivals", address)


def test_a_file_that_may_not_grow_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    assert "none lost" in run_program("fill", str(tmp_path / "s.db"), "--limit", "700000")


def small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """Return what a command begins with that shall find a disk of this size in the folder."""
    mount = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none "$0" && exec "$@"', str(folder))
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    return mount


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    assert "quota_exceeded" in run_program("fill", str(tmp_path / "s.db"), prefix=small_disk(tmp_path, "3m"))


@pytest.mark.parametrize("size", ["16k", "64k", "96k"])
def test_a_disk_too_full_for_a_store_is_said_to_be_full(size: str, tmp_path: Path) -> None:
    command = "from tests.store_cases import with_store; import sys, pathlib"
    command += "; with_store(pathlib.Path(sys.argv[1]), lambda store: store.create())"
    run = [*small_disk(tmp_path, size), sys.executable, "-c", command, str(tmp_path / "s.db")]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.search(r"StoreError: s\.db: the disk (is full|failed, or is full)", done.stderr), done.stderr


# ---------------------------------------------------------------- read-only


READ_ONLY = """
import asyncio, os, sys
from dragoman import StoreError
from dragoman.store import SQLiteStore
from dragoman.testing.stores import sample_entries

async def run(path):
    async with SQLiteStore(path, busy_seconds=1) as store:
        for call in (store.append("a", sample_entries("a", 13)[12:], 12), store.create("b")):
            try:
                await call
            except StoreError as error:
                print(error.code)

asyncio.run(run(sys.argv[2]))  # loads whatever is loaded on first use, while that is allowed
if os.getuid() == 0:  # to whom permissions do not apply
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(run(sys.argv[1]))
"""


@pytest.mark.parametrize("folder_mode", [0o555, 0o755], ids=["in a read-only folder", "in a writable folder"])
def test_a_read_only_file_is_a_clear_error_and_keeps_everything(folder_mode: int, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sessions = stored(folder / "s.db", "a", count=12)
        if os.getuid() == 0:
            for path in (folder, folder / "s.db"):
                os.chown(path, 65534, 65534)
        (folder / "s.db").chmod(0o400)
        folder.chmod(folder_mode)
        before = (folder / "s.db").read_bytes()
        command = [sys.executable, "-W", "error", "-c", READ_ONLY, str(folder / "s.db"), str(tmp_path / "warm.db")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        folder.chmod(0o700)
        assert (done.stderr, done.stdout.split()) == ("", ["not_found", "permission", "permission"])
        assert (folder / "s.db").read_bytes() == before
        (folder / "s.db").chmod(0o600)
        assert with_store(folder / "s.db", lambda store: store.load("a")) == sessions["a"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be opened or created"):
        with_store(tmp_path / "file" / "s.db", lambda store: store.create())


# ---------------------------------------------------------------- torn pages


def crashed(tmp_path: Path) -> tuple[Path, tuple[HistoryEntry, ...]]:
    """Return a database as a crash left it, much of it in the log, and what was acknowledged."""
    path = tmp_path / "s.db"
    entries = sample_entries("a", 40)

    async def run() -> Path:
        async with SQLiteStore(path) as store:
            await store.create("a")
            await append_all(store, "a", entries)
            return crash_image(path, tmp_path / "crashed")

    return asyncio.run(run()), entries


def test_what_was_acknowledged_is_there_after_a_crash_whatever_came_after_it_in_the_log(tmp_path: Path) -> None:
    image, entries = crashed(tmp_path)
    log = image.with_name("s.db-wal")
    with log.open("ab") as file:
        file.write(log.read_bytes()[32 : 32 + 24 + 2000])  # half of a frame
    assert with_store(image, lambda store: store.load("a")) == entries


def test_torn_pages_of_the_file_are_restored_from_the_log(tmp_path: Path) -> None:
    image, entries = crashed(tmp_path)
    data, log = bytearray(image.read_bytes()), image.with_name("s.db-wal").read_bytes()
    in_log = {int.from_bytes(log[at : at + 4]) for at in range(32, len(log), 24 + 4096)}
    torn = [page for page in in_log if page * 4096 <= len(data)]
    assert torn
    for page in torn:  # as a crash within a checkpoint would
        data[page * 4096 - 2048 : page * 4096] = bytes(2048)
    image.write_bytes(data)
    loaded = with_store(image, lambda store: store.load("a"))
    assert loaded == entries


def test_a_log_cut_anywhere_gives_a_beginning_of_the_session(tmp_path: Path) -> None:
    image, entries = crashed(tmp_path)
    log = image.with_name("s.db-wal")
    whole = log.read_bytes()
    chance = random.Random(3)
    lengths = set()
    for cut in [0, 20, 32, *(chance.randrange(len(whole)) for _ in range(40))]:
        folder = tmp_path / f"cut-{cut}"
        shutil.copytree(image.parent, folder)
        (folder / "s.db-wal").write_bytes(whole[:cut])
        try:
            loaded = with_store(folder / "s.db", lambda store: store.load("a"))
        except StoreError as error:
            assert error.code is ErrorCode.NOT_FOUND  # noqa: PT017  # cut before the session was created
            continue
        assert loaded == entries[: len(loaded)]
        lengths.add(len(loaded))
    assert len(lengths) > 5


def test_a_torn_page_without_a_log_is_told_and_the_rest_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a", "b", count=60)["a"]
    place = path.read_bytes().rindex(b"Line 59.")
    page = place - place % 4096
    data = bytearray(path.read_bytes())
    data[page + 512 : page + 4096] = bytes(4096 - 512)
    path.write_bytes(data)

    async def look(store: SQLiteStore) -> None:
        with pytest.raises(StoreError) as raised:
            await store.load("a")
        assert raised.value.code is ErrorCode.CORRUPT
        report = await store.verify("a")
        assert report.bad_serial is not None
        assert 0 < report.bad_serial < 60
        assert report.head.serial == report.bad_serial - 1
        assert await store.load("a", until_serial=report.bad_serial) == entries[: report.bad_serial]

    with_store(path, look)


# ---------------------------------------------------------------- flipped bytes


@pytest.mark.parametrize("serial", [0, 12, 33, 39])
def test_a_changed_entry_is_found_and_named(serial: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a", "b", count=40)
    mark = b'"id":"a:%d"' % serial
    with_flipped_byte(path, path.read_bytes().index(mark) + len(mark) + 20, 1)

    async def look(store: SQLiteStore) -> None:
        report = await store.verify("a")
        assert (report.is_sound, report.bad_serial, report.head.serial) == (False, serial, serial - 1)
        with pytest.raises(StoreError, match=rf"serial {serial}\b") as raised:
            await store.load("a")
        assert raised.value.code is ErrorCode.CORRUPT
        assert await store.load("a", until_serial=serial) == entries["a"][:serial]
        assert await store.load("b") == entries["b"]
        assert (await store.verify("b")).is_sound

    with_store(path, look)


def test_a_changed_picture_is_found_where_it_is_used_first(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a")["a"]
    picture = next(part.data for part in entries[2].parts if getattr(part, "data", None))  # type: ignore[attr-defined]  # an input
    with_flipped_byte(path, path.read_bytes().index(picture[:64]) + 10, 4)
    report = with_store(path, lambda store: store.verify("a"))
    assert (report.bad_serial, report.head.serial) == (2, 1)


def test_a_lost_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = stored(path, "a", count=20)["a"]
    pristine = path.read_bytes()
    newest = pristine.index(b'{"serial":19,"id":"a:19"')
    found = 0
    for place in range(newest - 46, newest - 32):  # what says whose it is and where it belongs
        for bits in (1, 64):
            path.write_bytes(pristine)
            with_flipped_byte(path, place, bits)
            found += with_store(path, lambda store: refusals(store, {"a": entries}))
    assert found > 10


def test_a_log_that_lost_its_end_is_found_by_a_head_that_was_kept(tmp_path: Path) -> None:
    image, entries = crashed(tmp_path)
    log = image.with_name("s.db-wal")
    log.write_bytes(log.read_bytes()[: -4120 * 6])
    loaded = with_store(image, lambda store: store.load("a"))
    assert len(loaded) < len(entries)
    report = with_store(image, lambda store: store.verify("a", kept=Head(39, "00" * 32)))
    assert report.bad_serial == len(loaded)


@pytest.mark.parametrize("part", range(5))
def test_a_flipped_byte_anywhere_never_changes_what_is_loaded(part: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    sessions = stored(path, "a", "b", count=25)

    async def more(store: SQLiteStore) -> None:
        await store.fork("a", 9, new_session_id="c")
        own = sample_entries("c", 12)[10:]
        await store.append("c", own, 10)
        sessions["c"] = sessions["a"][:10] + own

    with_store(path, more)
    pristine = path.read_bytes()
    chance = random.Random(part)
    refused = 0
    for _ in range(FLIPS // 5):
        path.write_bytes(pristine)
        place = chance.randrange(len(pristine)) if chance.random() < 0.7 else chance.randrange(4096 * 12)
        with_flipped_byte(path, place, 1 << chance.randrange(8))
        refused += with_store(path, lambda store: refusals(store, sessions))
    assert refused


async def refusals(store: SQLiteStore, sessions: dict[str, tuple[HistoryEntry, ...]]) -> int:
    """Return how many sessions could not be loaded; raise AssertionError for one that is not what it was."""
    refused = 0
    for name, entries in sessions.items():
        try:
            loaded = await store.load(name)
        except StoreError as error:
            assert error.code in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW), error  # noqa: PT017
            refused += 1
        else:
            assert loaded == entries
        try:
            report = await store.verify(name, kept=None)
        except StoreError as error:
            assert error.code in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW), error  # noqa: PT017
        else:
            assert not report.is_sound or report.head.serial == len(entries) - 1
    return refused


# ---------------------------------------------------------------- a file that was never finished


def test_a_file_whose_making_was_killed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "whole" / "s.db"
    path.parent.mkdir()
    maker = sqlite3.connect(path, isolation_level=None)
    maker.execute("PRAGMA cache_size = 1")  # so that it writes before it commits
    maker.execute("BEGIN IMMEDIATE")
    maker.execute("CREATE TABLE half (content BLOB)")
    maker.executemany("INSERT INTO half VALUES (randomblob(3000))", [()] * 50)
    shutil.copytree(path.parent, tmp_path / "killed")
    maker.execute("ROLLBACK")
    maker.close()
    killed = tmp_path / "killed" / "s.db"
    assert killed.stat().st_size
    assert killed.with_name("s.db-journal").stat().st_size
    sessions = stored(killed, "a", count=3)
    assert with_store(killed, lambda store: store.load("a")) == sessions["a"]
