"""The same bytes, read by the vendors' official SDKs and by us: what each makes of an answer, and where they differ.

    python -m tests.strangers.third_parties.sdks [--protocol NAME] [--limit N]

serves the recorded exchanges beside the checkout from a loopback server and asks both for them.
"""

import argparse
import asyncio
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import dragoman
from dragoman import Message, Thinking, TokenUsage
from dragoman.wire import find_recorded_dialect
from tests.corpus import CORPUS, all_records, body_of

KEY = "not-a-real-key"
QUESTION = "Go on."


class Exchange(NamedTuple):
    """An answer as it came over the wire."""

    name: str
    protocol: str
    vendor: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    is_stream: bool


class Reading(NamedTuple):
    """What a reader made of an answer. `error` is the status of a refusal, or how the stream failed."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    tokens: tuple[int | None, int | None] = (None, None)
    thinking: str = ""
    error: str | None = None


# ---------------------------------------------------------------- the wire


@contextmanager
def serving(exchanges: list[Exchange]) -> Iterator[str]:
    """Serve each exchange at `address/index/…`, whatever is asked of it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            exchange = exchanges[int(self.path.split("/")[1])]
            self.send_response(exchange.status)
            for name, value in exchange.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(exchange.body)))
            self.end_headers()
            self.wfile.write(exchange.body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---------------------------------------------------------------- by us


def name_of(exchange: Exchange) -> str:
    """The model's name here that reads such an answer."""
    return find_recorded_dialect(exchange.protocol, exchange.vendor).provider


def read_by_us(exchange: Exchange, address: str) -> Reading:
    model_id = "us.anthropic.claude-sonnet-4" if exchange.protocol == "bedrock-converse" else "some-model"
    model = dragoman.model(f"{name_of(exchange)}:{model_id}", base_url=address, api_key=KEY)
    assembly = asyncio.run(model.stream([Message.user(QUESTION)]).collect())
    if assembly.message is None:
        assert assembly.error is not None
        return Reading(error=str(exchange.status) if exchange.status >= 400 else "broken")
    usage = assembly.usage or TokenUsage()
    return Reading(
        text=assembly.message.text,
        calls=tuple(
            (call.tool_name, call.raw_args_text if call.arguments is None else _canonical(call.arguments))
            for call in assembly.message.tool_calls
        ),
        finish=assembly.raw_finish_reason,
        tokens=(usage.input_tokens, usage.output_tokens),
        thinking="".join(part.text for part in assembly.message.parts if isinstance(part, Thinking)),
    )


def _canonical(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


def _parsed(raw: str | None) -> str:
    """A call's argument text as both readers write it: no text at all is an empty object."""
    try:
        return _canonical(json.loads(raw or "{}"))
    except ValueError:
        return raw or ""


# ---------------------------------------------------------------- by the official SDKs


def read_by_sdk(exchange: Exchange, address: str) -> Reading:
    readers: dict[str, Callable[[Exchange, str], Reading]] = {
        "openai-chat": _openai_chat,
        "openai-compatible": _openai_chat,
        "openai-responses": _openai_responses,
        "anthropic-messages": _anthropic,
        "gemini": _gemini,
        "bedrock-converse": _bedrock,
    }
    try:
        return readers[exchange.protocol](exchange, address)
    except Exception as error:  # noqa: BLE001  # an SDK that fails on an answer is a finding, not the end
        return Reading(error=f"the SDK fails: {type(error).__name__}: {error}")


def _openai_chat(exchange: Exchange, address: str) -> Reading:
    import openai
    from openai.lib.streaming.chat import ChatCompletionStreamState

    messages: Any = [{"role": "user", "content": QUESTION}]
    try:
        with closing(openai.OpenAI(base_url=address, api_key=KEY, max_retries=0)) as client:
            answer: Any = client.chat.completions.create(model="m", messages=messages, stream=exchange.is_stream)
            usage = None
            if exchange.is_stream:
                state = ChatCompletionStreamState()
                for chunk in answer:
                    state.handle_chunk(chunk)
                    usage = chunk.usage or usage
                answer = state.current_completion_snapshot
    except openai.APIStatusError as error:
        return Reading(error=str(error.status_code))
    except openai.OpenAIError as error:
        return Reading(error=f"broken: {error}")
    if not answer.choices:
        return Reading(error="broken: no choices")
    choice, usage = answer.choices[0], usage or answer.usage
    message = choice.message
    extra = message.model_extra or {}
    calls = [
        (call.function.name, _parsed(call.function.arguments)) for call in message.tool_calls or () if call.function
    ]
    return Reading(
        text=message.content or message.refusal or "",
        calls=tuple(calls),
        finish=choice.finish_reason,
        tokens=(usage.prompt_tokens, usage.completion_tokens) if usage else (None, None),
        thinking=extra.get("reasoning_content") or extra.get("reasoning") or "",
    )


def _openai_responses(exchange: Exchange, address: str) -> Reading:
    import openai

    try:
        with closing(openai.OpenAI(base_url=address, api_key=KEY, max_retries=0)) as client:
            answer: Any = client.responses.create(model="m", input=QUESTION, stream=exchange.is_stream)
            if exchange.is_stream:
                ended = [event.response for event in answer if event.type in _RESPONSE_ENDS]
                if not ended:
                    return Reading(error="broken")
                answer = ended[-1]
    except openai.APIStatusError as error:
        return Reading(error=str(error.status_code))
    except openai.OpenAIError as error:
        return Reading(error=f"broken: {error}")
    if answer.status == "failed" or answer.error is not None:
        return Reading(error="broken")
    items = answer.output or ()
    said = [item for item in items if item.type == "message" and item.role == "assistant"]  # a compaction repeats users
    contents = [part for item in said for part in item.content]
    thoughts = [item for item in items if item.type == "reasoning"]
    reason = answer.incomplete_details.reason if answer.incomplete_details else None
    usage = answer.usage
    return Reading(
        text="".join(str(getattr(part, "text", None) or getattr(part, "refusal", "")) for part in contents),
        calls=tuple((item.name, _parsed(item.arguments)) for item in items if item.type == "function_call"),
        finish=f"{answer.status}:{reason}" if reason else answer.status,
        tokens=(usage.input_tokens, usage.output_tokens) if usage else (None, None),
        thinking="".join(part.text for item in thoughts for part in [*(item.summary or ()), *(item.content or ())]),
    )


_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _anthropic(exchange: Exchange, address: str) -> Reading:
    import anthropic

    asked: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": QUESTION}]}
    answer: Any
    try:
        with closing(anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0)) as client:
            if exchange.is_stream:
                with client.beta.messages.stream(**asked) as stream:
                    answer = stream.get_final_message()
            else:
                answer = client.beta.messages.create(**asked)
    except anthropic.APIStatusError as error:
        return Reading(error=str(error.status_code))
    except (anthropic.AnthropicError, AssertionError) as error:
        return Reading(error=f"broken: {error}")
    usage = answer.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return Reading(
        text="".join(block.text for block in answer.content if block.type == "text"),
        calls=tuple((block.name, _canonical(block.input)) for block in answer.content if block.type == "tool_use"),
        finish=answer.stop_reason,
        tokens=(usage.input_tokens + cached, usage.output_tokens),
        thinking="".join(block.thinking for block in answer.content if block.type == "thinking"),
    )


def _gemini(exchange: Exchange, address: str) -> Reading:
    from google import genai
    from google.genai import errors, types

    options = types.HttpOptions(base_url=address, api_version="v1beta")
    answers: list[Any]
    try:
        with closing(genai.Client(api_key=KEY, http_options=options)) as client:
            if exchange.is_stream:
                answers = list(client.models.generate_content_stream(model="m", contents=QUESTION))
            else:
                answers = [client.models.generate_content(model="m", contents=QUESTION)]
    except errors.APIError as error:
        return Reading(error=str(error.code))
    candidates = [answer.candidates[0] for answer in answers if answer.candidates]
    parts = [part for one in candidates if one.content for part in one.content.parts or ()]
    reasons = [one.finish_reason for one in candidates if one.finish_reason]
    blocked = [one.prompt_feedback.block_reason for one in answers if one.prompt_feedback]
    counts = [answer.usage_metadata for answer in answers if answer.usage_metadata]
    last = counts[-1] if counts else None
    calls = [part.function_call for part in parts if part.function_call]
    return Reading(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=tuple((call.name, _canonical(call.args or {})) for call in calls),
        finish=reasons[-1].value if reasons else (f"block:{blocked[-1].value}" if blocked else None),
        tokens=(
            _sum(last.prompt_token_count, last.tool_use_prompt_token_count) if last else None,
            _sum(last.candidates_token_count, last.thoughts_token_count) if last else None,
        ),
        thinking="".join(part.text for part in parts if part.text and part.thought),
    )


def _sum(*counts: int | None) -> int | None:
    reported = [count for count in counts if count is not None]
    return sum(reported) if reported else None


def _bedrock(exchange: Exchange, address: str) -> Reading:
    import botocore.config
    import botocore.exceptions
    import botocore.session

    session = botocore.session.get_session()
    session.set_credentials("not-a-real-id", KEY)
    once = botocore.config.Config(retries={"total_max_attempts": 1})
    client = session.create_client("bedrock-runtime", region_name="us-east-1", endpoint_url=address, config=once)
    asked = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": QUESTION}]}]}
    try:
        if not exchange.is_stream:
            answer = client.converse(**asked)
            return _converse(answer["output"]["message"]["content"], answer["stopReason"], answer["usage"])
        blocks: dict[int, dict[str, Any]] = {}
        reason, usage = None, {}
        for event in client.converse_stream(**asked)["stream"]:
            (kind, value) = next(iter(event.items()))
            if kind == "contentBlockStart" and "toolUse" in value["start"]:
                blocks[value["contentBlockIndex"]] = {"toolUse": {**value["start"]["toolUse"], "input": ""}}
            elif kind == "contentBlockDelta":
                _add(blocks.setdefault(value["contentBlockIndex"], {}), value["delta"])
            elif kind == "messageStop":
                reason = value["stopReason"]
            elif kind == "metadata":
                usage = value["usage"]
        return _converse(list(blocks.values()), reason, usage)
    except botocore.exceptions.ClientError as error:
        return Reading(error=str(error.response["ResponseMetadata"]["HTTPStatusCode"]))


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        inner = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})
        inner["reasoningText"]["text"] += delta["reasoningContent"].get("text", "")


