"""A worker of the PostgreSQL engine: takes orders from procrastinate's tables, lets them be performed, reports the end.

`WorkerConnection` has the statements and blocks; `Worker` calls it in a thread and performs the orders.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from .._finishing import finish
from ..errors import StoreError
from ..store.following import Notices
from ..store.postgres_database import translated
from ..store.postgres_listening import Listener
from .engine import EngineError, Perform
from .orders import Order
from .postgres_tables import SCHEDULE, channel_of, job_values

if TYPE_CHECKING:
    import psycopg

__all__ = ["Worker", "WorkerConnection", "engine_error"]

EARLY = 1.5  # heartbeats that a worker whose connection is gone may miss

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_KEEP = """
    UPDATE procrastinate_jobs SET worker_id = %s WHERE id = ANY(%s) AND worker_id = %s AND status = 'doing' RETURNING id
"""
_LEAVE = "DELETE FROM procrastinate_workers WHERE id = %s"
_FINISH = "DELETE FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing'"
_REPLACE = f"WITH done AS ({_FINISH} RETURNING id) {SCHEDULE} FROM done"
_FAIL = "UPDATE procrastinate_jobs SET status = 'failed' WHERE id = %s AND worker_id = %s"
_BEAT = "UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %s"
_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s || %s::bigint, 0))"
# The lock of a worker is free when its connection is gone. Deleting a worker takes its orders from it.
_DELETE_DEAD = """
    DELETE FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => %s)
    OR (last_heartbeat < now() - make_interval(secs => %s) AND pg_try_advisory_xact_lock(hashtextextended(%s || id, 0)))
    RETURNING id
"""
_TAKE_BACK = """
    UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1
    WHERE status = 'doing' AND worker_id IS NULL AND queue_name = %s
"""


class Job(NamedTuple):
    """An order that this worker has, and its id in procrastinate's table."""

    id: int
    order: Order


class WorkerConnection:
    """What a worker says to the database, on one connection. One thread uses it.

    An id of a worker is used on one connection alone, and never again after others took the worker for dead. An order
    belongs to the id that fetched it. So a worker that was only stopped cannot end an order that another one has; and
    an order that was fetched, but whose answer was lost with the connection, belongs to an id that is deleted.
    """

    def __init__(
        self, connect: "Callable[[], psycopg.Connection]", schema: str, *, heartbeat_seconds: float, dead_seconds: float
    ) -> None:
        self._connect = connect
        self._queue = schema
        self._early_seconds = EARLY * heartbeat_seconds
        self._dead_seconds = dead_seconds
        self._connection: psycopg.Connection | None = None
        self._id: int | None = None
        self._held: dict[int, int] = {}  # orders under way: the job's id, and the id of the worker that it belongs to
        self._judges_from = 0.0

    def fetch(self) -> Job | None:
        """Return the next order, which belongs to this worker from now on; None if there is none to take now."""
        from procrastinate.sql import queries
        from psycopg.errors import ForeignKeyViolation, UniqueViolation
        from psycopg.rows import dict_row

        while True:
            with translated():
                connection = self._connected()
                values = {"queues": [self._queue], "worker_id": self._id}
                try:
                    row = connection.cursor(row_factory=dict_row).execute(queries["fetch_job"], values).fetchone()
                except UniqueViolation:  # another worker took an order of the same session at that moment
                    continue
                except ForeignKeyViolation:  # others took this worker for dead
                    self._enrol(connection)
                    continue
                if row is None or row["id"] is None:
                    return None
                try:
                    job = Job(row["id"], msgspec.convert(row["args"], Order))
                except msgspec.ValidationError:
                    connection.execute(_FAIL, (row["id"], self._id))
                    _logger.warning("job %s is no order: it is set aside as failed", row["id"])
                    continue
                assert self._id is not None
                self._held[job.id] = self._id
                return job

    def finish(self, job: Job, following: Order | None, seconds: float) -> bool:
        """Delete the order and schedule the one that follows, both or none; return whether it was this worker's."""
        with translated():
            connection = self._connected()
            held = job.id, self._held[job.id]
            if following is None:
                changed = connection.execute(_FINISH, held)
            else:
                changed = connection.execute(_REPLACE, (*held, *job_values(self._queue, following, seconds)))
        del self._held[job.id]
        return changed.rowcount > 0

    def beat(self) -> int:
        """Say that this worker lives, take back the orders of those that do not, and return how many."""
        with translated():
            connection = self._connected()
            if not connection.execute(_BEAT, (self._id,)).rowcount:  # others took this worker for dead
                self._enrol(connection)
            if time.monotonic() >= self._judges_from:
                limits = self._dead_seconds, self._early_seconds, self._queue
                for (dead,) in connection.execute(_DELETE_DEAD, limits):
                    _logger.warning("worker %s is dead or stands still: its orders are taken back", dead)
            return self._take_back(connection)

    def leave(self) -> None:
        """Give back what this worker has, and close the connection."""
        if self._connection is None:
            return
        with translated(), closing(self._connected()) as connection:
            connection.execute(_LEAVE, (self._id,))
            self._take_back(connection)

    def _take_back(self, connection: "psycopg.Connection") -> int:
        number = connection.execute(_TAKE_BACK, (self._queue,)).rowcount
        if number:  # procrastinate tells of new jobs alone
            connection.execute("SELECT pg_notify(%s, '{}')", (channel_of(self._queue),))
        return number

    def _connected(self) -> "psycopg.Connection":
        if self._connection is None or self._connection.closed:
            connection = self._connect()
            try:
                # What a crash of the server undoes is done again. An order and its successor are in one transaction.
                connection.execute("SET synchronous_commit = off")
                self._enrol(connection)
            except BaseException:
                connection.close()
                raise
            if self._connection is not None:  # the others may have lost theirs too: they need time to come back
                self._judges_from = time.monotonic() + self._dead_seconds
            self._connection = connection
        return self._connection

    def _enrol(self, connection: "psycopg.Connection") -> None:
        """Get a new id, and move the orders under way to it, as far as they belong to the one before."""
        from procrastinate.sql import queries

        with connection.transaction():
            (new,) = connection.execute(queries["register_worker"].encode()).fetchone() or (0,)
            connection.execute(_LOCK, (self._queue, new))
            kept = connection.execute(_KEEP, (new, list(self._held), self._id)).fetchall()
            connection.execute(_LEAVE, (self._id,))
        self._id = new
        self._held.update((job, new) for (job,) in kept)


