"""The rules of every session store, as functions that raise AssertionError. None of them knows a database.

`STORE_CHECKS` each take a new, empty store; `SHARED_STORE_CHECKS` take two stores that were opened over the same
new data, as two programs would. `require_store_conformance` runs them all, and leaves the second kind out for stores
that cannot be shared. In pytest: one test, parametrised by the names.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..errors import DragomanError, ErrorCode, InvalidValue, StoreError
from ..history import (
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
    entry_to_json,
)
from ..message import Message, ToolCall
from ..store import AppendConflict, Head, SessionStore, Snapshot, compare_branches, open_session, start_session
from ..store.snapshots import name_snapshot, take_snapshot
from .leases import LEASE_CHECKS, SHARED_LEASE_CHECKS
from .marks import MARK_CHECKS, SHARED_MARK_CHECKS
from .storecases import BEGINNING, append_all, closing, raised, sample_entries, sample_other
from .tails import SHARED_TAIL_CHECKS, TAIL_CHECKS

__all__ = [
    "SHARED_STORE_CHECKS",
    "STORE_CHECKS",
    "OpenStore",
    "append_all",
    "require_store_conformance",
    "sample_entries",
]

OpenStore: TypeAlias = Callable[[], SessionStore]


async def require_store_conformance(open_store: OpenStore, *, is_shared: bool) -> int:
    """Run every check, each with stores that `open_store` gives, and return how many were made.

    With `is_shared`, `open_store` must give stores over the same data, which may hold the sessions of earlier checks.
    """
    for check in STORE_CHECKS.values():
        store = open_store()
        try:
            await check(store)
        finally:
            await store.close()
    if not is_shared:
        return len(STORE_CHECKS)
    for shared_check in SHARED_STORE_CHECKS.values():
        first, second = open_store(), open_store()
        try:
            await shared_check(first, second)
        finally:
            await first.close()
            await second.close()
    return len(STORE_CHECKS) + len(SHARED_STORE_CHECKS)


# ---------------------------------------------------------------- one store


async def check_what_is_appended_is_loaded(store: SessionStore) -> None:
    """Entries of every kind come back equal, to the byte, one by one and all at once."""
    for name, together in (("one-by-one", False), ("at-once", True)):
        await store.create(name)
        entries = sample_entries(name)
        if together:
            head = await store.append(name, entries, 0)
        else:
            head = await append_all(store, name, entries)
        loaded = await store.load(name)
        assert loaded == entries
        assert [entry_to_json(entry) for entry in loaded] == [entry_to_json(entry) for entry in entries]
        assert await store.head(name) == head
        assert head.serial == len(entries) - 1


async def check_the_chain_is_the_same_in_every_store(store: SessionStore) -> None:
    """The checksum of an entry is SHA-256 of the one before it and the entry's JSON; before the first are zeros."""
    await store.create("chain")
    assert await store.head("chain") == Head(-1, "00" * 32)
    entries = sample_entries("chain")
    checksum = bytes(32)
    for entry in entries:
        checksum = hashlib.sha256(checksum + entry_to_json(entry)).digest()
    assert (await store.append("chain", entries, 0)).checksum == checksum.hex()


async def check_a_part_can_be_loaded(store: SessionStore) -> None:
    """`from_serial` and `until_serial` cut exactly; beyond the end there is nothing."""
    await store.create("part")
    entries = sample_entries("part")
    await store.append("part", entries, 0)
    assert await store.load("part", 3) == entries[3:]
    assert await store.load("part", 2, until_serial=5) == entries[2:5]
    assert await store.load("part", until_serial=0) == ()
    assert await store.load("part", 5, until_serial=2) == ()
    assert await store.load("part", len(entries)) == ()
    assert await store.load("part", len(entries) + 7) == ()
    assert await store.load("part", 1, until_serial=10_000) == entries[1:]


async def check_a_taken_place_is_a_conflict(store: SessionStore) -> None:
    """An append too early or too late changes nothing, and the error says how far the session is."""
    await store.create("taken")
    entries = sample_entries("taken")
    head = await store.append("taken", entries[:4], 0)
    (other,) = sample_other("taken", 3)
    for serial, entry in ((3, other), (5, entries[5])):
        error = await raised(AppendConflict, store.append("taken", [entry], serial))
        assert (error.code, error.head) == (ErrorCode.CONFLICT, head)
    assert await store.load("taken") == entries[:4]
    assert (await store.append("taken", [entries[4]], 4)).serial == 4


