"""Results that are longer than a model shall be shown: cut in the context, whole in the record, reached by `recall`."""

import re
from typing import Any

import pytest

from dragoman import FileRef, Image, InvalidValue, ToolCall, ToolError, ToolResult
from dragoman.agent import Agent
from dragoman.context import MARKER, RECALL_TOOL, ContextManager, recall
from dragoman.history import HistoryToolCallResult, LevelOfDetailSections, Section
from dragoman.request import AgentConfig, ContextConfig, ToolsConfig
from dragoman.testing import ScriptedModel
from dragoman.testing.scripted import Call
from dragoman.tools import ToolOutput, tool
from tests.agent_cases import asks, run
from tests.context_cases import Conversation, file_text, result_text

LIMIT = 1_000
LONG: dict[str, str] = {
    "lines": file_text("big", 200),
    "one line": "x" * 20_000,
    "emoji": "\U0001f642" * 5_000,
    "two bytes each": "é" * 9_999,
    "three bytes each": "日本語の文章。" * 900,
    "line ends": "\n" * 5_000,
    "mixed": "a\U0001f642é日" * 1_500,
}
START = re.compile(rf"{MARKER} .*: recall entry (\d+), start (\d+)$")


def limited(**config: Any) -> Conversation:
    conversation = Conversation(100_000, **config)
    conversation.manager = conversation.fresh_manager(result_limit_bytes=LIMIT)
    conversation.say("Read it.")
    return conversation


def recalled(conversation: Conversation, entry: int, start: int = 0) -> str:
    """What calls of `recall` return, one after the other, each going on where the last one ended."""
    whole = ""
    while True:
        piece = recall(conversation.entries, {"entry": entry, "start": start}, result_limit_bytes=LIMIT)
        assert len(piece.encode()) <= LIMIT
        text, _, last = piece.rpartition("\n")
        following = START.match(last)
        if following is None:
            return whole + piece
        whole += text
        assert int(following[2]) > start
        start = int(following[2])


@pytest.mark.parametrize("policy", ["epochs", "simple"])
@pytest.mark.parametrize("kind", LONG)
def test_a_live_result_shows_no_more_bytes_than_the_limit(kind: str, policy: str) -> None:
    conversation = limited(policy=policy)
    entry = conversation.call(LONG[kind])
    shown = result_text(conversation.build().messages[-1])
    assert len(shown.encode()) <= LIMIT
    assert len(shown.encode()) > LIMIT / 2
    head, marker, tail = re.split(rf"\n({MARKER}.*)\n", shown)
    assert LONG[kind].startswith(head)
    assert LONG[kind].endswith(tail)
    found = START.match(marker)
    assert found is not None
    assert int(found[1]) == entry.serial
    assert entry.results[0].text() == LONG[kind]


@pytest.mark.parametrize("kind", LONG)
def test_a_result_of_just_the_limit_is_shown_whole(kind: str) -> None:
    conversation = Conversation(100_000)
    size = len(LONG[kind].encode())
    conversation.say("Read it.")
    conversation.call(LONG[kind])
    whole, cut = (ContextManager(conversation.config, result_limit_bytes=limit) for limit in (size, size - 1))
    assert result_text(whole.build_context(conversation.given()).messages[-1]) == LONG[kind]
    assert result_text(cut.build_context(conversation.given()).messages[-1]) != LONG[kind]


@pytest.mark.parametrize("kind", LONG)
def test_recall_reaches_every_character_of_what_was_cut(kind: str) -> None:
    conversation = limited()
    entry = conversation.call("first", LONG[kind], LONG[kind][::-1])
    messages = conversation.build().messages
    assert recalled(conversation, entry.serial) == "\n".join(("first", LONG[kind], LONG[kind][::-1]))
    for message, text in zip(messages[-2:], (LONG[kind], LONG[kind][::-1]), strict=True):
        shown = result_text(message)
        head, marker, _ = re.split(rf"\n({MARKER}.*)\n", shown)
        found = START.match(marker)
        assert found is not None
        rest = recalled(conversation, entry.serial, int(found[2]))
        assert text.removeprefix(head).removeprefix("\n") in rest.removeprefix("\n") or text.endswith(rest)


def test_what_recall_returns_is_not_cut_again() -> None:
    conversation = limited()
    entry = conversation.call(LONG["lines"])
    piece = recall(conversation.entries, {"entry": entry.serial, "start": 500}, result_limit_bytes=LIMIT)
    conversation.call(piece, name="recall")
    assert result_text(conversation.build().messages[-1]) == piece


