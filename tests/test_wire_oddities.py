"""What vendors and gateways send that their documentation does not say. Each sample is small and names who sends it."""

import json
from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason, Text, Thinking, TokenUsage
from dragoman.message import ProviderItem
from dragoman.stream import Assembly, assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.testing import decode_recorded
from tests.wire_answers import error_of
from tests.wire_streams import AWS, Object


def sse(*events: Object | bytes) -> bytes:
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def read(protocol: str, body: bytes, *, vendor: str = "", kind: str = "") -> Assembly:
    kind = kind or ("application/json" if body.startswith(b"{") else "text/event-stream")
    return assemble(decode_recorded(protocol, body, vendor=vendor, content_type=kind))


def parts_of(assembly: Assembly) -> list[Any]:
    assert assembly.message is not None, assembly.error
    return list(assembly.message.parts)


def text_of(assembly: Assembly) -> str:
    assert assembly.message is not None, assembly.error
    return assembly.message.text


def calls_of(assembly: Assembly) -> list[tuple[str, str, Any]]:
    assert assembly.message is not None, assembly.error
    return [(call.tool_call_id, call.tool_name, call.arguments) for call in assembly.message.tool_calls]


def data_of(assembly: Assembly) -> Object:
    assert assembly.message is not None, assembly.error
    assert assembly.message.meta is not None
    return assembly.message.meta.provider_data or {}


# ---------------------------------------------------------------- Chat Completions


def chunk(delta: Any = None, finish: Any = None, **further: Any) -> Object:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **further}


def chat(*chunks: Object | bytes, vendor: str = "") -> Assembly:
    return read("openai-compatible", sse(*chunks, b"[DONE]"), vendor=vendor)


def piece(arguments: Any = None, name: str | None = None, **fields: Any) -> Object:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": 0, **fields, "function": {k: v for k, v in function.items() if v is not None}}]}


STOP = chunk({}, "stop")
CALLED = chunk({}, "tool_calls")


def test_an_azure_stream_may_begin_with_the_filters_of_the_prompt() -> None:
    filters = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    first = {"id": "", "model": "", "object": "", "created": 0, "choices": [], "prompt_filter_results": filters}
    answer = chat(first, chunk({"content": "hi"}), STOP, vendor="azure")
    assert text_of(answer) == "hi"
    assert data_of(answer)["prompt_filter_results"] == filters


@pytest.mark.parametrize("further", [{}, {"delta": {}}, {"delta": {"content": ""}}])
def test_what_the_asynchronous_filter_of_azure_says_is_kept(further: Object) -> None:
    results = {"violence": {"filtered": False, "severity": "low"}}
    late = {
        "index": 0,
        "finish_reason": None,
        "content_filter_results": results,
        "content_filter_offsets": {"e": 2},
        **further,
    }
    filtered = {"id": "", "model": "", "choices": [late], "usage": None}
    answer = chat(chunk({"content": "h"}), filtered, chunk({"content": "i"}), STOP, vendor="azure")
    assert parts_of(answer) == [Text("hi")]
    assert data_of(answer)["content_filter_results"] == results
    assert data_of(answer)["content_filter_offsets"] == {"e": 2}


def test_an_error_in_the_middle_of_an_openrouter_stream_ends_it() -> None:
    broken = chunk({"content": ""}, "error", error={"code": 502, "message": "upstream went away"})
    assert error_of(chat(chunk({"content": "h"}), broken, vendor="openrouter")) is ErrorCode.SERVER_ERROR


@pytest.mark.parametrize("nothing", [None, {}, "", [], False])
def test_an_empty_error_beside_an_answer_is_no_error(nothing: Any) -> None:
    assert text_of(chat(chunk({"content": "hi"}, error=nothing), chunk({}, "stop", error=nothing))) == "hi"


