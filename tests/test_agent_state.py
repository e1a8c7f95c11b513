"""AgentState: what it appends, in which order things happen, and that a replay gives the same."""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dragoman import (
    ErrorCode,
    Image,
    InvalidValue,
    Message,
    Role,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    render_request,
)
from dragoman.history import (
    AgentState,
    AgentStatus,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    CompactionEntry,
    HistoryEntry,
    InterruptionEntry,
    LastError,
    LevelOfDetail,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookOperation,
    RunFinishedEntry,
    RunStartedEntry,
    RunStatus,
    SystemInstructionEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    to_messages,
    without_live_screen,
)
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from tests.history_cases import START, Clock, answer, call, fresh, output, refused, with_calls

# ---------------------------------------------------------------- making one


def test_a_new_state_without_an_instruction_is_empty_and_idle() -> None:
    state = fresh()
    assert list(state.entries) == []
    assert (state.status, state.current_run_id, state.next_serial) == (AgentStatus.IDLE, "", 0)
    assert (state.system_instruction, state.memory_notebook_snapshot, state.cost_usage) == (None, "", 0.0)


def test_nothing_counts_as_reset_before_the_first_reset() -> None:
    state = fresh("be brief")
    assert state.derived.reset_serial == -1
    state.reset()
    assert state.derived.reset_serial == 1


def test_the_instruction_is_the_first_entry() -> None:
    state = fresh("be brief")
    (entry,) = state.entries
    assert isinstance(entry, SystemInstructionEntry)
    assert state.system_instruction == "be brief"


def test_without_an_id_and_a_clock_there_are_a_random_id_and_the_time_in_utc() -> None:
    one, other = AgentState.create_default("a"), AgentState.create_default("a")
    assert one.session_id != other.session_id
    assert one.entries[0].timestamp is not None
    assert one.entries[0].timestamp.tzinfo is UTC


def test_entries_get_a_serial_without_gaps_a_stable_id_and_the_clocks_time() -> None:
    state = fresh("be brief")
    for text in ("a", "b"):
        state.append_model_input(text)
    assert [entry.serial for entry in state.entries] == [0, 1, 2]
    assert [entry.entry_id for entry in state.entries] == ["s:0", "s:1", "s:2"]
    assert [entry.timestamp for entry in state.entries] == [START + timedelta(seconds=at) for at in (1, 2, 3)]


def test_a_clock_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidValue, match="time zone"):
        fresh(clock=lambda: datetime(2026, 1, 1)).reset()


def test_the_entries_handed_out_stay_as_they_are() -> None:
    state = fresh("a")
    before = state.entries
    state.append_model_input("b")
    assert len(before) == 1
    assert len(state.entries) == 2
    assert before[-1] is state.entries[0]
    assert list(reversed(state.entries)) == [state.entries[1], state.entries[0]]
    assert state.entries[1:] == [state.entries[1]]
    with pytest.raises(IndexError):
        before[1]


# ---------------------------------------------------------------- appending


def test_an_input_is_taken_as_parts_or_as_an_entry() -> None:
    state = fresh()
    picture = Image("image/png", b"x")
    first = state.append_model_input("look", picture, metadata={"a": 1})
    second = state.append_model_input(ModelInputEntry.of("look"), run_id="r", metadata={"b": 2})
    assert first.parts == (Text("look"), picture)
    assert (first.metadata, second.metadata, second.run_id) == ({"a": 1}, {"b": 2}, "r")
    assert list(state.entries) == [first, second]


def test_an_entry_keeps_of_its_run_and_metadata_what_the_append_does_not_say() -> None:
    state = fresh()
    noted = ModelInputEntry.of("look", run_id="own", metadata={"own": 1})
    as_it_is = state.append_model_input(noted)
    other_run = state.append_model_input(noted, run_id="r")
    other_notes = state.append_model_input(noted, metadata={"b": 2})
    assert [(each.run_id, each.metadata) for each in (as_it_is, other_run, other_notes)] == [
        ("own", {"own": 1}),
        ("r", {"own": 1}),
        ("own", {"b": 2}),
    ]


