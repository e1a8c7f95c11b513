"""What the loop decides: its actions, driven by hand with the outcomes of a script. No model, no tool, no clock."""

from collections.abc import Callable
from itertools import pairwise, product

import pytest

from dragoman import (
    ErrorCode,
    FinishReason,
    InvalidValue,
    LoopConfig,
)
from dragoman.agent.actions import (
    Action,
    Approve,
    CallModel,
    CheckOutput,
    Compact,
    Ending,
    RunError,
    RunTools,
    Shrink,
    Wait,
)
from dragoman.agent.budget import Budget
from dragoman.agent.loop import TRANSITIONS, moved
from dragoman.history import (
    AgentState,
    AgentStatus,
    ApprovalAnsweredEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunFinishedEntry,
    RunStatus,
    SteeringEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from tests.agent_checks import find_problems, find_refusals
from tests.agent_stage import (
    BUSY,
    LIMIT,
    NOW,
    TOO_LONG,
    USED,
    S,
    Stage,
    at,
    calls,
    failed,
    left_waiting,
    resumed_at,
    says,
)

# ---------------------------------------------------------------- the table


def _ran(stage: Stage, *inputs: str) -> Stage:
    stage.play(*inputs)
    return stage


def _cut_in_tools() -> AgentState:
    stage = Stage(calls("once", "safe"))
    stage.play("Go.")
    entries = stage.state.entries
    output = next(place for place, entry in enumerate(entries) if isinstance(entry, ModelOutputEntry))
    return resumed_at(entries[: output + 1])


def _abandoned(state: AgentState) -> Stage:
    stage = Stage(state=state)
    stage.abandon()
    return stage


RUNS: dict[str, Callable[[], Stage]] = {
    "an answer": lambda: _ran(Stage(), "Go."),
    "a tool": lambda: _ran(Stage(calls("once")), "Go."),
    "a second run after one that completed": lambda: _ran(Stage(state=_ran(Stage(), "Go.").state), "More."),
    "a second run after one that failed": lambda: _ran(
        Stage(state=_ran(Stage(failed(RunError(ErrorCode.AUTHENTICATION))), "Go.").state), "More."
    ),
    "a second run after one that was aborted": lambda: _ran(
        Stage(state=_ran(Stage(stops=at(CallModel)), "Go.").state), "More."
    ),
    "aborted in the model's answer": lambda: _ran(Stage(stops=at(CallModel)), "Go."),
    "out of time in the model's answer": lambda: _ran(Stage(stops=at(CallModel), stops_with=LIMIT), "Go."),
    "aborted among tools": lambda: _ran(Stage(calls("once", "twice"), stops=at(RunTools)), "Go."),
    "out of time among tools": lambda: _ran(Stage(calls("a", "b"), stops=at(RunTools), stops_with=LIMIT), "Go."),
    "aborted before an attempt": lambda: _ran(Stage(failed(BUSY), stops=at(Wait)), "Go."),
    "failed": lambda: _ran(Stage(failed(RunError(ErrorCode.PERMISSION))), "Go."),
    "a person is asked": lambda: _ran(Stage(calls("ask")), "Go."),
    "a person has been asked": lambda: _ran(Stage(state=left_waiting())),
    "given up while a person is asked": lambda: _abandoned(left_waiting()),
    "a tool asks a person": lambda: _ran(Stage(calls("question")), "Go."),
    "out of time while a tool asks a person": lambda: _ran(
        Stage(calls("once", "question"), stops=at(RunTools), stops_with=LIMIT), "Go."
    ),
    "carried on among tools": lambda: _ran(Stage(state=_cut_in_tools())),
}


def steps_of(stage: Stage) -> set[tuple[AgentStatus, AgentStatus]]:
    """Return the transitions that a run has taken."""
    return {pair for pair in pairwise(stage.statuses) if pair[0] is not pair[1]}


def test_every_transition_of_the_table_is_taken_by_a_run_and_no_other() -> None:
    taken = set().union(*(steps_of(play()) for play in RUNS.values()))
    assert taken == {(status, to) for status, following in TRANSITIONS.items() for to in following}


@pytest.mark.parametrize(
    ("status", "to"), [pair for pair in product(AgentStatus, repeat=2) if pair[1] not in TRANSITIONS[pair[0]]]
)
def test_every_other_transition_is_refused(status: AgentStatus, to: AgentStatus) -> None:
    with pytest.raises(InvalidValue, match=f"an agent that is {status} cannot become {to}"):
        moved(status, to)


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_leaves_obeys_the_rules_and_answers_every_call(name: str) -> None:
    stage = RUNS[name]()
    assert not find_problems(stage.state.entries)
    assert stage.statuses[-1] is stage.state.status


# ---------------------------------------------------------------- limits


def endless(**limits: float | int) -> Stage:
    """Return a run whose model calls a tool for ever."""
    return Stage(*(calls("once") for _ in range(20)), limits=LoopConfig(**limits))  # type: ignore[arg-type]  # as named


def test_a_run_makes_as_many_model_calls_as_it_may_and_runs_the_last_ones_tools() -> None:
    stage = endless(max_iterations=3)
    ending = stage.play("Go.")
    assert (ending.status, ending.error) == (
        S.FAILED,
        RunError(ErrorCode.LIMIT_REACHED, "a run may make 3 model calls"),
    )
    assert stage.count(CallModel) == stage.count(RunTools) == 3


def test_a_run_has_as_many_rounds_of_tools_as_it_may_and_says_that_the_others_did_not_run() -> None:
    stage = endless(max_tool_rounds=2)
    ending = stage.play("Go.")
    assert ending.error == RunError(ErrorCode.LIMIT_REACHED, "a run may have 2 rounds of tools")
    assert stage.codes == [None, None, ErrorCode.TOOL_INTERRUPTED]
    assert stage.count(RunTools) == 2


def test_a_run_whose_time_is_over_makes_no_further_call() -> None:
    stage = Stage(says("", FinishReason.PAUSE), calls("once"), limits=LoopConfig(max_seconds=10), takes=6)
    ending = stage.play("Go.")
    assert ending.error == RunError(ErrorCode.LIMIT_REACHED, "a run may take 10 seconds")
    assert stage.count(CallModel) == 2
    assert stage.codes == [ErrorCode.TOOL_INTERRUPTED]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (LoopConfig(max_tokens=150), "a run may use 150 tokens, 200 are used"),
        (LoopConfig(max_cost=0.5), r"a run may cost 0.5 dollars, 0.5000 are spent"),
    ],
)
def test_a_run_that_has_used_up_its_tokens_or_its_money_ends(limits: LoopConfig, words: str) -> None:
    stage = Stage(*(says("more", FinishReason.PAUSE, USED) for _ in range(9)), limits=limits)
    ending = stage.play("Go.")
    assert ending.error == RunError(ErrorCode.LIMIT_REACHED, words)
    assert stage.count(CallModel) == 2


