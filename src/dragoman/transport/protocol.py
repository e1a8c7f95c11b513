"""A request, its time limits, and the two protocols of a transport.

A transport moves bytes. It knows no provider, follows no redirect, and shows no secret in a repr or an error.
"""

import math
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ..errors import ErrorCode, InvalidValue, ModelError, Secrets

__all__ = [
    "PUBLIC_HEADERS",
    "HttpRequest",
    "HttpResponse",
    "Timeouts",
    "Transport",
    "host_of",
    "is_header_value",
    "require_headers",
    "require_key",
    "secrets_of",
]

# Header fields that say nothing of who sends them. The value of every other one may be a secret.
PUBLIC_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "anthropic-beta", "anthropic-version", "content-length", "content-type", "host",
        "http-referer", "openai-beta", "user-agent", "x-amz-date", "x-title",
    }
)  # fmt: skip
_SECRET_PARAMETER = re.compile(r"auth|key$|token$|secret|password|credential|signature|^sig$", re.IGNORECASE)
_SIGNATURE_WORDS = re.compile(r"AWS4-HMAC-SHA256|SignedHeaders=[^,\s]*")
_LONGEST_KEY = 16_384

_METHOD = re.compile(r"[A-Z]{1,16}")
_URL = re.compile(r"https?://[!-~]+")
# As nearly every URL begins; a port of any other form is for urlsplit to judge.
_PLAIN_HOST = re.compile(r"https?://([a-z0-9.-]+(?::(?:[1-9][0-9]{1,3}|[1-5][0-9]{4}))?)(?=/|$)")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_fits_header = re.compile(r"[!-~]?|[!-~][ -~\t]*[!-~]").fullmatch


class HttpRequest(msgspec.Struct, frozen=True):
    """A request ready to be sent, credentials included. Its repr names the headers and leaves out every value."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not _METHOD.fullmatch(self.method):
            raise InvalidValue.of("method", self.method, "an HTTP method in capitals")
        host = _host(self.url) if isinstance(self.url, str) and _URL.fullmatch(self.url) else None
        if not host:  # the URL is not quoted: its query may hold a key
            raise InvalidValue("url must be an absolute http or https URL in ASCII, percent-encoded where needed")
        require_headers(self.headers)
        if not isinstance(self.body, bytes):
            raise InvalidValue.of("body", self.body, "bytes")

    def __repr__(self) -> str:
        target = f"{self.method} {urlsplit(self.url).scheme}://{host_of(self.url)}{urlsplit(self.url).path}"
        return f"<HttpRequest {target}, headers {sorted(self.headers)}, {len(self.body)} bytes>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long, in seconds, each stage of a call may take.

    `connect` runs until a connection is open, `first_byte` from then to the first byte of the answer's body, `silence`
    while the next bytes are waited for, `total` from the start to the end of the body. `idle` is how long a server may
    send bytes that hold nothing of the answer: comments, pings, blank lines. Time that the reader of the stream spends
    elsewhere counts only against `total`.
    """

    connect: float = 10.0
    first_byte: float = 120.0
    silence: float = 60.0
    idle: float = 600.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "total":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InvalidValue.of(f"timeouts.{name}", value, "a number of seconds above 0")


class HttpResponse(Protocol):
    """An answer whose body is still under way. Its holder closes it, or reads `chunks` to the end."""

    @property
    def status(self) -> int:
        """The HTTP status. Redirects are not followed: for a 3xx `chunks` raises."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, names in lower case, repeated ones joined by a comma."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, decompressed; raise nothing but ModelError and CancelledError.

        To be called once. A body read to its end gives the connection back to the pool; any other end closes it.
        """

    async def close(self) -> None:
        """Close the connection at once if the body has not ended. May be called again."""


