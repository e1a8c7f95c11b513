"""Tails in PostgreSQL: one statement writes those of all sessions and notifies, one reads those of all followers."""

from collections.abc import Sequence

from .postgres_database import PostgresDatabase
from .tails import TailPiece, TailQuery

__all__ = ["read_tails", "write_tails"]

PAYLOAD_BYTES = 7_900  # PostgreSQL takes 8,000

# Of a lease that was lost nothing is written, and what was written with it is not read.
_WRITE = """
    WITH new AS (
        SELECT s.key, w.token, w.stream, w.serial, w.first, w.past, w.deltas
        FROM unnest(?::text[], ?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[])
            AS w (session_id, token, stream, serial, first, past, deltas)
        JOIN sessions AS s ON s.session_id = w.session_id
        JOIN leases AS l ON l.session = s.key AND l.token = w.token
    ), replaced AS (
        DELETE FROM tails AS t USING new WHERE new.first = 0 AND t.session = new.key AND t.stream <> new.stream
    ), kept AS (
        INSERT INTO tails SELECT * FROM new ON CONFLICT DO NOTHING
    )
    SELECT pg_notify(?, ?)
"""

_READ = """
    SELECT w.session_id, t.token, t.stream, t.serial, t.first, t.past, t.deltas
    FROM unnest(?::text[], ?::text[], ?::bigint[]) AS w (session_id, stream, index)
    JOIN sessions AS s ON s.session_id = w.session_id
    JOIN leases AS l ON l.session = s.key
    JOIN tails AS t ON t.session = s.key AND t.token = l.token AND (t.stream <> w.stream OR t.past > w.index)
"""


def write_tails(database: PostgresDatabase, pieces: Sequence[TailPiece], channel: str) -> None:
    """Keep the pieces of those that still have their lease, and wake the followers."""
    ids = list(dict.fromkeys(piece.session_id for piece in pieces))
    payload = "\n".join(ids)
    if len(payload.encode()) > PAYLOAD_BYTES:
        payload = ""  # all followers look
    columns = [list(column) for column in zip(*pieces, strict=True)]
    database.execute(_WRITE, (*columns, channel, payload))


def read_tails(database: PostgresDatabase, queries: Sequence[TailQuery]) -> list[TailPiece]:
    """Return the pieces that the queries ask for."""
    columns = [list(column) for column in zip(*dict.fromkeys(queries), strict=True)]
    return [TailPiece(*row) for row in database.execute(_READ, columns).fetchall()]
