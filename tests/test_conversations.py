"""A sample of the recorded conversations, rendered for every kind of target; `tests.conversations` has them all."""

from functools import cache

import pytest

from dragoman import Message, Role, Text, Thinking, ToolCall, ToolResult
from tests.conversations import (
    TARGETS,
    VARIANTS,
    History,
    Record,
    check_history,
    collisions,
    cut_cases,
    needs_conversations,
    read_history,
    read_records,
    render,
    turn_cases,
)

EVERY = 63  # one or more of each source but the one that has a single conversation
TURNS = 2
CUTS = 1


@cache
def sample() -> list[Record]:
    return list(read_records(EVERY))


@needs_conversations
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TARGETS)
def test_every_request_is_one_that_its_target_accepts(name: str, variant: str) -> None:
    for record in sample():
        history = read_history(record, variant, TARGETS[name])
        tally = check_history(name, history, variant, turns=TURNS, cuts=CUTS)
        assert not tally.wrong, "\n".join(tally.wrong[:5])
        assert tally.counts["turn"]


@needs_conversations
def test_the_sample_has_calls_cut_off_before_and_among_their_results() -> None:
    histories = [read_history(record, "unmarked", TARGETS["anthropic"]) for record in sample()]
    kinds = {case.kind for history in histories for case in cut_cases(history)}
    assert kinds == {
        "no results",
        "no results, then the user",
        "some results",
        "some results, then the user",
    }


# The checks themselves, tried on a small conversation.

TWO_CALLS = History(
    "two calls",
    "Be brief.",
    (
        Message.user("What is the weather?"),
        Message.assistant(
            Thinking("Ask both."), Text("One moment."), ToolCall("a", "oslo", {}), ToolCall("b", "rome", {})
        ),
        Message.tool(ToolResult("a", "snow")),
        Message.tool(ToolResult("b", "sun")),
        Message.assistant("Snow and sun."),
        Message.user("Thanks."),
        Message.assistant("You are welcome."),
    ),
    (),
)


def test_turns_end_before_the_assistant_speaks() -> None:
    assert [len(case.messages) for case in turn_cases(TWO_CALLS)] == [1, 4, 6]
    assert [len(case.messages) for case in turn_cases(TWO_CALLS, 2)] == [1, 6]


def test_cuts_end_before_and_among_results() -> None:
    assert [(case.kind, len(case.messages)) for case in cut_cases(TWO_CALLS)] == [
        ("no results", 2),
        ("no results, then the user", 3),
        ("some results", 3),
        ("some results, then the user", 4),
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TARGETS)
def test_a_small_conversation_is_accepted_everywhere(name: str, variant: str) -> None:
    tally = check_history(name, TWO_CALLS, variant, turns=None, cuts=None)
    assert not tally.wrong
    assert tally.counts == {
        "turn": 3,
        "prefixes": 2,
        "no results": 1,
        "no results, then the user": 1,
        "some results": 1,
        "some results, then the user": 1,
    }


def test_a_collision_is_seen() -> None:
    calls = [{"id": "a", "function": {"name": "oslo"}}, {"id": "a", "function": {"name": "oslo"}}]
    body = {"messages": [{"role": "assistant", "tool_calls": calls}]}
    assert list(collisions(body, TWO_CALLS.messages)) == [
        "two calls have one id",
        "two tools have one name, or one has two",
    ]


def test_openai_is_told_to_store_nothing() -> None:
    for name in ("openai-chat", "openai-responses"):
        body, _ = render(TARGETS[name], TWO_CALLS, TWO_CALLS.messages[:1], "unmarked")
        assert b'"store":false' in body


def test_a_native_turn_keeps_its_signature() -> None:
    marked = read_history(
        {
            "id": "one",
            "messages": [
                {"role": "user", "parts": [{"kind": "text", "text": "Hi."}]},
                {
                    "role": "assistant",
                    "parts": [{"kind": "thinking", "text": "Hm."}, {"kind": "text", "text": "Hello."}],
                },
                {"role": "user", "parts": [{"kind": "text", "text": "Bye."}]},
            ],
        },
        "native",
        TARGETS["anthropic"],
    )
    assert [message.role for message in marked.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert b'"signature":"' in render(TARGETS["anthropic"], marked, marked.messages, "native")[0]
    assert b'"signature":"' not in render(TARGETS["openai-chat"], marked, marked.messages, "native")[0]
