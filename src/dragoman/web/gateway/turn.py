"""One request of a client while it is answered: where it is recorded, and what becomes of its answer there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...delta import ErrorDelta
from ...errors import ErrorCode, StoreError
from ...history import ClientAnswerEntry, HistoryEntry, InterruptionEntry, LevelOfDetail, ModelOutputEntry
from ...history.contextmessages import context_messages, to_messages
from ...history.exchanges import MAX_ANSWER, MAX_MARK, MAX_MARKS
from ...history.metadata import NO_METADATA
from ...message import Message
from ...models.recorded import first_piece
from .asked import PASSED, Given
from .attempts import TRIED
from .conversations import is_same_answer, mark_of
from .placing import find_answer, has_moved, with_recorded

if TYPE_CHECKING:
    from ...store import Session
    from .kept_sessions import KeptSession
    from .said import Said

__all__ = ["Turn", "TurnEnder"]

# Header fields of an answer that are recorded, by how their names begin.
_KEPT_HEADERS = ("content-type", "retry-after", "request-id", "x-request-id", "x-should-retry")


class TurnEnder(Protocol):
    """What records the end of a turn."""

    async def end_turn(self, turn: "Turn", given: Given) -> None:
        """Record the answer. Raises nothing but CancelledError, and then goes on."""


class Turn:
    """A request that is under way. `end` must be called once, whatever becomes of the answer.

    `fault` says why nothing is recorded, if that is so; then `session_id` is empty. `is_joined`: the client joined the
    session, and `messages` are those of the record. Otherwise `messages` are the client's, at their indices.
    """

    def __init__(
        self,
        said: "Said",
        ender: TurnEnder,
        kept: "KeptSession | None" = None,
        *,
        serial: int = -1,
        request_serial: int = -1,
        first_serial: int = -1,
        is_joined: bool = False,
        may_fork: bool = False,
        fault: str = "",
    ) -> None:
        self.said = said
        self.kept = kept
        self.fault = fault
        self.is_side = kept is not None and kept.is_side
        self.is_joined = is_joined
        self.may_fork = may_fork  # it repeats a request that has an answer, or another answer under way
        self.serial = serial  # of the request that the answer belongs to; earlier than its own where it is a repeat
        self.request_serial = request_serial
        self.first_serial = request_serial if first_serial < 0 else first_serial  # of the entries that it added
        self.has_ended = False
        self._ender = ender
        self._messages: tuple[Message, ...] | None = None

    @property
    def session_id(self) -> str:
        """The session that has the request, and the answer when it has come."""
        return "" if self.kept is None or self.fault else self.kept.session_id

    @property
    def told_session_id(self) -> str:
        """The session that the client is told; empty as long as the answer may go to a fork."""
        return "" if self.may_fork and not self.has_ended else self.session_id

    @property
    def session(self) -> "Session | None":
        """The session if it ends with this request; None where it says more, or where nothing is recorded."""
        if self.kept is None or self.fault or has_moved(self.kept.entries, self.serial):
            return None
        return self.kept.session

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is asked with, without the system text.

        The client's messages, with the recorded answers in place of its own: they have thinking and signatures. They
        are read when they are first asked for.
        """
        if self._messages is None:
            try:
                self._messages = self._read_messages()
            except (StoreError, OSError):
                self._messages = self.said.messages
        return self._messages

    async def append(self, *entries: HistoryEntry) -> None:
        """Append facts to the session, if it still ends with this request. A fault of the store changes nothing."""
        if self.kept is None or not entries:
            return
        try:
            async with self.kept.lock:
                if self.session is not None:
                    await self.kept.session.append(*entries)
        except (StoreError, OSError):
            return

    async def end(self, given: Given) -> None:
        """Record what the client was given. Raises nothing but CancelledError; the append then goes on."""
        if self.has_ended:
            return
        self.has_ended = True
        await self._ender.end_turn(self, given)

    def plan_end(self, given: Given) -> "list[HistoryEntry] | None":
        """Return the entries that record an answer in the session of its request; None where it needs a fork."""
        assert self.kept is not None
        entries, message = self.kept.entries, _whole_message(given)
        if not self.said.is_readable:
            return [self._answer(given)]
        if not has_moved(entries, self.serial):
            return [*_outcome(given), self._answer(given, answer=message)]
        answer = find_answer(entries, self.serial)
        recorded = None if answer is None else entries[answer]
        if message is None:
            return [self._answer(given)]
        if not (isinstance(recorded, ModelOutputEntry) and is_same_answer(recorded.message.parts, message.parts)):
            return None
        # A client can continue a response by its id: it must find what was said up to this answer, and no more.
        assert answer is not None
        return None if given.marks and has_moved(entries, answer) else [self._answer(given)]

    def plan_fork(self, given: Given, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
        """Return the entries that record the answer in a fork, which has these entries: up to the turn's request."""
        asked_again: list[HistoryEntry] = []
        serial = self.request_serial
        if serial >= len(entries):  # it is a repeat, and was recorded after the fork's end
            asked_again = [self.said.request_entry(entries)]
            serial = len(entries)
        return [*asked_again, *_outcome(given), self._answer(given, serial, answer=_whole_message(given))]

    def _answer(self, given: Given, serial: int | None = None, *, answer: Message | None = None) -> ClientAnswerEntry:
        said = self.said
        digest = "" if answer is None else said.chain.after(answer)
        marks = [mark_of(digest)] if digest and digest != said.digest and said.prefixes else []
        marks += filter(_is_mark, (said.body_mark, *given.marks))
        body = given.body[:MAX_ANSWER]
        return ClientAnswerEntry.of(
            self.request_serial if serial is None else serial,
            given.status,
            body,
            headers={name: text for name, text in given.headers.items() if name.lower().startswith(_KEPT_HEADERS)},
            model=given.model,
            is_whole=given.is_whole and len(body) == len(given.body),
            marks=tuple(marks[:MAX_MARKS]),
            metadata=_noted(given),
        )

    def _read_messages(self) -> tuple[Message, ...]:
        if self.kept is None or self.fault or not self.said.is_readable:
            return self.said.messages
        if self.is_joined:
            entries = self.kept.entries[: self.serial + 1]
            return to_messages(context_messages(entries, policy=lambda _age: LevelOfDetail.LIVE))
        return with_recorded(self.said.messages, self.kept.answers_in_turn(self.serial))


def _whole_message(given: Given) -> Message | None:
    """The answer, if it is one and the client has all of it."""
    message = given.assembly.message if given.assembly is not None and given.is_whole else None
    is_cut = message is not None and message.meta is not None and message.meta.interrupted
    return None if is_cut else message


def _outcome(given: Given) -> list[HistoryEntry]:
    """The answer as the session keeps it: an output, or why there is none."""
    if (message := _whole_message(given)) is not None:
        assert given.assembly is not None
        timing = first_piece(given.asked_at, given.assembly) if given.asked_at is not None else NO_METADATA
        return [ModelOutputEntry(message, metadata=timing)]
    assembly = given.assembly
    if assembly is None or (given.is_whole and assembly.error is None):
        return []
    error = assembly.error or ErrorDelta("", 0, None, ErrorCode.CANCELLED, "the client did not get the whole answer")
    partial = assembly.partial or assembly.message
    if partial is not None and not partial.parts:
        partial = None
    return [InterruptionEntry(error.error_code, error.message or "", partial, error.provider_message or "")]


def _noted(given: Given) -> Mapping[str, object]:
    passed = {PASSED: True} if given.is_passed else {}
    return {**passed, TRIED: list(given.tried)} if given.tried else passed or NO_METADATA


def _is_mark(word: str) -> bool:
    return bool(word.strip()) and len(word) <= MAX_MARK and word.isprintable()
