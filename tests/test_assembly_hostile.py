"""Assembly of streams that no honest provider sends: an error that says so, and what had arrived."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import ErrorCode, InvalidValue, MessageDelta
from dragoman.delta import ImageDelta, ProviderItemDelta
from dragoman.stream import assemble
from tests.oracle import RUN, STAMP, args, assembled, done, ended, opened, parts_of, plain_parts, stream, text

MANY_CALLS = 100_000


def test_a_call_id_opened_twice_is_an_error_with_what_had_arrived() -> None:
    assembly = assemble(stream(opened(), args('{"a": 1}'), opened(), args("{}"), ended(), done()))
    assert assembly.message is None
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.PROTOCOL_VIOLATION
    assert "'c1'" in (assembly.error.message or "")
    assert plain_parts(assembly.partial) == [("tool_call", "c1", "look_up", '{"a": 1}', None, None)]


def test_arguments_for_a_call_never_opened_are_an_error_with_what_had_arrived() -> None:
    assembly = assemble(stream(text("a"), args("{}", "c9"), done()))
    assert assembly.message is None
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.PROTOCOL_VIOLATION
    assert "'c9'" in (assembly.error.message or "")
    assert plain_parts(assembly.partial) == [("text", "a", None)]


@pytest.mark.slow  # many seconds
def test_many_calls_left_open_are_one_short_error_and_no_arguments() -> None:
    calls = [f"c{number}" for number in range(MANY_CALLS)]
    assembly = assemble(stream(*map(opened, calls), done()))
    assert assembly.message is None
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.PROTOCOL_VIOLATION
    assert len(assembly.error.message or "") < 500
    assert assembly.partial is not None
    assert [call.tool_call_id for call in assembly.partial.tool_calls] == calls
    assert all(call.arguments is None for call in assembly.partial.tool_calls)


@pytest.mark.slow  # many seconds
def test_many_calls_open_at_once_are_all_read_when_they_end() -> None:
    numbered = {f"c{number}": number for number in range(MANY_CALLS)}
    with_arguments = {call: number for call, number in numbered.items() if number % 10 == 0}
    message = assembled(
        *map(opened, numbered),
        *(args(f'{{"n": {number}}}', call) for call, number in with_arguments.items()),
        *map(ended, reversed(numbered)),
    )
    assert [call.arguments for call in message.tool_calls] == [
        {"n": number} if call in with_arguments else {} for call, number in numbered.items()
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda wrong: ImageDelta(RUN, 0, STAMP, url=""),
        lambda wrong: ImageDelta(RUN, 0, STAMP, url=wrong),
        lambda wrong: ImageDelta(RUN, 0, STAMP, mime_type="", url="https://example.com/a.png"),
        lambda wrong: ImageDelta(RUN, 0, STAMP, "image/png", wrong),
        lambda wrong: ImageDelta(RUN, 0, STAMP, url="https://example.com/a.png", provider_data=wrong),
        lambda wrong: ProviderItemDelta(RUN, 0, STAMP, "search", {}, text=wrong),
        lambda wrong: ProviderItemDelta(RUN, 0, STAMP, "search", {}, provider_data=wrong),
    ],
    ids=["empty url", "url", "empty type", "data", "image data", "item text", "item data"],
)
def test_whatever_a_picture_or_item_delta_takes_can_be_assembled(build: Callable[[Any], MessageDelta]) -> None:
    try:
        delta = build(5)
    except InvalidValue:
        return  # refused at once, before it could be in any stream
    assert len(parts_of(delta)) == 1
