"""Everything that can go wrong around an agent, by chance: models, tools, policies, hooks and a store that misbehave.

All of it follows from one `random.Random`, so that a seed tells what happened.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dragoman import ErrorCode, FinishReason, Image, ModelError, StoreError, TokenUsage, ToolError
from dragoman.agent import ApprovalDecision, ApprovalRequest, Hooks, ModelCall
from dragoman.errors import InvalidValue
from dragoman.history import HistoryEntry, Section
from dragoman.store import Head, Lease, MemoryStore
from dragoman.testing.scripted import Call, Script, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import ToolContext, ToolDefinition, ToolOutput
from dragoman.wire import find_dialect
from tests.conversations import PNG, TARGETS

MODEL_CODES = tuple(ErrorCode)[: tuple(ErrorCode).index(ErrorCode.UNKNOWN_TOOL)]
ARGUMENTS: tuple[Any, ...] = (
    {},
    {"n": 1},
    {"n": "2"},
    {"n": "two"},
    {"n": 1, "more": None},
    "",
    "{",
    '{"n": 1',
    "null",
    "[1]",
    '{"n": NaN}',
    '{"n": 1} and more',
    '{"n": {"n": {"n": []}}}',
    '"\\ud800"',
)
IDS = ("", "", "", "call_0", "call_1", "call_2", "functions.quick:0", "id with space", "ü" * 70, "x" * 200)
TEXTS = (
    "",
    " \n",
    "It rains.",
    "Let me look that up for you, and then we shall see.",
    "a\ud83d",
    "\x00\x07",
    "word " * 400,
)
NOTEBOOK = ("memory_notebook_append", "memory_notebook_replace", "memory_notebook_replace_text")


class Injected(Exception):
    """A failure that was wanted."""


class Mute(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> NoReturn:
        raise Injected


class Abrupt(BaseException):
    """Not even an Exception."""


# What code of a user may raise that means something to Python or to asyncio.
RUDE: tuple[Callable[[], BaseException], ...] = (
    Injected,
    Abrupt,
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    StopIteration,
    SystemExit,
)


async def linger(chance: random.Random, most: int) -> None:
    """Let others go first, some times or not at all."""
    for _ in range(chance.randrange(most + 1)):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- models


class Troublesome:
    """Models that answer, fail, break off, hang, refuse, say nothing and call tools that are not there."""

    def __init__(self, chance: random.Random, tools: Sequence[str]) -> None:
        self._chance = chance
        self._tools = (
            *tools,
            "asks",
            "once",
            "twice",
            *NOTEBOOK,
            *NOTEBOOK,
            "recall",
            "nope",
            "functions.quick",
            "quick ",
            "n" * 90,
        )
        self._trouble = chance.choice((0.05, 0.2, 0.5))
        self._busy = chance.choice((0.3, 0.6, 0.9))
        self._most_calls = chance.choice((1, 3, 6))

    def model(self) -> ScriptedModel:
        """Return a model of some provider, with the demands of that provider."""
        chance = self._chance
        target = chance.choice(tuple(TARGETS.values()))
        return ScriptedModel(
            self._turn,
            repeats=True,
            between=self._between if chance.random() < 0.8 else None,
            invocation=target.invocation,
            rules=find_dialect(target.provider, target.model).rules,
        )

    async def _between(self, _number: int) -> None:
        if self._chance.random() < 0.3:
            await asyncio.sleep(0)
        elif self._chance.random() < 0.003:
            await asyncio.Event().wait()

    def _turn(self, _request: ScriptedRequest) -> Script:
        chance = self._chance
        if chance.random() < 0.01:
            raise InvalidValue("a request that nobody can be sent")
        if chance.random() < self._trouble * 0.3:
            return self._error()
        has_calls = chance.random() < self._busy
        return Turn(
            text=chance.choice(TEXTS),
            thinking=chance.choice(TEXTS) if chance.random() < 0.3 else "",
            calls=self._calls() if has_calls else (),
            finish_reason=chance.choice(tuple(FinishReason)) if chance.random() < 0.3 else None,
            usage=None if chance.random() < 0.2 else TokenUsage(input_tokens=10, output_tokens=5, cost=0.001),
            error=self._error() if chance.random() < self._trouble * 0.3 else None,
            breaks_after=chance.randrange(12) if chance.random() < self._trouble * 0.3 else None,
        )

    def _calls(self) -> tuple[Call, ...]:
        chance = self._chance
        count = chance.randint(1, self._most_calls)
        are_alike = chance.random() < 0.03  # two of one id: no provider should, and some do
        ids = chance.choices(IDS, k=count) if are_alike else chance.sample(IDS, k=count)
        return tuple(map(self._call, ids))

    def _call(self, call_id: str) -> Call:
        chance = self._chance
        name = chance.choice(self._tools)
        if name in NOTEBOOK and chance.random() < 0.8:
            word = chance.choice(("a", "b", "c"))
            return Call(name, {"text": word} if "append" in name else {"content": word} if "text" not in name else {})
        arguments = chance.choice(ARGUMENTS[:3] if chance.random() < 0.7 else ARGUMENTS)
        return Call(name, arguments, call_id)

    def _error(self) -> ModelError:
        chance = self._chance
        code = ErrorCode.CONTEXT_OVERFLOW if chance.random() < 0.2 else chance.choice(MODEL_CODES)
        return ModelError("it failed", code=code, retry_after=chance.choice((None, None, 0.0, 0.0001, 1_000.0)))


# ---------------------------------------------------------------- tools


class Troupe:
    """Tools that do whatever a tool can do. `marks` counts how often each call of one that may not run twice has run.

    Calm ones have the same names and only say that all is well.
    """

    def __init__(self, chance: random.Random, *, is_calm: bool = False, with_threads: bool = False) -> None:
        self._chance = chance
        self._is_calm = is_calm
        self._with_threads = with_threads
        self._freed = threading.Event()
        self.marks: Counter[str] = Counter()

    def tools(self) -> list[ToolDefinition]:
        """Return all of them."""
        tools = [
            self._tool("quick", self._quick),
            self._tool("slow", self._slow),
            self._tool("once", self._mark),
            self._tool("twice", self._mark, concurrency="one at a time"),
            self._tool("safe", self._slow, idempotent=True),
            self._tool("raises", self._raise),
            self._tool("junk", self._return_junk),
            self._tool("hangs", self._hang),
            self._tool("late", self._hang, timeout_ms=1),
            self._tool("clings", self._cling),
            self._tool("asks", self._mark, requires_approval=True),
            self._tool("may_ask", self._mark, requires_approval=self._needs_approval),
            self._tool("steers", self._steer, requires_agent=True),
        ]
        if self._with_threads:
            tools += [self._tool("plain", self._run_plainly), self._tool("stuck", self._wait_plainly, timeout_ms=1)]
        return tools

    def free(self) -> None:
        """Let go of the threads that wait."""
        self._freed.set()

    def _tool(self, name: str, execute: Callable[..., Any], **more: Any) -> ToolDefinition:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
        does = self._be_calm if self._is_calm else execute
        return ToolDefinition(name=name, description=f"Does {name}.", parameter_schema=schema, execute=does, **more)

    async def _be_calm(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        if context.tool_name in ("once", "twice", "asks", "may_ask"):
            self.marks[context.tool_call_id] += 1
        return "All is well."

    async def _quick(self, arguments: dict[str, Any], _context: ToolContext[Any]) -> Any:
        return arguments

    async def _slow(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> str:
        await linger(self._chance, 30)
        return "at last"

    async def _mark(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        await linger(self._chance, 3)
        self.marks[context.tool_call_id] += 1
        await linger(self._chance, 10)
        return "done"

    async def _raise(self, arguments: dict[str, Any], _context: ToolContext[Any]) -> NoReturn:
        await linger(self._chance, 5)
        arguments["n"] = object()  # what it does to its arguments stays with it
        raise self._chance.choice(
            (
                Injected("no"),
                ToolError("ask somebody else", code=self._chance.choice(tuple(ErrorCode))),
                Mute(),
                Abrupt(),
                SystemExit(3),
                asyncio.CancelledError(),
                GeneratorExit(),
                KeyboardInterrupt(),
                RecursionError(),
                TimeoutError(),
                StopIteration(),
            )
        )

    async def _return_junk(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> Any:
        cycle: list[Any] = []
        cycle.append(cycle)
        deep: list[Any] = []
        for _ in range(3_000):
            deep = [deep]
        return self._chance.choice(
            (
                object(),
                b"\xff",
                float("nan"),
                cycle,
                deep,
                {1: 2, None: 3},
                {"a", "b"},
                "\udc00 half",
                "",
                None,
                Injected,
                10**400,
                "long " * 60_000,
                (Image(mime_type="image/png", data=PNG), "a picture"),
                ToolOutput((Section("T", "whole"),), summary="short", attachments=(Image("image/png", PNG),)),
                lambda: None,
            )
        )

    async def _hang(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> None:
        await asyncio.Event().wait()

    async def _cling(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> str:
        try:
            await linger(self._chance, 100)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "I was nearly done."

    async def _steer(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        await context.agent.steer("By the way.")
        return "said"

    def _needs_approval(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> bool:
        if self._chance.random() < 0.2:
            raise self._chance.choice(RUDE)()
        return self._chance.random() < 0.5

    def _run_plainly(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> Any:
        if self._chance.random() < 0.3:
            raise Injected
        return {"a": [1, 2.5, True]}

    def _wait_plainly(self, _arguments: dict[str, Any], _context: ToolContext[Any]) -> None:
        self._freed.wait(10)


# ---------------------------------------------------------------- policy, hooks, store


class Whims:
    """A policy that approves, refuses, changes, leaves it to a person, raises, says nonsense, or never answers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.has_failed = False

    async def decide(self, _request: ApprovalRequest) -> Any:
        """Return anything."""
        await linger(self._chance, 3)
        choice = self._chance.random()
        if choice < 0.03:
            self.has_failed = True
            raise self._chance.choice(RUDE)()
        if choice < 0.05:
            self.has_failed = True
            return "yes"
        if choice < 0.07:
            await asyncio.Event().wait()
        return self._chance.choice((True, False, None, None, self.decision()))

    def decision(self) -> ApprovalDecision:
        """Return an answer that a person might give."""
        chance = self._chance
        if chance.random() < 0.4:
            return ApprovalDecision(False, chance.choice(("", "Too dangerous.")))
        return ApprovalDecision(True, arguments=chance.choice((None, {}, {"n": 7}, {"n": "seven"}, {"m": []})))


