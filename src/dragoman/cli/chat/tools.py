"""The tools that the chat has of its own: files of one folder to read, a calculator, the time. None changes anything.

What is read is bounded in every direction, and what looks like a key or a password is blanked out: a model's provider
must not see it.
"""

import fnmatch
import time
from collections.abc import Collection, Iterator
from datetime import datetime
from os import PathLike
from typing import Annotated

from ...errors import ErrorCode, InvalidValue, ToolError, redact
from ...folders import ConfinedFolder, Found
from ...tools import ToolDefinition, tool
from .calculator import calculate as computed

__all__ = ["builtin_tools"]

MOST_ENTRIES = 500  # of a list
MOST_LINES = 400  # of a file, at once
LONGEST_LINE = 500  # characters
MOST_CHARACTERS = 40_000  # of a result
MOST_BYTES = 64 * 1024 * 1024  # that one call reads
MOST_FILES = 5_000
MOST_HITS = 100
DEEPEST = 20
SECONDS = 20.0
FILE_TOOLS = frozenset({"files", "list_files", "read_file", "search_files"})
_SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})  # searches pass over these


def builtin_tools(folder: str | PathLike[str] | None = None, names: Collection[str] = ()) -> list[ToolDefinition]:
    """Return the calculator and the time, and with a folder the tools that read its files; with `names` only these.

    `files` stands for all that read files. Raises InvalidValue for a name that no tool has, or that needs a folder.
    """
    tools: list[ToolDefinition] = [tool(calculate, idempotent=True), tool(current_time, idempotent=True)]
    of_files = _file_tools(ConfinedFolder(folder)) if folder is not None else []
    known = {each.name: [each] for each in (*of_files, *tools)} | {"files": of_files}
    for name in names:
        if name in FILE_TOOLS and folder is None:
            raise InvalidValue(f"the tool {name!r} needs a folder: --tools FOLDER, or tools_folder in the settings")
        if name not in known:
            raise InvalidValue(f"there is no built-in tool {name!r}: there are {', '.join(known)}")
    wanted = {each.name for name in names for each in known[name]}
    return [each for each in (*of_files, *tools) if not names or each.name in wanted]


def calculate(expression: Annotated[str, "such as (2 + 3) * sqrt(2) or 2**10"]) -> str:
    """Compute an arithmetic expression."""
    return str(computed(expression))


def current_time(timezone: Annotated[str, "such as Europe/Rome; empty for the local one"] = "") -> str:
    """Return the date and the time of now."""
    if not timezone:
        now = datetime.now().astimezone()
    else:
        from zoneinfo import ZoneInfo

        try:
            now = datetime.now(ZoneInfo(timezone))
        except (ValueError, KeyError, OSError):
            raise ToolError(f"there is no time zone {timezone[:60]!r}", code=ErrorCode.TOOL_FAILED) from None
    return f"{now:%A} {now.isoformat(timespec='seconds')} ({now.tzname()})"


def _file_tools(folder: ConfinedFolder) -> list[ToolDefinition]:
    def list_files(
        path: Annotated[str, "a folder, relative to the root"] = ".",
        recursive: Annotated[bool, "also what is in its folders"] = False,
    ) -> str:
        """List the files of a folder with their sizes in bytes."""
        return _listed(folder, path, recursive=recursive)

    def read_file(
        path: Annotated[str, "a text file, relative to the root"],
        first_line: Annotated[int, "the first line to return, from 1"] = 1,
        last_line: Annotated[int | None, f"the last line to return; at most {MOST_LINES} come at once"] = None,
    ) -> str:
        """Return lines of a text file, each with its number."""
        return _read(folder, path, first_line, last_line)

    def search_files(
        text: Annotated[str, "what to look for, as it stands; case does not matter"],
        path: Annotated[str, "a folder or a file, relative to the root"] = ".",
        names: Annotated[str, "only files whose name fits, such as *.py"] = "*",
    ) -> str:
        """Find the lines of text files that contain a text."""
        return _searched(folder, text, path, names)

    return [tool(function, idempotent=True) for function in (list_files, read_file, search_files)]


# ---------------------------------------------------------------- what they do


def _listed(folder: ConfinedFolder, path: str, *, recursive: bool) -> str:
    walk = _walk(folder, path) if recursive else iter(folder.list_folder(path))
    lines: list[str] = []
    for found in walk:
        if len(lines) == MOST_ENTRIES:
            lines.append(f"[more than {MOST_ENTRIES}: list a folder of it]")
            break
        lines.append(_entry_line(found))
    return "\n".join(lines) or "[nothing is in there]"


