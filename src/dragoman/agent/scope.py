"""What the parts of a run share: the session that it writes to, its ids, who is told."""

from collections.abc import Callable
from typing import Any

from ..history import DerivedState, HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolFinishedEntry
from ..store import Session
from .events import EventLog, MessageEvent, RunEvent, ToolResultEvent
from .hooks import HookChain

__all__ = ["Scope"]


class Scope:
    """One run as its parts see it."""

    def __init__(self, session: Session, run_id: str, *, hooks: HookChain, log: EventLog | None) -> None:
        self.session = session
        self.run_id = run_id
        self.call_index = 0
        self.hooks = hooks
        self.log = log
        self.take_news: Callable[[], None] = lambda: None  # does what others have asked for in the record

    @property
    def state(self) -> DerivedState:
        """What follows from the entries now."""
        return self.session.state.derived

    async def append(self, *entries: HistoryEntry, expected_serial: int | None = None) -> tuple[HistoryEntry, ...]:
        """Record entries, all or none, and tell of the messages and results among them."""
        recorded = await self.session.append(*entries, expected_serial=expected_serial)
        self.take_news()
        if self.log is not None:
            for entry in recorded:
                if isinstance(entry, (ModelInputEntry, ModelOutputEntry)):
                    for message in entry.messages():
                        self.tell(MessageEvent, message)
                elif isinstance(entry, ToolFinishedEntry):
                    self.tell(ToolResultEvent, entry.result)
        return recorded

    async def settle(self) -> None:
        """Wait for an append whose caller was cancelled, so that `state` is what is recorded."""
        await self.session.append()

    def tell(self, event: Callable[..., RunEvent], *fields: Any) -> None:
        """Add an event, if the run keeps events."""
        if self.log is not None:
            self.log.add(event, self.run_id, self.call_index, *fields)
