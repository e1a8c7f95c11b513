"""Schemas as strict modes take them: closed, without limits that a provider refuses, or not strict at all."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from dragoman import Agent, ErrorCode, Message, ModelError, ToolSpec, render_request
from dragoman.agent.output import OutputReader
from dragoman.target import SchemaRules, TargetRules
from dragoman.testing import ScriptedModel
from dragoman.wire.schemas import CLAUDE_SCHEMAS, OPENAI_SCHEMAS, SHARED_SCHEMAS, fit_schema

STRICT = [OPENAI_SCHEMAS, CLAUDE_SCHEMAS, SHARED_SCHEMAS]
CLAUDE, GPT = "anthropic:claude-sonnet-4-5", "openai:gpt-5"


class Colour(Enum):
    RED = "red"
    FIRST = 1


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9, description="How many are left.")


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(min_length=2, max_length=20)


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    nick: str | None = None


class Node(BaseModel):
    name: str
    children: list["Node"]


@dataclass
class Pair:
    both: tuple[int, str]


@dataclass
class Loose:
    anything: Any


@dataclass
class Counts:
    by_name: dict[str, int]


@dataclass
class Listed:
    values: list  # type: ignore[type-arg]  # a list of anything


@dataclass
class Chosen:
    colour: Colour
    code: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{3}$")]
    odd: Annotated[str, msgspec.Meta(pattern=r"^(?=a)\\w+$")]


@dataclass
class Preset:
    days: int = 3
    tags: list[str] = field(default_factory=list)


class Open(BaseModel, extra="allow"):
    name: str


def schema_of(kind: Any) -> dict[str, Any]:
    return OutputReader(kind)._wrapped_schema()


def fitted(kind: Any, rules: SchemaRules) -> dict[str, Any] | None:
    schema, is_strict = fit_schema(schema_of(kind), rules)
    return schema if is_strict else None


def objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for inner in schema for found in objects(inner)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for inner in schema.values() for found in objects(inner)]


@pytest.mark.parametrize("rules", STRICT)
def test_every_object_of_a_pydantic_model_is_closed(rules: SchemaRules) -> None:
    found = objects(fitted(Owner, rules))
    assert len(found) == 3
    assert all(each["additionalProperties"] is False for each in found)


def test_limits_that_a_provider_refuses_are_told_in_the_description() -> None:
    claude, gpt = fitted(Owner, CLAUDE_SCHEMAS), fitted(Owner, OPENAI_SCHEMAS)
    assert claude is not None
    assert gpt is not None
    cat, dog = claude["properties"]["pet"]["anyOf"]
    described = "How many are left. (maximum: 9, minimum: 0)"
    assert cat["properties"]["lives"] == {"type": "integer", "description": described}
    assert dog["properties"]["name"] == {"type": "string", "description": "(maxLength: 20, minLength: 2)"}
    cat = gpt["properties"]["pet"]["anyOf"][0]
    assert cat["properties"]["lives"]["maximum"] == 9


def test_a_property_that_may_be_null_is_required_where_all_must_be() -> None:
    gpt, claude = fitted(Owner, OPENAI_SCHEMAS), fitted(Owner, CLAUDE_SCHEMAS)
    assert gpt is not None
    assert claude is not None
    assert (gpt["required"], claude["required"]) == (["pet", "nick"], ["pet"])


def test_a_property_that_has_a_default_is_not_required_of_the_model() -> None:
    assert fitted(Preset, OPENAI_SCHEMAS) is None
    assert fitted(Preset, CLAUDE_SCHEMAS) is not None


@pytest.mark.parametrize("rules", STRICT)
@pytest.mark.parametrize("kind", [Pair, Loose, Counts, Listed, Open, dict, dict[str, int], list[Any]])
def test_a_schema_that_would_mean_something_else_is_not_strict(kind: Any, rules: SchemaRules) -> None:
    assert fitted(kind, rules) is None
    assert fit_schema(schema_of(kind), rules)[0] == schema_of(kind)


def test_a_schema_that_leads_back_to_itself_is_only_some_providers() -> None:
    assert fitted(Node, CLAUDE_SCHEMAS) is None
    assert fitted(Node, OPENAI_SCHEMAS) is not None


def test_shared_definitions_do_not_lead_back() -> None:
    leaf = {"type": "object", "properties": {}}
    twice = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/L"}, "b": {"$ref": "#/$defs/L"}},
        "$defs": {"L": leaf},
    }
    assert fit_schema(twice, CLAUDE_SCHEMAS)[1]
    assert not fit_schema({"type": "object", "properties": {"a": {"$ref": "#"}}}, CLAUDE_SCHEMAS)[1]


@pytest.mark.parametrize("rules", STRICT)
def test_listed_values_have_a_type_and_odd_patterns_are_told(rules: SchemaRules) -> None:
    schema = fitted(Chosen, rules)
    assert schema is not None
    assert schema["properties"]["colour"] == {"enum": ["red", 1], "type": ["string", "integer"]}
    assert "pattern" in schema["properties"]["code"]
    assert "pattern" not in schema["properties"]["odd"]
    assert "pattern" in schema["properties"]["odd"]["description"]


@pytest.mark.parametrize("rules", STRICT)
@pytest.mark.parametrize(
    "odd", [True, {}, {"enum": [{}]}, {"$ref": "https://a.test/b"}, {"not": {"type": "null"}}, {"allOf": [{}, {}]}]
)
def test_forms_that_no_strict_mode_takes_are_not_strict(odd: Any, rules: SchemaRules) -> None:
    schema = {"type": "object", "properties": {"a": odd}, "required": ["a"]}
    assert fit_schema(schema, rules) == (schema, False)


def test_a_reference_stands_alone() -> None:
    leaf = {"type": "string"}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/L", "description": "A."}}, "$defs": {"L": leaf}}
    (found,) = fit_schema(schema, CLAUDE_SCHEMAS)[0]["properties"].values()
    assert found == {"anyOf": [{"$ref": "#/$defs/L"}], "description": "A."}


# ---------------------------------------------------------------- requests

LIMITED = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}
OPEN = {"type": "object", "properties": {"n": {}}}


@pytest.mark.parametrize("name", [CLAUDE, GPT, "openai-chat:gpt-4o", "bedrock:anthropic.claude-sonnet-4-5-v1:0"])
def test_a_strict_tool_is_strict_where_the_provider_can_take_its_schema(name: str) -> None:
    def sent(schema: dict[str, Any]) -> str:
        tool = ToolSpec("look", "Look.", schema, strict=True)
        return json.dumps(
            json.loads(render_request(name, [Message.user("Hi")], tools=[tool]).body)[
                "tools" if "bedrock" not in name else "toolConfig"
            ]
        )

    assert '"strict": true' in sent(LIMITED)
    assert '"additionalProperties": false' in sent(LIMITED)
    assert '"strict": true' not in sent(OPEN)


@pytest.mark.parametrize("name", [CLAUDE, "bedrock:anthropic.claude-sonnet-4-5-v1:0"])
def test_claude_gets_an_output_schema_without_limits(name: str) -> None:
    body = render_request(name, [Message.user("Hi")], output_schema=LIMITED).body.replace(b"\\", b"")
    assert b'"additionalProperties":false' in body
    assert b'"minimum"' not in body


# ---------------------------------------------------------------- agents


def test_a_model_that_cannot_take_the_schema_is_told_it_in_words() -> None:
    script = ScriptedModel('{"both": [1, "a"]}', rules=TargetRules(schemas=CLAUDE_SCHEMAS))
    assert Agent(script, output_type=Pair).run_sync("Go.").output == Pair((1, "a"))
    (request,) = script.requests
    assert "output_schema" not in request.params
    assert "prefixItems" in (request.system or "")


def test_limits_that_were_left_out_are_checked_all_the_same() -> None:
    answers = ('{"kind": "dog", "name": "x"}', '{"kind": "dog", "name": "Rex"}')
    script = ScriptedModel(*answers, rules=TargetRules(schemas=CLAUDE_SCHEMAS))
    assert Agent(script, output_type=Dog).run_sync("Go.").output == Dog(kind="dog", name="Rex")
    assert len(script.requests) == 2


REFUSALS = [
    "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false",
    "Invalid schema for response_format 'output': In context=(), 'default' is not permitted.",
    "Function calling with a response mime type: 'application/json' is unsupported",
    "This model does not support structured outputs.",
]


@pytest.mark.parametrize("words", REFUSALS)
def test_a_refused_schema_is_told_in_words_from_then_on(words: str) -> None:
    refusal = ModelError("refused", code=ErrorCode.INVALID_REQUEST, provider_message=words)
    script = ScriptedModel(refusal, *['{"kind": "dog", "name": "Rex"}'] * 2)
    agent = Agent(script, output_type=Dog)
    assert [agent.run_sync("Go.").status for _ in range(2)] == ["completed"] * 2
    assert ["output_schema" in request.params for request in script.requests] == [True, False, False]


def test_an_error_about_the_schema_of_a_tool_is_not_one_about_the_answer() -> None:
    words = "Invalid value at tools[0].function_declarations[0].parameters_json_schema"
    refusal = ModelError("refused", code=ErrorCode.INVALID_REQUEST, provider_message=words)
    script = ScriptedModel(refusal, "never")
    assert Agent(script, output_type=Dog).run_sync("Go.").status == "failed"
    assert len(script.requests) == 1
