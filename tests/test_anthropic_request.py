"""Anthropic Messages: what a conversation and its settings come to as a request, on each of its hosts."""

from typing import Any

import msgspec
import pytest

from dragoman.errors import ErrorCode, ModelError
from dragoman.message import (
    FileRef,
    Image,
    Message,
    ModelInvocationDescriptor,
    ProviderItem,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.request import CacheConfig, HostedTool, ModelConfig, ModelRequest, Reasoning, WireRequest
from dragoman.toolspec import OneTool, ToolSpec
from dragoman.wire.anthropic import CODEC, DIALECTS, AnthropicDialect

HOSTS: dict[str, AnthropicDialect] = {dialect.provider: dialect for dialect in DIALECTS}


def encoded(
    *messages: Message, host: str = "anthropic", request: dict[str, Any] | None = None, **config: Any
) -> WireRequest:
    settings = ModelConfig(**{"model_id": "claude-opus-4-6", **config})
    asked = ModelRequest(config=settings, messages=messages or (Message.user("hi"),), **(request or {}))
    return CODEC.encode_request(asked, HOSTS[host])


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(encoded(*messages, **options).body)
    return body


def refusal(**options: Any) -> ErrorCode:
    with pytest.raises(ModelError) as caught:
        encoded(**options)
    return caught.value.code


LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
CALL = ToolCall("toolu_1", "look", {"where": "here"})


def test_a_plain_request_has_what_the_api_demands_and_no_more() -> None:
    request = encoded(Message.user("hi"), request={"system": "Be brief."})
    assert request.path == "/v1/messages"
    assert request.headers == {"anthropic-version": "2023-06-01"}
    assert msgspec.json.decode(request.body) == {
        "model": "claude-opus-4-6",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("host", "stream", "path"),
    [
        ("anthropic-bedrock", True, "/model/eu.anthropic.claude-x-v1:0/invoke-with-response-stream"),
        ("anthropic-bedrock", False, "/model/eu.anthropic.claude-x-v1:0/invoke"),
        ("anthropic-vertex", True, "/claude-x@1:streamRawPredict"),
        ("anthropic-vertex", False, "/claude-x@1:rawPredict"),
    ],
)
def test_other_hosts_have_the_model_in_the_path_and_a_version_in_the_body(host: str, stream: bool, path: str) -> None:
    on_vertex = host == "anthropic-vertex"
    model = "claude-x@1" if on_vertex else "eu.anthropic.claude-x-v1:0"
    request = encoded(host=host, model_id=model, request={"stream": stream})
    body = msgspec.json.decode(request.body)
    assert request.path == path
    assert body["anthropic_version"] == ("vertex-2023-10-16" if on_vertex else "bedrock-2023-05-31")
    assert "model" not in body
    assert ("stream" in body) == (stream and on_vertex)


def test_an_answer_goes_back_as_it_came() -> None:
    item = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    origin = ModelInvocationDescriptor("anthropic", CODEC.specification, "claude-opus-4-6")
    citation = {"type": "char_location", "cited_text": "wet"}
    answer = Message.assistant(
        Thinking("hm", provider_data={"signature": "c2ln"}),
        Thinking("", provider_data={"data": "YQ=="}),
        Text("wet ", provider_data={"citations": [citation]}),
        ProviderItem("server_tool_use", item),
        ToolCall("toolu_1", "look", {"where": "here"}, provider_data={"caller": {"type": "x"}}),
        invocation=origin,
    )
    body = body_of(Message.user("q"), answer, Message.tool(ToolResult("toolu_1", "ok")))
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "YQ=="},
        {"type": "text", "text": "wet ", "citations": [citation]},
        item,
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "here"}, "caller": {"type": "x"}},
    ]


def test_results_of_a_turn_and_the_words_after_them_are_one_user_turn() -> None:
    calls = Message.assistant(ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    results = (Message.tool(ToolResult("a", "1")), Message.tool(ToolResult("b", {"n": 2}, is_error=True)))
    body = body_of(Message.user("q"), calls, *results, Message.user("and?"), request={"tools": (LOOK,)})
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": '{"n":2}', "is_error": True},
        {"type": "text", "text": "and?"},
    ]


def test_blank_texts_are_left_out_and_a_blank_user_turn_becomes_a_dot() -> None:
    body = body_of(Message.user("q"), Message.assistant("\n\n", "a"), Message.user(" "), Message.assistant("", " "))
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "text", "text": "."}]},
    ]


def test_a_final_assistant_text_loses_its_trailing_white_space() -> None:
    body = body_of(Message.user("q"), Message.assistant("a \n"))
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "a"}]


