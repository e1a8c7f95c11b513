"""Answers from the record: no model is asked.

A request gets the answers that were recorded for it, one after the other, then the last one again. One that was never
made is told the nearest recorded request and the first difference.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from ..._jsontext import sorted_json
from ...errors import UnreadableData
from ...history import ClientAnswerEntry, ClientRequestEntry
from ...history.exchanges import body_of
from .canonical import body_mark, plain_body
from .differences import SHOWN, Difference, first_difference, leaves_of, likeness, shared_length
from .refusals import nothing_there, write_refusal
from .responses import entry_at

if TYPE_CHECKING:
    from ...store import Mark, SessionInfo, SessionStore
    from .asked import Asked

__all__ = ["Nearest", "Replay", "Replayed"]

# What is searched for the nearest request, newest first.
SESSIONS = 500
REQUESTS = 300


class Nearest(msgspec.Struct, frozen=True):
    """The recorded request that is most like one that was never made, and where they differ first."""

    session_id: str
    serial: int
    difference: Difference

    def __str__(self) -> str:
        return f"the nearest is entry {self.serial} of session {self.session_id!r}, and {self.difference}"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a client gets: a recorded answer to the byte, or an error of its API that names the nearest request."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_recorded: bool = True
    nearest: Nearest | None = None


class _Answers(msgspec.Struct):
    """The recorded answers to one request, and how many of them were given."""

    marks: "list[Mark]"
    given: int = 0

    def next(self) -> "Mark":
        index, self.given = min(self.given, len(self.marks) - 1), self.given + 1
        return self.marks[index]


class Replay:
    """Answers requests from a store, which nothing writes meanwhile. Every key sees what all keys recorded."""

    def __init__(self, store: "SessionStore") -> None:
        self._store = store
        self._answers: dict[str, _Answers] = {}

    async def find(self, asked: "Asked") -> Replayed:
        """Return the recorded answer; raise StoreError where the store cannot be read.

        Answers that broke off are given only where there is no whole one, because the client never got their end.
        """
        word = body_mark(asked)
        answers = self._answers.get(word) or await self._read(word)
        if answers is None:
            return await self._never_made(asked)
        entry = await entry_at(self._store, answers.next())
        assert isinstance(entry, ClientAnswerEntry)
        return Replayed(status=entry.status, headers=dict(entry.headers), body=entry.body)

    async def _read(self, word: str) -> _Answers | None:
        found = [(mark, await entry_at(self._store, mark)) for mark in await self._store.find_marks((word,))]
        marks = [(mark, entry.is_whole) for mark, entry in found if isinstance(entry, ClientAnswerEntry)]
        if not marks:
            return None
        whole = [mark for mark, is_whole in marks if is_whole]
        return self._answers.setdefault(word, _Answers(whole or [mark for mark, _ in marks]))

    async def _never_made(self, asked: "Asked") -> Replayed:
        nearest = await find_nearest(self._store, asked)
        message = "this request is not in the record"
        message += f": {nearest}" if nearest is not None else ", which has none of this API"
        told = write_refusal(asked.api, nothing_there(message))
        return Replayed(status=told.status, headers=told.headers, body=told.body, is_recorded=False, nearest=nearest)


async def find_nearest(store: "SessionStore", asked: "Asked") -> Nearest | None:
    """Return the recorded request of the same API that has most in common with one, among the newest.

    Requests for the same model come first.
    """
    try:
        wanted = plain_body(asked.api, asked.body)
    except UnreadableData:
        return None
    leaves, written = leaves_of(wanted), sorted_json(wanted)
    best: tuple[tuple[bool, float, int], ClientRequestEntry, str, object] | None = None
    async for session_id, entry, body in _requests(store, asked.api):
        alike = (entry.model == asked.model, likeness(leaves, leaves_of(body)))
        if best is None or alike >= best[0][:2]:  # of equals, the one whose text is most like it, then the newest
            rank = (*alike, shared_length(written, sorted_json(body)))
            if best is None or rank > best[0]:
                best = rank, entry, session_id, body
    if best is None:
        return None
    _, entry, session_id, body = best
    difference = first_difference(body, wanted)
    if difference is None:  # the bodies are the same, so that the addresses are not
        difference = Difference("the address", repr(entry.path[:SHOWN]), repr(asked.path[:SHOWN]))
    return Nearest(session_id, entry.serial, difference)


async def _requests(store: "SessionStore", api: str) -> AsyncIterator[tuple[str, ClientRequestEntry, object]]:
    """Yield the newest requests of an API that can be read, each once, with their sessions and plain bodies."""
    count = 0
    async for info in _sessions(store):
        entries = (await store.open(info.session_id)).entries
        first = 0 if info.forked_from is None else info.forked_from.serial + 1  # a fork shares its parent's requests
        for serial in range(len(entries) - 1, first - 1, -1):
            entry = entries[serial]
            if not isinstance(entry, ClientRequestEntry) or entry.api != api or entry.method != "POST":
                continue
            try:
                body = plain_body(api, body_of(entries.__getitem__, entry))
            except UnreadableData:
                continue
            yield info.session_id, entry, body
            count += 1
            if count == REQUESTS:
                return


async def _sessions(store: "SessionStore") -> "AsyncIterator[SessionInfo]":
    page: str | None = None
    for _ in range(SESSIONS // 100):
        found = await store.list(limit=100, page=page)
        for info in found.sessions:
            yield info
        page = found.next_page
        if page is None:
            return
