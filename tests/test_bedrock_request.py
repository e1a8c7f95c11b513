"""Bedrock Converse: what a conversation and its settings come to as a request, for each model family."""

from typing import Any

import msgspec
import pytest

from dragoman.errors import ErrorCode, ModelError
from dragoman.message import FileRef, Image, Message, ProviderItem, Text, Thinking, ToolCall, ToolResult
from dragoman.request import CacheConfig, HostedTool, ModelConfig, ModelRequest, Reasoning, WireRequest
from dragoman.toolspec import OneTool, ToolSpec
from dragoman.wire.bedrock import CODEC, DIALECTS, family_dialect

CLAUDE = "us.anthropic.claude-opus-4-6-v1"
OLDER_CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-2-lite-v1:0"
LLAMA = "us.meta.llama4-maverick-17b-instruct-v1:0"
MISTRAL = "mistral.mistral-large-3-675b-instruct"
PALMYRA = "us.writer.palmyra-x4-v1:0"
DEEPSEEK = "us.deepseek.r1-v1:0"

LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {}, "additionalProperties": False})
CALL = ToolCall("t1", "look", {"where": "here"})
LOOP = (Message.user("q"), Message.assistant(CALL), Message.tool(ToolResult("t1", "ok")))


def encoded(
    *messages: Message, model: str = CLAUDE, request: dict[str, Any] | None = None, **config: Any
) -> WireRequest:
    settings = ModelConfig(model, **config)
    asked = ModelRequest(config=settings, messages=messages or (Message.user("hi"),), **(request or {}))
    return CODEC.encode_request(asked, family_dialect(model))


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(encoded(*messages, **options).body)
    return body


def refusal(*messages: Message, **options: Any) -> ErrorCode:
    with pytest.raises(ModelError) as caught:
        encoded(*messages, **options)
    return caught.value.code


def turns_of(*messages: Message, **options: Any) -> list[list[dict[str, Any]]]:
    return [turn["content"] for turn in body_of(*messages, **options)["messages"]]


# ---------------------------------------------------------------- families


@pytest.mark.parametrize(
    ("model", "like"),
    [
        ("anthropic.claude-v2", CLAUDE),
        ("global.anthropic.claude-haiku-4-5-20251001-v1:0", CLAUDE),
        ("arn:aws:bedrock:us-east-1::foundation-model/meta.llama3-1-8b-instruct-v1:0", LLAMA),
        ("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-pro-v1:0", NOVA),
        ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/mi1dadi0g15f", CLAUDE),
        ("apac.mistral.pixtral-large-2502-v1:0", MISTRAL),
    ],
)
def test_a_family_is_recognised_behind_a_region_or_an_arn(model: str, like: str) -> None:
    assert family_dialect(model) is family_dialect(like)


def test_an_unknown_family_is_taken_for_the_strictest() -> None:
    unknown = family_dialect("nobody.new-model-v1:0")
    assert not unknown.rules.user_after_tool
    assert not unknown.forced_choices
    assert DIALECTS[0] is family_dialect(CLAUDE)


def test_results_stand_alone_in_their_turn_for_llama_and_mistral() -> None:
    alone = [not family_dialect(model).rules.user_after_tool for model in (LLAMA, MISTRAL, CLAUDE, NOVA)]
    assert alone == [True, True, False, False]


# ---------------------------------------------------------------- turns


def test_a_plain_request_has_its_model_in_the_path_and_nothing_empty() -> None:
    request = encoded(request={"system": "Be brief."}, model=OLDER_CLAUDE)
    assert request.path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert encoded(request={"stream": False}).path == f"/model/{CLAUDE}/converse"
    assert msgspec.json.decode(request.body) == {
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "system": [{"text": "Be brief."}],
    }


def test_turns_of_one_role_are_merged_and_empty_ones_get_a_dot() -> None:
    messages = (Message.user("a"), Message.user("b"), Message.assistant(" "), Message.user(""))
    assert body_of(*messages)["messages"] == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}]},
        {"role": "assistant", "content": [{"text": "."}]},
        {"role": "user", "content": [{"text": "."}]},
    ]


