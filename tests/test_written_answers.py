"""Answers that a server of ours writes: what a client of each API reads is what the model said."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from dragoman import ErrorCode, FinishReason, Thinking, TokenUsage
from dragoman.delta import DoneDelta, ErrorDelta, MessageDelta
from dragoman.errors import ModelError
from dragoman.stream import AnswerForm, AnswerWriter, DeltaWriter, SseParser, frame_events, guard_deltas
from dragoman.wire import find_codec
from tests.corpus import needs_corpus
from tests.oracle import cut_streams, open_streams, unhurried, whole_streams
from tests.strangers.third_parties.sdks import Exchange, read_by_sdk, serving
from tests.vendor_answers import vendor_problem
from tests.written_answers import (
    SERVED,
    api_of,
    assembled,
    cuts_that_finish,
    form_of,
    own_problem,
    pair_problem,
    read,
    recorded_answers,
    sample_answers,
    write,
)

SAMPLES = list(sample_answers())
NAMES = [f"{protocol}: {name}" for protocol, _, name, _ in SAMPLES]
ALL = [11, pytest.param(1, marks=pytest.mark.slow)]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
EACH = pytest.mark.parametrize("api", SERVED)


def writer_of(api: str, **form: Any) -> AnswerWriter:
    open_writer = find_codec(api).open_writer
    assert open_writer is not None
    return open_writer(AnswerForm(answer_id="a1", model="model-1", **form))


def deltas_of(*steps: tuple[Any, ...], finish: FinishReason | None = FinishReason.STOP) -> list[MessageDelta]:
    """A stream: each step is a method of the writer of deltas and its arguments."""
    writer = DeltaWriter("run")
    writer.now = datetime(2026, 1, 1, tzinfo=UTC)
    writer.start("upstream-model", "r1")
    for method, *arguments in steps:
        getattr(writer, method)(*arguments)
    if finish is not None:
        writer.done(finish, str(finish))
    return writer.take()


def values_in(body: bytes) -> Iterator[dict[str, Any]]:
    for _, data in SseParser().feed(body):
        if data != b"[DONE]":
            yield json.loads(data)


def streamed(deltas: Sequence[MessageDelta], api: str, **form: Any) -> bytes:
    writer = writer_of(api, **form)
    return frame_events([*writer.write(deltas), *writer.end()])


# ---------------------------------------------------------------- laws


@BOTH
@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_an_answer_that_its_own_api_writes_again_reads_equal(sample: Any, stream: bool) -> None:
    protocol, vendor, _, deltas = sample
    if api_of(protocol) not in SERVED:
        pytest.skip(f"{api_of(protocol)} is not served")
    assert own_problem(protocol, vendor, deltas, stream=stream) is None


@EACH
@BOTH
@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_an_answer_says_the_same_in_every_api(sample: Any, api: str, stream: bool) -> None:
    protocol, _, _, deltas = sample
    assert pair_problem(protocol, deltas, api, stream=stream) is None


@needs_corpus
@BOTH
@pytest.mark.parametrize("every", ALL)
def test_a_recorded_answer_that_its_own_api_writes_again_reads_equal(every: int, stream: bool) -> None:
    count = 0
    for protocol, vendor, name, deltas in recorded_answers(every):
        if api_of(protocol) in SERVED:
            assert (name, own_problem(protocol, vendor, deltas, stream=stream)) == (name, None)
            count += 1
    assert count > 20


@needs_corpus
@EACH
@BOTH
@pytest.mark.parametrize("every", ALL)
def test_a_recorded_answer_says_the_same_in_every_api(every: int, api: str, stream: bool) -> None:
    count = 0
    for protocol, _, name, deltas in recorded_answers(every):
        assert (name, pair_problem(protocol, deltas, api, stream=stream)) == (name, None)
        count += 1
    assert count > 100


@EACH
@BOTH
@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_the_types_of_the_vendor_take_what_is_written(sample: Any, api: str, stream: bool) -> None:
    body = write(sample[3], api, form_of(sample[3], "", stream=stream))
    assert body is not None
    assert vendor_problem(api, body, stream=stream) is None


@needs_corpus
@EACH
@BOTH
@pytest.mark.parametrize("every", ALL)
def test_the_types_of_the_vendor_take_recorded_answers_of_every_api(every: int, api: str, stream: bool) -> None:
    for _, _, name, deltas in recorded_answers(every):
        body = write(deltas, api, form_of(deltas, "", stream=stream))
        is_failed = body is None or (stream and assembled(read(body, api, stream=True)).error is not None)
        if body is not None and not is_failed:
            assert (name, vendor_problem(api, body, stream=stream)) == (name, None)


@EACH
@BOTH
@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_no_cut_of_the_deltas_gives_a_finish(sample: Any, api: str, stream: bool) -> None:
    deltas = sample[3]
    for length in range(len(deltas)):
        body = write(deltas[:length], api, form_of(deltas, "", stream=stream))
        if not stream:
            assert body is None
            continue
        assert body is not None
        again = read(body, api, stream=True)
        assert not any(isinstance(delta, DoneDelta) for delta in again), length
        assert isinstance(again[-1], ErrorDelta)
        if length:  # the stream had begun, so it holds the API's own error
            assert b"error" in body


@needs_corpus
@EACH
@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_no_cut_of_a_recorded_answer_gives_a_finish(every: int, api: str) -> None:
    for _, _, name, deltas in recorded_answers(every):
        assert (name, cuts_that_finish(deltas, api)[1]) == (name, 0)


# ---------------------------------------------------------------- order and calls


INTERLEAVED = deltas_of(
    ("call_start", "c1", "add"),
    ("call_args", "c1", '{"a":'),
    ("call_start", "c2", "mul"),
    ("text", "meanwhile"),
    ("call_args", "c2", '{"b"'),
    ("call_args", "c1", "1}"),
    ("call_args", "c2", ":2}"),
    ("call_end", "c1"),
    ("call_end", "c2"),
    finish=FinishReason.TOOL_CALLS,
)


@EACH
@BOTH
def test_calls_that_come_side_by_side_are_each_written_whole(api: str, stream: bool) -> None:
    body = write(INTERLEAVED, api, AnswerForm(answer_id="a1", model="m", stream=stream))
    assert body is not None
    message = assembled(read(body, api, stream=stream)).message
    assert message is not None
    assert [(call.tool_call_id, call.tool_name, call.arguments) for call in message.tool_calls] == [
        ("c1", "add", {"a": 1}),
        ("c2", "mul", {"b": 2}),
    ]
    assert message.text == "meanwhile"


# What closes a call, in each API. Chat has nothing that does but the finish.
CLOSED = {
    "anthropic-messages": "content_block_stop",
    "openai-responses": ".done",
    "gemini": "functionCall",
    "openai-chat": "finish_reason",
}


def closes_a_call(api: str, value: dict[str, Any]) -> bool:
    if api == "openai-chat":
        return any(choice["finish_reason"] for choice in value.get("choices", ()))
    return CLOSED[api] in (json.dumps(value) if api == "gemini" else value.get("type", ""))


@EACH
@pytest.mark.parametrize("ending", ["cut", "error", "length", "broken piece"])
def test_a_call_that_was_cut_is_never_closed(api: str, ending: str) -> None:
    if (api, ending) == ("openai-chat", "length"):
        pytest.skip("Chat says a cut call and its finish word apart")
    steps: list[tuple[Any, ...]] = [("call_start", "c1", "pay"), ("call_args", "c1", '{"sum": 1')]
    match ending:
        case "cut":
            deltas = deltas_of(*steps, finish=None)
        case "error":
            deltas = deltas_of(*steps, ("error", ModelError("broke", code=ErrorCode.CONNECTION)), finish=None)
        case "length":
            deltas = deltas_of(*steps, ("call_end", "c1"), finish=FinishReason.LENGTH)
        case _:
            deltas = deltas_of(*steps, ("call_end", "c1", None, "a piece is lost"), finish=FinishReason.TOOL_CALLS)
    body = streamed(deltas, api)
    assert not [value for value in values_in(body) if closes_a_call(api, value)]
    again = assembled(read(body, api, stream=True))
    assert (again.error is None) == (ending == "length")
    if again.message is not None:
        assert all(call.arguments is None for call in again.message.tool_calls)


@EACH
@BOTH
@pytest.mark.parametrize(
    "second", ['{"b": 2', '{"b": 2}', ""], ids=["both cut", "the first cut", "nothing of the second"]
)
def test_calls_side_by_side_that_a_length_cut_are_not_closed(api: str, stream: bool, second: str) -> None:
    steps: list[tuple[Any, ...]] = [("call_start", "c1", "pay"), ("call_args", "c1", '{"sum":')]
    steps += [("call_start", "c2", "tell"), ("call_args", "c2", second), ("call_args", "c1", '"par')]
    deltas = deltas_of(*steps, ("call_end", "c1"), ("call_end", "c2"), finish=FinishReason.LENGTH)
    body = write(deltas, api, AnswerForm(answer_id="a1", model="m", stream=stream))
    assert body is not None
    if stream and api != "openai-chat":
        assert not [value for value in values_in(body) if closes_a_call(api, value)]
    again = assembled(read(body, api, stream=stream))
    assert again.finish_reason is FinishReason.LENGTH
    assert again.message is None or all(
        call.tool_call_id != "c1" or call.arguments is None for call in again.message.tool_calls
    )


@EACH
def test_a_call_of_broken_arguments_is_closed_when_the_answer_goes_on(api: str) -> None:
    steps: list[tuple[Any, ...]] = [
        ("call_start", "c1", "pay"),
        ("call_start", "c2", "tell"),
        ("call_args", "c1", '{"sum"'),
    ]
    steps += [("call_end", "c1"), ("call_args", "c2", '{"b": 2}'), ("call_end", "c2")]
    body = streamed(deltas_of(*steps, finish=FinishReason.TOOL_CALLS), api)
    message = assembled(read(body, api, stream=True)).message
    assert message is not None
    assert [(call.tool_name, call.arguments) for call in message.tool_calls][1] == ("tell", {"b": 2})


@BOTH
def test_a_part_of_gemini_has_one_kind_of_data(stream: bool) -> None:
    steps = [
        ("thinking", "Hm."),
        ("text", "So."),
        ("call_start", "c1", "pay"),
        ("call_args", "c1", "{}"),
        ("call_end", "c1"),
    ]
    body = write(
        deltas_of(*steps, finish=FinishReason.TOOL_CALLS),
        "gemini",
        AnswerForm(answer_id="a1", model="m", stream=stream),
    )
    assert body is not None
    answers = list(values_in(body)) if stream else [json.loads(body)]
    parts = [part for answer in answers for part in answer["candidates"][0]["content"]["parts"]]
    assert all(len(part.keys() & {"text", "functionCall", "inlineData"}) == 1 for part in parts)


@EACH
@BOTH
def test_an_id_that_the_api_cannot_spell_is_spelled_the_same_each_time(api: str, stream: bool) -> None:
    wire_id = "functions.look up:0/ü" * 5
    deltas = deltas_of(("call_start", wire_id, "f"), ("call_args", wire_id, "{}"), ("call_end", wire_id))
    bodies = {write(deltas, api, AnswerForm(answer_id="a1", model="m", stream=stream)) for _ in range(2)}
    assert len(bodies) == 1
    message = assembled(read(bodies.pop() or b"", api, stream=stream)).message
    assert message is not None
    assert len(message.tool_calls) == 1


@EACH
def test_half_a_character_waits_for_its_other_half(api: str) -> None:
    body = streamed(deltas_of(("text", "a\ud83d"), ("text", "\ude00b"), ("text", "\ud83d")), api)
    message = assembled(read(body, api, stream=True)).message
    assert message is not None
    assert message.text == "a😀b\ufffd"


@EACH
@BOTH
def test_an_answer_without_content_is_an_answer(api: str, stream: bool) -> None:
    body = write(deltas_of(), api, AnswerForm(answer_id="a1", model="m", stream=stream))
    assert body is not None
    assert vendor_problem(api, body, stream=stream) is None
    assert assembled(read(body, api, stream=stream)).finish_reason is FinishReason.STOP


@EACH
@BOTH
def test_data_that_only_another_vendor_understands_is_not_written(api: str, stream: bool) -> None:
    secret = {"signature": "S3CRET", "thoughtSignature": "S3CRET", "encrypted_content": "S3CRET", "id": "S3CRET"}
    deltas = deltas_of(
        ("thinking", "hm", 0, secret),
        ("thinking", "", 1, secret),
        ("text", "yes", 2, secret),
        ("item", "search", {"type": "search", "id": "S3CRET"}),
        ("call_start", "c1", "f", secret),
        ("call_end", "c1", secret),
    )
    writer = writer_of(api, stream=stream, source="another-api")
    body = frame_events(writer.write(deltas)) if stream else b""
    if not stream:
        writer.write(deltas)
        body = writer.body()
    assert b"S3CRET" not in body
    message = assembled(read(body, api, stream=stream)).message
    assert message is not None
    assert message.text == "yes"


# ---------------------------------------------------------------- usage, finish, errors


@EACH
@BOTH
def test_the_last_report_of_the_usage_is_the_one_that_counts(api: str, stream: bool) -> None:
    deltas = deltas_of(
        ("usage", TokenUsage(input_tokens=100, output_tokens=1, cache_read_tokens=60)),
        ("text", "hi"),
        ("usage", TokenUsage(input_tokens=101, output_tokens=30, reasoning_tokens=20)),
    )
    body = write(deltas, api, AnswerForm(answer_id="a1", model="m", stream=stream))
    usage = assembled(read(body or b"", api, stream=stream)).usage
    assert usage is not None
    counts = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.reasoning_tokens
    assert counts == (101, 30, 60, 20)


@EACH
def test_every_finish_has_a_word_or_is_an_error(api: str) -> None:
    call = (("call_start", "c1", "f"), ("call_end", "c1"))
    for reason in FinishReason:
        steps = call if reason is FinishReason.TOOL_CALLS else (("text", "x"),)
        again = assembled(read(streamed(deltas_of(*steps, finish=reason), api), api, stream=True))
        if reason in writer_of(api).finish_words:
            assert again.error is None
        else:
            assert again.error is not None


# How a code reads once the API has said it, where it has no word of its own.
COARSER = {
    "anthropic-messages": {ErrorCode.UNSUPPORTED: "invalid_request", ErrorCode.CONTENT_FILTERED: "invalid_request"},
    "openai-chat": {},
    "openai-responses": {},
    "gemini": {
        ErrorCode.UNSUPPORTED: "invalid_request",
        ErrorCode.CONTENT_FILTERED: "invalid_request",
        ErrorCode.QUOTA_EXCEEDED: "rate_limited",
    },
}
UPSTREAM = {ErrorCode.CONNECTION, ErrorCode.STREAM_TRUNCATED, ErrorCode.PROTOCOL_VIOLATION, ErrorCode.INTERNAL}
CODES = [
    *(ErrorCode.AUTHENTICATION, ErrorCode.PERMISSION, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND),
    *(ErrorCode.UNSUPPORTED, ErrorCode.RATE_LIMITED, ErrorCode.QUOTA_EXCEEDED, ErrorCode.OVERLOADED),
    *(ErrorCode.SERVER_ERROR, ErrorCode.TIMEOUT, ErrorCode.CONTEXT_OVERFLOW, ErrorCode.CONTENT_FILTERED),
    *sorted(UPSTREAM),
]


@EACH
@pytest.mark.parametrize("code", CODES)
def test_a_failure_before_the_stream_reads_as_the_same_failure(api: str, code: ErrorCode) -> None:
    codec = find_codec(api)
    assert codec.write_error is not None
    error = ErrorDelta("run", 0, None, code, "it failed", retry_after=6.2, provider_message="said the vendor")
    answer = codec.write_error(error)
    assert answer.headers["retry-after"] == "7"
    again = codec.map_error(answer.status, answer.headers, answer.body)
    assert again.code == ("server_error" if code in UPSTREAM else COARSER[api].get(code, code))
    assert "said the vendor" in (again.provider_message or "")


@EACH
@pytest.mark.parametrize("code", CODES)
def test_a_failure_inside_the_stream_reads_as_a_failure(api: str, code: ErrorCode) -> None:
    body = streamed(deltas_of(("text", "so far"), ("error", ModelError("it failed", code=code)), finish=None), api)
    again = assembled(read(body, api, stream=True))
    assert again.error is not None
    assert again.partial is not None
    assert again.partial.text == "so far"
    assert "it failed" in (again.error.provider_message or "")


@EACH
def test_a_failure_before_the_first_event_writes_none(api: str) -> None:
    writer = writer_of(api)
    assert writer.write([ErrorDelta("run", 0, None, ErrorCode.OVERLOADED)]) == []
    assert writer.failure is not None
    assert not writer.has_begun


@EACH
def test_a_whole_answer_that_failed_has_no_body(api: str) -> None:
    writer = writer_of(api, stream=False)
    writer.write(deltas_of(("text", "x"), finish=None))
    with pytest.raises(ModelError) as raised:
        writer.body()
    assert raised.value.code is ErrorCode.STREAM_TRUNCATED


@EACH
def test_nothing_is_written_after_the_end(api: str) -> None:
    writer = writer_of(api)
    writer.write(deltas_of(("text", "x")))
    assert writer.write(deltas_of(("text", "y"))) == []
    assert writer.end() == []


# ---------------------------------------------------------------- the vendors' own clients


def exchanges_of(deltas: Sequence[MessageDelta], name: str, length: int | None = None) -> Iterator[Exchange]:
    for api in SERVED:
        for stream in (True, False):
            body = write(deltas[:length], api, form_of(deltas, "", stream=stream))
            if body is not None:
                kind = "text/event-stream" if stream else "application/json"
                yield Exchange(name, api, "", 200, {"content-type": kind}, body, stream)


@pytest.mark.slow
def test_the_sdks_of_the_vendors_read_what_was_said() -> None:
    said = {name: assembled(deltas) for (_, _, _, deltas), name in zip(SAMPLES, NAMES, strict=True)}
    exchanges = [each for sample, name in zip(SAMPLES, NAMES, strict=True) for each in exchanges_of(sample[3], name)]
    with serving(exchanges) as address:
        for number, exchange in enumerate(exchanges):
            reading, message = read_by_sdk(exchange, f"{address}/{number}"), said[exchange.name].message
            where = (exchange.name, exchange.protocol, exchange.is_stream)
            assert message is not None
            assert (where, reading.error) == (where, None)
            assert (where, reading.text) == (where, message.text)
            calls = [(call.tool_name, json.dumps(call.arguments, sort_keys=True)) for call in message.tool_calls]
            assert (where, list(reading.calls)) == (where, calls)
            thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
            assert (where, reading.thinking) == (where, thinking)
    assert len(exchanges) > 50


@pytest.mark.slow
def test_the_sdks_of_the_vendors_read_a_cut_answer_as_an_error() -> None:
    exchanges = []
    for sample, name in zip(SAMPLES, NAMES, strict=True):
        lengths = {2, len(sample[3]) // 2, len(sample[3]) - 1}
        exchanges += [each for length in sorted(lengths) for each in exchanges_of(sample[3], name, length)]
    assert exchanges
    assert all(exchange.is_stream for exchange in exchanges)
    with serving(exchanges) as address:
        for number, exchange in enumerate(exchanges):
            reading = read_by_sdk(exchange, f"{address}/{number}")
            where = (exchange.name, exchange.protocol)
            assert (where, reading.error is not None) == (where, True)
            assert "the SDK fails" not in (reading.error or "")


# ---------------------------------------------------------------- any stream


@EACH
@BOTH
@unhurried
@given(deltas=whole_streams() | cut_streams())
def test_any_stream_is_written_as_what_it_is(api: str, stream: bool, deltas: list[MessageDelta]) -> None:
    before = assembled(list(guard_deltas(deltas)))
    body = write(deltas, api, AnswerForm(answer_id="a1", model="m", stream=stream))
    if body is None:
        assert before.message is None or any(call.parse_error for call in before.message.tool_calls)
        return
    after = assembled(read(body, api, stream=stream))
    if before.message is None:
        assert after.message is None
    else:
        assert after.message is not None
        assert after.message.text == before.message.text
        assert [call.tool_name for call in after.message.tool_calls] == [
            call.tool_name for call in before.message.tool_calls
        ]


@EACH
@unhurried
@given(deltas=open_streams())
def test_no_stream_under_way_is_written_with_a_finish(api: str, deltas: list[MessageDelta]) -> None:
    body = write(deltas, api, AnswerForm(answer_id="a1", model="m"))
    assert body is not None
    assert assembled(read(body, api, stream=True)).message is None
