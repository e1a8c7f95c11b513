"""AgentState: its past at every serial, and that a replay gives the same."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman import InvalidValue
from dragoman.history import (
    AgentState,
    ModelOutputEntry,
    ResetEntry,
    TakeoverEntry,
    ToolResultsEntry,
    UnknownEntry,
    entry_from_json,
    entry_to_json,
)
from dragoman.history.derived import DerivedState, advance
from dragoman.testing import histories
from tests.history_cases import Clock, closed, fresh, refused

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_the_state_before_everything_is_empty() -> None:
    past = closed().state_at(-1)
    assert (len(past.entries), past.derived) == (0, fresh().derived)


@pytest.mark.parametrize("serial", [-2, 3, "1", True])
def test_there_is_no_state_at_a_serial_that_is_not_there(serial: Any) -> None:
    with pytest.raises(InvalidValue, match="serial"):
        closed().state_at(serial)


def test_a_past_state_renders_what_a_model_saw_then() -> None:
    state = closed()
    state.reset()
    assert len(state.state_at(2).render_live_context()) == 3
    assert len(state.state_at(0).render_live_context()) == 1


def test_a_rebuilt_state_goes_on_with_the_same_session_and_serial() -> None:
    state = closed()
    rebuilt = AgentState.from_entries(state.entries, clock=Clock())
    assert rebuilt.append_model_input("b").entry_id == "s:3"
    assert len(state.entries) == 3


def test_a_fork_takes_the_parents_entries_under_a_new_session() -> None:
    fork = AgentState.from_entries(closed().entries, session_id="fork", clock=Clock())
    assert fork.append_model_input("b").entry_id == "fork:3"
    assert fork.entries[0].entry_id == "s:0"


def test_no_entries_rebuild_to_an_empty_state() -> None:
    assert AgentState.from_entries([]).derived == fresh().derived


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_entries_with_one_missing_are_refused(lost: int) -> None:
    state = closed()
    state.append_model_input("b")
    entries = [entry for entry in state.entries if entry.serial != lost]
    assert refused(lambda: AgentState.from_entries(entries)) == "serial_follows"


def test_an_entry_of_a_later_version_is_kept_in_a_rebuilt_state() -> None:
    later = UnknownEntry("later", {"a": 1}, serial=0, entry_id="s:0")
    rebuilt = AgentState.from_entries([later], clock=Clock())
    assert rebuilt.append_model_input("b").serial == 1
    assert rebuilt.entries[0] is later


def require_same_at_every_serial(state: AgentState) -> None:
    """Rebuild from the entries alone, as they are and through JSON, and compare after every entry."""
    read = [entry_from_json(entry_to_json(entry)) for entry in state.entries]
    assert read == list(state.entries)
    rebuilt = AgentState.from_entries(read)
    for serial in range(-1, len(read)):
        past = state.state_at(serial)
        assert past.entries == read[: serial + 1]
        assert past.derived == rebuilt.state_at(serial).derived
        assert past.status == rebuilt.state_at(serial).status
    assert reduce(advance, read, DerivedState()) == state.derived


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_state_of_a_long_run_is_rebuilt_at_every_serial(seed: int) -> None:
    state = histories.random_history(seed, 400)
    require_same_at_every_serial(state)
    for serial in range(0, len(state.entries), 37):
        assert AgentState.from_entries(state.entries[: serial + 1]).derived == state.state_at(serial).derived


def test_a_resumed_state_is_the_same_at_every_serial_and_in_what_follows() -> None:
    whole = histories.random_history(1, 40)
    entries, size = list(whole.entries), len(whole.entries)
    for known in (0, 1, size // 2, size):
        derived = whole.state_at(known - 1).derived
        state = AgentState.resume(list(entries), derived, session_id=whole.session_id, clock=Clock(), writer="w")
        assert state.derived == whole.derived
        for serial in range(-1, size):
            past = state.state_at(serial)
            assert past.derived == whole.state_at(serial).derived
            for earlier in (serial, max(serial - 1, -1)):
                assert past.state_at(earlier).derived == whole.state_at(earlier).derived
            assert past.entries == entries[: serial + 1]
        first, second = state.append(TakeoverEntry("a", "b")), state.append(TakeoverEntry("b", "a"))
        assert [first.entry_id, second.entry_id] == [
            f"{whole.session_id}:{size}~w1",
            f"{whole.session_id}:{size + 1}~w2",
        ]
        assert state.state_at(size - 1).derived == whole.derived


def test_a_state_is_not_resumed_from_more_entries_than_there_are() -> None:
    with pytest.raises(InvalidValue, match="derived follows from 2 entries, but there are 1"):
        AgentState.resume([ResetEntry()], DerivedState(next_serial=2), session_id="s")


@given(histories.legal_histories())
@unhurried
def test_the_state_of_any_legal_history_is_rebuilt_at_every_serial(state: AgentState) -> None:
    require_same_at_every_serial(state)


@given(histories.legal_histories(min_steps=1))
@unhurried
def test_every_result_answers_the_calls_of_the_output_before_it(state: AgentState) -> None:
    open_ids: list[str] = []
    seen: set[str] = set()
    for entry in state.entries:
        if isinstance(entry, ModelOutputEntry):
            assert open_ids == []
            open_ids = [each.tool_call_id for each in entry.tool_calls]
            assert seen.isdisjoint(open_ids)
            seen.update(open_ids)
        elif isinstance(entry, ToolResultsEntry):
            assert [result.tool_call_id for result in entry.results] == open_ids
            open_ids = []
        elif isinstance(entry, ResetEntry):
            open_ids = []


def test_generated_histories_hold_every_kind_of_entry() -> None:
    kinds = {str(entry.kind) for seed in range(24) for entry in histories.random_history(seed, 200).entries}
    assert len(kinds) == 21


def test_fewer_steps_are_a_beginning_of_the_same_history() -> None:
    long, short = (histories.random_history(5, steps).entries for steps in (60, 20))
    assert list(long[: len(short)]) == list(short)
