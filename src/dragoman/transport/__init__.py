"""The network: requests out, response bytes in. Knows no provider and no message; loads no HTTP library by itself."""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names
from .protocol import HttpRequest, HttpResponse, Timeouts, Transport

if TYPE_CHECKING:
    from .aiohttp_transport import AiohttpTransport
    from .httpx_transport import HttpxTransport
    from .signing import (
        AwsKeys,
        AwsSigner,
        KeySigner,
        Signer,
        TokenSigner,
        TokenSource,
        azure_token_source,
        google_token_source,
    )

__all__ = [
    "AiohttpTransport",
    "AwsKeys",
    "AwsSigner",
    "HttpRequest",
    "HttpResponse",
    "HttpxTransport",
    "KeySigner",
    "Signer",
    "Timeouts",
    "TokenSigner",
    "TokenSource",
    "Transport",
    "azure_token_source",
    "default_transport",
    "google_token_source",
]

_SHARED: list["AiohttpTransport"] = []


def default_transport() -> "AiohttpTransport":
    """Return the transport that models share when they are given none: one pool of connections per event loop."""
    if not _SHARED:
        from .aiohttp_transport import AiohttpTransport

        _SHARED.append(AiohttpTransport())
    return _SHARED[0]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, modules=("signing", "httpx_transport", "aiohttp_transport"))
