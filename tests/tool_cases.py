"""Signatures of all kinds, JSON values for a schema (that fit, that nearly do, any), and tools that are run alone."""

import asyncio
import collections.abc
import enum
import json
import string
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypeVar,
    Union,
)
from uuid import UUID

import annotated_types
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict

from dragoman import ToolCall
from dragoman.history import HistoryToolCallResult
from dragoman.tools import ReadyCall, ToolContext, ToolDefinition, ToolExecutor, ToolRegistry

__all__ = [
    "CONTEXT",
    "SIGNATURES",
    "any_json",
    "call",
    "definition",
    "fitting",
    "near_misses",
    "nothing_left",
    "ready",
    "released",
    "returning",
    "returning_async",
    "run_one",
]

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    WORD = "word"
    NOTHING = None
    YES = True


@dataclass
class Point:
    """A place."""

    x: float
    y: float = 0.0


@dataclass
class Tree:
    value: int
    children: list["Tree"] = field(default_factory=list)


@dataclass
class Chain:
    text: str
    following: Optional["Chain"] = None


@dataclass
class Box(Generic[T]):
    content: T
    label: str = ""


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: Annotated[float, Field(gt=0)]


@dataclass
class Square:
    kind: Literal["square"]
    side: Annotated[float, Field(gt=0)]


class Options(TypedDict, total=False):
    verbose: Required[bool]
    depth: int


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Pair(NamedTuple):
    first: int
    second: str = "x"


class Person(BaseModel):
    """Somebody."""

    name: str = Field(min_length=1)
    age: int | None = Field(default=None, ge=0, le=150)
    friends: list["Person"] = []


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    full_name: str = Field(alias="fullName")
    born: date


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: Color


@pydantic_dataclass
class Range:
    low: int
    high: Annotated[int, Field(le=100)]


Tags = TypeAliasType("Tags", list[str])
Nested = TypeAliasType("Nested", "int | list[Nested]")
Listed = TypeAliasType("Listed", list[T], type_params=(T,))


def even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value


# Signatures as functions: what a user writes. None is ever called.
def scalars(a: str, b: int, c: float, d: bool) -> None: ...
def defaults(a: str = "x", b: int = 3, c: float | None = None, d: bool = False) -> None: ...
def nothing() -> None: ...
def anything(a: Any, b: object = None) -> None: ...
def null(a: None, b: int | None) -> None: ...
def literals(a: Literal["x", "y"], b: Literal[1, 2], c: Literal[1, "a", None, True] = None) -> None: ...
def one_literal(a: Literal["only"], b: Literal[True], c: Literal[7]) -> None: ...
def enums(a: Color, b: Level, c: Mixed = Mixed.ONE) -> None: ...
def literal_member(a: Literal[Color.RED]) -> None: ...
def lists(a: list[int], b: list[str] | None = None, c: list[Any] = []) -> None: ...  # noqa: B006
def bare(a: list, b: dict, c: tuple, d: set) -> None: ...  # type: ignore[type-arg]
def nested_lists(a: list[list[list[int]]], b: list[dict[str, list[bool]]]) -> None: ...
def tuples(a: tuple[int, str], b: tuple[int, ...], c: tuple[()]) -> None: ...
def sets(a: set[int], b: frozenset[str]) -> None: ...
def sequences(a: collections.abc.Sequence[int], b: collections.abc.Iterable[str]) -> None: ...
def mappings(a: dict[str, int], b: collections.abc.Mapping[str, list[float]]) -> None: ...
def keyed(a: dict[Literal["x", "y"], int], b: dict[Color, str]) -> None: ...
def unions(a: int | str, b: Union[float, bool, None], c: list[int] | dict[str, int]) -> None: ...  # noqa: UP007
def optional(a: Optional[int], b: Optional[str] = None, c: Literal["x"] | None = None) -> None: ...  # noqa: UP045
def points(a: Point, b: Point | None = None) -> None: ...
def shared(a: Point, b: list[Point], c: dict[str, Point]) -> None: ...
def trees(a: Tree) -> None: ...
def chains(a: Chain | None, b: list[Chain]) -> None: ...
def boxes(a: Box[int], b: Box[list[str]], c: Box[Point] | None = None) -> None: ...
def shapes(a: Circle | Square, b: list[Circle | Square]) -> None: ...
def typed_dicts(a: Options, b: Address) -> None: ...
def named_tuples(a: Pair, b: list[Pair]) -> None: ...
def models(a: Person) -> None: ...
def closed_models(a: Closed, b: Closed | None = None) -> None: ...
def told_apart(a: Annotated[Cat | Dog, Field(discriminator="kind")], b: list[Cat | Dog]) -> None: ...
def pydantic_dataclasses(a: Range) -> None: ...
def validated(a: Annotated[int, AfterValidator(even)], b: PositiveInt = 2) -> None: ...
def new_types(a: UserId, b: list[UserId]) -> None: ...
def aliases(a: Tags, b: Listed[int], c: Tags | None = None) -> None: ...
def recursive_alias(a: Nested) -> None: ...
def times(a: datetime, b: date, c: time, d: timedelta) -> None: ...
def ids(a: UUID, b: Path, c: Decimal) -> None: ...
def raw(a: bytes) -> None: ...
def bounded(a: Annotated[int, Field(ge=1, le=10)], b: Annotated[float, Field(gt=0, lt=1)]) -> None: ...
def multiples(
    a: Annotated[int, Field(multiple_of=5)], b: Annotated[float, annotated_types.MultipleOf(0.5)]
) -> None: ...
def texts(
    a: Annotated[str, Field(min_length=2, max_length=4)], b: Annotated[str, Field(pattern="^[a-c]+$")]
) -> None: ...
def sized(
    a: Annotated[list[int], Field(min_length=1, max_length=3)], b: Annotated[dict[str, int], annotated_types.Len(1, 2)]
) -> None: ...
def inner_limits(
    a: list[Annotated[int, annotated_types.Interval(ge=0, lt=5)]], b: dict[str, Annotated[str, Field(max_length=2)]]
) -> None: ...
def limited_optional(a: Annotated[int | None, Field(ge=1)], b: Annotated[int, Field(ge=1)] | None = None) -> None: ...
def limited_decimal(a: Annotated[Decimal, Field(ge=1, le=5)]) -> None: ...
def limited_set(
    a: Annotated[set[int], Field(min_length=1)], b: Annotated[tuple[int, ...], Field(max_length=2)]
) -> None: ...
def described(
    a: Annotated[int, Field(description="how many")], b: Annotated[str, Field(title="B", examples=["x"])] = ""
) -> None: ...
def aliased(a: Annotated[int, Field(alias="theA")], b: str = "x") -> None: ...
def field_defaults(a: int = Field(5, ge=1), b: list[str] = Field(default_factory=list)) -> None: ...  # noqa: B008
def keyword_only(a: int, *, b: str = "x", c: bool) -> None: ...
def deep(a: dict[str, list[tuple[Point, Options | None]]]) -> None: ...
def mixed_depth(a: list[Person | Point | str], b: Person | None = None) -> None: ...


