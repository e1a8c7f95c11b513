"""The kinds of type that JSON can say. A node writes the schema of its kind, and turns JSON values into Python ones.

Conversion is strict: a value that the schema refuses is a `Mismatch`, so that a union can try its members. Knows no
annotations (`schema` reads these) and no functions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from ..errors import InvalidValue, is_interrupt, report_raised
from ..history.widgets import describe_failure
from ..jsontext import encode_json
from .jsonvalues import copy_json
from .limits import LENGTH_LIMITS, NAMES, NO_LIMITS, NUMBER_LIMITS, TEXT_LIMITS, Limits, Mismatch, quote
from .namedschemas import Definitions
from .subschemas import json_type, same_json

__all__ = [
    "AnyNode",
    "ChoiceNode",
    "DecimalNode",
    "DescribedNode",
    "Field",
    "ListNode",
    "MapNode",
    "Node",
    "ObjectNode",
    "RecursiveNode",
    "ScalarNode",
    "Seen",
    "TextNode",
    "TupleNode",
    "UnionNode",
]

# What unions have found out about values already, so that ambiguous types cost no more than clear ones.
Seen: TypeAlias = dict[tuple[int, int], Any]


class Node(ABC):
    """A type that JSON can say; `takes` are the limits that it can have."""

    takes: frozenset[str] = frozenset()

    @abstractmethod
    def schema(self, book: Definitions) -> dict[str, Any]:
        """Return the JSON Schema; named types are put into the book."""

    @abstractmethod
    def convert(self, value: Any, seen: Seen) -> Any:
        """Return the Python value for a JSON value; raise Mismatch."""

    def limited(self, limits: Limits) -> "Node":
        """Return this type with limits; raise InvalidValue if they mean nothing here."""
        raise InvalidValue(f"{', '.join(limits.given())} cannot limit this type")

    def rank(self, value: dict[str, Any]) -> int:  # noqa: ARG002  # for the kinds that can tell
        """Return how much an object looks like this type: more for each name it knows."""
        return 0


class AnyNode(Node):
    """Any JSON value. A copy, so that a tool that changes it does not change the recorded call."""

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        return copy_json(value)


class _LimitedNode(Node):
    """A kind that can have limits."""

    limits: Limits = NO_LIMITS

    def limited(self, limits: Limits) -> Node:
        unfit = [name for name in limits.given() if name not in self.takes]
        if unfit:
            raise InvalidValue(f"{', '.join(unfit)} cannot limit this type")
        changed: _LimitedNode = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.limits = self.limits.with_limits(limits)
        return changed


class ScalarNode(_LimitedNode):
    """Text, a number, true or false, or null."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == "string":
            self.takes = TEXT_LIMITS
        elif kind in ("integer", "number"):
            self.takes = NUMBER_LIMITS

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        return {"type": self.kind, **self.limits.keywords("Length")}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        kind = json_type(value)
        if kind != self.kind and not (self.kind == "number" and kind == "integer"):
            raise Mismatch.of_kind(NAMES[self.kind], value)
        if self.kind == "integer":
            value = int(value)
        elif self.kind == "number":
            try:
                value = float(value)
            except OverflowError:
                raise Mismatch("must be a number that fits into 64 bits") from None
        if self.limits is not NO_LIMITS:
            if self.kind == "string":
                self.limits.check_text(value)
            else:
                self.limits.check_number(value)
        return value


