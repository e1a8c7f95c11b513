"""JSON text to values and back, for input that is hostile until parsed.

Strict where the standard library is lax (no NaN, no unbounded depth) and never silent: what cannot be read
raises or is recorded. Knows nothing of messages.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
from msgspec.structs import force_setattr

from ._frozen import FrozenDict, FrozenList, frozen
from .errors import InvalidValue, UnreadableData

__all__ = [
    "MAX_DEPTH",
    "ParsedArguments",
    "decode_json",
    "decode_keeping_surrogates",
    "encode_json",
    "freeze_object",
    "join_surrogates",
    "parse_arguments",
    "require_json",
    "require_json_object",
    "sorted_json",
]

# Deeper nesting is refused everywhere, whatever the interpreter's own recursion limit: the same
# bytes must read the same on every machine and at every stack depth.
MAX_DEPTH = 200
# A document that holds such a value has levels of its own around it.
DOCUMENT_DEPTH = MAX_DEPTH + 56

_TEXT = frozenset({str})
_OBJECTS = (dict, FrozenDict)
_CONTAINERS = (dict, list, tuple, FrozenDict, FrozenList)
_PLAIN = frozenset({str, bool, type(None)})  # types whose every value JSON can hold
# Arguments are read, checked and copied while the event loop waits: a value costs a hundred times
# what a character does. The longest answers of models are some 500,000 characters.
ARGUMENTS_SIZE = 16 * 1024 * 1024
ARGUMENTS_VALUES = 20_000
SLOW_ARGUMENTS_SIZE = 512 * 1024  # of arguments with half a surrogate pair, which take twenty times as long to read
_INT_DIGITS = 4_300  # what Python and msgspec read at most; msgspec counts the sign
_LOWEST_INT, _HIGHEST_INT = -(10 ** (_INT_DIGITS - 1)), 10**_INT_DIGITS  # neither can be read
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TRUNCATED = "Input data was truncated"  # the one error for which msgspec names no position
_ONLY_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_JSON_TYPES = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array"}


class ParsedArguments(msgspec.Struct, frozen=True):
    """What a tool call's argument text says: an object, or the reason why it is none; and what was repaired."""

    arguments: dict[str, Any] | None = None
    error: str | None = None
    warning: str | None = None


def join_surrogates(text: str) -> str:
    """Return `text` with adjacent surrogate halves joined and lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encode_json(value: Any) -> bytes:
    """Return compact JSON with keys in the order given; lone surrogates become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_join_all_surrogates(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))))


def decode_json(data: bytes | str) -> Any:
    """Return the value that `data` says; raise UnreadableData, which never quotes the data."""
    return _decode(data, DOCUMENT_DEPTH)[0]


def decode_keeping_surrogates(data: bytes) -> Any:
    """Return the value that `data` says, halves of surrogate pairs kept so that they can be joined later.

    Raises ValueError. The slow way, for text that msgspec refuses.
    """
    import json

    try:
        return json.loads(
            data.decode(), parse_constant=_refuse_number, parse_float=_finite_float, parse_int=_bounded_int
        )
    except RecursionError:
        raise _too_deep(DOCUMENT_DEPTH) from None


def parse_arguments(raw: str) -> ParsedArguments:
    """Read a tool call's argument text. Whatever is wrong with it is in the result; nothing is raised.

    Duplicate keys keep the last value and lone surrogates become U+FFFD, each with a warning.
    """
    if len(raw) > ARGUMENTS_SIZE:
        return ParsedArguments(error=f"arguments of more than {ARGUMENTS_SIZE:,} characters are not read")
    if _has_more_values(raw, ARGUMENTS_VALUES):
        return ParsedArguments(error=f"arguments of more than {ARGUMENTS_VALUES:,} values are not read")
    try:
        value, repaired = _decode(raw, MAX_DEPTH, slow_size=SLOW_ARGUMENTS_SIZE)
        duplicates = _duplicate_keys(raw, value) if isinstance(value, dict) else []
    except UnreadableData as error:
        return ParsedArguments(error=str(error))
    except RecursionError:  # the caller's own stack is nearly full
        return ParsedArguments(error=str(_too_deep(MAX_DEPTH)))
    if not isinstance(value, dict):
        return ParsedArguments(error=f"arguments must be a JSON object, not {_JSON_TYPES.get(type(value), 'null')}")
    warnings = []
    if duplicates:
        named = ", ".join(repr(key[:40]) for key in duplicates[:5])
        warnings.append(f"duplicate keys, last value kept: {named}")
    if repaired:
        warnings.append("lone surrogates replaced by U+FFFD")
    return ParsedArguments(arguments=frozen(value), warning="; ".join(warnings) or None)


def says_arguments(raw: str, arguments: dict[str, Any]) -> bool:
    """Return whether a tool call's argument text says exactly these arguments. No text says no arguments."""
    if not raw:
        return not arguments
    try:
        # As JSON, in which True is not 1 and a tuple is an array.
        return sorted_json(_decode(raw, MAX_DEPTH)[0]) == sorted_json(arguments)
    except (UnreadableData, RecursionError):
        return False


def require_json_object(value: object, field: str) -> None:
    """Raise InvalidValue unless `value` is a dict that JSON can hold: finite numbers, text keys, bounded depth."""
    if type(value) not in _OBJECTS:
        raise InvalidValue(f"{field} must be a JSON object (a dict), got {type(value).__name__}")
    require_json(value, field)


