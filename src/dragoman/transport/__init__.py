"""The network: requests out, response bytes in. Knows no provider and no message; loads no HTTP library by itself."""

from typing import TYPE_CHECKING

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
    _MODULES = {"AiohttpTransport": "aiohttp_transport", "HttpxTransport": "httpx_transport"}

    def __getattr__(name: str) -> object:
        """Load what needs asyncio when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f".{_MODULES.get(name, 'signing')}", __name__), name)
