"""A model over replayed answers: how tests ask it, and what it sent."""

import asyncio
import json
from typing import Any

from dragoman import Message, MessageDelta, Model, ToolSpec, model
from dragoman.testing import ReplayedResponse, ReplayTransport

ANSWER = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [], "usage": {"input_tokens": 10}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "NAME", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
LOOK = ToolSpec("look", "Look at something.")
HELLO = (Message.user("hi"),)


def events(*values: Any, name: str = "look") -> bytes:
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values).replace("NAME", name).encode()


def replayed(body: bytes, *, status: int = 200, kind: str = "text/event-stream", **headers: str) -> ReplayTransport:
    fields = {"content-type": kind, **headers}
    return ReplayTransport([ReplayedResponse(status=status, headers=fields, chunks=(body,))] * 3)


def claude(transport: ReplayTransport | None = None, **config: Any) -> Model:
    return model(
        "anthropic:m-1", api_key="sk-planted-key-123456", transport=transport or replayed(events(*ANSWER)), **config
    )


def ask(asked: Model, *messages: Message, **arguments: Any) -> tuple[list[MessageDelta], Any]:
    async def run() -> tuple[list[MessageDelta], Any]:
        async with asked.stream(messages or HELLO, **arguments) as stream:
            deltas: list[MessageDelta] = [delta async for delta in stream]
        return deltas, stream

    return asyncio.run(run())


def body_of(asked: Model, *messages: Message, **arguments: Any) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(asked.render(messages or HELLO, **arguments).body)
    return rendered
