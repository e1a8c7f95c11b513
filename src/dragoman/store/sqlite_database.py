"""A connection to a SQLite file as the `Database` of the statements. Loads SQLite: import it inside a function."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ErrorCode, StoreError

__all__ = ["SQLiteDatabase"]


class SQLiteDatabase(sqlite3.Connection):
    """One writes at a time, so that there is nothing to hold; damage is met while rows are read."""

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Raise StoreError for what SQLite cannot read."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise StoreError(str(error), code=ErrorCode.CORRUPT) from error

    def hold(self, session_id: str) -> None:
        """Do nothing: a transaction that may write has the whole file."""

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

    def mend_index(self) -> None:
        """Make the index of sessions anew: SQLite deletes no row that it does not find there."""
        self.execute("REINDEX sessions")
