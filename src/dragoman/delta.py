"""Deltas: the one protocol in which every model's answer arrives, one frozen class per kind.

Construction is on the path of every token, so the checks here are few and cheap; the order of
deltas is the contract's business (`stream.contract`), their JSON layout is `jsonform`'s.
"""

from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from ._jsontext import freeze_object, require_json
from .errors import RETRYABLE_CODES, ErrorCode, InvalidValue, ModelError, redact, redact_provider_message
from .mediatypes import picture_type
from .message import (
    FinishReason,
    as_word,
    finish_reason,
    require_extra,
    require_item,
    require_name,
    require_text,
    shape_of,
    utc_time,
)
from .usage import NUMBER_LIMIT, TokenUsage, require_amount, require_count

__all__ = [
    "DoneDelta",
    "ErrorDelta",
    "ImageDelta",
    "KnownDelta",
    "MessageDelta",
    "ProviderItemDelta",
    "StartDelta",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallArgsDelta",
    "ToolCallEndDelta",
    "ToolCallStartDelta",
    "UnknownDelta",
    "UsageDelta",
]


SEQ_LIMIT = 2**63 - 1


class _Debug(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, rename="camel", gc=False):
    """`provider_raw` is what the wire said, for debugging, never stored; `extra` holds fields of a later version."""

    provider_raw: Any = None
    extra: dict[str, Any] | None = None


class _Delta(_Debug, frozen=True, gc=False):
    kind: ClassVar[str]
    run_id: str
    seq: int
    timestamp: datetime | None

    def __post_init__(self) -> None:
        self._require_header()

    def _require_header(self) -> None:
        if type(self.seq) is not int or not 0 <= self.seq <= SEQ_LIMIT:
            raise InvalidValue.of("seq", self.seq, "a whole number from 0 to 2**63 - 1")
        if type(self.run_id) is not str:
            raise InvalidValue.of("runId", self.run_id, "text")
        if self.timestamp is not None and getattr(self.timestamp, "tzinfo", None) is not UTC:
            force_setattr(self, "timestamp", utc_time(self.timestamp))
        if self.extra is not None:
            require_extra(self, delta_shape(type(self)))
        if self.provider_raw is not None:
            require_json(self.provider_raw, "providerRaw")


class StartDelta(_Delta, frozen=True, gc=False):
    """The model began to answer."""

    kind: ClassVar[Literal["start"]] = "start"
    model_id: str = ""
    request_id: str = ""

    def __post_init__(self) -> None:
        self._require_header()
        for name in ("model_id", "request_id"):
            if type(getattr(self, name)) is not str:
                raise InvalidValue.of(f"start.{name}", getattr(self, name), "text")


class _PieceDelta(_Delta, frozen=True, gc=False):
    text_delta: str
    part_index: int | None = None
    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        # One comparison chain for the usual piece; whatever is unusual about it is checked in full.
        if (
            type(self.text_delta) is not str
            or type(self.seq) is not int
            or not 0 <= self.seq <= SEQ_LIMIT
            or type(self.run_id) is not str
            or type(self.timestamp) is not datetime
            or self.timestamp.tzinfo is not UTC
            or self.provider_data is not None
            or self.extra is not None
            or self.provider_raw is not None
            or (
                self.part_index is not None
                and (type(self.part_index) is not int or not 0 <= self.part_index <= NUMBER_LIMIT)
            )
        ):
            self._require_piece()

    def _require_piece(self) -> None:
        self._require_header()
        if type(self.text_delta) is not str:
            raise InvalidValue.of(f"{self.kind}.textDelta", self.text_delta, "text")
        if self.part_index is not None:
            require_count(f"{self.kind}.partIndex", self.part_index)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", f"{self.kind}.providerData")


class TextDelta(_PieceDelta, frozen=True, gc=False):
    """A piece of text. `provider_data` comes with the piece that closes a block; the next piece opens a new one."""

    kind: ClassVar[Literal["text"]] = "text"


class ThinkingDelta(_PieceDelta, frozen=True, gc=False):
    """A piece of reasoning. `provider_data` (a signature, say) comes with the piece that closes a block."""

    kind: ClassVar[Literal["thinking"]] = "thinking"


class ToolCallStartDelta(_Delta, frozen=True, gc=False):
    """A tool call opens; its id opens once in a stream."""

    kind: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    tool_call_id: str
    tool_name: str
    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._require_header()
        require_name("tool_call_start.toolCallId", self.tool_call_id)
        require_name("tool_call_start.toolName", self.tool_name)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "tool_call_start.providerData")


class ToolCallArgsDelta(_Delta, frozen=True, gc=False):
    """A piece of an open call's argument text. The text can parse early and still be a prefix."""

    kind: ClassVar[Literal["tool_call_args"]] = "tool_call_args"
    tool_call_id: str
    args_text_delta: str

    def __post_init__(self) -> None:
        if (
            type(self.args_text_delta) is not str
            or type(self.seq) is not int
            or not 0 <= self.seq <= SEQ_LIMIT
            or type(self.timestamp) is not datetime
            or self.timestamp.tzinfo is not UTC
            or type(self.run_id) is not str
            or type(self.tool_call_id) is not str
            or not self.tool_call_id
            or self.extra is not None
            or self.provider_raw is not None
        ):
            self._require_header()
            require_name("tool_call_args.toolCallId", self.tool_call_id)
            if type(self.args_text_delta) is not str:
                raise InvalidValue.of("tool_call_args.argsTextDelta", self.args_text_delta, "text")


