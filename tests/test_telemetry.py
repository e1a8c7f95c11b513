"""Spans as OpenTelemetry's own exporter receives them: nesting, attributes, failures; and how they are turned on."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind

from dragoman import (
    AgentConfig,
    ErrorCode,
    InvalidValue,
    ModelConfig,
    ModelError,
    ObservabilityConfig,
    TokenUsage,
    model,
)
from dragoman.agent import Agent, Hooks, TelemetryHooks
from dragoman.agent.logs import LogHooks
from dragoman.agent.observing import observers
from dragoman.router import ProviderRouter
from dragoman.telemetry import Telemetry, conventions
from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import tool
from dragoman.wire import PROVIDERS
from tests.agent_cases import ROME, Gate, asks, run, weather
from tests.telemetry_cases import ASKS_FIRST, AT_ONCE, BUSY, Receiver, attributes, errors, say_everything

# ---------------------------------------------------------------- nesting


def test_model_calls_and_tools_are_inside_their_run() -> None:
    receiver = Receiver()
    receiver.agent(ROME, "It rains.", tools=[weather], name="guide").run_sync("Rome?")
    assert receiver.tree() == ["invoke_agent guide", ["chat actor", "execute_tool weather", "chat actor"]]


def test_an_answer_names_the_trace_that_it_was_asked_in() -> None:
    chunk = {"id": "a", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    wire = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    receiver, transport = Receiver(), ReplayTransport([ReplayedResponse(chunks=(wire,))])
    agent = Agent(model("vllm:m", transport=transport), hooks=[TelemetryHooks(receiver.telemetry)])
    message = asyncio.run(agent.run("Hello")).message
    assert message is not None
    assert message.meta is not None
    (trace_id,) = {f"{span.context.trace_id:032x}" for span in receiver.spans if span.context}
    assert message.meta.trace_id == trace_id


def test_a_run_is_inside_the_span_of_its_caller() -> None:
    receiver = Receiver()

    async def main() -> None:
        tracer = receiver.tracer_provider.get_tracer("app")
        with tracer.start_as_current_span("request"):
            await receiver.agent("Hello").run("Hi")
        tracer.start_span("afterwards").end()

    run(main())
    assert receiver.tree() == ["request", ["invoke_agent", ["chat actor"]], "afterwards"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_tool_does_is_inside_its_span(kind: str) -> None:
    receiver = Receiver()
    tracer = receiver.tracer_provider.get_tracer("app")

    @tool(name="fetch")
    def fetch_in_thread(page: str) -> str:
        """Fetch a page."""
        with tracer.start_as_current_span(f"GET {page}"):
            return "found"

    @tool(name="fetch")
    async def fetch_in_loop(page: str) -> str:
        """Fetch a page."""
        with tracer.start_as_current_span(f"GET {page}"):
            await asyncio.sleep(0)
            return "found"

    fetch = fetch_in_thread if kind == "sync" else fetch_in_loop
    calls = asks(Call("fetch", {"page": "a"}), Call("fetch", {"page": "b"}))
    receiver.agent(calls, "Done.", tools=[fetch]).run_sync("Fetch.")
    parents = {span.context.span_id: span for span in receiver.spans if span.context}
    for page, call_id in (("a", "call_1_0"), ("b", "call_1_1")):
        inner = receiver.span(f"GET {page}")
        assert inner.parent is not None
        assert attributes(parents[inner.parent.span_id])["gen_ai.tool.call.id"] == call_id
    assert receiver.tree() == [
        "invoke_agent",
        ["chat actor", "execute_tool fetch", ["GET a"], "execute_tool fetch", ["GET b"], "chat actor"],
    ]


def test_tools_side_by_side_are_siblings_that_overlap() -> None:
    receiver = Receiver()

    async def main() -> None:
        all_run = asyncio.Barrier(3)

        @tool
        async def meet(place: int) -> str:
            """Wait for the others."""
            await all_run.wait()
            return f"met at {place}"

        calls = asks(*(Call("meet", {"place": place}) for place in range(3)))
        await receiver.agent(calls, "Done.", tools=[meet]).run("Meet.")

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor", *["execute_tool meet"] * 3, "chat actor"]]
    tools = [span for span in receiver.spans if span.name == "execute_tool meet"]
    assert max(span.start_time or 0 for span in tools) < min(span.end_time or 0 for span in tools)


def test_an_agent_that_is_a_tool_is_inside_the_tool_of_the_other() -> None:
    receiver = Receiver()
    helper = receiver.agent(ScriptedModel("Found.", repeats=True), name="helper")
    calls = asks(Call("ask", {"task": "one"}), Call("ask", {"task": "two"}))
    receiver.agent(calls, "Done.", tools=[helper.as_tool("ask", "Ask.")], name="chief").run_sync("Go.")
    asked = ["execute_tool ask", ["invoke_agent helper", ["chat actor"]]]
    assert receiver.tree() == ["invoke_agent chief", ["chat actor", *asked, *asked, "chat actor"]]
    assert len({span.context.trace_id for span in receiver.spans if span.context}) == 1


def test_the_network_is_inside_the_model_call() -> None:
    receiver = Receiver()
    tracer = receiver.tracer_provider.get_tracer("network")

    async def send(number: int) -> None:
        if number == 0:
            tracer.start_span("POST").end()

    receiver.agent(ScriptedModel("Hello", between=send)).run_sync("Hi")
    assert receiver.tree() == ["invoke_agent", ["chat actor", ["POST"]]]


def test_agents_that_share_their_hooks_stay_apart() -> None:
    receiver = Receiver()
    hooks = TelemetryHooks(receiver.telemetry)

    async def main() -> None:
        agents = [Agent(ScriptedModel(ROME, "It rains."), tools=[weather], hooks=[hooks]) for _ in range(10)]
        await asyncio.gather(*(agent.run("Rome?") for agent in agents))

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor", "execute_tool weather", "chat actor"]] * 10
    for span in receiver.spans:
        same_run = {attributes(other)["gen_ai.conversation.id"] for other in receiver.spans if same_trace(span, other)}
        assert same_run == {attributes(span)["gen_ai.conversation.id"]}


def same_trace(one: ReadableSpan, other: ReadableSpan) -> bool:
    """Return whether two spans belong to one trace."""
    return one.context is not None and other.context is not None and one.context.trace_id == other.context.trace_id


def test_nothing_is_current_after_a_run() -> None:
    receiver = Receiver()

    async def main() -> None:
        agent = receiver.agent(ROME, tools=[weather], config=ASKS_FIRST)
        await agent.run("Rome?")
        await agent.abort()  # in this very task
        assert trace.get_current_span() is trace.INVALID_SPAN

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor"], "invoke_agent"]


def test_a_model_call_is_not_current_after_its_end() -> None:
    names: list[str] = []

    class Looks(Hooks):
        async def before_model(self, call: Any) -> None:
            names.append(_name(trace.get_current_span()))

        async def after_model(self, call: Any, assembly: Any) -> None:
            names.append(_name(trace.get_current_span()))

    receiver = Receiver()
    run(receiver.agent("Hi.", hooks=[Looks()]).run("go"))
    inside, after = names
    assert inside.startswith("chat ")
    assert after.startswith("invoke_agent")


def _name(span: trace.Span) -> str:
    return span.name if isinstance(span, ReadableSpan) else ""


# ---------------------------------------------------------------- attributes


def test_a_model_call_has_the_attributes_of_the_conventions() -> None:
    receiver = Receiver()
    usage = TokenUsage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=60,
        cache_write_tokens=30,
        reasoning_tokens=8,
        cost=0.5,
    )
    model = ModelConfig("actor", temperature=0.5, top_p=0.9, max_tokens=64, stop_sequences=("END",))
    agent = receiver.agent(Turn(text="Hello", usage=usage), name="guide", config=AgentConfig(model=model))
    result = agent.run_sync("Hi")
    span = receiver.span("chat actor")
    found = attributes(span)
    assert span.kind is SpanKind.CLIENT
    assert found.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "guide",
        "gen_ai.conversation.id": result.session_id,
        "gen_ai.request.model": "actor",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.model": "actor",
        "gen_ai.response.id": "request-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 30,
        "gen_ai.usage.reasoning.output_tokens": 8,
        "dragoman.usage.cost": 0.5,
        "dragoman.call.index": 0,
        "dragoman.call.attempt": 0,
    }


def test_a_run_has_what_its_calls_used_together() -> None:
    receiver = Receiver()
    priced = TokenUsage(input_tokens=10, output_tokens=5, cost=0.25)
    turns = [Turn(calls=ROME.calls, usage=priced), Turn(text="It rains.", usage=priced)]
    result = receiver.agent(*turns, tools=[weather], name="guide").run_sync("Rome?")
    span = receiver.span("invoke_agent guide")
    assert span.kind is SpanKind.INTERNAL
    assert attributes(span) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "guide",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "actor",
        "gen_ai.conversation.id": result.session_id,
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 10,
        "dragoman.usage.cost": 0.5,
        "dragoman.run.id": result.run_id,
        "dragoman.run.status": "completed",
    }


def test_a_tool_has_the_attributes_of_the_conventions() -> None:
    receiver = Receiver()
    result = receiver.agent(ROME, "It rains.", tools=[weather]).run_sync("Rome?")
    span = receiver.span("execute_tool weather")
    assert span.kind is SpanKind.INTERNAL
    assert attributes(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1_0",
        "gen_ai.conversation.id": result.session_id,
    }


def test_a_call_for_a_typed_answer_says_that_it_wants_json() -> None:
    receiver = Receiver()
    receiver.agent(ScriptedModel('{"value": 3}'), output_type=int).run_sync("How many?")
    assert attributes(receiver.span("chat actor"))["gen_ai.output.type"] == "json"


def test_our_names_are_those_of_the_conventions() -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.isupper()}
    ours = {value for value in strings_of(conventions) if value.startswith("gen_ai.")}
    assert len(ours) > 20
    assert ours <= known


def strings_of(module: Any) -> Iterator[str]:
    """Yield the texts that a module's constants hold."""
    for value in vars(module).values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from (item for item in value.values() if isinstance(item, str))