def test_an_output_and_its_results_close_the_turn() -> None:
    state = with_calls(call("a"), call("b"))
    assert [each.tool_call_id for each in state.pending_tool_calls] == ["a", "b"]
    entry = state.append_tool_results([answer("a"), answer("b")])
    assert [message.parts[0].tool_call_id for message in entry.messages()] == ["a", "b"]  # type: ignore[union-attr]
    assert state.pending_tool_calls == ()


def test_entries_take_the_open_run_unless_they_name_one() -> None:
    state = fresh()
    state.append(RunStartedEntry(run_id="run"))
    assert state.append_model_input("a").run_id == "run"
    assert state.append_model_output(Message.assistant("b", run_id="other")).run_id == "other"
    assert state.append(RunFinishedEntry(RunStatus.COMPLETED)).run_id == "run"


def test_results_can_be_formed_from_what_has_finished() -> None:
    state = with_calls(call("a"), call("b"))
    for each in ("b", "a"):
        state.append(ToolStartedEntry(each, "f"))
        state.append(ToolFinishedEntry(answer(each, f"result of {each}")))
    entry = state.append_tool_results()
    assert [result.text() for result in entry.results] == ["result of a", "result of b"]


def test_calls_without_a_result_get_the_execute_error() -> None:
    state = with_calls(call("a"), call("b"))
    state.append(ToolStartedEntry("a", "f"))
    state.append(ToolFinishedEntry(answer("a")))
    entry = state.append_tool_results(execute_error="no connection")
    assert [(result.text(), result.error_code) for result in entry.results] == [
        ("found", None),
        ("no connection", ErrorCode.TOOL_FAILED),
    ]
    assert entry.execute_error == "no connection"


def test_an_execute_error_beside_all_results_is_told_once_at_the_end_of_the_last() -> None:
    state = with_calls(call("a"), call("b"))
    entry = state.append_tool_results([answer("a"), answer("b")], execute_error="the disk was full")
    for told in (entry.messages(), entry.messages(LevelOfDetail.GIST), to_messages(state.render_live_context())):
        texts = [str(part.content) for message in told for part in message.parts if isinstance(part, ToolResult)]
        assert texts == ["found", "found\n\nthe disk was full"]


def test_an_execute_error_that_a_result_says_is_not_told_again() -> None:
    state = with_calls(call("a"), call("b"))
    entry = state.append_tool_results(execute_error="no connection")
    assert [message.parts[0].content for message in entry.messages()] == ["no connection"] * 2  # type: ignore[union-attr]


def test_a_reset_deletes_nothing_and_empties_the_notebook() -> None:
    state = with_calls()
    state.update_memory_notebook("remember")
    before = list(state.entries)
    state.reset()
    assert list(state.entries)[:-1] == before
    assert (state.memory_notebook_snapshot, state.pending_tool_calls) == ("", ())
    assert state.render_live_context() == ()
    state.append_model_input("again")
    assert len(state.render_live_context()) == 1


def test_a_host_changes_the_notebook_by_an_entry() -> None:
    state = fresh()
    entry = state.update_memory_notebook("note")
    assert (entry.operation, state.memory_notebook_snapshot) == (NotebookOperation.HOST, "note")
    state.update_memory_notebook(None)
    assert state.memory_notebook_snapshot == ""
    bare = fresh(widgets=())
    bare.update_memory_notebook("note")
    assert bare.memory_notebook_snapshot == "note"


def test_the_live_screen_is_written_into_inputs_and_the_last_result() -> None:
    state = fresh()
    state.update_memory_notebook("note")
    entered = state.append_model_input("go")
    state.append_model_output(output(call("a"), call("b")))
    results = state.append_tool_results([answer("a"), answer("b")])
    screen = "# [Live Screen]\n\n## [Memory Notebook]\n\nnote"
    assert without_live_screen(entered.sections.live)[1] == screen
    assert entered.sections.summary == entered.sections.gist == (("", "go"),)
    assert without_live_screen(results.results[1].result.live)[1] == screen
    assert without_live_screen(results.results[0].result.live)[1] is None
    assert entered.messages()[0].text == "go"


