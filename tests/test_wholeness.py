"""A call is used only when it was closed, an answer only when it is whole and its provider calls it finished."""

import json
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, InvalidValue, Thinking
from dragoman.delta import DoneDelta, StartDelta, ToolCallArgsDelta, ToolCallEndDelta, ToolCallStartDelta
from dragoman.stream import Assembly, ResponseReader, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.testing import decode_recorded
from dragoman.wire import find_codec, find_dialect
from tests.wire_streams import AWS, BOTH_FORMS, SSE, Object, block, frames, sse


def read(protocol: str, events: list[bytes], vendor: str = "") -> Assembly:
    kind = AWS if protocol == "bedrock-converse" else SSE
    return assemble(decode_recorded(protocol, events, vendor=vendor, content_type=kind))


def read_body(protocol: str, value: Object, vendor: str = "") -> Assembly:
    body = json.dumps(value).encode()
    return assemble(decode_recorded(protocol, body, vendor=vendor, content_type="application/json"))


def error_of(assembly: Assembly) -> ErrorCode:
    assert assembly.error is not None
    return assembly.error.error_code


def call_of(assembly: Assembly) -> Any:
    assert assembly.message is not None, assembly.error
    (call,) = assembly.message.tool_calls
    return call


# ---------------------------------------------------------------- deltas


def test_the_end_of_a_call_may_say_why_the_call_must_not_be_used() -> None:
    call = call_of(
        assemble(
            [
                StartDelta("r", 0, None),
                ToolCallStartDelta("r", 1, None, "c", "look"),
                ToolCallArgsDelta("r", 2, None, "c", '{"at": 1}'),
                ToolCallEndDelta("r", 3, None, "c", parse_error="the provider calls the call 'incomplete'"),
                DoneDelta("r", 4, None, FinishReason.TOOL_CALLS),
            ]
        )
    )
    assert (call.arguments, call.raw_args_text) == (None, '{"at": 1}')
    assert call.parse_error == "the provider calls the call 'incomplete'"


def test_the_end_of_a_call_refuses_an_empty_reason() -> None:
    with pytest.raises(InvalidValue, match="parseError"):
        ToolCallEndDelta("r", 0, None, "c", parse_error="")


# ---------------------------------------------------------------- Anthropic Messages

BEGUN: Object = {"type": "message_start", "message": {"id": "m", "model": "c", "content": []}}
TOOL_USE: Object = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
STOPPED: Object = {"type": "message_stop"}


def ended(reason: str | None) -> list[Object]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, STOPPED]


def anthropic(*events: Object) -> Assembly:
    return read("anthropic-messages", sse(*events))


def test_a_call_that_was_not_closed_before_the_message_ended_is_not_used() -> None:
    call = call_of(anthropic(BEGUN, block(0, TOOL_USE)[0], *ended("tool_use")))
    assert call.arguments is None
    assert call.parse_error


def test_a_call_that_was_not_closed_is_not_used_with_a_whole_object_either() -> None:
    *unclosed, _ = block(0, TOOL_USE, {"type": "input_json_delta", "partial_json": '{"at": 1}'})
    call = call_of(anthropic(BEGUN, *unclosed, *ended("tool_use")))
    assert (call.arguments, call.raw_args_text) == (None, '{"at": 1}')
    assert call.parse_error


def test_a_call_is_not_closed_by_another_block_at_its_index() -> None:
    *unclosed, _ = block(0, TOOL_USE, {"type": "input_json_delta", "partial_json": '{"at": 1}'})
    closed = block(0, {**TOOL_USE, "id": "u"}, {"type": "input_json_delta", "partial_json": '{"at": 2}'})
    message = anthropic(BEGUN, *unclosed, *closed, *ended("tool_use")).message
    assert message is not None
    assert [call.arguments for call in message.tool_calls] == [None, {"at": 2}]


@pytest.mark.parametrize(
    "delta",
    [
        {"type": "text_delta2", "text": "00"},
        {"type": "text_delta", "text": None},
        {"type": "text_delta"},
        {"type": "thinking_delta", "thinking": None},
        {"type": "input_json_delta", "partial_json": None},
        {"type": "signature_delta", "signature": None},
    ],
)
def test_a_delta_of_which_nothing_is_read_is_counted(delta: Object) -> None:
    dialect = find_dialect("anthropic")
    reader = ResponseReader(find_codec(dialect.specification), dialect, headers={"content-type": SSE})
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "5"}, delta)
    deltas = reader.feed(b"".join(sse(BEGUN, *text, *ended("end_turn"))))
    assert assemble([*deltas, *reader.end()]).finish_reason is FinishReason.STOP
    assert reader.unknown_events == 1


