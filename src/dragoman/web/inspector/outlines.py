"""A session at a glance: for each entry its kind, time, tokens, model and flags, as columns; and one line of text.

The page gets the outline of all entries at once and their content by ranges. Knows no store and no JSON layout.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ...context import EstimateCounter, count_message
from ...history import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    ContextualHistoryEntry,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    SamplingEntry,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from ...message import FileRef, Image, Message, Part, ProviderItem, Text, Thinking, ToolCall, ToolResult

__all__ = ["Outline", "entry_line", "entry_texts", "model_of"]

FAILED, CUT, PICTURE, CALLS, INJECTED, THINKS = 1, 2, 4, 8, 16, 32
LINE_LENGTH = 160
_MAIN_ARGUMENTS = ("command", "file_path", "path", "pattern", "query", "url", "cmd", "file", "name", "prompt")
_COUNTER = EstimateCounter()


class Outline:
    """The columns of a session's entries. Grows with it."""

    def __init__(self) -> None:
        self.kinds: list[str] = []  # the words that `kind` numbers
        self.models: list[str] = []
        self.kind: list[int] = []
        self.time: list[int] = []  # milliseconds since 1970, 0 if unknown
        self.tokens: list[int] = []
        self.model: list[int] = []  # -1 for none
        self.flags: list[int] = []
        self._numbers: dict[str, int] = {}

    def extend(self, entries: Iterable[HistoryEntry]) -> None:
        """Take in further entries."""
        for entry in entries:
            self.kind.append(_number(str(entry.kind), self.kinds, self._numbers))
            self.time.append(int(entry.timestamp.timestamp() * 1000) if entry.timestamp else 0)
            self.tokens.append(_tokens(entry))
            name = model_of(entry)
            self.model.append(-1 if name is None else _number(f":{name}", self.models, self._numbers))
            self.flags.append(_flags(entry))

    def columns(self, first: int = 0) -> dict[str, Any]:
        """Return the columns from an entry on, as the page reads them."""
        return {
            "first": first,
            "kinds": self.kinds,
            "models": [name[1:] for name in self.models],
            **{name: getattr(self, name)[first:] for name in ("kind", "time", "tokens", "model", "flags")},
        }


def _number(name: str, names: list[str], numbers: dict[str, int]) -> int:
    number = numbers.get(name)
    if number is None:
        number = numbers[name] = len(names)
        names.append(name)
    return number


def _tokens(entry: HistoryEntry) -> int:
    if isinstance(entry, ContextualHistoryEntry):
        return sum(count_message(message, _COUNTER) for message in entry.messages())
    if isinstance(entry, InterruptionEntry) and entry.partial is not None:
        return count_message(entry.partial, _COUNTER)
    if isinstance(entry, SystemInstructionEntry):
        return _COUNTER.count(entry.instruction)
    return 0


def _flags(entry: HistoryEntry) -> int:
    flags = 0
    if isinstance(entry, (ModelInputEntry, ModelOutputEntry)):
        parts: tuple[Part, ...] = entry.parts if isinstance(entry, ModelInputEntry) else entry.message.parts
        flags |= PICTURE if any(isinstance(part, Image) for part in parts) else 0
        flags |= CALLS if any(isinstance(part, ToolCall) for part in parts) else 0
        flags |= THINKS if any(isinstance(part, Thinking) for part in parts) else 0
        flags |= INJECTED if entry.metadata.get("injected") else 0
    elif isinstance(entry, ToolResultsEntry):
        flags |= FAILED if any(result.error_code is not None for result in entry.results) else 0
        flags |= PICTURE if any(result.attachments for result in entry.results) else 0
    elif isinstance(entry, (InterruptionEntry, AbortRequestedEntry)):
        flags |= CUT
    elif isinstance(entry, RunFinishedEntry):
        flags |= FAILED if entry.error_code is not None else 0
    return flags


def model_of(entry: HistoryEntry) -> str | None:
    """Return the model that an entry is the answer of, as provider:model; None if it is no answer of a known model."""
    if not isinstance(entry, ModelOutputEntry):
        return None
    invocation = entry.invocation
    if invocation is not None:
        return f"{invocation.provider}:{invocation.model}"
    return entry.message.meta.model_id if entry.message.meta else None


# ---------------------------------------------------------------- text


