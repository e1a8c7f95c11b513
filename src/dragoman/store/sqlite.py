"""Sessions in one SQLite file: the store that needs nothing else. Several processes may use the file at once.

This module has the connections; `sql` is the face, `sqlite_schema` has the tables, `sqlite_writer` writes.
"""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import ErrorCode, InvalidValue, StoreError
from ..files import require_path
from .database import Database
from .protocol import Head, Tombstone
from .refusals import require_seconds
from .requests import Change
from .sql import SQLStore
from .sql_leases import Claim
from .sql_tails import read_tails, write_tails
from .sqlite_files import FileWatch
from .sqlite_schema import connect, prepare_file, store_error, translated
from .sqlite_writer import Writer
from .tails import TailPiece, TailQuery

if TYPE_CHECKING:
    from .sqlite_database import SQLiteDatabase

__all__ = ["SQLiteStore"]

READERS = 4
LONGEST_BUSY_SECONDS = 2_147_483.0  # SQLite counts milliseconds in 32 bits, and waits not at all for a larger number
TAIL_POLL_SECONDS = 0.025  # between two looks of a follower at the deltas that other processes write

_Result = TypeVar("_Result")


class SQLiteStore(SQLStore["SQLiteDatabase"]):
    """A `SessionStore` in one file, which is created, for its owner alone, when it is first used.

    `busy_seconds` is how long to wait for other processes' locks, `poll_seconds` how often `follow` looks for what
    they have appended.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], datetime] | None = None,
        busy_seconds: float = 60.0,
        poll_seconds: float = 0.1,
    ) -> None:
        require_seconds(busy_seconds, "busy_seconds", 0.0)
        require_seconds(poll_seconds, "poll_seconds", 0.001)
        super().__init__(clock, poll_seconds, min(poll_seconds, TAIL_POLL_SECONDS), READERS)
        # Absolute, because a program may change its working folder.
        self._path = Path(_require_file(require_path("SQLiteStore: the path", path))).absolute()
        self._busy_seconds = min(busy_seconds, LONGEST_BUSY_SECONDS)
        self._writer = Writer(self._connect_writer, self._translate, busy_seconds=self._busy_seconds)
        self._is_prepared = False
        self._tail_connection: SQLiteDatabase | None = None

    def __repr__(self) -> str:
        return f"<SQLiteStore {str(self._path)!r}>"

    async def _append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim, changes: Sequence[Change] = ()
    ) -> Head:
        return await self._writer.append(session_id, entries, serial, claim, changes)

    async def _write(self, work: Callable[[Database], _Result]) -> _Result:
        self._require_usable()
        return await self._writer.run(work)

    async def _erase(self, work: Callable[[Database], Tombstone]) -> Tombstone:
        def erase(connection: "SQLiteDatabase") -> Tombstone:
            connection.execute("BEGIN IMMEDIATE")
            tombstone = work(connection)
            connection.execute("COMMIT")
            self._clean(connection)
            return tombstone

        self._require_usable()
        return await self._writer.run(erase, alone=True)

    async def _write_tails(self, pieces: Sequence[TailPiece]) -> None:
        await self._in_thread(lambda: self._write_tails_now(pieces))
        self._tail_notices.tell({piece.session_id for piece in pieces})

    def _write_tails_now(self, pieces: Sequence[TailPiece]) -> None:
        """Write in a transaction that no sync of the disk follows: a power cut may take a tail."""
        with translated(self._path):
            with self._lock:
                connection, self._tail_connection = self._tail_connection, None
            if connection is None:
                connection = connect(self._path, busy_seconds=self._busy_seconds, synchronous="NORMAL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                write_tails(connection, pieces)
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
        with self._lock:
            connection, self._tail_connection = self._tail_connection, connection
        if connection is not None:  # of another event loop's batch
            connection.close()

    async def _read_tails(self, queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
        return await self._read(lambda database: read_tails(database, queries))

    async def _read(self, work: Callable[[Database], _Result]) -> _Result:
        self._require_usable()
        if not self._is_prepared:
            await self._writer.run(lambda _connection: None, alone=True)
        return await self._in_thread(lambda: self._read_now(work))

    def _read_now(self, work: Callable[[Database], _Result]) -> _Result:
        """Do `work` in a transaction of its own, so that it sees one state of the file."""
        self._require_usable()
        with translated(self._path):
            connection = self._take_idle()
            if connection is None:
                connection = connect(self._path, busy_seconds=self._busy_seconds)
                connection.execute("PRAGMA query_only = ON")
            try:
                connection.execute("BEGIN")
                result = work(connection)
                connection.execute("ROLLBACK")  # nothing was written, and COMMIT fails after damage was met
            except BaseException:
                connection.close()
                raise
        self._put_back(connection)
        return result

    def _connect_writer(self) -> "tuple[SQLiteDatabase, FileWatch]":
        import sqlite3

        prepare_file(self._path, busy_seconds=self._busy_seconds)
        connection = connect(self._path, busy_seconds=self._busy_seconds)
        if connection.execute("SELECT 1 FROM cleanings").fetchone() is not None:
            try:
                self._clean(connection)
            except (sqlite3.Error, StoreError):  # it stays noted; a full disk must not keep the sessions locked away
                pass
        self._is_prepared = True
        return connection, FileWatch(self._path, self._is_sound)

    def _is_sound(self) -> bool:
        """Whether a new reader finds a whole database, with all that was written."""
        import sqlite3

        try:
            connection = connect(self._path, busy_seconds=self._busy_seconds, read_only=True)
            try:
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
            finally:
                connection.close()
        except (sqlite3.Error, StoreError):
            return False

    def _clean(self, connection: "SQLiteDatabase") -> None:
        """Write the file anew and empty the log: freed pages and moved cells still hold what was deleted.

        SQLite's secure_delete alone does not do: it leaves copies of cells that were moved from page to page.
        """
        connection.execute("VACUUM")
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise StoreError(
                f"{self._path.name}: erased, but a reader keeps the log in use; erase again to clean it",
                code=ErrorCode.TIMEOUT,
            )
        connection.execute("DELETE FROM cleanings")

    def _close(self) -> None:
        super()._close()
        if self._tail_connection is not None:
            self._tail_connection.close()
            self._tail_connection = None
        self._writer.close()  # last, so that it empties the log

    def _translate(self, error: Exception) -> Exception:
        import sqlite3

        return store_error(error, self._path) if isinstance(error, (sqlite3.Error, UnicodeError)) else error


def _require_file(path: str) -> str:
    """Raise InvalidValue for what other programs take for a database and would be a file of an odd name here."""
    if path == ":memory:" or path.startswith("file::memory:"):
        raise InvalidValue(f"SQLiteStore keeps sessions in a file, and {path!r} is none: use MemoryStore()")
    scheme, mark, rest = path.partition(":")
    if mark and scheme in ("sqlite", "sqlite3", "file") and rest.startswith("/"):
        raise InvalidValue(f"SQLiteStore takes the path of a file, got the address {path!r}: leave out {scheme}://")
    return path
