"""Small answers of every wire API, read to an assembly, and the events they are made of."""

import json
from typing import Any

from dragoman import ErrorCode
from dragoman.stream import Assembly, assemble
from dragoman.testing import decode_recorded
from tests.wire_streams import AWS, SSE, Object, frames, sse


def read(protocol: str, events: list[bytes], vendor: str = "") -> Assembly:
    kind = AWS if protocol == "bedrock-converse" else SSE
    return assemble(decode_recorded(protocol, events, vendor=vendor, content_type=kind))


def read_body(protocol: str, value: Object, vendor: str = "") -> Assembly:
    body = json.dumps(value).encode()
    return assemble(decode_recorded(protocol, body, vendor=vendor, content_type="application/json"))


def error_of(assembly: Assembly) -> ErrorCode:
    assert assembly.error is not None
    return assembly.error.error_code


def call_of(assembly: Assembly) -> Any:
    assert assembly.message is not None, assembly.error
    (call,) = assembly.message.tool_calls
    return call


BEGUN: Object = {"type": "message_start", "message": {"id": "m", "model": "c", "content": []}}
TOOL_USE: Object = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
STOPPED: Object = {"type": "message_stop"}


def ended(reason: str | None) -> list[Object]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, STOPPED]


def anthropic(*events: Object) -> Assembly:
    return read("anthropic-messages", sse(*events))


def bedrock(*events: tuple[str, Object]) -> Assembly:
    return read("bedrock-converse", frames(*events))


def chunk(delta: Object, finish: str | None = None) -> Object:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat(*chunks: Object) -> Assembly:
    return read("openai-compatible", sse(*chunks, "[DONE]"))


def gemini(*parts: Object, finish: str = "STOP") -> Assembly:
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return read("gemini", sse(*chunks, {"candidates": [{"content": {}, "finishReason": finish}]}))


def text_item(text: str, **fields: Any) -> Object:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content, **fields}


def call_item(**fields: Any) -> Object:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'}
    return {**call, "status": "completed", **fields}


def completed(*output: Object, **fields: Any) -> Object:
    response = {"id": "r", "status": "completed", "output": list(output), **fields}
    return {"type": "response.completed", "response": response}


def text_piece(delta: str) -> Object:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": delta}


def responses(*events: Object) -> Assembly:
    return read("openai-responses", sse({"type": "response.created", "response": {"id": "r"}}, *events))


def item_done(item: Object) -> Object:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


PLACE = {"item_id": "fc_1", "output_index": 0, "content_index": 0, "summary_index": 0}


def candidate(part: Object, finish: str | None = None) -> Object:
    return {"candidates": [{"content": {"parts": [part]}, "finishReason": finish}]}
