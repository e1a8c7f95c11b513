"""Sessions in one SQLite file: the store that needs nothing else. Several processes may use the file at once.

This module is the asynchronous face; `sqlite_rows` and `sqlite_changes` have the SQL, `sqlite_schema` the tables,
`sqlite_writer` the thread that writes.
"""

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ErrorCode, InvalidValue, StoreError
from ..history import HistoryEntry, Metadata, entry_to_json
from . import sqlite_changes as changes
from . import sqlite_rows as rows
from .chain import decode_entry
from .following import Notices, follow_entries
from .lazy import LazyEntries
from .listing import ListQuery
from .protocol import Head, OpenedSession, SessionInfo, SessionPage, Snapshot, Tombstone, VerifyReport
from .refusals import (
    MAX_SERIAL,
    require_append,
    require_serial,
    require_session_id,
    store_closed,
)
from .refusals import (
    new_session_id as fresh_session_id,
)
from .sqlite_schema import connect, prepare_file, store_error, translated
from .sqlite_writer import Writer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from sqlite3 import Connection

__all__ = ["SQLiteStore"]

READERS = 4

_Result = TypeVar("_Result")
_NO_METADATA = Metadata({})


class SQLiteStore:
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
        self._path = Path(path)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._busy_seconds = busy_seconds
        self._poll_seconds = poll_seconds
        self._process = os.getpid()
        self._notices = Notices()
        self._writer = Writer(self._connect_writer, self._translate, busy_seconds=busy_seconds)
        self._is_prepared = False
        self._executor: ThreadPoolExecutor | None = None
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    async def __aenter__(self) -> "SQLiteStore":
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    # ------------------------------------------------------------ changes

    async def create(self, session_id: str | None = None, *, metadata: Mapping[str, Any] = _NO_METADATA) -> SessionInfo:
        """Return a new, empty session."""
        name = fresh_session_id() if session_id is None else session_id
        require_session_id(name)
        noted, now = Metadata.of(metadata), self._now()
        return await self._write(lambda connection: changes.create_session(connection, name, now=now, metadata=noted))

    async def append(self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int) -> Head:
        """Keep the entries, all or none; when it returns, they are on the disk."""
        require_session_id(session_id)
        require_append(entries, expected_serial)
        self._require_usable()
        encoded = [entry_to_json(entry) for entry in entries]
        head = await self._writer.append(session_id, encoded, expected_serial)
        self._notices.tell((session_id,))
        return head

    async def fork(
        self,
        session_id: str,
        serial: int,
        *,
        new_session_id: str | None = None,
        metadata: Mapping[str, Any] = _NO_METADATA,
    ) -> SessionInfo:
        """Return a new session that shares the entries up to `serial`: one row, however long it is."""
        name = fresh_session_id() if new_session_id is None else new_session_id
        require_session_id(session_id)
        require_session_id(name, "new_session_id")
        require_serial(serial, "serial", -1)
        noted, now = Metadata.of(metadata), self._now()
        return await self._write(
            lambda connection: changes.fork_session(connection, session_id, serial, name, now=now, metadata=noted)
        )

    async def erase(self, session_id: str, *, forks: Iterable[str] = ()) -> Tombstone:
        """Remove the session and the forks that are named, from every page of the file and from its log.

        The file is written anew, so this takes as long as the file is large. Erasing again what was erased finishes a
        cleaning that was interrupted.
        """
        named = tuple(dict.fromkeys(forks))
        for each in (session_id, *named):
            require_session_id(each)
        now = self._now()

        def erase(connection: "Connection") -> Tombstone:
            connection.execute("BEGIN IMMEDIATE")
            tombstone = rows.find_tombstone(connection, session_id)
            if tombstone is None:
                tombstone = changes.erase_session(connection, session_id, named, now)
            connection.execute("COMMIT")
            self._clean(connection)
            return tombstone

        tombstone = await self._write(erase, alone=True)
        self._notices.tell((session_id, *named))
        return tombstone

    async def keep_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot for `open`."""
        require_session_id(session_id)
        require_serial(snapshot.serial, "snapshot.serial")
        await self._write(lambda connection: changes.put_snapshot(connection, session_id, snapshot))

    async def drop_snapshots(self, session_id: str) -> None:
        """Throw the snapshots away."""
        require_session_id(session_id)
        await self._write(lambda connection: changes.drop_snapshots(connection, session_id))

    # ------------------------------------------------------------ questions

    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        """Return the entries from a serial on, each checked."""
        require_session_id(session_id)
        require_serial(from_serial, "from_serial")
        end = MAX_SERIAL if until_serial is None else until_serial
        require_serial(end, "until_serial")

        def load(connection: "Connection") -> tuple[HistoryEntry, ...]:
            encoded = rows.read_json(connection, rows.find_session(connection, session_id), from_serial, end)
            return tuple(decode_entry(data, serial) for serial, data in enumerate(encoded, from_serial))

        return await self._read(load)

    async def open(self, session_id: str) -> OpenedSession:
        """Return what opens a session fast; its entries are read a page at a time."""
        require_session_id(session_id)

        def read_page(first: int, end: int) -> Sequence[bytes]:
            return self._read_now(
                lambda connection: rows.read_json(connection, rows.find_session(connection, session_id), first, end)
            )

        def open_session(connection: "Connection") -> OpenedSession:
            session = rows.find_session(connection, session_id)
            entries = LazyEntries(session.head.next_serial, read_page)
            return OpenedSession(rows.info_of(connection, session), entries, rows.newest_snapshot(connection, session))

        return await self._read(open_session)

    async def head(self, session_id: str) -> Head:
        """Return how far the session is."""
        require_session_id(session_id)
        return await self._read(lambda connection: rows.find_sound_end(connection, session_id).head)

    async def info(self, session_id: str) -> SessionInfo:
        """Return what is known of the session."""
        require_session_id(session_id)
        return await self._read(lambda connection: rows.info_of(connection, rows.find_session(connection, session_id)))

    async def list(
        self,
        *,
        metadata: Mapping[str, Any] = _NO_METADATA,
        forks_of: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> SessionPage:
        """Return the sessions that fit, the newest first."""
        query = ListQuery.of(
            metadata=metadata,
            forks_of=forks_of,
            created_from=created_from,
            created_before=created_before,
            limit=limit,
            page=page,
        )
        return await self._read(lambda connection: rows.list_sessions(connection, query))

    def follow(self, session_id: str, from_serial: int = 0) -> AsyncIterator[HistoryEntry]:
        """Yield the entries from a serial on, then each new one as it comes, whichever process appends it."""
        require_session_id(session_id)
        require_serial(from_serial, "from_serial")
        return follow_entries(
            lambda first, end: self.load(session_id, first, until_serial=end),
            self._notices,
            session_id,
            from_serial,
            self._poll_seconds,
        )

    async def verify(self, session_id: str, *, kept: Head | None = None) -> VerifyReport:
        """Read everything and check it; what SQLite itself cannot read any more is reported too."""
        require_session_id(session_id)
        return await self._read(lambda connection: rows.verify_session(connection, session_id, kept))

    async def tombstone(self, session_id: str) -> Tombstone | None:
        """Return what is left of an erased session."""
        require_session_id(session_id)
        return await self._read(lambda connection: rows.find_tombstone(connection, session_id))

    async def close(self) -> None:
        """Finish what was begun, end whoever follows, and close the file."""
        import asyncio

        self._notices.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    # ------------------------------------------------------------ threads and connections

    async def _write(self, work: "Callable[[Connection], _Result]", *, alone: bool = False) -> _Result:
        self._require_usable()
        return await self._writer.run(work, alone=alone)

    async def _read(self, work: "Callable[[Connection], _Result]") -> _Result:
        import asyncio

        self._require_usable()
        if not self._is_prepared:
            await self._writer.run(lambda _connection: None, alone=True)
        with self._lock:
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(READERS, "dragoman-store-reader")
            executor = self._executor
        return await asyncio.get_running_loop().run_in_executor(executor, self._read_now, work)

    def _read_now(self, work: "Callable[[Connection], _Result]") -> _Result:
        """Do `work` in a transaction of its own, so that it sees one state of the file."""
        self._require_usable()
        with translated(self._path):
            with self._lock:
                connection = self._idle.pop() if self._idle else None
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
        with self._lock:
            is_kept = not self._notices.is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        return result

    def _connect_writer(self) -> "Connection":
        import sqlite3

        prepare_file(self._path, busy_seconds=self._busy_seconds)
        connection = connect(self._path, busy_seconds=self._busy_seconds)
        if connection.execute("SELECT 1 FROM cleanings").fetchone() is not None:
            try:
                self._clean(connection)
            except (sqlite3.Error, StoreError):  # it stays noted; a full disk must not keep the sessions locked away
                pass
        self._is_prepared = True
        return connection

    def _clean(self, connection: "Connection") -> None:
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
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._writer.close()  # last, so that it empties the log

    def _translate(self, error: Exception) -> Exception:
        import sqlite3

        return store_error(error, self._path) if isinstance(error, (sqlite3.Error, UnicodeError)) else error

    def _require_usable(self) -> None:
        if self._notices.is_closed:
            raise store_closed()
        if os.getpid() != self._process:
            raise InvalidValue("a store does not survive os.fork: open another one in the child")

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)
