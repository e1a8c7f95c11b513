"""The published JSON Schema of messages and deltas, generated from the classes that define them."""

from typing import Any

import msgspec

from .delta import DELTA_CLASSES, UsageDelta
from .jsonform import SCHEMA_VERSION
from .message import PART_CLASSES, RESULT_PARTS, ROLE_PARTS, MessageMeta, Role, ToolResult
from .usage import TokenUsage

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
        "provider",
        "specification",
    ]
)
_NOT_NEGATIVE = frozenset(["size", "partIndex", "retryAfter", "cost"])


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of everything `to_json` writes; unknown fields and kinds are allowed."""
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
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:dragoman:schema:v{SCHEMA_VERSION}",
        "title": "Dragoman messages and deltas",
        "version": SCHEMA_VERSION,
        "anyOf": [_ref("Message"), _ref("MessageDelta")],
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
        return {**field, "minLength": 1}
    if field.get("type") in ("integer", "number") and (name in _NOT_NEGATIVE or name.endswith("Tokens")):
        return {**field, "minimum": 0}
    return field


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}
