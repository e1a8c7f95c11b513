"""Leases as rows: what each change and question is in SQL. Every function gets a database in a transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from .database import Database
from .leases import HeldLease, kept_expiry, lease_lost, new_lease, require_not_leased
from .protocol import AppendConflict, Head, Lease, LeaseOwner
from .sql_rows import SessionRow, find_session, find_sound_end, recognise_append
from .sql_tails import delete_tail

__all__ = [
    "Claim",
    "acquire_lease",
    "find_held",
    "recognise_or_refuse",
    "release_lease",
    "renew_lease",
    "require_claim",
]


UNKNOWN_OWNER = LeaseOwner("an unknown host", 0)


class Claim(NamedTuple):
    """By what right a caller appends: the token of its lease, or that it only says something to a run.

    `ends_tail` says that the append ends the answer that the session's tail holds.
    """

    token: str | None = None
    is_said: bool = False
    ends_tail: bool = False


def find_held(database: Database, session: int, session_id: str) -> HeldLease | None:
    """Return the lease that is kept for a session, also one that is free by now.

    A lease is no part of the record, so a damaged one raises nothing: its owner is unknown.
    """
    row = database.execute(
        "SELECT token, owner, acquired, seconds, expires, boot, expires_uptime FROM leases WHERE session = ?",
        (session,),
    ).fetchone()
    if row is None:
        return None
    token, owner, acquired, seconds, expires, boot, expires_uptime = row
    try:
        held_by, acquired_at = msgspec.json.decode(owner, type=LeaseOwner), datetime.fromtimestamp(acquired, UTC)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, OSError, RecursionError):
        held_by, acquired_at = UNKNOWN_OWNER, datetime.fromtimestamp(0, UTC)
    lease = Lease(session_id=session_id, token=token, owner=held_by, acquired_at=acquired_at, seconds=seconds)
    return HeldLease(lease, kept_expiry(expires, boot, expires_uptime))


def acquire_lease(database: Database, session_id: str, token: str, seconds: float) -> Lease:
    """Give the session to the caller, if it is free."""
    database.hold(session_id)
    session = find_sound_end(database, session_id)
    now = database.now()
    held = find_held(database, session.key, session_id)
    lease, expires = new_lease(session_id, held, session.head, now, token=token, seconds=seconds)
    _forget_lease(database, session.key)
    row = (session.key, lease.token, msgspec.json.encode(lease.owner).decode(), now.wall, seconds, *expires)
    database.execute("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return lease


def renew_lease(database: Database, lease: Lease) -> Head:
    """Move the expiry of the lease, if it is still the one that is kept, and return how far the session is."""
    database.hold(lease.session_id)
    session = find_session(database, lease.session_id)
    require_claim(database, session.key, lease.session_id, Claim(lease.token))
    values = (*database.now().after(lease.seconds), session.key)
    database.execute("UPDATE leases SET expires = ?, boot = ?, expires_uptime = ? WHERE session = ?", values)
    return session.head


def release_lease(database: Database, lease: Lease) -> None:
    """Forget the lease, if it is still the one that is kept, and the tail that was written with it."""
    select = "SELECT key FROM sessions WHERE session_id = ?"
    for table in ("tails", "leases"):
        owned = f"session = ({select}) AND token = ?"
        database.execute(f"DELETE FROM {table} WHERE {owned}", (lease.session_id, lease.token))  # noqa: S608  # our names


def require_claim(database: Database, session: int, session_id: str, claim: Claim) -> str | None:
    """Return the token that is kept for the session, None for none, if the caller may append now.

    Raises LeaseLost for a token that another has replaced, SessionBusy for a caller that needs a lease and has none. A
    lease that is free by now is forgotten: its owner appends nothing more.
    """
    held = find_held(database, session, session_id)
    if claim.token is not None:
        if held is None or held.lease.token != claim.token:
            raise lease_lost(session_id, None if held is None else held.lease)
        return claim.token
    if held is None:
        return None
    if claim.is_said:
        return held.lease.token
    require_not_leased(held, database.now())
    _forget_lease(database, session)
    return None


def _forget_lease(database: Database, session: int) -> None:
    database.execute("DELETE FROM leases WHERE session = ?", (session,))
    delete_tail(database, session)


def recognise_or_refuse(
    database: Database, session: SessionRow, entries: Sequence[bytes], serial: int, claim: Claim
) -> Head:
    """Return the head of entries that are there already; raise LeaseLost or AppendConflict if others are."""
    try:
        return recognise_append(database, session, entries, serial)
    except AppendConflict:
        if claim.token is not None:
            require_claim(database, session.key, session.session_id, claim)
        raise
