"""Histories on their way through a `ContextManager`, and what every context that is built must hold to."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from dragoman import Message, Role, Text, ToolCall, ToolResult, to_json
from dragoman.context import (
    MARKER,
    ContextBuildInput,
    ContextBuildResult,
    ContextManager,
    EstimateCounter,
    TokenCounter,
)
from dragoman.context.lines import PIECE_SIZE, argument_text
from dragoman.history import (
    AgentState,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    ResetEntry,
    ToolResultsEntry,
    to_plain_text,
    without_live_screen,
)
from dragoman.message import ProviderItem
from dragoman.request import ContextConfig

START = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)


class WordCounter:
    """A caller's own counter, unlike ours: a token for each word, one for each sign that is no letter."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split()) + sum(not character.isalnum() for character in text) // 2 + bool(text)


COUNTERS: tuple[TokenCounter, ...] = (EstimateCounter(), EstimateCounter(4), EstimateCounter(1.7), WordCounter())


class Conversation:
    """A state under way, the manager that builds its contexts, and the time."""

    def __init__(
        self,
        budget: int | None = 2_000,
        *,
        counter: TokenCounter | None = None,
        instruction: str | None = None,
        widgets: Iterable[Any] | None = (),
        **config: Any,
    ) -> None:
        self.config = ContextConfig(budget_tokens=budget, **config)
        self.counter = counter or EstimateCounter(4)
        self.manager = self.fresh_manager()
        self.now = START
        self.state = AgentState.create_default(instruction, session_id="case", clock=lambda: self.now, widgets=widgets)
        self._serials: dict[int, int] = {}  # of the entries that were appended anew: the old serial, the new one

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        return self.state.entries

    def fresh_manager(self, **options: Any) -> ContextManager:
        return ContextManager(self.config, counter=self.counter, **options)

    def given(self, **fields: Any) -> ContextBuildInput:
        return ContextBuildInput(**{"entries": self.entries, "now": self.now, **fields})

    def build(self, **fields: Any) -> ContextBuildResult:
        """Build the next context and append what it asks for."""
        result = self.manager.build_context(self.given(**fields))
        for entry in result.entries:
            self.state.append(entry)
        return result

    def wait(self, seconds: float = 1) -> None:
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------ appending

    def say(self, *parts: Any, **fields: Any) -> ModelInputEntry:
        self.wait()
        return self.state.append_model_input(*parts, **fields)

    def answer(self, *parts: Any, **fields: Any) -> ModelOutputEntry:
        self.wait()
        message = parts[0] if parts and isinstance(parts[0], Message) else Message.assistant(*parts)
        return self.state.append_model_output(message, **fields)

    def call(
        self, *results: str | LevelOfDetailSections, name: str = "read_file", words: str = "", **arguments: Any
    ) -> ToolResultsEntry:
        """One output with as many calls as there are results, and its results."""
        calls = [
            ToolCall(f"c{self.state.next_serial}_{place}", name, {"path": f"src/file{place}.py", **arguments})
            for place in range(len(results))
        ]
        said = self.answer(*((words,) if words else ()), *calls)
        self.wait()
        return self.state.append_tool_results(
            [
                HistoryToolCallResult(
                    tool_name=call.tool_name,
                    tool_call_id=call.tool_call_id,
                    result=LevelOfDetailSections.of_text(text) if isinstance(text, str) else text,
                )
                for call, text in zip(said.tool_calls, results, strict=True)
            ]
        )

    def append_anew(self, entry: HistoryEntry) -> HistoryEntry:
        """Append an entry of another history at the time when it was made, as if it were new."""
        if entry.timestamp is not None:
            self.now = max(self.now, entry.timestamp)
        new = replace(entry, serial=-1, entry_id="", timestamp=None)
        if isinstance(new, CompactionEntry):
            first, last = (self._serials[serial] for serial in (new.first_serial, new.last_serial))
            new = replace(new, first_serial=first, last_serial=last)
        kept = self.state.append(new)
        self._serials[entry.serial] = kept.serial
        return kept


def file_text(name: str, lines: int, start: int = 0) -> str:
    """A file's text: distinct lines with names in them, indented as code is."""
    return "\n".join(
        f"    {name}_value_{number} = compute_{name}(item_{number}, limit={number * 7})"
        for number in range(start, start + lines)
    )


def long_conversation(budget: int = 2_000, turns: int = 40, **options: Any) -> Conversation:
    """A request, then reading one file after another, with a context built at each turn."""
    conversation = Conversation(budget, **options)
    conversation.say("Please rename settle_account to close_account everywhere.")
    for turn in range(turns):
        conversation.call(file_text(f"module{turn}", 30), words=f"Reading file {turn}.")
        conversation.build()
    return conversation


