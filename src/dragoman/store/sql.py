"""The methods of a store that keeps sessions as rows, for any database.

`sql_rows` and `sql_changes` have the SQL. Each store decides in which transaction a function of a `Database` is
carried out.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from os import getpid
from typing import Any, Generic, TypeVar

from .._finishing import finish
from ..errors import InvalidValue, running_loop
from ..history import HistoryEntry, Metadata, entry_to_json
from ..history.metadata import NO_METADATA
from . import sql_changes as changes
from . import sql_leases as leasing
from . import sql_marks as marks
from . import sql_requests as requests
from . import sql_rows as rows
from .base import BaseStore
from .chain import decode_entry
from .database import Database
from .lazy import LazyEntries
from .leases import is_said_to_a_run
from .listing import ListQuery, RequestQuery
from .positions import ends_answer
from .protocol import (
    Head,
    Lease,
    Mark,
    OpenedSession,
    RequestPage,
    SessionInfo,
    SessionPage,
    Snapshot,
    Tombstone,
    VerifyReport,
)
from .refusals import (
    MAX_SERIAL,
    require_append,
    require_listed_id,
    require_new_session_id,
    require_serial,
    require_session_id,
)
from .refusals import new_session_id as fresh_session_id
from .requests import Change, changes_of
from .snapshots import is_named_by
from .sql_leases import Claim

__all__ = ["SQLStore"]

_Result = TypeVar("_Result")
_Connection = TypeVar("_Connection", bound=Database)


class SQLStore(BaseStore, Generic[_Connection]):
    """A `SessionStore` of rows. It checks the arguments and says what is to be done with a database.

    It has `threads` threads, which start when they are first needed, and keeps as many idle connections.
    """

    def __init__(
        self, clock: Callable[[], datetime] | None, poll_seconds: float, tail_poll_seconds: float, threads: int
    ) -> None:
        super().__init__(clock, poll_seconds, tail_poll_seconds)
        self._process = getpid()
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()

    # ------------------------------------------------------------ changes

    async def create(self, session_id: str | None = None, *, metadata: Mapping[str, Any] = NO_METADATA) -> SessionInfo:
        """Return a new, empty session."""
        name = fresh_session_id() if session_id is None else session_id
        require_new_session_id(name)
        noted, now = Metadata.of(metadata), self._now()
        return await self._write(lambda database: changes.create_session(database, name, now=now, metadata=noted))

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        """Keep the entries, all or none; when it returns, they are on the disk."""
        require_session_id(session_id)
        require_append(entries, expected_serial)
        self._require_usable()
        encoded = [entry_to_json(entry) for entry in entries]
        if lease is None:
            claim = Claim(is_said=is_said_to_a_run(entries))
        else:
            claim = Claim(lease.token, ends_tail=ends_answer(entries))
            if claim.ends_tail:
                self._close_tail(lease)
                await self._tail_writer.settle(session_id)
        head = await self._append(session_id, encoded, expected_serial, claim, changes_of(entries))
        self._notices.tell((session_id,))
        return head

    async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease:
        return await self._write(lambda database: leasing.acquire_lease(database, session_id, token, seconds))

    async def renew_lease(self, lease: Lease) -> Head:
        """Let the lease last for its seconds from now, and return how far the session is."""
        return await self._write(lambda database: leasing.renew_lease(database, lease))

    async def release_lease(self, lease: Lease) -> None:
        """Give the lease back."""
        self._close_tail(lease)
        await self._tail_writer.settle(lease.session_id)
        await self._write(lambda database: leasing.release_lease(database, lease))

    async def find_lease(self, session_id: str) -> Lease | None:
        """Return the lease of the session's owner."""
        require_session_id(session_id)

        def find(database: Database) -> Lease | None:
            held = leasing.find_held(database, rows.find_session(database, session_id).key, session_id)
            return None if held is None or held.is_free(database.now()) else held.lease

        return await self._read(find)

    async def fork(
        self,
        session_id: str,
        serial: int,
        *,
        new_session_id: str | None = None,
        metadata: Mapping[str, Any] = NO_METADATA,
    ) -> SessionInfo:
        """Return a new session that shares the entries up to `serial`: one row, however long it is."""
        name = fresh_session_id() if new_session_id is None else new_session_id
        require_session_id(session_id)
        require_new_session_id(name, "new_session_id")
        require_serial(serial, "serial", -1)
        noted, now = Metadata.of(metadata), self._now()
        return await self._write(
            lambda database: changes.fork_session(database, session_id, serial, name, now=now, metadata=noted)
        )

    async def erase(self, session_id: str, *, forks: Iterable[str] = (), force: bool = False) -> Tombstone:
        """Remove the session and the forks that are named, from every page that held them.

        The pages are written anew, so this takes as long as all sessions are large. Erasing again what was erased
        finishes a cleaning that was interrupted.
        """
        named = tuple(dict.fromkeys(forks))
        for each in (session_id, *named):
            require_listed_id(each)
        now = self._now()

        def erase(database: Database) -> Tombstone:
            found = rows.find_tombstone(database, session_id)
            return found or changes.erase_session(database, session_id, named, now, force=force)

        tombstone = await self._erase(erase)
        self._notices.tell((session_id, *named))
        return tombstone

    async def keep_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot for `open`."""
        require_session_id(session_id)
        require_serial(snapshot.serial, "snapshot.serial")
        await self._write(lambda database: changes.put_snapshot(database, session_id, snapshot))

    async def drop_snapshots(self, session_id: str) -> None:
        """Throw the snapshots away."""
        require_session_id(session_id)
        await self._write(lambda database: changes.drop_snapshots(database, session_id))

    # ------------------------------------------------------------ questions

    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        """Return the entries from a serial on, each checked."""
        require_session_id(session_id)
        require_serial(from_serial, "from_serial")
        end = MAX_SERIAL if until_serial is None else until_serial
        require_serial(end, "until_serial")

        def load(database: Database) -> tuple[HistoryEntry, ...]:
            encoded = rows.read_json(database, rows.find_session(database, session_id), from_serial, end)
            return tuple(decode_entry(data, serial) for serial, data in enumerate(encoded, from_serial))

        return await self._read(load)

    async def open(self, session_id: str) -> OpenedSession:
        """Return what opens a session fast; its entries are read a page at a time."""
        require_session_id(session_id)

        def read_page(first: int, end: int) -> Sequence[bytes]:
            return self._read_now(
                lambda database: rows.read_json(database, rows.find_session(database, session_id), first, end)
            )

        def open_session(database: Database) -> OpenedSession:
            session = rows.find_session(database, session_id)
            size = session.head.next_serial
            for snapshot in (rows.newest_snapshot(database, session), None):
                first = 0 if snapshot is None else snapshot.serial + 1
                # A session asks for these at once. They may be large, and here a thread reads them, not the event loop.
                newest = [
                    decode_entry(data, serial)
                    for serial, data in enumerate(rows.read_json(database, session, first, size), first)
                ]
                if snapshot is None or is_named_by(snapshot, newest[0]):
                    break
            entries = LazyEntries(size, read_page, newest)
            return OpenedSession(rows.info_of(database, session.key), entries, snapshot)

        return await self._read(open_session)

    async def head(self, session_id: str) -> Head:
        """Return how far the session is."""
        require_session_id(session_id)
        return await self._read(lambda database: rows.find_sound_end(database, session_id).head)

    async def info(self, session_id: str) -> SessionInfo:
        """Return what is known of the session."""
        require_session_id(session_id)
        return await self._read(lambda database: rows.info_of(database, rows.find_session(database, session_id).key))

    async def verify(self, session_id: str, *, kept: Head | None = None) -> VerifyReport:
        """Read everything and check it; what the database itself cannot read any more is reported too."""
        require_listed_id(session_id)
        return await self._read(lambda database: rows.verify_session(database, session_id, kept))

    async def tombstone(self, session_id: str) -> Tombstone | None:
        """Return what is left of an erased session."""
        require_session_id(session_id)
        return await self._read(lambda database: rows.find_tombstone(database, session_id))

    async def close(self) -> None:
        """Finish what was begun, end the followers, and let go of the database."""
        await super().close()
        await finish(running_loop().run_in_executor(None, self._close))

    async def _list_requests(self, query: RequestQuery) -> RequestPage:
        return await self._read(lambda database: requests.list_requests(database, query))

    async def _find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        return await self._read(lambda database: marks.find_marks(database, words))

    async def _list(self, query: ListQuery) -> SessionPage:
        return await self._read(lambda database: rows.list_sessions(database, query))

    # ------------------------------------------------------------ threads and connections

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        with self._lock:
            self._require_usable()
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, "dragoman-store")
            future = running_loop().run_in_executor(self._executor, work)
        return await future

    def _take_idle(self) -> _Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _put_back(self, connection: _Connection, *, is_open: bool = True) -> None:
        with self._lock:
            is_kept = is_open and not self._notices.is_closed and len(self._idle) < self._threads
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def _close(self) -> None:
        """Finish what was begun and close every connection. Blocks; may be called again."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ------------------------------------------------------------ what each database does in its own way

    @abstractmethod
    async def _append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim, changes: Sequence[Change] = ()
    ) -> Head:
        """Return the head that the entries lead to, when they are on the disk."""

    @abstractmethod
    async def _write(self, work: Callable[[Database], _Result]) -> _Result:
        """Do `work` in a transaction that may write, and return what it returned when that is on the disk."""

    @abstractmethod
    async def _erase(self, work: Callable[[Database], Tombstone]) -> Tombstone:
        """Do `work` in a transaction; then see to it that no page holds what it has deleted."""

    @abstractmethod
    async def _read(self, work: Callable[[Database], _Result]) -> _Result:
        """Do `work` in a transaction that sees one state of the database, in a thread."""

    @abstractmethod
    def _read_now(self, work: Callable[[Database], _Result]) -> _Result:
        """Do the same in this thread."""

    def _require_usable(self) -> None:
        super()._require_usable()
        if getpid() != self._process:
            raise InvalidValue("a store does not survive os.fork: open another one in the child")
