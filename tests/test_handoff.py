"""A conversation handed to a model that did not make it: what changes, what never does."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import (
    FileRef,
    FinishReason,
    Image,
    InvalidValue,
    Message,
    ModelError,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.history import HandedOff, hand_off
from dragoman.history.handoff import CUT_OFF
from dragoman.message import MessageMeta, ModelInvocationDescriptor, ProviderItem, UnknownPart
from dragoman.target import NameRule, TargetRules

HERE = ModelInvocationDescriptor("here", "spec", "model-1")
ELSEWHERE = ModelInvocationDescriptor("elsewhere", "spec", "model-9")
LAX = TargetRules(opaque_providers=frozenset({"here"}), prefill=True)
STRICT = TargetRules(
    tool_ids=NameRule("[a-zA-Z0-9]{9}", 9, readable=False),
    tool_names=NameRule("[a-zA-Z_][a-zA-Z0-9_]{0,31}", 32),
    opaque_providers=frozenset({"here"}),
    opaque_same_model=True,
    blank_text=False,
    user_first=True,
    alternate=True,
    user_after_tool=False,
    tools_for_history=True,
    user_media=frozenset(),
)
PARTED = TargetRules(
    opaque_providers=frozenset({"here"}),
    alternate=True,
    user_first=True,
    words_beside_calls=False,
    final_thinking=False,
)
PICTURE = Image("image/png", b"png")


def call(call_id: str, name: str = "look", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def answer(call_id: str, content: object = "found") -> Message:
    return Message.tool(ToolResult(call_id, content))  # type: ignore[arg-type]  # the constructor checks


def fit(*messages: Message, rules: TargetRules = LAX, tools: tuple[ToolSpec, ...] = ()) -> HandedOff:
    return hand_off(messages, tools, target=HERE, rules=rules)


def roles(handed: HandedOff) -> list[str]:
    return [message.role.value for message in handed.messages]


def by(origin: ModelInvocationDescriptor, *parts: object) -> Message:
    return Message.assistant(*parts, invocation=origin)  # type: ignore[arg-type]


def test_what_the_target_made_goes_back_untouched() -> None:
    signed = ToolCall("c1", "look", {}, provider_data={"signature": "s"})
    turn = by(HERE, Thinking("hm", provider_data={"signature": "s"}), Text("x", provider_data={"id": 1}), signed)
    handed = fit(Message.user("go"), turn, answer("c1"))
    assert handed.messages == (Message.user("go"), turn, answer("c1"))


def test_foreign_thinking_and_opaque_data_stay_home() -> None:
    turn = by(ELSEWHERE, Thinking("secret", provider_data={"signature": "s"}), Text("x", provider_data={"id": 1}))
    assert fit(Message.user("go"), turn).messages[1].parts == (Text("x"),)


def test_of_a_call_that_the_history_renamed_all_goes_back_but_the_wires_id() -> None:
    for data, kept in (({"id": "c", "signature": "s"}, {"signature": "s"}), ({"id": "c"}, None)):
        renamed = ToolCall("c~2", "look", {}, provider_data=data)
        handed = fit(Message.user("go"), by(HERE, renamed), answer("c~2"))
        assert handed.messages[1].tool_calls[0].provider_data == kept


def test_a_message_without_an_invocation_is_foreign_to_every_model() -> None:
    handed = fit(Message.user("go"), Message.assistant(Thinking("hm"), "x"))
    assert handed.messages[1].parts == (Text("x"),)


def test_opaque_data_of_another_model_stays_home_where_the_rule_says_so() -> None:
    other = ModelInvocationDescriptor("here", "spec", "model-2")
    turn = by(other, Text("x", provider_data={"id": 1}))
    assert fit(Message.user("go"), turn, rules=STRICT).messages[1].parts == (Text("x"),)


def test_a_foreign_picture_goes_without_its_signature() -> None:
    rules = TargetRules(opaque_providers=frozenset({"here"}), assistant_media=frozenset({"image/"}))
    signed = Image("image/png", b"png", provider_data={"signature": "s"})
    for origin, kept in ((HERE, signed), (ELSEWHERE, PICTURE)):
        assert fit(Message.user("draw"), by(origin, signed), Message.user("?"), rules=rules).messages[1].parts == (
            kept,
        )


def test_a_part_of_a_later_version_is_left_out_and_its_turn_stays() -> None:
    unknown = UnknownPart("hologram", {"size": 3})
    assert fit(Message.user("look", unknown)).messages[0].parts == (Text("look"),)
    assert fit(Message.user(unknown)).messages[0].parts == (Text("."),)


@pytest.mark.parametrize("rules", [LAX, STRICT])
def test_a_turn_of_nothing_that_can_be_shown_is_not_sent(rules: TargetRules) -> None:
    unshown = Message.user(UnknownPart("claude_code.skill_listing", {"skills": []}))
    spoken = [Message.user("Hi"), Message.assistant("Hello."), Message.user("And now?")]
    for index in range(len(spoken) + 1):
        handed = fit(*spoken[:index], unshown, *spoken[index:], rules=rules)
        assert [message.text for message in handed.messages] == ["Hi", "Hello.", "And now?"]
        assert index not in handed.positions
    assert fit(*spoken[:2], unshown, rules=STRICT).messages[-1].text == "Continue."


def test_names_that_a_rule_makes_impossible_are_an_error_and_no_hang() -> None:
    rules = TargetRules(tool_names=NameRule("[a-z]{1,16}", 16))
    with pytest.raises(InvalidValue, match=r"\[a-z\]\{1,16\}"):
        fit(Message.user("go"), rules=rules, tools=(ToolSpec("Look"),))


def test_a_provider_item_goes_home_whole_and_elsewhere_as_its_text() -> None:
    item = ProviderItem("web_search", {"q": "x"}, "searched for x")
    silent = ProviderItem("compaction", {"blob": "y"})
    assert fit(Message.user("go"), by(HERE, item, silent)).messages[1].parts == (item, silent)
    assert fit(Message.user("go"), by(ELSEWHERE, item, silent)).messages[1].parts == (Text("searched for x"),)


def test_a_call_without_a_result_is_answered_as_interrupted() -> None:
    handed = fit(Message.user("go"), by(HERE, call("c1"), call("c2")), answer("c2"), Message.user("and?"))
    first, second = handed.messages[2].parts[0], handed.messages[3].parts[0]
    assert first == ToolResult(
        "c1", "[interrupted: this call has no result; it may or may not have taken effect]", True
    )
    assert second == ToolResult("c2", "found")


def test_what_the_handoff_adds_is_of_the_run_that_it_completes() -> None:
    turn = Message(Role.ASSISTANT, (Text("well"), call("c1")), "r", meta=MessageMeta(invocation=HERE))
    handed = fit(Message.user("go", run_id="r"), turn, rules=PARTED)
    assert roles(handed) == ["user", "assistant", "user", "assistant", "tool"]
    assert {message.run_id for message in handed.messages} == {"r"}
    shown = fit(turn, answer("c1", (Text("see"), PICTURE)))
    assert shown.messages[-1] == Message(Role.USER, (PICTURE,), "r")


def test_a_result_without_a_call_and_a_second_result_are_left_out() -> None:
    handed = fit(Message.user("go"), answer("c0"), by(HERE, call("c1")), answer("c1"), answer("c1", "again"))
    assert roles(handed) == ["user", "assistant", "tool"]


def test_results_come_right_after_their_calls_in_the_order_of_the_calls() -> None:
    handed = fit(
        Message.user("go"), by(HERE, call("c1"), call("c2")), answer("c2"), Message.user("hurry"), answer("c1", "late")
    )
    assert roles(handed) == ["user", "assistant", "tool", "tool", "user"]
    assert [message.parts[0].content for message in handed.messages[2:4]] == ["late", "found"]  # type: ignore[union-attr]


def test_an_id_that_every_turn_repeats_stays_unique_and_paired() -> None:
    turns = [
        message for turn in "abc" for message in (by(ELSEWHERE, call("call_0", turn=turn)), answer("call_0", turn))
    ]
    handed = fit(Message.user("go"), *turns)
    calls = [part for message in handed.messages for part in message.tool_calls]
    results = [part for message in handed.messages for part in message.parts if isinstance(part, ToolResult)]
    assert len({part.tool_call_id for part in calls}) == 3
    assert [part.tool_call_id for part in calls] == [part.tool_call_id for part in results]
    assert [part.arguments for part in calls] == [{"turn": result.content} for result in results]


def test_an_id_that_stands_twice_in_one_turn_leaves_no_call_unanswered() -> None:
    handed = fit(Message.user("go"), by(ELSEWHERE, call("same"), call("same")), answer("same"))
    ids = [part.tool_call_id for message in handed.messages for part in message.tool_calls]
    answered = [
        part.tool_call_id for message in handed.messages for part in message.parts if isinstance(part, ToolResult)
    ]
    assert len(set(ids)) == 2
    assert ids == answered


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=30, unique=True))
def test_ids_and_names_map_injectively_into_the_targets_alphabet(names: list[str]) -> None:
    tools = tuple(ToolSpec(name) for name in names if name.isprintable() and not any(map(str.isspace, name)))
    turns = [message for name in names for message in (by(ELSEWHERE, call(name)), answer(name))]
    handed = fit(Message.user("go"), *turns, rules=STRICT, tools=tools)
    ids = [part.tool_call_id for message in handed.messages for part in message.tool_calls]
    assert len(set(ids)) == len(names)
    assert all(STRICT.tool_ids.accepts(name) for name in ids)
    fitted = [tool.name for tool in handed.tools]
    if tools:
        assert len(set(fitted)) == len(tools)
        assert all(STRICT.tool_names.accepts(name) for name in fitted)
        assert [handed.original_names.get(name, name) for name in fitted] == [tool.name for tool in tools]


def test_a_tool_name_is_the_same_in_the_declaration_and_in_the_history() -> None:
    handed = fit(
        Message.user("go"),
        by(ELSEWHERE, call("c1", "files.read")),
        answer("c1"),
        rules=STRICT,
        tools=(ToolSpec("files.read"),),
    )
    assert handed.tools[0].name == handed.messages[1].tool_calls[0].tool_name
    assert handed.original_names == {handed.tools[0].name: "files.read"}


def test_the_names_of_declared_tools_do_not_depend_on_the_history() -> None:
    declared = (ToolSpec("files.read"),)
    (fitted,) = fit(Message.user("go"), rules=STRICT, tools=declared).tools
    old = by(ELSEWHERE, call("c1", fitted.name))  # another tool, which has the name already
    handed = fit(Message.user("go"), old, answer("c1"), rules=STRICT, tools=declared)
    assert handed.tools == (fitted,)
    assert handed.messages[1].tool_calls[0].tool_name != fitted.name


def test_tools_are_declared_where_the_history_has_calls_and_the_target_demands_it() -> None:
    handed = fit(Message.user("go"), by(ELSEWHERE, call("c1")), answer("c1"), rules=STRICT)
    assert [tool.name for tool in handed.tools] == ["look"]
    assert fit(Message.user("go"), by(ELSEWHERE, call("c1")), answer("c1")).tools == ()


def test_a_strict_target_gets_the_user_first_in_alternation_and_last() -> None:
    handed = fit(
        Message.assistant("hello"),
        Message.user("a"),
        Message.user("b"),
        Message.assistant("c"),
        Message.assistant("d"),
        rules=STRICT,
    )
    assert roles(handed) == ["user", "assistant", "user", "assistant", "user"]
    assert handed.messages[2].parts == (Text("a"), Text("b"))


def test_a_user_turn_never_follows_a_result_where_that_is_refused() -> None:
    handed = fit(Message.user("go"), by(ELSEWHERE, call("c1")), answer("c1"), Message.user("and?"), rules=STRICT)
    assert roles(handed) == ["user", "assistant", "tool", "assistant", "user"]


def test_a_paused_turn_stays_last() -> None:
    paused = Message(Role.ASSISTANT, (Text("…"),), meta=MessageMeta(finish_reason=FinishReason.PAUSE, invocation=HERE))
    assert fit(Message.user("go"), paused, rules=STRICT).messages[-1] == paused


def test_empty_text_is_left_out_and_blank_text_where_it_is_refused() -> None:
    turn = by(ELSEWHERE, "", " \n", "x")
    assert fit(Message.user("go"), turn).messages[1].parts == (Text(" \n"), Text("x"))
    assert fit(Message.user("go"), turn, rules=STRICT).messages[1].parts == (Text("x"),)
    assert fit(Message.user("  "), rules=STRICT).messages[0].text == "."


def test_a_system_message_inside_becomes_the_users_where_the_target_has_no_such_place() -> None:
    handed = fit(Message.user("go"), Message.assistant("x"), Message.system("be brief"), rules=LAX)
    assert handed.messages[2] == Message.user("be brief")


def test_a_new_picture_that_the_target_cannot_read_is_refused_before_the_network() -> None:
    with pytest.raises(ModelError, match="here:model-1 cannot read image/png, 3 bytes: it takes text only") as refused:
        fit(Message.user("what is this?", PICTURE), rules=STRICT)
    assert refused.value.code == "unsupported"
    with pytest.raises(ModelError, match="cannot read"):
        fit(Message.user("hi"), Message.assistant("hello"), Message.user(PICTURE), rules=STRICT)


def test_an_old_picture_that_the_target_cannot_read_becomes_a_line() -> None:
    handed = fit(
        Message.user("what is this?", PICTURE), Message.assistant("a cat"), Message.user("sure?"), rules=STRICT
    )
    assert handed.messages[0].text == "what is this?[image/png, 3 bytes: not shown, this model cannot read it]"


def test_a_picture_in_a_result_moves_to_a_user_turn_where_only_that_may_hold_it() -> None:
    handed = fit(Message.user("go"), by(HERE, call("c1")), answer("c1", (Text("see"), PICTURE)))
    assert roles(handed) == ["user", "assistant", "tool", "user"]
    assert handed.messages[3].parts == (PICTURE,)


def test_a_text_file_is_read_as_text_where_files_are_not_taken() -> None:
    handed = fit(Message.user(FileRef(data=b"hello", mime_type="text/plain")), rules=STRICT)
    assert handed.messages[0].text == "hello"


def test_a_partial_answer_goes_as_its_marked_text_and_its_calls_do_not() -> None:
    meta = MessageMeta(invocation=HERE, interrupted=True)
    partial = Message(Role.ASSISTANT, (Thinking("hm"), Text("So the"), call("c1")), meta=meta)
    handed = fit(Message.user("go"), partial, Message.user("go on"))
    assert [part.text for part in handed.messages[1].parts] == ["So the", CUT_OFF]  # type: ignore[union-attr]
    assert fit(*handed.messages).messages == handed.messages
    silent = Message(Role.ASSISTANT, (call("c1"),), meta=meta)
    assert roles(fit(Message.user("go"), silent, Message.user("go on"))) == ["user", "user"]


def test_blank_text_of_a_partial_answer_is_left_out_where_it_is_refused() -> None:
    meta = MessageMeta(invocation=HERE, interrupted=True)
    partial = Message(Role.ASSISTANT, (Text("\n"), Text("So the")), meta=meta)
    handed = fit(Message.user("go"), partial, Message.user("go on"), rules=STRICT)
    assert handed.messages[1].parts == (Text("So the"), Text(CUT_OFF))
    silent = Message(Role.ASSISTANT, (Text("\n"),), meta=meta)
    assert roles(fit(Message.user("go"), silent, Message.user("go on"), rules=STRICT)) == ["user"]


def test_a_rule_given_after_a_picture_does_not_hide_that_it_cannot_be_read() -> None:
    with pytest.raises(ModelError, match="cannot read"):
        fit(Message.user("what is this?", PICTURE), Message.system("be brief"), rules=STRICT)


def test_a_conversation_of_nothing_still_says_something() -> None:
    assert fit(Message.user(), rules=STRICT).messages == (Message.user("."),)
    assert fit(answer("orphan")).messages == (Message.user("."),)


def test_words_and_calls_are_parted_where_they_may_not_share_a_turn() -> None:
    handed = fit(Message.user("go"), by(ELSEWHERE, "well", call("c1")), answer("c1"), rules=PARTED)
    assert roles(handed) == ["user", "assistant", "user", "assistant", "tool"]
    two = fit(Message.user("go"), by(ELSEWHERE, "well"), by(ELSEWHERE, call("c1")), answer("c1"), rules=PARTED)
    assert roles(two) == ["user", "assistant", "user", "assistant", "tool"]


def test_a_turn_does_not_end_in_thinking_where_that_is_refused() -> None:
    rules = TargetRules(opaque_providers=frozenset({"here"}), final_thinking=False, prefill=True)
    signed = Thinking("hm", provider_data={"signature": "s"})
    assert fit(Message.user("go"), by(HERE, "x", signed), rules=rules).messages[1].parts == (Text("x"),)


def test_words_that_are_parted_from_their_calls_do_not_end_in_thinking_either() -> None:
    thought = by(HERE, Thinking("hm"), call("c1"))
    handed = fit(Message.user("go"), thought, answer("c1"), rules=PARTED)
    assert roles(handed) == ["user", "assistant", "tool"]
    assert fit(*handed.messages, rules=PARTED).messages == handed.messages


def test_media_are_taken_only_in_the_ways_that_the_target_reads() -> None:
    rules = TargetRules(user_media=frozenset({"image/"}), type_sources={"image/": frozenset({"data"})}, prefill=True)
    linked = Image("image/png", url="https://example.com/a.png")
    assert fit(Message.user(PICTURE), rules=rules).messages[0].parts == (PICTURE,)
    assert "not shown" in fit(Message.user(linked), Message.assistant("x"), rules=rules).messages[0].text
    with pytest.raises(ModelError, match="image/png by url"):
        fit(Message.user(linked), rules=rules)


def test_positions_say_where_each_message_ended_up() -> None:
    messages = (Message.assistant("hi"), Message.user("a"), Message.user("b"), by(HERE, call("c1")), answer("c1"))
    handed = fit(*messages, rules=STRICT)
    assert [handed.positions[index] for index in range(5)] == [1, 2, 2, 3, 4]


PARTS = st.one_of(
    st.builds(Text, st.sampled_from(["", " ", "x", "longer text"])),
    st.builds(Thinking, st.just("hm"), provider_data=st.none() | st.just({"signature": "s"})),
    st.builds(
        lambda number, name: call(f"call/{number}", name), st.integers(0, 4), st.sampled_from(["look", "a.b", "a_b"])
    ),
    st.just(ProviderItem("item", {"a": 1}, "said")),
)
MESSAGES = st.one_of(
    st.builds(Message.user, st.sampled_from(["go", "", "and?"])),
    st.just(Message.system("rule")),
    st.builds(lambda number: answer(f"call/{number}"), st.integers(0, 4)),
    st.builds(lambda number: answer(f"call/{number}", (Text("see"), PICTURE)), st.integers(0, 4)),
    st.builds(
        lambda origin, parts: by(origin, *parts), st.sampled_from([HERE, ELSEWHERE]), st.lists(PARTS, max_size=4)
    ),
)


@given(st.lists(MESSAGES, max_size=12), st.sampled_from([LAX, STRICT, PARTED]))
def test_any_history_at_all_comes_out_paired_ordered_and_stable(history: list[Message], rules: TargetRules) -> None:
    handed = hand_off(history, target=HERE, rules=rules)
    again = hand_off(handed.messages, handed.tools, target=HERE, rules=rules)
    assert again.messages == handed.messages
    assert again.tools == handed.tools
    assert hand_off(history, target=HERE, rules=rules) == handed
    pending: list[str] = []
    for message in handed.messages:
        assert message.parts
        if message.role is Role.TOOL:
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            assert result.tool_call_id == pending.pop(0)
        else:
            assert not pending
        pending += [part.tool_call_id for part in message.tool_calls]
    assert not pending
    if rules is STRICT and handed.messages:
        order = roles(handed)
        assert order[0] == "user"
        assert all(
            pair not in (("user", "user"), ("assistant", "assistant"), ("tool", "user")) for pair in pairwise(order)
        )


@given(st.lists(MESSAGES, max_size=10), st.lists(MESSAGES, max_size=4), st.sampled_from([LAX, STRICT]))
def test_what_was_sent_is_the_start_of_what_is_sent_next(
    old: list[Message], new: list[Message], rules: TargetRules
) -> None:
    """Up to the last message, which the next one may extend or follow; a turn whose calls are open is not sent yet."""
    old = [*old, Message.assistant("said"), Message.user("asked")]
    new = [message for message in new if message.role is not Role.TOOL]
    sent = hand_off(old, target=HERE, rules=rules).messages
    next_sent = hand_off([*old, Message.assistant("answer"), *new], target=HERE, rules=rules).messages
    assert next_sent[: len(sent) - 1] == sent[:-1]
