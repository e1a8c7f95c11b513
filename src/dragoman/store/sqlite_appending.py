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
from .sql_rows import corrupt, find_sound_end, recognise_append

if TYPE_CHECKING:
    from .sqlite_database import SQLiteDatabase

__all__ = ["Appender"]

_INSERT = "INSERT INTO entries VALUES (NULL, ?, ?, (SELECT place FROM heads WHERE session = ?), ?, ?)"


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
        self._entries: list[tuple[int, int, int, bytes, bytes]] = []
        self._pieces: list[tuple[int, int, Piece]] = []

    def forget(self) -> None:
        """Know nothing any more, and write nothing of what was gathered."""
        self._places.clear()
        self._entries.clear()
        self._pieces.clear()

    def append(self, session_id: str, entries: Sequence[bytes], serial: int) -> Head:
        """Gather the entries, or recognise them; raise AppendConflict if others stand there.

        Writes what was gathered only if it must look at what is there.
        """
        place = self._places.get(session_id)
        if place is None or serial != place.next_serial:
            self.flush()
            session = find_sound_end(self._connection, session_id)
            if serial != session.head.next_serial:
                return recognise_append(self._connection, session, entries, serial)
            place = _Place(session.key, serial, bytes.fromhex(session.head.checksum))
            self._places[session_id] = place
        key, checksum = place.key, place.checksum
        for entry in entries:
            checksum = chained(checksum, entry)
            left, pieces = cut_pieces(entry)
            self._entries.append((key, serial, key, checksum, left))
            for piece in pieces:
                self._pieces.append((key, serial, piece))
            serial += 1
        place.checksum, place.next_serial = checksum, serial
        return Head(serial - 1, checksum.hex())

    def append_one(self, session_id: str, entry: bytes, serial: int) -> Head | None:
        """Write an entry by a statement that is a transaction by itself; None if more is needed than that.

        Nothing may have been gathered. Raises sqlite3.IntegrityError if somebody else was faster.
        """
        place = self._places.get(session_id)
        if place is None or serial != place.next_serial or len(entry) >= BLOB_SIZE:
            return None
        key, checksum = place.key, chained(place.checksum, entry)
        self._connection.execute(_INSERT, (key, serial, key, checksum, entry))
        place.checksum, place.next_serial = checksum, serial + 1
        return Head(serial, checksum.hex())

    def flush(self) -> None:
        """Write what was gathered. Raises sqlite3.IntegrityError if somebody else was faster."""
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