def test_a_call_that_was_closed_without_arguments_has_none() -> None:
    assert call_of(anthropic(BEGUN, *block(0, TOOL_USE), *ended("tool_use"))).arguments == {}


@pytest.mark.parametrize("ending", [[STOPPED], ended(None), ended("")])
def test_a_message_that_ends_without_a_stop_reason_is_cut_short(ending: list[Object]) -> None:
    text = block(0, {"type": "text", "text": "hi"})
    assert error_of(anthropic(BEGUN, *text, *ending)) is ErrorCode.STREAM_TRUNCATED


def test_a_block_that_ends_and_never_began_is_lost() -> None:
    assert error_of(anthropic(BEGUN, *block(0, TOOL_USE)[1:], *ended("end_turn"))) is ErrorCode.STREAM_TRUNCATED


def test_a_message_without_its_start_is_lost() -> None:
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hi"})
    assert error_of(anthropic(*text, *ended("end_turn"))) is ErrorCode.STREAM_TRUNCATED


# ---------------------------------------------------------------- Bedrock Converse


def bedrock(*events: tuple[str, Object]) -> Assembly:
    return read("bedrock-converse", frames(*events))


STARTED_CALL: tuple[str, Object] = (
    "contentBlockStart",
    {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "look"}}},
)


def test_content_of_bedrock_before_the_message_start_opens_the_message() -> None:
    piece = ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hi"}})
    answer = bedrock(piece, ("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": "end_turn"}))
    assert answer.message is not None
    assert answer.message.text == "hi"


def test_a_call_of_bedrock_before_the_message_start_opens_the_message() -> None:
    answer = bedrock(
        STARTED_CALL,
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "tool_use"}),
    )
    assert call_of(answer).arguments == {}


def test_a_call_of_bedrock_that_was_not_closed_is_not_used() -> None:
    answer = bedrock(("messageStart", {}), STARTED_CALL, ("messageStop", {"stopReason": "tool_use"}))
    assert call_of(answer).parse_error


def test_a_call_of_bedrock_that_was_not_closed_is_not_used_with_a_whole_object_either() -> None:
    piece = ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"at": 1}'}}})
    call = call_of(bedrock(("messageStart", {}), STARTED_CALL, piece, ("messageStop", {"stopReason": "tool_use"})))
    assert (call.arguments, call.raw_args_text) == (None, '{"at": 1}')


def test_a_block_of_bedrock_of_a_kind_that_is_not_known_leaves_nothing_and_is_counted() -> None:
    events = frames(
        ("messageStart", {}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {"hologram": {"id": 1}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"hologram": {"rays": 3}}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "hi"}}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("messageStop", {"stopReason": "end_turn"}),
    )
    dialect = find_dialect("bedrock")
    reader = ResponseReader(find_codec(dialect.specification), dialect, headers={"content-type": AWS})
    message = assemble([*reader.feed(b"".join(events)), *reader.end()]).message
    assert message is not None
    assert [part.kind for part in message.parts] == ["text"]
    assert reader.unknown_events == 2


