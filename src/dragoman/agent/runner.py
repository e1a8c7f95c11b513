"""Drives the loop: performs each action, sends back what came of it, and lets a run be aborted at any moment."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from typing import Any

from ..errors import (
    RAISED,
    DragomanError,
    ErrorCode,
    InvalidValue,
    Raised,
    RaisedList,
    StoreError,
    report_raised,
    type_name,
)
from ..history import AgentStatus, ModelInputEntry
from ..message import Message, Role
from ..store import Session
from ..tools.containing import Containing, current_task, must_pass
from .actions import (
    Aborted,
    Action,
    Append,
    Approve,
    CallModel,
    Checked,
    CheckOutput,
    Compact,
    Done,
    Ending,
    Outcome,
    RunError,
    RunTools,
    Shrink,
    Wait,
)
from .answers import last_message
from .asking import Asker
from .budget import Budget
from .calling import ModelCaller
from .events import ErrorEvent, FinishedEvent, StatusEvent
from .instructions import Instructions, record_instructions
from .loop import AgentLoop
from .scope import Scope
from .tooling import ToolRunner

__all__ = ["Runner"]

_STOPS = frozenset({CallModel, Compact, Wait, Approve, RunTools})  # a paused run begins none of these
_DECIDING = ("the approval policy", "requires_approval of")  # where code is asked whether a call may run


_LEAST_ALARM = 0.05  # seconds between two looks at a time limit that is paused


class Runner:
    """One run under way. `check` raises InvalidValue for a final message that is not what was asked for."""

    def __init__(
        self,
        scope: Scope,
        caller: ModelCaller,
        tools: ToolRunner,
        budget: Budget,
        *,
        asker: Asker | None = None,
        compacts: bool = False,
        check: Callable[[Message], object] | None = None,
        output_attempts: int = 2,
        records_content: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._scope = scope
        self._caller = caller
        self._tools = tools
        self._check = check
        self._budget = budget
        self._is_aborted = self._is_late = False
        self._paused = asyncio.Event()
        self._lost: StoreError | None = None  # why the session is another owner's
        self._working: asyncio.Task[Outcome | BaseException] | None = None  # what an abort stops
        self._loop = AgentLoop(
            scope.run_id,
            scope.state,
            judge=tools.judge,
            budget=budget,
            chance=chance,
            compacts=compacts,
            output_attempts=output_attempts if check is not None else None,
            tell_status=self._tell_status,
        )
        self._told: AgentStatus | None = None
        self._asker = asker
        if asker is not None:
            asker.tell_waiting = self._loop.note_waiting
        scope.take_news = self.take_news
        self._alarm: asyncio.TimerHandle | None = None
        self.raised = RaisedList()  # what code of the user raised in it
        self.raised.shows_words = records_content
        self.cause: Raised | None = None  # which of them ended the run, or left a call to a person
        self.output: Any = None  # what the last check has read
        self._perform: dict[type, Callable[[Any], Coroutine[Any, Any, Outcome]]] = {
            Append: self._append,
            CheckOutput: self._check_output,
            Shrink: lambda _: caller.shrink(),
            Compact: lambda _: self._interruptible(caller.compact),
            CallModel: lambda action: self._interruptible(caller.call, action),
            Wait: lambda action: self._interruptible(self._wait, action),
            Approve: lambda action: self._interruptible(tools.approve, action),
            RunTools: lambda action: self._interruptible(tools.run, action),
        }

    @property
    def session(self) -> Session:
        """The session that the run carries on."""
        return self._scope.session

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing."""
        return self._loop.status

    def abort(self) -> None:
        """End the run as soon as what is under way has been stopped; what has arrived is recorded."""
        self._is_aborted = True
        self._stop_work()

    def pause(self) -> None:
        """Stop before the next model call or tool, and leave the run open."""
        self._paused.set()

    def take_news(self) -> None:
        """Do what other processes have asked for in the record."""
        if self._scope.state.abort_request is not None:
            self.abort()
        elif self._asker is not None:
            self._asker.take_news()

    def stop_lost(self, error: StoreError) -> None:
        """Stop what is under way: another owner has the session, and nothing more is recorded here."""
        self._lost = error
        self._stop_work()

    async def run(
        self,
        inputs: Iterable[ModelInputEntry] = (),
        *,
        instructions: Instructions[Any] | None = None,
        is_abandoned: bool = False,
    ) -> Ending:
        """Carry the session on until the run has ended or waits for a person; raises nothing but CancelledError.

        The instructions are recorded first. A run that is abandoned only ends.
        """
        steps = self._loop.abandon() if is_abandoned else self._loop.run(inputs)
        around = RAISED.get()
        RAISED.set(self.raised)
        self._set_alarm()
        try:
            ending = await self._between_hooks(steps, instructions)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
        RAISED.set(around)
        if around is not None:  # a run inside a run
            around.extend(self.raised)
        return ending

    async def _between_hooks(
        self, steps: Generator[Action, Outcome, Ending], instructions: Instructions[Any] | None
    ) -> Ending:
        scope, task = self._scope, current_task()
        await scope.hooks.before_run(scope.session.session_id, scope.run_id)
        try:
            if instructions is not None:
                await self._interruptible(self._record, instructions)
            ending = await self._carry_out(steps)
        except DragomanError as error:
            ending = Ending(AgentStatus.FAILED, RunError.of(error))
            self._note_cause(error.__cause__)
        except BaseException as error:  # a mistake of ours, or of code that the run was given: the caller is told
            if must_pass(error, task):
                raise
            ending = await self._fail(error)
        if ending.status is AgentStatus.AWAITING_HUMAN:
            undecided = [raised for raised in self.raised if raised.where.startswith(_DECIDING)]
            self.cause = undecided[-1] if undecided else None
        if ending.error is not None:
            scope.tell(ErrorEvent, ending.error)
        self._tell_status(ending.status)
        scope.tell(FinishedEvent, ending.status, ending.error)
        await scope.hooks.after_run(scope.session.session_id, scope.run_id, ending)
        return ending

    async def _fail(self, error: BaseException) -> Ending:
        """Report what was raised, and end the run in the record too, if that can be done."""
        report_raised(error, "the run")
        self._note_cause(error)
        why = RunError(ErrorCode.INTERNAL, f"{type_name(error)} in the run: the log has its traceback")
        with Containing("the end of the run"):
            return await self._carry_out(self._loop.fail(self._scope.state, why))
        return Ending(AgentStatus.FAILED, why)

    def _note_cause(self, error: BaseException | None) -> None:
        self.cause = next((raised for raised in self.raised if raised.error is error), None)

    async def _carry_out(self, steps: Generator[Action, Outcome, Ending]) -> Ending:
        try:
            action = next(steps)
            while True:
                self._scope.call_index = self._loop.call_index
                self._tell_status(self._loop.status)
                self.take_news()
                if self._paused.is_set() and type(action) in _STOPS:
                    steps.close()
                    return Ending(self._scope.state.status)
                action = steps.send(await self._perform[type(action)](action))
        except StopIteration as stop:
            ending: Ending = stop.value
            return ending

    # ------------------------------------------------------------ actions

    async def _record(self, instructions: Instructions[Any]) -> Done:
        await record_instructions(instructions, self._tools.context(), self._scope.session)
        return Done(self._scope.state)

    async def _append(self, action: Append) -> Done:
        await self._scope.append(*action.entries, expected_serial=action.expected_serial)
        return Done(self._scope.state)

    async def _check_output(self, _action: CheckOutput) -> Checked:
        assert self._check is not None
        answer = last_message(self._scope.session.entries, self._scope.run_id) or Message(Role.ASSISTANT, ())
        try:
            self.output = self._check(answer)
        except InvalidValue as error:
            return Checked(self._scope.state, str(error))
        return Checked(self._scope.state)

    async def _wait(self, action: Wait) -> Done:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._paused.wait(), action.seconds)
        return Done(self._scope.state)

    async def _interruptible(self, work: Callable[..., Coroutine[Any, Any, Outcome]], *given: Any) -> Outcome:
        """Do it unless the run is aborted or its time is over; then stop it, and say what had arrived."""
        if self._lost is not None:
            raise self._lost
        if self._is_aborted or self._is_late:
            return Aborted(self._scope.state, error=self._why_stopped())
        task = self._working = asyncio.ensure_future(_delivered(work, *given))
        outcome: Outcome | BaseException | None = None
        try:
            outcome = await task
        except asyncio.CancelledError:  # the work, or the run itself, which has passed it on to the work
            pass
        finally:
            self._working = None
        run = asyncio.current_task()
        if run is not None and run.cancelling():
            raise asyncio.CancelledError
        if self._lost is not None:
            raise self._lost
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            return outcome
        await self._scope.settle()
        return Aborted(self._scope.state, self._caller.partial, self._why_stopped())

    def _set_alarm(self, least: float = 0.0) -> None:
        left = self._budget.seconds_left
        loop = asyncio.get_running_loop()
        self._alarm = None if left is None else loop.call_later(max(least, left), self._check_time)

    def _check_time(self) -> None:
        """Stop the run if its time is over; the time in which it waited for a person does not count."""
        if self._budget.seconds_left or (self._asker is not None and self._asker.is_waiting):
            self._set_alarm(_LEAST_ALARM)
        else:
            self._is_late = True
            self._stop_work()

    def _stop_work(self) -> None:
        self._scope.hooks.stop()
        if self._working is not None and not self._working.cancelling():  # a second one would interrupt the append
            self._working.cancel()

    def _why_stopped(self) -> RunError | None:
        """Why something was cancelled; None if the run was aborted."""
        if self._is_aborted:
            return None
        if self._is_late:
            return RunError(ErrorCode.LIMIT_REACHED, self._budget.reached() or "the time of the run is over")
        return RunError(ErrorCode.CANCELLED, "what the run was doing was cancelled, and not by the run")

    def _tell_status(self, status: AgentStatus) -> None:
        if status is not self._told:
            self._told = status
            self._scope.tell(StatusEvent, status)


async def _delivered(work: Callable[..., Coroutine[Any, Any, Outcome]], *given: Any) -> Outcome | BaseException:
    """Return the work's result or its exception. A task that raises SystemExit would end the event loop."""
    task = current_task()
    try:
        return await work(*given)
    except BaseException as error:
        if isinstance(error, (Exception, asyncio.CancelledError)) or must_pass(error, task):
            raise
        return error
