"""Sessions in memory, for tests and for programs that keep nothing: the same promises, but without durability."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from ..errors import StoreError
from ..history import DerivedState, HistoryEntry, Metadata, entry_to_json
from ..history.metadata import NO_METADATA
from .base import BaseStore
from .chain import chained, checked, decode_entry, follow, is_end_of
from .lazy import LazyEntries
from .leases import HeldLease, is_said_to_a_run, machine_time, new_lease, require_lease, require_not_leased
from .listing import ListQuery, RequestQuery, page_of
from .marks import MarkIndex
from .positions import ends_answer
from .protocol import (
    START,
    ForkPoint,
    Head,
    Lease,
    Mark,
    OpenedSession,
    RequestPage,
    RunRequest,
    SessionInfo,
    SessionPage,
    Snapshot,
    Tombstone,
    VerifyReport,
)
from .refusals import (
    append_conflict,
    compared_with_kept,
    fork_conflict,
    name_taken,
    new_session_id,
    no_session,
    not_a_fork,
    require_append,
    require_forks_named,
    require_new_session_id,
    require_serial,
    require_session_id,
)
from .requests import QUEUED, Added, Change, Marked, RequestKeyTaken, changes_of, moved_by, own_keys
from .snapshots import describe_mismatch
from .tails import TailPiece, TailQuery

__all__ = ["MemoryStore"]


class _Kept:
    """One session: its own entries, and those that it shares with its parent."""

    def __init__(self, number: int, info: SessionInfo, parent: "_Kept | None" = None) -> None:
        self.number = number
        self.info = info
        self.parent = parent
        self.first = info.head.next_serial  # the serial of the first entry of its own
        self.entries: list[bytes] = []
        self.checksums: list[bytes] = []
        self.snapshots: dict[int, Snapshot] = {}
        self.held: HeldLease | None = None
        self.tail: list[TailPiece] = []
        self.requests: list[tuple[int, RunRequest]] = []  # with their numbers

    def record(self, changes: Iterable[Change], number: int) -> int:
        """Take in what an append changes of requested runs; return the number of the newest request."""
        for change in changes:
            if isinstance(change, Added):
                number += 1
                request = RunRequest(self.info.session_id, *change, QUEUED)
                self.requests.append((number, request))
            elif not isinstance(change, Marked):
                self.requests = [(each, moved_by(change, request)) for each, request in self.requests]
        return number

    def checksum(self, serial: int) -> bytes:
        """The checksum of the entry of that serial, or of the beginning."""
        if serial < self.first:
            return self.parent.checksum(serial) if self.parent else START
        return self.checksums[serial - self.first]

    def json(self, first: int, end: int) -> list[bytes]:
        """The entries from `first` on, before `end`."""
        shared = self.parent.json(first, min(end, self.first)) if self.parent and first < self.first else []
        return shared + self.entries[max(0, first - self.first) : max(0, end - self.first)]

    def read(self, first: int, end: int) -> Sequence[bytes]:
        """The same, checked."""
        end = min(end, self.info.head.next_serial)
        rows = ((first + index, data, self.checksum(first + index)) for index, data in enumerate(self.json(first, end)))
        return list(checked(rows, first, self.checksum(first - 1))) if first < end else []


class MemoryStore(BaseStore):
    """A `SessionStore` without a file."""

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(clock, None, None)
        self._sessions: dict[str, _Kept] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._created = self._requested = 0
        self._marks = MarkIndex()
        self._lock = threading.RLock()  # several event loops may write

    def __repr__(self) -> str:
        return f"<MemoryStore, {len(self._sessions)} sessions>"

    async def create(self, session_id: str | None = None, *, metadata: Mapping[str, Any] = NO_METADATA) -> SessionInfo:
        """Return a new, empty session."""
        return self._create(session_id, metadata, Head(), None).info

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        """Keep the entries, all or none. It never waits: `Session` relies on that."""
        self._find(session_id)
        require_append(entries, expected_serial)
        encoded = [entry_to_json(entry) for entry in entries]
        with self._lock:
            kept = self._find(session_id)  # another thread may have erased it
            head = kept.info.head
            if expected_serial == head.next_serial:
                self._require_owner(kept, lease, entries)
            else:
                last = expected_serial + len(encoded) - 1
                if last <= head.serial and is_end_of(kept.checksum(last), encoded, kept.checksum(expected_serial - 1)):
                    return Head(last, kept.checksum(last).hex())
                self._require_owner(kept, lease, entries)
                raise append_conflict(session_id, expected_serial, head)
            changes = changes_of(entries)
            self._require_free_keys(changes)
            checksum = kept.checksum(head.serial)
            for data in encoded:
                checksum = chained(checksum, data)
                kept.entries.append(data)
                kept.checksums.append(checksum)
            updated = entries[-1].timestamp or kept.info.updated_at
            if lease is not None and ends_answer(entries):
                self._close_tail(lease)
                kept.tail = []
            head = Head(expected_serial + len(encoded) - 1, checksum.hex())
            kept.info = replace(kept.info, head=head, updated_at=updated)
            self._requested = kept.record(changes, self._requested)
            for change in changes:
                if isinstance(change, Marked):
                    self._marks.add(Mark(change.word, session_id, change.serial))
            self._notices.tell((session_id,))
            return head

    async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease:
        with self._lock:
            kept = self._find(session_id)
            kept.held = new_lease(session_id, kept.held, kept.info.head, machine_time(), token=token, seconds=seconds)
            kept.tail = []
            return kept.held.lease

    async def renew_lease(self, lease: Lease) -> Head:
        """Let the lease last for its seconds from now."""
        with self._lock:
            kept = self._find(lease.session_id)
            require_lease(lease.session_id, kept.held, lease)
            kept.held = HeldLease(lease, machine_time().after(lease.seconds))
            if kept.tail:  # a reader that looked while the lease was expired got nothing of it
                self._tail_notices.tell((lease.session_id,))
            return kept.info.head

    async def release_lease(self, lease: Lease) -> None:
        """Give the lease back."""
        with self._lock:
            self._close_tail(lease)
            kept = self._sessions.get(lease.session_id)
            if kept is not None and kept.held is not None and kept.held.lease.token == lease.token:
                kept.held = None
                kept.tail = []

    async def find_lease(self, session_id: str) -> Lease | None:
        """Return the lease of the session's owner."""
        held = self._find(session_id).held
        return None if held is None or held.is_free(machine_time()) else held.lease

    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        """Return the entries from a serial on."""
        kept = self._find(session_id)
        require_serial(from_serial, "from_serial")
        end = kept.info.head.next_serial if until_serial is None else until_serial
        require_serial(end, "until_serial")
        return tuple(decode_entry(data, serial) for serial, data in enumerate(kept.read(from_serial, end), from_serial))

    async def open(self, session_id: str) -> OpenedSession:
        """Return what opens a session fast."""
        kept = self._find(session_id)
        size = kept.info.head.next_serial
        snapshots = kept.snapshots  # another thread replaces it, and never changes it
        newest = max((serial for serial in snapshots if serial < size), default=None)
        snapshot = None if newest is None else snapshots[newest]
        return OpenedSession(kept.info, LazyEntries(size, kept.read), snapshot)

    async def head(self, session_id: str) -> Head:
        """Return how far the session is."""
        return self._find(session_id).info.head

    async def info(self, session_id: str) -> SessionInfo:
        """Return what is known of the session."""
        return self._find(session_id).info

    async def fork(
        self,
        session_id: str,
        serial: int,
        *,
        new_session_id: str | None = None,
        metadata: Mapping[str, Any] = NO_METADATA,
    ) -> SessionInfo:
        """Return a new session that shares the entries up to `serial`."""
        with self._lock:
            parent = self._find(session_id)
            require_serial(serial, "serial", -1)
            if serial > parent.info.head.serial:
                raise fork_conflict(session_id, serial, parent.info.head)
            return self._create(new_session_id, metadata, Head(serial, parent.checksum(serial).hex()), parent).info

    async def verify(self, session_id: str, *, kept: Head | None = None) -> VerifyReport:
        """Check every byte against the chain of checksums, and every entry against the rules of the history."""
        found = self._find(session_id)
        head, state, changed = Head(), DerivedState(), None
        for serial in range(found.info.head.next_serial):
            try:
                (data,) = found.read(serial, serial + 1)
                entry = decode_entry(data, serial)
                snapshot = found.snapshots.get(serial - 1)
                if snapshot is not None and changed is None and (said := describe_mismatch(snapshot, entry, state)):
                    changed = serial - 1, said
                state = follow(state, (entry,))
            except StoreError as error:
                return VerifyReport(session_id, head, serial, str(error))
            head = Head(serial, found.checksum(serial).hex())
        if changed is not None:
            return VerifyReport(session_id, head, *changed)
        return compared_with_kept(kept, VerifyReport(session_id, head), lambda serial: found.checksum(serial).hex())

    async def erase(self, session_id: str, *, forks: Iterable[str] = (), force: bool = False) -> Tombstone:
        """Remove the session and the forks that are named; leave tombstones."""
        with self._lock:
            self._require_usable()
            require_session_id(session_id)
            if session_id in self._tombstones:
                return self._tombstones[session_id]
            going = {session_id: self._find(session_id), **{each: self._find(each) for each in forks}}
            for each, kept in going.items():
                if each != session_id and kept.parent not in going.values():
                    raise not_a_fork(each, session_id)
            standing = [each for each, kept in self._sessions.items() if kept.parent in going.values()]
            require_forks_named(session_id, [each for each in standing if each not in going])
            for kept in going.values():
                if not force:
                    require_not_leased(kept.held, machine_time())
            for each, kept in going.items():
                count = kept.info.head.next_serial - kept.first
                self._tombstones[each] = Tombstone(each, self._now(), count)
                del self._sessions[each]
            self._marks.remove(going)
            self._notices.tell(going)
            return self._tombstones[session_id]

    async def tombstone(self, session_id: str) -> Tombstone | None:
        """Return what is left of an erased session."""
        self._require_usable()
        require_session_id(session_id)
        return self._tombstones.get(session_id)

    async def keep_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot for `open`, and drop the older one."""
        self._find(session_id).snapshots = {snapshot.serial: snapshot}

    async def drop_snapshots(self, session_id: str) -> None:
        """Throw the snapshots away."""
        self._find(session_id).snapshots = {}

    async def _write_tails(self, pieces: Sequence[TailPiece]) -> None:
        with self._lock:
            for piece in pieces:
                kept = self._sessions.get(piece.session_id)
                if kept is None or kept.held is None or kept.held.lease.token != piece.token:
                    continue
                if kept.tail and kept.tail[-1].stream != piece.stream:
                    kept.tail = []
                kept.tail.append(piece)
        self._tail_notices.tell({piece.session_id for piece in pieces})

    async def _read_tails(self, queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
        self._require_usable()
        with self._lock:
            now = machine_time()
            followed = {query.session_id: self._sessions.get(query.session_id) for query in queries}
            return [
                piece
                for kept in followed.values()
                if kept is not None and kept.held is not None and now.is_before(kept.held.expires)
                for piece in kept.tail
            ]

    async def _find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        self._require_usable()
        with self._lock:
            return self._marks.find(words)

    async def _list(self, query: ListQuery) -> SessionPage:
        self._require_usable()
        with self._lock:
            newest_first = [(kept.number, kept.info) for kept in reversed(self._sessions.values())]
        return page_of(query, (each for each in newest_first if query.before is None or each[0] < query.before))

    async def _list_requests(self, query: RequestQuery) -> RequestPage:
        self._require_usable()
        with self._lock:
            found = [each for kept in self._sessions.values() for each in kept.requests]
        newest_first = sorted(found, key=itemgetter(0), reverse=True)
        fitting = [(number, request) for number, request in newest_first if query.fits(number, request)]
        more = str(fitting[query.limit - 1][0]) if len(fitting) > query.limit else None
        return RequestPage(tuple(request for _, request in fitting[: query.limit]), more)

    def _require_free_keys(self, changes: Sequence[Change]) -> None:
        keys = own_keys(changes)
        for kept in self._sessions.values() if keys else ():
            for _, request in kept.requests:
                if request.key in keys:
                    raise RequestKeyTaken(request)

    def _require_owner(self, kept: _Kept, lease: Lease | None, entries: Sequence[HistoryEntry]) -> None:
        """Raise unless the caller may append these. An append by another caller removes a lease that is free."""
        if lease is not None:
            require_lease(kept.info.session_id, kept.held, lease)
        elif kept.held is not None and not is_said_to_a_run(entries):
            require_not_leased(kept.held, machine_time())
            kept.held = None
            kept.tail = []

    def _find(self, session_id: str) -> _Kept:
        self._require_usable()
        kept = self._sessions.get(session_id) if type(session_id) is str else None
        if kept is None:
            require_session_id(session_id)
            raise no_session(session_id, self._tombstones.get(session_id))
        return kept

    def _create(self, session_id: str | None, metadata: Mapping[str, Any], head: Head, parent: _Kept | None) -> _Kept:
        with self._lock:
            self._require_usable()
            name = new_session_id() if session_id is None else session_id
            require_new_session_id(name)
            if name in self._sessions or name in self._tombstones:
                raise name_taken(name, self._tombstones.get(name))
            now = self._now()
            point = None if parent is None else ForkPoint(parent.info.session_id, head.serial)
            self._created += 1
            kept = _Kept(self._created, SessionInfo(name, now, now, head, Metadata.of(metadata), point), parent)
            self._sessions[name] = kept
            return kept
