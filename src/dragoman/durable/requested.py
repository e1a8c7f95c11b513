"""Reads requested runs: how far each is, and what is due, as the record of its session tells it."""

from ..errors import ErrorCode, StoreError
from ..history import AgentStatus, DerivedState, RunFinishedEntry, RunRequestedEntry, TakeoverEntry
from ..store import RunRequest, Session, SessionStore
from ..store.leases import is_said_to_a_run
from ..store.requests import ABORTED, ENDED, QUEUED
from .orders import Order

__all__ = ["ENDED", "agent_due", "find_end", "find_request", "is_due", "newest_of_runs", "request_due", "status_of"]


async def find_request(store: SessionStore, session_id: str, serial: int) -> RunRequest | None:
    """Return the run that was requested at that serial; None if there is none."""
    page = await store.list_requests(session_id=session_id, serial=serial, limit=1)
    return page.requests[0] if page.requests else None


def is_due(state: DerivedState) -> bool:
    """Return whether a worker has something to do: a run is requested, or the open run waits for no person."""
    if not state.current_run_id:
        return bool(state.requests)
    waits = state.status is AgentStatus.AWAITING_HUMAN and all(
        call.awaits_answer for call in state.open_calls if call.result is None
    )
    return not waits or state.abort_request is not None


def newest_of_runs(session: Session) -> int:
    """Return the serial of the newest entry that a run has made. Words, decisions, requests and takeovers are none."""
    entries = session.entries
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if not isinstance(entry, TakeoverEntry) and not is_said_to_a_run((entry,)):
            return index
    return -1


def status_of(session: Session, order: Order) -> str:
    """Return the status of the run that was requested at the order's serial, as the record tells it.

    Raises StoreError where the record has no request there.
    """
    state = session.state.derived
    if any(request.serial == order.serial for request in state.requests):
        return QUEUED
    request = session.entries[order.serial] if 0 <= order.serial < session.state.next_serial else None
    if not isinstance(request, RunRequestedEntry):
        words = "the store lists a request there, and the record has none"
        raise StoreError(f"session {order.session!r}, serial {order.serial}: {words}", code=ErrorCode.CORRUPT)
    if request.run_id == state.current_run_id:
        return state.status.value
    end = find_end(session, request.run_id, order.serial)
    return ABORTED if end is None else end.status.value  # aborted before it began


def find_end(session: Session, run_id: str, serial: int) -> RunFinishedEntry | None:
    """Return the end of a run that was requested at that serial; None if it has not ended, or never began."""
    entries = session.entries
    for index in range(len(entries) - 1, serial, -1):
        entry = entries[index]
        if isinstance(entry, RunFinishedEntry) and entry.run_id == run_id:
            return entry
    return None


def request_due(session: Session) -> int | None:
    """Return the serial of the request that is due: of the open run's, or the first that waits; None without one."""
    state, entries = session.state.derived, session.entries
    if not state.current_run_id:
        return state.requests[0].serial
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, RunRequestedEntry) and entry.run_id == state.current_run_id:
            return index
    return None  # the open run was not requested: a program that ran the session has died


def agent_due(session: Session, order: Order) -> str:
    """Return the name of the agent whose run is due."""
    serial = request_due(session)
    request = None if serial is None else session.entries[serial]
    return request.agent if isinstance(request, RunRequestedEntry) else order.agent
