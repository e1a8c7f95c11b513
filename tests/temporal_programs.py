"""Workers that tests kill and stop: processes of their own, which write down what they do.

    python -m tests.temporal_programs ADDRESS NAME FILE SECONDS

NAME is task queue and prefix, FILE the journal, SECONDS the time after which another worker has its orders. An
order's agent says what `perform` does with it.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dragoman.durable.orders import Order, Progress
from dragoman.durable.temporal import TemporalEngine

QUICK = "quick"
HANGS = "hangs"  # the first attempt never ends
BLOCKS = "blocks"  # the attempt blocks the event loop for longer than a worker may be silent
WAITS = "waits"  # the n-th attempt waits until the file of that number is there; the first one fails, later ones do not


class Event(NamedTuple):
    """A line of the journal: which process began or ended an attempt at which session's order."""

    what: str
    pid: int
    session: str


class Journal:
    """What the workers did, in the order in which they did it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, what: str, order: Order) -> None:
        """Add an event of this process."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{what} {os.getpid()} {order.session}\n")

    def read(self, what: str = "") -> list[Event]:
        """Return the events, or those of one kind."""
        return [event for event in self._events() if not what or event.what == what]

    async def wait_for(self, what: str, count: int = 1) -> list[Event]:
        """Return the events of a kind once there are so many."""
        while len(found := self.read(what)) < count:  # noqa: ASYNC110  # other processes write it
            await asyncio.sleep(0.02)
        return found

    def _events(self) -> Iterator[Event]:
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            what, pid, session = line.split(" ", 2)
            yield Event(what, int(pid), session)


def block(seconds: float) -> None:
    """Let nothing else run in this thread."""
    time.sleep(seconds)


async def work(address: str, name: str, journal: Journal, seconds: float) -> None:
    """Perform orders until killed."""

    async def perform(order: Order) -> Progress:
        journal.write("begins", order)
        attempt = sum(event.session == order.session for event in journal.read("begins"))
        if order.agent == HANGS and attempt == 1:
            await asyncio.Event().wait()
        if order.agent == BLOCKS:
            block(2 * seconds)
        while order.agent == WAITS and not journal.path.with_name(str(attempt)).exists():
            # The first one cannot be cancelled meanwhile.
            block(0.02) if attempt == 1 else await asyncio.sleep(0.02)
        journal.write("ends", order)
        return Progress("failed" if order.agent == WAITS and attempt == 1 else "completed", attempt)

    engine = TemporalEngine(address, task_queue=name, prefix=name, dead_seconds=seconds, heartbeat_seconds=seconds / 6)
    journal.write("listens", Order("-", "-", 0))
    await engine.work(perform, slots=4, stop=asyncio.Event())


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], Journal(Path(sys.argv[3])), float(sys.argv[4])))
