"""Bytes to events: server-sent events and AWS event streams, whole, byte by byte, cut short and damaged."""

import json
import struct
from collections.abc import Callable
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import ErrorCode, MessageDelta, ModelError
from dragoman.delta import DoneDelta, ErrorDelta
from dragoman.stream import EventParser, EventStreamParser, ResponseReader, SseParser, WireEvent, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.wire import find_codec, find_dialect


def parse(make: Callable[[], EventParser], *chunks: bytes) -> list[WireEvent]:
    parser = make()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.end()


def by_the_standard(body: bytes) -> list[WireEvent]:
    """The events of a whole body, read line by line as the standard describes; the last may lack its blank line."""
    events: list[WireEvent] = []
    name, data = "", list[bytes]()
    text = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if any(data):
                events.append((name, b"\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
        (b"event: x\ndata: a\n\n", [("x", b"a")]),
        (b"data: a\nevent: x\n\n", [("x", b"a")]),
        (b": keep-alive\n\ndata: a\n\n", [("", b"a")]),
        (b"data: a\n: comment\ndata: b\n\n", [("", b"a\nb")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [("", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"data: a\n\ndata: b", [("", b"a"), ("", b"b")]),
        (b"data: a\n\ndata: b\n", [("", b"a"), ("", b"b")]),
        (b"\n\n\ndata: a\n\n\n\n", [("", b"a")]),
        (b"data:\n\ndata: \n\nevent: x\n\n", []),
        (
            b"event: x\ndata: a\n\n: c\n\nevent: x\ndata: b\n\ndata: c\n\nevent: y\ndata: d\n\nevent: x\ndata: e\n\n",
            [("x", b"a"), ("x", b"b"), ("", b"c"), ("y", b"d"), ("x", b"e")],
        ),
        (b"event: x\ndata: a\nid: 1\n\nevent: x\ndata: b\ndata: c\n\n", [("x", b"a"), ("x", b"b\nc")]),
        (b"data\ndata: a\n\nevent\ndata: b\n\n", [("", b"\na"), ("", b"b")]),
        (b"datum: a\n\n", []),
        (b"", []),
    ],
)
def test_an_event_is_read_in_every_form_that_the_standard_allows(body: bytes, events: list[WireEvent]) -> None:
    assert parse(SseParser, body) == events
    assert by_the_standard(body) == events
    assert parse(SseParser, *(body[index : index + 1] for index in range(len(body)))) == events


pieces = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"event: ",
        b"event: x\ndata: ",
        b"event: y\ndata: a\n\n",
        b"data: a\n\n",
        b": c",
        b"\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"a",
        b"{}",
        b"\xef\xbb\xbf",
        b" ",
    ]
)


@given(st.lists(pieces, max_size=30).map(b"".join), st.data())
def test_events_are_those_of_the_standard_wherever_the_bytes_are_cut(body: bytes, data: st.DataObject) -> None:
    expected = by_the_standard(body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert parse(SseParser, *chunks) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"data: a\n\ndata: b\n\n",
        b"data: a\ndata: b\n\n",
        b"data: a\n\n\n\ndata:b\n\n",
        b"\n\ndata: a\n\n\n\ndata: b\n\n",
        b"event: one\ndata: a\n\nevent: one\ndata: b\n\nevent: two\ndata: c\n\n",
        b": note\n\ndata: a\ndata: b\n\nid: 1\n\n",
    ],
)
def test_an_event_comes_with_the_bytes_that_complete_it_and_not_later(body: bytes) -> None:
    for cut in range(len(body)):
        parser = SseParser()
        begun = parser.feed(body[:cut])
        assert begun == by_the_standard(body[: body[:cut].rfind(b"\n\n") + 2] if b"\n\n" in body[:cut] else b"")
        assert begun + parser.feed(body[cut:]) == by_the_standard(body)
        assert parser.end() == []


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_a_line_end_that_is_cut_in_two_is_one(end: bytes) -> None:
    body = b"event: one\ndata: a\ndata: b\n\ndata: c\n\n".replace(b"\n", end)
    for cut in range(len(body)):
        assert parse(SseParser, body[:cut], body[cut:]) == [("one", b"a\nb"), ("", b"c")]


