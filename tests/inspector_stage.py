"""An inspector that answers on a loopback port, and a client that has its token. Chromium, where it is here."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from dragoman.store import MemoryStore, SessionStore
from dragoman.web.inspector import inspector
from dragoman.web.inspector.safety import refuse_unread
from dragoman.web.serving import serving

TOKEN = "a-token-of-a-test"
WRITES = {"X-Dragoman-Inspector": "1"}


class Stage(NamedTuple):
    """Where the inspector is, and a client that may read it."""

    address: str
    client: aiohttp.ClientSession

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of an endpoint; fail for any other answer than 200."""
        async with self.client.get(f"{self.address}{path}", params={"token": TOKEN, **query}) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            return body

    async def status(self, path: str, **query: Any) -> tuple[int, Any]:
        """Return the status of an endpoint, and its JSON."""
        async with self.client.get(f"{self.address}{path}", params={"token": TOKEN, **query}) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Return the status of an action, and its JSON."""
        address = f"{self.address}{path}"
        given = {**WRITES, **headers}
        async with self.client.post(address, params={"token": TOKEN}, json=body, headers=given) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def staged(store: SessionStore, *, mount: str = "", port: int = 0, **options: Any) -> AsyncIterator[Stage]:
    """Serve the inspector of a store, alone or under a path of another application."""
    application = inspector(store, token=TOKEN, path=mount, **options)
    if mount:
        parent = web.Application()
        parent.add_subapp(mount, application)
        application = parent
    async with (
        serving(application, host="127.0.0.1", port=port, refuse=refuse_unread) as address,
        aiohttp.ClientSession() as client,
    ):
        yield Stage(f"{address}{mount}", client)


def played(test: Callable[[Stage, MemoryStore], Awaitable[None]], **options: Any) -> None:
    """Run a test with an inspector of an empty store."""

    async def run() -> None:
        store = MemoryStore()
        async with staged(store, **options) as stage:
            await asyncio.wait_for(test(stage, store), 60)

    asyncio.run(run())


def find_chromium() -> str | None:
    """Return where a Chromium is, None if none is here."""
    found = [os.environ.get("DRAGOMAN_CHROMIUM"), *map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))]
    return next(filter(None, found), None)


def need_browser() -> str:
    """Return the browser's path; skip the test with the reason where there is none, or no Playwright."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium here")
    return path


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give a loop in a thread of its own, for a server beside a browser that blocks."""
    import threading

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end_all() -> None:
    """End what browsers that have gone left on this loop, with their connections."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in the turn after
