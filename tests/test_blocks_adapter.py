"""The block-style adapter on replayed answers of three wire APIs. Nothing is mocked."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import (
    ErrorCode,
    FinishReason,
    InvalidValue,
    MessageDelta,
    Model,
    ModelError,
    ToolSpec,
    model,
)
from dragoman.blocks import (
    BlockAdapter,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    ImageBlock,
    Message,
    MessageStop,
    ModelResponse,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    adapter_for,
    from_json,
    to_core,
    to_json,
)
from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.testing.strategies import legal_streams
from dragoman.transport import HttpRequest, Timeouts
from tests.blocks_cases import HELLO, Player, chat_piece, last_error, read, require_legal, run, settle, sse

LOOK = ToolSpec("look", "Look at something.", {"type": "object", "properties": {"at": {"type": "string"}}})


# ---------------------------------------------------------------- wire samples


def chat_call(**function: str) -> dict[str, Any]:
    named = {"id": "t1", "type": "function"} if "name" in function else {}
    return chat_piece({"tool_calls": [{"index": 0, **named, "function": function}]})


CHAT = [
    chat_piece({"role": "assistant", "content": "Let me "}),
    chat_piece({"content": "look."}),
    chat_call(name="look", arguments='{"at":'),
    chat_call(arguments='"sea"}'),
    chat_piece({}, "tool_calls"),
    {"id": "c1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}},
    "[DONE]",
]


def claude_block(index: int, block: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[dict[str, Any]]:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *pieces, {"type": "content_block_stop", "index": index}]


ANTHROPIC = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [], "usage": {"input_tokens": 9}}},
    *claude_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "The sea, then."},
        {"type": "signature_delta", "signature": "c2lnbmVk"},
    ),
    *claude_block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Let me "},
        {"type": "text_delta", "text": "look."},
    ),
    *claude_block(
        2,
        {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"at":'},
        {"type": "input_json_delta", "partial_json": '"sea"}'},
    ),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
}
CALLED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "t1",
    "name": "look",
    "arguments": '{"at":"sea"}',
    "status": "completed",
}


def item_event(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


RESPONSES = [
    {"type": "response.created", "response": {"id": "r1", "model": "m-1", "status": "in_progress", "output": []}},
    item_event("output_item.added", 0, item={**REASONING, "encrypted_content": None}),
    item_event("output_item.done", 0, item=REASONING),
    item_event("output_item.added", 1, item={**SAID, "content": []}),
    item_event("output_text.delta", 1, item_id="msg_1", content_index=0, delta="Let me "),
    item_event("output_text.delta", 1, item_id="msg_1", content_index=0, delta="look."),
    item_event("output_item.done", 1, item=SAID),
    item_event("output_item.added", 2, item={**CALLED, "arguments": ""}),
    item_event("function_call_arguments.delta", 2, item_id="fc_1", delta='{"at":"sea"}'),
    item_event("output_item.done", 2, item=CALLED),
    {
        "type": "response.completed",
        "response": {
            "id": "r1",
            "model": "m-1",
            "status": "completed",
            "output": [REASONING, SAID, CALLED],
            "usage": {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14},
        },
    },
]

ANSWERS: dict[str, list[Any]] = {"openai-chat:m-1": CHAT, "anthropic:m-1": ANTHROPIC, "openai:m-1": RESPONSES}
every_api = pytest.mark.parametrize("name", ANSWERS)


def adapter(name: str, *bodies: bytes, **settings: Any) -> tuple[BlockAdapter, ReplayTransport]:
    transport = ReplayTransport([ReplayedResponse(chunks=(body,)) for body in bodies])
    return BlockAdapter(model(name, api_key="key", transport=transport), **settings), transport


# ---------------------------------------------------------------- answers


@every_api
def test_a_streamed_answer_is_the_same_chunks_from_every_api(name: str) -> None:
    asked, _ = adapter(name, sse(*ANSWERS[name]))
    chunks, response = run(read(asked, tools=[LOOK]))
    assert chunks[:-1] == [
        ContentBlockStart(0),
        ContentBlockDelta(0, "Let me "),
        ContentBlockDelta(0, "look."),
        ContentBlockStop(0),
        ToolUse("look", "t1", {"at": "sea"}, 1),
    ]
    assert isinstance(chunks[-1], MessageStop)
    assert chunks[-1].stop_reason is FinishReason.TOOL_CALLS
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.input_tokens, chunks[-1].usage.output_tokens) == (9, 5)
    assert [from_json(to_json(chunk)) for chunk in chunks] == chunks
    assert response.message.content == (TextBlock("Let me look."), ToolUseBlock("t1", "look", {"at": "sea"}))
    assert (response.usage, response.stop_reason, response.model) == (chunks[-1].usage, "tool_calls", "m-1")


@every_api
def test_a_sent_message_gives_what_its_stream_gives(name: str) -> None:
    asked, _ = adapter(name, sse(*ANSWERS[name]), sse(*ANSWERS[name]))

    async def both() -> tuple[ModelResponse, ModelResponse]:
        whole = await asked.send_message(HELLO, tools=[LOOK])
        return whole, (await read(asked, tools=[LOOK]))[1]

    whole, streamed = run(both())
    assert (whole.message.content, whole.usage, whole.model) == (
        streamed.message.content,
        streamed.usage,
        streamed.model,
    )


@every_api
def test_the_conversation_goes_on_with_all_that_the_provider_needs_back(name: str) -> None:
    asked, transport = adapter(name, sse(*ANSWERS[name]), sse(*ANSWERS[name]))

    async def converse() -> None:
        response = await asked.send_message(HELLO, tools=[LOOK])
        kept = from_json(to_json(response.message))
        assert isinstance(kept, Message)
        answered = Message(Role.USER, (ToolResultBlock("t1", "blue"), TextBlock("And?")))
        await asked.send_message([*HELLO, kept, answered], tools=[LOOK])

    run(converse())
    body = json.loads(transport.requests[1].body)
    match name:
        case "anthropic:m-1":
            thinking, text, call = body["messages"][1]["content"]
            assert (thinking["thinking"], thinking["signature"]) == ("The sea, then.", "c2lnbmVk")
            assert (text["text"], call["input"]) == ("Let me look.", {"at": "sea"})
            result, question = body["messages"][2]["content"]
            assert (result["type"], result["tool_use_id"], question["text"]) == ("tool_result", "t1", "And?")
        case "openai:m-1":
            assert body["input"][1]["encrypted_content"] == "sealed"
            assert [item["id"] for item in body["input"][1:4]] == ["rs_1", "msg_1", "fc_1"]
            assert body["input"][4]["output"] == "blue"
        case _:
            assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "user"]


def test_prompt_limit_and_tools_reach_the_request() -> None:
    asked, transport = adapter("anthropic:m-1", sse(*ANTHROPIC))
    run(asked.send_message([Message(Role.SYSTEM, "Old."), *HELLO], "Be brief.", 77, tools=[LOOK]))
    body = json.loads(transport.requests[0].body)
    assert "Be brief." in json.dumps(body["system"])
    assert "Old." not in json.dumps(body)
    assert (body["max_tokens"], body["tools"][0]["name"]) == (77, "look")


def test_a_system_message_is_the_prompt_where_none_is_given() -> None:
    asked, transport = adapter("anthropic:m-1", sse(*ANTHROPIC))
    run(asked.send_message([Message(Role.SYSTEM, "Old."), *HELLO]))
    assert "Old." in json.dumps(json.loads(transport.requests[0].body)["system"])


def test_an_answer_that_reached_its_limit_says_that_it_is_not_whole() -> None:
    asked, _ = adapter("openai-chat:m-1", sse(chat_piece({"content": "Let"}), chat_piece({}, "length"), "[DONE]"))
    response = run(asked.send_message(HELLO))
    assert (response.message.text, response.stop_reason) == ("Let", FinishReason.LENGTH)
    assert not response.stop_reason.is_complete
    assert response.usage is None  # it was not reported


@pytest.mark.parametrize("finish", ["length", "content_filter", "a_new_word"])
def test_a_call_of_an_answer_that_is_not_whole_cannot_be_run_and_goes_back_as_it_was(finish: str) -> None:
    arguments = '{"at": "sea"}'
    body = sse(chat_call(name="look", arguments=arguments), chat_piece({}, finish), "[DONE]")
    asked, _ = adapter("openai-chat:m-1", body)
    (use, _), response = run(read(asked, tools=[LOOK]))
    assert isinstance(use, ToolUse)
    assert (use.parameters, use.raw_parameters) == (None, arguments)
    assert response.message.tool_uses[0].parameters is None
    assert to_core([response.message])[0].tool_calls[0].arguments == {"at": "sea"}


@pytest.mark.parametrize(
    ("arguments", "finish", "said"),
    [
        ('["sea"]', "tool_calls", "arguments must be a JSON object, not an array"),
        ('{"at": "se', "length", "not readable as JSON"),
        ("", "length", "the answer reached its length limit before any argument was written"),
    ],
)
def test_a_call_whose_arguments_did_not_parse_has_no_parameters(arguments: str, finish: str, said: str) -> None:
    body = sse(chat_call(name="look", arguments=arguments), chat_piece({}, finish), "[DONE]")
    asked, _ = adapter("openai-chat:m-1", body, body)
    (use, stop), response = run(read(asked, tools=[LOOK]))
    assert isinstance(use, ToolUse)
    assert isinstance(stop, MessageStop)
    assert use.parameters is None
    assert use.parse_error is not None
    assert said in use.parse_error
    assert use.raw_parameters == (arguments or None)
    (block,) = response.message.tool_uses
    assert (block.parameters, block.parse_error) == (None, use.parse_error)


def test_a_call_without_arguments_has_empty_parameters() -> None:
    asked, _ = adapter("openai-chat:m-1", sse(chat_call(name="look", arguments=""), chat_piece({}, "tool_calls")))
    chunks, _ = run(read(asked, tools=[LOOK]))
    assert chunks[0] == ToolUse("look", "t1", {}, 0)


# ---------------------------------------------------------------- what goes wrong


@every_api
def test_an_answer_cut_short_anywhere_is_an_error_without_any_tool_use(name: str) -> None:
    wire = ANSWERS[name]
    finish = {"openai-chat:m-1": 4, "anthropic:m-1": len(wire) - 1, "openai:m-1": len(wire) - 1}[name]
    for end in range(finish + 1):
        body = sse(*wire[:end])
        asked, _ = adapter(name, body, body)
        chunks, response = run(read(asked, tools=[LOOK]))
        require_legal(chunks)
        assert last_error(chunks).code is ErrorCode.STREAM_TRUNCATED
        assert last_error(chunks).retryable
        assert response is None
        assert not [chunk for chunk in chunks if isinstance(chunk, ToolUse)]
        with pytest.raises(ModelError) as failure:
            run(asked.send_message(HELLO, tools=[LOOK]))
        assert failure.value.code is ErrorCode.STREAM_TRUNCATED


def test_an_error_inside_a_stream_stops_the_open_block_and_keeps_its_facts() -> None:
    broken = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    asked, _ = adapter("anthropic:m-1", sse(ANTHROPIC[0], *ANTHROPIC[5:7], broken))
    chunks, _ = run(read(asked))
    assert chunks[:-1] == [ContentBlockStart(0), ContentBlockDelta(0, "Let me "), ContentBlockStop(0)]
    assert (last_error(chunks).code, last_error(chunks).provider_message) == (ErrorCode.OVERLOADED, "Overloaded")


def test_a_failure_before_any_answer_is_the_only_chunk() -> None:
    transport = ReplayTransport([ModelError("refused", code=ErrorCode.CONNECTION, retry_after=3)] * 2)
    asked = BlockAdapter(model("anthropic:m-1", api_key="key", transport=transport))
    chunks, _ = run(read(asked))
    assert chunks == [Error("refused", ErrorCode.CONNECTION, True, 3)]
    with pytest.raises(ModelError, match="refused"):
        run(asked.send_message(HELLO))


def test_what_the_model_cannot_do_is_refused_before_the_stream() -> None:
    asked, transport = adapter("deepseek:deepseek-chat", b"")
    picture = Message(Role.USER, (ImageBlock("base64", "image/png", "iVBORw=="),))
    with pytest.raises(ModelError, match="cannot read image/png"):
        run(asked.stream_message([picture]))
    with pytest.raises(InvalidValue, match=r"sequence of dragoman\.blocks\.Message"):
        run(asked.send_message([dragoman.Message.user("hi")]))  # type: ignore[list-item]
    assert transport.requests == []


# ---------------------------------------------------------------- models of another kind


@given(legal_streams(ending="done"))
def test_chunks_say_what_the_answer_says_each_at_its_place(deltas: list[MessageDelta]) -> None:
    chunks, response = asyncio.run(read(BlockAdapter(Player(deltas), capacity=2)))
    require_legal(chunks)
    texts = {chunk.index: "" for chunk in chunks if isinstance(chunk, ContentBlockStart) and chunk.block is None}
    for chunk in chunks:
        if isinstance(chunk, ContentBlockDelta):
            texts[chunk.index] += chunk.delta
    told: dict[int, Any] = {index: TextBlock(text) for index, text in texts.items()}
    told |= {chunk.index: chunk.block for chunk in chunks if isinstance(chunk, ContentBlockStart) and chunk.block}
    told |= {
        chunk.index: ToolUseBlock(
            chunk.tool_use_id, chunk.tool_name, chunk.parameters, chunk.parse_error, chunk.raw_parameters
        )
        for chunk in chunks
        if isinstance(chunk, ToolUse) and chunk.index is not None
    }
    assert told == dict(enumerate(response.message.content))


@given(legal_streams(ending="error"))
def test_a_stream_that_fails_ends_in_one_error_and_tells_no_tool_use(deltas: list[MessageDelta]) -> None:
    chunks, response = asyncio.run(read(BlockAdapter(Player(deltas), capacity=1)))
    require_legal(chunks)
    last_error(chunks)
    assert not [chunk for chunk in chunks if isinstance(chunk, ToolUse)]
    assert response is None


@given(legal_streams(ending="done", text=st.text(st.characters(), max_size=3)))
def test_halves_of_a_character_are_joined_across_chunks(deltas: list[MessageDelta]) -> None:
    chunks, response = asyncio.run(read(BlockAdapter(Player(deltas))))
    said = "".join(chunk.delta for chunk in chunks if isinstance(chunk, ContentBlockDelta))
    assert said == response.message.text
    said.encode()


def test_a_stream_without_a_terminal_delta_is_an_error_in_both_ways() -> None:
    start = dragoman.delta.StartDelta("", 0, None)
    asked = BlockAdapter(Player([start, dragoman.TextDelta("", 1, None, "Hi")]))
    chunks, _ = run(read(asked))
    assert last_error(chunks).code is ErrorCode.STREAM_TRUNCATED
    require_legal(chunks)
    with pytest.raises(ModelError, match="before it was whole"):
        run(asked.send_message(HELLO))


def test_a_picture_comes_whole_with_the_start_of_its_block() -> None:
    deltas: list[MessageDelta] = [
        dragoman.delta.StartDelta("", 0, None),
        dragoman.delta.ImageDelta("", 1, None, mime_type="image/png", data=b"\x89PNG"),
        dragoman.delta.DoneDelta("", 2, None, FinishReason.STOP),
    ]
    chunks, response = run(read(BlockAdapter(Player(deltas))))
    picture = ImageBlock("base64", "image/png", "iVBORw==")
    assert chunks[:2] == [ContentBlockStart(0, picture), ContentBlockStop(0)]
    assert response.message.content == (picture,)


def test_an_adapter_is_made_of_a_model_a_name_or_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    named = adapter_for("anthropic:claude-opus-4-5")
    assert (named.model_name(), named.supports_streaming()) == ("anthropic:claude-opus-4-5", True)
    assert repr(named) == "BlockAdapter(anthropic:claude-opus-4-5)"
    assert adapter_for(named) is named
    asked: Model = model("openai:gpt-5")
    assert adapter_for(asked).model_name() == "openai:gpt-5"
    assert adapter_for(Player([])).model_name() == "Player"
    assert BlockAdapter(Player([]), name="mine").model_name() == "mine"
    for wrong in (3, None, object()):
        with pytest.raises(InvalidValue, match="model must be a Model"):
            adapter_for(wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------- readers that are slow, and readers that leave


class Endless:
    """A transport of one answer that goes on for as long as somebody reads. `sent` counts its pieces."""

    status = 200
    headers: ClassVar[Mapping[str, str]] = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.sent = 0
        self.ended = asyncio.Event()

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> "Endless":
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.sent += 1
                yield sse(chat_piece({"content": "x"}))
        finally:
            self.ended.set()

    async def close(self) -> None:
        pass


def endless(capacity: int) -> tuple[BlockAdapter, Endless]:
    transport = Endless()
    return BlockAdapter(model("openai-chat:m-1", api_key="key", transport=transport), capacity=capacity), transport


def test_a_slow_reader_holds_the_answer_back_on_the_network() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=4)
        async with await asked.stream_message(HELLO) as stream:
            await settle()
            assert transport.sent <= 5
            for _ in range(10):
                await anext(stream)
            await settle()
            assert transport.sent <= 15

    run(work())


def test_leaving_the_context_stops_the_producer_and_closes_the_connection() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=2)
        async with await asked.stream_message(HELLO) as stream:
            async for _ in stream:
                break
        assert transport.ended.is_set()
        assert [chunk async for chunk in stream] == []
        assert stream.response is None
        await stream.aclose()

    run(work())


def test_a_reader_that_was_dropped_stops_the_producer() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=2)
        async for _ in await asked.stream_message(HELLO):
            break
        gc.collect()
        await transport.ended.wait()

    run(work())


def test_a_stream_that_nobody_ever_read_is_stopped_too() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=2)
        stream = await asked.stream_message(HELLO)
        await settle()
        assert transport.sent
        del stream
        gc.collect()
        await transport.ended.wait()

    run(work())


def test_a_reader_that_is_cancelled_leaves_by_its_context() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=2)

        async def reader() -> None:
            async with await asked.stream_message(HELLO) as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(reader())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert transport.ended.is_set()

    run(work())


def test_closing_before_the_request_began_sends_none() -> None:
    async def work() -> None:
        asked, transport = endless(capacity=2)
        stream = await asked.stream_message(HELLO)
        await stream.aclose()
        assert transport.sent == 0

    run(work())


def test_a_whole_answer_closes_its_connection_without_being_cancelled() -> None:
    asked, transport = adapter("anthropic:m-1", sse(*ANTHROPIC))
    run(read(asked))
    assert transport.closed_responses == 1
