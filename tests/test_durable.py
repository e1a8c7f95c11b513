"""Runs that are requested: what `submit` records, what `carry_on` does, and what a caller sees of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Session, SQLiteStore, Text, open_session, start_session, tool
from dragoman.durable import (
    Agents,
    EngineError,
    LocalEngine,
    Order,
    Progress,
    Retries,
    RunHandle,
    Worker,
    carry_on,
    find_run,
    submit,
    sweep,
)
from dragoman.durable.carrying import Performer
from dragoman.errors import ErrorCode, StoreError
from dragoman.history import (
    AgentStatus,
    ModelInputEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.store import SessionStore
from dragoman.testing import Call, ScriptedModel, Turn

QUICK = Retries(attempts=3, seconds=0.001, longest_seconds=0.002)
Use = Callable[[SessionStore, LocalEngine], Awaitable[None]]


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def make_echo(session: Session) -> Agent[Any, Any]:
    said = [message.text for message in session.messages if message.role == "user"]
    requests = session.state.derived.requests
    waiting = [part.text for request in requests[:1] for part in request.parts if hasattr(part, "text")]
    return Agent(ScriptedModel(f"You said: {[*said, *waiting][-1]}"), session=session)


def make_payer(session: Session) -> Agent[Any, Any]:
    has_called = any(message.tool_calls for message in session.messages)
    turns = ["Done."] if has_called else [Turn(calls=(Call("pay", {"amount": 5}),)), "Done."]
    return Agent(ScriptedModel(*turns, "More."), tools=[pay], session=session)


async def make_late(session: Session) -> Agent[Any, Any]:
    return Agent(ScriptedModel("Late."), session=session)


def make_nothing(_session: Session) -> Agent[Any, Any]:
    raise RuntimeError("this agent cannot be made")


AGENTS = Agents({"echo": make_echo, "payer": make_payer, "late": make_late, "broken": make_nothing})


@asynccontextmanager
async def working(store: SessionStore, engine: LocalEngine, agents: Agents = AGENTS) -> AsyncIterator[Worker]:
    """A worker for the time of a block; it stops in time."""
    worker = Worker(store, engine, agents, retries=QUICK)
    task = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        assert await task


@pytest.fixture(params=["memory", "sqlite"])
def use(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Use], None]:
    """Run a test with a store of each kind and an engine."""

    async def with_store(test: Use) -> None:
        store: MemoryStore | SQLiteStore
        store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "sessions.db")
        async with store:
            await test(store, LocalEngine())
            for info in (await store.list()).sessions:
                assert (await store.verify(info.session_id)).is_sound

    return lambda test: asyncio.run(with_store(test))


# ---------------------------------------------------------------- submitting


def test_a_submitted_run_is_recorded_scheduled_and_carried_on(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        assert (run.session_id, run.serial, run.agent) == ("s", 0, "echo")
        assert await run.status() == "queued"
        async with working(store, engine):
            result = await run.result()
        assert (result.status, result.unwrap()) == (AgentStatus.COMPLETED, "You said: Hello")
        assert await run.status() == "completed"
        kinds = [type(entry) for entry in await store.load("s")]
        assert kinds[:3] == [RunRequestedEntry, RunStartedEntry, ModelInputEntry]
        assert kinds[-1] is RunFinishedEntry
        assert result.run_id == run.run_id
        assert result.usage.total_tokens

    use(test)


def test_runs_of_one_session_go_one_after_the_other_in_their_order(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        runs = [await submit(store, engine, agent="echo", session="s", prompt=f"Number {n}") for n in range(5)]
        async with working(store, engine):
            results = [await run.result() for run in runs]
        assert [result.output for result in results] == [f"You said: Number {n}" for n in range(5)]
        started = [entry.run_id for entry in await store.load("s") if isinstance(entry, RunStartedEntry)]
        assert started == [run.run_id for run in runs]

    use(test)


def test_a_key_that_was_used_gives_the_run_there_is(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", prompt="Hello", key="order-7")
        again = await submit(store, engine, agent="echo", prompt="Hello", key="order-7")
        assert (again.session_id, again.run_id, again.serial) == (first.session_id, first.run_id, first.serial)
        assert len((await store.list()).sessions) == 1
        both = await asyncio.gather(
            *(submit(store, engine, agent="echo", prompt="Hi", session=f"s{n}", key="order-8") for n in range(4))
        )
        assert len({run.run_id for run in both}) == 1
        assert len((await store.list_requests()).requests) == 2

    use(test)


def test_a_run_without_a_prompt_carries_on_what_is_there(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        await session.append_model_input("Unanswered")
        run = await submit(store, engine, agent="echo", session="s")
        async with working(store, engine):
            assert (await run.result()).output == "You said: Unanswered"
        assert sum(isinstance(entry, ModelInputEntry) for entry in await store.load("s")) == 1

    use(test)


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": ""},
        {"agent": "a\n"},
        {"agent": "a" * 300},
        {"agent": "a\udcff"},
        {"key": "\0"},
        {"key": " "},
        {"key": "a\udcff"},
        {"prompt": b"bytes"},
    ],
)
def test_what_cannot_be_requested_is_refused_and_nothing_is_recorded(wrong: dict[str, Any]) -> None:
    async def run() -> None:
        store = MemoryStore()
        given = {"agent": "echo", "prompt": "Hello", "session": "s", **wrong}
        with pytest.raises(InvalidValue):
            await submit(store, LocalEngine(), **given)
        assert (await store.list()).sessions == ()

    asyncio.run(run())


def test_two_keys_never_give_one_run(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One", key="mail-\ufffd")
        for key in ("mail-\udcff", "mail-\udcfe"):  # from names of files that are no UTF-8
            with pytest.raises(InvalidValue, match="key must be at most 200 printable characters"):
                await submit(store, engine, agent="echo", session="t", prompt="Two", key=key)
        assert [request.run_id for request in (await store.list_requests()).requests] == [first.run_id]
        assert [info.session_id for info in (await store.list()).sessions] == ["s"]

    use(test)


def test_a_run_of_another_id_does_not_begin_a_requested_one(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, _engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        await session.append(RunRequestedEntry("echo", (Text("Hello"),), run_id="r\ufffd"))
        await session.append(RunStartedEntry(run_id="r\0"), RunFinishedEntry(RunStatus.COMPLETED, run_id="r\0"))
        assert [request.status for request in (await store.list_requests()).requests] == ["queued"]

    use(test)


class AwayEngine(LocalEngine):
    """An engine that cannot be reached."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        raise EngineError("the engine cannot be reached")


