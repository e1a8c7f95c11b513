"""Arguments: what is put right and told, what is refused and in which words, and the parser for raw ones."""

import itertools
import json
from collections.abc import Callable
from copy import deepcopy
from datetime import date
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import ErrorCode, InvalidValue, ToolCall, ToolError
from dragoman.history import ToolStartedEntry
from dragoman.tools import ToolArgumentParser, ToolDefinition, coerce_arguments, tool
from dragoman.tools.checking import SchemaChecker
from dragoman.tools.subschemas import forms_of
from tests.tool_cases import SIGNATURES, any_json, fitting, near_misses

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


def definition(schema: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition(name="look", parameter_schema=schema, execute=lambda arguments, context: None)


def parameters(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def coerced(value: Any, schema: Any, *, required: bool = True) -> tuple[Any, list[str]]:
    arguments, warnings = coerce_arguments({"a": value}, parameters(("a",) if required else (), a=schema))
    return arguments.get("a", "left out"), warnings


# ---------------------------------------------------------------- what is put right


@pytest.mark.parametrize(
    ("value", "schema", "meant"),
    [
        ("5", INTEGER, 5),
        (" -5 ", INTEGER, -5),
        ("5.0", INTEGER, 5),
        (3.0, INTEGER, 3),
        ("2.5", {"type": "number"}, 2.5),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("null", {"anyOf": [INTEGER, {"type": "null"}]}, None),
        ("5", {"anyOf": [INTEGER, {"type": "null"}]}, 5),
        ("5", {"type": ["integer", "null"]}, 5),
        ("5", {"anyOf": [INTEGER, {"type": "number"}]}, 5),
        ("5", {"oneOf": [INTEGER, {"type": "array", "items": TEXT}]}, 5),
        ("x", {"oneOf": [INTEGER, {"type": "array", "items": TEXT}]}, ["x"]),
        ("[1, 2]", {"type": "array", "items": INTEGER}, [1, 2]),
        ('["1"]', {"type": "array", "items": INTEGER}, [1]),
        ('{"b": "1"}', parameters(b=INTEGER), {"b": 1}),
        ('{"b": 1}', {"type": "object"}, {"b": 1}),
        (7, {"type": "array", "items": INTEGER}, [7]),
        ("7", {"type": "array", "items": INTEGER}, [7]),
        ("x", {"type": "array", "items": TEXT}, ["x"]),
        ({"b": 1}, {"type": "array", "items": parameters(b=INTEGER)}, [{"b": 1}]),
        (12, TEXT, "12"),
        ("2", {"enum": [1, 2]}, 2),
        ("RED ", {"enum": ["red", "green"]}, "red"),
        ([1, 1, 2], {"type": "array", "items": INTEGER, "uniqueItems": True}, [1, 2]),
        (["1", {"b": "2"}], {"type": "array", "prefixItems": [INTEGER, parameters(b=INTEGER)]}, [1, {"b": 2}]),
        (["1", "2"], {"type": "array", "items": [INTEGER, TEXT]}, [1, "2"]),
        ({"k": "1"}, {"type": "object", "additionalProperties": INTEGER}, {"k": 1}),
    ],
)
def test_what_can_be_read_in_one_other_way_only_is_read_so(value: Any, schema: Any, meant: Any) -> None:
    changed, warnings = coerced(value, schema)
    assert changed == meant
    assert type(changed) is type(meant)
    assert warnings
    assert all(line.startswith("a") for line in warnings)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("5", TEXT),
        ("5", {"anyOf": [INTEGER, TEXT]}),
        ("5", {}),
        (3.0, {"type": "number"}),
        (3.5, INTEGER),
        ("five", INTEGER),
        ("1,000", INTEGER),
        ("NaN", {"type": "number"}),
        (1, {"type": "boolean"}),
        ("yes", {"type": "boolean"}),
        (1.5, TEXT),
        (True, TEXT),
        ("x", {"type": "array"}),
        ("[1", {"type": "array", "items": INTEGER}),
        ({"b": 1}, {"type": "array", "items": INTEGER}),
        (None, {"type": "array", "items": INTEGER}),
        ("1", {"type": "array", "prefixItems": [INTEGER]}),
        ("purple", {"enum": ["red", "green"]}),
        ("Red", {"enum": ["red", "RED"]}),
        (None, INTEGER),
        ({"k": "1"}, {"type": "object", "patternProperties": {"^k": TEXT}, "additionalProperties": INTEGER}),
        ("x", False),
        ("1", {"anyOf": [{"enum": [1]}, {"enum": ["1 "]}]}),
    ],
)
def test_what_fits_or_is_ambiguous_is_left_alone(value: Any, schema: Any) -> None:
    changed, warnings = coerced(deepcopy(value), schema)
    assert (changed, warnings) == (value, [])


