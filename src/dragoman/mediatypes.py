"""Media types: whether a text is one, and which one a file has by its first bytes and the ending of its name."""

import os
import re
import stat

from .errors import InvalidValue, UnreadableData
from .files import read_stream, require_path

__all__: list[str] = []  # for this package alone

ANY_TYPE = "application/octet-stream"
# The types of files by the endings of their names.
_ENDINGS: dict[str, str] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "heic": "image/heic",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "htm": "text/html",
    "html": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "zip": "application/zip",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
}
# The types of files by their first bytes, as regular expressions. SVG alone is text.
_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBP", "image/webp"),
    (rb"BM....\x00\x00\x00\x00", "image/bmp"),
    (rb"II\*\x00|MM\x00\*", "image/tiff"),
    (rb"....ftyp(?:hei[cxs]|mif1)", "image/heic"),
    (rb"....ftypavif", "image/avif"),
    (rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?(?:<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]", "image/svg+xml"),
    (rb"%PDF-", "application/pdf"),
    (rb"RIFF....WAVE", "audio/wav"),
    (rb"ID3[\x02-\x04]\x00|\xff[\xfb\xf3\xf2]", "audio/mpeg"),
    (rb"OggS\x00", "audio/ogg"),
    (rb"fLaC\x00", "audio/flac"),
    (rb"....ftypM4A ", "audio/mp4"),
    (rb"....ftypqt  ", "video/quicktime"),
    (rb"....ftyp", "video/mp4"),
    (rb"\x1aE\xdf\xa3", "video/webm"),
    (rb"PK\x03\x04", "application/zip"),
)
# Formats that others are built on: the name says which one it is.
_CONTAINERS = frozenset({"application/zip", "video/mp4", "audio/ogg", "video/webm"})
_LONGEST_BEGINNING = 4_096
_SCHEMES = ("https", "http", "data", "gs", "s3")

# A media type as RFC 9110 writes it: two tokens, then parameters. Nothing else may reach a `data:` address.
_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = rf'({_WORD}/{_WORD})((?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|"[ !#-\[\]-~]*"))*)'
_LONGEST_MEDIA_TYPE = 255


def media_type(field: str, value: object) -> str:
    """Return the media type with type and subtype in lower case; raise InvalidValue for what is none."""
    if type(value) is not str or not value:
        raise InvalidValue.of(field, value, "non-empty text")
    match = re.fullmatch(_MEDIA_TYPE, value) if len(value) <= _LONGEST_MEDIA_TYPE else None
    if match is None:
        raise InvalidValue.of(field, value, "a media type such as image/png")
    return match[1].lower() + match[2]


def require_address(field: str, value: object) -> None:
    """Raise InvalidValue unless `value` is an address or id: text without spaces and control characters."""
    if type(value) is not str or not value:
        raise InvalidValue.of(field, value, "non-empty text")
    if not value.isprintable() or " " in value:
        raise InvalidValue.of(field, value, "an address or id without spaces and control characters")


def picture_type(mime_type: object, data: object, url: object) -> str | None:
    """Return the media type of a picture; raise InvalidValue unless it has bytes with their type, or a URL."""
    if (data is None) == (url is None):
        raise InvalidValue(f"image must have data or url, got {'neither' if data is None else 'both'}")
    if data is None:
        require_address("image.url", url)
    elif type(data) is not bytes:
        raise InvalidValue.of("image.data", data, "bytes")
    elif not data:
        raise InvalidValue("image.data must be the bytes of a picture, got none")
    if data is None and mime_type is None:
        return None
    kind = media_type("image.mimeType", mime_type)
    if not kind.startswith("image/"):
        raise InvalidValue.of("image.mimeType", mime_type, "the media type of a picture: image/…")
    return kind


def guess_type(name: str | None, data: bytes | None) -> str | None:
    """Return the media type of a file by the ending of its name, else by its bytes; None if neither is there."""
    named = _by_name(name)
    if named is not None or data is None:
        return named
    return _by_bytes(data) or ("text/plain" if _is_text(data) else ANY_TYPE)


