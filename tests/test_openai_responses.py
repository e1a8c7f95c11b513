"""OpenAI Responses: its answers become deltas whole or in pieces, and its own turns go back as they came."""

import base64
import json
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, Message
from dragoman.delta import MessageDelta
from dragoman.message import Image, ProviderItem, Text, Thinking, ToolResult
from dragoman.request import ModelConfig, ModelRequest
from dragoman.stream import Assembly, ResponseReader, assemble
from dragoman.wire.openai_responses import CODEC, DIALECTS, ResponsesDialect

BY_NAME = {dialect.provider: dialect for dialect in DIALECTS}
OPENAI = BY_NAME["openai"]
USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 42,
}
Event = dict[str, Any]


# ---------------------------------------------------------------- wire samples


def sse(*events: Event | str, names: bool = True) -> bytes:
    """A stream of these events; a string is sent as it is."""
    lines = []
    for event in events:
        if isinstance(event, str):
            lines.append(f"data: {event}\n\n")
        else:
            lines.append((f"event: {event['type']}\n" if names else "") + f"data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def created(**fields: Any) -> Event:
    response = {"id": "resp_1", "model": "m-1", "status": "in_progress", "output": []}
    return {"type": "response.created", "response": {**response, **fields}}


def added(index: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def piece(kind: str, item_id: str, index: int, delta: str, **fields: Any) -> Event:
    return {"type": f"response.{kind}.delta", "item_id": item_id, "output_index": index, "delta": delta, **fields}


def response(*output: Event, status: str = "completed", **fields: Any) -> Event:
    return {"id": "resp_1", "object": "response", "model": "m-1", "status": status, "output": list(output), **fields}


def ended(*output: Event, status: str = "completed", **fields: Any) -> Event:
    body = response(*output, status=status, **{"usage": USAGE, **fields})
    return {"type": f"response.{status}", "response": body}


def message(text: str, item_id: str = "msg_1", **fields: Any) -> Event:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content, **fields}


def call(arguments: str, item_id: str = "fc_1", call_id: str = "call_1", **fields: Any) -> Event:
    item = {"type": "function_call", "id": item_id, "call_id": call_id, "name": "look", "arguments": arguments}
    return {**item, "status": "completed", **fields}


def reasoning(*summary: str, encrypted: str | None = "sealed", item_id: str = "rs_1", **fields: Any) -> Event:
    texts = [{"type": "summary_text", "text": text} for text in summary]
    item = {"type": "reasoning", "id": item_id, "summary": texts, **fields}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def opening(item: Event) -> Event:
    empty: Event = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
    return {name: empty.get(name, value) for name, value in item.items()}


HELLO: list[Event] = [
    created(),
    added(0, opening(message(""))),
    piece("output_text", "msg_1", 0, "Hel", content_index=0),
    piece("output_text", "msg_1", 0, "lo", content_index=0),
    done(0, message("Hello")),
    ended(message("Hello")),
]
THOUGHT: list[Event] = [
    created(),
    added(0, {**reasoning(encrypted="half"), "status": "in_progress"}),
    piece("reasoning_summary_text", "rs_1", 0, "Look", summary_index=0),
    piece("reasoning_summary_text", "rs_1", 0, " first.", summary_index=0),
    piece("reasoning_summary_text", "rs_1", 0, "Then act.", summary_index=1),
    done(0, reasoning("Look first.", "Then act.")),
    added(1, opening(call(""))),
    piece("function_call_arguments", "fc_1", 1, '{"at":'),
    piece("function_call_arguments", "fc_1", 1, '"sea"}'),
    done(1, call('{"at":"sea"}', namespace="eyes")),
    ended(reasoning("Look first.", "Then act.", encrypted="sealed again"), call('{"at":"sea"}', namespace="eyes")),
]
# A gateway that closes its items in the end, the first of them last.
LATE: list[Event] = [
    created(),
    added(0, {"type": "reasoning", "id": "rs_1", "summary": []}),
    piece("reasoning_text", "rs_1", 0, "Hm.", content_index=0),
    added(1, opening(message(""))),
    piece("output_text", "msg_1", 1, "Yes", content_index=0),
    added(2, opening(call(""))),
    piece("function_call_arguments", "fc_1", 2, "{}"),
    piece("output_text", "msg_1", 1, ".", content_index=0),
    done(2, call("{}")),
    done(1, message("Yes.")),
    done(0, reasoning(content=[{"type": "reasoning_text", "text": "Hm."}], encrypted="sealed")),
    ended(
        reasoning(content=[{"type": "reasoning_text", "text": "Hm."}], encrypted="sealed"), message("Yes."), call("{}")
    ),
]
# llama.cpp's server: no indices, no argument end, next to nothing at the start.
BARE: list[Event] = [
    {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}},
    {"type": "response.output_item.added", "item": opening(message(""))},
    {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "On it."},
    {"type": "response.output_item.done", "item": message("On it.")},
    {"type": "response.output_item.added", "item": opening(call(""))},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"at":1}'},
    {"type": "response.output_item.done", "item": call('{"at":1}')},
    ended(message("On it."), call('{"at":1}')),
]
# An item that is announced and whose content only the last event has, before a text.
UNCLOSED: list[Event] = [
    created(),
    added(0, {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}),
    {"type": "response.mcp_list_tools.completed", "item_id": "mcpl_1", "output_index": 0},
    added(1, opening(message(""))),
    piece("output_text", "msg_1", 1, "Done", content_index=0),
    done(1, message("Done")),
    ended({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [{"name": "t"}]}, message("Done")),
]
STREAMS: dict[str, list[Event]] = {"hello": HELLO, "thought": THOUGHT, "late": LATE, "bare": BARE, "unclosed": UNCLOSED}


