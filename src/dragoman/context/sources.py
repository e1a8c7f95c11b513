"""Where each message of a context comes from: the entry, at which level of detail. Pure."""

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from ..history import LevelOfDetail
from .projection import Projection
from .timeline import Timeline, Unit

__all__ = ["MessageSource", "find_sources"]


class MessageSource(msgspec.Struct, frozen=True, gc=False):
    """Where a message comes from. `serial` is that of its entry, None for the ledger and the LiveScreen.

    With `has_screen` the message is the LiveScreen, or a result that ends with it.
    """

    serial: int | None
    level: LevelOfDetail = LevelOfDetail.LIVE
    has_screen: bool = False


def find_sources(timeline: Timeline, projection: Projection) -> Iterator[MessageSource]:
    """Yield the source of each message that the projection shows, in their order; the LiveScreen is not among them."""

    def of(unit: Unit, level: LevelOfDetail = LevelOfDetail.LIVE) -> Iterator[MessageSource]:
        for entry, messages in unit.by_entry():
            yield from [MessageSource(entry.serial, level)] * len(messages)

    def spoken(serial: int) -> Iterator[MessageSource]:
        return of(timeline.units[bisect_left(timeline.serials, serial)])

    if projection.first_asked is not None:
        yield from spoken(projection.first_asked)
    for _ in projection.zones:
        yield MessageSource(None, LevelOfDetail.GIST)
    first_turn = timeline.serial_of(projection.turns_from)
    for serial in projection.asked:
        if serial < first_turn:
            yield from spoken(serial)
    for place in range(projection.turns_from, projection.live_from):
        serial = timeline.serials[place]
        if serial != projection.first_asked:
            is_whole = serial in projection.asked
            yield from of(timeline.units[place], LevelOfDetail.LIVE if is_whole else LevelOfDetail.SUMMARY)
    for unit in timeline.units[projection.live_from :]:
        yield from of(unit)
