"""The forms of OpenAI and Anthropic, which come out again as they went in, and what holds for every form."""

import base64
import json
from typing import Any

import pytest

from dragoman import (
    FileRef,
    FinishReason,
    Image,
    InvalidValue,
    Message,
    Role,
    Text,
    Thinking,
    TokenUsage,
    ToolResult,
    ToolSpec,
    render_request,
)
from dragoman.history import ModelInputEntry
from dragoman.interop import (
    export_anthropic,
    export_openai_chat,
    import_anthropic,
    import_openai_chat,
    import_openai_responses,
)
from dragoman.message import ProviderItem, UnknownPart
from dragoman.testing.validators import validate_request

from .interop_cases import ANTHROPIC, CHAT, FORMS, PIXEL, RESPONSES, messages_of, recorded, written

PNG = base64.b64decode(PIXEL)


# ---------------------------------------------------------------- every form


@pytest.mark.parametrize("form", FORMS)
def test_every_form_becomes_a_legal_history(form: str) -> None:
    read, source = FORMS[form]
    state = recorded(read(source))
    assert not state.pending_tool_calls
    assert len(state.entries) > 3


@pytest.mark.parametrize("form", FORMS)
def test_text_and_plain_values_say_the_same(form: str) -> None:
    read, source = FORMS[form]
    plain = json.loads(source) if isinstance(source, bytes) else source
    assert read(written(form)) == read(written(form).encode()) == read(plain)


@pytest.mark.parametrize("form", FORMS)
def test_an_import_does_not_share_what_the_caller_may_change(form: str) -> None:
    read, source = FORMS[form]
    plain = json.loads(source if isinstance(source, bytes) else json.dumps(source))
    imported = read(plain)
    before = str(imported)
    _empty(plain)
    assert str(imported) == before


def _empty(value: Any) -> None:
    for inner in list(value.values()) if isinstance(value, dict) else list(value):
        if isinstance(inner, (dict, list)):
            _empty(inner)
    value.clear()


@pytest.mark.parametrize("form", FORMS)
def test_whatever_comes_in_can_be_sent_to_openai_and_anthropic(form: str) -> None:
    read, source = FORMS[form]
    messages = (*messages_of(recorded(read(source))), Message.user("Go on."))
    names = dict.fromkeys(call.tool_name for message in messages for call in message.tool_calls)
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    chat = {"model": "gpt-4.1", "messages": export_openai_chat(messages)}
    claude = {"model": "claude-sonnet-4-5", "max_tokens": 100, "tools": tools, **export_anthropic(messages)}
    assert validate_request("openai-chat", chat) == []
    assert validate_request("anthropic", claude) == []


def test_who_made_a_conversation_must_speak_its_form() -> None:
    for made_by in ("anthropic:claude-sonnet-4-5", "nobody", "groq:", ":x", 5):
        with pytest.raises(InvalidValue):
            import_openai_chat(CHAT, made_by=made_by)  # type: ignore[arg-type]


# ---------------------------------------------------------------- OpenAI Chat Completions


def test_chat_comes_out_as_it_went_in_with_arguments_that_every_server_can_read() -> None:
    imported = import_openai_chat(CHAT, made_by="openai-chat:gpt-4.1")
    assert imported.warnings == ()
    exported = export_openai_chat(messages_of(recorded(imported)))
    broken, wrapped = CHAT[2]["tool_calls"][1]["function"], exported[2]["tool_calls"][1]["function"]
    assert json.loads(wrapped["arguments"]) == {"unparsed_arguments": broken["arguments"]}
    wrapped["arguments"] = broken["arguments"]
    assert exported == CHAT


def test_chat_of_an_unknown_model_keeps_what_only_its_provider_reads() -> None:
    *_, refusal = import_openai_chat(CHAT).messages
    assert refusal.parts == (Text("I would rather not.", provider_data={"refusal": True}),)
    assert export_openai_chat([Message.user("x"), refusal])[-1] == {
        "role": "assistant",
        "content": "I would rather not.",
    }


def test_chat_media_become_parts() -> None:
    asked, *_ = import_openai_chat(CHAT).messages
    assert asked.parts == (
        Text("What is this?"),
        Image(mime_type="image/png", data=PNG),
        FileRef(data=b"%PDF-", mime_type="application/pdf", name="a.pdf"),
        FileRef(data=b"RIFF", mime_type="audio/wav"),
    )


def test_chat_arguments_that_are_no_json_are_kept_and_never_run() -> None:
    state = recorded(import_openai_chat(CHAT))
    broken = messages_of(state)[2].tool_calls[1]
    assert (broken.arguments, broken.raw_args_text) == (None, '{"at": ')
    assert [entry.tool_call_id for entry in state.entries if entry.kind == "tool_started"] == ["call_1"]  # type: ignore[attr-defined]


