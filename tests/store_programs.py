"""Programs that treat a store badly, each in processes of its own; the tests run them small, people run them large.

    python -m tests.store_programs kill STORE --rounds 1000     a writer that is killed at random moments
    python -m tests.store_programs rivals STORE                 8 writers of one session and 4 of their own, at once
    python -m tests.store_programs fill STORE --limit 300000    a disk that is full, until room is made

STORE is the path of a SQLite file, or the URI of a PostgreSQL database, with `#` and the name of a schema after it if
it shall not be the usual one. Each prints what it found and fails if anything that was acknowledged is not there, is
there twice, or is not what was appended. Every entry's content follows from its place, so its reader knows what
it must be.
"""

import argparse
import asyncio
import os
import random
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from hashlib import shake_128
from pathlib import Path
from typing import Any

from dragoman import ErrorCode, Image, StoreError, Text
from dragoman.history import HistoryEntry, ModelInputEntry
from dragoman.store import AppendConflict, PostgresStore, SessionStore, Snapshot, SQLiteStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSIONS = ("short", "long", "pictures", "batches")
LONGEST_LIFE = 0.06  # seconds a writer may live
CHECK_ALL = 50  # rounds after which everything is verified, not only what is new

RIVALS, RIVAL_APPENDS = 8, 25
SINGLES, SINGLE_APPENDS = 4, 60

_ACK = struct.Struct("<HI")


def open_store(address: str) -> SQLiteStore | PostgresStore:
    """Return the store at that address."""
    if not address.startswith("postgresql://"):
        return SQLiteStore(address)
    conninfo, _, schema = address.partition("#")
    return PostgresStore(conninfo, schema=schema or "dragoman", connections=len(SESSIONS))


def prepare(address: str) -> None:
    """Create what a store does not create by itself."""

    async def migrate() -> None:
        async with open_store(address) as store:
            if isinstance(store, PostgresStore):
                await store.migrate()

    asyncio.run(migrate())


def entry_at(session_id: str, serial: int, writer: str = "") -> HistoryEntry:
    """Return what stands at that place."""
    noise = shake_128(f"{session_id}:{serial}".encode())
    parts: list[Text | Image] = [Text(f"{writer}:{serial}:" + noise.hexdigest(20 + serial % 700))]
    if session_id == "long" and serial % 3 == 0:
        parts.append(Text(noise.hexdigest(6_000)))
    if session_id == "pictures" and serial % 2:
        parts.append(Image("image/png", shake_128(b"%d" % (serial % 7)).digest(9_000)))
    return ModelInputEntry(tuple(parts), serial=serial, entry_id=f"{session_id}:{serial}", timestamp=NOW)


async def has(store: SessionStore, session_id: str) -> bool:
    """Return whether there is such a session."""
    try:
        await store.head(session_id)
    except StoreError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return False
        raise
    return True


