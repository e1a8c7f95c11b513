"""Code of the user that raises: tools, hooks, widgets, policies, types. It ends in the run's result and in the log."""

import asyncio
import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman import AgentConfig, ErrorCode, ObservabilityConfig, ToolError, ToolSpec
from dragoman.agent import Agent, ApprovalRequest, Hooks, ModelCall, Raised, RunFailed, RunResult
from dragoman.history import (
    AgentStatus,
    HistoryToolCallResult,
    ToolFinishedEntry,
    WidgetRenderContext,
    WidgetResult,
    entry_from_json,
    entry_to_json,
)
from dragoman.router import LlmRequest, ProviderRouter
from dragoman.store import MemoryStore, start_session
from dragoman.testing import ScriptedModel
from dragoman.testing.scripted import Call
from dragoman.tools import tool
from tests.agent_cases import ROME, Gate, asks, kept, kinds, require_sound, result_codes, result_texts, run, weather

SECRET = "sk-live-0123456789abcdefghij"


class Abrupt(BaseException):
    """Not even an Exception."""


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise OSError


RUDE = [
    KeyError,
    Abrupt,
    Mute,
    StopIteration,
    StopAsyncIteration,
    RecursionError,
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
]
rude = pytest.mark.parametrize("error", RUDE)


def name_of(error: type[BaseException]) -> str:
    """Return the type as a result names it."""
    return error.__qualname__ if error.__module__ == "builtins" else f"{error.__module__}.{error.__qualname__}"


