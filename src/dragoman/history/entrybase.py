"""What every entry of a record has: its kind, serial, id and time. `entries` has the classes, one for each kind."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import join_surrogates
from ..message import Message, require_extra, require_text, shape_of, utc_time
from ..usage import require_count
from .metadata import NO_METADATA, Metadata
from .sections import LevelOfDetail
from .toolresults import SECTIONS_SHAPE

__all__ = ["ContextMessageRole", "ContextualHistoryEntry", "HistoryEntry", "HistoryEntryKind", "entry_shape"]


class HistoryEntryKind(StrEnum):
    """The word that stands for each kind of entry in JSON and logs."""

    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_RESULT = "tool_result"
    SYSTEM_INSTRUCTION = "system_instruction"
    NOTEBOOK = "notebook"
    COMPACTION = "compaction"
    INTERRUPTION = "interruption"
    APPROVAL_ASKED = "approval_asked"
    APPROVAL_ANSWERED = "approval_answered"
    QUESTION_ASKED = "question_asked"
    QUESTION_ANSWERED = "question_answered"
    SAMPLING = "sampling"
    TOOL_STARTED = "tool_started"
    TOOL_FINISHED = "tool_finished"
    RUN_STARTED = "run_started"
    RUN_FINISHED = "run_finished"
    STEERING = "steering"
    RUN_REQUESTED = "run_requested"
    ABORT_REQUESTED = "abort_requested"
    TAKEOVER = "takeover"
    CLIENT_REQUEST = "client_request"
    CLIENT_ANSWER = "client_answer"
    TOOL_SET = "tool_set"
    EPOCH = "epoch"
    RESET = "reset"


class ContextMessageRole(StrEnum):
    """Who speaks in a context, in no provider's words."""

    SYSTEM = "system"
    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_RESULT = "tool_result"


class HistoryEntry(msgspec.Struct, frozen=True, repr_omit_defaults=True, rename="camel", kw_only=True):
    """What every entry has. `AgentState`, which alone appends, gives `serial`, `entry_id` and `timestamp`.

    `extra` holds the fields of a later version, in the JSON's own layout, and is written back as read.
    """

    kind: ClassVar[HistoryEntryKind]

    serial: int = -1
    entry_id: str = ""
    timestamp: datetime | None = None
    run_id: str = ""
    metadata: Mapping[str, Any] = NO_METADATA
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        require_count("serial", self.serial, -1)  # -1: none yet
        require_text("entryId", self.entry_id)
        require_text("runId", self.run_id)
        if not self.run_id.isascii():
            force_setattr(self, "run_id", join_surrogates(self.run_id))
        if self.timestamp is not None:
            force_setattr(self, "timestamp", utc_time(self.timestamp))
        if type(self.metadata) is not Metadata:
            force_setattr(self, "metadata", Metadata.of(self.metadata))
        if self.extra is not None:
            require_extra(self, entry_shape(type(self)))


class ContextualHistoryEntry(HistoryEntry, frozen=True, kw_only=True):
    """An entry that a model sees."""

    @property
    def role(self) -> ContextMessageRole:
        """Who speaks."""
        raise NotImplementedError

    def messages(self, detail: LevelOfDetail = LevelOfDetail.LIVE) -> tuple[Message, ...]:
        """Return what the entry says at a level of detail, without the LiveScreen."""
        raise NotImplementedError


@cache
def entry_shape(entry_class: type[HistoryEntry]) -> dict[str, Any]:
    """Return the known fields of an entry's JSON; those of an object inside stand inside."""
    payload = None
    if "kind" not in entry_class.__struct_fields__:  # one of a later version keeps its payload as it was read
        payload = shape_of(entry_class, frozenset(HistoryEntry.__struct_fields__))
        if "sections" in payload:
            payload["sections"] = SECTIONS_SHAPE
    envelope: dict[str, Any] = dict.fromkeys(
        ("serial", "id", "kind", "timestamp", "runId", "metadata", "schemaVersion")
    )
    return {**envelope, "payload": payload}
