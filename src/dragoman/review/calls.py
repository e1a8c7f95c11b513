"""The entries of a session → its model calls: when each was made, its model, its tools and settings. Pure.

A call is an answer that a run recorded, or a client's request to the gateway with what came of it. What tools and
compactions ask a model is not among them: their requests share nothing with those of the conversation.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from ..context import ESTIMATE_KEY
from ..errors import UnreadableData
from ..history import (
    CallSetup,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    ContextualHistoryEntry,
    EpochEntry,
    HistoryEntry,
    ModelOutputEntry,
    RunStartedEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolSetEntry,
    ToolSets,
)
from ..message import ModelInvocationDescriptor
from ..models.recorded import REQUEST_KEY
from ..usage import TokenUsage

__all__ = ["BEFORE_A_CALL", "PastCall", "find_calls"]

# What is appended before a request leaves. Others may append other kinds while the answer comes.
BEFORE_A_CALL = (
    ContextualHistoryEntry,
    SystemInstructionEntry,
    CompactionEntry,
    EpochEntry,
    ToolSetEntry,
    RunStartedEntry,
    TakeoverEntry,
)


class PastCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call of the record.

    `serial` is that of the answer. `setup` is what the call had beside the messages, None where the record does not say
    it. `estimate` is what its request was counted as, `check` the checksum of the request that was sent, empty where
    none was kept. `request` is what a client of the gateway sent.
    """

    serial: int
    invocation: ModelInvocationDescriptor
    asked_at: datetime | None = None
    usage: TokenUsage | None = None
    setup: CallSetup | None = None
    estimate: int | None = None
    check: str = ""
    run_id: str = ""
    trace_id: str | None = None
    request: ClientRequestEntry | None = None

    @property
    def model(self) -> str:
        """The model's name, `provider:model`."""
        return f"{self.invocation.provider}:{self.invocation.model}"


def find_calls(entries: Sequence[HistoryEntry]) -> tuple[PastCall, ...]:
    """Return the model calls of a session, all of whose entries are given, in their order."""
    return tuple(_calls(entries))


def _calls(entries: Sequence[HistoryEntry]) -> Iterator[PastCall]:
    # A client sends what others have answered before, too: only what a run, or the gateway, recorded is a call here.
    has_clients = any(isinstance(entry, ClientRequestEntry) for entry in entries)
    tool_sets, asked_at = ToolSets(), None
    answered: ModelOutputEntry | None = None  # to the newest request of a client
    for entry in entries:
        if isinstance(entry, ToolSetEntry):
            tool_sets.add(entry)
        if isinstance(entry, ClientRequestEntry):
            answered = None
        elif isinstance(entry, ClientAnswerEntry):
            asked = entries[entry.request_serial] if entry.request_serial < len(entries) else None
            if isinstance(asked, ClientRequestEntry) and entry.status < 400:
                yield _client_call(asked, entry, answered)
        elif isinstance(entry, ModelOutputEntry):
            answered = entry
            if entry.invocation is not None and (entry.run_id or not has_clients):
                yield _own_call(entry, entry.invocation, asked_at, tool_sets)
        if isinstance(entry, BEFORE_A_CALL):
            asked_at = entry.timestamp


def _own_call(
    entry: ModelOutputEntry,
    invocation: ModelInvocationDescriptor,
    asked_at: datetime | None,
    tool_sets: ToolSets,
) -> PastCall:
    estimate, check = entry.metadata.get(ESTIMATE_KEY), entry.metadata.get(REQUEST_KEY)
    is_recorded = isinstance(check, str) or tool_sets.newest(invocation) is not None
    meta = entry.message.meta
    return PastCall(
        serial=entry.serial,
        invocation=invocation,
        asked_at=asked_at,
        usage=entry.usage,
        setup=_setup(tool_sets, invocation) if is_recorded else None,
        estimate=estimate if type(estimate) is int and estimate > 0 else None,
        check=check if isinstance(check, str) else "",
        run_id=entry.run_id,
        trace_id=None if meta is None else meta.trace_id,
    )


def _setup(tool_sets: ToolSets, invocation: ModelInvocationDescriptor) -> CallSetup | None:
    try:
        return tool_sets.setup_for(invocation)
    except UnreadableData:  # a tool that no entry gives: the record does not say what was sent
        return None


def _client_call(asked: ClientRequestEntry, told: ClientAnswerEntry, answer: ModelOutputEntry | None) -> PastCall:
    provider, colon, model = told.model.partition(":")
    return PastCall(
        serial=told.serial if answer is None else answer.serial,
        invocation=ModelInvocationDescriptor(
            *((provider, asked.api, model) if colon else (asked.api, asked.api, asked.model))
        ),
        asked_at=asked.timestamp,
        usage=None if answer is None else answer.usage,
        request=asked,
    )
