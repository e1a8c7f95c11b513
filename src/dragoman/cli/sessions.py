"""`dragoman sessions`: what is in a store, and what can be done with it."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError, ErrorCode, InvalidValue
from .arguments import (
    LARGEST_SERIAL,
    SESSION_HELP,
    add_store,
    add_task,
    add_tasks,
    natural,
    read_digits,
    serial_number,
    whole,
)
from .cachecauses import add_cache
from .config import configured
from .migrating import add_migrate
from .output import Output, confirm, unbroken, write_table
from .places import is_address
from .transfer import add_export, add_import

if TYPE_CHECKING:
    from ..store import Head, SessionInfo, SessionStore, VerifyReport

__all__ = ["add_arguments"]

LEVELS = ("live", "summary", "gist")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    tasks = add_tasks(parser)
    listing = add_task(tasks, "list", "list the sessions of a store, the newest first", list_sessions)
    listing.add_argument("--limit", type=natural, default=50, help="how many at most, 0 for all (%(default)s)")
    listing.add_argument("--forks-of", metavar="SESSION", help="only the forks of one")
    showing = add_task(tasks, "show", "print the entries of a session", show_session)
    showing.add_argument("session", help=SESSION_HELP)
    showing.add_argument("--from", dest="first", type=serial_number, default=0, metavar="SERIAL", help="begin here")
    showing.add_argument("--last", type=natural, metavar="COUNT", help="only so many, from the end")
    showing.add_argument("--level", choices=LEVELS, default="live", help="the level of detail (%(default)s)")
    forking = add_task(tasks, "fork", "begin a new session that shares the entries up to a serial", fork_session)
    forking.add_argument("session", help=SESSION_HELP)
    forking.add_argument(
        "--at", type=whole(-1, LARGEST_SERIAL), metavar="SERIAL", help="the last entry to share (all), -1 for none"
    )
    forking.add_argument("--id", dest="new_id", help="the new session's id (a random one)")
    verifying = add_task(tasks, "verify", "check every byte of sessions against their checksums", verify_sessions)
    verifying.add_argument("session", nargs="*", help=f"{SESSION_HELP}; without any, all are checked")
    verifying.add_argument("--head", metavar="SERIAL:CHECKSUM", help="a head that was kept elsewhere must be in it")
    erasing = add_task(tasks, "erase", "remove a session for good", erase_session)
    erasing.add_argument("session", help=f"{SESSION_HELP}; with --yes a whole id, or @")
    erasing.add_argument("--yes", action="store_true", help="do not ask")
    erasing.add_argument("--forks", action="store_true", help="erase the sessions that were forked from it, too")
    erasing.add_argument("--force", action="store_true", help="also if a process runs it now")
    caching = add_cache(tasks)
    storing = [listing, showing, forking, verifying, add_export(tasks), add_import(tasks), caching, erasing]
    for each in storing:
        add_store(each)
    for each in (listing, showing, verifying, caching):
        each.add_argument("--json", action="store_true", help="as JSON")
    add_migrate(tasks)


# ---------------------------------------------------------------- looking


def list_sessions(chosen: argparse.Namespace) -> None:
    """Print the sessions of a store."""
    from pathlib import Path

    from .stores import with_store

    settings = configured(chosen)
    output = Output(color=settings.color)
    if not is_address(settings.store) and not Path(settings.store).exists():
        if chosen.json:
            output.json([])
        else:
            output.line(f"no sessions yet: there is no store at {settings.store}")
        return

    async def gather(store: "SessionStore") -> list[dict[str, Any]]:
        from .stores import each_session, find_session

        parent = None if chosen.forks_of is None else await find_session(store, chosen.forks_of)
        gathered: list[dict[str, Any]] = []
        async for info in each_session(store, forks_of=parent):
            listed = {"id": info, "damaged": True} if isinstance(info, str) else await _listed(store, info)
            if listed is not None:
                gathered.append(listed)
            if chosen.limit and len(gathered) == chosen.limit:
                break
        return gathered

    found = with_store(settings.store, gather)
    if chosen.json:
        output.json(found)
    else:
        _write_list(output, found)


async def _listed(store: "SessionStore", info: "SessionInfo") -> dict[str, Any] | None:
    """What a list says of a session; None if it was erased meanwhile."""
    from ..history import Metadata
    from .entrytext import title_of

    title = info.metadata.get("title")
    if not isinstance(title, str) or not title:
        try:
            title = title_of(await store.load(info.session_id, until_serial=8))
        except DragomanError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            title = f"({error.code})"
    listed: dict[str, Any] = {
        "id": info.session_id,
        "title": title,
        "entries": info.head.next_serial,
        "createdAt": info.created_at.isoformat(),
        "updatedAt": info.updated_at.isoformat(),
        "head": {"serial": info.head.serial, "checksum": info.head.checksum},
        "metadata": Metadata.of(info.metadata).to_plain(),
    }
    if info.forked_from is not None:
        listed["forkedFrom"] = {"id": info.forked_from.session_id, "serial": info.forked_from.serial}
    return listed


def _write_list(output: Output, found: list[dict[str, Any]]) -> None:
    from datetime import datetime

    from .entrytext import local_time
    from .stores import short_ids

    if not found:
        output.line("no sessions")
        return
    short = short_ids(each["id"] for each in found)
    rows = []
    for each in found:
        if each.get("damaged"):
            rows.append((each["id"], "", "", "(damaged: dragoman sessions verify says how)"))
            continue
        parent = each.get("forkedFrom")
        fork = f"(from {_told_apart(parent['id'])} at {parent['serial']}) " if parent else ""
        when = local_time(datetime.fromisoformat(each["updatedAt"]), seconds=False)
        rows.append((short[each["id"]], when, str(each["entries"]), f"{fork}{each['title']}"))
    if output.is_narrow:
        write_table(output, ("SESSION", "USED", "BEGINS WITH"), [(row[0], row[1][:10], row[3]) for row in rows])
    else:
        write_table(output, ("SESSION", "USED", "ENTRIES", "BEGINS WITH"), rows, right=frozenset({2}))


def _told_apart(session_id: str) -> str:
    """Return an id in little room. Ids of chats begin with the day: only their ends differ."""
    return session_id if len(session_id) <= 12 else f"…{session_id[-8:]}"


def show_session(chosen: argparse.Namespace) -> None:
    """Print the entries of a session, or a part of them."""
    from ..history import LevelOfDetail, entry_to_json
    from .entrytext import local_time, usage_words, write_entry
    from .stores import find_session, with_store

    settings = configured(chosen)
    output = Output(color=settings.color)

    async def show(store: "SessionStore") -> None:
        session_id = await find_session(store, chosen.session)
        info = await store.info(session_id)
        first = chosen.first
        if chosen.last is not None:
            first = max(first, info.head.next_serial - chosen.last)
        entries = await store.load(session_id, first)
        if chosen.json:
            for entry in entries:
                output.json_line(entry_to_json(entry))
            return
        output.write(f"session {unbroken(session_id)}", "bold")
        output.line(f"  {info.head.next_serial} entries, begun {local_time(info.created_at)}", "dim")
        if info.forked_from is not None:
            output.line(unbroken(f"forked from {info.forked_from.session_id} at {info.forked_from.serial}"), "dim")
        for entry in entries:
            output.line()
            write_entry(output, entry, LevelOfDetail(chosen.level))
        used = usage_words(_total_usage(entries))
        if used:
            output.line()
            output.line(f"used: {used}", "dim")

    with_store(settings.store, show)


def _total_usage(entries: Any) -> Any:
    from ..history import ModelOutputEntry
    from ..usage import TokenUsage

    total = TokenUsage()
    for entry in entries:
        if isinstance(entry, ModelOutputEntry) and entry.usage is not None:
            total += entry.usage
    return total


# ---------------------------------------------------------------- forking, checking, erasing


def fork_session(chosen: argparse.Namespace) -> None:
    """Fork a session and print the id of the new one."""
    from ..store.refusals import require_new_session_id
    from .stores import find_session, with_store

    settings = configured(chosen)
    if chosen.new_id is not None:
        require_new_session_id(chosen.new_id, "--id")

    async def fork(store: "SessionStore") -> str:
        session_id = await find_session(store, chosen.session)
        serial = (await store.head(session_id)).serial if chosen.at is None else chosen.at
        return (await store.fork(session_id, serial, new_session_id=chosen.new_id)).session_id

    Output().line(with_store(settings.store, fork))


def verify_sessions(chosen: argparse.Namespace) -> int:
    """Check sessions; 1 if any of them is not what was appended."""
    from .stores import each_session, find_session, with_store

    settings = configured(chosen)
    output = Output(color=settings.color)
    kept = _read_head(chosen.head)
    if kept is not None and len(chosen.session) != 1:
        raise InvalidValue("--head belongs to one session: name it")

    async def verify(store: "SessionStore") -> "list[VerifyReport]":
        if chosen.session:
            return [await store.verify(await find_session(store, each), kept=kept) for each in chosen.session]
        found = [await _verified(store, each) async for each in each_session(store)]
        return [report for report in found if report is not None]

    reports = with_store(settings.store, verify)
    if chosen.json:
        output.json([_reported(report) for report in reports])
    else:
        for report in reports:
            _write_report(output, report)
        if not reports:
            output.line("no sessions")
    return 0 if all(report.is_sound for report in reports) else 1


async def _verified(store: "SessionStore", listed: "SessionInfo | str") -> "VerifyReport | None":
    """What is wrong with a session of a list. One that cannot be found by its id keeps no other from being checked.

    None if it was erased meanwhile.
    """
    from ..store import Head, VerifyReport

    session_id = listed if isinstance(listed, str) else listed.session_id
    try:
        return await store.verify(session_id)
    except DragomanError as error:
        if isinstance(listed, str) or error.code is ErrorCode.CORRUPT:
            return VerifyReport(session_id, Head(), -1, str(error))
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


def _write_report(output: Output, report: "VerifyReport") -> None:
    if report.is_sound:
        output.write("sound    ", "green")
        head = f"  {report.head.serial}:{report.head.checksum}" if report.head.serial >= 0 else "  empty"
        output.line(f"{unbroken(report.session_id)}{head}")
        return
    where = "its own record" if report.bad_serial == -1 else f"serial {report.bad_serial}"
    output.write("DAMAGED  ", "red bold")
    output.line(unbroken(f"{report.session_id}  {where}: {report.problem}"))


def _reported(report: "VerifyReport") -> dict[str, Any]:
    return {
        "id": report.session_id,
        "sound": report.is_sound,
        "head": {"serial": report.head.serial, "checksum": report.head.checksum},
        **({} if report.is_sound else {"badSerial": report.bad_serial, "problem": report.problem}),
    }


def _read_head(text: str | None) -> "Head | None":
    from ..store import Head

    if text is None:
        return None
    typed, colon, checksum = text.partition(":")
    number = read_digits(typed)
    if not colon or number is None or len(checksum) != 64:
        raise InvalidValue("--head must be a serial, a colon and a checksum, as verify prints them")
    return Head(number, checksum.lower())


def erase_session(chosen: argparse.Namespace) -> int | None:
    """Erase a session and, if the user says so, its forks."""
    from .stores import LATEST, find_forks, find_named, find_session, with_store

    settings = configured(chosen)
    output = Output(color=settings.color)

    async def look(store: "SessionStore") -> tuple[str, list[str]]:
        # The question shows the id that was found; without a question the id must be whole.
        is_whole = chosen.yes and chosen.session != LATEST
        session_id = await (find_named if is_whole else find_session)(store, chosen.session)
        return session_id, await find_forks(store, session_id)

    session_id, forks = with_store(settings.store, look)
    named = ", ".join(forks)
    if chosen.yes and forks and not chosen.forks:
        raise DragomanError(f"{session_id} has forks: {named}. Add --forks to erase them, too", code=ErrorCode.CONFLICT)
    if not chosen.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidValue("there is no terminal to ask at: add --yes to erase without a question")
        also = f" and its forks {named}" if forks else ""
        if not confirm(f"Erase {session_id}{also} for good?"):
            output.line("nothing was erased")
            return 1
    erased = with_store(settings.store, lambda store: store.erase(session_id, forks=forks, force=chosen.force))
    also = f" and {len(forks)} forks" if forks else ""
    output.line(f"erased {unbroken(session_id)}{also}: {erased.entries} entries of its own are gone")
    return None
