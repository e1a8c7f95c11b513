"""The forms of frameworks, and of recorded agents: what their messages become here."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman import (
    ErrorCode,
    FileRef,
    FinishReason,
    Image,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    UnreadableData,
)
from dragoman.history import ModelInputEntry, ToolExecutionStatus, ToolResultsEntry
from dragoman.interop import (
    export_anthropic,
    import_agent_log,
    import_langchain,
    import_pydantic_ai,
    import_vercel_ui,
)
from dragoman.message import ModelInvocationDescriptor, ProviderItem

from .interop_cases import AGENT_LOG, PIXEL, messages_of, recorded, sample

PNG = base64.b64decode(PIXEL)


def results_of(entries: Any) -> list[tuple[str, ToolExecutionStatus, ErrorCode | None]]:
    return [
        (result.tool_call_id, result.status, result.error_code)
        for entry in entries
        if isinstance(entry, ToolResultsEntry)
        for result in entry.results
    ]


def request_with(item: dict[str, Any]) -> dict[str, Any]:
    """Return a request of pydantic-ai with an item."""
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["See", item]}]}


@pytest.mark.parametrize(
    ("item", "made"),
    [
        ({"kind": "binary", "data": "JVBERi0=", "media_type": "application/pdf"}, "e86519"),
        ({"kind": "document-url", "url": "https://x/a.pdf", "media_type": "application/pdf"}, "558a6d"),
        ({"kind": "uploaded-file", "file_id": "file-1", "media_type": "application/pdf"}, "c86d26"),
    ],
)
def test_an_identifier_that_the_program_gave_a_file_is_its_name(item: dict[str, Any], made: str) -> None:
    imported = import_pydantic_ai([request_with({**item, "identifier": "report-1"})])
    file = imported.messages[0].parts[1]
    assert isinstance(file, FileRef)
    assert (file.name, imported.warnings) == ("report-1", ())
    unnamed = import_pydantic_ai([request_with({**item, "identifier": made})])
    file = unnamed.messages[0].parts[1]
    assert isinstance(file, FileRef)
    assert (file.name, unnamed.warnings) == (None, ())


def test_an_identifier_of_a_picture_is_warned_of() -> None:
    picture = {"kind": "binary", "data": PIXEL, "media_type": "image/png", "identifier": "logo"}
    (warning,) = import_pydantic_ai([request_with(picture)]).warnings
    assert warning.endswith("'identifier' is not carried over")


# ---------------------------------------------------------------- Vercel's AI SDK


@pytest.mark.parametrize("data", ["-_-_/w==", "-_-__w==", "+/+//w==", "-_-__w"])
def test_files_of_pydantic_ai_are_read_in_either_alphabet_of_base64(data: str) -> None:
    file = {"kind": "binary", "data": data, "media_type": "application/pdf"}
    request = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["See", file]}]}
    (said,) = import_pydantic_ai([request]).messages
    assert said.parts[1] == FileRef(data=b"\xfb\xff\xbf\xff", mime_type="application/pdf")


def test_a_ui_message_is_one_assistant_message_per_step_and_the_results_of_its_calls() -> None:
    imported = import_vercel_ui(sample("vercel_5"))
    assert imported.system == "Be brief."
    assert [message.role for message in imported.messages] == ["user", "assistant", *["tool"] * 3, "assistant"]
    first, last = imported.messages[1], imported.messages[-1]
    assert first.parts[:2] == (
        Thinking("I need the weather.", provider_data={"anthropic": {"signature": "c2ln"}}),
        Text("One moment."),
    )
    assert [part.kind for part in last.parts] == ["vercel.source-url", "text", "image"]
    assert results_of(recorded(imported).entries) == [
        ("call_1", "success", None),
        ("call_2", "failed", ErrorCode.TOOL_FAILED),
        ("call_3", "failed", ErrorCode.INVALID_ARGUMENTS),  # the tool's schema refused them: it never ran
    ]


def test_ui_messages_of_version_4_say_the_same() -> None:
    imported = import_vercel_ui(sample("vercel_4"))
    assert imported.messages[0].parts == (Text("Weather?"), Image(mime_type="image/png", data=PNG))
    assert imported.messages[1].parts == (
        Thinking("Look it up.", provider_data={"details": [{"type": "text", "text": "Look it up."}]}),
        Text("One moment."),
        ToolCall("call_1", "weather", {"city": "Paris"}),
    )
    assert imported.messages[2].parts == (ToolResult("call_1", {"celsius": 9}),)
    assert imported.messages[3].parts == (Text("Rain."),)


def test_a_ui_message_without_parts_has_its_content() -> None:
    call = {"state": "result", "toolCallId": "c", "toolName": "f", "args": {}, "result": [1]}
    old = {"role": "assistant", "content": "Here.", "reasoning": "Hm.", "toolInvocations": [call]}
    imported = import_vercel_ui([{"role": "user", "content": "x"}, old])
    assert imported.messages[1].parts == (Thinking("Hm."), Text("Here."), ToolCall("c", "f", {}))
    assert imported.messages[2].parts == (ToolResult("c", "[1]"),)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("input-streaming", ErrorCode.TOOL_INTERRUPTED),
        ("input-available", ErrorCode.TOOL_INTERRUPTED),
        ("approval-requested", ErrorCode.TOOL_INTERRUPTED),
        ("output-denied", ErrorCode.TOOL_DENIED),
    ],
)
def test_a_ui_call_that_did_not_run_is_never_taken_for_one_that_did(state: str, code: ErrorCode) -> None:
    part = {
        "type": "dynamic-tool",
        "toolName": "f",
        "toolCallId": "c",
        "state": state,
        "input": {"a": 1},
        "approval": {"id": "a", "approved": False, "reason": "no"},
    }
    entries = recorded(import_vercel_ui([{"role": "assistant", "parts": [part]}])).entries
    assert results_of(entries) == [("c", "skipped", code)]
    assert "tool_started" not in [entry.kind for entry in entries]


def test_a_tool_that_the_provider_ran_is_an_item_of_its_own() -> None:
    part = {
        "type": "tool-search",
        "toolCallId": "c",
        "state": "output-available",
        "input": {},
        "output": 1,
        "providerExecuted": True,
    }
    (message,) = import_vercel_ui([{"role": "assistant", "parts": [part]}]).messages
    assert message.parts == (ProviderItem("search", part),)


def test_ui_messages_that_say_nothing_to_a_model_are_told() -> None:
    imported = import_vercel_ui(
        [
            {"role": "system", "parts": [{"type": "text", "text": "Be brief."}], "metadata": {"by": "Ada"}},
            {"role": "data", "content": "x"},
            {"role": "assistant", "parts": [{"type": "step-start"}]},
            {"role": "user", "parts": [{"type": "step-start"}, {"type": "data-note", "data": 1}]},
            {"role": "assistant", "parts": [{"type": "file", "mediaType": "application/pdf", "url": "https://x/a"}]},
            {"role": "user", "parts": [{"type": "file", "mimeType": "text/plain", "data": "aGk="}], "createdAt": 1_000},
        ]
    )
    assert [message.role for message in imported.messages] == ["user", "assistant", "user"]
    assert imported.messages[-1].parts == (FileRef(data=b"hi", mime_type="text/plain"),)
    assert imported.messages[-1].timestamp == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert len(imported.warnings) == 5


def test_ui_arguments_that_are_no_object_are_never_run() -> None:
    part = {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": "x", "output": "y"}
    (answer, _) = import_vercel_ui([{"role": "assistant", "parts": [part]}]).messages
    assert (answer.tool_calls[0].arguments, answer.tool_calls[0].raw_args_text) == (None, "x")


# ---------------------------------------------------------------- LangChain


def test_both_layouts_of_langchain_say_the_same() -> None:
    in_dicts, in_constructors = (import_langchain(sample(f"langchain_{form}")) for form in ("dict", "dumpd"))
    assert in_dicts.system == in_constructors.system == "Be brief."
    assert in_dicts.messages == in_constructors.messages
    assert len(in_dicts.warnings) == len(in_constructors.warnings) == 2


def test_langchain_answers_keep_calls_usage_and_finish() -> None:
    answer = import_langchain(sample("langchain_dict")).messages[1]
    assert answer.parts == (
        Text("One moment."),
        ToolCall("call_1", "weather", {"city": "Paris"}),
        ToolCall("call_2", "weather", raw_args_text='{"city":', parse_error="not JSON"),
    )
    assert answer.meta is not None
    assert answer.meta.usage == TokenUsage(120, 15, 135, 100, None, 5)
    assert (answer.meta.finish_reason, answer.meta.model_id) == (FinishReason.TOOL_CALLS, "gpt-4.1")
    assert answer.meta.extra == {"langchain": {"id": "run-1", "response_metadata": {"system_fingerprint": "fp_1"}}}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("end_turn", FinishReason.STOP),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("MALFORMED_FUNCTION_CALL", FinishReason.OTHER),
    ],
)
def test_langchain_finish_reasons_are_read_whoever_the_provider_is(word: str, reason: FinishReason) -> None:
    data = {"content": "It rains.", "response_metadata": {"finish_reason": word}}
    (answer,) = import_langchain([{"type": "ai", "data": data}]).messages
    assert answer.meta is not None
    assert (answer.meta.finish_reason, answer.meta.raw_finish_reason) == (reason, word)


def test_a_langchain_answer_that_stops_at_a_call_finishes_with_calls() -> None:
    calls = [{"name": "f", "args": {}, "id": "c"}]
    data = {"content": "", "tool_calls": calls, "response_metadata": {"finish_reason": "STOP"}}
    (answer,) = import_langchain([{"type": "ai", "data": data}]).messages
    assert answer.meta is not None
    assert answer.meta.finish_reason is FinishReason.TOOL_CALLS


def test_langchain_thinking_of_claude_goes_back_to_claude() -> None:
    imported = import_langchain(sample("langchain_dict"))
    signed = imported.messages[4]
    assert signed.meta is not None
    assert signed.meta.invocation == ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
    exported = export_anthropic(messages_of(recorded(imported)))["messages"]
    assert {"type": "thinking", "thinking": "Oslo too.", "signature": "c2ln"} in exported[3]["content"]


def test_langchain_blocks_that_were_translated_never_go_back_as_the_wires_own() -> None:
    block = {"type": "server_tool_call", "name": "web_search", "args": {}, "id": "s"}
    said = {"model_provider": "anthropic", "model_name": "claude-sonnet-4-5"}
    message = {"type": "ai", "data": {"content": [block], "response_metadata": said}}
    (answer,) = import_langchain([message]).messages
    assert answer.parts == (ProviderItem("server_tool_call", block),)
    assert answer.meta is not None
    assert answer.meta.invocation is None


def test_a_call_stands_once_whether_langchain_lists_it_once_or_twice() -> None:
    calls = [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]
    for content in ("", [{"type": "tool_use", "id": "c", "name": "f", "input": {}, "partial_json": '{"a": 1}'}]):
        (answer,) = import_langchain([{"type": "ai", "data": {"content": content, "tool_calls": calls}}]).messages
        assert answer.parts == (ToolCall("c", "f", {"a": 1}),)


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "source_type": "base64", "data": PIXEL, "mime_type": "image/png"},
            Image(mime_type="image/png", data=PNG),
        ),
        ({"type": "image", "source_type": "url", "url": "https://x/a.png"}, Image(url="https://x/a.png")),
        ({"type": "file", "source_type": "id", "id": "file_1"}, FileRef(file_id="file_1")),
        ({"type": "image", "file_id": "file_1"}, FileRef(file_id="file_1")),
        ({"type": "text-plain", "text": "hi", "mime_type": "text/plain"}, FileRef(data=b"hi", mime_type="text/plain")),
        ({"type": "image_url", "image_url": "https://x/a.png"}, Image(url="https://x/a.png")),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            Image(mime_type="image/png", data=PNG),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "a"},
            FileRef(data=b"hi", mime_type="text/plain", name="a"),
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
            FileRef(url="https://x/a.pdf", mime_type="application/pdf"),
        ),
        ({"type": "file", "file": {"file_id": "file_1"}}, FileRef(file_id="file_1")),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
            FileRef(data=b"%PDF-", mime_type="application/pdf", name="a.pdf"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
            FileRef(data=b"ABC", mime_type="audio/wav"),
        ),
        ({"type": "media", "mime_type": "video/mp4", "data": "QUJD"}, FileRef(data=b"ABC", mime_type="video/mp4")),
    ],
)
def test_langchain_media_in_their_other_forms(block: dict[str, Any], part: Image | FileRef) -> None:
    (message,) = import_langchain([{"type": "human", "data": {"content": ["Look.", block]}}]).messages
    assert message.parts == (Text("Look."), part)


def test_langchain_blocks_of_providers_are_read_in_results_too() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    call = {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "f", "args": {}, "id": "a1"}]}}
    imported = import_langchain([call, {"type": "tool", "data": {"content": [picture], "tool_call_id": "a1"}}])
    assert imported.messages[1].parts == (ToolResult("a1", (Image(mime_type="image/png", data=PNG),)),)
    assert imported.warnings == ()


def test_no_field_of_a_langchain_message_is_lost_without_a_word() -> None:
    calls = [{"name": "f", "args": {}, "id": "a1"}, {"name": "g", "args": {}, "id": "a2"}]
    said = {"model_provider": "openai", "model_name": "gpt-4.1"}
    ids = {"id": "tool-id", "name": "other", "additional_kwargs": {"x": 1}, "response_metadata": {"y": 2}}
    imported = import_langchain(
        [
            {"type": "system", "data": {"content": "Be brief.", "id": "system-id", "name": "boss"}},
            {"type": "human", "data": {"content": "Go.", "id": "human-id"}},
            {"type": "ai", "data": {"content": "", "tool_calls": calls, "id": "ai-id", "response_metadata": said}},
            {"type": "tool", "data": {"content": "r", "tool_call_id": "a1", "artifact": [1], **ids}},
            {"type": "tool", "data": {"content": "s", "tool_call_id": "a2", "id": "second-id"}},
        ]
    )
    extras = [message.meta.extra["langchain"] for message in imported.messages if message.meta and message.meta.extra]
    assert extras == [
        {"id": "human-id"},
        {"id": "ai-id", "response_metadata": {"model_provider": "openai"}},
        ids,
        {"id": "second-id"},
    ]
    left_out = [("messages[0].data", "id"), ("messages[0].data", "name"), ("messages[3].data", "artifact")]
    assert set(imported.warnings) == {f"{where}: {name!r} is not carried over" for where, name in left_out}
    state = recorded(imported)
    (results,) = [entry for entry in state.entries if isinstance(entry, ToolResultsEntry)]
    assert results.metadata["langchain"] == {"a1": ids, "a2": {"id": "second-id"}}


def test_langchain_answers_in_the_forms_of_its_many_providers() -> None:
    content = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "redacted_thinking", "data": "aGlkZGVu"},
        {"type": "refusal", "refusal": "No."},
        {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "tool_use", "id": "c2", "name": "f", "input": {}},
        {"type": "input_json_delta", "partial_json": "{}", "index": 1},
        {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
    ]
    kwargs = {"refusal": "Really not.", "tool_calls": [{"id": "c3", "function": {"name": "g", "arguments": "{}"}}]}
    (answer,) = import_langchain([{"type": "ai", "data": {"content": content, "additional_kwargs": kwargs}}]).messages
    assert answer.parts == (
        Thinking("Hm.", provider_data={"id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        Thinking("", provider_data={"data": "aGlkZGVu"}),
        Text("No.", provider_data={"refusal": True}),
        ToolCall("c1", "f", {"a": 1}, '{"a": 1}'),
        ToolCall("c2", "f", {}),
        Image(url="https://x/a.png"),
        Text("Really not.", provider_data={"refusal": True}),
        ToolCall("c3", "g", {}, "{}"),
    )


def test_a_langchain_object_that_was_not_written_whole_is_refused() -> None:
    with pytest.raises(UnreadableData, match=r"^messages\[0\] is not a message that was written whole"):
        import_langchain([{"lc": 1, "type": "not_implemented", "id": ["x"], "repr": "x"}])


# ---------------------------------------------------------------- pydantic-ai


def test_pydantic_ai_requests_become_inputs_and_results() -> None:
    imported = import_pydantic_ai(sample("pydantic_ai"))
    assert (imported.system, imported.warnings) == ("Be brief.\n\nUse the tools.", ())
    asked = imported.messages[0]
    assert asked.parts == (
        Text("Weather here?"),
        Image(mime_type="image/png", data=PNG),
        Image(mime_type="image/png", url="https://example.com/map.png"),
        FileRef(url="https://example.com/a.pdf", mime_type="application/pdf"),
        Text("Hurry."),
    )
    assert asked.run_id == "run-1"
    assert results_of(recorded(imported).entries) == [
        ("call_1", "success", None),
        ("call_2", "failed", ErrorCode.TOOL_FAILED),
        ("call_3", "success", None),
        ("call_4", "skipped", ErrorCode.TOOL_DENIED),
    ]
    assert imported.messages[4].parts == (
        ToolResult("call_3", (Text("A chart:"), Image(mime_type="image/png", data=PNG))),
    )


def test_pydantic_ai_thinking_of_claude_goes_back_to_claude() -> None:
    imported = import_pydantic_ai(sample("pydantic_ai"))
    answer = imported.messages[1]
    assert answer.meta is not None
    assert answer.meta.usage == TokenUsage(120, 15, 135, 100)
    (_, turn, *_) = export_anthropic(messages_of(recorded(imported)))["messages"]
    assert turn["content"][:2] == [
        {"type": "thinking", "thinking": "Which city?", "signature": "c2ln"},
        {"type": "text", "text": "One moment."},
    ]


def test_pydantic_ai_data_of_other_providers_stays_home() -> None:
    answer = import_pydantic_ai(sample("pydantic_ai")).messages[7]
    assert answer.meta is not None
    assert answer.meta.invocation is None
    assert [part.kind for part in answer.parts] == ["provider_item", "provider_item", "text", "image"]
    assert answer.parts[2] == Text("It rains.", provider_data={"id": "msg_3", "provider_name": "openai"})


def test_pydantic_ai_answers_that_broke_off_are_interruptions() -> None:
    parts = [{"part_kind": "text", "content": "It"}, {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c"}]
    broken = {"kind": "response", "state": "interrupted", "parts": parts}
    entries = recorded(import_pydantic_ai([broken])).entries
    assert [entry.kind for entry in entries] == ["interruption"]
    answered = {
        "kind": "request",
        "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "ok", "tool_call_id": "c"}],
    }
    entries = recorded(import_pydantic_ai([broken, answered])).entries
    assert [entry.kind for entry in entries] == ["model_output", "tool_started", "tool_result"]


def test_of_several_pydantic_ai_instructions_the_newest_hold() -> None:
    request = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "x"}]}
    imported = import_pydantic_ai([{**request, "instructions": "Old."}, {**request, "instructions": "New."}])
    assert imported.system == "New."
    assert imported.warnings == ("messages[0].instructions: instructions that later ones replaced are left out",)


def test_pydantic_ai_parts_of_every_other_kind_are_read_or_told() -> None:
    request = {
        "kind": "request",
        "metadata": {"a": 1},
        "parts": [
            {"part_kind": "retry-feedback", "content": "Try again.", "retry": {"cause": "model_retry"}},
            {"part_kind": "compaction", "content": "So far: rain."},
            {"part_kind": "speech", "speaker": "user", "transcript": "Hello"},
            {"part_kind": "tool-availability-delta", "tools_added": ["f"]},
        ],
    }
    asked = {
        "kind": "request",
        "parts": [
            {
                "part_kind": "user-prompt",
                "content": [
                    {"kind": "text-content", "content": "Look."},
                    {"kind": "uploaded-file", "file_id": "file_1", "provider_name": "openai", "media_type": "a/b"},
                    {"kind": "hologram"},
                ],
            }
        ],
    }
    response = {
        "kind": "response",
        "model_name": "claude-sonnet-4-5",
        "provider_name": "anthropic",
        "parts": [
            {"part_kind": "thinking", "content": "", "id": "redacted_thinking", "signature": "aGlkZGVu"}
            | {"provider_name": "anthropic"},
            {"part_kind": "thinking", "content": "Hm.", "id": "rs_1", "signature": "ZW5j", "provider_name": "openai"},
            {"part_kind": "speech", "speaker": "assistant", "transcript": "Hello"},
            {"part_kind": "file", "content": {"kind": "binary", "data": "JVBERi0=", "media_type": "application/pdf"}},
            {"part_kind": "hologram"},
        ],
    }
    imported = import_pydantic_ai([request, asked, response])
    retry, summary, spoken, looked, answer = imported.messages
    assert [message.text for message in (retry, summary, spoken)] == ["Try again.", "So far: rain.", "Hello"]
    assert looked.parts[1] == FileRef(file_id="file_1", mime_type="a/b")
    assert answer.parts[:2] == (
        Thinking("", provider_data={"data": "aGlkZGVu"}),
        Thinking("Hm.", provider_data={"id": "rs_1", "signature": "ZW5j", "provider_name": "openai"}),
    )
    assert answer.meta is not None
    assert answer.meta.invocation is None  # another provider had a part in it
    assert len(imported.warnings) == 6


# ---------------------------------------------------------------- recorded agents


def test_a_recorded_run_keeps_usage_times_and_marks() -> None:
    imported = import_agent_log(AGENT_LOG)
    assert imported.system == "Be brief."
    state = recorded(imported)
    inputs = [entry for entry in state.entries if isinstance(entry, ModelInputEntry)]
    assert [dict(entry.metadata) for entry in inputs] == [{"said_at": "2026-01-02T03:04:05Z"}, {"injected": True}]
    assert inputs[0].parts == (Text("What is this?"), Text("[image/png, 8 bytes: not recorded]"))
    assert state.token_usage == TokenUsage(121, 5, 126, 100, 20)
    assert results_of(state.entries) == [
        ("c1", "success", None),
        ("c2", "failed", ErrorCode.INVALID_ARGUMENTS),
        ("c3", "skipped", ErrorCode.TOOL_INTERRUPTED),
    ]
    assert len(imported.warnings) == 2  # the picture, the summary


def test_a_record_without_messages_is_refused() -> None:
    with pytest.raises(UnreadableData, match=r"record\.messages must be an array, got nothing"):
        import_agent_log({"id": "x"})
