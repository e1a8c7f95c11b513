"""Request bodies against the types that the vendors publish in their own SDKs. Needs the extra `validation`.

Iterables are read to their end and keys that a type does not name are refused, at every depth; the SDKs themselves do
neither. Fields that a vendor adds to somebody else's API are taken out first: `dialects` names them.
"""

import base64
import binascii
import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NotRequired

from ...errors import MissingExtra

__all__ = ["check_types"]

Body = dict[str, Any]

REPORTED = 5  # of the ways in which a body misses its type


def check_types(specification: str, body: Body, model: str) -> list[str]:
    """Return where `body` departs from the vendor's types, each as a place and a reason."""
    if specification == "bedrock-converse":
        return _check_shape(body, model)
    content = json.dumps(body)
    problems: list[str] = []
    for validator in _validators(specification):
        problems = _misses(validator, content, body)
        if not problems:
            return []
    return problems


# ---------------------------------------------------------------- pydantic


def _misses(validator: Any, content: str, body: Body) -> list[str]:
    from pydantic_core import ValidationError

    try:
        validator.validate_json(f"[{content}]", strict=True)
    except ValidationError as error:
        found = [
            (_place(body, detail["loc"][1:]), detail["msg"])
            for detail in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        # Every branch of a union reports; the one that went furthest says the most.
        deepest = max(len(place) for place, _ in found)
        said = {f"{_joined(place)}: {message}": None for place, message in found if len(place) == deepest}
        return list(said)[:REPORTED]
    return []


def _place(body: Any, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The steps of `location` that are keys of the body, and a last one that is missing; the rest name branches."""
    steps: list[int | str] = []
    here = body
    for step in location:
        if step in here if isinstance(here, dict) else isinstance(here, list) and step in range(len(here)):
            here = here[step]
        else:
            continue
        steps.append(step)
    return tuple(steps)


def _joined(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".") or "body"


@cache
def _validators(specification: str) -> list[Any]:
    """The checks of which a body has to pass one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of the SDKs' types stay open whatever is asked of them
            return [_strict_validator(kind) for kind in _published_types(specification)]
    except ImportError:
        raise MissingExtra("validating requests", "validation") from None


def _published_types(specification: str) -> list[Any]:
    if specification == "openai-chat":
        from openai.types.chat.completion_create_params import CompletionCreateParams

        return [CompletionCreateParams]
    if specification == "openai-responses":
        from openai.types.responses.response_create_params import ResponseCreateParams

        return [ResponseCreateParams]
    if specification == "anthropic-messages":
        from anthropic.types.beta.message_create_params import MessageCreateParams as BetaCreateParams
        from anthropic.types.message_create_params import MessageCreateParams

        return [MessageCreateParams, BetaCreateParams]
    return [_gemini_body()]


def _gemini_body() -> Any:
    """The body as the SDK puts it together; it has types for the pieces only."""
    from google.genai import types
    from typing_extensions import TypedDict  # the one that pydantic can read in Python 3.11

    fields = {
        "contents": list[types.Content],
        "systemInstruction": NotRequired[types.Content],
        "tools": NotRequired[list[types.Tool]],
        "toolConfig": NotRequired[types.ToolConfig],
        "safetySettings": NotRequired[list[types.SafetySetting]],
        "generationConfig": NotRequired[types.GenerationConfig],
        "cachedContent": NotRequired[str],
        "labels": NotRequired[dict[str, str]],
        "modelArmorConfig": NotRequired[types.ModelArmorConfig],
        "serviceTier": NotRequired[str],
    }
    return TypedDict("GenerateContentBody", fields)  # type: ignore[operator]  # the fields are data here


def _strict_validator(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_core import SchemaValidator

    # Inside a list the settings reach the TypedDicts; given for one alone they are refused.
    adapter = TypeAdapter(list[kind], config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
    return SchemaValidator(_materialised(adapter.core_schema))


def _materialised(schema: Any) -> Any:
    """The schema with lists where it has lazy iterables, which would be taken for right without a look at them.

    The first branch of a union that fits is enough: which one fits best is nothing to us, and takes many times as long.
    """
    if isinstance(schema, dict):
        if schema.get("type") == "generator":
            schema = {"type": "list", "items_schema": schema["items_schema"]}
        elif schema.get("type") == "union":
            schema = {**schema, "mode": "left_to_right"}
        elif schema.get("type") == "model-fields" and "extras_schema" not in schema:
            # Models of answers may stand among the parameters, and take anything by themselves.
            schema = {**schema, "extra_behavior": "forbid"}
        return {name: _materialised(value) for name, value in schema.items()}
    if isinstance(schema, (list, tuple)):
        return type(schema)(_materialised(value) for value in schema)
    return schema


# ---------------------------------------------------------------- botocore


def _check_shape(body: Body, model: str) -> list[str]:
    try:
        from botocore.validate import ParamValidator
    except ImportError:
        raise MissingExtra("validating requests", "validation") from None
    shape = _converse_shape()
    parameters, problems = _with_bytes({"modelId": model or "model", **body}, shape, "")
    report = ParamValidator().validate(parameters, shape)
    if report.has_errors():
        problems = report.generate_report().splitlines() + problems
    return [*problems, *_beyond_bounds(parameters, shape, "")][:REPORTED]


@cache
def _converse_shape() -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
    return service.operation_model("Converse").input_shape


def _with_bytes(value: Any, shape: Any, place: str) -> tuple[Any, list[str]]:
    """The value with its base64 read, as the SDK's user gives it, and the places where it is no base64."""
    problems: list[str] = []

    def read(inner: Any, member: Any, where: str) -> Any:
        decoded, found = _with_bytes(inner, member, where)
        problems.extend(found)
        return decoded

    if shape.type_name == "structure" and not shape.is_document_type and isinstance(value, dict):
        known = shape.members
        return {
            name: read(inner, known[name], f"{place}.{name}") if name in known else inner
            for name, inner in value.items()
        }, problems
    if shape.type_name == "list" and isinstance(value, list):
        return [read(inner, shape.member, f"{place}[{index}]") for index, inner in enumerate(value)], problems
    if shape.type_name == "blob":
        try:
            return base64.b64decode(value, validate=True), []
        except (binascii.Error, TypeError, ValueError):
            return b"?", [f"{place.lstrip('.')}: not base64"]
    return value, problems


def _beyond_bounds(value: Any, shape: Any, place: str) -> Iterator[str]:
    """The bounds of the service's model that the SDK leaves to the service: patterns, greatest sizes, enumerations."""
    bounds = shape.metadata
    if shape.type_name == "structure" and not shape.is_document_type and isinstance(value, dict):
        for name, inner in value.items():
            if name in shape.members:
                yield from _beyond_bounds(inner, shape.members[name], f"{place}.{name}")
    elif shape.type_name == "list" and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _beyond_bounds(inner, shape.member, f"{place}[{index}]")
    if isinstance(value, str):
        if "enum" in bounds and value not in bounds["enum"]:
            yield f"{place.lstrip('.')}: {value!r} is none of {', '.join(bounds['enum'])}"
        elif "pattern" in bounds and not re.fullmatch(bounds["pattern"], value):
            yield f"{place.lstrip('.')}: {value[:80]!r} does not match {bounds['pattern'][:80]}"
    if isinstance(value, (str, list, bytes)) and len(value) > bounds.get("max", len(value)):
        yield f"{place.lstrip('.')}: {len(value)} is more than {bounds['max']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > bounds.get("max", value):
        yield f"{place.lstrip('.')}: {value} is more than {bounds['max']}"