def feed(*chunks: bytes, dialect: ResponsesDialect = OPENAI, kind: str = "text/event-stream") -> list[MessageDelta]:
    reader = ResponseReader(CODEC, dialect, headers={"content-type": kind})
    deltas = [delta for chunk in chunks for delta in reader.feed(chunk)] + reader.end()
    assert reader.bug is None
    return deltas


def read(*events: Event | str) -> Assembly:
    return assemble(feed(sse(*events)))


def read_whole(body: Event) -> Assembly:
    return assemble(feed(json.dumps(body).encode(), kind="application/json"))


def said(*events: Event | str) -> Message:
    found = read(*events).message
    assert found is not None
    return found


def encode(*messages: Message, dialect: ResponsesDialect = OPENAI, **fields: Any) -> dict[str, Any]:
    config = fields.pop("config", ModelConfig("m-1"))
    request = CODEC.encode_request(ModelRequest(config=config, messages=messages, **fields), dialect)
    body: dict[str, Any] = json.loads(request.body)
    return body


def replay(turn: Message, dialect: ResponsesDialect = OPENAI) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = encode(turn, dialect=dialect)["input"]
    return items


# ---------------------------------------------------------------- feeding


@pytest.mark.parametrize("name", STREAMS)
def test_deltas_do_not_depend_on_how_the_bytes_are_cut(name: str) -> None:
    wire = sse(*STREAMS[name])
    whole = feed(wire)
    assert whole[-1].kind == "done"
    assert feed(*(wire[at : at + 1] for at in range(len(wire)))) == whole
    assert feed(*(wire[at : at + 97] for at in range(0, len(wire), 97))) == whole


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_short_ends_in_one_error_after_what_it_had_said(name: str) -> None:
    whole = feed(sse(*STREAMS[name]))
    for count in range(len(STREAMS[name])):
        cut = feed(sse(*STREAMS[name][:count]))
        assert [delta.kind for delta in cut].count("error") == 1
        assert cut[-1].kind == "error"
        assert cut[:-1] == whole[: len(cut) - 1]


@pytest.mark.parametrize("name", STREAMS)
def test_event_names_and_a_closing_sentinel_change_nothing(name: str) -> None:
    assert feed(sse(*STREAMS[name], "[DONE]", names=False)) == feed(sse(*STREAMS[name]))


def test_a_sentinel_without_the_finish_before_it_is_a_stream_cut_short() -> None:
    error = assemble(feed(sse(*HELLO[:-1], "[DONE]"))).error
    assert error is not None
    assert error.error_code is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize("name", ["hello", "thought", "bare"])
