"""Two published context policies behind the simulator's interface, and the simulator with both of them.

    PYTHONPATH=. python -m bench.context_baselines ../shared/bench/context/skeleton.py --data ../shared/conversations

Both are written from public descriptions. Neither keeps a budget by itself, so each says what it drops above one.
"""

import importlib
import json
import multiprocessing
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Record = dict[str, Any]

# Claude Code's microcompact by time: the idle time, the results that stay, and the line in place of the others.
IDLE = timedelta(minutes=60)
KEPT_RESULTS = 5
CLEARED = "[Old tool result content cleared]"

# TokenPilot: the defaults that the documentation of its release (zjunlp/LightMem2) names.
LONG_RESULT, SHORT_RESULT = 2_200, 1_200  # characters: a result longer than the first is reduced to the second
BATCH = 5  # turns that one eviction takes at least
FINISHED_TASKS = 1  # newest finished tasks that stay


class _Turns:
    """A conversation in turns: a message of the user, or a message of the model with its results.

    The system instruction and the first user message are always shown, and so is the newest turn.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._head: list[Record] = []
        self._turns: list[list[Record]] = []
        self._tokens: list[int] = []  # of each turn

    def append(self, message: Record) -> None:
        """Take the next recorded message."""
        if not any(before["role"] == "user" for before in self._head):
            self._head.append(message)
        elif message["role"] == "tool":
            self._turns[-1].append(message)
            self._tokens[-1] += _tokens(message)
        else:
            self._turns.append([message])
            self._tokens.append(_tokens(message))

    def _shown_from(self, start: int) -> list[Record]:
        return [message for turn in self._turns[start:] for message in turn]

    def _first_that_fits(self, room: int) -> int:
        """Return the index of the oldest turn that can be shown with all newer ones."""
        start, room = len(self._turns), room - sum(map(_tokens, self._head))
        while start and room >= self._tokens[start - 1]:
            start -= 1
            room -= self._tokens[start]
        return max(0, min(start, len(self._turns) - 1))


class Microcompact(_Turns):
    """After an hour without the model, all results but the newest five become one fixed line.

    Nothing else is cleared. The oldest turns above the budget are dropped; in the product a model's summary replaces
    them. The product clears the results of some tools only, and this clears those of all tools.
    """

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._now = self._answered = datetime(2026, 1, 1, tzinfo=UTC)
        self._results: list[tuple[int, Record]] = []  # the turn of each result that is not cleared

    def append(self, message: Record) -> None:
        """Take the next recorded message, and its time."""
        if stamp := message.get("timestamp"):
            self._now = datetime.fromisoformat(stamp)
        elif message["role"] == "assistant":
            self._now += timedelta(seconds=10)
        if message["role"] == "assistant":
            self._answered = self._now
        parts = [dict(part) for part in message["parts"]]
        super().append({**message, "parts": parts})
        self._results += [(len(self._turns) - 1, part) for part in parts if part["kind"] == "tool_result"]

    def render(self) -> list[Record]:
        """Return the messages of the next request."""
        if self._now - self._answered > IDLE:
            for turn, part in self._results[:-KEPT_RESULTS]:
                part["text"] = CLEARED
                self._tokens[turn] = sum(map(_tokens, self._turns[turn]))
            del self._results[:-KEPT_RESULTS]
        return self._head + self._shown_from(self._first_that_fits(self._budget))


class TokenPilot(_Turns):
    """The two rules of TokenPilot (arXiv 2606.17016), without its model.

    Results are reduced once, when they come in: the first and last characters of a long one stay. A task is what
    follows a message of the person. It is over when the next task has begun and the budget is full, where the paper
    asks a model. Then one line replaces all finished tasks but the newest, and at least the five oldest turns.
    """

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._tasks = [0]  # the turn that begins each task
        self._start = 0  # the oldest turn that is shown

    def append(self, message: Record) -> None:
        """Take the next recorded message, long results reduced."""
        if message["role"] == "user" and not (message.get("meta") or {}).get("injected"):
            self._tasks.append(len(self._turns))
        super().append({**message, "parts": [_reduced(part) for part in message["parts"]]})

    def render(self) -> list[Record]:
        """Return the messages of the next request."""
        last = len(self._turns) - 1
        fitting = self._first_that_fits(self._budget - _tokens(_evicted(last)))
        if fitting > self._start:
            unfinished = self._tasks[-1 - FINISHED_TASKS :][0]
            self._start = min(max(fitting, unfinished, self._start + BATCH), last)
        line = [_evicted(self._start)] if self._start else []
        return [*self._head, *line, *self._shown_from(self._start)]


BASELINES: dict[str, Callable[[int], _Turns]] = {
    "Claude Code microcompact, oldest pairs dropped": Microcompact,
    "TokenPilot's two rules": TokenPilot,
}


def _reduced(part: Record) -> Record:
    if part["kind"] != "tool_result" or len(part["text"]) <= LONG_RESULT:
        return part
    text, half = part["text"], SHORT_RESULT // 2
    return {**part, "text": f"{text[:half]}\n[{len(text) - SHORT_RESULT} characters left out]\n{text[-half:]}"}


def _evicted(count: int) -> Record:
    return {"role": "user", "parts": [{"kind": "text", "text": f"[evicted: {count} earlier turns]"}]}


def _tokens(message: Record) -> int:
    """Return the tokens of a message as the simulator counts them."""
    parts = [part for part in message["parts"] if part["kind"] != "thinking"]
    text = "\n".join(_text(part) for part in parts if part["kind"] != "image")
    return (len(text) + 3) // 4 + 4 + 1_500 * len([part for part in parts if part["kind"] == "image"])


def _text(part: Record) -> str:
    if part["kind"] != "tool_call":
        return str(part["text"])
    arguments = part["arguments"]
    if not isinstance(arguments, dict):
        return f"{part['name']}\n{_written(arguments)}"
    return "\n".join([part["name"], *(f"{key}: {_written(value)}" for key, value in arguments.items())])


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Run the simulator of the first argument, with these policies beside its own."""
    simulator = Path(sys.argv.pop(1)).resolve()
    sys.path.insert(0, str(simulator.parent))
    importlib.import_module(simulator.stem)  # skeleton.py adds its own policies
    simulate: Any = importlib.import_module("simulate")
    simulate.POLICIES += [
        type(name, (simulate.Projector,), {"name": name, "factory": staticmethod(factory)})
        for name, factory in BASELINES.items()
    ]
    multiprocessing.set_start_method("fork")  # workers must see the added policies
    simulate.main()


if __name__ == "__main__":
    main()
