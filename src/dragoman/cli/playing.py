"""What is played, when, and how it looks: beats in time, and the player that writes deltas as they come.

`timed` and `schedule` are pure: who plays brings the clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, assert_never

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
    UnknownDelta,
    UsageDelta,
)
from ..errors import InvalidValue
from ..jsontext import join_surrogates
from ..usage import TokenUsage
from .entrytext import usage_words
from .output import Output

__all__ = ["Beat", "Note", "Player", "Wait", "schedule", "timed"]

EVEN_PACE = 1 / 40  # seconds between deltas of which nobody knows when they came


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


class Player:
    """Writes deltas as people read them: text plain, thinking dim, calls and ends on lines of their own."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._kind = ""  # what is being written: text, thinking, tool_call, or nothing
        self._usage = TokenUsage()
        self._held = ""  # the beginning of a character that is not whole yet

    def show(self, what: MessageDelta | Note) -> None:
        """Write a delta or a note."""
        if isinstance(what, Note):
            self._close()
            self._output.write(f"{what.who}: ", f"bold {what.style}".strip())
            self._output.line(what.text, what.style)
            return
        match what:
            case TextDelta() | ThinkingDelta():
                self._piece(what.kind, what.text_delta)
            case ToolCallStartDelta():
                self._close()
                self._kind = "tool_call"
                self._output.write(f"→ {what.tool_name}(", "magenta")
            case ToolCallArgsDelta():
                self._piece("tool_call", what.args_text_delta)
            case ToolCallEndDelta():
                self._output.write(")", "magenta")
                self._close()
            case UsageDelta():
                self._usage = self._usage.updated_by(what.usage)
            case DoneDelta():
                used = usage_words(self._usage)
                self._line(f"[{what.finish_reason}{'; ' if used else ''}{used}]")
            case ErrorDelta():
                self._close()
                self._output.line(f"[{what.error_code}] {what.message or ''}".rstrip(), "red")
            case StartDelta():
                self._close()
                self._usage = TokenUsage()
            case ProviderItemDelta():
                self._line(f"[{what.item_type}] {what.text or ''}".rstrip())
            case ImageDelta() | UnknownDelta():
                self._line(f"[{what.kind}]")
            case _:
                assert_never(what)
        self._output.flush()

    def close(self) -> None:
        """End the last line."""
        self._close()
        self._output.flush()

    def _piece(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self._close()
            self._kind = kind
            if kind == "thinking":
                self._output.write("(thinking) ", "dim")
        text = self._held + text
        self._held = ""
        if text and ("\ud800" <= text[-1] <= "\udbff" or text[-1] == "\r"):
            text, self._held = text[:-1], text[-1]
        style = {"thinking": "dim", "tool_call": "magenta"}.get(kind, "")
        self._output.write(join_surrogates(text), style)

    def _line(self, text: str) -> None:
        self._close()
        self._output.line(text, "dim")

    def _close(self) -> None:
        if self._kind:
            if self._held:
                self._output.write(join_surrogates(self._held))
            self._output.line()
        self._kind, self._held = "", ""
