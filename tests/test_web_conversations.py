"""Digests of a client's messages, answers compared, and where a request belongs: plain values, no store."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import Image, Message, Role, Text, Thinking, ToolCall, ToolResult, ToolSpec
from dragoman.errors import ErrorCode
from dragoman.history import (
    AgentState,
    ClientAnswerEntry,
    ClientRequestEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from dragoman.history.toolresults import HistoryToolCallResult
from dragoman.message import FileRef, MessageMeta, Part, ProviderItem, UnknownPart
from dragoman.web.gateway.conversations import (
    Chain,
    Frame,
    Prefix,
    answer_key,
    digest_prefixes,
    frame_of,
    is_same_answer,
)
from dragoman.web.gateway.placing import (
    find_answer,
    find_place,
    frame_at,
    has_moved,
    last_request,
    plan_turn,
    with_recorded,
)
from tests.conversations import PNG
from tests.web_cases import CLAUDE, answer, asked, call, of_body, result


def digest(*messages: Message, seed: str = "") -> str:
    chain = Chain(seed)
    digest_prefixes(chain, messages)
    return chain.digest


def said(role: Role, *parts: Any) -> Message:
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


# ---------------------------------------------------------------- what digests see

SAME: dict[str, tuple[Sequence[Message], Sequence[Message]]] = {
    "a text cut into parts": ([Message.user("Hello.")], [Message.user("Hel", "lo.")]),
    "one message cut into two": ([Message.user("A", "B")], [Message.user("A"), Message.user("B")]),
    "blank texts": ([Message.user("A")], [Message.user("A", "", " \n")]),
    "thinking": ([Message.assistant("A")], [Message.assistant(Thinking("Hm."), "A")]),
    "a signature": ([Message.assistant("A")], [Message.assistant(Text("A", provider_data={"id": "msg_1"}))]),
    "ids of calls": (
        [Message.assistant(call(call_id="a")), result("x", "a")],
        [Message.assistant(call(call_id="b")), result("x", "b")],
    ),
    "the order of arguments": (
        [Message.assistant(ToolCall("a", "t", {"x": 1, "y": [{"p": 1, "q": 2}]}))],
        [Message.assistant(ToolCall("a", "t", {"y": [{"q": 2, "p": 1}], "x": 1}))],
    ),
    "whole numbers with a point": (
        [Message.assistant(ToolCall("a", "t", {"x": [1.0, {"y": 2.0}]}))],
        [Message.assistant(ToolCall("a", "t", {"x": [1, {"y": 2}]}))],
    ),
    "texts and calls in another order": (
        [Message.assistant("A", call(), "B")],
        [Message.assistant("A", "B", call())],
    ),
    "space around an answer": ([Message.assistant(" A b\n")], [Message.assistant("A b")]),
    "an answer in two messages": (
        [Message.assistant("A"), Message.assistant(call())],
        [Message.assistant("A", call())],
    ),
    "arguments that did not parse, in an object": (
        [Message.assistant(ToolCall.parse("a", "t", '{"x"'))],
        [Message.assistant(ToolCall("a", "t", {"unparsed_arguments": '{"x"'}))],
    ),
    "whether a result is an error": ([result("x")], [Message.tool(ToolResult("call_1", "x", is_error=True))]),
    "a result as a text or in a part": ([result("x")], [Message.tool(ToolResult("call_1", (Text("x"),)))]),
    "a cache mark on an unknown part": (
        [said(Role.USER, UnknownPart("new", {"x": 1}))],
        [said(Role.USER, UnknownPart("new", {"x": 1, "cache_control": {"type": "ephemeral"}}))],
    ),
    "a system message inside, which is recorded as an input": ([Message.system("A")], [Message.user("A")]),
    "an empty answer": ([Message.user("A"), Message.assistant()], [Message.user("A")]),
    "an item of a provider": (
        [Message.assistant("A")],
        [Message.assistant(ProviderItem("search", {"id": "ws_1"}), "A")],
    ),
}
OTHER: dict[str, tuple[Sequence[Message], Sequence[Message]]] = {
    "a text": ([Message.user("A")], [Message.user("B")]),
    "space in a user's text": ([Message.user("A b")], [Message.user("A  b")]),
    "who speaks": ([Message.user("A")], [Message.assistant("A")]),
    "a result and a text": ([result("A")], [Message.user("A")]),
    "arguments": ([Message.assistant(call(x=1))], [Message.assistant(call(x=2))]),
    "true and 1": ([Message.assistant(call(x=True))], [Message.assistant(call(x=1))]),
    "a tool": ([Message.assistant(call("look"))], [Message.assistant(call("read"))]),
    "the order of calls": (
        [Message.assistant(call("look"), call("read", "b"))],
        [Message.assistant(call("read", "b"), call("look"))],
    ),
    "a call and its text": ([Message.assistant(call("look"))], [Message.assistant("look{}")]),
    "a picture": (
        [Message.user(Image(mime_type="image/png", data=PNG))],
        [Message.user(Image(mime_type="image/png", data=PNG + b"."))],
    ),
    "a picture's address": (
        [Message.user(Image(url="https://a.example/1.png"))],
        [Message.user(Image(url="https://a.example/2.png"))],
    ),
    "a file": (
        [said(Role.USER, FileRef(file_id="a"))],
        [said(Role.USER, FileRef(file_id="b"))],
    ),
    "a picture in a result": (
        [Message.tool(ToolResult("a", (Text("x"),)))],
        [Message.tool(ToolResult("a", (Text("x"), Image(mime_type="image/png", data=PNG))))],
    ),
    "an unknown part": (
        [said(Role.USER, UnknownPart("new", {"x": 1}))],
        [said(Role.USER, UnknownPart("new", {"x": 2}))],
    ),
    "two results and one": ([result("x"), result("y", "b")], [result("xy")]),
    "the order of turns": (
        [Message.user("A"), Message.assistant("B"), Message.user("C")],
        [Message.user("A"), Message.user("C"), Message.assistant("B")],
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_digests_do_not_see(case: str) -> None:
    one, other = SAME[case]
    assert digest(*one) == digest(*other)


@pytest.mark.parametrize("case", OTHER)
def test_digests_see(case: str) -> None:
    one, other = OTHER[case]
    assert digest(*one) != digest(*other)


def test_lone_surrogates_have_a_digest() -> None:
    assert digest(Message.user("\ud83d")) != digest(Message.user("\ud83e"))


def test_equal_messages_of_two_clients_have_different_digests() -> None:
    assert digest(Message.user("Hi"), seed="a") != digest(Message.user("Hi"), seed="b")


def test_claude_codes_message_has_one_digest_in_both_of_its_shapes() -> None:
    mark = {"type": "ephemeral"}
    as_list = [{"type": "text", "text": "Hi", "cache_control": mark}]
    bodies = (
        {"role": "user", "content": as_list},
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    )
    import json

    found = {
        digest(*_messages(json.dumps({"model": "m", "max_tokens": 9, "messages": [body]}).encode())) for body in bodies
    }
    assert len(found) == 1


def _messages(body: bytes) -> Sequence[Message]:
    read = of_body(body).read
    assert read is not None
    return read.request.messages


# ---------------------------------------------------------------- prefixes

TALK = (
    Message.user("A", "B"),
    Message.assistant("One moment.", call("look"), call("read", "call_2")),
    result("x"),
    result("y", "call_2"),
    Message.assistant("Done."),
    Message.user("C"),
)


def test_a_request_ends_with_a_prefix_of_every_later_one() -> None:
    prefixes = digest_prefixes(Chain("s"), TALK)
    found = {prefix.digest: prefix for prefix in prefixes}
    for count in range(1, len(TALK) + 1):
        prefix = found[digest(*TALK[:count], seed="s")]
        assert (prefix.message, prefix.parts) == (count, 0)
        assert prefix.rest_of(TALK) == TALK[count:]


def test_a_prefix_may_end_inside_a_message() -> None:
    merged = (Message.user("A", "B", "C"), TALK[1])
    found = {prefix.digest: prefix for prefix in digest_prefixes(Chain(""), merged)}
    prefix = found[digest(Message.user("A"))]
    assert prefix.rest_of(merged) == (Message.user("B", "C"), TALK[1])


def test_an_answer_has_the_digest_that_its_client_will_send() -> None:
    chain = Chain("s")
    digest_prefixes(chain, TALK[:1])
    before = chain.digest
    recorded = answer(Thinking("Hm.", provider_data={"signature": "s"}), *TALK[1].parts)
    assert chain.after(recorded) == digest(*TALK[:2], seed="s")
    assert chain.digest == before


def test_an_answer_in_two_pieces_has_the_digest_of_the_whole() -> None:
    chain = Chain("")
    digest_prefixes(chain, [Message.user("A"), Message.assistant("One.")])
    assert chain.after(Message.assistant("Two.")) == digest(Message.user("A"), Message.assistant("One.", "Two."))


def test_digests_are_linear_in_the_body() -> None:
    def seconds(count: int) -> float:
        messages = [Message.assistant("word " * 10) for _ in range(count)]
        best = 10.0
        for _ in range(7):
            started = time.process_time()
            digest_prefixes(Chain(""), messages)
            best = min(best, time.process_time() - started)
        return best

    assert seconds(8_000) < 30 * seconds(1_000)


# ---------------------------------------------------------------- answers


def test_a_client_may_leave_out_calls_that_never_became_whole() -> None:
    recorded: list[Part] = [Text("A"), ToolCall.parse("a", "t", '{"x": "cut')]
    assert is_same_answer(recorded, [Text("A")])
    assert is_same_answer(recorded, recorded)
    assert not is_same_answer([Text("A"), call()], [Text("A")])


def test_an_answer_that_says_nothing_has_no_key() -> None:
    assert answer_key([]) == b""
    assert answer_key([Thinking("Hm."), Text(" ")]) == b""
    assert answer_key([Text("A")]) != b""


# ---------------------------------------------------------------- frames


def test_a_frame_sees_system_text_and_tools() -> None:
    request = asked(Message.user("Hi"))
    assert request.read is not None
    frame = frame_of(request.read)
    assert frame.tool_count == 2
    others = [
        asked(Message.user("Ho"), system="Other."),
        asked(Message.user("Hi"), tools=()),
        asked(Message.user("Hi"), system="Other.", tools=(ToolSpec("other", "Other."),)),
    ]
    likeness = [frame.likeness(frame_of(each.read)) for each in others if each.read is not None]
    assert likeness == [1, 1, 0]
    assert [frame.shares_nothing(frame_of(each.read)) for each in others if each.read] == [False, False, True]


def test_a_frame_does_not_see_claude_codes_billing_line_nor_the_order_of_tools() -> None:
    tools = (ToolSpec("a", "A."), ToolSpec("b", "B."))
    one = asked(Message.user("Hi"), system="x-anthropic-billing-header: 1\n\nBe brief.", tools=tools).read
    other = asked(Message.user("Hi"), system="x-anthropic-billing-header: 2\n\nBe brief.", tools=tools[::-1]).read
    assert one is not None
    assert other is not None
    assert frame_of(one) == frame_of(other)


def test_a_frame_is_read_back_from_the_metadata_of_its_request() -> None:
    frame = Frame("a", "b", 2)
    assert Frame.of(request_entry(metadata={"frame": list(frame)})) == frame
    assert Frame.of(request_entry()) is None
    assert Frame.of(request_entry(metadata={"frame": ["a"]})) is None


# ---------------------------------------------------------------- places


def request_entry(**fields: Any) -> ClientRequestEntry:
    return ClientRequestEntry("anthropic-messages", "/v1/messages", "m", "{}", **fields)


def state_of(*entries: HistoryEntry) -> AgentState:
    state = AgentState.create_default(session_id="s", widgets=())
    state.append_all(entries)
    return state


CALLING = answer(Thinking("Hm.", provider_data={"signature": "x"}), "One moment.", call("look", "call_1~2", x=1))
STARTED = state_of(ModelInputEntry.of("A"), request_entry(metadata={"frame": ["s", "t", 1]}))
ANSWERED = state_of(
    *(ModelInputEntry.of("A"), request_entry(), ModelOutputEntry(CALLING), ClientAnswerEntry.of(1, 200, b""))
)
FIRST = Prefix("d", 1, 0)


def test_an_answer_is_the_first_that_is_said_after_a_request() -> None:
    assert find_answer(STARTED.entries, 1) is None
    assert find_answer(ANSWERED.entries, 1) == 2
    assert has_moved(ANSWERED.entries, 1)
    assert not has_moved(ANSWERED.entries, 2)
    went_on = state_of(ModelInputEntry.of("A"), request_entry(), ModelInputEntry.of("B"), request_entry())
    assert find_answer(went_on.entries, 1) is None
    assert has_moved(went_on.entries, 1)


def test_a_request_that_says_no_more_is_a_repeat() -> None:
    for state in (STARTED, ANSWERED):
        place = find_place(state.entries, 1, FIRST, [Message.user("A")])
        assert (place.end, place.rest, place.is_repeat) == (1, (), True)


def test_what_follows_the_recorded_answer_is_new_and_has_the_records_ids() -> None:
    theirs = Message.assistant("One moment.", call("look", "call_1", x=1))
    place = find_place(ANSWERED.entries, 1, FIRST, [Message.user("A"), theirs, result("found"), Message.user("B")])
    assert place.end == 3
    assert place.rest == (result("found", "call_1~2"), Message.user("B"))
    assert not place.is_repeat


def test_a_marked_answer_is_where_the_next_request_goes_on() -> None:
    theirs = Message.assistant("One moment.", call("look", "toolu_9", x=1))
    messages = [Message.user("A"), theirs, result("found", "toolu_9")]
    place = find_place(ANSWERED.entries, 3, Prefix("d", 2, 0), messages)
    assert (place.end, place.rest) == (3, (result("found", "call_1~2"),))


def test_an_answer_that_the_client_changed_belongs_after_the_request() -> None:
    edited = Message.assistant("I said something else.")
    place = find_place(ANSWERED.entries, 1, FIRST, [Message.user("A"), edited, Message.user("B")])
    assert (place.end, place.rest) == (1, (edited, Message.user("B")))


def test_an_answer_that_the_client_left_out_is_not_where_it_goes_on() -> None:
    place = find_place(ANSWERED.entries, 1, FIRST, [Message.user("A"), Message.user("B")])
    assert (place.end, place.rest, place.is_repeat) == (1, (Message.user("B"),), False)


def test_an_empty_answer_may_be_left_out() -> None:
    state = state_of(
        ModelInputEntry.of("A"),
        request_entry(),
        ModelOutputEntry(answer(Thinking("Hm."))),
        ClientAnswerEntry.of(1, 200, b""),
    )
    assert find_place(state.entries, 1, FIRST, [Message.user("A"), Message.user("B")]).end == 3


def test_a_cut_answer_that_the_client_took_for_whole_keeps_its_signature() -> None:
    cut = ToolCall.parse("call_2", "look", '{"x": "cu')
    partial = Message(Role.ASSISTANT, (*CALLING.parts, cut), meta=MessageMeta(invocation=CLAUDE, interrupted=True))
    state = state_of(
        ModelInputEntry.of("A"), request_entry(), InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "cut", partial)
    )
    theirs = Message.assistant("One moment.", call("look", "toolu_1", x=1))
    place = find_place(state.entries, 1, FIRST, [Message.user("A"), theirs, result("found", "toolu_1")])
    taken, found = place.rest
    assert place.end == 1
    assert taken.meta is not None
    assert (taken.meta.invocation, taken.meta.interrupted) == (CLAUDE, None)
    assert isinstance(taken.parts[0], Thinking)
    assert [each.tool_call_id for each in taken.tool_calls] == ["toolu_1"]
    planned = plan_turn(state, None, place.rest)
    assert [entry.kind for entry in planned] == ["model_output", "tool_started", "tool_result"]
    assert found.tool_results[0].content == "found"


def test_a_frame_belongs_to_a_request_and_to_its_answer() -> None:
    state = state_of(
        ModelInputEntry.of("A"),
        request_entry(metadata={"frame": ["s", "t", 1]}),
        ModelOutputEntry(answer("B")),
        ClientAnswerEntry.of(1, 200, b""),
    )
    assert frame_at(state.entries, 1) == frame_at(state.entries, 3) == Frame("s", "t", 1)
    newest = last_request(state.entries)
    assert newest is not None
    assert newest.serial == 1
    assert last_request(ANSWERED.entries) is None


# ---------------------------------------------------------------- entries


def test_calls_without_a_result_are_recorded_as_interrupted() -> None:
    two = answer(call("look", "a"), call("read", "b"))
    state = state_of(ModelInputEntry.of("A"), ModelOutputEntry(two))
    planned = plan_turn(state, None, [result("found", "b"), Message.user("B")])
    state.append_all(planned)
    results = next(entry for entry in planned if isinstance(entry, ToolResultsEntry)).results
    assert [each.error_code for each in results] == [ErrorCode.TOOL_INTERRUPTED, None]


def test_open_calls_are_closed_where_the_client_says_nothing() -> None:
    state = state_of(ModelInputEntry.of("A"), ModelOutputEntry(answer(call("look", "a"))))
    state.append_all(plan_turn(state, None, ()))
    assert not state.derived.open_calls


def test_results_that_a_run_had_finished_are_put_together() -> None:
    one = call("look", "a")
    state = state_of(
        ModelInputEntry.of("A"),
        ModelOutputEntry(answer(one)),
        ToolStartedEntry("a", "look"),
        ToolFinishedEntry(HistoryToolCallResult.of_text(one, "found")),
    )
    state.append_all(plan_turn(state, None, ()))
    assert not state.derived.open_calls


def test_a_result_may_name_its_call_as_the_model_did() -> None:
    state = state_of(
        ModelInputEntry.of("A"),
        ModelOutputEntry(answer(call("look", "call_0"))),
        ToolStartedEntry("call_0", "look"),
        ToolResultsEntry((HistoryToolCallResult.of_text(call("look", "call_0"), "x"),)),
        ModelOutputEntry(answer(call("look", "call_0"))),
    )
    planned = plan_turn(state, None, [result("found", "call_0")])
    (found,) = next(entry for entry in planned if isinstance(entry, ToolResultsEntry)).results
    assert (found.tool_call_id, found.text()) == ("call_0~2", "found")


def test_the_system_text_is_recorded_when_it_changes() -> None:
    state = state_of()
    for system, kinds in (("A", ["system_instruction"]), ("A", []), (None, ["system_instruction"]), (None, [])):
        planned = plan_turn(state, system, ())
        assert [entry.kind for entry in planned] == kinds
        state.append_all(planned)
    assert state.system_instruction is None


# ---------------------------------------------------------------- recorded answers for the model


def test_recorded_answers_take_the_place_of_the_clients_with_its_ids() -> None:
    theirs = Message.assistant("One moment.", call("look", "toolu_1", x=1))
    told = with_recorded(
        [Message.user("A"), theirs, result("found", "toolu_1")], {answer_key(theirs.parts): CALLING}.get
    )
    assert told[0] == Message.user("A")
    assert told[1].meta == CALLING.meta
    assert isinstance(told[1].parts[0], Thinking)
    assert [each.tool_call_id for each in told[1].tool_calls] == ["toolu_1"]
    assert told[2] == result("found", "toolu_1")


def test_messages_keep_their_indices_where_a_client_cuts_an_answer_in_two() -> None:
    theirs = [Message.assistant("One moment."), Message.assistant(call("look", "a", x=1)), result("x", "a")]
    told = with_recorded(theirs, {answer_key(CALLING.parts): CALLING}.get)
    assert [len(message.parts) for message in told] == [3, 0, 1]


def test_an_answer_that_is_not_recorded_stays_the_clients() -> None:
    theirs = (Message.user("A"), Message.assistant("B"), Message.assistant())
    assert with_recorded(theirs, lambda _key: None) == theirs
