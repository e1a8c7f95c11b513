"""Small states, calls and results that the tests of the history share."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dragoman import ErrorCode, Message, ToolCall
from dragoman.errors import IllegalAppend
from dragoman.history import RULES, AgentState, HistoryToolCallResult, LevelOfDetailSections

START = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


class Clock:
    """A clock that goes on by a second each time somebody looks."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def fresh(instruction: str | None = None, **options: Any) -> AgentState:
    return AgentState.create_default(instruction, **{"session_id": "s", "clock": Clock(), **options})


def call(call_id: str = "c", name: str = "f") -> ToolCall:
    return ToolCall(call_id, name, {"x": 1})


def output(*calls: ToolCall) -> Message:
    return Message.assistant("words", *calls)


def answer(call_id: str = "c", text: str = "found", name: str = "f", **fields: Any) -> HistoryToolCallResult:
    levels = LevelOfDetailSections.of_text(text)
    return HistoryToolCallResult(**{"tool_name": name, "tool_call_id": call_id, "result": levels, **fields})


def denied(call_id: str = "c") -> HistoryToolCallResult:
    return answer(call_id, "no", status="skipped", error_code=ErrorCode.TOOL_DENIED)


def with_calls(*calls: ToolCall) -> AgentState:
    state = fresh()
    state.append_model_input("go")
    state.append_model_output(output(*(calls or (call(),))))
    return state


def refused(append: Callable[[], object]) -> str:
    with pytest.raises(IllegalAppend) as raised:
        append()
    assert raised.value.rule in RULES
    assert str(raised.value).startswith(f"{raised.value.rule}: ")
    return raised.value.rule


def closed() -> AgentState:
    state = with_calls()
    state.append_tool_results([answer()])
    return state
