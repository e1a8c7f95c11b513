"""Conversations as Chat Completions requests: what every host gets alike, and what each of them calls otherwise."""

import json
from typing import Any

import pytest

from dragoman import (
    CacheConfig,
    ErrorCode,
    FileRef,
    Image,
    Message,
    ModelConfig,
    ModelError,
    OneTool,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    render_request,
)
from dragoman.message import ProviderItem
from dragoman.request import HostedTool, ModelRequest, Reasoning
from dragoman.wire.openai_chat import CODEC, DIALECTS

BY_NAME = {dialect.provider: dialect for dialect in DIALECTS}
LOOK = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"at": {"type": "string"}}})
CLOSED = {
    "type": "object",
    "title": "Place",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


def encode(*messages: Message, vendor: str = "openai-chat", **fields: Any) -> dict[str, Any]:
    names = ("tools", "system", "tool_choice", "cache_anchors", "metadata", "stream")
    given = {name: fields.pop(name) for name in names if name in fields}
    request = ModelRequest(config=ModelConfig("m", **fields), messages=messages or (Message.user("Hi"),), **given)
    wire = CODEC.encode_request(request, BY_NAME[vendor])
    assert wire == CODEC.encode_request(request, BY_NAME[vendor])
    value: dict[str, Any] = json.loads(wire.body)
    return value


def turn(*parts: Any, vendor: str = "openai-chat") -> dict[str, Any] | None:
    """The assistant turn on the wire; None where there is none."""
    messages = encode(Message.user("Hi"), Message.assistant(*parts), vendor=vendor)["messages"]
    return messages[1] if len(messages) > 1 else None


def refused(vendor: str, *messages: Message, **fields: Any) -> bool:
    with pytest.raises(ModelError) as caught:
        encode(*messages, vendor=vendor, **fields)
    return caught.value.code is ErrorCode.UNSUPPORTED


def test_there_is_one_record_for_each_vendor() -> None:
    assert len(BY_NAME) == len(DIALECTS) == 21


@pytest.mark.parametrize("vendor", BY_NAME)
def test_every_vendor_takes_a_conversation_with_a_tool_loop(vendor: str) -> None:
    call = ToolCall("abcdefghi", "look", {"at": "sea"})
    result = Message.tool(ToolResult("abcdefghi", "warm"))
    body = encode(Message.user("Hi"), Message.assistant(call), result, vendor=vendor, tools=(LOOK,), system="Be brief.")
    assert [message["role"] for message in body["messages"][1:]] == ["user", "assistant", "tool"]
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":"sea"}'}
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "abcdefghi", "content": "warm"}


def test_content_that_is_only_text_is_a_string() -> None:
    assert encode(Message.user("a", "b"))["messages"] == [{"role": "user", "content": "a\n\nb"}]


def test_the_system_text_has_the_role_that_the_vendor_knows() -> None:
    assert encode(system="S")["messages"][0] == {"role": "developer", "content": "S"}
    assert encode(system="S", vendor="groq")["messages"][0] == {"role": "system", "content": "S"}


def test_the_limit_has_the_name_that_the_vendor_knows() -> None:
    assert encode(max_tokens=9)["max_completion_tokens"] == 9
    assert encode(max_tokens=9, vendor="mistral")["max_tokens"] == 9


def test_a_stream_asks_for_usage_where_the_vendor_takes_the_option() -> None:
    assert encode()["stream_options"] == {"include_usage": True}
    assert "stream_options" not in encode(vendor="mistral")
    assert "stream" not in encode(stream=False)
    assert "stream_options" not in encode(stream=False)


def test_a_turn_with_calls_alone_has_null_content() -> None:
    assert turn(ToolCall("a", "look", {})) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }


def test_a_turn_of_which_nothing_can_be_said_is_left_out() -> None:
    assert turn(Thinking("Hm.")) is None


def test_arguments_go_back_as_the_model_wrote_them() -> None:
    encoded = turn(ToolCall.parse("a", "look", '{ "at":  "sea" }'))
    assert encoded is not None
    assert encoded["tool_calls"][0]["function"]["arguments"] == '{ "at":  "sea" }'


def test_a_tool_result_that_is_an_object_is_its_json() -> None:
    result = Message.tool(ToolResult("a", {"warm": True}))
    body = encode(Message.user("Hi"), Message.assistant(ToolCall("a", "look", {})), result)
    assert body["messages"][2]["content"] == '{"warm":true}'


def test_deepseek_gets_its_thinking_back_in_tool_loops_only() -> None:
    with_call = turn(Thinking("Hm."), ToolCall("a", "look", {}), vendor="deepseek")
    assert with_call is not None
    assert with_call["reasoning_content"] == "Hm."
    assert turn(Thinking("Hm."), "Yes.", vendor="deepseek") == {"role": "assistant", "content": "Yes."}


