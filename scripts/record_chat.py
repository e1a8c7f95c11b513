"""Records a chat with the embedded model as a picture that plays itself: docs/images/chat.svg.

`python scripts/record_chat.py` types the lines of `SCENE` to `dragoman chat` in a real pseudo-terminal and draws what
an emulator shows of it. What the model says is its own, and comes in the time that it took; the keys are pressed at an
even pace, and nothing stands still for longer than `LONGEST_WAIT`. Needs the extras `dev` and `local`, and fetches the
weights if they are not here. Where pictures do not move, the last frame is seen.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from pyte.screens import Char

from dragoman.cli.output import display_width
from dragoman.local.weights import cache_folder, pull_weights

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.chat_terminal import CTRL_D, Terminal, clean_environment  # noqa: E402  # found by the path that was just added

PICTURE = ROOT / "docs" / "images" / "chat.svg"
TITLE = "dragoman chat"
COLUMNS, ROWS = 88, 26
MODEL = "local:smollm2"
SCENE = (
    "What is the capital of France?",
    f"/model {MODEL}@anthropic",
    "And of Italy?",
    f"/model {MODEL}@responses",
    "Why is the sky blue?",
    "/context",
    "/cost",
)

# Seconds of the picture.
KEY = 0.05
KEYS_PER_FRAME = 3
SHORTEST_FRAME = 0.08
LONGEST_WAIT = 1.0
READING = 1.2  # after a reply
ENDING = 8.0

# Pixels.
WIDTH, HEIGHT, FONT = 8.4, 18, 14
MARGIN, BAR = 14, 34

INK, PAPER, FRAME = "#d5d8e0", "#16181d", "#2a2e37"
COLORS = {
    "black": "#3a3f4b",
    "red": "#e0737d",
    "green": "#8fc07a",
    "brown": "#d9b26f",
    "blue": "#6fa8e8",
    "magenta": "#bd86d9",
    "cyan": "#5fb8c2",
    "white": "#d5d8e0",
}
STYLES = {"bold": "b", "italics": "i", "underscore": "u", "blink": "d"}


class Run(NamedTuple):
    """A piece of a line that looks the same: where it begins, what it says, how wide and how it looks."""

    column: int
    text: str
    width: int
    ink: str
    paper: str
    style: str


Line = tuple[Run, ...]
Frame = tuple[Line, ...]


class Camera(Terminal):
    """A terminal that keeps what was seen, and for how long."""

    def __init__(self, *arguments: str, env: dict[str, str], cwd: Path) -> None:
        super().__init__(*arguments, env=env, cwd=cwd, columns=COLUMNS, rows=ROWS)
        self.film: list[tuple[Frame, float]] = []
        self._since = time.monotonic()

    def take(self, data: bytes) -> None:
        """Draw what the program has sent; what was seen until now goes onto the film."""
        self.shoot(min(time.monotonic() - self._since, LONGEST_WAIT))
        super().take(_dim_as_blink(data))

    def shoot(self, seconds: float) -> None:
        """Put what is seen onto the film, for so long."""
        frame = tuple(_line(self.screen.buffer[row]) for row in range(ROWS))
        self.film.append((frame, seconds))
        self._since = time.monotonic()

    def rest(self, seconds: float) -> None:
        """Wait for the prompt and the status line below it, and look at them for so long."""
        self.ready()
        self.until(lambda: self.display[-1].startswith(MODEL), "the status line")
        self.shoot(seconds)

    def press(self, line: str) -> None:
        """Type a line at the prompt, at an even pace, and send it."""
        self.rest(READING)
        for end in range(1, len(line) + 1):
            length = len(self.film)
            self.send(line[end - 1])
            self.until(lambda end=end: self.prompt == line[:end].rstrip(), "the key")  # type: ignore[misc]  # mypy does not see the default
            del self.film[length:]
            if end % KEYS_PER_FRAME == 0 or end == len(line):
                self.shoot(KEY * KEYS_PER_FRAME)
        self.enter()


def main() -> None:
    """Record, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path, default=PICTURE, help="where the picture is written")
    chosen = parser.parse_args()
    pull_weights(MODEL.partition(":")[2])
    with tempfile.TemporaryDirectory() as folder:
        film = record(Path(folder))
    picture = draw(condense(film))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(picture, encoding="utf-8")
    print(f"{chosen.output}: {len(picture) / 1000:.0f} kB")


def record(folder: Path) -> list[tuple[Frame, float]]:
    """Return what was seen while the lines of the scene were said, each frame with its seconds."""
    camera = Camera("chat", env=clean_environment(folder, DRAGOMAN_CACHE=str(cache_folder())), cwd=folder)
    try:
        camera.ready()
        camera.film.clear()  # the server has started
        for line in SCENE:
            camera.press(line)
        camera.rest(ENDING)
        camera.send(CTRL_D)
        film = list(camera.film)
        if camera.end() != 0 or "✗" in camera.text:
            raise SystemExit(f"the chat failed:\n{camera.text}")
    finally:
        camera.close()
    return film


def condense(film: Sequence[tuple[Frame, float]]) -> list[tuple[Frame, float]]:
    """Return the film without frames that are the same as the one before, or too short to be seen."""
    kept: list[tuple[Frame, float]] = []
    owed = 0.0
    for frame, seconds in film:
        if kept and kept[-1][0] == frame:
            kept[-1] = (frame, kept[-1][1] + seconds)
        elif seconds + owed >= SHORTEST_FRAME:
            kept.append((frame, seconds + owed))
            owed = 0.0
        else:
            owed += seconds
    return kept


