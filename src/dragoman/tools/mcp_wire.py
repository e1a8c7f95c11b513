"""Watches the messages between an MCP client and its server: the end of the stream, and the listed tools.

The SDK refuses a whole list if one tool in it is malformed. So each tool travels in the metadata of a plain one that
passes the SDK's checks, and is read later, one by one. Knows nothing of our tools.
"""

import asyncio
import contextvars
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from .._jsontext import decode_json, encode_json
from ..errors import UnreadableData

if TYPE_CHECKING:
    from mcp import types
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage

    Item: TypeAlias = SessionMessage | Exception

__all__ = ["EXCHANGE", "UNREADABLE", "Exchange", "Link", "raw_tools"]

_RAW_TOOL = "dragoman/raw"
UNREADABLE = "dragoman/unreadable"  # marks the error that replaces an unreadable response
TOO_DEEP = "nested too deeply to be read"
_DEEPEST = 100  # depth to which a response that the SDK cannot read is read
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')
_ENDS = 200  # characters at which the id of a request is looked for
# A result is checked, compared and written while the event loop waits: a value takes some 2 µs.
MOST_VALUES = 100_000
MOST_ASKED = 10_000  # values in what a server asks of its client
# How servers say that they do not know a session (any more): as the specification wants it, and as some do it, the
# reference server in TypeScript among them.
_FORGOTTEN = frozenset({404, 400})


class Exchange:
    """The HTTP status of one request, and whether the server surely did not run it."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.was_not_run = False

    @property
    def may_have_run(self) -> bool:
        """Whether the status is one that servers and gateways also send after they have passed the request on."""
        return self.status is not None and (self.status >= 500 or self.status == HTTPStatus.REQUEST_TIMEOUT)

    def note(self, status: int | None, *, in_session: bool) -> None:
        """Take in an answer's status, or that the server could not be reached."""
        self.status = status
        self.was_not_run = status is None or (status in _FORGOTTEN and in_session)


# The request that a task is making. The SDK sends each request in a copy of its caller's context.
EXCHANGE: contextvars.ContextVar[Exchange | None] = contextvars.ContextVar("dragoman_mcp_exchange", default=None)


class Link:
    """One connection: `ended` is set as soon as nothing can come or go any more, or when it is to be closed."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended
        self.last_words: Callable[[], str] = str  # how the stderr of a process ends
        self._asked: dict[str, str] = {}  # from the ids of requests without an answer to their methods

    def watch(self, streams: "TransportStreams") -> "TransportStreams":
        """Return a transport's streams, watched."""
        return _Inbound(streams[0], self), _Outbound(streams[1], self)

    def going_out(self, item: "SessionMessage") -> None:
        """Note which requests wait for an answer."""
        method, params = getattr(item.message, "method", ""), getattr(item.message, "params", None)
        if hasattr(item.message, "id"):
            self._asked[str(item.message.id)] = method
        elif method == "notifications/cancelled" and isinstance(params, dict):
            self._asked.pop(str(params.get("requestId")), None)

    def coming_in(self, item: "Item") -> "Item":
        """Return the message as the SDK can read it.

        The tools of a list become plain ones that the SDK accepts. A result of too many values is refused. An answer
        that the SDK could not read is read here, or becomes an error, so that its request does not wait for ever.
        """
        if isinstance(item, Exception):
            item = self._reread(item)
        message = getattr(item, "message", None)
        asked = getattr(message, "params", None) if hasattr(message, "id") else None
        if asked is not None and _has_more_values(asked, MOST_ASKED):
            asked.clear()  # the SDK answers that its parameters are invalid
        method = self._asked.pop(str(getattr(message, "id", "")), "") if not hasattr(message, "method") else ""
        result = getattr(message, "result", None)
        if result is None:
            return item
        if method != "tools/list":
            if _has_more_values(result, MOST_VALUES):
                result.clear()
                result.update(_too_large())
        elif isinstance(result.get("tools"), list):
            result["tools"] = [_plain_tool(tool) for tool in result["tools"]]
        return item

    def _reread(self, failure: Exception) -> "Item":
        """The response that the SDK failed to read; the failure itself if it answers no request, such as a log line."""
        from mcp import types
        from mcp.shared.message import SessionMessage
        from pydantic import ValidationError

        given = failure.errors()[0].get("input") if isinstance(failure, ValidationError) else None
        if isinstance(given, str):
            try:
                said = decode_json(_without_depths(given))
            except UnreadableData:
                said = {"id": next((each for each in self._asked if _is_answer_to(each, given)), None)}
        else:
            said = given
        if isinstance(said, dict) and "id" in said and isinstance(method := said.get("method"), str):
            # Without its parameters the SDK refuses it, so that the server does not wait for ever.
            return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=said["id"], method=method, params={}))
        if not isinstance(said, dict) or "method" in said or str(said.get("id")) not in self._asked:
            return failure
        request, result = said["id"], said.get("result")
        if isinstance(result, dict):
            if isinstance(tools := result.get("tools"), list):
                result["tools"] = [_marked_if_deep(tool) for tool in tools]
            return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=request, result=result))
        error = types.ErrorData(code=types.PARSE_ERROR, message="its answer cannot be read", data=UNREADABLE)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))


def raw_tools(result: "types.ListToolsResult") -> list[object]:
    """Return the tools of a list just as the server sent them."""
    return [(tool.meta or {}).get(_RAW_TOOL) for tool in result.tools]


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


def _without_depths(line: str) -> str:
    """The JSON text with a word in place of what is nested too deeply to be read."""
    kept: list[str] = []
    depth = start = 0
    for mark in _BRACKETS.finditer(line):
        if mark[0] in ("{", "["):
            depth += 1
            if depth == _DEEPEST + 1:
                kept.append(f'{line[start : mark.start()]}"{TOO_DEEP}"')
        elif mark[0] in ("}", "]"):
            depth -= 1
            if depth == _DEEPEST:
                start = mark.end()
    return "".join((*kept, line[start:])) if depth <= _DEEPEST else line


def _marked_if_deep(tool: object) -> object:
    """A tool whose schema was too deep gets one that is none, so that it is left out."""
    is_cut = isinstance(tool, dict) and TOO_DEEP.encode() in encode_json(tool.get("inputSchema"))
    return {**tool, "inputSchema": TOO_DEEP} if is_cut else tool  # type: ignore[dict-item]


def _is_answer_to(request: str, line: str) -> bool:
    """Whether a line that is no JSON, or too deep, begins or ends as the answer to a request does."""
    ends = line[:_ENDS] + line[-_ENDS:]
    return re.search(rf'"id"\s*:\s*"?{re.escape(request)}\b', ends) is not None


def _plain_tool(tool: object) -> dict[str, Any]:
    """A tool that every version of the protocol accepts, with the one that was sent in its metadata.

    The schema of a sound tool stays: the client must see which arguments travel as headers.
    """
    name = tool.get("name") if isinstance(tool, dict) else None
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return {
        "name": name if isinstance(name, str) else "",
        "inputSchema": schema if _is_sound(schema) else {"type": "object"},
        "_meta": {_RAW_TOOL: tool},
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
        return self._link.coming_in(item)

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
