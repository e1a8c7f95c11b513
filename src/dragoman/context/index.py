"""Units of a conversation to blocks of lines, with what is known of every line, name and subject so far.

A block is what one part said: an input, a model's words, a call's arguments, a result. Its subject is the file (or
whatever else) that the call named. Everything is worked out once, when a block is added. Knows no budget.
"""

import re
from collections.abc import Iterator, Sequence

from ..history import (
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    ToolExecutionStatus,
    ToolResultsEntry,
    to_plain_text,
    without_live_screen,
)
from ..message import ProviderItem, Text, ToolCall
from .lines import argument_lines, key_of, names_in, split_lines

__all__ = ["INJECTED_KEY", "KINDS", "Block", "HistoryIndex"]

# The metadata key that marks an input as the host's own words: no person asked for what it says.
INJECTED_KEY = "injected"

# What a tool does, by the first of these that its name contains. A tool that says none of them is `other`.
TOOL_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("edit", re.compile(r"edit|write|replace|patch|create|insert|update", re.IGNORECASE)),
    ("run", re.compile(r"bash|shell|exec|run|command|terminal|python", re.IGNORECASE)),
    ("search", re.compile(r"grep|search|glob|find|list", re.IGNORECASE)),
    ("read", re.compile(r"read|view|open|cat|show|fetch|get", re.IGNORECASE)),
    ("other", re.compile(r"")),
)
# What a block is: who said it, and for a call or a result what its tool does.
KINDS: tuple[str, ...] = (
    "user",
    "host",
    "words",
    *(f"{place}:{name}" for place in ("call", "result") for name, _ in TOOL_CLASSES),
)
# Where names are mentioned on purpose: by a person, by the model in its words, in plans and tasks.
_SAYING = frozenset({"user", "words", "call:other"})

# Of each input these many lines are the request itself; what follows is mostly pasted.
REQUEST_LINES = 12
# What a conversation was begun for is worth more than what was asked on the way.
FIRST_REQUEST_WEIGHT = 10.0

# What was read within so many tokens, and what was edited within so many, may be edited next.
FRESH_TOKENS = 4_000
EDIT_TOKENS = 8_000

# A tool restates its state where so much of what one call or result said stood in the one before it, so many times in a
# row. Compared are lines, or words where there are fewer lines than STATE_LINES; records of one form share most words,
# so of these nearly all must be the same. What is longer than STATE_TOKENS is no state.
STATE_TIMES = 2
STATE_TOKENS = 800
STATE_LINES, LINE_OVERLAP = 4, 0.5
STATE_WORDS, WORD_OVERLAP = 25, 0.85
_WORDS = re.compile(r"\w{3,}")

# What names a subject: a path, or at least something with a dot.
_PATH = re.compile(r"(?=.*[/.])\S{1,300}")


class Block:
    """One part's lines. `serial` and `place` say where it stands in the history, `position` how many tokens before."""

    __slots__ = (
        "failed",
        "gist",
        "keys",
        "kind",
        "lines",
        "names",
        "place",
        "position",
        "serial",
        "subject",
        "tokens",
        "tool",
    )

    def __init__(self, serial: int, place: int, kind: str, tool: str, subject: str | None) -> None:
        self.serial, self.place, self.kind, self.tool, self.subject = serial, place, kind, tool, subject
        self.failed = False
        self.gist: str | None = None  # as a tool or host gave it
        self.position = self.tokens = 0
        self.lines: list[str] = []
        self.keys: list[str] = []
        self.names: list[tuple[str, ...]] = []


class NameUse:
    """How a name was used so far: positions are tokens from the beginning, -1 for never."""

    __slots__ = ("block", "called_at", "calls", "count", "first_at", "kind", "said", "seen_at")

    def __init__(self, position: int) -> None:
        self.count = self.calls = self.said = 0
        self.first_at = self.seen_at = position
        self.called_at = -1
        self.kind = ""
        self.block = -1  # the one that had it first


