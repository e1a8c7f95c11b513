"""Lines from a person: with an editor where the terminal can do it, without where it cannot.

What is typed is remembered in a file for its owner alone, except for what looks like a secret. While an answer comes,
Ctrl-C and Ctrl-T are heard; what else is typed waits for the next line.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import redact
from ...files import make_private_folder
from ..output import printable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

__all__ = ["Editor", "Interrupted", "LineHistory", "PlainEditor", "PromptEditor", "hearing_interrupts", "holds_secret"]

MOST_REMEMBERED = 1_000
LONGEST_REMEMBERED = 20_000  # characters
LEAST_SECRET = 8
_SECRET_COMMAND = re.compile(r"/(?:key|token|login|pass|secret|auth)\w*", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)

Complete = Callable[[str], Iterable[str]]


class Interrupted(Exception):
    """Ctrl-C was typed where a line was asked for."""


class Editor(Protocol):
    """Where lines come from."""

    async def read(self, prompt: str, *, status: Callable[[], str] | None = None) -> str | None:
        """Return what was typed, None at the end of input; raise Interrupted for Ctrl-C."""

    async def ask(self, question: str, *, default: str = "") -> str | None:
        """Return the answer to a question, which is not remembered; None at the end of input."""

    def watching(
        self, on_interrupt: Callable[[], object], on_fold: Callable[[], object] | None = None
    ) -> AbstractContextManager[None]:
        """Hear Ctrl-C and Ctrl-T while something else is done."""


def holds_secret(line: str) -> bool:
    """Whether a line must not be remembered: it looks like a key, is said to be one, or is one of the environment's."""
    if redact(line) != line or _SECRET_COMMAND.match(line.strip()):
        return True
    return any(
        len(value) >= LEAST_SECRET and value in line
        for name, value in os.environ.items()
        if _SECRET_VARIABLE.search(name)
    )


class LineHistory:
    """What was typed, in a file: one JSON string a line, the newest last. On a full disk only this history is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """Return what is remembered, the oldest first."""
        try:
            with os.fdopen(self._open(os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                lines = [line for text in file if (line := _read_line(text)) is not None]
        except OSError:
            return []
        if len(lines) > 2 * MOST_REMEMBERED:
            self._rewrite(lines[-MOST_REMEMBERED:])
        return lines[-MOST_REMEMBERED:]

    def remember(self, line: str) -> None:
        """Add a line, unless it holds a secret."""
        if not line.strip() or len(line) > LONGEST_REMEMBERED or holds_secret(line):
            return
        try:
            with os.fdopen(self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            pass

    def _rewrite(self, lines: list[str]) -> None:
        try:
            with os.fdopen(self._open(os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError:
            pass

    def _open(self, flags: int) -> int:
        if flags & os.O_CREAT:
            make_private_folder(self._path.parent)
        descriptor = os.open(self._path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
        if hasattr(os, "fchmod"):
            try:
                os.fchmod(descriptor, 0o600)  # also if another program made it
            except OSError:
                os.close(descriptor)
                raise
        return descriptor


def _read_line(text: str) -> str | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, str) else None


@contextmanager
def hearing_interrupts(on_interrupt: Callable[[], object]) -> Iterator[None]:
    """Take Ctrl-C as it comes from a terminal that still makes signals, or from `kill`."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    except (NotImplementedError, RuntimeError):  # a platform, or a thread, that has none
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)  # the loop would leave Python's own


# ---------------------------------------------------------------- without an editor


