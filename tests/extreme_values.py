"""Every field of every value that is recorded, with values at and beyond the edge of what JSON and Python can hold."""

import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman import (
    ErrorCode,
    FileRef,
    FinishReason,
    Image,
    InvalidValue,
    Message,
    Role,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolSpec,
)
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
    HistoryToolCallResult,
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
    ToolExecutionStatus,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from dragoman.message import MessageMeta, ModelInvocationDescriptor, ProviderItem, UnknownPart

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
INVOCATION = ModelInvocationDescriptor("p", "s", "m")
USAGE = TokenUsage(1, 2, 3, 4, 5, 6, 0.5)
LEVELS = LevelOfDetailSections(
    (Section("k", "live"), Section(LIVE_SCREEN, "screen")), (Section("k", "short"),), (Section("", "s"),)
)
PICTURE = Image("image/png", b"\x89PNG")
META = MessageMeta(
    usage=USAGE,
    finish_reason=FinishReason.STOP,
    raw_finish_reason="end",
    invocation=INVOCATION,
    model_id="m",
    request_id="r",
    parse_failures=("c",),
    interrupted=True,
    provider_data={"a": 1},
    extra={"own": 1},
)
RESULT = HistoryToolCallResult(
    tool_name="f",
    tool_call_id="c",
    status=ToolExecutionStatus.FAILED,
    result=LEVELS,
    elapsed_seconds=0.5,
    error_code=ErrorCode.TOOL_FAILED,
    attachments=(PICTURE,),
    extra={"own": 1},
)
_PLACE: dict[str, Any] = {"serial": 0, "entry_id": "s:0", "timestamp": NOW, "run_id": "r", "metadata": {"a": 1}}

PARTS: tuple[Any, ...] = (
    Text("hello", provider_data={"a": 1}, extra={"own": 1}),
    Thinking("hm", provider_data={"signature": "s"}),
    ToolCall("c", "f", {"x": 1}),
    ToolCall.parse("c", "f", "{"),
    ToolResult("c", "found", True),
    ToolResult("c", {"x": 1}),
    ToolResult("c", (Text("t"), PICTURE)),
    PICTURE,
    Image(url="https://example.com/a.png"),
    FileRef(path="a.txt", mime_type="text/plain", name="a", size=3),
    FileRef(url="https://example.com/a.pdf"),
    FileRef(file_id="file-1"),
    FileRef(data=b"bytes", mime_type="text/plain"),
    ProviderItem("web_search", {"a": 1}, "searched"),
    UnknownPart("hologram", {"a": 1}),
)
MESSAGE = Message(Role.ASSISTANT, (Text("hello"),), "r", NOW, META, {"own": 1})
ENTRIES: tuple[HistoryEntry, ...] = (
    ModelInputEntry((Text("hello"), PICTURE), LEVELS, **_PLACE),
    ModelInputEntry((Text("hello"),), **_PLACE),
    ModelOutputEntry(MESSAGE, **_PLACE),
    ToolResultsEntry((RESULT,), "broken", **_PLACE),
    ToolResultsEntry((RESULT,), **_PLACE),
    SystemInstructionEntry("be kind", **_PLACE),
    NotebookEntry("note", NotebookOperation.APPEND, **_PLACE),
    CompactionEntry(0, 1, "said", INVOCATION, USAGE, **_PLACE),
    CompactionEntry(0, 1, "said", **_PLACE),
    InterruptionEntry(ErrorCode.TIMEOUT, "late", MESSAGE, **_PLACE),
    ApprovalAskedEntry("c", "f", "may it", **_PLACE),
    ApprovalAnsweredEntry("c", True, "yes", {"x": 1}, "policy", **_PLACE),
    QuestionAskedEntry("q", "c", "which", {"x": 1}, "https://a.example", "server", **_PLACE),
    QuestionAnsweredEntry("q", QuestionAction.ACCEPT, {"x": 1}, "policy", **_PLACE),
    SamplingEntry("c", (MESSAGE,), "brief", MESSAGE, ErrorCode.TIMEOUT, "server", **_PLACE),
    ToolStartedEntry("c", "f", True, **_PLACE),
    ToolFinishedEntry(RESULT, **_PLACE),
    RunStartedEntry(**_PLACE),
    RunFinishedEntry(RunStatus.FAILED, ErrorCode.TIMEOUT, "late", **_PLACE),
    ModelInputEntry((Text("hello"),), steering_serial=3, **_PLACE),
    SteeringEntry((Text("hello"),), **_PLACE),
    RunRequestedEntry("support", (Text("hello"),), **_PLACE),
    AbortRequestedEntry("enough", **_PLACE),
    TakeoverEntry("process 2", "process 1", **_PLACE),
    ClientRequestEntry("openai-chat", "/v1", "m", "{}", 3, 2, 1, {"a": "b"}, "PUT", "key", ("m:1",), **_PLACE),
    ClientRequestEntry("openai-chat", "/v1", "m", "{}", **_PLACE),
    ClientAnswerEntry(3, 200, b"data: {}", {"a": "b"}, "p:m", False, ("m:1",), **_PLACE),
    ToolSetEntry(INVOCATION, ("0" * 32,), (ToolSpec("f", "d"),), settings={"a": 1}, **_PLACE),
    EpochEntry(1, "budget", {"a": 1}, **_PLACE),
    ResetEntry(**_PLACE),
    UnknownEntry("omen", {"a": 1}, **_PLACE),
)


