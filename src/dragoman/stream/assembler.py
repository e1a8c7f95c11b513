"""Deltas to the message they make, step by step. Pure; O(1) per delta; a snapshot at any time.

Contiguous pieces of one kind and part become one part: never across another kind, never across
provider data. Arguments are read when their call ends, and never guessed.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from .._jsontext import join_surrogates
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
from ..message import (
    FinishReason,
    Image,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    ProviderItem,
    Role,
    Text,
    Thinking,
    ToolCall,
)
from ..usage import TokenUsage
from .guard import guard_deltas

__all__ = ["Assembler", "Assembly", "assemble"]

_CUT_OFF = "the stream ended before the call's arguments were whole"
_CUT_BY_LENGTH = "the answer reached its length limit before any argument was written"
_STOPPED = "the answer was stopped by its provider before any argument was written"
_UNKNOWN_FINISH = "the answer has no argument text and ended for a reason that is not known to be good"

# Why a call without any argument text is not a call without arguments.
_NO_ARGUMENTS: dict[FinishReason | None, str] = {
    None: _CUT_OFF,
    FinishReason.LENGTH: _CUT_BY_LENGTH,
    FinishReason.CONTENT_FILTER: _STOPPED,
    FinishReason.REFUSAL: _STOPPED,
    FinishReason.OTHER: _UNKNOWN_FINISH,
}


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream came to: the `message`, or the `error` with the `partial` that had arrived before it.

    `first_at` is when the first piece of the answer arrived.
    """

    message: Message | None = None
    partial: Message | None = None
    error: ErrorDelta | None = None
    usage: TokenUsage | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    first_at: datetime | None = None


class _Run:
    """Pieces of one text or thinking part."""

    __slots__ = ("kind", "part_index", "pieces", "provider_data")

    def __init__(self, kind: str, part_index: int | None) -> None:
        self.kind = kind
        self.part_index = part_index
        self.pieces: list[str] = []
        self.provider_data: dict[str, Any] | None = None

    def part(self) -> Text | Thinking:
        text = join_surrogates("".join(self.pieces))
        part_class = Text if self.kind == "text" else Thinking
        return part_class(text, provider_data=self.provider_data)


class _Call:
    """A tool call under way; `parsed` is there once it has ended."""

    __slots__ = ("parsed", "pieces", "provider_data", "tool_call_id", "tool_name")

    def __init__(self, start: ToolCallStartDelta) -> None:
        self.tool_call_id = start.tool_call_id
        self.tool_name = start.tool_name
        self.provider_data = start.provider_data
        self.pieces: list[str] = []
        self.parsed: ToolCall | None = None

    def end(self, end: ToolCallEndDelta) -> None:
        if end.provider_data is not None:
            self.provider_data = {**(self.provider_data or {}), **end.provider_data}
        text = "".join(self.pieces)
        if end.parse_error is not None:
            self.parsed = self._unusable(end.parse_error)
        elif text:
            self.parsed = ToolCall.parse(self.tool_call_id, self.tool_name, text, provider_data=self.provider_data)

    def part(self, ended: bool, finish_reason: FinishReason | None) -> ToolCall:
        """The call as it stands. Without any argument text it is `{}` only in an answer that finished normally."""
        if self.parsed is not None:
            return self.parsed
        if ended and finish_reason not in _NO_ARGUMENTS:
            return ToolCall(self.tool_call_id, self.tool_name, {}, "", provider_data=self.provider_data)
        return self._unusable(_NO_ARGUMENTS.get(finish_reason, _CUT_OFF))

    def _unusable(self, parse_error: str) -> ToolCall:
        return ToolCall(
            self.tool_call_id,
            self.tool_name,
            raw_args_text=join_surrogates("".join(self.pieces)),
            parse_error=parse_error,
            provider_data=self.provider_data,
        )


