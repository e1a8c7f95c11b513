"""Acknowledged means on the disk that is opened next: files deleted, replaced or cut short under a store."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import ErrorCode, SQLiteStore, StoreError
from dragoman.store import Head
from dragoman.testing.stores import sample_entries

ROOT = Path(__file__).parents[1]

FEW, MANY = 30, 60  # entries before the file is harmed, and those that are tried afterwards


def delete(path: Path) -> None:
    path.unlink()


def delete_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def delete_all(path: Path) -> None:
    for each in path.parent.iterdir():
        each.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 8192 * 4096)


def empty_log(path: Path) -> None:
    os.truncate(path.with_name(f"{path.name}-wal"), 0)


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def recreate(path: Path) -> None:
    path.unlink()
    path.touch()


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize(
    "harm",
    [delete, delete_log, delete_all, empty, halve, empty_log, replace_by_copy, recreate, move_away],
    ids=lambda harm: harm.__name__,
)
def test_nothing_is_acknowledged_on_a_file_that_no_one_will_open(
    tmp_path: Path, harm: Callable[[Path], None], is_long: bool
) -> None:
    path = tmp_path / "s.db"

    async def use() -> None:
        store = SQLiteStore(path)
        try:
            await store.create("s")
            entries = sample_entries("s", MANY)
            for entry in entries[:FEW]:
                await store.append("s", [entry], entry.serial)
            await store.create("other")  # by the thread, which also empties the log into the file
            harm(path)
            some = entries[FEW : FEW + (20 if is_long else 1)]
            for _ in range(3):
                with pytest.raises(StoreError) as raised:
                    await store.append("s", some, FEW)
                assert raised.value.code is ErrorCode.CORRUPT
                assert "open it again" in str(raised.value)
            with pytest.raises(StoreError):
                await store.create("third")
        finally:
            await store.close()

    asyncio.run(use())


ERASE = """
import asyncio, sys
from dragoman import SQLiteStore

async def main():
    async with SQLiteStore(sys.argv[1]) as store:
        for name in sys.argv[2:]:
            await store.erase(name)

asyncio.run(main())
"""


def other_process(path: Path, *erased: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", ERASE, str(path), *erased], check=True)


def test_a_file_that_another_process_makes_shorter_by_erasing_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def use() -> None:
        async with SQLiteStore(path) as store:
            await store.create("large")
            await store.append("large", sample_entries("large", 400), 0)
            await store.create("s")
            entries = sample_entries("s", MANY)
            for entry in entries[:FEW]:
                await store.append("s", [entry], entry.serial)
            await asyncio.to_thread(other_process, path, "large")
            for entry in entries[FEW:]:
                await store.append("s", [entry], entry.serial)
        async with SQLiteStore(path) as store:
            assert await store.load("s") == entries

    asyncio.run(use())


def test_two_stores_of_one_process_keep_the_log_from_being_deleted(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the locks of a process; then another one takes itself for the last."""
    path = tmp_path / "s.db"

    async def use() -> Head:
        async with SQLiteStore(path) as store:
            await store.create("s")
            entries = sample_entries("s", MANY)
            await store.append("s", entries[:FEW], 0)
            async with SQLiteStore(path) as second:
                assert await second.load("s") == entries[:FEW]
                await asyncio.to_thread(other_process, path)
                for entry in entries[FEW:]:
                    await store.append("s", [entry], entry.serial)
            await asyncio.to_thread(other_process, path)
            head = await store.head("s")
            shutil.copytree(tmp_path, tmp_path.with_name("crashed"))  # as a crash would leave it
            return head

    head = asyncio.run(use())

    async def look() -> Head:
        async with SQLiteStore(tmp_path.with_name("crashed") / "s.db") as store:
            return await store.head("s")

    assert asyncio.run(look()) == head


def test_a_store_stays_where_it_was_made_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()

    async def use() -> None:
        monkeypatch.chdir(tmp_path / "first")
        async with SQLiteStore("s.db") as store:
            monkeypatch.chdir(tmp_path / "second")
            await store.create("s")
            monkeypatch.chdir(tmp_path)
            await store.append("s", sample_entries("s", 3), 0)

    asyncio.run(use())
    assert (tmp_path / "first" / "s.db").is_file()
    assert list((tmp_path / "second").iterdir()) == []