# ---------------------------------------------------------------- tool ids


def test_a_repeated_id_is_renamed_and_the_wires_own_is_kept() -> None:
    state = with_calls(call("call_0"))
    state.append_tool_results([answer("call_0")])
    entry = state.append_model_output(output(call("call_0"), call("new")))
    first, second = entry.message.tool_calls
    assert (first.tool_call_id, first.provider_data) == ("call_0~2", {"id": "call_0"})
    assert (second.tool_call_id, second.provider_data) == ("new", None)
    assert [each.tool_call_id for each in state.pending_tool_calls] == ["call_0~2", "new"]


def test_an_id_that_the_provider_data_hold_already_stays() -> None:
    state = with_calls(call("c"))
    state.append_tool_results([answer()])
    again = msgspec.structs.replace(call("c"), provider_data={"id": "wire", "k": 1})
    (renamed,) = state.append_model_output(output(again)).message.tool_calls
    assert renamed.provider_data == {"id": "wire", "k": 1}


def test_ids_repeated_inside_one_message_are_renamed_too() -> None:
    state = fresh()
    broken = ToolCall.parse("c", "f", "{")
    message = Message(Role.ASSISTANT, (call("c"), broken, call("c~2")), meta=MessageMeta(parse_failures=("c",)))
    entry = state.append_model_output(message)
    assert [each.tool_call_id for each in entry.message.tool_calls] == ["c", "c~2", "c~2~2"]
    assert entry.message.meta is not None
    assert entry.message.meta.parse_failures == ("c~2",)


def test_a_message_without_repeated_ids_is_kept_as_it_is() -> None:
    message = output(call("c"))
    assert fresh().append_model_output(message).message is message


@pytest.mark.parametrize(
    ("name", "specification"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic-messages"),
        ("openai:gpt-5", "openai-responses"),
        ("openai-chat:gpt-5", "openai-chat"),
        ("google:gemini-2.5-pro", "gemini"),
        ("bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock-converse"),
    ],
)
def test_a_renamed_call_and_its_result_go_back_to_their_model_under_one_id(name: str, specification: str) -> None:
    provider, model = name.split(":", 1)
    state = fresh()
    for _ in range(2):
        state.append_model_input("go")
        message = Message.assistant(
            call("call_0"), invocation=ModelInvocationDescriptor(provider, specification, model)
        )
        (request,) = state.append_model_output(message).tool_calls
        state.append_tool_results([answer(request.tool_call_id)])
    body = render_request(name, to_messages(state.render_live_context())).body
    ids = [
        found.decode() for found in re.findall(rb'"(?:id|call_id|tool_call_id|tool_use_id|toolUseId)":"([^"]+)"', body)
    ]
    assert len(ids) == 4
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_ids_stay_unique_over_many_turns_and_a_rebuild() -> None:
    state = fresh()
    for turn in range(50):
        if turn == 25:
            state = AgentState.from_entries(state.entries, clock=Clock())
        entry = state.append_model_output(output(call("call_0")))
        state.append_tool_results([answer(entry.tool_calls[0].tool_call_id)])
    ids = [
        each.tool_call_id for entry in state.entries if isinstance(entry, ModelOutputEntry) for each in entry.tool_calls
    ]
    assert ids == ["call_0", *(f"call_0~{number}" for number in range(2, 51))]


# ---------------------------------------------------------------- what follows from entries


def test_the_status_follows_the_entries() -> None:
    state = fresh()
    seen: list[AgentStatus] = []

    def then(entry: HistoryEntry | None = None) -> None:
        if entry is not None:
            state.append(entry)
        seen.append(state.status)

    then()
    then(RunStartedEntry(run_id="r"))
    state.append_model_input("go")
    then()
    state.append_model_output(output(call()))
    then()
    then(ApprovalAskedEntry("c", "f"))
    then(ApprovalAnsweredEntry("c", True))
    then(ToolStartedEntry("c", "f"))
    then(ToolFinishedEntry(answer()))
    state.append_tool_results()
    then()
    then(RunFinishedEntry(RunStatus.FAILED, ErrorCode.TIMEOUT, "slow"))
    assert state.last_error == LastError(ErrorCode.TIMEOUT, "slow")
    state.append_model_input("again")
    then()
    assert " ".join(seen) == (
        "idle preparing preparing tool_running awaiting_human tool_running tool_running tool_running preparing "
        "failed idle"
    )