def test_chat_of_the_old_form_pairs_functions_by_name() -> None:
    imported = import_openai_chat(
        [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "A map."},
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "A hat."},
        ]
    )
    state = recorded(imported)
    assert [message.parts[0].content for message in messages_of(state) if message.role is Role.TOOL] == [  # type: ignore[union-attr]
        "A map.",
        "A hat.",
    ]


def test_chat_system_texts_before_all_else_are_the_instruction_and_later_ones_keep_their_place() -> None:
    imported = import_openai_chat(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Hello", "name": "Ada"},
            {"role": "system", "content": "It is late."},
        ]
    )
    assert imported.system == "Be brief.\n\nBe kind."
    assert [message.role for message in imported.messages] == [Role.USER, Role.SYSTEM]
    state = recorded(imported)
    inputs = [entry for entry in state.entries if isinstance(entry, ModelInputEntry)]
    assert [dict(entry.metadata) for entry in inputs] == [{"openai_chat": {"name": "Ada"}}, {"role": "system"}]


def test_chat_reasoning_of_compatible_hosts_is_thinking() -> None:
    (answer,) = import_openai_chat([{"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}]).messages
    assert answer.parts == (Thinking("2 and 2"), Text("4"))


def test_a_part_that_only_chat_knows_is_kept_and_told() -> None:
    part = {"type": "hologram", "size": 3}
    imported = import_openai_chat([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}])
    assert imported.messages[0].parts == (Text("x"), UnknownPart("openai_chat.hologram", part))
    assert imported.warnings == ("messages[0].content[1]: 'hologram' is kept as it is and shown to no model",)


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"type": "image_url", "image_url": "https://example.com/a.png"}, Image(url="https://example.com/a.png")),
        ({"type": "file", "file": {"file_id": "file_1", "filename": "a"}}, FileRef(file_id="file_1", name="a")),
        ({"type": "file", "file": {"file_data": "JVBERi0="}}, FileRef(data=b"%PDF-", mime_type="application/pdf")),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "flac"}},
            FileRef(data=b"\0", mime_type="audio/flac"),
        ),
    ],
)
def test_chat_media_in_their_other_forms(part: dict[str, Any], read: Image | FileRef) -> None:
    assert import_openai_chat([{"role": "user", "content": [part]}]).messages[0].parts == (read,)


def test_how_closely_a_picture_was_to_be_looked_at_is_told() -> None:
    for detail, warnings in (("auto", 0), ("low", 1)):
        picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": detail}}
        assert len(import_openai_chat([{"role": "user", "content": [picture]}]).warnings) == warnings


def test_chat_answers_may_be_parts_with_a_refusal_among_them() -> None:
    parts = [{"type": "text", "text": "Well, "}, {"type": "refusal", "refusal": "no."}]
    (answer,) = import_openai_chat([{"role": "assistant", "content": parts}]).messages
    assert answer.parts == (Text("Well, "), Text("no.", provider_data={"refusal": True}))


def test_chat_arguments_that_a_host_gave_as_an_object_are_read() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    (answer,) = import_openai_chat([{"role": "assistant", "tool_calls": [call]}]).messages
    assert answer.tool_calls[0].arguments == {"a": 1}


# ---------------------------------------------------------------- Anthropic Messages


def test_anthropic_comes_out_as_it_went_in() -> None:
    imported = import_anthropic(ANTHROPIC, "Be brief.", made_by="anthropic:claude-sonnet-4-5")
    assert imported.warnings == ()
    exported = export_anthropic(messages_of(recorded(imported)))
    assert exported == {"system": [{"type": "text", "text": "Be brief."}], "messages": ANTHROPIC}


def test_anthropic_signatures_of_an_unknown_model_stay_home() -> None:
    imported = import_anthropic(ANTHROPIC)
    signed = imported.messages[1].parts[0]
    assert signed == Thinking("A map?", provider_data={"signature": "c2ln"})
    exported = json.dumps(export_anthropic(imported.messages))
    assert "A map." in exported
    assert "c2ln" not in exported
    assert "aGlkZGVu" not in exported
    assert "srvtoolu_1" not in exported


def test_anthropic_results_are_messages_of_their_own_before_the_words_beside_them() -> None:
    roles = [message.role for message in import_anthropic(ANTHROPIC).messages]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]


