"""A reply on a terminal that can move its cursor: Markdown block by block, panels, and one line for passing messages.

What is whole is printed once and stays; only the block that still grows, and a line that says what is done, are drawn
again, and these never take more lines than the screen has: nothing that has scrolled off is printed twice.
Needs the extra `chat`.
"""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from ...agent import RunError
from ...history import HistoryToolCallResult, ToolExecutionStatus
from ...message import ToolCall
from ..advice import failure_words
from ..output import fitted, one_line
from .markdown import GrowingMarkdown, make_parser
from .view import ReplyView, call_words, result_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live
    from rich.segment import Segment

__all__ = ["RichView"]

FRAME_SECONDS = 0.08
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
GROWING_CHARACTERS = 4_000  # of a long block that still grows, the end is drawn
CODE_THEMES = {"light": "ansi_light"}


class RichView(ReplyView):
    """Draws replies with rich. Needs a running event loop between `begin` and `end`."""

    def __init__(self, *, has_color: bool = True, theme: str = "auto", folds_thinking: bool = True) -> None:
        from rich.console import Console

        super().__init__(folds_thinking=folds_thinking)
        self.console: Console = Console(
            file=sys.stdout,
            force_terminal=True,
            color_system="auto" if has_color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._theme = CODE_THEMES.get(theme, "ansi_dark")
        self._parser = make_parser()
        self._growing = GrowingMarkdown()
        self._thoughts = ""
        self._doing = ""
        self._began = 0.0
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_first = True  # whether nothing of this reply is printed yet

    def begin(self) -> None:
        """Open the line for passing messages."""
        from rich.live import Live

        super().begin()
        self._is_first = True
        self._doing, self._began = "waiting for the model", time.monotonic()
        self._live = Live(
            _Passing(self),
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)
        self._tick()

    def end(self) -> None:
        """Print what is left, and remove the line for passing messages."""
        super().end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    # ------------------------------------------------------------ strokes

    def draw_text(self, piece: str) -> None:
        """Print the blocks that are whole; the growing one is drawn with the next frame."""
        self._doing = "answering"
        for block in self._growing.feed(piece):
            self._print(self.markdown(block))

    def end_text(self) -> None:
        """Print the last block."""
        for block in self._growing.end():
            self._print(self.markdown(block))

    def draw_thinking(self, piece: str) -> None:
        """Draw the last words, or all of them, with the next frame."""
        self._doing = "thinking"
        self._thoughts = (self._thoughts + piece)[-GROWING_CHARACTERS:]  # all that is ever drawn

    def end_thinking(self, text: str, seconds: float) -> None:
        """Print the one line that stands for it, or the whole."""
        from rich.padding import Padding
        from rich.text import Text

        self._thoughts = ""
        if self.folds_thinking:
            words = f"thought for {seconds:.0f} s, {len(text.split())} words (Ctrl-T or /thinking shows them)"
            self._print(Text(f"✻ {words}", style="dim"))
        elif text.strip():
            self._print(Padding(Text(text.strip(), style="dim italic"), (0, 0, 0, 2)))

    def draw_call(self, call: ToolCall) -> None:
        """Print the call as a panel."""
        self._print(self._panel(call_words(call), f"→ {one_line(call.tool_name)}", "magenta"))

    def draw_result(self, result: HistoryToolCallResult) -> None:
        """Print a few lines of the result as a panel."""
        took = f" · {result.elapsed_seconds:.1f} s" if result.elapsed_seconds is not None else ""
        style = "green" if result.status is ToolExecutionStatus.SUCCESS else "red"
        title = f"← {one_line(result.tool_name)} · {result.status}{took}"
        self._print(self._panel("\n".join(result_lines(result)), title, style))

    def draw_error(self, error: RunError) -> None:
        """Print what went wrong."""
        from rich.text import Text

        self._print(Text(f"✗ {failure_words(error)} [{error.code}]", style="red"))
        self._doing = "trying again soon" if error.retryable else "it failed"

    def draw_note(self, text: str) -> None:
        """Print a remark."""
        from rich.text import Text

        self._print(Text(text, style="dim"))

    def draw_doing(self, words: str) -> None:
        """Say it in the line that passes."""
        self._doing = words

    def markdown(self, text: str) -> "RenderableType":
        """Return Markdown as rich draws it: no links that hide where they lead, headings that fit a narrow screen."""
        return _Trimmed(_markdown_class()(self._parser.parse(text), self._theme))

    # ------------------------------------------------------------ steps

    def _panel(self, body: str, title: str, style: str) -> "RenderableType":
        from rich.panel import Panel
        from rich.text import Text

        width = self.console.width
        return Panel(
            Text(body, overflow="fold"),
            title=Text(fitted(title, max(width - 6, 10)), style=style),
            title_align="left",
            border_style="dim",
            padding=(0, 1),
        )

    def _print(self, drawn: "RenderableType") -> None:
        """Print something for good, with an empty line before it unless it is the first."""
        if not self._is_first:
            self.console.print()
        self._is_first = False
        self.console.print(drawn)

    def _tick(self) -> None:
        if self._live is None:
            return
        began = time.monotonic()
        self._live.refresh()
        took = time.monotonic() - began
        # A slow terminal must not spend all of our time on drawing.
        self._timer = asyncio.get_running_loop().call_later(max(FRAME_SECONDS, 4 * took), self._tick)

    def passing(self, console: "Console", options: "ConsoleOptions") -> "list[list[Segment]]":
        """Return the lines of what passes: the end of what grows, and what is done."""
        from rich.text import Text

        growing: RenderableType | None = None
        if self._growing.rest.strip():
            growing = self.markdown(_end_of(self._growing.rest))
        elif self._thoughts.strip() and not self.folds_thinking:
            growing = Text(self._thoughts[-GROWING_CHARACTERS:].strip(), style="dim italic")
        room = max(console.height - 3, 1)
        lines: list[list[Segment]] = []
        if growing is not None:
            if not self._is_first:
                lines += console.render_lines(Text(""), options)
            lines += console.render_lines(growing, options.update(height=None))
        status = Text(fitted(self._status_words(), options.max_width - 1), style="dim")
        return [*lines[-room:], *console.render_lines(status, options)]

    def _status_words(self) -> str:
        seconds = time.monotonic() - self._began
        turn = SPINNER[int(seconds / FRAME_SECONDS) % len(SPINNER)]
        doing = self._doing
        if self._thoughts and self.folds_thinking:
            doing = f"thinking: {one_line(self._thoughts[-200:])[-60:]}"
        return f"{turn} {seconds:.0f} s · Ctrl-C stops · {doing}"


class _Trimmed:
    """Something without the empty lines above and below it: `_print` alone decides the distances."""

    def __init__(self, drawn: "RenderableType") -> None:
        self._drawn = drawn

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        lines = console.render_lines(self._drawn, options, pad=False)
        while lines and _is_blank(lines[0]):
            del lines[0]
        while lines and _is_blank(lines[-1]):
            del lines[-1]
        for line in lines:
            yield from line
            yield Segment.line()


class _Passing:
    """What passes, as rich asks for it."""

    def __init__(self, view: RichView) -> None:
        self._view = view

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for number, line in enumerate(self._view.passing(console, options)):
            if number:
                yield Segment.line()
            yield from line


def _is_blank(line: "list[Segment]") -> bool:
    return not "".join(segment.text for segment in line).strip()


def _end_of(text: str) -> str:
    """The end of a long block, with the fence that opens it if it is code."""
    if len(text) <= GROWING_CHARACTERS:
        return text
    end = text[-GROWING_CHARACTERS:].partition("\n")[2]
    first = text.lstrip().partition("\n")[0]
    return f"{first}\n{end}" if first.startswith(("```", "~~~")) else end


def _markdown_class() -> Any:
    """The class of Markdown, which is made when rich is there."""
    global _made  # noqa: PLW0603  # rich is loaded when it is first drawn with
    if _made is None:
        _made = _make_markdown_class()
    return _made


_made: Any = None


def _make_markdown_class() -> Any:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Heading, Markdown

    class PlainHeading(Heading):
        """A heading at the left, without a box around it."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            yield self.text

    class ParsedMarkdown(Markdown):
        """Markdown that is parsed already."""

        elements = {**Markdown.elements, "heading_open": PlainHeading}  # noqa: RUF012  # as its parent has it

        def __init__(self, tokens: Any, theme: str) -> None:
            super().__init__("", code_theme=theme, hyperlinks=False)
            self.parsed = tokens

    return ParsedMarkdown
