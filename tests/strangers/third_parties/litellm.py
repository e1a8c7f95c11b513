"""LiteLLM's proxy in front of a real model on this machine, on its four APIs: read by the official SDKs and by us.

    python -m venv V && V/bin/pip install 'litellm[proxy]==1.106.2'
    python -m tests.strangers.third_parties.litellm V/bin/litellm

Every answer that we get is recorded, served again from loopback and read by the SDK of its API: the same bytes, so both
must read the same. Then one session goes through all four APIs, with a tool.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

import dragoman
from dragoman import Agent, AgentConfig, ContextConfig, Hooks, Message, Role, SQLiteStore, ToolResult, ToolSpec, tool
from dragoman.agent import ModelCall
from dragoman.store import start_session
from dragoman.testing import RecordingTransport
from dragoman.testing.transports import read_recording
from dragoman.transport import AiohttpTransport
from tests.live_server import MODEL, live_server, missing_parts

from .sdks import Exchange, differences, serving

START_SECONDS = 300


class Api(NamedTuple):
    """One of LiteLLM's APIs: the provider here that speaks it, its protocol, and where it is."""

    provider: str
    protocol: str
    path: str


APIS = (
    Api("openai-compatible", "openai-compatible", "/v1"),
    Api("openai-responses-compatible", "openai-responses", "/v1"),
    Api("anthropic-compatible", "anthropic-messages", ""),
    Api("google", "gemini", ""),
)
WEATHER = ToolSpec(
    "get_weather",
    "Return the weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
        "required": ["city", "unit"],
    },
)
QUESTION = Message.user("What is the weather in Paris in Celsius?")
CONFIG = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "{upstream}/v1", api_key: none}}
general_settings: {{master_key: os.environ/LITELLM_MASTER_KEY}}
"""


@contextmanager
def proxy(program: str, upstream: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Run the proxy; yield its address and its key."""
    key = f"sk-{secrets.token_hex(24)}"  # it refuses well-known ones
    (folder / "config.yaml").write_text(CONFIG.format(model=MODEL, upstream=upstream), encoding="utf-8")
    with live_port() as port:
        pass
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches prices
        "NO_PROXY": "127.0.0.1",
    }
    options = ["--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "0"]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen([program, *options], env=environment, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "proxy.log")
            yield f"http://127.0.0.1:{port}", key
        finally:
            process.terminate()
            process.wait()


@contextmanager
def live_port() -> Iterator[int]:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = monotonic() + START_SECONDS
    while process.poll() is None and monotonic() < until:
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            sleep(0.2)
    raise RuntimeError(f"LiteLLM did not start: {log.read_text(encoding='utf-8', errors='replace')[-2_000:]}")


# ---------------------------------------------------------------- the same bytes


class Scenario(NamedTuple):
    """What is asked, and how the answer must end: a finish reason, or an error code."""

    name: str
    end: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    params: Mapping[str, Any] = MappingProxyType({})
    model: str = MODEL


def scenarios(call: Message) -> Iterator[Scenario]:
    result = ToolResult(call.tool_calls[0].tool_call_id, "21 degrees Celsius, clear sky")
    story = Message.user("Tell me a very long story about a fox and a hen.")
    yield Scenario("text", "stop", [Message.user("What is the capital of France?")])
    yield Scenario("a call", "tool_calls", [QUESTION], [WEATHER], {"tool_choice": "required"})
    yield Scenario("after a result", "stop", [QUESTION, call, Message.tool(result)], [WEATHER])
    yield Scenario("cut by max_tokens", "length", [story], (), {"max_tokens": 20})
    yield Scenario("an unknown model", "invalid_request", [QUESTION], model="none-of-that-name")
    yield Scenario("a context that is too long", "context_overflow", [Message.user("word " * 5_000)])


async def answers(api: Api, address: str, key: str, folder: Path) -> list[tuple[Scenario, str, Exchange]]:
    """Ask everything through one API; return how each ended for us, and its bytes."""
    file = folder / f"{api.provider}.jsonl"
    inner = AiohttpTransport(trust_env=False)
    transport = RecordingTransport(inner, file, protocol=api.protocol)
    options: dict[str, Any] = {"base_url": address + api.path, "api_key": key, "transport": transport}
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 100}
    model = dragoman.model(f"{api.provider}:{MODEL}", **options, **settings)
    first = await model.stream([QUESTION], [WEATHER], tool_choice="required").collect()
    assert first.message is not None, first.error
    asked, ends = [], []
    for scenario in scenarios(first.message):
        one = dragoman.model(f"{api.provider}:{scenario.model}", **options, **settings)
        assembly = await one.stream(scenario.messages, scenario.tools, **scenario.params).collect()
        asked.append(scenario)
        ends.append(str(assembly.error.error_code if assembly.error else assembly.finish_reason))
    recorded = read_recording(file)[1:]
    return [
        (scenario, end, _exchange(api, scenario, answer.status, answer.headers, b"".join(answer.chunks)))
        for scenario, end, answer in zip(asked, ends, recorded, strict=True)
    ]