def test_a_block_of_bedrock_that_starts_with_nothing_is_text_or_reasoning() -> None:
    answer = bedrock(
        ("messageStart", {}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "so"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s"}}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
    )
    assert answer.message is not None
    assert answer.message.parts == (Thinking("so", provider_data={"signature": "s"}),)


def test_a_message_of_bedrock_without_a_stop_reason_is_cut_short() -> None:
    assert error_of(bedrock(("messageStart", {}), ("messageStop", {}))) is ErrorCode.STREAM_TRUNCATED


# ---------------------------------------------------------------- Chat Completions


def chunk(delta: Object, finish: str | None = None) -> Object:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat(*chunks: Object) -> Assembly:
    return read("openai-compatible", sse(*chunks, "[DONE]"))


def test_a_call_in_both_forms_is_one_call() -> None:
    call = call_of(read("openai-compatible", BOTH_FORMS))
    assert (call.tool_name, call.arguments) == ("look_up", {"city": "Zürich"})


def test_a_whole_call_in_both_forms_is_one_call() -> None:
    function = {"name": "look_up", "arguments": '{"city": "Zürich"}'}
    message = {"content": None, "function_call": function, "tool_calls": [{"id": "c", "function": function}]}
    answer = read_body("openai-compatible", {"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert call_of(answer).arguments == {"city": "Zürich"}


@pytest.mark.parametrize("word", ["error", "abort", "network_error", "ERROR"])
def test_a_finish_word_that_says_failure_is_an_error(word: str) -> None:
    answer = chat(chunk({"content": "hi"}), chunk({}, word))
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.SERVER_ERROR
    assert word in (answer.error.message or "")


def test_a_call_without_its_first_piece_never_counts_as_repeated() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"at": 1}'}}
    second = {"index": 1, "function": {"arguments": '{"at": 1}'}}
    answer = chat(chunk({"tool_calls": [first]}), chunk({"tool_calls": [second]}), chunk({}, "tool_calls"))
    assert call_of(answer).parse_error


# ---------------------------------------------------------------- Gemini


def gemini(*parts: Object, finish: str = "STOP") -> Assembly:
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return read("gemini", sse(*chunks, {"candidates": [{"content": {}, "finishReason": finish}]}))


def test_pieces_of_a_call_whose_beginning_is_lost_are_an_error() -> None:
    piece = {"jsonPath": "$.at", "numberValue": 1}
    assert error_of(gemini({"functionCall": {"partialArgs": [piece]}})) is ErrorCode.STREAM_TRUNCATED


def test_a_string_that_another_argument_cuts_off_makes_the_call_unusable() -> None:
    begun = {"jsonPath": "$.path", "stringValue": "/tmp", "willContinue": True}
    other = {"jsonPath": "$.force", "boolValue": True}
    call = {"name": "delete", "partialArgs": [begun, other]}
    assert call_of(gemini({"functionCall": call})).parse_error


# ---------------------------------------------------------------- Responses


def text_item(text: str, **fields: Any) -> Object:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content, **fields}


def call_item(**fields: Any) -> Object:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'}
    return {**call, "status": "completed", **fields}


def completed(*output: Object, **fields: Any) -> Object:
    response = {"id": "r", "status": "completed", "output": list(output), **fields}
    return {"type": "response.completed", "response": response}


def text_piece(delta: str) -> Object:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": delta}


def responses(*events: Object) -> Assembly:
    return read("openai-responses", sse({"type": "response.created", "response": {"id": "r"}}, *events))


def item_done(item: Object) -> Object:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


@pytest.mark.parametrize("response", [None, {}, "x", []])
def test_a_last_event_without_a_response_is_no_finish(response: Any) -> None:
    last = {"type": "response.completed", "response": response}
    answer = responses(text_piece("hi"), item_done(text_item("hi")), last)
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


def test_text_that_is_not_the_sum_of_its_pieces_is_an_error() -> None:
    answer = responses(text_piece("He"), text_piece("o"), item_done(text_item("Hello")), completed(text_item("Hello")))
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


def test_arguments_that_are_not_the_sum_of_their_pieces_are_an_error() -> None:
    place = {"item_id": "fc_1", "output_index": 0}
    piece = {"type": "response.function_call_arguments.delta", **place, "delta": '{"to": '}
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call_item(arguments="")}
    answer = responses(opened, piece, item_done(call_item()), completed(call_item()))
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


def test_a_last_event_that_says_otherwise_than_an_item_is_an_error() -> None:
    answer = responses(item_done(call_item()), completed(call_item(arguments='{"at": 2}')))
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


def test_a_last_event_without_output_leaves_what_the_items_said() -> None:
    answer = responses(text_piece("hi"), item_done(text_item("hi")), completed())
    assert answer.message is not None
    assert (answer.message.text, answer.finish_reason) == ("hi", FinishReason.STOP)


@pytest.mark.parametrize("status", ["incomplete", "in_progress"])
@pytest.mark.parametrize("arguments", ['{"at": 1}', ""])
def test_a_call_that_its_provider_calls_unfinished_is_not_used(status: str, arguments: str) -> None:
    item = call_item(status=status, arguments=arguments)
    call = call_of(responses(item_done(item), completed(item)))
    assert call.arguments is None
    assert status in call.parse_error
    assert call_of(read_body("openai-responses", {"status": "completed", "output": [item]})).parse_error


