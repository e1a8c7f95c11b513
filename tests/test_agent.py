"""An agent through its public face, on a scripted model: runs, tools, models, limits. Nothing is mocked."""

import asyncio
import gc
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    AgentConfig,
    AgentStatus,
    ContextConfig,
    ErrorCode,
    FinishReason,
    InvalidValue,
    LoopConfig,
    ModelConfig,
    ModelError,
    ProviderRouter,
    Role,
    SessionBusy,
    ToolsConfig,
)
from dragoman.agent import TRANSITIONS, Agent
from dragoman.context import ModelCompactor
from dragoman.history import (
    CompactionEntry,
    InterruptionEntry,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
    Section,
    SteeringEntry,
    entry_from_json,
    entry_to_json,
)
from dragoman.message import ModelInvocationDescriptor
from dragoman.models.recorded import FIRST_PIECE_KEY
from dragoman.store import MemoryStore, open_session, start_session
from dragoman.testing.scripted import Call, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import tool
from dragoman.transport import AiohttpTransport
from dragoman.usage import TokenUsage
from tests.agent_cases import (
    ROME,
    FailingStore,
    Gate,
    asks,
    claude,
    kept,
    kinds,
    require_sound,
    result_codes,
    result_texts,
    run,
    weather,
)
from tests.loopback import CLOSING, OPENING, STREAM_HEAD, Peer, Server, serving

BUSY = ModelError("busy", code=ErrorCode.OVERLOADED)
AT_ONCE = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
OTHER = ModelInvocationDescriptor("scripted", "script", "understudy")


# ---------------------------------------------------------------- running


def test_a_run_calls_tools_until_the_model_is_done() -> None:
    model = ScriptedModel(ROME, asks(Call("weather", {"city": "Oslo"})), "It rains in both.")
    agent = Agent(model, tools=[weather], instructions="Be brief.")
    result = agent.run_sync("How is the weather in Rome and Oslo?")
    assert (result.status, result.output, result.error) == (AgentStatus.COMPLETED, "It rains in both.", None)
    assert result.message is not None
    assert (result.session_id, result.run_id) == (kept(agent).session_id, result.message.run_id)
    assert result.usage == TokenUsage(input_tokens=30, output_tokens=15, total_tokens=45)
    assert result_texts(kept(agent)) == ["Rain in Rome.", "Rain in Oslo."]
    assert [request.system for request in model.requests] == ["Be brief."] * 3
    assert "weather" in [spec.name for spec in model.requests[0].tools]
    require_sound(kept(agent))


def test_every_step_is_recorded_in_its_order() -> None:
    agent = Agent(ScriptedModel(ROME, "Rain."), tools=[weather])
    agent.run_sync("And?")
    assert kinds(agent) == [
        "run_started",
        "model_input",
        "tool_set",
        "model_output",
        "tool_started",
        "tool_finished",
        "tool_result",
        "model_output",
        "run_finished",
    ]


def test_the_next_run_goes_on_in_the_same_session() -> None:
    model = ScriptedModel("Hello.", "You said hi.")
    agent = Agent(model)
    first, second = agent.run_sync("Hi."), agent.run_sync("What did I say?")
    assert first.session_id == second.session_id
    assert first.run_id != second.run_id
    assert [message.text for message in model.requests[1].messages] == ["Hi.", "Hello.", "What did I say?"]


def test_run_sync_is_refused_inside_an_event_loop() -> None:
    async def use() -> None:
        with pytest.raises(InvalidValue, match=r"await run\(\)"):
            Agent(ScriptedModel("Hi.")).run_sync("Hi.")

    run(use())