def test_null_for_a_parameter_that_may_be_left_out_is_left_out() -> None:
    assert coerced(None, INTEGER, required=False) == ("left out", ["a: null was left out"])
    assert coerced(None, {"anyOf": [INTEGER, {"type": "null"}]}, required=False) == (None, [])
    assert coerced({"b": None}, parameters(b=TEXT)) == ({}, ["a.b: null was left out"])


@pytest.mark.parametrize(
    "reference", ["#/$defs/N", "#/properties/a~1b", "#/properties/c/anyOf/0", "#/$defs/all", "#/properties/d"]
)
def test_references_into_the_document_are_followed(reference: str) -> None:
    schema = parameters(c={"anyOf": [INTEGER]}, d={"$ref": "#/$defs/N"}, x={"$ref": reference})
    schema["properties"]["a/b"] = INTEGER
    schema["$defs"] = {"N": INTEGER, "all": {"allOf": [True, INTEGER, {"minimum": 3}]}}
    assert coerce_arguments({"x": "5"}, schema)[0] == {"x": 5}
    assert definition(schema).find_problems({"x": "five"}) == ["x: must be a whole number, got 'five'"]


def test_what_all_parts_of_a_schema_say_counts() -> None:
    both = {"allOf": [parameters(("b",), b=INTEGER), {"properties": {"c": TEXT}, "required": ["c"]}]}
    del both["allOf"][0]["additionalProperties"]
    assert coerced({"b": "1", "c": 2}, both)[0] == {"b": 1, "c": "2"}
    assert definition(parameters(a=both)).find_problems({"a": {}}) == [
        "a.b: is missing: give a whole number",
        "a.c: is missing: give text",
    ]


def test_references_are_followed() -> None:
    schema = {**parameters(a={"$ref": "#/$defs/N"}, b={"$ref": "#/properties/a"}), "$defs": {"N": INTEGER}}
    assert coerce_arguments({"a": "1", "b": "2"}, schema)[0] == {"a": 1, "b": 2}


def test_the_tag_says_which_of_several_objects_is_meant() -> None:
    shapes = {
        "anyOf": [
            parameters(("kind",), kind={"const": "circle"}, size={"type": "number"}),
            parameters(("kind",), kind={"const": "square"}, size=TEXT),
        ]
    }
    assert coerced({"kind": "circle", "size": "2.5"}, shapes)[0] == {"kind": "circle", "size": 2.5}
    assert coerced({"kind": "square", "size": 2}, shapes)[0] == {"kind": "square", "size": "2"}


def test_a_warning_names_the_place_and_never_what_was_written() -> None:
    schema = parameters(
        secret=INTEGER, rows={"type": "array", "items": parameters(n=INTEGER)}, more={"additionalProperties": INTEGER}
    )
    arguments = {"secret": "4711", "rows": [{"n": 1}, {"n": "4712"}], "more": {"4713": "4714"}}
    _, warnings = coerce_arguments(arguments, schema)
    assert [line.partition(":")[0] for line in warnings] == ["secret", "rows[1].n", "more.*"]
    assert "471" not in "".join(warnings)


