"""Recorded conversations, handed to every kind of target at many turns: each request is one that it would accept.

`python -m tests.conversations` renders every conversation for every target in every variant: at 8 of its model calls
and cut off in every way at 8 of its tool turns, spread evenly, the first and the last included. `--turns 0` takes them
all, for hours. The tests check a fixed sample.
"""

import argparse
import base64
import gzip
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman import (
    CacheConfig,
    ErrorCode,
    Image,
    Message,
    ModelConfig,
    ModelError,
    Reasoning,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    to_json,
)
from dragoman.history.handoff import hand_off
from dragoman.message import MessageMeta, ModelInvocationDescriptor, Part
from dragoman.request import ModelRequest
from dragoman.testing.validators import validate_request
from dragoman.wire import find_codec, find_dialect

CONVERSATIONS = Path(__file__).resolve().parents[2] / "shared" / "conversations"

needs_conversations = pytest.mark.skipif(
    not CONVERSATIONS.is_dir(), reason=f"no recorded conversations in {CONVERSATIONS.name}/ beside the checkout"
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

Record = dict[str, Any]
Body = dict[str, Any]


class Target(NamedTuple):
    """Whom a conversation is handed to."""

    provider: str
    model: str

    @property
    def invocation(self) -> ModelInvocationDescriptor:
        """What a message says that this target made."""
        specification = find_dialect(self.provider, self.model).specification
        return ModelInvocationDescriptor(self.provider, specification, self.model)


# The five APIs, then three strict dialects.
TARGETS: dict[str, Target] = {
    "openai-chat": Target("openai-chat", "gpt-4.1"),
    "openai-responses": Target("openai", "gpt-5"),
    "anthropic": Target("anthropic", "claude-sonnet-4-5"),
    "gemini": Target("google", "gemini-3-pro-preview"),
    "bedrock": Target("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "mistral": Target("mistral", "mistral-large-latest"),
    "deepseek": Target("deepseek", "deepseek-reasoner"),
    "bedrock-llama": Target("bedrock", "us.meta.llama3-3-70b-instruct-v1:0"),
}

# unmarked: its maker is unknown. native: the target did, with signatures. hard: many did, with repeated ids, names
# that no target takes, broken arguments, failed, empty and structured results, pictures in results, blank texts.
VARIANTS = ("unmarked", "native", "hard")


class History(NamedTuple):
    """A conversation to hand over."""

    name: str
    system: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class Case(NamedTuple):
    """A prefix of a history: `turn` before a model call, else how it was cut off."""

    kind: str
    messages: tuple[Message, ...]


def read_records(every: int = 1) -> Iterator[Record]:
    """Yield every recorded conversation, or each n-th."""
    number = 0
    for path in sorted(CONVERSATIONS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if number % every == 0:
                    yield json.loads(line)
                number += 1


# ---------------------------------------------------------------- records to histories


def read_history(record: Record, variant: str, target: Target) -> History:
    """Return the recording as messages, made harder or marked as the variant says."""
    messages: list[Message] = []
    system: str | None = None
    for message in record["messages"]:
        if (message.get("meta") or {}).get("compact_summary"):
            continue
        parts = message["parts"]
        if message["role"] == "system" and not messages:
            system = "\n\n".join(part["text"] for part in parts)
        elif message["role"] == "tool":
            messages += [Message.tool(_read_result(part)) for part in parts]
        else:
            messages.append(Message(Role(message["role"]), tuple(_read_part(part) for part in parts)))
    if variant == "hard":
        messages = list(_hardened(messages))
    elif variant == "native":
        messages = [_marked(message, target, index) for index, message in enumerate(messages)]
    names = dict.fromkeys(call.tool_name for message in messages for call in message.tool_calls)
    declared = len(record["messages"]) % 2  # every second conversation has calls of tools that are declared no more
    tools = tuple(ToolSpec(name, f"Does {name}.") for name in names if declared)
    return History(record["id"], system, tuple(messages), tools)


def _read_part(part: dict[str, Any]) -> Part:
    match part["kind"]:
        case "text":
            return Text(part["text"])
        case "thinking":
            return Thinking(part["text"])
        case "image":
            return Image(mime_type="image/png", data=PNG)
        case "tool_call":
            arguments = part["arguments"]
            if isinstance(arguments, str):
                return ToolCall.parse(part["id"], part["name"], arguments)
            return ToolCall(part["id"], part["name"], arguments)
        case kind:
            raise AssertionError(f"a part of kind {kind!r}")


def _read_result(part: dict[str, Any]) -> ToolResult:
    return ToolResult(part["id"], part["text"], is_error=bool(part.get("is_error")))


def _marked(message: Message, maker: Target, number: int) -> Message:
    """The message as one that `maker` made, with the data that its provider wants back."""
    if message.role is not Role.ASSISTANT:
        return message
    specification = maker.invocation.specification
    parts = message.parts
    if specification == "openai-responses" and not (parts and isinstance(parts[0], Thinking)):
        parts = (Thinking(""), *parts)  # this model always reasons first, and often says nothing of it
    marked = (_with_data(part, specification, f"{number}_{place}") for place, part in enumerate(parts))
    return Message(Role.ASSISTANT, tuple(marked), meta=MessageMeta(invocation=maker.invocation))


def _with_data(part: Part, specification: str, name: str) -> Part:
    signature = base64.b64encode(f"signature {name}".encode()).decode()
    match part, specification:
        case Thinking(), "anthropic-messages" | "bedrock-converse":
            return Thinking(part.text, provider_data={"signature": signature})
        case Thinking(), "openai-responses":
            summary = [{"type": "summary_text", "length": len(part.text)}]
            data = {"id": f"rs_{name}", "summary": summary, "encrypted_content": signature}
            return Thinking(part.text, provider_data=data)
        case Text(), "openai-responses":
            return Text(part.text, provider_data={"id": f"msg_{name}"})
        case ToolCall(), "openai-responses":
            return _changed(part, provider_data={"id": f"fc_{name}", "status": "completed"})
        case ToolCall(), "gemini":
            return _changed(part, provider_data={"thoughtSignature": signature})
        case _:
            return part


def _changed(call: ToolCall, **fields: Any) -> ToolCall:
    kept = {"arguments": call.arguments, "raw_args_text": call.raw_args_text, "parse_error": call.parse_error}
    names = (fields.pop("tool_call_id", call.tool_call_id), fields.pop("tool_name", call.tool_name))
    return ToolCall(*names, **{**kept, "provider_data": call.provider_data, **fields})


def _hardened(messages: Sequence[Message]) -> Iterator[Message]:
    makers = [*TARGETS.values(), None]
    count = 0
    ids: dict[str, str] = {}
    for number, message in enumerate(messages):
        parts: list[Part] = []
        for part in message.parts:
            count += 1
            if isinstance(part, ToolCall):
                # Some providers count from 0 in every turn; others put the name into the id.
                ids[part.tool_call_id] = f"call_{len(parts)}" if count % 3 else f"functions.{part.tool_name}:{count}"
                parts.append(_hard_call(part, ids[part.tool_call_id], count))
            elif isinstance(part, ToolResult):
                parts.append(_hard_result(part, ids[part.tool_call_id], count))
            else:
                parts.append(part)
        if message.role is not Role.TOOL and count % 13 == 0:
            parts.insert(0, Text(" \n"))
        hard = Message(message.role, tuple(parts))
        maker = makers[number % len(makers)]
        yield hard if maker is None else _marked(hard, maker, number)


def _hard_call(call: ToolCall, call_id: str, count: int) -> ToolCall:
    name = f"{'server' * 10}.ns/{call.tool_name}" if count % 2 else call.tool_name
    if count % 7 == 0:
        return ToolCall.parse(call_id, name, call.raw_args_text[:-1])
    return ToolCall(call_id, name, call.arguments)


def _hard_result(result: ToolResult, call_id: str, count: int) -> ToolResult:
    assert isinstance(result.content, str)
    contents: dict[int, Any] = {
        3: "",
        4: {"output": result.content},
        5: (Text(result.content), Image(mime_type="image/png", data=PNG)),
        6: (),
    }
    return ToolResult(call_id, contents.get(count % 11, result.content), is_error=count % 5 == 0)


# ---------------------------------------------------------------- cases


def turn_cases(history: History, turns: int | None = None) -> list[Case]:
    """Return the prefixes before model calls: all, or `turns` of them spread evenly, the last included."""
    places = [place for place, message in enumerate(history.messages) if place and message.role is Role.ASSISTANT]
    if turns is not None and len(places) > turns:
        places = [places[round(index * (len(places) - 1) / max(turns - 1, 1))] for index in range(turns)]
    return [Case("turn", history.messages[:place]) for place in sorted(set(places))]


def cut_cases(history: History, turns: int | None = None) -> Iterator[Case]:
    """Yield prefixes that end with unanswered calls or among the results, and these with a further word of the user."""
    places = [place for place, message in enumerate(history.messages) if message.tool_calls]
    if turns is not None and len(places) > turns:
        places = [places[round(index * (len(places) - 1) / max(turns - 1, 1))] for index in range(turns)]
    for place in sorted(set(places)):
        count = len(history.messages[place].tool_calls)
        ends = {"no results": place + 1}
        if count > 1:
            ends["some results"] = place + 1 + count // 2
        for kind, end in ends.items():
            cut = history.messages[:end]
            yield Case(kind, cut)
            yield Case(f"{kind}, then the user", (*cut, Message.user("Leave that. What did you find?")))


def render(target: Target, history: History, messages: Sequence[Message], variant: str) -> tuple[bytes, str]:
    """Return the body and path of the request for this part of the history."""
    dialect = find_dialect(target.provider, target.model)
    handed = hand_off(messages, history.tools, target=target.invocation, rules=dialect.rules)
    request = ModelRequest(
        config=_config(target, variant), messages=handed.messages, tools=handed.tools, system=history.system
    )
    wire = find_codec(dialect.specification).encode_request(request, dialect)
    return wire.body, wire.path


def _config(target: Target, variant: str) -> ModelConfig:
    if variant == "hard":
        return ModelConfig(target.model, cache_config=CacheConfig())
    if variant == "native" and "claude" in target.model:
        return ModelConfig(target.model, max_tokens=8_192, reasoning=Reasoning(budget_tokens=2_048))
    return ModelConfig(target.model)


# ---------------------------------------------------------------- checks


class Tally(NamedTuple):
    """What was rendered, and what was wrong with it."""

    counts: Counter[str]
    wrong: list[str]


def check_history(name: str, history: History, variant: str, *, turns: int | None, cuts: int | None) -> Tally:
    """Render the history for one target at its turns and cuts, and hold every request to the promises."""
    target = TARGETS[name]
    tally = Tally(Counter(), [])
    before = [to_json(message) for message in history.messages]
    bodies: list[Body] = []
    for case in [*turn_cases(history, turns), *cut_cases(history, cuts)]:
        where = f"{name} {variant} {history.name}, {case.kind} at {len(case.messages)}"
        body = check_case(target, history, case, variant, tally, where)
        if body is not None and case.kind == "turn":
            bodies.append(body)
    for earlier, later in pairwise(bodies):
        begun, grown = conversation_of(earlier), conversation_of(later)
        tally.counts["prefixes"] += 1
        if begun[:-1] != grown[: len(begun) - 1]:
            tally.wrong.append(f"{name} {variant} {history.name}: {len(begun)} messages are no prefix of {len(grown)}")
    if [to_json(message) for message in history.messages] != before:
        tally.wrong.append(f"{name} {variant} {history.name}: the history has changed")
    return tally


def check_case(target: Target, history: History, case: Case, variant: str, tally: Tally, where: str) -> Body | None:
    """Render one case twice and check it; return its body."""
    try:
        written, path = render(target, history, case.messages, variant)
    except ModelError as error:
        if error.code is ErrorCode.UNSUPPORTED and has_new_picture(case.messages):
            tally.counts["pictures refused before the network"] += 1
        else:
            tally.wrong.append(f"{where}: {error!r}")
        return None
    tally.counts[case.kind] += 1
    if render(target, history, case.messages, variant)[0] != written:
        tally.wrong.append(f"{where}: two renderings differ")
    tally.wrong.extend(f"{where}: {problem}" for problem in validate_request(target.provider, written, path=path))
    body: Body = json.loads(written)
    tally.wrong.extend(f"{where}: {problem}" for problem in collisions(body, case.messages))
    return body


def has_new_picture(messages: Sequence[Message]) -> bool:
    """Whether the newest user turn holds an image, which a model without eyes cannot be asked about."""
    for message in reversed(messages):
        if message.role is not Role.USER:
            return False
        if any(isinstance(part, Image) for part in message.parts):
            return True
    return False


def collisions(body: Body, messages: Sequence[Message]) -> Iterator[str]:
    """Yield where two calls share an id, or two tools a name, that did not before."""
    wired = list(calls_of(body))
    names = [call.tool_name for message in messages for call in message.tool_calls]
    if len(wired) != len(names):
        yield f"{len(names)} calls became {len(wired)}"
    ids = [call_id for call_id, _ in wired]
    if len(set(ids)) != len(ids):
        yield "two calls have one id"
    pairs = {(name, wire_name) for name, (_, wire_name) in zip(names, wired, strict=False)}
    if not len(pairs) == len({name for name, _ in pairs}) == len({wire_name for _, wire_name in pairs}):
        yield "two tools have one name, or one has two"


def calls_of(body: Body) -> Iterator[tuple[str, str]]:
    """Yield the id and name of every call in a request."""
    for item in body.get("input", ()):
        if item.get("type") == "function_call":
            yield item["call_id"], item["name"]
    for content in body.get("contents", ()):
        for part in content["parts"]:
            if "functionCall" in part:
                yield part["functionCall"]["id"], part["functionCall"]["name"]
    for message in body.get("messages", ()):
        for call in message.get("tool_calls", ()):
            yield call["id"], call["function"]["name"]
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block.get("type") == "tool_use":
                yield block["id"], block["name"]
            elif "toolUse" in block:
                yield block["toolUse"]["toolUseId"], block["toolUse"]["name"]


def conversation_of(body: Body) -> list[Any]:
    """Return the messages of a request, without marks for the cache."""
    spoken = body.get("messages") or body.get("contents") or body.get("input")
    assert isinstance(spoken, list)
    plain: list[Any] = _without_marks(spoken)
    return plain


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(inner) for inner in value if not (isinstance(inner, dict) and "cachePoint" in inner)]
    if isinstance(value, dict):
        return {name: _without_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return value


# ---------------------------------------------------------------- everything


def check_record(record: Record, turns: int | None) -> Tally:
    """Check one conversation in every variant for every target."""
    total = Tally(Counter(), [])
    for name, target in TARGETS.items():
        for variant in VARIANTS:
            tally = check_history(name, read_history(record, variant, target), variant, turns=turns, cuts=turns)
            total.counts.update(tally.counts)
            total.wrong.extend(tally.wrong)
    return total


def main() -> None:
    """Check every conversation and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.conversations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=8, help="at most so many model calls, and tool turns, of each")
    parser.add_argument("--every", type=int, default=1, help="only each n-th conversation")
    options = parser.parse_args()
    started = time.monotonic()
    records = list(read_records(options.every))
    total = Tally(Counter(), [])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, tally in enumerate(pool.map(partial(check_record, turns=options.turns or None), records), 1):
            total.counts.update(tally.counts)
            total.wrong.extend(tally.wrong)
            print(f"{done} of {len(records)} conversations, {len(total.wrong)} wrong", end="\r", flush=True)
    print(f"{len(records)} conversations x {len(TARGETS)} targets x {len(VARIANTS)} variants:")
    for kind, count in sorted(total.counts.items()):
        print(f"  {count:>9,} {kind}")
    print(f"  {len(total.wrong):>9,} wrong ({time.monotonic() - started:.0f} s)")
    kinds: dict[str, list[str]] = {}
    for problem in total.wrong:
        kinds.setdefault(re.sub(r"'[^']*'|\d+|(?<=d )[a-z-]+-[0-9a-z-]+", "*", problem), []).append(problem)
    for found in sorted(kinds.values(), key=len, reverse=True)[:40]:
        print(f"    {len(found):>7,} like {found[0][:300]}")
    raise SystemExit(bool(total.wrong))


if __name__ == "__main__":
    main()
