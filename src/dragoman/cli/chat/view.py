"""What of a run is drawn, and when: events in, strokes out. How a stroke looks is for those who inherit.

Everything that a model or a tool says is made safe here, before anybody draws it.
"""

import time
from collections.abc import Callable

from ...agent import (
    DeltaEvent,
    ErrorEvent,
    MediaNotShownEvent,
    MessageEvent,
    RunError,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from ...delta import (
    ErrorDelta,
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallStartDelta,
)
from ...history import AgentStatus, HistoryToolCallResult, ToolCallRequest, ToolExecutionStatus
from ...jsontext import join_surrogates
from ...message import Role
from ..output import json_text, one_line, printable

__all__ = ["ReplyView", "SafePieces", "call_words", "result_lines"]

RESULT_LINES = 8
RESULT_CHARACTERS = 1_200
ARGUMENT_CHARACTERS = 300


class SafePieces:
    """Makes a text safe that comes in pieces: together they are what `printable` makes of the whole."""

    def __init__(self) -> None:
        self._held = ""
        self._last = ""  # the end of what was shown, before it was made safe

    def feed(self, piece: str) -> str:
        """Return what can be shown now; the first half of something is kept for the next piece."""
        text, self._held = self._held + piece, ""
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return self._safe(text)

    def end(self) -> str:
        """Return what was kept."""
        held, self._held = self._held, ""
        shown, self._last = self._safe(held), ""
        return shown

    def _safe(self, text: str) -> str:
        text = join_surrogates(text)
        shown = printable(text, before=self._last)
        self._last = (self._last + text)[-2:]
        return shown


class ReplyView:
    """Follows one run after another. `folds_thinking` may be changed at any time."""

    def __init__(self, *, folds_thinking: bool = True, seconds: Callable[[], float] = time.monotonic) -> None:
        self.folds_thinking = folds_thinking
        self._seconds = seconds
        self._open = ""  # what is being said: text, thinking, or nothing
        self._pieces = SafePieces()
        self._thought_since = 0.0
        self._thinking: list[str] = []
        self._calls: dict[str, str] = {}  # the names of calls, by their id on the wire
        self._told: RunError | None = None

    def begin(self) -> None:
        """A run begins."""
        self._told = None

    def show(self, event: RunEvent) -> None:
        """Draw what an event tells."""
        match event:
            case DeltaEvent():
                self._show_delta(event.delta)
            case MessageEvent() if event.message.role is Role.ASSISTANT:
                self._close()
                for call in event.message.tool_calls:
                    self.draw_call(ToolCallRequest.of(call))
            case ToolStartedEvent():
                self.draw_doing(f"running {one_line(event.call.tool_name)}")
            case ToolResultEvent():
                self._close()
                self.draw_result(event.result)
            case MediaNotShownEvent():
                self._close()
                self.draw_note(f"not shown to the model: {one_line(event.what)} ({one_line(event.why)})")
            case ErrorEvent():
                self._close()
                if event.error != self._told:
                    self.draw_error(event.error)
                self._told = event.error
            case StatusEvent():
                self._show_status(event.status)

    def end(self) -> None:
        """A run has ended, or waits for somebody."""
        self._close()

    def fold(self) -> bool:
        """Fold the thinking, or unfold it, from now on; return whether it is folded."""
        self.folds_thinking = not self.folds_thinking
        return self.folds_thinking

    # ------------------------------------------------------------ strokes

    def draw_text(self, piece: str) -> None:
        """Draw a piece of the answer."""

    def end_text(self) -> None:
        """The answer's text pauses: something else comes, or nothing."""

    def draw_thinking(self, piece: str) -> None:
        """Draw a piece of thinking, folded or not."""

    def end_thinking(self, text: str, seconds: float) -> None:
        """The model has thought so long, and this is what it thought."""

    def draw_call(self, call: ToolCallRequest) -> None:
        """Draw a call that a model wants made."""

    def draw_result(self, result: HistoryToolCallResult) -> None:
        """Draw what came of a call."""

    def draw_error(self, error: RunError) -> None:
        """Draw what went wrong; whether it is tried again is not known yet."""

    def draw_note(self, text: str) -> None:
        """Draw a remark."""

    def draw_doing(self, words: str) -> None:
        """Say what is done now, where there is a place for what passes."""

    # ------------------------------------------------------------ steps

    def _show_delta(self, delta: MessageDelta) -> None:
        match delta:
            case TextDelta():
                self._turn_to("text")
                self.draw_text(self._pieces.feed(delta.text_delta))
            case ThinkingDelta():
                self._turn_to("thinking")
                piece = self._pieces.feed(delta.text_delta)
                self._thinking.append(piece)
                self.draw_thinking(piece)
            case ToolCallStartDelta():
                self._close()
                self.draw_doing(f"calling {one_line(delta.tool_name)}")
            case ToolCallArgsDelta():
                pass  # the whole call is drawn when it is recorded
            case StartDelta():
                self._close()
                if self._told is not None:
                    self.draw_note("trying again")
                    self._told = None
            case ProviderItemDelta():
                self._close()
                self.draw_note(f"[{one_line(delta.item_type)}] {one_line(delta.text or '')}".rstrip())
            case ImageDelta():
                self._close()
                self.draw_note(f"[picture {one_line(delta.mime_type or '')} {one_line(delta.url or '')}]")
            case ErrorDelta():
                self._close()  # why is told by the event that follows

    def _show_status(self, status: AgentStatus) -> None:
        words = {
            AgentStatus.PREPARING: "preparing",
            AgentStatus.MODEL_RUNNING: "waiting for the model",
            AgentStatus.TOOL_RUNNING: "running tools",
        }
        if status in words:
            self.draw_doing(words[status])

    def _turn_to(self, what: str) -> None:
        if self._open != what:
            self._close()
            self._open = what
            if what == "thinking":
                self._thought_since = self._seconds()

    def _close(self) -> None:
        """End what is being said."""
        was, self._open = self._open, ""
        rest = self._pieces.end()
        if was == "text":
            if rest:
                self.draw_text(rest)
            self.end_text()
        elif was == "thinking":
            thought = "".join([*self._thinking, rest])
            self._thinking = []
            self.end_thinking(thought, self._seconds() - self._thought_since)


def call_words(call: ToolCallRequest) -> str:
    """Return a call's arguments in one line, safe and bounded."""
    if call.arguments is None:
        return (
            f"{one_line(call.raw_arguments[:ARGUMENT_CHARACTERS])} (not readable: {one_line(call.parse_error or '')})"
        )
    words = ", ".join(f"{name}={json_text(value)}" for name, value in call.arguments.items()) or "(no arguments)"
    return one_line(words if len(words) <= ARGUMENT_CHARACTERS else f"{words[:ARGUMENT_CHARACTERS]}…")


def result_lines(result: HistoryToolCallResult) -> list[str]:
    """Return what came of a call in a few lines, safe and bounded."""
    text = result.text()
    shown = printable(text[:RESULT_CHARACTERS]).split("\n")
    lines = shown[:RESULT_LINES]
    left = text.count("\n") + 1 - len(lines)
    if left > 0:
        lines.append(f"… {left} more lines")
    elif len(text) > RESULT_CHARACTERS:
        lines[-1] += f"… {len(text) - RESULT_CHARACTERS:,} more characters"
    lines += [f"[{one_line(part.kind)}]" for part in result.attachments]
    if result.status is not ToolExecutionStatus.SUCCESS and result.error_code is not None:
        lines[0] = f"{result.error_code}: {lines[0]}"
    return lines
