"""The conformance suite of `dragoman.testing.stores`, run over every store; a store that cheats is found."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from dragoman.history import HistoryEntry
from dragoman.store import AppendConflict, Head, Lease, Mark, MemoryStore, SessionStore, SQLiteStore
from dragoman.testing.stores import SHARED_STORE_CHECKS, STORE_CHECKS, require_store_conformance
from tests.postgres_server import Place

SHARED_KINDS = ("sqlite", "postgres")


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> Callable[[], SessionStore]:
    """Return what opens stores of one new place, of the kind that the test is run for."""
    if request.param == "memory":
        return MemoryStore
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        return lambda: SQLiteStore(path)
    place: Place = request.getfixturevalue("postgres")
    return lambda: place.store(poll_seconds=3600)


@pytest.mark.parametrize("check", STORE_CHECKS)
@pytest.mark.parametrize("open_store", ["memory", *SHARED_KINDS], indirect=True)
def test_a_store_holds_to(check: str, open_store: Callable[[], SessionStore]) -> None:
    async def run() -> None:
        store = open_store()
        try:
            await STORE_CHECKS[check](store)
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("check", SHARED_STORE_CHECKS)
@pytest.mark.parametrize("open_store", SHARED_KINDS, indirect=True)
def test_two_stores_of_one_place_hold_to(check: str, open_store: Callable[[], SessionStore]) -> None:
    async def run() -> None:
        first, second = open_store(), open_store()
        try:
            await SHARED_STORE_CHECKS[check](first, second)
        finally:
            await first.close()
            await second.close()

    asyncio.run(run())


@pytest.mark.slow  # each check by itself is above
@pytest.mark.parametrize("open_store", SHARED_KINDS, indirect=True)
def test_the_whole_suite_runs_in_one_place(open_store: Callable[[], SessionStore]) -> None:
    made = asyncio.run(require_store_conformance(open_store, is_shared=True))
    assert made == len(STORE_CHECKS) + len(SHARED_STORE_CHECKS)


class Forgetful(MemoryStore):
    """Says that it has kept what it has not."""

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await super().append(session_id, entries[:1], expected_serial, lease=lease)
        return Head(expected_serial + len(entries) - 1, head.checksum)


class Doubling(MemoryStore):
    """Takes a repeated append for a new one that came too late."""

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await self.head(session_id)
        if head.next_serial != expected_serial:
            raise AppendConflict("taken", head=head)
        return await super().append(session_id, entries, expected_serial, lease=lease)


class Unmarked(MemoryStore):
    """Finds no entry by its marks."""

    async def find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        return (await super().find_marks(words))[:0]


@pytest.mark.parametrize("cheat", [Forgetful, Doubling, Unmarked])
def test_a_store_that_cheats_fails(cheat: type[MemoryStore]) -> None:
    with pytest.raises((AssertionError, AppendConflict)):
        asyncio.run(require_store_conformance(cheat, is_shared=False))
