"""Histories to test with: entries of every kind as Hypothesis strategies, and whole sessions that were legally made.

A session is made from a seed: fewer steps with the same seed are a beginning of it, so failures shrink well.
"""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from ..errors import ErrorCode, InvalidValue, MissingExtra
from ..history import (
    AbortRequestedEntry,
    AgentState,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryEntryKind,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    NotebookOperation,
    OpenCall,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    SamplingEntry,
    Section,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolExecutionStatus,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
    tool_digest,
)
from ..history.toolresults import STATUS_CODES
from ..message import (
    FileRef,
    FinishReason,
    Image,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
)
from ..toolspec import ToolSpec
from ..usage import TokenUsage
from .strategies import UNKNOWN, json_objects, messages, parts, timestamps, token_usages

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtra("dragoman.testing.histories", "testing") from error

__all__ = ["entries", "legal_histories", "level_sections", "random_history"]

Texts: TypeAlias = st.SearchStrategy[str]

BEGINNING = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)

# What people, models and tools write, in one line each: indentation, several scripts, marks of our own.
LINES = (
    "def total(items: list[Item]) -> int:",
    "    return sum(item.price for item in items)  # 12.50",
    "\tif (!found) { return -1; }",
    "Traceback (most recent call last):",
    '  File "src/app/main.py", line 42, in <module>',
    "ValueError: invalid literal for int() with base 10: 'x'",
    "src/app/models/user.py:118: error: Incompatible return value type",
    "FAILED tests/test_orders.py::test_total - assert 3 == 4",
    '{"id": 17, "name": "Ada", "tags": ["a", "b"]}',
    "diff --git a/README.md b/README.md",
    "+    added = True",
    "-    removed = None",
    "日本語の文章と中文的句子。",
    "Ελληνικά, русский и עברית",
    "naïve café — “quoted” … 👩‍👩‍👧‍👦 🇪🇺",
    "# a heading",
    "[LiveScreen]",
    "| a | b |",
    "",
    "   ",
    "x" * 300,
    "SGVsbG8gd29ybGQ=" * 12,
    "drwxr-xr-x  2 ada ada 4096 Mar  1 09:00 src",
    "The total must be rounded to two digits, see issue 318.",
    "Please keep the public names as they are.",
)
TOOLS = ("read_file", "edit_file", "run_tests", "search")
PATHS = ("src/app/main.py", "src/app/models/user.py", "tests/test_orders.py", "README.md")
MODELS = (
    ModelInvocationDescriptor("anthropic", "messages", "claude-a"),
    ModelInvocationDescriptor("openai", "responses", "gpt-b"),
)
_PIXEL = bytes.fromhex("89504e470d0a1a0a")


def random_history(
    seed: int, steps: int, *, texts: Sequence[str] = (), resets: bool = True, widgets: Sequence[Any] | None = None
) -> AgentState:
    """Return a session of `steps` legal appends or more, the same for the same arguments.

    It holds whatever a session may: images, failures, long results, parallel and repeated calls, approvals, notebook
    edits, interruptions, empty outputs, runs, epochs, compactions and, unless `resets` is false, resets. `texts` are
    added to the lines that are said.
    """
    choose = random.Random(seed)  # noqa: S311  # what is said in a test is no secret
    now = [BEGINNING]

    def clock() -> datetime:
        now[0] += timedelta(milliseconds=choose.choice((0, 7, 900, 20_000, 400_000)))
        return now[0]

    state = AgentState.create_default(
        choose.choice((None, "You are careful.", "Be brief.\nAnswer in English.")),
        session_id=f"session-{seed}",
        clock=clock,
        widgets=widgets,
    )
    writer = _Writer(state, choose, (*LINES, *texts))
    for _ in range(steps):
        writer.step(resets=resets)
    return state


def legal_histories(
    *, min_steps: int = 0, max_steps: int = 40, text: Texts | None = None, resets: bool = True
) -> st.SearchStrategy[AgentState]:
    """Return sessions that were legally made, from `min_steps` to `max_steps` appends long, or a little longer."""
    if not 0 <= min_steps <= max_steps:
        raise InvalidValue.of("min_steps", min_steps, f"from 0 to max_steps, {max_steps}")
    lines = st.lists(st.text(max_size=30) if text is None else text, max_size=4)
    return st.builds(
        lambda steps, seed, texts: random_history(seed, steps, texts=texts, resets=resets),
        st.integers(min_steps, max_steps),
        st.integers(0, 2**32),
        lines,
    )


