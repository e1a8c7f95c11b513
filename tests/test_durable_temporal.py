"""Orders on a real Temporal server: delivered at least once, to one worker after the other, and nothing else told."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dragoman import Agent, AgentConfig, MemoryStore, Session, tool
from dragoman.durable import Agents, abort_order, submit
from dragoman.durable import Worker as DurableWorker
from dragoman.durable.engine import EngineError, Perform
from dragoman.durable.orders import Order, Progress
from dragoman.durable.temporal import TemporalEngine
from dragoman.durable.temporal_worker import make_plugin
from dragoman.history import AgentStatus
from dragoman.request import LoopConfig
from dragoman.testing import Call, ScriptedModel, Turn
from tests.temporal_programs import BLOCKS, HANGS, QUICK, WAITS, Journal
from tests.temporal_server import PLAIN, ROOT, TemporalServer, missing

pytest.importorskip("temporalio", reason="temporalio is not installed")

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.worker import Worker

pytestmark = pytest.mark.slow  # a server, and workers that must be taken for dead

ORDER = Order("a session", "support", 3)
DONE = Progress("completed", 9)
DEAD_SECONDS = 4.0
GIVE_UP_SECONDS = 240  # a test that waits for something longer has failed
HOURS = 36_000.0

_numbers = count(1)
_Result = TypeVar("_Result")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A server for all tests that need not stop it."""
    yield from _servers(tmp_path_factory.mktemp("temporal"), has_files=False)


@pytest.fixture
def server_with_files(tmp_path: Path) -> Iterator[TemporalServer]:
    """A server of the test's own, which keeps its data in files and suggests early to continue as new."""
    yield from _servers(tmp_path, has_files=True)


def _servers(folder: Path, *, has_files: bool) -> Iterator[TemporalServer]:
    reason = missing()
    if reason is not None:
        if os.environ.get("DRAGOMAN_LIVE") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    server = TemporalServer(folder, has_files=has_files)
    server.start()
    yield server
    server.stop()


def new_name() -> str:
    """Return a name for a test's task queue, and for its workflows."""
    return f"test{next(_numbers)}"


def run(work: Awaitable[_Result]) -> _Result:
    """Return what the work returns."""

    async def limited() -> _Result:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            return await work

    return asyncio.run(limited())


