"""The default transport, on aiohttp: one session per event loop. The first request of a model imports this module."""

import asyncio
import os
import select
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextvars import ContextVar
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from .._finishing import finish
from ..errors import ErrorCode, InvalidValue, ModelError, forget_arguments, running_loop
from .body import readable_chunks
from .protocol import NETWORK, HttpRequest, Timeouts, host_of, require_headers
from .watch import BodyWatch, HeadWatch

__all__ = ["AiohttpTransport"]

KEEPALIVE_SECONDS = 30.0
HEAD_LIMIT = 64 * 1024
LARGE_BODY = 1024 * 1024  # above it aiohttp warns, because sending such bytes blocks the event loop
CHUNK_SIZE = 64 * 1024  # a chunk is decoded at once: more of it would not stay in the processor's cache


class _Attempt:
    """How one request gets its connection: written by the connector, read by `send`."""

    __slots__ = ("is_new", "must_be_new", "watch")

    def __init__(self, watch: HeadWatch) -> None:
        self.watch = watch
        self.is_new = False  # whether the connection was opened for this request
        self.must_be_new = False


_attempt_of_task: ContextVar[_Attempt] = ContextVar("attempt_of_task")  # of the request that the task is sending


class _Connector(aiohttp.TCPConnector):
    """Gives no pooled connection that the server has closed, and tells the watch when the connection is open.

    aiohttp learns of the close only when the event loop gets to read it. (Its traces would tell the watch too,
    for a tenth of the time that a request takes.)
    """

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        attempt = _attempt_of_task.get()
        attempt.is_new = False
        while True:
            connection = await super().connect(*arguments, **options)
            if attempt.is_new or not (attempt.must_be_new or _is_stale(connection)):
                attempt.watch.enter("first_byte")
                return connection
            connection.close()

    async def _create_connection(self, *arguments: Any, **options: Any) -> ResponseHandler:
        _attempt_of_task.get().is_new = True
        return await super()._create_connection(*arguments, **options)


class AiohttpTransport:
    """Sends requests over a pool of connections that all models of an event loop share.

    `proxy` is used for everything; without it the usual environment variables decide, unless `trust_env` is off; they
    are looked at once for each host, as long as a pool is open.
    `headers` are added to every request that does not have them. `ssl_context` or `ca_file` replace the system's
    certificate authorities. The pool closes with its event loop (`asyncio.run` sees to that) or by `close`.
    """

    @forget_arguments
    def __init__(
        self,
        *,
        proxy: str | None = None,
        trust_env: bool = True,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if proxy is not None:
            _require_proxy(proxy, "proxy")
        if ssl_context is not None and ca_file is not None:
            raise InvalidValue("the transport takes ssl_context or ca_file, got both")
        require_headers(headers or {})
        self._proxy = proxy
        self._trust_env = trust_env
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._ssl_context = ssl_context
        self._ca_file = ca_file
        self._pools: _Pools = {}
        self._found_proxies: dict[str, str | None] = {}  # by the URL up to its path

    def __repr__(self) -> str:
        proxy = host_of(self._proxy) if self._proxy else ("environment" if self._trust_env else None)
        return f"<AiohttpTransport proxy {proxy}, headers {sorted(self._headers)}>"

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> "AiohttpResponse":
        """Return the answer when its head has arrived; see `Transport.send`."""
        NETWORK.require_allowed()
        pool = self._pools.get(running_loop())
        session = await self._open_pool() if pool is None or pool[0].closed else pool[0]
        # No local variable of this function holds a secret: error reporters collect them.
        host = host_of(request.url)
        watch = HeadWatch(host, timeouts)
        attempt = _Attempt(watch)
        _attempt_of_task.set(attempt)
        try:
            with watch:
                while True:
                    try:
                        response = await self._answered(session, request)
                        return AiohttpResponse(response, host, watch.body())
                    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                        if attempt.is_new:
                            raise
                    # The server closed a pooled connection just as it was used: see `Transport.send`.
                    attempt.must_be_new = True
                    watch.enter("connect")
        except (aiohttp.ClientError, OSError) as error:
            # Raised below, outside this block: aiohttp's errors carry the request, so they must not become its context.
            failure = watch.failure() if watch.expired else self._explained(error, request.url)
        raise failure

    async def _answered(self, session: aiohttp.ClientSession, request: HttpRequest) -> aiohttp.ClientResponse:
        import yarl  # comes with aiohttp

        return await session.request(
            request.method,
            yarl.URL(request.url, encoded=True),  # a signature covers the address as it is written
            data=BytesIO(request.body) if len(request.body) > LARGE_BODY else request.body or None,
            headers=self._all_headers(request),
            allow_redirects=False,
            proxy=self._proxy_for(request.url),
        )

    async def close(self) -> None:
        """Close the connections that this transport holds on the running event loop."""
        pool = self._pools.get(asyncio.get_running_loop())
        if pool is not None:
            await finish(pool[1].aclose())

    async def _open_pool(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        _forget_closed_loops(self._pools)
        self._found_proxies.clear()
        keeper = _keep_open(self._pools, loop, self._open_session())
        session = await anext(keeper)
        self._pools[loop] = (session, keeper)
        return session

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS, ssl=self._verified_context() or True),
            # All limits are ours (HeadWatch, BodyWatch): aiohttp rounds its own up to whole seconds.
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # it would also send passwords from ~/.netrc
            skip_auto_headers=("content-type",),
            headers={"user-agent": "dragoman"},
            max_line_size=HEAD_LIMIT,
            max_field_size=HEAD_LIMIT,
        )

    def _verified_context(self) -> ssl.SSLContext | None:
        if self._ca_file is None:
            return self._ssl_context
        self._ssl_context = ssl.create_default_context(cafile=self._ca_file)
        self._ca_file = None
        return self._ssl_context

    def _all_headers(self, request: HttpRequest) -> dict[str, str]:
        own = {name.lower(): value for name, value in request.headers.items()}
        return {"accept-encoding": "identity", **self._headers, **own}

    def _explained(self, error: Exception, url: str) -> ModelError:
        return _translated(error, host_of(url), host_of(self._proxy_for(url) or ""))

    def _proxy_for(self, url: str) -> str | None:
        if self._proxy is not None or not self._trust_env:
            return self._proxy
        scheme, _, rest = url.partition("://")
        origin = f"{scheme}://{rest.partition('/')[0]}"
        if origin not in self._found_proxies:
            self._found_proxies[origin] = _proxy_of_environment(origin)
        return self._found_proxies[origin]


