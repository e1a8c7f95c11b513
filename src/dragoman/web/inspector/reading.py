"""The endpoints that read one session: outline, entries, search, calls, contexts, requests, differences, pictures."""

from typing import Any

import msgspec
from aiohttp import web

from ...catalogue import list_models
from ...errors import DragomanError, ErrorCode, InvalidValue, StoreError
from ...history import HistoryEntry, ModelOutputEntry
from ...review import PastCall
from .answers import answer_from_job, calls_of
from .cachereview import Fork
from .calls import count_tools, thin_calls
from .comparing import side_of
from .contextparts import MOST_PARTS, Part, describe_entry, describe_parts, levels_of, read_context
from .entrydata import entries_data, find_picture, find_text
from .following import follow
from .jobs import Check
from .records import Record
from .requestviews import RequestSource, answer_differences, answer_request, find_past_call, render_at
from .searching import find_hits
from .state import STATE, InspectorState, answer, read_number, session_of

__all__ = ["add_reading"]

MOST_ENTRIES = 500  # of one range
CUT = 6_000  # characters of one text in a range
MOST_MESSAGES = 20_000  # of a request that is rendered only to say where its anchors are
IMAGE_POLICY = "default-src 'none'; sandbox"


def add_reading(router: web.UrlDispatcher) -> None:
    """Add the endpoints."""
    router.add_get("/api/models", _models)
    for name, handler in {
        "": _info,
        "/outline": _outline,
        "/entries": _entries,
        "/entries/{serial}/text": _text,
        "/entries/{serial}/picture": _picture,
        "/entries/{serial}/checksum": _checksum,
        "/search": _search,
        "/calls": _calls,
        "/calls/{serial}": _call,
        "/calls/{serial}/entries/{entry}": _folded,
        "/cache": _cache,
        "/request": answer_request,
        "/differences": answer_differences,
        "/events": follow,
    }.items():
        router.add_get(f"/api/s/{{session}}{name}", handler)


async def _info(request: web.Request) -> web.Response:
    state = request.app[STATE]
    session_id = session_of(request)
    try:
        info = await state.store.info(session_id)
        lease = await state.store.find_lease(session_id)
    except StoreError as error:
        if error.code not in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW):
            raise
        known = await _known_of_damaged(state, session_id, error)
        lease = None
    else:
        fork = info.forked_from
        known = {
            "entries": info.head.next_serial,
            "checksum": info.head.checksum,
            "createdAt": info.created_at,
            "updatedAt": info.updated_at,
            "metadata": dict(info.metadata),
            "forkedFrom": None if fork is None else {"id": fork.session_id, "serial": fork.serial},
            "verified": state.verified_of(session_id, info.head.checksum),
            "brokenAt": None,
            "problem": "",
        }
    is_running = lease is not None or session_id in state.runs
    return answer(
        {
            "id": session_id,
            **known,
            "owner": None if lease is None else str(lease.owner),
            "isRunning": is_running,
            "isRequested": not is_running and await state.is_requested(session_id),
            "followers": state.followers.get(session_id, 0),
            "isReadOnly": state.is_read_only,
            "hasAgent": state.make_agent is not None and not state.is_read_only,
        }
    )


async def _known_of_damaged(state: InspectorState, session_id: str, error: StoreError) -> dict[str, Any]:
    """What is known of a session whose own row, or newest entry, is damaged: the entries before the damage."""
    record = await state.records.read(session_id)
    times = [entry.timestamp for entry in record.entries if entry.timestamp is not None]
    return {
        "entries": len(record.entries),
        "checksum": None,
        "createdAt": times[0] if times else None,
        "updatedAt": times[-1] if times else None,
        "metadata": {},
        "forkedFrom": None,
        "verified": None,
        "brokenAt": len(record.entries),
        "problem": record.problem or str(error),
    }


async def _outline(request: web.Request) -> web.Response:
    record = await request.app[STATE].record_of(request)
    columns = record.outline.columns(read_number(request, "from", 0))
    return answer({**columns, "brokenAt": record.broken_at, "problem": record.problem})


async def _entries(request: web.Request) -> web.Response:
    """A range of entries, read straight from the store if it is not at hand: no other entry is looked at."""
    state, session_id = request.app[STATE], session_of(request)
    first, count = read_number(request, "from", 0), read_number(request, "count", 100, most=MOST_ENTRIES)
    cut = read_number(request, "cut", CUT, most=1 << 20)
    return answer({"entries": entries_data(await state.records.load(session_id, first, count), cut)})


async def _entry_of(request: web.Request) -> HistoryEntry:
    serial = read_number(request, "serial")
    found = await request.app[STATE].store.load(session_of(request), serial, until_serial=serial + 1)
    if not found:
        raise StoreError(f"the session has no entry {serial}", code=ErrorCode.NOT_FOUND)
    return found[0]


async def _text(request: web.Request) -> web.Response:
    entry = await _entry_of(request)
    return answer(find_text(entry, request.query.get("at", ""), read_number(request, "from", 0)))


async def _picture(request: web.Request) -> web.Response:
    data, kind = find_picture(await _entry_of(request), request.query.get("at", ""))
    return web.Response(body=data, content_type=kind, headers={"Content-Security-Policy": IMAGE_POLICY})


