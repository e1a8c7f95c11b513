"""What every request holds to, whichever vendor it goes to: arguments are JSON objects, and extensions are merged."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import Message, Reasoning, ToolCall, ToolResult, ToolSpec, render_request
from dragoman._jsontext import MAX_DEPTH
from dragoman.testing import validate_request
from dragoman.wire import PROVIDERS

LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
CLAUDE = "claude-opus-4-5"
MODELS = {"google": "gemini-3-pro", "google-vertex": "gemini-3-pro", "bedrock": f"anthropic.{CLAUDE}-v1:0"}


def name_of(provider: str) -> str:
    return f"{provider}:{MODELS.get(provider, CLAUDE if provider.startswith('anthropic') else 'm-1')}"


def sent_arguments(value: Any) -> Iterator[Any]:
    """Every call's arguments in a request, under whatever name its API has for them; text is read as JSON."""
    if isinstance(value, list):
        for item in value:
            yield from sent_arguments(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ("arguments", "input", "args") and value.get("name", value.get("id")):
                yield json.loads(item, parse_constant=str) if isinstance(item, str) else item
            else:
                yield from sent_arguments(item)


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"at": ', {"unparsed_arguments": '{"at": '}),
        ("[1]", {"unparsed_arguments": "[1]"}),
        ('{"at": NaN}', {"unparsed_arguments": '{"at": NaN}'}),
        ('{"at": "\\ud83d"}', {"at": "\ufffd"}),
        ('{"at": "a", "at": "b"}', {"at": "b"}),
        ('{ "at":  "sea" }', {"at": "sea"}),
    ],
)
def test_arguments_go_to_every_vendor_as_an_object(provider: str, written: str, sent: dict[str, Any]) -> None:
    called = Message.assistant(ToolCall.parse("call_1", "look", written))
    history = [Message.user("Hi"), called, Message.tool(ToolResult("call_1", "sun")), Message.user("And?")]
    body = render_request(name_of(provider), history, tools=[LOOK]).body
    assert b"\\ud83d" not in body  # half a character, which strict parsers refuse
    assert list(sent_arguments(json.loads(body)["contents" if b'"contents"' in body else key_of(body)])) == [sent]


def key_of(body: bytes) -> str:
    return "input" if b'"input":[' in body and b'"messages"' not in body else "messages"


@pytest.mark.parametrize(
    ("name", "extensions", "merged"),
    [
        ("openai:gpt-5", {"reasoning": {"mode": "x"}}, {"reasoning": {"effort": "low", "mode": "x"}}),
        ("openrouter:m", {"reasoning": {"exclude": True}}, {"reasoning": {"effort": "low", "exclude": True}}),
        (
            "anthropic:claude-opus-4-6",
            {"output_config": {"task": {"a": 1}}},
            {"output_config": {"effort": "low", "task": {"a": 1}}},
        ),
        (
            "google:gemini-3-pro",
            {"generationConfig": {"thinkingConfig": {"x": 1}}},
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "x": 1}}},
        ),
        (
            "bedrock:anthropic.claude-opus-4-6-v1:0",
            {"additionalModelRequestFields": {"output_config": {"x": 1}}},
            {"additionalModelRequestFields": {"output_config": {"effort": "low", "x": 1}}},
        ),
    ],
)
def test_extensions_go_object_into_object(name: str, extensions: dict[str, Any], merged: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"reasoning": Reasoning(effort="low"), "max_tokens": 2_000, "extensions": extensions}
    body = json.loads(render_request(name, [Message.user("Hi")], **settings).body)
    for field, value in merged.items():
        assert reduced(body[field], value) == value


def reduced(sent: Any, wanted: Any) -> Any:
    """What was sent, without the fields that are not asked for here."""
    if not isinstance(wanted, dict):
        return sent
    return {name: reduced(sent[name], item) for name, item in wanted.items() if name in sent}


def nested(levels: int) -> dict[str, Any]:
    """Return an object that is nested so deep."""
    value: Any = []
    for _ in range(levels - 2):
        value = [value]
    return {"at": value}


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "google", "bedrock", "mistral"])
@pytest.mark.parametrize("levels", [180, 181, 190, MAX_DEPTH])
def test_what_a_value_takes_can_be_sent_however_deep_it_is(provider: str, levels: int) -> None:
    called = Message.assistant(ToolCall("call_1", "look", nested(levels)))
    history = [Message.user("Hi"), called, Message.tool(ToolResult("call_1", nested(levels))), Message.user("And?")]
    request = render_request(name_of(provider), history, tools=[LOOK])
    model = name_of(provider).partition(":")[2]
    assert validate_request(provider, request.body, model=model, path=request.path) == []
    assert b"[" * (levels - 1) in request.body  # whole, as a value or as text
