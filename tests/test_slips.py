"""What a user mistyped or gave as another type: the error names what was meant, where it is given."""

import os
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ContextConfig,
    ErrorCode,
    FinishReason,
    InvalidValue,
    ToolContext,
    ToolsConfig,
    model,
)
from dragoman.context import ContextBuildInput, ModelCompactor
from dragoman.interop import Imported
from dragoman.router import LlmRequest
from dragoman.testing import Call, ReplayedResponse, ReplayTransport, Turn
from dragoman.transport import AwsKeys
from tests.model_cases import ask


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("opena:gpt-5", "there is no provider 'opena': did you mean 'openai:gpt-5'?"),
        ("OpenAI:gpt-5", "there is no provider 'OpenAI': did you mean 'openai:gpt-5'?"),
        ("gemini:gemini-2.5-pro", "there is no provider 'gemini': did you mean 'google:gemini-2.5-pro'?"),
        ("gpt-5", "'gpt-5' is no model: did you mean 'openai:gpt-5'?"),
        ("gpt5", "'gpt5' is no model: did you mean 'openai:gpt-5'?"),
        ("openai/gpt-5", "'openai/gpt-5' is no model: did you mean 'openai:gpt-5'?"),
        ("openai-gpt-5", "'openai-gpt-5' is no model: did you mean 'openai:gpt-5'?"),
        ("claude-opus-4-5", "'claude-opus-4-5' is no model: did you mean 'anthropic:claude-opus-4-5'?"),
        ("openai:", "'openai:' is no model: give provider:name, such as anthropic:claude-opus-4-5"),
        ("something", "'something' is no model: give provider:name, such as anthropic:claude-opus-4-5"),
    ],
)
def test_a_name_that_is_no_model_is_refused_with_the_one_that_was_meant(typed: str, says: str) -> None:
    for refused in (lambda: model(typed), lambda: Agent(typed)):
        with pytest.raises(InvalidValue) as caught:
            refused()
        assert str(caught.value) == says


def test_a_provider_like_no_other_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(InvalidValue, match=r"there is no provider 'zzz': there are anthropic, .*, zai$"):
        model("zzz:yyy")


NOT_FOUND = ReplayedResponse(
    status=404, headers={"content-type": "application/json"}, chunks=(b'{"error":{"message":"no such model"}}',)
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai:gpt5", ". Did you mean 'openai:gpt-5'?"),
        ("anthropic:claud-opus-4-5", ". Did you mean 'anthropic:claude-opus-4-5'?"),
        ("openai:gpt-5", ""),
        ("openai:gpt-5-2025-08-07", ""),
        ("openai:something-else", ""),
    ],
)
def test_a_model_that_the_provider_does_not_know_is_told_with_the_one_that_was_meant(name: str, meant: str) -> None:
    asked = model(name, api_key="secret", transport=ReplayTransport([NOT_FOUND]))
    error = ask(asked)[1].assembly.error
    assert error.error_code is ErrorCode.NOT_FOUND
    assert error.message.endswith(meant)
    assert ("Did you mean" in error.message) is bool(meant)


def test_a_region_that_is_missing_is_told_with_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidValue, match="given as region= or AWS_REGION or AWS_DEFAULT_REGION"):
        model("bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0")


def test_a_key_that_is_missing_is_told_with_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    result = Agent(model("google:gemini-2.5-pro", transport=ReplayTransport([]))).run_sync("Hi.")
    assert result.error is not None
    assert result.error.message == "no key for google: set GEMINI_API_KEY or GOOGLE_API_KEY, or pass api_key="


@pytest.mark.parametrize(
    ("kind", "given", "named", "says"),
    [
        (Turn, (), {"finish_reason": "length"}, "Turn.finish_reason must be FinishReason.LENGTH, got a str"),
        (Turn, (), {"finish_reason": "lenght"}, "Turn.finish_reason must be FinishReason.LENGTH, got a str"),
        (Turn, (), {"finish_reason": "TOOL_CALLS"}, "Turn.finish_reason must be FinishReason.TOOL_CALLS, got a str"),
        (Turn, (), {"finish_reason": 3}, "Turn.finish_reason must be FinishReason.STOP or "),
        (Turn, (), {"text": 3}, "Turn.text must be str, got 3"),
        (Turn, (), {"calls": Call("x")}, "Turn.calls must be tuple[dragoman.testing.scripted.Call, ...], got a Call"),
        (Turn, (), {"calls": ["x"]}, "Turn.calls must be"),
        (Turn, (), {"breaks_after": True}, "Turn.breaks_after must be int or None, got True"),
        (Call, ("x", 3), {}, "Call.arguments must be dict[str, typing.Any] or str, got 3"),
        (ReplayedResponse, (), {"chunks": (b"a", "b")}, "ReplayedResponse.chunks must be tuple[bytes, ...], got"),
        (AwsKeys, ("a", b"secret"), {}, "AwsKeys.secret_key must be str, got a bytes"),
        (ToolContext, (), {"options": []}, "ToolContext.options must be dict[str, typing.Any], got a list"),
        (ModelCompactor, (), {"max_tokens": "9"}, "ModelCompactor.max_tokens must be int, got a str"),
        (Imported, (None, ["x"]), {}, "Imported.messages must be"),
        (LlmRequest, (), {"strategy": None}, "LlmRequest.strategy must be str, got None"),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_given(kind: Any, given: Any, named: Any, says: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        kind(*given, **named)
    assert str(caught.value).startswith(says)


def test_what_fits_is_taken() -> None:
    assert Turn(finish_reason=FinishReason.LENGTH, calls=(Call("x"),)).finish_reason is FinishReason.LENGTH
    assert ToolContext(runtime=object(), retries_left=1).retries_left == 1
    assert ContextBuildInput(entries=[], now=datetime.now(UTC)).tools == ()


@pytest.mark.parametrize(
    ("kind", "named", "says"),
    [
        (AgentConfig, {"tool": 1}, "AgentConfig has no setting 'tool': did you mean 'tools'?"),
        (ToolsConfig, {"notebok": True}, "ToolsConfig has no setting 'notebok': did you mean 'notebook'?"),
        (ContextConfig, {"zzz": 1}, "ContextConfig has no setting 'zzz': there are policy, budget_tokens, "),
        (model, {"name": "openai:gpt-5", "temprature": 1}, "there is no setting 'temprature'. Did you mean 'temp"),
    ],
)
def test_a_setting_that_there_is_not_is_refused_with_the_one_that_was_meant(kind: Any, named: Any, says: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        kind(**named)
    assert str(caught.value).startswith(says)
