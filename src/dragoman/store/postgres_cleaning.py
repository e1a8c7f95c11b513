"""Erasing from PostgreSQL: rows are deleted, and then the tables written anew, so that no page holds what was there.

PostgreSQL keeps a deleted row as long as any transaction of the database is open that began before, also in a table
that it writes anew. So every erasing deletes a canary as well, in the same transaction: when that can be removed, so
can the rest. One erases at a time, so that it is always the own canary.

What this does not reach: the log of the server (WAL) until its segments are used again, replicas, backups.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import ErrorCode, StoreError
from .database import Database
from .postgres_database import CLEANING_SECONDS, WRITING, PostgresDatabase

if TYPE_CHECKING:
    import psycopg

__all__ = ["erase_and_clean"]

TABLES = ("entries", "sessions", "blobs", "snapshots", "requests", "tails", "entry_marks")  # what holds content

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.5  # seconds between two checks whether others are done

_Result = TypeVar("_Result")


def erase_and_clean(
    database: PostgresDatabase, work: Callable[[Database], _Result], *, lock: str, wait_seconds: float
) -> _Result:
    """Do `work`, which deletes rows, in a transaction, then write the tables anew, under the lock named `lock`.

    Raises StoreError if the rows are deleted, but still in the pages; a second call cleans again.
    """
    deadline = time.monotonic() + wait_seconds
    # Polled: a statement that waits is a transaction too, and PostgreSQL would keep rows for it.
    if not _wait_until(lambda: _has_lock(database, lock), deadline):
        raise StoreError("others have been erasing for too long, nothing was erased", code=ErrorCode.TIMEOUT)
    try:
        database.execute("INSERT INTO canaries DEFAULT VALUES")
        with database.transaction(WRITING):
            # Every writer holds a head, or adds one, before anything else; but those of tails do not.
            database.execute("LOCK TABLE heads, tails IN EXCLUSIVE MODE")
            database.execute("DELETE FROM canaries")
            result = work(database)
        (newest,) = database.execute("SELECT max(key) FROM cleanings").fetchone() or (None,)
        if newest is not None:
            with database.patient(CLEANING_SECONDS):
                _clean(database.connection, deadline)
            database.execute("DELETE FROM cleanings WHERE key <= ?", (newest,))
        return result
    finally:
        if database.roll_back() and not database.connection.closed:
            database.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", (lock,))


def _has_lock(database: PostgresDatabase, lock: str) -> bool:
    (is_locked,) = database.execute("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (lock,)).fetchone()
    return is_locked is True


def _clean(connection: "psycopg.Connection", deadline: float) -> None:
    import psycopg

    try:
        if not _wait_until(lambda: not _rewrite(connection, "canaries"), deadline):
            raise _not_clean("a transaction that is still open can see it", ErrorCode.TIMEOUT)
        for table in TABLES:
            _rewrite(connection, table)
    except psycopg.errors.LockNotAvailable:
        raise _not_clean("others keep the tables in use", ErrorCode.TIMEOUT) from None


def _wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether it is true, or becomes true in time."""
    pause = FIRST_PAUSE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return True


def _rewrite(connection: "psycopg.Connection", table: str) -> int:
    """Write a table anew, and return how many deleted rows PostgreSQL had to keep."""
    details: list[str] = []

    def note(notice: "psycopg.errors.Diagnostic") -> None:
        if notice.message_detail:  # "0 dead row versions cannot be removed yet.", in the server's language
            details.append(notice.message_detail)

    connection.add_notice_handler(note)
    try:
        connection.execute(f"VACUUM (FULL, VERBOSE) {table}".encode())
    finally:
        connection.remove_notice_handler(note)
    counted = [found for detail in details if (found := re.search(r"\d+", detail))]
    if not counted:  # a role that does not own the table gets only a warning from PostgreSQL
        raise _not_clean("the tables belong to another role", ErrorCode.PERMISSION)
    return int(counted[0][0])


def _not_clean(problem: str, code: ErrorCode) -> StoreError:
    return StoreError(f"erased, but not yet from every page: {problem}; erase again to clean them", code=code)
