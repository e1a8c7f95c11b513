"""One rich streamed answer per wire API, written by hand in the vendors' documented form, as the events that it is of.

Tests lose, change and swap the events; `tests.corpus` has recorded ones, where they are.
"""

import json
import struct
from typing import Any, NamedTuple

from dragoman.stream import EventStreamParser
from dragoman.stream.eventstream import encode_frame
from tests.corpus import Record, body_of

SSE = "text/event-stream"
AWS = "application/vnd.amazon.eventstream"
Object = dict[str, Any]


class WireStream(NamedTuple):
    """A streamed answer: the bytes of each of its events, as they are framed."""

    name: str
    protocol: str
    vendor: str
    content_type: str
    events: list[bytes]


def recorded_stream(protocol: str, record: Record) -> WireStream:
    """A recorded answer, cut into its events."""
    content_type = record["response"]["content_type"]
    return WireStream(record["id"], protocol, record["vendor"], content_type, split(body_of(record), content_type))


def split(body: bytes, content_type: str) -> list[bytes]:
    """The events of a body, each with its framing."""
    if "eventstream" not in content_type:
        blank = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
        return [block + blank for block in body.split(blank) if block.strip()]
    events: list[bytes] = []
    while body:
        (size,) = struct.unpack_from(">I", body)
        events.append(body[:size])
        body = body[size:]
    return events


def read_event(event: bytes) -> tuple[str, Any]:
    """The name of an event and its JSON; None where it holds none."""
    if event[:1] == b"\0":
        ((name, data),) = EventStreamParser().feed(event)
    else:
        lines = event.splitlines()
        name = next((line[6:].strip().decode() for line in lines if line.startswith(b"event:")), "")
        data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
    try:
        return name, json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return name, None


def write_event(event: bytes, data: bytes) -> bytes:
    """The same event with other data."""
    if event[:1] == b"\0":
        name, _ = read_event(event)
        return encode_frame({":message-type": "event", ":event-type": name}, data)
    named = [line for line in event.splitlines() if line.startswith(b"event:")]
    return b"\n".join([*named, b"data: " + data, b"", b""])


def sse(*events: Object | str) -> list[bytes]:
    """Server-sent events, without names."""
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return [f"data: {text}\n\n".encode() for text in texts]


def frames(*events: tuple[str, Object]) -> list[bytes]:
    """Frames of AWS's event stream."""
    return [
        encode_frame({":message-type": "event", ":event-type": name}, json.dumps(value).encode())
        for name, value in events
    ]


# ---------------------------------------------------------------- Anthropic Messages


