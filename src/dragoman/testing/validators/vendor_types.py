"""Request bodies against the types that the vendors publish in their own SDKs. Needs the extra `validation`.

Iterables are read to their end and keys that a type does not name are refused, at every depth; the SDKs themselves do
neither. Fields that a vendor adds to another vendor's API are removed first: `dialects` names them.
"""

import base64
import binascii
import json
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ...errors import MissingExtra

__all__ = ["check_published", "check_shape"]

Body = dict[str, Any]

REPORTED = 5  # of the ways in which a body misses its type


# ---------------------------------------------------------------- pydantic


def check_published(published: Callable[[], list[Any]], body: Body) -> list[str]:
    """Return where `body` departs from the types that `published` imports, each as a path and a reason.

    A body that fits one of the types is right.
    """
    content = json.dumps(body)
    problems: list[str] = []
    for validator in _validators(published):
        problems = _misses(validator, content, body)
        if not problems:
            return []
    return problems


def _misses(validator: Any, content: str, body: Body) -> list[str]:
    from pydantic_core import ValidationError

    try:
        validator.validate_json(f"[{content}]", strict=True)
    except ValidationError as error:
        found = [
            (_path_of(body, detail["loc"][1:]), detail["msg"])
            for detail in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        # Every branch of a union reports; the one that went furthest says the most.
        deepest = max(len(path) for path, _ in found)
        said = {f"{_joined(path)}: {message}": None for path, message in found if len(path) == deepest}
        return list(said)[:REPORTED]
    return []


def _path_of(body: Any, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
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


def _joined(path: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".") or "body"


@cache
def _validators(published: Callable[[], list[Any]]) -> list[Any]:
    """The checks of which a body has to pass one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of the SDKs' types stay open whatever is asked of them
            return [_strict_validator(kind) for kind in published()]
    except ImportError:
        raise MissingExtra("validating requests", "validation") from None


def _strict_validator(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_core import SchemaValidator

    # Inside a list the settings reach the TypedDicts; given for one alone they are refused.
    adapter = TypeAdapter(list[kind], config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
    return SchemaValidator(_materialised(adapter.core_schema))


def _materialised(schema: Any) -> Any:
    """The schema with lists where it has lazy iterables, which pydantic would accept unread.

    The first branch of a union that fits is enough: to find the best one takes many times as long.
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


def check_shape(operation: str, body: Body, model: str) -> list[str]:
    """Return where `body` departs from the input of an operation in botocore's model of the Bedrock runtime."""
    try:
        from botocore.validate import ParamValidator
    except ImportError:
        raise MissingExtra("validating requests", "validation") from None
    shape = _input_shape(operation)
    parameters, problems = _with_bytes({"modelId": model or "model", **body}, shape, "")
    report = ParamValidator().validate(parameters, shape)
    if report.has_errors():
        problems = report.generate_report().splitlines() + problems
    return [*problems, *_beyond_bounds(parameters, shape, "")][:REPORTED]


@cache
def _input_shape(operation: str) -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
    return service.operation_model(operation).input_shape


def _with_bytes(value: Any, shape: Any, path: str) -> tuple[Any, list[str]]:
    """The value with its base64 read, as the SDK's user gives it, and the paths where it is no base64."""
    problems: list[str] = []

    def read(inner: Any, member: Any, where: str) -> Any:
        decoded, found = _with_bytes(inner, member, where)
        problems.extend(found)
        return decoded

    if shape.type_name == "structure" and not shape.is_document_type and isinstance(value, dict):
        known = shape.members
        return {
            name: read(inner, known[name], f"{path}.{name}") if name in known else inner
            for name, inner in value.items()
        }, problems
    if shape.type_name == "list" and isinstance(value, list):
        return [read(inner, shape.member, f"{path}[{index}]") for index, inner in enumerate(value)], problems
    if shape.type_name == "blob":
        try:
            return base64.b64decode(value, validate=True), []
        except (binascii.Error, TypeError, ValueError):
            return b"?", [f"{path.lstrip('.')}: not base64"]
    return value, problems


def _beyond_bounds(value: Any, shape: Any, path: str) -> Iterator[str]:
    """The bounds of the service's model that the SDK leaves to the service: patterns, greatest sizes, enumerations."""
    bounds = shape.metadata
    if shape.type_name == "structure" and not shape.is_document_type and isinstance(value, dict):
        for name, inner in value.items():
            if name in shape.members:
                yield from _beyond_bounds(inner, shape.members[name], f"{path}.{name}")
    elif shape.type_name == "list" and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _beyond_bounds(inner, shape.member, f"{path}[{index}]")
    if isinstance(value, str):
        if "enum" in bounds and value not in bounds["enum"]:
            yield f"{path.lstrip('.')}: {value!r} is none of {', '.join(bounds['enum'])}"
        elif "pattern" in bounds and not re.fullmatch(bounds["pattern"], value):
            yield f"{path.lstrip('.')}: {value[:80]!r} does not match {bounds['pattern'][:80]}"
    if isinstance(value, (str, list, bytes)) and len(value) > bounds.get("max", len(value)):
        yield f"{path.lstrip('.')}: {len(value)} is more than {bounds['max']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > bounds.get("max", value):
        yield f"{path.lstrip('.')}: {value} is more than {bounds['max']}"
