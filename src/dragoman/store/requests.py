"""What follows from the entries of one append: which runs were requested, how far each is, and by which words entries
are found. Knows no database.

A store keeps this beside the record, so that others find it without reading every session.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from ..errors import ErrorCode, InvalidValue, StoreError
from ..history import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    HistoryEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
)
from .protocol import RunRequest

__all__ = [
    "ENDED",
    "QUEUED",
    "Added",
    "Change",
    "Marked",
    "Moved",
    "RequestKeyTaken",
    "Woken",
    "changes_of",
    "moved_by",
    "own_keys",
]

QUEUED, RUNNING, ABORTED = "queued", "running", "aborted"
ENDED = frozenset({"completed", "failed", ABORTED})


class Added(NamedTuple):
    """A run was requested."""

    serial: int
    agent: str
    run_id: str
    key: str


class Moved(NamedTuple):
    """A run has begun or ended: its request has another status, if the run was requested."""

    run_id: str
    status: str


class Woken(NamedTuple):
    """Something was said that a waiting run must read. `run_id` names the run that shall end, or is empty."""

    run_id: str = ""


class Marked(NamedTuple):
    """An entry has this word among its marks."""

    serial: int
    word: str


Change: TypeAlias = Added | Moved | Woken | Marked


class RequestKeyTaken(StoreError):
    """A run was requested with this key before; `request` is that one."""

    default_code = ErrorCode.CONFLICT

    def __init__(self, request: RunRequest) -> None:
        super().__init__(
            f"the key was used before: session {request.session_id!r}, serial {request.serial}; use that run"
        )
        self.request = request


def changes_of(entries: Sequence[HistoryEntry]) -> list[Change]:
    """Return what an append of these entries changes."""
    changes: list[Change] = []
    for entry in entries:
        match entry:
            case RunRequestedEntry():
                changes.append(Added(entry.serial, entry.agent, entry.run_id, entry.key))
            case RunStartedEntry() if _may_be_requested(entry.run_id):
                changes.append(Moved(entry.run_id, RUNNING))
            case RunFinishedEntry() if _may_be_requested(entry.run_id):
                changes.append(Moved(entry.run_id, entry.status.value))
            case AbortRequestedEntry():
                changes.append(Woken(entry.run_id if _may_be_requested(entry.run_id) else ""))
            case ApprovalAnsweredEntry(by="person"):  # a policy answers inside of the run
                changes.append(Woken())
            case ClientRequestEntry() | ClientAnswerEntry():
                changes += (Marked(entry.serial, word) for word in entry.marks)
    return changes


def own_keys(changes: Sequence[Change]) -> list[str]:
    """Return the keys of the requests; raise InvalidValue if two of them have one key."""
    keys = [change.key for change in changes if isinstance(change, Added) and change.key]
    if len(set(keys)) < len(keys):
        raise InvalidValue("two requests in one append have the same key")
    return keys


def moved_by(change: Moved | Woken, request: RunRequest) -> RunRequest:
    """Return the request after the change."""
    if change.run_id != request.run_id or request.status in ENDED:
        return request
    if isinstance(change, Moved):
        return replace(request, status=change.status)
    return replace(request, status=ABORTED) if request.status == QUEUED else request


def _may_be_requested(run_id: str) -> bool:
    """Whether a request can have this id: one with NUL cannot, and PostgreSQL does not take it."""
    return "\0" not in run_id
