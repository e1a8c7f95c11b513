"""What a model answers, as bytes in the client's own API: the one protocol of both ways to ask it."""

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from ...delta import ErrorDelta, ImageDelta, ProviderItemDelta, TextDelta, ThinkingDelta, ToolCallStartDelta
from ...errors import DragomanError, ErrorCode
from ...stream import Assembly

__all__ = ["HOLD_LIMIT", "UpstreamAnswer", "as_error", "has_content"]

HOLD_LIMIT = 1 << 20  # bytes before the first content that are held back
_CONTENT = frozenset({TextDelta, ThinkingDelta, ToolCallStartDelta, ImageDelta, ProviderItemDelta})


class UpstreamAnswer(Protocol):
    """One request to one model. Open it, then take its pieces; close it in any case."""

    model: str  # provider:model
    status: int
    headers: dict[str, str]
    is_whole: bool  # whether the answer has come to its end

    async def open(self, *, holds: bool = False) -> ErrorDelta | None:
        """Wait for the first bytes of the answer; with `holds`, for its first content, and hold back what comes before.

        A failure before them is returned: the next model may be asked.
        """

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the answer: whole events, or the whole body. A cut becomes the API's own error."""

    def refusal(self) -> bytes | None:
        """Return the body by which the upstream itself refused, if it speaks the client's API."""

    @property
    def assembly(self) -> Assembly:
        """What has come of the answer, read."""

    async def close(self) -> None:
        """Close the connection."""


def has_content(deltas: Iterable[object]) -> bool:
    """Whether an answer has begun to say something: its start, its usage and its end are no content."""
    return not _CONTENT.isdisjoint(map(type, deltas))


def as_error(error: Exception) -> ErrorDelta:
    """Return an exception as the error that ends an answer. What is no error of ours is told without its words."""
    if isinstance(error, DragomanError):
        return ErrorDelta(
            "", 0, None, error.code, str(error), error.retryable, error.retry_after, error.request_id,
            error.provider_message,
        )  # fmt: skip
    return ErrorDelta("", 0, None, ErrorCode.INTERNAL, "the gateway failed; its log says where")
