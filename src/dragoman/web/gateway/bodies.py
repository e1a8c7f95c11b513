"""The bodies of requests: bounded in size, in all together, and in the time that they may take."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from ...errors import ErrorCode
from .refusals import RefusedRequest

__all__ = ["Bodies", "expect_nothing"]

SMALL = 1 << 20  # a body of this size is taken however much the others hold
SLOWEST = 8 << 10  # bytes a second, beside the patience
PIECE = 256 << 10
_WINDOW = 47  # of zlib: gzip or deflate, whichever the body begins with


class Bodies:
    """Reads bodies of at most `limit` bytes each, and holds at most `limit_in_all` at once, small ones apart."""

    def __init__(self, limit: int, limit_in_all: int, *, patience: float) -> None:
        self._limit = limit
        self._limit_in_all = max(limit, limit_in_all)
        self._patience = patience
        self.held = 0

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read the body of a request; it counts as held until the context is left. Raises RefusedRequest."""
        self._require_length(request)
        await _let_it_come(request)
        body, held = bytearray(), 0
        try:
            async for piece in _decoded(request, self._pieces(request)):
                body += piece
                held += len(piece)
                self.held += len(piece)
                if held > self._limit:
                    raise self._too_large()
                if held > SMALL and self.held > self._limit_in_all:
                    words = "this gateway holds as many large requests as it takes: ask again later"
                    raise RefusedRequest(503, words, code=ErrorCode.OVERLOADED)
            read = bytes(body)
            body.clear()
            yield read
        finally:
            self.held -= held

    def _require_length(self, request: web.Request) -> None:
        if (request.content_length or 0) > self._limit:
            raise self._too_large()

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(413, f"the body is larger than the {self._limit:,} bytes that this gateway takes")

    async def _pieces(self, request: web.Request) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes. A client that sends too slowly over its whole length is not waited for."""
        begun, received = asyncio.get_running_loop().time(), 0
        while True:
            try:
                async with asyncio.timeout_at(begun + self._patience + received / SLOWEST):
                    piece = await request.content.readany()
            except TimeoutError:
                words = f"the body came too slowly: {received:,} bytes are here"
                raise RefusedRequest(408, words, code=ErrorCode.TIMEOUT) from None
            except web.RequestPayloadError:
                raise RefusedRequest(400, "the body of the request is broken: its chunks or its length") from None
            if not piece:
                return
            received += len(piece)
            yield piece


async def expect_nothing(request: web.Request) -> None:
    """Take `Expect: 100-continue` of a request: it is met when the body is read, not for one that is refused."""


async def _let_it_come(request: web.Request) -> None:
    if request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # so far it is no answer


async def _decoded(request: web.Request, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the body without its compression, never much more of it than PIECE at once."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        async for piece in pieces:
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise RefusedRequest(415, "the body is encoded in another way than gzip or deflate, which this gateway reads")
    reader = zlib.decompressobj(_WINDOW)
    try:
        async for piece in pieces:
            rest = piece
            while rest and not reader.eof:
                yield reader.decompress(rest, PIECE)
                rest = reader.unconsumed_tail
                await asyncio.sleep(0)  # a small body may become a large one
            if reader.unused_data:
                break
        yield reader.flush()
    except zlib.error:
        raise RefusedRequest(400, f"the body is no {encoding}") from None
    if not reader.eof or reader.unused_data:
        raise RefusedRequest(400, f"the body does not end where its {encoding} ends")
