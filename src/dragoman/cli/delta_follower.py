"""Follows the deltas of answers, for `chat` and `replay`: deltas in, calls of the drawing methods out.

Everything that a model says is made safe to print here. How it looks is decided by the subclasses.
"""

import time
from collections.abc import Callable
from typing import assert_never

from .._jsontext import join_surrogates
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
from ..message import FinishReason
from ..usage import TokenUsage
from .output import PrintablePieces, one_line

__all__ = ["DeltaFollower", "SafePieces"]


class SafePieces:
    """Makes a model's text printable that comes in pieces, also where a piece ends inside a surrogate pair."""

    def __init__(self) -> None:
        self._held = ""  # the first half of a surrogate pair
        self._pieces = PrintablePieces()

    def feed(self, piece: str) -> str:
        """Return what can be shown now; the first half of a character or line break is kept for the next piece."""
        text, self._held = self._held + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return self._pieces.feed(join_surrogates(text))

    def end(self) -> str:
        """Return what was kept."""
        held, self._held = self._held, ""
        return self._pieces.feed(join_surrogates(held)) + self._pieces.end()


class DeltaFollower:
    """Follows one answer after another. A subclass overrides the methods for the steps that it draws."""

    def __init__(self, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._open = ""  # the part that is being drawn: text, thinking, call, or none
        self._pieces = SafePieces()
        self._thought_since = 0.0
        self._thinking: list[str] = []
        self._usage = TokenUsage()

    def follow(self, delta: MessageDelta) -> None:
        """Draw what a delta adds."""
        match delta:
            case TextDelta():
                self._open_part("text")
                self.draw_text(self._pieces.feed(delta.text_delta))
            case ThinkingDelta():
                self._open_part("thinking")
                piece = self._pieces.feed(delta.text_delta)
                self._thinking.append(piece)
                self.draw_thinking(piece)
            case ToolCallStartDelta():
                self.close_part()
                self._open_part("call")
                self.begin_call(one_line(delta.tool_name))
            case ToolCallArgsDelta():
                self._open_part("call")
                self.draw_arguments(self._pieces.feed(delta.args_text_delta))
            case ToolCallEndDelta():
                self.close_part(is_whole=True)
            case UsageDelta():
                self._usage = self._usage.updated_by(delta.usage)
            case _:
                self.close_part()
                self._follow_between_parts(delta)

    def close_part(self, *, is_whole: bool = False) -> None:
        """End the part that is being drawn, if any; `is_whole` says that the model has ended its call."""
        was, self._open = self._open, ""
        rest = self._pieces.end()
        if was == "text":
            if rest:
                self.draw_text(rest)
            self.end_text()
        elif was == "thinking":
            if rest:
                self._thinking.append(rest)
                self.draw_thinking(rest)
            thought, self._thinking = "".join(self._thinking), []
            self.end_thinking(thought, self._seconds() - self._thought_since)
        elif was == "call":
            self.draw_arguments(rest)
            self.end_call(is_whole=is_whole)

    # ------------------------------------------------------------ what a subclass draws

    def begin_answer(self) -> None:
        """An answer starts."""

    def draw_text(self, piece: str) -> None:
        """Draw a piece of the answer."""

    def end_text(self) -> None:
        """The text ends here: another part follows, or the end of the answer."""

    def draw_thinking(self, piece: str) -> None:
        """Draw a piece of thinking."""

    def end_thinking(self, text: str, seconds: float) -> None:
        """The model thought this text, for so long."""

    def begin_call(self, tool_name: str) -> None:
        """The model starts to write a call."""

    def draw_arguments(self, piece: str) -> None:
        """Draw a piece of a call's arguments."""

    def end_call(self, *, is_whole: bool) -> None:
        """The call is whole, or the answer went on or broke off before its end."""

    def draw_note(self, text: str) -> None:
        """Draw a remark."""

    def end_answer(self, reason: FinishReason, usage: TokenUsage) -> None:
        """The answer is whole."""

    def fail_answer(self, error: ErrorDelta) -> None:
        """The answer broke off."""

    # ------------------------------------------------------------ steps

    def _follow_between_parts(
        self, delta: StartDelta | ProviderItemDelta | ImageDelta | UnknownDelta | DoneDelta | ErrorDelta
    ) -> None:
        match delta:
            case StartDelta():
                self._usage = TokenUsage()
                self.begin_answer()
            case ProviderItemDelta():
                self.draw_note(f"[{one_line(delta.item_type)}] {one_line(delta.text or '')}".rstrip())
            case ImageDelta():
                words = f"picture {one_line(delta.mime_type or '')} {one_line(delta.url or '')}"
                self.draw_note(f"[{words.rstrip()}]")
            case UnknownDelta():
                self.draw_note(f"[{one_line(delta.kind)}]")
            case DoneDelta():
                self.end_answer(delta.finish_reason, self._usage)
            case ErrorDelta():
                self.fail_answer(delta)
            case _:
                assert_never(delta)

    def _open_part(self, part: str) -> None:
        if self._open != part:
            self.close_part()
            self._open = part
            if part == "thinking":
                self._thought_since = self._seconds()
