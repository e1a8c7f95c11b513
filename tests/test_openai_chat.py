"""Answers of OpenAI's Chat Completions and of the hosts that copy it, as deltas: whole, byte by byte and cut short."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, Image, MessageDelta, Text, Thinking
from dragoman.delta import DoneDelta, ErrorDelta
from dragoman.message import ProviderItem
from dragoman.stream import Assembly, ResponseReader, assemble
from dragoman.wire.openai_chat import CODEC, DIALECTS

BY_NAME = {dialect.provider: dialect for dialect in DIALECTS}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **further: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x-1", "object": "chat.completion.chunk", "model": "some-model", "choices": [choice], **further}


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(value)}\n\n" for value in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def body(message: dict[str, Any], finish: str | None = "stop", **further: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "x-1", "object": "chat.completion", "model": "m", "choices": [choice], **further}).encode()


def decode(*chunks: bytes, vendor: str = "openai-chat", kind: str = "text/event-stream") -> list[MessageDelta]:
    reader = ResponseReader(CODEC, BY_NAME[vendor], run_id="r", headers={"content-type": kind})
    deltas = [delta for piece in chunks for delta in reader.feed(piece)]
    deltas += reader.end()
    assert reader.bug is None
    return deltas


def read(data: bytes, vendor: str = "openai-chat") -> Assembly:
    kind = "application/json" if data.startswith(b"{") else "text/event-stream"
    return assemble(decode(data, vendor=vendor, kind=kind))


def calls(assembly: Assembly) -> list[tuple[str, str, Any]]:
    assert assembly.message is not None, assembly.error
    return [(call.tool_call_id, call.tool_name, call.arguments) for call in assembly.message.tool_calls]


def call_piece(index: int | None = 0, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": fields.pop("name", None), "arguments": arguments}
    piece = {"index": index, "function": {name: value for name, value in function.items() if value is not None}}
    return {"tool_calls": [{name: value for name, value in {**piece, **fields}.items() if value is not None}]}


RICH = stream(
    chunk({"role": "assistant", "content": ""}, system_fingerprint="fp"),
    chunk({"reasoning": "Let me ", "reasoning_details": [{"type": "reasoning.text", "text": "Let me ", "index": 0}]}),
    chunk({"reasoning": "see.", "reasoning_details": [{"type": "reasoning.text", "text": "see.", "index": 0}]}),
    chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "index": 0}]}),
    chunk({"content": "The 水 "}),
    chunk({"content": "is warm."}),
    chunk(call_piece(0, "", id="a", name="look")),
    chunk(call_piece(0, '{"at": ')),
    chunk(call_piece(1, "", id="b", name="wait")),
    chunk(call_piece(0, '"sea"}')),
    chunk({}, "tool_calls", native_finish_reason="tool_use"),
    {"id": "x-1", "choices": [], "usage": USAGE},
)


def test_a_stream_gives_thinking_text_and_calls_in_their_order() -> None:
    message = read(RICH).message
    assert message is not None
    assert [part.kind for part in message.parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert message.text == "The 水 is warm."
    assert [call.arguments for call in message.tool_calls] == [{"at": "sea"}, {}]


def test_pieces_of_reasoning_details_are_kept_as_one_entry_with_its_signature() -> None:
    message = read(RICH).message
    assert message is not None
    details = [{"type": "reasoning.text", "text": "Let me see.", "index": 0, "signature": "c2ln"}]
    assert message.parts[0] == Thinking("Let me see.", provider_data={"reasoning_details": details})


def test_the_bytes_may_be_cut_anywhere() -> None:
    assert decode(*(RICH[index : index + 1] for index in range(len(RICH)))) == decode(RICH)


def test_every_prefix_before_the_finish_reason_ends_in_one_error() -> None:
    whole = decode(RICH)
    for end in range(RICH.index(b'"finish_reason": "tool_calls"')):
        deltas = decode(RICH[:end])
        assert isinstance(deltas[-1], ErrorDelta)
        assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED
        assert deltas[:-1] == whole[: len(deltas) - 1]


def test_what_the_provider_says_beside_the_answer_is_kept() -> None:
    message = read(RICH).message
    assert message is not None
    assert message.meta is not None
    expected = {"system_fingerprint": "fp", "native_finish_reason": "tool_use", "usage": USAGE}
    assert message.meta.provider_data == expected


def test_a_whole_answer_gives_the_message_that_its_stream_gives() -> None:
    message = {
        "reasoning": "Let me see.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Let me see.", "index": 0, "signature": "c2ln"}],
        "content": "The 水 is warm.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}},
            {"id": "b", "type": "function", "function": {"name": "wait", "arguments": ""}},
        ],
    }
    whole, streamed = read(body(message, "tool_calls", usage=USAGE)).message, read(RICH).message
    assert whole is not None
    assert streamed is not None
    assert whole.parts == streamed.parts


def test_done_waits_for_usage_that_follows_the_finish_reason() -> None:
    deltas = decode(stream(chunk({"content": "a"}), chunk({}, "stop"), {"choices": [], "usage": USAGE}))
    assert [delta.kind for delta in deltas] == ["start", "text", "usage", "done"]


def test_a_body_that_ends_after_the_finish_reason_without_the_sentinel_is_finished() -> None:
    assert isinstance(decode(stream(chunk({"content": "a"}, "stop"), done=False))[-1], DoneDelta)


def test_the_sentinel_without_a_finish_reason_is_a_stream_cut_short() -> None:
    last = decode(stream(chunk({"content": "a"})))[-1]
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize("vendor", ["snowflake", "ollama"])
def test_vendors_that_send_no_finish_reason_end_on_the_sentinel(vendor: str) -> None:
    assembly = read(stream(chunk({"content": "a"})), vendor)
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.STOP, None)
    assert isinstance(decode(stream(chunk({"content": "a"}), done=False), vendor=vendor)[-1], ErrorDelta)


def test_an_empty_finish_reason_with_calls_is_tool_calls() -> None:
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    assembly = read(body(message, ""), "snowflake")
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.TOOL_CALLS, "")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("eos", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("something_new", FinishReason.OTHER),
    ],
)
def test_the_providers_word_is_kept_beside_ours(word: str, reason: FinishReason) -> None:
    assembly = read(stream(chunk({"content": "a"}, word)))
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (reason, word)


def test_stop_after_tool_calls_is_tool_calls() -> None:
    assembly = read(stream(chunk(call_piece(0, "{}", id="a", name="f")), chunk({}, "stop")))
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.TOOL_CALLS, "stop")


def test_a_finish_reason_on_two_chunks_is_one_done() -> None:
    deltas = decode(stream(chunk({"content": "a"}, "stop"), chunk({"content": ""}, "stop", usage=USAGE)))
    assert [delta.kind for delta in deltas] == ["start", "text", "usage", "done"]


# ---------------------------------------------------------------- tool calls


def test_only_the_first_piece_of_a_call_needs_an_id_and_a_name() -> None:
    pieces = [call_piece(0, '{"a"', id="x", name="f"), call_piece(0, ": 1}")]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {"a": 1})]


def test_a_new_id_at_the_same_index_is_a_new_call() -> None:
    pieces = [call_piece(0, "{}", id="x", name="f"), call_piece(0, "{}", id="y", name="f")]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {}), ("y", "f", {})]


def test_a_new_id_without_a_name_is_a_piece_of_the_same_call() -> None:
    pieces = [call_piece(0, '{"a"', id="x", name="f"), call_piece(0, ": 1}", id="y")]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {"a": 1})]


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    pieces = [
        call_piece(None, '{"a"', id="x", name="f"),
        call_piece(None, ": 1}"),
        call_piece(None, "{", id="y", name="g"),
        call_piece(None, "}", id="y"),
    ]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {"a": 1}), ("y", "g", {})]


def test_calls_without_ids_that_all_have_index_0_get_ids_of_their_own() -> None:
    pieces = [call_piece(0, '{"a": 1}', id="", name="f"), call_piece(0, '{"a": 2}', id="", name="f")]
    assembly = read(stream(*map(chunk, pieces), chunk({}, "stop")))
    assert calls(assembly) == [("call_0", "f", {"a": 1}), ("call_1", "f", {"a": 2})]
    assert assembly.message is not None
    assert [call.provider_data for call in assembly.message.tool_calls] == [{"id": None}, {"id": None}]


def test_a_name_repeated_on_every_piece_is_one_call() -> None:
    pieces = [call_piece(0, '{"a"', id="x", name="f"), call_piece(0, ": {", name="f"), call_piece(0, "}}", name="f")]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {"a": {}})]


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("first", [None, ""])
@pytest.mark.parametrize("further", [{}, {"type": "function"}, {"id": ""}, {"id": "x"}])
@pytest.mark.parametrize("wire_id", ["x", None])
def test_a_name_without_a_new_id_goes_on_with_the_name_before(
    index: int | None, first: str | None, further: dict[str, Any], wire_id: str | None
) -> None:
    pieces = [call_piece(index, first, id=wire_id, name="delete_all")]
    pieces.append(call_piece(index, '{"older": 1}', name="_drafts", **further))
    read_calls = calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls"))))
    assert [call[1:] for call in read_calls] == [("delete_all_drafts", {"older": 1})]


@pytest.mark.parametrize(
    "pieces",
    [
        [call_piece(0, '{"a"', id="x", name="f"), call_piece(0, ": 1}", name="_g")],
        [call_piece(0, '{"a"', name="f"), call_piece(0, ": 1}", name="_g")],
        [call_piece(0, '{"a": 1}', id="x", name="f"), call_piece(0, "{}", name="_g")],
        [call_piece(0, id="x", name="f"), {"content": "so"}, call_piece(0, "{}", name="_g")],
        [call_piece(0, name="f"), {"content": "so"}, call_piece(0, "{}", name="_g")],
    ],
)
def test_another_name_for_a_call_that_has_begun_is_a_protocol_violation(pieces: list[dict[str, Any]]) -> None:
    error = read(stream(*map(chunk, pieces), chunk({}, "tool_calls"))).error
    assert error is not None
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_sparse_indexes_are_calls_in_the_order_of_their_arrival() -> None:
    pieces = [call_piece(7, "{}", id="x", name="f"), call_piece(3, "{}", id="y", name="g")]
    assert [call[0] for call in calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls"))))] == ["x", "y"]


def test_an_id_used_twice_in_a_stream_is_made_unique() -> None:
    pieces = [call_piece(0, "{}", id="x", name="f"), call_piece(1, "{}", id="x", name="g")]
    assembly = read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))
    assert calls(assembly) == [("x", "f", {}), ("x_2", "g", {})]
    assert assembly.message is not None
    assert assembly.message.tool_calls[1].provider_data == {"id": "x"}


@pytest.mark.parametrize("name", [None, "f"])
@pytest.mark.parametrize("piece", ["{", "{a}", "{}, "])
def test_four_times_the_pieces_that_begin_an_object_cost_about_four_times_the_work(
    piece: str, name: str | None
) -> None:
    def work(count: int) -> float:
        begun = chunk(call_piece(0, '{"a": [', name="f"))
        data = stream(begun, *[chunk(call_piece(0, piece, name=name))] * count, chunk({}, "tool_calls"))
        costs = []
        for _ in range(3):
            before = time.process_time()
            decode(data)
            costs.append(time.process_time() - before)
        return min(costs)

    # Quadratic work would be sixteen times as much.
    assert work(16_000) < 9 * work(4_000)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "}{"}',
        '{"a": "\\"}{", "b": {}}',
        '{"a": "\\\\"}',
        '{"a": [{"b": "{"}, {}]}',
        '{"a": "\\u007b"}',
        " {} \n",
    ],
)
def test_a_call_that_is_whole_is_known_as_such_wherever_its_text_was_cut(arguments: str) -> None:
    expected = [("call_0", "f", json.loads(arguments)), ("call_1", "f", {})]
    for cut in range(1, len(arguments)):
        pieces = [call_piece(0, arguments[:cut], name="f"), call_piece(0, arguments[cut:])]
        repeated, further = call_piece(0, arguments.strip()), call_piece(0, "{}", name="f")
        answer = stream(*map(chunk, [*pieces, repeated, further]), chunk({}, "tool_calls"))
        assert calls(read(answer)) == expected


def test_a_name_that_comes_after_the_id_opens_the_call_then() -> None:
    pieces = [call_piece(0, id="x"), call_piece(0, "{}", name="f")]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "tool_calls")))) == [("x", "f", {})]


def test_calls_of_a_whole_answer_are_never_joined() -> None:
    call = {"id": "", "function": {"name": "f"}}
    assert calls(read(body({"tool_calls": [call, call]}, "tool_calls"))) == [("call_0", "f", {}), ("call_1", "f", {})]


def test_arguments_that_come_as_an_object_are_read() -> None:
    assert calls(read(stream(chunk(call_piece(0, {"a": 1}, id="x", name="f"), "tool_calls")))) == [("x", "f", {"a": 1})]


def test_the_deprecated_function_call_is_a_tool_call() -> None:
    pieces = [{"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ": 1}"}}]
    assert calls(read(stream(*map(chunk, pieces), chunk({}, "function_call")))) == [("call_0", "f", {"a": 1})]


def test_a_call_that_never_got_a_name_is_a_protocol_violation() -> None:
    error = read(stream(chunk(call_piece(0, "{}", id="x")), chunk({}, "tool_calls"))).error
    assert error is not None
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_a_calls_signature_is_kept() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    assembly = read(stream(chunk(call_piece(0, "{}", id="x", name="f", extra_content=signed), "stop")), "google-openai")
    assert assembly.message is not None
    assert assembly.message.tool_calls[0].provider_data == {"extra_content": signed}


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_thinking_is_read_from_whichever_field_a_vendor_uses(field: str) -> None:
    message = read(stream(chunk({field: "Hm."}), chunk({"content": "Yes."}, "stop"))).message
    assert message is not None
    assert message.parts == (Thinking("Hm."), Text("Yes."))


def test_thinking_sent_under_two_names_is_read_once() -> None:
    message = read(stream(chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}, "stop"))).message
    assert message is not None
    assert message.parts == (Thinking("Hm."),)


def test_think_tags_stay_in_the_text() -> None:
    message = read(body({"content": "<think>a</think>b"})).message
    assert message is not None
    assert message.parts == (Text("<think>a</think>b"),)


def test_content_may_change_between_a_string_and_a_list_of_parts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    reference = {"type": "reference", "reference_ids": [1]}
    contents: Sequence[Any] = ("", [thought], [thought], "So", [{"type": "text", "text": " it is"}, reference], ".")
    message = read(stream(*(chunk({"content": content}) for content in contents), chunk({}, "stop")), "mistral").message
    assert message is not None
    assert message.parts == (Thinking("Hm.Hm."), Text("So it is"), ProviderItem("reference", reference), Text("."))


def test_a_refusal_is_text_that_says_so_and_finishes_as_refusal() -> None:
    pieces = [{"refusal": "I can"}, {"refusal": "not."}]
    assembly = read(stream(*map(chunk, pieces), chunk({}, "stop")))
    assert assembly.message is not None
    assert assembly.message.parts == (Text("I cannot.", provider_data={"refusal": True}),)
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.REFUSAL, "stop")


def test_annotations_do_not_cut_the_text_that_they_come_in() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://example.org", "start_index": 0, "end_index": 1}}
    message = read(stream(chunk({"content": "a"}), chunk({"content": "b", "annotations": [note]}, "stop"))).message
    assert message is not None
    assert message.parts == (Text("ab", provider_data={"annotations": [note]}),)


def test_pictures_in_an_answer_are_read_from_data_urls() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    message = read(body({"content": "Here.", "images": [picture]}), "openrouter").message
    assert message is not None
    assert message.parts == (Text("Here."), Image("image/png", b"hi"))


def test_a_spoken_answer_is_an_item_with_its_transcript() -> None:
    pieces: list[dict[str, Any]] = [{"audio": {"id": "a1"}}, {"audio": {"transcript": "Hel", "data": "aA=="}}]
    pieces += [{"audio": {"transcript": "lo", "data": "aQ=="}}, {"audio": {"expires_at": 5}}]
    message = read(stream(*map(chunk, pieces), chunk({}, "stop"))).message
    assert message is not None
    audio = {"id": "a1", "transcript": "Hello", "data": "aGk=", "expires_at": 5}
    assert message.parts == (ProviderItem("audio", audio, "Hello"),)


def test_fields_that_are_sent_with_zero_values_say_nothing() -> None:
    zeros = {
        "content": "a",
        "refusal": "",
        "annotations": None,
        "audio": {"id": "", "data": "", "expires_at": 0, "transcript": ""},
        "function_call": {"name": "", "arguments": ""},
        "tool_calls": None,
    }
    message = read(body(zeros, service_tier=""), "snowflake").message
    assert message is not None
    assert message.parts == (Text("a"),)
    assert message.meta is not None
    assert message.meta.provider_data is None


def test_log_probabilities_of_all_chunks_are_joined() -> None:
    pieces = [chunk({"content": "a"}), chunk({"content": "b"}, "stop")]
    for number, piece in enumerate(pieces):
        piece["choices"][0]["logprobs"] = {"content": [{"token": "ab"[number]}], "refusal": None}
    message = read(stream(*pieces)).message
    assert message is not None
    assert message.meta is not None
    assert message.meta.provider_data == {"logprobs": {"content": [{"token": "a"}, {"token": "b"}]}}


def test_a_moderation_chunk_without_choices_is_kept_on_the_message() -> None:
    verdict = {"input": {"flagged": False}}
    message = read(stream(chunk({"content": "a"}, "stop"), {"choices": [], "moderation": verdict})).message
    assert message is not None
    assert message.meta is not None
    assert message.meta.provider_data == {"moderation": verdict}


def test_what_a_chunk_after_the_finish_reason_says_is_kept() -> None:
    message = read(stream(chunk({"content": "a"}, "stop"), chunk({"content": ""}, service_tier="flex"))).message
    assert message is not None
    assert message.meta is not None
    assert message.meta.provider_data == {"service_tier": "flex"}


def test_only_the_first_choice_is_read() -> None:
    second = {"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}
    chunks = [chunk({"content": "yes"}), {"choices": [second]}, chunk({}, "stop")]
    assembly = read(stream(*chunks))
    assert assembly.message is not None
    assert (assembly.message.text, assembly.raw_finish_reason) == ("yes", "stop")


def test_null_choices_and_deltas_are_skipped() -> None:
    empty: list[dict[str, Any]] = [{"choices": None}, {"choices": [], "model": ""}]
    chunks = [*empty, chunk(None), chunk({"content": "a"}), chunk(None, "stop")]
    assembly = read(stream(*chunks))
    assert assembly.message is not None
    assert assembly.message.text == "a"


def test_a_surrogate_pair_split_over_two_chunks_is_one_character() -> None:
    data = stream(chunk({"content": "HIGH"}), chunk({"content": "LOW"}, "stop"))
    data = data.replace(b"HIGH", rb"\ud83d").replace(b"LOW", rb"\ude00")
    message = read(data).message
    assert message is not None
    assert message.text == "\U0001f600"


# ---------------------------------------------------------------- usage


def usage_of(usage: dict[str, Any], vendor: str = "openai-chat") -> tuple[int | None, ...]:
    report = read(body({"content": "a"}, usage=usage), vendor).usage
    assert report is not None
    return (report.input_tokens, report.output_tokens, report.total_tokens, report.cache_read_tokens)


def test_input_counts_what_the_cache_gave() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 5}}
    assert usage_of({**USAGE, **details}) == (11, 7, 18, 5)


@pytest.mark.parametrize("field", ["prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens"])
def test_vendors_report_cached_input_under_other_names(field: str) -> None:
    assert usage_of({**USAGE, field: 5}) == (11, 7, 18, 5)


def test_output_counts_reasoning_where_the_vendor_leaves_it_out() -> None:
    assert usage_of({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 40}, "xai") == (10, 30, 40, None)


def test_a_missing_total_is_input_and_output() -> None:
    assert usage_of({"prompt_tokens": 10, "completion_tokens": 2}) == (10, 2, 12, None)


@pytest.mark.parametrize("place", ["choice", "x_groq"])
def test_usage_is_found_where_vendors_hide_it(place: str) -> None:
    last = chunk({}, "stop")
    if place == "choice":
        last["choices"][0]["usage"] = USAGE
    else:
        last["x_groq"] = {"id": "r", "usage": USAGE}
    usage = read(stream(chunk({"content": "a"}), last)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)


# ---------------------------------------------------------------- failures


def code_of(data: bytes, vendor: str = "openai-chat") -> ErrorCode:
    error = read(data, vendor).error
    assert error is not None
    return error.error_code


def test_an_error_after_the_finish_reason_wins() -> None:
    failed = {**chunk({"content": ""}), "error": {"code": 502, "message": "upstream"}}
    assert code_of(stream(chunk({"content": "a"}, "length"), failed), "openrouter") is ErrorCode.SERVER_ERROR


def test_an_error_counts_where_no_blank_line_follows_it() -> None:
    failed = stream(chunk({"content": "a"}, "stop"), {"error": {"code": 429, "message": "slow"}}, done=False)
    assert code_of(failed.rstrip()) is ErrorCode.RATE_LIMITED


def test_an_error_event_ends_the_stream() -> None:
    error = {"error": {"message": "bad call", "type": "invalid_request_error", "code": "x", "status_code": 400}}
    data = stream(chunk({"content": "a"}), done=False) + f"event: error\ndata: {json.dumps(error)}\n\n".encode()
    assert code_of(data, "groq") is ErrorCode.INVALID_REQUEST


def test_an_error_inside_a_whole_answer_is_one() -> None:
    assert code_of(json.dumps({"error": {"code": 401, "message": "no"}}).encode()) is ErrorCode.AUTHENTICATION


@pytest.mark.parametrize("data", [b"{}", b'{"choices": []}', b'{"method": "POST"}', b'{"choices": [{"index": 0}]}'])
def test_json_that_is_no_completion_is_a_protocol_violation(data: bytes) -> None:
    assert code_of(data) is ErrorCode.PROTOCOL_VIOLATION


def test_plain_text_instead_of_an_answer_is_a_protocol_violation() -> None:
    last = decode(b"It works!", kind="text/plain")[-1]
    assert isinstance(last, ErrorDelta)
    assert last.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_unknown_events_are_skipped_and_counted() -> None:
    reader = ResponseReader(CODEC, BY_NAME["openai-chat"], headers={"content-type": "text/event-stream"})
    reader.feed(stream({"type": "keepalive"}, chunk({"content": "a"}, "stop")))
    assert reader.finished
    assert reader.unknown_events == 1
