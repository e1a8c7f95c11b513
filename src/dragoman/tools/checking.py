"""Checks JSON values against JSON Schemas, and describes what is wrong in words that a model can act on.

A compiled validator says whether a value fits. The reasons are found here: the validator's list of errors tries every
choice of a recursive schema again, and grows exponentially with the depth. References to other documents are never
followed.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .._jsontext import require_json
from .._nearest import nearest
from ..errors import InvalidValue
from .mismatch import NAMES, quote, shown_name
from .subschemas import Schema, forms_of, inner_schema, looks_like, map_schemas, same_json, type_fits, types_of

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["SchemaChecker", "bound_reason", "join_path", "problem_line", "size_reason"]

_MOST_PROBLEMS = 5
_MOST_NAMED = 20  # names or values that a message lists
_MOST_ITEMS = 2_000  # of an array, looked through for the ones that do not fit
_MOST_DEPTH = 64
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("at least", operator.ge),
    "exclusiveMinimum": ("greater than", operator.gt),
    "maximum": ("at most", operator.le),
    "exclusiveMaximum": ("less than", operator.lt),
}
_ROOT = "urn:dragoman:parameters"


class SchemaChecker:
    """One schema, compiled. Raises InvalidValue when it is made of something that is no schema."""

    def __init__(self, schema: dict[str, Any], field: str = "schema") -> None:
        import jsonschema_rs

        self._schema = schema
        try:
            self._class = jsonschema_rs.validator_cls_for(schema)
            self._validator = self._class(schema, retriever=_refuse, validate_formats=False)
        except (ValueError, TypeError) as error:
            first = str(error).partition("\n")[0]
            raise InvalidValue(f"{field} is no JSON Schema that can be used: {first[:300]}") from error
        self._inner: dict[int, jsonschema_rs.Validator | None] = {}
        self._registry: jsonschema_rs.Registry | None = None

    def problems(self, value: Any) -> list[str]:
        """Return what is wrong with a value, at most five lines; nothing if it fits."""
        try:
            require_json(value, "the value")
        except InvalidValue as error:
            return [str(error)]
        try:
            if self._validator.is_valid(value):
                return []
        except (ValueError, RecursionError):  # half a surrogate pair; a pattern that takes too long
            return [
                problem_line((), "cannot be checked against the schema: text in it is not Unicode or too intricate")
            ]
        found = list(dict.fromkeys(self._reasons(value, self._schema, ())))
        return found[:_MOST_PROBLEMS] or [problem_line((), "does not fit the schema")]

    def is_valid(self, value: Any) -> bool:
        """Return whether a JSON value fits; one that cannot be checked does not."""
        try:
            return self._validator.is_valid(value)
        except (ValueError, RecursionError):
            return False

    def _reasons(self, value: Any, schema: Schema, path: tuple[str | int, ...]) -> Iterator[str]:
        """The problems of a value that does not fit. Of several choices only the likeliest is followed."""
        forms = forms_of(schema, self._schema)
        likely = [form for form in forms if type_fits(value, form)]
        if not likely:
            yield problem_line(path, f"must be {_describe_all(forms)}, got {quote(value)}")
            return
        form = max(likely, key=lambda form: looks_like(value, form))
        found = False
        for reason in self._own_reasons(value, form, path):
            found = True
            yield reason
        if len(path) < _MOST_DEPTH:
            for reason in self._inner_reasons(value, form, path):
                found = True
                yield reason
        if not found:
            yield problem_line(path, _unknown_reason(form))

    def _own_reasons(self, value: Any, form: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[str]:
        if isinstance(value, str):
            says = size_reason(len(value), form, "Length", "characters")
        elif isinstance(value, list):
            says = size_reason(len(value), form, "Items", "items")
            if says is None and form.get("uniqueItems") is True and _has_twice(value):
                says = "must have no item twice"
        elif isinstance(value, dict):
            yield from self._name_reasons(value, form, path)
            says = size_reason(len(value), form, "Properties", "properties")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            says = _number_reason(value, form)
        else:
            says = None
        if says is not None:
            yield problem_line(path, says)

    def _name_reasons(self, value: dict[str, Any], form: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[str]:
        """Names that are missing, and names that are not known."""
        properties = form.get("properties")
        known: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = form.get("required")
        for name in required if isinstance(required, list) else ():
            if name not in value:
                wanted = _describe_all(forms_of(known[name], self._schema)) if name in known else "a value"
                yield problem_line((*path, name), f"is missing: give {wanted}")
        names: Any = form.get("propertyNames")
        for name in value if isinstance(names, dict) else ():
            if not self._fits(name, names):
                wanted = _describe_all(forms_of(names, self._schema))
                yield problem_line((*path, name), f"is no name that is allowed here: it must be {wanted}")
        if form.get("additionalProperties") is False and not form.get("patternProperties"):
            for name in value:
                if name not in known:
                    hint = nearest(str(name), known)
                    hint += " " if hint else ""
                    allowed = ", ".join(list(known)[:_MOST_NAMED]) or "none"
                    yield problem_line((*path, name), f"is not known here: {hint}allowed are {allowed}")

    def _inner_reasons(self, value: Any, form: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[str]:
        """The reasons of the values inside that do not fit."""
        inside: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            inside = value.items()
        elif isinstance(value, list):
            inside = enumerate(value[:_MOST_ITEMS])
        for step, inner in inside:
            schema = inner_schema(form, step)
            if schema is not None and not self._fits(inner, schema):
                yield from self._reasons(inner, schema, (*path, step))

    def _fits(self, value: Any, schema: Schema) -> bool:
        if isinstance(schema, bool):
            return schema
        if id(schema) not in self._inner:
            self._inner[id(schema)] = self._compile(schema)
        validator = self._inner[id(schema)]
        return validator is None or validator.is_valid(value)

    def _compile(self, schema: dict[str, Any]) -> "jsonschema_rs.Validator | None":
        """The validator of a schema inside the whole one; None if it cannot be compiled alone."""
        import jsonschema_rs

        try:
            if self._registry is None:
                self._registry = jsonschema_rs.Registry([(_ROOT, self._schema)], retriever=_refuse)
            return self._class(_absolute(schema), retriever=_refuse, registry=self._registry, validate_formats=False)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError):
            return None


def problem_line(path: tuple[str | int, ...], says: str) -> str:
    """Return one line about the value at a path."""
    return f"{join_path(path)}: {says}"


def join_path(path: tuple[str | int, ...]) -> str:
    """Return a path as people write it: `filters[0].name`; the whole is `arguments`."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            written += f".{shown_name(step)}" if written else shown_name(step)
    return written or "arguments"


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"references to other documents are not followed: {uri[:100]}")


