"""Answers changed at random: whatever a provider sends, the stream ends legally and in a documented way.

`python -m tests.strangers.mutated --runs 100000 --seed 0` takes recorded answers (the written ones where there are no
recordings), changes bytes, JSON values and events, and reads each as production does. It counts exceptions, errors with
the code `internal`, deltas that break the contract, messages that do not survive a round trip through JSON, and
messages that cannot be sent back to the model that gave them, or to a model of another API.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from dragoman import ErrorCode, Message, ModelConfig, ToolResult, from_json, to_json
from dragoman.delta import ErrorDelta
from dragoman.errors import ContractViolation
from dragoman.history import hand_off
from dragoman.message import ModelInvocationDescriptor
from dragoman.request import ModelRequest
from dragoman.stream import StreamContract, assemble
from dragoman.testing import decode_recorded
from dragoman.wire import find_codec, find_dialect, find_recorded_dialect
from tests.corpus import CORPUS, all_records, body_of
from tests.cuts import streaming_records
from tests.wire_streams import BODIES, STREAMS, WireStream, read_event, recorded_stream, write_event

Change = Callable[[random.Random, WireStream], list[bytes]]

_MARK = "\N{BLACK SQUARE} a value that JSON libraries do not write"
_DEEP = {depth: ("[" * depth + "]" * depth).encode() for depth in (150, 300, 100_000)}
_RAW = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"9" * 401,
    b"9" * 5_000,
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    *_DEEP.values(),
)
_EXTREMES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 5e-324,
    "", " ", "0", "-1", "1e400", "nan", "infinity", "9" * 5_000, "\x00", "\ud83d", "\ude00", "a\ud800b", "Zürich", "٣",
    "²", "\u2028", "x" * 10_000, "data:image/png;base64,ü", "ü===", "=", "AAAA", "image/png\r\nX: y", "[DONE]", "{}",
    [], {}, [None], [[]], [{}], {"": ""}, {"\ud800": "\udfff"}, {"type": None}, [1, "a", None], {"error": {}},
    {"error": "\ud800"}, {"code": "\ud800", "message": ["x"]}, {"reason": {"a": 1}}, {"toolUse": {}}, ["\ud800"],
)  # fmt: skip
# Fields by which readers and writers find things again.
_NAMING = frozenset(
    {"id", "call_id", "toolUseId", "type", "name", "status", "role", "index", "item_id", "output_index"}
)
_HEADERS = ("retry-after", "retry-after-ms", "date", "x-request-id", "x-amzn-errortype", "x-unknown")


class Fault(AssertionError):
    """A promise that a changed answer broke."""


# ---------------------------------------------------------------- the answers


@cache
def streams() -> list[WireStream]:
    """The answers that are streams: written ones, and recorded ones where they are."""
    recorded = streaming_records() if CORPUS.is_dir() else []
    return [*STREAMS, *(recorded_stream(protocol, record) for protocol, record in recorded)]


@cache
def bodies() -> list[WireStream]:
    """The answers that are one JSON value; a stream of one event that has no framing."""
    recorded = [
        WireStream(record["id"], protocol, record["vendor"], record["response"].get("content_type") or "", [body])
        for protocol, record in (all_records() if CORPUS.is_dir() else ())
        if not record["streaming"] and (body := body_of(record))
    ]
    return [*BODIES, *recorded]


# ---------------------------------------------------------------- changes


def flip_bytes(choose: random.Random, stream: WireStream) -> list[bytes]:
    """Other bytes at some places of the body; checksums of frames do not fit any more."""
    body = bytearray(b"".join(stream.events))
    for _ in range(choose.randrange(1, 9)):
        body[choose.randrange(len(body))] = choose.choice((choose.randrange(256), 0, 0x22, 0x5C, 0x7B, 0x0A, 0xFF))
    return [bytes(body)]


def cut_body(choose: random.Random, stream: WireStream) -> list[bytes]:
    """A body that ends early, or lacks something in its middle."""
    body = b"".join(stream.events)
    start, end = sorted(choose.randrange(len(body) + 1) for _ in range(2))
    return [body[:start]] if choose.random() < 0.5 else [body[:start] + body[end:]]


def lose_events(choose: random.Random, stream: WireStream) -> list[bytes]:
    """Some events do not arrive."""
    lost = {choose.randrange(len(stream.events)) for _ in range(choose.randrange(1, 4))}
    return [event for place, event in enumerate(stream.events) if place not in lost]


def repeat_event(choose: random.Random, stream: WireStream) -> list[bytes]:
    """An event arrives again, at once or later."""
    events = list(stream.events)
    events.insert(choose.randrange(len(events) + 1), choose.choice(events))
    return events


def swap_events(choose: random.Random, stream: WireStream) -> list[bytes]:
    """Two events change places, or all of a part do."""
    events = list(stream.events)
    if choose.random() < 0.5:
        start, end = sorted(choose.randrange(len(events) + 1) for _ in range(2))
        part = events[start:end]
        choose.shuffle(part)
        return [*events[:start], *part, *events[end:]]
    one, other = choose.randrange(len(events)), choose.randrange(len(events))
    events[one], events[other] = events[other], events[one]
    return events


def mix_answers(choose: random.Random, stream: WireStream) -> list[bytes]:
    """Events of another answer among those of this one."""
    other = choose.choice(streams())
    events = list(stream.events)
    for _ in range(choose.randrange(1, 4)):
        events.insert(choose.randrange(len(events) + 1), choose.choice(other.events))
    return events


def replace_data(choose: random.Random, stream: WireStream) -> list[bytes]:
    """An event whose data is not what it was at all."""
    data = choose.choice((b"[DONE]", b"", b"null", b"[]", b"{}", b"0", b'"x"', b"{", b"\xff", *_RAW))
    place = choose.randrange(len(stream.events))
    return _with_data(stream, place, data)


def change_values(choose: random.Random, stream: WireStream) -> list[bytes]:
    """Extreme values in the place of others, in one event or several; fields go, and come."""
    events = list(stream.events)
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        place = choose.randrange(len(events))
        _, value = read_event(events[place]) if _is_framed(stream) else ("", _parsed(events[place]))
        if value is None:
            continue
        changed, raw = _changed(choose, value)
        data = json.dumps(changed).encode().replace(json.dumps(_MARK).encode(), raw)
        events = _with_data(stream._replace(events=events), place, data)
    return events


def change_everywhere(choose: random.Random, stream: WireStream) -> list[bytes]:
    """One field has another value wherever the answer repeats it: an id, a name, a type."""
    values = [read_event(event)[1] if _is_framed(stream) else _parsed(event) for event in stream.events]
    held = [value for value in values if isinstance(value, dict) and value]
    if not held:
        return stream.events
    places = list(_places(choose.choice(held)))
    inside, key = choose.choice([place for place in places if place[1] in _NAMING] or places)
    before, after = json.dumps(inside[key]), _extreme(choose)
    events = list(stream.events)
    for place, value in enumerate(values):
        fields = [] if value is None else list(_places({"value": value}))
        same = [holder for holder, name in fields if name == key and json.dumps(holder[name]) == before]
        for holder in same:
            holder[key] = after
        if same:
            events = _with_data(stream._replace(events=events), place, json.dumps(value).encode())
    return events


CHANGES: tuple[Change, ...] = (*[change_values] * 4, *[change_everywhere] * 2, flip_bytes, cut_body, replace_data)
STREAM_CHANGES: tuple[Change, ...] = (*CHANGES, lose_events, repeat_event, swap_events, mix_answers)


def _changed(choose: random.Random, value: Any) -> tuple[Any, bytes]:
    """The value with one place in it changed, and the bytes that belong where its mark is."""
    holder = {"value": value}
    places = list(_places(holder))
    inside, key = choose.choice(places)
    action, raw = choose.random(), b"null"
    if action < 0.15 and inside is not holder:
        del inside[key]
    elif action < 0.25 and isinstance(inside[key], dict):
        inside[key][choose.choice(("type", "id", "name", "index", "delta", "error", "\ud800"))] = _extreme(choose)
    elif action < 0.4:
        inside[key], raw = _MARK, choose.choice(_RAW)
    elif action < 0.5:
        other, other_key = choose.choice(places[1:] or places)
        inside[key] = json.loads(json.dumps(other[other_key]))
    else:
        inside[key] = _extreme(choose)
    return holder["value"], raw


def _places(value: Any) -> Any:
    """Every (container, key) inside a value."""
    pending = [value]
    while pending:
        container = pending.pop()
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], (dict, list)):
                pending.append(container[key])


def _extreme(choose: random.Random) -> Any:
    return json.loads(json.dumps(choose.choice(_EXTREMES)))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_framed(stream: WireStream) -> bool:
    return "event" in stream.content_type


def _with_data(stream: WireStream, place: int, data: bytes) -> list[bytes]:
    events = list(stream.events)
    events[place] = write_event(events[place], data) if _is_framed(stream) else data
    return events


# ---------------------------------------------------------------- the promise


def require_legal_end(
    stream: WireStream, chunks: list[bytes], *, status: int = 200, headers: dict[str, str] | None = None
) -> str:
    """Return how an answer ended; raise Fault where it broke a promise."""
    try:
        deltas = decode_recorded(
            stream.protocol,
            chunks,
            vendor=stream.vendor,
            content_type=stream.content_type,
            status=status,
            headers=headers,
        )
    except Exception as error:
        raise Fault(f"reading raised {type(error).__name__}: {error}") from error
    contract = StreamContract(stream.name)
    try:
        for delta in deltas:
            contract.check(delta)
    except ContractViolation as violation:
        raise Fault(f"a delta broke the contract: {violation}") from violation
    if not contract.finished:
        raise Fault("no terminal delta")
    last = deltas[-1]
    if isinstance(last, ErrorDelta) and last.error_code is ErrorCode.INTERNAL:
        raise Fault(f"internal: {last.message}")
    if isinstance(last, ErrorDelta) and " in state " in (last.message or ""):
        raise Fault(f"the decoder broke the contract: {last.message}")
    maker = maker_of(stream)
    try:
        assembly = assemble(deltas, invocation=maker)
        message = assembly.message or assembly.partial
        written = to_json(message) if message is not None else ""
        again = to_json(from_json(written)) if written else ""
    except Exception as error:
        raise Fault(f"its message raised {type(error).__name__}: {error}") from error
    if again != written:
        raise Fault("the message does not survive a round trip through JSON")
    if assembly.message is not None:
        for reader in (maker, *_OTHERS):
            require_sendable(assembly.message, reader)
    return last.error_code.value if isinstance(last, ErrorDelta) else "done"


def maker_of(stream: WireStream) -> ModelInvocationDescriptor:
    """The model that gave an answer."""
    dialect = find_recorded_dialect(stream.protocol, stream.vendor)
    return ModelInvocationDescriptor(dialect.provider, dialect.specification, "m")


# A model of each API. An answer must be readable by all of them.
_OTHERS = tuple(
    ModelInvocationDescriptor(provider, find_dialect(provider, "other").specification, "other")
    for provider in ("openai-chat", "openai", "anthropic", "google", "bedrock")
)


def require_sendable(message: Message, reader: ModelInvocationDescriptor) -> None:
    """Raise Fault where a request to this model cannot hold the answer: such an answer poisons its session."""
    results = [Message.tool(ToolResult(call.tool_call_id, "seen")) for call in message.tool_calls]
    history = [Message.user("begin"), message, *results, Message.user("go on")]
    dialect = find_dialect(reader.provider, reader.model)
    try:
        handed = hand_off(history, target=reader, rules=dialect.rules)
        config = ModelConfig(reader.model, max_tokens=1_000)
        request = ModelRequest(config=config, messages=handed.messages, tools=handed.tools)
        body = find_codec(dialect.specification).encode_request(request, dialect).body
        json.loads(body)
    except Exception as error:
        raise Fault(f"sending it to {reader.provider} raised {type(error).__name__}: {error}") from error


def run(number: int, seed: int) -> tuple[str, str]:
    """Change one answer and read it; return how it ended and the change. The same numbers do the same."""
    choose = random.Random(f"{seed}/{number}")
    is_stream = choose.random() < 0.7
    stream = choose.choice(streams() if is_stream else bodies())
    change = choose.choice(STREAM_CHANGES if is_stream else CHANGES)
    failed = choose.random() < 0.1
    status = choose.choice((100, 204, 302, 400, 401, 413, 429, 500, 529, 999)) if failed else 200
    headers = {choose.choice(_HEADERS): str(_extreme(choose))} if failed else None
    try:
        return require_legal_end(stream, change(choose, stream), status=status, headers=headers), change.__name__
    except Fault as fault:
        raise Fault(f"run {number} of seed {seed}, {change.__name__}, {stream.name}: {fault}") from fault


def main() -> int:
    """Do the runs and print what they came to; the exit status is 1 where a promise broke."""
    arguments = argparse.ArgumentParser(
        prog="python -m tests.strangers.mutated", description="Answers changed at random"
    )
    arguments.add_argument("--runs", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=0)
    chosen = arguments.parse_args()
    started, ends, faults = time.monotonic(), Counter[str](), []
    for number in range(chosen.runs):
        try:
            ends[run(number, chosen.seed)[0]] += 1
        except Fault as fault:
            faults.append(str(fault))
            if len(faults) <= 40:
                print(fault, file=sys.stderr)
    print(f"{chosen.runs} changed answers, {len(faults)} faults, {time.monotonic() - started:.0f} s")
    print(", ".join(f"{end} {count}" for end, count in ends.most_common()))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
