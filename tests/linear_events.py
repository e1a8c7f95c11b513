"""Answers of many small events, for each wire API, and imports: does the time to read them grow with their number?

    python -m tests.linear_events           # a table at 1,000 and 8,000 events

Each has broken something once: a decoder that looks through all open calls, or copies all fields, at each event.
`tests/test_linear.py` runs the same cases.
"""

import gc
import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dragoman import ToolSpec
from dragoman.delta import TextDelta
from dragoman.interop import Imported, import_claude_code, import_codex
from dragoman.interop.llm import import_all_llm
from dragoman.interop.openai_agents import import_all_openai_agents
from dragoman.stream import assemble
from dragoman.stream.textcalls import TextCallReader
from dragoman.testing import decode_recorded
from tests.wire_streams import AWS, SSE, Object, frames, sse

Read = Callable[[], object]
FEW, MANY = 1_000, 8_000


class _Answer(NamedTuple):
    vendor: str
    content_type: str
    body: bytes

    def read(self) -> None:
        assemble(decode_recorded(self.vendor, self.body, content_type=self.content_type))


def _chat(deltas: Iterable[Object], finish: str = "tool_calls") -> _Answer:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return _Answer("openai-chat", SSE, b"".join(sse(*chunks, end, "[DONE]")))


def _chat_body(calls: list[Object]) -> _Answer:
    body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    return _Answer("openai-chat", "application/json", json.dumps(body).encode())


def _chat_call(number: int, **fields: Any) -> Object:
    return {"tool_calls": [{"id": f"c{number}", "function": {"name": "f", "arguments": "{}"}, **fields}]}


def _chat_detail(**fields: Any) -> Object:
    return {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "x" * 60, **fields}]}


def _anthropic(events: Iterable[Object], **usage: Any) -> _Answer:
    start = {"type": "message_start", "message": {"id": "m", "model": "c", "usage": usage}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}
    return _Answer("anthropic", SSE, b"".join(sse(start, *events, stop, {"type": "message_stop"})))


def _anthropic_calls(count: int) -> list[Object]:
    return [_anthropic_start(at, type="tool_use", id=f"t{at}", name="f") for at in range(count)]


def _anthropic_start(index: int, **block: Any) -> Object:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _anthropic_summary(count: int) -> _Answer:
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "x"}}
    return _anthropic([_anthropic_start(0, type="compaction", **_wide(count)), *[piece] * count])


def _bedrock(events: Iterable[tuple[str, Object]]) -> _Answer:
    start, stop = ("messageStart", {"role": "assistant"}), ("messageStop", {"stopReason": "tool_use"})
    return _Answer("bedrock", AWS, b"".join(frames(start, *events, stop)))


def _bedrock_calls(count: int) -> list[tuple[str, Object]]:
    return [_bedrock_start(at, toolUse={"toolUseId": f"t{at}", "name": "f"}) for at in range(count)]


def _bedrock_start(index: int, **start: Any) -> tuple[str, Object]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": start}


def _bedrock_delta(index: int, **delta: Any) -> tuple[str, Object]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def _gemini(candidates: Iterable[Object]) -> _Answer:
    end = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    return _Answer("google", SSE, b"".join(sse(*({"candidates": [each]} for each in (*candidates, end)))))


def _responses(events: Iterable[Object], output: list[Object] | None = None) -> _Answer:
    created = {"type": "response.created", "response": {"id": "r", "model": "m"}}
    response = {"id": "r", "status": "completed", "output": output or []}
    return _Answer("openai", SSE, b"".join(sse(created, *events, {"type": "response.completed", "response": response})))


def _added(index: int, kind: str, item_id: str, **fields: Any) -> Object:
    return {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {"type": kind, "id": item_id, **fields},
    }


def _done(index: int, kind: str, item_id: str, **fields: Any) -> Object:
    return {**_added(index, kind, item_id, **fields), "type": "response.output_item.done"}


def _call(number: int, **fields: Any) -> Object:
    return {"call_id": f"c{number}", "name": "f", **fields}


def _behind_a_text(count: int) -> _Answer:
    calls = [_added(at + 1, "function_call", f"f{at}", **_call(at)) for at in range(count)]
    piece = {"type": "response.output_text.delta", "delta": "x"}
    return _responses([_added(0, "message", "m"), *calls, *[piece] * count])


