"""Workers of the PostgreSQL engine in processes of their own, which are killed and stopped.

    python -m tests.durable_programs kill STORE --rounds 100     workers that are killed with an order under way
    python -m tests.durable_programs stop STORE --rounds 100     workers that are stopped, and go on much later

STORE is the URI of a PostgreSQL database, with `#` and the name of a schema after it. Each round gives an order to one
of three workers, takes that worker away, and waits until another one has the order. The worker that was stopped goes on
and ends the order late, then the second is killed: the order must be begun once more. The programs print how long it
took until others had the orders, and fail if one is lost, or if more than one in a hundred took longer than
`dead_seconds` + 2 s.
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dragoman.durable.orders import Order, Progress
from dragoman.durable.postgres import PostgresEngine
from tests.postgres_server import ROOT, Place, Server

PATIENCE = 60.0  # seconds after which something that must happen has not

# The store makes this table in its own migrations.
REQUESTS = """
    CREATE TABLE IF NOT EXISTS requests (
        session bigint NOT NULL,
        serial bigint NOT NULL,
        agent text NOT NULL,
        run_id text NOT NULL,
        request_key text UNIQUE,
        status text NOT NULL,
        wakes bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (session, serial)
    )
"""
REQUEST = """
    INSERT INTO requests (session, serial, agent, run_id, status)
    SELECT key, %s, 'support', %s, 'queued' FROM sessions WHERE session_id = %s
"""


def until(is_so: Callable[[], object], what: str) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} seconds: {what}"
        time.sleep(0.01)


def prepare(place: Place, *sessions: str) -> None:
    """Make the tables of the sessions and of the engine, and sessions."""

    async def make() -> None:
        async with place.store() as store:
            await store.migrate()
            for session in sessions:
                await store.create(session)
        with place.raw() as connection:
            connection.execute(REQUESTS.encode())
        await PostgresEngine(place.conninfo(), schema=place.schema).prepare()

    asyncio.run(make())


def request(place: Place, session: str, serial: int = 0) -> str:
    """Record a request as the store does, and return its order's name."""
    with place.raw() as connection:
        assert connection.execute(REQUEST, (serial, f"{session}:{serial}", session)).rowcount == 1
    return f"{session}:{serial}"


