"""The parts of the chat, each on plain values: Markdown that grows, safe pieces, remembered lines, conversations."""

import argparse
import asyncio
import io
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import (
    AgentStatus,
    ContextConfig,
    DragomanError,
    ErrorCode,
    FinishReason,
    InvalidValue,
    MemoryStore,
    Message,
    ModelError,
    TokenUsage,
    ToolCall,
    to_json,
)
from dragoman.agent import (
    ApprovalAskedEvent,
    DeltaEvent,
    ErrorEvent,
    FinishedEvent,
    MediaNotShownEvent,
    MessageEvent,
    QuestionAskedEvent,
    RunError,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from dragoman.agent.eventform import event_to_json
from dragoman.catalogue import find_model_info
from dragoman.cli.chat.commands import COMMANDS, complete, find_command
from dragoman.cli.chat.input import LineHistory, PlainEditor, holds_secret
from dragoman.cli.chat.loop import Chat
from dragoman.cli.chat.main import add_arguments
from dragoman.cli.chat.markdown import GrowingMarkdown
from dragoman.cli.chat.models import DEFAULTS, EMBEDDED, ChatModels, choose_model
from dragoman.cli.chat.once import EXIT_STATUS
from dragoman.cli.chat.plain_view import WordWrap
from dragoman.cli.chat.status import count_words, status_words
from dragoman.cli.chat.talk import Talk, TalkOptions, last_model
from dragoman.cli.chat.tools import builtin_tools
from dragoman.cli.chat.view import ReplyView, call_words, result_lines
from dragoman.cli.delta_follower import SafePieces
from dragoman.cli.output import Output, display_width, printable
from dragoman.cli.settings import ProviderSettings, Settings
from dragoman.delta import DoneDelta, KnownDelta, TextDelta, ThinkingDelta
from dragoman.history import HistoryToolCallResult, LevelOfDetail
from dragoman.message import ModelInvocationDescriptor
from dragoman.request import ModelInfo
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import Question, tool
from dragoman.wire import find_dialect

SETTINGS = Settings(store="unused.db")


# ---------------------------------------------------------------- text in pieces

DOCUMENT = """# Title
Words that go
on **and** on.

- a
- b

  still b

- c

| x | y |
|---|---|
| 1 | 2 |

~~~python
def f():

    return "- no list"
~~~
after

Setext
------
1. one
2. two
> quote

the end
"""


def blocks_of(text: str, size: int) -> list[str]:
    growing = GrowingMarkdown()
    blocks = [block for place in range(0, len(text), size) for block in growing.feed(text[place : place + size])]
    return blocks + growing.end()


@pytest.mark.parametrize("size", [1, 2, 7, 40, 10_000])
def test_blocks_together_are_the_whole_text(size: int) -> None:
    blocks = blocks_of(DOCUMENT, size)
    assert "".join("".join(blocks).split()) == "".join(DOCUMENT.split())
    assert any(block.startswith("~~~python") and block.endswith("~~~") for block in blocks), "code was cut"
    assert any(block.startswith("- a") and "- c" in block for block in blocks), "a list was cut"
    assert any(block.startswith("| x") and "| 2 |" in block for block in blocks), "a table was cut"


@given(st.text(alphabet="ab*-#>`~|1. \n\t<", max_size=200), st.integers(1, 20))
def test_no_character_is_lost_whatever_the_text(text: str, size: int) -> None:
    assert "".join("".join(blocks_of(text, size)).split()) == "".join(text.split())


def test_a_block_comes_when_the_next_has_begun_and_not_before() -> None:
    growing = GrowingMarkdown()
    assert growing.feed("one\n") == []
    assert growing.feed("\n") == []
    assert growing.feed("two\n") == ["one"]
    assert growing.rest == "two\n"


@given(st.lists(st.text(st.characters() | st.sampled_from("👩💻\u200d\u200c\ufe0f❤é1"), max_size=5), max_size=20))
def test_pieces_made_safe_are_the_whole_made_safe(pieces: list[str]) -> None:
    safe = SafePieces()
    shown = "".join([*map(safe.feed, pieces), safe.end()])
    whole = "".join(pieces)
    joined = whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert shown == printable(joined)


@given(st.lists(st.text("ab \n", max_size=8), max_size=40), st.integers(5, 30))
def test_words_are_broken_at_spaces_alone(pieces: list[str], width: int) -> None:
    wrap = WordWrap(width)
    shown = "".join([*map(wrap.feed, pieces), wrap.end()])
    assert shown.split() == "".join(pieces).split()
    for line in shown.split("\n"):
        assert len(line.rstrip()) <= width or " " not in line.strip()


def test_calls_and_results_are_shown_short_and_safe() -> None:
    call = ToolCall(tool_name="t", tool_call_id="c", arguments={"a": "\x1b[2J" * 500})
    assert "\x1b" not in call_words(call)
    assert len(call_words(call)) < 700
    broken = ToolCall(tool_name="t", tool_call_id="c", raw_args_text='{"a', parse_error="it ends too early")
    assert "it ends too early" in call_words(broken)
    text = "\n".join(f"\x1b]0;{number}\x07" for number in range(100))
    lines = result_lines(HistoryToolCallResult.of_text(call, text))
    assert len(lines) == 9
    assert lines[-1] == "… 92 more lines"
    assert not set("".join(lines)) & set("\x1b\x07")
    failed = HistoryToolCallResult.of_text(call, "no", error_code=ErrorCode.TOOL_DENIED)
    assert result_lines(failed) == ["tool_denied: no"]


# ---------------------------------------------------------------- what is remembered


@pytest.mark.parametrize(
    "line",
    [
        "my key: sk-" + "proj-0123456789abcdefghij",
        "password = hunter2222",
        "/key abc",
        "/Token abc",
        "it is planted-4711",
    ],
)
def test_a_line_with_a_secret_is_not_remembered(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "planted-4711")
    assert holds_secret(line)
    history = LineHistory(tmp_path / "history")
    history.remember(line)
    assert history.load() == []


def test_lines_are_remembered_in_their_order_and_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history"
    history = LineHistory(path)
    for number in range(2_500):
        history.remember(f"line {number}\nand more")
    assert history.load()[-1] == "line 2499\nand more"
    assert len(history.load()) == 1_000
    assert len(path.read_text().splitlines()) == 1_000


def test_a_history_that_is_damaged_or_a_link_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n{broken\n\xff\n[1]\n"also good"\n')
    assert LineHistory(path).load() == ["good", "also good"]
    target = tmp_path / "target"
    target.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(target)
    LineHistory(link).remember("words")
    assert target.read_text() == "precious"
    LineHistory(tmp_path / "target" / "below").remember("words")


# ---------------------------------------------------------------- models


def test_without_a_key_and_the_extra_local_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    words = r"no model was chosen, and no key is set: set ANTHROPIC_API_KEY .* --model, .*dragoman\[local\]"
    with pytest.raises(DragomanError, match=words):
        choose_model(SETTINGS, {})


@pytest.fixture
def _with_local_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `local` were installed, wherever the tests run."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "llama_stand_in"))


@pytest.mark.usefixtures("_with_local_extra")
def test_without_a_key_the_embedded_model_is_chosen() -> None:
    assert choose_model(SETTINGS, {})[0] == EMBEDDED


@pytest.mark.usefixtures("_with_local_extra")
def test_the_first_key_that_is_set_chooses_and_the_settings_go_first() -> None:
    keys = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y"}
    name, why = choose_model(SETTINGS, keys)
    assert name.startswith("anthropic:")
    assert why == "ANTHROPIC_API_KEY is set"
    assert choose_model(Settings(store="s", model="groq:x"), keys) == ("groq:x", "")
    named = Settings(store="s", providers={"mistral": ProviderSettings(key_variable="MY_KEY")})
    assert choose_model(named, {"MY_KEY": "z"})[0].startswith("mistral:")
    assert choose_model(named, {"MISTRAL_API_KEY": "z"})[0] == EMBEDDED


@pytest.mark.parametrize("provider", DEFAULTS)
def test_the_models_that_are_chosen_are_known(provider: str) -> None:
    assert find_model_info(provider, DEFAULTS[provider]) is not None
    assert find_dialect(provider, DEFAULTS[provider]).key_variables


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("local:smollm2@gemini", "after @ give one of chat, responses, anthropic"),
        ("local:nothing", "there is no local model"),
        ("nothing", "provider:name"),
        ("claude-opus-5", "which one of anthropic:claude-opus-5"),
    ],
)
def test_a_name_that_is_no_model_is_told(name: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        asyncio.run(ChatModels(SETTINGS).open(name))


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "line", ["hello", "/etc/passwd is a file", "/", "// comment", "/1", "a /help", "/usr/share: why?"]
)
def test_what_is_no_command_is_something_to_say(line: str) -> None:
    assert find_command(line) == (None, "")