def _entry_line(found: Found) -> str:
    name = _shown(found.path)
    return {"folder": f"{name}/", "file": f"{name}  {found.size}", "link": f"{name}  (a link, not followed)"}.get(
        found.kind, f"{name}  (no plain file)"
    )


def _read(folder: ConfinedFolder, path: str, first: int, last: int | None) -> str:
    if first < 1 or (last is not None and last < first):
        raise ToolError("lines count from 1, and the last is not before the first", code=ErrorCode.INVALID_ARGUMENTS)
    until = min(first + MOST_LINES - 1, last or first + MOST_LINES - 1)
    lines: list[str] = []
    number = size = 0
    is_more = False
    for number, line in _lines(folder, path):
        if number > until or size > MOST_CHARACTERS:
            is_more = True
            break
        if number >= first:
            lines.append(f"{number}: {line}")
            size += len(lines[-1])
    if not lines:
        return f"[the file has {number} lines]" if number else "[the file is empty]"
    if is_more:
        lines.append(f"[the file goes on after line {first + len(lines) - 1}]")
    return redact("\n".join(lines))


def _searched(folder: ConfinedFolder, text: str, path: str, names: str) -> str:
    if not text.strip():
        raise ToolError("there must be a text to look for", code=ErrorCode.INVALID_ARGUMENTS)
    wanted, deadline = text.casefold(), time.monotonic() + SECONDS
    hits: list[str] = []
    note = ""
    left = MOST_BYTES
    for count, found in enumerate(_files(folder, path)):
        if count >= MOST_FILES or left <= 0 or time.monotonic() > deadline or len(hits) >= MOST_HITS:
            note = "[there may be more: look in a folder of it]"
            break
        if not fnmatch.fnmatch(found.path.rpartition("/")[2], names):
            continue
        left -= found.size
        try:
            hits.extend(_hits(folder, found.path, wanted, MOST_HITS - len(hits), deadline))
        except ToolError:  # not text, or gone since
            continue
    return redact("\n".join([*hits, note] if note else hits)) or "[nothing was found]"


def _hits(folder: ConfinedFolder, path: str, wanted: str, most: int, deadline: float) -> list[str]:
    hits: list[str] = []
    for number, line in _lines(folder, path):
        if wanted in line.casefold():
            hits.append(f"{_shown(path)}:{number}: {line}")
        if len(hits) >= most or time.monotonic() > deadline:
            break
    return hits


def _files(folder: ConfinedFolder, path: str) -> Iterator[Found]:
    """The plain files below a folder, or the one that the path names."""
    try:
        yield from (found for found in _walk(folder, path, skips=True) if found.kind == "file")
    except ToolError:
        with folder.open_file(path):
            pass
        yield Found(path, "file", 0)


def _walk(folder: ConfinedFolder, path: str, *, skips: bool = False, depth: int = 0) -> Iterator[Found]:
    for found in folder.list_folder(path):
        if found.kind != "folder":
            yield found
            continue
        if not skips:
            yield found
        if depth < DEEPEST and not (skips and found.path.rpartition("/")[2] in _SKIPPED):
            try:
                yield from _walk(folder, found.path, skips=skips, depth=depth + 1)
            except ToolError:  # it may not be read, or is gone since
                continue


def _lines(folder: ConfinedFolder, path: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, each cut to what is bearable; raise ToolError for one of bytes."""
    with folder.open_file(path) as file:
        if b"\0" in file.peek(8192)[:8192]:  # type: ignore[attr-defined]  # a buffered file has it
            raise ToolError(f"{path[:200]!r} is no text", code=ErrorCode.TOOL_FAILED)
        number = size = 0
        while line := file.readline(4 * LONGEST_LINE):
            number += 1
            size += len(line)
            is_cut = not line.endswith(b"\n")
            while is_cut and (rest := file.readline(1 << 16)):
                size += len(rest)
                is_cut = not rest.endswith(b"\n") and size < MOST_BYTES
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield number, text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
            if size > MOST_BYTES:
                yield number + 1, "[the file is too large to be read on]"
                return


def _shown(path: str) -> str:
    """A name of the file system as text: bytes that are none are replaced."""
    return path.encode("utf-8", "replace").decode()
