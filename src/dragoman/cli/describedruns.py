"""Requested runs as `dragoman runs` shows them: status, calls that wait, error. Prints nothing."""

from collections.abc import Iterable
from typing import Any, Protocol

from ..durable import Order
from ..durable.requested import ENDED, find_end, status_of
from ..errors import DragomanError, ErrorCode
from ..history import AgentStatus, RunStatus
from ..store import RunRequest, Session, SessionStore, open_session
from ..store.requests import QUEUED

__all__ = ["describe_run", "list_described"]

DAMAGED = "damaged"  # the status of a run whose session cannot be read
PAGE = 100


class Requested(Protocol):
    """What says which run is meant: a RunRequest or a RunHandle."""

    @property
    def session_id(self) -> str: ...
    @property
    def serial(self) -> int: ...
    @property
    def agent(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def key(self) -> str: ...


async def describe_run(store: SessionStore, run: Requested) -> dict[str, Any]:
    """Return what is known of a run, as JSON has it."""
    return _described(await open_session(store, run.session_id), run)


async def list_described(
    store: SessionStore, *, limit: int = 0, open_only: bool = False, with_errors: bool = False
) -> list[dict[str, Any]]:
    """Return what is known of requested runs, the newest first; all without a `limit`.

    A session is opened only where the store does not tell how its run ended, or `with_errors` to tell why one failed.
    """
    found: list[dict[str, Any]] = []
    page = None
    while True:
        size = min(PAGE, limit - len(found)) if limit else PAGE
        some = await store.list_requests(open_only=open_only, limit=size, page=page)
        found += await _described_page(store, some.requests, with_errors=with_errors)
        page = some.next_page
        if page is None or (limit and len(found) >= limit):
            return found


async def _described_page(
    store: SessionStore, requests: Iterable[RunRequest], *, with_errors: bool
) -> list[dict[str, Any]]:
    """Describe some requests. A damaged session hides no other; one that was erased meanwhile is left out."""
    described: list[dict[str, Any]] = []
    sessions: dict[str, Session] = {}
    for request in requests:
        name = request.session_id
        if request.status in ENDED and not (with_errors and request.status == RunStatus.FAILED):
            described.append(_plain(request, request.status))
            continue
        try:
            sessions[name] = sessions.get(name) or await open_session(store, name)
            described.append(_described(sessions[name], request))
        except DragomanError as error:
            if error.retryable:
                raise
            if error.code is not ErrorCode.NOT_FOUND:
                said = {"code": error.code.value, "message": str(error)}
                described.append({**_plain(request, DAMAGED), "error": said})
    return described


def _described(session: Session, run: Requested) -> dict[str, Any]:
    status = status_of(session, Order(run.session_id, run.agent, run.serial))
    described = _plain(run, status)
    if status in (AgentStatus.AWAITING_HUMAN, QUEUED):  # a queued run waits for the calls of the one before it
        waiting = [call.request for call in session.state.derived.open_calls if call.awaits_answer]
        if waiting or status != QUEUED:
            described["waiting"] = [{"id": call.tool_call_id, "tool": call.tool_name} for call in waiting]
    if status == RunStatus.FAILED and (error := _error_of(session, run)) is not None:
        described["error"] = error
    return described


def _plain(run: Requested, status: str) -> dict[str, Any]:
    plain = {
        "session": run.session_id,
        "serial": run.serial,
        "agent": run.agent,
        "status": status,
        "runId": run.run_id,
    }
    return {**plain, "key": run.key} if run.key else plain


def _error_of(session: Session, run: Requested) -> dict[str, str] | None:
    end = find_end(session, run.run_id, run.serial)
    return None if end is None or end.error_code is None else {"code": end.error_code.value, "message": end.message}
