"""Messages of blocks: what they refuse, their JSON, and what they are in the core."""

import base64
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import ErrorCode, FinishReason, InvalidValue, UnreadableData
from dragoman.blocks import (
    Block,
    BlockValue,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    ImageBlock,
    Message,
    MessageStop,
    ModelResponse,
    Role,
    StreamChunk,
    TextBlock,
    TokenUsage,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    from_core,
    from_json,
    to_core,
    to_json,
)
from dragoman.testing.strategies import json_objects, messages
from dragoman.usage import NUMBER_LIMIT

PNG = ImageBlock("base64", "image/png", "iVBORw==")
CALL = ToolUseBlock("t1", "look", {"at": "sea"})
BROKEN = ToolUseBlock("t2", "look", None, "arguments must be a JSON object, not an array", "[1]")
INVOCATION = dragoman.message.ModelInvocationDescriptor("anthropic", "anthropic-messages", "m-1")
THOUGHT = dragoman.Message.assistant(
    dragoman.Thinking("Hm.", provider_data={"signature": "c2ln"}),
    dragoman.Text("Look."),
    dragoman.ToolCall("t1", "look", {"at": "sea"}, '{ "at": "sea" }'),
    invocation=INVOCATION,
)
(SHOWN,) = from_core([THOUGHT])

# ---------------------------------------------------------------- strategies

