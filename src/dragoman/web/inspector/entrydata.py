"""Entries as the page reads them: their JSON with long texts cut and pictures left out, each with where the rest is.

A text that is cut becomes `{"$cut": {"at", "head", "length", "lines"}}`, the bytes of a picture `{"$picture": {"at",
"size"}}`, other bytes `{"$bytes": {"size"}}`. `at` is a JSON Pointer (RFC 6901) into the entry.
"""

import base64
import binascii
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...history import HistoryEntry, entry_to_json
from .outlines import entry_line

__all__ = ["entry_data", "find_picture", "find_text", "picture_type"]

PIECE = 64 * 1024  # characters of a long text that are sent at once
# What a browser may draw. An SVG is a document with scripts: it is shown as text alone.
PICTURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def entry_data(entry: HistoryEntry, cut: int) -> dict[str, Any]:
    """Return an entry with texts of at most `cut` characters, one line of it, and its size in bytes."""
    data = entry_to_json(entry)
    value = msgspec.json.decode(data)
    if len(data) > cut or b'"data"' in data:
        value = _shortened(value, cut, "")
    return {"line": entry_line(entry), "size": len(data), "entry": value}


def _shortened(value: Any, cut: int, at: str) -> Any:
    if isinstance(value, str):
        if len(value) <= cut:
            return value
        return {"$cut": {"at": at, "head": value[:cut], "length": len(value), "lines": value.count("\n") + 1}}
    if isinstance(value, list):
        return [_shortened(each, cut, f"{at}/{index}") for index, each in enumerate(value)]
    if isinstance(value, dict):
        shortened = {name: _shortened(each, cut, f"{at}/{_escaped(name)}") for name, each in value.items()}
        payload = value.get("payload")
        if value.get("kind") in ("image", "file_ref") and isinstance(payload, dict):
            data = payload.get("data")
            if isinstance(data, str):
                mark = "$picture" if value["kind"] == "image" else "$bytes"
                size = len(data) * 3 // 4
                shortened["payload"]["data"] = {mark: {"at": f"{at}/payload/data", "size": size}}
        return shortened
    return value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def find_text(entry: HistoryEntry, at: str, first: int) -> dict[str, Any]:
    """Return a piece of a text of the entry from a character on; raise InvalidValue where there is no text."""
    text = _found(entry, at)
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
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
