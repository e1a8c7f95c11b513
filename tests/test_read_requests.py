"""Requests that a server of ours reads: what clients ask in each API is what our values say."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest

from dragoman import (
    CacheConfig,
    FinishReason,
    Message,
    ModelConfig,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.errors import UnreadableData
from dragoman.message import FileRef, Image
from dragoman.request import HostedTool, ModelRequest, ReadRequest
from dragoman.stream import AnswerForm, DeltaWriter
from dragoman.toolspec import OneTool
from dragoman.wire import find_codec, find_dialect, find_provider
from tests.conversations import PNG, VARIANTS, needs_conversations, read_records
from tests.corpus import needs_corpus
from tests.read_requests import (
    SERVED,
    SERVED_TARGETS,
    conversation_problem,
    read,
    read_recorded,
    recorded_bodies,
    said,
)
from tests.valid_requests import VALID
from tests.written_answers import assembled, write
from tests.written_answers import read as read_answer

EACH = pytest.mark.parametrize("api", SERVED)
MODELS = {
    "anthropic-messages": "claude-sonnet-4-6",
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-flash",
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
LOOK_UP = ToolSpec("look_up", "Looks it up.", SCHEMA)
TALK = (
    Message.user("Where is it?"),
    Message.assistant("One moment.", ToolCall("call_1", "look_up", {"city": "Oslo"})),
    Message.tool(ToolResult("call_1", "in the north")),
    Message.user("And now?", Image(mime_type="image/png", data=PNG)),
)


def again(api: str, messages: tuple[Message, ...] = TALK, **request: Any) -> ReadRequest:
    """A request of ours, written for the API's own vendor and read."""
    config = request.pop("config", ModelConfig(MODELS[api]))
    dialect = find_dialect(find_provider(api))
    wanted = ModelRequest(config=config, messages=messages, **request)
    wire = find_codec(api).encode_request(wanted, dialect)
    return read(api, wire.body, model=MODELS[api], stream=wanted.stream)


def read_body(api: str, **body: Any) -> ReadRequest:
    return read(api, json.dumps(body).encode(), model=MODELS[api])


# ---------------------------------------------------------------- laws


@EACH
def test_a_request_that_was_written_reads_as_it_was(api: str) -> None:
    found = again(api, system="Be brief.", tools=(LOOK_UP,)).request
    assert found.system == "Be brief."
    assert said(found.messages, api) == said(TALK, api)
    assert found.stream
    assert [(tool.name, tool.description, tool.parameter_schema) for tool in found.tools] == [
        ("look_up", "Looks it up.", SCHEMA)
    ]
    assert found.config.model_id == MODELS[api]


@EACH
def test_settings_that_were_written_read_as_they_were(api: str) -> None:
    stop: dict[str, Any] = (
        {} if api == "openai-responses" else {"stop_sequences": ("END", "\n\nStop")}
    )  # that API has none
    config = ModelConfig(MODELS[api], temperature=0.5, max_tokens=500, output_schema=CLOSED, **stop)
    found = again(api, config=config).request.config
    for name in ("temperature", "max_tokens", "stop_sequences", "output_schema"):
        assert getattr(found, name) == getattr(config, name), name


@EACH
@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_an_effort_reads_as_it_was_written(api: str, effort: Any) -> None:
    model = "gemini-3-flash" if api == "gemini" else MODELS[api]
    found = again(api, config=ModelConfig(model, reasoning=Reasoning(effort=effort))).request.config.reasoning
    assert found is not None
    assert found.effort == effort


@pytest.mark.parametrize("api", ["anthropic-messages", "gemini"])
def test_a_budget_reads_as_it_was_written(api: str) -> None:
    config = ModelConfig(MODELS[api], reasoning=Reasoning(budget_tokens=2_000, summary=True), max_tokens=9_000)
    assert again(api, TALK[:1], config=config).request.config.reasoning == config.reasoning


@EACH
@pytest.mark.parametrize("choice", ["auto", "required", "none", OneTool("look_up")], ids=str)
def test_a_tool_choice_reads_as_it_was_written(api: str, choice: Any) -> None:
    found = again(api, tools=(LOOK_UP,), tool_choice=choice).request.config.tool_choice
    assert (found or "auto") == choice


@pytest.mark.parametrize("api", [name for name in SERVED if name != "gemini"])
@pytest.mark.parametrize("parallel", [True, False])
def test_one_call_at_a_time_reads_as_it_was_written(api: str, parallel: bool) -> None:
    config = ModelConfig(MODELS[api], parallel_tool_calls=parallel)
    assert again(api, tools=(LOOK_UP,), config=config).request.config.parallel_tool_calls is parallel


def test_cache_marks_become_anchors_on_the_messages_that_hold_them() -> None:
    config = ModelConfig(MODELS["anthropic-messages"], cache_config=CacheConfig())
    found = again("anthropic-messages", config=config, system="Be brief.", tools=(LOOK_UP,), cache_anchors=(1, 3))
    assert found.request.cache_anchors == (1, 3)
    assert found.request.config.cache_config == CacheConfig()
    assert not any("cache_control" in warning for warning in found.warnings)


def test_a_request_without_marks_asks_for_no_cache_where_the_api_wants_marks() -> None:
    assert again("anthropic-messages").request.config.cache_config is None
    assert again("openai-responses").request.config.cache_config == CacheConfig()


@needs_conversations
@pytest.mark.parametrize("target", SERVED_TARGETS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_a_recorded_conversation_reads_as_it_was_written(every: int, variant: str, target: str) -> None:
    count = 0
    for record in read_records(every):
        assert (record["id"], conversation_problem(SERVED_TARGETS[target], record, variant)) == (record["id"], None)
        count += 1
    assert count > 5


@needs_corpus
def test_every_recorded_request_is_read_unless_its_vendor_refused_it() -> None:
    refused = []
    for api, record in recorded_bodies():
        try:
            found = read_recorded(api, record)
        except UnreadableData:
            refused.append(record["response"]["status"])
        else:
            assert found.request.messages or found.request.system or found.other_fields
    assert set(refused) <= {400}
    assert len(refused) <= 1


@EACH
@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b'{"messages": 1, "contents": 1, "input": 1}', b"\xff"])
def test_a_body_that_is_no_request_is_unreadable(api: str, body: bytes) -> None:
    with pytest.raises(UnreadableData):
        read(api, body, model="m")


@EACH
@pytest.mark.parametrize("kind", VALID)
def test_any_body_is_read_or_unreadable(api: str, kind: str) -> None:
    with suppress(UnreadableData):
        read(api, json.dumps(VALID[kind]).encode(), model="m")


# ---------------------------------------------------------------- tools


HOSTED = {
    "anthropic-messages": {"type": "web_search_20250305", "name": "web_search", "uses": 3},
    "openai-chat": {"type": "web_search", "uses": 3},
    "openai-responses": {"type": "web_search", "uses": 3},
    "gemini": {"googleSearch": {"uses": 3}},
}
EMPTY: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    "openai-chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "openai-responses": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


@EACH
def test_a_hosted_tool_is_set_apart_and_named(api: str) -> None:
    found = read_body(api, **EMPTY[api], tools=[HOSTED[api]])
    assert not found.request.tools
    assert not found.request.config.hosted_tools
    assert found.hosted_tools == (HostedTool("web_search", {"uses": 3}),)
    assert any("web_search" in warning for warning in found.warnings)


@EACH
def test_a_field_that_is_not_known_is_kept_and_named(api: str) -> None:
    found = read_body(api, **EMPTY[api], novelty={"of": [2027]})
    assert found.other_fields == {"novelty": {"of": [2027]}}
    assert found.warnings == ("request: 'novelty' is not carried over",)


def test_a_chosen_tool_that_was_left_out_is_chosen_no_more() -> None:
    api = "anthropic-messages"
    found = read_body(api, **EMPTY[api], tools=[HOSTED[api]], tool_choice={"type": "tool", "name": "web_search"})
    assert found.request.config.tool_choice is None


