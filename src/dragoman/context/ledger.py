"""What was folded, as messages: chosen lines of old entries, to the byte, and names alone.

A ledger is a list of zones, each one user message. Every line in it is a line of the history, or a marker. Markers have
one form: they begin with `⋯`. `⋯#12 read_file` opens what entry 12 said (with `recall` it comes back whole), a bare
`⋯` stands where lines were left out, `⋯ names` lists names that no shown line has.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from ..errors import UnreadableData
from ..message import Message
from .index import Block, HistoryIndex

__all__ = ["MARKER", "Pick", "Zone", "ZoneText", "write_zone"]

MARKER = "⋯"
_OPENING = f"{MARKER} what came before, shortened: {MARKER}#n is entry n, which recall returns whole"


class Pick(msgspec.Struct, frozen=True):
    """Lines of one block: the entry's serial, the block's place in it, and ranges of lines, ends included."""

    serial: int
    place: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, block: Block, lines: Iterable[int]) -> "Pick":
        """Return the pick of these lines of a block."""
        ranges: list[tuple[int, int]] = []
        for line in sorted(lines):
            if ranges and ranges[-1][1] == line - 1:
                ranges[-1] = (ranges[-1][0], line)
            else:
                ranges.append((line, line))
        return cls(block.serial, block.place, tuple(ranges))

    @property
    def lines(self) -> list[int]:
        """The chosen lines, in order."""
        return [line for first, last in self.ranges for line in range(first, last + 1)]


class Zone(msgspec.Struct, frozen=True):
    """What one message of the ledger shows; `summary` is the serial of a compaction entry that it begins with.

    `gists` are blocks, by serial and place, of which the given gist is shown and no line.
    """

    picks: tuple[Pick, ...] = ()
    names: tuple[str, ...] = ()
    summary: int | None = None
    gists: tuple[tuple[int, int], ...] = ()

    def written(self) -> dict[str, Any]:
        """Return the zone as an epoch entry keeps it: picks as `serial.place:first-last,line …`."""
        gists = " ".join(f"{serial}.{place}" for serial, place in self.gists)
        return {
            "picks": write_picks(self.picks),
            "names": " ".join(self.names),
            "summary": self.summary,
            "gists": gists,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Zone":
        """Return the zone that an epoch entry keeps; raise what int() and the mapping raise for anything else."""
        summary = data["summary"]
        return cls(
            read_picks(data["picks"]),
            tuple(data["names"].split()),
            None if summary is None else int(summary),
            tuple(_read_place(place) for place in data["gists"].split()),
        )


def write_picks(picks: Iterable[Pick]) -> str:
    """Return picks as an epoch entry keeps them: `serial.place:first-last,line …`."""
    return " ".join(
        f"{pick.serial}.{pick.place}:"
        + ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pick.ranges)
        for pick in picks
    )


def read_picks(text: str) -> tuple[Pick, ...]:
    """Return the picks that an epoch entry keeps; raise what int() raises for anything else."""
    return tuple(map(_read_pick, text.split()))


def _read_place(text: str) -> tuple[int, int]:
    serial, _, place = text.partition(".")
    if int(place) < 0:
        raise ValueError("no such place")
    return int(serial), int(place)


def _read_pick(text: str) -> Pick:
    where, _, lines = text.partition(":")
    serial, _, place = where.partition(".")
    ranges = [part.partition("-") for part in lines.split(",")]
    read = tuple((int(first), int(last or first)) for first, _, last in ranges)
    if int(place) < 0 or any(first > last for first, last in read) or any(a[1] >= b[0] for a, b in pairwise(read)):
        raise ValueError("ranges in disorder")
    return Pick(int(serial), int(place), read)


class ZoneText(msgspec.Struct, frozen=True):
    """A zone as it is sent, with what it shows."""

    zone: Zone
    message: Message
    tokens: int
    keys: frozenset[str]
    names: frozenset[str]


def write_zone(zone: Zone, index: HistoryIndex, *, is_first: bool, summary: str | None) -> str:
    """Return the zone's text; the first one says what a ledger is."""
    lines = [_OPENING] if is_first else []
    if summary is not None:
        lines += (f"{MARKER} summary", summary)
    told = [*zone.picks, *(Pick(serial, place, ()) for serial, place in zone.gists)]
    for pick in sorted(told, key=lambda each: (each.serial, each.place)):
        block = picked_block(index, pick)
        lines.append(" ".join((f"{MARKER}#{block.serial}", *block.tool.split())))
        if not pick.ranges and block.gist is not None:
            lines.append(block.gist)
        lines += picked_lines(block, pick)
    if zone.names:
        lines.append(f"{MARKER} names: {' '.join(zone.names)}")
    return "\n".join(lines)


def shown_in(zone: Zone, index: HistoryIndex) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys of the lines that a zone shows, and the names in those lines."""
    keys: set[str] = set()
    names: set[str] = set()
    for pick in zone.picks:
        block = picked_block(index, pick)
        for line in pick.lines:
            keys.add(block.keys[line])
            names.update(block.names[line])
    return frozenset(keys), frozenset(names)


def picked_lines(block: Block, pick: Pick) -> list[str]:
    """Return the picked lines of a block, with a marker wherever lines before them were left out."""
    lines: list[str] = []
    shown = -1
    for first, last in pick.ranges:
        if first > shown + 1:
            lines.append(MARKER)
        lines += block.lines[first : last + 1]
        shown = last
    return lines


def picked_block(index: HistoryIndex, pick: Pick) -> Block:
    """Return the block that a pick is of; raise UnreadableData if there is none with such lines."""
    try:
        block = index.blocks[index.block_at(pick.serial, pick.place)]
    except (KeyError, IndexError):
        raise UnreadableData(f"epoch: entry {pick.serial} has no part {pick.place}") from None
    if block.serial != pick.serial or (pick.ranges and pick.ranges[-1][1] >= len(block.lines)):
        raise UnreadableData(f"epoch: entry {pick.serial} has no such lines")
    return block


def picks_in_order(chosen: dict[int, list[int]], blocks: Sequence[Block]) -> tuple[Pick, ...]:
    """Return chosen lines, by block, as picks in the order of the history."""
    return tuple(Pick.of(blocks[number], lines) for number, lines in sorted(chosen.items()))
