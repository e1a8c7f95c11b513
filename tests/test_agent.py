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
    NotebookEntry,
    RunStartedEntry,
    Section,
    SteeringEntry,
    entry_from_json,
    entry_to_json,
)
from dragoman.message import ModelInvocationDescriptor
from dragoman.store import MemoryStore, open_session, start_session
from dragoman.testing.scripted import Call, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import ToolContext, tool
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
        with pytest.raises(SessionBusy):
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


# ---------------------------------------------------------------- tools


def test_settings_turn_tools_on_and_off() -> None:
    @tool
    def knock() -> str:
        """Knock."""
        return "knock"

    for tools in (ToolsConfig(enabled=("weather",)), ToolsConfig(disabled=("knock",))):
        model = ScriptedModel(asks(Call("knock")), "Hm.")
        agent = Agent(model, tools=[weather, knock], config=AgentConfig(tools=tools))
        agent.run_sync("Knock.")
        offered = {spec.name for spec in model.requests[0].tools}
        assert ("weather" in offered, "knock" in offered) == (True, False)
        assert result_codes(kept(agent)) == [ErrorCode.UNKNOWN_TOOL]


def test_settings_that_name_an_unknown_tool_are_refused() -> None:
    with pytest.raises(InvalidValue, match="wether"):
        Agent(ScriptedModel(), tools=[weather], config=AgentConfig(tools=ToolsConfig(enabled=("wether",))))


class Desk:
    """What the tools of an office work on."""

    def __init__(self) -> None:
        self.notes: list[str] = []


@tool(requires_runtime=True)
def note(text: str, context: ToolContext[Desk]) -> int:
    """Note something."""
    context.runtime.notes.append(f"{context.tool_name}: {text}")
    return len(context.runtime.notes)


def test_tools_get_the_runtime_and_no_model_sees_it() -> None:
    desk = Desk()
    model = ScriptedModel(asks(Call("note", {"text": "rain"})), "Noted.")
    agent = Agent(model, tools=[note], runtime=desk)
    assert agent.run_sync("Note the rain.").output == "Noted."
    assert (desk.notes, result_texts(kept(agent))) == (["note: rain"], ["1"])
    (spec,) = [spec for spec in model.requests[0].tools if spec.name == "note"]
    assert list(spec.parameter_schema["properties"]) == ["text"]


def test_a_tool_that_cannot_do_without_a_runtime_is_refused_without_one() -> None:
    with pytest.raises(InvalidValue, match="a runtime must be given: note"):
        Agent(ScriptedModel(), tools=[note])


def test_the_calls_of_one_answer_run_side_by_side_and_keep_their_order() -> None:
    async def use() -> None:
        both = asyncio.Barrier(2)

        @tool
        async def meet(name: str) -> str:
            await both.wait()
            return name

        model = ScriptedModel(asks(Call("meet", {"name": "Ada"}), Call("meet", {"name": "Bob"})), "They met.")
        agent = Agent(model, tools=[meet])
        assert (await agent.run("Meet.")).output == "They met."
        assert result_texts(kept(agent)) == ["Ada", "Bob"]

    run(use())


def test_the_notebook_is_changed_through_a_run_and_stays_in_sight() -> None:
    model = ScriptedModel(
        asks(Call("memory_notebook_append", {"text": "Ada likes rain."})),
        "Noted.",
        asks(Call("memory_notebook_replace_text", {"old": "snow", "new": "sun"})),
        "There is no snow in it.",
    )
    agent = Agent(model)
    agent.run_sync("I am Ada and I like rain.")
    session = kept(agent)
    assert session.state.memory_notebook_snapshot == "Ada likes rain."
    assert [entry.content for entry in session.entries if isinstance(entry, NotebookEntry)] == ["Ada likes rain."]
    assert kinds(agent).count("tool_finished") == 1  # the change and its result are one
    agent.run_sync("I like no snow.")
    assert "Ada likes rain." in str(model.requests[2].messages[-1].parts)
    assert result_codes(session) == [None, ErrorCode.INVALID_ARGUMENTS]
    require_sound(session)


def test_a_folded_entry_is_brought_back_by_recall() -> None:
    def recall_it(request: ScriptedRequest) -> Turn:
        assert "recall" in [spec.name for spec in request.tools]
        assert not any("The password is swordfish." in message.text for message in request.messages)
        return asks(Call("recall", {"entry": 1}))

    words = "Many words about nothing at all, again and again. " * 120
    model = ScriptedModel("Noted.", *["Hm."] * 6, recall_it, "It is swordfish.")
    agent = Agent(model, config=AgentConfig(context=ContextConfig(budget_tokens=3_000)))
    agent.run_sync(f"{words}The password is swordfish. {words}")
    for number in range(6):
        agent.run_sync(f"{number}: {words}")
    assert agent.run_sync("What was the password?").output == "It is swordfish."
    assert "The password is swordfish." in result_texts(kept(agent))[0]


