"""Entries to context messages, which name no provider's roles, and those to the messages that are handed off.

The protocols are what a consumer may rely on; the small classes here are entries seen at a level of detail. Knows no
budget: which level an entry gets is the caller's choice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from ..errors import InvalidValue
from ..message import Message, MessageMeta, ModelInvocationDescriptor, Part, Role, Text, ToolCall, ToolResult
from ..usage import TokenUsage
from .entries import (
    ContextMessageRole,
    ContextualHistoryEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ResetEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
    interrupted_messages,
    with_text_in_result,
)
from .metadata import NO_METADATA
from .sections import LevelOfDetail, Sections, to_plain_text, without_live_screen
from .toolresults import Attachment, HistoryToolCallResult, ToolExecutionStatus

__all__ = [
    "ContextMessage",
    "DetailPolicy",
    "InterruptedOutput",
    "ModelInputAtDetail",
    "ModelInputMessage",
    "ModelOutputMessage",
    "SystemInstructionMessage",
    "SystemMessage",
    "TokenUsageCarrier",
    "ToolCallCarrier",
    "ToolCallResult",
    "ToolResultsAtDetail",
    "ToolResultsMessage",
    "context_messages",
    "live_screen_of",
    "newest_live",
    "to_messages",
]


# ---------------------------------------------------------------- what a consumer may rely on


@runtime_checkable
class ContextMessage(Protocol):
    """What every context message has; `isinstance` with a protocol below tells which one it is."""

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""

    @property
    def timestamp(self) -> datetime | None:
        """When it was recorded."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the caller noted beside it."""


@runtime_checkable
class SystemMessage(ContextMessage, Protocol):
    """The system instruction in force."""

    @property
    def instruction(self) -> str:
        """Its text."""


@runtime_checkable
class ModelInputMessage(ContextMessage, Protocol):
    """What a person or a host said."""

    @property
    def content_sections(self) -> Sections:
        """The sections of the chosen level, the LiveScreen among them if it is the live one."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Images and files."""


@runtime_checkable
class ToolCallCarrier(Protocol):
    """Something that may hold tool calls."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""


@runtime_checkable
class TokenUsageCarrier(Protocol):
    """Something that knows what a call used."""

    @property
    def usage(self) -> TokenUsage | None:
        """What was used, if that was reported."""


@runtime_checkable
class ModelOutputMessage(ContextMessage, ToolCallCarrier, Protocol):
    """What a model said."""

    @property
    def invocation(self) -> ModelInvocationDescriptor | None:
        """Which model it was, if that is known."""

    @property
    def contents(self) -> tuple[str, ...]:
        """The texts, in order."""


class ToolCallResult(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One call's result at the chosen level."""

    tool_name: str
    tool_call_id: str
    status: ToolExecutionStatus
    result: Sections
    elapsed_seconds: float | None = None

    @classmethod
    def of(cls, result: HistoryToolCallResult, detail: LevelOfDetail) -> "ToolCallResult":
        """Return a recorded result at a level of detail."""
        sections = result.result.get_sections(detail)
        return cls(result.tool_name, result.tool_call_id, result.status, sections, result.elapsed_seconds)


@runtime_checkable
class ToolResultsMessage(ContextMessage, Protocol):
    """The results of the tools that one output called."""

    @property
    def results(self) -> tuple[ToolCallResult, ...]:
        """The results, in call order."""

    @property
    def execute_error(self) -> str | None:
        """Why the whole failed, if it did."""


# ---------------------------------------------------------------- entries as context messages