class TextNode(_LimitedNode):
    """A Python value that JSON writes as text: a time, an id, a path, bytes."""

    def __init__(
        self,
        says: str,
        parse: Callable[[str], Any],
        keywords: Mapping[str, Any] | None = None,
        takes: frozenset[str] = frozenset(),
    ) -> None:
        self.takes = takes
        self._says = says
        self._parse = parse
        self._keywords = dict(keywords or {})

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        # Lengths count bytes here, and JSON has base64: four characters for three bytes.
        lengths = {name: -(-size // 3) * 4 for name, size in self.limits.keywords("Length").items()}
        return {"type": "string", **self._keywords, **lengths}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        if type(value) is not str:
            raise Mismatch.of_kind(self._says, value)
        try:
            parsed = self._parse(value)
        except (ValueError, OverflowError, msgspec.ValidationError):
            raise Mismatch(f"must be {self._says}, got {quote(value)}") from None
        if isinstance(parsed, bytes):
            self.limits.check_length(len(parsed), "bytes")
        elif self.limits.tz is not None and (parsed.tzinfo is not None) is not self.limits.tz:
            raise Mismatch(f"must be a time {'with' if self.limits.tz else 'without'} a time zone")
        return parsed


class DecimalNode(_LimitedNode):
    """An exact number, as a number or as text."""

    takes = NUMBER_LIMITS

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        return {"anyOf": [{"type": "number", **self.limits.keywords("")}, {"type": "string"}]}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        if type(value) not in (int, float, str):
            raise Mismatch.of_kind("a number or a number as text", value)
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            raise Mismatch(f"must be a number or a number as text, got {quote(value)}") from None
        if not number.is_finite():
            raise Mismatch("must be a finite number")
        self.limits.check_number(number)
        return number


class ChoiceNode(Node):
    """One of some values: a Literal, or an Enum by value."""

    def __init__(self, choices: Sequence[tuple[Any, Any]], name: str = "", description: str | None = None) -> None:
        self._choices = tuple(choices)
        self._name = name
        self._description = description

    def schema(self, book: Definitions) -> dict[str, Any]:
        return book.refer(id(self), self._name, self._written) if self._name else self._written()

    def _written(self) -> dict[str, Any]:
        values = [value for value, _ in self._choices]
        kinds = {json_type(value) for value in values}
        written: dict[str, Any] = {"type": kinds.pop()} if len(kinds) == 1 else {}
        if self._description:
            written["description"] = self._description
        return {**written, "enum": values}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        for allowed, meant in self._choices:
            if same_json(value, allowed):
                return meant
        named = ", ".join(quote(allowed) for allowed, _ in self._choices[:20])
        raise Mismatch.of_kind(f"one of {named}", value)


class ListNode(_LimitedNode):
    """An array of values of one type."""

    takes = LENGTH_LIMITS

    def __init__(self, item: Node, factory: Callable[[list[Any]], Any] = list, *, unique: bool = False) -> None:
        self._item = item
        self._factory = factory
        self._unique = unique

    def schema(self, book: Definitions) -> dict[str, Any]:
        inner = self._item.schema(book)
        written: dict[str, Any] = {"type": "array", "items": inner} if inner else {"type": "array"}
        if self._unique:
            written["uniqueItems"] = True
        return {**written, **self.limits.keywords("Items")}

    def convert(self, value: Any, seen: Seen) -> Any:
        if type(value) is not list:
            raise Mismatch.of_kind(NAMES["array"], value)
        self.limits.check_length(len(value), "items")
        items = _convert_items((self._item,) * len(value), value, seen)
        if self._factory is list:
            return items
        try:
            return self._factory(items)
        except TypeError:  # a set of what has no hash
            raise Mismatch("must have items that a set can hold") from None


class TupleNode(Node):
    """An array with a type for each place; the last ones may be left out if they have defaults."""

    def __init__(
        self,
        factory: Callable[[list[Any]], Any] = tuple,
        *,
        required: int | None = None,
        closed: bool = True,
        description: str | None = None,
    ) -> None:
        self.items: tuple[tuple[str, Node], ...] = ()  # filled in once the types inside are read
        self._factory = factory
        self._required = required
        self._closed = closed
        self._description = description

    def schema(self, book: Definitions) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "array"}
        if self._description:
            written["description"] = self._description
        if self.items:
            written["prefixItems"] = [
                {"title": name, **node.schema(book)} if name else node.schema(book) for name, node in self.items
            ]
        written["minItems"] = self._least()
        if self._closed:
            written["maxItems"] = len(self.items)
        return written

    def convert(self, value: Any, seen: Seen) -> Any:
        if type(value) is not list:
            raise Mismatch.of_kind(NAMES["array"], value)
        least, most = self._least(), len(self.items)
        if len(value) < least or (self._closed and len(value) > most):
            raise Mismatch(f"must have {most if least == most else f'{least} to {most}'} items, has {len(value)}")
        return construct(self._factory, _convert_items([node for _, node in self.items], value, seen))

    def _least(self) -> int:
        return len(self.items) if self._required is None else self._required


class MapNode(_LimitedNode):
    """An object with any names and values of one type; without a node for them, names are text."""

    takes = LENGTH_LIMITS

    def __init__(self, key: Node | None, value: Node) -> None:
        self._key = key
        self._value = value

    def schema(self, book: Definitions) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "object"}
        if self._key is not None:
            written["propertyNames"] = self._key.schema(book)
        written["additionalProperties"] = self._value.schema(book) or True
        return {**written, **self.limits.keywords("Properties")}

    def convert(self, value: Any, seen: Seen) -> Any:
        if type(value) is not dict:
            raise Mismatch.of_kind(NAMES["object"], value)
        self.limits.check_length(len(value), "properties")
        converted = {}
        for name, item in value.items():
            try:
                key = name if self._key is None else self._key.convert(name, seen)
                converted[key] = self._value.convert(item, seen)
            except Mismatch as mismatch:
                raise mismatch.under(name) from None
        return converted


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One named value of an object: what Python calls it, what JSON calls it, what stands beside it in the schema.

    `fill` gives the value of one that was left out, where Python's own default does not.
    """

    name: str
    key: str
    node: Node
    required: bool = True
    annotations: dict[str, Any] = {}
    fill: Callable[[], Any] | None = None

    def schema(self, book: Definitions) -> dict[str, Any]:
        """Return the schema of the value, with what is said about the field."""
        return {**self.node.schema(book), **self.annotations}


class ObjectNode(Node):
    """An object with named fields: a dataclass, a TypedDict, a Struct, or the parameters of a function.

    `closed` refuses names that are not known; with `rest` they are values of that type.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[dict[str, Any]], Any],
        *,
        description: str | None = None,
        closed: bool = False,
        tag: tuple[str, str | int] | None = None,
    ) -> None:
        self.fields: tuple[Field, ...] = ()  # filled in once the types inside are read, which may lead back here
        self.rest: Node | None = None
        self._name = name
        self._build = build
        self._description = description
        self._closed = closed
        self._tag = tag

    def schema(self, book: Definitions) -> dict[str, Any]:
        return book.refer(id(self), self._name, lambda: self.written(book))

    def written(self, book: Definitions) -> dict[str, Any]:
        """Return the schema itself, not a reference to it."""
        written: dict[str, Any] = {"type": "object"}
        if self._description:
            written["description"] = self._description
        properties: dict[str, Any] = {}
        required: list[str] = []
        if self._tag is not None:
            properties[self._tag[0]] = {"type": json_type(self._tag[1]), "enum": [self._tag[1]]}
            required.append(self._tag[0])
        written["properties"] = properties | {field.key: field.schema(book) for field in self.fields}
        required += [field.key for field in self.fields if field.required]
        if required:
            written["required"] = required
        if self.rest is not None:
            written["additionalProperties"] = self.rest.schema(book) or True
        elif self._closed:
            written["additionalProperties"] = False
        return written

    def convert(self, value: Any, seen: Seen) -> Any:
        if type(value) is not dict:
            raise Mismatch.of_kind(NAMES["object"], value)
        return construct(self._build, self.convert_fields(value, seen))

    def convert_fields(self, value: dict[str, Any], seen: Seen) -> dict[str, Any]:
        """Return the Python values by their Python names; raise Mismatch."""
        if self._tag is not None and not same_json(value.get(self._tag[0]), self._tag[1]):
            raise Mismatch(f"must be {self._tag[1]!r}", (self._tag[0],), near=False)
        converted: dict[str, Any] = {}
        for field in self.fields:
            if field.key in value:
                converted[field.name] = _convert_under(field.key, field.node, value[field.key], seen)
            elif field.required:
                raise Mismatch("is missing", (field.key,), near=False)
            elif field.fill is not None:
                converted[field.name] = field.fill()
        if self.rest is not None or self._closed:
            self._take_rest(value, converted, seen)
        return converted

    def _take_rest(self, value: dict[str, Any], converted: dict[str, Any], seen: Seen) -> None:
        keys = {field.key for field in self.fields}
        if self._tag is not None:
            keys.add(self._tag[0])
        taken = {field.name for field in self.fields}
        for name, item in value.items():
            if name in keys:
                continue
            if self.rest is None or name in taken:  # the name would overwrite what Python has under it
                raise Mismatch("is not known here", (name,), near=False)
            converted[name] = _convert_under(name, self.rest, item, seen)

    def rank(self, value: dict[str, Any]) -> int:
        known = sum(field.key in value for field in self.fields)
        missing = sum(field.required and field.key not in value for field in self.fields)
        return known - missing


