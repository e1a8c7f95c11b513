"""Widgets: what they show, what their tools change, and that a broken one costs the others nothing."""

import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import ErrorCode, InvalidValue, ToolSpec
from dragoman.history import (
    AgentState,
    DerivedState,
    LevelOfDetailSections,
    MemoryNotebookWidget,
    ModelInputEntry,
    NotebookEntry,
    NotebookOperation,
    SystemInstructionEntry,
    ToolResultsEntry,
    Widget,
    WidgetRegistry,
    WidgetRenderContext,
    WidgetResult,
    without_live_screen,
)
from tests.history_cases import Clock, answer, call, fresh, output

NOW = datetime(2026, 11, 15, tzinfo=UTC)
CONTEXT = WidgetRenderContext(state=DerivedState(), entries=(), now=NOW)


class Shown:
    """A widget that shows what it is given and whose one tool gives back what it is given; errors are raised."""

    def __init__(self, name: str, shows: Any = None, gives: Any = None, tool: str | None = None) -> None:
        self.name = name
        self.tools: tuple[ToolSpec, ...] = (ToolSpec(tool or f"{name}_tool"),)
        self._shows, self._gives = shows, gives

    def render_live_screen(self, context: WidgetRenderContext) -> str | None:
        if isinstance(self._shows, BaseException):
            raise self._shows
        return self._shows(context) if callable(self._shows) else self._shows  # type: ignore[no-any-return]

    def execute_tool(self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext) -> WidgetResult:
        if isinstance(self._gives, BaseException):
            raise self._gives
        return self._gives  # type: ignore[no-any-return]


def screen_of(*widgets: Widget) -> str | None:
    return WidgetRegistry(widgets).render_live_screen(CONTEXT)


# ---------------------------------------------------------------- the screen


def test_fragments_stand_under_one_heading_in_order_with_blank_lines_between() -> None:
    assert (
        screen_of(Shown("a", "first  \n\n"), Shown("b", "second\nline")) == "# [Live Screen]\n\nfirst\n\nsecond\nline"
    )


@pytest.mark.parametrize("shows", [None, "", " \n"])
def test_what_shows_nothing_takes_no_place(shows: str | None) -> None:
    assert screen_of(Shown("a", shows)) is None
    assert screen_of(Shown("a", shows), Shown("b", "x")) == "# [Live Screen]\n\nx"


def test_a_widget_that_raises_leaves_a_line_in_its_place_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broken = Shown("clock", ValueError("password=hunter2secret"))
    screen = screen_of(Shown("a", "first"), broken, Shown("b", "last"))
    assert screen == "# [Live Screen]\n\nfirst\n\n[clock could not be shown: ValueError]\n\nlast"
    (record,) = caplog.records
    assert record.getMessage().startswith("the widget 'clock' raised ValueError\n")


def test_a_widget_that_renders_no_text_leaves_a_line_in_its_place() -> None:
    assert screen_of(Shown("a", 3)) == "# [Live Screen]\n\n[a could not be shown: it rendered a int, no text]"


def test_to_interrupt_is_no_failure_of_a_widget() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            screen_of(Shown("a", KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_widget_sees_the_state_the_entries_and_the_time() -> None:
    seen: list[WidgetRenderContext] = []
    widget = Shown("a", lambda context: seen.append(context))
    state = fresh("be brief", widgets=[widget])
    entry = state.append_model_input("go")
    (context,) = seen
    assert context.state.system_instruction == "be brief"
    assert (len(context.entries), context.now) == (1, entry.timestamp)


def test_a_broken_widget_does_not_stop_a_turn() -> None:
    state = fresh(widgets=[Shown("a", RuntimeError("x")), MemoryNotebookWidget()])
    state.update_memory_notebook("note")
    entry = state.append_model_input("go")
    screen = without_live_screen(entry.sections.live)[1]
    assert screen == "# [Live Screen]\n\n[a could not be shown: RuntimeError]\n\n## [Memory Notebook]\n\nnote"


# ---------------------------------------------------------------- the registry


def test_two_widgets_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidValue, match="two widgets are called 'a'"):
        WidgetRegistry([Shown("a", tool="x"), Shown("a", tool="y")])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidValue, match="tool called 'x'"):
        WidgetRegistry([Shown("a", tool="x"), Shown("b", tool="x")])


def test_a_widget_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidValue, match="name"):
        WidgetRegistry([Shown("", tool="x")])


def test_tools_are_listed_in_the_order_of_the_widgets() -> None:
    state = fresh(widgets=[Shown("b"), MemoryNotebookWidget(), Shown("a")])
    assert [tool.name for tool in state.enumerate_widget_tools()] == [
        "b_tool",
        "memory_notebook_replace",
        "memory_notebook_append",
        "memory_notebook_replace_text",
        "a_tool",
    ]


