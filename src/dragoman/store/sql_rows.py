"""Sessions as rows: what each question is in SQL. Every function gets a database in a transaction.

Each query checks every row that it reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

import msgspec

from .._jsontext import decode_json
from ..errors import ErrorCode, StoreError
from ..history import DerivedState, Metadata
from ..history.entryform import ENTRY_LIMIT
from ..message import utc_time
from .blobs import Piece, put_back
from .chain import checked, decode_entry, digest_of, follow, is_end_of
from .database import Database
from .listing import ListQuery, page_of
from .protocol import START, ForkPoint, Head, SessionInfo, SessionPage, Snapshot, Tombstone, VerifyReport
from .refusals import MAX_SERIAL, append_conflict, compared_with_kept, no_session, require_session_id
from .snapshots import describe_mismatch

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
    "recognise_append",
    "verify_session",
]

CHUNK = 512  # rows that are read at once
SPAN_BYTES = 1 << 26  # of pieces that are read at once, unless one entry has more


class SessionRow(NamedTuple):
    """A session as its row and its head say, both checked."""

    key: int
    session_id: str
    created_at: datetime
    metadata: Metadata
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


def _columns(table: str) -> str:
    names = ("key", "session_id", "created_at", "metadata", "parent", "base", "record")
    return ", ".join(f"{table}.{name}" for name in names)


_SESSION = f"""
    SELECT {_columns("s")}, h.serial, h.checksum FROM sessions AS s LEFT JOIN heads AS h ON h.session = s.key
"""  # noqa: S608
# The same with the newest entry, if that is the session's own: other callers must not fail because of it.
_END = f"""
    SELECT {_columns("s")}, h.serial, h.checksum, e.checksum
    FROM sessions AS s LEFT JOIN heads AS h ON h.session = s.key LEFT JOIN entries AS e ON {{newest}}
"""  # noqa: S608
_INFO = f"""
    SELECT {_columns("s")}, h.serial, h.checksum, e.entry, {_columns("p")}
    FROM sessions AS s LEFT JOIN heads AS h ON h.session = s.key LEFT JOIN entries AS e ON {{newest}}
    LEFT JOIN sessions AS p ON p.key = s.parent
