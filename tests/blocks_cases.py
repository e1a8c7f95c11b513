"""What the tests of the block-style interface share: events as bytes, a model that plays deltas, ways to read."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar

from dragoman import MessageDelta
from dragoman.blocks import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    Message,
    MessageStop,
    ModelAdapter,
    Role,
    StreamChunk,
    ToolUse,
)
from dragoman.delta import KnownDelta
from dragoman.stream import Assembler, Assembly

_Result = TypeVar("_Result")
HELLO = (Message(Role.USER, "What do you see?"),)


def sse(*events: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % (json.dumps(event) if event != "[DONE]" else event).encode() for event in events)


def chat_piece(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    async def limited() -> _Result:
        async with asyncio.timeout(60):  # a stream that hangs is a failure, not a wait
            return await work

    return asyncio.run(limited())


async def read(asked: ModelAdapter, messages: Any = HELLO, **arguments: Any) -> tuple[list[StreamChunk], Any]:
    async with await asked.stream_message(messages, **arguments) as stream:
        chunks = [chunk async for chunk in stream]
    return chunks, stream.response


def last_error(chunks: list[StreamChunk]) -> Error:
    assert isinstance(chunks[-1], Error)
    return chunks[-1]


def require_legal(chunks: list[StreamChunk]) -> None:
    """Each block is stopped before the next one starts, indices increase, and one terminal comes last."""
    open_block: int | None = None
    last = -1
    for chunk in chunks[:-1]:
        match chunk:
            case ContentBlockStart(index=index):
                assert open_block is None
                assert index > last
                open_block = last = index
            case ContentBlockDelta(index=index):
                assert index == open_block
            case ContentBlockStop(index=index):
                assert index == open_block
                open_block = None
            case ToolUse():
                assert open_block is None
            case _:
                raise AssertionError("a terminal chunk before the end")
    assert open_block is None
    assert isinstance(chunks[-1], (MessageStop, Error))


async def settle() -> None:
    """Let every task go as far as it can go by itself."""
    for _ in range(200):
        await asyncio.sleep(0)


class Played:
    """A stream of given deltas, as `Model.stream` gives one."""

    def __init__(self, deltas: list[MessageDelta]) -> None:
        self._deltas: list[Any] = deltas
        self._assembler = Assembler()

    @property
    def assembly(self) -> Assembly:
        return self._assembler.result()

    async def __aiter__(self) -> AsyncIterator[KnownDelta]:
        for delta in self._deltas:
            self._assembler.feed(delta)
            yield delta

    async def aclose(self) -> None:
        pass


class Player:
    """A model that says the same to everyone."""

    def __init__(self, deltas: list[MessageDelta]) -> None:
        self._deltas = deltas

    def stream(self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **params: Any) -> Played:
        return Played(self._deltas)