# ---------------------------------------------------------------- what is seen


def _dim_as_blink(data: bytes) -> bytes:
    """The emulator knows no faint text, and we never blink: the one is put for the other."""

    def translated(found: re.Match[bytes]) -> bytes:
        codes, words = found[1].split(b";"), []
        while codes:
            code = codes.pop(0)
            if code in (b"38", b"48"):  # a colour: what follows are its numbers
                count = 2 if codes[:1] == [b"5"] else 4
                words += [code, *codes[:count]]
                del codes[:count]
            else:
                words += {b"2": [b"5"], b"22": [b"22", b"25"]}.get(code, [code])
        return b"\x1b[" + b";".join(words) + b"m"

    return re.sub(rb"\x1b\[([\d;]*)m", translated, data)


def _line(cells: Mapping[int, Char]) -> Line:
    """A line of the screen, cut where its looks change; spaces at the end are left out."""
    runs: list[Run] = []
    for column in range(COLUMNS):
        run = _run(column, cells[column])
        before = runs[-1] if runs else None
        is_second_half = not run.text  # of a wide character, which is a piece of its own: fonts differ in its width
        is_narrow = display_width(run.text) == 1 and before is not None and len(before.text) == before.width
        is_joined = is_narrow and before is not None and before[3:] == run[3:]
        if before is not None and (is_second_half or is_joined):
            runs[-1] = before._replace(text=before.text + run.text, width=before.width + 1)
        else:
            runs.append(run)
    return tuple(run for run in runs if run.text.strip() or run.paper != PAPER)


def _run(column: int, cell: Char) -> Run:
    ink, paper = _color(cell.fg, INK), _color(cell.bg, PAPER)
    if cell.reverse:
        ink, paper = paper, ink
    style = "".join(letter for name, letter in STYLES.items() if getattr(cell, name))
    return Run(column, cell.data, 1, ink, paper, style)


def _color(name: str, default: str) -> str:
    plain = name.removeprefix("bright")
    return default if name == "default" else COLORS.get(plain, f"#{name}")


# ---------------------------------------------------------------- the picture


def draw(film: Sequence[tuple[Frame, float]]) -> str:
    """Return the film as SVG: its frames stand one below the other behind a window, and move up step by step."""
    tall = ROWS * HEIGHT
    numbers: dict[Line, int] = {}
    strip = []
    for place, (frame, _) in enumerate(film):
        uses = []
        for row, line in enumerate(frame):
            if line:
                number = numbers.setdefault(line, len(numbers))
                uses.append(f'<use href="#{number:x}" y="{place * tall + row * HEIGHT}"/>')
        strip.append("".join(uses))
    lines = "".join(f'<g id="{number:x}">{"".join(_drawn(line))}</g>' for line, number in numbers.items())
    lines_of_frames = "\n".join(strip)
    wide = round(COLUMNS * WIDTH)
    width, height = wide + 2 * MARGIN, tall + BAR + MARGIN
    buttons = "".join(f'<circle cx="{20 + 18 * place}" cy="17" r="5.5"/>' for place in range(3))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" {size}>
<title>{TITLE}: a conversation with a model on this machine</title>
<style>
text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:{INK}}}
.b{{font-weight:700}}.i{{font-style:italic}}.u{{text-decoration:underline}}.d{{opacity:.6}}
{_keyframes(film, tall)}
</style>
<defs>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="{PAPER}" stroke="{FRAME}"/>
<g fill="{FRAME}">{buttons}</g>
<text x="{width / 2:.0f}" y="22" text-anchor="middle" class="d">{TITLE}</text>
<svg x="{MARGIN}" y="{BAR}" width="{wide}" height="{tall}">
<g id="film" transform="translate(0 {-(len(film) - 1) * tall})">
{lines_of_frames}
</g>
</svg>
</svg>
"""


def _drawn(line: Line) -> Iterator[str]:
    for run in line:
        x, width = run.column * WIDTH, run.width * WIDTH
        if run.paper != PAPER:
            yield f'<rect x="{x:.1f}" width="{width:.1f}" height="{HEIGHT}" fill="{run.paper}"/>'
        text = run.text.strip()
        if not text:
            continue
        before = len(run.text) - len(run.text.lstrip())
        after = len(run.text) - len(run.text.rstrip())
        looks = f' class="{" ".join(run.style)}"' if run.style else ""
        looks += f' style="fill:{run.ink}"' if run.ink != INK else ""
        place = f'x="{x + before * WIDTH:.1f}" y="{HEIGHT - 4}" textLength="{width - (before + after) * WIDTH:.1f}"'
        yield f"<text {place}{looks}>{escape(text)}</text>"


def _keyframes(film: Sequence[tuple[Frame, float]], tall: int) -> str:
    """When which frame is seen. Who wants no motion sees the last, where the film is put."""
    whole = sum(seconds for _, seconds in film)
    steps, passed = [], 0.0
    for place, (_, seconds) in enumerate(film):
        steps.append(f"{100 * passed / whole:.2f}%{{transform:translateY({-place * tall}px)}}")
        passed += seconds
    moving = f"@media not (prefers-reduced-motion){{#film{{animation:film {whole:.1f}s step-end infinite}}}}"
    return f"@keyframes film{{{''.join(steps)}}}\n{moving}"


if __name__ == "__main__":
    main()
