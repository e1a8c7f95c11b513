"""Two JSON values compared: how much they have in common, and where they differ first. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..._jsontext import sorted_json

__all__ = ["SHOWN", "Difference", "first_difference", "leaves_of", "likeness", "shared_length"]

SHOWN = 80  # characters of each value
BEFORE = 20  # of these, how many come before the difference
_MISSING = object()


class Difference(msgspec.Struct, frozen=True):
    """Where two values differ: the path in the JSON, and a short piece of each. `nothing` stands for no value."""

    path: str
    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"differs first at {self.path}: recorded is {self.recorded}, asked is {self.asked}"


def leaves_of(value: Any) -> Counter[int]:
    """Return how often each value without parts is at each path, as digests."""
    return Counter(hash(leaf) for leaf in _leaves(value))


def likeness(one: Counter[int], other: Counter[int]) -> float:
    """Return how much two values have in common, from 0 to 1."""
    both = one.total() + other.total()
    return 2 * (one & other).total() / both if both else 1.0


def shared_length(one: bytes, other: bytes) -> int:
    """Return how many bytes the two have in common at their beginnings and at their ends."""
    longest = min(len(one), len(other))
    begin = _shared(longest, lambda count: one[:count] == other[:count])
    return begin + _shared(longest - begin, lambda count: one[len(one) - count :] == other[len(other) - count :])


def _shared(longest: int, is_same: Callable[[int], bool]) -> int:
    """The largest count up to `longest` for which something is the same; it is so for each smaller one."""
    return bisect_left(range(1, longest + 1), True, key=lambda count: not is_same(count))


def first_difference(recorded: Any, asked: Any) -> Difference | None:
    """Return the first difference in the order of `asked`, None if there is none."""
    pending: list[tuple[str, Any, Any]] = [("", recorded, asked)]
    while pending:
        path, old, new = pending.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            names = list(dict.fromkeys((*new, *old)))
            pairs = [(_named(path, name), old.get(name, _MISSING), new.get(name, _MISSING)) for name in names]
            pending += reversed(pairs)
        elif isinstance(old, list) and isinstance(new, list):
            longest = max(len(old), len(new))
            pairs = [(f"{path}[{index}]", _item(old, index), _item(new, index)) for index in range(longest)]
            pending += reversed(pairs)
        elif old is _MISSING or new is _MISSING or sorted_json(old) != sorted_json(new):
            return Difference(path or "the body", *_pieces(old, new))
    return None


def _leaves(value: Any) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, dict):
            pending += [(_named(path, name), inner) for name, inner in item.items()]
        elif isinstance(item, list):
            pending += [(f"{path}[{index}]", inner) for index, inner in enumerate(item)]
        else:
            yield path, repr(item)


def _named(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def _pieces(old: Any, new: Any) -> tuple[str, str]:
    """A short piece of each value; of two texts, where they part."""
    if not isinstance(old, str) or not isinstance(new, str):
        return _piece(old), _piece(new)
    shared = next((index for index, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    begin = max(0, (min(len(old), len(new)) if shared is None else shared) - BEFORE)
    return _cut(old, begin), _cut(new, begin)


def _cut(text: str, begin: int) -> str:
    piece = text[begin : begin + SHOWN]
    return f"{'…' if begin else ''}{piece!r}{'…' if begin + SHOWN < len(text) else ''}"


def _piece(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    written = sorted_json(value).decode()
    return written if len(written) <= SHOWN else f"{written[:SHOWN]}…"
