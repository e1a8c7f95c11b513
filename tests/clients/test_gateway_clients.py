"""Real clients through the gateway, with any API behind: they work as ever, and the record has what was said."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.errors import ErrorCode

from .gateway import MODELS
from .programs import CLIENTS
from .records import Recorded, read_record
from .script import AGENT_WORD, CALL_WORD, ECHOED, ECHOED_TOO, PICTURE_WORD, PLANTED, SEEN_PICTURE, TWO_WORD
from .stage import ALWAYS, Stage, has_answered, has_used_a_tool
from .upstream import Cut, Fail, Fault, Hold, Refuse

pytestmark = pytest.mark.slow

every_client = pytest.mark.parametrize("name", CLIENTS)
every_api = pytest.mark.parametrize("behind", MODELS)
# Clients on their own API and on another. All pairs are tried where all clients are.
FOREIGN = {"claude-code": "openai-chat", "codex": "anthropic-messages"}
PAIRS = [
    (name, behind)
    for name in ALWAYS
    for behind in MODELS
    if os.environ.get("DRAGOMAN_ALL_CLIENTS") or behind in (CLIENTS[name].api, FOREIGN[name])
]
main_pairs = pytest.mark.parametrize(("name", "behind"), PAIRS)
WORD = "Say the word."
TOOL = f"{CALL_WORD}, then tell me the word."


def recorded(stage: Stage) -> tuple[list[Recorded], list[Recorded]]:
    """The sessions of conversations, and those of side requests. Every one of them is sound."""
    assert stage.served is not None
    sessions = read_record(stage.served.store)
    assert [session.problem for session in sessions] == [""] * len(sessions)
    return [each for each in sessions if not each.is_side], [each for each in sessions if each.is_side]


@every_api
@every_client
def test_a_client_runs_its_tools_whatever_is_behind(name: str, behind: str, tmp_path: Path) -> None:
    with Stage(tmp_path, behind=behind) as stage:
        seat = stage.seat(name)
        answered = seat.ask(WORD)
        assert has_answered(answered), answered
        looped = seat.ask(TOOL, resume=True)
        assert (has_used_a_tool if seat.client.has_tools else has_answered)(looped), looped
        again = seat.ask(WORD, resume=True)
        assert has_answered(again), again
        assert stage.problems(seat.client) == []
    if seat.client.has_tools:  # aider writes its messages anew in each turn
        (conversation,), _ = recorded(stage)
        assert conversation.has_tool_loop
        # Qwen Code begins with a turn of its own.
        assert re.fullmatch("(ua)?[us]+a[us]+ata[us]+a", conversation.roles), conversation.roles
        assert conversation.session_id.startswith(f"{seat.client.known_as or name}-")
        assert conversation.kinds.count("client_answer") == conversation.kinds.count("client_request") == 4


@main_pairs
@pytest.mark.parametrize(("word", "seen"), [(TWO_WORD, f"{ECHOED} {ECHOED_TOO}"), (PICTURE_WORD, SEEN_PICTURE)])
def test_all_results_reach_the_model(name: str, behind: str, word: str, seen: str, tmp_path: Path) -> None:
    with Stage(tmp_path, behind=behind) as stage:
        seat = stage.seat(name)
        ran = seat.ask(word)
        assert f"The tool said {seen}." in ran.output, ran
        assert stage.problems(seat.client) == []
    (conversation,), _ = recorded(stage)
    assert re.fullmatch("[us]+at+a", conversation.roles), conversation.roles


@pytest.mark.parametrize("behind", ["anthropic-messages", FOREIGN["claude-code"]])
def test_what_an_agent_of_the_client_does_is_beside_its_conversation(behind: str, tmp_path: Path) -> None:
    with Stage(tmp_path, behind=behind) as stage:
        seat = stage.seat("claude-code")
        ran = seat.ask(AGENT_WORD)
        assert has_answered(ran), ran
        assert stage.problems(seat.client) == []
    (conversation,), (agent,) = recorded(stage)
    assert agent.has_tool_loop
    assert not conversation.has_tool_loop
    assert conversation.messages[-1].role == "assistant"


@main_pairs
@pytest.mark.parametrize(
    "fault",
    [Cut(), Fail(), Refuse(ErrorCode.RATE_LIMITED, retry_after=0), Refuse(ErrorCode.SERVER_ERROR)],
    ids=["cut", "error-event", "429", "500"],
)
def test_an_answer_that_failed_and_was_asked_for_again_is_one_turn(
    name: str, behind: str, fault: Fault, tmp_path: Path
) -> None:
    with Stage(tmp_path, fault, behind=behind) as stage:
        ran = stage.seat(name).ask(TOOL)
        assert has_used_a_tool(ran), ran
    (conversation,), _ = recorded(stage)
    assert conversation.has_tool_loop
    assert re.fullmatch("[us]+ata", conversation.roles), conversation.roles
    assert conversation.kinds.count("client_answer") == 3


@main_pairs
def test_a_gateway_that_is_killed_within_an_answer_goes_on_with_the_turn(
    name: str, behind: str, tmp_path: Path
) -> None:
    held = Hold()
    with Stage(tmp_path, held, behind=behind) as stage, ThreadPoolExecutor(1) as thread:
        seat = stage.seat(name)
        running = thread.submit(seat.ask, TOOL)
        assert held.reached()
        stage.crash()
        held.release()
        ran = running.result()
        assert has_used_a_tool(ran), ran
    conversations, _ = recorded(stage)
    assert conversations[-1].has_tool_loop
    assert re.fullmatch("[us]+ata", conversations[-1].roles), conversations[-1].roles
    # Claude Code may say in its first message that the answer was cut. That is an edit: its session is a fork then.
    assert [each.parent for each in conversations] in ([""], ["", conversations[0].session_id])
    assert name == "claude-code" or len(conversations) == 1


@main_pairs
def test_a_prompt_that_is_too_long_is_told_as_the_client_s_api_tells_it(name: str, behind: str, tmp_path: Path) -> None:
    overflow = Refuse(ErrorCode.CONTEXT_OVERFLOW, "prompt is too long: 250000 tokens > 200000 maximum")
    with Stage(tmp_path, overflow, behind=behind) as stage:
        ran = stage.seat(name).ask(WORD)
        assert ran.code == 1
        assert len(stage.upstream.main) == 1
        assert "too long" in ran.output + ran.errors


@pytest.mark.parametrize("behind", ["anthropic-messages", FOREIGN["claude-code"]])
def test_a_conversation_is_replayed_without_a_model(behind: str, tmp_path: Path) -> None:
    # Codex gives each result of its shell a random number, so that its tool loops cannot be the same twice.
    with Stage(tmp_path, behind=behind) as stage:
        seat = stage.seat("claude-code")
        said = [seat.ask(WORD).output, seat.ask(TOOL, resume=True).output]
        asked = len(stage.upstream.got)
        stage.replay()
        seat = stage.seat("claude-code")
        assert [seat.ask(WORD).output, seat.ask(TOOL, resume=True).output] == said
        assert len(stage.upstream.got) == asked


@every_api
def test_a_conversation_goes_on_in_another_client_and_back(behind: str, tmp_path: Path) -> None:
    with Stage(tmp_path, behind=behind) as stage:
        claude, codex = (stage.seat(name, path="/session/shared") for name in ALWAYS)
        turns = [
            claude.ask(f"My cat is called Ada. {TOOL}"),
            codex.ask(f"My dog is called Bob. {TOOL}"),
            claude.ask(f"My bird is called Cy. {TOOL}", resume=True),
            codex.ask(WORD, resume=True),
        ]
        assert [has_answered(turn) for turn in turns] == [True] * 4, turns
        assert [has_used_a_tool(turn) for turn in turns[:3]] == [True] * 3, turns
        problems = stage.problems(claude.client) + stage.problems(codex.client)
        assert problems == []
        last = stage.upstream.main[-1].body
        assert [name in last for name in (b"Ada", b"Bob", b"Cy")] == [True] * 3
    (conversation,), _ = recorded(stage)
    assert conversation.session_id == "shared"
    assert sum(PLANTED in message.text for message in conversation.messages if message.role == "assistant") == 4


@pytest.mark.parametrize("behind", ["anthropic-messages", "openai-chat"])
def test_a_conversation_goes_through_all_clients(behind: str, tmp_path: Path) -> None:
    with Stage(tmp_path, behind=behind) as stage:
        seats = [stage.seat(name, path="/session/shared") for name, client in CLIENTS.items() if client.has_tools]
        for is_later in (False, True):
            for seat in seats:
                ran = seat.ask(f"I am {seat.client.name}, {is_later=}. {TOOL}", resume=is_later)
                assert has_used_a_tool(ran), ran
        assert [problem for seat in seats for problem in stage.problems(seat.client)] == []
        last = stage.upstream.main[-1].body
        assert [
            name for name, client in CLIENTS.items() if client.has_tools and f"I am {name}".encode() not in last
        ] == []
    (conversation,), _ = recorded(stage)
    assert sum(PLANTED in message.text for message in conversation.messages if message.role == "assistant") == 12
