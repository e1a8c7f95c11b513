"""The kinds of type that JSON can say. A node writes the schema of its kind, and converts JSON values to Python ones.

A value is converted after it was checked against the schema, so conversion finds only what no schema can say: that is
a `Mismatch`. Knows no annotations (`reading` reads these) and no functions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from .._jsontext import encode_json
from ..errors import InvalidValue, is_interrupt, report_raised
from ..history.widgets import describe_failure
from .checking import SchemaChecker, bound_reason, size_reason
from .jsonvalues import copy_json
from .mismatch import Mismatch, quote
from .namedschemas import Definitions
from .subschemas import forms_of, json_type, looks_like, same_json

__all__ = [
    "LENGTH_LIMITS",
    "NUMBER_LIMITS",
    "TEXT_LIMITS",
    "TIME_LIMITS",
    "ChoiceNode",
    "DecimalNode",
    "Field",
    "KeywordNode",
    "LeafNode",
    "ListNode",
    "MapNode",
    "Node",
    "ObjectNode",
    "RecursiveNode",
    "Seen",
    "TextNode",
    "TupleNode",
    "UnionNode",
    "is_hashable",
    "report_refusal",
    "schema_of",
    "trial",
]

# What unions have made of values already, so that an ambiguous recursive type is not tried exponentially often.
Seen: TypeAlias = dict[tuple[int, int], Any]

# The limits that annotations name, and the keywords that say them in a schema.
Limits: TypeAlias = Mapping[str, str]
NO_LIMITS: Limits = MappingProxyType({})
NUMBER_LIMITS: Limits = MappingProxyType(
    {
        "ge": "minimum",
        "gt": "exclusiveMinimum",
        "le": "maximum",
        "lt": "exclusiveMaximum",
        "multiple_of": "multipleOf",
    }
)
LENGTH_LIMITS: Limits = MappingProxyType({"min_length": "minLength", "max_length": "maxLength"})
TEXT_LIMITS: Limits = MappingProxyType({**LENGTH_LIMITS, "pattern": "pattern"})
TIME_LIMITS: Limits = MappingProxyType({"tz": "tz"})  # no keyword says it
_ITEM_LIMITS: Limits = MappingProxyType({"min_length": "minItems", "max_length": "maxItems"})
_PROPERTY_LIMITS: Limits = MappingProxyType({"min_length": "minProperties", "max_length": "maxProperties"})


class Node(msgspec.Struct, kw_only=True, eq=False):
    """A type that JSON can say; `limits` are those that it can have."""

    limits: Limits = NO_LIMITS

    def schema(self, book: Definitions) -> dict[str, Any]:
        """Return the JSON Schema; named types are put into the book."""
        raise NotImplementedError

    def convert(self, value: Any, seen: Seen) -> Any:
        """Return the Python value for a JSON value that fits the schema; raise Mismatch."""
        raise NotImplementedError

    def limited(self, given: Mapping[str, Any]) -> "Node":
        """Return this type with limits; raise InvalidValue if they mean nothing here."""
        return KeywordNode(self, self.keywords_of(given), limits=self.limits)

    def keywords_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords that say the limits; raise InvalidValue if they mean nothing here."""
        unfit = [name for name in given if name not in self.limits]
        if unfit:
            raise InvalidValue(f"{', '.join(unfit)} cannot limit this type")
        return {self.limits[name]: _plain_number(value) for name, value in given.items()}


class LeafNode(Node, eq=False):
    """A type that one schema says: any value, text, a number, true or false, null."""

    written: Mapping[str, Any]
    make: Callable[[Any], Any] = copy_json  # a tool that changes what it gets does not change the recorded call

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        return dict(self.written)

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        try:
            return self.make(value)
        except OverflowError:
            raise Mismatch("must be a number that fits into 64 bits") from None


