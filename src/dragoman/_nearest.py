"""What a mistyped word probably means: the nearest of the words that are known."""

from collections.abc import Iterable

__all__ = ["find_nearest", "nearest"]


def find_nearest(typed: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like the typed one; None if none is like it. Case does not matter."""
    from difflib import get_close_matches

    words = {word.lower(): word for word in known}
    near = get_close_matches(typed[:128].lower(), words, 1, cutoff)
    return words[near[0]] if near else None


def nearest(typed: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return what was probably meant, as a question; without a near word, what can be said instead."""
    found = find_nearest(typed, known)
    return otherwise if found is None else f"did you mean {found!r}?"
