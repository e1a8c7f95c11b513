"""What others do between the moment that a worker reads a session and the moment that it has the lease."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, Session, open_session, start_session
from dragoman.durable import (
    Agents,
    LocalEngine,
    Order,
    Progress,
    Retries,
    RunHandle,
    Worker,
    abort_order,
    carry_on,
    find_run,
    submit,
)
from dragoman.durable.performer import Performer
from dragoman.durable.sweeps import Sweeper
from dragoman.errors import ErrorCode, InvalidValue, ToolError
from dragoman.history import ModelInputEntry, ModelOutputEntry, RunFinishedEntry, RunStartedEntry
from dragoman.message import FinishReason, Message, Role, ToolCall
from dragoman.request import AgentConfig, LoopConfig
from dragoman.store import Head, RequestPage, SessionStore
from dragoman.testing import ScriptedModel, Turn
from tests.durable_cases import AGENTS, QUICK, Use, make_echo, make_late, runner, working


@pytest.fixture(params=["memory", "sqlite"])
def use(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Use], None]:
    """Run a test with a store of each kind and an engine."""
    return runner(request.param, tmp_path)


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
        assert "recorded nothing: the run went on" not in result.error.message

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


# ---------------------------------------------------------------- workers and sweeps


def test_a_cancelled_worker_stops_its_runs_and_takes_no_more(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        worker = Worker(store, engine, AGENTS, retries=QUICK)
        running = asyncio.ensure_future(worker.run())
        await worker.ready()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        await asyncio.sleep(0.01)
        assert (worker.is_ready, await run.status()) == (False, "queued")
        async with working(store, engine):  # the engine lost no order to the worker that is gone
            assert (await run.result()).output == "You said: Hello"

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

        first, second = Order("a", "echo", 0), Order("b", "echo", 0)
        await engine.schedule(first)
        at_work = asyncio.ensure_future(engine.work(hang, slots=1, stop=asyncio.Event()))
        await begun.wait()
        at_work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await at_work
        assert await engine.find_unscheduled([first]) == [first]  # a sweep finds it
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


# ---------------------------------------------------------------- handles


def test_callers_that_use_a_key_at_once_start_one_session(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        runs = await asyncio.gather(
            *(submit(store, engine, agent="echo", prompt="Hello", key="mail-1") for _ in range(8))
        )
        assert len({run.run_id for run in runs}) == 1
        assert len((await store.list()).sessions) == 1
        await store.erase(runs[0].session_id)
        again = await submit(store, engine, agent="echo", prompt="Hello", key="mail-1")
        assert again.session_id != runs[0].session_id

    use(test)


def test_the_oldest_of_many_open_runs_is_found(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        for number in range(130):
            await submit(store, engine, agent="echo", session="s", prompt=str(number))
        assert (await find_run(store, engine, "s")).serial == 0

    use(test)


def test_a_position_after_the_end_of_a_run_gives_nothing_of_the_next(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        async with working(store, engine):
            first = await submit(store, engine, agent="echo", session="s", prompt="Hello")
            await first.result()
            end = (await store.head("s")).serial
            second = await submit(store, engine, agent="echo", session="s", prompt="And then?")
            await second.result()
        assert [each async for each in first.follow_from(end + 1)] == []
        assert [each async for each in second.follow_from(0)] != []

    use(test)


def test_the_text_of_an_answer_that_was_continued_is_whole(use: Callable[[Use], None]) -> None:
    def make(session: Session) -> Agent[Any, Any]:
        turns = Turn(text="The rep", finish_reason=FinishReason.LENGTH), "ort is done."
        config = AgentConfig(loop=LoopConfig(continue_cut=1))
        return Agent(ScriptedModel(*turns), session=session, config=config)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="writer", session="s", prompt="Write")
        async with working(store, engine, Agents({"writer": make})):
            assert (await run.result()).output == "The report is done."
        assert await _text_of(run) == "The report is done."

    use(test)


def test_a_run_that_is_tried_again_keeps_the_metadata_of_its_request(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        said = ModelInputEntry.of("Hello", metadata={"ticket": 7})
        run = await submit(store, engine, agent="broken", session="s", prompt=said)
        async with working(store, engine):
            await run.result()
        again = await run.retry()
        assert (await store.load("s"))[again.serial].metadata == {"ticket": 7}

    use(test)


class EndsMeanwhile(MemoryStore):
    """Lets another worker carry on after its requests were listed."""

    ending: Callable[[], Awaitable[object]] | None = None

    async def list_requests(self, **query: Any) -> RequestPage:
        page = await super().list_requests(**query)
        if self.ending is not None:
            ending, self.ending = self.ending, None
            await ending()
        return page


def test_an_abort_of_an_order_that_has_just_ended_changes_nothing() -> None:
    async def test() -> None:
        async with EndsMeanwhile() as store:
            run = await submit(store, LocalEngine(), agent="echo", session="s", prompt="Hello")
            store.ending = lambda: carry_on(store, AGENTS, run.order)
            await abort_order(store, run.order)
            assert await run.status() == "completed"

    asyncio.run(test())


async def _text_of(run: RunHandle) -> str:
    return "".join([text async for text in run.text()])
