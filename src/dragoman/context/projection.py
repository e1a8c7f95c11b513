"""What an epoch chose, as a value: what stands before the units that stay whole, and how an epoch entry keeps it.

A projection shows the first request, a ledger, turns in less room, then everything newer, whole. `epochs` decides when
and how levels change. Pure: the same timeline and choices give the same bytes.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from ..errors import UnreadableData
from ..history import EpochEntry, ToolResultsEntry
from ..message import Message
from .cutting import cut_text, cut_unit
from .index import HistoryIndex
from .ledger import Pick, Zone, ZoneText, picked_block, read_picks, shown_in, write_picks, write_zone
from .timeline import Timeline, Unit
from .tokens import count_message
from .turns import Turns, reduce_unit

__all__ = ["CAP", "PROJECTION_VERSION", "Projection", "Writer", "read_projection", "results_of", "zone_text"]

# Raised whenever the same choices would be shown differently.
PROJECTION_VERSION = 5

# The characters that a text or an argument has in a turn that was reduced. Shorter ones cost turns that can be read.
CAP = 1_600


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
    if turns_from > live_from or not spoken.issuperset({*asked, first_asked} - {None}):
        raise UnreadableData(f"epoch {epoch.serial}: its levels are in disorder")
    _require_results(timeline.units[turns_from:live_from], picks, index, epoch)
    if any(name not in index.names for zone in zones for name in zone.names):
        raise UnreadableData(f"epoch {epoch.serial}: a name that no entry holds")
    texts = tuple(zone_text(timeline, index, zone, cuts, is_first=place == 0) for place, zone in enumerate(zones))
    writer = Writer(timeline, first_asked, asked, cuts)
    turns = Turns.joined(
        (writer.older(turns_from), *(writer.turn(place, picks) for place in range(turns_from, live_from)))
    )
    first = writer.first()
    return Projection(turns_from, live_from, first_asked, asked, picks, cuts, stable, low, limit, first, texts, turns)


def _require_results(turns: Sequence[Unit], picks: Sequence[Pick], index: HistoryIndex, epoch: EpochEntry) -> None:
    """Raise UnreadableData unless every pick has lines of a result of these turns."""
    results = {entry.serial for unit in turns for entry in results_of(unit)}
    for pick in picks:
        picked_block(index, pick)  # there is one, and it has such lines
        if pick.serial not in results:
            raise UnreadableData(f"epoch {epoch.serial}: lines of what is no result of a turn")


def _whole(value: Any) -> int:
    """The number that a choice is; raise what int() raises, or ValueError for one that no history comes to."""
    number = int(value)
    if not 0 <= number < 2**53:
        raise ValueError("out of range")
    return number


class Writer:
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


def results_of(unit: Unit) -> Iterator[ToolResultsEntry]:
    """Return the entries of a unit that hold results."""
    return (entry for entry in unit.entries if isinstance(entry, ToolResultsEntry))


def zone_text(
    timeline: Timeline, index: HistoryIndex, zone: Zone, cuts: Mapping[int, int], *, is_first: bool
) -> ZoneText:
    """Return a zone as it is sent; raise UnreadableData if it names a compaction that is none."""
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
