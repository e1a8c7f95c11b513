"""One append to PostgreSQL: locks the session, checks its end, and writes all rows in few statements."""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from .blobs import Piece, cut_pieces
from .chain import chained
from .postgres_database import PostgresDatabase
from .protocol import Head
from .requests import Change
from .sql_leases import Claim, recognise_or_refuse, require_claim
from .sql_requests import record_changes, require_free_keys
from .sql_rows import corrupt, find_sound_end
from .sql_tails import delete_tail

__all__ = ["append_entries"]

STATEMENT_BYTES = 16_000_000  # about as much goes in one statement; PostgreSQL takes a gigabyte at most

_Entry = tuple[int, bytes, bytes]  # serial, checksum, what is left after pieces were cut out


def append_entries(
    database: PostgresDatabase,
    session_id: str,
    entries: Sequence[bytes],
    serial: int,
    claim: Claim,
    *,
    changes: Sequence[Change] = (),
) -> Head:
    """Write the entries, or recognise them; raise AppendConflict if others have their serials."""
    cut = [cut_pieces(entry) for entry in entries]  # before the lock: it may take long
    database.hold(session_id)
    session = find_sound_end(database, session_id)
    if serial != session.head.next_serial:
        return recognise_or_refuse(database, session, entries, serial, claim)
    require_claim(database, session.key, session_id, claim)
    require_free_keys(database, changes)
    checksum = bytes.fromhex(session.head.checksum)
    rows: list[_Entry] = []
    pieces: list[tuple[int, Piece]] = []
    for index, (entry, (left, found)) in enumerate(zip(entries, cut, strict=True), serial):
        checksum = chained(checksum, entry)
        rows.append((index, checksum, left))
        pieces += ((index, piece) for piece in found)
    for some in _portions(rows):
        serials, checksums, lefts = (list(column) for column in zip(*some, strict=True))
        database.execute(
            "INSERT INTO entries (session, serial, checksum, entry)"
            " SELECT ?::bigint, * FROM unnest(?::bigint[], ?::bytea[], ?::bytea[])",
            (session.key, serials, checksums, lefts),
        )
    if pieces:
        _add_pieces(database, session.key, pieces)
    record_changes(database, session.key, changes)
    if claim.ends_tail:
        delete_tail(database, session.key)
    return Head(serial + len(entries) - 1, checksum.hex())


def _portions(rows: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    portion: list[_Entry] = []
    size = 0
    for row in rows:
        if portion and size + len(row[2]) > STATEMENT_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += len(row[2])
    yield portion


def _add_pieces(database: PostgresDatabase, session: int, pieces: Sequence[tuple[int, Piece]]) -> None:
    named = [(serial, piece, sha256(piece.data).digest()) for serial, piece in pieces]
    keys = _blob_keys(database, {name: piece.data for _, piece, name in named})
    rows = [(serial, piece.offset, keys[name], piece.is_base64) for serial, piece, name in named]
    serials, offsets, blobs, kinds = (list(column) for column in zip(*rows, strict=True))
    database.execute(
        "INSERT INTO pieces (session, serial, at, blob, is_base64)"
        " SELECT ?::bigint, * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::boolean[])",
        (session, serials, offsets, blobs, kinds),
    )


def _blob_keys(database: PostgresDatabase, contents: dict[bytes, bytes]) -> dict[bytes, int]:
    """The key of each content by its hash; what is not there yet is added.

    In the order of their hashes, so that two transactions that add the same contents do not deadlock. No session is
    erased meanwhile: that would need all heads, and this transaction holds one.
    """
    keys = _known_blobs(database, list(contents))
    fresh = sorted(name for name in contents if name not in keys)
    for name in fresh:
        database.execute(
            "INSERT INTO blobs (hash, data) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", (name, contents[name])
        )
    return keys | _known_blobs(database, fresh) if fresh else keys


def _known_blobs(database: PostgresDatabase, names: list[bytes]) -> dict[bytes, int]:
    found = database.execute(
        "SELECT hash, key, sha256(data) = hash FROM blobs WHERE hash = ANY(?::bytea[])", (names,)
    ).fetchall()
    if not all(is_sound for _, _, is_sound in found):
        corrupt("content that other entries share is damaged")
    return {name: key for name, key, _ in found}
