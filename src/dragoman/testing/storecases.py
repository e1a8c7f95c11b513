"""Entries to try a session store with, and what its checks share."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ..errors import ErrorCode
from ..history import (
    AgentState,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    RunStartedEntry,
    SystemInstructionEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
    entry_from_json,
)
from ..message import Image, Message, ToolCall
from ..store import Head, SessionStore

__all__ = ["BEGINNING", "LONG_TEXT", "PICTURE", "append_all", "closing", "raised", "sample_entries", "sample_other"]

BEGINNING = datetime(2026, 1, 2, tzinfo=UTC)
PICTURE = hashlib.shake_128(b"picture").digest(20_000)
LONG_TEXT = 'A "quoted" line \\ with an escape, 日本語 and 👩‍👩‍👧‍👦.\n' * 300


def sample_entries(session_id: str, count: int | None = None) -> tuple[HistoryEntry, ...]:
    """Return a legal session of several kinds of entries, with pictures, long texts and hostile ones.

    With a `count` it is that long: cut off, or with short inputs at the end.
    """
    seconds = iter(range(10**9))
    state = AgentState.create_default(
        "Be careful.", session_id=session_id, clock=lambda: BEGINNING + timedelta(seconds=next(seconds))
    )
    state.append(RunStartedEntry(run_id="run-1"))
    state.append_model_input(
        "What is this? \ud83d", Image("image/png", PICTURE), metadata={"channel": ["web", 1, None]}
    )
    calls = (ToolCall("call_0", "look", {"deep": [1.5, True, None]}), ToolCall("call_1", "read", {"path": "a/b"}))
    output = state.append_model_output(Message.assistant("One moment.", *calls))
    for call, text in zip(output.tool_calls, (LONG_TEXT, "short"), strict=True):
        state.append(ToolStartedEntry(call.tool_call_id, call.tool_name))
        found = HistoryToolCallResult.of_text(call, text)
        state.append(ToolFinishedEntry(replace(found, attachments=(Image("image/png", PICTURE),))))
    state.append_tool_results()
    state.update_memory_notebook("The picture\0is\u2028new.")
    state.append(InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "cut off", Message.assistant("It is a")))
    later = b'{"serial":%d,"id":"%s:%d","kind":"hologram","payload":{"size":3},"mood":"calm"}'
    state.commit(
        entry_from_json(later % (state.next_serial, session_id.encode(), state.next_serial)),
    )
    state.append_model_input("Go on.")
    while count is not None and state.next_serial < count:
        state.append_model_input(f"Line {state.next_serial}.")
    return tuple(state.entries[:count])


async def append_all(store: SessionStore, session_id: str, entries: Iterable[HistoryEntry]) -> Head:
    """Append the entries one by one and return the head."""
    head = Head()
    for entry in entries:
        head = await store.append(session_id, [entry], entry.serial)
    return head


def sample_other(session_id: str, serial: int, text: str = "something else") -> tuple[HistoryEntry, ...]:
    """Return one entry that is legal at any serial, unlike the one that `sample_entries` has there."""
    header = {"serial": serial, "entry_id": f"{session_id}:{serial}", "timestamp": BEGINNING}
    return (SystemInstructionEntry(f"{text} ({session_id})", **header),)  # type: ignore[arg-type]  # they fit


async def raised(error_class: type[Any], call: Awaitable[object]) -> Any:
    """Await the call and return the error that it raises; raise AssertionError if it raises none, or another."""
    try:
        result = await call
    except error_class as error:
        return error
    raise AssertionError(f"expected {error_class.__name__}, got {result!r}")


async def closing(iterator: AsyncIterator[object]) -> None:
    """Close an asynchronous generator."""
    await iterator.aclose()  # type: ignore[attr-defined]  # every follower is one