names = st.text(min_size=1, max_size=8)
texts = st.builds(TextBlock, st.text(max_size=12))
picture_types = st.sampled_from(("image/png", "image/webp", "image/svg+xml"))
pictures = st.builds(
    lambda kind, data: ImageBlock("base64", kind, base64.b64encode(data).decode()),
    picture_types,
    st.binary(min_size=1, max_size=8),
) | st.builds(
    ImageBlock,
    st.just("url"),
    st.none() | picture_types,
    names.map(lambda name: f"https://a.example/{name.encode().hex()}"),
)
uses = st.builds(ToolUseBlock, names, names, json_objects()) | st.builds(
    ToolUseBlock, names, names, st.none(), names, st.none() | names
)
results = st.builds(
    ToolResultBlock,
    names,
    st.text(max_size=8) | json_objects() | st.lists(texts | pictures, max_size=3).map(tuple),
    st.booleans(),
)
by_role: dict[Role, st.SearchStrategy[Any]] = {
    Role.USER: texts | pictures | results,
    Role.ASSISTANT: texts | pictures | uses,
    Role.SYSTEM: texts,
}
block_messages = st.one_of(
    *(
        st.builds(Message, st.just(role), st.text(max_size=12) | st.lists(blocks, max_size=4).map(tuple))
        for role, blocks in by_role.items()
    )
)
counts = st.integers(0, NUMBER_LIMIT)
usages = st.builds(TokenUsage, counts, counts, st.none() | counts)
chunks = st.one_of(
    st.builds(ContentBlockStart, counts, st.none() | pictures),
    st.builds(ContentBlockDelta, counts, st.text(max_size=12)),
    st.builds(ContentBlockStop, counts),
    st.builds(ToolUse, names, names, json_objects(), st.none() | counts),
    st.builds(ToolUse, names, names, st.none(), st.none(), names, st.none() | names),
    st.builds(MessageStop, st.none() | usages, st.none() | st.sampled_from(FinishReason)),
    st.builds(
        Error,
        st.text(max_size=12),
        st.sampled_from(ErrorCode),
        st.none() | st.booleans(),
        st.none() | st.floats(0, 1e6),
        st.none() | names,
        st.none() | names,
    ),
)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "arguments", "said"),
    [
        (TextBlock, [3], "text block: text must be text, got 3"),
        (ToolUseBlock, ["", "look", {}], "tool_use_id must be non-empty text"),
        (ToolUseBlock, ["t", "look"], "either parameters or parse_error, got neither"),
        (ToolUseBlock, ["t", "look", {}, "no"], "either parameters or parse_error, got both"),
        (ToolUseBlock, ["t", "look", {}, None, "{}"], "raw_parameters only where it has a parse_error"),
        (ToolUseBlock, ["t", "look", None, "no", ""], "raw_parameters must be non-empty text"),
        (ToolUseBlock, ["t", "look", {"a": float("nan")}], "JSON has no such number"),
        (ToolResultBlock, ["t", 3], "must be text, a dict, or text and image blocks"),
        (ToolResultBlock, ["t", [CALL]], "cannot hold a ToolUseBlock: allowed are TextBlock, ImageBlock"),
        (ToolResultBlock, ["t", "", 1], "is_error must be true or false"),
        (ImageBlock, ["png", None, "x"], "image_type must be 'base64' or 'url', got 'png'"),
        (ImageBlock, ["base64", None, "QQ=="], "mimeType must be non-empty text"),
        (ImageBlock, ["base64", "image/png", "Q Q"], "must be Base64 without spaces"),
        (ImageBlock, ["base64", "image/png", b"QQ=="], "data must be text"),
        (ImageBlock, ["url", None, ""], "url must be non-empty text"),
        (ImageBlock, ["base64", "image/png", ""], "must be the bytes of a picture, got none"),
        (ImageBlock, ["base64", "image/png\r\nX: y", "QQ=="], "must be a media type"),
        (Message, ["tool", "x"], "role must be one of user, assistant, system, got 'tool'"),
        (Message, ["user", 3], "content must be text or a sequence of blocks"),
        (Message, ["user", [CALL]], "a user message cannot hold a ToolUseBlock"),
        (Message, ["system", [PNG]], "a system message cannot hold a ImageBlock: allowed are TextBlock"),
        (Message, ["assistant", [ToolResultBlock("t", "x")]], "cannot hold a ToolResultBlock"),
        (Message, ["user", ["x"]], "a user message cannot hold a str"),
        (TokenUsage, [-1, 0], "input_tokens must be a whole number from 0 up, at most 2**53, got -1"),
        (TokenUsage, [1, True], "output_tokens must be a whole number"),
        (ModelResponse, [Message(Role.USER, "x"), None, "m", "stop"], "message must be an assistant's Message"),
        (ModelResponse, [Message(Role.ASSISTANT, "x"), 3, "m", "stop"], "usage must be a TokenUsage or None"),
        (ModelResponse, [Message(Role.ASSISTANT, "x"), None, "m", "tired"], "finishReason must be one of"),
        (ContentBlockStart, [-1], "index must be a whole number"),
        (ContentBlockStart, [0, TextBlock("x")], "block must be an ImageBlock or None"),
        (ContentBlockDelta, [0, None], "delta must be text"),
        (ToolUse, ["look", "t", None], "either parameters or parse_error, got neither"),
        (Error, ["x", "odd"], "code must be one of"),
        (Error, ["x", "internal", None, -1], "retry_after must be a finite number from 0 up"),
        (to_core, [[dragoman.Message.user("x")]], "messages must be a sequence of dragoman.blocks.Message"),
        (to_core, [iter([])], "messages must be a sequence of dragoman.blocks.Message"),
        (from_core, [[Message(Role.USER, "x")]], "messages must be a sequence of dragoman.Message"),
        (to_json, [dragoman.Message.user("x")], "to_json: the value must be"),
        (from_json, [3], "from_json: the data must be bytes or text, got 3"),
    ],
)
def test_a_value_refuses_what_it_must_not_hold(make: Any, arguments: Any, said: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        make(*arguments)
    assert said in str(refusal.value)


def test_a_list_becomes_a_tuple_and_a_word_its_role() -> None:
    message = Message("user", [TextBlock("a"), PNG, TextBlock("b")])  # type: ignore[arg-type]
    assert message.role is Role.USER
    assert message.content == (TextBlock("a"), PNG, TextBlock("b"))
    assert message.text == "ab"


def test_a_message_lists_its_tool_uses() -> None:
    assert Message(Role.ASSISTANT, (TextBlock("a"), CALL, BROKEN)).tool_uses == (CALL, BROKEN)


def test_an_error_says_no_secret_and_knows_whether_to_retry() -> None:
    error = Error("no: sk-abcdefghij0123456789abcdefghij", ErrorCode.OVERLOADED, retry_after=2)
    assert "abcdefghij" not in error.message
    assert error.to_exception().retryable
    assert (error.to_exception().code, error.to_exception().retry_after) == (ErrorCode.OVERLOADED, 2)


# ---------------------------------------------------------------- to the core and back


def test_results_of_tools_go_before_the_rest_of_the_users_turn() -> None:
    turn = Message(
        Role.USER, (TextBlock("And?"), ToolResultBlock("t1", "blue"), PNG, ToolResultBlock("t2", "gone", True))
    )
    assert to_core([turn]) == (
        dragoman.Message.tool(dragoman.ToolResult("t1", "blue")),
        dragoman.Message.tool(dragoman.ToolResult("t2", "gone", True)),
        dragoman.Message.user("And?", dragoman.Image("image/png", b"\x89PNG")),
    )


def test_results_alone_make_no_user_message() -> None:
    assert [message.role for message in to_core([Message(Role.USER, (ToolResultBlock("t1", "blue"),))])] == ["tool"]


def test_every_block_has_its_part() -> None:
    assert to_core([Message(Role.ASSISTANT, (TextBlock("a"), CALL, BROKEN, PNG))])[0].parts == (
        dragoman.Text("a"),
        dragoman.ToolCall("t1", "look", {"at": "sea"}),
        dragoman.ToolCall("t2", "look", None, "[1]", BROKEN.parse_error),
        dragoman.Image("image/png", b"\x89PNG"),
    )


def test_thinking_is_not_shown_and_goes_back_with_its_signature() -> None:
    assert SHOWN.content == (TextBlock("Look."), CALL)
    assert to_core([SHOWN]) == (THOUGHT,)


def test_a_source_that_says_something_else_than_the_blocks_is_refused() -> None:
    for changes in ({"content": "Do not look."}, {"content": ()}, {"role": "user", "content": "Look."}):
        with pytest.raises(InvalidValue, match="source must say what role and content say"):
            msgspec.structs.replace(SHOWN, **changes)
    assert to_core([msgspec.structs.replace(SHOWN, content="No.", source=None)]) == (dragoman.Message.assistant("No."),)


def test_a_source_is_not_kept_where_the_blocks_say_everything() -> None:
    assert from_core([dragoman.Message.user("hi")]) == (Message(Role.USER, (TextBlock("hi"),)),)


def test_tool_messages_and_the_user_message_after_them_are_one_turn() -> None:
    turns = [
        dragoman.Message.user("hi"),
        THOUGHT,
        dragoman.Message.tool(dragoman.ToolResult("t1", {"sea": "blue"}), run_id="r"),
        dragoman.Message.user("And?", dragoman.FileRef(path="a.txt")),
        dragoman.Message.user("Well?"),
    ]
    shown = from_core(turns)
    assert [message.role for message in shown] == [Role.USER, Role.ASSISTANT, Role.USER, Role.USER]
    assert shown[2].content == (ToolResultBlock("t1", {"sea": "blue"}), TextBlock("And?"))
    assert list(to_core(shown)) == turns


@given(st.lists(messages(), max_size=5))
def test_any_conversation_of_the_core_survives_the_block_form_and_its_json(turns: list[dragoman.Message]) -> None:
    shown = from_core(turns)
    assert list(to_core(shown)) == turns
    again = [cast("Message", from_json(to_json(message))) for message in shown]
    assert list(to_core(again)) == turns


@given(st.lists(block_messages, max_size=3))
def test_blocks_keep_their_order_through_the_core_results_first(turns: list[Message]) -> None:
    for turn in turns:
        is_result = [isinstance(block, ToolResultBlock) for block in turn.blocks]
        ordered = sorted(range(len(is_result)), key=lambda place: not is_result[place])
        (again,) = from_core(to_core([turn]))
        assert again.role is turn.role
        assert again.blocks == tuple(turn.blocks[place] for place in ordered)
        assert again.source is None


# ---------------------------------------------------------------- JSON


@given(block_messages | chunks | usages | texts | pictures | uses | results)
def test_a_value_is_read_back_from_its_json(value: BlockValue) -> None:
    assert from_json(to_json(value)) == value
    assert from_json(to_json(value).decode()) == value


@given(chunks)
def test_chunks_are_a_union_that_msgspec_reads(chunk: StreamChunk) -> None:
    assert msgspec.json.decode(to_json(chunk), type=StreamChunk) == chunk


def test_a_response_is_read_back_with_what_the_core_knows_of_it() -> None:
    response = ModelResponse(SHOWN, TokenUsage(3, 4, 7), "m-1", FinishReason.TOOL_CALLS)
    again = from_json(to_json(response))
    assert again == response
    assert isinstance(again, ModelResponse)
    assert to_core([again.message]) == (THOUGHT,)


def test_the_layout_has_the_names_of_the_fields() -> None:
    assert json.loads(to_json(Message(Role.USER, (ToolResultBlock("t1", "blue"), PNG)))) == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "blue"},
            {"type": "image", "image_type": "base64", "media_type": "image/png", "data": "iVBORw=="},
        ],
    }
    assert to_json(Message(Role.USER, "hi")) == b'{"role":"user","content":"hi"}'
    assert to_json(ContentBlockDelta(0, "Hi")) == b'{"chunk":"content_block_delta","index":0,"delta":"Hi"}'


