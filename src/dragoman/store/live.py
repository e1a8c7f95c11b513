"""Follows a session with the answer that is under way: entries and deltas in one order, each with its position."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import inf

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
        self.changed = notices.expect(session_id)
        self.due = 0.0  # by the clock of the event loop

    def take(self) -> bool:
        """Return whether to look now. What changes from now on is noted for the next time."""
        now = asyncio.get_running_loop().time()
        if not self.changed.done() and now < self.due:
            return False
        poll = self._poll_seconds
        self.due = inf if poll is None else (now // poll + 1) * poll  # the same for all followers: they read together
        if self.changed.done():
            self.close()
            self.changed = self._notices.expect(self._session_id)
        return True

    def close(self) -> None:
        """Note nothing more."""
        self._notices.forget(self._session_id, self.changed)


async def follow_session(
    load: Load, reader: TailReader, *, entries: Watch, tail: Watch, session_id: str, position: Position
) -> AsyncIterator[Followed]:
    """Yield what comes after the position, until an error of the store.

    The deltas of an answer come after all entries from before it began. Deltas that are left over after the entry that
    ended their answer are passed over.
    """
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
    due = min(watch.due for watch in watches)
    seconds = None if due == inf else max(0.0, due - asyncio.get_running_loop().time())
    await asyncio.wait([watch.changed for watch in watches], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
