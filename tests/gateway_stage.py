"""What the tests of the gateway's operation share: an upstream of all four APIs, a gateway in this process or in one of
its own, and bytes of HTTP that no library would send."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import aiohttp
from aiohttp import web

from dragoman.models import Model, model
from dragoman.store import MemoryStore, SessionStore
from dragoman.telemetry import Telemetry
from dragoman.web.connections import ConnectionLimits
from dragoman.web.gateway.application import Gateway, GatewaySettings
from dragoman.web.gateway.keys import Keys
from dragoman.web.gateway.refusals import refuse_unread
from dragoman.web.gateway.replay import Replay
from dragoman.web.gateway.routes import Routes
from dragoman.web.serving import serving

KEY = "key-of-the-upstream-4711"
SECONDS = 120.0  # after which a test has hung
FRONTS = ("anthropic-messages", "openai-responses", "openai-chat", "gemini")
PROVIDERS = {
    "anthropic-messages": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai-chat",
    "gemini": "google",
}
_PLACES = {"anthropic": "", "openai": "/v1", "openai-chat": "/v1", "google": ""}
_PATHS = {
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
    "openai-chat": "/v1/chat/completions",
}


_Given = ParamSpec("_Given")


def on_a_loop(test: Callable[_Given, Coroutine[Any, Any, None]]) -> Callable[_Given, None]:
    """Run a test on an event loop of its own."""

    @wraps(test)
    def run(*arguments: _Given.args, **options: _Given.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), SECONDS))

    return run


class Answer(NamedTuple):
    """A streamed answer of one API: what it begins with, one more piece of text, and its end."""

    opening: bytes
    piece: bytes
    closing: bytes


def _event(data: Mapping[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    fields = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return _event({**fields, "choices": choices, **more})


def _response(event: str, number: int, **fields: Any) -> bytes:
    return _event({"type": event, "sequence_number": number, **fields})


def answers(text: str) -> dict[str, Answer]:
    """Return an answer that says this, in each API."""
    usage = {"input_tokens": 3, "output_tokens": 2}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"usage": usage, "stop_reason": None, "stop_sequence": None}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole = {**item, "status": "completed", "content": [{**part, "text": text}]}
    done = {**response, "status": "completed", "output": [whole], "usage": {**usage, "total_tokens": 5}}
    spent = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    said = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    nothing = {"content": {"role": "model", "parts": []}}
    counted = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    return {
        "anthropic-messages": Answer(
            _event({"type": "message_start", "message": message})
            + _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            _event({"type": "content_block_stop", "index": 0})
            + _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}})
            + _event({"type": "message_stop"}),
        ),
        "openai-responses": Answer(
            _response("response.created", 0, response={**response, "status": "in_progress"})
            + _response("response.output_item.added", 1, output_index=0, item=item)
            + _response("response.content_part.added", 2, part=part, **where),
            _response("response.output_text.delta", 3, delta=text, logprobs=[], **where),
            _response("response.output_item.done", 4, output_index=0, item=whole)
            + _response("response.completed", 5, response=done),
        ),
        "openai-chat": Answer(
            _chunk({"role": "assistant", "content": ""}),
            _chunk({"content": text}),
            _chunk({}, "stop") + _event({"id": "chatcmpl-1", "choices": [], "usage": spent}) + b"data: [DONE]\n\n",
        ),
        "gemini": Answer(
            b"",
            _event({"candidates": [said], "modelVersion": "m"}),
            _event({"candidates": [{**said, **nothing, "finishReason": "STOP"}], "usageMetadata": counted}),
        ),
    }


ANSWERS = answers("Hello.")


def api_of(path: str) -> str:
    """The API of a path."""
    return next((api for api, place in _PATHS.items() if path.startswith(place)), "gemini")


Script = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request that the upstream got, and its answer under way."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.request = request
        self.body = body
        self.answer = ANSWERS[api_of(request.path)]
        self.fields: dict[str, str] = {}
        self.closes = False  # whether the connection ends with the answer
        self._response: web.StreamResponse | None = None

    async def send(self, *pieces: bytes, status: int = 200, kind: str = "text/event-stream") -> None:
        """Write, the head first."""
        if self._response is None:
            fields = {"content-type": kind, **self.fields}
            fields |= {"connection": "close"} if self.closes else {}
            self._response = web.StreamResponse(status=status, headers=fields)
            await self._response.prepare(self.request)
        for piece in pieces:
            await self._response.write(piece)

    @property
    def response(self) -> web.StreamResponse:
        """What was sent."""
        return self._response or web.Response(status=500)


async def whole(exchange: Exchange) -> None:
    """Send one short answer."""
    await exchange.send(exchange.answer.opening + exchange.answer.piece + exchange.answer.closing)


async def endless(exchange: Exchange) -> None:
    """Begin an answer and never end it."""
    await exchange.send(exchange.answer.opening + exchange.answer.piece)
    await asyncio.Event().wait()


async def silent(exchange: Exchange) -> None:
    """Say nothing at all."""
    await asyncio.Event().wait()


class Upstream:
    """Answers every request by its script. `open` is how many requests are being answered."""

    def __init__(self) -> None:
        self.script: Script = whole
        self.open = 0
        self.seen = 0
        self.most = 0  # open at once
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._changed = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        exchange = Exchange(request, await request.read())
        self.bodies[:] = [*self.bodies[-9:], exchange.body]
        self.headers[:] = [*self.headers[-9:], dict(request.headers)]
        await self._count(1)
        try:
            await self.script(exchange)
        finally:
            await asyncio.shield(self._count(-1))
        return exchange.response

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.open += change
            self.seen += max(change, 0)
            self.most = max(self.most, self.open)
            self._changed.notify_all()

    async def until(self, is_so: Callable[["Upstream"], bool]) -> None:
        """Wait until something is so."""
        async with self._changed:
            await self._changed.wait_for(lambda: is_so(self))


async def until(is_so: Callable[[], bool], seconds: float = 0.0) -> None:
    """Wait until something is so of which nobody tells; look again after some seconds."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(seconds)


