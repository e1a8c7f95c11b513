"""What a run leaves when it is stopped at an awkward moment, and other cases that the walk and a review have shown."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import AgentConfig, ErrorCode, LoopConfig, Message, ModelError, Role, ToolCall, ToolsConfig, tool
from dragoman.agent import Agent, Hooks, ModelCall, ToolResultEvent
from dragoman.context import ModelCompactor
from dragoman.history import (
    AgentStatus,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    RunFinishedEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
)
from dragoman.router import LlmRequest, ProviderRouter
from dragoman.store import Head, Lease, MemoryStore, Session, start_session
from dragoman.stream import Assembly
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import ToolContext, ToolDefinition
from tests.agent_cases import Gate, kept, result_codes, run
from tests.agent_checks import find_problems


class SlowStore(MemoryStore):
    """A store that takes long over what a tool's result is recorded with."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        if any(isinstance(entry, ToolFinishedEntry) for entry in entries):
            self.reached.set()
            await self.opened.wait()
        return await super().append(session_id, entries, expected_serial, lease=lease)


async def some_turns(count: int = 50) -> None:
    """Let everybody else do what can be done now."""
    for _ in range(count):
        await asyncio.sleep(0)


def last_run(session: Session) -> RunFinishedEntry:
    """Return how the last run ended, which must be the last thing that was recorded."""
    last = session.entries[-1]
    assert isinstance(last, RunFinishedEntry)
    assert not find_problems(session.entries)
    return last


NOTEBOOK = AgentConfig(tools=ToolsConfig(notebook=True))


def interruption(session: Session) -> InterruptionEntry:
    """Return the one answer that broke off."""
    (found,) = (entry for entry in session.entries if isinstance(entry, InterruptionEntry))
    return found


def test_a_result_that_is_being_recorded_while_the_run_is_aborted_is_the_result() -> None:
    async def use() -> None:
        store = SlowStore()
        model = ScriptedModel(Turn(calls=(Call("memory_notebook_append", {"text": "Tea."}), Call("nobody"))))
        agent = Agent(model, session=await start_session(store), config=NOTEBOOK)
        started = agent.stream("Note it.")
        store.opened.set()  # the answer to `nobody`, which is no tool, comes first
        await store.reached.wait()
        store.opened.clear()
        store.reached.clear()
        await store.reached.wait()
        aborting = asyncio.ensure_future(started.abort())
        await some_turns()
        store.opened.set()
        assert (await aborting).status is AgentStatus.ABORTED
        assert last_run(kept(agent)).status == "aborted"
        assert result_codes(kept(agent)) == [None, ErrorCode.UNKNOWN_TOOL]
        assert kept(agent).state.memory_notebook_snapshot == "Tea."

    run(use())


def test_a_run_whose_time_is_over_in_the_middle_of_an_answer_fails_and_keeps_what_had_arrived() -> None:
    async def use() -> None:
        gate = Gate(3)
        agent = Agent(
            ScriptedModel(Turn(text="Once upon a time there was a king."), between=gate),
            config=AgentConfig(loop=LoopConfig(max_seconds=0.05)),
        )
        result = await agent.run("Tell me a story.")
        assert result.status is AgentStatus.FAILED
        assert result.error is not None
        assert result.error.code is ErrorCode.LIMIT_REACHED
        assert last_run(kept(agent)).error_code is ErrorCode.LIMIT_REACHED
        partial = interruption(kept(agent)).partial
        assert partial is not None
        assert partial.text == "Once upon a time there w"

    run(use())


def test_an_answer_that_is_whole_but_not_recorded_when_the_run_is_aborted_is_kept_as_broken_off() -> None:
    async def use() -> None:
        class Dawdler(Hooks):
            async def after_model(self, call: ModelCall, assembly: Assembly) -> Any:
                reached.set()
                await asyncio.Event().wait()

        reached = asyncio.Event()
        agent = Agent(ScriptedModel("It rains."), hooks=[Dawdler()])
        started = agent.stream("The weather?")
        await reached.wait()
        assert (await started.abort()).status is AgentStatus.ABORTED
        partial = interruption(kept(agent)).partial
        assert partial is not None
        assert partial.text == "It rains."

    run(use())


def test_whoever_aborts_twice_does_not_cut_off_what_is_being_told() -> None:
    async def use() -> None:
        class Dawdler(Hooks):
            async def after_tool(self, call: Any, context: ToolContext[Any], result: Any) -> Any:
                reached.set()
                await may_go_on.wait()
                heard.append(result.tool_name)

        reached, may_go_on = asyncio.Event(), asyncio.Event()
        heard: list[str] = []
        model = ScriptedModel(Turn(calls=(Call("memory_notebook_append", {"text": "Tea."}),)))
        agent = Agent(model, hooks=[Dawdler()], config=NOTEBOOK)
        started = agent.stream("Note it.")
        await reached.wait()
        aborting = []
        for _ in range(2):
            aborting.append(asyncio.ensure_future(started.abort()))
            await some_turns()
        may_go_on.set()
        for each in aborting:
            assert (await each).status is AgentStatus.ABORTED
        assert heard == ["memory_notebook_append"]
        assert last_run(kept(agent)).status == "aborted"

    run(use())