"""  # noqa: S608
_WIDTH = 9  # columns of a session and its head


# ---------------------------------------------------------------- questions


def find_session(database: Database, session_id: str) -> SessionRow:
    """Return the session of that id; raise StoreError if there is none, or if its own record is damaged."""
    return _session_row(_found(database, _SESSION, session_id))


def find_sound_end(database: Database, session_id: str) -> SessionRow:
    """Return the session, if it ends where its head says: an append must know that."""
    *row, end = _found(database, _END.format(newest=database.newest), session_id)
    session = _session_row(row)
    if session.head.serial == session.base:
        end = checksum_at(database, session, session.base)
    if type(end) is not bytes or end.hex() != session.head.checksum:
        corrupt(f"session {session_id!r}: the entry of serial {session.head.serial} is not what was appended")
    return session


def verify_session(database: Database, session_id: str, kept: Head | None) -> VerifyReport:
    """Return a report of the first damaged serial, or that all is sound; raise StoreError without such a session."""
    try:
        session = find_session(database, session_id)
        segments = _lineage(database, session)
    except StoreError as error:
        if error.code is not ErrorCode.CORRUPT:
            raise
        return VerifyReport(session_id, Head(), -1, str(error))
    head, problem, changed = _sound_head(database, segments, session.head.next_serial)
    if problem is None and session.head != head:
        return VerifyReport(session_id, head, head.serial, "the checksum of the head is another")
    if problem is None and database.has_entries_after(session.key, session.head.serial):
        problem = "there are entries after the head"
    if problem is not None:
        return VerifyReport(session_id, head, head.next_serial, problem)
    try:
        info_of(database, find_sound_end(database, session_id).key)  # as an append and `open` read them
    except StoreError as error:
        return VerifyReport(session_id, head, head.serial, str(error))
    if changed is not None:
        return VerifyReport(session_id, head, *changed)
    report = VerifyReport(session_id, head)
    return compared_with_kept(kept, report, lambda serial: _checksum_in(database, segments, serial).hex())


def find_tombstone(database: Database, session_id: str) -> Tombstone | None:
    """Return what is left of an erased session."""
    row = database.execute("SELECT erased_at, entries FROM tombstones WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return None
    try:
        return Tombstone(session_id, _time(row[0]), row[1])
    except (TypeError, ValueError):
        corrupt(f"the tombstone of session {session_id!r} is not what was written")


def info_of(database: Database, key: int) -> SessionInfo:
    """Return what is known of the session of that key, which is there."""
    return _info(database.execute(f"{_INFO.format(newest=database.newest)} WHERE s.key = ?", (key,)).fetchone())


def list_sessions(database: Database, query: ListQuery) -> SessionPage:
    """Return the sessions that fit, the newest first, and the ids of those that cannot be read."""
    return page_of(query, _listed(database, query))


def read_json(database: Database, session: SessionRow, first: int, end: int) -> list[bytes]:
    """Return the entries from `first` on, before `end`, each checked against the chain."""
    segments = _lineage(database, session)
    end = min(end, session.head.next_serial)
    if first >= end:
        return []
    previous = _checksum_in(database, segments, first - 1)
    entries = list(checked(_rows(database, segments, first, end), first, previous))
    if first + len(entries) != end:
        corrupt(f"the entry of serial {first + len(entries)} is missing")
    if end == session.head.next_serial and _checksum_in(database, segments, end - 1).hex() != session.head.checksum:
        corrupt(f"the entry of serial {end - 1} is not the one that the head is of")
    return entries


def checksum_at(database: Database, session: SessionRow, serial: int) -> bytes:
    """Return the checksum of the entry of that serial, -1 for the beginning."""
    return _checksum_in(database, _lineage(database, session), serial)


def recognise_append(database: Database, session: SessionRow, entries: Sequence[bytes], serial: int) -> Head:
    """Return the head of entries that stand there already: the answer to their first append was lost.

    Raises AppendConflict if they do not.
    """
    last = serial + len(entries) - 1
    if last <= session.head.serial:
        checksum = checksum_at(database, session, last)
        if is_end_of(checksum, entries, checksum_at(database, session, serial - 1)):
            return Head(last, checksum.hex())
    raise append_conflict(session.session_id, serial, session.head)


def newest_snapshot(database: Database, session: SessionRow) -> Snapshot | None:
    """Return the newest snapshot whose checksum is that of its entry; it may be a parent's.

    The session has an entry after it, which must name it: see `snapshots`.
    """
    segments = _lineage(database, session)
    try:
        with database.attempt():
            for segment in reversed(segments):
                row = database.execute(
                    "SELECT serial, checksum, data FROM snapshots WHERE session = ? AND serial BETWEEN ? AND ?"
                    " ORDER BY serial DESC LIMIT 1",
                    (segment.key, segment.first - 1, segment.last - 1),
                ).fetchone()
                if row is not None:
                    serial, checksum, data = row
                    return Snapshot(serial, data) if checksum == _checksum_in(database, segments, serial) else None
    except StoreError:  # a snapshot saves time: a damaged one is none
        pass
    return None


# ---------------------------------------------------------------- helpers


def _found(database: Database, select: str, session_id: str) -> Sequence[Any]:
    row: Sequence[Any] | None = database.execute(f"{select} WHERE s.session_id = ?", (session_id,)).fetchone()
    if row is not None:
        return row
    tombstone = find_tombstone(database, session_id)
    if tombstone is None and database.find_unindexed(session_id) is not None:
        corrupt(f"session {session_id!r} is there, but not in the index of sessions")
    raise no_session(session_id, tombstone)


def _session_row(row: Sequence[Any]) -> SessionRow:
    """The session of a row, whose own record is sound."""
    *record, serial, checksum = row
    session = _record(record)
    if type(serial) is not int or type(checksum) is not bytes or not session.base <= serial <= MAX_SERIAL:
        corrupt(f"the head of session {session.session_id!r} is damaged")
    return session._replace(head=Head(serial, checksum.hex()))


def _record(row: Sequence[Any]) -> SessionRow:
    """What a row of `sessions` says; raise StoreError unless a store of ours can have written it.

    Anyone who can write to the database can make the checksum of a row right, so every value is checked too.
    """
    *values, digest = row
    key, session_id, created_at, metadata, parent, base = values
    if digest_of(*values) != digest:
        corrupt(f"the record of session {session_id!r} is not what was written")
    try:
        require_session_id(session_id)
        noted, created = Metadata.of(decode_json(metadata)), _time(created_at)
        is_in_order = -1 <= base <= MAX_SERIAL and (base == -1 if parent is None else parent < key)
    except (TypeError, ValueError) as error:
        corrupt(f"the record of session {session_id!r} cannot be read: {error}")
    if not is_in_order:
        corrupt(f"the record of session {session_id!r} names a parent that it cannot have")
    return SessionRow(key, session_id, created, noted, parent, base, Head())


def _info(row: Sequence[Any]) -> SessionInfo:
    """What is known of the session of a row, whose own record and its parent's are sound."""
    session, entry, parent = _session_row(row[:_WIDTH]), row[_WIDTH], row[_WIDTH + 1 :]
    point = None
    if session.parent is not None:
        if parent[0] is None:
            corrupt("the session that a fork stands on is missing")
        point = ForkPoint(_record(parent).session_id, session.base)
    updated_at = session.created_at
    if session.head.serial > session.base:
        try:
            updated_at = utc_time(msgspec.json.decode(entry or b"", type=_Stamp).timestamp) or updated_at
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            corrupt(f"the entry of serial {session.head.serial} is not what was appended")
    return SessionInfo(session.session_id, session.created_at, updated_at, session.head, session.metadata, point)


