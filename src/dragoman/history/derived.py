"""Entries to what follows from them: status, run, open calls, usage, notebook. Pure: a replay gives the same state.

`advance` takes one entry at a time and believes it; `rules` says which entries are legal.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import ErrorCode
from ..message import FinishReason, Message, ToolCall
from ..usage import TokenUsage
from .entries import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SamplingEntry,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from .growing import GrowingIds
from .toolresults import HistoryToolCallResult

__all__ = ["AgentStatus", "AnswerEnd", "DerivedState", "LastError", "OpenCall", "advance"]


class AgentStatus(StrEnum):
    """What an agent is doing. `model_running` never follows from entries: only the runner knows it."""

    IDLE = "idle"
    PREPARING = "preparing"
    MODEL_RUNNING = "model_running"
    TOOL_RUNNING = "tool_running"
    AWAITING_HUMAN = "awaiting_human"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class LastError(msgspec.Struct, frozen=True):
    """The newest failure after which nothing has succeeded yet."""

    code: ErrorCode
    message: str = ""


class AnswerEnd(msgspec.Struct, frozen=True):
    """How a model's answer ended: the reason, the provider's own word for it, and whether the answer calls tools."""

    reason: FinishReason | None = None
    word: str = ""
    has_calls: bool = False

    @classmethod
    def of(cls, message: Message) -> "AnswerEnd":
        """Return how the message ended."""
        meta = message.meta
        reason, word = (None, None) if meta is None else (meta.finish_reason, meta.raw_finish_reason)
        return cls(reason, word or "", bool(message.tool_calls))


class OpenCall(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A call whose results entry has not come yet, and how far it is.

    `questions` are those that its tool has asked since its last start and that have no answer.
    """

    request: ToolCall
    asked: ApprovalAskedEntry | None = None
    answered: ApprovalAnsweredEntry | None = None
    started: ToolStartedEntry | None = None
    result: HistoryToolCallResult | None = None
    questions: tuple[QuestionAskedEntry, ...] = ()

    @property
    def tool_call_id(self) -> str:
        """The id that is unique in the session."""
        return self.request.tool_call_id

    @property
    def awaits_answer(self) -> bool:
        """Whether a person was asked and has not decided yet."""
        return self.asked is not None and self.answered is None and self.result is None

    @property
    def lacks_approval(self) -> bool:
        """Whether it waits for an approval, or was refused one: it must not be started."""
        return self.awaits_answer or (self.answered is not None and not self.answered.approved)

    @property
    def arguments(self) -> dict[str, Any] | None:
        """What the call shall run with: what the approval changed it to, else what the model wrote, if it is whole."""
        if self.answered is not None and self.answered.arguments is not None:
            return self.answered.arguments
        return self.request.arguments


