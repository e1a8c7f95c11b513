"""Draws docs/images/context-cost.svg and context-reader.svg from the tables of docs/context.md.

`python scripts/plot_context.py` reads the figures from the document, so that pictures and tables cannot disagree. The
SVG is written by hand: no library is needed.
"""

import cmath
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, IMAGES = ROOT / "docs" / "context.md", ROOT / "docs" / "images"
OVER_BUDGET = 0.05  # share of calls above the budget from which a policy is drawn hollow

WIDTH, HEIGHT, GAP, EDGE = 390, 290, 78, 62  # pixels: a panel's inside, the space between panels, the border
LINE, RADIUS = 22, 4.5
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 } .faint { fill: #57606a }
.page { fill: #ffffff } .grid { stroke: #d8dee4 } .frame { stroke: #8c959f; fill: none }
circle { stroke: #ffffff; fill: #4a6fa5 } polyline { stroke: #4a6fa5; fill: none; stroke-width: 1.5; opacity: .55 }
.ours circle { fill: #c2410c } .ours polyline { stroke: #c2410c; opacity: .9 }
.number { font-size: 11px; font-weight: 600; text-anchor: middle } .ours .number { fill: #c2410c }
.hollow circle { fill: #ffffff; stroke: #4a6fa5; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
circle { stroke: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 }
.page { fill: #0d1117 } .grid { stroke: #2a3038 } .frame { stroke: #6e7681 }
.hollow circle { fill: #0d1117; stroke: #6b93cf } .ours .number { fill: #f0883e } }
"""


class Series(NamedTuple):
    """One policy's points in one panel."""

    number: int
    points: Sequence[tuple[float, float]]
    is_ours: bool
    is_hollow: bool


class Axis(NamedTuple):
    """What an axis says, and its marks from first to last."""

    label: str
    marks: Sequence[float]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies between the first mark and the last."""
        low, high = self.marks[0], self.marks[-1]
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return (value - low) / (high - low)


class Panel(NamedTuple):
    """One plot of a picture."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


def read_table(document: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading, its column names first, without Markdown's signs."""
    lines = document.partition(f"\n{heading}\n")[2].splitlines()
    found = next((list(rows) for is_row, rows in groupby(lines, lambda line: line.startswith("|")) if is_row), [])
    if len(found) < 3:
        raise ValueError(f"docs/context.md has no table after {heading!r}")
    del found[1]  # the line between
    return [[cell.strip().replace("\\", "") for cell in line.strip("| ").split(" | ")] for line in found]


def draw_cost(document: str) -> str:
    """Return the picture of cost against `next` at each budget."""
    headings = [line for line in document.splitlines() if line.startswith("### ") and line.endswith(" tokens")]
    names = [row[0] for row in read_table(document, headings[0])[1:]]
    x = Axis("cost (log): the bill ÷ that of the whole history, cached", (0.2, 0.5, 1, 2, 3), is_log=True)
    panels = []
    for heading in headings:
        columns, *rows = read_table(document, heading)
        cost, following, over = (columns.index(name) for name in ("cost", "next", "over budget"))
        series = []
        for row in rows:
            point, is_hollow = (_figure(row[cost]), _figure(row[following])), _figure(row[over]) > OVER_BUDGET
            series.append(Series(names.index(row[0]) + 1, [point], _is_ours(row[0]), is_hollow))
        lowest = math.floor(20 * min(each.points[0][1] for each in series) - 0.2) / 20
        marks = _marks(lowest, 1, 0.05 if lowest < 0.9 else 0.02)
        y = Axis("next: still visible of what the next message repeats", marks)
        panels.append(Panel(f"{heading[4:]}: left and up is better", x, y, series))
    return _picture(panels, names, f"hollow: more than {OVER_BUDGET:.0%} of the calls exceed the budget")


def draw_reader(document: str) -> str:
    """Return the picture of the reader's extra loss against the tokens used."""
    columns, *rows = read_table(document, "## Read by a real model")
    places: dict[str, list[int]] = {}
    group = ""
    for place, name in enumerate(columns[1:], 1):
        group = name.partition(":")[0] if ":" in name else group
        places.setdefault(group, []).append(place)
    panels = []
    for group, step in (("all", 0.05), ("far names", 0.25)):
        series = [
            Series(
                number,
                [(_figure(row[x]), _figure(row[y])) for x, y in zip(places["tokens used"], places[group], strict=True)],
                _is_ours(row[0]),
                False,
            )
            for number, row in enumerate(rows, 1)
        ]
        highest = max(y for each in series for _, y in each.points)
        most = max(x for each in series for x, _ in each.points)
        x = Axis("tokens used (mean)", _marks(4_000, math.ceil(most / 1_000) * 1_000, 1_000))
        y = Axis("extra loss, nats per token", _marks(0, math.ceil(highest / step) * step, step))
        panels.append(Panel(f"{'all tokens' if group == 'all' else group}: left and down is better", x, y, series))
    return _picture(panels, [row[0] for row in rows], "three points each, one for each budget")


def _figure(cell: str) -> float:
    return float(cell.replace("*", "").replace(",", ""))


def _is_ours(name: str) -> bool:
    return name.startswith("**")


def _marks(first: float, last: float, step: float) -> list[float]:
    return [first + step * number for number in range(round((last - first) / step) + 1)]


def _picture(panels: Sequence[Panel], names: Sequence[str], note: str) -> str:
    columns = [EDGE, EDGE + WIDTH + GAP]
    top = math.ceil(len(panels) / 2) * (HEIGHT + GAP) + EDGE - LINE
    half = math.ceil((len(names) + 1) / 2)
    width, height = columns[1] + WIDTH + EDGE // 2, top + LINE * half + LINE // 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for place, panel in enumerate(panels):
        x, y = columns[place % 2], EDGE // 2 + 6 + place // 2 * (HEIGHT + GAP)
        lines += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    for place, name in enumerate([*names, note]):
        x, y = columns[place // half] + 5, top + LINE * (place % half)
        if name == note:
            lines.append(_text(x - 5, y + 4, note, "faint"))
        else:
            kind = "ours" if _is_ours(name) else "other"
            dot = _dot(complex(x, y), complex(x + 17, y), place + 1)
            lines += [f'<g class="{kind}">{dot}</g>', _text(x + 30, y + 4, name.replace("*", ""))]
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    lines = [_text(0, -10, panel.title, "title")]
    for mark in panel.x.marks:
        x = WIDTH * panel.x.share(mark)
        lines += [_stroke(x, 0, x, HEIGHT), _text(x, HEIGHT + 16, f"{mark:,g}", "faint", "middle")]
    for mark in panel.y.marks:
        y = HEIGHT * (1 - panel.y.share(mark))
        lines += [_stroke(0, y, WIDTH, y), _text(-6, y + 4, f"{mark:.2f}", "faint", "end")]
    lines += [
        f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(WIDTH / 2, HEIGHT + 33, panel.x.label, "faint", "middle"),
        f'<g transform="translate(-46 {HEIGHT / 2}) rotate(-90)">{_text(0, 0, panel.y.label, "faint", "middle")}</g>',
    ]
    ordered = sorted(panel.series, key=lambda each: (each.is_ours, -each.number))
    places = {
        series.number: [complex(WIDTH * panel.x.share(x), HEIGHT * (1 - panel.y.share(y))) for x, y in series.points]
        for series in ordered
    }
    taken = [place for each in places.values() for place in each]
    for series in ordered:
        kinds = ("ours" if series.is_ours else "other") + (" hollow" if series.is_hollow else "")
        way = " ".join(f"{place.real:.1f},{place.imag:.1f}" for place in places[series.number])
        lines.append(f'<g class="{kinds}"><polyline points="{way}"/>')
        lines += [_dot(place, _free_place(place, taken), series.number) for place in places[series.number]]
        lines.append("</g>")
    return lines


def _free_place(dot: complex, taken: list[complex]) -> complex:
    """Return a place beside a dot that is farthest from the others near by, and take it."""
    ways = [cmath.rect(13, turn * math.pi / 4) for turn in (-1, 0, -2, 2, 4, 1, -3, 3)]
    place = max((dot + way for way in ways), key=lambda each: min([*(round(abs(each - other)) for other in taken), 13]))
    taken.append(place)
    return place


def _dot(dot: complex, label: complex, number: int) -> str:
    circle = f'<circle cx="{dot.real:.1f}" cy="{dot.imag:.1f}" r="{RADIUS}"/>'
    return circle + _text(label.real, label.imag + 4, str(number), "number")


def _stroke(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    beside = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{beside}>{escape(words)}</text>'


PICTURES = {"context-cost.svg": draw_cost, "context-reader.svg": draw_reader}


def main() -> None:
    """Write both pictures."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(document), encoding="utf-8")


if __name__ == "__main__":
    main()
