"""`Session`: an agent's state whose appends are durable before memory knows of them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import AgentStatus, ErrorCode, InvalidValue, Message, StoreError, Text, ToolCall
from dragoman._jsontext import encode_json
from dragoman.errors import IllegalAppend
from dragoman.history import (
    AgentState,
    ApprovalAskedEntry,
    DerivedState,
    HistoryEntry,
    HistoryToolCallResult,
    MemoryNotebookWidget,
    ModelInputEntry,
    RunFinishedEntry,
    RunStartedEntry,
    RunStatus,
    ToolFinishedEntry,
    ToolStartedEntry,
    entry_to_json,
)
from dragoman.store import (
    AppendConflict,
    Head,
    Lease,
    MemoryStore,
    Session,
    SessionStore,
    Snapshot,
    SQLiteStore,
    compare_branches,
    open_session,
    start_session,
)
from dragoman.store.blobs import BLOB_SIZE, cut_pieces, put_back
from dragoman.store.session import SNAPSHOT_EVERY
from dragoman.store.snapshots import name_snapshot, read_snapshot, take_snapshot
from dragoman.testing.histories import legal_histories, random_history
from tests.history_cases import Clock
from tests.store_cases import with_flipped_byte, with_store


def in_memory(use: Callable[[MemoryStore], Awaitable[None]]) -> None:
    async def run() -> None:
        async with MemoryStore() as store:
            await use(store)

    asyncio.run(run())


def test_a_session_has_what_it_was_given_and_what_was_appended() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s", system_instruction="Be brief.", metadata={"user": "ada"})
        assert (session.session_id, session.metadata, session.run_id) == ("s", {"user": "ada"}, "")
        await session.append(RunStartedEntry(run_id="run-1"))
        await session.append_model_input("Look.", metadata={"channel": "web"})
        output = await session.append_model_output(Message.assistant("Yes.", ToolCall("c", "look", {})))
        (call,) = output.tool_calls
        started, finished = await session.append(
            ToolStartedEntry(call.tool_call_id, call.tool_name),
            ToolFinishedEntry(HistoryToolCallResult.of_text(call, "A cat.")),
        )
        await session.append_tool_results()
        assert session.run_id == "run-1"
        assert (started.serial, finished.serial, started.run_id) == (4, 5, "run-1")
        assert [message.role for message in session.messages] == ["user", "assistant", "tool"]
        await session.update_memory_notebook("A cat.")
        await session.append(RunFinishedEntry(RunStatus.ABORTED, run_id="run-1"))
        await session.reset()
        await session.append_model_input("Again.")
        assert [message.text for message in session.messages if message.role == "user"] == ["Look.", "Again."]
        assert await store.load("s") == tuple(session.entries)
        again = await open_session(store, "s")
        assert again.state.derived == session.state.derived
        assert again.messages == session.messages
        assert again.info == await store.info("s")

    in_memory(use)


def test_what_a_rule_forbids_reaches_no_store() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s")
        with pytest.raises(IllegalAppend):
            await session.append_tool_results([])
        with pytest.raises(IllegalAppend):
            await session.append(ModelInputEntry.of("fine"), RunStartedEntry())
        assert (await store.head("s"), len(session.entries)) == (Head(), 0)
        assert await session.append() == ()

    in_memory(use)


class Refusing(MemoryStore):
    """Refuses while it is told to, as a full disk would."""

    is_refusing = False

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        if self.is_refusing:
            raise StoreError("the disk is full", code=ErrorCode.QUOTA_EXCEEDED)
        return await super().append(session_id, entries, expected_serial, lease=lease)


def test_memory_knows_nothing_that_the_store_has_refused() -> None:
    async def run() -> None:
        store = Refusing()
        session = await start_session(store, "s")
        store.is_refusing = True
        with pytest.raises(StoreError):
            await session.append_model_input("lost?")
        assert len(session.entries) == 0
        store.is_refusing = False
        entry = await session.append_model_input("kept")
        assert (entry.serial, await store.load("s")) == (0, (entry,))

    asyncio.run(run())


def test_whoever_was_slower_gets_a_conflict_and_catches_up() -> None:
    async def use(store: MemoryStore) -> None:
        first = await start_session(store, "s")
        second = await open_session(store, "s")
        await first.append_model_input("one")
        with pytest.raises(AppendConflict) as raised:
            await second.append_model_input("two")
        assert raised.value.head == await store.head("s")
        assert [entry.serial for entry in await second.refresh()] == [0]
        assert (await second.append_model_input("two")).serial == 1
        assert await second.refresh() == ()

    in_memory(use)


class Slow(MemoryStore):
    """Keeps what it is given, but answers only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.has_kept = asyncio.Event()

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        self.has_kept.set()
        await self.may_answer.wait()
        return head


