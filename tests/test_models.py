"""Model: what goes in, what comes out, what is refused before the network. Answers are replayed, nothing is mocked."""

import asyncio
import json
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman import (
    CacheConfig,
    DoneDelta,
    ErrorCode,
    ErrorDelta,
    Image,
    InvalidValue,
    Message,
    MessageDelta,
    Model,
    ModelConfig,
    ModelError,
    OneTool,
    Prices,
    ProviderClient,
    Reasoning,
    StreamContract,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    model,
    render_request,
)
from dragoman.catalogue import register_model
from dragoman.providers import PROVIDERS, find_codec, find_dialect
from dragoman.request import ModelInfo
from dragoman.testing.transports import ReplayedResponse, ReplayTransport

ANSWER = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [], "usage": {"input_tokens": 10}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "NAME", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
LOOK = ToolSpec("look", "Look at something.")
HELLO = (Message.user("hi"),)


def events(*values: Any, name: str = "look") -> bytes:
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values).replace("NAME", name).encode()


def replayed(body: bytes, *, status: int = 200, kind: str = "text/event-stream", **headers: str) -> ReplayTransport:
    fields = {"content-type": kind, **headers}
    return ReplayTransport([ReplayedResponse(status=status, headers=fields, chunks=(body,))] * 3)


def claude(transport: ReplayTransport | None = None, **config: Any) -> Model:
    return model(
        "anthropic:m-1", api_key="sk-planted-key-123456", transport=transport or replayed(events(*ANSWER)), **config
    )


def ask(asked: Model, *messages: Message, **arguments: Any) -> tuple[list[MessageDelta], Any]:
    async def run() -> tuple[list[MessageDelta], Any]:
        async with asked.stream(messages or HELLO, **arguments) as stream:
            deltas = [delta async for delta in stream]
        return deltas, stream

    return asyncio.run(run())


def body_of(asked: Model, *messages: Message, **arguments: Any) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(asked.render(messages or HELLO, **arguments).body)
    return rendered


# ---------------------------------------------------------------- streams


def test_a_stream_keeps_the_contract_and_assembles_with_its_invocation() -> None:
    deltas, stream = ask(claude(), tool_specs=[LOOK], request_metadata={"runId": "run-7"})
    contract = StreamContract()
    for delta in deltas:
        contract.check(delta)
    message = stream.assembly.message
    assert contract.state == "done"
    assert message.text == "Hello"
    assert message.tool_calls[0].arguments == {"a": 1}
    assert message.meta.invocation.provider == "anthropic"
    assert message.run_id == "run-7"
    assert all(delta.timestamp is not None for delta in deltas)


def test_a_stream_can_be_collected_without_iterating() -> None:
    async def run() -> str | None:
        assembly = await claude().stream(HELLO).collect()
        return assembly.message.text if assembly.message else None

    assert asyncio.run(run()) == "Hello"


def test_leaving_a_stream_early_closes_its_connection() -> None:
    transport = replayed(events(*ANSWER))

    async def run() -> Any:
        async with claude(transport).stream(HELLO) as stream:
            async for _ in stream:
                break
        return stream.assembly

    assembly = asyncio.run(run())
    assert assembly.message is None
    assert assembly.error is None
    assert transport.closed_responses == 1


def test_a_broken_stream_ends_in_an_error_with_the_partial() -> None:
    deltas, stream = ask(claude(replayed(events(*ANSWER[:4]))))
    assert isinstance(deltas[-1], ErrorDelta)
    assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED
    assert stream.assembly.partial.text == "Hello"


def test_a_failure_of_the_transport_is_the_closing_error() -> None:
    deltas, _ = ask(claude(ReplayTransport([ModelError("refused", code=ErrorCode.CONNECTION)])))
    assert [type(delta) for delta in deltas] == [ErrorDelta]
    assert deltas[0].error_code is ErrorCode.CONNECTION  # type: ignore[union-attr]
    assert deltas[0].retryable  # type: ignore[union-attr]


