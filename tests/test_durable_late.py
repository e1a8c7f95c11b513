"""What others do between the moment that a worker reads a session and the moment that it has the lease."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, Session, open_session, start_session, tool
from dragoman.agent import Hooks
from dragoman.durable import (
    Agents,
    LocalEngine,
    Order,
    Progress,
    Retries,
    Worker,
    carry_on,
    submit,
)
from dragoman.durable.performer import Performer
from dragoman.durable.requested import newest_of_runs
from dragoman.durable.sweeps import Sweeper
from dragoman.errors import ErrorCode, InvalidValue, ToolError
from dragoman.history import (
    AbortRequestedEntry,
    AgentStatus,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunFinishedEntry,
    RunStartedEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolStartedEntry,
)
from dragoman.message import Message, Role, Text, ToolCall
from dragoman.request import AgentConfig, LoopConfig
from dragoman.store import Head, SessionStore
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import ToolContext
from tests.durable_cases import AGENTS, QUICK, Use, make_echo, make_late, working


class Gate:
    """A function that makes an agent, and that waits first: the worker that calls it is late."""

    def __init__(self, make: Callable[[Session], Agent[Any, Any]]) -> None:
        self._make = make
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, session: Session) -> Agent[Any, Any]:
        self.reached.set()
        await self.opened.wait()
        return self._make(session)


async def late(
    store: SessionStore,
    order: Order,
    make: Callable[[Session], Agent[Any, Any]],
    meanwhile: Callable[[], Awaitable[object]],
    *,
    attempts: int = 3,
) -> Progress:
    """Perform an order in a worker that makes its agent while others do something."""
    gate = Gate(make)
    agents = Agents({"echo": gate, "payer": gate, "late": make_late, "broken": gate})
    performing = asyncio.ensure_future(Performer(store, agents, retries=Retries(attempts, 0.001, 0.002)).perform(order))
    await gate.reached.wait()
    await meanwhile()
    gate.opened.set()
    return await performing


def make_intruder(session: Session) -> Agent[Any, Any]:
    return Agent(ScriptedModel("From a late worker.", "And again."), session=session)


def make_nothing(_session: Session) -> Agent[Any, Any]:
    raise ToolError("it cannot be made", code=ErrorCode.TOOL_FAILED)


@pytest.mark.parametrize("end", ["completed", "aborted", "failed"])
def test_a_late_worker_begins_no_run_that_was_not_requested(use: Callable[[Use], None], end: str) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        agent = {"completed": "echo", "aborted": "payer", "failed": "broken"}[end]
        run = await submit(store, engine, agent=agent, session="s", prompt="Hello")

        async def finish() -> None:
            performer = Performer(store, AGENTS, retries=Retries(1, 0.001))
            await performer.perform(run.order)
            if end == "aborted":
                await run.abort()
                await performer.perform(run.order)

        progress = await late(store, run.order, make_intruder, finish)
        assert (progress.status, progress.next) == (end, None)
        entries = await store.load("s")
        assert [entry.run_id for entry in entries if isinstance(entry, RunStartedEntry)] == [run.run_id]
        assert isinstance(entries[-1], RunFinishedEntry)

    use(test)


@pytest.mark.parametrize("end", ["aborted", "completed"])
def test_a_request_is_performed_by_its_own_agent_alone(use: Callable[[Use], None], end: str) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        second = await submit(store, engine, agent="late", session="s", prompt="And then?")

        async def finish() -> None:
            if end == "aborted":
                await first.abort()
            else:
                await carry_on(store, Agents({"echo": make_echo}), first.order)

        await late(store, first.order, make_intruder, finish)
        assert await first.status() == end
        assert (await second.result()).output == "Late."

    use(test)


def test_the_last_failure_of_one_run_ends_no_other(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        second = await submit(store, engine, agent="late", session="s", prompt="And then?")

        async def finish() -> None:
            await carry_on(store, Agents({"echo": make_echo}), first.order)

        await late(store, first.order, make_nothing, finish, attempts=1)
        assert (await first.status(), await second.status()) == ("completed", "completed")

    use(test)


def test_the_last_failure_of_a_run_that_others_carried_on_does_not_end_it(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")

        async def carry_on_elsewhere() -> None:
            await carry_on(store, AGENTS, run.order)

        progress = await late(store, run.order, make_nothing, carry_on_elsewhere, attempts=1)
        assert (progress.status, progress.next) == ("awaiting_human", None)
        assert len(await run.waiting_calls()) == 1

    use(test)


def test_a_run_carries_on_by_its_id_or_not_at_all(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        second = await submit(store, engine, agent="echo", session="s", prompt="And then?")
        agent = Agent(ScriptedModel("One.", "Two."), session=await open_session(store, "s"))
        with pytest.raises(InvalidValue, match=f"run '{second.run_id}' is not due"):
            await agent.run(run_id=second.run_id)
        assert (await agent.run(run_id=first.run_id)).output == "One."
        with pytest.raises(InvalidValue, match=f"run '{first.run_id}' is not due"):
            await agent.run(run_id=first.run_id)
        assert (await agent.run(run_id=second.run_id)).output == "Two."
        for wrong in ("", 3):
            with pytest.raises(InvalidValue, match="run_id"):
                await agent.run(run_id=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="without a prompt"):
            await agent.run("More", run_id=first.run_id)

    use(test)


# ---------------------------------------------------------------- aborts that come at any moment


class Meanwhile:
    """Says something to a session right before an entry of a kind is appended, as another process does."""

    def __init__(self, store: SessionStore, kind: type[HistoryEntry], say: Callable[[], Awaitable[object]]) -> None:
        self._kind = kind
        self._say: Callable[[], Awaitable[object]] | None = say
        self._append = store.append
        store.append = self._appending  # type: ignore[method-assign]

    async def _appending(self, session_id: str, entries: Any, *args: Any, **options: Any) -> Any:
        if self._say is not None and any(isinstance(entry, self._kind) for entry in entries):
            say, self._say = self._say, None
            await say()
        return await self._append(session_id, entries, *args, **options)


def make_spender(session: Session) -> Agent[Any, Any]:
    calls = (Call("spend", {"amount": 1}), Call("spend", {"amount": 2}))
    return Agent(ScriptedModel(Turn(calls=calls), "Spent."), tools=[spend], session=session)


SPENT: list[int] = []


@tool
def spend(amount: int) -> str:
    """Spend."""
    SPENT.append(amount)
    return "spent"


@pytest.mark.parametrize("instructions", [None, "Be brief."])
def test_a_run_that_is_aborted_right_before_its_start_never_begins(
    use: Callable[[Use], None], instructions: str | None
) -> None:
    def make(session: Session) -> Agent[Any, Any]:
        return Agent(ScriptedModel("Hello"), session=session, instructions=instructions)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        await submit(store, engine, agent="echo", session="s", prompt="And then?")
        Meanwhile(store, SystemInstructionEntry if instructions else RunStartedEntry, run.abort)
        progress = await carry_on(store, Agents({"echo": make}), run.order)
        assert (progress.status, progress.next) == ("aborted", None)
        started = [entry.run_id for entry in await store.load("s") if isinstance(entry, RunStartedEntry)]
        assert run.run_id not in started
        assert len(started) == 1  # the run after it

    use(test)


def test_words_that_come_right_before_the_start_of_a_run_are_heard_by_it(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        session = await open_session(store, "s")
        Meanwhile(store, RunStartedEntry, lambda: session.steer("And more."))
        await carry_on(store, AGENTS, run.order)
        said = [entry for entry in await store.load("s") if isinstance(entry, ModelInputEntry)]
        assert [entry.parts for entry in said] == [(Text("And more."),), (Text("Hello"),)]

    use(test)


def test_no_tool_starts_after_an_abort_that_was_recorded(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        SPENT.clear()
        run = await submit(store, engine, agent="spender", session="s", prompt="Spend")
        Meanwhile(store, ToolStartedEntry, run.abort)
        progress = await carry_on(store, Agents({"spender": make_spender}), run.order)
        kinds = [type(entry) for entry in await store.load("s")]
        assert ToolStartedEntry not in kinds[kinds.index(AbortRequestedEntry) :]
        assert (progress.status, SPENT) == ("aborted", [])

    use(test)


@pytest.mark.parametrize("how", ["refresh", "steer"])
def test_an_abort_is_taken_up_whichever_call_of_the_owner_reads_it(use: Callable[[Use], None], how: str) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        asked, never = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            asked.set()
            await never.wait()
            return "waited"

        turns = (Turn(calls=(Call("wait", {}),)), "Done.")
        config = AgentConfig(loop=LoopConfig(lease_seconds=600.0))  # no renewal tells of the abort
        agent = Agent(ScriptedModel(*turns), tools=[wait], session=session, config=config)
        running = asyncio.ensure_future(agent.run("Wait"))
        await asked.wait()
        await (await open_session(store, "s")).request_abort()
        await (session.refresh() if how == "refresh" else agent.steer("And?"))
        assert (await running).status is AgentStatus.ABORTED

    use(test)


class AbortsAndReads(Hooks):
    """Another process asks the run to end while this hook runs, and the hook reads that."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def before_tool(self, _call: ToolCall, _context: ToolContext[Any]) -> None:
        other = await open_session(self._session.store, self._session.session_id)
        await other.request_abort()
        await self._session.refresh()


