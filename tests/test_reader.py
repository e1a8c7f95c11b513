"""The reader of responses: how much it takes, how it fails, the wire events that deltas carry; the deltas' numbers."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dragoman import ErrorCode, FinishReason, InvalidValue, MessageDelta, ModelError, TokenUsage
from dragoman.delta import DoneDelta, ErrorDelta, StartDelta
from dragoman.stream import ResponseReader, WireEvent
from dragoman.stream.reader import TypedJson
from dragoman.stream.writer import DeltaWriter
from dragoman.wire import find_codec, find_dialect

MEBIBYTE = 1 << 20
STREAM = "text/event-stream"


def reader_of(
    content_type: str = "application/json", *, provider: str = "openai-chat", status: int = 200, raw: bool = False
) -> ResponseReader:
    dialect = find_dialect(provider)
    return ResponseReader(
        find_codec(dialect.specification),
        dialect,
        status=status,
        headers={"content-type": content_type},
        redact_raw=(lambda text: text.replace("secret", "[redacted]")) if raw else None,
    )


def said(deltas: list[MessageDelta]) -> str:
    (error,) = deltas
    assert isinstance(error, ErrorDelta)
    return error.message or ""


ANSWER = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(("status", "kind"), [(199, "error"), (200, "done"), (299, "done"), (300, "error")])
def test_a_status_from_200_to_299_is_an_answer(status: int, kind: str) -> None:
    reader = reader_of(status=status)
    assert (reader.feed(json.dumps(ANSWER).encode()) + reader.end())[-1].kind == kind


def test_deltas_have_the_time_that_the_caller_says() -> None:
    earlier, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    reader = reader_of(STREAM)
    begun = reader.feed(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', earlier)
    cut = reader.end(later)
    assert [(delta.kind, delta.timestamp) for delta in begun] == [("start", earlier), ("text", earlier)]
    assert [(delta.kind, delta.timestamp) for delta in cut] == [("error", later)]
    whole = reader_of()
    assert whole.feed(json.dumps(ANSWER).encode(), earlier) == []
    assert {delta.timestamp for delta in whole.end(later)} == {later}


def test_a_response_without_headers_is_a_whole_answer() -> None:
    dialect = find_dialect("openai-chat")
    reader = ResponseReader(find_codec(dialect.specification), dialect)
    assert (reader.feed(json.dumps(ANSWER).encode()) + reader.end())[-1].kind == "done"


# ---------------------------------------------------------------- limits


def test_a_whole_answer_has_at_most_64_mebibytes() -> None:
    reader = reader_of()
    assert reader.feed(b" " * (64 * MEBIBYTE)) == []
    assert said(reader.feed(b" ")) == f"the answer is larger than {64 * MEBIBYTE} bytes"
    assert reader.finished


def test_a_stream_has_at_most_256_mebibytes() -> None:
    reader = reader_of(STREAM)
    comment = b": " + b"x" * (8 * MEBIBYTE - 4) + b"\n\n"
    for _ in range(32):
        assert reader.feed(comment) == []
    assert said(reader.feed(b":")) == f"the stream is larger than {256 * MEBIBYTE} bytes"


def test_the_body_of_an_error_is_read_up_to_256_kibibytes() -> None:
    reader = reader_of(status=500)
    assert reader.feed(b"x" * (256 << 10)) == []
    assert not reader.finished
    assert reader.feed(b"x")[-1].kind == "error"
    assert reader.finished


def test_reading_may_take_long_beyond_one_mebibyte() -> None:
    reader = reader_of()
    assert not reader.is_long(b" " * MEBIBYTE)
    assert reader.is_long(b" " * (MEBIBYTE + 1))
    reader.feed(b" " * MEBIBYTE)
    assert not reader.is_long()
    assert reader.is_long(b" ")


def test_in_a_stream_only_what_came_since_the_last_event_takes_long() -> None:
    reader = reader_of(STREAM)
    reader.feed(b"data: " + b" " * MEBIBYTE)
    assert reader.is_long()
    reader.feed(b"{}\n\n")
    assert not reader.is_long()
    assert not reader.is_long(b" " * MEBIBYTE)


LONG_TEXT = b'"' + b"c" * MEBIBYTE + b'"'


@pytest.mark.parametrize(
    ("body", "is_refused"),
    [
        (b"[" + LONG_TEXT + b",0" * 249_999 + b"]", False),
        (b"[" + LONG_TEXT + b",0" * 250_000 + b"]", True),
        (b'["a,b",' + LONG_TEXT + b",0" * 249_998 + b"]", False),
        (b'["a,b",' + LONG_TEXT + b",0" * 249_999 + b"]", True),
        ((b"[0" + b",0" * 300_000 + b"]").ljust(MEBIBYTE), False),
        ((b"[0" + b",0" * 300_000 + b"]").ljust(MEBIBYTE + 1), True),
    ],
    ids=["fewer", "too many", "fewer and a comma", "too many and a comma", "small", "large"],
)
def test_a_large_answer_holds_fewer_than_250_000_values(body: bytes, is_refused: bool) -> None:
    reader = reader_of()
    reader.feed(body)
    assert ("more than 250,000 values" in said(reader.end())) == is_refused


def test_commas_inside_texts_are_no_values() -> None:
    reader = reader_of()
    reader.feed(json.dumps({"choices": [{"message": {"content": "," * MEBIBYTE}, "finish_reason": "stop"}]}).encode())
    assert isinstance(reader.end()[-1], DoneDelta)


@pytest.mark.parametrize(("size", "is_refused"), [(512 << 10, False), ((512 << 10) + 1, True)])
def test_half_a_surrogate_pair_is_read_in_text_of_at_most_512_kibibytes(size: int, is_refused: bool) -> None:
    text = b'{"a":"\\ud800"}'
    text = text.ljust(size)
    shape = TypedJson(dict[str, str])
    if is_refused:
        with pytest.raises(ModelError, match="not JSON"):
            shape.read(text)
    else:
        assert shape.read(text) == {"a": "\ud800"}


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>busy \xff</html>", "<html>busy \ufffd</html>"),
        (b"x" * 3_000, "x" * 2_000),
        (b' {"a": secret', None),
        (b"\t[secret", None),
        (b"", None),
    ],
)
def test_text_that_is_not_json_is_the_providers_message_unless_it_begins_as_json(body: bytes, told: str | None) -> None:
    with pytest.raises(ModelError, match=r"^the provider sent text that is not JSON$") as refused:
        TypedJson(Any).read(body)
    assert refused.value.provider_message == told
    assert refused.value.code is ErrorCode.PROTOCOL_VIOLATION


def test_json_of_another_shape_is_refused_without_its_values() -> None:
    for text in (b'{"a": 1234}', b'{"a": 1234, "b": "\\ud800"}'):
        with pytest.raises(ModelError, match="not of the documented shape: Expected `str`, got `int`") as refused:
            TypedJson(dict[str, str]).read(text)
        assert "1234" not in str(refused.value)
        assert refused.value.code is ErrorCode.PROTOCOL_VIOLATION


class Raising:
    """A decoder that raises what it is given."""

    unknown_events = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def decode(self, events: Sequence[WireEvent]) -> None:
        raise self._error

    def decode_body(self, body: bytes) -> None:
        raise self._error

    def end(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "told", "is_bug"),
    [
        (InvalidValue("it is too deep"), "the provider's answer cannot be kept: it is too deep", False),
        (
            InvalidValue.of_content("item", "words of a user", "a number"),
            "the provider's answer cannot be kept: item must be a number, got a str",
            False,
        ),
        (InvalidValue.of("item", "word", "a number"), "the provider's answer cannot be kept: ", False),
        (ZeroDivisionError("words of a user"), "the source of the stream raised ZeroDivisionError", True),
    ],
)
def test_what_a_decoder_raises_ends_the_stream_and_shows_no_content(error: Exception, told: str, is_bug: bool) -> None:
    dialect = find_dialect("openai-chat")
    codec = msgspec.structs.replace(
        find_codec(dialect.specification), open_decoder=lambda _writer, _dialect: Raising(error)
    )
    for content_type in (STREAM, "application/json"):
        reader = ResponseReader(codec, dialect, headers={"content-type": content_type})
        message = said(reader.feed(b"data: {}\n\n") + reader.end())
        assert message.startswith(told)
        assert "word" not in message
        assert (reader.bug is error) == is_bug


# ---------------------------------------------------------------- wire events


def test_each_delta_carries_the_event_that_it_was_made_of() -> None:
    first = {"id": "x", "model": "m", "choices": [{"delta": {"content": "secret"}}]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in (first, last)) + "data: [DONE]\n\n"
    reader = reader_of(STREAM, raw=True)
    deltas = reader.feed(body.encode()) + reader.end()
    redacted = {"id": "x", "model": "m", "choices": [{"delta": {"content": "[redacted]"}}]}
    assert [(delta.kind, delta.provider_raw) for delta in deltas] == [
        ("start", redacted),
        ("text", redacted),
        ("done", "[DONE]"),
    ]


def test_every_delta_of_a_whole_answer_carries_the_answer() -> None:
    reader = reader_of(raw=True)
    deltas = reader.feed(json.dumps(ANSWER).encode()) + reader.end()
    assert [delta.kind for delta in deltas] == ["start", "text", "done"]
    assert all(delta.provider_raw == ANSWER for delta in deltas)


def test_events_that_are_not_known_are_counted_also_where_deltas_carry_their_events() -> None:
    for raw in (False, True):
        reader = reader_of(STREAM, provider="anthropic", raw=raw)
        reader.feed(b'event: later\ndata: {"type": "later"}\n\n')
        assert reader.unknown_events == 1


# ---------------------------------------------------------------- the writer of deltas


def test_the_writer_numbers_deltas_of_every_kind_without_a_gap() -> None:
    writer = DeltaWriter("r")
    writer.start()
    writer.start("again")  # written once
    writer.text("a")
    writer.thinking("b")
    writer.call_start("c", "look")
    writer.call_args("c", "{}")
    writer.call_end("c")
    assert writer.image(mime_type="image/png", data=b"x")
    assert not writer.image(mime_type="image/png", data=b"")
    writer.item("search", {})
    writer.usage(TokenUsage(input_tokens=1))
    assert len(writer) == 9
    writer.done(FinishReason.STOP, "stop")
    writer.error(ModelError("late"))
    deltas = writer.take()
    assert [delta.seq for delta in deltas] == list(range(11))
    assert deltas[0] == StartDelta("r", 0, None, "", "")
    assert {delta.run_id for delta in deltas} == {"r"}
    assert writer.take() == []