@pytest.mark.parametrize(
    "event",
    [
        {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500},  # vLLM, older
        {"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}},  # vLLM
        {"error": "an error was encountered while running the model"},  # Ollama
        {"id": "x", "choices": None, "base_resp": {"status_code": 1000, "status_msg": "unknown error"}},  # MiniMax
    ],
)
def test_an_error_inside_a_stream_is_never_a_truncated_answer(event: Object) -> None:
    assert error_of(chat(chunk({"content": "h"}), event)) is ErrorCode.SERVER_ERROR


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, 4),  # DeepSeek
        ({"cached_tokens": 4}, 4),  # Moonshot
        ({"prompt_tokens_details": {"cached_tokens": 4.0}, "completion_tokens_details": None}, 4),
        ({"prompt_tokens_details": None}, None),
        ({"prompt_tokens_details": {"cached_tokens": "4"}}, 4),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens_details": {"cached_tokens": 1e300}}, None),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None),
        ({"prompt_tokens_details": [4]}, None),
        ({"prompt_tokens_details": {"cached_tokens": 10**40}, "cost": True}, None),
        ({"cost": "free"}, None),
        ({"cost": -1}, None),
    ],
)
def test_odd_usage_is_read_or_left_out(usage: Object, expected: int | None) -> None:
    reported = {"prompt_tokens": "10", "completion_tokens": 2.0, "total_tokens": 12, **usage}
    answer = chat(chunk({"content": "hi"}), STOP, {"id": "x", "choices": [], "usage": reported}, vendor="openrouter")
    assert answer.usage == TokenUsage(input_tokens=10, output_tokens=2, total_tokens=12, cache_read_tokens=expected)


@pytest.mark.parametrize("usage", [None, {}, [], "none", 0, {"prompt_tokens": None}])
def test_usage_of_any_type_never_costs_the_answer(usage: Any) -> None:
    assert text_of(chat(chunk({"content": "hi"}, usage=usage), chunk({}, "stop", usage=usage))) == "hi"


@pytest.mark.parametrize(
    "odd",
    [
        {"id": 17, "model": None, "created": 1.5, "object": None, "system_fingerprint": 7},
        {"id": {"$oid": "x"}, "model": ["m"]},
        {"provider": None, "citations": {}, "usage": [], "error": None},
    ],
)
def test_fields_that_the_answer_does_not_need_may_have_any_type(odd: Object) -> None:
    assert text_of(chat({**chunk({"role": None, "content": "hi"}), **odd}, {**STOP, **odd})) == "hi"


@pytest.mark.parametrize(
    "choice",
    [
        {"index": "0", "delta": {"content": "hi"}},
        {"index": 0.0, "delta": {"content": "hi", "tool_calls": None, "function_call": None, "audio": ""}},
        {"index": None, "delta": {"content": "hi", "tool_calls": [], "refusal": False, "reasoning": {}}},
        {"index": 0, "delta": {"content": ["hi"]}, "logprobs": []},
        {"index": 0, "delta": {"content": [{"type": "text", "text": "hi"}]}, "finish_reason": False},
        {"index": 0, "delta": {"content": {"type": "text", "text": "hi"}}, "finish_reason": ""},
        {"index": 0, "delta": {"content": "hi", "annotations": "", "images": None, "tool_calls": [None]}},
    ],
)
def test_a_choice_is_read_where_its_types_are_not_the_documented_ones(choice: Object) -> None:
    assert text_of(chat({"id": "x", "choices": [choice]}, STOP)) == "hi"


def test_proxies_write_an_empty_list_for_an_empty_delta() -> None:
    assert text_of(chat(chunk({"content": "h"}), chunk([]), chunk({"content": "i"}), chunk([], "stop"))) == "hi"


@pytest.mark.parametrize("delta", ["hi", 7, {"content": {"a": 1}, "tool_calls": "f"}, {"tool_calls": ["f"]}])
def test_what_the_answer_is_made_of_must_be_readable(delta: Any) -> None:
    assert error_of(chat(chunk(delta), STOP)) is ErrorCode.PROTOCOL_VIOLATION


def test_a_finish_reason_that_nobody_knows_is_kept() -> None:
    answer = chat(chunk({"content": "hi"}), chunk({}, "daydream"))
    assert (answer.finish_reason, answer.raw_finish_reason) == (FinishReason.OTHER, "daydream")


def test_perplexity_repeats_the_whole_answer_after_its_pieces() -> None:
    whole = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    last = {"id": "x", "object": "chat.completion.done", "choices": [whole], "citations": ["https://a.example"]}
    answer = chat(chunk({"content": "h"}), chunk({"content": "i"}), last)
    assert text_of(answer) == "hi"
    assert data_of(answer)["citations"] == ["https://a.example"]


@pytest.mark.parametrize("arguments", [{"at": "sea"}, '{"at": "sea"}'])
def test_ollama_sends_arguments_as_an_object(arguments: Any) -> None:
    assert calls_of(chat(chunk(piece(arguments, "look", id="a")), STOP)) == [("a", "look", {"at": "sea"})]