class _Writer:
    """A session under way, and what is done next in it."""

    def __init__(self, state: AgentState, choose: random.Random, lines: Sequence[str]) -> None:
        self._state, self._choose, self._lines = state, choose, lines
        self._runs = 0

    def step(self, *, resets: bool) -> None:
        if self._often(0.04):
            self._aside()
        elif resets and self._often(0.01) and not self._state.current_run_id:
            self._state.reset()
        elif self._state.derived.open_calls:
            self._work_on_calls()
        else:
            self._choose.choices((self._input, self._output, self._run, self._interrupt), (3, 5, 1, 0.5))[0]()

    def _often(self, share: float) -> bool:
        return self._choose.random() < share

    def _text(self, most: int = 6) -> str:
        count = self._choose.randint(1, most)
        return "\n".join(self._choose.choice(self._lines) for _ in range(count))

    def _words(self) -> str:
        """A text that is not blank."""
        return f"{self._text(3)}\nStep {self._state.next_serial}"

    # ------------------------------------------------------------ turns

    def _input(self) -> None:
        said: list[Part | str] = [self._words()]
        if self._often(0.15):
            said.append(Image("image/png", _PIXEL))
        if self._often(0.1):
            said.insert(0, FileRef(path=self._choose.choice(PATHS), mime_type="text/plain"))
        if self._often(0.1):
            said.append(self._text())
        if self._often(0.05):
            said = [Image(url="https://example.com/a.png")]
        metadata = {"source": "test", "step": self._state.next_serial} if self._often(0.2) else {}
        if self._often(0.15):
            entry = ModelInputEntry.of(*said, sections=_levels(self._words(), self._text(1), "gist"))
            self._state.append_model_input(entry, metadata=metadata)
        else:
            self._state.append_model_input(*said, metadata=metadata)

    def _output(self) -> None:
        said: list[Part] = []
        if self._often(0.3):
            said.append(Thinking(self._text(2), provider_data={"signature": "s"} if self._often(0.5) else None))
        if self._often(0.6):
            said.append(Text(self._text()))
        if self._often(0.75):
            said += [self._call() for _ in range(self._choose.choice((1, 1, 1, 2, 3)))]
        if self._often(0.05):
            said = []
        self._state.append_model_output(Message(Role.ASSISTANT, tuple(said), meta=self._meta(said)))

    def _meta(self, said: Sequence[Part]) -> MessageMeta | None:
        if self._often(0.1):
            return None
        calls = any(isinstance(part, ToolCall) for part in said)
        usage = TokenUsage(
            input_tokens=self._choose.randint(0, 50_000),
            output_tokens=self._choose.randint(0, 2_000),
            cost=self._choose.choice((None, 0.01, 0.25)),
        )
        reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        return MessageMeta(usage=usage, finish_reason=reason, invocation=self._choose.choice(MODELS))

    def _call(self) -> ToolCall:
        call_id = self._choose.choice(("call_0", "call_1", f"toolu_{self._choose.getrandbits(48):012x}"))
        name = self._choose.choice(TOOLS)
        if self._often(0.05):
            return ToolCall.parse(call_id, name, '{"path": "src/ap')
        arguments: dict[str, Any] = {"path": self._choose.choice(PATHS)}
        if name == "edit_file":
            arguments |= {"old": self._choose.choice(self._lines), "new": self._text(4)}
        return ToolCall(call_id, name, arguments)

    def _work_on_calls(self) -> None:
        waiting = [call for call in self._state.derived.open_calls if call.result is None]
        if not waiting:
            self._state.append_tool_results()
        elif self._often(0.5):
            results = [call.result or self._result(call) for call in self._state.derived.open_calls]
            self._state.append_tool_results(results)
        elif self._often(0.05):
            self._state.append_tool_results((), "the tools could not be reached")
        else:
            self._work_on(self._choose.choice(waiting))

    def _work_on(self, call: OpenCall) -> None:
        named = (call.tool_call_id, call.request.tool_name)
        if call.awaits_answer:
            changed = {"path": "README.md"} if self._often(0.2) else None
            approved = changed is not None or self._often(0.7)
            self._state.append(ApprovalAnsweredEntry(named[0], approved, "because", changed))
        elif call.answered is not None and not call.answered.approved:
            self._finish(call, ErrorCode.TOOL_DENIED)
        elif call.arguments is None:
            self._finish(call, ErrorCode.INVALID_ARGUMENTS)
        elif call.started is not None and self._often(0.3):
            self._ask(call)
        elif call.started is not None:
            self._state.append(ToolFinishedEntry(self._result(call)))
        elif call.answered is None and self._often(0.3):
            self._state.append(ApprovalAskedEntry(*named, "it changes a file"))
        else:
            self._state.append(ToolStartedEntry(*named, idempotent=self._often(0.5)))

    def _ask(self, call: OpenCall) -> None:
        """What the tool of a call that runs asks of a person or of the model."""
        if call.questions and self._often(0.7):
            action = self._choose.choice(tuple(QuestionAction))
            content = {"name": self._text(1)} if action is QuestionAction.ACCEPT else None
            self._state.append(QuestionAnsweredEntry(call.questions[0].question_id, action, content))
        elif self._often(0.5):
            question_id = f"question-{self._state.next_serial}"
            self._state.append(QuestionAskedEntry(question_id, call.tool_call_id, self._text(2), {"type": "object"}))
        else:
            answer = Message.assistant(self._text(2))
            self._state.append(SamplingEntry(call.tool_call_id, (Message.user("Say it."),), "", answer))

    def _finish(self, call: OpenCall, code: ErrorCode) -> None:
        result = HistoryToolCallResult.of_text(call.request, f"Not run: {code}.", error_code=code)
        self._state.append(ToolFinishedEntry(result))

    def _result(self, call: OpenCall) -> HistoryToolCallResult:
        code: ErrorCode | None = None
        if call.arguments is None:
            code = ErrorCode.INVALID_ARGUMENTS
        elif self._often(0.15):
            code = self._choose.choice((ErrorCode.TOOL_FAILED, ErrorCode.TOOL_TIMEOUT, ErrorCode.TOOL_INTERRUPTED))
        text = "" if self._often(0.05) else self._text(self._choose.choice((1, 4, 30, 200)))
        levels = LevelOfDetailSections.of_text(text)
        if self._often(0.15):
            levels = _levels(text, self._text(2), "gist")
        status = next(status for status, codes in STATUS_CODES.items() if code in codes)
        return HistoryToolCallResult(
            tool_name=call.request.tool_name,
            tool_call_id=call.tool_call_id,
            status=status,
            result=levels,
            error_code=code,
            elapsed_seconds=self._choose.choice((None, 0.5, 61.25)),
            attachments=(Image("image/png", _PIXEL),) if self._often(0.1) else (),
        )

    # ------------------------------------------------------------ beside the conversation

    def _run(self) -> None:
        if not self._state.current_run_id:
            self._runs += 1
            self._state.append(RunStartedEntry(run_id=f"run-{self._runs}"))
            return
        status = self._choose.choice(tuple(RunStatus))
        code = None if status is RunStatus.COMPLETED else self._choose.choice((None, ErrorCode.TIMEOUT))
        self._state.append(RunFinishedEntry(status, code))

    def _interrupt(self) -> None:
        said = (Text(self._text()), ToolCall("call_0", "search", raw_args_text='{"q', parse_error="cut off"))
        meta = MessageMeta(interrupted=True, invocation=self._choose.choice(MODELS))
        partial = Message(Role.ASSISTANT, said[: self._choose.randint(0, 2)], meta=meta) if self._often(0.8) else None
        self._state.append(InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "the stream ended early", partial))

    def _aside(self) -> None:
        last = self._state.next_serial - 1
        choices: list[Callable[[], object]] = [
            lambda: self._state.set_system_instruction(self._text(2)),
            lambda: self._state.update_memory_notebook(self._text(3)),
            lambda: self._state.execute_widget_tool("memory_notebook_append", {"text": self._text(1)}),
            lambda: self._state.execute_widget_tool("memory_notebook_replace_text", {"old": "Be", "new": "be"}),
            lambda: self._state.append(EpochEntry(1, "budget", {"levels": {"0": "gist"}})),
            self._exchange,
            lambda: self._state.append(_tool_set(self._text(1))),
        ]
        if last >= 0:
            choices.append(
                lambda: self._state.append(
                    CompactionEntry(
                        self._choose.randint(0, last), last, self._text(2), None, TokenUsage(input_tokens=9)
                    )
                )
            )
        self._choose.choice(choices)()

    def _exchange(self) -> None:
        body = self._text(2)
        asked = self._state.append(ClientRequestEntry("openai-chat", "/v1/chat/completions", "m", body, marks=("m:1",)))
        if self._often(0.8):
            self._state.append(ClientAnswerEntry.of(asked.serial, 200, body.encode(), is_whole=self._often(0.8)))


