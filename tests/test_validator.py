"""The request validator: it takes what providers took, and refuses a request broken in any way that its rules name."""

import copy
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import pytest

from dragoman import InvalidValue, MissingExtra
from dragoman.testing.validators import RULES, require_valid_request, validate_request, vendor_types
from dragoman.wire import find_recorded_dialect
from tests.corpus import PROTOCOLS, needs_corpus, records
from tests.valid_requests import VALID

Body = dict[str, Any]
Change = Callable[[Body], object]

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"


class Mutation(NamedTuple):
    """A valid request, by its name in VALID, and what breaks it for a target under one rule."""

    rule: str
    target: str
    valid: str
    change: Change
    model: str = ""


def put(*path: int | str, **fields: Any) -> Change:
    """Set fields of what lies at the path."""
    return lambda body: _at(body, path).update(fields)


def drop(*path: int | str) -> Change:
    """Remove what lies at the path."""
    return lambda body: _at(body, path[:-1]).pop(path[-1])


def replace(*path: int | str, by: Any) -> Change:
    """Put something else where the path leads."""
    return lambda body: _at(body, path[:-1]).__setitem__(path[-1], by)


def add(*path: int | str, value: Any) -> Change:
    """Append to the list at the path."""
    return lambda body: _at(body, path).append(copy.deepcopy(value))


def insert(*path: int | str, value: Any) -> Change:
    """Insert into a list, before what lies at the path."""
    return lambda body: _at(body, path[:-1]).insert(path[-1], copy.deepcopy(value))


def repeat(*path: int | str) -> Change:
    """Put what lies at the path there a second time."""
    return lambda body: _at(body, path[:-1]).append(copy.deepcopy(_at(body, path)))


def both(*changes: Change) -> Change:
    """Make several changes."""
    return lambda body: [change(body) for change in changes]


