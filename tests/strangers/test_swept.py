"""Answers with one place changed end legally and in a documented way, whatever the place and whatever the state."""

import json

import pytest

from dragoman import ErrorCode
from dragoman.stream import assemble
from dragoman.testing import decode_recorded
from tests.strangers.swept import faults
from tests.wire_answers import error_of
from tests.wire_streams import AWS, SSE, Object, frames, sse

DIGITS = "1" * 5_000
START: tuple[str, Object] = ("messageStart", {})
STOP: tuple[str, Object] = ("messageStop", {"stopReason": "tool_use"})
CALL = {"toolUse": {"toolUseId": "a", "name": "f"}}
SERVER_CALL = {"toolUse": {"toolUseId": "a", "name": "f", "type": "server_tool_use"}}


@pytest.mark.slow
def test_every_field_of_every_event_may_have_any_type_in_any_state() -> None:
    assert list(faults()) == []


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": DIGITS, "message": "x"}},
        {"error": {"status": DIGITS}},
        {"choices": [{"index": 0, "error": {"status_code": DIGITS}, "delta": {}}]},
    ],
)
def test_an_error_code_of_thousands_of_digits_is_an_error_of_the_provider(body: dict[str, object]) -> None:
    streamed = assemble(decode_recorded("openai-chat", b"".join(sse(body)), content_type=SSE))
    whole = assemble(decode_recorded("openai-chat", json.dumps(body).encode(), content_type="application/json"))
    assert ErrorCode.INTERNAL not in (error_of(streamed), error_of(whole))


@pytest.mark.parametrize(
    ("start", "delta"),
    [
        ({"image": {"format": "png"}}, {"image": {"x": 1}, "toolResult": [1, 2]}),
        (CALL, {"toolUse": None, "toolResult": [1]}),
        (SERVER_CALL, {"toolUse": None, "toolResult": [1]}),
    ],
)
def test_a_bedrock_delta_for_another_kind_of_block_is_a_lost_block(
    start: dict[str, object], delta: dict[str, object]
) -> None:
    opened = ("contentBlockStart", {"contentBlockIndex": 0, "start": start})
    added = ("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})
    events = frames(START, opened, added, ("contentBlockStop", {"contentBlockIndex": 0}), STOP)
    answer = assemble(decode_recorded("bedrock", b"".join(events), content_type=AWS))
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED
