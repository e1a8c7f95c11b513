"""What a session store promises, and the values that it gives. Knows no database.

A store keeps the entries of sessions: it appends, it never changes. It checks serials, not rules: which entry may
follow which is `AgentState`'s business.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..errors import ErrorCode, StoreError
from ..history import HistoryEntry
from ..history.metadata import NO_METADATA

if TYPE_CHECKING:
    from .positions import Followed, Position
    from .tails import AnswerTail

__all__ = [
    "START",
    "AppendConflict",
    "ForkPoint",
    "Head",
    "Lease",
    "LeaseLost",
    "LeaseOwner",
    "Mark",
    "OpenedSession",
    "RequestPage",
    "RunRequest",
    "SessionBusy",
    "SessionInfo",
    "SessionPage",
    "SessionStore",
    "Snapshot",
    "Tombstone",
    "VerifyReport",
]

START = bytes(32)  # the checksum before the first entry
LEASE_SECONDS = 6.0  # others wait so long after a crash on another machine; on this one they see it at once


class Head(msgspec.Struct, frozen=True):
    """How far a session is: the serial of its newest entry, -1 for none, and the checksum of all up to it.

    A user who keeps a head elsewhere can later prove by `verify` that nothing up to it was rewritten.
    """

    serial: int = -1
    checksum: str = START.hex()

    @property
    def next_serial(self) -> int:
        """The serial that the next entry gets."""
        return self.serial + 1


class ForkPoint(msgspec.Struct, frozen=True):
    """Where a fork left its parent: it shares the parent's entries up to `serial`, that one included."""

    session_id: str
    serial: int


class SessionInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What is known of a session without its entries. `updated_at` is the time in its newest entry."""

    session_id: str
    created_at: datetime
    updated_at: datetime
    head: Head = Head()
    metadata: Mapping[str, Any] = NO_METADATA
    forked_from: ForkPoint | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """Some sessions of a list, the newest first; `next_page` asks for those after them, None if there are none.

    `damaged` are the ids, as far as they can be read, of sessions in between whose own record is not what was written.
    It is unknown whether they fit. `verify` says what is wrong with one, and `erase` removes it.
    """

    sessions: tuple[SessionInfo, ...] = ()
    next_page: str | None = None
    damaged: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    """What followed from the entries up to `serial`, in a form that only `dragoman.store` reads; to save time alone.

    A session uses it only if the entry after it names the SHA-256 of `data`.
    """

    serial: int
    data: bytes


class OpenedSession(msgspec.Struct, frozen=True):
    """A session as `Session` wants it: all entries up to the head, read when they are asked for, and a snapshot.

    The snapshot is the newest whose checksum is that of its entry, if there is one.
    """

    info: SessionInfo
    entries: Sequence[HistoryEntry]
    snapshot: Snapshot | None = None


class VerifyReport(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What `verify` found. `head` is the end of what is sound.

    `bad_serial` is the first serial that is not what was appended or cannot be read here, -1 if the session's own
    record is not what was written; None if all is sound. If only a snapshot was changed, it is the snapshot's serial.
    """

    session_id: str
    head: Head
    bad_serial: int | None = None
    problem: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether everything is what was appended, and can be read."""
        return self.bad_serial is None


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of an erased session: that it was there, how long it was, and when it went."""

    session_id: str
    erased_at: datetime
    entries: int


