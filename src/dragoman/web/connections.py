"""The connections of clients: how many there are, how long each may take, what a broken request is told.

aiohttp itself has no limit for the head of a request and none for an answer that a client does not read. This module
knows connections alone: no application, no models.
"""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec
from aiohttp import http_exceptions, web

from ..errors import report_raised

__all__ = ["ConnectionLimits", "Connections", "Refuse"]

log = logging.getLogger("dragoman.serve")

Refuse: TypeAlias = Callable[[str, int, str], web.Response]  # target of the request, status, words
HEAD_LIMIT = 32 << 10  # of a line of the head; clients send long lists of betas
HEADS_LIMIT = 1 << 20  # of all that comes before a head is whole, what follows it in the same reads included
LINGER_SECONDS = 5.0  # how long a body is read that was refused, so that its sender gets to read why
_TARGET_LIMIT = 500
_USER_AGENT = re.compile(rb"(?i)\r\nuser-agent:[^\r\n]*")


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may take. `head_seconds`: from its first byte to the end of the request's head.

    `idle_seconds`: between two requests of a connection. `stall_seconds`: how long a client may leave an answer unread
    that fills the buffers. `connections`: how many there may be at once; above that, the one that has been waiting
    longest for a request is closed. `backlog`: how many more may be accepted before that is seen.
    """

    head_seconds: float = 30.0
    idle_seconds: float = 75.0
    stall_seconds: float = 300.0
    connections: int = 1_000
    backlog: int = 256


class Connections(web.Server):
    """Makes the connections of a listener. `handler` and `request_factory` are those of an application's runner."""

    def __init__(
        self, handler: Callable[[Any], Awaitable[web.StreamResponse]], request_factory: Any,
        *, limits: ConnectionLimits, refuse: Refuse,
    ) -> None:  # fmt: skip
        super().__init__(self._answer, request_factory=request_factory, handler_cancellation=True)
        self.limits = limits
        self.refuse = refuse
        self.open = 0
        self._handler = handler
        self._waiting: dict[_Connection, None] = {}  # for a request, longest first

    def __call__(self) -> web.RequestHandler:
        """Return what speaks to one client."""
        return _Connection(self)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.begin_request()
        try:
            try:
                response = await self._handler(request)
            except web.HTTPException as raised:  # of aiohttp: no route fits, or what the client expects is unknown
                response = self.refuse(request.path, raised.status, raised.reason)
            # Written here, and not when this has returned: until then the client is not idle.
            await response.prepare(request)
            await response.write_eof()
            return response
        finally:
            connection.end_request(is_read=request.content.is_eof())

    def note_opened(self, connection: "_Connection") -> bool:
        """Count a connection; return False where there are too many, and each of them is being answered."""
        self.open += 1
        if self.open > self.limits.connections:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            del self._waiting[oldest]
            oldest.force_close()
        self._waiting[connection] = None
        return True

    def note_closed(self, connection: "_Connection") -> None:
        """Count it no longer."""
        self.open -= 1
        self._waiting.pop(connection, None)

    def note_busy(self, connection: "_Connection", *, is_busy: bool) -> None:
        """A connection that is being answered is not closed to make room."""
        self._waiting.pop(connection, None)
        if not is_busy:
            self._waiting[connection] = None


