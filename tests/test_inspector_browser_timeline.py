"""The timeline in a browser: keys, links, search, cards."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, start_session, tool
from dragoman.message import Message, MessageMeta, Role, ToolCall
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.web.inspector import session_html

from .inspector_browser import (  # noqa: F401  # the fixtures
    SECONDS,
    Reader,
    Server,
    axe_source,
    chromium,
    pay,
    readers,
    record_talk,
    served,
    violations,
)
from .inspector_cases import OPUS, Clock
from .inspector_stage import TOKEN, running_loop

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


@pytest.mark.parametrize("width", [1440, 1100, 999, 800, 400])
@pytest.mark.parametrize(("view", "key"), [("s/talk/6", "/"), ("", "/"), ("s/talk/live", "i")])
def test_a_key_that_leads_to_a_field_shows_the_field_and_what_is_typed_is_its_text(
    reader: Callable[..., Reader], view: str, key: str, width: int
) -> None:
    page = reader(width=width).open(view)
    page.keyboard.press(key)
    page.keyboard.type("deny")
    field = page.locator("input:focus, textarea:focus")
    assert field.input_value() == "deny"
    assert field.is_visible()


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
    assert "with other arguments: <code>{\n  &quot;euros&quot;: 450\n}</code>" in exported


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


CHOSEN = ".entryrow.chosen .serial"


def test_the_palette_and_the_history_choose_the_entry_of_the_address(
    reader: Callable[..., Reader], server: Server
) -> None:
    record_talk(server, "addressed", 40)
    page = reader().open("s/addressed/5")
    page.keyboard.press("Control+k")
    page.keyboard.type("50")
    page.wait_for_selector("text=Entry 50 of this session")
    assert page.get_attribute("[role=combobox]", "aria-activedescendant") == "place-0"
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{CHOSEN} >> text='50'")
    page.wait_for_selector(".panel .big >> text=#50")
    page.wait_for_selector(".line.chosen >> text=question 25")
    page.go_back()
    page.wait_for_selector(f"{CHOSEN} >> text='5'")


def test_a_search_leaves_the_choice_alone_while_the_session_grows(
    reader: Callable[..., Reader], server: Server
) -> None:
    session = record_talk(server, "searched", 12)
    page = reader().open("s/searched?q=needle")
    page.wait_for_selector(".search .count >> text=1 of 3")
    page.click(".entryrow:has-text('question 5')")
    page.wait_for_selector(f"{CHOSEN} >> text='10'")
    server.do(session.append_model_input("a needle comes later"))
    page.wait_for_selector(".search .count >> text=0 of 4")
    assert page.inner_text(CHOSEN) == "10"


def test_entries_that_could_not_be_fetched_can_be_fetched_again(reader: Callable[..., Reader], server: Server) -> None:
    record_talk(server, "refused", 4)
    each = reader()
    refusal = {"error": {"code": "unreadable", "message": "no entries today"}}
    each.page.route("**/entries?*", lambda route: route.fulfill(status=400, json=refusal))
    page = each.open("s/refused", ".reading .trouble >> text=no entries today")
    page.unroute("**/entries?*")
    page.click("text=Try again >> nth=0")
    page.wait_for_selector(".entry.output >> text=answer 0")


def test_entries_come_by_themselves_after_the_server_was_away(reader: Callable[..., Reader], server: Server) -> None:
    record_talk(server, "away", 4)
    each = reader()
    each.page.route("**/entries?*", lambda route: route.abort())
    page = each.open("s/away", ".reading .trouble")
    page.unroute("**/entries?*")
    page.wait_for_selector(".entry.output >> text=answer 0", timeout=SECONDS * 1000)


def test_a_session_of_several_days_names_each_day(reader: Callable[..., Reader], server: Server) -> None:
    clock = Clock()

    async def record() -> None:
        session = await start_session(server.store, "days", clock=clock)
        for number in range(3):
            await session.append_model_input(f"question {number}")
            clock.now += timedelta(days=2)

    server.do(record())
    page = reader().open("s/days")
    days = page.locator(".dayband").all_inner_texts()
    assert days == ["Saturday, 14 November 2026", "Monday, 16 November 2026", "Wednesday, 18 November 2026"]
    record_talk(server, "one-day", 2)
    page = reader().open("s/one-day")
    assert page.locator(".dayband").count() == 0


def test_code_within_bold_words_is_code(reader: Callable[..., Reader], server: Server) -> None:
    async def record() -> None:
        session = await start_session(server.store, "bold")
        await session.append_model_input("**run `make` now** and *see `it`*")

    server.do(record())
    page = reader().open("s/bold")
    assert page.inner_text(".prose strong code") == "make"
    assert page.inner_text(".prose em code") == "it"
    assert "`" not in page.inner_text(".prose")


def test_all_characters_of_a_call_and_of_a_text_can_be_read(reader: Callable[..., Reader], server: Server) -> None:
    command = f"echo {'a' * 1500} ; rm -rf /the-end"
    edit = {"folder": "/hidden", "threshold": 9007199254740993, "old_string": "a", "new_string": "b"}
    calls = tuple(
        ToolCall(call_id, name, given, json.dumps(given))
        for call_id, name, given in (("c1", "Bash", {"command": command}), ("c2", "Edit", edit))
    )

    async def record() -> None:
        session = await start_session(server.store, "long-command")
        await session.append_model_input("\U0001f600" * 1200 + " " + "word " * 1080 + "last words")
        await session.append_model_output(Message(Role.ASSISTANT, calls, meta=MessageMeta(invocation=OPUS)))

    server.do(record())
    page = reader().open("s/long-command")
    page.click(".entry.input .more")
    page.wait_for_selector(".entry.input >> text=last words")
    page = reader().open("s/long-command/1")
    page.click(".toolcard >> nth=0 >> text=more characters")
    page.wait_for_selector("text=rm -rf /the-end")
    edited = page.locator(".toolcard >> nth=1")
    edited.locator('text="threshold": 9007199254740993').wait_for()
    assert "/hidden" in edited.inner_text()


def test_the_json_of_an_entry_is_exact_and_its_tabs_are_walked_by_arrows(
    reader: Callable[..., Reader], server: Server
) -> None:
    async def record() -> None:
        session = await start_session(server.store, "exact")
        call = ToolCall("c1", "pay", {"order": 9007199254740993})
        await session.append_model_input("pay")
        await session.append_model_output(Message(Role.ASSISTANT, (call,), meta=MessageMeta(invocation=OPUS)))

    server.do(record())
    page = reader().open("s/exact/1")
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('[role=tabpanel] >> text="order": 9007199254740993')
    assert page.evaluate("document.activeElement.innerText") == "JSON"
    page.keyboard.press("End")
    page.wait_for_selector("[role=tab][aria-selected=true] >> text=As sent")
    assert page.locator("[role=tablist] [aria-label=Close]").count() == 0


def test_all_before_the_damage_is_shown_where_the_newest_entry_cannot_be_read(
    reader: Callable[..., Reader], server: Server, tmp_path: Path
) -> None:
    with running_loop() as loop:
        other = Server(loop, tmp_path / "damaged.db")
        record_talk(other, "torn", 3)
        with closing(sqlite3.connect(tmp_path / "damaged.db", isolation_level=None)) as database:
            database.execute("DROP TRIGGER entries_stay_as_they_are")
            newest = "SELECT position FROM heads JOIN sessions ON key = session WHERE session_id = 'torn'"
            database.execute(f"UPDATE entries SET entry = x'00' WHERE position = ({newest})")
        page = reader(server=other).open("s/torn")
        page.wait_for_selector(".entry >> text=question 2")
        page.wait_for_selector(".trouble >> text=The record is broken at #5")
        assert page.locator("text=Fork from here").count() == 0
        other.stop()
        other.do(other.store.close())


def test_what_is_found_of_one_session_is_not_told_of_another(reader: Callable[..., Reader], server: Server) -> None:
    record_talk(server, "first", 9)
    record_talk(server, "second", 2)
    page = reader().open("s/first")
    waiting: list[Any] = []
    page.route("**/first/verify*", lambda route: waiting.append(route))  # a built-in function is refused
    page.click("text=Check the record")
    page.evaluate("history.pushState(null, '', '/s/second'); dispatchEvent(new PopStateEvent('popstate'))")
    page.wait_for_selector("h1 >> text=second")
    with page.expect_response("**/first/verify*"):
        waiting[0].continue_()
    page.wait_for_selector(".foot >> text=4 entries, 2 calls")
    assert page.inner_text(".bar .chip") == "Check the record"


def test_an_id_that_is_taken_is_told_of_in_the_words_of_the_page(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/6")
    page.keyboard.press("f")
    page.fill("dialog[open] [placeholder='a random id']", "branch")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] >> text=The id “branch” is taken. Choose another one.")
