"""A stage on which the loop is played by hand: plain values, no model, no tool, no clock, no await."""

from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from itertools import count

from dragoman import ErrorCode, FinishReason, LoopConfig, Message, Role, Text, TokenUsage, ToolCall
from dragoman.agent.actions import (
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
    Done,
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
from dragoman.agent.budget import Budget
from dragoman.agent.loop import AgentLoop, interrupted_result
from dragoman.history import (
    AgentState,
    AgentStatus,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    OpenCall,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    SteeringEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from dragoman.message import MessageMeta

S = AgentStatus
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = RunError(ErrorCode.LIMIT_REACHED, "no more time")
BUSY = RunError(ErrorCode.OVERLOADED, "busy", retryable=True)
TOO_LONG = RunError(ErrorCode.CONTEXT_OVERFLOW, "too long")
USED = TokenUsage(input_tokens=60, output_tokens=40, cost=0.25)

numbers = count()


def says(text: str = "Done.", finish: FinishReason = FinishReason.STOP, usage: TokenUsage | None = None) -> Message:
    """Return an answer."""
    return Message(Role.ASSISTANT, (Text(text),), meta=MessageMeta(finish_reason=finish, usage=usage))


def calls(*names: str) -> Message:
    """Return an answer that calls these tools."""
    parts = tuple(ToolCall(f"call-{next(numbers)}", name, {}) for name in names)
    return Message(Role.ASSISTANT, parts, meta=MessageMeta(finish_reason=FinishReason.TOOL_CALLS))


def failed(error: RunError, partial: str = "", others_left: int = 0) -> Callable[[AgentState], Failed]:
    """Return how a model call fails."""
    cut = Message(Role.ASSISTANT, (Text(partial),), meta=MessageMeta(usage=USED)) if partial else None
    return lambda state: Failed(state.derived, error, cut, others_left)


Played = Message | Callable[[AgentState], Outcome]


class WatchedLoop(AgentLoop):
    """A loop that shows every status it has had, those between two actions too."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "status":
            self.statuses = [*getattr(self, "statuses", ()), self.status]


class Stage:
    """Performs actions on plain values: what the model says comes from a script, appends go to a state in memory.

    Tools are told by their names: `ask` needs approval, `then` does once something was decided about another call,
    `question` asks a person, `gone` is unknown, `safe` may be run again, all others run once. `decisions` are the
    policy's; a call without one waits for a person. `stops` says at which actions the run is aborted, or runs out of
    time; a model call takes `takes` seconds. `said` is what a person says during each model call.
    """

    def __init__(
        self,
        *answers: Played,
        state: AgentState | None = None,
        limits: LoopConfig | None = None,
        around: Budget | None = None,
        said: Iterable[tuple[str, ...]] = (),
        checks: Iterable[str | None] | None = None,
        decisions: Iterable[ApprovalAnsweredEntry | bool | None] = (),
        stops: Callable[[Action], bool] = lambda _: False,
        stops_with: RunError | None = None,
        chance: float = 1.0,
        takes: float = 0.0,
        compacts: bool = False,
        shrinks: bool = True,
    ) -> None:
        self.state = state or AgentState.create_default(session_id="s", clock=lambda: NOW)
        self.time = 0.0
        self.budget = Budget(limits or LoopConfig(), seconds=lambda: self.time, around=around)
        self.actions: list[Action] = []
        self._answers = list(answers)
        self._said = list(said)
        self._checks = list(checks or ())
        self._decisions = list(decisions)
        self._stops = stops
        self._stops_with = stops_with
        self._shrinks = shrinks
        self._takes = takes
        self._loop = WatchedLoop(
            self.state.current_run_id or f"run-{next(numbers)}",
            self.state.derived,
            judge=self._judge,
            budget=self.budget,
            chance=lambda: chance,
            compacts=compacts,
            output_attempts=None if checks is None else 2,
        )

    def play(self, *inputs: str) -> Ending:
        """Run to the end."""
        return self._drive(self._loop.run(ModelInputEntry.of(said) for said in inputs))

    def abandon(self) -> Ending:
        """End what was left open."""
        return self._drive(self._loop.abandon())

    def count(self, kind: type[Action]) -> int:
        """Return how often an action was asked for."""
        return sum(isinstance(action, kind) for action in self.actions)

    @property
    def statuses(self) -> list[AgentStatus]:
        """Return every status that the run has had."""
        return self._loop.statuses

    @property
    def model_calls(self) -> list[tuple[int, int, int]]:
        """Return index, attempt and choice of each model call."""
        return [
            (action.call_index, action.attempt, action.choice)
            for action in self.actions
            if isinstance(action, CallModel)
        ]

    @property
    def codes(self) -> list[ErrorCode | None]:
        """Return the codes of all results."""
        return [
            result.error_code
            for entry in self.state.entries
            if isinstance(entry, ToolResultsEntry)
            for result in entry.results
        ]

    def _drive(self, steps: Generator[Action, Outcome, Ending]) -> Ending:
        try:
            action = next(steps)
            while True:
                self.actions.append(action)
                action = steps.send(self._perform(action))
        except StopIteration as stop:
            ending: Ending = stop.value
            return ending

    def _perform(self, action: Action) -> Outcome:
        if not isinstance(action, Append | CheckOutput | Shrink) and self._stops(action):
            return self._stop_in(action)
        match action:
            case Append():
                self.state.append_all(action.entries)
            case CallModel():
                self.time += self._takes
                for text in self._said.pop(0) if self._said else ():
                    self.state.append(SteeringEntry((Text(text),)))
                answer = self._answers.pop(0) if self._answers else says()
                return Answered(self.state.derived, answer) if isinstance(answer, Message) else answer(self.state)
            case Approve():
                self._decide(action)
            case RunTools():
                for call in action.calls:
                    self._run(call)
            case Compact():
                return Compacted(self.state.derived, USED)
            case Shrink():
                return Shrunk(self.state.derived, self._shrinks)
            case CheckOutput():
                return Checked(self.state.derived, self._checks.pop(0) if self._checks else None)
            case Wait():
                self.time += action.seconds
        return Done(self.state.derived)

    def _stop_in(self, action: Action) -> Aborted:
        partial = None
        if isinstance(action, CallModel):
            partial = Message(Role.ASSISTANT, (Text("I was about to"),))
        elif isinstance(action, RunTools):  # one has delivered, one has begun
            self._run(action.calls[0])
            if len(action.calls) > 1:
                self._start(action.calls[1])
                if action.calls[1].request.tool_name == "question":
                    self._ask(action.calls[1])
        return Aborted(self.state.derived, partial, self._stops_with)

    def _decide(self, action: Approve) -> None:
        for call in action.calls:
            decision = self._decisions.pop(0) if self._decisions else None
            name = call.tool_call_id
            if decision is None:
                self.state.append(ApprovalAskedEntry(name, call.request.tool_name))
            elif isinstance(decision, bool):
                self.state.append(ApprovalAnsweredEntry(name, decision, by="policy"))
            else:
                self.state.append(decision)

    def _start(self, call: OpenCall) -> None:
        name = call.request.tool_name
        self.state.append(ToolStartedEntry(call.tool_call_id, name, idempotent=name == "safe"))

    def _run(self, call: OpenCall) -> None:
        self._start(call)
        if call.request.tool_name == "question":
            self._ask(call)
            self.state.append(QuestionAnsweredEntry(f"about {call.tool_call_id}", QuestionAction.DECLINE))
            self._loop.note_waiting(False)
        self.state.append(ToolFinishedEntry(HistoryToolCallResult.of_text(call.request, f"ran with {call.arguments}")))

    def _ask(self, call: OpenCall) -> None:
        self.state.append(QuestionAskedEntry(f"about {call.tool_call_id}", call.tool_call_id, "Which?"))
        self._loop.note_waiting(True)

    def _judge(self, call: OpenCall) -> Verdict:
        name = call.request.tool_name
        if name == "then" and call.answered is None and any(each.answered for each in self.state.derived.open_calls):
            return Step.ASK if call.asked is None else Step.WAIT
        return judge(call)


def judge(call: OpenCall) -> Verdict:
    """Return what becomes of a call, whatever becomes of the others."""
    name = call.request.tool_name
    if call.answered is not None and not call.answered.approved:
        return HistoryToolCallResult.of_text(call.request, "No.", error_code=ErrorCode.TOOL_DENIED)
    if name == "gone":
        return HistoryToolCallResult.of_text(call.request, "What?", error_code=ErrorCode.UNKNOWN_TOOL)
    if call.started is not None and name != "safe":
        return interrupted_result(call, "the process stopped")
    if name == "ask" and call.answered is None:
        return Step.ASK if call.asked is None else Step.WAIT
    return Step.RUN


def left_waiting() -> AgentState:
    """Return a state in which a person was asked."""
    stage = Stage(calls("ask", "once"))
    assert stage.play("Go.").status is S.AWAITING_HUMAN
    return stage.state


def resumed_at(entries: Iterable[HistoryEntry]) -> AgentState:
    """Return the state that these entries lead to, ready to be carried on."""
    return AgentState.from_entries(entries, session_id="s", clock=lambda: NOW)


def at(*kinds: type[Action]) -> Callable[[Action], bool]:
    """Stop at actions of these kinds."""
    return lambda action: isinstance(action, kinds)