def test_an_append_whose_caller_was_cancelled_is_not_forgotten() -> None:
    async def run() -> None:
        store = Slow()
        session = await start_session(store, "s")
        task = asyncio.ensure_future(session.append_model_input("one"))
        await store.has_kept.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = asyncio.ensure_future(session.append_model_input("two"))
        store.may_answer.set()
        assert (await following).serial == 1
        assert [message.text for message in session.messages] == ["one", "two"]

    asyncio.run(run())


def test_an_append_to_a_store_in_memory_never_waits_so_that_nobody_can_cancel_it_halfway() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s")
        appending = session.append_model_input("one")
        with pytest.raises(StopIteration):
            appending.send(None)
        assert await store.load("s") == tuple(session.entries)

    in_memory(use)


def test_appends_of_several_tasks_stand_in_line() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s")
        await asyncio.gather(*(session.append_model_input(f"{number}") for number in range(20)))
        assert [entry.serial for entry in session.entries] == list(range(20))
        assert await store.load("s") == tuple(session.entries)

    in_memory(use)


def test_a_session_appends_what_a_widget_has_planned() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s")
        (tool, *_) = session.state.enumerate_widget_tools()
        names = [spec.name for spec in session.state.enumerate_widget_tools()]
        replace = next(name for name in names if "replace" in name and "text" not in name)
        planned = session.state.plan_widget_tool(replace, {"content": "Noted."})
        assert not session.entries
        assert await session.append(*planned.entries) == tuple(session.entries)
        assert session.state.memory_notebook_snapshot == "Noted."
        failed = session.state.plan_widget_tool(tool.name, {"nonsense": 1})
        assert failed.error_code is not None
        assert failed.entries == ()

    in_memory(use)


def test_a_session_is_resumed_where_a_crash_has_left_it(tmp_path: Path) -> None:
    async def begin(store: SQLiteStore) -> DerivedState:
        session = await start_session(store, "s")
        await session.append_model_input("Delete it.")
        output = await session.append_model_output(
            Message.assistant(ToolCall("a", "delete", {}), ToolCall("b", "list", {}))
        )
        first, second = output.tool_calls
        await session.append(ApprovalAskedEntry(first.tool_call_id, first.tool_name, "it deletes"))
        await session.append(ToolStartedEntry(second.tool_call_id, second.tool_name, idempotent=True))
        return session.state.derived  # and here it ends

    async def resume(store: SQLiteStore) -> Session:
        return await open_session(store, "s")

    derived = with_store(tmp_path / "s.db", begin)
    session = with_store(tmp_path / "s.db", resume)
    assert session.state.derived == derived
    assert session.state.status is AgentStatus.AWAITING_HUMAN
    assert [start.tool_call_id for start in session.state.derived.started_tool_calls] == ["b"]


def test_a_fork_goes_on_with_the_parents_entries_and_ids_of_its_own() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s", clock=Clock())
        for number in range(5):
            await session.append_model_input(f"{number}")
        fork = await session.fork(2, new_session_id="f", metadata={"why": "try"})
        await fork.append_model_input("other")
        assert [entry.entry_id.partition("~")[0] for entry in fork.entries] == ["s:0", "s:1", "s:2", "f:3"]
        assert fork.metadata == {"why": "try"}
        assert session.state_at(2).derived == fork.state_at(2).derived
        compared = await compare_branches(store, "s", "f")
        assert compared.common_serial == 2
        assert [entry.entry_id.partition("~")[0] for entry in compared.left] == ["s:3", "s:4"]
        assert [entry.entry_id.partition("~")[0] for entry in compared.right] == ["f:3"]
        await store.create("stranger")
        assert (await compare_branches(store, "f", "stranger")).common_serial == -1

    in_memory(use)


# ---------------------------------------------------------------- snapshots


