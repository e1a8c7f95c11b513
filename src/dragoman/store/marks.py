"""Words by which entries are found. Knows no database; the index here is that of the memory store."""

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import count

from .._jsontext import join_surrogates
from ..errors import InvalidValue
from .protocol import Mark

__all__ = ["MARKS_EACH", "MAX_WORDS", "MarkIndex", "as_words"]

MAX_WORDS = 1_000  # that are looked up at once
MARKS_EACH = 50  # of one word that are found. A client may send one request a million times


def as_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words as entries have them, each once; raise InvalidValue for what no store looks up."""
    if isinstance(words, str) or not isinstance(words, Sequence) or not all(type(word) is str for word in words):
        raise InvalidValue("words must be a sequence of texts")
    if len(words) > MAX_WORDS:
        raise InvalidValue(f"at most {MAX_WORDS:,} words are looked up at once, got {len(words):,}")
    return tuple(dict.fromkeys(join_surrogates(word) for word in words))


class MarkIndex:
    """Marks by their words, in the order in which they came."""

    def __init__(self) -> None:
        self._marks: dict[str, list[tuple[int, Mark]]] = {}
        self._numbers = count()

    def add(self, mark: Mark) -> None:
        """Take one more mark."""
        self._marks.setdefault(mark.word, []).append((next(self._numbers), mark))

    def find(self, words: Iterable[str]) -> tuple[Mark, ...]:
        """Return the newest marks of each word, the oldest first."""
        found = (self._marks.get(word, [])[-MARKS_EACH:] for word in words)
        return tuple(mark for _, mark in merge(*found))  # by their numbers

    def remove(self, session_ids: Iterable[str]) -> None:
        """Remove the marks of these sessions."""
        going = frozenset(session_ids)
        left = {
            word: [each for each in marks if each[1].session_id not in going] for word, marks in self._marks.items()
        }
        self._marks = {word: marks for word, marks in left.items() if marks}
