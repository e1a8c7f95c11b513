"""Joins the arguments of a Gemini function call that come in pieces, each with its JSON path.

Vertex sends pieces where the request asks for them. Knows nothing of deltas.
"""

import re
from itertools import pairwise
from typing import Any

import msgspec

from ..._jsontext import MAX_DEPTH
from ..lenient import broken

__all__ = ["FunctionCall", "StreamedCall"]

_STEP = re.compile(
    r"""\.([^.\[\]]++)|\[(\d{1,9})\]|\['([^'\\]*+(?:\\.[^'\\]*+)*+)'\]|\["([^"\\]*+(?:\\.[^"\\]*+)*+)"\]"""
)


class PartialArgument(msgspec.Struct, rename="camel", gc=False):
    """One value at a JSON path, or the next piece of a string there. Without a value it is null."""

    json_path: str
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    will_continue: bool | None = None


class FunctionCall(msgspec.Struct, rename="camel", gc=False):
    """A call on the wire. `will_continue` says that the next one continues it."""

    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[PartialArgument] | None = None
    will_continue: bool | None = None


class StreamedCall:
    """An open call: its arguments so far, and the other fields of its pieces."""

    __slots__ = (
        "_arguments", "_broken_off", "_continued", "_holder", "_pieces", "call_id", "is_damaged", "name",
        "provider_data", "wire_id",
    )  # fmt: skip

    def __init__(self, call_id: str, call: FunctionCall) -> None:
        self.call_id = call_id
        self._arguments: dict[str, Any] = {}
        self.provider_data: dict[str, Any] = {}
        self.name = call.name or ""
        self.wire_id = call.id or ""
        self.is_damaged = False  # whether something came in between that is not known
        self._continued: str | None = None  # the path of a string that is not whole yet
        self._broken_off = False  # whether a string was followed by something else than the rest of it
        self._holder: Any = None  # the object or list that holds that string, and the step to it
        self._pieces: list[str] = []  # of that string; joined once
        self.add(call)

    @property
    def is_whole(self) -> bool:
        """Whether each string that came in pieces is complete."""
        return self._continued is None and not self._broken_off

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments so far."""
        self._join_pieces()
        return self._arguments

    def add(self, call: FunctionCall) -> None:
        """Take the next piece; raise ModelError where it belongs to another call or does not fit."""
        if (call.name and call.name != self.name) or (call.id and self.wire_id and call.id != self.wire_id):
            raise broken("another function call began before the arguments of the open one were whole")
        self._arguments.update(call.args or {})
        for piece in call.partial_args or ():
            value: Any = piece.string_value
            if value is None:
                value = piece.number_value if piece.bool_value is None else piece.bool_value
            self._broken_off = self._broken_off or self._continued not in (None, piece.json_path)
            if piece.json_path != self._continued:
                self._put(_path_steps(piece.json_path), value)
            elif isinstance(value, str) and self._pieces:
                self._pieces.append(value)
            elif value is not None:  # without a value there is nothing more to say: the string was whole
                self._put(_path_steps(piece.json_path), value)
            self._continued = piece.json_path if piece.will_continue else None

    def _put(self, steps: list[str | int], value: Any) -> None:
        self._join_pieces()
        holder: Any = self._arguments
        for step, following in pairwise(steps):
            holder = _entered(holder, step, [] if isinstance(following, int) else {})
        _entered(holder, steps[-1], None)
        holder[steps[-1]] = value
        self._holder, self._pieces = (holder, steps[-1]), [value] if isinstance(value, str) else []

    def _join_pieces(self) -> None:
        if len(self._pieces) > 1:
            holder, step = self._holder
            holder[step] = "".join(self._pieces)
            self._pieces = [holder[step]]


def _path_steps(path: str) -> list[str | int]:
    """The keys and indices of a JSON path such as `$.rooms[0].name` or `$['rooms'][0]['name']`."""
    steps: list[str | int] = []
    offset = 1
    while offset < len(path) and (found := _STEP.match(path, offset)):
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(int(index))
        elif name is not None:
            steps.append(name)
        else:
            steps.append(re.sub(r"\\(.)", r"\1", single if single is not None else double))
        offset = found.end()
    if path[:1] != "$" or offset != len(path) or not 0 < len(steps) < MAX_DEPTH:
        raise broken("a piece of a function call's arguments has no readable path")
    return steps


def _entered(holder: Any, step: str | int, fresh: Any) -> Any:
    """Return the value at `step`, creating it where it is missing. A list grows only by its next index."""
    if isinstance(holder, dict) and isinstance(step, str):
        return holder.setdefault(step, fresh)
    if isinstance(holder, list) and isinstance(step, int) and step <= len(holder):
        if step == len(holder):
            holder.append(fresh)
        return holder[step]
    raise broken("a piece of a function call's arguments does not fit those before it")