def test_a_call_may_have_a_number_as_its_id_and_no_type() -> None:
    assert calls_of(chat(chunk(piece("{}", "look", id=7, index="0")), CALLED)) == [("7", "look", {})]


def test_a_name_that_is_repeated_with_every_piece_begins_no_further_call() -> None:
    pieces = [piece(text, "look", id="a") for text in ("", '{"at": ', '"sea"}')]
    assert calls_of(chat(*map(chunk, pieces), CALLED)) == [("a", "look", {"at": "sea"})]


def test_a_name_may_come_in_pieces() -> None:
    pieces = [piece("", "look_", id="a", type="function"), piece(None, "around"), piece('{"at": 1}')]
    assert calls_of(chat(*map(chunk, pieces), CALLED)) == [("a", "look_around", {"at": 1})]


def test_two_calls_without_arguments_are_not_one_name() -> None:
    pieces = [piece("", "look", id="a", type="function"), piece("", "wait", id="b", type="function")]
    assert calls_of(chat(*map(chunk, pieces), CALLED)) == [("a", "look", {}), ("b", "wait", {})]


@pytest.mark.parametrize("last", [piece('{"at": 1}'), piece('{"at": 1}', "look", id="a")])
def test_arguments_that_are_repeated_whole_at_the_end_count_once(last: Object) -> None:
    pieces = [piece("", "look", id="a"), piece('{"at": '), piece("1}"), last]
    assert calls_of(chat(*map(chunk, pieces), CALLED)) == [("a", "look", {"at": 1})]


def test_an_index_may_be_missing_on_the_first_piece_only() -> None:
    first = {"tool_calls": [{"id": "a", "function": {"name": "look"}}]}
    assert calls_of(chat(chunk(first), chunk(piece('{"at": 1}')), CALLED)) == [("a", "look", {"at": 1})]


def test_sglang_gives_every_call_the_index_0_and_repeats_the_id() -> None:
    pieces = [piece("", "look", id="0"), piece("{}", id="0"), piece("", "look", id="1"), piece('{"at": 1}', id="1")]
    assert calls_of(chat(*map(chunk, pieces), CALLED)) == [("0", "look", {}), ("1", "look", {"at": 1})]


def test_text_after_a_call_that_has_only_its_name_comes_after_it() -> None:
    answer = chat(chunk(piece("", "look", id="a")), chunk({"content": "hi"}), CALLED)
    assert [part.kind for part in parts_of(answer)] == ["tool_call", "text"]


