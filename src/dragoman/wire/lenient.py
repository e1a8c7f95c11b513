"""A provider's JSON → the shapes of a codec, also where its types are not the documented ones. Pure.

Hosts that copy an API send numbers for ids, text for numbers, null or `[]` for an object. A field that cannot be read
is left out. Only where the answer needs the field is it a protocol violation.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ..errors import ErrorCode, ModelError
from ..stream import EventDecoder, SseParser, TypedJson
from ..usage import count_of
from .failures import not_an_answer

__all__ = [
    "UNREADABLE",
    "LenientJson",
    "broken",
    "decode_unlabelled",
    "objects_of",
    "read_object",
    "repaired",
    "require_types",
    "required_object",
    "text_of",
]

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what a typed decoder raises, for any bytes

_Shape = TypeVar("_Shape")
_SENTINELS = (b"[DONE]", b"")  # gateways end streams with it that have their own last event


_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class _Unreadable:
    pass


_UNREADABLE = _Unreadable()


class LenientJson(TypedJson[_Shape]):
    """Reads JSON into one shape as fast as its base class. JSON that does not fit is repaired first.

    A sentinel such as `[DONE]` reads as an empty object.
    """

    __slots__ = ("_needed",)

    def __init__(self, shape: type[_Shape], *, needed: frozenset[str] = frozenset()) -> None:
        super().__init__(shape)
        self._needed = needed

    def read(self, data: bytes) -> _Shape:
        """Return the value; raise ModelError (protocol_violation) where it is no JSON or a needed field is not read."""
        try:
            return self._decode(data)
        except UNREADABLE:
            if data.strip() in _SENTINELS:
                return repaired({}, self._shape)
        return repaired(_ANYTHING.read(data), self._shape, needed=self._needed)


_ANYTHING: TypedJson[Any] = TypedJson(Any)


def broken(what: str) -> ModelError:
    """Return the error for an answer that lacks a needed field."""
    return ModelError(what, code=ErrorCode.PROTOCOL_VIOLATION)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the object that a body is; raise ModelError, with the provider's words, where it is something else."""
    value = _ANYTHING.read(body)
    if not isinstance(value, dict):
        raise not_an_answer("the provider sent something else than a JSON object", value)
    return value


def required_object(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the object under `name`; raise ModelError where there is none."""
    inner = value.get(name)
    if not isinstance(inner, dict):
        raise broken(f"an event has no {name}")
    return inner


def require_types(value: dict[str, Any], types: Mapping[str, tuple[type, ...]], what: str) -> None:
    """Raise ModelError where a field has another type: what goes back as it came must be what the API takes."""
    for name, allowed in types.items():
        if name in value and not isinstance(value[name], allowed):
            raise broken(f"the field {name} of {what} is not of the documented type")


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects in the list that this is; none where it is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def decode_unlabelled(decoder: EventDecoder, body: bytes) -> bool:
    """Decode server-sent events that a proxy sent under another content type; return False for any other body."""
    if not body.lstrip(b"\xef\xbb\xbf\r\n").startswith(_EVENT_FIELDS):
        return False
    parser = SseParser()
    decoder.decode(parser.feed(body))
    try:
        decoder.decode(parser.end())
    except ModelError:  # half an event: the stream was cut short, which its missing finish tells
        pass
    decoder.end()
    return True


def repaired(value: Any, shape: type[_Shape], *, needed: frozenset[str] = frozenset()) -> _Shape:
    """Return a JSON value in the shape; raise ModelError (protocol_violation) where a needed field cannot be read."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, UnicodeEncodeError):  # half a surrogate pair where a number belongs
        pass
    readable = _read(value, inspect.type_info(shape), needed)
    try:
        return msgspec.convert(None if readable is _UNREADABLE else readable, shape)
    except msgspec.ValidationError as error:
        raise _not_of_shape(str(error)) from None  # it names the path and the types, never the value
    except UnicodeEncodeError:
        raise _not_of_shape("a text holds half a surrogate pair") from None


def text_of(value: Any) -> str:
    """The value if it is text, a number as text, else nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def _read(value: Any, kind: inspect.Type, needed: frozenset[str]) -> Any:
    match kind:
        case inspect.AnyType():
            return value
        case inspect.NoneType():
            return None if value is None else _UNREADABLE
        case inspect.UnionType():
            readings = (_read(value, member, needed) for member in kind.types)
            return next((reading for reading in readings if reading is not _UNREADABLE), _UNREADABLE)
        case inspect.StructType():
            return _read_object(value, kind, needed)
        case inspect.ListType():
            return _read_list(value, kind, needed)
        case inspect.DictType():
            return value if isinstance(value, dict) else _UNREADABLE
        case inspect.StrType():
            return text_of(value) or (_UNREADABLE if value != "" else "")
        case inspect.IntType():
            count = count_of(value)
            return _UNREADABLE if count is None else count
        case inspect.BoolType():
            return value if isinstance(value, bool) else _UNREADABLE
        case _:
            return value


def _read_object(value: Any, kind: inspect.StructType, needed: frozenset[str]) -> Any:
    """Return the object with its readable fields. PHP writes `[]` for an empty object."""
    if not isinstance(value, dict):
        return {} if value in ([], "", False) else _UNREADABLE
    readable: dict[str, Any] = {}
    for field in kind.fields:
        name = field.encode_name
        if name not in value:
            continue
        reading = _read(value[name], field.type, needed)
        if reading is not _UNREADABLE:
            readable[name] = reading
        elif name in needed and value[name] is not None and value[name] is not False:
            raise _not_of_shape(f"{name} is a {type(value[name]).__name__}")
    return readable


def _read_list(value: Any, kind: inspect.ListType, needed: frozenset[str]) -> Any:
    """The list without its nulls; a single object stands for a list of one."""
    if isinstance(value, dict):
        value = [value] if value else []
    if not isinstance(value, list):
        return _UNREADABLE
    readings = [_read(entry, kind.item_type, needed) for entry in value if entry is not None]
    return _UNREADABLE if _UNREADABLE in readings else readings


def _not_of_shape(what: str) -> ModelError:
    return broken(f"the provider's JSON is not of the documented shape: {what}")
