"""A vendor that does not exist: a real HTTP server on loopback that speaks four wire APIs, with answers from a script.

It runs in a thread of its own. It keeps every request that it got, and can be told to fail: `Refuse`, `Fail`, `Cut`,
`Slow` and `Hold`, each for the next request that has tools.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from dragoman.delta import ErrorDelta, MessageDelta
from dragoman.errors import ErrorCode, UnreadableData
from dragoman.request import ReadRequest
from dragoman.stream import AnswerForm, frame_events
from dragoman.wire import find_codec

from .script import answer

NOW = 1_700_000_000
HOLD_SECONDS = 60
SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "cookie", "api-key"})
_GEMINI = re.compile(r"/v1(?:beta)?/models/(.+):(generateContent|streamGenerateContent|countTokens)")
_ANSWERED = {
    "/v1/messages": "anthropic-messages",
    "/v1/responses": "openai-responses",
    "/v1/chat/completions": "openai-chat",
}


class Got(msgspec.Struct, kw_only=True):
    """A request that came. `read` is there for requests of an answer; `status` is what it got."""

    method: str
    path: str  # with the query, without keys
    headers: dict[str, str]
    body: bytes
    api: str = ""
    read: ReadRequest | None = None
    status: int = 0
    unread: str = ""  # why it could not be read

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Refuse(msgspec.Struct, frozen=True):
    """Answer with the status of an error."""

    code: ErrorCode
    message: str = "the upstream refuses"
    retry_after: float | None = None


class Fail(msgspec.Struct, frozen=True):
    """Answer with an error event after so many deltas."""

    after: int = 2
    code: ErrorCode = ErrorCode.OVERLOADED


class Cut(msgspec.Struct, frozen=True):
    """Close the connection after so many bytes of the answer."""

    after: int = 400


class Slow(msgspec.Struct, frozen=True):
    """Wait so many seconds before the first event, and before each other one."""

    first: float = 0.0
    each: float = 0.0


class Hold:
    """Send the first half of the answer, then wait until `release` is called; `reached` waits until it is so far."""

    def __init__(self) -> None:
        self._reached, self._released = Event(), Event()

    def reached(self) -> bool:
        """Wait until half of the answer is out."""
        return self._reached.wait(HOLD_SECONDS)

    def release(self) -> None:
        """Let the answer go on."""
        self._released.set()

    async def pause(self) -> None:
        """Wait, in the server."""
        self._reached.set()
        await asyncio.to_thread(self._released.wait, HOLD_SECONDS)


Fault: TypeAlias = Refuse | Fail | Cut | Slow | Hold


class Upstream:
    """The server. `folder` is the project that tools are called in; `thinks` puts a thought before each call."""

    def __init__(self, folder: str, *, thinks: bool = False) -> None:
        self.folder = folder
        self.thinks = thinks
        self.url = ""
        self.got: list[Got] = []
        self.faults: deque[Fault] = deque()

    @property
    def answered(self) -> list[Got]:
        """The requests of an answer."""
        return [got for got in self.got if got.read is not None or got.unread]

    @property
    def main(self) -> list[Got]:
        """The requests of an answer that have tools: those of the conversation itself."""
        return [got for got in self.answered if got.read is not None and got.read.request.tools]

    @property
    def strange(self) -> list[str]:
        """Requests that this server has no answer for."""
        return [
            f"{got.method} {got.path} {got.unread}".strip()
            for got in self.got
            if got.status in (404, 405) or got.unread
        ]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        got = Got(
            method=request.method,
            path=re.sub(r"([?&]key=)[^&]+", r"\1…", request.path_qs),
            headers={
                name.lower(): value for name, value in request.headers.items() if name.lower() not in SECRET_HEADERS
            },
            body=await request.read(),
        )
        self.got.append(got)
        try:
            response = await self._answer(request, got)
        except ConnectionError:
            got.status = 499  # the client left
            raise
        got.status = got.status or response.status
        return response

    async def _answer(self, request: web.Request, got: Got) -> web.StreamResponse:
        path, model, is_stream = request.path, "", False
        got.api = _ANSWERED.get(path, "")
        if named := _GEMINI.fullmatch(path):
            if named[2] == "countTokens":
                return web.json_response({"totalTokens": 1200})
            got.api, model, is_stream = "gemini", named[1], named[2] == "streamGenerateContent"
        if request.method != "POST" or not got.api:
            return _other(request)
        codec = find_codec(got.api)
        assert codec.read_request is not None
        try:
            got.read = codec.read_request(got.body, model=model, stream=is_stream)
        except UnreadableData as error:
            got.unread = str(error)
            return _refused(got.api, Refuse(ErrorCode.INVALID_REQUEST, str(error)))
        fault = self.faults.popleft() if self.faults and got.read.request.tools else None
        if isinstance(fault, Refuse):
            return _refused(got.api, fault)
        deltas = answer(got.read, got.api, folder=self.folder, thinks=self.thinks)
        if isinstance(fault, Fail):
            deltas = [*deltas[: fault.after], ErrorDelta("", 99, None, fault.code, "the upstream fails")]
        return await _written(request, got, deltas, fault)


@contextmanager
def running(upstream: Upstream) -> Iterator[Upstream]:
    """Run the server in a thread, on a free port; stop it afterwards."""
    loop = asyncio.new_event_loop()
    stop, ready = asyncio.Event(), Event()

    async def run() -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", upstream.serve)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await stop.wait()
        finally:
            await runner.cleanup()

    thread = Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    if not ready.wait(20):
        raise RuntimeError("the upstream did not start")
    try:
        yield upstream
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def _other(request: web.Request) -> web.Response:
    """What is asked beside answers: models, counts, signs of life."""
    if request.path == "/v1/messages/count_tokens":
        return web.json_response({"input_tokens": 1200})
    if request.path == "/v1/models":
        return web.json_response({"object": "list", "data": [], "has_more": False})
    if request.path == "/v1beta/models":
        return web.json_response({"models": []})
    if request.path == "/" and request.method in ("GET", "HEAD"):
        return web.Response(text="")
    return web.json_response({"error": {"code": 404, "message": "not found", "status": "NOT_FOUND"}}, status=404)


def _refused(api: str, refusal: Refuse) -> web.Response:
    write_error = find_codec(api).write_error
    assert write_error is not None
    error = ErrorDelta("", 0, None, refusal.code, refusal.message, retry_after=refusal.retry_after)
    told = write_error(error)
    return web.Response(status=told.status, body=told.body, headers=told.headers)


async def _written(
    request: web.Request, got: Got, deltas: list[MessageDelta], fault: Fault | None
) -> web.StreamResponse:
    """Write the answer in the API of the request, as a stream or whole."""
    assert got.read is not None
    open_writer = find_codec(got.api).open_writer
    assert open_writer is not None
    asked = got.read.request
    form = AnswerForm(
        answer_id=f"up{len(asked.messages)}x{len(got.body)}",
        model=asked.config.model_id,
        created=NOW,
        stream=asked.stream,
        include_usage=got.read.include_usage,
        source=got.api,
        call_fields=got.read.call_fields,
        echo=got.read.echo,
    )
    writer = open_writer(form)
    slow = fault if isinstance(fault, Slow) else Slow()
    await asyncio.sleep(slow.first)
    if not asked.stream:
        writer.write(deltas)
        if writer.failure is not None:
            return _refused(got.api, Refuse(writer.failure.error_code, "the upstream fails"))
        body = writer.body()
        if not isinstance(fault, Cut):
            return web.Response(body=body, content_type="application/json")
        return await _cut(request, [body], fault.after, "application/json")
    pieces = [frame_events(writer.write([delta])) for delta in deltas] + [frame_events(writer.end())]
    if isinstance(fault, Cut):
        return await _cut(request, pieces, fault.after, "text/event-stream")
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
    await response.prepare(request)
    for number, piece in enumerate(pieces):
        if isinstance(fault, Hold) and number == len(pieces) // 2:
            await fault.pause()
        await asyncio.sleep(slow.each)
        await response.write(piece)
    await response.write_eof()
    return response


async def _cut(request: web.Request, pieces: list[bytes], after: int, content_type: str) -> web.StreamResponse:
    """Write the first bytes, then close the connection without an end."""
    response = web.StreamResponse(headers={"content-type": content_type})
    await response.prepare(request)
    await response.write(b"".join(pieces)[:after])
    assert request.transport is not None
    request.transport.close()
    return response