def test_providers_that_are_named_otherwise_are_providers_of_ours() -> None:
    assert set(conventions.PROVIDER_NAMES) <= set(PROVIDERS)
    known = {item.value for item in gen_ai_attributes.GenAiProviderNameValues} | {"moonshot_ai"}
    assert set(conventions.PROVIDER_NAMES.values()) <= known


@pytest.mark.parametrize(("provider", "name"), [("google-vertex", "gcp.vertex_ai"), ("anthropic", "anthropic")])
def test_a_provider_has_the_name_of_the_conventions(provider: str, name: str) -> None:
    assert conventions.provider_name(provider) == name


# ---------------------------------------------------------------- what goes wrong


def test_every_attempt_is_a_model_call_of_its_own() -> None:
    receiver = Receiver()
    receiver.agent(BUSY, BUSY, "Hello").run_sync("Hi")
    assert receiver.tree() == ["invoke_agent", ["chat actor"] * 3]
    calls = receiver.spans[1:]
    assert [attributes(span)["dragoman.call.attempt"] for span in calls] == [0, 1, 2]
    assert errors(receiver.spans) == [None, "overloaded", "overloaded", None]
    assert calls[0].status.description == "busy"
    assert ["gen_ai.response.time_to_first_chunk" in attributes(span) for span in calls] == [False, False, True]


