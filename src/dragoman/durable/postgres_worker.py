"""A worker of the PostgreSQL engine: lets orders be performed, several at a time. Its statements run in a thread."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from .._finishing import finish
from ..errors import ErrorCode, StoreError
from ..store.following import Notices
from ..store.postgres_listening import Listener
from .engine import EngineError, Perform
from .postgres_connection import Job, WorkerConnection
from .postgres_tables import channel_of

if TYPE_CHECKING:
    import psycopg

__all__ = ["JobWorker", "engine_error"]

RAISED_SECONDS = 60.0  # until the next attempt if `perform` raised, which is a bug
# Errors of a database that an operator can repair while workers wait: a standby in its place, rights, a full disk.
REPAIRABLE = frozenset({ErrorCode.PERMISSION, ErrorCode.QUOTA_EXCEEDED})
STEP_BACK_SECONDS = 0.1  # in which other workers may take an order first that failed here

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class JobWorker:
    """Performs orders. If the database is lost, it tries again until the database answers; runs go on meanwhile."""

    def __init__(
        self,
        connect: "Callable[[], psycopg.Connection]",
        schema: str,
        *,
        heartbeat_seconds: float,
        dead_seconds: float,
    ) -> None:
        self._connection = WorkerConnection(
            connect, schema, heartbeat_seconds=heartbeat_seconds, dead_seconds=dead_seconds
        )
        self._seconds = heartbeat_seconds
        self._thread = ThreadPoolExecutor(1, "dragoman-worker")
        self._running: set[asyncio.Task[None]] = set()
        self._is_cancelled = False
        self._has_ended = False
        self._awake = asyncio.Event()  # set when it is time to look for orders, or to stop
        self._offering: set[asyncio.Task[None]] = set()
        self._steps_back_until = 0.0
        self._listener = Listener(connect, channel_of(schema), _Wake(self._awake))

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Do what `Engine.work` promises."""
        side: list[asyncio.Task[None]] = []
        try:
            await self._ask(self._connection.beat)
            beating = asyncio.ensure_future(self._beat())
            beating.add_done_callback(lambda _: self._awake.set())
            side = [beating, asyncio.ensure_future(self._wait(stop))]
            while not stop.is_set():
                self._awake.clear()
                await self._take_orders(perform, slots, stop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), self._seconds)
                if beating.done():
                    beating.result()
        except asyncio.CancelledError:
            self._cancel()
            raise
        finally:
            await finish(self._end(side), self._cancel)

    async def _take_orders(self, perform: Perform, slots: int, stop: asyncio.Event) -> None:
        if (pause := self._steps_back_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause)
        while len(self._running) < slots and not stop.is_set():
            try:
                job = await self._ask(self._connection.fetch)
            except EngineError as error:
                if not _may_pass(error):
                    raise
                return  # the heartbeat logs this error; the next try comes with the next heartbeat
            if job is None:
                return
            task = asyncio.ensure_future(self._carry_out(job, perform, stop))
            self._running.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._awake.set()

    async def _carry_out(self, job: Job, perform: Perform, stop: asyncio.Event) -> None:
        try:
            progress = await perform(job.order)
            following, seconds = progress.next, progress.seconds
        except (Exception, asyncio.CancelledError) as error:
            if self._is_cancelled or (stop.is_set() and isinstance(error, asyncio.CancelledError)):
                raise  # all that is under way is given back together
            _logger.warning("order %s was not performed", job.order, exc_info=error)
            following, seconds = job.order, RAISED_SECONDS
        while True:
            try:
                is_ours = await self._ask(lambda: self._connection.finish(job, following, seconds))
                break
            except EngineError as error:
                if stop.is_set() or not _may_pass(error):  # others get the order, and see in the record that it is done
                    _logger.warning("the end of order %s could not be reported: %s", job.order, error)
                    return
                await asyncio.sleep(self._seconds)
        if not is_ours:
            _logger.warning("order %s had been given to another worker meanwhile", job.order)
        elif following is not None and seconds > 0:
            when_due = self._offer if following.failures or following.unknown else self._awake.set
            asyncio.get_running_loop().call_later(seconds, when_due)

    def _offer(self) -> None:
        """Let other workers be the first to take an order that failed here: they may know its agent.

        Only this worker knows when the order is due. Without this it would always be the first.
        """
        if self._has_ended:
            return
        self._steps_back_until = asyncio.get_running_loop().time() + STEP_BACK_SECONDS
        self._awake.set()
        task = asyncio.ensure_future(self._notify_others())
        self._offering.add(task)
        task.add_done_callback(self._offering.discard)

    async def _notify_others(self) -> None:
        with suppress(EngineError):  # they look by themselves, as often as their heartbeats come
            await self._ask(self._connection.notify)

    async def _beat(self) -> None:
        while True:
            try:
                if not self._listener.is_listening:
                    await self._ask(self._listener.listen)
                    self._awake.set()  # what came before is looked for
                if await self._ask(self._connection.beat):
                    self._awake.set()
            except EngineError as error:
                if not _may_pass(error):
                    raise
                _logger.warning("the database is tried again: %s", error)
            await asyncio.sleep(self._seconds)

    async def _wait(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._awake.set()

    def _cancel(self) -> None:
        self._is_cancelled = True
        for task in self._running:
            task.cancel()

    async def _end(self, side: "list[asyncio.Task[None]]") -> None:
        """Wait for the orders under way, with heartbeats. Then give back what is left."""
        if self._running:
            await asyncio.wait(self._running)
        self._has_ended = True
        for task in side:
            task.cancel()
        await asyncio.gather(*side, *self._offering, return_exceptions=True)
        await asyncio.to_thread(self._listener.close)
        try:
            await self._ask(self._connection.unregister)
        except EngineError as error:  # others notice it by the heartbeats
            _logger.warning("a worker could not sign off: %s", error)
        self._thread.shutdown(wait=False)

    async def _ask(self, work: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except StoreError as error:
            raise engine_error(error) from None


class _Wake(Notices):
    """Sets an event of the loop that makes it. The text of the notice does not matter."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event
        self._loop = asyncio.get_running_loop()

    def tell(self, _notices: Iterable[str]) -> None:
        self._loop.call_soon_threadsafe(self._event.set)


def _may_pass(error: EngineError) -> bool:
    return error.retryable or error.code in REPAIRABLE


def engine_error(error: StoreError) -> EngineError:
    """Return what an error of the database means to the user of an engine."""
    return EngineError(str(error), code=error.code, provider_message=error.provider_message)
