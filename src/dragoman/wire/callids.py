"""Ids for the tool calls of one answer, and which calls came twice. Pure.

Hosts repeat ids, or give none: here each call has an id of its own. The same id, name and arguments are one call.
"""

import msgspec

from .._jsontext import parse_arguments
from .wholeness import contradicted

__all__ = ["CallIds"]


class CallIds:
    """The ids that the calls of one answer have so far, and what the calls with an id of the wire say."""

    __slots__ = ("_first", "_forms", "_next_number", "_used")

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._first: dict[str, tuple[str, str] | None] = {}  # by wire id the first call with it; None while it is open
        self._forms: dict[str, set[tuple[str, bytes]]] = {}  # all calls of the wire ids that came more than once
        self._next_number = 0  # only goes up, so that many calls with one id do not try each number again

    def __len__(self) -> int:
        return len(self._used)

    def has(self, wire_id: str) -> bool:
        """Return whether an earlier call of the answer has this id of the wire."""
        return wire_id in self._first

    def claim(self, wire_id: str, answer_id: str = "") -> str:
        """Return the next call's id: the wire's own; with a number where that is taken; generated where there is none.

        The id of the answer, if it is known, becomes part of a made-up one.
        """
        call_id = wire_id
        if not wire_id or wire_id in self._used:
            number = max(self._next_number, len(self._used) + bool(wire_id))
            while (call_id := _numbered(wire_id, number, answer_id)) in self._used:
                number += 1
            self._next_number = number + 1
        self._used.add(call_id)
        if wire_id:
            self._first.setdefault(wire_id, None)
        return call_id

    def note(self, wire_id: str, name: str, arguments: str) -> None:
        """Remember what a call says, once it is whole."""
        if wire_id and self._first.get(wire_id) is None:
            self._first[wire_id] = (name, arguments)

    def is_repeat(self, wire_id: str, name: str, arguments: str) -> bool:
        """Return whether a whole call says the same as an earlier one with its id: the wire sent one call twice."""
        first, forms = self._first.get(wire_id), self._forms.setdefault(wire_id, set())
        if not forms and first is not None:
            forms.add(_form(*first))
        form = _form(name, arguments)
        if form in forms:
            return True
        forms.add(form)
        return False

    def require_repeat(self, wire_id: str, name: str, arguments: str) -> None:
        """Raise ModelError unless `is_repeat`, for APIs whose ids are unique in an answer."""
        if not self.is_repeat(wire_id, name, arguments):
            raise contradicted("two different tool calls have the same id")


def _form(name: str, arguments: str) -> tuple[str, bytes]:
    """A call as it compares: the order of keys and the white space do not count."""
    parsed = parse_arguments(arguments or "{}").arguments
    if parsed is None:
        return name, arguments.strip().encode("utf-8", "surrogatepass")
    return name, msgspec.json.encode(parsed, order="deterministic")


def _numbered(wire_id: str, number: int, answer_id: str) -> str:
    return f"{wire_id}_{number}" if wire_id else f"call_{number}_{answer_id}".rstrip("_")
