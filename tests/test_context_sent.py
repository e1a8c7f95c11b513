"""A budget counts what is sent: a context that is encoded for its target is no larger than it was counted."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from bench.context_projector import append_recorded, read_conversations

import dragoman
from dragoman import Message, Model, Text, ToolCall, ToolResult, ToolSpec
from dragoman.context import ContextBuildInput, ContextManager, EstimateCounter, TokenCounter, find_counter
from dragoman.history import AgentState
from dragoman.request import ContextConfig
from tests.context_cases import START, Conversation, file_text
from tests.conversations import CONVERSATIONS, needs_conversations
from tests.linear import MODELS

COUNTER = find_counter("openai", "gpt-4.1")
needs_vocabulary = pytest.mark.skipif(
    isinstance(COUNTER, EstimateCounter), reason="no vocabulary is installed: pip install 'dragoman[tokens]'"
)
# What of a request's body a model reads; what stands beside it are settings.
READ = ("messages", "input", "contents", "system", "instructions", "systemInstruction", "tools", "toolConfig")
BUDGETS = (2_000, 8_000, 16_000, 32_000, 64_000)
CHOSEN = ("claude-code-8a4ef6a6c7b6", "deer-flow-fe3f7974", "tau-airline-gpt-4o-2-1-52")
TOOL = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


@cache
def model_of(api: str) -> Model:
    return dragoman.model(MODELS[api], api_key="sk-fake", region="us-east-1")


def sent_tokens(body: bytes, counter: TokenCounter) -> int:
    """What the target reads: the JSON around the texts, and the texts as they are, not as JSON escapes them.

    A marker of the provider's cache is not read.
    """
    texts: list[str] = []

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            if json.dumps(value, ensure_ascii=False) == f'"{value}"':
                return value
            texts.append(value)
            return ""
        if isinstance(value, list):
            return [plain(item) for item in value if not isinstance(item, dict) or "cachePoint" not in item]
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items() if name != "cache_control"}
        return value

    read = {name: value for name, value in json.loads(body).items() if name in READ}
    shell = json.dumps(plain(read), ensure_ascii=False, separators=(",", ":"))
    return counter.count(shell) + sum(map(counter.count, texts))


def conversations(api: str) -> Iterator[list[Message]]:
    invocation = model_of(api).invocation
    for calls in (1, 2, 5):
        for words in ("", "I shall look into that."):
            said: list[Message] = [Message.user("Read the files.")]
            for turn in range(6):
                names = [f"call_aB{turn}xY{number}0123456789abcdef" for number in range(calls)]
                asked = [ToolCall(name, "read_file", {"path": f"src/module_{turn}.py"}) for name in names]
                said.append(Message.assistant(*([words] if words else []), *asked, invocation=invocation))
                said += [Message.tool(ToolResult(name, "def settle(account): return 1")) for name in names]
            said += [
                Message.assistant("Done.", "All of it.", invocation=invocation),
                Message.user(Text("a"), Text("b")),
            ]
            yield said


@needs_vocabulary
@pytest.mark.parametrize("api", MODELS)
def test_messages_count_at_least_what_is_sent_of_them(api: str) -> None:
    model = model_of(api)
    for messages in conversations(api):
        estimate = ContextManager(counter=COUNTER).estimate_tokens(
            messages, tools=[TOOL], system="Be brief.", invocation=model.invocation, rules=model.rules
        )
        sent = sent_tokens(model.render(messages, [TOOL], "Be brief.").body, COUNTER)
        assert sent <= estimate
        assert estimate < 1.5 * sent  # and not much more


@needs_vocabulary
@pytest.mark.parametrize("api", MODELS)
def test_a_long_conversation_never_passes_its_budget(api: str) -> None:
    model = model_of(api)
    conversation = Conversation(2_000, counter=COUNTER, instruction="Be brief.")
    conversation.say("Please rename settle_account to close_account everywhere.")
    for turn in range(40):
        conversation.call(*[file_text(f"module{turn}", 3)] * (1 + turn % 4), words=f"Reading file {turn}.")
        built = conversation.build(invocation=model.invocation, rules=model.rules, tools=(TOOL,))
        wire = model.render(built.messages, built.tool_specs, built.system)
        assert sent_tokens(wire.body, COUNTER) <= 2_000


@cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    return {each["id"]: each["messages"] for each in read_conversations(CONVERSATIONS) if each["id"] in CHOSEN}


def over_budget(messages: list[dict[str, Any]], api: str, budget: int, counter: TokenCounter) -> tuple[int, int]:
    """How many requests of a recorded conversation there are, and how many of them pass the budget."""
    model = model_of(api)
    state = AgentState.create_default(session_id="sent", clock=lambda: START, widgets=())
    manager = ContextManager(ContextConfig(budget_tokens=budget), counter=counter)
    requests = over = 0
    for message in messages:
        if message["role"] == "assistant" and state.next_serial > 1:
            built = manager.build_context(
                ContextBuildInput(entries=state.entries, now=START, invocation=model.invocation, rules=model.rules)
            )
            for entry in built.entries:
                state.append(entry)
            wire = model.render(built.messages, built.tool_specs, built.system)
            requests += 1
            over += sent_tokens(wire.body, counter) > budget
        append_recorded(state, message)
    return requests, over


@needs_conversations
@needs_vocabulary
@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("name", CHOSEN)
def test_no_recorded_conversation_passes_its_budget(name: str, api: str) -> None:
    for budget in BUDGETS[:2]:
        assert over_budget(recorded()[name][:120], api, budget, COUNTER)[1] == 0
