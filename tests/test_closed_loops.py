"""Event loops that are closed, or tasks that are cancelled, before what was begun there has ended."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Session, StoreError, ToolCall, start_session, tool
from dragoman._loops import Signal
from dragoman.agent import AgentRun
from dragoman.errors import ErrorCode
from dragoman.history import HistoryEntry, HistoryToolCallResult, ModelInputEntry, SteeringEntry
from dragoman.store import Head, Lease
from dragoman.testing import ScriptedModel
from dragoman.tools import ReadyCall, ToolContext, ToolExecutor, ToolRegistry
from dragoman.tools.batches import ClassLocks
from tests.agent_cases import Gate, run

PATIENCE = 60.0  # seconds: far more than all that a test waits for takes
TICKS = 30  # steps of an event loop: more than a task needs to begin to wait
_Result = TypeVar("_Result")


class LeftLoop(asyncio.SelectorEventLoop):
    """An event loop that is closed for all that use it while its tasks are left behind, until the test ends."""

    is_left = False

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def is_closed(self) -> bool:
        return self.is_left or super().is_closed()

    def _check_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def leave(self) -> None:
        self.is_left = True

    def clean_up(self) -> None:
        self.is_left = False
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run(asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        self.close()


@pytest.fixture
def left() -> Iterator[LeftLoop]:
    loop = LeftLoop()
    yield loop
    loop.clean_up()


def run_under_way(left: LeftLoop) -> AgentRun[str]:
    async def begin() -> AgentRun[str]:
        gate = Gate(1)
        started = Agent(ScriptedModel("One.", between=gate)).stream("go")
        await gate.reached.wait()
        return started

    return left.run(begin())


def raised_after_closing(left: LeftLoop, wait: Callable[[], Coroutine[Any, Any, Any]]) -> BaseException | None:
    """Wait in another event loop, close the one that it waits for, and return what the wait raised."""
    waits = threading.Event()

    async def use() -> None:
        task = asyncio.ensure_future(wait())
        for _ in range(TICKS):
            await asyncio.sleep(0)
        waits.set()
        await asyncio.wait_for(task, PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asyncio.run, use())
        assert waits.wait(PATIENCE)
        left.leave()
        return waiting.exception(PATIENCE)


def test_who_waits_elsewhere_for_a_run_is_told_that_its_event_loop_was_closed(left: LeftLoop) -> None:
    error = raised_after_closing(left, run_under_way(left).result)
    assert isinstance(error, InvalidValue)
    assert "the event loop of this run was closed before the run ended" in str(error)


def test_a_caller_that_was_cancelled_while_it_waited_for_a_closed_event_loop_is_cancelled(left: LeftLoop) -> None:
    started = run_under_way(left)

    async def give_up() -> None:
        waiting = asyncio.ensure_future(started.result())
        for _ in range(TICKS):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert raised_after_closing(left, give_up) is None


def test_words_to_a_run_whose_event_loop_was_closed_before_it_began_are_refused(left: LeftLoop) -> None:
    async def begin() -> AgentRun[str]:
        return Agent(ScriptedModel("One.")).stream("go")

    started = left.run(begin())
    error = raised_after_closing(left, lambda: started.steer("faster"))
    assert isinstance(error, InvalidValue)
    assert "the run has ended" in str(error)


def test_the_events_of_a_run_end_where_its_event_loop_was_closed(left: LeftLoop) -> None:
    started = run_under_way(left)

    async def read() -> None:
        async for _event in started:
            pass

    async def begin_to_read() -> None:
        left_behind.append(asyncio.ensure_future(read()))
        await asyncio.sleep(0)

    left_behind: list[asyncio.Task[None]] = []
    left.run(begin_to_read())
    left.leave()

    async def kinds() -> list[str]:
        return [event.kind async for event in started]

    assert "finished" not in run(kinds())


def test_a_run_that_is_cancelled_before_its_first_step_ends_for_all_that_wait_for_it() -> None:
    async def use() -> None:
        started = Agent(ScriptedModel("One.")).stream("go")
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
        with pytest.raises(InvalidValue, match="the run has ended"):
            await started.steer("faster")
        assert [event async for event in started] == []
        with pytest.raises(asyncio.CancelledError):
            await started.result()

    run(use())


def test_two_threads_that_note_the_end_of_a_run_give_its_turn_back_once() -> None:
    either = threading.Event()  # the second thread has noted the end, or waits for the first

    class Guard:
        """A lock that tells who asks for it."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread() is second:
                either.set()
            self.lock.acquire()

        def __exit__(self, *_raised: object) -> None:
            self.lock.release()

    class Turn:
        given = 0

        def give(self) -> None:
            self.given += 1

    class Watched(AgentRun[str]):
        @property
        def _turn(self) -> Any:
            found = self.turn
            if threading.current_thread() is not second:
                second.start()
                assert either.wait(PATIENCE)
            return found

        @_turn.setter
        def _turn(self, turn: Any) -> None:
            self.turn = turn

    async def use() -> None:
        watched = Watched(Agent(ScriptedModel("One.")), "r", keeps_events=False)
        watched._ending = Guard()  # type: ignore[assignment]
        turn = watched.turn = Turn()
        watched_runs.append(watched)
        watched._note_end()
        second.join(PATIENCE)
        assert turn.given == 1

    def note_end() -> None:
        watched_runs[0]._note_end()
        either.set()

    watched_runs: list[Watched] = []
    second = threading.Thread(target=note_end)
    run(use())


# ---------------------------------------------------------------- sessions


