"""Time over text from outside grows with its length and not with the square of it, whatever the text is made of."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Message, ToolCall, ToolResult, render_request
from dragoman.wire import find_codec
from tests.linear import FUNCTIONS, SHAPES, seconds_of
from tests.linear_events import CASES, FEW, MANY
from tests.linear_events import seconds_of as seconds_of_answer

pytestmark = pytest.mark.slow

SHORT, LONG = 25_000, 200_000
# Eight times the text may take five times eight times as long: the square would be sixty-four times.
MOST_GROWTH = 5 * LONG / SHORT
# Less than this says nothing of a growth.
LEAST_SECONDS = 0.02


def grows_too_fast(function: str, shape: str) -> bool:
    long = seconds_of(function, shape, LONG, tries=2)
    if long < LEAST_SECONDS:
        return False
    return long > MOST_GROWTH * max(seconds_of(function, shape, SHORT, tries=2), LEAST_SECONDS / MOST_GROWTH)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_time_grows_with_the_length_of_the_text(function: str) -> None:
    assert [shape for shape in SHAPES if grows_too_fast(function, shape) and grows_too_fast(function, shape)] == []


def same_id_turns(count: int) -> list[Message]:
    call, result = Message.assistant(ToolCall("call_0", "f", {})), Message.tool(ToolResult("call_0", "r"))
    return [said for _ in range(count) for said in (Message.user("u"), call, result)]


def seconds_to_render(count: int) -> float:
    messages = same_id_turns(count)
    begun = time.thread_time()
    render_request("openai:gpt-5", messages)
    return time.thread_time() - begun


def test_a_call_id_that_every_turn_repeats_costs_no_more_with_each_turn() -> None:
    assert min(seconds_to_render(4_000) for _ in range(2)) < 2.5 * 8 * min(seconds_to_render(500) for _ in range(2))


def test_a_call_id_that_20000_turns_repeat_is_handed_off() -> None:
    assert render_request("openai:gpt-5", same_id_turns(20_000)).body


# A body of each API that has many of one thing.
BODIES: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "tools": (
        "anthropic-messages",
        lambda count: {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": f"t{each}", "input_schema": {}} for each in range(count)],
        },
    ),
    "cache marks": (
        "anthropic-messages",
        lambda count: {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}] * count
        },
    ),
    "results of no call": (
        "gemini",
        lambda count: {
            "contents": [
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}] * count},
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"name": "f", "id": f"x{each}", "response": {}}} for each in range(count)
                    ],
                },
            ]
        },
    ),
    "results by order": (
        "gemini",
        lambda count: {
            "contents": [
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}] * count},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}] * count},
            ]
        },
    ),
}


def seconds_to_read(case: str, count: int) -> float:
    api, make = BODIES[case]
    body = json.dumps({"model": "m", "max_tokens": 1, **make(count)}).encode()
    read_request = find_codec(api).read_request
    assert read_request is not None
    begun = time.thread_time()
    read_request(body, model="m", stream=False)
    return time.thread_time() - begun


@pytest.mark.parametrize("case", BODIES)
def test_the_time_to_read_a_request_grows_with_its_length(case: str) -> None:
    # Eight times the length takes about ten times as long; if the time grew with the square it were 64 times.
    assert min(seconds_to_read(case, 16_000) for _ in range(2)) < 32 * min(
        seconds_to_read(case, 2_000) for _ in range(2)
    )


def grows_too_fast_by_events(case: str) -> bool:
    """Whether eight times the events take more than two and a half times eight times as long."""
    return seconds_of_answer(case, MANY) > 2.5 * MANY / FEW * seconds_of_answer(case, FEW)


@pytest.mark.parametrize("case", CASES)
def test_the_time_grows_with_the_number_of_events_of_an_answer(case: str) -> None:
    assert not (grows_too_fast_by_events(case) and grows_too_fast_by_events(case))