def test_a_byte_order_mark_after_the_beginning_is_content() -> None:
    mark = b"\xef\xbb\xbf"
    assert parse(SseParser, b"data: x", mark + b"y\n\n") == [("", b"x" + mark + b"y")]
    assert parse(SseParser, mark + b"data: x\n\n", mark + b"data: y\n\n") == [("", b"x")]


@pytest.mark.parametrize(("lines", "is_refused"), [(65_536, False), (65_537, True)])
def test_an_event_has_at_most_65536_line_ends(lines: int, is_refused: bool) -> None:
    body = b"data: x" + b"\n:" * lines + b"\n\n"
    if is_refused:
        with pytest.raises(ModelError, match="more than 65536 lines"):
            SseParser().feed(body)
    else:
        assert SseParser().feed(body) == [("", b"x")]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 2_000, b"x" * 2_000, b"data: x\n" * 300])
def test_an_event_past_the_limit_is_refused_and_not_kept(line: bytes) -> None:
    for step in (1, 7, len(line)):
        chunks = [line[start : start + step] for start in range(0, len(line), step)]
        with pytest.raises(ModelError) as refused:
            parse(lambda: SseParser(limit=1_000), *chunks)
        assert refused.value.code is ErrorCode.PROTOCOL_VIOLATION


# ---------------------------------------------------------------- AWS event streams

FRAMES = [
    encode_frame({":message-type": "event", ":event-type": "messageStart"}, b'{"role":"assistant"}'),
    encode_frame({":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message":"slow"}'),
    encode_frame({":message-type": "event", ":event-type": "ping"}, b""),
]
EVENTS = [("messageStart", b'{"role":"assistant"}'), ("throttlingException", b'{"message":"slow"}'), ("ping", b"")]


def test_frames_are_read_wherever_they_are_cut() -> None:
    body = b"".join(FRAMES)
    assert parse(EventStreamParser, body) == EVENTS
    assert parse(EventStreamParser, *(body[index : index + 1] for index in range(len(body)))) == EVENTS


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({":message-type": "error", ":error-code": "500"}, "500Error"),
        ({":message-type": "error"}, "Error"),
        ({":message-type": "error", ":exception-type": "x"}, "Error"),
        ({":message-type": "exception"}, "Exception"),
        ({":message-type": "exception", ":exception-type": "odd"}, "oddException"),
        ({":message-type": "exception", ":event-type": "contentBlockDelta"}, "Exception"),
    ],
)
def test_a_frame_that_says_failure_is_named_as_one(headers: dict[str, str], name: str) -> None:
    assert parse(EventStreamParser, encode_frame(headers, b"{}")) == [(name, b"{}")]


def test_the_message_of_an_error_frame_is_its_data() -> None:
    frame = encode_frame({":message-type": "error", ":error-message": "boom"}, b"")
    assert parse(EventStreamParser, frame) == [("Error", b'{"message":"boom"}')]


@pytest.mark.parametrize(
    "headers",
    [{}, {":event-type": "x"}, {":message-type": "fatal", ":event-type": "x"}, {":message-type": "event"}],
)
def test_a_frame_that_is_neither_an_event_nor_a_failure_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ModelError, match="damaged"):
        parse(EventStreamParser, encode_frame(headers, b"{}"))


def test_half_a_frame_is_no_event() -> None:
    for cut in range(len(FRAMES[0])):
        assert parse(EventStreamParser, FRAMES[0][:cut]) == []


def test_a_frame_with_any_bit_turned_is_refused_or_waits_for_more() -> None:
    frame = FRAMES[0]
    for position in range(len(frame)):
        damaged = bytearray(frame)
        damaged[position] ^= 1
        with pytest.raises(ModelError, match="damaged"):
            parse(EventStreamParser, bytes(damaged))


