"""The inspector in a real browser: a server in a thread of its own, a page that notes its complaints, and axe."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, SQLiteStore, start_session, tool
from dragoman.message import Message
from dragoman.store import Session
from dragoman.testing import Call, ScriptedModel, Turn

from .conversations import CONVERSATIONS
from .inspector_cases import OPUS, recorded, replay
from .inspector_stage import TOKEN, need_browser, running_loop, staged

SECONDS = 120  # at most: the machine may be busy, and one record is huge

VIEWS = ("", "s/talk", "s/talk/context", "s/talk/diff", "s/talk/cost", "s/talk/live")


SHOWN = {
    "": "table.list tbody tr",
    "s/talk": ".reading .entry:not(.pending)",
    "s/talk/context": ".sentbar .piece",
    "s/talk/diff": ".diffrow",
    "s/talk/cost": ".plot canvas",
    "s/talk/live": ".composer textarea",
}


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} euros are paid"


@tool(requires_approval=True, name="pay")
def pay_with_note(euros: int, note: str) -> str:
    """Pay, with a note."""
    return f"{euros} euros are paid: {len(note)}"


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"the {where} is empty"


class Server:
    """An inspector in a thread of its own, which can be stopped and started again on its port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop, self.path = loop, path
        self.script: list[ScriptedModel] = []
        self.address = ""
        self._stack = AsyncExitStack()
        self.store: SQLiteStore
        self.do(self._open())
        self.start()

    def do(self, work: Any) -> Any:
        """Run a coroutine on the server's loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def begin(self, work: Any) -> "Future[Any]":
        """Start a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> None:
        self.store = SQLiteStore(self.path)
        if CONVERSATIONS.is_dir():
            talk = next(each for each in recorded("claude_code") if 120 < len(each["messages"]) < 200)
            models = ("anthropic:claude-opus-4-5", "openai:gpt-5.1")
            await replay(self.store, "talk", talk, models=models, budget=12_000, decorated=True)
        else:
            session = await start_session(self.store, "talk", system_instruction="Be short.")
            model = ScriptedModel(Turn(calls=(Call("look", {"where": "attic"}),)), "Nothing is there.")
            await Agent(model, tools=[look], session=session).run("look")
        await self.store.fork("talk", 6, new_session_id="branch")

    def start(self, port: int = 0) -> None:
        """Answer on a port."""

        async def serve() -> None:
            def make_agent(session: Any, _model: Any) -> Agent[None, str]:
                return Agent(self.script[0], tools=[pay], session=session)

            stage = await self._stack.enter_async_context(staged(self.store, port=port, make_agent=make_agent))
            self.address = stage.address

        self.do(serve())

    def stop(self) -> None:
        """Answer no more."""
        self.do(self._stack.aclose())
        self._stack = AsyncExitStack()

    @property
    def port(self) -> int:
        """Where it answers."""
        return int(self.address.rsplit(":", 1)[1])


@pytest.fixture(scope="module", name="server")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_browser()
    with running_loop() as loop:
        made = Server(loop, tmp_path_factory.mktemp("store") / "sessions.db")
        yield made
        made.stop()
        made.do(made.store.close())


@pytest.fixture(scope="module", name="browser")
def chromium() -> Iterator[Any]:
    path = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


class Reader:
    """A page, what it complained of, and what it asked for."""

    def __init__(
        self, browser: Any, server: Server, *, width: int = 1440, theme: str = "light", motion: str = "reduce"
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion=motion
        )
        self.context.set_default_timeout(SECONDS * 1000)
        self.page = self.context.new_page()
        self.server = server
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def open(self, place: str, shown: str | None = None) -> Any:
        mark = "&" if "?" in place else "?"
        self.page.goto(f"{self.server.address}/{place}{mark}token={TOKEN}")
        view = re.sub(r"^s/[^/]+(/[0-9]+)?", "s/talk", place.partition("?")[0])
        self.page.wait_for_selector(shown or SHOWN[view], timeout=SECONDS * 1000)
        self.page.wait_for_selector(".foot .keys span:nth-child(2)", state="attached")  # keys do something now
        return self.page

    def strangers(self) -> list[str]:
        """Return the addresses beyond the server that the page asked for."""
        return [url for url in self.requests if not url.startswith((f"{self.server.address}/", "data:", "blob:"))]


@pytest.fixture(name="reader")
def readers(browser: Any, server: Server) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def make(*, server: Server = server, **options: Any) -> Reader:
        made.append(Reader(browser, server, **options))
        return made[-1]

    yield make
    for each in made:
        each.context.close()


@pytest.fixture(scope="module", name="axe")
def axe_source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, fetched for these tests alone."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here: axe-core cannot be fetched")
    folder = tmp_path_factory.mktemp("axe")
    install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "axe-core@4.14.0"]
    done = subprocess.run(install, cwd=folder, capture_output=True, timeout=200, check=False)
    if done.returncode:
        pytest.skip("axe-core cannot be fetched here")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


def violations(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run(document)).violations")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary'][:300]}" for each in found for node in each["nodes"]
    ]


def hold() -> tuple[Callable[[int], Any], Callable[[], None], asyncio.Event]:
    """Return what waits in the middle of an answer, what lets it go on, and an event that says that it waits."""
    reached, released = asyncio.Event(), asyncio.Event()

    async def wait(number: int) -> None:
        if number == 3:
            reached.set()
            await released.wait()

    return wait, released.set, reached


def asking(server: Server, session_id: str) -> None:
    server.script = [ScriptedModel(Turn(text="I pay.", calls=(Call("pay", {"euros": 7}, "c1"),)), "It is done.")]

    async def begin() -> None:
        session = await start_session(server.store, session_id, live=True)
        await Agent(server.script[0], tools=[pay], session=session).run("pay")

    server.do(begin())


def server_of(page: Any) -> str:
    return "/".join(str(page.url).split("/")[:3])


def record_talk(server: Server, session_id: str, turns: int) -> Session:
    """Record questions and answers; every fourth question has the word needle."""

    async def record() -> Session:
        session = await start_session(server.store, session_id)
        for number in range(turns):
            await session.append_model_input(f"question {number}{'' if number % 4 else ' needle'}")
            await session.append_model_output(Message.assistant(f"answer {number}", invocation=OPUS))
        return session

    session: Session = server.do(record())
    return session
