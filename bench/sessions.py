"""What a session in SQLite costs beside bare SQLite and beside a file of lines, with full sync on both sides.

The CPU of appends, what a long session adds to it, its size on disk, and loading. `bench/store.py` has more: rates,
group commit, opening by a snapshot.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from bench.measuring import Figure, Part
from bench.store import TEXT, Bare, entries_of
from dragoman.history import HistoryEntry, entry_from_json, entry_to_json
from dragoman.store import SQLiteStore

__all__ = ["PARTS"]

LONG = 10_000
APPENDS = 40


def measure_sessions(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """Appends, size and loading of a session of 10,000 entries."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_measure(Path(folder), LONG // 10 if quick else LONG, 3 if quick else 21))


PARTS = [Part("sessions", measure_sessions)]


async def _measure(folder: Path, long: int, rounds: int) -> list[Figure]:
    count = (rounds + 1) * APPENDS
    entries, fresh = entries_of("long", long + count), entries_of("fresh", count)
    bare = Bare(folder / "bare.db")
    path, lines = folder / "sessions.db", folder / "lines.jsonl"
    lines.write_bytes(b"\n".join(entry_to_json(entry) for entry in entries[:long]))
    async with SQLiteStore(path) as store:
        await store.create("long")
        await store.append("long", entries[:long], 0)
    size = path.stat().st_size  # closing has emptied the log
    async with SQLiteStore(path) as store, SQLiteStore(folder / "fresh.db") as new:
        await new.create("fresh")
        appends = [
            await _append_round(bare, new, store, fresh[first:end], entries[long + first : long + end])
            for first, end in pairwise(range(0, count + 1, APPENDS))
        ]
        loads = [await _load_round(store, lines, long) for _ in range(4 if long < LONG else 10)]
    inserts, early, late = zip(*appends[1:], strict=True)
    theirs, ours = zip(*loads[1:], strict=True)
    unit = "µs of CPU per entry"
    row = "append to a SQLite session, full sync"
    return [
        Figure(row, "to a new session", unit, "a bare insert", early, inserts, must=2.0, goal=1.3),
        Figure(f"append after {long:,} entries", "each in its file", unit, "a new session", late, early, must=1.2),
        Figure(
            "bytes on disk", f"{long:,} texts of 1 KB", "bytes per byte", "the text", [size / long / TEXT], must=1.4
        ),
        Figure(
            "loading", f"{long:,} entries", unit, "lines of JSON and typed decode", ours, theirs, must=2.0, goal=1.2
        ),
    ]


async def _append_round(
    bare: Bare, new: SQLiteStore, store: SQLiteStore, fresh: Sequence[HistoryEntry], more: Sequence[HistoryEntry]
) -> tuple[float, float, float]:
    """The µs of CPU of an insert, of an append to the new session, and of one to the long session, each in its file."""
    spent = [0, 0, 0]
    for first, later in zip(fresh, more, strict=True):
        body = entry_to_json(first)
        begin = time.process_time_ns()
        bare.insert_each([body])
        inserted = time.process_time_ns()
        await new.append("fresh", [first], first.serial)
        appended = time.process_time_ns()
        await store.append("long", [later], later.serial)
        end = time.process_time_ns()
        spent = [spent[0] + inserted - begin, spent[1] + appended - inserted, spent[2] + end - appended]
    bare_insert, early, late = (nanoseconds / APPENDS / 1_000 for nanoseconds in spent)
    return bare_insert, early, late


async def _load_round(store: SQLiteStore, lines: Path, long: int) -> tuple[float, float]:
    """The µs of CPU per entry of reading the lines, and of loading the session."""
    begin = time.process_time_ns()
    expected = _read_lines(lines)
    middle = time.process_time_ns()
    loaded = await store.load("long")
    end = time.process_time_ns()
    assert list(loaded)[:long] == expected
    return (middle - begin) / long / 1_000, (end - middle) / len(loaded) / 1_000


def _read_lines(lines: Path) -> list[HistoryEntry]:
    return [entry_from_json(line) for line in lines.read_bytes().split(b"\n")]
