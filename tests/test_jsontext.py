"""JSON text that is hostile until parsed: a value, a clear refusal or a recorded failure, and nothing else."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import InvalidValue, ToolCall, UnreadableData
from dragoman._jsontext import (
    DOCUMENT_DEPTH,
    MAX_DEPTH,
    decode_json,
    encode_json,
    join_surrogates,
    parse_arguments,
    require_json_object,
)
from dragoman.testing import strategies

CONTENT = "SECRET-what-somebody-said"
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
any_text = st.text(st.characters(), max_size=12)  # lone surrogates included


def nested(depth: int, inside: str = "1") -> str:
    return '{"a":' * depth + inside + "}" * depth


def joined(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---------------------------------------------------------------- arguments


@given(strategies.json_objects(), st.sampled_from([None, 2]), st.booleans())
@unhurried
def test_an_object_is_read_as_the_standard_library_reads_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    parsed = parse_arguments(raw)
    assert parsed.arguments == json.loads(raw)
    assert repr(parsed.arguments) == repr(json.loads(raw))
    assert (parsed.error, parsed.warning) == (None, None)


@given(any_text | st.text("{}[]\":,\\u dD8eE+-.019tfn'"))
@settings(unhurried, max_examples=300)
def test_any_text_gives_arguments_or_an_error_and_never_both(raw: str) -> None:
    parsed = parse_arguments(raw)
    assert (parsed.arguments is None) == (parsed.error is not None)


@given(strategies.json_objects().map(lambda value: encode_json(value).decode()), st.data())
@unhurried
def test_a_text_cut_short_is_never_an_object(raw: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw) - 1))
    assert parse_arguments(raw[:cut]).arguments is None


BROKEN = {
    "nothing": "",
    "blank": " \n\t",
    "cut short": '{"a": 1',
    "two objects": "{}{}",
    "text after it": f'{{"a":1}} {CONTENT}',
    "single quotes": f"{{'a': '{CONTENT}'}}",
    "a trailing comma": '{"a":1,}',
    "a comment": '{"a":1 /* one */}',
    "a byte order mark": '\ufeff{"a":1}',
    "a NUL outside text": '{"a":\x001}',
    "a raw NUL": '{"a":"\x00"}',
    "a raw newline": '{"a":"\n"}',
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":Infinity}',
    "-Infinity behind a lone surrogate": r'{"b":"\ud800","a":-Infinity}',
    "a number out of range": '{"a":1e999}',
    "a number out of range behind a lone surrogate": r'{"b":"\ud800","a":-1e999}',
    "an integer of 5,000 digits": '{"a":' + "9" * 5_000 + "}",
    "5,000 digits behind a lone surrogate": r'{"b":"\ud800","a":' + "9" * 5_000 + "}",
    "a leading zero": '{"a":01}',
    "a plus sign": '{"a":+1}',
    "hexadecimal": '{"a":0x10}',
    "100,000 objects": nested(100_000),
    "100,000 arrays": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "100,000 arrays never closed": '{"a":' + "[" * 100_000,
    "100,000 arrays behind a lone surrogate": r'{"b":"\ud800","a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "one level too many": nested(MAX_DEPTH + 1),
    "one level too many behind a lone surrogate": nested(MAX_DEPTH + 1, r'"\ud800"'),
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_broken_arguments_are_an_error_that_quotes_nothing(raw: str) -> None:
    parsed = parse_arguments(raw)
    assert parsed.arguments is None
    assert parsed.error
    assert len(parsed.error) < 200
    assert "SECRET" not in parsed.error


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_a_call_with_broken_arguments_keeps_the_raw_text_and_never_has_an_empty_object(raw: str) -> None:
    call = ToolCall.parse("c", "f", raw)
    assert call.arguments is None
    assert call.parse_error
    assert call.raw_args_text == raw


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ("[]", "an array"),
        (f'["{CONTENT}"]', "an array"),
        (f'"{CONTENT}"', "a string"),
        ("5", "a number"),
        ("5.5", "a number"),
        ("true", "a boolean"),
        ("null", "null"),
    ],
)
def test_valid_json_that_is_no_object_is_an_error_that_says_what_it_is(raw: str, what: str) -> None:
    parsed = parse_arguments(raw)
    assert parsed.arguments is None
    assert parsed.error is not None
    assert what in parsed.error
    assert "SECRET" not in parsed.error


def test_ten_megabytes_of_arguments_are_read() -> None:
    text = "x" * 10_000_000
    assert parse_arguments(f'{{"a":"{text}"}}').arguments == {"a": text}


def test_ten_megabytes_of_arguments_cut_short_are_an_error() -> None:
    assert parse_arguments('{"a":"' + "x" * 10_000_000).error


@pytest.mark.parametrize(
    ("raw", "arguments", "names"),
    [
        ('{"a":1,"a":2}', {"a": 2}, ["'a'"]),
        ('{"a":{"b":1,"b":2}}', {"a": {"b": 2}}, ["'b'"]),
        ('{"a":[{"b":1,"b":2}],"c":1,"c":1}', {"a": [{"b": 2}], "c": 1}, ["'b'", "'c'"]),
        (r'{"a":1,"\u0061":2}', {"a": 2}, ["'a'"]),
        (r'{"\ud800":1,"\udfff":2}', {"\ufffd": 2}, ["'\ufffd'"]),
    ],
)
def test_a_duplicate_key_keeps_the_last_value_with_a_warning(raw: str, arguments: Any, names: list[str]) -> None:
    parsed = parse_arguments(raw)
    assert parsed.arguments == arguments
    assert parsed.warning is not None
    assert "duplicate keys" in parsed.warning
    assert all(name in parsed.warning for name in names)


def test_the_same_key_in_two_objects_is_no_duplicate() -> None:
    assert parse_arguments('{"a":{"k":1},"b":{"k":2},"c":[{"k":3},{"k":4}]}').warning is None


def test_a_warning_stays_short_however_long_and_many_the_keys() -> None:
    pairs = [f'"{number}{"k" * 100_000}":0' for number in range(10)] * 2
    warning = parse_arguments("{" + ",".join(pairs) + "}").warning
    assert warning is not None
    assert len(warning) < 1_000


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r'{"a":"\ud83d"}', "\ufffd"),
        (r'{"a":"\ude00\ud83d"}', "\ufffd\ufffd"),
        (r'{"a":"\uD83Dx\uDE00"}', "\ufffdx\ufffd"),
        ('{"a":"\ud83d"}', "\ufffd"),
    ],
)
def test_a_lone_surrogate_is_replaced_with_a_warning(raw: str, text: str) -> None:
    parsed = parse_arguments(raw)
    assert parsed.arguments == {"a": text}
    assert parsed.warning is not None
    assert "surrogate" in parsed.warning


def test_a_surrogate_pair_in_escapes_is_one_character_without_a_warning() -> None:
    parsed = parse_arguments(r'{"a":"\ud83d\ude00"}')
    assert (parsed.arguments, parsed.warning) == ({"a": "\N{GRINNING FACE}"}, None)


def test_an_escaped_backslash_before_a_u_is_no_surrogate() -> None:
    parsed = parse_arguments(r'{"a":"\\ud800"}')
    assert (parsed.arguments, parsed.warning) == ({"a": r"\ud800"}, None)


def test_an_escaped_nul_is_text() -> None:
    assert parse_arguments(r'{"a":"\u0000"}').arguments == {"a": "\x00"}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**30, -(10**4_000)])
def test_an_integer_beyond_64_bits_keeps_its_digits(number: int) -> None:
    parsed = parse_arguments(f'{{"a":{number}}}')
    assert parsed.arguments == {"a": number}
    assert type(parsed.arguments["a"]) is int


@pytest.mark.parametrize("inside", ["1", r'"\ud800"'], ids=["plain", "with a lone surrogate"])
def test_the_deepest_arguments_allowed_are_read(inside: str) -> None:
    assert parse_arguments(nested(MAX_DEPTH, inside)).arguments is not None


def on_a_deep_stack(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else on_a_deep_stack(frames - 1, call)


def frames_left() -> int:
    frame, used = sys._getframe(), 0
    while frame.f_back is not None:
        frame, used = frame.f_back, used + 1
    return sys.getrecursionlimit() - used


@pytest.mark.parametrize("inside", ["1", r'"\ud800"'], ids=["plain", "with a lone surrogate"])
def test_nothing_is_raised_however_deep_the_callers_stack_is(inside: str) -> None:
    raw = nested(MAX_DEPTH - 50, inside)
    for spare in range(20, 400, 1):
        parsed = on_a_deep_stack(frames_left() - spare, lambda: parse_arguments(raw))
        assert (parsed.arguments is None) == (parsed.error is not None)


# ---------------------------------------------------------------- documents


@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_a_document_may_be_a_little_deeper_than_what_it_holds(encode: Callable[[str], Any]) -> None:
    assert DOCUMENT_DEPTH > MAX_DEPTH
    assert decode_json(encode(nested(DOCUMENT_DEPTH)))
    with pytest.raises(UnreadableData, match="nested deeper"):
        decode_json(encode(nested(DOCUMENT_DEPTH + 1)))


@pytest.mark.parametrize("data", [b'{"a":"\xff"}', b"\xff\xfe{}", b'{"\xc3\x28":1}', b'{"a":"\xed\xa0\x80"}'])
def test_bytes_that_are_no_utf_8_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableData, match="UTF-8"):
        decode_json(data)


@given(st.binary(max_size=40) | st.text(max_size=40))
@settings(unhurried, max_examples=300)
def test_any_data_is_read_or_unreadable(data: bytes | str) -> None:
    try:
        decode_json(data)
    except UnreadableData:
        pass


@given(any_text)
@unhurried
def test_text_is_written_and_read_back_with_its_surrogates_joined(text: str) -> None:
    assert decode_json(encode_json([text])) == [joined(text)]
    assert decode_json(json.dumps([text])) == [joined(text)]


@given(strategies.json_objects(text=any_text))
@unhurried
def test_what_is_written_is_compact_and_in_the_order_given(value: Any) -> None:
    clean = json.loads(joined(json.dumps(value, ensure_ascii=False)))
    written = encode_json(value)
    assert b"\n" not in written
    assert list(json.loads(written)) == list(clean)
    assert json.loads(written) == clean


@given(any_text)
@unhurried
def test_joining_surrogates_is_what_utf_16_does(text: str) -> None:
    assert join_surrogates(text) == joined(text)


@given(any_text, any_text)
@unhurried
def test_halves_in_adjacent_pieces_are_joined_when_the_pieces_are(left: str, right: str) -> None:
    assert join_surrogates(left + "\ud83d" + "\ude00" + right).count("\N{GRINNING FACE}") >= 1
    assert join_surrogates(join_surrogates(left + right)) == join_surrogates(left + right)


# ---------------------------------------------------------------- objects that JSON can hold


@given(strategies.json_objects(text=any_text))
@unhurried
def test_every_json_object_is_accepted(value: Any) -> None:
    require_json_object(value, "field")


class SomeObject:
    """Nothing that JSON has."""

    def __repr__(self) -> str:
        return CONTENT


CYCLE: dict[str, Any] = {}
CYCLE["again"] = [CYCLE]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, "NoneType"),
        (CONTENT, "str"),
        ([CONTENT], "list"),
        ({CONTENT: {1: 2}}, "key"),
        ({CONTENT: {None: 2}}, "key"),
        ({CONTENT: float("nan")}, "nan"),
        ({CONTENT: [float("-inf")]}, "-inf"),
        ({CONTENT: SomeObject()}, "SomeObject"),
        ({CONTENT: {CONTENT}}, "set"),
        ({CONTENT: b"bytes"}, "bytes"),
        (CYCLE, f"deeper than {MAX_DEPTH}"),
        ({CONTENT: 10**5_000}, "digits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_json_cannot_hold_is_refused_by_field_and_without_its_content(value: Any, seen: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        require_json_object(value, "the field")
    assert "the field" in str(raised.value)
    assert seen in str(raised.value)
    assert "SECRET" not in str(raised.value)
