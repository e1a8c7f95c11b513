"""How entries are found in a SQLite file without an index of them: from each to the one before it."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman import StoreError, Text
from dragoman.history import HistoryEntry, ModelInputEntry
from dragoman.store import SQLiteStore
from dragoman.store.sqlite_schema import connect
from dragoman.testing.stores import append_all
from tests.store_cases import with_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(session_id: str, serial: int, text: str) -> HistoryEntry:
    return ModelInputEntry((Text(text),), serial=serial, entry_id=f"{session_id}:{serial}", timestamp=NOW)


def interleaved(path: Path) -> dict[str, tuple[HistoryEntry, ...]]:
    """Three sessions of 200 whose entries lie between each other's in the file."""
    entries = {name: tuple(said(name, serial, f"{name} {serial}") for serial in range(200)) for name in "abc"}

    async def write(store: SQLiteStore) -> None:
        for name in entries:
            await store.create(name)
        for serial, size in ((serial, 1 + serial % 7) for serial in range(0, 200, 7)):
            for name, all_of_it in entries.items():
                await append_all(store, name, all_of_it[serial : serial + size])
                await append_all(store, name, all_of_it[serial + size : serial + 7])

    with_store(path, write)
    return entries


def test_any_span_of_entries_is_found_among_those_of_others(tmp_path: Path) -> None:
    entries = interleaved(tmp_path / "s.db")

    async def look(store: SQLiteStore) -> None:
        for name, all_of_it in entries.items():
            for first in range(0, 200, 13):
                for end in (first + 1, first + 2, first + 64, first + 65, 199, 200):
                    assert await store.load(name, first, until_serial=end) == all_of_it[first:end]

    with_store(tmp_path / "s.db", look)


def test_no_question_after_a_span_looks_at_every_row(tmp_path: Path) -> None:
    interleaved(tmp_path / "s.db")
    connection = connect(tmp_path / "s.db", busy_seconds=1)
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    assert len(connection.entries_between(2, 50, 150)) == 101
    connection.set_trace_callback(None)
    (query,) = asked
    plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert not [step for step in plan if step.startswith("SCAN") and "walk" not in step], plan
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET previous = 0 WHERE serial = 70",
        "UPDATE entries SET previous = position WHERE serial = 70",
        "UPDATE entries SET previous = 4711 WHERE serial % 5 = 0",
        "UPDATE marks SET position = 1",
        "UPDATE marks SET position = 4711",
        "DELETE FROM marks",
    ],
)
def test_entries_are_found_also_if_the_way_to_them_is_damaged(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = interleaved(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TRIGGER entries_stay_as_they_are")
    connection.execute(damage)
    connection.close()

    async def look(store: SQLiteStore) -> None:
        for name, all_of_it in entries.items():
            assert await store.load(name) == all_of_it
            assert (await store.verify(name)).is_sound
            await store.append(name, [said(name, 200, "goes on")], 200)

    with_store(path, look)


def test_a_head_that_leads_elsewhere_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entries = interleaved(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE heads SET position = 4711 WHERE session = 2")
    connection.close()

    async def look(store: SQLiteStore) -> None:
        assert [(await store.verify(name)).bad_serial for name in entries] == [None, 199, None]
        assert await store.load("b") == entries["b"]
        with pytest.raises(StoreError, match="serial 199"):
            await store.append("b", [said("b", 200, "goes on")], 200)

    with_store(path, look)
