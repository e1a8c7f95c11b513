"""Entries: what each kind holds and refuses, the messages it gives, its JSON form there and back."""

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import (
    ErrorCode,
    FileRef,
    Image,
    InvalidValue,
    Message,
    Role,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    UnreadableData,
)
from dragoman.errors import IllegalAppend
from dragoman.history import (
    LIVE_SCREEN,
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    CompactionEntry,
    ContextMessageRole,
    EpochEntry,
    HistoryEntry,
    HistoryEntryKind,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    Metadata,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    NotebookOperation,
    ResetEntry,
    RunFinishedEntry,
    RunStartedEntry,
    RunStatus,
    Section,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolExecutionStatus,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    UnknownEntry,
    entry_from_json,
    entry_to_json,
)
from dragoman.message import MessageMeta, ModelInvocationDescriptor, UnknownPart
from dragoman.testing import histories

NOW = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
PLACE: dict[str, Any] = {"serial": 7, "entry_id": "s:7", "timestamp": NOW, "run_id": "r"}
HEAD = '{"serial":7,"id":"s:7","kind":"%s","timestamp":"2026-11-15T08:30:00Z","runId":"r","payload":'
PICTURE = Image("image/png", b"\x00\xff")
INVOCATION = ModelInvocationDescriptor("p", "s", "m")
CALL = ToolCall(tool_name="f", tool_call_id="c", raw_args_text="{}", arguments={})
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def result(text: str = "found", **fields: Any) -> HistoryToolCallResult:
    levels = LevelOfDetailSections.of_text(text)
    return HistoryToolCallResult(**{"tool_name": "f", "tool_call_id": "c", "result": levels, **fields})


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
    assert tuple(section.value for section in made.result.live) == sections
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

