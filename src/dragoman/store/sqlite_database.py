"""A connection to a SQLite file as the `Database` of the statements. Loads SQLite: import it inside a function."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import ClassVar

from ..errors import ErrorCode, StoreError
from .leases import StoreTime, machine_time

__all__ = ["SQLiteDatabase"]

# From the first mark at or after the last serial, or from the newest entry, back to the first serial. Positions grow
# with the serials, so that no damage makes it walk in a circle.
_WALK = """
    WITH RECURSIVE walk (position, serial, previous) AS (
        SELECT position, serial, previous FROM entries WHERE session = ? AND position = coalesce(
            (SELECT position FROM marks WHERE session = ? AND serial >= ? ORDER BY serial LIMIT 1),
            (SELECT position FROM heads WHERE session = ?)
        )
        UNION ALL
        SELECT e.position, e.serial, e.previous FROM walk CROSS JOIN entries AS e ON e.position = walk.previous
        WHERE walk.serial > ? AND e.session = ? AND e.serial = walk.serial - 1 AND e.position < walk.position
    )
    SELECT e.serial, e.entry, e.checksum FROM walk CROSS JOIN entries AS e ON e.position = walk.position
    WHERE walk.serial BETWEEN ? AND ?
"""

_MARKS = """
    SELECT m.number, m.hash, s.session_id, m.serial
    FROM entry_marks AS m CROSS JOIN sessions AS s ON s.key = m.session
"""


class SQLiteDatabase(sqlite3.Connection):
    """One writes at a time, so that there is nothing to hold; damage is met while rows are read."""

    newest: ClassVar[str] = "e.position = h.position AND e.session = h.session AND e.serial = h.serial"

    def entries_between(self, session: int, first: int, last: int) -> list[tuple[int, bytes, bytes]]:
        """Walk from entry to entry; if one does not lead to the next any more, look at every row of the file."""
        values = (session, session, last, session, first, session, first, last)
        found = self.execute(_WALK, values).fetchall()
        if len(found) != last - first + 1:
            select = "SELECT serial, entry, checksum FROM entries WHERE session = ? AND serial BETWEEN ? AND ?"
            found = self.execute(select, (session, first, last)).fetchall()
        return sorted(found, key=itemgetter(0))

    def has_entries_after(self, session: int, serial: int) -> bool:
        """Look at what was written since: an entry's position is after those of all that were there before it."""
        select = "SELECT 1 FROM entries WHERE position > (SELECT position FROM heads WHERE session = ?) AND session = ?"
        return self.execute(f"{select} AND serial > ?", (session, session, serial)).fetchone() is not None

    def newest_marks(self, hashes: Sequence[bytes], limit: int) -> list[tuple[int, bytes, str, int]]:
        """Ask the index for each word."""
        select = f"{_MARKS} WHERE m.hash = ? ORDER BY m.number DESC LIMIT ?"
        return [row for each in hashes for row in self.execute(select, (each, limit))]

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Raise StoreError for what SQLite cannot read."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise StoreError(str(error), code=ErrorCode.CORRUPT) from error

    def hold(self, session_id: str) -> None:
        """Do nothing: a transaction that may write has the whole file."""

    def now(self) -> StoreTime:
        """Return the time of this machine, which all processes that use the file share."""
        return machine_time()

    def next_key(self) -> int:
        """Return the key that AUTOINCREMENT would give."""
        select = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions'), 0) + 1"
        key: int = self.execute(select).fetchone()[0]
        return key

    def find_unindexed(self, session_id: str) -> int | None:
        """Look at every row."""
        select = "SELECT key FROM sessions NOT INDEXED WHERE session_id = ?"
        row = self.execute(select, (session_id,)).fetchone()
        return None if row is None else row[0]

    def repair_index(self) -> None:
        """Make the index of sessions anew: SQLite deletes no row that it does not find there."""
        self.execute("REINDEX sessions")
