"""Entries as the page reads them: their JSON with what is long cut and pictures left out, each with where the rest is.

A text that is cut becomes `{"$cut": {"at", "head", "length", "lines"}}`, the bytes of a picture `{"$picture": {"at",
"size"}}`, other bytes `{"$bytes": {"size"}}`. A list that is cut ends with `{"$more": {"at", "left", "length"}}`, and
an object that is cut has `$more` as its last key. `at` is a JSON Pointer (RFC 6901) into the entry.

No data is taken for a mark: keys of the record that are one of these names, or one with more `$` before it, get one `$`
more.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...history import HistoryEntry, entry_to_json
from .outlines import entry_line

__all__ = ["entries_data", "entry_data", "find_picture", "find_text", "picture_type", "unlike_marks"]

PIECE = 64 * 1024  # characters of a long text that are sent at once
ROOM = 900_000  # bytes of the entries of one answer, about
LEAST_ROOM = 2_000  # bytes of one entry, whatever stands beside it
LONGEST_LIST = 1_000
LEAST_CUT = 16  # characters of a text where an entry has very many
LEAST_LIST = 2  # items
LEAST_OBJECT = 24  # keys of an object: our own have fewer
LONGEST_NAME = 200  # characters of a key
# Names of our marks, and what they become in data: one `$` more than they have.
_MARK = re.compile(r"\$+(?:cut|picture|bytes|more)")
# What a browser may draw. An SVG is a document with scripts: it is shown as text alone.
PICTURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def entries_data(entries: Sequence[HistoryEntry], cut: int) -> list[dict[str, Any]]:
    """Return entries with texts of at most `cut` characters, all together in about `ROOM` bytes: long ones share it."""
    written = [entry_to_json(entry) for entry in entries]
    room = max(_fair_share([len(data) for data in written], ROOM), LEAST_ROOM)
    return [_data(entry, data, cut, room) for entry, data in zip(entries, written, strict=True)]


def entry_data(entry: HistoryEntry, cut: int, room: int = ROOM) -> dict[str, Any]:
    """Return an entry with texts of at most `cut` characters in about `room` bytes, one line of it, and its size."""
    return _data(entry, entry_to_json(entry), cut, room)


def _fair_share(sizes: Sequence[int], total: int) -> int:
    """The most that one of the sizes may have, so that all fit together: small ones leave room for the large."""
    for index, size in enumerate(sorted(sizes)):
        share = total // (len(sizes) - index)
        if size > share:
            return share
        total -= size
    return max(sizes, default=0)


def _data(entry: HistoryEntry, data: bytes, cut: int, room: int) -> dict[str, Any]:
    value = msgspec.json.decode(data)
    if len(data) > min(cut, room) or b'"data"' in data or b'"$' in data or b"\\u0024" in data:
        longest = LONGEST_LIST
        shortened = _shortened(value, cut, longest, "")
        while len(msgspec.json.encode(shortened)) > room and (cut > LEAST_CUT or longest > LEAST_LIST):
            cut, longest = max(cut // 2, LEAST_CUT), max(longest // 2, LEAST_LIST)
            shortened = _shortened(value, cut, longest, "")
        value = shortened
    return {"line": entry_line(entry), "size": len(data), "entry": value}


def _shortened(value: Any, cut: int, longest: int, at: str) -> Any:
    if isinstance(value, str):
        if len(value) <= cut:
            return value
        return {"$cut": {"at": at, "head": value[:cut], "length": len(value), "lines": value.count("\n") + 1}}
    if isinstance(value, list):
        items = [_shortened(each, cut, longest, f"{at}/{index}") for index, each in enumerate(value[:longest])]
        if len(items) < len(value):
            items.append({"$more": _more(value, longest, at)})
        return items
    if isinstance(value, dict):
        most = max(longest, LEAST_OBJECT)
        shortened = {
            _name(name, index): _shortened(each, cut, longest, f"{at}/{_escaped(name)}")
            for index, (name, each) in enumerate(islice(value.items(), most))
        }
        if len(value) > most:
            shortened["$more"] = _more(value, most, at)
        payload = value.get("payload")
        if value.get("kind") in ("image", "file_ref") and isinstance(payload, dict):
            data = payload.get("data")
            if isinstance(data, str) and isinstance(shortened.get("payload"), dict):
                mark = "$picture" if value["kind"] == "image" else "$bytes"
                size = len(data) * 3 // 4
                shortened["payload"]["data"] = {mark: {"at": f"{at}/payload/data", "size": size}}
        return shortened
    return value


def _more(value: Sequence[Any] | dict[str, Any], longest: int, at: str) -> dict[str, Any]:
    return {"at": at, "left": len(value) - longest, "length": len(value)}


def _name(name: str, index: int) -> str:
    """The key as it is shown: never one of our marks, and not too long."""
    if len(name) > LONGEST_NAME:
        return f"{name[:LONGEST_NAME]}… ({len(name):,} characters, key {index})"
    return unlike_marks(name)


def unlike_marks(name: str) -> str:
    """Return a key of the record as it is shown: one `$` more where it looks like one of our marks."""
    return f"${name}" if _MARK.fullmatch(name) else name


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def find_text(entry: HistoryEntry, at: str, first: int) -> dict[str, Any]:
    """Return a piece of a text of the entry from a character on; of an object or a list, a piece of its JSON.

    Raises InvalidValue where the entry has none of them. A browser must not write that JSON: it rounds long numbers.
    """
    text = _found(entry, at)
    if isinstance(text, (dict, list)):
        text = msgspec.json.format(msgspec.json.encode(text), indent=2).decode()
    if not isinstance(text, str):
        raise InvalidValue("there is no text at that place of the entry")
    return {"text": text[first : first + PIECE], "from": first, "length": len(text)}


def find_picture(entry: HistoryEntry, at: str) -> tuple[bytes, str]:
    """Return the bytes of a picture of the entry and their type; raise InvalidValue for what no browser may draw."""
    data = _found(entry, at)
    if not isinstance(data, str) or not at.endswith("/payload/data"):
        raise InvalidValue("there is no picture at that place of the entry")
    try:
        picture = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValue("the bytes of the picture cannot be read") from None
    return picture, picture_type(picture)


def picture_type(picture: bytes) -> str:
    """Return the media type by the picture's own bytes; raise InvalidValue for what no browser may draw."""
    for beginning, kind in PICTURES:
        if picture.startswith(beginning):
            return kind
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    raise InvalidValue("this is no PNG, JPEG, GIF or WebP: it is not drawn")


def _found(entry: HistoryEntry, at: str) -> Any:
    """The value at a JSON Pointer of the entry."""
    value = msgspec.json.decode(entry_to_json(entry))
    for step in at.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif (
            isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(value)
        ):
            value = value[int(name)]
        else:
            return None
    return value
