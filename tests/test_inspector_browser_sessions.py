"""The list of sessions in a browser."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import Agent, start_session
from dragoman.testing import ScriptedModel

from .inspector_browser import (  # noqa: F401  # the fixtures
    SECONDS,
    Reader,
    Server,
    asking,
    axe_source,
    chromium,
    readers,
    record_talk,
    served,
    violations,
)
from .inspector_stage import running_loop

pytestmark = pytest.mark.slow


def test_sessions_are_opened_by_keys(reader: Callable[..., Reader]) -> None:
    page = reader().open("")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline")


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


def test_a_session_is_begun_in_the_page(reader: Callable[..., Reader], server: Server, axe: str) -> None:
    server.script = [ScriptedModel("A new answer.")]
    page = reader().open("")
    page.click("text=New session")
    assert violations(page, axe) == []
    page.fill("dialog textarea", "Begin here.")
    page.click("dialog >> text=Begin")
    page.wait_for_selector("text=A new answer.")
    assert page.url.endswith("/live")


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


def test_a_connection_that_is_lost_says_nothing_about_a_record(reader: Callable[..., Reader]) -> None:
    page = reader().open("")
    page.route("**/verify*", lambda route: route.abort())
    page.click("text=Verify all")
    page.wait_for_selector(".toast >> text=0 sessions checked; not all: the server does not answer")
    assert page.locator("text=broken at").count() == 0
    assert page.locator("td >> text=the server does not answer").count() == 1  # the others were not tried
    page.unroute("**/verify*")
    page.click("text=Verify all")
    page.wait_for_selector("tr:has-text('talk') >> text=✓ sound")


def test_keys_act_on_the_row_that_is_marked_whatever_rows_go(reader: Callable[..., Reader], server: Server) -> None:
    for name in ("row-a", "row-b", "row-c"):
        record_talk(server, name, 1)
    page = reader().open("")
    page.fill("input[type=search]", "row-")
    page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 3")
    page.keyboard.press("Escape")  # out of the field
    for _ in range(2):
        page.keyboard.press("j")
    last = page.inner_text("tr.chosen a.strong")
    page.keyboard.press("Delete")
    page.keyboard.type(last)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 2")
    marked = page.inner_text("tr.chosen a.strong")
    page.keyboard.press("Delete")
    page.wait_for_selector(f"dialog[open] code >> text={marked}")


def test_keys_act_while_a_box_is_ticked(reader: Callable[..., Reader]) -> None:
    page = reader().open("")
    page.click("text=Compare two")
    page.check('[aria-label="Compare talk"]')
    before = page.inner_text("tr.chosen a.strong")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    assert page.inner_text("tr.chosen a.strong") != before


def test_the_filters_choose_among_all_sessions_and_further_ones_are_shown(
    reader: Callable[..., Reader], tmp_path: Path
) -> None:
    with running_loop() as loop:
        many = Server(loop, tmp_path / "many.db")

        async def begin() -> None:
            for number in range(510):
                await start_session(many.store, f"many-{number:03}")

        many.do(begin())
        page = reader(server=many).open("")
        page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 500")
        page.select_option("[aria-label=Soundness]", "unchecked")
        page.wait_for_selector("text=512 of 512")
        page.select_option("[aria-label=Soundness]", "")
        page.reload()
        page.click("text=12 more of 12 older sessions")
        page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 512")
        many.stop()
        many.do(many.store.close())


def test_the_names_of_sessions_can_be_read_on_a_telephone(reader: Callable[..., Reader]) -> None:
    page = reader(width=400).open("")
    wide = page.evaluate("document.querySelector('table.list td').getBoundingClientRect().width")
    assert wide > 150
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_back_from_a_session_brings_the_search_and_the_chosen_row_again(
    reader: Callable[..., Reader], server: Server
) -> None:
    for name in ("back-a", "back-b", "back-c"):
        record_talk(server, name, 1)
    page = reader().open("?q=back-")
    page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 3")
    page.select_option("[aria-label=Soundness]", "unchecked")
    page.keyboard.press("Escape")  # out of the field
    page.keyboard.press("j")
    chosen = page.inner_text("tr.chosen a.strong")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline")
    page.go_back()
    page.wait_for_selector("table.list tbody tr")
    page.wait_for_function("() => document.querySelectorAll('table.list tbody tr').length === 3")
    assert page.input_value("input[type=search]") == "back-"
    assert page.input_value("[aria-label=Soundness]") == "unchecked"
    assert page.inner_text("tr.chosen a.strong") == chosen