def test_an_error_response_keeps_the_providers_words_and_hides_the_key() -> None:
    body = json.dumps({"error": {"type": "authentication_error", "message": "bad key: planted key 42"}}).encode()
    transport = replayed(body, status=401, kind="application/json", **{"request-id": "req_9"})
    deltas, _ = ask(model("anthropic:m-1", api_key="planted key 42".replace(" ", "~"), transport=transport))
    assert deltas[0].error_code is ErrorCode.AUTHENTICATION  # type: ignore[union-attr]
    assert deltas[0].request_id == "req_9"  # type: ignore[union-attr]
    echo = json.dumps({"error": {"message": "you sent odd~key~42"}}).encode()
    deltas, _ = ask(
        model("anthropic:m-1", api_key="odd~key~42", transport=replayed(echo, status=401, kind="application/json"))
    )
    assert deltas[0].provider_message == "you sent [redacted]"  # type: ignore[union-attr]


def test_a_callers_error_mapper_comes_first() -> None:
    def own(status: int, headers: Mapping[str, str], body: bytes) -> ModelError | None:
        return ModelError("ours", code=ErrorCode.QUOTA_EXCEEDED) if status == 418 else None

    client = ProviderClient(
        find_dialect("anthropic"), api_key="k", transport=replayed(b"{}", status=418, kind="text/plain")
    )
    deltas, _ = ask(Model(client, ModelConfig("m-1"), None, own))
    assert deltas[0].error_code is ErrorCode.QUOTA_EXCEEDED  # type: ignore[union-attr]


def test_a_missing_key_is_an_authentication_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    deltas, _ = ask(model("anthropic:m-1", transport=replayed(b"")))
    assert deltas[0].error_code is ErrorCode.AUTHENTICATION  # type: ignore[union-attr]
    assert "ANTHROPIC_API_KEY" in str(deltas[0].message)  # type: ignore[union-attr]


def test_the_key_is_read_from_the_vendors_variable_and_sent_in_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-environment")
    transport = replayed(events(*ANSWER))
    ask(model("anthropic:m-1", transport=transport))
    assert transport.requests[0].headers["x-api-key"] == "from-environment"


def test_a_token_function_is_asked_at_every_request() -> None:
    tokens = iter(["first", "second"])
    transport = replayed(events(*ANSWER))
    asked = model("openai:m", api_key=lambda: next(tokens), transport=transport)
    ask(asked)
    ask(asked)
    assert [request.headers["authorization"] for request in transport.requests] == ["Bearer first", "Bearer second"]


def test_a_tool_name_that_had_to_be_changed_comes_back_as_the_callers_own() -> None:
    odd = ToolSpec("files.read/all")
    asked = claude()
    fitted = body_of(asked, tool_specs=[odd], tool_choice=OneTool(odd.name))
    name = fitted["tools"][0]["name"]
    assert name != odd.name
    assert fitted["tool_choice"]["name"] == name
    _, stream = ask(claude(replayed(events(*ANSWER, name=name))), tool_specs=[odd])
    assert stream.assembly.message.tool_calls[0].tool_name == odd.name


def test_the_cost_is_computed_from_the_catalogues_prices() -> None:
    register_model(
        ModelInfo(provider="anthropic", model_id="priced-1", prices=Prices(1.0, 10.0), abilities=frozenset({"tools"}))
    )
    asked = model("anthropic:priced-1", api_key="k", transport=replayed(events(*ANSWER)))
    _, stream = ask(asked)
    assert stream.assembly.usage.cost == pytest.approx((10 * 1.0 + 5 * 10.0) / 1_000_000)


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize("name", ["claude", "anthropic:", ":model", "nobody:model", ""])
def test_a_bad_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidValue):
        model(name)


