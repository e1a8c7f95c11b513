"""Tails as rows: what each change and question is in SQL. Every function gets a database in a transaction."""

from collections.abc import Iterable

from .database import Database
from .tails import TailPiece, TailQuery

__all__ = ["delete_tail", "read_tails", "write_tails"]

# Of a lease that was lost nothing is written, and what was written with it is not read.
_OWNED = "FROM sessions AS s JOIN leases AS l ON l.session = s.key WHERE s.session_id = ? AND l.token = ?"

_READ = """
    SELECT t.token, t.stream, t.serial, t.first, t.past, t.deltas
    FROM sessions AS s JOIN leases AS l ON l.session = s.key JOIN tails AS t ON t.session = s.key AND t.token = l.token
    WHERE s.session_id = ?
"""


def write_tails(database: Database, pieces: Iterable[TailPiece]) -> None:
    """Keep the pieces of those that still have their lease; the first of an answer replaces the answer before it."""
    for piece in pieces:
        owned = database.execute(f"SELECT s.key {_OWNED}", (piece.session_id, piece.token)).fetchone()
        if owned is None:
            continue
        if piece.first == 0:
            database.execute("DELETE FROM tails WHERE session = ? AND stream <> ?", (owned[0], piece.stream))
        database.execute(
            "INSERT INTO tails VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (owned[0], *piece[1:])
        )


def read_tails(database: Database, queries: Iterable[TailQuery]) -> list[TailPiece]:
    """Return the pieces that the queries ask for."""
    return [
        TailPiece(session_id, *row)
        for session_id, stream, from_index in dict.fromkeys(queries)
        for condition, values in (("= ? AND t.past > ?", (stream, from_index)), ("< ?", (stream,)), ("> ?", (stream,)))
        for row in database.execute(f"{_READ} AND t.stream {condition}", (session_id, *values))
    ]


def delete_tail(database: Database, session: int) -> None:
    """Delete the tail of a session, whoever wrote it."""
    database.execute("DELETE FROM tails WHERE session = ?", (session,))
