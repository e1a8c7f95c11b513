"""Chunks of a streamed answer, their legal order, and how deltas become chunks. Pure: no channel, no model."""

from typing import Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import join_surrogates
from ..delta import (
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
)
from ..errors import (
    RETRYABLE_CODES,
    ContractViolation,
    DragomanError,
    ErrorCode,
    InvalidValue,
    ModelError,
    redact,
    redact_provider_message,
)
from ..message import FinishReason, as_word, finish_reason, require_text
from ..usage import require_amount, require_count
from .mapping import image_block
from .values import ImageBlock, Message, TokenUsage, ToolUseBlock, require_tool_use, require_usage

__all__ = [
    "ContentBlockDelta",
    "ContentBlockStart",
    "ContentBlockStop",
    "Error",
    "MessageStop",
    "StreamChunk",
    "ToolUse",
]


class _Chunk(
    msgspec.Struct,
    frozen=True,
    tag_field="chunk",
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    pass


class ContentBlockStart(_Chunk, frozen=True, tag="content_block_start"):
    """A block opens. `index` is its index in the content of the answer; a `block` that comes whole is a picture."""

    index: int
    block: ImageBlock | None = None

    def __post_init__(self) -> None:
        require_count("content_block_start: index", self.index)
        if self.block is not None and not isinstance(self.block, ImageBlock):
            raise InvalidValue.of("content_block_start: block", self.block, "an ImageBlock or None")


class ContentBlockDelta(_Chunk, frozen=True, tag="content_block_delta"):
    """A piece of the open block's text."""

    index: int
    delta: str

    def __post_init__(self) -> None:
        if type(self.index) is not int or self.index < 0 or type(self.delta) is not str:
            require_count("content_block_delta: index", self.index)
            require_text("content_block_delta: delta", self.delta)


class ContentBlockStop(_Chunk, frozen=True, tag="content_block_stop"):
    """The open block is whole; before an `Error`, all of it that came."""

    index: int

    def __post_init__(self) -> None:
        require_count("content_block_stop: index", self.index)


class ToolUse(_Chunk, frozen=True, tag="tool_use"):
    """A call of an answer that has ended. With a `parse_error` it has no parameters, and must not be run."""

    tool_name: str
    tool_use_id: str
    parameters: dict[str, Any] | None
    index: int | None = None
    parse_error: str | None = None
    raw_parameters: str | None = None

    def __post_init__(self) -> None:
        require_tool_use("tool_use chunk", self)
        if self.index is not None:
            require_count("tool_use chunk: index", self.index)


class MessageStop(_Chunk, frozen=True, tag="message_stop"):
    """The answer has ended, and `stop_reason.is_complete` says whether it is whole. Nothing comes after it."""

    usage: TokenUsage | None
    stop_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        require_usage("message_stop", self.usage)
        if self.stop_reason is not None:
            force_setattr(self, "stop_reason", finish_reason(self.stop_reason))


class Error(_Chunk, frozen=True, tag="error"):
    """There will be no answer, and why. Nothing comes after it."""

    message: str
    code: ErrorCode = ErrorCode.INTERNAL
    retryable: bool | None = None
    retry_after: float | None = None
    request_id: str | None = None
    provider_message: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "code", as_word("error: code", self.code, ErrorCode))
        if self.retryable is None:
            force_setattr(self, "retryable", self.code in RETRYABLE_CODES)
        if type(self.retryable) is not bool:
            raise InvalidValue.of("error: retryable", self.retryable, "true or false")
        if self.retry_after is not None:
            force_setattr(self, "retry_after", require_amount("error: retry_after", self.retry_after))
        require_text("error: message", self.message)
        for name, clean in (("message", redact), ("request_id", redact), ("provider_message", redact_provider_message)):
            said = getattr(self, name)
            if said is not None:
                require_text(f"error: {name}", said)
                force_setattr(self, name, clean(said))

    @classmethod
    def of(cls, error: Exception) -> "Error":
        """Return the chunk for an exception; of one that is not ours only the type is told."""
        if not isinstance(error, DragomanError):
            # Its text may hold anything, a prompt or a key included.
            return cls(f"the producer of the stream raised {type(error).__name__}")
        return cls(
            str(error),
            error.code,
            error.retryable,
            error.retry_after,
            error.request_id,
            error.provider_message,
        )

    def to_exception(self) -> ModelError:
        """Return the same facts as an exception, for callers that would rather raise."""
        return ModelError(
            self.message,
            code=self.code,
            retryable=self.retryable,
            retry_after=self.retry_after,
            request_id=self.request_id,
            provider_message=self.provider_message,
        )


StreamChunk: TypeAlias = ContentBlockStart | ContentBlockDelta | ContentBlockStop | ToolUse | MessageStop | Error

CHUNK_CLASSES: tuple[type[StreamChunk], ...] = (
    ContentBlockStart,
    ContentBlockDelta,
    ContentBlockStop,
    ToolUse,
    MessageStop,
    Error,
)
TERMINALS = (MessageStop, Error)

# ---------------------------------------------------------------- the order

