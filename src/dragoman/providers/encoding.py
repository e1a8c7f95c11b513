"""What all request encoders share: how a call's arguments and the caller's own fields go into a request. Pure."""

from typing import Any

from ..jsontext import encode_json
from ..message import ToolCall

__all__ = ["argument_object", "argument_text", "merge_fields"]


def argument_object(call: ToolCall) -> dict[str, Any]:
    """Return the call's arguments; text that never parsed goes into an object of its own."""
    return {"unparsed_arguments": call.raw_args_text} if call.arguments is None else call.arguments


def argument_text(call: ToolCall) -> str:
    """Return the call's arguments as the JSON text of an object, which every server can parse.

    It is the model's own text where that is such JSON. Some servers answer any other text with status 500, in this
    turn and in every later one (llama.cpp). A text with a parse warning has twice the same key, or half a character.
    """
    if call.arguments is None or call.parse_warning is not None or not call.raw_args_text:
        return encode_json(argument_object(call)).decode()
    return call.raw_args_text


def merge_fields(fields: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` with `further` put in: an object into the object of the same name, any other value over it."""
    merged = dict(fields)
    for name, value in further.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge_fields(merged[name], value) if both else value
    return merged