async def check_a_repeated_append_is_recognised(store: SessionStore) -> None:
    """The same entries at the same serial count as a call whose reply was lost; anything else does not."""
    await store.create("again")
    entries = sample_entries("again")
    first = await store.append("again", entries[:3], 0)
    second = await store.append("again", entries[3:6], 3)
    assert await store.append("again", entries[3:6], 3) == second
    assert await store.append("again", entries[:3], 0) == first
    assert await store.append("again", entries[1:3], 1) == first
    await raised(AppendConflict, store.append("again", entries[4:8], 4))  # goes on after what is there
    await raised(AppendConflict, store.append("again", [entries[3], *sample_other("again", 4)], 3))
    assert await store.load("again") == entries[:6]


async def check_one_of_two_writers_wins(store: SessionStore) -> None:
    """Of several appends at one serial exactly one is kept."""
    await store.create("race")
    rivals = [sample_other("race", 0, f"rival {number}") for number in range(8)]
    outcomes = await asyncio.gather(*(store.append("race", rival, 0) for rival in rivals), return_exceptions=True)
    won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Head)]
    assert len(won) == 1
    assert all(isinstance(outcome, (Head, AppendConflict)) for outcome in outcomes)
    assert await store.load("race") == rivals[won[0]]


async def check_many_sessions_at_once(store: SessionStore) -> None:
    """Sessions that are appended to at the same time do not disturb each other, also when some of it is refused."""
    names = [f"many-{number}" for number in range(16)]

    async def write(name: str) -> None:
        await store.create(name)
        for entry in sample_entries(name):
            await store.append(name, [entry], entry.serial)
            await raised(AppendConflict, store.append(name, sample_other(name, entry.serial), entry.serial))

    await asyncio.gather(*(write(name) for name in names))
    for name in names:
        assert await store.load(name) == sample_entries(name)
        assert (await store.verify(name)).is_sound


async def check_sessions_are_created_once(store: SessionStore) -> None:
    """An id is taken once; without one there is a random one; metadata are kept."""
    info = await store.create("once", metadata={"user": "ada", "tags": ["a", {"b": None}]})
    assert info == await store.info("once")
    assert (info.session_id, info.head, info.forked_from) == ("once", Head(), None)
    assert info.metadata == {"user": "ada", "tags": ["a", {"b": None}]}
    assert info.created_at == info.updated_at
    assert (await raised(StoreError, store.create("once"))).code is ErrorCode.CONFLICT
    first, second = await store.create(), await store.create()
    assert first.session_id != second.session_id
    (entry,) = sample_entries("once", 1)
    await store.append("once", [entry], 0)
    assert (await store.info("once")).updated_at == entry.timestamp


async def check_what_is_not_there_is_not_found(store: SessionStore) -> None:
    """Every method says `not_found` for a session that was never created."""
    calls: list[Awaitable[object]] = [
        store.append("missing", sample_entries("missing", 1), 0),
        store.load("missing"),
        store.open("missing"),
        store.head("missing"),
        store.info("missing"),
        store.fork("missing", 0),
        anext(aiter(store.follow("missing"))),
        store.verify("missing"),
        store.erase("missing"),
        store.keep_snapshot("missing", Snapshot(0, b"")),
        store.drop_snapshots("missing"),
    ]
    for call in calls:
        assert (await raised(StoreError, call)).code is ErrorCode.NOT_FOUND
    assert await store.tombstone("missing") is None
    assert "missing" not in [info.session_id for info in (await store.list(limit=10_000)).sessions]


