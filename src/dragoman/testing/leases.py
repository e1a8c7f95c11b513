"""The rules of every session store when several owners want one session: checks for `testing.stores`."""

import asyncio
from datetime import UTC, datetime

from ..errors import ErrorCode, IllegalAppend, StoreError
from ..history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
)
from ..message import Message, ToolCall
from ..store import AppendConflict, Lease, LeaseLost, Session, SessionBusy, SessionStore, open_session, start_session
from .storecases import raised, sample_entries

__all__ = ["LEASE_CHECKS", "SHARED_LEASE_CHECKS"]

SHORT = 0.1  # seconds of a lease that is to expire
PATIENT = 60.0  # seconds to wait for something that must happen


def standing_clock() -> datetime:
    """A clock that stands still."""
    return datetime(2026, 1, 2, tzinfo=UTC)


async def check_a_session_has_one_owner(store: SessionStore) -> None:
    """One owner gets the lease; the others get SessionBusy with its owner, until it is released."""
    await store.create("owned")
    assert await store.find_lease("owned") is None
    lease = await store.acquire_lease("owned")
    assert (lease.session_id, lease.previous) == ("owned", None)
    busy = await raised(SessionBusy, store.acquire_lease("owned"))
    assert (busy.code, busy.lease.token, busy.lease.owner) == (ErrorCode.BUSY, lease.token, lease.owner)
    assert 0.0 < busy.seconds_left <= lease.seconds
    assert str(lease.owner) in str(busy)
    assert f"{lease.acquired_at:%H:%M:%S}" in str(busy)
    found = await store.find_lease("owned")
    assert found is not None
    assert found.token == lease.token
    assert await store.renew_lease(lease) == await store.head("owned")
    await store.release_lease(lease)
    assert await store.find_lease("owned") is None
    again = await store.acquire_lease("owned")
    assert again.token != lease.token
    assert again.previous is None
    await raised(LeaseLost, store.renew_lease(lease))
    await store.release_lease(lease)  # of another owner's it takes nothing
    assert await store.renew_lease(again) == await store.head("owned")


async def check_appends_need_the_lease(store: SessionStore) -> None:
    """While a session has an owner, no one else appends; afterwards anyone does."""
    await store.create("needed")
    entries = sample_entries("needed")
    lease = await store.acquire_lease("needed")
    assert (await raised(SessionBusy, store.append("needed", entries[:1], 0))).lease.token == lease.token
    head = await store.append("needed", entries[:2], 0, lease=lease)
    assert await store.append("needed", entries[:2], 0, lease=lease) == head  # a retry
    await store.release_lease(lease)
    await raised(LeaseLost, store.append("needed", [entries[2]], 2, lease=lease))
    assert (await store.append("needed", [entries[2]], 2)).serial == 2
    assert await store.load("needed") == entries[:3]


async def check_an_expired_lease_is_taken(store: SessionStore) -> None:
    """An owner that did not renew in time appends nothing more, and the next one knows whose lease it was."""
    await store.create("expired")
    entries = sample_entries("expired")
    slow = await store.acquire_lease("expired", seconds=SHORT)
    await store.append("expired", entries[:1], 0, lease=slow)
    lease = await store.acquire_lease("expired", wait_seconds=PATIENT)
    assert lease.previous == slow.owner
    assert lease.head.serial == 0
    await raised(LeaseLost, store.append("expired", [entries[1]], 1, lease=slow))
    await raised(LeaseLost, store.append("expired", entries[1:3], 1, lease=slow))
    await raised(LeaseLost, store.renew_lease(slow))
    await store.release_lease(slow)
    await store.append("expired", [entries[1]], 1, lease=lease)
    await raised(LeaseLost, store.append("expired", [entries[2]], 2, lease=slow))
    assert await store.load("expired") == entries[:2]


async def check_an_expired_lease_keeps_no_one_out(store: SessionStore) -> None:
    """An append without a lease takes an expired one away; its owner appends nothing more."""
    await store.create("late")
    entries = sample_entries("late")
    slow = await store.acquire_lease("late", seconds=SHORT)
    while True:
        try:
            await store.append("late", entries[:1], 0)
            break
        except SessionBusy:
            await asyncio.sleep(SHORT / 10)
    await raised(LeaseLost, store.append("late", [entries[1]], 1, lease=slow))
    assert await store.load("late") == entries[:1]


async def check_a_waiting_owner_gets_its_turn(store: SessionStore) -> None:
    """Several that wait get the session one after the other."""
    await store.create("queue")
    working = 0

    async def work() -> Lease:
        nonlocal working
        lease = await store.acquire_lease("queue", wait_seconds=PATIENT)
        working += 1
        assert working == 1
        await asyncio.sleep(0)
        working -= 1
        await store.release_lease(lease)
        return lease

    leases = await asyncio.gather(*(work() for _ in range(4)))
    assert len({lease.token for lease in leases}) == 4


