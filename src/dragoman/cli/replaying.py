"""`dragoman replay`: a recorded stream or a stored run, played delta by delta with its timing."""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidValue, UnreadableData
from .arguments import SESSION_HELP, add_common, add_store, natural, real, seconds
from .config import configured
from .output import Output

if TYPE_CHECKING:
    from ..delta import MessageDelta
    from ..history import HistoryEntry
    from ..store import SessionStore
    from .playing import Beat
    from .settings import Settings

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, replay)
    add_store(parser)
    what = "a file, - for standard input: a recording, deltas as JSON lines, a captured answer; or a session: "
    parser.add_argument("source", metavar="FILE|SESSION", help=what + SESSION_HELP)
    parser.add_argument("--speed", type=real, default=1.0, help="how many times as fast, 0 for at once (%(default)s)")
    parser.add_argument(
        "--longest-wait", type=seconds, default=3.0, metavar="SECONDS", help="no pause is longer (%(default)s)"
    )
    parser.add_argument("--exchange", type=natural, metavar="NUMBER", help="only this one of a recording, from 0")
    parser.add_argument("--api", help="whose answer it is, where a file does not say")
    runs = parser.add_mutually_exclusive_group()
    runs.add_argument("--run", dest="run_id", metavar="ID", help="this run of the session (the newest)")
    runs.add_argument("--all", action="store_true", help="the whole session")
    parser.add_argument("--json", action="store_true", help="print the deltas as JSON lines, in their time")


def replay(chosen: argparse.Namespace) -> None:
    """Play what was asked for."""
    from ..jsonform import to_json
    from .playing import Note, Player, schedule

    settings = configured(chosen)
    output = Output(color=settings.color)
    player = Player(output)
    is_file = chosen.source == "-" or Path(chosen.source).is_file()
    streams = _of_file(chosen) if is_file else _of_session(settings, chosen)
    for beats in streams:
        for wait in schedule(beats, speed=chosen.speed, longest=chosen.longest_wait):
            if wait.seconds:
                time.sleep(wait.seconds)
            if not chosen.json:
                player.show(wait.what)
            elif not isinstance(wait.what, Note):
                output.json_line(to_json(wait.what))
                output.flush()
    if not chosen.json:
        player.close()


def _of_session(settings: "Settings", chosen: argparse.Namespace) -> "Iterator[list[Beat]]":
    from .retelling import choose_run, retold
    from .stores import find_session, with_store

    async def load(store: "SessionStore") -> "tuple[HistoryEntry, ...]":
        return await store.load(await find_session(store, chosen.source))

    entries = with_store(settings.store, load)
    yield list(retold(choose_run(entries, chosen.run_id, is_whole=chosen.all)))


def _of_file(chosen: argparse.Namespace) -> "Iterator[list[Beat]]":
    from .captures import read_answers
    from .conversations import read_source
    from .playing import timed

    data = read_source(chosen.source)
    deltas = _read_deltas(data) if chosen.api is None else None
    if deltas is not None:
        yield timed(deltas)
        return
    number = -1
    for number, answer in enumerate(read_answers([data], api=chosen.api)):
        if chosen.exchange in (None, number):
            yield timed(list(answer.deltas))
        else:
            for _ in answer.deltas:
                pass
    if chosen.exchange is not None and chosen.exchange > number:
        raise InvalidValue(f"there are {number + 1} exchanges in {chosen.source}: the last is {number}")


def _read_deltas(data: bytes) -> "list[MessageDelta] | None":
    """The deltas of a file of JSON lines, bare or each inside a run's event; None if it is no such file."""
    from .._jsontext import decode_json, encode_json
    from ..jsonform import from_json
    from ..message import Message

    deltas: list[MessageDelta] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = decode_json(line)
        except UnreadableData:
            if deltas:
                raise UnreadableData(f"line {number} is no delta") from None
            return None
        if not isinstance(value, dict):
            return None
        value = value["delta"] if isinstance(value.get("delta"), dict) and "kind" in value["delta"] else value
        if "seq" not in value or "payload" not in value:
            if "response" in value or ("kind" not in value and not deltas):
                return None
            continue  # a run's event without a delta
        delta = from_json(encode_json(value))
        if isinstance(delta, Message):
            return None
        deltas.append(delta)
    return deltas or None