def _converse(blocks: list[dict[str, Any]], reason: str | None, usage: Mapping[str, int]) -> Reading:
    asked = [block["toolUse"] for block in blocks if "toolUse" in block]
    calls = [call for call in asked if call.get("type") != "server_tool_use"]  # those are the provider's own to run
    cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
    thoughts = [block["reasoningContent"].get("reasoningText", {}) for block in blocks if "reasoningContent" in block]
    return Reading(
        text="".join(block.get("text", "") for block in blocks),
        calls=tuple(
            (call["name"], _parsed(call["input"]) if isinstance(call["input"], str) else _canonical(call["input"]))
            for call in calls
        ),
        finish=reason,
        tokens=(usage["inputTokens"] + cached, usage["outputTokens"]) if usage else (None, None),
        thinking="".join(thought.get("text", "") for thought in thoughts),
    )


# ---------------------------------------------------------------- both


def differences(exchange: Exchange, address: str) -> dict[str, tuple[Any, Any]]:
    """What the SDK and we read, where it is not the same."""
    theirs, ours = read_by_sdk(exchange, address), read_by_us(exchange, address)
    if theirs.error and ours.error:
        theirs, ours = Reading(error=theirs.error[:6]), Reading(error=ours.error[:6])
    return {
        field: (one, other) for field, one, other in zip(Reading._fields, theirs, ours, strict=True) if one != other
    }


