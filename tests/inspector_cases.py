"""Sessions to look at: recorded conversations replayed as runs with epochs, and the hostile and the long ones."""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dragoman.context import ContextBuildInput, ContextManager
from dragoman.errors import ErrorCode
from dragoman.history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    RunFinishedEntry,
    RunStartedEntry,
    SystemInstructionEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    tool_digest,
)
from dragoman.message import (
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
from dragoman.request import ContextConfig
from dragoman.store import Session, SessionStore, start_session
from dragoman.tools import tool
from dragoman.toolspec import ToolSpec
from dragoman.usage import TokenUsage
from dragoman.wire import find_dialect

from .conversations import CONVERSATIONS, PNG

SYSTEM = "You are a coding agent. You work in small steps, and you run the tests before you say that something is done."
BUDGET = 40_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 14, 9, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def recorded(name: str) -> Iterator[dict[str, Any]]:
    """Yield the recorded conversations of a file."""
    with gzip.open(CONVERSATIONS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def invocation_of(name: str) -> ModelInvocationDescriptor:
    """Return whom a name means."""
    provider, _, model = name.partition(":")
    return ModelInvocationDescriptor(provider, find_dialect(provider, model).specification, model)


OPUS = invocation_of("anthropic:claude-opus-4-5")


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} paid"


def break_entry(path: Path, serial: int) -> None:
    """Damage an entry of every session in an SQLite file, as a broken disk would."""
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        column = next(row[1] for row in connection.execute("PRAGMA table_info(entries)") if row[2] == "BLOB")
        connection.execute(f"UPDATE entries SET {column} = x'00' WHERE serial = ?", (serial,))
    connection.close()


async def two_turns(store: SessionStore, session_id: str = "talk") -> Session:
    """Record two questions and their answers."""
    session = await start_session(store, session_id, system_instruction="Be short.")
    for number in range(2):
        await session.append_model_input(f"question {number}")
        await session.append_model_output(Message.assistant(f"answer {number}", invocation=OPUS))
    return session


async def replay(
    store: SessionStore,
    session_id: str,
    conversation: dict[str, Any],
    *,
    models: tuple[str, ...] = ("anthropic:claude-opus-4-5",),
    budget: int = BUDGET,
    most: int = 100_000,
    begins: datetime | None = None,
    decorated: bool = False,
) -> Session:
    """Record a conversation as runs of an agent: with the epochs that its context goes through, and its usage."""
    clock = Clock()
    if begins is not None:
        clock.now = begins
    session = await start_session(store, session_id, clock=clock, widgets=())
    return await _Replay(session, clock, models, budget, decorated).play(conversation, most)


class _Replay:
    def __init__(self, session: Session, clock: Clock, models: tuple[str, ...], budget: int, decorated: bool) -> None:
        self._session, self._clock, self._decorated = session, clock, decorated
        self._models = [invocation_of(name) for name in models]
        self._manager = ContextManager(ContextConfig(budget_tokens=budget))
        self._last: datetime | None = None
        self._runs = self._calls = 0
        self._cached = 0
        self._tools: tuple[ToolSpec, ...] = ()
        self._offered: dict[ModelInvocationDescriptor, tuple[str, ...]] = {}
        self._written: set[str] = set()

    async def play(self, conversation: dict[str, Any], most: int) -> Session:
        self._tools = tuple(_tools_of(conversation))
        await self._session.append(SystemInstructionEntry(SYSTEM))
        for message in conversation["messages"]:
            self._tick(message.get("timestamp"))
            if message["role"] == "user":
                await self._said(message)
            elif message["role"] == "assistant":
                await self._answered(message)
            elif message["role"] == "tool":
                await self._resulted(message)
            if len(self._session.entries) >= most and not self._session.state.pending_tool_calls:
                break
        if self._session.state.pending_tool_calls:
            return self._session
        if self._session.run_id:
            await self._session.append(RunFinishedEntry("completed"))  # type: ignore[arg-type]
        return self._session

    def _tick(self, stamp: str | None) -> None:
        """Go on as the recording did, but never more than ten minutes."""
        when = datetime.fromisoformat(stamp) if stamp else None
        gap = (when - self._last).total_seconds() if when and self._last else 2.0
        self._clock.now += timedelta(seconds=min(max(gap, 0.2), 600))
        self._last = when or self._last

    async def _said(self, message: dict[str, Any]) -> None:
        texts: list[Part] = [Text(part["text"]) for part in message["parts"] if part["kind"] == "text" and part["text"]]
        if self._decorated and self._runs == 3:
            texts.append(Image("image/png", PNG))
        if not texts:
            return
        if self._session.run_id and self._session.state.derived.owes_answer:
            await self._session.append(ModelInputEntry(tuple(texts)))
            return
        if self._session.run_id:
            await self._session.append(RunFinishedEntry("completed"))  # type: ignore[arg-type]
        self._runs += 1
        if self._decorated and self._runs == 2:
            await self._session.append(NotebookEntry("Goal: know which module to split.\nDone: the store.", "host"))  # type: ignore[arg-type]
        run_id = f"r{self._runs:02}"
        await self._session.append(RunStartedEntry(run_id=run_id), ModelInputEntry(tuple(texts), run_id=run_id))

    async def _answered(self, message: dict[str, Any]) -> None:
        parts: list[Part] = []
        for part in message["parts"]:
            if part["kind"] == "text" and part["text"]:
                parts.append(Text(part["text"]))
            elif part["kind"] == "thinking":
                parts.append(Thinking(part["text"]))
            elif part["kind"] == "tool_call":
                given = part["arguments"]
                raw = given if isinstance(given, str) else json.dumps(given)
                parts.append(
                    ToolCall(
                        part["id"],
                        part["name"],
                        None if isinstance(given, str) else given,
                        raw,
                        parse_error="not JSON" if isinstance(given, str) else None,
                    )
                )
        if not self._session.state.derived.owes_answer:
            return
        self._calls += 1
        target = self._models[(self._calls // 24) % len(self._models)]
        built = self._manager.build_context(
            ContextBuildInput(entries=self._session.entries, now=self._clock.now, invocation=target, tools=self._tools)
        )
        if built.entries:
            await self._session.append(*built.entries)
            self._cached = 0
        await self._note_tools(target, built.tool_specs)
        if self._decorated and self._calls == 9:
            half = Message.assistant("The store keeps the heads of its sessions in a table of their own, so an app")
            await self._session.append(
                InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "the stream ended before the provider's own finish", half)
            )
        size = built.stats.tokens
        out = max(sum(len(str(part)) for part in parts) // 5, 20)
        usage = TokenUsage(
            input_tokens=size,
            output_tokens=out,
            total_tokens=size + out,
            cache_read_tokens=min(self._cached, size),
            cache_write_tokens=max(size - self._cached, 0),
        )
        self._cached = size
        calls = any(isinstance(part, ToolCall) for part in parts)
        meta = MessageMeta(
            usage=usage,
            invocation=target,
            request_id=f"req_{self._calls:06x}",
            finish_reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        )
        answer = Message(Role.ASSISTANT, tuple(parts), meta=meta)
        self._clock.now += timedelta(seconds=1.5 + out / 60)
        await self._session.append(ModelOutputEntry(answer, metadata=built.metadata))

    async def _note_tools(self, target: ModelInvocationDescriptor, tools: tuple[ToolSpec, ...]) -> None:
        """Record the tools of the call where they are not those of the last call to this model."""
        digests = tuple(map(tool_digest, tools))
        if self._offered.get(target) == digests:
            return
        self._offered[target] = digests
        fresh = tuple(tool for tool, digest in zip(tools, digests, strict=True) if digest not in self._written)
        self._written.update(digests)
        await self._session.append(ToolSetEntry(target, digests, fresh))

    async def _resulted(self, message: dict[str, Any]) -> None:
        waiting = {call.tool_call_id: call for call in self._session.state.pending_tool_calls}
        results, facts = [], list[HistoryEntry]()
        for part in message["parts"]:
            call = waiting.get(part["id"])
            if part["kind"] != "tool_result" or call is None:
                continue
            denied = self._decorated and self._calls == 12
            if denied or (self._decorated and self._calls in (5, 20)):
                facts.append(ApprovalAskedEntry(call.tool_call_id, call.tool_name, "It changes the repository."))
                self._clock.now += timedelta(seconds=12)
                reason = "not before the tests pass" if denied else ""
                facts.append(ApprovalAnsweredEntry(call.tool_call_id, not denied, reason))
            code = ErrorCode.TOOL_DENIED if denied else ErrorCode.TOOL_FAILED if part.get("is_error") else None
            result = HistoryToolCallResult.of_text(
                call, part["text"] or "", error_code=code, elapsed_seconds=0.4 + len(part["text"] or "") % 17 / 10
            )
            if not denied:
                facts.append(ToolStartedEntry(call.tool_call_id, call.tool_name))
            facts.append(ToolFinishedEntry(result))
            results.append(result)
        if results:
            await self._session.append(*facts)
            await self._session.append(ToolResultsEntry(tuple(results)))


def _tools_of(conversation: dict[str, Any]) -> Iterator[ToolSpec]:
    """The tools that a conversation calls, with the arguments that it gives them. No recording has their own specs."""
    found: dict[str, dict[str, Any]] = {}
    for message in conversation["messages"]:
        for part in message["parts"]:
            if part["kind"] == "tool_call" and isinstance(part["arguments"], dict):
                found.setdefault(part["name"], {}).update({name: {} for name in part["arguments"]})
    for name, fields in found.items():
        yield ToolSpec(name, f"The tool {name}.", {"type": "object", "properties": fields})


HOSTILE = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit=2'>",
    "<svg onload='window.hit=3' xmlns='http://www.w3.org/2000/svg'><script>window.hit=4</script></svg>",
    "[click](javascript:window.hit=5) ![x](http://example.com/track.png) <a href='javascript:window.hit=6'>a</a>",
    "\x1b[31mred\x07 \u202eevil\u202c \u200binvisible\u2066\ufeff \x00 nul",
    "]]> --> */ {{constructor}} ${7*7} `</style><style>*{background:url(http://example.com)}</style>`",
    "# " * 3000,
    "`" * 5000 + "**" * 5000 + "- " * 2000,
)


async def hostile(store: SessionStore, *, megabytes: int = 10, entries: int = 1_000) -> Session:
    """Record what an attacker would: scripts, pictures that are none, a long line, many entries."""
    clock = Clock()
    session = await start_session(store, "hostile <script>", clock=clock, widgets=())
    await session.append(SystemInstructionEntry(HOSTILE[0]))
    model = ModelInvocationDescriptor("<b>evil</b>", "x", "javascript:alert(1)")
    for text in HOSTILE:
        await session.append(ModelInputEntry((Text(text), Image("image/svg+xml", HOSTILE[1].encode()))))
        call = ToolCall(f"c{clock.now:%s}", "<img src=x onerror=alert(1)>", {"command": text})
        clock.now += timedelta(seconds=1)
        meta = MessageMeta(invocation=model, usage=TokenUsage(input_tokens=1, output_tokens=1))
        await session.append(ModelOutputEntry(Message(Role.ASSISTANT, (Thinking(text), Text(text), call), meta=meta)))
        await session.append(ToolResultsEntry((HistoryToolCallResult.of_text(call, text),)))
    await session.append(ModelInputEntry((Text("x" * (megabytes << 20)),)))
    await session.append(ModelOutputEntry(Message.assistant("long", invocation=model)))
    batch: list[HistoryEntry] = []
    for number in range(entries // 2):
        batch.append(ModelInputEntry((Text(f"say {number} {HOSTILE[number % len(HOSTILE)][:80]}"),)))
        batch.append(ModelOutputEntry(Message.assistant(f"**{number}** {HOSTILE[number % 5]}", invocation=model)))
        if len(batch) >= 1000:
            await session.append(*batch)
            batch = []
    await session.append(*batch) if batch else None
    return session


def store_path(folder: Path) -> Path:
    """Return where a test keeps its store."""
    return folder / "sessions.db"
