"""Recorded conversations through the bench's projector: what the simulator will measure is valid, fits and repeats."""

import json
import runpy
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.context_projector import Projector, Record, read_conversations

from tests.conversations import CONVERSATIONS, needs_conversations

# One or two of each source, the longest ones among them.
CHOSEN = (
    "claude-code-260fc06448a9",
    "claude-code-8a4ef6a6c7b6",
    "deer-flow-fe3f7974",
    "pi-before-compaction",
    "super-react-super_expert-linkbert",
    "tau-airline-gpt-4o-2-1-52",
)
BUDGETS = (16_000, 32_000)
ROOT = Path(__file__).parents[1]
TAIL_SHARE = 0.09  # of what the simulator counts, which is a little more than what messages say


class Turn(NamedTuple):
    """What had been said before a recorded call, and what was sent instead of it."""

    said: list[Record]
    sent: list[Record]


@cache
def recorded() -> dict[str, list[Record]]:
    """The messages of the chosen conversations, without those that say nothing."""
    return {
        record["id"]: [message for message in record["messages"] if text_of(message).strip() or results_of(message)]
        for record in read_conversations(CONVERSATIONS)
        if record["id"] in CHOSEN
    }


def turns(name: str, budget: int) -> Iterator[Turn]:
    projector = Projector(budget)
    messages = recorded()[name]
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            yield Turn(messages[:place], projector.render())
        projector.append(message)


def text_of(message: Record) -> str:
    """What a message shows, as the simulator reads it."""
    return "\n".join(_part_text(part) for part in message["parts"] if part["kind"] not in ("thinking", "image"))


def _part_text(part: Record) -> str:
    if part["kind"] != "tool_call":
        return str(part["text"])
    arguments = part["arguments"]
    if isinstance(arguments, dict):
        arguments = "\n".join(f"{name}: {_value_text(value)}" for name, value in arguments.items())
    return f"{part['name']}\n{arguments}"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tokens_of(message: Record) -> int:
    images = sum(part["kind"] == "image" for part in message["parts"])
    return (len(text_of(message)) + 3) // 4 + 4 + 1_500 * int(images)


def calls_of(message: Record) -> list[str]:
    return [part["id"] for part in message["parts"] if part["kind"] == "tool_call"]


def results_of(message: Record) -> list[str]:
    return [part["id"] for part in message["parts"] if part["kind"] == "tool_result"]


def is_valid(sent: list[Record]) -> bool:
    """Whether a provider takes it: a user message first, each turn's calls answered by the very next message."""
    body = [message for message in sent if message["role"] != "system"]
    waiting: list[str] = []
    for message in body:
        if results_of(message) != waiting:
            return False
        waiting = calls_of(message)
    return bool(body) and body[0]["role"] == "user" and not waiting


def tail_of(said: list[Record], budget: int) -> Iterator[str]:
    """The newest messages, as far back as TAIL_SHARE of the budget reaches."""
    room = TAIL_SHARE * budget
    for message in reversed(said):
        room -= tokens_of(message)
        if room < 0:
            return
        yield text_of(message)


class Seen(NamedTuple):
    """What was wrong with the requests of a conversation, and a digest of them all."""

    calls: int
    wrong: list[str]
    digest: str


def replay(name: str, budget: int) -> Seen:
    wrong: list[str] = []
    digest = sha256()
    count = 0
    for turn in turns(name, budget):
        count += 1
        digest.update(json.dumps(turn.sent).encode())
        if not is_valid(turn.sent):
            wrong.append(f"call {count}: invalid")
        if sum(map(tokens_of, turn.sent)) > budget:
            wrong.append(f"call {count}: over budget")
        shown = {text_of(message) for message in turn.sent}
        if not shown.issuperset(tail_of(turn.said, budget)):
            wrong.append(f"call {count}: its tail is not whole")
    return Seen(count, wrong, digest.hexdigest())


first_replay = cache(replay)


@needs_conversations
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", CHOSEN)
def test_every_request_is_valid_fits_and_has_its_tail_whole(name: str, budget: int) -> None:
    seen = first_replay(name, budget)
    assert seen.calls > 4
    assert seen.wrong == []


def measuring() -> dict[str, Any]:
    """The functions of scripts/measure_context.py."""
    return runpy.run_path(str(ROOT / "scripts" / "measure_context.py"))


def test_the_document_has_a_place_for_the_measured_table() -> None:
    script = measuring()
    document = (ROOT / "docs" / "context.md").read_text(encoding="utf-8")
    assert "some figures" in script["with_section"](document, "some figures")


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="each marker once"):
        measuring()["with_section"]("# Context\n", "")


def test_the_measured_table_has_ours_first_and_says_if_it_is_a_sample() -> None:
    script = measuring()
    figures = dict.fromkeys((key for _, key, _ in script["COLUMNS"]), 0.5)
    rows = [
        {"policy": policy, "budget": 16_000, "conversations": 3, "turns": 2_000, **figures}
        for policy in ("full", "a|b", "projector")
    ]
    section = script["measured_section"](rows, limit=4)
    assert "### 16,000 tokens\n\n3 conversations longer than that, of a sample of 4, 2,000 calls." in section
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table] == ["| policy", "| ---", "| **dragoman**", "| full", "| a\\|b"]
    assert "sample" not in script["measured_section"](rows)


def test_rows_that_were_not_measured_stay_in_the_table() -> None:
    script = measuring()
    zeros, ones = (dict.fromkeys((key for _, key, _ in script["COLUMNS"]), figure) for figure in (0.0, 1.0))
    row = {"budget": 16_000, "conversations": 3, "turns": 2_000}
    before = script["measured_section"]([{**row, "policy": name, **zeros} for name in ("full", "a|b", "projector")])
    assert script["measured_section"]([], before=before) == before
    table = script["measured_section"]([{**row, "policy": name, **ones} for name in ("a|b", "new")], before=before)
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("|")][2:]
    assert rows == [["| **dragoman**", "**0.00**"], ["| full", "0.00"], ["| a\\|b", "1.00"], ["| new", "1.00"]]


def test_the_tables_of_the_document_are_what_their_script_writes() -> None:
    script = measuring()
    section = script["split_document"]((ROOT / "docs" / "context.md").read_text(encoding="utf-8"))[1]
    assert script["measured_section"]([], before=section) == section


@pytest.mark.parametrize("name", ["context-cost.svg", "context-reader.svg"])
def test_the_pictures_of_the_document_are_drawn_from_its_tables(name: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "plot_context.py"))
    document = (ROOT / "docs" / "context.md").read_text(encoding="utf-8")
    assert f"](images/{name})" in document
    drawn = script["PICTURES"][name](document)
    assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == drawn, "run scripts/plot_context.py"


@needs_conversations
@pytest.mark.parametrize("name", CHOSEN)
def test_the_same_conversation_gives_the_same_requests(name: str) -> None:
    assert replay(name, BUDGETS[0]) == first_replay(name, BUDGETS[0])
