"""What the tests of MCP share: the servers they run, how they call a tool, how a server tells what happens to it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from dragoman import ToolCall
from dragoman.history import HistoryToolCallResult, to_plain_text
from dragoman.tools import ReadyCall, ToolContext, ToolExecutor, ToolRegistry
from dragoman.tools.mcp import McpServer

_Result = TypeVar("_Result")

PLAIN = str(Path(__file__).with_name("mcp_plain_server.py"))
OFFICIAL = str(Path(__file__).with_name("mcp_official_server.py"))
TOKEN = "planted-7f3a9c-not-a-vendor-shape"  # no pattern of `redact` knows it


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return what the work comes to. What hangs is a failure, not a wait."""

    async def limited() -> _Result:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


def plain(*arguments: str, **options: Any) -> McpServer:
    """Return the plain server, not started yet."""
    return McpServer.stdio(sys.executable, PLAIN, *arguments, **options)


async def call(server: McpServer, name: str, **arguments: Any) -> HistoryToolCallResult:
    """Return the result of a tool, as an agent would get it."""
    executor = ToolExecutor(ToolRegistry(server.tools))
    request = ToolCall(tool_name=name, tool_call_id="call-1", arguments=arguments)
    ready = executor.prepare(request)
    assert isinstance(ready, ReadyCall), text_of(ready)
    return await executor.run(ready, ToolContext(tool_name=name))


def text_of(result: HistoryToolCallResult) -> str:
    """Return what a model is told."""
    return to_plain_text(result.result.live)


async def say(server: McpServer, name: str, **arguments: Any) -> str:
    """Return the text of a call that must succeed."""
    result = await call(server, name, **arguments)
    assert result.error_code is None, text_of(result)
    return text_of(result)


class Reports:
    """What a plain server that was given our port says, line by line; None when it has gone."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.port = 0
        self.connected = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> "AsyncIterator[Reports]":
        """Listen at a port that the system chooses."""
        reports = cls()
        listener = await asyncio.start_server(reports._take, "127.0.0.1", 0)
        reports.port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield reports

    @property
    def option(self) -> tuple[str, str]:
        """How the server is told where we are."""
        return "--report", str(self.port)

    async def next(self) -> str | None:
        """Return the next line."""
        return await self._lines.get()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.set()
        while line := await reader.readline():
            self._lines.put_nowait(line.decode().strip())
        self._lines.put_nowait(None)
        writer.close()


@contextmanager
def official_over_http(*arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the official server at a port of its own; give its address and its process."""
    command = [sys.executable, OFFICIAL, "http", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process
        finally:
            process.kill()


class Forgetful(ThreadingHTTPServer):
    """A server of the year 2025 over HTTP that can forget its sessions, in this process."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answer)
        self.sessions: set[str] = set()
        self.unknown_session = 404
        self.takes_calls = True
        self.call_status = 200  # of what answers a call that has run, as a gateway may
        self.call_error: dict[str, Any] | None = None
        self.hints: dict[str, bool] = {}
        self.is_fickle = False  # closes a connection without a word when a second request comes over it
        self.dropped: list[str] = []
        self.calls: list[str] = []
        self._started = 0

    @classmethod
    @contextmanager
    def running(cls, port: int = 0) -> "Iterator[Forgetful]":
        """Answer in a thread."""
        with cls(port) as server:
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def start_session(self) -> str:
        """Return the name of a new session."""
        self._started += 1
        self.sessions.add(f"session-{self._started}")
        return f"session-{self._started}"


class _Answer(BaseHTTPRequestHandler):
    server: Forgetful
    answered = 0

    @property
    def protocol_version(self) -> str:  # type: ignore[override]  # a constant there
        """Connections are kept only to be dropped later."""
        return "HTTP/1.1" if self.server.is_fickle else "HTTP/1.0"

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Offer no stream."""
        self._send(405, None)

    def do_DELETE(self) -> None:
        """End a session."""
        self._send(200, None)

    def do_POST(self) -> None:
        """Answer a message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.is_fickle and self.answered:
            self.server.dropped.append(message["method"])
            self.close_connection = True
            return
        self.answered += 1
        session = self.headers.get("mcp-session-id")
        is_refused = message["method"] == "tools/call" and not self.server.takes_calls
        if is_refused or (session is not None and session not in self.server.sessions):
            error = {"code": -32001, "message": "Session not found"}
            self._send(self.server.unknown_session, {"jsonrpc": "2.0", "id": None, "error": error})
        elif "id" not in message:
            self._send(202, None)
        else:
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        session: str | None = None
        match message["method"]:
            case "initialize":
                info = {"name": "forgetful", "version": "1"}
                answer: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                session = self.server.start_session()
            case "tools/list":
                tool = {"name": "note", "inputSchema": {"type": "object"}, "annotations": self.server.hints}
                answer = {"tools": [tool]}
            case "tools/call":
                self.server.calls.append(message["params"]["name"])
                answer = {"content": [{"type": "text", "text": f"call {len(self.server.calls)}"}]}
                if self.server.call_status != 200 or self.server.call_error is not None:
                    error = {"jsonrpc": "2.0", "id": message["id"], "error": self.server.call_error}
                    self._send(self.server.call_status, error if self.server.call_error is not None else None)
                    return
            case _:
                unknown = {"code": -32601, "message": "Method not found"}
                self._send(200, {"jsonrpc": "2.0", "id": message["id"], "error": unknown})
                return
        self._send(200, {"jsonrpc": "2.0", "id": message["id"], "result": answer}, session)

    def _send(self, status: int, body: dict[str, Any] | None, session: str | None = None) -> None:
        payload = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        if session is not None:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(payload)
