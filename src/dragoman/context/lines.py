"""Text to lines and names: what a ledger is made of. Knows no entries, no budget and no weights.

A line is kept to the byte. Its key is what makes two lines the same: the text without the number that a file viewer
put in front and without the space around it. A name is a word that has to be remembered exactly.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from .._jsontext import encode_json
from ..message import FileRef, Image, ProviderItem, Text, ToolCall, ToolResult

__all__ = ["PIECE_SIZE", "argument_lines", "file_text", "key_of", "line_spans", "names_in", "said_in", "split_lines"]

# Longer lines (JSON or logs on one line) are cut into pieces at a delimiter, between half of this and all of it.
PIECE_SIZE = 400
# So much is split at once: a thread that splits a long text does not keep the others waiting.
_SPLIT_SIZE = 1 << 18

# Possessive and anchored: no character is looked at twice, however long the line is.
_SPACE = re.compile(r"\s*+")
_TO_LAST_DELIMITER = re.compile(r".*[,;}\]\s]", re.DOTALL)
_VIEWER_NUMBER = re.compile(r"\s*+\d++(?:\u2192|\t|\||:)\s?")
_WORD = re.compile(r"\w[\w.\-]{4,200}\w", re.ASCII)
_EXACT = re.compile(r"[\d_.\-]")


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, long ones in pieces; each is a part of the text, to the byte."""
    if len(text) <= _SPLIT_SIZE:
        return _split(text)
    lines: list[str] = []
    start = 0
    while (end := text.find("\n", start + _SPLIT_SIZE)) >= 0:
        lines += _split(text[start:end])
        start = end + 1
    return lines + _split(text[start:])


def line_spans(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where each of those lines and pieces begins and ends, from `start` on; nothing further is looked at."""
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start <= PIECE_SIZE:
            yield start, end
        else:
            yield from _piece_spans(text, start, end)
        start = end + 1


def key_of(line: str) -> str:
    """Return what makes the line the same as another; empty for a blank one."""
    found = _VIEWER_NUMBER.match(line)
    return (line[found.end() :] if found else line).strip()


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in a text, each once: six characters or more with a digit, a sign or a capital inside."""
    return tuple(dict.fromkeys(word for word in _WORD.findall(text) if _is_name(word)))


def argument_lines(call: ToolCall) -> list[str]:
    """Return a call's arguments as lines: `name: value`, the further lines of a value as they are."""
    if call.arguments is None:
        return split_lines(call.raw_args_text)
    return [line for name, value in call.arguments.items() for line in split_lines(f"{name}: {argument_text(value)}")]


def argument_text(value: Any) -> str:
    """Return an argument as it is shown: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else encode_json(value).decode()


def file_text(part: Image | FileRef) -> str | None:
    """Return the text of a text file that is here, None for all other media."""
    if isinstance(part, Image) or part.data is None or not (part.mime_type or "").startswith("text/"):
        return None
    return part.data.decode("utf-8", "replace")


def said_in(parts: Iterable[object]) -> str:
    """Return what parts of messages say, in order: text files as their text, other media described."""
    return "\n".join(text for text in map(_said, parts) if text)


def _said(part: object) -> str:
    if isinstance(part, (Text, ProviderItem)):
        return part.text or ""
    if isinstance(part, ToolCall):
        return "\n".join((part.tool_name, *argument_lines(part)))
    if isinstance(part, ToolResult):
        return part.content if isinstance(part.content, str) else said_in(part.content)
    if isinstance(part, (Image, FileRef)):
        text = file_text(part)
        return _described(part) if text is None else text
    return ""


def _described(part: Image | FileRef) -> str:
    name, size = (None, None) if isinstance(part, Image) else (part.name, part.size)
    if part.data is not None:
        size = len(part.data)
    known = (name, part.mime_type or part.kind.partition("_")[0], None if size is None else f"{size} bytes")
    return f"[{', '.join(word for word in known if word)}]"


@lru_cache(maxsize=65_536)
def _is_name(word: str) -> bool:
    if _EXACT.search(word):
        return True
    return not word.islower() and not word.isupper() and not word[1:].islower()


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if len(text) <= PIECE_SIZE or max(map(len, lines)) <= PIECE_SIZE:
        return lines
    return [piece for line in lines for piece in _pieces(line)]


def _pieces(line: str) -> list[str]:
    if len(line) <= PIECE_SIZE:
        return [line]
    return [line[first:last] for first, last in _piece_spans(line, 0, len(line))]


def _piece_spans(text: str, first: int, end: int) -> Iterator[tuple[int, int]]:
    """One line in pieces of at most PIECE_SIZE; what stands in front of its text stays with the first."""
    number = _VIEWER_NUMBER.match(text, first, end)
    start = _after_space(text, number.end() if number else first, end)
    # Its last piece keeps the space at its end, however much that is.
    last = max(start, first + len(text[first:end].rstrip()))
    while last - start > PIECE_SIZE:
        found = _TO_LAST_DELIMITER.match(text, start + PIECE_SIZE // 2, start + PIECE_SIZE)
        cut = found.end() if found else start + PIECE_SIZE
        yield first, cut
        start = first = _after_space(text, cut, last)
    yield first, end


def _after_space(text: str, start: int, end: int) -> int:
    """Where the first character from `start` on stands that is no space; nothing is copied."""
    found = _SPACE.match(text, start, end)
    return found.end() if found else start
