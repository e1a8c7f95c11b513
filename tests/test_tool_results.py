"""What tools return and raise, as the one result that each call gets."""

import asyncio
import enum
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from dragoman import ErrorCode, FileRef, Image, Text, ToolError
from dragoman.history import (
    LevelOfDetail,
    LevelOfDetailSections,
    Section,
    ToolExecutionStatus,
)
from dragoman.tools import (
    ToolContext,
    ToolDefinition,
    ToolOutput,
)
from tests.tool_cases import (
    definition,
    returning,
    returning_async,
    run_one,
)

# ---------------------------------------------------------------- what a tool returns


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    when: datetime | None = None


class Pair(NamedTuple):
    a: int
    b: str


class Person(BaseModel):
    name: str
    born: datetime | None = None


class Row(msgspec.Struct, rename="camel"):
    row_name: str


class Word(str):
    __slots__ = ()


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (Word("sub"), "sub"),
        (None, ""),
        ("", ""),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        (Color.RED, '"red"'),
        ([1, "a", None], '[1,"a",null]'),
        ([], "[]"),
        ({"a": {"b": 1}}, '{"a":{"b":1}}'),
        ({1: 2}, '{"1":2}'),
        (OrderedDict(a=1), '{"a":1}'),
        ((1, 2), "[1,2]"),
        ({7}, "[7]"),
        (range(3), "[0,1,2]"),
        (deque([1]), "[1]"),
        ([Word("sub")], '["sub"]'),
        (Point(1, NOON), '{"x":1,"when":"2026-01-31T12:00:00Z"}'),
        (Pair(1, "x"), '[1,"x"]'),
        (Row("n"), '{"rowName":"n"}'),
        (Person(name="A", born=NOON), '{"name":"A","born":"2026-01-31T12:00:00Z"}'),
        ([Person(name="A")], '[{"name":"A","born":null}]'),
        (NOON, '"2026-01-31T12:00:00Z"'),
        (Path("a") / "b", '"a/b"'),
        ({"picture": b"x"}, '{"picture":"eA=="}'),
        ("half \ud83d here", "half \ufffd here"),
        ("\ud83d\ude00", "\U0001f600"),
        ({"\ud800": ["\ud800"]}, '{"\ufffd":["\ufffd"]}'),
        ({"x": float("nan"), "y": None}, '{"x":"NaN","y":null}'),
        ([float("inf"), {"low": -float("inf")}], '["Infinity",{"low":"-Infinity"}]'),
        (float("nan"), '"NaN"'),
    ],
)
@pytest.mark.parametrize("make", [returning, returning_async])
def test_a_value_is_told_as_text_or_json(make: Callable[[Any], ToolDefinition], value: Any, text: str) -> None:
    result = run_one(make(value))
    assert result.status is ToolExecutionStatus.SUCCESS
    assert result.error_code is None
    assert result.text() == text
    assert result.elapsed_seconds is not None
    assert (result.tool_name, result.tool_call_id) == ("give", "c1")


def endless() -> Iterator[int]:
    yield 1


