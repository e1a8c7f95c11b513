"""Why calls of one session missed the cache, the newest first and within a time: each look goes on after the last.

The verdict of a call never changes, so it is cached.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ...history import HistoryEntry, ModelOutputEntry
from ...review import CacheCall, find_calls
from ...review.cache import iterate_cache
from .calls import prices_of
from .jobs import Check, never_abandon

__all__ = ["CacheReview", "Fork"]

SECONDS = 3.0  # after which no further calls are begun
FIRST_CALLS = 4  # that are reviewed whatever they take; then twice as many, and so on
MOST_CALLS = 5_000  # of one session, the newest


class Fork(msgspec.Struct, frozen=True):
    """Where a session left its parent, and the parent's entries."""

    serial: int = -1
    entries: Sequence[HistoryEntry] = ()


def _written(call: CacheCall, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    return {**msgspec.to_builtins(call), "isMiss": call.is_miss, "missCost": _miss_cost(call, entries[call.serial])}


def _miss_cost(call: CacheCall, entry: HistoryEntry) -> float | None:
    """What a miss cost more than a hit of the whole request, in dollars; None where a price or a figure is unknown."""
    prices = prices_of(entry.invocation if isinstance(entry, ModelOutputEntry) else None)
    if not call.is_miss or prices is None or prices.cache_read is None or call.input_tokens is None:
        return None
    again = max(call.input_tokens - (call.reported_tokens or 0), 0)
    return again * max(prices.input - prices.cache_read, 0.0) / 1_000_000


class CacheReview:
    """What is known so far of the calls of one session."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, Any]] = {}  # by the serial of the answer

    @property
    def missed(self) -> set[int]:
        """The serials of the calls that are known to have missed."""
        return {serial for serial, call in list(self._known.items()) if call["isMiss"]}

    def look(
        self,
        entries: Sequence[HistoryEntry],
        *,
        session_id: str,
        fork: Fork,
        check: Check = never_abandon,
        seconds: float = SECONDS,
    ) -> dict[str, Any]:
        """Review calls for about so long; return all that are known, how many that is, and how many calls there are."""
        calls, end = find_calls(entries), time.monotonic() + seconds
        oldest = max(len(calls) - MOST_CALLS, 0)
        last, size = len(calls), FIRST_CALLS
        while True:
            while last > oldest and calls[last - 1].serial in self._known:
                last -= 1
            first = last
            while first > oldest and last - first < size and calls[first - 1].serial not in self._known:
                first -= 1
            if first == last:
                break
            begun = time.monotonic()
            reviewed = iterate_cache(
                entries,
                session_id=session_id,
                forked_at=fork.serial,
                parent_entries=fork.entries,
                among=range(first, last),
                calls=calls,
            )
            found = {}
            for call in reviewed:
                check()
                found[call.serial] = _written(call, entries)
            self._known.update(found)
            size *= 2
            now = time.monotonic()
            if now + 2 * (now - begun) > end:  # the next ones are twice as many
                break
        known = [self._known[call.serial] for call in calls if call.serial in self._known]
        return {"calls": known, "reviewed": len(known), "total": len(calls)}

    def look_at(self, serial: int, entries: Sequence[HistoryEntry], *, session_id: str, fork: Fork) -> dict[str, Any]:
        """Review the call of one serial; return it alone, none if there is no such call."""
        calls = find_calls(entries)
        place = next((place for place, call in enumerate(calls) if call.serial == serial), None)
        if place is not None and serial not in self._known:
            for call in iterate_cache(
                entries,
                session_id=session_id,
                forked_at=fork.serial,
                parent_entries=fork.entries,
                among=range(place, place + 1),
                calls=calls,
            ):
                self._known[serial] = _written(call, entries)
        found = [] if place is None else [self._known[serial]]
        return {"calls": found, "reviewed": len(self._known), "total": len(calls)}
