"""JSON Schemas as a provider's strict mode takes them. Pure.

A provider holds a model to a part of JSON Schema only, and each provider to another part: `SchemaRules` says which.
What `fit_schema` leaves out only makes the sent schema wider, so the caller checks the value against the whole schema.
"""

import re
from typing import Any

from .._jsontext import encode_json
from ..target import SchemaRules

__all__ = ["CLAUDE_SCHEMAS", "OPENAI_SCHEMAS", "SHARED_SCHEMAS", "fit_schema"]

_SHARED = frozenset(
    {"type", "properties", "required", "items", "anyOf", "enum", "const", "$ref", "$defs", "definitions", "title"}
    | {"description", "pattern", "format"}
)
_SHARED_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)  # fmt: skip
# https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"
OPENAI_SCHEMAS = SchemaRules(
    keywords=_SHARED
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"},
    formats=_SHARED_FORMATS,
    all_required=True,
    takes_others=True,
)
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations"
CLAUDE_SCHEMAS = SchemaRules(
    keywords=_SHARED | {"default"},
    formats=_SHARED_FORMATS | {"uri"},
    recursive=False,
)
# What both take, for a host that passes a schema on to either.
SHARED_SCHEMAS = SchemaRules(keywords=_SHARED, formats=_SHARED_FORMATS, all_required=True, takes_others=True)

# Keywords that limit or explain a value. Without them a schema still says what form the value has.
_LIMITS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "default", "examples"}
    | {"contentEncoding", "contentMediaType"}
)
_REMARKS = frozenset({"$schema", "$id", "$comment", "discriminator", "deprecated", "readOnly", "writeOnly"})
_ODD_PATTERN = re.compile(r"\(\?|\\[bBAZ1-9pP]")  # groups with a sign, word borders, references: neither provider's
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class _Unfit(Exception):
    """The strict mode cannot take the schema."""


def fit_schema(schema: dict[str, Any], rules: SchemaRules) -> tuple[dict[str, Any], bool]:
    """Return the schema as the target's strict mode takes it, and True; the same schema and False if it cannot take it.

    Objects are closed. A limit that the target does not take is told in the description.
    """
    if rules.keywords is None:
        return schema, True
    if not rules.recursive and _leads_back(schema, schema, [], set()):
        return schema, False
    try:
        return _fitted(schema, rules), True
    except _Unfit:
        return schema, False


def _fitted(schema: Any, rules: SchemaRules) -> dict[str, Any]:
    if not isinstance(schema, dict):  # true takes anything, false takes nothing
        raise _Unfit
    assert rules.keywords is not None
    fitted: dict[str, Any] = {}
    told: list[str] = []
    for name, value in schema.items():
        is_choice = name == "oneOf" or (name == "allOf" and isinstance(value, list) and len(value) == 1)
        keyword = "anyOf" if is_choice else name
        if keyword == "additionalProperties":
            continue
        if keyword in rules.keywords and _is_taken(keyword, value, rules) and keyword not in fitted:
            fitted[keyword] = _fitted_value(keyword, value, rules)
        elif keyword in _LIMITS:
            told.append(f"{keyword}: {encode_json(value).decode()}")
        elif keyword not in _REMARKS:
            raise _Unfit
    _require_form(fitted)
    if "object" in _types(fitted):
        _close_object(schema, fitted, rules)
    if told:
        limits = f"({', '.join(told)})"
        fitted["description"] = f"{fitted['description']} {limits}" if fitted.get("description") else limits
    if "$ref" in fitted and fitted.keys() - {"$ref", "$defs", "definitions"}:  # it must be alone
        return {"anyOf": [{"$ref": fitted.pop("$ref")}], **fitted}
    return fitted


def _is_taken(keyword: str, value: Any, rules: SchemaRules) -> bool:
    if keyword == "format":
        return value in rules.formats
    return keyword != "pattern" or (isinstance(value, str) and not _ODD_PATTERN.search(value))


def _fitted_value(keyword: str, value: Any, rules: SchemaRules) -> Any:
    match keyword:
        case "properties" | "$defs" | "definitions" if isinstance(value, dict):
            return {name: _fitted(inner, rules) for name, inner in value.items()}
        case "anyOf" if isinstance(value, list):
            return [_fitted(inner, rules) for inner in value]
        case "items":
            return _fitted(value, rules)
        case _:
            return value


def _require_form(fitted: dict[str, Any]) -> None:
    """Raise _Unfit where the schema does not say what form the value has; add the type of listed values."""
    values = fitted.get("enum", [fitted["const"]] if "const" in fitted else [])
    if any(type(value) not in _JSON_TYPES for value in values):
        raise _Unfit
    if values and "type" not in fitted:
        types = list(dict.fromkeys(_JSON_TYPES[type(value)] for value in values))
        fitted["type"] = types if len(types) > 1 else types[0]
    if not fitted.keys() & {"type", "anyOf", "$ref"} or ("array" in _types(fitted) and "items" not in fitted):
        raise _Unfit
    if not str(fitted.get("$ref", "#")).startswith("#"):
        raise _Unfit


def _close_object(schema: dict[str, Any], fitted: dict[str, Any], rules: SchemaRules) -> None:
    """Forbid further properties; raise _Unfit for an object that needs them: one by any names, or with more."""
    properties = fitted.get("properties")
    if not isinstance(properties, dict) or schema.get("additionalProperties", False) is not False:
        raise _Unfit
    fitted["additionalProperties"] = False
    if rules.all_required:
        optional = properties.keys() - set(schema.get("required") or ())
        if not all(_is_nullable(properties[name]) for name in optional):
            raise _Unfit  # the model would have to make up a value
        fitted["required"] = list(properties)


def _is_nullable(schema: dict[str, Any]) -> bool:
    return "null" in _types(schema) or any(map(_is_nullable, schema.get("anyOf", ())))


def _types(schema: dict[str, Any]) -> list[str]:
    named = schema.get("type", [])
    return named if isinstance(named, list) else [named]


def _leads_back(value: Any, root: dict[str, Any], followed: list[str], settled: set[str]) -> bool:
    """Whether a reference in the value leads back to one of those that were `followed` to it."""
    if isinstance(value, list):
        return any(_leads_back(inner, root, followed, settled) for inner in value)
    if not isinstance(value, dict):
        return False
    reference = value.get("$ref")
    if isinstance(reference, str) and reference not in settled:
        if reference == "#" or reference in followed:
            return True
        target: Any = root
        for name in reference.split("/")[1:]:
            target = target.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        if _leads_back(target, root, [*followed, reference], settled):
            return True
        settled.add(reference)
    return any(_leads_back(inner, root, followed, settled) for inner in value.values())
