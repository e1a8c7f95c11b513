"""Sessions that the gateway keeps open, so that a request does not read its session again; the newest ones alone."""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import ErrorCode, StoreError
from ...history import ClientAnswerEntry, ClientRequestEntry, HistoryEntry, ModelOutputEntry
from ...store import Session, open_session
from .conversations import answer_key

if TYPE_CHECKING:
    from ...history import Clock
    from ...message import Message
    from ...store import SessionStore

__all__ = ["KeptSession", "KeptSessions"]

SESSIONS = 64
# What one session may keep in memory of what was added since it was opened.
ENTRIES = 2_000
BYTES = 4_000_000


class KeptSession:
    """An open session. A task that decides by its entries what to append holds `lock`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        self._opened = self._weighed = len(session.entries)
        self._bytes = 0
        self._answers: dict[bytes, list[int]] = {}  # by their keys: the serials of the outputs that say so
        self._read = 0  # entries whose outputs are known

    @property
    def session_id(self) -> str:
        """The id in the store."""
        return self.session.session_id

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        """The entries so far, as a view that stays as it is."""
        return self.session.entries

    @property
    def is_side(self) -> bool:
        """Whether it has requests beside a conversation, such as those for titles."""
        return self.session.metadata.get("side") is True

    @property
    def is_large(self) -> bool:
        """Whether so much was added that it is better opened anew: entries are then read when they are asked for."""
        entries = self.entries
        if len(entries) - self._opened > ENTRIES:
            return True
        for serial in range(self._weighed, len(entries)):
            entry = entries[serial]
            if isinstance(entry, ClientAnswerEntry):
                self._bytes += len(entry.packed)
            elif isinstance(entry, ClientRequestEntry):
                self._bytes += len(entry.text)
        self._weighed = len(entries)
        return self._bytes > BYTES

    def answers_in_turn(self, until: int) -> "Callable[[bytes], Message | None]":
        """Return what finds, for the key of an answer, the next output before the serial `until` that says the same."""
        self._read_answers()
        last = -1

        def find(key: bytes) -> "Message | None":
            nonlocal last
            serials = self._answers.get(key, [])
            at = bisect_right(serials, last)
            if at == len(serials) or serials[at] >= until:
                return None
            last = serials[at]
            output = self.entries[last]
            assert isinstance(output, ModelOutputEntry)
            return output.message

        return find

    def _read_answers(self) -> None:
        entries = self.entries
        for serial in range(self._read, len(entries)):
            entry = entries[serial]
            if isinstance(entry, ModelOutputEntry):
                self._answers.setdefault(answer_key(entry.message.parts), []).append(serial)
        self._read = len(entries)


class KeptSessions:
    """The open sessions of a store, by id."""

    def __init__(self, store: "SessionStore", clock: "Clock | None" = None) -> None:
        self._store = store
        self._clock = clock
        self._sessions: OrderedDict[str, KeptSession] = OrderedDict()

    async def open(self, session_id: str, *, least: int = 0) -> KeptSession:
        """Return the session with `least` entries, opened or refreshed if need be; raise what the store raises."""
        kept = self._sessions.get(session_id)
        if kept is None:
            session = await open_session(self._store, session_id, clock=self._clock, widgets=())
            kept = self._sessions.setdefault(session_id, KeptSession(session))  # another task may have been faster
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session_id)
        if len(kept.entries) < least:
            await kept.session.refresh()
        return kept

    async def find(self, session_id: str, *, least: int = 0) -> KeptSession | None:
        """Return the session; None if it is not in the store, or no longer."""
        try:
            kept = await self.open(session_id, least=least)
        except StoreError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            self.forget(session_id)
            return None
        return kept if len(kept.entries) >= least else None

    def release(self, kept: KeptSession) -> None:
        """Keep a session no longer if it has grown large."""
        if kept.is_large and self._sessions.get(kept.session_id) is kept:
            self.forget(kept.session_id)

    def forget(self, session_id: str) -> None:
        """Open the session anew when it is next asked for."""
        self._sessions.pop(session_id, None)

    def forget_all(self) -> None:
        """Open every session anew."""
        self._sessions.clear()