class Worker:
    """Performs orders. A database that is lost is tried again until it answers; what is under way goes on meanwhile."""

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
        self._awake = asyncio.Event()  # set when it is time to look for orders, or to stop
        self._listener = Listener(connect, channel_of(schema), _Wake(self._awake))

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Do what `Engine.work` promises."""
        side: list[asyncio.Task[None]] = []
        try:
            await self._ask(self._connection.beat)
            await self._ask(self._listener.listen)
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
        while len(self._running) < slots and not stop.is_set():
            try:
                job = await self._ask(self._connection.fetch)
            except EngineError as error:
                if not error.retryable:
                    raise
                return  # heartbeats tell of it; this tries again as often as they come
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
        except Exception:
            _logger.exception("order %s was not performed", job.order)
            following, seconds = job.order, 60.0
        while True:
            try:
                is_ours = await self._ask(lambda: self._connection.finish(job, following, seconds))
                break
            except EngineError as error:
                if stop.is_set() or not error.retryable:  # others get the order, and see in the record that it is done
                    _logger.warning("the end of order %s could not be reported: %s", job.order, error)
                    return
                await asyncio.sleep(self._seconds)
        if not is_ours:
            _logger.warning("order %s had been given to another worker meanwhile", job.order)
        elif following is not None and seconds > 0:
            asyncio.get_running_loop().call_later(seconds, self._awake.set)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                if await self._ask(self._connection.beat):
                    self._awake.set()
            except EngineError as error:
                if not error.retryable:
                    raise
                _logger.warning("the database is tried again: %s", error)

    async def _wait(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._awake.set()

    def _cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def _end(self, side: "list[asyncio.Task[None]]") -> None:
        """Wait for what is under way, with heartbeats, and give the rest back."""
        if self._running:
            await asyncio.wait(self._running)
        for task in side:
            task.cancel()
        await asyncio.gather(*side, return_exceptions=True)
        await asyncio.to_thread(self._listener.close)
        try:
            await self._ask(self._connection.leave)
        except EngineError as error:  # others notice it by the heartbeats
            _logger.warning("a worker could not sign off: %s", error)
        self._thread.shutdown(wait=False)

    async def _ask(self, work: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except StoreError as error:
            raise engine_error(error) from None


class _Wake(Notices):
    """Sets an event of the loop that makes it, whatever the notice says."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event
        self._loop = asyncio.get_running_loop()

    def tell(self, _notices: Iterable[str]) -> None:
        self._loop.call_soon_threadsafe(self._event.set)


def engine_error(error: StoreError) -> EngineError:
    """Return what an error of the database means to the user of an engine."""
    return EngineError(str(error), code=error.code, provider_message=error.provider_message)
