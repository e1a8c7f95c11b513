"""Why did the cache miss? Breaks planted in recorded conversations, and conversations without any: is the cause right?

`python -m tests.cache_causes` plants 100 breaks of each kind and looks at 5,000 calls without one. Every session is
recorded as an agent, or the gateway, does it, for each of eight targets in turn; breaks are planted for the seven that
have a cache. `--seed` takes other conversations and places. The tests take a sample.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

import msgspec

from dragoman import Message, Role, Text, ToolSpec
from dragoman.review import CacheCall, CacheCause, review_cache
from tests.cache_stage import ClientStage, Stage
from tests.conversations import TARGETS, History, Target, read_history, read_records

MOST_CALLS = 14  # of one session with a break
OTHERS = (Target("groq", "openai/gpt-oss-120b"), Target("anthropic", "claude-opus-4-1"), Target("openai", "gpt-4.1"))
HOUR = 3_600.0
# Targets in which a break changes nothing: they have no cache, or take no tools.
NO_CACHE, NO_TOOLS = ("bedrock-llama",), ("deepseek",)


class Turn(NamedTuple):
    """What is said before a model call, and the answer."""

    said: tuple[Message, ...]
    answer: Message


class Outcome(NamedTuple):
    """What came of one planted break: the cause that was found, and the calls before it that were taken for misses."""

    planted: CacheCause
    found: CacheCall
    false_alarms: tuple[CacheCall, ...]
    inexact: int
    name: str


def turns_of(history: History) -> list[Turn]:
    """Return the model calls of a conversation with what was said before each."""
    turns: list[Turn] = []
    said: list[Message] = []
    for message in history.messages:
        if message.role is Role.ASSISTANT:
            if said or turns:
                turns.append(Turn(tuple(said), message))
            said = []
        else:
            said.append(message)
    return turns


def play(stage: Stage, turn: Turn) -> str | None:
    """Record one turn: what is said or returned, then the call."""
    results = [message for message in turn.said if message.role is Role.TOOL]
    if stage.state.derived.open_calls:
        stage.results(results)
    for message in turn.said:
        if message.role is Role.USER and any(not isinstance(p, Text) or p.text.strip() for p in message.parts):
            stage.say(message)
    return stage.ask(turn.answer)


# ---------------------------------------------------------------- breaks

Planter = Callable[[Stage, list[Turn], int, random.Random], None]


def plant_model(stage: Stage, turns: list[Turn], at: int, choice: random.Random) -> None:
    stage.aim_at(choice.choice(OTHERS))
    play(stage, turns[at])


def plant_tools(stage: Stage, turns: list[Turn], at: int, choice: random.Random) -> None:
    tools = list(stage.tools)
    match choice.choice(["add", "change", "put first", "take away", "turn round"]):
        case "change":
            tools[-1] = msgspec.structs.replace(tools[-1], description="Does it in another way.")
        case "take away" if len(tools) > 1:
            del tools[choice.randrange(len(tools))]
        case "turn round" if len(tools) > 1:
            tools.reverse()
        case "put first":
            tools.insert(0, ToolSpec("a_new_first", "Comes first."))
        case _:
            tools.append(ToolSpec("one_more", "Does one thing more."))
    stage.tools = tuple(tools)
    play(stage, turns[at])


def plant_system(stage: Stage, turns: list[Turn], at: int, choice: random.Random) -> None:
    text, day = stage.state.system_instruction or "", choice.randint(1, 28)
    changed = f"{text}\nToday is the {day}th." if choice.random() < 0.5 else f"It is the {day}th. {text}"
    stage.state.set_system_instruction(changed)
    play(stage, turns[at])


def plant_widget(stage: Stage, turns: list[Turn], at: int, choice: random.Random) -> None:
    stage.state.update_memory_notebook("The first thought.")
    play(stage, turns[at])
    if choice.random() < 0.5:
        stage.state.update_memory_notebook("The second thought.")
    play(stage, turns[at + 1])


def plant_clock(stage: Stage, turns: list[Turn], at: int, choice: random.Random) -> None:
    stage.wait(choice.uniform(330 if stage.reports else 660, 3 * HOUR))
    play(stage, turns[at])


PLANTERS: dict[CacheCause, Planter] = {
    CacheCause.MODEL: plant_model,
    CacheCause.TOOLS: plant_tools,
    CacheCause.SYSTEM: plant_system,
    CacheCause.WIDGET: plant_widget,
    CacheCause.EXPIRED: plant_clock,
}


def plant(
    cause: CacheCause, target: Target, history: History, at: int, choice: random.Random, *, reports: bool
) -> Outcome:
    """Return what is found where this break is planted before one call of a conversation."""
    stage, turns = Stage(target, history, reports=reports), turns_of(history)
    for turn in turns[:at]:
        play(stage, turn)
    PLANTERS[cause](stage, turns, at, choice)
    calls = review_cache(stage.state.entries, session_id="stage")
    return _outcome(cause, calls, history, target)


def plant_epoch(target: Target, history: History, *, reports: bool) -> Outcome | None:
    """Return what is found where a context outgrows its budget; None if it never does.

    An epoch that only cuts what was not sent before, as a first long result, breaks nothing: that must be no miss.
    """
    stage = Stage(target, history, budget=6_000, reports=reports)
    for turn in turns_of(history):
        if play(stage, turn) is not None:
            calls = review_cache(stage.state.entries, session_id="stage")
            planted = CacheCause.KEPT if stage.provider.is_extended else CacheCause.EPOCH
            return _outcome(planted, calls, history, target)
    return None


def plant_edit(
    target: Target, history: History, at: int, choice: random.Random, *, is_forked: bool, reports: bool
) -> Outcome:
    """Return what is found where a client changes an earlier message, in its session or in a fork of it."""
    stage = ClientStage(target, history, reports=reports)
    said: list[Message] = []
    turns = turns_of(history)
    heads: list[int] = []
    for turn in turns[:at]:
        said += turn.said
        stage.ask(said, turn.answer)
        heads.append(stage.state.next_serial - 1)
        said.append(turn.answer)
    edit(said, choice)
    said += turns[at].said
    if not is_forked:
        stage.ask(said, turns[at].answer)
        calls = review_cache(stage.state.entries)
        return _outcome(CacheCause.EDIT, calls, history, target)
    parent, forked_at = stage.state.entries, heads[0]
    stage.fork(forked_at)
    stage.ask(said, turns[at].answer)
    calls = review_cache(stage.state.entries, forked_at=forked_at, parent_entries=parent)
    return _outcome(CacheCause.EDIT, calls, history, target)


def edit(said: list[Message], choice: random.Random) -> None:
    """Change a person's words, a result or an answer that was sent before; or put in a person's words."""
    sent = said[:-1]  # the newest answer was in no request yet
    places = [index for index, message in enumerate(sent) if message.text.strip() or message.tool_results]
    number = choice.choice(places)
    message = said[number]
    if message.role is Role.ASSISTANT:
        kept = [part for part in message.parts if not isinstance(part, Text)]
        changed = (Text(f"Well. {message.text}"), *kept)
        said[number] = msgspec.structs.replace(message, parts=changed)
    elif message.role is Role.TOOL:
        result = msgspec.structs.replace(message.tool_results[0], content="cleared")
        said[number] = msgspec.structs.replace(message, parts=(result,))
    elif choice.random() < 0.5:
        said[number] = Message.user(f"{message.text} And be quick.")
    else:
        said.insert(number, Message.user("Be quick."))


def _outcome(planted: CacheCause, calls: Sequence[CacheCall], history: History, target: Target) -> Outcome:
    *before, found = calls
    if planted is CacheCause.KEPT and not found.is_miss:
        found = msgspec.structs.replace(found, cause=CacheCause.KEPT)  # or too short, which is no miss either
    if planted is CacheCause.WIDGET:
        before = before[:-1] if before and before[-1].cause is CacheCause.WIDGET else before
    alarms = tuple(call for call in before if call.is_miss)
    inexact = sum(call.is_exact is False for call in calls)
    return Outcome(planted, found, alarms, inexact, f"{history.name} for {target.model}")


# ---------------------------------------------------------------- samples


def histories(seed: int, least_calls: int, without: Sequence[str] = ()) -> Iterator[tuple[Target, History]]:
    """Yield conversations for each target in turn, in a random order, over and over."""
    records = [record for record in _records() if _calls_in(record) >= least_calls]
    order = random.Random(seed)
    targets = [target for name, target in TARGETS.items() if name not in without]
    number = 0
    while records:
        order.shuffle(records)
        for record in records:
            target = targets[number % len(targets)]
            yield target, read_history(record, "native", target)
            number += 1


@cache
def _records() -> tuple[dict[str, object], ...]:
    return tuple(read_records())


def _calls_in(record: dict[str, object]) -> int:
    messages = record["messages"]
    assert isinstance(messages, list)
    return sum(message["role"] == "assistant" for message in messages)


def planted_breaks(count: int, seed: int = 1) -> Iterator[Outcome]:
    """Yield what was found for so many breaks of each kind."""
    choice = random.Random(seed)
    for cause in PLANTERS:
        sample = histories(seed, 8, (*NO_CACHE, *NO_TOOLS) if cause is CacheCause.TOOLS else NO_CACHE)
        for number, (target, history) in enumerate(islice(sample, count)):
            at = choice.randint(2, min(len(turns_of(history)) - 2, MOST_CALLS))
            yield plant(cause, target, history, at, choice, reports=number % 4 != 3)
    for number, (target, history) in enumerate(islice(histories(seed, 8, NO_CACHE), count)):
        at = choice.randint(2, min(len(turns_of(history)) - 2, MOST_CALLS))
        yield plant_edit(target, history, at, choice, is_forked=number % 2 == 1, reports=number % 4 != 3)
    outcomes = (
        plant_epoch(target, history, reports=number % 4 != 3)
        for number, (target, history) in enumerate(histories(seed, 20, NO_CACHE))
    )
    broken = 0
    for outcome in outcomes:
        if outcome is not None:
            yield outcome
            broken += outcome.planted is CacheCause.EPOCH
        if broken == count:
            return


def unbroken_calls(count: int, seed: int = 2) -> Iterator[CacheCall]:
    """Yield what is said of at least so many calls of conversations in which nothing breaks the prefix."""
    seen = 0
    for number, (target, history) in enumerate(histories(seed, 4)):
        stage = Stage(target, history, reports=number % 4 != 3)
        for turn in turns_of(history)[:60]:
            play(stage, turn)
        calls = review_cache(stage.state.entries, session_id="stage")
        yield from calls
        seen += len(calls)
        if seen >= count:
            return


def main(breaks: int, calls: int, seed: int) -> int:
    """Count, print, and return 1 if a bar is missed."""
    right: Counter[CacheCause] = Counter()
    total: Counter[CacheCause] = Counter()
    alarms = inexact = 0
    for outcome in planted_breaks(breaks, seed):
        total[outcome.planted] += 1
        alarms += len(outcome.false_alarms)
        inexact += outcome.inexact
        if outcome.found.cause is outcome.planted:
            right[outcome.planted] += 1
        else:
            print(f"{outcome.planted}: found {outcome.found.cause} in {outcome.name}: {outcome.found.sentence}")
        for alarm in outcome.false_alarms:
            print(f"{outcome.planted}: false alarm #{alarm.serial} in {outcome.name}: {alarm.cause}: {alarm.sentence}")
    for cause, number in total.items():
        print(f"{cause:10} {right[cause]:4} of {number} right")
    causes: Counter[CacheCause] = Counter()
    for call in unbroken_calls(calls, seed + 1):
        causes[call.cause] += 1
        inexact += call.is_exact is False
        if call.is_miss:
            alarms += 1
            print(f"unbroken: false alarm #{call.serial} for {call.model}: {call.cause}: {call.sentence}")
    told = ", ".join(f"{number} {cause}" for cause, number in causes.most_common())
    print(f"{sum(causes.values())} calls without a break: {told}")
    print(f"{alarms} false alarms, {inexact} requests that were not rendered as they were sent")
    is_right = all(100 * right[cause] >= 99 * number for cause, number in total.items())
    return 0 if is_right and not alarms and not inexact else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--breaks", type=int, default=100, help="of each kind (%(default)s)")
    parser.add_argument("--calls", type=int, default=5_000, help="without a break (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (%(default)s)")
    chosen = parser.parse_args()
    sys.exit(main(chosen.breaks, chosen.calls, chosen.seed))
