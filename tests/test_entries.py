"""Entries: what each kind holds and refuses, the messages it gives, its JSON form there and back."""

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dragoman import ErrorCode, FileRef, InvalidValue, Message, Role, Text, Thinking, TokenUsage, ToolCall, ToolResult
from dragoman.errors import PROVIDER_MESSAGE_LIMIT, IllegalAppend
from dragoman.history import (
    LIVE_SCREEN,
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    ContextMessageRole,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    Metadata,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    SamplingEntry,
    Section,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolExecutionStatus,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from dragoman.message import MessageMeta, UnknownPart
from tests.entry_cases import INVOCATION, NOW, PICTURE, PLACE, result

CALL = ToolCall(tool_name="f", tool_call_id="c", raw_args_text="{}", arguments={})


# ---------------------------------------------------------------- inputs


def test_an_input_gives_its_parts_in_order_as_one_user_message() -> None:
    entry = ModelInputEntry((PICTURE, Text("look"), FileRef(path="a.txt"), Text("again")), **PLACE)
    (message,) = entry.messages()
    assert message == Message(Role.USER, (PICTURE, Text("look"), FileRef(path="a.txt"), Text("again")), "r", NOW)
    assert entry.attachments == (PICTURE, FileRef(path="a.txt"))
    assert entry.role is ContextMessageRole.MODEL_INPUT


def test_an_input_without_sections_has_its_texts_at_every_level() -> None:
    entry = ModelInputEntry.of("a", PICTURE, "b")
    assert entry.sections == LevelOfDetailSections.create_uniform((("", "a"), ("", "b")))


def test_an_input_of_sections_alone_says_their_live_text() -> None:
    live = (Section("", "a"), Section("k", "b"), Section(LIVE_SCREEN, "s"))
    levels = LevelOfDetailSections(live, (Section("", "sum"),))
    assert ModelInputEntry(sections=levels).parts == (Text("a\n\n# k\nb"),)


def test_below_live_an_input_says_the_text_of_that_level_without_attachments() -> None:
    summary = (Section("", "short"), Section("k", "v"))
    levels = LevelOfDetailSections((Section("", "long"),), summary, (Section("", ""),))
    entry = ModelInputEntry.of("long", PICTURE, sections=levels)
    assert entry.messages(LevelOfDetail.SUMMARY) == (Message.user("short\n\n# k\nv"),)
    assert entry.messages(LevelOfDetail.GIST) == ()


def test_a_level_equal_to_live_gives_the_parts_without_attachments() -> None:
    entry = ModelInputEntry.of("a", PICTURE, "b")
    shown = ModelInputEntry(entry.parts, entry.sections.with_live_section(LIVE_SCREEN, "screen"))
    assert shown.messages(LevelOfDetail.SUMMARY) == (Message.user("a", "b"),)
    assert shown.messages(LevelOfDetail.LIVE) == (Message.user("a", PICTURE, "b"),)


def test_an_input_of_images_alone_says_nothing_below_live() -> None:
    assert ModelInputEntry((PICTURE,)).messages(LevelOfDetail.SUMMARY) == ()


@pytest.mark.parametrize("parts", [(), ("",), ("  \n",), (Text(""), Text("\t"))])
def test_an_empty_input_is_refused_by_name(parts: tuple[Any, ...]) -> None:
    with pytest.raises(IllegalAppend) as raised:
        ModelInputEntry.of(*parts)
    assert raised.value.rule == "empty_input"
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_an_unknown_part_is_kept_in_an_input() -> None:
    part = UnknownPart("hologram", {"z": 1})
    assert ModelInputEntry((part,)).attachments == (part,)


def test_lone_surrogates_in_an_input_are_replaced() -> None:
    entry = ModelInputEntry.of(Text("a\ud800"), "\udfffb")
    assert entry.parts == (Text("a\ufffd"), Text("\ufffdb"))


# ---------------------------------------------------------------- outputs


def test_an_output_views_its_message() -> None:
    meta = MessageMeta(invocation=INVOCATION, usage=TokenUsage(input_tokens=3))
    said = (Thinking("hm"), Text("a"), ToolCall("c", "f", {"x": 1}), Text("b"), ToolCall.parse("d", "g", "{"))
    entry = ModelOutputEntry(Message(Role.ASSISTANT, said, meta=meta))
    assert entry.contents == ("a", "b")
    assert [call.tool_call_id for call in entry.tool_calls] == ["c", "d"]
    assert entry.tool_calls[0].arguments == {"x": 1}
    assert entry.tool_calls[1].parse_error
    assert entry.tool_calls[1].raw_args_text == "{"
    assert (entry.invocation, entry.usage) == (INVOCATION, meta.usage)


@pytest.mark.parametrize("said", [(), (Thinking("only"),)])
def test_an_output_may_be_empty_or_thinking_only(said: tuple[Any, ...]) -> None:
    entry = ModelOutputEntry(Message(Role.ASSISTANT, said))
    assert entry.messages() == (entry.message,)
    assert (entry.invocation, entry.usage, entry.tool_calls) == (None, None, ())


def test_a_message_without_run_and_time_gets_those_of_its_entry() -> None:
    (message,) = ModelOutputEntry(Message.assistant("a"), **PLACE).messages(LevelOfDetail.GIST)
    assert (message.run_id, message.timestamp) == ("r", NOW)


def test_a_message_with_run_and_time_is_given_out_as_the_same_object() -> None:
    own = Message.assistant("a", run_id="own", timestamp=NOW - timedelta(seconds=1))
    assert ModelOutputEntry(own, **PLACE).messages()[0] is own


def test_an_output_must_be_an_assistant_message() -> None:
    with pytest.raises(InvalidValue, match="assistant message"):
        ModelOutputEntry(Message.user("a"))


# ---------------------------------------------------------------- results


def test_results_give_one_tool_message_each_in_order() -> None:
    failed = result("no", tool_call_id="d", status="failed", error_code="tool_timeout")
    entry = ToolResultsEntry((result(), failed), **PLACE)
    assert entry.messages() == (
        Message.tool(ToolResult("c", "found"), run_id="r", timestamp=NOW),
        Message.tool(ToolResult("d", "no", True), run_id="r", timestamp=NOW),
    )


def test_the_live_screen_is_no_part_of_the_messages() -> None:
    shown = result()
    shown = result(result=shown.result.with_live_section(LIVE_SCREEN, "screen"))
    assert shown.to_result() == ToolResult("c", "found")
    assert shown.without_live_screen() == result()


def test_attachments_of_a_result_are_shown_live_only() -> None:
    pictured = result(attachments=[PICTURE])
    assert pictured.to_result().content == (Text("found"), PICTURE)
    assert pictured.to_result(LevelOfDetail.SUMMARY).content == "found"
    assert result("", attachments=(PICTURE,)).to_result().content == (PICTURE,)


@pytest.mark.parametrize("status", list(ToolExecutionStatus))
@pytest.mark.parametrize("code", [None, *ErrorCode])
def test_a_status_takes_only_the_codes_that_belong_to_it(status: ToolExecutionStatus, code: ErrorCode | None) -> None:
    by_status: dict[str, set[str | None]] = {
        "success": {None},
        "failed": {"tool_failed", "tool_timeout", "invalid_arguments", "unknown_tool"},
        "skipped": {"tool_denied", "tool_interrupted"},
    }
    if code in by_status[status]:
        assert result(status=status, error_code=code).to_result().is_error is (status != "success")
    else:
        with pytest.raises(InvalidValue, match=f"status {status}"):
            result(status=status, error_code=code)


@pytest.mark.parametrize(
    ("content", "sections", "attached"),
    [
        ("text", ("text",), ()),
        ({"b": 1}, ('{"b":1}',), ()),
        ((Text("a"), PICTURE, Text("b")), ("a", "b"), (PICTURE,)),
        ((), (), ()),
    ],
)
def test_a_result_is_made_from_a_part(content: Any, sections: tuple[str, ...], attached: tuple[Any, ...]) -> None:
    made = HistoryToolCallResult.of_result(ToolResult("c", content), "f", elapsed_seconds=0.5)
    assert made.result.live == tuple(Section("", text) for text in sections)
    assert (made.tool_name, made.tool_call_id, made.elapsed_seconds) == ("f", "c", 0.5)
    assert made.attachments == attached
    assert made.status is ToolExecutionStatus.SUCCESS


def test_an_error_part_without_a_code_is_a_failed_tool() -> None:
    made = HistoryToolCallResult.of_result(ToolResult("c", "no", True), "f")
    assert (made.status, made.error_code) == (ToolExecutionStatus.FAILED, ErrorCode.TOOL_FAILED)


def test_the_status_of_a_text_result_follows_from_its_code() -> None:
    denied = HistoryToolCallResult.of_text(CALL, "no", error_code=ErrorCode.TOOL_DENIED)
    assert denied.status is ToolExecutionStatus.SKIPPED
    with pytest.raises(InvalidValue, match="errorCode"):
        HistoryToolCallResult.of_text(CALL, "no", error_code=ErrorCode.OVERLOADED)


def test_a_list_of_results_becomes_a_tuple_in_the_same_order() -> None:
    given = [result("a"), result("b", tool_call_id="d")]
    assert ToolResultsEntry(given).results == tuple(given)  # type: ignore[arg-type]  # a list is taken too
    assert result(attachments=[PICTURE]).attachments == (PICTURE,)


def test_results_must_hold_results_or_an_error() -> None:
    with pytest.raises(IllegalAppend):
        ToolResultsEntry()
    assert ToolResultsEntry((), "no connection").messages() == ()


# ---------------------------------------------------------------- metadata


def test_metadata_cannot_be_changed() -> None:
    given_metadata = {"a": [1, {"b": 2}]}
    entry = ResetEntry(metadata=given_metadata)
    given_metadata["a"].append(3)
    assert entry.metadata == {"a": [1, {"b": 2}]}
    assert entry.metadata["a"] == (1, {"b": 2})
    with pytest.raises(TypeError):
        entry.metadata["c"] = 1  # type: ignore[index]


@pytest.mark.parametrize("size", [2048, 2049])
def test_metadata_over_two_kilobytes_of_json_are_refused_by_name(size: int) -> None:
    metadata = {"k": "x" * (size - len('{"k":""}'))}
    if size <= 2048:
        assert len(ResetEntry(metadata=metadata).metadata) == 1
        return
    with pytest.raises(IllegalAppend) as raised:
        ResetEntry(metadata=metadata)
    assert raised.value.rule == "metadata_too_large"
    assert "xxx" not in str(raised.value)


def test_metadata_are_measured_in_bytes() -> None:
    with pytest.raises(IllegalAppend):
        ResetEntry(metadata={"k": "é" * 1100})


@pytest.mark.parametrize("wrong", [{"a": object()}, {"a": float("nan")}, {1: "a"}, [("a", 1)], "a", {"a": b"x"}])
def test_metadata_must_be_json(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        ResetEntry(metadata=wrong)


def test_metadata_that_hold_themselves_are_refused() -> None:
    round_and_round: dict[str, Any] = {}
    round_and_round["a"] = round_and_round
    with pytest.raises(InvalidValue, match="deep"):
        ResetEntry(metadata=round_and_round)


def test_metadata_survive_copying_and_pickling() -> None:
    metadata = Metadata({"a": [1, {"b": None}]})
    for same in (copy.copy(metadata), copy.deepcopy(metadata), pickle.loads(pickle.dumps(metadata))):
        assert same == metadata
    assert Metadata.of(metadata) is metadata
    assert hash(Metadata({"a": 1, "b": []})) == hash(Metadata({"b": [], "a": 1}))


# ---------------------------------------------------------------- what each kind refuses

ASKED = {"api": "openai-chat", "path": "/v1", "model": "m", "text": "{}"}
ANSWERED = {"request_serial": 0, "status": 200, "packed": b""}

REFUSED: list[tuple[type[HistoryEntry], dict[str, Any]]] = [
    (ResetEntry, {"serial": -2}),
    (ResetEntry, {"serial": "1"}),
    (ResetEntry, {"entry_id": None}),
    (ResetEntry, {"run_id": 1}),
    (ResetEntry, {"metadata": []}),
    (ResetEntry, {"timestamp": datetime(2026, 1, 1)}),
    (ResetEntry, {"extra": {"serial": 3}}),
    (ResetEntry, {"extra": {"schemaVersion": 2}}),
    (ModelInputEntry, {"parts": "text"}),
    (ModelInputEntry, {"parts": 3}),
    (ModelInputEntry, {"parts": (Thinking("x"),)}),
    (ModelInputEntry, {"parts": (None,)}),
    (ModelInputEntry, {"parts": ("text",)}),
    (ModelInputEntry, {"parts": (Text("a"),), "sections": "text"}),
    (ModelOutputEntry, {"message": None}),
    (ToolResultsEntry, {"results": "text"}),
    (ToolResultsEntry, {"results": (ToolResult("c", "x"),)}),
    (ToolResultsEntry, {"results": (), "execute_error": ""}),
    (ToolResultsEntry, {"results": (), "execute_error": " \n"}),
    (SystemInstructionEntry, {"instruction": None}),
    (NotebookEntry, {"content": 3}),
    (NotebookEntry, {"content": "", "operation": "burn"}),
    (CompactionEntry, {"first_serial": 3, "last_serial": 2, "summary": ""}),
    (CompactionEntry, {"first_serial": -1, "last_serial": 2, "summary": ""}),
    (CompactionEntry, {"first_serial": 1, "last_serial": 2, "summary": None}),
    (CompactionEntry, {"first_serial": 1, "last_serial": 2, "summary": "", "usage": {}}),
    (CompactionEntry, {"first_serial": 1, "last_serial": 2, "summary": "", "invocation": "m"}),
    (InterruptionEntry, {"reason": "boredom"}),
    (InterruptionEntry, {"reason": "timeout", "partial": Message.user("a")}),
    (ApprovalAskedEntry, {"tool_call_id": "", "tool_name": "f"}),
    (ApprovalAskedEntry, {"tool_call_id": "c", "tool_name": ""}),
    (ApprovalAnsweredEntry, {"tool_call_id": "c", "approved": 1}),
    (ApprovalAnsweredEntry, {"tool_call_id": "c", "approved": True, "by": "chance"}),
    (ApprovalAnsweredEntry, {"tool_call_id": "c", "approved": True, "arguments": []}),
    (ApprovalAnsweredEntry, {"tool_call_id": "c", "approved": False, "arguments": {}}),
    (QuestionAskedEntry, {"question_id": "", "tool_call_id": "c", "text": "a"}),
    (QuestionAskedEntry, {"question_id": "q", "tool_call_id": "c", "text": 1}),
    (QuestionAskedEntry, {"question_id": "q", "tool_call_id": "c", "text": "a", "schema": []}),
    (QuestionAnsweredEntry, {"question_id": "q", "action": "shrug"}),
    (QuestionAnsweredEntry, {"question_id": "q", "action": "accept", "by": "chance"}),
    (QuestionAnsweredEntry, {"question_id": "q", "action": "decline", "content": {}}),
    (SamplingEntry, {"tool_call_id": "", "messages": ()}),
    (SamplingEntry, {"tool_call_id": "c", "messages": ("a",)}),
    (SamplingEntry, {"tool_call_id": "c", "messages": (), "answer": Message.user("a")}),
    (SamplingEntry, {"tool_call_id": "c", "messages": (), "error_code": "boredom"}),
    (ToolStartedEntry, {"tool_call_id": "c", "tool_name": "f", "idempotent": None}),
    (ToolFinishedEntry, {"result": None}),
    (RunFinishedEntry, {"status": "done"}),
    (RunFinishedEntry, {"status": "completed", "error_code": "timeout"}),
    (RunFinishedEntry, {"status": "failed", "error_code": "bad"}),
    (InterruptionEntry, {"reason": "timeout", "message": 1}),
    (InterruptionEntry, {"reason": "timeout", "provider_message": 1}),
    (ApprovalAskedEntry, {"tool_call_id": "c", "tool_name": "f", "reason": 1}),
    (ApprovalAnsweredEntry, {"tool_call_id": "c", "approved": True, "reason": 1}),
    (RunFinishedEntry, {"status": "failed", "message": 1}),
    (SteeringEntry, {"parts": 3}),
    (SteeringEntry, {"parts": (Text("a"),), "sections": "text"}),
    (SteeringEntry, {"parts": ()}),
    (RunRequestedEntry, {"agent": ""}),
    (RunRequestedEntry, {"agent": "a\n"}),
    (RunRequestedEntry, {"agent": "a" * 201}),
    (RunRequestedEntry, {"agent": "a", "run_id": "\0"}),
    (RunRequestedEntry, {"agent": "a", "parts": 3}),
    (RunRequestedEntry, {"agent": "a", "sections": "text"}),
    (RunRequestedEntry, {"agent": "a", "key": 1}),
    (RunRequestedEntry, {"agent": "a", "key": " "}),
    (RunRequestedEntry, {"agent": "a", "key": "\ud800"}),
    (RunRequestedEntry, {"agent": "a\udfff"}),
    (RunRequestedEntry, {"agent": "a", "run_id": "\ud800"}),
    (AbortRequestedEntry, {"reason": 1}),
    (TakeoverEntry, {"owner": 1, "previous": "a"}),
    (TakeoverEntry, {"owner": "a", "previous": 1}),
    (ClientRequestEntry, {**ASKED, "api": ""}),
    (ClientRequestEntry, {**ASKED, "path": 1}),
    (ClientRequestEntry, {**ASKED, "path": ""}),
    (ClientRequestEntry, {**ASKED, "model": None}),
    (ClientRequestEntry, {**ASKED, "text": b"{}"}),
    (ClientRequestEntry, {**ASKED, "method": ""}),
    (ClientRequestEntry, {**ASKED, "client": 1}),
    (ClientRequestEntry, {**ASKED, "base_serial": -1}),
    (ClientRequestEntry, {**ASKED, "base_serial": 1, "prefix": -1}),
    (ClientRequestEntry, {**ASKED, "base_serial": 1, "suffix": -1}),
    (ClientRequestEntry, {**ASKED, "prefix": 1}),
    (ClientRequestEntry, {**ASKED, "suffix": 1}),
    (ClientRequestEntry, {**ASKED, "headers": [("a", "b")]}),
    (ClientRequestEntry, {**ASKED, "headers": {"a": 1}}),
    (ClientRequestEntry, {**ASKED, "headers": {1: "a"}}),
    (ClientRequestEntry, {**ASKED, "headers": {f"a{number}": "" for number in range(101)}}),
    (ClientRequestEntry, {**ASKED, "marks": "word"}),
    (ClientRequestEntry, {**ASKED, "marks": (1,)}),
    (ClientRequestEntry, {**ASKED, "marks": (" ",)}),
    (ClientRequestEntry, {**ASKED, "marks": ("a\n",)}),
    (ClientRequestEntry, {**ASKED, "marks": ("a" * 201,)}),
    (ClientRequestEntry, {**ASKED, "marks": tuple("123456789")}),
    (ClientAnswerEntry, {**ANSWERED, "request_serial": -1}),
    (ClientAnswerEntry, {**ANSWERED, "request_serial": None}),
    (ClientAnswerEntry, {**ANSWERED, "status": 1000}),
    (ClientAnswerEntry, {**ANSWERED, "status": "200"}),
    (ClientAnswerEntry, {**ANSWERED, "packed": "text"}),
    (ClientAnswerEntry, {**ANSWERED, "model": 1}),
    (ClientAnswerEntry, {**ANSWERED, "is_whole": 1}),
    (ClientAnswerEntry, {**ANSWERED, "headers": None}),
    (ClientAnswerEntry, {**ANSWERED, "marks": None}),
    (ToolSetEntry, {"invocation": None}),
    (ToolSetEntry, {"invocation": INVOCATION, "digests": "0" * 32}),
    (ToolSetEntry, {"invocation": INVOCATION, "digests": ("0" * 31,)}),
    (ToolSetEntry, {"invocation": INVOCATION, "offered": "all"}),
    (ToolSetEntry, {"invocation": INVOCATION, "specs": ({"name": "f"},)}),
    (ToolSetEntry, {"invocation": INVOCATION, "specs": None}),
    (ToolSetEntry, {"invocation": INVOCATION, "system": 1}),
    (ToolSetEntry, {"invocation": INVOCATION, "settings": []}),
    (ToolSetEntry, {"invocation": INVOCATION, "settings": {"a": object()}}),
    (ToolSetEntry, {"invocation": INVOCATION, "text_calls": None}),
    (ToolSetEntry, {"invocation": INVOCATION, "withheld": "media"}),
    (ToolSetEntry, {"invocation": INVOCATION, "withheld": (1,)}),
    (ToolSetEntry, {"invocation": INVOCATION, "result_limit_bytes": 0}),
    (ToolSetEntry, {"invocation": INVOCATION, "policy": 1}),
    (EpochEntry, {"version": 1, "reason": 1}),
    (EpochEntry, {"version": "1", "reason": ""}),
    (EpochEntry, {"version": 1, "reason": "", "choices": None}),
    (UnknownEntry, {"kind": "reset", "payload": {}}),
    (UnknownEntry, {"kind": "", "payload": {}}),
    (UnknownEntry, {"kind": "later", "payload": []}),
]


@pytest.mark.parametrize(("entry_class", "fields"), REFUSED)
def test_a_value_that_its_kind_forbids_is_refused(entry_class: type[HistoryEntry], fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        entry_class(**fields)


@pytest.mark.parametrize("field", ["tool_name", "tool_call_id", "result", "elapsed_seconds", "attachments", "status"])
def test_a_result_refuses_a_wrong_field(field: str) -> None:
    with pytest.raises(InvalidValue):
        result("x", **{field: -1})


def test_entries_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ResetEntry().serial = 3  # type: ignore[misc]


def test_an_interruption_keeps_the_providers_words_without_secrets_and_capped() -> None:
    key = "sk-" + "a1" * 20
    entry = InterruptionEntry(ErrorCode.AUTHENTICATION, provider_message=f"bad key {key}, " + "x" * 10_000)
    assert key not in entry.provider_message
    assert entry.provider_message.startswith("bad key ")
    assert len(entry.provider_message) == PROVIDER_MESSAGE_LIMIT
    assert (entry.message, InterruptionEntry(ErrorCode.TIMEOUT).provider_message) == ("", "")


def test_lone_surrogates_in_an_interruption_are_replaced() -> None:
    entry = InterruptionEntry(ErrorCode.TIMEOUT, "\ud800", provider_message="\udc00")
    assert (entry.message, entry.provider_message) == ("\ufffd", "\ufffd")


def test_times_are_kept_in_utc() -> None:
    entry = ResetEntry(timestamp=datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert entry.timestamp == datetime(2026, 1, 1, 10, tzinfo=UTC)
