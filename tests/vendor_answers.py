"""Answers that we write against the types of answers in the vendors' own SDKs."""

from functools import cache
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from dragoman.stream import SseParser


@cache
def _published(api: str) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """The type of an event and that of a whole answer."""
    match api:
        case "anthropic-messages":
            from anthropic.types import Message, RawMessageStreamEvent

            return TypeAdapter(RawMessageStreamEvent), TypeAdapter(Message)
        case "openai-chat":
            from openai.types.chat import ChatCompletion, ChatCompletionChunk

            return TypeAdapter(ChatCompletionChunk), TypeAdapter(ChatCompletion)
        case "openai-responses":
            from openai.types.responses import Response, ResponseStreamEvent

            return TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)
        case _:
            from google.genai.types import GenerateContentResponse

            return TypeAdapter(GenerateContentResponse), TypeAdapter(GenerateContentResponse)


def vendor_problem(api: str, body: bytes, *, stream: bool) -> str | None:
    """What the vendor's types refuse of an answer; None where they take all of it."""
    event_type, answer_type = _published(api)
    try:
        if not stream:
            answer_type.validate_json(body)
            return None
        for name, data in SseParser().feed(body):
            if data == b"[DONE]":
                continue
            event = msgspec.json.decode(data)
            if api in ("anthropic-messages", "openai-responses") and name != event["type"]:
                return f"the event {name!r} says of itself that it is {event['type']!r}"
            event_type.validate_json(data)
    except ValidationError as error:
        return "; ".join(f"{detail['loc']}: {detail['msg']}" for detail in error.errors()[:3])
    return None
