"""`dragoman sessions`: what it lists and shows, what it changes, how conversations get in and out, what it refuses."""

import asyncio
import json
import os
import pty
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.conversations import FORMATS, detect_format
from dragoman.cli.stores import short_ids
from dragoman.errors import UnreadableData
from dragoman.history import ClientAnswerEntry, ClientRequestEntry, entry_from_json
from dragoman.message import Message, Thinking, ToolCall, UnknownPart
from dragoman.store import SQLiteStore, open_session, start_session
from dragoman.testing.stores import sample_entries
from tests.cli_cases import WEATHER, User, empty_user, require_words, without_times  # noqa: F401  # the fixture
from tests.interop_cases import ANTHROPIC, CHAT, RESPONSES, SAMPLES, make_database
from tests.postgres_server import Place
from tests.store_cases import stored, with_flipped_byte
from tests.test_interop_rollouts import BEGUN, FORK, SESSION, TAKEN_BACK, write_family

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def keep(user: User, *names: str) -> None:
    """Put sample sessions into the user's store."""
    user.store.parent.mkdir(parents=True, exist_ok=True)
    stored(user.store, *names)


def say(user: User, session_id: str, text: str, answer: Message) -> None:
    """Add a turn to a session."""

    async def talk() -> None:
        async with SQLiteStore(user.store) as store:
            session = await open_session(store, session_id)
            await session.append_model_input(text)
            await session.append_model_output(answer)

    asyncio.run(talk())


# ---------------------------------------------------------------- list


def test_before_there_is_a_store_there_are_no_sessions_and_none_is_made(user: User) -> None:
    ended = user.run("sessions", "list")
    assert (ended.status, ended.err) == (0, "")
    assert "no sessions yet" in ended.out
    assert user.run("sessions", "list", "--json").json == []
    assert not user.store.parent.exists()


def test_the_store_and_its_folder_are_for_the_owner_alone(user: User) -> None:
    user.imported()
    assert user.store.stat().st_mode & 0o777 == 0o600
    assert user.store.parent.stat().st_mode & 0o777 == 0o700


def test_no_session_gets_a_name_that_the_commands_take_for_something_else(user: User) -> None:
    session_id = user.imported()
    for name in ("@", "-"):
        refused = user.run("sessions", "fork", session_id, "--id", name)
        assert refused.status == 1
        assert "another name" in refused.err
    assert len(user.run("sessions", "list", "--json").json) == 1


def test_a_list_shows_id_time_length_and_beginning(user: User) -> None:
    session_id = user.imported()
    head, row = without_times(user.run("sessions", "list").out).splitlines()
    assert head.split() == ["SESSION", "USED", "ENTRIES", "BEGINS", "WITH"]
    assert row.split(maxsplit=3) == [session_id[:8], "TIME", "6", "Is it raining in Paris?"]


def test_a_list_as_json_has_everything(user: User) -> None:
    session_id = user.imported(WEATHER, "--title", "Umbrella?")
    fork = user.run("sessions", "fork", session_id, "--at", "2").out.strip()
    newest, first = user.run("sessions", "list", "--json").json
    assert (newest["id"], newest["forkedFrom"]) == (fork, {"id": session_id, "serial": 2})
    assert (first["id"], first["title"], first["entries"]) == (session_id, "Umbrella?", 6)
    assert len(first["head"]["checksum"]) == 64
    assert [each["id"] for each in user.run("sessions", "list", "--json", "--forks-of", session_id).json] == [fork]
    assert len(user.run("sessions", "list", "--json", "--limit", "1").json) == 1


def test_a_list_as_json_has_nested_metadata(user: User) -> None:
    user.store.parent.mkdir(parents=True, exist_ok=True)

    async def make() -> None:
        async with SQLiteStore(user.store) as store:
            await start_session(store, "served", metadata={"gateway": {"client": "codex", "names": ["a"]}})

    asyncio.run(make())
    (listed,) = user.run("sessions", "list", "--json").json
    assert listed["metadata"] == {"gateway": {"client": "codex", "names": ["a"]}}


def test_ids_are_shortened_only_as_far_as_they_stay_different() -> None:
    one, other = "a" * 32, "a" * 10 + "b" * 22
    assert short_ids([one, other, "c" * 32, "my name"]) == {
        one: "a" * 11,
        other: "a" * 10 + "b",
        "c" * 32: "c" * 8,
        "my name": "my name",
    }


# ---------------------------------------------------------------- show