class _Bytes(bytes):
    """Bytes of another class: msgspec does not write them."""


class _Text(str):
    """Text of another class."""

    __slots__ = ()


def nested(depth: int, kind: type = dict) -> Any:
    """Return an object or array that is nested so deep."""
    value: Any = {} if kind is dict else []
    for _ in range(depth - 1):
        value = {"a": value} if kind is dict else [value]
    return value


def _endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


_NUMBERS: tuple[Any, ...] = (
    *(sign * number for number in (0, 1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**400, 10**4299) for sign in (1, -1)),
    10**4300,
    10**5000,
    *(0.0, -0.0, 0.1, 5e-324, 1e22, 2.0**53, sys.float_info.max, -sys.float_info.max, math.nan, math.inf, -math.inf),
    True,
    False,
)
_TEXTS: tuple[Any, ...] = (
    *("", " ", "\x00", "a\x00b", "\ud800", "\udc00", "\ud83d\ude00", "\udc00\ud800", "\ufeff", "\ufffd", "\u2028"),
    *('"\\/\b\f\n\r\t', "\U0010ffff", "a" * 6_000, "\u0000" * 5_000, "YWJj" * 2_000, "é" * 5_000, _Text("a")),
)
_OBJECTS: tuple[Any, ...] = (
    {},
    {"": ""},
    {"a": None},
    {"a": {"b": None}},
    {"k" * 6_000: 1},
    dict.fromkeys(("\ud800", "\udc00", "\ufffd"), 1),
    {"\x00": "\x00"},
    {"kind": "text", "payload": {}, "extra": 1, "schemaVersion": 99},
    {"a": (1, (2,))},
    {1: 2},
    {"a": {1, 2}},
    {"a": b"x"},
    {"a": NOW},
    {"a": _Text("a")},
    *({"a": number} for number in _NUMBERS),
    *({"a": nested(depth)} for depth in (2, 190, 198, 199, 200, 201, 250, 300, 900, 20_000)),
    *({"a": nested(depth, list)} for depth in (199, 200, 20_000)),
    {str(place): place for place in range(3_000)},
    {"a": list(range(3_000))},
    _endless(),
)
_TIMES: tuple[Any, ...] = (
    *(datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
    datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=1))),
    datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=UTC, fold=1),
)
_WORDS: tuple[Any, ...] = (*Role, *FinishReason, *NotebookOperation, *RunStatus, *ToolExecutionStatus, *ErrorCode)
_VALUES: tuple[Any, ...] = (
    *(USAGE, TokenUsage(), INVOCATION, META, MessageMeta(), RESULT, MESSAGE),
    *(LEVELS, LevelOfDetailSections(), LevelOfDetailSections.of_text("hello"), LevelOfDetailSections.of_text("")),
    LevelOfDetailSections((Section("\ud800", "\udc00"), Section("", "hello"), Section("", "hello"))),
    LevelOfDetailSections((Section(LIVE_SCREEN, "a"), Section(LIVE_SCREEN, "a")), (Section(LIVE_SCREEN, "a"),)),
)
_SEQUENCES: tuple[Any, ...] = ((), [], PARTS, *((part,) for part in PARTS), (RESULT, RESULT), ("c", "\ud800"), ("",))
_BYTES: tuple[Any, ...] = (b"", b"\x00\xff", bytes(6_000), _Bytes(b"x"), bytearray(b"x"))
EXTREMES = (None, *_NUMBERS, *_TEXTS, *_BYTES, *_OBJECTS, *_TIMES, *_WORDS, *_VALUES, *_SEQUENCES)