async def check_bad_arguments_are_refused(store: SessionStore) -> None:
    """What no store takes raises InvalidValue and changes nothing."""
    await store.create("bad")
    entries = sample_entries("bad")
    bad: Any = "x"
    calls: list[Awaitable[object]] = [
        store.create(""),
        store.create("line\nbreak"),
        store.create("lone \ud800"),
        store.create("x" * 256),
        store.create(metadata={"large": "x" * 3000}),
        store.create(metadata=bad),
        store.append("bad", [], 0),
        store.append("bad", entries[1:], 0),
        store.append("bad", [entries[0], entries[2]], 0),
        store.append("bad", [ModelInputEntry.of("no serial yet")], 0),
        store.append("bad", entries, -1),
        store.append("bad", [bad], 0),
        store.load("bad", -1),
        store.load("bad", bad),
        store.fork("bad", -2),
        store.fork("bad", -1, new_session_id=""),
        store.create("@"),
        store.fork("bad", -1, new_session_id="@"),
        store.list(limit=0),
        store.list(page="yesterday"),
        store.list(metadata=bad),
        store.find_marks(bad),
        store.find_marks([1]),  # type: ignore[list-item]  # that is the mistake
        store.find_marks([str(number) for number in range(1_001)]),
    ]
    for call in calls:
        await raised(InvalidValue, call)
    assert await store.head("bad") == Head()


async def check_sessions_are_listed(store: SessionStore) -> None:
    """The newest come first, page by page, and the filters hold."""
    for number in range(7):
        await store.create(f"listed-{number}", metadata={"odd": bool(number % 2), "number": number, "kind": "listed"})
        await append_all(store, f"listed-{number}", sample_entries(f"listed-{number}", number))
    names = [f"listed-{number}" for number in reversed(range(7))]
    ours = {"kind": "listed"}
    listed: list[str] = []
    page = None
    while True:
        part = await store.list(limit=3, page=page, metadata=ours)
        listed += [info.session_id for info in part.sessions]
        if page is None:
            await store.create("listed-late", metadata=ours)  # does not move the pages that follow
        page = part.next_page
        if page is None:
            break
    assert listed == names
    odd = (await store.list(metadata={"odd": True, **ours})).sessions
    assert [info.session_id for info in odd] == ["listed-5", "listed-3", "listed-1"]
    assert [info.head.serial for info in odd] == [4, 2, 0]
    assert odd == tuple([await store.info(info.session_id) for info in odd])
    assert (await store.list(metadata={"odd": 1, "number": 5.0, "missing": None})).sessions == ()
    middle = (await store.info("listed-3")).created_at
    since = {info.session_id for info in (await store.list(created_from=middle, metadata=ours)).sessions}
    before = {info.session_id for info in (await store.list(created_before=middle, metadata=ours)).sessions}
    assert since | before == {*names, "listed-late"}
    assert not since & before
    assert "listed-3" in since
    await store.fork("listed-6", 2, new_session_id="listed-fork")
    assert [info.session_id for info in (await store.list(forks_of="listed-6")).sessions] == ["listed-fork"]


async def check_forks(store: SessionStore) -> None:
    """A fork shares the entries up to its serial, goes on by itself, and can be forked again at any serial."""
    await store.create("trunk")
    entries = sample_entries("trunk")
    head = await store.append("trunk", entries, 0)
    info = await store.fork("trunk", 4, new_session_id="branch", metadata={"why": "try"})
    assert info == await store.info("branch")
    assert info.metadata == {"why": "try"}
    assert info.forked_from is not None
    assert (info.forked_from.session_id, info.forked_from.serial, info.head.serial) == ("trunk", 4, 4)
    assert await store.load("branch") == entries[:5]
    own = sample_other("branch", 5) + sample_other("branch", 6)
    await store.append("branch", own, 5)
    await store.fork("branch", 5, new_session_id="twig")
    await store.fork("branch", 2, new_session_id="low")
    await store.fork("trunk", -1, new_session_id="seedling")
    await append_all(store, "twig", sample_other("twig", 6))
    await append_all(store, "low", sample_other("low", 3))
    await append_all(store, "seedling", sample_other("seedling", 0))
    assert await store.load("trunk") == entries
    assert await store.head("trunk") == head
    assert await store.load("branch") == entries[:5] + own
    assert await store.load("twig") == entries[:5] + own[:1] + sample_other("twig", 6)
    assert await store.load("twig", 4) == entries[4:5] + own[:1] + sample_other("twig", 6)
    assert await store.load("low") == entries[:3] + sample_other("low", 3)
    assert await store.load("seedling") == sample_other("seedling", 0)
    for name in ("trunk", "branch", "twig", "low", "seedling"):
        assert (await store.verify(name)).is_sound
    assert isinstance(await raised(StoreError, store.fork("trunk", len(entries))), AppendConflict)
    assert (await raised(StoreError, store.fork("trunk", 1, new_session_id="low"))).code is ErrorCode.CONFLICT
    assert await store.append("branch", entries[3:5], 3) == Head(4, info.head.checksum)  # recognised in the trunk
    compared = await compare_branches(store, "twig", "low")
    assert (compared.common_serial, compared.right) == (2, sample_other("low", 3))
    assert compared.left == (await store.load("twig", 3))


