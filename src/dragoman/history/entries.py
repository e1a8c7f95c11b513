"""What is recorded of a conversation: one frozen class per kind of entry. What is recorded is never changed.

Contextual entries give messages; the others are facts that never reach a provider, in `facts` and `exchanges`. Knows no
state, no JSON layout (`entryform` has that) and no clock: `AgentState` gives an entry its serial, its id and its time.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, get_args

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import freeze_object, join_surrogates
from ..errors import ErrorCode, IllegalAppend, InvalidValue, redact_provider_message
from ..message import (
    ROLE_PARTS,
    FileRef,
    Image,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
    as_word,
    require_name,
    require_part,
    require_text,
)
from ..usage import TokenUsage, require_count
from .entrybase import ContextMessageRole, ContextualHistoryEntry, HistoryEntry, HistoryEntryKind
from .exchanges import ClientAnswerEntry, ClientRequestEntry
from .facts import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    EpochEntry,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunStartedEntry,
    RunStatus,
    SamplingEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
    repair_texts,
    require_assistant,
)
from .metadata import NO_METADATA
from .sections import LevelOfDetail, LevelOfDetailSections, Section, Sections, to_plain_text, without_live_screen
from .toolresults import Attachment, HistoryToolCallResult
from .toolsets import ToolSetEntry

__all__ = [
    "AbortRequestedEntry",
    "AnyEntry",
    "ApprovalAnsweredEntry",
    "ApprovalAskedEntry",
    "ClientAnswerEntry",
    "ClientRequestEntry",
    "CompactionEntry",
    "ContextMessageRole",
    "ContextualHistoryEntry",
    "EpochEntry",
    "HistoryEntry",
    "HistoryEntryKind",
    "InterruptionEntry",
    "ModelInputEntry",
    "ModelOutputEntry",
    "NotebookEntry",
    "NotebookOperation",
    "QuestionAction",
    "QuestionAnsweredEntry",
    "QuestionAskedEntry",
    "ResetEntry",
    "RunFinishedEntry",
    "RunRequestedEntry",
    "RunStartedEntry",
    "RunStatus",
    "SamplingEntry",
    "SteeringEntry",
    "SystemInstructionEntry",
    "TakeoverEntry",
    "ToolFinishedEntry",
    "ToolResultsEntry",
    "ToolSetEntry",
    "ToolStartedEntry",
    "UnknownEntry",
]


MAX_WORD = 200  # characters of a name, key or id that stores look for


class NotebookOperation(StrEnum):
    """How the notebook was changed: by one of the model's tools, or by the host."""

    REPLACE = "replace"
    APPEND = "append"
    REPLACE_TEXT = "replace_text"
    HOST = "host"