def test_commands_are_found_by_name_and_short_name() -> None:
    assert find_command("/model  a:b ") == (COMMANDS["model"], "a:b")
    assert find_command("/HELP") == (COMMANDS["help"], "")
    assert find_command("/exit") == (COMMANDS["quit"], "")
    with pytest.raises(InvalidValue, match="did you mean 'undo'"):
        find_command("/udno")


def test_commands_models_and_formats_are_completed() -> None:
    assert list(complete("/no")) == ["/notebook"]
    assert EMBEDDED in list(complete("/model local"))
    assert list(complete("/export talk.x any")) == []
    assert list(complete("/export talk.x an")) == ["anthropic"]
    assert list(complete("hello")) == []


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0"), (999, "999"), (1_234, "1.2k"), (123_456, "123k"), (2**21, "2.1M")]
)
def test_numbers_are_short(count: int, words: str) -> None:
    assert count_words(count) == words


# ---------------------------------------------------------------- conversations


def talk_with(model: ScriptedModel, **settings: Any) -> Talk:
    talk = Talk(MemoryStore(), ChatModels(SETTINGS), **settings)
    talk.model, talk.model_name = model, "scripted:actor"
    return talk


async def say(talk: Talk, text: str | None) -> tuple[AgentStatus, list[RunEvent]]:
    run = await talk.say(text)
    events = [event async for event in run]
    return (await run.result()).status, events


