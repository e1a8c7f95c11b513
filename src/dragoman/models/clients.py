"""One vendor's API with its address, credentials and transport: a request's bytes out, a legal stream of deltas in."""

import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import msgspec

from ..delta import MessageDelta
from ..errors import DragomanError, ErrorCode, InvalidValue, ModelError, Secrets, forget_arguments
from ..request import CacheConfig, ModelConfig, WireRequest
from ..stream import Codec, Guard, ResponseReader
from ..stream.textcalls import TextCallReader
from ..target import Dialect
from ..transport import default_transport
from ..transport.protocol import (
    PUBLIC_HEADERS,
    HttpRequest,
    Timeouts,
    host_of,
    require_headers,
    require_key,
    secrets_of,
)
from ..wire import find_codec
from .prefixes import PrefixCache
from .streams import Exchange, close_quietly, log_bug, without_secrets

if TYPE_CHECKING:
    from ..history.llmrequest import LlmRequest
    from ..transport import HttpResponse, Signer, TokenSource, Transport
    from .streams import ModelStream

__all__ = ["ErrorMapper", "ProviderClient"]

# A user's own reading of an error response (status, headers, body); None leaves it to the codec.
ErrorMapper: TypeAlias = Callable[[int, Mapping[str, str], bytes], ModelError | None]

_READ_OUT_SECONDS = 0.1


