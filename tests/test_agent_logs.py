"""What a run tells the standard logging: which records, at which level, and what is never in them."""

import logging
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from dragoman import (
    AgentConfig,
    ErrorCode,
    FinishReason,
    InvalidValue,
    LoopConfig,
    ModelError,
    ObservabilityConfig,
    RetryTool,
    TokenUsage,
    ToolCall,
)
from dragoman.agent import Agent, Ending, ModelCall
from dragoman.agent.logs import CONTENT_LIMIT, LogHooks
from dragoman.history import AgentStatus, HistoryToolCallResult
from dragoman.message import ModelInvocationDescriptor
from dragoman.stream import Assembly
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import ToolContext, tool
from tests.agent_cases import ROME, Gate, run, weather

LOGGER = "dragoman.agent"
KEY = "sk-live-0123456789abcdefghij"
BUSY = ModelError("busy", code=ErrorCode.OVERLOADED, provider_message=f"our {KEY} is over its quota")


def told(level: str, **more: Any) -> AgentConfig:
    """Return settings under which a run logs from this level up, and does not wait between attempts."""
    observability = ObservabilityConfig(log_level=cast("Any", level), **more)
    return AgentConfig(observability=observability, loop=LoopConfig(backoff_seconds=0.0))


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return level and event of every record."""
    return [(record.levelname, fields(record)["event"]) for record in caplog.records if record.name == LOGGER]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record."""
    return cast("dict[str, Any]", record.__dict__["dragoman"])


def everything(caplog: pytest.LogCaptureFixture) -> str:
    """Return all that anybody can find in the records."""
    return "\n".join(f"{record.getMessage()} {record.__dict__!r}" for record in caplog.records)


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let the loggers pass everything: what is left out is the settings' doing."""
    with caplog.at_level(logging.DEBUG, logger="dragoman"):
        yield


# ---------------------------------------------------------------- what is told


def test_a_run_is_told_step_by_step(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(ROME, "It rains."), tools=[weather], config=told("debug")).run_sync("Rome?")
    assert events(caplog) == [
        ("DEBUG", "run started"),
        ("DEBUG", "model call started"),
        ("INFO", "model call answered"),
        ("DEBUG", "tool started"),
        ("INFO", "tool finished"),
        ("DEBUG", "model call started"),
        ("INFO", "model call answered"),
        ("INFO", "run ended"),
    ]


def test_what_goes_wrong_is_told_louder(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(ROME, BUSY, ModelError("no", code=ErrorCode.AUTHENTICATION))

    @tool(name="weather")
    def broken(city: str) -> str:
        """Fail."""
        raise OSError(city)

    Agent(model, tools=[broken], config=told("warning")).run_sync("Rome?")
    assert events(caplog) == [
        ("WARNING", "tool failed"),
        ("WARNING", "model call failed"),
        ("WARNING", "model call failed"),
        ("ERROR", "run failed"),
    ]
    codes = [fields(record)["error_code"] for record in caplog.records if record.name == LOGGER]
    assert codes == ["tool_failed", "overloaded", "authentication", "authentication"]


@pytest.mark.parametrize(("level", "count"), [("debug", 8), ("info", 4), ("warning", 0), ("error", 0), ("off", 0)])
def test_the_settings_say_from_which_level_on(level: str, count: int, caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(ROME, "It rains."), tools=[weather], config=told(level)).run_sync("Rome?")
    assert len(events(caplog)) == count


def test_off_is_off_for_failures_too(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(ModelError("no", code=ErrorCode.AUTHENTICATION)), config=told("off")).run_sync("Rome?")
    assert caplog.records == []


def test_by_default_a_good_run_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(ROME, "It rains."), tools=[weather]).run_sync("Rome?")
    assert caplog.records == []


def test_a_record_has_its_fields_apart_and_in_its_text(caplog: pytest.LogCaptureFixture) -> None:
    usage = TokenUsage(input_tokens=7, output_tokens=5, cache_read_tokens=3, cost=0.25)
    agent = Agent(ScriptedModel(Turn(text="Hello", usage=usage)), config=told("info"))
    result = agent.run_sync("Hi")
    record = next(record for record in caplog.records if fields(record)["event"] == "model call answered")
    found = fields(record)
    assert found.pop("seconds") >= 0
    assert found == {
        "event": "model call answered",
        "session_id": result.session_id,
        "run_id": result.run_id,
        "call_index": 0,
        "attempt": 0,
        "provider": "scripted",
        "model": "actor",
        "input_tokens": 7,
        "output_tokens": 5,
        "cache_read_tokens": 3,
        "cost": 0.25,
        "finish_reason": "stop",
    }
    assert f"run_id={result.run_id} call_index=0 attempt=0 provider=scripted model=actor" in record.getMessage()


def test_attempts_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(BUSY, BUSY, "Hello"), config=told("info")).run_sync("Hi")
    calls = [fields(record) for record in caplog.records if "call_index" in fields(record)]
    assert [(call["event"], call["call_index"], call["attempt"]) for call in calls] == [
        ("model call failed", 0, 0),
        ("model call failed", 0, 1),
        ("model call answered", 0, 2),
    ]


