"""What a model's own answer brings back to it is of the types that its API takes, whatever the answer was."""

import json
from typing import Any

import pytest

from dragoman import ErrorCode, Message, ToolResult, render_request
from dragoman.message import ModelInvocationDescriptor
from dragoman.stream import Assembly, assemble
from dragoman.testing import decode_recorded, validate_request
from dragoman.wire import find_dialect
from tests.wire_streams import AWS, SSE, Object, block, frames, sse

CLAUDE, NOVA = "anthropic:claude-sonnet-4-5", "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def read(model: str, body: bytes, content_type: str) -> Assembly:
    provider, _, model_id = model.partition(":")
    maker = ModelInvocationDescriptor(provider, find_dialect(provider, model_id).specification, model_id)
    return assemble(decode_recorded(provider, body, content_type=content_type), invocation=maker)


def anthropic(*events: Object, reason: str = "end_turn") -> Assembly:
    start = {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": reason}}
    return read(CLAUDE, b"".join(sse(start, *events, stop, {"type": "message_stop"})), SSE)


def bedrock(*events: tuple[str, Object], reason: str = "end_turn") -> Assembly:
    stop = ("messageStop", {"stopReason": reason})
    return read(NOVA, b"".join(frames(("messageStart", {}), *events, stop)), AWS)


def bedrock_block(start: Object, *deltas: Object) -> list[tuple[str, Object]]:
    added = [("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta}) for delta in deltas]
    opened: list[tuple[str, Object]] = (
        [("contentBlockStart", {"contentBlockIndex": 0, "start": start})] if start else []
    )
    return [*opened, *added, ("contentBlockStop", {"contentBlockIndex": 0})]


def bedrock_body(content: Object) -> Assembly:
    message = {"role": "assistant", "content": [content, {"text": "hi"}]}
    body = {"output": {"message": message}, "stopReason": "end_turn"}
    return read(NOVA, json.dumps(body).encode(), "application/json")


def problems_of(answer: Assembly, model: str) -> list[str]:
    """Why the model that gave the answer would refuse it."""
    assert answer.message is not None, answer.error
    results = [Message.tool(ToolResult(call.tool_call_id, "seen")) for call in answer.message.tool_calls]
    history = [Message.user("begin"), answer.message, *results, Message.user("go on")]
    request = render_request(model, history, max_tokens=1_000)
    provider, _, model_id = model.partition(":")
    return validate_request(provider, request.body, model=model_id, path=request.path)


CITED = {"type": "citations_delta", "citation": 1}
KEPT = {
    "citations": anthropic(*block(0, {"type": "text", "text": "x", "citations": [1, None]}, CITED)),
    "redacted": anthropic(
        *block(0, {"type": "redacted_thinking", "data": 5}), *block(1, {"type": "text", "text": "x"})
    ),
    "call": anthropic(
        *block(0, {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": 5, "zzz": 1}), reason="tool_use"
    ),
}
BEDROCK_KEPT = {
    "citations": bedrock(*bedrock_block({}, {"text": "x"}, {"citation": 5}, {"citation": None})),
    "call": bedrock(*bedrock_block({"toolUse": {"toolUseId": "a", "name": "f", "zzz": 1}}), reason="tool_use"),
    "whole citations": bedrock_body({"citationsContent": {"content": [{"text": "x"}], "citations": [5, None]}}),
    "citations that are no list": bedrock_body({"citationsContent": {"content": 5, "citations": 5}}),
}
PNG = {"bytes": "iVBORw0KGgo="}
REFUSED = {
    "type that is an object": anthropic(*block(0, {"type": {"a": 1}})),
    "type that is a number": anthropic(*block(0, {"type": 5})),
    "no type": anthropic(*block(0, {"a": 1})),
    "summary": anthropic(*block(0, {"type": "compaction", "content": 5})),
    "summary in a delta": anthropic(*block(0, {"type": "compaction"}, {"type": "compaction_delta", "content": [1]})),
    "server tool": anthropic(*block(0, {"type": "server_tool_use", "id": 5, "name": 7, "input": "x"})),
    "server result": anthropic(*block(0, {"type": "web_search_tool_result", "tool_use_id": "s", "content": 7})),
    "bedrock result's id": bedrock(*bedrock_block({"toolResult": {"toolUseId": 5}}, {"toolResult": [{"text": "a"}]})),
    "bedrock result's content": bedrock(*bedrock_block({"toolResult": {"toolUseId": "a"}}, {"toolResult": [1, None]})),
    "bedrock server tool": bedrock(
        *bedrock_block(
            {"toolUse": {"toolUseId": 5, "name": "f", "type": "server_tool_use"}}, {"toolUse": {"input": "{}"}}
        )
    ),
    "bedrock picture": bedrock(*bedrock_block({"image": {"format": "png\r\nX: y", "source": PNG}})),
    "bedrock video": bedrock_body({"video": 5}),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_anthropic_answer_with_odd_fields_can_go_back(name: str) -> None:
    assert problems_of(KEPT[name], CLAUDE) == []


@pytest.mark.parametrize("name", BEDROCK_KEPT)
def test_a_bedrock_answer_with_odd_fields_can_go_back(name: str) -> None:
    assert problems_of(BEDROCK_KEPT[name], NOVA) == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_block_that_its_api_would_not_take_back_is_no_answer(name: str) -> None:
    error = REFUSED[name].error
    assert error is not None
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("kind", [{"a": 1}, [1], 5, None])
def test_the_validator_refuses_a_type_that_is_no_text(kind: Any) -> None:
    content = [{"type": kind, "text": "x"}]
    messages = {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": content}]}
    assert validate_request("anthropic", messages)
    assert validate_request("openai", {"model": "gpt-5", "input": "x", "tools": [{"type": kind}]})
