"""`dragoman chat` in a real pseudo-terminal, with a model that says what the test wants."""

import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.chat_peer import NAME, Parrot, Reply, parrot
from tests.chat_terminal import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    CTRL_T,
    TAB,
    UP,
    Terminal,
    clean_environment,
    terminal,
)
from tests.mcp_cases import OFFICIAL

pytestmark = pytest.mark.slow  # each starts programs

Open = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture(scope="module")
def server() -> Iterator[Parrot]:
    """A server for all tests of this module; each sets the replies that it wants."""
    with parrot() as served:
        yield served


@pytest.fixture
def chat(server: Parrot, tmp_path: Path) -> Open:
    """Open a chat at the server in a terminal, in folders of the test's own."""
    server.replies.clear()
    server.requests.clear()
    server.let_go.clear()
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(server.settings())

    def opened(
        *arguments: str, columns: int = 80, rows: int = 24, **variables: str
    ) -> AbstractContextManager[Terminal]:
        env = clean_environment(home, **variables)
        return terminal("chat", *arguments, env=env, cwd=tmp_path, columns=columns, rows=rows)

    return opened


def sent(server: Parrot, place: int = -1) -> list[tuple[str, str]]:
    """Return who said what in a request."""
    return [(message["role"], message["content"]) for message in server.requests[place]["messages"]]


# ---------------------------------------------------------------- talking


def test_a_conversation_goes_on_and_is_kept(chat: Open, server: Parrot) -> None:
    with chat() as screen:
        screen.say("hello")
        screen.expect("You said: hello")
        screen.say("again")
        screen.expect("You said: again")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    assert sent(server) == [("user", "hello"), ("assistant", "You said: hello"), ("user", "again")]


def test_the_status_line_has_model_tokens_cache_and_context(chat: Open, server: Parrot) -> None:
    server.replies["hello"] = Reply(text=("Hi.",), cached=50)
    with chat() as screen:
        screen.say("hello")
        screen.expect(f"llamacpp:{NAME} · 100 in (50% cached) · 7 out · context ")
        assert "2 live" in screen.text


def test_markdown_is_drawn_and_nothing_of_it_is_lost(chat: Open, server: Parrot) -> None:
    text = "# Title\n\nSome **bold** words and List<int>.\n\n- one\n- two\n\n"
    text += "```python\nprint(1)\n```\n\n| x |\n|---|\n| 7 |\n"
    server.replies["draw"] = Reply(text=tuple(text))
    with chat() as screen:
        screen.say("draw")
        screen.ready()
        for seen in ("Title", "Some bold words and List<int>.", " • one", " • two", " print(1)", " 7"):
            assert seen in screen.text
        assert "**" not in screen.text
        assert "```" not in screen.text


def test_what_is_longer_than_the_screen_is_printed_once(chat: Open, server: Parrot) -> None:
    lines = [f"- item number {number:03}\n" for number in range(120)]
    server.replies["count"] = Reply(text=("Here:\n\n", *lines, "\nDone."))
    with chat(rows=12) as screen:
        screen.say("count")
        screen.expect("Done.")
        screen.ready()
        numbers = [line.split()[-1] for line in screen.text.splitlines() if "item number" in line]
        assert numbers == [f"{number:03}" for number in range(120)]


def test_thinking_is_one_line_until_it_is_unfolded(chat: Open, server: Parrot) -> None:
    server.replies["think"] = Reply(thinking=("Deep ", "thoughts."), text=("So be it.",))
    with chat() as screen:
        screen.say("think")
        screen.expect("So be it.")
        screen.ready()
        assert "Deep" not in screen.text
        assert "2 words" in screen.text
        screen.say("/thinking")
        screen.expect("Deep thoughts.")
        screen.say("think")
        screen.expect("Deep thoughts.", times=2)
        screen.ready()
        screen.send(CTRL_T)
        screen.expect("thinking is folded")


