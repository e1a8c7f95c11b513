"""The tail of a session: the deltas of the answer that is under way. Operational data, no part of the record.

The owner of the lease writes them, one batch every few milliseconds for all sessions of a store. The followers of all
sessions read them together. They vanish with the append that ends the answer. Knows no database.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from ..delta import KnownDelta, TextDelta, ThinkingDelta, ToolCallArgsDelta, UnknownDelta
from ..errors import InvalidValue, StoreError, UnreadableData, type_name
from ..jsonform import from_json, to_json
from ..message import Message
from .protocol import Lease

__all__ = ["AnswerTail", "TailPiece", "TailQuery", "TailReader", "TailWriter"]

LOGGER = logging.getLogger("dragoman.store")

TAIL_LIMIT = 4_194_304  # bytes of one answer; what comes after them is read from the record
BATCH_SECONDS = 0.010  # a delta waits so long for others before it is written
PAUSE_SECONDS = 0.004  # followers that are woken within that time read together
RETRY_SECONDS = 0.5  # between two attempts to write to a store that cannot be reached

_PIECES: dict[str, type[TextDelta | ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str, datetime | None, str, int | None]).decode


class TailPiece(NamedTuple):
    """Deltas of the answer `stream`, from the index `first` to before `past`, as lines of JSON.

    `serial` is that of the session's next entry when the answer began, `token` that of the lease it was written with.
    """

    session_id: str
    token: str
    stream: str
    serial: int
    first: int
    past: int
    deltas: bytes

    def read_from(self, index: int) -> list[KnownDelta]:
        """Return the deltas from that index on, up to the first that cannot be read; `seq` is the index of each."""
        found: list[KnownDelta] = []
        for number, line in enumerate(self.deltas.split(b"\n"), self.first):
            if number < index:
                continue
            delta = _read_line(line, number)
            if delta is None:
                break
            found.append(delta)
        return found


class TailQuery(NamedTuple):
    """What a follower wants: the deltas of the answer `stream` from `from_index` on, or all of another answer."""

    session_id: str
    stream: str
    from_index: int


class AnswerTail:
    """Takes the deltas of one answer as they come, for followers. `Session.begin_tail` makes it.

    They are written soon. A store that cannot be reached and a lease that was lost raise nothing here.
    """

    def __init__(self, writer: "TailWriter", lease: Lease, serial: int) -> None:
        self.session_id = lease.session_id
        self.stream = os.urandom(8).hex()
        self._writer = writer
        self._token = lease.token
        self._serial = serial
        self._past = 0  # so many deltas are in pieces
        self._left = TAIL_LIMIT
        self._is_open = True
        self._held: KnownDelta | None = None  # its text ends with the first half of a surrogate pair
        self._lines: list[bytes] = []
        self._unwritten: list[TailPiece] = []

    def add(self, delta: KnownDelta) -> None:
        """Share the next delta."""
        held, self._held = self._held, None
        if held is not None:
            if (joined := _joined(held, delta)) is not None:
                delta = joined
            else:
                self._add(held)
        if "\ud800" <= _text_of(delta)[-1:] <= "\udbff":
            self._held = delta
        else:
            self._add(delta)

    def close(self) -> None:
        """Take no more deltas, and forget those that are not written yet: the record has them, or will."""
        self._is_open = False
        self._lines, self._unwritten = [], []

    def take(self) -> list[TailPiece]:
        """Return the pieces that are not known to be written."""
        if self._lines:
            first, self._past = self._past, self._past + len(self._lines)
            lines, self._lines = b"\n".join(self._lines), []
            piece = TailPiece(self.session_id, self._token, self.stream, self._serial, first, self._past, lines)
            self._unwritten.append(piece)
        return self._unwritten

    def note_written(self) -> None:
        """Forget the pieces that were taken."""
        self._unwritten = []

    def _add(self, delta: KnownDelta) -> None:
        if not self._is_open:
            return
        line = _line_of(delta)
        self._left -= len(line)
        if self._left < 0:
            self._is_open = False
            return
        if not self._lines:
            self._writer.expect(self)
        self._lines.append(line)


class _Batch:
    """What the tails of one event loop have collected. `writing` names the sessions that are being written."""

    def __init__(self) -> None:
        self.tails: dict[AnswerTail, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.writing: frozenset[str] = frozenset()
        self.written: asyncio.Future[None] | None = None


class TailWriter:
    """Writes what the tails of a store have collected, those of one event loop together, one batch at a time.

    What the store refuses is not shared, and logged once for each cause, unless `is_closed` says that it was closed.
    """

    def __init__(
        self, write: Callable[[Sequence[TailPiece]], Awaitable[None]], is_closed: Callable[[], bool] = lambda: False
    ) -> None:
        self._write = write
        self._is_closed = is_closed
        self._logged: set[str] = set()
        self._batches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batch] = WeakKeyDictionary()

    def expect(self, tail: AnswerTail) -> None:
        """Write what this tail collects with the next batch of the running event loop."""
        loop = asyncio.get_running_loop()
        batch = self._batches.setdefault(loop, _Batch())
        batch.tails[tail] = None
        if batch.task is None:
            batch.task = loop.create_task(self._work(batch))

    async def settle(self, session_id: str) -> None:
        """Wait while deltas of the session are being written: an append that begins earlier would not delete them."""
        batch = self._batches.get(asyncio.get_running_loop())
        if batch is not None and batch.written is not None and session_id in batch.writing:
            await asyncio.wait((batch.written,))

    async def _work(self, batch: _Batch) -> None:
        try:
            while batch.tails:
                await asyncio.sleep(BATCH_SECONDS)
                tails, batch.tails = batch.tails, {}
                if not await self._write_batch(batch, tails):
                    batch.tails = tails | batch.tails
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            batch.task = None

    async def _write_batch(self, batch: _Batch, tails: Iterable[AnswerTail]) -> bool:
        pieces = [piece for tail in tails for piece in tail.take()]
        if not pieces:
            return True
        batch.written = asyncio.get_running_loop().create_future()
        batch.writing = frozenset(piece.session_id for piece in pieces)
        try:
            await self._write(pieces)
        except Exception as error:  # noqa: BLE001  # failing to share never fails a run
            if isinstance(error, StoreError) and error.retryable:
                return False
            self._log(error)
            for tail in tails:
                tail.close()
        finally:
            batch.written.set_result(None)
            batch.written = None
        for tail in tails:
            tail.note_written()
        return True

    def _log(self, error: Exception) -> None:
        """Log the cause without the error's words: they may quote deltas."""
        cause = type_name(error) + (f" ({error.code})" if isinstance(error, StoreError) else "")
        if cause in self._logged or self._is_closed():
            return
        self._logged.add(cause)
        fields = {"event": "deltas not shared", "error": cause}
        text = "deltas of answers are not shared, followers get the entries alone: %s"
        LOGGER.warning(text, cause, extra={"dragoman": fields})


