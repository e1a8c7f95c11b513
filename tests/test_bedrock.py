"""Bedrock Converse: what its event streams and whole bodies come to."""

import base64
import json
from typing import Any

import pytest

from dragoman.delta import DoneDelta, ErrorDelta, MessageDelta
from dragoman.errors import ErrorCode
from dragoman.message import FinishReason, Image, Message, ProviderItem, Text, Thinking, ToolCall
from dragoman.stream import ResponseReader, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.usage import TokenUsage
from dragoman.wire.bedrock import CODEC, DIALECTS

AWS = "application/vnd.amazon.eventstream"
Frame = tuple[str, dict[str, Any]]


def delta(index: int, **content: Any) -> Frame:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": content, "p": "abc"}


def opened(index: int, **content: Any) -> Frame:
    return "contentBlockStart", {"contentBlockIndex": index, "start": content, "p": "abcd"}


def closed(index: int) -> Frame:
    return "contentBlockStop", {"contentBlockIndex": index, "p": "a"}


def stop(reason: str = "end_turn", **further: Any) -> Frame:
    return "messageStop", {"stopReason": reason, "p": "ab", **further}


START: Frame = ("messageStart", {"role": "assistant", "p": "abcdef"})
USAGE = {"inputTokens": 10, "outputTokens": 4, "totalTokens": 14}
METADATA: Frame = ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 7}, "p": "abc"})


def frames(*events: Frame) -> bytes:
    return b"".join(
        encode_frame({":message-type": "event", ":event-type": name}, json.dumps(payload).encode())
        for name, payload in events
    )


def exception(name: str, payload: bytes) -> bytes:
    return encode_frame({":message-type": "exception", ":exception-type": name}, payload)


def read(
    body: bytes, *, size: int = 0, kind: str = AWS, status: int = 200, headers: dict[str, str] | None = None
) -> list[MessageDelta]:
    given = {"content-type": kind, **(headers or {})}
    reader = ResponseReader(CODEC, DIALECTS[0], run_id="r", status=status, headers=given)
    size = size or max(len(body), 1)
    deltas = [each for place in range(0, len(body), size) for each in reader.feed(body[place : place + size])]
    deltas += reader.end()
    assert reader.bug is None
    return deltas


def message_of(*events: Frame) -> Message:
    message = assemble(read(frames(START, *events, METADATA))).message
    assert message is not None
    return message


def whole_of(content: list[dict[str, Any]], **further: Any) -> Message:
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn", **further}
    message = assemble(read(json.dumps(body).encode(), kind="application/json")).message
    assert message is not None
    return message


RICH = (
    START,
    delta(0, reasoningContent={"text": "Let me see: "}),
    delta(0, reasoningContent={"text": "naïve 🦜"}),
    delta(0, reasoningContent={"signature": "c2ln"}),
    closed(0),
    delta(1, text="Look"),
    delta(1, text="ing …"),
    closed(1),
    opened(2, toolUse={"toolUseId": "tooluse_1", "name": "look", "type": "tool_use"}),
    delta(2, toolUse={"input": ""}),
    delta(2, toolUse={"input": '{"where": '}),
    delta(2, toolUse={"input": '"über"}'}),
    closed(2),
    stop("tool_use"),
    METADATA,
)
RICH_CONTENT: list[dict[str, Any]] = [
    {"reasoningContent": {"reasoningText": {"text": "Let me see: naïve 🦜", "signature": "c2ln"}}},
    {"text": "Looking …"},
    {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"where": "über"}}},
]


# ---------------------------------------------------------------- streams


def test_an_answer_keeps_thinking_text_and_call_in_order() -> None:
    thinking, text, call = message_of(*RICH[1:-1]).parts
    assert thinking == Thinking("Let me see: naïve 🦜", provider_data={"signature": "c2ln"})
    assert text == Text("Looking …")
    assert isinstance(call, ToolCall)
    assert (call.tool_call_id, call.arguments, call.provider_data) == ("tooluse_1", {"where": "über"}, None)


def test_call_ids_that_come_again_in_one_answer_are_told_apart() -> None:
    wire_ids = ["a", "a_3", *["a"] * 48]
    blocks = [
        {"toolUse": {"toolUseId": wire_id, "name": "look", "input": {"at": place}}}
        for place, wire_id in enumerate(wire_ids)
    ]
    message = whole_of(blocks)
    ids = ["a", "a_3", *(f"a_{number}" for number in range(4, 52))]
    assert [call.tool_call_id for call in message.tool_calls] == ids


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_deltas_do_not_depend_on_how_the_bytes_were_cut(size: int) -> None:
    assert read(frames(*RICH), size=size) == read(frames(*RICH))


def test_a_stream_cut_before_the_stop_ends_in_one_truncation_error() -> None:
    body, whole = frames(*RICH), read(frames(*RICH))
    for length in range(len(frames(*RICH[:-1]))):
        *earlier, last = read(body[:length])
        assert isinstance(last, ErrorDelta)
        assert last.error_code is ErrorCode.STREAM_TRUNCATED
        assert earlier == whole[: len(earlier)]


