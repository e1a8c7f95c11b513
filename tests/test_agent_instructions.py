"""Agent: instructions that a function writes at the start of each run."""

import asyncio
import functools
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    AgentStatus,
    ErrorCode,
    InvalidValue,
    MemoryStore,
    RuntimeConfig,
    ToolContext,
    start_session,
    tool,
)
from dragoman.agent import Raised
from dragoman.history import SystemInstructionEntry
from dragoman.testing.scripted import Call, ScriptedModel
from tests.agent_cases import asks, kept, kinds, require_sound, run


class Shop:
    """What the instructions are written from."""

    name = "Ada's"


def texts(agent: Agent[Any, Any]) -> list[str]:
    return [entry.instruction for entry in kept(agent).entries if isinstance(entry, SystemInstructionEntry)]


def greet(context: ToolContext[Shop]) -> str:
    return f"You sell at {context.runtime.name}."


async def greet_later(context: ToolContext[Shop]) -> str:
    await asyncio.sleep(0)
    return greet(context)


@pytest.mark.parametrize("write", [greet, greet_later])
def test_a_function_writes_the_instructions_of_each_run_and_changes_are_recorded(write: Any) -> None:
    shop = Shop()
    model = ScriptedModel("Hi.", repeats=True)
    agent = Agent(model, instructions=write, runtime=shop)
    for name in ("Ada's", "Ada's", "Bob's"):
        shop.name = name
        agent.run_sync("Hi.")
    assert texts(agent) == ["You sell at Ada's.", "You sell at Bob's."]
    assert [request.system for request in model.requests] == [
        f"You sell at {name}." for name in ("Ada's", "Ada's", "Bob's")
    ]
    require_sound(kept(agent))


def test_the_function_gets_the_ids_and_its_own_copy_of_the_options() -> None:
    def write(context: ToolContext) -> str:
        seen.append(context)
        context.options["unit"] = "pint"
        return "Be brief."

    seen: list[ToolContext] = []
    agent = Agent(
        ScriptedModel("Hi."), instructions=write, config=AgentConfig(runtime=RuntimeConfig(options={"unit": "litre"}))
    )
    result = agent.run_sync("Hi.")
    (context,) = seen
    assert (context.session_id, context.run_id, context.agent) == (result.session_id, result.run_id, agent)
    assert agent.config.runtime.options == {"unit": "litre"}


def test_a_run_that_goes_on_keeps_the_instructions_that_it_began_with() -> None:
    @tool(requires_approval=True)
    def buy(what: str) -> str:
        """Buy it."""
        return what

    async def use() -> None:
        numbers = iter(range(9))
        model = ScriptedModel(asks(Call("buy", {"what": "tea"})), "Bought.", "Hi.")
        session = await start_session(MemoryStore())
        agent = Agent(model, tools=[buy], session=session, instructions=lambda _context: f"Run {next(numbers)}.")
        waiting = await agent.run("Buy tea.")
        assert waiting.status is AgentStatus.AWAITING_HUMAN
        await agent.approve(waiting.approvals[0].tool_call_id)
        await agent.run()
        assert texts(agent) == ["Run 0."]
        await agent.run("Hi.")
        assert texts(agent) == ["Run 0.", "Run 1."]

    run(use())


def test_a_function_that_raises_fails_the_run_before_it_begins() -> None:
    def write(context: ToolContext) -> str:
        raise KeyError(context.session_id)

    agent = Agent(ScriptedModel("Hi."), instructions=write)
    result = agent.run_sync("Hi.")
    assert result.error is not None
    assert (result.status, result.error.code) == (AgentStatus.FAILED, ErrorCode.INTERNAL)
    assert result.raised == (Raised("the instructions", "KeyError"),)
    assert result.error.message == "KeyError in the instructions: the log has its traceback"
    assert kinds(agent) == []


def test_a_function_that_returns_no_text_fails_the_run() -> None:
    agent = Agent(ScriptedModel("Hi."), instructions=lambda _context: 3)  # type: ignore[arg-type,return-value]  # no text
    result = agent.run_sync("Hi.")
    assert result.error is not None
    assert result.error.message == "what the instructions return must be text, got 3"


def test_a_run_can_be_aborted_while_its_instructions_are_written() -> None:
    async def use() -> None:
        reached = asyncio.Event()

        async def write(context: ToolContext) -> str:
            reached.set()
            await asyncio.Event().wait()
            return ""

        agent = Agent(ScriptedModel("Hi."), instructions=write)
        started = agent.stream("Hi.")
        await reached.wait()
        assert (await started.abort()).status is AgentStatus.ABORTED

    run(use())


def test_instructions_that_are_neither_text_nor_a_function_are_refused() -> None:
    with pytest.raises(InvalidValue, match="instructions must be text, or a function of a ToolContext"):
        Agent(ScriptedModel(), instructions=3)  # type: ignore[call-overload]  # what is tested


@pytest.mark.parametrize("given", ["Be brief\ud83d.", lambda context: "Be brief\ud83d."])
def test_instructions_with_half_a_character_are_recorded_once(given: Any) -> None:
    agent = Agent(ScriptedModel("Hi.", repeats=True), instructions=given)
    agent.run_sync("Hi.")
    agent.run_sync("Hi.")
    assert texts(agent) == ["Be brief\N{REPLACEMENT CHARACTER}."]


def test_a_function_that_takes_no_context_is_refused_where_the_agent_is_made() -> None:
    with pytest.raises(InvalidValue, match=r"with one argument: def instructions\(context: ToolContext\) -> str"):
        Agent(ScriptedModel(), instructions=lambda: "hi")  # type: ignore[arg-type,misc]  # what is tested


class Till:
    """An object that can be called, with a runtime that it is written for."""

    def __call__(self, context: ToolContext[Shop]) -> str:
        return context.runtime.name


@pytest.mark.parametrize("write", [greet, greet_later, Till(), Till().__call__, functools.partial(greet)])
def test_instructions_of_another_runtime_are_refused_where_the_agent_is_made(write: Any) -> None:
    with pytest.raises(
        InvalidValue, match="the instructions need a runtime of the type Shop, but the agent has one of"
    ):
        Agent(ScriptedModel(), instructions=write, runtime="s")
    with pytest.raises(InvalidValue, match="the instructions need a runtime of the type Shop, but there is none"):
        Agent(ScriptedModel(), instructions=write)
    Agent(ScriptedModel(), instructions=write, runtime=Shop())


def test_instructions_whose_types_cannot_be_read_are_taken() -> None:
    def write(context: "ToolContext[NotThere]") -> str:  # type: ignore[name-defined]  # noqa: F821
        return "hi"

    assert Agent(ScriptedModel("Yes."), instructions=write, runtime="s").run_sync("Hi.").output == "Yes."
    Agent(ScriptedModel(), instructions=str)
