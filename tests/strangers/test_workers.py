"""Workers that are killed, stopped and cut off, on every engine: `workers` has the programs, this runs them small."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from dragoman import AgentStatus
from dragoman.durable import Engine, EngineError, RunHandle, find_run, submit
from dragoman.history import RunStartedEntry
from tests.postgres_server import Place, restart
from tests.strangers.fleet import ROOT, Fleet, NotingStore, Setting
from tests.strangers.workers import stop_all
from tests.temporal_server import TemporalServer, missing

pytestmark = pytest.mark.slow  # each starts workers

ENGINES = ("postgres", "temporal")
PATIENCE = 60.0  # seconds after which something that must happen has not

Use = Callable[[NotingStore, Engine, Fleet], Awaitable[None]]


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
def setting(request: pytest.FixtureRequest, postgres: Place, tmp_path: Path) -> Setting:
    """How workers of the engine work that the test is run for."""
    is_temporal = request.param == "temporal"
    server = request.getfixturevalue("temporal").address if is_temporal else ""
    return Setting(postgres.address, str(tmp_path), request.param, server, pace=0.02, attempts=3)


def program(*arguments: str) -> None:
    """Run a program of `workers`; it judges by itself."""
    command = [sys.executable, "-W", "error", "-m", "tests.strangers.workers", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("setting", ENGINES, indirect=True)
@pytest.mark.parametrize(("task", "rounds"), [("kill", 30), ("stop", 6)])
def test_no_run_is_lost_with_its_worker(setting: Setting, task: str, rounds: int) -> None:
    engine = ["--engine", setting.engine, "--server", setting.server]
    program(task, setting.store, "--rounds", str(rounds), *engine)


@pytest.mark.parametrize("setting", ENGINES, indirect=True)
def test_many_sessions_at_once_end(setting: Setting) -> None:
    program("many", setting.store, "--sessions", "100", "--engine", setting.engine, "--server", setting.server)


# ---------------------------------------------------------------- what happens around workers


def work(setting: Setting, use: Use) -> None:
    """Use two workers; everything is sound at the end, and each run has started once."""

    async def run() -> None:
        async with asyncio.timeout(3 * PATIENCE), working(setting) as (store, engine, fleet):
            await use(store, engine, fleet)
            await stop_all(fleet)
            for info in (await store.list()).sessions:
                assert (await store.verify(info.session_id)).is_sound
                entries = await store.load(info.session_id)
                started = Counter(entry.run_id for entry in entries if isinstance(entry, RunStartedEntry))
                assert set(started.values()) == {1}

    asyncio.run(run())


@asynccontextmanager
async def working(setting: Setting) -> AsyncIterator[tuple[NotingStore, Engine, Fleet]]:
    """A store, an engine, and two workers of another process."""
    async with setting.open_store() as store:
        engine, fleet = setting.open_engine(), Fleet(setting)
        try:
            await engine.prepare()
            for _ in range(2):
                fleet.start()
            await until(lambda: len(fleet.ready()) == 2)
            yield store, engine, fleet
        finally:
            fleet.close()
            await engine.close()


async def until(is_so: Callable[[], object]) -> None:
    """Wait for a fact that no one tells."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def holders(fleet: Fleet, run: RunHandle) -> list[int]:
    """The processes that began the tool of a run, in their order."""
    called = (line.split() for line in fleet.lines("executed"))
    return [int(pid) for _, session, _, pid, _ in called if session == run.session_id]


def has_begun(fleet: Fleet, run: RunHandle, times: int) -> bool:
    """Whether the tool of a run was begun so often."""
    return len(holders(fleet, run)) >= times


def go(setting: Setting) -> None:
    """Let tools end that wait."""
    Path(setting.folder, "go").touch()


@pytest.mark.parametrize("setting", ENGINES, indirect=True)
def test_a_run_whose_workers_were_killed_again_and_again_is_not_given_up(setting: Setting) -> None:
    async def use(store: NotingStore, engine: Engine, fleet: Fleet) -> None:
        run = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        for number in range(setting.attempts + 1):
            await until(partial(has_begun, fleet, run, number + 1))
            fleet.kill(holders(fleet, run)[-1])
            fleet.start()
        go(setting)
        assert (await run.result()).status is AgentStatus.COMPLETED

    work(setting._replace(heartbeat=0.2, dead=0.8, lease=0.8), use)


@pytest.mark.parametrize("setting", ENGINES, indirect=True)
def test_runs_go_on_although_notifications_are_lost(setting: Setting, postgres: Place) -> None:
    async def use(store: NotingStore, engine: Engine, fleet: Fleet) -> None:
        cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        runs = []
        for number in range(8):
            await asyncio.to_thread(postgres.scalar, cut)
            runs.append(await submit(store, engine, agent="short", session=f"s{number % 3}", prompt="Go"))
        results = await asyncio.gather(*(run.result() for run in runs))
        assert {result.status for result in results} == {AgentStatus.COMPLETED}

    work(setting, use)


@pytest.mark.parametrize("setting", ENGINES, indirect=True)
def test_a_run_goes_on_after_the_database_was_restarted(setting: Setting, postgres: Place) -> None:
    if postgres.server.data is None:
        pytest.skip("the server is not ours to restart")

    async def use(store: NotingStore, engine: Engine, fleet: Fleet) -> None:
        run = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        await until(lambda: holders(fleet, run))
        await asyncio.to_thread(restart, postgres.server)
        go(setting)
        other = await submit(store, engine, agent="short", session="t", prompt="Go")
        assert (await run.result()).status is AgentStatus.COMPLETED
        assert (await other.result()).status is AgentStatus.COMPLETED
        assert not any(map(fleet.is_gone, fleet.pids))

    work(setting._replace(dead=10.0, lease=10.0), use)


@pytest.mark.parametrize("setting", ["temporal"], indirect=True)
def test_a_run_goes_on_after_the_engine_was_restarted(setting: Setting, temporal: TemporalServer) -> None:
    async def use(store: NotingStore, engine: Engine, fleet: Fleet) -> None:
        run = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        await until(lambda: holders(fleet, run))
        await asyncio.to_thread(temporal.stop)
        with pytest.raises(EngineError, match="the run is recorded"):
            await submit(store, engine, agent="short", session="t", prompt="Go")
        await asyncio.to_thread(temporal.start)
        go(setting)
        assert (await run.result()).status is AgentStatus.COMPLETED
        other = await find_run(store, engine, "t")
        assert (await other.result()).status is AgentStatus.COMPLETED

    work(setting._replace(dead=10.0, lease=10.0), use)


def test_the_worker_of_the_command_line_is_one_of_them(postgres: Place, tmp_path: Path) -> None:
    """`dragoman worker` performs what was submitted, and ends when it is told to."""
    (tmp_path / "clerks.py").write_text(
        "from tests.strangers.fleet import Setting, make_agents\n"
        f"agents = make_agents(Setting('', {str(tmp_path)!r}, pace=0.01))\n"
    )
    command = [sys.executable, "-m", "dragoman", "worker", "--agents", "clerks:agents", "--store", postgres.address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith(b"dragoman works: ")

            async def run() -> None:
                setting = Setting(postgres.address, str(tmp_path))
                async with asyncio.timeout(PATIENCE), setting.open_store() as store:
                    asked = await submit(store, setting.open_engine(), agent="clerk", session="s", prompt="Go")
                    assert (await asked.result()).status is AgentStatus.COMPLETED

            asyncio.run(run())
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
