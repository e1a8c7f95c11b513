"""What a model call used and what it costs. Input is counted whole, output with its reasoning, for every provider."""

import math
from typing import Any

import msgspec

from .errors import InvalidValue

__all__ = ["Prices", "TokenUsage"]

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
            if count is not None and (type(count) is not int or count < 0):
                raise InvalidValue.of(name, count, "a whole number from 0 up")
        _require_amount("cost", self.cost)

    def updated_by(self, later: "TokenUsage") -> "TokenUsage":
        """Return the usage after a later report of the same stream: its non-null fields win, nothing is summed."""
        changes: dict[str, Any] = {
            name: value for name in self.__struct_fields__ if (value := getattr(later, name)) is not None
        }
        return msgspec.structs.replace(self, **changes)

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        """Return the usage of two calls together; a field that neither reported stays None."""
        if not isinstance(other, TokenUsage):
            return NotImplemented
        sums: dict[str, Any] = {}
        for name in self.__struct_fields__:
            reported = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            sums[name] = sum(reported) if reported else None
        return TokenUsage(**sums)


class Prices(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", omit_defaults=True):
    """US dollars per million tokens. A cache price that is not given is the input price."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _require_amount(f"the price {name}", getattr(self, name), optional=name.startswith("cache"))

    def cost_of(self, usage: TokenUsage) -> float:
        """Return the dollars that `usage` costs; what was not reported costs nothing."""
        cache_read = usage.cache_read_tokens or 0
        cache_write = usage.cache_write_tokens or 0
        fresh = max((usage.input_tokens or 0) - cache_read - cache_write, 0)
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        dollars = fresh * self.input + cache_read * read_price + cache_write * write_price
        return (dollars + (usage.output_tokens or 0) * self.output) / 1_000_000


def _require_amount(field: str, value: object, *, optional: bool = True) -> None:
    if value is None and optional:
        return
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]  # a number, as just seen
        raise InvalidValue.of(field, value, "a finite number from 0 up")