SIGNATURES = (
    scalars, defaults, nothing, anything, null, literals, one_literal, enums, literal_member, lists, bare,
    nested_lists, tuples, sets, sequences, mappings, keyed, unions, optional, points, shared, trees, chains, boxes,
    shapes, typed_dicts, named_tuples, models, closed_models, told_apart, pydantic_dataclasses, validated,
    new_types, aliases, recursive_alias, times, ids, raw, bounded, multiples, texts, sized, inner_limits,
    limited_optional, limited_decimal, limited_set, described, aliased, field_defaults, keyword_only, deep,
    mixed_depth,
)  # fmt: skip


# ---------------------------------------------------------------- values

_text = st.text(st.sampled_from(string.ascii_letters + " -éß\U0001f600"), max_size=6)
_leaves = st.one_of(st.none(), st.booleans(), st.integers(-20, 20), st.floats(-9, 9, width=32), _text)
any_json = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_text, inner, max_size=3)),
    max_leaves=8,
)
_times = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda when: when.replace(tzinfo=UTC))
_FORMATS: dict[str, st.SearchStrategy[str]] = {
    "date-time": _times.map(lambda when: when.isoformat().replace("+00:00", "Z")),
    "date": _times.map(lambda when: when.date().isoformat()),
    "time": _times.map(lambda when: f"{when.time().isoformat(timespec='seconds')}Z"),
    "duration": st.integers(1, 99).map(lambda count: f"P{count}DT{count % 24}H"),
    "uuid": st.uuids().map(str),
}


