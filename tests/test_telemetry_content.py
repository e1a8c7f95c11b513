"""What was said, in spans: nowhere by default, and without secrets where it is asked for."""

import json

import msgspec
import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from dragoman import FileRef, Image, Message, Role, Text, ToolCall, ToolResult
from dragoman.agent import Hooks, ModelCall
from dragoman.message import ProviderItem, Thinking, UnknownPart
from dragoman.telemetry.content import MessageTexts
from dragoman.testing.scripted import Call, ScriptedModel
from tests.agent_cases import ROME, asks, weather
from tests.telemetry_cases import KEY, SAID, Receiver, attributes, errors, everything, say_everything

CONTENT = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)


@pytest.mark.parametrize("words", SAID)
def test_by_default_nothing_that_was_said_is_recorded(words: str) -> None:
    receiver = Receiver()
    say_everything(receiver)
    assert words not in everything(receiver)
    assert not [name for span in receiver.spans for name in CONTENT if name in attributes(span)]


@pytest.mark.parametrize("words", SAID)
def test_with_content_everything_is_recorded_but_secrets(words: str) -> None:
    receiver = Receiver(record_content=True)
    say_everything(receiver)
    assert f"{words} [redacted]" in everything(receiver)
    assert KEY not in everything(receiver)
    assert "hunter2" not in everything(receiver)


def test_content_has_the_form_of_the_conventions() -> None:
    receiver = Receiver(record_content=True)
    receiver.agent(ROME, "It rains.", tools=[weather], instructions="Be brief.").run_sync("Rome?")
    first, second = [attributes(span) for span in receiver.spans if span.name == "chat actor"]
    asked = {"role": "user", "parts": [{"type": "text", "content": "Rome?"}]}
    call = {"type": "tool_call", "id": "call_1_0", "name": "weather", "arguments": {"city": "Rome"}}
    answer = {"type": "tool_call_response", "id": "call_1_0", "response": "Rain in Rome."}
    said = {"role": "assistant", "parts": [{"type": "text", "content": "It rains."}], "finish_reason": "stop"}
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
    ]
    assert json.loads(second["gen_ai.input.messages"]) == [
        asked,
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [answer]},
    ]
    assert json.loads(second["gen_ai.output.messages"]) == [said]
    ran = attributes(receiver.span("invoke_agent"))
    assert json.loads(ran["gen_ai.input.messages"]) == [asked]
    assert json.loads(ran["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(ran["gen_ai.output.messages"]) == [said]
    ran = attributes(receiver.span("execute_tool weather"))
    assert json.loads(ran["gen_ai.tool.call.arguments"]) == {"city": "Rome"}
    assert ran["gen_ai.tool.call.result"] == "Rain in Rome."


def test_every_kind_of_part_has_a_form_and_bytes_are_left_out() -> None:
    user = Message(
        Role.USER,
        (
            Image(mime_type="image/png", data=b"\x89PNG"),
            Image(url="https://example.com/a.png?token=0123456789"),
            FileRef(file_id="file-1", mime_type="application/pdf"),
            FileRef(path="notes.txt"),
            UnknownPart("hologram", {"depth": 3}),
        ),
    )
    model = Message(
        Role.ASSISTANT,
        (
            Thinking("Hm."),
            ToolCall.parse("c1", "look", '{"where": '),
            ProviderItem("web_search", {"query": "private"}, "looked it up"),
        ),
    )
    result = Message(Role.TOOL, (ToolResult("c1", {"found": [1, {"password": "abcdefgh"}]}),))
    parts = Message(Role.TOOL, (ToolResult("c2", (Text("see"), Image(mime_type="image/png", data=b"1234"))),))
    written = json.loads(MessageTexts().write([user, model, result, parts]))
    assert [part for message in written for part in message["parts"]] == [
        {"type": "image", "modality": "image", "mime_type": "image/png", "size": 4},
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png?token=[redacted]"},
        {"type": "file", "modality": "document", "mime_type": "application/pdf", "file_id": "file-1"},
        {"type": "file_ref", "modality": "document", "path": "notes.txt"},
        {"type": "hologram"},
        {"type": "reasoning", "content": "Hm."},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"where": '},
        {"type": "provider_item", "item_type": "web_search", "content": "looked it up"},
        {"type": "tool_call_response", "id": "c1", "response": {"found": [1, {"password": "[redacted]"}]}},
        {
            "type": "tool_call_response",
            "id": "c2",
            "response": [
                {"type": "text", "content": "see"},
                {"type": "image", "modality": "image", "mime_type": "image/png", "size": 4},
            ],
        },
    ]


def test_what_is_recorded_is_what_was_sent() -> None:
    class Censor(Hooks):
        async def before_model(self, call: ModelCall) -> ModelCall | None:
            clean = Message(Role.USER, (Text("[censored]"),))
            return msgspec.structs.replace(call, messages=(clean,), params={"temperature": 0.0})

    receiver = Receiver(record_content=True)
    receiver.agent("Hello", hooks=[Censor()]).run_sync("My name is Ada")
    assert "Ada" not in everything(receiver)
    assert "[censored]" in everything(receiver)
    assert attributes(receiver.span("chat actor"))["gen_ai.request.temperature"] == 0.0


def test_an_error_that_may_quote_somebody_is_named_and_not_quoted() -> None:
    receiver, open_receiver = Receiver(), Receiver(record_content=True)
    for each in (receiver, open_receiver):
        each.agent(ScriptedModel('{"value": "blackcurrant"}', repeats=True), output_type=int).run_sync("How many?")
    assert errors(receiver.spans)[0] == "invalid_output"
    assert receiver.spans[0].status.description is None
    assert open_receiver.spans[0].status.description is not None


def test_a_message_is_written_once_and_not_at_every_step() -> None:
    seen: list[tuple[Message, ...]] = []

    class Noted(Hooks):
        async def before_model(self, call: ModelCall) -> ModelCall | None:
            seen.append(call.messages)
            return None

    turns = [asks(Call("weather", {"city": str(number)})) for number in range(5)]
    Receiver().agent(*turns, "Done.", tools=[weather], hooks=[Noted()]).run_sync("Go.")
    texts = MessageTexts()
    for messages in seen:
        known = {id(message): text for message, text in texts._written.values()}
        texts.write(messages)
        now = {id(message): text for message, text in texts._written.values()}
        assert len(now) == len(messages)  # what is no longer in the context is not kept
        assert all(now[key] is text for key, text in known.items())
        assert len(now) - len(known) <= 2


def test_a_trace_that_is_not_sampled_writes_nothing() -> None:
    receiver = Receiver(record_content=True, sampler=ALWAYS_OFF)
    run_operation = receiver.telemetry.begin_run(session_id="s", run_id="r")
    chat = receiver.telemetry.begin_chat(run_operation, ScriptedModel().invocation, params={}, call_index=0)
    assert not chat._writes_content
    say_everything(receiver)
    assert receiver.spans == []


def test_a_run_is_asked_what_was_said_since_the_last_answer() -> None:
    receiver = Receiver(record_content=True)
    agent = receiver.agent("Yes.", "No.")
    agent.run_sync("Rome?")
    agent.run_sync("Oslo?")
    runs = [attributes(span) for span in receiver.spans if span.name == "invoke_agent"]
    asked = [json.loads(each["gen_ai.input.messages"])[0]["parts"][0]["content"] for each in runs]
    assert asked == ["Rome?", "Oslo?"]