def test_null_is_the_same_as_absent() -> None:
    picture = {"type": "image", "image_type": "url", "data": "https://a.example/b.png"}
    block: Block = ImageBlock("url", None, "https://a.example/b.png")
    for written in (picture, {**picture, "media_type": None}):
        assert from_json(json.dumps(written)) == block
        assert from_json(json.dumps({"chunk": "content_block_start", "index": 0, "block": written})) == (
            ContentBlockStart(0, cast("ImageBlock", block))
        )
        result = {"type": "tool_result", "tool_use_id": "t", "content": [written], "is_error": None}
        assert from_json(json.dumps(result)) == ToolResultBlock("t", (cast("ImageBlock", block),))
    assert from_json('{"chunk": "message_stop"}') == MessageStop(None)
    assert from_json('{"chunk": "tool_use", "tool_name": "a", "tool_use_id": "b", "parse_error": "c"}') == (
        ToolUse("a", "b", None, parse_error="c")
    )


SECRET = "planted content"
SOURCE = {"role": "assistant", "parts": [{"kind": "text", "payload": {"text": SECRET}}]}


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"role": "user"',
        "[" * 100_000,
        {"type": SECRET},
        {"type": ["text"], "text": SECRET},
        {"type": "text"},
        {"type": "text", "text": 3},
        {"type": "text", "text": "a", SECRET: 1},
        {"type": "image", "image_type": SECRET, "media_type": "a", "data": "QQ=="},
        {"type": "image", "image_type": "base64", "media_type": "a", "data": SECRET},
        {"type": "tool_use", "tool_use_id": "t", "tool_name": "n"},
        {"type": "tool_use", "tool_use_id": "t", "tool_name": "n", "parameters": [SECRET]},
        {"type": "tool_result", "tool_use_id": "t", "content": [SECRET]},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_use"}]},
        {"type": "tool_result", "tool_use_id": "t", "content": "a", "is_error": SECRET},
        {"role": SECRET, "content": "a"},
        {"role": ["user"], "content": "a"},
        {"role": "user"},
        {"role": "user", "content": {"type": "text", "text": SECRET}},
        {"role": "user", "content": [SECRET]},
        {"role": "user", "content": [{"type": "tool_use", "tool_use_id": "t", "tool_name": "n", "parameters": {}}]},
        {"role": "user", "content": "a", SECRET: 1},
        {"role": "assistant", "content": "a", "source": SECRET},
        {"role": "assistant", "content": "a", "source": [SECRET]},
        {"role": "assistant", "content": "a", "source": []},
        {"role": "assistant", "content": "something else", "source": [SOURCE]},
        {"role": "assistant", "content": SECRET, "source": [SOURCE, SOURCE]},
        {"message": SECRET, "model": "m", "stop_reason": "stop"},
        {"message": {"role": "user", "content": "a"}, "model": "m", "stop_reason": "stop"},
        {"message": {"role": "assistant", "content": "a"}, "model": "m", "stop_reason": SECRET},
        {"message": {"role": "assistant", "content": "a"}, "stop_reason": "stop"},
        {"message": {"role": "assistant", "content": "a"}, "model": "m", "stop_reason": "stop", "usage": [SECRET]},
        {"chunk": SECRET},
        {"chunk": {"a": SECRET}},
        {"chunk": "content_block_start", "index": -1},
        {"chunk": "content_block_start", "index": 0, "block": {"type": "text", "text": SECRET}},
        {"chunk": "content_block_delta", "index": SECRET, "delta": "a"},
        {"chunk": "tool_use", "tool_name": "n", "tool_use_id": "t", "parameters": None},
        {"chunk": "message_stop", "usage": {"input_tokens": 1}},
        {"chunk": "message_stop", "usage": {"input_tokens": 1, "output_tokens": -1}},
        {"chunk": "error", "message": "a", "code": SECRET},
        {"chunk": "error"},
        {"input_tokens": SECRET, "output_tokens": 1},
    ],
)
def test_hostile_json_is_refused_and_not_quoted(written: Any) -> None:
    data = written if isinstance(written, (bytes, str)) else json.dumps(written)
    with pytest.raises(UnreadableData) as refusal:
        from_json(data)
    assert SECRET not in str(refusal.value)
    assert refusal.value.code is ErrorCode.CORRUPT


@given(json_objects())
def test_any_other_object_is_refused_or_read(written: dict[str, Any]) -> None:
    for field in ("chunk", "type", "role", "message", "input_tokens"):
        with pytest.raises(UnreadableData):
            from_json(json.dumps({**written, field: "x"}))
