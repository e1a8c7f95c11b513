"""The ids of a message's tool calls, made unique in their session. Pure: the caller keeps the ids."""

from msgspec.structs import replace

from ..message import Message, Part, ToolCall
from .growing import GrowingIds

__all__ = ["with_new_call_ids"]


def with_new_call_ids(message: Message, used: GrowingIds) -> Message:
    """Return the message with a new id for every call whose id was used before; self if none was.

    The wire's own id is kept as provider data.
    """
    taken: set[str] = set()
    parts: list[Part] = []
    renamed = False
    for part in message.parts:
        if isinstance(part, ToolCall):
            new_id = used.free_form(part.tool_call_id, taken)
            taken.add(new_id)
            if new_id != part.tool_call_id:
                data = {"id": part.tool_call_id, **(part.provider_data or {})}
                part = replace(part, tool_call_id=new_id, provider_data=data)  # noqa: PLW2901  # the same call, renamed
                renamed = True
        parts.append(part)
    if not renamed:
        return message
    meta = message.meta
    if meta is not None and meta.parse_failures is not None:
        failed = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
        meta = replace(meta, parse_failures=failed)
    return replace(message, parts=tuple(parts), meta=meta)
