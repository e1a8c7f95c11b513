"""Workers that are killed and stopped, on every engine: `workers` has the programs, this runs them small."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import AgentStatus
from dragoman.durable import submit
from tests.postgres_server import Place
from tests.strangers.fleet import ROOT, Setting
from tests.temporal_server import TemporalServer, missing

pytestmark = pytest.mark.slow  # each starts workers

ENGINES = ("postgres", "temporal")
PATIENCE = 60.0  # seconds after which something that must happen has not


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


@pytest.fixture
def setting(request: pytest.FixtureRequest, postgres: Place, tmp_path: Path) -> Setting:
    """How workers of the engine work that the test is run for."""
    is_temporal = request.param == "temporal"
    server = request.getfixturevalue("temporal").address if is_temporal else ""
    return Setting(postgres.address, str(tmp_path), request.param, server)


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
