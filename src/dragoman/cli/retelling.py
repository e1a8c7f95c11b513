"""A stored run as timed steps: its outputs as possible deltas, and what happened between them.

A store keeps messages, not deltas. So a message is cut into words, spread evenly over the time that its entry took.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, assert_never

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
from ..errors import InvalidValue
from ..history import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
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
from ..history.entries import AnyEntry, as_entry
from ..message import FinishReason, Image, Message, ProviderItem, Text, Thinking, ToolCall
from .entrytext import part_text
from .output import unbroken
from .playing import Beat, Note

__all__ = ["choose_run", "message_deltas", "retold"]

_WORDS = re.compile(r"\s*\S+\s*|\s+")


def choose_run(entries: Iterable[HistoryEntry], run: str | None, *, is_whole: bool = False) -> list[HistoryEntry]:
    """Return the entries of a run, by its id or the beginning of it; without one, those of the newest run.

    A session without runs is played whole, and so is any if `is_whole`.
    """
    listed = list(entries)
    runs = list(dict.fromkeys(entry.run_id for entry in listed if isinstance(entry, RunStartedEntry)))
    if run is not None:
        found = [each for each in runs if each.startswith(run)]
        if len(found) != 1:
            what = f"several runs begin with {run!r}" if found else f"there is no run {run!r}"
            known = ", ".join(each[:16] for each in runs[-5:]) or "none"
            raise InvalidValue(f"{what}; the newest are: {known}")
        return [entry for entry in listed if entry.run_id == found[0]]
    if is_whole or not runs:
        return listed
    return [entry for entry in listed if entry.run_id == runs[-1]]


def retold(entries: Iterable[HistoryEntry]) -> Iterator[Beat]:
    """Yield what happened, by the times in the entries."""
    beginning: datetime | None = None
    before: datetime | None = None
    answered: set[str] = set()
    for entry in entries:
        time = entry.timestamp or before
        beginning = beginning or time
        begun = before or time
        for what, share in _happened(as_entry(entry), answered):
            yield Beat(_seconds(beginning, begun, time, share), what)
        before = time


def message_deltas(message: Message, *, run_id: str = "", time: datetime | None = None) -> Iterator[MessageDelta]:
    """Yield deltas that make this assistant message."""
    meta = message.meta
    model = (meta.invocation.model if meta.invocation else meta.model_id) if meta is not None else None
    header: dict[str, Any] = {"run_id": run_id or message.run_id, "timestamp": time}
    seq = iter(range(1 << 62))
    yield StartDelta(seq=next(seq), model_id=model or "", **header)
    for index, part in enumerate(message.parts):
        match part:
            case Text() | Thinking():
                kind = TextDelta if isinstance(part, Text) else ThinkingDelta
                pieces = _WORDS.findall(part.text) or [""]
                for number, piece in enumerate(pieces, 1):
                    data = part.provider_data if number == len(pieces) else None
                    yield kind(seq=next(seq), text_delta=piece, part_index=index, provider_data=data, **header)
            case ToolCall():
                call = part.tool_call_id
                yield ToolCallStartDelta(
                    seq=next(seq),
                    tool_call_id=call,
                    tool_name=part.tool_name,
                    provider_data=part.provider_data,
                    **header,
                )
                for piece in _WORDS.findall(part.raw_args_text):
                    yield ToolCallArgsDelta(seq=next(seq), tool_call_id=call, args_text_delta=piece, **header)
                yield ToolCallEndDelta(seq=next(seq), tool_call_id=call, parse_error=part.parse_error, **header)
            case Image():
                yield ImageDelta(
                    seq=next(seq),
                    mime_type=part.mime_type,
                    data=part.data,
                    url=part.url,
                    provider_data=part.provider_data,
                    **header,
                )
            case ProviderItem():
                yield ProviderItemDelta(
                    seq=next(seq),
                    item_type=part.item_type,
                    item=part.item,
                    text=part.text,
                    provider_data=part.provider_data,
                    **header,
                )
            case _:
                pass  # a part of a later version has no delta here
    if meta is not None and meta.usage is not None:
        yield UsageDelta(seq=next(seq), usage=meta.usage, **header)
    reason = (meta.finish_reason if meta else None) or (
        FinishReason.TOOL_CALLS if message.tool_calls else FinishReason.STOP
    )
    yield DoneDelta(seq=next(seq), finish_reason=reason, **header)


def _happened(entry: AnyEntry, answered: set[str]) -> Iterator[tuple[MessageDelta | Note, float]]:
    """What an entry tells, each with the share of its time that has passed then."""
    match entry:
        case ModelInputEntry():
            yield Note("you", "\n".join(part_text(part) for part in entry.parts), "cyan"), 1.0
        case ModelOutputEntry():
            yield from _spread(list(message_deltas(entry.message, run_id=entry.run_id, time=entry.timestamp)))
        case InterruptionEntry():
            said = entry.partial or Message.assistant()
            deltas = list(message_deltas(said, run_id=entry.run_id, time=entry.timestamp))
            error = ErrorDelta(
                run_id=entry.run_id,
                seq=deltas[-1].seq,
                timestamp=entry.timestamp,
                error_code=entry.reason,
                message=entry.message or None,
                provider_message=entry.provider_message or None,
            )
            yield from _spread([*deltas[:-1], error])
        case ToolFinishedEntry():
            answered.add(entry.result.tool_call_id)
            yield _result_note(entry.result), 1.0
        case ToolResultsEntry():
            for result in entry.results:
                if result.tool_call_id not in answered:
                    yield _result_note(result), 1.0
        case (
            SystemInstructionEntry()
            | NotebookEntry()
            | CompactionEntry()
            | ApprovalAskedEntry()
            | ApprovalAnsweredEntry()
            | QuestionAskedEntry()
            | QuestionAnsweredEntry()
            | SamplingEntry()
            | ToolStartedEntry()
            | RunStartedEntry()
            | RunFinishedEntry()
            | SteeringEntry()
            | RunRequestedEntry()
            | AbortRequestedEntry()
            | TakeoverEntry()
            | ClientRequestEntry()
            | ClientAnswerEntry()
            | ToolSetEntry()
            | EpochEntry()
            | ResetEntry()
            | UnknownEntry()
        ):
            pass  # a replay shows the conversation
        case _:
            assert_never(entry)


def _spread(deltas: list[MessageDelta]) -> Iterator[tuple[MessageDelta | Note, float]]:
    for number, delta in enumerate(deltas, 1):
        yield delta, number / len(deltas)


def _result_note(result: HistoryToolCallResult) -> Note:
    code = f" ({result.error_code})" if result.error_code else ""
    return Note(f"← {unbroken(result.tool_name)}{code}", result.text(), "green" if result.error_code is None else "red")


def _seconds(beginning: datetime | None, begun: datetime | None, time: datetime | None, share: float) -> float:
    if beginning is None or begun is None or time is None:
        return 0.0
    passed = (begun - beginning) + max(time - begun, timedelta()) * share
    return max(passed.total_seconds(), 0.0)
