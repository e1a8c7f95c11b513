"""Tails in PostgreSQL: one statement writes those of all sessions and notifies, one reads those of all followers."""

from collections.abc import Iterable, Sequence

import msgspec

from .postgres_database import PostgresDatabase
from .tails import TailPiece, TailQuery

__all__ = ["read_tails", "write_tails"]

PAYLOAD_BYTES = 7_900  # PostgreSQL takes 8,000

# Rows go as one text of JSON: psycopg takes three times as long to write arrays of their values.
# Of a lease that was lost nothing is written, and what was written with it is not read.
_WRITE = """
    WITH new AS (
        SELECT s.key, w.token, w.stream, w.serial, w.first, w.past, w.deltas
        FROM json_to_recordset(?::json) AS w (
            session_id text, token text, stream text, serial bigint, first bigint, past bigint, deltas text
        )
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
    FROM json_to_recordset(?::json) AS w (session_id text, stream text, from_index bigint)
    JOIN sessions AS s ON s.session_id = w.session_id
    JOIN leases AS l ON l.session = s.key
    JOIN tails AS t ON t.session = s.key AND t.token = l.token AND (t.stream <> w.stream OR t.past > w.from_index)
"""


def write_tails(database: PostgresDatabase, pieces: Sequence[TailPiece], channel: str) -> None:
    """Keep the pieces of those that still have their lease, and wake the followers."""
    payload = "\n".join({piece.session_id: None for piece in pieces})
    if len(payload.encode()) > PAYLOAD_BYTES:
        payload = ""  # all followers look
    rows = [{**piece._asdict(), "deltas": piece.deltas.decode()} for piece in pieces]
    database.execute(_WRITE, (_json(rows), channel, payload))


def read_tails(database: PostgresDatabase, queries: Iterable[TailQuery]) -> list[TailPiece]:
    """Return the pieces that the queries ask for."""
    asked = _json([query._asdict() for query in dict.fromkeys(queries)])
    return [TailPiece._make((*row[:-1], row[-1].encode())) for row in database.execute(_READ, (asked,))]


def _json(rows: object) -> str:
    return msgspec.json.encode(rows).decode()
