"""A record that attacks its reader, in a browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.web.inspector import session_html

from .inspector_browser import Reader, Server, axe_source, chromium, readers, served  # noqa: F401  # the fixtures
from .inspector_cases import hostile

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def hostile_record(server: Server) -> None:
    """100,000 entries, one of 10 MB."""
    server.do(hostile(server.store, megabytes=10, entries=100_000))


@pytest.mark.parametrize("view", ["", "/context", "/diff", "/cost", "/live"])
def test_a_hostile_record_runs_nothing_and_asks_nothing_of_others(reader: Callable[..., Reader], view: str) -> None:
    each = reader()
    page = each.open(f"s/{'hostile %3Cscript%3E'}{view}")
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
