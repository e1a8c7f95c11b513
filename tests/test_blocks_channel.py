"""The channel of chunks: back-pressure, order, and what happens when either side leaves."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, InvalidValue, ModelError
from dragoman.blocks import (
    BlockAdapter,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    Message,
    MessageStop,
    ModelResponse,
    ReaderLeft,
    Role,
    Sender,
    StreamChunk,
    StreamingResponse,
    TextBlock,
    TokenUsage,
    ToolUse,
    ToolUseBlock,
)
from dragoman.errors import ContractViolation
from tests.blocks_cases import Player, last_error, require_legal, run, settle

PROMPT = "what a foreign exception says"
ANSWER = ModelResponse(
    Message(Role.ASSISTANT, (TextBlock("Hi"), ToolUseBlock("t1", "look", {}))),
    TokenUsage(1, 2),
    "mine",
    FinishReason.TOOL_CALLS,
)


def test_a_full_channel_makes_the_producer_wait() -> None:
    async def work() -> None:
        sender, stream = StreamingResponse.channel(capacity=2)
        sent: list[int] = []

        async def produce() -> None:
            with sender:
                for index in range(3):
                    await sender.send(ToolUse("look", f"t{index}", {}))
                    sent.append(index)
                await sender.send(MessageStop(None))

        task = asyncio.create_task(produce())
        await settle()
        assert sent == [0, 1]
        assert [chunk async for chunk in stream][-1] == MessageStop(None)
        await task
        assert sent == [0, 1, 2]

    run(work())


def test_a_producer_can_give_the_whole_answer_at_the_end() -> None:
    async def produce(sender: Sender) -> None:
        await sender.send(ContentBlockStart(0))
        await sender.send(ContentBlockDelta(0, "Hi"))
        await sender.send(ContentBlockStop(0))
        await sender.finish(ANSWER)

    async def work() -> None:
        async with StreamingResponse.produced_by(produce, capacity=1) as stream:
            assert stream.response is None
            chunks = [chunk async for chunk in stream]
        assert chunks[-2:] == [
            ToolUse("look", "t1", {}, 1),
            MessageStop(TokenUsage(1, 2), FinishReason.TOOL_CALLS),
        ]
        assert stream.response is ANSWER

    run(work())


async def stop_early(sender: Sender) -> None:
    await sender.send(ContentBlockStart(0))


async def raise_foreign(sender: Sender) -> None:
    await sender.send(ContentBlockStart(0))
    raise ValueError(PROMPT)


async def raise_own(sender: Sender) -> None:
    await sender.send(ContentBlockStart(0))
    raise ModelError("busy", code=ErrorCode.OVERLOADED)


async def cancel_itself(sender: Sender) -> None:
    await sender.send(ContentBlockStart(0))
    raise asyncio.CancelledError


async def break_the_order(sender: Sender) -> None:
    await sender.send(ContentBlockStart(0))
    await sender.send(MessageStop(None))


@pytest.mark.parametrize(
    ("produce", "code"),
    [
        (stop_early, ErrorCode.STREAM_TRUNCATED),
        (raise_foreign, ErrorCode.INTERNAL),
        (raise_own, ErrorCode.OVERLOADED),
        (cancel_itself, ErrorCode.CANCELLED),
        (break_the_order, ErrorCode.PROTOCOL_VIOLATION),
    ],
)
def test_a_producer_that_dies_gives_an_error_never_silence(produce: Any, code: ErrorCode) -> None:
    async def by_task() -> list[StreamChunk]:
        return [chunk async for chunk in StreamingResponse.produced_by(produce)]

    async def by_hand() -> list[StreamChunk]:
        sender, stream = StreamingResponse.channel()

        async def guarded() -> None:
            with sender:
                await produce(sender)

        task = asyncio.create_task(guarded())
        chunks = [chunk async for chunk in stream]
        await asyncio.wait({task})
        assert task.cancelled() or task.exception() is None or code is not ErrorCode.STREAM_TRUNCATED
        return chunks

    for chunks in (run(by_task()), run(by_hand())):
        assert chunks[:-1] == [ContentBlockStart(0), ContentBlockStop(0)]
        assert last_error(chunks).code is code
        assert PROMPT not in last_error(chunks).message


def test_a_failure_that_is_no_error_of_ours_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        [_ async for _ in StreamingResponse.produced_by(raise_foreign)]

    run(work())
    assert "ValueError" in caplog.text
    assert PROMPT not in caplog.text


def test_a_producer_cancelled_before_it_began_gives_an_error() -> None:
    async def work() -> list[StreamChunk]:
        before = asyncio.all_tasks()
        stream = StreamingResponse.produced_by(stop_early)
        (task,) = asyncio.all_tasks() - before
        task.cancel()
        return [chunk async for chunk in stream]

    (chunk,) = run(work())
    assert last_error([chunk]).code is ErrorCode.CANCELLED


def test_a_producer_that_stays_after_its_last_chunk_is_cancelled_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.blocks.channels._GRACE_SECONDS", 0.0)

    async def work() -> bool:
        stopped = asyncio.Event()

        async def stay(sender: Sender) -> None:
            await sender.send(MessageStop(None))
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with StreamingResponse.produced_by(stay) as stream:
            assert [chunk async for chunk in stream] == [MessageStop(None)]
        return stopped.is_set()

    assert run(work())


def test_a_producer_may_close_its_own_stream() -> None:
    async def work() -> None:
        stream: StreamingResponse | None = None

        async def close(sender: Sender) -> None:
            assert stream is not None
            await stream.aclose()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            with pytest.raises(ReaderLeft):
                await sender.send(MessageStop(None))

        stream = StreamingResponse.produced_by(close)
        assert [chunk async for chunk in stream] == []

    run(work())


def test_a_sender_that_was_dropped_gives_an_error() -> None:
    async def work() -> list[StreamChunk]:
        sender, stream = StreamingResponse.channel()
        await sender.send(ContentBlockStart(0))
        first = await anext(stream)
        reading = asyncio.create_task(anext(stream))
        await settle()
        del sender
        gc.collect()
        return [first, await reading, *[chunk async for chunk in stream]]

    chunks = run(work())
    require_legal(chunks)
    assert last_error(chunks).code is ErrorCode.STREAM_TRUNCATED


def test_closing_the_sender_ends_the_stream_once() -> None:
    async def work() -> list[StreamChunk]:
        sender, stream = StreamingResponse.channel(capacity=1)
        await sender.send(ContentBlockStart(0))  # full: closing needs no room
        sender.close()
        sender.close(ModelError("too late"))
        assert sender.is_closed
        return [chunk async for chunk in stream]

    chunks = run(work())
    assert [type(chunk) for chunk in chunks] == [ContentBlockStart, ContentBlockStop, Error]
    assert last_error(chunks).code is ErrorCode.STREAM_TRUNCATED


def test_sending_to_a_reader_who_left_is_told() -> None:
    async def work() -> None:
        sender, stream = StreamingResponse.channel(capacity=1)
        await sender.send(ContentBlockStart(0))
        waiting = asyncio.create_task(sender.send(ContentBlockStop(0)))
        await settle()
        await stream.aclose()
        with pytest.raises(ReaderLeft, match="the reader of this stream has left") as told:
            await waiting
        assert told.value.code is ErrorCode.CANCELLED
        with pytest.raises(ReaderLeft):
            await sender.send(MessageStop(None))
        assert sender.is_closed
        sender.close()

    run(work())


def test_a_dropped_reader_of_a_bare_channel_wakes_the_sender() -> None:
    async def work() -> None:
        sender, stream = StreamingResponse.channel(capacity=1)
        await sender.send(ContentBlockStart(0))
        waiting = asyncio.create_task(sender.send(ContentBlockStop(0)))
        await settle()
        del stream
        gc.collect()
        with pytest.raises(ReaderLeft):
            await waiting

    run(work())


@pytest.mark.parametrize(
    ("before", "chunk", "said"),
    [
        ([], ContentBlockDelta(0, "x"), "ContentBlockDelta: stream is between blocks"),
        ([], ContentBlockStop(0), "ContentBlockStop: stream is between blocks"),
        ([ContentBlockStart(1)], ContentBlockStart(2), "ContentBlockStart: stream is in a block"),
        ([ContentBlockStart(1)], ToolUse("look", "t", {}), "ToolUse: stream is in a block"),
        ([ContentBlockStart(1)], MessageStop(None), "MessageStop: stream is in a block"),
        ([ContentBlockStart(1)], ContentBlockDelta(0, "x"), "ContentBlockDelta 0: the open block is 1"),
        ([ContentBlockStart(1)], ContentBlockStop(2), "ContentBlockStop 2: the open block is 1"),
        ([ContentBlockStart(1), ContentBlockStop(1)], ContentBlockStart(1), "ContentBlockStart 1: the last block was"),
        ([MessageStop(None)], MessageStop(None), "MessageStop: stream is ended, legal: nothing"),
        ([MessageStop(None)], Error("x"), "Error: stream is ended"),
        ([Error("x")], MessageStop(None), "MessageStop: stream is ended"),
        ([Error("x")], ContentBlockStart(1), "ContentBlockStart: stream is ended"),
    ],
)
def test_a_chunk_out_of_order_is_refused(before: list[StreamChunk], chunk: StreamChunk, said: str) -> None:
    async def work() -> None:
        sender, _stream = StreamingResponse.channel()
        for legal in before:
            await sender.send(legal)
        with pytest.raises(ContractViolation) as violation:
            await sender.send(chunk)
        assert said in str(violation.value)

    run(work())


def test_only_chunks_go_through() -> None:
    async def work() -> None:
        sender, _stream = StreamingResponse.channel()
        with pytest.raises(InvalidValue, match="a chunk must be one of ContentBlockStart"):
            await sender.send(TextBlock("x"))  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="must be a ModelResponse"):
            await sender.finish("x")  # type: ignore[arg-type]

    run(work())


def test_a_timeout_of_one_read_loses_nothing() -> None:
    async def work() -> list[StreamChunk]:
        sender, stream = StreamingResponse.channel()
        reading = asyncio.create_task(anext(stream))
        await settle()
        reading.cancel()
        await asyncio.wait({reading})
        await sender.send(MessageStop(None))
        return [chunk async for chunk in stream]

    assert run(work()) == [MessageStop(None)]


def test_closing_wakes_a_reader_who_waits() -> None:
    async def work() -> list[StreamChunk]:
        _sender, stream = StreamingResponse.channel()

        async def reader() -> list[StreamChunk]:
            return [chunk async for chunk in stream]

        reading = asyncio.create_task(reader())
        await settle()
        await stream.aclose()
        return await reading

    assert run(work()) == []


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None, "8"])
def test_a_capacity_is_a_whole_number_from_one_up(capacity: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: StreamingResponse.channel(capacity),
        lambda: BlockAdapter(Player([]), capacity=capacity),
    ]
    for make in makers:
        with pytest.raises(InvalidValue, match="capacity must be a whole number from 1 up"):
            make()


def test_a_stream_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        StreamingResponse.produced_by(stop_early)


def test_ends_that_are_dropped_without_a_loop_do_no_harm() -> None:
    sender, stream = StreamingResponse.channel()
    del stream
    assert sender.is_closed
    sender, stream = StreamingResponse.channel()
    del sender
    assert [type(chunk) for chunk in asyncio.run(_all(stream))] == [Error]


async def _all(stream: StreamingResponse) -> list[StreamChunk]:
    return [chunk async for chunk in stream]
