"""Messages, parts, deltas and usage: what each constructor takes, and that it refuses the rest in plain words."""

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

import dragoman.agent
import dragoman.history
import dragoman.stream
from dragoman import (
    FileRef,
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
)
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
from dragoman.message import PART_CLASSES, MessageMeta, ModelInvocationDescriptor, Part, ProviderItem, UnknownPart
from dragoman.testing import strategies

NOW = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
CONTENT = "the-user-said-this"  # short enough to be quoted by accident
Value = TypeVar("Value")
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Refused(NamedTuple):
    """A construction that must fail, and what its error must name: the field, what was seen, what is allowed."""

    build: Callable[..., object]
    given: dict[str, Any]
    field: str
    seen: str
    allowed: str


def refusal(build: Callable[..., object], given: dict[str, Any]) -> str:
    with pytest.raises(InvalidValue) as raised:
        build(**given)
    return str(raised.value)


def plain(name: str) -> str:
    """The field without its spelling: camelCase and snake_case are the same name."""
    return name.replace("_", "").lower()


def name_of(case: Refused) -> str:
    return f"{getattr(case.build, '__name__', 'value')}-{case.field}-{case.seen}"


# ---------------------------------------------------------------- parts

A_PART: dict[str, Part] = {
    "text": Text("hello"),
    "thinking": Thinking("hm"),
    "tool_call": ToolCall("c1", "look", {}),
    "tool_result": ToolResult("c1", "found"),
    "image": Image(url="https://example.com/a.png"),
    "file_ref": FileRef(path="a.txt"),
    "provider_item": ProviderItem("web_search_call", {"id": "ws_1"}),
    "unknown": UnknownPart("hologram", {"depth": 3}),
}
MAY_HOLD = {
    "system": {"text", "thinking", "unknown"},
    "user": {"text", "image", "file_ref", "unknown"},
    "assistant": {"text", "thinking", "tool_call", "image", "provider_item", "unknown"},
    "tool": {"tool_result", "unknown"},
}
ROLE_AND_KIND = [(role, kind) for role in MAY_HOLD for kind in A_PART]


@pytest.mark.parametrize(("role", "kind"), [(role, kind) for role, kind in ROLE_AND_KIND if kind in MAY_HOLD[role]])
def test_a_role_holds_the_parts_that_the_design_gives_it(role: str, kind: str) -> None:
    assert Message(Role(role), (A_PART[kind],)).parts == (A_PART[kind],)


@pytest.mark.parametrize(("role", "kind"), [(role, kind) for role, kind in ROLE_AND_KIND if kind not in MAY_HOLD[role]])
def test_a_role_refuses_every_other_part_and_says_what_it_may_hold(role: str, kind: str) -> None:
    message = refusal(Message, {"role": role, "parts": (A_PART[kind],)})
    assert f"a {role} message" in message
    assert kind in message
    assert all(allowed in message for allowed in MAY_HOLD[role] - {"unknown"})


@pytest.mark.parametrize("kind", A_PART)
def test_a_tool_result_holds_text_images_files_and_unknown_parts_only(kind: str) -> None:
    if kind in {"text", "image", "file_ref", "unknown"}:
        assert ToolResult("c1", (A_PART[kind],)).content == (A_PART[kind],)  # type: ignore[arg-type]  # the table says
    else:
        message = refusal(ToolResult, {"tool_call_id": "c1", "content": (A_PART[kind],)})
        assert "tool_result.content" in message
        assert kind in message
        assert "file_ref, image, text" in message


DEEP: dict[str, Any] = {}
for _ in range(300):
    DEEP = {"deeper": DEEP}

