"""`Session.hold`: how long an owner may believe in its lease, and what it learns when it has lost it."""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman import ErrorCode, MemoryStore, StoreError, ToolCall, open_session, start_session
from dragoman.history import (
    DerivedState,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
    SteeringEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.message import Message
from dragoman.store import Head, Lease, LeaseLost, Session, Snapshot, holding
from dragoman.store.leases import StoreTime
from dragoman.store.session import PAGE, SNAPSHOT_EVERY
from dragoman.store.snapshots import DIGEST_KEY, take_snapshot
from tests.agent_cases import run


class Watched(MemoryStore):
    """Counts what is asked of it. It can fail, or lose its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals = self.appends = self.snapshots = 0
        self.failure: StoreError | None = None
        self.lost_answers = 0  # so many appends are kept, and their answers lost

    async def renew_lease(self, lease: Lease) -> Head:
        self.renewals += 1
        if self.failure is not None:
            raise self.failure
        return await super().renew_lease(lease)

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        self.appends += 1
        if self.failure is not None:
            raise self.failure
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreError("the answer is lost", code=ErrorCode.CONNECTION)
        return head

    async def keep_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        self.snapshots += 1
        await super().keep_snapshot(session_id, snapshot)


class Time:
    """The machine's clock as `SessionHold` reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(holding, "machine_time", lambda: StoreTime(self.now, "boot", self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_an_owner_believes_in_its_lease_for_its_seconds_and_no_longer(clock: Time) -> None:
    async def use() -> None:
        session = await start_session(Watched(), "s")
        async with session.hold(seconds=600):
            hold = session.held
            assert hold is not None
            clock.now += 599
            hold.require_valid()
            clock.now += 1
            with pytest.raises(LeaseLost):
                hold.require_valid()
            await hold.renew()
            clock.now += 599
            hold.require_valid()
            clock.now += 1
            with pytest.raises(LeaseLost):
                hold.require_valid()

    run(use())


def test_a_lease_is_renewed_by_hand_only_if_half_of_its_time_is_over(clock: Time) -> None:
    async def use() -> None:
        store = Watched()
        session = await start_session(store, "s")
        async with session.hold(seconds=600):
            assert store.renewals == 0, "a new lease is not renewed"
            hold = session.held
            assert hold is not None
            clock.now += 299
            await hold.renew_if_old()
            assert store.renewals == 0
            clock.now += 1
            await hold.renew_if_old()
            assert store.renewals == 1
            clock.now += 299
            await hold.renew_if_old()
            assert store.renewals == 1

    run(use())


def test_an_owner_is_told_that_another_one_has_taken_its_session() -> None:
    async def use() -> None:
        store, lost = Watched(), asyncio.get_running_loop().create_future()
        session = await start_session(store, "s")
        async with session.hold(seconds=0.05, on_lost=lost.set_result) as lease:
            await store.release_lease(lease)
            await store.acquire_lease("s")
            assert isinstance(await lost, LeaseLost)

    run(use())


def test_an_owner_is_told_that_the_store_was_out_of_reach_for_as_long_as_its_lease_lasts(clock: Time) -> None:
    async def use() -> None:
        store, lost = Watched(), asyncio.get_running_loop().create_future()
        session = await start_session(store, "s")
        async with session.hold(seconds=0.05, on_lost=lost.set_result):
            store.failure = StoreError("out of reach", code=ErrorCode.CONNECTION)
            while store.renewals < 3:  # noqa: ASYNC110  # tried again while the lease lasts
                await asyncio.sleep(0)
            assert not lost.done()
            clock.now += 1
            assert await lost is store.failure

    run(use())


def test_what_others_say_is_news_and_what_the_owner_says_is_not() -> None:
    async def use() -> None:
        store, news = Watched(), []
        session = await start_session(store, "s")
        async with session.hold(seconds=600, on_news=lambda: news.append(session.state.next_serial)):
            hold = session.held
            assert hold is not None
            await session.append_model_input("mine")
            await hold.renew()
            assert news == []
            await (await open_session(store, "s")).steer("faster")
            await hold.renew()
            assert news == [2]

    run(use())


def test_no_renewal_is_under_way_when_the_lease_is_given_back() -> None:
    class Slow(MemoryStore):
        """A renewal waits for ever, and takes a while to end when it is cancelled."""

        def __init__(self) -> None:
            super().__init__()
            self.reached, self.order = asyncio.Event(), list[str]()

        async def renew_lease(self, lease: Lease) -> Head:
            try:
                self.reached.set()
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                self.order.append("renewed")
            return await super().renew_lease(lease)

        async def release_lease(self, lease: Lease) -> None:
            self.order.append("released")
            await super().release_lease(lease)

    async def use() -> None:
        store = Slow()
        session = await start_session(store, "s")
        async with session.hold(seconds=0.05):
            await store.reached.wait()
        assert store.order == ["renewed", "released"]
        assert await store.find_lease("s") is None

    run(use())


# ---------------------------------------------------------------- appends of a session


def test_an_append_whose_answer_was_lost_is_made_again_and_recognised() -> None:
    async def use() -> None:
        store = Watched()
        session = await start_session(store, "s")
        store.lost_answers = 1
        await session.append_model_input("once")
        assert (store.appends, [message.text for message in session.messages]) == (2, ["once"])
        assert len(await store.load("s")) == 1
        store.lost_answers = 2
        with pytest.raises(StoreError, match="the answer is lost"):
            await session.append_model_input("twice")
        assert store.appends == 4

    run(use())


def test_an_append_that_the_store_refuses_is_not_made_again() -> None:
    async def use() -> None:
        store = Watched()
        session = await start_session(store, "s")
        store.failure = StoreError("the disk is full", code=ErrorCode.INTERNAL)
        with pytest.raises(StoreError, match="the disk is full"):
            await session.append_model_input("no")
        assert store.appends == 1

    run(use())


def test_a_snapshot_is_kept_once_in_so_many_entries() -> None:
    async def use() -> None:
        store = Watched()
        session = await start_session(store, "s")
        await session.append(*(ModelInputEntry.of(str(number)) for number in range(SNAPSHOT_EVERY + 1)))
        assert store.snapshots == 0
        for _ in range(3):
            await session.append_model_input("more")
        assert store.snapshots == 1
        assert [DIGEST_KEY in entry.metadata for entry in session.entries][-4:] == [False, True, False, False]

    run(use())


def test_a_snapshot_begins_with_its_version() -> None:
    state = DerivedState(next_serial=1)
    snapshot = take_snapshot(state)
    assert snapshot is not None
    assert snapshot.data.startswith(b'[1,["next_serial",')


@pytest.mark.parametrize("words", [0, PAGE - 2, PAGE - 1, PAGE, 2 * PAGE])
def test_a_fork_finds_that_its_parent_started_a_call_however_much_was_said_before(words: int) -> None:
    async def parent_of(store: MemoryStore) -> Session:
        parent = await start_session(store, "parent")
        call = ToolCall("c", "work", {})
        await parent.append(
            RunStartedEntry(run_id="r"), ModelInputEntry.of("go"), ModelOutputEntry(Message.assistant(call))
        )
        for _ in range(words):
            await parent.append(SteeringEntry.of_input(ModelInputEntry.of("faster")))
        await parent.append(ToolStartedEntry(parent.state.pending_tool_calls[0].tool_call_id, "work"))
        await parent.append(
            ToolFinishedEntry(HistoryToolCallResult.of_text(parent.state.pending_tool_calls[0], "done"))
        )
        return parent

    async def use() -> None:
        store = MemoryStore()
        fork = await (await parent_of(store)).fork(2)
        pending = fork.state.pending_tool_calls
        assert len(pending) == 1
        async with fork.hold():
            assert list(fork.state.pending_tool_calls) == []
            (finished,) = [entry for entry in fork.entries if isinstance(entry, ToolFinishedEntry)]
            assert finished.result.error_code is ErrorCode.TOOL_INTERRUPTED

    run(use())


def test_an_append_waits_for_one_that_is_under_way_though_its_caller_was_cancelled() -> None:
    class Gated(MemoryStore):
        """Keeps the first append only when it is told so."""

        def __init__(self) -> None:
            super().__init__()
            self.reached, self.opened = asyncio.Event(), asyncio.Event()

        async def append(
            self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
        ) -> Head:
            if not self.reached.is_set():
                self.reached.set()
                await self.opened.wait()
            return await super().append(session_id, entries, expected_serial, lease=lease)

    async def use() -> None:
        store = Gated()
        session = await start_session(store, "s")
        first = asyncio.ensure_future(session.append_model_input("one"))
        await store.reached.wait()
        first.cancel()
        await asyncio.wait((first,))
        second = asyncio.ensure_future(session.append_model_input("two"))
        for _ in range(20):
            await asyncio.sleep(0)
        store.opened.set()
        await second
        assert [message.text for message in session.messages] == ["one", "two"]
        assert await store.load("s") == tuple(session.entries)

    run(use())
