"""The schema made here, and Pydantic's of the same signature, say the same of every value."""

import inspect
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, get_type_hints

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from dragoman.tools import FunctionTool, TypeSchema, tool
from tests import tool_cases
from tests.tool_cases import SIGNATURES, any_json, fitting, near_misses

# Where the two differ on purpose.
#
# In what the schemas say, nothing does, once each signature is a model with `extra="forbid"`: the parameters of a tool
# take no names that they do not know, nor do dataclasses and TypedDicts inside them, which Pydantic then closes too.
# The names of a mapping are the one exception, below.
#
# In what a value that fits becomes in Python:
DIFFERENT_VALUES = {
    "raw": "bytes are base64 here, as msgspec has them; Pydantic takes the text itself, in UTF-8",
    "sequences": "an Iterable is a list here; Pydantic makes a generator that checks each item when it is asked for",
    "literal_member": "a member of an enum in a Literal is meant by its value; Pydantic's schema says so, it refuses",
}

unhurried = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
cases = pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)


@cache
def tool_of(function: Callable[..., Any]) -> FunctionTool[..., Any]:
    return tool(function)


@cache
def model_of(function: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


@cache
def validators(function: Callable[..., Any]) -> tuple[jsonschema_rs.Validator, jsonschema_rs.Validator]:
    """Both schemas under one validator that checks formats too."""
    schemas = (tool_of(function).parameter_schema, model_of(function).model_json_schema())
    return tuple(jsonschema_rs.Draft202012Validator(schema, validate_formats=True) for schema in schemas)  # type: ignore[return-value]  # two


def compared(function: Callable[..., Any], values: Iterator[Any]) -> Counter[bool]:
    """Check each value against both schemas, and count what they say."""
    ours, theirs = validators(function)
    verdicts: Counter[bool] = Counter()
    for value in values:
        verdict = ours.is_valid(value)
        assert verdict is theirs.is_valid(value), f"{value!r}: ours says {verdict}"
        verdicts[verdict] += 1
    return verdicts


def test_there_are_at_least_forty_signatures() -> None:
    assert len(set(SIGNATURES)) >= 40
    assert len(set(SIGNATURES)) == sum(
        inspect.isfunction(value) and value.__annotations__.get("return", 0) is None
        for value in vars(tool_cases).values()
    )


@cases
def test_values_that_fit_and_their_near_misses_are_judged_as_by_pydantic(function: Callable[..., Any]) -> None:
    schema = model_of(function).model_json_schema()
    verdicts: Counter[bool] = Counter()

    @unhurried
    @given(fitting(schema, schema))
    def check(value: Any) -> None:
        found = compared(function, iter([value]))
        assert found[True], "what the strategy makes fits"
        verdicts.update(found)
        verdicts.update(compared(function, itertools.islice(near_misses(value), 600)))

    check()
    assert verdicts[True], "some values must fit"
    assert verdicts[False] > 20, "some values must not fit"


@cases
@unhurried
@given(value=st.one_of(any_json, st.dictionaries(st.sampled_from("abcd"), any_json)))
def test_any_json_is_judged_as_by_pydantic(function: Callable[..., Any], value: Any) -> None:
    compared(function, iter([value]))


@cases
def test_what_both_take_becomes_the_same_values(function: Callable[..., Any]) -> None:
    model = model_of(function)
    schema = model.model_json_schema()
    names = {field.alias or name: name for name, field in model.model_fields.items()}

    @unhurried
    @given(fitting(schema, schema))
    def check(value: Any) -> None:
        try:
            theirs = model.model_validate_json(json.dumps(value))
        except ValidationError:  # a validator that is no part of the schema
            assert tool_of(function).find_problems(value)
            return
        assert tool_of(function).find_problems(value) == []
        bound = tool_of(function).parameters.bind(value)
        for name in names.values():
            if name in bound:
                ours, other = bound[name], getattr(theirs, name)
                assert ours == other
                assert type(ours) is type(other)

    if function.__name__ in DIFFERENT_VALUES:
        with pytest.raises((AssertionError, ExceptionGroup)):
            check()
    else:
        check()


def test_the_schemas_made_here_are_smaller() -> None:
    sizes = [
        (len(json.dumps(tool_of(function).parameter_schema)), len(json.dumps(model_of(function).model_json_schema())))
        for function in SIGNATURES
    ]
    assert sum(ours for ours, _ in sizes) < sum(theirs for _, theirs in sizes)


@pytest.mark.parametrize("kind", [dict[Annotated[str, Field(pattern="^k")], int], dict[int, int]])
def test_names_that_a_mapping_does_not_take_are_refused_by_our_schema_too(kind: Any) -> None:
    # Pydantic's schema lets other names pass with any value, and its own validation then refuses them.
    name, wrong = ("k1", "x") if "pattern" in str(kind) else ("1", "x")
    ours = jsonschema_rs.Draft202012Validator(TypeSchema.of(kind).schema)
    theirs = jsonschema_rs.Draft202012Validator(TypeAdapter(kind).json_schema())
    assert ours.is_valid({name: 1})
    assert theirs.is_valid({name: 1})
    assert not ours.is_valid({wrong: 1})
    assert theirs.is_valid({wrong: 1})
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_json(json.dumps({wrong: 1}))


def test_the_comparison_sees_a_difference() -> None:
    def wide(a: int) -> None: ...

    def narrow(a: Annotated[int, Field(ge=0)]) -> None: ...

    ours = jsonschema_rs.Draft202012Validator(tool(wide).parameter_schema)
    theirs = jsonschema_rs.Draft202012Validator(model_of(narrow).model_json_schema())
    assert any(ours.is_valid({"a": value}) is not theirs.is_valid({"a": value}) for value in near_misses(1))
