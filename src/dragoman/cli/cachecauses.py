"""`dragoman sessions cache`: what the provider's cache could hold of each model call of a session, why it missed."""

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError, ErrorCode
from .arguments import SESSION_HELP, Tasks, add_task
from .config import configured
from .output import Output, one_line, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history import HistoryEntry
    from ..review import CacheCall
    from ..store import SessionStore

__all__ = ["add_cache"]


def add_cache(tasks: Tasks) -> argparse.ArgumentParser:
    """Add the command to the group `sessions`."""
    words = "say for every model call what the provider's cache could hold, and why it missed"
    parser = add_task(tasks, "cache", words, show_cache)
    parser.add_argument("session", help=SESSION_HELP)
    return parser


def show_cache(chosen: argparse.Namespace) -> None:
    """Print the calls of a session, and the causes of those that missed the cache."""
    from ..review import review_cache
    from .stores import find_session, with_store

    settings = configured(chosen)

    async def review(store: "SessionStore") -> "tuple[str, tuple[CacheCall, ...]]":
        session_id = await find_session(store, chosen.session)
        info, entries = await store.info(session_id), await store.load(session_id)
        forked_at = -1
        parent: Sequence[HistoryEntry] = ()
        if info.forked_from is not None:
            forked_at, parent = info.forked_from.serial, await _load_if_there(store, info.forked_from.session_id)
        calls = review_cache(entries, session_id=session_id, forked_at=forked_at, parent_entries=parent)
        return session_id, calls

    session_id, calls = with_store(settings.store, review)
    output = Output(color=settings.color)
    if chosen.json:
        output.json({"session": session_id, "calls": [_plain(call) for call in calls]})
    elif not calls:
        output.line(f"session {session_id} has no model calls")
    else:
        _write_calls(output, session_id, calls)


async def _load_if_there(store: "SessionStore", session_id: str) -> "Sequence[HistoryEntry]":
    """The entries of the session that another was forked from; none if it cannot be read."""
    try:
        return await store.load(session_id)
    except DragomanError as error:
        if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.CORRUPT):
            raise
        return ()


def _plain(call: "CacheCall") -> dict[str, Any]:
    import msgspec

    written: dict[str, Any] = msgspec.to_builtins(call)
    return {**written, "isMiss": call.is_miss}


def _write_calls(output: Output, session_id: str, calls: "Sequence[CacheCall]") -> None:
    misses = [call for call in calls if call.is_miss]
    output.write(f"session {session_id}", "bold")
    output.line(f"  {_counted(len(calls), 'model call')}, {_counted(len(misses), 'cache miss')}", "dim")
    output.line()
    if output.is_narrow:
        rows = [(f"#{call.serial}", _number(call.reported_tokens), str(call.cause)) for call in calls]
        write_table(output, ("CALL", "REPORTED", "CAUSE"), rows, right=frozenset({1}))
    else:
        write_table(output, _HEAD, [_row(call) for call in calls], right=frozenset({2, 3, 4, 5}))
    for call in calls:
        if call.is_miss or call.cause == "unknown":
            output.line()
            output.write(f"#{call.serial} ", "bold")
            output.line(one_line(call.sentence))


_HEAD = ("CALL", "MODEL", "BYTES", "SHARED", "EXPECTED", "REPORTED", "CAUSE")


def _row(call: "CacheCall") -> tuple[str, ...]:
    return (
        f"#{call.serial}",
        call.model,
        _number(call.request_bytes),
        _number(call.shared_bytes),
        _number(call.expected_tokens),
        _number(call.reported_tokens),
        str(call.cause),
    )


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}es" if what.endswith("s") else f"{number} {what}s"