def _absolute(schema: Schema) -> Any:
    """Return the schema with absolute references, so that they work outside of the whole schema."""
    if isinstance(schema, bool):
        return schema
    changed = map_schemas(schema, _absolute)
    reference = changed.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        changed["$ref"] = f"{_ROOT}{reference}"
    return changed


def size_reason(size: int, form: Mapping[str, Any], noun: str, counted: str) -> str | None:
    """Return what is wrong with a number of characters, items or properties; None if it is within the limits."""
    least, most = form.get(f"min{noun}"), form.get(f"max{noun}")
    if isinstance(least, (int, float)) and size < least:
        return f"must have at least {least} {counted}, has {size}"
    if isinstance(most, (int, float)) and size > most:
        return f"must have at most {most} {counted}, has {size}"
    return None


def bound_reason(value: Any, form: Mapping[str, Any]) -> str | None:
    """Return which bound a number is beyond; None if it is within all of them."""
    for name, (says, is_within) in _BOUNDS.items():
        limit = form.get(name)
        if isinstance(limit, (int, float)) and not is_within(value, limit):
            return f"must be {says} {limit}"
    return None


def _number_reason(value: float, form: dict[str, Any]) -> str | None:
    says = bound_reason(value, form) or (
        f"must be a multiple of {form['multipleOf']}" if "multipleOf" in form else None
    )
    return says and f"{says}, got {quote(value)}"


def _unknown_reason(form: dict[str, Any]) -> str:
    if isinstance(form.get("pattern"), str):
        return f"must match the pattern {form['pattern'][:200]}"
    said = form.get("description")
    hint = f": {said[:200]}" if isinstance(said, str) else ""
    return f"does not fit the schema{hint}"


def _has_twice(items: list[Any]) -> bool:
    return any(same_json(item, other) for index, item in enumerate(items[:200]) for other in items[:index])


def _describe_all(forms: list[dict[str, Any]]) -> str:
    described = list(dict.fromkeys(_describe(form) for form in forms))
    return " or ".join(described[:8]) or "nothing"


def _describe(form: dict[str, Any]) -> str:
    allowed = form["enum"] if isinstance(form.get("enum"), list) else [form["const"]] if "const" in form else None
    if allowed is not None:
        named = ", ".join(quote(value) for value in allowed[:_MOST_NAMED])
        return f"one of {named}{' …' if len(allowed) > _MOST_NAMED else ''}" if len(allowed) > 1 else named
    return " or ".join(NAMES.get(name, name) for name in types_of(form)) or "a value"
