"""The ways through the code that docs/architecture.md tells are the real ones, and short."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "follow_calls.py"


def test_the_page_tells_the_ways_that_calls_take_and_they_are_short() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
