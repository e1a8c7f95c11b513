"""What the core costs in CPU: contract and assembly per delta.

`python bench/core.py` prints medians and quartiles beside the goals. All variants take turns in every round, and each
figure is a difference within its round, so that a noisy machine slows both sides alike. CPU time, not the clock's.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by its path

from bench.measuring import Figure, Part, say
from dragoman import FinishReason, MessageDelta, TextDelta
from dragoman.delta import DoneDelta, StartDelta, ToolCallArgsDelta, ToolCallEndDelta, ToolCallStartDelta
from dragoman.stream import Assembler, Guard

DELTAS = 20_000
ROUNDS = 41
DELTA_GOAL = 2.0  # µs per delta, contract and assembly together

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def text_stream() -> list[MessageDelta]:
    """Return an answer of many short pieces of text."""
    pieces = [TextDelta("run-1", seq, NOW, f"word{seq} ") for seq in range(1, DELTAS + 1)]
    return [StartDelta("run-1", 0, NOW, "m", "r"), *pieces, DoneDelta("run-1", DELTAS + 1, NOW, FinishReason.STOP)]


def arguments_stream() -> list[MessageDelta]:
    """Return an answer that is one tool call with its arguments in many short pieces."""
    size = 8
    text = json.dumps({"text": ("word " * DELTAS * size)[: DELTAS * size - 12]})
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    end = DELTAS + 2
    return [
        StartDelta("run-1", 0, NOW, "m", "r"),
        ToolCallStartDelta("run-1", 1, NOW, "call-1", "write_file"),
        *(ToolCallArgsDelta("run-1", seq, NOW, "call-1", piece) for seq, piece in enumerate(pieces, 2)),
        ToolCallEndDelta("run-1", end, NOW, "call-1"),
        DoneDelta("run-1", end + 1, NOW, FinishReason.TOOL_CALLS),
    ]


def run_empty_loop(deltas: Sequence[MessageDelta]) -> None:
    """Do nothing with each delta: the floor."""
    for _ in deltas:
        pass


def run_contract(deltas: Sequence[MessageDelta]) -> None:
    """Pass each delta through a guard."""
    guard = Guard()
    for delta in deltas:
        guard.feed(delta)
    assert guard.finished


def run_assembly(deltas: Sequence[MessageDelta]) -> None:
    """Assemble the deltas unguarded."""
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(delta)
    assert assembler.result().message is not None


def run_both(deltas: Sequence[MessageDelta]) -> None:
    """Guard the deltas and assemble what passes, as a model's stream does."""
    guard = Guard()
    assembler = Assembler()
    for delta in deltas:
        legal = guard.feed(delta)
        if legal is not None:
            assembler.feed(legal)
    assert assembler.result().message is not None


def cpu_per_delta(run: Callable[[Sequence[MessageDelta]], None], deltas: Sequence[MessageDelta]) -> float:
    """Return the µs of CPU that one run takes per delta."""
    begin = time.process_time_ns()
    run(deltas)
    return (time.process_time_ns() - begin) / 1_000 / len(deltas)


def costs_of(deltas: Sequence[MessageDelta], rounds: int) -> list[tuple[float, float, float, float]]:
    """Return per round what the empty loop costs per delta, and what contract, assembly and both add to it."""
    runs = (run_empty_loop, run_contract, run_assembly, run_both)
    for run in runs:
        run(deltas)  # the first run of each warms up and is not counted
    costs = []
    for _ in range(rounds):
        floor, contract, assembly, both = (cpu_per_delta(run, deltas) for run in runs)
        costs.append((floor, contract - floor, assembly - floor, both - floor))
    return costs


def measure_core(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """What contract and assembly add together."""
    for name, deltas in (("text", text_stream()), ("tool arguments", arguments_stream())):
        both = [row[-1] for row in costs_of(deltas, 3 if quick else 21)]
        yield Figure("contract and assembly, delta by delta", name, "µs of CPU per delta", "", both, must=DELTA_GOAL)


PARTS = [Part("core", measure_core)]


def measure_stream(title: str, deltas: Sequence[MessageDelta]) -> None:
    """Print what contract and assembly add per delta of this stream."""
    floor, contract, assembly, both = zip(*costs_of(deltas, ROUNDS), strict=True)
    print(f"{title}: {len(deltas):,} deltas, {ROUNDS} rounds, CPU per delta")
    say("empty loop (floor)", floor, "µs")
    say("contract adds", contract, "µs")
    say("assembly adds", assembly, "µs")
    say("contract and assembly add", both, "µs", DELTA_GOAL)


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}")
    measure_stream("text stream", text_stream())
    measure_stream("tool argument stream", arguments_stream())
