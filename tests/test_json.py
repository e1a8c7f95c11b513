"""The JSON form: byte for byte as documented, there and back, tolerant of a later version and of nothing else."""

import json
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import (
    ErrorCode,
    FileRef,
    FinishReason,
    Image,
    InvalidValue,
    Message,
    MessageDelta,
    Role,
    Text,
    TextDelta,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    UnreadableData,
    from_json,
    to_json,
)
from dragoman._jsontext import MAX_DEPTH
from dragoman.delta import (
    DELTA_CLASSES,
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    ProviderItemDelta,
    StartDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UnknownDelta,
    UsageDelta,
)
from dragoman.message import PART_CLASSES, MessageMeta, ModelInvocationDescriptor, ProviderItem, UnknownPart
from dragoman.testing import strategies

NOW = datetime(2026, 11, 15, 8, 30, 0, 250_000, tzinfo=UTC)
STAMP = '"timestamp":"2026-11-15T08:30:00.250000Z"'
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

any_text = st.text(st.characters(), max_size=12)  # lone surrogates included


def read_message(data: bytes | str) -> Message:
    value = from_json(data)
    assert isinstance(value, Message)
    return value


def unreadable(data: bytes | str) -> UnreadableData:
    with pytest.raises(UnreadableData) as raised:
        from_json(data)
    return raised.value


# ---------------------------------------------------------------- byte for byte

DELTA_FORMS: list[tuple[MessageDelta, str]] = [
    (
        StartDelta("r", 0, NOW, "m", "q"),
        '{"runId":"r","seq":0,"kind":"start","payload":{"modelId":"m","requestId":"q"},',
    ),
    (TextDelta("r", 1, NOW, "é"), '{"runId":"r","seq":1,"kind":"text","payload":{"textDelta":"é"},'),
    (
        TextDelta("r", 1, NOW, "a", 2, {"id": "x"}),
        '{"runId":"r","seq":1,"kind":"text","payload":{"textDelta":"a","partIndex":2,"providerData":{"id":"x"}},',
    ),
    (
        ThinkingDelta("r", 2, NOW, "", provider_data={"signature": "s"}),
        '{"runId":"r","seq":2,"kind":"thinking","payload":{"textDelta":"","providerData":{"signature":"s"}},',
    ),
    (
        ToolCallStartDelta("r", 3, NOW, "c", "f"),
        '{"runId":"r","seq":3,"kind":"tool_call_start","payload":{"toolCallId":"c","toolName":"f"},',
    ),
    (
        ToolCallArgsDelta("r", 3, NOW, "c", '{"a"'),
        r'{"runId":"r","seq":3,"kind":"tool_call_args","payload":{"toolCallId":"c","argsTextDelta":"{\"a\""},',
    ),
    (ToolCallEndDelta("r", 4, NOW, "c"), '{"runId":"r","seq":4,"kind":"tool_call_end","payload":{"toolCallId":"c"},'),
    (
        ImageDelta("r", 5, NOW, "image/png", b"\x00\xff"),
        '{"runId":"r","seq":5,"kind":"image","payload":{"mimeType":"image/png","data":"AP8="},',
    ),
    (
        ProviderItemDelta("r", 6, NOW, "search", {"b": 1, "a": 2}, "looked"),
        (
            '{"runId":"r","seq":6,"kind":"provider_item",'
            '"payload":{"itemType":"search","item":{"b":1,"a":2},"text":"looked"},'
        ),
    ),
    (
        UsageDelta("r", 7, NOW, TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5, cost=0.25)),
        '{"runId":"r","seq":7,"kind":"usage","payload":{"inputTokens":3,"outputTokens":2,"totalTokens":5,"cost":0.25},',
    ),
    (
        DoneDelta("r", 8, NOW, FinishReason.TOOL_CALLS, "tool_use"),
        '{"runId":"r","seq":8,"kind":"done","payload":{"finishReason":"tool_calls","rawFinishReason":"tool_use"},',
    ),
    (
        ErrorDelta("r", 9, NOW, ErrorCode.TIMEOUT, "too slow", retry_after=1.5),
        (
            '{"runId":"r","seq":9,"kind":"error",'
            '"payload":{"errorCode":"timeout","message":"too slow","retryable":true,"retryAfter":1.5},'
        ),
    ),
    (UnknownDelta("r", 9, NOW, "hologram", {"z": 1}), '{"runId":"r","seq":9,"kind":"hologram","payload":{"z":1},'),
]
PART_FORMS = [
    (Role.USER, Text("hi"), '{"kind":"text","payload":{"text":"hi"}}'),
    (
        Role.ASSISTANT,
        Thinking("hm", provider_data={"signature": "s"}),
        '{"kind":"thinking","payload":{"text":"hm","providerData":{"signature":"s"}}}',
    ),
    (
        Role.ASSISTANT,
        ToolCall("c", "f", {"a": 1}, '{"a": 1}'),
        (
            r'{"kind":"tool_call","payload":'
            r'{"toolCallId":"c","toolName":"f","arguments":{"a":1},"rawArgsText":"{\"a\": 1}"}}'
        ),
    ),
    (
        Role.ASSISTANT,
        ToolCall("c", "f", raw_args_text="{", parse_error="cut"),
        '{"kind":"tool_call","payload":{"toolCallId":"c","toolName":"f","rawArgsText":"{","parseError":"cut"}}',
    ),
    (
        Role.TOOL,
        ToolResult("c", "found"),
        '{"kind":"tool_result","payload":{"toolCallId":"c","isError":false,"content":"found"}}',
    ),
    (
        Role.TOOL,
        ToolResult("c", (Text("a"),), is_error=True),
        (
            '{"kind":"tool_result","payload":'
            '{"toolCallId":"c","isError":true,"content":[{"kind":"text","payload":{"text":"a"}}]}}'
        ),
    ),
    (Role.USER, Image("image/png", b"\x00\xff"), '{"kind":"image","payload":{"mimeType":"image/png","data":"AP8="}}'),
    (Role.USER, Image(url="u"), '{"kind":"image","payload":{"url":"u"}}'),
    (
        Role.USER,
        FileRef(path="a.txt", mime_type="text/plain", size=3),
        '{"kind":"file_ref","payload":{"path":"a.txt","mimeType":"text/plain","size":3}}',
    ),
    (
        Role.ASSISTANT,
        ProviderItem("search", {"id": 1}),
        '{"kind":"provider_item","payload":{"itemType":"search","item":{"id":1}}}',
    ),
    (Role.USER, UnknownPart("hologram", {"z": None}), '{"kind":"hologram","payload":{"z":null}}'),
]


