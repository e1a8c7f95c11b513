"""A response's bytes to a legal stream of deltas, for any codec. Pure: the caller brings bytes and the time.

Error statuses, whole JSON bodies, server-sent events and AWS event streams all come out as deltas that a guard passed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from .._jsontext import decode_keeping_surrogates
from ..delta import ErrorDelta, MessageDelta
from ..errors import DragomanError, ErrorCode, InvalidValue, ModelError
from ..request import ModelRequest, ReadRequest, WireRequest
from ..target import Dialect
from .answer_writer import AnswerForm, AnswerWriter, ErrorAnswer
from .encoder import ConversationEncoder
from .events import EventParser, WireEvent
from .eventstream import EventStreamParser
from .guard import Guard
from .raw import RawKeepingDecoder
from .sse import SseParser
from .textcalls import TextCallReader
from .writer import DeltaWriter

__all__ = ["BODY_LIMIT", "LARGE", "Codec", "EventDecoder", "RequestReader", "ResponseReader", "TypedJson"]

BODY_LIMIT = 64 * 1024 * 1024
STREAM_LIMIT = 256 * 1024 * 1024
ERROR_LIMIT = 256 * 1024  # bytes of the body of an error; only some lines of it are used
# An event or a body of more bytes is large: it is read outside of the event loop, and holds no more values than this.
# Values cost a hundred times what bytes do. The pictures and texts that make events large are one value.
LARGE = 1024 * 1024
VALUES_LIMIT = 250_000
# Half a surrogate pair is read by a parser that takes twenty times as long and cannot be interrupted.
_SLOW_LIMIT = 512 * 1024
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_JSON_OPENINGS = (b"{", b"[")

_Shape = TypeVar("_Shape")


class EventDecoder(Protocol):
    """One answer's wire events to deltas, written with the writer that it was made with."""

    @property
    def unknown_events(self) -> int:
        """How many events were skipped because the decoder does not know them."""

    def decode(self, events: Sequence[WireEvent]) -> None:
        """Write the deltas of these events. Events that are not known are skipped and counted."""

    def decode_body(self, body: bytes) -> None:
        """Write the deltas of a whole, non-streamed answer, its `done` included."""

    def end(self) -> None:
        """The body has ended: write `done` if the provider's own finish was seen, else nothing."""


