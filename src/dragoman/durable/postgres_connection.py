"""The statements of a worker of the PostgreSQL engine: it fetches orders, ends them, sends heartbeats. They block."""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..store.postgres_database import IDLE_SECONDS, translated
from .orders import Order
from .postgres_tables import channel_of, encode_order

if TYPE_CHECKING:
    import psycopg

__all__ = ["Job", "WorkerConnection"]

EARLY = 1.5  # heartbeats that a worker whose connection is gone may miss

_logger = logging.getLogger(__name__)

# A crash of the server may undo a fetch or an end: the worker then repeats it. The table of orders is now empty, now
# long, and its statistics are always late: without these settings PostgreSQL sorts all orders to find the first. The
# idle timeout frees the locks of a worker that is stopped inside of a transaction.
_SETTINGS = f"""
    SET idle_in_transaction_session_timeout = '{IDLE_SECONDS:g}s';
    SET synchronous_commit = off; SET enable_sort = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off
"""
_LOCK_WORKER = "SELECT 1 FROM procrastinate_workers WHERE id = %s FOR UPDATE"
_KEEP = """
    UPDATE procrastinate_jobs AS job SET worker_id = %s
    FROM unnest(%s::bigint[], %s::integer[]) AS held (id, attempts)
    WHERE job.id = held.id AND job.attempts = held.attempts AND job.worker_id = %s AND job.status = 'doing'
"""
_LEAVE = "DELETE FROM procrastinate_workers WHERE id = %s"
# Taking an order back raises its `attempts`: a late report of the attempt before then matches no row.
_IS_OURS = "id = %(job)s AND attempts = %(attempts)s AND status = 'doing'"
_FINISH = f"DELETE FROM procrastinate_jobs WHERE {_IS_OURS}"  # noqa: S608
# `args` of the next attempt. If a worker was taken for dead, its attempt overlaps with that of another: the failures of
# both are added up, as long as no newer entry came.
_COUNTED = """
    CASE sign(coalesce((args ->> 'head')::bigint, -1) - %(head)s)
        WHEN 1 THEN args
        WHEN 0 THEN %(order)s::jsonb
            || jsonb_build_object('failures', coalesce((args ->> 'failures')::bigint, 0) + %(more)s)
        ELSE %(order)s::jsonb
    END
"""
# The next attempt keeps its place among the orders of its session, but not the priority of a wake.
_AGAIN = f"""
    UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, attempts = attempts + 1, abort_requested = false,
        priority = 0, lock = %(session)s, args = {_COUNTED},
        scheduled_at = now() + make_interval(secs => %(seconds)s::float8)
    WHERE {_IS_OURS}
"""  # noqa: S608
_COUNT = f"UPDATE procrastinate_jobs SET args = {_COUNTED} WHERE id = %(job)s AND status IN ('todo', 'doing')"  # noqa: S608
_FAIL = "UPDATE procrastinate_jobs SET status = 'failed' WHERE id = %s AND worker_id = %s"
_BEAT = "UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %s"
_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s || ' ' || %s::bigint, 0))"
# The lock of a worker is free when its connection is gone. Deleting a worker takes its orders from it.
_DELETE_DEAD = """
    DELETE FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => %s)
    OR (
        last_heartbeat < now() - make_interval(secs => %s)
        AND pg_try_advisory_xact_lock(hashtextextended(%s || ' ' || id, 0))
    )
    RETURNING id
"""
_TAKE_BACK = """
    UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1, abort_requested = false
    WHERE status = 'doing' AND worker_id IS NULL AND queue_name = %s
"""


class Job(NamedTuple):
    """An order that this worker has, its id in procrastinate's table, and the attempts before this one."""

    id: int
    attempts: int
    order: Order