class UnionNode(Node):
    """One of several types: the first that takes the value; of objects, the one that knows most of its names."""

    def __init__(self, members: Sequence[Node]) -> None:
        self._members = tuple(members)

    def schema(self, book: Definitions) -> dict[str, Any]:
        schemas: dict[bytes, dict[str, Any]] = {}  # by their JSON: to Python, 1 and true are the same
        for member in self._members:
            written = member.schema(book)
            for form in written["anyOf"] if written.keys() == {"anyOf"} else [written]:
                schemas.setdefault(encode_json(form), form)
        forms = list(schemas.values())
        if {} in forms:
            return {}
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def convert(self, value: Any, seen: Seen) -> Any:
        if not isinstance(value, (dict, list)):
            return self._first(self._members, value, seen)
        # Types that lead back to themselves would try each inner value again for every choice further out.
        key = (id(self), id(value))
        if key not in seen:
            members = self._members
            if isinstance(value, dict):
                members = tuple(sorted(members, key=lambda member: -member.rank(value)))
            try:
                seen[key] = (self._first(members, value, seen), None)
            except Mismatch as mismatch:
                seen[key] = (None, mismatch)
        result, failure = seen[key]
        if failure is not None:
            raise failure
        return result

    def _first(self, members: tuple[Node, ...], value: Any, seen: Seen) -> Any:
        nearest: Mismatch | None = None
        for member in members:
            try:
                return member.convert(value, seen)
            except Mismatch as mismatch:
                if nearest is None or (len(mismatch.path), mismatch.near) > (len(nearest.path), nearest.near):
                    nearest = mismatch
        if nearest is None or (not nearest.near and not nearest.path):
            raise Mismatch(f"fits none of the {len(members)} types allowed here, got {quote(value)}", near=False)
        raise nearest

    def limited(self, limits: Limits) -> Node:
        given = limits.given()
        unfit = set(given)
        members: list[Node] = []
        for member in self._members:
            own = {name: value for name, value in given.items() if name in member.takes}
            unfit -= own.keys()
            members.append(member.limited(Limits(**own)) if own else member)
        if unfit:
            raise InvalidValue(f"{', '.join(sorted(unfit))} can limit no type of this union")
        return UnionNode(members)