class Performer:
    """Performs orders as a function says, and counts them."""

    def __init__(self, answer: Callable[[Order], Progress] = lambda order: DONE) -> None:
        self.orders: list[Order] = []
        self.cancelled = 0
        self.waits: asyncio.Event | None = None  # what an attempt waits for before it returns
        self._answer = answer
        self._changed = asyncio.Condition()

    async def __call__(self, order: Order) -> Progress:
        async with self._changed:
            self.orders.append(order)
            self._changed.notify_all()
        if self.waits is not None:
            try:
                await self.waits.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return self._answer(order)

    async def began(self, number: int) -> None:
        """Return when so many attempts have begun."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.orders) >= number)


@asynccontextmanager
async def working(engine: TemporalEngine, perform: Perform, slots: int = 4) -> AsyncIterator[None]:
    """Let a worker perform orders meanwhile."""
    stop = asyncio.Event()
    task = asyncio.create_task(engine.work(perform, slots=slots, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def ended(engine: TemporalEngine, *orders: Order) -> None:
    """Return when the workflows of these orders have ended."""
    while len(await engine.find_unscheduled(orders)) < len(orders):  # noqa: ASYNC110  # the server decides
        await asyncio.sleep(0.02)


async def handle_of(server: TemporalServer, name: str, order: Order = ORDER) -> WorkflowHandle[Any, Any]:
    """Return the newest workflow of an order."""
    client = await Client.connect(server.address)
    return client.get_workflow_handle(f"{name}:{order}")


# ---------------------------------------------------------------- orders in one process


def test_an_order_is_performed_once_and_its_workflow_ends(server: TemporalServer) -> None:
    async def orders() -> list[Order]:
        engine, performer = server.engine(new_name()), Performer()
        async with working(engine, performer):
            await engine.schedule(ORDER)
            await performer.began(1)
            await ended(engine, ORDER)
        await engine.close()
        return performer.orders

    assert run(orders()) == [ORDER]


def test_orders_that_were_scheduled_often_before_a_worker_listens_are_performed_once(server: TemporalServer) -> None:
    async def orders() -> list[Order]:
        engine, performer = server.engine(new_name()), Performer()
        for _ in range(3):
            await engine.schedule(ORDER)
        async with working(engine, performer):
            await ended(engine, ORDER)
        return performer.orders

    assert run(orders()) == [ORDER]


def test_scheduling_wakes_a_workflow_that_sleeps(server: TemporalServer) -> None:
    async def orders() -> int:
        engine = server.engine(new_name())
        performer = Performer(lambda order: DONE if order.failures else Progress("running", 1, late, HOURS))
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await performer.began(1)
            await engine.schedule(ORDER)
            await ended(engine, ORDER)
        return len(performer.orders)

    late = Order(ORDER.session, ORDER.agent, ORDER.serial, failures=1)
    assert run(orders()) == 2


def test_an_order_that_is_scheduled_during_an_attempt_is_performed_once_more(server: TemporalServer) -> None:
    async def orders() -> int:
        engine, performer = server.engine(new_name()), Performer()
        performer.waits = asyncio.Event()
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await performer.began(1)
            await engine.schedule(ORDER)
            await engine.schedule(ORDER)
            performer.waits.set()
            await ended(engine, ORDER)
        return len(performer.orders)

    assert run(orders()) == 2


@pytest.mark.parametrize("given", [[], [0.0, 1.0], ["soon"], [None], [-1], [1e300], [{"a": 1}], [True]], ids=str)
def test_a_signal_with_whatever_arguments_wakes_the_workflow(server: TemporalServer, given: list[Any]) -> None:
    async def orders() -> int:
        name = new_name()
        engine, performer = server.engine(name), Performer()
        await engine.schedule(ORDER, seconds=HOURS)
        handle = (await engine._connect()).get_workflow_handle(f"{name}:{ORDER}")
        await handle.signal("wake", args=given)
        async with working(engine, performer):
            await ended(engine, ORDER)
        return len(performer.orders)

    assert run(orders()) == 1


def test_an_order_whose_workflow_has_ended_starts_it_again(server: TemporalServer) -> None:
    async def orders() -> int:
        engine, performer = server.engine(new_name()), Performer(lambda order: Progress("awaiting_human", 4))
        async with working(engine, performer):
            for number in (1, 2):
                await engine.schedule(ORDER)
                await performer.began(number)
                await ended(engine, ORDER)
        return len(performer.orders)

    assert run(orders()) == 2


def test_an_order_for_later_waits_and_one_for_now_wakes_it(server: TemporalServer) -> None:
    async def orders() -> int:
        engine, performer = server.engine(new_name()), Performer()
        await engine.schedule(ORDER, seconds=HOURS)
        other = Order("another session", "support", 1)
        async with working(engine, performer):
            await engine.schedule(other)
            await ended(engine, other)
            assert performer.orders == [other]
            await engine.schedule(ORDER)
            await ended(engine, ORDER)
        return len(performer.orders)

    assert run(orders()) == 2


def test_what_has_no_workflow_that_runs_is_unscheduled(server: TemporalServer) -> None:
    async def unscheduled() -> list[Order]:
        engine = server.engine(new_name())
        done, waits, unknown = (Order(session, "support", 1) for session in ("done", "waits", "unknown"))
        await engine.schedule(done)
        async with working(engine, Performer()):
            await ended(engine, done)
        await engine.schedule(waits)
        return await engine.find_unscheduled([unknown, waits, done])

    assert [order.session for order in run(unscheduled())] == ["unknown", "done"]


def test_a_thousand_orders_are_performed_once_each(server: TemporalServer) -> None:
    async def orders() -> list[str]:
        engine, performer, limit = server.engine(new_name()), Performer(), asyncio.Semaphore(16)

        async def schedule(order: Order) -> None:
            async with limit:
                await engine.schedule(order)

        wanted = [Order(str(number), "support", 1) for number in range(1000)]
        async with working(engine, performer, slots=16):
            await asyncio.gather(*map(schedule, wanted))
            await performer.began(1000)
            for order in wanted:
                await ended(engine, order)
        return [order.session for order in performer.orders]

    assert sorted(run(orders()), key=int) == [str(number) for number in range(1000)]


# ---------------------------------------------------------------- stopping and cancelling


def test_a_worker_that_is_told_to_stop_lets_its_attempts_return(server: TemporalServer) -> None:
    async def status() -> Any:
        name = new_name()
        engine, performer, stop = server.engine(name), Performer(), asyncio.Event()
        performer.waits = asyncio.Event()
        await engine.schedule(ORDER)
        worker = asyncio.create_task(engine.work(performer, slots=1, stop=stop))
        await performer.began(1)
        stop.set()
        done, _ = await asyncio.wait((worker,), timeout=0.2)
        assert not done
        performer.waits.set()
        await worker
        async with working(engine, Performer()):  # it has the workflow's last task
            return await (await handle_of(server, name)).result()

    assert run(status()) == {"status": "completed", "serial": 9}


def test_a_worker_that_was_told_to_stop_before_it_began_returns(server: TemporalServer) -> None:
    async def orders() -> list[Order]:
        engine, performer, stop = server.engine(new_name()), Performer(), asyncio.Event()
        stop.set()
        await engine.work(performer, slots=1, stop=stop)
        return performer.orders

    assert run(orders()) == []


def test_an_unknown_namespace_is_an_error_with_advice(server: TemporalServer) -> None:
    async def work() -> None:
        await server.engine(new_name(), namespace="nowhere").work(Performer(), slots=1, stop=asyncio.Event())

    with pytest.raises(EngineError, match="make the namespace"):
        run(work())


def test_a_cancelled_worker_gives_its_orders_to_another(server: TemporalServer) -> None:
    async def counts() -> tuple[int, list[Order]]:
        engine, first, second = server.engine(new_name()), Performer(), Performer()
        first.waits = asyncio.Event()
        await engine.schedule(ORDER)
        worker = asyncio.create_task(engine.work(first, slots=1, stop=asyncio.Event()))
        await first.began(1)
        worker.cancel()
        await asyncio.wait((worker,))
        assert worker.cancelled()
        async with working(engine, second):
            await ended(engine, ORDER)
        return first.cancelled, second.orders

    assert run(counts()) == (1, [ORDER])


@pytest.mark.parametrize("sleeps", [False, True])
def test_cancelling_the_workflow_cancels_the_attempt_and_asks_the_run_to_end(
    server: TemporalServer, sleeps: bool
) -> None:
    async def facts() -> tuple[int, list[str], WorkflowExecutionStatus | None]:
        name, asked = new_name(), []

        async def abort(order: Order) -> None:
            asked.append(order.session)
            performer.waits = None

        engine = server.engine(name, abort=abort, heartbeat_seconds=0.3)
        performer = Performer(lambda _: Progress("aborted", 5) if asked else Progress("running", 4, ORDER, HOURS))
        if not sleeps:
            performer.waits = asyncio.Event()
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await performer.began(1)
            handle = await handle_of(server, name)
            await handle.cancel()
            await ended(engine, ORDER)
        assert len(performer.orders) == 2  # the second one ends the run
        return performer.cancelled, asked, (await handle.describe()).status

    assert run(facts()) == (0 if sleeps else 1, [ORDER.session], WorkflowExecutionStatus.CANCELED)


def test_cancelling_the_workflow_ends_the_tool_under_way_and_the_run(server: TemporalServer) -> None:
    async def ending() -> tuple[AgentStatus, bool]:
        store, begun, is_stopped = MemoryStore(), asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait for ever."""
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_stopped.set()
            return ""

        def make(session: Session) -> Agent:
            config = AgentConfig(loop=LoopConfig(lease_seconds=1.0))
            return Agent(ScriptedModel(Turn(calls=(Call("wait", {}),))), tools=[wait], session=session, config=config)

        name = new_name()
        engine = server.engine(name, abort=lambda order: abort_order(store, order), heartbeat_seconds=0.3)
        worker = DurableWorker(store, engine, Agents({"waiter": make}))
        task = asyncio.ensure_future(worker.run())
        asked = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        await begun.wait()
        await (await handle_of(server, name, asked.order)).cancel()
        result = await asked.result()
        worker.stop()
        assert await task
        return result.status, is_stopped.is_set()

    assert run(ending()) == (AgentStatus.ABORTED, True)


