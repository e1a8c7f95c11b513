"""A conversation asked about again and again while it grows: what was written is neither written again nor changed."""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import (
    DragomanError,
    FileRef,
    FinishReason,
    Image,
    Message,
    Model,
    ModelError,
    Reasoning,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.history.handoff import Handoff, hand_off
from dragoman.message import MessageMeta, ModelInvocationDescriptor, ProviderItem
from dragoman.models.prefixes import KEPT, KEPT_BYTES, Prefix, PrefixCache
from dragoman.request import ModelConfig, ModelRequest
from dragoman.target import TargetRules
from dragoman.wire import find_codec, find_dialect
from tests.conversations import TARGETS, VARIANTS, History, Record, needs_conversations, read_history, read_records
from tests.test_handoff import HERE, LAX, MESSAGES, PARTED, STRICT

# All five codecs, and records that ask the handoff and the codec for more: marks, merged turns, other orders.
NAMES = (
    "openai-chat:gpt-4.1",
    "openrouter:anthropic/claude-sonnet-4.5",
    "mistral:mistral-large-latest",
    "openai:gpt-5",
    "deepseek-responses:deepseek-v3",
    "anthropic:claude-sonnet-4-5",
    "google:gemini-2.5-pro",
    "google:gemini-3-pro-preview",
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "bedrock:us.meta.llama3-3-70b-instruct-v1:0",
    "bedrock:mistral.mistral-large-2402-v1:0",
)
PICTURE = Image("image/png", b"png")
PAPER = FileRef(data=b"%PDF", mime_type="application/pdf", name="paper.pdf")


def new_model(name: str) -> Model:
    return dragoman.model(name, api_key="not-a-real-key", region="us-east-1")


def answered(model: Model, messages: Sequence[Message], **settings: Any) -> object:
    """The request that the model would send, or what it says instead."""
    try:
        return model.render(messages, **settings)
    except DragomanError as error:
        return repr(error)


# ---------------------------------------------------------------- conversations

# What each wire API wants back; nothing that it could not have sent.
DATA: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"extra_content": {"google": 1}}],
    "openai-responses": [{"id": "item_1", "encrypted_content": "e"}],
    "anthropic-messages": [{"signature": "s"}],
    "gemini": [{"thoughtSignature": "s"}],
    "bedrock-converse": [{"signature": "s"}],
}
TEXTS = st.sampled_from(["", " ", "x ", "go", "café \ud83d", "longer text\n"])
IDS = st.sampled_from(["call_0", "call_1", "call/2"])
MEDIA = st.sampled_from([PICTURE, PAPER, Image(url="https://example.com/a.png")])
PARTS: st.SearchStrategy[Any] = st.builds(Text, TEXTS) | MEDIA
CONTENTS: st.SearchStrategy[Any] = TEXTS | st.just({"found": [1, True, None, 2**70, 1.5]}) | st.lists(PARTS, max_size=2)
CALLS = st.builds(ToolCall, IDS, st.sampled_from(["look", "a.b", "a_b"]), st.just({"depth": 1})) | st.builds(
    ToolCall.parse, IDS, st.just("look"), st.sampled_from(["", "{", '{"a": 1}'])
)


@st.composite
def answers(draw: st.DrawFn, maker: ModelInvocationDescriptor) -> Message:
    """Something that the target, another model or an unknown one said, whole or broken off."""
    origin = draw(st.sampled_from([maker, maker, ModelInvocationDescriptor("elsewhere", "spec", "model"), None]))
    known = st.sampled_from(DATA[maker.specification]) if origin is maker else st.none()
    parts = st.one_of(
        st.builds(Text, TEXTS),
        st.builds(Thinking, st.just("hm"), provider_data=st.none() | known),
        CALLS,
        CALLS,
        st.just(ProviderItem("server_tool_use", {"type": "server_tool_use", "id": "item_1"}, "searched")),
    )
    meta = st.builds(
        MessageMeta,
        invocation=st.just(origin),
        finish_reason=st.sampled_from([None, FinishReason.PAUSE]),
        interrupted=st.sampled_from([None, None, None, True]),
    )
    return Message(Role.ASSISTANT, tuple(draw(st.lists(parts, max_size=4))), meta=draw(meta))