REFUSED: list[tuple[type[HistoryEntry], dict[str, Any]]] = [
    (ResetEntry, {"serial": -2}),
    (ResetEntry, {"serial": "1"}),
    (ResetEntry, {"entry_id": None}),
    (ResetEntry, {"run_id": 1}),
    (ResetEntry, {"timestamp": datetime(2026, 1, 1)}),
    (ResetEntry, {"extra": {"serial": 3}}),
    (ModelInputEntry, {"parts": "text"}),
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
    (ToolStartedEntry, {"tool_call_id": "c", "tool_name": "f", "idempotent": None}),
    (ToolFinishedEntry, {"result": None}),
    (RunFinishedEntry, {"status": "done"}),
    (RunFinishedEntry, {"status": "completed", "error_code": "timeout"}),
    (RunFinishedEntry, {"status": "failed", "error_code": "bad"}),
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


def test_times_are_kept_in_utc() -> None:
    entry = ResetEntry(timestamp=datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert entry.timestamp == datetime(2026, 1, 1, 10, tzinfo=UTC)


# ---------------------------------------------------------------- JSON, byte for byte

MESSAGE = '{"runId":"","role":"assistant","parts":[{"kind":"text","payload":{"text":"a"}}]}'
RESULT = '{"toolName":"f","toolCallId":"c","status":"success","result":{"live":[["","found"]]}}'
FORMS: list[tuple[HistoryEntry, str]] = [
    (ModelInputEntry((Text("hi"),), **PLACE), '{"parts":[{"kind":"text","payload":{"text":"hi"}}]}'),
    (ModelOutputEntry(Message.assistant("a"), **PLACE), f'{{"message":{MESSAGE}}}'),
    (ToolResultsEntry((result(),), **PLACE), f'{{"results":[{RESULT}]}}'),
    (
        ToolResultsEntry(
            (result(status="failed", error_code="tool_failed", elapsed_seconds=0.5, attachments=(PICTURE,)),),
            "all failed",
            **PLACE,
        ),
        (
            '{"results":[{"toolName":"f","toolCallId":"c","status":"failed","elapsedSeconds":0.5,'
            '"errorCode":"tool_failed","attachments":[{"kind":"image","payload":{"mimeType":"image/png","data":"AP8="}}]'
            ',"result":{"live":[["","found"]]}}],"executeError":"all failed"}'
        ),
    ),
    (SystemInstructionEntry("", **PLACE), '{"instruction":""}'),
    (NotebookEntry("n", NotebookOperation.APPEND, **PLACE), '{"content":"n","operation":"append"}'),
    (
        CompactionEntry(0, 3, "short", INVOCATION, TokenUsage(input_tokens=2), **PLACE),
        (
            '{"firstSerial":0,"lastSerial":3,"summary":"short",'
            '"invocation":{"provider":"p","specification":"s","model":"m"},"usage":{"inputTokens":2}}'
        ),
    ),
    (
        InterruptionEntry(ErrorCode.TIMEOUT, "slow", Message.assistant("a"), **PLACE),
        f'{{"reason":"timeout","message":"slow","partial":{MESSAGE}}}',
    ),
    (ApprovalAskedEntry("c", "f", "why", **PLACE), '{"toolCallId":"c","toolName":"f","reason":"why"}'),
    (
        ApprovalAnsweredEntry("c", True, "ok", {"b": 1}, **PLACE),
        '{"toolCallId":"c","approved":true,"reason":"ok","arguments":{"b":1},"by":"person"}',
    ),
    (ToolStartedEntry("c", "f", **PLACE), '{"toolCallId":"c","toolName":"f","idempotent":false}'),
    (ToolFinishedEntry(result(), **PLACE), f'{{"result":{RESULT}}}'),
    (RunStartedEntry(**PLACE), "{}"),
    (SteeringEntry((Text("Stop."),), **PLACE), '{"parts":[{"kind":"text","payload":{"text":"Stop."}}]}'),
    (AbortRequestedEntry("enough", **PLACE), '{"reason":"enough"}'),
    (
        TakeoverEntry("process 2 on b", "process 1 on a", **PLACE),
        '{"owner":"process 2 on b","previous":"process 1 on a"}',
    ),
    (
        ModelInputEntry((Text("Stop."),), steering_serial=3, **PLACE),
        '{"parts":[{"kind":"text","payload":{"text":"Stop."}}],"steeringSerial":3}',
    ),
    (RunFinishedEntry(RunStatus.FAILED, ErrorCode.TIMEOUT, **PLACE), '{"status":"failed","errorCode":"timeout"}'),
    (EpochEntry(2, "budget", {"a": [1]}, **PLACE), '{"version":2,"reason":"budget","choices":{"a":[1]}}'),
    (ResetEntry(**PLACE), "{}"),
    (UnknownEntry("later", {"z": None}, **PLACE), '{"z":null}'),
]


@pytest.mark.parametrize(("entry", "payload"), FORMS, ids=[f"{entry.kind}-{at}" for at, (entry, _) in enumerate(FORMS)])
def test_an_entry_is_written_as_documented_and_read_back(entry: HistoryEntry, payload: str) -> None:
    written = HEAD % entry.kind + payload + "}"
    assert entry_to_json(entry).decode() == written
    assert entry_from_json(written) == entry


def test_every_kind_has_a_documented_form() -> None:
    assert {str(entry.kind) for entry, _ in FORMS} == {*HistoryEntryKind, "later"}


def test_metadata_are_written_and_what_is_empty_is_not() -> None:
    entry = ResetEntry(serial=0, entry_id="s:0", metadata={"a": [1, {"b": 2}]})
    assert entry_to_json(entry) == b'{"serial":0,"id":"s:0","kind":"reset","metadata":{"a":[1,{"b":2}]},"payload":{}}'
    assert entry_from_json(entry_to_json(entry)) == entry


# ---------------------------------------------------------------- texts are written once


def payload_of(entry: HistoryEntry) -> Any:
    return json.loads(entry_to_json(entry))["payload"]


def test_a_level_equal_to_live_is_not_written_again() -> None:
    assert payload_of(ToolFinishedEntry(result("x")))["result"]["result"] == {"live": [["", "x"]]}


def test_a_level_equal_to_live_but_for_the_live_screen_is_not_written_again() -> None:
    shown = result(result=result("x").result.with_live_section(LIVE_SCREEN, "screen"))
    entry = ToolFinishedEntry(shown)
    assert payload_of(entry)["result"]["result"] == {"live": [["", "x"], [LIVE_SCREEN, "screen"]]}
    assert entry_from_json(entry_to_json(entry)) == entry


def test_a_text_of_another_level_is_pointed_at() -> None:
    levels = LevelOfDetailSections(
        (Section("a", "one"), Section("b", "two")),
        (Section("k", "two"), Section("", "three")),
        (Section("", "three"), Section("", "")),
    )
    entry = ToolFinishedEntry(result(result=levels))
    assert payload_of(entry)["result"]["result"] == {
        "live": [["a", "one"], ["b", "two"]],
        "summary": [["k", {"live": 1}], ["", "three"]],
        "gist": [["", {"summary": 1}], ["", ""]],
    }
    assert entry_from_json(entry_to_json(entry)) == entry


def test_the_texts_of_an_input_are_written_once() -> None:
    entry = ModelInputEntry.of("one", "two")
    assert "sections" not in payload_of(entry)
    shown = ModelInputEntry(entry.parts, entry.sections.with_live_section(LIVE_SCREEN, "screen"))
    assert payload_of(shown)["sections"] == {"live": [["", {"part": 0}], ["", {"part": 1}], [LIVE_SCREEN, "screen"]]}
    assert entry_from_json(entry_to_json(shown)) == shown


# ---------------------------------------------------------------- there and back


@given(histories.entries())
@unhurried
def test_every_entry_survives_json(entry: HistoryEntry) -> None:
    written = entry_to_json(entry)
    again = entry_from_json(written)
    assert again == entry
    assert entry_to_json(again) == written


@given(histories.entries(text=st.text(st.characters(), max_size=8)))
@unhurried
def test_any_text_can_be_written_and_reads_the_same_from_then_on(entry: HistoryEntry) -> None:
    read = entry_from_json(entry_to_json(entry))
    assert entry_from_json(entry_to_json(read)) == read


@given(histories.entries())
@unhurried
def test_every_entry_survives_pickling_and_copying(entry: HistoryEntry) -> None:
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert copy.deepcopy(entry) == entry


@given(histories.entries(), st.data())
@unhurried
def test_fields_of_a_later_version_are_written_back(entry: HistoryEntry, data: st.DataObject) -> None:
    value = json.loads(entry_to_json(entry))
    places = [value, value["payload"]]
    if entry.kind == "tool_result":
        places += value["payload"]["results"] + [each["result"] for each in value["payload"]["results"]]
    if entry.kind == "model_output":
        places.append(value["payload"]["message"])
    place = data.draw(st.sampled_from(places))
    place["aFieldOfTheFuture"] = {"x": [1]}
    assert json.loads(entry_to_json(entry_from_json(json.dumps(value)))) == value


# ---------------------------------------------------------------- what cannot be read; test_schema.py has more


def placed(document: str) -> str:
    """Return the document with a place in a session."""
    return '{"serial":0,"id":"s:0",' + document.removeprefix("{")


UNREADABLE = [
    "[]",
    "3",
    "{}",
    '{"kind":"reset","payload":{},"id":"s:0","serial":"x"}',
    '{"kind":"reset","payload":{},"id":"s:0","serial":1.5}',
    '{"kind":"reset","payload":{}}',
    '{"kind":"reset","payload":{},"id":7,"serial":0}',
    '{"runId":"r","seq":0,"kind":"text","payload":{"textDelta":"a"}}',
    *map(
        placed,
        [
            '{"kind":"reset","payload":[]}',
            '{"kind":7,"payload":{}}',
            '{"kind":"reset","payload":{},"timestamp":"yesterday"}',
            '{"kind":"reset","payload":{},"timestamp":"2026-01-01T00:00:00"}',
            '{"kind":"system_instruction","payload":{}}',
            '{"kind":"model_input","payload":{"parts":"x"}}',
            '{"kind":"model_input","payload":{"parts":[3]}}',
            '{"kind":"model_input","payload":{"parts":[{"kind":"text","payload":{"text":"x"}}],"sections":[]}}',
            '{"kind":"model_output","payload":{"message":"x"}}',
            '{"kind":"tool_result","payload":{"results":[{"toolName":"f","toolCallId":"c","result":{"live":[["",{"live":0}]]}}]}}',
            '{"kind":"tool_result","payload":{"results":[{"toolName":"f","toolCallId":"c","result":{"live":[["",{"x":[]}]]}}]}}',
            '{"kind":"tool_result","payload":{"results":[{"toolName":"f","toolCallId":"c","result":{"live":[["",3]]}}]}}',
            '{"kind":"tool_result","payload":{"results":[{"toolName":"f","toolCallId":"c","result":{"live":[],"gist":{}}}]}}',
            '{"kind":"tool_finished","payload":{"result":null}}',
            '{"kind":"tool_finished","payload":{"result":3}}',
            '{"kind":"compaction","payload":{"firstSerial":0,"lastSerial":1,"summary":"s","usage":{"inputTokens":-1}}}',
            '{"kind":"run_finished","payload":{"status":{}}}',
            '{"kind":"approval_answered","payload":{"toolCallId":"c","approved":"yes"}}',
            '{"kind":"reset","payload":{},"schemaVersion":0}',
            '{"kind":"reset","payload":{}',
        ],
    ),
]


@pytest.mark.parametrize("data", UNREADABLE)
def test_what_is_no_entry_is_unreadable_and_never_anything_else(data: str) -> None:
    with pytest.raises(UnreadableData) as raised:
        entry_from_json(data)
    assert raised.value.code is ErrorCode.CORRUPT


def test_an_entry_of_a_later_schema_is_too_new() -> None:
    with pytest.raises(UnreadableData) as raised:
        entry_from_json('{"kind":"reset","payload":{},"schemaVersion":99}')
    assert raised.value.code is ErrorCode.TOO_NEW


def test_an_unreadable_entry_is_not_quoted() -> None:
    with pytest.raises(UnreadableData) as raised:
        entry_from_json(placed('{"kind":"notebook","payload":{"content":"x","operation":"my secret"}}'))
    assert "secret" not in str(raised.value)


def test_only_bytes_or_text_are_read_and_only_entries_written() -> None:
    with pytest.raises(InvalidValue):
        entry_from_json({"kind": "reset"})  # type: ignore[arg-type]
    for wrong in (Message.user("x"), HistoryEntry()):
        with pytest.raises(InvalidValue):
            entry_to_json(wrong)  # type: ignore[arg-type]


@given(histories.entries(), st.data())
@unhurried
def test_a_damaged_entry_reads_as_something_or_is_unreadable(entry: HistoryEntry, data: st.DataObject) -> None:
    written = entry_to_json(entry)
    cut = data.draw(st.integers(0, len(written)))
    for damaged in (written[:cut], written[:cut] + data.draw(st.binary(min_size=1, max_size=2)) + written[cut + 1 :]):
        try:
            entry_from_json(damaged)
        except UnreadableData:
            pass
