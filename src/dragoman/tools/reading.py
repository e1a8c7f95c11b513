"""Reads annotations into nodes. Each type is read once, recursive types too."""

import collections
import collections.abc
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from .._jsontext import require_json
from ..errors import InvalidValue
from .classes import RawField, class_fields, is_named_tuple, is_typed_dict, strip_qualifiers, substitute
from .docstrings import class_docstring
from .jsonvalues import NotJson, to_json_value
from .metadata import NO_DEFAULT, Metadata, read_metadata
from .namedschemas import Definitions
from .nodes import (
    LENGTH_LIMITS,
    NUMBER_LIMITS,
    TEXT_LIMITS,
    TIME_LIMITS,
    ChoiceNode,
    DecimalNode,
    Field,
    KeywordNode,
    LeafNode,
    ListNode,
    MapNode,
    Node,
    ObjectNode,
    RecursiveNode,
    TextNode,
    TupleNode,
    UnionNode,
    is_hashable,
)
from .pydantic_types import PydanticNode, is_pydantic_field, is_pydantic_type

__all__ = ["TypeReader", "default_keyword"]

_SomeNode = TypeVar("_SomeNode", bound=Node)
_ANY = LeafNode({})
_TEXT = LeafNode({"type": "string"}, limits=TEXT_LIMITS)
_NULL = LeafNode({"type": "null"})
_LEAVES: dict[Any, Node] = {
    Any: _ANY,
    object: _ANY,
    str: _TEXT,
    typing.LiteralString: _TEXT,
    int: LeafNode({"type": "integer"}, int, limits=NUMBER_LIMITS),
    float: LeafNode({"type": "number"}, float, limits=NUMBER_LIMITS),
    bool: LeafNode({"type": "boolean"}),
    None: _NULL,
    type(None): _NULL,
    Decimal: DecimalNode(),
    datetime: TextNode(
        "a date and time like 2026-01-31T12:00:00Z",
        datetime.fromisoformat,
        {"format": "date-time"},
        limits=TIME_LIMITS,
    ),
    date: TextNode("a date like 2026-01-31", date.fromisoformat, {"format": "date"}),
    time: TextNode("a time like 12:00:00Z", time.fromisoformat, {"format": "time"}, limits=TIME_LIMITS),
    timedelta: TextNode(
        "a duration like P1DT2H", lambda text: msgspec.convert(text, timedelta), {"format": "duration"}
    ),
    UUID: TextNode("a UUID", UUID, {"format": "uuid"}),
    Path: TextNode("a path", Path),
    PurePath: TextNode("a path", PurePath),
    bytes: TextNode(
        "base64 text",
        lambda text: msgspec.convert(text, bytes),
        {"contentEncoding": "base64"},
        limits=LENGTH_LIMITS,
    ),
}

_ARRAYS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.deque: collections.deque,
    set: set,
    frozenset: frozenset,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class TypeReader:
    """Reads annotations; a type that it has met before is the same node again.

    Names in annotations written as text are looked up in their own modules, and in `namespace` if they are not there.
    """

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self._namespace = namespace
        self._known: dict[Any, Node] = {}

    def read(self, annotation: Any) -> Node:
        """Return the node of a type; raise InvalidValue for one that JSON cannot say."""
        if isinstance(annotation, (str, typing.ForwardRef)):
            return self.read(self._evaluate(annotation, ""))
        annotation, _ = strip_qualifiers(annotation)
        if is_hashable(annotation):
            known = self._known.get(annotation)
            if known is not None:
                if isinstance(known, RecursiveNode):
                    known.is_met = True
                return known
            if annotation in _LEAVES:
                return _LEAVES[annotation]
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            return self._annotated(annotation)
        if origin is typing.Literal:
            return _literal(typing.get_args(annotation))
        if origin in (typing.Union, types.UnionType):
            return self._union(typing.get_args(annotation))
        arguments = typing.get_args(annotation)
        return (
            self._name_of_type(annotation, origin, arguments)
            or self._container(annotation, origin or annotation, arguments)
            or self._class(annotation, origin or annotation, arguments)
        )

    # ---------------------------------------------------------------- names of other types

    def _name_of_type(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Node | None:
        """New names of types, type variables and aliases."""
        if isinstance(annotation, typing.NewType):
            return self.read(annotation.__supertype__)
        if isinstance(annotation, TypeVar):
            if annotation.__constraints__:
                return self._union(annotation.__constraints__)
            return self.read(annotation.__bound__) if annotation.__bound__ is not None else _ANY
        alias: Any = origin if origin is not None else annotation
        if type(alias).__name__ != "TypeAliasType":
            return None
        replaced = dict(zip(alias.__type_params__, arguments, strict=False))
        return self._looping(
            annotation,
            alias.__name__,
            lambda: self.read(substitute(self._evaluate(alias.__value__, alias.__module__), replaced)),
        )

    def _looping(self, annotation: Any, name: str, read: Callable[[], Node]) -> Node:
        """The node of a type that may refer to itself; only if it does, it needs a definition."""
        here = RecursiveNode(name)
        self._known[annotation] = here
        here.node = read()
        self._known[annotation] = here if here.is_met else here.node
        return self._known[annotation]

    def _evaluate(self, annotation: Any, module: str) -> Any:
        """The annotation with all that is written as text in it looked up."""
        names = {**(self._namespace or {}), **vars(sys.modules.get(module, types.ModuleType("")))}
        try:
            holder = types.SimpleNamespace(__annotations__={"it": annotation})
            return typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
        except (NameError, TypeError, SyntaxError, AttributeError) as error:
            raise InvalidValue(f"the annotation {annotation!r} cannot be read: {error}") from error

    # ---------------------------------------------------------------- types made of types

    def _annotated(self, annotation: Any) -> Node:
        base, *items = typing.get_args(annotation)
        if is_pydantic_type(base) or any(_is_pydantic_validator(item) for item in items):
            return _described(PydanticNode.of(annotation), Metadata(annotations=read_metadata(items).annotations))
        return _described(self.read(base), read_metadata(items))

    def _union(self, members: Iterable[Any]) -> Node:
        nodes = [self.read(member) for member in members if member is not msgspec.UnsetType]
        return nodes[0] if len(nodes) == 1 else UnionNode(nodes)

    def _container(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Node | None:
        """Arrays, tuples and maps."""
        if not is_hashable(origin):
            return None
        if origin in _ARRAYS:
            item = self.read(arguments[0]) if arguments else _ANY
            return ListNode(item=item, make=_ARRAYS[origin], unique=origin in _SETS)
        if origin in _MAPS:
            key, value = arguments or (str, Any)
            return MapNode(key=self._key(key), item=self.read(value))
        if origin is not tuple:
            return None
        if annotation in (tuple, typing.Tuple):  # noqa: UP006  # both may be written
            return ListNode(item=_ANY, make=tuple)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return ListNode(item=self.read(arguments[0]), make=tuple)
        if any(getattr(item, "__unpacked__", False) for item in arguments):
            raise InvalidValue("a tuple with an unpacked one inside is not supported: use a list")
        return TupleNode([("", self.read(item)) for item in arguments], len(arguments))

    def _key(self, annotation: Any) -> Node | None:
        """The node of an object's names, which JSON has as text; None if they are any text."""
        if annotation is int:
            return TextNode("a whole number as text", int, {"pattern": "^-?[0-9]+$"})
        node = self.read(annotation)
        schema = node.schema(Definitions())
        if annotation is Any or schema == {"type": "string"}:
            return None
        if isinstance(node, UnionNode) or not schema or schema.get("type", "string") != "string":
            raise InvalidValue(f"a mapping with {_name(annotation)} as keys is not supported: JSON's names are text")
        return node

    # ---------------------------------------------------------------- classes

    def _class(self, annotation: Any, cls: Any, arguments: tuple[Any, ...]) -> Node:
        if is_pydantic_type(cls):
            return self._remember(annotation, PydanticNode.of(annotation))
        if isinstance(cls, type) and issubclass(cls, enum.Enum):
            return self._remember(annotation, _enumeration(cls))
        if is_named_tuple(cls):
            return self._looping(annotation, cls.__name__, lambda: self._tuple_of_fields(cls, arguments))
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__struct_config__.array_like:
            return self._looping(annotation, cls.__name__, lambda: self._tuple_of_fields(cls, arguments))
        fields = class_fields(cls, arguments, self._namespace)
        if fields is None:
            raise InvalidValue(f"{_name(annotation)} is not supported: JSON has no such type")
        name = "_".join([cls.__name__, *map(_name, arguments)])
        node = self._remember(annotation, _object(cls, name))
        node.fields = tuple(self.field(field) for field in fields)
        return node

    def _remember(self, annotation: Any, node: _SomeNode) -> _SomeNode:
        self._known[annotation] = node
        return node

    def _tuple_of_fields(self, cls: Any, arguments: tuple[Any, ...]) -> Node:
        fields = class_fields(cls, arguments, self._namespace) or []
        tag = None
        if issubclass(cls, msgspec.Struct):
            tag = cls.__struct_config__.tag
            closed = bool(cls.__struct_config__.forbid_unknown_fields)
        else:
            closed = True
        tags = [] if tag is None else [("", ChoiceNode([(tag, tag)]))]
        return TupleNode(
            [*tags, *((field.name, self.field(field).node) for field in fields)],
            len(tags) + sum(field.required for field in fields),
            lambda items: cls(*items[len(tags) :]),
            closed,
            class_docstring(cls).summary,
        )

    def field(self, raw: RawField) -> Field:
        """Return a field with its type read: its limits, its description, its default."""
        metadata = Metadata()
        annotation = raw.annotation
        if typing.get_origin(annotation) is typing.Annotated:
            metadata = read_metadata(typing.get_args(annotation)[1:])
        try:
            node = self.read(annotation)
        except InvalidValue as error:
            raise InvalidValue(f"{raw.name}: {error}") from error
        annotations: dict[str, Any] = {}
        if raw.description and "description" not in metadata.annotations:
            annotations["description"] = raw.description
        has_default = not raw.required or metadata.default is not None
        shown = raw.default if raw.default is not NO_DEFAULT else metadata.shown_default
        annotations |= default_keyword(shown)
        return Field(
            name=raw.name,
            key=metadata.alias or raw.key,
            node=KeywordNode(node, annotations) if annotations else node,
            required=not has_default,
            fill=metadata.default if raw.required else None,
        )


def default_keyword(value: object) -> dict[str, Any]:
    """Return the `default` of a schema; nothing for a value that JSON cannot hold."""
    if value is NO_DEFAULT:
        return {}
    try:
        shown = to_json_value(value)
        require_json(shown, "default")
    except (NotJson, InvalidValue):
        return {}
    return {"default": shown}


def _described(node: Node, metadata: Metadata) -> Node:
    if metadata.limits:
        node = node.limited(metadata.limits)
    return KeywordNode(node, metadata.annotations, limits=node.limits) if metadata.annotations else node


def _literal(values: tuple[Any, ...]) -> Node:
    choices = []
    for value in values:
        plain = value.value if isinstance(value, enum.Enum) else value
        if plain is not None and type(plain) not in (str, int, bool):
            raise InvalidValue(f"Literal[{value!r}] is not supported: JSON has no such value")
        choices.append((plain, value))
    return ChoiceNode(choices)


def _enumeration(cls: type[enum.Enum]) -> Node:
    choices = []
    for member in cls:
        plain: Any = member.value
        for kind in (str, bool, int, float):
            if isinstance(plain, kind):
                plain = kind(plain)
                break
        else:
            if plain is not None:
                raise InvalidValue(
                    f"{cls.__name__}.{member.name} is not supported: its value is a {_name(type(plain))}"
                )
        choices.append((plain, member))
    if not choices:
        raise InvalidValue(f"{cls.__name__} is not supported: it has no members")
    return ChoiceNode(choices, cls.__name__, class_docstring(cls).summary)


def _object(cls: Any, name: str) -> ObjectNode:
    """The node of a class with named fields, still without them."""
    description = class_docstring(cls).summary
    if not issubclass(cls, msgspec.Struct):
        build: Callable[[dict[str, Any]], Any] = dict if is_typed_dict(cls) else (lambda fields: cls(**fields))
        # Fields that these classes cannot hold would be lost silently, so the model gets an error.
        return ObjectNode(name, build, description=description, closed=True)
    config = cls.__struct_config__
    return ObjectNode(
        name,
        lambda fields: cls(**fields),
        description=description,
        closed=bool(config.forbid_unknown_fields),
        tag=None if config.tag is None or config.tag_field is None else (config.tag_field, config.tag),
    )


def _is_pydantic_validator(item: object) -> bool:
    """Whether only Pydantic knows what this metadata does to a value."""
    return type(item).__module__.partition(".")[0] == "pydantic" and not is_pydantic_field(item)


def _name(annotation: object) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
