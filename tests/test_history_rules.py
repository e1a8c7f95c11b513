"""What may not be appended, by the name of the rule that forbids it, and what may."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from dragoman import ErrorCode, InvalidValue, Message, Role, Text, ToolCall
from dragoman.errors import IllegalAppend
from dragoman.history import (
    LIVE_SCREEN,
    RULES,
    AbortRequestedEntry,
    AgentState,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    HistoryEntry,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SamplingEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    UnknownEntry,
    derived,
    rules,
)
from dragoman.history.entries import AnyEntry
from dragoman.message import MessageMeta
from tests.history_cases import answer, call, closed, denied, fresh, output, refused, with_calls

# ---------------------------------------------------------------- what is illegal


def started(state: AgentState, **fields: Any) -> AgentState:
    state.append(ToolStartedEntry("c", "f", **fields))
    return state


def asked(state: AgentState) -> AgentState:
    state.append(ApprovalAskedEntry("c", "f"))
    return state


def questioned() -> AgentState:
    state = started(with_calls())
    state.append(QuestionAskedEntry("q", "c", "Which?"))
    return state


def finished(state: AgentState) -> AgentState:
    started(state).append(ToolFinishedEntry(answer()))
    return state


def answered(state: AgentState, approved: bool = True, **fields: Any) -> AgentState:
    asked(state).append(ApprovalAnsweredEntry("c", approved, **fields))
    return state


def running() -> AgentState:
    state = fresh()
    state.append(RunStartedEntry(run_id="r"))
    return state


def broken_call() -> AgentState:
    return with_calls(ToolCall.parse("c", "f", "{"))


def requested() -> AgentState:
    state = fresh()
    state.append_all([RunRequestedEntry("a", run_id=run_id) for run_id in ("first", "second")])
    return state


ILLEGAL: list[tuple[str, Callable[[], AgentState], Callable[[AgentState], object]]] = [
    ("empty_input", fresh, lambda state: state.append_model_input("")),
    ("empty_input", fresh, lambda state: state.append_model_input()),
    ("metadata_too_large", fresh, lambda state: state.append_model_input("a", metadata={"k": "x" * 3000})),
    ("metadata_too_large", with_calls, lambda state: state.append_tool_results([answer()], metadata={"k": "x" * 3000})),
    ("known_kind", fresh, lambda state: state.append(UnknownEntry("later", {}))),
    ("nothing_edited", closed, lambda state: state.append(state.entries[0])),
    ("nothing_edited", closed, lambda state: state.commit(state.entries[0])),
    ("nothing_edited", closed, lambda state: state.append(ResetEntry(serial=1, entry_id="s:1"))),
    ("serial_follows", closed, lambda state: state.commit(ResetEntry(serial=9, entry_id="s:9"))),
    ("serial_follows", closed, lambda state: state.commit(ResetEntry(serial=3, entry_id="s:4"))),
    ("output_is_whole", fresh, lambda state: state.append_model_output(
        Message(Role.ASSISTANT, (Text("a"),), meta=MessageMeta(interrupted=True)))),
    ("call_id_is_new", closed, lambda state: state.commit(
        ModelOutputEntry(output(call()), serial=3, entry_id="s:3"))),
    ("call_id_is_new", fresh, lambda state: state.commit(
        ModelOutputEntry(output(call(), call()), serial=0, entry_id="s:0"))),
    ("calls_answered_first", with_calls, lambda state: state.append_model_input("b")),
    ("calls_answered_first", with_calls, lambda state: state.append_model_output(output())),
    ("result_answers_a_call", fresh, lambda state: state.append_tool_results([answer()])),
    ("result_answers_a_call", with_calls, lambda state: state.append_tool_results([answer("x")])),
    ("result_answers_a_call", with_calls, lambda state: state.append_tool_results([answer(name="g")])),
    ("result_answers_a_call", with_calls, lambda state: state.append(ToolStartedEntry("x", "f"))),
    ("result_answers_a_call", with_calls, lambda state: state.append(ToolStartedEntry("c", "g"))),
    ("question_of_a_running_call", with_calls, lambda state: state.append(QuestionAskedEntry("q", "c", "Which?"))),
    ("question_of_a_running_call", with_calls, lambda state: state.append(SamplingEntry("c", ()))),
    ("question_answered_once", questioned, lambda state: state.append(QuestionAskedEntry("q", "c", "Which?"))),
    ("question_answered_once", questioned, lambda state: state.append(
        QuestionAnsweredEntry("r", QuestionAction.DECLINE))),
    ("result_answers_a_call", with_calls, lambda state: state.append(ApprovalAskedEntry("x", "f"))),
    ("result_answers_a_call", with_calls, lambda state: state.append(ApprovalAnsweredEntry("x", True))),
    ("one_result_per_call", closed, lambda state: state.append_tool_results([answer()])),
    ("one_result_per_call", closed, lambda state: state.append(ToolFinishedEntry(answer()))),
    ("one_result_per_call", with_calls, lambda state: state.append_tool_results([answer(), answer()])),
    ("one_result_per_call", lambda: finished(with_calls()), lambda state: state.append(ToolFinishedEntry(answer()))),
    ("one_result_per_call", lambda: finished(with_calls()), lambda state: started(state)),
    ("results_match_calls_in_order", lambda: with_calls(call("a"), call("b")),
     lambda state: state.append_tool_results([answer("b"), answer("a")])),
    ("results_match_calls_in_order", lambda: with_calls(call("a"), call("b")),
     lambda state: state.append_tool_results([answer("a")])),
    ("results_match_calls_in_order", with_calls, lambda state: state.append_tool_results()),
    ("results_match_calls_in_order", with_calls, lambda state: state.append(ToolResultsEntry((), "failed"))),
    ("results_match_calls_in_order", fresh, lambda state: state.append_tool_results(execute_error="failed")),
    ("finished_result_is_kept", lambda: finished(with_calls()),
     lambda state: state.append_tool_results([answer(text="other")])),
    ("started_before_finished", with_calls, lambda state: state.append(ToolFinishedEntry(answer()))),
    ("started_before_finished", with_calls, lambda state: state.append(
        ToolFinishedEntry(answer(status="failed", error_code=ErrorCode.TOOL_TIMEOUT)))),
    ("started_once", lambda: started(with_calls()), lambda state: started(state, idempotent=True)),
    ("arguments_are_whole", broken_call, started),
    ("approval_before_start", lambda: asked(with_calls()), started),
    ("approval_before_start", lambda: answered(with_calls(), approved=False), started),
    ("approval_answered_once", lambda: asked(with_calls()), asked),
    ("approval_answered_once", lambda: started(with_calls()), asked),
    ("approval_answered_once", with_calls, lambda state: state.append(ApprovalAnsweredEntry("c", True))),
    ("approval_answered_once", lambda: answered(with_calls()),
     lambda state: state.append(ApprovalAnsweredEntry("c", False))),
    ("one_run_at_a_time", fresh, lambda state: state.append(RunStartedEntry())),
    ("abort_ends_a_run", fresh, lambda state: state.append(AbortRequestedEntry())),
    ("abort_ends_a_run", requested, lambda state: state.append(AbortRequestedEntry(run_id="other"))),
    ("request_names_a_new_run", fresh, lambda state: state.append(RunRequestedEntry("a"))),
    ("request_names_a_new_run", requested, lambda state: state.append(RunRequestedEntry("a", run_id="first"))),
    ("requests_in_order", requested, lambda state: state.append(RunStartedEntry(run_id="second"))),
    ("reset_between_runs", running, lambda state: state.reset()),
    ("steering_is_taken_up_once", fresh, lambda state: state.append(ModelInputEntry((Text("x"),), steering_serial=0))),
    ("one_run_at_a_time", running, lambda state: state.append(RunStartedEntry(run_id="q"))),
    ("one_run_at_a_time", running, lambda state: state.append(RunFinishedEntry(RunStatus.FAILED, run_id="q"))),
    ("one_run_at_a_time", fresh, lambda state: state.append(RunFinishedEntry(RunStatus.COMPLETED))),
    ("compaction_covers_the_past", closed, lambda state: state.append(CompactionEntry(0, 3, "short"))),
    ("exchange_names_the_past", closed, lambda state: state.append(ClientAnswerEntry(3, 200, b""))),
    ("exchange_names_the_past", closed, lambda state: state.append(ClientRequestEntry("a", "/", "m", "{}", 3))),
    ("past_is_read_only", lambda: closed().state_at(1), lambda state: state.append_model_input("b")),
    ("past_is_read_only", lambda: closed().state_at(1), lambda state: state.reset()),
    ("past_is_read_only", lambda: closed().state_at(2), lambda state: state.commit(
        ResetEntry(serial=3, entry_id="s:3"))),
    ("past_is_read_only", lambda: closed().state_at(1),
     lambda state: state.execute_widget_tool("memory_notebook_append", {"text": "x"})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "make", "append"), ILLEGAL, ids=[f"{each[0]}-{at}" for at, each in enumerate(ILLEGAL)]
)
def test_an_illegal_append_names_its_rule_and_appends_nothing(
    rule: str, make: Callable[[], AgentState], append: Callable[[AgentState], object]
) -> None:
    state = make()
    entries, derived = list(state.entries), state.derived
    assert refused(lambda: append(state)) == rule
    assert list(state.entries) == entries
    assert state.derived is derived


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _, _ in ILLEGAL} == set(RULES)


def test_an_error_names_no_more_than_a_few_calls_and_no_long_ids() -> None:
    state = with_calls(*(call(f"{number}-" + "x" * 500) for number in range(9)))
    with pytest.raises(IllegalAppend, match="and 4 more") as raised:
        state.append_model_input("b")
    assert len(str(raised.value)) < 800
    with pytest.raises(IllegalAppend, match=r"'4'$"):
        with_calls(*(call(str(number)) for number in range(5))).append_model_input("b")


class Shouted(ModelOutputEntry, frozen=True):
    """A class that no rule knows."""


def test_what_is_no_entry_is_refused() -> None:
    with pytest.raises(InvalidValue):
        fresh().append("text")  # type: ignore[type-var]
    with pytest.raises(InvalidValue):
        fresh().append(HistoryEntry())
    with pytest.raises(InvalidValue):
        fresh().append(Shouted(output(call())))
    with pytest.raises(InvalidValue):
        fresh().commit("text")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        AgentState.from_entries(["text"])  # type: ignore[list-item]
    with pytest.raises(InvalidValue):
        fresh().append_model_input("a", ModelInputEntry.of("b"))


# ---------------------------------------------------------------- what is legal


def test_an_idempotent_tool_may_be_started_again() -> None:
    state = started(with_calls(), idempotent=True)
    started(state, idempotent=True).append(ToolFinishedEntry(answer()))
    assert state.derived.finished_tool_calls == (answer(),)


def test_a_call_that_never_ran_may_end_without_a_start() -> None:
    for code in (ErrorCode.UNKNOWN_TOOL, ErrorCode.INVALID_ARGUMENTS):
        with_calls().append(ToolFinishedEntry(answer(status="failed", error_code=code)))
    for code in (ErrorCode.TOOL_DENIED, ErrorCode.TOOL_INTERRUPTED):
        with_calls().append(ToolFinishedEntry(answer(status="skipped", error_code=code)))


def test_an_approval_may_give_a_broken_call_its_arguments() -> None:
    state = answered(broken_call(), arguments={"x": 2})
    assert state.derived.open_calls[0].arguments == {"x": 2}
    started(state)


def test_a_policy_may_answer_what_nobody_asked() -> None:
    state = with_calls()
    state.append(ApprovalAnsweredEntry("c", False, by="policy"))
    state.append(ToolFinishedEntry(denied()))
    assert state.append_tool_results().results == (denied(),)


def test_the_finished_result_is_the_same_one_with_the_live_screen_on_it() -> None:
    state = with_calls()
    state.update_memory_notebook("note")
    finished(state)
    (result,) = state.append_tool_results([answer()]).results
    assert result.without_live_screen() == answer()
    assert result.result.live[-1].key == LIVE_SCREEN


def test_a_result_that_came_with_a_live_screen_of_its_own_does_not_block_its_turn() -> None:
    state = started(with_calls())
    state.update_memory_notebook("note")
    levels = LevelOfDetailSections.of_text("found").with_live_section(LIVE_SCREEN, "older")
    state.append(ToolFinishedEntry(answer(result=levels)))
    (result,) = state.append_tool_results().results
    assert result.without_live_screen() == answer()
    assert "note" in result.result.live[-1].value


def test_outputs_may_follow_one_another() -> None:
    state = fresh()
    state.append_model_output(output())
    state.append_model_output(output())
    assert len(state.entries) == 2


@pytest.mark.parametrize("table", [derived._CHANGES, rules._CHECKS], ids=["derived state", "rules"])
def test_every_class_of_an_entry_has_its_row(table: dict[type, Any]) -> None:
    missing = {entry.__name__ for entry in get_args(AnyEntry)} - {entry.__name__ for entry in table}
    assert not missing
    assert len(table) == len(get_args(AnyEntry))