def test_reasoning_details_may_lack_their_text() -> None:
    details = [{"type": "reasoning.text", "index": 0, "text": None}]
    answer = chat(chunk({"reasoning_details": details}), chunk({"content": "hi"}), STOP, vendor="openrouter")
    assert parts_of(answer) == [Thinking("", provider_data={"reasoning_details": details}), Text("hi")]


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", "application/json", ""])
def test_proxies_send_events_under_another_content_type(kind: str) -> None:
    body = b": waiting\n\n" + sse(chunk({"content": "hi"}), STOP)
    whole, cut = (read("openai-compatible", data, kind=kind or "binary") for data in (body, body[: len(body) // 2]))
    assert text_of(whole) == "hi"
    assert error_of(cut) is ErrorCode.STREAM_TRUNCATED


# ---------------------------------------------------------------- Responses


def responses(*events: Object) -> Assembly:
    return read("openai-responses", sse(*events))


def completed(*output: Object, **further: Any) -> Object:
    response = {"id": "r", "model": "m", "status": "completed", "output": list(output), **further}
    return {"type": "response.completed", "response": response}


def message(text: str, **fields: Any) -> Object:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **fields}


OUTPUT_ITEMS = """file_search_call web_search_call computer_call program program_output tool_search_call
    tool_search_output additional_tools compaction code_interpreter_call local_shell_call shell_call shell_call_output
    apply_patch_call apply_patch_call_output mcp_call mcp_list_tools mcp_approval_request something_new"""


@pytest.mark.parametrize("kind", OUTPUT_ITEMS.split())
def test_every_output_item_that_is_no_part_of_ours_is_kept_whole(kind: str) -> None:
    item = {"type": kind, "id": "i_1", "status": "completed", "action": {"a": [1]}, "output": None}
    events = [{"type": f"response.output_item.{step}", "output_index": 0, "item": item} for step in ("added", "done")]
    answer = responses(*events, completed(item))
    assert parts_of(answer) == [ProviderItem(kind, item)]


def test_pieces_without_an_item_id_and_an_index_belong_to_the_open_item() -> None:
    added = {"type": "response.output_item.added", "item": message("", content=[])}
    pieces = [{"type": "response.output_text.delta", "delta": text} for text in "hi"]
    answer = responses(added, *pieces, completed(message("hi")))
    assert text_of(answer) == "hi"
    assert len(parts_of(answer)) == 1


def test_vllm_gives_its_items_other_ids_at_the_end() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    events: list[Object] = []
    for index, item in ((1, message("hi")), (2, {**call, "id": "fc_1"})):
        events += [
            {"type": f"response.output_item.{step}", "output_index": index, "item": item} for step in ("added", "done")
        ]
    last = completed(message("hi", id="msg_2"), {**call, "id": "fc_2", "call_id": "c2"})
    answer = read("openai-responses", sse(*events, last), vendor="openai-responses-compatible")
    assert text_of(answer) == "hi"
    assert calls_of(answer) == [("c1", "look", {})]


def test_reasoning_whose_id_changes_with_every_piece_is_one_part() -> None:
    pieces: list[Object] = [
        {"type": "response.reasoning_text.delta", "item_id": f"rs_{index}", "output_index": 0, "delta": text}
        for index, text in enumerate(("so", " it", " is"))
    ]
    final = {
        "type": "reasoning",
        "id": "rs_9",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "so it is"}],
    }
    answer = responses(*pieces, completed(final))
    assert [(part.kind, part.text) for part in parts_of(answer)] == [("thinking", "so it is")]


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": "3", "output_tokens": 4.0, "input_tokens_details": None, "output_tokens_details": []},
        {"input_tokens": 3, "output_tokens": 4, "cost": True, "output_tokens_details": {"reasoning_tokens": -1}},
    ],
)
def test_odd_usage_of_responses_is_read_or_left_out(usage: Object) -> None:
    answer = responses(completed(message("hi"), usage=usage))
    assert answer.usage == TokenUsage(input_tokens=3, output_tokens=4, total_tokens=7)


@pytest.mark.parametrize("kind", ["error", "response.error"])
def test_gateways_name_their_error_event_in_two_ways(kind: str) -> None:
    assert error_of(responses({"type": kind, "error": {"code": 429, "message": "slow"}})) is ErrorCode.RATE_LIMITED


def test_fields_of_events_may_have_any_type() -> None:
    delta = {"type": "response.output_text.delta", "item_id": 7, "output_index": "0", "content_index": None}
    answer = responses(
        {"type": "response.created", "sequence_number": None, "response": {"id": 1, "model": None}},
        {"type": "response.output_item.added", "output_index": "0", "item": message("", id=7, content=None)},
        {**delta, "delta": "hi", "logprobs": {}},
        completed(message("hi", id=7), output_text=7, incomplete_details=[]),
    )
    assert text_of(answer) == "hi"


# ---------------------------------------------------------------- Anthropic Messages


def opened(index: Any, **block: Any) -> Object:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: Any, kind: str, **delta: Any) -> Object:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def closed(index: Any) -> Object:
    return {"type": "content_block_stop", "index": index}


def begun(message_id: Any = "m", **fields: Any) -> Object:
    return {"type": "message_start", "message": {"id": message_id, "model": "c", "content": [], **fields}}


def ended(reason: str = "end_turn", **fields: Any) -> list[Object]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, **fields}, {"type": "message_stop"}]


def anthropic(*events: Object | bytes) -> Assembly:
    return read("anthropic-messages", sse(*events))


def test_text_and_thinking_of_kimi_are_whole_without_their_end_and_a_call_is_not_used() -> None:
    answer = anthropic(
        begun(),
        opened(0, type="thinking", thinking=""),
        added(0, "thinking_delta", thinking="so"),
        added(0, "signature_delta", signature="s"),
        opened(1, type="text", text=""),
        added(1, "text_delta", text="hi"),
        opened(2, type="tool_use", id="t", name="look", input={}),
        added(2, "input_json_delta", partial_json="{}"),
        *ended("tool_use"),
    )
    assert parts_of(answer)[:2] == [Thinking("so", provider_data={"signature": "s"}), Text("hi")]
    assert calls_of(answer) == [("t", "look", None)]


