"""Orders: what a worker carries on, leaves to others, waits for, gives up; and what it does when it is told to stop."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent, InvalidValue, MemoryStore, Session, SQLiteStore, tool
from dragoman.durable import (
    Agents,
    LocalEngine,
    Order,
    Progress,
    Worker,
    carry_on,
    find_run,
    submit,
)
from dragoman.durable.performer import Performer
from dragoman.errors import ErrorCode, StoreError
from dragoman.history import (
    AgentStatus,
    ModelInputEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.store import Lease, SessionBusy, SessionStore
from dragoman.testing import Call, ScriptedModel, Turn
from tests.durable_cases import AGENTS, QUICK, Use, make_echo, make_late, working

LONG = 60.0  # seconds of a lease that does not end during a test
SHORT = 0.2  # and of one that does


class OverdueStore(MemoryStore):
    """Each session has an owner that stands still, and whose lease lasts for another minute."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def acquire_lease(self, session_id: str, *, seconds: float = LONG, wait_seconds: float = 0.0) -> Lease:
        self.is_asked.set()
        lease = await super().acquire_lease(session_id, seconds=3 * LONG)
        raise SessionBusy("in use", lease=lease, seconds_left=LONG)


async def until_overdue(store: SessionStore, session_id: str) -> None:
    """Wait until a lease that is not renewed has missed renewals, or has expired."""
    is_overdue = False
    while not is_overdue:
        try:
            lease = await store.acquire_lease(session_id, seconds=LONG)
        except SessionBusy as busy:
            is_overdue = busy.is_overdue
        else:
            await store.release_lease(lease)
            return


# ---------------------------------------------------------------- carrying on


