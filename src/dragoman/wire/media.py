"""Pictures, files and results in another program's JSON → the parts that hold them here."""

import base64
import binascii
from typing import Any

from .._jsontext import encode_json
from ..errors import UnreadableData
from ..history.media import DATA_URL
from ..mediatypes import ANY_TYPE
from ..message import FileRef, Image
from .reading import Node, reading

__all__ = ["decoded", "media_by_url", "media_of_bytes", "openai_file", "result_content", "stored_file"]

_STANDARD_ALPHABET = str.maketrans("-_", "+/")


def decoded(node: Node) -> bytes:
    """Return the bytes of base64 text, in either alphabet, with or without padding.

    Pydantic writes bytes in the URL-safe alphabet, and so does pydantic-ai with every file.
    """
    text = node.text().translate(_STANDARD_ALPHABET).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableData(f"{node.where} must be base64") from None


def media_by_url(node: Node, mime_type: str | None = None, name: str | None = None) -> Image | FileRef:
    """Return the picture or file at an address; a `data:` address holds its bytes."""
    url = node.text()
    match = DATA_URL.match(url[:1000])
    with reading(node.where):
        if match is not None and match["parameters"].lower().endswith(";base64"):
            data = decoded(Node(url[match.end() :], node.where))
            return media_of_bytes(data, match["type"] or mime_type, name, node.where)
        if (mime_type or "").startswith("image/"):
            return Image(mime_type=None if mime_type == "image/*" else mime_type, url=url)
        return FileRef(url=url, mime_type=mime_type, name=name or None)


def media_of_bytes(data: bytes, mime_type: str | None, name: str | None, where: str) -> Image | FileRef:
    """Return the picture or file that these bytes are."""
    kind = ANY_TYPE if mime_type is None or mime_type.endswith("/*") else mime_type
    with reading(where):
        if kind.startswith("image/"):
            return Image(mime_type=kind, data=data)
        return FileRef(data=data, mime_type=kind, name=name or None)


def stored_file(node: Node, mime_type: str | None = None, name: str | None = None) -> FileRef:
    """Return the file that a provider keeps under an id."""
    with reading(node.where):
        return FileRef(file_id=node.text(), mime_type=mime_type, name=name or None)


def openai_file(node: Node) -> Image | FileRef:
    """Return the file in a file object of OpenAI's APIs: a stored file's id, bytes, or an address."""
    name = node.text_if("filename")
    if node.has("file_id"):
        return stored_file(node.child("file_id"), name=name)
    if node.has("file_url"):
        return media_by_url(node.child("file_url"), name=name)
    data = node.child("file_data")
    if data.text().startswith("data:"):
        return media_by_url(data, name=name)
    if data.text().startswith(("https://", "http://")):  # OpenRouter takes an address here
        return media_by_url(data, "application/pdf", name)
    return media_of_bytes(decoded(data), "application/pdf", name, node.where)


def result_content(value: Any) -> str | dict[str, Any]:
    """Return a tool's value as the content of a result: text and objects as they are, other values as JSON."""
    return value if isinstance(value, (str, dict)) else encode_json(value).decode()