@pytest.mark.parametrize(("delta", "form"), DELTA_FORMS, ids=lambda value: getattr(value, "kind", ""))
def test_a_delta_is_written_as_the_seeds_say(delta: MessageDelta, form: str) -> None:
    assert to_json(delta).decode() == form + STAMP + "}"


def test_there_is_a_form_for_every_kind_of_delta() -> None:
    assert {type(delta) for delta, _ in DELTA_FORMS} == {*DELTA_CLASSES.values(), UnknownDelta}


@pytest.mark.parametrize(("role", "part", "form"), PART_FORMS, ids=lambda value: getattr(value, "kind", ""))
def test_a_part_is_written_as_the_seeds_say(role: Role, part: Any, form: str) -> None:
    message = Message(role, (part,), "r", NOW)
    assert to_json(message).decode() == f'{{"runId":"r","role":"{role}","parts":[{form}],{STAMP}}}'


def test_there_is_a_form_for_every_kind_of_part() -> None:
    assert {type(part) for _, part, _ in PART_FORMS} == {*PART_CLASSES.values(), UnknownPart}


def test_the_meta_of_a_message_comes_last_and_only_with_what_is_known() -> None:
    meta = MessageMeta(
        usage=TokenUsage(input_tokens=1),
        finish_reason=FinishReason.STOP,
        invocation=ModelInvocationDescriptor("p", "s", "m"),
        extra={"trace": "t"},
    )
    written = to_json(Message(Role.ASSISTANT, (), "r", NOW, meta)).decode()
    assert written == (
        f'{{"runId":"r","role":"assistant","parts":[],{STAMP},"meta":{{"usage":{{"inputTokens":1}},"finishReason":"stop",'
        '"invocation":{"provider":"p","specification":"s","model":"m"},"trace":"t"}}'
    )


