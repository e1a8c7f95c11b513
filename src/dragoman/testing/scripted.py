"""A model that plays a script: words, calls, failures and breaks, as deltas that pass the contract. Needs no network.

    ScriptedModel("Hello!", Turn(calls=(Call("weather", {"city": "Rome"}),)), ModelError("busy", code=…))

The first request gets the first turn, and so on; `requests` has what was asked.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from .._fieldtypes import require_field_types
from .._jsontext import encode_json
from ..delta import MessageDelta
from ..errors import InvalidValue, ModelError
from ..message import FinishReason, Message, ModelInvocationDescriptor, Role, require_messages
from ..models import ModelStream
from ..request import ModelInfo, WireRequest
from ..stream import Guard
from ..stream.writer import DeltaWriter
from ..target import TargetRules
from ..toolspec import ToolChoice, ToolSpec
from ..usage import TokenUsage

__all__ = ["Call", "ScriptedModel", "ScriptedRequest", "Turn"]

WORDS_LIMIT = 300  # characters of a message in an error
PIECE = 12  # characters of text in a delta
ACTOR = ModelInvocationDescriptor("scripted", "script", "actor")
NO_RULES = TargetRules()


class Call(msgspec.Struct, frozen=True):
    """A tool call of a script; arguments as an object, or as the very text that the model writes."""

    tool_name: str
    arguments: dict[str, Any] | str = {}
    tool_call_id: str = ""

    def __post_init__(self) -> None:
        require_field_types(self)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a script. With an `error` it ends in that after `breaks_after` deltas, or after all of them.

    `breaks_after` alone ends the stream without a word, as a broken connection does.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: FinishReason | None = None
    usage: TokenUsage | None = TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    error: ModelError | None = None
    breaks_after: int | None = None

    def __post_init__(self) -> None:
        require_field_types(self)


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the model was asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    system: str | None
    params: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The text of the last user message; empty if there is none."""
        return next((message.text for message in reversed(self.messages) if message.role is Role.USER), "")

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that were offered."""
        return tuple(tool.name for tool in self.tools)


Script: TypeAlias = "str | Turn | ModelError | Sequence[MessageDelta] | Callable[[ScriptedRequest], Script]"


class ScriptedModel:
    """Does what a `Model` does, from a script. After the last turn it fails, or repeats that one with `repeats`.

    `between` is awaited before each delta, with its number: to wait, or to do something in the middle of a
    stream.
    """

    def __init__(
        self,
        *script: Script,
        repeats: bool = False,
        between: Callable[[int], Awaitable[object]] | None = None,
        invocation: ModelInvocationDescriptor = ACTOR,
        info: ModelInfo | None = None,
        rules: TargetRules = NO_RULES,
    ) -> None:
        for number, turn in enumerate(script, 1):
            _require_turn(turn, f"turn {number} of the script")
        self.script = list(script)
        self.requests: list[ScriptedRequest] = []
        self.invocation = invocation
        self.rules = rules
        self._repeats = repeats
        self._between = between
        abilities = frozenset({"streaming", "tools", "structured_output"})
        self._info = info or ModelInfo(provider=invocation.provider, model_id=invocation.model, abilities=abilities)

    def __repr__(self) -> str:
        invocation = self.invocation
        return f"<ScriptedModel {invocation.provider}:{invocation.model}, asked {len(self.requests)} times>"

    def model_info(self) -> ModelInfo:
        """Return what is known of the model."""
        return self._info

    def supports(self, ability: str) -> bool:
        """Whether the model is said to have an ability."""
        return ability in self._info.abilities

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        request_metadata: Mapping[str, str] | None = None,
        cache_anchors: Sequence[int] = (),
        **params: Any,
    ) -> ModelStream:
        """Play the next turn; raise InvalidValue if there is none."""
        require_messages(messages)
        asked = {"tool_choice": tool_choice, "cache_anchors": tuple(cache_anchors), **params}
        request = ScriptedRequest(
            messages=tuple(messages), tools=tuple(tool_specs or ()), system=system_prompt, params=asked
        )
        self.requests.append(request)
        if not self.script:
            why = _last_words(request)
            raise InvalidValue(f"the script has no turn for request {len(self.requests)}{why}")
        turn = self.script[0] if self._repeats and len(self.script) == 1 else self.script.pop(0)
        while not isinstance(turn, (str, Turn, ModelError, Sequence)):
            turn = turn(request)
            _require_turn(turn, "what a function of the script returns")
        run_id = (request_metadata or {}).get("run_id", "")
        deltas = _deltas(turn, run_id, len(self.requests)) if isinstance(turn, (str, Turn, ModelError)) else list(turn)
        return ModelStream(self._play(deltas, run_id), request=_NO_REQUEST, invocation=self.invocation, rewrite={})

    async def _play(self, deltas: list[MessageDelta], run_id: str) -> AsyncGenerator[list[MessageDelta], None]:
        guard = Guard(run_id=run_id, source="script")
        if self._between is None:
            yield [legal for delta in deltas if (legal := guard.feed(delta)) is not None]
        else:
            for number, delta in enumerate(deltas):
                await self._between(number)
                legal = guard.feed(delta)
                if legal is not None:
                    yield [legal]
        closing = guard.close(now=datetime.now(UTC))
        if closing is not None:
            yield [closing]


def _require_turn(turn: object, field: str) -> None:
    """Raise InvalidValue for what is no turn: such a script would fail only when it is played."""
    if isinstance(turn, (str, Turn, ModelError)) or callable(turn):
        return
    allowed = "text, a Turn, a ModelError, a list of deltas or a function of the request"
    if isinstance(turn, Sequence) and not isinstance(turn, bytes):
        if all(isinstance(delta, MessageDelta) for delta in turn):
            return
        raise InvalidValue(f'{field} must be {allowed}; several turns are arguments: ScriptedModel("a", "b")')
    raise InvalidValue.of(field, turn, allowed)


def _last_words(request: ScriptedRequest) -> str:
    """The last message of a request, shortened: it says why the request was made."""
    if not request.messages:
        return ""
    message = request.messages[-1]
    said = message.text or ", ".join(str(result.content) for result in message.tool_results)
    said = said if len(said) <= WORDS_LIMIT else f"{said[:WORDS_LIMIT]}…"
    return f"; its last message ({message.role.value}) is: {said}"


_NO_REQUEST = WireRequest(path="/", body=b"")


def _deltas(turn: str | Turn | ModelError, run_id: str, number: int) -> list[MessageDelta]:
    writer = DeltaWriter(run_id)
    writer.now = datetime.now(UTC)
    if isinstance(turn, ModelError):
        writer.error(turn)
        return writer.take()
    turn = Turn(text=turn) if isinstance(turn, str) else turn
    writer.start("actor", f"request-{number}")
    for piece in _pieces(turn.thinking):
        writer.thinking(piece)
    for piece in _pieces(turn.text):
        writer.text(piece)
    for index, call in enumerate(turn.calls):
        call_id = call.tool_call_id or f"call_{number}_{index}"
        arguments = call.arguments if isinstance(call.arguments, str) else encode_json(call.arguments).decode()
        writer.call_start(call_id, call.tool_name)
        for piece in _pieces(arguments):
            writer.call_args(call_id, piece)
        writer.call_end(call_id)
    if turn.usage is not None:
        writer.usage(turn.usage)
    if turn.error is None and turn.breaks_after is None:
        reason = turn.finish_reason or (FinishReason.TOOL_CALLS if turn.calls else FinishReason.STOP)
        writer.done(reason, reason.value)
        return writer.take()
    deltas = writer.take()[: turn.breaks_after]
    if turn.error is not None:
        writer.error(turn.error)
    return deltas + writer.take()


def _pieces(text: str) -> Iterator[str]:
    return (text[index : index + PIECE] for index in range(0, len(text), PIECE))