def test_kimi_repeats_the_start_of_the_message() -> None:
    answer = anthropic(
        begun(), begun(), begun("other"), opened(0, type="text"), added(0, "text_delta", text="hi"), *ended()
    )
    assert text_of(answer) == "hi"


def test_a_second_message_in_the_middle_of_the_first_is_never_joined_to_it() -> None:
    answer = anthropic(
        begun(),
        opened(0, type="text", text="h"),
        begun("other"),
        opened(0, type="text", text="hi"),
        closed(0),
        *ended(),
    )
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


def test_blocks_inside_the_start_of_the_message_are_kept() -> None:
    result = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"type": "x"}}
    answer = anthropic(
        begun(content=[result]), opened(0, type="text", text=""), added(0, "text_delta", text="hi"), *ended()
    )
    assert parts_of(answer) == [ProviderItem("code_execution_tool_result", result), Text("hi")]


def test_deltas_of_blocks_that_were_not_opened_are_read() -> None:
    answer = anthropic(
        begun(),
        added(0, "thinking_delta", thinking="so"),
        closed(0),
        added(1, "text_delta", text="hi"),
        closed(1),
        *ended(),
    )
    assert parts_of(answer) == [Thinking("so"), Text("hi")]


def test_proxies_give_every_block_the_index_0() -> None:
    answer = anthropic(
        begun(),
        opened(0, type="text", text=None),
        added(0, "text_delta", text="hi"),
        opened(0, type="tool_use", id="t", name="look", input=None),
        added(0, "input_json_delta", partial_json='{"at": 1}'),
        closed(0),
        *ended("tool_calls"),
    )
    assert text_of(answer) == "hi"
    assert calls_of(answer) == [("t", "look", {"at": 1})]
    assert answer.finish_reason is FinishReason.TOOL_CALLS


def test_calls_without_an_id_get_one_of_their_own() -> None:
    blocks = [
        event
        for index, wire_id in enumerate(["functions.look:0", "functions.look:1", "", None, 7])
        for event in (opened(index, type="tool_use", id=wire_id, name="look", input={}), closed(index))
    ]
    ids = [call_id for call_id, _, _ in calls_of(anthropic(begun(), *blocks, *ended("tool_use")))]
    assert len(set(ids)) == 5
    assert all(ids)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}}, 7),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3}, "cache_creation_input_tokens": 9}, 9),
        ({"cache_creation": None, "output_tokens_details": None}, None),
        ({"cache_creation": "x", "output_tokens_details": [], "cache_creation_input_tokens": -1}, None),
        ({"cache_creation_input_tokens": "9"}, 9),
    ],
)
def test_odd_usage_of_anthropic_is_read_or_left_out(usage: Object, expected: int | None) -> None:
    answer = anthropic(begun(usage=None), *ended(usage={"input_tokens": 1.0, "output_tokens": "2", **usage}))
    assert answer.usage is not None
    assert answer.usage.cache_write_tokens == expected
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1 + (expected or 0), 2)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("compaction", FinishReason.PAUSE), ("stop", FinishReason.STOP), ("sensitive", FinishReason.CONTENT_FILTER)],
)
def test_stop_reasons_beyond_the_documented_ones(reason: str, expected: FinishReason) -> None:
    assert anthropic(begun(), *ended(reason)).finish_reason is expected


def test_a_sentinel_and_odd_types_do_not_end_an_anthropic_stream() -> None:
    answer = anthropic(
        begun(7, model=None, usage=[]),
        b"[DONE]",
        opened("0", type="text", text=None, citations=None),
        {**added("0", "text_delta", text="hi"), "delta": {"type": "text_delta", "text": "hi", "signature": None}},
        closed("0"),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": 7}, "usage": None},
        {"type": "message_stop"},
        b"[DONE]",
    )
    assert text_of(answer) == "hi"


@pytest.mark.parametrize("kind", ["advisor_tool_result", "mcp_tool_listing", "fallback", "container_upload", "new_one"])
def test_every_block_that_is_no_part_of_ours_is_kept_whole(kind: str) -> None:
    block = {"type": kind, "id": "b", "content": [{"a": 1}]}
    assert parts_of(anthropic(begun(), opened(0, **block), closed(0), *ended())) == [ProviderItem(kind, block)]


# ---------------------------------------------------------------- Gemini