def test_what_the_wire_said_comes_last_in_a_delta() -> None:
    assert (
        to_json(TextDelta("r", 1, NOW, "a", provider_raw={"x": [1]})).decode().endswith('Z","providerRaw":{"x":[1]}}')
    )


def test_a_time_without_a_fraction_is_written_without_one() -> None:
    assert b'"2026-11-15T08:30:00Z"' in to_json(Message.user("a", timestamp=NOW.replace(microsecond=0)))


def test_only_messages_and_deltas_are_written() -> None:
    text: Any = Text("a")
    with pytest.raises(InvalidValue, match="a Message or a MessageDelta"):
        to_json(text)


# ---------------------------------------------------------------- there and back


@given(strategies.messages())
@settings(unhurried, max_examples=100)
def test_a_message_survives_json(message: Message) -> None:
    written = to_json(message)
    assert from_json(written) == message
    assert to_json(from_json(written)) == written


@given(strategies.deltas())
@settings(unhurried, max_examples=100)
def test_a_delta_survives_json(delta: MessageDelta) -> None:
    written = to_json(delta)
    assert from_json(written) == delta
    assert to_json(from_json(written)) == written


@given(strategies.messages())
@settings(unhurried, max_examples=30)
def test_text_and_bytes_read_the_same(message: Message) -> None:
    assert from_json(to_json(message).decode()) == message


@given(strategies.messages(text=any_text) | strategies.deltas(text=any_text))
@settings(unhurried, max_examples=100)
def test_whatever_holds_lone_surrogates_is_written_as_json_that_keeps_its_bytes(value: Message | MessageDelta) -> None:
    written = to_json(value)
    assert to_json(from_json(written)) == written


@given(any_text)
@unhurried
def test_adjacent_surrogates_are_joined_and_lone_ones_become_the_replacement_character(text: str) -> None:
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert read_message(to_json(Message.user(text))).text == expected


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\ud83d\ude00", "\N{GRINNING FACE}"),
        (r"\ud83d", "\ufffd"),
        (r"\ude00", "\ufffd"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"a\uD800b", "a\ufffdb"),
        (r"\\ud800", r"\ud800"),
    ],
)
def test_escaped_surrogates_are_read_by_the_same_rule(written: str, text: str) -> None:
    data = f'{{"role":"user","parts":[{{"kind":"text","payload":{{"text":"{written}"}}}}]}}'
    assert read_message(data).text == text
    assert read_message(data.encode()).text == text


def test_a_surrogate_in_a_key_or_an_id_becomes_the_replacement_character_too() -> None:
    message = Message.tool(ToolResult("\ud800", {"\udfff": "\udfff"}), run_id="\ud800")
    assert read_message(to_json(message)) == Message.tool(ToolResult("\ufffd", {"\ufffd": "\ufffd"}), run_id="\ufffd")


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 8, MAX_DEPTH])
def test_what_a_part_may_hold_can_be_read_back_whatever_its_depth(depth: int) -> None:
    arguments = '{"a":' * depth + "1" + "}" * depth
    message = Message.assistant(ToolCall.parse("c", "f", arguments))
    assert from_json(to_json(message)) == message


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=2)), timezone(timedelta(hours=-9, minutes=-30)), UTC])
def test_a_timestamp_of_any_offset_is_written_in_utc(zone: timezone) -> None:
    assert STAMP.encode() in to_json(Message.user("a", timestamp=NOW.astimezone(zone)))
    assert STAMP.encode() in to_json(TextDelta("r", 0, NOW.astimezone(zone), "a"))


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-15T08:30:00.25Z",
        "2026-11-15T10:30:00.250+02:00",
        "2026-11-15T08:30:00.250-00:00",
        "2026-11-15t08:30:00.25z",
    ],
)
def test_a_timestamp_of_any_offset_is_read_as_utc(written: str) -> None:
    message = read_message(f'{{"role":"user","parts":[],"timestamp":"{written}"}}')
    assert message.timestamp == NOW
    assert message.timestamp is not None
    assert message.timestamp.tzinfo is UTC


