"""Agent: the tools of a run, the runtime they get, and calls or options that are refused."""

import asyncio
import threading
from typing import Annotated, Any, Protocol, get_args

import pytest

from dragoman import AgentConfig, AgentStatus, ContextConfig, ErrorCode, InvalidValue, ToolsConfig
from dragoman.agent import Agent
from dragoman.history import NotebookEntry
from dragoman.testing.scripted import Call, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import FunctionTool, ToolContext, tool
from tests.agent_cases import asks, kept, kinds, require_sound, result_codes, result_texts, run, weather

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


class Shelf(Protocol):
    """Something that Python cannot check."""

    books: int


@pytest.mark.parametrize(
    ("wanted", "runtime", "refusal"),
    [
        (ToolContext[str], "Ada", None),
        (ToolContext[str], 3, "needs a runtime of the type str, but the agent has one of int"),
        (ToolContext[str], None, "needs a runtime of the type str, but there is none"),
        (ToolContext[str | None], None, None),
        (ToolContext[str] | None, 3, "needs a runtime of the type str"),
        (Annotated[ToolContext[str], "where"], 3, "needs a runtime of the type str"),
        (ToolContext[Any], 3, None),
        (ToolContext, 3, None),
        (ToolContext[Shelf], 3, None),
        (ToolContext[list[int]], 3, None),
    ],
)
def test_a_runtime_must_be_of_the_type_that_a_tool_names_in_any_parameter(
    wanted: Any, runtime: Any, refusal: str | None
) -> None:
    def look(city: str, context: wanted) -> str:
        return city

    if refusal is None:
        Agent(ScriptedModel(), tools=[look], runtime=runtime)
    else:
        with pytest.raises(InvalidValue, match=refusal):
            Agent(ScriptedModel(), tools=[look], runtime=runtime)


def test_the_types_of_agents_can_be_written_with_one_parameter_or_two() -> None:
    assert get_args(Agent[int]) == (int, str)
    assert get_args(Agent[int, float]) == (int, float)
    assert get_args(FunctionTool[[int], str]) == ((int,), str, Any)


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
    agent = Agent(model, config=AgentConfig(tools=ToolsConfig(notebook=True)))
    agent.run_sync("I am Ada and I like rain.")
    session = kept(agent)
    assert session.state.memory_notebook_snapshot == "Ada likes rain."
    assert [entry.content for entry in session.entries if isinstance(entry, NotebookEntry)] == ["Ada likes rain."]
    assert kinds(agent).count("tool_finished") == 1  # the change and its result are one
    agent.run_sync("I like no snow.")
    assert "Ada likes rain." in str(model.requests[2].messages[-1].parts)
    assert result_codes(session) == [None, ErrorCode.INVALID_ARGUMENTS]
    require_sound(session)


def test_a_plain_agent_sends_no_tools_and_shows_the_notebook_that_the_host_wrote() -> None:
    model = ScriptedModel("Hi.", "Rain.")
    agent = Agent(model)
    agent.run_sync("Hello.")
    run(kept(agent).update_memory_notebook("Ada likes rain."))
    agent.run_sync("What do I like?")
    assert [request.tools for request in model.requests] == [(), ()]
    assert "Ada likes rain." in model.requests[1].messages[-1].text


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
    offered = [bool(request.tools) for request in model.requests]
    assert offered == sorted(offered)  # once offered, it stays
    assert not offered[0]


def test_without_recall_there_is_no_such_tool() -> None:
    model = ScriptedModel(asks(Call("recall", {"entry": 0})), "Hm.")
    agent = Agent(model, config=AgentConfig(context=ContextConfig(recall=False)))
    agent.run_sync("Hi.")
    assert result_codes(kept(agent)) == [ErrorCode.UNKNOWN_TOOL]


# ---------------------------------------------------------------- bad input


def bad_call(*calls: Call, tools: Any = (weather,)) -> Agent:
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

    notebook = AgentConfig(tools=ToolsConfig(notebook=True))
    agent = Agent(ScriptedModel("Hi."), tools=[memory_notebook_append], config=notebook)
    with pytest.raises(InvalidValue, match="memory_notebook_append"):
        agent.run_sync("Hi.")


@pytest.mark.parametrize("model", [5, None, object()])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(InvalidValue):
        Agent(model)


def test_a_class_is_held_by_a_tool_of_an_aborted_run_until_it_has_ended() -> None:
    began, left, order = threading.Event(), threading.Event(), list[str]()

    @tool(concurrency="db")
    def migrate() -> str:
        """Change the database."""
        order.append("begin")
        began.set()
        left.wait(60)
        order.append("end")
        return "done"

    async def use() -> None:
        model = ScriptedModel(asks(Call("migrate", {})), asks(Call("migrate", {})), "Done.")
        agent = Agent(model, tools=[migrate])
        first = agent.stream("Go.")
        await asyncio.to_thread(began.wait, 60)
        assert (await first.abort()).status is AgentStatus.ABORTED
        second = asyncio.ensure_future(agent.run("Again."))
        while len(model.requests) < 2:  # noqa: ASYNC110  # the second call is about to begin
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        left.set()
        assert (await second).output == "Done."

    run(use())
    assert order == ["begin", "end", "begin", "end"]