def find_type(given: str | None, data: bytes | None, name: str | None, what: str) -> str:
    """Return the media type that was given, else that of the bytes, else that of the name.

    Raises InvalidValue where none of them says it; `what` is what the sentence calls the file.
    """
    if given is not None:
        return media_type("mime_type", given)
    if data is not None and type(data) is not bytes:
        raise InvalidValue.of_content("data", data, "bytes")
    if name is not None and type(name) is not str:
        raise InvalidValue.of("name", name, "text")
    found = None if data is None else _by_bytes(data)
    if found is None or found in _CONTAINERS:
        found = _by_name(name) or found
    if found is None and data and _is_text(data):
        return "text/plain"
    if found is None:
        told = "its name" if data is None else "its bytes" if name is None else "its bytes or its name"
        raise InvalidValue(f"the media type of {what} cannot be told from {told}: give it as mime_type=")
    return found


def find_linked_picture_type(given: str | None, url: str) -> str | None:
    """Return the type of a picture at a URL; None if its name does not tell it. Raise InvalidValue for another file."""
    name = name_in_url(url)
    return find_picture_type(given, None, name, repr(name)) if given is not None or _by_name(name) else None


def find_picture_type(given: str | None, data: bytes | None, name: str | None, what: str) -> str:
    """Return the same for a picture; raise InvalidValue for a file that is none."""
    found = find_type(given, data, name, what)
    if given is None and data is not None and _by_bytes(data) is None and _is_text(data):  # whatever its name is
        found = found if found == "image/svg+xml" else "text/plain"
    if not found.startswith("image/"):
        raise InvalidValue(f"{what} is {found}, and no picture: use FileRef for it")
    return found


def read_medium(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return the bytes of a file, and its name; raise InvalidValue for one that cannot be read, or is empty.

    Pipes and devices are refused before they are opened: a pipe without a writer would wait without end.
    """
    text = require_path("path", path)
    try:
        mode = os.stat(text).st_mode  # noqa: PTH116  # of text
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InvalidValue(
                f"{text!r} is a pipe or a device, and no file: read it, and give its bytes to from_bytes"
            )
        with open(text, "rb") as file:  # noqa: PTH123  # a Path of the same name adds nothing
            data = read_stream(file, text)
    except OSError as error:
        raise InvalidValue(f"{text!r} cannot be read: {error.strerror}") from error
    except UnreadableData as error:
        raise InvalidValue(str(error)) from error
    if not data:
        raise InvalidValue(f"{text!r} is empty")
    return data, os.path.basename(text)  # noqa: PTH119  # of text


def name_in_url(url: object) -> str:
    """Return the last part of a URL's path, for the type that it ends in; raise InvalidValue for what is no URL.

    For a `data:` address it is a name with the ending of the address's own type, if there is one.
    """
    from urllib.parse import unquote, urlsplit

    if not isinstance(url, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url):
        raise InvalidValue.of("url", url, "a URL; a file on this machine is given to from_path")
    scheme = url.partition(":")[0].lower()
    if scheme not in _SCHEMES:
        raise InvalidValue(f"url must begin with {', '.join(_SCHEMES)}, which providers can fetch, got {scheme}:")
    if url[:5].lower() == "data:":
        kind = re.split("[;,]", url[5:], maxsplit=1)[0].lower()
        return next((f"data.{ending}" for ending, known in _ENDINGS.items() if known == kind), "")
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        raise InvalidValue.of("url", url, "a URL") from None


def _by_name(name: str | None) -> str | None:
    return _ENDINGS.get((name or "").rpartition(".")[2].lower()) if name and "." in name else None


def _by_bytes(data: bytes) -> str | None:
    head = data[:_LONGEST_BEGINNING]
    return next((kind for pattern, kind in _BEGINNINGS if re.match(pattern, head, re.DOTALL)), None)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
