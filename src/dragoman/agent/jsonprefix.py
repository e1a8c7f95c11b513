"""A JSON text that is still arriving: every way to close what is open, the fullest first. Pure; knows no types."""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ClosedText", "JsonPrefix"]

MAX_DEPTH = 32  # open arrays and objects; each one gives a text to try
UNLIKELY = "\ue000"  # a character that no enumeration, date or pattern has

_TOKEN = re.compile(
    r'\s*+(?:(?P<mark>[{}\[\],:])|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s{}\[\],:"]++(?=[\s{}\[\],:"]))', re.DOTALL
)
# A string without its end, up to an escape that is cut, or to half of a surrogate pair.
_OPEN_STRING = re.compile(
    r'\s*+"[^"\\]*+(?:\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r'|u(?![dD][89abAB])[0-9a-fA-F]{4})[^"\\]*+)*+'
)
_CLOSERS = {"{": "}", "[": "]"}


class ClosedText(NamedTuple):
    """A whole JSON text. If it ends a string that is still arriving, `probe` is the same with more in that string.

    A type that takes both takes any text there. A type that takes the probe not, such as a date, waits for the end.
    """

    text: str
    probe: str | None = None


class _Open:
    """An array or object that is open: how it is closed, and where its last whole member ends."""

    __slots__ = ("closer", "end", "is_at_value")

    def __init__(self, closer: str, end: int) -> None:
        self.closer = closer
        self.end = end
        self.is_at_value = closer == "]"  # else a string is a name


class JsonPrefix:
    """Follows one text as it grows."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._start = self._at = 0
        self._end: int | None = None
        self._is_broken = False

    @property
    def has_begun(self) -> bool:
        """Whether an array or object has been opened."""
        return bool(self._open) or self._end is not None

    def follow(self, text: str, start: int = 0) -> None:
        """Read on. `text` is all that has come; the JSON begins at `start`, which counts until it has begun."""
        if not self.has_begun:
            self._start, self._at, self._is_broken = start, start, False
        while not self._is_broken and self._end is None and (token := _TOKEN.match(text, self._at)) is not None:
            self._at = token.end()
            self._take(token["mark"], token.end())

    def closed_texts(self, text: str) -> Iterator[ClosedText]:
        """Yield the text as it can be closed now: first with all that has come, then with less and less."""
        if self._end is not None:
            yield ClosedText(text[self._start : self._end])
        if self._end is not None or self._is_broken or not 0 < len(self._open) <= MAX_DEPTH:
            return
        closing = "".join(each.closer for each in reversed(self._open))
        if self._open[-1].is_at_value and (string := _OPEN_STRING.match(text, self._at)) is not None:
            come = text[self._start : string.end()]
            yield ClosedText(f'{come}"{closing}', f'{come}{UNLIKELY}"{closing}')
        for index in range(len(self._open) - 1, -1, -1):
            yield ClosedText(text[self._start : self._open[index].end] + closing[len(self._open) - 1 - index :])

    def _take(self, mark: str | None, end: int) -> None:
        inner = self._open[-1] if self._open else None
        if mark is not None and mark in _CLOSERS:
            self._open.append(_Open(_CLOSERS[mark], end))
        elif inner is None:
            self._is_broken = True
        elif mark == ":" or mark == ",":
            inner.is_at_value = mark == ":" or inner.closer == "]"
        elif mark is not None:
            self._is_broken = mark != inner.closer
            self._open.pop()
            if self._open:
                self._open[-1].end = end
            else:
                self._end = end
        elif inner.is_at_value:
            inner.end = end
