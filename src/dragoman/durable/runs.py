"""Requests runs, and what a caller does with one: wait for its result, follow it, decide, abort, try again.

Everything that a caller says to a run is an entry first. The engine is only woken: a lost signal loses nothing.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Literal

from ..agent import Budget, RunError, RunResult
from ..agent.agentrun import Prompt, as_input, new_run_id
from ..agent.answers import last_message
from ..agent.deciding import decide_question
from ..agent.following import TextFollower
from ..delta import KnownDelta
from ..errors import IllegalAppend, InvalidValue
from ..history import (
    AbortRequestedEntry,
    AgentStatus,
    ApprovalAnsweredEntry,
    HistoryEntry,
    QuestionAction,
    QuestionAskedEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SteeringEntry,
)
from ..history.metadata import NO_METADATA
from ..message import ToolCall
from ..request import LoopConfig
from ..store import (
    AnswerDeltas,
    FollowedDelta,
    FollowedEntry,
    Position,
    RequestKeyTaken,
    RunRequest,
    Session,
    SessionStore,
    open_session,
    start_session,
)
from ..store.refusals import store_closed
from ..store.requests import QUEUED
from ..tools import QuestionAnswer
from .engine import REFUSALS, Engine, EngineError
from .orders import Order
from .requested import ENDED, find_request, is_due, status_of

__all__ = ["RunHandle", "abort_order", "find_run", "submit"]


async def submit(
    store: SessionStore,
    engine: Engine,
    *,
    agent: str,
    prompt: Prompt | None = None,
    session: str | None = None,
    key: str = "",
    metadata: Mapping[str, Any] = NO_METADATA,
) -> "RunHandle":
    """Record a request for a run, schedule it, and return the run. Runs of one session go one after the other.

    A session that is not there is started, with `metadata`; without `session` its id is random, or made of the `key`.
    Without a prompt the run carries on what is there, and is completed at once if nothing is left to do. A `key` that
    any process has used returns that run and records nothing. Raises EngineError if the run is recorded, but the engine
    cannot be reached or refuses it: a worker schedules it later (`sweep`).
    """
    said = None if prompt is None else as_input(prompt)
    request = RunRequestedEntry.of_input(agent, said, run_id=new_run_id(), key=key)
    if request.key and (page := await store.list_requests(key=request.key, limit=1)).requests:
        return await _found(store, engine, page.requests[0])
    if session is None and request.key:
        session = await _session_of_key(store, request.key)
    opened = await start_session(store, session, metadata=metadata, exist_ok=session is not None)
    return await _request(store, engine, opened, request)


async def _session_of_key(store: SessionStore, key: str) -> str:
    """Return the id of the session that the key starts: callers who use it at once start one session.

    A session that was erased frees its key, for the next of the key's ids.
    """
    erased, name = 0, _id_of_key(key, 0)
    while await store.tombstone(name) is not None:
        erased += 1
        name = _id_of_key(key, erased)
    return name


def _id_of_key(key: str, number: int) -> str:
    return f"key-{sha256(f'{number} {key}'.encode()).hexdigest()[:32]}"


async def find_run(store: SessionStore, engine: Engine, session: str, serial: int | None = None) -> "RunHandle":
    """Return the run that was requested at `serial`; by default the session's oldest that has not ended, or its newest.

    Raises InvalidValue if no run was requested there, StoreError if there is no such session.
    """
    await store.head(session)  # says whether there is such a session
    if serial is not None:
        found = await find_request(store, session, serial)
    else:
        found = await _oldest_open(store, session)
        if found is None:
            found = next(iter((await store.list_requests(session_id=session, limit=1)).requests), None)
    if found is None:
        where = "" if serial is None else f" at serial {serial}"
        raise InvalidValue(f"no run was requested in session {session!r}{where}")
    return RunHandle(store, engine, found)


async def _oldest_open(store: SessionStore, session: str) -> RunRequest | None:
    found, page = None, None
    while True:
        listed = await store.list_requests(session_id=session, open_only=True, page=page)
        found = listed.requests[-1] if listed.requests else found
        page = listed.next_page
        if page is None:
            return found


async def abort_order(store: SessionStore, order: Order) -> None:
    """Record that the order's run shall end. An engine calls this when a user cancels the order there."""
    request = await find_request(store, order.session, order.serial)
    if request is not None:
        await _record_abort(await open_session(store, order.session), order, AbortRequestedEntry(run_id=request.run_id))