# state -> {chunk: next state}; a missing entry is the error.
ORDER: dict[str, dict[type[StreamChunk], str]] = {
    "between blocks": {
        ContentBlockStart: "in a block",
        ToolUse: "between blocks",
        MessageStop: "ended",
        Error: "ended",
    },
    "in a block": {ContentBlockDelta: "in a block", ContentBlockStop: "between blocks", Error: "ended"},
    "ended": {},
}
# The rules that the table cannot say:
#   1. The index of a block is greater than that of the block before it.
#   2. A delta or a stop has the index of the open block.
#   3. An error stops the open block first.


class ChunkOrder:
    """Follows one stream of chunks and refuses the first that is not legal."""

    __slots__ = ("_index", "_state")

    def __init__(self) -> None:
        self._state = "between blocks"
        self._index = -1

    @property
    def ended(self) -> bool:
        """Whether a terminal chunk has come."""
        return self._state == "ended"

    def admit(self, chunk: StreamChunk) -> tuple[StreamChunk, ...]:
        """Return what to pass on for a chunk, which is itself, or before an error the stop of the open block too."""
        if not isinstance(chunk, CHUNK_CLASSES):
            raise InvalidValue.of("a chunk", chunk, f"one of {_names(CHUNK_CLASSES)}")
        state, following = self._state, ORDER[self._state].get(type(chunk))
        if following is None:
            raise ContractViolation(f"{type(chunk).__name__}: stream is {state}, legal: {_names(ORDER[state])}")
        if isinstance(chunk, ContentBlockStart):
            if chunk.index <= self._index:
                raise ContractViolation(f"ContentBlockStart {chunk.index}: the last block was {self._index}")
            self._index = chunk.index
        elif isinstance(chunk, (ContentBlockDelta, ContentBlockStop)) and chunk.index != self._index:
            raise ContractViolation(f"{type(chunk).__name__} {chunk.index}: the open block is {self._index}")
        self._state = following
        if state == "in a block" and isinstance(chunk, Error):
            return ContentBlockStop(self._index), chunk
        return (chunk,)


def _names(classes: Any) -> str:
    return ", ".join(each.__name__ for each in classes) or "nothing"


# ---------------------------------------------------------------- from deltas


class ChunkWriter:
    """Chunks of the text and pictures in a stream of deltas, up to its terminal delta.

    Blocks begin and end where the assembler's parts do, so an index counts the content of the answer. Thinking
    and provider items have no chunks. Calls have an index and no chunk yet: they are told when the answer is whole.
    """

    __slots__ = ("_held", "_index", "_is_open", "_part_index")

    def __init__(self) -> None:
        self._index = -1  # of the newest block
        self._is_open = False
        self._part_index: int | None = None
        self._held = ""  # half a surrogate pair, which waits for its other half

    def feed(self, delta: MessageDelta) -> list[StreamChunk]:
        """Return the chunks of the next delta."""
        match delta:
            case TextDelta():
                return self._text(delta)
            case ThinkingDelta():
                return self.stop() if delta.text_delta or delta.provider_data is not None else []
            case ToolCallArgsDelta():
                return self.stop() if delta.args_text_delta else []
            case ToolCallEndDelta() | ProviderItemDelta():
                return self.stop()
            case ToolCallStartDelta():
                chunks = self.stop()
                self._index += 1
                return chunks
            case ImageDelta():
                picture = image_block(delta.mime_type, delta.data, delta.url)
                return [*self._start(picture), *self.stop()]
            case _:
                return []

    def stop(self) -> list[StreamChunk]:
        """Return the chunks that end the open block, if there is one."""
        if not self._is_open:
            return []
        self._is_open = False
        held, self._held = self._held, ""
        rest = [ContentBlockDelta(self._index, join_surrogates(held))] if held else []
        return [*rest, ContentBlockStop(self._index)]

    def _start(self, picture: ImageBlock | None = None) -> list[StreamChunk]:
        chunks = self.stop()
        self._index += 1
        self._is_open = True
        return [*chunks, ContentBlockStart(self._index, picture)]

    def _text(self, delta: TextDelta) -> list[StreamChunk]:
        closes = delta.provider_data is not None
        if not delta.text_delta and not closes:
            return []  # an empty piece says nothing: it opens no block and ends none
        chunks: list[StreamChunk] = []
        if not self._is_open or self._part_index != delta.part_index:
            chunks = self._start()
            self._part_index = delta.part_index
        text = self._held + delta.text_delta
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole = text[: len(text) - len(self._held)]
        if whole:
            chunks.append(ContentBlockDelta(self._index, join_surrogates(whole)))
        return [*chunks, *self.stop()] if closes else chunks


def tool_use_chunks(message: Message) -> list[ToolUse]:
    """Return the chunks of a message's tool uses, each with its index in the content."""
    return [
        ToolUse(block.tool_name, block.tool_use_id, block.parameters, index, block.parse_error, block.raw_parameters)
        for index, block in enumerate(message.blocks)
        if isinstance(block, ToolUseBlock)
    ]
