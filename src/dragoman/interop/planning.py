"""An imported conversation to the entries that it becomes: inputs, outputs, calls with their results, in legal order.

Knows no format. An entry that does not fit as it is becomes one that does, and a warning says so.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..errors import ErrorCode, IllegalAppend, InvalidValue
from ..history import (
    AgentState,
    DerivedState,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    Metadata,
    ModelInputEntry,
    ModelOutputEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from ..history.callids import with_new_call_ids
from ..history.growing import GrowingIds
from ..history.handoff import INTERRUPTED, UNKNOWN_OUTCOME
from ..history.rules import NEEDS_START
from ..history.toolresults import STATUS_CODES
from ..message import Message, Role, Text, ToolCall, ToolResult
from ..wire.drafts import ERROR_CODE_KEY, Imported
from ..wire.reading import Notes

if TYPE_CHECKING:
    from ..store import Session

__all__ = ["PlannedImport", "append_imported", "as_imported", "import_into", "plan_import", "said_at"]

# The metadata key under which an input or results keep when they were said.
SAID_AT_KEY = "said_at"

_CALL_CODES = frozenset().union(*STATUS_CODES.values())


class PlannedImport(msgspec.Struct, frozen=True):
    """The entries that an import becomes, for `AgentState.prepare_all`, and all warnings so far."""

    entries: tuple[HistoryEntry, ...]
    warnings: tuple[str, ...]


def append_imported(state: AgentState, imported: Imported, *, leave_open: bool = False) -> tuple[str, ...]:
    """Append an imported conversation as the entries that it would have been; return all warnings.

    A call without a result gets one that says it may or may not have taken effect. With `leave_open`, the calls of a
    last turn that has no result at all stay open for the next run. All or nothing is appended: raises IllegalAppend
    where the state has open calls that the import does not answer, and what the sink raises.
    """
    planned = plan_import(state, imported, leave_open=leave_open)
    state.append_all(planned.entries)
    return planned.warnings


async def import_into(
    session: "Session", conversation: Imported | Iterable[Message], *, leave_open: bool = False
) -> tuple[str, ...]:
    """Append an imported conversation, or messages, to a session, as `append_imported` does; return all warnings."""
    planned = plan_import(session.state, as_imported(conversation), leave_open=leave_open)
    await session.append(*planned.entries)
    return planned.warnings


def as_imported(conversation: Imported | Iterable[Message]) -> Imported:
    """Return messages as a conversation, whose system text is that of the system messages before all others.

    Raises InvalidValue for what is neither.
    """
    if isinstance(conversation, Imported):
        return conversation
    messages = tuple(conversation) if isinstance(conversation, Iterable) else (conversation,)
    wrong = [message for message in messages if not isinstance(message, Message)]
    if wrong or not isinstance(conversation, Iterable):
        found = type(wrong[0] if wrong else conversation).__name__
        allowed = "a list of Message, or what an import function of dragoman.interop returns"
        raise InvalidValue(f"messages must be {allowed}, got a {found}")
    system = tuple(takewhile(lambda message: message.role is Role.SYSTEM, messages))
    return Imported("\n\n".join(message.text for message in system) or None, messages[len(system) :])


def plan_import(state: AgentState, imported: Imported, *, leave_open: bool = False) -> PlannedImport:
    """Return the entries that `append_imported` would append, for a store that has to be awaited."""
    planner = _Planner(state.derived, imported.messages, leave_open=leave_open)
    if imported.system is not None and imported.system != state.system_instruction:
        planner.entries.append(SystemInstructionEntry(imported.system))
    planner.plan()
    return PlannedImport(tuple(planner.entries), (*imported.warnings, *planner.notes.all()))


class _Answer(msgspec.Struct, frozen=True):
    """A result, and the message that holds it, with its index."""

    index: int
    message: Message
    result: ToolResult


class _Planner:
    """Messages to entries. It finds all results first; then each assistant message is followed by its own."""

    def __init__(self, derived: DerivedState, messages: tuple[Message, ...], *, leave_open: bool) -> None:
        self.entries: list[HistoryEntry] = []
        self.notes = Notes()
        self._open_calls = derived.open_calls
        self._messages = messages
        self._leave_open = leave_open
        self._ids = GrowingIds(derived.call_ids)
        # By the indices of the message and of the call in it; -1 for the calls that are open in the state.
        self._answers: dict[tuple[int, int], _Answer] = {}
        self._spoken = [index for index, message in enumerate(messages) if message.role is not Role.TOOL]
        self._pair()

    def plan(self) -> None:
        self._answer_open_calls()
        for index, message in enumerate(self._messages):
            if message.role is Role.ASSISTANT:
                self._add_output(index, message)
            elif message.role is not Role.TOOL:
                self._add_input(index, message)

    def _pair(self) -> None:
        open_calls = {call.tool_call_id: (-1, at) for at, call in enumerate(self._open_calls) if not call.result}
        spoken = -1  # the newest message that is no result
        for index, message in enumerate(self._messages):
            if message.role is not Role.TOOL:
                spoken = index
            open_calls.update({call.tool_call_id: (index, at) for at, call in enumerate(message.tool_calls)})
            for part in message.parts:
                if not isinstance(part, ToolResult):
                    continue
                call = open_calls.pop(part.tool_call_id, None)
                if call is None:
                    self.notes.add(_path(index), "a result that answers no open call is left out")
                    continue
                self._answers[call] = _Answer(index, message, part)
                if call[0] != spoken:
                    self.notes.add(_path(index), "a result that came after other messages is put right after its call")

    def _answer_open_calls(self) -> None:
        if not self._open_calls or not self._messages:
            return
        answers = [self._answers.get((-1, index)) for index in range(len(self._open_calls))]
        results = [call.result or _result(call.request, answers[index]) for index, call in enumerate(self._open_calls)]
        known = [result for result in results if result is not None]
        if len(known) < len(results):
            missing = len(results) - len(known)
            raise IllegalAppend(f"{missing} open calls are not answered by the import", rule="calls_answered_first")
        # One that waits for an approval, or was refused, cannot be started; its result is taken all the same.
        to_start = [
            call.request
            for call in self._open_calls
            if call.started is None and call.result is None and not call.lacks_approval
        ]
        self._add_results(known, to_start, answers)

    def _add_input(self, index: int, message: Message) -> None:
        if all(isinstance(part, Text) and not part.text.strip() for part in message.parts):
            self.notes.add(_path(index), f"a {message.role} message without any words is left out")
            return
        notes = dict((message.meta.extra if message.meta else None) or {})
        if message.role is Role.SYSTEM:
            self.notes.add(_path(index), "a system message inside the conversation is recorded as an input")
            notes["role"] = "system"
        parts = tuple(part for part in message.parts if part.kind != "thinking")
        metadata = self._metadata(index, notes, message.timestamp)
        self.entries.append(ModelInputEntry.of(*parts, run_id=message.run_id, metadata=metadata))

    def _metadata(self, index: int, notes: dict[str, Any], timestamp: datetime | None) -> Metadata:
        noted = {} if timestamp is None else {SAID_AT_KEY: msgspec.to_builtins(timestamp)}
        try:
            return Metadata.of({**notes, **noted})
        except IllegalAppend:
            self.notes.add(_path(index), "fields of the message that are larger than metadata may be are left out")
            return Metadata.of(noted)

    def _add_output(self, index: int, message: Message) -> None:
        calls = message.tool_calls
        answers = [self._answers.get((index, call_index)) for call_index in range(len(calls))]
        if message.meta is not None and message.meta.interrupted:
            if not any(answers):
                reason = "this answer had broken off when it was imported"
                self.entries.append(InterruptionEntry(ErrorCode.STREAM_TRUNCATED, reason, message))
                return
            message = replace(message, meta=replace(message.meta, interrupted=None))  # its calls were run all the same
        message = with_new_call_ids(message, self._ids)
        self._ids = self._ids.with_added(call.tool_call_id for call in message.tool_calls)
        self.entries.append(ModelOutputEntry(message))
        if not calls or (self._leave_open and index == self._spoken[-1] and not any(answers)):
            return
        requests = list(message.tool_calls)
        results = [
            _result(request, answer)
            or HistoryToolCallResult.of_text(request, INTERRUPTED, error_code=ErrorCode.TOOL_INTERRUPTED)
            for request, answer in zip(requests, answers, strict=True)
        ]
        if not all(answers):
            self.notes.add(_path(index), f"a call without a result is recorded as interrupted: {UNKNOWN_OUTCOME}")
        self._add_results(results, requests, answers)

    def _add_results(
        self, results: list[HistoryToolCallResult], requests: list[ToolCall], answers: list[_Answer | None]
    ) -> None:
        codes = {result.tool_call_id: result.error_code for result in results}
        for request in requests:
            if request.arguments is not None and codes[request.tool_call_id] in NEEDS_START:
                self.entries.append(ToolStartedEntry(request.tool_call_id, request.tool_name))
        given = [answer for answer in answers if answer is not None]
        times = [answer.message.timestamp for answer in given if answer.message.timestamp is not None]
        metadata = self._metadata(given[-1].index if given else 0, _fields_of(given), max(times, default=None))
        run_id = given[-1].message.run_id if given else ""
        self.entries.append(ToolResultsEntry(tuple(results), run_id=run_id, metadata=metadata))


def _result(request: ToolCall, answer: _Answer | None) -> HistoryToolCallResult | None:
    if answer is None:
        return None
    code = _error_code(answer.message)
    if code is None and answer.result.is_error and request.arguments is None:
        code = ErrorCode.INVALID_ARGUMENTS
    result = replace(answer.result, tool_call_id=request.tool_call_id)
    return HistoryToolCallResult.of_result(result, request.tool_name, error_code=code)


def _fields_of(answers: list[_Answer]) -> dict[str, Any]:
    """The fields that other formats have beside results: by the name of the format, then by the id of the call."""
    found: dict[str, Any] = {}
    for answer in answers:
        for form, fields in ((answer.message.meta.extra if answer.message.meta else None) or {}).items():
            if form != ERROR_CODE_KEY:
                found.setdefault(form, {})[answer.result.tool_call_id] = fields
    return found


def _error_code(message: Message) -> ErrorCode | None:
    word = ((message.meta.extra if message.meta else None) or {}).get(ERROR_CODE_KEY)
    return next((code for code in _CALL_CODES if code is not None and code == word), None)


def said_at(entry: HistoryEntry) -> datetime | None:
    """Return when what an imported entry records was said, as far as it notes that."""
    if isinstance(entry, ModelOutputEntry):
        return entry.message.timestamp
    try:
        return msgspec.convert(entry.metadata.get(SAID_AT_KEY), datetime | None)
    except msgspec.ValidationError:
        return None


def _path(index: int) -> str:
    return f"message {index}"
