"""Markdown that grows: text in, in pieces; whole blocks out as soon as nothing can change them any more.

A block is whole when the next one has begun. Parsing costs the length of what is not whole, and is repeated only when
that has grown by a share, so that a block of any length costs little more than its length.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["GrowingMarkdown", "make_parser"]

GROWTH = 1.25


def make_parser() -> "MarkdownIt":
    """Return a parser that takes no HTML: `List<int>` is text, and must not vanish."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")


class GrowingMarkdown:
    """Collects a text and gives it back in whole blocks. `rest` is what is not whole."""

    def __init__(self) -> None:
        self._rest: list[str] = []  # joined when it is read: adding to a text would copy it for every piece
        self._size = 0
        self._parser = make_parser()
        self._parsed = 0  # so long was the rest when it was last looked at

    def feed(self, piece: str) -> list[str]:
        """Return the blocks that are whole now, in order, and were not before."""
        self._rest.append(piece)
        self._size += len(piece)
        if "\n" not in piece or self._size < self._parsed * GROWTH:
            return []
        rest = self.rest
        lines = rest.split("\n")
        starts = self._starts(rest)
        blocks = ["\n".join(lines[start:end]).strip("\n") for start, end in pairwise(starts)]
        if len(starts) > 1:
            rest = "\n".join(lines[starts[-1] :])
        self._rest, self._size, self._parsed = [rest], len(rest), len(rest)
        return blocks

    def end(self) -> list[str]:
        """Return everything that is left, block by block."""
        rest = self.rest.strip("\n")
        self._rest, self._size, self._parsed = [], 0, 0
        return [rest] if rest.strip() else []

    @property
    def rest(self) -> str:
        """What is not whole yet."""
        if len(self._rest) != 1:
            self._rest = ["".join(self._rest)]
        return self._rest[0]

    def _starts(self, rest: str) -> list[int]:
        """The lines on which the outermost blocks of the rest begin."""
        whole_lines = rest[: rest.rindex("\n")]  # the last one may become anything yet
        tokens = self._parser.parse(whole_lines)
        return [token.map[0] for token in tokens if token.level == 0 and token.map is not None and token.nesting >= 0]