class Stage(NamedTuple):
    """A gateway with an upstream behind it."""

    upstream: Upstream
    gateway: Gateway
    url: str
    client: aiohttp.ClientSession

    @property
    def port(self) -> int:
        """Where the gateway listens."""
        return int(self.url.rpartition(":")[2])

    async def ask(self, api: str, *, stream: bool = True, **more: Any) -> "Told":
        """Ask, and return the whole answer."""
        async with self.client.post(
            self.url + path_of(api, stream=stream), data=BytesIO(body_of(api, stream=stream, **more))
        ) as it:
            return await told_by(it)


class Told(NamedTuple):
    """An answer of the gateway. `is_torn`: its connection ended before it did."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_torn: bool = False

    @property
    def error(self) -> Any:
        """The error that it tells, in whichever form of the APIs."""
        return json.loads(self.body)["error"]


async def told_by(response: aiohttp.ClientResponse, notice: Callable[[bytes], object] = len) -> Told:
    """Return all of an answer; `notice` is called with what has come of it so far."""
    body, is_torn = b"", False
    try:
        async for piece in response.content.iter_any():
            body += piece
            notice(body)
    except aiohttp.ClientPayloadError:
        is_torn = True
    return Told(response.status, {name.lower(): value for name, value in response.headers.items()}, body, is_torn)


def path_of(api: str, *, stream: bool = True, model: str = "m") -> str:
    """Return where a front is."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return _PATHS.get(api) or f"/v1beta/models/{model}:{method}"


def body_of(api: str, *, stream: bool = True, said: str = "hi", **more: Any) -> bytes:
    """Return a short request."""
    if api == "gemini":
        return json.dumps({"contents": [{"role": "user", "parts": [{"text": said}]}], **more}).encode()
    asked: dict[str, Any] = {"model": "m", "stream": stream}
    asked |= {"input": said} if api == "openai-responses" else {"messages": [{"role": "user", "content": said}]}
    asked |= {"max_tokens": 100} if api == "anthropic-messages" else {}
    return json.dumps({**asked, **more}).encode()


