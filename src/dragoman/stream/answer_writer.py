"""Deltas to an answer in one wire API: the mirror of a decoder. Knows no wire API itself; time and ids come in.

A writer takes the deltas of one legal stream and gives the events of its API as they come, or the whole body at the
end. It writes a finish only for `done`: a stream that stops early becomes the API's own error.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from .._jsontext import encode_json, join_surrogates, parse_arguments
from ..delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from ..errors import ErrorCode, InvalidValue
from ..message import FinishReason, Image, ProviderItem, Text, Thinking, ToolCall
from ..usage import TokenUsage
from .events import WireEvent

__all__ = ["AnswerForm", "AnswerPart", "AnswerWriter", "ErrorAnswer", "frame_events"]

# After these finishes the client runs the calls of the answer, so each of them must be whole.
_WHOLE = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})
_TRUNCATED = "the stream ended before the model said that it was finished"
_CUT_CALL = "a tool call of the answer did not arrive whole"
_UNKNOWN_FINISH = "the model ended its answer for a reason that this API has no word for"


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of one answer: its id, model and time, and what the request says about it.

    `source` is the wire API that the deltas come from. Provider data is written only where that is the same API.
    `call_fields` are fields of the API that the calls of a tool have, by tool name. `echo` are fields of the request
    that the answer repeats. `seal` makes the signature of another API's thinking from its provider data and its text.
    """

    answer_id: str
    model: str
    created: int = 0
    stream: bool = True
    include_usage: bool = True
    source: str = ""
    call_fields: dict[str, dict[str, Any]] = {}
    echo: dict[str, Any] = {}
    seal: Callable[[dict[str, Any] | None, str], str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.answer_id, str) or not self.answer_id:
            raise InvalidValue.of("answer_id", self.answer_id, "non-empty text")

    def id_with(self, prefix: str) -> str:
        """Return the answer's id as an API spells it: with its prefix, once."""
        return self.answer_id if self.answer_id.startswith(prefix) else f"{prefix}{self.answer_id}"


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that failed before its stream began: HTTP status, body and headers."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


class AnswerPart:
    """One part of the answer while it is written. `frame` is the event of its pieces, cut where the piece goes in."""

    __slots__ = (
        "call_id", "carry", "data", "delta", "foreign", "frame", "index", "is_cut", "item", "kind", "name",
        "part_index", "pieces",
    )  # fmt: skip

    def __init__(self, kind: str, *, part_index: int | None = None, data: dict[str, Any] | None = None) -> None:
        self.kind = kind
        self.part_index = part_index
        self.data = data  # provider data, where the answer came from the same API
        self.foreign: dict[str, Any] | None = None  # that of another API
        self.index = 0
        self.pieces: list[str] = []
        self.carry = ""  # the first half of a surrogate pair whose second half comes with the next piece
        self.call_id = ""
        self.name = ""
        self.is_cut = False  # a call whose arguments are not whole
        self.delta: ImageDelta | ProviderItemDelta | None = None
        self.item: dict[str, Any] = {}  # what the API calls the part, for its writer
        self.frame: tuple[str, bytes, bytes] | None = None

    @property
    def text(self) -> str:
        """All pieces of it so far."""
        return join_surrogates("".join(self.pieces))

    def value(self) -> Text | Thinking | ToolCall | Image | ProviderItem:
        """Return the part as messages hold it."""
        match self.delta:
            case ImageDelta() as image:
                return Image(image.mime_type, image.data, image.url, provider_data=self.data)
            case ProviderItemDelta() as item:
                return ProviderItem(item.item_type, item.item, item.text, provider_data=self.data)
        if self.kind == "tool_call":
            written = self.text
            if not written:
                return ToolCall(self.call_id, self.name, {}, "", provider_data=self.data)
            return ToolCall.parse(self.call_id, self.name, written, provider_data=self.data)
        part_class = Text if self.kind == "text" else Thinking
        return part_class(self.text, provider_data=self.data)


class _Held:
    """Deltas that wait until an open call ends: those of one other call, or what came between calls."""

    __slots__ = ("call_id", "deltas")

    def __init__(self, call_id: str | None) -> None:
        self.call_id = call_id
        self.deltas: list[MessageDelta] = []


