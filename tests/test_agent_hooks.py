"""Who may look in while an agent works, and agents that are the tools of others."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dragoman import (
    AgentConfig,
    AgentStatus,
    ErrorCode,
    InvalidValue,
    LoopConfig,
    Message,
    ModelError,
    ToolCall,
    ToolsConfig,
)
from dragoman.agent import Agent, Ending, Hooks, ModelCall
from dragoman.history import HistoryToolCallResult, ToolStartedEntry
from dragoman.stream import Assembly
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import ToolContext, tool
from dragoman.usage import TokenUsage
from tests.agent_cases import ROME, asks, kept, require_sound, result_codes, result_texts, run, weather


class Diary(Hooks):
    """Notes every hook, and raises where it is told to."""

    def __init__(self, raises: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self._raises = frozenset(raises)

    def note(self, hook: str, what: object = "") -> None:
        self.lines.append(f"{hook} {what}".strip())
        if hook in self._raises:
            raise RuntimeError(f"no {hook} today")

    async def before_run(self, session_id: str, run_id: str) -> None:
        self.note("before_run")

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        self.note("before_model", f"{call.call_index}/{call.attempt}")
        return None

    async def after_first_delta(self, call: ModelCall) -> None:
        self.note("after_first_delta", call.call_index)

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        self.note("after_model", assembly.finish_reason or (assembly.error and assembly.error.error_code))

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        self.note("before_tool", context.tool_name)

    async def after_tool(self, call: ToolCall, context: ToolContext[Any], result: HistoryToolCallResult) -> None:
        self.note("after_tool", result.status)

    async def after_run(self, session_id: str, run_id: str, ending: Ending) -> None:
        self.note("after_run", ending.status)


STORY = [
    "before_run",
    "before_model 0/0",
    "after_first_delta 0",
    "after_model tool_calls",
    "before_tool weather",
    "after_tool success",
    "before_model 1/0",
    "after_first_delta 1",
    "after_model stop",
    "after_run completed",
]


def test_hooks_are_called_before_and_after_everything() -> None:
    diary = Diary()
    Agent(ScriptedModel(ROME, "Rain."), tools=[weather], hooks=[diary]).run_sync("And?")
    assert diary.lines == STORY


@pytest.mark.parametrize("raising", [[line.split()[0]] for line in dict.fromkeys(STORY)] + [[*dir(Hooks)]])
def test_a_hook_that_raises_is_logged_and_changes_nothing(raising: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "dragoman"):
        diary, other = Diary(raising), Diary()
        agent = Agent(ScriptedModel(ROME, "Rain."), tools=[weather], hooks=[diary, other])
        assert agent.run_sync("And?").output == "Rain."
    assert diary.lines == other.lines == STORY
    assert "RuntimeError" in caplog.text
    assert not any(f"no {hook} today" in caplog.text for hook in raising)  # what it says may be anything
    require_sound(kept(agent))


def test_attempts_are_told_apart() -> None:
    diary = Diary()
    busy = ModelError("busy", code=ErrorCode.OVERLOADED)
    config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
    Agent(ScriptedModel(busy, "Rain."), hooks=[diary], config=config).run_sync("And?")
    assert diary.lines[1:5] == ["before_model 0/0", "after_first_delta 0", "after_model overloaded", "before_model 0/1"]


def test_a_hook_may_change_the_call() -> None:
    class Whisper(Hooks):
        async def before_model(self, call: ModelCall) -> ModelCall:
            said = (*call.messages, Message.user("Whisper."))
            return msgspec.structs.replace(call, messages=said, system="Be quiet.", params={"temperature": 0.1})

    model = ScriptedModel("Psst.")
    agent = Agent(model, hooks=[Whisper()], instructions="Be loud.")
    agent.run_sync("Hi.")
    (request,) = model.requests
    assert (request.messages[-1].text, request.system, request.params["temperature"]) == ("Whisper.", "Be quiet.", 0.1)
    assert [message.text for message in kept(agent).messages] == ["Hi.", "Psst."]  # the record is as it was


def test_each_hook_changes_what_the_one_before_has_made_of_the_call() -> None:
    class Warm(Hooks):
        async def before_model(self, call: ModelCall) -> ModelCall:
            return msgspec.structs.replace(call, params={**call.params, "temperature": 0.9})

    class Short(Hooks):
        async def before_model(self, call: ModelCall) -> ModelCall:
            return msgspec.structs.replace(call, params={**call.params, "max_tokens": 9})

    model = ScriptedModel("Hello.")
    Agent(model, hooks=[Warm(), Short()]).run_sync("Hi.")
    assert (model.requests[0].params["temperature"], model.requests[0].params["max_tokens"]) == (0.9, 9)


class Hanging(Hooks):
    """Never ends one of the hooks."""

    def __init__(self, name: str) -> None:
        self.reached = asyncio.Event()
        setattr(self, name, self._hang)

    async def _hang(self, *_given: Any) -> Any:
        self.reached.set()
        await asyncio.Event().wait()


HANGING = [name for name in vars(Hooks) if not name.startswith("_")]


@pytest.mark.parametrize("name", HANGING)
def test_a_hook_that_hangs_does_not_outlive_the_time_of_its_run(name: str) -> None:
    async def use() -> None:
        config = AgentConfig(loop=LoopConfig(max_seconds=0.05))
        agent = Agent(ScriptedModel(ROME, "Take an umbrella."), tools=[weather], hooks=[Hanging(name)], config=config)
        result = await agent.run("Weather?")
        assert result.status is (AgentStatus.COMPLETED if name == "after_run" else AgentStatus.FAILED)
        assert await kept(agent).store.find_lease(kept(agent).session_id) is None
        require_sound(kept(agent))

    run(use())


@pytest.mark.parametrize("name", HANGING)
def test_a_run_whose_hook_hangs_can_be_aborted(name: str) -> None:
    async def use() -> None:
        hooks = Hanging(name)
        agent = Agent(ScriptedModel(ROME, "Take an umbrella."), tools=[weather], hooks=[hooks])
        started = agent.stream("Weather?")
        await hooks.reached.wait()
        await agent.abort()
        assert started.is_done
        assert (await started.result()).status is (
            AgentStatus.COMPLETED if name == "after_run" else AgentStatus.ABORTED
        )
        started_tools = [entry for entry in kept(agent).entries if isinstance(entry, ToolStartedEntry)]
        assert not (name == "before_tool" and started_tools)
        require_sound(kept(agent))
        again = Agent(ScriptedModel(ROME, "Rain."), tools=[weather], session=kept(agent))
        agent.use(ScriptedModel(ROME, "Rain."))
        setattr(hooks, name, getattr(Hooks(), name))
        for each in (agent, again):
            assert (await each.run("And now?")).output == "Rain."

    run(use())


def test_a_stopped_run_tells_its_hooks_that_it_ended() -> None:
    async def use() -> None:
        waits = asyncio.Event()

        @tool
        async def wait() -> None:
            """Wait."""
            waits.set()
            await asyncio.Event().wait()

        diary = Diary()
        started = Agent(ScriptedModel(asks(Call("wait"))), tools=[wait], hooks=[diary]).stream("Wait.")
        await waits.wait()
        await started.abort()
        assert (diary.lines[-2:]) == ["before_tool wait", "after_run aborted"]

    run(use())


class Returning(Hooks):
    """Returns what it is told to before each model call."""

    def __init__(self, value: Any) -> None:
        self._value = value

    async def before_model(self, call: ModelCall) -> Any:
        return self._value(call) if callable(self._value) else self._value


@pytest.mark.parametrize(
    ("value", "said"), [({"params": {"temperature": 0}}, "a dict"), (5, "5"), ("x", "a str"), (False, "False")]
)
def test_a_hook_that_returns_something_else_than_a_call_fails_the_run_by_its_name(value: Any, said: str) -> None:
    model = ScriptedModel("Hi.")
    result = Agent(model, hooks=[Returning(value)]).run_sync("Hello.")
    assert result.error is not None
    assert (result.error.code, model.requests) == (ErrorCode.INVALID_REQUEST, [])
    assert result.error.message == (
        f"what the hook Returning.before_model returns must be a ModelCall or None, got {said}"
    )


@pytest.mark.parametrize("field", ["messages", "tools", "cache_anchors", "params", "system"])
def test_a_hook_cannot_make_a_call_of_wrong_types(field: str) -> None:
    hook = Returning(lambda call: msgspec.structs.replace(call, **{field: None}))
    result = Agent(ScriptedModel("Hi."), hooks=[hook]).run_sync("Hello.")
    assert result.output == "Hi."
    assert [(raised.where, raised.error_type) for raised in result.raised] == [
        ("the hook Returning.before_model", "dragoman.errors.InvalidValue")
    ]


# ---------------------------------------------------------------- agents as tools


def expert(*script: Any, **options: Any) -> Any:
    """Return an agent, as a tool, that plays a script."""
    return Agent(ScriptedModel(*script), **options).as_tool("expert", "Ask the expert.")


ASK = asks(Call("expert", {"task": "Is it raining?"}))


def test_an_agent_gives_another_one_a_task() -> None:
    inner = ScriptedModel(ROME, "It rains.")
    tools = [Agent(inner, tools=[weather], instructions="You know.").as_tool("expert", "Ask the expert.")]
    outer = Agent(ScriptedModel(ASK, ASK, "Take an umbrella."), tools=tools)
    inner.script += [ROME, "It still rains."]
    result = outer.run_sync("Do I need an umbrella?")
    assert result.output == "Take an umbrella."
    assert result_texts(kept(outer)) == ["It rains.", "It still rains."]
    assert [message.text for message in inner.requests[2].messages] == ["Is it raining?"]  # each task stands alone
    require_sound(kept(outer))


def test_what_the_other_one_uses_counts_for_the_one_that_asked() -> None:
    outer = Agent(ScriptedModel(ASK, "Yes."), tools=[expert(ROME, "Yes.", tools=[weather])])
    result = outer.run_sync("Is it raining?")
    assert result.usage == TokenUsage(input_tokens=40, output_tokens=20, total_tokens=60)


@pytest.mark.parametrize(
    ("limits", "calls"),
    [(LoopConfig(max_iterations=3), 3), (LoopConfig(max_tokens=40), 3), (LoopConfig(max_tool_rounds=2), 3)],
)
def test_the_limits_of_the_one_that_asked_hold_for_the_other(limits: LoopConfig, calls: int) -> None:
    inner = ScriptedModel(ROME, repeats=True)
    outer_model = ScriptedModel(ASK, repeats=True)
    tools = [Agent(inner, tools=[weather]).as_tool("expert", "Ask the expert.")]
    outer = Agent(outer_model, tools=tools, config=AgentConfig(loop=limits))
    result = outer.run_sync("Is it raining?")
    assert result.error is not None
    assert result.error.code is ErrorCode.LIMIT_REACHED
    assert len(inner.requests) + len(outer_model.requests) <= calls + 1
    require_sound(kept(outer))


def test_the_limits_of_the_other_one_hold_for_itself_alone() -> None:
    bounded = AgentConfig(loop=LoopConfig(max_iterations=1))
    outer = Agent(ScriptedModel(ASK, "I do not know."), tools=[expert(ROME, tools=[weather], config=bounded)])
    assert outer.run_sync("Is it raining?").output == "I do not know."
    assert result_codes(kept(outer)) == [ErrorCode.TOOL_FAILED]
    assert "a run may make 1 model calls" in result_texts(kept(outer))[0]


def test_several_tasks_run_side_by_side() -> None:
    async def use() -> None:
        meeting = asyncio.Barrier(2)

        async def meet(number: int) -> None:
            if number == 0:
                await meeting.wait()

        inner = ScriptedModel("Yes.", "No.", between=meet)
        both = asks(Call("expert", {"task": "Rome?"}), Call("expert", {"task": "Oslo?"}))
        outer = Agent(ScriptedModel(both, "One of them."), tools=[Agent(inner).as_tool("expert", "Ask.")])
        assert (await outer.run("Where does it rain?")).output == "One of them."
        assert sorted(result_texts(kept(outer))) == ["No.", "Yes."]

    run(use())


def test_a_typed_output_is_told_as_json() -> None:
    @dataclass
    class Day:
        sky: str

    tools = [Agent(ScriptedModel('{"sky": "grey"}'), output_type=Day).as_tool("expert", "Ask the expert.")]
    outer = Agent(ScriptedModel(ASK, "Grey."), tools=tools)
    outer.run_sync("And?")
    assert result_texts(kept(outer)) == ['{"sky":"grey"}']


def test_a_task_that_fails_is_told_to_the_model() -> None:
    broken = ModelError("no such key", code=ErrorCode.AUTHENTICATION)
    outer = Agent(ScriptedModel(ASK, "I do not know."), tools=[expert(broken)])
    assert outer.run_sync("Is it raining?").output == "I do not know."
    assert result_codes(kept(outer)) == [ErrorCode.TOOL_FAILED]


def test_an_abort_reaches_the_agents_inside() -> None:
    async def use() -> None:
        waits, stopped = asyncio.Event(), asyncio.Event()

        async def wait(number: int) -> None:
            waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        outer = Agent(ScriptedModel(ASK), tools=[Agent(ScriptedModel("Yes.", between=wait)).as_tool("expert", "Ask.")])
        started = outer.stream("Is it raining?")
        await waits.wait()
        assert (await started.abort()).status is AgentStatus.ABORTED
        assert stopped.is_set()
        require_sound(kept(outer))

    run(use())


def test_an_agent_as_a_tool_wants_a_task() -> None:
    outer = Agent(ScriptedModel(asks(Call("expert", {"question": "?"})), "I see."), tools=[expert("Yes.")])
    assert outer.run_sync("Is it raining?").output == "I see."
    assert result_codes(kept(outer)) == [ErrorCode.INVALID_ARGUMENTS]


def test_an_agent_as_a_tool_needs_a_name() -> None:
    with pytest.raises(InvalidValue):
        Agent(ScriptedModel("Yes.")).as_tool("", "Ask.")


def test_usage_that_nobody_reports_is_counted_as_none() -> None:
    result = Agent(ScriptedModel(Turn(text="Hi.", usage=None))).run_sync("Hi.")
    assert result.usage == TokenUsage()


def test_an_agent_as_a_tool_is_not_cut_by_the_timeout_of_the_other_tools() -> None:
    async def outlast(number: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.02
        while loop.time() < end:  # noqa: ASYNC110  # the timeout of other tools passes meanwhile
            await asyncio.sleep(0)

    tools = [Agent(ScriptedModel("It rains.", between=outlast)).as_tool("expert", "Ask.")]
    config = AgentConfig(tools=ToolsConfig(timeout_ms=1))
    outer = Agent(ScriptedModel(ASK, "I see."), tools=tools, config=config)
    outer.run_sync("Is it raining?")
    assert result_texts(kept(outer)) == ["It rains."]


def test_the_model_is_told_that_an_agent_that_was_cut_may_have_taken_effect() -> None:
    async def hang(number: int) -> None:
        await asyncio.Event().wait()

    tools = [Agent(ScriptedModel("It rains.", between=hang)).as_tool("expert", "Ask.", timeout_ms=1)]
    outer = Agent(ScriptedModel(ASK, "I see."), tools=tools)
    outer.run_sync("Is it raining?")
    assert result_codes(kept(outer)) == [ErrorCode.TOOL_TIMEOUT]
    (text,) = result_texts(kept(outer))
    assert text == "expert did not end within 0.001 seconds. It was cancelled: it may or may not have taken effect."


@pytest.mark.parametrize("has_acted", [True, False])
def test_the_model_is_told_if_an_agent_that_failed_had_run_tools(has_acted: bool) -> None:
    gone = ModelError("gone", code=ErrorCode.NOT_FOUND)
    script = [ROME, gone] if has_acted else [gone]
    outer = Agent(ScriptedModel(ASK, "I see."), tools=[expert(*script, tools=[weather])])
    outer.run_sync("Is it raining?")
    (text,) = result_texts(kept(outer))
    assert text.startswith("expert did not finish: gone")
    assert ("may have taken effect" in text) is has_acted
