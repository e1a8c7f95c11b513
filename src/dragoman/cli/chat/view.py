"""What is drawn of a run, and when: events in, calls of `draw_…` out. Subclasses decide how each looks.

Text of models and tools is made safe for a terminal here, before it is drawn.
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
from ...history import AgentStatus, HistoryToolCallResult, ToolExecutionStatus
from ...message import Role, ToolCall
from ..delta_follower import DeltaFollower
from ..output import json_text, one_line, printable

__all__ = ["ReplyView", "call_words", "result_lines"]

RESULT_LINES = 8
RESULT_CHARACTERS = 1_200
ARGUMENT_CHARACTERS = 300


class ReplyView(DeltaFollower):
    """Follows one run after another. `folds_thinking` may be changed at any time."""

    def __init__(self, *, folds_thinking: bool = True, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__(seconds=seconds)
        self.folds_thinking = folds_thinking
        self._told: RunError | None = None

    def begin(self) -> None:
        """A run begins."""
        self._told = None

    def show(self, event: RunEvent) -> None:
        """Draw what an event tells."""
        match event:
            case DeltaEvent():
                self.follow(event.delta)
            case MessageEvent() if event.message.role is Role.ASSISTANT:
                self.close_part()
                for call in event.message.tool_calls:
                    self.draw_call(call)
            case ToolStartedEvent():
                self.draw_doing(f"running {one_line(event.call.tool_name)}")
            case ToolResultEvent():
                self.close_part()
                self.draw_result(event.result)
            case MediaNotShownEvent():
                self.close_part()
                self.draw_note(f"not shown to the model: {one_line(event.what)} ({one_line(event.why)})")
            case ErrorEvent():
                self.close_part()
                if event.error != self._told:
                    self.draw_error(event.error)
                self._told = event.error
            case StatusEvent():
                self._show_status(event.status)

    def end(self) -> None:
        """A run has ended, or waits for a person."""
        self.close_part()

    def fold(self) -> bool:
        """Fold the thinking, or unfold it, from now on; return whether it is folded."""
        self.folds_thinking = not self.folds_thinking
        return self.folds_thinking

    # ------------------------------------------------------------ strokes

    def draw_call(self, call: ToolCall) -> None:
        """Draw a call that a model wants made."""

    def draw_result(self, result: HistoryToolCallResult) -> None:
        """Draw what came of a call."""

    def draw_error(self, error: RunError) -> None:
        """Draw what went wrong; whether it is tried again is not known yet."""

    def draw_doing(self, words: str) -> None:
        """Say what is done now, where there is a line for passing messages."""

    # ------------------------------------------------------------ steps

    def begin_answer(self) -> None:
        """Say that a failed answer is asked for again."""
        if self._told is not None:
            self.draw_note("trying again")
            self._told = None

    def begin_call(self, tool_name: str) -> None:
        """Say which call the model writes; the whole call is drawn when it is recorded."""
        self.draw_doing(f"calling {tool_name}")

    def _show_status(self, status: AgentStatus) -> None:
        words = {
            AgentStatus.PREPARING: "preparing",
            AgentStatus.MODEL_RUNNING: "waiting for the model",
            AgentStatus.TOOL_RUNNING: "running tools",
        }
        if status in words:
            self.draw_doing(words[status])


def call_words(call: ToolCall) -> str:
    """Return a call's arguments in one line, safe and bounded."""
    if call.arguments is None:
        return (
            f"{one_line(call.raw_args_text[:ARGUMENT_CHARACTERS])} (not readable: {one_line(call.parse_error or '')})"
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
