"""Python values to what JSON can hold: what tools return, and the defaults that a schema shows."""

import sys
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any

import msgspec

__all__ = ["NotJson", "copy_json", "to_json_value"]


class NotJson(TypeError):
    """A value, or something inside it, that JSON cannot hold; the message names its type."""


def to_json_value(value: object) -> Any:
    """Return dicts, lists, text, numbers, booleans and None for what JSON has no kind for; raise NotJson."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
    except NotJson:
        raise
    except RecursionError:
        raise NotJson(f"a {type(value).__name__} that is nested too deeply or holds itself") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise NotJson(f"a {type(value).__name__} that JSON cannot hold ({error})") from error


def copy_json(value: Any) -> Any:
    """Return a JSON value with containers of its own."""
    if isinstance(value, dict):
        return {name: copy_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """A plain value in place of one that msgspec does not know."""
    if "pydantic" in sys.modules and hasattr(type(value), "__pydantic_serializer__"):
        return value.model_dump(mode="json", by_alias=True)
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Set, range)) or type(value).__name__ == "deque":
        return list(value)
    raise NotJson(f"a value of type {type(value).__name__}, which JSON cannot hold")
