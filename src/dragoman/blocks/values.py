"""Messages made of blocks, and what an adapter answers: frozen values that refuse what their kind or role forbids.

Their JSON is `blockform`'s, what they are in the core is `mapping`'s. Knows no model and no stream.
"""

import base64
import binascii
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import require_json_object
from ..errors import InvalidValue
from ..mediatypes import picture_type
from ..message import FinishReason, finish_reason, require_name, require_text
from ..message import Message as CoreMessage
from ..usage import require_count

__all__ = [
    "Block",
    "ImageBlock",
    "Message",
    "ModelResponse",
    "Role",
    "TextBlock",
    "TokenUsage",
    "ToolResultBlock",
    "ToolUseBlock",
]


class Role(StrEnum):
    """Who speaks. Results of tools are blocks of a user message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class _Block(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    pass


class TextBlock(_Block, frozen=True, tag="text"):
    """Words."""

    text: str

    def __post_init__(self) -> None:
        require_text("text block: text", self.text)


class ToolUseBlock(_Block, frozen=True, tag="tool_use"):
    """A model's request to run a tool.

    `parameters` is None where what the model wrote was no JSON object: then `parse_error` says why, `raw_parameters`
    is what it wrote (None: nothing), and the tool must not be run.
    """

    tool_use_id: str
    tool_name: str
    parameters: dict[str, Any] | None = None
    parse_error: str | None = None
    raw_parameters: str | None = None

    def __post_init__(self) -> None:
        require_tool_use("tool_use block", self)


class ImageBlock(_Block, frozen=True, tag="image"):
    """A picture: `data` is Base64 of its bytes, which have a `media_type`, or the URL where it is."""

    image_type: Literal["base64", "url"]
    media_type: str | None
    data: str

    def __post_init__(self) -> None:
        if self.image_type not in ("base64", "url"):
            raise InvalidValue.of("image block: image_type", self.image_type, "'base64' or 'url'")
        data, url = (None, self.data) if self.image_type == "url" else (self.decode(), None)
        force_setattr(self, "media_type", picture_type(self.media_type, data, url))

    def decode(self) -> bytes:
        """Return the bytes that Base64 `data` says."""
        if type(self.data) is not str:
            raise InvalidValue.of("image block: data", self.data, "text")
        try:
            return base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidValue("image block: data of type base64 must be Base64 without spaces") from None


class ToolResultBlock(_Block, frozen=True, tag="tool_result"):
    """The result of one tool use: text, a JSON object, or blocks of text and pictures."""

    tool_use_id: str
    content: str | dict[str, Any] | Sequence[TextBlock | ImageBlock]
    is_error: bool = False

    def __post_init__(self) -> None:
        require_name("tool_result block: tool_use_id", self.tool_use_id)
        if type(self.is_error) is not bool:
            raise InvalidValue.of("tool_result block: is_error", self.is_error, "true or false")
        if isinstance(self.content, list):
            force_setattr(self, "content", tuple(self.content))
        if isinstance(self.content, dict):
            require_json_object(self.content, "tool_result block: content")
        elif isinstance(self.content, tuple):
            require_blocks("tool_result block: content", self.content, (TextBlock, ImageBlock))
        elif type(self.content) is not str:
            wanted = "text, a dict, or text and image blocks"
            raise InvalidValue.of_content("tool_result block: content", self.content, wanted)


Block: TypeAlias = TextBlock | ToolUseBlock | ToolResultBlock | ImageBlock

BLOCK_CLASSES: tuple[type[Block], ...] = (TextBlock, ToolUseBlock, ToolResultBlock, ImageBlock)

# Which blocks a role may hold.
ROLE_BLOCKS: dict[Role, tuple[type[Block], ...]] = {
    Role.USER: (TextBlock, ImageBlock, ToolResultBlock),
    Role.ASSISTANT: (TextBlock, ImageBlock, ToolUseBlock),
    Role.SYSTEM: (TextBlock,),
}


class Message(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One message: text, or blocks in the order they were said.

    `source` is what the core recorded of this turn, thinking, provider data and provenance included; it goes to the
    model in place of the blocks and must say the same as they do. A caller that changes `content` leaves it out.
    """

    role: Role
    content: str | Sequence[Block]
    source: tuple[CoreMessage, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.role, str) or self.role not in ROLE_BLOCKS:
            raise InvalidValue.of("role", self.role, "one of user, assistant, system")
        force_setattr(self, "role", Role(self.role))
        if isinstance(self.content, list):
            force_setattr(self, "content", tuple(self.content))
        if isinstance(self.content, tuple):
            require_blocks(f"a {self.role} message", self.content, ROLE_BLOCKS[self.role])
        elif type(self.content) is not str:
            raise InvalidValue.of_content("content", self.content, "text or a sequence of blocks")
        if self.source is not None:
            self._require_source()

    def _require_source(self) -> None:
        from .mapping import from_core  # the mapping knows these classes

        said = from_core(self.source or (), keep_source=False)
        force_setattr(self, "source", tuple(self.source or ()))
        if [(turn.role, turn.blocks) for turn in said] != [(self.role, self.blocks)]:
            raise InvalidValue("source must say what role and content say: leave it out of a message that was changed")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks: text is one block."""
        return (TextBlock(self.content),) if isinstance(self.content, str) else tuple(self.content)

    @property
    def text(self) -> str:
        """All text joined, with nothing between the blocks."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool uses, in order; one with a `parse_error` must not be run."""
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))


