"""Pieces of tool calls, as Chat Completions streams them, to the calls they belong to. Pure.

The API gives each call an index and, on its first piece, an id and a name. Compatible hosts leave out any of the three,
repeat them, or give every call the index 0: a call here has an id of its own, unique in the stream.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import ErrorCode, ModelError
from ..jsontext import encode_json, parse_arguments
from ..stream import DeltaWriter

__all__ = ["CallPiece", "CalledFunction", "ToolCallJoiner"]


class CalledFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # text; some vendors send the object itself


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


class _Call:
    """A tool call under way. It opens in the stream once its name is known."""

    __slots__ = ("data", "id", "index", "name", "pieces", "wire_id")

    def __init__(self, index: int | None, wire_id: str | None) -> None:
        self.index = index
        self.wire_id = wire_id
        self.id = ""  # ours, unique in the stream
        self.name = ""
        self.pieces: list[str] = []
        self.data: dict[str, Any] = {}

    def is_whole(self) -> bool:
        """Whether the arguments so far are an object already, so that another `{` cannot belong to them."""
        return parse_arguments("".join(self.pieces)).arguments is not None


class ToolCallJoiner:
    """Takes the pieces in the order of the wire and writes the calls. They are closed together, at the finish."""

    __slots__ = ("_calls", "_calls_by_index", "_used_ids", "_writer")

    def __init__(self, writer: DeltaWriter) -> None:
        self._writer = writer
        self._calls: list[_Call] = []
        self._calls_by_index: dict[int | None, _Call] = {}
        self._used_ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: list[CallPiece], *, are_whole: bool) -> None:
        """Write what these entries of one `tool_calls` say; `are_whole` where each is a call and none a piece."""
        if not are_whole and len(pieces) == 1:
            piece = pieces[0]
            function, call = piece.function, self._calls_by_index.get(piece.index)
            if (
                call is not None
                and call.name
                and function is not None
                and not function.name
                and type(function.arguments) is str
                and piece.index is not None
                and piece.extra_content is None
            ):  # a plain further piece of an open call: the usual case, and the path of every token
                if function.arguments:
                    call.pieces.append(function.arguments)
                    self._writer.call_args(call.id, function.arguments)
            else:
                self._add_piece(piece, ())
            return
        # Two entries with a name in one list are two calls, whatever their ids and indexes say.
        touched: list[_Call] = []
        for piece in pieces:
            call = self._add_piece(piece, self._calls if are_whole else touched)
            if call is not None:
                touched.append(call)

    def finish(self) -> None:
        """Close every call; raise ModelError for one that never got a name."""
        for call in self._calls:
            if not call.name:
                raise ModelError("the provider sent a tool call without a name", code=ErrorCode.PROTOCOL_VIOLATION)
            self._writer.call_end(call.id, call.data or None)

    def _add_piece(self, piece: CallPiece, closed: Sequence[_Call]) -> _Call | None:
        function = piece.function
        name, arguments = (function.name, function.arguments) if function is not None else (None, None)
        if piece.custom is not None and not name:
            name, arguments = piece.custom.name, piece.custom.input
        if arguments is not None and arguments.__class__ is not str:
            arguments = encode_json(arguments).decode()
        call = self._find_call(piece, name, arguments)
        if call is None or (name and call in closed):
            if not (name or piece.id or arguments):
                return None
            call = _Call(piece.index, piece.id or None)
            self._calls.append(call)
            self._calls_by_index[piece.index] = call
        if piece.extra_content is not None:
            call.data["extra_content"] = piece.extra_content
        if not call.name:
            call.wire_id = call.wire_id or piece.id or None
            if name:
                self._open_call(call, name, is_custom=piece.type == "custom")
        if arguments:
            call.pieces.append(arguments)
            if call.name:
                self._writer.call_args(call.id, arguments)
        return call

    def _find_call(self, piece: CallPiece, name: str | None, arguments: str | None) -> _Call | None:
        """The call that a piece goes on with; None where it begins one.

        Only a name begins a call: ids may be missing, empty or new on every piece; an index may be missing or always 0.
        """
        last = self._calls[-1] if self._calls else None
        call = last if piece.index is None else self._calls_by_index.get(piece.index)
        if piece.id and piece.index is None:
            call = next((known for known in self._calls if known.wire_id == piece.id), None if name else call)
        if call is None or not name or not call.name:
            return call
        if piece.id and call.wire_id:
            return call if piece.id == call.wire_id else None
        if name != call.name or (arguments and arguments.lstrip().startswith("{") and call.is_whole()):
            return None
        return call

    def _open_call(self, call: _Call, name: str, *, is_custom: bool) -> None:
        call.name = name
        call.id = self._unique_id(call.wire_id)
        if call.id != call.wire_id:
            call.data["id"] = call.wire_id
        if is_custom:
            call.data["type"] = "custom"
        self._writer.call_start(call.id, name)
        if call.pieces:
            self._writer.call_args(call.id, "".join(call.pieces))

    def _unique_id(self, wire_id: str | None) -> str:
        number = len(self._used_ids)
        unique = wire_id or f"call_{number}"
        while unique in self._used_ids:
            number += 1
            unique = f"{wire_id}_{number}" if wire_id else f"call_{number}"
        self._used_ids.add(unique)
        return unique
