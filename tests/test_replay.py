"""What a provider said goes back to it unchanged, in every recorded answer and against every recorded follow-up."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.corpus import PROTOCOLS, needs_corpus, records
from tests.replay import Turn, departures, differences, faults, habits, ours_for, pairs

pytestmark = needs_corpus

# How many answers the recordings repeat in a later request. A change here is a change of the matching.
MATCHED = {
    "openai-chat": 74,
    "openai-compatible": 48,
    "openai-responses": 133,
    "anthropic-messages": 127,
    "gemini": 331,
    "bedrock-converse": 76,
}
SEALED = {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "redactedContent", "data"}
IDS = {"id", "call_id", "toolUseId", "tool_use_id"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_answer_goes_back_as_it_was_said(protocol: str) -> None:
    answers = [record for record in records(protocol) if record["expect"] is not None and record["request"]]
    assert {record["id"]: found for record in answers if (found := faults(protocol, record))} == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_difference_to_a_recorded_follow_up_is_ours(protocol: str) -> None:
    repeated = list(pairs(protocol))
    assert len(repeated) >= MATCHED[protocol]
    found = {pair.request["id"]: [reason for reason in habits(pair) if reason.startswith("ours")] for pair in repeated}
    assert {request: ours for request, ours in found.items() if ours} == {}


def test_what_openai_sends_in_a_chat_is_repeated_to_the_letter() -> None:
    assert [pair.request["id"] for pair in pairs("openai-chat") if habits(pair)] == []


def places(value: Any, names: set[str]) -> Iterator[tuple[Any, str]]:
    """Every object inside a turn that has text in one of the fields, with the field."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names and isinstance(inner, str) and inner:
                yield value, name
            yield from places(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner, names)


def spoil(turn: Turn, names: set[str]) -> bool:
    """Change one letter of the first such field; whether there was one."""
    found = next(places(turn, names), None)
    if found is not None:
        owner, name = found
        owner[name] = ("x" if owner[name][0] != "x" else "y") + owner[name][1:]
    return found is not None


def swap(turn: Turn) -> bool:
    """Change the order of the first two blocks, where they differ."""
    if len(turn) < 2 or turn[0] == turn[1]:
        return False
    turn[0], turn[1] = turn[1], turn[0]
    return True


def cut(turn: Turn) -> bool:
    """Leave the last block out."""
    return bool(turn and turn.pop())


CHANGES: dict[str, Callable[[Turn], bool]] = {
    "signature": lambda turn: spoil(turn, SEALED),
    "id": lambda turn: spoil(turn, IDS),
    "arguments": lambda turn: spoil(turn, {"arguments", "name"}),
    "text": lambda turn: spoil(turn, {"text", "thinking", "content"}),
    "order": swap,
    "left out": cut,
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_comparison_notices_every_change(change: str) -> None:
    """Chat streams aside, of which only content and calls are compared."""
    changed = 0
    for protocol in PROTOCOLS:
        answers = [record for record in records(protocol) if record["expect"] is not None and record["request"]]
        for answer in answers[::10]:
            turn = copy.deepcopy(ours_for(protocol, answer))
            beside = [block for block in turn if "further" in block]
            if CHANGES[change](turn) and not (answer["streaming"] and beside):
                changed += 1
                assert departures(protocol, answer, turn), answer["id"]
    assert changed >= 10


def test_a_difference_names_its_place_and_both_values() -> None:
    left, right = {"a": [{"b": 1}, 2]}, {"a": [{"b": 3}], "c": None}
    assert list(differences(left, right)) == [("a[].b", 1, 3), ("a[]", 2, ...), ("c", ..., None)]
