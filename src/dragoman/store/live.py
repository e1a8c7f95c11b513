"""Follows a session with the answer that is under way: entries and deltas in one order, each with its position."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from ..errors import StoreError
from .following import CHUNK, Load, Notices
from .positions import Followed, FollowedDelta, FollowedEntry, Position, ends_answer
from .tails import TailPiece, TailQuery, TailReader

__all__ = ["Watch", "follow_session"]


class Watch:
    """Tells one follower when to look again: after a notice, and every `poll_seconds` (None for never)."""

    def __init__(self, notices: Notices, session_id: str, poll_seconds: float | None) -> None:
        self._notices = notices
        self._session_id = session_id
        self._poll_seconds = poll_seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_changed = True
        self.waiter: asyncio.Future[None] | None = None  # of the follower, while it waits
        notices.add(session_id, self)

    def take(self) -> bool:
        """Return whether to look now. What changes from now on is noted for the next time."""
        is_changed, self._is_changed = self._is_changed, False
        if is_changed and self._poll_seconds is not None:
            # At the same moments for all followers: they read together.
            due = (self._loop.time() // self._poll_seconds + 1) * self._poll_seconds
            if self._timer is None or self._timer.when() != due:
                self._cancel()
                self._timer = self._loop.call_at(due, self.set_result, None)
        return is_changed

    @property
    def is_closed(self) -> bool:
        """Whether the store is closed."""
        return self._notices.is_closed

    def close(self) -> None:
        """Note nothing more."""
        self._notices.forget(self._session_id, self)
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------ what `Notices` calls

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the follower."""
        return self._loop

    def done(self) -> bool:
        """Return whether something has changed."""
        return self._is_changed

    def set_result(self, _result: None, /) -> None:
        """Note that something has changed."""
        self._is_changed = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


async def follow_session(
    load: Load, reader: TailReader, watch: Callable[[], tuple[Watch, Watch]], session_id: str, position: Position
) -> AsyncGenerator[Followed, None]:
    """Yield what comes after the position, until the store is closed.

    The deltas of an answer come after all entries from before it began. Deltas that are left over after the entry that
    ended their answer are passed over.
    """
    entries, tail = watch()
    fresh_from = 0  # an answer that began before this serial has ended
    try:
        while True:
            look = entries.take()
            pieces: Sequence[TailPiece] = ()
            if tail.take():
                pieces = await reader.read(TailQuery(session_id, position.stream, position.index))
            ready = [piece for piece in pieces if fresh_from <= piece.serial <= position.serial]
            ahead = [piece for piece in pieces if piece.serial > position.serial]
            for delta in _deltas(ready, position):
                position = delta.position
                yield delta
            while look or ahead:
                found = await load(position.serial, position.serial + CHUNK)
                for entry in found:
                    position = position.after_entry(entry)
                    if ends_answer((entry,)):
                        fresh_from = position.serial
                    yield FollowedEntry(entry, position)
                if len(found) < CHUNK:
                    break
            for delta in _deltas([piece for piece in ahead if fresh_from <= piece.serial <= position.serial], position):
                position = delta.position
                yield delta
            await _wait_for(entries, tail)
    except StoreError:
        if not entries.is_closed:
            raise
    finally:
        entries.close()
        tail.close()


def _deltas(pieces: Sequence[TailPiece], position: Position) -> list[FollowedDelta]:
    """The deltas of the pieces after the position."""
    found = []
    for piece in pieces:
        index = position.index if piece.stream == position.stream else 0
        if piece.first > index:  # a delta before it could not be read
            break
        for delta in piece.read_from(index):
            position = position.after_delta(piece.stream, delta)
            found.append(FollowedDelta(delta, position))
    return found


async def _wait_for(*watches: Watch) -> None:
    if any(watch.done() for watch in watches):
        return
    waiter = asyncio.get_running_loop().create_future()
    for watch in watches:
        watch.waiter = waiter
    await waiter
