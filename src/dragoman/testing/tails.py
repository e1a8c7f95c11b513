"""The rules of every session store for answers that are followed while they come: checks for `testing.stores`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ..delta import DoneDelta, ErrorDelta, KnownDelta, StartDelta, TextDelta, ThinkingDelta
from ..errors import ErrorCode, InvalidValue, StoreError
from ..history import InterruptionEntry, ModelInputEntry, ModelOutputEntry, RunStartedEntry
from ..message import FinishReason, Message
from ..store import (
    AnswerDeltas,
    AnswerText,
    Followed,
    FollowedDelta,
    FollowedEntry,
    LeaseLost,
    Position,
    Session,
    SessionStore,
    open_session,
    start_session,
)
from .storecases import raised

__all__ = ["SHARED_TAIL_CHECKS", "TAIL_CHECKS"]

PATIENT = 60.0  # seconds to wait for something that must happen
SHORT = 0.1  # seconds of a lease that is to expire
NOW = datetime(2026, 1, 2, tzinfo=UTC)
WORDS = ("Fish ", "are ", "日本語 ", "and 👩‍👩‍👧 ", "so on.")
TEXT = "".join(WORDS)


def answer_of(*words: str) -> list[KnownDelta]:
    """Return the deltas of an answer."""
    deltas: list[KnownDelta] = [StartDelta("run", 0, NOW, "a-model")]
    deltas += (TextDelta("run", seq, NOW, word) for seq, word in enumerate(words, 1))
    return [*deltas, DoneDelta("run", len(deltas), NOW, FinishReason.STOP)]


def share(session: Session, deltas: Iterable[KnownDelta]) -> None:
    """Share the deltas of an answer that begins now."""
    tail = session.begin_tail()
    assert tail is not None
    for delta in deltas:
        tail.add(delta)


async def read(followed: AsyncIterator[Followed], is_last: Callable[[Followed], bool]) -> list[Followed]:
    """Return what a follower yields, up to the item for which `is_last` is true."""
    found: list[Followed] = []
    async with asyncio.timeout(PATIENT):
        while not found or not is_last(found[-1]):
            found.append(await anext(followed))
    return found


def says(text: str) -> Callable[[Followed], bool]:
    """Return whether an item is the delta with this text."""
    return lambda item: getattr(getattr(item, "delta", None), "text_delta", None) == text


def is_kind(kind: str) -> Callable[[Followed], bool]:
    """Return whether an item is an entry of this kind."""
    return lambda item: isinstance(item, FollowedEntry) and item.entry.kind == kind


def deltas_in(items: Iterable[Followed]) -> list[KnownDelta]:
    """Return the deltas among the items."""
    return [item.delta for item in items if isinstance(item, FollowedDelta)]


def text_of(items: Iterable[Followed], position: Position | str | int = 0, text: AnswerText | None = None) -> str:
    """Return the text of the answers, with what the record has of them beyond their deltas."""
    answers, text = AnswerDeltas(position), text or AnswerText()
    for item in items:
        for each in answers.feed(item):
            text.feed(each.delta)
    return text.text


# ---------------------------------------------------------------- one store


async def check_deltas_come_before_their_entry(store: SessionStore) -> None:
    """A follower gets each delta while the answer is under way, after the entries before it, and the entry at last."""
    session = await start_session(store, "tail-live", live=True)
    async with session.hold(), aclosing(session.follow(deltas=True)) as followed:
        await session.append(RunStartedEntry(run_id="run"), ModelInputEntry.of("Go."))
        tail = session.begin_tail()
        assert tail is not None
        found: list[Followed] = []
        for delta in answer_of(*WORDS):
            tail.add(delta)
            found += await read(followed, lambda item, delta=delta: getattr(item, "delta", None) == delta)  # type: ignore[misc]
        await session.append(ModelOutputEntry(Message.assistant(TEXT)))
        found += await read(followed, is_kind("model_output"))
    kinds = [item.delta.kind if isinstance(item, FollowedDelta) else item.entry.kind for item in found]
    assert kinds == ["run_started", "model_input", "start", *["text"] * len(WORDS), "done", "model_output"]
    assert deltas_in(found) == answer_of(*WORDS)
    assert [item.position.serial for item in found] == [1, *[2] * (len(WORDS) + 3), 3]
    assert found[-1].position == Position(3)
    assert text_of(found) == TEXT


async def check_a_reader_comes_back_at_every_position(store: SessionStore) -> None:
    """From each position, as text, a follower gets what comes after it, while the answer comes and afterwards."""
    session = await start_session(store, "tail-back", live=True)
    async with session.hold():
        await session.append(ModelInputEntry.of("Go."))
        share(session, answer_of(*WORDS))
        async with aclosing(session.follow(deltas=True)) as followed:
            first = await read(followed, lambda item: isinstance(getattr(item, "delta", None), DoneDelta))
        for number, item in enumerate(first[:-1], 1):
            async with aclosing(store.follow_live("tail-back", str(item.position))) as followed:
                assert [await anext(followed) for _ in first[number:]] == first[number:]
        await session.append(ModelOutputEntry(Message.assistant(TEXT)))
    for number, item in enumerate(first, 1):
        text = AnswerText()
        for delta in deltas_in(first[:number]):
            text.feed(delta)
        async with aclosing(store.follow_live("tail-back", str(item.position))) as followed:
            rest = await read(followed, is_kind("model_output"))
        assert deltas_in(rest) == []  # they vanished
        assert text_of(rest, str(item.position), text) == TEXT


async def check_an_answer_that_begins_anew_is_told(store: SessionStore) -> None:
    """After a failure the next attempt is another stream with a start; a reader of the first never continues it."""
    session = await start_session(store, "tail-anew", live=True)
    async with session.hold():
        await session.append(ModelInputEntry.of("Go."))
        failed = answer_of("Whales ", "swim")[:-1]
        share(session, failed)
        async with aclosing(session.follow(deltas=True)) as followed:
            first = await read(followed, says("swim"))
            await session.append(
                InterruptionEntry(ErrorCode.OVERLOADED, "busy", Message.assistant("Whales swim", run_id="run"))
            )
            share(session, answer_of(*WORDS))
            first += await read(followed, says("so on."))
        async with aclosing(session.follow(str(first[2].position), deltas=True)) as followed:
            back = await read(followed, says("so on."))
        share(session, answer_of("Again."))  # no entry says that the answer before has ended
        async with aclosing(session.follow(str(first[-1].position), deltas=True)) as followed:
            last = await read(followed, says("Again."))
    assert deltas_in(first) == [*failed, *answer_of(*WORDS)[:-1]]
    assert deltas_in(back) == answer_of(*WORDS)[:-1]
    assert deltas_in(last)[-2:] == answer_of("Again.")[:-1]
    assert len({item.position.stream for item in [*first, *back, *last] if isinstance(item, FollowedDelta)}) == 3
    assert text_of(first) == text_of(back) == TEXT


async def check_what_is_said_to_a_run_leaves_its_answer(store: SessionStore) -> None:
    """Steering that is appended in the middle of an answer ends neither the answer nor what a reader has of it."""
    session = await start_session(store, "tail-said", live=True)
    other = await open_session(store, "tail-said")
    async with session.hold(), aclosing(session.follow(deltas=True)) as followed:
        await session.append(ModelInputEntry.of("Go."))
        tail, deltas = session.begin_tail(), answer_of(*WORDS)
        assert tail is not None
        for delta in deltas[:3]:
            tail.add(delta)
        found = await read(followed, says(WORDS[1]))
        await other.refresh()
        await other.steer("Be brief.")
        found += await read(followed, is_kind("steering"))
        for delta in deltas[3:]:
            tail.add(delta)
        found += await read(followed, says(WORDS[-1]))
        assert found[-1].position.stream == found[1].position.stream
        late = store.follow_live("tail-said", Position(2))  # it begins after the steering
        assert deltas_in(await read(late, says(WORDS[-1]))) == deltas[:-1]
    assert text_of(found) == TEXT


async def check_two_readers_get_the_same(store: SessionStore) -> None:
    """Each reader gets every delta: a quick one, a slow one, and a reader that begins after the last delta."""
    session = await start_session(store, "tail-two", live=True)
    async with session.hold():
        early, slow = session.follow(deltas=True), session.follow(deltas=True)
        share(session, answer_of(*WORDS))
        first = await read(early, says(WORDS[-1]))
        assert await read(slow, says(WORDS[-1])) == first
        assert await read(session.follow(deltas=True), says(WORDS[-1])) == first


async def check_sessions_do_not_mix(store: SessionStore) -> None:
    """Many answers at once reach their own readers, and no other."""
    sessions = [await start_session(store, f"tail-many-{number}", live=True) for number in range(12)]

    async def talk(session: Session) -> None:
        own = tuple(f"{session.session_id} {number} " for number in range(30))
        async with session.hold():
            followed = session.follow(deltas=True)
            reading = asyncio.ensure_future(read(followed, says(own[-1])))
            tail = session.begin_tail()
            assert tail is not None
            for delta in answer_of(*own):
                tail.add(delta)
                await asyncio.sleep(0)
            assert deltas_in(await reading) == answer_of(*own)[:-1]

    await asyncio.gather(*(talk(session) for session in sessions))


async def check_a_lost_lease_shares_nothing(store: SessionStore) -> None:
    """An owner that lost its lease writes no delta, and what it had written is not under way any more."""
    old = await start_session(store, "tail-lost", live=True)
    lease = await store.acquire_lease("tail-lost", seconds=PATIENT)
    stale = store.begin_tail(lease, 0)
    stale.add(StartDelta("old", 0, NOW))
    stale.add(TextDelta("old", 1, NOW, "Whales"))
    found = await read(old.follow(deltas=True), says("Whales"))
    await store.renew_lease(replace(lease, seconds=SHORT))
    new = await open_session(store, "tail-lost", live=True)
    async with new.hold(wait_seconds=PATIENT):
        said = new.state.prepare_all((ModelInputEntry.of("not mine"),))
        await raised(LeaseLost, store.append("tail-lost", said, 1, lease=lease))
        stale.add(TextDelta("old", 2, NOW, " swim"))
        share(new, answer_of(*WORDS))
        late = await read(new.follow(deltas=True), says(WORDS[-1]))
        back = await read(new.follow(str(found[-1].position), deltas=True), says(WORDS[-1]))
    assert [item.entry.kind for item in back if isinstance(item, FollowedEntry)] == ["takeover"]
    assert deltas_in(late) == deltas_in(back) == answer_of(*WORDS)[:-1]


async def check_a_former_owner_leaves_the_next_answer_alone(store: SessionStore) -> None:
    """What an owner does after it lost its lease ends no answer of the next owner, whose append still ends it."""
    session = await start_session(store, "tail-former", live=True)
    lost = await store.acquire_lease("tail-former", seconds=SHORT)
    async with session.hold(wait_seconds=PATIENT):
        tail, deltas = session.begin_tail(), answer_of(*WORDS)
        assert tail is not None
        followed = session.follow(deltas=True)
        for delta in deltas[:2]:
            tail.add(delta)
        found = await read(followed, says(WORDS[0]))
        store.begin_tail(lost, 1).add(StartDelta("old", 0, NOW))
        said = session.state.prepare_all((ModelOutputEntry(Message.assistant("Old.")),))
        await raised(LeaseLost, store.append("tail-former", said, 1, lease=lost))
        await store.release_lease(lost)
        for delta in deltas[2:]:
            tail.add(delta)
        found += await read(followed, says(WORDS[-1]))
        assert deltas_in(found) == deltas[:-1]
        await session.append(ModelOutputEntry(Message.assistant(TEXT)))
        await _require_no_answer(store, session)


async def _require_no_answer(store: SessionStore, session: Session) -> None:
    """Raise AssertionError if a reader that begins at the end gets a delta of an answer that has ended."""
    end = session.state.next_serial
    await session.append(ModelInputEntry.of("And then?"))
    (first,) = await read(store.follow_live(session.session_id, end), lambda _item: True)
    assert isinstance(first, FollowedEntry), first


async def check_an_expired_lease_leaves_no_tail(store: SessionStore) -> None:
    """A reader gets no delta of an owner whose lease has expired, until that owner renews the lease."""
    session = await start_session(store, "tail-expired", live=True)
    lease = await store.acquire_lease("tail-expired", seconds=PATIENT)
    tail, deltas = store.begin_tail(lease, 0), answer_of(*WORDS)
    for delta in deltas[:3]:
        tail.add(delta)
    followed = store.follow_live("tail-expired")
    found = await read(followed, says(WORDS[1]))
    await store.renew_lease(replace(lease, seconds=SHORT))
    while await store.find_lease("tail-expired") is not None:  # noqa: ASYNC110  # nothing tells that a lease expires
        await asyncio.sleep(SHORT / 10)
    await session.steer("Are you there?")
    (first,) = await read(store.follow_live("tail-expired"), lambda _item: True)
    assert isinstance(first, FollowedEntry), first
    await store.renew_lease(lease)
    tail.add(deltas[3])
    found += await read(followed, says(WORDS[2]))
    late = await read(store.follow_live("tail-expired"), says(WORDS[2]))
    assert deltas_in(found) == deltas_in(late) == deltas[:4]


async def check_a_released_lease_leaves_no_tail(store: SessionStore) -> None:
    """When the owner gives the session back, nothing is under way, whatever was recorded."""
    session = await start_session(store, "tail-released", live=True)
    async with session.hold():
        share(session, answer_of(*WORDS))
        await read(session.follow(deltas=True), says(WORDS[-1]))
    assert session.begin_tail() is None
    async with session.hold():
        share(session, answer_of("New."))
        assert deltas_in(await read(session.follow(deltas=True), says("New."))) == answer_of("New.")[:-1]


async def check_a_tail_is_bounded(store: SessionStore) -> None:
    """What is too much of one answer comes with its entry; the next answer is shared again."""
    session = await start_session(store, "tail-bounded", live=True)
    words = ["x" * 500_000] * 20
    async with session.hold():
        share(session, answer_of("Short.", *words))
        followed = session.follow(deltas=True)
        found = await read(followed, says(words[0]))
        await session.append(ModelOutputEntry(Message.assistant("Short." + "".join(words))))
        found += await read(followed, is_kind("model_output"))
        assert len(deltas_in(found)) < len(words)
        assert text_of(found) == "Short." + "".join(words)
        share(session, answer_of(*WORDS))
        assert text_of(await read(followed, says(WORDS[-1])), found[-1].position) == TEXT


async def check_odd_deltas_are_shared(store: SessionStore) -> None:
    """A character that came in two halves is whole, and fields of a provider are kept."""
    session = await start_session(store, "tail-odd", live=True)
    deltas: list[KnownDelta] = [
        StartDelta("run", 0, NOW),
        ThinkingDelta("run", 1, NOW, "", None, {"signature": "a\nb"}),
        TextDelta("run", 2, NOW, "so \ud83d"),
        TextDelta("run", 3, NOW, "\ude00\n\0"),
        TextDelta("run", 4, NOW, "\ude00", 1),
        ErrorDelta("run", 5, NOW, ErrorCode.OVERLOADED, "busy"),
    ]
    async with session.hold():
        share(session, deltas)
        found = await read(session.follow(deltas=True), lambda item: item.position.ended < 0)
    assert deltas_in(found) == [
        *deltas[:2],
        TextDelta("run", 2, NOW, "so 😀\n\0"),
        TextDelta("run", 3, NOW, "\ufffd", 1),
        ErrorDelta("run", 4, NOW, ErrorCode.OVERLOADED, "busy"),
    ]


async def check_a_session_that_is_not_live_shares_nothing(store: SessionStore) -> None:
    """Without `live` there is no tail; following with deltas then yields the entries alone."""
    session = await start_session(store, "tail-off")
    async with session.hold():
        assert session.begin_tail() is None
        await session.append(ModelInputEntry.of("Go."))
        for deltas in (True, False):
            (only,) = await read(session.follow(deltas=deltas), is_kind("model_input"))
            assert only.position == Position(1)


async def check_bad_positions_are_refused(store: SessionStore) -> None:
    """A text that is no position raises InvalidValue; a reader with a forged answer gets the answer under way whole."""
    session = await start_session(store, "tail-bad", live=True)
    bad: Any = None
    for position in ("", "-1", "1.", "1.x.2", "1." + "a" * 40 + ".1.1.1.1", "9" * 40, "1\n", 1.5, -1, bad, True):
        try:
            session.follow(position, deltas=True)  # type: ignore[arg-type]  # that is the point
        except InvalidValue:
            continue
        raise AssertionError(f"{position!r} was taken")
    async with session.hold():
        share(session, answer_of(*WORDS))
        forged = Position(0, "f" * 16, 10**9, 10**9, 1, 7)
        followed = await read(session.follow(str(forged), deltas=True), says(WORDS[-1]))
        assert deltas_in(followed) == answer_of(*WORDS)[:-1]
    assert (await raised(StoreError, anext(aiter(store.follow_live("tail-missing"))))).code is ErrorCode.NOT_FOUND


async def check_a_position_beyond_the_end_is_refused(store: SessionStore) -> None:
    """A position of another session raises InvalidValue; a reader may wait at the end, and for a serial to come."""
    writer = await start_session(store, "tail-beyond")
    session = await open_session(store, "tail-beyond")  # it does not know the entries that follow
    for number in range(3):
        await writer.append(ModelInputEntry.of(f"Line {number}."))
    for deltas in (True, False):
        for beyond in ("4", Position(50), Position(4, "f" * 16, 1, 1, 1)):
            first = anext(session.follow(beyond, deltas=deltas))
            await raised(InvalidValue, asyncio.wait_for(first, PATIENT))
    followers = [session.follow(place, deltas=deltas) for place in ("3", Position(3), 4) for deltas in (True, False)]
    coming = [asyncio.ensure_future(anext(each)) for each in followers]
    for number in range(3, 5):
        await writer.append(ModelInputEntry.of(f"Line {number}."))
    async with asyncio.timeout(PATIENT):
        found = await asyncio.gather(*coming)
    assert [item.position.serial for item in found] == [4, 4, 4, 4, 5, 5]
    for each in followers:
        await each.aclose()


async def check_closing_ends_live_followers(store: SessionStore) -> None:
    """A follower of deltas that waits when the store is closed ends; a follower that begins after that ends at once."""
    session = await start_session(store, "tail-closed", live=True)
    hold = session.hold()
    await hold.__aenter__()
    share(session, answer_of(*WORDS))
    followed = session.follow(deltas=True)
    await read(followed, lambda item: item.position.ended < 0)
    waiting = asyncio.ensure_future(anext(followed, None))
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(PATIENT):
        assert await waiting is None
        assert [item async for item in store.follow_live("tail-closed")] == []


TAIL_CHECKS = (
    check_deltas_come_before_their_entry,
    check_a_reader_comes_back_at_every_position,
    check_an_answer_that_begins_anew_is_told,
    check_what_is_said_to_a_run_leaves_its_answer,
    check_two_readers_get_the_same,
    check_sessions_do_not_mix,
    check_a_lost_lease_shares_nothing,
    check_a_former_owner_leaves_the_next_answer_alone,
    check_an_expired_lease_leaves_no_tail,
    check_a_released_lease_leaves_no_tail,
    check_a_tail_is_bounded,
    check_odd_deltas_are_shared,
    check_a_session_that_is_not_live_shares_nothing,
    check_bad_positions_are_refused,
    check_a_position_beyond_the_end_is_refused,
    check_closing_ends_live_followers,
)


# ---------------------------------------------------------------- two stores over the same data


async def check_a_reader_elsewhere_follows(first: SessionStore, second: SessionStore) -> None:
    """A reader in another process gets the deltas, then the entry, and hears that the session was erased."""
    session = await start_session(first, "tail-elsewhere", live=True)
    followed = second.follow_live("tail-elsewhere")
    reading = asyncio.ensure_future(read(followed, says(WORDS[-1])))
    async with session.hold():
        await session.append(ModelInputEntry.of("Go."))
        tail = session.begin_tail()
        assert tail is not None
        for delta in answer_of(*WORDS):
            tail.add(delta)
            await asyncio.sleep(0)
        found = await reading
        await session.append(ModelOutputEntry(Message.assistant(TEXT)))
        found += await read(followed, is_kind("model_output"))
    assert text_of(found) == TEXT
    assert (
        deltas_in(found)[:-1] == answer_of(*WORDS)[:-2]
        or deltas_in(found) == answer_of(*WORDS)[: len(deltas_in(found))]
    )
    waiting = asyncio.ensure_future(anext(aiter(followed)))
    await first.erase("tail-elsewhere")
    assert (await raised(StoreError, waiting)).code is ErrorCode.NOT_FOUND


async def check_a_dead_writer_is_taken_over(first: SessionStore, second: SessionStore) -> None:
    """A writer that ends in the middle of an answer leaves nothing that a reader takes for the next owner's."""
    lease = await first.acquire_lease((await first.create("tail-dead")).session_id, seconds=PATIENT)
    tail = first.begin_tail(lease, 0)
    tail.add(StartDelta("old", 0, NOW))
    tail.add(TextDelta("old", 1, NOW, "Whales"))
    followed = second.follow_live("tail-dead")
    found = await read(followed, says("Whales"))
    await first.renew_lease(replace(lease, seconds=SHORT))
    await first.close()
    session = await open_session(second, "tail-dead", live=True)
    async with session.hold(wait_seconds=PATIENT):
        share(session, answer_of(*WORDS))
        found += await read(followed, says(WORDS[-1]))
        assert deltas_in(await read(session.follow(deltas=True), says(WORDS[-1]))) == answer_of(*WORDS)[:-1]
    kinds = [item.delta.run_id if isinstance(item, FollowedDelta) else item.entry.kind for item in found]
    assert kinds == ["old", "old", "takeover", *["run"] * (len(WORDS) + 1)]
    assert text_of(found) == TEXT


async def check_an_append_elsewhere_ends_the_answer(first: SessionStore, second: SessionStore) -> None:
    """The owner's append deletes the deltas of its answer, also those that it has shared through another store."""
    session = await start_session(first, "tail-both", live=True)
    async with session.hold() as lease:
        share(session, answer_of(*WORDS))
        await read(second.follow_live("tail-both"), says(WORDS[-1]))
        said = session.state.prepare_all((ModelInputEntry.of("Go."), ModelOutputEntry(Message.assistant(TEXT))))
        await second.append("tail-both", said, 0, lease=lease)
        await session.refresh()
        await _require_no_answer(second, session)


SHARED_TAIL_CHECKS = (
    check_a_reader_elsewhere_follows,
    check_a_dead_writer_is_taken_over,
    check_an_append_elsewhere_ends_the_answer,
)
