"""Changes arguments that do not fit a schema, where they can mean only one thing.

Arguments that fit are not changed. Each change gives a warning, which never quotes the argument.
"""

from collections.abc import Iterator
from typing import Any

from .._jsontext import decode_json
from ..errors import UnreadableData
from .mismatch import shown_name
from .subschemas import Schema, forms_of, inner_schema, json_type, looks_like, same_json, type_fits, types_of

__all__ = ["coerce_arguments", "coerce_value"]

_MOST_DEPTH = 64
_MOST_WARNINGS = 6  # they are kept beside the call, where there is room for 2 KB
_NOTHING = object()
_WORDS = {"true": True, "false": False}


def coerce_arguments(arguments: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments, changed where they can mean only one thing, and a line for each change.

    Text that says a number, a boolean, an array or an object; 3.0 for 3; one value for an array of such values; null
    for a parameter that may be left out. The given arguments are not changed.
    """
    changed, warnings = coerce_value(arguments, schema, schema)
    return (changed, warnings) if isinstance(changed, dict) else (arguments, [])


def coerce_value(value: Any, schema: Schema, root: dict[str, Any], name: str = "") -> tuple[Any, list[str]]:
    """Return one value likewise; `name` is what the lines call it."""
    coercion = _Coercion(root)
    changed = coercion.coerce(value, schema, name, 0)
    warnings = coercion.warnings
    if len(warnings) > _MOST_WARNINGS:
        left = len(warnings) - _MOST_WARNINGS
        warnings = [*warnings[:_MOST_WARNINGS], f"and {left} more changes of this kind"]
    return changed, warnings


class _Coercion:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self.warnings: list[str] = []

    def coerce(self, value: Any, schema: Schema, path: str, depth: int) -> Any:
        if depth > _MOST_DEPTH or isinstance(schema, bool):
            return value
        forms = forms_of(schema, self._root)
        if type(value) is float and value.is_integer() and _wants_integer(forms):
            self._warn(path, "a whole number written with a point was taken as one")
            value = int(value)
        fitting = [form for form in forms if type_fits(value, form)]
        if not fitting:
            said = _read_text(value)
            readings = [(meant, says, form) for form in forms for meant, says in _readings(value, said, form)]
            readings = readings or [(meant, says, form) for form in forms for meant, says in self._wrapped(value, form)]
            if not readings or not all(same_json(meant, readings[0][0]) for meant, _, _ in readings):
                return value
            value, says, form = readings[0]
            self._warn(path, says)
            fitting = [form]
        likeliest = _likeliest(value, fitting)
        return value if likeliest is None else self._inside(value, likeliest, path, depth)

    def _wrapped(self, value: Any, form: dict[str, Any]) -> Iterator[tuple[Any, str]]:
        """The value in an array, if the form is an array of values such as this."""
        items = form.get("items")
        if value is None or "array" not in types_of(form) or not isinstance(items, dict) or "prefixItems" in form:
            return
        inner = forms_of(items, self._root)
        said = _read_text(value)
        if all(types_of(choice) or _allowed(choice) for choice in inner) and any(
            type_fits(value, choice) or any(_readings(value, said, choice)) for choice in inner
        ):
            yield [value], "a single value was put into an array"

    def _inside(self, value: Any, form: dict[str, Any], path: str, depth: int) -> Any:
        """The value with its items or properties coerced; the same object if nothing changed."""
        if isinstance(value, dict):
            return self._properties(value, form, path, depth)
        if not isinstance(value, list):
            return value
        changed = []
        for index, item in enumerate(value):
            schema = inner_schema(form, index)
            changed.append(item if schema is None else self.coerce(item, schema, f"{path}[{index}]", depth + 1))
        if form.get("uniqueItems") is True:
            changed = self._without_repeats(changed, path)
        is_same = len(changed) == len(value) and all(new is old for new, old in zip(changed, value, strict=True))
        return value if is_same else changed

    def _without_repeats(self, items: list[Any], path: str) -> list[Any]:
        if not all(isinstance(item, (str, int, float)) for item in items):
            return items
        kept = list({(json_type(item), item): item for item in items}.values())
        if len(kept) < len(items):
            self._warn(path, "items that stood twice were left out")
        return kept

    def _properties(self, value: dict[str, Any], form: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = form.get("properties")
        known: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = form.get("required")
        needed = required if isinstance(required, list) else []
        changed: dict[str, Any] = {}
        for name, item in value.items():
            schema = inner_schema(form, name)
            if schema is None:
                changed[name] = item
                continue
            # A name that the schema does not have is content, and is not told.
            told = name if name in known else "*"
            inner_path = f"{path}.{told}" if path else told
            if item is None and name in known and name not in needed and not self._takes_null(schema):
                self._warn(inner_path, "null was left out")
                continue
            changed[name] = self.coerce(item, schema, inner_path, depth + 1)
        is_same = changed.keys() == value.keys() and all(changed[name] is item for name, item in value.items())
        return value if is_same else changed

    def _takes_null(self, schema: dict[str, Any]) -> bool:
        return any(type_fits(None, form) for form in forms_of(schema, self._root))

    def _warn(self, path: str, says: str) -> None:
        self.warnings.append(f"{shown_name(path) or 'arguments'}: {says}")


def _readings(value: Any, said: Any, form: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """What else the value may mean so that it fits the form; `said` is what its text says."""
    if said is not _NOTHING and type_fits(said, form):
        is_integer = type(said) is float and _wants_integer([form])
        yield int(said) if is_integer else said, f"text was read as {json_type(said)}"
    elif isinstance(value, str):
        same = [allowed for allowed in _allowed(form) if _folded(allowed) == _folded(value)]
        if len(same) == 1:
            yield same[0], "the value was taken for the allowed one that differs only in case or spaces"
    elif type(value) is int and types_of(form) == ["string"] and type_fits(str(value), form):
        yield str(value), "integer was written as text"


def _read_text(text: Any) -> Any:
    """What the text says as JSON, or as Python writes a boolean; `_NOTHING` if it says nothing or is no text."""
    if not isinstance(text, str):
        return _NOTHING
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        return decode_json(text)
    except UnreadableData:
        return _NOTHING


def _wants_integer(forms: list[dict[str, Any]]) -> bool:
    types = {name for form in forms for name in types_of(form)}
    return "integer" in types and "number" not in types


def _likeliest(value: Any, forms: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one form that the value looks like most; None if several look alike, and none may be preferred."""
    if len(forms) == 1:
        return forms[0]
    ranks = [looks_like(value, form) for form in forms]
    best = max(ranks)
    return forms[ranks.index(best)] if ranks.count(best) == 1 else None


def _allowed(form: dict[str, Any]) -> list[Any]:
    if isinstance(form.get("enum"), list):
        return list(form["enum"])
    return [form["const"]] if "const" in form else []


def _folded(value: object) -> object:
    return value.strip().casefold() if isinstance(value, str) else value
