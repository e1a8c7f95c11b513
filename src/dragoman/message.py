"""Messages and the parts they hold: frozen values that refuse what their role or kind forbids.

Knows no provider, no clock and no JSON layout (`jsonform` has that); `providerData` is opaque here.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from ._frozen import frozen
from ._jsontext import encode_json, freeze_object, join_surrogates, parse_arguments, says_arguments
from .errors import InvalidValue
from .mediatypes import (
    find_linked_picture_type,
    find_picture_type,
    find_type,
    media_type,
    name_in_url,
    picture_type,
    read_medium,
    require_address,
)
from .usage import TokenUsage, require_count

__all__ = [
    "ROLE_PARTS",
    "FileRef",
    "FinishReason",
    "Image",
    "Message",
    "MessageMeta",
    "ModelInvocationDescriptor",
    "Part",
    "ProviderItem",
    "Role",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "UnknownPart",
]


_Word = TypeVar("_Word", bound=StrEnum)


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class FinishReason(StrEnum):
    """Why a model stopped; the provider's own word is kept beside it."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"

    @property
    def is_complete(self) -> bool:
        """Whether it says that the model ended its answer itself. Only words that are known to say so do."""
        return self in _COMPLETE_REASONS


_COMPLETE_REASONS = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.REFUSAL})


# Which kinds of part a role may hold. A part of a kind this version does not know may stand anywhere.
ROLE_PARTS: dict[Role, frozenset[str]] = {
    Role.SYSTEM: frozenset({"text", "thinking"}),
    Role.USER: frozenset({"text", "image", "file_ref"}),
    Role.ASSISTANT: frozenset({"text", "thinking", "tool_call", "image", "provider_item"}),
    Role.TOOL: frozenset({"tool_result"}),
}
RESULT_PARTS = frozenset({"text", "image", "file_ref"})


class _Value(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", kw_only=True):
    """What every part shares: `extra`, the fields of a later version in the JSON's own layout, written back as read."""

    kind: ClassVar[str]
    extra: dict[str, Any] | None = None


class _ModelPart(_Value, frozen=True, kw_only=True):
    """A part that a model may have produced: `provider_data` is what its provider needs back verbatim."""

    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.provider_data is not None:
            freeze_object(self, "provider_data", f"{self.kind}.providerData")
        if self.extra is not None:
            require_extra(self, part_shape(type(self)))


class Text(_ModelPart, frozen=True):
    """Words for the reader."""

    kind: ClassVar[str] = "text"
    text: str

    def __post_init__(self) -> None:
        require_text("text.text", self.text)
        _ModelPart.__post_init__(self)


class Thinking(_ModelPart, frozen=True):
    """A model's reasoning; the text may be empty where the provider gives only a signature."""

    kind: ClassVar[str] = "thinking"
    text: str

    def __post_init__(self) -> None:
        require_text("thinking.text", self.text)
        _ModelPart.__post_init__(self)


class ToolCall(_ModelPart, frozen=True):
    """A model's request to run a tool.

    `arguments` is there only if the text parsed to an object, else `parse_error` is. `raw_args_text` is what
    the model wrote, and says these arguments; where it is not given, it is the arguments as JSON. It is empty where a
    model called a tool without any.
    """

    kind: ClassVar[str] = "tool_call"
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any] | None = None
    raw_args_text: str = None  # type: ignore[assignment]  # set in __post_init__ where it is not given
    parse_error: str | None = None
    parse_warning: str | None = None

    def __post_init__(self) -> None:
        repair_names(self, "tool_call_id", "tool_name")
        if (self.arguments is None) == (self.parse_error is None):
            seen = "neither" if self.arguments is None else "both"
            raise InvalidValue(f"tool_call must have either arguments or parseError, got {seen}")
        if self.arguments is not None:
            freeze_object(self, "arguments", "tool_call.arguments")
        for name, said in (("parseError", self.parse_error), ("parseWarning", self.parse_warning)):
            if said is not None:
                require_name(f"tool_call.{name}", said)
        written = None
        if self.raw_args_text is None:
            written = "" if self.arguments is None else encode_json(self.arguments).decode()
            force_setattr(self, "raw_args_text", written)
        require_text("tool_call.rawArgsText", self.raw_args_text)
        if written is None and self.arguments is not None and not says_arguments(self.raw_args_text, self.arguments):
            raise InvalidValue("tool_call.rawArgsText must say what tool_call.arguments are, or be left out")
        _ModelPart.__post_init__(self)

    @classmethod
    def parse(
        cls, tool_call_id: str, tool_name: str, raw_args_text: str, *, provider_data: dict[str, Any] | None = None
    ) -> "ToolCall":
        """Return the call with its argument text read, or with the `parse_error` that says why it is no object."""
        require_text("tool_call.rawArgsText", raw_args_text)
        parsed = parse_arguments(raw_args_text)
        call = cls(
            tool_call_id,
            tool_name,
            raw_args_text=join_surrogates(raw_args_text),
            parse_error=parsed.error or "not read yet",
            parse_warning=parsed.warning,
            provider_data=provider_data,
        )
        if parsed.arguments is not None:  # just read, so that they need no check: neither as JSON nor against the text
            force_setattr(call, "arguments", parsed.arguments)
            force_setattr(call, "parse_error", None)
        return call


