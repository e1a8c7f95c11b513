"""Widgets: what an agent always sees beside the conversation, and the tools that change it. Every change is an entry.

A widget renders from the derived state it is given and keeps none of its own, so a replay restores it. Knows nothing
of appending: `execute_tool` returns the entries, `AgentState` appends them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import join_surrogates
from ..errors import ErrorCode, InvalidValue, is_interrupt, redact, report_raised, type_name
from ..message import require_name, require_text
from ..toolspec import ToolSpec
from .derived import DerivedState
from .entries import HistoryEntry, NotebookEntry, NotebookOperation

__all__ = [
    "MemoryNotebookWidget",
    "Widget",
    "WidgetRegistry",
    "WidgetRenderContext",
    "WidgetResult",
    "describe_failure",
]

_FAILURE_LIMIT = 200  # characters of an exception's first line


class WidgetRenderContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a widget may look at: the state before the entry that is being made, the entries recorded so far, the time.

    Of several entries that are appended together, the state has seen those before; the record has none of them yet.
    """

    state: DerivedState
    entries: Sequence[HistoryEntry]
    now: datetime


class WidgetResult(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What a widget's tool said, and the entries that record what it changed; a failure has a code and no entries.

    `error_type` is the type of the exception that the widget raised, if it raised one.
    """

    text: str
    entries: tuple[HistoryEntry, ...] = ()
    error_code: ErrorCode | None = None
    error_type: str | None = None

    def __post_init__(self) -> None:
        require_text("widget result: text", self.text)
        if not isinstance(self.entries, (tuple, list)):
            raise InvalidValue.of("widget result: entries", self.entries, "a sequence of entries")
        force_setattr(self, "entries", tuple(self.entries))
        if not all(isinstance(entry, HistoryEntry) for entry in self.entries):
            raise InvalidValue("widget result: entries must be HistoryEntry values")
        if self.error_code is not None and self.entries:
            raise InvalidValue("widget result: a failure changes nothing, so it has no entries")


@runtime_checkable
class Widget(Protocol):
    """Something an agent sees and may change. Its `name` and the names of its tools are unique among the widgets."""

    @property
    def name(self) -> str:
        """What the widget is called where it fails."""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What a model may call to change it."""

    def render_live_screen(self, context: WidgetRenderContext) -> str | None:
        """Return Markdown or plain text for the LiveScreen, or None for nothing."""

    def execute_tool(self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext) -> WidgetResult:
        """Return what one of its tools says and changes. A tool that raises has failed and changes nothing."""


class WidgetRegistry:
    """Widgets in their order on the screen. A widget that raises loses its own section alone."""

    def __init__(self, widgets: Iterable[Widget] = ()) -> None:
        self._widgets = tuple(widgets)
        self._owners: dict[str, Widget] = {}
        names: set[str] = set()
        tools: list[ToolSpec] = []
        for widget in self._widgets:
            require_name("widget: name", widget.name)
            if widget.name in names:
                raise InvalidValue(f"two widgets are called {widget.name!r}")
            names.add(widget.name)
            for tool in widget.tools:
                if tool.name in self._owners:
                    raise InvalidValue(f"two widgets have a tool called {tool.name!r}")
                self._owners[tool.name] = widget
                tools.append(tool)
        self._tools = tuple(tools)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of all widgets, in order."""
        return self._tools

    def host_notebook(self, content: str | None) -> NotebookEntry:
        """Return the entry for a notebook that the host sets; raise InvalidValue if the widget takes less text."""
        for widget in self._widgets:
            if isinstance(widget, MemoryNotebookWidget):
                return widget.replaced_by_host(content)
        return NotebookEntry(content or "", NotebookOperation.HOST)

    def render_live_screen(self, context: WidgetRenderContext) -> str | None:
        """Return the LiveScreen: a heading and what each widget shows, blank lines between; None if none shows any."""
        shown = (_rendered(widget, context) for widget in self._widgets)
        fragments = [fragment for fragment in shown if fragment]
        return "\n\n".join(["# [Live Screen]", *fragments]) if fragments else None

    def execute_tool(self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext) -> WidgetResult:
        """Return what the tool of that name says; an unknown one and one that raises give a failure."""
        widget = self._owners.get(name)
        if widget is None:
            known = ", ".join(self._owners) or "none"
            return WidgetResult(f"There is no widget tool {name!r}. There are: {known}.", (), ErrorCode.UNKNOWN_TOOL)
        try:
            result = widget.execute_tool(name, arguments, context)
        except BaseException as error:  # a user's widget: whatever it does, the turn goes on
            if is_interrupt(error):
                raise
            report_raised(error, f"the widget {widget.name!r}")
            said = f"{name} failed: {describe_failure(error)}"
            return WidgetResult(said, (), ErrorCode.TOOL_FAILED, type_name(error))
        if not isinstance(result, WidgetResult):
            seen = type(result).__name__
            return WidgetResult(f"{name} failed: it returned a {seen}, no result", (), ErrorCode.TOOL_FAILED)
        return result


def describe_failure(error: BaseException) -> str:
    """Return an exception as a model or a log may see it: its type and first line, without secrets, capped."""
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001  # an exception that cannot even say what it is
        lines = []
    said = redact(lines[0])[:_FAILURE_LIMIT] if lines else ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _rendered(widget: Widget, context: WidgetRenderContext) -> str | None:
    try:
        fragment = widget.render_live_screen(context)
    except BaseException as error:  # a user's widget: whatever it does, the turn goes on
        if is_interrupt(error):
            raise
        report_raised(error, f"the widget {widget.name!r}")
        return f"[{widget.name} could not be shown: {type(error).__name__}]"
    if fragment is None:
        return None
    if not isinstance(fragment, str):
        return f"[{widget.name} could not be shown: it rendered a {type(fragment).__name__}, no text]"
    return fragment.rstrip()


# ---------------------------------------------------------------- the notebook


def _text_tool(name: str, description: str, **fields: str) -> ToolSpec:
    properties = {field: {"type": "string", "description": says} for field, says in fields.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema)


_NOTEBOOK_TOOLS: dict[NotebookOperation, ToolSpec] = {
    NotebookOperation.REPLACE: _text_tool(
        "memory_notebook_replace",
        "Replace the whole memory notebook, which you always see on the live screen.",
        content="The new notebook.",
    ),
    NotebookOperation.APPEND: _text_tool(
        "memory_notebook_append",
        "Add lines at the end of the memory notebook.",
        text="What to add.",
    ),
    NotebookOperation.REPLACE_TEXT: _text_tool(
        "memory_notebook_replace_text",
        "Replace a passage of the memory notebook.",
        old="The passage, exactly as it stands; it must occur exactly once.",
        new="What to put in its place; empty to remove it.",
    ),
}
_OPERATIONS = {tool.name: operation for operation, tool in _NOTEBOOK_TOOLS.items()}


class MemoryNotebookWidget:
    """A text that the agent keeps in sight and edits. Its content is that of the newest notebook entry."""

    name = "memory_notebook"
    tools: tuple[ToolSpec, ...] = tuple(_NOTEBOOK_TOOLS.values())

    def __init__(self, *, limit_characters: int = 20_000) -> None:
        if type(limit_characters) is not int or limit_characters < 1:
            raise InvalidValue.of("limit_characters", limit_characters, "a whole number from 1 up")
        self._limit = limit_characters

    def render_live_screen(self, context: WidgetRenderContext) -> str | None:
        """Return the notebook under its heading; nothing while it is blank."""
        notebook = context.state.notebook
        return f"## [Memory Notebook]\n\n{notebook}" if notebook.strip() else None

    def execute_tool(self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext) -> WidgetResult:
        """Return the entry that holds the changed notebook, or what was wrong with the arguments."""
        operation = _OPERATIONS.get(name)
        if operation is None:
            return _refusal(f"{name!r} is no tool of the notebook")
        names = _NOTEBOOK_TOOLS[operation].parameter_schema["required"]
        texts = [arguments.get(field) for field in names]
        if not all(isinstance(text, str) for text in texts):
            return _refusal(f"{name} needs {' and '.join(names)} as text")
        content = _edited(context.state.notebook, operation, [join_surrogates(str(text)) for text in texts])
        if isinstance(content, WidgetResult):
            return content
        if len(content) > self._limit:
            return _refusal(self._too_long(content))
        return WidgetResult(f"The notebook has {len(content)} characters now.", (NotebookEntry(content, operation),))

    def replaced_by_host(self, content: str | None) -> NotebookEntry:
        """Return the entry for a notebook that the host has set; raise InvalidValue if it is too long."""
        entry = NotebookEntry(content or "", NotebookOperation.HOST)
        if len(entry.content) > self._limit:
            raise InvalidValue(self._too_long(entry.content))
        return entry

    def _too_long(self, content: str) -> str:
        return f"the notebook would have {len(content)} characters, at most {self._limit} fit: shorten it first"


def _edited(notebook: str, operation: NotebookOperation, texts: list[str]) -> str | WidgetResult:
    """The notebook after an edit, or the refusal that says why there is none."""
    if operation is NotebookOperation.REPLACE:
        return texts[0]
    if operation is NotebookOperation.APPEND:
        between = "\n" if notebook and not notebook.endswith("\n") else ""
        return f"{notebook}{between}{texts[0]}"
    old, new = texts
    offset = notebook.find(old) if old else -1
    if offset < 0:
        return _refusal("the old text does not occur in the notebook")
    if notebook.find(old, offset + 1) >= 0:  # also where two occurrences overlap
        return _refusal("the old text occurs more than once in the notebook: give more of what stands around it")
    return notebook[:offset] + new + notebook[offset + len(old) :]


def _refusal(reason: str) -> WidgetResult:
    return WidgetResult(reason, (), ErrorCode.INVALID_ARGUMENTS)
