"""Sessions in PostgreSQL: the store for many machines. Needs the extra `postgres`.

This module has the connections and threads; `sql` is the face, `postgres_schema` has the tables, `postgres_database`
the transactions and errors, `postgres_listening` hears what others append.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from ..errors import InvalidValue, forget_arguments
from ..history import HistoryEntry
from .database import Database
from .postgres_appending import append_entries
from .postgres_cleaning import erase_and_clean
from .postgres_database import (
    READING,
    WRITING,
    Address,
    PostgresDatabase,
    connect,
    is_contention,
    is_locked_out,
    lost_answer,
    read_address,
    require_psycopg,
    store_error,
    translated,
)
from .postgres_listening import Listener
from .postgres_schema import MIGRATIONS, channel_of, migrate, require_current, require_schema_name, tail_channel_of
from .postgres_tails import read_tails, write_tails
from .protocol import Head, Tombstone
from .refusals import require_seconds
from .requests import Change
from .sql import SQLStore
from .sql_leases import Claim
from .tails import TailPiece, TailQuery

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresStore"]

TRIES = 4  # attempts of a change that conflicts with others

_Result = TypeVar("_Result")


class PostgresStore(SQLStore[PostgresDatabase]):
    """A `SessionStore` in a schema of a PostgreSQL database, which `migrate` creates. Connects when it is first used.

    `connections` is how many transactions may go on at once; one more connection listens while there are followers,
    and another one while there are followers of answers under way.
    `lock_seconds` is how long to wait for others' locks, `statement_seconds` how long for the server's answer to a
    statement, `poll_seconds` how often `follow` looks although it was told nothing. Appends that do not wait for each
    other may overtake each other.
    """

    @forget_arguments
    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "dragoman",
        clock: Callable[[], datetime] | None = None,
        connections: int = 4,
        lock_seconds: float = 60.0,
        statement_seconds: float = 90.0,
        poll_seconds: float = 30.0,
    ) -> None:
        if not isinstance(conninfo, str):
            raise InvalidValue(f"conninfo must be a str, got a {type(conninfo).__name__}")
        require_schema_name(schema)
        if type(connections) is not int or connections < 1:
            raise InvalidValue.of("connections", connections, "a whole number from 1 up")
        require_seconds(lock_seconds, "lock_seconds", 0.001)
        require_seconds(statement_seconds, "statement_seconds", 0.001)
        require_seconds(poll_seconds, "poll_seconds", 0.001)
        super().__init__(clock, poll_seconds, poll_seconds, connections)
        self._conninfo = conninfo
        self._schema = schema
        self._lock_seconds = lock_seconds
        self._statement_seconds = statement_seconds
        self._listener = Listener(self._connect, channel_of(schema), self._notices)
        self._tail_listener = Listener(self._connect, tail_channel_of(schema), self._tail_notices)
        self._address: Address | None = None

    def __repr__(self) -> str:
        return f"<PostgresStore, schema {self._schema!r}>"  # the address may hold a password

    async def migrate(self) -> int:
        """Create the schema, or bring it to the number that this version needs, and return that number.

        Raises StoreError, `too_new` if a later version made it; then nothing was touched.
        """

        def work() -> int:
            with self._connect_unchecked() as connection, translated():
                migrate(connection, self._schema)
            return len(MIGRATIONS)

        return await self._in_thread(work)

    # ------------------------------------------------------------ what the face asks for

    async def _append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim, changes: Sequence[Change] = ()
    ) -> Head:
        return await self._write(
            lambda database: append_entries(database, session_id, entries, serial, claim, changes=changes)
        )

    async def _write(self, work: Callable[[PostgresDatabase], _Result]) -> _Result:
        def write(database: PostgresDatabase) -> _Result:
            with database.transaction(WRITING):
                return work(database)

        return await self._in_thread(lambda: self._perform(write))

    async def _erase(self, work: Callable[[Database], Tombstone]) -> Tombstone:
        def erase(database: PostgresDatabase) -> Tombstone:
            lock = f"{channel_of(self._schema)} is being cleaned"
            return erase_and_clean(database, work, lock=lock, wait_seconds=self._lock_seconds)

        return await self._in_thread(lambda: self._perform(erase))

    async def _read(self, work: Callable[[Database], _Result]) -> _Result:
        return await self._in_thread(lambda: self._read_now(work))

    def _read_now(self, work: Callable[[Database], _Result]) -> _Result:
        def read(database: PostgresDatabase) -> _Result:
            with database.transaction(READING):
                return work(database)

        self._require_usable()
        return self._perform(read)

    async def _look(self, session_id: str, first: int, end: int) -> tuple[HistoryEntry, ...]:
        if not self._listener.is_listening:
            await self._in_thread(self._listener.listen)
        return await super()._look(session_id, first, end)

    async def _write_tails(self, pieces: Sequence[TailPiece]) -> None:
        channel = tail_channel_of(self._schema)
        await self._in_thread(lambda: self._perform(lambda database: write_tails(database, pieces, channel)))

    async def _read_tails(self, queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
        if not self._tail_listener.is_listening:
            await self._in_thread(self._tail_listener.listen)
        return await self._in_thread(lambda: self._perform(lambda database: read_tails(database, queries)))

    def _close(self) -> None:
        self._listener.close()
        self._tail_listener.close()
        super()._close()

    # ------------------------------------------------------------ connections

    def _perform(self, work: Callable[[PostgresDatabase], _Result]) -> _Result:
        """Do `work` with a connection. It is repeated after a conflict with others, or if an idle connection was lost.

        Where others keep a session locked, it is repeated for `lock_seconds`; those that stand still lose their locks.
        But never after a connection was lost while a transaction was committed: it is unknown what became of it.
        """
        require_psycopg()
        import psycopg

        database = self._take_idle()
        was_idle = database is not None
        tries, deadline = TRIES, time.monotonic() + self._lock_seconds
        while True:
            if database is None or database.connection.closed:
                database = PostgresDatabase(self._connect())
            tries -= 1
            try:
                result = work(database)
            except psycopg.Error as error:
                is_open_question = database.is_committing
                is_undone = database.roll_back()
                if is_undone and is_locked_out(error) and time.monotonic() < deadline:
                    database = PostgresDatabase(self._connect())
                    database.end_stalled()
                    tries += 1
                    continue
                may_repeat = is_contention(error) if is_undone else was_idle and not is_open_question
                if not (may_repeat and tries):
                    self._put_back(database, is_open=not database.connection.closed)
                    raise (lost_answer() if is_open_question and not is_undone else store_error(error)) from None
                was_idle = False
            except BaseException:
                database.roll_back()
                self._put_back(database, is_open=not database.connection.closed)
                raise
            else:
                self._put_back(database, is_open=not database.connection.closed)
                return result

    def _connect(self) -> "psycopg.Connection":
        connection = self._connect_unchecked()
        try:
            with translated():
                require_current(connection, self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_unchecked(self) -> "psycopg.Connection":
        if self._address is None:
            self._address = read_address(self._conninfo)
        return connect(
            self._address,
            self._schema,
            lock_seconds=self._lock_seconds,
            statement_seconds=self._statement_seconds,
        )