def test_the_arguments_given_are_not_changed_and_those_that_fit_are_the_same_object() -> None:
    schema = parameters(a=INTEGER, b={"type": "array", "items": INTEGER})
    given_arguments = {"a": "1", "b": [1, "2"]}
    before = deepcopy(given_arguments)
    coerce_arguments(given_arguments, schema)
    assert given_arguments == before
    fit = {"a": 1, "b": [1, 2]}
    assert coerce_arguments(fit, schema) == (fit, [])
    assert coerce_arguments(fit, schema)[0] is fit


def test_many_changes_are_told_in_few_lines() -> None:
    changed, warnings = coerced(["1"] * 10_000, {"type": "array", "items": INTEGER})
    assert changed == [1] * 10_000
    assert len(warnings) == 7
    assert warnings[-1] == "and 9994 more changes of this kind"


@pytest.mark.parametrize("sign", ["x", "\N{GRINNING FACE}", "\x01", "\n"])
def test_what_is_told_fits_into_the_metadata_of_an_entry(sign: str) -> None:
    names = [f"{sign * 500}{number}" for number in range(50)]
    _, warnings = coerce_arguments(
        dict.fromkeys(names, "5"), {"type": "object", "properties": dict.fromkeys(names, INTEGER)}
    )
    ToolStartedEntry("c1", "look", metadata={"parse_warning": "; ".join(warnings)})


unhurried = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
@unhurried
@given(data=st.data())
def test_coercion_never_turns_what_fits_into_what_does_not(function: Callable[..., Any], data: st.DataObject) -> None:
    made = tool(function)
    schema = made.parameter_schema
    value = data.draw(fitting(schema, schema))
    validator = jsonschema_rs.Draft202012Validator(schema)
    for near in itertools.islice(near_misses(value), 100):
        if not isinstance(near, dict):
            continue
        before = json.dumps(near)
        changed, warnings = coerce_arguments(near, schema)
        assert json.dumps(near) == before
        assert bool(warnings) == (json.dumps(changed) != before)
        if validator.is_valid(near):
            assert validator.is_valid(changed)
        again, more = coerce_arguments(changed, schema)
        assert (again, more) == (changed, [])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("schema", "arguments", "says"),
    [
        (parameters(("a",), a=INTEGER), {}, "a: is missing: give a whole number"),
        (parameters(("a",)), {}, "a: is missing: give a value"),
        (parameters(a=INTEGER), {"a": "x"}, "a: must be a whole number, got 'x'"),
        (parameters(a=INTEGER), {"a": None}, "a: must be a whole number, got null"),
        (parameters(a=INTEGER), {"a": True}, "a: must be a whole number, got true"),
        (parameters(a=INTEGER), {"a": [1]}, "a: must be a whole number, got an array"),
        (parameters(a=INTEGER), {"a": "x" * 99}, "a: must be a whole number, got text of 99 characters"),
        (parameters(a=TEXT), {"a": 10**50}, "a: must be text, got a very large number"),
        (parameters(query=TEXT), {"qurey": "x"}, "qurey: is not known here: did you mean 'query'? allowed are query"),
        (parameters(), {"a": 1}, "a: is not known here: allowed are none"),
        (parameters(a={"enum": ["x", 1]}), {"a": "y"}, "a: must be one of 'x', 1, got 'y'"),
        (parameters(a={"const": "x"}), {"a": "y"}, "a: must be 'x', got 'y'"),
        (parameters(a={**INTEGER, "minimum": 3}), {"a": 2}, "a: must be at least 3, got 2"),
        (parameters(a={**INTEGER, "exclusiveMaximum": 3}), {"a": 3}, "a: must be less than 3, got 3"),
        (parameters(a={**INTEGER, "multipleOf": 3}), {"a": 2}, "a: must be a multiple of 3, got 2"),
        (parameters(a={**TEXT, "minLength": 3}), {"a": "x"}, "a: must have at least 3 characters, has 1"),
        (parameters(a={**TEXT, "pattern": "^b"}), {"a": "x"}, "a: must match the pattern ^b"),
        (parameters(a={"type": "array", "maxItems": 1}), {"a": [1, 2]}, "a: must have at most 1 items, has 2"),
        (parameters(a={"type": "array", "uniqueItems": True}), {"a": [1, 1]}, "a: must have no item twice"),
        (parameters(a={"type": "object", "minProperties": 1}), {"a": {}}, "a: must have at least 1 properties, has 0"),
        (
            parameters(a={"anyOf": [INTEGER, {"type": "array", "items": TEXT}]}),
            {"a": ["x", 5]},
            "a[1]: must be text, got 5",
        ),
        (parameters(a={"anyOf": [INTEGER, TEXT]}), {"a": None}, "a: must be a whole number or text, got null"),
        (parameters(a={"type": ["integer", "null"]}), {"a": "x"}, "a: must be a whole number or null, got 'x'"),
        (parameters(a={"items": [INTEGER], "type": "array"}) | {"$schema": "http://json-schema.org/draft-07/schema#"},
         {"a": ["x"]}, "a[0]: must be a whole number, got 'x'"),
        (parameters(a={"not": TEXT, "description": "no text"}), {"a": "x"}, "a: does not fit the schema: no text"),
        (parameters(a=False), {"a": 1}, "arguments: does not fit the schema"),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "a: is missing: give a value"),
        (
            parameters(a={"type": "array", "items": {"$ref": "#/properties/b"}}, b=parameters(("c",), c=INTEGER)),
            {"a": [{"c": 1}, {"c": 1, "d": 2}]},
            "a[1].d: is not known here: allowed are c",
        ),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_what_is_allowed(schema: Any, arguments: Any, says: str) -> None:
    assert definition(schema).find_problems(arguments) == [says]


