"""Gemini generateContent: what its chunks and whole answers say as deltas, and that they go back as they came."""

import base64
import json
from typing import Any

import pytest

from dragoman.errors import ErrorCode
from dragoman.message import (
    FinishReason,
    Image,
    Message,
    ProviderItem,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.request import ModelConfig, ModelRequest
from dragoman.stream import Assembly, ResponseReader, assemble
from dragoman.toolspec import ToolSpec
from dragoman.usage import TokenUsage
from dragoman.wire.gemini import CODEC, DIALECTS

GOOGLE = DIALECTS[0]
SSE = "text/event-stream"
JSON = "application/json; charset=UTF-8"
PIXEL = b"\x89PNG pixel"
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    candidate.update(fields.pop("candidate", {}))
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash", "responseId": "resp1", **fields}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\r\n\r\n" for value in chunks)


def read(body: bytes, content_type: str = SSE, status: int = 200, step: int | None = None) -> list[Any]:
    reader = ResponseReader(CODEC, GOOGLE, status=status, headers={"content-type": content_type})
    deltas: list[Any] = []
    for start in range(0, len(body), step or len(body) or 1):
        deltas += reader.feed(body[start : start + (step or len(body))])
    deltas += reader.end()
    assert reader.bug is None
    return deltas


def answer(*chunks: dict[str, Any]) -> Assembly:
    return assemble(read(sse(*chunks)))


def whole(value: Any) -> Assembly:
    return assemble(read(json.dumps(value).encode(), JSON))


def parts(*chunks: dict[str, Any]) -> tuple[Any, ...]:
    message = answer(*chunks).message
    assert message is not None
    return message.parts


def body_of(
    *messages: Message, model: str = "gemini-2.5-flash", dialect: Any = GOOGLE, **fields: Any
) -> dict[str, Any]:
    settings = {name: fields.pop(name) for name in list(fields) if name in ModelConfig.__struct_fields__}
    request = ModelRequest(config=ModelConfig(model, **settings), messages=messages, **fields)
    decoded: dict[str, Any] = json.loads(CODEC.encode_request(request, dialect).body)
    return decoded


def replayed(*received: dict[str, Any], model: str = "gemini-3-flash") -> list[dict[str, Any]]:
    message = answer(*received).message
    assert message is not None
    results = [Message.tool(ToolResult(call.tool_call_id, "ok")) for call in message.tool_calls]
    contents = body_of(Message.user("go"), message, *results, model=model)["contents"]
    turn: list[dict[str, Any]] = contents[1]["parts"]
    return turn


USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
STREAM = (
    chunk({"text": "Let me ", "thought": True}, usageMetadata=USAGE),
    chunk({"text": "see", "thought": True}),
    chunk({"text": "It is "}),
    chunk({"text": "4 \U0001f600", "thoughtSignature": "sig1"}),
    chunk({"functionCall": {"name": "add", "args": {"b": 2.5, "a": 1}}, "thoughtSignature": "sig2"}),
    chunk({"text": ""}, finish="STOP", usageMetadata={**USAGE, "thoughtsTokenCount": 9, "totalTokenCount": 16}),
)


def test_pieces_join_until_a_signature_closes_its_part() -> None:
    assert parts(*STREAM) == (
        Thinking("Let me see"),
        Text("It is "),
        Text("4 \U0001f600", provider_data={"thoughtSignature": "sig1"}),
        ToolCall(
            "call_0_resp1",
            "add",
            {"b": 2.5, "a": 1},
            '{"b":2.5,"a":1}',
            provider_data={"thoughtSignature": "sig2", "id": ""},
        ),
    )


@pytest.mark.parametrize("step", [1, 7, 64])
def test_deltas_do_not_depend_on_how_the_bytes_are_cut(step: int) -> None:
    assert read(sse(*STREAM), step=step) == read(sse(*STREAM))


def test_every_prefix_before_the_finish_reason_ends_in_one_error() -> None:
    body = sse(*STREAM)
    full = read(body)
    finished = len(body) - len(b"\r\n\r\n")
    for cut in range(len(body) + 1):
        deltas = read(body[:cut])
        if cut < finished:
            assert deltas[-1].kind == "error"
            assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED
            assert deltas[:-1] == full[: len(deltas) - 1]
        else:
            assert deltas == full


def test_a_whole_answer_gives_the_same_parts_as_a_stream_of_them() -> None:
    pieces = [part for value in STREAM for part in value["candidates"][0]["content"]["parts"]]
    joined = [{"text": "Let me see", "thought": True}, *pieces[2:]]
    result = whole(chunk(*joined, finish="STOP", usageMetadata=STREAM[-1]["usageMetadata"]))
    assert result.message is not None
    assert result.message.parts == parts(*STREAM)
    assert result.finish_reason is FinishReason.TOOL_CALLS


