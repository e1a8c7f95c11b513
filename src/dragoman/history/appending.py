"""The appends of a conversation, one method for each kind of entry that a caller makes by hand.

`AgentState` and `store.Session` have these methods. The methods make the entry; each class has an `_append` of its own.
`AgentState` returns the recorded entry, `Session` returns a coroutine of it: the type parameters say which.
"""

# mypy: disable-error-code="no-any-return"
# `_append` returns what the type parameters of the class say, which Python cannot express for all entries at once.

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from ..errors import ErrorCode
from ..message import Message, Part
from .derived import DerivedState
from .entries import (
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ResetEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
)
from .metadata import NO_METADATA, Metadata
from .toolresults import HistoryToolCallResult

if TYPE_CHECKING:
    from .state import AgentState

__all__ = ["EntryAppender"]

_InputT = TypeVar("_InputT")
_OutputT = TypeVar("_OutputT")
_ResultsT = TypeVar("_ResultsT")
_InstructionT = TypeVar("_InstructionT")
_NotebookT = TypeVar("_NotebookT")
_ResetT = TypeVar("_ResetT")
_Entry = TypeVar("_Entry", bound=HistoryEntry)


class EntryAppender(ABC, Generic[_InputT, _OutputT, _ResultsT, _InstructionT, _NotebookT, _ResetT]):
    """Makes entries and appends them. Each method returns the entry as it was recorded."""

    @abstractmethod
    def _append(self, entry: HistoryEntry) -> Any:
        """Append the entry and return it as it was recorded, or a coroutine of it."""

    @property
    @abstractmethod
    def _history(self) -> "AgentState":
        """The state that the entry is appended to."""

    def append_model_input(
        self, *parts: Part | str | ModelInputEntry, run_id: str = "", metadata: Mapping[str, Any] = NO_METADATA
    ) -> _InputT:
        """Append what a person or a host said, as parts or as one entry, with the LiveScreen of this moment."""
        if len(parts) == 1 and isinstance(parts[0], ModelInputEntry):
            entry = _with_notes(parts[0], run_id, metadata)
        else:
            entry = ModelInputEntry.of(*parts, run_id=run_id, metadata=metadata)  # type: ignore[arg-type]  # the entry refuses an entry as a part
        return self._append(entry)

    def append_model_output(
        self, output: Message | ModelOutputEntry, *, run_id: str = "", metadata: Mapping[str, Any] = NO_METADATA
    ) -> _OutputT:
        """Append what a model said. Tool calls whose ids were used before get new ones: use the returned entry's."""
        if isinstance(output, ModelOutputEntry):
            entry = _with_notes(output, run_id, metadata)
        else:
            entry = ModelOutputEntry(output, run_id=run_id, metadata=metadata)
        return self._append(entry)

    def append_tool_results(
        self,
        results: Iterable[HistoryToolCallResult] | ToolResultsEntry = (),
        execute_error: str | None = None,
        *,
        run_id: str = "",
        metadata: Mapping[str, Any] = NO_METADATA,
    ) -> _ResultsT:
        """Append the results of all open calls, in call order, with the LiveScreen of this moment.

        Without `results`, the entry holds those that `tool finished` entries recorded. For a call that has none,
        `execute_error` is the text of its result.
        """
        if isinstance(results, ToolResultsEntry):
            entry = _with_notes(results, run_id, metadata)
        else:
            found = tuple(results) or _finished_results(self._history.derived, execute_error)
            entry = ToolResultsEntry(found, execute_error, run_id=run_id, metadata=metadata)
        return self._append(entry)

    def set_system_instruction(self, instruction: str) -> _InstructionT:
        """Append a new system instruction; empty text is none."""
        return self._append(SystemInstructionEntry(instruction))

    def update_memory_notebook(self, content: str | None) -> _NotebookT:
        """Append the notebook that the host gives; None empties it. Raises InvalidValue if it is too long."""
        return self._append(self._history.widgets.host_notebook(content))

    def reset(self) -> _ResetT:
        """Append a reset: nothing before it reaches a model any more, and the notebook is empty. Nothing is deleted.

        Raises IllegalAppend while a run is open, also one that waits for an approval: abort that first.
        """
        return self._append(ResetEntry())


def _finished_results(state: DerivedState, execute_error: str | None) -> tuple[HistoryToolCallResult, ...]:
    results = []
    for call in state.open_calls:
        if call.result is not None:
            results.append(call.result)
        elif execute_error:
            failed = HistoryToolCallResult.of_text(call.request, execute_error, error_code=ErrorCode.TOOL_FAILED)
            results.append(failed)
    return tuple(results)


def _with_notes(entry: _Entry, run_id: str, metadata: Mapping[str, Any]) -> _Entry:
    """Return the entry with the caller's run id and metadata; what the caller leaves out stays as it is."""
    return replace(entry, run_id=run_id or entry.run_id, metadata=Metadata.of(metadata) or entry.metadata)
