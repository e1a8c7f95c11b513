"""One small request per wire API, and per strict dialect, that its target accepts: two calls, their results, an answer.

The validator's tests break them. Written by hand, so that they share no mistake with the encoders.
"""

from typing import Any

__all__ = ["VALID"]

PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SIGNATURE = "c2lnbmF0dXJl"


def _chat(first_id: str, second_id: str, **assistant: Any) -> dict[str, Any]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}
        for call_id in (first_id, second_id)
    ]
    return {
        "model": "some-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is the weather?"},
            {"role": "assistant", "content": None, "tool_calls": calls, **assistant},
            {"role": "tool", "tool_call_id": first_id, "content": "snow"},
            {"role": "tool", "tool_call_id": second_id, "content": "sun"},
            {"role": "assistant", "content": "Snow and sun."},
            {"role": "user", "content": "Thanks."},
        ],
    }


_RESPONSES = {
    "model": "gpt-5",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "stream": True,
    "tool_choice": "required",
    "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
    "input": [
        {"role": "user", "content": "What is the weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNATURE},
        {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "snow"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Snow.", "annotations": []}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "Thanks."}]},
    ],
}

_ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4_096,
    "thinking": {"type": "enabled", "budget_tokens": 2_048},
    "system": "Be brief.",
    "tool_choice": {"type": "auto"},
    "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Ask both.", "signature": SIGNATURE},
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "toolu_b", "name": "look", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "snow"},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": ""},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Snow and sun."}]},
        {"role": "user", "content": "Thanks."},
    ],
}

_GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "generationConfig": {"maxOutputTokens": 100},
    "tools": [{"functionDeclarations": [{"name": "look", "description": "", "parametersJsonSchema": SCHEMA}]}],
    "contents": [
        {"role": "user", "parts": [{"text": "What is the weather?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "One moment."},
                {"functionCall": {"name": "look", "args": {}, "id": "a"}, "thoughtSignature": SIGNATURE},
                {"functionCall": {"name": "look", "args": {}, "id": "b"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "snow"}, "id": "a"}},
                {"functionResponse": {"name": "look", "response": {"output": "sun"}, "id": "b"}},
            ],
        },
        {"role": "model", "parts": [{"text": "Snow and sun."}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ],
}


def _bedrock(*assistant: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 4_096},
        "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": SCHEMA}}}]},
        "messages": [
            {
                "role": "user",
                "content": [{"text": "What is this?"}, {"image": {"format": "png", "source": {"bytes": PNG}}}],
            },
            {
                "role": "assistant",
                "content": [
                    *assistant,
                    {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}},
                    {"toolUse": {"toolUseId": "b", "name": "look", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a", "content": [{"text": "snow"}]}},
                    {"toolResult": {"toolUseId": "b", "content": [{"json": {"sky": "blue"}}]}},
                ],
            },
            {"role": "assistant", "content": [{"text": "Snow and sun."}]},
            {"role": "user", "content": [{"text": "Thanks."}]},
        ],
        **further,
    }


_REASONING = {"reasoningContent": {"reasoningText": {"text": "Ask both.", "signature": SIGNATURE}}}

VALID: dict[str, dict[str, Any]] = {
    "chat": _chat("call_a", "call_b"),
    "mistral": _chat("aaaaaaaaa", "bbbbbbbbb"),
    "deepseek": {**_chat("call_a", "call_b", reasoning_content=""), "model": "deepseek-reasoner"},
    "responses": _RESPONSES,
    "anthropic": _ANTHROPIC,
    "anthropic beta": {**_ANTHROPIC, "context_management": {"edits": []}},
    "gemini": _GEMINI,
    "bedrock": _bedrock(
        _REASONING,
        {"text": "One moment."},
        additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 2_048}},
    ),
    "llama": _bedrock(),
}
