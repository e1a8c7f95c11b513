"""The list of sessions: what is known at once, what needs their entries, search, and whether the record is sound."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from ...errors import DragomanError, StoreError
from ...history import ModelInputEntry
from ...message import Text
from ...store import SessionInfo
from .calls import list_calls, summarise_calls
from .desk import DESK, Desk, answer, session_of
from .searching import says

__all__ = ["add_sessions"]

PAGE = 500
TITLE_LENGTH = 140
TITLE_ENTRIES = 8  # the first words of a conversation are among so many entries
SEARCH_SECONDS = 3.0  # for the text of all sessions; what was not searched is told


def add_sessions(router: web.UrlDispatcher) -> None:
    """Add the endpoints."""
    router.add_get("/api/sessions", _list)
    router.add_get("/api/s/{session}/summary", _summary)
    router.add_get("/api/s/{session}/verify", _verify)


async def _list(request: web.Request) -> web.Response:
    desk = request.app[DESK]
    words = request.query.get("q", "").strip()
    listed = [
        {"id": info, "isDamaged": True} if isinstance(info, str) else await _listed(desk, info)
        async for info in _every_session(desk)
    ]
    result: dict[str, Any] = {
        "total": len(listed),
        "place": desk.place,
        "isReadOnly": desk.is_read_only,
        "hasAgent": desk.make_agent is not None and not desk.is_read_only,
    }
    if words:
        listed, searched = await _search(desk, listed, words)
        result["searched"] = searched
    model = request.query.get("model", "")
    if model:
        listed = [each for each in listed if await _has_model(desk, each, model)]
    listed.sort(key=lambda each: str(each.get("updatedAt", "")), reverse=True)
    return answer({**result, "sessions": listed})


async def _every_session(desk: Desk) -> AsyncIterator[SessionInfo | str]:
    page: str | None = None
    while True:
        found = await desk.store.list(limit=PAGE, page=page)
        for info in found.sessions:
            yield info
        for damaged in found.damaged:
            yield damaged
        page = found.next_page
        if page is None:
            return


async def _listed(desk: Desk, info: SessionInfo) -> dict[str, Any]:
    fork = info.forked_from
    return {
        "id": info.session_id,
        "title": await _title(desk, info),
        "createdAt": info.created_at.isoformat(),
        "updatedAt": info.updated_at.isoformat(),
        "entries": info.head.next_serial,
        "checksum": info.head.checksum,
        "forkedFrom": None if fork is None else {"id": fork.session_id, "serial": fork.serial},
        "importedFrom": info.metadata.get("imported_from"),
        "isRunning": info.session_id in desk.runs or await desk.store.find_lease(info.session_id) is not None,
        "verified": _verified(desk, info.session_id, info.head.checksum),
    }


def _verified(desk: Desk, session_id: str, checksum: str) -> dict[str, Any] | None:
    """What the last check found, if nothing was appended since."""
    found = desk.verified.get(session_id)
    return found if found is not None and found["checksum"] == checksum else None


async def _title(desk: Desk, info: SessionInfo) -> str:
    title = info.metadata.get("title")
    if isinstance(title, str) and title:
        return title[:TITLE_LENGTH]
    # A fork is told from its parent by what was said in it first.
    own = 0 if info.forked_from is None else info.forked_from.serial + 1
    try:
        entries = [*await desk.store.load(info.session_id, own, until_serial=own + TITLE_ENTRIES)]
        if own and not any(isinstance(entry, ModelInputEntry) for entry in entries):
            entries = [*await desk.store.load(info.session_id, until_serial=TITLE_ENTRIES)]
    except DragomanError as error:
        return f"({error.code})"
    for entry in entries:
        if isinstance(entry, ModelInputEntry) and not entry.metadata.get("injected"):
            said = " ".join(part.text[: 4 * TITLE_LENGTH] for part in entry.parts if isinstance(part, Text))
            return " ".join(said.split())[:TITLE_LENGTH] or "(no text)"
    return ""


async def _search(desk: Desk, listed: list[dict[str, Any]], words: str) -> tuple[list[dict[str, Any]], int]:
    """The sessions that have the words in their id, their title or their text, and how many were looked through."""
    end = time.monotonic() + SEARCH_SECONDS
    wanted, found, searched = words.casefold(), [], 0
    for each in listed:
        is_named = wanted in each["id"].casefold() or wanted in str(each.get("title", "")).casefold()
        if not is_named and not each.get("isDamaged"):
            if time.monotonic() > end:
                continue
            try:
                record = await desk.records.read(each["id"])
            except StoreError:
                continue
            is_named = any(wanted in name.casefold() for name in record.outline.models)
            is_named = is_named or await asyncio.to_thread(says, list(record.entries), words)
        searched += 1
        if is_named:
            found.append(each)
    return found, searched


async def _has_model(desk: Desk, listed: dict[str, Any], model: str) -> bool:
    if listed.get("isDamaged"):
        return False
    try:
        record = await desk.records.read(listed["id"])
    except StoreError:
        return False
    return model in record.outline.columns()["models"]


async def _summary(request: web.Request) -> web.Response:
    desk = request.app[DESK]
    record = await desk.record_of(request)
    kept = desk.summaries.get(record.session_id)
    if kept is None or kept[0] != len(record.entries):
        calls = await asyncio.to_thread(list_calls, list(record.entries))
        kept = desk.summaries[record.session_id] = (len(record.entries), summarise_calls(calls))
    return answer({**kept[1], "brokenAt": record.broken_at})


async def _verify(request: web.Request) -> web.Response:
    desk = request.app[DESK]
    report = await desk.store.verify(session_of(request))
    found = {
        "isSound": report.is_sound,
        "badSerial": report.bad_serial,
        "problem": report.problem,
        "serial": report.head.serial,
        "checksum": report.head.checksum,
    }
    desk.verified[report.session_id] = found
    return answer(found)
