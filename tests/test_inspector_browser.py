"""The inspector in a real browser: every view in both themes and two widths, the token, and the page as code."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .inspector_browser import SECONDS, VIEWS, Reader, axe_source, chromium, readers, served, violations  # noqa: F401  # the fixtures

pytestmark = pytest.mark.slow


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


CONTROLS = {
    "s/talk/live": ("text=Fork from #", "dt:text-is('Owner')", "text=Also following", "button:text-is('Pause')"),
    "s/talk/diff": ("button:text-is('Providers')", "button:text-is('Turns')", "text=only changes"),
    "s/talk/diff?a=2&b=4": ("[aria-label='Call before']", "[aria-label='Next call']"),
}


@pytest.mark.parametrize("width", [1440, 1100, 800])
@pytest.mark.parametrize("view", CONTROLS)
def test_a_narrow_window_hides_no_control(reader: Callable[..., Reader], view: str, width: int) -> None:
    page = reader(width=width).open(view, "button:visible >> text=Fork from" if "live" in view else ".sides")
    page.wait_for_selector("[data-follow=following], .sides")
    for each in CONTROLS[view]:
        control = page.locator(f"{each} >> visible=true").first
        control.scroll_into_view_if_needed()
        box = control.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900


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


def test_a_server_that_was_restarted_is_told_of(reader: Callable[..., Reader]) -> None:
    page = reader().open("s/talk/live")
    page.wait_for_selector("[data-follow=following]")
    refusal = {"error": {"code": "no_token", "message": "no"}}
    page.route("**/api/**", lambda route: route.fulfill(status=401, json=refusal))
    page.wait_for_selector(".notice >> text=Open the newest address that it printed", timeout=SECONDS * 1000)


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
