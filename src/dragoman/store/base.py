"""What every store of this package does alike: followers, lists, the clock, the end. Knows no database."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from .._finishing import finish
from ..errors import running_loop
from ..history import HistoryEntry
from ..history.metadata import NO_METADATA
from .following import Notices, follow_entries
from .leases import abandon_lease, give_back_lease, new_token
from .listing import ListQuery, RequestQuery
from .live import Watch, follow_session
from .marks import as_words
from .positions import Followed, Position
from .protocol import LEASE_SECONDS, Lease, Mark, RequestPage, SessionBusy, SessionPage
from .refusals import require_seconds, require_serial, require_session_id, store_closed
from .tails import AnswerTail, TailPiece, TailQuery, TailReader, TailWriter

__all__ = ["BaseStore"]

LEASE_POLL_SECONDS = 0.25  # between two checks whether a session is free


class BaseStore(ABC):
    """The part of a `SessionStore` that all stores share."""

    def __init__(
        self, clock: Callable[[], datetime] | None, poll_seconds: float | None, tail_poll_seconds: float | None
    ) -> None:
        self._clock = clock or (lambda: datetime.now(UTC))
        self._poll_seconds = poll_seconds  # how often a follower looks by itself; None if no other process can append
        self._tail_poll_seconds = tail_poll_seconds  # the same for deltas
        self._notices = Notices()
        self._tail_notices = Notices()
        self._tail_writer = TailWriter(self._write_tails, lambda: self._notices.is_closed)
        self._tail_reader = TailReader(self._read_tails)
        self._tails: dict[str, AnswerTail] = {}  # by the token of their lease: those begun here that did not end yet

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    async def list(
        self,
        *,
        metadata: Mapping[str, Any] = NO_METADATA,
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
        return await self._list(query)

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
        """Return the requested runs that fit, the newest first."""
        query = RequestQuery.of(
            session_id=session_id, serial=serial, key=key, open_only=open_only, limit=limit, page=page
        )
        return await self._list_requests(query)

    async def find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        """Return the newest marks of each word, the oldest first."""
        return await self._find_marks(as_words(words))

    def follow(self, session_id: str, from_serial: int = 0) -> AsyncIterator[HistoryEntry]:
        """Yield the entries from a serial on, then each new one of every writer as it comes."""
        require_session_id(session_id)
        require_serial(from_serial, "from_serial")
        return follow_entries(
            lambda first, end: self._look(session_id, first, end),
            self._notices,
            session_id,
            from_serial,
            self._poll_seconds,
        )

    def begin_tail(self, lease: Lease, serial: int) -> AnswerTail:
        """Return what shares the deltas of a new answer; `serial` is that of the session's next entry."""
        require_serial(serial, "serial")
        self._close_tail(lease)
        tail = self._tails[lease.token] = AnswerTail(self._tail_writer, lease, serial)
        return tail

    def follow_live(self, session_id: str, position: Position | str | int = 0) -> AsyncGenerator[Followed, None]:
        """Yield entries and the deltas of answers under way from a position on, as they come."""
        require_session_id(session_id)
        return follow_session(
            lambda first, end: self._look(session_id, first, end),
            self._tail_reader,
            lambda: (
                Watch(self._notices, session_id, self._poll_seconds),
                Watch(self._tail_notices, session_id, self._tail_poll_seconds),
            ),
            session_id,
            Position.of(position),
        )

    def _close_tail(self, lease: Lease) -> None:
        """Share no more deltas of the answer that was begun with this lease. The tail of a later owner stays open."""
        if (tail := self._tails.pop(lease.token, None)) is not None:
            tail.close()

    @abstractmethod
    async def _write_tails(self, pieces: Sequence[TailPiece]) -> None:
        """Keep the pieces whose lease is the session's, and wake the followers."""

    @abstractmethod
    async def _read_tails(self, queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
        """Return the pieces that were written with the session's lease and that the queries ask for."""

    async def acquire_lease(
        self, session_id: str, *, seconds: float = LEASE_SECONDS, wait_seconds: float = 0.0
    ) -> Lease:
        """Return the lease of the session; raise SessionBusy if an owner has it for all of `wait_seconds`."""
        require_session_id(session_id)
        require_seconds(seconds, "seconds", 0.05)
        require_seconds(wait_seconds, "wait_seconds", 0.0)
        deadline = running_loop().time() + wait_seconds
        while True:
            self._require_usable()
            try:
                return await self._acquire_or_give_back(session_id, seconds)
            except SessionBusy:
                left = deadline - running_loop().time()
                if left <= 0:
                    raise
                await asyncio.sleep(min(left, LEASE_POLL_SECONDS))

    async def _acquire_or_give_back(self, session_id: str, seconds: float) -> Lease:
        """Acquire the lease. If the caller is cancelled meanwhile, release it again."""

        token = new_token()

        async def acquire() -> Lease | BaseException:
            try:
                return await self._acquire_lease(session_id, token, seconds)
            except BaseException as error:  # noqa: BLE001  # raised below: out of a task, SystemExit would end the loop
                return error

        acquiring = asyncio.ensure_future(acquire())
        try:
            outcome = await finish(acquiring)
        except asyncio.CancelledError:
            if not acquiring.cancelled() and isinstance(lease := acquiring.result(), Lease):
                await finish(give_back_lease(self.release_lease, lease))
            raise
        if isinstance(outcome, BaseException):
            if not isinstance(outcome, SessionBusy):  # the store may have written it before the failure
                abandon_lease(token)
            raise outcome
        return outcome

    @abstractmethod
    async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease: ...

    @abstractmethod
    async def release_lease(self, lease: Lease) -> None:
        """Give the lease back."""

    @abstractmethod
    async def load(
        self, session_id: str, from_serial: int = 0, *, until_serial: int | None = None
    ) -> tuple[HistoryEntry, ...]:
        """Return the entries from a serial on, each checked."""

    async def close(self) -> None:
        """End the followers; nothing works afterwards."""
        self._notices.close()
        self._tail_notices.close()

    async def _look(self, session_id: str, first: int, end: int) -> tuple[HistoryEntry, ...]:
        """Return the entries for a follower. From then on it is notified of new ones."""
        return await self.load(session_id, first, until_serial=end)

    @abstractmethod
    async def _list_requests(self, query: RequestQuery) -> RequestPage: ...

    @abstractmethod
    async def _find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]: ...

    @abstractmethod
    async def _list(self, query: ListQuery) -> SessionPage: ...

    def _require_usable(self) -> None:
        if self._notices.is_closed:
            raise store_closed()

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)