def test_all_results_of_a_turn_are_one_user_turn() -> None:
    calls = Message.assistant(ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    results = (Message.tool(ToolResult("a", "")), Message.tool(ToolResult("b", {"n": 1})))
    assert turns_of(Message.user("q"), calls, *results, Message.user("and?"))[2] == [
        {"toolResult": {"toolUseId": "a", "content": [{"text": "."}]}},
        {"toolResult": {"toolUseId": "b", "content": [{"json": {"n": 1}}]}},
        {"text": "and?"},
    ]


def test_a_failed_result_has_a_status_only_where_that_is_taken() -> None:
    messages = (*LOOP[:2], Message.tool(ToolResult("t1", "boom", is_error=True)))
    (taken,), (other,) = turns_of(*messages)[2], turns_of(*messages, model=PALMYRA)[2]
    assert taken["toolResult"] == {"toolUseId": "t1", "content": [{"text": "boom"}], "status": "error"}
    assert other["toolResult"] == {
        "toolUseId": "t1",
        "content": [{"text": "The tool call failed:"}, {"text": "boom"}],
    }


def test_an_answer_of_claude_goes_back_as_it_came() -> None:
    item = {"toolUse": {"toolUseId": "s1", "name": "x", "type": "server_tool_use", "input": {}}}
    answer = Message.assistant(
        Thinking("hm", provider_data={"signature": "c2ln"}),
        Thinking("", provider_data={"redactedContent": "YQ=="}),
        Text("wet ", provider_data={"citations": [{"title": "A"}]}),
        ProviderItem("server_tool_use", item),
        CALL,
    )
    assert turns_of(Message.user("q"), answer, LOOP[2])[1] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "YQ=="}},
        {"citationsContent": {"content": [{"text": "wet "}], "citations": [{"title": "A"}]}},
        item,
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"where": "here"}}},
    ]


def test_thinking_goes_back_to_claude_alone_and_signed_alone() -> None:
    signed, unsigned = Thinking("hm", provider_data={"signature": "s"}), Thinking("hm")
    assert turns_of(Message.user("q"), Message.assistant(unsigned, "a"), Message.user("z"))[1] == [{"text": "a"}]
    answer = Message.assistant(signed, "a")
    assert turns_of(Message.user("q"), answer, Message.user("z"), model=DEEPSEEK)[1] == [{"text": "a"}]


def test_arguments_that_did_not_parse_are_sent_as_an_object() -> None:
    broken = Message.assistant(ToolCall.parse("t1", "look", '{"x'))
    call = turns_of(Message.user("q"), broken, LOOP[2])[1][0]["toolUse"]
    assert call["input"] == {"unparsed_arguments": '{"x'}


def test_a_family_without_a_system_prompt_reads_it_in_the_first_turn() -> None:
    body = body_of(model="mistral.mistral-7b-instruct-v0:2", request={"system": "Be brief."})
    assert "system" not in body
    assert body["messages"][0]["content"] == [{"text": "Be brief."}, {"text": "hi"}]


# ---------------------------------------------------------------- media


def test_documents_have_safe_unique_names_and_words_beside_them() -> None:
    pdf = FileRef(data=b"%PDF", mime_type="application/pdf", name="a/b  c_d.pdf")
    note = FileRef(data=b"x", mime_type="text/x-python")
    first, second, third, words = turns_of(Message.user(pdf, pdf, note))[0]
    source = {"bytes": "JVBERg=="}
    assert first == {"document": {"format": "pdf", "name": "a-b c-d-pdf", "source": source}}
    assert second["document"]["name"] == "a-b c-d-pdf (2)"
    assert third["document"] == {"format": "txt", "name": "document", "source": {"bytes": "eA=="}}
    assert words == {"text": "."}


def test_a_document_beside_results_goes_into_the_last_of_them_for_claude() -> None:
    pdf = FileRef(data=b"%PDF", mime_type="application/pdf", name="a")
    messages = (*LOOP, Message.user(pdf, "read it"))
    assert [list(block) for block in turns_of(*messages)[2]] == [["toolResult"], ["text"]]
    assert "document" in turns_of(*messages)[2][0]["toolResult"]["content"][1]
    assert [list(block) for block in turns_of(*messages, model=NOVA)[2]] == [["toolResult"], ["document"], ["text"]]


def test_pictures_and_videos_are_bytes_or_an_address_in_s3_for_nova() -> None:
    video = FileRef(url="s3://bucket/v.mp4", mime_type="video/mp4")
    parts = turns_of(Message.user(Image("image/jpg", b"j"), video), model=NOVA)[0]
    assert parts == [
        {"image": {"format": "jpeg", "source": {"bytes": "ag=="}}},
        {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/v.mp4"}}}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://x.test/i.png", mime_type="image/png"),
        Image("image/svg+xml", b"<svg/>"),
        FileRef(url="s3://bucket/v.pdf", mime_type="application/pdf"),
        FileRef(path="a.pdf", mime_type="application/pdf"),
        FileRef(file_id="f", mime_type="application/pdf"),
        FileRef(data=b"x"),
    ],
)
def test_media_that_the_family_cannot_take_are_refused(part: Any) -> None:
    assert refusal(Message.user(part)) is ErrorCode.UNSUPPORTED


