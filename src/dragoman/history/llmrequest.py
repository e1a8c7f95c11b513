"""`LlmRequest`: one call as a router and a provider's client see it. Knows no wire API."""

from collections.abc import Sequence

import msgspec

from .._fieldtypes import require_field_types
from ..message import ModelInvocationDescriptor
from ..toolspec import ToolSpec
from .contextmessages import ContextMessage

__all__ = ["LlmRequest"]


class LlmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a call says, which tools it has, what it is for, and which model it wants."""

    context: Sequence[ContextMessage] = ()
    tools: tuple[ToolSpec, ...] = ()
    strategy: str = ""
    invocation: ModelInvocationDescriptor | None = None

    def __post_init__(self) -> None:
        require_field_types(self)