def require_told(
    result: RunResult[Any], where: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """The result names it once, and the log has its traceback."""
    assert Raised(where, name_of(error)) in result.raised
    records = [record for record in caplog.records if record.getMessage().startswith(f"{where} raised ")]
    assert records
    assert all(record.levelno == logging.ERROR for record in records)
    assert all("test_agent_raised.py" in record.getMessage() for record in records)


# ---------------------------------------------------------------- tools


def broken(error: BaseException, *, is_async: bool) -> Any:
    """Return a tool that raises."""

    def fail(city: str) -> str:
        """Fail."""
        private = SECRET  # noqa: F841  # what a log must not show
        raise error

    async def fail_later(city: str) -> str:
        """Fail."""
        await asyncio.sleep(0)
        return fail(city)

    return tool(fail_later if is_async else fail, name="weather")


@rude
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
def test_a_tool_may_raise_anything(
    error: type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(ScriptedModel(ROME, "I do not know."), tools=[broken(error(), is_async=is_async)])
    result = agent.run_sync("Rome?")
    assert (result.status, result.output) == (AgentStatus.COMPLETED, "I do not know.")
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_FAILED]
    if error is StopIteration and is_async:  # Python itself makes that of it
        error = RuntimeError
    require_told(result, "the tool 'weather'", error, caplog)
    (finished,) = [entry for entry in kept(agent).entries if isinstance(entry, ToolFinishedEntry)]
    assert finished.result.error_type == name_of(error)
    assert entry_from_json(entry_to_json(finished)) == finished
    require_sound(kept(agent))


def test_the_log_of_a_tool_that_raised_has_its_causes_and_neither_values_nor_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(name="weather")
    def look(city: str) -> str:
        """Look."""
        key = SECRET
        try:
            raise KeyError(key)
        except KeyError as error:
            raise OSError(f"{city} {key}") from error

    with caplog.at_level(logging.WARNING):
        Agent(ScriptedModel(ROME, "No."), tools=[look]).run_sync("Rome?")
    said = caplog.text
    assert "the tool 'weather' raised OSError" in said
    assert "after KeyError" in said
    assert "raise KeyError(key)" in said
    assert SECRET not in said
    assert "Rome " not in said


def test_what_a_tool_says_to_the_model_by_a_tool_error_is_no_mistake_of_its_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent(ScriptedModel(ROME, "No."), tools=[broken(ToolError("ask me tomorrow"), is_async=True)])
    result = agent.run_sync("Rome?")
    assert result.raised == ()
    assert "Traceback" not in caplog.text
    assert "raised" not in caplog.text
    (finished,) = [entry for entry in kept(agent).entries if isinstance(entry, ToolFinishedEntry)]
    assert finished.result.error_type == "dragoman.errors.ToolError"


def test_a_success_has_no_error_type() -> None:
    with pytest.raises(ValueError, match="no error type"):
        HistoryToolCallResult.of_text(_call(), "fine", error_type="OSError")


def _call() -> Any:
    from dragoman import ToolCall

    return ToolCall(tool_name="t", tool_call_id="c", raw_args_text="{}", arguments={})


def test_what_was_raised_in_a_run_inside_a_run_is_in_both_results() -> None:
    inner = Agent(ScriptedModel(ROME, "No."), tools=[broken(KeyError(), is_async=True)])
    outer = Agent(ScriptedModel(asks(Call("helper", {"task": "Rome?"})), "So."), tools=[inner.as_tool("helper", "H.")])
    assert outer.run_sync("Rome?").raised == (Raised("the tool 'weather'", "KeyError"),)
    assert outer.session is not None
    assert result_texts(kept(outer)) == ["No."]


# ---------------------------------------------------------------- hooks, policies, widgets, types


class Loud(Hooks):
    """A hook that raises at every point."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error

    async def _raise(self, *_: Any) -> Any:
        raise self._error()

    before_run = after_first_delta = after_model = before_tool = after_tool = after_run = before_model = _raise  # type: ignore[assignment]


@rude
def test_a_hook_may_raise_anything_at_every_point(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(ScriptedModel(ROME, "It rains."), tools=[weather], hooks=[Loud(error)])
    result = agent.run_sync("Rome?")
    assert (result.status, result.output) == (AgentStatus.COMPLETED, "It rains.")
    expected = RuntimeError if error is StopIteration else error
    for point in ("before_run", "before_model", "after_first_delta", "after_model", "before_tool", "after_tool"):
        require_told(result, f"the hook Loud.{point}", expected, caplog)
    require_told(result, "the hook Loud.after_run", expected, caplog)
    require_sound(kept(agent))


@rude
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_a_policy_may_raise_anything_and_a_person_is_asked(
    error: type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def decide(_request: ApprovalRequest) -> bool:
        raise error

    async def decide_later(_request: ApprovalRequest) -> bool:
        raise error

    agent = Agent(
        ScriptedModel(ROME), tools=[tool(weather.function, requires_approval=True)],
        approval=decide_later if is_async else decide,
    )  # fmt: skip
    result = agent.run_sync("Rome?")
    assert result.status is AgentStatus.AWAITING_HUMAN
    expected = RuntimeError if error is StopIteration and is_async else error
    require_told(result, "the approval policy", expected, caplog)


@rude
def test_a_function_that_says_whether_approval_is_needed_may_raise_anything(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def needs(_arguments: dict[str, Any], _context: Any) -> bool:
        raise error

    result = Agent(ScriptedModel(ROME), tools=[tool(weather.function, requires_approval=needs)]).run_sync("Rome?")
    assert result.status is AgentStatus.AWAITING_HUMAN
    require_told(result, "requires_approval of the tool 'weather'", error, caplog)


class Clock:
    """A widget that raises."""

    name = "clock"
    tools = (ToolSpec("wind", "Wind it."),)

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def render_live_screen(self, context: WidgetRenderContext) -> str | None:
        """Raise."""
        raise self._error

    def execute_tool(
        self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext
    ) -> WidgetResult:  # fmt: skip
        """Raise."""
        raise self._error


@rude
def test_a_widget_may_raise_anything(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> RunResult[str]:
        session = await start_session(MemoryStore(), widgets=[Clock(error)])
        result = await Agent(ScriptedModel(asks(Call("wind", {})), "So."), session=session).run("Wind it.")
        (finished,) = [entry for entry in session.entries if isinstance(entry, ToolFinishedEntry)]
        assert finished.result.error_type == name_of(error)
        require_sound(session)
        return result

    result = run(main())
    assert result.output == "So."
    assert result.raised.count(Raised("the widget 'clock'", name_of(error))) == 3  # two screens and a tool
    require_told(result, "the widget 'clock'", error, caplog)


@rude
def test_a_type_of_an_output_may_raise_anything(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Place:
        city: str

        def __post_init__(self) -> None:
            raise error

    result = Agent(ScriptedModel('{"city": "Rome"}', repeats=True), output_type=Place).run_sync("Where?")
    assert result.error is not None
    assert (result.status, result.error.code) == (AgentStatus.FAILED, ErrorCode.INVALID_OUTPUT)
    require_told(result, "a type of a tool's arguments or of an output", error, caplog)


def test_a_type_is_made_once_for_the_result() -> None:
    made = []

    @dataclass
    class Place:
        city: str

        def __post_init__(self) -> None:
            made.append(self)

    result = Agent(ScriptedModel('{"city": "Rome"}'), output_type=Place).run_sync("Where?")
    assert made == [result.output]
    assert result.output is made[0]


# ---------------------------------------------------------------- what fails the run


class Broken(ScriptedModel):
    """A model that raises when it is asked."""

    error: type[BaseException] = KeyError

    def stream(self, *_: Any, **__: Any) -> Any:
        """Raise."""
        raise self.error


class Torn(ScriptedModel):
    """A model that raises in the middle of its answer."""

    def __init__(self, error: type[BaseException]) -> None:
        async def fail(number: int) -> None:
            if number == 1:
                raise error

        super().__init__("It rains.", between=fail)


@rude
@pytest.mark.parametrize("place", ["asked", "streaming", "routing"])
def test_a_model_or_a_router_may_raise_anything_and_the_run_has_ended_in_the_record(
    place: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def choose(_request: LlmRequest) -> str:
        raise error

    model: Any = ProviderRouter(choose=choose) if place == "routing" else Torn(error)
    if place == "asked":
        model = Broken()
        model.error = error
    agent = Agent(model)
    result = agent.run_sync("Rome?")
    assert result.status is AgentStatus.FAILED
    assert result.error is not None
    assert kinds(agent)[-1] == "run_finished"
    require_sound(kept(agent))
    if error is not asyncio.CancelledError:
        assert result.error.code is ErrorCode.INTERNAL
        assert "test_agent_raised.py" in caplog.text
        assert result.raised
    agent.use(ScriptedModel("It rains."))
    assert agent.run_sync("And now?").output == "It rains."


@rude
def test_a_store_may_raise_anything_before_the_run(error: type[BaseException]) -> None:
    class Shaky(MemoryStore):
        is_broken = False

        async def _acquire_lease(self, *given: Any, **more: Any) -> Any:
            if self.is_broken:
                raise error
            return await super()._acquire_lease(*given, **more)

    async def main() -> None:
        store = Shaky()
        agent = Agent(ScriptedModel("Yes.", "No."), session=await start_session(store))
        await agent.run("Rome?")
        store.is_broken = True
        result = await agent.run("And now?")
        assert result.status is AgentStatus.FAILED
        assert result.error is not None
        assert result.error.code is ErrorCode.INTERNAL

    run(main())


# ---------------------------------------------------------------- what is not the code's own


@pytest.mark.parametrize("place", ["hook", "policy", "tool", "model"])
def test_a_cancellation_of_the_run_itself_goes_through(place: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        waits = asyncio.Event()

        async def wait(*_: Any) -> Any:
            waits.set()
            await asyncio.Event().wait()

        class Slow(Hooks):
            async def before_model(self, call: ModelCall) -> ModelCall | None:
                return await wait(call)  # type: ignore[no-any-return]

        @tool(name="weather", requires_approval=place == "policy")
        async def look(city: str) -> str:
            """Look."""
            return str(await wait(city) if place == "tool" else city)

        model = ScriptedModel(ROME, "Yes.", between=wait if place == "model" else None)
        hooks = [Slow()] if place == "hook" else []
        agent = Agent(model, tools=[look], hooks=hooks, approval=wait if place == "policy" else None)
        task = asyncio.ensure_future(agent.run("Rome?"))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kept(agent).state.status in (AgentStatus.ABORTED, AgentStatus.PREPARING, AgentStatus.TOOL_RUNNING)

    run(main())
    assert "raised" not in caplog.text


def test_an_event_loop_that_ends_in_the_middle_of_user_code_hears_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gates = []

    async def main() -> None:
        gate = Gate(0)
        gates.append(gate)
        agent = Agent(ScriptedModel("Yes.", between=gate))
        agent.stream("Rome?")
        await gate.reached.wait()

    asyncio.run(main())  # cancels what is left
    assert "raised" not in caplog.text


# ---------------------------------------------------------------- what the programmer gets to see


PRIVATE = "the patient is called Ada"


def shouts(*_: Any) -> Any:
    raise LookupError(f"{PRIVATE}, key {SECRET}")


class Router(ProviderRouter):
    """A router that raises."""

    def __init__(self) -> None:
        super().__init__(choose=shouts)


@pytest.mark.parametrize("place", ["instructions", "router", "policy"])
def test_the_exception_of_code_that_ended_a_run_is_the_cause_of_the_failure(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(
        Router() if place == "router" else ScriptedModel(ROME),
        instructions=shouts if place == "instructions" else None,
        tools=[tool(weather.function, requires_approval=True)],
        approval=shouts,
        hooks=[Loud(KeyError)],
    )
    result = agent.run_sync("Rome?")
    with pytest.raises(RunFailed) as caught:
        result.unwrap()
    assert isinstance(caught.value.__cause__, LookupError)
    assert not isinstance(caught.value.__cause__, KeyError)  # of the hook, which changes nothing
    assert PRIVATE in str(caught.value.__cause__)
    assert PRIVATE not in str(caught.value)
    assert PRIVATE not in caplog.text
    assert PRIVATE not in str(kept(agent).entries)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.__cause__, copied.result.cause) == (None, result.cause)


def test_a_store_that_raises_before_the_run_is_the_cause_too() -> None:
    class Shaky(MemoryStore):
        async def _acquire_lease(self, *_given: Any, **_more: Any) -> Any:
            shouts()

    async def main() -> None:
        agent = Agent(ScriptedModel("Yes."), session=await start_session(Shaky()))
        with pytest.raises(RunFailed, match="before the run") as caught:
            (await agent.run("Rome?")).unwrap()
        assert isinstance(caught.value.__cause__, LookupError)

    run(main())


def test_text_raises_with_the_cause() -> None:
    async def main() -> None:
        with pytest.raises(RunFailed) as caught:
            async for _ in Agent(ScriptedModel("Yes."), instructions=shouts).stream("Rome?").text():
                pass
        assert isinstance(caught.value.__cause__, LookupError)

    run(main())


def test_each_exception_is_with_the_result_while_it_is_in_memory() -> None:
    agent = Agent(ScriptedModel(ROME, "No."), tools=[broken(KeyError(PRIVATE), is_async=True)])
    result = agent.run_sync("Rome?")
    assert result.cause is None
    assert [str(raised.error) for raised in result.raised] == [repr(PRIVATE)]


def test_a_run_that_records_content_has_the_words_in_the_log_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    config = AgentConfig(observability=ObservabilityConfig(record_content=True))
    Agent(ScriptedModel("Yes."), instructions=shouts, config=config, hooks=[Loud(Mute)]).run_sync("Rome?")
    (record,) = [each for each in caplog.records if each.getMessage().startswith("the instructions raised")]
    assert f"the instructions raised LookupError: {PRIVATE}, key [redacted]" in record.getMessage()
    assert record.dragoman["error"] == f"{PRIVATE}, key [redacted]"  # type: ignore[attr-defined]
    assert SECRET not in caplog.text
