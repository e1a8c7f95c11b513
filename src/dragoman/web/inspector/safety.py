"""Who may read the page and its endpoints: a token that becomes a cookie and a key, Host and Origin of each request.

Browsers send a cookie to all ports of a host, so to other programs on this machine. It counts only together with a key
that the page keeps in the storage of its origin, which has a port.

The page shows what people, models and tools wrote. A site that the reader visits must not read it, and nothing in the
record may run: every answer carries a policy that allows scripts, styles and pictures of this server alone.
"""

import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256

from aiohttp import web

__all__ = ["SAFE_HEADERS", "Access", "refuse", "refuse_unread"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOCALHOST = "localhost"
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^\[\]:/@?#\s]+)(?::[0-9]{1,5})?")
# A page of another site cannot set this header without asking first, and it is never allowed to.
WRITE_HEADER = "X-Dragoman-Inspector"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refuse(status: int, code: str, message: str) -> web.Response:
    """Return an error as the page reads it."""
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def refuse_unread(_target: str, status: int, message: str) -> web.Response:
    """Return the answer to a request that reaches no endpoint: it is no HTTP, or comes too slowly."""
    response = refuse(status, "http", message)
    response.headers.update(SAFE_HEADERS)
    return response


class Access:
    """Lets in the requests of browsers that have the token. `hosts` are further names that this server answers to.

    It answers to every address: an attacker can give this machine a name, and no page of another site comes from here.
    """

    def __init__(self, token: str, *, path: str, hosts: Iterable[str] = ()) -> None:
        self._token = token.encode()
        self._path = path
        self._hosts = {LOCALHOST, *(host.lower() for host in hosts)}
        self.open_handlers: set[object] = set()  # those of the page itself, which is code that anybody has
        # Cookies of one host are shared by all of its ports: two inspectors must not overwrite each other's.
        self.cookie = f"dragoman_{sha256(self._token).hexdigest()[:12]}"
        self._cookie_value, self._key = (_derived(self._token, what) for what in (b"cookie", b"page"))

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what does not come from this page; give every answer its headers."""
        refused = self._refusal(request)
        response = await handler(request) if refused is None else refused
        if not response.prepared:
            for name, value in SAFE_HEADERS.items():
                response.headers.setdefault(name, value)
            if refused is None and self._has_token(request):
                self._set_cookie(request, response)
        return response

    def key_for(self, request: web.Request) -> str:
        """Return the key that the page keeps, for a request with the token; else nothing."""
        return self._key if self._has_token(request) else ""

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._is_own_host(request.host):
            return refuse(421, "wrong_host", "this server does not answer to that host name")
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_own_origin(origin, request):
            return refuse(403, "wrong_origin", "the request comes from another site")
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") and self._is_guarded(
            request
        ):
            return refuse(403, "wrong_origin", "the request comes from another site")
        if "token" in request.query and not self._has_token(request):
            return refuse(403, "wrong_token", "this token is not valid: use the address that the server printed")
        if not self._is_guarded(request):
            return None
        if not self._has_token(request) and not self._is_page(request):
            return refuse(401, "no_token", "open the address that the server printed: it has the token")
        if request.method != "GET" and request.headers.get(WRITE_HEADER) != "1":
            return refuse(403, "wrong_origin", f"a request that writes needs the header {WRITE_HEADER}: 1")
        return None

    def _set_cookie(self, request: web.Request, response: web.StreamResponse) -> None:
        response.set_cookie(
            self.cookie,
            self._cookie_value,
            path=self._path or "/",
            httponly=True,
            samesite="Strict",
            secure=request.scheme == "https",
        )

    def _has_token(self, request: web.Request) -> bool:
        return _is_same(request.query.get("token", ""), self._token)

    def _is_page(self, request: web.Request) -> bool:
        """Whether the page asks that was opened with the token: it has both the cookie and the key."""
        has_cookie = _is_same(request.cookies.get(self.cookie, ""), self._cookie_value.encode())
        return has_cookie and _is_same(request.query.get("key", ""), self._key.encode())

    def _is_guarded(self, request: web.Request) -> bool:
        """Whether a request needs the token: all do that are not for the page's own files."""
        return request.match_info.handler not in self.open_handlers

    def _is_own_host(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found["name"].lower() if found is not None else ""
        return bool(name) and (name in self._hosts or "*" in self._hosts or _is_address(name))

    def _is_own_origin(self, origin: str, request: web.Request) -> bool:
        # Compared as text: a text that is no URL is another site's too.
        return origin.partition("://")[2].lower() == request.host.lower() and self._is_own_host(request.host)


def _derived(token: bytes, what: bytes) -> str:
    return hmac.new(token, what, sha256).hexdigest()


def _is_same(given: str, wanted: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
