"""Streams that contradict themselves are no answers: a call after the finish, a second message, another response."""

from typing import Any

import pytest

from dragoman import ErrorCode
from dragoman.stream import assemble
from dragoman.testing import decode_recorded
from tests.wire_streams import AWS, SSE, Object, block, frames, sse


def error_of(vendor: str, events: list[bytes], content_type: str = SSE) -> ErrorCode | None:
    error = assemble(decode_recorded(vendor, b"".join(events), content_type=content_type)).error
    return None if error is None else error.error_code


def message_start(**fields: Any) -> Object:
    return {"type": "message_start", "message": {"model": "c", **fields}}


def message_end(reason: str) -> list[Object]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


TEXT = block(0, {"type": "text", "text": "x"})
CALL = block(1, {"type": "tool_use", "id": "t", "name": "rm", "input": {}})
FUNCTION = {"index": 0, "id": "c", "function": {"name": "rm", "arguments": "{}"}}


@pytest.mark.parametrize("fields", [{}, {"id": "m"}])
def test_a_second_message_start_after_content_is_a_broken_stream(fields: Object) -> None:
    events = sse(message_start(**fields), *TEXT, message_start(**fields), *TEXT, *message_end("end_turn"))
    assert error_of("anthropic", events) is ErrorCode.STREAM_TRUNCATED


def test_a_message_start_that_is_repeated_at_once_is_one_message() -> None:
    events = sse(message_start(id="m"), message_start(id="m"), *TEXT, *message_end("end_turn"))
    assert error_of("anthropic", events) is None


def test_a_call_after_the_finish_is_no_answer_of_anthropic() -> None:
    delta, stop = message_end("end_turn")
    events = sse(message_start(id="m"), *TEXT, delta, *CALL, stop)
    assert error_of("anthropic", events) is ErrorCode.PROTOCOL_VIOLATION


def test_a_call_after_the_finish_is_no_answer_of_bedrock() -> None:
    events = frames(
        ("messageStart", {}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x"}}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "a", "name": "rm"}}}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
    )
    assert error_of("bedrock", events, AWS) is ErrorCode.PROTOCOL_VIOLATION


def test_a_call_after_the_finish_is_no_answer_of_gemini() -> None:
    events = sse(
        {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "rm", "args": {}}}]}}]},
    )
    assert error_of("google", events) is ErrorCode.PROTOCOL_VIOLATION


def test_a_call_after_the_finish_is_no_answer_of_chat() -> None:
    events = sse(
        {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [FUNCTION]}}]},
        "[DONE]",
    )
    assert error_of("openai-chat", events) is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("vendor", ["openai", "openai-responses-compatible"])
def test_the_end_of_another_response_is_no_answer_where_a_host_keeps_its_ids(vendor: str) -> None:
    events = sse(
        {"type": "response.created", "response": {"id": "A"}},
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "x"},
        {"type": "response.completed", "response": {"id": "B", "status": "completed", "output": []}},
    )
    assert error_of(vendor, events) is (ErrorCode.PROTOCOL_VIOLATION if vendor == "openai" else None)
