"""Tool results as a model is shown them: at most so many bytes of text each, whatever the level of detail.

The record keeps a result whole. What is beyond the limit is reached by `recall`: a marker says where it begins.
"""

from typing import NamedTuple

import msgspec

from ..history import (
    LIVE_SCREEN,
    Attachment,
    HistoryToolCallResult,
    LevelOfDetailSections,
    Section,
    Sections,
    ToolResultsEntry,
    to_plain_text,
    without_live_screen,
)
from ..message import FileRef
from .ledger import MARKER
from .lines import file_text, said_in

__all__ = ["first_bytes", "limit_results"]

# How much of what may be shown is the beginning; the rest is the end.
HEAD_SHARE = 2 / 3
# A cut is moved to a line break that is no further away than this share of what is shown.
_NEAR_SHARE = 0.1


def limit_results(entry: ToolResultsEntry, limit: int) -> ToolResultsEntry:
    """Return the entry with at most `limit` bytes of text in each result; the entry itself if all of them fit."""
    results: list[HistoryToolCallResult] = []
    start = 0  # where the result begins in what `recall` returns for the entry
    for result in entry.results:
        results.append(_limited(result, entry.serial, start, limit))
        start += _recalled_size(result)
    is_same = all(new is old for new, old in zip(results, entry.results, strict=True))
    return entry if is_same else msgspec.structs.replace(entry, results=tuple(results))


def first_bytes(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` bytes of it, to a line break if one is near the end of that."""
    if len(text) * 4 <= limit:
        return text
    data = text[:limit].encode()
    if len(data) <= limit and len(text) <= limit:
        return text
    head = data[:limit].decode("utf-8", "ignore")  # what is left of half a character is ignored
    line_end = head.rfind("\n")
    return head[: line_end + 1] if line_end > len(head) * (1 - _NEAR_SHARE) else head


def _limited(result: HistoryToolCallResult, serial: int, start: int, limit: int) -> HistoryToolCallResult:
    levels = result.result
    live = _limited_sections(levels.live, limit, _Place(serial, start, is_live=True))
    place = _Place(serial, start, is_live=False)
    summary = live if levels.summary is levels.live else _limited_sections(levels.summary, limit, place)
    gist = summary if levels.gist is levels.summary else _limited_sections(levels.gist, limit, place)
    kept = tuple(part for part in result.attachments if not _is_long_text(part, limit))
    if len(kept) < len(result.attachments):
        live = (*live, Section("", f"{MARKER} a long file left out: recall entry {serial}, start {start}"))
    if live is levels.live and summary is levels.summary and gist is levels.gist:
        return result
    return msgspec.structs.replace(result, result=LevelOfDetailSections(live, summary, gist), attachments=kept)


class _Place(NamedTuple):
    """Where a text stands in what `recall` returns: its entry and start; a summary or gist does not stand there."""

    serial: int
    start: int
    is_live: bool

    def marker(self, size: int, first: int, last: int) -> str:
        start = self.start + first if self.is_live else self.start
        return f"{MARKER} {last - first:,} of {size:,} characters left out: recall entry {self.serial}, start {start}"


def _limited_sections(sections: Sections, limit: int, place: _Place) -> Sections:
    said, screen = without_live_screen(sections)
    text = to_plain_text(said)
    cut = _cut(text, limit, place)
    if cut is text:
        return sections
    return (Section("", cut),) if screen is None else (Section("", cut), Section(LIVE_SCREEN, screen))


def _cut(text: str, limit: int, place: _Place) -> str:
    """The text, or its beginning and end with a marker between them: no more than `limit` bytes in all."""
    if len(text) * 4 <= limit or (len(text) <= limit and len(text.encode()) <= limit):
        return text
    room = limit - len(place.marker(len(text), 0, len(text)).encode()) - 8  # the longest numbers, and two line breaks
    if room < 4:
        return place.marker(len(text), 0, len(text))
    head = first_bytes(text, int(room * HEAD_SHARE))
    left = room - int(room * HEAD_SHARE)
    tail = text[-left:].encode()[-left:].decode("utf-8", "ignore")
    line_end = tail.find("\n")
    if 0 <= line_end < len(tail) * _NEAR_SHARE:
        tail = tail[line_end + 1 :]
    marker = place.marker(len(text), len(head), len(text) - len(tail))
    return f"{head.removesuffix(chr(10))}\n{marker}\n{tail}"


def _is_long_text(part: Attachment, limit: int) -> bool:
    return (
        isinstance(part, FileRef) and part.data is not None and len(part.data) > limit and file_text(part) is not None
    )


def _recalled_size(result: HistoryToolCallResult) -> int:
    size = len(said_in((result.to_result(),)))
    return size + 1 if size else 0