async def check_followers_see_what_comes(store: SessionStore) -> None:
    """A follower gets what is there and then each new entry, in order, from the serial that it asked for."""
    await store.create("followed")
    entries = sample_entries("followed", 20)
    await store.append("followed", entries[:3], 0)
    early, late = store.follow("followed"), store.follow("followed", 10)
    waiting = asyncio.ensure_future(anext(aiter(late)))
    assert [await anext(early) for _ in range(3)] == list(entries[:3])
    next_one = asyncio.ensure_future(anext(aiter(early)))
    await append_all(store, "followed", entries[3:12])
    assert await next_one == entries[3]
    assert [await anext(early) for _ in range(8)] == list(entries[4:12])
    assert await waiting == entries[10]
    await append_all(store, "followed", entries[12:])
    assert [await anext(late) for _ in range(9)] == list(entries[11:])
    await closing(early)
    await closing(late)


async def check_closing_ends_followers(store: SessionStore) -> None:
    """A follower that waits when the store is closed gets the end, and nothing works afterwards."""
    await store.create("ended")
    follower = store.follow("ended")
    waiting = asyncio.ensure_future(anext(aiter(follower), None))
    await store.append("ended", sample_entries("ended", 1), 0)
    assert await waiting is not None
    waiting = asyncio.ensure_future(anext(aiter(follower), None))
    await asyncio.wait((waiting,), timeout=0)  # let it begin to wait
    await store.close()
    assert await waiting is None
    await raised(StoreError, store.head("ended"))
    await raised(StoreError, store.append("ended", sample_other("ended", 1), 1))
    await raised(StoreError, store.find_marks(["word"]))
    await store.close()


async def check_verification(store: SessionStore) -> None:
    """A sound session is said to be sound; a head that was kept elsewhere and is not in there is told."""
    await store.create("sound")
    assert (await store.verify("sound")).is_sound
    entries = sample_entries("sound")
    kept = await store.append("sound", entries[:3], 0)
    head = await store.append("sound", entries[3:], 3)
    report = await store.verify("sound", kept=kept)
    assert (report.is_sound, report.head, report.problem) == (True, head, "")
    other = await store.verify("sound", kept=Head(2, "11" * 32))
    assert (other.is_sound, other.bad_serial) == (False, 2)
    longer = await store.verify("sound", kept=Head(100, "11" * 32))
    assert (longer.is_sound, longer.bad_serial) == (False, len(entries))


async def check_erasing(store: SessionStore) -> None:
    """An erased session is gone, its id stays taken, and what others share with it stays."""
    entries = {name: sample_entries(name) for name in ("going", "staying")}
    for name, each in entries.items():
        await store.create(name)
        await store.append(name, each, 0)
    tombstone = await store.erase("going")
    assert (tombstone.session_id, tombstone.entries) == ("going", len(entries["going"]))
    assert await store.tombstone("going") == tombstone
    error = await raised(StoreError, store.load("going"))
    assert error.code is ErrorCode.NOT_FOUND
    assert "erased" in str(error)
    assert (await raised(StoreError, anext(aiter(store.follow("going"))))).code is ErrorCode.NOT_FOUND
    assert (await raised(StoreError, store.create("going"))).code is ErrorCode.CONFLICT
    assert "going" not in [info.session_id for info in (await store.list(limit=10_000)).sessions]
    assert await store.erase("going") == tombstone
    assert await store.load("staying") == entries["staying"]
    assert (await store.verify("staying")).is_sound


