"""Whatever happens to an agent, it leaves a history that anybody can carry on. See tests.agent_walk."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAULTS = (
    "abandoned",
    "answers of a person",
    "cancelled",
    "crashes",
    "error conflict",
    "error limit_reached",
    "error server_error",
    "lost patience",
    "result tool_denied",
    "result tool_failed",
    "result tool_interrupted",
    "result tool_timeout",
    "result unknown_tool",
    "run aborted",
    "run awaiting_human",
)


def walk(runs: int, seed: int) -> str:
    """Run the program and return what it printed."""
    command = [sys.executable, "-W", "error", "-m", "tests.agent_walk", "--runs", str(runs), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=7_200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # thousands of processes or runs
def test_hundreds_of_runs_full_of_faults_leave_sound_histories() -> None:
    printed = walk(300, seed=1)
    assert "300 runs from seed 1: 0 wrong" in printed
    assert [fault for fault in FAULTS if f" {fault}\n" not in printed] == []
