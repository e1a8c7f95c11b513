"""What all request encoders share: how a call's arguments and the caller's own fields go into a request. Pure."""

from typing import Any

from ..jsontext import encode_json, is_deeper
from ..message import ToolCall

__all__ = ["argument_object", "argument_text", "merge_fields", "result_value"]

# Levels of a value inside a request. The servers' own parsers read 200 in all, and the request has some around it.
REQUEST_DEPTH = 180


def argument_object(call: ToolCall) -> dict[str, Any]:
    """Return the call's arguments; text that never parsed, or is nested too deeply, goes into an object of its own."""
    if call.arguments is None or is_deeper(call.raw_args_text, REQUEST_DEPTH):
        return {"unparsed_arguments": call.raw_args_text}
    return call.arguments


def argument_text(call: ToolCall) -> str:
    """Return the call's arguments as the JSON text of an object, which every server can parse.

    It is the model's own text where that is such JSON. Some servers answer any other text with status 500, in this
    turn and in every later one (llama.cpp). A text with a parse warning has twice the same key, or half a character.
    """
    if call.arguments is None or call.parse_warning is not None or not call.raw_args_text:
        return encode_json(argument_object(call)).decode()
    return call.raw_args_text


def result_value(content: dict[str, Any]) -> dict[str, Any] | str:
    """Return a result's object, or its JSON as text where it is nested too deeply for a request."""
    written = encode_json(content)
    return written.decode() if is_deeper(written, REQUEST_DEPTH) else content


def merge_fields(fields: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` with `further` put in: an object into the object of the same name, any other value over it."""
    merged = dict(fields)
    for name, value in further.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge_fields(merged[name], value) if both else value
    return merged
