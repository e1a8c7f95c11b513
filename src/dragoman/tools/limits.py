"""What a type demands of its values beyond their kind, and how a value that does not fit is spoken of."""

import re
from decimal import Decimal
from typing import Any

import msgspec

from .subschemas import json_type

__all__ = [
    "LENGTH_LIMITS",
    "NAMES",
    "NO_LIMITS",
    "NUMBER_LIMITS",
    "TEXT_LIMITS",
    "Limits",
    "Mismatch",
    "quote",
    "shown_name",
]

_QUOTED = 40  # characters of a value that a message may quote

# What a message to a model calls the JSON types.
NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}

NUMBER_LIMITS = frozenset({"ge", "gt", "le", "lt", "multiple_of"})
LENGTH_LIMITS = frozenset({"min_length", "max_length"})
TEXT_LIMITS = LENGTH_LIMITS | {"pattern"}


class Mismatch(Exception):
    """A value that a type does not take: where in it, what is wrong, and whether at least its kind was right."""

    def __init__(self, says: str, path: tuple[str | int, ...] = (), *, near: bool = True) -> None:
        super().__init__(says)
        self.says = says
        self.path = path
        self.near = near

    def under(self, step: str | int) -> "Mismatch":
        """Return the same, seen from one level further out."""
        return Mismatch(self.says, (step, *self.path), near=self.near)

    @classmethod
    def of_kind(cls, wanted: str, value: object) -> "Mismatch":
        """Return the mismatch of a value whose kind is wrong."""
        return cls(f"must be {wanted}, got {quote(value)}", near=False)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of numbers, lengths and patterns of text, sizes of arrays and objects; None is no limit."""

    ge: Any = None
    gt: Any = None
    le: Any = None
    lt: Any = None
    multiple_of: Any = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    tz: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return the limits that are set."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def with_limits(self, other: "Limits") -> "Limits":
        """Return both; where both set one, the other's counts."""
        return msgspec.structs.replace(self, **other.given())

    def keywords(self, noun: str) -> dict[str, Any]:
        """Return the keywords of a schema; `noun` is what lengths count: Length, Items or Properties."""
        names = {
            "ge": "minimum",
            "gt": "exclusiveMinimum",
            "le": "maximum",
            "lt": "exclusiveMaximum",
            "multiple_of": "multipleOf",
            "min_length": f"min{noun}",
            "max_length": f"max{noun}",
            "pattern": "pattern",
        }
        return {names[name]: _plain_number(value) for name, value in self.given().items() if name in names}

    def check_number(self, value: Any) -> None:
        """Raise Mismatch unless the number is within these limits."""
        if self.ge is not None and not value >= self.ge:
            raise Mismatch(f"must be at least {self.ge}")
        if self.gt is not None and not value > self.gt:
            raise Mismatch(f"must be greater than {self.gt}")
        if self.le is not None and not value <= self.le:
            raise Mismatch(f"must be at most {self.le}")
        if self.lt is not None and not value < self.lt:
            raise Mismatch(f"must be less than {self.lt}")
        if self.multiple_of is not None and not _is_multiple(value, self.multiple_of):
            raise Mismatch(f"must be a multiple of {self.multiple_of}")

    def check_length(self, size: int, noun: str) -> None:
        """Raise Mismatch unless there are as many as these limits allow."""
        if self.min_length is not None and size < self.min_length:
            raise Mismatch(f"must have at least {self.min_length} {noun}, has {size}")
        if self.max_length is not None and size > self.max_length:
            raise Mismatch(f"must have at most {self.max_length} {noun}, has {size}")

    def check_text(self, value: str) -> None:
        """Raise Mismatch unless the text has the length and the pattern."""
        self.check_length(len(value), "characters")
        if self.pattern is not None and not re.search(self.pattern, value):
            raise Mismatch(f"must match the pattern {self.pattern}")


NO_LIMITS = Limits()


def quote(value: object) -> str:
    """Return a value as a message to a model may show it: itself if it is short, else its kind."""
    kind = json_type(value)
    if kind in ("array", "object"):
        return NAMES[kind]
    if isinstance(value, str):
        return repr(value) if len(value) <= _QUOTED else f"text of {len(value)} characters"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**_QUOTED:
        return "a very large number"
    return repr(value)


def shown_name(name: str, length: int = 60) -> str:
    """Return a name as a message or a record may show it: on one line, and cut if it is long."""
    cut = name if len(name) <= length else f"{name[:length]}…"
    return cut if cut.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in cut)


def _is_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    share = Decimal(str(value)) / Decimal(str(of))  # the numbers as they are written: 0.3 is three times 0.1
    return share == share.to_integral_value()


def _plain_number(value: Any) -> Any:
    """A bound as JSON can hold it."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
