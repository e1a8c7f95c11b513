"""Full-text search: which entries say a text, where, and how often. Pure."""

from collections.abc import Iterable
from typing import Any

from ...history import HistoryEntry
from .jobs import Check, never_abandon
from .outlines import entry_texts

__all__ = ["find_hits", "says"]

MOST_HITS = 5_000
AROUND = 60  # characters on each side of a hit


def find_hits(entries: Iterable[HistoryEntry], words: str, check: Check = never_abandon) -> dict[str, Any]:
    """Return the entries that say a text, letters of both cases alike, each with how often and the first place."""
    wanted = words.casefold()
    hits: list[dict[str, Any]] = []
    total = 0
    if not wanted.strip():
        return {"hits": hits, "total": 0, "isWhole": True}
    for entry in entries:
        check()
        count, around = 0, ""
        for text in entry_texts(entry):
            folded = text.casefold()
            found = folded.count(wanted)
            if found and not count:
                around = _around(text, folded.index(wanted), len(words))
            count += found
        if count:
            total += count
            hits.append({"serial": entry.serial, "count": count, "around": around})
            if len(hits) == MOST_HITS:
                return {"hits": hits, "total": total, "isWhole": False}
    return {"hits": hits, "total": total, "isWhole": True}


def says(entries: Iterable[HistoryEntry], words: str, check: Check = never_abandon) -> bool:
    """Return whether any entry says a text."""
    wanted = words.casefold()
    for entry in entries:
        check()
        if any(wanted in text.casefold() for text in entry_texts(entry)):
            return True
    return False


def _around(text: str, place: int, length: int) -> str:
    # Folding can change the length of a text; then the place is about right.
    first = max(place - AROUND, 0)
    return text[first : place + length + AROUND]
