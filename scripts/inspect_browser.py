"""Looks at the inspector in a browser: draws the pictures of docs/inspect.md, or measures a long session.

`python -m scripts.inspect_browser pictures` records conversations about this project's own files and writes
docs/images/inspect-*.png. `python -m scripts.inspect_browser measure` prints how long a session of 5,000 entries and
500,000 tokens takes; it needs the recorded conversations. Both need Chromium and Playwright.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tests.inspector_cases import recorded, replay
from tests.inspector_stage import TOKEN, Stage, find_chromium, staged
from tests.source_talks import talk_about_document, talk_about_packages

from dragoman.store import SQLiteStore

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
MODELS = ("anthropic:claude-opus-4-5", "openai:gpt-5.1")
TALK = "read-the-store"
# Sessions, the packages that they are about, when they began, and the models that take turns.
TALKS = (
    (
        TALK,
        ("store", "history", "stream", "context", "models", "transport", "tools", "agent"),
        datetime(2026, 11, 14, 9, 30, tzinfo=UTC),
        MODELS,
    ),
    ("two-directions", ("wire", "interop", "stream"), datetime(2026, 11, 13, 8, tzinfo=UTC), MODELS[:1]),
    ("who-runs-it", ("durable", "agent", "tools", "local"), datetime(2026, 11, 12, 8, tzinfo=UTC), MODELS[::-1]),
)
PAGE_MODELS = ("bedrock:amazon.nova-pro-v1:0",)
PAGES = ("sessions.md", "testing.md", "local.md", "observability.md")
# The name of each picture, the view, its theme and width, and keys to press first.
PICTURES: tuple[tuple[str, str, Literal["light", "dark"], int, tuple[str, ...]], ...] = (
    ("sessions", "", "light", 1440, ()),
    ("timeline", f"s/{TALK}/283", "light", 1440, ()),
    ("context", f"s/{TALK}/110/context", "light", 1440, ("m",)),
    ("requests", f"s/{TALK}/diff", "light", 1440, ()),
    ("cost", f"s/{TALK}/cost", "dark", 1440, ("m", "m", "m")),
)
# Frames of one scroll through everything, and what the page holds at its end.
SCROLL = """async () => {
  const box = document.querySelector(".reading");
  const frames = [];
  let last = performance.now();
  for (let count = 0; count < 240; count += 1) {
    box.dispatchEvent(new WheelEvent("wheel"));
    box.scrollTop += 150;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""


async def draw(folder: Path) -> None:
    """Write the pictures."""
    async with SQLiteStore(folder / "sessions.db") as store:
        for session_id, packages, begins, models in TALKS:
            talk = talk_about_packages(packages, begins=begins)
            await replay(store, session_id, talk, models=models, begins=begins, decorated=session_id == TALK)
        for number, page in enumerate(PAGES):
            begins = datetime(2026, 11, 10, 8 + number, tzinfo=UTC)
            talk = talk_about_document(page, begins=begins)
            await replay(
                store, f"page-{Path(page).stem}", talk, models=("bedrock:amazon.nova-pro-v1:0",), begins=begins
            )
        await store.fork(TALK, 100, new_session_id=f"{TALK}-2")
        async with staged(store, place="sessions.db") as stage:
            await _photograph(stage)


async def _photograph(stage: Stage) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for name, view, theme, width, keys in PICTURES:
            context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            page = await context.new_page()
            mark = "&" if "?" in view else "?"
            await page.goto(f"{stage.address}/{view}{mark}token={TOKEN}")
            await page.wait_for_load_state("networkidle")
            for key in keys:
                await page.keyboard.press(key)
                await page.wait_for_load_state("networkidle")
            await page.wait_for_timeout(1500)
            await page.screenshot(path=IMAGES / f"inspect-{name}.png")
            await context.close()
        await browser.close()


async def measure(folder: Path) -> None:
    """Print the figures of a long session."""
    async with SQLiteStore(folder / "sessions.db") as store:
        long = {"messages": [message for each in _long() for message in each["messages"]]}
        session = await replay(store, "long", _renamed(long), models=MODELS, budget=60_000, most=5_000)
        async with staged(store) as stage:
            outline = await stage.get("/api/s/long/outline")
            begun = time.perf_counter()
            for first in range(0, 3_000, 60):
                await stage.get("/api/s/long/entries", **{"from": first, "count": 60})
            ranged = (time.perf_counter() - begun) / 50
            begun = time.perf_counter()
            await stage.get("/api/s/long/search", q="return")
            searched = time.perf_counter() - begun
            figures = {
                "entries": len(session.entries),
                "tokens": sum(outline["tokens"]),
                "msPerRange": round(1000 * ranged, 1),
                "msPerSearch": round(1000 * searched, 1),
                **await _frames(stage),
            }
            print(json.dumps(figures, indent=2))


def _long() -> list[dict[str, Any]]:
    """Conversations that together have about 130 tokens an entry."""

    def fits(talk: dict[str, Any]) -> bool:
        return len(talk["messages"]) > 200 and talk["stats"]["approx_tokens"] < 320 * len(talk["messages"])

    return [each for each in recorded("claude_code") if fits(each)][:12]


def _renamed(conversation: dict[str, Any]) -> dict[str, Any]:
    """The conversation with ids of calls that are not repeated."""
    names: dict[str, str] = {}
    for number, message in enumerate(conversation["messages"]):
        for part in message["parts"]:
            if part["kind"] == "tool_call":
                names[part["id"]] = part["id"] = f"{part['id']}-{number}"
            elif part["kind"] == "tool_result":
                part["id"] = names.get(part["id"], part["id"])
    return conversation


async def _frames(stage: Stage) -> dict[str, float]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        flags = ["--no-sandbox", "--enable-precise-memory-info"]
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=flags)
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(f"{stage.address}/s/long?token={TOKEN}")
        await page.wait_for_selector(".reading .entry:not(.pending)")
        first = await page.evaluate("performance.now() - performance.getEntriesByType('navigation')[0].responseStart")
        await page.wait_for_load_state("networkidle")
        frames: Sequence[float] = sorted(await page.evaluate(SCROLL))
        heap = await page.evaluate("performance.memory.usedJSHeapSize")
        await browser.close()
    return {
        "msToFirstView": round(first),
        "msMedianFrame": round(frames[len(frames) // 2], 1),
        "ms99thFrame": round(frames[int(len(frames) * 0.99)], 1),
        "megabytesOfHeap": round(heap / 1e6, 1),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run({"pictures": draw, "measure": measure}[sys.argv[1]](Path(made)))
