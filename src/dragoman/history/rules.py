"""Which entries may follow which: the history's invariants, by name. Pure; `AgentState` asks before it appends."""

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import ErrorCode, IllegalAppend
from .derived import DerivedState, OpenCall
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
from .toolresults import ToolExecutionStatus

__all__ = ["NEEDS_START", "RULES", "require_legal"]

# An error names the rule that was broken. The first two rules hold for every entry alone.
RULES: dict[str, str] = {
    "metadata_too_large": "the metadata of an entry are at most 2 KB of JSON",
    "empty_input": "a model input has text that is not blank, or an attachment",
    "past_is_read_only": "a state of the past, as state_at gives it, takes no entries",
    "known_kind": "an entry of a kind that this version does not know can be read and kept, not made",
    "nothing_edited": "an entry never takes the place of one that is there",
    "serial_follows": "serials count from 0 without a gap, and the id of an entry has its serial",
    "output_is_whole": "an answer that broke off is recorded as an interruption, not as an output",
    "call_id_is_new": "the id of a tool call stands once in a session",
    "calls_answered_first": "the calls of an output are all answered before the next input or output",
    "result_answers_a_call": "a result, a start or an approval names an open call of the newest output, and its tool",
    "one_result_per_call": "a call gets one terminal result",
    "results_match_calls_in_order": "a results entry answers all calls of the newest output, in call order",
    "finished_result_is_kept": "what a results entry says is what `tool finished` recorded",
    "started_before_finished": "a `tool finished` that only running the tool can give comes after its `tool started`",
    "started_once": "a call is started again only if its tool is idempotent",
    "arguments_are_whole": "a call whose arguments did not parse is not started, unless an approval gave it others",
    "approval_before_start": "a call that waits for an approval, or was refused, is not started",
    "approval_answered_once": "a call is asked about once and answered once, and a person answers what was asked",
    "question_of_a_running_call": "a question, and what a model is asked for a tool, belong to a call that runs",
    "question_answered_once": "a question is asked once, under an id of its own, and answered once",
    "one_run_at_a_time": "a run has an id and starts when no other is open; only the open one can finish",
    "request_names_a_new_run": "a requested run has an id that neither the open run nor another request has",
    "requests_in_order": "a requested run starts when those that were requested before it have started or were aborted",
    "abort_ends_a_run": "only a run that is open or requested can be asked to end",
    "reset_between_runs": "a reset comes when no run is open: abort an open run first",
    "steering_is_taken_up_once": "an input takes up a steering entry that no other input has taken up, oldest first",
    "compaction_covers_the_past": "a compaction stands for entries that are there",
    "exchange_names_the_past": "a client's request builds on, and an answer to it names, an entry that is there",
}

# Codes of results for which the tool must have run, or tried to.
NEEDS_START = frozenset({None, ErrorCode.TOOL_FAILED, ErrorCode.TOOL_TIMEOUT})


def require_legal(state: DerivedState, entry: HistoryEntry) -> None:
    """Raise IllegalAppend, with the name of the rule, unless `entry` may be the next one after `state`."""
    if entry.serial < state.next_serial:
        _refuse("nothing_edited", f"serial {entry.serial} is taken: the next is {state.next_serial}")
    if entry.serial > state.next_serial or entry.entry_id.rpartition(":")[2].partition("~")[0] != str(entry.serial):
        _refuse(
            "serial_follows",
            f"got serial {entry.serial} with id {_quoted(entry.entry_id)}: the next is {state.next_serial}",
        )
    _CHECKS[type(entry)](state, entry)


def _refuse(rule: str, seen: str) -> NoReturn:
    raise IllegalAppend(f"{RULES[rule]}; {seen}", rule=rule)


def _check_input(state: DerivedState, entry: ModelInputEntry) -> None:
    _require_answered(state)
    taken = entry.steering_serial
    if taken is not None and not (state.steering and state.steering[0].serial == taken):
        waiting = _listed([str(said.serial) for said in state.steering])
        _refuse("steering_is_taken_up_once", f"it takes up serial {taken}, waiting are {waiting}")


def _check_request(state: DerivedState, entry: RunRequestedEntry) -> None:
    taken = {state.current_run_id, *(request.run_id for request in state.requests)}
    if not entry.run_id or entry.run_id in taken:
        _refuse("request_names_a_new_run", f"this one is {_quoted(entry.run_id)}")


def _check_abort_request(state: DerivedState, entry: AbortRequestedEntry) -> None:
    waiting = [request.run_id for request in state.requests]
    if not entry.run_id or entry.run_id not in (state.current_run_id, *waiting):
        _refuse("abort_ends_a_run", f"{_quoted(entry.run_id)} is neither" if entry.run_id else "no run is open")