def _behind_a_search(count: int) -> _Answer:
    events = [_added(0, "web_search_call", "w")]
    for at in range(count):
        events.append(_added(at + 1, "function_call", f"f{at}", **_call(at)))
        events.append(_done(at + 1, "function_call", f"f{at}", **_call(at, arguments="{}")))
    return _responses(events)


def _renamed(count: int) -> _Answer:
    calls = [_added(at + 10**7, "function_call", f"f{at}", call_id=f"c{at}", name=f"n{at}") for at in range(count)]
    return _responses(calls, [{"type": "function_call", "id": f"g{at}", **_call(at + count)} for at in range(count)])


def _thinking_and_calls(count: int) -> _Answer:
    events: list[Object] = []
    for at in range(count // 2):
        events.append(_added(2 * at, "reasoning", f"r{at}"))
        events.append({"type": "response.reasoning_text.delta", "item_id": f"r{at}", "delta": "x"})
        events.append(_added(2 * at + 1, "function_call", f"f{at}", **_call(at)))
    return _responses(events)


def _repeated_texts(count: int, *, after: bool) -> _Answer:
    wholes = [
        {"type": "response.output_text.done", "item_id": "m", "content_index": at, "text": "x"} for at in range(count)
    ]
    end = [_done(0, "message", "m", content=[{"type": "output_text", "text": "x"}] * count)]
    return _responses([_added(0, "message", "m"), *(end + wholes if after else wholes + end)])


def _wide(count: int) -> Object:
    return {f"k{at}": 1 for at in range(count)}


ANSWERS: dict[str, Callable[[int], _Answer]] = {
    "chat: calls by id": lambda n: _chat(_chat_call(at) for at in range(n)),
    "chat: calls by index": lambda n: _chat(_chat_call(at, index=at) for at in range(n)),
    "chat: unknown pieces of calls": lambda n: _chat(
        [
            *(_chat_call(at, index=at) for at in range(n)),
            *({"tool_calls": [{"index": at, "foo": 1}]} for at in range(n)),
            *({"tool_calls": [{"foo": 1}]} for _ in range(n)),
        ]
    ),
    "chat: calls in one body": lambda n: _chat_body([{"function": {"name": "f"}}] * n),
    "chat: reasoning details": lambda n: _chat([_chat_detail()] * n, "stop"),
    "chat: wide reasoning details": lambda n: _chat([_chat_detail(**_wide(n)), *[_chat_detail()] * n], "stop"),
    "anthropic: open calls": lambda n: _anthropic(_anthropic_calls(n)),
    "anthropic: unknown events": lambda n: _anthropic([*_anthropic_calls(n), *[{"type": "odd", "index": 1}] * n]),
    "anthropic: unknown deltas": lambda n: _anthropic([*_anthropic_calls(n), *[{"type": "odd", "delta": {}}] * n]),
    "anthropic: wide summary": _anthropic_summary,
    "anthropic: wide usage": lambda n: _anthropic(
        [{"type": "message_delta", "delta": {}, "usage": {"output_tokens": at}} for at in range(n)],
        cache_creation=_wide(n),
    ),
    "bedrock: open calls": lambda n: _bedrock(_bedrock_calls(n)),
    "bedrock: unknown deltas": lambda n: _bedrock([*_bedrock_calls(n), *[("odd", {"delta": {}})] * n]),
    "bedrock: signature": lambda n: _bedrock([_bedrock_delta(0, reasoningContent={"signature": "A" * 60})] * n),
    "bedrock: wide picture": lambda n: _bedrock(
        [_bedrock_start(0, image=_wide(n)), *[_bedrock_delta(0, image={"format": "png"})] * n]
    ),
    "bedrock: results": lambda n: _bedrock(
        [_bedrock_start(0, toolResult=_wide(n)), *[_bedrock_delta(0, toolResult=[{"text": "a"}])] * n]
    ),
    "gemini: wide metadata": lambda n: _gemini([{"safe": _wide(n)}, *[{"safe": {"k0": 1}}] * n]),
    "gemini: logprobs": lambda n: _gemini([{"logprobsResult": {"chosenCandidates": [{"token": "a"}]}}] * n),
    "gemini: calls": lambda n: _gemini([{"content": {"parts": [{"functionCall": {"name": "f"}}]}}] * n),
    "responses: calls behind a text": _behind_a_text,
    "responses: calls behind a search": _behind_a_search,
    "responses: items with other ids": _renamed,
    "responses: thinking and calls": _thinking_and_calls,
    "responses: repeated texts": lambda n: _repeated_texts(n, after=False),
    "responses: texts repeated late": lambda n: _repeated_texts(n, after=True),
}
TAGS = (
    "<think></think>",
    "<tool_call>x</tool_call>",
    '<tool_call>{"name":"f","arguments":{}}</tool_call>',
    "</think>",
    "<function=f></function>",
    "<function=f><parameter=a>1</parameter></function>",
)


def _answer(make: Callable[[int], _Answer], count: int) -> Read:
    return make(count).read


def _tags(tag: str, count: int) -> Read:
    delta = TextDelta("r", 0, None, tag * count)

    def read() -> None:
        reader = TextCallReader([ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}})])
        reader.take([delta])
        reader.close()

    return read


