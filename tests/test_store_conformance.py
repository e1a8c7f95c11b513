"""The conformance suite of `dragoman.testing.stores`, run over every store; a store that cheats is found."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dragoman import HistoryEntry
from dragoman.store import AppendConflict, Head, MemoryStore, SessionStore, SQLiteStore
from dragoman.testing.stores import SHARED_STORE_CHECKS, STORE_CHECKS, require_store_conformance

OPENERS: dict[str, Callable[[Path], SessionStore]] = {
    "memory": lambda _folder: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "sessions.db"),
}


@pytest.mark.parametrize("check", STORE_CHECKS)
@pytest.mark.parametrize("kind", OPENERS)
def test_a_store_holds_to(kind: str, check: str, tmp_path: Path) -> None:
    async def run() -> None:
        store = OPENERS[kind](tmp_path)
        try:
            await STORE_CHECKS[check](store)
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("check", SHARED_STORE_CHECKS)
def test_two_stores_on_one_file_hold_to(check: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with SQLiteStore(tmp_path / "s.db") as first, SQLiteStore(tmp_path / "s.db") as second:
            await SHARED_STORE_CHECKS[check](first, second)

    asyncio.run(run())


def test_the_whole_suite_runs_in_one_file(tmp_path: Path) -> None:
    made = asyncio.run(require_store_conformance(lambda: SQLiteStore(tmp_path / "s.db"), is_shared=True))
    assert made == len(STORE_CHECKS) + len(SHARED_STORE_CHECKS)


class Forgetful(MemoryStore):
    """Says that it has kept what it has not."""

    async def append(self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int) -> Head:
        head = await super().append(session_id, entries[:1], expected_serial)
        return Head(expected_serial + len(entries) - 1, head.checksum)


class Doubling(MemoryStore):
    """Takes a repeated append for a new one that came too late."""

    async def append(self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int) -> Head:
        head = await self.head(session_id)
        if head.next_serial != expected_serial:
            raise AppendConflict("taken", head=head)
        return await super().append(session_id, entries, expected_serial)


@pytest.mark.parametrize("cheat", [Forgetful, Doubling])
def test_a_store_that_cheats_fails(cheat: type[MemoryStore]) -> None:
    with pytest.raises((AssertionError, AppendConflict)):
        asyncio.run(require_store_conformance(cheat, is_shared=False))
