"""A tool call as a request, and its one result at three levels of detail. Knows no entries."""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import encode_json
from ..errors import ErrorCode, InvalidValue
from ..message import (
    MEDIA_KINDS,
    FileRef,
    Image,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
    as_word,
    repair_names,
    require_extra,
    require_part,
    shape_of,
)
from ..usage import require_amount
from .sections import LevelOfDetail, LevelOfDetailSections, Section, to_plain_text, without_live_screen

__all__ = [
    "STATUS_CODES",
    "Attachment",
    "HistoryToolCallResult",
    "ToolExecutionStatus",
]

Attachment: TypeAlias = Image | FileRef | UnknownPart


class ToolExecutionStatus(StrEnum):
    """How a call ended: it ran, it failed, or it was not run to its end."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


# Which codes may stand beside which status. A call that was not a success always says why.
STATUS_CODES: dict[ToolExecutionStatus, frozenset[ErrorCode | None]] = {
    ToolExecutionStatus.SUCCESS: frozenset({None}),
    ToolExecutionStatus.FAILED: frozenset(
        {ErrorCode.TOOL_FAILED, ErrorCode.TOOL_TIMEOUT, ErrorCode.INVALID_ARGUMENTS, ErrorCode.UNKNOWN_TOOL}
    ),
    ToolExecutionStatus.SKIPPED: frozenset({ErrorCode.TOOL_DENIED, ErrorCode.TOOL_INTERRUPTED}),
}


SECTIONS_SHAPE: dict[str, Any] = dict.fromkeys(("live", "summary", "gist"))


class HistoryToolCallResult(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", kw_only=True):
    """The one result of a call. `attachments` are shown only at the live level.

    `error_type` is the type of the exception that the tool raised, if it raised one.
    """

    tool_name: str
    tool_call_id: str
    status: ToolExecutionStatus = ToolExecutionStatus.SUCCESS
    result: LevelOfDetailSections
    elapsed_seconds: float | None = None
    error_code: ErrorCode | None = None
    error_type: str | None = None
    attachments: tuple[Attachment, ...] = ()
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        repair_names(self, "tool_name", "tool_call_id")
        if not isinstance(self.result, LevelOfDetailSections):
            raise InvalidValue.of_content("result.result", self.result, "LevelOfDetailSections")
        if self.elapsed_seconds is not None:
            force_setattr(self, "elapsed_seconds", require_amount("result.elapsedSeconds", self.elapsed_seconds))
        self._require_status()
        if type(self.attachments) is not tuple:
            if not isinstance(self.attachments, list):
                raise InvalidValue.of_content("result.attachments", self.attachments, "a sequence of parts")
            force_setattr(self, "attachments", tuple(self.attachments))
        for part in self.attachments:
            require_part("result.attachments", part, MEDIA_KINDS)
        require_extra(self, RESULT_SHAPE)

    def _require_status(self) -> None:
        force_setattr(self, "status", as_word("result.status", self.status, ToolExecutionStatus))
        if self.error_code is not None:
            force_setattr(self, "error_code", as_word("result.errorCode", self.error_code, ErrorCode))
        allowed = STATUS_CODES[self.status]
        if self.error_code not in allowed:
            named = ", ".join(sorted(code or "none" for code in allowed))
            raise InvalidValue(f"a result with status {self.status} must have an error code of {named}")
        if self.error_type is not None:
            repair_names(self, "error_type")
            if self.error_code is None:
                raise InvalidValue("a result without an error code has no error type")

    @classmethod
    def of_text(
        cls,
        call: ToolCall,
        text: str,
        *,
        error_code: ErrorCode | None = None,
        elapsed_seconds: float | None = None,
        error_type: str | None = None,
    ) -> "HistoryToolCallResult":
        """Return the result of a call as one text; its status is the one to which the code belongs."""
        return cls(
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            status=_status_of(error_code),
            result=LevelOfDetailSections.of_text(text),
            elapsed_seconds=elapsed_seconds,
            error_code=error_code,
            error_type=error_type,
        )

    @classmethod
    def of_result(
        cls,
        result: ToolResult,
        tool_name: str,
        *,
        error_code: ErrorCode | None = None,
        elapsed_seconds: float | None = None,
    ) -> "HistoryToolCallResult":
        """Return a tool result part as an entry keeps it: texts as sections, an object as JSON, the rest attached.

        An error without a code is `tool_failed`.
        """
        if result.is_error and error_code is None:
            error_code = ErrorCode.TOOL_FAILED
        content = result.content
        attachments: tuple[Attachment, ...] = ()
        if isinstance(content, tuple):
            sections = tuple(Section("", part.text) for part in content if isinstance(part, Text))
            attachments = tuple(part for part in content if not isinstance(part, Text))
        else:
            sections = (Section("", content if isinstance(content, str) else encode_json(content).decode()),)
        return cls(
            tool_name=tool_name,
            tool_call_id=result.tool_call_id,
            status=_status_of(error_code),
            result=LevelOfDetailSections.create_uniform(sections),
            elapsed_seconds=elapsed_seconds,
            error_code=error_code,
            attachments=attachments,
        )

    def text(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> str:
        """Return the text of a level, without the LiveScreen."""
        return to_plain_text(without_live_screen(self.result.get_sections(detail))[0])

    def to_result(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> ToolResult:
        """Return the tool result part that a message carries at a level of detail, without the LiveScreen."""
        text = self.text(detail)
        is_error = self.status is not ToolExecutionStatus.SUCCESS
        if detail is not LevelOfDetail.LIVE or not self.attachments:
            return ToolResult(self.tool_call_id, text, is_error)
        return ToolResult(self.tool_call_id, (Text(text), *self.attachments) if text else self.attachments, is_error)

    def without_live_screen(self) -> "HistoryToolCallResult":
        """Return the result as the tool gave it; self if no LiveScreen is on it."""
        live, screen = without_live_screen(self.result.live)
        if screen is None:
            return self
        levels = self.result
        return msgspec.structs.replace(self, result=LevelOfDetailSections(live, levels.summary, levels.gist))


RESULT_SHAPE = {**shape_of(HistoryToolCallResult), "result": SECTIONS_SHAPE}


def _status_of(code: ErrorCode | None) -> ToolExecutionStatus:
    for status, codes in STATUS_CODES.items():
        if code in codes:
            return status
    raise InvalidValue.of("result.errorCode", code, "a code that a tool call can end with")
