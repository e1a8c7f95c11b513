"""No network in tests: neither for transports of this library, nor for any other socket of the process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from ipaddress import ip_address
from typing import Any

from ..errors import InvalidValue
from ..transport.protocol import NETWORK

__all__ = ["forbid_network"]

_CONNECTING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVING = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})


@contextmanager
def forbid_network() -> Iterator[None]:
    """Let nothing in this process reach the network until the block ends.

    A transport of this library sends no request at all: the call gets an error that says so. Any other socket raises
    InvalidValue, with the address, before it connects or sends. Sockets still reach this machine: 127.0.0.1, localhost,
    Unix sockets. Programs that the block starts, such as MCP servers, are not held back.
    """
    _watch_sockets()
    with NETWORK.forbidden():
        yield


@cache  # Python cannot remove an audit hook: one is enough
def _watch_sockets() -> None:
    sys.addaudithook(_refuse)


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if not NETWORK.is_forbidden:
        return
    if event in _CONNECTING:
        address = given[1]
        host = address[0] if isinstance(address, tuple) else None  # Unix sockets have a path
    elif event in _RESOLVING:
        host = given[0]
    else:
        return
    if not _is_here(host):
        raise InvalidValue(f"forbid_network(): something tries to reach {host!r}. Replace it in the test.")


def _is_here(host: Any) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if not isinstance(name, str) or name in {"", "localhost"}:
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
