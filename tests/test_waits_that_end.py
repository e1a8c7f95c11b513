"""Waits that must not outlast what they wait for: stopped batches, hooks that wait for their run, dead event loops."""

import asyncio
import copy
import gc
from typing import Any

import pytest

from dragoman import Agent, AgentStatus, ToolCall, tool
from dragoman._frozen import frozen
from dragoman._loops import SharedLock
from dragoman.agent import AgentRun, Hooks
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import ReadyCall, ToolContext, ToolExecutor, ToolRegistry

PATIENCE = 60.0  # seconds: far more than all that a test waits for takes


@tool(concurrency="db")
async def query(number: int) -> int:
    """Return the number."""
    return number


def ready_call(executor: ToolExecutor) -> ReadyCall:
    ready = executor.prepare(ToolCall("1", "query", {"number": 1}))
    assert isinstance(ready, ReadyCall)
    return ready


@pytest.mark.parametrize("ticks", range(14))
def test_a_batch_that_is_cancelled_at_any_moment_ends_with_its_result_or_the_cancellation(ticks: int) -> None:
    async def program() -> None:
        executor = ToolExecutor(ToolRegistry([query]))
        task = asyncio.ensure_future(executor.run(ready_call(executor), ToolContext()))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError) or not isinstance(end, BaseException)

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_a_context_that_cannot_be_made_gives_the_class_of_its_tool_back() -> None:
    def no_context(_ready: object) -> ToolContext[Any]:
        raise RuntimeError("no context")

    async def program() -> None:
        executor = ToolExecutor(ToolRegistry([query]))
        ready = ready_call(executor)
        with pytest.raises(RuntimeError, match="no context"):
            await executor.run_all([ready], no_context)
        (result,) = await executor.run_all([ready], lambda _ready: ToolContext())
        assert result.text() == "1"

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_a_hook_that_waits_for_its_own_run_is_cancelled_when_the_run_is_aborted() -> None:
    async def program() -> None:
        reached = asyncio.Event()

        class Waits(Hooks):
            run: AgentRun[Any]

            async def before_model(self, call: Any) -> None:
                reached.set()
                await self.run.result()

        hook = Waits()
        agent = Agent(ScriptedModel("hi", repeats=True), hooks=[hook])
        hook.run = agent.stream("go")
        await reached.wait()
        assert (await hook.run.abort()).status is AgentStatus.ABORTED

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_a_run_that_waits_for_its_turn_may_be_aborted_twice_at_once() -> None:
    async def program() -> None:
        gate = asyncio.Event()

        async def between(_number: int) -> None:
            await gate.wait()

        agent = Agent(ScriptedModel("hi", repeats=True, between=between))
        first, second = agent.stream("one"), agent.stream("two", wait_seconds=PATIENCE)
        for _ in range(20):
            await asyncio.sleep(0)
        ends = await asyncio.gather(second.abort(), second.abort())
        assert [end.status for end in ends] == [AgentStatus.ABORTED, AgentStatus.ABORTED]
        gate.set()
        assert (await first.result()).status is AgentStatus.COMPLETED

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_a_tool_that_gives_its_own_agent_a_task_does_not_wait_for_the_class_that_it_holds() -> None:
    @tool(concurrency="db", requires_agent=True)
    async def delegate(context: ToolContext[Any]) -> str:
        """Give the agent a task."""
        assert context.agent is not None
        return str(await context.agent.as_tool("sub", "Sub.").execute({"task": "x"}, context))

    async def program() -> None:
        turns = (Turn(calls=(Call("delegate", {}),)), Turn(calls=(Call("query", {"number": 2}),)), "sub end", "end")
        result = await Agent(ScriptedModel(*turns), tools=[query, delegate]).run("go")
        assert result.status is AgentStatus.COMPLETED

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_what_waited_for_a_lock_in_a_closed_event_loop_does_not_give_it_back() -> None:
    lock = SharedLock()
    assert lock.take()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(lock.wait())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    lock.give()  # passes over what can no longer wake up
    assert lock.take()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # it is destroyed on purpose
    del waiting, loop
    gc.collect()
    assert not lock.take()


def test_a_deep_copy_of_a_recorded_object_is_plain_however_deep_it_is() -> None:
    value: dict[str, Any] = {"end": [1, {"x": 2}]}
    for _ in range(199):
        value = {"inner": value}
    copied = copy.deepcopy(frozen(value))
    assert copied == value
    while "inner" in copied:
        copied = copied["inner"]
    copied["end"][1]["x"] = 3
    assert copied["end"] == [1, {"x": 3}]
