"""Block messages to messages of the core and back: one table. Pure; knows no JSON and no stream.

Results of tools are messages of their own in the core; here they are blocks of the user's turn that follows them.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..errors import InvalidValue
from ..message import FinishReason, Image, Part, Text, ToolCall, ToolResult
from ..message import Message as CoreMessage
from ..message import Role as CoreRole
from .values import Block, ImageBlock, Message, Role, TextBlock, ToolResultBlock, ToolUseBlock

__all__ = ["from_core", "image_block", "to_core"]

# How an answer ends whose calls may be run: it is whole, or it pauses. None: it is not said how it ended.
_RUNNABLE = frozenset({None, FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})
_NOT_WHOLE = "the answer that makes this call is not whole"


def to_core(messages: Sequence[Message]) -> tuple[CoreMessage, ...]:
    """Return the conversation as the core has it.

    A message with a `source` is that. Of any other user message each tool result becomes a tool message, and what
    else it holds the user message after them.
    """
    _require_all(messages, Message, "dragoman.blocks.Message")
    return tuple(turn for message in messages for turn in message.source or _turns(message))


def from_core(messages: Sequence[CoreMessage], *, keep_source: bool = True) -> tuple[Message, ...]:
    """Return the conversation as blocks; `to_core` gives the same messages back.

    Tool messages and the user message right after them are one user message. What no block can say is not shown and
    stays in `source`, which is left out where the blocks say everything, or with `keep_source=False`. A tool use of an
    answer that was cut, filtered or refused has a `parse_error`: it must not be run.
    """
    _require_all(messages, CoreMessage, "dragoman.Message")
    groups: list[list[CoreMessage]] = []
    for message in messages:
        joins = groups and groups[-1][-1].role is CoreRole.TOOL and message.role in (CoreRole.TOOL, CoreRole.USER)
        if joins:
            groups[-1].append(message)
        else:
            groups.append([message])
    return tuple(_message(tuple(group), keep_source) for group in groups)


def image_block(mime_type: str | None, data: bytes | None, url: str | None) -> ImageBlock:
    """Return the block of a picture that is given by its bytes or its URL."""
    if data is None:
        return ImageBlock("url", mime_type, url or "")
    return ImageBlock("base64", mime_type, base64.b64encode(data).decode())


# ---------------------------------------------------------------- whole messages


def _require_all(messages: object, wanted: type, name: str) -> None:
    if not isinstance(messages, Sequence) or not all(isinstance(message, wanted) for message in messages):
        raise InvalidValue.of_content("messages", messages, f"a sequence of {name}")


def _turns(message: Message) -> tuple[CoreMessage, ...]:
    parts = [_to_part(block) for block in message.blocks]
    results = tuple(CoreMessage.tool(part) for part in parts if isinstance(part, ToolResult))
    rest = tuple(part for part in parts if not isinstance(part, ToolResult))
    if results and not rest:
        return results
    return (*results, CoreMessage(CoreRole(message.role.value), rest))


def _message(turns: tuple[CoreMessage, ...], keep_source: bool) -> Message:
    role = Role.USER if turns[0].role is CoreRole.TOOL else Role(turns[0].role.value)
    content = tuple(block for turn in turns for part in _usable(turn) for block in _shown(part))
    message = Message(role, content)
    if not keep_source or _turns(message) == turns:
        return message
    return Message(role, content, turns)


def _usable(turn: CoreMessage) -> tuple[Part, ...]:
    """The parts of a message; a call of an answer that is not whole has no arguments, so that no tool runs."""
    if turn.meta is None or turn.meta.finish_reason in _RUNNABLE:
        return turn.parts
    return tuple(_unusable(part) if isinstance(part, ToolCall) else part for part in turn.parts)


def _unusable(call: ToolCall) -> ToolCall:
    return replace(call, arguments=None, parse_error=call.parse_error or _NOT_WHOLE, parse_warning=None)


# ---------------------------------------------------------------- the table


class _Pair(NamedTuple):
    """A block and the part that it stands for."""

    block: type[Block]
    part: type[Part]
    to_part: Callable[[Any], Part]
    to_block: Callable[[Any], Block]


def _call_of(block: ToolUseBlock) -> ToolCall:
    if block.parameters is not None:
        return ToolCall(block.tool_use_id, block.tool_name, block.parameters)
    written = block.raw_parameters or ""
    return ToolCall(block.tool_use_id, block.tool_name, raw_args_text=written, parse_error=block.parse_error)


def _use_of(part: ToolCall) -> ToolUseBlock:
    written = (part.raw_args_text or None) if part.parse_error else None
    return ToolUseBlock(part.tool_call_id, part.tool_name, part.arguments, part.parse_error, written)


def _image_of(block: ImageBlock) -> Image:
    if block.image_type == "url":
        return Image(mime_type=block.media_type, url=block.data)
    return Image(mime_type=block.media_type, data=block.decode())


def _result_of(block: ToolResultBlock) -> ToolResult:
    content = block.content
    if not isinstance(content, (str, dict)):
        parts: Any = tuple(_to_part(inner) for inner in content)  # texts and pictures alone, as the block checked
        return ToolResult(block.tool_use_id, parts, block.is_error)
    return ToolResult(block.tool_use_id, content, block.is_error)


def _result_block_of(part: ToolResult) -> ToolResultBlock:
    content = part.content
    if isinstance(content, tuple):
        shown = tuple(block for inner in content for block in _shown(inner))
        return ToolResultBlock(part.tool_call_id, shown, part.is_error)  # type: ignore[arg-type]  # the constructor checks
    return ToolResultBlock(part.tool_call_id, content, part.is_error)


_PAIRS: tuple[_Pair, ...] = (
    _Pair(TextBlock, Text, lambda block: Text(block.text), lambda part: TextBlock(part.text)),
    _Pair(ToolUseBlock, ToolCall, _call_of, _use_of),
    _Pair(ToolResultBlock, ToolResult, _result_of, _result_block_of),
    _Pair(ImageBlock, Image, _image_of, lambda part: image_block(part.mime_type, part.data, part.url)),
)
_BY_BLOCK = {pair.block: pair.to_part for pair in _PAIRS}
_BY_PART = {pair.part: pair.to_block for pair in _PAIRS}


def _to_part(block: Block) -> Part:
    return _BY_BLOCK[type(block)](block)


def _shown(part: Part) -> tuple[Block, ...]:
    """The block of a part; thinking, files, provider items and parts of a later version have none."""
    to_block = _BY_PART.get(type(part))
    return () if to_block is None else (to_block(part),)
