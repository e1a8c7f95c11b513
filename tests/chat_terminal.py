"""A chat in a real pseudo-terminal: the program on one end, a terminal emulator on the other, which says what a person
would see. Nothing waits for time: a test waits for what is on the screen.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte

PATIENCE = 30  # seconds until a waiting test gives up
CTRL_C, CTRL_D, CTRL_T, ALT_ENTER, TAB, UP = "\x03", "\x04", "\x14", "\x1b\r", "\t", "\x1b[A"


def clean_environment(home: Path, **variables: str) -> dict[str, str]:
    """Return an environment without keys and settings of this machine, with folders of its own."""
    names = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept |= {"LANG": "C.UTF-8", "TERM": "xterm-256color", "HOME": str(home)}
    if (home / "config.toml").is_file():
        kept["DRAGOMAN_CONFIG"] = str(home / "config.toml")
    return {**kept, **variables}


class _Screen(pyte.HistoryScreen):
    """An emulator. A program may ask where the cursor is, and a terminal answers."""

    answer: Callable[[str], None]

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """A terminal of a size, and what a program shows on it."""

    def __init__(self, *arguments: str, env: dict[str, str], cwd: Path, columns: int = 80, rows: int = 24) -> None:
        self.screen = _Screen(columns, rows, history=10_000, ratio=1.0)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""  # everything that the program has sent
        self._sent_from = -1  # the line from which something was sent last, counted from the very first
        command = ["-W", "error", "-m", "dragoman", *arguments]
        self._child = pexpect.spawn(
            sys.executable, command, env=env, cwd=str(cwd), dimensions=(rows, columns), encoding=None, timeout=PATIENCE
        )
        self._child.delaybeforesend = None
        self.screen.answer = self.send

    @property
    def display(self) -> list[str]:
        """The lines on the screen now."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """Everything that a person can see, also by scrolling back."""
        past = ["".join(line[column].data for column in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*past, *self.screen.display])

    @property
    def prompt(self) -> str | None:
        """What stands on the line of the cursor after the prompt, None if there is no prompt."""
        line = self.screen.display[self.screen.cursor.y]
        return line[2:].rstrip() if line.startswith("> ") and not self.screen.cursor.hidden else None

    def send(self, keys: str) -> None:
        """Type."""
        self._child.send(keys.encode())

    def say(self, line: str) -> None:
        """Wait for the prompt, type a line and send it."""
        self.ready()
        self.send(line)
        self.until(lambda: self.prompt == line, f"{line!r} after the prompt")
        self.enter()

    def enter(self) -> None:
        """Send what was typed."""
        self._sent_from = self._line
        self.send("\r")

    def ready(self) -> None:
        """Wait for an empty prompt, below the line that was sent last."""
        self.until(lambda: self.prompt == "" and self._line > self._sent_from, "the prompt")

    @property
    def _line(self) -> int:
        return len(self.screen.history.top) + int(self.screen.cursor.y)

    def expect(self, text: str, *, times: int = 1) -> None:
        """Wait until a text can be seen."""
        self.until(lambda: self.text.count(text) >= times, repr(text))

    def until(self, fact: Callable[[], bool], words: str) -> None:
        """Wait until something is so."""
        while not fact():
            try:
                data = self._child.read_nonblocking(65_536, timeout=PATIENCE)
            except (pexpect.TIMEOUT, pexpect.EOF) as end:
                raise AssertionError(f"{type(end).__name__} while waiting for {words}; seen:\n{self.text}") from None
            self.take(data)

    def take(self, data: bytes) -> None:
        """Draw what the program has sent."""
        self.raw += data
        self._stream.feed(data)

    def end(self) -> int:
        """Wait until the program has ended, and return its exit status."""
        while True:
            try:
                data = self._child.read_nonblocking(65_536, timeout=PATIENCE)
            except pexpect.EOF:
                break
            self.take(data)
        self._child.close()
        assert self._child.exitstatus is not None, f"it was ended by signal {self._child.signalstatus}:\n{self.text}"
        return int(self._child.exitstatus)

    def close(self) -> None:
        """End the program, whatever it does."""
        if self._child.isalive():
            self._child.close(force=True)


@contextmanager
def terminal(*arguments: str, env: dict[str, str], cwd: Path, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """Run a command in a terminal, and see that it has ended."""
    opened = Terminal(*arguments, env=env, cwd=cwd, columns=columns, rows=rows)
    try:
        yield opened
    finally:
        opened.close()