@pytest.mark.parametrize("config", [{"temperature": -1}, {"max_tokens": 0}, {"top_p": 2}, {"reasoning": "much"}])
def test_bad_settings_are_refused_at_once(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        model("anthropic:m-1", **config)


def test_a_host_without_an_address_asks_for_one() -> None:
    with pytest.raises(InvalidValue, match="base_url="):
        model("openai-compatible:m")


def test_a_region_and_a_project_are_put_into_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(InvalidValue, match="project"):
        model("google-vertex:gemini-2.5-pro", region="europe-west4")
    transport = replayed(b"")
    ask(model("google-vertex:gemini-2.5-pro", region="global", project="p-1", api_key=lambda: "t", transport=transport))
    assert transport.requests[0].url.startswith(
        "https://aiplatform.googleapis.com/v1beta1/projects/p-1/locations/global/"
    )


def test_settings_of_the_call_go_before_the_models_and_those_before_the_defaults() -> None:
    asked = claude(max_tokens=100, temperature=0.5)
    assert body_of(asked)["max_tokens"] == 100
    assert body_of(asked, max_tokens=7)["max_tokens"] == 7
    asked.update_config(max_tokens=50, top_k=3)
    assert asked.get_config().max_tokens == 50
    assert body_of(asked)["top_k"] == 3
    assert body_of(asked)["temperature"] == 0.5


def test_the_system_prompt_content_goes_before_the_prompt_and_that_before_system_messages() -> None:
    conversation = (Message.system("from messages"), *HELLO)
    asked = claude()
    assert body_of(asked, *conversation)["system"][0]["text"] == "from messages"
    assert body_of(asked, *conversation, system_prompt="prompt")["system"][0]["text"] == "prompt"
    stream = asked.stream(conversation, None, "prompt", system_prompt_content=[Text("content")])
    assert json.loads(stream.request.body)["system"][0]["text"] == "content"
    asyncio.run(stream.aclose())


def test_anchors_point_at_the_messages_that_were_given() -> None:
    conversation = (
        Message.system("s"),
        Message.user("a"),
        Message.assistant("b", ToolCall("c1", "look", {})),
        Message.tool(ToolResult("c1", "ok")),
        Message.user("c"),
    )
    turns = body_of(claude(), *conversation, cache_anchors=[1, 3])["messages"]
    marked = [turn["role"] for turn in turns if any("cache_control" in block for block in turn["content"])]
    assert marked == ["user", "user"]


def test_caching_can_be_turned_off() -> None:
    assert "cache_control" in claude().render(HELLO).body.decode()
    assert "cache_control" not in claude(cache=False).render(HELLO).body.decode()
    assert Model(claude().client, ModelConfig("m", cache_config=CacheConfig()), None).get_config().cache_config


def test_what_a_known_model_cannot_do_is_refused_before_the_network() -> None:
    register_model(ModelInfo(provider="anthropic", model_id="plain-1", abilities=frozenset({"streaming"})))
    transport = replayed(b"")
    plain = model("anthropic:plain-1", api_key="k", transport=transport)
    wishes: list[dict[str, Any]] = [
        {"tool_specs": [LOOK]},
        {"output_schema": {}},
        {"reasoning": Reasoning(effort="high")},
    ]
    for arguments in wishes:
        with pytest.raises(ModelError) as refused:
            plain.stream(HELLO, **arguments)
        assert refused.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(ModelError, match="cannot read"):
        model("deepseek:deepseek-chat", api_key="k").stream([Message.user(Image("image/png", b"x"))])
    assert not transport.requests


def test_a_harmless_knob_is_dropped_with_a_warning() -> None:
    register_model(ModelInfo(provider="anthropic", model_id="fixed-1", abilities=frozenset({"fixed_sampling"})))
    with pytest.warns(UserWarning, match="temperature"):
        body = body_of(model("anthropic:fixed-1", temperature=0.2))
    assert "temperature" not in body


def test_an_unknown_model_is_allowed_and_described_by_its_vendor() -> None:
    info = claude().model_info()
    assert info.context_window is None
    assert claude().supports("tools")
    assert not claude().supports("time_travel")


# ---------------------------------------------------------------- rendering


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_renders_a_tool_loop_the_same_way_twice(provider: str) -> None:
    conversation = (
        Message.user("go"),
        Message.assistant("on it", ToolCall("c1", "look", {"at": 1})),
        Message.tool(ToolResult("c1", "ok")),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (
            render_request(f"{provider}:some-model", conversation, tools=[LOOK], system_prompt="s") for _ in "ab"
        )
    assert first == second
    assert first.method == "POST"
    assert b"look" in first.body
    json.loads(first.body)


def test_every_provider_has_a_record_a_codec_and_a_name_of_its_own() -> None:
    for provider in PROVIDERS:
        dialect = find_dialect(provider, "some-model")
        assert dialect.provider == provider
        assert find_codec(dialect.specification).specification == dialect.specification
        assert provider in dialect.rules.opaque_providers or not dialect.rules.opaque_providers


def test_a_rendered_request_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted-secret")
    rendered = render_request("anthropic:m-1", HELLO, api_key="another-secret")
    assert "secret" not in repr(rendered)
    assert "secret" not in repr(claude())
    assert "planted" not in repr(claude().client)


def test_a_done_delta_is_the_last_one() -> None:
    deltas, _ = ask(claude())
    assert isinstance(deltas[-1], DoneDelta)