def in_child(work: Coroutine[Any, Any, None]) -> int:
    """Start a process that does `work` and return its id; it is forked, so that it starts at once."""
    process = os.fork()
    if process:
        work.close()
        return process
    try:
        asyncio.run(work)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the parent must hear of it
        print(f"a child failed: {error!r}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


# ---------------------------------------------------------------- killed


async def write_until_killed(address: str, acknowledged: int, seed: int) -> None:
    """Append to several sessions at once for ever, and say so whenever a place is acknowledged."""
    chance = random.Random(seed)
    store = open_store(address)
    # It may carry out what it was sent after the one who sent it was killed: then a place is taken after all.
    is_server = isinstance(store, PostgresStore)

    async def write(number: int, session_id: str) -> None:
        if not await has(store, session_id):
            try:
                await store.create(session_id)
            except StoreError as error:
                if not (is_server and error.code is ErrorCode.CONFLICT):
                    raise
        serial = (await store.head(session_id)).next_serial
        while True:
            count = chance.choice((2, 3, 7)) if session_id == "batches" else 1
            entries = [entry_at(session_id, each) for each in range(serial, serial + count)]
            try:
                head = await store.append(session_id, entries, serial)
            except AppendConflict as conflict:
                if not is_server:
                    raise
                serial = conflict.head.next_serial
                continue
            os.write(acknowledged, _ACK.pack(number, head.serial))
            serial = head.next_serial
            if serial % 40 == 0:
                await store.keep_snapshot(session_id, Snapshot(head.serial, b"only to be written"))

    await asyncio.gather(*(write(number, session_id) for number, session_id in enumerate(SESSIONS)))


def kill_one(address: str, seed: int, delay: float, *, from_first: bool) -> dict[str, int]:
    """Let a writer live for so long, from its first acknowledgement on or from its birth.

    Returns the last serial of each session that it has acknowledged.
    """
    source, target = os.pipe()
    writer = in_child(write_until_killed(address, target, seed))
    os.close(target)
    data = b""
    if from_first:
        assert select.select([source], [], [], 60)[0], "the writer does nothing"
    deadline = time.monotonic() + delay
    while (left := deadline - time.monotonic()) > 0:
        if select.select([source], [], [], left)[0]:
            data += os.read(source, 65_536)
    os.kill(writer, signal.SIGKILL)
    _, status = os.waitpid(writer, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"
    while chunk := os.read(source, 65_536):
        data += chunk
    os.close(source)
    whole = len(data) - len(data) % _ACK.size
    return {SESSIONS[number]: serial for number, serial in _ACK.iter_unpack(data[:whole])}


async def check_after_kill(address: str, acknowledged: dict[str, int], known: dict[str, int], *, whole: bool) -> int:
    """Raise AssertionError unless all that was acknowledged is there; return how many entries are new."""
    store = open_store(address)
    new = 0
    try:
        for session_id in SESSIONS:
            if not await has(store, session_id):
                assert session_id not in acknowledged
                continue
            first = known.get(session_id, -1) + 1
            entries = await store.load(session_id, first)
            last = first + len(entries) - 1
            assert last >= acknowledged.get(session_id, -1), f"{session_id}: {last} of {acknowledged}"
            assert list(entries) == [entry_at(session_id, serial) for serial in range(first, last + 1)]
            assert (await store.head(session_id)).serial >= last
            if whole:
                report = await store.verify(session_id)
                assert report.is_sound, report
            new += len(entries)
            known[session_id] = last
    finally:
        await store.close()
    return new


def run_kills(address: str, rounds: int, seed: int) -> str:
    """Kill a writer so many times; return a line that says what was found."""
    chance = random.Random(seed)
    known: dict[str, int] = {}
    acknowledged: dict[str, int] = {}
    kept = idle = 0
    for number in range(rounds):
        delay = chance.uniform(0, LONGEST_LIFE)
        heard = kill_one(address, chance.randrange(2**32), delay, from_first=chance.random() < 0.7)
        idle += not heard
        acknowledged.update(heard)
        is_last = number == rounds - 1
        if is_last or chance.random() < 0.6:  # else the next writer finds what this one has left
            is_whole = is_last or number % CHECK_ALL == 0
            kept += asyncio.run(check_after_kill(address, acknowledged, known, whole=is_whole))
    return f"{rounds} kills, {idle} before the first acknowledgement, {kept} entries, none lost, changed or doubled"


# ---------------------------------------------------------------- rivals


async def write_as_rival(address: str, writer: str, count: int) -> None:
    """Append to the session that all rivals share; a slower one tries the next serial."""
    store = open_store(address)
    serial = 0
    for number in range(count):
        while True:
            entry = rival_entry(serial, f"{writer}/{number}")
            try:
                serial = (await store.append("shared", [entry], serial)).next_serial
                break
            except AppendConflict as error:
                serial = error.head.next_serial
    await store.close()


def rival_entry(serial: int, word: str) -> HistoryEntry:
    """Return what a rival says at a place."""
    return ModelInputEntry((Text(word),), serial=serial, entry_id=f"shared:{serial}", timestamp=NOW)


async def write_alone(address: str, session_id: str, count: int) -> None:
    """Append to a session of one's own, several at a time."""
    store = open_store(address)
    await store.create(session_id)
    for serial in range(0, count, 3):
        entries = [entry_at(session_id, each) for each in range(serial, min(serial + 3, count))]
        await store.append(session_id, entries, serial)
    await store.close()


async def check_rivals(address: str) -> None:
    """Raise AssertionError unless every append of every writer is there once, in its order."""
    store = open_store(address)
    try:
        entries = await store.load("shared")
        said = [message.text for entry in entries if isinstance(entry, ModelInputEntry) for message in entry.messages()]
        assert len(said) == len(set(said)) == RIVALS * RIVAL_APPENDS
        assert [entry.serial for entry in entries] == list(range(len(entries)))
        for writer in range(RIVALS):
            own = [word for word in said if word.startswith(f"{writer}/")]
            assert own == [f"{writer}/{number}" for number in range(RIVAL_APPENDS)]
        for number in range(SINGLES):
            own_entries = await store.load(f"own-{number}")
            assert list(own_entries) == [entry_at(f"own-{number}", serial) for serial in range(SINGLE_APPENDS)]
        for session_id in ("shared", *(f"own-{number}" for number in range(SINGLES))):
            assert (await store.verify(session_id)).is_sound
    finally:
        await store.close()


def run_rivals(address: str) -> str:
    """Let all of them write at once; return a line that says what was found."""

    async def prepare() -> None:
        store = open_store(address)
        await store.create("shared")
        await store.close()

    asyncio.run(prepare())
    writers = [in_child(write_as_rival(address, str(number), RIVAL_APPENDS)) for number in range(RIVALS)]
    writers += [in_child(write_alone(address, f"own-{number}", SINGLE_APPENDS)) for number in range(SINGLES)]
    failed = [writer for writer in writers if os.waitpid(writer, 0)[1]]
    assert not failed, f"{len(failed)} writers failed"
    asyncio.run(check_rivals(address))
    return f"{RIVALS} writers of one session and {SINGLES} of their own: no gap, no double, no loss"


# ---------------------------------------------------------------- full


async def fill(address: str, make_room: Callable[[], None]) -> str:
    """Append until the disk is full, make room and go on; return a line that says what was found."""
    store = open_store(address)
    await store.create("pictures")
    await store.create("other")
    serial = 0
    try:
        while serial < 100_000:
            await store.append("pictures", [entry_at("pictures", serial)], serial)
            serial += 1
    except StoreError as error:
        refused = error
    assert refused.code in (ErrorCode.QUOTA_EXCEEDED, ErrorCode.SERVER_ERROR), refused
    assert (await store.verify("pictures")).is_sound  # what is there can be read while the disk is full
    assert await store.head("pictures") == (await store.verify("pictures")).head
    make_room()
    await store.append("pictures", [entry_at("pictures", serial)], serial)
    await store.append("other", [entry_at("other", 0)], 0)
    assert list(await store.load("pictures")) == [entry_at("pictures", each) for each in range(serial + 1)]
    await store.close()
    again = open_store(address)
    assert (await again.verify("pictures")).head.serial == serial
    await again.close()
    return f"full after {serial} entries ({refused.code}: {refused}), none lost"


def run_fill(address: str, limit: int | None) -> str:
    """Fill what the process may write, or else the disk, on which a file `ballast` beside the store makes room."""
    if limit is None:
        ballast = Path(address).parent / "ballast"
        ballast.write_bytes(bytes(400_000))
        return asyncio.run(fill(address, ballast.unlink))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    return asyncio.run(fill(address, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))))


def main() -> None:
    """Run one of the programs."""
    parser = argparse.ArgumentParser(description="Treat a session store badly.")
    parser.add_argument("program", choices=("kill", "rivals", "fill"))
    parser.add_argument("store", help="where it is; it need not be there yet")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="how large a file may grow; without it, the disk is filled")
    chosen = parser.parse_args()
    started = time.monotonic()
    prepare(chosen.store)
    if chosen.program == "kill":
        found = run_kills(chosen.store, chosen.rounds, chosen.seed)
    elif chosen.program == "rivals":
        found = run_rivals(chosen.store)
    else:
        found = run_fill(chosen.store, chosen.limit)
    print(f"{found} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
