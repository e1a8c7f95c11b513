"""Calls whose ids repeat, or are spelled as the client's API does not allow: every result comes to its call."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.store import MemoryStore
from tests.gateway_stage import Exchange, Stage, on_a_loop, staged
from tests.web_cases import require_sound

SCHEMA = {"type": "object", "properties": {}}
ROUNDS = 4
TURN = "/session/work"


async def call_by_gemini(exchange: Exchange) -> None:
    """Answer with a call that has no id: the reader numbers the calls of each answer from 0."""
    part = {"functionCall": {"name": "look", "args": {}}}
    content = {"role": "model", "parts": [part]}
    told = {"candidates": [{"content": content, "index": 0, "finishReason": "STOP"}]}
    await exchange.send(b"data: " + json.dumps(told).encode() + b"\n\n")


async def call_by_chat(exchange: Exchange) -> None:
    """Answer with a call whose id has characters that other APIs refuse, and that every answer repeats."""
    call = {"index": 0, "id": "functions.look:0/é", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for delta, finish in (({"role": "assistant", "tool_calls": [call]}, None), ({}, "tool_calls")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        fields = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await exchange.send(b"data: " + json.dumps({**fields, "choices": [choice]}).encode() + b"\n\n")
    await exchange.send(b"data: [DONE]\n\n")


async def post(stage: Stage, path: str, body: dict[str, Any]) -> Any:
    async with stage.client.post(stage.url + path, json={"model": "m", "stream": False, **body}) as answer:
        assert answer.status == 200
        return await answer.json()


async def ask_responses(stage: Stage) -> None:
    """Send each result alone, after the response that called."""
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA}]
    response = await post(stage, "/v1/responses", {"input": "go", "tools": tools})
    for number in range(ROUNDS):
        calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": each, "output": f"result {number}"} for each in calls]
        body = {"input": results, "tools": tools, "previous_response_id": response["id"]}
        response = await post(stage, "/v1/responses", body)


async def ask_chat(stage: Stage) -> None:
    """Send each result alone to a joined session."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number in range(ROUNDS + 1):
        told = await post(stage, f"{TURN}/v1/chat/completions", {"messages": said, "tools": tools})
        calls = [each["id"] for each in told["choices"][0]["message"]["tool_calls"]]
        said = [{"role": "tool", "tool_call_id": each, "content": f"result {number}"} for each in calls]


async def ask_messages(stage: Stage) -> None:
    """The same in the Messages API."""
    tools = [{"name": "look", "input_schema": SCHEMA}]
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number in range(ROUNDS + 1):
        told = await post(stage, f"{TURN}/v1/messages", {"max_tokens": 99, "messages": said, "tools": tools})
        calls = [block["id"] for block in told["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": each, "content": f"result {number}"} for each in calls]
        said = [{"role": "user", "content": results}]


@pytest.mark.parametrize("asking", [ask_responses, ask_chat, ask_messages])
@pytest.mark.parametrize(("model", "script"), [("google:m", call_by_gemini), ("openai-chat:m", call_by_chat)])
@on_a_loop
async def test_every_result_comes_to_its_call(
    asking: Callable[[Stage], Awaitable[None]], model: str, script: Callable[[Exchange], Awaitable[None]]
) -> None:
    store = MemoryStore()
    async with staged(f"*={model}", script=script, store=store) as stage:
        await asking(stage)
        sent = stage.upstream.bodies[-1].decode()
    places = [sent.find(f"result {number}") for number in range(ROUNDS)]
    assert places == sorted(places)
    assert places[0] > 0
    assert "interrupted" not in sent
    assert len((await store.list()).sessions) == 1
    await require_sound(store)
