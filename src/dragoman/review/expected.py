"""A request and what it shares with an earlier one → the tokens that a provider should read from its cache. Pure."""

import msgspec

from .cacherules import CacheRules
from .calls import PastCall
from .comparing import Comparison

__all__ = ["Expected", "find_expected"]

BYTES_PER_TOKEN = 4


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """About how many tokens are shared, and how many of them the cache gives: none if they are too few."""

    shared: int = 0
    tokens: int = 0
    is_too_short: bool = False


def find_expected(call: PastCall, weight: int, comparison: Comparison, rules: CacheRules) -> Expected:
    """Return what the cache should give for a request of this weight, if it still holds what is shared."""
    usage = call.usage
    total = (usage.input_tokens if usage is not None else None) or call.estimate or weight // BYTES_PER_TOKEN
    shared = total * comparison.reused // max(weight, 1)
    is_read = usage is not None and bool(usage.cache_read_tokens)  # so it was not too little, whatever the rules say
    if shared < rules.minimum and not is_read:
        return Expected(shared=shared, is_too_short=True)
    return Expected(shared=shared, tokens=shared - shared % rules.step)
