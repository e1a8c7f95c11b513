"""Sequences that only grow, as values: each is a prefix of a list that its successors share.

Adding to the newest costs what is added; adding to an older one copies it first. So every past state stays as it was,
and adding copies none of them.
"""

from collections.abc import Iterable, Iterator, Reversible, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar, overload

__all__ = ["Extendable", "GrowingIds", "GrowingList"]

_Item = TypeVar("_Item")


class Extendable(Reversible[_Item], Protocol[_Item]):
    """What a growing list needs of the list behind it; one may read its items when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> _Item: ...

    def extend(self, items: Iterable[_Item], /) -> None:
        """Add the items at the end."""


class GrowingList(Sequence[_Item], Generic[_Item]):
    """A read-only sequence; `with_added` gives the longer one."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self._items: Extendable[_Item] = list(items)
        self._size = len(self._items)

    @classmethod
    def owning(cls, items: Extendable[_Item]) -> "GrowingList[_Item]":
        """Return these items without reading them; the caller must not add to them from now on."""
        return cls._of(items, len(items))

    def with_added(self, items: Iterable[_Item]) -> "GrowingList[_Item]":
        """Return these items and then the new ones."""
        kept = self._items if self._size == len(self._items) else list(islice(self._items, self._size))
        kept.extend(items)
        return self._of(kept, len(kept))

    def first(self, size: int) -> "GrowingList[_Item]":
        """Return the first `size` items, sharing them."""
        return self._of(self._items, max(0, min(size, self._size)))

    @classmethod
    def _of(cls, items: Extendable[_Item], size: int) -> "GrowingList[_Item]":
        view = cls.__new__(cls)
        view._items, view._size = items, size
        return view

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> _Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[_Item]: ...

    def __getitem__(self, index: int | slice) -> _Item | Sequence[_Item]:
        if isinstance(index, slice):
            return [self._items[each] for each in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} of {self._size} items")
        return self._items[index if index >= 0 else self._size + index]

    def __iter__(self) -> Iterator[_Item]:
        return islice(self._items, self._size)

    def __reversed__(self) -> Iterator[_Item]:
        return islice(reversed(self._items), len(self._items) - self._size, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return f"GrowingList({list(self)!r})"


class GrowingIds:
    """A set of ids in the order they came; `with_added` gives the larger one."""

    __slots__ = ("_indices", "_next_number", "_size")

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._indices: dict[str, int] = {name: index for index, name in enumerate(dict.fromkeys(ids))}
        self._size = len(self._indices)
        self._next_number: dict[str, int] = {}  # below it every numbered form is taken; only saves time

    def with_added(self, ids: Iterable[str]) -> "GrowingIds":
        """Return these ids and the new ones."""
        if self._size == len(self._indices):
            larger = GrowingIds.__new__(GrowingIds)
            larger._indices, larger._next_number = self._indices, self._next_number
        else:
            larger = GrowingIds(self)
        for name in ids:
            larger._indices.setdefault(name, len(larger._indices))
        larger._size = len(larger._indices)
        return larger

    def free_form(self, name: str, taken: Iterable[str] = ()) -> str:
        """Return `name`, or the first of `name~2`, `name~3` … that is neither here nor in `taken`."""
        if name not in self and name not in taken:
            return name
        number = start = self._next_number.get(name, 2) if self._size == len(self._indices) else 2
        while (numbered := f"{name}~{number}") in self:
            number += 1
        if number > start:
            self._next_number[name] = number
        while numbered in self or numbered in taken:
            number += 1
            numbered = f"{name}~{number}"
        return numbered

    def __contains__(self, name: object) -> bool:
        return self._indices.get(name, self._size) < self._size  # type: ignore[call-overload,no-any-return]  # any key may be looked up

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return islice(self._indices, self._size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GrowingIds):
            return NotImplemented
        return self._size == other._size and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # large, and never a key

    def __repr__(self) -> str:
        return f"GrowingIds({list(self)!r})"