def block(index: int, start: Object, *deltas: Object) -> list[Object]:
    """The events of one content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _json_pieces(*pieces: str) -> list[Object]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]


def _message(*blocks: list[Object], reason: str) -> list[bytes]:
    start = {"id": "msg_1", "model": "claude", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}
    return sse(
        {"type": "message_start", "message": start},
        {"type": "ping"},
        *(event for events in blocks for event in events),
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 42}},
        {"type": "message_stop"},
    )


ANTHROPIC = _message(
    block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Where is "},
        {"type": "thinking_delta", "thinking": "Zürich?"},
        {"type": "signature_delta", "signature": "c2lnbmF0dXJl"},
    ),
    block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
    block(
        2,
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        *_json_pieces('{"query": ', '"Zürich"}'),
    ),
    block(3, {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "https://a.example"}]}),
    block(
        4,
        {"type": "text", "text": ""},
        {"type": "citations_delta", "citation": {"url": "https://a.example"}},
        {"type": "text_delta", "text": "One "},
        {"type": "text_delta", "text": "moment 🌦"},
    ),
    block(
        5,
        {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
        *_json_pieces('{"city": "Zür', 'ich"}'),
    ),
    block(6, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}, *_json_pieces()),
    reason="tool_use",
)
COMPACTION = _message(
    block(0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "They talked."}),
    block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Go on."}),
    reason="end_turn",
)

# ---------------------------------------------------------------- Bedrock Converse


def _delta(index: int, **delta: Any) -> tuple[str, Object]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "abc"}


def _start(index: int, **start: Any) -> tuple[str, Object]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": start}


def _stop(index: int) -> tuple[str, Object]:
    return "contentBlockStop", {"contentBlockIndex": index}


BEDROCK = frames(
    ("messageStart", {"role": "assistant"}),
    _delta(0, reasoningContent={"text": "Where is "}),
    _delta(0, reasoningContent={"text": "Zürich?"}),
    _delta(0, reasoningContent={"signature": "c2lnbmF0dXJl"}),
    _stop(0),
    _delta(1, reasoningContent={"redactedContent": "b3BhcXVl"}),
    _stop(1),
    _start(2, toolUse={"toolUseId": "srv_1", "name": "code", "type": "server_tool_use"}),
    _delta(2, toolUse={"input": '{"code": '}),
    _delta(2, toolUse={"input": '"1+1"}'}),
    _stop(2),
    _start(3, toolResult={"toolUseId": "srv_1", "status": "success", "type": "code_result"}),
    _delta(3, toolResult=[{"text": "2"}]),
    _stop(3),
    _delta(4, text="One "),
    _delta(4, text="moment."),
    _stop(4),
    _start(5, toolUse={"toolUseId": "t_1", "name": "look_up"}),
    _delta(5, toolUse={"input": '{"city": "Zür'}),
    _delta(5, toolUse={"input": 'ich"}'}),
    _stop(5),
    _start(6, toolUse={"toolUseId": "t_2", "name": "now"}),
    _delta(6, toolUse={"input": ""}),
    _stop(6),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 9, "outputTokens": 42, "totalTokens": 51}, "metrics": {"latencyMs": 1}}),
)

# ---------------------------------------------------------------- Gemini


def _parts(*parts: Object, finish: str | None = None) -> Object:
    candidate: Object = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    ends = {} if finish is None else {"finishReason": finish}
    return {"candidates": [{**candidate, **ends}], "usageMetadata": usage, "modelVersion": "gemini", "responseId": "r"}


def _partial(*pieces: Object, **fields: Any) -> Object:
    return _parts({"functionCall": {**({"partialArgs": list(pieces)} if pieces else {}), **fields}})


GEMINI = sse(
    _parts({"text": "Where is Zürich?", "thought": True}),
    _parts({"text": "One "}),
    _parts({"text": "moment."}),
    _parts({"executableCode": {"language": "PYTHON", "code": "print(2)"}}),
    _parts({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
    _parts({"functionCall": {"name": "look_up", "args": {"city": "Zürich"}}, "thoughtSignature": "c2ln"}),
    _partial(name="light", willContinue=True),
    _partial({"jsonPath": "$.room", "stringValue": "kit", "willContinue": True}, willContinue=True),
    _partial({"jsonPath": "$.room", "stringValue": "chen"}, willContinue=True),
    _partial({"jsonPath": "$.level", "numberValue": 7}, willContinue=True),
    _partial(),
    _parts(finish="STOP"),
)

# ---------------------------------------------------------------- Chat Completions


def _chunk(delta: Object, finish: str | None = None) -> Object:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def _call(index: int, arguments: str, **first: Any) -> Object:
    name = {"name": first.pop("name")} if "name" in first else {}
    return _chunk({"tool_calls": [{"index": index, **first, "function": {**name, "arguments": arguments}}]})


CHAT = sse(
    _chunk({"role": "assistant", "content": ""}),
    _chunk({"reasoning_content": "Where is "}),
    _chunk({"reasoning_content": "Zürich?"}),
    _chunk({"content": "One "}),
    _chunk({"content": "moment."}),
    _call(0, "", id="call_1", type="function", name="look_up"),
    _call(0, '{"city": "Zür'),
    _call(0, 'ich"}'),
    _call(1, "", id="call_2", type="function", name="look_up"),
    _call(1, '{"city": "Zürich"}'),
    _chunk({}, "tool_calls"),
    {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 42, "total_tokens": 51}},
    "[DONE]",
)
# llama-cpp-python 0.3 with chatml-function-calling: each fragment in both forms.
BOTH_FORMS = sse(
    _chunk({"role": "assistant"}),
    *(
        _chunk(
            {
                "role": None,
                "content": None,
                "function_call": {"name": "look_up", "arguments": fragment},
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call__0_look_up_cmpl-1",
                        "type": "function",
                        "function": {"name": "look_up", "arguments": fragment},
                    }
                ],
            }
        )
        for fragment in ("", '{"city": ', '"Zürich"', "}")
    ),
    _chunk({}, "tool_calls"),
    "[DONE]",
)

# ---------------------------------------------------------------- Responses

_REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "b3BhcXVl"}
_SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
_CALL = {
    "id": "fc_1", "type": "function_call", "status": "in_progress", "call_id": "call_1", "name": "look_up",
    "arguments": "",
}  # fmt: skip
_CUSTOM = {
    "id": "ct_1", "type": "custom_tool_call", "status": "in_progress", "call_id": "call_2", "name": "shell",
    "input": "",
}  # fmt: skip
_NOTE = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 3}
_FIRST_TEXT = {"type": "output_text", "text": "One moment.", "annotations": [_NOTE]}
_SECOND_TEXT = {"type": "output_text", "text": "Or two.", "annotations": []}
_FINAL: list[Object] = [
    {**_REASONING, "summary": [{"type": "summary_text", "text": "Where is Zürich?"}]},
    {**_SEARCH, "status": "completed", "action": {"type": "search", "query": "Zürich"}},
    {**_MESSAGE, "status": "completed", "content": [_FIRST_TEXT, _SECOND_TEXT]},
    {**_CALL, "status": "completed", "arguments": '{"city": "Zürich"}'},
    {**_CUSTOM, "status": "completed", "input": "date"},
]


def _item(step: str, index: int, item: Object) -> Object:
    return {"type": f"response.output_item.{step}", "output_index": index, "item": item}


def _event(kind: str, index: int, item: Object, **fields: Any) -> Object:
    return {"type": f"response.{kind}", "output_index": index, "item_id": item["id"], **fields}


def _text_events(content_index: int, content: Object, *pieces: str) -> list[Object]:
    place = {"content_index": content_index}
    begun = {"type": "output_text", "text": "", "annotations": []}
    return [
        _event("content_part.added", 2, _MESSAGE, **place, part=begun),
        *(_event("output_text.delta", 2, _MESSAGE, **place, delta=piece) for piece in pieces),
        _event("output_text.done", 2, _MESSAGE, **place, text=content["text"]),
        _event("content_part.done", 2, _MESSAGE, **place, part=content),
    ]


_RESPONSE = {"id": "resp_1", "object": "response", "model": "gpt", "status": "in_progress", "output": []}
RESPONSES = sse(
    {"type": "response.created", "response": _RESPONSE},
    {"type": "response.in_progress", "response": _RESPONSE},
    _item("added", 0, _REASONING),
    _event("reasoning_summary_text.delta", 0, _REASONING, summary_index=0, delta="Where is "),
    _event("reasoning_summary_text.delta", 0, _REASONING, summary_index=0, delta="Zürich?"),
    _event("reasoning_summary_text.done", 0, _REASONING, summary_index=0, text="Where is Zürich?"),
    _item("done", 0, _FINAL[0]),
    _item("added", 1, _SEARCH),
    _event("web_search_call.completed", 1, _SEARCH),
    _item("done", 1, _FINAL[1]),
    _item("added", 2, _MESSAGE),
    *_text_events(0, _FIRST_TEXT, "One ", "moment", "."),
    *_text_events(1, _SECOND_TEXT, "Or ", "two."),
    _item("done", 2, _FINAL[2]),
    _item("added", 3, _CALL),
    _event("function_call_arguments.delta", 3, _CALL, delta='{"city": "Zür'),
    _event("function_call_arguments.delta", 3, _CALL, delta='ich"}'),
    _event("function_call_arguments.done", 3, _CALL, arguments='{"city": "Zürich"}'),
    _item("done", 3, _FINAL[3]),
    _item("added", 4, _CUSTOM),
    _event("custom_tool_call_input.delta", 4, _CUSTOM, delta="date"),
    _event("custom_tool_call_input.done", 4, _CUSTOM, input="date"),
    _item("done", 4, _FINAL[4]),
    {
        "type": "response.completed",
        "response": {
            **_RESPONSE,
            "status": "completed",
            "output": _FINAL,
            "usage": {"input_tokens": 9, "output_tokens": 42, "total_tokens": 51},
        },
    },
)

STREAMS = [
    WireStream("anthropic", "anthropic-messages", "anthropic", SSE, ANTHROPIC),
    WireStream("anthropic with a compaction", "anthropic-messages", "anthropic", SSE, COMPACTION),
    WireStream("bedrock", "bedrock-converse", "bedrock", AWS, BEDROCK),
    WireStream("gemini", "gemini", "google", SSE, GEMINI),
    WireStream("chat", "openai-chat", "openai-chat", SSE, CHAT),
    WireStream("chat with each call in both forms", "openai-compatible", "llamacpp", SSE, BOTH_FORMS),
    WireStream("responses", "openai-responses", "openai", SSE, RESPONSES),
]

# ---------------------------------------------------------------- whole answers


def _whole(protocol: str, value: Object) -> WireStream:
    return WireStream(f"{protocol}, whole", protocol, "", "application/json", [json.dumps(value).encode()])


_CALLED = {"name": "look_up", "arguments": '{"city": "Zürich"}'}
_PICTURE = "data:image/png;base64,iVBORw0KGgo="
BODIES = [
    _whole(
        "anthropic-messages",
        {
            "id": "msg_1",
            "type": "message",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "Where?", "signature": "c2ln"},
                {"type": "text", "text": "One moment.", "citations": [{"url": "https://a.example"}]},
                {"type": "tool_use", "id": "t", "name": "look_up", "input": {"city": "Zürich"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 9, "output_tokens": 42, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
        },
    ),
    _whole(
        "bedrock-converse",
        {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "Where?", "signature": "c2ln"}}},
                        {"text": "One moment."},
                        {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
                        {"toolUse": {"toolUseId": "t", "name": "look_up", "input": {"city": "Zürich"}}},
                    ],
                }
            },
            "stopReason": "tool_use",
            "usage": {"inputTokens": 9, "outputTokens": 42, "totalTokens": 51},
        },
    ),
    _whole(
        "gemini",
        _parts(
            {"text": "Where?", "thought": True},
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            {"functionCall": {"name": "look_up", "args": {"city": "Zürich"}}, "thoughtSignature": "c2ln"},
            finish="STOP",
        ),
    ),
    _whole(
        "openai-compatible",
        {
            "id": "chatcmpl-1",
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "content": "One moment.",
                        "reasoning": "Where?",
                        "images": [{"type": "image_url", "image_url": {"url": _PICTURE}}],
                        "audio": {"id": "a", "data": "AAAA", "transcript": "One moment."},
                        "tool_calls": [{"id": "c", "type": "function", "function": _CALLED}],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 42, "total_tokens": 51, "cost": 0},
        },
    ),
    _whole(
        "openai-responses",
        {
            **_RESPONSE,
            "status": "completed",
            "output": [
                *_FINAL,
                {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo="},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 42, "input_tokens_details": {"cached_tokens": 1}},
        },
    ),
    _whole("openai-compatible", {"error": {"message": "No.", "type": "invalid_request_error", "code": 400}}),
    _whole("gemini", {"error": {"code": 429, "message": "No.", "details": [{"retryDelay": "3s"}]}}),
]