class WorkerConnection:
    """The statements of one worker, on one connection. One thread uses it.

    A worker's id belongs to one connection, and is never used again. An order belongs to the id that fetched it. If the
    answer of a fetch is lost with the connection, that id is deleted, and others take the order back. An attempt that
    was taken back can end nothing: neither the order of another worker, nor the next attempt of its own.
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
        self._held: set[tuple[int, int]] = set()  # what is under way: ids of jobs, and the attempts before
        self._judges_from = 0.0

    def fetch(self) -> Job | None:
        """Return the next order, which belongs to this worker from now on; None if there is none to take now."""
        from procrastinate.sql import queries
        from psycopg.errors import ForeignKeyViolation, UniqueViolation
        from psycopg.rows import dict_row
        from psycopg.types.string import TextLoader

        while True:
            with translated():
                connection = self._connected()
                values = {"queues": [self._queue], "worker_id": self._id}
                cursor = connection.cursor(row_factory=dict_row)
                cursor.adapters.register_loader("jsonb", TextLoader)  # decoded below, where bad values are set aside
                try:
                    row = cursor.execute(queries["fetch_job"], values).fetchone()
                except UniqueViolation:  # another worker took an order of the same session at that moment
                    continue
                except ForeignKeyViolation:  # others took this worker for dead
                    self._register(connection)
                    continue
                if row is None or row["id"] is None:
                    return None
                try:
                    job = Job(row["id"], row["attempts"], msgspec.json.decode(row["args"], type=Order))
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    connection.execute(_FAIL, (row["id"], self._id))
                    _logger.warning("job %s is no order: it is set aside as failed", row["id"])
                    continue
                self._held.add((job.id, job.attempts))
                return job

    def finish(self, job: Job, following: Order | None, seconds: float) -> bool:
        """Replace the order by `following`, or delete it; return whether this attempt still had it.

        A failure counts in both cases.
        """
        values: dict[str, Any] = {"job": job.id, "attempts": job.attempts}
        with translated():
            connection = self._connected()
            if following is None:
                is_ours = connection.execute(_FINISH, values).rowcount > 0
            else:
                more = following.failures - (job.order.failures if job.order.head == following.head else 0)
                values |= {"session": following.session, "order": encode_order(following), "head": following.head}
                values |= {"more": more, "seconds": seconds if seconds > 0 else None}
                is_ours = connection.execute(_AGAIN, values).rowcount > 0
                if more and not is_ours:
                    connection.execute(_COUNT, values)
        self._held.discard((job.id, job.attempts))
        return is_ours

    def beat(self) -> int:
        """Send a heartbeat, take back the orders of dead workers, and return how many."""
        with translated():
            connection = self._connected()
            if not connection.execute(_BEAT, (self._id,)).rowcount:  # others took this worker for dead
                self._register(connection)
            if time.monotonic() >= self._judges_from:
                limits = self._dead_seconds, self._early_seconds, self._queue
                for (dead,) in connection.execute(_DELETE_DEAD, limits):
                    _logger.warning("worker %s is dead or suspended: its orders are taken back", dead)
            return self._take_back(connection)

    def notify(self) -> None:
        """Let every worker look for orders."""
        with translated():
            self._notify(self._connected())

    def unregister(self) -> None:
        """Give back what this worker has, and close the connection."""
        if self._connection is None:
            return
        with translated(), closing(self._connected()) as connection:
            connection.execute(_LEAVE, (self._id,))
            self._take_back(connection)

    def _take_back(self, connection: "psycopg.Connection") -> int:
        number = connection.execute(_TAKE_BACK, (self._queue,)).rowcount
        if number:  # procrastinate tells of new jobs alone
            self._notify(connection)
        return number

    def _notify(self, connection: "psycopg.Connection") -> None:
        connection.execute("SELECT pg_notify(%s, '{}')", (channel_of(self._queue),))

    def _connected(self) -> "psycopg.Connection":
        if self._connection is None or self._connection.closed:
            connection = self._connect()
            try:
                connection.execute(_SETTINGS)
                self._register(connection)
            except BaseException:
                connection.close()
                raise
            if self._connection is not None:  # the others may have lost theirs too: they need time to come back
                self._judges_from = time.monotonic() + self._dead_seconds
            self._connection = connection
        return self._connection

    def _register(self, connection: "psycopg.Connection") -> None:
        """Get a new id, and move the orders under way to it, as far as they belong to the one before."""
        from procrastinate.sql import queries

        with connection.transaction():
            connection.execute(_LOCK_WORKER, (self._id,))  # first: a worker that deletes this one locks it first too
            (new,) = connection.execute(queries["register_worker"].encode()).fetchone() or (0,)
            connection.execute(_LOCK, (self._queue, new))
            jobs, attempts = [job for job, _ in self._held], [attempts for _, attempts in self._held]
            connection.execute(_KEEP, (new, jobs, attempts, self._id))
            connection.execute(_LEAVE, (self._id,))
        self._id = new