def test_an_order_that_comes_twice_or_late_does_the_work_once(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        await asyncio.gather(*(carry_on(store, AGENTS, run.order) for _ in range(4)))
        entries = await store.load("s")
        late = await carry_on(store, AGENTS, run.order)
        assert late == Progress("completed", len(entries) - 1)
        assert await store.load("s") == entries
        assert sum(isinstance(entry, RunStartedEntry) for entry in entries) == 1

    use(test)


def test_an_order_for_a_session_that_was_erased_comes_to_nothing(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        await store.erase("s")
        assert (await carry_on(store, AGENTS, run.order)).next is None
        assert (await store.list_requests()).requests == ()

    use(test)


@pytest.mark.parametrize("order", [Order("s", "echo", -1), Order("", "echo", 0), Order("a\0b", "echo", 0)], ids=str)
def test_an_order_that_nothing_can_have_requested_comes_to_nothing(use: Callable[[Use], None], order: Order) -> None:
    async def test(store: SessionStore, _engine: LocalEngine) -> None:
        progress = await carry_on(store, AGENTS, order)
        assert (progress.status, progress.next) == ("aborted", None)
        assert progress.problem

    use(test)


def test_a_session_whose_owner_renews_its_lease_is_left_to_it(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        lease = await store.acquire_lease("s", seconds=LONG)
        progress = await carry_on(store, AGENTS, run.order)
        assert (progress.status, progress.next) == ("queued", run.order)
        assert f"{lease.owner} has run it" in progress.problem

    use(test)


def test_the_end_of_a_lease_that_is_not_renewed_is_waited_for(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        await store.acquire_lease("s", seconds=SHORT)  # its owner does not renew it
        await until_overdue(store, "s")
        assert (await carry_on(store, AGENTS, run.order)).status == "completed"

    use(test)


def test_a_worker_that_is_told_to_stop_waits_for_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.durable.performer.LEASE_SECONDS", 2 * LONG)

    async def test() -> None:
        async with OverdueStore() as store:
            run = await submit(store, LocalEngine(), agent="echo", session="s", prompt="Hello")
            performer = Performer(store, AGENTS)
            waiting = asyncio.ensure_future(performer.perform(run.order))
            await store.is_asked.wait()
            performer.stop()
            assert (await waiting).next == run.order

    asyncio.run(test())


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("broken", "after 3 attempts that recorded nothing: RuntimeError"),
        ("unknown", "after 30 attempts that recorded nothing: no agent is called 'unknown'"),
    ],
)
def test_a_run_that_never_begins_is_given_up_in_the_record(
    use: Callable[[Use], None], agent: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent=agent, session="s", prompt="Hello")
        async with working(store, engine):
            result = await run.result()
            assert result.status is AgentStatus.FAILED
            assert result.error is not None
            assert result.error.code is ErrorCode.GIVEN_UP
            assert words in result.error.message
        entries = await store.load("s")
        assert [type(entry) for entry in entries] == [
            RunRequestedEntry,
            RunStartedEntry,
            ModelInputEntry,
            RunFinishedEntry,
        ]
        assert "Hello" not in caplog.text

    use(test)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_whatever_the_function_of_an_agent_raises_ends_its_run_alone(
    use: Callable[[Use], None], raised: type[BaseException]
) -> None:
    def make(_session: Session) -> Agent[Any, Any]:
        raise raised

    async def make_later(session: Session) -> Agent[Any, Any]:
        return make(session)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        agents = Agents({"now": make, "later": make_later, "echo": make_echo})
        poison = [await submit(store, engine, agent=name, prompt="Hi") for name in ("now", "later")]
        sound = await submit(store, engine, agent="echo", prompt="Hello")
        async with working(store, engine, agents):
            assert (await sound.result()).output == "You said: Hello"
            for run in poison:
                error = (await run.result()).error
                assert error is not None
                assert error.code is ErrorCode.GIVEN_UP

    use(test)


def test_what_others_say_to_a_session_does_not_keep_a_run_from_being_given_up(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="broken", session="s", prompt="Hello")
        order: Order | None = run.order
        for number in range(3):
            assert order is not None
            progress = await Performer(store, AGENTS, retries=QUICK).perform(order)
            order = progress.next
            await submit(store, engine, agent="echo", session="s", prompt=f"And {number}?")
        assert order is None
        assert await run.status() == "failed"

    use(test)


def test_an_order_of_another_store_is_left_to_other_workers(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, _engine: LocalEngine) -> None:
        progress = await carry_on(store, AGENTS, Order("elsewhere", "echo", 0))
        assert (progress.status, progress.next) == ("queued", Order("elsewhere", "echo", 0, failures=1))
        last = await Performer(store, AGENTS, retries=QUICK).perform(Order("elsewhere", "echo", 0, failures=3))
        assert last.next is None

    use(test)


def test_a_damaged_session_keeps_no_other_run_back(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"

    async def before() -> None:
        async with SQLiteStore(path) as store:
            for name, prompt in (("good", "Hello"), ("bad", "flip me"), ("fine", "Hi")):
                await submit(store, LocalEngine(), agent="echo", session=name, prompt=prompt)

    async def after() -> None:
        async with SQLiteStore(path) as store:
            engine = LocalEngine()
            async with working(store, engine):
                for name in ("good", "fine"):
                    assert (await (await find_run(store, engine, name)).result()).status is AgentStatus.COMPLETED

    asyncio.run(before())
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"flip me", b"flap me"))
    assert path.read_bytes() != kept
    asyncio.run(after())


@pytest.mark.slow
def test_many_submits_on_one_session_at_once_are_all_recorded(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        async with working(store, engine):
            runs = await asyncio.gather(
                *(submit(store, engine, agent="echo", session="s", prompt=f"Number {n}") for n in range(60))
            )
            results = [await run.result() for run in runs]
        assert [result.output for result in results] == [f"You said: Number {n}" for n in range(60)]

    use(test)


def test_a_worker_that_does_not_know_the_agent_leaves_the_order_to_one_that_does(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        older = await carry_on(store, Agents({}), run.order)
        assert older.next is not None
        assert (older.status, older.next.failures, older.next.unknown, older.seconds) == ("queued", 0, 1, 0.1)
        assert len(await store.load("s")) == 1  # nothing was recorded
        assert (await carry_on(store, AGENTS, older.next)).status == "completed"

    use(test)


def test_a_run_whose_agent_only_others_know_is_left_to_them_by_its_order(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        late = await submit(store, engine, agent="late", session="s", prompt="First")
        echo = await submit(store, engine, agent="echo", session="s", prompt="Then")
        only_echo, only_late = Agents({"echo": make_echo}), Agents({"late": make_late})
        early = await carry_on(store, only_echo, echo.order)  # the run before it is another order's
        assert (early.status, early.next, len(await store.load("s"))) == ("queued", echo.order, 2)
        left = await carry_on(store, only_late, late.order)  # the order of the run after it may have come before
        assert left.next is not None
        assert (left.status, left.next.serial, left.next.agent, left.next.unknown) == ("queued", echo.serial, "echo", 1)
        assert await late.status() == "completed"
        assert (await carry_on(store, only_echo, left.next)).status == "completed"

    use(test)


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"slots": True}, {"sweep_seconds": 0}, {"stop_seconds": "x"}], ids=str)
def test_a_worker_is_checked_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Worker(MemoryStore(), LocalEngine(), AGENTS, **wrong)


def test_a_row_of_a_request_that_the_record_does_not_have_keeps_no_other_run_back(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"

    async def submit_both() -> None:
        async with SQLiteStore(path) as store:
            for name in ("bad", "good"):
                await submit(store, LocalEngine(), agent="echo", session=name, prompt="Hello")

    async def work() -> None:
        async with SQLiteStore(path) as store:
            engine = LocalEngine()
            async with working(store, engine):
                assert (await (await find_run(store, engine, "good")).result()).status is AgentStatus.COMPLETED

    for serial in (999, -5):
        path.unlink(missing_ok=True)
        asyncio.run(submit_both())
        with sqlite3.connect(path) as connection:
            where = "session = (SELECT key FROM sessions WHERE session_id = 'bad')"
            changed = connection.execute(f"UPDATE requests SET serial = ? WHERE {where}", (serial,))
            assert changed.rowcount == 1
        connection.close()
        asyncio.run(work())


def test_a_run_that_failed_can_be_tried_again_where_it_stopped(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="broken", session="s", prompt="Hello")
        async with working(store, engine):
            assert (await run.result()).status is AgentStatus.FAILED
        mended = Agents({"broken": make_echo})
        async with working(store, engine, mended):
            again = await run.retry()
            assert (await again.result()).output == "You said: Hello"
            with pytest.raises(InvalidValue, match="only a run that failed or was aborted"):
                await again.retry()
        assert sum(isinstance(entry, ModelInputEntry) for entry in await store.load("s")) == 1

    use(test)


def test_an_agent_that_ignores_its_session_is_refused() -> None:
    async def run() -> None:
        store = MemoryStore()
        asked = await submit(store, LocalEngine(), agent="a", session="s", prompt="Hello")
        progress = await carry_on(store, Agents({"a": lambda _: Agent(ScriptedModel("x"))}), asked.order)
        assert "has another session" in progress.problem
        progress = await carry_on(store, Agents({"a": lambda _: None}), asked.order)  # type: ignore[dict-item,return-value]
        assert "must be a function that returns an Agent" in progress.problem

    asyncio.run(run())


@pytest.mark.parametrize("makers", [{"": make_echo}, {1: make_echo}, {"a\ud800": make_echo}, {"a": "not a function"}])
def test_a_registry_is_checked_where_it_is_made(makers: dict[Any, Any]) -> None:
    with pytest.raises(InvalidValue):
        Agents(makers)


def test_an_agent_may_be_made_by_a_coroutine(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="late", prompt="Hello")
        async with working(store, engine):
            assert (await run.result()).output == "Late."

    use(test)


# ---------------------------------------------------------------- stopping


def test_a_worker_that_is_told_to_stop_reaches_the_next_entry_and_gives_the_lease_back(
    use: Callable[[Use], None],
) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            begun.set()
            await may_end.wait()
            return "waited"

        def make(session: Session) -> Agent[Any, Any]:
            has_called = any(message.tool_calls for message in session.messages)
            turns = ["Done."] if has_called else [Turn(calls=(Call("wait", {}),)), "Done."]
            return Agent(ScriptedModel(*turns), tools=[wait], session=session)

        run = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        worker = Worker(store, engine, Agents({"waiter": make}))
        task = asyncio.ensure_future(worker.run())
        await begun.wait()
        worker.stop()
        may_end.set()
        assert await task
        assert await store.find_lease("s") is None
        assert await run.status() == "preparing"  # the result of the tool is recorded, the model was not asked again
        (finished,) = [entry for entry in await store.load("s") if isinstance(entry, ToolFinishedEntry)]
        assert finished.result.text() == "waited"
        async with working(store, engine, Agents({"waiter": make})):
            assert (await run.result()).output == "Done."
        starts = [entry for entry in await store.load("s") if isinstance(entry, ToolStartedEntry)]
        assert len(starts) == 1

    use(test)


def test_a_run_that_does_not_stop_in_time_gives_its_lease_back(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            begun.set()
            await may_end.wait()
            return "waited"

        def make(session: Session) -> Agent[Any, Any]:
            return Agent(ScriptedModel(Turn(calls=(Call("wait", {}),)), "Done."), tools=[wait], session=session)

        await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        worker = Worker(store, engine, Agents({"waiter": make}), stop_seconds=0.01)
        task = asyncio.ensure_future(worker.run())
        await begun.wait()
        worker.stop()
        assert not await task
        assert await store.find_lease("s") is None
        may_end.set()

    use(test)


def test_a_caller_that_waits_for_a_result_is_told_that_the_store_was_closed() -> None:
    async def run() -> None:
        store = MemoryStore()
        asked = await submit(store, LocalEngine(), agent="echo", session="s", prompt="Hello")
        waiting = asyncio.ensure_future(asked.result())
        await asyncio.wait((waiting,), timeout=0.01)
        await store.close()
        with pytest.raises(StoreError, match="the store is closed"):
            await waiting

    asyncio.run(run())


def test_a_local_engine_keeps_nothing_of_orders_that_have_ended() -> None:
    async def run() -> None:
        engine, stop, ended = LocalEngine(), asyncio.Event(), asyncio.Semaphore(0)

        async def perform(order: Order) -> Progress:
            if not order.failures:
                return Progress("queued", 0, replace(order, failures=1), 0.001)
            ended.release()
            return Progress("completed", 0)

        working_on = asyncio.ensure_future(engine.work(perform, slots=4, stop=stop))
        for number in range(50):
            await engine.schedule(Order(f"s{number}", "echo", 0))
        for _ in range(50):
            await ended.acquire()
        stop.set()
        await working_on
        assert (repr(engine), engine._timers) == ("<LocalEngine, 0 orders>", set())

    asyncio.run(run())
