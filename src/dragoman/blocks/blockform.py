"""The JSON of messages, responses, blocks and chunks, in both directions. The names are those of the fields.

A block is told by its `type`, a chunk by its `chunk`. A field that is None is left out, null is read as absent, and a
field that is not known here is refused. A message's `source` has the core's own layout.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData
from ..jsonform import message_from_object, message_to_object
from .chunks import CHUNK_CLASSES, StreamChunk
from .values import BLOCK_CLASSES, Block, Message, ModelResponse, TokenUsage

__all__ = ["BlockValue", "from_json", "to_json"]

BlockValue: TypeAlias = Message | ModelResponse | Block | StreamChunk | TokenUsage
JsonObject: TypeAlias = dict[str, Any]
_Tagged = TypeVar("_Tagged", bound=msgspec.Struct)

_PLAIN = (*BLOCK_CLASSES, *CHUNK_CLASSES, TokenUsage)


def to_json(value: BlockValue) -> bytes:
    """Return the value as compact JSON; the same value always gives the same bytes."""
    if isinstance(value, Message):
        return encode_json(_message_object(value))
    if isinstance(value, ModelResponse):
        fields = {"message": _message_object(value.message), "usage": value.usage}
        return encode_json({**fields, "model": value.model, "stop_reason": value.stop_reason})
    if isinstance(value, _PLAIN):
        return encode_json(value)
    raise InvalidValue.of("to_json: the value", value, "a message, response, block, chunk or usage of dragoman.blocks")


def from_json(data: bytes | str) -> BlockValue:
    """Return what `data` says; raise UnreadableData, which quotes nothing of it, for anything else."""
    if not isinstance(data, (bytes, str)):
        raise InvalidValue.of("from_json: the data", data, "bytes or text")
    value = _object(decode_json(data), "the JSON")
    for field, what, read in _READERS:
        if field in value:
            return _reading(what, read, value)
    known = ", ".join(field for field, _, _ in _READERS)
    raise UnreadableData(f"no value of dragoman.blocks: the object has none of the fields {known}")


def _message_object(message: Message) -> JsonObject:
    written: JsonObject = {"role": message.role, "content": message.content}
    if message.source is not None:
        written["source"] = [message_to_object(turn) for turn in message.source]
    return written


# ---------------------------------------------------------------- reading


def _object(value: Any, what: str) -> JsonObject:
    """The object without what is null, which is the same as absent."""
    if not isinstance(value, dict):
        raise UnreadableData(f"{what} is not an object")
    return {name: item for name, item in value.items() if item is not None}


def _reading(what: str, read: Callable[[JsonObject], BlockValue], value: JsonObject) -> BlockValue:
    try:
        return read(value)
    except UnreadableData:
        raise
    except InvalidValue as error:
        raise UnreadableData(f"{what}: {error.unquoted or error}") from None
    except msgspec.ValidationError as error:
        cause = error.__cause__  # msgspec wraps what a constructor raises
        said = (cause.unquoted or str(cause)) if isinstance(cause, InvalidValue) else _without_quotes(error)
        raise UnreadableData(f"{what}: {said}") from None


def _without_quotes(error: msgspec.ValidationError) -> str:
    """msgspec names paths and types, but it quotes an unknown word and the name of an unknown field."""
    said = re.sub(r"Invalid (?:enum )?value .*?(?= - at|$)", "a word that is not allowed", str(error), flags=re.DOTALL)
    return re.sub(r"unknown field `.*`(?= - at|$)", "a field that is not known", said, flags=re.DOTALL)


def _read_response(value: JsonObject) -> ModelResponse:
    _require_known(value, ModelResponse)
    usage = value.get("usage")
    return ModelResponse(
        _read_message(_object(value["message"], "response: message")),
        None if usage is None else _read_usage(_object(usage, "usage")),
        value.get("model"),  # type: ignore[arg-type]  # the constructor checks
        value.get("stop_reason"),  # type: ignore[arg-type]  # the constructor checks
    )


def _read_message(value: JsonObject) -> Message:
    _require_known(value, Message)
    content, source = value.get("content"), value.get("source")
    if isinstance(content, list):
        content = tuple(_read_block(_object(block, "message: a block")) for block in content)
    if source is not None:
        if not isinstance(source, list):
            raise UnreadableData("message: source is not an array")
        source = tuple(message_from_object(turn) for turn in source)
    return Message(value.get("role"), content, source)  # type: ignore[arg-type]  # the constructor checks


def _read_block(value: JsonObject) -> Block:
    block_class = _class_of(value, "type", _BLOCKS, "block")
    return msgspec.convert(_filled(value, block_class), block_class)


def _read_chunk(value: JsonObject) -> StreamChunk:
    chunk_class = _class_of(value, "chunk", _CHUNKS, "chunk")
    return msgspec.convert(_filled(value, chunk_class), chunk_class)


def _filled(value: JsonObject, value_class: type[msgspec.Struct]) -> JsonObject:
    """The object as msgspec reads it: a field without a default is null where it may be, and blocks inside it too."""
    filled: JsonObject = {name: None for name in value_class.__struct_fields__ if name in _NULLABLE}
    for name, item in value.items():
        if name == "content" and isinstance(item, list):
            filled[name] = [_filled_block(block) for block in item]
        elif name == "block":
            filled[name] = _filled_block(item)
        else:
            filled[name] = _object(item, name) if name == "usage" else item
    return filled


def _filled_block(value: Any) -> JsonObject:
    block = _object(value, "a block inside it")
    return _filled(block, _class_of(block, "type", _BLOCKS, "block"))


def _read_usage(value: JsonObject) -> TokenUsage:
    return msgspec.convert(value, TokenUsage)


def _class_of(value: JsonObject, field: str, classes: Mapping[str, type[_Tagged]], what: str) -> type[_Tagged]:
    tag = value.get(field)
    if not isinstance(tag, str) or tag not in classes:
        raise UnreadableData(f"{what}: {field} must be one of {', '.join(classes)}")
    return classes[tag]


def _require_known(value: JsonObject, value_class: type[msgspec.Struct]) -> None:
    if not value.keys() <= set(value_class.__struct_fields__):
        raise UnreadableData(f"{value_class.__name__}: a field that is not known")


def _tag_of(value_class: type[msgspec.Struct]) -> str:
    return str(value_class.__struct_config__.tag)


_BLOCKS: dict[str, type[Block]] = {_tag_of(block): block for block in BLOCK_CLASSES}
_CHUNKS: dict[str, type[StreamChunk]] = {_tag_of(chunk): chunk for chunk in CHUNK_CLASSES}
# Fields that have no default and may be None.
_NULLABLE = frozenset({"media_type", "parameters", "usage"})

# By which field a value is known, in this order: an error chunk has a `message` too.
_READERS: tuple[tuple[str, str, Callable[[JsonObject], BlockValue]], ...] = (
    ("chunk", "chunk", _read_chunk),
    ("type", "block", _read_block),
    ("role", "message", _read_message),
    ("message", "response", _read_response),
    ("input_tokens", "usage", _read_usage),
)
