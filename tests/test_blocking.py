"""Long input from outside does not hold the event loop: it is worked on in slices, or refused before it is read."""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest

from dragoman import ErrorCode, Message, MessageDelta, ModelError, ToolCall
from dragoman._jsontext import ARGUMENTS_SIZE, ARGUMENTS_VALUES, SLOW_ARGUMENTS_SIZE, parse_arguments
from dragoman.context.cutting import cut_unit
from dragoman.context.timeline import Unit
from dragoman.delta import ErrorDelta
from dragoman.history import ModelOutputEntry
from dragoman.models.clients import ProviderClient
from dragoman.request import WireRequest
from dragoman.stream import DeltaWriter, EventDecoder, ResponseReader, SseParser, WireEvent
from dragoman.stream.reader import ERROR_LIMIT, LARGE, STREAM_LIMIT, VALUES_LIMIT
from dragoman.stream.sse import LINES_LIMIT
from dragoman.target import Dialect
from dragoman.testing import ReplayedResponse, ReplayTransport, decode_recorded
from dragoman.tools.mcp_wire import MOST_VALUES
from dragoman.transport import Timeouts
from dragoman.wire import find_codec, find_dialect
from tests.loopback import answering, post, serving, transport_of, whole
from tests.mcp_cases import call, plain, run, text_of

SLICE = 64 * 1024
EMPTY_LINES = b"\n" * 3_000_000
LIMITED = Timeouts(connect=5.0, first_byte=50.0, silence=50.0, total=60.0)

both_transports = pytest.mark.parametrize("kind", ["aiohttp", "httpx"])


@both_transports
def test_others_have_their_turn_while_an_answer_is_unpacked(kind: str) -> None:
    async def main() -> None:
        script = answering(whole(gzip.compress(EMPTY_LINES), "Content-Encoding: gzip"))
        since_turn = most = total = 0

        async def take_turns() -> None:
            nonlocal since_turn
            while True:
                since_turn = 0
                await asyncio.sleep(0)

        async with serving(script) as server, transport_of(kind) as transport:
            response = await transport.send(post(server.url), LIMITED)
            turns = asyncio.create_task(take_turns())
            async for chunk in response.chunks():
                since_turn += len(chunk)
                total += len(chunk)
                most = max(most, since_turn)
            turns.cancel()
        assert total == len(EMPTY_LINES)
        assert most <= 2 * SLICE

    asyncio.run(main())


def test_others_have_their_turn_while_a_large_read_is_handed_on() -> None:
    async def main() -> None:
        handed_on = 0
        turns: list[int] = []
        loop = asyncio.get_running_loop()
        async with serving(answering(whole(EMPTY_LINES))) as server, transport_of("aiohttp") as transport:
            response = await transport.send(post(server.url), LIMITED)
            async for _ in response.chunks():
                loop.call_soon(turns.append, 1)
                handed_on += 1
                assert handed_on - len(turns) <= 2

    asyncio.run(main())


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@both_transports
def test_the_total_time_ends_an_answer_in_the_middle_of_unpacking_it(kind: str) -> None:
    received = 0

    async def main() -> None:
        nonlocal received
        script = answering(whole(gzip.compress(EMPTY_LINES), "Content-Encoding: gzip"))
        async with serving(script) as server, transport_of(kind) as transport:
            response = await transport.send(post(server.url), LIMITED)
            async with aclosing(cast("Any", response.chunks())) as chunks:
                async for chunk in chunks:
                    received += len(chunk)
                    cast("JumpingLoop", asyncio.get_running_loop()).ahead = 100.0

    with asyncio.Runner(loop_factory=JumpingLoop) as runner, pytest.raises(ModelError, match="timeout total") as raised:
        runner.run(main())
    assert raised.value.code is ErrorCode.TIMEOUT
    assert received <= 4 * SLICE


