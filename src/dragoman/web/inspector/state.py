"""What the endpoints share: the store, the records that were read, and how models and agents are made."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from ...agent import Agent
from ...errors import InvalidValue
from ...models import Model
from ...store import Session, SessionStore
from .jobs import Jobs
from .locks import SessionLocks
from .records import Record, Records

__all__ = [
    "STATE",
    "InspectorState",
    "MakeAgent",
    "OpenModel",
    "answer",
    "as_json",
    "read_body",
    "read_number",
    "session_of",
]

# A model by its name, for requests that are written down and never sent: it needs no key.
OpenModel: TypeAlias = Callable[[str], Model]
# An agent for a session, with the model of that name; None leaves the choice to it.
MakeAgent: TypeAlias = Callable[[Session, str | None], Agent[Any, Any] | Awaitable[Agent[Any, Any]]]

LARGEST_BODY = 4 << 20
_DOTS = re.compile(r"~+\.{1,2}")


class InspectorState:
    """The state of one inspector."""

    def __init__(
        self,
        store: SessionStore,
        *,
        is_read_only: bool,
        open_model: OpenModel,
        make_agent: MakeAgent | None,
        place: str,
    ) -> None:
        self.store = store
        self.records = Records(store)
        self.is_read_only = is_read_only
        self.open_model = open_model
        self.make_agent = make_agent
        self.place = place
        self.runs: dict[str, tuple[Agent[Any, Any], asyncio.Task[Any]]] = {}  # by session, those of this process
        self.writing = SessionLocks()  # one action of a session at a time
        self.actions: set[asyncio.Task[web.Response]] = set()  # under way, also those whose browser has gone
        self.followers: dict[str, int] = {}  # by session, how many browsers follow
        self.jobs = Jobs()
        self.verified: dict[str, tuple[str, dict[str, Any]]] = {}  # by session, with the checksum of its head

    async def record_of(self, request: web.Request) -> Record:
        """Return the record of the session that the address names."""
        return await self.records.read(session_of(request))

    def forget(self, session_id: str) -> None:
        """Drop what is known of a session that was erased."""
        self.records.forget(session_id)
        self.verified.pop(session_id, None)

    def verified_of(self, session_id: str, checksum: str) -> dict[str, Any] | None:
        """Return what the last check of a session found, if nothing was appended since."""
        known, found = self.verified.get(session_id, ("", {}))
        return found if found and known == checksum else None

    async def is_requested(self, session_id: str) -> bool:
        """Whether a worker will carry a run of the session on: it was requested, and has not ended."""
        found = await self.store.list_requests(session_id=session_id, open_only=True, limit=1)
        return bool(found.requests)


STATE: web.AppKey[InspectorState] = web.AppKey("inspector state", InspectorState)


def session_of(request: web.Request) -> str:
    """Return the id in the address. `.` and `..` stand there with a `~` before them: browsers take them for steps."""
    given = request.match_info["session"]
    return given[1:] if _DOTS.fullmatch(given) else given


def read_number(request: web.Request, name: str, default: int | None = None, *, most: int = 1 << 53) -> int:
    """Return a number of the path, else of the query.

    Raises InvalidValue for anything else, or where it is missing and has no default.
    """
    given = request.match_info.get(name) or request.query.get(name)
    if given is None and default is not None:
        return default
    if given is None or not given.isascii() or not given.isdigit() or len(given) > 16 or int(given) > most:
        raise InvalidValue.of(name, given, f"a whole number from 0 to {most}")
    return int(given)


async def read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that was sent; raise InvalidValue for anything else."""
    data = await request.content.read(LARGEST_BODY + 1)
    while len(data) <= LARGEST_BODY and (more := await request.content.read(LARGEST_BODY)):
        data += more
    if len(data) > LARGEST_BODY:
        raise InvalidValue(f"the request is longer than {LARGEST_BODY} bytes")
    try:
        body = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, RecursionError):
        raise InvalidValue("the request is no JSON that this server reads") from None
    if not isinstance(body, dict):
        raise InvalidValue("the request must be a JSON object")
    return body


def answer(value: Any, status: int = 200) -> web.Response:
    """Return a value as JSON."""
    return web.Response(body=as_json(value), status=status, content_type="application/json")


def as_json(value: Any) -> bytes:
    """Return the JSON of an answer. Metadata of a record can be at any depth."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):  # metadata is one, at every depth
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