def test_a_stream_that_comes_as_one_json_array_is_read_too() -> None:
    result = whole(list(STREAM))
    assert result.message is not None
    assert result.message.parts == parts(*STREAM)
    assert whole(list(STREAM[:-1])).error is not None


def test_a_whole_answer_without_a_finish_reason_is_done_for_an_unknown_reason() -> None:
    result = whole(chunk({"text": "hi"}))
    assert (result.finish_reason, result.raw_finish_reason) == (FinishReason.OTHER, None)


def test_a_call_finishes_an_answer_that_only_says_stop() -> None:
    result = answer(*STREAM)
    assert (result.finish_reason, result.raw_finish_reason) == (FinishReason.TOOL_CALLS, "STOP")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("IMAGE_SAFETY", FinishReason.CONTENT_FILTER),
        ("MALFORMED_FUNCTION_CALL", FinishReason.OTHER),
        ("SOMETHING_NEW", FinishReason.OTHER),
    ],
)
def test_the_finish_reason_keeps_the_apis_own_word(word: str, reason: FinishReason) -> None:
    result = answer(chunk({"text": "x"}, finish=word))
    assert (result.finish_reason, result.raw_finish_reason) == (reason, word)


@pytest.mark.parametrize("word", ["STOP", "FUNCTION_CALL"])  # the second is aimock's
def test_an_answer_that_ends_in_calls_finishes_for_them(word: str) -> None:
    result = answer(chunk({"functionCall": {"name": "f", "args": {}}}, finish=word))
    assert (result.finish_reason, result.raw_finish_reason) == (FinishReason.TOOL_CALLS, word)


def test_a_blocked_prompt_is_done_and_not_an_error() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT"}
    result = answer({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}})
    assert (result.finish_reason, result.raw_finish_reason) == (FinishReason.CONTENT_FILTER, "block:PROHIBITED_CONTENT")
    assert result.message is not None
    assert result.message.meta is not None
    assert (result.message.meta.provider_data or {})["promptFeedback"] == feedback


@pytest.mark.parametrize("content", [{"content": {"role": "model"}}, {"content": {}}, {"content": None}, {}])
def test_a_candidate_without_content_is_an_empty_answer(content: dict[str, Any]) -> None:
    result = whole({"candidates": [{**content, "finishReason": "MAX_TOKENS"}]})
    assert result.message is not None
    assert result.message.parts == ()
    assert result.finish_reason is FinishReason.LENGTH


def test_usage_counts_tool_prompts_as_input_and_thoughts_as_output() -> None:
    report = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 30,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 6,
        "cachedContentTokenCount": 8,
        "totalTokenCount": 50,
    }
    assert answer(chunk({"text": "x"}, finish="STOP", usageMetadata=report)).usage == TokenUsage(
        input_tokens=40, output_tokens=10, total_tokens=50, cache_read_tokens=8, reasoning_tokens=6
    )


def test_a_later_report_replaces_what_it_has_and_keeps_what_it_leaves_out() -> None:
    first = {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14, "cachedContentTokenCount": 4}
    last = {"promptTokenCount": 12, "thoughtsTokenCount": 3, "totalTokenCount": 15}
    result = answer(chunk({"text": "x"}, usageMetadata=first), chunk({"text": "y"}, finish="STOP", usageMetadata=last))
    assert result.usage == TokenUsage(
        input_tokens=12, output_tokens=3, total_tokens=15, cache_read_tokens=4, reasoning_tokens=3
    )
    assert result.message is not None
    assert result.message.meta is not None
    assert (result.message.meta.provider_data or {})["usage"] == last


def test_usage_after_the_finish_reason_still_counts() -> None:
    result = answer(chunk({"text": "x"}, finish="STOP"), {"usageMetadata": USAGE})
    assert result.usage == TokenUsage(input_tokens=5, output_tokens=2, total_tokens=7)


def test_an_id_of_the_api_is_kept() -> None:
    (call,) = parts(chunk({"functionCall": {"name": "add", "args": {}, "id": "c1"}}, finish="STOP"))
    assert (call.tool_call_id, call.provider_data) == ("c1", None)


def test_argument_numbers_and_their_order_survive() -> None:
    raw = b'{"z": 0.1, "a": 1.0, "big": 12345678901234567890123, "deep": {"y": [1, null, true]}}'
    body = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":' + raw
    message = assemble(read(body + b'}}]},"finishReason":"STOP"}]}', JSON)).message
    assert message is not None
    assert message.tool_calls[0].raw_args_text == raw.decode().replace(" ", "")


