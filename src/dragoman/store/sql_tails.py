"""Tails as rows: what each change and question is in SQL. Every function gets a database in a transaction."""

from collections.abc import Iterable

from .database import Database
from .leases import kept_expiry
from .tails import TailPiece, TailQuery

__all__ = ["delete_tail", "read_tails", "write_tails"]

_OWNER = """
    SELECT s.key, l.token, l.expires, l.boot, l.expires_uptime
    FROM sessions AS s JOIN leases AS l ON l.session = s.key WHERE s.session_id = ?
"""
_READ = "SELECT token, stream, serial, first, past, deltas FROM tails WHERE session = ? AND token = ?"


def write_tails(database: Database, pieces: Iterable[TailPiece]) -> None:
    """Keep the pieces of owners that still have their lease; the first of an answer replaces the answer before it."""
    for piece in pieces:
        owner = database.execute(_OWNER, (piece.session_id,)).fetchone()
        if owner is None or owner[1] != piece.token:
            continue
        if piece.first == 0:
            database.execute("DELETE FROM tails WHERE session = ? AND stream <> ?", (owner[0], piece.stream))
        database.execute(
            "INSERT INTO tails VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (owner[0], *piece[1:])
        )


def read_tails(database: Database, queries: Iterable[TailQuery]) -> list[TailPiece]:
    """Return the pieces that the queries ask for, of owners whose lease has not expired."""
    now, found = database.now(), list[TailPiece]()
    for session_id, stream, from_index in dict.fromkeys(queries):
        owner = database.execute(_OWNER, (session_id,)).fetchone()
        if owner is None or not now.is_before(kept_expiry(*owner[2:])):
            continue
        for condition, values in (("= ? AND past > ?", (stream, from_index)), ("< ?", (stream,)), ("> ?", (stream,))):
            rows = database.execute(f"{_READ} AND stream {condition}", (*owner[:2], *values))
            found += (TailPiece(session_id, *row) for row in rows)
    return found


def delete_tail(database: Database, session: int) -> None:
    """Delete the deltas of a session's answers, those of every owner."""
    database.execute("DELETE FROM tails WHERE session = ?", (session,))
