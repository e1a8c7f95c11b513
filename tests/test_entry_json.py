"""Entries in JSON: each byte of their form, there and back, and what cannot be read."""

import copy
import json
import pickle
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import ErrorCode, InvalidValue, Message, Text, TokenUsage, ToolSpec, UnreadableData
from dragoman.history import (
    LIVE_SCREEN,
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryEntryKind,
    InterruptionEntry,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    NotebookOperation,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SamplingEntry,
    Section,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
    entry_from_json,
    entry_to_json,
    tool_digest,
)
from dragoman.testing import histories
from tests.entry_cases import INVOCATION, PICTURE, PLACE, result

HEAD = '{"serial":7,"id":"s:7","kind":"%s","timestamp":"2026-11-15T08:30:00Z","runId":"r","payload":'
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# ---------------------------------------------------------------- JSON, byte for byte


MESSAGE = '{"runId":"","role":"assistant","parts":[{"kind":"text","payload":{"text":"a"}}]}'
RESULT = '{"toolName":"f","toolCallId":"c","status":"success","result":{"live":[["","found"]]}}'
SPEC = ToolSpec("look", "Look.")
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
    (
        QuestionAskedEntry("q", "c", "Which?", {"type": "object"}, "https://a.example", "official", **PLACE),
        (
            '{"questionId":"q","toolCallId":"c","text":"Which?","schema":{"type":"object"},'
            '"url":"https://a.example","origin":"official"}'
        ),
    ),
    (
        QuestionAnsweredEntry("q", QuestionAction.ACCEPT, {"b": 1}, **PLACE),
        '{"questionId":"q","action":"accept","content":{"b":1},"by":"person"}',
    ),
    (
        SamplingEntry("c", (Message.assistant("a"),), "brief", Message.assistant("a"), ErrorCode.OUTPUT_CUT, **PLACE),
        (f'{{"toolCallId":"c","messages":[{MESSAGE}],"system":"brief","answer":{MESSAGE},"errorCode":"output_cut"}}'),
    ),
    (ToolStartedEntry("c", "f", **PLACE), '{"toolCallId":"c","toolName":"f","idempotent":false}'),
    (ToolFinishedEntry(result(), **PLACE), f'{{"result":{RESULT}}}'),
    (RunStartedEntry(**PLACE), "{}"),
    (SteeringEntry((Text("Stop."),), **PLACE), '{"parts":[{"kind":"text","payload":{"text":"Stop."}}]}'),
    (
        RunRequestedEntry("support", (Text("Help."),), None, "k1", **PLACE),
        '{"agent":"support","parts":[{"kind":"text","payload":{"text":"Help."}}],"key":"k1"}',
    ),
    (RunRequestedEntry("support", **PLACE), '{"agent":"support","parts":[]}'),
    (AbortRequestedEntry("enough", **PLACE), '{"reason":"enough"}'),
    (
        TakeoverEntry("process 2 on b", "process 1 on a", **PLACE),
        '{"owner":"process 2 on b","previous":"process 1 on a"}',
    ),
    (
        ClientRequestEntry("openai-chat", "/v1", "m", "{}", headers={"a": "b"}, client="k", marks=("w",), **PLACE),
        (
            '{"api":"openai-chat","path":"/v1","model":"m","text":"{}","prefix":0,"suffix":0,"headers":{"a":"b"},'
            '"method":"POST","client":"k","marks":["w"]}'
        ),
    ),
    (
        ClientRequestEntry("openai-chat", "/v1", "m", "new", 3, 20, 1, **PLACE),
        (
            '{"api":"openai-chat","path":"/v1","model":"m","text":"new","baseSerial":3,"prefix":20,"suffix":1,'
            '"headers":{},"method":"POST","marks":[]}'
        ),
    ),
    (
        ClientAnswerEntry(3, 200, zlib.compress(b"", 1), {"a": "b"}, "p:m", False, ("w",), **PLACE),
        (
            '{"requestSerial":3,"status":200,"packed":"eAEDAAAAAAE=","headers":{"a":"b"},"model":"p:m","isWhole":false,'
            '"marks":["w"]}'
        ),
    ),
    (
        ModelInputEntry((Text("Stop."),), steering_serial=3, **PLACE),
        '{"parts":[{"kind":"text","payload":{"text":"Stop."}}],"steeringSerial":3}',
    ),
    (RunFinishedEntry(RunStatus.FAILED, ErrorCode.TIMEOUT, **PLACE), '{"status":"failed","errorCode":"timeout"}'),
    (EpochEntry(2, "budget", {"a": [1]}, **PLACE), '{"version":2,"reason":"budget","choices":{"a":[1]}}'),
    (
        ToolSetEntry(
            INVOCATION, (tool_digest(SPEC),), (SPEC,), system="Be.", settings={"topP": 0.5, "apiKey": "k"}, **PLACE
        ),
        (
            '{"invocation":{"provider":"p","specification":"s","model":"m"},'
            f'"digests":["{tool_digest(SPEC)}"],"specs":[{{"name":"look","description":"Look.","parameterSchema":'
            '{"type":"object","properties":{}}}],'
            '"system":"Be.","settings":{"topP":0.5,"apiKey":"[redacted]"},"withheld":[],"resultLimitBytes":256000}'
        ),
    ),
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


@pytest.mark.parametrize("said", [("other",), ("one", "other"), ("one",), ("one", "two", "three"), ()])
def test_sections_that_say_something_else_than_the_parts_are_written(said: tuple[str, ...]) -> None:
    sections = LevelOfDetailSections.create_uniform([("", text) for text in said])
    entry = ModelInputEntry((Text("one"), Text("two")), sections)
    assert "sections" in payload_of(entry)
    assert entry_from_json(entry_to_json(entry)) == entry


def test_fields_that_a_later_version_adds_to_sections_are_written_back() -> None:
    written = entry_to_json(ModelInputEntry((Text("one"),), LevelOfDetailSections.of_text("two"), **PLACE))
    later = written.replace(b'"sections":{', b'"sections":{"tiny":[["","t"]],')
    entry = entry_from_json(later)
    assert entry.extra == {"payload": {"sections": {"tiny": [["", "t"]]}}}
    assert json.loads(entry_to_json(entry)) == json.loads(later)


def test_an_entry_without_one_of_its_fields_is_unreadable_and_the_field_is_named() -> None:
    written = json.loads(entry_to_json(CompactionEntry(0, 1, "short", **PLACE)))
    del written["payload"]["summary"]
    with pytest.raises(UnreadableData, match="compaction entry: summary is missing"):
        entry_from_json(json.dumps(written))


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