# ---------------------------------------------------------------- field by field

# Values with every field filled, so that a test can go through all the fields there are.
FILLED: list[Message | MessageDelta] = [
    Message(
        Role.ASSISTANT,
        (
            Text("a", provider_data={"id": None}),
            Thinking("b", provider_data={"signature": "s"}),
            ToolCall("c", "f", {"x": None}, '{"x":null}', parse_warning="w", provider_data={}),
            ToolCall("d", "f", raw_args_text="{", parse_error="cut"),
            Image("image/png", b"\x00", provider_data={}),
            ProviderItem("t", {"i": None}, "said", provider_data={}),
            UnknownPart("hologram", {"z": None}),
        ),
        "r",
        NOW,
        MessageMeta(
            usage=TokenUsage(1, 2, 3, 4, 5, 6, 0.5),
            finish_reason=FinishReason.OTHER,
            raw_finish_reason="queued",
            invocation=ModelInvocationDescriptor("p", "s", "m"),
            model_id="m",
            request_id="q",
            trace_id="t-1",
            interrupted=False,
            parse_failures=("d",),
            provider_data={"k": None},
            extra={"trace": "t"},
        ),
    ),
    Message.user(
        Image("image/png", url="u"),
        FileRef(path="p", mime_type="a/b", name="n", size=1, sha256="0" * 64, provider_data={}),
        FileRef(url="u"),
        FileRef(file_id="i"),
        FileRef(data=b"\x00"),
    ),
    Message.tool(ToolResult("c", {"found": None}, is_error=True)),
    Message.tool(ToolResult("c", (Text("a"), Image(url="u"), UnknownPart("hologram", {"z": 1})), is_error=True)),
    *(delta for delta, _ in DELTA_FORMS),
    ImageDelta("r", 0, NOW, "image/m", url="u", provider_data={}),
    ToolCallStartDelta("r", 0, NOW, "c", "f", {"k": 1}),
    ToolCallEndDelta("r", 0, NOW, "c", {"k": 1}),
    UsageDelta("r", 0, NOW, TokenUsage(1, 2, 3, 4, 5, 6, 0.5)),
    DoneDelta("r", 0, NOW, FinishReason.STOP, "end", {"k": 1}, provider_raw={"x": 1}),
    ErrorDelta("r", 0, NOW, ErrorCode.INTERNAL, "m", True, 1.5, "q", "words"),
]
OPAQUE = {"providerData", "providerRaw", "arguments", "item", "trace"}  # what is inside is not looked at

Path = tuple[str | int, ...]


def object_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where the JSON objects of the format are, opaque ones left out."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from object_paths(item, (*path, index))
    elif isinstance(value, dict):
        yield path
        unknown = value.get("kind", "text") not in {*PART_CLASSES, *DELTA_CLASSES}
        for name, item in value.items():
            is_free = (
                name in OPAQUE or (name == "payload" and unknown) or (name == "content" and isinstance(item, dict))
            )
            if not is_free:
                yield from object_paths(item, (*path, name))


def field_paths(value: Any) -> list[Path]:
    return [(*path, name) for path in object_paths(value) for name in at(value, path)]


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def with_field(value: Any, path: Path, item: Any) -> Any:
    changed = json.loads(json.dumps(value))
    at(changed, path[:-1])[path[-1]] = item
    return changed


def without_field(value: Any, path: Path) -> Any:
    changed = json.loads(json.dumps(value))
    del at(changed, path[:-1])[path[-1]]
    return changed