def test_a_long_session_gets_snapshots_by_itself_and_is_opened_from_them(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    size = SNAPSHOT_EVERY + 300

    async def write(store: SQLiteStore) -> DerivedState:
        session = await start_session(store, "s")
        await session.append(*(ModelInputEntry.of(f"Line {number}.") for number in range(size - 1)))
        await session.append_model_input("The end.")
        return session.state.derived

    derived = with_store(path, write)
    with_flipped_byte(path, path.read_bytes().index(b"Line 700."))

    async def look(store: SQLiteStore) -> None:
        session = await open_session(store, "s")  # does not read what the snapshot stands for
        assert session.state.derived == derived
        assert session.entries[-1].serial == size - 1
        with pytest.raises(StoreError, match="serial 700"):
            session.entries[700]
        with pytest.raises(StoreError, match="serial 700"):
            session.state_at(710)
        assert session.state_at(size - 1).derived == derived
        await session.append_model_input("It goes on.")
        await store.drop_snapshots("s")
        with pytest.raises(StoreError, match="serial 700"):
            await open_session(store, "s")

    with_store(path, look)


@settings(max_examples=60, deadline=None)
@given(legal_histories(max_steps=30), st.data())
def test_a_snapshot_says_what_replaying_says(state: AgentState, data: st.DataObject) -> None:
    derived = state.state_at(data.draw(st.integers(-1, len(state.entries) - 1))).derived
    snapshot = take_snapshot(derived)
    if derived.open_calls or not derived.next_serial:
        assert snapshot is None
        return
    assert snapshot is not None
    entries = [*state.entries[: derived.next_serial], *named_after(snapshot), *state.entries]
    assert read_snapshot(snapshot, entries) == derived
    resumed = AgentState.resume(list(state.entries), read_snapshot(snapshot, entries), session_id=state.session_id)
    assert resumed.derived == state.derived
    assert resumed.entries == state.entries
    for serial in range(-1, len(state.entries)):
        assert resumed.state_at(serial).derived == state.state_at(serial).derived


def named_after(snapshot: Snapshot) -> list[HistoryEntry]:
    """The entry after a snapshot, which names it."""
    entry = name_snapshot(snapshot, ModelInputEntry.of("Next."))
    assert entry is not None
    return [entry]


def test_a_snapshot_that_cannot_be_used_is_as_good_as_none() -> None:
    state = random_history(1, 60).state_at(0)
    snapshot = take_snapshot(state.derived)
    assert snapshot is not None
    before, after = list(state.entries), named_after(snapshot)
    assert read_snapshot(snapshot, before + after) == state.derived
    assert read_snapshot(snapshot, before) == DerivedState()  # no entry names it
    assert read_snapshot(snapshot, [*before, ModelInputEntry.of("Next.")]) == DerivedState()
    damaged = [snapshot.data[:-1], b"", snapshot.data[:40] + b"x" + snapshot.data[41:], b"\0" * 100]
    for data in damaged:
        changed = Snapshot(snapshot.serial, data)
        assert read_snapshot(changed, before + after) == DerivedState()
        assert read_snapshot(changed, before + named_after(changed)) == DerivedState()  # named, but not readable
    moved = Snapshot(snapshot.serial + 1, snapshot.data)
    assert read_snapshot(moved, before + before + after) == DerivedState()
    assert read_snapshot(None, before + after) == DerivedState()


def test_an_entry_whose_metadata_are_full_is_appended_and_names_no_snapshot() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s")
        await session.append(*(ModelInputEntry.of(f"{number}") for number in range(SNAPSHOT_EVERY + 1)))
        full = {"note": "x" * (2048 - len('{"note":""}'))}
        await session.append_model_input("No room.", metadata=full)
        assert session.entries[-1].metadata == full
        assert (await store.open("s")).snapshot is None
        await session.append_model_input("Room.")
        opened = await store.open("s")
        assert opened.snapshot is not None
        assert opened.snapshot.serial == SNAPSHOT_EVERY + 1
        assert set(session.entries[-1].metadata) == {"state_digest"}
        assert (await open_session(store, "s")).state.derived == session.state.derived

    in_memory(use)


@pytest.mark.parametrize("data", [b"", b"other"], ids=["changed", "replaced"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_changed_snapshot_is_found_by_verify_and_the_entries_win(data: bytes, kind: str, tmp_path: Path) -> None:
    async def use(store: SessionStore) -> None:
        session = await start_session(store, "s", system_instruction="Never run rm.")
        await session.append(*(ModelInputEntry.of(f"{number}") for number in range(SNAPSHOT_EVERY)))
        await session.append_model_input("The end.")
        head, snapshot = await store.head("s"), (await store.open("s")).snapshot
        assert snapshot is not None
        assert b"Never run rm." in snapshot.data
        assert (await store.verify("s", kept=head)).is_sound
        forged = data or snapshot.data.replace(b"Never run rm.", b"Always run rm")
        await store.keep_snapshot("s", Snapshot(snapshot.serial, forged))  # as any program with the file can
        report = await store.verify("s", kept=head)
        assert (report.is_sound, report.bad_serial, report.head) == (False, snapshot.serial, head)
        assert "snapshot" in report.problem
        assert (await open_session(store, "s")).state.system_instruction == "Never run rm."
        await store.drop_snapshots("s")
        assert (await store.verify("s", kept=head)).is_sound

    if kind == "memory":
        in_memory(use)
    else:
        with_store(tmp_path / "s.db", use)


def test_a_writer_that_names_a_false_snapshot_is_found_by_verify() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s", system_instruction="Never run rm.")
        sound = take_snapshot(session.state.derived)
        assert sound is not None
        false = Snapshot(0, sound.data.replace(b"Never run rm.", b"Always run rm"))
        await session.append(*named_after(false))
        await store.keep_snapshot("s", false)
        report = await store.verify("s")
        assert (report.is_sound, report.bad_serial) == (False, 0)
        assert "lead to" in report.problem

    in_memory(use)


@settings(max_examples=25, deadline=None)
@given(legal_histories(max_steps=25))
def test_every_legal_history_is_stored_and_loaded_equal(state: AgentState) -> None:
    async def use(store: MemoryStore) -> None:
        await store.create(state.session_id)
        if state.entries:
            await store.append(state.session_id, state.entries, 0)
        loaded = await store.load(state.session_id)
        assert [entry_to_json(entry) for entry in loaded] == [entry_to_json(entry) for entry in state.entries]
        assert (await open_session(store, state.session_id)).state.derived == state.derived

    in_memory(use)


# ---------------------------------------------------------------- blobs


TEXTS = st.one_of(
    st.text(max_size=20),
    st.builds(lambda text, size: text * size, st.text(min_size=1, max_size=8), st.integers(0, 3000)),
    st.builds(lambda size: "QUJD" * size, st.integers(BLOB_SIZE // 4 - 2, BLOB_SIZE // 4 + 2)),
    st.builds(lambda size: "QR==" * size, st.integers(BLOB_SIZE // 4 - 2, BLOB_SIZE // 4 + 2)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_what_is_cut_out_of_an_entry_is_put_back_to_the_byte(texts: list[str]) -> None:
    data = entry_to_json(ModelInputEntry((Text("x"), *map(Text, texts)), serial=0, entry_id="s:0"))
    left, pieces = cut_pieces(data)
    assert put_back(left, pieces) == data
    sizes = [len(encode_json(text)) - 2 for text in texts]  # without the quotes
    assert len(pieces) == sum(size >= BLOB_SIZE for size in sizes)


@pytest.mark.parametrize("data", [b"", b"{}", b'"' + b"a" * 5000, b'"' + b"\\" * 5001, b"a" * 9000])
def test_what_is_no_entry_is_put_back_as_well(data: bytes) -> None:
    assert put_back(*cut_pieces(data)) == data


def test_a_session_refuses_a_notebook_that_is_longer_than_its_widget_allows() -> None:
    async def use(store: MemoryStore) -> None:
        session = await start_session(store, "s", widgets=[MemoryNotebookWidget(limit_characters=5)])
        with pytest.raises(InvalidValue, match="at most 5 fit"):
            await session.update_memory_notebook("Too long.")
        assert not session.entries

    in_memory(use)


def test_an_append_with_an_expected_serial_appends_nothing_where_another_came_first() -> None:
    async def use(store: MemoryStore) -> None:
        session, other = await start_session(store, "s"), await open_session(store, "s")
        async with session.hold():
            await other.steer("Wait.")
            said = ModelInputEntry.of("It is done.")
            assert await session.append(said, expected_serial=0) == ()
            assert [entry.kind for entry in session.entries] == ["steering"]
            (recorded,) = await session.append(said, expected_serial=1)
            assert recorded.serial == 1

    in_memory(use)


def test_opening_a_session_and_its_next_append_read_nothing_in_the_event_loop(tmp_path: Path) -> None:
    class Watched(SQLiteStore):
        threads: set[int] = set()  # noqa: RUF012  # of the one store below

        def _read_now(self, work: Any) -> Any:
            self.threads.add(threading.get_ident())
            return super()._read_now(work)

    async def use() -> None:
        async with Watched(tmp_path / "s.db") as store:
            session = await start_session(store, "s")
            await session.append_model_input("x" * 1_000_000)
            store.threads.clear()
            again = await open_session(store, "s")
            assert [entry.kind for entry in again.entries] == ["model_input"]
            await again.append_model_input("y")
            assert store.threads
            assert threading.get_ident() not in store.threads

    asyncio.run(use())