class ModelInputEntry(ContextualHistoryEntry, frozen=True):
    """What a person or a host said: ordered user parts, and the same as sections.

    Where only parts are given, every level is their text; where only sections are given, the part is the text of the
    live ones. `steering_serial` is the serial of the steering entry that this input takes up.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.MODEL_INPUT
    parts: tuple[Part, ...] = ()
    sections: LevelOfDetailSections = None  # type: ignore[assignment]  # set in __post_init__ where it is not given
    steering_serial: int | None = None

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        if not isinstance(self.parts, (tuple, list)):
            raise InvalidValue.of_content("model_input.parts", self.parts, "a sequence of parts")
        parts = tuple(_user_part(part) for part in self.parts)
        if self.sections is None:
            force_setattr(self, "sections", text_sections(parts))
        elif not isinstance(self.sections, LevelOfDetailSections):
            raise InvalidValue.of_content("model_input.sections", self.sections, "LevelOfDetailSections")
        elif not parts and (live := without_live_screen(self.sections.live)[0]):
            parts = (Text(to_plain_text(live)),)
        force_setattr(self, "parts", parts)
        if self.steering_serial is not None:
            require_count("model_input.steeringSerial", self.steering_serial)
        _require_words(parts)

    @classmethod
    def of(
        cls,
        *parts: Part | str,
        sections: LevelOfDetailSections | None = None,
        run_id: str = "",
        metadata: Mapping[str, Any] = NO_METADATA,
    ) -> "ModelInputEntry":
        """Return an input of these parts; a string is a text part."""
        said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        return cls(said, sections, run_id=run_id, metadata=metadata)  # type: ignore[arg-type]  # None: made of the parts

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return ContextMessageRole.MODEL_INPUT

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The parts that are no text."""
        return tuple(part for part in self.parts if isinstance(part, (Image, FileRef, UnknownPart)))

    def messages(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> tuple[Message, ...]:
        """Return one user message: the parts, or below `live` the text of that level alone; none if it has no text."""
        if detail is LevelOfDetail.LIVE:
            parts = self.parts
        else:
            level, _ = without_live_screen(self.sections.get_sections(detail))
            if level == without_live_screen(self.sections.live)[0]:
                parts = tuple(part for part in self.parts if isinstance(part, Text))
            else:
                text = to_plain_text(level)
                parts = (Text(text),) if text else ()
        return (Message(Role.USER, parts, self.run_id, self.timestamp),) if parts else ()


class ModelOutputEntry(ContextualHistoryEntry, frozen=True):
    """What a model said, whole. It may be empty or thinking only, because providers send that."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.MODEL_OUTPUT
    message: Message

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        require_assistant("model_output.message", self.message)

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return ContextMessageRole.MODEL_OUTPUT

    @property
    def contents(self) -> tuple[str, ...]:
        """The texts, in order."""
        return tuple(part.text for part in self.message.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""
        return self.message.tool_calls

    @property
    def invocation(self) -> ModelInvocationDescriptor | None:
        """Which model it was, if that is known."""
        return self.message.meta.invocation if self.message.meta else None

    @property
    def usage(self) -> TokenUsage | None:
        """What the call used, if that was reported."""
        return self.message.meta.usage if self.message.meta else None

    def messages(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> tuple[Message, ...]:  # noqa: ARG002  # all levels are one
        """Return the message; one without a run or a time gets the entry's."""
        return (_placed(self.message, self),)


class ToolResultsEntry(ContextualHistoryEntry, frozen=True):
    """The results of all calls of one output, in call order; `execute_error` says why the whole failed, if it did.

    The model is told it at the end of the last result, unless a result says it already.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.TOOL_RESULT
    results: tuple[HistoryToolCallResult, ...] = ()
    execute_error: str | None = None

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        if not isinstance(self.results, tuple):
            if not isinstance(self.results, list):
                raise InvalidValue.of_content("tool_result.results", self.results, "a sequence of results")
            force_setattr(self, "results", tuple(self.results))
        for result in self.results:
            if not isinstance(result, HistoryToolCallResult):
                raise InvalidValue.of_content("tool_result.results", result, "HistoryToolCallResult values")
        if self.execute_error is not None:
            require_name("tool_result.executeError", self.execute_error)
            if not self.execute_error.strip():
                raise InvalidValue.of("tool_result.executeError", self.execute_error, "text that is not blank")
        elif not self.results:
            raise IllegalAppend("no results and no executeError were given", rule="results_match_calls_in_order")

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        return ContextMessageRole.TOOL_RESULT

    def messages(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> tuple[Message, ...]:
        """Return one tool message per result, in order; the last one says why the whole failed, if it did."""
        told = [Message(Role.TOOL, (result.to_result(detail),), self.run_id, self.timestamp) for result in self.results]
        if self.tells_error:
            told[-1] = with_text_in_result(told[-1], self.execute_error or "")
        return tuple(told)

    @property
    def tells_error(self) -> bool:
        """Whether the last result is told with `execute_error` at its end: no result says it already."""
        return bool(self.execute_error and self.results) and all(r.text() != self.execute_error for r in self.results)


class SystemInstructionEntry(HistoryEntry, frozen=True):
    """The system instruction from here on; empty text is none."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.SYSTEM_INSTRUCTION
    instruction: str

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_texts(self, "instruction")


class NotebookEntry(HistoryEntry, frozen=True):
    """The whole memory notebook after a change, and how it changed."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.NOTEBOOK
    content: str
    operation: NotebookOperation = NotebookOperation.REPLACE

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_texts(self, "content")
        force_setattr(self, "operation", as_word("notebook.operation", self.operation, NotebookOperation))


class CompactionEntry(HistoryEntry, frozen=True):
    """A text that may stand for the entries from `first_serial` to `last_serial`, and which model wrote it, if any."""

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.COMPACTION
    first_serial: int
    last_serial: int
    summary: str
    invocation: ModelInvocationDescriptor | None = None
    usage: TokenUsage | None = None

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        for name, serial in (("firstSerial", self.first_serial), ("lastSerial", self.last_serial)):
            require_count(f"compaction.{name}", serial)
        if self.last_serial < self.first_serial:
            raise InvalidValue(f"compaction must end at or after {self.first_serial}, got {self.last_serial}")
        repair_texts(self, "summary")
        if self.invocation is not None and not isinstance(self.invocation, ModelInvocationDescriptor):
            raise InvalidValue.of("compaction.invocation", self.invocation, "a ModelInvocationDescriptor")
        if self.usage is not None and not isinstance(self.usage, TokenUsage):
            raise InvalidValue.of("compaction.usage", self.usage, "a TokenUsage")


class InterruptionEntry(HistoryEntry, frozen=True):
    """A model call that broke off: why, what the provider said of it, and what had arrived of its answer.

    `provider_message` is kept without secrets, and capped.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.INTERRUPTION
    reason: ErrorCode
    message: str = ""
    partial: Message | None = None
    provider_message: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        force_setattr(self, "reason", as_word("interruption.reason", self.reason, ErrorCode))
        repair_texts(self, "message", "provider_message")
        force_setattr(self, "provider_message", redact_provider_message(self.provider_message))
        if self.partial is not None:
            require_assistant("interruption.partial", self.partial)


class SteeringEntry(HistoryEntry, frozen=True):
    """What a person says to a run under way. The run takes it up as a `ModelInputEntry` before its next model call.

    `sections` are the levels of detail of that input, where they are not the text of its parts.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.STEERING
    parts: tuple[Part, ...]
    sections: LevelOfDetailSections | None = None

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        _require_input(self, self.parts, self.sections)
        _require_words(self.parts)

    @classmethod
    def of_input(cls, said: ModelInputEntry) -> "SteeringEntry":
        """Return the entry that says this input to a run under way."""
        return cls(said.parts, _own_sections(said), run_id=said.run_id, metadata=said.metadata)

    def to_input(self) -> ModelInputEntry:
        """Return the input by which the run takes up what this entry says."""
        sections = self.sections or text_sections(self.parts)
        return ModelInputEntry(self.parts, sections, self.serial, metadata=self.metadata)


class RunRequestedEntry(HistoryEntry, frozen=True):
    """A run is asked for: an agent of this name shall take up `parts` as its input, in the run `run_id`.

    Requests are taken up one after the other, in their order. Without parts, the run carries on what is there. `key` is
    the caller's own word for the request, so that a caller who asks again gets the run that there is.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.RUN_REQUESTED
    agent: str
    parts: tuple[Part, ...] = ()
    sections: LevelOfDetailSections | None = None
    key: str = ""

    def __post_init__(self) -> None:
        # Before halves of characters are repaired: each is compared, and two of them must not become one.
        require_word("run_requested.agent", self.agent)
        for name, word in (("key", self.key), ("runId", self.run_id)):
            if word != "":
                require_word(f"run_requested.{name}", word)
        HistoryEntry.__post_init__(self)
        _require_input(self, self.parts, self.sections)
        if self.parts:
            _require_words(self.parts)

    @classmethod
    def of_input(cls, agent: str, said: ModelInputEntry | None, *, run_id: str, key: str = "") -> "RunRequestedEntry":
        """Return the entry that asks for a run with this input; without one, to carry on what is there."""
        if said is None:
            return cls(agent, key=key, run_id=run_id)
        return cls(agent, said.parts, _own_sections(said), key, run_id=run_id, metadata=said.metadata)

    def to_inputs(self) -> tuple[ModelInputEntry, ...]:
        """Return the input by which the run takes the request up; nothing if it has no parts."""
        if not self.parts:
            return ()
        return (ModelInputEntry(self.parts, self.sections or text_sections(self.parts), metadata=self.metadata),)


class UnknownEntry(HistoryEntry, frozen=True):
    """An entry of a kind that a later version wrote; `payload` is kept as it was read."""

    kind: str  # type: ignore[misc,assignment]  # the one class whose kind is data
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        require_name("kind", self.kind)
        if self.kind in ENTRY_CLASSES:
            raise InvalidValue(f"kind {self.kind!r} is known here: use {ENTRY_CLASSES[self.kind].__name__}")
        freeze_object(self, "payload", f"{self.kind}.payload")


# Every class of an entry. A match over it that ends with `assert_never` is complete, or mypy says what is missing.
AnyEntry: TypeAlias = (
    ModelInputEntry
    | ModelOutputEntry
    | ToolResultsEntry
    | SystemInstructionEntry
    | NotebookEntry
    | CompactionEntry
    | InterruptionEntry
    | ApprovalAskedEntry
    | ApprovalAnsweredEntry
    | QuestionAskedEntry
    | QuestionAnsweredEntry
    | SamplingEntry
    | ToolStartedEntry
    | ToolFinishedEntry
    | RunStartedEntry
    | RunFinishedEntry
    | SteeringEntry
    | RunRequestedEntry
    | AbortRequestedEntry
    | TakeoverEntry
    | ClientRequestEntry
    | ClientAnswerEntry
    | ToolSetEntry
    | EpochEntry
    | ResetEntry
    | UnknownEntry
)
ENTRY_CLASSES: dict[str, type[HistoryEntry]] = {
    entry.kind: entry for entry in get_args(AnyEntry) if entry is not UnknownEntry
}
_ANY_ENTRY = frozenset(get_args(AnyEntry))


def as_entry(entry: object) -> AnyEntry:
    """Return the entry; raise InvalidValue if it is of no class above. A subclass would slip past tables of classes."""
    if type(entry) not in _ANY_ENTRY:
        raise InvalidValue.of("entry", entry, "an entry of one of the classes in dragoman.history")
    return entry  # type: ignore[return-value]  # as checked


def require_word(field: str, word: object) -> None:
    """Raise InvalidValue unless every store can look for this name, key or id."""
    require_text(field, word)
    assert isinstance(word, str)
    if not word.strip() or len(word) > MAX_WORD or not word.isprintable():
        raise InvalidValue.of(field, word, f"at most {MAX_WORD} printable characters")


def text_sections(parts: Iterable[Part]) -> LevelOfDetailSections:
    """Return the texts among the parts as sections without titles, the same at every level."""
    sections: Sections = tuple(Section("", part.text) for part in parts if isinstance(part, Text))
    return LevelOfDetailSections.create_uniform(sections)


def interrupted_messages(entry: InterruptionEntry) -> tuple[Message, ...]:
    """Return the partial as a message that says it was cut off, if there is one; the handoff marks its text."""
    if entry.partial is None:
        return ()
    message = _placed(entry.partial, entry)
    meta = message.meta or MessageMeta()
    if not meta.interrupted:
        message = msgspec.structs.replace(message, meta=msgspec.structs.replace(meta, interrupted=True))
    return (message,)


def with_text_in_result(message: Message, text: str) -> Message:
    """Return a tool message with a text added at the end of its result."""
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    content = result.content
    assert not isinstance(content, dict)  # an entry keeps an object as its JSON text
    if isinstance(content, tuple):
        longer = msgspec.structs.replace(result, content=(*content, Text(text)))
    else:
        longer = msgspec.structs.replace(result, content=f"{content}\n\n{text}" if content else text)
    return msgspec.structs.replace(message, parts=(longer,))


def _placed(message: Message, entry: HistoryEntry) -> Message:
    """The message with the run and time of its entry where it has none of its own."""
    run_id, timestamp = message.run_id or entry.run_id, message.timestamp or entry.timestamp
    if run_id == message.run_id and timestamp is message.timestamp:
        return message
    return msgspec.structs.replace(message, run_id=run_id, timestamp=timestamp)


def _user_part(part: object) -> Part:
    require_part("model_input", part, ROLE_PARTS[Role.USER])
    if isinstance(part, Text) and (text := join_surrogates(part.text)) is not part.text:
        return msgspec.structs.replace(part, text=text)
    return part  # type: ignore[return-value]  # a part, as just seen


def _own_sections(said: ModelInputEntry) -> LevelOfDetailSections | None:
    """The levels of detail of an input, None where they are the text of its parts."""
    return None if said.sections == text_sections(said.parts) else said.sections


def _require_input(entry: HistoryEntry, parts: object, sections: object) -> None:
    """Check what an entry holds of an input that is not recorded yet."""
    if not isinstance(parts, (tuple, list)):
        raise InvalidValue.of_content(f"{entry.kind}.parts", parts, "a sequence of parts")
    force_setattr(entry, "parts", tuple(_user_part(part) for part in parts))
    if sections is not None and not isinstance(sections, LevelOfDetailSections):
        raise InvalidValue.of_content(f"{entry.kind}.sections", sections, "LevelOfDetailSections")


def _require_words(parts: Iterable[Part]) -> None:
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise IllegalAppend("a model input needs text that is not blank, or an attachment", rule="empty_input")
