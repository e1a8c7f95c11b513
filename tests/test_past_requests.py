"""The requests of a record, rendered again: to the byte what was sent, in every wire API."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import (
    AgentConfig,
    ContextConfig,
    Message,
    SQLiteStore,
    ToolsConfig,
    model,
    open_session,
    start_session,
)
from dragoman.agent import Agent, Hooks, ModelCall
from dragoman.history import HistoryEntry, ToolSetEntry
from dragoman.review import PastRequests, find_calls
from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.tools import tool
from dragoman.wire import WIRE_APIS
from tests.agent_cases import kept
from tests.whole_answers import MODELS, answer_with_call, answer_with_text

APIS = sorted(MODELS)


@tool
def look(path: str) -> str:
    """Look at a file."""
    return f"{path}: " + "nothing special here\n" * 20


@tool
def count(words: list[str]) -> int:
    """Count words."""
    return len(words)


def test_every_wire_api_has_an_answer_here() -> None:
    assert {*MODELS} == {*WIRE_APIS}


def agent_of(api: str, *rounds: int, tools: Any = (look,), **settings: Any) -> tuple[Agent[Any, Any], ReplayTransport]:
    """An agent whose model makes so many calls of a tool in each run, then says something."""
    answers: list[ReplayedResponse] = []
    for number, calls in enumerate(rounds):
        answers += (
            answer_with_call(api, "look", {"path": f"a{number}{at}.py"}, call_id=f"c{number}_{at}")
            for at in range(calls)
        )
        answers.append(answer_with_text(api, f"That was file {number}."))
    return agent_with(api, ReplayTransport(answers), tools=tools, **settings)


def agent_with(api: str, wire: ReplayTransport, **settings: Any) -> tuple[Agent[Any, Any], ReplayTransport]:
    asked = model(MODELS[api], api_key="secret", region="eu-west-1", transport=wire, **settings.pop("model", {}))
    return Agent(asked, instructions="You look at files.", **settings), wire


def rendered_again(entries: Any, session_id: str) -> list[tuple[bytes, bool | None]]:
    requests = PastRequests(entries, session_id=session_id)
    rendered = [requests.render(call) for call in find_calls(entries)]
    return [(each.request.body, each.is_exact) for each in rendered]


def check_all(agent: Agent[Any, Any], wire: ReplayTransport) -> tuple[HistoryEntry, ...]:
    session = kept(agent)
    entries = tuple(session.entries)
    sent = [(request.body, True) for request in wire.requests]
    assert rendered_again(entries, session.session_id) == sent
    return entries


def tool_sets(entries: tuple[HistoryEntry, ...]) -> list[ToolSetEntry]:
    return [entry for entry in entries if isinstance(entry, ToolSetEntry)]


@pytest.mark.parametrize("api", APIS)
def test_the_requests_of_an_agent_are_rendered_again_to_the_byte(api: str) -> None:
    agent, wire = agent_of(api, 2, 0, 1)
    for said in ("Look at a.", "And now?", "Once more."):
        agent.run_sync(said)
    entries = check_all(agent, wire)
    assert len(wire.requests) == 6
    assert len(tool_sets(entries)) == 1


def test_a_request_with_a_cache_key_is_rendered_again() -> None:
    agent, wire = agent_of("openai-responses", 1, model={"extensions": {"prompt_cache_key": "team-1"}})
    agent.run_sync("Look at a.")
    check_all(agent, wire)
    assert b"team-1" in wire.requests[0].body


@pytest.mark.parametrize("api", APIS)
def test_settings_that_shape_requests_are_rendered_again(api: str) -> None:
    given = {"temperature": 0.5, "stop_sequences": ("END",), "max_tokens": 2_000}
    agent, wire = agent_of(api, 1, model={**given, "cache": False} if api != "openai-responses" else {"cache": False})
    agent.run_sync("Look at a.")
    check_all(agent, wire)


@pytest.mark.parametrize("api", APIS)
def test_requests_after_an_epoch_are_rendered_again(api: str) -> None:
    config = AgentConfig(context=ContextConfig(budget_tokens=2_000))
    agent, wire = agent_of(api, 30, config=config)
    agent.run_sync("Look at everything.")
    entries = check_all(agent, wire)
    assert any(entry.kind == "epoch" for entry in entries)
    assert [spec.name for entry in tool_sets(entries) for spec in entry.specs] == ["look", "recall"]


@pytest.mark.parametrize("api", APIS)
def test_the_screen_of_a_widget_is_rendered_again(api: str) -> None:
    noted = answer_with_call(api, "memory_notebook_append", {"text": "Suspect: a.py"}, call_id="n1")
    looked = answer_with_call(api, "look", {"path": "a.py"}, call_id="n2")
    wire = ReplayTransport([noted, looked, answer_with_text(api, "Fine."), answer_with_text(api, "Still.")])
    config = AgentConfig(tools=ToolsConfig(notebook=True))
    agent, _ = agent_with(api, wire, tools=[look], config=config)
    agent.run_sync("Look at a.")
    agent.run_sync("And now?")
    check_all(agent, wire)
    assert b"## [Memory Notebook]" in wire.requests[-1].body


@pytest.mark.parametrize("api", APIS)
def test_a_result_that_is_cut_to_its_limit_is_rendered_again(api: str) -> None:
    agent, wire = agent_of(api, 2, config=AgentConfig(tools=ToolsConfig(result_limit_bytes=200)))
    agent.run_sync("Look at a.")
    (first, second) = tool_sets(check_all(agent, wire))
    assert (first.result_limit_bytes, len(first.digests), len(second.digests)) == (200, 1, 2)  # with recall


@pytest.mark.parametrize("api", APIS)
def test_the_policy_simple_is_rendered_again(api: str) -> None:
    agent, wire = agent_of(api, 2, 1, config=AgentConfig(context=ContextConfig(policy="simple")))
    agent.run_sync("Look at a.")
    agent.run_sync("And now?")
    check_all(agent, wire)


@pytest.mark.parametrize("api", APIS)
def test_the_schema_of_an_answer_is_rendered_again(api: str) -> None:
    wire = ReplayTransport([answer_with_text(api, '{"value": ["a", "b"]}')])
    agent, _ = agent_with(api, wire, output_type=list[str])
    assert agent.run_sync("Name two letters.").output == ["a", "b"]
    check_all(agent, wire)


@pytest.mark.parametrize("api", APIS)
def test_an_agent_without_tools_and_settings_records_no_tool_set(api: str) -> None:
    agent, wire = agent_of(api, 0, 0, tools=())
    agent.run_sync("Hello.")
    agent.run_sync("And now?")
    assert tool_sets(check_all(agent, wire)) == []


class Fewer(Hooks):
    """Takes the last tool away from every second call."""

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        return msgspec.structs.replace(call, tools=call.tools[:1]) if call.call_index % 2 else None


class Louder(Hooks):
    """Changes what was said, which the record does not see."""

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        first = Message.user(call.messages[0].text.upper())
        return msgspec.structs.replace(call, messages=(first, *call.messages[1:]))


class Dated(Hooks):
    """Writes into the system text which call it is."""

    async def before_model(self, call: ModelCall) -> ModelCall | None:
        return msgspec.structs.replace(call, system=f"{call.system} This is call {call.call_index}.")


@pytest.mark.parametrize("api", APIS)
def test_tools_that_a_hook_took_away_are_rendered_again(api: str) -> None:
    agent, wire = agent_of(api, 3, tools=[look, count], hooks=[Fewer()])
    agent.run_sync("Look at a.")
    recorded = tool_sets(check_all(agent, wire))
    assert [len(entry.digests) for entry in recorded] in ([2, 1, 2, 1], [1, 2, 1, 2])
    assert sum(len(entry.specs) for entry in recorded) == 2
    assert {entry.offered for entry in recorded if len(entry.digests) == 2} == {""}
    assert len({entry.offered for entry in recorded}) == 2


@pytest.mark.parametrize("api", APIS)
def test_a_system_text_that_a_hook_changed_is_rendered_again(api: str) -> None:
    agent, wire = agent_of(api, 2, hooks=[Dated()])
    agent.run_sync("Look at a.")
    assert len(tool_sets(check_all(agent, wire))) == 3


def test_a_request_whose_messages_a_hook_changed_is_known_to_be_another() -> None:
    agent, wire = agent_of("openai-chat", 1, hooks=[Louder()])
    agent.run_sync("Look at a.")
    entries = tuple(kept(agent).entries)
    again = rendered_again(entries, kept(agent).session_id)
    assert [is_exact for _, is_exact in again] == [False, False]
    assert [body for body, _ in again] != [request.body for request in wire.requests]


def test_a_tool_set_survives_a_store_and_a_fork(tmp_path: Path) -> None:
    async def run() -> None:
        async with SQLiteStore(tmp_path / "sessions.db") as store:
            session = await start_session(store, "one")
            agent, wire = agent_of("openai-chat", 1, session=session)
            await agent.run("Look at a.")
            fork = await store.fork("one", (await store.head("one")).serial, new_session_id="two")
            session = await open_session(store, fork.session_id)
            agent, again = agent_of("openai-chat", 1, session=session)
            await agent.run("Look at it again.")
            entries = await store.load("two")
            assert len(tool_sets(entries)) == 1
            bodies = [
                body.replace(b'"one"', b'"two"') for body in (each.body for each in (*wire.requests, *again.requests))
            ]
            assert [body for body, _ in rendered_again(entries, "two")] == bodies

    asyncio.run(run())