def test_a_run_that_could_not_be_scheduled_is_recorded_and_found_by_a_sweep(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        with pytest.raises(EngineError, match="the run is recorded"):
            await submit(store, AwayEngine(), agent="echo", session="s", prompt="Hello", key="k")
        assert await sweep(store, engine) == 1
        assert await sweep(store, engine) == 0  # the engine knows it now
        run = await find_run(store, engine, "s")
        async with working(store, engine):
            assert (await run.result()).output == "You said: Hello"
        assert await sweep(store, LocalEngine()) == 0  # it has ended

    use(test)


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


@pytest.mark.parametrize(("agent", "words"), [("broken", "RuntimeError"), ("unknown", "no agent is called 'unknown'")])
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
            assert "after 3 attempts" in result.error.message
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
    path.write_bytes(path.read_bytes().replace(b"flip me", b"flap me"))
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
        assert (older.status, older.next.failures, older.seconds) == ("queued", 1, 1.0)
        assert len(await store.load("s")) == 1  # nothing was recorded
        assert (await carry_on(store, AGENTS, older.next)).status == "completed"

    use(test)


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


# ---------------------------------------------------------------- what is said to a run


def test_a_run_waits_for_a_person_and_goes_on_after_the_decision(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        after = await submit(store, engine, agent="late", session="s", prompt="And then?")
        async with working(store, engine):
            waiting = await run.result()
            assert waiting.status is AgentStatus.AWAITING_HUMAN
            (call,) = waiting.approvals
            assert await run.status() == "awaiting_human"
            assert await after.waiting_calls() == (call,)  # what it waits for too
            progress = await carry_on(store, AGENTS, after.order)  # its order comes before its time
            assert progress == Progress("queued", progress.serial)
            await run.approve(call.tool_call_id, arguments={"amount": 6}, reason="less")
            assert (await run.result()).output == "Done."
            assert (await after.result()).output == "Late."  # the first order carries the second run on
        (finished,) = [entry for entry in await store.load("s") if isinstance(entry, ToolFinishedEntry)]
        assert finished.result.text() == "paid 6"

    use(test)


def test_a_decision_outlives_every_worker(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            (call,) = (await run.result()).approvals
        found = await find_run(store, AwayEngine(), "s")  # days later, in another process, no engine is there
        with pytest.raises(EngineError):
            await found.deny(call.tool_call_id, reason="No.")
        fresh = LocalEngine()
        async with working(store, fresh):  # its first sweep finds the decision in the record
            assert (await run.result()).output == "Done."
        assert not any(isinstance(entry, ToolStartedEntry) for entry in await store.load("s"))

    use(test)


def test_two_decisions_about_one_call_the_first_counts(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            (call,) = (await run.result()).approvals
            await run.approve(call.tool_call_id)
            with pytest.raises(InvalidValue, match="answered"):
                await run.deny(call.tool_call_id)
            assert (await run.result()).output == "Done."

    use(test)


def test_nothing_can_be_said_to_a_run_that_has_ended(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        never = await submit(store, engine, agent="echo", session="s", prompt="Never")
        await never.abort()
        async with working(store, engine):
            (call,) = (await run.result()).approvals
            await run.steer("In euros.")
            assert await run.status() == "awaiting_human"
            await run.approve(call.tool_call_id)
            assert (await run.result()).output == "Done."
        before = await store.load("s")
        for ended, status in ((run, "completed"), (never, "aborted")):
            with pytest.raises(InvalidValue, match=f"this run is {status}"):
                await ended.steer("Anybody there?")
        assert await store.load("s") == before

    use(test)


def test_a_run_that_has_not_begun_is_aborted_without_beginning(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One")
        second = await submit(store, engine, agent="echo", session="s", prompt="Two")
        await first.abort("not needed")
        assert [await first.status(), await second.status()] == ["aborted", "queued"]
        async with working(store, engine):
            assert (await second.result()).output == "You said: Two"
            result = await first.result()
        assert (result.status, result.message) == (AgentStatus.ABORTED, None)
        assert [entry.run_id for entry in await store.load("s") if isinstance(entry, RunStartedEntry)] == [
            second.run_id
        ]
        await first.abort()  # once more: it stays as it is

    use(test)


def test_a_waiting_run_that_is_aborted_ends_and_its_call_has_a_result(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            assert (await run.result()).status is AgentStatus.AWAITING_HUMAN
            await run.abort()
            assert (await run.result()).status is AgentStatus.ABORTED
        session = await open_session(store, "s")
        assert session.state.pending_tool_calls == ()

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


# ---------------------------------------------------------------- finding runs


def test_requests_are_listed_newest_first_and_page_by_page(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        for number in range(7):
            await submit(store, engine, agent="echo", session=f"s{number % 2}", prompt="Hi", key=f"k{number}")
        first = await store.list_requests(limit=4)
        rest = await store.list_requests(limit=4, page=first.next_page)
        assert [request.key for request in (*first.requests, *rest.requests)] == [f"k{n}" for n in range(6, -1, -1)]
        assert rest.next_page is None
        assert [request.serial for request in (await store.list_requests(session_id="s0")).requests] == [3, 2, 1, 0]
        (found,) = (await store.list_requests(key="k3")).requests
        assert (found.session_id, found.serial, found.status) == ("s1", 1, "queued")
        for wrong in ({"limit": 0}, {"page": "x"}, {"session_id": ""}, {"serial": -1}, {"key": 1}):
            with pytest.raises(InvalidValue):
                await store.list_requests(**wrong)

    use(test)


def test_a_run_is_found_by_its_session(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One")
        second = await submit(store, engine, agent="echo", session="s", prompt="Two")
        assert (await find_run(store, engine, "s")).run_id == first.run_id
        assert (await find_run(store, engine, "s", 1)).run_id == second.run_id
        async with working(store, engine):
            await second.result()
        assert (await find_run(store, engine, "s")).run_id == second.run_id
        with pytest.raises(InvalidValue, match="no run was requested in session 's' at serial 2"):
            await find_run(store, engine, "s", 2)
        with pytest.raises(StoreError, match="nowhere"):
            await find_run(store, engine, "nowhere")
        handle = repr(await find_run(store, engine, "s"))
        assert handle == f"<RunHandle {second.run_id!r} of session 's', agent 'echo'>"
        assert isinstance(first, RunHandle)

    use(test)


# ---------------------------------------------------------------- following


def test_the_text_of_a_run_comes_once_wherever_it_is_read_from(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        await submit(store, engine, agent="late", session="s", prompt="Other")
        reading = asyncio.ensure_future(_text_of(run))  # before a worker is there
        async with working(store, engine):
            assert await reading == ""  # it waits for a person
            (call,) = await run.waiting_calls()
            await run.approve(call.tool_call_id)
            assert await _text_of(run) == "Done."
            await run.result()
        assert await _text_of(run) == "Done."  # long after it has ended
        kinds = [delta.kind async for delta in run.follow()]
        assert (kinds.count("start"), kinds.count("done")) == (2, 2)

    use(test)


def test_a_run_that_was_aborted_before_it_began_has_no_text(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        reading = asyncio.ensure_future(_text_of(run))
        await asyncio.sleep(0)
        await run.abort()
        assert await reading == ""
        assert await _text_of(run) == ""

    use(test)


async def _text_of(run: RunHandle) -> str:
    return "".join([text async for text in run.text()])
