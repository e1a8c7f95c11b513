"""What the SQLite store costs beside bare SQLite: durable appends, group commit, bytes on disk, loading, opening.

`python bench/store.py` prints medians of ratios beside the goals. Both sides take turns in every round, on the same
disk, with the same bytes, in WAL mode with full sync, so that a noisy machine slows both alike. `--folder` says where
the files go: a temporary folder by default, which must be on a disk for the figures to mean anything. The first two
ratios depend on how long the disk takes to sync: beside its sync an append costs Python's work on it, which the bare
side does not do: encoding, checking, chaining. The faster the disk, the larger its share.
"""

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by its path

from bench.measuring import say
from dragoman.history import AgentState, HistoryEntry, entry_from_json, entry_to_json
from dragoman.store import SQLiteStore, open_session
from dragoman.store.snapshots import name_snapshot, take_snapshot

ROUNDS = 31
APPENDS = 40  # of one session in one round
SESSIONS = 32
TURNS = 12  # of every session in one round
LONG = 10_000
VERY_LONG = 100_000
TEXT = 1024

APPEND_GOAL = 0.6  # of the rate of bare single-row inserts
GROUP_GOAL = 0.3  # of the rate of bare 32-row transactions
DISK_GOAL = 1.4  # bytes per byte of text
LOAD_GOAL = 2.0  # times as long as reading and decoding the same bytes
GROWTH_GOAL = 1.25  # times what an append to a new session costs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entries_of(session_id: str, count: int) -> tuple[HistoryEntry, ...]:
    """Return a session of messages of 1 KB."""
    state = AgentState.create_default(session_id=session_id, clock=lambda: NOW)
    words = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. "
    text = (words * (TEXT // len(words) + 1))[: TEXT - 6]
    for number in range(count):
        state.append_model_input(f"{number:06}{text}")
    return tuple(state.entries)


class Bare:
    """SQLite without us: one table, the same settings."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def insert_each(self, bodies: Sequence[bytes]) -> None:
        """One transaction for each."""
        for body in bodies:
            self.connection.execute("INSERT INTO bodies (body) VALUES (?)", (body,))

    def insert_together(self, bodies: Sequence[bytes]) -> None:
        """One transaction for all."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.insert_each(bodies)
        self.connection.execute("COMMIT")

    def load(self) -> list[HistoryEntry]:
        """Read and decode everything."""
        rows = self.connection.execute("SELECT body FROM bodies ORDER BY id").fetchall()
        return [entry_from_json(body) for (body,) in rows]


async def measure_one_session(folder: Path) -> None:
    """Appends of one session, each awaited, beside single-row inserts."""
    bare = Bare(folder / "bare-one.db")
    entries = entries_of("one", (ROUNDS + 1) * APPENDS)
    ratios, rates, bare_times = [], [], []
    async with SQLiteStore(folder / "one.db") as store:
        await store.create("one")
        for number in range(ROUNDS + 1):
            theirs = ours = 0.0
            for entry in entries[number * APPENDS : (number + 1) * APPENDS]:
                body = entry_to_json(entry)
                begin = time.perf_counter()
                bare.insert_each([body])
                middle = time.perf_counter()
                await store.append("one", [entry], entry.serial)
                ours += time.perf_counter() - middle
                theirs += middle - begin
            if number:  # the first round warms up
                ratios.append(theirs / ours)
                rates.append(APPENDS / ours)
                bare_times.append(theirs / APPENDS * 1000)
    print(f"one session: {ROUNDS} rounds of {APPENDS} durable appends")
    say("a bare insert, nearly all of it the sync", bare_times, "ms")
    say("appends a second", rates, "")
    say("rate, share of bare single-row inserts", ratios, "x", APPEND_GOAL, at_least=True)


async def measure_group_commit(folder: Path) -> None:
    """Appends of 32 sessions at once, beside transactions of 32 rows."""
    bare = Bare(folder / "bare-many.db")
    names = [f"session-{number}" for number in range(SESSIONS)]
    written = {name: entries_of(name, (ROUNDS + 1) * TURNS) for name in names}
    ratios, rates = [], []
    async with SQLiteStore(folder / "many.db") as store:
        for name in names:
            await store.create(name)

        async def write(name: str, first: int) -> None:
            for entry in written[name][first : first + TURNS]:
                await store.append(name, [entry], entry.serial)

        for number in range(ROUNDS + 1):
            first = number * TURNS
            groups = [[entry_to_json(written[name][turn]) for name in names] for turn in range(first, first + TURNS)]
            begin = time.perf_counter()
            for group in groups:
                bare.insert_together(group)
            middle = time.perf_counter()
            await asyncio.gather(*(write(name, first) for name in names))
            end = time.perf_counter()
            if number:
                ratios.append((middle - begin) / (end - middle))
                rates.append(SESSIONS * TURNS / (end - middle))
    print(f"{SESSIONS} sessions at once: {ROUNDS} rounds of {SESSIONS * TURNS} durable appends")
    say("appends a second", rates, "")
    say("rate, share of bare 32-row transactions", ratios, "x", GROUP_GOAL, at_least=True)


async def measure_long_session(folder: Path) -> None:
    """A session of 10,000: bytes on disk, the cost of appending to it, and loading it."""
    path = folder / "long.db"
    entries = entries_of("long", LONG)
    bare = Bare(folder / "bare-long.db")
    bare.insert_together([entry_to_json(entry) for entry in entries])
    async with SQLiteStore(path) as store:
        await store.create("long")
        await store.append("long", entries, 0)
    size = path.stat().st_size  # closing has emptied the log
    print(f"a session of {LONG:,} messages of {TEXT:,} bytes of text")
    say("bytes on disk per byte of text", [size / LONG / TEXT], "x", DISK_GOAL)
    async with SQLiteStore(path) as store, SQLiteStore(folder / "fresh.db") as new:
        ratios = []
        for _ in range(9):
            begin = time.perf_counter()
            expected = bare.load()
            middle = time.perf_counter()
            loaded = await store.load("long")
            ratios.append((time.perf_counter() - middle) / (middle - begin))
            assert list(loaded) == expected
        say("loading, of reading and decoding", ratios, "x", LOAD_GOAL)
        more = entries_of("long", LONG + ROUNDS * APPENDS)
        fresh = entries_of("fresh", ROUNDS * APPENDS)
        await new.create("fresh")
        growth = []
        for number in range(ROUNDS):
            early = late = 0.0
            for turn in range(number * APPENDS, (number + 1) * APPENDS):
                begin = time.perf_counter()
                await new.append("fresh", [fresh[turn]], turn)
                middle = time.perf_counter()
                await store.append("long", [more[LONG + turn]], LONG + turn)
                late += time.perf_counter() - middle
                early += middle - begin
            growth.append(late / early)
        say("appending after 10,000, of to a new one", growth, "x", GROWTH_GOAL)


async def measure_opening(folder: Path) -> None:
    """A session of 100,000 opened with a snapshot, and without."""
    async with SQLiteStore(folder / "very-long.db") as store:
        await store.create("very-long")
        entries = list(entries_of("very-long", VERY_LONG))
        snapshot = take_snapshot(AgentState.from_entries(entries).state_at(VERY_LONG - 501).derived)
        assert snapshot is not None
        named = name_snapshot(snapshot, entries[VERY_LONG - 500])
        assert named is not None
        entries[VERY_LONG - 500] = named
        state = AgentState.from_entries(entries)
        await store.append("very-long", entries, 0)
        await store.keep_snapshot("very-long", snapshot)
        del entries
        quick, slow = [], []
        for _ in range(3):
            begin = time.perf_counter()
            opened = await open_session(store, "very-long")
            middle = time.perf_counter()
            whole = AgentState.from_entries(await store.load("very-long"))
            slow.append(time.perf_counter() - middle)
            quick.append(middle - begin)
            assert opened.state.derived == whole.derived == state.derived
    print(f"opening a session of {VERY_LONG:,}")
    say("with a snapshot 500 entries ago", [each * 1000 for each in quick], "ms")
    say("by loading all of it", [each * 1000 for each in slow], "ms")


def main() -> None:
    """Measure everything in one run."""
    parser = argparse.ArgumentParser(description="The SQLite store beside bare SQLite.")
    parser.add_argument("--folder", help="where the files go; a temporary folder by default")
    chosen = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for measure in (measure_one_session, measure_group_commit, measure_long_session, measure_opening):
            asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