def test_there_are_at_most_five_problems() -> None:
    schema = parameters(tuple("abcdefgh"))
    assert len(definition(schema).find_problems({})) == 5


def test_a_value_that_fits_another_choice_is_not_blamed() -> None:
    either = {"anyOf": [parameters(("x",), x=INTEGER, y=INTEGER), parameters(("x",), x=INTEGER, y=TEXT)]}
    schema = parameters(a=either, b=INTEGER)
    assert definition(schema).find_problems({"a": {"x": 1, "y": "t"}, "b": "x"}) == [
        "b: must be a whole number, got 'x'"
    ]


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
@unhurried
@given(data=st.data())
def test_every_refusal_has_a_reason_that_names_a_place(function: Callable[..., Any], data: st.DataObject) -> None:
    schema = tool(function).parameter_schema
    checker = SchemaChecker(schema)
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=False)
    for near in itertools.islice(near_misses(data.draw(fitting(schema, schema))), 100):
        problems = checker.problems(near)
        assert bool(problems) != validator.is_valid(near)
        assert all("does not fit the schema" not in problem for problem in problems)


@unhurried
@given(value=any_json)
def test_any_value_against_a_hostile_schema_gets_an_answer(value: Any) -> None:
    schema = {
        "$defs": {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(60)}
        | {"d60": {"$ref": "#/$defs/d60"}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    }
    checker = SchemaChecker(schema)
    assert isinstance(checker.problems({"a": value}), list)
    assert coerce_arguments({"a": value}, schema)[0] == ({} if value is None else {"a": value})


def test_a_choice_among_choices_is_not_followed_for_ever() -> None:
    schema: dict[str, Any] = {"$defs": {"l": {"anyOf": [{"$ref": "#/$defs/l"}, {"$ref": "#/$defs/l"}]}}}
    assert forms_of({"$ref": "#/$defs/l"}, schema) == []


def test_a_deep_value_in_an_ambiguous_recursive_schema_is_judged_at_once() -> None:
    def part(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"left": {"$ref": "#/$defs/e"}, name: INTEGER}, "required": ["left"]}

    schema = parameters(e={"$ref": "#/$defs/e"}) | {"$defs": {"e": {"anyOf": [INTEGER, part("a"), part("b")]}}}
    value: Any = "bad"
    for _ in range(100):
        value = {"left": value}
    problems = definition(schema).find_problems({"e": value})
    assert problems
    assert problems[0].startswith("e.left.left")


