"""A bounded channel of chunks between one producer and one reader, which either side may leave. Knows no model.

A full channel makes the producer wait. A stream ends in exactly one terminal chunk, also where its producer dies; a
reader who leaves stops the producer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

from .._finishing import finish
from ..errors import ContractViolation, DragomanError, ErrorCode, InvalidValue, ModelError
from ..models.streams import log_bug
from .chunks import TERMINALS, ChunkOrder, Error, MessageStop, StreamChunk, tool_use_chunks
from .values import ModelResponse

__all__ = ["DEFAULT_CAPACITY", "ReaderLeft", "Sender", "StreamingResponse", "require_capacity"]

DEFAULT_CAPACITY = 32
# How long a producer that has sent its last chunk may take to close its connection before it is cancelled.
_GRACE_SECONDS = 1.0


class ReaderLeft(ModelError):
    """The reader has left the stream: the producer may stop."""

    default_code = ErrorCode.CANCELLED


class Sender:
    """The producer's end of a channel. Use it with `with`, so that a failure reaches the reader as an `Error`."""

    __slots__ = ("_channel",)

    def __init__(self, channel: "_Channel") -> None:
        self._channel = channel

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more: the stream has ended or its reader has left."""
        return self._channel.reader_left or self._channel.order.ended

    async def send(self, chunk: StreamChunk) -> None:
        """Pass a chunk on, after waiting while the channel is full; a terminal chunk does not wait.

        Raises ReaderLeft if the reader has left, and ContractViolation for a chunk that may not come here.
        """
        channel = self._channel
        while len(channel.chunks) >= channel.capacity and not self.is_closed and not isinstance(chunk, TERMINALS):
            await channel.wait_for_room()
        channel.put(chunk)

    async def finish(self, response: ModelResponse) -> None:
        """End the stream with a whole answer: a ToolUse for each of its calls, then MessageStop.

        The reader has it as `StreamingResponse.response`.
        """
        if not isinstance(response, ModelResponse):
            raise InvalidValue.of("finish: the response", response, "a ModelResponse")
        for chunk in tool_use_chunks(response.message):
            await self.send(chunk)
        await self.send(MessageStop(response.usage, response.stop_reason))
        self._channel.response = response

    def close(self, error: Exception | None = None) -> None:
        """End the stream: with an `Error` for `error`, or because no terminal chunk was sent. Does nothing twice."""
        self._channel.end(error)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self.close(error)
        else:
            self.close(_cancelled())

    def __del__(self) -> None:
        if not self.is_closed and self._channel.task is None:  # a task reports its own end
            self._channel.call_from_anywhere(self._channel.end)


class StreamingResponse:
    """An answer as it comes: an async iterator of chunks that ends after one MessageStop or Error.

    Use it with `async with`, so that leaving early stops the producer and closes its connection. A reader that is
    just dropped does the same a little later.
    """

    __slots__ = ("__weakref__", "_channel", "_has_ended")

    def __init__(self, channel: "_Channel") -> None:
        self._channel = channel
        self._has_ended = False

    @classmethod
    def channel(cls, capacity: int = DEFAULT_CAPACITY) -> "tuple[Sender, StreamingResponse]":
        """Return both ends of a new channel, which holds up to `capacity` unread chunks."""
        channel = _Channel(capacity)
        return Sender(channel), cls(channel)

    @classmethod
    def produced_by(
        cls, produce: Callable[[Sender], Awaitable[None]], *, capacity: int = DEFAULT_CAPACITY
    ) -> "StreamingResponse":
        """Return the stream of a producer that runs as a task of its own, and is cancelled when the reader leaves.

        What it raises becomes the closing `Error`.
        """
        channel = _Channel(capacity)
        channel.run(produce)
        return cls(channel)

    @property
    def response(self) -> ModelResponse | None:
        """The whole answer, once MessageStop has been read, if the producer gave one; as every adapter here does."""
        return self._channel.response if self._has_ended else None

    def __aiter__(self) -> "StreamingResponse":
        return self

    async def __anext__(self) -> StreamChunk:
        channel = self._channel
        while not channel.chunks:
            if self._has_ended or channel.reader_left:
                raise StopAsyncIteration
            await channel.wait_for_chunk()
        chunk = channel.take()
        self._has_ended = isinstance(chunk, TERMINALS)
        return chunk

    async def __aenter__(self) -> "StreamingResponse":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading, stop the producer and wait until it has closed what it held."""
        self._channel.leave()
        await self._channel.producer_stopped()

    def __del__(self) -> None:
        if not self._has_ended:
            self._channel.call_from_anywhere(self._channel.leave)