class DerivedState(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What follows from the entries so far.

    `open_calls` are all calls of the newest output until its results entry; `call_indexes` say where among them each id
    stands; `call_ids` are the ids of every call ever made;
    `reset_serial` is the serial of the newest reset, or -1: what stands before it no longer reaches a model.
    `steering` is what was said to a run and no input has taken up; `abort_request` asks that the open run end.
    `requests` are the runs that were asked for and have not begun, oldest first.
    `owes_answer` says that the model must answer: an input or results came last, or an answer that pauses.
    `answer_end` is how the newest answer ended, until an input, results of calls that ran, or the run's end follow it.
    """

    next_serial: int = 0
    current_run_id: str = ""
    outcome: RunStatus | None = None
    open_calls: tuple[OpenCall, ...] = ()
    call_indexes: dict[str, int] = {}
    call_ids: GrowingIds = msgspec.field(default_factory=GrowingIds)
    last_error: LastError | None = None
    token_usage: TokenUsage = TokenUsage()
    instruction_entry: SystemInstructionEntry | None = None
    notebook: str = ""
    reset_serial: int = -1
    steering: tuple[SteeringEntry, ...] = ()
    requests: tuple[RunRequestedEntry, ...] = ()
    abort_request: AbortRequestedEntry | None = None
    owes_answer: bool = False
    answer_end: AnswerEnd | None = None

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing, as far as entries tell."""
        if self.outcome is not None:
            return AgentStatus(self.outcome.value)
        if any(call.awaits_answer for call in self.open_calls) or self.questions:
            return AgentStatus.AWAITING_HUMAN
        if self.open_calls:
            return AgentStatus.TOOL_RUNNING
        return AgentStatus.PREPARING if self.current_run_id else AgentStatus.IDLE

    @property
    def system_instruction(self) -> str | None:
        """The system instruction in force; None if there is none."""
        return (self.instruction_entry.instruction or None) if self.instruction_entry else None

    @property
    def cost_usage(self) -> float:
        """US dollars spent, as far as they were reported."""
        return self.token_usage.cost or 0.0

    @property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls without a terminal result, in call order."""
        return tuple(call.request for call in self.open_calls if call.result is None)

    @property
    def started_tool_calls(self) -> tuple[ToolStartedEntry, ...]:
        """The starts of calls that have no result yet, in call order."""
        return tuple(call.started for call in self.open_calls if call.started is not None and call.result is None)

    @property
    def finished_tool_calls(self) -> tuple[HistoryToolCallResult, ...]:
        """The results that wait for the other calls of their output, in call order."""
        return tuple(call.result for call in self.open_calls if call.result is not None)

    @property
    def approvals_asked(self) -> tuple[ApprovalAskedEntry, ...]:
        """The approvals that wait for a decision, in call order."""
        return tuple(call.asked for call in self.open_calls if call.asked is not None and call.awaits_answer)

    @property
    def approvals_answered(self) -> tuple[ApprovalAnsweredEntry, ...]:
        """The decisions whose call has neither started nor ended, in call order."""
        return tuple(
            call.answered
            for call in self.open_calls
            if call.answered is not None and call.started is None and call.result is None
        )

    @property
    def questions(self) -> tuple[QuestionAskedEntry, ...]:
        """The questions of tools that have no answer, in call order. A tool waits for it only while its run lives."""
        return tuple(each for call in self.open_calls if call.result is None for each in call.questions)

    def open_call(self, tool_call_id: str) -> OpenCall | None:
        """Return the open call of that id, if there is one."""
        index = self.call_indexes.get(tool_call_id)
        return None if index is None else self.open_calls[index]


def advance(state: DerivedState, entry: HistoryEntry) -> DerivedState:
    """Return the state after one more entry; the cost does not grow with the history."""
    return replace(state, next_serial=state.next_serial + 1, **_CHANGES[type(entry)](state, entry))


# ---------------------------------------------------------------- what each kind changes


def _by_input(state: DerivedState, entry: ModelInputEntry) -> dict[str, Any]:
    changes: dict[str, Any] = {"outcome": None, "owes_answer": True, "answer_end": None}
    if entry.steering_serial is not None:
        changes["steering"] = tuple(said for said in state.steering if said.serial > entry.steering_serial)
    return changes


def _by_steering(state: DerivedState, entry: SteeringEntry) -> dict[str, Any]:
    return {"steering": (*state.steering, entry)}


def _by_request(state: DerivedState, entry: RunRequestedEntry) -> dict[str, Any]:
    return {"requests": (*state.requests, entry)}


def _by_abort_request(state: DerivedState, entry: AbortRequestedEntry) -> dict[str, Any]:
    if entry.run_id == state.current_run_id:
        return {"abort_request": entry}
    return {"requests": _without_request(state, entry.run_id)}


def _by_output(state: DerivedState, entry: ModelOutputEntry) -> dict[str, Any]:
    calls, end = entry.tool_calls, AnswerEnd.of(entry.message)
    changes: dict[str, Any] = {
        "open_calls": tuple(OpenCall(call) for call in calls),
        "call_indexes": {call.tool_call_id: index for index, call in enumerate(calls)},
        "outcome": None,
        "last_error": None,
        "token_usage": _added(state, entry.usage),
        "owes_answer": end.reason is FinishReason.PAUSE,
        "answer_end": end,
    }
    if calls:
        changes["call_ids"] = state.call_ids.with_added(call.tool_call_id for call in calls)
    return changes


def _by_results(state: DerivedState, entry: ToolResultsEntry) -> dict[str, Any]:
    # The calls of a cut answer are not run: the loop has not decided yet what becomes of that answer.
    were_dropped = any(result.error_code is ErrorCode.TOOL_INTERRUPTED for result in entry.results)
    end = state.answer_end if were_dropped else None
    return {"open_calls": (), "call_indexes": {}, "outcome": None, "owes_answer": True, "answer_end": end}


def _by_instruction(_state: DerivedState, entry: SystemInstructionEntry) -> dict[str, Any]:
    return {"instruction_entry": entry}


def _by_notebook(_state: DerivedState, entry: NotebookEntry) -> dict[str, Any]:
    return {"notebook": entry.content}


def _by_compaction(state: DerivedState, entry: CompactionEntry) -> dict[str, Any]:
    return {"token_usage": _added(state, entry.usage)}


def _by_interruption(state: DerivedState, entry: InterruptionEntry) -> dict[str, Any]:
    meta = entry.partial.meta if entry.partial else None
    return {
        "last_error": LastError(entry.reason, entry.message),
        "token_usage": _added(state, meta.usage if meta else None),
    }


def _by_asking(state: DerivedState, entry: ApprovalAskedEntry) -> dict[str, Any]:
    return {"open_calls": _with_call(state, entry.tool_call_id, asked=entry)}


def _by_answer(state: DerivedState, entry: ApprovalAnsweredEntry) -> dict[str, Any]:
    return {"open_calls": _with_call(state, entry.tool_call_id, answered=entry)}


def _by_question(state: DerivedState, entry: QuestionAskedEntry) -> dict[str, Any]:
    call = state.open_call(entry.tool_call_id)
    before = () if call is None else call.questions
    return {"open_calls": _with_call(state, entry.tool_call_id, questions=(*before, entry))}


def _by_question_end(state: DerivedState, entry: QuestionAnsweredEntry) -> dict[str, Any]:
    asked = next((each for each in state.questions if each.question_id == entry.question_id), None)
    call = None if asked is None else state.open_call(asked.tool_call_id)
    if call is None:
        return {}
    left = tuple(each for each in call.questions if each.question_id != entry.question_id)
    return {"open_calls": _with_call(state, call.tool_call_id, questions=left)}


def _by_sampling(state: DerivedState, entry: SamplingEntry) -> dict[str, Any]:
    return {"token_usage": _added(state, entry.usage)}


def _by_tool_start(state: DerivedState, entry: ToolStartedEntry) -> dict[str, Any]:
    return {"open_calls": _with_call(state, entry.tool_call_id, started=entry, questions=())}


def _by_tool_end(state: DerivedState, entry: ToolFinishedEntry) -> dict[str, Any]:
    return {"open_calls": _with_call(state, entry.result.tool_call_id, result=entry.result)}


def _by_run_start(state: DerivedState, entry: RunStartedEntry) -> dict[str, Any]:
    changes = {"current_run_id": entry.run_id, "outcome": None, "last_error": None, "abort_request": None}
    return {**changes, "requests": _without_request(state, entry.run_id)} if state.requests else changes


def _by_run_end(_state: DerivedState, entry: RunFinishedEntry) -> dict[str, Any]:
    changes: dict[str, Any] = {"current_run_id": "", "outcome": entry.status, "abort_request": None, "answer_end": None}
    if entry.status is RunStatus.COMPLETED:
        changes["last_error"] = None
    elif entry.error_code is not None:
        changes["last_error"] = LastError(entry.error_code, entry.message)
    return changes


def _by_reset(state: DerivedState, _entry: ResetEntry) -> dict[str, Any]:
    return {
        "open_calls": (),
        "call_indexes": {},
        "outcome": None,
        "last_error": None,
        "notebook": "",
        "reset_serial": state.next_serial,
        "steering": (),
        "owes_answer": False,
        "answer_end": None,
    }


def _by_nothing(_state: DerivedState, _entry: HistoryEntry) -> dict[str, Any]:
    return {}


def _without_request(state: DerivedState, run_id: str) -> tuple[RunRequestedEntry, ...]:
    return tuple(request for request in state.requests if request.run_id != run_id)


def _with_call(state: DerivedState, tool_call_id: str, **changes: Any) -> tuple[OpenCall, ...]:
    calls, index = state.open_calls, state.call_indexes.get(tool_call_id)
    if index is None:
        return calls
    return (*calls[:index], replace(calls[index], **changes), *calls[index + 1 :])


def _added(state: DerivedState, usage: TokenUsage | None) -> TokenUsage:
    return state.token_usage if usage is None else state.token_usage + usage


# A row for every class of an entry: one without a row cannot be appended.
_CHANGES: dict[type, Callable[[DerivedState, Any], dict[str, Any]]] = {
    ModelInputEntry: _by_input,
    ModelOutputEntry: _by_output,
    ToolResultsEntry: _by_results,
    SystemInstructionEntry: _by_instruction,
    NotebookEntry: _by_notebook,
    CompactionEntry: _by_compaction,
    InterruptionEntry: _by_interruption,
    ApprovalAskedEntry: _by_asking,
    ApprovalAnsweredEntry: _by_answer,
    QuestionAskedEntry: _by_question,
    QuestionAnsweredEntry: _by_question_end,
    SamplingEntry: _by_sampling,
    ToolStartedEntry: _by_tool_start,
    ToolFinishedEntry: _by_tool_end,
    RunStartedEntry: _by_run_start,
    RunFinishedEntry: _by_run_end,
    SteeringEntry: _by_steering,
    RunRequestedEntry: _by_request,
    AbortRequestedEntry: _by_abort_request,
    ResetEntry: _by_reset,
    TakeoverEntry: _by_nothing,
    ClientRequestEntry: _by_nothing,
    ClientAnswerEntry: _by_nothing,
    ToolSetEntry: _by_nothing,
    EpochEntry: _by_nothing,
    UnknownEntry: _by_nothing,
}
