"""Anthropic Messages: what its events and whole bodies come to, on each of its hosts."""

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest

from dragoman.delta import DoneDelta, ErrorDelta, MessageDelta
from dragoman.errors import ErrorCode
from dragoman.message import FinishReason, Message, ProviderItem, Text, Thinking, ToolCall
from dragoman.stream import ResponseReader, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.usage import TokenUsage
from dragoman.wire.anthropic import CODEC, DIALECTS, AnthropicDialect

HOSTS: dict[str, AnthropicDialect] = {dialect.provider: dialect for dialect in DIALECTS}
Event = dict[str, Any]


def start(**usage: Any) -> Event:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    return {"type": "message_start", "message": {**message, "usage": usage}}


def opened(index: int, **block: Any) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: int, kind: str, **delta: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def closed(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def ending(reason: str = "end_turn", **usage: Any) -> list[Event]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def text_block(index: int, *pieces: str) -> list[Event]:
    return [
        opened(index, type="text", text=""),
        *(added(index, "text_delta", text=piece) for piece in pieces),
        closed(index),
    ]


def sse(events: Iterable[Event]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def read(
    body: bytes, *, size: int = 0, kind: str = "text/event-stream", host: str = "anthropic", status: int = 200
) -> list[MessageDelta]:
    reader = ResponseReader(CODEC, HOSTS[host], run_id="r", status=status, headers={"content-type": kind})
    size = size or max(len(body), 1)
    deltas = [delta for place in range(0, len(body), size) for delta in reader.feed(body[place : place + size])]
    deltas += reader.end()
    assert reader.bug is None
    return deltas


def message_of(*events: Event | list[Event], host: str = "anthropic") -> Message:
    flat = [event for item in events for event in (item if isinstance(item, list) else [item])]
    message = assemble(read(sse(flat), host=host)).message
    assert message is not None
    return message


RICH = [
    start(input_tokens=10, output_tokens=1),
    {"type": "ping"},
    opened(0, type="thinking", thinking="", signature=""),
    added(0, "thinking_delta", thinking="Let me see: "),
    added(0, "thinking_delta", thinking="naïve 🦜"),
    added(0, "signature_delta", signature="c2ln"),
    closed(0),
    *text_block(1, "Look", "ing …"),
    opened(2, type="tool_use", id="toolu_1", name="look", input={}),
    added(2, "input_json_delta", partial_json=""),
    added(2, "input_json_delta", partial_json='{"where": '),
    added(2, "input_json_delta", partial_json='"über"}'),
    closed(2),
    *ending("tool_use", output_tokens=30),
]
WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Let me see: naïve 🦜", "signature": "c2ln"},
        {"type": "text", "text": "Looking …"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "über"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 10, "output_tokens": 30},
}


# ---------------------------------------------------------------- answers


def test_an_answer_keeps_thinking_text_and_call_in_order() -> None:
    thinking, text, call = message_of(RICH).parts
    assert thinking == Thinking("Let me see: naïve 🦜", provider_data={"signature": "c2ln"})
    assert text == Text("Looking …")
    assert isinstance(call, ToolCall)
    assert (call.tool_call_id, call.tool_name, call.arguments) == ("toolu_1", "look", {"where": "über"})


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_deltas_do_not_depend_on_how_the_bytes_were_cut(size: int) -> None:
    body = sse(RICH)
    assert read(body, size=size) == read(body)


def test_a_stream_cut_before_message_stop_ends_in_one_truncation_error() -> None:
    body = sse(RICH)
    whole = read(body)
    for length in range(body.index(b'"message_stop"')):
        *earlier, last = read(body[:length])
        assert isinstance(last, ErrorDelta)
        assert last.error_code is ErrorCode.STREAM_TRUNCATED
        assert earlier == whole[: len(earlier)]


def test_a_whole_body_gives_the_message_that_the_stream_gives() -> None:
    streamed, whole = assemble(read(sse(RICH))), assemble(read(json.dumps(WHOLE).encode(), kind="application/json"))
    assert streamed.message is not None
    assert whole.message is not None
    assert [part for part in whole.message.parts if not isinstance(part, ToolCall)] == [
        part for part in streamed.message.parts if not isinstance(part, ToolCall)
    ]
    assert whole.message.tool_calls[0].arguments == streamed.message.tool_calls[0].arguments
    assert (whole.usage, whole.finish_reason) == (streamed.usage, streamed.finish_reason)


def test_a_signature_without_any_thinking_text_is_kept() -> None:
    message = message_of(
        start(),
        opened(0, type="thinking", thinking="", signature=""),
        added(0, "signature_delta", signature="c2ln"),
        closed(0),
        text_block(1, "hi"),
        ending(),
    )
    assert message.parts[0] == Thinking("", provider_data={"signature": "c2ln"})


def test_redacted_thinking_is_kept_block_by_block() -> None:
    blocks = [opened(0, type="redacted_thinking", data="YQ=="), closed(0)]
    blocks += [opened(1, type="redacted_thinking", data="Yg=="), closed(1)]
    message = message_of(start(), blocks, text_block(2, "hi"), ending())
    assert [part.provider_data for part in message.parts if isinstance(part, Thinking)] == [
        {"data": "YQ=="},
        {"data": "Yg=="},
    ]


def test_citations_that_come_before_their_text_belong_to_its_part() -> None:
    citation = {"type": "char_location", "cited_text": "wet", "document_index": 0}
    message = message_of(
        start(),
        text_block(0, "It is "),
        opened(1, type="text", text="", citations=[]),
        added(1, "citations_delta", citation=citation),
        added(1, "text_delta", text="wet"),
        closed(1),
        text_block(2, "."),
        ending(),
    )
    assert message.parts == (Text("It is "), Text("wet", provider_data={"citations": [citation]}), Text("."))


def test_a_paused_turn_keeps_its_unanswered_server_call_as_an_item() -> None:
    message = message_of(
        start(),
        opened(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        added(0, "input_json_delta", partial_json=""),
        added(0, "input_json_delta", partial_json='{"query": "rain"}'),
        closed(0),
        ending("pause_turn"),
    )
    item = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
    assert message.parts == (ProviderItem("server_tool_use", item),)
    assert message.meta is not None
    assert message.meta.finish_reason is FinishReason.PAUSE


def test_a_server_call_with_only_an_empty_piece_keeps_the_input_it_opened_with() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "advisor", "input": {}}
    message = message_of(
        start(),
        opened(0, **call),
        added(0, "input_json_delta", partial_json=""),
        closed(0),
        text_block(1, "x"),
        ending(),
    )
    assert message.parts[0] == ProviderItem("server_tool_use", call)


def test_a_server_call_that_a_length_limit_cut_is_kept_as_text() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    piece = added(0, "input_json_delta", partial_json='{"query": "ra')
    (item,) = message_of(start(), opened(0, **call), piece, closed(0), ending("max_tokens")).parts
    assert isinstance(item, ProviderItem)
    assert item.item["input"] == {"unparsed_arguments": '{"query": "ra'}


def test_a_server_tools_result_that_comes_whole_is_an_item() -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "x"}]}
    message = message_of(start(), opened(0, **result), closed(0), text_block(1, "x"), ending())
    assert message.parts[0] == ProviderItem("web_search_tool_result", result)


