"""What mypy and pyright say of programs that use the library, those of the documents among them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkers import ROOT, mypy_errors, pyright_errors

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
pytestmark = pytest.mark.slow

# Each line that ends in `# refused` is an error for both checkers; no other line is.
TYPED_RUNTIMES = """
from dragoman import Agent, RunResult, ToolContext, ToolDefinition, tool
from dragoman.testing import ScriptedModel


class Desk:
    notes: list[str] = []


class LargeDesk(Desk):
    drawers = 4


class Office:
    rooms = 3


@tool
def note(context: ToolContext[Desk], text: str) -> int:
    context.runtime.notes.append(text)
    return len(context.runtime.notes)


@tool(timeout_ms=5)
async def look(context: ToolContext[Desk]) -> str:
    return context.runtime.notes[0]


@tool
def weather(city: str) -> str:
    return f"Rain in {city}."


@tool
def who(context: ToolContext, city: str) -> str:
    return f"{context.session_id} {city}"


def plain(city: str) -> str:
    return city


async def execute(arguments: dict[str, str], context: ToolContext[Desk]) -> str:
    return arguments["word"] + context.runtime.notes[0]


def instruct(context: ToolContext[Desk]) -> str:
    return context.runtime.notes[0]


async def instruct_later(context: ToolContext[Desk]) -> str:
    return context.runtime.notes[0]


written = ToolDefinition(name="written", execute=execute)
model = ScriptedModel("Hi.")

alone: Agent = Agent(model, tools=[weather, who, plain, "".upper])
desked: Agent[Desk] = Agent(model, tools=[note, look, weather, who, plain, written], runtime=Desk())
larger: Agent[LargeDesk, int] = Agent(model, tools=[note, weather], runtime=LargeDesk(), output_type=int)
taught = [Agent(model, instructions=each, runtime=Desk()) for each in (instruct, instruct_later)]
inline = Agent(model, instructions=lambda context: context.session_id)
counted: Agent[None, int | str] = Agent(model, output_type=int | str)
result: RunResult[int | str] = counted.run_sync("Hi.")
text: RunResult = alone.run_sync("Hi.")
output: str | None = text.output
called: str = weather("Rome")
noted: int = note(ToolContext(runtime=Desk()), "Tea.")

Agent(model, tools=[note])  # refused
Agent(model, tools=[weather, look])  # refused
Agent(model, tools=[written])  # refused
Agent(model, tools=[note], output_type=int)  # refused
Agent(model, tools=[note, weather], runtime=Office())  # refused
Agent(model, tools=[look, plain], runtime=Office())  # refused
Agent(model, tools=[written], runtime=Office())  # refused
Agent(model, tools=[note], runtime=Office(), output_type=int)  # refused
Agent(model, instructions=instruct)  # refused
Agent(model, instructions=instruct_later, runtime=Office())  # refused
wrong: Agent[Office] = Agent(model, runtime=Desk())  # refused
weather(3)  # refused
"""


# Every type that `assert_type` names is the one that both checkers find.
TYPED_ANSWERS = """
import asyncio
from dataclasses import dataclass
from typing import Literal, assert_type

from dragoman import Agent, RunResult, TextDelta
from dragoman.agent import DeltaEvent, RunEvent, SyncRun
from dragoman.testing import ScriptedModel


@dataclass
class Trip:
    title: str


model = ScriptedModel("Hi.", repeats=True)


def shown(event: RunEvent) -> str:
    if event.kind == "delta" and event.delta.kind == "text":
        assert_type(event.delta, TextDelta)
        return event.delta.text_delta
    if event.kind == "tool_result":
        return event.result.text()
    match event:
        case DeltaEvent(delta=TextDelta(text_delta=text)):
            return text
        case DeltaEvent():
            return event.delta.run_id
        case _:
            pass
    if isinstance(event, DeltaEvent):
        return "never"
    return event.kind + event.delta.run_id  # refused


async def read() -> None:
    async for text in Agent(model).stream("Hi.").text():
        assert_type(text, str)
    async for trip in Agent(model, output_type=Trip).stream("Hi.").partial():
        assert_type(trip, Trip)
    async for event in Agent(model).stream("Hi."):
        assert_type(event, RunEvent)
    async for delta in model.stream([]):
        if delta.kind == "text":
            assert_type(delta, TextDelta)
    result = await Agent(model, output_type=int | str).run("Hi.")
    assert_type(result, RunResult[int | str])
    assert_type(result.output, int | str | None)
    assert_type(result.unwrap(), int | str)
    result.unwrap().upper()  # refused


run = Agent(model, output_type=list[Trip]).stream_sync("Hi.")
assert_type(run, SyncRun[list[Trip]])
assert_type([text for text in run.text()], list[str])
assert_type([trips for trips in run.partial()], list[list[Trip]])
assert_type(Agent(model, output_type=Literal["yes", "no"]).run_sync("Hi.").unwrap(), Literal["yes", "no"])
Agent(model, messages=["Hi."])  # refused
Agent(model, session="sums")  # refused
asyncio.run(read())
"""


def python_of(markdown: str) -> str:
    """Return the Python blocks of a document as one program, each line where it stands in the document."""
    kept, is_python = [], False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            is_python = line == "```python" and not is_python
            kept.append("")
        else:
            kept.append(line if is_python else "")
    return "\n".join(kept)


def places(errors: list[str]) -> set[int]:
    return {int(error.split(":")[1]) for error in errors}


@pytest.mark.parametrize(
    "errors", [mypy_errors, lambda folder: pyright_errors(folder, mode="strict")], ids=["mypy", "pyright"]
)
@pytest.mark.parametrize("program", [TYPED_RUNTIMES, TYPED_ANSWERS], ids=["runtimes", "answers"])
def test_a_checker_refuses_the_lines_that_are_wrong_and_no_others(
    errors: Callable[[Path], list[str]], program: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    found = errors(tmp_path)
    lines = enumerate(program.split("\n"), start=1)
    assert places(found) == {number for number, line in lines if line.endswith("# refused")}, found


@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors], ids=["mypy", "pyright"])
def test_every_python_block_of_the_documents_passes(errors: Callable[[Path], list[str]], tmp_path: Path) -> None:
    for path in DOCUMENTS:
        program = python_of(path.read_text(encoding="utf-8"))
        if program.strip():  # `mcp.py` would hide the package of that name
            (tmp_path / f"{path.stem.replace('-', '_')}_md.py").write_text(program, encoding="utf-8")
    assert len(list(tmp_path.glob("*.py"))) > 10
    assert errors(tmp_path) == []