class DescribedNode(Node):
    """A type with what is said about it: a description, examples, a title."""

    def __init__(self, node: Node, annotations: Mapping[str, Any]) -> None:
        self.takes = node.takes
        self._node = node
        self._annotations = dict(annotations)

    def schema(self, book: Definitions) -> dict[str, Any]:
        return {**self._node.schema(book), **self._annotations}

    def convert(self, value: Any, seen: Seen) -> Any:
        return self._node.convert(value, seen)

    def limited(self, limits: Limits) -> Node:
        return DescribedNode(self._node.limited(limits), self._annotations)

    def rank(self, value: dict[str, Any]) -> int:
        return self._node.rank(value)


class RecursiveNode(Node):
    """A type that is still being read where it is met again: what stands here is known once it is read."""

    def __init__(self, name: str) -> None:
        self.node: Node | None = None
        self.is_met = False  # whether it leads back to itself
        self._name = name

    def schema(self, book: Definitions) -> dict[str, Any]:
        node = self._known()
        if isinstance(node, ObjectNode):  # it has a definition of its own
            return node.schema(book)
        return book.refer(id(node), self._name, lambda: node.schema(book))

    def convert(self, value: Any, seen: Seen) -> Any:
        return self._known().convert(value, seen)

    def rank(self, value: dict[str, Any]) -> int:
        return self._known().rank(value)

    def _known(self) -> Node:
        if self.node is None:
            raise InvalidValue(f"type {self._name!r} refers to nothing but itself")
        return self.node


def report_refusal(error: BaseException) -> None:
    """Report what a user's type raised, unless it is of the types that say that a value is wrong."""
    if is_interrupt(error):
        raise error
    if not isinstance(error, (ValueError, TypeError, AssertionError)):
        report_raised(error, "a type of a tool's arguments or of an output")


def construct(factory: Callable[[Any], Any], given: Any) -> Any:
    """Return what a user's type makes of its fields; whatever it raises is a Mismatch that says so."""
    try:
        return factory(given)
    except BaseException as error:  # a user's type: whatever it refuses, the model is told
        report_refusal(error)
        raise Mismatch(f"is refused: {describe_failure(error)}") from error


def _convert_items(nodes: Sequence[Node], values: list[Any], seen: Seen) -> list[Any]:
    return [
        _convert_under(place, node, value, seen) for place, (node, value) in enumerate(zip(nodes, values, strict=False))
    ]


def _convert_under(step: str | int, node: Node, value: Any, seen: Seen) -> Any:
    try:
        return node.convert(value, seen)
    except Mismatch as mismatch:
        raise mismatch.under(step) from None
