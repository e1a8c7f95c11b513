"""The conformance suite of `dragoman.testing.engines`, run over every engine; an engine that cheats is found."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from dragoman.durable import Engine, LocalEngine, Order, Perform, PostgresEngine, Progress
from dragoman.store import MemoryStore, SessionStore, SQLiteStore
from dragoman.testing.enginecases import MARK, NotingEngine, Stage
from dragoman.testing.engines import ENGINE_CHECKS, require_engine_conformance
from tests.postgres_server import Place
from tests.temporal_server import TemporalServer, missing

KINDS = ("memory", "sqlite", "postgres", "temporal")


class Opened(NamedTuple):
    """What opens stores and engines of one new place."""

    store: Callable[[], SessionStore]
    engine: Callable[[], Engine]


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Opened:
    """Return what opens stores and engines of one new place, of the kind that the test is run for."""
    if request.param in ("memory", "sqlite"):
        engine = LocalEngine()
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        return Opened(MemoryStore if request.param == "memory" else lambda: SQLiteStore(path), lambda: engine)
    place: Place = request.getfixturevalue("postgres")
    if request.param == "postgres":
        return Opened(place.store, lambda: PostgresEngine(place.conninfo(), schema=place.schema))
    server: TemporalServer = request.getfixturevalue("temporal")
    return Opened(place.store, lambda: server.engine(place.schema))


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal server for all tests of this module."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    server = TemporalServer(tmp_path_factory.mktemp("temporal"), has_files=False)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("check", ENGINE_CHECKS)
@pytest.mark.parametrize("opened", KINDS, indirect=True)
def test_an_engine_holds_to(check: str, opened: Opened) -> None:
    async def run() -> None:
        store = opened.store()
        try:
            await ENGINE_CHECKS[check](store, opened.engine)
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["memory", "postgres"], indirect=True)
def test_the_whole_suite_runs_in_one_place(opened: Opened) -> None:
    assert asyncio.run(require_engine_conformance(opened.store, opened.engine)) == len(ENGINE_CHECKS)


class Forgetful(LocalEngine):
    """Drops the next attempt."""

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        async def once(order: Order) -> Progress:
            return replace(await perform(order), next=None)

        await super().work(once, slots=slots, stop=stop)


class Hasty(LocalEngine):
    """Does not wait."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        await super().schedule(order)


class Crowded(LocalEngine):
    """Takes more orders than there are slots."""

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        await super().work(perform, slots=slots + 1, stop=stop)


class Ignorant(LocalEngine):
    """Says that it has what it was never given."""

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        return []


@pytest.mark.parametrize(
    ("engine", "check"),
    [
        (Forgetful, "an_agent_that_nobody_knows_is_given_up"),
        (Hasty, "the_next_attempt_comes_when_it_is_due"),
        (Crowded, "there_are_never_more_orders_under_way_than_slots"),
        (Ignorant, "what_waits_or_is_under_way_is_known"),
    ],
)
def test_an_engine_that_cheats_is_found(engine: type[LocalEngine], check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.testing.engines.PATIENCE", 1.0)
    cheat = engine()
    with pytest.raises((AssertionError, TimeoutError)):
        asyncio.run(ENGINE_CHECKS[check](MemoryStore(), lambda: cheat))


class Talkative(NotingEngine):
    """Gives the engine words of the conversation."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        await super().schedule(replace(order, agent=f"{order.agent} {MARK}"), seconds=seconds)


def test_words_of_the_conversation_in_an_order_are_found() -> None:
    async def run() -> None:
        stage = Stage(MemoryStore(), LocalEngine)
        await Talkative(stage.engine, []).schedule(Order("s", "echo", 0))
        with pytest.raises(AssertionError, match="a word of the conversation was given to the engine"):
            await stage.end([])

    asyncio.run(run())
