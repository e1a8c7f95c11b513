"""The suite of `dragoman.testing.engineworkers`, run over every engine; an engine that forgets its dead is found."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from dragoman.durable import EngineError, find_run
from dragoman.testing.engineworkers import (
    WORKER_CHECKS,
    WorkerProcesses,
    Workplace,
    check_runs_go_on,
    require_worker_conformance,
)
from tests.postgres_server import Place, restart
from tests.temporal_server import TemporalServer, missing

pytestmark = pytest.mark.slow  # each starts workers

ENGINES = ("postgres", "temporal")


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal server that may be restarted."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    server = TemporalServer(tmp_path_factory.mktemp("temporal"), has_files=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """A workplace of the kind that the test is run for."""
    opens = f"tests.engine_places:open_{request.param}"
    postgres: Place = request.getfixturevalue("postgres")
    if request.param in ("postgres", "patient"):
        return Workplace(opens, postgres.address, str(tmp_path))
    server: TemporalServer = request.getfixturevalue("temporal")
    return Workplace(opens, f"{server.address} {postgres.address}", str(tmp_path))


@pytest.mark.parametrize("place", ["temporal"], indirect=True)
@pytest.mark.parametrize("check", WORKER_CHECKS)
def test_workers_on_an_engine_hold_to(place: Workplace, check: str) -> None:
    asyncio.run(WORKER_CHECKS[check](place))


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_the_whole_suite_runs_in_one_place(place: Workplace) -> None:
    assert asyncio.run(require_worker_conformance(place)) == len(WORKER_CHECKS)


# ---------------------------------------------------------------- what is taken away for a moment


def disturbed(place: Workplace, disturb: Callable[[WorkerProcesses], Awaitable[object]]) -> None:
    asyncio.run(check_runs_go_on(place, disturb))


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_runs_go_on_although_notifications_are_lost(place: Workplace, postgres: Place) -> None:
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"

    async def lose_notifications(workers: WorkerProcesses) -> None:
        runs = []
        for number in range(8):
            await asyncio.to_thread(postgres.scalar, cut)
            runs.append(await workers.submit("look", f"unheard-{number % 3}"))
        workers.let_tools_end()
        await workers.completed(*runs)

    disturbed(place, lose_notifications)


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_runs_go_on_after_the_database_was_restarted(place: Workplace, postgres: Place) -> None:
    if postgres.server.data is None:
        pytest.skip("the server is not ours to restart")

    async def restart_database(_workers: WorkerProcesses) -> None:
        await asyncio.to_thread(restart, postgres.server)

    disturbed(place, restart_database)


@pytest.mark.parametrize("place", ["temporal"], indirect=True)
def test_runs_go_on_after_the_engine_was_restarted(place: Workplace, temporal: TemporalServer) -> None:
    async def restart_engine(workers: WorkerProcesses) -> None:
        await asyncio.to_thread(temporal.stop)
        with pytest.raises(EngineError, match="the run is recorded"):
            await workers.submit("look", "engine-away")
        await asyncio.to_thread(temporal.start)
        workers.let_tools_end()
        await workers.completed(await find_run(workers.store, workers.engine, "engine-away"))

    disturbed(place, restart_engine)


# ---------------------------------------------------------------- an engine that cheats


@pytest.mark.parametrize("place", ["patient"], indirect=True)
def test_an_engine_that_waits_for_workers_that_stand_still_is_found(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.testing.engineworkers.PATIENCE", 5.0)
    with pytest.raises(AssertionError, match="run stopped:0 ends"):
        asyncio.run(WORKER_CHECKS["a_stopped_worker_does_no_harm"](place))