def test_a_call_that_nothing_closed_is_not_used() -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call_item(arguments="")}
    assert call_of(responses(opened, completed())).parse_error


def test_a_call_that_nothing_closed_is_not_used_with_a_whole_object_either() -> None:
    opened = {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": call_item(arguments="", status="in_progress"),
    }
    place = {"item_id": "fc_1", "output_index": 0}
    piece = {"type": "response.function_call_arguments.delta", **place, "delta": '{"at": 1}'}
    call = call_of(responses(opened, piece, completed()))
    assert (call.arguments, call.raw_args_text) == (None, '{"at": 1}')
    assert call.parse_error


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed"])
def test_a_response_with_an_error_has_failed(kind: str) -> None:
    last = completed(text_item("hi"), error={"code": "server_error", "message": "x"})
    answer = responses(text_piece("hi"), item_done(text_item("hi")), {**last, "type": kind})
    assert error_of(answer) is ErrorCode.SERVER_ERROR
    assert error_of(read_body("openai-responses", last["response"])) is ErrorCode.SERVER_ERROR


def test_a_message_that_its_provider_calls_unfinished_finishes_no_answer() -> None:
    cut = text_item("Hel", status="incomplete")
    answer = responses(text_piece("Hel"), item_done(cut), completed(cut))
    assert answer.finish_reason is FinishReason.OTHER


PLACE = {"item_id": "fc_1", "output_index": 0, "content_index": 0, "summary_index": 0}


def repeats(kind: str, field: str, whole: Any, **place: Any) -> Object:
    return {"type": f"response.{kind}.done", **PLACE, **place, field: whole}


def reasoning_item(text: str) -> Object:
    return {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


CUSTOM: Object = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c", "name": "look", "input": "here"}
MCP: Object = {"id": "mcp_1", "type": "mcp_call", "name": "look", "arguments": "{}", "status": "completed"}


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (call_item(), repeats("function_call_arguments", "arguments", '{"at": 2}')),
        (text_item("hi"), repeats("output_text", "text", "ho", item_id="msg_1")),
        (text_item("hi"), repeats("content_part", "part", {"type": "output_text", "text": "ho"}, item_id="msg_1")),
        (reasoning_item("so"), repeats("reasoning_summary_text", "text", "then", item_id="rs_1")),
        (CUSTOM, repeats("custom_tool_call_input", "input", "there", item_id="ct_1")),
        (MCP, repeats("mcp_call_arguments", "arguments", '{"a": 1}', item_id="mcp_1")),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_whole_that_an_event_repeats_otherwise_is_an_error(item: Object, event: Object, late: bool) -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": item}
    ending = [item_done(item), event] if late else [event, item_done(item)]
    assert error_of(responses(opened, *ending, completed(item))) is ErrorCode.STREAM_TRUNCATED
    assert responses(opened, item_done(item), completed(item)).error is None


def test_pieces_of_a_custom_call_are_compared_with_its_input() -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": {**CUSTOM, "input": ""}}
    piece = {"type": "response.custom_tool_call_input.delta", **PLACE, "item_id": "ct_1", "delta": "th"}
    answer = responses(opened, piece, item_done(CUSTOM), completed(CUSTOM))
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize("change", [{"name": "erase"}, {"call_id": "d"}])
def test_a_call_that_comes_again_with_another_name_or_id_is_an_error(change: Object) -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call_item(arguments="")}
    other = call_item(**change)
    for events in (
        [opened, item_done(other), completed()],
        [opened, {**opened, "item": other}, item_done(call_item()), completed()],
        [item_done(call_item()), item_done(other), completed()],
        [item_done(call_item()), completed(other)],
        [opened, completed(other)],
    ):
        assert error_of(responses(*events)) is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("item", [call_item(), text_item("hi")])
def test_an_item_that_had_ended_is_not_called_unfinished_later(item: Object) -> None:
    answer = responses(item_done(item), completed({**item, "status": "incomplete"}))
    assert error_of(answer) is ErrorCode.PROTOCOL_VIOLATION


def test_a_last_event_that_does_not_list_a_call_is_an_error() -> None:
    answer = responses({**item_done(call_item()), "output_index": 1}, completed(text_item("hi")))
    assert error_of(answer) is ErrorCode.PROTOCOL_VIOLATION