_JUNK: tuple[Any, ...] = (None, 5, {}, {"b": 1}, [])


def _extras(value: msgspec.Struct) -> Iterator[dict[str, Any]]:
    """Unknown fields that are called like known ones, outside and inside of what is known."""
    for name in {*value.__struct_encode_fields__, "id", "kind", "payload", "schemaVersion"}:
        for junk in _JUNK:
            yield {name: junk}
            yield {"payload": {name: junk}}
            for inner in ("usage", "invocation", "sections", "result"):
                yield {"payload": {inner: {name: junk}}}
                yield {inner: {name: junk}}


class Changed(NamedTuple):
    """A value with one field changed, and what was changed."""

    what: str
    value: Any


def changed(value: Any) -> Iterator[Changed]:
    """Yield the value with each of its fields set to each extreme, as far as the value is not refused."""
    for name in value.__struct_fields__:
        extremes = (*EXTREMES, *_extras(value)) if name == "extra" else EXTREMES
        for place, extreme in enumerate(extremes):
            try:
                made = replace(value, **{name: extreme})
            except InvalidValue:
                continue
            yield Changed(f"{type(value).__name__}.{name}: extreme {place}, a {type(extreme).__name__}", made)


def _held(part: Any) -> HistoryEntry:
    """An entry that holds the part."""
    if isinstance(part, ToolResult):
        return ToolFinishedEntry(HistoryToolCallResult.of_result(part, "f"), **_PLACE)
    if part.kind in ("text", "image", "file_ref"):
        return ModelInputEntry((part, Text("and")), **_PLACE)
    return ModelOutputEntry(Message(Role.ASSISTANT, (part,)), **_PLACE)


@cache
def extreme_entries() -> tuple[Changed, ...]:
    """Return entries of every class with one extreme value each, in a field of their own or inside."""
    return tuple(_extreme_entries())


def _extreme_entries() -> Iterator[Changed]:
    for entry in ENTRIES:
        yield from changed(entry)
    for part in PARTS:
        for what, made in changed(part):
            yield Changed(what, _held(made))
    for what, usage in changed(USAGE):
        yield Changed(what, CompactionEntry(0, 1, "said", INVOCATION, usage, **_PLACE))
        yield Changed(what, ModelOutputEntry(replace(MESSAGE, meta=replace(META, usage=usage)), **_PLACE))
    for what, invocation in changed(INVOCATION):
        yield Changed(what, CompactionEntry(0, 1, "said", invocation, **_PLACE))
    for what, meta in changed(META):
        yield Changed(what, ModelOutputEntry(replace(MESSAGE, meta=meta), **_PLACE))
    for what, message in changed(MESSAGE):
        if message.role is Role.ASSISTANT:
            yield Changed(what, InterruptionEntry(ErrorCode.TIMEOUT, "late", message, **_PLACE))
    for what, result in changed(RESULT):
        yield Changed(what, ToolFinishedEntry(result, **_PLACE))
        yield Changed(what, ToolResultsEntry((result, RESULT), **_PLACE))
    for what, levels in changed(LEVELS):
        yield Changed(what, ModelInputEntry((Text("hello"),), levels, **_PLACE))