REFUSED_PARTS = [
    Refused(Text, {"text": 5}, "text.text", "5", "text"),
    Refused(Text, {"text": None}, "text.text", "None", "text"),
    Refused(Text, {"text": b"bytes"}, "text.text", "a bytes", "text"),
    Refused(Text, {"text": "", "provider_data": "sig"}, "text.providerData", "str", "a JSON object"),
    Refused(Text, {"text": "", "provider_data": {"a": float("nan")}}, "text.providerData", "nan", "JSON"),
    Refused(Text, {"text": "", "provider_data": {1: 2}}, "text.providerData", "key", "text"),
    Refused(Text, {"text": "", "provider_data": {"a": {1, 2}}}, "text.providerData", "set", "list"),
    Refused(Text, {"text": "", "provider_data": DEEP}, "text.providerData", "deeper", "200"),
    Refused(Text, {"text": "", "extra": 5}, "extra", "int", "object"),
    Refused(Thinking, {"text": 1.5}, "thinking.text", "1.5", "text"),
    Refused(Thinking, {"text": "", "provider_data": []}, "thinking.providerData", "list", "object"),
    Refused(ToolCall, {"tool_call_id": "", "tool_name": "f", "arguments": {}}, "toolCallId", "''", "non-empty text"),
    Refused(ToolCall, {"tool_call_id": 7, "tool_name": "f", "arguments": {}}, "toolCallId", "7", "non-empty text"),
    Refused(ToolCall, {"tool_call_id": "c", "tool_name": "", "arguments": {}}, "toolName", "''", "non-empty text"),
    Refused(ToolCall, {"tool_call_id": "c", "tool_name": "f"}, "arguments", "neither", "parseError"),
    Refused(
        ToolCall,
        {"tool_call_id": "c", "tool_name": "f", "arguments": {}, "parse_error": "bad"},
        "arguments",
        "both",
        "parseError",
    ),
    Refused(ToolCall, {"tool_call_id": "c", "tool_name": "f", "arguments": [1]}, "arguments", "list", "object"),
    Refused(
        ToolCall, {"tool_call_id": "c", "tool_name": "f", "arguments": {"a": float("inf")}}, "arguments", "inf", "JSON"
    ),
    Refused(
        ToolCall,
        {"tool_call_id": "c", "tool_name": "f", "arguments": {}, "raw_args_text": 5},
        "rawArgsText",
        "5",
        "text",
    ),
    Refused(ToolCall, {"tool_call_id": "c", "tool_name": "f", "parse_error": 5}, "parseError", "5", "text"),
    Refused(ToolCall, {"tool_call_id": "c", "tool_name": "f", "parse_error": ""}, "parseError", "''", "text"),
    Refused(
        ToolCall,
        {"tool_call_id": "c", "tool_name": "f", "arguments": {}, "parse_warning": 5},
        "parseWarning",
        "5",
        "text",
    ),
    Refused(ToolResult, {"tool_call_id": "", "content": ""}, "toolCallId", "''", "non-empty text"),
    Refused(ToolResult, {"tool_call_id": "c", "content": None}, "content", "None", "text, a dict, or parts"),
    Refused(ToolResult, {"tool_call_id": "c", "content": 5}, "content", "5", "text, a dict, or parts"),
    Refused(ToolResult, {"tool_call_id": "c", "content": {"a": object()}}, "content", "object", "dict, list, str"),
    Refused(ToolResult, {"tool_call_id": "c", "content": "", "is_error": 1}, "isError", "1", "true or false"),
    Refused(ToolResult, {"tool_call_id": "c", "content": "", "is_error": None}, "isError", "None", "true or false"),
    Refused(Image, {}, "image", "neither", "data or url"),
    Refused(Image, {"mime_type": "image/png", "data": b"", "url": "u"}, "image", "both", "data or url"),
    Refused(Image, {"data": b"x"}, "image.mimeType", "None", "non-empty text"),
    Refused(Image, {"mime_type": "image/png", "data": "eHg="}, "image.data", "'eHg='", "bytes"),
    Refused(Image, {"url": ""}, "image.url", "''", "non-empty text"),
    Refused(Image, {"url": 5}, "image.url", "5", "non-empty text"),
    Refused(Image, {"url": "u", "mime_type": 5}, "image.mimeType", "5", "non-empty text"),
    Refused(FileRef, {}, "file_ref", "none", "exactly one of path, url, fileId, data"),
    Refused(FileRef, {"path": "a", "url": "b"}, "file_ref", "path", "exactly one"),
    Refused(FileRef, {"path": ""}, "file_ref.path", "''", "non-empty text"),
    Refused(FileRef, {"file_id": 5}, "file_ref.fileId", "5", "non-empty text"),
    Refused(FileRef, {"data": "text"}, "file_ref.data", "'text'", "bytes"),
    Refused(FileRef, {"path": "a", "mime_type": ""}, "file_ref.mimeType", "''", "non-empty text"),
    Refused(FileRef, {"path": "a", "name": 5}, "file_ref.name", "5", "non-empty text"),
    Refused(FileRef, {"path": "a", "size": -1}, "file_ref.size", "-1", "a whole number from 0"),
    Refused(FileRef, {"path": "a", "size": True}, "file_ref.size", "True", "a whole number from 0"),
    Refused(FileRef, {"path": "a", "size": 1.5}, "file_ref.size", "1.5", "a whole number from 0"),
    Refused(ProviderItem, {"item_type": "", "item": {}}, "itemType", "''", "non-empty text"),
    Refused(ProviderItem, {"item_type": "t", "item": None}, "provider_item.item", "None", "object"),
    Refused(ProviderItem, {"item_type": "t", "item": {}, "text": 5}, "provider_item.text", "5", "text"),
    Refused(UnknownPart, {"kind": "", "payload": {}}, "kind", "''", "non-empty text"),
    Refused(UnknownPart, {"kind": "text", "payload": {}}, "kind", "'text'", "Text"),
    Refused(UnknownPart, {"kind": "hologram", "payload": None}, "payload", "None", "object"),
]