async def check_words_to_a_run_need_no_lease(store: SessionStore) -> None:
    """Steering, a person's decision and a request to abort are appended by anyone; the owner appends after them."""
    owner = await start_session(store, "said", clock=standing_clock)
    other = await open_session(store, "said", clock=standing_clock)
    async with owner.hold():
        await owner.append(RunStartedEntry(run_id="r"), ModelInputEntry.of("Go."))
        await other.refresh()
        await raised(SessionBusy, other.append_model_input("not like this"))
        await other.steer("And quickly.")
        await owner.append(ModelOutputEntry(Message.assistant("Going.")))
        await other.steer("Thank you.")
        await owner.steer("You are welcome.")
        await other.request_abort("that is enough")
        await owner.append_model_input("noted")
    kinds = [entry.kind for entry in await store.load("said")]
    assert kinds == [
        "run_started",
        "model_input",
        "steering",
        "model_output",
        "steering",
        "steering",
        "abort_requested",
        "model_input",
    ]
    await other.refresh()
    assert [part.text for said in other.state.derived.steering for part in said.parts] == [  # type: ignore[union-attr]  # they are texts
        "And quickly.",
        "Thank you.",
        "You are welcome.",
    ]
    assert other.entries == owner.entries


async def check_equal_appends_of_two_writers_are_two(store: SessionStore) -> None:
    """Two sessions that say the same, at the same moment of a clock that stands still, are not taken for one."""
    await start_session(store, "equal", clock=standing_clock)
    writers = [await open_session(store, "equal", clock=standing_clock) for _ in range(4)]

    async def say(session: Session) -> bool:
        try:
            await session.append_model_input("yes")
        except AppendConflict:
            return False
        return True

    assert sorted(await asyncio.gather(*map(say, writers))) == [False, False, False, True]
    await asyncio.gather(*(session.steer("yes") for session in writers))
    kinds = [entry.kind for entry in await store.load("equal")]
    assert kinds == ["model_input", "steering", "steering", "steering", "steering"]


async def check_a_held_session_is_not_erased(store: SessionStore) -> None:
    """Erasing what a run works on is refused unless it is forced; then its owner appends nothing more."""
    await store.create("held")
    entries = sample_entries("held")
    lease = await store.acquire_lease("held")
    await store.append("held", entries[:1], 0, lease=lease)
    await raised(SessionBusy, store.erase("held"))
    assert await store.load("held") == entries[:1]
    await store.erase("held", force=True)
    assert (await raised(StoreError, store.append("held", [entries[1]], 1, lease=lease))).code is ErrorCode.NOT_FOUND


async def check_a_decision_is_made_once(store: SessionStore) -> None:
    """Of two people who decide about one call at once, one has decided; the other hears that it was decided."""
    owner = await start_session(store, "asked", clock=standing_clock)
    await owner.append(RunStartedEntry(run_id="r"), ModelInputEntry.of("Do it."))
    await owner.append(ModelOutputEntry(Message.assistant(ToolCall("c", "do", {}))), ApprovalAskedEntry("c", "do"))
    people = [await open_session(store, "asked", clock=standing_clock) for _ in range(2)]
    decisions = await asyncio.gather(
        *(person.append(ApprovalAnsweredEntry("c", True)) for person in people), return_exceptions=True
    )
    assert sorted(type(decision).__name__ for decision in decisions) == ["IllegalAppend", "tuple"]
    assert any(isinstance(decision, IllegalAppend) for decision in decisions)
    assert [str(entry.kind) for entry in await store.load("asked")].count("approval_answered") == 1


async def check_owners_on_two_stores(first: SessionStore, second: SessionStore) -> None:
    """What one store leases, the other does not, until it is given back or expires."""
    await first.create("shared")
    entries = sample_entries("shared")
    lease = await first.acquire_lease("shared")
    await raised(SessionBusy, second.acquire_lease("shared"))
    await raised(SessionBusy, second.append("shared", entries[:1], 0))
    await first.append("shared", entries[:1], 0, lease=lease)
    await first.release_lease(lease)
    slow = await second.acquire_lease("shared", seconds=SHORT)
    await second.append("shared", [entries[1]], 1, lease=slow)
    lease = await first.acquire_lease("shared", wait_seconds=PATIENT)
    assert lease.head.serial == 1
    await raised(LeaseLost, second.append("shared", [entries[2]], 2, lease=slow))
    await first.append("shared", [entries[2]], 2, lease=lease)
    assert await second.load("shared") == entries[:3]


LEASE_CHECKS = (
    check_a_session_has_one_owner,
    check_appends_need_the_lease,
    check_an_expired_lease_is_taken,
    check_an_expired_lease_keeps_no_one_out,
    check_a_waiting_owner_gets_its_turn,
    check_words_to_a_run_need_no_lease,
    check_equal_appends_of_two_writers_are_two,
    check_a_held_session_is_not_erased,
    check_a_decision_is_made_once,
)
SHARED_LEASE_CHECKS = (check_owners_on_two_stores,)