class RunHandle:
    """A run that was requested. Any process can have one, also after the run has ended: `find_run` gives it."""

    def __init__(self, store: SessionStore, engine: Engine, request: RunRequest) -> None:
        self._store = store
        self._engine = engine
        self._request = request

    def __repr__(self) -> str:
        return f"<RunHandle {self.run_id!r} of session {self.session_id!r}, agent {self._request.agent!r}>"

    @property
    def session_id(self) -> str:
        """The session that the run is in."""
        return self._request.session_id

    @property
    def run_id(self) -> str:
        """The id of the run, which entries of the run have."""
        return self._request.run_id

    @property
    def serial(self) -> int:
        """The serial of the entry that requests the run."""
        return self._request.serial

    @property
    def agent(self) -> str:
        """The name of its agent."""
        return self._request.agent

    @property
    def key(self) -> str:
        """The caller's word for the request, empty if there is none."""
        return self._request.key

    @property
    def order(self) -> Order:
        """What the engine schedules."""
        return Order(self.session_id, self.agent, self.serial)

    async def status(self) -> str:
        """Return how far the run is: `queued`, or the value of an AgentStatus."""
        return status_of(await open_session(self._store, self.session_id), self.order)

    async def result(self) -> RunResult[str]:
        """Return how the run ended, when it has ended, or when it waits for a person; its output is text.

        Raises StoreError if the store is closed meanwhile.
        """
        session = await open_session(self._store, self.session_id)
        serial = session.state.next_serial
        if not self._is_settled(session):
            async for _ in self._store.follow(self.session_id, serial):
                await session.refresh()
                if self._is_settled(session):
                    break
            else:
                raise store_closed()  # while this waited
        return self._result_in(session)

    async def follow(self) -> AsyncGenerator[KnownDelta, None]:
        """Yield the deltas of all answers of the run: those that are there, then each new one, from any process.

        Each comes once, in order. This ends when the run has ended, or waits for a person's decision about a call.
        """
        async with aclosing(self.follow_from()) as followed:
            async for each in followed:
                yield each.delta

    async def follow_from(self, position: Position | str | int = 0) -> AsyncGenerator[FollowedDelta, None]:
        """Yield what `follow` yields, each delta with the position after it, from a position on.

        A reader that has lost its connection comes back with the position of the last delta that it got. A position
        beyond the end of the session raises InvalidValue.
        """
        session = await open_session(self._store, self.session_id)
        start = max(Position.of(position), Position(self.serial + 1), key=lambda each: each.serial)
        of_run = self._entries_in(session)
        has_begun = bool(of_run) and of_run[0].serial < start.serial
        is_settled = not of_run or start.serial > of_run[-1].serial
        if is_settled and self._is_settled(session):
            return
        deltas = AnswerDeltas(start)
        async with aclosing(session.follow(start, deltas=True)) as items:
            async for item in items:
                entry = item.entry if isinstance(item, FollowedEntry) else None
                has_begun = has_begun or (isinstance(entry, RunStartedEntry) and entry.run_id == self.run_id)
                for each in deltas.feed(item):
                    if has_begun:
                        yield each
                if entry is not None and await self._ends_with(entry, session, has_begun):
                    return

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the run's answers as it comes; an empty line separates two of them.

        If a worker is killed, its half answer is followed by the whole one of another. To replace the half one, feed
        an `AnswerText` with the deltas of `follow`. This ends as `follow` does; `result` says how the run ended.
        """
        follower = TextFollower()
        async for delta in self.follow():
            for text in follower.feed_delta(delta):
                yield text
        for text in follower.end_answer():
            yield text

    async def entries(self) -> tuple[HistoryEntry, ...]:
        """Return the entries of the run, from its start to its end, as far as they are there."""
        return tuple(self._entries_in(await open_session(self._store, self.session_id)))

    async def waiting_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls that wait for a person's decision before the run goes on, or before it can begin."""
        session = await open_session(self._store, self.session_id)
        if status_of(session, self.order) in ENDED:
            return ()
        return tuple(call.request for call in session.state.derived.open_calls if call.awaits_answer)

    async def questions(self) -> tuple[QuestionAskedEntry, ...]:
        """Return what tools of the run ask a person and have no answer to. A tool waits only while its worker lives."""
        session = await open_session(self._store, self.session_id)
        is_open = session.state.derived.current_run_id == self.run_id
        return session.state.derived.questions if is_open else ()

    async def answer(
        self,
        question_id: str,
        content: dict[str, Any] | None = None,
        *,
        action: QuestionAction | Literal["accept", "decline", "cancel"] = QuestionAction.ACCEPT,
    ) -> None:
        """Answer what a tool of the run asks a person; the worker that performs the run takes it up.

        Raises InvalidValue for a question that waits for no answer, and for content that does not fit it.
        """
        session = await open_session(self._store, self.session_id)
        answer = QuestionAnswer(action, content)  # type: ignore[arg-type]  # a word is converted
        await decide_question(session, question_id, answer)

    async def approve(self, tool_call_id: str, *, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Let a call run, with other arguments if they are given; the run goes on by itself."""
        await self._decide(ApprovalAnsweredEntry(tool_call_id, True, reason, arguments))

    async def deny(self, tool_call_id: str, *, reason: str = "") -> None:
        """Do not let a call run; the model is told why, and the run goes on by itself."""
        await self._decide(ApprovalAnsweredEntry(tool_call_id, False, reason))

    async def steer(self, prompt: Prompt) -> None:
        """Say something to the run; it is taken up before the next model call.

        A run that waits for a person goes on waiting. Raises InvalidValue if the run has not begun: another run would
        hear it. So it does if the run has ended: it answers no more.
        """
        said, session = SteeringEntry.of_input(as_input(prompt)), await open_session(self._store, self.session_id)
        recorded: tuple[HistoryEntry, ...] = ()
        while not recorded:
            status = status_of(session, self.order)
            if status in ENDED:
                raise InvalidValue(f"this run is {status} and answers no more: submit another one")
            if status == QUEUED:
                raise InvalidValue("a queued run takes no input: wait until it has begun, or submit another one")
            recorded = await session.append(said, expected_serial=session.state.next_serial)
        await self._wake(session)

    async def abort(self, reason: str = "") -> None:
        """Ask the run to end. A queued run then never begins; a run that has ended does not change."""
        session = await open_session(self._store, self.session_id)
        await _record_abort(session, self.order, AbortRequestedEntry(reason, run_id=self.run_id))
        await self._wake(session)

    async def retry(self) -> "RunHandle":
        """Request a run that carries on where this one failed or was aborted, and return it.

        Each call requests another run.
        """
        status = await self.status()
        if status not in (RunStatus.FAILED, RunStatus.ABORTED):
            raise InvalidValue(f"only a run that failed or was aborted can be tried again, this one is {status}")
        session = await open_session(self._store, self.session_id)
        asked = session.entries[self.serial]
        assert isinstance(asked, RunRequestedEntry)
        parts = () if self._entries_in(session) and session.state.derived.owes_answer else asked.parts
        sections = asked.sections if parts else None
        again = RunRequestedEntry(self.agent, parts, sections, run_id=new_run_id(), metadata=asked.metadata)
        return await _request(self._store, self._engine, session, again)

    async def _decide(self, entry: ApprovalAnsweredEntry) -> None:
        session = await open_session(self._store, self.session_id)
        if session.state.derived.open_call(entry.tool_call_id) is None:
            raise InvalidValue(
                f"no call {entry.tool_call_id!r} waits for a decision: it was answered, or never asked;"
                " waiting_calls() returns those that wait"
            )
        await session.append(entry)
        await self._wake(session)

    async def _wake(self, session: Session) -> None:
        if is_due(session.state.derived):  # else there is nothing to do yet
            await _schedule(self._engine, self.order, "it is recorded")

    def _is_settled(self, session: Session) -> bool:
        status = status_of(session, self.order)
        return status in ENDED or (status == AgentStatus.AWAITING_HUMAN and not is_due(session.state.derived))

    async def _ends_with(self, entry: HistoryEntry, session: Session, has_begun: bool) -> bool:
        """Whether nothing more comes of the run after this entry, unless a person decides something."""
        if isinstance(entry, RunFinishedEntry) and entry.run_id == self.run_id:
            return True
        if entry.serial >= session.state.next_serial - 1:
            await session.refresh()
        if entry.serial == session.state.next_serial - 1:
            return self._is_settled(session)
        return not has_begun and isinstance(entry, AbortRequestedEntry) and entry.run_id == self.run_id

    def _entries_in(self, session: Session) -> list[HistoryEntry]:
        """The entries from the run's start to its end, as far as they are there; none if it never began."""
        entries, found = session.entries, list[HistoryEntry]()
        for index in range(self.serial + 1, len(entries)):
            entry = entries[index]
            if found or (isinstance(entry, RunStartedEntry) and entry.run_id == self.run_id):
                found.append(entry)
            if found and isinstance(entry, RunFinishedEntry):
                break
        return found

    def _result_in(self, session: Session) -> RunResult[str]:
        status, of_run = AgentStatus(status_of(session, self.order)), self._entries_in(session)
        last = of_run[-1] if of_run else None
        error = None
        if isinstance(last, RunFinishedEntry) and last.error_code is not None:
            error = RunError(last.error_code, last.message)
        budget = Budget(LoopConfig(), seconds=time.monotonic)
        budget.note_record(of_run, self.run_id)
        message = last_message(of_run, self.run_id)
        is_output = status is AgentStatus.COMPLETED and message is not None
        waits = status is AgentStatus.AWAITING_HUMAN
        return RunResult(
            session_id=self.session_id,
            run_id=self.run_id,
            status=status,
            message=message,
            output=message.text if is_output and message is not None else None,
            usage=budget.usage,
            error=error,
            approvals=tuple(call.request for call in session.state.derived.open_calls if call.awaits_answer and waits),
        )


async def _record_abort(session: Session, order: Order, entry: AbortRequestedEntry) -> None:
    """Ask the order's run to end, unless it has ended."""
    try:
        await session.append(entry)
    except IllegalAppend:
        await session.refresh()
        if status_of(session, order) not in ENDED:
            raise


async def _request(store: SessionStore, engine: Engine, session: Session, request: RunRequestedEntry) -> RunHandle:
    try:
        (recorded,) = await session.append(request)
    except RequestKeyTaken as taken:  # another process was faster
        return await _found(store, engine, taken.request)
    found = RunRequest(session.session_id, recorded.serial, request.agent, request.run_id, request.key, QUEUED)
    return await _scheduled(store, engine, found)


async def _found(store: SessionStore, engine: Engine, request: RunRequest) -> RunHandle:
    """The handle of a run that was requested before. If the engine knows it, its next attempt comes at its own time."""
    handle = RunHandle(store, engine, request)
    if engine.follows_record or request.status in ENDED or not await engine.find_unscheduled([handle.order]):
        return handle
    return await _scheduled(store, engine, request)


async def _scheduled(store: SessionStore, engine: Engine, request: RunRequest) -> RunHandle:
    """The handle of a recorded request. An engine that does not follow the record is told of it."""
    handle = RunHandle(store, engine, request)
    if request.status not in ENDED:
        recorded = f"the run is recorded (session {request.session_id!r}, serial {request.serial})"
        await _schedule(engine, handle.order, recorded)
    return handle


async def _schedule(engine: Engine, order: Order, recorded: str) -> None:
    """Schedule the order, unless the engine follows the record. An EngineError says what is recorded all the same."""
    if engine.follows_record:
        return
    try:
        await engine.schedule(order)
    except EngineError as error:
        when = "tries again with each sweep" if error.code in REFUSALS else "finds it when the engine is back"
        words = f"{error}; {recorded}, and a worker {when}"
        raise EngineError(words, code=error.code) from error
