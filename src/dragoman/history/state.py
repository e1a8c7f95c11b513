"""`AgentState`: checks and stamps entries, takes them into memory, and knows what follows from them.

An append is `prepare` (stamp and check, nothing changes), the sink (a store keeps the entries), `commit` (memory
changes). A sink that raises leaves memory as it was. One writer at a time. The clock and the session's id are the only
things taken from outside, in `create_default` and `from_entries`, where they are not given.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import is_
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from ..errors import ErrorCode, IllegalAppend, InvalidValue
from ..message import ToolCall, require_name, utc_time
from ..toolspec import ToolSpec
from ..usage import TokenUsage
from .appending import EntryAppender
from .callids import with_new_call_ids
from .contextmessages import ContextMessage, DetailPolicy, context_messages, newest_live
from .derived import AgentStatus, DerivedState, LastError, advance
from .entries import (
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    ResetEntry,
    SystemInstructionEntry,
    ToolResultsEntry,
    UnknownEntry,
    as_entry,
)
from .growing import Extendable, GrowingList
from .rules import RULES, require_legal
from .sections import LIVE_SCREEN, LevelOfDetailSections, without_live_screen
from .widgets import MemoryNotebookWidget, Widget, WidgetRegistry, WidgetRenderContext, WidgetResult, describe_failure

__all__ = ["AgentState", "Clock", "Sink"]

Clock: TypeAlias = Callable[[], datetime]
Sink: TypeAlias = Callable[[tuple[HistoryEntry, ...]], None]

_Entry = TypeVar("_Entry", bound=HistoryEntry)
_Steps: TypeAlias = tuple[tuple[HistoryEntry, ...], list[DerivedState]]  # entries and the state after each


class AgentState(
    EntryAppender[
        ModelInputEntry, ModelOutputEntry, ToolResultsEntry, SystemInstructionEntry, NotebookEntry, ResetEntry
    ]
):
    """The append-only history of one session and what follows from it.

    Without a store, append to it directly. A `store.Session` prepares entries with it and commits them.
    """

    def __init__(
        self,
        session_id: str,
        *,
        clock: Clock,
        widgets: Iterable[Widget] | WidgetRegistry = (),
        sink: Sink | None = None,
    ) -> None:
        require_name("session_id", session_id)
        self._session_id = session_id
        self._writer = ""
        self._stamped = 0  # entries that got an id
        self._clock = clock
        self._widgets = widgets if isinstance(widgets, WidgetRegistry) else WidgetRegistry(widgets)
        self._sink = sink
        self._entries: GrowingList[HistoryEntry] = GrowingList()
        self._derived = DerivedState()
        self._states: GrowingList[DerivedState] = GrowingList((self._derived,))  # of which that is the last
        self._first_state = 0  # how many entries stand before the first of these states
        self._prepared: _Steps = ((), [])
        self._read_only = False

    @classmethod
    def create_default(
        cls,
        system_instruction: str | None = None,
        *,
        session_id: str | None = None,
        clock: Clock | None = None,
        widgets: Iterable[Widget] | None = None,
        sink: Sink | None = None,
    ) -> "AgentState":
        """Return an empty state, or one whose first entry is the system instruction.

        By default the session gets a random id, time is the machine's, and the one widget is the memory notebook.
        """
        state = cls._new(session_id, clock, widgets, sink)
        if system_instruction is not None:
            state.set_system_instruction(system_instruction)
        return state

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[HistoryEntry],
        *,
        session_id: str | None = None,
        clock: Clock | None = None,
        widgets: Iterable[Widget] | None = None,
        sink: Sink | None = None,
    ) -> "AgentState":
        """Return the state that the entries lead to; raise IllegalAppend if they could not have been appended.

        The sink does not see them. Without `session_id` it is the one in the last entry's id.
        """
        loaded = tuple(entries)
        if session_id is None and loaded:
            as_entry(loaded[-1])
            session_id = loaded[-1].entry_id.rpartition(":")[0] or None
        state = cls._new(session_id, clock, widgets, sink)
        state.commit(*loaded)
        return state

    @classmethod
    def resume(
        cls,
        entries: Extendable[HistoryEntry],
        derived: DerivedState,
        *,
        session_id: str,
        clock: Clock | None = None,
        widgets: Iterable[Widget] | None = None,
        sink: Sink | None = None,
        writer: str = "",
    ) -> "AgentState":
        """Return the state that the entries lead to, of which the first ones are known to lead to `derived`.

        Only those after them are read and checked. The entries are the state's own from now on. A `writer` is a word
        that no other writer of the session has: each append gets an id of its own by it.
        """
        if derived.next_serial > len(entries):
            raise InvalidValue(f"derived follows from {derived.next_serial} entries, but there are {len(entries)}")
        state = cls._new(session_id, clock, widgets, sink)
        state._writer = writer
        rest = state._checked((entries[index] for index in range(derived.next_serial, len(entries))), derived)
        state._entries = GrowingList.owning(entries)
        state._states = GrowingList((derived, *rest))
        state._derived = state._states[-1]
        state._first_state = derived.next_serial
        return state

    @classmethod
    def _new(
        cls, session_id: str | None, clock: Clock | None, widgets: Iterable[Widget] | None, sink: Sink | None
    ) -> "AgentState":
        return cls(
            session_id or os.urandom(16).hex(),
            clock=clock or (lambda: datetime.now(UTC)),
            widgets=(MemoryNotebookWidget(),) if widgets is None else widgets,
            sink=sink,
        )

    # ------------------------------------------------------------ what is there

    @property
    def session_id(self) -> str:
        """What the ids of entries begin with."""
        return self._session_id

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        """All entries so far; a view that stays as it is when more are appended, and costs nothing."""
        return self._entries

    @property
    def widgets(self) -> WidgetRegistry:
        """The widgets."""
        return self._widgets

    @property
    def _history(self) -> "AgentState":
        return self

    @property
    def derived(self) -> DerivedState:
        """What follows from the entries: a value, equal to that of any state with the same entries."""
        return self._derived

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing, as far as entries tell."""
        return self._derived.status

    @property
    def current_run_id(self) -> str:
        """The open run, or empty."""
        return self._derived.current_run_id

    @property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls without a terminal result, in call order."""
        return self._derived.pending_tool_calls

    @property
    def last_error(self) -> LastError | None:
        """The newest failure after which nothing has succeeded yet."""
        return self._derived.last_error

    @property
    def token_usage(self) -> TokenUsage:
        """What all calls used together."""
        return self._derived.token_usage

    @property
    def cost_usage(self) -> float:
        """US dollars spent, as far as they were reported."""
        return self._derived.cost_usage

    @property
    def system_instruction(self) -> str | None:
        """The system instruction in force."""
        return self._derived.system_instruction

    @property
    def memory_notebook_snapshot(self) -> str:
        """The memory notebook as it is now."""
        return self._derived.notebook

    @property
    def next_serial(self) -> int:
        """The serial that the next entry gets."""
        return self._derived.next_serial

    def state_at(self, serial: int) -> "AgentState":
        """Return the state as it was right after the entry of that serial, -1 for before all. It takes no entries."""
        if type(serial) is not int or not -1 <= serial < len(self._entries):
            raise InvalidValue.of("serial", serial, f"from -1 to {len(self._entries) - 1}")
        past = AgentState(self._session_id, clock=self._clock, widgets=self._widgets)
        past._entries = self._entries.first(serial + 1)
        known = serial + 2 - self._first_state
        if known > 0:
            past._states, past._first_state = self._states.first(known), self._first_state
        else:
            past._states = GrowingList((reduce(advance, past._entries, DerivedState()),))
            past._first_state = serial + 1
        past._derived = past._states[-1]
        past._read_only = True
        return past

    def render_live_context(self, policy: DetailPolicy = newest_live) -> tuple[ContextMessage, ...]:
        """Return what a model may see: the system instruction, then the entries since the newest reset.

        By default the newest input or results entry is live and the older ones are summaries.
        """
        return context_messages(self._entries, instruction=self._derived.instruction_entry, policy=policy)

    # ------------------------------------------------------------ appending

    def append(self, entry: _Entry) -> _Entry:
        """Append an entry of any kind and return it as it was recorded."""
        stamped, state = self._prepare(self._derived, entry)
        self._keep((stamped,), [state])
        return stamped

    _append = append

    def append_all(self, entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
        """Append several entries, all or none, and return them as they were recorded. The sink gets them together."""
        self._require_writable()
        stamped, states = self._prepare_all(entries)
        if stamped:
            self._keep(stamped, states)
        return stamped

    # ------------------------------------------------------------ widgets

    def enumerate_widget_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the widgets, in order."""
        return self._widgets.tools

    def plan_widget_tool(self, name: str, arguments: Mapping[str, Any]) -> WidgetResult:
        """Return what a widget's tool says and the entries that record its change; append nothing.

        A widget's mistake, and entries that a rule forbids, give a failure without entries.
        """
        planned = self._widgets.execute_tool(name, arguments, self._render_context(self._now()))
        try:
            self._prepare_all(planned.entries)
        except InvalidValue as error:
            return WidgetResult(f"{name} failed: {describe_failure(error)}", (), ErrorCode.TOOL_FAILED)
        return planned

    def execute_widget_tool(self, name: str, arguments: Mapping[str, Any]) -> WidgetResult:
        """Run a widget's tool and append what it changes, all or nothing; a widget's mistake gives a failure.

        The result holds the entries as they were recorded. Raises what the sink raises.
        """
        self._require_writable()
        planned = self.plan_widget_tool(name, arguments)
        return replace(planned, entries=self.append_all(planned.entries)) if planned.entries else planned

    # ------------------------------------------------------------ two phases

    def prepare(self, entry: _Entry) -> _Entry:
        """Return the entry as it will be recorded, or raise IllegalAppend; nothing changes until `commit`."""
        stamped, state = self._prepare(self._derived, entry)
        self._prepared = ((stamped,), [state])
        return stamped

    def prepare_all(self, entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
        """Return several entries as they will be recorded, each checked after those before it."""
        self._prepared = self._prepare_all(entries)
        return self._prepared[0]

    def commit(self, *entries: HistoryEntry) -> None:
        """Take prepared entries into memory, all or none; also entries that another writer has recorded.

        Raises IllegalAppend if they are not the next ones.
        """
        self._require_writable()
        if not entries:
            return
        prepared, states = self._prepared
        is_prepared = len(prepared) == len(entries) and all(map(is_, prepared, entries))
        if not is_prepared or entries[0].serial != self.next_serial:
            states = self._checked(entries, self._derived)
        self._take(entries, states)

    def _keep(self, entries: tuple[HistoryEntry, ...], states: list[DerivedState]) -> None:
        """Hand the entries to the sink, and only then take them into memory."""
        if self._sink is not None:
            self._sink(entries)
            if entries[0].serial != self.next_serial:
                raise IllegalAppend("the sink itself appended to this state", rule="serial_follows")
        self._take(entries, states)

    def _take(self, entries: tuple[HistoryEntry, ...], states: list[DerivedState]) -> None:
        self._entries = self._entries.with_added(entries)
        self._states = self._states.with_added(states)
        self._derived = states[-1]
        self._prepared = ((), [])

    def _checked(self, entries: Iterable[HistoryEntry], state: DerivedState) -> list[DerivedState]:
        """Return the state after each entry; raise IllegalAppend if one of them is not legal there."""
        states = []
        for entry in entries:
            as_entry(entry)
            require_legal(state, entry)
            state = advance(state, entry)
            states.append(state)
        return states

    def _prepare_all(self, entries: Iterable[HistoryEntry]) -> _Steps:
        state, prepared, states = self._derived, [], []
        for entry in entries:
            stamped, state = self._prepare(state, entry)
            prepared.append(stamped)
            states.append(state)
        return tuple(prepared), states

    def _prepare(self, state: DerivedState, entry: _Entry) -> tuple[_Entry, DerivedState]:
        self._require_writable()
        as_entry(entry)
        if isinstance(entry, UnknownEntry):
            raise IllegalAppend(RULES["known_kind"], rule="known_kind")
        if entry.serial != -1 or entry.entry_id:
            raise IllegalAppend(f"{RULES['nothing_edited']}; this one has serial {entry.serial}", rule="nothing_edited")
        now, serial, run_id = self._now(), state.next_serial, entry.run_id
        changes: dict[str, Any] = {}
        if isinstance(entry, ModelInputEntry):
            changes["sections"] = self._with_screen(entry.sections, state, now)
        elif isinstance(entry, ModelOutputEntry):
            changes["message"] = with_new_call_ids(entry.message, state.call_ids)
            run_id = run_id or entry.message.run_id
        elif isinstance(entry, ToolResultsEntry) and entry.results:
            *others, last = entry.results
            shown = self._with_screen(last.result, state, now)
            if shown is not last.result:
                changes["results"] = (*others, replace(last, result=shown))
        stamped = replace(
            entry,
            serial=serial,
            entry_id=self._new_entry_id(serial),
            timestamp=now,
            run_id=run_id or state.current_run_id,
            **changes,
        )
        require_legal(state, stamped)
        return stamped, advance(state, stamped)

    def _new_entry_id(self, serial: int) -> str:
        """The id of the serial. With a writer only this append has it: a retry repeats it, another writer does not."""
        if not self._writer:
            return f"{self._session_id}:{serial}"
        self._stamped += 1
        return f"{self._session_id}:{serial}~{self._writer}{self._stamped:x}"

    def _require_writable(self) -> None:
        if self._read_only:
            raise IllegalAppend(RULES["past_is_read_only"], rule="past_is_read_only")

    def _now(self) -> datetime:
        now = utc_time(self._clock())
        if now is None:
            raise InvalidValue("the clock must return a time, got None")
        return now

    def _with_screen(
        self, sections: LevelOfDetailSections, state: DerivedState, now: datetime
    ) -> LevelOfDetailSections:
        """The sections with what the widgets show now, and nothing that they showed to another entry."""
        screen = self._widgets.render_live_screen(self._render_context(now, state))
        live, former = without_live_screen(sections.live)
        bare = sections if former is None else replace(sections, live=live)
        return bare if screen is None else bare.with_live_section(LIVE_SCREEN, screen)

    def _render_context(self, now: datetime, state: DerivedState | None = None) -> WidgetRenderContext:
        return WidgetRenderContext(state=state or self._derived, entries=self._entries, now=now)
