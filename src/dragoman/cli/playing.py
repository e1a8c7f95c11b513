"""What is played, when, and how it looks: beats in time, and the player that writes deltas as they come.

`timed` and `schedule` are pure: who plays brings the clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ..delta import ErrorDelta, MessageDelta
from ..errors import InvalidValue
from ..message import FinishReason
from ..usage import TokenUsage
from .delta_follower import DeltaFollower
from .entrytext import usage_words
from .output import Output, one_line

__all__ = ["Beat", "Note", "Player", "Wait", "schedule", "timed"]

EVEN_PACE = 1 / 40  # seconds between deltas without a time


class Note(NamedTuple):
    """A line that stands between answers: who or what, and what was said."""

    who: str
    text: str
    style: str = ""


class Beat(NamedTuple):
    """A delta or a note, and when it is due, in seconds from the beginning."""

    due: float
    what: MessageDelta | Note


class Wait(NamedTuple):
    """How long to wait before something is shown."""

    seconds: float
    what: MessageDelta | Note


def timed(deltas: Sequence[MessageDelta]) -> list[Beat]:
    """Return deltas as beats, by their own times; where one has none, it comes a moment after the one before."""
    beats: list[Beat] = []
    due, last = 0.0, None
    for delta in deltas:
        time: datetime | None = delta.timestamp
        if last is not None:
            due += max((time - last).total_seconds(), 0.0) if time is not None else EVEN_PACE
        elif beats:
            due += EVEN_PACE
        last = time or last
        beats.append(Beat(due, delta))
    return beats


def schedule(beats: Iterable[Beat], *, speed: float, longest: float) -> Iterator[Wait]:
    """Yield what is shown, each with the time to wait before it: shortened by `speed`, never over `longest`.

    With speed 0 nothing waits.
    """
    if speed < 0 or longest < 0:
        raise InvalidValue("speed and the longest wait must not be negative")
    before = 0.0
    for beat in beats:
        wait = 0.0 if speed == 0 else min(max(beat.due - before, 0.0) / speed, longest)
        before = beat.due
        yield Wait(wait, beat.what)


class Player(DeltaFollower):
    """Writes deltas as people read them: text plain, thinking dim, calls and ends on lines of their own."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._is_thinking = False

    def show(self, what: MessageDelta | Note) -> None:
        """Write a delta or a note."""
        if isinstance(what, Note):
            self.close_part()
            self._output.write(f"{what.who}: ", f"bold {what.style}".strip())
            self._output.line(what.text, what.style)
        else:
            self.follow(what)
        self._output.flush()

    def close(self) -> None:
        """End the last line."""
        self.close_part()
        self._output.flush()

    def draw_text(self, piece: str) -> None:
        """Write the piece."""
        self._output.write(piece)

    def end_text(self) -> None:
        """End the line."""
        self._output.line()

    def draw_thinking(self, piece: str) -> None:
        """Write the piece, with a word before the first one."""
        self._output.write(piece if self._is_thinking else f"(thinking) {piece}", "dim")
        self._is_thinking = True

    def end_thinking(self, text: str, seconds: float) -> None:  # noqa: ARG002  # every piece is written already
        """End the line."""
        self._is_thinking = False
        self._output.line()

    def begin_call(self, tool_name: str) -> None:
        """Write whose arguments follow."""
        self._output.write(f"→ {tool_name}(", "magenta")

    def draw_arguments(self, piece: str) -> None:
        """Write the piece."""
        self._output.write(piece, "magenta")

    def end_call(self, *, is_whole: bool) -> None:
        """End the line, with a bracket after a whole call."""
        self._output.line(")" if is_whole else "", "magenta")

    def draw_note(self, text: str) -> None:
        """Write a line."""
        self._output.line(text, "dim")

    def end_answer(self, reason: FinishReason, usage: TokenUsage) -> None:
        """Write how the answer ended and what it used."""
        used = usage_words(usage)
        self._output.line(f"[{reason}{'; ' if used else ''}{used}]", "dim")

    def fail_answer(self, error: ErrorDelta) -> None:
        """Write what went wrong."""
        self._output.line(f"[{error.error_code}] {one_line(error.message or '')}".rstrip(), "red")