def recorded_exchanges() -> Iterator[Exchange]:
    """The recordings, without those of embeddings and token counts, which are no answers."""
    for protocol, record in all_records():
        if record["expect"] is None and record["response"]["status"] < 400:
            continue
        response = record["response"]
        headers = {**(response.get("headers") or {}), "content-type": response.get("content_type") or ""}
        yield Exchange(
            record["id"],
            protocol,
            record["vendor"],
            response["status"],
            headers,
            body_of(record),
            record["streaming"],
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", help="only this one")
    parser.add_argument("--limit", type=int, default=10**9, help="how many exchanges at most of each protocol")
    options = parser.parse_args()
    if not CORPUS.is_dir():
        print(f"there are no recorded exchanges in {CORPUS}")
        return 2
    warnings.simplefilter("ignore")
    taken: Counter[str] = Counter()
    exchanges = []
    for exchange in recorded_exchanges():
        if options.protocol in {None, exchange.protocol} and taken[exchange.protocol] < options.limit:
            taken[exchange.protocol] += 1
            exchanges.append(exchange)
    differing: Counter[str] = Counter()
    with serving(exchanges) as address:
        for index, exchange in enumerate(exchanges):
            found = differences(exchange, f"{address}/{index}")
            if found:
                differing[exchange.protocol] += 1
                print(f"{exchange.name} ({exchange.vendor})")
                for field, (theirs, ours) in found.items():
                    print(f"    {field}: the SDK {theirs!r:.200}, we {ours!r:.200}")
    for protocol, count in taken.items():
        print(f"{protocol}: {count} exchanges, {differing[protocol]} read differently")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
