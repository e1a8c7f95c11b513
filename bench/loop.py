"""What the loop costs by itself: CPU per model call, with a scripted model and a session of 1,000 entries in memory.

`python bench/loop.py` prints the cost of a model call in a loop of tool calls, of a run with one answer, and of the
same with its events read, less what the scripted model takes to play its part. Whatever else a call needs is in it: the
context, the checks, the record in a store in memory, the tool. Every round has a session of its own, forked from the
long one, and an agent that has read it. Where the goal is missed, and with `--profile`, it prints where the time goes.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by its path

from bench.measuring import Figure, Part, say
from dragoman import Message
from dragoman.agent import Agent
from dragoman.request import AgentConfig, LoopConfig, ModelInfo
from dragoman.store import MemoryStore, Session, start_session
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import tool

ABILITIES = frozenset({"streaming", "tools", "structured_output"})
INFO = ModelInfo(provider="scripted", model_id="actor", context_window=200_000, abilities=ABILITIES)
GOAL = 1.0  # ms of CPU a model call
ENTRIES = 1_000
CALLS = 20  # of a round
ROUNDS = 21

QUESTION = "What is the weather in the cities of the list, and which of them shall I visit first, and why? " * 3
WORDS = "It rains in most of them today, so I would begin with the one where the sun shines, and take a coat. " * 3
ANSWER = Turn(text=WORDS, usage=None)  # counts of tokens would be corrected by a made-up usage


@tool
async def look_up(city: str, days: int = 1) -> str:
    """Return the weather of a city.

    city: Where to look.
    days: For how many days.
    """
    return f"In {city} it rains for {days} days, at nine degrees and with a light wind from the west. " * 3


def call_of(number: int) -> Turn:
    """Return a turn with one call of the tool."""
    return Turn(text="Let me look.", calls=(Call("look_up", {"city": f"City {number}", "days": 3}),), usage=None)


def agent_of(session: Session) -> tuple[Agent, ScriptedModel]:
    """Return an agent, and the model whose script it plays. All of the history fits into its context."""
    model = ScriptedModel(info=INFO)
    config = AgentConfig(loop=LoopConfig(max_iterations=CALLS + 2))
    agent = Agent(model, tools=[look_up], instructions="You know the weather.", session=session, config=config)
    return agent, model


async def long_session() -> Session:
    """Return a session with as many entries as an agent that works would have."""
    session = await start_session(MemoryStore(), "long")
    agent, model = agent_of(session)
    number = 0
    while len(session.entries) < ENTRIES:
        model.script += [call_of(number), ANSWER]
        await agent.run(f"{number}: {QUESTION}")
        number += 1
    return session


async def prepared(long: Session) -> tuple[Agent, ScriptedModel]:
    """Return an agent on a session of its own that is as long, and has been read."""
    agent, model = agent_of(await long.fork(len(long.entries) - 1))
    await single_answers(agent, model, 1)
    gc.collect()
    return agent, model


async def loop_of_tools(agent: Agent, model: ScriptedModel) -> int:
    """One run with many calls; return how many."""
    model.script += [*(call_of(number) for number in range(CALLS - 1)), ANSWER]
    result = await agent.run(QUESTION)
    assert result.output == WORDS, result
    return CALLS


async def single_answers(agent: Agent, model: ScriptedModel, runs: int = CALLS) -> int:
    """Runs with one call each, one after the other."""
    model.script += [ANSWER] * runs
    for _ in range(runs):
        assert (await agent.run(QUESTION)).output == WORDS
    return runs


async def single_answers_read(agent: Agent, model: ScriptedModel) -> int:
    """The same, with their events read."""
    model.script += [ANSWER] * CALLS
    for _ in range(CALLS):
        started = agent.stream(QUESTION)
        async for _ in started:
            pass
        assert (await started.result()).output == WORDS
    return CALLS


SHAPES: dict[str, Callable[[Agent, ScriptedModel], Awaitable[int]]] = {
    "a call in a loop of tool calls": loop_of_tools,
    "a run with one answer": single_answers,
    "the same, its events read": single_answers_read,
}


async def played_alone(model: ScriptedModel, turns: list[Turn], messages: tuple[Message, ...]) -> float:
    """Return the ms of CPU that the model takes to play these turns to somebody who only reads."""
    model.script += turns
    before = time.process_time_ns()
    for _ in turns:
        await model.stream(messages, system_prompt="You know the weather.").collect()
    return (time.process_time_ns() - before) / 1e6


async def costs_of(name: str, rounds: int) -> tuple[list[float], list[float]]:
    """Return what a model call of this shape costs, in ms of CPU per round: alone, and with the model's part."""
    long = await long_session()
    play = SHAPES[name]
    turns: list[Turn] = [ANSWER] * CALLS if play is not loop_of_tools else [*map(call_of, range(CALLS - 1)), ANSWER]
    costs, whole = [], []
    for number in range(rounds + 1):
        agent, model = await prepared(long)
        before = time.process_time_ns()
        calls = await play(agent, model)
        spent = (time.process_time_ns() - before) / 1e6
        alone = await played_alone(model, turns, model.requests[-1].messages)
        if number:  # the first round warms up
            costs.append((spent - alone) / calls)
            whole.append(spent / calls)
    return costs, whole


