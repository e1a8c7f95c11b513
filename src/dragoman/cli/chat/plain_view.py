"""A reply on a terminal that can do nothing but print: no cursor is moved and nothing is drawn twice.

Needs no package of an extra; one answer for a script is printed in the same way, without the remarks.
"""

import re

from ...agent import RunError
from ...history import HistoryToolCallResult
from ...message import ToolCall
from ..advice import failure_words
from ..output import Output, display_width, one_line, wrapped
from .view import ReplyView, call_words, result_lines

__all__ = ["PlainView"]


class WordWrap:
    """Breaks a text that comes in pieces at its spaces, so that no word is cut by the edge of the screen."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._word: list[str] = []  # what may still grow
        self._column = 0

    def feed(self, piece: str) -> str:
        """Return what can be written now."""
        self._word.append(piece)
        if " " not in piece and "\n" not in piece:
            return ""
        *whole, last = re.split(r"(?<=[ \n])", "".join(self._word))
        self._word = [last]
        return "".join(self._placed(word) for word in whole)

    def end(self) -> str:
        """Return the last word."""
        word, self._word = self._word, []
        placed = self._placed("".join(word))
        self._column = 0
        return placed

    def _placed(self, word: str) -> str:
        used = display_width(word.rstrip())
        is_over = self._column > 0 and self._column + used > self._width
        before = "\n" if is_over else ""
        self._column = 0 if word.endswith("\n") else display_width(word) + (0 if is_over else self._column)
        return before + word


class PlainView(ReplyView):
    """Writes the answer's text as it comes to `answers`, and everything else in lines of its own to `remarks`."""

    def __init__(self, answers: Output, remarks: Output, *, folds_thinking: bool = True) -> None:
        super().__init__(folds_thinking=folds_thinking)
        self._answers = answers
        self._remarks = remarks
        self._at_start = True  # whether the cursor is at the start of a line
        self._wrap: WordWrap | None = None

    def draw_text(self, piece: str) -> None:
        """Write the piece as it is; at a terminal, broken at words."""
        if self._wrap is None and self._answers.is_terminal:
            self._wrap = WordWrap(self._answers.width - 1)
        self._write(self._answers, piece if self._wrap is None else self._wrap.feed(piece))

    def end_text(self) -> None:
        """End the line."""
        if self._wrap is not None:
            self._write(self._answers, self._wrap.end())
            self._wrap = None
        if not self._at_start:
            self._write(self._answers, "\n")

    def draw_thinking(self, piece: str) -> None:
        """Write the piece, if thinking is not folded."""
        if not self.folds_thinking:
            if self._at_start:
                self._write(self._remarks, "(thinking) ", "dim")
            self._write(self._remarks, piece, "dim")

    def end_thinking(self, text: str, seconds: float) -> None:
        """End the line, or write the one that stands for all of it."""
        if not self._at_start:
            self._write(self._remarks, "\n")
        elif self.folds_thinking:
            self._remark(f"(thought for {seconds:.0f} s, {len(text.split())} words: /thinking shows them)", "dim")

    def draw_call(self, call: ToolCall) -> None:
        """Write the call in one line."""
        self._remark(f"-> {one_line(call.tool_name)}: {call_words(call)}", "magenta")

    def draw_result(self, result: HistoryToolCallResult) -> None:
        """Write a few lines of the result."""
        took = f" in {result.elapsed_seconds:.1f} s" if result.elapsed_seconds is not None else ""
        self._remark(f"<- {one_line(result.tool_name)}: {result.status}{took}", "magenta")
        for line in result_lines(result):
            for each in wrapped(line, self._remarks.width - 4):
                self._write(self._remarks, f"   {each}\n", "dim")

    def draw_error(self, error: RunError) -> None:
        """Write what went wrong."""
        self._remark(f"[{error.code}] {failure_words(error)}", "red")

    def draw_note(self, text: str) -> None:
        """Write a remark."""
        self._remark(text, "dim")

    def _remark(self, text: str, style: str) -> None:
        for line in wrapped(text, self._remarks.width - 1):
            self._write(self._remarks, f"{line}\n", style)

    def _write(self, output: Output, text: str, style: str = "") -> None:
        if text:
            output.write(text, style)
            output.flush()
            self._at_start = text.endswith("\n")
