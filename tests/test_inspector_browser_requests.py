"""Two requests beside each other, in a browser."""

from collections.abc import Callable

import pytest

from .inspector_browser import (  # noqa: F401  # the fixtures
    Reader,
    Server,
    asking,
    axe_source,
    chromium,
    readers,
    record_talk,
    served,
    server_of,
    violations,
)

pytestmark = pytest.mark.slow


STILL = (
    "() => document.documentElement.scrollTop === 0 && document.querySelector('.bar').getBoundingClientRect().top === 0"
)


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


def test_a_model_can_be_chosen_where_a_side_cannot_be_written(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "unwritten")
    page = reader().open("s/unwritten/diff?a=@nobody:x&b=@openai:gpt-5", ".trouble")
    page.fill('[aria-label="Model on the left"]', "anthropic:claude-opus-4-5")
    page.keyboard.press("Enter")
    page.wait_for_selector(".diffrow")


def test_the_newest_rows_of_a_long_session_are_reached(reader: Callable[..., Reader], server: Server) -> None:
    record_talk(server, "many-rows", 500)
    page = reader().open("s/many-rows/diff")
    page.click(".units button >> nth=-1")
    page.wait_for_selector(".diffrow >> text=answer 499")
    page.wait_for_selector(".units >> text=#999")
    assert page.locator(".diffrow").count() < 100  # only those on screen are in the page
