"""Units that are too long for a whole budget to units that fit, saying what was left out.

The beginning and the end of a text stay, line by line; a marker says how much is missing and how it comes back.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .._jsontext import encode_json
from ..message import FileRef, Image, Message, Part, ResultPart, Role, Text, ToolCall, ToolResult
from .ledger import MARKER
from .limiting import HEAD_SHARE
from .lines import PIECE_SIZE, file_text, line_spans
from .timeline import Unit

__all__ = ["cut_message", "cut_text", "cut_unit"]

# Below this many characters a picture or file, which no cut makes smaller, is left out.
_LEAST_FOR_MEDIA = 4_000


def cut_unit(unit: Unit, cuts: Mapping[int, int], count: Callable[[Message], int]) -> Unit:
    """Return the unit, each text in it at most as long as `cuts` says for its entry, as `count` counts it."""
    if not any(entry.serial in cuts for entry in unit.entries):
        return unit
    cut = Unit()
    known = {id(message): size for message, size in zip(unit.messages, unit.sizes, strict=True)}
    for entry, whole in unit.by_entry():
        size = cuts.get(entry.serial)
        messages = whole if size is None else [cut_message(message, entry.serial, size) for message in whole]
        cut.put(entry, messages, [known.get(id(message)) or count(message) for message in messages])
    return cut


def cut_text(text: str, serial: int, size: int) -> str:
    """Return the text if it has at most `size` characters, else its first and last lines and a marker between them.

    Only so much of the text is looked at as is shown.
    """
    if len(text) <= size:
        return text
    head: list[str] = []
    used = head_end = 0
    for start, end in line_spans(text):
        if used + end - start >= size * HEAD_SHARE:
            break
        head.append(text[start:end])
        used += end - start + 1
        head_end = end
    tail: list[str] = []
    tail_start = len(text)
    around = max(head_end, len(text) - size - PIECE_SIZE)
    for start, end in reversed([*line_spans(text, around)][1:]):  # the first one may have begun earlier
        if used + end - start >= size:
            break
        tail.append(text[start:end])
        used += end - start + 1
        tail_start = start
    left_out = f"{tail_start - head_end:,} of {len(text):,} characters"
    marker = f"{MARKER} {left_out} left out to fit; #{serial} has them"
    return "\n".join((*head, marker, *reversed(tail)))


def cut_message(message: Message, serial: int, size: int) -> Message:
    """Return the message, each text in it at most `size` characters long."""
    parts = tuple(cut for part in message.parts if (cut := _cut_part(part, serial, size)) is not None)
    if message.role is Role.USER and not parts:
        parts = (Text(f"{MARKER} left out to fit; #{serial} describes it"),)
    is_whole = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
    return message if is_whole else msgspec.structs.replace(message, parts=parts)


def _cut_part(part: Part, serial: int, size: int) -> Part | None:
    if isinstance(part, Text):
        if len(part.text) <= size:
            return part
        return msgspec.structs.replace(part, text=cut_text(part.text, serial, size))
    if isinstance(part, ToolCall):
        return _cut_call(part, serial, size)
    if isinstance(part, ToolResult):
        return msgspec.structs.replace(part, content=_cut_content(part.content, serial, size))
    if isinstance(part, (Image, FileRef)) and size < _LEAST_FOR_MEDIA:
        return Text(_media_marker(part, serial)) if _may_be_text(part) else None
    return part


def _cut_call(call: ToolCall, serial: int, size: int) -> ToolCall:
    if len(call.raw_args_text) <= size:
        return call
    if call.arguments is None:
        return msgspec.structs.replace(call, raw_args_text=cut_text(call.raw_args_text, serial, size))
    is_compact = len(call.raw_args_text) <= len(encode_json(call.arguments).decode())
    if is_compact and not _has_longer(call.arguments, size):
        return call  # long by the number of its values: a copy would be no shorter
    arguments = {name: _cut_value(value, serial, size) for name, value in call.arguments.items()}
    return ToolCall(call.tool_call_id, call.tool_name, arguments, provider_data=call.provider_data)


def _has_longer(value: Any, size: int) -> bool:
    """Whether the JSON value holds a text of more than `size` characters."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if len(item) > size:
                return True
        elif item and isinstance(item, (list, dict)):
            pending.extend(item.values() if isinstance(item, dict) else item)
    return False


def _cut_value(value: Any, serial: int, size: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, serial, size)
    if isinstance(value, list):
        return [_cut_value(inner, serial, size) for inner in value]
    if isinstance(value, dict):
        return {name: _cut_value(inner, serial, size) for name, inner in value.items()}
    return value


def _cut_content(
    content: str | dict[str, Any] | tuple[ResultPart, ...], serial: int, size: int
) -> str | dict[str, Any] | tuple[ResultPart, ...]:
    if isinstance(content, str):
        return cut_text(content, serial, size)
    if isinstance(content, dict):
        return {name: _cut_value(value, serial, size) for name, value in content.items()}
    cut = (_cut_part(part, serial, size) for part in content)
    return tuple(part for part in cut if part is not None)  # type: ignore[misc]  # parts of a result stay such


def _media_marker(part: Image | FileRef, serial: int) -> str:
    """What stands for media; of those that are no text, recall can only say what they were."""
    what = "an image" if isinstance(part, Image) else "a file"
    return f"{MARKER} {what} left out to fit; #{serial} {'describes' if file_text(part) is None else 'has'} it"


def _may_be_text(part: Image | FileRef) -> bool:
    return part.provider_data is None