def _check_output(state: DerivedState, entry: ModelOutputEntry) -> None:
    _require_answered(state)
    if entry.message.meta is not None and entry.message.meta.interrupted:
        _refuse("output_is_whole", "this message is marked as interrupted")
    seen: set[str] = set()
    for call in entry.message.tool_calls:
        if call.tool_call_id in seen or call.tool_call_id in state.call_ids:
            _refuse("call_id_is_new", f"{_quoted(call.tool_call_id)} was used before")
        seen.add(call.tool_call_id)


def _require_answered(state: DerivedState) -> None:
    if state.open_calls:
        _refuse("calls_answered_first", f"open: {_named(state)}")


def _check_results(state: DerivedState, entry: ToolResultsEntry) -> None:
    answered = [(result.tool_call_id, result.tool_name) for result in entry.results]
    if not answered or answered != [(call.tool_call_id, call.request.tool_name) for call in state.open_calls]:
        _refuse_results(state, entry)
    for call, result in zip(state.open_calls, entry.results, strict=True):
        kept = call.result
        if kept is not None and kept is not result and kept.without_live_screen() != result.without_live_screen():
            _refuse("finished_result_is_kept", f"{_quoted(call.tool_call_id)} had finished with another result")


def _refuse_results(state: DerivedState, entry: ToolResultsEntry) -> NoReturn:
    """Say what is wrong with results that are not those of the open calls."""
    seen: set[str] = set()
    for result in entry.results:
        if result.tool_call_id in seen:
            _refuse("one_result_per_call", f"{_quoted(result.tool_call_id)} is answered twice")
        seen.add(result.tool_call_id)
        _require_open(state, result.tool_call_id, result.tool_name)
    answered = _listed([result.tool_call_id for result in entry.results])
    _refuse("results_match_calls_in_order", f"answered: {answered}, open: {_named(state)}")


def _check_asking(state: DerivedState, entry: ApprovalAskedEntry) -> None:
    call = _require_pending(state, entry.tool_call_id, entry.tool_name)
    if call.asked is not None or call.answered is not None or call.started is not None:
        _refuse("approval_answered_once", f"{_quoted(entry.tool_call_id)} was asked about, answered or started already")


def _check_answer(state: DerivedState, entry: ApprovalAnsweredEntry) -> None:
    call = _require_pending(state, entry.tool_call_id)
    if call.answered is not None or call.started is not None:
        _refuse("approval_answered_once", f"{_quoted(entry.tool_call_id)} was answered or started already")
    if call.asked is None and entry.by == "person":
        _refuse("approval_answered_once", f"no one was asked about {_quoted(entry.tool_call_id)}")


def _check_tool_start(state: DerivedState, entry: ToolStartedEntry) -> None:
    call = _require_pending(state, entry.tool_call_id, entry.tool_name)
    if call.started is not None and not (call.started.idempotent and entry.idempotent):
        _refuse("started_once", f"{_quoted(entry.tool_call_id)} was started at serial {call.started.serial}")
    if call.lacks_approval:
        _refuse("approval_before_start", f"{_quoted(entry.tool_call_id)} is not approved")
    if call.arguments is None:
        _refuse("arguments_are_whole", f"{_quoted(entry.tool_call_id)} has none that can be used")


def _check_tool_end(state: DerivedState, entry: ToolFinishedEntry) -> None:
    result = entry.result
    call = _require_pending(state, result.tool_call_id, result.tool_name)
    if call.started is None and result.error_code in NEEDS_START:
        how = result.error_code or ToolExecutionStatus.SUCCESS
        _refuse("started_before_finished", f"{_quoted(result.tool_call_id)} ended in {how} and was never started")


def _check_question(state: DerivedState, entry: QuestionAskedEntry) -> None:
    _require_running(state, entry.tool_call_id)
    if any(asked.question_id == entry.question_id for asked in state.questions):
        _refuse("question_answered_once", f"{_quoted(entry.question_id)} is asked already")


def _check_question_end(state: DerivedState, entry: QuestionAnsweredEntry) -> None:
    if not any(asked.question_id == entry.question_id for asked in state.questions):
        waiting = _listed([asked.question_id for asked in state.questions])
        _refuse("question_answered_once", f"{_quoted(entry.question_id)} waits for no answer (open: {waiting})")


def _check_sampling(state: DerivedState, entry: SamplingEntry) -> None:
    _require_running(state, entry.tool_call_id)