def test_our_widget_and_the_tests_widget_are_widgets() -> None:
    assert isinstance(MemoryNotebookWidget(), Widget)
    assert isinstance(Shown("a"), Widget)


# ---------------------------------------------------------------- tools


def test_the_notebook_declares_its_tools_with_the_texts_that_each_needs() -> None:
    *_, replace_text = MemoryNotebookWidget.tools
    assert replace_text.name == "memory_notebook_replace_text"
    assert replace_text.parameter_schema == {
        "type": "object",
        "properties": {
            "old": {
                "type": "string",
                "description": "The passage, exactly as it stands; it must occur exactly once.",
            },
            "new": {"type": "string", "description": "What to put in its place; empty to remove it."},
        },
        "required": ["old", "new"],
        "additionalProperties": False,
    }
    required = [tool.parameter_schema["required"] for tool in MemoryNotebookWidget.tools]
    assert required == [["content"], ["text"], ["old", "new"]]
    assert all(tool.description for tool in MemoryNotebookWidget.tools)


def test_a_list_of_entries_becomes_a_tuple() -> None:
    entries = [NotebookEntry("a"), NotebookEntry("b")]
    assert WidgetResult("done", entries).entries == tuple(entries)  # type: ignore[arg-type]  # a list is taken too


def test_an_unknown_tool_is_a_failure_that_names_those_there_are() -> None:
    result = fresh(widgets=[Shown("a")]).execute_widget_tool("b_tool", {})
    assert (result.error_code, result.entries) == (ErrorCode.UNKNOWN_TOOL, ())
    assert "a_tool" in result.text


def test_a_tool_that_raises_fails_and_says_no_more_than_its_first_line_without_secrets() -> None:
    error = ValueError("wrong key sk-abcdefghijklmnopqrstuvwxyz123456\nsecond line")
    state = fresh(widgets=[Shown("a", gives=error)])
    result = state.execute_widget_tool("a_tool", {})
    assert result == WidgetResult(
        "a_tool failed: ValueError: wrong key [redacted]", (), ErrorCode.TOOL_FAILED, "ValueError"
    )
    assert len(state.entries) == 0


def test_an_exception_without_words_and_one_of_many_are_both_short() -> None:
    for error, most in ((ValueError(), 30), (ValueError("word " * 1000), 260)):
        result = fresh(widgets=[Shown("a", gives=error)]).execute_widget_tool("a_tool", {})
        assert len(result.text) <= most


@pytest.mark.parametrize("gives", [None, "text", 3])
def test_a_tool_that_returns_no_result_fails(gives: Any) -> None:
    result = fresh(widgets=[Shown("a", gives=gives)]).execute_widget_tool("a_tool", {})
    assert result.error_code is ErrorCode.TOOL_FAILED


def test_what_a_tool_changes_is_appended_in_order() -> None:
    gives = WidgetResult("done", (SystemInstructionEntry("new"), NotebookEntry("note")))
    state = fresh(widgets=[Shown("a", gives=gives)])
    result = state.execute_widget_tool("a_tool", {})
    assert list(state.entries) == list(result.entries)
    assert [entry.serial for entry in result.entries] == [0, 1]
    assert (state.system_instruction, state.memory_notebook_snapshot) == ("new", "note")


def test_an_illegal_entry_of_a_tool_fails_it_and_nothing_is_appended() -> None:
    gives = WidgetResult("done", (NotebookEntry("note"), ToolResultsEntry((answer(),))))
    state = fresh(widgets=[Shown("a", gives=gives)])
    result = state.execute_widget_tool("a_tool", {})
    assert result.error_code is ErrorCode.TOOL_FAILED
    assert "result_answers_a_call" in result.text
    assert len(state.entries) == 0


def test_a_plan_appends_nothing() -> None:
    state = fresh()
    planned = state.plan_widget_tool("memory_notebook_replace", {"content": "note"})
    assert len(state.entries) == 0
    state.commit(*state.prepare_all(planned.entries))
    assert state.memory_notebook_snapshot == "note"