def test_a_failure_is_told_of_the_run_too() -> None:
    receiver = Receiver()
    receiver.agent(ModelError("bad key", code=ErrorCode.AUTHENTICATION)).run_sync("Hi")
    assert errors(receiver.spans) == ["authentication", "authentication"]
    assert receiver.spans[0].status.description == "bad key"


def test_a_tool_that_fails_fails_alone_and_its_words_stay_inside() -> None:
    receiver = Receiver()

    @tool(name="weather")
    def broken(city: str) -> str:
        """Fail."""
        raise OSError("no such city")

    receiver.agent(ROME, "Sorry.", tools=[broken]).run_sync("Rome?")
    assert errors(receiver.spans) == [None, None, "tool_failed", None]
    assert receiver.span("execute_tool weather").status.description is None


def test_a_call_that_cannot_be_made_is_an_error_and_the_next_model_is_another_call() -> None:
    receiver = Receiver()
    router = ProviderRouter(default=(ScriptedModel(), ScriptedModel("Hello")))
    options: Any = {"hooks": [TelemetryHooks(receiver.telemetry)], "config": AT_ONCE}
    Agent(router, **options).run_sync("Hi")
    assert errors(receiver.spans) == [None, "_OTHER", None]


def test_a_stream_that_breaks_keeps_what_it_used() -> None:
    receiver = Receiver()
    usage = TokenUsage(input_tokens=10, output_tokens=2)
    broken = Turn(text="Hel", usage=usage, error=ModelError("gone", code=ErrorCode.CONNECTION, retryable=False))
    receiver.agent(broken).run_sync("Hi")
    assert attributes(receiver.spans[1])["gen_ai.usage.output_tokens"] == 2
    assert "gen_ai.response.finish_reasons" not in attributes(receiver.spans[1])
    assert errors(receiver.spans) == ["connection", "connection"]


