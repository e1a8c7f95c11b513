"""Marks as rows. A word is kept as its SHA-256, so that a row is short and no statistic of the database has words.

Every function gets a database in a transaction.
"""

from collections.abc import Sequence
from hashlib import sha256

from .database import Database
from .marks import MARKS_EACH
from .protocol import Mark

__all__ = ["add_mark", "find_marks"]


def add_mark(database: Database, session: int, serial: int, word: str) -> None:
    """Note that an entry has a word among its marks."""
    row = (_hash(word), session, serial)
    database.execute("INSERT INTO entry_marks (hash, session, serial) VALUES (?, ?, ?)", row)


def find_marks(database: Database, words: Sequence[str]) -> tuple[Mark, ...]:
    """Return the newest marks of each word, the oldest first."""
    by_hash = {_hash(word): word for word in words}
    rows = sorted(database.newest_marks(list(by_hash), MARKS_EACH)) if by_hash else []
    return tuple(Mark(by_hash[name], session_id, serial) for _, name, session_id, serial in rows)


def _hash(word: str) -> bytes:
    return sha256(word.encode()).digest()