class LeaseOwner(msgspec.Struct, frozen=True):
    """The process that has a lease. `machine` and `started` tell whether it still exists; empty where unknown."""

    host: str
    pid: int
    machine: str = ""
    started: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to carry a session on. `append` takes it and refuses one that another owner has taken since.

    `head` is how far the session was then; `previous` is the owner whose lease was taken because it had expired, or
    because its process no longer existed; None if the session was free.
    """

    session_id: str
    token: str
    owner: LeaseOwner
    acquired_at: datetime
    seconds: float
    head: Head = Head()
    previous: LeaseOwner | None = None


class RunRequest(msgspec.Struct, frozen=True):
    """A run that was requested: the entry of that serial, the agent, the run's id, the caller's key, and its status.

    `status` is queued, running, completed, failed or aborted. A run that waits for a person is running: its session
    tells more.
    """

    session_id: str
    serial: int
    agent: str
    run_id: str
    key: str
    status: str


class RequestPage(msgspec.Struct, frozen=True):
    """Some requests of a list, the newest first; `next_page` asks for those after them, None if there are none."""

    requests: tuple[RunRequest, ...] = ()
    next_page: str | None = None


class Mark(msgspec.Struct, frozen=True):
    """An entry that has this word among its `marks`."""

    word: str
    session_id: str
    serial: int


class SessionBusy(StoreError):
    """A run has the session; `lease` says whose it is and since when.

    The lease expires in `seconds_left`, unless its owner renews it: an owner that works does so five times in
    `lease.seconds`.
    """

    default_code = ErrorCode.BUSY

    def __init__(self, message: str, *, lease: Lease, seconds_left: float) -> None:
        super().__init__(message)
        self.lease = lease
        self.seconds_left = seconds_left

    @property
    def is_overdue(self) -> bool:
        """Whether the owner has missed renewals: it has died or stands still, or the machine is slow."""
        return self.seconds_left < self.lease.seconds / 2


class LeaseLost(StoreError):
    """Another owner has taken the session over: the owner of this lease appends nothing more."""

    default_code = ErrorCode.CONFLICT


class AppendConflict(StoreError):
    """Another writer has appended; `head` is how far the session is now."""

    default_code = ErrorCode.CONFLICT

    def __init__(self, message: str, *, head: Head | None = None) -> None:
        super().__init__(message)
        self.head = head or Head()


class SessionStore(Protocol):
    """Where entries live. Every method may be called from several tasks at once; all raise StoreError alone, or
    InvalidValue for arguments that no store takes.

    `not_found`: no such session, or it was erased. `conflict`: the serial or the name is taken. `corrupt`: what is
    there is not what was appended. `too_new`: a later version of this library wrote it.
    """

    async def create(self, session_id: str | None = None, *, metadata: Mapping[str, Any] = ...) -> SessionInfo:
        """Return a new, empty session; without an id it gets a random one. The id of an erased one is not free."""

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        """Keep the entries, all or none, and return the head they lead to. When it returns, they survive a crash.

        The first one must have the serial `expected_serial`, and the session must be that long; else AppendConflict.
        But if the very same entries, ids included, are there already, this is a retry after a lost answer: it changes
        nothing and returns what the first call would have. A run that is requested with the key of another request
        raises RequestKeyTaken. With a `lease` that another owner has taken: LeaseLost.
        Without one, on a session that has an owner: SessionBusy, unless the entries are words to its run (steering, a
        person's decision about a call, a request to abort) or request another run.
        """

    async def acquire_lease(
        self, session_id: str, *, seconds: float = LEASE_SECONDS, wait_seconds: float = 0.0
    ) -> Lease:
        """Return the lease of the session, for that many seconds; raise SessionBusy if an owner has it that long."""

    async def renew_lease(self, lease: Lease) -> Head:
        """Let the lease last for its seconds from now, and return how far the session is; raise LeaseLost."""

    async def release_lease(self, lease: Lease) -> None:
        """Give the lease back. One that another owner has taken stays theirs."""

    async def find_lease(self, session_id: str) -> Lease | None:
        """Return the lease of the session's owner, None if it is free."""

    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        """Return the entries from `from_serial` on, before `until_serial` if that is given; all of them checked."""

    async def open(self, session_id: str) -> OpenedSession:
        """Return what opens a session fast. Its entries are checked when they are read, and read while it is open."""

    async def head(self, session_id: str) -> Head:
        """Return how far the session is."""

    async def info(self, session_id: str) -> SessionInfo:
        """Return what is known of the session."""

    async def list(
        self,
        *,
        metadata: Mapping[str, Any] = ...,
        forks_of: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> SessionPage:
        """Return at most `limit` sessions that fit, the newest first; `page` is the `next_page` of the page before.

        A session fits `metadata` if it has these keys with these values, among others perhaps.
        """

    async def list_requests(
        self,
        *,
        session_id: str | None = None,
        serial: int | None = None,
        key: str | None = None,
        open_only: bool = False,
        limit: int = 100,
        page: str | None = None,
    ) -> RequestPage:
        """Return at most `limit` requested runs that fit, the newest first; `open_only` leaves out those that ended."""

    async def find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        """Return where entries have one of these words among their `marks`, the oldest first.

        At most 1,000 words are looked up, and the newest 50 marks of each are found.
        A fork does not repeat the marks of entries that it shares.
        """

    async def fork(
        self, session_id: str, serial: int, *, new_session_id: str | None = None, metadata: Mapping[str, Any] = ...
    ) -> SessionInfo:
        """Return a new session that shares the entries up to `serial`, -1 for none; the cost is always the same."""

    def follow(self, session_id: str, from_serial: int = 0) -> AsyncIterator[HistoryEntry]:
        """Yield the entries from `from_serial` on, then each new one of every writer, until the store is closed."""

    def begin_tail(self, lease: Lease, serial: int) -> "AnswerTail":
        """Return what takes the deltas of an answer that begins now, for followers; `serial` is that of the next entry.

        They are operational data. The append that ends the answer deletes them, and so do the next answer, the release
        of the lease and the next owner. While the lease is expired they are not read: the owner may have been killed.
        With a lease that was lost nothing is written.
        """

    def follow_live(self, session_id: str, position: "Position | str | int" = 0) -> AsyncGenerator["Followed", None]:
        """Yield the entries from a position on and the deltas of the answer under way, each with the position after it.

        An answer's deltas come in order, none twice. The last of them may be missing when the entry comes that ends it.
        """

    async def verify(self, session_id: str, *, kept: Head | None = None) -> VerifyReport:
        """Check every byte against the chain of checksums, and every entry against the rules of the history.

        A snapshot that a session could open from must say what the entries say. With a head kept elsewhere, check that
        it is still in there.
        """

    async def erase(self, session_id: str, *, forks: Iterable[str] = (), force: bool = False) -> Tombstone:
        """Remove the session for good, and leave a tombstone.

        A session that others were forked from is refused (`conflict`) unless they are all named: they go with it. One
        that a run has is refused (`busy`) unless forced.
        """

    async def tombstone(self, session_id: str) -> Tombstone | None:
        """Return what is left of an erased session, None if none of that id was erased."""

    async def keep_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot for `open`. Older ones may go."""

    async def drop_snapshots(self, session_id: str) -> None:
        """Delete the snapshots; only the time that opening takes changes."""

    async def close(self) -> None:
        """Finish what was begun and free all resources. Nothing works afterwards; closing twice is fine."""
