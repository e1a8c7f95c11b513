"""A run under way, as its caller sees it. The agent makes it."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from .._finishing import finish
from .._loops import SharedLock, Signal
from ..errors import InvalidValue, StoreError
from ..history import AgentStatus, ModelInputEntry, SteeringEntry
from ..message import Message, Part, require_name
from ..store import Lease, Session, SessionBusy, SessionHold
from ..store.leases import this_process
from .events import EventLog, RunEvent
from .following import Follower, OutputFollower, TextFollower
from .results import OutputT, RunResult
from .runner import Runner

if TYPE_CHECKING:
    from .agent import Agent

__all__ = [
    "INSIDE",
    "AgentRun",
    "Prompt",
    "agent_busy",
    "as_input",
    "due_run_id",
    "new_run_id",
    "next_run_id",
    "require_carried_on",
]

_Got = TypeVar("_Got")

Prompt: TypeAlias = str | Part | Sequence[Part | str] | ModelInputEntry


# The runs whose tasks the running code belongs to, sub-agents' inside of their callers'.
INSIDE: ContextVar[tuple["AgentRun[Any]", ...]] = ContextVar("dragoman_runs", default=())


class AgentRun(Generic[OutputT]):
    """A run under way: iterate it for its events, await `result()` for its end. It goes on without a reader.

    Leaving an `async with` block aborts it if it has not ended. It is closed before the next line runs, however often
    the block's task is cancelled: every call has its result, the end is recorded, and the session is free. `result`,
    `abort` and `steer` may be called in other threads and event loops than that of the run; its events are read in its
    own.
    """

    def __init__(
        self,
        agent: "Agent[Any, OutputT]",
        run_id: str,
        *,
        keeps_events: bool,
        strategy: str = "",
        only: str | None = None,
    ) -> None:
        self.run_id = run_id
        self._only = only  # the run to carry on, if it must be no other
        self._agent = agent
        self._log = EventLog() if keeps_events else None
        self._strategy = strategy
        self._is_aborted = self._is_paused = False
        self._is_waiting = False  # for another run to end
        self.is_left = False  # the reader of its text is gone, and it ends soon
        self._reader: weakref.ref[object] | None = None
        self._runner: Runner | None = None
        self._loop = asyncio.get_running_loop()
        self._begun = Signal()  # set when it has the session, and when it has ended
        self._ended = Signal()
        self._task: asyncio.Task[RunResult[OutputT]] | None = None
        self._turn: SharedLock | None = None  # of its agent, while this run has it
        self._ending = threading.Lock()  # two threads must not both give the turn back

    def __repr__(self) -> str:
        return f"<AgentRun {self.run_id!r}, {self.status.value}{', ended' if self.is_done else ''}>"

    @property
    def is_done(self) -> bool:
        """Whether it has ended, or waits for a person."""
        return self._task is not None and (self._task.done() or self._loop.is_closed())

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing."""
        return self._runner.status if self._runner is not None else AgentStatus.PREPARING

    async def result(self) -> RunResult[OutputT]:
        """Return how it ended. A caller that is cancelled here, once or often, aborts the run: it is closed before this
        raises CancelledError.
        """
        task = self._task
        assert task is not None
        if self in INSIDE.get():  # a hook or tool of the run: the run waits for it, so that it can still be cancelled
            return await asyncio.shield(task)
        if self._loop is asyncio.get_running_loop():
            return await finish(task, on_cancelled=self._abort)
        if not self.is_done:
            try:
                await finish(self._ended.wait(self._loop), on_cancelled=self._abort)
            except asyncio.CancelledError:
                if task.done():
                    task.exception()  # the cancelled caller does not get the error
                raise
        if not task.done():
            raise InvalidValue("the event loop of this run was closed before the run ended: run() carries it on")
        return task.result()

    def events(self, after: int = -1) -> AsyncIterator[RunEvent]:
        """Yield the events after that `seq`: a client that lost its connection catches up, while this object lives."""
        if self._log is None:
            raise InvalidValue("run() keeps no events: use stream()")
        if not self.is_done and self._loop is not asyncio.get_running_loop():
            raise InvalidValue("events are read in the event loop that the run was started in, until it has ended")
        if self._loop.is_closed():
            self._log.close()  # its writer may be gone
        return self._log.follow(after, self._tell_error)

    def text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the answers as it comes; at the end, raise RunFailed if the run did not complete.

        An empty line separates the text before tool calls, or before another attempt, from the text after them.
        Closing the iterator, or leaving its loop early, aborts the run: the agent's next run waits for its end. With
        `contextlib.aclosing` the run has ended before the next line.
        """
        return self._follow(TextFollower())

    def partial(self) -> AsyncGenerator[OutputT, None]:
        """Yield the output as far as it has come, each time a value of its type; the last one is the output.

        What does not fit the type yet is left out: an item of a list, a field that has a default. It ends and is
        closed as `text` does and is.
        """
        return self._follow(OutputFollower(self._agent._output))

    def _follow(self, follower: Follower[_Got]) -> AsyncGenerator[_Got, None]:
        followed = self._followed(self.events(), follower)  # events() raises here what is wrong with the caller's loop
        self._reader = weakref.ref(followed, self._leave)
        return followed

    def _leave(self, _reader: object = None) -> None:
        """Abort the run, whose reader is gone, in any thread. The agent's next run waits for its end.

        asyncio closes the iterator too, but after the reader's next lines.
        """
        if not self.is_done:
            self._is_aborted = self.is_left = True
            with suppress(RuntimeError):  # its event loop is closed
                self._loop.call_soon_threadsafe(self._stop)

    async def _followed(self, events: AsyncIterator[RunEvent], follower: Follower[_Got]) -> AsyncGenerator[_Got, None]:
        try:
            async for event in events:
                for each in follower.feed(event):
                    yield each
            for each in follower.end(await self.result()):
                yield each
        finally:
            if not self.is_done:
                await self.abort()

    def _tell_error(self) -> None:
        """Mark the task's exception as told: else asyncio logs it, unless the reader asks for the result too."""
        assert self._task is not None
        self._task.add_done_callback(lambda task: task.exception())

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self.events()

    async def __aenter__(self) -> "AgentRun[OutputT]":
        return self

    async def __aexit__(self, *_raised: object) -> None:
        if not self.is_done:
            await self.abort()

    async def abort(self) -> RunResult[OutputT]:
        """End the run now; what has arrived is recorded, and every call has its result."""
        self._abort()
        return await self.result()

    async def pause(self) -> RunResult[OutputT]:
        """Stop the run at its next entry and leave it open: `run()` carries it on, also in another process.

        An answer or tool that is under way is waited for. The result has the status that the run stopped in.
        """
        if self._runner is not None:
            self._runner.pause()
        self._is_paused = True
        return await self.result()

    async def steer(self, prompt: Prompt) -> None:
        """Say something to the agent while it works; it is recorded, and taken up before the next model call.

        What comes too late for this run is taken up by the next one. Raises InvalidValue if the run has ended, and
        what the store raises.
        """
        said = as_input(prompt)
        await self._begun.wait(self._loop)  # before that, the session may be another run's
        if self.is_done or self._runner is None:
            raise InvalidValue("the run has ended: say it in the next one")
        session = self._runner.session
        await session.append(SteeringEntry.of_input(await self._agent._admitted(said, self._strategy)))

    def _abort(self) -> None:
        self._is_aborted = True
        if self._loop is asyncio.get_running_loop():
            self._stop()
        else:
            try:
                self._loop.call_soon_threadsafe(self._stop)
            except RuntimeError:  # the loop is closed: the run has ended
                pass

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.abort()
        elif self._is_waiting and self._task is not None and not self._task.cancelling():
            self._task.cancel()

    def _require_due(self, session: Session) -> None:
        """Raise InvalidValue if this carries on one run alone, and another one is due. The session must be held."""
        if self._only is not None and due_run_id(session) != self._only:
            raise InvalidValue(f"run {self._only!r} is not due: it has ended, or another run comes first")

    async def _enter(self, stack: AsyncExitStack, hold: Callable[[float], SessionHold], wait_seconds: float) -> bool:
        """Hold the session until the stack is left; return False if the run was aborted while another one had it."""
        try:
            await stack.enter_async_context(hold(0.0))
        except SessionBusy:
            if wait_seconds <= 0:
                raise
        else:
            return True
        return await self._wait_for(lambda: stack.enter_async_context(hold(wait_seconds))) is not None

    async def _take_turn(self, turn: SharedLock, wait_seconds: float) -> bool | None:
        """Wait for the agent's other runs; return whether they ended in time, None if this run was aborted."""
        has_turn = await self._wait_for(lambda: turn.wait(wait_seconds))
        if has_turn:
            self._turn = turn
        return has_turn

    async def _wait_for(self, work: Callable[[], Coroutine[Any, Any, _Got]]) -> _Got | None:
        """Return what the work returns; None if the run is aborted before."""
        if self._is_aborted:
            return None
        self._is_waiting = True
        try:
            return await work()
        except asyncio.CancelledError:
            if not self._is_aborted:
                raise
            task = asyncio.current_task()
            assert task is not None
            if task.uncancel():
                raise
            return None
        finally:
            self._is_waiting = False

    def _note_end(self, task: object = None) -> None:
        """Let the agent's next run begin, and wake the tasks that wait for this one.

        The run's task calls it when it is done. The agent calls it, in any thread, if the task may be unable to.
        """
        with self._ending:
            turn, self._turn = self._turn, None
        if turn is not None:
            turn.give()
        if task is not None and self._log is not None:
            self._log.close()  # a task that is cancelled before its first step has not closed it
        self._begun.set()
        self._ended.set()

    def _begin(self, runner: Runner) -> None:
        self._runner = runner
        self._begun.set()
        if self._is_aborted:  # before there was a runner
            runner.abort()
        elif self._is_paused:
            runner.pause()

    def _take_news(self) -> None:
        if self._runner is not None:
            self._runner.take_news()

    def _tell_news(self) -> None:
        """Have the run look at what was said to it, from any thread; at once, if this is its own."""
        try:
            is_own = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own = False
        if is_own:
            self._take_news()
            return
        with suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._take_news)

    def _stop_lost(self, error: StoreError) -> None:
        if self._runner is not None:
            self._runner.stop_lost(error)


