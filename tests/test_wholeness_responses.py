"""Answers of the Responses API that are not whole: what may be used of them, and what is an error."""

from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason
from tests.wire_answers import (
    PLACE,
    call_item,
    call_of,
    completed,
    error_of,
    item_done,
    read,
    read_body,
    responses,
    text_item,
    text_piece,
)
from tests.wire_streams import Object, sse

# ---------------------------------------------------------------- Responses


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