class Stuck(MemoryStore):
    """Keeps an append and does not come back from it, if it is told so; fails to load, if it is told so."""

    is_stuck = fails = False

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        if self.is_stuck:
            await asyncio.Event().wait()
        return head

    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        if self.fails:
            raise StoreError("out of reach", code=ErrorCode.CONNECTION)
        return await super().load(session_id, from_serial, until_serial=until_serial)


def left_append(left: LeftLoop, store: Stuck) -> Session:
    """A session with an append that the store has kept, and whose caller was cancelled before it knew."""

    async def begin() -> Session:
        session = await start_session(store)
        store.is_stuck = True
        caller = asyncio.ensure_future(session.append_model_input("kept"))
        for _ in range(TICKS):
            await asyncio.sleep(0)
        store.is_stuck = False
        caller.cancel()
        await asyncio.wait((caller,))
        return session

    return left.run(begin())


def test_an_append_that_waits_for_one_of_an_event_loop_that_is_closed_goes_on(left: LeftLoop) -> None:
    session = left_append(left, Stuck())
    assert raised_after_closing(left, lambda: session.append_model_input("and on")) is None
    assert [message.text for message in session.messages] == ["kept", "and on"]


def test_what_became_of_a_lost_append_is_asked_again_after_the_store_could_not_say(left: LeftLoop) -> None:
    store = Stuck()
    session = left_append(left, store)
    left.leave()
    store.fails = True
    with pytest.raises(StoreError, match="out of reach"):
        run(session.append_model_input("in between"))
    store.fails = False
    run(session.append_model_input("and on"))
    assert [message.text for message in session.messages] == ["kept", "and on"]


def test_an_entry_for_a_session_that_is_erased_meanwhile_is_not_acknowledged() -> None:
    store = MemoryStore()

    class Erasing(Sequence[HistoryEntry]):
        """Entries during whose reading another thread erases the session."""

        def __init__(self, *entries: HistoryEntry) -> None:
            self.entries = entries

        def __len__(self) -> int:
            return len(self.entries)

        def __getitem__(self, index: Any) -> Any:
            if "s" in store._sessions:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(asyncio.run, store.erase("s")).result(PATIENCE)
            return self.entries[index]

    async def use() -> None:
        session = await start_session(store, "s")
        (entry,) = session.state.prepare_all([SteeringEntry.of_input(ModelInputEntry.of("late"))])
        with pytest.raises(StoreError, match="was erased"):
            await store.append("s", Erasing(entry), 0)

    run(use())


# ---------------------------------------------------------------- tools


def calling(executor: ToolExecutor, name: str) -> Coroutine[Any, Any, HistoryToolCallResult]:
    ready = executor.prepare(ToolCall("1", name, {}))
    assert isinstance(ready, ReadyCall)
    return executor.run(ready, ToolContext())


def test_a_tool_whose_event_loop_was_closed_does_not_hold_its_class(left: LeftLoop) -> None:
    locks, reached = ClassLocks(), threading.Event()

    @tool(concurrency="db")
    async def wait() -> None:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()

    @tool(concurrency="db")
    async def query() -> str:
        """Return a row."""
        return "row"

    async def begin(executor: ToolExecutor) -> None:
        left_behind.append(asyncio.ensure_future(calling(executor, "wait")))
        await asyncio.to_thread(reached.wait, PATIENCE)

    left_behind: list[asyncio.Task[Any]] = []
    left.run(begin(ToolExecutor(ToolRegistry([wait]), locks=locks)))
    executor = ToolExecutor(ToolRegistry([query]), timeout_ms=1, locks=locks)
    assert run(calling(executor, "query")).error_code is ErrorCode.TOOL_INTERRUPTED
    left.leave()
    executor = ToolExecutor(ToolRegistry([query]), locks=locks)
    assert run(calling(executor, "query")).text() == "row"
    assert run(calling(executor, "query")).text() == "row"


def test_a_tool_whose_thread_outlives_its_event_loop_holds_its_class_until_the_thread_ends(left: LeftLoop) -> None:
    locks, reached, opened = ClassLocks(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool(concurrency="db")
    def wait() -> None:
        """Wait in a thread."""
        threads.append(threading.current_thread())
        reached.set()
        opened.wait(PATIENCE)

    @tool(concurrency="db")
    async def query() -> str:
        """Return a row."""
        return "row"

    async def begin(executor: ToolExecutor) -> None:
        left_behind.append(asyncio.ensure_future(calling(executor, "wait")))
        await asyncio.to_thread(reached.wait, PATIENCE)

    left_behind: list[asyncio.Task[Any]] = []
    left.run(begin(ToolExecutor(ToolRegistry([wait]), locks=locks)))
    left.leave()
    executor = ToolExecutor(ToolRegistry([query]), timeout_ms=1, locks=locks)
    assert run(calling(executor, "query")).error_code is ErrorCode.TOOL_INTERRUPTED
    opened.set()
    threads[0].join(PATIENCE)
    assert run(calling(ToolExecutor(ToolRegistry([query]), locks=locks), "query")).text() == "row"


# ---------------------------------------------------------------- the signal


def test_a_signal_is_waited_for_while_the_event_loop_that_sets_it_is_open(left: LeftLoop) -> None:
    signal = Signal()

    async def wait() -> None:
        await signal.wait(left)
        assert signal.is_set

    async def begin() -> None:
        for _ in range(TICKS):
            await asyncio.sleep(0)
        signal.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, wait())
        left.run(begin())
        waiting.result(PATIENCE)


def test_a_wait_for_a_signal_ends_when_the_event_loop_that_would_set_it_is_closed(left: LeftLoop) -> None:
    assert raised_after_closing(left, lambda: Signal().wait(left)) is None
