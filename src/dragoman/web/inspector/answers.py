"""Answers that are made in a job and kept with the record: the same question is worked on once."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from .calls import Call, list_calls, summarise_calls
from .jobs import Check
from .records import Record
from .state import STATE, as_json

__all__ = ["answer_from_job", "calls_of"]


async def answer_from_job(
    request: web.Request, record: Record, name: str, work: Callable[[Check], Any], *, keeps: bool = True
) -> web.Response:
    """Answer with what `work` returns, as JSON. With `keeps` the answer holds until the session grows."""
    kept = record.answer_to(name) if keeps else None
    if kept is None:
        length = len(record.entries)
        key = (record.session_id, id(record), name, length)
        kept = await request.app[STATE].jobs.do(key, lambda check: as_json(work(check)), request)
        if keeps:
            record.keep_answer(name, length, kept)
    return web.Response(body=kept, content_type="application/json")


async def calls_of(request: web.Request, record: Record) -> tuple[list[Call], dict[str, Any]]:
    """Return the model calls of a record, and what they used together."""
    length, found = record.calls
    if length != len(record.entries):
        entries = record.entries[:]

        def work(check: Check) -> tuple[list[Call], dict[str, Any]]:
            calls = list_calls(entries, check)
            return calls, summarise_calls(calls)

        key = (record.session_id, id(record), "calls", len(entries))
        found = await request.app[STATE].jobs.do(key, work, request)
        record.calls = (len(entries), found)
    return found