def test_deepseek_gets_the_field_also_for_a_call_that_was_made_without_thinking() -> None:
    encoded = turn(ToolCall("a", "look", {}), vendor="deepseek")
    assert encoded is not None
    assert encoded["reasoning_content"] == ""


@pytest.mark.parametrize(("vendor", "field"), [("zai", "reasoning_content"), ("cerebras", "reasoning")])
def test_thinking_goes_back_under_the_vendors_name(vendor: str, field: str) -> None:
    assert turn(Thinking("Hm."), "Yes.", vendor=vendor) == {"role": "assistant", "content": "Yes.", field: "Hm."}


def test_openai_gets_no_thinking_back() -> None:
    assert turn(Thinking("Hm."), "Yes.") == {"role": "assistant", "content": "Yes."}


def test_reasoning_details_go_back_verbatim_instead_of_the_text() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"}, {"type": "reasoning.encrypted"}]
    thinking = Thinking("Hm.", provider_data={"reasoning_details": details})
    assert turn(thinking, "Yes.", vendor="openrouter") == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_details": details,
    }


def test_mistral_gets_thinking_and_references_inside_the_content() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    encoded = turn(Thinking("Hm."), Text("So"), ProviderItem("reference", reference), vendor="mistral")
    assert encoded is not None
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    assert encoded["content"] == [thought, {"type": "text", "text": "So"}, reference]


def test_signatures_of_a_call_and_of_a_message_go_back() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    call = ToolCall("a", "look", {}, provider_data={"extra_content": signed, "id": None})
    encoded = turn(Thinking("", provider_data={"extra_content": signed}), call, vendor="google-openai")
    assert encoded is not None
    assert encoded["extra_content"] == signed
    assert encoded["tool_calls"][0]["extra_content"] == signed
    assert encoded["tool_calls"][0]["id"] == "a"


def test_a_refusal_goes_back_as_one_where_the_api_knows_it() -> None:
    refusal = Text("No.", provider_data={"refusal": True})
    assert turn(refusal) == {"role": "assistant", "content": None, "refusal": "No."}
    assert turn(refusal, vendor="groq") == {"role": "assistant", "content": "No."}


def test_a_spoken_answer_goes_back_by_its_id() -> None:
    encoded = turn(ProviderItem("audio", {"id": "a1", "data": "aGk="}, "Hi"))
    assert encoded == {"role": "assistant", "content": None, "audio": {"id": "a1"}}


# ---------------------------------------------------------------- media


def media(part: Any, vendor: str = "openai-chat") -> dict[str, Any]:
    content: list[dict[str, Any]] = encode(Message.user("See", part), vendor=vendor)["messages"][0]["content"]
    assert content[0] == {"type": "text", "text": "See"}
    return content[1]


def test_pictures_are_data_urls_or_urls() -> None:
    assert media(Image("image/png", b"hi")) == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert media(Image(url="https://x.org/a"))["image_url"] == {"url": "https://x.org/a"}


def test_sound_and_documents_have_forms_of_their_own() -> None:
    sound = FileRef(data=b"hi", mime_type="audio/mpeg")
    document = FileRef(data=b"hi", mime_type="application/pdf", name="a.pdf")
    url = "data:application/pdf;base64,aGk="
    assert media(sound) == {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}
    assert media(document) == {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}
    assert media(document, "mistral") == {"type": "document_url", "document_url": url, "document_name": "a.pdf"}
    assert media(FileRef(file_id="file-1")) == {"type": "file", "file": {"file_id": "file-1"}}


def test_a_text_file_is_read_out() -> None:
    file = FileRef(data=b"hi", mime_type="text/plain", name="a")
    body = encode(Message.user("look", file), vendor="deepseek")
    assert body["messages"][0]["content"] == "look\n\na:\n\nhi"


def test_media_that_a_vendor_cannot_take_are_refused_before_the_network() -> None:
    assert refused("deepseek", Message.user(Image("image/png", b"hi")))
    assert refused("ollama", Message.user(Image(url="https://x.org/a")))
    assert refused("openai-chat", Message.user(FileRef(data=b"hi", mime_type="audio/ogg")))


# ---------------------------------------------------------------- tools and settings


def test_tools_are_functions_with_their_choice() -> None:
    body = encode(tools=(LOOK,), tool_choice=OneTool("look"), parallel_tool_calls=False)
    function = {"name": "look", "description": "Look somewhere.", "parameters": LOOK.parameter_schema}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert body["parallel_tool_calls"] is False


