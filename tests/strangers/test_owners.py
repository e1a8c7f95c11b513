"""Two processes on one session: `owners` has the programs, this runs them small."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres_server import Place

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    """Run a program of `owners` and return what it printed; it judges by itself."""
    command = [sys.executable, "-W", "error", "-m", "tests.strangers.owners", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("clock", [(), ("--whole-seconds",)], ids=["usual", "whole seconds"])
def test_two_processes_that_resume_a_session_run_its_call_once(tmp_path: Path, clock: tuple[str, ...]) -> None:
    run("resume", str(tmp_path / "s.db"), "--sessions", "25", *clock)


@pytest.mark.slow
@pytest.mark.parametrize("clock", [(), ("--whole-seconds",)], ids=["usual", "whole seconds"])
def test_two_processes_on_postgres_run_a_call_once(postgres: Place, clock: tuple[str, ...]) -> None:
    run("resume", postgres.address, "--sessions", "25", *clock)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "rounds"), [("stop", 8), ("kill", 12)])
def test_a_lost_owner_starts_no_tool(tmp_path: Path, task: str, rounds: int) -> None:
    run(task, str(tmp_path / "s.db"), "--rounds", str(rounds))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "rounds"), [("stop", 4), ("kill", 6)])
def test_a_lost_owner_on_postgres_starts_no_tool(postgres: Place, task: str, rounds: int) -> None:
    run(task, postgres.address, "--rounds", str(rounds))