def test_without_a_way_to_abort_a_cancelled_workflow_leaves_the_run_open(server: TemporalServer) -> None:
    async def facts() -> tuple[int, list[Order]]:
        name = new_name()
        engine, performer = server.engine(name, heartbeat_seconds=0.3), Performer()
        performer.waits = asyncio.Event()
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await performer.began(1)
            await (await handle_of(server, name)).cancel()
            await ended(engine, ORDER)
        assert len(performer.orders) == 1
        return performer.cancelled, await engine.find_unscheduled([ORDER])

    assert run(facts()) == (1, [ORDER])


# ---------------------------------------------------------------- workers that die, stand still or block


class Workers:
    """Processes that work for one task queue, with one journal."""

    def __init__(self, server: TemporalServer, folder: Path) -> None:
        self.name = new_name()
        self.journal = Journal(folder / "journal")
        self.folder = folder
        self._server = server
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more."""
        arguments = [self._server.address, self.name, str(self.journal.path), str(DEAD_SECONDS)]
        command = [sys.executable, "-m", "tests.temporal_programs", *arguments]
        self._processes.append(subprocess.Popen(command, cwd=ROOT))
        return self._processes[-1]

    def engine(self) -> TemporalEngine:
        """Return an engine that schedules for them."""
        return self._server.engine(self.name, dead_seconds=DEAD_SECONDS, heartbeat_seconds=DEAD_SECONDS / 6)

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def workers(server: TemporalServer, tmp_path: Path) -> Iterator[Workers]:
    """Workers that are gone after the test."""
    found = Workers(server, tmp_path)
    yield found
    found.stop()


def test_the_order_of_a_killed_worker_is_given_to_another(workers: Workers) -> None:
    async def facts() -> tuple[int, int]:
        engine, killed = workers.engine(), workers.start()
        await engine.schedule(Order("s", HANGS, 1))
        await workers.journal.wait_for("begins")
        other = workers.start()
        await workers.journal.wait_for("listens", 2)
        killed.kill()
        (end,) = await workers.journal.wait_for("ends")
        assert end.pid == other.pid
        return len(workers.journal.read("begins")), len(workers.journal.read("ends"))

    assert run(facts()) == (2, 1)


def test_a_worker_that_stood_still_and_goes_on_changes_nothing(workers: Workers, server: TemporalServer) -> None:
    async def result() -> Any:
        engine, stopped, order = workers.engine(), workers.start(), Order("s", WAITS, 1)
        await engine.schedule(order)
        await workers.journal.wait_for("begins")
        stopped.send_signal(signal.SIGSTOP)
        workers.start()
        await workers.journal.wait_for("begins", 2)
        (workers.folder / "1").touch()
        stopped.send_signal(signal.SIGCONT)
        (late,) = await workers.journal.wait_for("ends")
        assert late.pid == stopped.pid
        assert await engine.find_unscheduled([order]) == []
        await engine.schedule(Order("t", QUICK, 1))  # the server has heard of the late end before this one's
        await workers.journal.wait_for("ends", 2)
        (workers.folder / "2").touch()
        return await (await handle_of(server, workers.name, order)).result()

    assert run(result()) == {"status": "completed", "serial": 2}


def test_a_tool_that_blocks_the_event_loop_stops_no_heartbeat(workers: Workers) -> None:
    async def count_attempts() -> int:
        engine = workers.engine()
        workers.start()
        workers.start()
        await engine.schedule(Order("s", BLOCKS, 1))
        await workers.journal.wait_for("ends")
        await ended(engine, Order("s", BLOCKS, 1))
        return len(workers.journal.read("begins"))

    assert run(count_attempts()) == 1


def test_a_restart_of_the_server_loses_no_order(server_with_files: TemporalServer) -> None:
    name = new_name()
    engine, performer = server_with_files.engine(name), Performer()
    sleeping, waiting = Order("sleeping", "support", 1), Order("waiting", "support", 1)

    async def before() -> None:
        await engine.schedule(waiting)
        await engine.schedule(sleeping, seconds=1.0)

    async def after() -> None:
        async with working(engine, performer):
            await ended(engine, waiting, sleeping)

    run(before())
    server_with_files.stop()
    server_with_files.start()
    run(after())
    assert {order.session for order in performer.orders} == {"sleeping", "waiting"}


def test_a_worker_outlives_a_restart_of_the_server(server_with_files: TemporalServer) -> None:
    async def orders() -> list[str]:
        engine, performer = server_with_files.engine(new_name()), Performer()
        performer.waits = asyncio.Event()
        before, after = Order("before", "support", 1), Order("after", "support", 1)
        await engine.schedule(before)
        async with working(engine, performer):
            await performer.began(1)
            await asyncio.to_thread(server_with_files.stop)
            await asyncio.to_thread(server_with_files.start)
            performer.waits.set()
            await engine.schedule(after)
            await ended(engine, before, after)
        return sorted({order.session for order in performer.orders})

    assert run(orders()) == ["after", "before"]


# ---------------------------------------------------------------- what Temporal is told


def attempts(number: int, seconds: float = 0.0) -> Callable[[Order], Progress]:
    """Return an answer that asks for so many attempts."""

    def answer(order: Order) -> Progress:
        done = order.failures + 1
        next_order = Order(order.session, order.agent, order.serial, failures=done, head=done)
        return Progress("running", done, next_order, seconds) if done < number else DONE

    return answer


@pytest.mark.parametrize(("number", "seconds"), [(101, 0.0), (11, 0.01)])
def test_an_attempt_takes_at_most_a_kilobyte_of_history(server: TemporalServer, number: int, seconds: float) -> None:
    async def history() -> tuple[int, int]:
        name, order = new_name(), Order("8c7a4d0e-52a1-4f6f-9a55-0a1f3c1f8b11", "support", 1)
        # The name of the process is in each event.
        engine, performer = server.engine(name, identity="1@worker"), Performer(attempts(number, seconds))
        await engine.prepare()
        await engine.schedule(order)
        async with working(engine, performer):
            await ended(engine, order)
        described = (await (await handle_of(server, name, order)).describe()).raw_description.workflow_execution_info
        return described.history_size_bytes, described.history_length

    size, events = run(history())
    print(f"{number} attempts, {seconds} s apart: {size} bytes, {events} events")
    assert size <= (number + 1) * 1024  # one for the start


def test_a_long_history_goes_on_in_a_new_one(server_with_files: TemporalServer) -> None:
    async def facts() -> tuple[int, int]:
        name = new_name()
        engine, performer = server_with_files.engine(name), Performer(attempts(101))
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await performer.began(101)
            await ended(engine, ORDER)
        described = await (await handle_of(server_with_files, name)).describe()
        return len(performer.orders), described.history_length

    performed, events = run(facts())
    assert performed == 101
    assert events < 101


def test_session_agent_and_status_can_be_searched(server: TemporalServer) -> None:
    async def found() -> list[str]:
        name = new_name()
        engine = server.engine(name)
        await asyncio.gather(*(engine.prepare() for _ in range(3)))
        order = Order(f"session of {name}", "support", 1)
        await engine.schedule(order)
        async with working(engine, Performer()):
            await ended(engine, order)
        client = await Client.connect(server.address)
        query = f"DragomanSession = '{order.session}' AND DragomanAgent = 'support' AND DragomanStatus = 'completed'"
        # The index follows a little later.
        while not (ids := [each.id async for each in client.list_workflows(query)]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return [each.removeprefix(name) for each in ids]

    (found_id,) = run(found())
    assert found_id.endswith(":1")


def test_a_namespace_without_search_attributes_does(server: TemporalServer) -> None:
    async def orders() -> int:
        engine, performer = server.engine(new_name(), namespace=PLAIN), Performer()
        await engine.schedule(ORDER)
        async with working(engine, performer):
            await ended(engine, ORDER)
        return len(performer.orders)

    assert run(orders()) == 1


def test_nothing_but_ids_is_in_the_files_of_the_server(server_with_files: TemporalServer) -> None:
    word, session = "Zwiebelkuchen", "session-for-the-search"

    async def work() -> None:
        name = new_name()
        engine = server_with_files.engine(name)

        async def perform(order: Order) -> Progress:
            if order.agent == "raises":
                raise ValueError(word)
            return Progress("running", 1, again, 0.01, word) if order == quick else DONE

        quick, again = Order(session, "quick", 1), Order(session, "quick", 1, failures=1)
        raises = Order(session, "raises", 2)
        await engine.schedule(quick)
        await engine.schedule(raises)
        async with working(engine, perform):
            await ended(engine, quick, raises)
        assert (
            await (await handle_of(server_with_files, name, raises)).describe()
        ).status == WorkflowExecutionStatus.FAILED

    run(work())
    server_with_files.stop()
    files = [path.read_bytes() for path in server_with_files.folder.glob("temporal.db*")]
    assert any(session.encode() in data for data in files)
    assert not any(word.encode() in data for data in files)


# ---------------------------------------------------------------- workers of others, versions


def test_a_worker_of_the_users_own_performs_orders_with_the_plugin(server: TemporalServer) -> None:
    async def orders() -> list[Order]:
        name = new_name()
        engine, performer = server.engine(name), Performer()
        client = await Client.connect(server.address)
        async with Worker(client, task_queue=name, plugins=[make_plugin(performer)]):
            await engine.schedule(ORDER)
            await ended(engine, ORDER)
        return performer.orders

    assert run(orders()) == [ORDER]