def test_what_a_failed_call_and_a_summary_used_counts_too() -> None:
    stage = Stage(failed(BUSY, "half an ans"), compacts=True)
    stage.play("Go.")
    assert stage.budget.usage == USED + USED
    assert stage.budget.model_calls == 1


def test_calls_that_fail_again_and_again_stop_at_the_limit_of_tokens() -> None:
    stage = Stage(*(failed(BUSY, "half") for _ in range(9)), limits=LoopConfig(max_tokens=150, attempts=9))
    ending = stage.play("Go.")
    assert ending.error == RunError(ErrorCode.LIMIT_REACHED, "a run may use 150 tokens, 200 are used")
    assert stage.count(CallModel) == 2


def test_a_run_inside_a_run_stops_at_the_limits_of_the_one_around_it() -> None:
    around = Budget(LoopConfig(max_iterations=2, max_tool_rounds=9, max_cost=9), seconds=lambda: 0.0)
    stage = Stage(*(calls("once") for _ in range(9)), around=around)
    ending = stage.play("Go.")
    assert ending.error == RunError(ErrorCode.LIMIT_REACHED, "a run may make 2 model calls")
    assert (around.model_calls, around.tool_rounds) == (2, 2)


def test_the_time_left_is_the_least_of_all_runs_around() -> None:
    now = 0.0
    outer = Budget(LoopConfig(max_seconds=5), seconds=lambda: now)
    now = 2.0
    inner = Budget(LoopConfig(max_seconds=60), seconds=lambda: now, around=outer)
    assert (inner.seconds_left, outer.seconds_left) == (3.0, 3.0)
    now = 9.0
    assert (inner.seconds_left, inner.reached()) == (0.0, "a run may take 5 seconds")
    assert Budget(LoopConfig(), seconds=lambda: now).seconds_left is None