def _at(value: Any, path: tuple[int | str, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def chat(rule: str, change: Change, target: str = "openai-chat", valid: str = "chat", model: str = "") -> Mutation:
    return Mutation(rule, target, valid, change, model)


def responses(rule: str, change: Change, target: str = "openai") -> Mutation:
    return Mutation(rule, target, "responses", change)


def claude(rule: str, change: Change, valid: str = "anthropic", target: str = "anthropic") -> Mutation:
    return Mutation(rule, target, valid, change)


def gemini(rule: str, change: Change, model: str = "gemini-3-pro-preview") -> Mutation:
    return Mutation(rule, "google", "gemini", change, model)


def bedrock(rule: str, change: Change, valid: str = "bedrock", model: str = CLAUDE) -> Mutation:
    return Mutation(rule, "bedrock", valid, change, model)


CALL = ("messages", 2, "tool_calls", 0)
USER_TURN = {"role": "user", "content": "And?"}
ITEM = {"role": "user", "content": "And?"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
POINT = {"cachePoint": {"type": "default"}}
DOCUMENT = {"document": {"name": "paper", "format": "pdf", "source": {"bytes": "JVBERg=="}}}
VIDEO = {"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}
S3_IMAGE = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/key"}}}}
MARK = {"cache_control": {"type": "ephemeral"}}
BROKEN = '{"city": '

MUTATIONS: tuple[Mutation, ...] = (
    # Types, at every depth.
    chat("T", put(unknown=1)),
    chat("T", drop("messages")),
    chat("T", put("messages", 1, name=7)),
    chat("T", put(*CALL, "function", extra=True)),
    chat("T", replace("messages", 3, "role", by="function_result")),
    chat("T", put("tools", 0, strict=True)),
    chat("T", put(max_completion_tokens="many")),
    chat("T", put("messages", 2, reasoning_content="Hm.")),  # DeepSeek's, not OpenAI's
    chat("T", put("messages", 2, reasoning_content=7), target="deepseek", valid="deepseek"),
    responses("T", put("input", 2, unknown=1)),
    responses("T", drop("input", 3, "output")),
    responses("T", replace("input", 4, "content", 0, "text", by=7)),
    responses("T", put("tools", 0, function={})),
    claude("T", drop("max_tokens")),
    claude("T", put("messages", 1, "content", 2, arguments={})),
    claude("T", put("messages", 2, "content", 0, status="success")),
    claude("T", replace("messages", 1, "content", 2, "input", by="{}")),
    claude("A20", put("tools", 0, "input_schema", type="array")),
    gemini("T", put("contents", 1, "parts", 0, unknown=1)),
    gemini("T", replace("contents", 2, "parts", 0, "functionResponse", "response", by="sun")),
    gemini("T", put("generationConfig", maxTokens=5)),
    gemini("T", put("tools", 0, "functionDeclarations", 0, inputSchema={})),
    bedrock("T", put("messages", 1, unknown=1)),
    bedrock("T", drop("messages", 1, "content", 2, "toolUse", "input")),
    bedrock("T", put("messages", 0, "content", 0, image={"format": "png", "source": {"bytes": "AAAA"}})),
    bedrock("T", replace("messages", 0, "content", 1, "image", "source", "bytes", by="not base64!")),
    bedrock("T", replace("messages", 0, "content", 1, "image", "format", by="bmp")),
    bedrock("T", replace("messages", 1, "content", 2, "toolUse", "name", by="look up")),
    bedrock("T", put("inferenceConfig", maxTokens=0)),
    # Chat Completions.
    chat("C1", both(put(*CALL, id="x" * 41), put("messages", 3, tool_call_id="x" * 41))),
    chat("C1", both(put(*CALL, id="call_1"), put("messages", 3, tool_call_id="call_1")), "mistral", "mistral"),
    chat("C2", both(put("messages", 2, "tool_calls", 1, id="call_a"), put("messages", 4, tool_call_id="call_a"))),
    chat("C3", drop("messages", 4)),
    chat("C3", insert("messages", 3, value=USER_TURN)),
    chat("C4", put("messages", 4, tool_call_id="call_z")),
    chat("C4", insert("messages", 2, value={"role": "tool", "tool_call_id": "call_a", "content": "sun"})),
    chat("C5", insert("messages", 5, value={"role": "tool", "tool_call_id": "call_b", "content": "sun"})),
    chat("C6", put(*CALL, "function", name="look up")),
    chat("C6", put("tools", 0, "function", name="x" * 65)),
    chat("C7", repeat("tools", 0)),
    chat("C8", put(messages=[])),
    chat("C8", put("messages", 1, content=[])),
    chat("C8", put("messages", 5, tool_calls=[])),
    chat("C8", both(put(tools=[]), drop("tool_choice"))),
    chat("C9", put("messages", 5, content=None)),
    chat("C9", put("messages", 5, content=""), "mistral", "mistral"),
    chat("C10", put(*CALL, "function", arguments=BROKEN), "mistral", "mistral"),
    chat("C10", put(*CALL, "function", arguments="[]"), "groq"),
    chat("C11", drop("tools")),
    chat("C11", put(tool_choice={"type": "function", "function": {"name": "other"}})),
    chat("C12", drop("stream")),
    chat("C12", put(max_tokens=9, max_completion_tokens=9)),
    chat("C13", put("messages", 0, role="developer"), "mistral", "mistral"),
    chat("C14", drop("messages", 5), "mistral", "mistral"),  # a user turn right after results
    chat("C14", insert("messages", 6, value=USER_TURN), "llamacpp"),
    chat("C15", drop("messages", -1), "mistral", "mistral"),
    chat("C16", put("messages", 1, content=[{"type": "text", "text": "Hi."}]), "deepseek", "deepseek"),
    chat("C17", drop("messages", 2, "reasoning_content"), "deepseek", "deepseek"),
    chat(
        "C17",
        both(drop("messages", 2, "reasoning_content"), put(model="deepseek-chat", thinking={"type": "enabled"})),
        "deepseek",
        "deepseek",
    ),
    chat("C18", both(drop("tools"), drop("tool_choice")), "openrouter"),
    chat("C19", put("messages", 1, content=[{"type": "text", "text": "Hi.", **MARK}] * 5), "openrouter"),
    # Responses.
    responses("R1", both(put("input", 2, call_id="x" * 65), put("input", 3, call_id="x" * 65))),
    responses(
        "R2",
        both(
            insert("input", 4, value={"type": "function_call_output", "call_id": "call_a", "output": "sun"}),
            insert("input", 3, value={"type": "function_call", "call_id": "call_a", "name": "look", "arguments": "{}"}),
        ),
    ),
    responses("R3", drop("input", 3)),
    responses("R3", insert("input", 3, value=ITEM)),
    responses("R4", put("input", 3, call_id="call_z")),
    responses("R5", insert("input", 4, value={"type": "function_call_output", "call_id": "call_a", "output": "sun"})),
    responses("R6", put("input", 2, name="look up")),
    responses("R6", put("tools", 0, name="")),
    responses("R7", repeat("tools", 0)),
    responses("R8", put(input=[])),
    responses("R8", put("input", 0, content=[])),
    responses("R9", put("input", 2, id="call_a")),
    responses("R9", put("input", 4, id="rs_1")),
    responses("R10", drop("input", 2)),
    responses("R11", drop("input", 1)),
    responses("R12", drop("input", 1, "encrypted_content")),
    responses("R12", add("input", value={"type": "item_reference", "id": "msg_9"})),
    responses("R13", put(text={"format": {"type": "json_object"}})),
    responses(
        "R14", replace("input", 4, by={"role": "assistant", "content": [{"type": "input_text", "text": "Snow."}]})
    ),
    responses("R15", drop("tools")),
    responses("R15", put(tool_choice={"type": "function", "name": "other"})),
    responses("R16", put("input", 3, type="custom_tool_call_output")),
    responses("R17", put("input", 2, arguments=BROKEN), "openai-responses-compatible"),
    responses("R18", insert("input", 3, value={"role": "assistant", "content": "Wait."}), "deepseek-responses"),
    # Messages.
    claude("A1", both(put("messages", 1, "content", 2, id="a:1"), put("messages", 2, "content", 0, tool_use_id="a:1"))),
    claude("A2", put("messages", 1, "content", 3, id="toolu_a")),
    claude("A3", drop("messages", 2, "content", 1)),
    claude("A3", insert("messages", 2, value=USER_TURN)),
    claude("A4", put("messages", 2, "content", 1, tool_use_id="toolu_z")),
    claude("A4", drop("messages", 1)),
    claude("A5", repeat("messages", 2, "content", 1)),
    claude("A6", put("messages", 1, "content", 2, name="look.up")),
    claude("A6", put("tools", 0, name="x" * 129)),
    claude("A7", repeat("tools", 0)),
    claude("A8", put(messages=[])),
    claude("A8", put("messages", 1, role="user")),
    claude("A9", put("messages", 0, content=" ")),
    claude("A9", put("messages", 0, content=[])),
    claude("A9", put("messages", 3, content="")),
    claude("A9", put("messages", 1, "content", 1, text="\n")),
    claude("A9", put(system="  ")),
    claude("A10", insert("messages", 2, "content", 0, value={"type": "text", "text": "Here."})),
    claude("A11", both(drop("tools"), drop("tool_choice"))),
    claude("A12", put("messages", 0, content=[{"type": "text", "text": "Hi.", **MARK}] * 5)),
    claude(
        "A12",
        lambda body: body["tools"].append({**body["tools"][0], "name": "late", "defer_loading": True, **MARK}),
        "anthropic beta",
    ),
    claude("A13", put("messages", 1, "content", 0, signature="")),
    claude("A14", add("messages", 3, "content", value=THOUGHT)),
    claude("A15", lambda body: (body["messages"].pop(), body.update(model="claude-opus-4-6"))),
    claude("A15", lambda body: (body["messages"].pop(), body["messages"][-1].update(content="So: "))),
    claude(
        "A15",
        lambda body: (body["messages"].pop(), body["messages"][-1]["content"].insert(0, THOUGHT), body.pop("thinking")),
    ),
    claude("A16", put("thinking", budget_tokens=1_000)),
    claude("A16", put(max_tokens=2_048)),
    claude("A16", put(tool_choice={"type": "any"})),
    claude("A16", put(temperature=0.5)),
    claude("A17", lambda body: (body.update(messages=body["messages"][:3]), body["messages"][1]["content"].pop(0))),
    claude("A18", put(stop_sequences=["\n"])),
    claude("A18", lambda body: (body.pop("thinking"), body.update(temperature=1.5))),
    claude("A18", lambda body: (body.pop("thinking"), body.update(max_tokens=0))),
    claude("A19", put(tool_choice={"type": "tool", "name": "other"})),
    claude("A19", lambda body: (body.pop("tools"), body.update(messages=body["messages"][:1]))),
    # Gemini.
    gemini("G1", put("contents", 1, "parts", 2, "functionCall", id="a")),
    gemini("G1", put("contents", 2, "parts", 0, "functionResponse", id="z")),
    gemini("G2", drop("contents", 2, "parts", 1)),
    gemini("G2", repeat("contents", 2, "parts", 1)),
    gemini(
        "G2", lambda body: body["contents"].insert(3, {"parts": [body["contents"][2]["parts"].pop()], "role": "user"})
    ),
    gemini("G3", drop("contents", 1)),
    gemini("G4", add("contents", 2, "parts", value={"text": "There."})),
    gemini("G5", insert("contents", 1, value={"role": "model", "parts": [{"text": "Well."}]})),
    gemini("G5", drop("contents", 0)),
    gemini("G6", put("tools", 0, "functionDeclarations", 0, name="1st")),
    gemini("G7", repeat("tools", 0, "functionDeclarations", 0)),
    gemini("G8", put(contents=[])),
    gemini("G8", put("contents", 0, parts=[])),
    gemini("G8", put("contents", 0, role="assistant")),
    gemini("G9", add("contents", 0, "parts", value={})),
    gemini("G9", put("contents", 3, "parts", 0, inlineData={"mimeType": "image/png", "data": "AAAA"})),
    gemini(
        "G10",
        lambda body: (
            body.update(contents=body["contents"][:3]),
            body["contents"][1]["parts"][1].pop("thoughtSignature"),
        ),
    ),
    gemini("G11", put(cachedContent="cachedContents/1")),
    gemini("G12", put(toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["other"]}})),
    gemini("G12", put(toolConfig={"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["look"]}})),
    gemini("G13", drop("contents", -1)),
    # Converse.
    bedrock(
        "T",
        both(
            put("messages", 1, "content", 2, "toolUse", toolUseId="x" * 65),
            put("messages", 2, "content", 0, "toolResult", toolUseId="x" * 65),
        ),
    ),
    bedrock("B2", put("messages", 1, "content", 3, "toolUse", toolUseId="a")),
    bedrock("B3", drop("messages", 2, "content", 1)),
    bedrock("B4", put("messages", 2, "content", 1, "toolResult", toolUseId="z")),
    bedrock("B5", repeat("messages", 2, "content", 1)),
    bedrock("B6", repeat("toolConfig", "tools", 0)),
    bedrock("B7", put(messages=[])),
    bedrock("B7", insert("messages", 0, value={"role": "user", "content": [{"text": "Hi."}]})),
    bedrock("B7", drop("messages", 0), "llama", LLAMA),
    bedrock("B7", put("messages", 1, role="user")),
    bedrock("B8", put("messages", 0, content=[])),
    bedrock("B8", put("messages", 0, "content", 0, text=" ")),
    bedrock("B8", put("messages", 2, "content", 0, "toolResult", content=[])),
    bedrock("B8", put("messages", 2, "content", 0, "toolResult", content=[{"text": ""}])),
    bedrock("B8", put(system=[{"text": "\n"}])),
    bedrock("B9", drop("toolConfig")),
    bedrock("B10", add("messages", 2, "content", value={"text": "There."}), "llama", LLAMA),
    bedrock("B10", insert("messages", 1, "content", 0, value={"text": "One moment."}), "llama", LLAMA),
    bedrock("B11", put("messages", 2, "content", 0, "toolResult", status="error"), "llama", "writer.palmyra-x5-v1:0"),
    bedrock("B12", put("messages", 1, "content", 0, "reasoningContent", "reasoningText", signature="")),
    bedrock(
        "B12",
        insert("messages", 3, "content", 0, value={"reasoningContent": {"redactedContent": "AAAA"}}),
        "llama",
        "us.deepseek.r1-v1:0",
    ),
    bedrock("B12", add("messages", 3, "content", value={"reasoningContent": {"redactedContent": "AAAA"}})),
    bedrock("B13", put("messages", 4, content=[{"text": "Hi."}, POINT] * 5)),
    bedrock("B13", add("messages", 4, "content", value=POINT), "llama", LLAMA),
    bedrock("B13", insert("messages", 1, "content", 1, value=POINT)),
    bedrock("B13", lambda body: body["messages"][4]["content"].extend([DOCUMENT, POINT])),
    bedrock("B14", put("messages", 4, content=[DOCUMENT])),
    bedrock("B14", lambda body: body["messages"][4]["content"].extend([DOCUMENT, DOCUMENT])),
    bedrock("B14", add("messages", 4, "content", value={"document": {**DOCUMENT["document"], "name": "a_b.pdf"}})),
    bedrock("B15", drop("messages", -1), "llama", LLAMA),
    bedrock("B15", lambda body: (body["messages"].pop(), body["messages"][-1].update(content=[{"text": "So: "}]))),
    bedrock("B16", put("toolConfig", toolChoice={"any": {}})),
    bedrock("B16", put("toolConfig", toolChoice={"tool": {"name": "other"}}), "llama", LLAMA),
    bedrock("B17", lambda body: (body.update(messages=body["messages"][:3]), body["messages"][1]["content"].pop(0))),
    bedrock("B18", add("messages", 4, "content", value=VIDEO)),
    bedrock("B18", add("messages", 4, "content", value=S3_IMAGE)),
)
# Already refused by the service model's own bounds.
SAID_BY_TYPES = {"B1"}


def mutation_name(mutation: Mutation) -> str:
    return f"{mutation.rule}-{mutation.target}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=mutation_name)
def test_a_broken_request_is_refused_under_the_rule_that_it_breaks(mutation: Mutation) -> None:
    body = copy.deepcopy(VALID[mutation.valid])
    before = validate_request(mutation.target, body, model=mutation.model)
    assert not before
    mutation.change(body)
    problems = validate_request(mutation.target, body, model=mutation.model)
    assert mutation.rule in {problem.split()[0] for problem in problems}, problems


# What callers and models fill as they like.
FREE = {"parameters", "input_schema", "parametersJsonSchema", "json", "input", "args", "response", "inputSchema"}
FREE_AT_TOP = {"additionalModelRequestFields"}


def dict_paths(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Yield the path of every object in a body whose keys the API decides on."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            if (name not in FREE or not isinstance(inner, dict)) and name not in FREE_AT_TOP:
                yield from dict_paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from dict_paths(inner, (*path, index))


@pytest.mark.parametrize(
    ("target", "valid"),
    [
        ("openai-chat", "chat"),
        ("mistral", "mistral"),
        ("deepseek", "deepseek"),
        ("openai", "responses"),
        ("anthropic", "anthropic"),
        ("google", "gemini"),
        ("bedrock", "bedrock"),
    ],
)
def test_an_unknown_key_is_refused_wherever_it_stands(target: str, valid: str) -> None:
    paths = list(dict_paths(VALID[valid]))
    assert len(paths) >= 10
    for path in paths:
        body = copy.deepcopy(VALID[valid])
        _at(body, path)["not_a_field"] = 1
        assert validate_request(target, body), path


def test_every_rule_has_a_request_that_breaks_it() -> None:
    broken = {mutation.rule for mutation in MUTATIONS}
    numbered = [rule.code for rule in chain.from_iterable(RULES.values())]
    assert len(numbered) == len(set(numbered))
    assert set(numbered) - broken == SAID_BY_TYPES


@pytest.mark.parametrize("target", sorted({mutation.target for mutation in MUTATIONS}))
def test_a_body_that_is_no_object_is_refused(target: str) -> None:
    assert validate_request(target, b"{") == ["T body: not JSON"]
    assert validate_request(target, b"[]") == ["T body: not a JSON object"]


def test_the_raising_form_names_every_problem() -> None:
    require_valid_request("openai-chat", VALID["chat"])
    broken = {**VALID["chat"], "messages": []}
    with pytest.raises(AssertionError, match="C8 messages: an empty list"):
        require_valid_request("openai-chat", broken)


def test_bytes_and_objects_are_the_same() -> None:
    assert not validate_request("anthropic", json.dumps(VALID["anthropic"]).encode())


def test_the_model_is_read_from_the_path() -> None:
    broken = copy.deepcopy(VALID["llama"])
    broken["messages"][2]["content"].append({"text": "There."})
    assert not validate_request("bedrock", broken, path=f"/model/{CLAUDE.replace(':', '%3A')}/converse")
    assert validate_request("bedrock", broken, path=f"/model/{LLAMA.replace(':', '%3A')}/converse")


def test_a_wire_api_may_be_named_for_its_own_vendor() -> None:
    assert not validate_request("gemini", VALID["gemini"])
    assert not validate_request("bedrock-converse", VALID["bedrock"])
    with pytest.raises(InvalidValue, match="target"):
        validate_request("nobody", {})


def test_without_the_sdks_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic.types.message_create_params", None)
    vendor_types._validators.cache_clear()
    with pytest.raises(MissingExtra, match=r"dragoman\[validation\]"):
        validate_request("anthropic", VALID["anthropic"])
    monkeypatch.undo()
    assert not validate_request("anthropic", VALID["anthropic"])


# Recorded requests that got an answer, and are refused here all the same.
REFUSED_RECORDS = {
    "pydantic-ai/models/test_openai_responses/test_openai_responses_image_generation_with_tool_output#1": (
        "an image_generation_call without the result that the SDK demands"
    ),
    "pydantic-ai/models/test_openai/test_multiple_agent_tool_calls#0": "one object where the SDK wants a list of tools",
    "pydantic-ai/models/test_openai/test_multiple_agent_tool_calls#1": "one object where the SDK wants a list of tools",
    "pydantic-ai/models/test_bedrock/test_video_url_input#1": "a format that the service's model does not have",
    "pydantic-ai/models/test_bedrock/test_bedrock_cache_write_and_read#0": "blank text, which Bedrock now refuses",
    "pydantic-ai/models/test_bedrock/test_bedrock_cache_write_and_read#1": "blank text, which Bedrock now refuses",
}


@cache
def refused_records(protocol: str, *, answered: bool) -> dict[str, list[str]]:
    """The recorded requests that are refused here, of those that were answered or of those that were not."""
    refused = {}
    for record in records(protocol):
        request = record["request"]
        if not request or not request["body"] or (200 <= record["response"]["status"] < 300) is not answered:
            continue
        provider = find_recorded_dialect(protocol, record["vendor"]).provider
        if problems := validate_request(provider, request["body"], path=request["path"] or ""):
            refused[record["id"]] = problems
    return refused


@needs_corpus
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_that_was_answered_is_accepted(protocol: str) -> None:
    wrong = {
        name: found for name, found in refused_records(protocol, answered=True).items() if name not in REFUSED_RECORDS
    }
    assert not wrong


@needs_corpus
def test_every_exception_is_still_one() -> None:
    refused = {name for protocol in PROTOCOLS for name in refused_records(protocol, answered=True)}
    assert refused == set(REFUSED_RECORDS)


_MEDIA = "models/test_multimodal_tool_returns/test_multimodal_tool_return_matrix"


@needs_corpus
@pytest.mark.parametrize(
    ("protocol", "record", "rule"),
    [
        (
            "openai-responses",
            "models/test_deepseek_responses/test_deepseek_responses_rejects_interleaved_function_calls#0",
            "R18",
        ),
        (
            "bedrock-converse",
            f"{_MEDIA}[direct-uploaded_file-image-bedrock_claude]#1",
            "B18",
        ),
    ],
)
def test_a_request_that_was_refused_for_its_form_is_refused(protocol: str, record: str, rule: str) -> None:
    problems = refused_records(protocol, answered=False)[f"pydantic-ai/{record}"]
    assert problems[0].startswith(f"{rule} ")
