"""Whole answers of every wire API, as JSON: a text, or one call of a tool, with usage. For tests of requests."""

import json
from typing import Any

from dragoman.testing import ReplayedResponse
from dragoman.usage import TokenUsage

__all__ = ["MODELS", "answer_with_call", "answer_with_text"]

# One model of each wire API.
MODELS = {
    "anthropic-messages": "anthropic:claude-opus-4-5",
    "bedrock-converse": "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai-chat": "groq:openai/gpt-oss-120b",
    "openai-responses": "openai:gpt-5.2",
    "gemini": "google:gemini-2.5-pro",
}

NOTHING = TokenUsage(input_tokens=100, output_tokens=5)


def answer_with_text(api: str, text: str, usage: TokenUsage = NOTHING) -> ReplayedResponse:
    """Return an answer that says a text."""
    return _answer(api, text, None, usage)


def answer_with_call(
    api: str, name: str, arguments: dict[str, Any], usage: TokenUsage = NOTHING, call_id: str = "call_1"
) -> ReplayedResponse:
    """Return an answer that calls a tool."""
    return _answer(api, "", (name, arguments, call_id), usage)


def _answer(api: str, text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> ReplayedResponse:
    body = _BODIES[api](text, call, usage)
    return ReplayedResponse(chunks=(json.dumps(body).encode(),), headers={"content-type": "application/json"})


def _anthropic(text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> dict[str, Any]:
    content: list[Any] = [{"type": "text", "text": text}]
    if call is not None:
        content = [{"type": "tool_use", "id": call[2], "name": call[0], "input": call[1]}]
    cached = usage.cache_read_tokens or 0
    return {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if call else "end_turn",
        "usage": {
            "input_tokens": (usage.input_tokens or 0) - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.output_tokens,
        },
    }


def _bedrock(text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> dict[str, Any]:
    content: list[Any] = [{"text": text}]
    if call is not None:
        content = [{"toolUse": {"toolUseId": call[2], "name": call[0], "input": call[1]}}]
    cached = usage.cache_read_tokens or 0
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if call else "end_turn",
        "usage": {
            "inputTokens": (usage.input_tokens or 0) - cached,
            "outputTokens": usage.output_tokens,
            "cacheReadInputTokens": cached,
        },
    }


def _chat(text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call[2], "type": "function", "function": function}],
        }
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        },
    }


def _responses(text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    if call is not None:
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": call[2],
            "name": call[0],
            "arguments": json.dumps(call[1]),
            "status": "completed",
        }
    return {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [item],
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        },
    }


def _gemini(text: str, call: tuple[str, dict[str, Any], str] | None, usage: TokenUsage) -> dict[str, Any]:
    part: dict[str, Any] = {"text": text}
    if call is not None:
        part = {"functionCall": {"name": call[0], "args": call[1]}}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens or 0,
        },
    }


_BODIES = {
    "anthropic-messages": _anthropic,
    "bedrock-converse": _bedrock,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