# ---------------------------------------------------------------- attempts


def waits(stage: Stage) -> list[float]:
    """Return how long a run has waited, each time."""
    return [action.seconds for action in stage.actions if isinstance(action, Wait)]


def test_attempts_have_one_call_index_and_wait_twice_as_long_each_time() -> None:
    stage = Stage(calls("once"), *[failed(BUSY)] * 3)
    assert stage.play("Go.").status is S.COMPLETED
    assert stage.model_calls == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 3, 0)]
    assert waits(stage) == [0.5, 1.0, 2.0]
    failures = [entry for entry in stage.state.entries if isinstance(entry, InterruptionEntry)]
    assert [entry.reason for entry in failures] == [ErrorCode.OVERLOADED] * 3


def test_the_last_attempt_that_fails_fails_the_run() -> None:
    stage = Stage(*[failed(BUSY)] * 9, limits=LoopConfig(attempts=3))
    assert stage.play("Go.") == Ending(S.FAILED, BUSY)
    assert stage.count(CallModel) == 3


@pytest.mark.parametrize(("chance", "waited"), [(0.0, 2.0), (0.5, 3.0), (1.0, 4.0)])
def test_chance_takes_up_to_half_of_a_wait_away(chance: float, waited: float) -> None:
    stage = Stage(failed(BUSY), limits=LoopConfig(backoff_seconds=4), chance=chance)
    stage.play("Go.")
    assert waits(stage) == [waited]


def test_no_wait_is_longer_than_its_limit() -> None:
    stage = Stage(*[failed(BUSY)] * 5, limits=LoopConfig(attempts=9, backoff_seconds=4, backoff_limit_seconds=10))
    stage.play("Go.")
    assert waits(stage) == [4.0, 8.0, 10.0, 10.0, 10.0]


def test_what_the_provider_wants_to_wait_is_waited() -> None:
    wants = RunError(ErrorCode.RATE_LIMITED, retryable=True, retry_after=7.0)
    stage = Stage(failed(wants), chance=0.0)
    assert stage.play("Go.").status is S.COMPLETED
    assert waits(stage) == [7.0]


@pytest.mark.parametrize(
    ("error", "limits"),
    [
        (RunError(ErrorCode.RATE_LIMITED, retryable=True, retry_after=31.0), LoopConfig()),
        (RunError(ErrorCode.RATE_LIMITED, retryable=True, retry_after=9.0), LoopConfig(max_seconds=8)),
        (RunError(ErrorCode.INVALID_REQUEST), LoopConfig()),
        (BUSY, LoopConfig(attempts=1)),
    ],
)
def test_what_cannot_succeed_in_time_is_not_tried_again(error: RunError, limits: LoopConfig) -> None:
    stage = Stage(failed(error), limits=limits)
    assert stage.play("Go.") == Ending(S.FAILED, error)
    assert (stage.count(CallModel), stage.count(Wait)) == (1, 0)


def test_a_request_that_is_too_long_is_made_smaller_once() -> None:
    stage = Stage(failed(TOO_LONG))
    assert stage.play("Go.").status is S.COMPLETED
    assert (stage.count(Shrink), stage.model_calls) == (1, [(0, 0, 0), (0, 0, 0)])

    stage = Stage(failed(TOO_LONG), failed(TOO_LONG))
    assert stage.play("Go.") == Ending(S.FAILED, TOO_LONG)
    assert stage.count(Shrink) == 1


def test_a_request_that_cannot_be_made_smaller_is_not_sent_again() -> None:
    stage = Stage(failed(TOO_LONG), shrinks=False)
    assert stage.play("Go.") == Ending(S.FAILED, TOO_LONG)
    assert stage.count(CallModel) == 1


def test_other_models_are_asked_in_their_order_before_the_first_is_asked_again() -> None:
    stage = Stage(failed(BUSY, others_left=2), failed(BUSY, others_left=1), failed(BUSY), failed(BUSY, others_left=2))
    assert stage.play("Go.").status is S.COMPLETED
    assert stage.model_calls == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1)]
    assert stage.count(Wait) == 1


# ---------------------------------------------------------------- answers


def test_a_pause_is_sent_back_to_the_model() -> None:
    stage = Stage(says("Let me see", FinishReason.PAUSE), says("It rains."))
    assert stage.play("Go.").status is S.COMPLETED
    assert [call[0] for call in stage.model_calls] == [0, 1]


