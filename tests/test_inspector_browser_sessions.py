"""The list of sessions in a browser."""

from collections.abc import Callable

import pytest

from dragoman import Agent, start_session
from dragoman.testing import ScriptedModel

from .inspector_browser import SECONDS, Reader, Server, asking, axe_source, chromium, readers, served, violations  # noqa: F401  # the fixtures

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
