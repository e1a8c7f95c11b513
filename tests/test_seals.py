"""Another vendor's thinking under a signature of ours."""

import zlib
from base64 import urlsafe_b64encode

from dragoman import Message, Text, Thinking, ToolCall
from dragoman.message import ModelInvocationDescriptor
from dragoman.web.gateway.seals import MARK, is_sealed, seal, unseal

THINKER = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-opus-4-5")
SIGNED = {"signature": "c2lnbmVk"}


def test_sealed_thinking_is_its_vendor_s_again() -> None:
    sealed = Message.assistant(Thinking("Hm.", provider_data={"encrypted_content": seal(THINKER, SIGNED)}))
    (message,) = unseal([sealed])
    assert message.parts == (Thinking("Hm.", provider_data=SIGNED),)
    assert message.meta is not None
    assert message.meta.invocation == THINKER


def test_what_the_client_s_api_says_of_the_other_parts_goes_to_no_other_api() -> None:
    # Codex sends `id` and `status` of each item back, those of a Claude's calls too.
    data = {"id": "fc_1", "status": "completed"}
    thought = Thinking("Hm.", provider_data={"encrypted_content": seal(THINKER, SIGNED)})
    said = Message.assistant(thought, Text("So:", provider_data=data), ToolCall("c1", "look", {}, provider_data=data))
    (message,) = unseal([said])
    assert message.parts[1:] == (Text("So:"), ToolCall("c1", "look", {}))


def test_a_message_without_a_seal_stays_as_it_is() -> None:
    message = Message.assistant(Thinking("Hm.", provider_data=SIGNED), ToolCall("c1", "look", {}, provider_data=SIGNED))
    assert unseal([message])[0] is message


def test_a_seal_that_a_client_has_changed_is_thinking_without_data() -> None:
    broken = Message.assistant(Thinking("Hm.", provider_data={"signature": seal(THINKER, SIGNED)[:-9]}))
    (message,) = unseal([broken])
    assert message.parts == (Thinking("Hm."),)


def test_a_seal_of_any_depth_is_thinking_without_data() -> None:
    deep = b'["a","b","c",{"d":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"
    forged = MARK + urlsafe_b64encode(zlib.compress(deep)).decode()
    (message,) = unseal([Message.assistant(Thinking("Hm.", provider_data={"signature": forged}))])
    assert message.parts == (Thinking("Hm."),)


def test_a_body_shows_that_it_holds_a_seal() -> None:
    assert is_sealed(f'{{"signature": "{seal(THINKER, None)}"}}'.encode())
    assert not is_sealed(b'{"signature": "c2lnbmVk"}')
