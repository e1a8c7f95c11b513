"""Checks the fields of a value against their annotations, where a user makes the value."""

import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

import msgspec

from ._nearest import find_nearest
from .errors import InvalidValue

__all__ = ["require_field_types"]

Check: TypeAlias = Callable[[Any], bool]
_CHECKS: dict[Any, Check] = {
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    tuple: lambda value: isinstance(value, (tuple, list)),
}


def require_field_types(value: msgspec.Struct) -> None:
    """Raise InvalidValue for a field of another type than its annotation; what cannot be checked is taken."""
    for name, annotation, check in _checks(type(value)):
        given = getattr(value, name)
        if not check(given):
            raise InvalidValue.of_content(f"{type(value).__name__}.{name}", given, _wanted(annotation, given))


@cache
def _checks(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, Check], ...]:
    found = ((field.name, field.type, _check(field.type)) for field in msgspec.structs.fields(kind))
    return tuple((name, annotation, check) for name, annotation, check in found if check is not None)


def _check(annotation: Any) -> Check | None:
    """The check of an annotation; None if any value may fit it."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        checks = [_check(member) for member in members]
        known = [check for check in checks if check is not None]
        return None if len(known) < len(checks) else lambda value: any(check(value) for check in known)
    if origin is tuple and len(members) == 2 and members[1] is Ellipsis:
        inner = _check(members[0]) or (lambda _value: True)
        return lambda value: isinstance(value, (tuple, list)) and all(map(inner, value))
    plain = origin or annotation
    if plain in _CHECKS:
        return _CHECKS[plain]
    is_class = isinstance(plain, type) and plain not in (Any, object)
    return (lambda value: isinstance(value, plain)) if is_class else None


def _wanted(annotation: Any, given: object) -> str:
    """What the annotation allows, in words; of an enum the member that was meant, or all of them."""
    members = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    kinds = [kind for kind in members or (annotation,) if kind is not type(None)]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            names = {**{name: name for name in kind.__members__}, **{str(each.value): each.name for each in kind}}
            meant = find_nearest(given, names) if isinstance(given, str) else None
            return " or ".join(f"{kind.__name__}.{name}" for name in ([names[meant]] if meant else kind.__members__))
    words = [kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind) for kind in kinds]
    return " or ".join([*words, *(["None"] if type(None) in members else [])])
