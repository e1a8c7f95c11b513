"""`dragoman inspect`: the record in a browser, served on loopback until it is told to stop."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue
from .arguments import SESSION_HELP, add_common, add_model, natural
from .config import configured
from .output import Output, warn
from .places import is_address, shown_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from ..agent import Agent
    from ..store import Session, SessionStore
    from .conversations import Conversation
    from .settings import Settings

__all__ = ["add_arguments"]

LOOPBACK = "127.0.0.1"
RUNS_AT_ONCE = 32  # for which files are kept free, each run with its model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, inspect)
    parser.add_argument("session", nargs="?", help=SESSION_HELP)
    parser.add_argument(
        "--store",
        metavar="PLACE",
        help="a SQLite file or postgresql://…; a file or folder of another program's sessions is opened read-only",
    )
    parser.add_argument("--port", type=natural, default=0, help="the port on loopback; 0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--read-only", action="store_true", help="nothing can be said, decided, forked or erased")
    add_model(parser)


def inspect(chosen: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    import asyncio
    import gc

    if chosen.port > 65_535:
        raise InvalidValue("--port must be from 0 to 65535")
    gc.set_threshold(100_000, 50, 100)  # records are millions of objects without cycles: look for garbage less often
    asyncio.run(_serve(chosen, configured(chosen)))
    gc.freeze()  # the process ends: it need not look for garbage among the records
    return 0


async def _serve(chosen: argparse.Namespace, settings: "Settings") -> None:
    import secrets
    from contextlib import AsyncExitStack
    from functools import partial

    from ..web.inspector.safety import refuse_unread
    from ..web.serving import limits_for, serve_until_stopped
    from .stores import find_session

    async with AsyncExitStack() as stack:
        store, is_foreign = await _open(settings.store, stack)
        session = None if chosen.session is None else await find_session(store, chosen.session)
        token = secrets.token_urlsafe(24)
        read_only = chosen.read_only or is_foreign
        application = open_inspector(settings, store, token, read_only=read_only)
        await serve_until_stopped(
            application,
            host=LOOPBACK,
            port=chosen.port,
            ready=partial(_tell, session=session, token=token, opens_browser=not chosen.no_browser),
            stop=application.shutdown,  # jobs end first: no request waits for them
            refuse=refuse_unread,
            limits=limits_for(RUNS_AT_ONCE),
        )


def _tell(server: str, *, session: str | None, token: str, opens_browser: bool) -> None:
    """Print the address of the page, and open it in a browser."""
    address = _address(server, session, token)
    Output().line(f"dragoman inspects {address}")
    sys.stdout.flush()
    if opens_browser:
        _open_browser(address)


def open_inspector(
    settings: "Settings",
    store: "SessionStore",
    token: str,
    *,
    path: str = "",
    hosts: "Iterable[str]" = (),
    read_only: bool = False,
) -> "web.Application":
    """Return the inspector of a store, with the models of the settings."""
    from ..web.inspector import inspector
    from .modelchoice import unsent_model

    return inspector(
        store,
        token=token,
        path=path,
        hosts=hosts,
        read_only=read_only,
        open_model=lambda name: unsent_model(settings, name),
        make_agent=None if read_only else _agent_maker(settings),
        place=shown_place(settings.store),
    )


def _address(server: str, session: str | None, token: str) -> str:
    from urllib.parse import quote

    if session is not None and session.lstrip("~") in (".", ".."):
        session = f"~{session}"  # a browser takes dots for steps
    place = "" if session is None else f"s/{quote(session, safe='')}"
    return f"{server}/{place}?token={token}"


def _open_browser(address: str) -> None:
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        warn("no browser could be opened: open the address above")


async def _open(location: str, stack: Any) -> "tuple[SessionStore, bool]":
    """Return the store at a place, and whether it holds sessions of another program, which are read into memory."""
    from ..store import MemoryStore
    from .stores import open_store

    if not _is_foreign(location):
        return await stack.enter_async_context(open_store(location)), False
    store = MemoryStore()
    for conversation in _read_foreign(Path(location)):
        await store.create(conversation.session_id, metadata={"imported_from": conversation.format})
        if conversation.entries:
            await store.append(conversation.session_id, conversation.entries, 0)
    return store, True


def _is_foreign(location: str) -> bool:
    """Whether a place is a folder or a file of another program."""
    path = Path(location)
    return not is_address(location) and (path.is_dir() or (path.is_file() and not _is_store(path)))


def _is_store(path: Path) -> bool:
    """Whether a file is a store of ours: a SQLite file with its tables."""
    import sqlite3

    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return False
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return True  # the store says what is wrong with it
    finally:
        connection.close()
    return {"sessions", "entries"} <= tables


def _read_foreign(path: Path) -> "list[Conversation]":
    """Return the sessions of a file, or of the files in a folder, in any known format."""
    from ..errors import DragomanError
    from ..interop.transcripts import NoConversation
    from .conversations import find_files, read_path

    files, unread = find_files(path) if path.is_dir() else ([path], [])
    for warning in unread:
        warn(warning)
    found: dict[str, Conversation] = {}
    for each in files:
        try:
            for conversation in read_path(str(each)):
                if found.setdefault(conversation.session_id, conversation) is not conversation:
                    warn(f"{each}: there is a session {conversation.session_id!r} already")
        except NoConversation:
            continue
        except (DragomanError, OSError) as error:
            if path.is_file():
                raise
            warn(f"{each}: {error}")
    if not found:
        raise InvalidValue(f"{path} holds no session that can be read")
    return list(found.values())


def _agent_maker(settings: "Settings") -> Any:
    """What carries a session on with the chosen model, else with its own, else with that of the settings."""
    from ..agent import Agent
    from .modelchoice import open_model, own_model

    def make(session: "Session", name: str | None) -> "Agent[Any, Any]":
        chosen = name or own_model(session.entries) or settings.model
        if not chosen:
            raise InvalidValue("choose a model, or set one in the settings")
        return Agent(open_model(settings, chosen), session=session)

    return make
