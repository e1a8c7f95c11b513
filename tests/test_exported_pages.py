"""Sessions exported as one page: nothing of them is lost, a break is named, and a browser opens whatever was said."""

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import SQLiteStore, start_session
from dragoman.cli import main
from dragoman.history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    QuestionAskedEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from dragoman.message import FileRef, Message, MessageMeta, ProviderItem, Role, Text, Thinking, ToolCall
from dragoman.web.inspector import htmlpage, session_html

from .inspector_cases import OPUS, break_entry
from .inspector_stage import need_browser

META = MessageMeta(invocation=OPUS)
CALL = ToolCall("c1", "pay", {"euros": 5})
OTHER = ToolCall("c2", "pay", {"euros": 6})
PAGE = Path(htmlpage.__file__).parent / "page"


def page_of(*entries: HistoryEntry) -> str:
    """The page of a session with these entries."""
    return "".join(session_html("talk", [replace(entry, serial=serial) for serial, entry in enumerate(entries)]))


def answer(*calls: ToolCall) -> ModelOutputEntry:
    return ModelOutputEntry(Message(Role.ASSISTANT, calls, meta=META))


def test_a_result_that_arrived_stands_with_its_call_though_the_run_broke_off() -> None:
    result = HistoryToolCallResult.of_text(CALL, "the result that arrived")
    started = (ToolStartedEntry("c1", "pay"), ToolFinishedEntry(result), ToolStartedEntry("c2", "pay"))
    page = page_of(ModelInputEntry((Text("pay"),)), answer(CALL, OTHER), *started)
    assert page.count("the result that arrived") == 1
    assert page.count("Started: pay") == 1  # the call that has no result


def test_results_of_calls_that_are_not_in_the_record_are_kept() -> None:
    results = tuple(HistoryToolCallResult.of_text(call, f"result of {call.tool_call_id}") for call in (CALL, OTHER))
    page = page_of(ModelInputEntry((Text("pay"),)), answer(CALL), ToolResultsEntry(results))
    assert (page.count("result of c1"), page.count("result of c2")) == (1, 1)


def test_parts_and_entries_of_every_kind_are_named() -> None:
    given = ModelInputEntry((FileRef(path="reports/june.pdf"), Text("x")))
    item = ProviderItem("web_search_call", {"id": "ws_1"}, text="searched for ducks")
    said = ModelOutputEntry(Message(Role.ASSISTANT, (item, Text("y")), meta=META))
    page = page_of(given, said, QuestionAskedEntry("q1", "c1", "Which account?"))
    for words in ("reports/june.pdf", "web_search_call", "searched for ducks", "Which account?"):
        assert words in page


def test_an_entry_of_a_later_version_is_written_with_its_json() -> None:
    page = page_of(UnknownEntry("later_kind", {"words": "of a later version"}))
    assert "of a later version" in page


def test_characters_are_written_out_as_in_the_inspector() -> None:
    script = (PAGE / "safetext.js").read_text("utf-8")
    (signs,) = re.findall(r"/\[(.*?)\]/gu", script, re.DOTALL)
    unsafe = re.compile(f"[{re.sub(r'u{([0-9a-f]+)}', lambda found: f'U{found[1]:0>8}', signs)}]")
    differing = [
        code for code in range(0x110000) if bool(unsafe.match(chr(code))) != (htmlpage._escaped(chr(code))[:1] == "\\")
    ]
    assert differing == [ord("\\")]
    assert htmlpage._escaped("\x1b\u202e\U000e0001") == r"\x1b\u202e\ue0001"


def test_a_broken_record_is_written_up_to_its_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, page = tmp_path / "sessions.db", tmp_path / "torn.html"

    async def write() -> None:
        async with SQLiteStore(store) as opened:
            session = await start_session(opened, "torn")
            for number in range(20):
                await session.append_model_input(f"say {number} of it")

    asyncio.run(write())
    break_entry(store, 12)
    assert main(["sessions", "export", "torn", "--html", "-o", str(page), "--store", str(store)]) == 1
    text = page.read_text("utf-8")
    assert ("say 11 of it" in text, "say 13 of it" in text, "Broken" in text) == (True, False, True)
    assert "12 entries before it were written" in capsys.readouterr().err


# ---------------------------------------------------------------- in a browser


@pytest.mark.slow
def test_a_browser_opens_texts_of_millions_of_characters_in_one_line(tmp_path: Path) -> None:
    executable = need_browser()
    from playwright.sync_api import sync_playwright

    line = "\u0645\u0631" * 5_000_000  # letters that join are shaped as one run
    call = ToolCall("c1", "write", {"text": line})
    changed = {"text": line, "note": "changed"}
    path = tmp_path / "long.html"
    path.write_text(
        page_of(
            ModelInputEntry((Text(line),)),
            ModelOutputEntry(Message(Role.ASSISTANT, (Thinking(line), Text(line), call), meta=META)),
            ApprovalAskedEntry("c1", "write", line),
            ApprovalAnsweredEntry("c1", True, line, changed),
            ToolStartedEntry("c1", "write"),
            ToolFinishedEntry(HistoryToolCallResult.of_text(call, line)),
        ),
        "utf-8",
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(path.as_uri())  # fails after thirty seconds; one block took more than a hundred
        assert page.evaluate("document.querySelectorAll('section').length") == 4
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        assert page.evaluate("document.body.scrollHeight > innerHeight")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        browser.close()