class ToolCallEndDelta(_Delta, frozen=True, gc=False):
    """An open call's argument text is whole; or no more of it comes, and `parse_error` says why it must not be used."""

    kind: ClassVar[Literal["tool_call_end"]] = "tool_call_end"
    tool_call_id: str
    provider_data: dict[str, Any] | None = None
    parse_error: str | None = None

    def __post_init__(self) -> None:
        self._require_header()
        require_name("tool_call_end.toolCallId", self.tool_call_id)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "tool_call_end.providerData")
        if self.parse_error is not None:
            require_name("tool_call_end.parseError", self.parse_error)


class ImageDelta(_Delta, frozen=True, gc=False):
    """A whole picture that the model made: bytes with their type, or a URL."""

    kind: ClassVar[Literal["image"]] = "image"
    mime_type: str | None = None
    data: bytes | None = None
    url: str | None = None
    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._require_header()
        force_setattr(self, "mime_type", picture_type(self.mime_type, self.data, self.url))
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "image.providerData")


class ProviderItemDelta(_Delta, frozen=True, gc=False):
    """A whole output item that only its provider understands; `text` says it to everyone else."""

    kind: ClassVar[Literal["provider_item"]] = "provider_item"
    item_type: str
    item: dict[str, Any]
    text: str | None = None
    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._require_header()
        require_item(self)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "provider_item.providerData")


class UsageDelta(_Delta, frozen=True, gc=False):
    """What the call has used so far: cumulative, so a later report replaces and is never added."""

    kind: ClassVar[Literal["usage"]] = "usage"
    usage: TokenUsage

    def __post_init__(self) -> None:
        self._require_header()
        if not isinstance(self.usage, TokenUsage):
            raise InvalidValue.of("usage", self.usage, "a TokenUsage")


class DoneDelta(_Delta, frozen=True, gc=False):
    """The provider said that the answer is finished, and why. `provider_data` concerns the message as a whole."""

    kind: ClassVar[Literal["done"]] = "done"
    finish_reason: FinishReason
    raw_finish_reason: str | None = None
    provider_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._require_header()
        force_setattr(self, "finish_reason", finish_reason(self.finish_reason))
        if self.raw_finish_reason is not None:
            require_text("done.rawFinishReason", self.raw_finish_reason)
        if self.provider_data is not None:
            freeze_object(self, "provider_data", "done.providerData")


class ErrorDelta(_Delta, frozen=True, gc=False):
    """The stream ended without an answer. `message` is ours; the provider's own words are kept apart."""

    kind: ClassVar[Literal["error"]] = "error"
    error_code: ErrorCode
    message: str | None = None
    retryable: bool | None = None
    retry_after: float | None = None
    request_id: str | None = None
    provider_message: str | None = None

    def __post_init__(self) -> None:
        self._require_header()
        force_setattr(self, "error_code", as_word("error.errorCode", self.error_code, ErrorCode))
        if self.retryable is None:
            force_setattr(self, "retryable", self.error_code in RETRYABLE_CODES)
        if type(self.retryable) is not bool:
            raise InvalidValue.of("error.retryable", self.retryable, "true or false")
        if self.retry_after is not None:
            force_setattr(self, "retry_after", require_amount("error.retryAfter", self.retry_after))
        for name, clean in (("message", redact), ("request_id", redact), ("provider_message", redact_provider_message)):
            text = getattr(self, name)
            if text is not None:
                require_text(f"error.{name}", text)
                force_setattr(self, name, clean(text))

    def to_exception(self) -> ModelError:
        """Return the same facts as an exception, for callers that would rather raise."""
        return ModelError(
            self.message or f"the model call failed: {self.error_code}",
            code=self.error_code,
            retryable=self.retryable,
            retry_after=self.retry_after,
            request_id=self.request_id,
            provider_message=self.provider_message,
        )


class UnknownDelta(_Delta, frozen=True, gc=False):
    """A delta of a kind that a later version wrote; kept as it was read, refused by the contract."""

    kind: str  # type: ignore[misc]  # the one class whose kind is data
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        self._require_header()
        require_name("kind", self.kind)
        if self.kind in DELTA_CLASSES:
            raise InvalidValue(f"kind {self.kind!r} is known here: use {DELTA_CLASSES[self.kind].__name__}")
        freeze_object(self, "payload", f"{self.kind}.payload")


# What a stream yields: the contract refuses all else. `kind`, `match` and `isinstance` narrow it.
KnownDelta: TypeAlias = (
    StartDelta
    | TextDelta
    | ThinkingDelta
    | ToolCallStartDelta
    | ToolCallArgsDelta
    | ToolCallEndDelta
    | ImageDelta
    | ProviderItemDelta
    | UsageDelta
    | DoneDelta
    | ErrorDelta
)
# What JSON is read as: a later version may have written it.
MessageDelta: TypeAlias = KnownDelta | UnknownDelta

DELTA_CLASSES: dict[str, type[KnownDelta]] = {
    delta.kind: delta
    for delta in (
        StartDelta,
        TextDelta,
        ThinkingDelta,
        ToolCallStartDelta,
        ToolCallArgsDelta,
        ToolCallEndDelta,
        ImageDelta,
        ProviderItemDelta,
        UsageDelta,
        DoneDelta,
        ErrorDelta,
    )
}


@cache
def delta_shape(delta_class: type[MessageDelta]) -> dict[str, Any]:
    """Return the known fields of a delta's JSON; those of its payload stand inside."""
    header = ("run_id", "seq", "timestamp", "provider_raw")
    payload = None
    if delta_class is not UnknownDelta:
        payload = shape_of(TokenUsage if delta_class is UsageDelta else delta_class, frozenset({*header, "extra"}))
    # With parts it would be read as a message.
    return {
        **dict.fromkeys(("runId", "seq", "kind", "timestamp", "providerRaw", "schemaVersion", "parts")),
        "payload": payload,
    }
