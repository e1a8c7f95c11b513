"""How a reader learns of new entries: by a notice of this process or the database, else by polling."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeAlias

from ..errors import StoreError
from ..history import HistoryEntry

__all__ = ["CHUNK", "Load", "Notices", "follow_entries"]

CHUNK = 256  # entries that are read at once

Load: TypeAlias = Callable[[int, int], Coroutine[Any, Any, tuple[HistoryEntry, ...]]]


class Waiting(Protocol):
    """What a notice wakes, in its event loop: a future, or what has these methods of one."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that it belongs to."""

    def done(self) -> bool:
        """Return whether it was woken."""

    def set_result(self, result: None, /) -> None:
        """Wake it."""


class Notices:
    """Wakes the followers of a session when it changes. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Waiting]] = {}
        self.is_closed = False

    def expect(self, session_id: str) -> asyncio.Future[None]:
        """Return a future of the running loop that is done when the session has grown, or everything is closed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(session_id, future)
        return future

    def add(self, session_id: str, waiting: Waiting) -> None:
        """Wake this, which belongs to the running loop, when the session has changed or everything is closed."""
        with self._lock:
            self._waiting.setdefault(session_id, set()).add(waiting)
            if self.is_closed:
                waiting.set_result(None)

    def forget(self, session_id: str, waited: Waiting) -> None:
        """Wake it no more."""
        with self._lock:
            waiting = self._waiting.get(session_id, set())
            waiting.discard(waited)
            if not waiting:
                self._waiting.pop(session_id, None)

    def tell(self, session_ids: Iterable[str]) -> None:
        """Wake the followers of these sessions."""
        if not self._waiting:
            return
        with self._lock:
            futures = [future for session_id in session_ids for future in self._waiting.get(session_id, ())]
        by_loop: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        for future in futures:
            by_loop.setdefault(future.get_loop(), []).append(future)
        for loop, waiting in by_loop.items():
            try:
                loop.call_soon_threadsafe(_wake, waiting)
            except RuntimeError:  # the loop is closed: no follower waits there
                pass

    def tell_all(self) -> None:
        """Wake all followers: a notice may have been lost."""
        with self._lock:
            sessions = list(self._waiting)
        self.tell(sessions)

    def close(self) -> None:
        """Wake all followers for the last time."""
        with self._lock:
            self.is_closed = True
        self.tell_all()


async def follow_entries(
    load: Load, notices: Notices, session_id: str, serial: int, poll_seconds: float | None
) -> AsyncIterator[HistoryEntry]:
    """Yield the entries from `serial` on as they come, until the store is closed.

    `poll_seconds` is how long to wait for a notice before looking again; None if no other process can append.
    """
    while not notices.is_closed:
        grown = notices.expect(session_id)  # before looking, so that nothing is missed in between
        try:
            try:
                entries = await load(serial, serial + CHUNK)
            except StoreError:
                if notices.is_closed:
                    return
                raise
            for entry in entries:
                yield entry
            serial += len(entries)
            if not entries:
                await asyncio.wait((grown,), timeout=poll_seconds)
        finally:
            notices.forget(session_id, grown)


def _wake(waiting: Iterable[Waiting]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)
