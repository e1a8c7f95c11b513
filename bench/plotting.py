"""The figures as a picture: a bar for each, as long as its share of what must be. By hand: no library is needed."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.measuring import Figure

__all__ = ["draw"]

ROW, LEFT, WIDTH = 20, 430, 360  # pixels: of a line, of the names, of a bar that takes all of what must be
LONGEST = 1.5  # times what must be; longer bars are cut


def draw(figures: Sequence[Figure]) -> str:
    """Return an SVG with those of the figures for which something must be."""
    judged = [figure for figure in figures if figure.share is not None]
    height, full = ROW * (len(judged) + 3), LEFT + WIDTH * LONGEST + 90
    head = f'viewBox="0 0 {full:.0f} {height}" font-family="sans-serif" font-size="12" fill="#222"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(8, ROW, "Share of what must be: shorter is better, the line is the limit, the tick the goal"),
    ]
    for place, figure in enumerate(judged):
        lines += _bar(figure, ROW * (place + 2))
    limit = LEFT + WIDTH
    lines.append(f'<line x1="{limit}" x2="{limit}" y1="{ROW * 1.5}" y2="{height - ROW}" stroke="#222"/>')
    return "\n".join([*lines, "</svg>", ""])


def _bar(figure: Figure, top: float) -> list[str]:
    share = figure.share or 0.0
    colour = "#b3261e" if share > 1 else "#2e7d32" if figure.verdict == "goal met" else "#8a8f98"
    width = WIDTH * min(share, LONGEST)
    bar = f'<rect x="{LEFT}" y="{top + 4}" width="{width:.1f}" height="{ROW - 8}" fill="{colour}"/>'
    times = " x" if figure.floors else f" {figure.unit.split()[0]}"
    parts = [
        _text(8, top + 14, f"{figure.row}: {figure.name}"[:70]),
        bar,
        _text(LEFT + width + 6, top + 14, f"{figure.middle:.3g}{times}"),
    ]
    if figure.goal and figure.must:
        goal = figure.must / figure.goal if figure.at_least else figure.goal / figure.must
        x = LEFT + WIDTH * goal
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{top + ROW - 2}" stroke="#222"/>')
    return parts


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