def _tool_set(said: str) -> ToolSetEntry:
    tool = ToolSpec("read_file", said, {"properties": {"path": {"type": "string"}}})
    whom = ModelInvocationDescriptor("groq", "openai-chat", "openai/gpt-oss-120b")
    return ToolSetEntry(whom, (tool_digest(tool),), (tool,), settings={"temperature": 0.5})


def _levels(live: str, summary: str, gist: str) -> LevelOfDetailSections:
    return LevelOfDetailSections(
        (Section("", live), Section("note", summary)), (Section("", summary),), (Section("", gist),)
    )


# ---------------------------------------------------------------- single entries


def level_sections(*, text: Texts | None = None) -> st.SearchStrategy[LevelOfDetailSections]:
    """Return sections at three levels that often share their texts; the LiveScreen may be among them."""
    text = st.text(max_size=12) if text is None else text
    keys = st.sampled_from(("", "note", "[LiveScreen]")) | text

    def levels(texts: list[str]) -> st.SearchStrategy[LevelOfDetailSections]:
        level = st.lists(st.tuples(keys, st.sampled_from(texts)), max_size=3).map(tuple)
        uniform = level.map(LevelOfDetailSections.create_uniform)
        return uniform | st.builds(LevelOfDetailSections, level, level, level)

    return st.lists(text, min_size=1, max_size=3).flatmap(levels)


