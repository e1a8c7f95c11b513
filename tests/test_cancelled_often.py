"""Cleanup of a task that is cancelled at every await: by `anyio`, as in web programs, and by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from dragoman import SQLiteStore, ToolCall, tool
from dragoman._finishing import finish
from dragoman.agent import Agent
from dragoman.blocks import Sender, StreamingResponse
from dragoman.history import HistoryToolCallResult, RunFinishedEntry
from dragoman.store import Lease, MemoryStore, SessionStore, open_session, start_session
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import ReadyCall, ToolContext, ToolDefinition, ToolExecutor, ToolRegistry
from tests.agent_cases import kept, run
from tests.agent_checks import find_problems

Body = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
Leave = Callable[[Body], Awaitable[None]]


async def leave_by_hand(body: Body) -> None:
    """Cancel the body at every await from the moment on at which it sets the event; return when it has ended."""
    begun = asyncio.Event()
    task = asyncio.ensure_future(body(begun))
    await begun.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await task


async def leave_by_anyio(body: Body) -> None:
    """Do the same with the scope of a task group, as Starlette does when a client goes away."""
    begun = asyncio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(body, begun)
        await begun.wait()
        group.cancel_scope.cancel()


both_ways = pytest.mark.parametrize("leave", [leave_by_hand, leave_by_anyio])


async def take_some_turns() -> None:
    """Await several times."""
    for _ in range(5):
        await asyncio.sleep(0)


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return [path.name for path in folder.iterdir()]


class Mail:
    """A tool that begins and does not end by itself, one call at a time. It takes some turns to stop."""

    def __init__(self, begun: asyncio.Event) -> None:
        self._begun = begun
        self.seen: list[str] = []

    @property
    def tool(self) -> ToolDefinition:
        """The tool."""

        @tool(concurrency="mail")
        async def send(to: str) -> str:
            """Send a letter."""
            self.seen.append(f"begun {to}")
            self._begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await take_some_turns()
                self.seen.append(f"stopped {to}")
            return "sent"

        return send


def letters() -> ScriptedModel:
    """Return a model that writes two letters."""
    return ScriptedModel(Turn(calls=(Call("send", {"to": "Ada"}), Call("send", {"to": "Bob"}))), "Done.")


async def run_agent(agent: Agent) -> None:
    await agent.run("Write to both.")


async def stream_agent(agent: Agent) -> None:
    async with agent.stream("Write to both.") as events:
        async for _ in events:
            pass


# ---------------------------------------------------------------- runs


@both_ways
@pytest.mark.parametrize("use", [run_agent, stream_agent])
def test_a_run_is_closed_when_its_caller_was_cancelled_at_every_await(
    leave: Leave, use: Callable[[Agent], Awaitable[None]], tmp_path: Path
) -> None:
    async def work(store: SessionStore) -> None:
        mails: list[Mail] = []

        async def body(begun: asyncio.Event) -> None:
            mails.append(Mail(begun))
            session = await start_session(store, "s")
            await use(Agent(letters(), tools=[mails[0].tool], session=session))

        await leave(body)
        assert await store.find_lease("s") is None
        session = await open_session(store, "s")
        assert isinstance(session.entries[-1], RunFinishedEntry)
        assert not find_problems(session.entries)
        assert not session.state.pending_tool_calls
        assert mails[0].seen == ["begun Ada", "stopped Ada"]

    async def try_stores() -> None:
        await work(MemoryStore())
        async with SQLiteStore(tmp_path / "s.db") as store:
            await work(store)

    run(try_stores())


@both_ways
def test_a_tool_that_waited_in_a_run_that_was_left_does_not_run_later(leave: Leave, tmp_path: Path) -> None:
    """The store is opened in the same block, as in a request of a web program."""
    mails: list[Mail] = []

    async def body(begun: asyncio.Event) -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            mails.append(Mail(begun))
            session = await start_session(store, "s")
            await stream_agent(Agent(letters(), tools=[mails[0].tool], session=session))

    async def work() -> None:
        await leave(body)
        async with SQLiteStore(tmp_path / "s.db") as store:
            agent = Agent(ScriptedModel("Fine."), tools=[mails[0].tool], session=await open_session(store, "s"))
            assert (await agent.run("Never mind.")).output == "Fine."
            assert mails[0].seen == ["begun Ada", "stopped Ada"]

    run(work())


@both_ways
def test_the_tools_of_a_sub_agent_have_ended_when_the_outer_run_was_left(leave: Leave) -> None:
    mails: list[Mail] = []
    agents: list[Agent] = []

    async def body(begun: asyncio.Event) -> None:
        mails.append(Mail(begun))
        clerk = Agent(letters(), tools=[mails[0].tool]).as_tool("clerk", "Writes letters.")
        agents.append(Agent(ScriptedModel(Turn(calls=(Call("clerk", {"task": "Write."}),)), "Done."), tools=[clerk]))
        await run_agent(agents[0])

    async def work() -> None:
        await leave(body)
        assert mails[0].seen == ["begun Ada", "stopped Ada"]
        assert isinstance(kept(agents[0]).entries[-1], RunFinishedEntry)

    run(work())


# ---------------------------------------------------------------- sessions and stores


class LateStore(MemoryStore):
    """A store whose leases take some turns, both ways. It sets `asked` when one is asked for."""

    def __init__(self, asked: asyncio.Event) -> None:
        super().__init__()
        self._asked = asked
        self.released = 0

    async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease:
        self._asked.set()
        await take_some_turns()
        return await super()._acquire_lease(session_id, token, seconds)

    async def release_lease(self, lease: Lease) -> None:
        await take_some_turns()
        await super().release_lease(lease)
        self.released += 1


@both_ways
@pytest.mark.parametrize("is_held", [True, False])
def test_a_lease_is_given_back_when_the_block_was_left_that_holds_it_or_waits_for_it(
    leave: Leave, is_held: bool
) -> None:
    async def work() -> None:
        stores: list[LateStore] = []

        async def body(begun: asyncio.Event) -> None:
            stores.append(LateStore(asyncio.Event() if is_held else begun))
            session = await start_session(stores[0], "s")
            async with session.hold():
                begun.set()
                await asyncio.Event().wait()

        await leave(body)
        assert stores[0].released == 1

    run(work())


@both_ways
def test_the_files_of_a_store_are_closed_when_its_block_was_left(leave: Leave, tmp_path: Path) -> None:
    async def body(begun: asyncio.Event) -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            await start_session(store, "s")
            begun.set()
            await asyncio.Event().wait()

    async def work() -> list[str]:
        await leave(body)
        return names_in(tmp_path)

    assert run(work()) == ["s.db"]  # the last connection removes the log


# ---------------------------------------------------------------- tools and streams


@both_ways
def test_a_result_that_came_in_while_calls_are_stopped_is_told(leave: Leave) -> None:
    told: list[str] = []

    async def body(begun: asyncio.Event) -> None:
        @tool
        async def stubborn() -> str:
            """End when it is cancelled, with a result."""
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "done all the same"

        async def on_finished(_ready: ReadyCall, result: HistoryToolCallResult) -> None:
            await take_some_turns()
            told.append(result.text())

        executor = ToolExecutor(ToolRegistry([stubborn]))
        ready = executor.prepare(ToolCall("c1", "stubborn", {}))
        assert isinstance(ready, ReadyCall)
        await executor.run_all([ready], lambda _ready: ToolContext(), on_finished=on_finished)

    async def work() -> None:
        await leave(body)
        assert told == ["done all the same"]

    run(work())


@both_ways
def test_the_producer_of_a_stream_has_ended_when_its_reader_left(leave: Leave) -> None:
    ended: list[bool] = []

    async def produce(_sender: Sender) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await take_some_turns()
            ended.append(True)

    async def body(begun: asyncio.Event) -> None:
        async with StreamingResponse.produced_by(produce) as stream:
            await take_some_turns()
            begun.set()
            async for _ in stream:
                pass

    async def work() -> None:
        await leave(body)
        assert ended == [True]

    run(work())


# ---------------------------------------------------------------- the mechanism


def test_finish_raises_the_first_cancellation_after_the_work_and_calls_back_once() -> None:
    happened: list[str] = []

    async def cleanup() -> str:
        await take_some_turns()
        happened.append("work")
        raise ValueError("its caller is cancelled and not told of this")

    async def work() -> None:
        task = asyncio.ensure_future(finish(cleanup(), lambda: happened.append("told")))
        await asyncio.sleep(0)
        for number in range(3):
            task.cancel(f"number {number}")
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert raised.value.args == ("number 0",)

    run(work())
    assert happened == ["told", "work"]


def test_finish_returns_and_raises_what_the_work_does() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def work() -> None:
        assert await finish(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ValueError, match="no"):
            await finish(fail())

    run(work())
