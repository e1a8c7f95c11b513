"""Assembly gives the same message however the stream was cut, and never a value that was not sent."""

import json
import re
from datetime import timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman import (
    ErrorCode,
    FinishReason,
    Image,
    Message,
    MessageDelta,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    from_json,
    to_json,
)
from dragoman.delta import DoneDelta, ErrorDelta, ImageDelta, ProviderItemDelta, StartDelta
from dragoman.message import ModelInvocationDescriptor, ProviderItem
from dragoman.stream import Assembler, Assembly, assemble
from tests.oracle import (
    RUN,
    STAMP,
    Data,
    args,
    argument_texts,
    assembled,
    cut_streams,
    delta_of,
    done,
    ended,
    expected_arguments,
    expected_parts,
    opened,
    parts_of,
    plain_parts,
    same_stream_twice,
    stream,
    text,
    thinking,
    unhurried,
    usage,
    whole_streams,
)

DEEP = 100_000
TEN_MEGABYTES = 10_000_000


def call_with(*pieces: str, reason: FinishReason = FinishReason.TOOL_CALLS) -> ToolCall:
    """The call whose argument text came in `pieces`; its message must agree on whether it could be read."""
    message = assembled(opened(), *(args(piece) for piece in pieces), ended(), reason=reason)
    (call,) = message.tool_calls
    assert message.meta is not None
    assert message.meta.parse_failures == (("c1",) if call.arguments is None else None)
    assert (call.arguments is None) == (call.parse_error is not None)
    return call


def partial_of(*deltas: MessageDelta) -> Message:
    """What had arrived of a stream that was cut after `deltas`."""
    assembly = assemble(stream(*deltas))
    assert assembly.message is None
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.STREAM_TRUNCATED
    assert assembly.partial is not None
    return assembly.partial


@unhurried
@given(same_stream_twice())
def test_however_a_stream_is_cut_it_assembles_to_the_same(
    streams: tuple[list[MessageDelta], list[MessageDelta]],
) -> None:
    one, other = streams
    assert assemble(one) == assemble(other)


@unhurried
@given(cut_streams() | whole_streams())
def test_a_stream_assembles_to_the_parts_that_it_tells(deltas: list[MessageDelta]) -> None:
    assembly = assemble(deltas)
    assert plain_parts(assembly.message or assembly.partial) == expected_parts(deltas)
    assert (assembly.message is None) == (deltas[-1].kind == "error")


@unhurried
@given(cut_streams() | whole_streams())
def test_cut_at_any_position_a_stream_ends_in_one_error_with_what_had_arrived(deltas: list[MessageDelta]) -> None:
    for position in range(len(deltas)):
        assembly = assemble(deltas[:position])
        assert assembly.message is None
        assert assembly.error is not None
        assert assembly.error.error_code is ErrorCode.STREAM_TRUNCATED
        assert (assembly.partial is None) == (position == 0)
        assert plain_parts(assembly.partial) == expected_parts(deltas[:position])


@unhurried
@given(cut_streams())
def test_a_snapshot_at_any_time_is_what_a_cut_there_would_leave(deltas: list[MessageDelta]) -> None:
    assembler = Assembler()
    assert assembler.snapshot() is None
    for position, delta in enumerate(deltas[:-1], start=1):
        assembler.feed(delta)
        assert assembler.snapshot() == assemble(deltas[:position]).partial


@unhurried
@given(cut_streams())
def test_looking_at_snapshots_does_not_change_the_result(deltas: list[MessageDelta]) -> None:
    watched = Assembler()
    for delta in deltas:
        watched.feed(delta)
        watched.snapshot()
    assert watched.result() == assemble(deltas)


