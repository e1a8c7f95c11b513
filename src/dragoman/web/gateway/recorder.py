"""Takes the requests and answers of clients into the store: one session for each conversation.

`begin` finds the session that a request continues and records what is new in it; `Turn.end` records the answer. Edits,
rewinds and two requests at once become forks. No fault of the store breaks an answer: it is counted, and the turn says
what was not recorded. `placing` has the rules for one session, `finding` those for choosing among several.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from ...errors import ErrorCode, StoreError, report_raised
from ...history import HistoryEntry, ResetEntry
from ...store import AppendConflict, SessionBusy
from .access import is_own_session
from .conversations import Frame
from .finding import Found, TurnFinder, is_other_program, is_side_request, place_found, place_joined
from .kept_sessions import KeptSession, KeptSessions
from .naming import SessionNames, require_joinable
from .placing import Place, has_late_results, has_moved, last_request, plan_turn
from .refusals import RefusedRequest
from .said import Said
from .turn import Turn

if TYPE_CHECKING:
    from ...history import Clock
    from ...message import Message
    from ...store import SessionStore
    from .asked import Asked, Given

__all__ = ["Recorder", "Turn"]

STORE_SECONDS = 10.0
TRIES = 4  # of an append that another process was faster than
CONVERSATIONS = 10_000  # whose newest session is remembered


class Recorder:
    """Records the exchanges of clients. `faults` counts those that are not wholly in the store."""

    def __init__(self, store: "SessionStore", *, clock: "Clock | None" = None) -> None:
        self.faults = 0
        self._store = store
        self._kept = KeptSessions(store, clock)
        self._finder = TurnFinder(store, self._kept, self._is_busy)
        self._names = SessionNames()
        self._under_way: dict[str, WeakSet[Turn]] = {}  # by session; a turn that is dropped without its end goes
        self._ending: set[asyncio.Task[None]] = set()
        self._newest: OrderedDict[str, str] = OrderedDict()  # by conversation: the session that it was last in

    async def begin(self, asked: "Asked") -> Turn:
        """Record a request and return its turn.

        Raises nothing but CancelledError, and RefusedRequest where the request joins the session of another key.
        """
        said = Said(asked)
        try:
            await said.read()
            async with asyncio.timeout(STORE_SECONDS):
                turn = await self._begin_anew(said)
        except RefusedRequest:
            raise
        except Exception as error:  # noqa: BLE001  # a client gets its answer, whatever the record does
            self._kept.forget_all()  # an append of one of them may hang
            return Turn(said, self, fault=self._fault(error))
        assert turn.kept is not None
        self._under_way.setdefault(turn.kept.session_id, WeakSet()).add(turn)
        self._remember(turn)
        return turn

    async def end_turn(self, turn: Turn, given: "Given") -> None:
        """Record the answer of a turn. `Turn.end` calls it."""
        if turn.kept is None:
            return
        task = asyncio.ensure_future(self._end(turn, turn.kept, given))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait until every answer that was given is recorded. Call it before the store is closed."""
        while self._ending:
            await asyncio.wait(self._ending)

    # ------------------------------------------------------------ requests

    async def _begin_anew(self, said: Said) -> Turn:
        """Begin a turn. If a session that was kept open has been erased, begin it without what was kept."""
        try:
            return await self._begin(said)
        except StoreError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
        self._kept.forget_all()
        return await self._begin(said)

    async def _begin(self, said: Said) -> Turn:
        if said.frame is None:
            return await self._append(said, await self._create(said), ())
        if said.asked.session_id:
            return await self._begin_joined(said, said.frame)
        found = await self._finder.find(said, said.frame)
        if found is None:
            return await self._begin_new(said, said.frame)
        return await self._begin_found(said, said.frame, found)

    async def _begin_found(self, said: Said, frame: Frame, found: Found) -> Turn:
        """Go on in the session of the turn that was found, or in a fork of it."""
        known, kept = found.frame, found.kept
        if known is not None and is_other_program(said, frame, found):
            return await self._begin_session(said, is_side=frame.is_side_of(known))
        if known is not None and frame.shares_nothing(known) and frame.tool_count < known.tool_count:
            return await self._fork_found(said, frame, found, is_side=True)
        async with kept.lock:
            for _ in range(TRIES):
                place = place_found(found, frame, said.messages)
                if not place.is_repeat and (self._is_busy(kept) or has_moved(kept.entries, place.end)):
                    break
                try:
                    return await self._append_at(said, found, place)
                except AppendConflict:
                    await kept.session.refresh()
                except SessionBusy:
                    break
        return await self._fork_found(said, frame, found, is_side=kept.is_side)

    async def _begin_new(self, said: Said, frame: Frame) -> Turn:
        """Begin a session: nothing of the request is recorded. After a compaction by its client it is a fork."""
        earlier = await self._newest_of(said)
        if earlier is None:
            return await self._begin_session(said, is_side=said.is_named and not frame.tool_count)
        request = last_request(earlier.entries)
        known = None if request is None else Frame.of(request)
        if known is not None and (frame.shares_nothing(known) or frame.tool_count == 0 < known.tool_count):
            return await self._begin_session(said, is_side=True)
        if earlier.session.state.current_run_id:
            return await self._begin_session(said)
        fork = await self._create(said, earlier, len(earlier.entries) - 1)
        await fork.session.append(ResetEntry())
        return await self._append(said, fork, said.messages, said.mark, said.conversation_mark)

    async def _begin_joined(self, said: Said, frame: Frame) -> Turn:
        """Append what is new in a request at the head of the session that its client has joined."""
        session_id = said.asked.session_id
        require_joinable(session_id)
        kept = await self._kept.find(session_id) or await self._create_joined(said, session_id)
        if not is_own_session(kept.session.metadata, said.asked.key_name):
            words = f"the session {session_id[:100]!r} is of another key"
            raise RefusedRequest(403, words, code=ErrorCode.PERMISSION)
        found = await self._finder.find_joined(said, frame, kept)
        if found is not None and found.kept is not kept:
            return await self._begin_found(said, frame, found)
        if is_side_request(said, frame, kept.entries, found):
            return await self._begin_session(said, is_side=True)
        async with kept.lock:
            for _ in range(TRIES):
                place = place_joined(found, frame, said.messages)
                is_late = place.end >= 0 and has_late_results(kept.session.state, place.rest)
                if is_late or self._is_busy(kept) or (not place.is_repeat and kept.session.state.current_run_id):
                    break
                try:
                    if found is not None and place.is_repeat:
                        return await self._append_at(said, found, place, is_joined=True)
                    return await self._append(said, kept, place.rest, said.mark, is_joined=True)
                except AppendConflict:
                    await kept.session.refresh()
                except SessionBusy:
                    break
            others = [turn.first_serial for turn in self._under_way.get(session_id, ()) if not turn.has_ended]
            before = min(others, default=len(kept.entries)) - 1
            serial = place.end if place.is_repeat or is_late else max(before, place.end)
        fork = await self._create(said, kept, serial)
        return await self._append(said, fork, place.rest, "" if place.is_repeat else said.mark, is_joined=True)

    async def _begin_session(self, said: Said, *, is_side: bool = False) -> Turn:
        kept = await self._create(said, is_side=is_side)
        return await self._append(said, kept, said.messages, said.mark, "" if is_side else said.conversation_mark)

    async def _fork_found(self, said: Said, frame: Frame, found: Found, *, is_side: bool) -> Turn:
        place = place_found(found, frame, said.messages)
        fork = await self._create(said, found.kept, place.end, is_side=is_side)
        mark = "" if place.is_repeat else said.mark
        return await self._append(said, fork, place.rest, mark, "" if is_side else said.conversation_mark)

    async def _append_at(self, said: Said, found: Found, place: Place, *, is_joined: bool = False) -> Turn:
        if not place.is_repeat:
            return await self._append(said, found.kept, place.rest, said.mark)
        # The turn is there. The answer is recorded after the first request, not after this one.
        kept, serial = found.kept, found.serial
        may_fork = self._is_busy(kept) or has_moved(kept.entries, serial)
        (recorded,) = await kept.session.append(said.request_entry(kept.entries))
        asked_at = recorded.serial
        return Turn(said, self, kept, serial=serial, request_serial=asked_at, is_joined=is_joined, may_fork=may_fork)

    async def _append(
        self, said: Said, kept: KeptSession, rest: Sequence["Message"], *marks: str, is_joined: bool = False
    ) -> Turn:
        """Append what is new in a request, then the request itself."""
        state = kept.session.state
        first = state.next_serial
        planned: Sequence[HistoryEntry] = plan_turn(state, said.system, rest) if said.is_readable else ()
        recorded = await kept.session.append(*planned, said.request_entry(kept.entries, marks=marks))
        serial = recorded[-1].serial
        return Turn(said, self, kept, serial=serial, request_serial=serial, first_serial=first, is_joined=is_joined)

    # ------------------------------------------------------------ answers

    async def _end(self, turn: Turn, kept: KeptSession, given: "Given") -> None:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._record_end(turn, kept, given)
            self._remember(turn)
        except Exception as error:  # noqa: BLE001  # a client gets its answer, whatever the record does
            self._kept.forget(kept.session_id)
            turn.fault = self._fault(error)
        finally:
            under_way = self._under_way.get(kept.session_id, WeakSet())
            under_way.discard(turn)
            if not under_way:
                self._under_way.pop(kept.session_id, None)
            self._kept.release(kept)

    async def _record_end(self, turn: Turn, kept: KeptSession, given: "Given") -> None:
        async with kept.lock:
            for _ in range(TRIES):
                planned = turn.plan_end(given)
                if planned is None or self._awaits_earlier_repeat(turn, kept):
                    break
                try:
                    await kept.session.append(*planned)
                except AppendConflict:
                    await kept.session.refresh()
                except SessionBusy:
                    break
                else:
                    return
        fork = await self._create(turn.said, kept, turn.serial, is_side=turn.is_side)
        await fork.session.append(*turn.plan_fork(given, fork.entries))
        turn.kept = fork

    # ------------------------------------------------------------ sessions

    async def _create(
        self,
        said: Said,
        parent: KeptSession | None = None,
        serial: int = -1,
        *,
        is_side: bool = False,
        name: str = "",
    ) -> KeptSession:
        """Return a new session, or a fork of `parent` after the entry `serial`."""
        metadata = said.metadata(is_side=is_side)
        for session_id in (name,) if name else self._names.proposed(said, is_side=is_side):
            try:
                if parent is None:
                    await self._store.create(session_id, metadata=metadata)
                else:
                    await self._store.fork(parent.session_id, serial, new_session_id=session_id, metadata=metadata)
            except StoreError as error:
                if error.code is not ErrorCode.CONFLICT or isinstance(error, AppendConflict) or name:
                    raise
            else:
                return await self._kept.open(session_id)
        raise AssertionError("the last name that is proposed is free")

    async def _create_joined(self, said: Said, session_id: str) -> KeptSession:
        """Return the session that a client names, new unless another request was faster."""
        try:
            return await self._create(said, name=session_id)
        except StoreError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
        return await self._kept.open(session_id)

    async def _newest_of(self, said: Said) -> KeptSession | None:
        """The session that the client's conversation was last in."""
        if not said.conversation_mark:
            return None
        session_id = self._newest.get(said.conversation_mark)
        if session_id is None:
            marks = await self._store.find_marks((said.conversation_mark,))
            session_id = marks[-1].session_id if marks else None
        return None if session_id is None else await self._kept.find(session_id)

    def _remember(self, turn: Turn) -> None:
        mark = turn.said.conversation_mark
        if turn.kept is not None and mark and not turn.is_side:
            self._newest[mark] = turn.kept.session_id
            self._newest.move_to_end(mark)
            if len(self._newest) > CONVERSATIONS:
                self._newest.popitem(last=False)

    def _is_busy(self, kept: KeptSession) -> bool:
        """Whether an answer is under way that belongs at the end of the session."""
        return any(not turn.has_ended for turn in self._under_way.get(kept.session_id, ()))

    def _awaits_earlier_repeat(self, turn: Turn, kept: KeptSession) -> bool:
        """Whether an earlier copy of this request is still being answered: its answer goes to the place of this one."""
        if not turn.may_fork or has_moved(kept.entries, turn.serial):
            return False
        others = (other for other in self._under_way.get(kept.session_id, ()) if not other.has_ended)
        return any(other.serial == turn.serial and other.request_serial < turn.request_serial for other in others)

    def _fault(self, error: Exception) -> str:
        """Count a fault and say what it was, without content."""
        self.faults += 1
        if isinstance(error, StoreError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"the store took longer than {STORE_SECONDS:g} seconds"
        if isinstance(error, OSError):
            return f"the store failed: {error.strerror or type(error).__name__}"
        report_raised(error, "the recorder")
        return f"the recorder failed: {type(error).__name__}"
