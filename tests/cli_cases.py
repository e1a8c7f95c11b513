"""What the tests of the command line share: a user with empty folders, in this process or in one of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman.cli import main
from dragoman.wire import PROVIDERS, find_dialect

ESCAPE = "\x1b"
KEY_VARIABLES = sorted({name for provider in PROVIDERS for name in find_dialect(provider).key_variables})

WEATHER = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it raining in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "Rain, 9 °C."},
    {"role": "assistant", "content": "Yes, and it is cold."},
]


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was printed, read as JSON."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """What was printed, each line read as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class User:
    """Somebody with an empty home and a folder to work in, whom the tests' own settings do not reach."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home / "home"
        self.folder = home / "work"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.home.mkdir()
        self.folder.mkdir()
        for name in [*os.environ]:
            if name.startswith(("DRAGOMAN_", "XDG_", "AWS_")) or name in (*KEY_VARIABLES, "NO_COLOR", "COLUMNS"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("PYTHONUTF8", "1")
        monkeypatch.chdir(self.folder)

    @property
    def config_file(self) -> Path:
        """Where the user's own settings are."""
        return self.home / ".config" / "dragoman" / "config.toml"

    @property
    def store(self) -> Path:
        """Where sessions are kept by default."""
        return self.home / ".local" / "share" / "dragoman" / "sessions.db"

    def set(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self._monkeypatch.setenv(name, value)

    def write_config(self, text: str) -> None:
        """Write the user's own settings."""
        self.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text(text, encoding="utf-8")

    def write(self, name: str, content: Any) -> str:
        """Write a file into the folder, as text or as JSON, and return its name."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def run(self, *arguments: str) -> Ended:
        """Run a command in this process."""
        self._capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as ending:
            status = ending.code if isinstance(ending.code, int) else 1
        printed = self._capsys.readouterr()
        return Ended(status, printed.out, printed.err)

    def process(self, *arguments: str, given: bytes = b"") -> Ended:
        """Run a command in a process of its own."""
        command = self.command(*arguments)
        done = subprocess.run(command, input=given, capture_output=True, check=False, env={**os.environ})
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def command(self, *arguments: str) -> list[str]:
        """Return the command as a process is started with it."""
        return [sys.executable, "-W", "error", "-m", "dragoman", *arguments]

    def imported(self, messages: Any = WEATHER, *options: str) -> str:
        """Make a session of messages and return its id."""
        ended = self.run("sessions", "import", self.write("conversation.json", messages), *options)
        assert ended.status == 0, ended.err
        return ended.out.strip()


@pytest.fixture(name="user")
def empty_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> User:
    """A user with empty folders."""
    return User(tmp_path, monkeypatch, capsys)


def require_words(ended: Ended, *words: str, lines: int = 1) -> None:
    """Raise AssertionError unless the command failed with so many lines that have these words, and no traceback."""
    assert ended.status == 1, ended
    assert ended.err.count("\n") == lines, ended.err
    assert ended.err.startswith("dragoman: ")
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err, ended.err


def without_times(text: str) -> str:
    """Return a text with dates and times of day replaced."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", text)
