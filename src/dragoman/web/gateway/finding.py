"""Which recorded turn a request continues, among those that a store has."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ...history import ClientRequestEntry, HistoryEntry
from ...message import Role
from .conversations import Frame, Prefix, mark_of
from .placing import NEAR, Place, find_place, frame_at, has_moved, is_own_turn, last_request

if TYPE_CHECKING:
    from ...message import Message
    from ...store import Mark, SessionStore
    from .kept_sessions import KeptSession, KeptSessions
    from .said import Said

__all__ = ["Found", "TurnFinder", "is_other_program", "is_side_request", "place_found", "place_joined"]

CANDIDATES = 8  # sessions that are looked at for one prefix
NEAR_WORDS = 48  # digests that are looked for first: almost always the turn before is among them
WORDS = 1_000  # that a store looks for at once


class Found(NamedTuple):
    """A recorded turn: its session, the entry that is marked, and the prefix of the request that it ends."""

    kept: "KeptSession"
    serial: int
    prefix: Prefix
    frame: Frame | None


class TurnFinder:
    """Finds the turn that a request continues, by the longest prefix of its messages that is recorded."""

    def __init__(self, store: "SessionStore", kept: "KeptSessions", is_busy: "Callable[[KeptSession], bool]") -> None:
        self._store = store
        self._kept = kept
        self._is_busy = is_busy

    async def find(self, said: "Said", frame: Frame) -> Found | None:
        """Return the turn; None if nothing of the request is recorded."""
        for page in _pages(list(reversed(said.prefixes.values()))):
            for prefix, marks in await self._look_up(page):
                if (found := await self._choose(said, frame, prefix, marks)) is not None:
                    return found
        return None

    async def find_joined(self, said: "Said", frame: Frame, joined: "KeptSession") -> Found | None:
        """Return the turn in the session that the client has joined, or in a session beside it."""
        for page in _pages(list(reversed(said.prefixes.values()))):
            for prefix, marks in await self._look_up(page):
                own = [mark.serial for mark in marks if mark.session_id == joined.session_id]
                if own:
                    if len(joined.entries) <= own[-1]:
                        await joined.session.refresh()
                    if is_own_turn(joined.entries, own[-1], prefix, said.messages):
                        return Found(joined, own[-1], prefix, frame_at(joined.entries, own[-1]))
                found = await self._choose(said, frame, prefix, marks)
                if found is not None and found.kept.is_side:
                    return found
        return None

    async def _look_up(self, prefixes: Sequence[Prefix]) -> "list[tuple[Prefix, list[Mark]]]":
        found: dict[str, list[Mark]] = {}
        for mark in await self._store.find_marks([mark_of(prefix.digest) for prefix in prefixes]):
            found.setdefault(mark.word, []).append(mark)
        return [(prefix, found[word]) for prefix in prefixes if (word := mark_of(prefix.digest)) in found]

    async def _choose(self, said: "Said", frame: Frame, prefix: Prefix, marks: "Sequence[Mark]") -> Found | None:
        """Return the turn that is meant: the one with the same system text and tools, in a session that ends there."""
        newest = {mark.session_id: mark.serial for mark in marks}
        best: tuple[tuple[int, bool, int], Found] | None = None
        for order, (session_id, serial) in enumerate(list(newest.items())[-CANDIDATES:]):
            kept = await self._kept.find(session_id, least=serial + 1)
            if kept is None:
                continue
            recorded = frame_at(kept.entries, serial)
            if kept.is_side and (recorded is None or frame.shares_nothing(recorded)):
                continue  # a conversation does not continue what was asked beside one
            end = find_place(kept.entries, serial, prefix, said.messages).end
            is_free = not has_moved(kept.entries, end) and not self._is_busy(kept)
            rank = (2 if recorded is None else frame.likeness(recorded), is_free, order)
            if best is None or rank > best[0]:
                best = rank, Found(kept, serial, prefix, recorded)
        return None if best is None else best[1]


def is_other_program(said: "Said", frame: Frame, found: Found) -> bool:
    """Whether the same words come from another program than the turn that was found, or ask for something else.

    Short words recur. Where they begin a conversation and were answered, another system text tells another program.
    """
    known = found.frame
    if known is None or found.prefix.digest != said.digest or frame == known:
        return False
    begins = all(message.role is not Role.ASSISTANT for message in said.messages)
    is_answered = has_moved(found.kept.entries, found.serial)
    return frame.is_side_of(known) or frame.shares_nothing(known) or (begins and is_answered)


def is_side_request(said: "Said", frame: Frame, entries: Sequence[HistoryEntry], found: Found | None) -> bool:
    """Whether a request to a session that its client has joined is no part of its conversation.

    Programs ask for titles without tools, and run agents of their own with fewer tools under another system text.
    """
    if found is not None and found.frame is not None and found.prefix.digest == said.digest:
        return frame.is_side_of(found.frame)
    newest = last_request(entries)
    noted = None if newest is None else Frame.of(newest)
    if found is None and noted is not None and frame.tool_count == 0 < noted.tool_count:
        return True
    for serial in range(len(entries) - 1, max(-1, len(entries) - 1 - NEAR), -1):
        entry = entries[serial]
        own = Frame.of(entry) if isinstance(entry, ClientRequestEntry) else None
        if own is not None and entry.metadata.get("program") == said.asked.client:
            return frame.shares_nothing(own) and frame.tool_count < own.tool_count
    return False


def place_found(found: Found, frame: Frame, messages: "Sequence[Message]") -> Place:
    """Where a request belongs in the session of the turn that was found.

    The same words with another system text or other tools are no repeat: their answer has that system text.
    """
    place = find_place(found.kept.entries, found.serial, found.prefix, messages)
    is_other = found.frame is not None and frame != found.frame
    return replace(place, is_repeat=False) if place.is_repeat and is_other else place


def place_joined(found: Found | None, frame: Frame, messages: "Sequence[Message]") -> Place:
    """Where a request belongs in a session that its client has joined. Another client may speak after `found`."""
    if found is None or not is_own_turn(found.kept.entries, found.serial, found.prefix, messages):
        return Place(-1, tuple(messages))
    return place_found(found, frame, messages)


def _pages(prefixes: Sequence[Prefix]) -> Iterator[Sequence[Prefix]]:
    """Yield the prefixes in pieces that a store looks for at once; the first piece is small."""
    begin, end = 0, NEAR_WORDS
    while begin < len(prefixes):
        yield prefixes[begin:end]
        begin, end = end, end + WORDS
