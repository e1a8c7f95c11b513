"""Agent: tools that ask the model for another try."""

from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ErrorCode,
    InvalidValue,
    MemoryStore,
    RetryTool,
    ToolContext,
    ToolsConfig,
    start_session,
    tool,
)
from dragoman.history import HistoryToolCallResult, ToolResultsEntry
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from tests.agent_cases import asks, kept, result_texts, run

REASON = "There is no 'rome', did you mean 'Rome'?"
AGAIN = f"{REASON}\nCall find again."
ENOUGH = f"{REASON}\nfind has asked for another try too often. Do not call it again: go on without it."
LOWER, UPPER = asks(Call("find", {"city": "rome"})), asks(Call("find", {"city": "Rome"}))


@tool
def find(context: ToolContext, city: str) -> str:
    """Find a city."""
    if city != "Rome":
        raise RetryTool(REASON)
    return f"found, {context.retries_left} left"


@tool
def other() -> str:
    """Do something else."""
    return "done"


def texts_of(*script: Any, **options: Any) -> list[str]:
    """Return the results that the model gets in a run of this script."""
    agent = Agent(ScriptedModel(*script, "Done."), tools=[find, other], **options)
    result = agent.run_sync("Where is Rome?")
    assert (result.output, result.raised) == ("Done.", ())
    return result_texts(kept(agent))


def test_the_model_gets_the_reason_and_is_asked_to_call_again() -> None:
    assert texts_of(LOWER, UPPER) == [AGAIN, "found, 1 left"]


def test_after_the_limit_the_model_is_told_to_go_on_without_the_tool() -> None:
    assert texts_of(LOWER, LOWER, LOWER, LOWER) == [AGAIN, AGAIN, ENOUGH, ENOUGH]
    assert texts_of(LOWER, config=AgentConfig(tools=ToolsConfig(retry_limit=0))) == [ENOUGH]


def test_tries_count_in_a_row_for_each_tool_and_each_run() -> None:
    assert texts_of(LOWER, LOWER, asks(Call("other")), LOWER) == [AGAIN, AGAIN, "done", ENOUGH]
    assert texts_of(LOWER, LOWER, UPPER, LOWER) == [AGAIN, AGAIN, "found, 0 left", AGAIN]
    agent = Agent(ScriptedModel(LOWER, LOWER, LOWER, "No.", LOWER, "No."), tools=[find])
    agent.run_sync("Where is Rome?")
    agent.run_sync("Where is Rome?")
    assert result_texts(kept(agent)) == [AGAIN, AGAIN, ENOUGH, AGAIN]


def test_the_calls_of_one_answer_are_one_try() -> None:
    several = Turn(calls=tuple(Call("find", {"city": "rome"}) for _ in range(4)))
    assert texts_of(several, LOWER, LOWER) == [AGAIN] * 5 + [ENOUGH]


def test_a_run_that_goes_on_counts_the_tries_of_before() -> None:
    @tool(requires_approval=True)
    def ask() -> str:
        """Ask a person."""
        return "asked"

    async def use() -> None:
        session = await start_session(MemoryStore())
        first = Agent(ScriptedModel(LOWER, LOWER, asks(Call("ask"))), tools=[find, ask], session=session)
        waiting = await first.run("Where is Rome?")
        second = Agent(ScriptedModel(LOWER, "No."), tools=[find, ask], session=session)
        await second.approve(waiting.approvals[0].tool_call_id)
        await second.run()
        assert result_texts(session) == [AGAIN, AGAIN, "asked", ENOUGH]

    run(use())


def test_the_record_says_that_the_tool_asked_for_another_try() -> None:
    class Elsewhere(RetryTool):
        """A reason of the user's own."""

    @tool
    def look() -> str:
        """Look."""
        raise Elsewhere("Look elsewhere.")

    agent = Agent(ScriptedModel(asks(Call("look")), "Hm."), tools=[look])
    agent.run_sync("Look.")
    (entry,) = [entry for entry in kept(agent).entries if isinstance(entry, ToolResultsEntry)]
    result: HistoryToolCallResult = entry.results[0]
    assert (result.error_code, result.error_type) == (ErrorCode.TOOL_FAILED, "dragoman.errors.RetryTool")


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="retry_limit"):
        ToolsConfig(retry_limit=-1)
