"""Every model call of a session in one pass: what it was sent by level, what it used, cost and took. Pure.

Where the provider reported no usage, tokens are our estimate. A figure that nobody knows is None, never 0.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import accumulate
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
    ModelOutputEntry,
    ResetEntry,
    ToolSetEntry,
    ToolSets,
)
from ...message import Message, ModelInvocationDescriptor
from ...models.recorded import FIRST_PIECE_KEY
from ...review.calls import BEFORE_A_CALL
from ...toolspec import ToolSpec
from ...usage import Prices, TokenUsage
from .jobs import Check, never_abandon
from .outlines import model_of

__all__ = ["Call", "count_tools", "list_calls", "prices_of", "projection_of", "summarise_calls", "thin_calls"]

_COUNTER = EstimateCounter()
MOST_CALLS = 2_000  # of one answer, evenly over all
NEAR = 200  # calls on each side of a chosen one that are all given
MOST_MARKED = 500  # calls after an epoch, and calls that missed the cache
MOST_MODELS = 200  # that are named


class EpochMark(msgspec.Struct, frozen=True):
    """An epoch that began before a call."""

    serial: int
    reason: str


class Sent(msgspec.Struct, frozen=True):
    """The estimated tokens of a request: what is fixed, the ledger, turns in less room, and what is whole."""

    fixed: int = 0
    ledger: int = 0
    turns: int = 0
    live: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.fixed + self.ledger + self.turns + self.live


class Call(msgspec.Struct, kw_only=True, rename="camel"):
    """One model call, as the page reads it."""

    number: int
    serial: int
    time: datetime | None
    model: str | None
    usage: TokenUsage | None
    cost: float | None
    cost_so_far: float
    cost_without_cache: float | None
    seconds: float | None
    first_token_seconds: float | None
    sent: Sent = Sent()
    epoch: EpochMark | None = None


class _OpenCall(msgspec.Struct, frozen=True):
    """A call whose request is not measured yet: what was said before it, and to which model it went."""

    call: Call
    aim: Aim
    units: int
    instruction: str | None
    screen: str | None
    tool_tokens: int


def list_calls(entries: Sequence[HistoryEntry], check: Check = never_abandon) -> list[Call]:
    """Return the model calls in their order. Each entry is read once."""
    calls: list[Call] = []
    sizes = _RequestSizes(check)
    epoch: EpochEntry | None = None
    sent_at: datetime | None = None
    cost_so_far = 0.0
    tool_sets, tool_tokens = ToolSets(), dict[ModelInvocationDescriptor, int]()
    for entry in entries:
        if isinstance(entry, EpochEntry):
            epoch = entry
        if isinstance(entry, ToolSetEntry):
            tool_sets.add(entry)
            tool_tokens[entry.invocation] = _recorded_tools(tool_sets, entry.invocation)
        if isinstance(entry, ModelOutputEntry):
            check()
            cost = _cost(entry)
            cost_so_far += cost or 0.0
            call = Call(
                number=len(calls) + 1,
                serial=entry.serial,
                time=entry.timestamp,
                model=model_of(entry),
                usage=entry.usage,
                cost=cost,
                cost_so_far=cost_so_far,
                cost_without_cache=_cost(entry, cached=False),
                seconds=_seconds(sent_at, entry.timestamp),
                first_token_seconds=_first_piece(entry),
                epoch=None if epoch is None else EpochMark(epoch.serial, epoch.reason),
            )
            calls.append(call)
            sizes.add_call(call, entry.invocation, tool_tokens.get(entry.invocation, 0) if entry.invocation else 0)
            epoch = None
        sizes.add(entry)
        if isinstance(entry, BEFORE_A_CALL):
            sent_at = entry.timestamp
    sizes.measure()
    return calls


class _RequestSizes:
    """Measures the requests of calls between two epochs together: then a change of the model costs little.

    What was sent is what stood before the answer. Sizes differ by the model that was asked; for each model the whole
    conversation is counted once.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._timeline = Timeline(_COUNTER)
        self._before: list[HistoryEntry] = []
        self._projection: tuple[EpochEntry | None, Projection] = (None, Projection())
        self._open: list[_OpenCall] = []

    def add(self, entry: HistoryEntry) -> None:
        """Take in an entry."""
        if isinstance(entry, (EpochEntry, ResetEntry)):
            self.measure()  # after it other things are sent
        self._before.append(entry)

    def add_call(self, call: Call, invocation: ModelInvocationDescriptor | None, tool_tokens: int) -> None:
        """Take in a call that is made after the entries so far."""
        timeline = self._timeline
        timeline.extend(self._before)
        aim = Aim(invocation or timeline.invocation)
        if timeline.epoch is not self._projection[0]:
            timeline.aim_at(aim)
            self._projection = (timeline.epoch, projection_of(timeline))
        units = len(timeline.units)
        self._open.append(_OpenCall(call, aim, units, timeline.instruction, timeline.screen, tool_tokens))

    def measure(self) -> None:
        """Say of all open calls what they were sent."""
        timeline, projection = self._timeline, self._projection[1]
        by_aim: dict[Aim, list[_OpenCall]] = {}
        for each in self._open:
            by_aim.setdefault(each.aim, []).append(each)
        self._open = []
        for aim, open_calls in by_aim.items():
            self._check()
            timeline.aim_at(aim)
            ledger = sum(zone.tokens for zone in projection.zones)
            turns = projection.first.tokens(timeline.overhead) + projection.turns.tokens(timeline.overhead)
            ends = timeline.ends
            if projection.cuts:
                ends = [0] * projection.live_from
                ends += accumulate((unit.tokens for unit in projection.live_units(timeline)), initial=0)
            begin = ends[projection.live_from]
            for each in open_calls:
                fixed = _COUNTER.count(each.instruction) if each.instruction else 0
                screen = timeline.count(Message.user(each.screen)) if each.screen else 0
                each.call.sent = Sent(
                    fixed=fixed + screen + each.tool_tokens, ledger=ledger, turns=turns, live=ends[each.units] - begin
                )


