"""Converts annotations to JSON Schemas, and JSON values to values of the annotated types.

`TypeSchema.of(annotation)` is both at once. Knows no functions (`signature` does) and no models.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from ..errors import ErrorCode, InvalidValue, ToolError
from .checking import SchemaChecker, problem_line
from .mismatch import Mismatch
from .nodes import Node, schema_of
from .reading import TypeReader

__all__ = ["TypeSchema"]

T = TypeVar("T")


class TypeSchema(Generic[T]):
    """A type as JSON sees it: `schema` describes its values, `convert` reads them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._schema = schema_of(node)
        self._checker: SchemaChecker | None = None

    @classmethod
    def of(cls, annotation: Any, *, namespace: Mapping[str, Any] | None = None) -> "TypeSchema[Any]":
        """Return the schema of an annotation; raise InvalidValue for a type that JSON cannot say.

        `namespace` is where names in annotations written as text are looked up, beside their own modules.
        """
        try:
            return cls(TypeReader(namespace).read(annotation))
        except RecursionError:
            raise InvalidValue("the type is nested too deeply") from None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema, draft 2020-12."""
        return self._schema

    def read(self, value: Any) -> tuple[T | None, list[str]]:
        """Return the value of the type, or what is wrong with it: at most five lines that a model can act on."""
        if self._checker is None:
            self._checker = SchemaChecker(self._schema)
        problems = self._checker.problems(value)
        if problems:
            return None, problems
        try:
            return self._node.convert(value, {}), []
        except Mismatch as mismatch:
            return None, [problem_line(mismatch.path, mismatch.says)]
        except RecursionError:
            return None, [problem_line((), "is nested too deeply")]

    def problems(self, value: Any) -> list[str]:
        """Return what is wrong with a JSON value, at most five lines that a model can act on."""
        return self.read(value)[1]

    def convert(self, value: Any) -> T:
        """Return the value of the type; raise ToolError (invalid_arguments) that says what is wrong."""
        converted, problems = self.read(value)
        if problems:
            raise ToolError("\n".join(problems), code=ErrorCode.INVALID_ARGUMENTS)
        return converted  # type: ignore[return-value]  # without problems it is of the type
