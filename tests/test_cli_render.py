"""`dragoman render`: the exact request, without secrets, of one model or of several with the differences marked."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agent import Agent
from dragoman.cli.modelchoice import open_model, unsent_model
from dragoman.cli.settings import ProviderSettings, Settings
from dragoman.cli.sidebyside import LEFT_ONLY, RIGHT_ONLY, SAME, paired_rows
from dragoman.errors import DragomanError, InvalidValue
from dragoman.interop import import_openai_chat
from dragoman.local import KNOWN_WEIGHTS
from dragoman.models import model, render_request
from dragoman.models.local import OWN_OUTPUT
from dragoman.store import SQLiteStore, open_session
from dragoman.testing import ReplayedResponse, ReplayTransport
from tests.cli_cases import WEATHER, User, empty_user, require_words  # noqa: F401  # the fixture

CLAUDE = "anthropic:claude-opus-4-5"
SECRET = "planted-91ce-not-to-be-shown"


def test_the_request_is_the_one_that_an_agent_sends(user: User) -> None:
    session_id = user.imported()
    rendered = user.run("render", session_id, "--model", CLAUDE, "-p", "And in Oslo?", "--json").json[0]
    memory = ReplayTransport([ReplayedResponse(chunks=())])

    async def ask() -> None:
        async with SQLiteStore(user.store) as store:
            session = await open_session(store, session_id)
            await Agent(model(CLAUDE, api_key="secret", transport=memory), session=session).run("And in Oslo?")

    asyncio.run(ask())
    sent = memory.requests[0]
    assert rendered["body"] == json.loads(sent.body)
    assert sent.url.endswith(rendered["path"])
    assert {name: sent.headers[name] for name in rendered["headers"]} == rendered["headers"]
    assert "x-api-key" not in rendered["headers"]


@pytest.mark.parametrize("name", [CLAUDE, "openai:gpt-5", "google:gemini-2.5-pro", "mistral:mistral-large-latest"])
def test_a_file_of_messages_gives_what_render_request_gives(user: User, name: str) -> None:
    file = user.write("c.json", WEATHER[:2])
    rendered = user.run("render", "--file", file, "--model", name, "--json").json[0]
    imported = import_openai_chat(WEATHER[:2])
    expected = json.loads(render_request(name, imported.messages, system_prompt=imported.system).body)
    for body in (rendered["body"], expected):  # which session it is, only a session knows
        body.pop("prompt_cache_key", None)
    assert without_cache_marks(rendered["body"]) == without_cache_marks(expected)


def without_cache_marks(value: object) -> object:
    """The value without the marks of a prompt cache: a context says where they stand, a list of messages does not."""
    if isinstance(value, dict):
        return {name: without_cache_marks(each) for name, each in value.items() if name != "cache_control"}
    return [without_cache_marks(each) for each in value] if isinstance(value, list) else value


def test_one_request_is_printed_whole(user: User) -> None:
    user.imported()
    lines = user.run("render", "@", "--model", CLAUDE).out.splitlines()
    assert lines[0].startswith(f"# {CLAUDE}: about ")
    assert lines[1:4] == ["POST /v1/messages", "anthropic-version: 2023-06-01", "content-type: application/json"]
    assert json.loads("\n".join(lines[5:]))["model"] == "claude-opus-4-5"


def test_two_requests_stand_side_by_side_with_their_differences_marked(user: User) -> None:
    user.set("COLUMNS", "80")
    file = user.write("c.json", [{"role": "user", "content": "Hi."}])
    out = user.run("render", "--file", file, "--model", "groq:a", "--model", "cerebras:a").out
    lines = out.splitlines()
    assert any(line.startswith("POST /openai/v1/chat/completions") and " | POST /v1/chat" in line for line in lines)
    assert any(line.startswith('  "model": "a",') and line.count('"model": "a",') == 2 for line in lines)
    assert all(len(line) <= 80 for line in lines[2:])


def test_three_requests_are_each_compared_with_the_first(user: User) -> None:
    file = user.write("c.json", WEATHER)
    names = ["groq:a", CLAUDE, "google:gemini-2.5-pro"]
    out = user.run("render", "--file", file, *[word for name in names for word in ("--model", name)]).out
    assert out.count("# groq:a") == 2
    assert out.count(f"# {CLAUDE}") == out.count("# google:gemini-2.5-pro") == 1


def test_a_unified_diff_shows_what_differs(user: User) -> None:
    file = user.write("c.json", [{"role": "user", "content": "Hi."}])
    out = user.run("render", "--file", file, "--model", "groq:a", "--model", "groq:b", "--unified").out
    assert "--- groq:a\n+++ groq:b\n" in out
    assert '-  "model": "a",\n+  "model": "b",\n' in out


def test_color_is_there_only_when_asked_for(user: User) -> None:
    file = user.write("c.json", WEATHER)
    command = ["render", "--file", file, "--model", "groq:a", "--model", CLAUDE]
    assert "\x1b" not in user.run(*command).out
    assert "\x1b[" in user.run(*command, "--color", "always").out


def test_a_picture_is_left_out_unless_it_is_wanted(user: User) -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo" * 100
    content = [{"type": "image_url", "image_url": {"url": url}}]
    file = user.write("c.json", [{"role": "user", "content": content}])
    short = user.run("render", "--file", file, "--model", CLAUDE).out
    assert "characters of Base64" in short
    assert "iVBORw0KGgoiVBOR" not in short
    assert "iVBORw0KGgoiVBOR" in user.run("render", "--file", file, "--model", CLAUDE, "--full").out
    assert "iVBORw0KGgoiVBOR" in user.run("render", "--file", file, "--model", CLAUDE, "--json").out


def test_tools_go_along(user: User) -> None:
    file = user.write("c.json", WEATHER)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = user.write("tools.json", [{"name": "get_weather", "description": "Now.", "parameterSchema": schema}])
    body = user.run("render", "--file", file, "--model", CLAUDE, "--tools", tools, "--json").json[0]["body"]
    assert [tool["name"] for tool in body["tools"]] == ["get_weather"]
    require_words(
        user.run("render", "--file", file, "--model", CLAUDE, "--tools", user.write("t", [{"a": 1}])),
        "no list of tools",
    )


def test_the_settings_say_where_but_their_headers_are_not_shown(user: User) -> None:
    user.write_config(
        f'[providers.openai]\nbase_url = "https://gate.example/x/v1"\nheaders = {{ X-Auth = "{SECRET}" }}\n'
    )
    file = user.write("c.json", WEATHER)
    for flags in ([], ["--json"]):
        ended = user.run("render", "--file", file, "--model", "openai:gpt-5", *flags)
        assert ended.status == 0
        assert SECRET not in ended.out
        assert "/x/v1/responses" in ended.out
        assert "X-Auth" in ended.out


def test_the_model_of_the_settings_is_the_default(user: User) -> None:
    file = user.write("c.json", WEATHER)
    require_words(user.run("render", "--file", file), "--model")
    user.write_config(f'model = "{CLAUDE}"\n')
    assert user.run("render", "--file", file, "--json").json[0]["model"] == CLAUDE


@pytest.mark.parametrize("name", ["local:smollm2", "local:/somewhere/else/model.gguf", "azure:x", "google-vertex:g"])
def test_a_model_that_needs_an_address_is_rendered_without_one(user: User, name: str) -> None:
    file = user.write("c.json", WEATHER)
    ended = user.run("render", "--file", file, "--model", name, "--json")
    assert ended.status == 0, ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "gpt-5"], "'gpt-5' is no model: did you mean 'openai:gpt-5'?"),
        (["--model", "opnai:gpt-5"], "there is no provider 'opnai': did you mean 'openai:gpt-5'?"),
        (["--model", "openai:"], "is no model: give provider:name"),
        (["--model", "local:smolm2"], "there is no local model 'smolm2': give one of smollm2"),
        (["--model", "local:smollm2@gemini"], "after @ give one of chat, responses, anthropic"),
        (["--model", "local:@chat"], "is no local model"),
        (["--model", "openai:gpt-5", "--tools", "nowhere"], "nowhere: No such file"),
    ],
)
def test_a_mistake_is_one_line(user: User, arguments: list[str], words: str) -> None:
    require_words(user.run("render", "--file", user.write("c.json", WEATHER), *arguments), words)


@pytest.mark.parametrize(
    ("name", "path", "model_id"),
    [
        ("local:smollm2", "/v1/chat/completions", "smollm2"),
        ("local:smollm2@chat", "/v1/chat/completions", "smollm2"),
        ("local:smollm2@responses", "/v1/responses", "smollm2"),
        ("local:/somewhere/my.model.gguf@anthropic", "/v1/messages", "my.model"),
        ("local:/some@where/a.gguf", "/v1/chat/completions", "a"),
    ],
)
def test_a_model_on_this_machine_has_three_apis(user: User, name: str, path: str, model_id: str) -> None:
    file = user.write("c.json", WEATHER)
    rendered = user.run("render", "--file", file, "--model", name, "--json").json[0]
    assert (rendered["path"], rendered["body"]["model"]) == (path, model_id)


def test_a_model_on_this_machine_is_told_what_the_chat_tells_it(user: User) -> None:
    file = user.write("c.json", WEATHER[1:2])
    rendered = user.run("render", "--file", file, "--model", "local:smollm2", "--json").json[0]
    body = rendered["body"]
    assert body["messages"][0] == {"role": "system", "content": KNOWN_WEIGHTS["smollm2"].manner}
    assert (body["temperature"], body["max_tokens"]) == (0, KNOWN_WEIGHTS["smollm2"].output_tokens)
    assert rendered["context"]["budget"] == 8_192 * 3 // 4  # of its window, a quarter is for the answer
    with_system = user.run("render", "--file", user.write("s.json", WEATHER), "--model", "local:smollm2", "--json")
    assert with_system.json[0]["body"]["messages"][0] == {"role": "system", "content": "Be brief."}
    own = user.run("render", "--file", file, "--model", "local:own.gguf@responses", "--json").json[0]["body"]
    assert "temperature" not in own
    assert "instructions" not in own
    assert own["max_output_tokens"] == OWN_OUTPUT


def test_a_model_without_a_place_for_tools_is_offered_none(user: User) -> None:
    tools = user.write("tools.json", [{"name": "look", "parameterSchema": {"type": "object"}}])
    models = ("--model", "local:smollm2", "--model", "local:own.gguf")
    known, own = user.run("render", user.imported(), *models, "--tools", tools, "--json").json
    assert "tools" not in known["body"]
    assert own["body"]["tools"]


def test_a_session_or_a_file_is_needed_and_only_one(user: User) -> None:
    require_words(user.run("render", "--model", CLAUDE), "a session, or a file")
    require_words(user.run("render", "x", "--file", "y", "--model", CLAUDE), "a session, or a file")


def test_what_a_model_cannot_read_is_a_marked_line_as_in_a_run(user: User) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    file = user.write("c.json", [{"role": "user", "content": content}])
    rendered = user.run("render", "--file", file, "--model", "deepseek:deepseek-chat")
    assert rendered.status == 0
    assert "[image/png, 8 bytes: not shown, this model cannot read it]" in rendered.out


# ---------------------------------------------------------------- models by name


def settings_of(**provider: object) -> Settings:
    return Settings(store="x", providers={"openai": ProviderSettings(**provider)})  # type: ignore[arg-type]  # as given


def test_a_key_comes_from_the_variable_that_the_settings_name(user: User) -> None:
    settings = settings_of(key_variable="WORK_KEY")
    with pytest.raises(DragomanError, match="WORK_KEY"):
        open_model(settings, "openai:gpt-5")
    user.set("WORK_KEY", SECRET)
    memory = ReplayTransport([ReplayedResponse(chunks=())])
    opened = open_model(settings, "openai:gpt-5", transport=memory)
    rendered = unsent_model(settings, "openai:gpt-5")

    async def ask() -> None:
        from dragoman.message import Message

        await opened.stream([Message.user("Hi.")]).collect()

    asyncio.run(ask())
    assert memory.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(opened) + repr(rendered)


def test_headers_and_addresses_of_the_settings_reach_the_provider(user: User) -> None:
    settings = settings_of(base_url="https://gate.example/v1", headers={"X-Team": "a"})
    user.set("OPENAI_API_KEY", SECRET)
    memory = ReplayTransport([ReplayedResponse(chunks=())])

    async def ask() -> None:
        from dragoman.message import Message

        await open_model(settings, "openai:gpt-5", transport=memory).stream([Message.user("Hi.")]).collect()

    asyncio.run(ask())
    assert memory.requests[0].url.startswith("https://gate.example/v1/")
    assert memory.requests[0].headers["X-Team"] == "a"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no model"):
        open_model(Settings(store="x"), "gpt-5")


# ---------------------------------------------------------------- differences

LINES = st.lists(st.sampled_from(["a", "b", "c", "  d"]), max_size=12)


@given(LINES, LINES)
def test_two_columns_hold_both_texts_in_order(left: Sequence[str], right: Sequence[str]) -> None:
    rows = list(paired_rows(left, right))
    assert [row.left for row in rows if row.left is not None] == left
    assert [row.right for row in rows if row.right is not None] == right
    for row in rows:
        assert (row.mark == SAME) == (row.left == row.right)
        assert (row.mark == LEFT_ONLY) == (row.right is None)
        assert (row.mark == RIGHT_ONLY) == (row.left is None)


def test_times_do_not_matter_for_what_is_rendered(user: User) -> None:
    file = user.write("c.json", WEATHER)
    one, other = (user.run("render", "--file", file, "--model", "groq:a", "--json").json for _ in range(2))
    assert one == other


def test_a_session_is_rendered_for_its_own_model(user: User) -> None:
    from tests.interop_cases import SAMPLES

    user.write_config('model = "openai:gpt-5"\n')
    assert user.run("sessions", "import", str(SAMPLES / "claude_code.jsonl")).status == 0
    assert user.run("render", "@", "--json").json[0]["model"] == "anthropic:claude-sonnet-4-5"
    user.imported()
    assert user.run("render", "@", "--json").json[0]["model"] == "openai:gpt-5"
