"""An imported conversation becomes entries that are legal whatever it lacked; exports; our own record as JSON Lines."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import (
    ErrorCode,
    FileRef,
    Image,
    Message,
    ModelError,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnreadableData,
)
from dragoman.errors import IllegalAppend
from dragoman.history import (
    AgentState,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    ToolResultsEntry,
    entry_to_json,
)
from dragoman.interop import (
    Imported,
    append_imported,
    export_anthropic,
    export_openai_chat,
    import_agent_log,
    import_anthropic,
    import_openai_chat,
    plan_import,
    read_jsonl,
    write_jsonl,
)
from dragoman.message import MessageMeta, UnknownPart
from dragoman.testing.histories import legal_histories

from .history_cases import call, fresh, with_calls
from .interop_cases import AGENT_LOG, CHAT, messages_of

ASKED = Message.user("Look.")
CALLED = Message.assistant(ToolCall("c", "f", {"x": 1}))
FOUND = Message.tool(ToolResult("c", "found"))


def taken(*messages: Message, state: AgentState | None = None, **options: Any) -> tuple[AgentState, tuple[str, ...]]:
    state = state or fresh(widgets=())
    return state, append_imported(state, Imported(None, messages), **options)


def kinds(entries: Sequence[HistoryEntry]) -> list[str]:
    return [str(entry.kind) for entry in entries]


def results(state: AgentState) -> list[HistoryToolCallResult]:
    return [result for entry in state.entries if isinstance(entry, ToolResultsEntry) for result in entry.results]


# ---------------------------------------------------------------- entries


def test_a_conversation_becomes_the_entries_that_it_would_have_been() -> None:
    state = fresh(widgets=())
    imported = Imported("Be brief.", (ASKED, CALLED, FOUND, Message.assistant("There.")))
    assert append_imported(state, imported) == ()
    assert kinds(state.entries) == [
        "system_instruction", "model_input", "model_output", "tool_started", "tool_result", "model_output",
    ]  # fmt: skip
    assert messages_of(state)[0].text == "Be brief."


def test_an_instruction_that_holds_already_is_not_set_again() -> None:
    state = fresh("Be brief.", widgets=())
    append_imported(state, Imported("Be brief.", (ASKED,)))
    assert kinds(state.entries) == ["system_instruction", "model_input"]


def test_a_call_without_a_result_is_interrupted_and_told() -> None:
    state, warnings = taken(ASKED, CALLED, Message.user("Well?"))
    (result,) = results(state)
    assert (result.status, result.error_code) == ("skipped", ErrorCode.TOOL_INTERRUPTED)
    assert "tool_started" not in kinds(state.entries)
    assert result.text() == "[interrupted: this call has no result; it may or may not have taken effect]"
    (warning,) = warnings
    assert (
        warning == "message 1: a call without a result is recorded as interrupted: it may or may not have taken effect"
    )


def test_of_two_calls_the_one_without_a_result_is_interrupted() -> None:
    both = Message.assistant(ToolCall("a", "f", {}), ToolCall("b", "f", {}))
    state, _ = taken(ASKED, both, Message.tool(ToolResult("b", "found")))
    assert [result.error_code for result in results(state)] == [ErrorCode.TOOL_INTERRUPTED, None]


def test_the_last_calls_stay_open_for_who_will_run_them() -> None:
    state, warnings = taken(ASKED, CALLED, leave_open=True)
    assert [request.tool_call_id for request in state.pending_tool_calls] == ["c"]
    assert warnings == ()
    state, _ = taken(ASKED, CALLED, Message.user("Well?"), leave_open=True)
    assert not state.pending_tool_calls


def test_results_answer_calls_that_the_history_left_open() -> None:
    state, _ = taken(ASKED, CALLED, leave_open=True)
    taken(FOUND, Message.assistant("There."), state=state)
    assert kinds(state.entries) == ["model_input", "model_output", "tool_started", "tool_result", "model_output"]


def test_a_history_with_open_calls_takes_no_other_conversation() -> None:
    state = with_calls(call("a"), call("b"))
    before = list(state.entries)
    with pytest.raises(IllegalAppend) as refused:
        taken(Message.tool(ToolResult("a", "found")), ASKED, state=state)
    assert refused.value.rule == "calls_answered_first"
    assert list(state.entries) == before


@pytest.mark.parametrize("answers", [(), (False,)])
def test_a_result_of_a_call_that_was_not_approved_is_taken_without_a_start(answers: tuple[bool, ...]) -> None:
    state = with_calls()
    state.append(ApprovalAskedEntry("c", "f"))
    for approved in answers:
        state.append(ApprovalAnsweredEntry("c", approved))
    before = len(state.entries)
    append_imported(state, Imported("Be brief.", (FOUND, ASKED)))
    assert kinds(state.entries)[before:] == ["system_instruction", "tool_result", "model_input"]


def test_a_sink_that_fails_leaves_nothing_of_an_import() -> None:
    def sink(entries: Sequence[HistoryEntry]) -> None:
        if any(isinstance(entry, ModelOutputEntry) for entry in entries):
            raise OSError("the disk is full")

    state = fresh(widgets=(), sink=sink)
    with pytest.raises(OSError, match="full"):
        append_imported(state, Imported("Be brief.", (ASKED, CALLED, FOUND)))
    assert len(state.entries) == 0


def test_a_result_without_a_call_is_left_out_and_told() -> None:
    state, warnings = taken(ASKED, Message.tool(ToolResult("x", "found")), Message.assistant("Hm."))
    assert kinds(state.entries) == ["model_input", "model_output"]
    assert warnings == ("message 1: a result that answers no open call is left out",)


def test_a_second_result_of_a_call_is_left_out_and_told() -> None:
    state, warnings = taken(ASKED, CALLED, FOUND, Message.tool(ToolResult("c", "lost")))
    assert [result.text() for result in results(state)] == ["found"]
    assert len(warnings) == 1


def test_a_result_that_came_late_stands_right_after_its_call() -> None:
    state, warnings = taken(ASKED, CALLED, Message.user("Well?"), FOUND)
    assert kinds(state.entries) == ["model_input", "model_output", "tool_started", "tool_result", "model_input"]
    assert warnings == ("message 3: a result that came after other messages is put right after its call",)


def test_ids_that_every_turn_repeats_are_made_unique_and_results_follow() -> None:
    turns = [turn for number in range(3) for turn in (ASKED, CALLED, Message.tool(ToolResult("c", str(number))))]
    state, warnings = taken(*turns)
    taken(*turns, state=state)
    assert warnings == ()
    assert [(result.tool_call_id, result.text()) for result in results(state)] == [
        ("c", "0"), ("c~2", "1"), ("c~3", "2"), ("c~4", "0"), ("c~5", "1"), ("c~6", "2"),
    ]  # fmt: skip
    outputs = [entry for entry in state.entries if isinstance(entry, ModelOutputEntry)]
    assert outputs[1].message.tool_calls[0].provider_data == {"id": "c"}


def test_an_id_that_one_turn_repeats_has_one_answer() -> None:
    twice = Message.assistant(ToolCall("c", "f", {}), ToolCall("c", "f", {}))
    state, _ = taken(ASKED, twice, FOUND)
    assert [(result.tool_call_id, result.error_code) for result in results(state)] == [
        ("c", ErrorCode.TOOL_INTERRUPTED),
        ("c~2", None),
    ]


def test_a_message_without_words_is_left_out_and_told() -> None:
    state, warnings = taken(Message.user(" "), ASKED)
    assert kinds(state.entries) == ["model_input"]
    assert warnings == ("message 0: a user message without any words is left out",)


def test_a_system_message_inside_keeps_its_place_as_an_input() -> None:
    inside = Message(Role.SYSTEM, (Text("It is late."), Thinking("hm")))
    state, warnings = taken(ASKED, inside)
    entry = state.entries[1]
    assert isinstance(entry, ModelInputEntry)
    assert (entry.parts, dict(entry.metadata)) == ((Text("It is late."),), {"role": "system"})
    assert len(warnings) == 1


def test_when_something_was_said_is_noted_beside_the_time_of_the_import() -> None:
    said = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    asked = Message.user("Look.", timestamp=said)
    found = Message.tool(ToolResult("c", "found"), timestamp=said)
    state, _ = taken(asked, CALLED, found)
    assert [entry.metadata.get("said_at") for entry in state.entries] == [
        "2025-01-02T03:04:05Z", None, None, "2025-01-02T03:04:05Z",
    ]  # fmt: skip
    assert all(entry.timestamp and entry.timestamp.year == 2026 for entry in state.entries)


def test_fields_that_are_too_large_for_metadata_are_left_out_and_told() -> None:
    large = Message(Role.USER, (Text("Look."),), meta=MessageMeta(extra={"vercel": {"metadata": "x" * 3_000}}))
    state, warnings = taken(large)
    assert not state.entries[0].metadata
    assert len(warnings) == 1


def test_an_answer_that_broke_off_is_an_interruption() -> None:
    partial = Message(Role.ASSISTANT, CALLED.parts, meta=MessageMeta(interrupted=True))
    state, _ = taken(ASKED, partial, ASKED)
    assert kinds(state.entries) == ["model_input", "interruption", "model_input"]
    state, _ = taken(ASKED, partial, FOUND)
    assert kinds(state.entries) == ["model_input", "model_output", "tool_started", "tool_result"]


def test_a_plan_is_what_a_store_that_must_be_awaited_takes() -> None:
    imported = import_agent_log(AGENT_LOG)
    at_once, planned = fresh(widgets=()), fresh(widgets=())
    warnings = append_imported(at_once, imported)
    plan = plan_import(planned, imported)
    prepared = planned.prepare_all(plan.entries)
    assert len(planned.entries) == 0
    planned.commit(*prepared)
    assert (list(planned.entries), plan.warnings) == (list(at_once.entries), warnings)


def test_the_same_warning_is_one_line() -> None:
    _, warnings = taken(*[Message.user("")] * 5)
    assert warnings == ("message 0: a user message without any words is left out (and 4 more)",)


def test_warnings_stay_few_however_hostile_the_source() -> None:
    parts = [{"type": f"kind-{number}"} for number in range(300)]
    warnings = import_openai_chat([{"role": "user", "content": parts}]).warnings
    assert len(warnings) == 101
    assert warnings[-1] == "and 200 others"


# ---------------------------------------------------------------- exports


def test_an_export_ends_where_the_conversation_ends() -> None:
    messages = [ASKED, Message.assistant("There.")]
    assert export_openai_chat(messages)[-1] == {"role": "assistant", "content": "There."}
    assert export_anthropic(messages)["messages"][-1]["role"] == "assistant"


def test_leading_system_messages_are_the_system_text_unless_another_is_given() -> None:
    messages = [Message.system("A"), Message.system("B"), ASKED]
    assert export_openai_chat(messages)[0] == {"role": "system", "content": "A\n\nB"}
    assert export_openai_chat(messages, "C")[0] == {"role": "system", "content": "C"}
    assert export_anthropic(messages)["system"] == [{"type": "text", "text": "A\n\nB"}]


def test_nothing_exports_to_nothing() -> None:
    assert export_openai_chat([]) == []
    assert export_anthropic([]) == {"messages": []}
    assert export_openai_chat([], "A") == [{"role": "system", "content": "A"}]


def test_an_export_answers_calls_that_nobody_answered() -> None:
    *_, answer, after = export_openai_chat([ASKED, CALLED, ASKED])
    assert (answer["role"], answer["tool_call_id"], after["role"]) == ("tool", "c", "user")


def test_media_that_the_form_cannot_hold_are_refused_in_the_newest_turn_and_described_in_older_ones() -> None:
    film = FileRef(data=b"x", mime_type="video/mp4")
    with pytest.raises(ModelError) as refused:
        export_anthropic([Message.user(film)])
    assert refused.value.code is ErrorCode.UNSUPPORTED
    (old, *_) = export_openai_chat([Message.user(film), Message.assistant("Nice."), ASKED])
    assert old["content"] == "[video/mp4, 1 bytes: not shown, this model cannot read it]"


def test_what_only_another_library_knows_is_in_the_record_and_in_no_export() -> None:
    kept = UnknownPart("vercel.data-note", {"type": "data-note", "data": "hologram"})
    state, _ = taken(Message.user("Look.", kept))
    assert b"hologram" in b"".join(write_jsonl(state.entries))
    assert "hologram" not in json.dumps([export_openai_chat(messages_of(state)), export_anthropic(messages_of(state))])


def test_an_exported_list_can_be_imported_again() -> None:
    exported = export_openai_chat([ASKED, CALLED, FOUND, Message.assistant("There.")], "Be brief.")
    again = import_openai_chat(exported)
    assert export_openai_chat(again.messages, again.system) == exported


# ---------------------------------------------------------------- JSON Lines


@settings(max_examples=60, deadline=None)
@given(legal_histories(max_steps=25))
def test_a_history_written_as_lines_is_read_back_equal(state: AgentState) -> None:
    lines = list(write_jsonl(state.entries))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    whole = b"".join(lines)
    for source in (lines, whole, whole.decode(), [line.decode() for line in lines]):
        assert list(read_jsonl(source)) == list(state.entries)
    rebuilt = AgentState.from_entries(read_jsonl(whole), session_id=state.session_id)
    assert rebuilt.derived == state.derived


def some_lines() -> list[bytes]:
    state = fresh(widgets=())
    append_imported(state, import_openai_chat(CHAT))
    return list(write_jsonl(state.entries))


@pytest.mark.parametrize("damage", [b"{", b"[]", b"null", b"\xff", b'{"serial":0}', b"[" * 5_000, b"hello"])
def test_a_damaged_line_is_told_by_its_number(damage: bytes) -> None:
    lines = some_lines()
    lines[2] = damage + b"\n"
    entries = read_jsonl(lines)
    assert [next(entries).serial, next(entries).serial] == [0, 1]
    with pytest.raises(UnreadableData, match="line 3: ") as refused:
        next(entries)
    assert refused.value.code is ErrorCode.CORRUPT


def test_a_line_of_a_later_version_is_told_by_its_number() -> None:
    lines = some_lines()
    lines[1] = lines[1].replace(b"{", b'{"schemaVersion":7,', 1)
    with pytest.raises(UnreadableData, match="line 2: written in schema version 7") as refused:
        list(read_jsonl(lines))
    assert refused.value.code is ErrorCode.TOO_NEW


def test_a_file_that_was_cut_short_never_reads_as_whole() -> None:
    whole = b"".join(some_lines()[:3])
    ends = {len(b"".join(some_lines()[:count])) for count in range(4)}
    for cut in range(len(whole)):
        if cut in ends or cut + 1 in ends:  # between lines nothing tells that more had followed
            continue
        with pytest.raises(UnreadableData, match=r"^line [123]: "):
            list(read_jsonl(whole[:cut]))


def test_blank_lines_are_passed_over_and_counted() -> None:
    first, second = some_lines()[:2]
    assert [entry.serial for entry in read_jsonl([b"\n", first, b" \r\n", second])] == [0, 1]
    with pytest.raises(UnreadableData, match="line 4: "):
        list(read_jsonl([b"\n", first, b"\n", b"{"]))


def test_a_line_that_is_no_text_is_told_by_its_number() -> None:
    with pytest.raises(UnreadableData, match=r"line 1: .* must be bytes or text"):
        list(read_jsonl([5]))  # type: ignore[list-item]


@given(st.text())
def test_line_breaks_of_every_script_stay_inside_their_line(text: str) -> None:
    state, _ = taken(Message.user(f"x{text}"), Message.user(Image(url="https://example.com/a.png")))
    assert list(read_jsonl(b"".join(write_jsonl(state.entries)))) == list(state.entries)
    assert [entry_to_json(entry) + b"\n" for entry in state.entries] == list(write_jsonl(state.entries))


def test_a_conversation_with_files_by_their_addresses_is_imported_as_it_was_exported() -> None:
    pdf = FileRef(url="https://x.test/a.pdf", mime_type="application/pdf")
    picture = Image(url="https://x.test/a.png", mime_type="image/png")
    talk = [Message.user("Read.", pdf, picture), Message.assistant("No."), Message.user("Why?")]
    chat = import_openai_chat(export_openai_chat(talk)).messages
    assert chat[0].text == "Read.[a.pdf, application/pdf by url: not shown, this model cannot read it]"
    assert [part.url for part in chat[0].parts if isinstance(part, Image)] == [picture.url]
    claude = import_anthropic(export_anthropic(talk)["messages"]).messages
    assert [part.url for part in claude[0].parts if isinstance(part, (Image, FileRef))] == [pdf.url, picture.url]


def test_a_file_by_its_address_as_openrouter_takes_it_is_imported() -> None:
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "https://x.test/a.pdf"}}
    (message,) = import_openai_chat([{"role": "user", "content": [part]}]).messages
    assert message.parts == (FileRef(url="https://x.test/a.pdf", mime_type="application/pdf", name="a.pdf"),)
