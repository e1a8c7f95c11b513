"""The inspector's page in a real browser: every view, both themes, two widths, the keyboard alone, live runs, and a
record that attacks its reader. Chromium by Playwright; skipped with the reason where there is none."""

import asyncio
import json
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
from dragoman.store import Session
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.web.inspector import session_html

from .conversations import CONVERSATIONS
from .inspector_cases import hostile, recorded, replay
from .inspector_stage import TOKEN, need_browser, running_loop, staged

pytestmark = pytest.mark.slow

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


class Server:
    """An inspector in a thread of its own, which can be stopped and started again on its port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop, self._path = loop, path
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
        self.store = SQLiteStore(self._path)
        if CONVERSATIONS.is_dir():
            talk = next(each for each in recorded("claude_code") if 120 < len(each["messages"]) < 200)
            models = ("anthropic:claude-opus-4-5", "openai:gpt-5.1")
            await replay(self.store, "talk", talk, models=models, budget=12_000, decorated=True)
        else:
            session = await start_session(self.store, "talk", system_instruction="Be short.")
            model = ScriptedModel(Turn(calls=(Call("look", {"where": "attic"}),)), "Nothing is there.")
            await Agent(model, tools=[look], session=session).run("look")
        await hostile(self.store, megabytes=10, entries=100_000)
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


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"the {where} is empty"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_browser()
    with running_loop() as loop:
        made = Server(loop, tmp_path_factory.mktemp("store") / "sessions.db")
        yield made
        made.stop()
        made.do(made.store.close())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
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
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
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


@pytest.fixture
def reader(browser: Any, server: Server) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def make(**options: Any) -> Reader:
        made.append(Reader(browser, server, **options))
        return made[-1]

    yield make
    for each in made:
        each.context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
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


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_without_a_complaint_and_passes_axe(
    reader: Callable[..., Reader], axe: str, view: str, width: int, theme: str
) -> None:
    each = reader(width=width, theme=theme)
    page = each.open(view)
    page.wait_for_load_state("networkidle") if "live" not in view else page.wait_for_selector("[data-follow=following]")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert violations(page, axe) == []
    assert each.complaints == []
    assert each.strangers() == []


def test_the_token_leaves_the_address_and_a_reload_still_reads(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/6")
    assert "token" not in page.url
    page.reload()
    page.wait_for_selector(".reading .entry")
    assert page.url.endswith("/s/talk/6")


def test_without_the_token_the_page_says_what_to_do(reader: Callable[..., Reader]) -> None:
    each = reader()
    each.page.goto(f"{each.server.address}/s/talk")
    each.page.wait_for_selector("text=open the address that the server printed")


# ---------------------------------------------------------------- keyboard


def test_the_timeline_is_walked_by_keys_alone(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/1")
    page.wait_for_selector(".panel .big")

    def chosen() -> int:
        return int(page.inner_text(".panel .big").removeprefix("#"))

    page.keyboard.press("J")
    turn = chosen()
    assert turn > 1
    page.keyboard.press("]")
    call = chosen()
    assert call > turn
    page.keyboard.press("j")
    assert chosen() > call
    page.keyboard.press("k")
    assert chosen() == call
    assert page.url.endswith(f"/{call}")
    page.keyboard.press("c")
    page.wait_for_selector(".sentbar")
    assert f"/{call}/context" in page.url
    page.go_back()
    page.wait_for_selector(".reading")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] .keylist")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


def test_no_key_does_anything_while_somebody_types(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/6")
    page.keyboard.press("/")
    page.keyboard.type("jkc?")
    assert page.input_value("input[type=search]") == "jkc?"
    assert "/context" not in page.url


def test_search_marks_hits_and_goes_from_one_to_the_next(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk")
    page.keyboard.press("/")
    page.keyboard.type("test")
    page.wait_for_selector("mark")
    first = page.inner_text(".search .count")
    page.keyboard.press("Enter")
    page.wait_for_function("first => document.querySelector('.search .count').innerText !== first", arg=first)
    assert "q=test" in page.url


def test_a_deep_link_shows_its_entry_and_the_list_names_its_size(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/40")
    page.wait_for_selector('[data-key="40"] .entry, .line.chosen')
    assert page.is_visible(".line.chosen")
    assert int(page.get_attribute(".entryrow.chosen", "aria-setsize")) > 20


def test_sessions_are_opened_by_keys(reader: Callable[..., Reader]) -> None:
    page = reader().open("")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline")


def test_requests_are_compared_by_turns_and_providers(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/diff")
    page.keyboard.press("t")
    page.wait_for_selector(".byteline")
    assert "a=" in page.url
    page.keyboard.press("s")
    page.wait_for_selector('.diffrow[data-state="left"]')


def test_requests_are_compared_by_line_and_by_bytes(reader: Callable[..., Reader], axe: str) -> None:
    each = reader()
    page = each.open("s/talk/diff")
    page.keyboard.press("t")
    page.wait_for_selector(".byteline")
    page.click("text=By line")
    page.wait_for_selector(".bodylines .addedline")
    assert violations(page, axe) == []
    page.keyboard.press("b")
    page.wait_for_selector(".bodybytes mark")
    assert violations(page, axe) == []
    page.keyboard.press("b")
    page.wait_for_selector(".diffrow")
    assert each.complaints == []


def test_two_sessions_are_compared(reader: Callable[..., Reader], axe: str) -> None:
    each = reader()
    page = each.open("")
    page.click("text=Compare two")
    page.check('[aria-label="Compare talk"]')
    page.wait_for_selector("text=Choose the second")
    assert violations(page, axe) == []
    page.click('[aria-label="Compare branch"]')
    page.wait_for_selector(".diffrow")
    assert "/s/talk/diff?other=branch" in page.url
    page.keyboard.press("s")
    page.wait_for_url("**/s/branch/diff?**other=talk")
    page.wait_for_selector(".byteline")
    assert each.complaints == []


# ---------------------------------------------------------------- live


def test_a_session_is_begun_in_the_page(reader: Callable[..., Reader], server: Server, axe: str) -> None:
    server.script = [ScriptedModel("A new answer.")]
    page = reader().open("")
    page.click("text=New session")
    assert violations(page, axe) == []
    page.fill("dialog textarea", "Begin here.")
    page.click("dialog >> text=Begin")
    page.wait_for_selector("text=A new answer.")
    assert page.url.endswith("/live")


def hold() -> tuple[Callable[[int], Any], Callable[[], None], asyncio.Event]:
    """Return what waits in the middle of an answer, what lets it go on, and an event that says that it waits."""
    reached, released = asyncio.Event(), asyncio.Event()

    async def wait(number: int) -> None:
        if number == 3:
            reached.set()
            await released.wait()

    return wait, released.set, reached


def test_a_run_is_followed_to_its_end_through_a_lost_connection(reader: Callable[..., Reader], server: Server) -> None:
    wait, release, reached = hold()
    model = ScriptedModel("alpha bravo charlie delta echo foxtrot golf hotel india", between=wait)

    async def begin() -> Session:
        return await start_session(server.store, "streamed", live=True)

    session = server.do(begin())
    each = reader()
    page = each.open("s/streamed/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    run = server.begin(Agent(model, session=session).run("count"))
    server.do(reached.wait())
    page.wait_for_selector(".underway >> text=bravo")
    port = server.port
    server.stop()
    page.wait_for_selector("[data-follow=lost]")
    assert page.is_visible(".underway >> text=bravo")  # nothing is cleared
    server._loop.call_soon_threadsafe(release)
    run.result(SECONDS)
    server.start(port)
    page.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    page.wait_for_selector(".entry.output >> text=india")
    assert page.locator(".entry.output:not(.underway *)").count() >= 1


def asking(server: Server, session_id: str) -> None:
    server.script = [ScriptedModel(Turn(text="I pay.", calls=(Call("pay", {"euros": 7}, "c1"),)), "It is done.")]

    async def begin() -> None:
        session = await start_session(server.store, session_id, live=True)
        await Agent(server.script[0], tools=[pay], session=session).run("pay")

    server.do(begin())


def test_a_call_is_approved_by_a_key_and_the_run_goes_on(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "approved")
    page = reader().open("s/approved/live", ".asking")
    assert '"euros": 7' in page.inner_text(".asking pre")
    assert page.evaluate("document.activeElement === document.body")  # focus did not jump
    page.keyboard.press("a")
    page.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    page.wait_for_selector("text=7 euros are paid")
    page.wait_for_selector("text=It is done.")


def test_arguments_are_shown_whole_before_anybody_can_approve(reader: Callable[..., Reader], server: Server) -> None:
    note = "x" * 200_000 + " and then all the rest"
    server.script = [ScriptedModel(Turn(calls=(Call("pay", {"euros": 7, "note": note}, "c1"),)))]

    async def begin() -> None:
        session = await start_session(server.store, "long-arguments")
        await Agent(server.script[0], tools=[pay_with_note], session=session).run("pay")

    server.do(begin())
    page = reader().open("s/long-arguments/live", ".asking")
    page.wait_for_selector(".asking button.primary:not([disabled])")
    assert "and then all the rest" in page.inner_text(".asking pre")


def test_of_two_people_the_first_decides_and_the_other_sees_who(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "decided")
    first, second = reader(), reader()
    one, other = first.open("s/decided/live", ".asking"), second.open("s/decided/live", ".asking")
    name = one.evaluate("localStorage.getItem('dragoman-who')")
    other.route("**/events*", lambda route: route.abort())
    one.fill(".asking input", "too much")
    one.click("text=Deny")
    one.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    if other.is_visible(".asking"):
        other.click("text=Approve")
    other.wait_for_selector(f"text={name}", timeout=SECONDS * 1000)


def test_a_fork_is_made_and_carried_on_by_a_prompt(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "origin")
    server.script = [ScriptedModel("An answer in the fork.")]
    page = reader().open("s/origin/live", ".composer textarea")
    page.click(".entryrow >> nth=0")
    page.fill("[aria-label='Id of the fork']", "origin-fork")
    page.click("button:text-is('Fork')")
    page.wait_for_url("**/s/origin-fork/live")
    page.wait_for_selector("[data-follow=following]")
    page.keyboard.press("i")
    page.keyboard.type("hello there")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=An answer in the fork.", timeout=SECONDS * 1000)


def test_a_run_is_stopped_by_escape(reader: Callable[..., Reader], server: Server) -> None:
    wait, release, reached = hold()
    server.script = [ScriptedModel("one two three four five six seven eight nine ten", between=wait)]
    server.do(_begin(server, "stopped"))
    page = reader().open("s/stopped/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    page.fill(".composer textarea", "go")
    page.click("text=Send")
    server.do(reached.wait())
    page.wait_for_selector(".underway")
    page.wait_for_selector("button.danger >> text=Stop")
    page.focus(".reading")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Run aborted", timeout=SECONDS * 1000)
    release()


async def _begin(server: Server, session_id: str) -> None:
    await start_session(server.store, session_id, live=True)


# ---------------------------------------------------------------- what strangers found


OVERLAPS = """() => {
  const cards = [...document.querySelectorAll('.placed')].map((each) => each.getBoundingClientRect());
  return cards.filter((each, index) => index && each.top < cards[index - 1].bottom - 1).length;
}"""
STILL = (
    "() => document.documentElement.scrollTop === 0 && document.querySelector('.bar').getBoundingClientRect().top === 0"
)


@tool
def read_long(path: str, note: str = "") -> str:
    """Read a long file."""
    return "\n".join(f"{number}: a line of {path}" for number in range(300))


def long_talk(server: Server, session_id: str) -> None:
    calls = tuple(Turn(calls=(Call("read_long", {"path": f"{number}.py", "note": "n"}),)) for number in range(6))
    turns = [each for call in calls for each in (call, "It is read.")]

    async def begin() -> None:
        session = await start_session(server.store, session_id)
        agent = Agent(ScriptedModel(*turns), tools=[read_long], session=session)
        for number in range(6):
            await agent.run(f"read {number}")

    server.do(begin())


def test_a_card_that_grows_pushes_the_others_down_and_stays_open(reader: Callable[..., Reader], server: Server) -> None:
    long_talk(server, "growing")
    page = reader().open("s/growing/2")
    page.click("text=1 more argument >> nth=0")
    page.click("text=288 more lines >> nth=0")
    page.wait_for_selector(".longtext >> text=299: a line of 0.py")
    page.wait_for_function(f"() => ({OVERLAPS})() === 0")
    box = "document.querySelector('.reading')"
    page.evaluate(f"{box}.scrollTop = 1e6")
    page.wait_for_selector("text=299: a line of 0.py", state="detached")
    page.evaluate(f"{box}.scrollTop = 0")
    page.wait_for_selector(".longtext >> text=299: a line of 0.py")
    page.wait_for_function(f"() => ({OVERLAPS})() === 0")


def test_a_part_of_a_request_is_shown_without_moving_the_page(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/diff")
    page.click(".units button >> nth=-1")
    page.wait_for_function("() => document.querySelector('.diffrows').scrollTop > 0")
    assert page.evaluate(STILL)
    page.keyboard.press("N")
    page.keyboard.press("n")
    assert page.evaluate(STILL)
    page.goto(f"{server_of(page)}/")
    page.wait_for_selector("table.list tbody tr")
    for _ in range(30):
        page.keyboard.press("j")
    assert page.evaluate(STILL)


def server_of(page: Any) -> str:
    return "/".join(str(page.url).split("/")[:3])


def test_a_server_that_was_started_anew_is_told_of(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/live")
    page.wait_for_selector("[data-follow=following]")
    refusal = {"error": {"code": "no_token", "message": "no"}}
    page.route("**/api/**", lambda route: route.fulfill(status=401, json=refusal))
    page.wait_for_selector(".notice >> text=Open the address that it printed last", timeout=SECONDS * 1000)


def test_a_decision_names_its_call_and_what_it_changed(reader: Callable[..., Reader], server: Server) -> None:
    calls = tuple(Call("pay", {"euros": euros}, f"c{euros}") for euros in (900, 80))

    async def begin() -> list[Any]:
        session = await start_session(server.store, "changed")
        agent = Agent(ScriptedModel(Turn(calls=calls), "Done."), tools=[pay], session=session)
        await agent.run("pay")
        await agent.approve("c900", arguments={"euros": 450}, reason="half")
        await agent.deny("c80", reason="no money")
        await agent.run()
        return list(session.entries)

    entries = server.do(begin())
    page = reader().open("s/changed")
    page.wait_for_selector(".band >> text=with other arguments: euros: 900 → 450")
    assert "Run with other arguments" in page.inner_text(".toolcard >> nth=0")
    assert "euros: 80" in page.inner_text(".band.denied")
    assert page.inner_text(".entryrow:has-text('Denied pay') .icon") == "✕"
    exported = "".join(session_html("changed", entries))
    assert exported.count("half") == 1
    assert "with other arguments: <code>{&quot;euros&quot;: 450}</code>" in exported


def test_who_decides_too_late_is_told_whose_decision_counts(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "late")
    page = reader().open("s/late/live", ".asking")
    page.route("**/events*", lambda route: route.abort())
    page.route("**/deny*", lambda route: route.fulfill(status=409, json={"error": {
        "code": "decided", "message": "decided", "decision": {
            "approved": True, "who": "Ada", "time": "2026-11-18T10:00:00Z", "reason": "", "serial": 6}}}))  # fmt: skip
    page.keyboard.press("d")
    page.wait_for_selector(".toolate >> text=You denied pay, but Ada had approved it")


def test_a_fork_is_made_only_after_a_question(reader: Callable[..., Reader], server: Server, axe: str) -> None:
    page = reader().open("s/talk/6")
    page.keyboard.press("f")
    page.wait_for_selector("dialog[open] >> text=Fork this session")
    assert page.input_value("dialog[open] input >> nth=0") == "6"
    assert violations(page, axe) == []
    page.keyboard.type("named-fork")
    page.keyboard.press("Enter")
    page.wait_for_url("**/s/named-fork")
    assert server.do(server.store.info("named-fork")).forked_from.serial == 6


def test_a_serial_is_asked_for_in_the_page_itself(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/1")
    page.keyboard.press("g")
    page.keyboard.type("99999")
    page.wait_for_selector("dialog[open] >> text=There is no such entry")
    for _ in range(5):
        page.keyboard.press("Backspace")
    page.keyboard.type("6")
    page.keyboard.press("Enter")
    page.wait_for_url("**/s/talk/6")


@pytest.mark.parametrize(
    ("place", "words"),
    [("99999", "There is no entry #99999"), ("99999/context", "There is no entry #99999"), ("abc", "no such view")],
)
def test_an_unknown_address_is_told_of(reader: Callable[..., Reader], place: str, words: str) -> None:
    each = reader()
    each.page.goto(f"{each.server.address}/s/talk/{place}?token={TOKEN}")
    each.page.wait_for_selector(f"text={words}")


def test_a_session_named_by_dots_is_opened(reader: Callable[..., Reader], server: Server) -> None:
    async def begin() -> None:
        session = await start_session(server.store, "..")
        await Agent(ScriptedModel("Here."), session=session).run("where")

    server.do(begin())
    page = reader().open("")
    page.click("a.strong:text-is('..')")
    page.wait_for_selector(".entry.output >> text=Here.")
    page.reload()
    page.wait_for_selector(".entry.output >> text=Here.")


def test_who_only_reads_sees_all_arguments_of_a_call_that_waits(browser: Any, server: Server) -> None:
    asking(server, "waiting")

    async def serve(stack: AsyncExitStack) -> str:
        return (await stack.enter_async_context(staged(server.store, read_only=True))).address

    stack = AsyncExitStack()
    address = server.do(serve(stack))
    page = browser.new_page()
    page.goto(f"{address}/s/waiting/live?token={TOKEN}")
    page.wait_for_selector(".asking >> text=Waits for a decision")
    assert '"euros": 7' in page.inner_text(".asking pre")
    assert page.locator(".asking button, .composer").count() == 0
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_selector("table.list tbody tr")
    assert page.locator("text=Erase").count() == 0
    page.close()
    server.do(stack.aclose())


def test_a_session_is_erased_after_its_id_was_typed(reader: Callable[..., Reader], server: Server, axe: str) -> None:
    asking(server, "to-erase")
    watching = reader().open("s/to-erase")
    page = reader().open("")
    page.click("tr:has-text('to-erase') td >> nth=1")
    page.go_back()
    page.wait_for_selector("table.list tbody tr")
    while page.inner_text("tr.chosen a.strong") != "to-erase":
        page.keyboard.press("j")
    page.keyboard.press("Delete")
    page.wait_for_selector("dialog[open] >> text=Erase this session")
    assert violations(page, axe) == []
    page.keyboard.type("to-eras")
    assert page.is_disabled("dialog[open] button.danger")
    page.keyboard.type("e")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr:has-text('to-erase')", state="detached")
    watching.wait_for_selector(".notice >> text=What is shown was read before", timeout=SECONDS * 1000)
    assert watching.is_visible(".entry >> nth=0")


def test_a_model_can_be_chosen_where_a_side_cannot_be_written(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "unwritten")
    page = reader().open("s/unwritten/diff?a=@nobody:x&b=@openai:gpt-5", ".trouble")
    page.fill('[aria-label="Model on the left"]', "anthropic:claude-opus-4-5")
    page.keyboard.press("Enter")
    page.wait_for_selector(".diffrow")


# ---------------------------------------------------------------- hostile


@pytest.mark.parametrize("view", ["", "/context", "/diff", "/cost", "/live"])
def test_a_hostile_record_runs_nothing_and_asks_nothing_of_others(reader: Callable[..., Reader], view: str) -> None:
    each = reader()
    page = each.open(f"s/{'hostile %3Cscript%3E'}{view}")  # 100,000 entries, one of 10 MB
    for place in (0, 10_000, 10_000_000):
        page.evaluate("top => document.querySelectorAll('.scroll').forEach(e => { e.scrollTop = top; })", place)
        page.wait_for_timeout(200)
    for button in page.query_selector_all("button[aria-expanded='false']")[:12]:
        if button.is_visible():
            button.click()
    assert page.evaluate("window.hit") is None
    assert page.query_selector_all("script:not([src]), iframe, object, embed, #main svg script") == []
    links = page.eval_on_selector_all("a[href]", "all => all.map(a => a.protocol)")
    assert set(links) <= {"http:"}
    assert each.strangers() == []
    said = [text for text in each.complaints if "400" not in text and "Failed to load resource" not in text]
    assert said == []


def test_an_exported_page_is_read_offline(browser: Any, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "session.html"
    entries = server.do(server.store.load("hostile <script>"))
    file.write_text("".join(session_html("hostile <script>", entries[:60])), "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert page.evaluate("window.hit") is None
    assert page.locator("section").count() > 10
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


# ---------------------------------------------------------------- the page's own code


def test_the_page_passes_the_type_checker(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here: TypeScript cannot be fetched")
    install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "typescript@5.9.3"]
    if subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=200, check=False).returncode:
        pytest.skip("TypeScript cannot be fetched here")
    page = Path(__file__).resolve().parents[1] / "src/dragoman/web/inspector/page"
    options = {
        "compilerOptions": {
            "allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "target": "es2023", "module": "es2022",
            "moduleResolution": "bundler", "lib": ["es2023", "dom", "dom.iterable"], "types": [],
        },
        "include": [str(page / "*.js"), str(page / "views/*.js")],
    }  # fmt: skip
    (tmp_path / "tsconfig.json").write_text(json.dumps(options))
    check = ["node_modules/.bin/tsc", "-p", "."]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[:4000]


def test_the_vendored_files_are_what_the_script_makes() -> None:
    script = Path(__file__).resolve().parents[1] / "scripts/vendor.py"
    done = subprocess.run(["python3", str(script), "--check"], capture_output=True, text=True, timeout=400, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip()[-200:])
    assert done.returncode == 0, done.stderr
