"""Appends as rows of a SQLite file.

The ends of sessions are remembered from transaction to transaction. If another process has appended since, the serial
that was thought to be next is taken, and the database itself refuses the row.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from .blobs import Piece, cut_pieces
from .chain import chained
from .protocol import Head
from .requests import Change
from .sql_leases import Claim, recognise_or_refuse, require_claim
from .sql_requests import record_changes, require_free_keys
from .sql_rows import corrupt, find_sound_end
from .sql_tails import delete_tail

if TYPE_CHECKING:
    from .sqlite_database import SQLiteDatabase

__all__ = ["Appender"]

ENDS = 10_000  # of sessions that are remembered: a server appends to more and more of them

# Without a position of the one before, which an append by another lease does not get, the database refuses the row.
_INSERT = """INSERT INTO entries VALUES (NULL, ?1, ?2, (
    SELECT position FROM heads WHERE session = ?1 AND (SELECT token FROM leases WHERE session = ?1) IS ?3
), ?4, ?5)"""


class _End(NamedTuple):
    """Where a session ends: its key, the serial of its next entry, the checksum of its last."""

    key: int
    next_serial: int
    checksum: bytes


class Appender:
    """Writes appends with a connection, which is in a transaction then."""

    def __init__(self, connection: "SQLiteDatabase") -> None:
        self.connection = connection
        self._ends: dict[str, _End] = {}

    def append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim, changes: Sequence[Change] = ()
    ) -> Head:
        """Write the entries, or recognise them; raise AppendConflict if others have their serials.

        Raises sqlite3.IntegrityError if another process has appended, or has the lease: then `roll_back`, try again.
        """
        end, token = self._ends.get(session_id), claim.token
        if end is None or serial != end.next_serial or claim.is_said:
            session = find_sound_end(self.connection, session_id)
            if serial != session.head.next_serial:
                return recognise_or_refuse(self.connection, session, entries, serial, claim)
            token = require_claim(self.connection, session.key, session_id, claim)
            end = _End(session.key, serial, bytes.fromhex(session.head.checksum))
        require_free_keys(self.connection, changes)
        checksum = end.checksum
        for entry in entries:
            checksum = chained(checksum, entry)
            left, pieces = cut_pieces(entry)
            before = self.connection.total_changes
            self.connection.execute(_INSERT, (end.key, serial, token, checksum, left))
            if self.connection.total_changes < before + 2:  # the entry, and the head that the database moves
                corrupt("the database does not move the heads of its sessions: its triggers were removed")
            for piece in pieces:
                self._add_piece(end.key, serial, piece)
            serial += 1
        record_changes(self.connection, end.key, changes)
        if claim.ends_tail:
            delete_tail(self.connection, end.key)
        if len(self._ends) >= ENDS:
            self._ends.clear()
        self._ends[session_id] = _End(end.key, serial, checksum)
        return Head(serial - 1, checksum.hex())

    def roll_back(self) -> None:
        """Undo the transaction, if there is one, and forget."""
        self.forget()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def forget(self) -> None:
        """Remember no end of a session any more."""
        self._ends.clear()

    def _add_piece(self, session: int, serial: int, piece: Piece) -> None:
        name = sha256(piece.data).digest()
        select = "SELECT key, data = ? FROM blobs WHERE hash = ?"
        found = self.connection.execute(select, (piece.data, name)).fetchone()
        if found is None:
            key = self.connection.execute("INSERT INTO blobs VALUES (NULL, ?, ?)", (name, piece.data)).lastrowid
        elif found[1]:
            key = found[0]
        else:
            corrupt("content that other entries share is damaged")
        row = (session, serial, piece.offset, key, piece.is_base64)
        self.connection.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?)", row)
