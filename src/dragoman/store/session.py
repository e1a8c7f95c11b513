"""A conversation that a store keeps: `AgentState` whose appends are durable before memory changes.

One `Session` is one writer. If another one was faster, an append raises AppendConflict, and `refresh` takes in what it
has appended. While it holds the session's lease (`hold`) only words to its run can come in its way: it takes them in
and appends again. Tasks of several event loops, in several threads, may use one `Session`.
"""

import asyncio
import os
import random
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from .._loops import SharedLock, Signal
from ..errors import ErrorCode, IllegalAppend, InvalidValue, StoreError
from ..history import (
    AbortRequestedEntry,
    AgentState,
    Clock,
    ContextualHistoryEntry,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    ResetEntry,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    Widget,
)
from ..history.appending import EntryAppender
from ..history.growing import GrowingList
from ..history.handoff import UNKNOWN_OUTCOME
from ..history.metadata import NO_METADATA
from ..message import Message, Part, Text, ToolCall
from .chain import follow
from .lazy import LazyEntries
from .leases import is_said_to_a_run
from .memory import MemoryStore
from .positions import Followed, FollowedEntry, Position
from .protocol import (
    LEASE_SECONDS,
    AppendConflict,
    ForkPoint,
    Lease,
    OpenedSession,
    SessionInfo,
    SessionStore,
    Snapshot,
)
from .snapshots import name_snapshot, read_snapshot, take_snapshot

if TYPE_CHECKING:
    from .holding import SessionHold
    from .tails import AnswerTail

__all__ = ["BranchComparison", "Session", "compare_branches", "open_session", "start_session"]

SNAPSHOT_EVERY = 1000  # entries; opening a session reads at most about as many
PAGE = 64  # entries of a parent that are read at once
APPEND_TRIES = 1000  # attempts of an append while others say something to the run
LONGEST_PAUSE = 0.05  # seconds between two of them, at random, so that many writers take turns

_Entry = TypeVar("_Entry", bound=HistoryEntry)
_Later: TypeAlias = Coroutine[Any, Any, _Entry]


