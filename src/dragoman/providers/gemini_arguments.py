"""A Gemini function call whose arguments come piece by piece, each with its place in them, put together.

Vertex sends them so where it is asked to. Knows nothing of deltas.
"""

import re
from itertools import pairwise
from typing import Any

import msgspec

from ..jsontext import MAX_DEPTH
from .lenient import broken

__all__ = ["FunctionCall", "StreamedCall"]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")


class PartialArgument(msgspec.Struct, rename="camel", gc=False):
    """One value at a place, or the next piece of a string there. Without any value it is null."""

    json_path: str
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    will_continue: bool | None = None


class FunctionCall(msgspec.Struct, rename="camel", gc=False):
    """A call as the wire has it. `will_continue` says that the next one goes on with it."""

    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[PartialArgument] | None = None
    will_continue: bool | None = None


class StreamedCall:
    """A call under way: its arguments so far, and what else its pieces said."""

    __slots__ = ("_broken_off", "_continued", "_name", "_wire_id", "arguments", "call_id", "provider_data")

    def __init__(self, call_id: str, call: FunctionCall) -> None:
        self.call_id = call_id
        self.arguments: dict[str, Any] = {}
        self.provider_data: dict[str, Any] = {}
        self._name = call.name
        self._wire_id = call.id
        self._continued: str | None = None  # the place of a string that is not whole yet
        self._broken_off = False  # whether a string was followed by something else than the rest of it
        self.add(call)

    @property
    def is_whole(self) -> bool:
        """Whether each string that was said to go on did so, to its end."""
        return self._continued is None and not self._broken_off

    def add(self, call: FunctionCall) -> None:
        """Take the next piece; raise ModelError where it belongs to another call or does not fit."""
        if (call.name and call.name != self._name) or (call.id and self._wire_id and call.id != self._wire_id):
            raise broken("another function call began before the arguments of the open one were whole")
        self.arguments.update(call.args or {})
        for piece in call.partial_args or ():
            value: Any = piece.string_value
            if value is None:
                value = piece.number_value if piece.bool_value is None else piece.bool_value
            self._broken_off = self._broken_off or self._continued not in (None, piece.json_path)
            self._put(_path_steps(piece.json_path), value, appended=piece.json_path == self._continued)
            self._continued = piece.json_path if piece.will_continue else None

    def _put(self, steps: list[str | int], value: Any, *, appended: bool) -> None:
        place: Any = self.arguments
        for step, following in pairwise(steps):
            place = _entered(place, step, [] if isinstance(following, int) else {})
        before = _entered(place, steps[-1], None)
        if appended and isinstance(before, str) and isinstance(value, str):
            value = before + value
        elif appended and value is None:  # nothing more to say: the string was whole
            value = before
        place[steps[-1]] = value


def _path_steps(path: str) -> list[str | int]:
    """The keys and indices of a JSON path such as `$.rooms[0].name` or `$['rooms'][0]['name']`."""
    steps: list[str | int] = []
    place = 1
    while place < len(path) and (found := _STEP.match(path, place)):
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(int(index))
        elif name is not None:
            steps.append(name)
        else:
            steps.append(re.sub(r"\\(.)", r"\1", single if single is not None else double))
        place = found.end()
    if path[:1] != "$" or place != len(path) or not 0 < len(steps) < MAX_DEPTH:
        raise broken("a piece of a function call's arguments has no readable place")
    return steps


def _entered(place: Any, step: str | int, fresh: Any) -> Any:
    """What stands at `step`, put there first if nothing does; a list grows by its next index only."""
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, fresh)
    if isinstance(place, list) and isinstance(step, int) and step <= len(place):
        if step == len(place):
            place.append(fresh)
        return place[step]
    raise broken("a piece of a function call's arguments does not fit those before it")
