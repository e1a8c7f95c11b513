"""The list of sessions: what is known at once, what needs their entries, search, and whether the record is sound."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiohttp import web

from ...errors import DragomanError, ErrorCode, StoreError
from ...history import ModelInputEntry
from ...message import Text
from ...store import SessionInfo
from .answers import calls_of
from .searching import says
from .state import STATE, InspectorState, answer, read_number, session_of

__all__ = ["add_sessions"]

PAGE = 500  # sessions of one answer
FEW_ENTRIES = 200  # are searched at once, without a job
TITLE_LENGTH = 140
TITLE_ENTRIES = 8  # the first words of a conversation are among so many entries
SEARCH_SECONDS = 3.0  # for the text of all sessions; what was not searched is told


def add_sessions(router: web.UrlDispatcher) -> None:
    """Add the endpoints."""
    router.add_get("/api/sessions", _list)
    router.add_get("/api/s/{session}/summary", _summary)
    router.add_get("/api/s/{session}/verify", _verify)


async def _list(request: web.Request) -> web.Response:
    """Sessions by their last use, at most `count` from the place `from` on; `total` is how many there are."""
    state = request.app[STATE]
    words = request.query.get("q", "").strip()
    first, count = read_number(request, "from", 0), read_number(request, "count", PAGE, most=PAGE)
    end = time.monotonic() + SEARCH_SECONDS
    known: list[SessionInfo] = []
    damaged: list[str] = []
    async for info in _every_session(state):
        if isinstance(info, str):
            damaged.append(info)
        else:
            known.append(info)
    known.sort(key=lambda info: info.updated_at, reverse=True)
    result: dict[str, Any] = {
        "total": len(known) + len(damaged),
        "place": state.place,
        "isReadOnly": state.is_read_only,
        "hasAgent": state.make_agent is not None and not state.is_read_only,
    }
    found: list[SessionInfo | str] = [*known, *damaged]
    if words:
        found, result["searched"] = await _search(request, found, words, end)
    model = request.query.get("model", "")
    if model:
        looked = 0
        candidates, found = found, []
        for info in candidates:
            if time.monotonic() > end:
                break
            looked += 1
            if await _has_model(state, info, model):
                found.append(info)
        if looked < len(candidates):
            result["searched"] = looked
    result["found"] = len(found)
    listed = [
        {"id": info, "isDamaged": True} if isinstance(info, str) else await _listed(state, info)
        for info in found[first : first + count]
    ]
    return answer({**result, "sessions": listed})


async def _every_session(state: InspectorState) -> AsyncIterator[SessionInfo | str]:
    page: str | None = None
    while True:
        found = await state.store.list(limit=PAGE, page=page)
        for info in found.sessions:
            yield info
        for damaged in found.damaged:
            yield damaged
        page = found.next_page
        if page is None:
            return


async def _listed(state: InspectorState, info: SessionInfo) -> dict[str, Any]:
    fork = info.forked_from
    return {
        "id": info.session_id,
        "title": await _title(state, info),
        "createdAt": info.created_at.isoformat(),
        "updatedAt": info.updated_at.isoformat(),
        "entries": info.head.next_serial,
        "checksum": info.head.checksum,
        "forkedFrom": None if fork is None else {"id": fork.session_id, "serial": fork.serial},
        "importedFrom": info.metadata.get("imported_from"),
        "isRunning": info.session_id in state.runs or await state.store.find_lease(info.session_id) is not None,
        "verified": state.verified_of(info.session_id, info.head.checksum),
    }


async def _title(state: InspectorState, info: SessionInfo) -> str:
    title = info.metadata.get("title")
    if isinstance(title, str) and title:
        return title[:TITLE_LENGTH]
    # A fork is told from its parent by what was said in it first.
    own = 0 if info.forked_from is None else info.forked_from.serial + 1
    try:
        entries = [*await state.store.load(info.session_id, own, until_serial=own + TITLE_ENTRIES)]
        if own and not any(isinstance(entry, ModelInputEntry) for entry in entries):
            entries = [*await state.store.load(info.session_id, until_serial=TITLE_ENTRIES)]
    except DragomanError as error:
        return f"({error.code})"
    for entry in entries:
        if isinstance(entry, ModelInputEntry) and not entry.metadata.get("injected"):
            said = " ".join(part.text[: 4 * TITLE_LENGTH] for part in entry.parts if isinstance(part, Text))
            return " ".join(said.split())[:TITLE_LENGTH] or "(no text)"
    return ""


async def _search(
    request: web.Request, sessions: Sequence[SessionInfo | str], words: str, end: float
) -> tuple[list[SessionInfo | str], int]:
    """The sessions that have the words in their id, their title or their text, and how many were looked through.

    The ids of all are looked at. Titles and texts are read, the newest session first, until the time is over.
    """
    state, wanted = request.app[STATE], words.casefold()
    found: list[SessionInfo | str] = []
    searched, is_over = 0, False
    for info in sessions:
        if isinstance(info, str) or wanted in info.session_id.casefold():
            searched += 1
            if wanted in (info if isinstance(info, str) else info.session_id).casefold():
                found.append(info)
            continue
        is_over = is_over or time.monotonic() > end
        if is_over:
            continue
        try:
            async with asyncio.timeout(max(end - time.monotonic(), 0)):
                is_found = await _has_words(request, state, info, words)
        except TimeoutError:
            is_over = True
            continue
        except StoreError:
            continue
        searched += 1
        if is_found:
            found.append(info)
    return found, searched


async def _has_words(request: web.Request, state: InspectorState, info: SessionInfo, words: str) -> bool:
    wanted = words.casefold()
    if wanted in (await _title(state, info)).casefold():
        return True
    record = await state.records.read(info.session_id)
    if any(wanted in name.casefold() for name in record.outline.models):
        return True
    entries = record.entries[:]
    if len(entries) <= FEW_ENTRIES:
        return says(entries, words)
    key = (info.session_id, id(record), f"says {words}", len(entries))
    return await state.jobs.do(key, lambda check: says(entries, words, check), request)


async def _has_model(state: InspectorState, info: SessionInfo | str, model: str) -> bool:
    if isinstance(info, str):
        return False
    try:
        record = await state.records.read(info.session_id)
    except StoreError:
        return False
    return f":{model}" in record.outline.models


async def _summary(request: web.Request) -> web.Response:
    record = await request.app[STATE].record_of(request)
    _, total = await calls_of(request, record)
    return answer({**total, "brokenAt": record.broken_at})


async def _verify(request: web.Request) -> web.Response:
    state, session_id = request.app[STATE], session_of(request)
    try:
        head = await state.store.head(session_id)  # read first: what is appended meanwhile may not have been checked
    except StoreError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise
        head = None  # its own row is damaged: the list says so
    report = await state.store.verify(session_id)
    found = {
        "isSound": report.is_sound,
        "badSerial": report.bad_serial,
        "problem": report.problem,
        "serial": report.head.serial,
        "checksum": report.head.checksum,
    }
    if head is not None:
        state.verified[session_id] = (head.checksum, found)
    return answer(found)