# ---------------------------------------------------------------- tools


def test_tools_are_written_with_what_the_family_reads() -> None:
    strict = msgspec.structs.replace(LOOK, strict=True, description=" ")
    claude = body_of(request={"tools": (strict,)})["toolConfig"]
    nova = body_of(request={"tools": (strict,)}, model=NOVA)["toolConfig"]
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    assert claude == {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": schema}, "strict": True}}]}
    plain = {"name": "look", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    assert nova == {"tools": [{"toolSpec": plain}]}


@pytest.mark.parametrize(
    ("choice", "word"), [("required", {"any": {}}), (OneTool("look"), {"tool": {"name": "look"}}), ("auto", None)]
)
def test_a_tool_choice_has_the_apis_word(choice: Any, word: dict[str, Any] | None) -> None:
    body = body_of(request={"tools": (LOOK,), "tool_choice": choice})
    assert body["toolConfig"].get("toolChoice") == word


def test_forcing_a_tool_is_refused_where_the_family_cannot() -> None:
    assert refusal(model=LLAMA, request={"tools": (LOOK,), "tool_choice": "required"}) is ErrorCode.UNSUPPORTED
    assert refusal(model=MISTRAL, request={"tools": (LOOK,), "tool_choice": OneTool("look")}) is ErrorCode.UNSUPPORTED
    thinking = Reasoning(budget_tokens=2000)
    forced = {"tools": (LOOK,), "tool_choice": "required"}
    assert refusal(reasoning=thinking, request=forced) is ErrorCode.UNSUPPORTED


def test_no_tools_are_declared_for_none_unless_the_history_has_calls() -> None:
    options = {"tools": (LOOK,), "tool_choice": "none"}
    assert "toolConfig" not in body_of(request=options)
    assert list(body_of(*LOOP, request=options)["toolConfig"]) == ["tools"]


def test_hosted_tools_are_asked_for_by_our_word_or_by_their_own_name() -> None:
    tools = (HostedTool("code_execution"), HostedTool("nova_new_thing"))
    names = [tool["systemTool"]["name"] for tool in body_of(model=NOVA, hosted_tools=tools)["toolConfig"]["tools"]]
    assert names == ["nova_code_interpreter", "nova_new_thing"]
    assert refusal(hosted_tools=(HostedTool("web_search"),)) is ErrorCode.UNSUPPORTED


def test_parallel_calls_are_turned_off_where_that_can_be_said() -> None:
    body = body_of(request={"tools": (LOOK,)}, parallel_tool_calls=False)
    assert body["additionalModelRequestFields"]["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "additionalModelRequestFields" not in body_of(
        model=NOVA, request={"tools": (LOOK,)}, parallel_tool_calls=False
    )


# ---------------------------------------------------------------- settings


def test_settings_go_to_the_inference_config_within_their_ranges() -> None:
    options: dict[str, Any] = {"max_tokens": 9, "temperature": 1.5, "top_p": 0.5, "stop_sequences": ("END",)}
    assert body_of(**options, model=NOVA)["inferenceConfig"] == {
        "maxTokens": 9,
        "stopSequences": ["END"],
        "temperature": 1.0,
        "topP": 0.5,
    }
    assert "topP" not in body_of(**options)["inferenceConfig"]


@pytest.mark.parametrize(
    ("model", "reasoning", "fields"),
    [
        (CLAUDE, Reasoning(effort="low"), {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (OLDER_CLAUDE, Reasoning(effort="low"), {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (NOVA, Reasoning(effort="max"), {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("openai.gpt-oss-120b-1:0", Reasoning(effort="minimal"), {"reasoning_effort": "low"}),
        ("qwen.qwen3-32b-v1:0", Reasoning(effort="high"), {"reasoning_config": "high"}),
    ],
)
def test_reasoning_is_said_in_the_familys_words(model: str, reasoning: Reasoning, fields: dict[str, Any]) -> None:
    body = body_of(model=model, reasoning=reasoning, temperature=0.5)
    assert body["additionalModelRequestFields"] == fields


def test_thinking_leaves_sampling_alone_and_room_for_the_answer() -> None:
    claude = body_of(model=OLDER_CLAUDE, reasoning=Reasoning(budget_tokens=2000), temperature=0.5)
    assert claude["inferenceConfig"] == {"maxTokens": 6096}
    assert "inferenceConfig" not in body_of(model=NOVA, reasoning=Reasoning(effort="high"), max_tokens=50, top_p=0.5)


def test_reasoning_that_a_family_cannot_do_is_refused() -> None:
    assert refusal(model=LLAMA, reasoning=Reasoning(effort="low")) is ErrorCode.UNSUPPORTED
    assert refusal(model=NOVA, reasoning=Reasoning(budget_tokens=2000)) is ErrorCode.UNSUPPORTED
    assert "additionalModelRequestFields" not in body_of(model=LLAMA, reasoning=Reasoning(effort="off"))


def test_a_tool_loop_that_began_without_thinking_goes_on_without_it() -> None:
    budget = Reasoning(budget_tokens=2000)
    assert "additionalModelRequestFields" not in body_of(*LOOP, reasoning=budget)
    signed = Message.assistant(Thinking("hm", provider_data={"signature": "s"}), CALL)
    assert "thinking" in body_of(LOOP[0], signed, LOOP[2], reasoning=budget)["additionalModelRequestFields"]


def test_an_output_schema_is_sent_as_text_or_refused() -> None:
    written = body_of(output_schema={"type": "object"})["outputConfig"]["textFormat"]
    assert written["structure"] == {"jsonSchema": {"name": "output", "schema": '{"type":"object"}'}}
    assert refusal(model=NOVA, output_schema={"type": "object"}) is ErrorCode.UNSUPPORTED


def test_extensions_join_the_settings_that_are_there() -> None:
    extensions = {"additionalModelRequestFields": {"top_k": 5}, "serviceTier": {"type": "flex"}}
    body = body_of(reasoning=Reasoning(effort="low"), extensions=extensions)
    assert body["additionalModelRequestFields"]["top_k"] == 5
    assert "thinking" in body["additionalModelRequestFields"]
    assert body["serviceTier"] == {"type": "flex"}


# ---------------------------------------------------------------- cache


POINT = {"cachePoint": {"type": "default"}}


def test_cache_points_stand_after_tools_system_and_the_newest_anchors() -> None:
    turns = [Message.user("1"), Message.assistant("2"), Message.user("3"), Message.assistant("4"), Message.user("5")]
    options = {"tools": (LOOK,), "system": "s", "cache_anchors": (0, 2, 3)}
    body = body_of(*turns, request=options, cache_config=CacheConfig())
    assert body["toolConfig"]["tools"][-1] == body["system"][-1] == POINT
    assert [POINT in turn["content"] for turn in body["messages"]] == [False, False, True, True, False]


def test_an_anchor_inside_a_turn_points_behind_its_own_message() -> None:
    content = turns_of(*LOOP, Message.user("live"), request={"cache_anchors": (2,)}, cache_config=CacheConfig())[2]
    assert [next(iter(block)) for block in content] == ["toolResult", "cachePoint", "text"]


def test_two_anchors_in_one_turn_point_behind_their_own_messages() -> None:
    messages = (Message.user("1"), Message.user("2"), Message.user("3"))
    (content,) = turns_of(*messages, request={"cache_anchors": (0, 1)}, cache_config=CacheConfig())
    assert content == [{"text": "1"}, POINT, {"text": "2"}, POINT, {"text": "3"}]


def test_no_cache_point_follows_a_document_or_thinking() -> None:
    pdf = FileRef(data=b"%PDF", mime_type="application/pdf", name="a")
    answer = Message.assistant("a", Thinking("hm", provider_data={"signature": "s"}))
    messages = (Message.user("read", pdf), answer, Message.user("z"))
    read, said, _ = turns_of(*messages, request={"cache_anchors": (0, 1)}, cache_config=CacheConfig())
    assert [next(iter(block)) for block in read] == ["text", "cachePoint", "document"]
    assert [next(iter(block)) for block in said] == ["text", "cachePoint", "reasoningContent"]


def test_families_without_a_cache_get_no_points() -> None:
    options = {"tools": (LOOK,), "system": "s", "cache_anchors": (0,)}
    assert b"cachePoint" not in encoded(model=LLAMA, request=options, cache_config=CacheConfig()).body
    nova = body_of(model=NOVA, request=options, cache_config=CacheConfig())
    assert POINT not in nova["toolConfig"]["tools"]
    assert POINT in nova["system"]


def test_the_same_request_gives_the_same_bytes() -> None:
    options: dict[str, Any] = {"tools": (LOOK,), "system": "s", "metadata": {"team": "a"}}
    assert encoded(*LOOP, request=options).body == encoded(*LOOP, request=options).body
    assert body_of(request=options)["requestMetadata"] == {"team": "a"}
