"""The endpoints that read one session: outline, entries, search, calls, contexts, requests, differences, pictures."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from ...catalogue import list_models
from ...errors import DragomanError, ErrorCode, InvalidValue, StoreError
from ...history import HistoryEntry, ModelOutputEntry
from ...review import CacheCall, PastCall, find_calls, review_cache
from .calls import count_tools, list_calls, prices_of, summarise_calls
from .comparing import compare_requests, compare_row, side_of
from .contextparts import Part, describe_entry, describe_parts, levels_of, read_context
from .desk import DESK, Desk, answer, session_of, whole
from .entrydata import entry_data, find_picture, find_text
from .following import follow
from .records import Record
from .requests import Rendered, as_curl, model_name_of, render_call, render_past
from .searching import find_hits

__all__ = ["add_reading"]

MOST_ENTRIES = 500  # of one range
CUT = 6_000  # characters of one text in a range
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
        "/request": _request,
        "/differences": _differences,
        "/events": follow,
    }.items():
        router.add_get(f"/api/s/{{session}}{name}", handler)


async def _info(request: web.Request) -> web.Response:
    desk = request.app[DESK]
    session_id = session_of(request)
    info = await desk.store.info(session_id)
    lease = await desk.store.find_lease(session_id)
    fork = info.forked_from
    return answer(
        {
            "id": info.session_id,
            "entries": info.head.next_serial,
            "checksum": info.head.checksum,
            "createdAt": info.created_at,
            "updatedAt": info.updated_at,
            "metadata": dict(info.metadata),
            "forkedFrom": None if fork is None else {"id": fork.session_id, "serial": fork.serial},
            "owner": None if lease is None else str(lease.owner),
            "isRunning": lease is not None or session_id in desk.runs,
            "followers": desk.followers.get(session_id, 0),
            "isReadOnly": desk.is_read_only,
            "hasAgent": desk.make_agent is not None and not desk.is_read_only,
            "verified": desk.verified.get(session_id),
        }
    )


async def _outline(request: web.Request) -> web.Response:
    record = await request.app[DESK].record_of(request)
    columns = record.outline.columns(whole(request, "from", 0))
    return answer({**columns, "brokenAt": record.broken_at, "problem": record.problem})


async def _entries(request: web.Request) -> web.Response:
    """A range of entries, read straight from the store if it is not at hand: no other entry is looked at."""
    desk, session_id = request.app[DESK], session_of(request)
    first, count = whole(request, "from", 0), whole(request, "count", 100, most=MOST_ENTRIES)
    cut = whole(request, "cut", CUT, most=1 << 20)
    entries: Sequence[HistoryEntry] | None = desk.records.kept(session_id, first, count)
    try:
        entries = entries or await desk.store.load(session_id, first, until_serial=first + count)
    except StoreError as error:
        if error.code not in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW):
            raise
        entries = (await desk.records.read(session_id)).entries[first : first + count]  # what is before the damage
    return answer({"entries": [entry_data(entry, cut) for entry in entries]})


async def _entry_of(request: web.Request) -> HistoryEntry:
    serial = whole(request, "serial")
    found = await request.app[DESK].store.load(session_of(request), serial, until_serial=serial + 1)
    if not found:
        raise StoreError(f"the session has no entry {serial}", code=ErrorCode.NOT_FOUND)
    return found[0]


async def _text(request: web.Request) -> web.Response:
    entry = await _entry_of(request)
    return answer(find_text(entry, request.query.get("at", ""), whole(request, "from", 0)))


async def _picture(request: web.Request) -> web.Response:
    data, kind = find_picture(await _entry_of(request), request.query.get("at", ""))
    return web.Response(body=data, content_type=kind, headers={"Content-Security-Policy": IMAGE_POLICY})


async def _checksum(request: web.Request) -> web.Response:
    record, serial = await request.app[DESK].record_of(request), whole(request, "serial")
    if serial >= len(record.entries):
        raise StoreError(f"the session has no entry {serial}", code=ErrorCode.NOT_FOUND)
    own = await asyncio.to_thread(record.checksum_of, serial)
    return answer({"serial": serial, "checksum": own.hex(), "previous": record.checksum_of(serial - 1).hex()})


async def _search(request: web.Request) -> web.Response:
    record = await request.app[DESK].record_of(request)
    return answer(await asyncio.to_thread(find_hits, list(record.entries), request.query.get("q", "")))


async def _models(_request: web.Request) -> web.Response:
    return answer({"models": [f"{info.provider}:{info.model_id}" for info in list_models()]})


# ---------------------------------------------------------------- calls and contexts


async def _calls(request: web.Request) -> web.Response:
    record = await request.app[DESK].record_of(request)
    calls = await asyncio.to_thread(list_calls, list(record.entries))
    return answer({"calls": calls, "total": summarise_calls(calls)})


def _call_in(record: Record, serial: int) -> HistoryEntry | None:
    """The answer of that serial; None for the call to come, which has the serial after the last."""
    if serial >= len(record.entries):
        return None
    entry = record.entries[serial]
    if not isinstance(entry, ModelOutputEntry):
        raise InvalidValue(f"entry {serial} is no answer of a model")
    return entry


async def _call(request: web.Request) -> web.Response:
    desk = request.app[DESK]
    record, serial = await desk.record_of(request), whole(request, "serial")
    entry = _call_in(record, serial)
    return answer(await asyncio.to_thread(_described, desk, record, serial, entry))


def _described(desk: Desk, record: Record, serial: int, entry: HistoryEntry | None) -> dict[str, Any]:
    """What a call was sent: parts in order, anchors, levels, and what the context says of its size."""
    invocation = entry.invocation if isinstance(entry, ModelOutputEntry) else None
    before = record.entries[:serial]
    context = read_context(before, invocation)
    call = _past_call(record, serial)
    parts = [*_tool_parts(call), *describe_parts(context)]
    anchors: tuple[int, ...] = ()
    stats: dict[str, Any] | None = None
    problem = None
    try:
        rendered = _rendered(desk, record, None if entry is None else str(serial), "")
        anchors = rendered.context.cache_anchors
        stats = side_of(rendered)
    except DragomanError as error:
        problem = str(error)
    place = -1
    for part in parts:
        if part.messages:
            place += 1
            part.is_anchor = place in anchors
    usage = entry.usage if isinstance(entry, ModelOutputEntry) else None
    return {
        "serial": serial,
        "parts": parts,
        "levels": levels_of(context),
        "usage": None if usage is None else msgspec.to_builtins(usage),
        "request": stats,
        "problem": problem,
        "correction": context.timeline.correction.ratio,
        "counter": context.timeline.counter.name,
        "limit": context.projection.limit,
        "hasTools": call is not None and call.setup is not None,
    }


def _newest_answer(entries: Sequence[HistoryEntry]) -> HistoryEntry:
    found = next((entry for entry in reversed(entries) if isinstance(entry, ModelOutputEntry)), None)
    if found is None:
        raise InvalidValue("no model has answered yet: choose one")
    return found


async def _folded(request: web.Request) -> web.Response:
    record = await request.app[DESK].record_of(request)
    serial, number = whole(request, "serial"), whole(request, "entry")
    entry = _call_in(record, serial)
    invocation = entry.invocation if isinstance(entry, ModelOutputEntry) else None

    def describe() -> list[dict[str, Any]]:
        return describe_entry(read_context(record.entries[:serial], invocation), number)

    return answer({"serial": number, "blocks": await asyncio.to_thread(describe)})


async def _cache(request: web.Request) -> web.Response:
    """Why calls missed the cache, call by call."""
    desk = request.app[DESK]
    record = await desk.record_of(request)
    kept = desk.reviews.get(record.session_id)
    if kept is None or kept[0] != len(record.entries):
        fork = (await desk.store.info(record.session_id)).forked_from
        parent: Sequence[HistoryEntry] = ()
        if fork is not None:
            try:
                parent = (await desk.records.read(fork.session_id)).entries
            except StoreError:
                parent = ()  # it was erased
        calls = await asyncio.to_thread(
            review_cache,
            list(record.entries),
            session_id=record.session_id,
            forked_at=-1 if fork is None else fork.serial,
            parent_entries=parent,
        )
        written = [
            {**msgspec.to_builtins(call), "isMiss": call.is_miss, "missCost": _miss_cost(record, call)}
            for call in calls
        ]
        kept = desk.reviews[record.session_id] = (len(record.entries), written)
    return answer({"calls": kept[1]})


def _miss_cost(record: Record, call: CacheCall) -> float | None:
    """What a miss cost more than a hit of the whole request, in dollars; None where a price or a figure is unknown."""
    entry = record.entries[call.serial]
    prices = prices_of(entry.invocation if isinstance(entry, ModelOutputEntry) else None)
    if not call.is_miss or prices is None or prices.cache_read is None or call.input_tokens is None:
        return None
    again = max(call.input_tokens - (call.reported_tokens or 0), 0)
    return again * max(prices.input - prices.cache_read, 0.0) / 1_000_000


# ---------------------------------------------------------------- requests


async def _request(request: web.Request) -> web.Response:
    desk, record = request.app[DESK], await request.app[DESK].record_of(request)
    at, name = request.query.get("at"), request.query.get("model", "")
    rendered = await asyncio.to_thread(_rendered, desk, record, at, name)
    wire = rendered.request
    return answer(
        {
            **side_of(rendered),
            "headers": dict(sorted(wire.headers.items())),
            "body": wire.body.decode(),
            "curl": as_curl(rendered),
        }
    )


async def _differences(request: web.Request) -> web.Response:
    """Two requests: `a` and `b` are `serial`, `serial@model` or `@model`; without a serial it is the next call.

    A serial may be `last`, the newest call. With `other`, `b` is one of that session; with `row`, the answer is that
    row alone, with all of its texts.
    """
    desk, record = request.app[DESK], await request.app[DESK].record_of(request)
    other = await desk.records.read(request.query["other"]) if request.query.get("other") else record
    sides = [(record, request.query.get("a", "")), (other, request.query.get("b", ""))]
    place = whole(request, "row") if "row" in request.query else None

    def compare() -> dict[str, Any]:
        left, right = (_rendered(desk, found, *_split(side)) for found, side in sides)
        return compare_requests(left, right) if place is None else compare_row(left, right, place)

    return answer(await asyncio.to_thread(compare))


def _split(side: str) -> tuple[str | None, str]:
    serial, _, model = side.partition("@")
    return serial or None, model


def _rendered(desk: Desk, record: Record, at: str | None, name: str) -> Rendered:
    """The request before the entry `at`: that of the answer there, else of a call that would be made then."""
    serial = len(record.entries)
    if at == "last":
        serial = _newest_answer(record.entries).serial
    elif at is not None:
        if not (at.isascii() and at.isdigit() and int(at) <= len(record.entries)):
            raise InvalidValue.of("at", at, f"a serial from 0 to {len(record.entries)}, or 'last'")
        serial = int(at)
    before = record.entries[:serial]
    entry = record.entries[serial] if serial < len(record.entries) else None
    is_past = isinstance(entry, ModelOutputEntry)
    if not name:
        name = model_name_of(entry if is_past and entry is not None else _newest_answer(before))
    model = desk.open_model(name)
    call = _past_call(record, serial) if is_past else None
    if call is not None and call.model == name:
        return render_past(model, call, record.entries, session_id=record.session_id)
    return render_call(model, name, before, session_id=record.session_id)


def _past_call(record: Record, serial: int) -> PastCall | None:
    """The call whose answer is the entry of that serial."""
    return next((call for call in find_calls(record.entries) if call.serial == serial), None)


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
