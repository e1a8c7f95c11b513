"""What was said, as the JSON of the GenAI conventions, with secrets blanked out. Pure.

Only for those who ask for content. Bytes are never written, only that they were there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from .._jsontext import encode_json
from ..errors import REDACTED, redact
from ..message import (
    FileRef,
    FinishReason,
    Image,
    Message,
    Part,
    ProviderItem,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)

__all__ = ["MessageTexts", "write_arguments", "write_instructions", "write_output"]

# The conventions' words for why an answer ended, where they differ from ours.
_FINISH_REASONS = {FinishReason.TOOL_CALLS: "tool_call"}


class MessageTexts:
    """Messages as JSON, each written once: those that the last context had too are not written again."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[Message, str]] = {}  # by identity; the message is held, so that it stays its own

    def write(self, messages: Iterable[Message]) -> str:
        """Return the value of `gen_ai.input.messages`."""
        last, self._written = self._written, {}
        texts = []
        for message in messages:
            key = id(message)
            entry = self._written[key] = last.get(key) or (message, _text(_message(message)))
            texts.append(entry[1])
        return f"[{','.join(texts)}]"


def write_output(message: Message) -> str:
    """Return the value of `gen_ai.output.messages`."""
    finish = message.meta.finish_reason if message.meta is not None else None
    reason = "error" if finish is None else _FINISH_REASONS.get(finish, finish.value)
    return _text([{**_message(message), "finish_reason": reason}])


def write_instructions(system: str) -> str:
    """Return the value of `gen_ai.system_instructions`."""
    return _text([{"type": "text", "content": redact(system)}])


def write_arguments(raw_arguments: str, arguments: Mapping[str, Any] | None) -> str:
    """Return the value of `gen_ai.tool.call.arguments`: JSON, or what the model wrote where that is none."""
    return redact(raw_arguments) if arguments is None else _text(_clean(arguments))


def _text(value: Any) -> str:
    return encode_json(value).decode()


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role.value, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "content": redact(part.text)}
        case Thinking():
            return {"type": "reasoning", "content": redact(part.text)}
        case ToolCall():
            arguments = redact(part.raw_args_text) if part.arguments is None else _clean(part.arguments)
            return {"type": "tool_call", "id": part.tool_call_id, "name": part.tool_name, "arguments": arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.tool_call_id, "response": _response(part)}
        case Image() | FileRef():
            return _medium(part)
        case ProviderItem():
            return {"type": part.kind, "item_type": part.item_type, "content": redact(part.text or "")}
        case UnknownPart():
            return {"type": part.kind}


def _response(result: ToolResult) -> Any:
    content = result.content
    if isinstance(content, str):
        return redact(content)
    return [_part(part) for part in content] if isinstance(content, tuple) else _clean(content)


def _medium(part: Image | FileRef) -> dict[str, Any]:
    modality = "image" if isinstance(part, Image) else "document"
    about = {"modality": modality} | ({"mime_type": part.mime_type} if part.mime_type else {})
    if part.url is not None and not part.url.startswith("data:"):
        return {"type": "uri", **about, "uri": redact(part.url)}
    if isinstance(part, FileRef) and part.file_id is not None:
        return {"type": "file", **about, "file_id": part.file_id}
    if isinstance(part, FileRef) and part.path is not None:
        return {"type": part.kind, **about, "path": redact(part.path)}
    return {"type": part.kind, **about, "size": len(part.data if part.data is not None else part.url or "")}


def _clean(value: Any) -> Any:
    """The JSON value with secrets blanked out: what looks like one, and what is called one."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: REDACTED if _names_secret(name) else _clean(item) for name, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def _names_secret(name: str) -> bool:
    return redact(f"{name}=something").endswith(REDACTED)
