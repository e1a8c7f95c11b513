"""The published JSON Schema of messages, deltas and entries, generated from the classes that define them."""

from typing import Any

import msgspec

from .delta import DELTA_CLASSES, UsageDelta
from .history import (
    ClientAnswerEntry,
    ClientRequestEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    ModelInputEntry,
    ModelOutputEntry,
    RunRequestedEntry,
    RunStatus,
    SamplingEntry,
    SteeringEntry,
    ToolExecutionStatus,
    ToolFinishedEntry,
    ToolResultsEntry,
)
from .history.entries import ENTRY_CLASSES
from .history.exchanges import MAX_MARK, MAX_MARKS
from .history.toolresults import STATUS_CODES
from .jsonform import SCHEMA_VERSION
from .message import MEDIA_KINDS, PART_CLASSES, RESULT_PARTS, ROLE_PARTS, MessageMeta, Role, ToolResult
from .usage import NUMBER_LIMIT, TokenUsage

__all__ = ["json_schema"]

_ENVELOPE = ("runId", "seq", "timestamp", "providerRaw")
_TIME = {"type": "string", "format": "date-time"}

# What the constructors demand and types do not say: fields of which there is exactly one, text that is not empty,
# numbers that are not negative.
_CHOICES: dict[str, Any] = {
    "tool_call": {"oneOf": [{"required": ["arguments"]}, {"required": ["parseError"]}]},
    "image": {"oneOf": [{"required": ["data", "mimeType"]}, {"required": ["url"]}]},
    "file_ref": {"oneOf": [{"required": [name]} for name in ("path", "url", "fileId", "data")]},
}
_NOT_EMPTY = frozenset(
    [
        "toolCallId",
        "toolName",
        "itemType",
        "mimeType",
        "url",
        "path",
        "fileId",
        "parseError",
        "executeError",
        "provider",
        "specification",
        "api",
        "method",
    ]
)
_NOT_NEGATIVE = frozenset(
    [
        "size",
        "partIndex",
        "retryAfter",
        "cost",
        "elapsedSeconds",
        "firstSerial",
        "lastSerial",
        "steeringSerial",
        "baseSerial",
        "requestSerial",
        "prefix",
        "suffix",
        "version",
    ]
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of all that `to_json` and `entry_to_json` write.

    Unknown fields and kinds are allowed.
    """
    definitions: dict[str, Any] = {
        "Message": _message(),
        "MessageDelta": {"anyOf": [_ref(f"delta.{kind}") for kind in DELTA_CLASSES] + [_ref("delta.unknown")]},
        "Part": {"anyOf": [_ref(f"part.{kind}") for kind in PART_CLASSES] + [_ref("part.unknown")]},
        "part.unknown": _tagged({"type": "string", "not": {"enum": list(PART_CLASSES)}}, {"type": "object"}),
        "delta.unknown": _delta({"type": "string", "not": {"enum": list(DELTA_CLASSES)}}, {"type": "object"}),
    }
    for kind, part in PART_CLASSES.items():
        payload = _tool_result() if part is ToolResult else _object(part, definitions)
        definitions[f"part.{kind}"] = _tagged({"const": kind}, {**payload, **_CHOICES.get(kind, {})})
    for kind, delta in DELTA_CLASSES.items():
        payload = _object(TokenUsage if delta is UsageDelta else delta, definitions, skip=_ENVELOPE)
        definitions[f"delta.{kind}"] = _delta({"const": kind}, {**payload, **_CHOICES.get(kind, {})})
    definitions["MessageMeta"] = _object(MessageMeta, definitions)
    definitions.update(_entry_definitions(definitions))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:dragoman:schema:v{SCHEMA_VERSION}",
        "title": "Dragoman messages, deltas and entries",
        "version": SCHEMA_VERSION,
        "anyOf": [_ref("Message"), _ref("MessageDelta"), _ref("HistoryEntry")],
        "$defs": definitions,
    }


def _message() -> dict[str, Any]:
    role_rules = [
        {
            "if": {"properties": {"role": {"const": role.value}}},
            "then": {"properties": {"parts": {"items": _parts_of(kinds), **_count(role)}}},
        }
        for role, kinds in ROLE_PARTS.items()
    ]
    return {
        "title": "Message",
        "type": "object",
        "properties": {
            "runId": {"type": "string"},
            "role": {"enum": [role.value for role in Role]},
            "parts": {"type": "array", "items": _ref("Part")},
            "timestamp": _TIME,
            "meta": _ref("MessageMeta"),
        },
        "required": ["runId", "role", "parts"],
        "allOf": role_rules,
    }


def _count(role: Role) -> dict[str, int]:
    return {"minItems": 1, "maxItems": 1} if role is Role.TOOL else {}


def _parts_of(kinds: frozenset[str]) -> dict[str, Any]:
    return {"anyOf": [_ref(f"part.{kind}") for kind in sorted(kinds)] + [_ref("part.unknown")]}


def _tool_result() -> dict[str, Any]:
    content = [{"type": "string"}, {"type": "object"}, {"type": "array", "items": _parts_of(RESULT_PARTS)}]
    properties = {
        "toolCallId": {"type": "string", "minLength": 1},
        "isError": {"type": "boolean"},
        "content": {"anyOf": content},
    }
    return {"title": "ToolResult", "type": "object", "properties": properties, "required": list(properties)}


def _tagged(kind: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": kind, "payload": payload}, "required": ["kind", "payload"]}


def _delta(kind: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    envelope = {"runId": {"type": "string"}, "seq": {"type": "integer", "minimum": 0}}
    properties = {**envelope, "kind": kind, "payload": payload, "timestamp": _TIME, "providerRaw": {}}
    return {"type": "object", "properties": properties, "required": ["runId", "seq", "kind", "payload"]}


def _object(target: type, definitions: dict[str, Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of a class's own fields; what it refers to is added to `definitions`."""
    (own,), components = msgspec.json.schema_components([target], ref_template="#/$defs/{name}")
    described = components.pop(own["$ref"].removeprefix("#/$defs/"))
    definitions.update({name: _trimmed(schema) for name, schema in components.items()})
    return _trimmed(described, skip)


def _trimmed(schema: dict[str, Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    trimmed = {**schema, "description": schema.get("description", "").split("\n")[0]}
    if "properties" in schema:
        hidden = (*skip, "extra")
        trimmed["properties"] = {
            name: _bounded(name, {key: value for key, value in field.items() if key != "default"})
            for name, field in schema["properties"].items()
            if name not in hidden
        }
        trimmed["required"] = [name for name in schema["required"] if name not in hidden]
    return trimmed


def _bounded(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """The field with the bound that its name stands for, null aside."""
    if "anyOf" in field:
        return {**field, "anyOf": [_bounded(name, choice) for choice in field["anyOf"]]}
    if field.get("type") == "string" and name in _NOT_EMPTY:
        return {**field, "minLength": 1} if name != "executeError" else {**field, "pattern": r"\S"}
    if field.get("type") in ("integer", "number") and (name in _NOT_NEGATIVE or name.endswith("Tokens")):
        return {**field, "minimum": 0, "maximum": NUMBER_LIMIT}
    return field


# ---------------------------------------------------------------- entries


def _entry_definitions(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of every kind of entry and of what they hold; enumerations are added to `definitions`."""
    level = {"type": "array", "items": _ref("Section")}
    pointer = {
        "type": "object",
        "properties": {name: {"type": "integer", "minimum": 0} for name in ("part", "live", "summary")},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    found: dict[str, Any] = {
        "HistoryEntry": {"anyOf": [_ref(f"entry.{kind}") for kind in ENTRY_CLASSES] + [_ref("entry.unknown")]},
        "entry.unknown": _entry({"type": "string", "not": {"enum": list(ENTRY_CLASSES)}}, {"type": "object"}),
        "LevelOfDetailSections": {
            "type": "object",
            "description": "A level that is left out is the live one without its LiveScreen.",
            "properties": {name.value: level for name in LevelOfDetail},
            "required": ["live"],
        },
        "Section": {
            "type": "array",
            "description": "A key, and a text or the name in the same entry where the text stands.",
            "prefixItems": [{"type": "string"}, {"anyOf": [{"type": "string"}, pointer]}],
            "minItems": 2,
            "maxItems": 2,
        },
        "HistoryToolCallResult": {
            **_own_fields(HistoryToolCallResult, definitions, ("extra",)),
            "allOf": [_code_rule(status) for status in ToolExecutionStatus],
        },
    }
    for kind, entry in ENTRY_CLASSES.items():
        payload = _own_fields(entry, definitions, HistoryEntry.__struct_fields__)
        found[f"entry.{kind}"] = _entry({"const": kind}, {**payload, **_ENTRY_RULES.get(kind, {})})
    return found


def _own_fields(owner: type[msgspec.Struct], definitions: dict[str, Any], skip: tuple[str, ...]) -> dict[str, Any]:
    """The schema of the fields that a class adds to those that are skipped, as the JSON form writes them."""
    fields = [field for field in msgspec.structs.fields(owner) if field.name not in skip]
    return {
        "title": owner.__name__,
        "description": (owner.__doc__ or "").split("\n")[0],
        "type": "object",
        "properties": {
            field.encode_name: _SHAPED.get((owner, field.name))
            or _bounded(field.encode_name, _type(field.type, definitions))
            for field in fields
        },
        "required": [field.encode_name for field in fields if field.required or (owner, field.name) in _ALWAYS_WRITTEN],
    }


def _type(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([annotation], ref_template="#/$defs/{name}")
    definitions.update({name: _trimmed(component) for name, component in components.items()})
    return schema


def _entry(kind: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "serial": {"type": "integer", "minimum": -1, "description": "Its number in the session; -1 before it has one."},
        "id": {"type": "string"},
        "kind": kind,
        "timestamp": _TIME,
        "runId": {"type": "string"},
        "metadata": {"type": "object"},
        "payload": payload,
    }
    return {"type": "object", "properties": properties, "required": ["serial", "id", "kind", "payload"]}


def _code_rule(status: ToolExecutionStatus) -> dict[str, Any]:
    codes = sorted(code.value for code in STATUS_CODES[status] if code is not None)
    return _when("status", status, "errorCode", {"enum": codes} if codes else {"type": "null"}, required=bool(codes))


def _when(field: str, value: object, other: str, demand: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """What the field `other` must be where `field` has this value."""
    then = {"properties": {other: demand}, "required": [other] if required else []}
    return {"if": {"properties": {field: {"const": value}}, "required": [field]}, "then": then}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


_ASSISTANT = {"allOf": [_ref("Message"), {"properties": {"role": {"const": Role.ASSISTANT.value}}}]}

_MARKS = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_MARK},
    "maxItems": MAX_MARKS,
}
# Fields that the JSON form writes in another shape than their types have.
_SHAPED: dict[tuple[type, str], dict[str, Any]] = {
    (ModelInputEntry, "parts"): {"type": "array", "items": _parts_of(ROLE_PARTS[Role.USER]), "minItems": 1},
    (SteeringEntry, "parts"): {"type": "array", "items": _parts_of(ROLE_PARTS[Role.USER]), "minItems": 1},
    (RunRequestedEntry, "parts"): {"type": "array", "items": _parts_of(ROLE_PARTS[Role.USER])},
    (ModelInputEntry, "sections"): _ref("LevelOfDetailSections"),
    (ModelOutputEntry, "message"): _ASSISTANT,
    (InterruptionEntry, "partial"): _ASSISTANT,
    (SamplingEntry, "messages"): {"type": "array", "items": _ref("Message")},
    (SamplingEntry, "answer"): _ASSISTANT,
    (ToolResultsEntry, "results"): {"type": "array", "items": _ref("HistoryToolCallResult")},
    (ToolFinishedEntry, "result"): _ref("HistoryToolCallResult"),
    (ClientRequestEntry, "marks"): _MARKS,
    (ClientAnswerEntry, "marks"): _MARKS,
    (ClientAnswerEntry, "status"): {"type": "integer", "minimum": 0, "maximum": 999},
    (ClientAnswerEntry, "packed"): {"type": "string", "contentEncoding": "base64", "description": "zlib, of the body."},
    (HistoryToolCallResult, "result"): _ref("LevelOfDetailSections"),
    (HistoryToolCallResult, "attachments"): {"type": "array", "items": _parts_of(MEDIA_KINDS)},
}
# Fields with a default that are always written.
_ALWAYS_WRITTEN = frozenset({(ModelInputEntry, "parts"), (HistoryToolCallResult, "status")})
_ENTRY_RULES: dict[str, dict[str, Any]] = {
    "run_finished": _when("status", RunStatus.COMPLETED, "errorCode", {"type": "null"}),
    "question_answered": {
        "allOf": [_when("action", action, "content", {"type": "null"}) for action in ("decline", "cancel")]
    },
    "client_request": {
        "if": {"properties": {"baseSerial": {"type": "null"}}},
        "then": {"properties": {"prefix": {"const": 0}, "suffix": {"const": 0}}},
    },
    "approval_answered": _when("approved", False, "arguments", {"type": "null"}),
}
