"""Gemini generateContent: what a conversation and its settings say as a request."""

import base64
import json
from typing import Any

import pytest

from dragoman.errors import ErrorCode, ModelError
from dragoman.message import FileRef, Image, Message, ModelInvocationDescriptor, Text, ToolCall, ToolResult
from dragoman.request import CacheConfig, HostedTool, ModelConfig, ModelRequest, Reasoning
from dragoman.toolspec import OneTool, ToolSpec
from dragoman.wire.gemini import CODEC, DIALECTS

GOOGLE, VERTEX = DIALECTS
PIXEL = b"\x89PNG pixel"
ORIGIN = ModelInvocationDescriptor("google", "gemini", "gemini-3-flash")
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def body_of(
    *messages: Message, model: str = "gemini-2.5-flash", dialect: Any = GOOGLE, **fields: Any
) -> dict[str, Any]:
    settings = {name: fields.pop(name) for name in list(fields) if name in ModelConfig.__struct_fields__}
    request = ModelRequest(config=ModelConfig(model, **settings), messages=messages, **fields)
    decoded: dict[str, Any] = json.loads(CODEC.encode_request(request, dialect).body)
    return decoded


def test_a_result_without_its_call_is_refused() -> None:
    with pytest.raises(ModelError):
        body_of(Message.user("go"), Message.tool(ToolResult("c1", "x")))


def test_media_of_a_result_go_inside_it() -> None:
    result = ToolResult("c1", (Text("a"), Image("image/png", PIXEL), Text("b")))
    call = Message.assistant(ToolCall("c1", "look", {}))
    response = body_of(Message.user("go"), call, Message.tool(result))["contents"][2]["parts"][0]["functionResponse"]
    assert response["response"] == {"output": "a\nb"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}}]


@pytest.mark.parametrize(("model", "signed"), [("gemini-3-flash", True), ("gemini-2.5-pro", False)])
def test_the_first_unsigned_call_of_a_turn_is_excused_where_signatures_are_demanded(model: str, signed: bool) -> None:
    turn = Message.assistant(ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))
    results = [Message.tool(ToolResult(call, "x")) for call in ("c1", "c2")]
    first, second = body_of(Message.user("go"), turn, *results, model=model)["contents"][1]["parts"]
    assert first.get("thoughtSignature") == ("skip_thought_signature_validator" if signed else None)
    assert "thoughtSignature" not in second


def test_arguments_that_did_not_parse_are_sent_as_text_inside_an_object() -> None:
    turn = Message.assistant(ToolCall("c1", "add", raw_args_text='{"a":', parse_error="cut"))
    contents = body_of(Message.user("go"), turn, Message.tool(ToolResult("c1", "x", is_error=True)))["contents"]
    assert contents[1]["parts"][0]["functionCall"]["args"] == {"unparsed_arguments": '{"a":'}


def test_media_and_files_of_a_user() -> None:
    message = Message.user(
        Image("image/png", PIXEL),
        Image(url="https://example.org/a.jpg", mime_type="image/jpeg"),
        FileRef(file_id="files/abc", mime_type="application/pdf"),
        FileRef(data=b"x", mime_type="text/plain"),
    )
    assert body_of(message)["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}},
        {"fileData": {"fileUri": "https://example.org/a.jpg", "mimeType": "image/jpeg"}},
        {
            "fileData": {
                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
                "mimeType": "application/pdf",
            }
        },
        {"inlineData": {"mimeType": "text/plain", "data": "eA=="}},
    ]


