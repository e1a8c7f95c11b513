"""CopilotKit's aimock: one server that speaks the APIs of many vendors, with answers and faults that we give it."""

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dragoman
from dragoman import Model

from .npm import installed_packages, running

KEY = "not-a-real-key"

# The names that it can be reached by, and where each API is on it. Its Bedrock fails (500) on the `cachePoint` of a
# Claude model, and its /invoke-with-response-stream lacks the base64 that Bedrock wraps every event in.
NAMES = {
    "openai:gpt-5.2": "/v1",
    "openai-chat:gpt-4.1": "/v1",
    "openai-compatible:some-model": "/v1",
    "openai-responses-compatible:some-model": "/v1",
    "anthropic:claude-opus-4-5": "",
    "anthropic-compatible:some-model": "",
    "google:gemini-2.5-pro": "",
    "google-vertex:gemini-2.5-pro": "/v1/projects/p/locations/l",
    "bedrock:amazon.nova-pro-v1:0": "",
    "azure:gpt-4.1": "/openai/deployments/gpt-4.1",
    "azure-responses:gpt-5": "/openai/v1",
    "mistral:mistral-large-latest": "/v1",
    "openrouter:openai/gpt-4o": "/api/v1",
    "openrouter-responses:openai/gpt-5": "/api/v1",
    "groq:openai/gpt-oss-120b": "/openai/v1",
    "deepseek:deepseek-chat": "",
    "xai:grok-4": "/v1",
    "ollama:llama3.2": "/v1",
    "vllm:some-model": "/v1",
    "llamacpp:some-model": "/v1",
    "llamacpp-responses:some-model": "/v1",
    "llamacpp-anthropic:some-model": "",
}


class Aimock:
    """A server that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def model(self, name: str, **options: Any) -> Model:
        """Return one of NAMES, at this server."""
        return dragoman.model(name, base_url=self.url + NAMES[name], api_key=KEY, cache=False, **options)

    def last_request(self) -> Mapping[str, Any]:
        """Return what the server understood of the last request: whatever its API, as Chat Completions would say it."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal") as answer:
            journal: list[dict[str, Any]] = json.load(answer)
        body: dict[str, Any] = journal[-1]["body"]
        return body


@contextmanager
def aimock(fixtures: list[dict[str, Any]], folder: Path) -> Iterator[Aimock]:
    """Run a server that gives these answers, the first that matches."""
    program = installed_packages() / "@copilotkit" / "aimock" / "dist" / "cli.js"
    file = folder / "fixtures.json"
    file.write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    with running(program, "--port", "0", "--fixtures", str(file), "--validate-on-load", "--journal-max", "8") as lines:
        printed = []
        for line in lines:
            printed.append(line)
            if address := re.search(r"listening on (http://\S+)", line):
                yield Aimock(address[1])
                return
        raise RuntimeError(f"aimock did not start: {''.join(printed)}")