def entries(
    kind: HistoryEntryKind | str | None = None, *, text: Texts | None = None
) -> st.SearchStrategy[HistoryEntry]:
    """Return single entries of every kind, or of one; `"unknown"` stands for the kinds of a later version.

    They do not follow one another: `legal_histories` has sessions.
    """
    text = st.text(max_size=12) if text is None else text
    by_kind = _entries_by_kind(text)
    if kind is not None and kind not in by_kind:
        raise InvalidValue.of("kind", kind, f"one of {', '.join(by_kind)}")
    return st.one_of(*by_kind.values()) if kind is None else by_kind[kind]


def _results(text: Texts) -> st.SearchStrategy[HistoryToolCallResult]:
    names = text.filter(bool)
    status_and_code = st.sampled_from(
        [(status, code) for status in ToolExecutionStatus for code in STATUS_CODES[status]]
    )
    attached = st.lists(parts(text=text).filter(lambda part: isinstance(part, (Image, FileRef))), max_size=2).map(tuple)
    return st.builds(
        lambda name, call_id, how, result, elapsed, attachments: HistoryToolCallResult(
            tool_name=name,
            tool_call_id=call_id,
            status=how[0],
            error_code=how[1],
            result=result,
            elapsed_seconds=elapsed,
            attachments=attachments,
        ),
        names,
        names,
        status_and_code,
        level_sections(text=text),
        st.none() | st.floats(0, 1e6),
        attached,
    )


