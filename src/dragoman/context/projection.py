"""Units to what a request shows of them: the first request, a ledger, turns in less room, then everything newer, whole.

Levels change only in epochs, the oldest first. Between two epochs a request is the last one with the new units added,
byte for byte, so that a provider's cache holds. Most epochs reduce the newest units in their place and leave all before
them alone; when that no longer fits, everything is laid out anew. Pure: same timeline, settings and time, same result.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from math import sqrt
from typing import Any

import msgspec

from ..errors import UnreadableData
from ..history import EpochEntry, HistoryEntry, ToolResultsEntry
from ..message import Message, ModelInvocationDescriptor, Role
from .choosing import Candidate, Rates, Shown, choose
from .cutting import cut_text, cut_unit
from .index import HistoryIndex
from .ledger import Pick, Zone, ZoneText, picked_block, read_picks, shown_in, write_picks, write_zone
from .timeline import Timeline, Unit
from .tokens import count_message, count_overhead
from .turns import Turns, reduce_unit
from .worth import Judge

__all__ = ["PROJECTION_VERSION", "Projection", "Settings", "find_epoch_reason", "read_projection", "start_epoch"]

# Raised whenever the same choices would be shown differently.
PROJECTION_VERSION = 4

# Shares of the budget, chosen by 430 settings tried on half of the recorded conversations at 8k to 64k tokens, and then
# measured on all of them (docs/context.md). TURNS_SHARE is for turns without the lines of their results: from .22 to .3
# the share of the next message that is still to be read rises by .008, and the bill by 4 %. LINES_SHARE is for chosen
# lines, in results and in the ledger together: from .2 to .3 far names rise by .03 to .06, and the bill by 5 %.
TAIL_SHARE = 0.105  # the newest units, which stay whole
TURNS_SHARE = 0.25
LINES_SHARE = 0.22
REQUEST_SHARE = 0.25  # a person's first words and newest words, each
MOST_TAIL = 2  # times TAIL_SHARE, with all that a target writes around messages
LIVE_SHARE = 0.45  # a last unit that is longer is cut, where turns stand before it
# An epoch that only reduces the newest units must leave the request no fuller than this; else all is laid out anew.
FULL_SHARE = 0.95
# How full a context must be for an epoch to be worth its while when the cache is gone anyway.
FREE_SHARE = 0.2
# The characters that a text or an argument has in a turn that was reduced. Shorter ones cost turns that can be read.
CAP = 1_600
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


class Projection(msgspec.Struct, frozen=True):
    """What an epoch chose, and what it shows before the units that stay whole.

    `turns_from` is the first unit that is shown as a turn, `live_from` the first that stays whole, both by number.
    `first_asked` is the serial of a person's first words if they stand before the ledger, `asked` those of newer words
    that stay whole, before the turns or among them. `picks` are the lines that results of turns keep; `cuts` says for
    an entry's serial how many characters each of its texts may have. `stable` counts the messages that the projection
    before it began with too, `low` is the size that the epoch left, `limit` what a provider that refused a request has
    taught us to stay below.
    """

    turns_from: int = 0
    live_from: int = 0
    first_asked: int | None = None
    asked: tuple[int, ...] = ()
    picks: tuple[Pick, ...] = ()
    cuts: dict[int, int] = {}
    stable: int = 0
    low: int = 0
    limit: int | None = None
    # What is shown: the first request, the ledger, the turns, a newer request among them.
    first: Turns = Turns()
    zones: tuple[ZoneText, ...] = ()
    turns: Turns = Turns()

    @property
    def ledger_end(self) -> int:
        """How many messages stand before the turns."""
        return len(self.first.messages) + len(self.zones)

    @property
    def folded_messages(self) -> list[Message]:
        """What stands before the units that stay whole."""
        return [*self.first.messages, *(zone.message for zone in self.zones), *self.turns.messages]

    def live_units(self, timeline: Timeline) -> Sequence[Unit]:
        """Return the units that stay whole, cut where that was chosen."""
        units = timeline.units[self.live_from :]
        return [cut_unit(unit, self.cuts, timeline.count) for unit in units] if self.cuts else units

    def messages(self, timeline: Timeline) -> list[Message]:
        """Return what a model is shown."""
        if not self.cuts:  # a turn costs this for all that is old: a copy of a list
            return [*self.folded_messages, *timeline.messages_from(self.live_from)]
        return [*self.folded_messages, *chain.from_iterable(unit.messages for unit in self.live_units(timeline))]

    def folded_tokens(self, timeline: Timeline) -> int:
        """Return what `folded_messages` count."""
        ledger = sum(zone.tokens for zone in self.zones)
        return self.first.tokens(timeline.overhead) + ledger + self.turns.tokens(timeline.overhead)

    def live_tokens(self, timeline: Timeline) -> int:
        """Return what the units that stay whole count."""
        if not self.cuts:
            return timeline.tokens_from(self.live_from)
        return sum(unit.tokens for unit in self.live_units(timeline))

    def tokens(self, timeline: Timeline) -> int:
        """Return what the request counts."""
        return self.folded_tokens(timeline) + self.live_tokens(timeline)

    def shows_same(self, other: "Projection") -> bool:
        """Whether another projection shows the same of the same timeline."""
        names = ("turns_from", "live_from", "first_asked", "asked", "picks", "cuts", "limit", "zones")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def choices(self, timeline: Timeline) -> dict[str, Any]:
        """Return the projection as an epoch entry keeps it."""
        return {
            "zones": [zone.zone.written() for zone in self.zones],
            "turnsFrom": timeline.serial_of(self.turns_from),
            "liveFrom": timeline.serial_of(self.live_from),
            "firstAsked": self.first_asked,
            "asked": list(self.asked),
            "picks": write_picks(self.picks),
            "cuts": {str(serial): size for serial, size in self.cuts.items()},
            "stable": self.stable,
            "low": self.low,
            "limit": self.limit,
        }


def read_projection(timeline: Timeline, epoch: EpochEntry) -> Projection:
    """Return what an epoch entry chose; raise UnreadableData if its choices are none of this version's."""
    choices = epoch.choices
    try:
        turns_serial, live_serial = _whole(choices["turnsFrom"]), _whole(choices["liveFrom"])
        stable, low = _whole(choices["stable"]), _whole(choices["low"])
        cuts = {_whole(serial): _whole(size) for serial, size in choices["cuts"].items()}
        limit = None if choices["limit"] is None else _whole(choices["limit"])
        zones = [Zone.read(zone) for zone in choices["zones"]]
        picks = read_picks(choices["picks"])
        asked = tuple(_whole(serial) for serial in choices["asked"])
        first_asked = None if choices["firstAsked"] is None else _whole(choices["firstAsked"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableData(f"epoch {epoch.serial}: {type(error).__name__} in its choices") from None
    turns_from, live_from = (timeline.find_unit(serial, epoch) for serial in (turns_serial, live_serial))
    index = timeline.indexed()
    spoken = {timeline.serials[place] for place in timeline.asked if place < live_from}
    results = {entry.serial for unit in timeline.units[turns_from:live_from] for entry in _results_of(unit)}
    if turns_from > live_from or not spoken.issuperset({*asked, first_asked} - {None}):
        raise UnreadableData(f"epoch {epoch.serial}: its levels are in disorder")
    for pick in picks:
        picked_block(index, pick)  # there is one, and it has such lines
        if pick.serial not in results:
            raise UnreadableData(f"epoch {epoch.serial}: lines of what is no result of a turn")
    if any(name not in index.names for zone in zones for name in zone.names):
        raise UnreadableData(f"epoch {epoch.serial}: a name that no entry holds")
    texts = tuple(_zone_text(timeline, index, zone, cuts, is_first=place == 0) for place, zone in enumerate(zones))
    writer = _Writer(timeline, first_asked, asked, cuts)
    turns = Turns.joined(
        (writer.older(turns_from), *(writer.turn(place, picks) for place in range(turns_from, live_from)))
    )
    first = writer.first()
    return Projection(turns_from, live_from, first_asked, asked, picks, cuts, stable, low, limit, first, texts, turns)


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
    if size > FREE_SHARE * settings.budget and timeline.asked_at is not None and not timeline.is_renewed:
        if (now - timeline.asked_at).total_seconds() > settings.cache_seconds:
            return "cache expired"
        if invocation is not None and timeline.invocation is not None and invocation != timeline.invocation:
            return "model changed"
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
        self._writer = _Writer(timeline, None, (), {})

    def reduce_newest(self) -> Projection | None:
        """The projection with the units that are no longer live as turns, all before them as it was.

        None where nothing was reduced before, or where that would leave the request too full.
        """
        timeline, before = self._timeline, self._before
        numbers = range(before.live_from, self._live_from)
        spoken = [place for place in self._spoken if place in numbers]
        asked = before.asked + tuple(timeline.serials[place] for place in spoken)
        kept = (before.first_asked, *asked, *timeline.compactions)
        cuts = {serial: size for serial, size in before.cuts.items() if serial in kept}
        cuts |= self._cuts | {serial: size for serial, size in self._request_cuts.items() if serial in asked}
        self._writer = _Writer(timeline, before.first_asked, asked, cuts)
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
        self._writer, self._bare = _Writer(timeline, first_asked, asked, cuts), {}
        first = self._writer.first()
        turns_from = self._first_turn(budget - self._live - self._least_ledger() - first.tokens(timeline.overhead))
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
            zones = (_zone_text(self._timeline, self._index, Zone(), {}, is_first=True),)
        return sum(zone.tokens for zone in zones)

    def _first_turn(self, room: float) -> int:
        """The first unit that is shown as a turn: as many of the newest as have room."""
        first = self._live_from
        room = min(room, TURNS_SHARE * self._budget)
        while first > self._covered:
            room -= self._bare_turn(first - 1).tokens(self._timeline.overhead)
            if room < 0:
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
                _zone_text(self._timeline, self._index, Zone(summary=serial), cuts, is_first=place == 0)
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
            inside = [self._index.block_at(pick.serial, pick.place) in results for pick in chosen.picks]
            picks = tuple(pick for pick, is_inside in zip(chosen.picks, inside, strict=True) if is_inside)
            told = tuple(pick for pick, is_inside in zip(chosen.picks, inside, strict=True) if not is_inside)
            zone = msgspec.structs.replace(chosen, picks=told)
            is_empty = not told and not zone.names and not zone.gists
            text = None
            if is_needed or not is_empty:
                text = _zone_text(timeline, self._index, zone, {}, is_first=is_first)
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
        units = (self._timeline.units[place] for place in places)
        entries = (entry for unit in units for entry in unit.entries if isinstance(entry, ToolResultsEntry))
        return self._whole(entries)

    def _whole_units(self, places: Iterable[int]) -> Iterator[Candidate]:
        return self._whole(entry for place in places for entry in self._timeline.units[place].entries)

    def _whole(self, entries: Iterable[HistoryEntry]) -> Iterator[Candidate]:
        for number in self._numbers(entries):
            yield number, range(len(self._index.blocks[number].lines))

    def _numbers(self, entries: Iterable[HistoryEntry]) -> list[int]:
        """The numbers of the blocks that entries became."""
        ranges = (self._index.blocks_of.get(entry.serial, (0, 0)) for entry in entries)
        return [number for first, last in ranges for number in range(first, last)]


def _less(limit: float, room: float, used: float) -> float:
    """The room to choose in next, where what was chosen in `limit` tokens counts `used` and not `room`."""
    return min(limit * 0.9, limit * room / used - 8)


class _Writer:
    """Units as they are shown before the live ones: a person's words that stay, and turns in less room."""

    def __init__(
        self, timeline: Timeline, first_asked: int | None, asked: Sequence[int], cuts: Mapping[int, int]
    ) -> None:
        self._timeline, self._first_asked, self._asked, self._cuts = timeline, first_asked, asked, cuts

    def first(self) -> Turns:
        """Return the first words of a person, if they stand before the ledger."""
        return Turns() if self._first_asked is None else self._whole(self._first_asked)

    def older(self, turns_from: int) -> Turns:
        """Return newer words that stay whole although they are older than the turns."""
        older = [serial for serial in self._asked if serial < self._timeline.serial_of(turns_from)]
        return Turns.joined(map(self._whole, older))

    def turn(self, place: int, picks: Sequence[Pick]) -> Turns:
        """Return a unit as a turn with the picked lines; nothing if it stands before the ledger."""
        timeline, serial = self._timeline, self._timeline.serials[place]
        if serial == self._first_asked:
            return Turns()
        if serial in self._asked:
            return self._whole(serial)
        by_place = {(pick.serial, pick.place): pick for pick in picks}
        return Turns.of(reduce_unit(timeline.units[place], by_place, timeline.index, CAP), timeline.counter)

    def _whole(self, serial: int) -> Turns:
        timeline = self._timeline
        unit = timeline.units[bisect_left(timeline.serials, serial)]
        return Turns.of(cut_unit(unit, self._cuts, timeline.count).messages, timeline.counter)


def _results_of(unit: Unit) -> Iterator[ToolResultsEntry]:
    return (entry for entry in unit.entries if isinstance(entry, ToolResultsEntry))


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
