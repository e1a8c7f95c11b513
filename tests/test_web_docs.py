"""The web programs of docs/web.md on real servers: a client that leaves early ends the run, a busy session is a 409."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web

from dragoman import Agent, SQLiteStore, start_session
from dragoman.history import RunFinishedEntry
from dragoman.testing import ScriptedModel
from tests.agent_cases import Gate, run

DOCUMENT = Path(__file__).parents[1] / "docs" / "web.md"
PROMPT = b"Hello?"


def programs() -> dict[str, Any]:
    """Return the names that the programs of the document define; nothing is served."""
    names: dict[str, Any] = {"__name__": "web_document"}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        if "asyncio.run(" not in block:
            exec(compile(block, str(DOCUMENT), "exec", dont_inherit=True), names)
    return names


@asynccontextmanager
async def served_by_aiohttp(names: dict[str, Any]) -> AsyncIterator[int]:
    runner = web.AppRunner(names["application"](), handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@asynccontextmanager
async def served_by_fastapi(names: dict[str, Any]) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(names["api"], log_level="critical", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with names["store"]:
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            yield listener.getsockname()[1]
            server.should_exit = True
            await serving


SERVERS = {"aiohttp": served_by_aiohttp, "fastapi": served_by_fastapi}


@pytest.mark.parametrize("framework", SERVERS)
@pytest.mark.filterwarnings("ignore:.*websockets.*:DeprecationWarning")
def test_a_client_that_leaves_before_the_first_word_stops_the_run(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def leave() -> None:
        names, gate = programs(), Gate(0)

        async def agent_of(store: SQLiteStore, user: str) -> Agent:
            return Agent(ScriptedModel("Never.", between=gate), session=await start_session(store, user, exist_ok=True))

        names["agent_of"] = agent_of
        async with SERVERS[framework](names) as port, SQLiteStore("web.db") as store:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST /ada/say HTTP/1.1\r\nHost: a\r\nContent-Length: {len(PROMPT)}\r\n\r\n"
            writer.write(head.encode() + PROMPT)
            await gate.reached.wait()
            writer.close()
            entries = store.follow("ada", 0)
            ended = [entry async for entry in _until_the_end(entries)]
            assert ended[-1].status == "aborted"

    run(leave())


async def _until_the_end(entries: AsyncIterator[Any]) -> AsyncIterator[RunFinishedEntry]:
    async for entry in entries:
        if isinstance(entry, RunFinishedEntry):
            yield entry
            return


@pytest.mark.parametrize("framework", SERVERS)
@pytest.mark.filterwarnings("ignore:.*websockets.*:DeprecationWarning")
def test_a_busy_session_is_a_409_also_where_its_instruction_would_change(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def ask_twice() -> None:
        names, gate, instructions = programs(), Gate(0), ["one", "one", "another"]

        async def agent_of(store: SQLiteStore, user: str) -> Agent:
            session = await start_session(store, user, exist_ok=True, system_instruction=instructions.pop(0))
            return Agent(ScriptedModel("At last.", between=gate), session=session)

        names["agent_of"] = agent_of
        async with SERVERS[framework](names) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
            first = asyncio.ensure_future(browser.post("/ada/say", content=PROMPT))
            await gate.reached.wait()
            for _ in range(2):
                assert (await browser.post("/ada/say", content=PROMPT)).status_code == 409
            gate.opened.set()
            assert (await first).text.endswith("event: done\ndata: {}\n\n")

    run(ask_twice())