class ProviderClient:
    """One vendor's wire API, with a transport and credentials. Making one touches no network; its repr shows no key.

    With `provider_raw` each delta carries the wire event that it was made of, without keys. It is for debugging: it
    costs time, and neither messages nor entries hold it.
    """

    @forget_arguments
    def __init__(
        self,
        dialect: Dialect,
        *,
        codec: Codec | None = None,
        api_key: "str | TokenSource | Signer | None" = None,
        base_url: str | None = None,
        region: str | None = None,
        project: str | None = None,
        transport: "Transport | None" = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        provider_raw: bool = False,
    ) -> None:
        self.dialect = dialect
        self._provider_raw = provider_raw
        self.codec = codec or find_codec(dialect.specification)
        self.prefixes = PrefixCache(self.codec, dialect)
        self._region = region or _from_environment(dialect.address_variables.get("region", ()))
        address = _address(dialect, base_url, self._region, project)
        self._path = urlsplit(address).path
        self._host = address.removesuffix(self._path)
        if not (api_key is None or isinstance(api_key, str) or callable(api_key) or hasattr(api_key, "sign")):
            raise InvalidValue(f"api_key must be a key, a function or a signer, got a {type(api_key).__name__}")
        if isinstance(api_key, str) and api_key:
            require_key(api_key, _key_header(dialect))
        if transport is not None and not hasattr(transport, "send"):
            raise InvalidValue.of("transport", transport, "a Transport")
        if timeouts is not None and not isinstance(timeouts, Timeouts):
            raise InvalidValue.of("timeouts", timeouts, "Timeouts")
        require_headers(headers or {})
        self._api_key = api_key
        self._given_signer: Signer | None = None  # of the key that was given
        self._found_signer: Signer | None = None
        self._last_sent: tuple[str, Mapping[str, str]] | None = None
        self._last_secrets = Secrets()
        self._transport = transport
        self._timeouts = timeouts or Timeouts()
        self._headers = dict(headers or {})
        self._shown_headers = {
            name: value if name.lower() in PUBLIC_HEADERS else "[redacted]" for name, value in self._headers.items()
        }

    def __repr__(self) -> str:
        return f"ProviderClient({self.dialect.provider!r}, {self.dialect.specification!r})"

    @property
    def host(self) -> str:
        """Scheme and host of the vendor's address, without a path."""
        return self._host

    def address(self, request: WireRequest) -> WireRequest:
        """Return the request with the whole path and the header fields of this vendor, without secrets.

        Header fields that the caller gave are named; their values are put in when the request is sent.
        """
        headers = {"content-type": "application/json", **request.headers, **self._shown_headers}
        return msgspec.structs.replace(request, path=self._path + request.path, headers=headers)

    def call_model(self, request: "LlmRequest") -> "ModelStream":
        """Ask the model that the request's invocation names, with default settings, and return its answer as it comes.

        The invocation must be of this client's provider and wire API. Use a `Model` for settings.
        """
        from ..history import to_messages
        from .model import Model

        wanted, dialect = request.invocation, self.dialect
        if wanted is None or (wanted.provider, wanted.specification) != (dialect.provider, dialect.specification):
            here = f"provider {dialect.provider!r} and specification {dialect.specification!r}"
            raise InvalidValue(f"request.invocation must have {here}, got {wanted!r}")
        messages = to_messages(request.context, screen_in_result=not dialect.rules.user_after_tool)
        return Model(self, ModelConfig(wanted.model), CacheConfig()).stream(messages, request.tools)

    async def send(
        self,
        request: WireRequest,
        *,
        exchange: Exchange | None = None,
        run_id: str = "",
        error_mapper: ErrorMapper | None = None,
        text_calls: TextCallReader | None = None,
    ) -> AsyncGenerator[list[MessageDelta], None]:
        """Send the request and yield the deltas of each network read; together they are a legal stream.

        `exchange` gets the request's credentials, which the last deltas do not hold, and the reader of the answer.
        Failures arrive as the closing `error`; only cancellation is raised. The connection is closed in any case.
        """
        response: HttpResponse | None = None
        reader: ResponseReader | None = None
        chunks: AsyncIterator[bytes] | None = None
        cause: Exception | None = None
        idle_since: float | None = None  # since when the server sends nothing of its answer
        exchange = exchange or Exchange()
        try:
            transport = self._transport or default_transport()
            signed = await self._signed(request)
            exchange.secrets = self._secrets_of(signed)
            response = await transport.send(signed, self._timeouts)
            reader = exchange.reader = self._reader(response, run_id, error_mapper, text_calls, exchange.secrets)
            chunks = response.chunks()
            async for chunk in chunks:
                now = datetime.now(UTC)
                long = reader.is_long(chunk)
                deltas = await _in_thread(reader.feed, chunk, now) if long else reader.feed(chunk, now)
                finished = reader.finished
                if deltas:
                    yield _without_secrets(deltas, exchange.secrets) if finished else deltas
                if finished:
                    await _read_out(chunks)
                    return
                idle_since = None if reader.has_read else self._require_answering(idle_since)
        except Exception as error:  # noqa: BLE001  # whatever happens, the stream ends legally
            cause = error
        finally:
            try:
                await close_quietly(getattr(chunks, "aclose", None))
            finally:  # also if the caller is cancelled again
                await close_quietly(getattr(response, "close", None))
        now = datetime.now(UTC)
        if reader is not None:
            last = await _ended(reader, now, cause)
            cause = reader.bug
        else:
            closing = Guard(run_id=run_id, source=self.dialect.provider).close(cause, now=now)
            last = [closing] if closing else []
        if cause is not None and not isinstance(cause, DragomanError):
            log_bug(cause)
        yield _without_secrets(last, exchange.secrets)

    async def forward(self, request: WireRequest) -> "tuple[HttpResponse, Secrets]":
        """Send a request as it is and return its answer under way, unread, and the credentials that went along.

        The credentials are what is added here; what the request itself has is the sender's own. Raises ModelError if no
        answer comes. The caller closes the response.
        """
        signed = await self._signed(request)
        response = await (self._transport or default_transport()).send(signed, self._timeouts)
        return response, secrets_of(signed, besides=request.headers)

    def open_reader(self, response: "HttpResponse", run_id: str = "") -> ResponseReader:
        """Return what reads the body of an answer that `forward` gave."""
        return self._reader(response, run_id, None, None, Secrets())

    def _require_answering(self, idle_since: float | None) -> float:
        """Return since when the server has sent nothing of its answer; raise the timeout if that is too long."""
        now = time.monotonic()
        if idle_since is not None and now - idle_since > self._timeouts.idle:
            from ..transport.watch import timeout_error

            raise timeout_error("idle", host_of(self._host), self._timeouts)
        return now if idle_since is None else idle_since

    def _reader(
        self,
        response: "HttpResponse",
        run_id: str,
        error_mapper: ErrorMapper | None,
        text_calls: TextCallReader | None,
        secrets: Secrets,
    ) -> ResponseReader:
        codec = self.codec
        if error_mapper is not None:
            own, mapped = codec.map_error, error_mapper
            codec = msgspec.structs.replace(codec, map_error=lambda *facts: mapped(*facts) or own(*facts))
        return ResponseReader(
            codec,
            self.dialect,
            run_id=run_id,
            status=response.status,
            headers=response.headers,
            text_calls=text_calls,
            redact_raw=secrets.hide if self._provider_raw else None,
        )

    def _secrets_of(self, request: HttpRequest) -> Secrets:
        sent = (request.url, request.headers)
        if sent != self._last_sent:  # mostly they are those of the request before
            self._last_sent, self._last_secrets = sent, secrets_of(request)
        return self._last_secrets

    async def _signed(self, request: WireRequest) -> HttpRequest:
        # No local variable of this function shows a secret: error reporters collect them.
        unsigned = HttpRequest(
            request.method,
            self._host + request.path,
            {**request.headers, **self._headers} if self._headers else request.headers,
            request.body,
        )
        signer = self._given_signer or self._signer()
        return unsigned if signer is None else await signer.sign(unsigned)

    @forget_arguments
    def _signer(self) -> "Signer | None":
        from ..transport import AwsSigner, KeySigner, TokenSigner, google_token_source

        given, auth, header = self._api_key, self.dialect.auth, _key_header(self.dialect)
        if isinstance(given, str):
            self._given_signer = KeySigner(given, header) if given else None
        elif given is not None:
            self._given_signer = TokenSigner(given) if callable(given) else given
        if self._given_signer is not None:
            return self._given_signer
        if key := _from_environment(self.dialect.key_variables):  # which may change while the program runs
            return KeySigner(key, header)
        if auth == "none":
            return None
        if auth in ("aws", "token"):
            # Kept: it holds the credentials that it found, and finding them may take a file, a process or a request.
            self._found_signer = self._found_signer or (
                AwsSigner(self._region or "us-east-1") if auth == "aws" else TokenSigner(google_token_source())
            )
            return self._found_signer
        variables = " or ".join(self.dialect.key_variables)
        where = f"set {variables}, or pass api_key=" if variables else "pass api_key="
        raise ModelError(f"no key for {self.dialect.provider}: {where}", code=ErrorCode.AUTHENTICATION)


