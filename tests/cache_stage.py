"""Sessions as an agent records them, with a clock of their own and a provider that caches what it is sent.

The provider reads the very bytes of a request, and shares no code with what is tested: it compares texts.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from dragoman import Message, Model, Role, ToolSpec
from dragoman.context import ContextBuildInput, ContextManager
from dragoman.history import (
    AgentState,
    CallSetup,
    ClientAnswerEntry,
    ClientRequestEntry,
    HistoryToolCallResult,
    ToolSets,
)
from dragoman.history.exchanges import change_of
from dragoman.history.media import describe_unreadable
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from dragoman.models.recorded import REQUEST_KEY, check_request, open_recorded_model, recorded_settings
from dragoman.request import ContextConfig
from dragoman.usage import TokenUsage
from tests.conversations import History, Target

__all__ = ["CachingProvider", "ClientStage", "Stage"]

START = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)
LIFE = 300.0
LOOK = (ToolSpec("look", "Look at a file."),)  # where a conversation declares no tools
LEAST, STEP = 1_024, 128
# Where the parts of a request stand, in the order in which they are cached.
_PLACES = ("tools", "toolConfig", "system", "systemInstruction", "instructions", "messages", "contents", "input")


class CachingProvider:
    """Says how many tokens of a request it has read before, from the same session and model, not too long ago."""

    def __init__(self) -> None:
        self.life = LIFE
        self.is_extended = False  # whether the newest request begins with all of the one before it
        self._known: dict[str, list[tuple[datetime, str]]] = {}

    def take(self, model: str, body: bytes | str, now: datetime) -> TokenUsage:
        """Return the usage of a request, and remember it."""
        text = _linear(json.loads(body))
        known = self._known.setdefault(model, [])
        alive = [said for when, said in known if (now - when).total_seconds() <= self.life]
        shared = max((_shared(said, text) for said in alive), default=0) // 4
        cached = shared // STEP * STEP if shared >= LEAST else 0
        before = known[-1][1].rstrip("]}") if known else ""  # without the ends of the lists that grow
        self.is_extended = bool(known) and text.startswith(before)
        known.append((now, text))
        return TokenUsage(input_tokens=max(len(text) // 4, 1), output_tokens=10, cache_read_tokens=cached)

    def forget(self) -> None:
        """Lose what was cached."""
        self._known.clear()


def _linear(body: dict[str, Any]) -> str:
    """What is cached of a request, as one text without marks."""
    return "\n".join(json.dumps(_unmarked(body[name])) for name in _PLACES if name in body)


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        kept = (_unmarked(each) for each in value if not (isinstance(each, dict) and set(each) == {"cachePoint"}))
        return list(kept)
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
    return value


def _shared(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


class Stage:
    """One session of an agent, call by call."""

    def __init__(
        self,
        target: Target,
        history: History,
        *,
        budget: int = 10_000_000,
        reports: bool = True,
        policy: Literal["epochs", "simple"] = "epochs",
    ) -> None:
        self.now = START
        self.provider = CachingProvider()
        self.reports = reports
        self.tools = history.tools or LOOK
        self.state = AgentState.create_default(
            history.system or "You help.", session_id="stage", clock=lambda: self._tick()
        )
        self._managers: dict[ModelInvocationDescriptor, ContextManager] = {}
        self._config = ContextConfig(budget_tokens=budget, policy=policy)
        self._sets = ToolSets()
        self.aim_at(target)

    def aim_at(self, target: Target) -> None:
        """Ask this model from now on."""
        self.model: Model = open_recorded_model(target.invocation)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def _tick(self) -> datetime:
        self.now += timedelta(seconds=2)
        return self.now

    def say(self, message: Message) -> None:
        """Record what a person says."""
        self.state.append_model_input(*message.parts)

    def results(self, messages: Sequence[Message]) -> None:
        """Record the results of the newest calls, in their order."""
        calls = self.state.derived.open_calls
        said = {message.tool_results[0].tool_call_id: message.tool_results[0] for message in messages}
        self.state.append_tool_results(
            [
                HistoryToolCallResult.of_text(
                    call.request, str(said[call.tool_call_id].content) if call.tool_call_id in said else "nothing"
                )
                for call in calls
            ]
        )

    def ask(self, answer: Message) -> str | None:
        """Ask the model, which answers this; return why an epoch began, if one did."""
        model, invocation = self.model, self.model.invocation
        manager = self._managers.setdefault(invocation, ContextManager(self._config))
        built = manager.build_context(
            ContextBuildInput(
                entries=self.state.entries,
                now=self.now,
                tools=self.tools if model.supports("tools") else (),
                model_info=model.model_info(),
                invocation=invocation,
                rules=model.rules,
                screen_in_result=not model.rules.user_after_tool,
            )
        )
        for entry in built.entries:
            self.state.append(entry)
        self._sets.extend(self.state.entries)
        setup = CallSetup(
            tools=built.tool_specs,
            settings=recorded_settings(model, {}),
            policy="" if self._config.policy == "epochs" else self._config.policy,
        )
        change = self._sets.find_change(invocation, setup)
        if change is not None:
            self.state.append(change)
        request = model.render(
            [describe_unreadable(message, model.rules) for message in built.messages],
            built.tool_specs,
            built.system or "",
            request_metadata={"run_id": "", "session_id": "stage"},
            cache_anchors=built.cache_anchors,
        )
        usage = self.provider.take(f"{invocation}", request.body, self.now)
        reason = answer.meta.finish_reason if answer.meta is not None else None
        meta = MessageMeta(invocation=invocation, usage=usage if self.reports else None, finish_reason=reason)
        said = msgspec.structs.replace(answer, meta=meta)
        self.state.append_model_output(said, metadata={**built.metadata, REQUEST_KEY: check_request(request)})
        return built.stats.epoch

    def fork(self, serial: int) -> None:
        """Go on as a session that shares the entries up to this one."""
        self.state = AgentState.from_entries(
            self.state.entries[: serial + 1], session_id="stage", clock=lambda: self._tick()
        )
        self._sets = ToolSets()


class ClientStage:
    """One session of a client that sends its whole conversation each time, as the gateway records it."""

    def __init__(self, target: Target, history: History, *, reports: bool = True) -> None:
        self.now = START
        self.provider = CachingProvider()
        self.reports = reports
        self._model = open_recorded_model(target.invocation)
        self.system = history.system or "You help."
        self.tools = (history.tools or LOOK) if self._model.supports("tools") else ()
        self.state = AgentState.create_default(session_id="client", clock=lambda: self._tick())
        self._last: ClientRequestEntry | None = None

    def _tick(self) -> datetime:
        self.now += timedelta(seconds=2)
        return self.now

    def ask(self, messages: Sequence[Message], answer: Message) -> None:
        """Record a request with these messages, and the answer to it."""
        sent = [describe_unreadable(message, self._model.rules) for message in messages]
        self.ask_raw(self._model.render(sent, self.tools, self.system).body.decode(), answer)

    def ask_raw(self, body: str, answer: Message) -> None:
        """Record a request with this body, and the answer to it."""
        invocation, state = self._model.invocation, self.state
        change = change_of(lambda serial: state.entries[serial], body, self._last)
        asked = ClientRequestEntry(invocation.specification, "/v1", invocation.model, *change)
        recorded = state.append(asked)
        assert isinstance(recorded, ClientRequestEntry)
        self._last = recorded
        usage = self.provider.take("client", body, self.now) if self.reports and body.startswith("{") else None
        meta = MessageMeta(invocation=invocation, usage=usage)
        parts = tuple(part for part in answer.parts if part.kind == "text") or answer.parts[:0]
        state.append_model_output(Message(Role.ASSISTANT, parts, meta=meta))
        name = f"{invocation.provider}:{invocation.model}"
        state.append(ClientAnswerEntry.of(recorded.serial, 200, b"{}", model=name))

    def fork(self, serial: int) -> None:
        """Go on as a session that shares the entries up to this one."""
        self.state = AgentState.from_entries(
            self.state.entries[: serial + 1], session_id="fork", clock=lambda: self._tick()
        )
        self._last = None