@pytest.mark.parametrize("case", REFUSED_PARTS, ids=name_of)
def test_a_part_refuses_what_its_kind_forbids_and_names_field_value_and_what_is_allowed(case: Refused) -> None:
    message = refusal(case.build, case.given)
    assert plain(case.field) in plain(message)
    assert case.seen in message
    assert case.allowed in message


def test_every_kind_of_part_has_refusals() -> None:
    assert {case.build for case in REFUSED_PARTS} == {*PART_CLASSES.values(), UnknownPart}


def test_a_call_that_nobody_wrote_gets_its_arguments_as_raw_text() -> None:
    assert ToolCall("c", "f", {"b": 1, "a": "é"}).raw_args_text == '{"b":1,"a":"é"}'


def test_a_call_keeps_the_text_that_was_written() -> None:
    call = ToolCall.parse("c", "f", ' {"a": 1.0} ')
    assert (call.arguments, call.raw_args_text, call.parse_error) == ({"a": 1.0}, ' {"a": 1.0} ', None)


def test_a_call_whose_text_is_no_object_has_an_error_and_no_arguments() -> None:
    call = ToolCall.parse("c", "f", '{"a": ')
    assert call.arguments is None
    assert call.parse_error
    assert call.raw_args_text == '{"a": '


def test_a_call_that_failed_to_parse_and_has_no_text_never_gets_an_empty_object() -> None:
    call = ToolCall("c", "f", parse_error="cut off")
    assert (call.arguments, call.raw_args_text) == (None, "")


def test_a_list_of_result_parts_becomes_a_tuple() -> None:
    parts: Any = [Text("a"), Text("b")]
    assert ToolResult("c", parts).content == (Text("a"), Text("b"))


@given(strategies.parts())
@unhurried
def test_a_part_cannot_be_changed(part: Part) -> None:
    for name in part.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(part, name, None)


# ---------------------------------------------------------------- messages

REFUSED_MESSAGES = [
    Refused(Message, {"role": "robot", "parts": ()}, "role", "'robot'", "system, user, assistant, tool"),
    Refused(Message, {"role": None, "parts": ()}, "role", "None", "system, user, assistant, tool"),
    Refused(Message, {"role": ["user"], "parts": ()}, "role", "list", "system, user, assistant, tool"),
    Refused(Message, {"role": {}, "parts": ()}, "role", "dict", "system, user, assistant, tool"),
    Refused(Message, {"role": "user", "parts": None}, "parts", "None", "a sequence of parts"),
    Refused(Message, {"role": "user", "parts": {"text": "x"}}, "parts", "dict", "a sequence of parts"),
    Refused(Message, {"role": "user", "parts": (5,)}, "part", "5", "file_ref, image, text"),
    Refused(Message, {"role": "user", "parts": ({"kind": "text"},)}, "part", "dict", "file_ref, image, text"),
    Refused(Message, {"role": "tool", "parts": ()}, "tool message", "0 parts", "exactly one tool_result"),
    Refused(
        Message,
        {"role": "tool", "parts": (A_PART["tool_result"], ToolResult("c2", "x"))},
        "tool message",
        "2 parts",
        "exactly one tool_result",
    ),
    Refused(Message, {"role": "user", "parts": (), "run_id": None}, "runId", "None", "text"),
    Refused(Message, {"role": "user", "parts": (), "run_id": 5}, "runId", "5", "text"),
    Refused(Message, {"role": "user", "parts": (), "timestamp": 1.5}, "timestamp", "1.5", "with a time zone"),
    Refused(Message, {"role": "user", "parts": (), "timestamp": "today"}, "timestamp", "'today'", "with a time zone"),
    Refused(
        Message, {"role": "user", "parts": (), "timestamp": datetime(2026, 1, 1)}, "timestamp", "without", "a time zone"
    ),
    Refused(Message, {"role": "user", "parts": (), "meta": {"usage": None}}, "meta", "dict", "MessageMeta"),
    Refused(Message, {"role": "user", "parts": (), "extra": 5}, "extra", "int", "object"),
    Refused(MessageMeta, {"usage": {"inputTokens": 5}}, "meta.usage", "dict", "a TokenUsage"),
    Refused(MessageMeta, {"invocation": "anthropic"}, "meta.invocation", "anthropic", "a ModelInvocationDescriptor"),
    Refused(MessageMeta, {"finish_reason": "tired"}, "finishReason", "'tired'", "stop, length, tool_calls"),
    Refused(MessageMeta, {"finish_reason": []}, "finishReason", "list", "stop, length, tool_calls"),
    Refused(MessageMeta, {"raw_finish_reason": 5}, "rawFinishReason", "5", "text"),
    Refused(MessageMeta, {"model_id": 5}, "modelId", "5", "text"),
    Refused(MessageMeta, {"request_id": 5}, "requestId", "5", "text"),
    Refused(MessageMeta, {"parse_failures": "c1"}, "parseFailures", "c1", "a sequence"),
    Refused(MessageMeta, {"parse_failures": (5,)}, "parseFailures", "5", "text"),
    Refused(MessageMeta, {"provider_data": 5}, "meta.providerData", "int", "object"),
    Refused(MessageMeta, {"extra": []}, "extra", "list", "object"),
    Refused(
        ModelInvocationDescriptor,
        {"provider": "", "specification": "s", "model": "m"},
        "invocation.provider",
        "''",
        "non-empty text",
    ),
    Refused(
        ModelInvocationDescriptor,
        {"provider": "p", "specification": "s", "model": None},
        "invocation.model",
        "None",
        "non-empty text",
    ),
]


@pytest.mark.parametrize("case", REFUSED_MESSAGES, ids=name_of)
def test_a_message_refuses_what_its_role_forbids_and_names_field_value_and_what_is_allowed(case: Refused) -> None:
    message = refusal(case.build, case.given)
    assert plain(case.field) in plain(message)
    assert case.seen in message
    assert case.allowed in message


@pytest.mark.parametrize("name", ["usage", "invocation", "finishReason", "modelId", "parseFailures"])
def test_own_keys_in_meta_may_not_take_the_name_of_a_field(name: str) -> None:
    assert name in refusal(MessageMeta, {"extra": {name: "mine"}})


