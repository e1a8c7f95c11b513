"""A session as server-sent events: which entries come, and the deltas of the answer under way, each with a position.

A browser that lost the connection sends the last id back (`Last-Event-ID`) and goes on from there.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import web

from ..._finishing import finish
from ...errors import ErrorCode, InvalidValue, StoreError
from ...jsonform import to_json
from ...store import Followed, FollowedEntry, Position, open_session
from .safety import SAFE_HEADERS
from .state import STATE, session_of

__all__ = ["follow"]

HEARTBEAT_SECONDS = 10.0  # by which both ends notice a connection that is gone
RETRY_MILLISECONDS = 1000


async def follow(request: web.Request) -> web.StreamResponse:
    """Answer with the events of a session from a position on, until the reader goes."""
    state, position = request.app[STATE], _begin(request)
    try:
        session = await open_session(state.store, session_of(request))
    except StoreError as error:
        if error.code is not ErrorCode.CORRUPT:
            raise
        response = await _begin_events(request)
        await response.write(_failed(error))  # a browser does not read the body of an error, and would come again
        return response
    if position.serial > session.state.next_serial:
        raise InvalidValue.of("from", position.serial, f"a position up to {session.state.next_serial}, the next serial")
    response = await _begin_events(request)
    state.followers[session.session_id] = state.followers.get(session.session_id, 0) + 1
    try:
        await _write_events(session.follow(position, deltas=True), response)
    except StoreError as error:
        await response.write(_failed(error))  # damaged, or erased: a reader that comes again would hear the same
    except ConnectionError:
        pass  # the reader has gone
    finally:
        state.followers[session.session_id] -= 1
        if not state.followers[session.session_id]:
            del state.followers[session.session_id]
    return response


async def _begin_events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={**SAFE_HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
    response.headers["X-Accel-Buffering"] = "no"
    await response.prepare(request)
    await response.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
    return response


def _failed(error: StoreError) -> bytes:
    said = msgspec.json.encode({"code": str(error.code), "message": str(error)})
    return b"event: failed\ndata: " + said + b"\n\n"


async def _write_events(followed: AsyncGenerator[Followed, None], response: web.StreamResponse) -> None:
    """Write events as they come, and a sign of life while none comes."""
    coming: asyncio.Future[Followed | None] | None = None
    async with aclosing(followed):
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(followed, None))
                done, _ = await asyncio.wait((coming,), timeout=HEARTBEAT_SECONDS)
                if not done:
                    await response.write(b": still there\n\n")
                    continue
                item, coming = coming.result(), None
                if item is None:  # the store is closed
                    return
                await response.write(_event(item))
        finally:
            if coming is not None:
                coming.cancel()
                await finish(asyncio.wait((coming,)))  # a generator that still works cannot be closed


def _begin(request: web.Request) -> Position:
    """Where the reader wants to begin: behind the last event that it had, else at the position of the query."""
    return Position.of(request.headers.get("Last-Event-ID") or request.query.get("from", "0"))


def _event(item: Followed) -> bytes:
    if isinstance(item, FollowedEntry):
        # The page asks for the entries that it shows; many of them are large, and none is read here.
        seen = {"entry": {"serial": item.entry.serial, "kind": str(item.entry.kind)}}
        name, data = b"entry", msgspec.json.encode(seen)
    else:
        name, data = b"delta", to_json(item.delta)
    return b"id: " + str(item.position).encode() + b"\nevent: " + name + b"\ndata: " + data + b"\n\n"
