"""Two texts beside each other with their differences marked, and as a unified diff. Pure but for the output."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import zip_longest
from typing import NamedTuple

from .output import Output, display_width, printable, wrapped

__all__ = ["Row", "paired_rows", "write_side_by_side", "write_unified"]

SAME, CHANGED, LEFT_ONLY, RIGHT_ONLY = " ", "|", "<", ">"
_STYLES = {SAME: ("", ""), CHANGED: ("yellow", "yellow"), LEFT_ONLY: ("red", ""), RIGHT_ONLY: ("", "green")}
LEAST_COLUMN = 16


class Row(NamedTuple):
    """A line of each side, None where a side has none, and how they differ: `|` other, `<` and `>` only on one side."""

    left: str | None
    mark: str
    right: str | None


def paired_rows(left: Sequence[str], right: Sequence[str]) -> Iterator[Row]:
    """Yield the lines of two texts in pairs."""
    for tag, left_from, left_to, right_from, right_to in SequenceMatcher(None, left, right, False).get_opcodes():
        if tag == "equal":
            for one, other in zip(left[left_from:left_to], right[right_from:right_to], strict=True):
                yield Row(one, SAME, other)
            continue
        for before, after in zip_longest(left[left_from:left_to], right[right_from:right_to]):
            mark = LEFT_ONLY if after is None else RIGHT_ONLY if before is None else CHANGED
            yield Row(before, mark, after)


def write_side_by_side(output: Output, left: Sequence[str], right: Sequence[str]) -> None:
    """Write two texts in two columns, differences marked between them. Long lines go on below, nothing is cut."""
    column = max((output.width - 3) // 2, LEAST_COLUMN)
    for row in paired_rows(left, right):
        left_style, right_style = _STYLES[row.mark]
        pieces = zip_longest(_pieces(row.left, column), _pieces(row.right, column), fillvalue="")
        for index, (one, other) in enumerate(pieces):
            mark = row.mark if index == 0 else SAME
            output.write(one, left_style)
            if not other and mark == SAME:
                output.line()
                continue
            output.write(" " * (column - display_width(one)))
            output.write(f" {mark} " if other else f" {mark}", "bold")
            output.line(other, right_style)


def write_unified(output: Output, left: Sequence[str], right: Sequence[str], names: tuple[str, str]) -> None:
    """Write what differs as a unified diff, with the lines around it."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in unified_diff(left, right, *names, lineterm="", n=3):
        output.line(line, styles.get(line[:1], ""))


def _pieces(text: str | None, width: int) -> list[str]:
    """Return a line cut to a width; its continuation is indented deeper than its beginning."""
    if text is None:
        return []
    safe = printable(text.replace("\t", "    "))
    indent = min(len(safe) - len(safe.lstrip()) + 2, width // 2)
    first, *_ = wrapped(safe, width)
    if len(first) == len(safe):
        return [safe]
    rest = safe[len(first) :].removeprefix(" ")
    return [first, *(" " * indent + piece for piece in wrapped(rest, width - indent))]
