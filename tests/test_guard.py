"""Whatever a source gives, the guard makes a legal stream of it that ends in exactly one terminal.

The facts that hold for every way to use the guard run over all three: by hand, over an iterable, over an async source.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import ErrorCode, InvalidValue, Message, MessageDelta, ModelError, Text, TextDelta, to_json
from dragoman.delta import ErrorDelta, StartDelta, ThinkingDelta, ToolCallArgsDelta, UnknownDelta
from dragoman.models import guard_stream
from dragoman.stream import Guard, StreamContract, assemble, guard_deltas
from tests.oracle import (
    RUN,
    STAMP,
    allows,
    allows_as_whole,
    any_streams,
    delta_of,
    loose_deltas,
    open_streams,
    renumbered,
    unhurried,
    whole_streams,
)

LATER = datetime(2025, 1, 1, 12, tzinfo=UTC)
SECRET = "-".join(["prompt", "of", "the", "user"])

Drive: TypeAlias = Callable[[Iterable[Any]], list[MessageDelta]]


def by_hand(source: Iterable[Any]) -> list[MessageDelta]:
    """Feed a guard everything, even after it has finished."""
    guard = Guard()
    offered: list[Any] = []
    cause: Exception | None = None
    try:
        offered.extend(source)
    except Exception as error:  # noqa: BLE001  # whatever the source does, as in the ready-made wrappers
        cause = error
    passed = [*(guard.feed(delta) for delta in offered), guard.close(cause)]
    return [delta for delta in passed if delta is not None]


def in_batches(source: Iterable[Any]) -> list[MessageDelta]:
    """Feed a guard in batches of one to three, as a network read gives them."""
    guard = Guard()
    offered: list[Any] = []
    cause: Exception | None = None
    try:
        offered.extend(source)
    except Exception as error:  # noqa: BLE001  # as above
        cause = error
    passed: list[MessageDelta] = []
    size = 1
    while offered:
        passed += guard.feed_all(offered[:size])
        offered, size = offered[size:], size % 3 + 1
    closing = guard.close(cause)
    return passed if closing is None else [*passed, closing]


def over_iterable(source: Iterable[Any]) -> list[MessageDelta]:
    return list(guard_deltas(source))


def over_async_source(source: Iterable[Any]) -> list[MessageDelta]:
    async def collect() -> list[MessageDelta]:
        return [delta async for delta in guard_stream(asynchronous(source))]

    return asyncio.run(collect())


async def asynchronous(source: Iterable[Any]) -> AsyncIterator[Any]:
    for delta in source:
        yield delta


def raising(deltas: Iterable[Any], error: BaseException) -> Iterator[Any]:
    yield from deltas
    raise error


def closing_error(deltas: list[MessageDelta]) -> ErrorDelta:
    assert allows_as_whole(deltas)
    error = deltas[-1]
    assert isinstance(error, ErrorDelta)
    return error


def sample_stream() -> list[MessageDelta]:
    """One legal stream with every kind in it."""
    kinds = ("start", "thinking", "text", "tool_call_start", "tool_call_args", "tool_call_end")
    return renumbered([delta_of(kind, 0) for kind in (*kinds, "image", "provider_item", "usage", "done")])


EVERY_WAY: tuple[Drive, ...] = (by_hand, in_batches, over_iterable, over_async_source)
every_way = pytest.mark.parametrize("drive", EVERY_WAY)

not_deltas: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        0,
        "text",
        b"",
        {},
        {"kind": "start", "seq": 0},
        [],
        object(),
        Text("a"),
        Message.user("a"),
        StartDelta,
        KeyError,
    ]
)
unknown_deltas = st.builds(
    UnknownDelta, st.just(RUN), st.integers(0, 12), st.just(STAMP), st.just("hologram"), st.just({})
)
foreign_errors = st.sampled_from([ValueError, KeyError, RuntimeError, StopIteration, OSError, RecursionError])


@unhurried
@given(any_streams)
def test_any_order_of_deltas_comes_out_legal_and_whole(source: list[MessageDelta]) -> None:
    for drive in EVERY_WAY:
        assert allows_as_whole(drive(source))


@unhurried
@given(st.lists(loose_deltas | unknown_deltas | not_deltas, max_size=8), st.booleans())
def test_objects_that_are_no_deltas_come_out_as_a_legal_end(source: list[Any], opened: bool) -> None:
    for drive in EVERY_WAY:
        assert allows_as_whole(drive([delta_of("start", 0), *source] if opened else source))


@unhurried
@given(any_streams, foreign_errors)
def test_a_source_that_raises_comes_out_legal_and_whole(source: list[MessageDelta], error: type[Exception]) -> None:
    for drive in EVERY_WAY:
        assert allows_as_whole(drive(raising(source, error(SECRET))))


@unhurried
@given(whole_streams())
def test_a_legal_stream_passes_unchanged(source: list[MessageDelta]) -> None:
    for drive in EVERY_WAY:
        passed = drive(source)
        assert len(passed) == len(source)
        assert all(got is offered for got, offered in zip(passed, source, strict=True))


@unhurried
@given(whole_streams(), st.lists(loose_deltas | not_deltas, max_size=4))
def test_nothing_passes_after_a_terminal(source: list[MessageDelta], rest: list[Any]) -> None:
    for drive in EVERY_WAY:
        assert drive([*source, *rest]) == source


@unhurried
@given(any_streams)
def test_everything_before_the_first_violation_passes(source: list[MessageDelta]) -> None:
    legal = next(length for length in range(len(source), -1, -1) if allows(source[:length]))
    for drive in EVERY_WAY:
        assert drive(source)[:legal] == source[:legal]


@unhurried
@given(open_streams())
def test_a_stream_that_stops_early_ends_in_one_truncation_error(source: list[MessageDelta]) -> None:
    for drive in EVERY_WAY:
        passed = drive(source)
        assert passed[:-1] == source
        assert closing_error(passed).error_code is ErrorCode.STREAM_TRUNCATED


@every_way
def test_a_stream_cut_at_any_position_ends_in_one_truncation_error(drive: Drive) -> None:
    source = sample_stream()
    for position in range(len(source)):
        passed = drive(source[:position])
        assert passed[:-1] == source[:position]
        error = closing_error(passed)
        assert (error.error_code, error.retryable) == (ErrorCode.STREAM_TRUNCATED, True)


@every_way
def test_a_violation_ends_the_stream_with_its_reason(drive: Drive) -> None:
    error = closing_error(drive([delta_of("start", 0), delta_of("tool_call_args", 1, "c9"), delta_of("done", 2)]))
    assert (error.error_code, error.retryable) == (ErrorCode.PROTOCOL_VIOLATION, False)
    assert "'c9'" in (error.message or "")


@every_way
def test_an_object_that_is_no_delta_is_named_by_its_type_alone(drive: Drive) -> None:
    error = closing_error(drive([delta_of("start", 0), {"api": SECRET}]))
    assert error.error_code is ErrorCode.PROTOCOL_VIOLATION
    assert "dict" in (error.message or "")
    assert SECRET not in repr(error)


@every_way
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "error", "seq": 1},
        {"kind": "done", "seq": 1},
        {"kind": "text", "seq": 1},
        {"kind": "text", "seq": 1.5, "run_id": RUN, "timestamp": STAMP},
        {"kind": "text", "seq": 1, "run_id": RUN, "timestamp": STAMP},
        {"kind": "tool_call_start", "seq": 1, "run_id": RUN, "timestamp": STAMP, "tool_call_id": []},
    ],
    ids=["error", "done", "text", "fractional seq", "no payload", "unhashable call id"],
)
def test_an_object_that_only_looks_like_a_delta_does_not_pass(drive: Drive, fields: dict[str, Any]) -> None:
    passed = drive([delta_of("start", 0), SimpleNamespace(**fields)])
    assert [type(delta) for delta in passed] == [StartDelta, ErrorDelta]
    assert closing_error(passed).error_code is ErrorCode.PROTOCOL_VIOLATION


@every_way
@pytest.mark.parametrize(
    "build",
    [
        lambda run_id: TextDelta(run_id, 2, STAMP, "a"),
        lambda run_id: ThinkingDelta(run_id, 2, STAMP, "a"),
        lambda run_id: ToolCallArgsDelta(run_id, 2, STAMP, "c1", "{}"),
    ],
    ids=["text", "thinking", "tool_call_args"],
)
def test_a_run_id_that_is_no_text_cannot_break_the_closing_error(
    drive: Drive, build: Callable[[Any], MessageDelta]
) -> None:
    try:
        delta = build(5)
    except InvalidValue:
        return  # refused before any guard could see it
    assert allows_as_whole(drive([delta_of("start", 0), delta_of("tool_call_start", 1), delta]))


@every_way
@pytest.mark.parametrize("position", [0, 1, 3])
def test_an_error_of_ours_keeps_its_code_and_facts(drive: Drive, position: int) -> None:
    cause = ModelError(
        "slow down",
        code=ErrorCode.RATE_LIMITED,
        retry_after=2.5,
        request_id="request-7",
        provider_message="too many requests",
    )
    source = sample_stream()[:position]
    passed = drive(raising(source, cause))
    assert passed[:-1] == source
    error = closing_error(passed)
    assert (error.error_code, error.message, error.retryable) == (ErrorCode.RATE_LIMITED, "slow down", True)
    assert (error.retry_after, error.request_id) == (2.5, "request-7")
    assert error.provider_message == "too many requests"


@every_way
def test_an_error_that_overrides_whether_to_retry_is_believed(drive: Drive) -> None:
    cause = ModelError("no", code=ErrorCode.OVERLOADED, retryable=False)
    assert closing_error(drive(raising([], cause))).retryable is False


@every_way
def test_the_text_of_a_foreign_exception_stays_out_of_the_error(drive: Drive) -> None:
    error = closing_error(drive(raising([delta_of("start", 0)], ValueError(SECRET))))
    assert error.error_code is ErrorCode.INTERNAL
    assert "ValueError" in (error.message or "")
    assert SECRET not in repr(error)
    assert SECRET.encode() not in to_json(error)


@every_way
def test_what_a_source_raises_after_its_terminal_is_of_no_account(drive: Drive) -> None:
    source = sample_stream()
    assert drive(raising(source, ValueError(SECRET))) == source


@pytest.mark.parametrize("drive", [over_iterable, over_async_source])
@pytest.mark.parametrize("ending", ["done", "start"], ids=["terminal", "violation"])
def test_a_source_is_asked_for_nothing_after_the_end(drive: Drive, ending: str) -> None:
    asked_again = []

    def source() -> Iterator[MessageDelta]:
        yield from (delta_of("start", 0), delta_of(ending, 1))
        asked_again.append(True)
        yield delta_of("text", 2)

    assert allows_as_whole(drive(source()))
    assert not asked_again


@every_way
def test_a_source_that_cannot_be_iterated_is_an_error_delta(drive: Drive) -> None:
    class Broken:
        def __iter__(self) -> Iterator[Any]:
            raise OSError(SECRET)

    assert closing_error(drive(Broken())).error_code is ErrorCode.INTERNAL


@every_way
def test_the_closing_error_continues_the_stream_it_closes(drive: Drive) -> None:
    error = closing_error(drive([StartDelta("run-9", 41, STAMP)]))
    assert error.run_id == "run-9"
    assert error.seq > 41


def test_the_closing_error_of_a_silent_source_has_the_run_id_given() -> None:
    (error,) = guard_deltas([], run_id="run-9")
    assert error.run_id == "run-9"


def test_a_violation_is_told_with_the_name_of_its_source() -> None:
    (error,) = guard_deltas([delta_of("text", 0)], source="acme:large")
    assert "acme:large" in (closing_error([error]).message or "")


def test_a_guard_that_is_told_no_names_has_an_empty_run_and_calls_its_source_a_stream() -> None:
    (error,) = guard_deltas([delta_of("text", 0)])
    assert (closing_error([error]).message or "").startswith("stream: text in state idle")
    assert error.run_id == ""
    guard = Guard()
    refused = guard.feed(delta_of("text", 0))
    assert isinstance(refused, ErrorDelta)
    assert (refused.message or "").startswith("stream: text in state idle")
    closed = Guard().close()
    assert closed is not None
    assert closed.run_id == ""


def test_a_guard_counts_what_came_after_the_end() -> None:
    guard = Guard()
    for delta in (delta_of("error", 0), delta_of("text", 1), delta_of("done", 2)):
        guard.feed(delta)
    assert (guard.finished, guard.dropped) == (True, 2)


def test_a_guard_closes_once() -> None:
    guard = Guard()
    assert guard.close() is not None
    assert guard.close() is None
    assert guard.close(ValueError()) is None
    assert guard.feed(delta_of("start", 0)) is None


def test_the_closing_error_has_the_time_that_the_caller_says() -> None:
    guard = Guard()
    guard.feed(delta_of("start", 0))
    error = guard.close(now=LATER)
    assert error is not None
    assert error.timestamp == LATER


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_is_no_exception_of_the_source_propagates(interrupt: type[BaseException]) -> None:
    passed: list[MessageDelta] = []
    with pytest.raises(interrupt):
        passed.extend(guard_deltas(raising([delta_of("start", 0)], interrupt())))
    assert passed == [delta_of("start", 0)]


def test_closing_the_guarded_iterator_early_closes_its_source_and_yields_no_more() -> None:
    closed = []

    def source() -> Iterator[MessageDelta]:
        try:
            yield from sample_stream()
        finally:
            closed.append(True)

    guarded = guard_deltas(source())
    assert isinstance(guarded, Generator)
    assert next(guarded) == delta_of("start", 0)
    guarded.close()
    assert list(guarded) == []
    assert closed == [True]


class Source:
    """An async source that notes when it is closed; an exception in its list is raised, an event is waited for."""

    def __init__(self, *steps: MessageDelta | BaseException | asyncio.Event, failing_close: bool = False) -> None:
        self.steps = iter(steps)
        self.waiting = asyncio.Event()
        self.failing_close = failing_close
        self.closed = 0

    def __aiter__(self) -> "Source":
        return self

    async def __anext__(self) -> MessageDelta:
        step = next(self.steps, None)
        if step is None:
            raise StopAsyncIteration
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, asyncio.Event):
            self.waiting.set()
            await step.wait()
            raise StopAsyncIteration
        return step

    async def aclose(self) -> None:
        self.closed += 1
        if self.failing_close:
            raise OSError(SECRET)


async def collect(source: Source, into: list[MessageDelta]) -> None:
    async for delta in guard_stream(source):
        into.append(delta)  # noqa: PERF401  # what had passed before an exception is kept


@pytest.mark.parametrize(
    "steps",
    [
        [delta_of("start", 0)],
        [delta_of("start", 0), delta_of("done", 1), delta_of("text", 2)],
        [delta_of("text", 0), delta_of("text", 1)],
        [delta_of("start", 0), ValueError(SECRET)],
        [ModelError("no")],
    ],
    ids=["stopped early", "done before its end", "violation", "foreign exception", "error of ours"],
)
def test_the_async_source_is_closed_however_its_stream_ends(steps: list[MessageDelta | BaseException]) -> None:
    source = Source(*steps)
    passed: list[MessageDelta] = []
    asyncio.run(collect(source, passed))
    assert allows_as_whole(passed)
    assert source.closed == 1


@pytest.mark.parametrize(
    "steps",
    [
        [delta_of("start", 0), delta_of("done", 1)],
        [delta_of("start", 0)],
        [delta_of("start", 0), ValueError(SECRET)],
    ],
    ids=["done", "stopped early", "foreign exception"],
)
def test_an_async_source_that_fails_to_close_raises_nothing_out_of_the_stream(
    steps: list[MessageDelta | BaseException],
) -> None:
    passed: list[MessageDelta] = []
    asyncio.run(collect(Source(*steps, failing_close=True), passed))
    assert allows_as_whole(passed)


def test_a_source_that_fails_to_close_does_not_hide_a_cancellation() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(collect(Source(asyncio.CancelledError(), failing_close=True), []))


def test_a_cancelled_error_out_of_the_source_propagates_and_the_source_is_closed() -> None:
    source = Source(delta_of("start", 0), asyncio.CancelledError())
    passed: list[MessageDelta] = []
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(collect(source, passed))
    assert passed == [delta_of("start", 0)]
    assert source.closed == 1


def test_cancelling_the_reader_propagates_and_the_source_is_closed() -> None:
    passed: list[MessageDelta] = []

    async def scenario() -> Source:
        source = Source(delta_of("start", 0), asyncio.Event())
        reader = asyncio.create_task(collect(source, passed))
        await source.waiting.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        return source

    assert asyncio.run(scenario()).closed == 1
    assert passed == [delta_of("start", 0)]


def test_leaving_an_async_stream_early_closes_its_source_and_yields_no_more() -> None:
    async def scenario() -> Source:
        source = Source(*sample_stream())
        guarded = guard_stream(source)
        assert isinstance(guarded, AsyncGenerator)
        assert await anext(guarded) == delta_of("start", 0)
        await guarded.aclose()
        assert [delta async for delta in guarded] == []
        return source

    assert asyncio.run(scenario()).closed == 1


def test_an_async_iterator_without_a_way_to_close_it_is_read_all_the_same() -> None:
    class Plain:
        def __init__(self) -> None:
            self.deltas = iter(sample_stream())

        def __aiter__(self) -> "Plain":
            return self

        async def __anext__(self) -> MessageDelta:
            for delta in self.deltas:
                return delta
            raise StopAsyncIteration

    async def scenario() -> list[MessageDelta]:
        return [delta async for delta in guard_stream(Plain())]

    assert asyncio.run(scenario()) == sample_stream()


def test_the_closing_error_of_an_async_stream_has_the_time_of_the_clock_and_its_name() -> None:
    async def scenario() -> list[MessageDelta]:
        stream = guard_stream(
            asynchronous([delta_of("text", 0)]), run_id="run-9", name="acme:large", clock=lambda: LATER
        )
        cut = guard_stream(asynchronous([]), run_id="run-9", clock=lambda: LATER)
        return [delta async for delta in stream] + [delta async for delta in cut]

    violation, truncation = asyncio.run(scenario())
    assert "acme:large" in (closing_error([violation]).message or "")
    assert violation.run_id == truncation.run_id == "run-9"
    assert truncation.timestamp == LATER


def test_a_foreign_exception_is_logged_by_its_type_and_place_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        over_async_source(raising([delta_of("start", 0)], ValueError(SECRET)))
    assert [record.levelname for record in caplog.records if record.name == "dragoman"] == ["ERROR"]
    assert "ValueError" in caplog.text
    assert "in raising" in caplog.text
    assert SECRET not in caplog.text


def test_an_error_of_ours_is_no_bug_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        over_async_source(raising([], ModelError("slow down", code=ErrorCode.RATE_LIMITED)))
    assert not [record for record in caplog.records if record.name == "dragoman"]


@unhurried
@given(any_streams, st.integers(1, 4))
def test_a_contract_takes_a_batch_as_it_takes_one_delta_after_another(source: list[MessageDelta], size: int) -> None:
    single, batched = StreamContract(), StreamContract()
    legal = next(length for length in range(len(source), -1, -1) if allows(source[:length]))
    for delta in source[:legal]:
        single.check(delta)
    taken = 0
    while taken < len(source):
        batch = source[taken : taken + size]
        count = batched.take(batch)
        taken += count
        if count < len(batch):
            break
    assert taken == legal
    assert (batched.state, batched.last_seq) == (single.state, single.last_seq)


def test_the_last_possible_seq_leaves_room_for_an_end() -> None:
    assert [delta.kind for delta in guard_deltas([delta_of("start", 2**63 - 1)])] == ["start", "error"]


def test_an_empty_piece_of_arguments_does_not_split_a_text() -> None:
    kinds = ("start", "tool_call_start", "text", "tool_call_args", "text", "tool_call_end", "done")
    deltas = [delta_of(kind, seq) for seq, kind in enumerate(kinds)]
    deltas[3] = msgspec.structs.replace(deltas[3], args_text_delta="")
    message = assemble(deltas).message
    assert message is not None
    assert [part.kind for part in message.parts] == ["tool_call", "text"]