def test_hostile_arguments_are_problems_and_no_crash() -> None:
    wide = definition({"type": "object"})
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert wide.find_problems({"a": deep}) == ["the value is nested deeper than 200 levels"]
    assert wide.find_problems({"a": float("nan")}) == ["the value holds nan: JSON has no such number"]
    halves = definition(parameters(a={"type": "string", "pattern": "^x"}))
    assert halves.find_problems({"a": "\ud800"}) == [
        "arguments: cannot be checked against the schema: text in it is not Unicode or too intricate"
    ]
    assert wide.find_problems({"a": object()}) != []
    assert wide.find_problems({"a": "x" * 5_000_000}) == []
    assert definition(parameters(a=INTEGER)).find_problems({"a": "x" * 5_000_000}) == [
        "a: must be a whole number, got text of 5000000 characters"
    ]
    while isinstance(deep, list) and deep:  # taken apart level by level: the interpreter would do it recursively
        deep = deep.pop()


def test_a_name_that_is_very_long_is_cut_in_the_message() -> None:
    (problem,) = definition(parameters()).find_problems({"x" * 10_000: 1})
    assert len(problem) < 200


def test_format_is_left_to_the_tool() -> None:
    foreign = definition(parameters(when={"type": "string", "format": "date"}))
    assert foreign.find_problems({"when": "tomorrow"}) == []

    @tool
    def look(when: date) -> str:
        return ""

    assert look.find_problems({"when": "tomorrow"}) == ["when: must be a date like 2026-01-31, got 'tomorrow'"]


# ---------------------------------------------------------------- schemas from elsewhere


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:9/schema.json", "https://example.com/x", "file:///etc/hostname", "other.json"]
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_to_another_document_is_refused_and_not_followed(uri: str, keyword: str) -> None:
    with pytest.raises(InvalidValue, match="no JSON Schema that can be used"):
        definition(parameters(a={keyword: uri}))


def test_what_another_document_would_say_cannot_be_given_by_a_file(tmp_path: Any) -> None:
    target = tmp_path / "schema.json"
    target.write_text('{"type": "integer"}')
    with pytest.raises(InvalidValue, match="no JSON Schema that can be used"):
        definition(parameters(a={"$ref": target.as_uri()}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "whole"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": []},
    ],
)
def test_a_schema_that_is_none_is_refused_when_the_tool_is_made(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="parameterSchema of tool 'look' is no JSON Schema that can be used"):
        definition(schema)


def test_a_schema_of_draft_7_is_understood() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"n": INTEGER},
        "properties": {"a": {"type": "array", "items": [{"$ref": "#/definitions/n"}], "additionalItems": False}},
    }
    foreign = definition(schema)
    assert foreign.find_problems({"a": [1]}) == []
    assert foreign.find_problems({"a": [1, 2]}) != []


def test_a_draft_that_nobody_knows_is_read_as_the_newest() -> None:
    foreign = definition(parameters(a=INTEGER) | {"$schema": "https://example.com/our-own"})
    assert foreign.find_problems({"a": 1}) == []
    assert foreign.find_problems({"a": "x"}) != []


def test_a_pattern_that_takes_for_ever_is_cut_off() -> None:
    evil = definition(parameters(a={"type": "string", "pattern": r"^(a+)+\1b$"}))
    assert evil.find_problems({"a": "a" * 40}) != []


# ---------------------------------------------------------------- the parser for raw arguments


