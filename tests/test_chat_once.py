"""`dragoman chat` for scripts: one answer, events as JSON Lines, exit statuses, and errors of one or two lines."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import from_json, to_json
from dragoman.cli.chat.main import FIRST_QUESTION
from tests.chat_peer import NAME, Parrot, Reply, parrot
from tests.chat_terminal import CTRL_C, clean_environment, terminal

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BLOCK = (
    "import sys; sys.modules.update(dict.fromkeys(['rich', 'prompt_toolkit', 'markdown_it'])); "
    "from dragoman.cli import main; sys.exit(main())"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Parrot]:
    """A server for all tests of this module."""
    with parrot() as served:
        yield served


@pytest.fixture
def home(server: Parrot, tmp_path: Path) -> Path:
    """A home folder whose settings lead to the server."""
    server.replies.clear()
    server.requests.clear()
    (tmp_path / "config.toml").write_text(server.settings())
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    """Run `dragoman chat` in that home, without a terminal."""

    def started(
        *arguments: str, stdin: str | None = "", name: str = "chat", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "dragoman", name, *arguments]
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            cwd=home,
            env=clean_environment(home, **variables),
            **given,
        )

    return started


# ---------------------------------------------------------------- one answer


def test_a_prompt_gives_the_answer_alone_on_standard_output(run: Run) -> None:
    done = run("-p", "hello", stdin=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")


@pytest.mark.parametrize("given", [("chat", "-p", "hello"), ("ask", "hello")])
def test_no_tool_is_offered_unless_it_is_asked_for(run: Run, server: Parrot, given: tuple[str, ...]) -> None:
    name, *words = given
    run(*words, stdin=None, name=name)
    assert "tools" not in server.requests[-1]


def test_a_pipe_is_the_prompt(run: Run, server: Parrot) -> None:
    done = run(stdin="from a pipe\n")
    assert (done.returncode, done.stdout) == (0, "You said: from a pipe\n")
    assert server.requests[-1]["messages"][-1]["content"] == "from a pipe"


def test_what_is_piped_goes_along_with_a_prompt(run: Run, server: Parrot) -> None:
    run("-p", "Sum this up:", stdin="a long text\n")
    assert server.requests[-1]["messages"][-1]["content"] == "Sum this up:\n\na long text"


def test_ask_answers_its_words_and_a_pipe(run: Run, server: Parrot) -> None:
    done = run("how", "are you?", stdin=None, name="ask")
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: how are you?\n", "")
    assert run(name="ask", stdin="from a pipe\n").stdout == "You said: from a pipe\n"
    run("Sum this up:", name="ask", stdin="a long text\n")
    assert server.requests[-1]["messages"][-1]["content"] == "Sum this up:\n\na long text"


def test_ask_without_a_question_says_how_to_ask(run: Run, server: Parrot) -> None:
    done = run(name="ask", stdin="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'dragoman: what is the question? Give it: dragoman ask "…", or pipe it in\n'
    assert server.requests == []


@pytest.mark.parametrize("stdin", ["", " \n", None], ids=["empty", "blank", "no device"])
def test_at_the_end_of_input_the_first_question_is_answered(run: Run, stdin: str | None) -> None:
    done = run(stdin=stdin)
    assert (done.returncode, done.stdout) == (0, f"You said: {FIRST_QUESTION}\n")
    assert FIRST_QUESTION in done.stderr


def test_the_first_question_is_the_one_of_the_readme() -> None:
    assert FIRST_QUESTION == "What is the capital of France?"


def test_only_the_last_answer_of_a_run_with_tools_is_printed(run: Run, server: Parrot) -> None:
    server.replies["work"] = Reply(text=("Let me see.",), calls=(("calculate", '{"expression": "6*7"}'),))
    done = run("-p", "work", "--tools", stdin=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The tool said: 42\n", "")


@pytest.mark.parametrize(
    ("finish", "code"),
    [("length", "output_cut"), ("content_filter", "content_filtered"), ("a_new_word", "output_unfinished")],
)
def test_an_answer_that_is_not_whole_is_printed_and_fails(run: Run, server: Parrot, finish: str, code: str) -> None:
    server.replies["tell"] = Reply(text=("Once upon",), finish=finish)
    done = run("-p", "tell", stdin=None)
    assert (done.returncode, done.stdout) == (1, "Once upon\n")
    assert done.stderr.startswith("dragoman: ")
    events = [json.loads(line) for line in run("-p", "tell", "--json", stdin=None).stdout.splitlines()]
    assert (events[-1]["payload"]["status"], events[-1]["payload"]["error"]["code"]) == ("failed", code)


def test_what_the_provider_said_is_told(run: Run, server: Parrot) -> None:
    server.replies["tell"] = Reply(status="404 Not Found")
    done = run("-p", "tell", stdin=None)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the provider said: the parrot refuses" in done.stderr


def test_an_answer_is_safe_to_print_wherever_it_goes(run: Run, server: Parrot) -> None:
    server.replies["speak"] = Reply(text=("a\x1b[31mb\x1b]52;c;eA==\x07", "\u202ec\x9b2J"))
    assert run("-p", "speak", stdin=None).stdout == "a\\x1b[31mb\\x1b]52;c;eA==\\x07\\u202ec\\x9b2J\n"


def test_a_conversation_goes_on_from_script_to_script(run: Run, server: Parrot) -> None:
    run("-s", "trip", "-p", "first", stdin=None)
    run("-c", "-p", "second", stdin=None)
    run("-s", "@", "-p", "third", stdin=None)
    said = [message["content"] for message in server.requests[-1]["messages"]]
    assert said == ["first", "You said: first", "second", "You said: second", "third"]


@pytest.mark.parametrize("name", ["chat", "ask"])
def test_a_session_goes_on_by_part_of_its_id_and_a_name_is_taken_whole(run: Run, server: Parrot, name: str) -> None:
    def ask(session: str, text: str) -> str:
        prompt = ("-p", text) if name == "chat" else (text,)
        return run("-s", session, *prompt, stdin=None, name=name).stderr

    assert "there is no session '0123456789abcdef0123456789abcdef' yet" in ask("0123456789abcdef" * 2, "first")
    assert ask("01234567", "second") == ""
    assert len(server.requests[-1]["messages"]) == 3
    assert "this begins it" in ask("job10", "first")
    assert "there is no session 'job1' yet: this begins it" in ask("job1", "other")
    assert len(server.requests[-1]["messages"]) == 1


def test_to_go_on_where_nothing_was_said_begins(run: Run) -> None:
    done = run("-c", "-p", "hello", stdin=None)
    assert (done.returncode, done.stdout) == (0, "You said: hello\n")
    assert "there is no session yet" in done.stderr


def test_options_reach_the_model(run: Run, server: Parrot) -> None:
    run("-p", "hi", "--system", "Be brief.", "--temperature", "0.5", "--max-tokens", "9", stdin=None)
    request = server.requests[-1]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["temperature"], request["max_tokens"]) == (0.5, 9)


def test_it_works_without_the_packages_of_the_screen(home: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", BLOCK, "chat", "-p", "hello"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=clean_environment(home)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")


def test_the_file_tools_are_confined_to_the_folder(run: Run, server: Parrot, home: Path) -> None:
    (home / "in").mkdir()
    (home / "secret.txt").write_text("outside\n")
    server.replies["read"] = Reply(calls=(("read_file", '{"path": "../secret.txt"}'),))
    done = run("-p", "read", "--tools", "in", stdin=None)
    assert "outside" not in done.stdout
    assert "'..' is not allowed" in done.stdout


# ---------------------------------------------------------------- events


def test_events_are_json_lines_in_their_order(run: Run, server: Parrot) -> None:
    server.replies["work"] = Reply(thinking=("Hm.",), calls=(("calculate", '{"expression": "6*7"}'),))
    done = run("-p", "work", "--tools", "--json", "-s", "trip", stdin=None)
    assert (done.returncode, "this begins it" in done.stderr) == (0, True)
    opening, *events = [json.loads(line) for line in done.stdout.splitlines()]
    assert opening == {"kind": "session", "sessionId": "trip", "model": f"llamacpp:{NAME}"}
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {event["kind"] for event in events} == {
        "status", "delta", "message", "tool_started", "tool_result", "finished",
    }  # fmt: skip
    assert events[-1]["payload"] == {"status": "completed"}
    (result,) = [event["payload"]["result"] for event in events if event["kind"] == "tool_result"]
    assert (result["toolName"], result["status"], result["result"]["live"]) == ("calculate", "success", [["", "42"]])
    for event in events:
        if event["kind"] in ("delta", "message"):
            inner = json.dumps(event["payload"][event["kind"]])
            assert json.loads(to_json(from_json(inner))) == json.loads(inner)


def test_no_event_steers_a_terminal(run: Run, server: Parrot) -> None:
    server.replies["speak"] = Reply(text=("a\x1b[31m\x9b2J\u202e",))
    done = run("-p", "speak", "--json", stdin=None)
    assert not set(done.stdout) & set("\x1b\x9b\u202e")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = "".join(
        event["payload"]["delta"]["payload"].get("textDelta", "") for event in events if event["kind"] == "delta"
    )
    assert said == "a\x1b[31m\x9b2J\u202e"


# ---------------------------------------------------------------- how it ends


def test_a_failure_is_one_line_and_1(run: Run, server: Parrot) -> None:
    server.replies["fail"] = Reply(status="401 Unauthorized")
    done = run("-p", "fail", stdin=None)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("dragoman: ")
    assert done.stderr.endswith(". Is the key right? It is taken from LLAMA_API_KEY\n")


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("400 Bad Request", f"`dragoman render @ --model llamacpp:{NAME}` shows what is sent"),
        ("403 Forbidden", f"May this key use llamacpp:{NAME}? It is taken from MY_KEY"),
        ("404 Not Found", f"Is there a model llamacpp:{NAME}? `dragoman models` lists those that are known"),
    ],
)
def test_a_failure_says_what_to_do(run: Run, server: Parrot, home: Path, status: str, advice: str) -> None:
    (home / "config.toml").write_text(server.settings() + 'key_variable = "MY_KEY"\n')
    server.replies["fail"] = Reply(status=status)
    done = run("-p", "fail", stdin=None, MY_KEY="planted")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.endswith(f". {advice}\n")


def test_a_call_that_waits_for_a_person_is_3(run: Run, server: Parrot) -> None:
    server.replies["work"] = Reply(calls=(("calculate", '{"expression": "6*7"}'),))
    done = run("-p", "work", "--tools", "--approve", "always", stdin=None)
    assert (done.returncode, done.stdout) == (3, "")
    assert "calculate waits for an approval" in done.stderr


def test_a_session_that_waits_for_an_approval_is_not_talked_to(run: Run, server: Parrot) -> None:
    server.replies["work"] = Reply(calls=(("calculate", '{"expression": "6*7"}'),))
    run("-p", "work", "--tools", "--approve", "always", "-s", "trip", stdin=None)
    for more in ((), ("--json",)):
        done = run("-s", "trip", "-p", "hello", "--tools", *more, stdin=None)
        assert done.returncode == 3
        assert "calculate waits for an approval: `dragoman chat -s trip` asks you" in done.stderr
        assert "approve or deny" not in done.stderr


def test_ctrl_c_ends_it_with_130_and_what_had_come_is_kept(server: Parrot, home: Path) -> None:
    server.replies["forever"] = Reply(text=("Once upon ", "a time "), hangs=True)
    server.let_go.clear()
    env = clean_environment(home)
    with terminal("chat", "-s", "trip", "-p", "forever", env=env, cwd=home) as screen:
        screen.expect("Once upon")
        screen.send(CTRL_C)
        assert screen.end() == 130
        assert "Traceback" not in screen.text
    assert server.let_go.wait(60)
    with terminal("sessions", "show", "trip", env=env, cwd=home) as screen:
        screen.expect("Once upon")
        assert screen.end() == 0


def test_a_reader_that_goes_away_is_no_traceback(home: Path) -> None:
    command = f"{sys.executable} -m dragoman chat -p hello --json </dev/null | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, env=clean_environment(home), cwd=home
    )
    assert '"kind":"session"' in done.stdout
    assert "Traceback" not in done.stderr


def damaged_store(home: Path) -> list[str]:
    (home / "damaged.db").write_bytes(b"this is no database, " * 100)
    return ["--store", "damaged.db"]


def foreign_store(home: Path) -> list[str]:
    connection = sqlite3.connect(home / "other.db", isolation_level=None)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    return ["--store", "other.db"]


def later_settings(home: Path) -> list[str]:
    (home / "config.toml").write_text('modle = "llamacpp:x"\n')
    return []


def broken_settings(home: Path) -> list[str]:
    (home / "config.toml").write_text("model = \n")
    return []


def no_network(home: Path) -> list[str]:
    (home / "config.toml").write_text('[providers.llamacpp]\nbase_url = "http://127.0.0.1:9/v1"\n')
    return ["--model", f"llamacpp:{NAME}"]


def device(_home: Path) -> list[str]:
    return ["--store", "/dev/full"]


def options(*given: str) -> Callable[[Path], list[str]]:
    return lambda _home: list(given)


MISTAKES: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no key": (options("--model", "anthropic:claude-sonnet-5-5"), "no key for anthropic:claude-sonnet-5-5: set"),
    "no provider": (options("--model", "nobody:x"), "there is no provider 'nobody'"),
    "no model": (options("--model", "nothing"), "provider:name"),
    "no weights": (options("--model", "local:nothing"), "there is no local model 'nothing'"),
    "no file": (options("--model", "local:nothing.gguf"), "there is no file 'nothing.gguf'"),
    "two sessions": (options("-c", "-s", "x"), "give one of them"),
    "standard input": (options("-s", "-"), "another name"),
    "no name": (options("-s", "a\nb"), "characters that can be printed"),
    "no prompt": (options("-p", " "), "the prompt is empty"),
    "no folder": (options("--tools", "nowhere"), "there is no folder 'nowhere'"),
    "no server": (options("--mcp", ""), "is no server"),
    "no program": (options("--mcp", "no-such-program-4711"), "no-such-program-4711"),
    "damaged store": (damaged_store, "--store names another store"),
    "another's database": (foreign_store, "other.db"),
    "unknown setting": (later_settings, "did you mean 'model'?"),
    "broken settings": (broken_settings, "is no TOML"),
    "no network": (no_network, "could not connect to 127.0.0.1:9 (ConnectionRefusedError). Is there a network"),
    "a device": (device, "a store is one file"),
}


@pytest.mark.slow  # each starts the program
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_or_two_lines_and_1(run: Run, home: Path, name: str) -> None:
    prepare, said = MISTAKES[name]
    given = prepare(home)
    prompt = [] if "-p" in given else ["-p", "hello"]
    done = run(*given, *prompt, stdin=None)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert said in done.stderr
    assert 1 <= done.stderr.count("\n") <= 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_store_that_another_process_keeps_locked_is_one_line(run: Run, home: Path) -> None:
    run("-p", "hello", stdin=None)
    (store,) = home.rglob("sessions.db")
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        done = run("-c", "-p", "again", stdin=None)
    finally:
        connection.close()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "locked" in done.stderr
    assert done.stderr.endswith(". Try again when the other program is done with it\n")


def test_debug_shows_where_an_error_arose(run: Run) -> None:
    done = run("--debug", "-p", "hello", "--model", "nobody:x", stdin=None)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_json_without_anything_to_answer_is_refused(home: Path) -> None:
    with terminal("chat", "--json", env=clean_environment(home), cwd=home) as screen:
        assert screen.end() == 1
        assert "--json needs something to answer" in screen.text


def test_no_key_is_kept_anywhere(run: Run, server: Parrot, home: Path) -> None:
    key = "planted-7f3a9c-not-a-vendor-shape"
    settings = server.settings() + 'key_variable = "MY_KEY"\n'
    (home / "config.toml").write_text(settings)
    for arguments in (["-p", "hello"], ["-p", "hello", "--json"], ["-p", "x", "--model", "llamacpp:y", "--debug"]):
        done = run(*arguments, stdin=None, MY_KEY=key)
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout + done.stderr
    kept = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert key.encode() not in kept


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_the_store_is_for_its_owner_alone(run: Run, home: Path) -> None:
    run("-p", "hello", stdin=None)
    (store,) = home.rglob("sessions.db")
    assert store.stat().st_mode & 0o077 == 0
