"""The timeline in a browser: keys, links, search, cards."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Agent, start_session, tool
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.web.inspector import session_html

from .inspector_browser import Reader, Server, axe_source, chromium, pay, readers, served, violations  # noqa: F401  # the fixtures
from .inspector_stage import TOKEN

pytestmark = pytest.mark.slow


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


OVERLAPS = """() => {
  const cards = [...document.querySelectorAll('.placed')].map((each) => each.getBoundingClientRect());
  return cards.filter((each, index) => index && each.top < cards[index - 1].bottom - 1).length;
}"""


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