def test_an_abort_in_a_stream_ends_every_span() -> None:
    receiver = Receiver()

    async def main() -> None:
        gate = Gate(2)
        running = receiver.agent(ScriptedModel("A long story", between=gate)).stream("Tell me")
        await gate.reached.wait()
        await running.abort()

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor"]]
    assert errors(receiver.spans) == ["cancelled", "cancelled"]
    assert "gen_ai.response.time_to_first_chunk" in attributes(receiver.spans[1])


def test_an_abort_in_a_tool_ends_every_span() -> None:
    receiver = Receiver()

    async def main() -> None:
        begun = asyncio.Event()

        @tool
        async def quick() -> str:
            """Return at once."""
            return "done"

        @tool
        async def hang() -> str:
            """Never return."""
            begun.set()
            await asyncio.Event().wait()
            return ""

        finished = asyncio.Event()

        class Noted(Hooks):
            async def after_tool(self, *_: Any) -> None:
                finished.set()

        calls = asks(Call("quick"), Call("hang"))
        running = receiver.agent(calls, tools=[quick, hang], hooks=[Noted()]).stream("Go")
        await begun.wait()
        await finished.wait()
        await running.abort()

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor", "execute_tool quick", "execute_tool hang"]]
    assert errors(receiver.spans) == ["cancelled", None, None, "cancelled"]


def test_a_run_that_waits_for_a_person_is_two_spans_with_one_run_id() -> None:
    receiver = Receiver()

    async def main() -> None:
        agent = receiver.agent(ROME, "It rains.", tools=[weather], config=ASKS_FIRST)
        waiting = await agent.run("Rome?")
        await agent.approve(waiting.approvals[0].tool_call_id)
        await agent.run()

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor"], "invoke_agent", ["execute_tool weather", "chat actor"]]
    runs = [attributes(span) for span in receiver.spans if span.name == "invoke_agent"]
    assert [found["dragoman.run.status"] for found in runs] == ["awaiting_human", "completed"]
    assert runs[0]["dragoman.run.id"] == runs[1]["dragoman.run.id"]
    assert errors(receiver.spans) == [None] * 5