class Noise(Hooks):
    """Hooks that dawdle and raise."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        """Return the call as it is, or nothing, or raise."""
        await self._do()
        return self._chance.choice((None, call))

    async def after_model(self, *_: Any) -> None:
        """Do nothing, badly."""
        await self._do()

    async def before_tool(self, *_: Any) -> None:
        """Do nothing, badly."""
        await self._do()

    async def after_tool(self, *_: Any) -> None:
        """Do nothing, badly."""
        await self._do()

    async def _do(self) -> None:
        await linger(self._chance, 2)
        if self._chance.random() < 0.1:
            raise self._chance.choice(RUDE)()


class ShakyStore(MemoryStore):
    """A store that takes its time, and stops after `appends_left` appends as if the process or the disk had.

    With `loses_answer` the append at which it stops has been kept, but the caller is not told. `ends` are the lengths
    that the session has had: what can be left of it after a crash.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._slowness = chance.choice((0, 0, 3, 30))
        self.appends_left: int | None = None
        self.loses_answer = False
        self.ends: list[int] = []

    def expire(self, session_id: str) -> None:
        """Let the lease of a session be over, as if its owner had been stopped for too long."""
        self._find(session_id).held = None

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        """Keep the entries, sooner or later, unless it has stopped."""
        is_last = self.appends_left == 0
        if is_last and not self.loses_answer:
            raise StoreError("the store has stopped", code=ErrorCode.SERVER_ERROR)
        await linger(self._chance, self._slowness)
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        self.ends.append(head.next_serial)
        if is_last:
            self.loses_answer = False
            raise StoreError("the store has stopped", code=ErrorCode.SERVER_ERROR)
        if self.appends_left is not None:
            self.appends_left -= 1
        await linger(self._chance, self._slowness)
        return head