def _listed(database: Database, query: ListQuery) -> Iterator[tuple[int, SessionInfo | str]]:
    """The key of each session, the newest first, with what is known of it, or with its id alone if it is damaged."""
    below, step = query.before, min(query.limit + 1, CHUNK)
    while True:
        where, values = ("", ()) if below is None else ("WHERE s.key < ?", (below,))
        order = f"{where} ORDER BY s.key DESC LIMIT {step}"
        try:
            with database.attempt():
                rows = database.execute(f"{_INFO.format(newest=database.newest)} {order}", values).fetchall()
        except StoreError:
            if step > 1:
                step = 1  # find out whose it is
                continue
            brief = f"SELECT s.key, s.session_id FROM sessions AS s {order}"  # noqa: S608
            rows = database.execute(brief, values).fetchall()
        for row in rows:
            if below is not None and row[0] >= below:
                corrupt("the sessions are out of order")
            below = row[0]
            yield row[0], _info_or_id(row)
        if len(rows) < step:
            return


def _info_or_id(row: Sequence[Any]) -> SessionInfo | str:
    try:
        if len(row) > _WIDTH:
            return _info(row)
    except StoreError:
        pass
    return str(row[1]).encode(errors="surrogateescape").decode(errors="backslashreplace")  # it may be no text any more


class _Walk(NamedTuple):
    """The head of what is sound, what is wrong with the entry after it, and the first snapshot that was changed."""

    head: Head
    problem: str | None
    changed: tuple[int, str] | None


def _sound_head(database: Database, segments: Sequence[Segment], end: int) -> _Walk:
    """Check all entries before `end`, one at a time: together they may be larger than the memory."""
    snapshots = _snapshots(database, segments)
    serial, checksum, state, step, changed = 0, START, DerivedState(), CHUNK, None
    while True:
        try:
            with database.attempt():
                for row in _rows(database, segments, serial, end, step):
                    (data,) = checked((row,), serial, checksum)
                    entry = decode_entry(data, serial)
                    kept = snapshots.get((serial - 1, checksum))
                    if kept is not None and changed is None and (said := describe_mismatch(kept, entry, state)):
                        changed = serial - 1, said
                    state = follow(state, (entry,))
                    serial, checksum = serial + 1, row[2]
            if serial < end:
                corrupt(f"the entry of serial {serial} is missing")
        except StoreError as error:
            if step == 1:
                return _Walk(Head(serial - 1, checksum.hex()), str(error), None)
            step = 1  # find out which one it is
        else:
            return _Walk(Head(serial - 1, checksum.hex()), None, changed)


def _snapshots(database: Database, segments: Sequence[Segment]) -> dict[tuple[int, bytes], Snapshot]:
    """The snapshots by their serials and the checksums there; those that the database cannot read are left out."""
    found: dict[tuple[int, bytes], Snapshot] = {}
    try:
        with database.attempt():
            for segment in segments:
                select = "SELECT serial, checksum, data FROM snapshots WHERE session = ? AND serial BETWEEN ? AND ?"
                for serial, checksum, data in database.execute(
                    select, (segment.key, segment.first - 1, segment.last - 1)
                ):
                    found[serial, checksum] = Snapshot(serial, data)
    except StoreError:
        pass
    return found


