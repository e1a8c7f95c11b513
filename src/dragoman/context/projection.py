"""Units to what a request shows of them: a ledger of what was folded, then everything newer, whole.

Levels change only in epochs. Between two epochs a request is the last one with the new units added, byte for byte, so
that a provider's cache holds. An epoch folds the older units, keeps of their lines what is worth its tokens, and leaves
the older zones of the ledger alone until the ledger is full. Pure: same timeline, settings and time, same result.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from math import sqrt
from typing import Any

import msgspec

from ..errors import UnreadableData
from ..history import EpochEntry
from ..message import Message, ModelInvocationDescriptor
from .choosing import Candidate, Rates, Shown, choose
from .cutting import cut_text, cut_unit
from .index import HistoryIndex
from .ledger import Zone, ZoneText, shown_in, write_zone
from .timeline import Timeline, Unit
from .tokens import count_message, count_overhead
from .worth import Judge

__all__ = ["PROJECTION_VERSION", "Projection", "Settings", "find_epoch_reason", "read_projection", "start_epoch"]

# Raised whenever the same choices would be shown differently.
PROJECTION_VERSION = 3

# Shares of the budget. Newest units that stay whole; what the ledger may take; how full a context must be for an epoch
# to be worth its while when the cache is gone anyway.
TAIL_SHARE = 0.12
LEDGER_SHARE = 0.6
FREE_SHARE = 0.2
# A full ledger leaves its oldest zones alone as long as they take no more of it than this.
FROZEN_SHARE = 0.6
# How much of what is folded is kept, as a guess before choosing.
KEPT_SHARE = 0.1
# Lines that were left out may come back when everything is chosen anew, if they are no older than so many tokens.
RETURN_TOKENS = 42_000
MOST_ZONES = 4
# At this budget: what a token must be worth to be kept in a line, and in a list of names; what a name that is used, and
# a line of a person's request, are worth beside a line that is copied.
RATED_BUDGET = 32_000
LEAST_WORTH = 0.00064
LEAST_NAME_WORTH = 0.0002
NAME_WORTH = 2.6
REQUEST_WORTH = 0.05
# The cheapest distance between low and high water, by prices alone, is too short: what stays live is also of use.
LIVE_WORTH = 1.5
LEAST_DISTANCE = 0.25


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a projection has to respect: room for messages, prices against fresh input, the life of the cache."""

    budget: int
    read_price: float = 0.1
    write_price: float = 1.25
    cache_seconds: float = 300.0

    @property
    def rates(self) -> Rates:
        """What is worth keeping. The smaller the budget, the more a token must be worth, and the less names count."""
        scale = RATED_BUDGET / self.budget
        return Rates(
            least=LEAST_WORTH * (0.35 + 0.65 * scale),
            least_name=LEAST_NAME_WORTH * (0.35 + 0.65 * scale),
            name=NAME_WORTH / scale,
            request=REQUEST_WORTH,
        )


class Projection(msgspec.Struct, frozen=True):
    """What an epoch chose: the ledger, the first unit that stays whole, and texts that had to be cut to fit.

    `low` is the size it left; `cuts` says for an entry's serial how many characters each of its texts may have; `limit`
    is what a provider that refused a request has taught us to stay below.
    """

    zones: tuple[ZoneText, ...] = ()
    live_from: int = 0
    cuts: dict[int, int] = {}
    low: int = 0
    limit: int | None = None

    @property
    def ledger_tokens(self) -> int:
        """The tokens of all zones."""
        return sum(zone.tokens for zone in self.zones)

    def live_units(self, timeline: Timeline) -> Sequence[Unit]:
        """Return the units that stay whole, cut where that was chosen."""
        units = timeline.units[self.live_from :]
        return [cut_unit(unit, self.cuts, timeline.count) for unit in units] if self.cuts else units

    def messages(self, timeline: Timeline) -> list[Message]:
        """Return what a model is shown: the ledger, then the live units."""
        if not self.cuts:  # a turn costs this for all that is old: a copy of a list
            return [*(zone.message for zone in self.zones), *timeline.messages_from(self.live_from)]
        live = chain.from_iterable(unit.messages for unit in self.live_units(timeline))
        return [*(zone.message for zone in self.zones), *live]

    def tokens(self, timeline: Timeline) -> int:
        """Return what the request counts, ledger and live units together."""
        if not self.cuts:
            return self.ledger_tokens + timeline.tokens_from(self.live_from)
        return self.ledger_tokens + sum(unit.tokens for unit in self.live_units(timeline))

    def choices(self, timeline: Timeline) -> dict[str, Any]:
        """Return the projection as an epoch entry keeps it."""
        units = timeline.units
        live_from = units[self.live_from].serial if self.live_from < len(units) else timeline.next_serial
        return {
            "zones": [zone.zone.written() for zone in self.zones],
            "liveFrom": live_from,
            "cuts": {str(serial): size for serial, size in self.cuts.items()},
            "low": self.low,
            "limit": self.limit,
        }


