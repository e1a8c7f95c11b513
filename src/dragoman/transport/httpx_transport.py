"""A transport on an `httpx.AsyncClient` that the user made: its proxies, certificates, pool and hooks are the user's.

Needs the extra `httpx`. Redirects stay off and the time limits are ours, whatever the client says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from .._finishing import finish
from ..errors import ErrorCode, InvalidValue, MissingExtra, ModelError
from .body import readable_chunks
from .protocol import NETWORK, HttpRequest, Timeouts, host_of
from .watch import BodyWatch, HeadWatch, TaskEnd

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpxTransport"]

# httpcore's words for what happens on a connection, of HTTP/1.1 and HTTP/2.
_CONNECTING = (".connect_tcp.started", ".connect_unix_socket.started")
_CONNECTED = ".send_request_headers.started"


class HttpxTransport:
    """Sends requests through the given client, which stays the user's: closing this transport does not close it."""

    def __init__(self, client: "httpx.AsyncClient") -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("an httpx client", "httpx") from None
        if not isinstance(client, httpx.AsyncClient):
            raise InvalidValue.of("client", client, "an httpx.AsyncClient")
        self._client = client

    def __repr__(self) -> str:
        return "<HttpxTransport>"

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> "HttpxResponse":
        """Return the answer when its head has arrived; see `Transport.send`."""
        NETWORK.require_allowed()
        import httpx

        host = host_of(request.url)
        watch = HeadWatch(host, timeouts, "first_byte")  # transports without a network report no connection
        is_new, is_pooled = False, False  # the connection of the last attempt: opened for it, or taken from the pool

        async def note(event: str, _: dict[str, Any]) -> None:
            nonlocal is_new, is_pooled
            if event.endswith(_CONNECTING):
                is_new = True
                watch.enter("connect")
            elif event.endswith(_CONNECTED):
                is_pooled = not is_new
                watch.enter("first_byte")

        outgoing = self._client.build_request(
            request.method,
            request.url,
            content=request.body or None,
            headers={"accept-encoding": "identity", **{name.lower(): value for name, value in request.headers.items()}},
            timeout=None,
            extensions={"trace": note},
        )
        outgoing.url = _quiet_url_class()(outgoing.url)
        try:
            with watch:
                try:
                    response = await self._client.send(outgoing, stream=True, follow_redirects=False)
                except httpx.TransportError as error:
                    if not is_pooled or not _is_disconnect(error):
                        raise
                    response = None
                if response is None:  # the server closed a pooled connection just as it was used: see `Transport.send`
                    response = await self._client.send(outgoing, stream=True, follow_redirects=False)
                return HttpxResponse(response, host, watch.body())
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            # Raised below, outside this block: httpx's errors carry the request, so they must not become its context.
            failure = watch.failure() if watch.expired else _translated(error, host)
        raise failure

    async def close(self) -> None:
        """Do nothing: the client belongs to the user."""


class HttpxResponse:
    """An answer under way on an httpx client; see `HttpResponse`."""

    __slots__ = ("_host", "_response", "_watch", "headers", "status")

    def __init__(self, response: "httpx.Response", host: str, watch: BodyWatch) -> None:
        self._response = response
        self._host = host
        self._watch = watch
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers.items())

    def __repr__(self) -> str:
        return f"<HttpxResponse {self.status} of {self._host}>"

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; see `HttpResponse.chunks`."""
        return readable_chunks(self.status, self.headers, self._raw(), self.close, self._watch.pause)

    async def close(self) -> None:
        """Close the connection at once if the body has not ended."""
        self._watch.stop()
        await finish(self._response.aclose())

    async def _raw(self) -> AsyncGenerator[bytes, None]:
        import httpx

        watch, waiting = self._watch, TaskEnd()
        failure: ModelError
        watch.start(waiting.end)
        try:
            async with aclosing(cast("AsyncGenerator[bytes, None]", self._response.aiter_raw())) as body:
                while True:
                    waiting.note()
                    watch.since = watch.clock()
                    chunk = await anext(body, None)
                    watch.since = None
                    watch.begun()
                    if chunk is None:
                        return
                    yield chunk
                    if watch.reached:
                        failure = watch.failure()
                        break
        except (httpx.HTTPError, httpx.StreamError) as error:
            failure = _broken_off(error, self._host)
        except asyncio.CancelledError:
            if not waiting.was_ours():
                raise
            failure = watch.failure()
        finally:
            watch.stop()
            await finish(self._response.aclose())
        raise failure


@cache
def _quiet_url_class() -> "type[httpx.URL]":
    import httpx

    class QuietUrl(httpx.URL):
        """A URL whose text leaves out the query: httpx logs the text, and a query may hold a key."""

        def __str__(self) -> str:
            return super().__str__().partition("?")[0]

        def __repr__(self) -> str:
            return super().__repr__().partition("?")[0]

    return QuietUrl


def _translated(error: Exception, host: str) -> ModelError:
    """The one place where httpx's errors become ours; their texts are not quoted."""
    import httpx

    match error:
        case httpx.ConnectError():
            return ModelError(f"could not connect to {host}", code=ErrorCode.CONNECTION)
        case httpx.ProxyError():
            return ModelError(f"the proxy on the way to {host} refused the connection", code=ErrorCode.CONNECTION)
        case httpx.RemoteProtocolError() if not _is_disconnect(error):
            return ModelError(f"{host} did not answer in HTTP", code=ErrorCode.PROTOCOL_VIOLATION)
        case _:
            return _broken_off(error, host)


def _is_disconnect(error: Exception) -> bool:
    """Whether the peer closed the connection silently. httpx has the same class for a peer that breaks the protocol."""
    import httpx

    if isinstance(error, httpx.RemoteProtocolError):
        return str(error).startswith("Server disconnected")
    return isinstance(error, (httpx.ReadError, httpx.WriteError))


def _broken_off(error: Exception, host: str) -> ModelError:
    return ModelError(f"the connection to {host} broke off ({type(error).__name__})", code=ErrorCode.CONNECTION)