def test_an_aborted_run_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        gate = Gate(2)
        running = Agent(ScriptedModel("A long story", between=gate), config=told("info")).stream("Tell me")
        await gate.reached.wait()
        await running.abort()

    run(main())
    assert [fields(record).get("status") for record in caplog.records] == ["aborted"]


# ---------------------------------------------------------------- what is never told

SAID = {
    "prompt": "prompt-raspberry",
    "instructions": "instructions-blackberry",
    "answer": "answer-blueberry",
    "thinking": "thinking-cranberry",
    "argument": "argument-gooseberry",
    "result": "result-elderberry",
    "failure": "failure-mulberry",
    "output": "output-strawberry",
}


class Answer(msgspec.Struct):
    """What the agent is asked for and does not get."""

    number: int


def run_with_content(config: AgentConfig) -> None:
    """Have everything said that can be said, each with a key, in a good run and in bad ones."""
    said = {name: f"{words} {KEY}" for name, words in SAID.items()}

    @tool
    def look(where: str) -> str:
        """Return what is there."""
        return said["result"]

    @tool
    def fall(where: str) -> str:
        """Fail."""
        raise ValueError(said["failure"])

    calls = tuple(Call(name, {"where": said["argument"]}) for name in ("look", "fall", "nowhere"))
    model = ScriptedModel(Turn(thinking=said["thinking"], calls=calls), BUSY, said["answer"])
    Agent(model, tools=[look, fall], instructions=said["instructions"], config=config).run_sync(said["prompt"])
    Agent(ScriptedModel(said["output"], repeats=True), output_type=Answer, config=config).run_sync(said["prompt"])
    wrong = f'{{"number": "{said["output"]}"}}'
    Agent(ScriptedModel(wrong, repeats=True), output_type=Answer, config=config).run_sync(said["prompt"])