class Assembler:
    """Builds one assistant message from a legal stream of deltas.

    It trusts the order: feed it what has passed the contract or a guard (`assemble` does both).
    """

    __slots__ = (
        "_calls", "_error", "_finish", "_first_at", "_invocation", "_run", "_slots", "_start", "_timestamp",
        "_trace_id", "_usage",
    )  # fmt: skip

    def __init__(self, *, invocation: ModelInvocationDescriptor | None = None, trace_id: str | None = None) -> None:
        self._invocation = invocation
        self._trace_id = trace_id
        self._start: StartDelta | None = None
        self._slots: list[_Run | _Call | Part] = []
        self._run: _Run | None = None  # the part that the next piece may continue
        self._calls: dict[str, _Call] = {}  # open ones
        self._usage: TokenUsage | None = None
        self._finish: DoneDelta | None = None
        self._error: ErrorDelta | None = None
        self._timestamp: datetime | None = None
        self._first_at: datetime | None = None

    def feed(self, delta: MessageDelta) -> None:
        """Take the next delta."""
        add = _ADD.get(type(delta))
        if add is not None:
            add(self, delta)
        self._timestamp = delta.timestamp

    def snapshot(self) -> Message | None:
        """Return what has arrived so far as a message, unfinished calls marked as such; None before the start."""
        start = self._start
        if start is None:
            return None
        finish_reason = self._finish.finish_reason if self._finish else None
        parts = tuple(self._part(slot, finish_reason) for slot in self._slots)
        return Message(Role.ASSISTANT, parts, start.run_id, self._timestamp, self._meta(start, parts))

    def result(self) -> Assembly:
        """Return the message if the stream is done, else the partial with the error that ended it, if one has."""
        message = self.snapshot()
        done = self._finish
        return Assembly(
            message=message if done else None,
            partial=None if done else message,
            error=self._error,
            usage=self._usage,
            finish_reason=done.finish_reason if done else None,
            raw_finish_reason=done.raw_finish_reason if done else None,
            first_at=self._first_at,
        )

    def _add_start(self, delta: StartDelta) -> None:
        self._start = delta

    def _add_piece(self, delta: TextDelta | ThinkingDelta) -> None:
        run = self._run
        if run is None or run.kind != delta.kind or run.part_index != delta.part_index:
            if not delta.text_delta and delta.provider_data is None:
                return  # an empty piece says nothing: it opens no part and ends none
            run = _Run(delta.kind, delta.part_index)
            self._append(run, delta)
            self._run = run
        run.pieces.append(delta.text_delta)
        if delta.provider_data is not None:
            run.provider_data = delta.provider_data
            self._run = None

    def _add_call(self, delta: ToolCallStartDelta) -> None:
        call = self._calls[delta.tool_call_id] = _Call(delta)
        self._append(call, delta)

    def _add_args(self, delta: ToolCallArgsDelta) -> None:
        if delta.args_text_delta:  # an empty piece of thinking ends no part either
            self._calls[delta.tool_call_id].pieces.append(delta.args_text_delta)
            self._run = None

    def _end_call(self, delta: ToolCallEndDelta) -> None:
        self._calls.pop(delta.tool_call_id).end(delta)
        self._run = None

    def _add_image(self, delta: ImageDelta) -> None:
        self._append(Image(delta.mime_type, delta.data, delta.url, provider_data=delta.provider_data), delta)

    def _add_item(self, delta: ProviderItemDelta) -> None:
        self._append(ProviderItem(delta.item_type, delta.item, delta.text, provider_data=delta.provider_data), delta)

    def _add_usage(self, delta: UsageDelta) -> None:
        self._usage = delta.usage if self._usage is None else self._usage.updated_by(delta.usage)

    def _add_done(self, delta: DoneDelta) -> None:
        self._finish = delta

    def _add_error(self, delta: ErrorDelta) -> None:
        self._error = delta

    def _append(self, slot: _Run | _Call | Part, delta: MessageDelta) -> None:
        if not self._slots:
            self._first_at = delta.timestamp
        self._slots.append(slot)
        self._run = None

    def _part(self, slot: _Run | _Call | Part, finish_reason: FinishReason | None) -> Part:
        if isinstance(slot, _Run):
            return slot.part()
        if isinstance(slot, _Call):
            return slot.part(slot.tool_call_id not in self._calls, finish_reason)
        return slot

    def _meta(self, start: StartDelta, parts: tuple[Part, ...]) -> MessageMeta:
        failures = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCall) and part.parse_error)
        return MessageMeta(
            usage=self._usage,
            finish_reason=self._finish.finish_reason if self._finish else None,
            raw_finish_reason=self._finish.raw_finish_reason if self._finish else None,
            invocation=self._invocation,
            model_id=start.model_id or None,
            request_id=start.request_id or None,
            trace_id=self._trace_id,
            parse_failures=failures or None,
            interrupted=None if self._finish else True,
            provider_data=self._finish.provider_data if self._finish else None,
        )


_ADD: dict[type, Callable[[Assembler, Any], None]] = {
    StartDelta: Assembler._add_start,
    TextDelta: Assembler._add_piece,
    ThinkingDelta: Assembler._add_piece,
    ToolCallStartDelta: Assembler._add_call,
    ToolCallArgsDelta: Assembler._add_args,
    ToolCallEndDelta: Assembler._end_call,
    ImageDelta: Assembler._add_image,
    ProviderItemDelta: Assembler._add_item,
    UsageDelta: Assembler._add_usage,
    DoneDelta: Assembler._add_done,
    ErrorDelta: Assembler._add_error,
}


def assemble(deltas: Iterable[MessageDelta], *, invocation: ModelInvocationDescriptor | None = None) -> Assembly:
    """Return what the deltas come to. They are guarded: a stream that breaks a rule or stops early ends in an error."""
    assembler = Assembler(invocation=invocation)
    for delta in guard_deltas(deltas):
        assembler.feed(delta)
    return assembler.result()