def test_a_whole_answer_makes_the_same_message_as_its_stream(name: str) -> None:
    streamed, body = said(*STREAMS[name]), STREAMS[name][-1]["response"]
    for event in STREAMS[name]:  # encrypted content differs each time it is sent
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning":
            body = {**body, "output": [event["item"], *body["output"][1:]]}
    whole = read_whole(body).message
    assert whole is not None
    assert whole.parts == streamed.parts
    assert whole.meta == streamed.meta or name == "bare"  # whose start names no model


# ---------------------------------------------------------------- answers


def test_text_is_written_as_it_comes_and_closed_with_its_item() -> None:
    texts = [delta.text_delta for delta in feed(sse(*HELLO)) if delta.kind == "text"]  # type: ignore[union-attr]
    assert texts == ["Hel", "lo", ""]
    assert said(*HELLO).parts == (Text("Hello", provider_data={"id": "msg_1", "status": "completed"}),)


def test_usage_counts_what_the_response_counts() -> None:
    usage = read(*HELLO).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (30, 12, 42)
    assert (usage.cache_read_tokens, usage.reasoning_tokens) == (10, 5)


def test_a_reasoning_item_is_one_thinking_part_that_goes_back_whole() -> None:
    turn = said(*THOUGHT)
    assert isinstance(turn.parts[0], Thinking)
    assert turn.parts[0].text == "Look first.Then act."
    assert replay(turn)[0] == reasoning("Look first.", "Then act.")


def test_a_call_goes_back_with_its_item_id_and_its_own_argument_text() -> None:
    assembly = read(*THOUGHT)
    assert assembly.finish_reason is FinishReason.TOOL_CALLS
    assert assembly.raw_finish_reason == "completed"
    turn = said(*THOUGHT)
    assert turn.tool_calls[0].arguments == {"at": "sea"}
    assert replay(turn)[1] == call('{"at":"sea"}', namespace="eyes")


def test_text_is_not_held_back_by_a_reasoning_item_that_closes_late() -> None:
    deltas = feed(sse(*LATE[:5]))
    assert [delta.kind for delta in deltas] == ["start", "thinking", "thinking", "text", "error"]


def test_what_a_late_reasoning_item_adds_goes_back_in_its_first_place() -> None:
    turn = said(*LATE)
    assert turn.text == "Yes."
    assert [part.kind for part in turn.parts] == ["thinking", "text", "tool_call", "thinking"]
    assert replay(turn) == LATE[-1]["response"]["output"]


def test_an_item_that_waited_for_thinking_comes_before_the_text_after_it() -> None:
    search: Event = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    events = [*LATE[:3], done(1, search), piece("output_text", "msg_1", 2, "Yes", content_index=0)]
    turn = said(*events, ended(reasoning(), search, message("Yes")))
    assert [part.kind for part in turn.parts][:3] == ["thinking", "provider_item", "text"]


def test_calls_wait_until_the_text_under_way_is_whole() -> None:
    kinds = [delta.kind for delta in feed(sse(*LATE))]
    assert kinds.index("tool_call_start") > max(place for place, kind in enumerate(kinds) if kind == "text")


def test_an_item_that_never_closes_comes_from_the_last_event_and_keeps_its_place() -> None:
    turn = said(*UNCLOSED)
    assert [part.kind for part in turn.parts] == ["text", "provider_item"]
    assert replay(turn) == UNCLOSED[-1]["response"]["output"]


def test_items_without_indices_are_told_apart_by_their_ids() -> None:
    turn = said(*BARE)
    assert turn.text == "On it."
    assert turn.tool_calls[0].arguments == {"at": 1}


def test_items_whose_ids_change_between_events_are_told_apart_by_their_index() -> None:
    turn = said(
        created(),
        added(0, opening(message("", "a"))),
        piece("output_text", "b", 0, "He", content_index=0),
        piece("output_text", "c", 0, "llo", content_index=0),
        done(0, message("Hello", "d")),
        ended(message("Hello", "e")),
    )
    assert [part.text for part in turn.parts if isinstance(part, Text)] == ["Hello"]


