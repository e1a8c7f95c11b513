"""A client's settings reach any target: what it cannot take is changed or left out, and named, never refused."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Message, ModelConfig, ModelError, Reasoning, ToolSpec
from dragoman.errors import UnreadableData
from dragoman.history.handoff import hand_off
from dragoman.request import HostedTool, ModelRequest, ReadRequest
from dragoman.toolspec import OneTool
from dragoman.wire import find_codec, find_dialect
from dragoman.wire.fitting import fit_request
from tests.conversations import Target
from tests.corpus import needs_corpus
from tests.read_requests import read_recorded, recorded_bodies

TARGETS = {
    "anthropic-messages": Target("anthropic", "claude-sonnet-4-5"),
    "openai-chat": Target("openai-chat", "gpt-5"),
    "openai-responses": Target("openai", "gpt-5"),
    "gemini": Target("google", "gemini-3-pro-preview"),
    "bedrock": Target("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "bedrock-llama": Target("bedrock", "us.meta.llama3-3-70b-instruct-v1:0"),
    "mistral": Target("mistral", "mistral-large-latest"),
}


def fitted(read: ReadRequest, target: Target) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body that the target gets, and the warnings."""
    dialect = find_dialect(target.provider, target.model)
    request, warnings = fit_request(read, dialect, target.model)
    handed = hand_off(request.messages, request.tools, target=target.invocation, rules=dialect.rules)
    request = replace(request, messages=handed.messages, tools=handed.tools)
    wire = find_codec(dialect.specification).encode_request(request, dialect)
    return json.loads(wire.body), warnings


def asked(**settings: Any) -> ReadRequest:
    hosted = settings.pop("hosted_tools", ())
    config = ModelConfig("asked-for", **settings)
    tools = (ToolSpec("look_up"),)
    request = ModelRequest(config=config, messages=(Message.user("Hi"),), tools=tools)
    return ReadRequest(request=request, hosted_tools=hosted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "settings",
    [
        {"reasoning": Reasoning(budget_tokens=4_000)},
        {"reasoning": Reasoning(budget_tokens=4_000), "max_tokens": 1_000},
        {"reasoning": Reasoning(budget_tokens=4_000), "max_tokens": 3_000},
        {"reasoning": Reasoning(budget_tokens=1_000), "max_tokens": 1_010},
        {"reasoning": Reasoning(effort="high"), "tool_choice": "required"},
        {"reasoning": Reasoning(budget_tokens=4_000), "tool_choice": OneTool("look_up"), "max_tokens": 9_000},
        {"reasoning": Reasoning(effort="off")},
        {"reasoning": Reasoning(effort="max", summary=True)},
        {"parallel_tool_calls": False},
        {"stop_sequences": ("END",)},
        {"output_schema": {"type": "object", "properties": {}}},
        {"tool_choice": "required"},
        {"hosted_tools": (HostedTool("web_search", {"max_uses": 3}), HostedTool("local_shell"))},
    ],
    ids=str,
)
def test_no_setting_of_a_client_is_refused(target: str, settings: dict[str, Any]) -> None:
    body, _ = fitted(asked(**settings), TARGETS[target])
    assert body


def test_a_budget_becomes_the_weakest_effort_that_has_as_many_tokens() -> None:
    body, warnings = fitted(asked(reasoning=Reasoning(budget_tokens=4_000)), TARGETS["openai-responses"])
    assert body["reasoning"] == {"effort": "medium"}
    assert warnings == ("a thinking budget of 4000 is said as the effort 'medium'",)


def test_a_hosted_tool_goes_along_where_the_target_has_it_and_is_named_elsewhere() -> None:
    read = asked(hosted_tools=(HostedTool("web_search", {"max_uses": 3}),))
    body, warnings = fitted(read, TARGETS["openai-responses"])
    assert {"type": "web_search"} in body["tools"]
    assert warnings == ()
    body, warnings = fitted(read, TARGETS["mistral"])
    assert len(body["tools"]) == 1
    assert warnings == ("the hosted tool 'web_search' is left out: mistral has none",)


def test_a_setting_that_the_target_takes_is_not_changed() -> None:
    read = asked(temperature=0.5, max_tokens=99, reasoning=Reasoning(effort="low"))
    dialect = find_dialect("openai")
    request, warnings = fit_request(read, dialect, "gpt-5")
    assert warnings == ()
    assert request.config == replace(read.request.config, model_id="gpt-5")


@needs_corpus
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_recorded_request_goes_to_every_api_unless_it_has_media_that_the_target_cannot_read(every: int) -> None:
    sent, refused = 0, []
    for api, record in recorded_bodies(every):
        try:
            read = read_recorded(api, record)
        except UnreadableData:
            continue
        for target in TARGETS.values():
            try:
                fitted(read, target)
                sent += 1
            except ModelError as error:
                refused.append(str(error))
    assert all("cannot read" in words for words in refused)
    assert sent > 10 * len(refused)