@contextmanager
def server_beside() -> Iterator[str]:
    """Yield the address of a server in a thread of its own, which greets every client."""
    ready, over, url = threading.Event(), asyncio.Event(), [""]
    loop = asyncio.new_event_loop()

    async def greet(peer: Peer) -> None:
        await peer.send(STREAM_HEAD, OPENING, CLOSING)
        peer.close()

    async def serve() -> None:
        server: Server
        async with serving(greet) as server:
            url[0] = server.url
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_run_sync_twice_over_the_network_leaves_nothing_open() -> None:
    with server_beside() as url:
        agent = Agent(claude(url, AiohttpTransport(trust_env=False)))
        assert [agent.run_sync(said).output for said in ("Hi.", "Again.")] == ["Hello", "Hello"]
        del agent
        gc.collect()  # what was left open complains now


def test_the_record_says_how_long_the_first_piece_took() -> None:
    with server_beside() as url:
        agent = Agent(claude(url, AiohttpTransport(trust_env=False)))
        agent.run_sync("Hi.")
    assert agent.session is not None
    (output,) = (entry for entry in agent.session.entries if isinstance(entry, ModelOutputEntry))
    assert isinstance(output.metadata[FIRST_PIECE_KEY], float)


def test_an_answer_that_pauses_is_sent_back() -> None:
    model = ScriptedModel(Turn(text="One ", finish_reason=FinishReason.PAUSE), "moment.")
    agent = Agent(model)
    assert agent.run_sync("Hi.").output == "moment."
    assert [message.role for message in model.requests[1].messages] == [Role.USER, Role.ASSISTANT]


def test_a_prompt_may_be_parts() -> None:
    model = ScriptedModel("Hello.")
    Agent(model).run_sync(["Look at", "this."])
    assert model.requests[0].messages[0].text == "Look atthis."


@pytest.mark.parametrize("prompt", ["", "  ", [], 5, [5], b"bytes"])
def test_what_nobody_can_say_is_refused_and_nothing_is_recorded(prompt: Any) -> None:
    agent = Agent(ScriptedModel("Hello."))
    with pytest.raises(InvalidValue):
        agent.run_sync(prompt)
    assert agent.session is None
    assert agent.run_sync("Hi.").output == "Hello."


def test_a_failure_of_the_model_is_a_result_and_the_next_run_goes_on() -> None:
    agent = Agent(ScriptedModel(ModelError("no such key", code=ErrorCode.AUTHENTICATION), "Hello."))
    result = agent.run_sync("Hi.")
    assert (result.status, result.output, result.message) == (AgentStatus.FAILED, None, None)
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == (ErrorCode.AUTHENTICATION, False)
    require_sound(kept(agent))
    assert agent.run_sync("Once more.").output == "Hello."


def test_what_may_yet_succeed_is_tried_again() -> None:
    model = ScriptedModel(BUSY, Turn(text="It rai", breaks_after=2), "It rains.")
    agent = Agent(model, config=AT_ONCE)
    assert agent.run_sync("And?").output == "It rains."
    broken = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
    assert [entry.reason for entry in broken] == [ErrorCode.OVERLOADED, ErrorCode.STREAM_TRUNCATED]
    assert broken[1].partial is not None
    assert broken[1].partial.text == "It rai"


def test_it_is_tried_again_only_so_often() -> None:
    model = ScriptedModel(BUSY, repeats=True)
    config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0, attempts=3))
    result = Agent(model, config=config).run_sync("Hi.")
    assert result.error is not None
    assert (result.error.code, len(model.requests)) == (ErrorCode.OVERLOADED, 3)


def test_a_wait_that_is_longer_than_allowed_is_not_waited_for() -> None:
    model = ScriptedModel(ModelError("later", code=ErrorCode.RATE_LIMITED, retry_after=3600.0))
    result = Agent(model).run_sync("Hi.")
    assert result.error is not None
    assert (result.error.retry_after, len(model.requests)) == (3600.0, 1)


def test_a_context_that_is_too_long_is_made_smaller_once() -> None:
    long = ModelError("too long", code=ErrorCode.CONTEXT_OVERFLOW)
    model = ScriptedModel("One.", "Two.", "Three.", long, "Four.", long, long)
    agent = Agent(model)
    for number in range(3):
        agent.run_sync(f"{number}: " + "many words, " * 400)
    assert agent.run_sync("And now?").output == "Four."
    sizes = [sum(len(message.text) for message in request.messages) for request in model.requests[3:5]]
    assert sizes[1] < sizes[0]
    result = agent.run_sync("And again?")
    assert result.error is not None
    assert result.error.code is ErrorCode.CONTEXT_OVERFLOW
    require_sound(kept(agent))