def _session_of_key(database: Database, key: int) -> SessionRow:
    row = database.execute(f"{_SESSION} WHERE s.key = ?", (key,)).fetchone()
    if row is None:
        corrupt("the session that a fork stands on is missing")
    return _session_row(row)


def _lineage(database: Database, session: SessionRow) -> list[Segment]:
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
        session = _session_of_key(database, session.parent)


def _checksum_in(database: Database, segments: Iterable[Segment], serial: int) -> bytes:
    if serial < 0:
        return START
    for segment in segments:
        if serial <= segment.last:
            for _, _, checksum in database.entries_between(segment.key, serial, serial):
                if type(checksum) is bytes:
                    return checksum
            break
    raise StoreError(f"the entry of serial {serial} is missing", code=ErrorCode.CORRUPT)


def _rows(
    database: Database, segments: Iterable[Segment], first: int, end: int, step: int = CHUNK
) -> Iterator[tuple[int, bytes, bytes]]:
    """The serial, entry and checksum of each, the pieces put back, up to the first step with a missing entry.

    A damaged head may name more entries than a program can count.
    """
    for segment in segments:
        low, high = max(first, segment.first), min(end - 1, segment.last)
        while low <= high:
            upto = min(high, low + step - 1)
            sizes, found = _piece_sizes(database, (segment.key, low, upto)), 0
            for begin, last in _spans(sizes, low, upto):
                pieces: dict[int, list[Piece]] | None = None
                for serial, entry, checksum in database.entries_between(segment.key, begin, last):
                    found += 1
                    if type(entry) is bytes:
                        if sizes.get(serial, 0) + len(entry) > ENTRY_LIMIT:  # before any piece of it is read
                            corrupt(f"the entry of serial {serial} is larger than {ENTRY_LIMIT} bytes, the limit")
                        if serial in sizes:
                            pieces = pieces or _pieces(database, (segment.key, begin, last))
                            entry = put_back(entry, pieces.get(serial, ()))  # noqa: PLW2901  # the same entry, whole
                    yield serial, entry, checksum
            if found <= upto - low:
                return
            low = upto + 1


def _piece_sizes(database: Database, span: tuple[int, int, int]) -> dict[int, int]:
    """How many bytes the pieces of each entry are when they are put back. Many pieces may be one small blob."""
    select = """
        SELECT p.serial, sum(CASE WHEN p.is_base64 THEN (length(b.data) + 2) / 3 * 4 ELSE length(b.data) END)
        FROM pieces AS p JOIN blobs AS b ON b.key = p.blob
        WHERE p.session = ? AND p.serial BETWEEN ? AND ? GROUP BY p.serial ORDER BY p.serial
    """
    return dict(database.execute(select, span).fetchall())


def _spans(sizes: Mapping[int, int], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The serials from `low` to `high` in runs of at most SPAN_BYTES of pieces; a larger entry begins a run."""
    total = 0
    for serial, size in sizes.items():
        total += size
        if total > SPAN_BYTES and serial > low:
            yield low, serial - 1
            low, total = serial, size
    yield low, high


def _pieces(database: Database, span: tuple[int, int, int]) -> dict[int, list[Piece]]:
    pieces: dict[int, list[Piece]] = {}
    rows = database.execute(
        "SELECT p.serial, p.at, p.is_base64, b.data FROM pieces AS p JOIN blobs AS b ON b.key = p.blob"
        " WHERE p.session = ? AND p.serial BETWEEN ? AND ? ORDER BY p.serial, p.at",
        span,
    )
    for serial, at, is_base64, data in rows:
        if type(data) is bytes:
            pieces.setdefault(serial, []).append(Piece(at, bool(is_base64), data))
    return pieces


def _time(text: str) -> datetime:
    """The time that a store wrote; raise ValueError or TypeError for any other."""
    time = utc_time(datetime.fromisoformat(text))
    assert time is not None  # None stands for None alone
    return time


def corrupt(message: str) -> NoReturn:
    """Raise the error for what is not as it was written."""
    raise StoreError(message, code=ErrorCode.CORRUPT)
