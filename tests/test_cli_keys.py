"""`dragoman keys`: what is kept, what the commands use, and that no key is ever shown."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyring import get_keyring, set_keyring

from dragoman.cli import main
from dragoman.cli.modelchoice import open_model
from dragoman.cli.settings import ProviderSettings, Settings
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture
from tests.keyring_file import PLACE, FileKeyring

SECRET = "sk-planted-77aa-not-to-be-shown"


@pytest.fixture(autouse=True)
def _keyring_in_a_file() -> Iterator[None]:
    before = get_keyring()
    set_keyring(FileKeyring())
    yield
    set_keyring(before)


@pytest.fixture(name="kept")
def _an_open_keyring(user: User, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = user.folder / "keyring.json"
    monkeypatch.setenv(PLACE, str(path))
    return path


class _Pipe:
    """What a shell gives a program behind `|`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def isatty(self) -> bool:
        return False

    def read(self, size: int) -> str:
        return self._text[:size]


@pytest.mark.parametrize("name", ["openai", "OPENAI_API_KEY"])
def test_a_key_is_kept_listed_by_name_and_forgotten(
    name: str, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", _Pipe(f"{SECRET}\n"))
    assert main(["keys", "set", name]) == 0
    assert json.loads(kept.read_text()) == {"dragoman OPENAI_API_KEY": SECRET}
    assert main(["keys", "list", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out.partition("\n")[2]) == [{"name": "OPENAI_API_KEY", "isOverridden": False}]
    assert SECRET not in said.out + said.err
    assert main(["keys", "remove", name]) == 0
    assert json.loads(kept.read_text()) == {}
    assert main(["keys", "remove", name]) == 1
    assert "no key is kept as OPENAI_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["", " \n", "two\x00words", "schlüssel", "two\nlines", "k" * 16_385])
def test_what_is_no_key_is_refused_and_not_kept(
    key: str, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", _Pipe(key))
    assert main(["keys", "set", "openai"]) == 1
    assert not kept.exists()
    assert "one line of printable ASCII" in capsys.readouterr().err


def test_an_unknown_name_is_refused_with_the_one_that_was_meant(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "set", "opena"]) == 1
    assert "did you mean 'openai'?" in capsys.readouterr().err
    assert not kept.exists()


def test_a_keyring_that_is_locked_says_what_to_do_instead(
    user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert user.folder.is_dir()
    monkeypatch.setattr(sys, "stdin", _Pipe(f"{SECRET}\n"))
    assert main(["keys", "set", "openai"]) == 1
    error = capsys.readouterr().err
    assert "export OPENAI_API_KEY=" in error
    assert SECRET not in error


class BrokenKeyring(FileKeyring):
    """Fails in a way of its own, with the key in its words."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("broken")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise OSError(5, f"cannot store {password!r}")


def test_a_keyring_that_breaks_neither_shows_the_key_nor_stops_a_command(
    user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert user.folder.is_dir()
    set_keyring(BrokenKeyring())
    monkeypatch.setattr(sys, "stdin", _Pipe(f"{SECRET}\n"))
    assert main(["keys", "set", "openai"]) == 1
    error = capsys.readouterr().err
    assert "cannot be used (OSError)" in error
    assert SECRET not in error
    assert open_model(Settings(store="sessions.db"), "openai:gpt-5").client._api_key is None


def test_commands_use_a_kept_key_unless_the_environment_has_one(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(store="sessions.db")
    assert open_model(settings, "openai:gpt-5").client._api_key is None
    kept.write_text(json.dumps({"dragoman OPENAI_API_KEY": SECRET, "dragoman GROQ_API_KEY": "gsk-other"}))
    assert open_model(settings, "openai:gpt-5").client._api_key == SECRET
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    assert open_model(settings, "openai:gpt-5").client._api_key is None  # it reads the environment itself
    named = Settings(store="sessions.db", providers={"openai": ProviderSettings(key_variable="GROQ_API_KEY")})
    assert open_model(named, "openai:gpt-5").client._api_key == "gsk-other"
