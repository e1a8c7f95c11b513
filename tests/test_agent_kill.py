"""Agents in a process that is killed: another goes on, and nothing is lost or done twice. See tests.agent_programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def kill(path: Path, rounds: int, *options: str) -> str:
    """Run the program on a new file and return what it printed."""
    command = [sys.executable, "-W", "error", "-m", "tests.agent_programs", "kill", str(path)]
    command += ["--rounds", str(rounds), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1_200)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # thousands of processes or runs
def test_agents_that_are_killed_a_hundred_times_go_on_and_do_nothing_twice(tmp_path: Path) -> None:
    assert "none lost, none doubled, nothing run twice" in kill(tmp_path / "s.db", 100)
