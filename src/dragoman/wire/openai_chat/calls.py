"""Joins the pieces of tool calls that Chat Completions streams. Pure.

The API gives each call an index and, on its first piece, an id and a name. Compatible hosts leave out any of the three,
repeat them, or give every call the index 0: a call here has an id of its own, unique in the stream.
"""

import re
from typing import Any, Literal

import msgspec

from ..._jsontext import encode_json, parse_arguments
from ...errors import ErrorCode, ModelError
from ...stream import DeltaWriter
from ..callids import CallIds
from ..wholeness import Damage, call_problem

__all__ = ["CallPiece", "CalledFunction", "FurtherPiece", "ToolCallJoiner"]

_MARKS = re.compile(r'\\.?|["{}]', re.DOTALL)  # what says where an object ends; a backslash with what it escapes


class CalledFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = msgspec.UNSET  # text; some vendors send the object itself


class _Custom(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: CalledFunction | None = None
    custom: _Custom | None = None
    extra_content: Any = None


class _FurtherText(msgspec.Struct, gc=False):
    arguments: str
    name: Literal["", None] = None


class FurtherPiece(msgspec.Struct, gc=False):
    """The usual entry of `tool_calls`: more argument text of an open call."""

    index: int
    function: _FurtherText
    extra_content: None = None


class _Call:
    """One tool call. It opens in the stream once its name is complete, and gets its id then."""

    __slots__ = (
        "_depth", "_ended", "_escaped", "_in_string", "_scanned", "data", "id", "index", "name", "number", "pieces",
        "wire_id",
    )  # fmt: skip

    def __init__(self, number: int, index: int | None, wire_id: str | None) -> None:
        self.number = number
        self.index = index
        self.wire_id = wire_id
        self.id = ""  # ours, unique in the stream
        self.name = ""
        self.pieces: list[str] = []
        self.data: dict[str, Any] = {}
        self._scanned = 0  # how many of the pieces the fields below know
        self._depth = 0
        self._ended = 0  # how many objects, one after the other, the pieces were
        self._in_string = False
        self._escaped = False

    def is_whole(self) -> bool:
        """Whether the arguments so far are an object already, so that another `{` cannot belong to them."""
        return self._has_ended() and parse_arguments("".join(self.pieces)).arguments is not None

    def is_repeated_by(self, arguments: str) -> bool:
        """Whether the piece repeats all arguments, as some hosts send them at the end."""
        return self._has_ended() and "".join(self.pieces).strip() == arguments.strip() and self.is_whole()

    def take_head(self, piece: CallPiece, name: str | None) -> None:
        """Take the id, the type and the next piece of the name, while the call is not open."""
        self.wire_id = self.wire_id or piece.id or None
        if piece.type == "custom":
            self.data["type"] = "custom"
        if name:
            self.name = name if name.startswith(self.name) else self.name + name

    def is_begun_anew(self, piece: CallPiece, name: str, arguments: str | None) -> bool:
        """Whether a piece with a name, sent to this call, begins another call; raise ModelError where neither fits.

        A name without a new id continues the call. Only where all ids are missing, it begins one after a complete call.
        """
        if not self.name:
            return False
        if piece.id and self.wire_id:
            return piece.id != self.wire_id
        if not self.id:
            return False  # it has no arguments yet: another piece of its name
        if name == self.name and not (arguments and arguments.lstrip().startswith("{") and self.is_whole()):
            return False
        if self.wire_id or not self.is_whole():
            raise ModelError("two names came for one tool call", code=ErrorCode.PROTOCOL_VIOLATION)
        return True

    def _has_ended(self) -> bool:
        """Whether the arguments so far may be one whole object. Reads each piece once, however often it is asked.

        To join and parse all of them at every `{` would cost the square of their number.
        """
        for piece in self.pieces[self._scanned :]:
            start, self._escaped = int(self._escaped), False
            for mark in _MARKS.findall(piece, start):
                if mark == '"':
                    self._in_string = not self._in_string
                elif self._in_string:
                    self._escaped = mark == "\\"  # what it escapes is in the next piece
                elif mark == "{":
                    self._depth += 1
                elif mark == "}":
                    self._depth -= 1
                    self._ended += self._depth == 0
        self._scanned = len(self.pieces)
        return self._ended == 1 and self._depth == 0 and not self._in_string


class ToolCallJoiner:
    """Takes the pieces in the order of the wire and writes the calls. They are closed together, at the finish."""

    __slots__ = ("_calls", "_calls_by_index", "_calls_by_wire_id", "_damage", "_ids", "_waiting", "_writer")

    def __init__(self, writer: DeltaWriter) -> None:
        self._writer = writer
        self._calls: list[_Call] = []
        self._calls_by_index: dict[int | None, _Call] = {}
        self._calls_by_wire_id: dict[str, _Call] = {}  # the first of each
        self._damage = Damage()
        self._ids = CallIds()
        self._waiting: _Call | None = None  # it has a name, of which more may come: some gateways cut it in pieces

    def __len__(self) -> int:
        return len(self._calls)

    def append_piece(self, pieces: list[FurtherPiece] | None) -> bool:
        """Write one more piece of an open call, as most tokens are; return False where `add` must read the piece."""
        if not pieces or self._waiting is not None:
            return False
        call, arguments = self._calls_by_index.get(pieces[0].index), pieces[0].function.arguments
        if call is None or not call.id:
            return False
        if arguments and not (arguments[0] == "{" and call.is_repeated_by(arguments)):
            call.pieces.append(arguments)
            self._writer.call_args(call.id, arguments)
        return True

    def add(self, pieces: list[CallPiece], *, are_whole: bool) -> None:
        """Write what these entries of one `tool_calls` say; `are_whole` where each is a call and none a piece."""
        # Two entries with a name in one list are two calls, whatever their ids and indexes say.
        touched: set[_Call] = set()
        for piece in pieces:
            call = self._add_piece(piece, touched, are_whole)
            if call is not None:
                touched.add(call)

    def open_waiting(self) -> None:
        """Open the call that has only a name so far, if there is one: other content follows."""
        call, self._waiting = self._waiting, None
        if call is not None:
            self._open_call(call)

    def finish(self) -> None:
        """Close every call; raise ModelError for one that never got a name."""
        self.open_waiting()
        for call in self._calls:
            if not call.name:
                raise ModelError("the provider sent a tool call without a name", code=ErrorCode.PROTOCOL_VIOLATION)
            wire_id, arguments = call.wire_id or "", "".join(call.pieces)
            if not call.id:
                if self._ids.is_repeat(wire_id, call.name, arguments):
                    continue
                self._start_call(call)  # another call: some hosts give all of them the same id
            self._ids.note(wire_id, call.name, arguments)
            is_damaged = self._damage.is_on(call.index, call.number)
            self._writer.call_end(call.id, call.data or None, call_problem(is_closed=True, is_damaged=is_damaged))

    def _add_piece(self, piece: CallPiece, touched: set[_Call], are_whole: bool) -> _Call | None:
        name, arguments = _called(piece)
        if arguments is msgspec.UNSET:
            arguments = None
            if not name and not piece.id and piece.extra_content is None:
                self._damage.add(piece.index)
                return None
        call = self._find_call(piece, name)
        if call is None or (name and (call.is_begun_anew(piece, name, arguments) or are_whole or call in touched)):
            if not (name or piece.id or arguments):
                return None
            call = _Call(self._damage.open(), piece.index, piece.id or None)
            self._calls.append(call)
            self._calls_by_index[piece.index] = call
        if call is not self._waiting:
            self.open_waiting()
        if piece.extra_content is not None:
            call.data["extra_content"] = piece.extra_content
        if not call.id:
            call.take_head(piece, name)
            if call.wire_id:
                self._calls_by_wire_id.setdefault(call.wire_id, call)
            if name:
                self._waiting = call
        if arguments:
            self._add_arguments(call, piece.index, arguments)
        return call

    def _add_arguments(self, call: _Call, index: int | None, arguments: str) -> None:
        if self._waiting is call:
            self.open_waiting()
        is_same = index in (None, call.index) or call.index is None
        if not (is_same and arguments[0] == "{" and call.is_repeated_by(arguments)):
            call.pieces.append(arguments)
            if call.id:
                self._writer.call_args(call.id, arguments)

    def _find_call(self, piece: CallPiece, name: str | None) -> _Call | None:
        """Return the call that the id or the index of a piece names; None where there is none.

        Only a name begins a call: ids may be missing, empty or new on every piece; an index may be missing or always 0.
        """
        last = self._calls[-1] if self._calls else None
        call = last if piece.index is None else self._calls_by_index.get(piece.index)
        if piece.id and piece.index is None:
            is_other = name and call is not None and (call.id or call.wire_id)
            call = self._calls_by_wire_id.get(piece.id, None if is_other else call)
        if call is None and not name and not piece.id:
            call = last  # its first piece had no index, or another one
        return call

    def _open_call(self, call: _Call) -> None:
        """Open a call. One with the id of an earlier call waits for the finish: it may be that call once more."""
        if not self._ids.has(call.wire_id or ""):
            self._start_call(call)

    def _start_call(self, call: _Call) -> None:
        call.id = self._ids.claim(call.wire_id or "")
        if call.id != call.wire_id:
            call.data["id"] = call.wire_id
        self._writer.call_start(call.id, call.name)
        if call.pieces:
            self._writer.call_args(call.id, "".join(call.pieces))


def _called(piece: CallPiece) -> tuple[str | None, Any]:
    """The name and the argument text of an entry; UNSET for text that it has no field for."""
    name: str | None = None
    arguments: Any = msgspec.UNSET
    if piece.function is not None:
        name, arguments = piece.function.name, piece.function.arguments
    if piece.custom is not None and not name:
        name, arguments = piece.custom.name, piece.custom.input
    if arguments is None or arguments is msgspec.UNSET or arguments.__class__ is str:
        return name, arguments
    return name, encode_json(arguments).decode()
