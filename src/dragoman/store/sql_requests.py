"""What an append changes beside the record, as rows. Every function gets a database in a transaction."""

from collections.abc import Sequence

from .database import Database
from .listing import RequestQuery
from .protocol import RequestPage, RunRequest
from .requests import ABORTED, QUEUED, Added, Change, Marked, Moved, RequestKeyTaken, Woken, own_keys
from .sql_marks import add_mark

__all__ = ["list_requests", "record_changes", "require_free_keys"]

_OPEN = "status IN ('queued', 'running')"
_SELECT = """
    SELECT r.number, s.session_id, r.serial, r.agent, r.run_id, coalesce(r.request_key, ''), r.status
    FROM requests AS r JOIN sessions AS s ON s.key = r.session
"""


def require_free_keys(database: Database, changes: Sequence[Change]) -> None:
    """Raise RequestKeyTaken if a run was requested with one of these keys before."""
    for key in own_keys(changes):
        row = database.execute(f"{_SELECT} WHERE r.request_key = ?", (key,)).fetchone()
        if row is not None:
            raise RequestKeyTaken(RunRequest(*row[1:]))


def record_changes(database: Database, session: int, changes: Sequence[Change]) -> None:
    """Write what an append changes."""
    for change in changes:
        match change:
            case Added():
                database.execute(
                    "INSERT INTO requests (session, serial, agent, run_id, request_key, status)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (session, change.serial, change.agent, change.run_id, change.key or None, QUEUED),
                )
            case Moved():
                database.execute(
                    f"UPDATE requests SET status = ? WHERE session = ? AND run_id = ? AND {_OPEN}",  # noqa: S608
                    (change.status, session, change.run_id),
                )
            case Woken():
                database.execute(
                    "UPDATE requests SET status = ? WHERE session = ? AND run_id = ? AND status = ?",
                    (ABORTED, session, change.run_id, QUEUED),
                )
                # The first run that has not ended: it may wait for a person before it can begin.
                database.execute(
                    "UPDATE requests SET wakes = wakes + 1 WHERE session = ? AND serial ="  # noqa: S608
                    f" (SELECT min(serial) FROM requests WHERE session = ? AND {_OPEN})",
                    (session, session),
                )
            case Marked():
                add_mark(database, session, change.serial, change.word)


def list_requests(database: Database, query: RequestQuery) -> RequestPage:
    """Return the requests that fit, the newest first."""
    wanted = {
        "s.session_id = ?": query.session_id,
        "r.serial = ?": query.serial,
        "r.request_key = ?": query.key,
        "r.number < ?": query.before,
    }
    given = {condition: value for condition, value in wanted.items() if value is not None}
    conditions = " AND ".join([*given, *([_OPEN] if query.open_only else [])])
    where = f"WHERE {conditions}" if conditions else ""
    select = f"{_SELECT} {where} ORDER BY r.number DESC LIMIT {query.limit + 1}"
    rows = database.execute(select, tuple(given.values())).fetchall()
    more = str(rows[query.limit - 1][0]) if len(rows) > query.limit else None
    return RequestPage(tuple(RunRequest(*row[1:]) for row in rows[: query.limit]), more)
