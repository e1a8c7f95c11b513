"""Entries of a store that are read and decoded when they are asked for. Knows no database."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, overload

from ..history import HistoryEntry
from .chain import decode_entry

__all__ = ["LazyEntries", "ReadPage"]

ReadPage: TypeAlias = Callable[[int, int], Sequence[bytes]]  # the JSON from the first serial on, before the second

PAGE = 256


class LazyEntries(Sequence[HistoryEntry]):
    """The first `size` entries of a session, and what is added after them. Each is the same object every time.

    `newest` are the last of those `size`, which were read already.
    """

    def __init__(self, size: int, read_page: ReadPage, newest: Sequence[HistoryEntry] = ()) -> None:
        self._known: list[HistoryEntry | bytes | None] = [None] * (size - len(newest))
        self._known += newest
        self._read_page = read_page

    def extend(self, items: Iterable[HistoryEntry]) -> None:
        """Add entries at the end."""
        self._known.extend(items)

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, index: int) -> HistoryEntry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[HistoryEntry]: ...

    def __getitem__(self, index: int | slice) -> HistoryEntry | Sequence[HistoryEntry]:
        if isinstance(index, slice):
            return [self._at(serial) for serial in range(*index.indices(len(self._known)))]
        if not -len(self._known) <= index < len(self._known):
            raise IndexError(f"index {index} of {len(self._known)} entries")
        return self._at(index if index >= 0 else len(self._known) + index)

    def __iter__(self) -> Iterator[HistoryEntry]:
        serial = 0
        while serial < len(self._known):
            yield self._at(serial)
            serial += 1

    def _at(self, serial: int) -> HistoryEntry:
        known = self._known[serial]
        if known is None:
            first = serial - serial % PAGE
            for each, data in enumerate(self._read_page(first, min(first + PAGE, len(self._known))), first):
                if self._known[each] is None:
                    self._known[each] = data
            known = self._known[serial]
        if isinstance(known, bytes):
            known = self._known[serial] = decode_entry(known, serial)
        assert known is not None  # a page is whole, or reading it raises
        return known
