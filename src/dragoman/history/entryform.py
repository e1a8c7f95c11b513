"""The JSON form of entries, in both directions, by the conventions of `jsonform`.

An entry is `{"serial", "id", "kind", "timestamp", "runId", "metadata", "payload"}`. A section is `[key, text]`; a text
that stands elsewhere in the same entry is written once and pointed at: `[key, {"live": 0}]`, `[key, {"part": 1}]`. A
level that is left out is the live one without its LiveScreen. The body of a client's answer is compressed by zlib, as
base64.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData
from ..jsonform import (
    JsonObject,
    fields_of,
    message_from_object,
    message_to_object,
    overlaid,
    part_to_object,
    read_object,
    recorded_part_from_object,
    take_version,
)
from ..message import Message, ModelInvocationDescriptor, Part, Text
from ..toolspec import ToolSpec
from ..usage import TokenUsage
from .entries import (
    ENTRY_CLASSES,
    ClientAnswerEntry,
    CompactionEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunRequestedEntry,
    SamplingEntry,
    SteeringEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    UnknownEntry,
)
from .entrybase import entry_shape
from .metadata import NO_METADATA, Metadata
from .sections import LevelOfDetailSections, Section, Sections, without_live_screen
from .toolresults import RESULT_SHAPE, HistoryToolCallResult

__all__ = ["entry_from_json", "entry_to_json"]


# Bytes of one entry. SQLite holds a billion in a row, PostgreSQL about as many in a message.
ENTRY_LIMIT = 1 << 29


def entry_to_json(entry: HistoryEntry) -> bytes:
    """Return the entry as compact JSON; the same entry always gives the same bytes, with the same zlib.

    Raises InvalidValue for what is no entry, and for one that is larger than every store can hold.
    """
    form = _FORMS.get(type(entry))
    if form is None:
        if type(entry) is not UnknownEntry:
            expected = "an entry of one of the classes in dragoman.history"
            raise InvalidValue.of("entry_to_json: the value", entry, expected)
        form = (str(entry.kind), _unknown_payload)
    kind, payload_of = form
    written: JsonObject = {"serial": entry.serial, "id": entry.entry_id, "kind": kind}
    if entry.timestamp is not None:
        written["timestamp"] = entry.timestamp
    if entry.run_id:
        written["runId"] = entry.run_id
    if entry.metadata is not NO_METADATA and entry.metadata:
        assert isinstance(entry.metadata, Metadata)
        written["metadata"] = entry.metadata.to_plain()
    written["payload"] = payload_of(entry)
    data = encode_json(written if entry.extra is None else overlaid(written, entry.extra))
    if len(data) > ENTRY_LIMIT:
        raise InvalidValue(
            f"a {kind} entry of {len(data)} bytes of JSON is larger than {ENTRY_LIMIT}, which is the limit"
        )
    return data


def entry_from_json(data: bytes | str) -> HistoryEntry:
    """Return the entry that `data` says; raise UnreadableData for anything else, or a later version's."""
    if not isinstance(data, (bytes, str)):
        raise InvalidValue.of("entry_from_json: the data", data, "bytes or text")
    value = decode_json(data)
    if not isinstance(value, dict):
        raise UnreadableData("not an entry: the JSON is not an object")
    take_version(value)
    return read_object(value, _build_entry, lambda entry: entry_shape(type(entry)), "entry")


# ---------------------------------------------------------------- writing


def _payload(entry: HistoryEntry) -> JsonObject:
    payload: JsonObject = {}
    for name, json_name, required, _, write in _FIELDS[type(entry)]:
        value = getattr(entry, name)
        if value is not None and (required or value != ""):
            payload[json_name] = write(value) if write else value
    return payload


def _input_payload(entry: HistoryEntry) -> JsonObject:
    """The payload of a model input, which says its sections only if they are not what its parts give by themselves."""
    assert isinstance(entry, ModelInputEntry)
    payload: JsonObject = {"parts": _part_objects(entry.parts)}
    has_unknown = entry.extra is not None and "sections" in entry.extra.get("payload", ())
    if has_unknown or not _is_plain(entry.sections, entry.parts):
        payload["sections"] = _sections_object(entry.sections, _texts(entry.parts))
    if entry.steering_serial is not None:
        payload["steeringSerial"] = entry.steering_serial
    return payload


def _unknown_payload(entry: HistoryEntry) -> JsonObject:
    assert isinstance(entry, UnknownEntry)
    return entry.payload


def _part_objects(parts: Sequence[Part]) -> list[JsonObject]:
    return [part_to_object(part) for part in parts]