class WorkerProcess:
    """A worker in a process of its own. It ends an order when it is told to."""

    def __init__(self, place: Place, *, heartbeat_seconds: float = 0.1, dead_seconds: float = 0.5) -> None:
        settings = [place.address, "--heartbeat", str(heartbeat_seconds), "--dead", str(dead_seconds)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.durable_programs", "worker", *settings],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.heard: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.heard.append((time.monotonic(), line.strip()))

    def has_said(self, line: str) -> bool:
        """Whether it has said that."""
        return any(said == line for _, said in self.heard)

    def say(self, line: str) -> None:
        """Tell it something."""
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send a signal, and return when."""
        self.process.send_signal(number)
        return time.monotonic()

    def end(self) -> None:
        """Leave nothing."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def workers(place: Place, number: int, **settings: Any) -> Iterator[list[WorkerProcess]]:
    """Yield workers that work; those that are added to the list are ended too."""
    made = [WorkerProcess(place, **settings) for _ in range(number)]
    try:
        for worker in made:
            until(partial(worker.has_said, "ready"), "a worker is ready")
        yield made
    finally:
        for worker in made:
            worker.end()


def holder(made: list[WorkerProcess], order: str) -> WorkerProcess:
    """Wait until exactly one of the workers has begun the order, and return it."""
    until(lambda: any(worker.has_said(f"begin {order}") for worker in made), f"{order} is begun")
    (found,) = (worker for worker in made if worker.has_said(f"begin {order}"))
    return found


async def perform_as_told(address: str, heartbeat_seconds: float, dead_seconds: float) -> None:
    """Work, and say so; end what standard input says, and everything when it ends."""
    conninfo, _, schema = address.partition("#")
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ends: dict[str, asyncio.Event] = {}

    def hear(line: str) -> None:
        if line == "stop":
            stop.set()
        else:
            ends.setdefault(line.removeprefix("end "), asyncio.Event()).set()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(hear, line.strip())

    async def perform(order: Order) -> Progress:
        print(f"begin {order}", flush=True)
        await ends.setdefault(str(order), asyncio.Event()).wait()
        print(f"end {order}", flush=True)
        return Progress("completed", order.serial)

    threading.Thread(target=read, daemon=True).start()
    engine = PostgresEngine(conninfo, schema=schema, heartbeat_seconds=heartbeat_seconds, dead_seconds=dead_seconds)
    await engine.find_unscheduled([])
    print("ready", flush=True)
    await engine.work(perform, slots=4, stop=stop)
    await engine.close()
    print("stopped", flush=True)


# ---------------------------------------------------------------- taken over


def judge_takeovers(place: Place, rounds: int, *, kills: bool, heartbeat: float, dead: float, seed: int) -> bool:
    """Kill or stop workers with an order under way; return whether another one got each order in time."""
    chance = random.Random(seed)
    prepare(place, *(f"r{number}" for number in range(rounds)))
    waits: list[float] = []
    begin = time.monotonic()
    settings = {"heartbeat_seconds": heartbeat, "dead_seconds": dead}
    with workers(place, 3, **settings) as made:
        for number in range(rounds):
            order = request(place, f"r{number}")
            first = holder(made, order)
            time.sleep(chance.uniform(0, heartbeat))
            taken_away = first.send(signal.SIGKILL if kills else signal.SIGSTOP)
            others = [worker for worker in made if worker is not first]
            second = holder(others, order)
            waits.append(next(when for when, said in second.heard if said == f"begin {order}") - taken_away)
            if kills:
                second.say(f"end {order}")
                _replace(made, first, place, settings)
            else:
                first.send(signal.SIGCONT)
                first.say(f"end {order}")
                until(partial(first.has_said, f"end {order}"), "the late end")
                for worker in others:
                    if worker is not second:
                        worker.say(f"end {order}")
                second.send(signal.SIGKILL)
                until(partial(_has_begun, made, order, 3), "a third attempt, by the first worker or the third")
                _replace(made, second, place, settings)
            until(lambda: _jobs(place) == 0, "the order is done")
    waits.sort()
    slow = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    print(
        f"{rounds} workers {'killed' if kills else 'stopped'}: taken over after {waits[len(waits) // 2]:.2f} s"
        f" (median), {slow:.2f} (99 %), {waits[-1]:.2f} (slowest); heartbeat {heartbeat:g} s, dead after {dead:g} s"
        f" ({time.monotonic() - begin:.0f} s)"
    )
    return slow <= dead + 2


def _replace(made: list[WorkerProcess], gone: WorkerProcess, place: Place, settings: dict[str, float]) -> None:
    gone.end()
    made.remove(gone)
    worker = WorkerProcess(place, **settings)
    made.append(worker)
    until(lambda: worker.has_said("ready"), "a worker is ready")


def _has_begun(made: list[WorkerProcess], order: str, times: int) -> bool:
    return sum(said == f"begin {order}" for worker in made for _, said in worker.heard) == times


def _jobs(place: Place) -> int:
    return int(place.scalar(f"SELECT count(*) FROM {place.schema}_engine.procrastinate_jobs"))


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("kill", "stop", "worker"))
    parser.add_argument("store")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--heartbeat", type=float, default=2.0)
    parser.add_argument("--dead", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.task == "worker":
        asyncio.run(perform_as_told(chosen.store, chosen.heartbeat, chosen.dead))
        return 0
    dsn, _, schema = chosen.store.partition("#")
    place = Place(Server(dsn), schema)
    is_well = judge_takeovers(
        place,
        chosen.rounds,
        kills=chosen.task == "kill",
        heartbeat=chosen.heartbeat,
        dead=chosen.dead,
        seed=chosen.seed,
    )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