def seconds_for(chunk: bytes) -> float:
    best = 1e9
    for _ in range(3):
        parser = SseParser()
        started = time.perf_counter()
        for _ in range(20):
            parser.feed(chunk)
        best = min(best, time.perf_counter() - started)
    return best


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\n\n\n:"])
def test_empty_lines_cost_no_more_than_events_do(line: bytes) -> None:
    event = b"data: {}\n\n"
    assert seconds_for(line * (SLICE // len(line))) < 5 * seconds_for(event * (SLICE // len(event)))


@pytest.mark.parametrize("count", range(2, 8))
def test_any_number_of_empty_lines_ends_an_event(count: int) -> None:
    body = b"\n" * count + b"data: a" + b"\n" * count + b"event: e\ndata: b" + b"\n" * count
    assert SseParser().feed(body) == [("", b"a"), ("e", b"b")]
    parser = SseParser()
    assert [event for byte in body for event in parser.feed(bytes([byte]))] == [("", b"a"), ("e", b"b")]


def test_a_stream_without_end_ends_as_an_error() -> None:
    dialect = find_dialect("openai-chat")
    reader = ResponseReader(find_codec(dialect.specification), dialect, headers={"content-type": "text/event-stream"})
    chunk = b": " + b"x" * (1024 * 1024 - 4) + b"\n\n"
    for _ in range(STREAM_LIMIT // len(chunk)):
        assert reader.feed(chunk) == []
    (last,) = reader.feed(chunk)
    assert isinstance(last, ErrorDelta)
    assert last.error_code == ErrorCode.PROTOCOL_VIOLATION
    assert "the stream is larger than" in str(last.message)
    assert STREAM_LIMIT <= 256 * 1024 * 1024


def chat_event(delta: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":%s}]}\n\n' % delta


FINISHED = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("field", [b"zz", b"reasoning_details", b"annotations"])
@pytest.mark.parametrize("value", [b"100000", b'{"a":1}', b'"\\",\\""'])
def test_an_event_of_too_many_values_is_not_read(field: bytes, value: bytes) -> None:
    many = b'{"%s":[%s]}' % (field, b",".join([value] * (VALUES_LIMIT + 1)))
    for body, kind in (
        (chat_event(many) + FINISHED, "text/event-stream"),
        (b'{"choices":[{"message":%s,"finish_reason":"stop"}]}' % many, "application/json"),
    ):
        last = decode_recorded("openai-chat", body, content_type=kind)[-1]
        assert isinstance(last, ErrorDelta)
        assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_a_large_text_may_hold_what_looks_like_values() -> None:
    text = ",[{" * VALUES_LIMIT + "x" * LARGE
    deltas = decode_recorded("openai-chat", chat_event(json.dumps({"content": text}).encode()) + FINISHED)
    assert [delta.kind for delta in deltas] == ["start", "text", "done"]


def test_an_event_of_too_many_lines_is_not_read() -> None:
    assert SseParser().feed(b"data: 1\n" * LINES_LIMIT + b"\n")
    with pytest.raises(ModelError, match="lines"):
        SseParser().feed(b"data: 1\n" * (LINES_LIMIT + 2) + b"\n")


def test_large_text_with_half_characters_is_not_read() -> None:
    halves = rb"\ud83d" * 100
    few, many = (chat_event(b'{"content":"%s"}' % (halves * count)) for count in (1, 1_000))
    assert decode_recorded("openai-chat", few + FINISHED)[-1].kind == "done"
    assert decode_recorded("openai-chat", many + FINISHED)[-1].kind == "error"
    arguments = '{"a":"' + halves.decode() * (SLOW_ARGUMENTS_SIZE // len(halves) + 1) + '"}'
    assert parse_arguments(arguments).error is not None


def test_of_the_body_of_an_error_no_more_is_read_than_is_told() -> None:
    dialect = find_dialect("openai-chat")
    headers = {"content-type": "application/json"}
    reader = ResponseReader(find_codec(dialect.specification), dialect, status=400, headers=headers)
    begun = b'{"error":{"message":"too many details","details":['
    assert reader.feed(begun) == []
    (error,) = reader.feed(b'{"reason":"x"},' * ERROR_LIMIT)
    assert isinstance(error, ErrorDelta)
    assert (error.error_code, reader.finished) == (ErrorCode.INVALID_REQUEST, True)
    assert "too many details" in (error.provider_message or "")


class NotingDecoder:
    """Notes in which thread it reads."""

    unknown_events = 0

    def __init__(self, decoder: EventDecoder, threads: list[int]) -> None:
        self._decoder = decoder
        self._threads = threads

    def decode(self, events: Sequence[WireEvent]) -> None:
        if events:
            self._threads.append(threading.get_ident())
        self._decoder.decode(events)

    def decode_body(self, body: bytes) -> None:
        self._threads.append(threading.get_ident())
        self._decoder.decode_body(body)

    def end(self) -> None:
        self._decoder.end()


@pytest.mark.parametrize(("size", "in_loop"), [(LARGE // 2, True), (2 * LARGE, False)])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_what_is_large_is_read_outside_of_the_event_loop(size: int, in_loop: bool, kind: str) -> None:
    threads: list[int] = []
    dialect = find_dialect("openai-chat")
    own = find_codec(dialect.specification)

    def open_decoder(writer: DeltaWriter, record: Dialect) -> NotingDecoder:
        return NotingDecoder(own.open_decoder(writer, record), threads)

    answer = {"message" if kind == "application/json" else "delta": {"content": "x" * size}, "finish_reason": "stop"}
    body = json.dumps({"choices": [answer]}).encode()
    body = body if kind == "application/json" else b"data: " + body + b"\n\n"
    chunks = tuple(body[start : start + SLICE] for start in range(0, len(body), SLICE))
    client = ProviderClient(
        dialect,
        codec=msgspec.structs.replace(own, open_decoder=open_decoder),
        api_key="sk-1234567890",
        transport=ReplayTransport([ReplayedResponse(chunks=chunks, headers={"content-type": kind})]),
    )

    async def main() -> list[MessageDelta]:
        request = WireRequest(path="/x", body=b"{}")
        return [delta async for deltas in client.send(request) for delta in deltas]

    assert [delta.kind for delta in asyncio.run(main())] == ["start", "text", "done"]
    assert [thread == threading.get_ident() for thread in threads] == [in_loop]


def nested(count: int) -> str:
    """An object of so many values, itself counted."""
    return '{"a": [' + ", ".join(["[ ]"] * (count - 2)) + "]}"


def test_arguments_of_too_many_values_are_not_read() -> None:
    assert parse_arguments(nested(ARGUMENTS_VALUES)).arguments is not None
    made = ToolCall.parse("c", "f", nested(ARGUMENTS_VALUES + 1))
    assert made.arguments is None
    assert made.parse_error == f"arguments of more than {ARGUMENTS_VALUES:,} values are not read"
    assert made.raw_args_text == nested(ARGUMENTS_VALUES + 1)


def test_what_looks_like_values_in_a_text_does_not_count() -> None:
    text = 'f([1, {"a": 2}], "\\\\"),\n' * ARGUMENTS_VALUES
    assert parse_arguments(json.dumps({"code": text})).arguments == {"code": text}


def test_arguments_of_too_many_characters_are_not_read() -> None:
    assert parse_arguments('{"a":"' + "x" * ARGUMENTS_SIZE + '"}').error == (
        f"arguments of more than {ARGUMENTS_SIZE:,} characters are not read"
    )


def test_arguments_that_no_cut_makes_shorter_are_neither_copied_nor_counted_again() -> None:
    message = Message.assistant(ToolCall.parse("c", "f", json.dumps({"a": [[]] * 1_000}, separators=(",", ":"))))
    unit, entry = Unit(), ModelOutputEntry(message=message, serial=1)
    unit.put(entry, [message], [3_000])
    counted: list[Message] = []
    cut = cut_unit(unit, {1: 100}, lambda message: counted.append(message) or 1)  # type: ignore[func-returns-value]
    assert counted == []
    assert cut.messages[0] is message
    assert cut.sizes == [3_000]


def test_an_mcp_result_of_too_many_values_is_refused() -> None:
    async def main() -> None:
        async with plain() as server:
            result = await call(server, "many", count=MOST_VALUES)
            assert text_of(result) == (
                f"The result holds more than {MOST_VALUES:,} values and was not read. Ask for less of it."
            )
            assert result.error_code == ErrorCode.TOOL_FAILED
            assert (await call(server, "many", count=1_000)).error_code is None

    run(main())
