"""Who may ask: the host that a request is addressed to, the page that it comes from, the key that it brings."""

import ipaddress
from collections.abc import Mapping

from ..errors import DragomanError, ErrorCode
from .keys import Keys, ServeKey, key_of

__all__ = ["Access", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Lets requests in. A page in a browser must not reach a gateway of its user: neither by a name that an attacker
    gave this address, nor from a page of another origin."""

    def __init__(self, keys: Keys, hosts: frozenset[str] = frozenset()) -> None:
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)

    def require_host(self, host: str, origin: str | None) -> None:
        """Raise DragomanError, `permission`, for a request to an unknown name, or from a page elsewhere."""
        name = _without_port(host)
        if not is_loopback(name) and name.lower() not in self._hosts and "*" not in self._hosts:
            message = f"this gateway does not answer for the host {name[:100]!r}: start it with --allow-host"
            raise DragomanError(message, code=ErrorCode.PERMISSION)
        if origin is not None:
            message = "this gateway is not for web pages: it takes no request with an Origin"
            raise DragomanError(message, code=ErrorCode.PERMISSION)

    def require_key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> ServeKey:
        """Return the key of a request; raise DragomanError, `authentication`, where it brings none that counts."""
        found = self._keys.find(key_of(headers, query))
        if found is None:
            message = "this gateway wants its own key, as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`"
            raise DragomanError(message, code=ErrorCode.AUTHENTICATION)
        return found


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
