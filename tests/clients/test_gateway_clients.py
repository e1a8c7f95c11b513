"""Real clients through the gateway, with any API behind: they work as ever, and the record has what was said."""

import re
from pathlib import Path

import pytest

from dragoman.errors import ErrorCode

from .gateway import MODELS
from .programs import CLIENTS
from .records import Recorded, read_record
from .script import CALL_WORD, PLANTED
from .stage import ALWAYS, Stage, has_answered, has_used_a_tool
from .upstream import Cut, Fail, Fault, Refuse

pytestmark = pytest.mark.slow

every_client = pytest.mark.parametrize("name", CLIENTS)
main_clients = pytest.mark.parametrize("name", ALWAYS)
every_api = pytest.mark.parametrize("behind", MODELS)
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
        assert stage.problems(seat.client) == []
    if seat.client.has_tools:  # aider writes its messages anew in each turn
        (conversation,), _ = recorded(stage)
        assert conversation.has_tool_loop
        assert re.fullmatch("[us]+a[us]+ata", conversation.roles), conversation.roles
        assert conversation.session_id.startswith(f"{seat.client.known_as or name}-")
        assert conversation.kinds.count("client_answer") == conversation.kinds.count("client_request") == 3


@main_clients
@every_api
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


@main_clients
@every_api
def test_a_prompt_that_is_too_long_is_told_as_the_client_s_api_tells_it(name: str, behind: str, tmp_path: Path) -> None:
    overflow = Refuse(ErrorCode.CONTEXT_OVERFLOW, "prompt is too long: 250000 tokens > 200000 maximum")
    with Stage(tmp_path, overflow, behind=behind) as stage:
        ran = stage.seat(name).ask(WORD)
        assert ran.code == 1
        assert len(stage.upstream.main) == 1
        assert "too long" in ran.output + ran.errors


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