def test_a_stream_that_is_followed_has_the_same_spans() -> None:
    receiver = Receiver()

    async def main() -> None:
        async with receiver.agent(ROME, "It rains.", tools=[weather]).stream("Rome?") as running:
            assert [event.kind async for event in running][-1] == "finished"

    run(main())
    assert receiver.tree() == ["invoke_agent", ["chat actor", "execute_tool weather", "chat actor"]]


# ---------------------------------------------------------------- on and off


@pytest.mark.parametrize(("traces", "metrics"), [(True, False), (False, True)])
def test_traces_and_metrics_are_turned_on_apart(traces: bool, metrics: bool) -> None:
    receiver = Receiver(traces=traces, metrics=metrics)
    say_everything(receiver)
    assert (len(receiver.spans) > 0, len(receiver.points("gen_ai.client.token.usage")) > 0) == (traces, metrics)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"log_level": "off"}, []),
        ({"log_level": "info"}, [LogHooks]),
        ({"log_level": "off", "traces": True}, [TelemetryHooks]),
        ({"log_level": "off", "metrics": True}, [TelemetryHooks]),
        ({"log_level": "info", "traces": True, "metrics": True}, [LogHooks, TelemetryHooks]),
    ],
)
def test_the_settings_turn_on_what_they_name_and_nothing_else(settings: dict[str, Any], kinds: list[type]) -> None:
    assert [type(each) for each in observers(ObservabilityConfig(**settings))] == kinds


def test_only_settings_are_settings() -> None:
    with pytest.raises(InvalidValue, match="an ObservabilityConfig"):
        Telemetry({"traces": True})  # type: ignore[arg-type]  # the mistake


def in_a_new_process(program: str) -> list[str]:
    """Return the lines that a program prints."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_settings_of_an_agent_turn_on_the_global_providers() -> None:
    program = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from dragoman import AgentConfig, ObservabilityConfig
from dragoman.agent import Agent
from dragoman.testing.scripted import ScriptedModel

both = AgentConfig(observability=ObservabilityConfig(traces=True, metrics=True))
agents = [Agent(ScriptedModel("Hello"), config=both), Agent(ScriptedModel("Hello"))]
spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
tracer_provider = TracerProvider()
tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracer_provider)  # after the agents were made
metrics.set_meter_provider(MeterProvider([reader]))
for agent in agents:
    agent.run_sync("Hi")
print([span.name for span in spans.get_finished_spans()])
(measured,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(sorted(metric.name for metric in measured.metrics))
"""
    assert in_a_new_process(program) == [
        "['chat actor', 'invoke_agent']",
        str(
            [
                "gen_ai.client.operation.duration",
                "gen_ai.client.operation.time_to_first_chunk",
                "gen_ai.client.token.usage",
                "gen_ai.invoke_agent.duration",
            ]
        ),
    ]


@pytest.mark.parametrize("setting", ["traces", "metrics"])
def test_without_the_extra_the_agent_says_what_to_install(setting: str) -> None:
    program = f"""
import sys
sys.modules["opentelemetry"] = None
from dragoman import AgentConfig, MissingExtra, ObservabilityConfig
from dragoman.agent import Agent
from dragoman.testing.scripted import ScriptedModel

print(Agent(ScriptedModel("Hello")).run_sync("Hi").output)
try:
    Agent(ScriptedModel("Hello"), config=AgentConfig(observability=ObservabilityConfig({setting}=True)))
except MissingExtra as error:
    print(error)
"""
    assert in_a_new_process(program) == [
        "Hello",
        "telemetry needs an optional package: pip install 'dragoman[otel]'",
    ]


def test_an_agent_that_is_not_recorded_loads_nothing_of_it() -> None:
    program = """
import sys
from dragoman.agent import Agent
from dragoman.testing.scripted import ScriptedModel

Agent(ScriptedModel("Hello")).run_sync("Hi")
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert in_a_new_process(program) == ["[]"]
