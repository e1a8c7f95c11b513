"""What a reader wants of a run's events: its text, or its output as far as it has come. Pure."""

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from .._jsontext import join_surrogates
from ..delta import DoneDelta, KnownDelta, StartDelta, TextDelta
from ..message import FinishReason
from .events import DeltaEvent, RunEvent
from .output import OutputReader, PartialReader
from .results import OutputT, RunResult

__all__ = ["Follower", "OutputFollower", "TextFollower"]

BETWEEN_ANSWERS = "\n\n"

_Told_co = TypeVar("_Told_co", covariant=True)


class Follower(Protocol[_Told_co]):
    """Makes values of events."""

    def feed(self, event: RunEvent) -> Iterable[_Told_co]:
        """Return what an event adds."""
        ...

    def end(self, result: RunResult[Any]) -> Iterable[_Told_co]:
        """Return what is left at the end; raise RunFailed if the run did not complete."""
        ...


class TextFollower:
    """Gives the text of all answers, piece by piece, with an empty line between two answers."""

    def __init__(self) -> None:
        self._has_text = self._continues = False
        self._separator = ""
        self._half = ""  # the first half of a surrogate pair, until the second one comes

    def feed(self, event: RunEvent) -> Iterable[str]:
        """Return the piece of text that an event adds."""
        return self.feed_delta(event.delta) if isinstance(event, DeltaEvent) else ()

    def feed_delta(self, delta: KnownDelta) -> Iterable[str]:
        """Return the piece of text that a delta adds."""
        if isinstance(delta, TextDelta):
            return self._pieces(delta.text_delta)
        if isinstance(delta, StartDelta):
            continues, self._continues = self._continues, False
            return () if continues else self.end_answer()
        if isinstance(delta, DoneDelta):
            self._continues = delta.finish_reason is FinishReason.LENGTH  # if another answer comes, it goes on
        return ()

    def end(self, result: RunResult[Any]) -> Iterable[str]:
        """Yield what is left of the text; raise RunFailed if the run did not complete."""
        yield from self.end_answer()
        result.unwrap()

    def end_answer(self) -> Iterable[str]:
        """Return the half of a character that the answer ends with, as the record has it. An empty line comes next."""
        half, self._half = self._half, ""
        pieces = self._pieces(join_surrogates(half))
        self._separator = BETWEEN_ANSWERS if self._has_text else ""
        return pieces

    def _pieces(self, text: str) -> Iterable[str]:
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if not text:
            return ()
        separator, self._separator, self._has_text = self._separator, "", True
        return (separator + join_surrogates(text),)


class OutputFollower(Generic[OutputT]):
    """Gives the output of the answer that is arriving, each time that more of it fits its type."""

    def __init__(self, output: OutputReader[OutputT]) -> None:
        self._output = output
        self._answer = PartialReader(output)
        self._continues = False
        self._last: tuple[OutputT, ...] = ()

    def feed(self, event: RunEvent) -> Iterable[OutputT]:
        """Return the output with what an event adds, if that fits."""
        if not isinstance(event, DeltaEvent):
            return ()
        delta = event.delta
        new: tuple[OutputT, ...] = ()
        if isinstance(delta, TextDelta):
            new = self._answer.feed(delta.text_delta)
        elif isinstance(delta, StartDelta) and not self._continues:
            self._answer = PartialReader(self._output)
        elif isinstance(delta, DoneDelta):
            self._continues = delta.finish_reason is FinishReason.LENGTH
        if not new or new == self._last:
            return ()
        self._last = new
        return new

    def end(self, result: RunResult[OutputT]) -> Iterable[OutputT]:
        """Return the output of the run, unless it was given already; raise RunFailed if the run did not complete."""
        output = result.unwrap()
        return () if self._last == (output,) else (output,)
