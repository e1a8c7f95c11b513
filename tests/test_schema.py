"""The published schema: valid itself, true of everything that is written, and false of what is broken."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dragoman import ErrorCode, FinishReason, Message, MessageDelta, Role, UnreadableData, from_json, to_json
from dragoman.cli import main
from dragoman.delta import DELTA_CLASSES
from dragoman.history import AgentState, HistoryEntry, entry_from_json, entry_to_json
from dragoman.history.entries import ENTRY_CLASSES
from dragoman.jsonform import SCHEMA_VERSION
from dragoman.message import PART_CLASSES
from dragoman.schema import json_schema
from dragoman.testing import histories, strategies

PUBLISHED = Path(__file__).parents[1] / "docs" / f"schema-v{SCHEMA_VERSION}.json"
SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
AS = {name: Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{name}"}]}) for name in SCHEMA["$defs"]}
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def delta(kind: str, payload: Any, **more: Any) -> dict[str, Any]:
    return {"runId": "r", "seq": 0, "kind": kind, "payload": payload, **more}


def part(kind: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": payload}


def message(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {"runId": "r", "role": role, "parts": list(parts), **more}


def entry(kind: str, payload: Any, **more: Any) -> dict[str, Any]:
    return {"serial": 0, "id": "s:0", "kind": kind, "payload": payload, **more}


def finished(**changes: Any) -> dict[str, Any]:
    fields = {"toolName": "f", "toolCallId": "c", "status": "success", "result": {"live": [["", "found"]]}}
    return entry("tool_finished", {"result": {**fields, **changes}})


RESULT = part("tool_result", toolCallId="c", isError=False, content="found")


def test_the_published_file_is_what_the_command_prints() -> None:
    printed = subprocess.run([sys.executable, "-m", "dragoman", "schema"], capture_output=True, check=True).stdout
    regenerate = f"regenerate it: python -m dragoman schema > docs/{PUBLISHED.name}"
    assert PUBLISHED.read_bytes() == printed.replace(b"\r\n", b"\n"), regenerate


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_carries_its_version() -> None:
    assert SCHEMA["version"] == SCHEMA_VERSION
    assert SCHEMA["$id"].endswith(f"v{SCHEMA_VERSION}")


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for item in value.values() for found in references(item)]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    assert {name.removeprefix("#/$defs/") for name in references(SCHEMA)} <= SCHEMA["$defs"].keys()


def test_the_schema_names_every_kind_and_every_code() -> None:
    definitions = SCHEMA["$defs"]
    for name, kinds in (("part", PART_CLASSES), ("delta", DELTA_CLASSES), ("entry", ENTRY_CLASSES)):
        assert {f"{name}.{kind}" for kind in kinds} <= definitions.keys()
    assert set(definitions["ErrorCode"]["enum"]) == {code.value for code in ErrorCode}
    assert set(definitions["FinishReason"]["enum"]) == {reason.value for reason in FinishReason}


def test_the_schema_hides_how_unknown_fields_are_kept() -> None:
    assert '"extra"' not in json.dumps(SCHEMA)


@given(strategies.messages())
@settings(unhurried, max_examples=60)
def test_every_message_that_is_written_is_valid(value: Message) -> None:
    VALIDATOR.validate(json.loads(to_json(value)))


@given(strategies.deltas())
@settings(unhurried, max_examples=60)
def test_every_delta_that_is_written_is_valid(value: MessageDelta) -> None:
    VALIDATOR.validate(json.loads(to_json(value)))


@pytest.mark.slow
@given(histories.entries())
@unhurried
def test_every_entry_that_is_written_is_valid(value: HistoryEntry) -> None:
    VALIDATOR.validate(json.loads(entry_to_json(value)))


@given(histories.legal_histories(min_steps=10, max_steps=20))
@settings(unhurried, max_examples=10)
def test_every_entry_of_a_session_is_valid_as_an_entry_and_as_nothing_else(state: AgentState) -> None:
    for value in state.entries:
        written = json.loads(entry_to_json(value))
        valid = [AS[name].is_valid(written) for name in ("HistoryEntry", "Message", "MessageDelta")]
        assert valid == [True, False, False]


@given(strategies.messages(text=st.text(st.characters(), max_size=6)))
@settings(unhurried, max_examples=30)
def test_a_message_that_held_lone_surrogates_is_valid_too(value: Message) -> None:
    VALIDATOR.validate(json.loads(to_json(value)))


VALID = [
    message("user", part("text", text="a"), schemaVersion=1, meta={}, timestamp="2026-11-15T08:30:00Z"),
    message("tool", RESULT),
    message("user", part("hologram", anything=1), new=1),
    message(
        "user", {**part("text", text="a", new=1), "new": 1}, meta={"usage": {"inputTokens": 1, "new": 1}, "new": 1}
    ),
    delta("hologram", {"anything": 1}),
    delta("text", {"textDelta": "a", "new": 1}, new=1),
    delta("start", {"modelId": "m", "requestId": "q"}),
    delta("usage", {}),
]


@pytest.mark.parametrize("document", VALID, ids=lambda document: document.get("role") or document["kind"])
def test_a_document_of_this_or_a_later_version_is_valid_and_readable(document: Any) -> None:
    VALIDATOR.validate(document)
    from_json(json.dumps(document))


BROKEN: dict[str, Any] = {
    "not an object": [],
    "an empty object": {},
    "a message without a role": {"runId": "r", "parts": []},
    "a message without parts": {"runId": "r", "role": "user"},
    "an unknown role": message("robot"),
    "parts that are no array": {"runId": "r", "role": "user", "parts": {}},
    "a part that is text": message("user", "hello"),
    "a part without a kind": message("user", {"payload": {"text": "a"}}),
    "a part without a payload": message("user", {"kind": "text"}),
    "a payload that is text": message("user", {"kind": "text", "payload": "a"}),
    "text without text": message("user", part("text")),
    "text that is a number": message("user", part("text", text=5)),
    "a tool message without a result": message("tool"),
    "two tool results": message("tool", RESULT, RESULT),
    "a result without an id": message("tool", part("tool_result", isError=False, content="")),
    "a result without content": message("tool", part("tool_result", toolCallId="c", isError=False)),
    "a result that is a number": message("tool", part("tool_result", toolCallId="c", isError=False, content=5)),
    "a result that holds thinking": message(
        "tool", part("tool_result", toolCallId="c", isError=False, content=[part("thinking", text="a")])
    ),
    "an error flag that is a number": message("tool", part("tool_result", toolCallId="c", isError=1, content="")),
    "a call without a name": message("assistant", part("tool_call", toolCallId="c", arguments={}, rawArgsText="")),
    "a call with a list of arguments": message(
        "assistant", part("tool_call", toolCallId="c", toolName="f", arguments=[], rawArgsText="[]")
    ),
    "a call with neither arguments nor an error": message(
        "assistant", part("tool_call", toolCallId="c", toolName="f", rawArgsText="")
    ),
    "a call with both arguments and an error": message(
        "assistant", part("tool_call", toolCallId="c", toolName="f", arguments={}, rawArgsText="", parseError="bad")
    ),
    "a call with an empty id": message(
        "assistant", part("tool_call", toolCallId="", toolName="f", arguments={}, rawArgsText="{}")
    ),
    "an image of nothing": message("user", part("image", mimeType="image/png")),
    "an image of two things": message("user", part("image", mimeType="image/png", url="u", data="AA==")),
    "image bytes without a type": message("user", part("image", data="AA==")),
    "a file of nothing": message("user", part("file_ref", name="n")),
    "a file of two things": message("user", part("file_ref", path="p", url="u")),
    "a file of a negative size": message("user", part("file_ref", path="p", size=-1)),
    "a provider item without its type": message("assistant", part("provider_item", item={})),
    "a meta that is text": message("user", meta="m"),
    "a negative count": message("user", meta={"usage": {"inputTokens": -1}}),
    "a cost that is text": message("user", meta={"usage": {"cost": "free"}}),
    "an unknown finish reason in meta": message("user", meta={"finishReason": "tired"}),
    "an invocation without a model": message("user", meta={"invocation": {"provider": "p", "specification": "s"}}),
    "a time that is a number": message("user", timestamp=5),
    "a delta without a seq": {"runId": "r", "kind": "text", "payload": {"textDelta": "a"}},
    "a delta with a negative seq": {**delta("text", {"textDelta": "a"}), "seq": -1},
    "a delta with a seq of text": {**delta("text", {"textDelta": "a"}), "seq": "0"},
    "a delta without a payload": {"runId": "r", "seq": 0, "kind": "text"},
    "a delta with a run id that is a number": {**delta("text", {"textDelta": "a"}), "runId": 5},
    "text without its piece": delta("text", {}),
    "thinking without its piece": delta("thinking", {"text": "a"}),
    "a call start without a name": delta("tool_call_start", {"toolCallId": "c"}),
    "arguments without an id": delta("tool_call_args", {"argsTextDelta": "a"}),
    "arguments without text": delta("tool_call_args", {"toolCallId": "c"}),
    "a call end without an id": delta("tool_call_end", {}),
    "an image delta of nothing": delta("image", {}),
    "a provider item delta without an item": delta("provider_item", {"itemType": "t"}),
    "a usage with a count of text": delta("usage", {"inputTokens": "5"}),
    "a usage with a negative count": delta("usage", {"outputTokens": -5}),
    "done without a reason": delta("done", {}),
    "done with an unknown reason": delta("done", {"finishReason": "tired"}),
    "an error without a code": delta("error", {"message": "m"}),
    "an error with an unknown code": delta("error", {"errorCode": "oops"}),
    "an error that may or may not be retried": delta("error", {"errorCode": "timeout", "retryable": "perhaps"}),
    "a negative pause": delta("error", {"errorCode": "timeout", "retryAfter": -1}),
}
LATER_ENTRIES = [
    entry("hologram", {"anything": 1}, new=1, schemaVersion=1),
    entry("reset", {"new": 1}, timestamp="2026-11-15T08:30:00Z", runId="r", metadata={"a": [1]}),
    entry(
        "model_input",
        {"parts": [part("hologram", size=3)], "sections": {"live": [["", "a"]], "gist": [["b", {"live": 0}]]}},
    ),
    finished(new=1, elapsedSeconds=0.5, attachments=[part("image", url="u"), part("hologram")]),
]
BROKEN_ENTRIES: dict[str, Any] = {
    "an entry without a serial": {"id": "s:0", "kind": "reset", "payload": {}},
    "an entry without an id": {"serial": 0, "kind": "reset", "payload": {}},
    "an entry without a payload": {"serial": 0, "id": "s:0", "kind": "reset"},
    "an entry with a serial of text": {**entry("reset", {}), "serial": "0"},
    "an entry with a run id that is a number": entry("reset", {}, runId=5),
    "an entry whose metadata are a list": entry("reset", {}, metadata=[]),
    "an entry whose time is a number": entry("reset", {}, timestamp=5),
    "an input of nothing": entry("model_input", {}),
    "an input of no parts": entry("model_input", {"parts": []}),
    "an input that holds a call": entry("model_input", {"parts": [part("thinking", text="a")]}),
    "sections without a live level": entry("model_input", {"parts": [part("text", text="a")], "sections": {}}),
    "an output that a user said": entry("model_output", {"message": message("user", part("text", text="a"))}),
    "an output without its message": entry("model_output", {}),
    "results that are no array": entry("tool_result", {"results": {}}),
    "an empty execute error": entry("tool_result", {"results": [], "executeError": ""}),
    "a blank execute error": entry("tool_result", {"results": [], "executeError": " \n"}),
    "a result without its text": entry("tool_finished", {"result": {"toolName": "f", "toolCallId": "c"}}),
    "a result of an unknown status": finished(status="tired"),
    "a success with an error code": finished(errorCode="tool_failed"),
    "a failure without an error code": finished(status="failed"),
    "a failure with a code of another status": finished(status="failed", errorCode="tool_denied"),
    "a result with text attached": finished(attachments=[part("text", text="a")]),
    "a result that took less than no time": finished(elapsedSeconds=-1),
    "a result that is no sections": finished(result="found"),
    "a section without a text": finished(result={"live": [["a"]]}),
    "a section of three texts": finished(result={"live": [["a", "b", "c"]]}),
    "a section that points nowhere": finished(result={"live": [["a", {}]]}),
    "a section that points at the gist": finished(result={"live": [], "gist": [["a", {"gist": 0}]]}),
    "an instruction that is a number": entry("system_instruction", {"instruction": 5}),
    "a notebook changed in an unknown way": entry("notebook", {"content": "a", "operation": "burn"}),
    "a compaction that says not what it covers": entry("compaction", {"summary": "a"}),
    "a compaction of a negative serial": entry("compaction", {"firstSerial": -1, "lastSerial": 0, "summary": "a"}),
    "an interruption without a reason": entry("interruption", {}),
    "an interruption for an unknown reason": entry("interruption", {"reason": "tired"}),
    "a question about no call": entry("approval_asked", {"toolCallId": "", "toolName": "f"}),
    "a refusal with arguments": entry("approval_answered", {"toolCallId": "c", "approved": False, "arguments": {}}),
    "an answer by a stranger": entry("approval_answered", {"toolCallId": "c", "approved": True, "by": "stranger"}),
    "a start of no tool": entry("tool_started", {"toolCallId": "c"}),
    "a run that ended somehow": entry("run_finished", {"status": "tired"}),
    "a completed run with an error": entry("run_finished", {"status": "completed", "errorCode": "timeout"}),
    "an epoch of a negative version": entry("epoch", {"version": -1, "reason": "a"}),
}
ALLOWED = {
    "system": {"text", "thinking"},
    "user": {"text", "image", "file_ref"},
    "assistant": {"text", "thinking", "tool_call", "image", "provider_item"},
    "tool": {"tool_result"},
}
A_PART = {
    "text": part("text", text="a"),
    "thinking": part("thinking", text="a"),
    "tool_call": part("tool_call", toolCallId="c", toolName="f", arguments={}, rawArgsText="{}"),
    "tool_result": RESULT,
    "image": part("image", url="u"),
    "file_ref": part("file_ref", path="p"),
    "provider_item": part("provider_item", itemType="t", item={}),
}


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_a_broken_document_is_invalid(document: Any) -> None:
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_a_broken_document_is_unreadable(document: Any) -> None:
    with pytest.raises(UnreadableData):
        from_json(json.dumps(document))


@pytest.mark.parametrize("document", LATER_ENTRIES, ids=lambda document: document["kind"])
def test_an_entry_of_this_or_a_later_version_is_valid_and_readable(document: Any) -> None:
    VALIDATOR.validate(document)
    entry_from_json(json.dumps(document))


@pytest.mark.parametrize("document", BROKEN_ENTRIES.values(), ids=BROKEN_ENTRIES)
def test_a_broken_entry_is_invalid_and_unreadable(document: Any) -> None:
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(UnreadableData):
        entry_from_json(json.dumps(document))


@pytest.mark.parametrize("kind", PART_CLASSES)
@pytest.mark.parametrize("role", Role)
def test_a_part_is_valid_exactly_where_its_role_allows_it(role: Role, kind: str) -> None:
    assert VALIDATOR.is_valid(message(role.value, A_PART[kind])) == (kind in ALLOWED[role])
