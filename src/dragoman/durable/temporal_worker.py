"""Temporal's activities around `perform`, with heartbeats; the thread of a worker; a plugin for workers of others.

An activity takes an order and returns a progress, both as JSON objects. An exception of `perform` is not sent to
Temporal: its words may be content.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from .._finishing import finish
from ..errors import MissingExtra, StoreError, report_raised, type_name
from .engine import Perform
from .orders import Order, Progress
from .temporal_workflow import ABORT, LONGEST_PAUSE_SECONDS, PERFORM, define_workflow

if TYPE_CHECKING:
    from temporalio.plugin import SimplePlugin

__all__ = ["Abort", "CallersLoop", "LoopThread", "make_activities", "make_plugin", "require_temporalio"]

AGAIN_SECONDS = 1.0  # before the next attempt to abort a run in a store that is away

_logger = logging.getLogger(__name__)

Abort: TypeAlias = Callable[[Order], Awaitable[object]]
_Activity: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_Result = TypeVar("_Result")


def require_temporalio() -> None:
    """Raise MissingExtra unless temporalio is installed."""
    try:
        import temporalio  # noqa: F401
    except ImportError:
        raise MissingExtra("TemporalEngine", "temporal") from None


def make_plugin(perform: Perform, *, abort: Abort | None = None, heartbeat_seconds: float = 1.0) -> "SimplePlugin":
    """Return a plugin that lets a Temporal worker of your own perform orders: `Worker(…, plugins=[…])`.

    `perform` and `abort` are `carry_on` and `abort_order`, each with its store. They run in the event loop of that
    worker, as the heartbeats do: if a tool blocks the loop for a third of `dead_seconds`, Temporal gives the order to
    another worker. `TemporalEngine.work` has no such limit. Give the worker a `graceful_shutdown_timeout`: without one
    it cancels the attempts under way when it stops.
    """
    require_temporalio()
    from temporalio.plugin import SimplePlugin

    activities = make_activities(perform, abort, heartbeat_seconds)
    return SimplePlugin("dragoman", workflows=[define_workflow()], activities=activities)


def make_activities(perform: Perform, abort: Abort | None, heartbeat_seconds: float) -> list[_Activity]:
    """Return the activities PERFORM and ABORT. Without `abort` the latter leaves the run as it is."""
    from temporalio import activity

    @activity.defn(name=PERFORM)
    async def perform_order(order: dict[str, Any]) -> dict[str, Any]:
        return await _attempt(perform, order, heartbeat_seconds)

    @activity.defn(name=ABORT)
    async def abort_order(order: dict[str, Any]) -> dict[str, Any]:
        async def end(order: Order) -> Progress:
            if abort is None:
                return Progress("cancelled", -1)
            await abort(order)
            return await perform(order)

        return await _attempt(end, order, heartbeat_seconds)

    return [perform_order, abort_order]


async def _attempt(perform: Perform, given: dict[str, Any], heartbeat_seconds: float) -> dict[str, Any]:
    from temporalio import activity
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

    async with _heartbeats(heartbeat_seconds):
        try:
            order = msgspec.convert(given, Order)
            progress = _require_progress(await perform(order))
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:
                raise
            stopped = ApplicationError("the worker stopped", type="stopped", category=ApplicationErrorCategory.BENIGN)
        except StoreError as error:  # of `abort`
            _logger.warning("order %s: %s", order, error)
            again, is_final = timedelta(seconds=AGAIN_SECONDS), not error.retryable
            words = f"{type_name(error)}: see the log"
            stopped = ApplicationError(words, next_retry_delay=again, non_retryable=is_final)
        except Exception as error:  # noqa: BLE001  # told to the log, not to Temporal
            report_raised(error, "perform")
            stopped = ApplicationError(f"perform raised {type_name(error)}", non_retryable=True)
        else:
            return _write_progress(order, progress)
    raise stopped  # here, so that no error with content is its context


def _require_progress(given: object) -> Progress:
    if not isinstance(given, Progress):
        raise TypeError("perform must return a Progress")
    return given


def _write_progress(order: Order, progress: Progress) -> dict[str, Any]:
    """Encode the progress in few bytes: the changed fields of the next order, and no `problem`."""
    written = {"status": progress.status, "serial": progress.serial}
    if progress.next is None:
        return written
    old, new = msgspec.to_builtins(order), msgspec.to_builtins(progress.next)
    changes = {field: value for field, value in new.items() if value != old[field]}
    return {**written, "next": changes, "seconds": min(progress.seconds, LONGEST_PAUSE_SECONDS)}


@asynccontextmanager
async def _heartbeats(seconds: float) -> AsyncIterator[None]:
    from temporalio import activity

    limit = activity.info().heartbeat_timeout
    pause = min(seconds, limit.total_seconds() / 3) if limit else seconds

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(pause)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


class LoopThread:
    """An event loop in a thread of its own, so that code which blocks another loop does not stop it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Future[_Result]":
        """Run a coroutine there; return what can be awaited here."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the thread; nothing may run there any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class CallersLoop:
    """Runs `perform` in the event loop where this was made, for callers in other loops."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[Progress]] = set()
        self._is_cancelled = False

    async def perform(self, order: Order) -> Progress:
        """Return what `perform` returns there. A caller that is cancelled waits until `perform` has ended."""
        ended: Future[asyncio.Task[Progress]] = Future()
        started: list[asyncio.Task[Progress]] = []

        async def run() -> Progress:
            return await self._perform(order)

        def start() -> None:
            task = self._loop.create_task(run())
            started.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(ended.set_result)
            if self._is_cancelled:
                task.cancel()

        def cancel() -> None:
            for task in started:
                task.cancel()

        self._loop.call_soon_threadsafe(start, context=self._context)
        task = await finish(asyncio.wrap_future(ended), lambda: self._loop.call_soon_threadsafe(cancel))
        return task.result()

    def cancel(self) -> None:
        """Cancel all that runs, and all that comes later."""
        self._is_cancelled = True
        for task in self._tasks:
            task.cancel()