def entry_texts(entry: HistoryEntry) -> Iterator[str]:
    """Yield what an entry says, piece by piece: what a search looks through."""
    match entry:
        case ModelInputEntry() | SteeringEntry() | RunRequestedEntry():
            yield from _part_texts(entry.parts)
        case ModelOutputEntry():
            yield from _part_texts(entry.message.parts)
        case ToolResultsEntry():
            yield from (text for result in entry.results for text in _result_texts(result))
            yield entry.execute_error or ""
        case InterruptionEntry():
            yield from (entry.message, entry.provider_message)
            yield from _part_texts(entry.partial.parts if entry.partial is not None else ())
        case SystemInstructionEntry():
            yield entry.instruction
        case NotebookEntry():
            yield entry.content
        case CompactionEntry():
            yield entry.summary
        case ApprovalAskedEntry() | ApprovalAnsweredEntry() | AbortRequestedEntry():
            yield entry.reason
        case QuestionAskedEntry():
            yield from (entry.text, entry.url)
        case RunFinishedEntry():
            yield entry.message
        case SamplingEntry():
            yield from (text for message in _sampled(entry) for text in _part_texts(message.parts))
        case _:
            pass


def _sampled(entry: SamplingEntry) -> tuple[Message, ...]:
    return (*entry.messages, *((entry.answer,) if entry.answer is not None else ()))


def _part_texts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text() | Thinking():
                yield part.text
            case ToolCall():
                yield f"{part.tool_name} {part.raw_args_text}"
            case ToolResult():
                yield part.content if isinstance(part.content, str) else ""
            case FileRef():
                yield part.name or part.path or ""
            case ProviderItem():
                yield part.text or ""
            case _:
                pass


def _result_texts(result: HistoryToolCallResult) -> Iterator[str]:
    yield result.tool_name
    yield from (section.value for section in result.result.live)


def entry_line(entry: HistoryEntry) -> str:
    """Return one line that tells an entry from others."""
    line = _line(entry)[: 4 * LINE_LENGTH]
    return " ".join(line.split())[:LINE_LENGTH]


def _line(entry: HistoryEntry) -> str:  # noqa: PLR0912  # one line per kind
    match entry:
        case ModelOutputEntry():
            return _output_line(entry)
        case ToolResultsEntry():
            return ", ".join(
                f"{result.tool_name} {result.error_code or ''}".strip() for result in entry.results
            ) or str(entry.execute_error)
        case ToolStartedEntry():
            return f"Started: {entry.tool_name}"
        case ToolFinishedEntry():
            return f"Finished: {entry.result.tool_name}"
        case ApprovalAskedEntry():
            return f"Asked: {entry.tool_name}"
        case ApprovalAnsweredEntry():
            return f"{'Approved' if entry.approved else 'Denied'}{f': {entry.reason}' if entry.reason else ''}"
        case QuestionAnsweredEntry():
            return f"Answered: {entry.action}"
        case EpochEntry():
            return f"Epoch: {entry.reason}"
        case ToolSetEntry():
            return f"Tools: {len(entry.digests)}, for {entry.invocation.model}"
        case ClientRequestEntry():
            return f"Client asked: {entry.model}"
        case ClientAnswerEntry():
            return f"Client was answered: {entry.status}{'' if entry.is_whole else ', cut off'}"
        case InterruptionEntry():
            return f"Interrupted: {entry.reason}"
        case RunStartedEntry():
            return "Run began"
        case RunFinishedEntry():
            return f"Run {entry.status}{f': {entry.error_code}' if entry.error_code else ''}"
        case RunRequestedEntry():
            return f"Requested: {entry.agent}"
        case TakeoverEntry():
            return f"{entry.owner} takes over"
        case SystemInstructionEntry():
            return f"System: {entry.instruction or '(none)'}"
        case NotebookEntry():
            return f"Notebook: {entry.content}"
        case CompactionEntry():
            return f"Summary of #{entry.first_serial} to #{entry.last_serial}"
        case UnknownEntry():
            return f"Unknown kind {entry.kind}"
        case _:
            return next((text for text in entry_texts(entry) if text.strip()), str(entry.kind))


def _output_line(entry: ModelOutputEntry) -> str:
    said = next((text for text in entry.contents if text.strip()), "")
    if said:
        return said
    for call in entry.tool_calls:
        return f"{call.tool_name} {_main_argument(call)}"
    return next((part.text for part in entry.message.parts if isinstance(part, Thinking) and part.text), "(nothing)")


def _main_argument(call: ToolCall) -> str:
    """The argument that says most about a call: a command, a path, a question; else the first text."""
    given = call.arguments
    if given is None:
        return call.raw_args_text[:LINE_LENGTH]
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    found = next((texts[name] for name in _MAIN_ARGUMENTS if name in texts), None)
    return (found if found is not None else next(iter(texts.values()), ""))[: 4 * LINE_LENGTH]