class _Channel:
    """What both ends share. It refers to neither, so that a dropped end is noticed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = require_capacity(capacity)
        self.chunks: deque[StreamChunk] = deque()
        self.order = ChunkOrder()
        self.response: ModelResponse | None = None
        self.reader_left = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # set by the first waiting task
        self.task: asyncio.Task[None] | None = None

    def run(self, produce: Callable[[Sender], Awaitable[None]]) -> None:
        """Start the producer's task."""
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(_produce(produce, Sender(self)))
        self.task.add_done_callback(self._producer_ended)

    def put(self, chunk: StreamChunk) -> None:
        if self.reader_left:
            raise ReaderLeft("the reader of this stream has left")
        self.chunks.extend(self.order.admit(chunk))
        self._readable.set()

    def take(self) -> StreamChunk:
        chunk = self.chunks.popleft()
        self._writable.set()
        return chunk

    def end(self, error: Exception | None = None) -> None:
        if self.reader_left or self.order.ended:
            return
        truncated = ModelError("the producer stopped before the answer was whole", code=ErrorCode.STREAM_TRUNCATED)
        self.put(Error.of(error or truncated))
        self._writable.set()  # waiting senders learn that the reader has left

    def leave(self) -> None:
        self.reader_left = True
        self.chunks.clear()
        self._readable.set()
        self._writable.set()
        if self.task is not None and not self.order.ended:
            self.task.cancel()

    async def producer_stopped(self) -> None:
        """Wait for the producer's task. After its last chunk it has some time to close its connection."""
        task = self.task
        if task is None or task is asyncio.current_task():
            return
        await finish(self._stop(task))

    async def _stop(self, task: asyncio.Task[None]) -> None:
        _, lingering = await asyncio.wait({task}, timeout=_GRACE_SECONDS if self.order.ended else None)
        if lingering:
            task.cancel()
            await asyncio.wait({task})

    async def wait_for_room(self) -> None:
        await self._wait(self._writable)

    async def wait_for_chunk(self) -> None:
        await self._wait(self._readable)

    def call_from_anywhere(self, action: Callable[[], None]) -> None:
        """Do it in the loop's own thread: garbage is collected in any."""
        if self._loop is None:
            action()
            return
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop is closed: no reader waits there
            pass

    async def _wait(self, event: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        event.clear()
        await event.wait()

    def _producer_ended(self, task: asyncio.Task[None]) -> None:
        """Tell the reader however the task ended. A task that was cancelled before it began could not do so itself."""
        self.end(_cancelled() if task.cancelled() else None)


async def _produce(produce: Callable[[Sender], Awaitable[None]], sender: Sender) -> None:
    try:
        await produce(sender)
    except Exception as error:  # noqa: BLE001  # whatever the producer does, the stream ends legally
        if not isinstance(error, DragomanError) or isinstance(error, ContractViolation):
            log_bug(error)
        sender.close(error)


def require_capacity(capacity: object) -> int:
    """Return the capacity; raise InvalidValue unless a channel can have it."""
    if type(capacity) is not int or capacity < 1:
        raise InvalidValue.of("capacity", capacity, "a whole number from 1 up")
    return capacity


def _cancelled() -> ModelError:
    return ModelError("the producer of the stream was cancelled", code=ErrorCode.CANCELLED)