def test_without_recall_there_is_no_such_tool() -> None:
    model = ScriptedModel(asks(Call("recall", {"entry": 0})), "Hm.")
    agent = Agent(model, config=AgentConfig(context=ContextConfig(recall=False)))
    agent.run_sync("Hi.")
    assert result_codes(kept(agent)) == [ErrorCode.UNKNOWN_TOOL]


# ---------------------------------------------------------------- bad input


def bad_call(*calls: Call, tools: Any = (weather,)) -> Agent[str]:
    """Return an agent whose model made these calls, was told what was wrong, and went on."""
    agent = Agent(ScriptedModel(asks(*calls), "I see."), tools=tools)
    assert agent.run_sync("Do it.").output == "I see."
    require_sound(kept(agent))
    return agent


def test_a_model_that_calls_an_unknown_tool_is_told_which_there_are() -> None:
    agent = bad_call(Call("wheather", {"city": "Rome"}), Call("weather", {"city": "Rome"}))
    assert result_codes(kept(agent)) == [ErrorCode.UNKNOWN_TOOL, None]
    assert "Did you mean 'weather'?" in result_texts(kept(agent))[0]


def test_arguments_against_the_schema_are_told_and_nothing_runs() -> None:
    agent = bad_call(Call("weather", {"town": "Rome"}))
    assert result_codes(kept(agent)) == [ErrorCode.INVALID_ARGUMENTS]
    assert "city: is missing" in result_texts(kept(agent))[0]
    assert "tool_started" not in kinds(agent)


def test_arguments_that_did_not_parse_are_told_and_nothing_runs() -> None:
    agent = bad_call(Call("weather", '{"city": Rome}'))
    assert result_codes(kept(agent)) == [ErrorCode.INVALID_ARGUMENTS]
    assert "could not be read" in result_texts(kept(agent))[0]
    assert "tool_started" not in kinds(agent)


def test_a_tool_that_returns_what_cannot_be_told_has_failed() -> None:
    @tool
    def lock() -> Any:
        """Return a lock."""
        return threading.Lock()

    agent = bad_call(Call("lock"), tools=[lock])
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_FAILED]
    assert "lock" in result_texts(kept(agent))[0]


def test_a_tool_that_raises_has_failed_and_the_run_goes_on() -> None:
    @tool
    def divide() -> float:
        """Divide."""
        return 1 / 0

    agent = bad_call(Call("divide"), tools=[divide])
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_FAILED]
    assert "ZeroDivisionError" in result_texts(kept(agent))[0]


def test_two_tools_of_one_name_are_refused() -> None:
    @tool(name="weather")
    def other() -> None:
        """Do something else."""

    with pytest.raises(InvalidValue, match="two tools are called 'weather'"):
        Agent(ScriptedModel(), tools=[weather, other])


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ({"config": {"loop": {}}}, "config must be an AgentConfig, got a dict"),
        ({"config": {}}, "config must be an AgentConfig, got a dict"),
        ({"session": "x"}, "session must be a Session"),
        ({"tools": weather}, r"tools must be a list of tools, such as \[one_tool\]"),
        ({"tools": len}, "tools must be a list of tools"),
        ({"tools": "weather"}, "tools must be a list of tools"),
        ({"tools": {"weather": weather}}, "tools must be a list of tools"),
        ({"hooks": object()}, "hooks must be a list of Hooks"),
    ],
)
def test_an_option_of_another_kind_is_refused_with_the_kind_that_is_wanted(option: Any, wanted: str) -> None:
    with pytest.raises(InvalidValue, match=wanted):
        Agent(ScriptedModel(), **option)


def test_a_tool_with_the_name_of_a_widget_s_is_refused() -> None:
    @tool
    def memory_notebook_append(text: str) -> None:
        """Do something else."""

    with pytest.raises(InvalidValue, match="memory_notebook_append"):
        Agent(ScriptedModel("Hi."), tools=[memory_notebook_append]).run_sync("Hi.")


@pytest.mark.parametrize("model", [5, None, object()])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(InvalidValue):
        Agent(model)


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
    Agent(model).run_sync("Hi.")
    offered = {spec.name for spec in model.requests[0].tools}
    off = ("recall", "memory_notebook_replace")
    assert "memory_notebook_replace" in offered
    agent = Agent(
        model, config=AgentConfig(tools=ToolsConfig(disabled=off), context=ContextConfig(budget_tokens=2_000))
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