class AnswerWriter:
    """Writes one answer. The writer of an API says what its events are, part by part.

    A client may run a tool as soon as its call is closed. So a call that was cut is never closed, and an answer that
    finishes with such a call is an error.
    """

    specification: ClassVar[str]
    # The finish words of the API. A reason without one is said as an error.
    finish_words: ClassVar[dict[FinishReason, str]]
    # One part is open at a time: the deltas of others wait until an open call has ended.
    one_at_a_time: ClassVar[bool] = True
    says_images: ClassVar[bool] = False
    # The field of thinking in which the API keeps a signature.
    seal_field: ClassVar[str] = ""

    def __init__(self, form: AnswerForm) -> None:
        self.form = form
        self.is_native = form.source == self.specification
        self.parts: list[AnswerPart] = []
        self.usage = TokenUsage()
        self.done: DoneDelta | None = None
        self.failure: ErrorDelta | None = None
        self.has_begun = False  # whether the stream has events: before them a failure is told by its HTTP status
        self._started = False
        self._events: list[WireEvent] = []
        self._run: AnswerPart | None = None  # the text or thinking that the next piece may continue
        self._calls: dict[str, AnswerPart] = {}  # open ones
        self._unsettled: list[AnswerPart] = []  # calls that ended without whole arguments: the finish may have cut them
        self._held: deque[_Held] = deque()
        self._held_calls: dict[str, _Held] = {}
        self._has_cut_call = False

    # ------------------------------------------------------------ for the caller

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended, with a finish or with an error."""
        return self.done is not None or self.failure is not None

    def write(self, deltas: Sequence[MessageDelta]) -> list[WireEvent]:
        """Return the events that these deltas give; none where the whole body is asked for."""
        take = _TAKE
        for delta in deltas:
            if self.done is not None or self.failure is not None:
                break
            if self._unsettled and _goes_on(delta):
                self._settle()
            take[type(delta)](self, delta)
        if self._started and not self.has_begun and not self.is_over:
            self._begin()
        events, self._events = self._events, []
        return events

    def end(self) -> list[WireEvent]:
        """Return the last events: deltas that stopped before `done` or `error` become the API's error."""
        if not self.is_over:
            self._fail(ErrorDelta("", 0, None, ErrorCode.STREAM_TRUNCATED, _TRUNCATED))
        events, self._events = self._events, []
        return events

    def break_off(self, error: ErrorDelta, sent: bytes) -> list[WireEvent]:
        """Return the events that end a stream with an error. `sent` is what the client has of it."""
        if sent:
            self.has_begun = True
            self.take_up(sent)
        else:
            self._begin()
        return self.write([error])

    def body(self) -> bytes:
        """Return the whole answer; raise ModelError where it ended in an error or has not ended."""
        if self.done is None:
            self.end()
            assert self.failure is not None
            raise self.failure.to_exception()
        return encode_json(self.whole())

    # ------------------------------------------------------------ for the writer of an API

    def begin(self) -> None:
        """Write the events before the first part."""

    def take_up(self, sent: bytes) -> None:
        """Learn what the last events need from those that were sent."""

    def open_part(self, part: AnswerPart) -> None:
        """Write the events that open a text, a thinking or a call."""

    def write_piece(self, part: AnswerPart, piece: str) -> None:
        """Write a piece of an open part."""
        if part.frame is not None:
            name, before, after = part.frame
            self._events.append((name, before + _encoded(piece) + after))

    def close_part(self, part: AnswerPart) -> None:
        """Write the events that close a part, or those of a whole picture or item."""

    def finish(self, word: str) -> None:
        """Write the finish, with the API's word for it."""
        raise NotImplementedError

    def fail(self, error: ErrorDelta) -> None:
        """Write an error inside the stream."""
        raise NotImplementedError

    def whole(self) -> dict[str, Any]:
        """Return the body of a whole answer, of the parts that were written."""
        raise NotImplementedError

    def emit(self, name: str, value: Any) -> None:
        """Add an event. A whole answer has none."""
        if self.form.stream:
            self._events.append((name, encode_json(value)))

    def frame(self, name: str, before: bytes, after: bytes) -> tuple[str, bytes, bytes] | None:
        """Return the frame of a part's pieces. A whole answer has none."""
        return (name, before, after) if self.form.stream else None

    @property
    def word(self) -> str:
        """The API's word for the finish, or the provider's own where the answer came from the same API."""
        assert self.done is not None
        native = self.done.raw_finish_reason if self.is_native else None
        return native or self.finish_words.get(self.done.finish_reason, "")

    @property
    def message_data(self) -> dict[str, Any]:
        """Provider data of the message as a whole, where it came from the same API."""
        data = self.done.provider_data if self.done is not None and self.is_native else None
        return dict(data or {})

    # ------------------------------------------------------------ deltas

    def _take_start(self, _: StartDelta) -> None:
        self._started = True

    def _take_usage(self, delta: UsageDelta) -> None:
        self.usage = self.usage.updated_by(delta.usage)

    def _take_piece(self, delta: TextDelta | ThinkingDelta) -> None:
        run, piece, data = self._run, delta.text_delta, delta.provider_data
        if run is None or run.kind != delta.kind or run.part_index != delta.part_index:
            if not piece and (data is None or not self.is_native):
                return  # nothing to say: an empty piece, or another API's data alone
            if self._calls and self.one_at_a_time:
                self._hold(delta)
                return
            run = AnswerPart(delta.kind, part_index=delta.part_index, data=data if self.is_native else None)
            self._open(run)
            self._run = run
        elif data is not None and self.is_native:
            run.data = data
        if not self.is_native:
            run.foreign = data
        if piece:
            self._append(run, piece)
        if data is not None:
            self._close_run()

    def _take_call(self, delta: ToolCallStartDelta) -> None:
        if self._calls and self.one_at_a_time:
            self._hold(delta)
            return
        fields = {**self.form.call_fields.get(delta.tool_name, {})}
        if self.is_native:
            fields.update(delta.provider_data or {})
        part = AnswerPart("tool_call", data=fields or None)
        part.call_id, part.name = delta.tool_call_id, delta.tool_name
        self._open(part)
        self._calls[delta.tool_call_id] = part

    def _take_arguments(self, delta: ToolCallArgsDelta) -> None:
        part = self._calls.get(delta.tool_call_id)
        if part is None:
            self._hold(delta)
        elif delta.args_text_delta:
            self._close_run()
            self._append(part, delta.args_text_delta)

    def _take_call_end(self, delta: ToolCallEndDelta) -> None:
        part = self._calls.pop(delta.tool_call_id, None)
        if part is None:
            self._hold(delta)
            return
        if delta.provider_data is not None and self.is_native:
            part.data = {**(part.data or {}), **delta.provider_data}
        self._flush_carry(part)
        if delta.parse_error is not None:
            part.is_cut = self._has_cut_call = True
        elif self.is_native or parse_arguments(part.text).arguments is not None:
            self.close_part(part)
        else:
            self._unsettled.append(part)  # empty or broken
        self._release()

    def _take_unit(self, delta: ImageDelta | ProviderItemDelta) -> None:
        is_said = self.says_images if isinstance(delta, ImageDelta) else self.is_native
        if not is_said:
            return
        if self._calls and self.one_at_a_time:
            self._hold(delta)
        else:
            part = AnswerPart(delta.kind, data=delta.provider_data if self.is_native else None)
            part.delta = delta
            self._open(part)
            self.close_part(part)

    def _take_done(self, delta: DoneDelta) -> None:
        reason = delta.finish_reason
        if reason in _WHOLE and self._has_cut_call:
            self._fail(ErrorDelta(delta.run_id, delta.seq, delta.timestamp, ErrorCode.STREAM_TRUNCATED, _CUT_CALL))
            return
        if not self.is_native and reason not in self.finish_words:
            message = f"{_UNKNOWN_FINISH}: {delta.raw_finish_reason or reason!s}"
            self._fail(ErrorDelta(delta.run_id, delta.seq, delta.timestamp, ErrorCode.SERVER_ERROR, message))
            return
        if reason in _WHOLE:
            self._settle()
        for part in self._unsettled:  # what waits behind such a call is left out: it may be a call
            part.is_cut = True
        if not self.has_begun:
            self._begin()
        self._close_run()
        self.done = delta
        if self.form.stream:
            self.finish(self.word)

    def _take_error(self, delta: ErrorDelta) -> None:
        self._fail(delta)

    def _fail(self, error: ErrorDelta) -> None:
        self.failure = error
        if self.has_begun and self.form.stream:
            self.fail(error)

    # ------------------------------------------------------------ parts

    def _begin(self) -> None:
        self.has_begun = True
        self.begin()

    def _settle(self) -> None:
        """Close the calls that have ended: the answer went on, or is whole, so they were not cut."""
        while self._unsettled:
            ended, self._unsettled = self._unsettled, []
            for part in ended:
                self.close_part(part)
            self._release()

    def _open(self, part: AnswerPart) -> None:
        if not self.has_begun:
            self._begin()
        self._close_run()
        part.index = len(self.parts)
        self.parts.append(part)
        if part.delta is None:
            self.open_part(part)

    def _append(self, part: AnswerPart, piece: str) -> None:
        if part.carry or "\ud800" <= piece[-1] <= "\udbff":
            piece = part.carry + piece
            part.carry = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
            piece = piece.removesuffix(part.carry)
            if not piece:
                return
        part.pieces.append(piece)
        self.write_piece(part, piece)

    def _flush_carry(self, part: AnswerPart) -> None:
        if part.carry:
            piece, part.carry = "\ufffd", ""
            part.pieces.append(piece)
            self.write_piece(part, piece)

    def _close_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._flush_carry(run)
            if run.kind == "thinking" and not self.is_native and self.seal_field and self.form.seal is not None:
                run.data = {self.seal_field: self.form.seal(run.foreign, run.text)}
            self.close_part(run)

    # ------------------------------------------------------------ waiting

    def _hold(self, delta: MessageDelta) -> None:
        """Keep a delta until the open call has ended: with those of its call, or after what came before it."""
        call_id = getattr(delta, "tool_call_id", None)
        held = self._held_calls.get(call_id) if call_id is not None else None
        if held is None:
            held = self._held[-1] if self._held and call_id is None else None
            if held is None or held.call_id is not None:
                held = _Held(call_id)
                self._held.append(held)
            if call_id is not None:
                self._held_calls[call_id] = held
        held.deltas.append(delta)

    def _release(self) -> None:
        """Take the deltas that waited, up to the next call that has not ended or may have been cut."""
        while self._held and not self._calls and not self._unsettled:
            held = self._held.popleft()
            if held.call_id is not None:
                del self._held_calls[held.call_id]
            ending: MessageDelta | None = None
            for delta in held.deltas:
                if isinstance(delta, ToolCallEndDelta):
                    ending = delta
                else:
                    _TAKE[type(delta)](self, delta)
            if ending is not None:
                # Its end would release the next one from in here: as deep as there are calls.
                waiting, self._held = self._held, deque()
                _TAKE[type(ending)](self, ending)
                self._held = waiting


