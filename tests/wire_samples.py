"""Answers and failures of every wire API, as the conformance kit wants them."""

import json
from typing import Any

from dragoman import ErrorCode, FinishReason, TokenUsage
from dragoman.stream.eventstream import encode_frame
from dragoman.testing.conformance import WireSample


def sse(*events: dict[str, Any], named: bool = False) -> bytes:
    lines = []
    for event in events:
        lines += [f"event: {event['type']}"] if named else []
        lines += [f"data: {json.dumps(event)}", ""]
    return "\n".join([*lines, ""]).encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC = (
    WireSample(
        name="thinking, text and a call, streamed",
        body=sse(
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "model": "claude-sonnet-4-5",
                    "usage": {"input_tokens": 9, "output_tokens": 1},
                },
            },
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Where is Zürich?"},
                {"type": "signature_delta", "signature": "c2lnbmF0dXJl"},
            ),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "One moment 🌦"}),
            *block(
                2,
                {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"city": "Zür'},
                {"type": "input_json_delta", "partial_json": 'ich"}'},
            ),
            {"type": "ping"},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
            {"type": "message_stop"},
            named=True,
        ),
        thinking="Where is Zürich?",
        text="One moment 🌦",
        tool_calls=(("toolu_1", "look_up", {"city": "Zürich"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"type": "message_stop"',
        opaque=("c2lnbmF0dXJl",),
    ),
    WireSample(
        name="redacted thinking, whole",
        content_type="application/json",
        body=json.dumps(
            {
                "id": "msg_2",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [{"type": "redacted_thinking", "data": "b3BhcXVl"}, {"type": "text", "text": "Hello."}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 3, "output_tokens": 4},
            }
        ).encode(),
        text="Hello.",
        finish=b"}",
        opaque=("b3BhcXVl",),
    ),
    WireSample(
        name="overloaded",
        status=529,
        content_type="application/json",
        body=b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
        error=ErrorCode.OVERLOADED,
    ),
    WireSample(
        name="overloaded inside a stream",
        body=sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, named=True),
        error=ErrorCode.OVERLOADED,
    ),
)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def call_piece(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": first.pop("name")} if "name" in first else {})}
    return {"index": index, **first, "function": function}


CHAT = (
    WireSample(
        name="two calls, streamed",
        body=sse(
            chunk(role="assistant", content=None),
            chunk(content="Both: "),
            chunk(tool_calls=[call_piece(0, "", id="call_a", type="function", name="look_up")]),
            chunk(tool_calls=[call_piece(0, '{"city": "Oslo"}')]),
            chunk(tool_calls=[call_piece(1, "{}", id="call_b", type="function", name="wait")]),
            chunk("tool_calls"),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}},
        )
        + b"data: [DONE]\n\n",
        text="Both: ",
        tool_calls=(("call_a", "look_up", {"city": "Oslo"}), ("call_b", "wait", {})),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"finish_reason": "tool_calls"',
        usage=TokenUsage(input_tokens=7, output_tokens=5, total_tokens=12),
    ),
    WireSample(
        name="cut by its length, whole",
        content_type="application/json",
        body=json.dumps(
            {"id": "c", "choices": [{"index": 0, "message": {"content": "Once"}, "finish_reason": "length"}]}
        ).encode(),
        text="Once",
        finish_reason=FinishReason.LENGTH,
        finish=b"}",
    ),
    WireSample(
        name="unknown key",
        status=401,
        content_type="application/json",
        body=b'{"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}',
        error=ErrorCode.AUTHENTICATION,
    ),
)

GEMINI = (
    WireSample(
        name="a signed call, streamed",
        body=sse(
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "So: "}]}}]},
            {
                "candidates": [
                    {
                        "content": {
                            "role": "model",
                            "parts": [
                                {
                                    "functionCall": {"name": "look_up", "args": {"city": "Oslo"}},
                                    "thoughtSignature": "c2lnbmF0dXJl",
                                }
                            ],
                        },
                        "finishReason": "STOP",
                    }
                ],
                "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 3, "totalTokenCount": 7},
            },
        ),
        text="So: ",
        tool_calls=((None, "look_up", {"city": "Oslo"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"finishReason": "STOP"',
        opaque=("c2lnbmF0dXJl",),
    ),
    WireSample(
        name="too many requests",
        status=429,
        content_type="application/json",
        body=b'{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}',
        error=ErrorCode.RATE_LIMITED,
    ),
)

ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Ask."}],
        "encrypted_content": "c2VhbGVk",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "One moment 🌦", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look_up",
        "arguments": '{"city": "Oslo"}',
        "status": "completed",
    },
]


