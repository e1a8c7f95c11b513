"""Positions within answers, and the deltas that are made from a recorded message: pure values."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import ErrorCode, FinishReason, Image, Message, Text, Thinking, TokenUsage, ToolCall
from dragoman.delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    KnownDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from dragoman.errors import InvalidValue
from dragoman.history import (
    AgentState,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunFinishedEntry,
)
from dragoman.history.entries import RunStatus
from dragoman.store import AnswerDeltas, AnswerText, FollowedDelta, FollowedEntry, Position, deltas_after
from dragoman.stream import Assembler, assemble
from dragoman.testing import strategies

NOW = datetime(2026, 1, 2, tzinfo=UTC)
RUN = ("run", 0, NOW)

# A stream as a Chat provider sends it: both calls are closed at the end.
STREAM: list[KnownDelta] = [
    StartDelta(*RUN, "a-model", "request-1"),
    ThinkingDelta(*RUN, "Let me "),
    ThinkingDelta(*RUN, "see."),
    ThinkingDelta(*RUN, "", None, {"signature": "s"}),
    TextDelta(*RUN, "Fish "),
    TextDelta(*RUN, "日本語"),
    ToolCallStartDelta(*RUN, "call_0", "look"),
    ToolCallArgsDelta(*RUN, "call_0", '{"deep":'),
    ToolCallArgsDelta(*RUN, "call_0", "true}"),
    ToolCallStartDelta(*RUN, "call_1", "read"),
    ToolCallArgsDelta(*RUN, "call_1", '{"path": "👩‍👩‍👧"}'),
    ToolCallEndDelta(*RUN, "call_0"),
    ToolCallEndDelta(*RUN, "call_1"),
    ImageDelta(*RUN, "image/png", b"\x89PNG\r\n\x1a\n"),
    ProviderItemDelta(*RUN, "search", {"q": 1}, "a search"),
    TextDelta(*RUN, "And more."),
    UsageDelta(*RUN, TokenUsage(input_tokens=3, output_tokens=4)),
    DoneDelta(*RUN, FinishReason.TOOL_CALLS, "tool_calls"),
]


def numbered(deltas: list[KnownDelta]) -> list[KnownDelta]:

    return [replace(delta, seq=seq) for seq, delta in enumerate(deltas)]


def message_of(deltas: list[KnownDelta]) -> Message:
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(delta)
    message = assembler.result().message or assembler.result().partial
    assert message is not None
    return message


def positions_in(deltas: list[KnownDelta], serial: int = 0) -> list[Position]:
    """The position before each delta, and the one after the last."""
    found = [Position(serial)]
    for delta in deltas:
        found.append(found[-1].after_delta("abc", delta))
    return found


def texts(deltas: list[KnownDelta]) -> dict[str, str]:
    """What the deltas say, by kind and call, however it is cut."""
    said: dict[str, str] = {}
    for delta in deltas:
        if isinstance(delta, (TextDelta, ThinkingDelta)):
            said[delta.kind] = said.get(delta.kind, "") + delta.text_delta
        elif isinstance(delta, ToolCallArgsDelta):
            said[delta.tool_call_id] = said.get(delta.tool_call_id, "") + delta.args_text_delta
        elif not isinstance(delta, UsageDelta):
            key = f"{delta.kind} {getattr(delta, 'tool_call_id', '')}"
            said[key] = said.get(key, "") + "*"
    return said


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("position", [Position(), Position(7), *positions_in(STREAM, 12), Position(2**31 - 1)])
def test_a_position_is_read_from_its_text(position: Position) -> None:
    assert Position.of(str(position)) == position
    assert str(position).isascii()
    assert str(position).isprintable()
    assert len(str(position)) < 100


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1.2", "1.AB.1.1.1.1", "1.a.1.1.1.-2", "1.a.1.1.1", " 1", "1\n", "٣", "4294967296", None, 2.0],
)
def test_what_is_no_position_is_refused(text: Any) -> None:
    with pytest.raises(InvalidValue, match="position"):
        Position.of(text)


def test_an_entry_that_ends_the_answer_leaves_it_and_another_does_not() -> None:
    within = positions_in(STREAM, 4)[6]
    assert within.after_entry(recorded(ModelInputEntry.of("x"), 4).entry) == replace(within, serial=5)
    ended = recorded(RunFinishedEntry(RunStatus.COMPLETED, run_id="r"), 4).entry
    assert within.after_entry(ended) == Position(5)


# ---------------------------------------------------------------- the rest of an answer


def test_the_deltas_of_a_message_make_the_message() -> None:
    message = message_of(STREAM)
    made = deltas_after(message, Position())
    assert assemble(numbered(made)).message == message


@pytest.mark.parametrize("seen", range(len(STREAM) + 1))
def test_what_was_read_and_what_is_made_are_the_whole_answer_once(seen: int) -> None:
    message = message_of(STREAM)
    rest = deltas_after(message, positions_in(STREAM)[seen])
    assert texts([*STREAM[:seen], *rest]) == texts(STREAM)
    if seen == len(STREAM):
        assert rest == []
    elif seen:
        assert not isinstance(rest[0], StartDelta)


def test_an_answer_is_cut_within_a_text_by_its_characters() -> None:
    message = Message.assistant(Text("Fish 日本語 👩‍👩‍👧 and more"))
    for end in range(1, len(message.text) + 1):
        read: list[KnownDelta] = [
            StartDelta(*RUN),
            TextDelta(*RUN, message.text[: end // 2]),
            TextDelta(*RUN, message.text[end // 2 : end]),
        ]
        rest = deltas_after(message, positions_in(read)[-1])
        assert "".join(delta.text_delta for delta in rest if isinstance(delta, TextDelta)) == message.text[end:]
        assert isinstance(rest[-1], DoneDelta)


@pytest.mark.parametrize("recorded", ["Whales", "Fis", "fish and", ""])
def test_another_answer_is_never_joined_to_what_was_read(recorded: str) -> None:
    message = Message.assistant(recorded) if recorded else Message.assistant()
    read: list[KnownDelta] = [StartDelta(*RUN), TextDelta(*RUN, "Fish")]
    made = deltas_after(message, positions_in(read)[-1])
    assert isinstance(made[0], StartDelta)
    text = AnswerText()
    for delta in [*read, *made]:
        text.feed(delta)
    assert text.text == recorded


def test_arguments_that_came_interleaved_begin_anew() -> None:
    read: list[KnownDelta] = [
        StartDelta(*RUN),
        ToolCallStartDelta(*RUN, "a", "look"),
        ToolCallStartDelta(*RUN, "b", "read"),
        ToolCallArgsDelta(*RUN, "a", "{"),
    ]
    rest: list[KnownDelta] = [ToolCallArgsDelta(*RUN, "b", "{}"), ToolCallArgsDelta(*RUN, "a", "}")]
    ends: list[KnownDelta] = [ToolCallEndDelta(*RUN, "a"), ToolCallEndDelta(*RUN, "b")]
    message = message_of([*read, *rest, *ends, DoneDelta(*RUN, FinishReason.TOOL_CALLS)])
    assert isinstance(deltas_after(message, positions_in(read)[-1])[0], StartDelta)


def test_a_call_that_the_record_renamed_has_its_first_id() -> None:
    state = AgentState.create_default()
    for _ in range(2):
        state.append_model_input("Go.")
        output = state.append_model_output(Message.assistant(ToolCall("call_0", "look", {})))
        state.append_tool_results([HistoryToolCallResult.of_text(call, "seen") for call in output.tool_calls])
    assert output.tool_calls[0].tool_call_id != "call_0"
    made = deltas_after(output.message, Position())
    assert [delta.tool_call_id for delta in made if isinstance(delta, ToolCallStartDelta)] == ["call_0"]


def test_two_texts_in_a_row_stay_two_parts() -> None:
    message = Message.assistant(Text("a"), Text("b"), Thinking("c"), Thinking("d"))
    again = assemble(numbered(deltas_after(message, Position()))).message
    assert again is not None
    assert again.parts == message.parts


@given(strategies.messages("assistant"), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_reader_that_leaves_anywhere_has_the_whole_answer(message: Message, chance: random.Random) -> None:
    whole = deltas_after(message, Position())
    cut: list[KnownDelta] = []
    for delta in whole:  # in pieces as small as a model may send them
        pieces = [delta]
        if isinstance(delta, (TextDelta, ThinkingDelta)) and len(delta.text_delta) > 1 and delta.provider_data is None:
            at = chance.randrange(1, len(delta.text_delta))
            pieces = [
                replace(delta, text_delta=delta.text_delta[:at]),
                replace(delta, text_delta=delta.text_delta[at:]),
            ]
        cut += pieces
    seen = chance.randrange(len(cut) + 1)
    rest = deltas_after(message, positions_in(cut)[seen])
    assert texts([*cut[:seen], *rest]) == texts(whole)


# ---------------------------------------------------------------- following


def recorded(entry: Any, serial: int = 1) -> FollowedEntry:

    placed = replace(entry, serial=serial, entry_id=f"s:{serial}", timestamp=NOW)
    return FollowedEntry(placed, Position(serial + 1))


def test_each_made_delta_has_a_position_to_come_back_to() -> None:
    entry = recorded(ModelOutputEntry(message_of(STREAM)))
    made = AnswerDeltas(Position(1)).feed(entry)
    assert [each.delta.seq for each in made] == list(range(len(made)))
    assert made[-1].position == entry.position
    for seen, item in enumerate(made[:-1], 1):
        rest = AnswerDeltas(str(item.position)).feed(entry)
        again = [*(each.delta for each in made[:seen]), *(each.delta for each in rest)]
        assert texts(again) == texts(STREAM)
        assert rest[-1].position == entry.position


def test_a_reader_that_saw_the_end_gets_nothing_more_from_the_entry() -> None:
    answers = AnswerDeltas(1)
    position = Position(1)
    for delta in numbered(STREAM):
        position = position.after_delta("abc", delta)
        item = FollowedDelta(delta, position)
        assert answers.feed(item) == [item]
    assert answers.feed(recorded(ModelOutputEntry(message_of(STREAM)))) == []


@pytest.mark.parametrize("seen", range(5))
def test_an_answer_that_broke_off_is_told_to_its_end(seen: int) -> None:
    stream: list[KnownDelta] = [
        StartDelta(*RUN),
        TextDelta(*RUN, "Fish "),
        TextDelta(*RUN, "are"),
        ErrorDelta(*RUN, ErrorCode.OVERLOADED, "busy"),
    ]
    entry = recorded(InterruptionEntry(ErrorCode.OVERLOADED, "busy", message_of(stream)))
    made = AnswerDeltas(str(positions_in(stream, 1)[seen])).feed(entry)
    assert texts([*stream[:seen], *(each.delta for each in made)]) == texts(stream)
    text = AnswerText()
    for delta in stream:
        text.feed(delta)
    for each in AnswerDeltas(2).feed(recorded(ModelOutputEntry(Message.assistant("Whales.")), 2)):
        text.feed(each.delta)
    assert text.text == "Whales."


def test_a_failure_before_any_delta_is_told_too() -> None:
    (start, error) = AnswerDeltas(1).feed(recorded(InterruptionEntry(ErrorCode.AUTHENTICATION, "no key")))
    assert isinstance(start.delta, StartDelta)
    assert isinstance(error.delta, ErrorDelta)


def test_other_entries_add_no_delta() -> None:
    assert AnswerDeltas(1).feed(recorded(ModelInputEntry.of("Go."))) == []


def text_of(*answers: tuple[str, str, FinishReason | None]) -> str:
    """Return the text of answers: the run, the text and the finish reason of each, None for one that breaks off."""
    text = AnswerText()
    for run_id, words, reason in answers:
        header = (run_id, 0, NOW)
        text.feed(StartDelta(*header))
        text.feed(TextDelta(*header, words))
        if reason is not None:
            text.feed(DoneDelta(*header, reason))
    return text.text


LENGTH, STOP = FinishReason.LENGTH, FinishReason.STOP


def test_an_answer_that_was_cut_by_its_length_is_continued_by_the_next() -> None:
    assert text_of(("r", "The rep", LENGTH), ("r", "ort is", LENGTH), ("r", " done.", STOP)) == "The report is done."
    assert text_of(("r", "The rep", LENGTH), ("r", "ort.", STOP), ("r", "Next.", STOP)) == "The report.\n\nNext."
    assert text_of(("r", "One.", STOP), ("r", "The rep", LENGTH), ("r", "ort", None)) == "One.\n\nThe report"


def test_a_continuation_that_broke_off_is_replaced_and_not_what_it_continues() -> None:
    assert text_of(("r", "The rep", LENGTH), ("r", "air", None), ("r", "ort.", STOP)) == "The report."


def test_an_answer_of_another_run_continues_nothing() -> None:
    assert text_of(("r", "The rep", LENGTH), ("s", "Whales.", STOP)) == "The rep\n\nWhales."
    assert text_of(("", "The rep", LENGTH), ("", "Whales.", STOP)) == "The rep\n\nWhales."  # of no run


def test_two_answers_are_separated() -> None:
    answers, text = AnswerDeltas(1), AnswerText()
    for serial, words in enumerate(("One.", "", "Two."), 1):
        message = Message.assistant(words) if words else Message.assistant(Image("image/png", b"\x89PNG\r\n\x1a\n"))
        for each in answers.feed(recorded(ModelOutputEntry(message), serial)):
            text.feed(each.delta)
    assert text.text == "One.\n\nTwo."