FREE = {
    "openai-chat": {"type": "custom", "custom": {"name": "patch", "description": "Patches."}},
    "openai-responses": {"type": "custom", "name": "patch", "description": "Patches.", "format": {"type": "text"}},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", FREE)
def test_calls_of_a_free_text_tool_are_written_as_free_text(api: str, stream: bool) -> None:
    found = read_body(api, **EMPTY[api], tools=[FREE[api]])
    assert [tool.name for tool in found.request.tools] == ["patch"]
    answer = Message.assistant(ToolCall("call_1", "patch", {"input": "*** Begin"}))
    form = AnswerForm(answer_id="a", model="m", stream=stream, call_fields=found.call_fields)
    body = write(deltas_of(answer), api, form)
    assert body is not None
    assert b'"input":"*** Begin"' in body
    assert b'"custom' in body
    message = assembled(read_answer(body, api, stream=stream)).message
    assert message is not None
    assert len(message.tool_calls) == 1


def deltas_of(message: Message) -> list[Any]:
    writer = DeltaWriter()
    writer.start()
    for call in message.tool_calls:
        writer.call_start(call.tool_call_id, call.tool_name)
        writer.call_args(call.tool_call_id, call.raw_args_text)
        writer.call_end(call.tool_call_id)
    writer.done(FinishReason.TOOL_CALLS, None)
    return writer.take()


def test_calls_of_a_namespaced_tool_name_their_namespace_again() -> None:
    tool = {"type": "function", "name": "shell", "parameters": SCHEMA}
    space = {"type": "namespace", "name": "os", "description": "The system.", "tools": [tool]}
    found = read_body("openai-responses", input="Hi", tools=[space])
    assert [tool.name for tool in found.request.tools] == ["shell"]
    form = AnswerForm(answer_id="a", model="m", stream=False, call_fields=found.call_fields)
    body = write(deltas_of(Message.assistant(ToolCall("c", "shell", {}))), "openai-responses", form)
    assert json.loads(body or b"")["output"][0]["namespace"] == "os"


def test_older_schemas_of_gemini_become_json_schema() -> None:
    older = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True},
            "sizes": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
        "required": ["type"],
    }
    found = read_body(
        "gemini", **EMPTY["gemini"], tools=[{"function_declarations": [{"name": "f", "parameters": older}]}]
    )
    assert found.request.tools[0].parameter_schema == {
        "type": "object",
        "properties": {"type": {"type": ["string", "null"]}, "sizes": {"type": "array", "items": {"type": "integer"}}},
        "required": ["type"],
    }


# ---------------------------------------------------------------- conversation


def test_results_of_gemini_without_ids_go_to_the_calls_of_their_name_in_order() -> None:
    def called(*names: str) -> dict[str, Any]:
        return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in names]}

    def answered(**results: str) -> dict[str, Any]:
        parts = [
            {"functionResponse": {"name": name[0], "response": {"output": text}}} for name, text in results.items()
        ]
        return {"role": "user", "parts": parts}

    contents = [called("a", "b", "a"), answered(b="2", a1="1", a2="3"), called("a"), answered(a="4")]
    messages = read_body("gemini", contents=contents).request.messages
    calls = {call.tool_call_id: call.tool_name for message in messages for call in message.tool_calls}
    assert len(calls) == 4
    results = [(calls[part.tool_call_id], part.content) for message in messages for part in message.tool_results]
    assert results == [("b", "2"), ("a", "1"), ("a", "3"), ("a", "4")]
    assert [message.role for message in messages].count(Role.TOOL) == 4
    ids = [part.tool_call_id for message in messages for part in message.tool_results]
    assert sorted(ids) == sorted(calls)


def test_a_result_of_gemini_that_comes_twice_is_one() -> None:
    # As Gemini CLI 0.61 sends it after `--resume`.
    call = {"functionCall": {"id": "c1", "name": "look", "args": {}}}
    result = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "an ocelot"}}}
    other = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "a tapir"}}}
    turn = {"role": "model", "parts": [call]}
    contents = [turn, {"role": "user", "parts": [result, result]}, turn, {"role": "user", "parts": [result, other]}]
    read = read_body("gemini", contents=contents)
    assert [message.role.value[0] for message in read.request.messages] == ["a", "t", "a", "t", "t"]
    assert any("second result of the call 'c1'" in warning for warning in read.warnings)


@pytest.mark.parametrize(
    ("response", "content", "is_error"),
    [
        ({"output": "yes"}, "yes", False),
        ({"error": "no"}, "no", True),
        ({"output": {"n": 1}}, {"n": 1}, False),
        ({"output": [1, 2]}, {"output": [1, 2]}, False),
        ({"result": "yes"}, {"result": "yes"}, False),
        ({}, {}, False),
    ],
)
def test_results_of_gemini_are_text_or_objects(response: Any, content: Any, is_error: bool) -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    part = {"functionResponse": {"name": "f", "response": response}}
    found = read_body("gemini", contents=[call, {"role": "user", "parts": [part]}]).request.messages[1].tool_results[0]
    assert (found.content, found.is_error) == (content, is_error)