@unhurried
@given(
    st.lists(argument_texts, min_size=2, max_size=4),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_calls_that_arrive_interleaved_each_keep_their_own_arguments(raws: list[str], turns: list[int]) -> None:
    waiting: dict[str, list[MessageDelta]] = {
        f"c{number}": [*(args(letter, f"c{number}") for letter in raw), ended(f"c{number}")]
        for number, raw in enumerate(raws)
    }
    deltas: list[MessageDelta] = [opened(call) for call in waiting]
    for turn in [*turns, *(number for number in range(len(raws)) for _ in range(60))]:
        queue = waiting[f"c{turn % len(raws)}"]
        if queue:
            deltas.append(queue.pop(0))
    calls = assembled(*deltas).tool_calls
    assert [call.tool_call_id for call in calls] == list(waiting)
    assert [call.raw_args_text for call in calls] == raws
    assert [call.arguments for call in calls] == [expected_arguments(raw or "{}") for raw in raws]


# Parts and their order.


@pytest.mark.parametrize("indexed", [False, True])
def test_two_thinking_blocks_keep_their_own_signatures(indexed: bool) -> None:
    first, second = (0, 1) if indexed else (None, None)
    assert parts_of(
        thinking("on", first),
        thinking("e", first, {"signature": "S1"}),
        thinking("tw", second),
        thinking("o", second),
        thinking("", second, {"signature": "S2"}),
    ) == (
        Thinking("one", provider_data={"signature": "S1"}),
        Thinking("two", provider_data={"signature": "S2"}),
    )


def test_blocks_without_a_signature_are_told_apart_by_their_part_index() -> None:
    assert parts_of(thinking("a", 0), thinking("b", 1), text("c", 2), text("d", 3)) == (
        Thinking("a"),
        Thinking("b"),
        Text("c"),
        Text("d"),
    )


def test_a_signature_without_any_text_is_a_part() -> None:
    assert parts_of(thinking("", None, {"redacted": "R"})) == (Thinking("", provider_data={"redacted": "R"}),)


def test_text_call_text_keeps_its_order() -> None:
    assert parts_of(text("before"), opened(), args("{}"), ended(), text("after")) == (
        Text("before"),
        ToolCall("c1", "look_up", {}, "{}"),
        Text("after"),
    )


def test_text_around_a_picture_or_an_item_is_not_joined() -> None:
    parts = parts_of(text("a"), delta_of("image", 0), text("b"), delta_of("provider_item", 0), text("c"))
    assert [part.kind for part in parts] == ["text", "image", "text", "provider_item", "text"]


def test_a_picture_and_an_item_keep_all_that_they_came_with() -> None:
    assert parts_of(
        ImageDelta(RUN, 0, STAMP, "image/png", b"PNG", provider_data={"id": 1}),
        ImageDelta(RUN, 0, STAMP, "image/png", url="https://example.com/a.png"),
        ProviderItemDelta(RUN, 0, STAMP, "web_search", {"query": "q"}, "searched for q", {"id": 2}),
    ) == (
        Image("image/png", b"PNG", provider_data={"id": 1}),
        Image("image/png", url="https://example.com/a.png"),
        ProviderItem("web_search", {"query": "q"}, "searched for q", provider_data={"id": 2}),
    )


def test_usage_between_two_pieces_does_not_part_them() -> None:
    assert parts_of(text("a"), usage(output_tokens=1), text("b")) == (Text("ab"),)


def test_empty_pieces_make_no_part() -> None:
    assert parts_of(text(""), thinking("")) == ()


def test_an_empty_piece_of_another_kind_does_not_part_a_text() -> None:
    assert parts_of(text("a"), thinking(""), text("", 5), text("b")) == (Text("ab"),)


def test_provider_data_of_a_call_s_start_and_end_is_merged() -> None:
    (call,) = assembled(opened("c1", {"id": 1, "x": "start"}), ended("c1", {"x": "end", "thought": 2})).tool_calls
    assert call.provider_data == {"id": 1, "x": "end", "thought": 2}


def test_surrogate_halves_in_adjacent_deltas_are_joined() -> None:
    assert parts_of(text("\ud83d"), text(""), text("\ude00"), thinking("\ud83d"), thinking("\ude00")) == (
        Text("\N{GRINNING FACE}"),
        Thinking("\N{GRINNING FACE}"),
    )


def test_surrogate_halves_in_different_parts_are_not_joined() -> None:
    assert parts_of(text("\ud83d", 0), text("\ude00", 1)) == (Text("\ufffd"), Text("\ufffd"))


def test_a_lone_surrogate_in_a_snapshot_is_still_joined_later() -> None:
    assembler = Assembler()
    seen = []
    for delta in stream(text("\ud83d"), text("\ude00")):
        assembler.feed(delta)
        seen.append(plain_parts(assembler.snapshot()))
    assert seen == [[], [("text", "\ufffd", None)], [("text", "\N{GRINNING FACE}", None)]]


def test_nul_in_a_text_is_kept() -> None:
    assert parts_of(text("a\0b")) == (Text("a\0b"),)


# What is known beside the parts.


def test_a_later_report_of_usage_replaces_only_what_it_says() -> None:
    assembly = assemble(
        stream(
            usage(input_tokens=10, output_tokens=1, cache_read_tokens=4),
            usage(output_tokens=5),
            usage(output_tokens=3, total_tokens=13),
            done(),
        )
    )
    expected = TokenUsage(input_tokens=10, output_tokens=3, total_tokens=13, cache_read_tokens=4)
    assert assembly.usage == expected
    assert assembly.message is not None
    assert assembly.message.meta is not None
    assert assembly.message.meta.usage == expected


def test_a_usage_of_zero_replaces_what_was_there() -> None:
    assert assemble(stream(usage(output_tokens=5), usage(output_tokens=0))).usage == TokenUsage(output_tokens=0)


def test_the_finish_and_the_origin_are_recorded() -> None:
    origin = ModelInvocationDescriptor("acme", "chat", "large")
    finish = DoneDelta(RUN, 1, STAMP, FinishReason.TOOL_CALLS, "tool_use", {"response": "R"})
    assembly = assemble([StartDelta("run-9", 0, STAMP, "large-2025", "request-7"), finish], invocation=origin)
    assert (assembly.finish_reason, assembly.raw_finish_reason) == (FinishReason.TOOL_CALLS, "tool_use")
    message = assembly.message
    assert message is not None
    assert (message.run_id, message.role, message.timestamp) == ("run-9", "assistant", STAMP)
    meta = message.meta
    assert meta is not None
    assert (meta.finish_reason, meta.raw_finish_reason) == (FinishReason.TOOL_CALLS, "tool_use")
    assert (meta.invocation, meta.model_id, meta.request_id) == (origin, "large-2025", "request-7")
    assert meta.provider_data == {"response": "R"}
    assert meta.interrupted is None


def test_a_trace_id_is_recorded_with_the_message() -> None:
    assembler = Assembler(trace_id="trace-1")
    assembler.feed(StartDelta(RUN, 0, STAMP))
    message = assembler.snapshot()
    assert message is not None
    assert message.meta is not None
    assert message.meta.trace_id == "trace-1"
    assert message.meta.interrupted


def test_a_partial_records_its_origin_and_usage_too() -> None:
    origin = ModelInvocationDescriptor("acme", "chat", "large")
    partial = assemble(stream(usage(output_tokens=5), text("a")), invocation=origin).partial
    assert partial is not None
    assert partial.meta is not None
    assert (partial.meta.invocation, partial.meta.usage) == (origin, TokenUsage(output_tokens=5))
    assert partial.meta.finish_reason is None


def test_an_error_yields_the_partial_and_no_message() -> None:
    error = ErrorDelta(RUN, 2, STAMP, ErrorCode.OVERLOADED, "too busy", retry_after=3.0)
    assembly = assemble([*stream(text("a")), error])
    assert (assembly.message, assembly.error, assembly.finish_reason) == (None, error, None)
    assert plain_parts(assembly.partial) == [("text", "a", None)]


def test_an_error_before_the_start_leaves_no_partial() -> None:
    error = ErrorDelta(RUN, 0, STAMP, ErrorCode.AUTHENTICATION, "no key")
    assert assemble([error]) == Assembly(error=error)


def test_parse_failures_are_listed_in_the_order_of_the_calls() -> None:
    message = assembled(
        *(opened(call) for call in ("c1", "c2", "c3")),
        *(args(raw, call) for call, raw in (("c3", "nonsense"), ("c2", "{}"), ("c1", "{"))),
        *(ended(call) for call in ("c3", "c2", "c1")),
    )
    assert message.meta is not None
    assert message.meta.parse_failures == ("c1", "c3")


# Arguments: what the model wrote, or the reason why it is nothing.


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")])
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.TOOL_CALLS])
def test_no_argument_text_is_an_empty_object_in_an_answer_that_finished_normally(
    reason: FinishReason, pieces: tuple[str, ...]
) -> None:
    call = call_with(*pieces, reason=reason)
    assert (call.arguments, call.raw_args_text) == ({}, "")


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (FinishReason.LENGTH, "the answer reached its length limit before any argument was written"),
        (FinishReason.CONTENT_FILTER, "the answer was stopped by its provider before any argument was written"),
        (FinishReason.REFUSAL, "the answer was stopped by its provider before any argument was written"),
        (FinishReason.OTHER, "the answer has no argument text and ended for a reason that is not known to be good"),
    ],
)
def test_no_argument_text_is_a_parse_error_that_says_why_in_an_answer_that_did_not_finish_normally(
    reason: FinishReason, why: str
) -> None:
    call = call_with(reason=reason)
    assert (call.arguments, call.parse_error) == (None, why)


