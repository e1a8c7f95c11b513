"""Real clients, headless: an answer, a tool loop, and what they do when an answer fails.

Claude Code and Codex run wherever npm can install them; the others where DRAGOMAN_ALL_CLIENTS is set.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dragoman.errors import ErrorCode

from .installing import NotInstalled, installed
from .programs import CLIENTS, Client, Ran, place, run
from .script import CALL_WORD, PLANTED, SEEN, SIGNATURES
from .upstream import Cut, Fail, Fault, Refuse, Upstream, running

pytestmark = pytest.mark.slow

ALWAYS = ("claude-code", "codex")
every_client = pytest.mark.parametrize("name", CLIENTS)
main_clients = pytest.mark.parametrize("name", ALWAYS)


class Stage:
    """A client in a project of its own, and the upstream behind it."""

    def __init__(self, client: Client, program: Path, upstream: Upstream, folder: Path) -> None:
        self.client = client
        self.upstream = upstream
        self._program = program
        self._where = place(folder, upstream.url)

    def ask(self, prompt: str, *, resume: bool = False) -> Ran:
        """Run the client once."""
        return run(self.client, self._program, self._where, prompt, resume=resume)


Staging: TypeAlias = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Staging]:
    """Makes the stage of a client by its name."""
    with ExitStack() as stack:

        def make(name: str, *faults: Fault, **options: Any) -> Stage:
            if name not in ALWAYS and not os.environ.get("DRAGOMAN_ALL_CLIENTS"):
                pytest.skip("only with DRAGOMAN_ALL_CLIENTS")
            try:
                program = installed(CLIENTS[name])
            except NotInstalled as error:
                pytest.skip(str(error))
            upstream = stack.enter_context(running(Upstream(str(tmp_path / "project"), **options)))
            upstream.faults.extend(faults)
            return Stage(CLIENTS[name], program, upstream, tmp_path)

        yield make


@every_client
def test_the_client_shows_the_answer(name: str, stage: Staging) -> None:
    on = stage(name)
    ran = on.ask("Say the word.")
    assert (ran.code, PLANTED in ran.output) == (0, True), ran
    assert on.upstream.strange == []


@every_client
def test_the_client_runs_the_tool_and_sends_its_result(name: str, stage: Staging) -> None:
    on = stage(name, thinks=True)
    if not on.client.has_tools:
        pytest.skip(f"{name} has no tools")
    ran = on.ask(f"{CALL_WORD}, then tell me the word.")
    assert (ran.code, PLANTED in ran.output) == (0, True), ran
    assert any(f"The tool said {word}" in ran.output for word in SEEN), ran
    assert on.upstream.strange == []


@every_client
def test_the_next_turn_begins_with_the_messages_of_the_last(name: str, stage: Staging) -> None:
    on = stage(name)
    on.ask("Say the word.")
    on.upstream.got.clear()
    ran = on.ask("Say it again.", resume=True)
    assert ran.code == 0, ran
    last = on.upstream.answered[0].read
    assert last is not None
    texts = [message.text for message in last.request.messages]
    assert any("Say the word." in text for text in texts)
    assert any(PLANTED in text for text in texts)


@main_clients
def test_a_thought_comes_back_with_its_signature(name: str, stage: Staging) -> None:
    on = stage(name, thinks=True)
    on.ask(f"{CALL_WORD}, then tell me the word.")
    (signature,) = SIGNATURES[on.client.api].values()
    assert [signature.encode() in got.body for got in on.upstream.main] == [False, True]


@main_clients
@pytest.mark.parametrize(
    "fault",
    [Cut(), Fail(), Refuse(ErrorCode.RATE_LIMITED, retry_after=0), Refuse(ErrorCode.SERVER_ERROR)],
    ids=lambda fault: type(fault).__name__,
)
def test_a_failed_answer_is_asked_for_again_with_the_same_messages(name: str, fault: Fault, stage: Staging) -> None:
    on = stage(name, fault)
    ran = on.ask(f"{CALL_WORD}, then tell me the word.")
    assert (ran.code, PLANTED in ran.output) == (0, True), ran
    first, again, *_ = [got.read for got in on.upstream.main]
    assert first is not None
    assert again is not None
    assert first.request.messages == again.request.messages


@main_clients
def test_the_client_tells_that_the_prompt_is_too_long(name: str, stage: Staging) -> None:
    on = stage(name, Refuse(ErrorCode.CONTEXT_OVERFLOW, "prompt is too long: 250000 tokens > 200000 maximum"))
    ran = on.ask("Say the word.")
    assert ran.code == 1
    assert len(on.upstream.main) == 1
    assert "too long" in ran.output + ran.errors
