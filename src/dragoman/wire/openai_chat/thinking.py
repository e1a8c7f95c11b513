"""Joins the pieces of `reasoning_details` that Chat Completions hosts stream beside the thinking. Pure."""

from collections.abc import Sequence
from typing import Any

__all__ = ["ReasoningDetails"]

_TEXTS = ("text", "summary")


class ReasoningDetails:
    """The entries of one thinking, in the order of the wire. A piece that continues the last entry is joined to it.

    Texts stay in pieces until they are taken: to join them at each piece would cost the square of their number.
    """

    __slots__ = ("_entries", "_texts")

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._texts: dict[str, list[str]] = {}  # of the last entry, by their field

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, details: Sequence[Any]) -> None:
        """Take the entries of one chunk. They are different ones: only what came before them is continued."""
        before = len(self._entries)
        for detail in details:
            if len(self._entries) == before and self._continues_last(detail):
                self._continue_last(detail)
            else:
                self._join_texts()
                self._entries.append(detail)

    def take(self) -> list[Any]:
        """Return the entries whole, and forget them."""
        self._join_texts()
        taken, self._entries = self._entries, []
        return taken

    def _continues_last(self, detail: Any) -> bool:
        last = self._entries[-1] if self._entries else None
        return (
            isinstance(detail, dict)
            and isinstance(last, dict)
            and detail.get("type") != "reasoning.encrypted"
            and all(detail.get(name) == last.get(name) for name in ("type", "index"))
            and not (detail.get("id") and last.get("id") and detail["id"] != last["id"])
        )

    def _continue_last(self, detail: dict[str, Any]) -> None:
        """Join a piece to the last entry. Its signature comes last."""
        last = self._entries[-1]
        for name, value in detail.items():
            if name in _TEXTS and isinstance(value, str) and isinstance(last.get(name), str):
                self._texts.setdefault(name, [last[name]]).append(value)
            elif value not in (None, ""):
                self._texts.pop(name, None)
                last[name] = value

    def _join_texts(self) -> None:
        texts, self._texts = self._texts, {}
        for name, pieces in texts.items():
            self._entries[-1][name] = "".join(pieces)