def test_what_is_said_meanwhile_is_taken_up_before_the_next_model_call() -> None:
    stage = Stage(calls("once"), says("Yes."), said=[("Hurry!", "Please."), ("And then?",)])
    assert stage.play("Go.").status is S.COMPLETED
    said = [entry for entry in stage.state.entries if isinstance(entry, ModelInputEntry | ModelOutputEntry)]
    texts = [message.text for entry in said for message in entry.messages()]
    assert texts == ["Go.", "", "Hurry!", "Please.", "Yes.", "And then?", "Done."]


def test_a_wrong_output_goes_back_to_the_model_until_it_is_right() -> None:
    stage = Stage(says("5"), says("five"), says("V"), checks=["A number!", "In words!", None])
    assert stage.play("How many?").status is S.COMPLETED
    assert stage.count(CallModel) == stage.count(CheckOutput) == 3


def test_an_output_that_stays_wrong_fails_the_run() -> None:
    stage = Stage(checks=["no", "no", "still no", None])
    assert stage.play("Go.") == Ending(S.FAILED, RunError(ErrorCode.INVALID_OUTPUT, "still no"))
    assert stage.count(CallModel) == 3


# ---------------------------------------------------------------- aborting


@pytest.mark.parametrize("kind", [CallModel, Compact, Wait, Approve, RunTools])
@pytest.mark.parametrize("error", [None, LIMIT])
def test_a_run_that_is_stopped_in_any_action_ends_at_once_with_every_call_answered(
    kind: type[Action], error: RunError | None
) -> None:
    stage = Stage(
        failed(BUSY), calls("once", "twice", "ask"), compacts=True, stops=at(kind), stops_with=error, decisions=[True]
    )
    ending = stage.play("Go.")
    assert ending == Ending(S.ABORTED if error is None else S.FAILED, error)
    assert stage.count(kind) == 1
    assert not find_problems(stage.state.entries)
    last = stage.state.entries[-1]
    assert isinstance(last, RunFinishedEntry)
    assert last.status is RunStatus(ending.status.value)
    assert last.error_code is (None if error is None else error.code)
    again = Stage(state=stage.state)
    assert again.play("Once more.").status is S.COMPLETED


def test_what_had_arrived_of_an_answer_is_recorded_when_the_run_is_aborted() -> None:
    stage = Stage(stops=at(CallModel))
    stage.play("Go.")
    interruption = stage.state.entries[-2]
    assert isinstance(interruption, InterruptionEntry)
    assert (interruption.reason, interruption.partial and interruption.partial.text) == (
        ErrorCode.CANCELLED,
        "I was about to",
    )


def test_a_result_that_was_delivered_before_the_abort_is_kept() -> None:
    stage = Stage(calls("a", "b", "c"), stops=at(RunTools))
    stage.play("Go.")
    assert stage.codes == [None, ErrorCode.TOOL_INTERRUPTED, ErrorCode.TOOL_INTERRUPTED]
    (results,) = (entry for entry in stage.state.entries if isinstance(entry, ToolResultsEntry))
    assert "may or may not have taken effect" in results.results[1].text()
    assert "was not run" in results.results[2].text()


# ---------------------------------------------------------------- approval


def test_a_call_that_needs_approval_waits_for_a_person_while_the_others_run() -> None:
    state = left_waiting()
    assert [call.result is None for call in state.derived.open_calls] == [True, False]
    again = Stage(state=state)
    assert again.play().status is S.AWAITING_HUMAN
    assert (again.count(Approve), again.count(RunTools)) == (0, 0)


@pytest.mark.parametrize(
    ("approved", "arguments", "code", "text"),
    [
        (True, None, None, "ran with {}"),
        (True, {"n": 2}, None, "ran with {'n': 2}"),
        (False, None, ErrorCode.TOOL_DENIED, "No."),
    ],
)
@pytest.mark.parametrize("by_person", [True, False])
def test_an_answer_decides_what_becomes_of_the_call(
    approved: bool, arguments: dict[str, int] | None, code: ErrorCode | None, text: str, by_person: bool
) -> None:
    called = calls("ask")
    answer = ApprovalAnsweredEntry(
        called.tool_calls[0].tool_call_id, approved, arguments=arguments, by="person" if by_person else "policy"
    )
    stage = Stage(called, decisions=[None if by_person else answer])
    ending = stage.play("Go.")
    if by_person:
        assert ending == Ending(S.AWAITING_HUMAN)
        stage.state.append(answer)
        stage = Stage(state=stage.state)
        ending = stage.play()
    assert ending == Ending(S.COMPLETED)
    (results,) = (entry for entry in stage.state.entries if isinstance(entry, ToolResultsEntry))
    assert [(result.error_code, result.text()) for result in results.results] == [(code, text)]


