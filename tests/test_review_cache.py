"""Why the cache missed, case by case: each cause, its entry and its sentence, on small sessions of every wire API."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import (
    FinishReason,
    InvalidValue,
    Message,
    Reasoning,
    Role,
    SQLiteStore,
    Text,
    ToolSpec,
    UnreadableData,
)
from dragoman.cli.conversations import read_path
from dragoman.history import (
    HistoryEntry,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    Section,
    ToolSetEntry,
)
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from dragoman.review import CacheCall, CacheCause, find_calls, review_cache
from dragoman.wire import WIRE_APIS
from dragoman.wire.cachedparts import RequestSplitter
from tests.cache_stage import ClientStage, Stage
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture
from tests.conversations import TARGETS, History, Target

LONG = "A long story. " * 800
LOOK = ToolSpec("look", "Look at a file.")
TALK = History("talk", f"You help. {LONG}", (), (LOOK,))
CLAUDE, GPT, GEMINI = TARGETS["anthropic"], TARGETS["openai-responses"], TARGETS["gemini"]
CACHING = [name for name in TARGETS if name != "bedrock-llama"]


def say(stage: Stage, text: str = "Go on.") -> None:
    stage.say(Message.user(text))
    stage.ask(Message.assistant("Fine."))


def talk(target: Target = CLAUDE, calls: int = 2, **settings: Any) -> Stage:
    """A session with so many calls, none of which missed the cache."""
    stage = Stage(target, TALK, **settings)
    for _ in range(calls):
        say(stage)
    return stage


def last_of(stage: Stage | ClientStage, **given: Any) -> CacheCall:
    return review_cache(stage.state.entries, session_id="stage", **given)[-1]


# ---------------------------------------------------------------- causes of an agent's session


def test_the_first_call_and_what_extends_it() -> None:
    first, second = review_cache(talk().state.entries, session_id="stage")
    assert (first.cause, first.is_miss, first.compared_with, first.shared_bytes) == ("first", False, None, 0)
    assert (second.cause, second.is_miss, second.compared_with) == ("kept", False, first.serial)
    assert second.shared_bytes == first.request_bytes
    assert second.expected_tokens is not None
    assert second.reported_tokens is not None
    assert 0.8 < second.expected_tokens / second.reported_tokens < 1.25


@pytest.mark.parametrize("name", CACHING)
def test_a_changed_instruction_is_named_by_its_entry(name: str) -> None:
    stage = talk(TARGETS[name])
    entry = stage.state.set_system_instruction(f"You help quickly. {LONG}")
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.entry_serial) == (CacheCause.SYSTEM, entry.serial)
    assert found.sentence == f"The system instruction was changed at #{entry.serial}."
    assert "quickly" in found.after
    assert "quickly" not in found.before


@pytest.mark.parametrize("name", [name for name in CACHING if name != "deepseek"])
def test_changed_tools_are_named(name: str) -> None:
    stage = talk(TARGETS[name])
    stage.tools = (msgspec.structs.replace(LOOK, description="Look twice."), ToolSpec("find", "Find it."))
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.sentence) == (
        CacheCause.TOOLS,
        "The tools changed: `find` was added, `look` was changed.",
    )
    assert found.entry_serial is not None
    assert isinstance(stage.state.entries[found.entry_serial], ToolSetEntry)
    stage.tools = ()
    say(stage)
    assert last_of(stage).sentence == "The tools changed: `look` was removed, `find` was removed."


def test_tools_in_another_order_are_a_change() -> None:
    stage = Stage(CLAUDE, TALK)
    stage.tools = (LOOK, ToolSpec("find", "Find it."))
    say(stage)
    stage.tools = stage.tools[::-1]
    say(stage)
    assert last_of(stage).sentence == "The tools changed: their order."


def test_another_model_starts_from_nothing_and_the_first_one_is_found_again() -> None:
    stage = talk()
    stage.aim_at(GPT)
    say(stage)
    stage.aim_at(CLAUDE)
    say(stage)
    calls = review_cache(stage.state.entries, session_id="stage")
    assert [call.cause for call in calls] == ["first", "kept", "model", "kept"]
    assert calls[2].sentence.startswith("The model changed: openai:gpt-5 was not asked before")
    assert calls[3].compared_with == calls[1].serial


@pytest.mark.parametrize("name", CACHING)
@pytest.mark.parametrize("reports", [True, False])
def test_a_pause_loses_the_cache(name: str, reports: bool) -> None:  # a parameter of the test
    stage = talk(TARGETS[name], reports=reports)
    stage.wait(7_200)
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.expected_tokens) == (CacheCause.EXPIRED, 0)
    assert found.sentence.startswith("2.0 hours have passed since the last call to this model; its cache lives about ")
    assert found.seconds is not None
    assert found.seconds > 7_200


def test_a_cache_that_was_read_after_a_pause_has_lived() -> None:
    stage = talk()
    stage.provider.life = 10_000.0
    stage.wait(400)
    say(stage)
    assert last_of(stage).cause is CacheCause.KEPT


def test_a_pause_is_measured_by_the_time_that_the_caller_knows() -> None:
    stage = talk(reports=False)
    stage.wait(400)
    say(stage)
    assert last_of(stage).cause is CacheCause.EXPIRED
    assert last_of(stage, cache_seconds=3_600).cause is CacheCause.KEPT


def test_a_reset_is_named() -> None:
    stage = talk()
    entry = stage.state.reset()
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.entry_serial) == (CacheCause.RESET, entry.serial)


@pytest.mark.parametrize("name", CACHING)
def test_the_screen_of_widgets_is_named(name: str) -> None:
    stage = talk(TARGETS[name])
    stage.state.update_memory_notebook("A thought.")
    say(stage)
    assert last_of(stage).cause is CacheCause.KEPT  # it stands behind all that is shared
    say(stage)
    found = last_of(stage)
    assert found.cause is CacheCause.WIDGET
    assert found.shared_bytes is not None
    assert found.shared_bytes > 10_000


def test_an_epoch_is_named_with_its_reason() -> None:
    stage = Stage(CLAUDE, History("t", "You help.", (), (LOOK,)), budget=4_000)
    reason = None
    while reason is None:
        stage.say(Message.user(f"{stage.state.next_serial} {LONG[:3_000]}"))
        reason = stage.ask(Message.assistant("Fine."))
    found = last_of(stage)
    assert (found.cause, reason) == (CacheCause.EPOCH, "budget")
    assert found.sentence == f"An epoch began (budget): the context was rebuilt at #{found.entry_serial}."


def test_a_provider_that_forgets_is_named() -> None:
    stage = talk()
    stage.provider.forget()
    say(stage)
    found = last_of(stage)
    assert found.cause is CacheCause.PROVIDER
    assert found.sentence.startswith("Nothing has changed in the request, and the provider reports 0 cached tokens of ")


@pytest.mark.parametrize(
    ("target", "change", "told"),
    [
        (CLAUDE, {"reasoning": Reasoning(effort="low")}, "The setting `thinking` changed."),
        (CLAUDE, {"tool_choice": "none"}, "The setting `tool_choice` changed."),
        (GPT, {"output_schema": {"type": "object"}}, "The setting `text.format` changed."),
    ],
)
def test_a_changed_setting_is_named(target: Target, change: dict[str, Any], told: str) -> None:
    stage = talk(target)
    stage.model.update_config(**change)
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.sentence) == (CacheCause.SETTINGS, told)
    assert found.entry_serial is not None
    assert isinstance(stage.state.entries[found.entry_serial], ToolSetEntry)


def test_a_setting_that_matters_to_some_providers_is_named_where_nothing_else_changed() -> None:
    stage = talk(GPT)
    stage.model.update_config(reasoning=Reasoning(effort="high"))
    say(stage)
    assert last_of(stage).cause is CacheCause.KEPT
    stage.model.update_config(reasoning=Reasoning(effort="low"))
    stage.provider.forget()
    say(stage)
    found = last_of(stage)
    assert found.cause is CacheCause.SETTINGS
    assert found.sentence.startswith("The setting `reasoning` changed: the provider reports 0 cached tokens of about ")


def test_a_setting_that_no_cache_looks_at_is_no_cause() -> None:
    stage = talk(TARGETS["openai-chat"])
    stage.model.update_config(temperature=0.5)
    stage.provider.forget()
    say(stage)
    assert last_of(stage).cause is CacheCause.PROVIDER


def test_the_policy_simple_changes_levels() -> None:
    stage = Stage(CLAUDE, TALK, policy="simple")
    for number in range(3):
        levels = LevelOfDetailSections(*((Section("", f"{word} {number}"),) for word in ("whole", "short", "name")))
        stage.state.append(ModelInputEntry((Text(f"whole {number}"),), levels))
        stage.ask(Message.assistant("Fine."))
    assert [call.cause for call in review_cache(stage.state.entries, session_id="stage")] == ["first", "level", "level"]


def test_what_the_rules_of_a_model_change_is_named() -> None:
    """The Messages API refuses white space at the end of an answer that it goes on from, and only there."""
    stage = Stage(CLAUDE, TALK)
    stage.say(Message.user("Go on."))
    waits = Message(Role.ASSISTANT, (Text("Wait. "),), meta=MessageMeta(finish_reason=FinishReason.PAUSE))
    for answer in (waits, Message.assistant("Fine."), Message.assistant("Fine.")):
        stage.ask(answer)
        if answer is not waits:
            stage.say(Message.user("Go on."))
    found = review_cache(stage.state.entries, session_id="stage")
    assert [call.cause for call in found] == ["first", "kept", "handoff"]


def test_a_short_request_is_said_to_be_short() -> None:
    stage = Stage(CLAUDE, History("short", "You help.", (), (LOOK,)))
    say(stage)
    say(stage)
    found = last_of(stage)
    assert (found.cause, found.is_miss, found.expected_tokens) == (CacheCause.SHORT, False, 0)
    assert found.sentence.endswith("this provider caches 1,024 or more.")


def test_a_model_without_a_cache_is_said_to_have_none() -> None:
    found = last_of(talk(TARGETS["bedrock-llama"]))
    assert (found.cause, found.sentence) == (CacheCause.OFF, "This request marks nothing for the cache.")


def test_records_without_tool_sets_are_compared_by_the_conversation_alone() -> None:
    """Those of other programs, and of earlier versions."""
    stage = talk()
    stage.provider.forget()
    say(stage)
    kept = [entry for entry in stage.state.entries if not isinstance(entry, ToolSetEntry)]
    older = [msgspec.structs.replace(entry, serial=serial, metadata={}) for serial, entry in enumerate(kept)]
    first, second, third = review_cache(older)
    assert (first.cause, second.cause, third.cause) == ("first", "kept", "unknown")
    assert "the record does not hold all that was sent" in third.sentence
    assert third.is_exact is None


@pytest.mark.parametrize("name", ["claude_code.jsonl", "claude_code_fork.jsonl"])
def test_no_change_of_tools_is_told_of_another_programs_sessions(name: str) -> None:
    (found,) = read_path(str(Path(__file__).parent / "samples" / "interop" / name))
    calls = review_cache(found.entries)
    assert calls
    assert CacheCause.TOOLS not in {call.cause for call in calls}


def test_a_set_that_lacks_a_tool_leaves_the_setup_unknown() -> None:
    entries = tuple(
        msgspec.structs.replace(entry, specs=()) if isinstance(entry, ToolSetEntry) else entry
        for entry in talk().state.entries
    )
    assert [call.setup for call in find_calls(entries)] == [None, None]


def test_a_model_of_no_known_provider_is_compared_too() -> None:
    whom = ModelInvocationDescriptor("elsewhere", "its-own", "m")
    stage = talk(reports=False)
    entries = [
        msgspec.structs.replace(
            entry, message=msgspec.structs.replace(entry.message, meta=MessageMeta(invocation=whom))
        )
        if isinstance(entry, ModelOutputEntry)
        else entry
        for entry in stage.state.entries
    ]
    assert [call.cause for call in review_cache(entries)] == ["first", "kept"]


def test_answers_that_no_model_is_known_of_are_no_calls() -> None:
    stage = Stage(CLAUDE, TALK)
    stage.say(Message.user("Hello."))
    stage.state.append_model_output(Message.assistant("Hello."))
    assert review_cache(stage.state.entries) == ()


# ---------------------------------------------------------------- forks


def test_a_fork_is_compared_with_what_its_parent_asked_last() -> None:
    stage = talk(calls=3)
    parent = stage.state.entries
    forked_at = find_calls(parent)[0].serial
    stage.fork(forked_at)
    say(stage, "Something else.")
    alone = review_cache(stage.state.entries, session_id="stage")[-1]
    assert alone.cause is CacheCause.KEPT  # compared with the call that both share
    found = last_of(stage, forked_at=forked_at, parent_entries=parent)
    assert (found.cause, found.entry_serial, found.compared_with) == (CacheCause.FORK, forked_at, None)
    assert found.sentence.startswith(f"The session was forked at #{forked_at}: ")
    say(stage)
    assert last_of(stage, forked_at=forked_at, parent_entries=parent).cause is CacheCause.KEPT


# ---------------------------------------------------------------- clients of the gateway


def client(target: Target = CLAUDE) -> tuple[ClientStage, list[Message]]:
    stage, said = ClientStage(target, TALK), list[Message]()
    for number in range(3):
        said.append(Message.user(f"Question {number}."))
        stage.ask(said, Message.assistant("Fine."))
        said.append(Message.assistant("Fine."))
    return stage, [*said, Message.user("The last question.")]


@pytest.mark.parametrize("name", CACHING)
def test_what_a_client_adds_is_no_miss_and_what_it_changes_is(name: str) -> None:
    stage, said = client(TARGETS[name])
    assert [call.cause for call in review_cache(stage.state.entries)] == ["first", "kept", "kept"]
    said[2] = Message.user("Another question.")
    stage.ask(said, Message.assistant("Fine."))
    found = last_of(stage)
    assert found.cause is CacheCause.EDIT
    assert found.sentence == f"The client changed its history at {found.path}."
    assert ("Another" in found.after, "Question 1" in found.before) == (True, True)


def test_what_a_client_leaves_out_at_the_end_is_a_change() -> None:
    stage, said = client()
    stage.ask(said[:2], Message.assistant("Fine."))
    assert last_of(stage).cause is CacheCause.EDIT


def test_a_client_may_change_system_and_tools() -> None:
    stage, said = client()
    stage.system = f"You help slowly. {LONG}"
    stage.ask(said, Message.assistant("Fine."))
    assert last_of(stage).cause is CacheCause.SYSTEM
    stage.tools = (LOOK, ToolSpec("find"))
    stage.ask(said, Message.assistant("Fine."))
    assert last_of(stage).sentence == "The tools changed: `find` was added."


def test_messages_that_a_client_brought_along_are_no_calls() -> None:
    stage = ClientStage(CLAUDE, TALK)
    stage.state.append_model_input("Long ago.")
    stage.state.append_model_output(
        Message(Role.ASSISTANT, Message.assistant("Yes.").parts, meta=MessageMeta(invocation=CLAUDE.invocation))
    )
    stage.ask([Message.user("Now.")], Message.assistant("Fine."))
    assert [call.cause for call in review_cache(stage.state.entries)] == ["first"]


def test_a_body_that_is_no_request_is_unknown() -> None:
    stage, _ = client()
    stage.ask_raw("no JSON", Message.assistant("Fine."))
    found = last_of(stage)
    assert (found.cause, found.is_miss, found.request_bytes) == (CacheCause.UNKNOWN, False, None)
    assert "no JSON object" in found.sentence


def test_a_body_that_is_too_deep_is_unknown() -> None:
    stage, _ = client()
    stage.reports = False
    stage.ask_raw(DEEP.decode(), Message.assistant("Fine."))
    assert last_of(stage).cause is CacheCause.UNKNOWN


def test_tools_that_are_no_objects_are_compared_all_the_same() -> None:
    stage, _ = client()
    stage.reports = False
    for tools in ('["x"]', "[null]"):
        marked = '{"messages": [], "cache_control": {"type": "ephemeral"}, "tools": ' + tools + "}"
        stage.ask_raw(marked, Message.assistant("Fine."))
    assert last_of(stage).cause is CacheCause.TOOLS


# ---------------------------------------------------------------- requests, as caches compare them


def test_every_wire_api_can_be_split() -> None:
    for api in WIRE_APIS:
        assert RequestSplitter(api).split(b"{}").items == ()
    with pytest.raises(InvalidValue):
        RequestSplitter("no-api")


DEEP = b'{"messages":[{"role":"user","content":' + b"[" * 5_000 + b"]" * 5_000 + b"}]}"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages":1}', b'{"messages":{}}', b"\xff", DEEP])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableData):
        RequestSplitter("anthropic-messages").split(body)


@pytest.mark.parametrize("body", [{"messages": [1, None, "a", []]}, {"tools": 3, "system": {"a": 1}, "messages": []}])
@pytest.mark.parametrize("api", WIRE_APIS)
def test_odd_bodies_are_split_all_the_same(api: str, body: dict[str, Any]) -> None:
    RequestSplitter(api).split(json.dumps({**body, "input": body["messages"], "contents": body["messages"]}))


def test_marks_are_taken_out_and_noted() -> None:
    marked = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    plain = {"type": "text", "text": "b"}
    splitter = RequestSplitter("anthropic-messages")
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, marked]}]}
    first = splitter.split(json.dumps(body))
    body["messages"][0]["content"][1] = plain
    second = splitter.split(json.dumps(body))
    assert [item.data for item in first.items] == [item.data for item in second.items]
    assert (first.marks, first.is_long_lived, second.marks, second.is_long_lived) == ((3,), True, (), False)
    assert first.path_at(2) == "messages[0].content[1]"


def test_a_mark_too_far_behind_what_is_cached_finds_nothing() -> None:
    stage, said = ClientStage(CLAUDE, TALK), [Message.user(LONG)]
    stage.ask(said, Message.assistant("Fine."))
    said += [Message.assistant("Fine."), Message.user(*["One block more."] * 30)]
    stage.provider.forget()
    stage.ask(said, Message.assistant("Fine."))
    found = last_of(stage)
    assert found.cause is CacheCause.LOOKBACK
    assert found.sentence.startswith("What is cached ends more than 20 blocks before the next mark")


# ---------------------------------------------------------------- the command


def kept_session(user: User, entries: Sequence[HistoryEntry], session_id: str) -> None:
    async def keep() -> None:
        async with SQLiteStore(user.store) as store:
            await store.create(session_id)
            if entries:
                await store.append(session_id, list(entries), expected_serial=0)

    asyncio.run(keep())


def test_the_command_prints_calls_and_causes(user: User) -> None:
    stage = talk()
    stage.state.set_system_instruction("You help quickly.")
    say(stage)
    kept_session(user, stage.state.entries, "stage")
    printed = user.run("sessions", "cache", "stage").out
    lines = printed.splitlines()
    assert lines[0] == "session stage  3 model calls, 1 cache miss"
    assert [line.split()[-1] for line in lines[3:6]] == ["first", "kept", "system"]
    assert lines[-1].endswith("The system instruction was changed at #6.")
    told = user.run("sessions", "cache", "stage", "--json").json
    assert told["session"] == "stage"
    assert [(call["cause"], call["isMiss"], call["isExact"]) for call in told["calls"]] == [
        ("first", False, True),
        ("kept", False, True),
        ("system", True, True),
    ]


def test_the_command_says_that_there_are_no_calls(user: User) -> None:
    kept_session(user, (), "empty")
    assert user.run("sessions", "cache", "empty").out == "session empty has no model calls\n"
