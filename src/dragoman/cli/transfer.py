"""`dragoman sessions export` and `import`: sessions out of a store and into it, in our own format and in others'."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DragomanError, ErrorCode, InvalidValue, StoreError
from .arguments import SESSION_HELP, Tasks, add_task
from .config import configured
from .output import Output, json_text, warn

if TYPE_CHECKING:
    from ..history import HistoryEntry
    from ..store import SessionStore
    from .conversations import Conversation

__all__ = ["add_export", "add_import"]

EXPORTS = ("jsonl", "openai", "anthropic", "markdown")
# The names of `conversations.FORMATS`, which is loaded only when something is read.
IMPORTS = ("dragoman", "messages", "openai", "openai-responses", "anthropic", "vercel", "langchain", "pydantic-ai")


def add_export(tasks: Tasks) -> argparse.ArgumentParser:
    """Return the parser of `export`."""
    parser = add_task(tasks, "export", "write a session to a file or to standard output", export_session)
    parser.add_argument("session", help=SESSION_HELP)
    parser.add_argument("--format", choices=EXPORTS, default="jsonl", help="how (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; it must not be there yet")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    return parser


def add_import(tasks: Tasks) -> argparse.ArgumentParser:
    """Return the parser of `import`."""
    parser = add_task(tasks, "import", "make a session of a conversation in a file", import_session)
    parser.add_argument("file", help="a file, packed by gzip if it ends in .gz; - for standard input")
    parser.add_argument("--format", choices=(*IMPORTS, "agent-log"), help="its format (found out)")
    parser.add_argument("--id", dest="new_id", help="the session's id (the one it had, or a random one)")
    parser.add_argument("--title", help="what `sessions list` shows of it (its first words)")
    parser.add_argument(
        "--made-by", metavar="PROVIDER:NAME", help="the model that gave the answers, so that its signatures go back"
    )
    return parser


def export_session(chosen: argparse.Namespace) -> None:
    """Write a session down in one of the formats."""
    from .stores import find_session, with_store

    settings = configured(chosen)

    async def export(store: "SessionStore") -> None:
        session_id = await find_session(store, chosen.session)
        await _export(store, session_id, chosen)

    with_store(settings.store, export)


async def _export(store: "SessionStore", session_id: str, chosen: argparse.Namespace) -> None:
    entries = await store.load(session_id)
    pieces = written(chosen.format, session_id, entries)
    if chosen.output is None:
        output = Output()
        for piece in pieces:
            if chosen.format == "markdown":
                output.write(piece)
            else:
                output.json_piece(piece, is_exact=True)
        return
    mode = os.O_TRUNC if chosen.force else os.O_EXCL
    try:
        # What people and models said is private: for the owner alone.
        descriptor = os.open(chosen.output, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    except FileExistsError:
        raise DragomanError(
            f"{chosen.output} is there already: --force overwrites it", code=ErrorCode.CONFLICT
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(pieces)


def written(form: str, session_id: str, entries: "tuple[HistoryEntry, ...]") -> Iterator[str]:
    """Yield a session in a format, piece by piece."""
    if form == "jsonl":
        from ..interop import write_jsonl

        for line in write_jsonl(entries):
            yield line.decode()
        return
    if form == "markdown":
        from .entrytext import markdown_of

        yield from markdown_of(session_id, entries)
        return
    from ..history import AgentState, LevelOfDetail, live_screen_of, to_messages
    from ..interop import export_anthropic, export_openai_chat

    state = AgentState.from_entries(entries, session_id=session_id, widgets=())
    context = state.render_live_context(lambda _age: LevelOfDetail.LIVE)
    messages = to_messages(context)
    if context and live_screen_of(context[-1]) is not None:
        messages = messages[:-1]  # what the widgets showed is no part of the conversation
    exported = export_openai_chat(messages) if form == "openai" else export_anthropic(messages)
    yield json_text(exported, indent=2) + "\n"


def import_session(chosen: argparse.Namespace) -> None:
    """Read a file into new sessions and print their ids."""
    from .conversations import read_conversations, read_source
    from .stores import with_store

    settings = configured(chosen)
    conversations = read_conversations(
        read_source(chosen.file), chosen.format, made_by=chosen.made_by, session_id=chosen.new_id
    )
    if chosen.new_id is not None and len(conversations) != 1:
        raise InvalidValue(f"--id belongs to one session, and there are {len(conversations)} in the file")

    async def keep(store: "SessionStore") -> list[str]:
        return [await _keep(store, conversation, chosen) for conversation in conversations]

    ids = with_store(settings.store, keep, creates=True)
    output = Output()
    for session_id, conversation in zip(ids, conversations, strict=True):
        output.line(session_id)
        for warning in conversation.warnings:
            warn(warning)


async def _keep(store: "SessionStore", conversation: "Conversation", chosen: argparse.Namespace) -> str:
    metadata = {"imported_from": conversation.format}
    if chosen.title:
        metadata["title"] = chosen.title
    try:
        await store.create(conversation.session_id, metadata=metadata)
    except StoreError as error:
        if error.code is ErrorCode.CONFLICT:
            raise StoreError(f"{error}: give this one another with --id", code=error.code) from None
        raise
    if conversation.entries:
        await store.append(conversation.session_id, conversation.entries, 0)
    return conversation.session_id