def test_a_vllm_call_has_another_call_id_each_time_and_is_one_call() -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call_item(arguments="")}
    events = sse(opened, item_done(call_item(call_id="d")), completed(call_item(id="fc_9", call_id="e")))
    call = call_of(read("openai-responses", events, vendor="openai-responses-compatible"))
    assert (call.tool_call_id, call.arguments) == ("c", {"at": 1})


@pytest.mark.parametrize("wrong", [[], {}, {"x": 1}, 5, True])
@pytest.mark.parametrize("item", [text_item("hi"), reasoning_item("so"), call_item(), MCP])
def test_an_id_that_is_not_text_is_not_kept(item: Object, wrong: Any) -> None:
    item = {**item, "id": wrong}
    message = responses(item_done(item), completed(item)).message
    assert message is not None
    kept = [getattr(part, "provider_data", None) or getattr(part, "item", None) or {} for part in message.parts]
    assert kept
    assert all("id" not in data for data in kept)


# ---------------------------------------------------------------- one call


def test_an_item_that_the_last_event_lists_twice_is_one_item() -> None:
    assert call_of(responses(item_done(call_item()), completed(call_item(), call_item()))).arguments == {"at": 1}
    again = call_item(id="fc_2", arguments='{"at":1}')
    assert call_of(responses(item_done(call_item()), completed(call_item(), again))).arguments == {"at": 1}
    message = responses(completed(text_item("hi"), text_item("hi"))).message
    assert message is not None
    assert message.text == "hi"


def test_two_calls_of_responses_with_one_id_are_an_error() -> None:
    answer = responses(completed(call_item(), call_item(id="fc_2", arguments='{"at": 2}')))
    assert error_of(answer) is ErrorCode.PROTOCOL_VIOLATION


def anthropic_calls(*texts: str) -> Assembly:
    pieces = [{"type": "input_json_delta", "partial_json": text} for text in texts]
    calls = [block(index, TOOL_USE, piece) for index, piece in enumerate(pieces)]
    return anthropic(BEGUN, *(event for events in calls for event in events), *ended("tool_use"))


