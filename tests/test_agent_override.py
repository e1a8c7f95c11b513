"""Another model in place of an agent's own, for one block of code."""

import asyncio
import threading
from typing import Any

import pytest

import dragoman
from dragoman import Agent, AgentConfig, InvalidValue, ModelConfig
from dragoman.request import ModelInfo
from dragoman.testing import Call, ScriptedModel
from dragoman.testing.scripted import ACTOR
from tests.agent_cases import ROME, Gate, asks, kept, run, weather


def test_a_block_asks_the_other_model_and_the_next_line_the_agents_own() -> None:
    own, other = ScriptedModel("Own.", repeats=True), ScriptedModel("Other.", repeats=True)
    agent = Agent(own)
    with agent.override(model=other):
        assert agent.run_sync("Hi.").unwrap() == "Other."
        assert "asked 1 times" in repr(agent)
    assert agent.run_sync("Hi.").unwrap() == "Own."
    assert (len(own.requests), len(other.requests)) == (1, 1)
    assert len(kept(agent).messages) == 4  # one session all the while


def test_a_program_with_a_real_model_and_no_key_is_tested_as_it_is() -> None:
    agent = Agent("openai:gpt-5", tools=[weather], instructions="Be brief.")
    script = ScriptedModel(ROME, "It rains.")
    with agent.override(model=script):
        assert agent.run_sync("The weather in Rome?").unwrap() == "It rains."
    request = script.requests[-1]
    assert (request.system, request.prompt, request.tool_names) == ("Be brief.", "The weather in Rome?", ("weather",))
    assert request.messages[-1].tool_results[0].content == "Rain in Rome."


@pytest.mark.parametrize("way", ["stream", "stream_sync", "run"])
def test_every_way_to_run_asks_the_other_model(way: str) -> None:
    agent = Agent(ScriptedModel())

    async def said() -> str:
        if way == "stream":
            return "".join([piece async for piece in agent.stream("Hi.").text()])
        if way == "stream_sync":
            return "".join(agent.stream_sync("Hi.").text())
        return (await agent.run("Hi.")).unwrap()

    with agent.override(model=ScriptedModel("Other.")):
        assert run(said()) == "Other."


def test_blocks_inside_blocks_and_exceptions_leave_the_model_as_it_was() -> None:
    agent = Agent(ScriptedModel("Own."))
    with agent.override(model=ScriptedModel("Outer.")):
        inner = agent.override(model=ScriptedModel("Inner."))
        with pytest.raises(KeyError, match="Inner"), inner:
            raise KeyError(agent.run_sync("Hi.").unwrap())
        assert agent.run_sync("Hi.").unwrap() == "Outer."
    assert agent.run_sync("Hi.").unwrap() == "Own."


def test_tasks_at_once_have_models_of_their_own() -> None:
    agents = [Agent(ScriptedModel("Own.")) for _ in range(2)]

    async def ask(name: str, reached: asyncio.Event, go_on: asyncio.Event) -> list[str]:
        with agents[0].override(model=ScriptedModel(name)):
            reached.set()
            await go_on.wait()  # the other task is in its block too
            first = await agents[0].run("Hi.", wait_seconds=60)
            return [first.unwrap()]

    async def both() -> tuple[list[str], list[str]]:
        left, right = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(ask("Left.", left, right), ask("Right.", right, left))

    assert list(run(both())) == [["Left."], ["Right."]]
    assert agents[1].run_sync("Hi.").unwrap() == "Own."


def test_another_thread_keeps_the_agents_own_model() -> None:
    agent = Agent(ScriptedModel("Own."))
    said: list[str] = []
    with agent.override(model=ScriptedModel("Other.")):
        thread = threading.Thread(target=lambda: said.append(agent.run_sync("Hi.").unwrap()))
        thread.start()
        thread.join()
    assert said == ["Own."]


def test_a_run_keeps_the_model_that_it_began_with() -> None:
    async def leave_early() -> str:
        gate = Gate(1)
        agent = Agent(ScriptedModel("Own."), tools=[weather])
        with agent.override(model=ScriptedModel(ROME, "Other.", between=gate)):
            stream = agent.stream("Hi.")
            await gate.reached.wait()
        gate.opened.set()
        return (await stream.result()).unwrap()

    assert run(leave_early()) == "Other."


def test_an_agent_that_is_a_tool_asks_the_other_model_too() -> None:
    expert = Agent("openai:gpt-5")
    chief = Agent(
        ScriptedModel(asks(Call("expert", {"task": "?"})), "So be it."), tools=[expert.as_tool("expert", "Knows.")]
    )
    script = ScriptedModel("Rain.")
    with expert.override(model=script):
        assert chief.run_sync("Well?").unwrap() == "So be it."
    assert script.requests[0].prompt == "?"


def test_settings_for_the_agents_own_model_do_not_stop_the_other_one() -> None:
    own = dragoman.model("openai:gpt-5", api_key="not-a-real-key")
    agent = Agent(own, config=AgentConfig(model=ModelConfig("gpt-5", temperature=0.5)))
    script = ScriptedModel("Other.")
    with agent.override(model=script):
        assert agent.run_sync("Hi.").unwrap() == "Other."
    assert "temperature" not in script.requests[0].params


def test_what_is_no_model_is_refused_and_missing_tools_are_told() -> None:
    agent = Agent(ScriptedModel(), tools=[weather])
    wrong: Any = 5
    with pytest.raises(InvalidValue, match="model must be a model, a name such as"):
        agent.override(model=wrong)
    plain = ModelInfo(provider=ACTOR.provider, model_id=ACTOR.model, abilities=frozenset({"streaming"}))
    with pytest.warns(UserWarning, match="cannot use tools"):
        agent.override(model=ScriptedModel(info=plain))