class TailReader:
    """Reads tails for the followers of a store: all that wait in one event loop together, one batch at a time."""

    def __init__(self, read: Callable[[Sequence[TailQuery]], Awaitable[Sequence[TailPiece]]]) -> None:
        self._read = read
        self._asked: WeakKeyDictionary[
            asyncio.AbstractEventLoop, list[tuple[TailQuery, asyncio.Future[list[TailPiece]]]]
        ] = WeakKeyDictionary()
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()

    async def read(self, query: TailQuery) -> list[TailPiece]:
        """Return the pieces of the session's tail that a follower has not read, in their order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[TailPiece]] = loop.create_future()
        self._asked.setdefault(loop, []).append((query, future))
        if loop not in self._tasks:
            self._tasks[loop] = loop.create_task(self._work(loop))
        return await future

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        asked: list[tuple[TailQuery, asyncio.Future[list[TailPiece]]]] = []
        try:
            while asked := self._asked.pop(loop, []):
                try:
                    await self._answer(asked)
                except Exception as error:  # noqa: BLE001  # each follower raises it
                    for _, future in asked:
                        if not future.done():
                            future.set_exception(error)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            del self._tasks[loop]
            for _, future in (*asked, *self._asked.pop(loop, ())):  # none, unless this task was cancelled
                future.cancel()

    async def _answer(self, asked: Sequence[tuple[TailQuery, asyncio.Future[list[TailPiece]]]]) -> None:
        wanted = [query for query, future in asked if not future.done()]
        by_session: dict[str, list[TailPiece]] = {}
        for piece in await self._read(wanted):
            by_session.setdefault(piece.session_id, []).append(piece)
        for query, future in asked:
            if not future.done():
                pieces = by_session.get(query.session_id, ())
                unread = [piece for piece in pieces if piece.stream != query.stream or piece.past > query.from_index]
                future.set_result(sorted(unread, key=lambda piece: piece.first))


def _line_of(delta: KnownDelta) -> bytes:
    """The delta as JSON; a plain piece of text as a short array, because most deltas are one."""
    if isinstance(delta, (TextDelta, ThinkingDelta)) and delta.provider_data is None and delta.extra is None:
        piece = (delta.kind, delta.run_id, delta.timestamp, delta.text_delta, delta.part_index)
        with suppress(UnicodeEncodeError):  # half a surrogate pair alone
            return _encode(piece)
    return to_json(delta if delta.provider_raw is None else replace(delta, provider_raw=None))


def _read_line(line: bytes, seq: int) -> KnownDelta | None:
    """The delta that a line says, with another `seq`; None if it says none."""
    try:
        if line.startswith(b"["):
            kind, run_id, timestamp, text, part_index = _decode(line)
            return _PIECES[kind](run_id, seq, timestamp, text, part_index)
        delta = from_json(line)
    except (msgspec.MsgspecError, UnreadableData, InvalidValue, KeyError):
        return None
    if isinstance(delta, (Message, UnknownDelta)):
        return None
    return replace(delta, seq=seq)


def _text_of(delta: KnownDelta) -> str:
    if isinstance(delta, (TextDelta, ThinkingDelta)):
        return delta.text_delta
    return delta.args_text_delta if isinstance(delta, ToolCallArgsDelta) else ""


def _joined(first: KnownDelta, second: KnownDelta) -> KnownDelta | None:
    """Both as one delta; None if they do not belong together. The decoder may have cut a character in two."""
    if isinstance(first, (TextDelta, ThinkingDelta)) and isinstance(second, (TextDelta, ThinkingDelta)):
        is_one = first.kind == second.kind and first.part_index == second.part_index and first.provider_data is None
        return replace(second, text_delta=first.text_delta + second.text_delta) if is_one else None
    if isinstance(first, ToolCallArgsDelta) and isinstance(second, ToolCallArgsDelta):
        is_one = first.tool_call_id == second.tool_call_id
        return replace(second, args_text_delta=first.args_text_delta + second.args_text_delta) if is_one else None
    return None
