"""Another vendor's thinking under a signature of ours."""

import json
import zlib
from base64 import urlsafe_b64encode
from functools import partial
from typing import Any

import pytest

from dragoman import FinishReason, Message, Text, Thinking, ToolCall
from dragoman.message import ModelInvocationDescriptor
from dragoman.stream import AnswerForm, DeltaWriter
from dragoman.web.gateway.seals import MARK, is_sealed, seal, unseal
from dragoman.wire import find_codec

THINKER = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-opus-4-5")
SIGNED = {"signature": "c2lnbmVk"}


def test_sealed_thinking_is_its_vendor_s_again() -> None:
    sealed = Message.assistant(Thinking("Hm.", provider_data={"encrypted_content": seal(THINKER, SIGNED, "Hm.")}))
    (message,) = unseal([sealed])
    assert message.parts == (Thinking("Hm.", provider_data=SIGNED),)
    assert message.meta is not None
    assert message.meta.invocation == THINKER


def test_what_the_client_s_api_says_of_the_other_parts_goes_to_no_other_api() -> None:
    # Codex sends `id` and `status` of each item back, those of a Claude's calls too.
    data = {"id": "fc_1", "status": "completed"}
    thought = Thinking("Hm.", provider_data={"encrypted_content": seal(THINKER, SIGNED, "Hm.")})
    said = Message.assistant(thought, Text("So:", provider_data=data), ToolCall("c1", "look", {}, provider_data=data))
    (message,) = unseal([said])
    assert message.parts[1:] == (Text("So:"), ToolCall("c1", "look", {}))


def test_a_message_without_a_seal_stays_as_it_is() -> None:
    message = Message.assistant(Thinking("Hm.", provider_data=SIGNED), ToolCall("c1", "look", {}, provider_data=SIGNED))
    assert unseal([message])[0] is message


def test_a_seal_that_a_client_has_changed_is_thinking_without_data() -> None:
    broken = Message.assistant(Thinking("Hm.", provider_data={"signature": seal(THINKER, SIGNED, "Hm.")[:-9]}))
    (message,) = unseal([broken])
    assert message.parts == (Thinking("Hm."),)


def test_a_seal_fits_no_other_thinking_than_its_own() -> None:
    moved = Message.assistant(Thinking("Something else.", provider_data={"signature": seal(THINKER, SIGNED, "Hm.")}))
    (message,) = unseal([moved])
    assert message.parts == (Thinking("Something else."),)
    assert message.meta is None or message.meta.invocation is None


@pytest.mark.parametrize("text", ["Hm.", " one\n\n two \n", "\ud83d cut"])
@pytest.mark.parametrize(
    ("api", "said_in", "head"),
    [
        ("anthropic-messages", "content", {"max_tokens": 1}),
        ("openai-responses", "output", {}),
    ],
)
def test_a_seal_fits_the_text_that_a_client_sends_back(api: str, said_in: str, head: dict[str, Any], text: str) -> None:
    codec = find_codec(api)
    assert codec.open_writer is not None
    assert codec.read_request is not None
    writer = codec.open_writer(AnswerForm(answer_id="a", model="m", stream=False, seal=partial(seal, THINKER)))
    deltas = DeltaWriter("run")
    deltas.start("m", "r")
    deltas.thinking(text[:3])
    deltas.thinking(text[3:], provider_data=SIGNED)
    deltas.text("So.")
    deltas.done(FinishReason.STOP, "stop")
    writer.write(deltas.take())
    said = json.loads(writer.body())[said_in]
    turn = said if said_in == "output" else [{"role": "assistant", "content": said}]
    body = {"model": "m", **head, "messages" if said_in == "content" else "input": turn}
    (message,) = unseal(codec.read_request(json.dumps(body).encode(), model="m", stream=False).request.messages)
    assert message.parts[0] == Thinking(text.replace("\ud83d", "\ufffd"), provider_data=SIGNED)


def test_a_seal_of_any_depth_is_thinking_without_data() -> None:
    deep = b'["a","b","c",{"d":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"
    forged = MARK + urlsafe_b64encode(zlib.compress(deep)).decode()
    (message,) = unseal([Message.assistant(Thinking("Hm.", provider_data={"signature": forged}))])
    assert message.parts == (Thinking("Hm."),)


def test_a_body_shows_that_it_holds_a_seal() -> None:
    assert is_sealed(f'{{"signature": "{seal(THINKER, None, "")}"}}'.encode())
    assert not is_sealed(b'{"signature": "c2lnbmVk"}')