def test_streamed_arguments_are_put_together_by_their_paths() -> None:
    pieces = [
        {"jsonPath": "$.city", "stringValue": "Bos", "willContinue": True},
        {"jsonPath": "$.city", "stringValue": "ton"},
        {"jsonPath": "$.rooms[0]['the name']", "stringValue": "blue"},
        {"jsonPath": "$.rooms[1].lit", "boolValue": False},
        {"jsonPath": "$.degrees", "numberValue": 21},
        {"jsonPath": "$.note", "nullValue": "NULL_VALUE"},
    ]
    (call,) = parts(
        chunk({"functionCall": {"name": "set", "willContinue": True}, "thoughtSignature": "s"}),
        *(chunk({"functionCall": {"partialArgs": [piece], "willContinue": True}}) for piece in pieces),
        chunk({"functionCall": {}}, finish="STOP"),
    )
    rooms = [{"the name": "blue"}, {"lit": False}]
    assert call.arguments == {"city": "Boston", "rooms": rooms, "degrees": 21, "note": None}
    assert call.provider_data == {"thoughtSignature": "s", "id": ""}


def test_streamed_arguments_that_did_not_arrive_whole_cannot_be_used() -> None:
    piece = {"jsonPath": "$.path", "stringValue": "/tmp/a", "willContinue": True}
    (call,) = parts(
        chunk({"functionCall": {"name": "delete", "partialArgs": [piece], "willContinue": True}}),
        chunk(finish="MAX_TOKENS"),
    )
    assert call.arguments is None
    assert call.parse_error


@pytest.mark.parametrize(
    "piece",
    [
        {"jsonPath": "path", "numberValue": 1},
        {"jsonPath": "$", "numberValue": 1},
        {"jsonPath": "$.a[5]", "numberValue": 1},
        {"jsonPath": "$.a..b", "numberValue": 1},
        {"numberValue": 1},
    ],
)
def test_a_piece_of_arguments_without_a_place_is_an_error(piece: dict[str, Any]) -> None:
    result = answer(chunk({"functionCall": {"name": "f", "partialArgs": [piece]}}, finish="STOP"))
    assert result.error is not None
    assert result.error.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_what_only_the_api_understands_is_kept_whole_and_in_order() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "print(4)"}, "thoughtSignature": "s1"}
    output = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n"}}
    search = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1"}, "thoughtSignature": "s2"}
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}
    future = {"somethingNew": {"x": 1}}
    assert parts(chunk(code, {"text": ""}), chunk(output), chunk(search, sound, future, finish="STOP")) == (
        ProviderItem("executableCode", code, "```python\nprint(4)\n```"),
        ProviderItem("codeExecutionResult", output, "```\n4\n\n```"),
        ProviderItem("toolCall", search),
        ProviderItem("inlineData", sound),
        ProviderItem("somethingNew", future),
    )


def test_a_picture_is_an_image_and_a_draft_among_the_thoughts_is_not() -> None:
    blob = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}}
    draft, picture = parts(chunk({**blob, "thought": True}, {**blob, "thoughtSignature": "s"}, finish="STOP"))
    assert isinstance(draft, ProviderItem)
    assert picture == Image("image/png", PIXEL, provider_data={"thoughtSignature": "s"})


def test_only_the_first_candidate_is_the_answer() -> None:
    both = chunk({"text": "one"})
    both["candidates"].append({"content": {"parts": [{"text": "two"}]}, "index": 1, "finishReason": "STOP"})
    other = chunk({"text": "two"}, candidate={"index": 1})
    assert parts(both, other, chunk({"text": "!"}, finish="STOP")) == (Text("one!"),)


def test_metadata_of_the_answer_rides_on_the_message() -> None:
    token = {"token": "x", "logProbability": -0.5}
    logprobs = {"logprobsResult": {"chosenCandidates": [token]}}
    result = answer(
        chunk({"text": "x"}, candidate={**logprobs, "groundingMetadata": {}}),
        chunk({"text": "x"}, finish="STOP", candidate={**logprobs, "groundingMetadata": {"webSearchQueries": ["q"]}}),
    )
    assert result.message is not None
    assert result.message.meta is not None
    data = result.message.meta.provider_data or {}
    assert data["groundingMetadata"] == {"webSearchQueries": ["q"]}
    assert data["logprobsResult"] == {"chosenCandidates": [token, token]}
    assert (result.message.meta.model_id, result.message.meta.request_id) == ("gemini-3-flash", "resp1")