def item_events(index: int, kind: str, delta: str, **further: Any) -> list[dict[str, Any]]:
    """An output item that is opened empty, filled by one delta and closed."""
    item = ITEMS[index]
    unfilled: dict[str, Any] = {"summary": [], "content": [], "arguments": "", "status": "in_progress"}
    opened = {name: unfilled.get(name, value) for name, value in item.items() if name != "encrypted_content"}
    place = {"item_id": item["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        {"type": f"response.{kind}.delta", **place, "delta": delta, **further},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def response(status: str, *output: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "gpt-5", "status": status, "output": [*output], **further}


RESPONSES = (
    WireSample(
        name="reasoning, text and a call, streamed",
        body=sse(
            {"type": "response.created", "response": response("in_progress")},
            *item_events(0, "reasoning_summary_text", "Ask.", summary_index=0),
            *item_events(1, "output_text", "One moment 🌦", content_index=0),
            *item_events(2, "function_call_arguments", '{"city": "Oslo"}'),
            {
                "type": "response.completed",
                "response": response(
                    "completed", *ITEMS, usage={"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
                ),
            },
            named=True,
        ),
        thinking="Ask.",
        text="One moment 🌦",
        tool_calls=(("call_1", "look_up", {"city": "Oslo"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'data: {"type": "response.completed"',
        usage=TokenUsage(input_tokens=9, output_tokens=4, total_tokens=13),
        opaque=("c2VhbGVk", "rs_1"),
    ),
    WireSample(
        name="cut by its length, whole",
        content_type="application/json",
        body=json.dumps(
            response("incomplete", ITEMS[1], incomplete_details={"reason": "max_output_tokens"}), ensure_ascii=False
        ).encode(),
        text="One moment 🌦",
        finish_reason=FinishReason.LENGTH,
        finish=b"}",
    ),
    WireSample(
        name="a failure inside a stream",
        body=sse(
            {"type": "response.created", "response": response("in_progress")},
            {
                "type": "response.failed",
                "response": response("failed", error={"code": "rate_limit_exceeded", "message": "Slow down."}),
            },
            named=True,
        ),
        error=ErrorCode.RATE_LIMITED,
    ),
)


def frames(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Events of an AWS event stream."""
    return b"".join(
        encode_frame({":message-type": "event", ":event-type": name}, json.dumps(payload).encode())
        for name, payload in events
    )


def converse_block(index: int, *deltas: dict[str, Any], start: dict[str, Any] | None = None) -> list[Any]:
    opened = [("contentBlockStart", {"contentBlockIndex": index, "start": start})] if start else []
    pieces = [("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas]
    return [*opened, *pieces, ("contentBlockStop", {"contentBlockIndex": index})]


BEDROCK = (
    WireSample(
        name="reasoning, text and a call, streamed",
        content_type="application/vnd.amazon.eventstream",
        body=frames(
            ("messageStart", {"role": "assistant"}),
            *converse_block(
                0, {"reasoningContent": {"text": "Ask."}}, {"reasoningContent": {"signature": "c2lnbmF0dXJl"}}
            ),
            *converse_block(1, {"text": "One moment 🌦"}),
            *converse_block(
                2,
                {"toolUse": {"input": '{"city": '}},
                {"toolUse": {"input": '"Oslo"}'}},
                start={"toolUse": {"toolUseId": "tooluse_1", "name": "look_up"}},
            ),
            ("messageStop", {"stopReason": "tool_use"}),
            ("metadata", {"usage": {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}}),
        ),
        thinking="Ask.",
        text="One moment 🌦",
        tool_calls=(("tooluse_1", "look_up", {"city": "Oslo"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'{"stopReason": "tool_use"}',
        usage=TokenUsage(input_tokens=9, output_tokens=4, total_tokens=13),
        opaque=("c2lnbmF0dXJl",),
    ),
    WireSample(
        name="text, whole",
        content_type="application/json",
        body=json.dumps(
            {"output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}}, "stopReason": "end_turn"}
        ).encode(),
        text="Hello.",
        finish=b"}",
    ),
    WireSample(
        name="throttled",
        status=429,
        content_type="application/json",
        headers={"x-amzn-errortype": "ThrottlingException"},
        body=b'{"message": "Too many requests, please wait before trying again."}',
        error=ErrorCode.RATE_LIMITED,
    ),
)

# Provider -> a model of it, and its samples. Each wire API has at least one provider here.
KITS: dict[str, tuple[str, tuple[WireSample, ...]]] = {
    "anthropic": ("claude-sonnet-4-5", ANTHROPIC),
    "openai-chat": ("gpt-4.1", CHAT),
    "groq": ("llama-3.3-70b-versatile", CHAT),
    "openai": ("gpt-5", RESPONSES),
    "google": ("gemini-3-pro-preview", GEMINI),
    "bedrock": ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", BEDROCK),
}
