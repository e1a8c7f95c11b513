"""What the tests of telemetry share: a receiver of spans and metrics, and a run in which everything is said."""

from collections.abc import Sequence
from typing import Any

import msgspec
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import StatusCode

from dragoman import AgentConfig, ErrorCode, LoopConfig, ModelError, ObservabilityConfig
from dragoman.agent import Agent, TelemetryHooks
from dragoman.telemetry import Telemetry
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import tool

KEY = "sk-live-0123456789abcdefghij"
BUSY = ModelError("busy", code=ErrorCode.OVERLOADED)
AT_ONCE = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))


ASKS_FIRST = AgentConfig(tools=msgspec.structs.replace(AgentConfig().tools, approval="always"))
SAID = (
    "prompt-raspberry",
    "rule-blackberry",
    "answer-blueberry",
    "thought-cranberry",
    "where-gooseberry",
    "elderberry",
)
METRICS = (
    "gen_ai.client.token.usage",
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.invoke_agent.duration",
    "gen_ai.execute_tool.duration",
    "dragoman.client.cached_tokens",
    "dragoman.client.cost",
)


class Receiver:
    """Takes what is recorded, as an exporter does."""

    def __init__(
        self,
        *,
        traces: bool = True,
        metrics: bool = True,
        record_content: bool = False,
        sampler: Sampler | None = None,
    ) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        config = ObservabilityConfig(traces=traces, metrics=metrics, record_content=record_content)
        self.telemetry = Telemetry(config, tracer_provider=self.tracer_provider, meter_provider=meters)

    def agent(self, *script: Any, name: str = "", **options: Any) -> Agent:
        """Return an agent on a scripted model that is recorded here."""
        options.setdefault("config", AT_ONCE)
        hooks = (TelemetryHooks(self.telemetry, agent_name=name), *options.pop("hooks", ()))
        return Agent(script[0] if hasattr(script[0], "stream") else ScriptedModel(*script), hooks=hooks, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, as they began."""
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        """Return the one span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self, parent: ReadableSpan | None = None) -> list[Any]:
        """Return the names of the spans, each followed by what is inside it."""
        found: list[Any] = []
        inside = parent.context.span_id if parent is not None and parent.context else None
        for span in self.spans:
            if (span.parent.span_id if span.parent else None) == inside:
                found.append(span.name)
                found += [below] if (below := self.tree(span)) else []
        return found

    def points(self, name: str) -> list[Any]:
        """Return what was measured under a name, one point for each set of attributes."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return [
            point
            for scope in scopes
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def errors(spans: Sequence[ReadableSpan]) -> list[Any]:
    """Return the error types of the spans; None for those that went well."""
    assert all((span.status.status_code is StatusCode.ERROR) is ("error.type" in attributes(span)) for span in spans)
    return [attributes(span).get("error.type") for span in spans]


def everything(receiver: Receiver) -> str:
    """Return all that was recorded, as text."""
    measured = [receiver.points(name) for name in METRICS]
    return "\n".join(span.to_json() for span in receiver.spans) + repr(measured)


def say_everything(receiver: Receiver) -> None:
    """Have a run in which everything that can be said is said, with a key beside it."""
    prompt, rule, answer, thought, where, found = (f"{words} {KEY}" for words in SAID)

    @tool
    def look(where: str, api_key: str) -> str:
        """Return what is there."""
        return found

    call = Call("look", {"where": where, "api_key": "hunter2-hunter2"})
    turns = [Turn(thinking=thought, calls=(call,)), answer]
    receiver.agent(*turns, tools=[look], instructions=rule).run_sync(prompt)
