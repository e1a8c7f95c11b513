"""Reads limits and descriptions from `Annotated[…]` and `pydantic.Field(…)`.

Metadata is known by its attributes, so that msgspec's, Pydantic's and annotated-types' need not be imported here.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .pydantic_types import is_pydantic_field

__all__ = ["NO_DEFAULT", "Metadata", "read_metadata"]

NO_DEFAULT: Any = inspect.Parameter.empty
_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "tz")


class Metadata(msgspec.Struct, kw_only=True):
    """Limits, keywords that go into the schema as they are, and the alias and default of a `Field`."""

    limits: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    alias: str | None = None
    default: Callable[[], Any] | None = None
    shown_default: Any = NO_DEFAULT


def read_metadata(items: Iterable[object]) -> Metadata:
    """Return the limits and descriptions of the items; unknown items are ignored, as PEP 593 says."""
    found = Metadata()
    for item in items:
        if isinstance(item, str):
            found.annotations["description"] = item
        elif is_pydantic_field(item):
            _read_field(item, found)
        elif not isinstance(item, type):
            _read_limits(item, found)
            _read_words(item, found)
    return found


def _read_limits(item: object, found: Metadata) -> None:
    for name in _LIMITS:
        value = getattr(item, name, None)
        if isinstance(value, re.Pattern):
            value = value.pattern
        usable = isinstance(value, {"pattern": str, "tz": bool}.get(name, object))
        if value is not None and usable and not (name == "min_length" and value == 0):
            found.limits[name] = value


def _read_words(item: object, found: Metadata) -> None:
    for name in ("title", "description", "examples"):
        value = getattr(item, name, None)
        if value and isinstance(value, (str, list)):
            found.annotations[name] = value
    documentation = getattr(item, "documentation", None)  # typing_extensions.Doc
    if isinstance(documentation, str):
        found.annotations["description"] = documentation
    for name in ("extra_json_schema", "json_schema_extra"):
        extra = getattr(item, name, None)
        if isinstance(extra, dict):
            found.annotations.update(extra)


def _read_field(item: Any, found: Metadata) -> None:
    for inner in item.metadata:
        _read_limits(inner, found)
    _read_words(item, found)
    if isinstance(item.alias, str):
        found.alias = item.alias
    if not item.is_required():
        found.default = lambda: item.get_default(call_default_factory=True)
        if item.default_factory is None:
            found.shown_default = item.default
