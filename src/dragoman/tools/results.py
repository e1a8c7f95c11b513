"""Converts what a tool returned to what the history keeps: text at three levels of detail, and parts."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from .._jsontext import encode_json, join_surrogates
from ..history.sections import LevelOfDetailSections, Section
from ..history.toolresults import Attachment
from ..message import FileRef, Image, Text, UnknownPart
from .definition import ToolOutput
from .jsonvalues import NotJson, to_json_value

__all__ = ["ResultContent", "is_large", "read_returned", "shorten"]

# The share of a shortened text that shows its beginning; the rest shows its end.
_HEAD_SHARE = 2 / 3
_MOST_AT_ONCE = 5_000  # values that are read in the event loop; it takes some milliseconds
_TEXT_PER_VALUE = 200  # characters that take as long as a value
_PARTS = (Text, Image, FileRef, UnknownPart)


class ResultContent(NamedTuple):
    """The text and the parts that a result holds."""

    levels: LevelOfDetailSections
    attachments: tuple[Attachment, ...] = ()


def read_returned(value: Any) -> ResultContent:
    """Return the content of a tool's return value; raise NotJson, which names the type, for a value that has none.

    Text is itself, None is empty, parts and outputs are what they say, everything else is written as JSON. All of it is
    kept, however long it is: how much of it a model is shown is the context's choice.
    """
    if isinstance(value, ToolOutput):
        return ResultContent(value.levels(), tuple(value.attachments))
    if isinstance(value, LevelOfDetailSections):
        return ResultContent(value)
    if isinstance(value, _PARTS):
        value = (value,)
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        return _read_parts(value)
    return ResultContent(LevelOfDetailSections.of_text(_as_text(value)))


def is_large(value: Any) -> bool:
    """Return whether it takes long to read the value: it has much text, or many values. Looks no further than that."""
    pending, left = [value], _MOST_AT_ONCE
    while pending and left > 0:
        item = pending.pop()
        if isinstance(item, str):
            left -= len(item) // _TEXT_PER_VALUE
        elif isinstance(item, (list, tuple, set, frozenset, dict)):
            left -= len(item)
            if left > 0:
                pending.extend(item.values() if isinstance(item, dict) else item)
    return left <= 0


def shorten(text: str, limit: int) -> str:
    """Return the text if it has at most `limit` characters, else its beginning and end with a line between them."""
    if len(text) <= limit:
        return text
    head = _cut_at_line(text, int(limit * _HEAD_SHARE))
    tail = len(text) - (limit - int(limit * _HEAD_SHARE))
    following = text.find("\n", tail)
    if 0 <= following < len(text) - 1 and following - tail < limit // 10:
        tail = following + 1
    left_out = text[head:tail]
    lines = left_out.count("\n")
    what = f"{len(left_out)} of {len(text)} characters" + (f" ({lines} lines)" if lines else "")
    return f"{text[:head].rstrip()}\n[… {what} left out …]\n{text[tail:]}"


def _cut_at_line(text: str, index: int) -> int:
    """The index of the last line break before `index`, if there is one near; else the index."""
    line = text.rfind("\n", 0, index)
    return line if line > index - index // 10 else index


def _read_parts(items: Sequence[Any]) -> ResultContent:
    sections: list[Section] = []
    attachments: list[Attachment] = []
    for item in items:
        if isinstance(item, (Text, str)):
            sections.append(Section("", item.text if isinstance(item, Text) else item))
        elif isinstance(item, (Image, FileRef, UnknownPart)):
            attachments.append(item)
        else:
            raise NotJson(f"a {type(item).__name__} among parts")
    return ResultContent(LevelOfDetailSections.create_uniform(sections), tuple(attachments))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return join_surrogates(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise NotJson(f"{type(value).__name__}: text, or an Image or FileRef with the bytes, can be told")
    try:
        return _written(value).decode()
    except NotJson:
        raise
    except RecursionError:
        raise NotJson(f"a {type(value).__name__} that is nested too deeply or holds itself") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise NotJson(f"a {type(value).__name__} that JSON cannot hold ({type(error).__name__})") from error


def _written(value: Any) -> bytes:
    """The value as JSON. A large one is written in pieces: msgspec lets no other thread run while it writes one."""
    if type(value) in (list, tuple) and is_large(value):
        return b"[%s]" % b",".join(_pieces(value, list))
    if type(value) is dict and is_large(value):
        return b"{%s}" % b",".join(_pieces(tuple(value.items()), dict))
    plain = to_json_value(value)
    written = encode_json(plain)
    # JSON has no NaN and no infinity, and msgspec writes null for them.
    return encode_json(_with_named_numbers(plain)) if b"null" in written else written


def _pieces(items: Sequence[Any], kind: type[list[Any]] | type[dict[Any, Any]]) -> Iterator[bytes]:
    """The items of a list or a dict as JSON, without brackets around them."""
    if not is_large(items):
        yield _written(kind(items))[1:-1]
    elif len(items) > 1:
        middle = len(items) // 2
        yield from _pieces(items[:middle], kind)
        yield from _pieces(items[middle:], kind)
    elif kind is list:
        yield _written(items[0])
    else:
        ((name, value),) = items
        yield encode_json(to_json_value({name: 0}))[1:-2] + _written(value)


def _with_named_numbers(value: Any) -> Any:
    """The value with words in place of the numbers that JSON does not have."""
    if type(value) is dict:
        return {name: _with_named_numbers(item) for name, item in value.items()}
    if type(value) is list:
        return [_with_named_numbers(item) for item in value]
    if type(value) is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