def test_a_call_that_needs_approval_only_after_another_was_decided_is_asked_about_too() -> None:
    stage = Stage(calls("ask", "then"), decisions=[True, True])
    assert stage.play("Go.").status is S.COMPLETED
    assert stage.count(Approve) == 2
    assert stage.codes == [None, None]

    stage = Stage(calls("ask", "then"), decisions=[True, None])
    assert stage.play("Go.").status is S.AWAITING_HUMAN


def test_a_run_that_waits_for_a_person_can_be_given_up() -> None:
    stage = Stage(state=left_waiting())
    assert stage.abandon() == Ending(S.ABORTED)
    assert stage.codes == [ErrorCode.TOOL_INTERRUPTED, None]
    assert not find_problems(stage.state.entries)


# ---------------------------------------------------------------- going on


def recorded_run() -> list[HistoryEntry]:
    """Return the entries of a run with a failure, tools of all kinds, an approval, a pause, and a wrong output."""
    first = Stage(
        failed(BUSY, "Let me"),
        calls("once", "ask", "gone", "safe", "ask"),
        decisions=[None, True],
        said=[("Hurry!",)],
        checks=[],
    )
    assert first.play("Go.").status is S.AWAITING_HUMAN
    (asked,) = first.state.derived.approvals_asked
    first.state.append(ApprovalAnsweredEntry(asked.tool_call_id, True, arguments={"n": 1}))
    answers = (says("Wait…", FinishReason.PAUSE), says("five"), calls("safe"), failed(TOO_LONG), says("5"))
    then = Stage(*answers, state=first.state, said=[("Well?",)], checks=["A number!"])
    assert then.play().status is S.COMPLETED
    return list(then.state.entries)


def carried_on(state: AgentState) -> AgentState:
    """Go on until the run is complete; every approval is granted."""
    owed = bool(state.current_run_id) or state.derived.owes_answer
    stage = Stage(state=state, checks=[])
    ending = stage.play(*(() if owed else ("Go.",)))
    if ending.status is S.AWAITING_HUMAN:
        for asked in state.derived.approvals_asked:
            state.append(ApprovalAnsweredEntry(asked.tool_call_id, True))
        ending = Stage(state=state, checks=[]).play()
    assert ending == Ending(S.COMPLETED)
    return state


def test_a_run_that_was_cut_off_after_any_entry_goes_on_to_its_end() -> None:
    entries = recorded_run()
    assert len(entries) > 25
    for serial in range(len(entries) + 1):
        state = carried_on(resumed_at(entries[:serial]))
        assert list(state.entries[:serial]) == entries[:serial]
        assert not find_problems(state.entries), f"cut off before {serial}"
        assert not find_refusals(state.entries), f"cut off before {serial}"


def test_a_tool_that_may_have_run_is_not_run_again_after_a_crash_unless_that_does_no_harm() -> None:
    entries = recorded_run()
    for serial in range(len(entries) + 1):
        started = resumed_at(entries[:serial]).derived.started_tool_calls
        state = carried_on(resumed_at(entries[:serial]))
        starts = [each.tool_call_id for each in state.entries[serial:] if isinstance(each, ToolStartedEntry)]
        for call in started:
            assert (call.tool_call_id in starts) is (call.tool_name == "safe")


def test_what_is_said_to_a_session_with_open_calls_and_no_run_waits_for_their_results() -> None:
    state = AgentState.create_default(session_id="s", clock=lambda: NOW)
    state.append_model_input("Go.")
    state.append_model_output(calls("once"))
    stage = Stage(state=state)
    assert stage.play("And hurry.").status is S.COMPLETED
    assert not find_problems(state.entries)
    assert [entry.steering_serial for entry in state.entries if isinstance(entry, ModelInputEntry)] == [None, 3]
    assert isinstance(state.entries[3], SteeringEntry)
