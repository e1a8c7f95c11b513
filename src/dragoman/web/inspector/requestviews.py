"""The endpoints of requests: one of a call that was made or of the next one, and two beside each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from aiohttp import web

from ...errors import InvalidValue
from ...history import HistoryEntry, ModelOutputEntry
from ...models import Model
from ...models.names import LOCAL
from ...models.recorded import open_recorded_model
from ...review import PastCall, PastRequests, find_calls
from ...wire import PROVIDERS
from .answers import answer_from_job
from .comparing import compare_requests, compare_row, side_of
from .jobs import Check
from .requests import LARGEST_SHOWN, Rendered, as_curl, model_name_of, render_call, render_past
from .state import STATE, InspectorState, read_number

__all__ = ["RequestSource", "answer_differences", "answer_request", "find_past_call", "render_at"]


class RequestSource(NamedTuple):
    """What requests of a session are rendered from, in one job."""

    state: InspectorState
    session_id: str
    entries: Sequence[HistoryEntry]
    check: Check
    requests: PastRequests | None = None


def _newest_answer(entries: Sequence[HistoryEntry]) -> ModelOutputEntry:
    found = next((entry for entry in reversed(entries) if isinstance(entry, ModelOutputEntry)), None)
    if found is None:
        raise InvalidValue("no model has answered yet: choose one")
    return found


async def answer_request(request: web.Request) -> web.Response:
    state, record = request.app[STATE], await request.app[STATE].record_of(request)
    at, name, entries = request.query.get("at"), request.query.get("model", ""), record.entries[:]

    def work(check: Check) -> dict[str, Any]:
        rendered = render_at(RequestSource(state, record.session_id, entries, check), at, name)
        wire = rendered.request
        is_cut = len(wire.body) > LARGEST_SHOWN
        problem = f"the body has {len(wire.body):,} bytes: that is too long for a command line" if is_cut else None
        return {
            **side_of(rendered),
            "headers": dict(sorted(wire.headers.items())),
            "body": wire.body[:LARGEST_SHOWN].decode("utf-8", "ignore" if is_cut else "strict"),
            "isCut": is_cut,
            "curl": None if is_cut else as_curl(rendered),
            "curlProblem": problem,
        }

    return await answer_from_job(request, record, f"request {at} {name}", work, keeps=False)


async def answer_differences(request: web.Request) -> web.Response:
    """Two requests: `a` and `b` are `serial`, `serial@model` or `@model`; without a serial it is the next call.

    A serial may be `last`, the newest call. With `other`, `b` is one of that session; with `row`, the answer is that
    row alone, with all of its texts.
    """
    state, record = request.app[STATE], await request.app[STATE].record_of(request)
    other = await state.records.read(request.query["other"]) if request.query.get("other") else record
    place = read_number(request, "row") if "row" in request.query else None
    sides = [(found, found.entries[:], request.query.get(name, "")) for found, name in ((record, "a"), (other, "b"))]

    def work(check: Check) -> dict[str, Any]:
        shared = PastRequests(sides[0][1], session_id=record.session_id) if other is record else None
        # Requests of one session share their beginning: it is read once where the earlier call comes first.
        order = sorted((0, 1), key=lambda place: _serial_first(sides[place][2]))
        rendered = {}
        for number in order:
            found, entries, side = sides[number]
            rendered[number] = render_at(RequestSource(state, found.session_id, entries, check, shared), *_split(side))
        if place is None:
            return compare_requests(rendered[0], rendered[1], check)
        return compare_row(rendered[0], rendered[1], place, check)

    name = f"differences {place} {id(other)} {len(other.entries)} {request.query.get('a')} {request.query.get('b')}"
    return await answer_from_job(request, record, name, work, keeps=False)


def _serial_first(side: str) -> tuple[int, str]:
    """By which sides with a serial come first, in the order of their serials."""
    serial = _split(side)[0] or ""
    return (len(serial), serial) if serial.isdigit() else (1 << 20, serial)


def _split(side: str) -> tuple[str | None, str]:
    serial, _, model = side.partition("@")
    return serial or None, model


def render_at(session: RequestSource, at: str | None, name: str) -> Rendered:
    """The request before the entry `at`: that of the answer there, else of a call that would be made then."""
    entries = session.entries
    serial = len(entries)
    if at == "last":
        serial = _newest_answer(entries).serial
    elif at is not None:
        if not (at.isascii() and at.isdigit() and len(at) <= 16 and int(at) <= len(entries)):
            raise InvalidValue.of("at", at[:40], f"a serial from 0 to {len(entries)}, or 'last'")
        serial = int(at)
    before = entries[:serial]
    entry = entries[serial] if serial < len(entries) else None
    is_past = isinstance(entry, ModelOutputEntry)
    name = name or model_name_of(entry if isinstance(entry, ModelOutputEntry) else _newest_answer(before))
    model = _model_of(session, name)
    call = find_past_call(entries, serial) if is_past else None
    session.check()
    if call is not None and call.model == name:
        return render_past(
            model, call, entries, session_id=session.session_id, requests=session.requests, check=session.check
        )
    return render_call(model, name, before, session_id=session.session_id, check=session.check)


def _model_of(session: RequestSource, name: str) -> Model:
    """The model of a name. One that has answered and is of no known provider is written down in the most common API."""
    if name.partition(":")[0] not in (*PROVIDERS, LOCAL):
        for entry in reversed(session.entries):
            if isinstance(entry, ModelOutputEntry) and entry.invocation is not None and model_name_of(entry) == name:
                return open_recorded_model(entry.invocation)
    return session.state.open_model(name)


def find_past_call(entries: Sequence[HistoryEntry], serial: int) -> PastCall | None:
    """The call whose answer is the entry of that serial."""
    return next((call for call in find_calls(entries) if call.serial == serial), None)