class Transport(Protocol):
    """Sends requests. One transport serves any number of models, and of event loops one after the other."""

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        """Return the answer when its head has arrived; raise ModelError (`connection`, `timeout` …) if none does.

        A request is sent once, with one exception: if the server closes a connection of the pool before it answers,
        the request is sent again, once, on another. Servers close idle connections at any moment, so this is no
        failure. What goes over a transport is a call of a model, which a caller would repeat after such a failure.
        """

    async def close(self) -> None:
        """Give back what the transport itself opened on this event loop."""


class Network:
    """Whether transports may reach it. Tests forbid it by `dragoman.testing.forbid_network`."""

    def __init__(self) -> None:
        self._forbidding = 0  # blocks under way, which may overlap in tasks and threads
        self._counting = threading.Lock()

    @property
    def is_forbidden(self) -> bool:
        """Whether a block that forbids it is under way."""
        return self._forbidding > 0

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        """Forbid it until the block ends, in the whole process."""
        with self._counting:
            self._forbidding += 1
        try:
            yield
        finally:
            with self._counting:
                self._forbidding -= 1

    def require_allowed(self) -> None:
        """Raise ModelError where requests are forbidden."""
        if self.is_forbidden:
            raise ModelError("real requests are forbidden here: use a scripted model", code=ErrorCode.PERMISSION)


NETWORK = Network()


def host_of(url: str) -> str:
    """Return `host:port` of a URL, which is all that messages say of it."""
    return _host(url) or "another address"


def require_headers(headers: object) -> None:
    """Refuse header fields that could not be sent or would smuggle another; the value is never quoted."""
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise InvalidValue.of("headers", headers, "a mapping of names to texts")
    are_named = all(map(_is_header_name, headers))
    refused = [name for name, value in headers.items() if not (isinstance(value, str) and _fits_header(value))]
    del headers  # error reporters collect local variables
    if not are_named:
        raise InvalidValue("headers must have names that are HTTP tokens")
    if refused:
        raise InvalidValue(
            f"header {refused[0]!r} must be printable ASCII without line breaks or space at its ends"
            " (a key read from a file often ends in a line break)"
        )


def require_key(key: str, header: str) -> None:
    """Refuse a key that no vendor can have given, without quoting it."""
    is_key = 2 <= len(key) <= _LONGEST_KEY and _fits_header(key) and not key.lower().startswith("bearer ")
    del key  # error reporters collect local variables
    if not is_key:
        raise InvalidValue(
            f"the key for header {header!r} must be printable ASCII of 2 to {_LONGEST_KEY} characters, without"
            " line breaks or space at its ends (a key read from a file often ends in a line break) and without 'Bearer'"
        )


def secrets_of(request: HttpRequest, besides: Mapping[str, str] = MappingProxyType({})) -> Secrets:
    """Return the secrets of a request: credentials in headers, query and address.

    Fields of `besides` are none: the caller who gave the request has them.
    """
    fields = [
        value
        for name, value in request.headers.items()
        if name.lower() not in PUBLIC_HEADERS and besides.get(name) != value
    ]
    values = [_SIGNATURE_WORDS.sub("", value) for value in fields]
    if "?" in request.url or "@" in request.url:
        parts = urlsplit(request.url)
        values += [value for name, value in parse_qsl(parts.query) if _SECRET_PARAMETER.search(name)]
        values += parts.netloc.rpartition("@")[0].split(":")
    return Secrets(values)


def is_header_value(value: object) -> bool:
    """Whether a text can be sent as the value of a header field."""
    return isinstance(value, str) and _fits_header(value) is not None


@lru_cache  # the same few names, request after request; values may be secrets
def _is_header_name(name: object) -> bool:
    return isinstance(name, str) and _HEADER_NAME.fullmatch(name) is not None


def _host(url: str) -> str | None:
    if plain := _PLAIN_HOST.match(url):
        return plain[1]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    name = parts.hostname
    if not name:
        return None
    name = f"[{name}]" if ":" in name else name
    return name if port is None else f"{name}:{port}"