class Image(_ModelPart, frozen=True):
    """A picture, as bytes with their type or as a URL. The type is an `image/…` one, kept in lower case."""

    kind: ClassVar[str] = "image"
    mime_type: str | None = None
    data: bytes | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "mime_type", picture_type(self.mime_type, self.data, self.url))
        _ModelPart.__post_init__(self)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, mime_type: str | None = None) -> "Image":
        """Return the picture in a file, which is read now. Its type is that of its bytes, else that of its name."""
        data, name = read_medium(path)
        return cls(find_picture_type(mime_type, data, name, repr(name)), data)

    @classmethod
    def from_bytes(cls, data: bytes, *, mime_type: str | None = None) -> "Image":
        """Return the picture with these bytes, which say its type where `mime_type` does not."""
        return cls(find_picture_type(mime_type, data, None, "the picture"), data)

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None) -> "Image":
        """Return the picture at a URL, which the provider fetches. Its name tells its type, or none does."""
        return cls(find_linked_picture_type(mime_type, url), url=url)


class FileRef(_ModelPart, frozen=True):
    """A file by exactly one of: path, URL, a provider's file id, or its bytes.

    An agent reads a path, in the folder `AgentConfig.runtime.root`, and records type, `size` and `sha256` of what it
    read. With `sha256` the file is shown to a model only while its bytes have that digest.
    """

    kind: ClassVar[str] = "file_ref"
    path: str | None = None
    url: str | None = None
    file_id: str | None = None
    data: bytes | None = None
    mime_type: str | None = None
    name: str | None = None
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("path", "url", "file_id", "data") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidValue(f"file_ref must have exactly one of path, url, fileId, data; got {given or 'none'}")
        if self.data is None:
            require = require_name if self.path is not None else require_address
            require(f"file_ref.{given[0]}", getattr(self, given[0]))
        elif type(self.data) is not bytes:
            raise InvalidValue.of("file_ref.data", self.data, "bytes")
        if self.mime_type is not None:
            force_setattr(self, "mime_type", media_type("file_ref.mimeType", self.mime_type))
            if self.data == b"" and self.mime_type.startswith("image/"):
                raise InvalidValue("file_ref.data must be the bytes of a picture, got none")
        if self.name is not None:
            require_name("file_ref.name", self.name)
        if self.size is not None:
            require_count("file_ref.size", self.size)
        if self.sha256 is not None and (type(self.sha256) is not str or not re.fullmatch("[0-9a-f]{64}", self.sha256)):
            raise InvalidValue.of("file_ref.sha256", self.sha256, "64 digits from 0 to f")
        _ModelPart.__post_init__(self)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, mime_type: str | None = None) -> "FileRef":
        """Return a file with its bytes, which are read now. Its type is that of its bytes, else that of its name."""
        data, name = read_medium(path)
        return cls(data=data, mime_type=find_type(mime_type, data, name, repr(name)), name=name)

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str | None = None, mime_type: str | None = None) -> "FileRef":
        """Return a file with these bytes. Its type is that of its bytes, else that of its name."""
        return cls(data=data, mime_type=find_type(mime_type, data, name, repr(name) if name else "the file"), name=name)

    @classmethod
    def from_url(cls, url: str, *, name: str | None = None, mime_type: str | None = None) -> "FileRef":
        """Return the file at a URL, which the provider fetches. Its type is that of its name."""
        name = name or name_in_url(url) or None
        what = repr(name) if name else "the file at this URL"  # a URL may hold a key or, as a data: address, the file
        return cls(url=url, mime_type=find_type(mime_type, None, name, what), name=name)


class ProviderItem(_ModelPart, frozen=True):
    """An output item that only its provider understands, kept whole; `text` says it to everyone else."""

    kind: ClassVar[str] = "provider_item"
    item_type: str
    item: dict[str, Any]
    text: str | None = None

    def __post_init__(self) -> None:
        require_item(self)
        _ModelPart.__post_init__(self)


class UnknownPart(_Value, frozen=True):
    """A part of a kind that a later version wrote; `payload` is kept as it was read."""

    kind: str  # type: ignore[misc]  # the one class whose kind is data
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        require_name("kind", self.kind)
        if self.kind in PART_CLASSES:
            raise InvalidValue(f"kind {self.kind!r} is known here: use {PART_CLASSES[self.kind].__name__}")
        freeze_object(self, "payload", f"{self.kind}.payload")
        if self.extra is not None:
            require_extra(self, part_shape(type(self)))


ResultPart: TypeAlias = Text | Image | FileRef | UnknownPart


class ToolResult(_Value, frozen=True):
    """The one result of a tool call: text, a JSON object, or parts."""

    kind: ClassVar[str] = "tool_result"
    tool_call_id: str
    content: str | dict[str, Any] | tuple[ResultPart, ...]
    is_error: bool = False

    def __post_init__(self) -> None:
        repair_names(self, "tool_call_id")
        if type(self.is_error) is not bool:
            raise InvalidValue.of("tool_result.isError", self.is_error, "true or false")
        if isinstance(self.content, list):
            force_setattr(self, "content", tuple(self.content))
        if isinstance(self.content, dict):
            freeze_object(self, "content", "tool_result.content")
        elif isinstance(self.content, tuple):
            for part in self.content:
                require_part("tool_result.content", part, RESULT_PARTS)
        elif type(self.content) is not str:
            raise InvalidValue.of_content("tool_result.content", self.content, "text, a dict, or parts")
        if self.extra is not None:
            require_extra(self, part_shape(type(self)))


Part: TypeAlias = Text | Thinking | ToolCall | ToolResult | Image | FileRef | ProviderItem | UnknownPart

PART_CLASSES: dict[str, type[Text | Thinking | ToolCall | ToolResult | Image | FileRef | ProviderItem]] = {
    part.kind: part for part in (Text, Thinking, ToolCall, ToolResult, Image, FileRef, ProviderItem)
}
MEDIA_KINDS = frozenset({Image.kind, FileRef.kind})
_ALL_PART_CLASSES = (*PART_CLASSES.values(), UnknownPart)


class ModelInvocationDescriptor(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel"):
    """Which model said it: provider, wire specification, model. Opaque data goes back only where these allow it."""

    provider: str
    specification: str
    model: str

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            require_name(f"invocation.{name}", getattr(self, name))


class MessageMeta(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", omit_defaults=True, kw_only=True
):
    """What is known about a message beside its parts. `extra` holds the caller's own keys, and a later version's."""

    usage: TokenUsage | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    invocation: ModelInvocationDescriptor | None = None
    model_id: str | None = None
    request_id: str | None = None
    # The trace that the caller named in the request's metadata.
    trace_id: str | None = None
    parse_failures: tuple[str, ...] | None = None
    # The stream broke off: this is what had arrived. Its calls must not be run, and its text is marked when it is sent.
    interrupted: bool | None = None
    provider_data: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.usage is not None and not isinstance(self.usage, TokenUsage):
            raise InvalidValue.of("meta.usage", self.usage, "a TokenUsage")
        if self.invocation is not None and not isinstance(self.invocation, ModelInvocationDescriptor):
            raise InvalidValue.of("meta.invocation", self.invocation, "a ModelInvocationDescriptor")
        if self.finish_reason is not None:
            force_setattr(self, "finish_reason", finish_reason(self.finish_reason))
        for name in ("raw_finish_reason", "model_id", "request_id", "trace_id"):
            if getattr(self, name) is not None:
                require_text(f"meta.{name}", getattr(self, name))
        if self.interrupted is not None and type(self.interrupted) is not bool:
            raise InvalidValue.of("meta.interrupted", self.interrupted, "true or false")
        if self.parse_failures is not None:
            if not isinstance(self.parse_failures, (tuple, list)):
                raise InvalidValue.of("meta.parseFailures", self.parse_failures, "a sequence of tool call ids")
            force_setattr(self, "parse_failures", tuple(self.parse_failures))
            for call_id in self.parse_failures:
                require_name("meta.parseFailures", call_id)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "meta.providerData")
        require_extra(self, META_SHAPE, "meta.extra")


MESSAGE_SHAPE: dict[str, Any] = dict.fromkeys(("runId", "role", "parts", "timestamp", "meta", "schemaVersion"))


class Message(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel"):
    """One message of a conversation: parts in the order they were said, which nothing may change."""

    role: Role
    parts: tuple[Part, ...]
    run_id: str = ""
    timestamp: datetime | None = None
    meta: MessageMeta | None = None
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.role) is not Role:
            if not isinstance(self.role, str) or self.role not in ROLE_PARTS:
                raise InvalidValue.of("role", self.role, "one of system, user, assistant, tool")
            force_setattr(self, "role", Role(self.role))
        if not isinstance(self.parts, tuple):
            if not isinstance(self.parts, list):
                raise InvalidValue.of_content("parts", self.parts, "a sequence of parts")
            force_setattr(self, "parts", tuple(self.parts))
        for part in self.parts:
            require_part(f"a {self.role} message", part, ROLE_PARTS[self.role])
        if self.role is Role.TOOL and len(self.parts) != 1:
            raise InvalidValue(f"a tool message must hold exactly one tool_result, got {len(self.parts)} parts")
        require_text("runId", self.run_id)
        force_setattr(self, "timestamp", utc_time(self.timestamp))
        if self.meta is not None and not isinstance(self.meta, MessageMeta):
            raise InvalidValue.of("meta", self.meta, "a MessageMeta")
        require_extra(self, MESSAGE_SHAPE)

    @classmethod
    def system(cls, *parts: Part | str, run_id: str = "", timestamp: datetime | None = None) -> "Message":
        """Return a system message; a string is a text part."""
        return cls(Role.SYSTEM, _parts(parts), run_id, timestamp)

    @classmethod
    def user(cls, *parts: Part | str, run_id: str = "", timestamp: datetime | None = None) -> "Message":
        """Return a user message; a string is a text part."""
        return cls(Role.USER, _parts(parts), run_id, timestamp)

    @classmethod
    def assistant(
        cls,
        *parts: Part | str,
        run_id: str = "",
        timestamp: datetime | None = None,
        invocation: ModelInvocationDescriptor | None = None,
    ) -> "Message":
        """Return an assistant message; without an invocation it is foreign to every model."""
        meta = MessageMeta(invocation=invocation) if invocation else None
        return cls(Role.ASSISTANT, _parts(parts), run_id, timestamp, meta)

    @classmethod
    def tool(cls, result: ToolResult, *, run_id: str = "", timestamp: datetime | None = None) -> "Message":
        """Return the message that carries one tool's result."""
        return cls(Role.TOOL, (result,), run_id, timestamp)

    @property
    def text(self) -> str:
        """All text parts joined, with nothing between them."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order; one with a `parse_error` must not be executed."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def require_text(field: str, value: object) -> None:
    """Raise InvalidValue unless `value` is a string."""
    if type(value) is not str:
        raise InvalidValue.of(field, value, "text")


def require_bool(field: str, value: object) -> None:
    """Raise InvalidValue unless this is True or False."""
    if type(value) is not bool:
        raise InvalidValue.of(field, value, "true or false")


def require_name(field: str, value: object) -> None:
    """Raise InvalidValue unless `value` is a string with something in it."""
    if type(value) is not str or not value:
        raise InvalidValue.of(field, value, "non-empty text")


def repair_names(value: msgspec.Struct, *names: str) -> None:
    """Require names and ids, and replace lone surrogates in them at once: what is compared is what is read back."""
    for name in names:
        text = getattr(value, name)
        require_name(f"{getattr(value, 'kind', 'result')}.{name}", text)
        if not text.isascii():
            force_setattr(value, name, join_surrogates(text))


def require_item(value: Any) -> None:
    """Raise InvalidValue unless the value has a provider item's type, JSON and optional text; freeze the JSON."""
    require_name("provider_item.itemType", value.item_type)
    freeze_object(value, "item", "provider_item.item")
    if value.text is not None:
        require_text("provider_item.text", value.text)


def shape_of(value_class: type[msgspec.Struct], skip: frozenset[str] = frozenset({"extra"})) -> dict[str, Any]:
    """Return the JSON names of the fields of a class, without those to skip; an object inside has its own shape."""
    names = zip(value_class.__struct_fields__, value_class.__struct_encode_fields__, strict=True)
    return {json_name: _INNER_SHAPES.get(name) for name, json_name in names if name not in skip}


_INNER_SHAPES: dict[
    str, dict[str, Any]
] = {}  # of fields that hold an object whose own fields a later version may add to
_INNER_SHAPES.update(
    usage=shape_of(TokenUsage),
    invocation=shape_of(ModelInvocationDescriptor),
)
META_SHAPE = shape_of(MessageMeta)


@cache
def part_shape(part_class: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the known fields of a part's JSON."""
    return {"kind": None, "payload": None if part_class is UnknownPart else shape_of(part_class)}


def require_extra(value: Any, shape: dict[str, Any], field: str = "extra") -> None:
    """Raise InvalidValue unless `extra` is None or JSON without a known field: those are written from the value itself.

    A later version may have put fields inside an object of ours; then that object must be there. Fields that are null
    are left out, because null is the same as absent.
    """
    if value.extra is None:
        return
    freeze_object(value, "extra", field)
    pending = [(value.extra, shape)]
    while pending:
        extra, known = pending.pop()
        for name in extra.keys() & known.keys():
            inner, unknown = known[name], extra[name]
            is_inside = inner is not None and isinstance(unknown, dict) and getattr(value, name, value) is not None
            if not is_inside or all(item is None for item in unknown.values()):
                raise InvalidValue(f"{field} cannot have the key {name!r}: that field is known here")
            pending.append((unknown, inner))
    kept = _without_nulls(value.extra, shape)
    if kept != value.extra or not kept:
        force_setattr(value, "extra", frozen(kept) if kept else None)


def _without_nulls(extra: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not null, here and inside the objects of the shape."""
    return {
        name: _without_nulls(value, shape[name]) if name in shape else value
        for name, value in extra.items()
        if value is not None
    }


def finish_reason(value: object) -> FinishReason:
    """Return the finish reason that `value` names; raise InvalidValue for any other word."""
    return as_word("finishReason", value, FinishReason)


def as_word(field: str, value: object, words: type[_Word]) -> _Word:
    """Return the word that `value` is, itself or as text; raise InvalidValue if it is none of them."""
    if isinstance(value, str) and value in words._value2member_map_:
        return words(value)
    raise InvalidValue.of(field, value, f"one of {', '.join(words)}")


def require_messages(messages: object) -> None:
    """Raise InvalidValue unless this is a sequence of messages. Of its members only the first and the last are seen."""
    is_sequence = isinstance(messages, Sequence) and not isinstance(messages, (str, bytes))
    given = (messages[:1], messages[-1:]) if is_sequence else ()  # type: ignore[index]  # a sequence
    wrong = next((each for some in given for each in some if not isinstance(each, Message)), None)
    if is_sequence and wrong is None:
        return
    allowed = 'a list of Message values, such as [Message.user("Hi")]'
    if isinstance(messages, Message):
        raise InvalidValue(f"messages must be {allowed}, got one Message: put it into a list")
    if isinstance(wrong, Mapping):
        hint = "dragoman.interop reads the messages of other libraries, import_openai_chat(messages) those of OpenAI"
        raise InvalidValue(f"messages must be {allowed}, got a list of {type(wrong).__name__}: {hint}")
    raise InvalidValue.of_content("messages", messages if wrong is None else wrong, allowed)


def require_part(owner: str, part: object, allowed: frozenset[str]) -> None:
    """Raise InvalidValue unless `part` is a part of one of the `allowed` kinds, or of a kind unknown here."""
    if not isinstance(part, _ALL_PART_CLASSES):
        raise InvalidValue.of_content(f"{owner}: a part", part, f"a part of kind {', '.join(sorted(allowed))}")
    if part.kind not in allowed and not isinstance(part, UnknownPart):
        raise InvalidValue(f"{owner} cannot hold a {part.kind} part: allowed are {', '.join(sorted(allowed))}")


def utc_time(timestamp: object) -> datetime | None:
    """Return the timestamp in UTC; raise InvalidValue for one without a time zone."""
    if timestamp is None:
        return None
    if type(timestamp) is not datetime:
        raise InvalidValue.of("timestamp", timestamp, "a datetime with a time zone")
    if timestamp.tzinfo is UTC:
        return timestamp
    if timestamp.utcoffset() is None:
        raise InvalidValue("timestamp must be a datetime with a time zone, got one without")
    try:
        return timestamp.astimezone(UTC)
    except OverflowError:
        raise InvalidValue("timestamp must be a time that UTC has: the years 1 to 9999") from None


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(part) if isinstance(part, str) else part for part in parts)
