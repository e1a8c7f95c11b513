"""Streamed answers of which an event is lost: the same answer, an error, or a call with a parse error. Never less.

`python -m tests.losses` loses every event of every recorded stream, one at a time, and every kind of event at once; the
tests do so for the written samples, and for some events of each recording.
"""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from dragoman import Thinking
from dragoman.stream import Assembly, assemble
from dragoman.testing import decode_recorded
from tests.cuts import streaming_records
from tests.wire_streams import STREAMS, WireStream, read_event, recorded_stream

# Kinds of events that an API sends once and repeats nowhere: without one of them the rest is a legal, shorter answer.
# Responses has none: each item's end and the last event repeat the whole.
SAID_ONCE: dict[str, frozenset[str]] = {
    "anthropic-messages": frozenset(
        f"content_block_delta {kind}_delta" for kind in ("text", "thinking", "signature", "citations", "input_json")
    ),
    "bedrock-converse": frozenset(
        f"contentBlockDelta {kind}" for kind in ("text", "toolUse", "citation", "reasoningContent")
    ),
    "gemini": frozenset({"parts", "partial arguments"}),
    "openai-chat": frozenset({"content", "arguments"}),
    "openai-responses": frozenset(),
}
SAID_ONCE["openai-compatible"] = SAID_ONCE["openai-chat"]


def kind_of(protocol: str, event: bytes) -> str:
    """What an event is, in its API's words."""
    name, value = read_event(event)
    if value is None or not isinstance(value, dict):
        return "sentinel"
    match protocol:
        case "anthropic-messages":
            return f"{value.get('type')} {_inner_type(value, 'content_block', 'delta')}".strip()
        case "openai-responses":
            return f"{value.get('type')} {_inner_type(value, 'item')}".strip()
        case "bedrock-converse":
            member = next(iter(value.get("start") or value.get("delta") or ()), "")
            return f"{name} {member}".strip()
        case "gemini":
            return _gemini_kind(value)
    return _chat_kind(value)


def _inner_type(value: dict[str, Any], *names: str) -> str:
    inner: Any = next((value[name] for name in names if isinstance(value.get(name), dict)), {})
    return str(inner.get("type") or "")


def _gemini_kind(value: dict[str, Any]) -> str:
    candidate = (value.get("candidates") or [{}])[0]
    if candidate.get("finishReason"):
        return "finish"
    parts = (candidate.get("content") or {}).get("parts") or []
    pieces = [part["functionCall"] for part in parts if "functionCall" in part]
    if any("partialArgs" in call for call in pieces):
        return "partial arguments"
    if any(call.get("willContinue") or not call for call in pieces):
        return "begin or end of a call"
    return "parts" if parts else "other"


def _chat_kind(value: dict[str, Any]) -> str:
    choice = (value.get("choices") or [{}])[0]
    if choice.get("finish_reason"):
        return "finish"
    delta = choice.get("delta") or {}
    calls = delta.get("tool_calls") or []
    if calls:
        named = any((call.get("function") or {}).get("name") for call in calls)
        return "first piece of a call" if named else "arguments"
    said = [name for name, content in delta.items() if content and name != "role"]
    return "content" if said else "other"


def losses(stream: WireStream, most: int | None = None) -> Iterator[tuple[str, set[int]]]:
    """What may be lost: each event by itself (of a kind, at most so many of them), and all events of a kind."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, event in enumerate(stream.events):
        places[kind_of(stream.protocol, event)].append(place)
    choose = random.Random(stream.name)
    for kind, all_places in places.items():
        chosen = all_places if most is None or len(all_places) <= most else choose.sample(all_places, most)
        yield from ((kind, {place}) for place in {*chosen, all_places[0], all_places[-1]})
        yield kind, set(all_places)


def read(stream: WireStream, without: Collection[int] = ()) -> Assembly:
    """What the answer comes to without the events at these places."""
    kept = [event for place, event in enumerate(stream.events) if place not in without]
    return assemble(decode_recorded(stream.protocol, kept, vendor=stream.vendor, content_type=stream.content_type))


def is_less(whole: Assembly, got: Assembly) -> bool:
    """Whether an answer with something lost passes for a whole one and says something else."""
    if got.error is not None or whole.message is None or got.message is None:
        return False
    if any(call.parse_error for call in got.message.tool_calls):
        return False
    return said_in(whole) != said_in(got) or not opaque_in(whole) <= opaque_in(got)


def said_in(assembly: Assembly) -> Any:
    """The words, calls and items of an answer, and how it finished; of items their order does not count."""
    message = assembly.message
    assert message is not None
    thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    calls = [(call.tool_call_id, call.tool_name, call.arguments) for call in message.tool_calls]
    items = sorted(str(_plain(part)) for part in message.parts if part.kind in ("image", "provider_item"))
    return message.text, thinking, calls, items, assembly.finish_reason


def opaque_in(assembly: Assembly) -> set[str]:
    """Every text in the provider data of the parts, but for how far an item had come when a part of it was closed."""
    message = assembly.message
    assert message is not None
    return {text for part in message.parts for text in _texts(getattr(part, "provider_data", None))}


def _plain(part: Any) -> Any:
    return _without_encrypted(msgspec.to_builtins(part))


def _without_encrypted(value: Any) -> Any:
    """Encrypted content is another one each time that Responses sends it."""
    if isinstance(value, dict):
        return {name: _without_encrypted(inner) for name, inner in value.items() if name != "encrypted_content"}
    return [_without_encrypted(inner) for inner in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in _without_encrypted(value).items():
            if name != "status":
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def unnoticed(stream: WireStream, most: int | None = None) -> tuple[int, list[str]]:
    """How many losses were tried, and which of them made an answer silently less that the API would have told."""
    whole = read(stream)
    if whole.message is None:
        return 0, []
    tried, found = 0, []
    for kind, places in losses(stream, most):
        tried += 1
        if kind not in SAID_ONCE[stream.protocol] and is_less(whole, read(stream, places)):
            found.append(f"{stream.name}: {kind} at {sorted(places)[:5]}")
    return tried, found


def main() -> int:
    """Lose every event of every stream; print what was not noticed."""
    tried, faults = Counter[str](), []
    recorded = [recorded_stream(protocol, record) for protocol, record in streaming_records()]
    for stream in [*STREAMS, *recorded]:
        count, found = unnoticed(stream)
        tried[stream.protocol] += count
        faults += found
    print("\n".join(faults))
    print(f"{sum(tried.values())} losses in {len(recorded) + len(STREAMS)} streams, {len(faults)} not noticed: {tried}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
