"""What clients of the Responses API expect the server to remember, from the record: `previous_response_id`."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import StoreError
from ...history import ClientAnswerEntry, ContextualHistoryEntry, HistoryEntry, ResetEntry
from ...message import Message
from ...store import open_session
from .asked import PASSED
from .fronts import RESPONSES

if TYPE_CHECKING:
    from ...store import SessionStore
    from .asked import Asked

__all__ = ["conversation_of", "response_mark", "response_marks", "with_previous"]

_ID = re.compile(rb'"id"\s*:\s*"(resp[-_][A-Za-z0-9_-]{1,128})"')


def response_mark(response_id: str, key_name: str) -> str:
    """Return the word by which stores find a response. Each key sees its own alone."""
    return f"response:{key_name}:{response_id}"


def response_marks(asked: "Asked", body: bytes) -> tuple[str, ...]:
    """Return the marks of an answer that may be asked for later: none where the client said `store: false`."""
    if asked.api != RESPONSES or (asked.read is not None and asked.read.other_fields.get("store") is False):
        return ()
    found = _ID.search(body)
    return (response_mark(found[1].decode(), asked.key_name),) if found is not None else ()


async def with_previous(store: "SessionStore", asked: "Asked") -> "Asked":
    """Return the request with the conversation of the response that it continues, as far as the record has it."""
    if not asked.previous or asked.read is None:
        return asked
    try:
        found = await store.find_marks((response_mark(asked.previous, asked.key_name),))
        if not found:
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