def test_a_compaction_is_an_item_that_says_its_summary_to_everyone_else() -> None:
    message = message_of(
        start(),
        opened(0, type="compaction", content=None),
        added(0, "compaction_delta", content="So far: nothing."),
        closed(0),
        text_block(1, "x"),
        ending(),
    )
    item = {"type": "compaction", "content": "So far: nothing."}
    assert message.parts[0] == ProviderItem("compaction", item, "So far: nothing.")


def test_a_call_without_any_argument_piece_has_no_arguments() -> None:
    call = opened(0, type="tool_use", id="toolu_1", name="now", input={})
    message = message_of(start(), call, added(0, "input_json_delta", partial_json=""), closed(0), ending("tool_use"))
    assert message.tool_calls[0].arguments == {}


def test_a_caller_other_than_the_model_is_kept_and_the_model_itself_is_not() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    blocks = [opened(0, type="tool_use", id="a", name="f", input={}, caller=caller), closed(0)]
    blocks += [opened(1, type="tool_use", id="b", name="f", input={}, caller={"type": "direct"}), closed(1)]
    first, second = message_of(start(), blocks, ending("tool_use")).tool_calls
    assert (first.provider_data, second.provider_data) == ({"caller": caller}, None)


def test_usage_reported_at_the_end_replaces_what_the_start_said() -> None:
    usage: Event = {"input_tokens": 40, "cache_read_input_tokens": 0, "output_tokens": 7}
    details: Event = {"output_tokens_details": {"thinking_tokens": 3}}
    first = start(input_tokens=4, cache_read_input_tokens=900, cache_creation_input_tokens=5, output_tokens=1)
    result = assemble(read(sse([first, *text_block(0, "x"), *ending("end_turn", **usage, **details)])))
    assert result.usage == TokenUsage(45, 7, 52, 0, 5, 3)


def test_usage_as_reported_and_further_fields_ride_on_the_message() -> None:
    last: list[Event] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": {"id": "c1"}}, "usage": {}},
        {"type": "message_stop"},
    ]
    message = message_of(start(input_tokens=1, service_tier="standard"), text_block(0, "x"), last)
    assert message.meta is not None
    assert message.meta.provider_data == {
        "container": {"id": "c1"},
        "usage": {"input_tokens": 1, "service_tier": "standard"},
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("refusal", FinishReason.REFUSAL),
        ("something_new", FinishReason.OTHER),
    ],
)
def test_a_stop_reason_becomes_ours_and_keeps_its_own_word(word: str, reason: FinishReason) -> None:
    last = read(sse([start(), *text_block(0, "x"), *ending(word)]))[-1]
    assert isinstance(last, DoneDelta)
    assert (last.finish_reason, last.raw_finish_reason) == (reason, word)


