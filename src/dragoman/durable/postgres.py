"""The engine that needs nothing but the PostgreSQL that holds the sessions. Needs the extra `durable`.

An order is a job of procrastinate; `postgres_tables` makes its tables. Recording a request schedules its order, in the
same transaction. procrastinate's statements decide which order is next. Its worker class is not used: that one ends at
the first lost connection, stops its heartbeats while it drains, and finishes an order that another worker now has.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ..errors import InvalidValue, MissingExtra, StoreError, forget_arguments
from ..store.postgres_database import Address, connect, read_address, translated
from ..store.postgres_schema import require_schema_name
from ..store.refusals import require_seconds
from .engine import Perform
from .orders import Order
from .postgres_tables import SCHEDULE, engine_schema, job_values, prepare, require_current
from .postgres_worker import JobWorker, engine_error

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresEngine"]

LOCK_SECONDS = 60.0  # how long to wait for others' locks
PREPARE_SECONDS = 90.0  # how long to wait for the server's answer to a statement of `prepare`
STATEMENT_SECONDS = 20.0  # and to any other; a worker sends no heartbeats meanwhile

_Result = TypeVar("_Result")

_FIND = """
    SELECT lock, (args ->> 'serial')::bigint FROM procrastinate_jobs
    WHERE lock = ANY(%s) AND queue_name = %s AND status IN ('todo', 'doing')
"""


class PostgresEngine:
    """An `Engine` in the PostgreSQL database of the sessions, beside their schema. Connects when it is first used.

    A worker sends a heartbeat every `heartbeat_seconds`. Other workers take its orders back `dead_seconds` after its
    last one, sooner if its connection is gone too: its process was killed.
    """

    follows_record = True

    @forget_arguments
    def __init__(
        self, conninfo: str, *, schema: str = "dragoman", heartbeat_seconds: float = 2.0, dead_seconds: float = 6.0
    ) -> None:
        if not isinstance(conninfo, str):
            raise InvalidValue(f"conninfo must be a str, got a {type(conninfo).__name__}")
        require_schema_name(schema)
        require_seconds(heartbeat_seconds, "heartbeat_seconds", 0.001)
        require_seconds(dead_seconds, "dead_seconds", 2 * heartbeat_seconds)
        self._conninfo = conninfo
        self._schema = schema
        self._heartbeat_seconds = heartbeat_seconds
        self._dead_seconds = dead_seconds
        self._address: Address | None = None
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()  # of the connection

    def __repr__(self) -> str:
        return f"<PostgresEngine, schema {self._schema!r}>"  # the address may hold a password

    async def prepare(self) -> None:
        """Make the engine's tables beside those of the sessions, which must be there, or bring them up to date."""

        def work() -> None:
            with self._connect_unchecked(PREPARE_SECONDS) as connection, translated():
                prepare(connection, self._schema)

        await self._in_thread(work)

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Let a worker perform the order, not before `seconds` from now. It may be scheduled already."""
        values = job_values(self._schema, order, seconds)
        await self._ask(lambda connection: connection.execute(SCHEDULE, values))

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return the orders that neither wait in the engine nor are under way; `failures` do not matter."""
        wanted = list(orders)
        sessions = sorted({order.session for order in wanted})
        rows = await self._ask(lambda connection: connection.execute(_FIND, (sessions, self._schema)).fetchall())
        found = set(rows)
        return [order for order in wanted if (order.session, order.serial) not in found]

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Give orders to `perform`, at most `slots` at a time, until `stop` is set; then return when all have returned.

        Raises EngineError if the database cannot be reached at the start, or is not that of this version. A database
        that is lost later is tried again until it answers.
        """
        require_procrastinate()
        worker = JobWorker(
            self._connect,
            self._schema,
            heartbeat_seconds=self._heartbeat_seconds,
            dead_seconds=self._dead_seconds,
        )
        await worker.work(perform, slots=slots, stop=stop)

    async def close(self) -> None:
        """Close the connection; closing twice is fine."""
        await self._in_thread(self._close_connection)

    # ------------------------------------------------------------ connections

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        def locked() -> _Result:
            with self._lock:
                return work()

        try:
            return await asyncio.to_thread(locked)
        except StoreError as error:
            raise engine_error(error) from None

    async def _ask(self, work: "Callable[[psycopg.Connection], _Result]") -> _Result:
        """Do `work`, which may be done twice, with the connection. A new one is opened if it was lost meanwhile."""

        def ask() -> _Result:
            if self._connection is not None:
                try:
                    with translated():
                        return work(self._connection)
                except StoreError:
                    if not self._connection.closed:
                        raise
            self._connection = self._connect()
            with translated():
                return work(self._connection)

        return await self._in_thread(ask)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> "psycopg.Connection":
        connection = self._connect_unchecked(STATEMENT_SECONDS)
        try:
            with translated():
                require_current(connection, self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_unchecked(self, statement_seconds: float) -> "psycopg.Connection":
        require_procrastinate()
        if self._address is None:
            self._address = read_address(self._conninfo)
        return connect(
            self._address,
            engine_schema(self._schema),
            lock_seconds=LOCK_SECONDS,
            statement_seconds=statement_seconds,
        )


def require_procrastinate() -> None:
    """Raise MissingExtra unless the packages of the extra are installed."""
    try:
        import procrastinate  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("PostgresEngine", "durable") from None
