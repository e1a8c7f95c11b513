"""When levels of detail change, and to what: a timeline and a projection to the next projection.

Levels change only in epochs, the oldest first. Between two epochs a request is the last one with the new units added,
byte for byte, so that a provider's cache holds. Most epochs reduce the newest units in their place and leave all before
them alone; when that no longer fits, everything is laid out anew. Pure: same timeline, settings and time, same result.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import sqrt

import msgspec

from ..history import HistoryEntry, ToolResultsEntry
from ..message import ModelInvocationDescriptor, Role
from .choosing import Candidate, Rates, Shown, choose
from .cutting import cut_unit
from .ledger import Pick, Zone, ZoneText
from .projection import CAP, Projection, Writer, results_of, zone_text
from .timeline import Timeline
from .tokens import count_overhead
from .turns import Turns, head_of
from .worth import Judge

__all__ = ["Settings", "find_epoch_reason", "start_epoch"]

# Shares of the budget, chosen from about 430 settings that were tried on half of the recorded conversations, and then
# measured on all of them (docs/context.md). TURNS_SHARE is for turns without the lines of their results: from .22 to .3
# the share of the next message that is still to be read rises by .008 at 8k, and the bill by 4 %. LINES_SHARE is for
# chosen lines, in results and in the ledger together: from .2 to .3 (and LEAST_WORTH from .001 to .0008) far names rise
# by .02 to .06, and the bill by 3 to 6 %.
TAIL_SHARE = 0.105  # the newest units, which stay whole
TURNS_SHARE = 0.24
# About ten turns: at small budgets they get so many tokens, but at most such a share.
LEAST_TURNS, MOST_TURNS_SHARE = 2_400, 0.45
LINES_SHARE = 0.22
REQUEST_SHARE = 0.25  # a person's first words and newest words, each
MOST_TAIL = 2  # times TAIL_SHARE, with all that a target writes around messages
LIVE_SHARE = 0.45  # a last unit that is longer is cut, where turns stand before it
# An epoch that only reduces the newest units must leave the request no fuller than this; else all is laid out anew.
FULL_SHARE = 0.95
# How full a context must be for an epoch to be worth its while when the cache is gone anyway.
FREE_SHARE = 0.2
# Lines that were left out may come back when all is laid out anew, if they are no older than so many tokens.
RETURN_TOKENS = 42_000
# At this budget: what a token must be worth to be kept in a line, and in a list of names; what a name that is used, and
# a line of a person's request, are worth beside a line that is copied.
RATED_BUDGET = 32_000
LEAST_WORTH = 0.0014
LEAST_NAME_WORTH = 0.0003
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
            least=LEAST_WORTH * (0.7 + 0.3 * scale),
            least_name=LEAST_NAME_WORTH * (0.7 + 0.3 * scale),
            name=NAME_WORTH / scale,
            request=REQUEST_WORTH,
        )


# ---------------------------------------------------------------- when


def find_epoch_reason(
    timeline: Timeline,
    projection: Projection,
    settings: Settings,
    *,
    now: datetime,
    invocation: ModelInvocationDescriptor | None = None,
    tool_set: str | None = None,
) -> str | None:
    """Return why levels should change now, or None: `compaction`, `budget`, or that the cache is gone anyway.

    `tool_set` is the digest of the tools that the request offers, None where it is not recorded what others offered.
    """
    size = projection.tokens(timeline)
    if timeline.compaction is not None and not _is_used(timeline.compaction.serial, projection):
        return "compaction"
    if size > _high_water(timeline, projection, settings):
        return "budget"
    if size > FREE_SHARE * settings.budget and timeline.asked_at is not None and not timeline.is_renewed:
        if (now - timeline.asked_at).total_seconds() > settings.cache_seconds:
            return "cache expired"
        if invocation is not None and timeline.invocation is not None and invocation != timeline.invocation:
            return "model changed"
        if tool_set is not None and timeline.invocation is not None:
            # Sets that take turns find the prefixes of their last requests: an epoch at each turn would lose those.
            asked = timeline.last_asked(timeline.invocation, tool_set)
            if asked is None or (now - asked).total_seconds() > settings.cache_seconds:
                return "tools changed"
    return None


def _is_used(serial: int, projection: Projection) -> bool:
    return any(zone.zone.summary == serial for zone in projection.zones)


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
    """Return the projection after an epoch; with `rewrite` everything is laid out anew."""
    epoch = _Epoch(timeline, before, settings)
    after = None if rewrite or epoch.is_compacted else epoch.reduce_newest()
    after = after or epoch.lay_out()
    return msgspec.structs.replace(after, low=after.tokens(timeline))


class _Epoch:
    """What the steps of one epoch share."""

    def __init__(self, timeline: Timeline, before: Projection, settings: Settings) -> None:
        self._timeline, self._before = timeline, before
        self._budget = settings.budget
        self._rates = settings.rates
        self._index = timeline.indexed()
        self._judge = Judge(self._index)
        self._bare: dict[int, Turns] = {}  # units as turns, without a line of their results
        self.is_compacted = timeline.compaction is not None and not _is_used(timeline.compaction.serial, before)
        self._covered = timeline.units_covered()
        self._live_from = max(before.live_from, self._covered if self.is_compacted else 0, self._first_kept())
        self._cuts = self._live_cuts()
        self._live = Projection(live_from=self._live_from, cuts=self._cuts).live_tokens(timeline)
        self._request_cuts, self._spoken = self._requests(self._budget - self._live - self._least_ledger())
        self._writer = Writer(timeline, None, (), {})

    def reduce_newest(self) -> Projection | None:
        """The projection with the units that are no longer live as turns, all before them as it was.

        None where nothing was reduced before, or where that would leave the request too full.
        """
        timeline, before = self._timeline, self._before
        numbers = range(before.live_from, self._live_from)
        spoken = [timeline.serials[place] for place in self._spoken if place in numbers]
        asked = before.asked + tuple(spoken)
        kept = (before.first_asked, *asked, *timeline.compactions)
        cuts = {serial: size for serial, size in before.cuts.items() if serial in kept}
        # Words that were asked before stay as they were sent, so only what is asked now is cut as it must be now.
        cuts |= self._cuts | {serial: size for serial, size in self._request_cuts.items() if serial in spoken}
        self._writer = Writer(timeline, before.first_asked, asked, cuts)
        bare = self._bare_turns(numbers)
        room = FULL_SHARE * self._budget - before.folded_tokens(timeline) - self._live - bare.tokens(timeline.overhead)
        if not before.live_from or not numbers or room < 0:
            return None
        shown = self._shown_live()
        shown.add_messages(before.first.messages)
        for each in before.zones:
            shown.add_lines(each.keys, each.names)
        self._show_turns(shown, range(before.turns_from, self._live_from), before.picks)
        candidates, limit = list(self._results(numbers)), room
        while True:
            picks = choose(self._index, self._judge, candidates, shown, rates=self._rates, room=limit).picks
            turns = self._turns(numbers, picks)
            used = turns.tokens(timeline.overhead) - bare.tokens(timeline.overhead)
            if used <= room or not picks:
                break
            limit = _less(limit, room, used)
        return msgspec.structs.replace(
            before,
            live_from=self._live_from,
            asked=asked,
            picks=before.picks + picks,
            cuts=cuts,
            stable=len(before.folded_messages),
            turns=Turns.joined((before.turns, turns)),
        )

    def lay_out(self) -> Projection:
        """The projection with all levels chosen anew."""
        timeline, budget, before = self._timeline, self._budget, self._before
        if self._live_from == 0:
            return Projection(cuts=self._cuts, limit=before.limit)
        spoken = [timeline.serials[place] for place in self._spoken]
        first_asked = spoken[0] if self._spoken and self._spoken[0] == timeline.asked[0] else None
        asked = tuple(serial for serial in spoken if serial != first_asked)
        cuts = self._cuts | {serial: size for serial, size in self._request_cuts.items() if serial in spoken}
        self._writer, self._bare = Writer(timeline, first_asked, asked, cuts), {}
        first, whole = self._writer.first(), self._writer.older(self._live_from)
        taken = self._live + self._least_ledger() + sum(turns.tokens(timeline.overhead) for turns in (first, whole))
        turns_from = self._first_turn(budget - taken, asked)
        newest = self._writer.older(turns_from)
        numbers = range(turns_from, self._live_from)
        bare = self._bare_turns(numbers)
        taken = self._live + sum(turns.tokens(timeline.overhead) for turns in (first, newest, bare))
        summaries, summary_cuts = self._summary_zones(budget - taken)
        cuts |= summary_cuts
        room = min(LINES_SHARE * budget, budget - taken) - sum(zone.tokens for zone in summaries)
        shown = self._shown_live()
        shown.add_messages((*first.messages, *newest.messages))
        self._show_turns(shown, numbers, ())
        zone, picks, turns = self._fitting(turns_from, shown, room=room, bare=bare, is_first=not summaries)
        zones = (*summaries, zone) if zone is not None else summaries
        return Projection(
            turns_from,
            self._live_from,
            first_asked,
            asked,
            picks,
            cuts,
            stable=len(first.messages) if first == before.first else 0,
            limit=before.limit,
            first=first,
            zones=zones,
            turns=Turns.joined((newest, turns)),
        )

    # ------------------------------------------------------------ steps

    def _first_kept(self) -> int:
        """The first unit of the newest ones that stay whole: at least the last one."""
        timeline, room = self._timeline, TAIL_SHARE * self._budget
        kept = len(timeline.units) - 1
        # By what they say: how many stay whole does not depend on what the target writes around them.
        size = timeline.said_in(kept)
        while kept > 0:
            unit = timeline.units[kept - 1]
            # A unit whose last message lies within reach stays, however long its first one is.
            if size + unit.sizes[-1] - count_overhead(unit.messages[-1], timeline.overhead) > room:
                break
            if timeline.tokens_from(kept) > MOST_TAIL * room:  # what stands around many short messages
                break
            kept -= 1
            size += timeline.said_in(kept)
        return kept

    def _live_cuts(self) -> dict[int, int]:
        """How long the texts of the last unit may be, if it is too long; units before it stay whole only if all fit."""
        timeline, last = self._timeline, len(self._timeline.units) - 1
        while self._live_from < last and timeline.tokens_from(self._live_from) > self._budget - self._least_ledger():
            self._live_from += 1
        room = self._budget - self._least_ledger()
        limit = min(room, LIVE_SHARE * self._budget) if self._live_from else room
        cuts: dict[int, int] = {}
        size = 4 * self._budget
        while size >= 40 and cut_unit(timeline.units[last], cuts, timeline.count).tokens > limit:
            size = int(size * 0.7)
            cuts = dict.fromkeys((entry.serial for entry in timeline.units[last].entries), size)
        return cuts

    def _least_ledger(self) -> int:
        """The tokens of a ledger that says nothing but that there is one."""
        zones, _ = self._summary_zones(0)
        if self._live_from and not zones:
            zones = (zone_text(self._timeline, self._index, Zone(), {}, is_first=True),)
        return sum(zone.tokens for zone in zones)

    def _first_turn(self, room: float, asked: Sequence[int]) -> int:
        """The first unit that is shown as a turn: as many of the newest as have room beside the words of `asked`."""
        share = max(TURNS_SHARE * self._budget, min(LEAST_TURNS, MOST_TURNS_SHARE * self._budget))
        first = self._live_from
        while first > self._covered:
            size = self._bare_turn(first - 1).tokens(self._timeline.overhead)
            share -= size
            room -= 0 if self._timeline.serials[first - 1] in asked else size
            if min(room, share) < 0:
                break
            first -= 1
        return first

    def _requests(self, room: float) -> tuple[dict[int, int], list[int]]:
        """How long the texts of a person's first and newest words may be, and the units of those that stay whole.

        Each has at most its share of the budget and half the room; one that no cut makes short enough does not stay.
        """
        timeline, limit = self._timeline, min(REQUEST_SHARE * self._budget, room / 2)
        cuts: dict[int, int] = {}
        kept: list[int] = []
        for place in sorted({*timeline.asked[:1], *timeline.asked[-1:]}):
            if not self._covered <= place < self._live_from:
                continue
            unit, size = timeline.units[place], 4 * self._budget
            while size >= 40 and cut_unit(unit, cuts, timeline.count).tokens > limit:
                size = int(size * 0.7)
                cuts[unit.serial] = size
            if cut_unit(unit, cuts, timeline.count).tokens <= limit:
                kept.append(place)
        return cuts, kept

    def _bare_turn(self, place: int) -> Turns:
        known = self._bare.get(place)
        if known is None:
            known = self._bare[place] = self._writer.turn(place, ())
        return known

    def _bare_turns(self, places: Iterable[int]) -> Turns:
        return Turns.joined(map(self._bare_turn, places))

    def _turns(self, places: Iterable[int], picks: Sequence[Pick]) -> Turns:
        """Units as turns with lines of their results; those that have none are at hand."""
        picked = {pick.serial for pick in picks}
        return Turns.joined(
            self._writer.turn(place, picks)
            if any(entry.serial in picked for entry in self._timeline.units[place].entries)
            else self._bare_turn(place)
            for place in places
        )

    def _shown_live(self) -> Shown:
        """What the units that stay whole show."""
        shown = Shown()
        for unit in self._timeline.units[self._live_from :]:
            for number in self._numbers(unit.entries):
                shown.add_block(self._index, number)
        return shown

    def _show_turns(self, shown: Shown, places: Iterable[int], picks: Iterable[Pick]) -> None:
        """Take in what units show as turns."""
        for pick in picks:
            block = self._index.blocks[self._index.block_at(pick.serial, pick.place)]
            for line in pick.lines:
                shown.add_lines((block.keys[line],), block.names[line])
        for place in places:
            entries = self._timeline.units[place].entries
            for number in self._numbers(results_of(self._timeline.units[place])):
                block = self._index.blocks[number]
                for line in head_of(block):
                    shown.add_lines((block.keys[line],), block.names[line])
            numbers = self._numbers(entry for entry in entries if not isinstance(entry, ToolResultsEntry))
            if sum(len(line) for number in numbers for line in self._index.blocks[number].lines) <= CAP:
                for number in numbers:
                    shown.add_block(self._index, number)
            else:  # something in it may be cut
                shown.add_messages(
                    message for message in self._bare_turn(place).messages if message.role is not Role.TOOL
                )

    def _summary_zones(self, room: float) -> tuple[tuple[ZoneText, ...], dict[int, int]]:
        """The ledger's beginning: models' summaries of all that they cover, and how they had to be cut to fit."""
        serials = self._timeline.summaries()
        size, cuts = 4 * self._budget, dict[int, int]()
        while True:
            zones = tuple(
                zone_text(self._timeline, self._index, Zone(summary=serial), cuts, is_first=place == 0)
                for place, serial in enumerate(serials)
            )
            if size == 0 or sum(zone.tokens for zone in zones) <= room:
                return zones, cuts
            size = int(size * 0.7)
            cuts = dict.fromkeys(serials, size)

    def _fitting(
        self, turns_from: int, shown: Shown, *, room: float, bare: Turns, is_first: bool
    ) -> tuple[ZoneText | None, tuple[Pick, ...], Turns]:
        """The ledger, the lines that results keep, and the turns with them, chosen again as long as they count more.

        Where nothing was summarised the ledger is written even if nothing is worth keeping: it says that something is
        missing, and a request begins with the user's side.
        """
        timeline, numbers = self._timeline, range(turns_from, self._live_from)
        results = {number for number, _ in self._results(numbers)}
        candidates = [*self._folded(turns_from), *self._whole_units(numbers)]
        names = [] if self.is_compacted else [name for zone in self._before.zones for name in zone.zone.names]
        is_needed = is_first and (turns_from > 0 or timeline.messages_from(0)[0].role is not Role.USER)
        limit = room
        while True:
            chosen = choose(
                self._index, self._judge, candidates, shown, listed_names=names, rates=self._rates, room=limit
            )
            inside = {pick for pick in chosen.picks if self._index.block_at(pick.serial, pick.place) in results}
            picks, told = _parted(chosen.picks, inside)
            zone = msgspec.structs.replace(chosen, picks=told)
            is_empty = not told and not zone.names and not zone.gists
            text = None
            if is_needed or not is_empty:
                text = zone_text(timeline, self._index, zone, {}, is_first=is_first)
            turns = self._turns(numbers, picks)
            used = turns.tokens(timeline.overhead) - bare.tokens(timeline.overhead) + (text.tokens if text else 0)
            if used <= room or (is_empty and not picks):
                return text, picks, turns
            limit = _less(limit, room, used)

    def _folded(self, turns_from: int) -> Iterator[Candidate]:
        """What the ledger may keep of the units before the turns: young ones whole, else what it had."""
        timeline, index = self._timeline, self._index
        oldest, first = index.position - RETURN_TOKENS, turns_from
        while first > self._covered:
            numbers = self._numbers(timeline.units[first - 1].entries)
            if first <= self._before.turns_from and numbers and index.blocks[numbers[0]].position < oldest:
                break
            first -= 1
        yield from self._whole_units(range(first, turns_from))
        if self.is_compacted:
            return
        known = timeline.serial_of(first)
        for zone in self._before.zones:
            for pick in zone.zone.picks:
                if pick.serial < known:
                    yield index.block_at(pick.serial, pick.place), pick.lines
            yield from ((index.block_at(*gist), ()) for gist in zone.zone.gists if gist[0] < known)

    def _results(self, places: Iterable[int]) -> Iterator[Candidate]:
        """The results of units, whole."""
        return self._whole(entry for place in places for entry in results_of(self._timeline.units[place]))

    def _whole_units(self, places: Iterable[int]) -> Iterator[Candidate]:
        return self._whole(entry for place in places for entry in self._timeline.units[place].entries)

    def _whole(self, entries: Iterable[HistoryEntry]) -> Iterator[Candidate]:
        for number in self._numbers(entries):
            yield number, range(len(self._index.blocks[number].lines))

    def _numbers(self, entries: Iterable[HistoryEntry]) -> list[int]:
        """The numbers of the blocks that entries became."""
        ranges = (self._index.blocks_of.get(entry.serial, (0, 0)) for entry in entries)
        return [number for first, last in ranges for number in range(first, last)]


def _parted(picks: Sequence[Pick], inside: set[Pick]) -> tuple[tuple[Pick, ...], tuple[Pick, ...]]:
    """Those of the picks that are inside, and the others, each in their order."""
    return tuple(pick for pick in picks if pick in inside), tuple(pick for pick in picks if pick not in inside)


def _less(limit: float, room: float, used: float) -> float:
    """The room to choose in next, where what was chosen in `limit` tokens counts `used` and not `room`."""
    return min(limit * 0.9, limit * room / used - 8)
