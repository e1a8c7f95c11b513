"""The context of calls and the cost of a session, in a browser."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import start_session
from dragoman.message import Message, MessageMeta, Role, Text
from dragoman.usage import TokenUsage

from .inspector_browser import Reader, Server, axe_source, chromium, readers, record_talk, served  # noqa: F401  # the fixtures
from .inspector_cases import OPUS

pytestmark = pytest.mark.slow


def test_the_parts_of_one_call_never_stand_under_the_name_of_another(
    reader: Callable[..., Reader], server: Server
) -> None:
    record_talk(server, "stepped", 3)
    page = reader().open("s/stepped/3/context", ".sentbar .piece")
    waiting: list[Any] = []
    page.route("**/calls/5?*", lambda route: waiting.append(route))  # a built-in function is refused
    page.keyboard.press("]")
    page.wait_for_selector("h2 >> text=Call 3 of 3")
    assert page.locator(".sentbar .piece, .parts tbody tr").count() == 0
    page.wait_for_function("() => true")
    waiting[0].continue_()
    page.wait_for_selector(".parts tbody >> text=question 2")


def test_the_highest_call_before_is_told_in_the_same_measure(reader: Callable[..., Reader], server: Server) -> None:
    async def record() -> None:
        session = await start_session(server.store, "measured")
        for tokens in (50_000, 42_916, 60_000):
            await session.append_model_input("a question")
            meta = MessageMeta(invocation=OPUS, usage=TokenUsage(input_tokens=tokens, output_tokens=5))
            await session.append_model_output(Message(Role.ASSISTANT, (Text("an answer"),), meta=meta))

    server.do(record())
    page = reader().open("s/measured/3/context", ".sentbar .piece")
    figures = page.inner_text(".thecall")
    assert "42,916" in figures
    assert "highest before 50,000" in figures
    page.keyboard.press("]")
    page.wait_for_selector("strong >> text=60,000")
    assert "highest" not in page.inner_text(".thecall")


def test_what_was_sent_has_room_on_a_narrow_screen(reader: Callable[..., Reader]) -> None:
    page = reader(width=1000).open("s/talk/200/context")
    page.wait_for_selector(".parts tbody tr:nth-child(10)")
    assert page.evaluate("document.querySelector('.parts .rows').clientHeight") > 300


@pytest.mark.parametrize("view", ["context", "cost"])
def test_the_plots_are_a_table_by_a_key(reader: Callable[..., Reader], view: str) -> None:
    page = reader().open(f"s/talk/{view}")
    page.keyboard.press("T")
    page.wait_for_selector(".tablebox tbody tr")
    page.keyboard.press("T")
    page.wait_for_selector(".tablebox", state="detached")


def test_the_first_call_of_a_model_is_compared_with_none(reader: Callable[..., Reader], server: Server) -> None:
    record_talk(server, "first-call", 2)
    page = reader().open("s/first-call/1/context")
    page.wait_for_selector(".thecall >> text=Call 1 of 2")
    assert page.locator("text=Compare with").count() == 0
    page.click("[aria-label='Next call']")
    page.wait_for_selector("text=Compare with #1")
