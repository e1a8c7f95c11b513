"""What the validators share: a numbered rule, the request it is asked about, and the pairing of calls and results.

A wire API's own file reads its conversation into turns; the rules on ids and pairing are the same for all.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias, TypeVar

import msgspec

__all__ = [
    "Body",
    "Call",
    "Request",
    "Rule",
    "Turn",
    "is_object_text",
    "name_rules",
    "pairing_rules",
    "repeated",
    "with_next",
]

Body: TypeAlias = dict[str, Any]
Value = TypeVar("Value")


class Call(msgspec.Struct, frozen=True):
    """A call of a tool as the wire has it."""

    id: str
    name: str


class Turn(msgspec.Struct):
    """What one side said before the other spoke. `results` are the ids of the calls that it answers."""

    path: str
    role: str
    calls: list[Call] = msgspec.field(default_factory=list)
    results: list[str] = msgspec.field(default_factory=list)


class Request(msgspec.Struct, frozen=True):
    """A request to check: the body, who is asked, and its conversation as turns."""

    body: Body
    provider: str
    model: str
    turns: list[Turn]
    # An earlier part of the conversation is kept by the provider and not in the body.
    continues: bool = False


class Rule(msgspec.Struct, frozen=True):
    """One thing that a target demands and its types cannot say. `check` yields where a request breaks it, and how."""

    code: str
    says: str
    check: Callable[[Request], Iterable[str]]


def pairing_rules(
    letter: str, legal_id: Callable[[Request], re.Pattern[str]], *, reused: bool = False
) -> tuple[Rule, ...]:
    """The rules on calls and results, numbered from 1 to 5; `legal_id` is what the target accepts as an id.

    `reused` is for targets that take an id again in a later turn.
    """

    def ids_are_legal(request: Request) -> Iterator[str]:
        pattern = legal_id(request)
        for turn in request.turns:
            for used in [*(call.id for call in turn.calls), *turn.results]:
                if not pattern.fullmatch(used):
                    yield f"{turn.path}: the id {used!r} does not match {pattern.pattern}"

    def ids_are_unique(request: Request) -> Iterator[str]:
        seen: set[str] = set()
        for turn in request.turns:
            for call in turn.calls:
                if call.id in seen:
                    yield f"{turn.path}: the id {call.id!r} is used twice"
                seen.add(call.id)
            if reused:
                seen.clear()

    return (
        Rule(f"{letter}1", "an id is of the target's alphabet and length", ids_are_legal),
        Rule(f"{letter}2", f"no two calls {'of a turn ' if reused else ''}have one id", ids_are_unique),
        Rule(f"{letter}3", "every call is answered in the turn right after it", _calls_are_answered),
        Rule(f"{letter}4", "every result answers a call of the turn right before it", _results_answer_calls),
        Rule(f"{letter}5", "a call has one result", _results_are_single),
    )


def name_rules(
    letter: str, says: str, legal_name: re.Pattern[str], declared: Callable[[Request], list[str]]
) -> tuple[Rule, ...]:
    """The rules on the names of tools, numbered 6 and 7; `declared` returns the names that a request declares."""

    def names_are_legal(request: Request) -> Iterator[str]:
        called = ((turn.path, call.name) for turn in request.turns for call in turn.calls)
        for path, name in [*(("tools", name) for name in declared(request)), *called]:
            if not legal_name.fullmatch(name):
                yield f"{path}: the tool name {name!r} does not match {legal_name.pattern}"

    def names_are_unique(request: Request) -> Iterator[str]:
        yield from (f"tools: {name!r} is declared twice" for name in repeated(declared(request)))

    return (
        Rule(f"{letter}6", f"tool names are of {says}", names_are_legal),
        Rule(f"{letter}7", "no tool is declared twice", names_are_unique),
    )


def _calls_are_answered(request: Request) -> Iterator[str]:
    for turn, after in with_next(request.turns):
        answered = set(after.results) if after is not None else set()
        for call in turn.calls:
            if call.id not in answered:
                yield f"{turn.path}: the call {call.id!r} of {call.name!r} has no result right after it"


def _results_answer_calls(request: Request) -> Iterator[str]:
    called: set[str] = set()
    is_first = True
    for turn in request.turns:
        for result in turn.results:
            if result not in called and not (is_first and request.continues):
                yield f"{turn.path}: the result {result!r} answers no call of the turn before"
        called = {call.id for call in turn.calls}
        is_first = False


def _results_are_single(request: Request) -> Iterator[str]:
    for turn in request.turns:
        for result, count in Counter(turn.results).items():
            if count > 1:
                yield f"{turn.path}: the call {result!r} has {count} results"


def with_next(values: Sequence[Value]) -> Iterator[tuple[Value, Value | None]]:
    """Yield each value with the one after it; the last with None."""
    yield from zip_longest(values, values[1:])


def is_object_text(text: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
