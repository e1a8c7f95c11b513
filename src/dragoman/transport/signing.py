"""Credentials put on a request, just before it is sent: keys, tokens that expire, and AWS signatures.

A signer takes a request and returns it with the headers that authorise it. No repr and no error shows a secret.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import force_setattr

from .._fieldtypes import require_field_types
from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra, ModelError, forget_arguments
from .protocol import HttpRequest, is_header_value, require_headers, require_key

__all__ = [
    "AZURE_SCOPE",
    "GOOGLE_SCOPE",
    "AwsKeys",
    "AwsSigner",
    "KeySigner",
    "Signer",
    "TokenSigner",
    "TokenSource",
    "azure_token_source",
    "google_token_source",
]

# A function that returns a fresh token, or an awaitable of one. A plain function is called in a thread.
TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]

GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"


class Signer(Protocol):
    """Puts credentials on a request."""

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """Return the request with its credentials; raise ModelError (`authentication`) where there are none."""


class KeySigner:
    """Sends a key in a header: as `Authorization: Bearer …`, or bare under the name that the vendor gave it."""

    __slots__ = ("_headers",)

    @forget_arguments
    def __init__(self, key: str, header: str = "authorization") -> None:
        name = header.lower()
        require_key(key, header)
        self._headers = {name: f"Bearer {key}" if name == "authorization" else key}
        require_headers(self._headers)

    def __repr__(self) -> str:
        return f"<KeySigner {next(iter(self._headers))}>"

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """Return the request with the key."""
        return _with_checked(request, self._headers)


class TokenSigner:
    """Asks a source for a token before each request. The source keeps and renews it."""

    __slots__ = ("_source",)

    def __init__(self, source: TokenSource) -> None:
        if not callable(source):
            raise InvalidValue("a token source must be a function")
        self._source = source

    def __repr__(self) -> str:
        return "<TokenSigner>"

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """Return the request with a token; a source that raises is an `authentication` error."""
        try:
            return _with_headers(request, {"authorization": f"Bearer {_required(await _called(self._source))}"})
        except DragomanError:
            raise
        except Exception as error:  # noqa: BLE001  # a user's function; what it says may hold the secret
            failure = f"the token source raised {type(error).__name__}"
        raise ModelError(failure, code=ErrorCode.AUTHENTICATION)


class AwsKeys(msgspec.Struct, frozen=True):
    """A pair of AWS keys, with a session token if they are temporary."""

    access_key: str
    secret_key: str
    session_token: str | None = None

    def __post_init__(self) -> None:
        require_field_types(self)

    def __repr__(self) -> str:
        return "<AwsKeys>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class AwsSigner:
    """Signs requests for AWS (Signature Version 4). Needs the extra `bedrock`.

    Without `keys` it searches environment, profile, container and machine role, at the first request.
    """

    def __init__(
        self,
        region: str,
        *,
        service: str = "bedrock",
        keys: AwsKeys | None = None,
        profile: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not isinstance(region, str) or not region:
            raise InvalidValue.of("region", region, "the name of an AWS region")
        if keys is not None and profile is not None:
            raise InvalidValue("an AWS signer takes keys or a profile, got both")
        self._region = region
        self._service = service
        self._keys = keys
        self._profile = profile
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Any = None

    def __repr__(self) -> str:
        return f"<AwsSigner {self._service} {self._region}>"

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """Return the request with its signature. Finding and renewing credentials may block, so it has a thread."""
        return await asyncio.to_thread(self._signed, request)

    def _signed(self, request: HttpRequest) -> HttpRequest:
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
        except ImportError:
            raise MissingExtra("signing for AWS", "bedrock") from None
        credentials = self._credentials()
        stamp = self._clock().astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        # Only headers that no proxy and no transport changes are signed.
        headers = {"host": urlsplit(request.url).netloc.rpartition("@")[2], "x-amz-date": stamp}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        if kind := {name.lower(): value for name, value in request.headers.items()}.get("content-type"):
            headers["content-type"] = kind
        signer = SigV4Auth(credentials, self._service, self._region)
        outgoing = AWSRequest(method=request.method, url=request.url, data=request.body, headers=headers)
        outgoing.context["timestamp"] = stamp
        # Step by step instead of `add_auth`, which writes the session token to the log at level DEBUG.
        text = signer.string_to_sign(outgoing, signer.canonical_request(outgoing))
        names = signer.signed_headers(signer.headers_to_sign(outgoing))
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={signer.scope(outgoing)}, SignedHeaders={names},"
            f" Signature={signer.signature(text, outgoing)}"
        )
        del headers["host"]  # every transport writes it itself
        return _with_headers(request, headers)

    def _credentials(self) -> Any:
        """The credentials of this moment, as botocore's own frozen form."""
        from botocore.credentials import ReadOnlyCredentials

        if self._keys is not None:
            return ReadOnlyCredentials(self._keys.access_key, self._keys.secret_key, self._keys.session_token)
        try:
            with self._lock:
                if self._found is None:
                    from botocore.session import Session

                    self._found = Session(profile=self._profile).get_credentials()
            frozen = None if self._found is None else self._found.get_frozen_credentials()
        except Exception as error:  # noqa: BLE001  # files, processes and networks of the user's; texts may hold secrets
            failure = f"the search for AWS credentials raised {type(error).__name__}"
        else:
            if frozen is not None:
                return frozen
            failure = "no AWS credentials were found in the environment, the profile or a machine's role"
        raise ModelError(failure, code=ErrorCode.AUTHENTICATION)


