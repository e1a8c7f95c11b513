"""`dragoman sessions export` and `import`: sessions out of a store and into it, in our own format and in others'."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DragomanError, ErrorCode, InvalidValue, StoreError, UnreadableData
from .arguments import SESSION_HELP, Tasks, add_task
from .config import configured
from .output import Output, json_text, warn

if TYPE_CHECKING:
    from ..history import HistoryEntry
    from ..store import SessionStore
    from .conversations import Conversation

__all__ = ["add_export", "add_import"]

EXPORTS = ("jsonl", "openai", "openai-responses", "anthropic", "vercel", "langchain", "pydantic-ai", "markdown", "html")
_NAMED = 5  # paths that a warning has room for
_EXPORTERS = {"openai": "openai_chat", "vercel": "vercel_ui"}
# The names of `conversations.FORMATS`, which is loaded only when something is read.
IMPORTS = (
    *("dragoman", "messages", "openai", "openai-responses", "anthropic", "vercel", "langchain", "pydantic-ai"),
    *("claude-code", "codex", "pi", "llm", "openai-agents", "agent-log"),
)


def add_export(tasks: Tasks) -> argparse.ArgumentParser:
    """Return the parser of `export`."""
    parser = add_task(tasks, "export", "write a session to a file or to standard output", export_session)
    parser.add_argument("session", help=SESSION_HELP)
    parser.add_argument("--format", choices=EXPORTS, default="jsonl", help="how (%(default)s)")
    parser.add_argument(
        "--html", action="store_const", const="html", dest="format", help="one page that needs nothing else, to read"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; it must not be there yet")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    return parser


def add_import(tasks: Tasks) -> argparse.ArgumentParser:
    """Return the parser of `import`."""
    parser = add_task(tasks, "import", "make sessions of the conversations in a file or a folder", import_session)
    parser.add_argument("file", help="a file, packed by gzip if it ends in .gz; a folder of them; - for standard input")
    parser.add_argument("--format", choices=IMPORTS, help="its format (found out)")
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
    if chosen.format == "html":
        entries, error = await _load_sound(store, session_id)
    else:
        entries, error = await store.load(session_id), None
    _write(written(chosen.format, session_id, entries, problem="" if error is None else str(error)), chosen)
    if error is not None:
        raise StoreError(f"{error}; the {len(entries):,} entries before it were written", code=error.code)


async def _load_sound(store: "SessionStore", session_id: str) -> "tuple[Sequence[HistoryEntry], StoreError | None]":
    """Return the entries before a break of the record, and the break if there is one."""
    from ..web.inspector.records import Records

    record = await Records(store).read(session_id)
    return record.entries, record.error


def _write(pieces: Iterator[str], chosen: argparse.Namespace) -> None:
    if chosen.output is None:
        output = Output()
        for piece in pieces:
            if chosen.format in ("markdown", "html"):
                output.write(piece)
            else:
                output.json_piece(piece, is_exact=True)
        output.end()
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


def written(form: str, session_id: str, entries: "Sequence[HistoryEntry]", *, problem: str = "") -> Iterator[str]:
    """Yield a session in a format, piece by piece. A page says the `problem` of a broken record."""
    if form == "jsonl":
        from ..interop import write_jsonl

        for line in write_jsonl(entries):
            yield line.decode()
        return
    if form == "html":
        from ..web.inspector import session_html

        yield from session_html(session_id, entries, problem=problem)
        return
    if form == "markdown":
        from .entrytext import markdown_of

        yield from markdown_of(session_id, entries)
        return
    from .. import interop
    from ..history import AgentState, LevelOfDetail, live_screen_of, to_messages

    state = AgentState.from_entries(entries, session_id=session_id, widgets=())
    context = state.render_live_context(lambda _age: LevelOfDetail.LIVE)
    messages = to_messages(context)
    if context and live_screen_of(context[-1]) is not None:
        messages = messages[:-1]  # what the widgets showed is no part of the conversation
    export = getattr(interop, f"export_{_EXPORTERS.get(form) or form.replace('-', '_')}")
    yield json_text(export(messages), indent=2) + "\n"


def import_session(chosen: argparse.Namespace) -> int:
    """Read a file, or the files of a folder, into new sessions and print their ids; return the exit status.

    Of a file that cannot be read nothing is kept. In a folder such a file is named, and the others are imported.
    """
    if Path(chosen.file).is_dir():
        return _import_folder(chosen)
    from ..store.refusals import require_new_session_id
    from .conversations import read_path
    from .stores import with_store

    settings = configured(chosen)
    conversations = read_path(chosen.file, chosen.format, made_by=chosen.made_by, session_id=chosen.new_id)
    if chosen.new_id is not None:
        require_new_session_id(chosen.new_id, "--id")
    if chosen.new_id is not None and len(conversations) != 1:
        raise InvalidValue(f"--id belongs to one session, and there are {len(conversations)} in the file")
    _require_ids(conversations, chosen.file)

    async def keep(store: "SessionStore") -> None:
        for each in conversations:
            if await _is_there(store, each.session_id):
                known = f"there is a session {each.session_id!r} already: give this one another with --id"
                raise StoreError(known, code=ErrorCode.CONFLICT)
        for each in conversations:
            await _keep(store, each, chosen)

    with_store(settings.store, keep, creates=True)
    output = Output()
    for conversation in conversations:
        output.line(conversation.session_id)
        for warning in conversation.warnings:
            warn(warning)
    return 0


def _import_folder(chosen: argparse.Namespace) -> int:
    from .stores import with_store

    if chosen.new_id is not None:
        raise InvalidValue("--id belongs to one session, and this is a folder: import one file")
    settings = configured(chosen)
    conversations, failures, file_count = _read_folder(chosen)

    async def keep(store: "SessionStore") -> "list[Conversation]":
        kept: list[Conversation] = []
        for path, each in conversations:
            if await _is_there(store, each.session_id):
                warn(f"{each.session_id} is there already: it is left as it is")
                continue
            try:
                await _keep(store, each, chosen)
            except StoreError as error:  # the session was erased: its id stays taken
                if error.code is not ErrorCode.CONFLICT:
                    raise
                failures[path] = str(error)
            else:
                kept.append(each)
        return kept

    output = Output()
    for conversation in with_store(settings.store, keep, creates=True) if conversations else ():
        output.line(conversation.session_id)
        if conversation.warnings:
            count = len(conversation.warnings)
            warn(f"{conversation.session_id}: {count} warnings; an import of its file alone prints them")
    for path, words in failures.items():
        warn(words if str(path) in words else f"{path}: {words}")
    if failures:
        warn(f"{len(failures)} of {file_count} files were not imported")
    return 1 if failures else 0


def _read_folder(chosen: argparse.Namespace) -> "tuple[list[tuple[Path, Conversation]], dict[Path, str], int]":
    """Return the conversations of the session files under a folder, why others cannot be read, and how many there are.

    Files without a conversation are counted in a warning.
    """
    from ..interop.transcripts import NoConversation
    from .conversations import find_files, read_path

    files, unread = find_files(Path(chosen.file))
    if not files:
        raise UnreadableData(f"{chosen.file} holds no session files (*.jsonl, *.jsonl.gz, *.db)")
    found: dict[str, tuple[Path, Conversation]] = {}
    failures: dict[Path, str] = {}
    empty: list[Path] = []
    for path in files:
        try:
            read = read_path(str(path), chosen.format, made_by=chosen.made_by)
            _require_ids(read, path)
        except NoConversation:
            empty.append(path)
        except DragomanError as error:
            failures[path] = str(error)
        except OSError as error:
            failures[path] = error.strerror or type(error).__name__
        else:
            taken = next((each.session_id for each in read if each.session_id in found), None)
            if taken is not None:
                failures[path] = f"has the same id as {found[taken][0]}: {taken}"
            else:
                found.update((each.session_id, (path, each)) for each in read)
    for warning in unread:
        warn(warning)
    if empty:
        named = ", ".join(map(str, empty[:_NAMED])) + (" and more" if len(empty) > _NAMED else "")
        warn(f"{len(empty)} of {len(files)} files hold no conversation: {named}")
    return list(found.values()), failures, len(files)


def _require_ids(conversations: "Sequence[Conversation]", path: str | Path) -> None:
    """Raise UnreadableData unless a store takes the ids of a file's sessions, each once: else part of it would stay."""
    from ..store.refusals import require_new_session_id

    seen: set[str] = set()
    for each in conversations:
        try:
            require_new_session_id(each.session_id)
        except InvalidValue as error:
            raise UnreadableData(f"{path}: {error}") from None
        if each.session_id in seen:
            raise UnreadableData(f"{path}: two sessions have the id {each.session_id!r}")
        seen.add(each.session_id)


async def _is_there(store: "SessionStore", session_id: str) -> bool:
    try:
        await store.info(session_id)
    except StoreError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return False
        raise
    return True


async def _keep(store: "SessionStore", conversation: "Conversation", chosen: argparse.Namespace) -> None:
    metadata = {"imported_from": conversation.format}
    if chosen.title:
        metadata["title"] = chosen.title
    await store.create(conversation.session_id, metadata=metadata)
    if conversation.entries:
        await store.append(conversation.session_id, conversation.entries, 0)
