"""Sessions as rows: what each change is in SQL. Every function gets a connection in a transaction that may write.

A change refuses before it writes, so that the others of its transaction need not be undone.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import InvalidValue
from ..history import Metadata
from ..jsontext import encode_json
from .chain import digest_of
from .protocol import START, Head, SessionInfo, Snapshot, Tombstone
from .refusals import fork_conflict, name_taken, not_a_fork, require_forks_named
from .sqlite_rows import SessionRow, checksum_at, find_session, find_sound_end, find_tombstone, info_of

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = [
    "create_session",
    "drop_snapshots",
    "erase_session",
    "fork_session",
    "put_snapshot",
]

SNAPSHOT_BLOCK = 16_384  # of each so many entries the last snapshot is kept, for forks and the past


def create_session(
    connection: "Connection", session_id: str, *, now: datetime, metadata: Metadata, parent: SessionRow | None = None,
    base: int = -1,
) -> SessionInfo:  # fmt: skip
    """Add a session, or a fork of `parent` after its serial `base`."""
    tombstone = find_tombstone(connection, session_id)
    taken = connection.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if taken is not None or tombstone is not None:
        raise name_taken(session_id, tombstone)
    checksum = START if parent is None else checksum_at(connection, parent, base)
    (key,) = connection.execute(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions'), 0) + 1"
    ).fetchone()
    row = (key, session_id, now.isoformat(), encode_json(metadata.to_plain()), parent.key if parent else None, base)
    connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, digest_of(*row)))
    connection.execute("INSERT INTO heads VALUES (?, ?, ?)", (key, base, checksum))
    return info_of(connection, SessionRow(*row, Head(base, checksum.hex())))


def fork_session(
    connection: "Connection", session_id: str, serial: int, new_session_id: str, *, now: datetime, metadata: Metadata
) -> SessionInfo:
    """Add a session that shares the entries of another up to `serial`."""
    parent = find_sound_end(connection, session_id)
    if serial > parent.head.serial:
        raise fork_conflict(session_id, serial, parent.head)
    return create_session(connection, new_session_id, now=now, metadata=metadata, parent=parent, base=serial)


def put_snapshot(connection: "Connection", session_id: str, snapshot: Snapshot) -> None:
    """Keep a snapshot; of those before it only the last of each block of entries stays."""
    session = find_session(connection, session_id)
    if snapshot.serial > session.head.serial:
        raise InvalidValue.of("snapshot.serial", snapshot.serial, f"at most {session.head.serial}, the newest serial")
    checksum = checksum_at(connection, session, snapshot.serial)
    block = snapshot.serial - snapshot.serial % SNAPSHOT_BLOCK
    connection.execute("DELETE FROM snapshots WHERE session = ? AND serial >= ?", (session.key, block))
    row = (session.key, snapshot.serial, checksum, snapshot.data)
    connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", row)


def drop_snapshots(connection: "Connection", session_id: str) -> None:
    """Delete the snapshots of a session."""
    connection.execute("DELETE FROM snapshots WHERE session = ?", (find_session(connection, session_id).key,))


def erase_session(connection: "Connection", session_id: str, forks: Iterable[str], now: datetime) -> Tombstone:
    """Delete the session and the named forks; leave tombstones, and a note that pages must be cleaned."""
    going = {each: find_session(connection, each) for each in (session_id, *forks)}
    _require_family(connection, session_id, going)
    for session in sorted(going.values(), reverse=True):  # a fork before its parent
        key = (session.key,)
        connection.execute("INSERT INTO erasing VALUES (?)", key)
        blobs = connection.execute("SELECT DISTINCT blob FROM pieces WHERE session = ?", key).fetchall()
        connection.execute("DELETE FROM pieces WHERE session = ?", key)
        connection.executemany(
            "DELETE FROM blobs WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM pieces WHERE blob = ?1)", blobs
        )
        connection.execute("DELETE FROM entries WHERE session = ?", key)
        connection.execute("DELETE FROM snapshots WHERE session = ?", key)
        connection.execute("DELETE FROM heads WHERE session = ?", key)
        connection.execute("DELETE FROM sessions WHERE key = ?", key)
        stone = (session.session_id, now.isoformat(), session.head.serial - session.base)
        connection.execute("INSERT INTO tombstones VALUES (?, ?, ?)", stone)
        connection.execute("DELETE FROM erasing WHERE session = ?", key)
    connection.execute("INSERT INTO cleanings VALUES (NULL)")
    return Tombstone(session_id, now, going[session_id].head.serial - going[session_id].base)


def _require_family(connection: "Connection", session_id: str, going: dict[str, SessionRow]) -> None:
    """Raise unless those who go are one session and forks of it, and nobody stands on them."""
    keys = {session.key for session in going.values()}
    for each, session in going.items():
        if each != session_id and session.parent not in keys:
            raise not_a_fork(each, session_id)
    children = (
        connection.execute("SELECT key, session_id FROM sessions WHERE parent = ?", (key,)).fetchall() for key in keys
    )
    require_forks_named(session_id, [name for rows in children for key, name in rows if key not in keys])
