"""Writes the `$defs` of a schema: each named type once, or inline where that is shorter.

Models read small schemas without references better. So a definition that is used once, or is short, is written where
it is used. A recursive one stays a definition.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any

from .._jsontext import encode_json
from .subschemas import Schema, inner_schemas, map_schemas, pointer_token

__all__ = ["Definitions"]

_PREFIX = "#/$defs/"
_SHORT = 160  # characters of JSON: about what two references and one definition cost


class Definitions:
    """Collects named schemas while a schema is written, and joins both when it is done."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._names: dict[Hashable, str] = {}

    def refer(self, key: Hashable, name: str, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a reference to the definition of `key`, which is written the first time it is asked for."""
        if key not in self._names:
            self._names[key] = self._reserve(name)
            self._schemas[self._names[key]] = write()
        return {"$ref": f"{_PREFIX}{pointer_token(self._names[key])}"}

    def adopt(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a finished schema whose own `$defs` are definitions here now, under new names if theirs are taken.

        A definition that says the same as one adopted before is that one.
        """
        inner: dict[str, Any] = schema.get("$defs", {})
        references: dict[str, str] = {}
        added: dict[str, Any] = {}
        for name, part in inner.items():
            key = (
                "adopted",
                name,
                encode_json({other: inner[other] for other in sorted({name, *_reached(part, inner)})}),
            )
            if key not in self._names:
                self._names[key] = self._reserve(name)
                added[self._names[key]] = part
            references[f"{_PREFIX}{pointer_token(name)}"] = f"{_PREFIX}{pointer_token(self._names[key])}"

        def renamed(part: Schema) -> Schema:
            if isinstance(part, bool):
                return part
            changed = map_schemas(part, renamed)
            reference = changed.get("$ref")
            return {**changed, "$ref": references[reference]} if reference in references else changed

        for name, part in added.items():
            self._schemas[name] = _as_dict(renamed(part))
        return _as_dict(renamed({keyword: value for keyword, value in schema.items() if keyword != "$defs"}))

    def finish(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with its definitions: inline where they are used once or short, else as `$defs`."""
        names = _reached(schema, self._schemas)
        uses = chain(_references(schema), *(_references(self._schemas[name]) for name in names))
        inlining = _Inlining(self._schemas, Counter(uses))
        finished = inlining.inline(schema)
        inlined = {name: inlining.inline(self._schemas[name]) for name in names}
        kept = {name: inlined[name] for name in _reached(finished, inlined)}
        return {**finished, "$defs": kept} if kept else finished

    def _reserve(self, name: str) -> str:
        """A name that no definition has yet, with nothing in it that a reference would have to escape."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "Type"
        free, number = plain, 2
        while free in self._schemas:
            free, number = f"{plain}_{number}", number + 1
        self._schemas[free] = {}
        return free


class _Inlining:
    """Replaces references by their definitions where that is shorter."""

    def __init__(self, schemas: dict[str, dict[str, Any]], uses: Counter[str]) -> None:
        self._schemas = schemas
        self._uses = uses
        self._inlined: dict[str, dict[str, Any] | None] = {}

    def inline(self, schema: Schema) -> Any:
        if isinstance(schema, bool):
            return schema
        name = _referred(schema)
        definition = self._definition(name) if name is not None else None
        if definition is not None:
            own = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
            return {**definition, **own}
        return map_schemas(schema, self.inline)

    def _definition(self, name: str) -> dict[str, Any] | None:
        """The definition to write inline, or None to keep the reference."""
        if name not in self._inlined:
            self._inlined[name] = None  # while it is read, a reference to it is a loop and stays
            if name not in _reached(self._schemas[name], self._schemas):
                whole = self.inline(self._schemas[name])
                if self._uses[name] == 1 or len(encode_json(whole)) <= _SHORT:
                    self._inlined[name] = whole
        return self._inlined[name]


def _reached(schema: Schema, schemas: dict[str, Any]) -> list[str]:
    """The names of all definitions that a schema leads to, each once."""
    found = list(dict.fromkeys(_references(schema)))
    for name in found:
        found += dict.fromkeys(inner for inner in _references(schemas[name]) if inner not in found)
    return found


def _references(schema: Schema) -> Iterator[str]:
    """The names of the definitions that a schema refers to, once for each use."""
    if isinstance(schema, bool):
        return
    name = _referred(schema)
    if name is not None:
        yield name
    for inner in inner_schemas(schema):
        yield from _references(inner)


def _referred(schema: dict[str, Any]) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_PREFIX) if isinstance(reference, str) and reference.startswith(_PREFIX) else None


def _as_dict(schema: Schema) -> dict[str, Any]:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema
