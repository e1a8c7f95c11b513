"""OpenAI Responses: settings in the API's words, and turns in the form that each of its hosts accepts."""

from typing import Any

import pytest

from dragoman import ErrorCode, Message, ModelError
from dragoman.message import FileRef, Image, MessageMeta, ProviderItem, Role, Text, Thinking, ToolResult
from dragoman.request import CacheConfig, HostedTool, ModelConfig, ModelRequest, Reasoning
from dragoman.toolspec import OneTool, ToolSpec
from dragoman.wire.openai_responses import CODEC
from tests.test_openai_responses import (
    BY_NAME,
    LATE,
    THOUGHT,
    call,
    created,
    encode,
    ended,
    message,
    reasoning,
    replay,
    said,
)


def foreign_text(text: str) -> dict[str, Any]:
    """Assistant text without an item id, in the form that every host of the API reads."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


def test_nothing_is_stored_and_reasoning_is_asked_for_encrypted() -> None:
    assert encode(Message.user("Hi"), system="Be brief.") == {
        "model": "m-1",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


def test_settings_are_said_in_the_words_of_the_api() -> None:
    config = ModelConfig(
        "m-1",
        max_tokens=100,
        temperature=0.5,
        stop_sequences=("END",),
        reasoning=Reasoning(effort="max", summary=True),
        output_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        hosted_tools=(HostedTool("web_search"), HostedTool("code_execution")),
        cache_config=CacheConfig(),
        parallel_tool_calls=False,
        extensions={"service_tier": "flex"},
    )
    tool = ToolSpec("look", "Looks.", {"type": "object", "properties": {}}, strict=True)
    body = encode(
        Message.user("Hi"), config=config, tools=(tool,), tool_choice=OneTool("look"), metadata={"session_id": "s-1"}
    )
    assert body["max_output_tokens"] == 100
    assert body["reasoning"] == {"effort": "xhigh", "summary": "auto"}
    assert "temperature" not in body
    assert "stop" not in body
    assert body["text"]["format"]["type"] == "json_schema"
    assert body["text"]["format"]["strict"] is False
    function, *hosted = body["tools"]
    closed = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert function.pop("parameters") == closed
    assert function == {"type": "function", "name": "look", "description": "Looks.", "strict": True}
    assert hosted == [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    assert body["tool_choice"] == {"type": "function", "name": "look"}
    assert body["parallel_tool_calls"] is False
    assert body["prompt_cache_key"] == "s-1"
    assert body["service_tier"] == "flex"


def test_parallel_calls_are_not_mentioned_without_tools_of_ours() -> None:
    config = ModelConfig("m-1", parallel_tool_calls=True, hosted_tools=(HostedTool("web_search"),))
    assert "parallel_tool_calls" not in encode(Message.user("Hi"), config=config)


def test_a_closed_schema_with_all_its_properties_required_is_strict() -> None:
    properties = {"a": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}
    body = encode(Message.user("Hi"), config=ModelConfig("m-1", output_schema=schema))
    assert body["text"]["format"]["strict"] is True


def test_a_budget_of_tokens_is_refused_where_the_host_knows_none() -> None:
    config = ModelConfig("m-1", reasoning=Reasoning(budget_tokens=2_000))
    with pytest.raises(ModelError) as refused:
        encode(Message.user("Hi"), config=config)
    assert refused.value.code is ErrorCode.UNSUPPORTED
    body = encode(Message.user("Hi"), config=config, dialect=BY_NAME["openrouter-responses"])
    assert body["reasoning"] == {"max_tokens": 2_000}


def test_pictures_and_files_are_inputs_also_in_results() -> None:
    picture = Image("image/png", b"p")
    paper = FileRef(data=b"d", mime_type="application/pdf", name="a.pdf")
    asked = Message.user("See", picture, FileRef(file_id="file-1"))
    user, result = encode(asked, Message.tool(ToolResult("call_1", (picture, paper))))["input"]
    shown = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cA=="}
    by_id = {"type": "input_file", "file_id": "file-1"}
    assert user["content"] == [{"type": "input_text", "text": "See"}, shown, by_id]
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,ZA=="}
    assert result == {"type": "function_call_output", "call_id": "call_1", "output": [shown, file]}


def test_reasoning_that_is_not_encrypted_stays_home_and_takes_the_ids_after_it_along() -> None:
    items = [reasoning("Hm.", encrypted=None), message("Yes", phase="commentary"), call("{}")]
    made = call("{}")
    del made["id"]
    assert replay(said(created(), ended(*items))) == [{**foreign_text("Yes"), "phase": "commentary"}, made]


def test_reasoning_without_an_item_after_it_stays_home() -> None:
    assert replay(said(created(), ended(message("Yes"), reasoning("Hm.")))) == [message("Yes")]


def test_plain_reasoning_goes_back_to_the_hosts_that_gave_it() -> None:
    thought = reasoning(encrypted=None, content=[{"type": "reasoning_text", "text": "Hm."}])
    turn = said(created(), ended(thought, message("Yes")))
    assert replay(turn, BY_NAME["deepseek-responses"]) == [thought, foreign_text("Yes")]
    assert replay(turn, BY_NAME["llamacpp-responses"])[0] == thought


def test_nothing_stands_between_a_call_and_its_output_where_that_is_refused() -> None:
    turn = said(created(), ended(call("{}"), message("And"), call("{}", "fc_2", "call_2")))
    sent = encode(turn, Message.tool(ToolResult("call_1", "1")), dialect=BY_NAME["deepseek-responses"])["input"]
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call", "function_call_output"]


def test_text_of_another_model_has_no_item_id_and_is_one_message() -> None:
    turn = Message.assistant("One. ", "Two.")
    for dialect in BY_NAME.values():
        assert replay(turn, dialect) == [foreign_text("One. Two.")]


def test_options_of_a_hosted_tool_join_what_the_api_needs_of_it() -> None:
    tool = HostedTool("code_execution", {"container": {"file_ids": ["file-1"]}})
    (sent,) = encode(Message.user("Hi"), config=ModelConfig("m-1", hosted_tools=(tool,)))["tools"]
    assert sent == {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}


def test_a_host_without_tools_of_its_own_refuses_them_before_the_network() -> None:
    config = ModelConfig("m-1", hosted_tools=(HostedTool("web_search"),))
    with pytest.raises(ModelError) as refused:
        encode(Message.user("Hi"), config=config, dialect=BY_NAME["deepseek-responses"])
    assert refused.value.code is ErrorCode.UNSUPPORTED


@pytest.mark.parametrize("provider", BY_NAME)
def test_the_same_conversation_gives_the_same_bytes(provider: str) -> None:
    request = ModelRequest(config=ModelConfig("m-1"), messages=(Message.user("Hi"), said(*LATE), said(*THOUGHT)))
    first, second = (CODEC.encode_request(request, BY_NAME[provider]).body for _ in range(2))
    assert first == second


@pytest.mark.parametrize("wrong", [[], {}, {"x": 1}, 5])
def test_a_record_with_an_id_that_is_not_text_can_be_sent(wrong: Any) -> None:
    data = {"id": wrong}
    parts = (
        Text("hi", provider_data=data),
        Thinking("so", provider_data=data),
        Image("image/png", b"1", provider_data=data),
        ProviderItem("image_generation_call", {"type": "image_generation_call", **data}),
        ProviderItem("unknown", {"type": wrong, **data}),
    )
    meta = MessageMeta(provider_data={"order": [wrong]})
    thoughts = Thinking("so", provider_data={"id": "r", "encrypted_content": "e", "summary": 5, "content": wrong})
    assert encode(Message(Role.ASSISTANT, (thoughts, *parts[:1])))["input"][0]["encrypted_content"] == "e"
    assert encode(Message(Role.ASSISTANT, parts, meta=meta))["input"][0] == foreign_text("hi")
