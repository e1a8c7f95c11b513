"""Facts about runs, tools and decisions, one frozen class per kind of entry: what never reaches a provider.

`entries` has what a model sees, and the table of all kinds.
"""

from enum import StrEnum
from typing import Any, ClassVar, Literal

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import freeze_object, join_surrogates
from ..errors import ErrorCode, InvalidValue
from ..message import Message, Role, as_word, repair_names, require_bool, require_text
from ..usage import TokenUsage, require_count
from .entrybase import HistoryEntry, HistoryEntryKind
from .toolresults import HistoryToolCallResult

__all__ = [
    "AbortRequestedEntry",
    "ApprovalAnsweredEntry",
    "ApprovalAskedEntry",
    "EpochEntry",
    "QuestionAction",
    "QuestionAnsweredEntry",
    "QuestionAskedEntry",
    "ResetEntry",
    "RunFinishedEntry",
    "RunStartedEntry",
    "RunStatus",
    "SamplingEntry",
    "TakeoverEntry",
    "ToolFinishedEntry",
    "ToolStartedEntry",
    "repair_texts",
    "require_assistant",
]


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class QuestionAction(StrEnum):
    """What became of a question: a person answered it, said no, or gave no answer."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class ApprovalAskedEntry(HistoryEntry, frozen=True):
    """A person is asked whether a call may run."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.APPROVAL_ASKED
    tool_call_id: str
    tool_name: str
    reason: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "tool_call_id", "tool_name")
        repair_texts(self, "reason")


class ApprovalAnsweredEntry(HistoryEntry, frozen=True):
    """The decision of a person or a policy; if `arguments` are given, the call runs with these instead of its own."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.APPROVAL_ANSWERED
    tool_call_id: str
    approved: bool
    reason: str = ""
    arguments: dict[str, Any] | None = None
    by: Literal["person", "policy"] = "person"

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "tool_call_id")
        require_bool("approval_answered.approved", self.approved)
        repair_texts(self, "reason")
        if type(self.by) is not str or self.by not in ("person", "policy"):
            raise InvalidValue.of("approval_answered.by", self.by, "'person' or 'policy'")
        if self.arguments is not None:
            freeze_object(self, "arguments", "approval_answered.arguments")
            if not self.approved:
                raise InvalidValue("approval_answered: arguments belong to an approval, got them with a refusal")


class QuestionAskedEntry(HistoryEntry, frozen=True):
    """A tool that runs asks a person something. `schema` says which fields the answer has, `url` where to go instead.

    `origin` names the program that asks, such as an MCP server.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.QUESTION_ASKED
    question_id: str
    tool_call_id: str
    text: str
    schema: dict[str, Any] | None = None
    url: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "question_id", "tool_call_id")
        repair_texts(self, "text", "url", "origin")
        if self.schema is not None:
            freeze_object(self, "schema", "question_asked.schema")


class QuestionAnsweredEntry(HistoryEntry, frozen=True):
    """What became of a tool's question: an answer with its content, a refusal, or no answer."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.QUESTION_ANSWERED
    question_id: str
    action: QuestionAction
    content: dict[str, Any] | None = None
    by: Literal["person", "policy"] = "person"

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "question_id")
        force_setattr(self, "action", as_word("question_answered.action", self.action, QuestionAction))
        if type(self.by) is not str or self.by not in ("person", "policy"):
            raise InvalidValue.of("question_answered.by", self.by, "'person' or 'policy'")
        if self.content is not None:
            freeze_object(self, "content", "question_answered.content")
            if self.action is not QuestionAction.ACCEPT:
                raise InvalidValue("question_answered: content belongs to the action 'accept'")


class SamplingEntry(HistoryEntry, frozen=True):
    """A tool that runs had the model answer messages of its own: those, the answer, and why it could not be used.

    `answer` holds what had arrived if the call failed. Its usage counts for the session.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.SAMPLING
    tool_call_id: str
    messages: tuple[Message, ...]
    system: str = ""
    answer: Message | None = None
    error_code: ErrorCode | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "tool_call_id")
        repair_texts(self, "system", "origin")
        if not isinstance(self.messages, (tuple, list)) or not all(isinstance(each, Message) for each in self.messages):
            raise InvalidValue.of_content("sampling.messages", self.messages, "a sequence of messages")
        force_setattr(self, "messages", tuple(self.messages))
        if self.answer is not None:
            require_assistant("sampling.answer", self.answer)
        if self.error_code is not None:
            force_setattr(self, "error_code", as_word("sampling.errorCode", self.error_code, ErrorCode))

    @property
    def usage(self) -> TokenUsage | None:
        """What the call used, if that was reported."""
        return self.answer.meta.usage if self.answer is not None and self.answer.meta is not None else None


class ToolStartedEntry(HistoryEntry, frozen=True):
    """A tool is about to run; after a crash it may be run again only if it is idempotent."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.TOOL_STARTED
    tool_call_id: str
    tool_name: str
    idempotent: bool = False

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "tool_call_id", "tool_name")
        require_bool("tool_started.idempotent", self.idempotent)


class ToolFinishedEntry(HistoryEntry, frozen=True):
    """The terminal result of one call, kept the moment it arrived."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.TOOL_FINISHED
    result: HistoryToolCallResult

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        if not isinstance(self.result, HistoryToolCallResult):
            raise InvalidValue.of_content("tool_finished.result", self.result, "a HistoryToolCallResult")


class RunStartedEntry(HistoryEntry, frozen=True):
    """The run `run_id` begins."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.RUN_STARTED


class RunFinishedEntry(HistoryEntry, frozen=True):
    """The run `run_id` is over."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.RUN_FINISHED
    status: RunStatus
    error_code: ErrorCode | None = None
    message: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        force_setattr(self, "status", as_word("run_finished.status", self.status, RunStatus))
        if self.error_code is not None:
            if self.status is RunStatus.COMPLETED:
                raise InvalidValue("run_finished: a completed run has no errorCode")
            force_setattr(self, "error_code", as_word("run_finished.errorCode", self.error_code, ErrorCode))
        repair_texts(self, "message")


class AbortRequestedEntry(HistoryEntry, frozen=True):
    """A person asks that a run end: the open one, whose owner ends it as soon as it reads this, or a requested one.

    `run_id` is the run. One that was requested and has not begun never begins.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.ABORT_REQUESTED
    reason: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_texts(self, "reason")


class TakeoverEntry(HistoryEntry, frozen=True):
    """Another owner carries the session on: `previous` had its lease, and died or did not renew it in time."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.TAKEOVER
    owner: str
    previous: str

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_texts(self, "owner", "previous")


class EpochEntry(HistoryEntry, frozen=True):
    """What the projection chose, why it chose anew, and which version of it did, so that nothing is chosen twice."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.EPOCH
    version: int
    reason: str
    choices: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        require_count("epoch.version", self.version)
        repair_texts(self, "reason")
        freeze_object(self, "choices", "epoch.choices")


class ResetEntry(HistoryEntry, frozen=True):
    """The conversation begins anew: nothing before this reaches a model, and the notebook is empty."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.RESET


def repair_texts(entry: HistoryEntry, *names: str) -> None:
    """Join halves of characters in these fields; raise InvalidValue for what is no text."""
    for name in names:
        value = getattr(entry, name)
        require_text(f"{entry.kind}.{name}", value)
        force_setattr(entry, name, join_surrogates(value))


def require_assistant(field: str, message: object) -> None:
    """Raise InvalidValue unless this is a message of a model."""
    if not isinstance(message, Message) or message.role is not Role.ASSISTANT:
        raise InvalidValue(f"{field} must be an assistant message")
