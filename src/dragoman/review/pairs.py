"""What is compared where a cache missed: two calls, their requests, and the word for what came of it. Values alone."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from ..history import HistoryEntry
from ..wire.cachedparts import CachedRequest
from .cacherules import CacheRules
from .calls import PastCall
from .comparing import Comparison
from .expected import Expected
from .rendering import PastRequest

__all__ = ["CacheCause", "Pair", "Seen", "Verdict"]


class CacheCause(StrEnum):
    """Why a call found its beginning in the provider's cache, or not. The first five are no miss."""

    KEPT = "kept"
    FIRST = "first"
    SHORT = "short"
    OFF = "off"
    UNKNOWN = "unknown"
    MODEL = "model"
    EXPIRED = "expired"
    RESET = "reset"
    FORK = "fork"
    TOOLS = "tools"
    SYSTEM = "system"
    SETTINGS = "settings"
    EPOCH = "epoch"
    LEVEL = "level"
    WIDGET = "widget"
    EDIT = "edit"
    HANDOFF = "handoff"
    LOOKBACK = "lookback"
    PROVIDER = "provider"

    @property
    def is_miss(self) -> bool:
        """Whether something was cached, or should have been, that the call did not get."""
        return self not in _NO_MISS


_NO_MISS = frozenset({CacheCause.KEPT, CacheCause.FIRST, CacheCause.SHORT, CacheCause.OFF, CacheCause.UNKNOWN})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A call with its request; `rendered` unless a client sent it. Without a request, `problem` says why."""

    call: PastCall
    request: CachedRequest | None = None
    rendered: PastRequest | None = None
    problem: str = ""
    is_parent: bool = False  # of the session that this one was forked from


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in one sentence, and the entry that made the difference, if one did."""

    cause: CacheCause
    sentence: str
    entry_serial: int | None = None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two calls to one model, in their order, and all that the verdict goes by.

    `between` are the entries of this session after the earlier call, or after the fork if its parent made that call.
    """

    old: Seen
    new: Seen
    old_request: CachedRequest
    new_request: CachedRequest
    comparison: Comparison
    expected: Expected
    rules: CacheRules
    seconds: float | None = None
    between: Sequence[HistoryEntry] = ()
    forked_at: int = -1

    @property
    def is_read(self) -> bool | None:
        """Whether the provider says that it has read what was expected, or about that; None if it says nothing."""
        usage = self.new.call.usage
        reported = None if usage is None else usage.cache_read_tokens
        return None if reported is None else 2 * reported >= self.expected.tokens

    def first_of(self, kind: type[HistoryEntry]) -> HistoryEntry | None:
        """Return the first entry of a kind between the calls."""
        return next((entry for entry in self.between if isinstance(entry, kind)), None)