def ledger_of(conversation: Conversation) -> str:
    """The text of the messages that are markers and lines of what was folded."""
    messages = conversation.build().messages
    return "\n".join(each.text for each in messages if each.role is Role.USER and each.text.startswith(MARKER))


def turns_of(conversation: Conversation) -> list[Message]:
    """The results that are shown in less room."""
    results = [message for message in conversation.build().messages if message.role is Role.TOOL]
    return [message for message in results if result_text(message).startswith(f"{MARKER}#")]


def result_text(message: Message) -> str:
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert isinstance(result.content, str)
    return result.content


# ---------------------------------------------------------------- checks


def written(messages: Iterable[Message]) -> list[bytes]:
    return [to_json(message) for message in messages]


def without_screen(result: ContextBuildResult, entries: Sequence[HistoryEntry]) -> list[bytes]:
    """The messages as bytes, without the LiveScreen, which stands last."""
    messages = written(result.messages)
    return messages[:-1] if newest_screen(entries) is not None else messages


def newest_screen(entries: Sequence[HistoryEntry]) -> str | None:
    for entry in reversed(entries):
        if isinstance(entry, ModelInputEntry):
            return without_live_screen(entry.sections.live)[1]
        if isinstance(entry, ToolResultsEntry):
            return without_live_screen(entry.results[-1].result.live)[1] if entry.results else None
        if isinstance(entry, (ModelOutputEntry, ResetEntry)):
            return None
    return None


def broken_pairs(messages: Sequence[Message]) -> list[str]:
    """Calls without their results right after them, in order, and results without their call.

    Those of a partial never became whole, which the handoff sees to; those of the last message may still be to come.
    """
    wrong: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            if not waiting or waiting.pop(0) != result.tool_call_id:
                wrong.append(f"result {result.tool_call_id}")
            continue
        wrong += [f"call {call_id}" for call_id in waiting]
        is_partial = message.meta is not None and bool(message.meta.interrupted)
        waiting = [] if is_partial else [call.tool_call_id for call in message.tool_calls]
    if messages and messages[-1].role is Role.TOOL:
        wrong += [f"call {call_id}" for call_id in waiting]
    return wrong


class Lines(NamedTuple):
    """The lines of a history, and those of them that are long enough to be shown in pieces."""

    whole: set[str]
    long: list[str]

    def have(self, line: str) -> bool:
        return line in self.whole or (len(line) <= PIECE_SIZE and any(line in long for long in self.long))


def history_lines(entries: Iterable[HistoryEntry]) -> Lines:
    """Every line that the entries hold."""
    whole = {line for text in _texts(entries) for line in text.split("\n")}
    return Lines(whole, [line for line in whole if len(line) > PIECE_SIZE])


def _texts(entries: Iterable[HistoryEntry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, ModelInputEntry):
            yield from (part.text for part in entry.parts if isinstance(part, Text))
            yield from _level_texts(entry.sections)
        elif isinstance(entry, ModelOutputEntry):
            yield from _part_texts(entry.message.parts)
        elif isinstance(entry, InterruptionEntry) and entry.partial is not None:
            yield from _part_texts(entry.partial.parts)
        elif isinstance(entry, ToolResultsEntry):
            for result in entry.results:
                yield from _level_texts(result.result)
        elif isinstance(entry, CompactionEntry):
            yield entry.summary


def _level_texts(sections: LevelOfDetailSections) -> Iterator[str]:
    for level in LevelOfDetail:
        yield to_plain_text(without_live_screen(sections.get_sections(level))[0])
        yield from (section.value for section in sections.get_sections(level))


def _part_texts(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, (Text, ProviderItem)):
            yield part.text or ""
        elif isinstance(part, ToolCall):
            yield part.raw_args_text
            for name, value in (part.arguments or {}).items():
                yield f"{name}: {argument_text(value)}"
                yield argument_text(value)


def shown_lines(messages: Iterable[Message]) -> Iterator[str]:
    """Every line that the messages show, those of arguments too."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                texts = [part.content] if isinstance(part.content, str) else list(_part_texts(part.content))
            elif isinstance(part, ToolCall) and part.arguments is not None:
                texts = [argument_text(value) for value in part.arguments.values()]
            else:
                texts = list(_part_texts((part,)))
            yield from (line for text in texts for line in text.split("\n"))


def invented_lines(messages: Iterable[Message], lines: Lines) -> list[str]:
    """The lines that are no part of the history and no marker."""
    return [line for line in shown_lines(messages) if not line.startswith(MARKER) and not lines.have(line)]


def is_grown(before: Sequence[bytes], after: Sequence[bytes]) -> bool:
    return list(after[: len(before)]) == list(before)


def epochs_in(entries: Iterable[HistoryEntry]) -> int:
    return sum(isinstance(entry, EpochEntry) for entry in entries)
