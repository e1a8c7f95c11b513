"""Several requests at once, in tasks and in threads with event loops of their own, to one agent or session."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Session, SessionBusy, SQLiteStore, start_session
from dragoman._loops import SharedLock, Signal
from dragoman.agent import RunResult
from dragoman.history import HistoryEntry
from dragoman.store import Head, Lease, SessionStore
from dragoman.testing import Call, ScriptedModel
from dragoman.tools import FunctionTool, tool
from tests.agent_cases import Gate, asks, kept, require_sound, run

PATIENCE = 60.0  # seconds: far more than all runs of a test take
STORES = ("memory", "sqlite")


def store_of(kind: str, folder: Path) -> SessionStore:
    return MemoryStore() if kind == "memory" else SQLiteStore(folder / "s.db")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Session]:
    store = store_of(kind, folder)
    try:
        yield await start_session(store)
    finally:
        await store.close()


def in_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Do the work in an event loop of its own, with a limit so that what hangs fails."""
    return asyncio.run(asyncio.wait_for(work(), PATIENCE))


class Stop:
    """A tool that runs until it is let go, whichever thread waits for it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    @property
    def tool(self) -> FunctionTool[Any, Any]:
        @tool
        def stop() -> str:
            """Stop here."""
            self.reached.set()
            self.opened.wait(PATIENCE)
            return "on"

        return stop


# ---------------------------------------------------------------- tasks of one event loop


@pytest.mark.parametrize("kind", ["none", *STORES])
@pytest.mark.parametrize("how", ["run", "stream"])
def test_requests_to_one_agent_that_may_wait_complete_one_after_another(tmp_path: Path, kind: str, how: str) -> None:
    async def ask(session: Session | None) -> None:
        agent = Agent(ScriptedModel("Yes.", repeats=True), session=session)

        async def one(number: int) -> RunResult[str]:
            if how == "run":
                return await agent.run(f"request {number}", wait_seconds=PATIENCE)
            return await agent.stream(f"request {number}", wait_seconds=PATIENCE).result()

        results = await asyncio.gather(*map(one, range(6)))
        assert [result.status for result in results] == ["completed"] * 6
        assert len({result.run_id for result in results}) == 6
        said = [message.text for message in kept(agent).messages if message.role == "user"]
        assert said == [f"request {number}" for number in range(6)]
        require_sound(kept(agent))

    async def use() -> None:
        if kind == "none":
            await ask(None)
        else:
            async with opened(kind, tmp_path) as session:
                await ask(session)

    run(use())


def test_a_run_that_may_wait_is_told_busy_when_its_time_is_over_and_the_next_one_still_comes() -> None:
    async def use() -> None:
        gate = Gate(1)
        agent = Agent(ScriptedModel("One.", "Two.", between=gate))
        first = agent.stream("one")
        await gate.reached.wait()
        with pytest.raises(SessionBusy):
            await agent.run("in vain", wait_seconds=0.001)
        with pytest.raises(SessionBusy):
            agent.stream("at once")
        second = asyncio.ensure_future(agent.run("two", wait_seconds=PATIENCE))
        gate.opened.set()
        assert ((await first.result()).output, (await second).output) == ("One.", "Two.")

    run(use())


@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_a_run_that_waits_for_its_turn_can_be_given_up_and_the_others_go_on(how: str) -> None:
    async def use() -> None:
        gate = Gate(1)
        agent = Agent(ScriptedModel("One.", "Three.", between=gate))
        first = agent.stream("one")
        await gate.reached.wait()
        second = agent.stream("two", wait_seconds=PATIENCE)
        waiting = asyncio.ensure_future(second.result())
        third = asyncio.ensure_future(agent.run("three", wait_seconds=PATIENCE))
        await asyncio.sleep(0)
        if how == "abort":
            assert (await second.abort()).status == "aborted"
            await waiting
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        gate.opened.set()
        assert (await first.result()).output == "One."
        assert (await third).output == "Three."
        assert [message.text for message in kept(agent).messages if message.role == "user"] == ["one", "three"]

    run(use())


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("kind", STORES)
def test_threads_that_run_one_agent_take_turns(tmp_path: Path, kind: str) -> None:
    store = store_of(kind, tmp_path)
    agent = Agent(ScriptedModel("Yes.", repeats=True), session=asyncio.run(start_session(store)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: agent.run_sync(f"{number}", wait_seconds=PATIENCE), range(12)))
    assert [result.status for result in results] == ["completed"] * 12
    said = sorted(int(message.text) for message in kept(agent).messages if message.role == "user")
    assert said == list(range(12))
    require_sound(kept(agent))
    asyncio.run(store.close())


@pytest.mark.parametrize("kind", STORES)
def test_one_session_object_takes_appends_from_many_threads_and_stays_usable(tmp_path: Path, kind: str) -> None:
    store = store_of(kind, tmp_path)
    session = asyncio.run(start_session(store))

    def append(number: int) -> None:
        in_thread(lambda: session.append_model_input(f"{number}"))
        assert len(session.messages) > 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(40)))
    assert sorted(int(message.text) for message in session.messages) == list(range(40))
    assert [entry.serial for entry in session.entries] == list(range(40))
    assert Agent(ScriptedModel("Still here."), session=session).run_sync("And now?").output == "Still here."
    assert asyncio.run(store.verify(session.session_id)).is_sound
    asyncio.run(store.close())


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("how", ["agent.steer", "session.steer", "agent.abort", "run.result", "request_abort"])
def test_another_thread_may_steer_abort_and_await_a_run(tmp_path: Path, kind: str, how: str) -> None:
    store = store_of(kind, tmp_path)
    session = asyncio.run(start_session(store))
    stop = Stop()
    agent = Agent(ScriptedModel(asks(Call("stop", {})), "Done."), tools=[stop.tool], session=session)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(agent.run_sync, "go")
        assert stop.reached.wait(PATIENCE)
        if how == "agent.steer":
            in_thread(lambda: agent.steer("faster"))
        elif how == "session.steer":
            in_thread(lambda: session.steer("faster"))
        elif how == "agent.abort":
            in_thread(agent.abort)
        elif how == "request_abort":
            in_thread(session.request_abort)
        stop.opened.set()
        if how == "run.result":
            assert agent._run is not None
            assert in_thread(agent._run.result).output == "Done."
        result = running.result(PATIENCE)
    if how == "agent.abort":
        assert result.status == "aborted"
    elif how != "request_abort":  # its owner looks every two seconds: it may have ended before
        assert (result.status, result.output) == ("completed", "Done.")
    said = [message.text for message in session.messages if message.role == "user"]
    assert said == (["go", "faster"] if how.endswith("steer") else ["go"])
    require_sound(session)
    asyncio.run(store.close())


def test_the_events_of_a_run_are_read_in_its_own_event_loop_alone() -> None:
    async def use() -> None:
        gate = Gate(1)
        agent = Agent(ScriptedModel("One.", between=gate))
        started = agent.stream("one")
        await gate.reached.wait()

        async def read() -> None:
            async for _event in started:
                pass

        with pytest.raises(InvalidValue, match="read in the event loop that the run was started in"):
            await asyncio.to_thread(in_thread, read)
        gate.opened.set()
        assert (await started.result()).output == "One."
        await asyncio.to_thread(in_thread, read)  # all of them are there now

    run(use())


# ---------------------------------------------------------------- an event loop that ends in the middle


class Stuck(MemoryStore):
    """Keeps an append, and does not come back from it once if it is told so."""

    kept: asyncio.Event | None = None

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        if self.kept is not None:
            self.kept.set()
            self.kept = None
            await asyncio.Event().wait()
        return head


def test_a_session_goes_on_after_the_event_loop_of_an_append_has_ended() -> None:
    store = Stuck()
    session = asyncio.run(start_session(store))

    async def leave() -> None:
        kept = store.kept = asyncio.Event()
        task = asyncio.ensure_future(session.append_model_input("kept"))
        await kept.wait()
        task.cancel()

    in_thread(leave)
    in_thread(lambda: session.append_model_input("and on"))
    assert [message.text for message in session.messages] == ["kept", "and on"]


# ---------------------------------------------------------------- the lock and the signal


def test_a_lock_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    async def use() -> None:
        lock, order = SharedLock(), []

        async def one(number: int) -> None:
            async with lock:
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, range(20)))
        assert order == list(range(20))
        assert lock.take()

    run(use())


def test_a_lock_goes_past_a_waiter_whose_event_loop_is_closed() -> None:
    lock = SharedLock()
    assert lock.take()
    loop = asyncio.new_event_loop()
    waiter = loop.create_task(lock.wait())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    lock.give()
    assert lock.take()
    waiter._log_destroy_pending = False  # type: ignore[attr-defined]  # it is left behind on purpose


def test_a_lock_is_passed_on_by_a_waiter_that_was_cancelled_when_it_got_it() -> None:
    async def use() -> None:
        lock = SharedLock()
        assert lock.take()
        first, second = asyncio.ensure_future(lock.wait()), asyncio.ensure_future(lock.wait())
        await asyncio.sleep(0)
        lock.give()
        first.cancel()
        assert await second
        assert first.cancelled()
        lock.give()
        assert lock.take()

    run(use())


def test_a_signal_wakes_tasks_of_other_event_loops() -> None:
    signal = Signal()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(in_thread, signal.wait) for _ in range(3)]
        signal.set()
        assert [each.result(PATIENCE) for each in waiting] == [None] * 3
    in_thread(signal.wait)