def test_show_prints_entries_with_serials_and_kinds(user: User) -> None:
    session_id = user.imported()
    shown = without_times(user.run("sessions", "show", session_id[:6]).out)
    assert f"session {session_id}  6 entries, begun TIME\n" in shown
    assert "#1 model_input  TIME\n    Is it raining in Paris?\n" in shown
    assert '#2 model_output  TIME\n    → get_weather({"city": "Paris"})  [call_0]\n' in shown
    assert "#4 tool_result  TIME\n    ← get_weather: success  [call_0]\n    Rain, 9 °C.\n" in shown


def test_every_kind_of_entry_can_be_shown(user: User) -> None:
    keep(user, "sample")
    shown = user.run("sessions", "show", "sample").out
    for entry in sample_entries("sample"):
        assert f"#{entry.serial} {entry.kind}" in shown
    assert "[image image/png" in shown
    assert "hologram" in shown


def test_what_a_client_of_a_gateway_sent_and_got_is_shown_in_one_line_each_without_content(user: User) -> None:
    keep(user, "a")

    async def record() -> None:
        async with SQLiteStore(user.store) as store:
            session = await start_session(store, "gateway")
            await session.append(ClientRequestEntry("openai-chat", "/v1", "gpt-5", '"SECRET"', client="laptop"))
            await session.append(ClientAnswerEntry.of(0, 200, b"SECRET", model="openai:gpt-5", is_whole=False))

    asyncio.run(record())
    shown = without_times(user.run("sessions", "show", "gateway").out)
    assert "#0 client_request  TIME  openai-chat  gpt-5  with the key 'laptop'" in shown
    assert "#1 client_answer  TIME  to #0  openai:gpt-5  status 200  not whole" in shown
    assert "SECRET" not in shown
    assert "SECRET" not in user.run("sessions", "export", "gateway", "--format", "markdown").out


def test_a_part_can_be_shown(user: User) -> None:
    user.imported()
    assert "#3" not in user.run("sessions", "show", "@", "--from", "4").out
    last = user.run("sessions", "show", "@", "--last", "1").out
    assert "#5 model_output" in last
    assert "#4" not in last


def test_levels_are_shown_where_they_differ(user: User) -> None:
    from dragoman.history import LevelOfDetailSections, ModelInputEntry, Section

    async def write() -> None:
        async with SQLiteStore(user.store) as store:
            session = await start_session(store, "levels", widgets=())
            levels = (Section("", "all of it"),), (Section("", "some"),), (Section("", "a"),)
            await session.append(ModelInputEntry.of(sections=LevelOfDetailSections(*levels)))

    asyncio.run(write())
    live = user.run("sessions", "show", "levels").out
    assert "levels: live 9, summary 4, gist 1 characters" in live
    assert "    all of it\n" in live
    assert "    some\n" in user.run("sessions", "show", "levels", "--level", "summary").out


def test_show_as_json_gives_the_entries_back(user: User) -> None:
    keep(user, "sample")
    lines = user.run("sessions", "show", "sample", "--json").out.splitlines()
    assert tuple(entry_from_json(line) for line in lines) == sample_entries("sample")


def test_nothing_that_was_said_can_steer_the_terminal(user: User) -> None:
    messages: list[dict[str, Any]] = json.loads(json.dumps(WEATHER))
    messages[1]["content"] = messages[3]["content"] = messages[4]["content"] = ESCAPES
    messages[2]["tool_calls"][0]["function"]["arguments"] = json.dumps({"city": ESCAPES}, ensure_ascii=False)
    user.imported(messages, "--title", f"title{ESCAPES}")
    user.imported(messages)
    commands = [
        ["sessions", "list"],
        ["sessions", "list", "--json"],
        ["sessions", "show", "@"],
        ["sessions", "show", "@", "--json"],
        ["sessions", "export", "@", "--format", "markdown"],
        ["sessions", "export", "@", "--format", "openai"],
        ["render", "@", "--model", "anthropic:claude-opus-4-5"],
        ["render", "@", "--model", "anthropic:claude-opus-4-5", "--json"],
        ["render", "@", "--model", "anthropic:claude-opus-4-5", "--model", "openai:gpt-5"],
        ["render", "@", "--model", "anthropic:claude-opus-4-5", "--model", "openai:gpt-5", "--unified"],
        ["replay", "@", "--speed", "0"],
        ["replay", "@", "--speed", "0", "--json"],
    ]
    for command in commands:
        ended = user.run(*command)
        assert ended.status == 0, ended.err
        assert not set(ended.out + ended.err) & set("\x1b\x07\x9b\u202e"), command


