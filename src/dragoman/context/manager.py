"""The record to a request that fits its budget: messages, tools, cache anchors, and the entries to append.

`ContextManager` is pure: the same entries, settings and time give the same result, whatever was asked
before. What it remembers between calls only saves time: each entry is read once.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import is_
from typing import Any

import msgspec

from .._fieldtypes import require_field_types
from .._jsontext import encode_json
from ..errors import InvalidValue, UnreadableData
from ..history import (
    EpochEntry,
    HistoryEntry,
    LevelOfDetail,
    ModelInputAtDetail,
    ToolResultsAtDetail,
    context_messages,
    newest_live,
    to_messages,
)
from ..history.entries import with_text_in_result
from ..history.toolsets import set_digest
from ..message import Message, ModelInvocationDescriptor, Role, utc_time
from ..request import ContextConfig, ModelInfo
from ..target import TargetRules
from ..toolspec import ToolSpec
from .compaction import CompactionRequest, Compactor, plan_compaction
from .epochs import Settings, find_epoch_reason, start_epoch
from .projection import PROJECTION_VERSION, Projection, read_projection
from .recall import RECALL_TOOL
from .sources import MessageSource, find_sources
from .timeline import COUNTER_KEY, ESTIMATE_KEY, Aim, Timeline
from .tokens import LARGEST_OVERHEAD, TokenCounter, find_counter

__all__ = [
    "ContextBuildInput",
    "ContextBuildResult",
    "ContextManager",
    "ContextStats",
    "ContextUpdateResult",
]

# Where a model's window is unknown: small enough for nearly all of them.
UNKNOWN_WINDOW = 32_768
LEAST_BUDGET = 1_000
# No more than this part of a window is left for the answer: of a small one something must be left for what is said.
MOST_RESERVE = 4
# What messages get where instruction and tools leave less: enough for one that was cut as far as it can be.
LEAST_ROOM = 200
# A request that was refused as too long is next tried at this share of its size.
OVERFLOW_SHARE = 0.75
# A provider looks back over so many content blocks for what it has cached.
_LOOKBACK = 18


class ContextBuildInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a context is built from. `model_info` gives window and prices, `invocation` whom the request is for.

    Without an invocation it is for the model that answered last. `rules`, those of the target's dialect, say whose
    thinking is sent back and counts; without them it is that of the same provider.
    `screen_in_result` is for targets that take no user turn after results: the LiveScreen then stands in the last one.
    """

    entries: Sequence[HistoryEntry]
    now: datetime
    tools: tuple[ToolSpec, ...] = ()
    model_info: ModelInfo | None = None
    invocation: ModelInvocationDescriptor | None = None
    rules: TargetRules | None = None
    cache_seconds: float = 300.0
    screen_in_result: bool = False

    def __post_init__(self) -> None:
        if utc_time(self.now) is None:
            raise InvalidValue("now must be a time, got None")
        require_field_types(self)


class ContextStats(msgspec.Struct, frozen=True, kw_only=True):
    """What was built. `tokens` are as `counter` counts them, corrected by reported usage; so is `budget`.

    `levels` counts entries: live ones, those shown as turns in less room, those with a line or a name in the ledger.
    `demoted` are the serials that are no longer live, `cut` those that had to be cut to fit.
    """

    tokens: int
    budget: int
    counter: str
    correction: float
    levels: dict[LevelOfDetail, int]
    epoch: str | None = None
    demoted: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()

    @property
    def over_budget(self) -> bool:
        """Whether nothing could make it fit."""
        return self.tokens > self.budget


class ContextBuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """A request's content, and the entries that must be appended before the next one is built.

    `cache_anchors` are indices into `messages`, as `Model.stream` takes them. `estimate` is what the request counts
    without correction. `sources` says where each message comes from, in a context that was rebuilt.
    """

    messages: tuple[Message, ...]
    tool_specs: tuple[ToolSpec, ...]
    system: str | None
    cache_anchors: tuple[int, ...]
    stats: ContextStats
    estimate: int
    entries: tuple[EpochEntry, ...] = ()
    sources: tuple[MessageSource, ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """What belongs into the metadata of the answer, so that reported usage can correct the count."""
        return {ESTIMATE_KEY: self.estimate, COUNTER_KEY: self.stats.counter}


class ContextUpdateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What should change: entries to append, or a summary to ask for. `exhausted`: nothing smaller is possible."""

    entries: tuple[EpochEntry, ...] = ()
    compaction: CompactionRequest | None = None
    exhausted: bool = False


class _Moment(msgspec.Struct, frozen=True):
    """Everything that one call works with."""

    timeline: Timeline
    projection: Projection
    settings: Settings
    fixed: int
    tools: tuple[ToolSpec, ...]


class ContextManager:
    """Builds contexts for one conversation after another; see the module for what it promises.

    Of each tool result at most `result_limit_bytes` of text are shown, at every level of detail; `recall` has the rest.
    """

    def __init__(
        self,
        config: ContextConfig | None = None,
        *,
        counter: TokenCounter | None = None,
        compactor: Compactor | None = None,
        result_limit_bytes: int | None = None,
    ) -> None:
        if result_limit_bytes is not None and (type(result_limit_bytes) is not int or result_limit_bytes < 1):
            raise InvalidValue.of("result_limit_bytes", result_limit_bytes, "a whole number from 1 up")
        self._config = config or ContextConfig()
        self._result_limit = result_limit_bytes
        self._counter = counter
        self._compactor = compactor
        self._timeline: Timeline | None = None
        self._read: tuple[EpochEntry | None, Projection] = (None, Projection())
        self._started: tuple[dict[str, object], Projection] | None = None
        self._folded_levels: tuple[Projection, int] | None = None
        self._digested: tuple[tuple[ToolSpec, ...], str] = ((), set_digest(()))
        self._framed: tuple[tuple[object, ...], int] = ((), 0)  # what a request holds beside messages, and its tokens

    def estimate_tokens(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[ToolSpec] = (),
        system: str | None = None,
        invocation: ModelInvocationDescriptor | None = None,
        rules: TargetRules | None = None,
    ) -> int:
        """Return what a request of these would count, by this manager's counter, without correction.

        Thinking counts as in `ContextBuildInput`; without an invocation it counts nothing.
        """
        aim, counter = Aim(invocation, rules), self._counter_for(invocation)
        return sum(aim.count(message, counter) for message in messages) + _frame_tokens(tools, system, counter)

    def build_context(self, given: ContextBuildInput) -> ContextBuildResult:
        """Return the request for the next call; append `result.entries` before you build the next one."""
        moment = self._look(given)
        if self._config.policy == "simple":
            return self._build_simple(given, moment)
        before = moment.projection
        reason = self._epoch_reason(given, moment)
        if reason is None:
            return self._build(given, moment, before, None)
        folding = self._look(given, folds=True)
        after, entry = self._start(folding, reason)
        # Where nothing can be folded any more, an epoch changes nothing and is none.
        if after.shows_same(before):
            return self._build(given, moment, before, None)
        return self._build(given, folding, after, entry)

    def rebuild_context(self, given: ContextBuildInput) -> ContextBuildResult:
        """Return the context that a call of the past had: `given.entries` end where it was made, its epoch included.

        `given.tools` are those of the call, with `recall` if it was offered. No epoch begins, so `now` has no effect,
        and no entries are to be appended.
        """
        moment = self._look(given, offers_recall=False)
        if self._config.policy == "simple":
            return self._build_simple(given, moment)
        built = self._build(given, moment, moment.projection, None)
        sources = list(find_sources(moment.timeline, moment.projection))
        if len(sources) < len(built.messages):
            sources.append(MessageSource(None, has_screen=True))
        elif moment.timeline.screen:
            sources[-1] = msgspec.structs.replace(sources[-1], has_screen=True)
        return msgspec.structs.replace(built, sources=tuple(sources))

    def compute_context_updates(
        self,
        given: ContextBuildInput,
        *,
        overflow: bool = False,
    ) -> ContextUpdateResult:
        """Return what should change before the next call. With `overflow` the last request was refused as too long.

        Each overflow takes the limit a quarter down and records it, so that no later request grows past it; when
        nothing is left to give up, the result is `exhausted`, and asking again changes nothing.
        """
        moment = self._look(given, folds=overflow)
        timeline, before = moment.timeline, moment.projection
        if overflow:
            return ContextUpdateResult(exhausted=True) if self._config.policy == "simple" else self._shrink(moment)
        reason = self._epoch_reason(given, moment)
        if reason is None or self._config.policy == "simple":
            return ContextUpdateResult()
        if reason == "budget" and self._compactor is not None:
            request = plan_compaction(self._compactor, timeline, before, moment.settings.budget)
            if request is not None:
                return ContextUpdateResult(compaction=request)
        after, entry = self._start(self._look(given, folds=True), reason)
        return ContextUpdateResult(entries=() if after.shows_same(before) else (entry,))

    # ------------------------------------------------------------ steps

    def _look(self, given: ContextBuildInput, *, folds: bool = False, offers_recall: bool = True) -> _Moment:
        """Read what is new. With `folds` the tools are those of a context that an epoch has made smaller."""
        timeline, counter = self._timeline, self._counter_for(given.invocation)
        if timeline is None or timeline.counter.name != counter.name or not timeline.follows(given.entries):
            timeline = self._timeline = Timeline(counter, result_limit_bytes=self._result_limit)
            self._read, self._started, self._folded_levels = (None, Projection()), None, None
        timeline.extend(given.entries)
        timeline.aim_at(Aim(given.invocation or timeline.invocation, given.rules))
        projection = self._current(timeline)
        tools = given.tools
        # Offered from the first epoch on, which moves the cached prefix anyway, or once a result was cut. Some models
        # take no tools at all.
        offered = (
            offers_recall and self._config.recall and (folds or timeline.epoch is not None or bool(timeline.limited))
        )
        if given.model_info is not None and "tools" not in given.model_info.abilities:
            offered = False
        if offered and all(tool.name != RECALL_TOOL.name for tool in tools):
            tools = (*tools, RECALL_TOOL)
        fixed = self._fixed_tokens(timeline, tools)
        budget = int(self._total(given.model_info) / timeline.correction.ratio) - fixed
        if projection.limit is not None:
            budget = min(budget, projection.limit)
        return _Moment(timeline, projection, _settings(given, max(budget, LEAST_ROOM)), fixed, tools)

    def _epoch_reason(self, given: ContextBuildInput, moment: _Moment) -> str | None:
        """Why levels should change before this call, or None."""
        timeline, tool_set = moment.timeline, None
        if timeline.knows_tools_of(given.invocation or timeline.invocation):
            if len(moment.tools) != len(self._digested[0]) or not all(map(is_, moment.tools, self._digested[0])):
                self._digested = (moment.tools, set_digest(moment.tools))
            tool_set = self._digested[1]
        return find_epoch_reason(
            timeline,
            moment.projection,
            moment.settings,
            now=given.now,
            invocation=given.invocation,
            tool_set=tool_set,
        )

    def _counter_for(self, target: ModelInvocationDescriptor | None) -> TokenCounter:
        return self._counter or find_counter(*((target.provider, target.model) if target else (None, None)))

    def _current(self, timeline: Timeline) -> Projection:
        """What the newest epoch chose; nothing, if it cannot be read here."""
        epoch = timeline.epoch
        if epoch is not self._read[0]:
            if epoch is None or epoch.version != PROJECTION_VERSION:
                self._read = (epoch, Projection())
            elif self._started is not None and self._started[0] == epoch.choices:
                self._read = (epoch, self._started[1])
            else:
                try:
                    self._read = (epoch, read_projection(timeline, epoch))
                except UnreadableData:
                    return Projection()  # and it is read again next time: it may name what is still to come
        return self._read[1]

    def _total(self, model_info: ModelInfo | None) -> int:
        if self._config.budget_tokens is not None:
            return self._config.budget_tokens
        window = model_info.context_window if model_info is not None else None
        window = window or UNKNOWN_WINDOW
        return max(window - min(self._config.output_reserve, window // MOST_RESERVE), LEAST_BUDGET)

    def _fixed_tokens(self, timeline: Timeline, tools: Sequence[ToolSpec]) -> int:
        """What a request holds beside the conversation: instruction, tools, LiveScreen."""
        frame = (timeline.counter, timeline.instruction, *tools)
        if len(frame) != len(self._framed[0]) or not all(map(is_, frame, self._framed[0])):
            self._framed = (frame, _frame_tokens(tools, timeline.instruction, timeline.counter))
        screen = timeline.count(Message.user(timeline.screen)) if timeline.screen else 0
        return screen + self._framed[1]

    def _start(self, moment: _Moment, reason: str) -> tuple[Projection, EpochEntry]:
        after = start_epoch(moment.timeline, moment.projection, moment.settings, rewrite=reason != "budget")
        choices = after.choices(moment.timeline)
        self._started = (choices, after)
        return after, EpochEntry(version=PROJECTION_VERSION, reason=reason, choices=choices)

    def _shrink(self, moment: _Moment) -> ContextUpdateResult:
        timeline, before = moment.timeline, moment.projection
        size = before.tokens(timeline)
        limit = int(OVERFLOW_SHARE * min(size, moment.settings.budget))
        if limit < LEAST_BUDGET:
            return ContextUpdateResult(exhausted=True)
        settings = msgspec.structs.replace(moment.settings, budget=limit)
        tighter = msgspec.structs.replace(before, limit=limit)
        shrunk = msgspec.structs.replace(moment, projection=tighter, settings=settings)
        after, entry = self._start(shrunk, "overflow")
        if after.tokens(timeline) >= size:
            return ContextUpdateResult(exhausted=True)
        return ContextUpdateResult(entries=(entry,))

    def _build(
        self,
        given: ContextBuildInput,
        moment: _Moment,
        projection: Projection,
        entry: EpochEntry | None,
    ) -> ContextBuildResult:
        timeline = moment.timeline
        messages = projection.messages(timeline)
        is_new = entry is not None or timeline.is_renewed
        kept = (projection.stable if is_new else projection.ledger_end, len(projection.folded_messages))
        if timeline.screen and given.screen_in_result and messages[-1].role is Role.TOOL:
            anchors = _anchors(messages[:-1], kept)
            messages[-1] = with_text_in_result(messages[-1], timeline.screen)
        else:
            anchors = _anchors(messages, kept)
            if timeline.screen:
                messages.append(Message.user(timeline.screen))
        size = projection.tokens(timeline) + moment.fixed
        return ContextBuildResult(
            messages=tuple(messages),
            tool_specs=moment.tools,
            system=timeline.instruction,
            cache_anchors=anchors,
            estimate=size,
            stats=ContextStats(
                tokens=timeline.correction.corrected(size),
                budget=self._total(given.model_info),
                counter=timeline.counter.name,
                correction=timeline.correction.ratio,
                levels=self._levels(timeline, projection),
                epoch=entry.reason if entry else None,
                demoted=_demoted(timeline, moment.projection, projection) if entry else (),
                cut=tuple(sorted(projection.cuts)),
            ),
            entries=(entry,) if entry else (),
        )

    def _levels(self, timeline: Timeline, projection: Projection) -> dict[LevelOfDetail, int]:
        if self._folded_levels is None or self._folded_levels[0] is not projection:
            index, first = timeline.index, timeline.serial_of(projection.turns_from)
            told = {pick.serial for zone in projection.zones for pick in zone.zone.picks}
            uses = (index.names[name] for zone in projection.zones for name in zone.zone.names if name in index.names)
            told |= {index.blocks[use.block].serial for use in uses}
            told |= {serial for zone in projection.zones for serial, _ in zone.zone.gists}
            self._folded_levels = (
                projection,
                sum(serial < first for serial in told - {projection.first_asked, *projection.asked}),
            )
        live = timeline.count_entries_from(projection.live_from)
        asked = [serial for serial in (projection.first_asked, *projection.asked) if serial is not None]
        whole, among = len(asked), sum(serial >= timeline.serial_of(projection.turns_from) for serial in asked)
        return {
            LevelOfDetail.LIVE: live + whole,
            LevelOfDetail.SUMMARY: timeline.count_entries_from(projection.turns_from) - live - among,
            LevelOfDetail.GIST: self._folded_levels[1],
        }

    def _build_simple(
        self,
        given: ContextBuildInput,
        moment: _Moment,
    ) -> ContextBuildResult:
        """The rule of seed 004: the newest input or results live, all others their summaries."""
        timeline = moment.timeline
        context = context_messages(
            [timeline.limited.get(entry.serial, entry) for entry in given.entries], policy=newest_live
        )
        messages = to_messages(context, screen_in_result=given.screen_in_result)
        size = sum(map(timeline.count, messages))
        size += _frame_tokens(moment.tools, timeline.instruction, timeline.counter)
        levels = dict.fromkeys(LevelOfDetail, 0)
        for each in context:
            if isinstance(each, (ModelInputAtDetail, ToolResultsAtDetail)):
                levels[each.detail] += 1
            else:  # what a model said has one level
                levels[LevelOfDetail.LIVE] += 1
        return ContextBuildResult(
            messages=messages,
            tool_specs=moment.tools,
            system=timeline.instruction,
            cache_anchors=(),
            estimate=size,
            stats=ContextStats(
                tokens=timeline.correction.corrected(size),
                budget=self._total(given.model_info),
                counter=timeline.counter.name,
                correction=timeline.correction.ratio,
                levels=levels,
            ),
        )


def _settings(given: ContextBuildInput, budget: int) -> Settings:
    prices = given.model_info.prices if given.model_info else None
    if prices is None or prices.input <= 0:
        return Settings(budget=budget, cache_seconds=given.cache_seconds)
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    return Settings(
        budget=budget,
        read_price=read / prices.input,
        write_price=write / prices.input,
        cache_seconds=given.cache_seconds,
    )


def _frame_tokens(tools: Iterable[ToolSpec], system: str | None, counter: TokenCounter) -> int:
    """What a request holds beside its messages."""
    size = sum(_tool_tokens(tool, counter) for tool in tools)
    around = LARGEST_OVERHEAD.message + LARGEST_OVERHEAD.part
    return size + (counter.count(system) + around if system else 0)


def _tool_tokens(tool: ToolSpec, counter: TokenCounter) -> int:
    schema = encode_json(tool.parameter_schema).decode()
    return LARGEST_OVERHEAD.tool + counter.count(f"{tool.name}\n{tool.description or ''}\n{schema}")


def _anchors(messages: Sequence[Message], kept: Sequence[int]) -> tuple[int, ...]:
    """The ends of what later requests will begin with: what is folded, the last request, this one."""
    last = len(messages) - 1
    if last < 0:
        return ()
    anchors = {last}
    folded = kept[-1]
    blocks, place = 0, last
    while place > folded and messages[place].role is not Role.ASSISTANT:
        blocks += len(messages[place].parts)
        place -= 1
    if place > folded and blocks + len(messages[place].parts) > _LOOKBACK:
        anchors.add(place - 1)
    anchors.update(count - 1 for count in kept if count)
    return tuple(sorted(anchors)[-3:])


def _demoted(timeline: Timeline, before: Projection, after: Projection) -> tuple[int, ...]:
    units = timeline.units[before.live_from : after.live_from]
    return tuple(entry.serial for unit in units for entry in unit.entries)