def _entries_by_kind(text: Texts) -> dict[str, st.SearchStrategy[HistoryEntry]]:
    names, objects, kinds = text.filter(bool), json_objects(text=text), HistoryEntryKind
    envelope: dict[str, st.SearchStrategy[Any]] = {
        "serial": st.integers(-1, 2**40),
        "entry_id": text,
        "timestamp": st.none() | timestamps(),
        "run_id": text,
        "metadata": st.just({}) | objects,
    }
    outputs = messages(Role.ASSISTANT, text=text)
    codes, words = st.sampled_from(ErrorCode), st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    shown = words.filter(str.strip).map(Text) | parts(Role.USER, text=text).filter(
        lambda part: not isinstance(part, Text)
    )
    inputs = st.tuples(shown, st.lists(parts(Role.USER, text=text), max_size=2)).map(lambda said: (said[0], *said[1]))
    invocations = st.just(MODELS[0])
    ends = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(sorted)
    labels = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)
    who = st.sampled_from(("person", "policy"))
    answers: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
        st.tuples(names, st.just(True), text, st.none() | objects, who),
        st.tuples(names, st.just(False), text, st.none(), who),
    )
    replies: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
        st.tuples(names, st.just(QuestionAction.ACCEPT), st.none() | objects, who),
        st.tuples(names, st.sampled_from((QuestionAction.DECLINE, QuestionAction.CANCEL)), st.none(), who),
    )
    finished: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
        st.tuples(st.just(RunStatus.COMPLETED), st.none(), text),
        st.tuples(st.sampled_from((RunStatus.FAILED, RunStatus.ABORTED)), st.none() | codes, text),
    )
    bodies: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
        st.tuples(text, st.none(), st.just(0), st.just(0)),
        st.tuples(text, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    )
    headers = st.dictionaries(text, text, max_size=2)
    marks = st.lists(labels, max_size=2).map(tuple)
    digest = st.text("0123456789abcdef", min_size=32, max_size=32)
    tool_names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=9)
    tools = st.builds(ToolSpec, tool_names, st.none() | text, json_objects(text=text).map(lambda each: {"not": each}))
    unknown_kinds = names.filter(lambda kind: kind not in set(kinds))
    makers: dict[str, tuple[Callable[..., HistoryEntry], tuple[st.SearchStrategy[Any], ...]]] = {
        kinds.MODEL_INPUT: (
            ModelInputEntry,
            (inputs, st.none() | level_sections(text=text), st.none() | st.integers(0, 2**40)),
        ),
        kinds.MODEL_OUTPUT: (ModelOutputEntry, (outputs,)),
        kinds.TOOL_RESULT: (
            ToolResultsEntry,
            (st.lists(_results(text), min_size=1, max_size=2).map(tuple), st.none() | names.filter(str.strip)),
        ),
        kinds.SYSTEM_INSTRUCTION: (SystemInstructionEntry, (text,)),
        kinds.NOTEBOOK: (NotebookEntry, (text, st.sampled_from(NotebookOperation))),
        kinds.COMPACTION: (
            lambda at, *rest, **notes: CompactionEntry(*at, *rest, **notes),
            (ends, text, st.none() | invocations, st.none() | token_usages()),
        ),
        kinds.INTERRUPTION: (InterruptionEntry, (codes, text, st.none() | outputs, text)),
        kinds.APPROVAL_ASKED: (ApprovalAskedEntry, (names, names, text)),
        kinds.APPROVAL_ANSWERED: (lambda said, **notes: ApprovalAnsweredEntry(*said, **notes), (answers,)),
        kinds.QUESTION_ASKED: (QuestionAskedEntry, (names, names, text, st.none() | objects, text, text)),
        kinds.QUESTION_ANSWERED: (lambda said, **notes: QuestionAnsweredEntry(*said, **notes), (replies,)),
        kinds.SAMPLING: (
            SamplingEntry,
            (names, st.lists(messages(text=text), max_size=2), text, st.none() | outputs, st.none() | codes, text),
        ),
        kinds.TOOL_STARTED: (ToolStartedEntry, (names, names, st.booleans())),
        kinds.TOOL_FINISHED: (ToolFinishedEntry, (_results(text),)),
        kinds.RUN_STARTED: (RunStartedEntry, ()),
        kinds.RUN_FINISHED: (lambda said, **notes: RunFinishedEntry(*said, **notes), (finished,)),
        kinds.STEERING: (SteeringEntry, (inputs,)),
        kinds.RUN_REQUESTED: (
            lambda said, run, **notes: RunRequestedEntry(*said, **{**notes, "run_id": run}),
            (st.tuples(labels, inputs | st.just(()), st.none(), labels), labels),
        ),
        kinds.ABORT_REQUESTED: (AbortRequestedEntry, (text,)),
        kinds.TAKEOVER: (TakeoverEntry, (text, text)),
        kinds.CLIENT_REQUEST: (
            lambda asked, body, *rest, **notes: ClientRequestEntry(*asked, *body, *rest, **notes),
            (st.tuples(names, names, text), bodies, headers, names, text, marks),
        ),
        kinds.CLIENT_ANSWER: (
            ClientAnswerEntry,
            (st.integers(0, 99), st.integers(0, 999), st.binary(max_size=20), headers, text, st.booleans(), marks),
        ),
        kinds.TOOL_SET: (
            ToolSetEntry,
            (
                *(invocations, st.lists(digest, max_size=3).map(tuple), st.lists(tools, max_size=2).map(tuple)),
                *(st.just("") | digest, st.none() | text, objects, text, st.lists(text, max_size=2).map(tuple)),
                *(st.integers(1, 2**40), text),
            ),
        ),
        kinds.EPOCH: (EpochEntry, (st.integers(0, 9), text, objects)),
        kinds.RESET: (ResetEntry, ()),
        UNKNOWN: (UnknownEntry, (unknown_kinds, objects)),
    }
    return {kind: st.builds(make, *fields, **envelope) for kind, (make, fields) in makers.items()}