def _check_run_start(state: DerivedState, entry: RunStartedEntry) -> None:
    if not entry.run_id:
        _refuse("one_run_at_a_time", "this one has no id")
    if state.current_run_id:
        _refuse("one_run_at_a_time", f"{_quoted(state.current_run_id)} is open")
    waiting = [request.run_id for request in state.requests]
    if entry.run_id in waiting[1:]:
        _refuse("requests_in_order", f"{_quoted(entry.run_id)} starts, the first is {_quoted(waiting[0])}")


def _check_run_end(state: DerivedState, entry: RunFinishedEntry) -> None:
    if not state.current_run_id or entry.run_id != state.current_run_id:
        _refuse("one_run_at_a_time", f"{_quoted(entry.run_id)} ends, open is {_quoted(state.current_run_id or 'none')}")


def _check_reset(state: DerivedState, _entry: ResetEntry) -> None:
    if state.current_run_id:
        _refuse("reset_between_runs", f"{_quoted(state.current_run_id)} is open")


def _check_compaction(state: DerivedState, entry: CompactionEntry) -> None:
    if entry.last_serial >= state.next_serial:
        _refuse("compaction_covers_the_past", f"it reaches to {entry.last_serial}, the last is {state.next_serial - 1}")


def _check_client_request(state: DerivedState, entry: ClientRequestEntry) -> None:
    if entry.base_serial is not None:
        _require_past(state, entry.base_serial)


def _check_client_answer(state: DerivedState, entry: ClientAnswerEntry) -> None:
    _require_past(state, entry.request_serial)


def _require_past(state: DerivedState, serial: int) -> None:
    if serial >= state.next_serial:
        _refuse("exchange_names_the_past", f"it names {serial}, the last is {state.next_serial - 1}")


def _require_open(state: DerivedState, tool_call_id: str, tool_name: str | None) -> OpenCall:
    call = state.open_call(tool_call_id)
    if call is None:
        if tool_call_id in state.call_ids:
            _refuse("one_result_per_call", f"{_quoted(tool_call_id)} is not open any more (open: {_named(state)})")
        _refuse("result_answers_a_call", f"{_quoted(tool_call_id)} was never called (open: {_named(state)})")
    if tool_name is not None and tool_name != call.request.tool_name:
        _refuse(
            "result_answers_a_call",
            f"{_quoted(tool_call_id)} is a call of {_quoted(call.request.tool_name)}, not {_quoted(tool_name)}",
        )
    return call


def _require_pending(state: DerivedState, tool_call_id: str, tool_name: str | None = None) -> OpenCall:
    call = _require_open(state, tool_call_id, tool_name)
    if call.result is not None:
        _refuse("one_result_per_call", f"{_quoted(tool_call_id)} has finished")
    return call


def _require_running(state: DerivedState, tool_call_id: str) -> None:
    if _require_pending(state, tool_call_id).started is None:
        _refuse("question_of_a_running_call", f"{_quoted(tool_call_id)} was never started")


def _named(state: DerivedState) -> str:
    return _listed([call.tool_call_id for call in state.open_calls])


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return (", ".join(_quoted(each) for each in ids[:5]) or "none") + more


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


def _check_nothing(_state: DerivedState, _entry: HistoryEntry) -> None:
    """An entry of this class is legal anywhere."""


# A row for every class of an entry: one without a row cannot be appended.
_CHECKS: dict[type, Callable[[DerivedState, Any], None]] = {
    ModelInputEntry: _check_input,
    ModelOutputEntry: _check_output,
    ToolResultsEntry: _check_results,
    ApprovalAskedEntry: _check_asking,
    ApprovalAnsweredEntry: _check_answer,
    QuestionAskedEntry: _check_question,
    QuestionAnsweredEntry: _check_question_end,
    SamplingEntry: _check_sampling,
    ToolStartedEntry: _check_tool_start,
    ToolFinishedEntry: _check_tool_end,
    RunStartedEntry: _check_run_start,
    RunFinishedEntry: _check_run_end,
    RunRequestedEntry: _check_request,
    AbortRequestedEntry: _check_abort_request,
    CompactionEntry: _check_compaction,
    SystemInstructionEntry: _check_nothing,
    NotebookEntry: _check_nothing,
    InterruptionEntry: _check_nothing,
    SteeringEntry: _check_nothing,
    TakeoverEntry: _check_nothing,
    ClientRequestEntry: _check_client_request,
    ClientAnswerEntry: _check_client_answer,
    ToolSetEntry: _check_nothing,
    EpochEntry: _check_nothing,
    ResetEntry: _check_reset,
    UnknownEntry: _check_nothing,
}
