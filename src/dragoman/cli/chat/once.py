"""One answer for a script: its text on standard output, or the run's events as JSON Lines, and how it ended as the
exit status. Needs no package of an extra.
"""

import asyncio
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ..._jsontext import encode_json
from ...agent import AgentRun, RunResult
from ...agent.eventform import event_to_json
from ...errors import DragomanError
from ...history import AgentStatus
from ...message import FinishReason, ToolCall
from ..advice import ANSWER_ADVICE, advice_after, failure_words, with_advice
from ..output import Output, one_line, warn
from .input import hearing_interrupts
from .plain_view import PlainView
from .talk import Talk

__all__ = ["EXIT_STATUS", "answer_once"]

# A failure is 1, like every other error; 2 is a command line that makes no sense.
EXIT_STATUS: dict[AgentStatus, int] = {
    AgentStatus.COMPLETED: 0,
    AgentStatus.FAILED: 1,
    AgentStatus.AWAITING_HUMAN: 3,
    AgentStatus.ABORTED: 130,
}


async def answer_once(talk: Talk, prompt: str, *, as_json: bool = False, wait_seconds: float = 0.0) -> int:
    """Say something, print the answer, and return the exit status. Raises DragomanError where there is no answer.

    To a session whose call waits for an approval nothing is said: a person must decide first.
    """
    output = Output(color="never")
    if talk.session is not None and talk.pending:
        if as_json:
            _print_opening(talk, output)
        how = f"`dragoman chat -s {shlex.quote(talk.session.session_id)}` asks you"
        _warn_waiting([call.request for call in talk.pending], how)
        return EXIT_STATUS[AgentStatus.AWAITING_HUMAN]
    run = await talk.say(prompt, wait_seconds=wait_seconds)
    stopping: list[asyncio.Task[Any]] = []

    def stop() -> None:
        if not stopping:
            stopping.append(asyncio.ensure_future(run.abort()))

    async with run:
        with hearing_interrupts(stop):
            if as_json:
                await _print_events(talk, run, output)
            elif sys.stdout.isatty():
                await _print_pieces(run, output)
            result = await run.result()
    if not as_json:
        _print_rest(result, output)
    if result.status is AgentStatus.FAILED and result.error is not None:
        error = result.error
        words = with_advice(failure_words(error), advice_after(talk, error.code))
        raise DragomanError(words, code=error.code)
    return EXIT_STATUS.get(result.status, 1)


async def _print_events(talk: Talk, run: AgentRun[str], output: Output) -> None:
    """Print where the run is kept, and then each event as it comes."""
    _print_opening(talk, output)
    async for event in run:
        output.json_line(event_to_json(event))
        output.flush()


def _print_opening(talk: Talk, output: Output) -> None:
    assert talk.session is not None
    opening = {"kind": "session", "sessionId": talk.session.session_id, "model": talk.model_name}
    output.json_line(encode_json(opening))


async def _print_pieces(run: AgentRun[str], output: Output) -> None:
    """Print the text as it comes, for a person at a terminal; what the tools do goes to standard error."""
    view = PlainView(output, Output(sys.stderr, color="never"))
    view.begin()
    async for event in run:
        view.show(event)
    view.end()


def _print_rest(result: RunResult[str], output: Output) -> None:
    """Print an answer that was not shown as it came, and say on standard error what a reader must know of it."""
    message, error = result.message, result.error
    has_answer = result.status is AgentStatus.COMPLETED or (error is not None and error.code in ANSWER_ADVICE)
    if message is not None and has_answer and not output.is_terminal:
        output.line(message.text)
    if result.finish_reason is FinishReason.REFUSAL:
        warn("the model refused to answer (refusal)")
    if result.status is AgentStatus.AWAITING_HUMAN:
        _warn_waiting(result.approvals, "`dragoman chat -c` asks you, `--approve never` does not")
    elif result.status is AgentStatus.ABORTED:
        warn("stopped: what had come is kept in the session")


def _warn_waiting(calls: Sequence[ToolCall], how: str) -> None:
    waiting = ", ".join(one_line(call.tool_name) for call in calls)
    warn(f"{waiting} waits for an approval: {how}")