def test_a_run_that_is_cancelled_itself_ends_even_if_what_it_was_doing_goes_on() -> None:
    async def use() -> None:
        async def stubborn(number: int) -> None:
            if number == 1:
                reached.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass

        reached = asyncio.Event()
        agent = Agent(ScriptedModel("It rains.", between=stubborn))
        before = asyncio.all_tasks()
        started = agent.stream("The weather?")
        (itself,) = asyncio.all_tasks() - before
        await reached.wait()
        itself.cancel()
        with pytest.raises(asyncio.CancelledError):
            await started.result()
        assert kept(agent).state.current_run_id  # it has not ended: the next run carries it on

    run(use())


def test_what_is_cancelled_by_others_fails_the_run_and_is_no_abort() -> None:
    async def use() -> None:
        async def cancel_oneself(_number: int) -> None:
            raise asyncio.CancelledError

        agent = Agent(ScriptedModel("It rains.", between=cancel_oneself))
        result = await agent.run("The weather?")
        assert result.status is AgentStatus.FAILED
        assert result.error is not None
        assert result.error.code is ErrorCode.CANCELLED
        assert last_run(kept(agent)).error_code is ErrorCode.CANCELLED

    run(use())


def test_a_compactor_does_not_change_how_a_run_without_a_route_ends() -> None:
    async def use() -> None:
        router = ProviderRouter({"plan": ScriptedModel("A plan.")}, choose=lambda _request: "execute")
        agent = Agent(router, compactor=ModelCompactor())
        result = await agent.run("Go.")
        assert result.error is not None
        assert "no route 'execute'" in result.error.message
        assert last_run(kept(agent)).status == "failed"

    run(use())


def test_models_of_an_earlier_call_do_not_stand_in_where_a_later_one_has_no_route() -> None:
    async def use() -> None:
        def choose(_request: LlmRequest) -> str:
            return next(routes)

        routes = iter(("first", "nowhere"))
        spare = ScriptedModel("I was not asked.", repeats=True)
        first = ScriptedModel(Turn(calls=(Call("nobody"),)))
        agent = Agent(ProviderRouter({"first": (first, spare)}, choose=choose))
        result = await agent.run("Go.")
        assert result.status is AgentStatus.FAILED
        assert spare.requests == []

    run(use())


def test_hooks_and_readers_are_told_the_result_that_is_recorded_by_the_tool_itself() -> None:
    async def use() -> None:
        class Listener(Hooks):
            async def after_tool(self, call: Any, context: ToolContext[Any], result: Any) -> Any:
                heard.append(result.error_code)

        heard: list[ErrorCode | None] = []
        wrong = Call("memory_notebook_replace_text", {"old": "Tea.", "new": "Milk."})
        agent = Agent(ScriptedModel(Turn(calls=(wrong,)), "Oh."), hooks=[Listener()], config=NOTEBOOK)
        told = [event.result async for event in agent.stream("Go.") if isinstance(event, ToolResultEvent)]
        assert heard == [result.error_code for result in told] == result_codes(kept(agent))
        assert heard != [None]

    run(use())


def test_a_prompt_for_a_session_that_was_left_with_calls_and_no_run_comes_after_their_results() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore())
        await session.append_model_input("Is it cold?")
        await session.append_model_output(Message(Role.ASSISTANT, (ToolCall("a", "look", {}),)))

        async def look(_arguments: dict[str, Any], _context: ToolContext[Any]) -> str:
            return "Snow."

        agent = Agent(ScriptedModel("Yes, it is."), tools=[ToolDefinition(name="look", execute=look)], session=session)
        assert (await agent.run("Hurry.")).output == "Yes, it is."
        spoken = [entry.kind for entry in session.entries if isinstance(entry, ModelInputEntry | ToolResultsEntry)]
        assert spoken == ["model_input", "tool_result", "model_input"]
        assert not find_problems(session.entries)

    run(use())


def test_failures_that_used_tokens_count_for_the_limit_before_the_next_attempt() -> None:
    async def use() -> None:
        busy = Turn(text="Let me", error=ModelError("busy", code=ErrorCode.OVERLOADED))
        limits = LoopConfig(max_tokens=20, attempts=9, backoff_seconds=0)
        model = ScriptedModel(busy, repeats=True)
        result = await Agent(model, config=AgentConfig(loop=limits)).run("Go.")
        assert result.error is not None
        assert result.error.code is ErrorCode.LIMIT_REACHED
        assert len(model.requests) == 2

    run(use())


def test_an_agent_that_was_stopped_runs_tools_in_its_next_run() -> None:
    async def scene() -> None:
        began = asyncio.Event()

        @tool
        async def work(waits: bool) -> str:
            """Work, or wait for ever."""
            began.set()
            await (asyncio.Event().wait() if waits else asyncio.sleep(0))
            return "Worked."

        calls = [Turn(calls=(Call("work", {"waits": waits}),)) for waits in (True, False)]
        agent = Agent(ScriptedModel(*calls, "Done."), tools=[work])
        stopped = agent.stream("Go.")
        await began.wait()
        await stopped.abort()
        result = await agent.run("Again.")
        assert (result.status, result.output) == (AgentStatus.COMPLETED, "Done.")

    run(scene())


def test_what_is_said_before_a_retry_is_in_the_retry() -> None:
    async def scene() -> None:
        session = await start_session(MemoryStore(), "s")

        class Steering(Hooks):
            async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
                if assembly.error is not None:
                    await session.steer("By train.")

        busy = ModelError("busy", code=ErrorCode.OVERLOADED)
        model = ScriptedModel(busy, "By train, then.")
        config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
        result = await Agent(model, session=session, hooks=[Steering()], config=config).run("Where to?")
        assert result.output == "By train, then."
        assert [message.text for message in model.requests[1].messages] == ["Where to?", "By train."]

    run(scene())