@pytest.mark.parametrize("name", SAID)
def test_by_default_no_record_holds_the(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run_with_content(told("debug"))
    assert len(caplog.records) > 10
    assert SAID[name] not in everything(caplog)


@pytest.mark.parametrize("with_content", [False, True])
def test_no_record_ever_holds_a_key(with_content: bool, caplog: pytest.LogCaptureFixture) -> None:
    run_with_content(told("debug", record_content=with_content))
    assert len(caplog.records) > 10
    assert KEY not in everything(caplog)


@pytest.mark.parametrize("name", ["answer", "argument", "result", "failure"])
def test_content_is_there_when_it_is_asked_for(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run_with_content(told("info", record_content=True))
    assert f"{SAID[name]} [redacted]" in everything(caplog)


def test_long_content_is_cut_and_a_key_at_the_cut_stays_hidden(caplog: pytest.LogCaptureFixture) -> None:
    text = "x" * (CONTENT_LIMIT - 12) + " " + KEY + " and so on"
    Agent(ScriptedModel(text), config=told("info", record_content=True)).run_sync("Hi")
    (found,) = [fields(record)["text"] for record in caplog.records if "text" in fields(record)]
    assert len(found) == CONTENT_LIMIT
    assert "sk-" not in found


def test_the_name_of_a_tool_cannot_fake_a_record(caplog: pytest.LogCaptureFixture) -> None:
    call = msgspec.structs.replace(CALL, tool_call_id="c\nERROR run failed: run_id=2 tool_name=x")
    run(LogHooks(ObservabilityConfig(log_level="debug")).before_tool(call, CONTEXT))
    (record,) = caplog.records
    assert len(record.getMessage().splitlines()) == 1
    assert "tool_call_id='c\\nERROR run failed: run_id=2 tool_name=x' tool_name=" in record.getMessage()


# ---------------------------------------------------------------- what it costs


MODEL_CALL = ModelCall(
    session_id="s",
    run_id="r",
    call_index=0,
    attempt=0,
    invocation=ModelInvocationDescriptor("p", "s", "m"),
    messages=(),
)
CALL = ToolCall(tool_name="look", tool_call_id="c", raw_args_text="{}", arguments={})
CONTEXT: ToolContext[Any] = ToolContext(session_id="s", run_id="r")


def test_a_call_takes_from_before_to_after(caplog: pytest.LogCaptureFixture) -> None:
    hooks = LogHooks(ObservabilityConfig(log_level="info"), clock=iter((10.0, 12.5)).__next__)

    async def main() -> None:
        await hooks.before_model(MODEL_CALL)
        await hooks.after_model(MODEL_CALL, Assembly())

    run(main())
    assert fields(caplog.records[0])["seconds"] == 2.5


@pytest.mark.parametrize("off_by", ["settings", "logger"])
def test_nothing_is_computed_for_a_record_that_nobody_takes(off_by: str, caplog: pytest.LogCaptureFixture) -> None:
    """What would have to be looked at is not even there."""
    quiet = off_by == "settings"
    hooks = LogHooks(
        ObservabilityConfig(log_level="off" if quiet else "debug", record_content=True), clock=iter(()).__next__
    )
    nothing = cast("Any", None)
    ok = HistoryToolCallResult.of_text(CALL, "")
    if not quiet:
        caplog.set_level(logging.CRITICAL, logger="dragoman")

    async def main() -> None:
        await hooks.before_run("s", "r")
        await hooks.before_model(nothing)
        await hooks.after_model(MODEL_CALL, cast("Assembly", Unread()))
        await hooks.before_tool(nothing, nothing)
        await hooks.after_tool(nothing, nothing, ok)
        await hooks.after_run("s", "r", Ending(AgentStatus.COMPLETED))

    run(main())
    assert caplog.records == []


class Unread(msgspec.Struct):
    """An assembly of which only how it ended may be looked at."""

    error: None = None
    finish_reason: FinishReason = FinishReason.STOP


def test_a_record_does_not_grow_with_the_history(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(ScriptedModel("The same again, at some length", repeats=True), config=told("info"))
    sizes = []
    for _ in range(100):
        agent.run_sync("And again, please, in as many words as you like")
        sizes.append(sum(len(record.getMessage()) for record in caplog.records))
        caplog.clear()
    assert sizes[-1] <= sizes[0] + 40  # numbers may have more digits


QUOTING = ModelError(
    "not_found (HTTP 404)", code=ErrorCode.NOT_FOUND, provider_message=f"no model for 'my diagnosis', key {KEY}"
)


def test_a_provider_that_quotes_the_prompt_in_its_error_does_not_bring_it_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = Agent(ScriptedModel(QUOTING), config=told("debug")).run_sync("my diagnosis")
    failed = [record for record in caplog.records if fields(record)["event"] in ("model call failed", "run failed")]
    assert [fields(record)["error_code"] for record in failed] == ["not_found", "not_found"]
    assert all("HTTP 404" in record.getMessage() for record in failed)
    assert "diagnosis" not in everything(caplog)
    assert result.error is not None
    assert result.error.provider_message == "no model for 'my diagnosis', key [redacted]"


def test_with_content_the_records_of_a_failure_have_what_the_provider_said(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedModel(QUOTING), config=told("warning", record_content=True)).run_sync("Hi")
    said = [(fields(record)["event"], fields(record)["provider_message"]) for record in caplog.records]
    words = "no model for 'my diagnosis', key [redacted]"
    assert said == [(event, words) for event in ("model call failed", "run failed")]


OF_RUN = {"event", "session_id", "run_id"}
OF_CALL = OF_RUN | {"call_index", "attempt", "provider", "model"}
OF_TOOL = OF_RUN | {"tool_call_id", "tool_name"}
FIELDS = {
    "run started": OF_RUN,
    "model call started": OF_CALL | {"messages", "tools"},
    "model call answered": OF_CALL | {"seconds", "finish_reason"},
    "model call failed": OF_CALL | {"seconds", "error_code", "error"},
    "tool started": OF_TOOL,
    "tool finished": OF_TOOL | {"status", "seconds"},
    "tool failed": OF_TOOL | {"status", "seconds", "error_code", "error_type"},
    "run ended": OF_RUN | {"status"},
    "run failed": OF_RUN | {"status", "error_code", "error"},
}
CONTENT = {
    "model call answered": {"text"},
    "model call failed": {"provider_message"},
    "tool finished": {"arguments", "result"},
    "tool failed": {"arguments", "result"},
    "run failed": {"provider_message"},
}


@pytest.mark.parametrize("with_content", [False, True])
def test_every_record_has_the_fields_that_tell_its_run_call_and_tool(
    with_content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def broken() -> None:
        """Break."""
        raise RuntimeError("broken")

    def agent(*script: Any) -> Agent[Any, str]:
        config = told("debug", record_content=with_content)
        return Agent(ScriptedModel(*script), tools=[weather, broken], config=config)

    agent(ROME, Turn(calls=(Call("broken", {}),)), "It rains.").run_sync("Rome?")
    agent(ModelError("no", code=ErrorCode.PERMISSION, provider_message="not you")).run_sync("Rome?")
    usage = set(TokenUsage.__struct_fields__)
    records = [fields(record) for record in caplog.records if record.name == LOGGER]
    found = {record["event"]: record.keys() - usage for record in records}
    more = CONTENT if with_content else {}
    assert found == {event: names | more.get(event, set()) for event, names in FIELDS.items()}


def test_a_tool_that_asks_for_another_try_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    @tool(name="weather")
    def picky(city: str) -> str:
        """Ask again."""
        raise RetryTool("Name the country too.")

    Agent(ScriptedModel(ROME, "No."), tools=[picky], config=told("info")).run_sync("Rome?")
    assert [level for level, event in events(caplog) if event == "tool failed"] == ["INFO"]
    (failed,) = [fields(record) for record in caplog.records if fields(record)["event"] == "tool failed"]
    assert failed["seconds"] == round(failed["seconds"], 6)


def test_the_reason_for_another_try_must_be_text() -> None:
    with pytest.raises(InvalidValue, match="the message of RetryTool must be text, got 3"):
        RetryTool(3)  # type: ignore[arg-type]  # what is tested