def test_the_parser_gives_values_of_the_types_asked_for() -> None:
    parser = ToolArgumentParser({"count": 3, "name": "x", "day": "2026-01-31", "mode": "fast"})
    assert parser.get_required("count", int) == 3
    assert parser.get_required("day", date) == date(2026, 1, 31)
    assert parser.get("mode", Literal["fast", "slow"]) == "fast"
    assert parser.get("missing", int) is None
    assert parser.get("missing", int, 7) == 7
    assert parser.parse_warning is None


def test_the_parser_tells_what_it_put_right() -> None:
    parser = ToolArgumentParser({"count": "3", "on": "true", "names": "x"})
    assert parser.get_required("count", int) == 3
    assert parser.get("on", bool, False) is True
    assert parser.parse_list("names", str) == ["x"]
    assert parser.parse_warning == (
        "count: text was read as integer; on: text was read as boolean; names: a single value was put into an array"
    )


@pytest.mark.parametrize(
    ("value", "meant"), [([1, "2"], [1, 2]), ("[1, 2]", [1, 2]), ("7", [7]), (7, [7]), (None, []), ([], [])]
)
def test_a_list_is_read_from_what_models_write_for_one(value: Any, meant: list[int]) -> None:
    assert ToolArgumentParser({"a": value}).parse_list("a", int) == meant


def test_a_list_that_is_missing_is_empty() -> None:
    assert ToolArgumentParser({}).parse_list("a", int) == []


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda parser: parser.get_required("missing", int), "missing: is missing"),
        (lambda parser: parser.get_required("nothing", int), "nothing: is missing"),
        (lambda parser: parser.get_required("name", int), "name: must be a whole number, got 'x'"),
        (lambda parser: parser.get("rows", list[int]), "rows[1]: must be a whole number, got 'y'"),
        (lambda parser: parser.get("name", date), "name: must be a date like 2026-01-31, got 'x'"),
        (lambda parser: parser.parse_list("rows", int), "rows[1]: must be a whole number, got 'y'"),
        (lambda parser: parser.get("map", dict[str, int]), "map.k: must be a whole number, got 'v'"),
    ],
)
def test_the_parser_refuses_in_words_that_a_model_can_act_on(
    read: Callable[[ToolArgumentParser], Any], says: str
) -> None:
    parser = ToolArgumentParser({"name": "x", "nothing": None, "rows": [1, "y"], "map": {"k": "v"}})
    with pytest.raises(ToolError) as caught:
        read(parser)
    assert str(caught.value) == says
    assert caught.value.code is ErrorCode.INVALID_ARGUMENTS


def test_null_is_a_value_where_the_type_takes_it() -> None:
    assert ToolArgumentParser({"a": None}).get_required("a", int | None) is None


@pytest.mark.parametrize(("text", "value"), [('{"a": [1]}', {"a": [1]}), ("null", None), ("3", 3)])
def test_json_text_is_read(text: str, value: Any) -> None:
    parser = ToolArgumentParser({})
    parser.parse_json_safely("{")
    assert parser.parse_json_safely(text) == value
    assert parser.parse_error is None


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "NaN", 3, None, b"{}"])
def test_text_that_is_no_json_is_none_and_the_error_is_kept(text: Any) -> None:
    parser = ToolArgumentParser({})
    assert parser.parse_json_safely(text) is None
    assert parser.parse_error is not None
    assert parser.parse_error.startswith("not readable as JSON: ")


def test_the_parser_reads_a_call_and_tells_what_had_been_repaired_in_it() -> None:
    call = ToolCall("c", "f", {"a": "1"}, parse_warning="duplicate keys")
    parser = ToolArgumentParser(call)
    assert parser.get_required("a", int) == 1
    assert parser.parse_warning == "duplicate keys; a: text was read as integer"


def test_a_call_that_did_not_parse_is_refused() -> None:
    call = ToolCall(tool_name="f", tool_call_id="c", raw_args_text="{", parse_error="cut short")
    with pytest.raises(ToolError, match="could not be read: cut short"):
        ToolArgumentParser(call)
    with pytest.raises(InvalidValue, match="arguments must be a mapping"):
        ToolArgumentParser([1])  # type: ignore[arg-type]
