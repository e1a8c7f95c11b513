"""What one model call was sent, part by part, at which level, and what was folded of each entry. Pure.

Everything is read from the entries before the call and the newest epoch among them: nothing is chosen anew.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...context import EstimateCounter
from ...context.cutting import cut_unit
from ...context.projection import Projection, Writer
from ...context.timeline import Aim, Timeline, Unit
from ...context.turns import head_of
from ...history import HistoryEntry
from ...message import Image, Message, ModelInvocationDescriptor, Role, Text, Thinking, ToolCall, ToolResult
from .calls import projection_of
from .jobs import Check, never_abandon

__all__ = ["MOST_PARTS", "CallContext", "Part", "describe_entry", "describe_parts", "levels_of", "read_context"]

_COUNTER = EstimateCounter()
LINE_LENGTH = 200
CHUNK = 10_000  # entries after which it is asked whether anybody still waits
MOST_PARTS = 2_000  # that are told one by one; those before them are summed up by category
_CATEGORIES = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "results", Role.SYSTEM: "system"}


class Part(msgspec.Struct, rename="camel"):
    """One part of a request: what it is, at which level, of which entry, how long, and how it begins.

    With a `count` above 1 it stands for so many parts, which are left out.
    """

    category: str
    level: str
    tokens: int
    text: str
    serial: int | None = None
    messages: int = 1  # how many of the request's messages it is, for the anchors
    is_anchor: bool = False
    count: int = 1


class CallContext(msgspec.Struct, frozen=True):
    """The timeline before a call, and what was shown of it."""

    timeline: Timeline
    projection: Projection


def read_context(
    entries: Sequence[HistoryEntry], invocation: ModelInvocationDescriptor | None, check: Check = never_abandon
) -> CallContext:
    """Return what a call after these entries is shown, as the newest epoch among them chose it."""
    timeline = Timeline(_COUNTER)
    if invocation is not None:
        timeline.aim_at(Aim(invocation))  # so that each entry is counted once
    for end in range(CHUNK, len(entries), CHUNK):
        check()
        timeline.extend(entries[:end])
    timeline.extend(entries)
    timeline.aim_at(Aim(invocation or timeline.invocation))
    return CallContext(timeline, projection_of(timeline))


def describe_parts(context: CallContext, most: int | None = None) -> list[Part]:
    """Return the parts in the order of the request, without tools: which ones there were, the record may not say.

    With `most`, about so many of the newest ones are told one by one.
    """
    timeline, projection = context.timeline, context.projection
    parts: list[Part] = []
    if timeline.instruction:
        tokens = timeline.counter.count(timeline.instruction)
        parts.append(Part("system", "fixed", tokens, _begins(timeline.instruction), messages=0))
    parts += _turn_parts(context)
    units = projection.live_units(timeline)
    first = 0 if most is None else max(len(units) - most, 0)
    parts += _summed_up(units[:first])
    for unit in units[first:]:
        parts += _unit_parts(unit, timeline, "live")
    if timeline.screen:
        screen = Message.user(timeline.screen)
        parts.append(Part("screen", "live", timeline.count(screen), _begins(timeline.screen)))
    return parts


def _summed_up(units: Sequence[Unit]) -> list[Part]:
    """The parts of units, one for each category."""
    summed: dict[str, Part] = {}
    for unit in units:
        for message, size in zip(unit.messages, unit.sizes, strict=True):
            category = _CATEGORIES[message.role]
            part = summed.get(category)
            if part is None:
                part = summed[category] = Part(category, "live", 0, "", messages=0, count=0)
            part.tokens += size
            part.messages += 1
            part.count += 1
    for part in summed.values():
        part.text = f"{part.count:,} earlier parts"
    return list(summed.values())


def _turn_parts(context: CallContext) -> Iterator[Part]:
    """The first request, the ledger, and the turns in less room."""
    timeline, projection = context.timeline, context.projection
    writer = Writer(timeline, projection.first_asked, projection.asked, projection.cuts)
    if projection.first_asked is not None:
        yield from _message_parts(projection.first.messages, timeline, "live", projection.first_asked)
    for zone in projection.zones:
        lines = len({pick.serial for pick in zone.zone.picks})
        names = len(zone.zone.names)
        told = f"lines of {lines} entries, {names} names" if zone.zone.summary is None else "a summary"
        yield Part("ledger", "summary", zone.tokens, told)
    older = [serial for serial in projection.asked if serial < timeline.serial_of(projection.turns_from)]
    for serial in older:
        unit = timeline.units[bisect_left(timeline.serials, serial)]
        yield from _unit_parts(cut_unit(unit, projection.cuts, timeline.count), timeline, "live")
    for place in range(projection.turns_from, projection.live_from):
        unit = timeline.units[place]
        level = "live" if unit.serial in projection.asked else "summary"
        messages = writer.turn(place, projection.picks).messages
        serials = [entry.serial for entry, said in unit.by_entry() for _ in said]
        for index, message in enumerate(messages):
            serial = serials[index] if index < len(serials) else unit.serial
            yield from _message_parts((message,), timeline, level, serial)


def _unit_parts(unit: Unit, timeline: Timeline, level: str) -> Iterator[Part]:
    for entry, messages in unit.by_entry():
        yield from _message_parts(messages, timeline, level, entry.serial)


def _message_parts(messages: Iterable[Message], timeline: Timeline, level: str, serial: int) -> Iterator[Part]:
    for message in messages:
        yield Part(_CATEGORIES[message.role], level, timeline.count(message), _said(message), serial)


def _said(message: Message) -> str:
    pieces = []
    for part in message.parts:
        match part:
            case Text():
                pieces.append(part.text)
            case ToolCall():
                pieces.append(f"→ {part.tool_name} {part.raw_args_text[:LINE_LENGTH]}")
            case ToolResult():
                pieces.append(part.content if isinstance(part.content, str) else "(parts)")
            case Image():
                pieces.append("(picture)")
            case Thinking():
                continue
            case _:
                pieces.append(f"({part.kind})")
    return _begins(" ".join(piece[:LINE_LENGTH] for piece in pieces))


def _begins(text: str) -> str:
    return " ".join(text[: 2 * LINE_LENGTH].split())[:LINE_LENGTH]


def levels_of(context: CallContext) -> dict[str, list[int]]:
    """Return the serials of the entries at each level; `folded` are those of which nothing is shown."""
    timeline, projection = context.timeline, context.projection
    first_turn = timeline.serial_of(projection.turns_from)
    whole = {entry.serial for unit in timeline.units[projection.live_from :] for entry in unit.entries}
    whole |= {serial for serial in (projection.first_asked, *projection.asked) if serial is not None}
    turns = timeline.units[projection.turns_from : projection.live_from]
    summary = {entry.serial for unit in turns for entry in unit.entries}
    index = timeline.index
    summary |= {pick.serial for zone in projection.zones for pick in zone.zone.picks}
    gist = {serial for zone in projection.zones for serial, _ in zone.zone.gists}
    for zone in projection.zones:
        for name in zone.zone.names:
            use = index.names.get(name)
            if use is not None:
                gist.add(index.blocks[use.block].serial)
    summary -= whole
    gist = {serial for serial in gist if serial < first_turn} - whole - summary
    every = {entry.serial for unit in timeline.units for entry in unit.entries}
    return {
        "live": sorted(whole),
        "summary": sorted(summary),
        "gist": sorted(gist),
        "folded": sorted(every - whole - summary - gist),
    }


def describe_entry(context: CallContext, serial: int, check: Check = never_abandon) -> list[dict[str, Any]]:
    """Return the blocks of an entry: their lines, and the ranges of lines that the call was shown."""
    timeline, projection = context.timeline, context.projection
    check()
    index = timeline.indexed()
    first, last = index.blocks_of.get(serial, (0, 0))
    levels = levels_of(context)
    is_whole = serial in levels["live"]
    turns = {
        entry.serial for unit in timeline.units[projection.turns_from : projection.live_from] for entry in unit.entries
    }
    picks: dict[int, set[int]] = {}
    for pick in (*projection.picks, *(pick for zone in projection.zones for pick in zone.zone.picks)):
        if pick.serial == serial:
            picks.setdefault(pick.place, set()).update(pick.lines)
    described = []
    for block in index.blocks[first:last]:
        kept = picks.get(block.place, set())
        if is_whole:
            kept = set(range(len(block.lines)))
        elif serial in turns:
            kept |= set(head_of(block)) if block.kind.startswith("result") else set(range(len(block.lines)))
        described.append(
            {
                "tool": block.tool,
                "kind": block.kind,
                "lines": block.lines[:20_000],
                "kept": sorted(line for line in kept if line < 20_000),
                "tokens": block.tokens,
                "gist": block.gist,
            }
        )
    return described
