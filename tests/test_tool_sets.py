"""Tool sets: recorded when they change, named by content, and a changed one as an epoch that costs nothing."""

from datetime import timedelta

import pytest

from dragoman import Message, Role, ToolCall, ToolSpec, UnreadableData
from dragoman.context import ContextBuildInput, ContextBuildResult, ContextManager
from dragoman.errors import REDACTED
from dragoman.history import (
    AgentState,
    CallSetup,
    HistoryToolCallResult,
    ToolSetEntry,
    ToolSets,
    entry_from_json,
    entry_to_json,
    tool_digest,
)
from dragoman.history.toolsets import RESULT_LIMIT_BYTES
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from dragoman.request import ContextConfig, ToolsConfig
from tests.context_cases import START

CLAUDE = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
GPT = ModelInvocationDescriptor("openai", "openai-responses", "gpt-5")
LOOK = ToolSpec("look", "Look at a file.", {"properties": {"path": {"type": "string"}}})
FIND = ToolSpec("find", "Find a word.")
BOTH = CallSetup(tools=(LOOK, FIND))


def recorded(sets: ToolSets, entries: list[ToolSetEntry], whom: ModelInvocationDescriptor, setup: CallSetup) -> bool:
    """Append what a call with this setup wants to have recorded; return whether it wanted something."""
    sets.extend(entries)
    change = sets.find_change(whom, setup)
    if change is not None:
        entries.append(change)
        sets.extend(entries)
    return change is not None


# ---------------------------------------------------------------- when, and what


def test_a_set_is_recorded_once_while_it_stays() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    assert [recorded(sets, entries, CLAUDE, BOTH) for _ in range(3)] == [True, False, False]
    equal = CallSetup(tools=(ToolSpec("look", "Look at a file.", dict(LOOK.parameter_schema)), FIND))
    assert not recorded(sets, entries, CLAUDE, equal)


def test_no_tools_and_no_settings_are_not_recorded() -> None:
    assert ToolSets().find_change(CLAUDE, CallSetup()) is None


def test_a_set_that_loses_its_last_tool_is_recorded() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    recorded(sets, entries, CLAUDE, BOTH)
    assert recorded(sets, entries, CLAUDE, CallSetup())
    assert sets.setup_for(CLAUDE) == CallSetup()


def test_a_spec_is_written_once_whatever_sets_it_is_in() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    for whom, setup in ((CLAUDE, BOTH), (CLAUDE, CallSetup(tools=(FIND,))), (CLAUDE, BOTH), (GPT, BOTH)):
        assert recorded(sets, entries, whom, setup)
    assert [len(entry.specs) for entry in entries] == [2, 0, 0, 0]
    assert entries[2].digests == entries[3].digests == (tool_digest(LOOK), tool_digest(FIND))


def test_each_model_has_its_own_set() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    recorded(sets, entries, CLAUDE, BOTH)
    recorded(sets, entries, GPT, CallSetup(tools=(FIND,)))
    for _ in range(3):  # models that take turns cost nothing
        assert not recorded(sets, entries, CLAUDE, BOTH)
        assert not recorded(sets, entries, GPT, CallSetup(tools=(FIND,)))
    assert sets.setup_for(CLAUDE).tools == (LOOK, FIND)
    assert sets.setup_for(GPT).tools == (FIND,)


def test_the_order_of_tools_counts() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    recorded(sets, entries, CLAUDE, BOTH)
    assert recorded(sets, entries, CLAUDE, CallSetup(tools=(FIND, LOOK)))


@pytest.mark.parametrize(
    "setup",
    [
        CallSetup(system="Be brief."),
        CallSetup(settings={"temperature": 0.5}),
        CallSetup(text_calls="xml"),
        CallSetup(withheld=("media",)),
        CallSetup(result_limit_bytes=100),
        CallSetup(policy="simple"),
    ],
)
def test_whatever_shapes_a_request_is_recorded_and_read_back(setup: CallSetup) -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    assert recorded(sets, entries, CLAUDE, setup)
    assert not recorded(sets, entries, CLAUDE, setup)
    again = ToolSets()
    again.extend([entry_from_json(entry_to_json(entry)) for entry in entries])
    assert again.setup_for(CLAUDE) == setup
    assert again.find_change(CLAUDE, setup) is None


def test_secrets_in_settings_are_recorded_blank_and_once() -> None:
    servers = [{"name": "docs", "authorization_token": "hunter2", "url": "https://x"}]
    setup = CallSetup(settings={"extensions": {"mcp_servers": servers}})
    sets, entries = ToolSets(), list[ToolSetEntry]()
    assert recorded(sets, entries, CLAUDE, setup)
    assert not recorded(sets, entries, CLAUDE, setup)
    assert b"hunter2" not in entry_to_json(entries[0])
    assert b"https://x" in entry_to_json(entries[0])


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "x-api-key", "key", "access_token", "Authorization", "authorisation", "auth", "hf_key"],
)
def test_a_setting_with_the_name_of_a_secret_is_recorded_blank(name: str) -> None:
    entry = ToolSetEntry(CLAUDE, settings={"extensions": {name: "hunter2"}})
    assert entry.settings["extensions"] == {name: REDACTED}