def test_halves_of_a_character_in_two_chunks_are_joined() -> None:
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"\\ud83d"}]}}]}\n\n'
    body += b'data: {"candidates":[{"content":{"parts":[{"text":"\\ude00"}]},"finishReason":"STOP"}]}\n\n'
    message = assemble(read(body)).message
    assert message is not None
    assert message.text == "\U0001f600"


def test_an_unknown_chunk_is_skipped_and_counted() -> None:
    reader = ResponseReader(CODEC, GOOGLE, headers={"content-type": SSE})
    deltas = reader.feed(sse({"heartbeat": 1}, chunk({"text": "x"}, finish="STOP"))) + reader.end()
    assert deltas[-1].kind == "done"
    assert reader.unknown_events == 1


def test_an_error_inside_a_stream_ends_it() -> None:
    failure = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    result = answer(chunk({"text": "x"}), failure)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.OVERLOADED


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"hello": 1}',
        b'{"candidates": [{"content": {"parts": "x"}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": 3}]}}]}',
        b"[" * 100_000,
        b"[3]",
    ],
)
def test_an_answer_of_another_shape_is_an_error(body: bytes) -> None:
    last = read(body, JSON)[-1]
    assert (last.kind, last.error_code) == ("error", ErrorCode.PROTOCOL_VIOLATION)


@pytest.mark.parametrize("call", [{}, [], 0.0, False])
def test_a_function_call_that_holds_nothing_is_a_lost_one(call: Any) -> None:
    last = read(sse(chunk({"functionCall": call}, finish="STOP")))[-1]
    assert (last.kind, last.error_code) == ("error", ErrorCode.STREAM_TRUNCATED)


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, ErrorCode.AUTHENTICATION),
        (400, {"status": "INVALID_ARGUMENT", "message": "bad field"}, ErrorCode.INVALID_REQUEST),
        (
            400,
            {"status": "INVALID_ARGUMENT", "message": "The input token count (9) exceeds the maximum number of tokens"},
            ErrorCode.CONTEXT_OVERFLOW,
        ),
        (403, {"status": "PERMISSION_DENIED"}, ErrorCode.PERMISSION),
        (404, {"status": "NOT_FOUND"}, ErrorCode.NOT_FOUND),
        (429, {"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "3.5s"}]}, ErrorCode.RATE_LIMITED),
        (500, {"status": "INTERNAL"}, ErrorCode.SERVER_ERROR),
        (504, {"status": "DEADLINE_EXCEEDED"}, ErrorCode.TIMEOUT),
    ],
)
def test_each_failure_has_its_code(status: int, error: dict[str, Any], code: ErrorCode) -> None:
    (delta,) = read(json.dumps([{"error": {"code": status, **error}}]).encode(), JSON, status)
    assert delta.error_code is code
    assert delta.retry_after == (3.5 if status == 429 else None)


# ---------------------------------------------------------------- back again


def test_a_turn_goes_back_as_it_came() -> None:
    received: list[dict[str, Any]] = [
        {"text": "hm", "thought": True},
        {"text": "I look.", "thoughtSignature": "s0"},
        {"functionCall": {"name": "add", "args": {"b": 2, "a": 1}, "id": "c1"}, "thoughtSignature": "s1"},
        {"functionCall": {"name": "add", "args": {}}},
        {"functionCall": {"name": "now"}},
        {"toolCall": {"id": "t1", "args": {"q": ["x"]}}, "thoughtSignature": "s2"},
        {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}, "thoughtSignature": "s3"},
        {"text": "", "thoughtSignature": "s4"},
        {"thoughtSignature": "s5"},
    ]
    assert replayed(chunk(*received, finish="STOP")) == received


def test_results_carry_the_name_and_wire_id_of_their_calls_in_one_content() -> None:
    message = answer(
        chunk({"functionCall": {"name": "add", "args": {}, "id": "c1"}}, {"functionCall": {"name": "now", "args": {}}}),
        chunk(finish="STOP"),
    ).message
    assert message is not None
    first, second = (call.tool_call_id for call in message.tool_calls)
    contents = body_of(
        Message.user("go"),
        message,
        Message.tool(ToolResult(first, {"sum": 3})),
        Message.tool(ToolResult(second, "no clock", is_error=True)),
        Message.user("and?"),
    )["contents"]
    assert contents[2:] == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"output": {"sum": 3}}, "id": "c1"}},
                {"functionResponse": {"name": "now", "response": {"error": "no clock"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "and?"}]},
    ]


def test_the_same_conversation_gives_the_same_bytes() -> None:
    message = answer(*STREAM).message
    assert message is not None
    request = ModelRequest(config=ModelConfig("gemini-3-flash"), messages=(Message.user("go"), message), tools=(ADD,))
    assert CODEC.encode_request(request, GOOGLE) == CODEC.encode_request(request, GOOGLE)