@st.composite
def conversations(draw: st.DrawFn, maker: ModelInvocationDescriptor) -> list[Message]:
    """Turns in any order; most results follow their calls, some come late, some never, some belong to none."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["question", "answer", "answer", "answer", "rule", "result"]))
        if kind == "question":
            messages.append(Message.user(*draw(st.lists(PARTS, max_size=2))))
        elif kind == "rule":
            messages.append(Message.system(draw(TEXTS)))
        elif kind == "result":
            messages.append(Message.tool(ToolResult(draw(IDS), draw(CONTENTS))))
        else:
            messages.append(draw(answers(maker)))
            results = (Message.tool(ToolResult(call.tool_call_id, draw(CONTENTS))) for call in messages[-1].tool_calls)
            messages += [result for result in results if draw(st.integers(0, 3))]
    return messages


@st.composite
def requests(draw: st.DrawFn, messages: list[Message]) -> tuple[list[Message], dict[str, Any]]:
    """A beginning of the conversation, sometimes with a word that is gone in the next request, and settings."""
    asked = messages[: draw(st.integers(1, len(messages)))]
    if draw(st.booleans()):
        asked = [*asked, Message.user(draw(st.sampled_from(["It is noon.", "It is late."])))]
    settings: dict[str, Any] = {"cache_anchors": draw(st.lists(st.integers(0, len(asked)), max_size=4))}
    if draw(st.booleans()):
        settings["system_prompt"] = draw(st.sampled_from(["Be brief.", "Half a \ud83d."]))
    if draw(st.booleans()):
        settings["tool_specs"] = [ToolSpec(name) for name in draw(st.sampled_from([("look", "a.b"), ("a_b",)]))]
    return asked, settings


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_model_that_has_seen_the_beginning_sends_what_one_that_has_not_would(name: str, data: st.DataObject) -> None:
    model = new_model(name)
    thinks = {"reasoning": Reasoning(budget_tokens=1_024), "max_tokens": 9_000} if "claude-sonnet-4-5" in name else {}
    messages = data.draw(conversations(model.invocation))
    for asked, settings in data.draw(st.lists(requests(messages), min_size=2, max_size=5)):
        assert answered(model, asked, **settings, **thinks) == answered(new_model(name), asked, **settings, **thinks)


@given(
    st.lists(MESSAGES, max_size=14), st.lists(st.integers(0, 14), max_size=5), st.sampled_from([LAX, STRICT, PARTED])
)
def test_a_handoff_that_goes_on_gives_what_one_from_the_start_does(
    messages: list[Message], ends: list[int], rules: TargetRules
) -> None:
    handoff = Handoff.to(HERE, rules)
    for end in sorted(ends):
        handed = handoff.extended(messages[:end])
        if handed is not None:
            assert handed == hand_off(messages[:end], target=HERE, rules=rules)
            later = copy.deepcopy(handoff).extended(messages)
            if later is not None:
                assert later == hand_off(messages, target=HERE, rules=rules)
                assert handed.messages[: handed.settled] == later.messages[: handed.settled]


@cache
def sample() -> list[Record]:
    return list(read_records(90))


@needs_conversations
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TARGETS)
def test_recorded_conversations_are_sent_the_same_way_turn_by_turn(name: str, variant: str) -> None:
    target = TARGETS[name]
    for record in sample():
        history = read_history(record, variant, target)
        model = new_model(f"{target.provider}:{target.model}")
        tools = history.tools if model.supports("tools") else ()
        for place in spread(history):
            asked = history.messages[:place]
            fresh = new_model(f"{target.provider}:{target.model}")
            assert answered(model, asked, tool_specs=tools) == answered(fresh, asked, tool_specs=tools)


def spread(history: History, count: int = 5) -> list[int]:
    """Places before model calls, the last ones among them: those are the ones that have most to remember."""
    places = [place for place, message in enumerate(history.messages) if place and message.role is Role.ASSISTANT]
    return [*places[: -count : max(1, len(places) // count)], *places[-count:]]


# ---------------------------------------------------------------- single facts


def talk(turns: int, word: str = "hello") -> list[Message]:
    """Questions, calls, results and answers, and a last question."""
    messages: list[Message] = []
    for turn in range(turns):
        messages += [
            Message.user(f"{word} {turn}"),
            Message.assistant(ToolCall(f"{word}_{turn}", "look", {"turn": turn})),
            Message.tool(ToolResult(f"{word}_{turn}", f"{word} found {turn}")),
            Message.assistant(f"{word} said {turn}"),
        ]
    return [*messages, Message.user(f"{word}?")]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_settled_is_not_looked_at_again(name: str) -> None:
    provider, _, model_id = name.partition(":")
    dialect = find_dialect(provider, model_id)
    target = ModelInvocationDescriptor(provider, dialect.specification, model_id)
    codec = find_codec(dialect.specification)
    handoff = Handoff.to(target, dialect.rules)
    prefix = Prefix(handoff, codec.open_encoder(dialect, model_id))
    handed = handoff.extended(talk(5))
    assert handed is not None
    assert handed.settled >= 15

    def body(messages: Sequence[Message]) -> bytes:
        request = ModelRequest(config=ModelConfig(model_id), messages=tuple(messages))
        return prefix.encode(msgspec.structs.replace(handed, messages=request.messages)).write(request).body

    whole = body(handed.messages)
    forgotten = [Message.user("something else")] * handed.settled
    assert body([*forgotten, *handed.messages[handed.settled :]]) == whole
    request = ModelRequest(config=ModelConfig(model_id), messages=handed.messages)
    assert codec.encode_request(request, dialect).body == whole


def test_messages_that_a_target_takes_as_they_are_stay_the_same_objects() -> None:
    messages = talk(3)
    handed = hand_off(messages, target=HERE, rules=LAX)
    assert all(fitted is given for fitted, given in zip(handed.messages, messages, strict=True))


def test_conversations_that_take_turns_on_one_model_get_nothing_of_each_other() -> None:
    model = new_model("anthropic:claude-sonnet-4-5")
    words = [f"word{number}" for number in range(KEPT + 8)]
    for turns in (1, 2, 3):
        for word in words:
            body = model.render(talk(turns, word)).body
            assert body == new_model("anthropic:claude-sonnet-4-5").render(talk(turns, word)).body
            assert not any(f'"{other} '.encode() in body for other in words if other != word)


def test_threads_may_share_a_model() -> None:
    model = new_model("openai-chat:gpt-4.1")
    talks = [talk(30, f"word{number}") for number in range(8)]

    def grow(messages: list[Message]) -> list[bytes]:
        return [model.render(messages[:end]).body for end in range(1, len(messages), 4)]

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(grow, talks))
    model = new_model("openai-chat:gpt-4.1")
    assert together == [grow(messages) for messages in talks]


def test_only_the_newest_conversations_are_kept() -> None:
    dialect = find_dialect("openai-chat", "gpt-4.1")
    cache = PrefixCache(find_codec(dialect.specification), dialect)

    def ask(word: str, size: int) -> None:
        prefix, handed = cache.take(talks[word], (), HERE, LAX)
        prefix.encode(handed)
        cache.keep(prefix, size)

    def kept() -> list[str]:
        """The words whose conversations are found again."""
        found = []
        for word, messages in talks.items():
            prefix, _ = cache.take(messages, (), HERE, LAX)
            if prefix.size:
                found.append(word)
                cache.keep(prefix, prefix.size)
        return found

    words = [f"word{number}" for number in range(KEPT + 3)]
    talks = {word: talk(2, word) for word in [*words, "large", "larger"]}
    for word in words:
        ask(word, 100)
    assert kept() == words[3:]
    ask("large", KEPT_BYTES - 250)
    assert kept() == [*words[-2:], "large"]
    ask("larger", KEPT_BYTES * 2)
    assert kept() == ["larger"]


def test_an_answer_that_comes_late_replaces_what_was_said_in_its_place() -> None:
    model = new_model("openai-chat:gpt-4.1")
    asked = [Message.user("go"), Message.assistant(ToolCall("c1", "look", {})), Message.user("well?")]
    asked += [
        Message.assistant("Still waiting."),
        Message.user("and now?"),
        Message.assistant("No."),
        Message.user("?"),
    ]
    assert b"interrupted" in model.render(asked).body
    answered_late = [*asked, Message.tool(ToolResult("c1", "found at last")), Message.user("there")]
    for messages in (answered_late, [*answered_late, Message.assistant("Yes."), Message.user("good")]):
        body = model.render(messages).body
        assert b"found at last" in body
        assert b"interrupted" not in body
    assert b"interrupted" in model.render(asked).body


def test_a_refused_request_spoils_nothing() -> None:
    model = new_model("deepseek:deepseek-chat")
    messages = talk(4)
    model.render(messages)
    with pytest.raises(ModelError, match="cannot read image/png"):
        model.render([*messages, Message.assistant("Yes?"), Message.user(PICTURE)])
    later = [*messages, Message.assistant("Yes?"), Message.user("Never mind.")]
    assert model.render(later) == new_model("deepseek:deepseek-chat").render(later)


def test_an_equal_message_is_not_taken_for_the_one_that_was_written() -> None:
    model = new_model("anthropic:claude-sonnet-4-5")
    messages = talk(3)
    model.render(messages)
    call = msgspec.structs.replace(messages[1].tool_calls[0], arguments={"turn": False}, raw_args_text='{"turn":false}')
    messages[1] = Message.assistant(call)
    assert messages[1].tool_calls[0].arguments == talk(3)[1].tool_calls[0].arguments
    assert b'{"turn":false}' in model.render(messages).body


def test_tools_that_come_later_keep_their_names() -> None:
    model = new_model("anthropic:claude-sonnet-4-5")
    messages = [Message.user("go"), Message.assistant(ToolCall("c1", "a.b", {})), Message.tool(ToolResult("c1", "x"))]
    messages += [Message.assistant("done"), Message.user("more"), Message.assistant("ok"), Message.user("?")]
    fitted = msgspec.json.decode(model.render(messages).body)["messages"][1]["content"][0]["name"]
    body = msgspec.json.decode(model.render(messages, [ToolSpec(fitted)]).body)
    assert body["tools"][0]["name"] == fitted
    assert body["messages"][1]["content"][0]["name"] != fitted
