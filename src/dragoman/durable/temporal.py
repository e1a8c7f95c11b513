"""Temporal as the engine of durable runs: one workflow for each requested run, one activity for each attempt.

Temporal sees ids, names and counts: the size of its history does not depend on the conversation. The record
is elsewhere, so that a lost workflow or a lost signal loses nothing: a sweep schedules the order again.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Iterable, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from .._finishing import finish
from .._loops import SharedLock
from ..errors import ErrorCode, InvalidValue, Secrets
from ..store.refusals import require_seconds
from .engine import EngineError, Perform
from .orders import Order
from .temporal_worker import Abort, CallersLoop, LoopThread, make_activities, require_temporalio
from .temporal_workflow import (
    AGENT,
    LONGEST_ATTEMPT_DAYS,
    LONGEST_PAUSE_SECONDS,
    SESSION,
    STATUS,
    WAKE,
    WORKFLOW,
    define_workflow,
)

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.common import TypedSearchAttributes
    from temporalio.worker import Worker

__all__ = ["TemporalEngine"]

BUILD = "1"  # in each event of the history; by default temporalio makes it a hash of all modules
CONNECT_SECONDS = 10.0
DESCRIBED_AT_ONCE = 20
# The SQL databases behind Temporal keep so many characters (temporalio/temporal#2122). Its server counts bytes.
LONGEST_ID = 255
LONGEST_KEYWORD = 255  # of a search attribute
LOGGER = logging.getLogger("dragoman.durable")
_Result = TypeVar("_Result")


class TemporalEngine:
    """Schedules orders as workflows of the Temporal server at `address` (`host:port`). It connects when first used.

    Another worker has the order of a worker that died or is suspended within about `dead_seconds`: docs/temporal.md has
    figures. A worker calls `abort` when a user cancels the workflow of an order: it must record that the run
    shall end. Without it the run stays open, and a sweep schedules it again. Further arguments (`api_key`, `tls`,
    `data_converter`, …) are those of `temporalio.client.Client.connect`.
    """

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "default",
        task_queue: str = "dragoman",
        prefix: str = "dragoman",
        dead_seconds: float = 6.0,
        heartbeat_seconds: float = 1.0,
        abort: Abort | None = None,
        **connection: Any,
    ) -> None:
        require_temporalio()
        if "://" in address or ":" not in address:
            raise InvalidValue.of("address", address, "host:port")
        require_seconds(dead_seconds, "dead_seconds", 0.001)
        # Temporal may give an order back to a process that is suspended, while its connection is open: the timeout then
        # passes more than once.
        silent_seconds = dead_seconds / 3
        if not 0.0 < heartbeat_seconds < silent_seconds:
            raise InvalidValue.of(
                "heartbeat_seconds", heartbeat_seconds, f"less than a third of dead_seconds ({dead_seconds})"
            )
        self.address = address
        self.namespace = namespace
        self.task_queue = task_queue
        self._prefix = prefix.replace("%", "%25").replace(":", "%3A")  # a colon ends it in the ids of workflows
        self._silent_seconds = silent_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._abort = abort
        self._connection = {"connect_timeout": timedelta(seconds=CONNECT_SECONDS), **connection}
        self._client: Client | None = None
        self._connecting = SharedLock()
        self._has_attributes = True  # until the server says that it does not know them

    def __repr__(self) -> str:
        return f"<TemporalEngine {self.address!r}, namespace {self.namespace!r}, task queue {self.task_queue!r}>"

    @property
    def follows_record(self) -> bool:
        """False: what is recorded is scheduled after that, or by a sweep."""
        return False

    async def prepare(self) -> None:
        """Register the search attributes. If the server refuses, a warning says so: runs do not need them."""
        from temporalio.api.enums.v1 import IndexedValueType
        from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

        client = await self._connect()
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        attributes = dict.fromkeys((SESSION, AGENT, STATUS), keyword)
        request = AddSearchAttributesRequest(namespace=self.namespace, search_attributes=attributes)
        try:
            await self._call(client.operator_service.add_search_attributes(request))
            self._has_attributes = True
        except EngineError as error:
            if error.code is ErrorCode.CONNECTION:
                raise
            names = ", ".join(attributes)
            LOGGER.warning("add the search attributes %s of type Keyword, or do without them: %s", names, error)

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Start the order's workflow, or wake it if it runs: it then performs its order again, `seconds` from now."""
        client, seconds = await self._connect(), min(seconds, LONGEST_PAUSE_SECONDS)
        try:
            await self._call(self._signal_with_start(client, order, seconds, self._has_attributes))
        except EngineError as error:
            # A server that does not know the search attributes refuses the call as a whole.
            if error.code is not ErrorCode.INVALID_REQUEST or not self._has_attributes:
                raise
            await self._call(self._signal_with_start(client, order, seconds, False))
            self._has_attributes = False
            LOGGER.info("%r knows no search attributes for runs: prepare() registers them", self)

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return the orders that have no workflow, or one that has ended."""
        client, limit = await self._connect(), asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def is_scheduled(order: Order) -> bool:
            async with limit:
                return await self._call(self._is_running(client, order))

        wanted = list(orders)
        found = await asyncio.gather(*map(is_scheduled, wanted))
        return [order for order, is_running in zip(wanted, found, strict=True) if not is_running]

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Perform orders in this event loop; a thread of its own talks to Temporal, so that a tool may block this loop.

        Cancelling `work` cancels what is under way: another worker gets it at once.
        """
        client, here = await self._connect(), CallersLoop(perform)
        thread, stopping = LoopThread("dragoman-temporal"), asyncio.ensure_future(stop.wait())
        try:
            worker = self._make_worker(client, here, slots)
            running = thread.start(worker.run())

            async def run_until_stopped() -> None:
                await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    await thread.start(worker.shutdown())
                await running

            def cancel() -> None:
                here.cancel()
                stopping.cancel()

            await finish(self._call(run_until_stopped()), cancel)
        finally:
            stopping.cancel()
            thread.close()

    async def close(self) -> None:
        """Forget the connection; temporalio closes it when nothing uses it."""
        self._client = None

    async def _connect(self) -> "Client":
        """Return the client, which every event loop may use; raise EngineError if the namespace is not there."""
        async with self._connecting:
            if self._client is None:
                self._client = await self._call(self._open_client())
            return self._client

    async def _open_client(self) -> "Client":
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
        from temporalio.client import Client

        client = await Client.connect(self.address, namespace=self.namespace, **self._connection)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=self.namespace))
        return client

    async def _signal_with_start(self, client: "Client", order: Order, seconds: float, has_attributes: bool) -> None:
        from temporalio.common import WorkflowIDReusePolicy

        await client.start_workflow(
            WORKFLOW,
            args=[msgspec.to_builtins(order), seconds, self._silent_seconds],
            id=self._workflow_id(order),
            task_queue=self.task_queue,
            # A run that waited for a person, or that a person tries again, had a workflow that has ended.
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=WAKE,
            start_signal_args=[seconds],
            search_attributes=_search_attributes(order) if has_attributes else None,
            # A worker may die while it has the workflow itself: that takes milliseconds of work.
            task_timeout=timedelta(seconds=max(1.0, self._silent_seconds)),
        )

    async def _is_running(self, client: "Client", order: Order) -> bool:
        from temporalio.client import WorkflowExecutionStatus
        from temporalio.service import RPCError, RPCStatusCode

        try:
            description = await client.get_workflow_handle(self._workflow_id(order)).describe()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return False
        return description.status == WorkflowExecutionStatus.RUNNING

    def _workflow_id(self, order: Order) -> str:
        """Return the id that is the order's alone. A long one ends with a hash, and no short one ends so."""
        whole = f"{self._prefix}:{order}".encode()
        if len(whole) <= LONGEST_ID:
            return whole.decode()
        end = f"-sha256:{sha256(whole).hexdigest()}"
        return whole[: LONGEST_ID - len(end)].decode(errors="ignore") + end

    def _make_worker(self, client: "Client", here: CallersLoop, slots: int) -> "Worker":
        from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

        heartbeat = timedelta(seconds=self._heartbeat_seconds)
        return Worker(
            client,
            task_queue=self.task_queue,
            workflows=[define_workflow()],
            activities=make_activities(here.perform, self._abort, self._heartbeat_seconds),
            max_concurrent_activities=slots,
            # The server gives orders to open polls of a process that is suspended, and each waits there for a timeout.
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(maximum=1),
            workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(maximum=2),  # one is for workflows that it knows
            # Else the worker that has the workflow gets every attempt, also where it does not know the agent.
            disable_eager_activity_execution=True,
            build_id=BUILD,
            # Without this temporalio sends a heartbeat only after 0.8 of the timeout.
            max_heartbeat_throttle_interval=heartbeat,
            # How long a workflow waits for the worker that knows it, which may be dead, before any other may take it.
            sticky_queue_schedule_to_start_timeout=heartbeat,
            # The caller that sets `stop` also lets the runs stop at their next entry: every attempt returns.
            graceful_shutdown_timeout=timedelta(days=LONGEST_ATTEMPT_DAYS),
        )

    async def _call(self, call: Awaitable[_Result]) -> _Result:
        """Return what the call returns, with the errors of temporalio as EngineError."""
        from temporalio.service import RPCError

        try:
            return await call
        except RPCError as error:
            problem = self._explain(error.status.name, error.message)
        except RuntimeError as error:  # so temporalio tells of a failed connection, and of a worker that cannot go on
            problem = self._explain("UNAVAILABLE", str(error))
        except ValueError as error:  # an address or a key that cannot be one
            problem = self._explain("INVALID_ARGUMENT", str(error))
        raise problem  # here, so that no error is its context: temporalio's frames hold the key

    def _explain(self, status: str, said: str) -> EngineError:
        code, advice = _ADVICE.get(status, _UNKNOWN)
        if code is ErrorCode.CONNECTION and _TLS.search(said):
            advice = "the server has no TLS, or a certificate that is not trusted: see tls= (an api_key turns TLS on)"
        said = Secrets(_texts(self._connection)).hide(said)
        if code is ErrorCode.INVALID_REQUEST and said:
            advice = f"{advice}: {said}"  # of ids and settings, which is all that the server knows
        return EngineError(f"{self!r}: {status}: {advice}", code=code, provider_message=said)