def test_open_calls_tell_how_far_they_are() -> None:
    state = with_calls(call("a"), call("b"), call("c"))
    state.append(ApprovalAskedEntry("a", "f"))
    state.append(ApprovalAskedEntry("b", "f"))
    state.append(ApprovalAnsweredEntry("b", True))
    state.append(ToolStartedEntry("c", "f"))
    derived = state.derived
    assert [entry.tool_call_id for entry in derived.approvals_asked] == ["a"]
    assert [entry.tool_call_id for entry in derived.approvals_answered] == ["b"]
    assert [entry.tool_call_id for entry in derived.started_tool_calls] == ["c"]
    state.append(ToolStartedEntry("b", "f"))
    state.append(ToolFinishedEntry(answer("c")))
    derived = state.derived
    assert derived.approvals_answered == ()
    assert [each.tool_call_id for each in derived.pending_tool_calls] == ["a", "b"]
    assert derived.finished_tool_calls == (answer("c"),)


def test_usage_and_cost_add_up_over_outputs_interruptions_and_compactions() -> None:
    state = fresh()
    meta = MessageMeta(usage=TokenUsage(input_tokens=10, output_tokens=1, cost=0.5))
    state.append_model_output(Message(Role.ASSISTANT, (), meta=meta))
    partial = Message(Role.ASSISTANT, (), meta=msgspec.structs.replace(meta, interrupted=True))
    state.append(InterruptionEntry(ErrorCode.TIMEOUT, "slow", partial))
    state.append(CompactionEntry(0, 1, "short", usage=TokenUsage(input_tokens=5)))
    state.reset()
    assert state.token_usage == TokenUsage(input_tokens=25, output_tokens=2, cost=1.0)
    assert math.isclose(state.cost_usage, 1.0)


def test_the_last_error_stands_until_something_succeeds() -> None:
    state = fresh()
    state.append(InterruptionEntry(ErrorCode.TIMEOUT, "slow"))
    state.append_model_input("go on")
    assert state.last_error == LastError(ErrorCode.TIMEOUT, "slow")
    state.append_model_output(output())
    assert state.last_error is None


# ---------------------------------------------------------------- sink and two phases


def test_the_sink_sees_an_entry_before_memory_has_it() -> None:
    seen: list[tuple[int, int]] = []
    state: AgentState = fresh(sink=lambda entries: seen.append((entries[0].serial, len(state.entries))))
    state.append_model_input("a")
    state.append_model_output(output(call()))
    state.execute_widget_tool("memory_notebook_append", {"text": "x"})
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_a_sink_that_raises_leaves_memory_unchanged_and_the_next_append_takes_its_place() -> None:
    kept: list[HistoryEntry] = []
    fail = [True]

    def sink(entries: Iterable[HistoryEntry]) -> None:
        if fail[0]:
            raise OSError("disk full")
        kept.extend(entries)

    state = fresh(sink=sink)
    before = state.derived
    for attempt in (
        lambda: state.append_model_output(output(call())),
        lambda: state.execute_widget_tool("memory_notebook_append", {"text": "x"}),
        lambda: state.reset(),
    ):
        with pytest.raises(OSError, match="disk full"):
            attempt()
        assert (len(state.entries), state.derived) == (0, before)
    fail[0] = False
    entry = state.append_model_output(output(call()))
    assert (kept, list(state.entries), entry.serial) == ([entry], [entry], 0)
    assert entry.tool_calls[0].tool_call_id == "c"