def test_a_stream_cut_after_the_stop_is_done_without_its_usage() -> None:
    result = assemble(read(frames(*RICH[:-1]) + b"\0\0"))
    assert (result.finish_reason, result.usage) == (FinishReason.TOOL_CALLS, None)


def test_a_whole_body_gives_the_message_that_the_stream_gives() -> None:
    streamed = message_of(*RICH[1:-1])
    whole = whole_of(RICH_CONTENT, usage=USAGE, metrics={"latencyMs": 7}, stopReason="tool_use")
    assert whole.parts[:2] == streamed.parts[:2]
    assert whole.tool_calls[0].arguments == streamed.tool_calls[0].arguments
    assert whole.meta == streamed.meta


def test_a_damaged_frame_ends_the_stream() -> None:
    body = bytearray(frames(*RICH))
    body[-1] ^= 1
    *_, last = read(bytes(body))
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_an_empty_text_block_before_the_thinking_is_no_part() -> None:
    message = message_of(
        delta(0, text=""), closed(0), delta(1, reasoningContent={"text": "hm"}), closed(1), delta(2, text="a"), stop()
    )
    assert message.parts == (Thinking("hm"), Text("a"))


def test_redacted_thinking_is_kept_block_by_block() -> None:
    message = message_of(
        delta(0, reasoningContent={"redactedContent": "YQ=="}),
        closed(0),
        delta(1, reasoningContent={"redactedContent": "Yg=="}),
        delta(1, reasoningContent={"redactedContent": "Yw=="}),
        closed(1),
        stop(),
    )
    assert [part.provider_data for part in message.parts if isinstance(part, Thinking)] == [
        {"redactedContent": "YQ=="},
        {"redactedContent": base64.b64encode(b"bc").decode()},
    ]


def test_a_signature_in_pieces_is_joined() -> None:
    pieces = (delta(0, reasoningContent={"signature": "c2"}), delta(0, reasoningContent={"signature": "ln"}))
    assert message_of(*pieces, closed(0), stop()).parts == (Thinking("", provider_data={"signature": "c2ln"}),)


def test_a_call_beside_end_turn_is_still_a_tool_turn() -> None:
    call = opened(0, toolUse={"toolUseId": "a", "name": "f"})
    message = message_of(call, closed(0), stop("end_turn"))
    assert message.tool_calls[0].arguments == {}
    assert message.meta is not None
    assert (message.meta.finish_reason, message.meta.raw_finish_reason) == (FinishReason.TOOL_CALLS, "end_turn")


def test_a_call_that_the_length_limit_left_open_is_closed_and_not_whole() -> None:
    call = opened(0, toolUse={"toolUseId": "a", "name": "f"})
    message = message_of(call, delta(0, toolUse={"input": '{"x": '}), stop("max_tokens"))
    assert message.tool_calls[0].parse_error
    assert message.meta is not None
    assert message.meta.finish_reason is FinishReason.LENGTH


SERVER_CALL = {"toolUseId": "s1", "name": "nova_code_interpreter", "type": "server_tool_use"}
SERVER_RESULT = {"toolUseId": "s1", "status": "success", "type": "nova_code_interpreter_result"}


def test_what_the_providers_own_tools_did_are_items() -> None:
    message = message_of(
        opened(0, toolUse=SERVER_CALL),
        delta(0, toolUse={"input": '{"snippet": '}),
        delta(0, toolUse={"input": '"1+1"}'}),
        closed(0),
        opened(1, toolResult=SERVER_RESULT),
        delta(1, toolResult=[{"json": {"stdOut": "2"}}]),
        closed(1),
        delta(2, text="2"),
        stop(),
    )
    call = {"toolUse": {**SERVER_CALL, "input": {"snippet": "1+1"}}}
    result = {"toolResult": {**SERVER_RESULT, "content": [{"json": {"stdOut": "2"}}]}}
    expected = (ProviderItem("server_tool_use", call), ProviderItem("toolResult", result), Text("2"))
    assert message.parts == expected
    assert whole_of([call, result, {"text": "2"}]).parts == expected
    assert message.meta is not None
    assert message.meta.finish_reason is FinishReason.STOP


def test_citations_belong_to_the_text_of_their_block() -> None:
    citation = {"title": "A", "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": 3}}}
    message = message_of(delta(0, text="wet"), delta(0, citation=citation), closed(0), delta(1, text="."), stop())
    expected = (Text("wet", provider_data={"citations": [citation]}), Text("."))
    assert message.parts == expected
    cited = {"citationsContent": {"content": [{"text": "wet"}], "citations": [citation]}}
    assert whole_of([cited, {"text": "."}]).parts == expected


def test_a_picture_is_a_picture_streamed_or_whole() -> None:
    source = {"source": {"bytes": base64.b64encode(b"PNG").decode()}}
    streamed = message_of(opened(0, image={"format": "png"}), delta(0, image=source), closed(0), stop())
    assert streamed.parts == (Image("image/png", b"PNG"),)
    assert whole_of([{"image": {"format": "png", **source}}]).parts == streamed.parts