def holds(written: Any, given: Any) -> bool:
    """Whether everything given is in what was written; a default may have been written beside it."""
    if isinstance(given, dict) and isinstance(written, dict):
        return all(name in written and holds(written[name], item) for name, item in given.items())
    return type(given) in (type(written), int) and bool(given == written)


def read_or_none(document: Any) -> Message | MessageDelta | None:
    try:
        return from_json(json.dumps(document))
    except UnreadableData:
        return None


def error_of_reading(data: str) -> str:
    """What an error of reading shows, its cause included; nothing if there is none."""
    try:
        from_json(data)
    except UnreadableData as error:
        return "".join(traceback.format_exception_only(error)) + repr(error) + str(error.__cause__)
    return ""


DOCUMENTS = [json.loads(to_json(value)) for value in FILLED]
each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda document: document.get("role") or document["kind"]
)
CONTENT = "SECRET what somebody said, which is longer than any name or word"
WRONG: list[Any] = [
    *(0, -1, 1.5, 2**70, True, False, "", [], {}),
    *(CONTENT, [CONTENT], {CONTENT: CONTENT}, [{"kind": CONTENT}]),
]


def test_the_filled_values_have_every_field() -> None:
    names = {path[-1] for document in DOCUMENTS for path in field_paths(document)}
    classes = (*PART_CLASSES.values(), *DELTA_CLASSES.values(), MessageMeta, TokenUsage, ModelInvocationDescriptor)
    known = {name for each in classes for name in each.__struct_encode_fields__ if name != "extra"}
    assert known <= names


@each_document
def test_null_is_the_same_as_absent(document: Any) -> None:
    def differs(path: Path) -> bool:
        return read_or_none(with_field(document, path, None)) != read_or_none(without_field(document, path))

    assert [path for path in field_paths(document) if differs(path)] == []


@each_document
def test_a_field_of_a_wrong_type_is_unreadable_and_never_read_as_something_else(document: Any) -> None:
    def changes(path: Path, wrong: Any) -> bool:
        given = with_field(document, path, wrong)
        value = read_or_none(given)
        return value is not None and not holds(json.loads(to_json(value)), given)

    assert [(path, wrong) for path in field_paths(document) for wrong in WRONG if changes(path, wrong)] == []


@each_document
def test_an_error_of_reading_quotes_nothing_of_the_content(document: Any) -> None:
    said = (CONTENT, [CONTENT], {CONTENT: CONTENT}, [{"kind": CONTENT}], [{"kind": CONTENT, "payload": CONTENT}])
    changed = [(path, with_field(document, path, item)) for path in field_paths(document) for item in said]
    assert [path for path, given in changed if "SECRET" in error_of_reading(json.dumps(given))] == []


def test_a_null_role_leaves_a_delta_a_delta() -> None:
    assert isinstance(from_json('{"role":null,"seq":0,"kind":"text","payload":{"textDelta":"a"}}'), TextDelta)


def test_a_field_called_role_leaves_a_delta_a_delta() -> None:
    written = '{"runId":"r","seq":0,"kind":"text","payload":{"textDelta":"a"},"role":"narrator"}'
    assert to_json(from_json(written)).decode() == written


def test_fields_called_seq_and_kind_leave_a_message_a_message() -> None:
    written = '{"runId":"r","role":"user","parts":[],"seq":7,"kind":"reply"}'
    assert to_json(read_message(written)).decode() == written


@pytest.mark.parametrize("extra", [{"injected": None}, {"a": None, "b": {"c": None}}, {}])
def test_an_unknown_field_that_is_null_is_the_same_as_absent(extra: dict[str, Any]) -> None:
    meta = MessageMeta(extra=extra)
    message = Message(Role.USER, (Text("x", extra=extra),), meta=meta, extra=extra)
    assert from_json(to_json(message)) == message
    assert meta.extra == ({"b": {"c": None}} if "b" in extra else None)


def test_a_field_called_extra_is_a_field_like_any_other() -> None:
    written = '{"runId":"r","role":"user","parts":[],"meta":{"extra":1},"extra":{"a":1}}'
    assert to_json(read_message(written)).decode() == written