def read_projection(timeline: Timeline, epoch: EpochEntry) -> Projection:
    """Return what an epoch entry chose; raise UnreadableData if its choices are none of this version's."""
    choices = epoch.choices
    try:
        live_from, low = _whole(choices["liveFrom"]), _whole(choices["low"])
        cuts = {_whole(serial): _whole(size) for serial, size in choices["cuts"].items()}
        limit = None if choices["limit"] is None else _whole(choices["limit"])
        zones = [Zone.read(zone) for zone in choices["zones"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableData(f"epoch {epoch.serial}: {type(error).__name__} in its choices") from None
    unit = timeline.first_unit_from(live_from)
    if unit == len(timeline.units) or timeline.units[unit].serial != live_from or live_from >= epoch.serial:
        raise UnreadableData(f"epoch {epoch.serial}: no part of the conversation before it begins at {live_from}")
    index = timeline.indexed()
    if any(name not in index.names for zone in zones for name in zone.names):
        raise UnreadableData(f"epoch {epoch.serial}: a name that no entry holds")
    texts = (_zone_text(timeline, index, zone, cuts, is_first=place == 0) for place, zone in enumerate(zones))
    return Projection(tuple(texts), unit, cuts, low, limit)


def _whole(value: Any) -> int:
    """The number that a choice is; raise what int() raises, or ValueError for one that no history comes to."""
    number = int(value)
    if not 0 <= number < 2**53:
        raise ValueError("out of range")
    return number


# ---------------------------------------------------------------- when


def find_epoch_reason(
    timeline: Timeline,
    projection: Projection,
    settings: Settings,
    *,
    now: datetime,
    invocation: ModelInvocationDescriptor | None = None,
) -> str | None:
    """Return why levels should change now, or None: `compaction`, `budget`, or that the cache is gone anyway."""
    size = projection.tokens(timeline)
    if timeline.compaction is not None and not _is_used(timeline.compaction.serial, projection):
        return "compaction"
    if size > _high_water(timeline, projection, settings):
        return "budget"
    if size > FREE_SHARE * settings.budget and timeline.asked_at is not None and not _is_renewed(timeline):
        if (now - timeline.asked_at).total_seconds() > settings.cache_seconds:
            return "cache expired"
        if invocation is not None and timeline.invocation is not None and invocation != timeline.invocation:
            return "model changed"
    return None


def _is_used(serial: int, projection: Projection) -> bool:
    return any(zone.zone.summary == serial for zone in projection.zones)


def _is_renewed(timeline: Timeline) -> bool:
    """Whether an epoch has followed the last answer: nothing is cached of it yet that another one could lose."""
    epoch, output = timeline.epoch, timeline.last_output
    return epoch is not None and output is not None and epoch.serial > output.serial


def _high_water(timeline: Timeline, projection: Projection, settings: Settings) -> float:
    """How large a request may grow: the budget, or less where prices make a shorter epoch cheaper.

    With low water l, high water h, n new tokens a call, read price r and write price w, a call costs
    r(h+l)/2 + wn + (w-r)ln/(h-l), which is least at h - l = sqrt(2(w-r)/r * l * n).
    """
    most = settings.budget
    if settings.read_price <= 0:
        return most
    low = projection.low or settings.budget / 2
    per_call = timeline.ends[-1] / max(timeline.answers, 1)
    dearer = max(settings.write_price - settings.read_price, 0) / settings.read_price
    distance = max(LIVE_WORTH * sqrt(2 * dearer * low * per_call), LEAST_DISTANCE * settings.budget)
    return min(most, low + distance)


# ---------------------------------------------------------------- an epoch


def start_epoch(timeline: Timeline, before: Projection, settings: Settings, *, rewrite: bool) -> Projection:
    """Return the projection after an epoch; with `rewrite` the whole ledger is written anew."""
    epoch = _Epoch(timeline, settings)
    is_compacted = timeline.compaction is not None and not _is_used(timeline.compaction.serial, before)
    folded_from = timeline.units_covered() if is_compacted else before.live_from
    live_from, cuts = epoch.fit_tail(max(before.live_from, folded_from, epoch.first_kept()))
    live = Projection((), live_from, cuts).tokens(timeline)
    room = min(LEDGER_SHARE * settings.budget, settings.budget - live)
    shown = epoch.shown_live(live_from)
    zones, summary_cuts = epoch.summary_zones(room)
    frozen = len(zones)  # a model's summary is never chosen from
    cuts |= summary_cuts
    if not is_compacted:
        zones = (*zones, *before.zones[frozen:])
        if not rewrite:
            frozen = max(frozen, epoch.count_frozen(zones, folded=(folded_from, live_from), room=room))
    if live_from == 0 and not zones:
        return Projection((), 0, cuts, live, before.limit)
    zone = epoch.choose_zone(zones, frozen, shown, folded=(folded_from, live_from), room=room)
    kept = (*zones[:frozen], zone) if zone is not None else zones[:frozen]
    after = Projection(kept, live_from, cuts, 0, before.limit)
    return msgspec.structs.replace(after, low=after.tokens(timeline))


class _Epoch:
    """What the steps of one epoch share."""

    def __init__(self, timeline: Timeline, settings: Settings) -> None:
        self._timeline = timeline
        self._budget = settings.budget
        self._rates = settings.rates
        self._index = timeline.indexed()
        self._judge = Judge(self._index)

    def first_kept(self) -> int:
        """The first unit of the newest ones that stay whole: at least the last one."""
        timeline, units, room = self._timeline, self._timeline.units, TAIL_SHARE * self._budget
        kept, size = len(units), 0
        while kept > 0:
            unit = units[kept - 1]
            # A unit whose last message lies within reach stays, however long its first one is.
            last = unit.sizes[-1] - count_overhead(unit.messages[-1], timeline.overhead)
            if kept < len(units) and size + last > room:
                break
            # By what they say: how many stay whole does not depend on what the target writes around them.
            size += timeline.said_in(kept - 1)
            kept -= 1
        return kept

    def fit_tail(self, live_from: int) -> tuple[int, dict[int, int]]:
        """The first unit that stays, and how long texts from there on may be: all of them whole unless they do not fit.

        Where no cut is enough, fewer units stay.
        """
        while True:
            cuts, fits = self._cuts_for(live_from)
            if fits or live_from + 1 >= len(self._timeline.units):
                return live_from, cuts
            live_from += 1

    def _cuts_for(self, live_from: int) -> tuple[dict[int, int], bool]:
        timeline, limit = self._timeline, self._budget - self._least_ledger(live_from)
        cuts: dict[int, int] = {}
        serials = [entry.serial for unit in timeline.units[live_from:] for entry in unit.entries]
        size = 4 * self._budget
        while (is_long := Projection((), live_from, cuts).tokens(timeline) > limit) and size >= 40:
            size = int(size * 0.7)
            cuts = dict.fromkeys(serials, size)
        return cuts, not is_long

    def _least_ledger(self, live_from: int) -> int:
        """The tokens of a ledger that says nothing but that there is one."""
        zones, _ = self.summary_zones(0)
        if live_from and not zones:
            zones = (_zone_text(self._timeline, self._index, Zone(), {}, is_first=True),)
        return sum(zone.tokens for zone in zones)

    def shown_live(self, live_from: int) -> Shown:
        """What the units that stay whole show."""
        shown = Shown()
        for unit in self._timeline.units[live_from:]:
            for number in self._numbers(unit.entries):
                shown.add_block(self._index, number)
        return shown

    def summary_zones(self, room: float) -> tuple[tuple[ZoneText, ...], dict[int, int]]:
        """The ledger's beginning: models' summaries of all that they cover, and how they had to be cut to fit."""
        serials = self._timeline.summaries()
        size, cuts = 4 * self._budget, dict[int, int]()
        while True:
            zones = tuple(
                _zone_text(self._timeline, self._index, Zone(summary=serial), cuts, is_first=place == 0)
                for place, serial in enumerate(serials)
            )
            if size == 0 or sum(zone.tokens for zone in zones) <= room:
                return zones, cuts
            size = int(size * 0.7)
            cuts = dict.fromkeys(serials, size)

    def count_frozen(self, zones: Sequence[ZoneText], *, folded: tuple[int, int], room: float) -> int:
        """How many of the oldest zones are left as they are."""
        frozen = min(len(zones), MOST_ZONES - 1)
        timeline = self._timeline
        new = KEPT_SHARE * (timeline.ends[folded[1]] - timeline.ends[folded[0]])
        sizes = [zone.tokens for zone in zones]
        if sum(sizes[:frozen]) + new > room:
            while frozen and sum(sizes[:frozen]) > FROZEN_SHARE * room:
                frozen -= 1
        return frozen

    def choose_zone(
        self, zones: Sequence[ZoneText], frozen: int, shown: Shown, *, folded: tuple[int, int], room: float
    ) -> ZoneText | None:
        """The new zone: the best of what is folded now and of the zones that are written anew."""
        for kept in zones[:frozen]:
            shown.keys |= kept.keys
            shown.line_names |= kept.names
            shown.names.update(kept.zone.names)
            room -= kept.tokens
        shown.names |= shown.line_names
        renewed = zones[frozen:]
        candidates = list(self._returning(folded[0])) if renewed and not frozen else []
        returning = {number for number, _ in candidates}
        for zone in renewed:
            for pick in zone.zone.picks:
                number = self._index.block_at(pick.serial, pick.place)
                if number not in returning:
                    candidates.append((number, pick.lines))
            gists = (self._index.block_at(*gist) for gist in zone.zone.gists)
            candidates += [(number, ()) for number in gists if number not in returning]
        for unit in self._timeline.units[folded[0] : folded[1]]:
            candidates += self._whole(unit.entries)
        listed = [name for zone in renewed for name in zone.zone.names]
        return self._fitting(candidates, shown, listed, room=room, is_first=not frozen)

    def _fitting(
        self, candidates: Sequence[Candidate], shown: Shown, listed: Sequence[str], *, room: float, is_first: bool
    ) -> ZoneText | None:
        """The chosen zone, chosen again in less room as long as its text counts more than there is.

        The first zone is written even if nothing is worth keeping: a conversation begins with the user's side.
        """
        limit = room
        while True:
            zone = choose(
                self._index, self._judge, candidates, shown, listed_names=listed, rates=self._rates, room=limit
            )
            is_empty = not zone.picks and not zone.names and not zone.gists
            if is_empty and not is_first:
                return None
            text = _zone_text(self._timeline, self._index, zone, {}, is_first=is_first)
            if is_empty or text.tokens <= room:
                return text
            limit = min(limit * 0.9, limit * room / text.tokens - 8)

    def _returning(self, unit: int) -> Iterator[Candidate]:
        """Blocks before this unit that are young enough to be looked at once more, whole."""
        timeline, oldest = self._timeline, self._index.position - RETURN_TOKENS
        for place in range(unit - 1, -1, -1):
            numbers = self._numbers(timeline.units[place].entries)
            if numbers and self._index.blocks[numbers[0]].position < oldest:
                return
            yield from ((number, range(len(self._index.blocks[number].lines))) for number in numbers)

    def _whole(self, entries: Sequence[Any]) -> Iterator[Candidate]:
        for number in self._numbers(entries):
            yield number, range(len(self._index.blocks[number].lines))

    def _numbers(self, entries: Sequence[Any]) -> list[int]:
        """The numbers of the blocks that entries became."""
        ranges = (self._index.blocks_of.get(entry.serial, (0, 0)) for entry in entries)
        return [number for first, last in ranges for number in range(first, last)]


def _zone_text(
    timeline: Timeline, index: HistoryIndex, zone: Zone, cuts: Mapping[int, int], *, is_first: bool
) -> ZoneText:
    summary = None
    if zone.summary is not None:
        compaction = timeline.compactions.get(zone.summary)
        if compaction is None:
            raise UnreadableData(f"epoch: entry {zone.summary} is no compaction")
        size = cuts.get(zone.summary)
        summary = compaction.summary if size is None else cut_text(compaction.summary, zone.summary, size)
    message = Message.user(write_zone(zone, index, is_first=is_first, summary=summary))
    keys, names = shown_in(zone, index)
    return ZoneText(zone, message, count_message(message, timeline.counter), keys, names)
