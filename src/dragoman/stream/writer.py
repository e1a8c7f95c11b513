"""Collects the deltas that a decoder emits, and gives each its number and time."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ..delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from ..errors import DragomanError, InvalidValue
from ..message import FinishReason
from ..usage import TokenUsage, amount_of

__all__ = ["DeltaWriter"]


class DeltaWriter:
    """Collects the deltas of one stream; `take` hands them out. `now`, when they arrived, may be set after it.

    A decoder sets `has_finish` when it reads the provider's finish, if `done` must wait for what follows.
    """

    __slots__ = ("_deltas", "has_finish", "now", "run_id", "seq", "started")

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        self.seq = 0
        self.started = False
        self.has_finish = False
        self.now: datetime | None = None
        self._deltas: list[MessageDelta] = []

    def take(self) -> list[MessageDelta]:
        """Return the deltas written since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def __len__(self) -> int:
        return len(self._deltas)

    def attach_raw(self, first: int, raw: Any) -> None:
        """Attach what the wire said to the deltas from this one on, of those that were not taken yet."""
        self._deltas[first:] = [replace(delta, provider_raw=raw) for delta in self._deltas[first:]]

    def start(self, model_id: str = "", request_id: str = "") -> None:
        """Write `start` if it has not been written yet."""
        if not self.started:
            self.started = True
            self._deltas.append(StartDelta(self.run_id, self._next(), self.now, model_id, request_id))

    def text(self, piece: str, part_index: int | None = None, provider_data: dict[str, Any] | None = None) -> None:
        """Write a piece of text; provider data closes its block."""
        seq = self.seq
        self.seq = seq + 1
        self._deltas.append(TextDelta(self.run_id, seq, self.now, piece, part_index, provider_data))

    def thinking(self, piece: str, part_index: int | None = None, provider_data: dict[str, Any] | None = None) -> None:
        """Write a piece of thinking; provider data closes its block."""
        seq = self.seq
        self.seq = seq + 1
        self._deltas.append(ThinkingDelta(self.run_id, seq, self.now, piece, part_index, provider_data))

    def call_start(self, call_id: str, name: str, provider_data: dict[str, Any] | None = None) -> None:
        """Open a tool call."""
        self._deltas.append(ToolCallStartDelta(self.run_id, self._next(), self.now, call_id, name, provider_data))

    def call_args(self, call_id: str, piece: str) -> None:
        """Write a piece of an open call's argument text."""
        seq = self.seq
        self.seq = seq + 1
        self._deltas.append(ToolCallArgsDelta(self.run_id, seq, self.now, call_id, piece))

    def call_end(
        self, call_id: str, provider_data: dict[str, Any] | None = None, parse_error: str | None = None
    ) -> None:
        """Close a tool call; with `parse_error` it is never used, whatever its argument text says."""
        self._deltas.append(ToolCallEndDelta(self.run_id, self._next(), self.now, call_id, provider_data, parse_error))

    def image(
        self,
        *,
        mime_type: str | None = None,
        data: bytes | None = None,
        url: str | None = None,
        provider_data: dict[str, Any] | None = None,
    ) -> bool:
        """Write a whole picture; return False, with nothing written, if it has no bytes, or a bad type or address."""
        try:
            delta = ImageDelta(self.run_id, self.seq, self.now, mime_type, data, url, provider_data)
        except InvalidValue:
            return False
        self._next()
        self._deltas.append(delta)
        return True

    def item(self, item_type: str, item: dict[str, Any], text: str | None = None) -> None:
        """Write an item that only its provider understands."""
        self._deltas.append(ProviderItemDelta(self.run_id, self._next(), self.now, item_type, item, text))

    def usage(self, usage: TokenUsage) -> None:
        """Write what the call has used so far."""
        self._deltas.append(UsageDelta(self.run_id, self._next(), self.now, usage))

    def done(self, reason: FinishReason, raw_reason: str | None, provider_data: dict[str, Any] | None = None) -> None:
        """Write the end of a finished answer."""
        self.has_finish = True
        self._deltas.append(DoneDelta(self.run_id, self._next(), self.now, reason, raw_reason, provider_data))

    def error(self, error: DragomanError) -> None:
        """Write the end of a failed answer."""
        self._deltas.append(
            ErrorDelta(
                self.run_id,
                self._next(),
                self.now,
                error.code,
                str(error),
                error.retryable,
                amount_of(error.retry_after),
                error.request_id,
                error.provider_message,
            )
        )

    def _next(self) -> int:
        seq = self.seq
        self.seq = seq + 1
        return seq