@pytest.mark.parametrize("name", ["prompt_cache_key", "promptCacheKey", "cache-key", "author", "authors", "authority"])
def test_a_setting_that_only_looks_like_a_secret_is_recorded_as_it_is(name: str) -> None:
    entry = ToolSetEntry(CLAUDE, settings={"extensions": {name: "team-1"}})
    assert entry.settings["extensions"] == {name: "team-1"}


def test_the_set_that_a_context_offered_is_kept_where_another_was_sent() -> None:
    sets, entries = ToolSets(), list[ToolSetEntry]()
    recorded(sets, entries, CLAUDE, CallSetup(tools=(LOOK,), offered=(LOOK, FIND)))
    recorded(sets, entries, CLAUDE, CallSetup(tools=(LOOK, FIND), offered=(LOOK, FIND)))
    assert entries[0].offered != ""
    assert entries[1].offered == ""


def test_a_set_of_which_no_entry_has_a_tool_is_unreadable() -> None:
    sets = ToolSets()
    sets.extend([ToolSetEntry(CLAUDE, (tool_digest(LOOK),))])
    with pytest.raises(UnreadableData, match="no entry before it has the tool"):
        sets.setup_for(CLAUDE)


def test_the_limit_of_results_that_records_rely_on_is_that_of_the_settings() -> None:
    assert ToolsConfig().result_limit_bytes == RESULT_LIMIT_BYTES


# ---------------------------------------------------------------- a changed set is a free epoch


class Talk:
    """A conversation that grows, with a context before each answer."""

    def __init__(self, *, records: bool = True) -> None:
        self.now = START
        self.state = AgentState.create_default("Be brief.", session_id="s", clock=lambda: self.now)
        self.manager = ContextManager(ContextConfig(budget_tokens=8_000))
        self.sets = ToolSets()
        self.records = records
        self.state.append_model_input("Look at everything.")

    def ask(self, *tools: ToolSpec) -> ContextBuildResult:
        """Build a context, record what it wants, and have the model look at one more file."""
        self.now += timedelta(seconds=5)
        given = ContextBuildInput(entries=self.state.entries, now=self.now, tools=tools, invocation=CLAUDE)
        built = self.manager.build_context(given)
        for entry in built.entries:
            self.state.append(entry)
        self.sets.extend(self.state.entries)
        change = self.sets.find_change(CLAUDE, CallSetup(tools=built.tool_specs))
        if change is not None and self.records:
            self.state.append(change)
        call = ToolCall(f"c{self.state.next_serial}", "look", {"path": "a"})
        said = Message(Role.ASSISTANT, (call,), meta=MessageMeta(invocation=CLAUDE))
        output = self.state.append_model_output(said)
        text = "\n".join(f"line {line} of {output.serial}" for line in range(40))
        self.state.append_tool_results([HistoryToolCallResult.of_text(output.tool_calls[0], text)])
        return built

    def epochs(self, *sets: tuple[ToolSpec, ...]) -> list[str | None]:
        """Return which epochs begin where the calls have these tools in turn."""
        return [self.ask(*tools).stats.epoch for tools in sets]


def test_a_changed_tool_set_begins_an_epoch_once() -> None:
    talk = Talk()
    assert talk.epochs(*[(LOOK,)] * 12) == [None] * 12
    assert talk.epochs(*[(LOOK, FIND)] * 3) == ["tools changed", None, None]


def test_without_a_record_of_tools_none_begins() -> None:
    talk = Talk(records=False)
    assert talk.epochs(*[(LOOK,)] * 12, (LOOK, FIND)) == [None] * 13


def test_a_short_conversation_is_left_alone() -> None:
    assert Talk().epochs((LOOK,), (LOOK, FIND)) == [None, None]


def test_sets_that_take_turns_begin_no_epoch_each_time() -> None:
    talk = Talk()
    assert talk.epochs(*[(LOOK,)] * 12, (LOOK, FIND))[-1] == "tools changed"
    assert talk.epochs((LOOK,)) == ["tools changed"]  # the first with `recall`, which the first epoch has added
    assert talk.epochs((LOOK, FIND), (LOOK,), (LOOK, FIND), (LOOK,)) == [None] * 4


def test_updates_name_the_same_epoch() -> None:
    talk = Talk()
    talk.epochs(*[(LOOK,)] * 12)
    given = ContextBuildInput(entries=talk.state.entries, now=talk.now, tools=(FIND,), invocation=CLAUDE)
    (epoch,) = talk.manager.compute_context_updates(given).entries
    assert epoch.reason == "tools changed"
