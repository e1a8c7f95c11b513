"""Which process works on a session now: a lease has an owner and an expiry. Operational state, not part of the record.

A lease ends when its owner releases it, when it expires by the store's clock, or when its owner is a process of this
machine that no longer exists. Where that is in doubt (another host, another container), only the expiry counts.
"""

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..errors import StoreError
from ..history import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    HistoryEntry,
    QuestionAnsweredEntry,
    RunRequestedEntry,
    SteeringEntry,
)
from .protocol import Head, Lease, LeaseLost, LeaseOwner, SessionBusy

__all__ = [
    "HeldLease",
    "StoreTime",
    "abandon_lease",
    "give_back_lease",
    "is_said_to_a_run",
    "kept_expiry",
    "lease_lost",
    "machine_time",
    "new_lease",
    "new_token",
    "require_lease",
    "require_not_leased",
    "session_busy",
    "this_process",
]

# What may be appended without the lease: it is said to the run, not by it.
SAID_KINDS = (SteeringEntry, RunRequestedEntry, ApprovalAnsweredEntry, QuestionAnsweredEntry, AbortRequestedEntry)

END_OF_TIME = 253_402_300_800.0  # the year 10000: a lease that ends later was not written by a store

# Tokens of leases that this process no longer uses, though a store may still keep them: it could not be reached.
_abandoned: set[str] = set()


class StoreTime(NamedTuple):
    """A moment by a store's clock. `uptime` counts seconds since the boot `boot`; without a boot only `wall` counts."""

    wall: float
    boot: str = ""
    uptime: float = 0.0

    def after(self, seconds: float) -> "StoreTime":
        """Return the moment that many seconds later."""
        return StoreTime(self.wall + seconds, self.boot, self.uptime + seconds)

    def is_before(self, other: "StoreTime") -> bool:
        """Return whether this comes before `other`: by the uptime of one boot, which cannot be set, else by `wall`."""
        if self.boot and self.boot == other.boot:
            return self.uptime < other.uptime
        return self.wall < other.wall

    def seconds_until(self, other: "StoreTime") -> float:
        """Return how many seconds lie between this and a later moment."""
        return other.uptime - self.uptime if self.boot and self.boot == other.boot else other.wall - self.wall


def kept_expiry(wall: float, boot: str, uptime: float) -> StoreTime:
    """Return the expiry that a store keeps for a lease. An expiry that no store writes counts as passed."""
    return StoreTime(wall, boot, uptime) if max(wall, uptime) < END_OF_TIME else StoreTime(0.0)


class HeldLease(NamedTuple):
    """A lease as a store keeps it."""

    lease: Lease
    expires: StoreTime

    def is_free(self, now: StoreTime) -> bool:
        """Return whether another owner may take it."""
        return not now.is_before(self.expires) or self.is_abandoned or is_gone(self.lease.owner)

    @property
    def is_abandoned(self) -> bool:
        """Whether this process had the lease and no longer uses it."""
        return self.lease.token in _abandoned


def new_token() -> str:
    """Return a token for a lease that is about to be acquired."""
    return os.urandom(8).hex()


def abandon_lease(token: str) -> None:
    """Let this process treat the lease as free, whatever the store keeps."""
    _abandoned.add(token)


async def give_back_lease(release: Callable[[Lease], Awaitable[None]], lease: Lease) -> None:
    """Release the lease. If the store cannot be reached, other processes wait for its expiry; this one does not."""
    abandon_lease(lease.token)
    try:
        await release(lease)
    except StoreError:
        return
    _abandoned.discard(lease.token)


def new_lease(
    session_id: str, held: HeldLease | None, head: Head, now: StoreTime, *, token: str, seconds: float
) -> HeldLease:
    """Return the lease that the caller gets; raise SessionBusy if another owner still has one."""
    if held is not None and not held.is_free(now):
        raise session_busy(held, now)
    lease = Lease(
        session_id=session_id,
        token=token,
        owner=this_process(),
        acquired_at=datetime.fromtimestamp(now.wall, UTC),
        seconds=seconds,
        head=head,
        previous=None if held is None or held.is_abandoned else held.lease.owner,
    )
    return HeldLease(lease, now.after(seconds))


def require_lease(session_id: str, held: HeldLease | None, lease: Lease) -> None:
    """Raise LeaseLost unless `lease` is the one that the store keeps."""
    if held is None or held.lease.token != lease.token:
        raise lease_lost(session_id, None if held is None else held.lease)


def require_not_leased(held: HeldLease | None, now: StoreTime) -> None:
    """Raise SessionBusy if an owner has the session."""
    if held is not None and not held.is_free(now):
        raise session_busy(held, now)


def is_said_to_a_run(entries: Iterable[HistoryEntry]) -> bool:
    """Return whether these are words to a run: they need no lease."""
    return all(isinstance(entry, SAID_KINDS) for entry in entries)


def session_busy(held: HeldLease, now: StoreTime) -> SessionBusy:
    """Return the error for a session that another run has."""
    lease = held.lease
    since = f"{lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return SessionBusy(
        f"session {lease.session_id!r} is in use: {lease.owner} has run it since {since}",
        lease=lease,
        seconds_left=now.seconds_until(held.expires),
    )


def lease_lost(session_id: str, lease: Lease | None = None) -> LeaseLost:
    """Return the error for an owner whose lease another one has taken, or that has released it."""
    by = "" if lease is None else f": {lease.owner} has had it since {lease.acquired_at:%H:%M:%S} UTC"
    return LeaseLost(f"session {session_id!r} was taken over{by}; this run stops here, the record goes on there")


# ---------------------------------------------------------------- this machine and its processes


def machine_time() -> StoreTime:
    """Return the moment by this machine's clocks. Its uptime goes on while a process is stopped."""
    boot = _boot()
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) if boot else 0.0
    return StoreTime(time.time(), boot, uptime)


def this_process() -> LeaseOwner:
    """Return this process as the owner of a lease."""
    return _owner(os.getpid())


def is_gone(owner: LeaseOwner) -> bool:
    """Return True only if the owner is known not to exist any more: a process of this boot and namespace."""
    here = this_process()
    if not owner.machine or owner.machine != here.machine:
        return False
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has an id as large as that
        return True
    except OSError:  # it exists, and belongs to another user
        pass
    started = _start_of(owner.pid)
    return started == "" or (started is not None and started != owner.started)


@lru_cache(maxsize=1)
def _owner(pid: int) -> LeaseOwner:
    import socket

    host = socket.gethostname()
    namespace = _namespace("pid")
    started = _start_of(pid)
    machine = f"{_boot_id()}/{namespace}" if _boot_id() and namespace and started else ""
    return LeaseOwner(host=host, pid=pid, machine=machine, started=started or "")


def _start_of(pid: int) -> str | None:
    """When a process began, in ticks since the boot; empty if it has ended, None if that cannot be known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    if len(fields) < 20:
        return None
    return "" if fields[0] in "ZX" else fields[19]


@lru_cache(maxsize=1)
def _boot() -> str:
    """The name of the clock that counts since this boot; empty if there is none."""
    namespace = _namespace("time") if hasattr(time, "CLOCK_BOOTTIME") else ""
    return f"{_boot_id()}/{namespace}" if _boot_id() and namespace else ""


@lru_cache(maxsize=1)
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return ""