def measure_loop(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """The cost of every shape."""
    for name in SHAPES:
        costs, _ = asyncio.run(costs_of(name, 3 if quick else 9))
        yield Figure(f"the loop, session of {ENTRIES:,} entries", name, "ms of CPU a model call", "", costs, must=GOAL)


PARTS = [Part("loop", measure_loop)]


async def profile(name: str, rounds: int) -> None:
    """Print in which parts the time of one shape is spent, and the functions that take most."""
    long = await long_session()
    profiler = cProfile.Profile(time.process_time)
    calls = 0
    for _ in range(rounds):
        agent, model = await prepared(long)
        profiler.enable()
        calls += await SHAPES[name](agent, model)
        profiler.disable()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # a documented attribute that the stubs lack
    parts: dict[str, float] = {}
    for function, (_, _, own, _, callers) in stats.items():
        if part_of(function) is not None or not callers:
            part = part_of(function) or "asyncio and others"
            parts[part] = parts.get(part, 0.0) + own
            continue
        for caller, (_, _, share, _) in callers.items():  # what Python's own functions take counts for who calls them
            part = part_of(caller) or "asyncio and others"
            parts[part] = parts.get(part, 0.0) + share
    total = sum(parts.values())
    print(f"    where the time of {calls} calls goes (the profiler makes it {total * 1e3 / calls:.1f} ms a call):")
    for part, spent in sorted(parts.items(), key=lambda item: -item[1])[:12]:
        print(f"      {part:<24} {spent / total:6.1%}")
    print("    with what they call, the functions of this library that take most:")
    ours = [(spent, function) for function, (_, _, _, spent, _) in stats.items() if part_of(function) is not None]
    for spent, (file, line, function) in sorted(ours, reverse=True)[:16]:
        print(f"      {spent / total:6.1%}  {Path(file).parent.name}/{Path(file).name}:{line} {function}")


def part_of(function: tuple[str, int, str]) -> str | None:
    """Return the package or module of this library that a function belongs to, None for others' functions."""
    _, found, inside = function[0].partition("/dragoman/")
    return inside.split("/")[0].removesuffix(".py") if found else None


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description="CPU of the loop per model call")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--profile", action="store_true", help="print where the time goes, whether the goal is met or not"
    )
    chosen = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {ENTRIES} entries, {chosen.rounds} rounds; CPU per model call: median")
    met = True
    for name in SHAPES:
        costs, whole = asyncio.run(costs_of(name, chosen.rounds))
        is_met = say(name, costs, "ms", GOAL)
        print(f"    least {min(costs):.3f}, with the model's part {median(whole):.3f}", flush=True)
        met = met and is_met
        if chosen.profile or not is_met:
            asyncio.run(profile(name, 5))
    sys.exit(not met)


if __name__ == "__main__":
    main()