def test_arguments_that_arrived_whole_are_kept_in_an_answer_that_reached_its_length() -> None:
    assert call_with('{"a": 1}', reason=FinishReason.LENGTH).arguments == {"a": 1}


@pytest.mark.parametrize(
    "raw", [" ", "{", '{"a": 1', '{"a": 1}}', "{'a': 1}", "null", "undefined", "\ufeff{}", "\ufffd"]
)
def test_arguments_that_do_not_parse_are_never_an_empty_object(raw: str) -> None:
    call = call_with(raw)
    assert call.arguments is None
    assert call.raw_args_text == raw


@pytest.mark.parametrize("pieces", [(), ("{}",), ('{"a": 1}',), ('{"a": 1',)])
def test_an_unfinished_call_has_no_arguments_even_where_its_text_parses(pieces: tuple[str, ...]) -> None:
    partial = partial_of(opened(), *map(args, pieces))
    (call,) = partial.tool_calls
    assert call.arguments is None
    assert call.parse_error
    assert call.raw_args_text == "".join(pieces)
    assert partial.meta is not None
    assert partial.meta.parse_failures == ("c1",)


def test_a_call_that_had_ended_before_the_cut_keeps_its_arguments() -> None:
    (call,) = partial_of(opened(), args('{"a": 1}'), ended(), text("and")).tool_calls
    assert call.arguments == {"a": 1}