class _Connection(web.RequestHandler):
    """One connection. One timer runs while it waits for a request, another while its client does not read."""

    __slots__ = ("_is_busy", "_is_idle", "_received", "_server", "_stall", "_start", "_timer")

    def __init__(self, server: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=log,
            access_log=None,  # type: ignore[arg-type]  # as documented
            keepalive_timeout=server.limits.idle_seconds,
            lingering_time=LINGER_SECONDS,
            max_line_size=HEAD_LIMIT,
            max_field_size=HEAD_LIMIT,
            auto_decompress=False,
        )
        self._server = server
        self._is_busy = False
        self._is_idle = False  # after its first answer, and before the next bytes
        self._received = 0  # since the last answer
        self._start = b""  # of a request, for whom its refusal is meant
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._server.note_opened(self):
            self._expect(self._server.limits.head_seconds)
        else:
            self._refuse_at_once(503, "this server has no connection free: ask again later")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.note_closed(self)
        _cancel(self._timer)
        _cancel(self._stall)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data and not self._is_busy:
            if self._is_idle:
                self._is_idle = False
                self._expect(self._server.limits.head_seconds)
            if not self._received:
                data = _with_one_user_agent(data)
            if len(self._start) < _TARGET_LIMIT:
                self._start += data[:_TARGET_LIMIT]
            self._received += len(data)
            if self._received > HEADS_LIMIT:
                self._refuse_at_once(431, _WORDS[431])
                return
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = asyncio.get_running_loop().call_later(self._server.limits.stall_seconds, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stall)

    # ------------------------------------------------------------ what aiohttp tells

    def begin_request(self) -> None:
        """The head of a request has come whole."""
        self._is_busy, self._is_idle, self._received = True, False, 0
        _cancel(self._timer)
        self._server.note_busy(self, is_busy=True)

    def end_request(self, *, is_read: bool) -> None:
        """The answer has been written, or never will be. Unless its body `is_read`, its rest may come for a while."""
        self._is_busy, self._is_idle, self._start = False, True, b""
        self._received = 0 if is_read else -sys.maxsize
        if self.transport is not None:
            self._server.note_busy(self, is_busy=False)
            self._expect(self._server.limits.idle_seconds)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  # it quotes the request
    ) -> web.StreamResponse:
        """Return what a request is told that is no HTTP. The words of the parser quote the request: no log has them."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client has gone
        if status >= 500 and exc is not None:
            report_raised(exc, "the web server")
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        status, words = _refusal(exc, status)
        log.info('{"action":"unread","status":%d,"cause":"%s"}', status, type(exc).__name__)
        response = self._server.refuse(self._target(), status, words)
        response.force_close()
        return response

    def log_exception(self, *_: Any, **kw: Any) -> None:
        """Log an exception without its words."""
        error = kw.get("exc_info")
        if isinstance(error, BaseException):
            report_raised(error, "the web server")

    # ------------------------------------------------------------ limits

    def _expect(self, seconds: float) -> None:
        _cancel(self._timer)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._is_busy:
            return
        if self._start:
            self._refuse_at_once(408, f"the head of the request took over {self._server.limits.head_seconds:g} s")
        else:
            self.force_close()

    def _refuse_at_once(self, status: int, words: str) -> None:
        if self.transport is not None:
            self.transport.write(_written(self._server.refuse(self._target(), status, words)))
        self.force_close()

    def _abort(self) -> None:
        if self.transport is not None:
            log.info('{"action":"stalled"}')
            self.transport.abort()

    def _target(self) -> str:
        words = self._start.split(b"\r\n", 1)[0].split(b" ")
        return words[1].decode("ascii", "replace") if len(words) > 1 else ""


_WORDS = {
    431: f"the head of the request is too large, or a line of it is longer than {HEAD_LIMIT:,} bytes",
    500: "the server failed",
}
_TOO_MANY = (431, "the head of the request has more fields than the 128 that this server takes, or its trailer has")
_TWO_LENGTHS = (400, "the request has two lengths: send one Content-Length, or Transfer-Encoding alone")
_BAD_LENGTH = (400, "the length of the request is wrong: its Content-Length is no number, or its chunks are broken")
# What the parser's words say, in ours: its own may quote the request. The first that fits counts.
_MALFORMED = (
    ("Too many headers", _TOO_MANY),
    ("Too many trailers", _TOO_MANY),
    ("Transfer-Encoding can't be present", _TWO_LENGTHS),
    ("Duplicate Content-Length", _TWO_LENGTHS),
    ("Duplicate 'Content-Length'", _TWO_LENGTHS),
    ("Duplicate 'Host'", (400, "the request has two Host fields: send one")),
    ("Missing 'Host'", (400, "the request has no Host field: send one")),
    ("Invalid character in Content-Length", _BAD_LENGTH),
    ("Invalid HTTP header: 'Content-Length'", _BAD_LENGTH),
    ("Invalid character in chunk size", _BAD_LENGTH),
    ("Request has invalid `Transfer-Encoding`", (400, "the request has a Transfer-Encoding other than chunked")),
    (
        "Received HTTPS",
        (400, "the request is encrypted, and this server speaks plain HTTP: put a proxy before it"),
    ),
    ("Invalid header", (400, "a field of the request's head has a character that HTTP does not allow")),
)


def _refusal(exc: BaseException | None, status: int) -> tuple[int, str]:
    """The status and the words for a request that the parser refused."""
    if isinstance(exc, http_exceptions.LineTooLong):
        return 431, _WORDS[431]
    said = exc.message if isinstance(exc, http_exceptions.HttpProcessingError) else ""
    fitting = (answer for begin, answer in _MALFORMED if said.startswith(begin))
    return next(fitting, (status, _WORDS.get(status, "the request is no HTTP/1.1")))


def _with_one_user_agent(data: bytes) -> bytes:
    """The first bytes of a request without further User-Agent fields, for which aiohttp refuses it.

    google-genai writes a second one beside that of its caller (pydantic-ai, for one).
    """
    head, end, body = data.partition(b"\r\n\r\n")
    first = _USER_AGENT.search(head)
    if first is None:
        return data
    return head[: first.end()] + _USER_AGENT.sub(b"", head[first.end() :]) + end + body


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _written(response: web.Response) -> bytes:
    body = response.body
    assert isinstance(body, bytes)
    fields = {**response.headers, "content-length": str(len(body)), "connection": "close"}
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
