"""Stores and sessions by what a person types: a path or an address, the beginning of an id, `@` for the newest."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import DragomanError, ErrorCode, InvalidValue, StoreError
from .places import is_address, split_address

if TYPE_CHECKING:
    from ..store import PostgresStore, SessionInfo, SessionStore, SQLiteStore

__all__ = [
    "LATEST",
    "each_session",
    "find_forks",
    "find_latest",
    "find_named",
    "find_session",
    "is_part_of_id",
    "open_store",
    "short_ids",
    "with_store",
]

LATEST = "@"
# A person waits for another process; an agent may wait longer.
BUSY_SECONDS = 5.0
PAGE = 500
SHORTEST_ID = 8
# Part of an id that the library made up, as lists show it: of 32 hexadecimal digits, of a UUID,
# of a chat's id, or of the id that the key of a request makes.
_PART_OF_ID = re.compile(r"(?=.*\d)(?:…|chat-|key-)?[0-9a-f-]{4,}")

_Result = TypeVar("_Result")


def open_store(location: str, *, creates: bool = False) -> "SQLiteStore | PostgresStore":
    """Return the store at a path or an address; after a `#`, an address may name the schema.

    Unless it `creates`, a file that is not there is an error.
    """
    if is_address(location):
        from ..store import PostgresStore

        conninfo, schema = split_address(location)
        return PostgresStore(conninfo, schema=schema, lock_seconds=BUSY_SECONDS)
    from ..store import SQLiteStore

    path = Path(location)
    if not creates and not path.is_file():
        what = f"{location} is no file" if path.exists() else f"there is no store at {location} yet"
        raise DragomanError(
            f"{what}: `dragoman sessions import`, `dragoman runs submit` or a chat makes one", code=ErrorCode.NOT_FOUND
        )
    return SQLiteStore(path, busy_seconds=BUSY_SECONDS)


def with_store(location: str, use: "Callable[[SessionStore], Awaitable[_Result]]", *, creates: bool = False) -> _Result:
    """Return what `use` makes of the store, which is closed afterwards."""
    import asyncio

    async def run() -> _Result:
        async with open_store(location, creates=creates) as store:
            return await use(store)

    return asyncio.run(run())


async def each_session(store: "SessionStore", *, forks_of: str | None = None) -> "AsyncIterator[SessionInfo | str]":
    """Yield every session, the newest first; of one whose own record is damaged, the id alone."""
    page: str | None = None
    while True:
        found = await store.list(forks_of=forks_of, limit=PAGE, page=page)
        for info in found.sessions:
            yield info
        for damaged in found.damaged:
            yield damaged
        page = found.next_page
        if page is None:
            return


async def find_session(store: "SessionStore", typed: str) -> str:
    """Return the one session that is meant: its id, the beginning or the end of it if no other has that, or `@`.

    A damaged session is found too. Raises StoreError (`not_found`), or InvalidValue where several are meant.
    """
    if typed == LATEST:
        return (await find_latest(store)).session_id
    try:
        return (await store.info(typed)).session_id
    except InvalidValue as error:  # a damaged session may have an id that no other one may have
        if not typed:
            raise
        missing: DragomanError = error
    except StoreError as error:
        if error.code is ErrorCode.CORRUPT:
            return typed
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        missing = error
    known = sorted({each async for each in _ids(store)})
    end = typed.removeprefix("…")
    found, where = [each for each in known if each.startswith(typed)], "begin"
    if not found and end:
        found, where = [each for each in known if each.endswith(end)], "end"
    if len(found) > 1:
        listed = ", ".join(found[:5]) + (" and more" if len(found) > 5 else "")
        raise InvalidValue(f"several sessions {where} with {typed!r}: {listed}")
    if found:
        return found[0]
    if isinstance(missing, InvalidValue) or await store.tombstone(typed) is not None:
        raise missing
    raise StoreError(f"there is no session {typed!r}: `dragoman sessions list` shows them", code=ErrorCode.NOT_FOUND)


async def find_named(store: "SessionStore", typed: str) -> str:
    """Return the session whose whole id is given, for a command that the user cannot undo.

    Raises InvalidValue for a part of an id and for `@`: these may mean another session than the person thinks.
    """
    found = await find_session(store, typed)
    if found != typed:
        raise InvalidValue(f"this takes the whole id of a session, and {typed!r} is none: is {found!r} meant?")
    return found


def is_part_of_id(typed: str) -> bool:
    """Whether the text looks like part of an id that was made up. Any other text is a name that a person gave."""
    return _PART_OF_ID.fullmatch(typed) is not None


async def find_latest(store: "SessionStore") -> "SessionInfo":
    """Return the session that was appended to last."""
    newest: SessionInfo | None = None
    async for info in each_session(store):
        if not isinstance(info, str) and (newest is None or info.updated_at > newest.updated_at):
            newest = info
    if newest is None:
        raise StoreError("there is no session yet", code=ErrorCode.NOT_FOUND)
    return newest


async def find_forks(store: "SessionStore", session_id: str) -> list[str]:
    """Return the ids of all forks of this session, and of their forks."""
    found: list[str] = []
    waiting = [session_id]
    while waiting:
        async for info in each_session(store, forks_of=waiting.pop()):
            if not isinstance(info, str) and info.session_id not in found:
                found.append(info.session_id)
                waiting.append(info.session_id)
    return sorted(found)


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return each id in its shortest unique form: random ids cut, names whole."""
    listed = sorted(set(ids))
    shortened = {}
    for index, each in enumerate(listed):
        neighbours = [listed[other] for other in (index - 1, index + 1) if 0 <= other < len(listed)]
        length = max([SHORTEST_ID, *(_common(each, other) + 1 for other in neighbours)])
        is_random = len(each) == 32 and all(character in "0123456789abcdef" for character in each)
        shortened[each] = each[:length] if is_random else each
    return shortened


def _common(left: str, right: str) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


async def _ids(store: "SessionStore") -> AsyncIterator[str]:
    async for info in each_session(store):
        yield info if isinstance(info, str) else info.session_id
