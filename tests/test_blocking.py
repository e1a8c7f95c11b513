"""Long input from outside does not hold the event loop: it is worked on in slices, or refused before it is read."""

import asyncio
import gzip
import json
import time
from contextlib import aclosing
from typing import Any, cast

import pytest

from dragoman import ErrorCode, ErrorDelta, Message, ModelError, ToolCall
from dragoman.context.cutting import cut_unit
from dragoman.context.timeline import Unit
from dragoman.history import ModelOutputEntry
from dragoman.jsontext import ARGUMENTS_SIZE, ARGUMENTS_VALUES, parse_arguments
from dragoman.stream import ResponseReader, SseParser
from dragoman.stream.reader import STREAM_LIMIT
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