def thin_calls(calls: Sequence[Call], around: int | None = None, missed: Collection[int] = ()) -> list[Call]:
    """Return about `MOST_CALLS` calls, evenly over all; those near the serial `around` and the newest are all here.

    `missed` are serials of calls that are wanted, too. Each call has its number among all calls, and costs up to it
    include those that are left out.
    """
    if len(calls) <= MOST_CALLS:
        return list(calls)
    places = {index * (len(calls) - 1) // (MOST_CALLS - 1) for index in range(MOST_CALLS)}
    places.update(range(len(calls) - NEAR, len(calls)))
    places.update([index for index, call in enumerate(calls) if call.epoch is not None][-MOST_MARKED:])
    places.update([index for index, call in enumerate(calls) if call.serial in missed][-MOST_MARKED:])
    if around is not None:
        near = bisect_left(calls, around, key=lambda call: call.serial)
        places.update(range(max(near - NEAR, 0), min(near + NEAR, len(calls))))
    return [calls[place] for place in sorted(places)]


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


def summarise_calls(calls: Sequence[Call]) -> dict[str, Any]:
    """Return what all calls used together; None where no call reported it."""
    usages = [call.usage for call in calls if call.usage is not None]
    return {
        "calls": len(calls),
        "models": list(dict.fromkeys(call.model for call in calls if call.model))[:MOST_MODELS],
        "byModel": _by_model(calls)[:MOST_MODELS],
        "inputTokens": _sum(usage.input_tokens for usage in usages),
        "outputTokens": _sum(usage.output_tokens for usage in usages),
        "cacheReadTokens": _sum(usage.cache_read_tokens for usage in usages),
        "cost": _sum(call.cost for call in calls),
        "costWithoutCache": _sum(call.cost_without_cache for call in calls),
        "sizes": _sampled([call.sent.total for call in calls], 24),
    }


def _by_model(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """What the calls to each model used, in the order in which the models were first asked."""
    by_model: dict[str, list[Call]] = {}
    for call in calls:
        by_model.setdefault(call.model or "", []).append(call)
    return [
        {
            "model": model,
            "calls": len(own),
            "input": _sum(call.usage.input_tokens for call in own if call.usage is not None),
            "cached": _sum(call.usage.cache_read_tokens for call in own if call.usage is not None),
            "output": _sum(call.usage.output_tokens for call in own if call.usage is not None),
            "cost": _sum(call.cost for call in own),
        }
        for model, own in by_model.items()
    ]


def _sum(values: Any) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sampled(values: Sequence[int], count: int) -> list[int]:
    """At most so many of the values, evenly over them."""
    if len(values) <= count:
        return list(values)
    return [values[index * (len(values) - 1) // (count - 1)] for index in range(count)]
