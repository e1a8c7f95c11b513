"""An answer on its way to a client. Its head goes out with its first bytes: until then a failure has a status."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from .fronts import Front

__all__ = ["Delivery"]

SILENCE_SECONDS = 15.0  # after so long without bytes a client is told that its answer is still under way


class Delivery:
    """Writes one answer and keeps what it wrote, without what only kept the stream alive."""

    def __init__(self, request: web.Request, front: "Front", *, is_stream: bool, silence: float | None = None) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.told: Callable[[], Mapping[str, str]] = dict  # fields of a head that goes out before the model answers
        self.size = 0
        self._pieces: list[bytes] = []
        self._request = request
        self._response: web.StreamResponse | None = None
        self._beginning = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._front = front
        self._keep_alive = front.keep_alive if is_stream else b""
        self._silence = SILENCE_SECONDS if silence is None else silence
        self._written_at = self._loop.time()
        self._timer = self._loop.call_later(self._silence, self._look) if self._keep_alive else None
        self._telling: asyncio.Task[None] | None = None

    def body(self, more: bytes = b"") -> bytes:
        """Return what was written, with what is about to be."""
        return b"".join((*self._pieces, more))

    @property
    def has_begun(self) -> bool:
        """Whether the head has gone out."""
        return self._response is not None

    async def settle(self) -> bool:
        """Keep the stream alive no longer, and return whether the head has gone out."""
        self.stop()
        async with self._beginning:  # it may just be going out
            return self.has_begun

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head, once."""
        async with self._beginning:
            if self._response is None:
                await self._send_head(status, headers)

    async def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, dict(headers)
        response = web.StreamResponse(status=status, headers=dict(headers))
        await response.prepare(self._request)
        self._response = response

    async def write(self, piece: bytes) -> None:
        """Send bytes of the answer; wait while the client does not read."""
        assert self._response is not None
        self._keep(piece)
        self._written_at = self._loop.time()
        await self._response.write(piece)

    async def finish(self, *, is_cut: bool = False) -> web.StreamResponse:
        """End the answer and return the response. An answer that is cut has no end, if the API's clients need that."""
        self.stop()
        assert self._response is not None
        if not is_cut or not self._front.breaks_off:
            await self._response.write_eof()
        elif self._request.transport is not None:
            self._request.transport.close()  # after what was written
        return self._response

    def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> web.Response:
        """Return an answer that goes out at once."""
        self.stop()
        self.status, self.headers = status, dict(headers)
        self._keep(body)
        return web.Response(status=status, headers=dict(headers), body=body)

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def stop(self) -> None:
        """Keep the stream alive no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Tell the client that its answer is under way, if it has heard nothing for long."""
        quiet = self._loop.time() - self._written_at
        if quiet >= self._silence and (self._telling is None or self._telling.done()):
            self._telling = self._loop.create_task(self._tell())
        rest = self._silence - quiet if quiet < self._silence else self._silence
        self._timer = self._loop.call_later(rest, self._look)

    async def _tell(self) -> None:
        with suppress(ConnectionError):  # the client has gone: the handler learns of it too
            async with self._beginning:
                if self._response is None and self._timer is not None:
                    kind = {"content-type": "text/event-stream; charset=utf-8"}
                    await self._send_head(200, {**kind, **self.told()})
            if self._response is not None and self._timer is not None:
                await self._response.write(self._keep_alive)
