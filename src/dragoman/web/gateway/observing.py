"""What is told of each request: one line in the log, counts, and spans where they are wanted. Never its content."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...stream import Assembly
from .attempts import TRIED
from .fronts import FRONTS, Wanted, name_client, route_of
from .metrics import Metrics

if TYPE_CHECKING:
    from ...errors import ErrorCode
    from ...models import Model
    from ...request import ReadRequest
    from ...telemetry import Telemetry
    from ...telemetry.operations import ChatOperation
    from ...usage import TokenUsage
    from .attempts import Attempt
    from .delivery import Delivery
    from .exchange import Exchange
    from .turn import Turn

__all__ = ["Observed", "ObservedCall", "Observer"]

log = logging.getLogger("dragoman.serve")
LEFT = 499  # nginx's status for a client that closed the connection before its answer
_SETTINGS = ("temperature", "top_p", "max_tokens", "stop_sequences", "output_schema")


class Observer:
    """Begins to observe requests."""

    def __init__(self, metrics: Metrics, telemetry: "Telemetry | None" = None) -> None:
        self.metrics = metrics
        self.telemetry = telemetry

    def begin(self, method: str, wanted: Wanted, headers: Mapping[str, str]) -> "Observed":
        """Begin with a request whose head has come."""
        return Observed(self, method, wanted, headers)


class Observed:
    """One request. What is known of it when it ends is told; `end` is called once."""

    def __init__(self, observer: Observer, method: str, wanted: Wanted, headers: Mapping[str, str]) -> None:
        self.key_name = ""
        self.way = ""
        self.model = ""
        self.session_id = ""
        self.fault = ""
        self.cause: ErrorCode | None = None
        self.usage: TokenUsage | None = None
        self.tried: Sequence[Attempt] = ()
        self._failed: list[tuple[str, str]] = []  # models and why
        self._is_cut = False
        self._begun: int | None = None
        self._observer = observer
        self._wanted = wanted
        self._started = time.monotonic()
        telemetry = observer.telemetry
        self._span = None if telemetry is None or wanted.action in ("health", "metrics") else telemetry.begin_request(
            method=method,
            route=route_of(wanted),
            front=wanted.api,
            client=name_client(FRONTS[wanted.api], headers),
            headers=headers,
        )  # fmt: skip

    @property
    def has_begun(self) -> bool:
        """Whether the head of an answer has gone out."""
        return self._begun is not None

    def begin_call(self, model: "Model", read: "ReadRequest | None", index: int) -> "ObservedCall":
        """Begin to ask a model, the first of a request with index 0."""
        return ObservedCall(self, model, read, index)

    def note(self, exchange: "Exchange", turn: "Turn", delivery: "Delivery") -> None:
        """Take what became of an answer."""
        self.way, self.model, self.cause, self.fault = exchange.way, exchange.model, exchange.cause, turn.fault
        self.session_id, self.usage = turn.session_id, exchange.assembly.usage
        self.tried, self._is_cut = exchange.failed, exchange.is_cut
        self._failed = [(attempt.model, str(attempt.error.error_code)) for attempt in exchange.failed]
        if exchange.cause is not None and not exchange.has_left and not exchange.is_stopping:
            self._failed.append((exchange.model, str(exchange.cause)))
        self._begun = delivery.status if delivery.has_begun else None

    def end(self, status: int | None) -> None:
        """Tell what became of it. The status is None where the client left before the end."""
        status = self._begun if status is None else status
        wanted, metrics, seconds = self._wanted, self._observer.metrics, time.monotonic() - self._started
        counted = LEFT if status is None else status
        way = self.way or ("refused" if counted >= 400 else wanted.action)
        metrics.add("dragoman_requests_total", front=wanted.api, way=way, status=str(counted))
        metrics.add("dragoman_answer_seconds_total", seconds, front=wanted.api)
        if self._is_cut:
            metrics.add("dragoman_cut_answers_total", front=wanted.api, cause=str(self.cause))
        for model, code in self._failed:
            metrics.add("dragoman_failed_models_total", model=model, code=code)
        if self.fault:
            metrics.add("dragoman_store_faults_total")
            log.warning("an answer is not recorded: %s", self.fault)
        usage = self._counted_usage()
        cause = str(self.cause) if self.cause is not None else None
        if self._span is not None:
            self._span.session_id = self.session_id
            is_refused = status is not None and 400 <= status < 500
            self._span.end(status, error_type=None if is_refused else cause, key_name=self.key_name, way=way)
        facts = {
            "action": wanted.action,
            "front": wanted.api,
            "status": counted,
            "seconds": round(seconds, 3),
            "key": self.key_name,
            "model": self.model,
            "session": self.session_id,
            "record": "failed" if self.fault else None,
            "way": way,
            "cause": cause,
            TRIED: [attempt.facts() for attempt in self.tried],
            **usage,
        }
        told = {name: fact for name, fact in facts.items() if fact not in (None, "", [])}
        log.info("%s", msgspec.json.encode(told).decode())

    def _counted_usage(self) -> dict[str, Any]:
        metrics = self._observer.metrics
        used = [(self.model, self.usage), *((attempt.model, attempt.usage) for attempt in self.tried)]
        for model, usage in used:
            if usage is None:
                continue
            for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                metrics.add("dragoman_tokens_total", tokens or 0, model=model, kind=kind)
            metrics.add("dragoman_cost_dollars_total", usage.cost or 0.0, model=model)
        usage = self.usage
        if usage is None:
            return {}
        return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cost": usage.cost}


class ObservedCall:
    """One model that is asked. It ends with what came of its answer; the first end counts."""

    def __init__(self, observed: Observed, model: "Model", read: "ReadRequest | None", index: int) -> None:
        self._read = read
        self._chat: ChatOperation | None = None
        telemetry, span = observed._observer.telemetry, observed._span
        if telemetry is not None and span is not None:
            span.session_id = observed.session_id
            self._params = _params(read)
            self._chat = telemetry.begin_chat(span, model.invocation, params=self._params, call_index=0, attempt=index)

    def note_first_bytes(self) -> None:
        """The answer has begun."""
        if self._chat is not None:
            self._chat.note_first_chunk()

    def end(self, assembly: Assembly | None) -> None:
        """End it; None where it came to nothing."""
        if self._chat is None:
            return
        if assembly is None:
            self._chat.cut()
            return
        request = self._read.request if self._read is not None else None
        system = (request.system if request is not None else None) or ""
        messages = request.messages if request is not None else ()
        self._chat.end(assembly, params=self._params, system=system, messages=messages)


def _params(read: "ReadRequest | None") -> dict[str, Any]:
    return {} if read is None else {name: getattr(read.request.config, name) for name in _SETTINGS}