def test_a_call_without_argument_text_in_a_cut_stream_has_no_arguments() -> None:
    (call,) = partial_of(opened(), ended()).tool_calls
    assert call.arguments is None
    assert call.parse_error == "the stream ended before the call's arguments were whole"


# Hostile argument texts.


def test_arguments_of_ten_megabytes_arrive_whole() -> None:
    content = "x" * TEN_MEGABYTES
    raw = json.dumps({"content": content})
    call = call_with(*(raw[at : at + 1_000] for at in range(0, len(raw), 1_000)))
    assert call.arguments == {"content": content}


def test_arguments_of_ten_megabytes_that_were_cut_are_a_parse_failure() -> None:
    raw = json.dumps({"content": "x" * TEN_MEGABYTES})[:-1]
    call = call_with(raw)
    assert call.arguments is None
    assert call.raw_args_text == raw
    assert len(call.parse_error or "") < 500


@pytest.mark.parametrize(
    "raw",
    [
        '{"a":' * DEEP + "1" + "}" * DEEP,
        '{"a":' + "[" * DEEP + "]" * DEEP + "}",
        '{"a":' * DEEP,
        "[" * DEEP,
        '{"\\ud800":' * DEEP + "1" + "}" * DEEP,
        '{"\ud800":' * DEEP + "1" + "}" * DEEP,
    ],
    ids=["objects", "arrays", "open objects", "open arrays", "escaped surrogates", "raw surrogates"],
)
def test_arguments_nested_too_deep_are_a_parse_failure(raw: str) -> None:
    call = call_with(raw)
    assert call.arguments is None
    assert re.search("deep|more than 20,000 values", call.parse_error or "")


@pytest.mark.parametrize("depth", [100, 190, 195, 196, 197, 198, 199, 200, 201])
def test_arguments_as_deep_as_they_are_accepted_survive_json(depth: int) -> None:
    message = assembled(opened(), args('{"a":' * depth + "1" + "}" * depth), ended())
    assert from_json(to_json(message)) == message


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_five_thousand_digits_is_a_parse_failure(sign: str) -> None:
    call = call_with('{"n": ' + sign + "9" * 5_000 + "}")
    assert call.arguments is None
    assert len(call.parse_error or "") < 500


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30 + 1, 10**4_000 + 1])
def test_a_large_integer_is_exact(number: int) -> None:
    assert call_with(f'{{"n": {number}}}').arguments == {"n": number}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "nan", "1e400", "-1e400", "0x10", "01", "+1", ".5"])
