"""A request and what it shares with an earlier one → the tokens that a provider should read from its cache. Pure."""

import msgspec

from .cacherules import CacheRules
from .calls import PastCall
from .comparing import Comparison

__all__ = ["Expected", "Weighed", "find_expected"]

BYTES_PER_TOKEN = 4


class Weighed(msgspec.Struct, frozen=True):
    """A call, and what all of its request weighs."""

    call: PastCall
    weight: int


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """About how many tokens are shared, and how many of them the cache gives: none if they are too few."""

    shared: int = 0
    tokens: int = 0
    is_too_short: bool = False


def find_expected(earlier: Weighed, later: Weighed, comparison: Comparison, rules: CacheRules) -> Expected:
    """Return what the cache should give the later call, if it still holds what the earlier one left there.

    What is shared stood in the earlier request: its tokens for each byte say more than those of a request whose new
    part may be in another script.
    """
    known = earlier if _counted(earlier.call) is not None else later
    total = _counted(known.call) or later.call.estimate or later.weight // BYTES_PER_TOKEN
    weight = known.weight if _counted(known.call) is not None else later.weight
    shared = total * min(comparison.reused, weight) // max(weight, 1)
    usage = later.call.usage
    is_read = usage is not None and bool(usage.cache_read_tokens)  # so it was not too little, whatever the rules say
    if shared < rules.minimum and not is_read:
        return Expected(shared=shared, is_too_short=True)
    return Expected(shared=shared, tokens=shared - shared % rules.step)


def _counted(call: PastCall) -> int | None:
    """The tokens of the whole request, as the provider counted them."""
    return None if call.usage is None else call.usage.input_tokens or None