def test_without_tools_nothing_is_said_about_calling_them() -> None:
    body = encode(tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_strictness_is_asked_for_where_the_vendor_knows_it() -> None:
    strict = ToolSpec("look", None, CLOSED, strict=True)
    assert encode(tools=(strict,))["tools"][0]["function"]["strict"] is True
    assert "strict" not in encode(tools=(strict,), vendor="groq")["tools"][0]["function"]


def test_a_closed_schema_is_strict_and_an_open_one_is_not() -> None:
    closed = encode(output_schema=CLOSED)["response_format"]
    assert closed == {"type": "json_schema", "json_schema": {"name": "Place", "schema": CLOSED, "strict": True}}
    opened = encode(output_schema={"type": "object", "properties": {"a": {}}})["response_format"]
    assert opened["json_schema"] == {"name": "output", "schema": {"type": "object", "properties": {"a": {}}}}


def test_a_vendor_without_output_schemas_refuses_one() -> None:
    assert refused("deepseek", output_schema=CLOSED)


@pytest.mark.parametrize(
    ("vendor", "effort", "fields"),
    [
        ("openai-chat", "minimal", {"reasoning_effort": "minimal"}),
        ("openai-chat", "off", {"reasoning_effort": "none"}),
        ("openrouter", "max", {"reasoning": {"effort": "xhigh"}}),
        ("deepseek", "off", {"thinking": {"type": "disabled"}}),
        ("zai", "high", {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("mistral", "low", {"reasoning_effort": "high"}),
        ("vllm", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
def test_an_effort_is_said_in_the_vendors_words(vendor: str, effort: Any, fields: dict[str, Any]) -> None:
    body = encode(vendor=vendor, reasoning=Reasoning(effort=effort))
    assert {name: body.get(name) for name in fields} == fields


def test_a_budget_is_sent_where_it_can_be_said_and_refused_elsewhere() -> None:
    budget = Reasoning(budget_tokens=2_000, summary=True)
    config = encode(vendor="google-openai", reasoning=budget)["extra_body"]["google"]["thinking_config"]
    assert config == {"include_thoughts": True, "thinking_budget": 2_000}
    assert encode(vendor="openrouter", reasoning=budget)["reasoning"] == {"max_tokens": 2_000}
    assert refused("openai-chat", reasoning=budget)


def test_openai_refuses_sampling_beside_reasoning_so_it_is_left_out() -> None:
    assert "temperature" not in encode(temperature=0.5, reasoning=Reasoning(effort="low"))
    assert encode(temperature=0.5, top_p=0.9, stop_sequences=("END",))["stop"] == ["END"]
    assert encode(temperature=0.5)["temperature"] == 0.5


def test_hosted_tools_are_asked_for_in_the_vendors_way() -> None:
    search = (HostedTool("web_search", {"search_context_size": "low"}),)
    assert encode(hosted_tools=search)["web_search_options"] == {"search_context_size": "low"}
    tools = encode(hosted_tools=search, vendor="openrouter")["tools"]
    assert tools == [{"type": "openrouter:web_search", "parameters": {"search_context_size": "low"}}]
    assert refused("openai-chat", hosted_tools=(HostedTool("code_execution"),))


def test_extensions_come_last_and_win() -> None:
    assert encode(temperature=0.5, extensions={"temperature": 1, "seed": 3})["temperature"] == 1


def test_azure_takes_one_address_for_both_of_its_apis() -> None:
    # https://RESOURCE.openai.azure.com/openai/v1, as the portal and the official SDK have it.
    paths = [render_request(f"{name}:m", [Message.user("Hi")]).path for name in ("azure", "azure-responses")]
    assert paths == ["/chat/completions", "/responses"]


# ---------------------------------------------------------------- caching


def test_the_cache_key_is_the_session_where_there_is_one() -> None:
    auto = CacheConfig()
    assert encode(cache_config=auto, metadata={"session_id": "s1"})["prompt_cache_key"] == "s1"
    assert len(encode(cache_config=auto, metadata={"session_id": "s" * 200})["prompt_cache_key"]) == 64
    assert "prompt_cache_key" not in encode(cache_config=auto)
    assert "prompt_cache_key" not in encode(metadata={"session_id": "s1"})


def test_openrouter_gets_breakpoints_on_the_system_text_and_the_newest_anchors() -> None:
    messages = [Message.user(str(number)) for number in range(6)]
    fields = {"system": "S", "cache_config": CacheConfig(), "cache_anchors": (0, 1, 2, 4)}
    encoded = encode(*messages, vendor="openrouter", **fields)["messages"]
    marked = [index for index, message in enumerate(encoded) if isinstance(message["content"], list)]
    assert marked == [0, 2, 3, 5]
    assert encoded[5]["content"] == [{"type": "text", "text": "4", "cache_control": {"type": "ephemeral"}}]


def test_an_anchor_on_a_turn_without_content_moves_to_the_one_before() -> None:
    call = Message.assistant(ToolCall("a", "look", {}))
    encoded = encode(Message.user("Hi"), call, vendor="openrouter", cache_config=CacheConfig(), cache_anchors=(1,))[
        "messages"
    ]
    assert isinstance(encoded[0]["content"], list)
    assert encoded[1]["content"] is None


def test_other_vendors_get_no_breakpoints() -> None:
    assert encode(cache_config=CacheConfig(), cache_anchors=(0,))["messages"] == [{"role": "user", "content": "Hi"}]
