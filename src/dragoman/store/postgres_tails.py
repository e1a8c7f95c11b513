"""Tails in PostgreSQL: one statement writes those of all sessions and notifies, one reads those of all followers."""

from collections.abc import Iterable, Sequence

import msgspec

from .postgres_database import PostgresDatabase
from .tails import TailPiece, TailQuery

__all__ = ["read_tails", "write_tails"]

PAYLOAD_BYTES = 7_900  # PostgreSQL takes 8,000

# Rows go as one text of JSON: psycopg takes three times as long to write arrays of their values.
_WRITE = "SELECT write_tails(?::json), pg_notify(?, ?)"
_READ = "SELECT * FROM read_tails(?::json)"


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