def _result_object(result: HistoryToolCallResult) -> JsonObject:
    written = fields_of(result, frozenset({"result", "attachments", "extra"}))
    if result.attachments:
        written["attachments"] = _part_objects(result.attachments)
    written["result"] = _sections_object(result.result, ())  # the long field last
    return overlaid(written, result.extra)


def _sections_object(sections: LevelOfDetailSections, texts: Sequence[str]) -> JsonObject:
    written_at: dict[str, JsonObject] = {}  # where each text stands already
    for index, text in enumerate(texts):
        written_at.setdefault(text, {"part": index})
    bare, _ = without_live_screen(sections.live)
    written: JsonObject = {}
    for name, level in (("live", sections.live), ("summary", sections.summary), ("gist", sections.gist)):
        if name == "live" or level != bare:
            written[name] = [[key, written_at.get(text, text) if text else ""] for key, text in level]
            for index, section in enumerate(level):
                written_at.setdefault(section.value, {name: index})
    return written


def _is_plain(sections: LevelOfDetailSections, parts: Sequence[Part]) -> bool:
    """Whether an input of such parts has these sections by itself: what `text_sections` gives, without making it."""
    live = sections.live
    if sections.summary is not live or sections.gist is not live:  # equal ones are one
        return False
    index = 0
    for part in parts:
        if isinstance(part, Text):
            if index == len(live) or live[index] != ("", part.text):
                return False
            index += 1
    return index == len(live)


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


# ---------------------------------------------------------------- reading


def _build_entry(value: JsonObject) -> HistoryEntry:
    kind, payload = value.get("kind"), value.get("payload")
    if type(kind) is not str or not isinstance(payload, dict) or value.get("serial") is None or value.get("id") is None:
        raise UnreadableData("not an entry: it needs a serial, an id, a kind and a payload")
    names = (("serial", "serial"), ("id", "entry_id"), ("runId", "run_id"), ("metadata", "metadata"))
    header = {name: value[json_name] for json_name, name in names if value.get(json_name) is not None}
    if value.get("timestamp") is not None:
        header["timestamp"] = msgspec.convert(value["timestamp"], datetime)
    entry_class = ENTRY_CLASSES.get(kind)
    if entry_class is None:
        return UnknownEntry(kind, payload, **header)
    return entry_class(**_own_fields(entry_class, payload), **header)


def _own_fields(entry_class: type[HistoryEntry], payload: JsonObject) -> JsonObject:
    """The arguments of the entry's constructor, which checks them."""
    fields: JsonObject = {}
    for field in _FIELDS[entry_class]:
        value = payload.get(field.json_name)
        if value is not None:
            fields[field.name] = field.read(value) if field.read else value
        elif field.required:
            raise UnreadableData(f"{entry_class.kind} entry: {field.json_name} is missing")
    if entry_class is ModelInputEntry and "sections" in fields:
        fields["sections"] = _read_sections(fields["sections"], _texts(fields.get("parts", ())))
    return fields


def _read_parts(value: Any) -> tuple[Part, ...]:
    if not isinstance(value, list):
        raise UnreadableData("parts must be an array")
    return tuple(recorded_part_from_object(part) for part in value)


def _read_message(value: Any) -> Message:
    return message_from_object(value, read_part=recorded_part_from_object)


def _read_messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list):
        raise UnreadableData("messages must be an array")
    return tuple(_read_message(message) for message in value)


def _read_results(value: Any) -> tuple[HistoryToolCallResult, ...]:
    if not isinstance(value, list):
        raise UnreadableData("results must be an array")
    return tuple(_read_result(result) for result in value)


def _read_result(value: Any) -> HistoryToolCallResult:
    return read_object(value, _build_result, lambda _: RESULT_SHAPE, "result")


def _build_result(value: JsonObject) -> HistoryToolCallResult:
    fields: JsonObject = {}
    for field in _RESULT_FIELDS:
        if value.get(field.json_name) is not None:
            read = field.read
            fields[field.name] = read(value[field.json_name]) if read else value[field.json_name]
        elif field.required:
            raise UnreadableData(f"result: {field.json_name} is missing")
    return HistoryToolCallResult(**fields)


