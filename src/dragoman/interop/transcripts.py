"""Session files of coding agents: JSON Lines of one object each, often a tree by the ids of parents.

Knows no format. Every error names the file and the line.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .._jsontext import decode_json
from ..errors import UnreadableData
from ..files import read_file, require_regular_file
from ..wire.drafts import Draft
from ..wire.reading import Node, Notes, take_json

__all__ = ["NoConversation", "TranscriptSource", "find_path", "no_conversation", "read_lines", "skip_line"]

# What an import of a session file takes: the path of the file, its text, or its lines as plain dicts.
TranscriptSource: TypeAlias = os.PathLike[str] | bytes | str | Sequence[dict[str, Any]]

_BOM = b"\xef\xbb\xbf"


class NoConversation(UnreadableData):
    """A file that can be read and holds no conversation: it is empty, or nothing was said in it yet."""


def read_lines(source: TranscriptSource, notes: Notes, *, name: str = "") -> list[Node]:
    """Return the object of each line; raise UnreadableData for the first line that is none.

    A program appends to its file while we read it. So a last line without its newline that is no JSON is left out, and
    a warning is added to `notes`. `name` is that of the file, where the source is its bytes.
    """
    name = f"{name} " if name else ""
    if isinstance(source, os.PathLike):
        name = f"{Path(source).name} "
        try:
            require_regular_file(source)
            source = read_file(source)
        except OSError as error:
            raise UnreadableData(f"{name}cannot be read: {error.strerror}") from error
    if isinstance(source, str):
        if "\n" not in source and source.endswith((".jsonl", ".jsonl.gz", ".db")):
            raise UnreadableData("a str is the text of a file, and this is the name of one: give a Path")
        source = source.encode("utf-8", "surrogatepass")
    elif not isinstance(source, (bytes, Sequence)):
        opened = ", got an open file: give its Path, or file.read()" if hasattr(source, "read") else ""
        raise UnreadableData(f"the source must be a Path, the text of the file, or its lines{opened}")
    lines: Sequence[Any] = source
    if isinstance(source, bytes):
        lines = source.removeprefix(_BOM).split(b"\n")
        if len(lines) > 1 and _is_cut(lines[-1]):
            notes.add(f"{name}line {len(lines)}", "this last line is cut off, as while it is written: it is left out")
            lines = lines[:-1]
    nodes = [
        take_json(line, f"{name}line {number}")
        for number, line in enumerate(lines, 1)
        if not (isinstance(line, bytes) and not line.strip())
    ]
    if not nodes:
        raise NoConversation(f"{name}line 1: there is nothing in it")
    for node in nodes:
        if not isinstance(node.value, dict):
            raise node.wrong("an object")
    return nodes


def _is_cut(line: bytes) -> bool:
    try:
        decode_json(line)
    except UnreadableData:
        return bool(line.strip())
    return False


def find_path(lines: Sequence[Node], id_name: str, parent_name: str, *, across: str = "") -> set[int]:
    """Return the indices of the lines on the way from the last line that has an id back to its root.

    `across` is the field for the parent of a line that begins anew, as after a compaction. A line whose parent the file
    does not hold goes on with the line before it. Raises UnreadableData where the parents are a circle.
    """
    known = [index for index, line in enumerate(lines) if line.text_if(id_name) is not None]
    indices = {lines[index].text_in(id_name): index for index in reversed(known)}  # of copies the first
    before: dict[int, int | None] = dict(zip(known[1:], known, strict=False))
    path: set[int] = set()
    index = known[-1] if known else None
    while index is not None:
        if index in path:
            raise UnreadableData(f"{lines[index].where}: the parents of this line are a circle")
        path.add(index)
        line = lines[index]
        if (parent := line.text_if(parent_name)) is not None:
            index = indices.get(parent, before.get(index))
        elif across and (earlier := line.text_if(across)) is not None:
            # A fork repeats the messages that a compaction kept after it: what it names then comes later.
            found = indices.get(earlier, index)
            index = found if found < index else before.get(index)
        else:
            index = None
    return path


def skip_line(node: Node, draft: Draft, what: str) -> None:
    """Leave a line out, with a warning that says what it was."""
    node.whole()
    draft.notes.add(node.where, f"{what} is left out")


def no_conversation(lines: Sequence[Node], kind: str) -> NoConversation:
    """Return the error for lines that hold no message."""
    return NoConversation(f"{lines[0].where}: this is no {kind}, or nothing was said in it")
