"""Model: its settings, those of one call, and which of them are refused."""

import asyncio
import json
import re
from typing import Any

import msgspec
import pytest

from dragoman import (
    CacheConfig,
    ErrorCode,
    Image,
    InvalidValue,
    Message,
    Model,
    ModelConfig,
    ModelError,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    model,
    render_request,
    to_json,
)
from dragoman.catalogue import register_model
from dragoman.history import AgentState
from dragoman.message import ModelInvocationDescriptor
from dragoman.request import ModelInfo
from dragoman.router import LlmRequest
from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.usage import Prices
from tests.model_cases import ANSWER, HELLO, LOOK, ask, body_of, claude, events, replayed


@pytest.mark.parametrize("name", ["claude", "anthropic:", ":model", "nobody:model", ""])
def test_a_bad_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidValue):
        model(name)


@pytest.mark.parametrize("config", [{"temperature": -1}, {"max_tokens": 0}, {"top_p": 2}, {"reasoning": "much"}])
def test_bad_settings_are_refused_at_once(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        model("anthropic:m-1", **config)


@pytest.mark.parametrize("name", [None, 5, b"anthropic:m", "anthropic", ":m", "anthropic:"])
@pytest.mark.parametrize("make", [model, lambda name: render_request(name, [])])
def test_what_is_no_name_of_a_model_is_refused_with_the_form_of_one(make: Any, name: Any) -> None:
    with pytest.raises(InvalidValue, match=r"is no model: give provider:name|must be a str such as 'provider:model'"):
        make(name)


@pytest.mark.parametrize(
    "url",
    ["http://[::1/v1", "http://h:x/v1", "http://me:pass@h/v1", "http://me@h", "http://", "http:///v1", "http://h\n"],
)
def test_an_address_that_cannot_be_called_is_refused_where_it_is_given(url: str) -> None:
    with pytest.raises(InvalidValue, match="base_url of anthropic must be an http") as refused:
        model("anthropic:m", base_url=url)
    assert url not in str(refused.value)


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
    asked.update_config(max_tokens=50, extensions={"top_k": 3})
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


def test_another_model_for_one_call_is_held_to_its_own_limits() -> None:
    register_model(ModelInfo(provider="anthropic", model_id="small-1", output_limit=77, prices=Prices(1.0, 10.0)))
    asked = model("anthropic:claude-opus-4-5", api_key="key", transport=replayed(events(*ANSWER)))
    assert [body_of(asked, **params)["max_tokens"] for params in ({}, {"model_id": "small-1"})] == [64_000, 77]
    with pytest.raises(ModelError, match="anthropic:small-1 cannot do reasoning"):
        asked.render(HELLO, model_id="small-1", reasoning=Reasoning(effort="low"))
    _, stream = ask(asked, model_id="small-1")
    assert stream.assembly.usage.cost == pytest.approx((10 * 1.0 + 5 * 10.0) / 1_000_000)


def test_what_a_model_can_do_is_asked_for_every_call() -> None:
    register_model(ModelInfo(provider="anthropic", model_id="mute-1", abilities=frozenset({"streaming"})))
    asked = model("anthropic:mute-1", api_key="key", max_tokens=9)
    for _ in range(2):
        asked.render(HELLO)
        with pytest.raises(ModelError, match="anthropic:mute-1 cannot do tools"):
            asked.render(HELLO, [LOOK])
    register_model(ModelInfo(provider="anthropic", model_id="mute-1", abilities=frozenset({"tools"})))
    assert b"look" in asked.render(HELLO, [LOOK]).body


def test_a_model_of_another_family_is_refused_where_each_has_its_own_rules() -> None:
    asked = model("bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1")
    asked.update_config(model_id="us.anthropic.claude-opus-4-5-20251101-v1:0")
    for change in (asked.update_config, lambda **params: asked.render(HELLO, **params)):
        with pytest.raises(InvalidValue, match=r"model\('bedrock:meta\.llama3-3-70b-instruct-v1:0'\)"):
            change(model_id="meta.llama3-3-70b-instruct-v1:0")
    assert asked.get_config().model_id.startswith("us.anthropic")


def test_caching_can_be_turned_off_for_one_call() -> None:
    asked = claude(max_tokens=9)
    assert "cache_control" in asked.render(HELLO).body.decode()
    assert "cache_control" not in asked.render(HELLO, cache_config=None).body.decode()


def test_a_rendered_request_has_the_system_prompt_content_too() -> None:
    content = [Text("From content.")]
    _, stream = ask(asked := claude(max_tokens=9), system_prompt_content=content)
    assert asked.render(HELLO, system_prompt_content=content) == stream.request


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
    plain = model("anthropic:plain-1", api_key="key", transport=transport)
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
        model("deepseek:deepseek-chat", api_key="key").stream([Message.user(Image("image/png", b"x"))])
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


@pytest.mark.parametrize(
    ("keyword", "advice"),
    [
        ("maxTokens", "there is no setting 'maxTokens'. Did you mean 'max_tokens'?"),
        ("max_token", "there is no setting 'max_token'. Did you mean 'max_tokens'?"),
        ("stopSequences", "there is no setting 'stopSequences'. Did you mean 'stop_sequences'?"),
        ("temprature", "there is no setting 'temprature'. Did you mean 'temperature'?"),
        ("timeout", "there is no setting 'timeout'. Did you mean 'timeouts'?"),
        ("apiKey", "there is no setting 'apiKey'. Did you mean 'api_key'?"),
        ("api_key", "api_key is no setting of a call: give it to model()"),
        ("service_tier", "A field that only the provider knows is given as extensions={'service_tier': ...}"),
    ],
)
def test_a_setting_that_is_not_known_is_refused_with_advice(keyword: str, advice: str) -> None:
    asked = claude()
    for change in (asked.update_config, lambda **given: asked.stream([Message.user("Hi")], **given)):
        with pytest.raises(InvalidValue, match=re.escape(advice)) as refused:
            change(**{keyword: "sk-not-for-the-wire"})
        assert "sk-not" not in str(refused.value)
    assert asked.get_config().extensions == {}


def test_extensions_are_sent_as_they_are_also_where_they_resemble_a_setting() -> None:
    body = body_of(claude(extensions={"top_k": 3, "service_tier": "auto", "maxTokens": 5}))
    assert (body["top_k"], body["service_tier"], body["maxTokens"]) == (3, "auto", 5)


def test_the_trace_of_a_request_stands_in_the_message_that_answers_it() -> None:
    for name in ("traceId", "trace_id"):
        _, stream = ask(claude(), request_metadata={name: "t-1"})
        message = stream.assembly.message
        assert message.meta.trace_id == "t-1"
        assert json.loads(to_json(message))["meta"]["traceId"] == "t-1"


def test_deltas_carry_the_wire_event_only_where_that_is_switched_on() -> None:
    (plain, _), (raw, _) = ask(claude()), ask(claude(provider_raw=True))
    assert [delta.provider_raw for delta in plain] == [None] * len(plain)
    assert [delta.provider_raw["type"] for delta in raw if delta.kind == "text"] == ["content_block_delta"]
    assert all(delta.provider_raw for delta in raw)
    bare = [
        [msgspec.structs.replace(delta, provider_raw=None, timestamp=None) for delta in each] for each in (raw, plain)
    ]
    assert bare[0] == bare[1]


def test_a_raw_event_holds_no_key_and_reaches_no_message() -> None:
    key = "not-a-real-key-but-a-long-one"
    events = [{"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}], "echo": key}]
    wire = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    transport = ReplayTransport([ReplayedResponse(chunks=(wire + b"data: half \n\n",))])
    deltas, stream = ask(model("groq:m", api_key=key, transport=transport, provider_raw=True))
    assert deltas[1].provider_raw["echo"] == "[redacted]"
    assert b"providerRaw" not in to_json(stream.assembly.partial)


def test_a_client_answers_a_request_of_context_messages() -> None:
    transport = replayed(events(*ANSWER))
    client = claude(transport).client
    state = AgentState.create_default("Be brief.")
    state.append_model_input("Hi")
    wanted = ModelInvocationDescriptor("anthropic", "anthropic-messages", "m-1")
    request = LlmRequest(context=state.render_live_context(), tools=(LOOK,), invocation=wanted)
    message = asyncio.run(client.call_model(request).collect()).message
    assert message is not None
    assert message.meta is not None
    assert (message.text, message.meta.invocation) == ("Hello", wanted)
    body = json.loads(transport.requests[0].body)
    assert (body["model"], body["system"][0]["text"], body["tools"][0]["name"]) == ("m-1", "Be brief.", "look")


@pytest.mark.parametrize("wanted", [None, ModelInvocationDescriptor("openai", "openai-responses", "gpt-5")])
def test_a_client_refuses_a_request_for_another_provider(wanted: ModelInvocationDescriptor | None) -> None:
    with pytest.raises(InvalidValue, match="must have provider 'anthropic'"):
        claude().client.call_model(LlmRequest(invocation=wanted))