def _codex(lines: Iterable[Object]) -> Read:
    text = "\n".join(json.dumps(line) for line in lines)
    return lambda: import_codex(text)


def _codex_item(role: str, kind: str) -> Object:
    item = {"type": "message", "role": role, "content": [{"type": kind, "text": "x"}]}
    return {"type": "response_item", "payload": item}


_ASKED, _SAID = _codex_item("user", "input_text"), _codex_item("assistant", "output_text")
_COUNTED = {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 1}}}}
_TAKEN_BACK = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}


def _claude_code(count: int) -> Read:
    content = [[{"type": "text", "text": f"words {at}"}] for at in range(count)]
    lines = [
        {
            "type": "assistant",
            "uuid": f"u{at}",
            "parentUuid": f"u{at - 1}" if at else None,
            "sessionId": "s",
            "message": {"id": "m", "role": "assistant", "model": "claude-x", "content": content[at]},
        }
        for at in range(count)
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    return lambda: import_claude_code(text)


def _database(tables: dict[str, list[tuple[Any, ...]]], read_all: Callable[[Path], list[Imported]]) -> Read:
    with closing(sqlite3.connect(":memory:")) as connection:
        for columns, rows in tables.items():
            connection.execute(f"create table {columns}")
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"insert into {columns.split()[0]} values ({places})", rows)
        connection.commit()
        data = connection.serialize()

    def read() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "logs.db"
            path.write_bytes(data)
            assert read_all(path)

    return read


def _llm(count: int) -> Read:
    columns = "responses (id text, conversation_id text, prompt text, response text)"
    return _database({columns: [(f"r{at}", f"c{at}", "ask", "answer") for at in range(count)]}, import_all_llm)


def _agents(count: int) -> Read:
    item = json.dumps({"role": "user", "content": "ask"})
    tables: dict[str, list[tuple[Any, ...]]] = {
        "agent_sessions (session_id text, updated_at text)": [(f"s{at}", "") for at in range(count)],
        "agent_messages (id, session_id text, message_data text)": [(at, f"s{at}", item) for at in range(count)],
    }
    return _database(tables, import_all_openai_agents)


IMPORTS: dict[str, Callable[[int], Read]] = {
    "import: codex, a usage for each turn": lambda n: _codex([_ASKED, _SAID, _COUNTED] * n),
    "import: codex, usages without answers": lambda n: _codex([_ASKED, _COUNTED] * n),
    "import: codex, turns taken back": lambda n: _codex([_ASKED] * n + [_TAKEN_BACK] * (n - 1)),
    "import: claude code, lines of one answer": _claude_code,
    "import: llm, conversations of one response": _llm,
    "import: openai-agents, sessions of one item": _agents,
}
CASES: dict[str, Callable[[int], Read]] = {
    **IMPORTS,
    **{name: partial(_answer, make) for name, make in ANSWERS.items()},
    **{f"text calls: {tag}": partial(_tags, tag) for tag in TAGS},
}


def seconds_of(case: str, count: int) -> float:
    """Return the processor time to read the answer, the least of two tries."""
    read = CASES[case](count)
    best = float("inf")
    gc.disable()  # a collection takes as long as the heap of the whole process is large
    try:
        for _ in range(2):
            begun = time.thread_time()
            read()
            best = min(best, time.thread_time() - begun)
    finally:
        gc.enable()
    return best


def main() -> None:
    """Print a line for each case: the seconds for few events and for many, and how much faster than linear it grew."""
    for case in CASES:
        few, many = seconds_of(case, FEW), seconds_of(case, MANY)
        print(f"{case:60} {few:>8.3f} s {many:>8.3f} s {many / few / (MANY / FEW):>6.1f}", flush=True)


if __name__ == "__main__":
    main()