@pytest.mark.parametrize("start", [-1, "5", 1.5, True, None])
def test_recall_refuses_a_start_that_is_none(start: object) -> None:
    conversation = limited()
    with pytest.raises(ToolError, match="start must be"):
        recall(conversation.entries, {"entry": 0, "start": start})


def test_other_results_of_the_turn_and_pictures_are_left_alone() -> None:
    picture = Image("image/png", b"\x89PNG" * 1_000)
    conversation = limited()
    called = conversation.answer(ToolCall("a", "f", {}), ToolCall("b", "f", {})).tool_calls
    conversation.state.append_tool_results(
        [
            HistoryToolCallResult.of_text(called[0], "small"),
            HistoryToolCallResult(
                tool_name="f",
                tool_call_id=called[1].tool_call_id,
                result=LevelOfDetailSections.of_text(LONG["lines"]),
                attachments=(picture, FileRef(data=b"a" * 5_000, mime_type="text/plain")),
            ),
        ]
    )
    small, large = (message.parts[0] for message in conversation.build().messages[-2:])
    assert isinstance(small, ToolResult)
    assert isinstance(large, ToolResult)
    assert small.content == "small"
    assert isinstance(large.content, tuple)
    assert large.content[1:] == (picture,)
    assert "a long file left out" in large.content[0].text  # type: ignore[union-attr]


def test_a_live_screen_stays_whole_behind_a_cut_result() -> None:
    conversation = limited(widgets=None)
    conversation.state.update_memory_notebook("Remember the milk.")
    conversation.call(LONG["lines"])
    messages = conversation.build().messages
    assert "Remember the milk." in messages[-1].text


def test_a_summary_that_a_tool_gave_is_limited_too() -> None:
    conversation = limited(policy="simple")
    levels = LevelOfDetailSections((Section("", "live"),), (Section("", LONG["lines"]),), (Section("", "gist"),))
    conversation.call(levels)
    conversation.answer("So?")
    conversation.say("Go on.")
    assert len(result_text(conversation.build().messages[2]).encode()) <= LIMIT


# ---------------------------------------------------------------- offered


def offers_recall(conversation: Conversation) -> bool:
    return RECALL_TOOL in conversation.build().tool_specs


def test_recall_is_offered_from_the_moment_a_result_was_cut_whatever_the_policy() -> None:
    conversation = limited(policy="simple")
    conversation.call("short")
    assert not offers_recall(conversation)
    conversation.call(LONG["lines"])
    assert offers_recall(conversation)
    conversation.say("Go on.")
    assert offers_recall(conversation)
    conversation.state.reset()
    conversation.say("Anew.")
    assert not offers_recall(conversation)


def test_recall_that_is_switched_off_is_not_offered() -> None:
    conversation = limited(recall=False)
    conversation.call(LONG["lines"])
    assert not offers_recall(conversation)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "5"])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidValue, match="result_limit_bytes"):
        ContextManager(result_limit_bytes=limit)


# ---------------------------------------------------------------- an agent


@tool
def read_log() -> ToolOutput:
    """Return a long log."""
    return ToolOutput(LONG["mixed"])


@pytest.mark.parametrize("policy", ["epochs", "simple"])
def test_an_agents_model_reads_a_long_result_by_recall_alone(policy: Any) -> None:
    def ask_again(request: Any) -> Any:
        shown = result_text(request.messages[-1])
        found = START.search(shown.split("\n")[-1]) or next(filter(None, map(START.match, shown.split("\n"))), None)
        if found is None:
            return "Read."
        return asks(Call("recall", {"entry": int(found[1]), "start": int(found[2])}))

    model = ScriptedModel(asks(Call("read_log", {})), *[ask_again] * 60)
    config = AgentConfig(
        context=ContextConfig(policy=policy, budget_tokens=60_000), tools=ToolsConfig(result_limit_bytes=LIMIT)
    )
    agent = Agent(model, tools=[read_log], config=config)
    result = run(agent.run("Read the log."))
    assert result.status == "completed", result.error
    assert all("recall" in {spec.name for spec in request.tools} for request in model.requests[1:])
    shown = "".join(result_text(message) for message in model.requests[-1].messages if message.role == "tool")
    assert len(model.requests) > 10
    if policy == "epochs":
        assert LONG["mixed"][10_000:10_200] in shown.replace("\n", "")