class SubjectUse:
    """When calls named a subject last, and edited it last (-1 for never)."""

    __slots__ = ("edited_at", "touched_at")

    def __init__(self) -> None:
        self.touched_at = self.edited_at = -1


class HistoryIndex:
    """All blocks so far, and what is known of their lines, names and subjects."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.blocks_of: dict[int, tuple[int, int]] = {}  # an entry's serial: the blocks it became, as a range
        self.position = 0
        self.newest: dict[str, tuple[int, int]] = {}  # a line's key: the block and line where it stood last
        self.shown: dict[str, int] = {}  # a line's key: how often it was shown
        self.called: set[str] = set()  # keys of lines that a call's arguments had
        # Keys of lines that a person wrote, those of the request itself, and how much more than others they count.
        self.requested: dict[str, float] = {}
        self.names: dict[str, NameUse] = {}
        self.subjects: dict[str, SubjectUse] = {}
        # Of each tool that says its whole state again and again: the block that does so last.
        self.states: dict[tuple[str, str], int] = {}
        self._calls: dict[str, Block] = {}
        self._said: dict[tuple[str, str], tuple[frozenset[str], int, tuple[str, ...]]] = {}

    def add(self, entry: HistoryEntry, tokens: int) -> None:
        """Take in one contextual entry, or an interruption, that is `tokens` long."""
        first = len(self.blocks)
        if isinstance(entry, ModelInputEntry):
            self._add_input(entry)
        elif isinstance(entry, ModelOutputEntry):
            self._add_parts(entry.serial, entry.message.parts)
        elif isinstance(entry, ToolResultsEntry):
            for place, result in enumerate(entry.results):
                self._add_result(entry.serial, place, result)
        elif isinstance(entry, InterruptionEntry) and entry.partial is not None:
            self._add_parts(entry.serial, tuple(part for part in entry.partial.parts if isinstance(part, Text)))
        self.blocks_of[entry.serial] = (first, len(self.blocks))
        self.position += max(0, tokens - sum(block.tokens for block in self.blocks[first:]))

    def block_at(self, serial: int, place: int) -> int:
        """Return the number of the block that an entry's part became."""
        first, _ = self.blocks_of[serial]
        return first + place

    def is_fresh(self, block: Block) -> bool:
        """Whether a block is a text that is edited next, if any is: a file under edit, or what was read of late."""
        if not block.kind.startswith("result") or block.kind == "result:search":
            return False
        if self.position - block.position < FRESH_TOKENS:
            return True
        use = self.subjects.get(block.subject) if block.subject is not None else None
        return use is not None and use.edited_at >= 0 and self.position - use.edited_at < EDIT_TOKENS

    def is_outdated(self, number: int) -> bool:
        """Whether a later block of the same tool says the whole state anew."""
        block = self.blocks[number]
        return self.states.get((block.tool, block.kind), -1) > number

    def _note_state(self, number: int, block: Block, asked: Block | None) -> None:
        """Find out whether a tool's calls or results restate one thing: most of what the ones before them said.

        Results of calls that asked for different things do not, unless the calls themselves do.
        """
        key = (block.tool, block.kind)
        request = tuple(asked.lines) if asked is not None and (asked.tool, asked.kind) not in self.states else ()
        said: frozenset[str] = frozenset()
        least, overlap = STATE_LINES, LINE_OVERLAP
        if block.tokens <= STATE_TOKENS:
            said = frozenset(filter(None, map(key_of, block.lines)))
            if len(said) < STATE_LINES:
                said, least, overlap = frozenset(_WORDS.findall("\n".join(block.lines))), STATE_WORDS, WORD_OVERLAP
        before, times, earlier = self._said.get(key, (frozenset(), 0, ()))
        is_same = request == earlier and len(said) >= least and len(said & before) >= overlap * len(said | before)
        times = times + 1 if is_same else 0
        self._said[key] = (said, times, request)
        if times >= STATE_TIMES:
            self.states[key] = number
        else:
            self.states.pop(key, None)

    def _add_input(self, entry: ModelInputEntry) -> None:
        text = to_plain_text(without_live_screen(entry.sections.get_sections(LevelOfDetail.SUMMARY))[0])
        kind = "host" if entry.metadata.get(INJECTED_KEY) else "user"
        block = Block(entry.serial, 0, kind, "", None)
        block.gist = _given_gist(entry.sections)
        self._add(block, split_lines(text))
        if kind == "user":
            weight = 1.0 if self.requested else FIRST_REQUEST_WEIGHT
            for key in [key for key in block.keys if key][:REQUEST_LINES]:
                self.requested.setdefault(key, weight)

    def _add_parts(self, serial: int, parts: Sequence[object]) -> None:
        place = 0
        for part in parts:
            if isinstance(part, (Text, ProviderItem)) and part.text:
                self._add(Block(serial, place, "words", "", None), split_lines(part.text))
            elif isinstance(part, ToolCall):
                self._add_call(serial, place, part)
            else:
                continue
            place += 1

    def _add_call(self, serial: int, place: int, call: ToolCall) -> None:
        tool_class = next(name for name, pattern in TOOL_CLASSES if pattern.search(call.tool_name))
        subject = next(_subjects(call), None)
        if subject is not None:
            use = self.subjects.setdefault(subject, SubjectUse())
            use.touched_at = self.position
            if tool_class == "edit":
                use.edited_at = self.position
        block = Block(serial, place, f"call:{tool_class}", call.tool_name, subject)
        self._calls[call.tool_call_id] = block
        self._add(block, argument_lines(call))

    def _add_result(self, serial: int, place: int, result: HistoryToolCallResult) -> None:
        text = to_plain_text(without_live_screen(result.result.get_sections(LevelOfDetail.SUMMARY))[0])
        call = self._calls.get(result.tool_call_id)
        kind = call.kind.replace("call", "result") if call else "result:other"
        block = Block(serial, place, kind, result.tool_name, call.subject if call else None)
        block.failed = result.status is not ToolExecutionStatus.SUCCESS
        block.gist = _given_gist(result.result)
        self._add(block, split_lines(text), asked=call)

    def _add(self, block: Block, lines: list[str], asked: Block | None = None) -> None:
        number, position = len(self.blocks), self.position
        is_call, is_said = block.kind.startswith("call"), block.kind in _SAYING
        block.position = position
        block.lines = lines
        block.tokens = sum(map(len, lines)) // 4
        self.blocks.append(block)
        if block.tool:
            self._note_state(number, block, asked)
        for place, line in enumerate(lines):
            key = key_of(line)
            block.keys.append(key)
            if not key:
                block.names.append(())
                continue
            names = names_in(line)
            block.names.append(names)
            self.newest[key] = (number, place)
            self.shown[key] = self.shown.get(key, 0) + 1
            if is_call:
                self.called.add(key)
            for name in names:
                use = self.names.get(name)
                if use is None:
                    use = self.names[name] = NameUse(position)
                    use.block = number
                use.count += 1
                use.seen_at = position
                use.kind = block.kind
                if is_call:
                    use.calls += 1
                    use.called_at = position
                if is_said:
                    use.said += 1
        self.position += block.tokens


def _given_gist(levels: LevelOfDetailSections) -> str | None:
    """The gist, if it is one of its own: where none was given, the summary or the whole stands for it."""
    if levels.gist in (levels.summary, without_live_screen(levels.live)[0]):
        return None
    return to_plain_text(levels.gist) or None


def _subjects(call: ToolCall) -> Iterator[str]:
    """The last component of every argument that looks like a path."""
    for value in (call.arguments or {}).values():
        if isinstance(value, str) and _PATH.fullmatch(value):
            yield value.rstrip("/").rsplit("/", 1)[-1]