class PlainEditor:
    """Lines as the terminal itself gives them; a line that ends in a backslash goes on in the next."""

    def __init__(self, history: LineHistory | None = None) -> None:
        self._history = history
        self._buffer = b""
        self._is_over = False

    async def read(self, prompt: str, *, status: Callable[[], str] | None = None) -> str | None:  # noqa: ARG002  # it is printed by the chat
        """Return what was typed."""
        lines: list[str] = []
        while True:
            line = await self._line("... " if lines else prompt)
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith("\\"):
                text = "\n".join([*lines, line])
                if self._history is not None:
                    self._history.remember(text)
                return text
            lines.append(line[:-1])

    async def ask(self, question: str, *, default: str = "") -> str | None:
        """Return the answer; an empty one is the default."""
        answer = await self._line(f"{printable(question)} ")
        return default if answer == "" else answer

    def watching(
        self,
        on_interrupt: Callable[[], object],
        on_fold: Callable[[], object] | None = None,  # noqa: ARG002  # there is no such key
    ) -> AbstractContextManager[None]:
        """Hear Ctrl-C."""
        return hearing_interrupts(on_interrupt)

    async def _line(self, prompt: str) -> str | None:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        came: asyncio.Future[bytes | None] = loop.create_future()

        def interrupt() -> None:
            if not came.done():
                came.set_exception(Interrupted())

        def look() -> None:
            if b"\n" not in self._buffer and not self._is_over:
                data = os.read(sys.stdin.fileno(), 65_536)
                self._buffer += data
                self._is_over = not data
            line, newline, rest = self._buffer.partition(b"\n")
            if came.done() or not (newline or self._is_over):
                return
            self._buffer = rest
            self._is_over = False  # a terminal may go on after Ctrl-D
            came.set_result(line if newline or line else None)

        with hearing_interrupts(interrupt):
            if b"\n" in self._buffer:
                look()
            loop.add_reader(sys.stdin.fileno(), look)
            try:
                line = await came
            finally:
                loop.remove_reader(sys.stdin.fileno())
        if line is None:
            sys.stdout.write("\n")  # the prompt's own line is not ended
            return None
        return line.decode("utf-8", "replace").rstrip("\r")


# ---------------------------------------------------------------- with an editor


class PromptEditor:
    """Lines with an editor: Enter sends, Alt-Enter or a backslash at the end begins a new line, Tab completes."""

    def __init__(
        self, history: LineHistory, *, complete: Complete, on_fold: Callable[[], None], has_color: bool = True
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.enums import EditingMode
        from prompt_toolkit.output import ColorDepth

        depth = None if has_color else ColorDepth.DEPTH_1_BIT
        self._session: PromptSession[str] = PromptSession(
            history=_prompt_history(history),
            completer=_completer(complete),
            complete_while_typing=False,
            key_bindings=_bindings(on_fold),
            multiline=True,
            prompt_continuation="… ",
            editing_mode=EditingMode.EMACS,
            enable_open_in_editor=False,
            color_depth=depth,
        )
        self._questions: PromptSession[str] = PromptSession(color_depth=depth)

    async def read(self, prompt: str, *, status: Callable[[], str] | None = None) -> str | None:
        """Return what was typed, with a status line below while it is typed."""
        toolbar: AnyFormattedText = None if status is None else lambda: [("class:bottom-toolbar.text", status())]
        return await _answer(self._session, prompt, bottom_toolbar=toolbar)

    async def ask(self, question: str, *, default: str = "") -> str | None:
        """Return the answer; the default can be edited."""
        return await _answer(self._questions, f"{printable(question)} ", default=default)

    @contextmanager
    def watching(
        self, on_interrupt: Callable[[], object], on_fold: Callable[[], object] | None = None
    ) -> Iterator[None]:
        """Hear Ctrl-C and Ctrl-T; other keys wait for the next line."""
        from prompt_toolkit.input.typeahead import store_typeahead
        from prompt_toolkit.keys import Keys

        keyboard = self._session.app.input

        def look() -> None:
            kept = []
            for press in keyboard.read_keys():
                if press.key == Keys.ControlC:
                    on_interrupt()
                elif press.key == Keys.ControlT and on_fold is not None:
                    on_fold()
                else:
                    kept.append(press)
            store_typeahead(keyboard, kept)

        with hearing_interrupts(on_interrupt), keyboard.raw_mode(), keyboard.attach(look):
            yield


async def _answer(session: "PromptSession[str]", prompt: str, **settings: Any) -> str | None:
    try:
        return await session.prompt_async(prompt, **settings)
    except KeyboardInterrupt:
        raise Interrupted from None
    except EOFError:
        return None


def _bindings(on_fold: Callable[[], None]) -> "KeyBindings":
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-t")
    def _(_event: "KeyPressEvent") -> None:
        run_in_terminal(on_fold)

    return bindings


def _completer(complete: Complete) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class CommandCompleter(Completer):
        """Completes the words of commands."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002  # as it is called
            typed = document.text_before_cursor
            if "\n" in typed:
                return
            word = typed.rpartition(" ")[2]
            for found in complete(typed):
                yield Completion(found, start_position=-len(word))

    return CommandCompleter()


def _prompt_history(history: LineHistory) -> Any:
    from prompt_toolkit.history import History

    class RememberedHistory(History):
        """What was typed, as the editor asks for it."""

        def load_history_strings(self) -> Iterable[str]:
            return reversed(history.load())

        def store_string(self, string: str) -> None:
            history.remember(string)

    return RememberedHistory()
