"""JSON from another program, read with the path of each value: an error names the path of the value that does not fit.

Knows no format. An error never quotes a value, only its type.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from .._jsontext import decode_json, encode_json, require_json
from ..errors import InvalidValue, ModelError, UnreadableData
from ..message import utc_time

__all__ = ["JsonSource", "Node", "Notes", "reading", "require_new_id", "take_json"]

# What an import takes: JSON text, or the same as plain dicts and lists.
JsonSource: TypeAlias = bytes | str | Sequence[Any] | Mapping[str, Any]

_DIFFERENT_NOTES = 100
_TYPES = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array", dict: "an object"}


# The fields that were read, by the identity of their object; None where all were.
_Seen: TypeAlias = dict[int, set[str] | None]


class Node:
    """A JSON value and its path. It records which fields were read, so that an import can warn about the others."""

    __slots__ = ("_seen", "value", "where")

    def __init__(self, value: Any, where: str, seen: _Seen | None = None) -> None:
        self.value = value
        self.where = where
        self._seen: _Seen = {} if seen is None else seen

    def wrong(self, allowed: str) -> UnreadableData:
        """Return the error for a value of another type."""
        return UnreadableData(f"{self.where} must be {allowed}, got {_TYPES.get(type(self.value), 'nothing')}")

    @property
    def fields(self) -> dict[str, Any]:
        """The value, which must be an object; all its fields count as read."""
        fields = self._object()
        self._seen[id(fields)] = None
        return fields

    def whole(self) -> dict[str, Any]:
        """Return the value, which must be an object; everything in it counts as read."""
        pending: list[Any] = [self._object()]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                self._seen[id(value)] = None
                pending.extend(value.values())
            elif isinstance(value, list):
                pending.extend(value)
        return self._object()

    def get(self, name: str) -> Any:
        """Return the value in a field of the object that this must be, None where it is absent."""
        fields = self._object()
        seen = self._seen.setdefault(id(fields), set())
        if seen is not None:
            seen.add(name)
        return fields.get(name)

    def child(self, name: str) -> "Node":
        """Return a field of the object that this must be; its value is None where it is absent."""
        return Node(self.get(name), f"{self.where}.{name}", self._seen)

    def inside(self, value: dict[str, Any]) -> "Node":
        """Return a node for another object under this path; a field that is read there counts as read here."""
        return Node(value, self.where, self._seen)

    def child_if(self, name: str) -> "Node":
        """Return an object in a field; an empty one where it is absent."""
        return self.child(name) if self.has(name) else Node({}, f"{self.where}.{name}")

    def has(self, name: str) -> bool:
        """Whether the object has a value in this field: null is the same as absent."""
        return self.get(name) is not None

    def skip(self, *names: str) -> None:
        """Count fields as read that say nothing about the conversation."""
        for name in names:
            self.get(name)

    def unseen(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the name of each field that was not read and is not empty."""
        pending = [self]
        while pending:
            node = pending.pop()
            if isinstance(node.value, list):
                pending.extend(reversed(node.each()))
            elif isinstance(node.value, dict) and id(node.value) in self._seen:
                seen = self._seen[id(node.value)]
                if seen is not None:
                    yield from ((node.where, name) for name in _saying(node.value, seen))
                inner = [Node(value, f"{node.where}.{name}", self._seen) for name, value in node.value.items()]
                pending.extend(reversed(inner))

    def rest(self, known: frozenset[str]) -> dict[str, Any]:
        """Return the fields beside the known ones that say something."""
        return {name: self.fields[name] for name in _saying(self.fields, known)}

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def each(self) -> list["Node"]:
        """Return the items of the array that this must be."""
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        return [Node(item, f"{self.where}[{index}]", self._seen) for index, item in enumerate(self.value)]

    def some(self) -> list["Node"]:
        """Return the items of the array that this must be, at least one."""
        if self.value == []:
            raise UnreadableData(f"{self.where} must not be empty")
        return self.each()

    def each_in(self, name: str) -> list["Node"]:
        """Return the items of the array in a field; none where it is absent."""
        return self.child(name).each() if self.has(name) else []

    def text(self) -> str:
        """Return the text that this must be."""
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def text_in(self, name: str) -> str:
        """Return the text that a field must have."""
        return self.child(name).text()

    def text_if(self, name: str) -> str | None:
        """Return the text in a field, None where it is absent."""
        return self.text_in(name) if self.has(name) else None

    def name_in(self, name: str) -> str:
        """Return the text that a field must have and that must not be empty: a name or an id."""
        child = self.child(name)
        if not child.text():
            raise UnreadableData(f"{child.where} must not be empty")
        return child.text()

    def flag_in(self, name: str) -> bool:
        """Return whether a field is true; absent is false."""
        child = self.child(name)
        if child.value is not None and type(child.value) is not bool:
            raise child.wrong("true or false")
        return child.value is True

    def count_in(self, name: str) -> int | None:
        """Return the whole number from 0 up in a field, None where it is absent."""
        child = self.child(name)
        if child.value is not None and (type(child.value) is not int or child.value < 0):
            raise UnreadableData(f"{child.where} must be a whole number from 0 up")
        count: int | None = child.value
        return count

    def time_in(self, name: str) -> datetime | None:
        """Return the time in a field, RFC 3339 text or milliseconds since 1970; None where it is absent."""
        child = self.child(name)
        try:
            if type(child.value) in (int, float):
                return datetime.fromtimestamp(child.value / 1000, UTC)
            return utc_time(msgspec.convert(child.value, datetime | None))
        except (msgspec.ValidationError, InvalidValue, OverflowError, OSError, ValueError):
            raise UnreadableData(f"{child.where} must be a time with a time zone") from None


