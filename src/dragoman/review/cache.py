"""The entries of a session → what a provider's cache could hold of each model call, and why it missed. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from ..errors import DragomanError
from ..history import HistoryEntry
from ..history.exchanges import body_of
from ..message import ModelInvocationDescriptor
from ..models.recorded import UNKNOWN_PROVIDER
from ..wire import PROVIDERS
from ..wire.cachedparts import CachedRequest, RequestSplitter
from .cacherules import CacheRules, find_cache_rules
from .calls import PastCall, find_calls
from .causes import find_cause
from .comparing import compare_requests
from .expected import Expected, Weighed, find_expected
from .pairs import CacheCause, Pair, Seen, Verdict
from .rendering import ModelOpener, PastRequest, PastRequests

__all__ = ["CacheCall", "iterate_cache", "review_cache"]

_LOSES_ALL = frozenset({CacheCause.FIRST, CacheCause.MODEL, CacheCause.EXPIRED, CacheCause.OFF})


class CacheCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One model call and what its provider could have cached of it.

    `serial` is that of the answer, `compared_with` that of the call that this one is compared with: the last one to the
    same model. `request_bytes` counts tools, system text and messages in the order in which they are cached, without
    marks; `shared_bytes` is the longest prefix of them that the other request has too. They differ first at `path`,
    with the text there `before` and now (`after`). `entry_serial` names the entry that made the difference.

    `expected_tokens` is about what the provider should have read from its cache, `reported_tokens` what it says that it
    has read. None means that it is not known. With `is_exact` the rendered request is the one that was sent, to the
    byte; None where no checksum was kept.
    """

    serial: int
    model: str
    cause: CacheCause
    sentence: str
    compared_with: int | None = None
    entry_serial: int | None = None
    request_bytes: int | None = None
    shared_bytes: int | None = None
    path: str = ""
    before: str = ""
    after: str = ""
    input_tokens: int | None = None
    expected_tokens: int | None = None
    reported_tokens: int | None = None
    seconds: float | None = None
    is_exact: bool | None = None

    @property
    def is_miss(self) -> bool:
        """Whether something was cached, or should have been, that this call did not get."""
        return self.cause.is_miss


def review_cache(
    entries: Sequence[HistoryEntry],
    *,
    session_id: str = "",
    forked_at: int = -1,
    parent_entries: Sequence[HistoryEntry] = (),
    open_model: ModelOpener | None = None,
    cache_seconds: float | None = None,
    among: range | None = None,
) -> tuple[CacheCall, ...]:
    """Return, for every model call of a session, what its provider's cache could hold of it and why that was lost.

    `entries` are all entries of the session. For a fork, `forked_at` is the serial of the last entry that it shares and
    `parent_entries` are those of the session that it was forked from: its first call is then compared with what the
    parent had asked by that time. `open_model` returns the models that the record names, where the program knows more
    of them than their names. `cache_seconds` is how long a cache lives, where the provider's usual time is not meant.

    Each request is rendered from all that was said before it, so that a session of thousands of calls without epochs
    takes long. `among` are the places among `find_calls` of the calls that you want: what is said of them is the same.
    """
    return tuple(
        iterate_cache(
            entries,
            session_id=session_id,
            forked_at=forked_at,
            parent_entries=parent_entries,
            open_model=open_model,
            cache_seconds=cache_seconds,
            among=among,
        )
    )


def iterate_cache(
    entries: Sequence[HistoryEntry],
    *,
    session_id: str = "",
    forked_at: int = -1,
    parent_entries: Sequence[HistoryEntry] = (),
    open_model: ModelOpener | None = None,
    cache_seconds: float | None = None,
    among: range | None = None,
    calls: Sequence[PastCall] | None = None,
) -> Iterator[CacheCall]:
    """Yield what `review_cache` returns, call by call. `calls` are those of the session, where they are at hand."""
    reviewer = _Reviewer(entries, session_id=session_id, open_model=open_model, cache_seconds=cache_seconds)
    if forked_at >= 0 and parent_entries:
        reviewer.add_parent(parent_entries, forked_at)
    calls = find_calls(entries) if calls is None else calls
    yield from reviewer.review(calls, range(len(calls)) if among is None else among)


class _Source(msgspec.Struct, frozen=True):
    """The entries of one session, and its requests."""

    entries: Sequence[HistoryEntry]
    requests: PastRequests


