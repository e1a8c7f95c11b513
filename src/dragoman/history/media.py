"""Pictures and files on their way to a target: the form in which it reads them, or the line of text in their place.

Pure: a path is never opened here. `Handoff` applies this to a conversation, the agent to what it shall record.
"""

import base64
import re
from typing import TypeAlias

import msgspec

from ..errors import ErrorCode, ModelError
from ..mediatypes import guess_type, media_type
from ..message import FileRef, Image, Message, ModelInvocationDescriptor, Part, Role, Text, ToolResult
from ..target import TargetRules

__all__ = [
    "Medium",
    "describe_medium",
    "describe_unreadable",
    "fit_answered_image",
    "fit_medium",
    "not_shown",
    "unreadable",
    "unshown_media",
]

Medium: TypeAlias = Image | FileRef

CANNOT_READ = "this model cannot read it"
DAMAGED = "it is damaged"
_LONGEST_NAME = 100

# Media types beside text/… whose bytes are text.
_TEXT_TYPES = re.compile(r"text/.+|application/(json|xml|yaml|toml|x-yaml|javascript|x-sh|.+\+(json|xml))")
DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?P<parameters>(?:;[^;,]*)*),", re.IGNORECASE)


def fit_medium(part: Medium, media: frozenset[str], rules: TargetRules) -> Medium | Text | None:
    """Return the part as the target takes it where it accepts `media`; a text file as text; None if it cannot be read.

    A medium without a type gets one, and a `data:` address becomes its bytes. The same part comes back if it fits.
    """
    plain = _plain(part)
    if plain is None:
        return None
    if plain.data is not None and _is_text(plain.mime_type) and (not plain.data or plain.data.isspace()):
        return Text(f"[{describe_medium(plain)}: it is empty]")  # which the APIs refuse as a document
    source = source_of(plain)
    for taken in media:
        if source in rules.type_sources.get(taken, rules.media_sources) and _is_of_type(plain, taken):
            return plain
    return _as_text(plain)


def fit_answered_image(part: Image, rules: TargetRules, *, is_native: bool) -> Medium | Text | None:
    """Return a picture of an answer as the target takes it back; None if it cannot.

    The target's own picture (`is_native`) goes back with its provider data. Without any it must be one that can be
    written down: Bedrock answers with addresses and formats that it does not take in a request.
    """
    if not is_native:
        fitted = fit_medium(part, rules.assistant_media, rules)
        return fitted and msgspec.structs.replace(fitted, provider_data=None)
    return part if part.provider_data else fit_medium(part, rules.user_media | rules.assistant_media, rules)


def describe_medium(part: Medium) -> str:
    """Return what the medium is, in one line without its content: name, type, size or source."""
    name = _name_of(part)
    said = [] if name is None else [" ".join(name.split())[-_LONGEST_NAME:].replace("[", "(").replace("]", ")")]
    said.append(part.mime_type or ("image" if isinstance(part, Image) else "file"))
    size = len(part.data) if part.data is not None else part.size if isinstance(part, FileRef) else None
    if size is not None:
        said.append(f"{size} bytes")
    line = ", ".join(word for word in said if word)
    return "".join(letter if letter.isprintable() else "?" for letter in line) + (
        "" if part.data is not None else f" by {source_of(part)}"
    )


def not_shown(part: Medium, why: str = CANNOT_READ) -> Text:
    """Return the line of text that stands for a medium."""
    return Text(f"[{describe_medium(part)}: not shown, {why}]")


def unreadable(part: Medium, rules: TargetRules, target: ModelInvocationDescriptor) -> ModelError:
    """Return the error for a medium that the target cannot read."""
    who = f"{target.provider}:{target.model}"
    why = f"{who} cannot read {describe_medium(part)}: it takes {_taken(part, rules)}"
    if isinstance(part, FileRef) and part.path is not None:
        why += ". A path is read by an Agent, in the folder AgentConfig.runtime.root; elsewhere give the bytes as data"
    return ModelError(why, code=ErrorCode.UNSUPPORTED)


def _taken(part: Medium, rules: TargetRules) -> str:
    """The media that the target reads, with how each may be given; only those of the part's type if it reads that."""
    plain = _plain(part) or part
    kinds = [kind for kind in rules.user_media if _is_of_type(plain, kind)] or rules.user_media
    by_sources: dict[str, list[str]] = {}
    for kind in sorted(kinds):
        sources = ", ".join(sorted(rules.type_sources.get(kind, rules.media_sources)))
        by_sources.setdefault(sources, []).append(f"{kind}*" if kind.endswith("/") else kind)
    return "; ".join(f"{', '.join(kinds)} as {sources}" for sources, kinds in by_sources.items()) or "text only"


def unshown_media(message: Message, rules: TargetRules, *, is_native: bool = False) -> list[Medium]:
    """Return the media of a message for which a target under these rules gets a line of text.

    `is_native` says that the target itself made the message.
    """
    if message.role is Role.ASSISTANT:
        images = (part for part in message.parts if isinstance(part, Image))
        return [part for part in images if fit_answered_image(part, rules, is_native=is_native) is None]
    elif message.role is Role.TOOL:
        (result,) = message.parts
        content = result.content if isinstance(result, ToolResult) else ()
        parts: tuple[Part, ...] = content if isinstance(content, tuple) else ()
        all_accepted = [rules.result_media, *([rules.user_media] if rules.user_after_tool else [])]
    else:
        parts, all_accepted = message.parts, [rules.user_media]
    media = (part for part in parts if isinstance(part, (Image, FileRef)))
    return [part for part in media if all(fit_medium(part, accepted, rules) is None for accepted in all_accepted)]


def describe_unreadable(message: Message, rules: TargetRules) -> Message:
    """Return a user's message with a line of text for each medium that the target cannot read; others as they are."""
    lines = {id(part): not_shown(part) for part in unshown_media(message, rules)} if message.role is Role.USER else {}
    if not lines:
        return message
    return msgspec.structs.replace(message, parts=tuple(lines.get(id(part), part) for part in message.parts))


def source_of(part: Medium) -> str:
    """Return how the medium is given: data, url, s3, file_id or path."""
    if part.data is not None:
        return "data"
    if part.url is not None:
        return "s3" if part.url.startswith("s3://") else "url"
    return "path" if part.path is not None else "file_id"  # type: ignore[union-attr]  # an image has data or a URL


def _plain(part: Medium) -> Medium | None:
    """The medium with its bytes and its type, if these can be known; None if it holds nothing that could be read."""
    if part.url is not None and part.url[:5].lower() == "data:":
        inline = _inline(part)
        if inline is None:
            return None
        part = inline
    kind = part.mime_type
    if kind is None or kind.endswith("/*"):
        guessed = guess_type(_name_of(part), part.data)
        if isinstance(part, Image) and not (guessed or "").startswith("image/"):
            guessed = None if part.data is None else kind
    else:
        guessed = kind if kind.startswith("audio/") else kind.partition(";")[0].rstrip()  # how sound was sampled counts
        guessed = "image/jpeg" if guessed == "image/jpg" else guessed
    if part.data == b"" and not _is_text(guessed):
        return None
    return part if guessed == kind else msgspec.structs.replace(part, mime_type=guessed)


def _inline(part: Medium) -> Medium | None:
    """The medium of a `data:` address, with its bytes; None for an address that holds none."""
    assert part.url is not None
    match = DATA_URL.match(part.url[:1000])
    if match is None or not match["parameters"].lower().endswith(";base64"):
        return None
    try:
        kind = media_type("url", match["type"]) if match["type"] else part.mime_type
        data = base64.b64decode(part.url[match.end() :], validate=True)
        return msgspec.structs.replace(part, url=None, data=data, mime_type=kind)
    except ValueError:  # InvalidValue is one
        return None


def _name_of(part: Medium) -> str | None:
    """The name of a file, or the end of its path or address; a picture's address is not told."""
    if isinstance(part, Image):
        return None
    location = part.path if part.path is not None else (part.url or "").partition("?")[0].partition("#")[0]
    return part.name or location.rpartition("/")[2] or None


def _is_of_type(part: Medium, taken: str) -> bool:
    """Whether this type, or prefix of types, fits. An image without a type is some image; a stored file may be any."""
    if part.mime_type is None:
        if isinstance(part, FileRef):
            return part.file_id is not None
        return taken.startswith("image/") and source_of(part) != "s3"  # the target wants their format by name
    return part.mime_type == taken or (taken.endswith("/") and part.mime_type.startswith(taken))


def _is_text(kind: str | None) -> bool:
    return kind is not None and _TEXT_TYPES.fullmatch(kind.partition(";")[0].rstrip()) is not None


def _as_text(part: Medium) -> Text | None:
    """A text file that the target cannot take as a file is simply text."""
    if not isinstance(part, FileRef) or part.data is None or not _is_text(part.mime_type):
        return None
    text = part.data.decode("utf-8", "replace")
    return Text(f"{part.name}:\n\n{text}" if part.name else text)