@pytest.mark.parametrize("beside", ["", ', "s": "\\ud800"', ', "s": "\ud800"'], ids=["plain", "escaped", "raw"])
def test_a_number_that_json_does_not_have_is_a_parse_failure(number: str, beside: str) -> None:
    assert call_with(f'{{"n": {number}{beside}}}').arguments is None


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 1, "\\u0061": 2}', {"a": 2}),
        ('{"b": [{"a": 1, "a": 2}]}', {"b": [{"a": 2}]}),
        ('{"a": 1, "a": 2, "s": "\\ud800"}', {"a": 2, "s": "\ufffd"}),
    ],
)
def test_duplicate_keys_keep_the_last_value_with_a_warning(raw: str, arguments: Data) -> None:
    call = call_with(raw)
    assert call.arguments == arguments
    assert "'a'" in (call.parse_warning or "")


def test_the_same_key_in_different_objects_is_no_duplicate() -> None:
    assert call_with('{"a": {"a": 1}, "b": {"a": 2}}').parse_warning is None


def test_keys_that_become_the_same_by_repair_are_told_as_duplicates() -> None:
    call = call_with('{"\\ud800": 1, "\\ud801": 2}')
    assert call.arguments is None or len(call.arguments) == 2 or "duplicate" in (call.parse_warning or "")


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "\\uD83Dx", "\\ude00\\ud83d"])
def test_a_lone_surrogate_escape_becomes_the_replacement_character_with_a_warning(escape: str) -> None:
    call = call_with('{"a": "' + escape + '"}')
    assert call.arguments is not None
    assert "\ufffd" in call.arguments["a"]
    assert "surrogate" in (call.parse_warning or "")


def test_a_lone_surrogate_in_the_text_becomes_the_replacement_character() -> None:
    call = call_with('{"a\ud800": "\udc00"}')
    assert (call.arguments, call.raw_args_text) == ({"a\ufffd": "\ufffd"}, '{"a\ufffd": "\ufffd"}')


@pytest.mark.parametrize(
    "pieces", [('{"a": "\ud83d', '\ude00"}'), ('{"a": "\\ud83d', '\\ude00"}'), ('{"a": "\\ud8', '3d\\ude00"}')]
)
def test_a_surrogate_pair_cut_between_two_argument_pieces_is_joined_without_a_warning(pieces: tuple[str, ...]) -> None:
    call = call_with(*pieces)
    assert (call.arguments, call.parse_warning) == ({"a": "\N{GRINNING FACE}"}, None)


def test_an_escaped_nul_is_kept() -> None:
    assert call_with('{"a": "\\u0000"}').arguments == {"a": "\0"}


@pytest.mark.parametrize("raw", ['{"a": "\0"}', '{"a": 1}\0', "\0", '{"a": "\n"}'])
def test_a_raw_control_character_is_a_parse_failure(raw: str) -> None:
    assert call_with(raw).arguments is None


@pytest.mark.parametrize(
    ("raw", "told"),
    [("[]", "array"), ('"{}"', "string"), ("5", "number"), ("1.5", "number"), ("true", "boolean"), ("null", "null")],
)
def test_valid_json_that_is_no_object_is_a_parse_failure_that_says_what_it_is(raw: str, told: str) -> None:
    call = call_with(raw)
    assert call.arguments is None
    assert told in (call.parse_error or "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@unhurried
@given(st.dictionaries(st.text(), json_values, max_size=4), st.booleans())
def test_an_object_written_as_json_is_read_back_exactly(value: Data, ascii_only: bool) -> None:
    call = call_with(json.dumps(value, ensure_ascii=ascii_only))
    assert (call.arguments, call.parse_warning) == (value, None)


@unhurried
@given(st.text(st.characters() | st.sampled_from('{}[]:,"\\u0d8e1.-+ \n\0\ud83d\ude00'), max_size=30))
@example('{"\\ud800\\"": "\ud800"}')
def test_any_argument_text_at_all_is_read_as_the_standard_library_does_or_refused(raw: str) -> None:
    call = call_with('{"a":' + raw + "}")
    if call.parse_warning is None and call.arguments is not None:
        assert call.arguments == json.loads(call.raw_args_text)


def test_an_assembly_says_when_the_first_piece_of_the_answer_came() -> None:
    later = [STAMP + timedelta(seconds=number) for number in range(10)]
    deltas = stream(text(""), thinking("Well."), text("Yes."), done())
    timed = [msgspec.structs.replace(delta, timestamp=when) for delta, when in zip(deltas, later, strict=False)]
    assert assemble(timed).first_at == later[2]  # not the start, nor a piece that says nothing
    assert assemble(timed[:2]).first_at is None