class AiohttpResponse:
    """An answer under way on an aiohttp connection; see `HttpResponse`."""

    __slots__ = ("_host", "_response", "_watch", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, host: str, watch: BodyWatch) -> None:
        self._response = response
        self._host = host
        self._watch = watch
        self.status: int = response.status
        self.headers: Mapping[str, str] = _joined_headers(response.headers.items())

    def __repr__(self) -> str:
        return f"<AiohttpResponse {self.status} of {self._host}>"

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; see `HttpResponse.chunks`."""
        return readable_chunks(self.status, self.headers, self._raw(), self.close, self._watch.pause)

    async def close(self) -> None:
        """Close the connection at once if the body has not ended."""
        self._watch.stop()
        self._response.close()

    async def _raw(self) -> AsyncGenerator[bytes, None]:
        watch, content = self._watch, self._response.content
        clock, read = watch.clock, content.readany
        failure: ModelError

        def end() -> None:
            content.set_exception(TimeoutError())
            # Twice: the end of an HTTP chunk wakes the reader, which then waits again without checking this.
            asyncio.get_running_loop().call_soon(content.set_exception, TimeoutError())

        watch.start(end)
        try:
            watch.since = clock()
            arrived = await read()
            watch.begun()
            while arrived:
                watch.since = None
                for start in range(0, len(arrived), CHUNK_SIZE):
                    if start:
                        await watch.pause()
                    yield arrived[start : start + CHUNK_SIZE]
                if watch.reached:
                    raise TimeoutError
                watch.since = clock()
                arrived = await read()
            return
        except (aiohttp.ClientError, OSError) as error:
            failure = watch.failure() if watch.reached else _translated(error, self._host)
        finally:
            watch.stop()
            self._response.close()  # gives a connection back whose body has ended; closes any other
        raise failure


_Pools = dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession, None]]]


async def _keep_open(
    pools: _Pools, loop: asyncio.AbstractEventLoop, session: aiohttp.ClientSession
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Hold a session open until this generator is closed: by the transport, or by the event loop when it shuts down."""
    try:
        yield session
    finally:
        pools.pop(loop, None)
        await session.close()


def _forget_closed_loops(pools: _Pools) -> None:
    """Drop the sessions of loops that were closed without shutting down their generators. Nothing is left to await."""
    for loop, (_, keeper) in list(pools.items()):
        if loop.is_closed():
            pools.pop(loop, None)
            try:
                keeper.aclose().send(None)
            except (StopIteration, RuntimeError):
                pass


def _is_stale(connection: aiohttp.connector.Connection) -> bool:
    """Whether a pooled connection has something to read: the server's close, or bytes that answer no request."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or protocol.should_close:
        return True
    sock = transport.get_extra_info("socket")
    return sock is not None and _is_readable(sock.fileno())


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _joined_headers(fields: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields:
        lowered = name.lower()
        headers[lowered] = f"{headers[lowered]}, {value}" if lowered in headers else value
    return headers


def _proxy_of_environment(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # loads ssl and http.client

    proxies = getproxies()
    parts = urlsplit(url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    _require_proxy(proxy, f"the environment's proxy for {parts.scheme}")
    return proxy


def _require_proxy(proxy: object, field: str) -> None:
    # Never quoted: it may hold a password.
    if not isinstance(proxy, str) or not proxy.startswith(("http://", "https://")):
        raise InvalidValue(
            f"{field} must be an http:// or https:// URL (for SOCKS give the model an httpx.AsyncClient)"
        )


def _translated(error: Exception, host: str, proxy_host: str = "") -> ModelError:
    """The one place where aiohttp's errors become ours. Their texts hold addresses and headers, so none is quoted."""

    def failed(what: str, *, retryable: bool | None = None) -> ModelError:
        return ModelError(what, code=ErrorCode.CONNECTION, retryable=retryable)

    match error:
        case aiohttp.ClientConnectorCertificateError():
            return failed(f"the certificate of {host} is not trusted", retryable=False)
        case aiohttp.ClientSSLError():
            return failed(f"{host} does not speak TLS as expected")
        case aiohttp.ClientProxyConnectionError():
            return failed(f"could not connect to the proxy {proxy_host}")
        case aiohttp.ClientHttpProxyError():
            wants = ": give its user and password in its address" if error.status == 407 else ""
            return failed(f"the proxy {proxy_host} refused the connection (HTTP {error.status}){wants}")
        case aiohttp.ClientConnectorError(os_error=socket.gaierror()):
            return failed(f"the name of {host} could not be resolved")
        case aiohttp.ClientConnectorError(os_error=cause):
            return failed(f"could not connect to {host} ({type(cause).__name__})")
        case aiohttp.ClientResponseError():
            return ModelError(f"{host} did not answer in HTTP", code=ErrorCode.PROTOCOL_VIOLATION)
        case _:
            return failed(f"the connection to {host} broke off ({type(error).__name__})")
