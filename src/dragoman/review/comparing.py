"""Two requests → the longest prefix that they share, and where they differ first. Pure; knows no provider."""

from collections.abc import Callable

import msgspec

from ..wire.cachedparts import CachedRequest, Section

__all__ = ["Comparison", "compare_requests"]

EXCERPT = 60  # characters of each request that are shown from the difference on
LEAD = 20  # and before it


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What a request shares with an earlier one.

    `count` items are the same, and `size` bytes: those of these items and the beginning of the next. With `is_whole`
    the earlier request is a prefix of the later one. `reused` is the weight of what a cache can have of the earlier
    request. With `lost_marks` it has more, out of reach of the later request's marks.
    """

    count: int
    size: int
    is_whole: bool
    section: Section = "messages"
    path: str = ""
    before: str = ""
    after: str = ""
    reused: int = 0
    lost_marks: bool = False


def compare_requests(earlier: CachedRequest, later: CachedRequest) -> Comparison:
    """Return what the later request shares with the earlier one, in the order of a cache."""
    old, new = earlier.items, later.items
    pairs = zip(old, new, strict=False)
    count = next(
        (index for index, (a, b) in enumerate(pairs) if a is not b and a.data != b.data), min(len(old), len(new))
    )
    size = sum(len(item.data) for item in new[:count])
    reused, lost_marks = _reused(earlier, later, count)
    if count == len(old):
        return Comparison(count=count, size=size, is_whole=True, reused=reused, lost_marks=lost_marks)
    a, b = old[count].data, new[count].data if count < len(new) else b""
    inside = longest(min(len(a), len(b)), lambda low, high: a[low:high] == b[low:high])
    is_shorter = count == len(new)
    return Comparison(
        count=count,
        size=size + inside,
        is_whole=False,
        section=_section(earlier, later, count),
        path=earlier.path_at(count) if is_shorter else later.path_at(count),
        before=_excerpt(a, inside),
        after=_excerpt(b, inside),
        reused=reused if later.marks is not None else reused + min(inside, new[count].weight if not is_shorter else 0),
        lost_marks=lost_marks,
    )


def longest(limit: int, is_same: Callable[[int, int], bool]) -> int:
    """Return how many of `limit` bytes are the same, by comparing halves."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if is_same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _section(earlier: CachedRequest, later: CachedRequest, index: int) -> Section:
    """The section that changed: the first of the two, where one of them has more in it."""
    order: tuple[Section, ...] = ("settings", "tools", "system", "messages")
    return min(earlier.section_at(index), later.section_at(index), key=order.index)


def _reused(earlier: CachedRequest, later: CachedRequest, count: int) -> tuple[int, bool]:
    """The weight of the longest prefix that the earlier request left in the cache and the later one finds there."""
    if earlier.marks is None or later.marks is None:
        return later.weight_of(count), False
    written = [mark for mark in earlier.marks if mark <= count]
    for mark in sorted(written, reverse=True):
        nearest = min((each for each in later.marks if each >= mark), default=None)
        if nearest is None:
            continue
        if later.lookback is None or later.blocks_between(mark, nearest) <= later.lookback:
            return later.weight_of(mark), mark != max(written)
    return 0, bool(written) and bool(later.marks)


def _excerpt(data: bytes, at: int) -> str:
    """The text around a difference."""
    return data[max(at - LEAD, 0) : at + EXCERPT].decode("utf-8", "replace")
