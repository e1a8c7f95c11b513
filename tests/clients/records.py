"""What the gateway recorded: its sessions, each checked."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from dragoman import Message, Role, SQLiteStore
from dragoman.history import HistoryEntry
from dragoman.store import open_session

from .script import CALL_WORD, PLANTED


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `is_side`: of requests beside the conversation, such as one for its title."""

    session_id: str
    metadata: dict[str, Any]
    problem: str
    parent: str
    entries: tuple[HistoryEntry, ...]
    messages: tuple[Message, ...]

    @property
    def is_side(self) -> bool:
        """Whether its requests are beside a conversation."""
        return bool(self.metadata.get("side"))

    @property
    def roles(self) -> str:
        """The first letters of the roles: `uat` is a call and its result."""
        return "".join(message.role.value[0] for message in self.messages)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the entries."""
        return [entry.kind for entry in self.entries]

    @property
    def has_tool_loop(self) -> bool:
        """Whether it has the user's wish, the call, its result and the answer, in this order."""
        said = iter(self.messages)
        return (
            any(message.role is Role.USER and CALL_WORD in message.text for message in said)
            and any(message.tool_calls for message in said)
            and any(message.tool_results for message in said)
            and any(message.role is Role.ASSISTANT and PLANTED in message.text for message in said)
        )


def read_record(path: Path) -> list[Recorded]:
    """Return all sessions of a store, the oldest first."""

    async def read() -> list[Recorded]:
        async with SQLiteStore(path) as store:
            page = await store.list(limit=1000)
            return [await _read(store, info.session_id) for info in reversed(page.sessions)]

    return asyncio.run(read())


async def _read(store: SQLiteStore, session_id: str) -> Recorded:
    report = await store.verify(session_id)
    info = await store.info(session_id)
    session = await open_session(store, session_id)
    return Recorded(
        session_id=session_id,
        metadata=dict(info.metadata),
        problem=report.problem,
        parent=info.forked_from.session_id if info.forked_from else "",
        entries=tuple(session.entries),
        messages=tuple(session.messages),
    )
