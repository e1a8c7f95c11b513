"""What mypy and pyright, both in their strict modes, say of programs that use the library."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.strangers.third_parties.npm import installed_packages

ROOT = Path(__file__).parents[1]
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


def refused_by_mypy(file: Path) -> set[int]:
    """Return the lines of the file in which mypy finds errors."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary", str(file)]
    done = subprocess.run(
        command, cwd=file.parent, env={"MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    found = re.findall(rf"^{file.name}:(\d+): error", done.stdout, re.MULTILINE)
    assert len(found) == done.stdout.count(" error: "), done.stdout
    return {int(line) for line in found}


def refused_by_pyright(file: Path) -> set[int]:
    """Return the lines of the file in which pyright finds errors."""
    program = installed_packages() / "pyright" / "index.js"
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = ["node", str(program), "--outputjson", "--pythonpath", sys.executable, file.name]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


@pytest.mark.parametrize("refused", [refused_by_mypy, refused_by_pyright])
def test_a_runtime_of_another_type_than_a_tool_needs_is_refused(
    refused: Callable[[Path], set[int]], tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(TYPED_RUNTIMES, encoding="utf-8")
    lines = enumerate(TYPED_RUNTIMES.split("\n"), start=1)
    assert refused(file) == {number for number, line in lines if line.endswith("# refused")}
