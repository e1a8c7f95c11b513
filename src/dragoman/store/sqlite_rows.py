"""Sessions as rows: what each question is in SQL. Every function gets a connection in a transaction.

A question believes nothing that it has not checked.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from ..errors import ErrorCode, StoreError
from ..history import Metadata
from ..jsontext import decode_json
from .blobs import Piece, put_back
from .chain import checked, digest_of
from .listing import ListQuery, page_of
from .protocol import START, ForkPoint, Head, SessionInfo, SessionPage, Snapshot, Tombstone, VerifyReport
from .refusals import (
    MAX_SERIAL,
    held_against,
    no_session,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = [
    "SessionRow",
    "checksum_at",
    "corrupt",
    "find_session",
    "find_sound_end",
    "find_tombstone",
    "info_of",
    "list_sessions",
    "newest_snapshot",
    "read_json",
    "verify_session",
]

CHUNK = 512  # rows that are read at once


class SessionRow(NamedTuple):
    """A session as its row and its head say, both checked."""

    key: int
    session_id: str
    created_at: str
    metadata: bytes
    parent: int | None
    base: int  # the last serial that is the parent's, -1 if there is no parent
    head: Head


class Segment(NamedTuple):
    """A run of entries that one session of a lineage holds."""

    key: int
    first: int
    last: int


class _Stamp(msgspec.Struct):
    """Of an entry, its time."""

    timestamp: datetime | None = None


_SESSION = """
    SELECT s.key, s.session_id, s.created_at, s.metadata, s.parent, s.base, s.record, h.serial, h.checksum
    FROM sessions AS s
    LEFT JOIN heads AS h ON h.session = s.key
"""


# ---------------------------------------------------------------- questions


def find_session(connection: "Connection", session_id: str) -> SessionRow:
    """Return the session of that id; raise StoreError if there is none, or if its own record is damaged."""
    row = connection.execute(f"{_SESSION} WHERE s.session_id = ?", (session_id,)).fetchone()
    if row is not None:
        return _session_row(row)
    tombstone = find_tombstone(connection, session_id)
    scan = "SELECT 1 FROM sessions NOT INDEXED WHERE session_id = ?"  # the index may be what is damaged
    if tombstone is None and connection.execute(scan, (session_id,)).fetchone() is not None:
        corrupt(f"session {session_id!r} is there, but not in the index of sessions")
    raise no_session(session_id, tombstone)


def find_sound_end(connection: "Connection", session_id: str) -> SessionRow:
    """Return the session, if it also ends where its head says; who appends must know that."""
    session = find_session(connection, session_id)
    if checksum_at(connection, session, session.head.serial).hex() != session.head.checksum:
        corrupt(f"session {session_id!r}: the entry of serial {session.head.serial} is not what was appended")
    return session


def verify_session(connection: "Connection", session_id: str, kept: Head | None) -> VerifyReport:
    """Return the first serial that is not what was appended, or that all is sound; raise StoreError only for none."""
    try:
        session = find_session(connection, session_id)
        segments = _lineage(connection, session)
    except StoreError as error:
        if error.code is not ErrorCode.CORRUPT:
            raise
        return VerifyReport(session_id, Head(), -1, str(error))
    head, problem = _sound_head(connection, segments, session.head.next_serial)
    beyond = "SELECT 1 FROM entries WHERE session = ? AND serial > ?"
    end = (session.key, session.head.serial)
    if problem is None and session.head != head:
        return VerifyReport(session_id, head, head.serial, "the checksum of the head is another")
    if problem is None and connection.execute(beyond, end).fetchone() is not None:
        problem = "there are entries after the head"
    if problem is not None:
        return VerifyReport(session_id, head, head.next_serial, problem)
    report = VerifyReport(session_id, head)
    return held_against(kept, report, lambda serial: _checksum_in(connection, segments, serial).hex())


def find_tombstone(connection: "Connection", session_id: str) -> Tombstone | None:
    """Return what is left of an erased session."""
    row = connection.execute("SELECT erased_at, entries FROM tombstones WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else Tombstone(session_id, _time(row[0]), row[1])


def info_of(connection: "Connection", session: SessionRow) -> SessionInfo:
    """Return what is known of the session."""
    point = None
    if session.parent is not None:
        point = ForkPoint(_session_of_key(connection, session.parent).session_id, session.base)
    created_at = updated_at = _time(session.created_at)
    if session.head.serial > session.base:
        select = "SELECT entry FROM entries WHERE session = ? AND serial = ?"
        (entry,) = connection.execute(select, (session.key, session.head.serial)).fetchone() or (None,)
        try:
            updated_at = msgspec.json.decode(entry or b"", type=_Stamp).timestamp or created_at
        except (msgspec.MsgspecError, TypeError):
            corrupt(f"the entry of serial {session.head.serial} is not what was appended")
    metadata = Metadata.of(decode_json(session.metadata))
    return SessionInfo(session.session_id, created_at, updated_at, session.head, metadata, point)


def list_sessions(connection: "Connection", query: ListQuery) -> SessionPage:
    """Return the sessions that fit, the newest first."""
    where, values = ("WHERE s.key < ?", (query.before,)) if query.before is not None else ("", ())
    rows = connection.execute(f"{_SESSION} {where} ORDER BY s.key DESC", values)
    found = (_session_row(row) for row in rows)
    return page_of(query, ((session.key, info_of(connection, session)) for session in found))


def read_json(connection: "Connection", session: SessionRow, first: int, end: int) -> list[bytes]:
    """Return the entries from `first` on, before `end`, each checked against the chain."""
    segments = _lineage(connection, session)
    end = min(end, session.head.next_serial)
    if first >= end:
        return []
    previous = _checksum_in(connection, segments, first - 1)
    entries = list(checked(_rows(connection, segments, first, end), first, previous))
    if first + len(entries) != end:
        corrupt(f"the entry of serial {first + len(entries)} is missing")
    if end == session.head.next_serial and _checksum_in(connection, segments, end - 1).hex() != session.head.checksum:
        corrupt(f"the entry of serial {end - 1} is not the one that the head is of")
    return entries


def checksum_at(connection: "Connection", session: SessionRow, serial: int) -> bytes:
    """Return the checksum of the entry of that serial, -1 for the beginning."""
    return _checksum_in(connection, _lineage(connection, session), serial)


def newest_snapshot(connection: "Connection", session: SessionRow) -> Snapshot | None:
    """Return the newest snapshot that the entries still stand behind, also one of a parent's."""
    import sqlite3

    segments = _lineage(connection, session)
    try:
        for segment in reversed(segments):
            row = connection.execute(
                "SELECT serial, checksum, data FROM snapshots WHERE session = ? AND serial BETWEEN ? AND ?"
                " ORDER BY serial DESC LIMIT 1",
                segment,
            ).fetchone()
            if row is not None:
                serial, checksum, data = row
                return Snapshot(serial, data) if checksum == _checksum_in(connection, segments, serial) else None
    except sqlite3.DatabaseError:  # a snapshot saves time: a damaged one is none
        return None
    return None