def test_a_signature_that_a_client_made_up_is_left_out() -> None:
    signed = {"functionCall": {"name": "f"}, "thoughtSignature": "skip_thought_signature_validator"}
    message = read_body("gemini", contents=[{"role": "model", "parts": [signed]}]).request.messages[0]
    assert "thoughtSignature" not in (message.tool_calls[0].provider_data or {})


def test_files_of_gemini_become_parts() -> None:
    picture = {"inline_data": {"mime_type": "image/png", "data": base64.b64encode(PNG).decode()}}
    paper = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}}
    (message,) = read_body("gemini", contents={"parts": [picture, paper, {"text": "Read."}]}).request.messages
    assert message.parts == (
        Image(mime_type="image/png", data=PNG),
        FileRef(url="https://example.com/a.pdf", mime_type="application/pdf"),
        Text("Read."),
    )


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("anthropic-messages", {"messages": [], "max_tokens": 1}),
        ("openai-chat", {"messages": []}),
        ("openai-responses", {}),
        ("openai-responses", {"input": []}),
        ("openai-responses", {"input": [], "instructions": "Be brief."}),
        ("gemini", {"contents": []}),
        ("gemini", {}),
    ],
)
def test_a_request_that_says_nothing_is_unreadable(api: str, body: dict[str, Any]) -> None:
    read_request = find_codec(api).read_request
    assert read_request is not None
    with pytest.raises(UnreadableData):
        read_request(json.dumps({"model": "m", **body}).encode(), model="m", stream=False)


@pytest.mark.parametrize("elsewhere", [{"previous_response_id": "resp_1"}, {"prompt": {"id": "p"}}])
def test_a_response_may_continue_what_its_server_has(elsewhere: dict[str, Any]) -> None:
    read_request = find_codec("openai-responses").read_request
    assert read_request is not None
    assert read_request(json.dumps({"model": "m", **elsewhere}).encode()).request.messages == ()


def test_a_system_message_inside_the_conversation_stays_where_it_is() -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "system", "content": [{"type": "text", "text": "Now brief."}]}]
    found = read_body("anthropic-messages", system="Be kind.", messages=turns, max_tokens=9).request
    assert found.system == "Be kind."
    assert [message.role for message in found.messages] == [Role.USER, Role.SYSTEM]


def test_a_mark_on_a_result_anchors_that_result() -> None:
    calls: list[Any] = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": "2", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Go on."},
    ]
    turns = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    found = read_body("anthropic-messages", messages=turns, max_tokens=9).request
    assert found.cache_anchors == (2,)


@pytest.mark.parametrize(
    ("thinking", "output", "expected"),
    [
        ({"type": "disabled"}, None, Reasoning(effort="off")),
        ({"type": "enabled", "budget_tokens": 4_000}, None, Reasoning(budget_tokens=4_000)),
        ({"type": "adaptive"}, None, None),
        ({"type": "adaptive", "display": "summarized"}, {"effort": "xhigh"}, Reasoning(effort="max", summary=True)),
        (None, {"effort": "unheard-of"}, None),
    ],
)
def test_thinking_of_the_messages_api_is_read(thinking: Any, output: Any, expected: Reasoning | None) -> None:
    found = read_body("anthropic-messages", **EMPTY["anthropic-messages"], thinking=thinking, output_config=output)
    assert found.request.config.reasoning == expected


def test_usage_is_streamed_in_chat_only_where_the_client_asks_for_it() -> None:
    assert not read_body("openai-chat", **EMPTY["openai-chat"], stream=True).include_usage
    assert read_body("openai-chat", **EMPTY["openai-chat"], stream_options={"include_usage": True}).include_usage


def test_a_response_repeats_what_the_request_asked() -> None:
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]
    found = read_body("openai-responses", input="Hi", tools=tools, tool_choice="required", temperature=0.5)
    form = AnswerForm(answer_id="a", model="m", stream=False, echo=found.echo)
    response = json.loads(write(deltas_of(Message.assistant(ToolCall("c", "f", {}))), "openai-responses", form) or b"")
    assert (response["tools"], response["tool_choice"], response["temperature"]) == (tools, "required", 0.5)