class Session(
    EntryAppender[
        _Later[ModelInputEntry],
        _Later[ModelOutputEntry],
        _Later[ToolResultsEntry],
        _Later[SystemInstructionEntry],
        _Later[NotebookEntry],
        _Later[ResetEntry],
    ]
):
    """A session that is open for reading and appending. `open_session` and `start_session` make one."""

    def __init__(
        self,
        store: SessionStore,
        opened: OpenedSession,
        *,
        clock: Clock | None = None,
        widgets: Iterable[Widget] | None = None,
        live: bool = False,
    ) -> None:
        entries = opened.entries if isinstance(opened.entries, LazyEntries) else list(opened.entries)
        derived = read_snapshot(opened.snapshot, entries)
        self._store = store
        # An append that never waits cannot be cancelled halfway. A subclass may have an append that waits.
        self._never_waits = getattr(store.append, "__func__", None) is MemoryStore.append
        self._info = opened.info
        self._is_live = live
        self._clock = clock
        self._widgets = None if widgets is None else tuple(widgets)
        writer = os.urandom(6).hex()
        try:
            self._state = AgentState.resume(
                entries, derived, session_id=self.session_id, clock=clock, widgets=self._widgets, writer=writer
            )
        except IllegalAppend:
            follow(derived, (entries[index] for index in range(derived.next_serial, len(entries))))  # says which
            raise
        self._lease: Lease | None = None
        self._hold: SessionHold | None = None
        self._reruns = False
        self._snapshot_serial = derived.next_serial - 1
        self._lock = SharedLock()
        self._under_way: tuple[asyncio.Task[None], Signal] | None = None
        self._reading = threading.Lock()
        self._messages: GrowingList[Message] = GrowingList()
        self._messages_of = 0  # so many entries have given their messages

    def __repr__(self) -> str:
        return f"<Session {self.session_id!r}, {len(self._state.entries)} entries, in {self._store!r}>"

    # ------------------------------------------------------------ what is there

    @property
    def session_id(self) -> str:
        """The id in the store."""
        return self._info.session_id

    @property
    def run_id(self) -> str:
        """The open run, or empty."""
        return self._state.current_run_id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was noted when the session was created."""
        return self._info.metadata

    @property
    def info(self) -> SessionInfo:
        """The session as it was when it was opened."""
        return self._info

    @property
    def store(self) -> SessionStore:
        """Where the entries are kept."""
        return self._store

    @property
    def state(self) -> AgentState:
        """What follows from the entries. Append through the session, never to the state itself."""
        return self._state

    @property
    def _history(self) -> AgentState:
        return self._state

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        """All entries; those of a long session are read when they are asked for."""
        return self._state.entries

    @property
    def messages(self) -> Sequence[Message]:
        """What all contextual entries say, whole and in order; `state.render_live_context` is what a model may see."""
        with self._reading:
            entries = self._state.entries
            fresh = [entries[index] for index in range(self._messages_of, len(entries))]
            self._messages = self._messages.with_added(
                message for entry in fresh if isinstance(entry, ContextualHistoryEntry) for message in entry.messages()
            )
            self._messages_of = len(entries)
            return self._messages

    def state_at(self, serial: int) -> AgentState:
        """Return the state as it was right after the entry of that serial, -1 for before all."""
        return self._state.state_at(serial)

    # ------------------------------------------------------------ appending

    async def append(self, *entries: HistoryEntry, expected_serial: int | None = None) -> tuple[HistoryEntry, ...]:
        """Append entries of any kind, all or none, and return them as they were recorded.

        With `expected_serial`, append and return nothing if the first entry would get another serial, because another
        append has come first; the state knows of that one afterwards.

        Raises IllegalAppend for what a rule forbids, and what the store raises; then memory is as it was. Cancelling
        this does not stop the store: the next append first waits for what became of it.
        """
        async with self._lock:
            await self._settle()
            for tries in range(APPEND_TRIES, -1, -1):
                if expected_serial not in (None, self._state.next_serial):
                    return ()
                snapshot, named = self._due_snapshot(entries)
                prepared = self._state.prepare_all(named)
                if not prepared:
                    break
                keeping = self._keep(prepared, snapshot)
                try:
                    await (keeping if self._never_waits else self._keep_to_the_end(keeping))
                    break
                except AppendConflict:
                    if not tries or not (self._lease is not None or is_said_to_a_run(entries)):
                        raise
                    if self._lease is None:  # the owner of the session does not wait for those who say something
                        longest = min(LONGEST_PAUSE, (APPEND_TRIES - tries) / 1000)
                        await asyncio.sleep(random.uniform(0.0, longest))  # noqa: S311  # to part writers, no secret
                    await self._take_in()
            return prepared

    async def steer(self, *parts: Part | str) -> SteeringEntry:
        """Say something to the run under way, in any process: the run takes it up before the next model call."""
        return await self._append(SteeringEntry(tuple(Text(part) if isinstance(part, str) else part for part in parts)))

    async def request_abort(self, reason: str = "") -> AbortRequestedEntry:
        """Ask the run under way, in any process, to end; it ends within a fifth of its lease."""
        await self.refresh()
        return await self._append(AbortRequestedEntry(reason, run_id=self._state.derived.current_run_id))

    async def refresh(self) -> tuple[HistoryEntry, ...]:
        """Take in what others have appended, and return it."""
        async with self._lock:
            await self._settle()
            return await self._take_in()

    async def fork(
        self,
        serial: int,
        *,
        new_session_id: str | None = None,
        metadata: Mapping[str, Any] = NO_METADATA,
        rerun: bool = False,
    ) -> "Session":
        """Return a new session that shares the entries up to `serial` and goes on by itself.

        A call that is open there and was started in this session is not started again in the fork: its outcome is
        unknown, as after a crash. Idempotent tools are, and with `rerun` all are.
        """
        info = await self._store.fork(self.session_id, serial, new_session_id=new_session_id, metadata=metadata)
        fork = await open_session(
            self._store, info.session_id, clock=self._clock, widgets=self._widgets, live=self._is_live
        )
        fork._reruns = rerun
        return fork

    # ------------------------------------------------------------ followers

    def follow(self, position: Position | str | int = 0, *, deltas: bool = False) -> AsyncGenerator[Followed, None]:
        """Yield the entries from a position on, then each new one of every writer, until the store is closed.

        With `deltas`, also those of the answer under way, if its session was opened with `live`. Each comes with the
        position after it; a number is the serial of the next entry, and this waits until the session is that long.
        A Position, or its text, that lies beyond the end is not of this session: the first item raises InvalidValue.
        """
        begin = Position.of(position)
        if deltas:
            items = self._store.follow_live(self.session_id, position)
        else:
            items = _with_positions(self._store.follow(self.session_id, begin.serial))
        if isinstance(position, int) or begin.serial <= self._state.next_serial:
            return items
        return self._checked(items, begin)

    async def _checked(self, items: AsyncGenerator[Followed, None], begin: Position) -> AsyncGenerator[Followed, None]:
        """Yield the items; raise InvalidValue if they begin beyond the end of what the store has by now."""
        async with aclosing(items):
            with suppress(StoreError):  # the store gives the same error, or the end, to the follower
                end = (await self._store.head(self.session_id)).next_serial
                if begin.serial > end:
                    raise InvalidValue.of("position", str(begin), f"a position of this session, up to {end}")
            async for item in items:
                yield item

    def begin_tail(self) -> "AnswerTail | None":
        """Return what shares the deltas of an answer that begins now with followers; None if the session is not live.

        An `Agent` calls it for each answer. It needs the lease.
        """
        if not self._is_live or self._lease is None:
            return None
        return self._store.begin_tail(self._lease, self._state.next_serial)

    # ------------------------------------------------------------ who works on it

    def hold(
        self,
        *,
        seconds: float = LEASE_SECONDS,
        wait_seconds: float = 0.0,
        on_news: "Callable[[], None] | None" = None,
        on_lost: "Callable[[StoreError], None] | None" = None,
    ) -> "SessionHold":
        """Return what holds the session's lease for an `async with` block; entering it raises SessionBusy.

        An `Agent` holds it for each run. With `wait_seconds` it waits that long for another owner to end.
        """
        from .holding import SessionHold

        return SessionHold(self, seconds=seconds, wait_seconds=wait_seconds, on_news=on_news, on_lost=on_lost)

    @property
    def held(self) -> "SessionHold | None":
        """What holds the lease for this object now."""
        return self._hold

    async def _begin_hold(self, hold: "SessionHold", lease: Lease) -> None:
        """Append with this lease from now on; `SessionHold` calls it."""
        self._hold, self._lease = hold, lease
        try:
            if lease.head.next_serial != self._state.next_serial:
                await self.refresh()
            if lease.previous is not None:
                await self.append(TakeoverEntry(str(lease.owner), str(lease.previous)))
            if self._info.forked_from is not None and not self._reruns:
                await self._end_calls_of_parents()
        except BaseException:
            self._end_hold()
            raise

    def _end_hold(self) -> None:
        """Append without a lease from now on; `SessionHold` calls it."""
        self._hold = self._lease = None

    async def _end_calls_of_parents(self) -> None:
        """Record that the outcome of a call is unknown here if a session that this one was forked from started it."""
        point = self._info.forked_from
        while point is not None and self._state.pending_tool_calls:
            started = await _starts_after(self._store, point)
            ended = [
                ToolFinishedEntry(_unknown_outcome(call, point))
                for call in self._state.pending_tool_calls
                if call.tool_call_id in started and not started[call.tool_call_id].idempotent
            ]
            await self.append(*ended)
            point = (await self._store.info(point.session_id)).forked_from

    async def _take_in(self) -> tuple[HistoryEntry, ...]:
        """Take in what others have appended; raise StoreError if a rule forbids it."""
        entries = await self._store.load(self.session_id, self._state.next_serial)
        try:
            self._state.commit(*entries)
        except IllegalAppend:
            follow(self._state.derived, entries)  # says which
            raise
        if entries and self._hold is not None:
            self._hold.tell_news()
        return entries

    async def _append(self, entry: _Entry) -> _Entry:
        (recorded,) = await self.append(entry)
        return recorded  # type: ignore[return-value]  # of the class that was given

    def _due_snapshot(self, entries: Sequence[HistoryEntry]) -> tuple[Snapshot | None, Sequence[HistoryEntry]]:
        """A snapshot of the state before these entries, if it is time for one, and the entries: the first names it."""
        if self._state.next_serial - self._snapshot_serial > SNAPSHOT_EVERY:
            snapshot = take_snapshot(self._state.derived)
            if snapshot is not None and entries and isinstance(entries[0], HistoryEntry):
                first = name_snapshot(snapshot, entries[0])
                return (None, entries) if first is None else (snapshot, (first, *entries[1:]))
        return None, entries

    async def _keep(self, entries: tuple[HistoryEntry, ...], snapshot: Snapshot | None) -> None:
        try:
            await self._store.append(self.session_id, entries, entries[0].serial, lease=self._lease)
        except StoreError as error:
            if error.code is not ErrorCode.CONNECTION:
                raise
            # The answer may be lost, and the entries kept: the same append again is recognised by their ids.
            await self._store.append(self.session_id, entries, entries[0].serial, lease=self._lease)
        self._state.commit(*entries)
        if snapshot is not None:  # only now does an entry name it
            self._snapshot_serial = snapshot.serial
            with suppress(StoreError):  # it only saves time; the entries are safe
                await self._store.keep_snapshot(self.session_id, snapshot)

    async def _keep_to_the_end(self, keeping: Coroutine[Any, Any, None]) -> None:
        """Keep entries in a task of its own, which goes on if the caller that waits for it is cancelled."""
        task, ended = asyncio.ensure_future(keeping), Signal()
        task.add_done_callback(lambda task: _look_at(task, ended))  # the caller may be gone
        self._under_way = task, ended
        await asyncio.shield(task)
        self._under_way = None

    async def _settle(self) -> None:
        """Wait for an append whose caller was cancelled. What it raised was for that caller."""
        if self._under_way is not None:
            task, ended = self._under_way
            if not task.done():
                await ended.wait(task.get_loop())
            if not task.done() or task.cancelled():  # its event loop has ended: the store knows what became of it
                await self._take_in()
            self._under_way = None


async def _with_positions(entries: AsyncIterator[HistoryEntry]) -> AsyncGenerator[Followed, None]:
    async for entry in entries:
        yield FollowedEntry(entry, Position(entry.serial + 1))


async def _starts_after(store: SessionStore, point: ForkPoint) -> dict[str, ToolStartedEntry]:
    """The starts, by the ids of their calls, that a session recorded after a fork left it and before their results."""
    started: dict[str, ToolStartedEntry] = {}
    serial = point.serial + 1
    while True:
        entries = await store.load(point.session_id, serial, until_serial=serial + PAGE)
        for entry in entries:
            if isinstance(entry, ToolStartedEntry):
                started[entry.tool_call_id] = entry
            elif isinstance(entry, (ToolResultsEntry, ResetEntry)):
                return started
        if len(entries) < PAGE:
            return started
        serial += PAGE


def _unknown_outcome(call: ToolCall, point: ForkPoint) -> HistoryToolCallResult:
    said = f"It was started in the session {point.session_id!r}, which this one was forked from: {UNKNOWN_OUTCOME}."
    return HistoryToolCallResult.of_text(call, said, error_code=ErrorCode.TOOL_INTERRUPTED)


def _look_at(task: "asyncio.Task[None]", ended: Signal) -> None:
    if not task.cancelled():
        task.exception()
    ended.set()


async def start_session(
    store: SessionStore,
    session_id: str | None = None,
    *,
    system_instruction: str | None = None,
    metadata: Mapping[str, Any] = NO_METADATA,
    clock: Clock | None = None,
    widgets: Iterable[Widget] | None = None,
    exist_ok: bool = False,
    live: bool = False,
) -> Session:
    """Create a session in the store and open it; without an id it gets a random one.

    Raises StoreError, `conflict`, if the id is taken. With `exist_ok` it opens the session of that id instead, and two
    processes that start it at once get the same one. Its metadata stay as they are; a `system_instruction` that differs
    from the recorded one is recorded, which raises SessionBusy while a run is under way. The id of an erased session
    stays taken. With `live`, the answers of its runs can be followed while they come.
    """
    _require_store(store)
    if not exist_ok:
        info = await store.create(session_id, metadata=metadata)
        session = await open_session(store, info.session_id, clock=clock, widgets=widgets, live=live)
    elif session_id is None:
        raise InvalidValue("exist_ok needs a session_id: without one, each session is new")
    else:
        given = None if widgets is None else tuple(widgets)
        open_it = partial(open_session, store, session_id, clock=clock, widgets=given, live=live)
        session = await _started(store, session_id, metadata, open_it)
    if system_instruction is not None:
        await _instruct(session, system_instruction)
    return session


async def _started(
    store: SessionStore,
    session_id: str,
    metadata: Mapping[str, Any],
    open_it: Callable[[], Coroutine[Any, Any, Session]],
) -> Session:
    """Return the session of that id, which is created if there is none."""
    try:
        return await open_it()
    except StoreError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
    try:
        await store.create(session_id, metadata=metadata)
    except StoreError as taken:
        try:  # another process was faster, if it is there now
            return await open_it()
        except StoreError:
            raise taken from None
    return await open_it()


async def _instruct(session: Session, system_instruction: str) -> None:
    """Record the instruction, unless it is recorded already, by another process perhaps."""
    recorded = SystemInstructionEntry(system_instruction).instruction  # without halves of characters
    for tries in range(APPEND_TRIES, -1, -1):
        if session.state.system_instruction == recorded:
            return
        try:
            await session.set_system_instruction(system_instruction)
            return
        except AppendConflict:
            if not tries:
                raise
            await session.refresh()


async def open_session(
    store: SessionStore,
    session_id: str,
    *,
    clock: Clock | None = None,
    widgets: Iterable[Widget] | None = None,
    live: bool = False,
) -> Session:
    """Open a session of the store; raise StoreError, `not_found` if it has none of that id.

    With a snapshot only the entries after it are read; `entries` reads the others when they are asked for. With `live`,
    the answers of its runs can be followed while they come.
    """
    _require_store(store)
    return Session(store, await store.open(session_id), clock=clock, widgets=widgets, live=live)


def _require_store(store: object) -> None:
    if not callable(getattr(store, "create", None)):
        raise InvalidValue.of("store", store, 'a store, such as SQLiteStore("sessions.db") or MemoryStore()')


class BranchComparison(msgspec.Struct, frozen=True):
    """Two sessions side by side: the last serial that they share, -1 for none, and what each has after it."""

    common_serial: int
    left: tuple[HistoryEntry, ...]
    right: tuple[HistoryEntry, ...]


async def compare_branches(store: SessionStore, left_id: str, right_id: str) -> BranchComparison:
    """Return the last serial that two sessions share, by their forks, and what each has after it."""
    left, right = await _ancestors(store, left_id), await _ancestors(store, right_id)
    common = max((min(last, right[each]) for each, last in left.items() if each in right), default=-1)
    return BranchComparison(common, await store.load(left_id, common + 1), await store.load(right_id, common + 1))


async def _ancestors(store: SessionStore, session_id: str) -> dict[str, int]:
    """Each ancestor of this session, itself included, and the last serial that it shares with it."""
    info = await store.info(session_id)
    shared = info.head.serial
    last = {session_id: shared}
    while info.forked_from is not None:
        shared = min(shared, info.forked_from.serial)
        last[info.forked_from.session_id] = shared
        info = await store.info(info.forked_from.session_id)
    return last
