"""The published policies that our contexts are measured against do what their descriptions say."""

from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TypeVar

import pytest
from bench.context_baselines import BASELINES, CLEARED, KEPT_RESULTS, LONG_RESULT, Microcompact, Record, TokenPilot

_Policy = TypeVar("_Policy", Microcompact, TokenPilot)
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def said(role: str, text: str, *, minute: int = 0) -> Record:
    stamp = (BEGUN + timedelta(minutes=minute)).isoformat()
    return {"role": role, "parts": [{"kind": "text", "text": text}], "timestamp": stamp}


def turn(number: int, result: str, *, minute: int = 0) -> list[Record]:
    """A call and its result."""
    call = {"kind": "tool_call", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.py"}}
    answer = {"kind": "tool_result", "id": f"c{number}", "name": "read", "text": result}
    stamp = (BEGUN + timedelta(minutes=minute)).isoformat()
    parts = {"assistant": call, "tool": answer}
    return [{"role": role, "parts": [part], "timestamp": stamp} for role, part in parts.items()]


def results(messages: list[Record]) -> list[str]:
    return [part["text"] for message in messages for part in message["parts"] if part["kind"] == "tool_result"]


def fed(policy: _Policy, *messages: Record) -> _Policy:
    for message in messages:
        policy.append(message)
    return policy


def turns(count: int, size: int = 400) -> list[Record]:
    return list(chain.from_iterable(turn(number, f"{number} " + "x" * size) for number in range(count)))


def test_microcompact_clears_all_results_but_the_newest_after_an_hour() -> None:
    policy = fed(Microcompact(8_000), said("user", "Go on."), *turns(9))
    whole = results(policy.render())
    policy.append(said("user", "Still there?", minute=60))
    assert results(policy.render()) == whole
    policy.append(said("user", "And now?", minute=61))
    assert results(policy.render()) == [CLEARED] * 4 + whole[-KEPT_RESULTS:]
    fed(policy, *turn(9, "short", minute=62))
    assert results(policy.render()) == [CLEARED] * 4 + whole[-KEPT_RESULTS:] + ["short"]


def test_microcompact_leaves_the_recorded_messages_as_they_were() -> None:
    recorded = turns(9)
    policy = fed(Microcompact(8_000), said("user", "Go on."), *recorded, said("user", "And now?", minute=61))
    assert CLEARED in results(policy.render())
    assert CLEARED not in results(recorded)


@pytest.mark.parametrize("factory", BASELINES.values(), ids=[str(name) for name in BASELINES])
def test_above_the_budget_the_oldest_turns_go_and_the_first_request_stays(factory: type[Microcompact]) -> None:
    policy = fed(factory(1_000), said("user", "The request."), *turns(20))
    shown = policy.render()
    assert shown[0]["parts"][0]["text"] == "The request."
    assert shown[-1] == turns(20)[-1]
    assert 2 < len(results(shown)) < 9


def test_tokenpilot_reduces_a_long_result_once() -> None:
    policy = fed(TokenPilot(8_000), said("user", "Go on."), *turn(0, "a" * 9_000 + "z" * 9_000))
    (reduced,) = results(policy.render())
    assert (reduced[0], reduced[-1]) == ("a", "z")
    assert len(reduced) < LONG_RESULT
    fed(policy, *turns(3))
    assert results(policy.render())[0] == reduced


def test_tokenpilot_changes_what_it_sent_only_when_the_budget_is_full() -> None:
    policy, sent, changes = fed(TokenPilot(2_000), said("user", "Go on.")), list[Record](), 0
    for number in range(60):
        shown = fed(policy, *turn(number, "x" * 400)).render()
        changes += shown[: len(sent)] != sent
        sent = shown
    assert 4 <= changes <= 12


def test_tokenpilot_evicts_finished_tasks_but_the_newest() -> None:
    tasks = [[said("user", f"Task {number}."), *turns(6)] for number in range(4)]
    shown = fed(TokenPilot(2_500), *chain.from_iterable(tasks)).render()
    asked = [message["parts"][0]["text"] for message in shown if message["role"] == "user"]
    assert asked == ["Task 0.", "[evicted: 13 earlier turns]", "Task 2.", "Task 3."]
