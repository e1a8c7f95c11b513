"""What a provider refuses of a request: the agent asks again without it, and remembers it. No session is lost by it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ErrorCode,
    FileRef,
    Image,
    LoopConfig,
    MemoryStore,
    Message,
    ModelError,
    Text,
    ToolCall,
    ToolResult,
    ToolsConfig,
    model,
    render_request,
    start_session,
    tool,
)
from dragoman.agent import FinishedEvent, MediaNotShownEvent
from dragoman.testing import Call, ReplayedResponse, ReplayTransport, ScriptedModel, validate_request
from dragoman.toolspec import ToolSpec
from dragoman.transport import HttpRequest, HttpResponse, Timeouts
from dragoman.wire import PROVIDERS
from dragoman.wire.failures import error_from_response, refused_content
from tests.agent_cases import asks, kept, read, require_sound, run
from tests.test_media_agent import PICTURE, seeing, sent

CUT = Image("image/png", b"cut upload")
DEAD = Image("image/png", url="https://pictures.test/gone.png")


def refusal(words: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> ModelError:
    return ModelError(f"refused: {code}", code=code, provider_message=words)


# ---------------------------------------------------------------- the providers' words

WORDS = [
    # what is refused, status, the provider's own code, its words
    (
        "these media",
        400,
        "invalid_request_error",
        "messages.0.content.1.image.source.base64.data: Could not process image",
    ),
    (
        "these media",
        400,
        "invalid_request_error",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
    ),
    ("these media", 400, "invalid_request_error", "The PDF specified was not valid."),
    ("these media", 400, "invalid_request_error", "Unable to download the file. Please verify the URL and try again."),
    ("these media", 404, "not_found_error", "File not found: file_011CNha8iCJcU1wXNR6q4V8w"),
    (
        "these media",
        400,
        "invalid_image_format",
        "You uploaded an unsupported image. Please make sure your image is valid.",
    ),
    ("these media", 400, "invalid_image_url", "Error while downloading https://e.test/x.png."),
    ("these media", 400, "invalid_base64", "Invalid base64 image_url."),
    ("these media", 413, "payload_too_large", "The image is larger than 20 MB"),
    ("these media", 400, "INVALID_ARGUMENT", "Unable to process input image. Please retry or report"),
    ("these media", 400, "INVALID_ARGUMENT", "Cannot fetch content from the provided URL."),
    ("these media", 400, "INVALID_ARGUMENT", "Unsupported MIME type: image/x-odd"),
    ("these media", 403, "PERMISSION_DENIED", "You do not have permission to access the File abc or it may not exist."),
    ("these media", 400, "ValidationException", "Could not process image"),
    ("media", 500, "server_error", "image input is not supported - hint: you may need to provide the mmproj"),
    ("media", 400, "BadRequestError", "At most 0 images: gemma is not a multimodal model"),
    ("media", 400, "invalid_request_error", "messages[0]: unknown variant `image_url`, expected `text`"),
    ("opaque", 400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    ("opaque", 400, "invalid_request_error", "messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
    ("opaque", 400, "invalid_encrypted_content", "The encrypted content gAAA... could not be verified."),
    ("opaque", 400, "invalid_request_error", "Encrypted content is not supported with this model."),
    ("opaque", 404, "invalid_request_error", "Item with id 'rs_123' not found."),
    ("opaque", 400, "INVALID_ARGUMENT", "Thought signature is not valid"),
    ("opaque", 400, "INVALID_ARGUMENT", "Corrupted thought_signature."),
    ("tools", 400, "api_error", "registry.ollama.ai/library/gemma:2b does not support tools"),
    ("tools", 400, "ValidationException", "This model doesn't support tool use."),
    ("tools", 400, "INVALID_ARGUMENT", "Function calling is not enabled for models/gemma-3-27b-it"),
    ("tools", 400, "invalid_request_error", "`tool calling` is not supported with this model"),
    ("tools", 404, "404", "No endpoints found that support tool use."),
    (None, 400, "invalid_request_error", "tools.0.custom.input_schema: property `file` is not valid"),
    (None, 400, "invalid_request_error", "max_tokens: must be at least 1"),
    (None, 400, "context_length_exceeded", "This model's maximum context length is 8192 tokens, with 3 images"),
    (None, 429, "rate_limit_error", "Too many images per minute"),
    (None, 500, "server_error", "The image service failed"),
    (None, 401, "invalid_api_key", "No access to files with this key"),
]


@pytest.mark.parametrize(("what", "status", "word", "message"), WORDS)
def test_what_is_refused_is_told_by_the_provider_s_words(
    what: str | None, status: int, word: str, message: str
) -> None:
    body = json.dumps({"error": {"code": word, "message": message}}).encode()
    error = error_from_response(status, {}, body)
    assert refused_content(error.code, error.provider_message or "") == what


# ---------------------------------------------------------------- media


@pytest.mark.parametrize("medium", [CUT, DEAD, FileRef(file_id="file_1", mime_type="image/png")])
@pytest.mark.parametrize("attempts", [1, 4])
def test_a_refused_medium_is_a_marked_line_and_new_ones_are_tried(medium: Image | FileRef, attempts: int) -> None:
    async def talk() -> None:
        script = seeing(refusal("Could not process image"), "I see none.", "Still none.", "A cat.")
        agent = Agent(script, config=AgentConfig(loop=LoopConfig(attempts=attempts)))

        events = await read(agent.stream(["look", medium]))

        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].status == "completed"
        (told,) = [event for event in events if isinstance(event, MediaNotShownEvent)]
        assert told.why == "the provider refused it"
        assert [medium in sent(script, turn) for turn in (0, 1)] == [True, False]
        assert (await agent.run("hello?")).output == "Still none."
        assert (await agent.run(["and this?", PICTURE])).output == "A cat."
        assert (medium in sent(script), PICTURE in sent(script)) == (False, True)
        require_sound(kept(agent))

    run(talk())


def test_media_that_were_read_before_are_given_up_last() -> None:
    script = seeing(
        "A cat.", refusal("Could not process image"), "A cat, no more.", refusal("download failed"), "None."
    )
    agent = Agent(script)
    run(agent.run(["look", PICTURE]))
    run(agent.run(["and this?", CUT]))
    assert (PICTURE in sent(script), CUT in sent(script)) == (True, False)
    assert run(agent.run("and now?")).output == "None."
    assert PICTURE not in sent(script)


def test_a_tool_s_refused_picture_does_not_end_the_session() -> None:
    @tool
    def photo() -> Image:
        """Take a photo."""
        return CUT

    script = seeing(asks(Call("photo", {})), refusal("Unable to process input image"), "Blurred.", "Hello.")
    agent = Agent(script, tools=[photo])
    assert run(agent.run("take one")).output == "Blurred."
    assert run(agent.run("hello")).output == "Hello."
    results = [
        part for message in script.requests[-1].messages for part in message.parts if isinstance(part, ToolResult)
    ]
    assert all(isinstance(part, Text) for result in results for part in result.content)


def test_a_refusal_of_media_that_were_not_sent_is_not_asked_again() -> None:
    script = seeing(refusal("the file of settings is wrong"), "Never.")
    result = run(Agent(script).run(["look", FileRef(data=b"a,b", mime_type="application/json")]))
    assert (result.status, len(script.requests)) == ("failed", 1)


# ---------------------------------------------------------------- over the wire


class RefusingServer:
    """A transport that refuses each request in whose body `marker` stands, and answers the others in turn."""

    def __init__(self, marker: bytes, error: Mapping[str, Any], *answers: list[dict[str, Any]]) -> None:
        self.marker, self.refused, self.answered = marker, 0, list[bytes]()
        self._error = ReplayedResponse(status=400, chunks=(json.dumps(error).encode(),), headers={})
        self._answers = [
            ReplayedResponse(chunks=tuple(b"data: " + json.dumps(event).encode() + b"\n\n" for event in answer))
            for answer in answers
        ]

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        if self.marker in request.body:
            self.refused, answer = self.refused + 1, self._error
        else:
            self.answered.append(request.body)
            answer = self._answers.pop(0)
        return await ReplayTransport([answer]).send(request, timeouts)

    async def close(self) -> None:
        """Nothing is open."""


def _claude(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "model": "c", "usage": {}}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    ends = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    return [*events, ends, {"type": "message_stop"}]


def _gpt(*items: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "status": "in_progress"}}]
    for index, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*events, {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": items}}]


def _gemini(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}]


def _spoken(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


MAKERS: list[tuple[str, Callable[..., Any], dict[str, Any], dict[str, Any], str]] = [
    (
        "anthropic:claude-opus-4-5",
        _claude,
        {"type": "thinking", "thinking": "hm", "signature": "T1BBUVVF"},
        {"type": "text", "text": "Hi."},
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "openai:gpt-5",
        _gpt,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "T1BBUVVF"},
        _spoken("Hi."),
        "The encrypted content T1BB... could not be verified.",
    ),
    (
        "google:gemini-2.5-pro",
        _gemini,
        {"text": "Well.", "thoughtSignature": "T1BBUVVF"},
        {"text": "Hi."},
        "Thought signature is not valid",
    ),
]


@pytest.mark.parametrize(("name", "answer", "opaque", "said", "words"), MAKERS)
def test_opaque_data_that_its_maker_refuses_is_not_sent_again(
    name: str, answer: Callable[..., Any], opaque: dict[str, Any], said: dict[str, Any], words: str
) -> None:
    async def talk() -> None:
        server = RefusingServer(b"T1BBUVVF", {"error": {"message": words}}, answer(opaque, said), *[answer(said)] * 3)
        session = await start_session(MemoryStore())
        agent = Agent(model(name, api_key="test", transport=server), session=session)
        outputs = [(await agent.run(prompt)).status for prompt in ("one", "two", "three")]
        assert (outputs, server.refused) == (["completed"] * 3, 1)
        fresh = Agent(model(name, api_key="test", transport=server), session=session)
        assert ((await fresh.run("four")).status, server.refused) == ("completed", 2)
        provider = name.partition(":")[0]
        assert [found for body in server.answered for found in validate_request(provider, body)] == []

    run(talk())


@pytest.mark.parametrize(("name", "answer", "opaque", "said", "words"), MAKERS)
def test_a_cut_upload_costs_one_request(
    name: str, answer: Callable[..., Any], opaque: dict[str, Any], said: dict[str, Any], words: str
) -> None:
    async def talk() -> None:
        server = RefusingServer(
            b"Y3V0IHVwbG9hZA", {"error": {"message": "Could not process image"}}, *[answer(said)] * 3
        )
        session = await start_session(MemoryStore())
        agent = Agent(model(name, api_key="test", transport=server), session=session)
        outputs = [(await agent.run(["look", CUT])).status, (await agent.run("two")).status]
        assert (outputs, server.refused) == (["completed"] * 2, 1)
        fresh = Agent(model(name, api_key="test", transport=server), session=session)
        assert ((await fresh.run("three")).status, server.refused) == ("completed", 2)

    run(talk())


def test_an_error_says_that_opaque_data_were_left_out_in_vain() -> None:
    words = "Invalid `signature` in `thinking` block"
    script = ScriptedModel("Hi.", refusal(words), refusal(words))
    agent = Agent(script)
    run(agent.run("one"))
    result = run(agent.run("two"))
    assert result.error is not None
    assert (result.error.code, len(script.requests)) == (ErrorCode.INVALID_REQUEST, 3)
    assert "asked again without signatures" in result.error.message


@pytest.mark.parametrize(
    "name", ["openai:gpt-4o", "openai:gpt-4.1", "openai:gpt-5-chat-latest", "azure-responses:gpt-4o"]
)
def test_a_model_that_does_not_reason_is_not_asked_for_encrypted_reasoning(name: str) -> None:
    assert b"encrypted_content" not in render_request(name, [Message.user("Hi")]).body
    assert b"encrypted_content" in render_request("openai:gpt-5", [Message.user("Hi")]).body
    assert b"encrypted_content" in render_request("azure-responses:my-deployment", [Message.user("Hi")]).body
    own = render_request("azure-responses:my-deployment", [Message.user("Hi")], encrypted_reasoning=False)
    assert b"encrypted_content" not in own.body


def test_an_unknown_model_that_has_no_encrypted_reasoning_is_asked_again_without() -> None:
    async def talk() -> None:
        words = "Encrypted content is not supported with this model."
        server = RefusingServer(b"encrypted_content", {"error": {"message": words}}, *[_gpt(_spoken("Hi."))] * 2)
        named = model("azure-responses:mine", api_key="test", base_url="https://a.test", transport=server)
        agent = Agent(named)
        assert [(await agent.run(prompt)).status for prompt in ("one", "two")] == ["completed"] * 2
        assert server.refused == 1

    run(talk())


# ---------------------------------------------------------------- tools


def test_a_model_that_takes_no_tools_is_asked_without_the_agent_s_own() -> None:
    script = ScriptedModel(refusal("gemma:2b does not support tools", ErrorCode.UNSUPPORTED), "Hello.", "Again.")
    agent = Agent(script, config=AgentConfig(tools=ToolsConfig(notebook=True)))
    assert [run(agent.run(prompt)).output for prompt in ("one", "two")] == ["Hello.", "Again."]
    assert [bool(request.tools) for request in script.requests] == [True, False, False]


def test_a_model_that_takes_no_tools_fails_with_words_where_the_user_gave_some() -> None:
    @tool
    def add(x: int) -> int:
        """Add one."""
        return x + 1

    script = ScriptedModel(refusal("gemma:2b does not support tools", ErrorCode.UNSUPPORTED), "Never.")
    result = run(Agent(script, tools=[add]).run("one"))
    assert result.error is not None
    assert (result.status, len(script.requests)) == ("failed", 1)
    assert "the agent was given tools (add)" in result.error.message


# ---------------------------------------------------------------- text files

TEXT_FILES = [
    FileRef(data=b"a,b", mime_type="text/csv"),
    FileRef(data=b"a", mime_type="text/plain; charset=utf-8", name="a.txt"),
    FileRef(data=b"{}", mime_type="application/json"),
    FileRef(data=b" ", mime_type="text/plain"),
    FileRef(data=b"# x", name="x.md"),
    FileRef(url="data:text/plain;base64,YQ=="),
]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_text_file_makes_a_valid_request_for_every_provider(provider: str) -> None:
    name = "anthropic.claude-sonnet-4-5-20250929-v1:0" if provider == "bedrock" else "m"
    for file in TEXT_FILES:
        called = [Message.user("q"), Message.assistant(ToolCall("call_1", "get", {}))]
        result = Message.tool(ToolResult("call_1", (Text("r"), file)))
        for messages in ([Message.user("x", file)], [Message.user(file)], [*called, result]):
            tools = [ToolSpec("get", "Get it.")] if len(messages) > 1 else []
            wire = render_request(f"{provider}:{name}", messages, tools=tools)
            assert validate_request(provider, wire.body) == [], file