_TLS = re.compile("certificate|InvalidMessage|InvalidContentType", re.IGNORECASE)  # words of rustls

# What an operator can do about a refusal, by the status of gRPC.
_ADVICE = {
    "UNAVAILABLE": (ErrorCode.CONNECTION, "no server answers there: start it, or give its address"),
    "DEADLINE_EXCEEDED": (ErrorCode.CONNECTION, "the server did not answer in time: see whether it is overloaded"),
    "NOT_FOUND": (ErrorCode.NOT_FOUND, "make the namespace (temporal operator namespace create), or name another"),
    "UNAUTHENTICATED": (ErrorCode.AUTHENTICATION, "give an api_key or a client certificate that the server takes"),
    "PERMISSION_DENIED": (ErrorCode.PERMISSION, "the server does not allow this to the given key or certificate"),
    "RESOURCE_EXHAUSTED": (ErrorCode.RATE_LIMITED, "the namespace is over its limits: try again later, or raise them"),
    "INVALID_ARGUMENT": (ErrorCode.INVALID_REQUEST, "the server refuses this order or setting: its words say why"),
    "UNIMPLEMENTED": (ErrorCode.UNSUPPORTED, "the server does not know this call: update it"),
}
_UNKNOWN = (ErrorCode.SERVER_ERROR, "the server failed: its log says why")


def _search_attributes(order: Order) -> "TypedSearchAttributes":
    from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

    values = {SESSION: order.session, AGENT: order.agent, STATUS: "queued"}
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), text[:LONGEST_KEYWORD])
            for name, text in values.items()
        ]
    )


def _texts(value: object) -> list[str]:
    """All texts in the arguments of a connection: keys, and headers that may hold some."""
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    return [value] if isinstance(value, str) else []
