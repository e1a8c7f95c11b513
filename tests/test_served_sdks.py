"""The vendors' own SDKs on `dragoman serve`, with a real model behind: every front, streamed and whole, with tools."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.live_server import MODEL, live_server, missing_parts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ASKED = "What is the capital of France?"
TOOL = "weather"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PROVIDERS = ("llamacpp", "llamacpp-anthropic", "llamacpp-responses")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a process of its own; the name of a model is that of the API behind it."""
    problem = missing_parts()
    if problem is not None:
        if os.environ.get("DRAGOMAN_LIVE") == "required":
            pytest.fail(problem)
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("served")
    with live_server() as model_address:
        settings = folder / "config.toml"
        bases = {name: model_address if name.endswith("anthropic") else f"{model_address}/v1" for name in PROVIDERS}
        settings.write_text("".join(f'[providers.{name}]\nbase_url = "{base}"\n' for name, base in bases.items()))
        routes = [word for name in PROVIDERS for word in ("--model", f"{name}={name}:{MODEL}")]
        process = subprocess.Popen(
            [sys.executable, "-m", "dragoman", "serve", "--port", "0", "--store", str(folder / "s.db"), *routes],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "DRAGOMAN_CONFIG": str(settings)},
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("dragoman serves http://127.0.0.1:")
            yield line.split()[-1]
        finally:
            process.terminate()
            assert process.wait(10) == 0
            process.stdout.close()


def ask_anthropic(address: str, model: str, *, stream: bool, tools: bool) -> tuple[str, list[str], int]:
    """Text, names of called tools and output tokens."""
    import anthropic

    with anthropic.Anthropic(base_url=address, api_key="none", max_retries=0) as client:
        given: dict[str, Any] = {
            "model": model,
            "extra_body": {"temperature": 0},
            "max_tokens": 60,
            "messages": [{"role": "user", "content": ASKED}],
        }
        if tools:
            given["tools"] = [{"name": TOOL, "description": "The weather", "input_schema": SCHEMA}]
            given["tool_choice"] = {"type": "any"}
        if stream:
            with client.messages.stream(**given) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**given)
        text = "".join(block.text for block in message.content if block.type == "text")
        return text, [block.name for block in message.content if block.type == "tool_use"], message.usage.output_tokens


def ask_chat(address: str, model: str, *, stream: bool, tools: bool) -> tuple[str, list[str], int]:
    """The same by Chat Completions."""
    import openai

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        given: dict[str, Any] = {
            "model": model,
            "temperature": 0,
            "max_tokens": 60,
            "messages": [{"role": "user", "content": ASKED}],
        }
        if tools:
            given["tools"] = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
            given["tool_choice"] = "required"
        if not stream:
            whole = client.chat.completions.create(**given)
            said = whole.choices[0].message
            assert whole.usage is not None
            return (
                said.content or "",
                [call.function.name for call in said.tool_calls or ()],
                whole.usage.completion_tokens,
            )
        text, names, tokens = "", [], 0
        for chunk in client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                names += [call.function.name for call in choice.delta.tool_calls or () if call.function.name]
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        return text, names, tokens


def ask_responses(address: str, model: str, *, stream: bool, tools: bool) -> tuple[str, list[str], int]:
    """The same by Responses."""
    import openai

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        given: dict[str, Any] = {"model": model, "temperature": 0, "max_output_tokens": 60, "input": ASKED}
        if tools:
            given["tools"] = [{"type": "function", "name": TOOL, "parameters": SCHEMA, "strict": False}]
            given["tool_choice"] = "required"
        if stream:
            # llama.cpp's own events lack the numbers that the SDK's `stream` wants; here they pass as they are.
            ended = [
                event for event in client.responses.create(**given, stream=True) if event.type == "response.completed"
            ]
            response = ended[0].response
        else:
            response = client.responses.create(**given)
        assert response.usage is not None
        calls = [item.name for item in response.output if item.type == "function_call"]
        return response.output_text, calls, response.usage.output_tokens


def ask_gemini(address: str, model: str, *, stream: bool, tools: bool) -> tuple[str, list[str], int]:
    """The same by Gemini's API."""
    from google import genai
    from google.genai import types

    with closing(genai.Client(api_key="none", http_options=types.HttpOptions(base_url=address))) as client:
        config = types.GenerateContentConfig(max_output_tokens=60, temperature=0)
        if tools:
            declared = types.FunctionDeclaration(name=TOOL, parameters_json_schema=SCHEMA)
            config.tools = [types.Tool(function_declarations=[declared])]
            calling = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
            config.tool_config = types.ToolConfig(function_calling_config=calling)
            config.automatic_function_calling = types.AutomaticFunctionCallingConfig(disable=True)
        given: dict[str, Any] = {"model": model, "contents": ASKED, "config": config}
        text, names, tokens = "", [], 0
        answers = (
            client.models.generate_content_stream(**given) if stream else [client.models.generate_content(**given)]
        )
        for answer in answers:
            parts = (
                answer.candidates[0].content.parts or () if answer.candidates and answer.candidates[0].content else ()
            )
            text += "".join(part.text or "" for part in parts if not part.thought)
            names += [part.function_call.name or "" for part in parts if part.function_call]
            if answer.usage_metadata is not None:
                tokens = answer.usage_metadata.candidates_token_count or tokens
        return text, names, tokens


Ask = Callable[..., tuple[str, list[str], int]]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("model", PROVIDERS)
@pytest.mark.parametrize("ask", [ask_anthropic, ask_chat, ask_responses, ask_gemini])
def test_an_sdk_gets_an_answer_and_a_call(address: str, ask: Ask, model: str, stream: bool) -> None:
    text, calls, tokens = ask(address, model, stream=stream, tools=False)
    assert "Paris" in text
    assert not calls
    assert tokens > 0
    _, calls, _ = ask(address, model, stream=stream, tools=True)
    assert set(calls) == {TOOL}