async def _checksum(request: web.Request) -> web.Response:
    record, serial = await request.app[STATE].record_of(request), read_number(request, "serial")
    if serial >= len(record.entries):
        raise StoreError(f"the session has no entry {serial}", code=ErrorCode.NOT_FOUND)

    def work(check: Check) -> dict[str, Any]:
        own, before = record.checksum_of(serial, check), record.checksum_of(serial - 1)
        return {"serial": serial, "checksum": own.hex(), "previous": before.hex()}

    return await answer_from_job(request, record, f"checksum {serial}", work, keeps=False)


async def _search(request: web.Request) -> web.Response:
    record, words = await request.app[STATE].record_of(request), request.query.get("q", "")
    entries = record.entries[:]
    return await answer_from_job(request, record, f"search {words}", lambda check: find_hits(entries, words, check))


async def _models(_request: web.Request) -> web.Response:
    return answer({"models": [f"{info.provider}:{info.model_id}" for info in list_models()]})


# ---------------------------------------------------------------- calls and contexts


async def _calls(request: web.Request) -> web.Response:
    """The model calls; of very many, some evenly over all, and all near the serial `around`."""
    record = await request.app[STATE].record_of(request)
    around = read_number(request, "around") if request.query.get("around") else None
    calls, total = await calls_of(request, record)
    told = thin_calls(calls, around, record.review.missed)
    return answer({"calls": told, "total": total, "leftOut": len(calls) - len(told)})


def _call_in(record: Record, serial: int) -> HistoryEntry | None:
    """The answer of that serial; None for the call to come, which has the serial after the last."""
    if serial >= len(record.entries):
        return None
    entry = record.entries[serial]
    if not isinstance(entry, ModelOutputEntry):
        raise InvalidValue(f"entry {serial} is no answer of a model")
    return entry


async def _call(request: web.Request) -> web.Response:
    state = request.app[STATE]
    record, serial = await state.record_of(request), read_number(request, "serial")
    entry, entries = _call_in(record, serial), record.entries[:]

    def work(check: Check) -> dict[str, Any]:
        return _described(RequestSource(state, record.session_id, entries, check), serial, entry)

    return await answer_from_job(request, record, f"call {serial}", work)


def _described(session: RequestSource, serial: int, entry: HistoryEntry | None) -> dict[str, Any]:
    """What a call was sent: parts in order, anchors, levels, and what the context says of its size."""
    invocation = entry.invocation if isinstance(entry, ModelOutputEntry) else None
    context = read_context(session.entries[:serial], invocation, session.check)
    call = find_past_call(session.entries, serial)
    parts = [*_tool_parts(call), *describe_parts(context, MOST_PARTS)]
    anchors: tuple[int, ...] = ()
    stats: dict[str, Any] | None = None
    problem = None
    messages = sum(part.messages for part in parts)
    try:
        if messages > MOST_MESSAGES:
            raise InvalidValue(f"a request of {messages:,} messages is not rendered here: its anchors are not shown")
        rendered = render_at(session, None if entry is None else str(serial), "")
        anchors = rendered.context.cache_anchors
        stats = side_of(rendered)
    except DragomanError as error:
        problem = str(error)
    place = 0
    for part in parts:
        part.is_anchor = any(place <= anchor < place + part.messages for anchor in anchors)
        place += part.messages
    usage = entry.usage if isinstance(entry, ModelOutputEntry) else None
    return {
        "serial": serial,
        "parts": parts,
        "leftOut": sum(part.count for part in parts if part.count > 1),
        "levels": levels_of(context),
        "usage": None if usage is None else msgspec.to_builtins(usage),
        "request": stats,
        "problem": problem,
        "correction": context.timeline.correction.ratio,
        "counter": context.timeline.counter.name,
        "limit": context.projection.limit,
        "hasTools": call is not None and call.setup is not None,
    }


async def _folded(request: web.Request) -> web.Response:
    record = await request.app[STATE].record_of(request)
    serial, number = read_number(request, "serial"), read_number(request, "entry")
    entry = _call_in(record, serial)
    invocation = entry.invocation if isinstance(entry, ModelOutputEntry) else None

    before = record.entries[:serial]

    def work(check: Check) -> dict[str, Any]:
        return {"serial": number, "blocks": describe_entry(read_context(before, invocation, check), number, check)}

    return await answer_from_job(request, record, f"call {serial} entry {number}", work)


async def _cache(request: web.Request) -> web.Response:
    """Why calls missed the cache, call by call: of very many the newest, and more each time it is asked.

    With `around`, the answer has the call of that serial alone.
    """
    state = request.app[STATE]
    record = await state.record_of(request)
    fork = Fork()
    try:
        left = (await state.store.info(record.session_id)).forked_from
        if left is not None:
            fork = Fork(left.serial, (await state.records.read(left.session_id)).entries[:])
    except StoreError:
        pass  # the parent was erased, or the session's own row is damaged
    entries = record.entries[:]
    around = read_number(request, "around") if request.query.get("around") else None

    def work(check: Check) -> dict[str, Any]:
        review = record.review
        if around is not None:
            return review.look_at(around, entries, session_id=record.session_id, fork=fork)
        return review.look(entries, session_id=record.session_id, fork=fork, check=check)

    return await answer_from_job(request, record, f"cache {around}", work, keeps=False)


def _tool_parts(call: PastCall | None) -> list[Part]:
    """The tools of a call as a part of its request, where the record says them."""
    if call is None or call.setup is None or not call.setup.tools:
        return []
    tools = call.setup.tools
    return [
        Part(
            "tools", "fixed", count_tools(tools), f"{len(tools)}: {', '.join(tool.name for tool in tools)}", messages=0
        )
    ]
