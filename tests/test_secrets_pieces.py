"""A key that arrives in pieces, or that the end of the stream cuts, gets into no record, request or recording."""

import asyncio
import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Agent, AgentConfig, LoopConfig, MemoryStore, Message, model, render_request, start_session, to_json
from dragoman.errors import Secrets
from dragoman.stream import EventStreamParser
from dragoman.stream.eventstream import encode_frame
from dragoman.testing.transports import RecordingTransport, ReplayedResponse, ReplayTransport, read_recording
from tests.loopback import KEY

Said = tuple[str, str]  # the kind of a piece (text, thought or arguments), and the piece
AWS = "application/vnd.amazon.eventstream"
ALL_BUT_ONE = KEY[:-1]


def sse(*events: dict[str, Any]) -> bytes:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in events).encode()


def chat(said: list[Said], end: str | None) -> bytes:
    def delta(kind: str, piece: str) -> dict[str, Any]:
        if kind == "arguments":
            return {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}]}
        return {"content" if kind == "text" else "reasoning_content": piece}

    events = [{"choices": [{"index": 0, "delta": delta(*each), "finish_reason": None}]} for each in said]
    return sse(*events, *([{"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}] if end else []))


def anthropic(said: list[Said], end: str | None) -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "1", "model": "m", "content": []}}]
    for index, (kind, run) in enumerate(itertools.groupby(said, key=lambda each: each[0])):
        name = "text" if kind == "text" else "thinking"
        events.append({"type": "content_block_start", "index": index, "content_block": {"type": name, name: ""}})
        events += [
            {"type": "content_block_delta", "index": index, "delta": {"type": f"{name}_delta", name: piece}}
            for _, piece in run
        ]
        events.append({"type": "content_block_stop", "index": index})
    if end:
        reason = "max_tokens" if end == "length" else "end_turn"
        events += [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]
    return sse(*events)


def google(said: list[Said], end: str | None) -> bytes:
    def event(kind: str, piece: str) -> dict[str, Any]:
        part = {"text": piece} if kind == "text" else {"text": piece, "thought": True}
        return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}

    reason = "MAX_TOKENS" if end == "length" else "STOP"
    return sse(*(event(*each) for each in said), *([{"candidates": [{"finishReason": reason}]}] if end else []))


BODIES = {"openai-compatible:m": chat, "anthropic:m": anthropic, "google:m": google}
SPREAD: dict[str, list[Said]] = {
    "two parts": [("text", f"k {KEY[:14]}"), ("thought", "z"), ("text", f"{KEY[14:]} .")],
    "three parts": [("text", KEY[:6]), ("thought", "z"), ("text", KEY[6:14]), ("thought", "y"), ("text", KEY[14:])],
    "two thoughts": [("thought", KEY[:14]), ("text", "z"), ("thought", KEY[14:]), ("text", "y")],
    "letters": [("text", letter) for letter in KEY],
    "letters of a thought": [*(("thought", letter) for letter in KEY), ("text", "z")],
}


async def tell(name: str, body: bytes, path: Path) -> list[str]:
    """Run an agent that gets this answer; return all that is kept of it, and the texts of the recording's replay."""
    recorder = RecordingTransport(ReplayTransport([ReplayedResponse(chunks=(body,))]), path, protocol="x")
    asked = model(name, api_key=KEY, transport=recorder, base_url="http://127.0.0.1:1")
    session = await start_session(MemoryStore(), "s")
    result = await Agent(asked, session=session, config=AgentConfig(loop=LoopConfig(attempts=1))).run("Hello")
    history = [*session.messages, Message.user("Go on")]
    kept = [str(result.output), repr(result), repr(list(session.entries))]
    kept += [
        render_request(f"{each}:m", history).body.decode() for each in ("openai", "mistral", "anthropic", "google")
    ]
    replay = model(name, api_key="another-key-1", transport=ReplayTransport.from_recording(path), base_url="http://h")
    again = await replay.stream([Message.user("Hello")]).collect()
    read = again.message or again.partial
    assert read is not None
    for message in (*history, read):
        by_kind = sorted(message.parts, key=lambda part: part.kind)
        kept += ["".join(getattr(part, "text", "") for part in by_kind), to_json(message).decode()]
    return kept


@pytest.mark.parametrize("spread", SPREAD)
@pytest.mark.parametrize("name", BODIES)
def test_a_key_in_pieces_is_kept_nowhere(name: str, spread: str, tmp_path: Path) -> None:
    kept = asyncio.run(tell(name, BODIES[name](SPREAD[spread], "stop"), tmp_path / "x.jsonl"))
    kept.append((tmp_path / "x.jsonl").read_text())
    assert [text for text in kept if KEY in text] == []
    assert any("[redacted]" in text for text in kept)


