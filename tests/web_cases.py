"""Clients of the gateway for tests: what they ask in each API, and what they are given."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragoman import FinishReason, Message, ModelConfig, Role, Text, ToolCall, ToolResult, ToolSpec
from dragoman.delta import ErrorDelta
from dragoman.errors import ErrorCode
from dragoman.history import ModelOutputEntry
from dragoman.history.handoff import hand_off
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from dragoman.request import ModelRequest
from dragoman.store import MemoryStore, Session, SessionStore, SQLiteStore, open_session
from dragoman.stream import Assembly
from dragoman.testing.validators import validate_request
from dragoman.web.gateway.asked import Asked, Given
from dragoman.wire import find_codec, find_dialect, find_provider
from tests.conversations import TARGETS
from tests.postgres_server import Place

CLAUDE = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
PATHS = {
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
    "openai-chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}
LOOK = ToolSpec("look", "Looks it up.")
READ = ToolSpec("read", "Reads a file.")


def asked(
    *messages: Message,
    api: str = "anthropic-messages",
    system: str | None = "Be brief.",
    tools: Sequence[ToolSpec] = (LOOK, READ),
    **fields: Any,
) -> Asked:
    """A client's request, as our own encoder writes it and a server reads it."""
    request = ModelRequest(config=ModelConfig("m"), messages=messages, tools=tuple(tools), system=system)
    codec = find_codec(api)
    body = codec.encode_request(request, find_dialect(find_provider(api))).body
    return of_body(body, api=api, **fields)


def of_body(body: bytes, *, api: str = "anthropic-messages", **fields: Any) -> Asked:
    """A request with this body."""
    read_request = find_codec(api).read_request
    assert read_request is not None
    read = read_request(body, model="m", stream=True)
    given = {"client": "program", "path": PATHS[api], "headers": {}, "is_stream": True, **fields}
    return Asked(api=api, model="m", body=body, read=read, **given)


def given(message: Message | None, **fields: Any) -> Given:
    """A whole answer."""
    body = b"" if message is None else message.text.encode()
    common = {"status": 200, "headers": {"content-type": "text/event-stream"}, "model": "anthropic:m"}
    return Given(**{**common, "body": body, "assembly": Assembly(message=message), "is_whole": True, **fields})


def answer(*parts: Any, finish: FinishReason = FinishReason.STOP) -> Message:
    """An answer as a model gave it."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message(Role.ASSISTANT, made, meta=MessageMeta(invocation=CLAUDE, finish_reason=finish))


def failed(code: ErrorCode = ErrorCode.OVERLOADED, partial: Message | None = None) -> Given:
    """An answer that broke off, or never began."""
    error = ErrorDelta("", 0, None, code, "it failed")
    assembly = Assembly(partial=partial, error=error)
    return given(None, status=529, body=b"{}", assembly=assembly, is_whole=partial is None)


def call(name: str = "look", call_id: str = "call_1", **arguments: Any) -> ToolCall:
    """A call of a tool."""
    return ToolCall(call_id, name, arguments)


def result(text: str, call_id: str = "call_1") -> Message:
    """What a tool returned."""
    return Message.tool(ToolResult(call_id, text))


async def all_sessions(store: SessionStore) -> list[Session]:
    """Every session of a store, oldest first."""
    page = await store.list(limit=10_000)
    return [await open_session(store, info.session_id) for info in reversed(page.sessions)]


async def require_sound(store: SessionStore) -> None:
    """Check that every session is what was appended, legal, and one that every target accepts."""
    for session in await all_sessions(store):
        report = await store.verify(session.session_id)
        assert report.is_sound, report.problem
        require_accepted(session.messages, session.state.system_instruction)


def require_accepted(messages: Sequence[Message], system: str | None = None) -> None:
    """Check that every kind of target accepts a request with these messages."""
    for target in TARGETS.values():
        dialect = find_dialect(target.provider, target.model)
        handed = hand_off([*messages, Message.user("Go on.")], (LOOK,), target=target.invocation, rules=dialect.rules)
        request = ModelRequest(
            config=ModelConfig(target.model), messages=handed.messages, tools=handed.tools, system=system
        )
        wire = find_codec(dialect.specification).encode_request(request, dialect)
        problems = list(validate_request(target.provider, wire.body, path=wire.path))
        assert not problems, (target.provider, problems)


def texts(session: Session) -> list[str]:
    """What was said in a session, in short."""
    return [f"{message.role}: {_short(message)}" for message in session.messages]


def _short(message: Message) -> str:
    said = [part.text for part in message.parts if isinstance(part, Text)]
    said += [f"{each.tool_name}()" for each in message.tool_calls]
    said += [str(each.content) for each in message.tool_results]
    return " ".join(said)


def outputs(session: Session) -> list[Message]:
    """The answers of a session."""
    return [entry.message for entry in session.entries if isinstance(entry, ModelOutputEntry)]


StoreOpener = Callable[[], SessionStore]


def store_opener(request: pytest.FixtureRequest) -> StoreOpener:
    """What opens stores of one new place, of the kind that a fixture is asked for: memory, sqlite or postgres."""
    if request.param == "memory":
        return MemoryStore
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        return lambda: SQLiteStore(path)
    place: Place = request.getfixturevalue("postgres")
    return lambda: place.store(poll_seconds=3600)
