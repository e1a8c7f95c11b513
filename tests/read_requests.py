"""Requests that clients send: recorded bodies, and conversations that our own encoders wrote.

`python -m tests.read_requests` reads every recorded body, and every recorded conversation as each API writes it, and
prints the counts; `--every N` takes each Nth.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dragoman import Image, Message, ModelConfig, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import UnreadableData
from dragoman.history.handoff import hand_off
from dragoman.message import FileRef
from dragoman.request import ModelRequest, ReadRequest
from dragoman.wire import WIRE_APIS, find_codec, find_dialect
from tests.conversations import TARGETS, VARIANTS, Target, read_history, read_records
from tests.corpus import PROTOCOLS, Record, records
from tests.written_answers import api_of

SERVED = tuple(name for name in WIRE_APIS if find_codec(name).read_request is not None)
# The targets of recorded conversations that speak a served API in its vendor's own dialect.
SERVED_TARGETS = {name: TARGETS[name] for name in ("openai-chat", "openai-responses", "anthropic", "gemini")}
_IN_PATH = re.compile(r"models?/([^/]+?)(?::(\w+))?(?:/invoke.*)?(?:\?.*)?$")


def read(api: str, body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
    """The request that a body of the API is."""
    read_request = find_codec(api).read_request
    assert read_request is not None
    return read_request(body, model=model, stream=stream)


def recorded_bodies(every: int = 1) -> Iterator[tuple[str, Record]]:
    """API and exchange of each recorded request to an API that we serve."""
    for protocol in PROTOCOLS:
        if api_of(protocol) in SERVED:
            for record in records(protocol)[::every]:
                if record["request"] and record["request"].get("body"):
                    yield api_of(protocol), record


def read_recorded(api: str, record: Record) -> ReadRequest:
    """The request of a recorded exchange. Some hosts name the model in the path."""
    request = record["request"]
    path = _IN_PATH.search(request.get("path") or "") if api in ("gemini", "anthropic-messages") else None
    model, method = (path[1], path[2] or "") if path else ("", "")
    body = json.dumps(request["body"]).encode()
    return read(api, body, model=model, stream=method.startswith("stream"))


def written(target: Target, system: str | None, messages: Sequence[Message], tools: Any) -> tuple[Any, ReadRequest]:
    """A conversation as the target gets it, and what a server of its API reads."""
    dialect = find_dialect(target.provider, target.model)
    handed = hand_off(messages, tools, target=target.invocation, rules=dialect.rules)
    config = ModelConfig(target.model)
    request = ModelRequest(config=config, messages=handed.messages, tools=handed.tools, system=system)
    wire = find_codec(dialect.specification).encode_request(request, dialect)
    return handed, read(dialect.specification, wire.body, model=target.model)


# ---------------------------------------------------------------- what a conversation says


def said(messages: Sequence[Message], api: str) -> list[tuple[Any, ...]]:
    """What the messages say, without how an API cuts it into turns: texts of one speaker in a row are one."""
    spoken: list[tuple[Any, ...]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text():
                    _add_text(spoken, str(message.role), part.text)
                case ToolCall():
                    spoken.append(("call", part.tool_call_id, part.tool_name, _arguments(part)))
                case ToolResult():
                    spoken.append(("result", part.tool_call_id, *_result(part, api)))
                case Image() | FileRef():
                    spoken.append(("medium", part.data, part.url))
                case Thinking():
                    pass  # it goes back only to its maker, with its signature: the answers' tests have it
    return [entry for entry in spoken if entry[0] not in ("user", "system") or entry[1]]


def _add_text(spoken: list[tuple[Any, ...]], role: str, text: str) -> None:
    joined = re.sub(r"\s+", " ", text).strip()  # encoders join texts with blank lines, and leave out blank ones
    if spoken and spoken[-1][0] == role:
        joined = f"{spoken.pop()[1]} {joined}".strip() if role != "assistant" else f"{spoken.pop()[1]}{joined}"
    elif not joined:
        return
    spoken.append((role, joined))


def _arguments(call: ToolCall) -> Any:
    return {"unparsed_arguments": call.raw_args_text} if call.arguments is None else call.arguments


def _result(result: ToolResult, api: str) -> tuple[Any, ...]:
    content = result.content
    if isinstance(content, tuple):
        texts = " ".join(part.text for part in content if isinstance(part, Text))
        media = sum(isinstance(part, (Image, FileRef)) for part in content)
    else:
        texts = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
        media = 0
    try:  # objects go out as JSON, and come back as its text
        texts = json.dumps(json.loads(texts), sort_keys=True)
    except ValueError:
        texts = re.sub(r"\s+", " ", texts).strip()
    has_flag = api in ("anthropic-messages", "gemini")
    return texts, media, result.is_error if has_flag else False


def conversation_problem(target: Target, record: Record, variant: str) -> str | None:
    """How a conversation differs once it was written and read; None where it says the same."""
    history = read_history(record, variant, target)
    api = find_dialect(target.provider, target.model).specification
    handed, found = written(target, history.system, history.messages, history.tools)
    if (found.request.system or "") != (history.system or ""):
        return "the system text is another"
    if [tool.name for tool in found.request.tools] != [tool.name for tool in handed.tools]:
        return "the tools are others"
    before, after = said(handed.messages, api), said(found.request.messages, api)
    for number, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return f"entry {number}: {str(one)[:300]} became {str(other)[:300]}"
    return None if len(before) == len(after) else f"{len(before)} entries became {len(after)}"


def main(every: int) -> None:
    """Read all of it and print the counts."""
    counts: Counter[str] = Counter()
    for api, record in recorded_bodies():
        try:
            read_recorded(api, record)
            counts[f"recorded bodies of {api}: read"] += 1
        except UnreadableData as error:
            refused = record["response"]["status"] == 400
            counts[f"recorded bodies of {api}: {'refused, as their vendor did' if refused else 'refused'}"] += 1
            print(api, record["id"], error)
    for record in read_records(every):
        for name, target in SERVED_TARGETS.items():
            for variant in VARIANTS:
                problem = conversation_problem(target, record, variant)
                counts[f"conversations by {name}, {variant}: {'same' if problem is None else 'different'}"] += 1
                if problem is not None:
                    print(record["id"], name, variant, problem)
    for line in sorted(counts):
        print(f"{counts[line]:6} {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    main(parser.parse_args().every)