async def endless_async() -> AsyncIterator[int]:
    yield 1


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Rude:
    """Something that fails at whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Cursed(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"bytes", "give failed: it returned bytes: text, or an Image or FileRef with the bytes, can be told"),
        (bytearray(b"x"), "bytearray"),
        (endless(), "give failed: it returned a value of type generator, which JSON cannot hold"),
        (endless_async(), "give failed: it returned a value of type async_generator, which JSON cannot hold"),
        (object(), "a value of type object"),
        (Rude(), "a value of type Rude"),
        ([1, {"x": object()}], "a value of type object"),
        ({(1, 2): 3}, "a dict that JSON cannot hold"),
        (CYCLE, "nested too deeply or holds itself"),
        (lambda: 1, "a value of type function"),
        (Exception, "a value of type type"),
        ([Text("x"), 3], "a int among parts"),
    ],
)
@pytest.mark.parametrize("make", [returning, returning_async])
def test_what_cannot_be_told_is_a_failure_that_names_its_type(
    make: Callable[[Any], ToolDefinition], value: Any, says: str
) -> None:
    result = run_one(make(value))
    assert result.status is ToolExecutionStatus.FAILED
    assert result.error_code is ErrorCode.TOOL_FAILED
    assert says in result.text()


def test_parts_are_kept_as_parts() -> None:
    picture = Image(mime_type="image/png", data=b"x")
    file = FileRef(path="a.txt")
    result = run_one(returning(["before", picture, Text("after"), file]))
    assert result.attachments == (picture, file)
    assert result.text() == "before\n\nafter"
    assert run_one(returning(picture)).attachments == (picture,)
    assert run_one(returning(Text("x"))).text() == "x"


def test_an_output_says_its_text_at_every_level() -> None:
    picture = Image(mime_type="image/png", data=b"x")
    output = ToolOutput("everything", summary=[Section("S", "much")], gist="little", attachments=[picture])
    result = run_one(returning(output))
    assert [result.text(level) for level in LevelOfDetail] == ["everything", "much", "little"]
    assert result.attachments == (picture,)
    levels = LevelOfDetailSections((Section("", "a"),), (Section("", "b"),), (Section("", "c"),))
    assert run_one(returning(levels)).result == levels


def test_a_long_result_is_kept_whole_at_every_level() -> None:
    text = "line\n" * 500_000
    result = run_one(returning(text))
    assert [result.text(level) for level in LevelOfDetail] == [text] * 3


def test_a_gist_without_a_summary_is_kept() -> None:
    result = run_one(returning(ToolOutput("x" * 5_000, gist="many x")))
    assert [result.text(level) for level in LevelOfDetail] == ["x" * 5_000, "x" * 5_000, "many x"]


# ---------------------------------------------------------------- how a tool fails


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("first\nsecond"), ErrorCode.TOOL_FAILED, "give failed: ValueError: first"),
        (KeyError("k"), ErrorCode.TOOL_FAILED, "give failed: KeyError: 'k'"),
        (ValueError(), ErrorCode.TOOL_FAILED, "give failed: ValueError"),
        (Cursed(), ErrorCode.TOOL_FAILED, "give failed: Cursed"),
        (SystemExit(3), ErrorCode.TOOL_FAILED, "give failed: SystemExit: 3"),
        (StopIteration("x"), ErrorCode.TOOL_FAILED, None),
        (RecursionError("deep"), ErrorCode.TOOL_FAILED, "give failed: RecursionError: deep"),
        (
            ExceptionGroup("two", [ValueError("a")]),
            ErrorCode.TOOL_FAILED,
            "give failed: ExceptionGroup: two (1 sub-exception)",
        ),
        (asyncio.CancelledError(), ErrorCode.TOOL_FAILED, "give failed: CancelledError"),
        (TimeoutError(), ErrorCode.TOOL_FAILED, "give failed: TimeoutError"),
        (ToolError("Ask again\nlater."), ErrorCode.TOOL_FAILED, "Ask again\nlater."),
        (ToolError("No such id.", code=ErrorCode.INVALID_ARGUMENTS), ErrorCode.INVALID_ARGUMENTS, "No such id."),
        (ToolError("Odd.", code=ErrorCode.RATE_LIMITED), ErrorCode.TOOL_FAILED, "Odd."),
        (ToolError(""), ErrorCode.TOOL_FAILED, "give failed"),
        (
            ValueError("the key is sk-abcdefgh12345678abcdefgh"),
            ErrorCode.TOOL_FAILED,
            "give failed: ValueError: the key is [redacted]",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("make", [returning, returning_async])
def test_what_a_tool_raises_is_its_result(
    make: Callable[[Any], ToolDefinition], error: BaseException, code: ErrorCode, text: str | None
) -> None:
    result = run_one(make(error))
    assert result.status is ToolExecutionStatus.FAILED
    assert result.error_code is code
    assert text is None or result.text() == text
    assert result.elapsed_seconds is not None


def test_a_tool_may_say_that_it_was_not_run() -> None:
    result = run_one(returning(ToolError("Not on Sundays.", code=ErrorCode.TOOL_DENIED)))
    assert result.status is ToolExecutionStatus.SKIPPED
    assert result.error_code is ErrorCode.TOOL_DENIED


def test_a_tool_that_cancels_its_own_task_has_failed() -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    assert run_one(definition("give", execute)).text() == "give failed: CancelledError"


ROW = {"name": "Ada", "marks": [1, 2.5, None, True], "at": (1, 2)}
LARGE: dict[str, Any] = {
    "rows": [ROW] * 3_000,
    "rows in a dict": {"rows": [ROW] * 3_000, "count": 3_000, 7: ["x"] * 6_000},
    "a large dict": dict.fromkeys(range(3000), ROW),
    "one large row": [[ROW] * 3_000],
    "a long text": ["a", "x" * 2_000_000, {"b": "y" * 2_000_000}],
    "nothing but nulls": [None] * 6_000,
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("make", [returning, returning_async])
def test_a_large_value_is_told_as_a_small_one_is(make: Callable[[Any], ToolDefinition], name: str) -> None:
    assert run_one(make(LARGE[name])).text() == msgspec.json.encode(LARGE[name]).decode()


def test_a_number_that_json_lacks_is_named_in_a_large_value() -> None:
    value = [*([ROW] * 3_000), {"x": float("nan")}]
    assert run_one(returning_async(value)).text().endswith(',{"x":"NaN"}]')


def test_a_large_value_is_not_read_in_the_event_loop() -> None:
    threads: set[int] = set()

    class Watched(Mapping[str, int]):
        def __getitem__(self, name: str) -> int:
            return 1

        def __iter__(self) -> Iterator[str]:
            threads.add(threading.get_ident())
            return iter(("a",))

        def __len__(self) -> int:
            return 1

    assert run_one(returning_async([Watched()])).text() == '[{"a":1}]'
    assert threads == {threading.get_ident()}
    threads.clear()
    run_one(returning_async([Watched()] * 6_000))
    assert threads
    assert threading.get_ident() not in threads
