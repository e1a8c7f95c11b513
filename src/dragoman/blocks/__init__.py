"""The block-style interface: messages of blocks, an adapter that sends them, chunks that come back.

A thin view of the core. `BlockAdapter` sits on any `Model`; what a block cannot say (thinking, provider data) stays in
a message's `source`, so that the conversation can go on.
"""

from .adapters import BlockAdapter, ModelAdapter, StreamingModel, adapter_for
from .blockform import BlockValue, from_json, to_json
from .channels import ReaderLeft, Sender, StreamingResponse
from .chunks import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    MessageStop,
    StreamChunk,
    ToolUse,
)
from .mapping import from_core, to_core
from .values import (
    Block,
    ImageBlock,
    Message,
    ModelResponse,
    Role,
    TextBlock,
    TokenUsage,
    ToolResultBlock,
    ToolUseBlock,
)

__all__ = [
    "Block",
    "BlockAdapter",
    "BlockValue",
    "ContentBlockDelta",
    "ContentBlockStart",
    "ContentBlockStop",
    "Error",
    "ImageBlock",
    "Message",
    "MessageStop",
    "ModelAdapter",
    "ModelResponse",
    "ReaderLeft",
    "Role",
    "Sender",
    "StreamChunk",
    "StreamingModel",
    "StreamingResponse",
    "TextBlock",
    "TokenUsage",
    "ToolResultBlock",
    "ToolUse",
    "ToolUseBlock",
    "adapter_for",
    "from_core",
    "from_json",
    "to_core",
    "to_json",
]