# ---------------------------------------------------------------- two at a time


def test_a_second_run_of_an_agent_is_refused_or_waits() -> None:
    async def use() -> None:
        gate = Gate(0)
        agent = Agent(ScriptedModel("Hello.", "Hello again.", between=gate))
        first = agent.stream("Hi.")
        says = "^this agent has a run under way: await it first, or pass wait_seconds=$"
        with pytest.raises(SessionBusy, match=says):
            await agent.run("Me too.")
        with pytest.raises(SessionBusy):
            agent.stream("Me too.")
        patient = asyncio.ensure_future(agent.run("And me.", wait_seconds=60))
        with pytest.raises(InvalidValue, match="a run is under way"):
            agent.use(ScriptedModel("Hello."))
        gate.opened.set()
        assert (await first.result()).output == "Hello."
        assert (await patient).output == "Hello again."

    run(use())


def test_a_message_is_taken_up_before_the_next_model_call() -> None:
    async def use() -> None:
        @tool
        async def look() -> str:
            await agent.steer("Look closer.")
            return "A dot."

        model = ScriptedModel(asks(Call("look")), "A ship.")
        agent = Agent(model, tools=[look])
        assert (await agent.run("What is it?")).output == "A ship."
        assert [message.role for message in model.requests[1].messages][-2:] == [Role.TOOL, Role.USER]
        assert model.requests[1].messages[-1].text == "Look closer."
        require_sound(kept(agent))

    run(use())


def test_a_message_that_comes_with_the_last_answer_is_still_answered() -> None:
    async def use() -> None:
        gate = Gate(1)
        model = ScriptedModel("Hello.", "Goodbye.", between=gate)
        agent = Agent(model)
        started = agent.stream("Hi.")
        await gate.reached.wait()
        await started.steer("Bye.")
        gate.opened.set()
        assert (await started.result()).output == "Goodbye."
        with pytest.raises(InvalidValue, match="the run has ended"):
            await started.steer("Too late.")
        with pytest.raises(InvalidValue, match="no run is under way"):
            await agent.steer("Too late.")

    run(use())


def test_another_model_goes_on_in_the_middle_of_the_conversation() -> None:
    first, second = ScriptedModel(ROME, "Rain."), ScriptedModel("As I said: rain.", invocation=OTHER)
    agent = Agent(first, tools=[weather])
    agent.run_sync("The weather in Rome?")
    agent.use(second)
    result = agent.run_sync("Say it again.")
    assert result.message is not None
    assert result.message.meta is not None
    assert result.message.meta.invocation == OTHER
    assert [message.text for message in second.requests[0].messages if message.role is Role.ASSISTANT][-1] == "Rain."


def test_the_instructions_of_the_agent_are_in_force_from_its_first_run_on() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), system_instruction="Be long.")
        model = ScriptedModel("Hm.", "Hm.")
        agent = Agent(model, session=session, instructions="Be brief.")
        await agent.run("Hi.")
        await agent.run("Hi.")
        assert [request.system for request in model.requests] == ["Be brief."] * 2
        assert kinds(agent).count("system_instruction") == 2

    run(use())


