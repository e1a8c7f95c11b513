"""What it takes to be there: imports, and the memory of open streams, of idle sessions and of entries.

Imports are those of fresh interpreters; memory is what Python counts.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bench.agents import TRANSPORT, ServerProcess, asked
from bench.measuring import Figure, Part, Skipped
from bench.store import entries_of
from dragoman import Message
from dragoman.store import SQLiteStore, open_session

__all__ = ["PARTS"]

BASE = "import aiohttp, msgspec"
READY = "import aiohttp, dragoman; dragoman.model('openai-chat:gpt-4o', api_key='sk-fake')"
IMPORTS = ("pass", "import msgspec", "import dragoman", BASE, READY)
STREAMS = 100
SESSIONS = 100
SHORT, ENTRIES = 10, 1_000

_PROBE = """
import time
begin = time.process_time()
{statement}
spent = time.process_time() - begin
import os
try:
    with open("/proc/self/statm") as status:
        resident = int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
except OSError:
    resident = 0
print(spent * 1e3, resident / 1e6)
"""


def measure_imports(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """Time and memory of imports, in fresh interpreters that take turns."""
    rounds = [[_import(statement) for statement in IMPORTS] for _ in range(4 if quick else 16)]
    cpu, memory = ([[row[place][which] for row in rounds[1:]] for place in range(len(IMPORTS))] for which in (0, 1))
    _, msgspec, ours, base, ready = cpu
    row = "import dragoman"
    yield Figure(row, "time", "ms of CPU; MB", "nothing", ours, must=60, goal=40)
    yield Figure(row, "memory of the process", "ms of CPU; MB", "nothing", memory[2], must=25)
    yield Figure(row, "beyond an empty interpreter", "ms of CPU; MB", "nothing", _less(memory[2], memory[0]))
    yield Figure(row, "time beyond msgspec", "ms of CPU; MB", "nothing", _less(ours, msgspec), must=40)
    yield Figure("import with a ready model", "time", "ms of CPU", BASE, ready, base, must=1.3)


def measure_memory(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """Memory of streams in the middle of their answers, of sessions that nobody uses, and of what they hold."""
    yield from asyncio.run(_memory(STREAMS // 5 if quick else STREAMS, SESSIONS // 5 if quick else SESSIONS))


PARTS = [Part("imports", measure_imports), Part("memory", measure_memory)]


def _import(statement: str) -> tuple[float, float]:
    """The ms of CPU of a statement in a fresh interpreter, and the MB that it then has."""
    code = _PROBE.format(statement=statement)
    said = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    cpu, resident = map(float, said.split())
    return cpu, resident


def _less(figures: Sequence[float], others: Sequence[float]) -> list[float]:
    return [figure - other for figure, other in zip(figures, others, strict=True)]


async def _memory(streams: int, sessions: int) -> list[Figure]:
    row, unit = "memory", "KB"
    open_streams = await _each(lambda: _open_streams(streams), streams)
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteStore(Path(folder) / "sessions.db") as store:
            await _fill(store, "short", SHORT, sessions)
            await _fill(store, "long", ENTRIES, 4)
            short = await _each(lambda: _open_sessions(store, "short", sessions), sessions)
            long = await _each(lambda: _open_sessions(store, "long", 4), 4)
    return [
        Figure(row, "an open stream, its answer begun", unit, "nothing", [open_streams]),
        Figure(row, f"an idle session of {SHORT} entries", unit, "nothing", [short]),
        Figure(row, f"{ENTRIES:,} entries of 1 KB, all read", unit, "nothing", [(long - short)]),
    ]


async def _each(opened: Callable[[], AbstractAsyncContextManager[None]], count: int) -> float:
    """The KB that one of these takes. They are opened twice: what the first time leaves behind is not theirs."""
    async with opened():
        pass
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    async with opened():
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / count / 1_000


@asynccontextmanager
async def _open_streams(count: int) -> AsyncIterator[None]:
    server = ServerProcess()
    model = asked(server, "endless")
    streams = [model.stream([Message.user("Tell me something.")]) for _ in range(count)]
    try:
        for begun in asyncio.as_completed([_first_text(stream) for stream in streams]):
            await begun
        yield
    finally:
        for stream in streams:
            await stream.aclose()
        await TRANSPORT.close()
        server.close()


async def _first_text(stream: AsyncIterator[object]) -> None:
    async for delta in stream:
        if getattr(delta, "kind", "") == "text":
            return


async def _fill(store: SQLiteStore, name: str, entries: int, count: int) -> None:
    for number in range(count):
        session_id = f"{name}-{number}"
        await store.create(session_id)
        await store.append(session_id, entries_of(session_id, entries), 0)


@asynccontextmanager
async def _open_sessions(store: SQLiteStore, name: str, count: int) -> AsyncIterator[None]:
    sessions = [await open_session(store, f"{name}-{number}") for number in range(count)]
    for session in sessions:
        list(session.entries)  # looked at, every one
    yield
    del sessions