def content(*parts: Any, finish: Any = None, **further: Any) -> Object:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0, "finishReason": finish}
    return {"candidates": [candidate], **further}


def gemini(*chunks: Object) -> Assembly:
    return read("gemini", sse(*chunks))


def test_an_unset_finish_reason_does_not_finish_a_gemini_answer() -> None:
    cut = gemini(content({"text": "h"}, finish="FINISH_REASON_UNSPECIFIED"))
    assert error_of(cut) is ErrorCode.STREAM_TRUNCATED


def test_fields_that_are_null_split_no_text() -> None:
    nulls = {"thought": None, "functionCall": None, "inlineData": None, "thoughtSignature": None}
    answer = gemini(content({"text": "h", **nulls}), content({"text": "i", **nulls}, finish="STOP"))
    assert parts_of(answer) == [Text("hi")]


@pytest.mark.parametrize("usage", [{"promptTokenCount": "3"}, {"promptTokenCount": 3.0, "totalTokenCount": -1}])
def test_odd_usage_of_gemini_is_read_or_left_out(usage: Object) -> None:
    answer = gemini(content({"text": "hi"}, finish="STOP", usageMetadata=usage))
    assert answer.usage == TokenUsage(input_tokens=3)


@pytest.mark.parametrize(
    "odd",
    [
        {"modelVersion": 7, "responseId": None, "usageMetadata": []},
        {"promptFeedback": [], "createTime": 1.5, "usageMetadata": "none"},
        {"candidates": [None, {"content": {"parts": [None, {"text": "hi"}]}, "index": "0", "finishReason": "STOP"}]},
        {"candidates": {"content": {"parts": {"text": "hi"}}, "finishReason": "STOP"}},
    ],
)
def test_a_gemini_answer_is_read_where_its_types_are_not_the_documented_ones(odd: Object) -> None:
    assert text_of(gemini({**content({"text": "hi"}, finish="STOP"), **odd})) == "hi"


PART_KINDS = (
    "executableCode codeExecutionResult fileData functionResponse toolCall toolResponse audioTranscription newOne"
)


@pytest.mark.parametrize("kind", PART_KINDS.split())
def test_every_gemini_part_that_is_no_part_of_ours_is_kept_whole(kind: str) -> None:
    part = {kind: {"a": 1}, "thoughtSignature": "s"}
    assert parts_of(gemini(content(part, finish="STOP"))) == [ProviderItem(kind, part)]


# ---------------------------------------------------------------- Bedrock


def bedrock(*events: tuple[str, Object]) -> Assembly:
    frames = (
        encode_frame({":message-type": "event", ":event-type": name}, json.dumps(payload).encode())
        for name, payload in [("messageStart", {"role": "assistant"}), *events]
    )
    return read("bedrock-converse", b"".join(frames), kind=AWS)


def test_odd_usage_and_indexes_of_bedrock_are_read_or_left_out() -> None:
    usage = {"inputTokens": "3", "outputTokens": 4.0, "totalTokens": -7, "cacheReadInputTokens": None}
    answer = bedrock(
        ("contentBlockDelta", {"contentBlockIndex": "0", "delta": {"text": "hi", "toolUse": None}}),
        ("contentBlockStop", {"contentBlockIndex": None}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": usage, "metrics": None}),
    )
    assert text_of(answer) == "hi"
    assert answer.usage == TokenUsage(input_tokens=3, output_tokens=4)


def test_calls_of_bedrock_with_the_same_id_are_two() -> None:
    blocks = [
        event
        for index in range(2)
        for event in (
            ("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}),
            ("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": f'{{"n": {index}}}'}}}),
            ("contentBlockStop", {"contentBlockIndex": index}),
        )
    ]
    answer = bedrock(*blocks, ("messageStop", {"stopReason": "stop_sequence"}))
    assert [arguments for _, _, arguments in calls_of(answer)] == [{"n": 0}, {"n": 1}]
    assert answer.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("kind", ["document", "video", "audio", "guardContent", "searchResult", "toolAddition"])
def test_every_bedrock_block_that_is_no_part_of_ours_is_kept_whole(kind: str) -> None:
    block = {kind: {"a": 1}}
    body = {"output": {"message": {"role": "assistant", "content": [block]}}, "stopReason": "end_turn", "usage": None}
    assert parts_of(read("bedrock-converse", json.dumps(body).encode())) == [ProviderItem(kind, block)]
