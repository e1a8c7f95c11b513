"""An HTTP server on the loopback interface whose every byte a test decides, and the client half that a model has."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import httpx

from dragoman import MessageDelta, ModelError
from dragoman.stream import ResponseReader
from dragoman.transport import AiohttpTransport, HttpRequest, HttpxTransport, Timeouts, Transport
from dragoman.wire.anthropic import CODEC, AnthropicDialect

KEY = "planted-7f3a9c-not-a-vendor-shape"  # no pattern of `redact` knows it
DIALECT = AnthropicDialect(provider="anthropic", base_url="http://127.0.0.1")
QUICK = Timeouts(connect=2.0, first_byte=5.0, silence=5.0)

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
OPENING = (
    b'data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    b'"model":"claude","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}\n\n'
)
CLOSING = (
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)


def whole(body: bytes, *fields: str, status: str = "200 OK", kind: str = "text/event-stream") -> bytes:
    """Return a complete response that keeps the connection alive."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """Return the next request, head and body; empty when the client has closed."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        return head + await self._reader.readexactly(length)

    async def send(self, *pieces: bytes) -> None:
        """Write, until the client has closed."""
        for piece in pieces:
            if self._writer.is_closing():
                return
            self._writer.write(piece)
            try:
                await self._writer.drain()
            except ConnectionError:
                return

    @property
    def is_closed(self) -> bool:
        """Whether the connection is known to be closed."""
        return self._writer.is_closing()

    async def until_closed(self) -> None:
        """Wait until the client closes."""
        try:
            while await self._reader.read(65_536):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        """Close in the ordinary way."""
        self._writer.close()

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """What a test asks of the server: its address, what it was sent, and whether every connection was let go."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.url = ""
        self.requests: list[bytes] = []
        self.connections = 0
        self.tasks: set[asyncio.Task[object]] = set()
        self.released = asyncio.Event()
        self.released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.released.clear()
        self.connections += 1
        peer = Peer(reader, writer)
        try:
            while request := await peer.request():
                self.requests.append(request)
                await self._script(peer)
                if writer.is_closing():
                    break
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()
            self.tasks.discard(task)
            if not self.tasks:
                self.released.set()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Server]:
    """Run a server that answers each request by the script; the connection stays open until someone closes it."""
    server = Server(script)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20)
    host, port = listener.sockets[0].getsockname()
    server.url = f"http://{host}:{port}/v1/messages"
    try:
        yield server
    finally:
        listener.close()
        for task in list(server.tasks):
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


def answering(*pieces: bytes) -> Script:
    """Return the script that sends these pieces and waits for the next request."""

    async def script(peer: Peer) -> None:
        await peer.send(*pieces)

    return script


@asynccontextmanager
async def transport_of(kind: str) -> AsyncIterator[Transport]:
    """Open one of the two transports, and close it."""
    if kind == "aiohttp":
        transport = AiohttpTransport(trust_env=False)
        try:
            yield transport
        finally:
            await transport.close()
    else:
        async with httpx.AsyncClient(trust_env=False) as client:
            yield HttpxTransport(client)


def post(url: str, *, key: str = KEY, body: bytes = b"{}") -> HttpRequest:
    """Return a request with a key in it."""
    return HttpRequest("POST", url, {"x-api-key": key, "content-type": "application/json"}, body)


async def call(
    transport: Transport,
    request: HttpRequest,
    timeouts: Timeouts = QUICK,
    seen: Callable[[MessageDelta], None] = lambda delta: None,
) -> list[MessageDelta]:
    """Do what a model does: send, read to the end of the stream, close. Every failure becomes a delta."""
    deltas: list[MessageDelta] = []

    def take(new: list[MessageDelta]) -> None:
        deltas.extend(new)
        for delta in new:
            seen(delta)

    try:
        response = await transport.send(request, timeouts)
    except ModelError as error:
        take(ResponseReader(CODEC, DIALECT).end(cause=error))
        return deltas
    reader = ResponseReader(CODEC, DIALECT, status=response.status, headers=response.headers)
    chunks = cast("AsyncGenerator[bytes, None]", response.chunks())
    try:
        async for chunk in chunks:
            take(reader.feed(chunk))
            if reader.finished:
                break
        take(reader.end())
    except ModelError as error:
        take(reader.end(cause=error))
    finally:
        await chunks.aclose()
        await response.close()
    return deltas