def test_calls_and_results_are_panels(chat: Open, server: Parrot, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("".join(f"line {number}\n" for number in range(50)))
    server.replies["read"] = Reply(calls=(("read_file", '{"path": "a.txt"}'),))
    server.replies["after tools"] = Reply(text=("It has fifty lines.",))
    with chat("--tools", "notes") as screen:
        screen.say("read")
        screen.expect("It has fifty lines.")
        assert "─ → read_file ─" in screen.text
        assert 'path="a.txt"' in screen.text
        assert "─ ← read_file · success" in screen.text
        assert "8: line 7" in screen.text
        assert "… 42 more lines" in screen.text
        assert "9: line 8" not in screen.text
        screen.say("/tools")
        screen.expect("search_files")


def test_a_call_that_cannot_be_made_is_told_too(chat: Open, server: Parrot) -> None:
    server.replies["try"] = Reply(calls=(("fly", "{}"),))
    server.replies["after tools"] = Reply(text=("I cannot fly.",))
    with chat() as screen:
        screen.say("try")
        screen.expect("I cannot fly.")
        assert "─ ← fly · failed" in screen.text
        assert "unknown_tool" in screen.text


# ---------------------------------------------------------------- keys


def test_ctrl_c_stops_the_reply_and_keeps_the_session(chat: Open, server: Parrot) -> None:
    server.replies["forever"] = Reply(text=("Once upon a time ", "there was"), hangs=True)
    with chat() as screen:
        screen.say("forever")
        screen.expect("there was")
        screen.send(CTRL_C)
        screen.expect("stopped: what had come is kept")
        screen.say("go on")
        screen.expect("You said: go on")
        screen.ready()
        assert screen.text.count("Once upon a time") == 1
    assert server.let_go.wait(60), "the connection was not closed"
    said = sent(server)
    assert said[0] == ("user", "forever")
    assert any(role == "assistant" and "Once upon a time there was" in text for role, text in said)


def test_what_is_typed_during_a_reply_waits_for_the_prompt(chat: Open, server: Parrot) -> None:
    server.replies["forever"] = Reply(text=("Once ",), hangs=True)
    with chat() as screen:
        screen.say("forever")
        screen.expect("Once")
        screen.send("typed early")
        screen.send(CTRL_C)
        screen.expect("stopped")
        screen.until(lambda: screen.prompt == "typed early", "what was typed")


def test_a_second_ctrl_c_at_the_prompt_leaves(chat: Open) -> None:
    with chat() as screen:
        screen.ready()
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again, or Ctrl-D, to leave")
        screen.ready()
        screen.send(CTRL_C)
        assert screen.end() == 0


@pytest.mark.parametrize("newline", [ALT_ENTER, "\\\r"], ids=["Alt-Enter", "backslash"])
def test_a_line_can_have_several_lines(chat: Open, server: Parrot, newline: str) -> None:
    with chat() as screen:
        screen.ready()
        screen.send("first")
        screen.send(newline)
        screen.expect("…")
        screen.send("second")
        screen.expect("… second")
        screen.enter()
        screen.expect("You said: first second")  # Markdown joins the lines of a paragraph
    assert sent(server) == [("user", "first\nsecond")]


def test_commands_are_completed(chat: Open) -> None:
    with chat() as screen:
        screen.ready()
        screen.send("/noteb" + TAB)
        screen.until(lambda: screen.prompt == "/notebook", "the completed command")


def test_lines_are_remembered_for_the_owner_alone_and_keys_are_not(chat: Open, tmp_path: Path) -> None:
    key = "sk-" + "proj-0123456789abcdefghij"
    with chat(MY_TOKEN="planted-value-4711") as screen:
        screen.say("plain words")
        screen.expect("You said: plain words")
        for secret in (f"my key is {key}", "it is planted-value-4711"):
            screen.say(secret)
            screen.expect("looks like a key")
            screen.send("d\r")
            screen.expect("dropped")
            screen.ready()
        screen.say("/key abcdef")
        screen.expect("there is no command /key")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    (history,) = tmp_path.rglob("chat_history")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert history.read_text() == '"plain words"\n'
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert key.encode() not in kept
    assert b"planted-value-4711" not in kept
    with chat("-c") as screen:
        screen.ready()
        screen.send(UP)
        screen.until(lambda: screen.prompt == "plain words", "the remembered line")


def test_a_key_in_what_is_said_can_be_blanked_out(chat: Open, server: Parrot) -> None:
    with chat() as screen:
        screen.say("password = hunter2222")
        screen.expect("looks like a key")
        screen.send("b\r")
        screen.expect("You said: password = [redacted]")
    assert "hunter2222" not in str(server.requests)


# ---------------------------------------------------------------- sessions


def test_a_session_goes_on_in_a_new_process(chat: Open, server: Parrot) -> None:
    with chat("-s", "trip") as screen:
        screen.say("remember the boat")
        screen.expect("You said: remember the boat")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    with chat("-c") as screen:
        screen.expect("going on with trip")
        screen.expect("> remember the boat")
        screen.expect("< You said: remember the boat")
        screen.say("which boat?")
        screen.expect("You said: which boat?")
    assert sent(server)[0] == ("user", "remember the boat")
    with chat("-s", "trip") as screen:
        screen.expect("going on with trip")


def test_undo_goes_back_before_the_last_turn_and_loses_nothing(chat: Open, server: Parrot) -> None:
    with chat("-s", "trip") as screen:
        screen.say("keep this")
        screen.expect("You said: keep this")
        screen.say("take this back")
        screen.expect("You said: take this back")
        screen.say("/undo")
        screen.expect("back before: take this back")
        screen.say("instead")
        screen.expect("You said: instead")
        screen.ready()
        assert [text for _, text in sent(server)] == ["keep this", "You said: keep this", "instead"]
        screen.say("/sessions trip")
        screen.expect("now in trip")
        screen.say("and on")
        screen.expect("You said: and on")
    assert [text for _, text in sent(server)][2] == "take this back"


def test_a_fork_and_its_origin_go_their_own_ways(chat: Open, server: Parrot) -> None:
    with chat("-s", "trip") as screen:
        screen.say("common")
        screen.expect("You said: common")
        screen.say("/fork other")
        screen.expect("now in other, forked from trip")
        screen.say("in the fork")
        screen.expect("You said: in the fork")
        screen.say("/sessions trip")
        screen.expect("now in trip")
        screen.say("in the origin")
        screen.expect("You said: in the origin")
    assert [text for _, text in sent(server)] == ["common", "You said: common", "in the origin"]


def test_a_conversation_is_exported_for_the_owner_alone(chat: Open, tmp_path: Path) -> None:
    with chat() as screen:
        screen.say("write this down")
        screen.expect("You said: write this down")
        for command, said in (
            ("/export talk.md", "written to talk.md as markdown"),
            ("/export talk.jsonl", "written to talk.jsonl as jsonl"),
            ("/export talk.json anthropic", "written to talk.json as anthropic"),
            ("/export talk.md", "talk.md is there already"),
            ("/export talk.txt", "which format?"),
            ("/export no/such/folder.md", "cannot be written: No such file or directory"),
        ):
            screen.say(command)
            screen.expect(said)
            screen.ready()
    for name in ("talk.md", "talk.jsonl", "talk.json"):
        assert "write this down" in (tmp_path / name).read_text()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_the_model_is_switched_in_mid_conversation(chat: Open, server: Parrot) -> None:
    with chat() as screen:
        screen.say("to the first")
        screen.expect("You said: to the first")
        screen.say("/model llamacpp:macaw")
        screen.expect("now talking to llamacpp:macaw")
        screen.say("to the second")
        screen.expect("You said: to the second")
        screen.say("/cost")
        screen.expect("all together")
        screen.ready()
        assert f"llamacpp:{NAME}" in screen.text
        screen.send(CTRL_D)
        assert screen.end() == 0
    assert [request["model"] for request in server.requests] == [NAME, "macaw"]
    assert sent(server)[0] == ("user", "to the first")
    with chat("-c") as screen:  # with the model that was asked last
        screen.expect("llamacpp:macaw (as before)")


SENSELESS = {
    "/model anthropic:claude-x": "no key for anthropic:claude-x: set ANTHROPIC_API_KEY",
    "/model nobody:x": "there is no provider 'nobody'",
    "/model gpt-5": "which one of",
    "/model local:nothing": "there is no local model 'nothing'",
    "/undo": "there is no conversation yet",
    "/fork": "there is no conversation yet",
    "/export": "there is no conversation yet",
    "/retry": "there is nothing to ask again",
    "/approve": "no call waits for an answer",
    "/frok": "did you mean 'fork'?",
    "/sessions nothing": "there is no session 'nothing'",
}


def test_a_command_that_makes_no_sense_is_a_line_and_the_chat_goes_on(chat: Open) -> None:
    with chat(rows=60) as screen:
        for command, said in SENSELESS.items():
            before = screen.text.count(said)
            screen.say(command)
            screen.expect(said, times=before + 1)
        screen.say("still there?")
        screen.expect("You said: still there?")
        assert "Traceback" not in screen.text


def test_the_context_is_shown_by_message_and_level(chat: Open) -> None:
    with chat("--system", "Be a parrot.") as screen:
        screen.say("what do you see?")
        screen.expect("You said: what do you see?")
        screen.say("/context")
        screen.expect("entries: 2 live")
        screen.ready()
        for role, said in (("system", "Be a parrot."), ("user", "what do you see?"), ("assistant", "You said:")):
            assert any(role in line and said in line for line in screen.text.splitlines())


def test_the_notebook_is_shown_and_set(chat: Open) -> None:
    with chat() as screen:
        screen.say("hello")
        screen.expect("You said: hello")
        screen.say("/notebook")
        screen.expect("(the notebook is empty)")
        screen.say("/notebook set Feed the parrot.")
        screen.expect("Feed the parrot.", times=2)
        screen.say("/notebook clear")
        screen.expect("(the notebook is empty)", times=2)


def test_help_lists_every_command(chat: Open) -> None:
    with chat() as screen:
        screen.say("/help")
        screen.expect("Ctrl-D leaves", times=2)
        for name in ("model", "tools", "notebook", "context", "fork", "undo", "export", "sessions", "cost", "approve"):
            assert f"/{name}" in screen.text
        screen.say("/quit")
        assert screen.end() == 0


# ---------------------------------------------------------------- approval


def approving(server: Parrot, name: str = "calculate") -> None:
    server.replies["work"] = Reply(calls=((name, '{"expression": "6*7"}'),))


def test_a_call_is_approved_refused_or_changed_where_it_is_asked(chat: Open, server: Parrot) -> None:
    approving(server)
    with chat("--tools", "--approve", "always") as screen:
        screen.say("work")
        screen.expect("Run calculate? [y]es, [n]o, [e]dit:")
        screen.send("y\r")
        screen.expect("The tool said: 42")
        screen.say("work")
        screen.expect("Run calculate?", times=2)
        screen.send("n\r")
        screen.expect("Why not?")
        screen.send("too hard\r")
        screen.expect("The tool said: It was not run: the user refused it. too hard")
        screen.say("work")
        screen.expect("Run calculate?", times=3)
        screen.send("e\r")
        screen.expect('Arguments: {"expression":"6*7"}')
        screen.send("\x7f" * 5 + '7*7"}\r')
        screen.expect("The tool said: 49")


def test_a_call_that_is_left_open_waits_for_a_command_and_a_new_process(chat: Open, server: Parrot) -> None:
    approving(server)
    with chat("--tools", "--approve", "always") as screen:
        screen.say("work")
        screen.expect("Run calculate?")
        screen.send(CTRL_C)
        screen.expect("left open: /approve and /deny answer it")
        screen.say("something else")
        screen.expect("answer the calls")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    with chat("-c", "--tools", "--approve", "always") as screen:
        screen.expect("calls of the last run wait for an answer")
        screen.expect("Run calculate?")
        screen.send(CTRL_C)
        screen.expect("left open")
        screen.say('/approve {"expression": "1+1"}')
        screen.expect("The tool said: 2")


def test_tools_of_an_mcp_server_of_the_settings_ask_first(chat: Open, server: Parrot, tmp_path: Path) -> None:
    settings = tmp_path / "home" / "config.toml"
    command = f'command = "{sys.executable}"\nargs = ["-m", "mcp_server_time", "--local-timezone", "UTC"]\n'
    settings.write_text(f"{server.settings()}[mcp_servers.clock]\n{command}")
    server.replies["when?"] = Reply(calls=(("clock_get_current_time", '{"timezone": "UTC"}'),))
    server.replies["after tools"] = Reply(text=("That is the time.",))
    with chat() as screen:
        screen.say("when?")
        screen.expect("Run clock_get_current_time?")
        screen.send("y\r")
        screen.expect("That is the time.")
        assert '"timezone": "UTC"' in screen.text
        screen.say("/tools")
        screen.expect("asks first")
    with chat("--no-mcp") as screen:
        screen.say("/tools")
        screen.expect("no tools are on")


def test_a_question_of_an_mcp_server_is_asked_and_answered(chat: Open, server: Parrot, tmp_path: Path) -> None:
    settings = tmp_path / "home" / "config.toml"
    inn = f'command = "{sys.executable}"\nargs = ["{OFFICIAL}"]\nallow_elicitation = true\n'
    settings.write_text(f"{server.settings()}[mcp_servers.inn]\n{inn}")
    server.replies["book"] = Reply(calls=(("inn_book", "{}"),))
    server.replies["after tools"] = Reply(text=("It is booked.",))
    with chat("--approve", "never") as screen:
        screen.say("book")
        screen.expect("inn asks: Who comes, and for how long?")
        screen.expect("Answer it?")
        screen.send("y\r")
        screen.expect("name (Your name; string):")
        screen.send("Ada\r")
        screen.expect("nights (Nights; integer; may be empty):")
        screen.send("x\r")
        screen.expect("that is not a whole number")
        screen.send("\r")
        screen.expect("A room for Ada, 1 nights.")
        screen.expect("It is booked.")
        screen.say("book")
        screen.expect("Answer it?", times=2)
        screen.send(CTRL_C)
        screen.expect("No room: cancel.")
        screen.ready()


# ---------------------------------------------------------------- what goes wrong


def test_a_failure_is_told_and_can_be_tried_again(chat: Open, server: Parrot) -> None:
    server.replies["fail"] = Reply(status="401 Unauthorized")
    with chat() as screen:
        screen.say("fail")
        screen.expect("[authentication]")
        screen.expect("Is the key right? It is taken from LLAMA_API_KEY. /retry asks again")
        del server.replies["fail"]
        screen.say("/retry")
        screen.expect("You said: fail")
        screen.ready()
        assert "Traceback" not in screen.text


HOSTILE = (
    "Red \x1b[31mtext, a title \x1b]0;owned\x07, a clipboard \x1b]52;c;ZXZpbA==\x07, C1 \x9b2J and \x90q\x9c, "
    "back\x08space, bell\x07, return\rover, \u202etxt.exe\u202c, \u2066isolated\u2069, form\x0cfeed, del\x7f, "
    "unseen \U000e0041\u2060\ufeff"
)


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_nothing_that_a_model_or_a_tool_says_steers_the_terminal(
    chat: Open, server: Parrot, tmp_path: Path, term: str
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "evil.txt").write_text(HOSTILE.replace("\r", " "), encoding="utf-8")
    server.replies["speak"] = Reply(thinking=(HOSTILE,), text=tuple(HOSTILE))
    server.replies["read"] = Reply(calls=(("read_file", '{"path": "evil.txt"}'), ("x\x1b[2J", '{"a":"\\u001b[5m"}')))
    server.replies["after tools"] = Reply(text=("Done.",))
    with chat("--tools", "files", TERM=term) as screen:
        screen.say("/thinking")
        screen.say("speak")
        screen.ready()
        screen.say("read")
        screen.expect("Done.")
        screen.ready()
        screen.say("/context")
        screen.ready()
        for shown in (r"\x1b]52;c;", r"\x9b2J", r"\x07", r"\u202e", r"\u2066", r"\x08", r"\U000e0041"):
            assert shown in screen.text
        screen.send(CTRL_D)
        assert screen.end() == 0
    printed = screen.raw.decode()
    assert not set(printed) & {chr(code) for code in range(0x80, 0xA0)}, "a C1 character reached the terminal"
    assert not set(printed) & set("\x07\x0c\x7f\u202e\u2066\U000e0041\u2060\ufeff")
    assert "back\x08" not in printed  # the editor moves the cursor with it, too
    assert "\x1b]" not in printed
    assert "\x1b[31mtext" not in printed
    assert "\x1b[2J" not in printed
    assert "\x1b[5m" not in printed


# ---------------------------------------------------------------- terminals


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["colour", "no colour", "dumb"])
def test_a_screen_of_any_kind_reads_well(chat: Open, server: Parrot, columns: int, variables: dict[str, str]) -> None:
    words = "The quick brown parrot jumps over the lazy dog and sits down on the windowsill again."
    server.replies["talk"] = Reply(text=(words[:33], words[33:], "\n\n- one\n- two\n"), thinking=("Hm.",))
    with chat("--tools", columns=columns, **variables) as screen:
        screen.say("talk")
        screen.ready()
        screen.say("/help")
        screen.ready()
        screen.say("/cost")
        screen.ready()
        lines = screen.text.splitlines()
        assert words in " ".join(line.strip() for line in lines), "a word was cut by the edge"
        assert not any(len(line) > columns for line in lines)
        screen.send(CTRL_D)
        assert screen.end() == 0
    colours = [code for codes in re.findall(rb"\x1b\[([\d;]*)m", screen.raw) for code in codes.split(b";")]
    assert bool(variables) is not any(code and 30 <= int(code) <= 49 for code in colours)
    if "TERM" in variables:
        assert b"\x1b" not in screen.raw