def bedrock_block(index: int, *deltas: Object) -> list[tuple[str, Object]]:
    start = {"toolUse": {"toolUseId": "t", "name": "look"}}
    return [
        ("contentBlockStart", {"contentBlockIndex": index, "start": start}),
        *(("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas),
        ("contentBlockStop", {"contentBlockIndex": index}),
    ]


def bedrock_calls(*texts: str) -> Assembly:
    blocks = [bedrock_block(index, {"toolUse": {"input": text}}) for index, text in enumerate(texts)]
    return bedrock(*(event for events in blocks for event in events), ("messageStop", {"stopReason": "tool_use"}))


def chat_calls(*texts: str) -> Assembly:
    functions = [{"name": "look", "arguments": text} for text in texts]
    calls = [{"index": index, "id": "t", "function": function} for index, function in enumerate(functions)]
    return chat(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"))


def chat_body_calls(*texts: str) -> Assembly:
    calls = [{"id": "t", "function": {"name": "look", "arguments": text}} for text in texts]
    message = {"tool_calls": calls}
    return read_body("openai-compatible", {"choices": [{"message": message, "finish_reason": "tool_calls"}]})


def gemini_calls(*texts: str) -> Assembly:
    return gemini(*({"functionCall": {"id": "t", "name": "look", "args": json.loads(text)}} for text in texts))


def responses_calls(*texts: str) -> Assembly:
    return responses(*(item_done(call_item(id="", arguments=text)) for text in texts), completed())


EVERY_API = [anthropic_calls, bedrock_calls, chat_calls, chat_body_calls, gemini_calls, responses_calls]


@pytest.mark.parametrize("calls", EVERY_API)
def test_the_same_id_name_and_arguments_are_one_call(calls: Any) -> None:
    assert call_of(calls('{"at": 1, "by": 2}', '{"by":2,"at":1}', '{"at": 1, "by": 2}')).arguments == {"at": 1, "by": 2}


@pytest.mark.parametrize("calls", [bedrock_calls, chat_calls, chat_body_calls])
def test_hosts_that_give_every_call_the_same_id_have_each_call_read(calls: Any) -> None:
    message = calls('{"at": 1}', '{"at": 2}', '{"at": 3}').message
    assert [call.arguments["at"] for call in message.tool_calls] == [1, 2, 3]
    assert len({call.tool_call_id for call in message.tool_calls}) == 3


@pytest.mark.parametrize("calls", [anthropic_calls, gemini_calls, responses_calls])
def test_two_different_calls_with_one_id_are_an_error_where_ids_are_unique(calls: Any) -> None:
    assert error_of(calls('{"at": 1}', '{"at": 2}')) is ErrorCode.PROTOCOL_VIOLATION


# ---------------------------------------------------------------- a piece that nobody can read


@pytest.mark.parametrize(
    "lost",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delt", "partial_json": "/safe"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "/safe"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "/safe"}},
        {"type": "content_block_delta", "index": 0},
        {"type": "", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "/safe"}},
        {"type": "content_block_piece", "delta": {"type": "input_json_delta", "partial_json": "/safe"}},
    ],
)
def test_a_call_that_something_unknown_came_for_is_not_used(lost: Object) -> None:
    first, second = ({"type": "input_json_delta", "partial_json": text} for text in ('{"at": "/tmp', '"}'))
    start, piece, further, stop = block(0, TOOL_USE, first, second)
    answer = anthropic(BEGUN, start, piece, lost, further, stop, *ended("tool_use"))
    assert call_of(answer).parse_error
    assert answer.message is not None
    assert answer.message.text == ""


def test_an_event_that_is_about_no_content_does_not_touch_an_open_call() -> None:
    start, *rest = block(0, TOOL_USE, {"type": "input_json_delta", "partial_json": "{}"})
    answer = anthropic(BEGUN, start, {"type": "weather", "degrees": 20}, *rest, *ended("tool_use"))
    assert call_of(answer).arguments == {}


def test_arguments_for_a_block_of_text_are_an_error() -> None:
    text = block(0, {"type": "text", "text": "hi"}, {"type": "input_json_delta", "partial_json": "{}"})
    assert error_of(anthropic(BEGUN, *text, *ended("end_turn"))) is ErrorCode.PROTOCOL_VIOLATION


def test_a_call_that_began_with_other_arguments_than_its_pieces_say_is_an_error() -> None:
    call = block(0, {**TOOL_USE, "input": {"at": 2}}, {"type": "input_json_delta", "partial_json": '{"at": 1}'})
    assert error_of(anthropic(BEGUN, *call, *ended("tool_use"))) is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "lost",
    [
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "/safe"}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUze": {"input": "/safe"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "/safe"}}}),
        ("contentBlockPiece", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": "/safe"}}}),
        ("contentBlockPiece", {"delta": {"toolUse": {"input": "/safe"}}}),
    ],
)
def test_a_call_of_bedrock_that_something_unknown_came_for_is_not_used(lost: tuple[str, Object]) -> None:
    first, second = ({"toolUse": {"input": text}} for text in ('{"at": "/tmp', '"}'))
    start, piece, further, stop = bedrock_block(0, first, second)
    answer = bedrock(start, piece, lost, further, stop, ("messageStop", {"stopReason": "tool_use"}))
    assert call_of(answer).parse_error
    assert answer.message is not None
    assert answer.message.text == ""


@pytest.mark.parametrize("headers", [{":message-type": "error"}, {":message-type": "exception"}])
def test_a_failure_without_a_name_ends_an_answer_of_bedrock(headers: dict[str, str]) -> None:
    events = frames(*bedrock_block(0, {"toolUse": {"input": "{}"}}), ("messageStop", {"stopReason": "tool_use"}))
    events.insert(2, encode_frame(headers, b'{"message":"boom"}'))
    answer = read("bedrock-converse", events)
    assert error_of(answer) is ErrorCode.SERVER_ERROR
    assert answer.error is not None
    assert answer.error.provider_message == "boom"


@pytest.mark.parametrize(
    "lost",
    [{"index": 0}, {"index": 0, "funktion": {"arguments": "/safe"}}, {"index": 0, "function": {"argumentz": "/safe"}}],
)
def test_a_call_of_chat_that_something_unknown_came_for_is_not_used(lost: Object) -> None:
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"at": "/tmp'}}
    last = {"index": 0, "function": {"arguments": '"}'}}
    pieces = [chunk({"tool_calls": [entry]}) for entry in (first, lost, last)]
    assert call_of(chat(*pieces, chunk({}, "tool_calls"))).parse_error


@pytest.mark.parametrize("delta", [None, 5, ["/safe"], {}])
def test_a_call_of_responses_with_a_piece_that_cannot_be_read_needs_its_whole(delta: Any) -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call_item(arguments="")}
    piece = {"type": "response.function_call_arguments.delta", **PLACE}
    events = [opened, *({**piece, "delta": text} for text in ('{"at": "/tmp', delta, '"}'))]
    bare = call_item(arguments="")
    assert call_of(responses(*events, item_done(bare), completed(bare))).parse_error
    whole = call_item(arguments='{"at": "/tmp"}')
    assert call_of(responses(*events, item_done(whole), completed(whole))).arguments == {"at": "/tmp"}


def test_a_piece_of_a_call_in_the_deprecated_form_alone_is_an_error() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"at": "/tmp'}}
    last = {"index": 0, "function": {"arguments": '"}'}}
    middle = {"function_call": {"arguments": "/safe"}}
    answer = chat(chunk({"tool_calls": [first]}), chunk(middle), chunk({"tool_calls": [last]}), chunk({}, "tool_calls"))
    assert error_of(answer) is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("lost", [{"partialArgz": []}, None])
def test_a_streamed_call_of_gemini_that_something_unknown_came_for_is_not_used(lost: Object | None) -> None:
    first = {"name": "look", "partialArgs": [{"jsonPath": "$.at", "stringValue": "sea"}], "willContinue": True}
    middle = {"unknown": 1} if lost is None else candidate({"functionCall": {**lost, "willContinue": True}})
    answer = read("gemini", sse(candidate({"functionCall": first}), middle, candidate({"functionCall": {}}, "STOP")))
    assert call_of(answer).parse_error