@asynccontextmanager
async def upstream_server(upstream: Upstream) -> AsyncIterator[Upstream]:
    """Run it on loopback."""
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", upstream.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield upstream
    finally:
        await runner.cleanup()


@asynccontextmanager
async def staged(
    *routes: str,
    script: Script = whole,
    limits: ConnectionLimits | None = None,
    keys: Keys | None = None,
    store: SessionStore | None = None,
    open_model: Callable[[str], Model] | None = None,
    telemetry: Telemetry | None = None,
    replays: bool = False,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Run a gateway in this process. Without routes a name goes to the vendor of the client's API."""
    upstream = Upstream()
    upstream.script = script

    def open_own(name: str) -> Model:
        return model(name, base_url=upstream.url + _PLACES[name.partition(":")[0]], api_key=KEY)

    async with upstream_server(upstream):
        kept = store or MemoryStore()
        gateway = Gateway(
            kept,
            Routes(routes),
            open_model or open_own,
            keys=keys,
            settings=GatewaySettings(**settings),
            replay=Replay(kept) if replays else None,
            telemetry=telemetry,
        )
        async with serving(gateway.application(), host="127.0.0.1", port=0, refuse=refuse_unread, limits=limits) as url:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as client:
                try:
                    yield Stage(upstream, gateway, url, client)
                finally:
                    await gateway.stop()


class Line(NamedTuple):
    """A connection whose bytes the test decides."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        """Write; nothing where the gateway has closed."""
        for piece in pieces:
            self.writer.write(piece)
            try:
                await self.writer.drain()
            except ConnectionError:
                return

    async def answer(self) -> Told:
        """Return the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Told(int(lines[0].split()[1]), headers, body)

    async def rest(self) -> bytes:
        """Return all that comes until the gateway closes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def line(port: int) -> AsyncIterator[Line]:
    """Open a connection, and close it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def head(api: str, *fields: str, stream: bool = True) -> bytes:
    """Return the head of a request, with these fields after those that every request has."""
    lines = [f"POST {path_of(api, stream=stream)} HTTP/1.1", "Host: 127.0.0.1", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def written(api: str, body: bytes | None = None, *fields: str, stream: bool = True) -> bytes:
    """Return a whole request."""
    body = body_of(api, stream=stream) if body is None else body
    return head(api, f"Content-Length: {len(body)}", *fields, stream=stream) + body


# ---------------------------------------------------------------- processes


class Served(NamedTuple):
    """`dragoman serve` as a process of its own."""

    process: "subprocess.Popen[str]"
    url: str
    log: Path
    store: Path

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def open_sockets(self) -> int:
        """How many connections and listeners it has open. (The store opens files as it needs them, and keeps them.)"""
        found = 0
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):  # it may just be closed
                found += descriptor.readlink().name.startswith("socket:")
        return found

    def memory(self) -> int:
        """Return the bytes that it holds."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def peak_memory(self) -> int:
        """Return the most bytes that it has held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10


@contextmanager
def served(
    upstream_url: str,
    folder: Path,
    *options: str,
    port: int = 0,
    files: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """Run `dragoman serve` before this upstream, and end it. `files` is how many it may open."""
    home, store, log = folder / "home", folder / "record.db", folder / "serve.log"
    settings = home / ".config" / "dragoman" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    tables = [
        f'[providers.{name}]\nbase_url = "{upstream_url}{place}"\nkey_variable = "UPSTREAM_KEY"\n'
        for name, place in _PLACES.items()
    ]
    settings.write_text("\n".join(tables), "utf-8")
    command = [sys.executable, "-m", "dragoman", "serve", "--port", str(port), "--store", str(store), *options]
    if files:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$0" "$@"', *command]
    given = {"PATH": os.environ["PATH"], "HOME": str(home), "UPSTREAM_KEY": KEY, **(environment or {})}
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=home, env=given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            address = re.search(r"http://\S+", said)
            assert address is not None, f"it did not start: {said}{log.read_text('utf-8')[-2000:]}"
            yield Served(process, address[0], log, store)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
