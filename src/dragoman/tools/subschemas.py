"""Takes JSON Schemas apart: the schemas inside one, the target of a `$ref`, the forms that a value may have.

Works on any draft 7 or 2020-12 schema, also on hostile ones: references may loop. Knows no Python types and no tools.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeAlias

from .._frozen import FrozenList

__all__ = [
    "Schema",
    "forms_of",
    "inner_schema",
    "inner_schemas",
    "json_type",
    "looks_like",
    "map_schemas",
    "pointer_token",
    "resolve_reference",
    "same_json",
    "type_fits",
    "types_of",
]

Schema: TypeAlias = dict[str, Any] | bool

# Keywords whose value is a schema, a list of schemas, or schemas by name. Everything else inside a schema is data:
# a property may be called `$ref`, a default may look like a schema.
_ONE = frozenset(
    {
        "items",
        "additionalProperties",
        "propertyNames",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
        "additionalItems",
        "contentSchema",
    }
)
_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_COMBINED = frozenset({"$ref", "anyOf", "oneOf", "allOf"})

_MOST_FORMS = 64
_MOST_STEPS = 1_000

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    FrozenList: "array",
    dict: "object",
    type(None): "null",
}


def inner_schemas(schema: dict[str, Any]) -> Iterator[Schema]:
    """Yield the schemas directly inside one."""
    for keyword, value in schema.items():
        found: Iterable[Any] = ()
        if keyword in _NAMED and isinstance(value, dict):
            found = value.values()
        elif keyword in _MANY and isinstance(value, list):
            found = value
        elif keyword in _ONE:
            found = (value,)
        yield from (inner for inner in found if isinstance(inner, (dict, bool)))


def map_schemas(schema: dict[str, Any], change: Callable[[Schema], Schema]) -> dict[str, Any]:
    """Return the schema with `change` applied to each schema directly inside it."""
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            changed[keyword] = {name: _changed(inner, change) for name, inner in value.items()}
        elif keyword in _MANY and isinstance(value, list):
            changed[keyword] = [_changed(inner, change) for inner in value]
        elif keyword in _ONE:
            changed[keyword] = _changed(value, change)
        else:
            changed[keyword] = value
    return changed


def pointer_token(name: str) -> str:
    """Return a name as a JSON pointer writes it."""
    return name.replace("~", "~0").replace("/", "~1")


def resolve_reference(root: dict[str, Any], reference: object) -> Schema | None:
    """Return the schema inside the document that a `$ref` points at; None for other documents and for nothing."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for token in reference[1:].split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found if isinstance(found, (dict, bool)) else None


def forms_of(schema: Schema, root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the forms that a value may take: `$ref` followed, `anyOf` and `oneOf` spread out, `allOf` joined.

    Keywords around a choice are part of each form. Of too many forms only the first are returned.
    """
    if isinstance(schema, dict) and _COMBINED.isdisjoint(schema):
        return [schema]
    steps = iter(range(_MOST_STEPS))
    return list(_forms(schema, root, frozenset(), steps))


def types_of(form: dict[str, Any]) -> list[str]:
    """Return the JSON types that a form names, or that its keywords speak of; none means any."""
    named = form.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [name for name in named if isinstance(name, str)]
    if isinstance(form.get("properties"), dict):
        return ["object"]
    if "items" in form or "prefixItems" in form:
        return ["array"]
    return []


def json_type(value: object) -> str:
    """Return the JSON type of a value; a whole number is `integer`, also if it is written 3.0."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _JSON_TYPES.get(type(value), "object")


def type_fits(value: object, form: dict[str, Any]) -> bool:
    """Whether the value has a type that the form allows and, where it lists values, is one of them."""
    types = types_of(form)
    kind = json_type(value)
    if types and kind not in types and not (kind == "integer" and "number" in types):
        return False
    if isinstance(form.get("enum"), list) and not any(same_json(value, allowed) for allowed in form["enum"]):
        return False
    return "const" not in form or same_json(value, form["const"])


def inner_schema(form: dict[str, Any], step: str | int) -> dict[str, Any] | None:
    """Return the schema that a form has for one property or item; None where it says nothing, or true or false."""
    found: Any
    if isinstance(step, str):
        properties = form.get("properties")
        if isinstance(properties, dict) and step in properties:
            found = properties[step]
        else:
            found = None if form.get("patternProperties") else form.get("additionalProperties")
    else:
        items = form.get("items")
        prefix, rest = (items, None) if isinstance(items, list) else (form.get("prefixItems"), items)
        found = prefix[step] if isinstance(prefix, list) and step < len(prefix) else rest
    return found if isinstance(found, dict) else None


def looks_like(value: object, form: dict[str, Any]) -> int:
    """Return how much the value looks like the form: 0 for not at all, more for each name that it knows."""
    if not type_fits(value, form):
        return 0
    properties = form.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return 1
    known = [name for name in value if name in properties]
    for name in known:
        inner = properties[name]
        is_tag = isinstance(inner, dict) and ("const" in inner or "enum" in inner)
        if is_tag and not type_fits(value[name], inner):
            return 0
    required = form.get("required")
    missing = [name for name in required if name not in value] if isinstance(required, list) else []
    return max(1, 2 + len(known) - 2 * len(missing))


def same_json(left: object, right: object) -> bool:
    """Whether JSON holds these for the same value: 1 and 1.0 are, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(value, right[name]) for name, value in left.items())
    return left == right


def _changed(inner: Any, change: Callable[[Schema], Schema]) -> Any:
    return change(inner) if isinstance(inner, (dict, bool)) else inner


def _forms(
    schema: Schema, root: dict[str, Any], followed: frozenset[str], steps: Iterator[int]
) -> Iterator[dict[str, Any]]:
    if next(steps, None) is None or schema is False:
        return
    if isinstance(schema, bool):
        yield {}
        return
    forms = [{keyword: value for keyword, value in schema.items() if keyword not in _COMBINED}]
    reference = schema.get("$ref")
    target = resolve_reference(root, reference)
    if target is not None:
        if reference in followed:  # a reference that leads back to itself says nothing
            return
        forms = _joined(forms, [_forms(target, root, followed | {str(reference)}, steps)])
    for part in _schemas(schema.get("allOf")):
        forms = _joined(forms, [_forms(part, root, followed, steps)])
    for keyword in ("anyOf", "oneOf"):
        choices = _schemas(schema.get(keyword))
        if choices:
            forms = _joined(forms, [_forms(choice, root, followed, steps) for choice in choices])
    yield from forms


def _schemas(given: object) -> list[Schema]:
    return [item for item in given if isinstance(item, (dict, bool))] if isinstance(given, list) else []


def _joined(forms: list[dict[str, Any]], choices: list[Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Every form joined with every choice, as far as there are not too many."""
    spread = list(islice(chain.from_iterable(choices), _MOST_FORMS))
    return list(islice((_join(form, choice) for choice in spread for form in forms), _MOST_FORMS))


def _join(form: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    joined = {**inner, **form}
    for keyword in ("properties", "required"):
        theirs, own = inner.get(keyword), form.get(keyword)
        if isinstance(theirs, dict) and isinstance(own, dict):
            joined[keyword] = {**own, **{name: part for name, part in theirs.items() if name not in own}}
        elif isinstance(theirs, list) and isinstance(own, list):
            joined[keyword] = [*own, *(name for name in theirs if name not in own)]
    return joined