def test_a_picture_that_failed_says_why_in_an_item() -> None:
    failure = {"format": "png", "error": {"message": "no"}}
    assert whole_of([{"image": failure}]).parts == (ProviderItem("image", {"image": failure}),)


def test_a_block_of_a_new_kind_is_an_item() -> None:
    assert whole_of([{"hologram": {"x": 1}}]).parts == (ProviderItem("hologram", {"hologram": {"x": 1}}),)


def test_unknown_events_and_deltas_are_skipped_and_counted() -> None:
    reader = ResponseReader(CODEC, DIALECTS[0], headers={"content-type": AWS})
    events: tuple[Frame, ...] = (
        START,
        ("novelty", {}),
        delta(0, novelty={}),
        closed(0),
        delta(1, text="a"),
        stop(),
        METADATA,
    )
    assert isinstance(reader.feed(frames(*events))[-1], DoneDelta)
    assert reader.unknown_events == 2


# ---------------------------------------------------------------- the message


def test_input_counts_what_the_cache_did_and_the_total_is_the_providers() -> None:
    usage = {**USAGE, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 5, "totalTokens": 119}
    metadata: Frame = ("metadata", {"usage": usage, "metrics": {}})
    assert assemble(read(frames(START, delta(0, text="a"), stop(), metadata))).usage == TokenUsage(115, 4, 119, 100, 5)


def test_trace_and_further_fields_ride_on_the_message_without_the_padding() -> None:
    trace = {"guardrail": {"actionReason": "No action."}}
    metadata: Frame = ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 7}, "trace": trace, "p": "abc"})
    *_, last = read(frames(START, delta(0, text="a"), stop(additionalModelResponseFields={"x": 1}), metadata))
    assert isinstance(last, DoneDelta)
    assert last.provider_data == {
        "additionalModelResponseFields": {"x": 1},
        "usage": USAGE,
        "metrics": {"latencyMs": 7},
        "trace": trace,
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("content_filtered", FinishReason.CONTENT_FILTER),
        ("guardrail_intervened", FinishReason.CONTENT_FILTER),
        ("malformed_tool_use", FinishReason.OTHER),
        ("something_new", FinishReason.OTHER),
    ],
)
def test_a_stop_reason_becomes_ours_and_keeps_its_own_word(word: str, reason: FinishReason) -> None:
    *_, last = read(frames(START, delta(0, text="a"), stop(word), METADATA))
    assert isinstance(last, DoneDelta)
    assert (last.finish_reason, last.raw_finish_reason) == (reason, word)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("throttlingException", "Too many tokens", ErrorCode.RATE_LIMITED),
        ("modelStreamErrorException", "broke", ErrorCode.SERVER_ERROR),
        ("serviceUnavailableException", "busy", ErrorCode.OVERLOADED),
        ("validationException", "bad", ErrorCode.INVALID_REQUEST),
        ("validationException", "Input is too long for requested model.", ErrorCode.CONTEXT_OVERFLOW),
        ("internalServerException", "", ErrorCode.SERVER_ERROR),
    ],
)
def test_an_exception_inside_the_stream_is_an_error_of_its_kind(name: str, message: str, code: ErrorCode) -> None:
    payload = json.dumps({"message": message}).encode() if message else b""
    *_, last = read(frames(START, delta(0, text="a")) + exception(name, payload))
    assert isinstance(last, ErrorDelta)
    assert (last.error_code, last.provider_message) == (code, message or None)


def test_an_exception_after_the_stop_is_still_an_error() -> None:
    *_, last = read(frames(START, delta(0, text="a"), stop()) + exception("modelStreamErrorException", b"{}"))
    assert isinstance(last, ErrorDelta)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "ValidationException:http://x.test/", ErrorCode.INVALID_REQUEST),
        (403, "AccessDeniedException", ErrorCode.PERMISSION),
        (403, "ExpiredTokenException", ErrorCode.AUTHENTICATION),
        (404, "ResourceNotFoundException", ErrorCode.NOT_FOUND),
        (424, "ModelErrorException", ErrorCode.SERVER_ERROR),
        (429, "ThrottlingException", ErrorCode.RATE_LIMITED),
    ],
)
def test_a_refusal_is_named_by_its_header(status: int, kind: str, code: ErrorCode) -> None:
    headers = {"x-amzn-errortype": kind, "x-amzn-requestid": "q1"}
    (last,) = read(b'{"message": "no"}', kind="application/json", status=status, headers=headers)
    assert isinstance(last, ErrorDelta)
    assert (last.error_code, last.request_id, last.provider_message) == (code, "q1", "no")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"output": 7}', b'{"output": {"message": {"content": [7]}}}', b""]
)
def test_a_body_that_is_no_message_is_a_protocol_violation(body: bytes) -> None:
    *_, last = read(body, kind="application/json")
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "event",
    [
        ("contentBlockStart", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"contentBlockIndex": 0}),
        opened(0, toolUse={"name": "f"}),
        delta(0, toolUse={"input": "{}"}),
        delta(0, text=["x"]),
    ],
)
def test_an_event_that_breaks_the_protocol_ends_the_stream(event: Frame) -> None:
    *_, last = read(frames(START, event, stop(), METADATA))
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION
