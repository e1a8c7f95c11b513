"""The JSON form of messages and deltas, in both directions. `schema` publishes what is written here.

The layout is `{"kind": …, "payload": {…}}` inside an envelope. A field that is None is left out; null is read as
absent. Fields and kinds of a later version are kept in `extra`, `UnknownPart` and `UnknownDelta` and written back.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from ._jsontext import decode_json, encode_json
from .delta import DELTA_CLASSES, MessageDelta, UnknownDelta, UsageDelta, delta_shape
from .errors import ErrorCode, InvalidValue, UnreadableData
from .message import (
    MEDIA_KINDS,
    MESSAGE_SHAPE,
    META_SHAPE,
    PART_CLASSES,
    Message,
    MessageMeta,
    Part,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
    part_shape,
)

__all__ = ["SCHEMA_VERSION", "from_json", "to_json"]

# Raised only when an older reader could no longer read what is written. A file without a version is of version 1.
SCHEMA_VERSION = 1
VERSION_FIELD = "schemaVersion"

JsonObject: TypeAlias = dict[str, Any]
_Value = TypeVar("_Value", bound=msgspec.Struct)

_ENVELOPE = frozenset({"run_id", "seq", "timestamp", "provider_raw", "extra"})
_EXTRA = frozenset({"extra"})
# What code raises that reads JSON of another form than it expects: hostile data must never end in anything else.
_NOT_ITS_FORM = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def to_json(value: Message | MessageDelta) -> bytes:
    """Return the value as compact JSON; the same value always gives the same bytes."""
    if isinstance(value, Message):
        return encode_json(message_to_object(value))
    if isinstance(value, (UnknownDelta, *DELTA_CLASSES.values())):
        return encode_json(_delta_object(value))
    raise InvalidValue.of("to_json: the value", value, "a Message or a MessageDelta")


def from_json(data: bytes | str) -> Message | MessageDelta:
    """Return the message or delta that `data` says; raise UnreadableData for anything else, or a later version's."""
    if not isinstance(data, (bytes, str)):
        raise InvalidValue.of("from_json: the data", data, "bytes or text")
    value = decode_json(data)
    if not isinstance(value, dict):
        raise UnreadableData("neither a message nor a delta: the JSON is not an object")
    take_version(value)
    is_delta = all(value.get(name) is not None for name in ("seq", "kind", "payload")) and "parts" not in value
    if is_delta or (value.get("role") is None and value.get("kind") is not None):
        return read_object(value, _build_delta, lambda delta: delta_shape(type(delta)), "delta")
    if value.get("role") is not None:
        return message_from_object(value)
    raise UnreadableData("neither a message (it has a role) nor a delta (it has a seq and a kind)")


def take_version(value: JsonObject) -> None:
    """Take the schema version out of the object; raise UnreadableData (`too_new`) for a later one than ours."""
    version = value.pop(VERSION_FIELD, None)
    if version is None:
        version = 1
    if type(version) is not int or version < 1:
        raise UnreadableData(f"{VERSION_FIELD} must be a whole number from 1 up, got a {type(version).__name__}")
    if version > SCHEMA_VERSION:
        raise UnreadableData(
            f"written in schema version {version!r}, this dragoman reads up to version {SCHEMA_VERSION}: update it",
            code=ErrorCode.TOO_NEW,
        )


def message_from_object(value: Any, *, read_part: Callable[[Any], Part] | None = None) -> Message:
    """Return the message that a decoded JSON object says; raise UnreadableData for anything else."""
    read = read_part or part_from_object
    return read_object(value, lambda said: _build_message(said, read), lambda _: MESSAGE_SHAPE, "message")


def part_from_object(value: Any) -> Part:
    """Return the part that a decoded JSON object says; raise UnreadableData for anything else."""
    return read_object(value, _build_part, lambda part: part_shape(type(part)), "part")


def recorded_part_from_object(value: Any) -> Part:
    """Return the part of a recorded entry.

    An earlier version recorded pictures of no bytes and media types that are none. Such a session still opens: they are
    kept as an UnknownPart, written back as they were read and never sent as media. It also recorded calls whose text
    says other arguments than the call has. These run the tool, so the text is made of them anew.
    """
    try:
        return part_from_object(value)
    except UnreadableData:
        kind, payload = (value.get("kind"), value.get("payload")) if isinstance(value, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(payload, dict):
            raise
        if kind == ToolCall.kind and isinstance(payload.get("rawArgsText"), str) and "arguments" in payload:
            bare = {name: item for name, item in payload.items() if name != "rawArgsText"}
            return part_from_object({**value, "payload": bare})
        if kind not in MEDIA_KINDS:
            raise
        kept = UnknownPart("unreadable", payload)
        force_setattr(kept, "kind", kind)
        return kept


# ---------------------------------------------------------------- writing


def message_to_object(message: Message) -> JsonObject:
    """Return the message as an object that JSON can hold."""
    written: JsonObject = {
        "runId": message.run_id,
        "role": message.role.value,
        "parts": [part_to_object(part) for part in message.parts],
    }
    if message.timestamp is not None:
        written["timestamp"] = message.timestamp
    if message.meta is not None:
        written["meta"] = overlaid(fields_of(message.meta, _EXTRA), message.meta.extra)
    return overlaid(written, message.extra)


def part_to_object(part: Part) -> JsonObject:
    """Return the part as an object that JSON can hold."""
    if type(part) is Text and part.provider_data is None and part.extra is None:  # most of them
        return {"kind": "text", "payload": {"text": part.text}}
    payload = part.payload if isinstance(part, UnknownPart) else fields_of(part, _EXTRA)
    if isinstance(part, ToolResult):
        content = payload.pop("content")  # the long field last
        payload["content"] = [part_to_object(inner) for inner in content] if isinstance(content, tuple) else content
    written: JsonObject = {"kind": part.kind, "payload": payload}
    return written if part.extra is None else overlaid(written, part.extra)


def _delta_object(delta: MessageDelta) -> JsonObject:
    payload = delta.payload if isinstance(delta, UnknownDelta) else fields_of(delta, _ENVELOPE)
    if isinstance(delta, UsageDelta):
        payload = payload["usage"]
    written: JsonObject = {"runId": delta.run_id, "seq": delta.seq, "kind": delta.kind, "payload": payload}
    if delta.timestamp is not None:
        written["timestamp"] = delta.timestamp
    if delta.provider_raw is not None:
        written["providerRaw"] = delta.provider_raw
    return overlaid(written, delta.extra)


def fields_of(value: msgspec.Struct, skip: frozenset[str]) -> JsonObject:
    """Return the fields under their JSON names, None left out, nested values as objects."""
    written: JsonObject = {}
    for name, json_name in _names(type(value), skip):
        field = getattr(value, name)
        if field is not None:
            written[json_name] = msgspec.to_builtins(field) if isinstance(field, msgspec.Struct) else field
    return written


@cache
def _names(value_class: type[msgspec.Struct], skip: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The fields of a class and their JSON names, without those to skip."""
    names = zip(value_class.__struct_fields__, value_class.__struct_encode_fields__, strict=True)
    return tuple(pair for pair in names if pair[0] not in skip)


def overlaid(written: JsonObject, extra: Mapping[str, Any] | None) -> JsonObject:
    """Return `written` with the unknown fields put back where they were; `require_extra` has refused known ones."""
    for name, value in (extra or {}).items():
        if name in written:
            written[name] = overlaid(dict(written[name]), value)
        elif value is not None:  # null is the same as absent
            written[name] = value
    return written


# ---------------------------------------------------------------- reading


def read_object(
    value: Any, build: Callable[[JsonObject], _Value], shape: Callable[[_Value], JsonObject], what: str
) -> _Value:
    """Return the value that `build` makes; fields that its `shape` lacks go to its `extra`, in the same layout.

    A shape is an object with every field that is known, and inside a field, the fields known there. Raises
    UnreadableData, which quotes nothing of what was read.
    """
    if not isinstance(value, dict):
        raise UnreadableData(f"{what}: not an object")
    try:
        built = build(value)
        unknown = _missing(value, shape(built))
        return msgspec.structs.replace(built, extra=unknown) if unknown else built
    except UnreadableData:
        raise
    except InvalidValue as error:
        raise UnreadableData(f"{what}: {error.unquoted or error}") from None
    except (msgspec.ValidationError, OverflowError) as error:
        raise UnreadableData(f"{what}: {_without_quotes(error)}") from None
    except _NOT_ITS_FORM:
        raise UnreadableData(f"{what}: a field is missing, is not of its type, or is nested too deeply") from None


def _without_quotes(error: Exception) -> str:
    """msgspec names paths and types, but it quotes a word that an enumeration does not have."""
    if isinstance(error, OverflowError):
        return "a time that UTC does not have"
    return re.sub(r"Invalid enum value .*? - at", "a word that is not allowed - at", str(error), flags=re.DOTALL)


def _missing(original: JsonObject, shape: JsonObject) -> JsonObject:
    """The fields of `original` that `shape` lacks, at any depth of objects."""
    missing: JsonObject = {}
    for name, value in original.items():
        if name not in shape:
            if value is not None:
                missing[name] = value
        elif isinstance(value, dict) and isinstance(shape[name], dict):
            inner = _missing(value, shape[name]) if value is not shape[name] else {}
            if inner:
                missing[name] = inner
    return missing


def _build_message(value: JsonObject, read_part: Callable[[Any], Part]) -> Message:
    parts, meta = value.get("parts"), value.get("meta")
    if value.get("role") is None or not isinstance(parts, list):
        raise UnreadableData("message: it needs a role, and parts, which must be an array")
    return Message(
        value["role"],
        tuple(read_part(part) for part in parts),
        _or(value.get("runId"), ""),
        msgspec.convert(value.get("timestamp"), datetime | None),
        None if meta is None else read_object(meta, _build_meta, lambda _: META_SHAPE, "meta"),
    )


def _build_meta(value: JsonObject) -> MessageMeta:
    return msgspec.convert(_known(value), MessageMeta)


def _build_part(value: JsonObject) -> Part:
    kind, payload = _kind_and_payload(value)
    part_class = PART_CLASSES.get(kind)
    if part_class is None:
        return UnknownPart(kind, payload)
    if part_class is ToolResult:
        content = payload.get("content")
        if isinstance(content, list):
            content = tuple(part_from_object(part) for part in content)
        return ToolResult(payload.get("toolCallId"), content, _or(payload.get("isError"), False))  # type: ignore[arg-type]  # the constructor checks
    return msgspec.convert(_known(payload), part_class)


def _build_delta(value: JsonObject) -> MessageDelta:
    kind, payload = _kind_and_payload(value)
    header = {name: value.get(name) for name in ("seq", "timestamp", "providerRaw")}
    header["runId"] = _or(value.get("runId"), "")
    delta_class = DELTA_CLASSES.get(kind)
    if delta_class is None:
        return msgspec.convert({**header, "kind": kind, "payload": payload}, UnknownDelta)
    if delta_class is UsageDelta:
        return msgspec.convert({**header, "usage": payload}, UsageDelta)
    return msgspec.convert({**_known(payload), **header}, delta_class)


def _kind_and_payload(value: JsonObject) -> tuple[str, JsonObject]:
    kind, payload = value.get("kind"), value.get("payload")
    if not isinstance(kind, str):
        raise InvalidValue.of("kind", kind, "text")
    if not isinstance(payload, dict):
        raise InvalidValue.of("payload", payload, "an object")
    return kind, payload


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _known(value: JsonObject) -> JsonObject:
    """The fields to build from: null is the same as absent, and a foreign field called `extra` is not ours."""
    return {name: item for name, item in value.items() if item is not None and name != "extra"}
