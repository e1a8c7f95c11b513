"""Appends as rows: those of one transaction are checked one by one and written all together.

What is known of the sessions' heads is kept from transaction to transaction. If another process has appended since, the
place that was thought to be next is taken, and the database itself refuses the row.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from .blobs import BLOB_SIZE, Piece, cut_pieces
from .chain import chained
from .protocol import Head
from .sql_leases import Claim, recognise_or_refuse, require_claim
from .sql_rows import corrupt, find_sound_end

if TYPE_CHECKING:
    from .sqlite_database import SQLiteDatabase

__all__ = ["Appender"]

# Without a position of the one before, which an append by another lease does not get, the database refuses the row.
_INSERT = """INSERT INTO entries VALUES (NULL, ?1, ?2, (
    SELECT position FROM heads WHERE session = ?1 AND (SELECT token FROM leases WHERE session = ?1) IS ?3
), ?4, ?5)"""


class _Place:
    """Where the next entry of a session goes, and the checksum before it."""

    __slots__ = ("checksum", "key", "next_serial")

    def __init__(self, key: int, next_serial: int, checksum: bytes) -> None:
        self.key = key
        self.next_serial = next_serial
        self.checksum = checksum


class Appender:
    """Gathers appends; `flush` writes them."""

    def __init__(self, connection: "SQLiteDatabase") -> None:
        self._connection = connection
        self._places: dict[str, _Place] = {}
        self._entries: list[tuple[int, int, str | None, bytes, bytes]] = []
        self._pieces: list[tuple[int, int, Piece]] = []

    def forget(self) -> None:
        """Know nothing any more, and write nothing of what was gathered."""
        self._places.clear()
        self._entries.clear()
        self._pieces.clear()

    def append(self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim) -> Head:
        """Gather the entries, or recognise them; raise AppendConflict if others stand there.

        Writes what was gathered only if it must look at what is there.
        """
        place, token = self._places.get(session_id), claim.token
        if place is None or serial != place.next_serial or claim.is_said:
            self.flush()
            session = find_sound_end(self._connection, session_id)
            if serial != session.head.next_serial:
                return recognise_or_refuse(self._connection, session, entries, serial, claim)
            token = require_claim(self._connection, session.key, session_id, claim)
            place = _Place(session.key, serial, bytes.fromhex(session.head.checksum))
            self._places[session_id] = place
        key, checksum = place.key, place.checksum
        for entry in entries:
            checksum = chained(checksum, entry)
            left, pieces = cut_pieces(entry)
            self._entries.append((key, serial, token, checksum, left))
            for piece in pieces:
                self._pieces.append((key, serial, piece))
            serial += 1
        place.checksum, place.next_serial = checksum, serial
        return Head(serial - 1, checksum.hex())

    def append_one(self, session_id: str, entry: bytes, serial: int, claim: Claim) -> Head | None:
        """Write an entry by a statement that is a transaction by itself; None if more is needed than that.

        Nothing may have been gathered. Raises sqlite3.IntegrityError if another writer was faster, or has the lease.
        """
        place = self._places.get(session_id)
        if place is None or serial != place.next_serial or len(entry) >= BLOB_SIZE or claim.is_said:
            return None
        key, checksum = place.key, chained(place.checksum, entry)
        self._connection.execute(_INSERT, (key, serial, claim.token, checksum, entry))
        place.checksum, place.next_serial = checksum, serial + 1
        return Head(serial, checksum.hex())

    def flush(self) -> None:
        """Write what was gathered. Raises sqlite3.IntegrityError if another writer was faster, or has the lease."""
        if self._entries:
            self._connection.executemany(_INSERT, self._entries)
            for key, serial, piece in self._pieces:
                self._add_piece(key, serial, piece)
            self._entries.clear()
            self._pieces.clear()

    def _add_piece(self, session: int, serial: int, piece: Piece) -> None:
        name = sha256(piece.data).digest()
        select = "SELECT key, data = ? FROM blobs WHERE hash = ?"
        found = self._connection.execute(select, (piece.data, name)).fetchone()
        if found is None:
            key = self._connection.execute("INSERT INTO blobs VALUES (NULL, ?, ?)", (name, piece.data)).lastrowid
        elif found[1]:
            key = found[0]
        else:
            corrupt("content that other entries share is damaged")
        row = (session, serial, piece.offset, key, piece.is_base64)
        self._connection.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?)", row)