@pytest.mark.parametrize("end", [None, "length"])
@pytest.mark.parametrize("kind", ["text", "thought"])
@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("name", BODIES)
def test_most_of_a_key_before_the_end_of_a_stream_is_kept_nowhere(
    name: str, size: int, kind: str, end: str | None, tmp_path: Path
) -> None:
    said = [(kind, ALL_BUT_ONE[start : start + size]) for start in range(0, len(ALL_BUT_ONE), size)]
    kept = asyncio.run(tell(name, BODIES[name](said, end), tmp_path / "x.jsonl"))
    kept.append((tmp_path / "x.jsonl").read_text())
    assert [text for text in kept if ALL_BUT_ONE in text] == []


def test_most_of_a_key_in_arguments_that_were_cut_is_kept_nowhere(tmp_path: Path) -> None:
    body = chat([("arguments", '{"a": "' + ALL_BUT_ONE)], "length")
    kept = asyncio.run(tell("openai-compatible:m", body, tmp_path / "x.jsonl"))
    kept.append((tmp_path / "x.jsonl").read_text())
    assert [text for text in kept if ALL_BUT_ONE in text] == []


def test_a_recording_of_a_binary_stream_hides_pieces_and_can_be_read(tmp_path: Path) -> None:
    async def record() -> bytes:
        headers = {":event-type": "contentBlockDelta", ":message-type": "event"}
        frames = [
            encode_frame(headers, json.dumps({"delta": {"text": piece}}).encode()) for piece in ("a ", *KEY, " b")
        ]
        exchange = ReplayedResponse(chunks=tuple(frames), headers={"content-type": AWS})
        recorder = RecordingTransport(ReplayTransport([exchange]), tmp_path / "x.jsonl", protocol="x")
        asked = model("bedrock:m", api_key=KEY, transport=recorder, region="us-east-1")
        await asked.stream([Message.user("Hello")]).collect()
        (replayed,) = read_recording(tmp_path / "x.jsonl")
        return b"".join(replayed.chunks)

    read = EventStreamParser().feed(asyncio.run(record()))
    assert "".join(json.loads(data)["delta"]["text"] for _, data in read) == "a [redacted] b"
    (record_line,) = (tmp_path / "x.jsonl").read_text().splitlines()
    events = json.loads(record_line)["events"]
    assert "".join(event["contentBlockDelta"]["delta"]["text"] for event in events) == "a [redacted] b"


def test_a_recording_keeps_a_damaged_frame_as_it_came(tmp_path: Path) -> None:
    frame = encode_frame({":event-type": "x", ":message-type": "event"}, b'{"a": "b"}')
    damaged = frame[:-1] + bytes([frame[-1] ^ 1]) + frame[:9]
    exchange = ReplayedResponse(chunks=(damaged,), headers={"content-type": AWS})
    recorder = RecordingTransport(ReplayTransport([exchange]), tmp_path / "x.jsonl", protocol="x")
    asked = model("bedrock:m", api_key=KEY, transport=recorder, region="us-east-1")
    asyncio.run(asked.stream([Message.user("Hello")]).collect())
    line = json.loads((tmp_path / "x.jsonl").read_text())
    assert base64.b64decode(line["response"]["body_b64"]) == damaged


@given(st.lists(st.integers(0, len(KEY) + 8), max_size=6), st.integers(0, 2))
def test_wherever_a_text_is_cut_the_joined_pieces_hold_no_key(cuts: list[int], again: int) -> None:
    text = f"ab{KEY}cd" + f"{KEY} " * again
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[first:last] for first, last in itertools.pairwise(places)]
    clean = Secrets([KEY]).hide_pieces(pieces)
    assert len(clean) == len(pieces)
    assert "".join(clean) == text.replace(KEY, "[redacted]")


def test_a_short_piece_of_a_key_is_ordinary_text() -> None:
    secrets = Secrets([KEY])
    for text in (f"a {KEY[: len(KEY) // 2]}", f"{KEY[-11:]} a", f"a {ALL_BUT_ONE} b", ""):
        assert secrets.hide_exactly(text) == text
    assert secrets.hide_exactly(f"a {ALL_BUT_ONE}") == "a [redacted]"
    assert secrets.hide_exactly(f"{KEY[1:]} a") == "[redacted] a"
