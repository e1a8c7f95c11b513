"""Who may read the page and its endpoints: a token that becomes a cookie, the Host and Origin of each request.

The page shows what people, models and tools wrote. A site that the reader visits must not read it, and nothing in the
record may run: every answer carries a policy that allows scripts, styles and pictures of this server alone.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from urllib.parse import urlsplit

from aiohttp import web

__all__ = ["SAFE_HEADERS", "Gate", "refuse"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
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


class Gate:
    """Lets in the requests of one browser that has the token. `hosts` are further names that this server answers to."""

    def __init__(self, token: str, *, path: str, hosts: Iterable[str] = ()) -> None:
        self._token = token.encode()
        self._path = path
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self.open_handlers: set[object] = set()  # those of the page itself, which is code that anybody has
        # Cookies of one host are shared by all of its ports: two inspectors must not overwrite each other's.
        self.cookie = f"dragoman_{sha256(self._token).hexdigest()[:12]}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what does not come from this page; give every answer its headers."""
        refused = self._refusal(request)
        response = await handler(request) if refused is None else refused
        if not response.prepared:
            for name, value in SAFE_HEADERS.items():
                response.headers.setdefault(name, value)
            if refused is None and self._fits(request.query.get("token")):
                self._set_cookie(request, response)
        return response

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
        token = request.query.get("token")
        if token is not None and not self._fits(token):
            return refuse(403, "wrong_token", "this token is not valid: use the address that the server printed")
        if not self._is_guarded(request):
            return None
        if not self._fits(token) and not self._fits(request.cookies.get(self.cookie)):
            return refuse(401, "no_token", "open the address that the server printed: it has the token")
        if request.method != "GET" and request.headers.get(WRITE_HEADER) != "1":
            return refuse(403, "wrong_origin", f"a request that writes needs the header {WRITE_HEADER}: 1")
        return None

    def _set_cookie(self, request: web.Request, response: web.StreamResponse) -> None:
        response.set_cookie(
            self.cookie,
            self._token.decode(),
            path=self._path or "/",
            httponly=True,
            samesite="Strict",
            secure=request.scheme == "https",
        )

    def _fits(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _is_guarded(self, request: web.Request) -> bool:
        """Whether a request needs the token: all do that are not for the page's own files."""
        return request.match_info.handler not in self.open_handlers

    def _is_own_host(self, host: str) -> bool:
        return (_name_of(f"//{host}") or "") in self._hosts

    def _is_own_origin(self, origin: str, request: web.Request) -> bool:
        return urlsplit(origin).netloc.lower() == request.host.lower() and self._is_own_host(request.host)


def _name_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
