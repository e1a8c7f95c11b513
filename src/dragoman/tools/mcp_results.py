"""The result of an MCP tool to what a tool of ours returns: text, pictures, and structure as JSON. Pure."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._jsontext import decode_json, encode_json
from ..errors import ErrorCode, InvalidValue, ToolError, UnreadableData
from ..history.sections import Section, to_plain_text
from ..message import Image
from .definition import ToolOutput
from .results import shorten

if TYPE_CHECKING:
    from mcp import types

__all__ = ["read_result"]

_LONGEST_FAILURE = 4_000  # characters of what a tool says about its own failure
_LONGEST_NAME = 200  # of a resource, its address, its type
_LONG_TEXT = 200  # texts of so many characters are not repeated


def read_result(result: "types.CallToolResult", hide: Callable[[str], str]) -> ToolOutput:
    """Return what the tool said; raise ToolError (tool_failed) with what `hide` leaves of its words if it failed."""
    sections: list[Section] = []
    images: list[Image] = []
    for block in result.content:
        told = _read_block(block)
        if isinstance(told, Image):
            images.append(told)
        else:
            sections.append(Section("", told))
    structured = result.structured_content
    if structured is not None and not _is_said(structured, result.content):
        told = encode_json(_without_repeated(structured, result.content)).decode()
        sections.append(Section("Structured result" if sections else "", told))
    if result.is_error:
        said = to_plain_text(tuple(sections)).strip() or "The tool failed without saying why."
        raise ToolError(hide(shorten(said, _LONGEST_FAILURE)), code=ErrorCode.TOOL_FAILED)
    return ToolOutput(sections, attachments=images)


def _read_block(block: "types.ContentBlock") -> str | Image:
    match block.type:
        case "text":
            return block.text
        case "image":
            return _picture(block.mime_type, block.data)
        case "audio":
            return f"[audio, {_name(block.mime_type)}, {_size(block.data)}: not shown]"
        case "resource_link":
            known = (block.title or block.name, block.mime_type, block.description)
            about = ", ".join(_name(item) for item in known if item)
            return f"[a resource: {_name(block.uri)} ({about})]"
        case "resource":
            return _resource(block.resource)


def _resource(resource: "types.TextResourceContents | types.BlobResourceContents") -> str | Image:
    address, kind = _name(resource.uri), resource.mime_type or "application/octet-stream"
    text = getattr(resource, "text", None)
    if text is not None:
        return f"{address}\n{text}"
    blob = getattr(resource, "blob", "")
    if kind.lower().startswith("image/"):
        return _picture(kind, blob)
    return f"[a resource: {address}, {_name(kind)}, {_size(blob)}: not shown]"


def _picture(mime_type: str, data: str) -> str | Image:
    """The picture, or a line about one that cannot be read."""
    try:
        if not mime_type.lower().startswith("image/"):
            raise InvalidValue.of("the type of a picture", mime_type, "image/…")
        return Image(mime_type.lower(), base64.b64decode("".join(data.split()), validate=True))
    except (InvalidValue, binascii.Error, ValueError):
        return f"[a picture, {_name(mime_type)}: it could not be read]"


def _is_said(structured: Any, content: "Sequence[types.ContentBlock]") -> bool:
    """Whether the content already says the same: servers write a structured result as content too, for older clients.

    The Python SDK wraps what is no object as `{"result": …}` and writes a list as one text for each item. The official
    filesystem server wraps its content as `{"content": …}`, the memory server a list by its name: `{"entities": […]}`.
    """
    texts = [block.text for block in content if block.type == "text"]
    read = [_read_json(text) for text in texts]
    said = [*read, read, *texts, texts]
    if content:
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]
        said += [*blocks, blocks]
    meant = structured
    while True:
        if any(type(meant) is type(other) and meant == other for other in said):
            return True
        if not isinstance(meant, dict) or len(meant) != 1:
            return not content and (meant is None or meant in ({}, []))
        ((name, meant),) = meant.items()
        # A number alone says little without its name.
        if name != "result" and not isinstance(meant, (str, list, dict)):
            return False


def _without_repeated(structured: Any, content: "Sequence[types.ContentBlock]") -> Any:
    """The structured result with a line in place of each long text and of all media that the content shows."""
    shown: set[str] = set()
    for block in content:
        holder = block.resource if block.type == "resource" else block
        shown.update(said for name in ("text", "data", "blob") if (said := getattr(holder, name, None)))

    def shorten_repeated(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shorten_repeated(item) for name, item in value.items()}
        if isinstance(value, list):
            return [shorten_repeated(item) for item in value]
        is_repeated = isinstance(value, str) and len(value) >= _LONG_TEXT and value in shown
        return "[as above]" if is_repeated else value

    return shorten_repeated(structured)


def _read_json(text: str) -> Any:
    try:
        return decode_json(text)
    except UnreadableData:
        return text


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4} bytes"


def _name(text: str) -> str:
    """A name or address as a line can hold it."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}…"
