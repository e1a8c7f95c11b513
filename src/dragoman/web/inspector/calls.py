"""Every model call of a session in one pass: what it was sent by level, what it used, cost and took. Pure.

Where the provider reported no usage, tokens are our estimate. A figure that nobody knows is None, never 0.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...catalogue import find_model_info
from ...context import EstimateCounter
from ...context.projection import PROJECTION_VERSION, Projection, read_projection
from ...context.timeline import Aim, Timeline
from ...errors import UnreadableData
from ...history import (
    EpochEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelOutputEntry,
    RunStartedEntry,
    ToolSetEntry,
    ToolSets,
)
from ...message import Message, ModelInvocationDescriptor
from ...models.recorded import FIRST_PIECE_KEY
from ...toolspec import ToolSpec
from ...usage import Prices, TokenUsage
from .outlines import model_of

__all__ = ["count_tools", "list_calls", "prices_of", "projection_of", "summarise_calls"]

_COUNTER = EstimateCounter()


def list_calls(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the model calls in their order."""
    return list(_calls(entries))


def _calls(entries: Sequence[HistoryEntry]) -> Iterator[dict[str, Any]]:
    timeline = Timeline(_COUNTER)
    projection: tuple[EpochEntry | None, Projection] = (None, Projection())
    epoch: EpochEntry | None = None
    sent_at: datetime | None = None
    run = 0
    cost_so_far = 0.0
    number = 0
    before: list[HistoryEntry] = []
    tool_sets, tool_tokens = ToolSets(), dict[ModelInvocationDescriptor, int]()
    for entry in entries:
        if isinstance(entry, RunStartedEntry):
            run += 1
        if isinstance(entry, EpochEntry):
            epoch = entry
        if isinstance(entry, ToolSetEntry):
            tool_sets.add(entry)
            tool_tokens[entry.invocation] = _recorded_tools(tool_sets, entry.invocation)
        if isinstance(entry, ModelOutputEntry):
            timeline.extend(before)  # what was sent is what stood before the answer; each entry is read once
            timeline.aim_at(Aim(entry.invocation or timeline.invocation))
            if timeline.epoch is not projection[0]:
                projection = (timeline.epoch, projection_of(timeline))
            number += 1
            cost = _cost(entry)
            cost_so_far += cost or 0.0
            yield {
                "number": number,
                "serial": entry.serial,
                "run": run,
                "time": entry.timestamp,
                "model": model_of(entry),
                "finish": entry.message.meta.finish_reason if entry.message.meta else None,
                "usage": _usage(entry.usage),
                "cost": cost,
                "costSoFar": cost_so_far,
                "costWithoutCache": _cost(entry, cached=False),
                "seconds": _seconds(sent_at, entry.timestamp),
                "firstTokenSeconds": _first_piece(entry),
                "sent": _levels(
                    timeline, projection[1], tool_tokens.get(entry.invocation, 0) if entry.invocation else 0
                ),
                "epoch": None if epoch is None else {"serial": epoch.serial, "reason": epoch.reason},
                "estimate": entry.metadata.get("context_tokens"),
            }
            epoch = None
        if not isinstance(entry, InterruptionEntry):
            sent_at = entry.timestamp
        before.append(entry)


def projection_of(timeline: Timeline) -> Projection:
    """Return what the newest epoch of a timeline chose; all whole if there is none, or if it cannot be read here."""
    epoch = timeline.epoch
    if epoch is None or epoch.version != PROJECTION_VERSION:
        return Projection()
    try:
        return read_projection(timeline, epoch)
    except UnreadableData:
        return Projection()


def _recorded_tools(tool_sets: ToolSets, invocation: ModelInvocationDescriptor) -> int:
    try:
        return count_tools(tool_sets.setup_for(invocation).tools)
    except UnreadableData:  # a tool that no entry gives
        return 0


def count_tools(tools: Sequence[ToolSpec]) -> int:
    """Return the estimated tokens of tools as a request has them."""
    return sum(_COUNTER.count(msgspec.json.encode(tool).decode()) for tool in tools)


def _levels(timeline: Timeline, projection: Projection, tool_tokens: int) -> dict[str, int]:
    """The estimated tokens of a request: what is fixed, the ledger, turns in less room, and what is whole."""
    fixed = timeline.counter.count(timeline.instruction) if timeline.instruction else 0
    screen = timeline.count(Message.user(timeline.screen)) if timeline.screen else 0
    return {
        "fixed": fixed + screen + tool_tokens,
        "ledger": sum(zone.tokens for zone in projection.zones),
        "turns": projection.first.tokens(timeline.overhead) + projection.turns.tokens(timeline.overhead),
        "live": projection.live_tokens(timeline),
    }


def _usage(usage: TokenUsage | None) -> dict[str, Any] | None:
    return None if usage is None else msgspec.to_builtins(usage)


def prices_of(invocation: ModelInvocationDescriptor | None) -> Prices | None:
    """Return the catalogue's prices of a model, None if they are unknown."""
    info = None if invocation is None else find_model_info(invocation.provider, invocation.model)
    return None if info is None else info.prices


def _cost(entry: ModelOutputEntry, *, cached: bool = True) -> float | None:
    usage = entry.usage
    if usage is None:
        return None
    if cached and usage.cost is not None:
        return usage.cost
    prices = prices_of(entry.invocation)
    if prices is None:
        return usage.cost
    if not cached:
        usage = msgspec.structs.replace(usage, cache_read_tokens=0, cache_write_tokens=0)
    return prices.cost_of(usage)


def _seconds(begun: datetime | None, ended: datetime | None) -> float | None:
    if begun is None or ended is None:
        return None
    return max((ended - begun).total_seconds(), 0.0)


def _first_piece(entry: ModelOutputEntry) -> float | None:
    """The seconds to the first piece of the answer, where the record has them."""
    found = entry.metadata.get(FIRST_PIECE_KEY)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def summarise_calls(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what all calls used together; None where no call reported it."""
    models = list(dict.fromkeys(call["model"] for call in calls if call["model"]))
    sizes = [sum(call["sent"].values()) for call in calls]
    return {
        "calls": len(calls),
        "models": models,
        "inputTokens": _total(calls, "inputTokens"),
        "outputTokens": _total(calls, "outputTokens"),
        "cacheReadTokens": _total(calls, "cacheReadTokens"),
        "cost": _sum(call["cost"] for call in calls),
        "costWithoutCache": _sum(call["costWithoutCache"] for call in calls),
        "sizes": _sampled(sizes, 24),
    }


def _total(calls: Sequence[dict[str, Any]], name: str) -> int | None:
    total: int | None = _sum((call["usage"] or {}).get(name) for call in calls)
    return total


def _sum(values: Any) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sampled(values: Sequence[int], count: int) -> list[int]:
    """At most so many of the values, evenly over them."""
    if len(values) <= count:
        return list(values)
    return [values[index * (len(values) - 1) // (count - 1)] for index in range(count)]