def test_anthropic_system_may_be_blocks_and_content_text() -> None:
    imported = import_anthropic(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        [{"type": "text", "text": "A"}, {"type": "text", "text": "B", "cache_control": {"type": "ephemeral"}}],
    )
    assert imported.system == "A\n\nB"
    assert imported.messages == (Message.user("Hi"), Message.assistant("Hello"))
    assert imported.warnings == ("system[1]: 'cache_control' is not carried over",)


def test_anthropic_cache_marks_do_not_go_back_with_every_later_request() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, **mark}]}
    imported = import_anthropic([{"role": "user", "content": "x"}, turn], made_by="anthropic:claude-sonnet-4-5")
    assert "cache_control" not in json.dumps(export_anthropic(imported.messages))


def test_a_whole_anthropic_answer_in_the_list_keeps_its_usage_and_finish() -> None:
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 2},
    }
    (message,) = import_anthropic([answer]).messages
    assert message.meta is not None
    assert (message.meta.model_id, message.meta.finish_reason) == ("claude-sonnet-4-5", FinishReason.STOP)
    assert message.meta.usage == TokenUsage(13, 2, 15, 10)


def test_anthropic_media_in_their_other_forms() -> None:
    stored, linked = {"type": "file", "file_id": "file_1"}, {"type": "url", "url": "https://example.com/a.pdf"}
    blocks = [
        {"type": "image", "source": stored},
        {"type": "document", "source": stored},
        {"type": "document", "source": linked},
    ]
    imported = import_anthropic([{"role": "user", "content": blocks}], made_by="anthropic:claude-sonnet-4-5")
    assert imported.warnings == ()
    assert export_anthropic(imported.messages)["messages"][0]["content"] == blocks


def test_anthropic_blocks_without_a_part_are_kept_and_told() -> None:
    blocks = [
        {"type": "text", "text": "x"},
        {"type": "search_result", "source": "https://example.com", "title": "A", "content": []},
        {"type": "document", "source": {"type": "content", "content": "x"}},
        {"type": "container_upload", "file_id": "file_2"},
    ]
    imported = import_anthropic([{"role": "user", "content": blocks}, {"role": "system", "content": "Later."}])
    assert [part.kind for part in imported.messages[0].parts] == [
        "text",
        "anthropic.search_result",
        "anthropic.document",
        "anthropic.container_upload",
    ]
    assert imported.messages[1].role is Role.SYSTEM
    assert len(imported.warnings) == 3


# ---------------------------------------------------------------- OpenAI Responses


def test_responses_items_go_back_to_their_model_as_they_came() -> None:
    imported = import_openai_responses(RESPONSES, instructions="Be brief.", made_by="openai:gpt-5")
    assert imported.warnings == ()
    tools = [ToolSpec("look"), ToolSpec("shell")]
    wire = render_request("openai:gpt-5", messages_of(recorded(imported)), tools=tools)
    body = json.loads(wire.body)
    assert body["input"] == RESPONSES
    assert body["instructions"] == "Be brief."


def test_what_a_model_made_in_a_row_is_one_message() -> None:
    roles = [message.role for message in import_openai_responses(RESPONSES).messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]
    turn = import_openai_responses(RESPONSES).messages[1]
    assert [part.kind for part in turn.parts] == ["thinking", "text", "tool_call", "tool_call"]


def test_responses_items_of_other_kinds_are_kept_whole() -> None:
    items = [
        {"role": "user", "content": "Click."},
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "click"}, "status": "completed"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "file_id": "f"}},
        {"id": "msg_9"},
    ]
    (_, turn) = import_openai_responses(items).messages
    assert [part.item_type for part in turn.parts if isinstance(part, ProviderItem)] == [
        "computer_call",
        "computer_call_output",
        "item_reference",
    ]


def test_responses_items_in_their_short_forms() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "file_id": "file_1", "detail": "high"},
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
                {"type": "input_file", "file_data": "JVBERi0="},
                {"type": "input_video", "file_id": "file_2"},
            ],
        },
        {"role": "assistant", "content": "Hello"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "found"}]},
    ]
    imported = import_openai_responses(items)
    asked, answer, result = imported.messages
    assert imported.system == "Be brief."
    assert asked.parts[:3] == (
        FileRef(file_id="file_1", mime_type="image/png"),
        FileRef(url="https://example.com/a.pdf"),
        FileRef(data=b"%PDF-", mime_type="application/pdf"),
    )
    assert (answer.text, answer.tool_calls[0].arguments) == ("Hello", {"a": 1})
    assert result.parts == (ToolResult("c", (Text("found"),)),)
    assert imported.warnings == (
        "items[1].content[3]: 'input_video' is kept as it is and shown to no model",
        "items[1].content[0]: 'detail' is not carried over",
    )