def test_a_frame_that_says_it_is_huge_is_refused_before_it_comes() -> None:
    prelude = struct.pack(">II", 2**31, 0)
    with pytest.raises(ModelError, match="damaged"):
        parse(EventStreamParser, prelude + struct.pack(">I", crc32(prelude)))


def test_a_frame_has_at_most_32_mebibytes() -> None:
    for size, is_refused in ((32 << 20, False), ((32 << 20) + 1, True)):
        prelude = struct.pack(">II", size, 0)
        parser, begun = EventStreamParser(), prelude + struct.pack(">I", crc32(prelude))
        if is_refused:
            with pytest.raises(ModelError, match=f"a frame says that it has {size} bytes"):
                parser.feed(begun)
        else:
            assert parser.feed(begun) == []


def test_an_event_has_at_most_32_mebibytes() -> None:
    parser = SseParser()
    assert parser.feed(b"data: " + b"x" * ((32 << 20) - 6)) == []
    with pytest.raises(ModelError, match="larger than 33554432 bytes"):
        parser.feed(b"x")


# By the number of a header's type, how many bytes its value has.
HEADER_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


def test_headers_of_every_type_are_stepped_over() -> None:
    headers = b"".join(bytes((1, 97, kind)) + bytes(size) for kind, size in HEADER_SIZES.items())
    headers += b"\x01d\x06\x00\x02xy"
    text = b"\x0b:event-type\x07\x00\x04ping"
    headers += text + b"\x0d:message-type\x07\x00\x05event"
    prelude = struct.pack(">II", 16 + len(headers), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers
    assert parse(EventStreamParser, body + struct.pack(">I", crc32(body))) == [("ping", b"")]


# ---------------------------------------------------------------- the reader

COMPLETION = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}


def read(body: bytes, content_type: str, status: int = 200) -> list[MessageDelta]:
    dialect = find_dialect("openai-chat")
    reader = ResponseReader(
        find_codec(dialect.specification), dialect, status=status, headers={"Content-Type": content_type}
    )
    return reader.feed(body) + reader.end()


def test_a_json_answer_that_is_called_an_event_stream_is_read_all_the_same() -> None:
    deltas = read(json.dumps(COMPLETION).encode(), "text/event-stream")
    assert isinstance(deltas[-1], DoneDelta)
    message = assemble(deltas).message
    assert message is not None
    assert message.text == "hello"


def test_json_inside_an_event_is_never_taken_for_an_answer_however_it_is_cut() -> None:
    body = b"data: " + json.dumps(COMPLETION).encode()
    for cut in range(len(body)):
        dialect = find_dialect("openai-chat")
        headers = {"content-type": "text/event-stream"}
        reader = ResponseReader(find_codec(dialect.specification), dialect, headers=headers)
        deltas = [delta for index in range(cut) for delta in reader.feed(body[index : index + 1])] + reader.end()
        assert [delta.kind for delta in deltas] == ["error"]


def test_an_error_in_json_that_is_called_an_event_stream_keeps_its_code() -> None:
    body = json.dumps({"error": {"code": "context_length_exceeded", "message": "too long"}}).encode()
    (error,) = read(body, "text/event-stream")
    assert isinstance(error, ErrorDelta)
    assert error.error_code is ErrorCode.CONTEXT_OVERFLOW


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"", b"{", b'{"choices": [', b"null"])
def test_a_body_that_says_nothing_is_never_an_answer(body: bytes) -> None:
    for content_type in ("text/event-stream", "application/json", "text/html", ""):
        deltas = read(body, content_type)
        assert [delta.kind for delta in deltas] == ["error"]


def test_a_redirect_is_an_error_and_not_followed() -> None:
    (error,) = read(b"", "text/html", status=302)
    assert isinstance(error, ErrorDelta)
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION
