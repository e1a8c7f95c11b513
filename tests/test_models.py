"""Model: what goes in, what comes out, what is refused before the network. Answers are replayed, nothing is mocked."""

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from dragoman import (
    ErrorCode,
    FinishReason,
    InvalidValue,
    Message,
    MessageDelta,
    Model,
    ModelConfig,
    ModelError,
    OneTool,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolSpec,
    model,
    render_request,
)
from dragoman.catalogue import register_model
from dragoman.delta import DoneDelta, ErrorDelta
from dragoman.models import ProviderClient
from dragoman.request import ModelInfo, WireRequest
from dragoman.stream import DeltaWriter, StreamContract, WireEvent
from dragoman.target import Dialect
from dragoman.testing import ReplayTransport
from dragoman.transport import HttpRequest, Timeouts
from dragoman.usage import Prices
from dragoman.wire import PROVIDERS, find_codec, find_dialect
from tests.model_cases import ANSWER, HELLO, LOOK, ask, body_of, claude, events, replayed

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


def test_what_is_assembled_is_what_has_been_handed_out_however_much_was_read_at_once() -> None:
    async def run() -> list[tuple[str, str]]:
        handed_out, seen = "", []
        async with claude(replayed(events(*ANSWER))).stream(HELLO) as stream:
            async for delta in stream:
                handed_out += getattr(delta, "text_delta", "")
                so_far = stream.assembly.message or stream.assembly.partial
                seen.append((handed_out, so_far.text if so_far else ""))
        return seen

    seen = asyncio.run(run())
    assert {handed_out for handed_out, _ in seen} == {"", "Hello"}
    assert all(handed_out == assembled for handed_out, assembled in seen)


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


class Unending:
    """A transport of one response that goes on for as long as somebody reads; `ended` says that its body was closed."""

    status = 200
    headers: ClassVar[Mapping[str, str]] = {"content-type": "text/event-stream"}
    ended = False

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> "Unending":
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            yield events(*ANSWER[:2])
            while True:
                yield events(ANSWER[2])
        finally:
            self.ended = True

    async def close(self) -> None:
        pass


def test_leaving_a_stream_early_leaves_no_body_to_be_closed_by_a_task_of_its_own() -> None:
    async def run() -> bool:
        transport = Unending()
        async with model("anthropic:m-1", api_key="key", transport=transport).stream(HELLO) as stream:
            async for delta in stream:
                if delta.kind == "text":
                    break
        return transport.ended

    assert asyncio.run(run())


class Unclosable(Unending):
    """A transport of one whole answer that fails when it is closed."""

    async def chunks(self) -> AsyncIterator[bytes]:
        yield events(*ANSWER)

    async def close(self) -> None:
        raise OSError("the disk is full")


def test_a_response_that_cannot_be_closed_does_not_cost_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    deltas, _ = ask(model("anthropic:m-1", api_key="key", transport=Unclosable()))
    assert deltas[-1].kind == "done"
    assert "OSError" in caplog.text


def test_unknown_wire_events_are_skipped_and_counted() -> None:
    _, stream = ask(claude(replayed(events(ANSWER[0], {"type": "hologram_start"}, *ANSWER[1:]))))
    assert stream.unknown_events == 1
    assert stream.assembly.message.text == "Hello"


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


def test_the_client_itself_hides_the_key_that_a_provider_quotes() -> None:
    body = b'{"error": {"type": "authentication_error", "message": "bad key my-own-form-of-key"}}'
    transport = replayed(body, status=401, kind="application/json")
    client = ProviderClient(find_dialect("anthropic"), api_key="my-own-form-of-key", transport=transport)

    async def run() -> list[MessageDelta]:
        return [delta async for batch in client.send(WireRequest(path="/", body=b"{}")) for delta in batch]

    *_, error = asyncio.run(run())
    assert isinstance(error, ErrorDelta)
    assert error.provider_message
    assert "my-own-form-of-key" not in error.provider_message


def test_a_callers_error_mapper_comes_first() -> None:
    def own(status: int, headers: Mapping[str, str], body: bytes) -> ModelError | None:
        return ModelError("ours", code=ErrorCode.QUOTA_EXCEEDED) if status == 418 else None

    client = ProviderClient(
        find_dialect("anthropic"), api_key="key", transport=replayed(b"{}", status=418, kind="text/plain")
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


def test_aws_credentials_are_searched_once_for_all_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count, program, profile = tmp_path / "count", tmp_path / "find.py", tmp_path / "config"
    program.write_text(
        "import json, sys\n"
        "open(sys.argv[1], 'a').write('.')\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': 'id', 'SecretAccessKey': 'secret'}))\n"
    )
    profile.write_text(f"[profile dragoman]\ncredential_process = {sys.executable} {program} {count}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "dragoman")
    transport = replayed(b"{}", kind="application/json")
    asked = model("bedrock:amazon.nova-pro-v1:0", region="us-east-1", transport=transport)
    for _ in range(2):
        ask(asked)
    assert len(transport.requests) == 2
    assert count.read_text() == "."


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
    asked = model("anthropic:priced-1", api_key="key", transport=replayed(events(*ANSWER)))
    _, stream = ask(asked)
    assert stream.assembly.usage.cost == pytest.approx((10 * 1.0 + 5 * 10.0) / 1_000_000)


@pytest.mark.parametrize(
    ("provider", "limit", "reason"),
    [
        ("llamacpp-responses", 12, FinishReason.LENGTH),
        ("llamacpp-responses", 13, FinishReason.STOP),
        ("llamacpp-responses", None, FinishReason.STOP),
        ("openai-responses-compatible", 12, FinishReason.LENGTH),
        ("openai", 12, FinishReason.STOP),  # it says `incomplete`
    ],
)
def test_an_answer_that_used_its_limit_is_cut_where_the_server_does_not_say(
    provider: str, limit: int | None, reason: FinishReason
) -> None:
    _, answer = ask(half_a_story(f"{provider}:m"), max_tokens=limit)
    assert answer.assembly.error is None
    assert answer.assembly.finish_reason is reason
    assert answer.assembly.message.meta.finish_reason is reason


@pytest.mark.parametrize(("window", "reason"), [(42, FinishReason.LENGTH), (43, FinishReason.STOP)])
def test_an_answer_that_fills_a_known_window_is_cut_where_the_server_does_not_say(
    window: int, reason: FinishReason
) -> None:
    name = f"window-{window}"
    register_model(ModelInfo(provider="llamacpp-responses", model_id=name, context_window=window))
    _, answer = ask(half_a_story(f"llamacpp-responses:{name}"))
    assert answer.assembly.finish_reason is reason


def half_a_story(name: str) -> Model:
    """A model whose answer ends as llama.cpp ends one that it cut: with the status of a whole one."""
    said = [{"type": "output_text", "text": "The story of a fox in", "annotations": []}]
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": said}
    ended = {"id": "r", "status": "completed", "output": [item], "usage": {"input_tokens": 30, "output_tokens": 12}}
    stream = events(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "The story of a fox in"},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": ended},
    )
    return model(name, base_url="http://127.0.0.1:9/v1", api_key="key", transport=replayed(stream))


class PiecemealDecoder:
    """Reports input and output tokens in two usages, as the contract allows."""

    unknown_events = 0

    def __init__(self, writer: DeltaWriter, dialect: Dialect) -> None:
        self._writer = writer

    def decode(self, events: Sequence[WireEvent]) -> None:
        self._writer.start()
        self._writer.usage(TokenUsage(input_tokens=1_000_000))
        self._writer.usage(TokenUsage(output_tokens=1_000_000))
        self._writer.done(FinishReason.STOP, "stop")

    def decode_body(self, body: bytes) -> None:
        self.decode([])

    def end(self) -> None:
        pass


def test_the_cost_counts_what_earlier_reports_said() -> None:
    register_model(ModelInfo(provider="anthropic", model_id="m-pieces", prices=Prices(2.0, 3.0)))
    codec = msgspec.structs.replace(find_codec("anthropic-messages"), open_decoder=PiecemealDecoder)
    client = ProviderClient(
        find_dialect("anthropic"), codec=codec, api_key="key", transport=replayed(events({"any": "event"}))
    )
    _, stream = ask(Model(client, ModelConfig("m-pieces", max_tokens=9)))
    assert stream.assembly.usage.cost == pytest.approx(5.0)


# ---------------------------------------------------------------- rendering


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_request_says_how_its_connection_is_kept(provider: str) -> None:
    # A client that says "close" and uses the connection again gets a 400 from Node's servers. The pool alone decides.
    headers = render_request(f"{provider}:some-model", [Message.user("Hi")]).headers
    assert not {"connection", "keep-alive"} & {name.lower() for name in headers}


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


def test_a_rendered_request_has_the_whole_path_and_the_headers_that_are_sent() -> None:
    rendered = render_request("openai-chat:gpt-4o", HELLO, headers={"x-team": "blue"})
    assert rendered.path == "/v1/chat/completions"
    assert rendered.headers == {"content-type": "application/json", "x-team": "[redacted]"}
    transport = replayed(b"")
    ask(model("openai-chat:gpt-4o", api_key="key", transport=transport, headers={"x-team": "blue"}))
    assert transport.requests[0].url == "https://api.openai.com/v1/chat/completions"
    assert transport.requests[0].body == rendered.body
    assert transport.requests[0].headers["x-team"] == "blue"


@pytest.mark.parametrize(
    "bad", [{"timeouts": 5}, {"transport": 5}, {"headers": {"x": "a\nb"}}, {"base_url": "http://h/?k=1"}]
)
def test_a_bad_setting_of_the_client_is_refused_at_once(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        model("anthropic:m-1", **bad)


@pytest.mark.parametrize("name", ["../../x", "a/../b", "a\nb", "."])
def test_a_model_id_cannot_leave_its_place_in_the_path(name: str) -> None:
    with pytest.raises(InvalidValue):
        model(f"google:{name}")


def test_a_rendered_request_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted-secret")
    rendered = render_request("anthropic:m-1", HELLO, api_key="another-secret")
    assert "secret" not in repr(rendered)
    assert "secret" not in repr(claude())
    assert "planted" not in repr(claude().client)


def test_a_done_delta_is_the_last_one() -> None:
    deltas, _ = ask(claude())
    assert isinstance(deltas[-1], DoneDelta)