_TAKE: dict[type, Callable[[AnswerWriter, Any], None]] = {
    StartDelta: AnswerWriter._take_start,
    TextDelta: AnswerWriter._take_piece,
    ThinkingDelta: AnswerWriter._take_piece,
    ToolCallStartDelta: AnswerWriter._take_call,
    ToolCallArgsDelta: AnswerWriter._take_arguments,
    ToolCallEndDelta: AnswerWriter._take_call_end,
    ImageDelta: AnswerWriter._take_unit,
    ProviderItemDelta: AnswerWriter._take_unit,
    UsageDelta: AnswerWriter._take_usage,
    DoneDelta: AnswerWriter._take_done,
    ErrorDelta: AnswerWriter._take_error,
}


def _goes_on(delta: MessageDelta) -> bool:
    """Whether a model says more, so that what it ended before was not cut. Decoders end open calls at the finish."""
    match delta:
        case TextDelta() | ThinkingDelta():
            return bool(delta.text_delta)
        case ToolCallArgsDelta():
            return bool(delta.args_text_delta)
    return isinstance(delta, (ToolCallStartDelta, ImageDelta, ProviderItemDelta))


def frame_events(events: Sequence[WireEvent]) -> bytes:
    """Return events as server-sent events: the mirror of `SseParser`. Their data must be one line, as JSON is here."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data for name, data in events
    )


def _encoded(piece: str) -> bytes:
    try:
        return msgspec.json.encode(piece)
    except UnicodeEncodeError:
        return msgspec.json.encode(join_surrogates(piece))
