"""Where an MCP server is: a process that is started for it, or an HTTP address. Each opens a transport for the SDK.

What the caller gives for the server alone (variables, headers, the query of an address) never leaves this module but
to the server.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ..errors import InvalidValue, Secrets
from .mcp_wire import EXCHANGE, Link

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

__all__ = ["Endpoint", "HttpEndpoint", "StdioEndpoint"]

# What a process is told of ours beside what the SDK takes for it (on POSIX: HOME LOGNAME PATH SHELL TERM USER).
_INHERITED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_LAST_WORDS = 4_000  # bytes of stderr that are kept
_SECONDS_TO_REACH = 30.0
_CALL = b'"tools/call"'  # the one request that may have an effect
_LARGEST_EVENT = 32 * 1024 * 1024  # bytes; pictures come in one event


class StdioEndpoint:
    """A server that is started as a process and spoken to over its standard input and output."""

    ends_with_its_connection = True

    def __init__(
        self,
        command: str,
        args: tuple[str, ...],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        stderr: TextIO | None,
    ) -> None:
        if not isinstance(command, str) or not command:
            raise InvalidValue.of("command", command, "the name of a program")
        if any(not isinstance(text, str) or "\0" in text for text in (command, *args)):
            raise InvalidValue("the arguments of a command must be text without NUL")
        self._command = command
        self._args = args
        self._env = _pairs("env", env)
        if any("=" in name or "\0" in name + value for name, value in self._env.items()):
            raise InvalidValue("env must have names without '=' and nothing with NUL")
        self._cwd = None if cwd is None else os.fspath(cwd)
        self._stderr = stderr
        self.name = Path(command).name
        self.secrets = Secrets(tuple(self._env.values()))

    @asynccontextmanager
    async def open(self, link: Link) -> "AsyncIterator[TransportStreams]":
        """Start the process and give its streams; at the end it is stopped, with all that it has started."""
        from mcp import StdioServerParameters, stdio_client

        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        parameters = StdioServerParameters(
            command=self._command, args=list(self._args), env=inherited | self._env, cwd=self._cwd
        )
        with self._errors(link) as errlog:
            async with stdio_client(parameters, errlog=errlog) as streams:
                yield link.watch(streams)

    @contextmanager
    def _errors(self, link: Link) -> Iterator[TextIO]:
        if self._stderr is not None:
            yield self._stderr
        elif sys.platform == "win32":
            with Path(os.devnull).open("w") as nowhere:
                yield nowhere
        else:
            with _last_words(link, self.secrets) as writer:
                yield writer


class HttpEndpoint:
    """A server at an address, spoken to over streamable HTTP."""

    ends_with_its_connection = False

    def __init__(self, url: str, headers: Mapping[str, str] | None) -> None:
        self._url = url
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except (ValueError, TypeError, AttributeError):
            raise InvalidValue("url must be an address such as https://example.org/mcp") from None
        if parts.scheme not in ("http", "https") or not host:
            raise InvalidValue("url must begin with http:// or https:// and name a host")
        if parts.username is not None or parts.password is not None:
            raise InvalidValue("url must hold no user and password: give them as headers")
        self._headers = _pairs("headers", headers)
        for name, value in self._headers.items():
            if not name.isascii() or not name.isprintable() or not value.isprintable() or not value.isascii():
                raise InvalidValue("headers must be printable ASCII text")
        self.name = host
        self.secrets = Secrets((*self._headers.values(), *(value for _, value in parse_qsl(parts.query))))

    @asynccontextmanager
    async def open(self, link: Link) -> "AsyncIterator[TransportStreams]":
        """Give the streams of a session with the server; at the end the session is given up."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        class NotingClient(httpx2.AsyncClient):
            """Notes the outcome of each request in its exchange."""

            async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
                try:
                    response = await self._answered(request, options)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    _note(link, request, None)
                    raise
                _note(link, request, response.status_code)
                return response

            async def _answered(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
                """Send again what was lost with a pooled connection that the server has closed, but for calls."""
                is_new = False  # whether the connection was opened for this request

                async def watch(event: str, _: dict[str, Any]) -> None:
                    nonlocal is_new
                    is_new = is_new or ".connect_" in event

                request.extensions = {**request.extensions, "trace": watch}
                while True:
                    try:
                        return await super().send(request, **options)
                    except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                        if is_new or _CALL in request.content:
                            raise

        # The call limits how long a response may take: a tool can be silent for long.
        timeout = httpx2.Timeout(_SECONDS_TO_REACH, read=None)
        async with (
            NotingClient(headers=self._headers, timeout=timeout) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=_LARGEST_EVENT) as streams,
        ):
            yield link.watch(streams)


def _note(link: Link, request: "httpx2.Request", status: int | None) -> None:
    exchange = EXCHANGE.get()
    if exchange is None or request.method != "POST":
        return
    exchange.note(status, in_session="mcp-session-id" in request.headers)
    if exchange.was_not_run:
        link.ended.set()


Endpoint: TypeAlias = StdioEndpoint | HttpEndpoint


@contextmanager
def _last_words(link: Link, secrets: Secrets) -> Iterator[TextIO]:
    """Give a file for the stderr of a process. It is read continuously; the link has its last bytes."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    kept = bytearray()

    def read() -> None:
        try:
            while piece := os.read(reading, 65_536):
                kept.extend(piece)
                del kept[:-_LAST_WORDS]
            loop.remove_reader(reading)
        except BlockingIOError:
            pass

    def words() -> str:
        return secrets.hide(kept.decode(errors="replace")).strip()

    def words_so_far() -> str:
        read()
        return words()

    link.last_words = words_so_far
    loop.add_reader(reading, read)
    try:
        with os.fdopen(writing, "w") as writer:
            yield writer
    finally:
        read()
        link.last_words = words
        loop.remove_reader(reading)
        os.close(reading)


def _pairs(field: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of names and values; what is wrong is told without the values."""
    pairs = dict(given or {})
    for name, value in pairs.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise InvalidValue(f"{field} must map names to text")
    return pairs
