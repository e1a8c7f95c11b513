"""A call is used only when it was closed, an answer only when it is whole and its provider calls it finished."""

import json
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, InvalidValue, Thinking
from dragoman.delta import DoneDelta, StartDelta, ToolCallArgsDelta, ToolCallEndDelta, ToolCallStartDelta
from dragoman.stream import Assembly, ResponseReader, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.wire import find_codec, find_dialect
from tests.wire_answers import (
    BEGUN,
    PLACE,
    STOPPED,
    TOOL_USE,
    anthropic,
    bedrock,
    call_item,
    call_of,
    candidate,
    chat,
    chunk,
    completed,
    ended,
    error_of,
    gemini,
    item_done,
    read,
    read_body,
    responses,
)
from tests.wire_streams import AWS, BOTH_FORMS, SSE, Object, block, frames, sse

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


def test_pieces_of_a_call_whose_beginning_is_lost_are_an_error() -> None:
    piece = {"jsonPath": "$.at", "numberValue": 1}
    assert error_of(gemini({"functionCall": {"partialArgs": [piece]}})) is ErrorCode.STREAM_TRUNCATED


def test_a_string_that_another_argument_cuts_off_makes_the_call_unusable() -> None:
    begun = {"jsonPath": "$.path", "stringValue": "/tmp", "willContinue": True}
    other = {"jsonPath": "$.force", "boolValue": True}
    call = {"name": "delete", "partialArgs": [begun, other]}
    assert call_of(gemini({"functionCall": call})).parse_error


# ---------------------------------------------------------------- one call


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
