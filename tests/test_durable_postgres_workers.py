"""Workers of the PostgreSQL engine that die, stand still or come back: no order is lost or ended by another."""

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import pytest

from dragoman.durable.orders import Order, Progress
from tests.durable_programs import PATIENCE, holder, judge_takeovers, prepare, request, until, workers
from tests.postgres_engine_cases import DONE, count, engine_of, quick_engine
from tests.postgres_server import Place

pytestmark = pytest.mark.slow  # minutes, on a busy machine


def test_the_order_of_a_killed_worker_goes_to_another(postgres: Place) -> None:
    prepare(postgres, "s")
    with workers(postgres, 2) as made:
        order = request(postgres, "s")
        first = holder(made, order)
        first.send(signal.SIGKILL)
        (second,) = (worker for worker in made if worker is not first)
        holder([second], order)
        second.say(f"end {order}")
        until(lambda: count(postgres, "jobs") == 0, "the order is done")
        until(lambda: count(postgres, "workers") == 1, "the dead worker is forgotten")


def test_a_worker_that_was_stopped_cannot_end_the_order_that_another_has(postgres: Place) -> None:
    prepare(postgres, "s", "t")
    with workers(postgres, 2) as made:
        order = request(postgres, "s")
        first = holder(made, order)
        first.send(signal.SIGSTOP)
        (second,) = (worker for worker in made if worker is not first)
        holder([second], order)
        first.send(signal.SIGCONT)
        first.say(f"end {order}")
        until(partial(first.has_said, f"end {order}"), "the late end")
        until(lambda: count(postgres, "workers") == 2, "the stopped worker is back, by a new id")
        assert count(postgres, "jobs", "status = 'doing'") == 1
        second.send(signal.SIGKILL)
        until(lambda: len([said for _, said in first.heard if said == f"begin {order}"]) == 2, "it comes once more")
        until(lambda: count(postgres, "jobs") == 0, "the order is done")


class Overlapping:
    """Two attempts of one worker at one order: others took it for dead during the first."""

    def __init__(self, place: Place, progress: Callable[[Order], Progress]) -> None:
        self._place = place
        self._progress = progress
        prepare(place, "s")
        request(place, "s")
        self._may_end = [asyncio.Event(), asyncio.Event()]
        self._begun = 0
        self._working: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def begin(self) -> None:
        self._working = asyncio.ensure_future(quick_engine(self._place).work(self._perform, slots=4, stop=self._stop))
        await self._until(lambda: self._begun == 1)
        with self._place.raw() as connection:
            connection.execute(f"DELETE FROM {self._place.schema}_engine.procrastinate_workers".encode())
        await self._until(lambda: self._begun == 2)

    async def end(self, number: int, is_reported: Callable[[], object]) -> None:
        self._may_end[number].set()
        await self._until(is_reported)

    async def stop(self) -> None:
        assert self._working
        self._stop.set()
        await self._working

    async def _perform(self, order: Order) -> Progress:
        self._begun += 1
        await self._may_end[self._begun - 1].wait()
        return self._progress(order)

    async def _until(self, is_so: Callable[[], object]) -> None:
        assert self._working
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                assert not self._working.done()
                await asyncio.sleep(0.01)


def test_an_attempt_that_was_taken_back_ends_nothing_in_its_own_worker(
    postgres: Place, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = Overlapping(postgres, lambda _: DONE)

    async def run() -> None:
        await attempts.begin()
        await attempts.end(0, lambda: "order s:0 had been given to another worker meanwhile" in caplog.text)
        assert count(postgres, "jobs", "status = 'doing'") == 1
        await attempts.end(1, lambda: count(postgres, "jobs") == 0)
        await attempts.stop()

    asyncio.run(run())
    assert count(postgres, "workers") == 0


@pytest.mark.parametrize("first", [0, 1])
def test_attempts_that_overlap_each_count_as_failures(postgres: Place, first: int) -> None:
    def failed(order: Order) -> Progress:
        later = Order("s", "support", 0, order.failures + 1, head=3)
        return Progress("queued", 3, later, 3600.0)

    attempts = Overlapping(postgres, failed)

    def reported(failures: int) -> int:
        return count(postgres, "jobs", f"args ->> 'failures' = '{failures}' AND args ->> 'head' = '3'")

    async def run() -> None:
        await attempts.begin()
        await attempts.end(first, lambda: reported(1))
        await attempts.end(1 - first, lambda: reported(2))
        await attempts.stop()

    asyncio.run(run())
    assert count(postgres, "jobs", "status = 'todo' AND scheduled_at > now() + interval '50 minutes'") == 1


def test_a_worker_that_waits_for_its_last_orders_keeps_them(postgres: Place) -> None:
    prepare(postgres, "s", "t")
    with workers(postgres, 2) as made:
        order = request(postgres, "s")
        first = holder(made, order)
        first.say("stop")
        (second,) = (worker for worker in made if worker is not first)
        heartbeats = f"SELECT min(last_heartbeat) FROM {postgres.schema}_engine.procrastinate_workers"
        begin = postgres.scalar(heartbeats)
        until(lambda: (postgres.scalar(heartbeats) - begin).total_seconds() > 1.5, "both live thrice dead_seconds more")
        other = request(postgres, "t")
        assert holder(made, other) is second
        assert not second.has_said(f"begin {order}")
        first.say(f"end {order}")
        until(partial(first.has_said, "stopped"), "it has stopped")
        assert first.process.wait(PATIENCE) == 0
        assert count(postgres, "jobs", "lock = 's'") == 0


def test_a_worker_that_is_cancelled_gives_its_orders_back_at_once(postgres: Place) -> None:
    prepare(postgres, "s")
    request(postgres, "s")

    async def run() -> None:
        begun = asyncio.Event()

        async def perform(order: Order) -> Progress:
            begun.set()
            await asyncio.Event().wait()
            return DONE

        task = asyncio.ensure_future(engine_of(postgres).work(perform, slots=1, stop=asyncio.Event()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert count(postgres, "jobs", "status = 'todo'") == 1
    assert count(postgres, "workers") == 0


@pytest.mark.parametrize("kills", [True, False])
def test_orders_survive_their_workers_again_and_again(postgres: Place, kills: bool) -> None:
    judge_takeovers(postgres, 3, kills=kills, heartbeat=0.1, dead=0.5, seed=1)


@pytest.mark.parametrize("kills", [True, False])
def test_orders_survive_many_workers(postgres: Place, kills: bool) -> None:
    judge_takeovers(postgres, 30, kills=kills, heartbeat=0.2, dead=1.0, seed=2)