class TextNode(Node, eq=False):
    """A Python value that JSON writes as text: a time, an id, a path, bytes."""

    says: str
    parse: Callable[[str], Any]
    keywords: dict[str, Any] = {}
    given: dict[str, Any] = {}  # its limits, by keyword

    def limited(self, given: Mapping[str, Any]) -> Node:
        return msgspec.structs.replace(self, given={**self.given, **self.keywords_of(given)})

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        # Lengths count bytes here, and JSON has base64: four characters for three bytes.
        lengths = {name: -(-size // 3) * 4 for name, size in self.given.items() if name != "tz"}
        return {"type": "string", **self.keywords, **lengths}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        try:
            parsed = self.parse(value)
        except (ValueError, OverflowError, msgspec.ValidationError):
            raise Mismatch(f"must be {self.says}, got {quote(value)}") from None
        with_zone = self.given.get("tz")
        if with_zone is not None and (parsed.tzinfo is not None) is not with_zone:
            raise Mismatch(f"must be a time {'with' if with_zone else 'without'} a time zone")
        if isinstance(parsed, bytes) and (says := size_reason(len(parsed), self.given, "Length", "bytes")):
            raise Mismatch(says)
        return parsed


class DecimalNode(Node, kw_only=True, eq=False):
    """An exact number, as a number or as text."""

    keywords: dict[str, Any] = {}
    limits: Limits = NUMBER_LIMITS

    def limited(self, given: Mapping[str, Any]) -> Node:
        return DecimalNode(keywords={**self.keywords, **self.keywords_of(given)})

    def schema(self, book: Definitions) -> dict[str, Any]:  # noqa: ARG002
        return {"anyOf": [{"type": "number", **self.keywords}, {"type": "string"}]}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            raise Mismatch(f"must be a number or a number as text, got {quote(value)}") from None
        if not number.is_finite():
            raise Mismatch("must be a finite number")
        says = bound_reason(number, self.keywords)
        if says is None and (step := self.keywords.get("multipleOf")) and number % Decimal(str(step)):
            says = f"must be a multiple of {step}"
        if says is not None:
            raise Mismatch(says)
        return number


class ChoiceNode(Node, eq=False):
    """One of some values: a Literal, or an Enum by value. `choices` are JSON values, each with its Python value."""

    choices: list[tuple[Any, Any]]
    name: str = ""
    description: str | None = None

    def schema(self, book: Definitions) -> dict[str, Any]:
        return book.refer(id(self), self.name, self._written) if self.name else self._written()

    def _written(self) -> dict[str, Any]:
        values = [value for value, _ in self.choices]
        kinds = {json_type(value) for value in values}
        written: dict[str, Any] = {"type": kinds.pop()} if len(kinds) == 1 else {}
        if self.description:
            written["description"] = self.description
        return {**written, "enum": values}

    def convert(self, value: Any, seen: Seen) -> Any:  # noqa: ARG002
        return next(meant for allowed, meant in self.choices if same_json(value, allowed))


class ListNode(Node, kw_only=True, eq=False):
    """An array of values of one type."""

    item: Node
    make: Callable[[list[Any]], Any] = list
    unique: bool = False
    limits: Limits = _ITEM_LIMITS

    def schema(self, book: Definitions) -> dict[str, Any]:
        inner = self.item.schema(book)
        written: dict[str, Any] = {"type": "array", "items": inner} if inner else {"type": "array"}
        return {**written, "uniqueItems": True} if self.unique else written

    def convert(self, value: Any, seen: Seen) -> Any:
        items = [_convert_under(index, self.item, item, seen) for index, item in enumerate(value)]
        try:
            return items if self.make is list else self.make(items)
        except TypeError:  # a set of what has no hash
            raise Mismatch("must have items that a set can hold") from None


class TupleNode(Node, eq=False):
    """An array with a type for each index; the last items may be left out if they have defaults."""

    items: Sequence[tuple[str, Node]]
    required: int
    make: Callable[[list[Any]], Any] = tuple
    closed: bool = True
    description: str | None = None

    def schema(self, book: Definitions) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "array"}
        if self.description:
            written["description"] = self.description
        if self.items:
            written["prefixItems"] = [
                {"title": name, **node.schema(book)} if name else node.schema(book) for name, node in self.items
            ]
        written["minItems"] = self.required
        return {**written, "maxItems": len(self.items)} if self.closed else written

    def convert(self, value: Any, seen: Seen) -> Any:
        pairs = enumerate(zip(self.items, value, strict=False))
        return construct(self.make, [_convert_under(index, node, item, seen) for index, ((_, node), item) in pairs])


class MapNode(Node, kw_only=True, eq=False):
    """An object with any names and values of one type; without a node for them, names are text."""

    key: Node | None
    item: Node
    limits: Limits = _PROPERTY_LIMITS

    def schema(self, book: Definitions) -> dict[str, Any]:
        names = {} if self.key is None else {"propertyNames": self.key.schema(book)}
        return {"type": "object", **names, "additionalProperties": self.item.schema(book) or True}

    def convert(self, value: Any, seen: Seen) -> Any:
        converted = {}
        for name, item in value.items():
            key = name if self.key is None else _convert_under(name, self.key, name, seen)
            converted[key] = _convert_under(name, self.item, item, seen)
        return converted


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an object: `name` in Python, `key` in JSON.

    `fill` gives the value of a field that was left out, where Python's own default does not.
    """

    name: str
    key: str
    node: Node
    required: bool = True
    fill: Callable[[], Any] | None = None


class ObjectNode(Node, eq=False):
    """An object with named fields: a dataclass, a TypedDict, a Struct, or the parameters of a function.

    `closed` refuses names that are not known; with `rest` they are values of that type.
    """

    name: str
    make: Callable[[dict[str, Any]], Any]
    description: str | None = None
    closed: bool = False
    tag: tuple[str, str | int] | None = None
    fields: Sequence[Field] = ()  # filled in once the types inside are read, which may lead back here
    rest: Node | None = None

    def schema(self, book: Definitions) -> dict[str, Any]:
        return book.refer(id(self), self.name, lambda: self.written(book))

    def written(self, book: Definitions) -> dict[str, Any]:
        """Return the schema itself, not a reference to it."""
        written: dict[str, Any] = {"type": "object"}
        if self.description:
            written["description"] = self.description
        properties: dict[str, Any] = {}
        required: list[str] = []
        if self.tag is not None:
            properties[self.tag[0]] = {"type": json_type(self.tag[1]), "enum": [self.tag[1]]}
            required.append(self.tag[0])
        written["properties"] = properties | {field.key: field.node.schema(book) for field in self.fields}
        required += [field.key for field in self.fields if field.required]
        if required:
            written["required"] = required
        if self.rest is not None:
            written["additionalProperties"] = self.rest.schema(book) or True
        elif self.closed:
            written["additionalProperties"] = False
        return written

    def convert(self, value: Any, seen: Seen) -> Any:
        return construct(self.make, self.convert_fields(value, seen))

    def convert_fields(self, value: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
        """Return the Python values by their Python names; raise Mismatch."""
        converted: dict[str, Any] = {}
        for field in self.fields:
            if field.key in value:
                converted[field.name] = _convert_under(field.key, field.node, value[field.key], seen)
            elif field.fill is not None:
                converted[field.name] = field.fill()
        if self.rest is not None:
            names = {field.key: field.name for field in self.fields}
            for name in [name for name in value if name not in names]:
                if name in names.values():  # it would overwrite what Python has under that name
                    raise Mismatch("is not known here", (name,))
                converted[name] = _convert_under(name, self.rest, value[name], seen)
        return converted


class UnionNode(Node, eq=False):
    """One of several types: the first that takes the value; of objects, the one that knows most of its names."""

    members: Sequence[Node]
    checked: list[tuple[Node, dict[str, Any], SchemaChecker]] = []  # the members with their schemas, once needed

    def schema(self, book: Definitions) -> dict[str, Any]:
        schemas: dict[bytes, dict[str, Any]] = {}  # by their JSON: to Python, 1 and true are the same
        for member in self.members:
            written = member.schema(book)
            for form in written["anyOf"] if written.keys() == {"anyOf"} else [written]:
                schemas.setdefault(encode_json(form), form)
        forms = list(schemas.values())
        if {} in forms:
            return {}
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def convert(self, value: Any, seen: Seen) -> Any:
        if not isinstance(value, (dict, list)):
            return self._first(value, seen)
        # Types that lead back to themselves would try each inner value again for every choice further out.
        key = (id(self), id(value))
        if key not in seen:
            try:
                seen[key] = (self._first(value, seen), None)
            except Mismatch as mismatch:
                seen[key] = (None, mismatch)
        result, failure = seen[key]
        if failure is not None:
            raise failure
        return result

    def _first(self, value: Any, seen: Seen) -> Any:
        nearest = Mismatch(f"fits none of the {len(self.members)} types allowed here, got {quote(value)}")
        for index, member in enumerate(self._fitting(value)):
            try:
                return member.convert(value, seen)
            except Mismatch as mismatch:
                if index == 0 or len(mismatch.path) > len(nearest.path):
                    nearest = mismatch
        raise nearest

    def _fitting(self, value: Any) -> Iterator[Node]:
        """The members whose schemas the value fits, the likeliest first."""
        if not self.checked:
            schemas = [(member, schema_of(member)) for member in self.members]
            self.checked = [(member, schema, SchemaChecker(schema)) for member, schema in schemas]
        fitting: Iterable[tuple[Node, dict[str, Any], SchemaChecker]]
        fitting = (each for each in self.checked if each[2].is_valid(value))
        if isinstance(value, dict):
            fitting = sorted(fitting, key=lambda each: _likeness(value, each[1]), reverse=True)
        return (member for member, _, _ in fitting)

    def limited(self, given: Mapping[str, Any]) -> Node:
        unfit = [name for name in given if not any(name in member.limits for member in self.members)]
        if unfit:
            raise InvalidValue(f"{', '.join(sorted(unfit))} can limit no type of this union")
        members = []
        for member in self.members:
            own = {name: value for name, value in given.items() if name in member.limits}
            members.append(member.limited(own) if own else member)
        return UnionNode(members)


class KeywordNode(Node, eq=False):
    """A type with more keywords in its schema: limits, a description, examples, a title."""

    node: Node
    keywords: Mapping[str, Any]

    def schema(self, book: Definitions) -> dict[str, Any]:
        return {**self.node.schema(book), **self.keywords}

    def convert(self, value: Any, seen: Seen) -> Any:
        return self.node.convert(value, seen)

    def limited(self, given: Mapping[str, Any]) -> Node:
        renewed = {self.limits.get(name) for name in given}
        kept = {keyword: value for keyword, value in self.keywords.items() if keyword not in renewed}
        return KeywordNode(self.node.limited(given), kept, limits=self.limits)


class RecursiveNode(Node, eq=False):
    """A type that refers to itself: `node` is set once the type is read."""

    name: str
    node: Node | None = None
    is_met: bool = False  # whether it leads back to itself

    def schema(self, book: Definitions) -> dict[str, Any]:
        node = self._known()
        if isinstance(node, ObjectNode):  # it has a definition of its own
            return node.schema(book)
        return book.refer(id(node), self.name, lambda: node.schema(book))

    def convert(self, value: Any, seen: Seen) -> Any:
        return self._known().convert(value, seen)

    def _known(self) -> Node:
        if self.node is None:
            raise InvalidValue(f"type {self.name!r} refers to nothing but itself")
        return self.node


def schema_of(node: Node) -> dict[str, Any]:
    """Return the whole schema of a type, with its definitions."""
    book = Definitions()
    return book.finish(node.schema(book))


def is_hashable(value: object) -> bool:
    """Return whether the value can be a key."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


_IS_TRIAL: ContextVar[bool] = ContextVar("dragoman_trial", default=False)


@contextmanager
def trial() -> Iterator[None]:
    """Report no exception of a user's type in the block: it is given a part of a value, which need not fit it."""
    token = _IS_TRIAL.set(True)
    try:
        yield
    finally:
        _IS_TRIAL.reset(token)


def report_refusal(error: BaseException) -> None:
    """Report an exception of a user's type, unless its class says that a value is wrong."""
    if is_interrupt(error):
        raise error
    if not (_IS_TRIAL.get() or isinstance(error, (ValueError, TypeError, AssertionError))):
        report_raised(error, "a type of a tool's arguments or of an output")


def construct(factory: Callable[[Any], Any], given: Any) -> Any:
    """Return the value that a user's type makes of its fields; raise Mismatch for any exception of that type."""
    try:
        return factory(given)
    except BaseException as error:  # a user's type may raise anything: the model is told
        report_refusal(error)
        raise Mismatch(f"is refused: {describe_failure(error)}") from error


def _convert_under(step: str | int, node: Node, value: Any, seen: Seen) -> Any:
    try:
        return node.convert(value, seen)
    except Mismatch as mismatch:
        raise mismatch.under(step) from None


def _likeness(value: Any, schema: dict[str, Any]) -> int:
    return max(looks_like(value, form) for form in forms_of(schema, schema))


def _plain_number(value: Any) -> Any:
    """A bound as JSON can hold it."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