def test_a_word_for_a_role_becomes_the_role() -> None:
    role: Any = "user"
    assert Message(role, ()).role is Role.USER


def test_a_list_of_parts_becomes_a_tuple_in_the_same_order() -> None:
    parts: Any = [Text("b"), Text("a"), Text("b")]
    assert Message(Role.USER, parts).parts == (Text("b"), Text("a"), Text("b"))


def test_a_string_given_to_a_shorthand_is_a_text_part() -> None:
    assert Message.user("a", Image(url="u"), "b").parts == (Text("a"), Image(url="u"), Text("b"))


def test_the_text_of_a_message_is_its_text_parts_joined() -> None:
    assert Message.assistant("a", Thinking("x"), "b").text == "ab"


def test_the_tool_calls_of_a_message_are_in_order() -> None:
    first, second = ToolCall("c2", "f", {}), ToolCall("c1", "f", {})
    assert Message.assistant(first, "between", second).tool_calls == (first, second)


def test_an_assistant_message_without_an_invocation_has_no_meta() -> None:
    assert Message.assistant("a").meta is None


def test_an_empty_assistant_message_is_allowed_because_providers_send_it() -> None:
    assert Message(Role.ASSISTANT, ()).parts == ()


@pytest.mark.parametrize("hours", [-12, -5.5, 1, 5.75, 14])
def test_a_timestamp_of_another_offset_becomes_the_same_instant_in_utc(hours: float) -> None:
    local = NOW.astimezone(timezone(timedelta(hours=hours)))
    timestamp = Message.user("a", timestamp=local).timestamp
    assert timestamp == NOW
    assert timestamp is not None
    assert timestamp.tzinfo is UTC


@pytest.mark.parametrize(
    "timestamp",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    ],
    ids=["before the first year", "after the last year"],
)
@pytest.mark.parametrize("build", [Message.user, TextDelta], ids=["message", "delta"])
def test_a_timestamp_that_utc_cannot_hold_is_refused(build: Callable[..., object], timestamp: datetime) -> None:
    given = {"timestamp": timestamp}
    if build is TextDelta:
        given |= {"run_id": "r", "seq": 0, "text_delta": "x"}  # type: ignore[dict-item]  # keyword arguments of one kind
    assert "timestamp" in refusal(build, given)