@pytest.mark.parametrize("part", [FileRef(path="a.txt"), FileRef(data=b"x")])
def test_a_file_that_cannot_be_said_is_refused(part: FileRef) -> None:
    with pytest.raises(ModelError) as refused:
        body_of(Message.user(part))
    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_settings_are_in_the_apis_words() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = body_of(
        Message.user("hi"),
        system="Be brief.",
        tools=(ADD,),
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        stop_sequences=("END",),
        output_schema=schema,
        cache_config=CacheConfig(),
        extensions={"safetySettings": [], "generationConfig": {"topK": 3}},
    )
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "add", "description": "Adds.", "parametersJsonSchema": ADD.parameter_schema}
                ]
            }
        ],
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 100,
            "stopSequences": ["END"],
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
            "topK": 3,
        },
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "safetySettings": [],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        (OneTool("add"), {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_a_tool_choice_is_a_mode(choice: Any, expected: dict[str, Any]) -> None:
    body = body_of(Message.user("hi"), tools=(ADD,), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": expected}


def test_strict_tools_ask_for_validated_calls() -> None:
    body = body_of(Message.user("hi"), tools=(ToolSpec("add", strict=True),))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}


def test_hosted_tools_beside_our_own_show_their_calls_where_the_host_asks_for_it() -> None:
    hosted = (HostedTool("web_search"), HostedTool("fileSearch", {"fileSearchStoreNames": ["s"]}))
    body = body_of(Message.user("hi"), tools=(ADD,), hosted_tools=hosted)
    assert body["tools"][1:] == [{"googleSearch": {}}, {"fileSearch": {"fileSearchStoreNames": ["s"]}}]
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "toolConfig" not in body_of(Message.user("hi"), tools=(ADD,), hosted_tools=hosted, dialect=VERTEX)
    assert "toolConfig" not in body_of(Message.user("hi"), hosted_tools=hosted)


@pytest.mark.parametrize(
    ("model", "reasoning", "expected"),
    [
        ("gemini-2.5-flash", Reasoning(effort="off"), {"thinkingBudget": 0}),
        ("gemini-2.5-flash", Reasoning(effort="low", summary=True), {"thinkingBudget": 2048, "includeThoughts": True}),
        ("gemini-2.5-pro", Reasoning(budget_tokens=999), {"thinkingBudget": 999}),
        ("gemini-3-flash", Reasoning(effort="minimal"), {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-pro", Reasoning(effort="minimal"), {"thinkingLevel": "LOW"}),
        ("gemini-flash-latest", Reasoning(effort="max"), {"thinkingLevel": "HIGH"}),
    ],
)
def test_reasoning_is_a_level_or_a_budget_by_version(
    model: str, reasoning: Reasoning, expected: dict[str, Any]
) -> None:
    body = body_of(Message.user("hi"), model=model, reasoning=reasoning)
    assert body["generationConfig"] == {"thinkingConfig": expected}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gemini-3-flash", {"reasoning": Reasoning(effort="off")}),
        ("gemini-2.5-pro", {"reasoning": Reasoning(effort="off")}),
        ("gemini-3-flash", {"parallel_tool_calls": False}),
    ],
)
def test_what_the_api_cannot_do_is_refused_before_the_network(model: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as refused:
        body_of(Message.user("hi"), model=model, tools=(ADD,), **settings)
    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_an_explicit_cache_stands_for_what_it_holds() -> None:
    body = body_of(Message.user("hi"), system="S", tools=(ADD,), extensions={"cachedContent": "cachedContents/1"})
    assert set(body) == {"contents", "cachedContent"}


@pytest.mark.parametrize(
    ("dialect", "model", "stream", "path"),
    [
        (GOOGLE, "gemini-3-flash", True, "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"),
        (GOOGLE, "tunedModels/mine", False, "/v1beta/tunedModels/mine:generateContent"),
        (VERTEX, "gemini-3-flash", False, "/publishers/google/models/gemini-3-flash:generateContent"),
        (VERTEX, "endpoints/12", True, "/endpoints/12:streamGenerateContent?alt=sse"),
        (GOOGLE, "odd?{x}", False, "/v1beta/models/odd%3F%7Bx%7D:generateContent"),
    ],
)
def test_the_path_names_the_model_and_the_method(dialect: Any, model: str, stream: bool, path: str) -> None:
    request = ModelRequest(config=ModelConfig(model), messages=(Message.user("hi"),), stream=stream)
    assert CODEC.encode_request(request, dialect).path == path


def test_signatures_go_back_only_to_the_model_and_host_that_made_them() -> None:
    rules = GOOGLE.rules
    assert rules.takes_opaque_from(ORIGIN, "gemini", "gemini-3-flash")
    assert not rules.takes_opaque_from(ORIGIN, "gemini", "gemini-3-pro")
    assert not VERTEX.rules.takes_opaque_from(ORIGIN, "gemini", "gemini-3-flash")