def test_an_item_that_was_never_announced_is_taken_from_the_last_event() -> None:
    turn = said(created(), ended(reasoning("Hm."), message("Yes"), call("{}")))
    assert replay(turn) == [reasoning("Hm."), message("Yes"), call("{}")]


def test_a_resumed_stream_may_begin_inside_an_item() -> None:
    turn = said(
        {"type": "response.queued", "response": response(status="queued")},
        piece("output_text", "msg_1", 0, "Hello", content_index=0),
        ended(message("Hello")),
    )
    assert turn.text == "Hello"


def test_several_texts_of_a_message_are_parts_that_go_back_as_one_item() -> None:
    item = message("One.")
    item["content"] = [
        {
            "type": "output_text",
            "text": "One.",
            "annotations": [{"type": "url_citation", "url": "https://example.org"}],
        },
        {"type": "output_text", "text": "Two.", "annotations": []},
    ]
    turn = said(
        created(),
        added(0, opening(item)),
        piece("output_text", "msg_1", 0, "One.", content_index=0),
        {"type": "response.content_part.done", "item_id": "msg_1", "content_index": 0, "part": item["content"][0]},
        piece("output_text", "msg_1", 0, "Two.", content_index=1),
        done(0, item),
        ended(item),
    )
    assert [part.text for part in turn.parts if isinstance(part, Text)] == ["One.", "Two."]
    assert replay(turn) == [item]


def test_several_messages_are_several_parts_and_keep_their_phase() -> None:
    first, second = message("Wait.", phase="commentary"), message("Here.", "msg_2", phase="final_answer")
    turn = said(created(), done(0, first), done(1, second), ended(first, second))
    assert [part.text for part in turn.parts if isinstance(part, Text)] == ["Wait.", "Here."]
    assert replay(turn) == [first, second]


def test_a_refusal_is_text_and_the_finish_says_so() -> None:
    item = message("")
    item["content"] = [{"type": "refusal", "refusal": "I cannot."}]
    events = [created(), added(0, opening(item)), piece("refusal", "msg_1", 0, "I cannot.", content_index=0)]
    assembly = read(*events, done(0, item), ended(item))
    assert assembly.finish_reason is FinishReason.REFUSAL
    assert assembly.message is not None
    assert assembly.message.text == "I cannot."
    assert replay(assembly.message) == [item]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("something_new", FinishReason.OTHER),
    ],
)
def test_an_incomplete_answer_finishes_for_its_reason(reason: str, finish: FinishReason) -> None:
    last = ended(message("Hel"), status="incomplete", incomplete_details={"reason": reason})
    assembly = read(*HELLO[:3], last)
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (finish, f"incomplete:{reason}")


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_whole_answer_that_is_not_ready_is_other(status: str) -> None:
    assembly = read_whole(response(status=status))
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.OTHER, status)


def test_a_compacted_history_has_no_status_and_goes_back_as_it_is() -> None:
    user = {"type": "message", "id": "msg_0", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    assembly = read_whole({"id": "resp_1", "object": "response.compaction", "output": [user, compaction]})
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.STOP, None)
    assert assembly.message is not None
    assert assembly.message.text == ""
    assert replay(assembly.message) == [user, compaction]


def test_a_hosted_tool_is_an_item_that_goes_back_whole() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "tide"}}
    turn = said(created(), added(0, {**search, "action": {}}), done(0, search), ended(search))
    assert turn.parts == (ProviderItem("web_search_call", search),)
    assert replay(turn) == [search]


def test_what_the_last_event_says_otherwise_is_kept_on_the_message() -> None:
    search: Event = {"type": "web_search_call", "id": "ws_1", "action": {"query": "tide"}}
    later = {**search, "action": {"query": "tide", "sources": ["a"]}}
    turn = said(created(), done(0, search), ended(later))
    assert turn.meta is not None
    assert turn.meta.provider_data is not None
    assert turn.meta.provider_data["output"] == [{"id": "ws_1", "action": later["action"]}]