def test_a_blank_system_prompt_is_not_sent() -> None:
    assert "system" not in body_of(request={"system": "  "})


def test_arguments_that_did_not_parse_are_sent_as_an_object() -> None:
    broken = Message.assistant(ToolCall.parse("a", "look", '{"x'))
    body = body_of(Message.user("q"), broken, Message.tool(ToolResult("a", "no", is_error=True)))
    assert body["messages"][1]["content"][0]["input"] == {"unparsed_arguments": '{"x'}


def test_unsigned_thinking_goes_back_only_where_it_is_taken() -> None:
    answer = Message.assistant(Thinking("hm"), "a")
    assert [block["type"] for block in body_of(Message.user("q"), answer)["messages"][1]["content"]] == ["text"]
    taken = body_of(Message.user("q"), answer, host="llamacpp-anthropic")["messages"][1]["content"][0]
    assert taken == {"type": "thinking", "thinking": "hm", "signature": ""}


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        ("claude-opus-4-6", Reasoning(effort="max"), {"type": "adaptive"}, "max"),
        ("claude-opus-5", Reasoning(effort="low", summary=True), {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-sonnet-4-5", Reasoning(effort="low"), {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-3-7-sonnet-latest", Reasoning(effort="minimal"), {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-opus-4-1@20250805", Reasoning(effort="high"), {"type": "enabled", "budget_tokens": 16384}, None),
        ("claude-opus-4-6", Reasoning(budget_tokens=5000), {"type": "enabled", "budget_tokens": 5000}, None),
        ("claude-opus-4-6", Reasoning(budget_tokens=5), {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-opus-4-6", Reasoning(effort="off"), {"type": "disabled"}, None),
    ],
)
def test_reasoning_is_said_as_the_model_understands_it(
    model: str, reasoning: Reasoning, thinking: dict[str, Any], effort: str | None
) -> None:
    body = body_of(model_id=model, reasoning=reasoning, temperature=0.5)
    assert body["thinking"] == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert body["max_tokens"] > thinking.get("budget_tokens", 0)
    assert ("temperature" in body) == (thinking["type"] == "disabled")


def test_a_limit_that_the_thinking_budget_would_eat_is_refused() -> None:
    assert refusal(reasoning=Reasoning(budget_tokens=4000), max_tokens=4000) is ErrorCode.INVALID_REQUEST


def test_an_effort_leaves_room_within_a_small_limit() -> None:
    body = body_of(model_id="claude-sonnet-4-5", reasoning=Reasoning(effort="high"), max_tokens=4000)
    assert body["thinking"]["budget_tokens"] == 2000
    assert "thinking" not in body_of(model_id="claude-sonnet-4-5", reasoning=Reasoning(effort="high"), max_tokens=500)


@pytest.mark.parametrize("choice", ["required", OneTool("look")])
def test_forcing_a_tool_on_a_model_that_thinks_by_budget_is_refused(choice: Any) -> None:
    options = {"tools": (LOOK,), "tool_choice": choice}
    assert refusal(request=options, reasoning=Reasoning(budget_tokens=2000)) is ErrorCode.UNSUPPORTED


def test_a_tool_loop_that_began_without_thinking_goes_on_without_it() -> None:
    loop = (Message.user("q"), Message.assistant(CALL), Message.tool(ToolResult("toolu_1", "ok")))
    assert "thinking" not in body_of(*loop, reasoning=Reasoning(budget_tokens=2000))
    signed = Message.assistant(Thinking("hm", provider_data={"signature": "s"}), CALL)
    assert "thinking" in body_of(loop[0], signed, loop[2], reasoning=Reasoning(budget_tokens=2000))
    assert "thinking" in body_of(*loop, reasoning=Reasoning(effort="low"))


def test_one_sampling_setting_is_sent_and_within_its_range() -> None:
    assert body_of(temperature=1.7, top_p=0.5)["temperature"] == 1.0
    assert "top_p" not in body_of(temperature=1.7, top_p=0.5)
    assert body_of(top_p=0.5)["top_p"] == 0.5


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        ("auto", {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", {"type": "any", "disable_parallel_tool_use": True}),
        ("none", {"type": "none"}),
        (OneTool("look"), {"type": "tool", "name": "look", "disable_parallel_tool_use": True}),
    ],
)
def test_a_tool_choice_has_the_apis_word(choice: Any, word: dict[str, Any]) -> None:
    body = body_of(request={"tools": (LOOK,), "tool_choice": choice}, parallel_tool_calls=False)
    assert body["tool_choice"] == word


def test_tools_are_strict_only_where_asked() -> None:
    tools = (LOOK, msgspec.structs.replace(LOOK, name="see", strict=True))
    body = body_of(request={"tools": tools})
    assert [tool.get("strict") for tool in body["tools"]] == [None, True]


def test_hosted_tools_are_asked_for_by_our_word_or_by_their_own_type() -> None:
    tools = (HostedTool("web_search", {"max_uses": 2}), HostedTool("memory_20250818"), HostedTool("mcp_toolset"))
    assert body_of(hosted_tools=tools)["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        {"type": "memory_20250818", "name": "memory"},
        {"type": "mcp_toolset"},
    ]
    assert refusal(hosted_tools=(HostedTool("image_generation"),)) is ErrorCode.UNSUPPORTED


def test_a_schema_and_an_extension_of_the_same_setting_are_joined() -> None:
    schema = {"type": "object"}
    body = body_of(output_schema=schema, extensions={"output_config": {"task": 1}, "top_k": 5})
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "task": 1}
    assert body["top_k"] == 5


def test_media_are_written_as_the_api_wants_them() -> None:
    parts = (
        Image("image/jpg", b"j"),
        Image(url="https://x.test/i.png"),
        FileRef(data=b"%PDF", mime_type="application/pdf", name="a.pdf"),
        FileRef(data=b"a,b", mime_type="text/csv"),
        FileRef(file_id="file_1", mime_type="text/csv"),
        FileRef(file_id="file_2"),
    )
    assert body_of(Message.user(*parts))["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "ag=="}},
        {"type": "image", "source": {"type": "url", "url": "https://x.test/i.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "document", "source": {"type": "file", "file_id": "file_2"}},
    ]


@pytest.mark.parametrize("part", [Image("image/svg+xml", b"<svg/>"), FileRef(path="a.pdf"), FileRef(data=b"x")])
def test_media_that_the_api_cannot_take_are_refused(part: Any) -> None:
    with pytest.raises(ModelError) as caught:
        encoded(Message.user(part))
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_cache_marks_stand_on_tools_system_and_the_newest_anchors() -> None:
    turns = (Message(role, (Text("x"),)) for role in (Role.USER, Role.ASSISTANT) * 3)
    options = {"tools": (LOOK,), "system": "s", "cache_anchors": (0, 2, 4)}
    body = body_of(*turns, Message.user("z"), request=options, cache_config=CacheConfig())
    marked = [index for index, turn in enumerate(body["messages"]) if "cache_control" in turn["content"][-1]]
    assert marked == [2, 4]
    assert "cache_control" in body["tools"][0]
    assert "cache_control" in body["system"][0]


def test_an_anchor_inside_a_turn_marks_its_own_message() -> None:
    loop = (Message.user("q"), Message.assistant(CALL), Message.tool(ToolResult("toolu_1", "ok")), Message.user("live"))
    body = body_of(*loop, request={"cache_anchors": (2,)}, cache_config=CacheConfig())
    assert ["cache_control" in block for block in body["messages"][2]["content"]] == [True, False]


def test_two_anchors_in_one_turn_mark_their_own_messages() -> None:
    messages = (Message.user("1"), Message.user("2"), Message.user("3"))
    body = body_of(*messages, request={"cache_anchors": (0, 1)}, cache_config=CacheConfig())
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [True, True, False]


def test_no_cache_mark_stands_on_thinking_or_on_a_deferred_tool() -> None:
    answer = Message.assistant("a", Thinking("hm", provider_data={"signature": "s"}))
    deferred = HostedTool("memory_20250818", {"defer_loading": True})
    options = {"tools": (LOOK,), "cache_anchors": (1,)}
    body = body_of(
        Message.user("q"),
        answer,
        Message.user("z"),
        request=options,
        cache_config=CacheConfig(),
        hosted_tools=(deferred,),
    )
    assert ["cache_control" in block for block in body["messages"][1]["content"]] == [True, False]
    assert ["cache_control" in tool for tool in body["tools"]] == [True, False]


def test_the_same_request_gives_the_same_bytes() -> None:
    options: dict[str, Any] = {"tools": (LOOK,), "system": "s", "metadata": {"user_id": "u"}}
    assert encoded(request=options).body == encoded(request=options).body
    assert body_of(request=options)["metadata"] == {"user_id": "u"}


def test_signatures_travel_between_the_hosts_of_the_same_models() -> None:
    made_on_bedrock = ModelInvocationDescriptor("anthropic-bedrock", CODEC.specification, "m")
    assert HOSTS["anthropic"].rules.takes_opaque_from(made_on_bedrock, CODEC.specification, "claude-x")
    assert not HOSTS["anthropic-compatible"].rules.takes_opaque_from(made_on_bedrock, CODEC.specification, "x")