def fitting(schema: dict[str, Any] | bool, root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that fit a schema of the kinds that occur here; past a depth, the smallest ones."""
    if isinstance(schema, bool) or not schema:
        return any_json
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return st.deferred(lambda: fitting(root["$defs"][name], root, depth + 1))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            choices = [fitting(choice, root, depth) for choice in schema[keyword]]
            # In a type that leads back to itself, the last choices end it or the first do: never both.
            return st.one_of(choices) if depth < 3 else st.one_of(choices[-1:] + choices[:1])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "object":
        return _objects(schema, root, depth)
    if kind == "array":
        return _arrays(schema, root, depth)
    return _scalars(schema)


def _scalars(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind = schema.get("type")
    if kind == "string":
        if "pattern" in schema:
            alphabet = st.sampled_from(string.ascii_letters)
            return st.from_regex(schema["pattern"], alphabet=alphabet).filter(str.isalpha)
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        letters = st.sampled_from(string.ascii_letters)
        return st.text(letters, min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 8))
    if kind in ("integer", "number"):
        step = schema.get("multipleOf")
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1000 if not step else -10))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1000 if not step else 10))
        if step:
            return st.integers(-10, 10).map(lambda count: count * step)
        if kind == "integer":
            open_low, open_high = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema
            return st.integers(int(low) + open_low, int(high) - open_high)
        return st.floats(low, high, exclude_min="exclusiveMinimum" in schema, exclude_max="exclusiveMaximum" in schema)
    return {"boolean": st.booleans(), "null": st.none()}.get(str(kind), any_json)


def _objects(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    properties = {name: fitting(inner, root, depth + 1) for name, inner in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    optional = {} if depth >= 3 else {name: inner for name, inner in properties.items() if name not in required}
    named = st.fixed_dictionaries({name: properties[name] for name in required}, optional=optional)
    rest = schema.get("additionalProperties")
    if properties or rest in (None, False):
        return named
    names = fitting(schema.get("propertyNames", {"type": "string"}), root, depth + 1)
    least, most = schema.get("minProperties", 0), schema.get("maxProperties", 3 if depth < 3 else 0)
    return st.dictionaries(names, fitting(rest, root, depth + 1), min_size=least, max_size=max(least, most))


def _arrays(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(fitting(item, root, depth + 1) for item in schema["prefixItems"])).map(list)
    least = schema.get("minItems", 0)
    most = schema.get("maxItems", 3 if depth < 3 else 0)
    item = fitting(schema.get("items", {}), root, depth + 1)
    if schema.get("uniqueItems"):
        return st.lists(item, min_size=least, max_size=max(least, most), unique_by=repr)
    return st.lists(item, min_size=least, max_size=max(least, most))


_INSTEAD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 5, 10, 11, 150, 151, 0.5, 1.0, 3.0, 0.3, 1e300, 10**30, "", "x", "k", "abc",
    "abcde", "5", "true", "2026-01-31", "2026-01-31T10:00:00", "2026-01-31T10:00:00Z", "10:00:00", "P1D", [], {},
    [None], [1, 2], [1, 1], ["a"], {"x": 1}, {"kind": "cat"}, {"value": 1},
)  # fmt: skip


def near_misses(value: Any) -> Iterator[Any]:
    """The value with each thing in it replaced by others, left out, repeated, or with something added."""
    yield from _INSTEAD
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {other: item for other, item in value.items() if other != name}
            for changed in near_misses(inner):
                yield {**value, name: changed}
        yield {**value, "unheard_of": 1}
    elif isinstance(value, list):
        for place, inner in enumerate(value[:3]):
            yield value[:place] + value[place + 1 :]
            for changed in near_misses(inner):
                yield [*value[:place], changed, *value[place + 1 :]]
        yield [*value, None]
        yield [*value, *value]
    elif isinstance(value, str):
        yield value + value
        yield value[:-1]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (value + 1, value - 1, -value, str(value))


# ---------------------------------------------------------------- runs

CONTEXT: ToolContext[Any] = ToolContext()


def call(name: str, arguments: dict[str, Any] | str | None = None, call_id: str = "c1") -> ToolCall:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall.parse(call_id, name, raw)


def definition(name: str, execute: Any, **settings: Any) -> ToolDefinition:
    return ToolDefinition(name=name, execute=execute, parameter_schema={"type": "object"}, **settings)


def returning(value: Any, name: str = "give", **settings: Any) -> ToolDefinition:
    """A tool whose function returns the value, or raises it if it is an exception."""

    def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return definition(name, execute, **settings)


def returning_async(value: Any, name: str = "give", **settings: Any) -> ToolDefinition:
    async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return definition(name, execute, **settings)


def ready(executor: ToolExecutor, name: str, arguments: dict[str, Any] | None = None, call_id: str = "c1") -> ReadyCall:
    prepared = executor.prepare(call(name, arguments, call_id))
    assert isinstance(prepared, ReadyCall), prepared
    return prepared


def run_one(made: ToolDefinition, arguments: dict[str, Any] | None = None, **settings: Any) -> HistoryToolCallResult:
    """Return the result of one call, run in a loop of its own; check that nothing is left behind."""
    executor = ToolExecutor(ToolRegistry([made]), **settings)
    return asyncio.run(nothing_left(executor.run(ready(executor, made.name, arguments), CONTEXT)))


async def nothing_left(running: Coroutine[Any, Any, T]) -> T:
    """Return the result, once no other task is left."""
    try:
        return await running
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left


@contextmanager
def released() -> Iterator[threading.Event]:
    """An event that threads may wait for; it is set at the end of the test, whatever happens in it."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()
