"""Lets Pydantic describe and read its own types. Pydantic is never imported unless the user has done so."""

import sys
from typing import Any

from .._jsontext import encode_json
from ..errors import InvalidValue, redact
from .mismatch import Mismatch
from .namedschemas import Definitions
from .nodes import Node, Seen, is_hashable, report_refusal
from .subschemas import Schema, map_schemas

__all__ = ["PydanticNode", "is_pydantic_field", "is_pydantic_type"]

_SAID = 200  # characters of what a validator says


def is_pydantic_type(annotation: object) -> bool:
    """Whether Pydantic is loaded and knows this class: a model, a dataclass of its own, a type with its hook."""
    return "pydantic" in sys.modules and (
        hasattr(annotation, "__get_pydantic_core_schema__") or hasattr(annotation, "__pydantic_core_schema__")
    )


def is_pydantic_field(value: object) -> bool:
    """Whether this is what `pydantic.Field(…)` returns."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__.partition(".")[0] == "pydantic"


class PydanticNode(Node, eq=False):
    """A type as Pydantic sees it; `annotation` may be Annotated with anything that Pydantic understands."""

    annotation: Any
    adapter: Any
    written: dict[str, Any]

    @classmethod
    def of(cls, annotation: Any) -> "PydanticNode":
        """Return the node of a type; raise InvalidValue for one that JSON cannot say."""
        from pydantic import TypeAdapter  # loaded already: the type is one of its own

        try:
            adapter: Any = TypeAdapter(annotation)
            return cls(annotation, adapter, _without_titles(adapter.json_schema()))
        except Exception as error:
            raise InvalidValue(f"Pydantic makes no JSON Schema of {annotation!r}: {type(error).__name__}") from error

    def schema(self, book: Definitions) -> dict[str, Any]:
        if "properties" not in self.written:
            return book.adopt(self.written)
        key = ("pydantic", self.annotation if is_hashable(self.annotation) else id(self.annotation))
        return book.refer(key, getattr(self.annotation, "__name__", "Model"), lambda: book.adopt(self.written))

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        from pydantic import ValidationError

        try:
            # As JSON, because Pydantic reads times and ids from text there even where a model is strict.
            return self.adapter.validate_json(encode_json(value))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            path = tuple(step for step in first["loc"] if isinstance(step, (str, int)))
            raise Mismatch(f"is refused: {redact(first['msg'])[:_SAID]}", path) from None
        except BaseException as error:  # a user's validator may raise anything: the model is told
            report_refusal(error)
            raise Mismatch(f"is refused: {type(error).__name__}") from error


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles, which repeat names, and without OpenAPI's discriminator, which repeats references."""

    def trimmed(part: Schema) -> Schema:
        return part if isinstance(part, bool) else _without_titles(part)

    kept = {keyword: value for keyword, value in schema.items() if keyword not in ("title", "discriminator")}
    return map_schemas(kept, trimmed)