def test_text_beside_a_call_of_gemini_is_read() -> None:
    answer = gemini({"text": "so", "functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "s"})
    assert answer.message is not None
    assert answer.message.text == "so"
    assert call_of(answer).provider_data["thoughtSignature"] == "s"


def candidate(part: Object, finish: str | None = None) -> Object:
    return {"candidates": [{"content": {"parts": [part]}, "finishReason": finish}]}


# ---------------------------------------------------------------- events that are called errors


@pytest.mark.parametrize(
    ("protocol", "good"),
    [
        ("anthropic-messages", [BEGUN, *block(0, {"type": "text", "text": "hi"}), *ended("end_turn")]),
        ("openai-compatible", [chunk({"content": "hi"}), chunk({"content": "hi"}), chunk({}, "stop")]),
        ("gemini", [candidate({"text": "hi"}), candidate({"text": "hi"}), candidate({"text": ""}, "STOP")]),
        (
            "openai-responses",
            [{"type": "response.created", "response": {}}, text_piece("hi"), item_done(text_item("hi")), completed()],
        ),
    ],
)
def test_an_event_that_is_called_error_is_one_whatever_its_data_says(protocol: str, good: list[Object]) -> None:
    events = sse(*good)
    assert read(protocol, events).error is None
    for place in range(len(events)):
        named = [*events[:place], b"event: error\n" + events[place], *events[place + 1 :]]
        assert read(protocol, named).error is not None


# ---------------------------------------------------------------- finish words


@pytest.mark.parametrize(
    "answer",
    [
        chat(chunk({"content": "hi"}), chunk({}, "tool_calls")),
        anthropic(BEGUN, *block(0, {"type": "text", "text": "hi"}), *ended("tool_use")),
        bedrock(("messageStart", {}), ("messageStop", {"stopReason": "tool_use"})),
    ],
    ids=["chat", "anthropic", "bedrock"],
)
def test_an_answer_that_finished_for_a_call_and_has_none_is_an_error(answer: Assembly) -> None:
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize(
    "answer",
    [
        gemini({"text": "hi"}, finish="MALFORMED_FUNCTION_CALL"),
        gemini({"text": "hi"}, finish="A_NEW_WORD"),
        bedrock(("messageStart", {}), ("messageStop", {"stopReason": "malformed_model_output"})),
        anthropic(BEGUN, *ended("a_new_word")),
        chat(chunk({"content": "hi"}), chunk({}, "a_new_word")),
        *(responses(completed(status=status)) for status in ("cancelled", "queued", "in_progress", "a_new_word")),
        read_body("openai-chat", {"choices": [{"message": {"content": "hi"}, "finish_reason": None}]}),
        read_body("gemini", {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}),
    ],
)
def test_a_finish_word_that_is_not_known_to_be_good_is_other(answer: Assembly) -> None:
    assert answer.finish_reason is FinishReason.OTHER


def gemini_finishes(*words: str) -> Assembly:
    return read("gemini", sse(*({"candidates": [{"content": {}, "finishReason": word}]} for word in words)))


def anthropic_finishes(*words: str) -> Assembly:
    return anthropic(BEGUN, *(ended(word)[0] for word in words), STOPPED)


def bedrock_finishes(*words: str) -> Assembly:
    return bedrock(("messageStart", {}), *(("messageStop", {"stopReason": word}) for word in words))


def chat_finishes(*words: str) -> Assembly:
    return chat(chunk({"content": "hi"}), *(chunk({}, word) for word in words))


def native_finishes(*words: str) -> Assembly:
    good, bad = sorted(words, key=str.isupper)  # the second is the word of the provider behind the gateway
    last = chunk({}, good)
    last["choices"][0]["native_finish_reason"] = bad
    return chat(chunk({"content": "hi"}), last)


CUT, FILTERED, OTHER = FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.OTHER


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("finishes", "good", "bad", "reason"),
    [
        (chat_finishes, "stop", "length", CUT),
        (chat_finishes, "tool_calls", "length", CUT),
        (chat_finishes, "stop", "content_filter", FILTERED),
        (chat_finishes, "length", "content_filter", FILTERED),
        (chat_finishes, "stop", "refusal", FinishReason.REFUSAL),
        (chat_finishes, "stop", "a_new_word", OTHER),
        (native_finishes, "stop", "MAX_TOKENS", CUT),
        (native_finishes, "stop", "SAFETY", FILTERED),
        (anthropic_finishes, "end_turn", "max_tokens", CUT),
        (anthropic_finishes, "tool_use", "max_tokens", CUT),
        (anthropic_finishes, "end_turn", "pause_turn", FinishReason.PAUSE),
        (bedrock_finishes, "end_turn", "max_tokens", CUT),
        (bedrock_finishes, "end_turn", "guardrail_intervened", FILTERED),
        (gemini_finishes, "STOP", "MAX_TOKENS", CUT),
        (gemini_finishes, "STOP", "SAFETY", FILTERED),
    ],
)
def test_of_two_finish_words_the_worse_one_counts(
    finishes: Any, good: str, bad: str, reason: FinishReason, order: int
) -> None:
    answer = finishes(*(good, bad)[::order])
    assert (answer.finish_reason, answer.raw_finish_reason) == (reason, bad)


@pytest.mark.parametrize("words", [("error", "stop"), ("stop", "error")])
def test_a_word_that_says_failure_is_an_error_beside_a_good_one(words: tuple[str, str]) -> None:
    assert error_of(chat_finishes(*words)) is ErrorCode.SERVER_ERROR


def test_a_blocked_prompt_of_gemini_is_not_taken_back() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    answer = read("gemini", sse(blocked, {"candidates": [{"content": {}, "finishReason": "STOP"}]}))
    assert answer.finish_reason is FILTERED


@pytest.mark.parametrize(
    ("kind", "status", "details", "reason"),
    [
        ("completed", "completed", "max_output_tokens", CUT),
        ("completed", None, "max_output_tokens", CUT),
        ("completed", "completed", "content_filter", FILTERED),
        ("completed", "completed", "a_new_word", OTHER),
        ("incomplete", "completed", None, OTHER),
        ("incomplete", "completed", "max_output_tokens", CUT),
        ("completed", "incomplete", "max_output_tokens", CUT),
        ("cancelled", "completed", None, OTHER),
    ],
)
def test_a_response_is_as_good_as_the_worst_that_its_end_says(
    kind: str, status: str | None, details: str | None, reason: FinishReason
) -> None:
    last = completed(text_item("hi"), status=status, incomplete_details=details and {"reason": details})
    answer = responses(text_piece("hi"), item_done(text_item("hi")), {**last, "type": f"response.{kind}"})
    assert answer.finish_reason is reason


def test_a_call_without_argument_text_in_an_answer_that_ended_otherwise_is_not_used() -> None:
    assert call_of(anthropic(BEGUN, *block(0, TOOL_USE), *ended("a_new_word"))).parse_error
