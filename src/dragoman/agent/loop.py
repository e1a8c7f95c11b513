"""What an agent does next: a generator that yields actions and is sent their outcomes.

Decisions alone: no effect, no await, no clock and no chance but what comes in. The same loop runs under `Runner`, in a
test without any input or output, or inside a workflow engine that performs the actions in its own way.
"""

from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias

from ..context import INJECTED_KEY
from ..errors import ErrorCode, InvalidValue
from ..history import (
    AgentStatus,
    DerivedState,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpenCall,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SteeringEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
)
from ..history.derived import AnswerEnd
from ..history.handoff import UNKNOWN_OUTCOME
from ..message import FinishReason, Message
from .actions import (
    Aborted,
    Action,
    Answered,
    Append,
    Approve,
    CallModel,
    Checked,
    CheckOutput,
    Compact,
    Compacted,
    Ending,
    Failed,
    Outcome,
    RunError,
    RunTools,
    Shrink,
    Shrunk,
    Step,
    Verdict,
    Wait,
)
from .answers import CONTINUE_PROMPT, CONTINUES_KEY, find_shortfall
from .budget import Budget

__all__ = ["TRANSITIONS", "AgentLoop", "end_run", "interrupted_result", "moved"]

_S = AgentStatus
_ENDED = frozenset({_S.COMPLETED, _S.FAILED, _S.ABORTED})

# From each status to those that may follow it.
TRANSITIONS: dict[AgentStatus, frozenset[AgentStatus]] = {
    _S.IDLE: frozenset({_S.PREPARING}),
    _S.PREPARING: frozenset({_S.MODEL_RUNNING, _S.TOOL_RUNNING, *_ENDED}),
    _S.MODEL_RUNNING: frozenset({_S.PREPARING, _S.TOOL_RUNNING, _S.FAILED, _S.ABORTED}),
    _S.TOOL_RUNNING: frozenset({_S.PREPARING, _S.AWAITING_HUMAN, _S.FAILED, _S.ABORTED}),
    _S.AWAITING_HUMAN: frozenset({_S.PREPARING, _S.TOOL_RUNNING, _S.FAILED, _S.ABORTED}),
    _S.COMPLETED: frozenset({_S.PREPARING}),
    _S.FAILED: frozenset({_S.PREPARING}),
    _S.ABORTED: frozenset({_S.PREPARING}),
}

Steps: TypeAlias = Generator[Action, Outcome, "Ending | None"]


def moved(status: AgentStatus, to: AgentStatus) -> AgentStatus:
    """Return the status that follows; raise InvalidValue where the table has no such transition."""
    if to not in TRANSITIONS[status]:
        raise InvalidValue(f"an agent that is {status} cannot become {to}")
    return to


class AgentLoop:
    """One run. `status` is what the agent is doing, from action to action.

    `judge` says what becomes of an open call; `chance` gives a number from 0 to 1, for the jitter between attempts.
    `tell_status` is told each status between the first and the last.
    """

    def __init__(
        self,
        run_id: str,
        state: DerivedState,
        *,
        judge: Callable[[OpenCall], Verdict],
        budget: Budget,
        chance: Callable[[], float],
        compacts: bool = False,
        output_attempts: int | None = None,
        tell_status: Callable[[AgentStatus], None] = lambda _: None,
    ) -> None:
        self.status = state.status
        self._tell_status = tell_status
        self.run_id = run_id
        self.call_index = 0  # of the model call under way, and of what follows from it
        self._answers = 0
        self._state = state
        self._judge = judge
        self._budget = budget
        self._chance = chance
        self._compacts = compacts
        self._output_attempts = output_attempts  # so often a wrong output may be corrected; None checks nothing

    def run(self, inputs: Iterable[ModelInputEntry] = ()) -> Generator[Action, Outcome, Ending]:
        """Yield what to do until the run has ended, or waits for a person. `inputs` is what is said to it now.

        A run under way, or one with open calls, takes them up before its next model call. Anything that was said before
        them comes first. A run that was requested begins with what the request says.
        """
        self._move(_S.PREPARING)
        ending: Ending | None = None
        if not self._state.current_run_id:
            ending = yield from self._begin(tuple(inputs))
        elif said := [SteeringEntry.of_input(each) for each in inputs]:
            yield from self._append(*said)
        while ending is None:
            if self._state.open_calls:
                ending = yield from self._drop_calls() if self._answer_is_unusable else self._answer_calls()
                continue
            yield from self._take_up_steering()
            is_due = self._state.owes_answer and not self._answer_is_unusable
            ending = yield from self._get_answer() if is_due else self._complete()
        return ending

    def _begin(self, inputs: tuple[ModelInputEntry, ...]) -> Steps:
        """Record the start with what is said to the run; end if the run was requested, and is aborted before that.

        Others may say something until the start is recorded: what is recorded is decided anew then.
        """
        was_requested = self._requested is not None
        while not self._state.current_run_id:
            requested = self._requested
            if was_requested and requested is None:
                self._move(_S.ABORTED)
                return Ending(_S.ABORTED)
            said = (*(() if requested is None else requested.to_inputs()), *inputs)
            entries: list[HistoryEntry] = [RunStartedEntry(run_id=self.run_id)]
            if self._state.open_calls:
                entries += (SteeringEntry.of_input(each) for each in said)
            else:
                entries += (*(each.to_input() for each in self._state.steering), *said)
            yield from self._do(Append(tuple(entries), self._state.next_serial))
        return None

    @property
    def _requested(self) -> RunRequestedEntry | None:
        return next((each for each in self._state.requests if each.run_id == self.run_id), None)

    def _take_up_steering(self) -> Generator[Action, Outcome, None]:
        """Record what was said to the run since the last model call as its input."""
        if self._state.steering:
            yield from self._append(*(said.to_input() for said in self._state.steering))

    def note_waiting(self, is_waiting: bool) -> None:
        """Note that a tool waits for a person's answer, or that none does; it may come after the tools' round."""
        before, to = (_S.TOOL_RUNNING, _S.AWAITING_HUMAN) if is_waiting else (_S.AWAITING_HUMAN, _S.TOOL_RUNNING)
        if self.status is before:
            self._move(to)

    def abandon(self) -> Generator[Action, Outcome, Ending]:
        """Yield what ends a run that is not carried on."""
        return (yield from self._end(_S.ABORTED))

    def fail(self, state: DerivedState, error: RunError) -> Generator[Action, Outcome, Ending]:
        """Yield what ends a run after an error outside of the loop."""
        self._state = state
        return (yield from self._end(_S.FAILED, error))

    # ------------------------------------------------------------ the model's turn

    def _get_answer(self) -> Steps:
        """Get one answer and record it, or end."""
        limit = self._limit_reached()
        if limit is not None:
            return (yield from self._end(_S.FAILED, limit))
        self.call_index = self._answers
        if self._compacts:
            outcome = yield from self._do(Compact())
            if isinstance(outcome, Aborted):
                return (yield from self._stop(outcome))
            assert isinstance(outcome, Compacted)
            self._budget.note_usage(outcome.usage)
        answered = yield from self._call_model()
        if not isinstance(answered, Answered):
            return answered
        self._answers += 1
        self._budget.note_call()
        output = ModelOutputEntry(answered.message, metadata=answered.metadata)
        if self._ends_run(answered.message):  # one append fewer than the answer and then the end
            entries = (output, RunFinishedEntry(RunStatus.COMPLETED, run_id=self.run_id))
            yield from self._do(Append(entries, self._state.next_serial))
            if self._state.outcome is RunStatus.COMPLETED:
                self._move(_S.PREPARING)
                self._move(_S.COMPLETED)
                return Ending(_S.COMPLETED)
        yield from self._append(output)
        if not self._state.open_calls:
            self._move(_S.PREPARING)
        return None

    def _ends_run(self, message: Message) -> bool:
        """Whether nothing is left to do after this answer."""
        end = AnswerEnd.of(message)
        if end.has_calls or end.reason is FinishReason.PAUSE or find_shortfall(end) is not None:
            return False
        return not self._state.steering and (self._output_attempts is None or end.reason is FinishReason.REFUSAL)

    @property
    def _shortfall(self) -> RunError | None:
        """Why the newest answer cannot end the run."""
        end = self._state.answer_end
        return None if end is None else find_shortfall(end)

    @property
    def _is_refused(self) -> bool:
        end = self._state.answer_end
        return end is not None and end.reason is FinishReason.REFUSAL

    @property
    def _answer_is_unusable(self) -> bool:
        """Whether the newest answer refuses or is not whole: its calls do not run, and the model is not asked again."""
        return self._is_refused or self._shortfall is not None

    def _call_model(self) -> Generator[Action, Outcome, "Answered | Ending"]:
        """Call models until one answers or no attempt is left. Record each failure with what had arrived."""
        attempt = choice = 0
        has_shrunk = False
        while True:
            yield from self._take_up_steering()
            limit = self._limit_reached()  # failed calls and summaries have a cost too
            if limit is not None:
                return (yield from self._end(_S.FAILED, limit))
            self._move(_S.MODEL_RUNNING)
            outcome = yield from self._do(CallModel(self.call_index, attempt, choice))
            if isinstance(outcome, Answered):
                self._note_usage(outcome.message)
                return outcome
            if isinstance(outcome, Aborted):
                return (yield from self._stop(outcome))
            assert isinstance(outcome, Failed)
            error = outcome.error
            self._note_usage(outcome.partial)
            yield from self._append(_interruption(error, outcome.partial))
            self._move(_S.PREPARING)
            if error.code is ErrorCode.CONTEXT_OVERFLOW and not has_shrunk:
                has_shrunk = True
                shrunk = yield from self._do(Shrink())
                if isinstance(shrunk, Shrunk) and shrunk.is_smaller:
                    continue
            if outcome.is_adapted:
                continue
            if outcome.others_left > 0:
                choice += 1
                continue
            seconds = self._pause_before(attempt + 1, error)
            if seconds is None:
                return (yield from self._end(_S.FAILED, error))
            outcome = yield from self._do(Wait(seconds))
            if isinstance(outcome, Aborted):
                return (yield from self._stop(outcome))
            attempt, choice = attempt + 1, 0

    def _pause_before(self, attempt: int, error: RunError) -> float | None:
        """How long to wait before another attempt; None where another attempt cannot help or takes too long."""
        limits = self._budget.limits
        if not error.retryable or attempt >= limits.attempts:
            return None
        wanted = error.retry_after or 0.0
        if wanted > limits.backoff_limit_seconds:
            return None
        backoff = min(limits.backoff_limit_seconds, limits.backoff_seconds * 2 ** (attempt - 1))
        seconds = max(wanted, backoff * (0.5 + 0.5 * self._chance()))
        left = self._budget.seconds_left
        return None if left is not None and seconds >= left else seconds

    def _complete(self) -> Steps:
        """End well, if the output is what was asked for; a wrong one goes back to the model while it has attempts.

        An answer that is not whole ends no run well: the model is asked to go on with it, or the run fails.
        """
        shortfall = self._shortfall
        if shortfall is not None:
            return (yield from self._continue_or_fail(shortfall))
        if self._output_attempts is None or self._is_refused:
            return (yield from self._end(_S.COMPLETED))
        checked = yield from self._do(CheckOutput())
        assert isinstance(checked, Checked)
        if checked.problem is None:
            return (yield from self._end(_S.COMPLETED))
        if self._output_attempts == 0:
            return (yield from self._end(_S.FAILED, RunError(ErrorCode.INVALID_OUTPUT, checked.problem)))
        self._output_attempts -= 1
        said = f"{checked.problem}\nAnswer again, with JSON alone."
        yield from self._append(ModelInputEntry.of(said, metadata={INJECTED_KEY: True}))
        return None

    def _continue_or_fail(self, error: RunError) -> Steps:
        """Ask the model to go on with a cut answer while the settings allow it; else end."""
        budget = self._budget
        if error.code is not ErrorCode.OUTPUT_CUT or budget.continuations >= budget.limits.continue_cut:
            return (yield from self._end(_S.FAILED, error))
        budget.continuations += 1
        notes = {INJECTED_KEY: True, CONTINUES_KEY: True}
        yield from self._append(ModelInputEntry.of(CONTINUE_PROMPT, metadata=notes))
        return None

    # ------------------------------------------------------------ the tools' turn

    def _answer_calls(self) -> Steps:
        """Run every open call and record its result; or wait for a person, or end."""
        self._move(_S.TOOL_RUNNING)
        limit = self._limit_reached(before_tools=True)
        if limit is not None:
            return (yield from self._end(_S.FAILED, limit))
        self._budget.note_tool_round()
        steps = yield from self._settle_calls()
        # Whether a call needs approval may depend on what was decided about another, so until all is decided.
        while to_ask := tuple(call for call, step in steps if step is Step.ASK):
            outcome = yield from self._do(Approve(to_ask))
            if isinstance(outcome, Aborted):
                return (yield from self._stop(outcome))
            steps = yield from self._settle_calls()
        to_run = tuple(call for call, step in steps if step is Step.RUN)
        if to_run:
            outcome = yield from self._do(RunTools(to_run))
            if isinstance(outcome, Aborted):
                return (yield from self._stop(outcome))
        if any(step is Step.WAIT for _, step in steps):
            if not all(self._judge(call) is Step.WAIT for call in self._pending()):
                return None  # a person has decided meanwhile
            self._move(_S.AWAITING_HUMAN)
            return Ending(_S.AWAITING_HUMAN)
        yield from self._append(ToolResultsEntry(self._results()))
        self._move(_S.PREPARING)
        return None

    def _drop_calls(self) -> Steps:
        """Record a result for each call of an answer that is not whole, or that refuses, without running it."""
        why = (
            "the answer that calls it refused to go on" if self._is_refused else "the answer that calls it was cut off"
        )
        dropped = [ToolFinishedEntry(interrupted_result(call, why)) for call in self._pending()]
        kept = {entry.result.tool_call_id: entry.result for entry in dropped}
        results = tuple(call.result or kept[call.tool_call_id] for call in self._state.open_calls)
        yield from self._append(*dropped, ToolResultsEntry(results))
        self._move(_S.PREPARING)
        return None

    def _settle_calls(self) -> Generator[Action, Outcome, list[tuple[OpenCall, Step]]]:
        """Judge the pending calls, record the results of those that shall not run, and return the others."""
        judged = [(call, self._judge(call)) for call in self._pending()]
        ended = [ToolFinishedEntry(verdict) for _, verdict in judged if isinstance(verdict, HistoryToolCallResult)]
        if ended:
            yield from self._append(*ended)
        return [(call, verdict) for call, verdict in judged if isinstance(verdict, Step)]

    def _pending(self) -> list[OpenCall]:
        return [call for call in self._state.open_calls if call.result is None]

    def _results(self) -> tuple[HistoryToolCallResult, ...]:
        return tuple(call.result or interrupted_result(call) for call in self._state.open_calls)

    # ------------------------------------------------------------ steps

    def _stop(self, outcome: Aborted) -> Generator[Action, Outcome, Ending]:
        """End the run in the middle of something, with what had arrived."""
        error = outcome.error
        if outcome.partial is not None:
            self._note_usage(outcome.partial)
            reason = error or RunError(ErrorCode.CANCELLED, "the run was aborted")
            yield from self._append(_interruption(reason, outcome.partial))
        return (yield from self._end(_S.ABORTED if error is None else _S.FAILED, error))

    def _end(self, status: AgentStatus, error: RunError | None = None) -> Generator[Action, Outcome, Ending]:
        """End the run so that the history can be carried on: every call has its result."""
        is_ended = False
        while not is_ended:  # something may be said to the run first
            if status is _S.COMPLETED and self._state.abort_request is not None:
                status = _S.ABORTED
            entries = end_run(self._state, self.run_id, RunStatus(status.value), error)
            yield from self._do(Append(entries, self._state.next_serial))
            is_ended = not self._state.current_run_id
        self._move(status)
        return Ending(status, error)

    def _append(self, *entries: HistoryEntry) -> Generator[Action, Outcome, None]:
        self._state = (yield Append(entries)).state

    def _do(self, action: Action) -> Generator[Action, Outcome, Outcome]:
        outcome = yield action
        self._state = outcome.state
        return outcome

    def _move(self, to: AgentStatus) -> None:
        if to is not self.status:
            self.status = moved(self.status, to)
            if to not in _ENDED:  # the runner tells the end itself, after the error
                self._tell_status(to)

    def _limit_reached(self, *, before_tools: bool = False) -> RunError | None:
        words = self._budget.reached(before_tools=before_tools)
        return None if words is None else RunError(ErrorCode.LIMIT_REACHED, words)

    def _note_usage(self, message: Message | None) -> None:
        if message is not None and message.meta is not None:
            self._budget.note_usage(message.meta.usage)


def end_run(
    state: DerivedState, run_id: str, status: RunStatus, error: RunError | None = None
) -> tuple[HistoryEntry, ...]:
    """Return the entries that end an open run: each call that is open gets its result first."""
    entries: list[HistoryEntry] = [
        ToolFinishedEntry(interrupted_result(call)) for call in state.open_calls if call.result is None
    ]
    if state.open_calls:
        entries.append(ToolResultsEntry(tuple(call.result or interrupted_result(call) for call in state.open_calls)))
    why = () if error is None else (error.code, error.message)
    return (*entries, RunFinishedEntry(status, *why, run_id=run_id))


def _interruption(error: RunError, partial: Message | None) -> InterruptionEntry:
    return InterruptionEntry(error.code, error.message, partial, error.provider_message)


def interrupted_result(call: OpenCall, why: str = "the run ended") -> HistoryToolCallResult:
    """Return the result of a call that has none: it was not run, or it is unknown whether it took effect."""
    said = f"It was started, and {why} before its result was there: {UNKNOWN_OUTCOME}."
    if call.started is None:
        said = f"It was not run: {why} before."
    return HistoryToolCallResult.of_text(call.request, said, error_code=ErrorCode.TOOL_INTERRUPTED)