def test_what_was_said_in_between_is_not_lost_when_the_store_fails() -> None:
    async def use() -> None:
        @tool
        async def look() -> str:
            await agent.steer("Look closer.")
            store.refuses = lambda entries: any(entry.kind == "model_input" for entry in entries)
            return "A dot."

        store = FailingStore()
        model = ScriptedModel(asks(Call("look")), "A ship.")
        agent = Agent(model, tools=[look], session=await start_session(store))
        assert (await agent.run("What is it?")).status is AgentStatus.FAILED
        store.refuses = lambda entries: False
        assert (await agent.run()).output == "A ship."
        assert model.requests[1].messages[-1].text == "Look closer."

    run(use())


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limits", "said", "calls"),
    [
        (LoopConfig(max_iterations=2), "2 model calls", 2),
        (LoopConfig(max_tool_rounds=1), "1 rounds of tools", 2),
        (LoopConfig(max_tokens=40), "40 tokens, 45 are used", 3),
        (LoopConfig(max_cost=0.5), "0.5 dollars, 0.6000 are spent", 2),
        (LoopConfig(max_seconds=0.0), "0.0 seconds", 0),
    ],
)
def test_a_limit_ends_the_run_with_a_history_that_goes_on(limits: LoopConfig, said: str, calls: int) -> None:
    usage = TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15, cost=0.3)
    turn = Turn(calls=(Call("weather", {"city": "Rome"}),), usage=usage)
    model = ScriptedModel(turn, repeats=True)
    agent = Agent(model, tools=[weather], config=AgentConfig(loop=limits))
    result = agent.run_sync("Go on for ever.")
    assert (result.status, len(model.requests)) == (AgentStatus.FAILED, calls)
    assert result.error is not None
    assert result.error.code is ErrorCode.LIMIT_REACHED
    assert said in result.error.message
    require_sound(kept(agent))


def test_the_time_of_a_run_ends_it_in_the_middle_of_a_tool() -> None:
    async def use() -> None:
        @tool
        async def wait() -> None:
            """Wait for ever."""
            await asyncio.Event().wait()

        agent = Agent(
            ScriptedModel(asks(Call("wait"))), tools=[wait], config=AgentConfig(loop=LoopConfig(max_seconds=0.05))
        )
        result = await agent.run("Wait.")
        assert result.error is not None
        assert result.error.code is ErrorCode.LIMIT_REACHED
        assert result_codes(kept(agent)) == [ErrorCode.TOOL_INTERRUPTED]
        require_sound(kept(agent))

    run(use())


# ---------------------------------------------------------------- settings of the model, compaction


def test_settings_of_the_model_go_over_its_own() -> None:
    model = ScriptedModel("Hi.")
    config = AgentConfig(model=ModelConfig("actor", temperature=0.5, max_tokens=9))
    Agent(model, config=config).run_sync("Hi.")
    params = model.requests[0].params
    assert (params["temperature"], params["max_tokens"], "model_id" in params) == (0.5, 9, False)


def test_settings_for_a_model_that_the_agent_never_asks_are_refused() -> None:
    config = AgentConfig(model=ModelConfig("gpt-9", temperature=0.5))
    with pytest.raises(InvalidValue, match="for the model 'gpt-9', but the agent asks actor"):
        Agent(ScriptedModel("Hi."), config=config)
    other = ScriptedModel("Hi.", invocation=ModelInvocationDescriptor("scripted", "script", "gpt-9"))
    agent = Agent(other, config=config)
    with pytest.raises(InvalidValue, match="gpt-9"):
        agent.use(ScriptedModel("Hi."))


def test_settings_go_over_those_of_the_model_that_they_name_alone() -> None:
    first = ScriptedModel(ModelError("busy", code=ErrorCode.OVERLOADED))
    second = ScriptedModel("Hi.", invocation=ModelInvocationDescriptor("scripted", "script", "second"))
    config = AgentConfig(model=ModelConfig("second", temperature=0.5))
    Agent(ProviderRouter(default=[first, second]), config=config).run_sync("Hi.")
    assert [each.requests[0].params.get("temperature") for each in (first, second)] == [None, 0.5]


