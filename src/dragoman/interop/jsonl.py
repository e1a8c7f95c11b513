"""Entries to JSON Lines and back: one entry a line, in the published schema, the same bytes for the same entry."""

from collections.abc import Iterable, Iterator

from ..errors import InvalidValue, UnreadableData
from ..history import HistoryEntry, entry_from_json, entry_to_json

__all__ = ["read_jsonl", "write_jsonl"]


def write_jsonl(entries: Iterable[HistoryEntry]) -> Iterator[bytes]:
    """Yield each entry as one line, its line break included."""
    for entry in entries:
        yield entry_to_json(entry) + b"\n"


def read_jsonl(lines: bytes | str | Iterable[bytes | str]) -> Iterator[HistoryEntry]:
    """Yield the entry of each line, of a whole text or of anything that gives lines; blank lines are passed over.

    Raises UnreadableData, with the number of the line, for one that is damaged or was written by a later version.
    """
    if isinstance(lines, bytes):
        lines = lines.split(b"\n")
    elif isinstance(lines, str):
        lines = lines.split("\n")
    elif not isinstance(lines, Iterable):
        raise InvalidValue.of("read_jsonl: the lines", lines, "text, bytes, or an iterable of lines")
    for number, line in enumerate(lines, 1):
        if isinstance(line, (bytes, str)) and not line.strip():
            continue
        try:
            yield entry_from_json(line)
        except UnreadableData as error:
            raise UnreadableData(f"line {number}: {error}", code=error.code) from None
        except InvalidValue as error:
            raise UnreadableData(f"line {number}: {error.unquoted or error}") from None
