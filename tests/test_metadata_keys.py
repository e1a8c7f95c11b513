"""The keys that the library itself writes into metadata are snake_case, as seed 004 says: they are stored for ever."""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path

from dragoman import AgentConfig, FinishReason, LoopConfig
from dragoman.agent import Agent
from dragoman.cli.modelchoice import MODEL_KEY
from dragoman.history import AgentState, HistoryEntry
from dragoman.interop import append_imported, import_agent_log
from dragoman.store import SQLiteStore
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import tool
from tests.agent_cases import kept
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture

SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@tool
def weather(city: str, days: int) -> str:
    """Say how the weather will be."""
    return f"Rain in {city} for {days} days."


def keys_of(entries: Iterable[HistoryEntry]) -> set[str]:
    return {key for entry in entries for key in entry.metadata}


def test_what_an_agent_notes_has_keys_in_snake_case() -> None:
    repaired = Call("weather", {"city": "Oslo", "days": "2"})
    cut = Turn(text="It rains in", finish_reason=FinishReason.LENGTH)
    agent = Agent(
        ScriptedModel(Turn(calls=(repaired,)), cut, "Oslo."),
        tools=[weather],
        config=AgentConfig(loop=LoopConfig(continue_cut=1)),
    )
    agent.run_sync("How is the weather?")
    keys = keys_of(kept(agent).entries)
    assert {"context_tokens", "context_counter", "parse_warning", "injected", "continues"} <= keys
    assert all(map(SNAKE_CASE.fullmatch, keys)), keys


def test_what_an_import_notes_has_keys_in_snake_case() -> None:
    said = {"role": "user", "timestamp": "2026-01-02T03:04:05Z", "parts": [{"kind": "text", "text": "hi"}]}
    state = AgentState.create_default()
    append_imported(state, import_agent_log({"messages": [said]}))
    assert keys_of(state.entries) == {"said_at"}


def test_what_commands_note_of_a_session_has_keys_in_snake_case(user: User, tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    session_id = user.run("sessions", "import", str(tmp_path / "chat.json"), "--title", "A chat").out.strip()

    async def read() -> set[str]:
        async with SQLiteStore(user.store) as store:
            return set((await store.info(session_id)).metadata)

    assert asyncio.run(read()) == {"imported_from", "title"}
    assert SNAKE_CASE.fullmatch(MODEL_KEY)
