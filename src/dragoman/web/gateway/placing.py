"""Where a client's request belongs in a recorded session, and the entries that it becomes there. Pure: no I/O.

A turn of a client is recorded as the messages that are new in its request, then a `ClientRequestEntry`, then the answer
and a `ClientAnswerEntry`. What a request continues is found by the marks of these two facts.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...errors import ErrorCode
from ...history import (
    ClientAnswerEntry,
    ClientRequestEntry,
    ContextualHistoryEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelOutputEntry,
    ResetEntry,
    ToolResultsEntry,
)
from ...history.handoff import INTERRUPTED
from ...interop.planning import plan_import
from ...message import Message, MessageMeta, Part, Role, ToolCall, ToolResult
from ...wire.drafts import ERROR_CODE_KEY, Imported
from ...wire.written_ids import spellings_of
from .conversations import FRAME, Frame, Prefix, answer_key, is_same_answer, whole_parts

if TYPE_CHECKING:
    from ...history import AgentState

__all__ = [
    "NEAR",
    "Place",
    "find_answer",
    "find_place",
    "frame_at",
    "has_late_results",
    "has_moved",
    "is_own_turn",
    "last_request",
    "plan_turn",
    "with_open_ids",
    "with_recorded",
]

NEAR = 1_000  # entries before a place that are searched for a request


class Place(msgspec.Struct, frozen=True):
    """Where a request belongs: after the entry `end`, up to which the session says what the request says.

    `rest` is what the request says after that, with the calls of the record. `is_repeat`: the request at `end` asked
    the same.
    """

    end: int
    rest: tuple[Message, ...]
    is_repeat: bool = False


def find_place(entries: Sequence[HistoryEntry], serial: int, prefix: Prefix, messages: Sequence[Message]) -> Place:
    """Return where a request belongs. The marked entry `serial` is about the turn that `prefix` of its messages ends.

    The answer that a client repeats is the recorded one if it says the same; else it is the client's own.
    """
    rest = prefix.rest_of(messages)
    if isinstance(entries[serial], ClientAnswerEntry):
        said = tuple(_answer_before(messages, prefix.message))
        return Place(serial, _renamed(rest, said, _output_before(entries, serial)))
    said = _answer_in(rest)
    later = rest[len(said) :]
    if (answer := find_answer(entries, serial)) is None:
        return Place(serial, (*_arrived(entries, serial, said), *later), is_repeat=not rest)
    recorded = entries[answer]
    assert isinstance(recorded, ModelOutputEntry)
    if rest and is_same_answer(recorded.message.parts, _parts(said)):
        return Place(_end_of_answer(entries, answer), _renamed(later, said, recorded))
    return Place(serial, rest, is_repeat=not rest)


def find_answer(entries: Sequence[HistoryEntry], serial: int) -> int | None:
    """Return the serial of the answer to the request at `serial`; None where the session has none, or went on."""
    found = _next_said(entries, serial)
    return found if found is not None and isinstance(entries[found], ModelOutputEntry) else None


def has_moved(entries: Sequence[HistoryEntry], serial: int) -> bool:
    """Whether the session says more after the entry `serial`. Facts say nothing."""
    return _next_said(entries, serial) is not None


def is_own_turn(entries: Sequence[HistoryEntry], serial: int, prefix: Prefix, messages: Sequence[Message]) -> bool:
    """Whether a request to a joined session continues or repeats the turn of `serial`, and does not say the same anew.

    Each client that joins begins with its own words, and short words recur. So the request must show that its client
    has the turn: it has an answer or a result of that turn. Or the turn is the newest and has no answer: a retry.
    """
    rest = prefix.rest_of(messages)
    if isinstance(entries[serial], ClientAnswerEntry) or _answer_in(rest):
        return True
    asked = messages[: prefix.message + 1 if prefix.parts else prefix.message]
    newest = takewhile(lambda message: message.role is not Role.ASSISTANT, reversed(asked))
    return any(message.role is Role.TOOL for message in newest) or not has_moved(entries, serial)


def frame_at(entries: Sequence[HistoryEntry], serial: int) -> Frame | None:
    """Return the frame of the request that the entry is, or that it answers."""
    entry = entries[serial]
    if isinstance(entry, ClientAnswerEntry):
        entry = entries[entry.request_serial]
    return Frame.of(entry)


def last_request(entries: Sequence[HistoryEntry]) -> ClientRequestEntry | None:
    """Return the newest request with a body, None if there is none near the end."""
    for serial in range(len(entries) - 1, max(-1, len(entries) - 1 - NEAR), -1):
        entry = entries[serial]
        if isinstance(entry, ClientRequestEntry) and FRAME in entry.metadata:
            return entry
    return None


def has_late_results(state: "AgentState", said: Sequence[Message]) -> bool:
    """Whether a client brings results of calls that the session has closed: another client spoke before they came."""
    open_ids = [call.tool_call_id for call in state.derived.open_calls]
    return not _answered_ids(with_open_ids(said, open_ids)) <= set(open_ids)


def with_open_ids(messages: Sequence[Message], open_ids: Sequence[str]) -> tuple[Message, ...]:
    """Return a client's messages with the record's ids of open calls in their results.

    The client knows a call by the model's own id, without the number that makes a repeated one unique in the record,
    and in the alphabet of the client's API.
    """
    named: dict[str, str] = {}
    for open_id in open_ids:
        for said in (open_id, open_id.rpartition("~")[0]):
            named.update(dict.fromkeys(spellings_of(said) if said else (), open_id))
    named.update({open_id: open_id for open_id in open_ids})
    return _with_result_ids(messages, named)


def plan_turn(state: "AgentState", system: str | None, said: Sequence[Message]) -> tuple[HistoryEntry, ...]:
    """Return the entries of what a client says at the end of a session, so that the model may answer.

    Calls that it leaves unanswered get an interrupted result: the client may have run them.
    """
    open_calls = state.derived.open_calls
    said = with_open_ids(said, [call.tool_call_id for call in open_calls])
    answered = _answered_ids(said)
    missing = [call.request for call in open_calls if call.result is None and call.tool_call_id not in answered]
    said = (*(_interrupted(call) for call in missing), *said)
    if system is None and state.system_instruction is not None:
        system = ""
    planned = plan_import(state, Imported(system, said)).entries
    if open_calls and not said:  # all have finished, and their results were never put together
        results = tuple(call.result for call in open_calls if call.result is not None)
        planned = (*planned, ToolResultsEntry(results))
    return planned


def with_recorded(messages: Sequence[Message], find: Callable[[bytes], Message | None]) -> tuple[Message, ...]:
    """Return a client's messages with the recorded answers in place of its own.

    `find` gives, for the key of an answer, the next recorded one that says the same. Calls keep the client's ids, so
    that its results fit. There are as many messages as before: a cache anchor stays where it is.
    """
    told = list(messages)
    index = 0
    while index < len(told):
        said = _answer_in(messages, index)
        if said and (key := answer_key(_parts(said))) and (recorded := find(key)) is not None:
            told[index] = _with_ids_of(recorded, said)
            told[index + 1 : index + len(said)] = [replace(each, parts=()) for each in said[1:]]
        index += len(said) or 1
    return tuple(told)


# ---------------------------------------------------------------- answers


def _next_said(entries: Sequence[HistoryEntry], serial: int) -> int | None:
    for index in range(serial + 1, len(entries)):
        if isinstance(entries[index], (ContextualHistoryEntry, ResetEntry)):
            return index
    return None


def _end_of_answer(entries: Sequence[HistoryEntry], serial: int) -> int:
    """The serial of the last fact about an answer."""
    while serial + 1 < len(entries) and isinstance(entries[serial + 1], ClientAnswerEntry):
        serial += 1
    return serial


def _output_before(entries: Sequence[HistoryEntry], serial: int) -> ModelOutputEntry | None:
    for index in range(serial - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, (ContextualHistoryEntry, ResetEntry)):
            return entry if isinstance(entry, ModelOutputEntry) else None
    return None


def _arrived(entries: Sequence[HistoryEntry], serial: int, said: tuple[Message, ...]) -> tuple[Message, ...]:
    """The answer that a client took for whole, as far as it had arrived here: with thinking and signatures.

    Clients run a call when it is closed. If the stream breaks off after that, some go on as if the answer were whole.
    """
    for entry in entries[serial + 1 :] if said else ():
        partial = entry.partial if isinstance(entry, InterruptionEntry) else None
        if partial is not None and answer_key(parts := whole_parts(partial.parts)) == answer_key(_parts(said)):
            meta = replace(partial.meta or MessageMeta(), interrupted=None, parse_failures=None)
            return (_with_ids_of(replace(partial, parts=parts, meta=meta), said),)
    return said


def _answer_in(messages: Sequence[Message], begin: int = 0) -> tuple[Message, ...]:
    """The assistant messages in a row from an index on."""
    end = begin
    while end < len(messages) and messages[end].role is Role.ASSISTANT:
        end += 1
    return tuple(messages[begin:end])


def _answer_before(messages: Sequence[Message], index: int) -> Sequence[Message]:
    """The assistant messages that end before an index."""
    first = index
    while first and messages[first - 1].role is Role.ASSISTANT:
        first -= 1
    return messages[first:index]


def _parts(messages: Sequence[Message]) -> tuple[Part, ...]:
    return tuple(part for message in messages for part in message.parts)


# ---------------------------------------------------------------- calls and results


def _with_ids_of(recorded: Message, said: Sequence[Message]) -> Message:
    """The recorded answer with the ids that the client has for its calls."""
    theirs = [call.tool_call_id for message in said for call in message.tool_calls]
    if theirs == [call.tool_call_id for call in recorded.tool_calls]:
        return recorded
    ids = iter(theirs)
    parts: list[Part] = []
    for part in recorded.parts:
        known = next(ids, "") if isinstance(part, ToolCall) else ""
        parts.append(_with_id(part, known) if known and isinstance(part, ToolCall) else part)
    meta = None if recorded.meta is None else replace(recorded.meta, parse_failures=None)
    return replace(recorded, parts=tuple(parts), meta=meta)


def _with_id(call: ToolCall, known: str) -> ToolCall:
    """The call with another id. The record notes a repeated id of the wire with the call: that note must go."""
    data = call.provider_data
    if data is not None and call.tool_call_id.startswith(f"{data.get('id')}~"):
        data = {name: value for name, value in data.items() if name != "id"} or None
    return replace(call, tool_call_id=known, provider_data=data)


def _renamed(
    messages: tuple[Message, ...], said: Sequence[Message], recorded: ModelOutputEntry | None
) -> tuple[Message, ...]:
    """The messages, with the record's ids in the results of the answer that was said before them."""
    theirs = [call.tool_call_id for message in said for call in message.tool_calls]
    ours = [] if recorded is None else list(recorded.tool_calls)
    if len(ours) > len(theirs):
        ours = [call for call in ours if call.arguments is not None]
    # From the end: some clients join two recorded answers to one.
    pairs = zip(reversed(theirs), reversed(ours), strict=False)
    return _with_result_ids(messages, {known: call.tool_call_id for known, call in pairs})


def _with_result_ids(messages: Sequence[Message], ids: dict[str, str]) -> tuple[Message, ...]:
    """The messages with other ids in the results before the next answer, which has calls of its own."""
    if all(known == ours for known, ours in ids.items()):
        return tuple(messages)
    told = list(messages)
    for index, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            break
        for part in message.parts if message.role is Role.TOOL else ():
            if isinstance(part, ToolResult) and part.tool_call_id in ids:
                told[index] = replace(message, parts=(replace(part, tool_call_id=ids[part.tool_call_id]),))
    return tuple(told)


def _answered_ids(messages: Sequence[Message]) -> set[str]:
    """The ids of results for calls that were made before these messages."""
    answered: set[str] = set()
    called: set[str] = set()
    for message in messages:
        called.update(call.tool_call_id for call in message.tool_calls)
        answered.update(result.tool_call_id for result in message.tool_results if result.tool_call_id not in called)
    return answered


def _interrupted(call: ToolCall) -> Message:
    code = MessageMeta(extra={ERROR_CODE_KEY: ErrorCode.TOOL_INTERRUPTED.value})
    result = ToolResult(call.tool_call_id, INTERRUPTED, is_error=True)
    return Message(Role.TOOL, (result,), meta=code)