def running(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in an event loop."""

    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]  # it is a coroutine

    run.__name__ = test.__name__
    return run


@running
async def test_no_session_is_made_before_something_is_said() -> None:
    talk = talk_with(ScriptedModel("Hi."), options=TalkOptions(instructions="Be kind."))
    assert talk.session is None
    assert talk.context() is None
    await say(talk, "Hello there")
    assert talk.session is not None
    assert talk.session.metadata["title"] == "Hello there"
    assert talk.session.state.system_instruction == "Be kind."
    assert last_model(talk.session) == "scripted:actor"


@running
async def test_undo_forks_before_the_turn_with_all_its_tools() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    talk = talk_with(ScriptedModel("One.", Turn(calls=(Call("look"),)), "Two.", "Three."), tools=[look])
    await say(talk, "first")
    await say(talk, "second")
    assert talk.session is not None
    before = talk.session
    assert await talk.undo() == "second"
    assert talk.session.session_id != before.session_id
    assert [message.text for message in talk.session.messages] == ["first", "One."]
    assert len(before.messages) == 6, "the old session is as it was"
    status, _ = await say(talk, "instead")
    assert status is AgentStatus.COMPLETED
    assert await talk.undo() == "instead"
    assert await talk.undo() == "first"
    with pytest.raises(InvalidValue, match="nothing to undo"):
        await talk.undo()


@running
async def test_refused_calls_are_told_like_those_that_ran() -> None:
    talk = talk_with(
        ScriptedModel(Turn(calls=(Call("nothing"), Call("memory_notebook_append", {"text": "x"}))), "Done.")
    )
    _, events = await say(talk, "go")
    results = [event.result for event in events if isinstance(event, ToolResultEvent)]
    assert {result.tool_name for result in results} == {"nothing", "memory_notebook_append"}
    assert len(results) == 2


@running
async def test_what_each_model_used_is_counted_apart() -> None:
    used = TokenUsage(input_tokens=10, output_tokens=5, cost=0.5)
    talk = talk_with(ScriptedModel(Turn(text="a", usage=used), Turn(text="b", usage=used)))
    await say(talk, "x")
    other = ModelInvocationDescriptor("other", "script", "second")
    talk.model = ScriptedModel(Turn(text="c", usage=used), invocation=other)
    talk._agent = None
    await say(talk, "y")
    first, second = talk.spent()
    assert (first.answers, second.answers) == (1, 1)
    assert second.invocation == other
    assert second.usage.cost == 0.5


@running
async def test_a_small_window_is_not_all_reserve() -> None:
    info = ModelInfo(provider="p", model_id="m", context_window=8_192, abilities=frozenset({"streaming"}))
    talk = talk_with(ScriptedModel("Hi.", info=info))
    await say(talk, "Hello")
    built = talk.context()
    assert built is not None
    assert built.stats.budget == 6_144
    assert built.tool_specs == ()


@running
async def test_the_status_line_fits_every_width() -> None:
    used = TokenUsage(input_tokens=12_345, output_tokens=678, cache_read_tokens=6_000, cost=0.0123)
    talk = talk_with(ScriptedModel(Turn(text="Hi.", usage=used)))
    talk.model_name = "openrouter:anthropic/claude-sonnet-4-5-with-a-very-long-name"
    await say(talk, "Hello")
    whole = status_words(talk, 200)
    assert "12.3k in (48% cached) · 678 out · $0.0123 · context " in whole
    assert "2 live" in whole
    for width in range(10, 120):
        assert display_width(status_words(talk, width)) <= width
    assert "ctx" in status_words(talk, 40)


@running
async def test_a_failed_answer_can_be_asked_for_again() -> None:
    failure = ModelError("no", code=ErrorCode.PERMISSION)
    talk = talk_with(ScriptedModel(failure, "At last."))
    status, _ = await say(talk, "Hello")
    assert status is AgentStatus.FAILED
    assert talk.is_unfinished
    status, _ = await say(talk, None)
    assert status is AgentStatus.COMPLETED
    assert not talk.is_unfinished


@running
async def test_the_context_shows_what_was_folded() -> None:
    words = "many words about rivers and lakes, " * 40
    answers = [Turn(text=f"Answer {number}: {words}", usage=None) for number in range(12)]
    context = ContextConfig(budget_tokens=2_000)
    talk = talk_with(ScriptedModel(*answers), options=TalkOptions(context=context))
    for number in range(12):
        await say(talk, f"Question {number}?")
    written = io.StringIO()
    output = Output(written)
    await COMMANDS["context"].run(Chat(talk, Strokes(), PlainEditor(), output), "")
    lines = written.getvalue().splitlines()
    assert any(line.startswith("folded") for line in lines)
    assert any(line.startswith("live") and "Question 11?" in line for line in lines)
    assert "summary" in lines[0]
    built = talk.context()
    assert built is not None
    assert f"{built.stats.levels[LevelOfDetail.SUMMARY]} summary" in status_words(talk, 200)


# ---------------------------------------------------------------- what is drawn


class Strokes(ReplyView):
    """Notes what would be drawn."""

    def __init__(self) -> None:
        super().__init__(seconds=lambda: 0.0)
        self.drawn: list[tuple[str, str]] = []

    def draw_text(self, piece: str) -> None:
        self.drawn.append(("text", piece))

    def end_text(self) -> None:
        self.drawn.append(("text", "END"))

    def end_thinking(self, text: str, seconds: float) -> None:
        self.drawn.append(("thinking", text))

    def draw_error(self, error: RunError) -> None:
        self.drawn.append(("error", error.message))

    def draw_note(self, text: str) -> None:
        self.drawn.append(("note", text))


@running
async def test_an_error_is_drawn_once_and_a_new_attempt_is_told() -> None:
    broken = Turn(text="Half an answer", error=ModelError("broke off", code=ErrorCode.CONNECTION))
    talk = talk_with(ScriptedModel(broken, "All of it."))
    view = Strokes()
    run = await talk.say("go")
    async for event in run:
        view.show(event)
    view.end()
    said = "".join(text for kind, text in view.drawn if kind == "text")
    assert said == "Half an answerENDAll of it.END"
    others = [stroke for stroke in view.drawn if stroke[0] != "text"]
    assert others == [("error", "broke off"), ("note", "trying again")]


@running
async def test_a_final_error_is_drawn_once() -> None:
    talk = talk_with(ScriptedModel(ModelError("not allowed", code=ErrorCode.PERMISSION)))
    view = Strokes()
    run = await talk.say("go")
    async for event in run:
        view.show(event)
    assert view.drawn == [("error", "not allowed")]


def test_thinking_and_text_are_told_apart_and_halves_are_joined() -> None:
    view = Strokes()
    rocket = "\N{ROCKET}".encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    high, low = (chr(0xD83D), chr(0xDE80))
    deltas: list[KnownDelta] = [
        ThinkingDelta("r", 0, None, "hm"),
        TextDelta("r", 1, None, f"a{high}"),
        TextDelta("r", 2, None, f"{low}b\r"),
    ]
    for place, delta in enumerate(deltas):
        view.show(DeltaEvent("r", 0, place, delta))
    view.end()
    assert view.drawn == [("thinking", "hm"), ("text", "a"), ("text", f"{rocket}b"), ("text", "\\x0d"), ("text", "END")]


# ---------------------------------------------------------------- the JSON form of events

CALL = ToolCall(tool_name="look", tool_call_id="c1", raw_args_text='{"a":1}', arguments={"a": 1})
DELTA = TextDelta("r", 3, None, "Hi")
EVENTS: dict[str, tuple[RunEvent, dict[str, Any]]] = {
    "status": (StatusEvent("r", 0, 1, AgentStatus.PREPARING), {"status": "preparing"}),
    "delta": (DeltaEvent("r", 0, 1, DELTA), {"delta": json.loads(to_json(DELTA))}),
    "message": (
        MessageEvent("r", 0, 1, Message.user("Hello")),
        {"message": json.loads(to_json(Message.user("Hello")))},
    ),
    "tool_started": (
        ToolStartedEvent("r", 0, 1, CALL),
        {"call": {"toolName": "look", "toolCallId": "c1", "rawArguments": '{"a":1}', "arguments": {"a": 1}}},
    ),
    "tool_result": (
        ToolResultEvent("r", 0, 1, HistoryToolCallResult.of_text(CALL, "seen")),
        {
            "result": {
                "toolName": "look",
                "toolCallId": "c1",
                "status": "success",
                "result": {"live": [["", "seen"]]},
            }
        },
    ),
    "approval_asked": (
        ApprovalAskedEvent("r", 0, 1, CALL),
        {"call": {"toolName": "look", "toolCallId": "c1", "rawArguments": '{"a":1}', "arguments": {"a": 1}}},
    ),
    "question_asked": (
        QuestionAskedEvent("r", 0, 1, "q1", Question(text="Who?", schema={"type": "object"}, origin="inn"), CALL),
        {
            "questionId": "q1",
            "toolCallId": "c1",
            "toolName": "look",
            "text": "Who?",
            "schema": {"type": "object"},
            "origin": "inn",
        },
    ),
    "media_not_shown": (
        MediaNotShownEvent("r", 0, 1, "image/png, 9 bytes", "this model cannot read it"),
        {"what": "image/png, 9 bytes", "why": "this model cannot read it"},
    ),
    "error": (
        ErrorEvent("r", 0, 1, RunError(ErrorCode.RATE_LIMITED, "slow down", True, 2.5)),
        {"error": {"code": "rate_limited", "message": "slow down", "retryable": True, "retryAfter": 2.5}},
    ),
    "finished": (
        FinishedEvent("r", 0, 1, AgentStatus.FAILED, RunError(ErrorCode.TIMEOUT, "too late")),
        {"status": "failed", "error": {"code": "timeout", "message": "too late", "retryable": False}},
    ),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_has_its_place_and_its_payload(kind: str) -> None:
    event, payload = EVENTS[kind]
    assert event.kind == kind
    written = json.loads(event_to_json(event))
    assert written == {"kind": kind, "runId": "r", "callIndex": 0, "seq": 1, "payload": payload}


def test_every_event_has_a_form_and_nothing_else_does() -> None:
    assert {type(event) for event, _ in EVENTS.values()} == set(get_args(RunEvent))
    with pytest.raises(InvalidValue, match="event_to_json"):
        event_to_json(DoneDelta("r", 0, None, FinishReason.STOP))  # type: ignore[arg-type]  # a delta is no event


# ---------------------------------------------------------------- the document

PAGE = (Path(__file__).parents[1] / "docs" / "chat.md").read_text(encoding="utf-8")


def options_of_the_command() -> set[str]:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    return {max(action.option_strings, key=len) for action in parser._actions}


def test_the_page_has_every_command_event_and_exit_status() -> None:
    assert [name for name in COMMANDS if f"`/{name}" not in PAGE] == []
    assert [kind for kind in EVENTS if f"`{kind}`" not in PAGE] == []
    assert [status for status in EXIT_STATUS.values() if f"| {status} |" not in PAGE] == []
    assert [each.name for each in builtin_tools(".") if f"`{each.name}`" not in PAGE] == []


def test_the_page_has_every_option_that_needs_words() -> None:
    obvious = {"--debug", "--store", "--system", "--temperature", "--max-tokens", "--think", "--no-mcp"}
    short = {"--prompt": "-p ", "--continue": "`-c`", "--session": "-s "}
    unsaid = {option for option in options_of_the_command() if short.get(option, option) not in PAGE}
    assert unsaid <= obvious