@given(strategies.messages())
@settings(unhurried, max_examples=30)
def test_a_message_can_be_copied_and_pickled(message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message


# ---------------------------------------------------------------- deltas


def at(**fields: object) -> dict[str, Any]:
    return {"run_id": "r", "seq": 0, "timestamp": NOW, **fields}


DELTA_FIELDS: dict[type[Any], dict[str, Any]] = {
    StartDelta: {},
    TextDelta: {"text_delta": "a"},
    ThinkingDelta: {"text_delta": "a"},
    ToolCallStartDelta: {"tool_call_id": "c", "tool_name": "f"},
    ToolCallArgsDelta: {"tool_call_id": "c", "args_text_delta": "{"},
    ToolCallEndDelta: {"tool_call_id": "c"},
    ImageDelta: {"url": "u"},
    ProviderItemDelta: {"item_type": "t", "item": {}},
    UsageDelta: {"usage": TokenUsage(input_tokens=1)},
    DoneDelta: {"finish_reason": "stop"},
    ErrorDelta: {"error_code": "timeout"},
    UnknownDelta: {"kind": "hologram", "payload": {}},
}
WRONG_PLACES = [
    ({"seq": -1}, "seq", "-1", "a whole number from 0"),
    ({"seq": 1.0}, "seq", "1.0", "a whole number from 0"),
    ({"seq": True}, "seq", "True", "a whole number from 0"),
    ({"seq": None}, "seq", "None", "a whole number from 0"),
    ({"run_id": 5}, "runId", "5", "text"),
    ({"run_id": None}, "runId", "None", "text"),
    ({"timestamp": 5}, "timestamp", "5", "with a time zone"),
    ({"timestamp": datetime(2026, 1, 1)}, "timestamp", "without", "a time zone"),
    ({"extra": 5}, "extra", "int", "object"),
]


def test_every_kind_of_delta_is_in_the_table() -> None:
    assert set(DELTA_FIELDS) == {*DELTA_CLASSES.values(), UnknownDelta}


@pytest.mark.parametrize(("wrong", "field", "seen", "allowed"), WRONG_PLACES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("delta_class", DELTA_FIELDS, ids=lambda delta_class: delta_class.__name__)
def test_no_delta_takes_a_wrong_place_in_the_stream(
    delta_class: type[Any], wrong: dict[str, Any], field: str, seen: str, allowed: str
) -> None:
    message = refusal(delta_class, {**at(**DELTA_FIELDS[delta_class]), **wrong})
    assert field in message
    assert seen in message
    assert allowed in message


REFUSED_DELTAS = [
    Refused(StartDelta, at(model_id=None), "modelId", "None", "text"),
    Refused(StartDelta, at(request_id=5), "requestId", "5", "text"),
    Refused(TextDelta, at(text_delta=None), "text.textDelta", "None", "text"),
    Refused(TextDelta, at(text_delta=b"a"), "text.textDelta", "bytes", "text"),
    Refused(TextDelta, at(text_delta="", part_index="0"), "text.partIndex", "'0'", "a whole number"),
    Refused(TextDelta, at(text_delta="", part_index=True), "text.partIndex", "True", "a whole number"),
    Refused(TextDelta, at(text_delta="", part_index=-1), "text.partIndex", "-1", "a whole number from 0"),
    Refused(TextDelta, at(text_delta="", provider_data="sig"), "text.providerData", "str", "object"),
    Refused(ThinkingDelta, at(text_delta=5), "thinking.textDelta", "5", "text"),
    Refused(ThinkingDelta, at(text_delta="", provider_data={"a": {1}}), "thinking.providerData", "set", "list"),
    Refused(ToolCallStartDelta, at(tool_call_id="", tool_name="f"), "toolCallId", "''", "non-empty text"),
    Refused(ToolCallStartDelta, at(tool_call_id="c", tool_name=None), "toolName", "None", "non-empty text"),
    Refused(ToolCallStartDelta, at(tool_call_id="c", tool_name="f", provider_data=5), "providerData", "int", "object"),
    Refused(ToolCallArgsDelta, at(tool_call_id="", args_text_delta="x"), "toolCallId", "''", "non-empty text"),
    Refused(ToolCallArgsDelta, at(tool_call_id=5, args_text_delta="x"), "toolCallId", "5", "non-empty text"),
    Refused(ToolCallArgsDelta, at(tool_call_id="c", args_text_delta={}), "argsTextDelta", "dict", "text"),
    Refused(ToolCallEndDelta, at(tool_call_id=None), "toolCallId", "None", "non-empty text"),
    Refused(ToolCallEndDelta, at(tool_call_id="c", provider_data=[]), "providerData", "list", "object"),
    Refused(ImageDelta, at(), "image", "neither", "data or url"),
    Refused(ImageDelta, at(mime_type="image/png", data=b"", url="u"), "image", "both", "data or url"),
    Refused(ImageDelta, at(data=b"x"), "image.mimeType", "None", "non-empty text"),
    Refused(ImageDelta, at(mime_type="image/png", data="eHg="), "image.data", "'eHg='", "bytes"),
    Refused(ImageDelta, at(url=""), "image.url", "''", "non-empty text"),
    Refused(ImageDelta, at(url="u", mime_type=5), "image.mimeType", "5", "non-empty text"),
    Refused(ImageDelta, at(url="u", provider_data=5), "providerData", "int", "object"),
    Refused(ProviderItemDelta, at(item_type="", item={}), "itemType", "''", "non-empty text"),
    Refused(ProviderItemDelta, at(item_type="t", item=[]), "item", "list", "object"),
    Refused(ProviderItemDelta, at(item_type="t", item={}, text=5), "provider_item.text", "5", "text"),
    Refused(ProviderItemDelta, at(item_type="t", item={}, provider_data=5), "providerData", "int", "object"),
    Refused(UsageDelta, at(usage={"inputTokens": 5}), "usage", "dict", "a TokenUsage"),
    Refused(DoneDelta, at(finish_reason="tired"), "finishReason", "'tired'", "stop, length, tool_calls"),
    Refused(DoneDelta, at(finish_reason=None), "finishReason", "None", "stop, length, tool_calls"),
    Refused(DoneDelta, at(finish_reason="stop", raw_finish_reason=5), "rawFinishReason", "5", "text"),
    Refused(DoneDelta, at(finish_reason="stop", provider_data=5), "providerData", "int", "object"),
    Refused(ErrorDelta, at(error_code="oops"), "errorCode", "'oops'", "rate_limited"),
    Refused(ErrorDelta, at(error_code=None), "errorCode", "None", "rate_limited"),
    Refused(ErrorDelta, at(error_code="timeout", message=5), "error.message", "5", "text"),
    Refused(ErrorDelta, at(error_code="timeout", retryable="no"), "error.retryable", "'no'", "true or false"),
    Refused(ErrorDelta, at(error_code="timeout", retry_after="5"), "error.retryAfter", "'5'", "from 0 up"),
    Refused(ErrorDelta, at(error_code="timeout", retry_after=-1), "error.retryAfter", "-1", "from 0 up"),
    Refused(ErrorDelta, at(error_code="timeout", retry_after=float("nan")), "error.retryAfter", "nan", "from 0 up"),
    Refused(ErrorDelta, at(error_code="timeout", retry_after=float("inf")), "error.retryAfter", "inf", "from 0 up"),
    Refused(ErrorDelta, at(error_code="timeout", request_id=5), "error.requestId", "5", "text"),
    Refused(ErrorDelta, at(error_code="timeout", provider_message=5), "error.providerMessage", "5", "text"),
    Refused(UnknownDelta, at(kind="", payload={}), "kind", "''", "non-empty text"),
    Refused(UnknownDelta, at(kind="done", payload={}), "kind", "'done'", "DoneDelta"),
    Refused(UnknownDelta, at(kind="hologram", payload=5), "payload", "int", "object"),
]


@pytest.mark.parametrize("case", REFUSED_DELTAS, ids=name_of)
def test_a_delta_refuses_what_its_kind_forbids_and_names_field_value_and_what_is_allowed(case: Refused) -> None:
    message = refusal(case.build, case.given)
    assert plain(case.field) in plain(message)
    assert case.seen in message
    assert case.allowed in message


def test_every_kind_of_delta_has_refusals() -> None:
    assert {case.build for case in REFUSED_DELTAS} == set(DELTA_FIELDS)


CHANGEABLE = {"ConversationEncoder", "Handoff", "_Names", "_Written"}  # machines, and what is read at once


def test_every_value_is_frozen() -> None:
    for package in (dragoman.history, dragoman.stream, dragoman.agent):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, type) and issubclass(value, msgspec.Struct) and name not in CHANGEABLE:
                    assert value.__struct_config__.frozen, name


def test_a_delta_without_a_time_is_allowed() -> None:
    assert TextDelta("r", 0, None, "a").timestamp is None


@pytest.mark.parametrize(("code", "retryable"), [("overloaded", True), ("authentication", False)])
def test_an_error_delta_that_does_not_say_is_retryable_by_its_code(code: Any, retryable: bool) -> None:
    assert ErrorDelta("r", 0, NOW, code).retryable is retryable


@given(strategies.deltas())
@unhurried
def test_a_delta_cannot_be_changed(delta: MessageDelta) -> None:
    for name in delta.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(delta, name, None)


# ---------------------------------------------------------------- no content in an error


class Talkative:
    """A foreign value whose repr is content."""

    def __repr__(self) -> str:
        return CONTENT


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (Text, {"text": [CONTENT]}),
        (Text, {"text": Talkative()}),
        (Text, {"text": CONTENT.encode()}),
        (Text, {"text": CONTENT, "provider_data": CONTENT}),
        (Text, {"text": CONTENT, "provider_data": {CONTENT: Talkative()}}),
        (Text, {"text": CONTENT, "provider_data": {CONTENT: float("nan")}}),
        (ToolCall, {"tool_call_id": "c", "tool_name": "f", "arguments": CONTENT}),
        (ToolCall, {"tool_call_id": "c", "tool_name": "f", "arguments": {CONTENT: {CONTENT}}}),
        (ToolCall, {"tool_call_id": "c", "tool_name": "f", "raw_args_text": CONTENT}),
        (ToolResult, {"tool_call_id": "c", "content": (CONTENT,)}),
        (ToolResult, {"tool_call_id": "c", "content": Talkative()}),
        (ToolResult, {"tool_call_id": "c", "content": (Thinking(CONTENT),)}),
        (Image, {"mime_type": "image/png", "data": [CONTENT]}),
        (ProviderItem, {"item_type": "t", "item": CONTENT}),
        (ProviderItem, {"item_type": "t", "item": {}, "text": [CONTENT]}),
        (Message, {"role": "user", "parts": CONTENT}),
        (Message, {"role": "user", "parts": (CONTENT,)}),
        (Message, {"role": "user", "parts": (Thinking(CONTENT),)}),
        (Message, {"role": "user", "parts": (Text(CONTENT),), "timestamp": datetime(2026, 1, 1)}),
        (Message, {"role": "robot", "parts": (Text(CONTENT),)}),
        (MessageMeta, {"extra": {CONTENT: Talkative()}}),
        (TextDelta, at(text_delta=[CONTENT])),
        (TextDelta, at(text_delta=CONTENT, seq=-1)),
        (ToolCallArgsDelta, at(tool_call_id="c", args_text_delta=[CONTENT])),
        (ProviderItemDelta, at(item_type="t", item=CONTENT)),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(list(value)[-1]),
)
def test_a_refusal_says_nothing_of_the_content(build: Callable[..., object], given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as raised:
        build(**given)
    assert CONTENT not in str(raised.value)
    assert CONTENT not in repr(raised.value)


@pytest.mark.parametrize(
    "raw", ["x", "", " ", "[]", "null", '{"a": 2}', '{"a": true}', '{"a": NaN}', '{"a": 1, "b": 1}']
)
def test_a_call_whose_text_says_other_arguments_is_refused(raw: str) -> None:
    with pytest.raises(InvalidValue, match="rawArgsText"):
        ToolCall("c", "pay", {"a": 1}, raw_args_text=raw)


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        ({"a": 1, "b": [1.5, None]}, '{ "b": [1.5, null], "a": 1 }'),
        ({}, ""),
        ({"a": 2}, '{"a": 1, "a": 2}'),
        ({"a": "\ufffd"}, '{"a": "\\ud83d"}'),
        ({"a": (1, 2)}, '{"a": [1, 2]}'),
        ({"a": 10**30}, '{"a": 1000000000000000000000000000000}'),
    ],
)
def test_a_call_keeps_the_text_that_says_its_arguments(arguments: dict[str, Any], raw: str) -> None:
    assert ToolCall("c", "pay", arguments, raw_args_text=raw).raw_args_text == raw


@given(strategies.json_objects())
def test_a_call_can_be_made_anew_from_its_own_fields(arguments: dict[str, Any]) -> None:
    call = ToolCall("c", "pay", arguments)
    assert msgspec.structs.replace(call, tool_call_id="d").raw_args_text == call.raw_args_text
    halves = ToolCall("c", "pay", {"a": "\ud83d"})
    assert msgspec.structs.replace(halves, tool_call_id="d").raw_args_text == halves.raw_args_text
