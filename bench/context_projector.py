"""The real `ContextManager` behind the interface that the context simulator asks for.

    PYTHONPATH=. python ../shared/bench/context/simulate.py --data ../shared/conversations \\
        --projector bench.context_projector:Projector

    python -m bench.context_projector ../shared/conversations      # the time it takes, on the longest of them

Recorded messages are appended through `AgentState`, and every request is built by `build_context`: nothing of the
projection is repeated here. The simulator counts four characters a token, so the manager is given that counter.
"""

import argparse
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dragoman.context import INJECTED_KEY, ContextBuildInput, ContextManager, EstimateCounter
from dragoman.history import AgentState, EpochEntry, HistoryToolCallResult, ModelInputEntry, ToolStartedEntry
from dragoman.message import Image, Message, ModelInvocationDescriptor, Part, Role, Text, Thinking, ToolCall, ToolResult
from dragoman.request import ContextConfig

Record = dict[str, Any]

# The simulator bills by Anthropic's rules.
_BILLED = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-5")
_PICTURE = Image(mime_type="image/png", data=b"\x89PNG")


def read_conversations(folder: Path) -> Iterator[Record]:
    """Yield every recorded conversation, without the summaries that the recording agent put in."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                conversation = json.loads(line)
                conversation["messages"] = [
                    message
                    for message in conversation["messages"]
                    if not (message.get("meta") or {}).get("compact_summary")
                ]
                yield conversation


def append_recorded(state: AgentState, message: Record) -> None:
    """Append one recorded message as the entries that it would have been."""
    parts = message["parts"]
    if message["role"] == "tool":
        for part in parts:
            state.append(ToolStartedEntry(tool_call_id=part["id"], tool_name=part["name"]))
        state.append_tool_results([_result(part) for part in parts])
    elif message["role"] == "assistant":
        state.append_model_output(Message(Role.ASSISTANT, tuple(_part(part) for part in parts)))
    elif message["role"] == "system" and state.next_serial == 0:
        state.set_system_instruction("\n".join(part["text"] for part in parts))
    else:
        said = tuple(_part(part) for part in parts)
        if any(not isinstance(part, Text) or part.text.strip() for part in said):
            injected = bool((message.get("meta") or {}).get("injected"))
            state.append_model_input(ModelInputEntry.of(*said, metadata={INJECTED_KEY: True} if injected else {}))


def _part(part: Record) -> Part:
    match part["kind"]:
        case "text":
            return Text(part["text"])
        case "thinking":
            return Thinking(part["text"])
        case "image":
            return _PICTURE
        case _:
            arguments = part["arguments"]
            if isinstance(arguments, dict):
                return ToolCall(part["id"], part["name"], arguments)
            return ToolCall.parse(part["id"], part["name"], arguments)


def _result(part: Record) -> HistoryToolCallResult:
    result = ToolResult(part["id"], part["text"], is_error=bool(part.get("is_error")))
    return HistoryToolCallResult.of_result(result, part["name"])


class ReaderCounter:
    """The tokens of the model that reads contexts, as the reader trial counts them; each text is counted once."""

    name = "reader"

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        if text not in self._known:
            self._known[text] = self._reader.count(text)
        return self._known[text]


class Projector:
    """One conversation under a budget, as the simulator drives it. `counter` is the reader trial's, if there is one."""

    def __init__(self, budget: int, counter: Any = None) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._state = AgentState.create_default(session_id="bench", clock=lambda: self._now, widgets=())
        counting = EstimateCounter(4) if counter is None else ReaderCounter(counter)
        self._manager = ContextManager(ContextConfig(budget_tokens=budget, recall=False), counter=counting)
        self._anchors: tuple[int, ...] = ()

    def append(self, message: Record) -> None:
        """Take the next recorded message."""
        if stamp := message.get("timestamp"):
            self._now = max(self._now, datetime.fromisoformat(stamp))
        elif message["role"] == "assistant":
            self._now += timedelta(seconds=10)
        append_recorded(self._state, message)

    def render(self) -> list[Record]:
        """Return the request for the next call in the simulator's form."""
        given = ContextBuildInput(entries=self._state.entries, now=self._now, invocation=_BILLED)
        built = self._manager.build_context(given)
        for entry in built.entries:
            self._state.append(entry)
        system = [_record("system", [Text(built.system)])] if built.system else []
        requests, places = _joined(built.messages)
        self._anchors = tuple(places[anchor] + len(system) for anchor in built.cache_anchors)
        return system + requests

    @property
    def has_epoch(self) -> bool:
        """Whether a context was made smaller."""
        return any(isinstance(entry, EpochEntry) for entry in self._state.entries)

    def breakpoints(self) -> list[int]:
        """Return the messages to mark for the provider's cache."""
        return list(self._anchors)


def _joined(messages: Sequence[Message]) -> tuple[list[Record], list[int]]:
    """The messages as records, results of one turn in one; and where each message went."""
    records: list[Record] = []
    places: list[int] = []
    for message in messages:
        record = _record(message.role, message.parts)
        if message.role is Role.TOOL and records and records[-1]["role"] == "tool":
            records[-1] = {"role": "tool", "parts": records[-1]["parts"] + record["parts"]}
        else:
            records.append(record)
        places.append(len(records) - 1)
    return records, places


def _record(role: str, parts: Sequence[Part]) -> Record:
    return {"role": str(role), "parts": [_written(part) for part in parts if not isinstance(part, Thinking)]}


def _written(part: Part) -> Record:
    match part:
        case Text():
            return {"kind": "text", "text": part.text}
        case ToolCall():
            arguments = part.raw_args_text if part.arguments is None else part.arguments
            return {"kind": "tool_call", "id": part.tool_call_id, "name": part.tool_name, "arguments": arguments}
        case ToolResult():
            return {"kind": "tool_result", "id": part.tool_call_id, "text": part.content}
        case _:
            return {"kind": "image"}


def time_turns(messages: Sequence[Record], budget: int) -> list[float]:
    """Return the seconds that appending and rendering took at each model call."""
    projector = Projector(budget)
    seconds: list[float] = []
    fed = 0
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and place:
            begun = time.perf_counter()
            for recorded in messages[fed:place]:
                projector.append(recorded)
            projector.render()
            seconds.append(time.perf_counter() - begun)
            fed = place
    return seconds


def main() -> None:
    """Print how long turns take on the longest conversation, and whether the whole work grows with its length."""
    parser = argparse.ArgumentParser(prog="python -m bench.context_projector", description=main.__doc__)
    parser.add_argument("conversations", type=Path)
    parser.add_argument("--budgets", type=int, nargs="+", default=[16_000, 32_000, 64_000])
    options = parser.parse_args()
    longest = max(read_conversations(options.conversations), key=lambda each: each["stats"]["approx_tokens"])
    messages = longest["messages"]
    print(f"{longest['id']}: {len(messages)} messages, {longest['stats']['approx_tokens']:,} tokens")
    for budget in options.budgets:
        runs = [sorted(time_turns(messages, budget)) for _ in range(3)]
        run = min(runs, key=sum)
        quarters = [sum(time_turns(messages[: len(messages) * part // 4], budget)) for part in (1, 2, 3, 4)]
        print(
            f"{budget:>7,}: median {1000 * run[len(run) // 2]:.2f} ms, 99th percentile "
            f"{1000 * run[int(len(run) * 0.99)]:.1f} ms, longest {1000 * run[-1]:.1f} ms; whole work of the first "
            f"quarter, half, three quarters, all: {', '.join(f'{1000 * each:,.0f}' for each in quarters)} ms"
        )


if __name__ == "__main__":
    main()
