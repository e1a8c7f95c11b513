"""The messages between an MCP client and its server, watched: when they end, and what they say of tools.

The SDK refuses a list of tools whole if one of them is malformed. So each tool passes its checks as the luggage of a
plain one, and is read here, one by one. Knows nothing of tools as such.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mcp import types
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage

    Item: TypeAlias = SessionMessage | Exception

__all__ = ["EXCHANGE", "Exchange", "Link", "raw_tools"]

_LUGGAGE = "dragoman/raw"
# A result is checked, compared and written while the event loop waits: a value takes some 2 µs.
MOST_VALUES = 100_000
# How servers say that they do not know a session (any more): as the specification wants it, and as some do it, the
# reference server in TypeScript among them.
_FORGOTTEN = frozenset({404, 400})


class Exchange:
    """What HTTP says of one request: the last status; and whether it was in vain, so that nothing can have been run."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_in_vain = False

    def note(self, status: int | None, *, in_session: bool) -> None:
        """Take in an answer's status, or that the server could not be reached."""
        self.status = status
        self.is_in_vain = status is None or (status in _FORGOTTEN and in_session)


# The request that a task is making. The SDK sends each request in a copy of its caller's context.
EXCHANGE: contextvars.ContextVar[Exchange | None] = contextvars.ContextVar("dragoman_mcp_exchange", default=None)


class Link:
    """One connection: `ended` is set as soon as nothing can come or go any more, or when it is to be closed."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended
        self.last_words: Callable[[], str] = str  # how the stderr of a process ends
        self._listings: set[str] = set()

    def watch(self, streams: "TransportStreams") -> "TransportStreams":
        """Return a transport's streams, watched."""
        return _Inbound(streams[0], self), _Outbound(streams[1], self)

    def going_out(self, item: "SessionMessage") -> None:
        """Note which requests ask for tools."""
        if getattr(item.message, "method", None) == "tools/list":
            self._listings.add(str(getattr(item.message, "id", "")))

    def coming_in(self, item: "Item") -> None:
        """Make the tools of a list pass: whatever they are, they are read later. Refuse results of too many values."""
        result = getattr(getattr(item, "message", None), "result", None)
        if result is None:
            return
        if str(getattr(item.message, "id", "")) not in self._listings:  # type: ignore[union-attr]
            if _has_more_values(result, MOST_VALUES):
                result.clear()
                result.update(_too_large())
            return
        self._listings.discard(str(item.message.id))  # type: ignore[union-attr]
        if isinstance(result.get("tools"), list):
            result["tools"] = [_plain_tool(tool) for tool in result["tools"]]


def raw_tools(result: "types.ListToolsResult") -> list[object]:
    """Return the tools of a list just as the server sent them."""
    return [(tool.meta or {}).get(_LUGGAGE) for tool in result.tools]


def _has_more_values(value: Any, limit: int) -> bool:
    """Whether a JSON value holds more values than the limit; not looked through further than that."""
    pending, seen = [value], 1
    while pending:
        item = pending.pop()
        if isinstance(item, (dict, list)):
            seen += len(item)
            if seen > limit:
                return True
            pending.extend(item.values() if isinstance(item, dict) else item)
    return False


def _too_large() -> dict[str, Any]:
    says = f"The result holds more than {MOST_VALUES:,} values and was not read. Ask for less of it."
    return {"content": [{"type": "text", "text": says}], "isError": True}


def _plain_tool(tool: object) -> dict[str, Any]:
    """A tool that every version of the protocol takes, with the one that was sent as luggage.

    The schema of a sound tool stays: the client must see which arguments travel as headers.
    """
    name = tool.get("name") if isinstance(tool, dict) else None
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return {
        "name": name if isinstance(name, str) else "",
        "inputSchema": schema if _is_sound(schema) else {"type": "object"},
        "_meta": {_LUGGAGE: tool},
    }


def _is_sound(schema: object) -> bool:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(schema.get("$schema", ""), str)
        and isinstance(properties, dict)
        and all(isinstance(inner, dict) for inner in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )


class _Inbound:
    """What comes from the server."""

    def __init__(self, stream: "ReadStream[Item]", link: Link) -> None:
        self._stream = stream
        self._link = link

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context in which the last message was sent, where the transport keeps it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> "Item":
        """Return the next message."""
        try:
            item = await self._stream.receive()
        except BaseException:  # the end, a failure, or the session that is being closed
            self._link.ended.set()
            raise
        self._link.coming_in(item)
        return item

    def __aiter__(self) -> "_Inbound":
        return self

    async def __anext__(self) -> "Item":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close the stream."""
        self._link.ended.set()
        await self._stream.aclose()

    async def __aenter__(self) -> "_Inbound":
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()


class _Outbound:
    """What goes to the server."""

    def __init__(self, stream: "WriteStream[SessionMessage]", link: Link) -> None:
        self._stream = stream
        self._link = link

    async def send(self, item: "SessionMessage", /) -> None:
        """Send a message."""
        import anyio

        self._link.going_out(item)
        try:
            await self._stream.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._link.ended.set()
            raise

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> "_Outbound":
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()