def _exchange(api: Api, scenario: Scenario, status: int, headers: Any, body: bytes) -> Exchange:
    kind = headers.get("content-type", "")
    name = f"{api.provider}, {scenario.name}"
    return Exchange(name, api.protocol, "", status, {"content-type": kind}, body, "event-stream" in kind)


# ---------------------------------------------------------------- one session, four APIs


class OneCall(Hooks):
    """Has the model call the tool when it is spoken to: it is too small to choose."""

    async def before_model(self, call: ModelCall) -> ModelCall:
        choice = "none" if call.messages[-1].role is Role.TOOL else "required"
        return msgspec.structs.replace(call, params={**call.params, "tool_choice": choice})


async def journey(address: str, key: str, folder: Path) -> list[tuple[str, str]]:
    """One session through all four APIs; how the run ended on each."""
    seen: list[str] = []

    @tool(name=WEATHER.name)
    async def look(city: str, unit: Literal["c", "f"]) -> str:
        """Return the weather of a city."""
        seen.append(city)
        return f"21 degrees {unit}, clear sky"

    ended = []
    async with SQLiteStore(folder / "sessions.db") as store:
        session = await start_session(store, "journey", widgets=())
        config = AgentConfig(context=ContextConfig(recall=False))
        agent = None
        for api in APIS:
            model = dragoman.model(
                f"{api.provider}:{MODEL}", base_url=address + api.path, api_key=key, temperature=0, max_tokens=100
            )
            if agent is None:
                agent = Agent(model, tools=[look], session=session, config=config, hooks=[OneCall()])
            agent.use(model)
            result = await agent.run("What is the weather in Paris in Celsius?")
            ended.append(
                (api.provider, f"{result.status}, {len(seen)} calls run" + f", {result.error}" * (not result.output))
            )
        assert (await store.verify("journey")).is_sound
    return ended


def main(program: str) -> int:
    if missing := missing_parts():
        print(missing)
        return 2
    warnings.simplefilter("ignore")
    bad = 0
    with tempfile.TemporaryDirectory() as name, live_server() as upstream:
        folder = Path(name)
        with proxy(program, upstream, folder) as (address, key):
            found = [one for api in APIS for one in asyncio.run(answers(api, address, key, folder))]
            ended = asyncio.run(journey(address, key, folder))
    with serving([exchange for _, _, exchange in found]) as address:
        for index, (scenario, end, exchange) in enumerate(found):
            differing = differences(exchange, f"{address}/{index}")
            bad += bool(differing)
            note = "" if end == scenario.end else f" (expected {scenario.end})"
            print(f"{exchange.name}: {end}{note}; {'read differently' if differing else 'read alike'}")
            for field, (theirs, ours) in differing.items():
                print(f"    {field}: the SDK {theirs!r:.200}, we {ours!r:.200}")
    for provider, end in ended:
        print(f"{provider}, agent with a tool: {end}")
    print(f"{len(found)} answers, {bad} read differently")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]) if len(sys.argv) == 2 else __doc__)
