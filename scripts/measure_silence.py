"""Run a command on a pseudo-terminal, and tell how long it was silent.

    python scripts/measure_silence.py [--first SECONDS] [--longest SECONDS] COMMAND [ARGUMENT ...]

Standard input is empty. What the command writes is written here too. The last line says when the first sign came, and
how long the longest silence was and after which words. Exits with 1 where a limit is broken, else as the command did.
"""

import argparse
import os
import pty
import re
import subprocess
import sys
import time
from typing import NamedTuple


class Measured(NamedTuple):
    """The status of the command, and its silences in seconds; `after` are the words before the longest."""

    status: int
    first: float
    longest: float
    after: str
    total: float


def measure(command: list[str]) -> Measured:
    """Run the command, and return how it ended and how long it was silent."""
    ours, theirs = pty.openpty()
    began = last = time.monotonic()
    first: float | None = None
    longest, after, tail = 0.0, "", b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while True:
            try:
                written = os.read(ours, 65_536)
            except OSError:  # so Linux tells that the other end is closed
                written = b""
            now = time.monotonic()
            if first is None:
                first = now - began
            elif now - last > longest:
                longest, after = now - last, _words(tail)
            last = now
            if not written:
                break
            tail = (tail + written)[-200:]
            sys.stdout.buffer.write(written)
            sys.stdout.buffer.flush()
    os.close(ours)
    return Measured(process.returncode, first, longest, after, last - began)


def _words(written: bytes) -> str:
    """The last line that was written, without what moves a terminal's cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode(errors="replace"))
    return next((line.strip() for line in reversed(re.split(r"[\r\n]+", plain)) if line.strip()), "")


def main() -> None:
    """Measure, tell, and exit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=float, default=float("inf"), help="the latest first sign, in seconds")
    parser.add_argument("--longest", type=float, default=float("inf"), help="the longest silence, in seconds")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    found = measure(chosen.command)
    told = f"first sign after {found.first:.1f} s, longest silence {found.longest:.1f} s after {found.after!r}"
    print(f"\n{told}, {found.total:.0f} s in all")
    if found.first > chosen.first or found.longest > chosen.longest:
        sys.exit(1)
    sys.exit(found.status)


if __name__ == "__main__":
    main()
