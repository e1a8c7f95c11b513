"""Context messages: roles without a provider, levels by age, and the messages that a model is handed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman import ErrorCode, Image, InvalidValue, Message, Role, Text, TokenUsage, ToolCall, ToolResult
from dragoman.history import (
    LIVE_SCREEN,
    AgentState,
    ContextMessage,
    ContextMessageRole,
    InterruptedOutput,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    ModelInputAtDetail,
    ModelInputEntry,
    ModelInputMessage,
    ModelOutputEntry,
    ModelOutputMessage,
    Section,
    SystemInstructionMessage,
    SystemMessage,
    TokenUsageCarrier,
    ToolCallCarrier,
    ToolCallResult,
    ToolExecutionStatus,
    ToolResultsAtDetail,
    ToolResultsEntry,
    ToolResultsMessage,
    live_screen_of,
    to_messages,
)
from dragoman.message import MessageMeta, ModelInvocationDescriptor, Part
from dragoman.testing import histories
from tests.history_cases import answer, call, fresh, output

NOW = datetime(2026, 11, 15, tzinfo=UTC)
PICTURE = Image("image/png", b"x")
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def levels(name: str) -> LevelOfDetailSections:
    return LevelOfDetailSections((Section("", f"{name} live"),), (Section("", f"{name} summary"),))


def said(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    """Return who says what; of results their text."""
    return [(message.role.value, "".join(text_of(part) for part in message.parts)) for message in messages]


def text_of(part: Part) -> str:
    if isinstance(part, ToolResult):
        return (
            part.content
            if isinstance(part.content, str)
            else "".join(text_of(each) for each in part.content if not isinstance(each, str))
        )
    return part.text if isinstance(part, Text) else f"<{part.kind}>"


def session() -> AgentState:
    state = fresh("be brief")
    state.append_model_input(ModelInputEntry.of("one live", PICTURE, sections=levels("one")))
    state.append_model_output(output(call()))
    state.append_tool_results([answer("c", result=levels("two"))])
    state.append_model_output(Message.assistant("done"))
    return state


# ---------------------------------------------------------------- the seed's rule


def test_the_newest_input_or_results_are_live_and_the_older_ones_summaries() -> None:
    assert said(to_messages(session().render_live_context())) == [
        ("system", "be brief"),
        ("user", "one summary"),
        ("assistant", "words<tool_call>"),
        ("tool", "two live"),
        ("assistant", "done"),
    ]


def test_another_policy_may_choose_the_levels() -> None:
    context = session().render_live_context(lambda age: LevelOfDetail.LIVE)
    assert said(to_messages(context))[1] == ("user", "one live<image>")


def test_the_system_instruction_in_force_comes_first() -> None:
    state = session()
    state.set_system_instruction("be thorough")
    system, *_ = state.render_live_context()
    assert isinstance(system, SystemInstructionMessage)
    assert (system.instruction, system.timestamp) == ("be thorough", state.entries[-1].timestamp)
    state.set_system_instruction("")
    assert state.render_live_context()[0].role is ContextMessageRole.MODEL_INPUT


def test_facts_that_are_not_contextual_never_reach_a_model() -> None:
    state = session()
    before = to_messages(state.render_live_context())
    state.update_memory_notebook("note")
    assert to_messages(state.render_live_context()) == before


# ---------------------------------------------------------------- the live screen


def test_only_the_newest_live_screen_is_shown_and_it_comes_last() -> None:
    state = fresh()
    state.update_memory_notebook("first")
    state.append_model_input("one")
    state.append_model_output(output(call()))
    state.update_memory_notebook("second")
    state.append_tool_results([answer()])
    messages = to_messages(state.render_live_context())
    screen = "# [Live Screen]\n\n## [Memory Notebook]\n\nsecond"
    assert said(messages)[-2:] == [("tool", "found"), ("user", screen)]
    assert sum("Live Screen" in text for _, text in said(messages)) == 1


def test_a_live_screen_has_the_run_and_the_time_of_what_it_follows() -> None:
    state = fresh()
    state.update_memory_notebook("note")
    entry = state.append_model_input("one", run_id="r")
    *_, screen = to_messages(state.render_live_context())
    assert (screen.run_id, screen.timestamp) == ("r", entry.timestamp)


def test_after_an_output_no_live_screen_is_shown() -> None:
    state = fresh()
    state.update_memory_notebook("note")
    state.append_model_input("one")
    state.append_model_output(Message.assistant("done"))
    assert said(to_messages(state.render_live_context())) == [("user", "one"), ("assistant", "done")]


def test_a_live_screen_can_go_inside_the_last_result() -> None:
    state = fresh()
    state.update_memory_notebook("note")
    state.append_model_input("one")
    screen = "# [Live Screen]\n\n## [Memory Notebook]\n\nnote"
    context = state.render_live_context()
    assert said(to_messages(context, screen_in_result=True))[-1] == ("user", screen)  # no result to go into
    for text, attachments, shown in (
        ("found", (), f"found\n\n{screen}"),
        ("", (), screen),
        ("found", (PICTURE,), f"found<image>{screen}"),
    ):
        entry = state.append_model_output(output(call()))
        state.append_tool_results([answer(entry.tool_calls[0].tool_call_id, text, attachments=attachments)])
        messages = to_messages(state.render_live_context(), screen_in_result=True)
        assert said(messages)[-1] == ("tool", shown)


# ---------------------------------------------------------------- interruptions


def interrupted(state: AgentState, *parts: Part) -> None:
    partial = Message(Role.ASSISTANT, parts, meta=MessageMeta(usage=TokenUsage(input_tokens=1)))
    state.append(InterruptionEntry(ErrorCode.TIMEOUT, "slow", partial if parts else None))


def test_a_partial_is_shown_as_interrupted_if_an_input_follows() -> None:
    state = fresh()
    state.append_model_input("one")
    interrupted(state, Text("half an ans"))
    state.append_model_input("go on")
    messages = to_messages(state.render_live_context())
    assert said(messages) == [("user", "one"), ("assistant", "half an ans"), ("user", "go on")]
    assert messages[1].meta is not None
    assert messages[1].meta.interrupted is True
    assert messages[1].timestamp is not None


def test_a_partial_is_not_shown_while_nothing_follows_or_an_output_does() -> None:
    state = fresh()
    state.append_model_input("one")
    interrupted(state, Text("half an ans"))
    assert said(to_messages(state.render_live_context())) == [("user", "one")]
    state.append_model_output(Message.assistant("whole"))
    state.append_model_input("two")
    assert [role for role, _ in said(to_messages(state.render_live_context()))] == ["user", "assistant", "user"]


def test_of_several_attempts_the_last_one_is_shown() -> None:
    state = fresh()
    state.append_model_input("one")
    interrupted(state, Text("first"))
    interrupted(state, Text("second"))
    state.append_model_input("two")
    assert said(to_messages(state.render_live_context()))[1] == ("assistant", "second")


def test_an_interruption_without_a_partial_shows_nothing() -> None:
    state = fresh()
    state.append_model_input("one")
    interrupted(state)
    state.append_model_input("two")
    assert said(to_messages(state.render_live_context())) == [("user", "one"), ("user", "two")]


def test_the_calls_of_a_partial_are_no_tool_calls() -> None:
    invocation = ModelInvocationDescriptor("p", "s", "m")
    meta = MessageMeta(interrupted=True, invocation=invocation)
    partial = Message(Role.ASSISTANT, (Text("a"), call()), meta=meta)
    shown = InterruptedOutput(InterruptionEntry(ErrorCode.TIMEOUT, "", partial))
    assert (shown.contents, shown.tool_calls, shown.invocation, shown.usage) == (("a",), (), invocation, None)
    bare = InterruptedOutput(InterruptionEntry(ErrorCode.TIMEOUT))
    assert (bare.contents, bare.invocation, bare.usage, to_messages([bare])) == ((), None, None, ())


# ---------------------------------------------------------------- protocols


def kinds(message: object) -> set[str]:
    protocols = {
        "system": SystemMessage,
        "input": ModelInputMessage,
        "output": ModelOutputMessage,
        "results": ToolResultsMessage,
        "calls": ToolCallCarrier,
        "usage": TokenUsageCarrier,
    }
    assert isinstance(message, ContextMessage)
    return {name for name, protocol in protocols.items() if isinstance(message, protocol)}


def test_each_context_message_keeps_the_promises_of_its_role_and_of_no_other() -> None:
    context = session().render_live_context()
    assert [kinds(message) for message in context] == [
        {"system"},
        {"input"},
        {"output", "calls", "usage"},
        {"results"},
        {"output", "calls", "usage"},
    ]
    assert [message.role.value for message in context] == [
        "system",
        "model_input",
        "model_output",
        "tool_result",
        "model_output",
    ]
    assert kinds(InterruptedOutput(InterruptionEntry(ErrorCode.TIMEOUT))) == {"output", "calls", "usage"}


def test_an_entry_at_a_detail_shows_that_level() -> None:
    entry = ModelInputEntry.of("one live", PICTURE, sections=levels("one"), metadata={"a": 1})
    live, summary = ModelInputAtDetail(entry), ModelInputAtDetail(entry, LevelOfDetail.SUMMARY)
    assert live.content_sections == entry.sections.live
    assert (live.attachments, summary.attachments) == ((PICTURE,), ())
    assert summary.content_sections == entry.sections.summary
    assert (summary.metadata, summary.timestamp) == ({"a": 1}, None)
    results = ToolResultsAtDetail(ToolResultsEntry((answer(result=levels("two")),), "partly"), LevelOfDetail.SUMMARY)
    (result,) = results.results
    assert result == ToolCallResult("f", "c", ToolExecutionStatus.SUCCESS, (Section("", "two summary"),))
    assert (results.execute_error, results.metadata, results.timestamp) == ("partly", {}, None)


def test_an_entry_as_it_is_counts_as_live() -> None:
    sections = levels("one").with_live_section(LIVE_SCREEN, "screen")
    entry = ModelInputEntry.of("one live", sections=sections)
    results = ToolResultsEntry((answer(),))
    assert said(to_messages([results, entry])) == [("tool", "found"), ("user", "one live"), ("user", "screen")]
    assert (live_screen_of(entry), live_screen_of(results)) == ("screen", None)
    assert live_screen_of(ModelOutputEntry(output())) is None


# ---------------------------------------------------------------- somebody else's classes


class Foreign:
    """A context message of another library: it has what its keywords say."""

    def __init__(self, role: ContextMessageRole, **fields: Any) -> None:
        self.role = role
        self.timestamp: datetime | None = NOW
        self.metadata: Mapping[str, Any] = {}
        for name, value in fields.items():
            setattr(self, name, value)


class Case(NamedTuple):
    message: Foreign
    expected: tuple[Message, ...]


INVOCATION = ModelInvocationDescriptor("p", "s", "m")
REQUEST = ToolCall(tool_name="f", tool_call_id="c", raw_args_text='{"x": 1}', arguments={"x": 1})
SECTIONS = (Section("", "a"), Section("k", "b"), Section(LIVE_SCREEN, "screen"))
SCREEN = Message.user("screen", timestamp=NOW)
CASES = [
    Case(
        Foreign(ContextMessageRole.SYSTEM, instruction="be brief"),
        (Message.system("be brief", timestamp=NOW),),
    ),
    Case(
        Foreign(ContextMessageRole.MODEL_INPUT, content_sections=SECTIONS, attachments=(PICTURE,)),
        (Message.user("a\n\n# k\nb", PICTURE, timestamp=NOW), SCREEN),
    ),
    Case(
        Foreign(
            ContextMessageRole.MODEL_OUTPUT,
            invocation=INVOCATION,
            contents=("a", "b"),
            tool_calls=(REQUEST,),
            usage=TokenUsage(input_tokens=1),
        ),
        (
            Message(
                Role.ASSISTANT,
                (Text("a"), Text("b"), ToolCall("c", "f", {"x": 1}, '{"x": 1}')),
                timestamp=NOW,
                meta=MessageMeta(invocation=INVOCATION, usage=TokenUsage(input_tokens=1)),
            ),
        ),
    ),
    Case(
        Foreign(
            ContextMessageRole.TOOL_RESULT,
            results=(
                ToolCallResult("f", "c", ToolExecutionStatus.SKIPPED, SECTIONS[:1]),
                ToolCallResult("f", "d", ToolExecutionStatus.SUCCESS, SECTIONS),
            ),
            execute_error=None,
        ),
        (
            Message.tool(ToolResult("c", "a", True), timestamp=NOW),
            Message.tool(ToolResult("d", "a\n\n# k\nb"), timestamp=NOW),
            SCREEN,
        ),
    ),
    Case(
        Foreign(
            ContextMessageRole.TOOL_RESULT,
            results=(
                ToolCallResult("f", "c", ToolExecutionStatus.SUCCESS, SECTIONS[:1]),
                ToolCallResult("f", "d", ToolExecutionStatus.SUCCESS, SECTIONS[:1]),
            ),
            execute_error="the disk was full",
        ),
        (
            Message.tool(ToolResult("c", "a"), timestamp=NOW),
            Message.tool(ToolResult("d", "a\n\nthe disk was full"), timestamp=NOW),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.message.role for case in CASES])
def test_a_context_message_of_another_class_is_translated_by_what_it_has(case: Case) -> None:
    assert to_messages([case.message]) == case.expected


def test_what_keeps_no_promise_is_refused() -> None:
    with pytest.raises(InvalidValue, match="context message"):
        to_messages([Foreign(ContextMessageRole.SYSTEM)])


# ---------------------------------------------------------------- any history


@given(histories.legal_histories())
@unhurried
def test_every_result_follows_its_call_in_the_messages_of_any_history(state: AgentState) -> None:
    open_ids: list[str] = []
    for message in to_messages(state.render_live_context()):
        if message.role is Role.TOOL:
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            assert result.tool_call_id == open_ids.pop(0)
        elif message.role is Role.ASSISTANT and not (message.meta and message.meta.interrupted):
            assert open_ids == []
            open_ids = [each.tool_call_id for each in message.tool_calls]


@given(histories.legal_histories())
@unhurried
def test_the_live_screen_is_shown_once_at_most_and_last(state: AgentState) -> None:
    messages = to_messages(state.render_live_context())
    screens = [at for at, message in enumerate(messages) if message.text.startswith("# [Live Screen]")]
    assert screens in ([], [len(messages) - 1])


@given(histories.legal_histories())
@unhurried
def test_rendering_is_repeatable_and_changes_nothing(state: AgentState) -> None:
    before = state.derived
    assert to_messages(state.render_live_context()) == to_messages(state.render_live_context())
    assert state.derived is before