class _Reviewer:
    """One review of one session."""

    def __init__(
        self,
        entries: Sequence[HistoryEntry],
        *,
        session_id: str,
        open_model: ModelOpener | None,
        cache_seconds: float | None,
    ) -> None:
        self._own = _Source(entries, PastRequests(entries, session_id=session_id, open_model=open_model))
        self._open_model = open_model
        self._cache_seconds = cache_seconds
        self._splitters: dict[str, RequestSplitter] = {}
        self._last: dict[ModelInvocationDescriptor, Seen] = {}  # by model
        self._parent: tuple[_Source, tuple[PastCall, ...]] | None = None
        self._forked_at = -1

    def add_parent(self, entries: Sequence[HistoryEntry], forked_at: int) -> None:
        """Take in what the parent of a fork has asked beyond what the fork shares with it."""
        source = _Source(entries, PastRequests(entries, open_model=self._open_model))
        self._parent = (source, tuple(call for call in find_calls(entries) if call.serial > forked_at))
        self._forked_at = forked_at

    def review(self, calls: Sequence[PastCall], among: range) -> Iterator[CacheCall]:
        """Yield what there is to say of the calls at these places."""
        for place in _needed_before(calls, among):
            self._last[calls[place].invocation] = self._see(calls[place], self._own)
        for place in among:
            call = calls[place]
            seen = self._see(call, self._own)
            earlier = self._earlier(call)
            yield self._judge(seen, earlier, is_first=place == 0)
            self._last[call.invocation] = seen

    def _earlier(self, call: PastCall) -> Seen | None:
        """The call that left the newest prefix in the cache of this model."""
        last = self._last.get(call.invocation)
        if self._parent is None or call.serial <= self._forked_at or (last and last.call.serial > self._forked_at):
            return last
        source, calls = self._parent
        asked = [each for each in calls if each.invocation == call.invocation and _is_before(each, call)]
        return self._see(asked[-1], source, is_parent=True) if asked else last

    def _see(self, call: PastCall, source: _Source, *, is_parent: bool = False) -> Seen:
        """What is known of the request of a call."""
        try:
            rendered: PastRequest | None = None
            if call.request is None:
                rendered = source.requests.render(call)
                body: bytes | str = rendered.request.body
            else:
                body = body_of(lambda serial: _entry_at(source.entries, serial), call.request)
            request: CachedRequest | None = self._splitter(call).split(body)
        except DragomanError as error:
            return Seen(call=call, problem=str(error), is_parent=is_parent)
        return Seen(call=call, request=request, rendered=rendered, is_parent=is_parent)

    def _splitter(self, call: PastCall) -> RequestSplitter:
        specification = call.invocation.specification
        if call.request is None and call.invocation.provider not in PROVIDERS:  # it was written down as of this API
            specification = PROVIDERS[UNKNOWN_PROVIDER]
        if specification not in self._splitters:
            self._splitters[specification] = RequestSplitter(specification)
        return self._splitters[specification]

    def _judge(self, seen: Seen, earlier: Seen | None, *, is_first: bool) -> CacheCall:
        comparison, expected, seconds = None, None, None
        if earlier is None:
            verdict = _of_first(seen.call) if is_first else _of_new_model(seen.call)
        elif seen.request is None or earlier.request is None:
            verdict = _of_unreadable(seen if seen.request is None else earlier)
        else:
            rules, seconds = self._rules(seen.call), _seconds(earlier.call, seen.call)
            comparison = compare_requests(earlier.request, seen.request)
            expected = find_expected(
                Weighed(earlier.call, earlier.request.weight),
                Weighed(seen.call, seen.request.weight),
                comparison,
                rules,
            )
            begin = self._forked_at if earlier.is_parent else earlier.call.serial
            verdict = find_cause(
                Pair(
                    old=earlier,
                    new=seen,
                    old_request=earlier.request,
                    new_request=seen.request,
                    comparison=comparison,
                    expected=expected,
                    rules=rules,
                    seconds=seconds,
                    between=self._own.entries[begin + 1 : seen.call.serial],
                    forked_at=self._forked_at,
                )
            )
        usage = seen.call.usage
        return CacheCall(
            serial=seen.call.serial,
            model=seen.call.model,
            cause=verdict.cause,
            sentence=verdict.sentence,
            compared_with=None if earlier is None or earlier.is_parent else earlier.call.serial,
            entry_serial=verdict.entry_serial,
            request_bytes=None if seen.request is None else seen.request.size,
            shared_bytes=(0 if earlier is None else None) if comparison is None else comparison.size,
            path="" if comparison is None else comparison.path,
            before="" if comparison is None else comparison.before,
            after="" if comparison is None else comparison.after,
            input_tokens=None if usage is None else usage.input_tokens,
            expected_tokens=_expected(verdict.cause, expected),
            reported_tokens=None if usage is None else usage.cache_read_tokens,
            seconds=seconds,
            is_exact=None if seen.rendered is None else seen.rendered.is_exact,
        )

    def _rules(self, call: PastCall) -> CacheRules:
        rules = find_cache_rules(call.invocation)
        return (
            rules
            if self._cache_seconds is None
            else msgspec.structs.replace(rules, seconds=self._cache_seconds, most_seconds=self._cache_seconds)
        )


def _needed_before(calls: Sequence[PastCall], among: range) -> list[int]:
    """The places, in their order, of the calls before a range that calls in it are compared with."""
    wanted = {calls[place].invocation for place in among}
    found: list[int] = []
    for place in range(among.start - 1, -1, -1):
        if not wanted:
            break
        if calls[place].invocation in wanted:
            wanted.discard(calls[place].invocation)
            found.append(place)
    return found[::-1]


def _entry_at(entries: Sequence[HistoryEntry], serial: int) -> HistoryEntry | None:
    return entries[serial] if 0 <= serial < len(entries) else None


def _is_before(earlier: PastCall, later: PastCall) -> bool:
    return earlier.asked_at is None or later.asked_at is None or earlier.asked_at <= later.asked_at


def _seconds(earlier: PastCall, later: PastCall) -> float | None:
    """The time between two calls; None where the record does not say it."""
    if earlier.asked_at is None or later.asked_at is None:
        return None
    return (later.asked_at - earlier.asked_at).total_seconds()


def _expected(cause: CacheCause, expected: Expected | None) -> int | None:
    """The tokens that the cache should have given after all; None where that is not known."""
    if cause in _LOSES_ALL:
        return 0
    return None if expected is None else expected.tokens


def _of_first(_call: PastCall) -> Verdict:
    return Verdict(cause=CacheCause.FIRST, sentence="This is the first call: nothing of it can be cached yet.")


def _of_new_model(call: PastCall) -> Verdict:
    return Verdict(
        cause=CacheCause.MODEL,
        sentence=f"The model changed: {call.model} was not asked before, so its cache holds nothing of this session.",
    )


def _of_unreadable(seen: Seen) -> Verdict:
    sentence = f"The request of #{seen.call.serial} cannot be rendered again: {seen.problem}."
    return Verdict(cause=CacheCause.UNKNOWN, sentence=sentence)
