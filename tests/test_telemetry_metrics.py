"""Metrics as OpenTelemetry's own reader receives them."""

from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from dragoman import TokenUsage
from dragoman.testing.scripted import Turn
from tests.agent_cases import ROME, weather
from tests.telemetry_cases import BUSY, METRICS, Receiver

CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "scripted",
    "gen_ai.request.model": "actor",
    "gen_ai.response.model": "actor",
}


def test_tokens_are_measured_by_their_type() -> None:
    receiver = Receiver()
    receiver.agent(ROME, "It rains.", tools=[weather]).run_sync("Rome?")
    points = receiver.points("gen_ai.client.token.usage")
    assert [(dict(point.attributes), point.count, point.sum) for point in points] == [
        ({**CHAT, "gen_ai.token.type": "input"}, 2, 20),
        ({**CHAT, "gen_ai.token.type": "output"}, 2, 10),
    ]
    assert points[0].explicit_bounds[:4] == (1, 4, 16, 64)


def test_cost_and_cached_tokens_are_counted() -> None:
    receiver = Receiver()
    usage = TokenUsage(input_tokens=100, output_tokens=1, cache_read_tokens=60, cache_write_tokens=30, cost=0.25)
    receiver.agent(Turn(text="a", usage=usage)).run_sync("Hi")
    receiver.agent(Turn(text="b", usage=usage)).run_sync("Hi")
    (cost,) = receiver.points("dragoman.client.cost")
    assert (dict(cost.attributes), cost.value) == (CHAT, 0.5)
    cached = receiver.points("dragoman.client.cached_tokens")
    assert {point.attributes["dragoman.token.cache"]: point.value for point in cached} == {"read": 120, "write": 60}


def test_durations_are_measured_once_for_each_operation() -> None:
    receiver = Receiver()
    receiver.agent(ROME, "It rains.", tools=[weather], name="guide").run_sync("Rome?")
    (calls,) = receiver.points("gen_ai.client.operation.duration")
    (first_chunks,) = receiver.points("gen_ai.client.operation.time_to_first_chunk")
    (runs,) = receiver.points("gen_ai.invoke_agent.duration")
    (tools,) = receiver.points("gen_ai.execute_tool.duration")
    assert [point.count for point in (calls, first_chunks, runs, tools)] == [2, 2, 1, 1]
    assert calls.sum >= first_chunks.sum
    assert runs.sum >= calls.sum + tools.sum
    assert dict(calls.attributes) == CHAT
    assert dict(runs.attributes) == {"gen_ai.agent.name": "guide"}
    assert dict(tools.attributes) == {
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "guide",
    }


def test_failures_are_measured_apart() -> None:
    receiver = Receiver()
    receiver.agent(BUSY, "Hello").run_sync("Hi")
    points = receiver.points("gen_ai.client.operation.duration")
    assert sorted(point.attributes.get("error.type", "") for point in points) == ["", "overloaded"]


def test_ids_are_never_attributes_of_a_metric() -> None:
    receiver = Receiver()
    result = receiver.agent(ROME, "It rains.", tools=[weather]).run_sync("Rome?")
    measured = repr([receiver.points(name) for name in METRICS])
    assert not any(name in measured for name in (result.session_id, result.run_id, "call_1_0", "request-1"))


def test_the_metrics_that_the_conventions_have_are_called_so() -> None:
    known = {value for name, value in vars(gen_ai_metrics).items() if name.isupper()}
    assert {name for name in METRICS if name.startswith("gen_ai.client.")} <= known