def test_an_illegal_entry_never_reaches_the_sink() -> None:
    kept: list[HistoryEntry] = []
    state = fresh(sink=kept.extend)
    refused(lambda: state.append_tool_results([answer()]))
    assert kept == []


def test_a_sink_that_appends_itself_is_found_out() -> None:
    inner = [True]

    def sink(_: object) -> None:
        if inner:
            inner.clear()
            state.reset()

    state: AgentState = fresh(sink=sink)
    assert refused(lambda: state.append_model_input("a")) == "serial_follows"
    assert len(state.entries) == 1


def test_prepare_changes_nothing_and_commit_appends_what_was_prepared() -> None:
    state = fresh("be brief")
    before = state.derived
    entry = state.prepare(ModelOutputEntry(output(call(), call())))
    assert (entry.serial, entry.entry_id) == (1, "s:1")
    assert [each.tool_call_id for each in entry.tool_calls] == ["c", "c~2"]
    assert state.derived is before
    state.commit(entry)
    assert state.entries[-1] is entry
    assert refused(lambda: state.commit(entry)) == "nothing_edited"


def test_what_was_prepared_before_another_append_is_refused() -> None:
    state = fresh()
    entry = state.prepare(ModelInputEntry.of("late"))
    state.append_model_input("first")
    assert refused(lambda: state.commit(entry)) == "nothing_edited"


def test_several_entries_are_prepared_one_after_the_other() -> None:
    state = fresh()
    entries = state.prepare_all([ModelInputEntry.of("a"), ModelOutputEntry(output(call()))])
    assert [entry.serial for entry in entries] == [0, 1]
    assert len(state.entries) == 0
    state.commit(*entries)
    assert [each.tool_call_id for each in state.pending_tool_calls] == ["c"]
    assert refused(lambda: state.prepare_all([ToolResultsEntry((answer(),)), ToolResultsEntry((answer(),))])) == (
        "one_result_per_call"
    )
    assert len(state.entries) == 2


def test_several_entries_are_appended_all_or_none_and_reach_the_sink_together() -> None:
    handed: list[tuple[HistoryEntry, ...]] = []
    state = fresh(sink=handed.append)
    entries = state.append_all([ModelInputEntry.of("a"), ModelOutputEntry(output(call()))])
    assert handed == [entries]
    assert state.entries == entries
    before = state.derived
    twice = [ToolResultsEntry((answer(),)), ToolResultsEntry((answer(),))]
    assert refused(lambda: state.append_all(twice)) == "one_result_per_call"
    assert state.append_all([]) == ()
    assert (state.derived, len(handed)) == (before, 1)
    assert refused(lambda: state.state_at(0).append_all([])) == "past_is_read_only"


def test_a_sink_that_fails_leaves_none_of_several_entries() -> None:
    def sink(_: object) -> None:
        raise OSError("the disk is full")

    state = fresh(sink=sink)
    with pytest.raises(OSError, match="full"):
        state.append_all([ModelInputEntry.of("a"), ModelInputEntry.of("b")])
    assert len(state.entries) == 0


def test_a_follower_commits_what_the_writer_recorded() -> None:
    follower = fresh()
    writer = fresh("be brief", sink=lambda entries: follower.commit(*entries))
    writer.append_model_input("a")
    writer.append_model_output(output(call()))
    assert follower.derived == writer.derived
    follower.commit()
    assert follower.entries == writer.entries


def test_a_prepared_output_that_is_never_committed_takes_no_ids() -> None:
    state = fresh()
    state.prepare(ModelOutputEntry(output(call("a"), call("b"))))
    entry = state.append_model_output(output(call("b"), call("a")))
    assert [each.tool_call_id for each in entry.tool_calls] == ["b", "a"]
    assert list(state.derived.call_ids) == ["b", "a"]


# ---------------------------------------------------------------- the past, and replay


def test_a_model_is_told_which_invocation_it_was() -> None:
    invocation = ModelInvocationDescriptor("p", "s", "m")
    entry = fresh().append_model_output(Message.assistant("a", invocation=invocation))
    assert entry.invocation == invocation
