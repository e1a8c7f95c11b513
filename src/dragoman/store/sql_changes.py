"""Sessions as rows: what each change is in SQL. Every function gets a database in a transaction that may write.

A change refuses before it writes, so that the others of its transaction need not be undone.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from .._jsontext import encode_json
from ..errors import ErrorCode, InvalidValue, StoreError
from ..history import Metadata
from .chain import digest_of
from .database import Database
from .leases import require_not_leased
from .protocol import START, SessionInfo, Snapshot, Tombstone
from .refusals import fork_conflict, name_taken, not_a_fork, require_forks_named
from .sql_leases import find_held
from .sql_rows import SessionRow, checksum_at, find_session, find_sound_end, find_tombstone, info_of
from .sql_tails import delete_tail

__all__ = [
    "create_session",
    "drop_snapshots",
    "erase_session",
    "fork_session",
    "put_snapshot",
]

SNAPSHOT_BLOCK = 16_384  # of each so many entries the last snapshot is kept, for forks and the past


def create_session(
    database: Database, session_id: str, *, now: datetime, metadata: Metadata, parent: SessionRow | None = None,
    base: int = -1,
) -> SessionInfo:  # fmt: skip
    """Add a session, or a fork of `parent` after its serial `base`."""
    tombstone = find_tombstone(database, session_id)
    taken = database.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if taken is not None or tombstone is not None:
        raise name_taken(session_id, tombstone)
    checksum = START if parent is None else checksum_at(database, parent, base)
    key = database.next_key()
    row = (key, session_id, now.isoformat(), encode_json(metadata.to_plain()), parent.key if parent else None, base)
    database.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, digest_of(*row)))
    database.execute("INSERT INTO heads (session, serial, checksum) VALUES (?, ?, ?)", (key, base, checksum))
    return info_of(database, key)


def fork_session(
    database: Database, session_id: str, serial: int, new_session_id: str, *, now: datetime, metadata: Metadata
) -> SessionInfo:
    """Add a session that shares the entries of another up to `serial`."""
    database.hold(session_id)
    parent = find_sound_end(database, session_id)
    if serial > parent.head.serial:
        raise fork_conflict(session_id, serial, parent.head)
    return create_session(database, new_session_id, now=now, metadata=metadata, parent=parent, base=serial)


def put_snapshot(database: Database, session_id: str, snapshot: Snapshot) -> None:
    """Keep a snapshot; of those before it only the last of each block of entries stays."""
    database.hold(session_id)
    session = find_session(database, session_id)
    if snapshot.serial > session.head.serial:
        raise InvalidValue.of("snapshot.serial", snapshot.serial, f"at most {session.head.serial}, the newest serial")
    checksum = checksum_at(database, session, snapshot.serial)
    block = snapshot.serial - snapshot.serial % SNAPSHOT_BLOCK
    database.execute("DELETE FROM snapshots WHERE session = ? AND serial >= ?", (session.key, block))
    row = (session.key, snapshot.serial, checksum, snapshot.data)
    database.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", row)


def drop_snapshots(database: Database, session_id: str) -> None:
    """Delete the snapshots of a session."""
    database.execute("DELETE FROM snapshots WHERE session = ?", (find_session(database, session_id).key,))


class _Going(NamedTuple):
    """A session that shall be erased, also one that is damaged."""

    key: int
    session_id: str
    parent: int | None
    entries: int


def erase_session(
    database: Database, session_id: str, forks: Iterable[str], now: datetime, *, force: bool = False
) -> Tombstone:
    """Delete the session and the named forks; leave tombstones, and a note that pages must be cleaned."""
    going = {each: _find_going(database, each) for each in (session_id, *forks)}
    _require_family(database, session_id, going)
    if not force:
        for each, session in going.items():
            require_not_leased(find_held(database, session.key, each), database.now())
    database.repair_index()
    for session in sorted(going.values(), reverse=True):  # a fork before its parent
        key = (session.key,)
        database.execute("INSERT INTO erasing (session) VALUES (?)", key)
        blobs = database.execute("SELECT DISTINCT blob FROM pieces WHERE session = ?", key).fetchall()
        database.execute("DELETE FROM pieces WHERE session = ?", key)
        database.executemany(
            "DELETE FROM blobs WHERE key = ? AND NOT EXISTS (SELECT 1 FROM pieces WHERE blob = blobs.key)", blobs
        )
        database.execute("DELETE FROM entries WHERE session = ?", key)
        database.execute("DELETE FROM snapshots WHERE session = ?", key)
        database.execute("DELETE FROM leases WHERE session = ?", key)
        database.execute("DELETE FROM requests WHERE session = ?", key)
        database.execute("DELETE FROM entry_marks WHERE session = ?", key)
        delete_tail(database, session.key)
        database.execute("DELETE FROM heads WHERE session = ?", key)
        database.execute("DELETE FROM sessions WHERE key = ?", key)
        database.execute(
            "INSERT INTO tombstones VALUES (?, ?, ?)", (session.session_id, now.isoformat(), session.entries)
        )
        database.execute("DELETE FROM erasing WHERE session = ?", key)
    database.execute("INSERT INTO cleanings DEFAULT VALUES")
    return Tombstone(session_id, now, going[session_id].entries)


def _find_going(database: Database, session_id: str) -> _Going:
    """Return the session even if it is damaged: a damaged session can be erased too."""
    try:
        session = find_session(database, session_id)
        return _Going(session.key, session_id, session.parent, session.head.serial - session.base)
    except StoreError as error:
        if error.code is not ErrorCode.CORRUPT:
            raise
    select = "SELECT key FROM sessions WHERE session_id = ?"
    row = database.execute(select, (session_id,)).fetchone()
    key = database.find_unindexed(session_id) if row is None else row[0]
    assert key is not None  # it is damaged, so it is there
    (parent,) = database.execute("SELECT parent FROM sessions WHERE key = ?", (key,)).fetchone()
    (entries,) = database.execute("SELECT count(*) FROM entries WHERE session = ?", (key,)).fetchone()
    return _Going(key, session_id, parent, entries)


def _require_family(database: Database, session_id: str, going: dict[str, _Going]) -> None:
    """Raise unless the sessions to erase are one session and its forks, and no other session is based on them."""
    keys = {session.key for session in going.values()}
    for each, session in going.items():
        if each != session_id and session.parent not in keys:
            raise not_a_fork(each, session_id)
    children = (
        database.execute("SELECT key, session_id FROM sessions WHERE parent = ?", (key,)).fetchall() for key in keys
    )
    require_forks_named(session_id, [name for rows in children for key, name in rows if key not in keys])