class TokenUsage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Tokens of one call: all input and all output, cached and reasoning tokens included."""

    input_tokens: int
    output_tokens: int
    total_tokens: int | None = None

    def __post_init__(self) -> None:
        require_count("input_tokens", self.input_tokens)
        require_count("output_tokens", self.output_tokens)
        if self.total_tokens is not None:
            require_count("total_tokens", self.total_tokens)


class ModelResponse(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An answer that has ended; `stop_reason.is_complete` says whether it is whole.

    `usage` is None where the provider did not report it, `model` is the one that answered.
    """

    message: Message
    usage: TokenUsage | None
    model: str
    stop_reason: FinishReason

    def __post_init__(self) -> None:
        if not isinstance(self.message, Message) or self.message.role is not Role.ASSISTANT:
            raise InvalidValue.of("response: message", self.message, "an assistant's Message")
        require_usage("response", self.usage)
        require_text("response: model", self.model)
        force_setattr(self, "stop_reason", finish_reason(self.stop_reason))


def require_blocks(owner: str, blocks: tuple[object, ...], allowed: tuple[type[Block], ...]) -> None:
    """Raise InvalidValue unless every one of `blocks` is of an `allowed` class."""
    for block in blocks:
        if not isinstance(block, allowed):
            names = ", ".join(each.__name__ for each in allowed)
            raise InvalidValue(f"{owner} cannot hold a {type(block).__name__}: allowed are {names}")


def require_tool_use(owner: str, use: Any) -> None:
    """Raise InvalidValue unless `use` names a call and has either parameters or the error with the text as written."""
    require_name(f"{owner}: tool_use_id", use.tool_use_id)
    require_name(f"{owner}: tool_name", use.tool_name)
    if (use.parameters is None) == (use.parse_error is None):
        seen = "neither" if use.parameters is None else "both"
        raise InvalidValue(f"{owner} must have either parameters or parse_error, got {seen}")
    if use.parameters is not None:
        require_json_object(use.parameters, f"{owner}: parameters")
        if use.raw_parameters is not None:
            raise InvalidValue(f"{owner} has raw_parameters only where it has a parse_error")
    else:
        require_name(f"{owner}: parse_error", use.parse_error)
        if use.raw_parameters is not None:
            require_name(f"{owner}: raw_parameters", use.raw_parameters)


def require_usage(owner: str, usage: object) -> None:
    """Raise InvalidValue unless `usage` is None or a TokenUsage."""
    if usage is not None and not isinstance(usage, TokenUsage):
        raise InvalidValue.of(f"{owner}: usage", usage, "a TokenUsage or None")
