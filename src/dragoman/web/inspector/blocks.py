"""The conversation of a request in blocks, each with the serial of the entry that it comes from. Pure.

Encoders do not say where a block comes from. A block is recognised by its kind: a call by its place and its tool, a
result by the id of its call, a text or a thought by its beginning, a picture by its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from ...message import FileRef, Image, Message, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["blocks_with_serials"]

Kind: TypeAlias = Literal["call", "result", "text", "thinking", "media"]

SIGNATURE = 60  # characters by which a text is recognised
LOOK_AHEAD = 16  # parts of the context: some of them are not sent
_CALLS = frozenset({"tool_use", "function_call", "custom_tool_call"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_MEDIA = frozenset({"image", "input_image", "image_url", "document", "input_file", "file", "input_audio"})
_MEDIA_KEYS = frozenset({"inlineData", "fileData", "image", "document"})
_IDS = ("tool_use_id", "tool_call_id", "call_id", "toolUseId", "id")


class _Piece(NamedTuple):
    """A part of the context or of a request: its kind, its call, and its beginning or the tool's name."""

    kind: Kind
    call_id: str
    words: str


def blocks_with_serials(
    said: Sequence[Any], messages: Sequence[Message], serials: Sequence[int | None]
) -> Iterator[tuple[int | None, Any]]:
    """Yield the blocks of a conversation, each with the serial of its entry; None for the ledger."""
    origins = [
        (serials[index] if index < len(serials) else None, piece)
        for index, message in enumerate(messages)
        for part in message.parts
        for piece in _pieces_of_part(part)
    ]
    finder = _Finder([piece for _, piece in origins])
    serial = origins[0][0] if origins else None
    for block in _blocks(said):
        found = [place for piece in _pieces_of_block(block) if (place := finder.find(piece)) is not None]
        if found:
            serial = origins[found[0]][0]
        yield serial, block


class _Finder:
    """Finds the parts of a context that the pieces of a request come from, in their order."""

    def __init__(self, origins: Sequence[_Piece]) -> None:
        self._origins = origins
        self._place = 0  # before it all parts are found, or were not sent
        self._results = {piece.call_id: place for place, piece in enumerate(origins) if piece.kind == "result"}
        self._calls: dict[str, str] = {}  # ids of calls in the context, by those in the request

    def find(self, piece: _Piece) -> int | None:
        """Return the index of the part that a piece comes from, None if there is none."""
        place = self._found(piece)
        if place is not None:
            self._place = max(self._place, place + 1)
            if piece.kind == "call":
                self._calls[piece.call_id] = self._origins[place].call_id
        return place

    def _found(self, piece: _Piece) -> int | None:
        if piece.kind == "result" and piece.call_id in self._calls:
            return self._results.get(self._calls[piece.call_id])
        ahead = range(self._place, min(self._place + LOOK_AHEAD, len(self._origins)))
        same_kind = [place for place in ahead if self._origins[place].kind == piece.kind]
        matching = (place for place in same_kind if _says(piece, self._origins[place]))
        # A tool may have another name in the request.
        return next(matching, next(iter(same_kind), None) if piece.kind == "call" else None)


def _says(piece: _Piece, origin: _Piece) -> bool:
    """Whether a piece of a request says what a part of the context does. An empty text says nothing."""
    if piece.kind == "call":
        return piece.words == origin.words
    return piece.kind == "media" or (origin.words != "" and origin.words in piece.words)


def _pieces_of_part(part: Part) -> Iterator[_Piece]:
    match part:
        case Text():
            yield _Piece("text", "", part.text.strip()[:SIGNATURE])
        case Thinking():
            yield _Piece("thinking", "", part.text.strip()[:SIGNATURE])
        case Image() | FileRef():
            yield _Piece("media", "", "")
        case ToolCall():
            yield _Piece("call", part.tool_call_id, part.tool_name)
        case ToolResult():
            words = part.content.strip()[:SIGNATURE] if isinstance(part.content, str) else ""
            yield _Piece("result", part.tool_call_id, words)
        case _:
            pass


def _blocks(said: Sequence[Any]) -> Iterator[Any]:
    """The items of a conversation; one with several blocks becomes as many items of one block."""
    for item in said:
        name = next((name for name in ("content", "parts") if isinstance(item, dict) and name in item), None)
        if name is None or not isinstance(item[name], list) or len(item[name]) < 2:
            yield item
        else:
            yield from ({**item, name: [block]} for block in item[name])


def _pieces_of_block(block: Any) -> Iterator[_Piece]:
    """What a block of a request holds, in any of the APIs."""
    if not isinstance(block, dict):
        yield _Piece("text", "", "\n".join(_texts(block)))
        return
    if block.get("role") == "tool":  # of Chat Completions
        yield _result(block)
        return
    inner = block.get("content", block.get("parts"))
    if "role" in block and isinstance(inner, list):
        for each in inner:
            yield from _pieces_of_block(each)
    elif kind := _kind_of(block):
        yield _Piece(kind, "", "\n".join(_texts(block)))
    elif (call := _call_in(block)) is not None:
        yield _Piece("call", _id_of(call), str(call.get("name", "")))
    elif (result := _result_in(block)) is not None:
        yield _result(result)
    elif "tool_calls" not in block or inner:
        yield _Piece("text", "", "\n".join(_texts(inner if inner is not None else block)))
    calls = block.get("tool_calls")  # of Chat Completions, beside a text
    for each in calls if isinstance(calls, list) else ():
        function = each.get("function") if isinstance(each, dict) else None
        if isinstance(function, dict):
            yield _Piece("call", _id_of(each), str(function.get("name", "")))


def _kind_of(block: dict[str, Any]) -> Kind | None:
    if block.get("type") in _THOUGHTS or "reasoningContent" in block or block.get("thought") is True:
        return "thinking"
    return "media" if block.get("type") in _MEDIA or _MEDIA_KEYS & block.keys() else None


def _call_in(block: dict[str, Any]) -> dict[str, Any] | None:
    if block.get("type") in _CALLS:
        return block
    found = block.get("functionCall", block.get("toolUse"))
    return found if isinstance(found, dict) else None


def _result_in(block: dict[str, Any]) -> dict[str, Any] | None:
    if block.get("type") == "tool_result" or str(block.get("type")).endswith("_call_output"):
        return block
    found = block.get("functionResponse", block.get("toolResult"))
    return found if isinstance(found, dict) else None


def _result(block: dict[str, Any]) -> _Piece:
    return _Piece("result", _id_of(block), "\n".join(_texts(block)))


def _id_of(block: dict[str, Any]) -> str:
    return next((str(block[name]) for name in _IDS if name in block), "")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
