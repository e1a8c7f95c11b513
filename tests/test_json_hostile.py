"""JSON of a later version, hostile JSON, and what JSON cannot hold."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import (
    ErrorCode,
    InvalidValue,
    Message,
    MessageDelta,
    Role,
    TextDelta,
    ToolCall,
    ToolResult,
    UnreadableData,
    from_json,
    to_json,
)
from dragoman._jsontext import DOCUMENT_DEPTH
from dragoman.delta import UnknownDelta
from dragoman.jsonform import SCHEMA_VERSION
from dragoman.testing import strategies
from tests.test_json import (
    CONTENT,
    DOCUMENTS,
    FILLED,
    NOW,
    Path,
    at,
    field_paths,
    object_paths,
    read_message,
    read_or_none,
    unhurried,
    unreadable,
    with_field,
)

# ---------------------------------------------------------------- a later version

NAMES = {name for document in DOCUMENTS for path in field_paths(document) for name in path} | {
    "schemaVersion",
    "content",
    "parts",
}
new_names = st.text(max_size=8).filter(lambda name: name not in NAMES) | st.sampled_from(
    ["extra", "provider_data", "new"]
)
new_values = (
    st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.none(), max_size=2) | strategies.json_objects()
)


@given(strategies.messages() | strategies.deltas(), st.data())
@settings(unhurried, max_examples=100)
def test_unknown_fields_anywhere_survive_a_read_and_a_write(value: Message | MessageDelta, data: st.DataObject) -> None:
    document = json.loads(to_json(value))
    places = st.sampled_from(list(object_paths(document)))
    for place in data.draw(st.lists(places, min_size=1, max_size=5)):
        at(document, place).setdefault(data.draw(new_names), data.draw(new_values))
    read = from_json(json.dumps(document))
    assert json.loads(to_json(read)) == document
    assert from_json(to_json(read)) == read


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("parts", 0),
        ("parts", 0, "payload"),
        ("parts", 6),
        ("parts", 6, "payload"),
        ("meta",),
        ("meta", "usage"),
        ("meta", "invocation"),
    ],
    ids=str,
)
def test_an_unknown_field_of_a_message_survives_and_changes_nothing_else(place: Path) -> None:
    document = json.loads(to_json(FILLED[0]))
    changed = with_field(document, (*place, "new"), {"deep": [1, None]})
    assert json.loads(to_json(from_json(json.dumps(changed)))) == changed
    assert json.loads(to_json(FILLED[0])) == document


@pytest.mark.parametrize(
    "place", [("parts", 0, "payload", "content", 0), ("parts", 0, "payload", "content", 0, "payload")]
)
def test_an_unknown_field_in_a_part_of_a_tool_result_survives(place: Path) -> None:
    document = with_field(json.loads(to_json(FILLED[3])), (*place, "new"), {"deep": None})
    assert json.loads(to_json(from_json(json.dumps(document)))) == document


def test_a_part_of_an_unknown_kind_survives_wherever_parts_may_stand() -> None:
    unknown: dict[str, Any] = {"kind": "hologram", "payload": {"z": None, "deep": [{"q": 1}]}, "new": 1}
    for role in ("system", "user", "assistant", "tool"):
        document: dict[str, Any] = {"runId": "", "role": role, "parts": [unknown]}
        assert json.loads(to_json(from_json(json.dumps(document)))) == document
    result = {"kind": "tool_result", "payload": {"toolCallId": "c", "isError": False, "content": [unknown]}}
    document = {"runId": "", "role": "tool", "parts": [result]}
    assert json.loads(to_json(from_json(json.dumps(document)))) == document


def test_a_delta_of_an_unknown_kind_survives() -> None:
    written = (
        '{"runId":"r","seq":3,"kind":"hologram","payload":{"z":null},"timestamp":"2026-11-15T08:30:00Z","new":[1]}'
    )
    delta = from_json(written)
    assert isinstance(delta, UnknownDelta)
    assert to_json(delta).decode() == written


def test_an_unknown_field_does_not_hide_what_is_known() -> None:
    written = '{"runId":"r","seq":0,"kind":"text","payload":{"textDelta":"a","seq":9,"runId":"x","timestamp":"never"}}'
    delta = from_json(written)
    assert isinstance(delta, TextDelta)
    assert (delta.seq, delta.run_id, delta.timestamp) == (0, "r", None)
    assert to_json(delta).decode() == written


@pytest.mark.parametrize("name", ["schemaVersion", "timestamp", "meta"])
def test_own_keys_cannot_make_a_message_unreadable(name: str) -> None:
    with pytest.raises(InvalidValue, match=name):
        Message(Role.USER, (), extra={name: 99})


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99, 10**30])
def test_a_later_schema_version_is_refused_by_its_number(version: int) -> None:
    error = unreadable(f'{{"schemaVersion":{version},"role":"user","parts":[]}}')
    assert error.code is ErrorCode.TOO_NEW
    assert str(version) in str(error)
    assert f"version {SCHEMA_VERSION}" in str(error)


def test_a_later_schema_version_is_refused_before_anything_else_is_looked_at() -> None:
    assert unreadable('{"schemaVersion":2,"whatever":true}').code is ErrorCode.TOO_NEW


@pytest.mark.parametrize("version", ["1", "null"])
def test_this_schema_version_and_null_are_read(version: str) -> None:
    assert from_json(f'{{"schemaVersion":{version},"role":"user","parts":[]}}') == Message.user()


@pytest.mark.parametrize("version", [f'"{CONTENT}"', f'["{CONTENT}"]', "1.5", "true", "{}"])
def test_a_schema_version_that_is_no_number_is_corrupt_not_too_new(version: str) -> None:
    error = unreadable(f'{{"schemaVersion":{version},"role":"user","parts":[]}}')
    assert error.code is ErrorCode.CORRUPT
    assert "SECRET" not in str(error)


# ---------------------------------------------------------------- hostile input


def user_text(inside: str) -> str:
    return f'{{"role":"user","parts":[{{"kind":"text","payload":{{"text":{inside}}}}}]}}'


HOSTILE: dict[str, bytes | str] = {
    "nothing": b"",
    "blank": "  \n",
    "a NUL": b"\x00",
    "not JSON": CONTENT,
    "a byte order mark": "\ufeff" + user_text('"a"'),
    "two values": user_text('"a"') * 2,
    "cut short": user_text('"a"')[:-1],
    "a string": json.dumps(CONTENT),
    "a number": "5",
    "null": "null",
    "an array": json.dumps([CONTENT]),
    "an empty object": "{}",
    "neither message nor delta": json.dumps({"kind": "text", "payload": {"text": CONTENT}}),
    "invalid UTF-8": b'{"role":"user","parts":[],"x":"' + CONTENT.encode() + b'\xff"}',
    "a surrogate in UTF-8": b'{"role":"user","parts":[],"x":"\xed\xa0\x80"}',
    "UTF-16": user_text('"a"').encode("utf-16"),
    "arrays nested 100,000 deep": "[" * 100_000 + "]" * 100_000,
    "arrays nested 100,000 deep and never closed": "[" * 100_000,
    "objects nested 100,000 deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a field nested 100,000 deep": '{"role":"user","parts":[],"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    "depth behind a lone surrogate": r'{"role":"\ud800","parts":' + "[" * 100_000 + "]" * 100_000 + "}",
    "a field nested one too deep": '{"role":"user","parts":[],"x":' + "[" * DOCUMENT_DEPTH + "]" * DOCUMENT_DEPTH + "}",
    "an integer of 5,000 digits": '{"runId":"r","seq":' + "9" * 5_000 + ',"kind":"text","payload":{"textDelta":"a"}}',
    "5,000 digits behind a lone surrogate": r'{"role":"user","parts":[],"x":"\ud800","y":' + "9" * 5_000 + "}",
    "a float out of range": '{"role":"user","parts":[],"x":1e999}',
    "a float out of range behind a lone surrogate": r'{"role":"user","parts":[],"x":"\ud800","y":1e999}',
    "NaN": '{"role":"user","parts":[],"x":NaN}',
    "NaN behind a lone surrogate": r'{"role":"user","parts":[],"x":"\ud800","y":NaN}',
    "-Infinity": '{"role":"user","parts":[],"x":-Infinity}',
    "a raw control character": user_text('"\n"'),
    "a bad escape": user_text(r'"\x41"'),
    "a role that is a list": '{"role":["user"],"parts":[]}',
    "a role that is an object": '{"role":{},"parts":[]}',
    "parts that are an object": '{"role":"user","parts":{}}',
    "no parts": '{"role":"user"}',
    "a part that is text": '{"role":"user","parts":["' + CONTENT + '"]}',
    "a part without a payload": '{"role":"user","parts":[{"kind":"text"}]}',
    "a part of no kind": '{"role":"user","parts":[{"payload":{"text":"a"}}]}',
    "a part of an empty kind": '{"role":"user","parts":[{"kind":"","payload":{}}]}',
    "a part that the role forbids": '{"role":"user","parts":[{"kind":"thinking","payload":{"text":"'
    + CONTENT
    + '"}}]}',
    "two tool results": json.dumps(
        {"role": "tool", "parts": [{"kind": "tool_result", "payload": {"toolCallId": "c", "content": ""}}] * 2}
    ),
    "bytes that are no base64": '{"role":"user","parts":[{"kind":"image","payload":{"mimeType":"m","data":"'
    + CONTENT
    + '"}}]}',
    "a time without a zone": '{"role":"user","parts":[],"timestamp":"2026-11-15T08:30:00"}',
    "a time that is no time": '{"role":"user","parts":[],"timestamp":"' + CONTENT + '"}',
    "a time after the last year": '{"role":"user","parts":[],"timestamp":"9999-12-31T23:59:59-01:00"}',
    "a time before the first year": '{"role":"user","parts":[],"timestamp":"0001-01-01T00:00:00+01:00"}',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_data_is_unreadable_and_not_quoted(data: bytes | str) -> None:
    error = unreadable(data)
    assert error.code is ErrorCode.CORRUPT
    assert "SECRET" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_as_unreadable_in_bytes(data: bytes | str) -> None:
    assert "SECRET" not in str(unreadable(data.encode() if isinstance(data, str) else data))


def test_ten_megabytes_of_text_are_read() -> None:
    text = "x\u20ac" * 2_500_000
    assert read_message(user_text(json.dumps(text, ensure_ascii=False))).text == text


def test_ten_megabytes_cut_short_are_unreadable() -> None:
    unreadable(user_text('"' + "x" * 10_000_000)[:-5])


def test_a_name_given_twice_counts_as_the_last() -> None:
    assert read_message('{"role":"tool","parts":[],"role":"user"}').role is Role.USER


def test_a_large_integer_keeps_its_digits() -> None:
    message = Message.tool(ToolResult("c", {"n": -(10**4_000)}))
    assert from_json(to_json(message)) == message


whole_json = strategies.messages().map(to_json) | strategies.deltas().map(to_json)
tokens = (b"", b'"', b"{", b"}", b"[]", b"{}", b"null", b"-1", b"1e9", b"true", b",", b":", b"\\ud800")
pieces = st.sampled_from(tokens) | st.binary(max_size=2)


@st.composite
def damaged_json(draw: st.DrawFn) -> bytes:
    """The JSON of a value after a few edits of its bytes."""
    data = bytearray(draw(whole_json))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        data[start:end] = draw(pieces)
    return bytes(data)


@given(damaged_json())
@settings(unhurried, max_examples=200)
def test_damaged_json_is_unreadable_or_a_value_that_survives(data: bytes) -> None:
    try:
        value = from_json(data)
    except UnreadableData:
        return
    assert from_json(to_json(value)) == value


@given(st.integers())
@settings(unhurried, max_examples=20)
def test_swapped_values_of_two_fields_are_unreadable_or_survive(seed: int) -> None:
    """Every field is given the value of some other field, a few hundred at a time."""
    chance = random.Random(seed)
    for document in DOCUMENTS:
        other = chance.choice(DOCUMENTS)
        path, source = chance.choice(field_paths(document)), chance.choice(field_paths(other))
        value = read_or_none(with_field(document, path, at(other, source)))
        if value is not None:
            assert from_json(to_json(value)) == value


# ---------------------------------------------------------------- what JSON cannot hold


class Words(str):
    """Text of a class of its own, as libraries use it."""

    __slots__ = ()


class Moment(datetime):
    """A time of a class of its own, as libraries use it."""


@pytest.mark.parametrize(
    "build",
    [
        lambda: Message.user(Words("a")),
        lambda: Message.user("a", run_id=Words("r")),
        lambda: Message.user("a", timestamp=Moment(2026, 1, 1, tzinfo=UTC)),
        lambda: Message.tool(ToolResult("c", {"a": Words("b")})),
        lambda: Message.tool(ToolResult("c", {Words("a"): 1})),
        lambda: Message.tool(ToolResult("c", {"n": 10**5_000})),
        lambda: Message.assistant(ToolCall("c", "f", {"n": 10**5_000})),
        lambda: TextDelta("r", 0, NOW, "a", provider_raw=object()),
    ],
    ids=[
        "text of another class",
        "run id of another class",
        "time of another class",
        "value of another class",
        "key of another class",
        "result with 5,000 digits",
        "arguments with 5,000 digits",
        "raw object",
    ],
)
def test_a_value_is_refused_or_can_be_written_and_read_back(build: Callable[[], Message | MessageDelta]) -> None:
    try:
        value = build()
        written = to_json(value)
    except InvalidValue:
        return
    assert from_json(written) == value
