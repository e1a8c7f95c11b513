"""What a model call used and what it costs. Input is counted whole, output with its reasoning, for every provider.

Also the bounds of every number that is recorded: what a provider reports enters through `TokenUsage.reported`.
"""

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from .errors import InvalidValue

__all__ = ["Prices", "TokenUsage"]

# The largest number that is recorded, of tokens, dollars, seconds, bytes or entries. Above it JSON numbers are not
# whole everywhere, and the sum of two floats can be infinite.
NUMBER_LIMIT = 2**53

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


class TokenUsage(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", omit_defaults=True):
    """Tokens of one call, or of several added up. None means: not reported.

    `input_tokens` counts all input, cache reads, cache writes and tool-use prompts included;
    `output_tokens` counts reasoning too. `cost` is in US dollars.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in _TOKENS:
            count = getattr(self, name)
            if count is not None and (type(count) is not int or not 0 <= count <= NUMBER_LIMIT):
                require_count(name, count)
        if self.cost is not None:
            force_setattr(self, "cost", require_amount("cost", self.cost))

    @classmethod
    def reported(cls, *, cost: Any = None, **counts: Any) -> "TokenUsage":
        """Return what a provider reported, given as it was read: a number that cannot be believed is not reported."""
        return cls(**{name: count_of(count) for name, count in counts.items()}, cost=amount_of(cost))

    def updated_by(self, later: "TokenUsage") -> "TokenUsage":
        """Return the usage after a later report of the same stream: its non-null fields win, nothing is summed."""
        changes: dict[str, Any] = {
            name: value for name in self.__struct_fields__ if (value := getattr(later, name)) is not None
        }
        return msgspec.structs.replace(self, **changes)

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        """Return the usage of two calls together, at most `NUMBER_LIMIT`; a field that neither reported stays None."""
        if not isinstance(other, TokenUsage):
            return NotImplemented
        sums: dict[str, Any] = {}
        for name in self.__struct_fields__:
            reported = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            sums[name] = min(sum(reported), NUMBER_LIMIT) if reported else None
        return TokenUsage(**sums)


class Prices(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", omit_defaults=True):
    """US dollars per million tokens. A cache price that is not given is the input price."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            price = getattr(self, name)
            if price is not None or not name.startswith("cache"):
                force_setattr(self, name, require_amount(f"the price {name}", price))

    def cost_of(self, usage: TokenUsage) -> float:
        """Return the dollars that `usage` costs, at most `NUMBER_LIMIT`; what was not reported costs nothing."""
        cache_read = usage.cache_read_tokens or 0
        cache_write = usage.cache_write_tokens or 0
        fresh = max((usage.input_tokens or 0) - cache_read - cache_write, 0)
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        dollars = fresh * self.input + cache_read * read_price + cache_write * write_price
        return min((dollars + (usage.output_tokens or 0) * self.output) / 1_000_000, float(NUMBER_LIMIT))


def require_count(field: str, value: object, lowest: int = 0) -> None:
    """Raise InvalidValue unless `value` is a whole number that can be recorded."""
    if type(value) is not int or not lowest <= value <= NUMBER_LIMIT:
        raise InvalidValue.of(field, value, f"a whole number from {lowest} up, at most 2**53")


def require_amount(field: str, value: object) -> float:
    """Return `value` as the float that is recorded; raise InvalidValue unless it is a number from 0 to 2**53."""
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_LIMIT:  # type: ignore[operator]  # a number, as just seen
        raise InvalidValue.of(field, value, "a finite number from 0 up, at most 2**53")
    return float(value)  # type: ignore[arg-type]  # a number, as just seen


def count_of(value: Any) -> int | None:
    """Return the value if it is a believable count, also as text or with a fraction; else None."""
    if type(value) is int:  # nearly always
        return value if 0 <= value <= NUMBER_LIMIT else None
    amount = amount_of(value)
    return None if amount is None else int(amount)


def amount_of(value: Any) -> float | None:
    """Return the value if it is a number from 0 to `NUMBER_LIMIT`, also as text; else None."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_LIMIT:
        return None
    return float(value)
