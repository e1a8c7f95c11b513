"""Real clients, headless, and no gateway: an answer, a tool loop, and what they do when an answer fails.

What holds here is what the gateway has to bear; see `test_gateway_clients`.
"""

from pathlib import Path

import pytest

from dragoman.errors import ErrorCode

from .programs import CLIENTS
from .script import CALL_WORD, PLANTED, SIGNATURES
from .stage import ALWAYS, Stage, has_answered, has_used_a_tool
from .upstream import Cut, Fail, Fault, Refuse

pytestmark = pytest.mark.slow

every_client = pytest.mark.parametrize("name", CLIENTS)
main_clients = pytest.mark.parametrize("name", ALWAYS)
WORD = "Say the word."
TOOL = f"{CALL_WORD}, then tell me the word."


@every_client
def test_the_client_shows_the_answer(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        ran = stage.seat(name).ask(WORD)
        assert has_answered(ran), ran
        assert stage.upstream.strange == []


@every_client
def test_the_client_runs_the_tool_and_sends_its_result(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        seat = stage.seat(name)
        if not seat.client.has_tools:
            pytest.skip(f"{name} has no tools")
        ran = seat.ask(TOOL)
        assert has_used_a_tool(ran), ran
        assert stage.upstream.strange == []


@every_client
def test_the_next_turn_has_the_messages_of_the_last(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        seat = stage.seat(name)
        seat.ask(WORD)
        stage.upstream.got.clear()
        ran = seat.ask("Say it again.", resume=True)
        assert has_answered(ran), ran
        last = stage.upstream.answered[0].read
        assert last is not None
        texts = [message.text for message in last.request.messages]
        assert any(WORD in text for text in texts)
        assert any(PLANTED in text for text in texts)


@main_clients
def test_a_thought_comes_back_with_its_signature(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        seat = stage.seat(name)
        seat.ask(TOOL)
        (signature,) = SIGNATURES[seat.client.api].values()
        assert [signature.encode() in got.body for got in stage.upstream.main] == [False, True]


@main_clients
@pytest.mark.parametrize(
    "fault",
    [Cut(), Fail(), Refuse(ErrorCode.RATE_LIMITED, retry_after=0), Refuse(ErrorCode.SERVER_ERROR)],
    ids=["cut", "error-event", "429", "500"],
)
def test_a_failed_answer_is_asked_for_again_with_the_same_messages(name: str, fault: Fault, tmp_path: Path) -> None:
    with Stage(tmp_path, fault) as stage:
        ran = stage.seat(name).ask(TOOL)
        assert has_used_a_tool(ran), ran
        first, again, *_ = [got.read for got in stage.upstream.main]
        assert first is not None
        assert again is not None
        assert first.request.messages == again.request.messages


@main_clients
def test_the_client_tells_that_the_prompt_is_too_long(name: str, tmp_path: Path) -> None:
    overflow = Refuse(ErrorCode.CONTEXT_OVERFLOW, "prompt is too long: 250000 tokens > 200000 maximum")
    with Stage(tmp_path, overflow) as stage:
        ran = stage.seat(name).ask(WORD)
        assert ran.code == 1
        assert len(stage.upstream.main) == 1
        assert "too long" in ran.output + ran.errors