def test_a_failure_cannot_have_entries() -> None:
    with pytest.raises(InvalidValue, match="changes nothing"):
        WidgetResult("no", (NotebookEntry("x"),), ErrorCode.TOOL_FAILED)
    with pytest.raises(InvalidValue):
        WidgetResult("no", ("text",))  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="a sequence of entries"):
        WidgetResult("no", "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="widget result: text"):
        WidgetResult(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        WidgetResult("no", 3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the notebook


def edit(state: AgentState, tool: str, **arguments: Any) -> WidgetResult:
    return state.execute_widget_tool(f"memory_notebook_{tool}", arguments)


def test_the_notebook_is_replaced_appended_to_and_edited() -> None:
    state = fresh()
    edit(state, "replace", content="one")
    edit(state, "append", text="two")
    edit(state, "append", text="three\n")
    edit(state, "append", text="four")
    edit(state, "replace_text", old="two\nthree", new="2")
    assert state.memory_notebook_snapshot == "one\n2\nfour"
    operations = [entry.operation for entry in state.entries if isinstance(entry, NotebookEntry)]
    assert operations == [
        NotebookOperation.REPLACE,
        NotebookOperation.APPEND,
        NotebookOperation.APPEND,
        NotebookOperation.APPEND,
        NotebookOperation.REPLACE_TEXT,
    ]


@pytest.mark.parametrize(
    ("old", "says"),
    [("c", "does not occur"), ("", "does not occur"), ("a", "more than once"), ("aa", "more than once")],
)
def test_the_text_to_replace_must_occur_exactly_once(old: str, says: str) -> None:
    state = fresh()
    state.update_memory_notebook("aaa b")  # "aa" occurs twice, overlapping
    result = edit(state, "replace_text", old=old, new="x")
    assert (result.error_code, result.entries) == (ErrorCode.INVALID_ARGUMENTS, ())
    assert says in result.text
    assert state.memory_notebook_snapshot == "aaa b"


@pytest.mark.parametrize("arguments", [{}, {"content": None}, {"content": 3}, {"text": "x"}])
def test_wrong_arguments_are_a_failure(arguments: dict[str, Any]) -> None:
    result = edit(fresh(), "replace", **arguments)
    assert (result.error_code, result.text) == (
        ErrorCode.INVALID_ARGUMENTS,
        "memory_notebook_replace needs content as text",
    )


def test_a_notebook_that_grows_too_long_is_refused_and_stays_as_it_was() -> None:
    state = fresh(widgets=[MemoryNotebookWidget(limit_characters=10)])
    edit(state, "replace", content="0123456789")
    result = edit(state, "append", text="x")
    assert result.error_code is ErrorCode.INVALID_ARGUMENTS
    assert "would have 12 characters, at most 10 fit" in result.text
    with pytest.raises(InvalidValue, match="at most 10 fit"):
        state.update_memory_notebook("x" * 11)
    assert state.memory_notebook_snapshot == "0123456789"
    state.update_memory_notebook("9876543210")
    assert state.memory_notebook_snapshot == "9876543210"


@pytest.mark.parametrize("limit", [0, -1, 2.5, True])
def test_the_limit_must_be_a_number_of_characters(limit: Any) -> None:
    with pytest.raises(InvalidValue, match="limit_characters"):
        MemoryNotebookWidget(limit_characters=limit)


def test_the_widget_refuses_a_tool_that_is_not_its_own() -> None:
    assert MemoryNotebookWidget().execute_tool("other", {}, CONTEXT).error_code is ErrorCode.INVALID_ARGUMENTS


def test_an_empty_notebook_shows_nothing() -> None:
    assert screen_of(MemoryNotebookWidget()) is None


def test_a_replay_restores_the_notebook_and_its_screen() -> None:
    state = fresh()
    edit(state, "replace", content="note")
    rebuilt = AgentState.from_entries(state.entries, clock=Clock())
    assert rebuilt.memory_notebook_snapshot == "note"
    assert rebuilt.append_model_input("go").sections == state.append_model_input("go").sections


def test_a_notebook_edited_in_a_turn_is_on_the_screen_of_its_results() -> None:
    state = fresh()
    state.append_model_input("go")
    state.append_model_output(output(call("c", "memory_notebook_replace")))
    said = edit(state, "replace", content="new")
    entry = state.append_tool_results([answer("c", said.text, "memory_notebook_replace")])
    assert "new" in str(without_live_screen(entry.results[0].result.live)[1])
    assert "new" not in entry.results[0].text()


def test_a_screen_of_another_session_is_never_shown() -> None:
    before = fresh()
    before.update_memory_notebook("theirs")
    theirs = before.append_model_input("hello").sections
    before.append_model_output(output(call()))
    (result,) = before.append_tool_results([answer()]).results

    state = fresh()
    assert state.append_model_input(ModelInputEntry(sections=theirs)).sections == LevelOfDetailSections.of_text("hello")
    state.append_model_output(output(call()))
    assert state.append_tool_results([result]).results == (answer(),)
    state.update_memory_notebook("ours")
    doubled = replace(theirs, live=(*theirs.live, theirs.live[-1]))
    entry = state.append_model_input(ModelInputEntry(sections=doubled))
    assert "theirs" not in str(entry.sections)
    assert "ours" in str(entry.sections)


def test_a_screen_already_on_an_entry_is_replaced_by_the_newest() -> None:
    state = fresh()
    state.update_memory_notebook("new")
    old = ModelInputEntry.of("go", sections=ModelInputEntry.of("go").sections.with_live_section("[LiveScreen]", "old"))
    assert "new" in str(without_live_screen(state.append_model_input(old).sections.live)[1])