class SystemInstructionMessage(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The system instruction as the first message of a context."""

    instruction: str
    timestamp: datetime | None = None
    metadata: Mapping[str, Any] = NO_METADATA

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return ContextMessageRole.SYSTEM

    @classmethod
    def of(cls, entry: SystemInstructionEntry) -> "SystemInstructionMessage":
        """Return the message of an entry."""
        return cls(entry.instruction, entry.timestamp, entry.metadata)


class _OfEntry(msgspec.Struct, frozen=True):
    """An entry as a context message, and what every one has of its entry."""

    entry: HistoryEntry

    @property
    def timestamp(self) -> datetime | None:
        """When it was recorded."""
        return self.entry.timestamp

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the caller noted beside it."""
        return self.entry.metadata


class _AtDetail(_OfEntry, frozen=True):
    """An entry that a model sees, at a level of detail."""

    entry: ContextualHistoryEntry
    detail: LevelOfDetail = LevelOfDetail.LIVE

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return self.entry.role


class ModelInputAtDetail(_AtDetail, frozen=True):
    """An input at a level of detail."""

    entry: ModelInputEntry

    @property
    def content_sections(self) -> Sections:
        """The sections of the level."""
        return self.entry.sections.get_sections(self.detail)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Images and files, at the live level alone."""
        return self.entry.attachments if self.detail is LevelOfDetail.LIVE else ()


class ToolResultsAtDetail(_AtDetail, frozen=True):
    """Results at a level of detail."""

    entry: ToolResultsEntry

    @property
    def results(self) -> tuple[ToolCallResult, ...]:
        """The results at the level, in call order."""
        return tuple(ToolCallResult.of(result, self.detail) for result in self.entry.results)

    @property
    def execute_error(self) -> str | None:
        """Why the whole failed, if it did."""
        return self.entry.execute_error


class InterruptedOutput(_OfEntry, frozen=True):
    """What had arrived of an answer that broke off. Its calls never became whole, so it carries none."""

    entry: InterruptionEntry

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return ContextMessageRole.MODEL_OUTPUT

    @property
    def contents(self) -> tuple[str, ...]:
        """The texts that had arrived."""
        return self._arrived.contents

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """None: an unfinished call is not handed on."""
        return ()

    @property
    def invocation(self) -> ModelInvocationDescriptor | None:
        """Which model it was, if that is known."""
        return self._arrived.invocation

    @property
    def usage(self) -> TokenUsage | None:
        """What the call used, if that was reported."""
        return self._arrived.usage

    @property
    def _arrived(self) -> ModelOutputEntry:
        """What had arrived, seen as an output."""
        return ModelOutputEntry(self.entry.partial or Message.assistant())


DetailPolicy: TypeAlias = Callable[[int], LevelOfDetail]


def newest_live(age: int) -> LevelOfDetail:
    """Return the level of an input or a results entry by its age: the newest (age 0) live, all others summary."""
    return LevelOfDetail.LIVE if age == 0 else LevelOfDetail.SUMMARY


def context_messages(
    entries: Sequence[HistoryEntry],
    *,
    instruction: SystemInstructionEntry | None = None,
    policy: DetailPolicy = newest_live,
) -> tuple[ContextMessage, ...]:
    """Return what a model may see of the entries, oldest first, from the newest reset on.

    `policy` gives the level of an input or a results entry by its age among those, 0 for the newest. The partial of
    an interruption is seen only if an input comes next: then a person reacted to it, else the call was made again.
    """
    newest_first: list[ContextMessage] = []
    age, following = 0, ""
    for entry in reversed(entries):
        if isinstance(entry, ResetEntry):
            break
        if isinstance(entry, InterruptionEntry):
            if entry.partial is not None and following == ContextMessageRole.MODEL_INPUT:
                newest_first.append(InterruptedOutput(entry))
            following = ""  # what broke off before this one was tried again
        elif isinstance(entry, ContextualHistoryEntry):
            following = entry.role
            if isinstance(entry, ModelInputEntry):
                newest_first.append(ModelInputAtDetail(entry, policy(age)))
                age += 1
            elif isinstance(entry, ToolResultsEntry):
                newest_first.append(ToolResultsAtDetail(entry, policy(age)))
                age += 1
            else:
                assert isinstance(entry, ModelOutputEntry)
                newest_first.append(entry)
    if instruction is not None and instruction.instruction:
        newest_first.append(SystemInstructionMessage.of(instruction))
    return tuple(reversed(newest_first))


# ---------------------------------------------------------------- context messages as messages


def to_messages(context: Iterable[ContextMessage], *, screen_in_result: bool = False) -> tuple[Message, ...]:
    """Return the messages of a context, as the handoff takes them.

    The LiveScreen of the newest message alone is shown, after everything else: as a user message of its own, or, with
    `screen_in_result` and if that is where it stands, at the end of the last tool result, for targets that take no
    user turn after results.
    """
    messages: list[Message] = []
    newest: ContextMessage | None = None
    for each in context:
        newest = _at_detail(each)
        messages.extend(_messages_of(newest))
    screen = live_screen_of(newest) if newest is not None else None
    if newest is not None and screen is not None:
        if screen_in_result and messages and messages[-1].role is Role.TOOL:
            messages[-1] = with_text_in_result(messages[-1], screen)
        else:
            run_id = messages[-1].run_id if messages else ""
            messages.append(Message.user(screen, run_id=run_id, timestamp=newest.timestamp))
    return tuple(messages)


def live_screen_of(message: ContextMessage) -> str | None:
    """Return the LiveScreen that a message carries, if it carries one."""
    if isinstance(message, ModelInputEntry):  # first: looking for a protocol's attributes takes its time
        return without_live_screen(message.sections.live)[1]
    if isinstance(message, ToolResultsEntry):
        return without_live_screen(message.results[-1].result.live)[1] if message.results else None
    message = _at_detail(message)
    if isinstance(message, ModelInputMessage):
        return without_live_screen(message.content_sections)[1]
    if isinstance(message, ToolResultsMessage) and message.results:
        return without_live_screen(message.results[-1].result)[1]
    return None


def _at_detail(message: ContextMessage) -> ContextMessage:
    """An entry that is given as it is counts as live."""
    if isinstance(message, ModelInputEntry):
        return ModelInputAtDetail(message)
    return ToolResultsAtDetail(message) if isinstance(message, ToolResultsEntry) else message


def _messages_of(message: ContextMessage) -> tuple[Message, ...]:
    if isinstance(message, (ModelInputAtDetail, ToolResultsAtDetail)):
        return message.entry.messages(message.detail)
    if isinstance(message, ModelOutputEntry):
        return message.messages()
    if isinstance(message, InterruptedOutput):
        return interrupted_messages(message.entry)
    return _messages_by_protocol(message)


def _messages_by_protocol(message: ContextMessage) -> tuple[Message, ...]:
    """The messages of a context message of a foreign class."""
    at = message.timestamp
    if isinstance(message, SystemMessage):
        return (Message.system(message.instruction, timestamp=at),)
    if isinstance(message, ModelInputMessage):
        text = to_plain_text(without_live_screen(message.content_sections)[0])
        parts: list[Part] = [Text(text)] if text else []
        return (Message(Role.USER, (*parts, *message.attachments), timestamp=at),)
    if isinstance(message, ModelOutputMessage):
        usage = message.usage if isinstance(message, TokenUsageCarrier) else None
        meta = MessageMeta(invocation=message.invocation, usage=usage)
        parts = [*(Text(text) for text in message.contents), *message.tool_calls]
        return (Message(Role.ASSISTANT, tuple(parts), timestamp=at, meta=meta),)
    if isinstance(message, ToolResultsMessage):
        told = [Message.tool(_result_of(result), timestamp=at) for result in message.results]
        if message.execute_error and told:
            told[-1] = with_text_in_result(told[-1], message.execute_error)
        return tuple(told)
    raise InvalidValue.of("context message", message, "a system, model input, model output or tool results message")


def _result_of(result: ToolCallResult) -> ToolResult:
    text = to_plain_text(without_live_screen(result.result)[0])
    return ToolResult(result.tool_call_id, text, result.status is not ToolExecutionStatus.SUCCESS)