def test_a_picture_is_an_image_and_its_item_has_the_bytes_once() -> None:
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "output_format": "webp"}
    whole = {**item, "result": base64.b64encode(b"picture").decode()}
    turn = said(created(), done(0, whole), ended(whole))
    assert turn.parts == (
        Image("image/webp", b"picture", provider_data={"id": "ig_1"}),
        ProviderItem("image_generation_call", item),
    )
    assert replay(turn) == [whole]


def test_a_call_of_a_free_text_tool_has_the_text_as_its_argument() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "sql", "input": 'SELECT "a"'}
    turn = said(created(), done(0, item), ended(item))
    assert turn.tool_calls[0].arguments == {"input": 'SELECT "a"'}
    sent = encode(turn, Message.tool(ToolResult("call_1", "1")))["input"]
    assert sent == [item, {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"}]


def test_a_call_that_opens_while_thinking_is_under_way_opens_once() -> None:
    thought = reasoning("Hm.")
    turn = said(
        created(),
        added(0, opening(thought)),
        piece("reasoning_summary_text", "rs_1", 0, "Hm.", summary_index=0),
        added(1, opening(call(""))),
        done(0, thought),
        piece("function_call_arguments", "fc_1", 1, "{}"),
        ended(thought, call("{}")),
    )
    assert replay(turn) == [thought, call("{}")]


def test_a_call_whose_name_comes_last_waits_for_it() -> None:
    turn = said(
        created(),
        piece("function_call_arguments", "fc_1", 0, '{"at":'),
        piece("function_call_arguments", "fc_1", 0, "1}"),
        done(1, message("Yes")),
        done(0, call('{"at":1}')),
        ended(call('{"at":1}'), message("Yes")),
    )
    assert turn.tool_calls[0].arguments == {"at": 1}
    assert replay(turn) == [call('{"at":1}'), message("Yes")]


def test_a_call_that_comes_twice_in_one_answer_is_one_call() -> None:
    turn = said(created(), ended(*(call("{}", f"fc_{number}") for number in range(50))))
    assert [made.tool_call_id for made in turn.tool_calls] == ["call_1"]


def test_halves_of_a_surrogate_pair_are_joined_across_pieces() -> None:
    wire = (
        sse(*HELLO).replace(b'"Hel"', rb'"\ud83d"').replace(b'"lo"', rb'"\ude00"').replace(b"Hello", rb"\ud83d\ude00")
    )
    found = assemble(feed(wire)).message
    assert found is not None
    assert found.text == "\U0001f600"


def test_events_that_nobody_knows_are_counted() -> None:
    reader = ResponseReader(CODEC, OPENAI, headers={"content-type": "text/event-stream"})
    reader.feed(sse(created(), {"type": "response.wink", "delta": {"x": 1}}, {"type": "keepalive"}))
    assert reader.unknown_events == 1


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, ErrorCode.RATE_LIMITED),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, ErrorCode.INVALID_REQUEST),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, ErrorCode.SERVER_ERROR),
        ({"type": "response.failed", "response": {"status": "failed"}}, ErrorCode.SERVER_ERROR),
        ({"type": "", "error": {"code": 503, "message": "busy"}}, ErrorCode.OVERLOADED),
    ],
)
def test_an_error_inside_a_stream_ends_it_with_its_code(event: Event, code: ErrorCode) -> None:
    assembly = assemble(feed(sse(*HELLO[:3], event, *HELLO[3:], names=False)))
    assert assembly.error is not None
    assert assembly.error.error_code is code
    assert assembly.partial is not None
    assert assembly.partial.text == "Hel"


def test_a_whole_answer_that_failed_is_an_error() -> None:
    failed = response(status="failed", error={"code": "server_error", "message": "sorry"})
    for body in (failed, {"error": {"code": "server_error", "message": "sorry"}}):
        error = read_whole(body).error
        assert error is not None
        assert (error.error_code, error.provider_message) == (ErrorCode.SERVER_ERROR, "sorry")


@pytest.mark.parametrize("body", [b'{"hello": "world"}', b"[]", b"<html>", b""])
def test_a_body_that_is_no_response_is_a_protocol_violation(body: bytes) -> None:
    error = assemble(feed(body, kind="application/json")).error
    assert error is not None
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION
