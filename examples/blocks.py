"""A tool loop in the block-style interface: stream an answer, run its tool, go on, and see one that breaks off.

It runs offline: the answers come from memory. For the network, leave the transport out and set OPENAI_API_KEY.
"""

import asyncio
import json
from typing import Any

from dragoman import ToolSpec, model
from dragoman.blocks import (
    ContentBlockDelta,
    Error,
    Message,
    ModelAdapter,
    ModelResponse,
    Role,
    ToolResultBlock,
    ToolUseBlock,
    adapter_for,
)
from dragoman.testing import ReplayedResponse, ReplayTransport

WEATHER = ToolSpec("get_weather", "The weather of a city, now.", {"properties": {"city": {"type": "string"}}})


def wire(*deltas: dict[str, Any], finish: str | None) -> ReplayedResponse:
    """Return an answer of the Chat Completions API; without a finish it breaks off."""
    pieces: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish is not None:
        pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        pieces.append({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 9}})
    return ReplayedResponse(chunks=tuple(f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces))


CALL = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
ANSWERS = [
    wire({"content": "Let me "}, {"content": "look."}, {"tool_calls": [CALL]}, finish="tool_calls"),
    wire({"content": "Yes: "}, {"content": "rain, 9 °C."}, finish="stop"),
    wire({"content": "Tomorrow it will"}, finish=None),
]


async def ask(adapter: ModelAdapter, conversation: list[Message]) -> ModelResponse | None:
    """Print the answer as it comes and return it whole, or None if it broke off."""
    async with await adapter.stream_message(conversation, "Be brief.", tools=[WEATHER]) as stream:
        async for chunk in stream:
            if isinstance(chunk, ContentBlockDelta):
                print(chunk.delta, end="", flush=True)
            elif isinstance(chunk, Error):
                print(f" [{chunk.code}: {chunk.message}]", end="")
    print()
    return stream.response


def run_tool(use: ToolUseBlock) -> ToolResultBlock:
    """Return the result of a tool use; what did not parse is answered and not run."""
    if use.parameters is None:
        return ToolResultBlock(use.tool_use_id, use.parse_error or "", is_error=True)
    return ToolResultBlock(use.tool_use_id, f"Rain in {use.parameters['city']}, 9 °C.")


async def main() -> None:
    """Converse until the model is done, then once more into a broken connection."""
    adapter = adapter_for(model("openai-chat:gpt-5", api_key="not-a-real-key", transport=ReplayTransport(ANSWERS)))
    conversation = [Message(Role.USER, "Is it raining in Paris?")]
    while (response := await ask(adapter, conversation)) is not None:
        conversation.append(response.message)
        if not response.message.tool_uses:
            conversation.append(Message(Role.USER, "And tomorrow?"))
            continue
        results = [run_tool(use) for use in response.message.tool_uses]
        print(f"({results[0].content})")
        conversation.append(Message(Role.USER, results))


if __name__ == "__main__":
    asyncio.run(main())