def _saying(fields: dict[str, Any], known: Set[str]) -> list[str]:
    """Return the names of unknown fields whose value is not empty, zero or false."""
    return [name for name, value in fields.items() if name not in known and value not in (None, "", [], {}, 0)]


class Notes:
    """Warnings of an import: each once, with its first path and a count."""

    def __init__(self) -> None:
        self._notes: dict[str, tuple[str, int]] = {}
        self._further = 0

    def add(self, where: str, what: str) -> None:
        """Add a warning about a path."""
        if what not in self._notes and len(self._notes) == _DIFFERENT_NOTES:
            self._further += 1
            return
        first, count = self._notes.get(what, (where, 0))
        self._notes[what] = (first, count + 1)

    def all(self) -> tuple[str, ...]:
        """Return one line for each."""
        lines = [
            f"{where}: {what}" + (f" (and {count - 1} more)" if count > 1 else "")
            for what, (where, count) in self._notes.items()
        ]
        return (*lines, f"and {self._further} others") if self._further else tuple(lines)


def take_json(source: JsonSource, where: str) -> Node:
    """Return a copy of the caller's value as plain JSON; raise UnreadableData for anything else."""
    with reading(where):
        value = decode_json(source) if isinstance(source, (bytes, str)) else source
        require_json(value, "the value")  # no kept value may be nested deeper than allowed
        return Node(decode_json(encode_json(value)) if value is source else value, where)


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn the errors of values and codecs into UnreadableData that names the path."""
    try:
        yield
    except UnreadableData as error:
        if str(error).startswith(where):
            raise
        raise UnreadableData(f"{where}: {error}", code=error.code) from None
    except InvalidValue as error:
        raise UnreadableData(f"{where}: {error.unquoted or error}") from None
    except ModelError as error:
        raise UnreadableData(f"{where}: {error}") from None


def require_new_id(node: Node, name: str, seen: set[str]) -> str:
    """Note a call's id and return it; raise UnreadableData where the same turn has it already."""
    call_id = node.name_in(name)
    if call_id in seen:
        raise UnreadableData(f"{node.where}.{name} repeats the id of another call of the same turn")
    seen.add(call_id)
    return call_id
