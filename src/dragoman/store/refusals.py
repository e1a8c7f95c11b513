"""What every store refuses, in the same words: arguments that none takes, serials and names that are taken."""

import os
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from .._jsontext import join_surrogates
from ..errors import ErrorCode, InvalidValue, StoreError
from ..history import HistoryEntry
from ..message import require_name
from .protocol import AppendConflict, Head, Tombstone, VerifyReport

__all__ = [
    "append_conflict",
    "compared_with_kept",
    "fork_conflict",
    "name_taken",
    "new_session_id",
    "no_session",
    "not_a_fork",
    "require_append",
    "require_forks_named",
    "require_limit",
    "require_listed_id",
    "require_new_session_id",
    "require_seconds",
    "require_serial",
    "require_session_id",
    "store_closed",
]

ID_LIMIT = 255
# Words that the commands take instead of an id: the session used last, standard input.
RESERVED_IDS = frozenset({"@", "-"})
MAX_SERIAL = 2**31 - 1
MAX_LIMIT = 10_000
MAX_SECONDS = 1e9


def new_session_id() -> str:
    """Return an id that cannot be guessed."""
    return os.urandom(16).hex()


def require_session_id(session_id: object, field: str = "session_id") -> None:
    """Raise InvalidValue unless every store can take this id."""
    if type(session_id) is not str or not 0 < len(session_id) <= ID_LIMIT or not session_id.isprintable():
        require_name(field, session_id)
        raise InvalidValue.of(field, session_id, f"at most {ID_LIMIT} characters that can be printed")


def require_listed_id(session_id: object, field: str = "session_id") -> None:
    """Raise InvalidValue unless a list can name this id. The row of a damaged session may hold any text."""
    require_name(field, session_id)
    assert isinstance(session_id, str)
    if "\0" in session_id or join_surrogates(session_id) != session_id:
        require_session_id(session_id, field)


def require_new_session_id(session_id: object, field: str = "session_id") -> None:
    """Raise InvalidValue unless a new session may have this id."""
    require_session_id(session_id, field)
    if session_id in RESERVED_IDS:
        raise InvalidValue.of(field, session_id, "another name: the commands take this one for something else")


def require_serial(serial: object, field: str, lowest: int = 0) -> None:
    """Raise InvalidValue unless this is a serial, or one before the first if `lowest` is -1."""
    if type(serial) is not int or not lowest <= serial <= MAX_SERIAL:
        raise InvalidValue.of(field, serial, f"a whole number from {lowest} up")


def require_limit(limit: object) -> None:
    """Raise InvalidValue unless a list may be that long."""
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue.of("limit", limit, f"from 1 to {MAX_LIMIT}")


def require_seconds(seconds: object, field: str, least: float) -> None:
    """Raise InvalidValue unless this is a span of time."""
    if type(seconds) not in (int, float) or not least <= seconds <= MAX_SECONDS:  # type: ignore[operator]  # a number, as just seen
        raise InvalidValue.of(field, seconds, f"seconds from {least:g} to {MAX_SECONDS:g}")


def require_append(entries: Sequence[HistoryEntry], expected_serial: int) -> None:
    """Raise InvalidValue unless these are entries with an id and the serials from `expected_serial` on."""
    if type(expected_serial) is not int or not 0 <= expected_serial < expected_serial + len(entries) <= MAX_SERIAL + 1:
        require_serial(expected_serial, "expected_serial")
        if not entries:
            raise InvalidValue("entries: there is nothing to append")
        require_serial(expected_serial + len(entries) - 1, "the last serial")
    for serial, entry in enumerate(entries, expected_serial):
        if not isinstance(entry, HistoryEntry):
            raise InvalidValue.of("entries", entry, "entries of the classes in dragoman.history")
        if entry.serial != serial or not entry.entry_id:
            raise InvalidValue(
                f"entries: expected serial {serial}, got {entry.serial} with id {entry.entry_id!r}; "
                "AgentState.prepare gives an entry both"
            )


def no_session(session_id: str, tombstone: Tombstone | None = None) -> StoreError:
    """Return the error for a session that is not there."""
    if tombstone is None:
        return StoreError(f"there is no session {session_id!r}", code=ErrorCode.NOT_FOUND)
    return StoreError(
        f"the session {session_id!r} was erased on {tombstone.erased_at:%Y-%m-%d at %H:%M} UTC",
        code=ErrorCode.NOT_FOUND,
    )


def append_conflict(session_id: str, expected_serial: int, head: Head) -> AppendConflict:
    """Return the error for an append at a serial that is not the next one."""
    return AppendConflict(
        f"session {session_id!r}: serial {expected_serial} was expected, the next is {head.next_serial}", head=head
    )


def fork_conflict(session_id: str, serial: int, head: Head) -> AppendConflict:
    """Return the error for a fork after the end."""
    return AppendConflict(f"session {session_id!r} ends at serial {head.serial}: no fork at {serial}", head=head)


def name_taken(session_id: str, tombstone: Tombstone | None) -> StoreError:
    """Return the error for a new session whose id is not free."""
    if tombstone is None:
        return StoreError(
            f"there is a session {session_id!r} already: start_session(..., exist_ok=True) opens it",
            code=ErrorCode.CONFLICT,
        )
    message = f"a session {session_id!r} was erased, and its id stays taken"
    return StoreError(message, code=ErrorCode.CONFLICT)


def require_forks_named(session_id: str, unnamed: Iterable[str]) -> None:
    """Raise StoreError if the sessions to erase have forks that are not named."""
    standing = sorted(unnamed)
    if standing:
        listed = ", ".join(repr(each) for each in standing[:5]) + (" and more" if len(standing) > 5 else "")
        raise StoreError(
            f"session {session_id!r} cannot be erased alone: {listed} were forked from it or from its forks",
            code=ErrorCode.CONFLICT,
        )


def not_a_fork(name: str, session_id: str) -> InvalidValue:
    """Return the error for a session that is named among the forks of another and is none."""
    return InvalidValue.of("forks", name, f"sessions that were forked from {session_id!r} or from its forks")


def store_closed() -> StoreError:
    """Return the error for a store that was closed."""
    return StoreError("the store is closed", code=ErrorCode.INVALID_REQUEST)


def compared_with_kept(kept: Head | None, report: VerifyReport, checksum_at: Callable[[int], str]) -> VerifyReport:
    """Return the report, with a problem added if the session does not contain the head that the caller kept."""
    if kept is None or not report.is_sound:
        return report
    if kept.serial > report.head.serial:
        problem = f"it ends at serial {report.head.serial}, but serial {kept.serial} was there"
        return replace(report, bad_serial=report.head.next_serial, problem=problem)
    if kept.serial >= 0 and checksum_at(kept.serial) != kept.checksum:
        problem = f"it was written anew: the checksum of serial {kept.serial} or one before it is another"
        return replace(report, bad_serial=kept.serial, problem=problem)
    return report
