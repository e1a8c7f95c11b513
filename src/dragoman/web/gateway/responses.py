"""What clients of the Responses API expect the server to remember, from the record: responses by their ids."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..._jsontext import encode_json
from ...errors import DragomanError, ErrorCode, ModelError, StoreError
from ...history import ClientAnswerEntry, ClientRequestEntry, ContextualHistoryEntry, HistoryEntry, ResetEntry
from ...message import Message
from ...store import AppendConflict, SessionBusy, open_session
from ...stream import SseParser
from .asked import PASSED
from .fronts import RESPONSES
from .keys import OWNER
from .placing import with_open_ids
from .refusals import nothing_there

if TYPE_CHECKING:
    from ...store import Mark, SessionStore
    from .asked import Asked

__all__ = [
    "conversation_of",
    "delete_response",
    "entry_at",
    "find_response",
    "find_stream",
    "given_mark",
    "require_own_response",
    "response_mark",
    "response_marks",
    "unknown_response",
    "with_previous",
]

TRIES = 4  # of an append that another process was faster than
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ASKED_ID = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_ID = re.compile(rb'"id"\s*:\s*"(resp[-_][A-Za-z0-9_-]{1,128})"')


def response_mark(response_id: str, key_name: str) -> str:
    """Return the word by which stores find a response. Each key sees its own alone."""
    return f"response:{key_name}:{response_id}"


def given_mark(response_id: str) -> str:
    """Return the word by which stores find every response of this id, whichever key it was given to."""
    return f"given-response:{response_id}"


def response_marks(asked: "Asked", body: bytes, *, is_whole: bool) -> tuple[str, ...]:
    """Return the marks of an answer that its vendor may keep: none where the client said `store: false`.

    Only a whole one may be asked for later.
    """
    if asked.api != RESPONSES or (asked.read is not None and asked.read.other_fields.get("store") is False):
        return ()
    found = _ID.search(body)
    if found is None:
        return ()
    response_id = found[1].decode()
    return (*([response_mark(response_id, asked.key_name)] if is_whole else []), given_mark(response_id))


async def require_own_response(store: "SessionStore", response_id: str, key_name: str) -> None:
    """Raise ModelError, `not_found`, where the record has the response for another key, or as deleted.

    All keys share the account at the vendor: what one was given, another must not continue or read there. A response
    that the record does not know is the vendor's matter.
    """
    own = response_mark(response_id, key_name)
    found = await store.find_marks((given_mark(response_id), own))
    newest = next((mark for mark in reversed(found) if mark.word == own), found[-1] if found else None)
    if newest is None:
        return
    entry = await entry_at(store, newest)
    is_deleted = not isinstance(entry, ClientAnswerEntry)
    if isinstance(entry, ClientAnswerEntry):
        entry = await _load(store, newest.session_id, entry.request_serial)
    owner = entry.client if isinstance(entry, ClientRequestEntry) else ""
    if is_deleted or (key_name and owner != key_name and (owner or key_name != OWNER)):
        raise unknown_response(response_id)


def unknown_response(response_id: str) -> ModelError:
    """Return the error that tells a client that its response is not there."""
    return nothing_there(f"there is no response {response_id[:100]!r}")


async def with_previous(store: "SessionStore", asked: "Asked") -> "Asked":
    """Return the request with the conversation of the response that it continues, as far as the record has it.

    Raises ModelError, `not_found`, where that response is another key's, or deleted.
    """
    if not asked.previous:
        return asked
    try:
        await require_own_response(store, asked.previous, asked.key_name)
        found = await store.find_marks((response_mark(asked.previous, asked.key_name),))
        if not found or asked.read is None:
            return asked
        session = await open_session(store, found[-1].session_id)
    except StoreError:
        return asked
    answer = session.entries[found[-1].serial]
    if not isinstance(answer, ClientAnswerEntry):
        return asked  # it was deleted
    state = session.state_at(found[-1].serial)
    open_ids = [call.tool_call_id for call in state.derived.open_calls]
    messages = (*conversation_of(state.entries), *with_open_ids(asked.read.request.messages, open_ids))
    request = replace(asked.read.request, messages=messages, cache_anchors=())
    keeper = answer.model.partition(":")[0] if answer.metadata.get(PASSED) is True else ""
    return replace(asked, read=replace(asked.read, request=request), knows_previous=True, keeper=keeper)


def conversation_of(entries: Iterable[HistoryEntry]) -> list[Message]:
    """Return what was said since the last reset."""
    said: list[Message] = []
    for entry in entries:
        if isinstance(entry, ResetEntry):
            said.clear()
        elif isinstance(entry, ContextualHistoryEntry):
            said.extend(entry.messages())
    return said


async def entry_at(store: "SessionStore", mark: "Mark") -> HistoryEntry:
    """Return the entry that a mark is of."""
    return await _load(store, mark.session_id, mark.serial)


async def _load(store: "SessionStore", session_id: str, serial: int) -> HistoryEntry:
    (entry,) = await store.load(session_id, serial, until_serial=serial + 1)
    return entry


# ---------------------------------------------------------------- responses by their ids


class _LastEvent(msgspec.Struct):
    type: str
    response: msgspec.Raw = msgspec.Raw(b"")


async def find_response(store: "SessionStore", response_id: str, key_name: str) -> bytes | None:
    """Return a recorded response of this key as the API's JSON; None if there is none, or it was deleted."""
    found = await _find_answer(store, response_id, key_name)
    return None if found is None else _response_in(found[1].body)


