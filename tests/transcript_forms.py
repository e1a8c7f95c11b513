"""Recorded conversations, written as the session files of coding agents are: for imports to read back."""

import json
from collections.abc import Iterator
from typing import Any

from .conversations import Record

Line = dict[str, Any]


def spoken(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the messages that a program would have recorded: no system text, no summary."""
    for message in record["messages"]:
        if message["role"] != "system" and not (message.get("meta") or {}).get("compact_summary"):
            yield message


def _text_of(part: dict[str, Any]) -> str:
    return part["text"] if part["kind"] == "text" else f"[{part['media_type']}, {part['bytes']} bytes: not recorded]"


def as_claude_code(record: Record) -> Iterator[Line]:
    """Yield one line for each block; the results of parallel calls hang on the lines of their calls."""
    parent: str | None = None
    count = 0

    def line(kind: str, message: dict[str, Any], after: str | None) -> Line:
        nonlocal count
        count += 1
        ids = {"uuid": f"u{count}", "parentUuid": after, "sessionId": record["id"], "isSidechain": False}
        return {"type": kind, **ids, "timestamp": "2026-01-02T03:04:05Z", "message": message}

    callers: dict[str, str] = {}
    for number, message in enumerate(spoken(record)):
        if message["role"] == "tool":
            for part in message["parts"]:
                block = {"type": "tool_result", "tool_use_id": part["id"], "content": part["text"]}
                block["is_error"] = bool(part.get("is_error"))
                made = line("user", {"role": "user", "content": [block]}, callers[part["id"]])
                parent = made["uuid"]
                yield made
        elif message["role"] == "user":
            blocks = [{"type": "text", "text": _text_of(part)} for part in message["parts"]]
            made = line("user", {"role": "user", "content": blocks}, parent)
            parent = made["uuid"]
            yield made
        else:
            for part in message["parts"]:
                answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-4-5"}
                made = line("assistant", {**answer, "content": [_claude_block(part)]}, parent)
                parent = made["uuid"]
                if part["kind"] == "tool_call":
                    callers[part["id"]] = parent
                yield made


def _claude_block(part: dict[str, Any]) -> dict[str, Any]:
    match part["kind"]:
        case "thinking":
            return {"type": "thinking", "thinking": part["text"], "signature": "c2ln"}
        case "tool_call":
            return {"type": "tool_use", "id": part["id"], "name": part["name"], "input": part["arguments"]}
        case _:
            return {"type": "text", "text": part["text"]}


def as_codex(record: Record) -> Iterator[Line]:
    """Yield one line for each item, after the lines with which a rollout begins."""
    yield _rollout_line("session_meta", {"id": record["id"], "model_provider": "openai", "cwd": "/data"})
    yield _rollout_line("turn_context", {"model": "gpt-5", "cwd": "/data"})
    for number, message in enumerate(spoken(record)):
        for index, part in enumerate(message["parts"]):
            yield _rollout_line("response_item", _codex_item(message["role"], part, f"{number}_{index}"))
        if message["role"] == "assistant":  # where an answer ends
            yield _rollout_line("event_msg", {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 1}}})


def _rollout_line(kind: str, payload: dict[str, Any]) -> Line:
    return {"timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload}


def _codex_item(role: str, part: dict[str, Any], name: str) -> dict[str, Any]:
    match part["kind"]:
        case "thinking":
            summary = [{"type": "summary_text", "text": part["text"]}]
            return {"type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": "c2ln"}
        case "tool_call":
            given = part["arguments"] if isinstance(part["arguments"], str) else json.dumps(part["arguments"])
            return {"type": "function_call", "call_id": part["id"], "name": part["name"], "arguments": given}
        case "tool_result":
            return {"type": "function_call_output", "call_id": part["id"], "output": part["text"]}
        case _:
            kind = "output_text" if role == "assistant" else "input_text"
            return {"type": "message", "role": role, "content": [{"type": kind, "text": _text_of(part)}]}


def as_pi(record: Record) -> Iterator[Line]:
    """Yield one line for each message, each naming the one before it."""
    yield {"type": "session", "version": 3, "id": record["id"], "timestamp": "2026-01-02T03:04:05Z"}
    parent: str | None = None
    for number, message in enumerate(spoken(record)):
        for index, inner in enumerate(_pi_messages(message)):
            ids = {"id": f"{number}_{index}", "parentId": parent, "timestamp": "2026-01-02T03:04:05Z"}
            parent = ids["id"]
            yield {"type": "message", **ids, "message": inner}


def _pi_messages(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts = message["parts"]
    if message["role"] == "tool":
        for part in parts:
            content = [{"type": "text", "text": part["text"]}]
            named = {"role": "toolResult", "toolCallId": part["id"], "toolName": part["name"]}
            yield {**named, "content": content, "isError": bool(part.get("is_error"))}
    elif message["role"] == "user":
        yield {"role": "user", "content": [{"type": "text", "text": _text_of(part)} for part in parts]}
    else:
        made = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-opus-4-5"}
        yield {"role": "assistant", "content": [_pi_block(part) for part in parts], **made}


def _pi_block(part: dict[str, Any]) -> dict[str, Any]:
    match part["kind"]:
        case "thinking":
            return {"type": "thinking", "thinking": part["text"], "thinkingSignature": "c2ln"}
        case "tool_call":
            return {"type": "toolCall", "id": part["id"], "name": part["name"], "arguments": part["arguments"]}
        case _:
            return {"type": "text", "text": part["text"]}
