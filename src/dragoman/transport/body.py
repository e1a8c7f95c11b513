"""Response bodies as the transports hand them on: decompressed within bounds, a redirect turned into an error. Pure.

We ask for no compression. Gateways compress all the same, so gzip and deflate are read; what grows too much is refused.
"""

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing

from ..errors import ErrorCode, ModelError
from .protocol import host_of

__all__ = ["Inflater", "readable_chunks"]

# Text of models packs 5 to 50 times; zlib's worst is 1,032 times. The free part spares short bodies.
EXPANSION_LIMIT = 200
EXPANSION_FREE = 4 * 1024 * 1024
PIECE_SIZE = 64 * 1024  # also the bytes that are passed on before other tasks run
# Compressed bytes can go on for ever and unpack to nothing. The worst that honest servers do is a gzip member for each
# event, which is twice the event's size.
PACKING_LIMIT = 4
PACKING_FREE = 1024 * 1024
FEED_SIZE = 4 * 1024  # zlib copies what follows a member: many small members in one large chunk would cost its square
_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
_RAW = -zlib.MAX_WBITS


class Inflater:
    """Compressed bytes to plain ones in pieces of bounded size. Several gzip members in a row are read."""

    __slots__ = ("_bytes_in", "_bytes_out", "_encoding", "_engine")

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._engine: zlib._Decompress | None = None
        self._bytes_in = 0
        self._bytes_out = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what `chunk` unpacks to; raise ModelError if it is damaged or unpacks to far too much or too little."""
        for start in range(0, len(chunk), FEED_SIZE):
            yield from self._unpacked(chunk[start : start + FEED_SIZE])

    def _unpacked(self, packed: bytes) -> Iterator[bytes]:
        self._bytes_in += len(packed)
        if self._bytes_in > PACKING_FREE + PACKING_LIMIT * self._bytes_out:
            raise ModelError("the compressed answer unpacks to almost nothing", code=ErrorCode.PROTOCOL_VIOLATION)
        is_full = False  # zlib may hold more than the last piece could take, with nothing left to feed it
        while packed or is_full:
            if self._engine is None or self._engine.eof:
                self._engine = zlib.decompressobj(self._window(packed))
            try:
                piece = self._engine.decompress(packed, PIECE_SIZE)
            except zlib.error:
                damage = ModelError("the compressed answer is damaged", code=ErrorCode.PROTOCOL_VIOLATION)
                raise damage from None
            self._bytes_out += len(piece)
            if self._bytes_out > EXPANSION_FREE + EXPANSION_LIMIT * self._bytes_in:
                raise ModelError(
                    f"the compressed answer unpacks to more than {EXPANSION_LIMIT} times its size",
                    code=ErrorCode.PROTOCOL_VIOLATION,
                )
            if piece:
                yield piece
            is_full = len(piece) == PIECE_SIZE and not self._engine.eof
            packed = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail

    def end(self) -> None:
        """Raise ModelError if the body ended inside the compressed data."""
        if self._engine is not None and not self._engine.eof:
            raise ModelError("the compressed answer was cut short", code=ErrorCode.STREAM_TRUNCATED)

    def _window(self, chunk: bytes) -> int:
        # "deflate" should mean zlib's format; some servers send it bare. zlib's first byte has 8 in its low half.
        return _RAW if self._encoding == "deflate" and chunk[0] & 0x0F != 8 else _ZLIB_OR_GZIP


def readable_chunks(
    status: int,
    headers: Mapping[str, str],
    raw: AsyncGenerator[bytes, None],
    close: Callable[[], Awaitable[None]],
    pause: Callable[[], Awaitable[None]],
) -> AsyncGenerator[bytes, None]:
    """Return the body to hand on for the raw one: mostly itself, without a layer in between.

    What one read unpacks to is handed on in slices; `pause` is awaited between them, and raises when time is over.
    """
    if 300 <= status < 400:
        return _failing(_redirect_error(status, headers.get("location", "")), close)
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return raw
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _inflated(raw, Inflater(encoding), pause)
    problem = "the answer is compressed in a way that was not asked for and is not known"
    return _failing(ModelError(problem, code=ErrorCode.PROTOCOL_VIOLATION), close)


async def _inflated(
    raw: AsyncGenerator[bytes, None], inflater: Inflater, pause: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(raw):
        async for chunk in raw:
            size = 0  # bytes passed on since other tasks ran
            for piece in inflater.feed(chunk):
                if size + len(piece) > PIECE_SIZE and size:
                    await pause()
                    size = 0
                size += len(piece)
                yield piece
        inflater.end()


async def _failing(error: ModelError, close: Callable[[], Awaitable[None]]) -> AsyncGenerator[bytes, None]:
    await close()
    raise error
    yield b""  # makes this a generator


def _redirect_error(status: int, location: str) -> ModelError:
    # Only the host is told: the rest of the address may hold a token.
    return ModelError(
        f"the server redirects to {host_of(location)[:100]} (HTTP {status}); redirects are not followed:"
        " check the base URL",
        code=ErrorCode.PROTOCOL_VIOLATION,
    )
