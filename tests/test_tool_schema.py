"""Types as JSON Schemas: what is written for each, what values become, which types are refused and how."""

import collections.abc
import enum
import json
import subprocess
import sys
from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, LiteralString, NamedTuple, Optional, TypedDict, TypeVar
from uuid import UUID

import annotated_types
import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from typing_extensions import Doc, ReadOnly, TypeAliasType

from dragoman import ErrorCode, InvalidValue, ToolError
from dragoman.tools import TypeSchema
from tests.tool_cases import fitting, near_misses

T = TypeVar("T")
unhurried = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


class Color(enum.Enum):
    """What the eye sees."""

    RED = "red"
    GREEN = "green"


@dataclass
class Place:
    """A place on the map.

    Attributes:
        name: What people call it.
    """

    name: str
    height: Annotated[float, "in metres"] = 0.0
    tags: list[str] = field(default_factory=list, metadata={"description": "words"})
    seen: int = field(default=0, init=False)


@dataclass
class Tree:
    value: int
    children: "list[Tree]" = field(default_factory=list)


def schema_of(kind: Any) -> dict[str, Any]:
    return TypeSchema.of(kind).schema


def value_of(kind: Any, value: Any) -> Any:
    known = TypeSchema.of(kind)
    assert known.problems(value) == []
    return known.convert(value)


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (LiteralString, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array"}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (deque[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[Any, Any], {"type": "object", "additionalProperties": True}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Literal[1, "a"], {"enum": [1, "a"]}),
        (Color, {"type": "string", "description": "What the eye sees.", "enum": ["red", "green"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | Any, {}),
        (datetime, {"type": "string", "format": "date-time"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Annotated[bytes, msgspec.Meta(max_length=4)], {"type": "string", "contentEncoding": "base64", "maxLength": 8}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, Doc("how many")], {"type": "integer", "description": "how many"}),
        (Annotated[int, msgspec.Meta(ge=1, description="d", examples=[3])], {
            "type": "integer", "minimum": 1, "description": "d", "examples": [3]
        }),
        (Annotated[int, msgspec.Meta(extra_json_schema={"deprecated": True})], {"type": "integer", "deprecated": True}),
        (Annotated[Decimal, annotated_types.Gt(Decimal("0.5"))], {
            "anyOf": [{"type": "number", "exclusiveMinimum": 0.5}, {"type": "string"}]
        }),
    ],
)  # fmt: skip
def test_the_schema_of(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


def test_a_dataclass_is_written_with_its_words_and_defaults_and_is_closed() -> None:
    assert schema_of(list[Place])["items"] == {
        "type": "object",
        "description": "A place on the map.",
        "properties": {
            "name": {"type": "string", "description": "What people call it."},
            "height": {"type": "number", "description": "in metres", "default": 0.0},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_a_type_that_is_used_once_stands_where_it_is_used() -> None:
    assert "$defs" not in schema_of(dict[str, list[Place]])


def test_a_type_that_is_used_more_often_is_defined_once_unless_it_is_short() -> None:
    schema = schema_of(tuple[Place, Place, Color, Color])
    assert list(schema["$defs"]) == ["Place"]
    assert [item.get("$ref") for item in schema["prefixItems"]] == ["#/$defs/Place"] * 2 + [None] * 2


def test_a_recursive_type_is_a_definition_that_refers_to_itself() -> None:
    schema = schema_of(Tree)
    assert schema["$ref"] == "#/$defs/Tree"
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


class Outer:
    @dataclass
    class Same:
        a: str
        b: "list[Outer.Same]" = field(default_factory=list)


@dataclass
class Same:
    a: int
    b: "list[Same]" = field(default_factory=list)


def test_a_name_that_is_taken_gets_a_number() -> None:
    schema = schema_of(tuple[Same, Outer.Same])
    assert sorted(schema["$defs"]) == ["Same", "Same_2"]
    assert value_of(tuple[Same, Outer.Same], [{"a": 1}, {"a": "x"}]) == (Same(1), Outer.Same("x"))


def test_generic_classes_are_told_apart_by_their_arguments() -> None:
    @dataclass
    class Page(Generic[T]):
        items: list[T]
        following: T | None = None

    @dataclass
    class Numbered(Page[int]):
        number: int = 0

    assert value_of(Page[str], {"items": ["a"]}) == Page(["a"])
    assert TypeSchema.of(Page[str]).problems({"items": [1]}) == ["items[0]: must be text, got 1"]
    assert TypeSchema.of(Numbered).problems({"items": ["a"]}) == ["items[0]: must be a whole number, got 'a'"]
    assert value_of(Page, {"items": [1, "a"]}) == Page([1, "a"])


def test_a_type_variable_stands_for_its_bound_or_its_choices() -> None:
    bound = TypeVar("bound", bound=int)
    chosen = TypeVar("chosen", int, str)
    assert schema_of(bound) == {"type": "integer"}
    assert schema_of(chosen) == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema_of(T) == {}


def test_qualifiers_are_looked_through() -> None:
    class Frozen(TypedDict):
        a: ReadOnly[int]

    assert schema_of(Frozen)["properties"] == {"a": {"type": "integer"}}
    assert schema_of(Final[int]) == {"type": "integer"}


# ---------------------------------------------------------------- msgspec


class Base(msgspec.Struct, tag_field="kind", tag=str.lower):
    name: str


class Cat(Base, rename="camel"):
    """A cat."""

    lives_left: Annotated[int, msgspec.Meta(ge=0, le=9)] = 9
    born: date | None = None


class Dog(Base, forbid_unknown_fields=True, kw_only=True):
    tricks: list[str]
    age: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    key: str
    value: float = 0.0


class Link(msgspec.Struct):
    text: str
    following: "Link | None" = None


class Shelf(msgspec.Struct, Generic[T]):
    content: T
    extra: dict[str, T] = {}


STRUCTS: list[Any] = [Cat, Dog, Cat | Dog, list[Cat | Dog], Row, Link, Shelf[int], dict[str, Row]]


@pytest.mark.parametrize("kind", STRUCTS, ids=str)
def test_structs_are_judged_as_by_the_schema_that_msgspec_makes(kind: Any) -> None:
    theirs = msgspec.json.schema(kind)
    judges = [jsonschema_rs.Draft202012Validator(schema, validate_formats=True) for schema in (schema_of(kind), theirs)]
    verdicts = set()

    @unhurried
    @given(fitting(theirs, theirs))
    def check(value: Any) -> None:
        for near in (value, *list(near_misses(value))[:400]):
            ours, other = (judge.is_valid(near) for judge in judges)
            assert ours is other, near
            verdicts.add(ours)

    check()
    assert verdicts == {True, False}


@pytest.mark.parametrize("kind", STRUCTS, ids=str)
def test_structs_become_what_msgspec_makes_of_them(kind: Any) -> None:
    schema = msgspec.json.schema(kind)

    @unhurried
    @given(fitting(schema, schema))
    def check(value: Any) -> None:
        assert value_of(kind, value) == msgspec.convert(value, kind)

    check()


def test_the_tag_tells_structs_apart_and_is_no_field() -> None:
    assert value_of(Cat | Dog, {"kind": "dog", "name": "Rex", "tricks": []}) == Dog(name="Rex", tricks=[])
    assert value_of(Cat | Dog, {"kind": "cat", "name": "Tom", "livesLeft": 3}) == Cat(name="Tom", lives_left=3)
    assert TypeSchema.of(Cat | Dog).problems({"kind": "cow", "name": "x"}) != []


# ---------------------------------------------------------------- what values become


class Pair(NamedTuple):
    first: int
    second: str = "x"


@pytest.mark.parametrize(
    ("kind", "given_value", "value"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (Color, "red", Color.RED),
        (Literal[Color.GREEN], "green", Color.GREEN),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (deque[int], [1], deque([1])),
        (collections.abc.Iterable[int], [1], [1]),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (Pair, [1], Pair(1)),
        (namedtuple("Old", "a b"), [1, "x"], (1, "x")),
        (datetime, "2026-01-31T10:00:00Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (datetime, "2026-01-31T10:00", datetime(2026, 1, 31, 10)),
        (date, "2026-01-31", date(2026, 1, 31)),
        (time, "10:30", time(10, 30)),
        (timedelta, "P1DT2H", timedelta(days=1, hours=2)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678")),
        (Decimal, 0.1, Decimal("0.1")),
        (Decimal, "1.10", Decimal("1.10")),
        (bytes, "aGk=", b"hi"),
        (Path, "a/b", Path("a/b")),
        (Place, {"name": "x"}, Place("x")),
        (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
        (float | int, 3, 3.0),
        (int | str, "3", "3"),
        (datetime | str, "soon", "soon"),
        (None | list[int], [1], [1]),
    ],
)
def test_a_value_becomes(kind: Any, given_value: Any, value: Any) -> None:
    assert value_of(kind, given_value) == value
    assert type(value_of(kind, given_value)) is type(value) or isinstance(value, tuple)


@dataclass
class Circle:
    radius: float
    name: str = ""


@dataclass
class Square:
    side: float
    name: str = ""


class Loose(TypedDict, total=False):
    a: int


class Looser(TypedDict, total=False):
    a: int
    b: int


def test_of_several_objects_the_one_that_knows_most_names_is_meant() -> None:
    assert value_of(Circle | Square, {"side": 1, "name": "x"}) == Square(1.0, "x")
    assert value_of(Loose | Looser, {"a": 1, "b": 2}) == {"a": 1, "b": 2}


def test_what_a_type_itself_refuses_is_told_with_its_place() -> None:
    @dataclass
    class Span:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.high < self.low:
                raise ValueError("high is below low\nand more")

    known = TypeSchema.of(list[Span])
    assert known.problems([{"low": 1, "high": 2}, {"low": 2, "high": 1}]) == [
        "[1]: is refused: ValueError: high is below low"
    ]
    with pytest.raises(ToolError, match="high is below low") as caught:
        known.convert([{"low": 2, "high": 1}])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (datetime, "soon", "arguments: must be a date and time like 2026-01-31T12:00:00Z, got 'soon'"),
        (datetime | None, "soon", "arguments: must be a date and time like 2026-01-31T12:00:00Z, got 'soon'"),
        (timedelta, "1 day", "arguments: must be a duration like P1DT2H, got '1 day'"),
        (UUID, "x" * 50, "arguments: must be a UUID, got text of 50 characters"),
        (bytes, "???", "arguments: must be base64 text, got '???'"),
        (Decimal, "NaN", "arguments: must be a finite number"),
        (Decimal, "x", "arguments: must be a number or a number as text, got 'x'"),
        (float, 10**400, "arguments: must be a number that fits into 64 bits"),
        (set[Any], [[1]], "arguments: must have items that a set can hold"),
        (
            Annotated[datetime, msgspec.Meta(tz=True)],
            "2026-01-31T10:00:00",
            "arguments: must be a time with a time zone",
        ),
        (Annotated[bytes, msgspec.Meta(min_length=2)], "aGk=", None),
        (Annotated[bytes, msgspec.Meta(min_length=3)], "aGk=", "arguments: must have at least 3 bytes, has 2"),
        (Annotated[Decimal, msgspec.Meta(lt=2)], "2.5", "arguments: must be less than 2"),
    ],
)
def test_what_the_schema_cannot_say_is_found_by_the_conversion(kind: Any, value: Any, says: str | None) -> None:
    assert TypeSchema.of(kind).problems(value) == ([] if says is None else [says])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Annotated[int, msgspec.Meta(ge=1, le=3)], [1, 3], [0, 4]),
        (Annotated[float, msgspec.Meta(gt=0, lt=1)], [0.5], [0, 1]),
        (Annotated[float, msgspec.Meta(multiple_of=0.1)], [0.3, 0.7, 2], [0.35]),
        (Annotated[str, msgspec.Meta(min_length=1, max_length=2, pattern="^a")], ["a", "ab"], ["", "b", "abc"]),
        (Annotated[list[int], msgspec.Meta(min_length=1)], [[1]], [[]]),
        (Annotated[dict[str, int], msgspec.Meta(max_length=1)], [{}], [{"a": 1, "b": 2}]),
        (Annotated[Annotated[int, msgspec.Meta(ge=1)], msgspec.Meta(le=2)], [1, 2], [0, 3]),
        (Annotated[int | str, annotated_types.Ge(1), annotated_types.MaxLen(1)], [1, "a"], [0, "ab"]),
    ],
)
def test_limits_hold_in_the_schema_and_in_the_conversion_alike(kind: Any, good: list[Any], bad: list[Any]) -> None:
    known = TypeSchema.of(kind)
    validator = jsonschema_rs.Draft202012Validator(known.schema)
    for value in good:
        assert validator.is_valid(value)
        known.convert(value)
    for value in bad:
        assert not validator.is_valid(value)
        with pytest.raises(ToolError):
            known.convert(value)


Small = TypeAliasType("Small", Annotated[int, msgspec.Meta(ge=1, le=5, description="few")])
Raw = TypeAliasType("Raw", Annotated[bytes, msgspec.Meta(min_length=1, description="raw")])


def test_limits_around_a_limited_type_take_the_place_of_its_own() -> None:
    assert schema_of(Annotated[Small, msgspec.Meta(ge=3)]) == {
        "type": "integer",
        "minimum": 3,
        "maximum": 5,
        "description": "few",
    }
    known = TypeSchema.of(Annotated[Raw, msgspec.Meta(max_length=1)])
    assert known.schema["description"] == "raw"
    assert known.problems("") == ["arguments: must have at least 4 characters, has 0"]
    assert known.problems("aGk=") == ["arguments: must have at most 1 bytes, has 2"]


def test_of_several_types_the_one_whose_limits_the_value_keeps_is_meant() -> None:
    kind: Any = Annotated[int, msgspec.Meta(ge=1)] | float
    assert [(value_of(kind, given), type(value_of(kind, given))) for given in (1, 0)] == [(1, int), (0.0, float)]
    several: Any = Annotated[list[int], msgspec.Meta(min_length=2)] | tuple[int, ...]
    assert [value_of(several, given) for given in ([1, 2], [1])] == [[1, 2], (1,)]


@pytest.mark.parametrize(("value", "says"), [("1.5", []), ("1.4", ["arguments: must be a multiple of 0.5"])])
def test_a_decimal_written_as_text_is_held_to_its_step(value: str, says: list[str]) -> None:
    assert TypeSchema.of(Annotated[Decimal, annotated_types.MultipleOf(Decimal("0.5"))]).problems(value) == says


# ---------------------------------------------------------------- what is refused


@dataclass
class WithInit:
    a: InitVar[int]


@dataclass
class Broken:
    a: "Unheard"  # type: ignore[name-defined]  # noqa: F821


class Points(enum.Enum):
    ORIGIN = (0, 0)


class Nothing(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (complex, "complex is not supported: JSON has no such type"),
        (Callable[[int], int], "is not supported"),
        (type[int], "is not supported"),
        (dict[tuple[int, int], int], "tuple[int, int] as keys is not supported: JSON's names are text"),
        (dict[float, int], "float as keys"),
        (tuple[int, *tuple[str, ...]], "unpacked"),
        (Literal[b"x"], r"Literal[b'x'] is not supported"),
        (Points, "Points.ORIGIN is not supported: its value is a tuple"),
        (Nothing, "it has no members"),
        (WithInit, "InitVar cannot be in JSON"),
        (Broken, "the name 'Unheard' in its annotations means nothing here"),
        ("Unheard", "the annotation 'Unheard' cannot be read"),
        (Annotated[str, msgspec.Meta(ge=1)], "ge cannot limit this type"),
        (Annotated[bool, msgspec.Meta(ge=1)], "ge cannot limit this type"),
        (Annotated[Place, msgspec.Meta(min_length=1)], "min_length cannot limit this type"),
        (Annotated[int | None, msgspec.Meta(pattern="x")], "pattern can limit no type of this union"),
        (list[complex], "complex is not supported"),
        (object(), "is not supported"),
    ],
)
def test_a_type_that_json_cannot_say_is_refused(kind: Any, says: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        TypeSchema.of(kind)
    assert says in str(caught.value)


def test_the_field_that_has_such_a_type_is_named() -> None:
    @dataclass
    class Inner:
        number: complex

    @dataclass
    class Holder:
        inner: Inner

    with pytest.raises(InvalidValue, match="inner: number: complex is not supported"):
        TypeSchema.of(Holder)


# ---------------------------------------------------------------- deep and wide


Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Endless = TypeAliasType("Endless", "Endless | int")  # type: ignore[misc]  # that is the point


def test_a_recursive_alias_reads_what_is_nested() -> None:
    value = {"a": [1, {"b": None}]}
    assert value_of(Json, value) == value


def test_an_alias_that_is_nothing_but_itself_is_no_endless_loop() -> None:
    assert TypeSchema.of(Endless).problems(1) in ([], ["arguments: is nested too deeply"])


@dataclass
class Add:
    left: "Add | Multiply | date"
    right: "Add | Multiply | date"


@dataclass
class Multiply:
    left: "Add | Multiply | date"
    right: "Add | Multiply | date"


def test_an_ambiguous_recursive_type_costs_no_more_than_a_clear_one() -> None:
    # Every level may be either; a leaf that only the conversion refuses would be tried 2 ** 60 times.
    value: Any = "no date"
    for _ in range(60):
        value = {"left": "2026-01-31", "right": value}
    (problem,) = TypeSchema.of(Add).problems(value)
    assert problem.endswith("must be a date like 2026-01-31, got 'no date'")


def test_what_is_nested_deeper_than_json_may_be_is_a_problem_and_no_crash() -> None:
    value: Any = {"value": 1}
    for _ in range(5_000):
        value = {"value": 1, "children": [value]}
    assert TypeSchema.of(Tree).problems(value) == ["the value is nested deeper than 200 levels"]
    with pytest.raises(ToolError, match="nested deeper than 200 levels"):
        TypeSchema.of(Tree).convert(value)


def test_a_type_nested_too_deeply_is_refused() -> None:
    kind: Any = int
    for _ in range(3_000):
        kind = list[kind]
    with pytest.raises(InvalidValue, match="nested too deeply"):
        TypeSchema.of(kind)


def test_pydantic_is_not_loaded_by_types_that_are_not_its_own() -> None:
    program = (
        "import sys; from dataclasses import dataclass; from dragoman.tools import tool\n"
        "@dataclass\nclass A: x: int\n"
        "@tool\ndef f(a: A) -> str: return ''\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", program], check=True)


def test_schemas_are_json() -> None:
    for kind in (Place, Tree, Cat | Dog, Json):
        assert json.loads(json.dumps(schema_of(kind))) == schema_of(kind)