def _key_header(dialect: Dialect) -> str:
    return dialect.auth if dialect.auth.endswith("key") else "authorization"


def _without_secrets(deltas: list[MessageDelta], secrets: Secrets) -> list[MessageDelta]:
    """The deltas of the last read, the closing one without what the provider may quote back in any of its fields."""
    return [*deltas[:-1], without_secrets(deltas[-1], secrets)] if secrets and deltas else deltas


async def _ended(reader: ResponseReader, now: datetime, cause: Exception | None) -> list[MessageDelta]:
    return await _in_thread(reader.end, now, cause) if reader.is_long() else reader.end(now, cause)


async def _in_thread(read: Callable[..., list[MessageDelta]], *given: object) -> list[MessageDelta]:
    """Read something large in a thread, so that the event loop goes on meanwhile."""
    import asyncio

    return await asyncio.to_thread(read, *given)


async def _read_out(chunks: AsyncIterator[bytes]) -> None:
    """Read what little is left of a finished answer, so that the connection can serve the next request."""
    import asyncio

    try:
        async with asyncio.timeout(_READ_OUT_SECONDS):
            async for _ in chunks:
                pass
    except (TimeoutError, ModelError):
        pass  # then the connection is closed instead


def _from_environment(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _address(dialect: Dialect, base_url: str | None, region: str | None, project: str | None) -> str:
    """The base URL: the one given, the environment's, or the vendor's with region and project put in."""
    variables = dialect.address_variables
    given = base_url or _from_environment(variables.get("base_url", ()))
    template = given or (dialect.global_base_url if region == "global" else None) or dialect.base_url
    if not isinstance(template, str) or not _is_address(template):
        wanted = "an http(s) URL without a query, a user or a password, given as base_url="
        raise InvalidValue.of_content(f"base_url of {dialect.provider}", template or None, wanted)
    parts = {"region": region, "project": project or _from_environment(variables.get("project", ()))}
    for name, value in parts.items():
        if f"{{{name}}}" in template:
            if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9:_-]+(?:\.[a-z0-9:_-]+)*", value):
                wanted = " or ".join((f"{name}=", *variables.get(name, ())))
                raise InvalidValue.of(f"{name} of {dialect.provider}", value, f"a name, given as {wanted}")
            template = template.replace(f"{{{name}}}", value)
    return template.rstrip("/")


def _is_address(text: str) -> bool:
    try:
        _ = urlsplit(text).port  # ValueError: the host or the port cannot be read
    except ValueError:
        return False
    return bool(re.fullmatch(r"https?://[^?#/@\s]+(?:/[^?#\s]*)?", text))
