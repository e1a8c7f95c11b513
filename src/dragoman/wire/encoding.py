"""What the request encoders share: arguments, media, cache key, the caller's own fields, refusals. Pure."""

import base64
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from .._jsontext import encode_json, is_deeper
from ..errors import ErrorCode, ModelError
from ..message import Part, ToolCall
from ..request import ModelRequest, WireRequest
from ..target import Dialect

__all__ = [
    "UNREAD_FILE",
    "argument_object",
    "argument_text",
    "base64_text",
    "cache_key_field",
    "data_of",
    "data_url",
    "finish_request",
    "given",
    "merge_fields",
    "result_value",
    "unsupported",
]

CACHE_KEY_LIMIT = 64
UNREAD_FILE = "a file by its path must be read before it is sent"  # an encoder reads no files

# Greatest depth of a value in a request. Servers parse 200 levels, and the request itself needs some of them.
REQUEST_DEPTH = 180


def argument_object(call: ToolCall) -> dict[str, Any]:
    """Return the call's arguments. Text that did not parse, or is nested too deeply, is wrapped in an object."""
    if call.arguments is None or is_deeper(call.raw_args_text, REQUEST_DEPTH):
        return {"unparsed_arguments": call.raw_args_text}
    return call.arguments


def argument_text(call: ToolCall) -> str:
    """Return the call's arguments as the JSON text of an object, which every server can parse.

    The model's own text is used where it is such JSON. llama.cpp answers any other text with status 500, in this turn
    and in every later one. A text with a parse warning repeats a key, or has half a surrogate pair.
    """
    if call.arguments is None or call.parse_warning is not None or not call.raw_args_text:
        return encode_json(argument_object(call)).decode()
    return call.raw_args_text


def result_value(content: dict[str, Any]) -> dict[str, Any] | str:
    """Return a result's object, or its JSON as text where it is nested too deeply for a request."""
    written = encode_json(content)
    return written.decode() if is_deeper(written, REQUEST_DEPTH) else content


def merge_fields(fields: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` updated by `further`. Objects of the same name are merged; other values are replaced."""
    merged = dict(fields)
    for name, value in further.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge_fields(merged[name], value) if both else value
    return merged


def finish_request(
    request: ModelRequest, dialect: Dialect, path: str, body: dict[str, Any], *, left_out: Collection[str] = ()
) -> WireRequest:
    """Return the request: the body with the caller's extensions, without the fields `left_out`, and the headers."""
    body = merge_fields(body, request.config.extensions)
    if left_out:
        body = {name: value for name, value in body.items() if name not in left_out}
    return WireRequest(path=path, body=encode_json(body), headers=dict(dialect.headers))


def given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def data_of(part: Part) -> Mapping[str, Any]:
    """Return the provider fields that are stored with a part; empty where it has none."""
    return getattr(part, "provider_data", None) or {}


def cache_key_field(request: ModelRequest) -> dict[str, str]:
    """Return OpenAI's field that keeps the requests of one session on one cache; empty without cache or session."""
    session = request.metadata.get("session_id")
    if not session or request.config.cache_config is None:
        return {}
    fits = len(session) <= CACHE_KEY_LIMIT
    return {"prompt_cache_key": session if fits else hashlib.sha256(session.encode()).hexdigest()}


def base64_text(data: bytes) -> str:
    """Return the bytes as base64."""
    return base64.b64encode(data).decode()


def data_url(mime_type: str, data: bytes) -> str:
    """Return an address that holds the bytes themselves."""
    return f"data:{mime_type};base64,{base64_text(data)}"


def unsupported(message: str) -> ModelError:
    """Return the error for something that the API, the provider or the model cannot take."""
    return ModelError(message, code=ErrorCode.UNSUPPORTED)