# ---------------------------------------------------------------- finding sessions


def test_a_session_is_found_by_the_beginning_of_its_id(user: User) -> None:
    keep(user, "alpha", "alphabet", "beta")
    assert user.run("sessions", "show", "b").status == 0
    assert user.run("sessions", "show", "alpha").status == 0  # whole ids win
    require_words(user.run("sessions", "show", "alph"), "several sessions begin with 'alph': alpha, alphabet")
    require_words(user.run("sessions", "show", "gamma"), "there is no session 'gamma'", "sessions list")


def test_at_is_the_session_that_was_used_last(user: User) -> None:
    first = user.imported()
    user.imported()
    say(user, first, "And Oslo?", Message.assistant("Snow."))
    assert f"session {first}" in user.run("sessions", "show", "@").out


def test_without_a_store_there_is_nothing_to_show(user: User) -> None:
    require_words(user.run("sessions", "show", "@"), "there is no store at")
    require_words(user.run("sessions", "show", "@", "--store", str(user.folder)), "is no file")


def test_a_file_that_is_no_store_is_one_line(user: User) -> None:
    name = user.write("text.db", "this is no database, but it is long enough to look like one " * 20)
    require_words(user.run("sessions", "list", "--store", name), "text.db")


def test_a_locked_store_is_one_line(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.imported()
    monkeypatch.setattr("dragoman.cli.stores.BUSY_SECONDS", 0.05)
    connection = sqlite3.connect(user.store, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    ended = user.run("sessions", "fork", "@")
    connection.execute("ROLLBACK")
    connection.close()
    require_words(ended, "locked")


# ---------------------------------------------------------------- fork, verify, erase


def test_a_fork_shares_what_was_before_it(user: User) -> None:
    user.imported()
    assert user.run("sessions", "fork", "@", "--at", "2", "--id", "again").out == "again\n"
    assert [entry["serial"] for entry in user.run("sessions", "show", "again", "--json").json_lines] == [0, 1, 2]
    require_words(user.run("sessions", "fork", "again", "--at", "9"), "no fork at 9")
    require_words(user.run("sessions", "fork", "again", "--id", "again"), "there is a session 'again' already")


def test_verify_finds_nothing_wrong_with_what_is_sound(user: User) -> None:
    keep(user, "a", "b")
    ended = user.run("sessions", "verify")
    assert ended.status == 0
    assert sorted(line.split()[:2] for line in ended.out.splitlines()) == [["sound", "a"], ["sound", "b"]]
    head = ended.out.splitlines()[0].split()[2]
    name = ended.out.split()[1]
    assert user.run("sessions", "verify", name, "--head", head).status == 0


def test_verify_finds_damage_and_a_head_that_is_missing(user: User) -> None:
    keep(user, "a")
    forged = user.run("sessions", "verify", "a", "--head", "3:" + "0" * 64)
    assert forged.status == 1
    assert "DAMAGED" in forged.out
    data = user.store.read_bytes()
    with_flipped_byte(user.store, data.index(b"Be careful."))
    ended = user.run("sessions", "verify", "--json")
    assert ended.status == 1
    assert (ended.json[0]["sound"], ended.json[0]["badSerial"]) == (False, 0)


@pytest.mark.parametrize("arguments", [["--head", "x"], ["a", "--head", "3"], ["a", "b", "--head", "1:" + "0" * 64]])
def test_a_head_that_makes_no_sense_is_refused(user: User, arguments: list[str]) -> None:
    keep(user, "a", "b")
    require_words(user.run("sessions", "verify", *arguments), "--head")


def test_erasing_asks_and_without_a_terminal_wants_a_word(user: User) -> None:
    keep(user, "a")
    ended = user.process("sessions", "erase", "a")
    require_words(ended, "--yes")
    assert user.run("sessions", "erase", "a", "--yes").status == 0
    require_words(user.run("sessions", "show", "a"), "was erased")


def test_erasing_names_the_forks_and_takes_them_only_if_told(user: User) -> None:
    keep(user, "a")
    user.run("sessions", "fork", "a", "--id", "fork")
    user.run("sessions", "fork", "fork", "--id", "forkfork")
    require_words(user.run("sessions", "erase", "a", "--yes"), "fork, forkfork", "--forks")
    assert user.run("sessions", "erase", "a", "--yes", "--forks").status == 0
    assert user.run("sessions", "list", "--json").json == []


@pytest.mark.parametrize(("answer", "is_left"), [("y", False), ("n", True), ("", True)])
def test_on_a_terminal_the_answer_counts(user: User, answer: str, is_left: bool) -> None:
    keep(user, "a")
    user.run("sessions", "fork", "a", "--id", "fork")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        user.command("sessions", "erase", "a"), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(ours, f"{answer}\n".encode())
    _, asked = process.communicate()
    os.close(theirs)
    os.close(ours)
    assert b"Erase a and its forks fork for good? [y/N]" in asked
    assert (process.returncode, bool(user.run("sessions", "list", "--json").json)) == (int(is_left), is_left)


def test_forks_of_chats_are_told_apart_and_found_by_the_ends_of_their_ids(user: User) -> None:
    keep(user)
    first, second = "chat-20260102-030405-aaaa", "chat-20260102-030406-bbbb"
    user.imported(WEATHER, "--id", first)
    assert user.run("sessions", "fork", "aaaa", "--id", second).out == f"{second}\n"
    assert "(from …405-aaaa at 5)" in user.run("sessions", "list").out
    assert user.run("sessions", "show", "…406-bbbb").out.startswith(f"session {second}")
    user.imported(WEATHER, "--id", "other-aaaa")
    require_words(user.run("sessions", "show", "aaaa"), f"several sessions end with 'aaaa': {first}, other-aaaa")


# ---------------------------------------------------------------- export and import


def test_what_is_exported_can_be_imported_and_is_the_same(user: User) -> None:
    keep(user, "sample")
    assert user.run("sessions", "export", "sample", "-o", "out.jsonl").status == 0
    assert (user.folder / "out.jsonl").stat().st_mode & 0o777 == 0o600
    require_words(user.run("sessions", "import", "out.jsonl"), "there is a session 'sample' already", "--id")
    assert user.run("sessions", "import", "out.jsonl", "--id", "copy").out == "copy\n"
    assert user.run("sessions", "export", "copy").out == user.run("sessions", "export", "sample").out
    other = str(user.folder / "other.db")
    assert user.run("sessions", "import", "out.jsonl", "--store", other).out == "sample\n"
    one, two = (user.run("sessions", "list", "--json", "--store", place).json for place in (other, str(user.store)))
    assert one[0]["head"] in [each["head"] for each in two]


def test_a_file_is_overwritten_only_by_force(user: User) -> None:
    user.imported()
    user.write("out.jsonl", "precious")
    require_words(user.run("sessions", "export", "@", "-o", "out.jsonl"), "--force")
    assert (user.folder / "out.jsonl").read_text() == "precious"
    assert user.run("sessions", "export", "@", "-o", "out.jsonl", "--force").status == 0
    require_words(user.run("sessions", "export", "@", "-o", "no/such/folder"), "no/such/folder")


def test_the_forms_of_others_are_exported(user: User) -> None:
    user.imported()
    assert user.run("sessions", "export", "@", "--format", "openai").json == WEATHER
    exported = user.run("sessions", "export", "@", "--format", "anthropic").json
    assert exported["system"][0]["text"] == "Be brief."
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant", "user", "assistant"]


def test_what_a_widget_showed_is_not_exported(user: User) -> None:
    async def write() -> None:
        async with SQLiteStore(user.store) as store:
            session = await start_session(store, "noted")
            await session.update_memory_notebook("The secret of the notebook.")
            await session.append_model_input("Hello.")

    asyncio.run(write())
    assert user.run("sessions", "export", "noted", "--format", "openai").json == [{"role": "user", "content": "Hello."}]


def test_markdown_has_everything_that_was_said(user: User) -> None:
    user.imported()
    call = ToolCall("call_1", "run", {"code": "```\nx\n````"})
    say(
        user,
        user.run("sessions", "list", "--json").json[0]["id"],
        "Go on.",
        Message.assistant(Thinking("Hm.\nYes."), call),
    )
    text = user.run("sessions", "export", "@", "--format", "markdown").out
    for words in ("# Is it raining in Paris?", "## System", "## User", "Rain, 9 °C.", "> Hm.\n> Yes.", "Go on."):
        assert words in text
    assert "`````json\n" in text  # longer than any run of backticks inside


def test_what_no_model_is_shown_takes_one_line(user: User) -> None:
    listing = UnknownPart("claude_code.skill_listing", {"content": "a skill\n" * 500})

    async def record() -> None:
        async with SQLiteStore(user.store) as store:
            session = await start_session(store, "listed")
            await session.append_model_input(listing)

    asyncio.run(record())
    for command in (("show", "listed"), ("export", "listed", "--format", "markdown")):
        (line,) = (line for line in user.run("sessions", *command).out.splitlines() if "skill_listing" in line)
        assert len(line) < 250
        assert line.endswith("…")


def test_exporting_to_a_pipe_of_another_encoding_is_still_json(user: User) -> None:
    user.imported()
    user.set("PYTHONIOENCODING", "ascii")
    user.set("PYTHONUTF8", "0")
    assert user.process("sessions", "export", "@", "--format", "openai").json == WEATHER
    assert user.process("sessions", "show", "@").status == 0


SAMPLE_FORMATS = {
    "langchain_dict": "langchain",
    "langchain_dumpd": "langchain",
    "pydantic_ai": "pydantic-ai",
    "vercel_4": "vercel",
    "vercel_5": "vercel",
}
LISTS: list[tuple[str, Any]] = [
    ("openai", CHAT),
    ("openai", {"model": "x", "messages": CHAT}),
    ("anthropic", ANTHROPIC),
    ("anthropic", {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi."}]}),
    ("openai-responses", RESPONSES),
    ("openai-responses", {"instructions": "Be brief.", "input": "Hi."}),
    ("openai", [{"role": "user", "content": "Hi."}]),
]


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.json")))
def test_what_other_libraries_wrote_is_recognised_and_imported(user: User, name: str) -> None:
    path = SAMPLES / f"{name}.json"
    assert detect_format(path.read_bytes()) == SAMPLE_FORMATS[name]
    ended = user.run("sessions", "import", str(path))
    assert ended.status == 0, ended.err
    assert user.run("sessions", "list", "--json").json[0]["metadata"] == {"imported_from": SAMPLE_FORMATS[name]}


TRANSCRIPT_FORMATS = {
    "claude_code": ("claude-code", "da85755f-5069-4c75-b31d-9512cda026c0"),
    "claude_code_fork": ("claude-code", "839e9f3f-fc9a-4693-a5b6-09a59eb8dd43"),
    "claude_code_search": ("claude-code", "ea4c4e74-fb0d-43bf-9548-d897df3b63e5"),
    "claude_code_subagent": ("claude-code", "a1b76e3dfd63a44be"),
    "codex": ("codex", "01a1e597-0834-7da3-8d80-2d9ad9fd167a"),
    "pi": ("pi", "01a1e597-1073-7e1f-a07f-1bd7b5bcec9c"),
}


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.jsonl")))
def test_a_session_of_a_coding_agent_is_recognised_and_keeps_its_id(user: User, name: str) -> None:
    form, session_id = TRANSCRIPT_FORMATS[name]
    ended = user.run("sessions", "import", str(SAMPLES / f"{name}.jsonl"))
    assert (ended.status, ended.out) == (0, f"{session_id}\n"), ended.err
    assert user.run("sessions", "list", "--json").json[0]["metadata"] == {"imported_from": form}
    require_words(user.run("sessions", "import", str(SAMPLES / f"{name}.jsonl")), "already", "--id")


@pytest.mark.parametrize(("name", "form", "count"), [("llm", "llm", 3), ("openai_agents", "openai-agents", 2)])
def test_each_conversation_of_a_database_is_a_session(user: User, name: str, form: str, count: int) -> None:
    path = make_database(name, user.folder)
    assert len(user.run("sessions", "import", str(path)).out.split()) == count
    assert {each["metadata"]["imported_from"] for each in user.run("sessions", "list", "--json").json} == {form}


@pytest.mark.parametrize("wrong", ["@", "-"])
def test_of_a_database_with_an_id_that_no_store_takes_nothing_is_kept(user: User, wrong: str) -> None:
    path = make_database("openai_agents", user.folder)
    with closing(sqlite3.connect(path)) as database, database:
        (newest,) = database.execute("select max(session_id) from agent_sessions").fetchone()
        for table in ("agent_sessions", "agent_messages"):
            database.execute(f"update {table} set session_id = ? where session_id = ?", (wrong, newest))
    require_words(user.run("sessions", "import", str(path)), str(path), "session_id must be")
    assert user.run("sessions", "list", "--json").json == []


def test_a_database_of_an_early_llm_is_known_by_its_tables(user: User) -> None:
    with closing(sqlite3.connect(user.folder / "logs.db")) as database, database:
        database.execute("create table conversations (id text, name text, model text)")
        database.execute("create table responses (id text, conversation_id text, prompt text, response text)")
        database.execute("insert into responses values ('r', 'c', 'Is it raining?', 'Yes.')")
    assert user.run("sessions", "import", "logs.db").out.split() == ["c"]


def test_a_database_without_a_conversation_says_so(user: User) -> None:
    with closing(sqlite3.connect(user.folder / "empty.db")) as database, database:
        database.execute("create table agent_sessions (session_id text, created_at text, updated_at text)")
        database.execute("create table agent_messages (id integer, session_id text, message_data text)")
    require_words(user.run("sessions", "import", "empty.db"), "empty.db: the database holds no conversation")
    assert not user.store.exists()


def test_a_link_to_itself_and_a_file_that_fails_while_it_is_read_are_named(user: User) -> None:
    (user.folder / "loop.jsonl").symlink_to(user.folder / "loop.jsonl")
    require_words(user.run("sessions", "import", "loop.jsonl"), "loop.jsonl: Too many levels of symbolic links")
    memory = Path("/proc/self/mem")  # its first page cannot be read
    if memory.exists():
        require_words(user.run("sessions", "import", str(memory)), "/proc/self/mem: Input/output error")


def test_a_line_break_in_the_name_of_a_file_makes_no_second_line(user: User) -> None:
    user.write("two\nlines.jsonl", '{"type"')
    refused = user.run("sessions", "import", "two\nlines.jsonl")
    assert refused.err == "dragoman: two\\nlines.jsonl: not readable as JSON: Input data was truncated (byte 7)\n"


def test_a_folder_of_sessions_is_imported_at_once_and_again_only_what_is_new(user: User) -> None:
    folder = user.folder / "projects"
    (folder / "deep").mkdir(parents=True)
    for number, name in enumerate(("claude_code", "claude_code_subagent", "codex")):
        shutil.copy(SAMPLES / f"{name}.jsonl", folder / ("deep" if number else "") / f"{name}.jsonl")
    user.write("projects/notes.md", "not read")
    user.write("projects/quiet.jsonl", {"type": "mode", "mode": "normal", "sessionId": "s"})
    (folder / "deep" / "link.jsonl").symlink_to(SAMPLES / "pi.jsonl")
    (folder / "circle").symlink_to(folder)
    first = user.run("sessions", "import", "projects")
    assert len(first.out.split()) == 3
    assert "link.jsonl is a link: it is not read" in first.err
    assert "1 of 4 files hold no conversation: projects/quiet.jsonl" in first.err
    shutil.copy(SAMPLES / "pi.jsonl", folder / "pi.jsonl")
    again = user.run("sessions", "import", "projects")
    assert again.out.split() == ["01a1e597-1073-7e1f-a07f-1bd7b5bcec9c"]
    assert again.err.count("is there already: it is left as it is") == 3


def test_a_broken_file_of_a_folder_is_named_and_the_others_are_imported(user: User) -> None:
    folder = user.folder / "projects"
    folder.mkdir()
    shutil.copy(SAMPLES / "codex.jsonl", folder / "a.jsonl")
    first, second, *others = (SAMPLES / "pi.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "b.jsonl").write_bytes(b"".join([first, second[:20] + b"\n", *others]))
    shutil.copy(SAMPLES / "codex.jsonl", folder / "copy.jsonl")
    (folder / "d.db").write_bytes(b"no database at all, though it is long enough to look like one" * 20)
    ended = user.run("sessions", "import", "projects")
    assert (ended.status, ended.out.split()) == (1, ["01a1e597-0834-7da3-8d80-2d9ad9fd167a"])
    broken, copied, database, count = ended.err.splitlines()[-4:]
    assert "projects/b.jsonl: line 2: not readable as JSON" in broken
    assert "projects/copy.jsonl: has the same id as projects/a.jsonl" in copied
    assert "projects/d.db: d.db is no readable SQLite database" in database
    assert count == "dragoman: 3 of 4 files were not imported"
    require_words(user.run("sessions", "import", "projects/b.jsonl", "--store", "other.db"), "projects/b.jsonl: line 2")
    assert not (user.folder / "other.db").exists()


def test_a_folder_without_session_files_is_an_error(user: User) -> None:
    (user.folder / "projects").mkdir()
    require_words(user.run("sessions", "import", "projects"), "projects holds no session files")
    assert not user.store.exists()


def test_files_of_a_folder_without_a_conversation_are_passed_over_and_counted(user: User) -> None:
    (user.folder / "projects").mkdir()
    shutil.copy(SAMPLES / "codex.jsonl", user.folder / "projects" / "a.jsonl")
    for name in ("empty.jsonl", "empty.db"):
        (user.folder / "projects" / name).touch()
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False}
    user.write("projects/snapshot.jsonl", snapshot)
    prompts = [{"session_id": "s", "ts": 1, "text": text} for text in ("Hi.", "Bye.")]
    user.write("projects/history.jsonl", "".join(f"{json.dumps(each)}\n" for each in prompts))
    user.write("projects/session_index.jsonl", {"id": "s", "thread_name": "Weather", "updated_at": "2026-11-18"})
    ended = user.run("sessions", "import", "projects")
    assert (ended.status, ended.out.split()) == (0, ["01a1e597-0834-7da3-8d80-2d9ad9fd167a"])
    assert "5 of 6 files hold no conversation" in ended.err


def test_of_the_histories_of_a_session_a_folder_gives_the_newest_with_its_beginning(user: User) -> None:
    write_family(user.folder / "sessions")
    ended = user.run("sessions", "import", "sessions")
    assert (ended.status, sorted(ended.out.split())) == (0, [SESSION, FORK])
    assert f"{Path(BEGUN).name} is an earlier history of {Path(TAKEN_BACK).name}: it is not read" in ended.err
    shown = user.run("sessions", "show", SESSION).out
    assert [word for word in ("ONE!", "TWO!", "INSTEAD!", "LATE!") if word in shown] == ["ONE!", "INSTEAD!", "LATE!"]


@pytest.mark.parametrize("name", ["claude_code", "codex", "pi"])
def test_a_last_line_that_is_still_being_written_is_left_out(user: User, name: str) -> None:
    whole = (SAMPLES / f"{name}.jsonl").read_bytes()
    (user.folder / "live.jsonl").write_bytes(whole + b'{"type": "user", "mess\xc3')
    ended = user.run("sessions", "import", "live.jsonl")
    assert (ended.status, ended.out.strip()) == (0, TRANSCRIPT_FORMATS[name][1])
    number = len(whole.splitlines()) + 1
    assert f"line {number}: this last line is cut off" in ended.err
    plain = user.run("sessions", "import", str(SAMPLES / f"{name}.jsonl"), "--id", "whole")
    assert len(ended.err.splitlines()) == len(plain.err.splitlines()) + 1
    shown = [user.run("sessions", "show", each, "--json").json_lines for each in (ended.out.strip(), "whole")]
    assert len(shown[0]) == len(shown[1])


def test_a_database_of_another_program_is_named_and_nothing_is_kept(user: User) -> None:
    with closing(sqlite3.connect(user.folder / "other.db")) as connection:
        connection.execute("create table people (name text)")
    require_words(user.run("sessions", "import", "other.db"), "other.db: this database is of no program that is known")
    require_words(user.run("sessions", "import", "other.db", "--format", "llm"), "other.db has no table 'responses'")
    assert not user.store.exists()


@pytest.mark.parametrize("form", ["openai-responses", "vercel", "langchain", "pydantic-ai"])
def test_what_is_exported_for_a_library_is_recognised_as_its_own(user: User, form: str) -> None:
    user.imported()
    user.write("out.json", user.run("sessions", "export", "@", "--format", form).out)
    assert user.run("sessions", "import", "out.json", "--id", "again").status == 0
    listed = {each["id"]: each for each in user.run("sessions", "list", "--json").json}
    assert listed["again"]["metadata"] == {"imported_from": form}


@pytest.mark.parametrize(("form", "value"), LISTS)
def test_the_lists_of_the_vendors_are_recognised_and_imported(user: User, form: str, value: Any) -> None:
    assert detect_format(json.dumps(value).encode()) == form
    assert user.run("sessions", "import", user.write("c.json", value)).status == 0


def test_ours_and_recorded_runs_are_recognised(user: User) -> None:
    keep(user, "sample")
    assert detect_format(user.run("sessions", "export", "sample").out.encode()) == "dragoman"
    run = {"id": "r", "messages": [{"role": "user", "parts": [{"kind": "text", "text": "Hi."}]}]}
    assert detect_format(json.dumps(run).encode()) == "agent-log"
    user.write("runs.jsonl", f"{json.dumps(run)}\n{json.dumps(run)}\n")
    assert len(user.run("sessions", "import", "runs.jsonl").out.split()) == 2
    require_words(user.run("sessions", "import", "runs.jsonl", "--id", "x"), "there are 2 in the file")


def test_messages_in_our_own_form_are_recognised(user: User) -> None:
    from dragoman.jsonform import to_json

    spoken = [Message.system("Be brief."), Message.user("Hi."), Message.assistant("Hello.")]
    lines = b"\n".join(to_json(message) for message in spoken).decode()
    user.write("messages.jsonl", lines)
    assert user.run("sessions", "import", "messages.jsonl").status == 0
    kinds = [entry["kind"] for entry in user.run("sessions", "show", "@", "--json").json_lines]
    assert kinds == ["system_instruction", "model_input", "model_output"]


@pytest.mark.parametrize("content", ["", "   \n", "hello", "[]", "[1, 2]", "{}", '{"a": 1}', "[" * 500, "\x00\xff"])
def test_what_is_no_conversation_is_refused_in_one_line(user: User, content: str) -> None:
    user.write("file", content)
    require_words(user.run("sessions", "import", "file"))
    assert not user.store.exists()


def test_a_format_that_was_named_is_believed(user: User) -> None:
    name = user.write("c.json", [{"role": "user", "content": "Hi."}])
    assert user.run("sessions", "import", name, "--format", "anthropic").status == 0
    require_words(user.run("sessions", "import", name, "--format", "pydantic-ai"), "messages[0]")
    require_words(user.run("sessions", "import", name, "--format", "vercel", "--made-by", "a:b"), "made-by")


def test_a_damaged_line_is_named(user: User) -> None:
    keep(user, "sample")
    lines = user.run("sessions", "export", "sample").out.splitlines()
    user.write("out.jsonl", "\n".join([lines[0], lines[1][:40]]))
    require_words(user.run("sessions", "import", "out.jsonl", "--format", "dragoman", "--id", "x"), "line 2")
    user.write("out.jsonl", "\n".join([lines[0], lines[3]]))
    require_words(user.run("sessions", "import", "out.jsonl", "--id", "x"))
    assert [each["id"] for each in user.run("sessions", "list", "--json").json] == ["sample"]


def test_what_is_not_carried_over_is_said(user: User) -> None:
    name = user.write("c.json", [*WEATHER[:3]])
    ended = user.run("sessions", "import", name)
    assert ended.status == 0
    assert "it may or may not have taken effect" in ended.err
    shown = user.run("sessions", "show", "@").out
    assert "← get_weather: interrupted  [call_0]" in shown
    assert "it may or may not have taken effect" in shown


@pytest.mark.slow
def test_standard_input_and_packed_files_are_read(user: User) -> None:
    import gzip

    assert user.process("sessions", "import", "-", given=json.dumps(WEATHER).encode()).status == 0
    (user.folder / "c.json.gz").write_bytes(gzip.compress(json.dumps(WEATHER).encode()))
    assert user.run("sessions", "import", "c.json.gz").status == 0
    (user.folder / "c.json.gz").write_bytes(b"no gzip")
    require_words(user.run("sessions", "import", "c.json.gz"), "gzip")
    require_words(user.run("sessions", "import", "nothing.json"), "nothing.json: No such file")


def test_every_format_has_a_reader() -> None:
    from dragoman.cli.transfer import IMPORTS

    assert set(FORMATS) == {*IMPORTS, "agent-log"}
    with pytest.raises(UnreadableData):
        detect_format(b"[]")


# ---------------------------------------------------------------- PostgreSQL


@pytest.mark.slow
def test_a_store_may_be_a_database_elsewhere(user: User, postgres: Place) -> None:
    user.set("DRAGOMAN_STORE", postgres.address)
    session_id = user.imported()
    assert [each["id"] for each in user.run("sessions", "list", "--json").json] == [session_id]
    assert user.run("sessions", "verify").status == 0
    assert user.run("sessions", "export", "@", "--format", "openai").json == WEATHER
    assert user.run("doctor", "--json").json["store"]["sessions"] == 1
    assert user.run("sessions", "erase", "@", "--yes").status == 0


def test_a_database_without_the_tables_says_how_to_make_them(user: User, empty_postgres: Place) -> None:
    require_words(user.run("sessions", "list", "--store", empty_postgres.address), "migrate")


def test_a_password_in_an_address_is_never_shown(user: User) -> None:
    user.set("DRAGOMAN_STORE", "postgresql://me:planted-77-secret@127.0.0.1:1/x")
    for command in (["sessions", "list"], ["config", "show"], ["doctor"], ["doctor", "--json"]):
        ended = user.run(*command)
        assert "planted-77-secret" not in ended.out + ended.err


def test_a_store_with_the_address_of_a_file_is_refused_with_a_sentence(user: User) -> None:
    done = user.run("sessions", "list", "--store", "sqlite:///x.db")
    assert (done.status, "the path of a SQLite file, such as notes.db without a scheme" in done.err) == (1, True)