def _read_base64(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (TypeError, ValueError):  # base64's own error is a ValueError
        raise UnreadableData("packed must be base64") from None


def _read_sections(value: Any, texts: Sequence[str] = ()) -> LevelOfDetailSections:
    if not isinstance(value, dict):
        raise UnreadableData("sections: not an object")
    known: dict[str, Sequence[str]] = {"part": texts}
    live = _read_level(value.get("live"), known, "live")
    bare, _ = without_live_screen(live)
    summary = _read_level(value["summary"], known, "summary") if value.get("summary") is not None else bare
    gist = _read_level(value["gist"], known, "gist") if value.get("gist") is not None else bare
    return LevelOfDetailSections(live, summary, gist)


def _read_level(pairs: Any, known: dict[str, Sequence[str]], name: str) -> Sections:
    if not isinstance(pairs, list):
        raise UnreadableData(f"sections: {name} must be an array")
    level = tuple(_read_section(pair, known) for pair in pairs)
    known[name] = [section.value for section in level]
    return level


def _read_section(pair: Any, known: dict[str, Sequence[str]]) -> Section:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise UnreadableData("sections: a section must be an array of a key and a text")
    key, text = pair
    if isinstance(text, dict) and len(text) == 1:
        ((name, index),) = text.items()
        texts = known.get(name, ())
        if type(index) is int and 0 <= index < len(texts):
            return Section(key, texts[index])
    if not isinstance(text, str):
        raise UnreadableData("sections: a text must be a string, or name one that comes before it")
    return Section(key, text)


# ---------------------------------------------------------------- which fields there are


class _Field(NamedTuple):
    """A field of a class, and how its value is read and written if JSON has it in another form."""

    name: str
    json_name: str
    required: bool
    read: Callable[[Any], Any] | None
    write: Callable[[Any], Any] | None


_ENVELOPE = frozenset(HistoryEntry.__struct_fields__)

_READERS: dict[tuple[type, str], Callable[[Any], Any]] = {
    (ModelInputEntry, "parts"): _read_parts,
    (ModelOutputEntry, "message"): _read_message,
    (SteeringEntry, "parts"): _read_parts,
    (SteeringEntry, "sections"): _read_sections,
    (RunRequestedEntry, "parts"): _read_parts,
    (RunRequestedEntry, "sections"): _read_sections,
    (ToolResultsEntry, "results"): _read_results,
    (ToolFinishedEntry, "result"): _read_result,
    (InterruptionEntry, "partial"): _read_message,
    (SamplingEntry, "messages"): _read_messages,
    (SamplingEntry, "answer"): _read_message,
    (CompactionEntry, "invocation"): lambda value: msgspec.convert(value, ModelInvocationDescriptor),
    (CompactionEntry, "usage"): lambda value: msgspec.convert(value, TokenUsage),
    (ClientAnswerEntry, "packed"): _read_base64,
    (ToolSetEntry, "invocation"): lambda value: msgspec.convert(value, ModelInvocationDescriptor),
    (ToolSetEntry, "specs"): lambda value: msgspec.convert(value, tuple[ToolSpec, ...]),
    (HistoryToolCallResult, "result"): _read_sections,
    (HistoryToolCallResult, "attachments"): _read_parts,
}
_WRITERS: dict[tuple[type, str], Callable[[Any], Any]] = {
    (SteeringEntry, "parts"): _part_objects,
    (SteeringEntry, "sections"): lambda sections: _sections_object(sections, ()),
    (RunRequestedEntry, "parts"): _part_objects,
    (RunRequestedEntry, "sections"): lambda sections: _sections_object(sections, ()),
    (ModelOutputEntry, "message"): message_to_object,
    (ToolResultsEntry, "results"): lambda results: [_result_object(result) for result in results],
    (ToolFinishedEntry, "result"): _result_object,
    (InterruptionEntry, "partial"): message_to_object,
    (SamplingEntry, "messages"): lambda messages: [message_to_object(message) for message in messages],
    (SamplingEntry, "answer"): message_to_object,
    (CompactionEntry, "invocation"): msgspec.to_builtins,
    (CompactionEntry, "usage"): msgspec.to_builtins,
    (ClientAnswerEntry, "packed"): lambda packed: b64encode(packed).decode(),
    (ToolSetEntry, "invocation"): msgspec.to_builtins,
    (ToolSetEntry, "specs"): msgspec.to_builtins,
}


def _fields(owner: type[msgspec.Struct], skip: frozenset[str]) -> tuple[_Field, ...]:
    return tuple(
        _Field(name, field.encode_name, field.required, _READERS.get((owner, name)), _WRITERS.get((owner, name)))
        for field in msgspec.structs.fields(owner)
        if (name := field.name) not in skip
    )


_FIELDS = {entry_class: _fields(entry_class, _ENVELOPE) for entry_class in ENTRY_CLASSES.values()}
_FORMS: dict[type, tuple[str, Callable[[HistoryEntry], JsonObject]]] = {
    entry_class: (str(kind), _input_payload if entry_class is ModelInputEntry else _payload)
    for kind, entry_class in ENTRY_CLASSES.items()
}
_RESULT_FIELDS = _fields(HistoryToolCallResult, frozenset({"extra"}))