def test_a_call_beside_end_turn_is_still_a_tool_turn() -> None:
    call = [opened(0, type="tool_use", id="a", name="f", input={}), closed(0)]
    last = read(sse([start(), *call, *ending("end_turn")]))[-1]
    assert isinstance(last, DoneDelta)
    assert last.finish_reason is FinishReason.TOOL_CALLS


def test_a_block_left_open_is_closed_by_the_end_of_the_message() -> None:
    call = opened(0, type="tool_use", id="a", name="f", input={})
    piece = added(0, "input_json_delta", partial_json='{"x": ')
    assert message_of(start(), call, piece, ending("max_tokens")).tool_calls[0].parse_error


def test_an_error_event_ends_the_stream_with_its_code() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    *_, last = read(sse([start(), *text_block(0, "x"), error]))
    assert isinstance(last, ErrorDelta)
    assert (last.error_code, last.retryable, last.provider_message) == (ErrorCode.OVERLOADED, True, "Overloaded")


def test_a_whole_body_that_is_an_error_is_an_error() -> None:
    body = b'{"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}'
    (last,) = read(body, kind="application/json")
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("body", [b"<html></html>", b"[]", b'{"content": "x"}', b'{"content": [7]}', b""])
def test_a_body_that_is_no_message_is_a_protocol_violation(body: bytes) -> None:
    *_, last = read(body, kind="application/json")
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "index": 0},
        opened(0, type="tool_use", id="t"),
        added(3, "input_json_delta", partial_json="{}"),
        added(3, "text_delta", text={"a": 1}),
    ],
)
def test_an_event_that_breaks_the_protocol_ends_the_stream(event: Event) -> None:
    *_, last = read(sse([start(), event, *ending()]))
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_unknown_events_and_deltas_are_skipped_and_counted() -> None:
    events = [start(), {"type": "new_thing"}, opened(0, type="text", text=""), added(0, "new_delta"), closed(0)]
    reader = ResponseReader(CODEC, HOSTS["anthropic"], headers={"content-type": "text/event-stream"})
    deltas = reader.feed(sse([*events, *ending()]))
    assert isinstance(deltas[-1], DoneDelta)
    assert reader.unknown_events == 2


# ---------------------------------------------------------------- hosts


def chunk(event: Event) -> bytes:
    payload = {"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdef"}
    return encode_frame({":message-type": "event", ":event-type": "chunk"}, json.dumps(payload).encode())


AWS = "application/vnd.amazon.eventstream"


def test_bedrocks_chunks_hold_the_ordinary_events() -> None:
    frames = b"".join(map(chunk, RICH))
    assert read(frames, kind=AWS, host="anthropic-bedrock") == read(sse(RICH))
    assert read(frames, kind=AWS, host="anthropic-bedrock", size=1) == read(sse(RICH))


def test_bedrocks_metrics_on_the_last_event_are_kept() -> None:
    stop = {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}}
    events = [start(), *text_block(0, "x"), ending()[0], stop]
    *_, last = read(b"".join(map(chunk, events)), kind=AWS, host="anthropic-bedrock")
    assert isinstance(last, DoneDelta)
    assert last.provider_data == {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}}


def test_an_exception_frame_of_bedrock_is_an_error_of_its_kind() -> None:
    frame = encode_frame(
        {":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message": "Too many tokens"}'
    )
    *_, last = read(chunk(start()) + frame, kind=AWS, host="anthropic-bedrock")
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.RATE_LIMITED


def test_llama_cpp_closes_its_blocks_at_the_end_and_signs_with_nothing() -> None:
    message = message_of(
        start(input_tokens=3, output_tokens=0),
        opened(0, type="thinking", thinking=""),
        added(0, "thinking_delta", thinking="hm"),
        opened(1, type="text", text=""),
        added(1, "text_delta", text="hello"),
        opened(2, type="tool_use", id="c1", name="f"),
        added(2, "input_json_delta", partial_json="{}"),
        added(0, "signature_delta", signature=""),
        closed(0),
        closed(1),
        closed(2),
        ending("tool_use", output_tokens=4),
        host="llamacpp-anthropic",
    )
    assert message.parts[:2] == (Thinking("hm"), Text("hello"))
    assert message.tool_calls[0].arguments == {}


def test_an_error_without_a_type_is_an_error() -> None:
    body = sse([start()]) + b'data: {"error": {"code": 500, "message": "oops", "type": "server_error"}}\n\n'
    *_, last = read(body, host="llamacpp-anthropic")
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.SERVER_ERROR