def test_a_tool_does_not_start_after_an_abort_that_its_hook_has_read(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        SPENT.clear()
        session = await start_session(store, "s")
        turns = (Turn(calls=(Call("spend", {"amount": 1}),)), "Spent.")
        agent = Agent(ScriptedModel(*turns), tools=[spend], session=session, hooks=[AbortsAndReads(session)])
        assert (await agent.run("Spend")).status is AgentStatus.ABORTED
        assert SPENT == []

    use(test)


def test_a_run_that_is_aborted_right_before_its_answer_is_recorded_is_aborted(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        Meanwhile(store, ModelOutputEntry, run.abort)
        progress = await carry_on(store, AGENTS, run.order)
        assert progress.status == "aborted"
        assert (await run.result()).status is AgentStatus.ABORTED
        assert any(isinstance(entry, ModelOutputEntry) for entry in await store.load("s"))  # nothing is lost

    use(test)


def test_words_to_a_queued_run_are_heard_by_no_other(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        queued = await submit(store, engine, agent="echo", session="s", prompt="Then this")
        with pytest.raises(InvalidValue, match="queued"):
            await queued.steer("For the second run alone")
        assert len(await store.load("s")) == 2

    use(test)


# ---------------------------------------------------------------- giving up


def test_a_run_behind_an_open_call_can_be_given_up(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        call = ToolCall(tool_call_id="c1", tool_name="look", arguments={})
        await session.append(ModelOutputEntry(Message(role=Role.ASSISTANT, parts=(call,))))
        run = await submit(store, engine, agent="broken", session="s", prompt="Hello")
        async with working(store, engine):
            result = await run.result()
        assert result.error is not None
        assert result.error.code is ErrorCode.GIVEN_UP

    use(test)


def test_the_reason_of_a_run_that_never_began_is_recorded(use: Callable[[Use], None]) -> None:
    def make(session: Session) -> Agent[Any, Any]:
        def instruct(_context: object) -> str:
            raise ToolError("the template is missing", code=ErrorCode.TOOL_FAILED)

        return Agent(ScriptedModel("Never."), session=session, instructions=instruct)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="wordless", session="s", prompt="Hello")
        async with working(store, engine, Agents({"wordless": make})):
            result = await run.result()
        assert result.error is not None
        assert "ToolError in the instructions" in result.error.message

    use(test)


def test_a_takeover_is_no_progress(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        await submit(store, engine, agent="echo", session="s", prompt="Hello")
        session = await open_session(store, "s")
        before = newest_of_runs(session)
        async with session.hold():
            await session.append(TakeoverEntry("this worker", "a dead one"))
        assert newest_of_runs(session) == before

    use(test)


def test_progress_makes_an_order_known_again(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        await carry_on(store, AGENTS, run.order)  # it asks a person
        (call,) = await run.waiting_calls()
        await run.approve(call.tool_call_id)
        nearly = Order("s", "payer", run.serial, unknown=QUICK.for_unknown().attempts - 1)
        progress = await Performer(store, Agents({}), retries=QUICK).perform(nearly)
        assert progress.next is not None
        assert progress.next.unknown == 1

    use(test)


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"attempts": "x"}, {"seconds": float("nan")}, {"longest_seconds": -1.0}], ids=str
)
def test_retries_are_checked_where_they_are_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Retries(**wrong)


def test_a_worker_that_is_told_to_stop_does_not_wait_for_an_agent_to_be_made() -> None:
    async def test() -> None:
        async with MemoryStore() as store:
            run = await submit(store, LocalEngine(), agent="echo", session="s", prompt="Hello")
            gate = Gate(make_echo)
            performer = Performer(store, Agents({"echo": gate}))
            performing = asyncio.ensure_future(performer.perform(run.order))
            await gate.reached.wait()
            performer.stop()
            assert (await performing).next == run.order  # at once, for another worker

    asyncio.run(test())


def test_a_function_that_cancels_its_own_task_is_given_up(use: Callable[[Use], None]) -> None:
    async def make(_session: Session) -> Agent[Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="suicidal", session="s", prompt="Hello")
        async with working(store, engine, Agents({"suicidal": make})):
            error = (await run.result()).error
        assert error is not None
        assert error.code is ErrorCode.GIVEN_UP

    use(test)


def test_words_that_a_function_raises_are_in_no_log(
    use: Callable[[Use], None], caplog: pytest.LogCaptureFixture
) -> None:
    def make(_session: Session) -> Agent[Any, Any]:
        words = "my PIN is 1234\nforged line"
        raise ToolError(words, code=ErrorCode.TOOL_FAILED)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="leaky", session="s", prompt="Hello")
        async with working(store, engine, Agents({"leaky": make})):
            await run.result()

    use(test)
    assert "1234" not in caplog.text
    assert "forged" not in caplog.text


# ---------------------------------------------------------------- workers and sweeps


def test_a_cancelled_worker_stops_its_runs_and_takes_no_more(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        worker = Worker(store, engine, AGENTS, retries=QUICK)
        running = asyncio.ensure_future(worker.run())
        await worker.ready()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        first = await submit(store, engine, agent="late", session="a", prompt="Hello")
        assert not worker.is_ready
        async with working(store, engine, Agents({"echo": make_echo, "late": make_echo})):
            later = await submit(store, engine, agent="echo", session="b", prompt="Hello")
            assert (await later.result()).output == "You said: Hello"
            assert (await first.result()).output == "You said: Hello"  # by this worker, whose agent it is

    use(test)


def test_a_cancelled_worker_keeps_the_lease_of_a_tool_under_way(use: Callable[[Use], None]) -> None:
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

        worker = Worker(store, engine, Agents({"waiter": make}), stop_seconds=0.0)
        run = await submit(store, engine, agent="waiter", session="s", prompt="Wait")
        running = asyncio.ensure_future(worker.run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (worker.count, await store.find_lease("s") is None) == (1, False)
        may_end.set()
        while worker.count:  # noqa: ASYNC110  # nothing tells that the run has reached its next entry
            await asyncio.sleep(0)
        assert await store.find_lease("s") is None
        assert await run.status() == "preparing"

    use(test)


def test_work_that_is_cancelled_loses_no_order() -> None:
    async def test() -> None:
        engine, begun, ended = LocalEngine(), asyncio.Event(), asyncio.Event()

        async def hang(_order: Order) -> Progress:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def perform(_order: Order) -> Progress:
            ended.set()
            return Progress("completed", 0)

        first, waiting, second = (Order(name, "echo", 0) for name in "abc")
        await engine.schedule(first)
        await engine.schedule(waiting)  # for the one slot
        at_work = asyncio.ensure_future(engine.work(hang, slots=1, stop=asyncio.Event()))
        await begun.wait()
        at_work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await at_work
        assert await engine.find_unscheduled([first, waiting]) == [first, waiting]  # a sweep finds them
        stop = asyncio.Event()
        at_work = asyncio.ensure_future(engine.work(perform, slots=1, stop=stop))
        await engine.schedule(second)
        await ended.wait()
        stop.set()
        await at_work

    asyncio.run(test())


def test_no_order_begins_after_stop() -> None:
    async def test() -> None:
        engine, stop, performed = LocalEngine(), asyncio.Event(), list[str]()

        async def perform(order: Order) -> Progress:
            performed.append(order.session)
            stop.set()
            return Progress("completed", 0)

        for name in "ab":
            await engine.schedule(Order(name, "echo", 0))
        await engine.work(perform, slots=1, stop=stop)
        assert performed == ["a"]
        assert await engine.find_unscheduled([Order("b", "echo", 0)]) == []

    asyncio.run(test())


class CountingStore(MemoryStore):
    """Counts how often a session is opened."""

    opened = 0

    async def open(self, session_id: str, *args: Any, **options: Any) -> Any:
        self.opened += 1
        return await super().open(session_id, *args, **options)


def test_a_sweep_reads_a_waiting_session_once_until_something_is_added() -> None:
    async def test() -> None:
        async with CountingStore() as store:
            engine = LocalEngine()
            run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
            await carry_on(store, AGENTS, run.order)
            sweeper = Sweeper(store, LocalEngine())
            assert await sweeper.sweep() == 0
            before = store.opened
            assert await sweeper.sweep() == 0
            assert store.opened == before
            (call,) = await run.waiting_calls()
            await run.approve(call.tool_call_id)
            assert await sweeper.sweep() == 1
            assert await store.head("s") != Head()

    asyncio.run(test())


class BusyEngine(LocalEngine):
    """Counts how often it is told of an order."""

    scheduled = 0

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        self.scheduled += 1
        await super().schedule(order, seconds=seconds)


def test_a_key_that_is_used_again_does_not_hurry_the_next_attempt(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, _engine: LocalEngine) -> None:
        engine = BusyEngine()
        for _ in range(3):
            await submit(store, engine, agent="echo", prompt="Hello", key="mail-1")
        assert engine.scheduled == 1
        other = BusyEngine()  # it lost the order, or never heard of it
        await submit(store, other, agent="echo", prompt="Hello", key="mail-1")
        assert other.scheduled == 1

    use(test)
