"""What clients of the Responses API expect the server to remember, from the record: `previous_response_id`."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import ErrorCode, ModelError, StoreError
from ...history import ClientAnswerEntry, ClientRequestEntry, ContextualHistoryEntry, HistoryEntry, ResetEntry
from ...message import Message
from ...store import open_session
from .asked import PASSED
from .fronts import RESPONSES
from .keys import OWNER

if TYPE_CHECKING:
    from ...store import SessionStore
    from .asked import Asked

__all__ = [
    "conversation_of",
    "given_mark",
    "require_own_response",
    "response_mark",
    "response_marks",
    "unknown_response",
    "with_previous",
]

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
    (entry,) = await store.load(newest.session_id, newest.serial, until_serial=newest.serial + 1)
    is_deleted = not isinstance(entry, ClientAnswerEntry)
    if isinstance(entry, ClientAnswerEntry):
        serial = entry.request_serial
        (entry,) = await store.load(newest.session_id, serial, until_serial=serial + 1)
    owner = entry.client if isinstance(entry, ClientRequestEntry) else ""
    if is_deleted or (key_name and owner != key_name and (owner or key_name != OWNER)):
        raise unknown_response(response_id)


def unknown_response(response_id: str) -> ModelError:
    """Return the error that tells a client that its response is not there."""
    return ModelError(f"there is no response {response_id[:100]!r}", code=ErrorCode.NOT_FOUND)


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
    said = conversation_of(session.state_at(found[-1].serial).entries)
    request = replace(asked.read.request, messages=(*said, *asked.read.request.messages), cache_anchors=())
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