def test_the_built_in_tools_can_be_turned_off() -> None:
    model = ScriptedModel("Hi.", "Hi.", repeats=True)
    Agent(model, config=AgentConfig(tools=ToolsConfig(notebook=True))).run_sync("Hi.")
    offered = {spec.name for spec in model.requests[0].tools}
    off = ("recall", "memory_notebook_replace")
    assert "memory_notebook_replace" in offered
    agent = Agent(
        model,
        config=AgentConfig(tools=ToolsConfig(notebook=True, disabled=off), context=ContextConfig(budget_tokens=2_000)),
    )
    for _ in range(12):
        agent.run_sync("word " * 300)
    assert "epoch" in kinds(agent)
    left = [{spec.name for spec in request.tools} for request in model.requests[1:]]
    assert all(names == offered - set(off) for names in left)
    with pytest.raises(InvalidValue, match="not there: recal"):
        Agent(model, config=AgentConfig(tools=ToolsConfig(disabled=("recal",))))


def test_a_compactor_has_the_model_summarise_what_is_folded() -> None:
    def answer(request: ScriptedRequest) -> Turn:  # without usage, by which token counts would be corrected
        return Turn(text="SUMMARY: much." if request.params.get("max_tokens") == 300 else "Hm.", usage=None)

    model = ScriptedModel(answer, repeats=True)
    agent = Agent(
        model,
        compactor=ModelCompactor(max_tokens=300),
        config=AgentConfig(context=ContextConfig(budget_tokens=2_000)),
    )
    for number in range(8):
        agent.run_sync(f"{number}: " + "many words, " * 110)
    summaries = [entry for entry in kept(agent).entries if isinstance(entry, CompactionEntry)]
    assert summaries
    assert summaries[0].summary == "SUMMARY: much."
    assert any("SUMMARY" in message.text for message in model.requests[-1].messages)
    require_sound(kept(agent))


def test_the_diagram_of_the_document_is_the_table_of_the_loop() -> None:
    document = (Path(__file__).parents[1] / "docs" / "agent.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", document, re.MULTILINE))
    assert drawn == {(str(status), str(to)) for status, followers in TRANSITIONS.items() for to in followers}


def test_what_is_said_to_an_open_run_keeps_its_levels_of_detail_and_metadata() -> None:
    async def use() -> None:
        levels = LevelOfDetailSections((Section("", "All of it."),), (Section("", "Some."),), (Section("", "It."),))
        session = await start_session(MemoryStore())
        await session.append(RunStartedEntry(run_id="r"))
        said = ModelInputEntry.of("All of it.", sections=levels, metadata={"channel": "web"})
        agent = Agent(ScriptedModel("Fine."), session=session)
        assert (await agent.run(said)).run_id == "r"
        steering, recorded = session.entries[1:3]
        assert isinstance(steering, SteeringEntry)
        assert entry_from_json(entry_to_json(steering)) == steering
        assert isinstance(recorded, ModelInputEntry)
        assert (recorded.sections, dict(recorded.metadata)) == (levels, {"channel": "web"})
        assert recorded.steering_serial == steering.serial

    run(use())


def test_steering_a_run_that_never_begins_is_refused() -> None:
    async def use() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        async with (await open_session(store, "s")).hold():
            under_way = Agent(ScriptedModel("Hm."), session=session).stream("Hi.")
            with pytest.raises(InvalidValue, match="the run has ended"):
                await under_way.steer("And hurry.")
            with pytest.raises(SessionBusy):
                await under_way.result()

    run(use())


@pytest.mark.parametrize(
    "given",
    [
        {"hooks": [5]},
        {"hooks": 5},
        {"approval": "yes"},
        {"compactor": 5},
        {"output_type": "str"},
        {"name": 5},
        {"instructions": 5},
    ],
    ids=str,
)
def test_an_agent_refuses_at_once_what_it_could_not_use(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(given))):
        Agent(ScriptedModel("Hi."), **given)


@pytest.mark.parametrize(
    "given",
    [{"wait_seconds": each} for each in ("3", None, float("nan"), -1, True)]
    + [{"strategy": each} for each in (5, None, ["a"])],
    ids=str,
)
def test_a_run_refuses_at_once_what_it_could_not_use(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(given))):
        Agent(ScriptedModel("Hi.")).run_sync("Hi.", **given)
