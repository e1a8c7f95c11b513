"""What the tests of the stores share: files with sessions in them, images of a crash, damage."""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from dragoman.history import HistoryEntry
from dragoman.store import SQLiteStore
from dragoman.testing.stores import sample_entries

_Result = TypeVar("_Result")


def with_store(path: Path, use: Callable[[SQLiteStore], Awaitable[_Result]]) -> _Result:
    """Return what `use` makes of a store that is open for it."""

    async def run() -> _Result:
        async with SQLiteStore(path, busy_seconds=5) as store:
            return await use(store)

    return asyncio.run(run())


def stored(path: Path, *names: str, count: int | None = None) -> dict[str, tuple[HistoryEntry, ...]]:
    """Store sample sessions of these names, an entry of each in turn, and return them."""
    sessions = {name: sample_entries(name, count) for name in names}

    async def write(store: SQLiteStore) -> None:
        for name in names:
            await store.create(name, metadata={"name": name})
        for turn in zip(*sessions.values(), strict=True):
            for name, entry in zip(names, turn, strict=True):
                await store.append(name, [entry], entry.serial)

    with_store(path, write)
    return sessions


def crash_image(path: Path, target: Path) -> Path:
    """Copy a database that is in use as a crash would leave it: the file and its log, not what is shared in memory."""
    target.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(path.with_name(path.name + suffix), target / (path.name + suffix))
    return target / path.name


def with_flipped_byte(path: Path, place: int, bits: int = 0xFF) -> None:
    """Damage one byte of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ bits]))


def documented_tables() -> dict[str, list[str]]:
    """Return the columns that docs/sessions.md names for each table of a store of rows, in their order."""
    page = (Path(__file__).parents[1] / "docs" / "sessions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^ *\| `(\w+)` \|([^|]*)\|", page.partition("### In a database")[2], re.MULTILINE)
    return {table: re.findall(r"`(\w+)`", columns) for table, columns in rows}


def require_documented(columns: dict[str, list[str]]) -> None:
    """Check a database's tables and their columns against the page."""
    named = documented_tables()
    assert len(named) == 12
    for table, expected in named.items():
        if table in {"sessions", "snapshots", "leases", "tails", "tombstones"}:  # inserted by position
            assert columns[table] == expected
        else:
            assert set(expected) <= set(columns[table]), table