# ---------------------------------------------------------------- helpers


def _session_row(row: Sequence[Any]) -> SessionRow:
    """The session of a row, whose own record is sound."""
    *columns, record, serial, checksum = row
    key, session_id, created_at, metadata, parent, base = columns
    if digest_of(*columns) != record or (parent is not None and parent >= key):
        corrupt(f"the record of session {session_id!r} is not what was written")
    if type(serial) is not int or type(checksum) is not bytes or not base <= serial <= MAX_SERIAL:
        corrupt(f"the head of session {session_id!r} is damaged")
    return SessionRow(key, session_id, created_at, metadata, parent, base, Head(serial, checksum.hex()))


def _sound_head(connection: "Connection", segments: Sequence[Segment], end: int) -> tuple[Head, str | None]:
    """The head of what is sound before `end`, and what is wrong with the entry after it, if it is not the last."""
    import sqlite3

    serial, checksum, step = 0, START, CHUNK
    while serial < end:
        upto = min(serial + step, end)
        try:
            found = list(_rows(connection, segments, serial, upto))
            if len(list(checked(found, serial, checksum))) != upto - serial:
                corrupt(f"the entry of serial {serial + len(found)} is missing")
        except (StoreError, sqlite3.DatabaseError) as error:
            if step == 1:
                return Head(serial - 1, checksum.hex()), str(error)
            step = 1  # find out which one it is
        else:
            serial, checksum = upto, found[-1][2]
    return Head(serial - 1, checksum.hex()), None


def _session_of_key(connection: "Connection", key: int) -> SessionRow:
    row = connection.execute(f"{_SESSION} WHERE s.key = ?", (key,)).fetchone()
    if row is None:
        corrupt("the session that a fork stands on is missing")
    return _session_row(row)


def _lineage(connection: "Connection", session: SessionRow) -> list[Segment]:
    """Where the entries are, from the oldest: a fork's begin in its parent."""
    segments: list[Segment] = []
    last = session.head.serial
    while True:
        if last > session.base:
            segments.append(Segment(session.key, session.base + 1, last))
            last = session.base
        if session.parent is None or last < 0:
            segments.reverse()
            return segments
        session = _session_of_key(connection, session.parent)


def _checksum_in(connection: "Connection", segments: Iterable[Segment], serial: int) -> bytes:
    if serial < 0:
        return START
    for segment in segments:
        if serial <= segment.last:
            select = "SELECT checksum FROM entries WHERE session = ? AND serial = ?"
            row = connection.execute(select, (segment.key, serial)).fetchone()
            if row is not None and type(row[0]) is bytes:
                return bytes(row[0])
            break
    raise StoreError(f"the entry of serial {serial} is missing", code=ErrorCode.CORRUPT)


def _rows(
    connection: "Connection", segments: Iterable[Segment], first: int, end: int
) -> Iterator[tuple[int, bytes, bytes]]:
    """The serial, entry and checksum of each, the pieces put back; whatever is missing is left out."""
    for segment in segments:
        low, high = max(first, segment.first), min(end - 1, segment.last)
        while low <= high:
            upto = min(high, low + CHUNK - 1)
            span = (segment.key, low, upto)
            found = connection.execute(
                "SELECT serial, entry, checksum FROM entries WHERE session = ? AND serial BETWEEN ? AND ?"
                " ORDER BY serial",
                span,
            ).fetchall()
            pieces = _pieces(connection, span)
            for serial, entry, checksum in found:
                is_cut = serial in pieces and type(entry) is bytes
                yield serial, put_back(entry, pieces[serial]) if is_cut else entry, checksum
            low = upto + 1


def _pieces(connection: "Connection", span: tuple[int, int, int]) -> dict[int, list[Piece]]:
    pieces: dict[int, list[Piece]] = {}
    rows = connection.execute(
        "SELECT p.serial, p.at, p.is_base64, b.data FROM pieces AS p JOIN blobs AS b ON b.key = p.blob"
        " WHERE p.session = ? AND p.serial BETWEEN ? AND ? ORDER BY p.serial, p.at",
        span,
    )
    for serial, at, is_base64, data in rows:
        if type(data) is bytes:
            pieces.setdefault(serial, []).append(Piece(at, bool(is_base64), data))
    return pieces


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        corrupt("a time is not what was written")


def corrupt(message: str) -> NoReturn:
    """Raise the error for what is not as it was written."""
    raise StoreError(message, code=ErrorCode.CORRUPT)
