"""The one task that owns the connection to an MCP server: it opens, keeps and closes the sessions.

    idle → opening → open → ended → idle        and from every state: closed

The SDK's contexts must be left by the task that entered them; so no other task ever enters one. Requests do go out of
the tasks that make them: each waits for its own answer and can be cancelled by itself.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from .._finishing import finish
from .._jsontext import decode_json, encode_json
from ..errors import DragomanError, ErrorCode, MissingExtra, ToolError, running_loop
from .asking import Asking
from .mcp_asking import NOT_ALLOWED, REFUSED_HERE, Allowed, ServerRequests
from .mcp_endpoints import Endpoint
from .mcp_wire import EXCHANGE, UNREADABLE, Exchange, Link, raw_tools

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp import Client, MCPError, types

__all__ = ["Interrupted", "Keeper", "OnListing", "Session"]

_MOST_PAGES = 100  # of a list of tools
_PAUSES = (0.1, 0.5)  # seconds before the second and the third try to open a session again
_CLOSING_SECONDS = 10.0
_LISTENING_SECONDS = 5.0
_CHANGE_PAUSE = 0.05  # seconds between two readings of a list that keeps changing
_RELISTEN_PAUSES = (1.0, 5.0, 30.0)
_LONGEST_WORDS = 1_000  # characters of what a server says when it refuses something
_UNSURE = "the call may or may not have taken effect"
_NO_RESULT = f"answered with something that is no result; {_UNSURE}"
_STATUS_CODES = {401: ErrorCode.AUTHENTICATION, 403: ErrorCode.PERMISSION, 404: ErrorCode.NOT_FOUND}

# Takes in the tools as the server sent them, or None if they could not be read again; and a remark, or no text.
OnListing: TypeAlias = Callable[[list[object] | None, str], None]
_Mode: TypeAlias = Literal["auto", "legacy"]


class Interrupted(Exception):
    """The server, or a gateway before it, gave no answer. `was_run` is False only if the call was surely not run."""

    def __init__(self, says: str, *, was_run: bool = True, last_words: str = "") -> None:
        super().__init__(says)
        self.was_run = was_run
        self.last_words = last_words


class Session:
    """An open session with the server, for as long as its link holds."""

    def __init__(self, client: "Client", link: Link, endpoint: Endpoint, name: str, requests: ServerRequests) -> None:
        self.link = link
        self._client = client
        self._requests = requests
        self._endpoint = endpoint
        self._name = name

    @property
    def instructions(self) -> str | None:
        """What the server says about itself, for models."""
        return self._client.instructions

    async def list_tools(self) -> tuple[list[object], str]:
        """Return all tools, just as the server sent them, and a remark if there seems to be no end of them."""
        from mcp import MCPError

        tools: list[object] = []
        cursor: str | None = None
        seen: set[str | None] = set()
        for _ in range(_MOST_PAGES):
            seen.add(cursor)
            try:
                page = await self._client.list_tools(cursor=cursor)
            except MCPError:
                if self._client.server_capabilities.tools is None:
                    return tools, "the server has no tools"
                raise
            tools += raw_tools(page)
            cursor = page.next_cursor
            if cursor is None:
                return tools, ""
            if cursor in seen:
                break
        return tools, f"the list of tools has no end: {len(seen)} pages of it were read"

    async def call(self, tool: str, arguments: dict[str, Any], asking: Asking | None = None) -> "types.CallToolResult":
        """Return the result of a call; raise Interrupted if there is none, ToolError if the server refused it.

        `asking` answers what the server asks meanwhile. Cancelled, it tells the server to stop; the session goes on.
        """
        from mcp import MCPError
        from pydantic import ValidationError

        exchange = Exchange()
        token = EXCHANGE.set(exchange)
        # Arguments that JSON cannot hold would break the stream for all calls.
        plain = decode_json(encode_json(arguments))
        try:
            with self._requests.calling(asking):
                return await self._client.call_tool(tool, plain)
        except MCPError as error:
            if exchange.was_not_run:
                turned_away = "could not be reached" if exchange.status is None else f"answered {exchange.status}"
                says = f"{turned_away}: the call was not run"
                raise Interrupted(says, was_run=False) from None
            if self._is_lost(error):
                raise Interrupted(f"ended before it answered: {_UNSURE}", last_words=self.link.last_words()) from None
            if exchange.may_have_run:
                says = f"answered with status {exchange.status} ({self._words(error)}): {_UNSURE}"
                raise Interrupted(says) from None
            raise self._refused(tool, error, exchange) from None
        except ValidationError:
            raise ToolError(f"{tool}: MCP server {self._name!r} {_NO_RESULT}") from None
        except RuntimeError as error:  # asks for more than a call gives, in a way that no error of the protocol is
            says = self._endpoint.secrets.hide(str(error))[:_LONGEST_WORDS]
            raise ToolError(f"{tool}: MCP server {self._name!r} cannot be answered: {says}") from None
        finally:
            EXCHANGE.reset(token)

    def _is_lost(self, error: "MCPError") -> bool:
        from mcp.types import CONNECTION_CLOSED

        # Servers use this code for failures of their own too.
        return error.code == CONNECTION_CLOSED and (self.link.ended.is_set() or error.message.startswith("SSE stream "))

    def _refused(self, tool: str, error: "MCPError", exchange: Exchange) -> ToolError:
        from mcp.types import INTERNAL_ERROR, REQUEST_TIMEOUT

        if error.message in NOT_ALLOWED:
            return ToolError(f"{tool}: MCP server {self._name!r} {NOT_ALLOWED[error.message]}")
        if error.data == REFUSED_HERE:
            return ToolError(f"{tool}: MCP server {self._name!r} asks for what it cannot have: {self._words(error)}")
        if error.data == UNREADABLE:
            return ToolError(f"{tool}: MCP server {self._name!r} {_NO_RESULT}")
        says = f"refused the call (code {error.code}): {self._words(error)}"
        if exchange.status is not None and exchange.status >= 400:
            says = f"answered with status {exchange.status}: {self._words(error)}"
        elif error.code in (INTERNAL_ERROR, REQUEST_TIMEOUT):  # it failed, or took too long, inside the server
            says = f"failed (code {error.code}): {self._words(error)}; {_UNSURE}"
        return ToolError(f"{tool}: MCP server {self._name!r} {says}")

    def _words(self, error: "MCPError") -> str:
        return self._endpoint.secrets.hide(str(error.message))[:_LONGEST_WORDS]


class Keeper:
    """Owns the sessions with one server, one after the other. Lives in one event loop."""

    def __init__(
        self, endpoint: Endpoint, *, name: str, connect_timeout: float, allowed: Allowed, on_listing: OnListing
    ) -> None:
        self._endpoint = endpoint
        self._allowed = allowed
        self._name = name
        self._connect_timeout = connect_timeout
        self._on_listing = on_listing
        self._loop = running_loop()
        self._wanted = asyncio.Event()
        self._closing = asyncio.Event()
        self._session: Session | None = None
        self._opening: asyncio.Future[Session] | None = None
        self._scope: CancelScope | None = None
        self._mode: _Mode = "auto"
        self._has_been_open = False
        self._task = asyncio.create_task(self._keep(), name=f"mcp server {name}")

    async def session(self) -> Session:
        """Return the open session, or a new one; raise ToolError if there can be none."""
        if asyncio.get_running_loop() is not self._loop:
            raise self._error("belongs to another event loop: use it in the one that opened it", ErrorCode.INTERNAL)
        if self._closing.is_set() or self._task.done():
            raise self._error("is closed")
        if self._session is not None and not self._session.link.ended.is_set():
            return self._session
        if self._opening is None:
            self._opening = self._loop.create_future()
            self._wanted.set()
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End the session and the task; when this returns, or raises CancelledError, the server's process is gone."""
        self._closing.set()
        self._wanted.set()
        if self._session is not None:
            self._session.link.ended.set()
        elif self._scope is not None:
            self._scope.cancel()
        await finish(asyncio.wait({self._task}))  # nothing here takes long, and a process must not be left behind

    # ------------------------------------------------------------ inside the task

    async def _keep(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if self._closing.is_set():
                    return
                failure = await self._open_and_hold()
                if failure is not None:
                    self._fail(failure)
        finally:
            self._session = None
            self._fail(self._error("is closed"))

    async def _open_and_hold(self) -> DragomanError | None:
        """Hold a session until it has ended; return why there was none after the last try."""
        failure: DragomanError | None = None
        for pause in (0.0, *_PAUSES) if self._has_been_open else (0.0,):
            if pause and await self._closes_within(pause):
                break
            for mode in self._modes():
                failure = await self._hold(mode)
                if failure is None or self._closing.is_set():
                    return failure
                if not failure.retryable or failure.code is ErrorCode.TIMEOUT:
                    return failure
        return failure

    def _modes(self) -> Iterator[_Mode]:
        """The ways to open a session. Some servers end when they are asked for their version first."""
        yield self._mode
        if self._mode == "auto" and self._endpoint.ends_with_its_connection:
            yield "legacy"

    async def _hold(self, mode: _Mode) -> DragomanError | None:
        """Open a session, keep it until its end, close it. Return what went wrong before it was open."""
        import anyio

        link = Link(asyncio.Event())
        exchange = Exchange()
        EXCHANGE.set(exchange)
        failure: Exception | None = None
        was_open = False
        with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout) as self._scope:
            try:
                changed = asyncio.Event()
                requests = ServerRequests(self._name, self._endpoint.secrets.hide)
                async with await self._client(link, mode, changed, requests) as client:
                    session = Session(client, link, self._endpoint, self._name, requests)
                    tasks = [asyncio.create_task(self._follow(session, changed))]
                    try:
                        await self._listen(client, changed, tasks)
                        self._on_listing(*await session.list_tools())
                        was_open = self._has_been_open = True
                        self._mode = mode
                        self._scope.deadline = math.inf
                        self._announce(session)
                        await link.ended.wait()
                    finally:
                        self._session = None
                        self._scope.deadline = anyio.current_time() + _CLOSING_SECONDS
                        await _stop(tasks)
            except Exception as error:  # noqa: BLE001  # whatever the SDK raises is translated below
                failure = error
        self._scope = None
        link.ended.set()
        return None if was_open else self._why(failure, exchange, link)

    async def _client(self, link: Link, mode: _Mode, changed: asyncio.Event, requests: ServerRequests) -> "Client":
        # The SDK takes a second to load: a thread does it, so that the event loop goes on.
        try:
            await asyncio.to_thread(_load_sdk)
        except ImportError:
            raise MissingExtra("McpServer", "mcp") from None
        from mcp import Client, types

        async def take(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                changed.set()

        info = types.Implementation(name="dragoman", version=_version())
        return Client(
            self._endpoint.open(link),
            mode=mode,
            client_info=info,
            message_handler=take,
            cache=None,
            elicitation_callback=requests.elicit if self._allowed.elicitation else None,
            sampling_callback=requests.sample if self._allowed.sampling else None,
        )

    def _announce(self, session: Session) -> None:
        self._session = session
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(session)
        self._opening = None

    def _fail(self, failure: DragomanError) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(failure)
            self._opening.exception()  # retrieved, because every waiting caller may be gone
        self._opening = None

    async def _closes_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------ lists that change

    async def _follow(self, session: Session, changed: asyncio.Event) -> None:
        """Read the list again each time that the server says it has changed."""
        while True:
            await changed.wait()
            changed.clear()
            try:
                async with asyncio.timeout(self._connect_timeout):
                    self._on_listing(*await session.list_tools())
            except Exception as error:  # noqa: BLE001  # the old list stays, and the next call tells what is wrong
                self._on_listing(None, f"the list of tools has changed, and could not be read ({type(error).__name__})")
            await asyncio.sleep(_CHANGE_PAUSE)

    async def _listen(self, client: "Client", changed: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
        """Ask for news of the list where the protocol wants that; begin before the list is read, and miss nothing."""
        import anyio
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        began = asyncio.Event()
        tasks.append(asyncio.create_task(_hear(client, changed, began)))
        with anyio.move_on_after(_LISTENING_SECONDS):
            await began.wait()

    # ------------------------------------------------------------ what went wrong

    def _why(self, failure: Exception | None, exchange: Exchange, link: Link) -> DragomanError:
        """Return why a session did not open. Foreign messages may quote headers: only types are shown."""
        if isinstance(failure, DragomanError):
            return failure
        cause = _cause(failure)
        if self._closing.is_set():
            return self._error("is closed")
        if exchange.status is not None and exchange.status >= 400:
            code = _STATUS_CODES.get(exchange.status, ErrorCode.SERVER_ERROR)
            return self._error(f"answered with status {exchange.status}", code)
        words = link.last_words()
        match cause:
            case None:
                says = f"was not ready within {self._connect_timeout:g} seconds"
                return self._error(says, ErrorCode.TIMEOUT, words)
            case FileNotFoundError():
                return self._error("could not be started: there is no such program or folder", ErrorCode.NOT_FOUND)
            case PermissionError():
                return self._error("could not be started: that is not permitted", ErrorCode.PERMISSION)
        refusal = _refusal(cause)
        if refusal is not None:
            said = self._endpoint.secrets.hide(refusal)[:_LONGEST_WORDS]
            return self._error(f"refused the session: {said}", ErrorCode.SERVER_ERROR, words)
        what = "ended before it was ready" if self._endpoint.ends_with_its_connection else "could not be reached"
        kind = "" if _is_of_protocol(cause) else f" ({type(cause).__name__})"
        return self._error(f"{what}{kind}", ErrorCode.CONNECTION, words)

    def _error(self, says: str, code: ErrorCode = ErrorCode.CONNECTION, last_words: str = "") -> ToolError:
        return ToolError(f"MCP server {self._name!r} {says}", code=code, provider_message=last_words or None)


def _cause(failure: BaseException | None) -> BaseException | None:
    """The exception that says most: of a group the first that is not just the end of the connection."""
    causes: list[BaseException] = []
    pending = [failure] if failure is not None else []
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        else:
            causes.append(error)
    return next((error for error in causes if not _is_of_protocol(error)), causes[0] if causes else None)


def _is_of_protocol(error: BaseException) -> "TypeGuard[MCPError]":
    from mcp import MCPError

    return isinstance(error, MCPError)


def _refusal(cause: BaseException) -> str | None:
    """What a server said when it refused a session; None if it said nothing."""
    from mcp.types import CONNECTION_CLOSED

    if not _is_of_protocol(cause) or cause.code == CONNECTION_CLOSED:
        return None
    return f"{cause.message} (code {cause.code})"


async def _hear(client: "Client", changed: asyncio.Event, began: asyncio.Event) -> None:
    """Keep a subscription to changes of the list open; where it broke off, read the list once more."""
    for pause in itertools.chain(_RELISTEN_PAUSES, itertools.repeat(_RELISTEN_PAUSES[-1])):
        try:
            async with client.listen(tools_list_changed=True) as news:
                if began.is_set():
                    changed.set()
                began.set()
                async for _ in news:
                    changed.set()
        except Exception:  # noqa: BLE001  # a server that does not tell changes is used without
            if not began.is_set():
                began.set()
                return
        await asyncio.sleep(pause)


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    import anyio

    for task in tasks:
        task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait(tasks)


def _load_sdk() -> None:
    from mcp import Client, stdio_client  # noqa: F401

    # Without a handler, Python would write the SDK's warnings about bad lines of a server to our stderr.
    logger = logging.getLogger("mcp")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"
