"""`Telemetry`: where spans and metrics go, and what they begin with. The extra is loaded here."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue, MissingExtra
from ..message import ModelInvocationDescriptor, ToolCall
from ..request import ObservabilityConfig
from .operations import Around, ChatOperation, Recorder, RunOperation, ToolOperation
from .requests import RequestOperation

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry"]

_SCOPE = "dragoman"
# As the conventions advise: seconds of a call and of a run, and tokens.
_SECONDS = tuple(0.01 * 2**index for index in range(14))
_RUN_SECONDS = tuple(0.1 * 2**index for index in range(13))
_TOKENS = tuple(4**index for index in range(14))


class Telemetry:
    """Records what the settings say: spans with `traces`, metrics with `metrics`, content with `record_content`.

    Without providers of its own it writes to the global ones, also to those that are set later. Raises MissingExtra if
    OpenTelemetry is not installed.
    """

    def __init__(
        self,
        config: ObservabilityConfig,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not isinstance(config, ObservabilityConfig):
            raise InvalidValue.of("config", config, "an ObservabilityConfig")
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra("telemetry", "otel") from None
        tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider) if config.traces else trace.NoOpTracer()
        meter = (
            metrics.get_meter(_SCOPE, meter_provider=meter_provider) if config.metrics else metrics.NoOpMeter(_SCOPE)
        )
        self._recorder = _recorder(tracer, meter, with_content=config.record_content, clock=clock)

    def begin_run(self, *, session_id: str, run_id: str, agent_name: str = "") -> RunOperation:
        """Begin `invoke_agent`: a run, inside the span that is current here."""
        return RunOperation(self._recorder, session_id=session_id, run_id=run_id, agent_name=agent_name)

    def begin_request(
        self, *, method: str, route: str, front: str, client: str, headers: Mapping[str, str]
    ) -> RequestOperation:
        """Begin a client's request to a server. The client's own trace is around it, if the headers name one."""
        return RequestOperation(self._recorder, method=method, route=route, front=front, client=client, headers=headers)

    def begin_chat(
        self,
        run: Around,
        invocation: ModelInvocationDescriptor,
        *,
        params: Mapping[str, Any],
        call_index: int,
        attempt: int = 0,
    ) -> ChatOperation:
        """Begin `chat`: a model call of the run or request, each attempt its own."""
        return ChatOperation(
            self._recorder, run, invocation=invocation, params=params, call_index=call_index, attempt=attempt
        )

    def begin_tool(self, run: RunOperation, call: ToolCall) -> ToolOperation:
        """Begin `execute_tool`: a tool that runs."""
        return ToolOperation(self._recorder, run, call)


def _recorder(tracer: Any, meter: "Meter", *, with_content: bool, clock: Callable[[], float]) -> Recorder:
    def histogram(name: str, unit: str, about: str, bounds: tuple[float, ...]) -> Any:
        return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=bounds)

    return Recorder(
        tracer=tracer,
        clock=clock,
        with_content=with_content,
        tokens=histogram("gen_ai.client.token.usage", "{token}", "Tokens that a model call used.", _TOKENS),
        call_seconds=histogram("gen_ai.client.operation.duration", "s", "How long a model call took.", _SECONDS),
        first_chunk_seconds=histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "How long the first piece of an answer took.", _SECONDS
        ),
        run_seconds=histogram("gen_ai.invoke_agent.duration", "s", "How long a run took.", _RUN_SECONDS),
        tool_seconds=histogram("gen_ai.execute_tool.duration", "s", "How long a tool took.", _SECONDS),
        request_seconds=histogram(
            "http.server.request.duration", "s", "How long a request of a client took, its answer included.", _SECONDS
        ),
        cached_tokens=meter.create_counter(
            "dragoman.client.cached_tokens", "{token}", "Input tokens that a provider's cache gave or took."
        ),
        cost=meter.create_counter("dragoman.client.cost", "{USD}", "What model calls cost, in US dollars."),
    )