class RequestReader(Protocol):
    """Reads the body of a client's request."""

    def __call__(self, body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
        """Return the request; raise UnreadableData where it is none of this API.

        `model` and `stream` are what the address says, for APIs that say it there.
        """


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """A wire API: four pure machines, and failures in both directions.

    A client writes requests and reads answers: `open_encoder`, `open_decoder`, `map_error`. A server does the reverse:
    `read_request`, `open_writer`, `write_error`. An API that nobody serves has None for these three.
    """

    specification: str
    open_encoder: Callable[[Any, str], ConversationEncoder]
    open_decoder: Callable[[DeltaWriter, Any], EventDecoder]
    map_error: Callable[[int, Mapping[str, str], bytes], ModelError]
    read_request: RequestReader | None = None
    open_writer: Callable[[AnswerForm], AnswerWriter] | None = None
    write_error: Callable[[ErrorDelta], ErrorAnswer] | None = None

    def encode_request(self, request: ModelRequest, dialect: Dialect) -> WireRequest:
        """Return the request as a vendor gets it."""
        encoder = self.open_encoder(dialect, request.config.model_id)
        for message in request.messages:
            encoder.add(message)
        return encoder.write(request)


class TypedJson(Generic[_Shape]):
    """Reads JSON into one shape, fast; text that holds half a surrogate pair is read the slow way, halves kept."""

    __slots__ = ("_decode", "_shape")

    def __init__(self, shape: type[_Shape]) -> None:
        self._shape = shape
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, data: bytes) -> _Shape:
        """Return the value; raise ModelError (protocol_violation) where it is no JSON or of another shape."""
        try:
            return self._decode(data)
        except msgspec.ValidationError as error:
            raise _not_of_shape(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if len(data) > _SLOW_LIMIT:
                raise _not_json(data) from None
            try:
                return msgspec.convert(decode_keeping_surrogates(data), self._shape)
            except msgspec.ValidationError as error:
                raise _not_of_shape(error) from None
            except ValueError:
                raise _not_json(data) from None


class ResponseReader:
    """Reads one response. Feed it the body as it comes; every delta it returns has passed the contract.

    With `text_calls`, tool calls that the model wrote as text come out as calls. With `redact_raw`, each delta has in
    `provider_raw` the event that it was made of, as this function leaves its text.
    """

    __slots__ = (
        "_body", "_decoded", "_decoder", "_failure", "_guard", "_opening", "_parser", "_size", "_text_calls", "_writer",
        "bug", "finished", "has_read",
    )  # fmt: skip

    def __init__(
        self,
        codec: Codec,
        dialect: Dialect,
        *,
        run_id: str = "",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        text_calls: TextCallReader | None = None,
        redact_raw: Callable[[str], str] | None = None,
    ) -> None:
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        self._writer = DeltaWriter(run_id)
        self._guard = Guard(run_id=run_id, source=dialect.provider)
        self._decoder = codec.open_decoder(self._writer, dialect)
        if redact_raw is not None:
            self._decoder = RawKeepingDecoder(self._decoder, self._writer, redact_raw)
        self._text_calls = text_calls
        self._body = bytearray()
        self._opening: bytes | None = None
        self._size = 0
        self._decoded = 0  # how many bytes had come with the last event; 0 before the first
        self._parser: EventParser | None = None
        self._failure: Callable[[bytes], ModelError] | None = None
        self.bug: Exception | None = None  # ours, for the log
        self.finished = False  # whether the terminal delta has been returned: no more bytes are needed
        self.has_read = False  # whether the last bytes held something of the answer
        if not 200 <= status < 300:
            self._failure = lambda body: codec.map_error(status, lowered, body)
        else:
            self._parser = _event_parser(lowered.get("content-type", ""))

    @property
    def unknown_events(self) -> int:
        """How many wire events were skipped because the codec does not know them."""
        return self._decoder.unknown_events

    @property
    def has_finish(self) -> bool:
        """Whether the provider's own finish was seen. Usage, or only the end of the body, may still come."""
        return self._writer.has_finish

    def feed(self, chunk: bytes, now: datetime | None = None) -> list[MessageDelta]:
        """Return the deltas that `chunk` completes."""
        self._writer.now = now
        try:
            if self._parser is not None:
                self._size = size = self._size + len(chunk)
                if size > STREAM_LIMIT:
                    raise ModelError(
                        f"the stream is larger than {STREAM_LIMIT} bytes", code=ErrorCode.PROTOCOL_VIOLATION
                    )
                events = self._parser.feed(chunk)
                if events:
                    if size - self._decoded > LARGE:
                        for _, data in events:
                            _require_few_values(data)
                    self._decoded = size
                    self._decoder.decode(events)
                elif not self._decoded and self._begins_as_json(chunk):
                    self._keep(chunk)
            else:
                self._keep(chunk)
        except Exception as error:  # noqa: BLE001  # whatever the wire says, the stream ends legally
            return self._closed(error, now)
        deltas = self._guard.feed_all(self._taken())
        self.finished = self._guard.finished
        return deltas

    def is_long(self, chunk: bytes = b"") -> bool:
        """Return whether reading this chunk, or the end, may take long: what is being read is large."""
        return self._size - self._decoded + len(self._body) + len(chunk) > LARGE

    def end(self, now: datetime | None = None, cause: Exception | None = None) -> list[MessageDelta]:
        """Return the last deltas: the body has ended, or broke off for `cause`."""
        self._writer.now = now
        if self.finished:
            return []
        if cause is not None:
            return self._closed(cause, now)
        try:
            if self._failure is not None:
                raise self._failure(bytes(self._body))
            _require_few_values(self._body)
            if self._parser is None:
                self._decoder.decode_body(bytes(self._body))
            elif not self._decoded and self._body:
                self._decoder.decode_body(bytes(self._body))  # gateways send JSON with the content type of a stream
            else:
                self._decode_last(self._parser.end())
                self._decoder.end()
        except Exception as error:  # noqa: BLE001  # as above
            return self._closed(error, now)
        return self._closed(None, now)

    def _begins_as_json(self, chunk: bytes) -> bool:
        """Whether the body's first byte opens JSON; decided once, when there is a byte."""
        if self._opening is None:
            self._opening = chunk.lstrip()[:1] or None
        return self._opening in _JSON_OPENINGS

    def _keep(self, chunk: bytes) -> None:
        self._body += chunk
        if self._failure is not None and len(self._body) > ERROR_LIMIT:
            raise self._failure(bytes(self._body[:ERROR_LIMIT]))
        if len(self._body) > BODY_LIMIT:
            raise ModelError(f"the answer is larger than {BODY_LIMIT} bytes", code=ErrorCode.PROTOCOL_VIOLATION)

    def _decode_last(self, events: list[WireEvent]) -> None:
        """An event without its closing blank line counts if it is whole; half of one is a stream cut short."""
        try:
            self._decoder.decode(events)
        except ModelError:
            pass

    def _taken(self) -> list[MessageDelta]:
        """The deltas that the decoder has written; with `text_calls`, calls instead of text."""
        deltas = self._writer.take()
        self.has_read = bool(deltas)
        return deltas if self._text_calls is None else self._text_calls.take(deltas)

    def _closed(self, cause: Exception | None, now: datetime | None) -> list[MessageDelta]:
        deltas = self._taken()
        if self._text_calls is not None:
            deltas = [*deltas, *self._text_calls.close()]
        deltas = self._guard.feed_all(deltas)
        if isinstance(cause, InvalidValue):  # a value that no delta takes: too deep, too long a number
            said = cause.unquoted or str(cause)
            cause = ModelError(f"the provider's answer cannot be kept: {said}", code=ErrorCode.PROTOCOL_VIOLATION)
        elif cause is not None and not isinstance(cause, DragomanError):
            self.bug = cause
        closing = self._guard.close(cause, now=now)
        self.finished = True
        return deltas if closing is None else [*deltas, closing]


def _event_parser(content_type: str) -> EventParser | None:
    if "text/event-stream" in content_type:
        return SseParser()
    if "vnd.amazon.eventstream" in content_type:
        return EventStreamParser()
    return None


def _require_few_values(data: bytes | bytearray) -> None:
    """Raise ModelError for large JSON of too many values. It counts commas, before anything is built."""
    if len(data) <= LARGE or data.count(b",") < VALUES_LIMIT:
        return
    commas = start = 0
    for string in _JSON_STRING.finditer(data):  # a comma inside a text is none
        commas += data.count(b",", start, string.start())
        start = string.end()
        if commas >= VALUES_LIMIT:
            break
    if commas + data.count(b",", start) >= VALUES_LIMIT:
        what = f"the provider sent JSON with more than {VALUES_LIMIT:,} values at once"
        raise ModelError(what, code=ErrorCode.PROTOCOL_VIOLATION)


def _not_json(data: bytes) -> ModelError:
    """The error for text that is no JSON. Text that does not begin as JSON is the provider's words: a page, a line."""
    said = "" if data.lstrip()[:1] in _JSON_OPENINGS else data[:2_000].decode("utf-8", "replace")
    message = "the provider sent text that is not JSON"
    return ModelError(message, code=ErrorCode.PROTOCOL_VIOLATION, provider_message=said or None)


def _not_of_shape(error: msgspec.ValidationError) -> ModelError:
    # msgspec names the path and the types, never the value.
    return ModelError(f"the provider's JSON is not of the documented shape: {error}", code=ErrorCode.PROTOCOL_VIOLATION)