def test_plain_lines_can_be_asked_for(chat: Open) -> None:
    with chat("--plain", NO_COLOR="1") as screen:
        screen.say("hello")
        screen.expect("You said: hello")
        screen.ready()
        assert b"\x1b" not in screen.raw


def test_without_the_packages_of_the_screen_the_lines_are_plain(chat: Open, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules.update(rich=None, prompt_toolkit=None)\n")
    with chat(PYTHONPATH=str(tmp_path)) as screen:
        screen.expect("for a better screen: pip install 'dragoman[chat]'")
        screen.say("hello")
        screen.expect("You said: hello")
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0


def test_a_dumb_terminal_stops_a_reply_and_takes_several_lines(chat: Open, server: Parrot) -> None:
    server.replies["forever"] = Reply(text=("Once upon ", "a time"), hangs=True)
    with chat(TERM="dumb") as screen:
        screen.say("forever")
        screen.expect("Once upon")
        screen.send(CTRL_C)
        screen.expect("stopped")
        screen.ready()
        screen.send("one\\\r")
        screen.expect("...")
        screen.send("two\r")
        screen.expect("two", times=2)
        screen.ready()
        screen.send(CTRL_D)
        assert screen.end() == 0
    assert sent(server)[-1] == ("user", "one\ntwo")