async def check_forks_are_not_erased_by_the_way(store: SessionStore) -> None:
    """A session with forks is erased only together with all of them, and with no other session."""
    await store.create("root")
    await store.append("root", sample_entries("root"), 0)
    await store.create("stranger")
    await store.fork("root", 3, new_session_id="child")
    await store.fork("child", 3, new_session_id="grandchild")
    for forks in ((), ("child",), ("grandchild",)):
        call = store.erase("root", forks=forks)
        assert (await raised(DragomanError, call)).code in (ErrorCode.CONFLICT, ErrorCode.INVALID_REQUEST)
    await raised(InvalidValue, store.erase("root", forks=("child", "grandchild", "stranger")))
    assert (await store.load("grandchild")) == sample_entries("root")[:4]
    await store.erase("root", forks=("grandchild", "child"))
    assert await store.tombstone("child") is not None
    assert (await store.head("stranger")) == Head()


async def check_snapshots_change_nothing(store: SessionStore) -> None:
    """A session opens to the same state with a snapshot, without one, and with one that says something else.

    `verify` finds one that says something else.
    """
    session = await start_session(store, "long", system_instruction="Be brief.", clock=lambda: BEGINNING)
    snapshot = None
    for number in range(5):
        question = ModelInputEntry.of(f"Question {number}")
        if number == 3:
            snapshot = take_snapshot(session.state.derived)
            assert snapshot is not None
        await session.append((number == 3 and snapshot and name_snapshot(snapshot, question)) or question)
        await session.append_model_output(Message.assistant(ToolCall("call_0", "look", {})))
        answers = [HistoryToolCallResult.of_text(call.request, "seen") for call in session.state.derived.open_calls]
        await session.append_tool_results(answers)
    entries = [SystemInstructionEntry] + [ModelInputEntry, ModelOutputEntry, ToolResultsEntry] * 5
    assert [type(entry) for entry in session.entries] == entries
    assert snapshot is not None
    assert snapshot.serial == 9
    expected, head = session.state.derived, await store.head("long")
    forged = Snapshot(9, snapshot.data.replace(b"Be brief.", b"Be rude. "))
    for kept in (None, snapshot, forged, Snapshot(9, b"nothing")):
        await store.drop_snapshots("long")
        if kept is not None:
            await store.keep_snapshot("long", kept)
        report = await store.verify("long", kept=head)
        assert (report.is_sound, report.bad_serial) == ((True, None) if kept in (None, snapshot) else (False, 9))
        opened = await open_session(store, "long")
        assert opened.state.derived == expected
        assert opened.entries == session.entries
        assert opened.state_at(4).derived == session.state_at(4).derived
        assert opened.state_at(12).derived == session.state_at(12).derived
    await store.keep_snapshot("long", snapshot)
    for serial in (4, 9, 10, 12):
        forked = await session.fork(serial)
        assert forked.state.derived == session.state_at(serial).derived
        assert (await forked.append_model_input("And now?") if serial != 8 else None) is not None


async def check_opened_entries_are_a_sequence(store: SessionStore) -> None:
    """What `open` gives can be indexed, cut and reversed like a list, and gives the same objects every time."""
    await store.create("opened")
    entries = sample_entries("opened", 600)
    await store.append("opened", entries, 0)
    opened = (await store.open("opened")).entries
    assert len(opened) == 600
    assert opened[599] is opened[-1]
    assert opened[300] == entries[300]
    assert tuple(opened[250:260]) == entries[250:260]
    assert next(reversed(opened)) is opened[599]
    assert tuple(opened) == entries
    assert tuple(reversed(opened)) == entries[::-1]


