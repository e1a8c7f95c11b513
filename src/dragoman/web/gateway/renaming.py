"""A passed answer under the client's own name for the model. Pure.

A client that calls the model by another name than its vendor gets its own name back. Claude Code goes on with the model
that the last answer names: it would ask for one that this gateway has no route for, in messages of another form.
"""

import re

import msgspec

from ..._jsontext import decode_json, encode_json
from .fronts import ANTHROPIC, CHAT, GEMINI, RESPONSES

__all__ = ["rename_body", "rename_events", "rename_request"]

# The field of an event in which an API has the message or the response, and the field in it that names the model.
_PLACES = {
    ANTHROPIC: ("message", "model"),
    RESPONSES: ("response", "model"),
    CHAT: ("", "model"),
    GEMINI: ("", "modelVersion"),
}
_DATA = re.compile(rb"^data:[ ]?(\{.*\})(?=[ \r]*$)", re.MULTILINE)
_Fields = dict[str, msgspec.Raw]


def rename_request(body: bytes, model: str) -> bytes:
    """Return a request for another model; every other value is as it was written, without space between values.

    Half a surrogate pair in a text becomes U+FFFD.
    """
    try:
        fields = msgspec.json.decode(body, type=_Fields)
    except msgspec.DecodeError:
        return encode_json({**decode_json(body), "model": model})
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def rename_body(body: bytes, api: str, model: str) -> bytes:
    """Return a whole answer that names this model, if it names one."""
    field = _PLACES[api][1]
    if body.lstrip()[:1] != b"[":
        return _renamed(body, "", field, model) or body
    try:  # Gemini's stream as one array
        answers = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return body
    return msgspec.json.encode([msgspec.Raw(_renamed(bytes(each), "", field, model) or each) for each in answers])


def rename_events(events: bytes, api: str, model: str) -> bytes:
    """Return whole events that name this model where they name one. What cannot be read stays as it is."""
    holder, field = _PLACES.get(api, ("", ""))
    named = f'"{field}"'.encode()
    if not field or named not in events:
        return events

    def rename(line: re.Match[bytes]) -> bytes:
        renamed = _renamed(line[1], holder, field, model) if named in line[1] else None
        return b"data: " + renamed if renamed is not None else line[0]

    return _DATA.sub(rename, events)


def _renamed(data: bytes, holder: str, field: str, model: str) -> bytes | None:
    """The object with the model replaced in it, or in its field `holder`; None where there is none."""
    try:
        fields = msgspec.json.decode(data, type=_Fields)
        inner = msgspec.json.decode(fields[holder], type=_Fields) if holder in fields else {}
    except (msgspec.DecodeError, RecursionError):
        return None
    named = inner if holder else fields
    if not bytes(named.get(field, b"")).startswith(b'"'):
        return None
    named[field] = msgspec.Raw(msgspec.json.encode(model))
    if holder:
        fields[holder] = msgspec.Raw(msgspec.json.encode(inner))
    return msgspec.json.encode(fields)
