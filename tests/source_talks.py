"""Conversations about this project's own files, in the form of `inspector_cases.replay`.

A user asks about packages and documents; a coding agent reads, searches and answers. The files and the hits of searches
are real. The words of both are made by rule, so that the pictures need no recording of anybody else.
"""

import ast
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dragoman"
PAUSES = (40, 95, 1_300, 60, 30, 2_400, 75)  # seconds before the user's next question
READ_LINES = 160
MOST_HITS = 14

# What the user asks of a package, one after the other.
QUESTIONS = (
    "What is `{name}` for? Look at its modules before you answer.",
    "Who uses `{name}`? I want to know what breaks if its names change.",
    "Read `{name}` as a reviewer. Which module would you split first?",
    "Where does `{name}` raise errors, and are they for the person who reads them?",
)


def talk_about_packages(packages: Sequence[str], *, begins: datetime) -> dict[str, Any]:
    """Return a conversation with one turn, or more, for each package of the source."""
    talk = _Talk(begins)
    for number, package in enumerate(packages):
        modules = sorted((SOURCE / package).glob("*.py"), key=_size_of, reverse=True)
        talk.ask(QUESTIONS[number % len(QUESTIONS)].format(name=f"dragoman.{package}"))
        talk.call("I will look at the folder first.", "Bash", command=f"wc -l src/dragoman/{package}/*.py")
        talk.give("\n".join(f"{_size_of(module):6} {_name_of(module)}" for module in modules))
        for module in modules[:9]:
            talk.read(module)
            if _size_of(module) > 200:
                talk.search(_first_name(module))
        talk.say(_summary(package, modules))
    return talk.conversation


def talk_about_document(page: str, *, begins: datetime) -> dict[str, Any]:
    """Return a short conversation about one page of the documents."""
    talk = _Talk(begins)
    path = ROOT / "docs" / page
    talk.ask(f"Which parts does docs/{page} have, and which one should a newcomer read first?")
    talk.read(path)
    parts = [line.removeprefix("## ") for line in path.read_text("utf-8").splitlines() if line.startswith("## ")]
    told = "\n".join(f"{number}. **{part}**" for number, part in enumerate(parts, 1))
    talk.say(f"It has {len(parts)} parts:\n\n{told}\n\nA newcomer should begin with *{parts[0]}*.")
    return talk.conversation


class _Talk:
    """A conversation that grows, and its clock."""

    def __init__(self, begins: datetime) -> None:
        self.conversation: dict[str, Any] = {"messages": []}
        self._now = begins
        self._calls = count(1)
        self._turns = 0

    def ask(self, text: str) -> None:
        if self._turns:
            self._now += timedelta(seconds=PAUSES[self._turns % len(PAUSES)])
        self._turns += 1
        self._add("user", {"kind": "text", "text": text})

    def say(self, text: str) -> None:
        self._add("assistant", {"kind": "text", "text": text})

    def call(self, text: str, name: str, *, thinking: str = "", **arguments: Any) -> None:
        """Let the agent say something and call a tool. `give` must follow."""
        said = [{"kind": "text", "text": text}] if text else []
        thought = [{"kind": "thinking", "text": thinking}] if thinking else []
        call = {"kind": "tool_call", "id": f"call_{next(self._calls):03}", "name": name, "arguments": arguments}
        self._add("assistant", *thought, *said, call)

    def give(self, text: str) -> None:
        """Give the result of the last call."""
        (call,) = (part for part in self.conversation["messages"][-1]["parts"] if part["kind"] == "tool_call")
        self._add("tool", {"kind": "tool_result", "id": call["id"], "text": text})

    def read(self, path: Path) -> None:
        lines = path.read_text("utf-8").splitlines()
        thinking = f"{path.name} has {len(lines)} lines. Its first line says what it promises."
        self.call("", "Read", thinking=thinking, file_path=_name_of(path), limit=READ_LINES)
        left = [f"… {len(lines) - READ_LINES} more lines"] if len(lines) > READ_LINES else []
        self.give("\n".join(lines[:READ_LINES] + left))

    def search(self, word: str) -> None:
        self.call(f"Who else names `{word}`?", "Grep", pattern=word, path="src/dragoman")
        hits = list(_hits(word))
        left = [f"… {len(hits) - MOST_HITS} more hits"] if len(hits) > MOST_HITS else []
        self.give("\n".join([*hits[:MOST_HITS], *left]) or "No files found")

    def _add(self, role: str, *parts: dict[str, Any]) -> None:
        self._now += timedelta(seconds=3)
        self.conversation["messages"].append({"role": role, "parts": list(parts), "timestamp": self._now.isoformat()})


def _summary(package: str, modules: Sequence[Path]) -> str:
    rows = [f"- **{module.stem}**: {_promise_of(module)}" for module in modules[:9]]
    largest = modules[0]
    return (
        f"`dragoman.{package}` has {len(modules)} modules.\n\n"
        + "\n".join(rows)
        + f"\n\nThe largest is `{_name_of(largest)}` with {_size_of(largest)} lines. I would look there first."
    )


def _hits(word: str) -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if word in line:
                yield f"{_name_of(path)}:{number}: {line.strip()[:120]}"


def _promise_of(module: Path) -> str:
    """Return the first sentence of a module's docstring."""
    words = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or "no docstring."
    return " ".join(words.split("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."


def _first_name(module: Path) -> str:
    """Return the first class or function of a module."""
    body = ast.parse(module.read_text("utf-8")).body
    return next(node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))


def _size_of(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