async def check_a_cancelled_append_is_whole_or_not_there(store: SessionStore) -> None:
    """A caller that cancels an append finds all of its entries or none, and the session goes on either way."""
    await store.create("cancelled")
    entries = sample_entries("cancelled", 40)
    serial = 0
    for turns in range(6):
        task = asyncio.ensure_future(store.append("cancelled", entries[serial : serial + 3], serial))
        for _ in range(turns):
            await asyncio.wait((task,), timeout=0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        head = await store.append("cancelled", entries[serial : serial + 3], serial)
        assert head.serial == serial + 2
        serial += 3
    assert await store.load("cancelled") == entries[:serial]


STORE_CHECKS: dict[str, Callable[[SessionStore], Awaitable[None]]] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_what_is_appended_is_loaded,
        check_the_chain_is_the_same_in_every_store,
        check_a_part_can_be_loaded,
        check_a_taken_place_is_a_conflict,
        check_a_repeated_append_is_recognised,
        check_one_of_two_writers_wins,
        check_many_sessions_at_once,
        check_sessions_are_created_once,
        check_what_is_not_there_is_not_found,
        check_bad_arguments_are_refused,
        check_sessions_are_listed,
        check_forks,
        check_followers_see_what_comes,
        check_closing_ends_followers,
        check_verification,
        check_erasing,
        check_forks_are_not_erased_by_the_way,
        check_snapshots_change_nothing,
        check_opened_entries_are_a_sequence,
        check_a_cancelled_append_is_whole_or_not_there,
        *LEASE_CHECKS,
        *MARK_CHECKS,
        *TAIL_CHECKS,
    )
}


# ---------------------------------------------------------------- two stores over the same data


async def check_two_stores_see_the_same(first: SessionStore, second: SessionStore) -> None:
    """What one appends the other loads at once, and the two cannot both win a serial."""
    await first.create("both", metadata={"by": "first"})
    entries = sample_entries("both")
    await first.append("both", entries[:4], 0)
    assert await second.load("both") == entries[:4]
    assert await second.info("both") == await first.info("both")
    await second.append("both", entries[4:6], 4)
    error = await raised(AppendConflict, first.append("both", sample_other("both", 4), 4))
    assert error.head == await second.head("both")
    assert await first.append("both", entries[4:6], 4) == error.head
    assert await first.load("both") == entries[:6]


async def check_writers_take_turns(first: SessionStore, second: SessionStore) -> None:
    """Two sessions open on one conversation: the slower one takes in what came and appends after it."""
    one = await start_session(first, "turns")
    other = await open_session(second, "turns")

    async def write(session: Any, word: str) -> None:
        for number in range(10):
            while True:
                try:
                    await session.append_model_input(f"{word} {number}")
                    break
                except AppendConflict:
                    await session.refresh()

    await asyncio.gather(write(one, "one"), write(other, "other"))
    await one.refresh()
    await other.refresh()
    assert one.entries == other.entries
    said = [message.text for message in one.messages]
    assert sorted(said) == sorted(f"{word} {number}" for word in ("one", "other") for number in range(10))
    for word in ("one", "other"):
        assert [text for text in said if text.startswith(word)] == [f"{word} {number}" for number in range(10)]
    assert (await first.verify("turns")).is_sound


async def check_followers_see_other_writers(first: SessionStore, second: SessionStore) -> None:
    """A follower of one store gets what the other appends, and hears that it was erased."""
    await first.create("watched")
    entries = sample_entries("watched")
    follower = second.follow("watched")
    waiting = asyncio.ensure_future(anext(aiter(follower)))
    await append_all(first, "watched", entries)
    assert await waiting == entries[0]
    assert [await anext(follower) for _ in entries[1:]] == list(entries[1:])
    waiting = asyncio.ensure_future(anext(aiter(follower)))
    await first.erase("watched")
    assert (await raised(StoreError, waiting)).code is ErrorCode.NOT_FOUND


async def check_everything_is_there_after_closing(first: SessionStore, second: SessionStore) -> None:
    """What a store acknowledged is there after the store has closed."""
    entries = sample_entries("stays")
    await first.create("stays", metadata={"a": 1})
    await first.append("stays", entries, 0)
    info = await first.fork("stays", 2, new_session_id="stays-too")
    await first.close()
    assert await second.load("stays") == entries
    assert await second.info("stays-too") == info
    assert (await second.verify("stays")).is_sound


SHARED_STORE_CHECKS: dict[str, Callable[[SessionStore, SessionStore], Awaitable[None]]] = {
    shared_check.__name__.removeprefix("check_"): shared_check
    for shared_check in (
        check_two_stores_see_the_same,
        check_writers_take_turns,
        check_followers_see_other_writers,
        check_everything_is_there_after_closing,
        *SHARED_LEASE_CHECKS,
        *SHARED_MARK_CHECKS,
        *SHARED_TAIL_CHECKS,
    )
}
