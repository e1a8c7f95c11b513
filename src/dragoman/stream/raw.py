"""`providerRaw`: a decoder whose deltas carry the wire event that they were made of. For debugging; pure."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._jsontext import decode_json, require_json
from ..errors import InvalidValue, UnreadableData
from .events import WireEvent
from .writer import DeltaWriter

if TYPE_CHECKING:
    from .reader import EventDecoder

__all__ = ["RawKeepingDecoder"]


class RawKeepingDecoder:
    """Decodes one event at a time and attaches it, as JSON where it is such, to every delta that it gave.

    `redact` gets the event's text first. Deltas that the end of a body gives have no event.
    """

    def __init__(self, decoder: "EventDecoder", writer: DeltaWriter, redact: Callable[[str], str]) -> None:
        self._decoder = decoder
        self._writer = writer
        self._redact = redact

    @property
    def unknown_events(self) -> int:
        """How many wire events were skipped because the decoder does not know them."""
        return self._decoder.unknown_events

    def decode(self, events: Sequence[WireEvent]) -> None:
        """Write the deltas of these events, each with its event."""
        for event in events:
            first = len(self._writer)
            try:
                self._decoder.decode((event,))
            finally:
                self._writer.attach_raw(first, self._raw(event[1]))

    def decode_body(self, body: bytes) -> None:
        """Write the deltas of a whole answer, each with the answer."""
        first = len(self._writer)
        try:
            self._decoder.decode_body(body)
        finally:
            self._writer.attach_raw(first, self._raw(body))

    def end(self) -> None:
        """Let the decoder finish."""
        self._decoder.end()

    def _raw(self, data: bytes) -> object:
        text = self._redact(data.decode("utf-8", "replace"))
        try:
            value = decode_json(text)
            require_json(value, "providerRaw")
        except (UnreadableData, InvalidValue):  # no JSON, or deeper than a delta may hold
            return text
        return value if value is not None else text