async def find_stream(store: "SessionStore", response_id: str, key_name: str) -> bytes | None:
    """Return a recorded response of this key as the events that were sent; None if there is none, or it was deleted.

    Raises ModelError, `unsupported`, where it was not a stream.
    """
    found = await _find_answer(store, response_id, key_name)
    if found is None:
        return None
    if _is_whole_body(found[1].body):
        message = f"the response {response_id[:100]!r} was not a stream: ask for it without 'stream'"
        raise ModelError(message, code=ErrorCode.UNSUPPORTED)
    return found[1].body


async def delete_response(store: "SessionStore", response_id: str, key_name: str) -> bytes | None:
    """Let a response of this key be found no more; return what the API says then. The record keeps it.

    None if there is none.
    """
    found = await _find_answer(store, response_id, key_name)
    if found is None:
        return None
    fact = ClientRequestEntry(
        RESPONSES,
        f"/v1/responses/{response_id}",
        "",
        "",
        method="DELETE",
        client=key_name,
        marks=(response_mark(response_id, key_name), given_mark(response_id)),
    )
    await _append_fact(store, found[0], fact)
    return encode_json({"id": response_id, "object": "response", "deleted": True})


async def _find_answer(store: "SessionStore", response_id: str, key_name: str) -> tuple[str, ClientAnswerEntry] | None:
    if _ASKED_ID.fullmatch(response_id) is None:
        return None
    marks = await store.find_marks((response_mark(response_id, key_name),))
    entry = await entry_at(store, marks[-1]) if marks else None
    return (marks[-1].session_id, entry) if isinstance(entry, ClientAnswerEntry) else None


async def _append_fact(store: "SessionStore", session_id: str, fact: HistoryEntry) -> None:
    """Append a fact to a session; to one of its own where a run has that session."""
    for _ in range(TRIES):
        session = await open_session(store, session_id, widgets=())
        try:
            await session.append(fact)
        except AppendConflict:
            continue
        except SessionBusy:
            break
        return
    info = await store.create(metadata={"gateway": {"api": RESPONSES}, "side": True})
    await (await open_session(store, info.session_id, widgets=())).append(fact)


def _response_in(body: bytes) -> bytes | None:
    """The response in an answer: all of it, or what the last event of a stream has."""
    if _is_whole_body(body):
        return body
    parser = SseParser()
    try:
        events = [*parser.feed(body), *parser.end()]
    except DragomanError:
        return None
    for event in reversed(events):
        try:
            last = msgspec.json.decode(event[1], type=_LastEvent)
        except (msgspec.DecodeError, RecursionError):
            continue
        if last.type in _LAST_EVENTS and last.response:
            return bytes(last.response)
    return None


def _is_whole_body(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"
