"""Reads the fields of dataclasses, TypedDicts, NamedTuples and msgspec Structs.

Knows no JSON Schema. Names in annotations written as text are looked up in the class's own module first.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from ..errors import InvalidValue
from .docstrings import class_docstring
from .metadata import NO_DEFAULT

__all__ = [
    "RawField",
    "class_fields",
    "is_named_tuple",
    "is_typed_dict",
    "read_hints",
    "strip_qualifiers",
    "substitute",
]

_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})


class RawField(msgspec.Struct, frozen=True, kw_only=True):
    """A field as its class declares it; `default` is NO_DEFAULT where there is none or where it is made anew."""

    name: str
    key: str
    annotation: Any
    required: bool
    default: Any = NO_DEFAULT
    description: str | None = None


def is_typed_dict(annotation: object) -> bool:
    """Whether this is a TypedDict, of `typing` or of `typing_extensions`."""
    return isinstance(annotation, type) and issubclass(annotation, dict) and hasattr(annotation, "__required_keys__")


def is_named_tuple(annotation: object) -> bool:
    """Whether this is a NamedTuple or a namedtuple."""
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields")


def class_fields(cls: type, arguments: tuple[Any, ...], namespace: Mapping[str, Any] | None) -> list[RawField] | None:
    """Return the fields of a class, its type variables replaced by `arguments`; None for a class of another kind."""
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        read = _struct_fields
    elif is_typed_dict(cls):
        read = _typed_dict_fields
    elif is_named_tuple(cls):
        read = _named_tuple_fields
    elif dataclasses.is_dataclass(cls):
        read = _dataclass_fields
    else:
        return None
    replaced = dict(_type_arguments(cls, arguments))
    found = read_hints(cls, cls.__name__, namespace or {})
    hints = {name: substitute(hint, replaced) for name, hint in found.items()}
    said = class_docstring(cls).parameters
    return [
        msgspec.structs.replace(field, description=field.description or said.get(field.name))
        for field in read(cls, hints)
    ]


def read_hints(holder: Any, called: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a class or a function. `names` are looked at for text that its module cannot explain.

    Raise InvalidValue, which begins with `called`, for annotations that cannot be read.
    """
    try:
        try:
            return typing.get_type_hints(holder, include_extras=True)
        except NameError:
            return typing.get_type_hints(holder, localns=dict(names), include_extras=True)
    except NameError as error:
        raise InvalidValue(f"{called}: the name {error.name!r} in its annotations means nothing here") from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise InvalidValue(f"{called}: its annotations cannot be read ({error})") from error


def strip_qualifiers(annotation: Any) -> tuple[Any, set[str]]:
    """Return the type inside Required, NotRequired, ReadOnly and Final, and which of them stood around it."""
    found: set[str] = set()
    while (name := getattr(typing.get_origin(annotation), "_name", None)) in _QUALIFIERS:
        found.add(str(name))
        annotation = typing.get_args(annotation)[0]
    return annotation, found


def substitute(annotation: Any, replaced: Mapping[Any, Any]) -> Any:
    """Return the annotation with its type variables replaced."""
    if not replaced:
        return annotation
    if isinstance(annotation, TypeVar):
        return replaced.get(annotation, annotation)
    free = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) and not typing.get_origin(annotation):
        return annotation  # a generic class by itself: its own variables are not those of the one around it
    return annotation[tuple(replaced.get(variable, variable) for variable in free)] if free else annotation


def _type_arguments(cls: type, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """The type variables of a class and of its bases, each with its argument."""
    variables: tuple[Any, ...] = getattr(cls, "__parameters__", ())
    own = dict(zip(variables, arguments, strict=False))
    yield from own.items()
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not cls and hasattr(origin, "__parameters__"):
            inner = tuple(substitute(argument, own) for argument in typing.get_args(base))
            yield from _type_arguments(origin, inner)


def _dataclass_fields(cls: Any, hints: dict[str, Any]) -> Iterator[RawField]:
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise InvalidValue(f"{cls.__name__}.{name}: an InitVar cannot be in JSON")
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        annotation, _ = strip_qualifiers(hints[field.name])
        has_default = field.default is not dataclasses.MISSING
        said = field.metadata.get("description")
        yield RawField(
            name=field.name,
            key=field.name,
            annotation=annotation,
            required=not has_default and field.default_factory is dataclasses.MISSING,
            default=field.default if has_default else NO_DEFAULT,
            description=said if isinstance(said, str) else None,
        )


def _typed_dict_fields(cls: Any, hints: dict[str, Any]) -> Iterator[RawField]:
    for name, hint in hints.items():
        annotation, qualifiers = strip_qualifiers(hint)
        # Annotations written as text hide the qualifiers from the class itself, so those that are seen here count.
        required = "Required" in qualifiers or ("NotRequired" not in qualifiers and name in cls.__required_keys__)
        yield RawField(name=name, key=name, annotation=annotation, required=required)


def _named_tuple_fields(cls: Any, hints: dict[str, Any]) -> Iterator[RawField]:
    for name in cls._fields:
        default = cls._field_defaults.get(name, NO_DEFAULT)
        required = name not in cls._field_defaults
        yield RawField(name=name, key=name, annotation=hints.get(name, Any), required=required, default=default)


def _struct_fields(cls: Any, hints: dict[str, Any]) -> Iterator[RawField]:
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
    for name, key, default in zip(names, cls.__struct_encode_fields__, defaults, strict=True):
        annotation, _ = strip_qualifiers(hints[name])
        is_none = default is msgspec.NODEFAULT or default is msgspec.UNSET or type(default).__name__ == "Factory"
        yield RawField(
            name=name,
            key=key,
            annotation=annotation,
            required=default is msgspec.NODEFAULT,
            default=NO_DEFAULT if is_none else default,
        )
