"""Conversations over several requests to the gateway: other models, other keys, other clients in the middle."""

import asyncio
import json
from io import BytesIO
from typing import Any

import pytest

from tests.gateway_stage import (
    FRONTS,
    PROVIDERS,
    Stage,
    Told,
    body_of,
    on_a_loop,
    path_of,
    staged,
)

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"
ALICE, BOB = "the-key-of-alice", "the-key-of-bob"
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


async def ask_at(stage: Stage, place: str, api: str = CHAT, *, key: str = "", **more: Any) -> Told:
    """Ask with a path before the front's own."""
    headers = {"x-api-key": key} if key else {}
    body = BytesIO(body_of(api, stream=False, **more))
    async with stage.client.post(stage.url + place + path_of(api, stream=False), data=body, headers=headers) as it:
        return Told(it.status, {name.lower(): value for name, value in it.headers.items()}, await it.read())


def streamed_id(told: Told) -> str:
    """The id of a response in a stream."""
    line = next(line for line in told.body.splitlines() if line.startswith(b"data: "))
    return str(json.loads(line[6:])["response"]["id"])


# ---------------------------------------------------------------- chats of SDKs


@pytest.mark.parametrize("api", FRONTS)
@on_a_loop
async def test_a_chat_of_the_gemini_sdk_remembers_what_was_said(api: str) -> None:
    genai = pytest.importorskip("google.genai")

    def talk(url: str) -> None:
        client = genai.Client(api_key="none", http_options={"base_url": url})
        chat = client.chats.create(model="m")
        for said in ("First.", "Second.", "Third."):
            assert list(chat.send_message_stream(said))

    async with staged(f"*={PROVIDERS[api]}:m") as stage:
        await asyncio.to_thread(talk, stage.url)
        assert all(word in stage.upstream.bodies[-1] for word in (b"First.", b"Second.", b"Third."))
