"""Who may ask: the host that a request is addressed to, the page that it comes from, the key that it brings."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from ...errors import DragomanError, ErrorCode
from .keys import OWNER, Keys, ServeKey, keys_of

__all__ = ["Access", "is_loopback", "is_own_session"]


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Checks host, origin and key of a request.

    A page in a browser must not reach a gateway of its user: neither by a name that an attacker gave this address, nor
    from a page of another origin.
    """

    def __init__(self, keys: Keys, hosts: frozenset[str] = frozenset()) -> None:
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)

    def require_host(self, host: str, origin: str | None) -> None:
        """Raise DragomanError, `permission`, for a request to an unknown name, or from a page elsewhere."""
        name = _without_port(host)
        is_known = is_loopback(name) or name.lower() in self._hosts or "*" in self._hosts
        # An attacker can give this address a name, and no page comes from an address. Without keys, it is loopback.
        if not is_known and not (self._keys and _is_address(name)):
            message = f"this gateway does not answer for the host {name[:100]!r}: start it with --allow-host"
            raise DragomanError(message, code=ErrorCode.PERMISSION)
        if origin is not None:
            message = "this gateway is not for web pages: it takes no request with an Origin"
            raise DragomanError(message, code=ErrorCode.PERMISSION)

    def require_key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> ServeKey:
        """Return the key of a request; raise DragomanError, `authentication`, where it brings none that counts."""
        found = self._keys.find(keys_of(headers, query))
        if found is None:
            message = "this gateway wants a key of its own, in `x-api-key` or `x-goog-api-key`, or as a bearer token"
            raise DragomanError(message, code=ErrorCode.AUTHENTICATION)
        return found


def is_own_session(metadata: Mapping[str, Any], key_name: str) -> bool:
    """Whether a client with this key may join a session with these metadata: without keys, every one.

    The key of the environment may also join what was recorded without any key.
    """
    noted = metadata.get("gateway")
    owner = noted.get("key", "") if isinstance(noted, Mapping) else ""
    return not key_name or owner == key_name[:200] or (not owner and key_name == OWNER)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
