"""Keeps the lease of a session while a run works: acquires it, renews it in the background, gives it back.

`Session.hold` makes one. An owner whose process was stopped for longer than its lease lasts learns it from the clock.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from .._finishing import finish
from ..errors import StoreError
from .leases import give_back_lease, lease_lost, machine_time
from .protocol import Lease, LeaseLost

if TYPE_CHECKING:
    from .session import Session

__all__ = ["SessionHold"]

RENEWALS = 5  # renewals in the time that a lease lasts; each also reads what others have said to the run


class SessionHold:
    """The lease of a session, for the time of an `async with` block. `Session.append` uses it meanwhile.

    `on_news` is called after the session has taken in what others said to the run, `on_lost` when another owner has
    taken the session, or may have: the store could not be reached before the lease expired.
    """

    def __init__(
        self,
        session: "Session",
        *,
        seconds: float,
        wait_seconds: float,
        on_news: Callable[[], None] | None = None,
        on_lost: Callable[[StoreError], None] | None = None,
    ) -> None:
        self._session = session
        self._seconds = seconds
        self._wait_seconds = wait_seconds
        self._on_news = on_news
        self._on_lost = on_lost
        self.lease: Lease | None = None  # while it is held
        self._expires = machine_time()
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lease:
        """Acquire the lease, take in what others have appended, and record it if another owner had not given it back.

        Raises SessionBusy.
        """
        store, begin = self._session.store, machine_time()
        lease = await store.acquire_lease(
            self._session.session_id, seconds=self._seconds, wait_seconds=self._wait_seconds
        )
        self.lease = lease
        self._expires = begin.after(self._seconds)
        try:
            await self._session._begin_hold(self, lease)
            await self.renew_if_old()  # the store gave it at some moment of the wait: from when on is not known
        except BaseException:
            await finish(give_back_lease(store.release_lease, lease))
            raise
        self._set_timer()
        return lease

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop renewing and give the lease back."""
        await finish(self._end())

    async def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait((self._renewing,))
        self._session._end_hold()
        assert self.lease is not None
        await give_back_lease(self._session.store.release_lease, self.lease)

    def require_valid(self) -> None:
        """Raise LeaseLost if the lease may have expired: another owner may have the session. It awaits nothing, so that
        nothing lies between this and what must not happen without the lease.
        """
        if not machine_time().is_before(self._expires):
            raise lease_lost(self._session.session_id)

    async def renew(self) -> None:
        """Let the lease last for its seconds from now; raise LeaseLost."""
        assert self.lease is not None
        begin = machine_time()
        head = await self._session.store.renew_lease(self.lease)
        self._expires = begin.after(self._seconds)
        if head.next_serial > self._session.state.next_serial:
            await self._session.refresh()

    def tell_news(self) -> None:
        """Tell the owner that its session has taken in what others said; `Session` calls it."""
        if self._on_news is not None:
            self._on_news()

    async def renew_if_old(self) -> None:
        """Renew it unless more than half of its time is left."""
        if not machine_time().after(self._seconds / 2).is_before(self._expires):
            await self.renew()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds / RENEWALS, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewing = asyncio.ensure_future(self._renew_now())

    async def _renew_now(self) -> None:
        try:
            await self.renew()
        except LeaseLost as error:
            self._lose(error)
            return
        except StoreError as error:  # tried again, as long as the lease lasts
            if not machine_time().is_before(self._expires):
                self._lose(error)
                return
        self._set_timer()

    def _lose(self, error: StoreError) -> None:
        if self._on_lost is not None:
            self._on_lost(error)
