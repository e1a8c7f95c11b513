"""A store in memory that several threads use at once, each with an event loop of its own."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from dragoman import MemoryStore
from dragoman.history import AgentState, RunRequestedEntry
from dragoman.store import Snapshot

SESSIONS = 300


@pytest.fixture(autouse=True)
def threads_take_turns() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


async def create(store: MemoryStore) -> None:
    """Start sessions, each with a run that was requested."""
    for number in range(SESSIONS):
        state = AgentState.create_default(session_id=f"s{number}")
        await store.create(f"s{number}")
        await store.append(f"s{number}", state.prepare_all((RunRequestedEntry("agent", run_id=f"r{number}"),)), 0)


async def snapshot(store: MemoryStore) -> None:
    """Keep snapshots of the session that is there, and drop them."""
    for _ in range(20 * SESSIONS):
        await store.keep_snapshot("s", Snapshot(0, b""))
        await store.drop_snapshots("s")


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (create, lambda store: store.list()),
        (create, lambda store: store.list_requests()),
        (snapshot, lambda store: store.open("s")),
    ],
    ids=["sessions", "requests", "snapshots"],
)
def test_a_thread_reads_while_another_one_writes(
    change: Callable[[MemoryStore], Awaitable[None]], look: Callable[[MemoryStore], Awaitable[object]]
) -> None:
    store = MemoryStore()
    asyncio.run(store.create("s"))

    async def write() -> None:
        await change(store)

    async def read() -> None:
        while writer.is_alive():
            await look(store)

    writer = threading.Thread(target=asyncio.run, args=(write(),))
    writer.start()
    try:
        asyncio.run(read())
    finally:
        writer.join()