def agent_busy(session: Session | None) -> SessionBusy:
    """Return the error for an agent whose run is under way: its lease, or the one that it is about to acquire."""
    hold = session.held if session is not None else None
    lease = hold.lease if hold is not None else None
    if lease is None:
        session_id = session.session_id if session is not None else ""
        lease = Lease(session_id=session_id, token="", owner=this_process(), acquired_at=datetime.now(UTC), seconds=0.0)
    return SessionBusy(
        "this agent has a run under way: await it first, or pass wait_seconds=", lease=lease, seconds_left=lease.seconds
    )


def next_run_id(session: Session | None, *, has_prompt: bool) -> str:
    """Return the id of the run that comes next: the open one, the first requested one, or a new one for a prompt."""
    if session is not None and (session.run_id or not has_prompt):
        return due_run_id(session) or new_run_id()
    return new_run_id()


def due_run_id(session: Session) -> str:
    """Return the id of the run that is open, or of the first requested one; empty if there is none."""
    requests = session.state.derived.requests
    return session.run_id or (requests[0].run_id if requests else "")


def require_carried_on(run_id: str | None, prompt: Prompt | None) -> None:
    """Raise InvalidValue for what cannot be the id of the one run to carry on, or if it comes with a prompt."""
    if run_id is not None:
        require_name("run_id", run_id)
        if prompt is not None:
            raise InvalidValue("run_id carries on what is there, without a prompt: steer() speaks to that run")


def new_run_id() -> str:
    """Return the id of a run that no other run has."""
    return os.urandom(8).hex()


def as_input(prompt: Prompt) -> ModelInputEntry:
    """Return what is said as an entry; raise InvalidValue for what is no input."""
    if isinstance(prompt, ModelInputEntry):
        if prompt.serial != -1:
            raise InvalidValue(f"this input is recorded already, at serial {prompt.serial}: say it in a new one")
        return prompt
    if isinstance(prompt, (bytes, bytearray)):
        raise InvalidValue("a prompt must be text or parts, got bytes: decode() them, or give FileRef.from_bytes(...)")
    if isinstance(prompt, Message):
        raise InvalidValue(
            "a prompt must be text or parts, got a Message: give message.text or message.parts."
            " Messages that were said before are given to Agent(messages=[...])"
        )
    if not isinstance(prompt, (str, Sequence, msgspec.Struct)):  # the parts are structs
        raise InvalidValue.of_content("a prompt", prompt, "text or parts")
    parts = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, str) else (prompt,)
    return ModelInputEntry.of(*parts)