def google_token_source(*, scope: str = GOOGLE_SCOPE, credentials: Any = None) -> TokenSource:
    """Return a token source for Vertex from google-auth credentials, by default the application's. Extra `vertex`."""
    lock = threading.Lock()
    held = [credentials]

    def token() -> str:
        with lock:
            if held[0] is None or not held[0].valid:
                try:
                    import google.auth
                    from google.auth.transport.requests import Request
                except ImportError:
                    raise MissingExtra("Google's credentials", "vertex") from None
                if held[0] is None:
                    held[0], _ = google.auth.default(scopes=[scope])
                held[0].refresh(Request())
            return str(held[0].token)

    return token


def azure_token_source(*, scope: str = AZURE_SCOPE, credential: Any = None) -> TokenSource:
    """Return a token source for Azure from an azure-identity credential, by default the usual chain. Extra `azure`."""
    lock = threading.Lock()
    held = [credential]

    def token() -> str:
        with lock:
            if held[0] is None:
                try:
                    from azure.identity import DefaultAzureCredential
                except ImportError:
                    raise MissingExtra("Azure's credentials", "azure") from None
                held[0] = DefaultAzureCredential()
        return str(held[0].get_token(scope).token)

    return token


async def _called(source: TokenSource) -> object:
    token = source() if inspect.iscoroutinefunction(source) else await asyncio.to_thread(source)
    return await token if inspect.isawaitable(token) else token


def _required(token: object) -> str:
    if isinstance(token, str) and token and is_header_value(token):
        return token
    kind, token = type(token).__name__, None  # error reporters collect local variables
    failure = f"the token source must return a token, got a {kind} that cannot be sent as one"
    raise ModelError(failure, code=ErrorCode.AUTHENTICATION)


def _with_headers(request: HttpRequest, headers: dict[str, str]) -> HttpRequest:
    """The request with these header fields, which are checked; all else of it has been."""
    require_headers(headers)
    return _with_checked(request, headers)


def _with_checked(request: HttpRequest, headers: dict[str, str]) -> HttpRequest:
    signed: HttpRequest = request.__copy__()  # type: ignore[attr-defined]  # msgspec's
    kept = request.headers
    if not headers.keys().isdisjoint(map(str.lower, kept)):
        kept = {name: value for name, value in kept.items() if name.lower() not in headers}
    force_setattr(signed, "headers", {**kept, **headers})
    return signed