def freeze_object(value: msgspec.Struct, name: str, field: str) -> None:
    """Require the attribute `name` to be a JSON object, and make it one that nothing can change afterwards."""
    given = getattr(value, name)
    if type(given) is not FrozenDict:
        require_json_object(given, field)
        force_setattr(value, name, frozen(given))


def require_json(value: object, field: str) -> None:
    """Raise InvalidValue unless JSON can hold `value` and give it back: plain types, finite numbers, bounded depth."""
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        kind = type(item)
        if kind in _CONTAINERS:
            if depth > MAX_DEPTH:
                raise InvalidValue(f"{field} is nested deeper than {MAX_DEPTH} levels")
            if not item:
                continue
            if kind in _OBJECTS and not _TEXT.issuperset(map(type, item)):
                raise InvalidValue(f"{field} has a key that is not text: JSON keys are text")
            children = item.values() if kind in _OBJECTS else item
            pending += [(child, depth + 1) for child in children if type(child) not in _PLAIN]
        elif kind is float:
            if not math.isfinite(item):
                raise InvalidValue(f"{field} holds {item!r}: JSON has no such number")
        elif kind is int:
            if not _LOWEST_INT < item < _HIGHEST_INT:
                raise InvalidValue(f"{field} holds a whole number of more than 4,300 digits")
        elif kind not in _PLAIN:
            raise InvalidValue(f"{field} holds a {kind.__name__}: allowed are dict, list, str, number, bool, None")


def _decode(data: bytes | str, depth: int, *, slow_size: int | None = None) -> tuple[Any, bool]:
    """The value, and whether lone surrogates had to be replaced in it; larger data with such is not readable."""
    repaired = False
    try:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeEncodeError):
            # msgspec refuses half a surrogate pair, raw or escaped, and models do write that.
            import json

            text = data.decode() if isinstance(data, bytes) else join_surrogates(data)
            has_lone_halves = isinstance(data, str) and text != data
            if not has_lone_halves and not _SURROGATE_ESCAPE.search(text):
                raise
            if slow_size is not None and len(text) > slow_size:
                raise
            lax = json.loads(text, parse_constant=_refuse_number, parse_float=_finite_float, parse_int=_bounded_int)
            value = _join_all_surrogates(lax)
            repaired = value != lax or _replaced(text) > _replaced(data)
    except RecursionError:
        raise _too_deep(depth) from None
    except UnicodeError:
        raise UnreadableData("not readable as JSON: the bytes are not valid UTF-8") from None
    except ValueError as error:
        # msgspec and json name positions and what they expected, never the text itself.
        reason = str(error).removeprefix("JSON is malformed: ")
        if reason == _TRUNCATED:
            reason += f" (byte {len(data if isinstance(data, bytes) else data.encode('utf-8', 'surrogatepass'))})"
        raise UnreadableData(f"not readable as JSON: {reason}") from None
    if is_deeper(data, depth):
        raise _too_deep(depth)
    return value, repaired


def sorted_json(value: Any) -> bytes:
    """Return JSON that is the same for equal objects, whatever the order of their keys."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:
        return msgspec.json.encode(_join_all_surrogates(value), order="deterministic")


def _replaced(text: bytes | str) -> int:
    return text.count("\ufffd") if isinstance(text, str) else text.count(b"\xef\xbf\xbd")


def _too_deep(depth: int) -> UnreadableData:
    return UnreadableData(f"not readable as JSON: nested deeper than {depth} levels")


def _refuse_number(_: str) -> NoReturn:
    raise ValueError("a number that JSON does not have")


def _finite_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _bounded_int(text: str) -> int:
    return int(text) if len(text) <= _INT_DIGITS else _refuse_number(text)


def is_deeper(data: bytes | str, limit: int) -> bool:
    """Return whether JSON is nested deeper than the limit. Each pass takes off the innermost brackets."""
    encoded = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    if encoded.count(b"[") + encoded.count(b"{") <= limit:
        return False
    brackets = _JSON_STRING.sub(b"", encoded).translate(_ONLY_BRACKETS, _NOT_BRACKETS)
    for _ in range(limit):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _has_more_values(text: str, limit: int) -> bool:
    """Whether JSON holds more values than the limit, told from its commas and brackets, before anything is built."""
    if 1 + sum(map(text.count, ",[{")) <= limit:
        return False
    written = _JSON_STRING.sub(b"0", text.encode("utf-8", "replace")).translate(None, b" \t\r\n")
    empty = written.count(b"[]") + written.count(b"{}")
    return 1 + sum(map(written.count, (b",", b"[", b"{"))) - empty > limit


def _duplicate_keys(text: str, value: dict[str, Any]) -> list[str]:
    colons = text.count(":")
    if colons == len(value) or colons == sum(len(item) for item, _ in _walk(value, MAX_DEPTH) if type(item) is dict):
        return []  # a colon for every key that was read: none was written twice
    import json

    duplicates: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key in (join_surrogates(key) for key, _ in pairs):
            if key in seen:
                duplicates[key] = None
            seen.add(key)

    json.loads(text, object_pairs_hook=note)
    return list(duplicates)


def _walk(value: Any, limit: int) -> Iterator[tuple[Any, int]]:
    """Every value inside `value` with its depth, without recursion; never descends past the limit."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        yield item, depth
        if depth <= limit and type(item) in (dict, list, tuple):
            children = item.values() if type(item) is dict else item
            pending.extend((child, depth + 1) for child in children)


def _join_all_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {_join_all_surrogates(key): _join_all_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_join_all_surrogates(item) for item in value]
    return value
