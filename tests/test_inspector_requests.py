"""Requests in the inspector: the serial of each block, records that no request should fail on, and as a command."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dragoman import MemoryStore, start_session
from dragoman.history import HistoryToolCallResult, ModelInputEntry, ModelOutputEntry, RunStartedEntry, ToolResultsEntry
from dragoman.message import Image, Message, MessageMeta, Role, Text, Thinking, ToolCall
from dragoman.store import Session

from .conversations import PNG
from .inspector_cases import OPUS
from .inspector_stage import Stage, played

MODELS = {
    "anthropic:claude-opus-4-5": [1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6],
    "openai:gpt-5.1": [1, 1, 2, 2, 3, 3, 4, 5, 6],
    "openai-chat:gpt-5.1": [1, 1, 2, 3, 3, 4, 5, 6],
    "google:gemini-3-pro-preview": [1, 1, 2, 2, 3, 3, 4, 5, 6],
    "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0": [1, 1, 2, 2, 3, 3, 4, 5, 6, 6],
}


async def record_alike(store: MemoryStore) -> Session:
    """Record entries that are alike: a picture without words, calls of one tool, thoughts, results without a text."""
    session = await start_session(store, "talk")
    asked = ModelInputEntry((Image("image/png", PNG), Text("Please look.")), run_id="r")
    await session.append(RunStartedEntry(run_id="r"), asked)
    meta = MessageMeta(invocation=OPUS)
    for calls, said in ((2, "content"), (1, "")):
        given = [ToolCall(f"{said}{place}", "Read", {"path": f"/{said}{place}"}) for place in range(calls)]
        thought = Thinking("Now I should Read a file", provider_data={"signature": said or "none"})
        await session.append(ModelOutputEntry(Message(Role.ASSISTANT, (thought, *given), meta=meta), run_id="r"))
        await session.append(ToolResultsEntry(tuple(HistoryToolCallResult.of_text(call, said) for call in given)))
    await session.append(ModelInputEntry((Text("content"),), run_id="r"))
    return session


@pytest.mark.parametrize("model", MODELS)
def test_each_block_of_a_request_has_the_serial_of_its_entry(model: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await record_alike(store)
        found = await stage.get("/api/s/talk/differences", a=f"@{model}", b=f"@{model}")
        keys = [row["key"] for row in found["rows"]]
        assert [int(key[1:]) for key in keys if key.startswith("#")] == MODELS[model]
        assert "ledger" not in keys

    played(test)


DEEP = '{"a":' + "[" * 3_000


@pytest.mark.parametrize("text", [DEEP, DEEP + "]" * 3_000 + "}", '{"a":' + "[" * 300 + "1" + "]" * 300 + "}"])
def test_text_that_looks_like_deep_json_is_compared_as_text(text: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await session.append_model_input(text)
        await session.append_model_output(Message.assistant("Well.", invocation=OPUS))
        found = await stage.get("/api/s/talk/differences", a="1", b="@openai:gpt-5.1")
        assert rows_of(found)["#0"] == "words"

    played(test)


def rows_of(found: dict[str, Any]) -> dict[str, str]:
    return {row["key"]: row["state"] for row in found["rows"]}


def run_script(script: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("characters", [10, 1_000_000])
def test_the_command_of_a_request_sends_its_body(characters: int, tmp_path: Path) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await session.append_model_input("END 'quoted' $HOME `date` \\ " + "x" * characters)
        found = await stage.get("/api/s/talk/request", model="openai:gpt-5.1")
        script = tmp_path / "command"
        script.write_text(
            f"""curl() {{ for last; do :; done; case "$last" in @-) cat;; *) printf %s "$last";; esac; }}
{found["curl"]}
""",
            "utf-8",
        )
        said = await asyncio.to_thread(run_script, script)
        assert (said.stdout.rstrip("\n"), said.stderr) == (found["body"], "")

    played(test)


def test_the_serial_of_the_path_counts_and_none_of_the_query() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await record_alike(store)
        found = await stage.get("/api/s/talk/entries/6/text", at="/payload/parts/0/payload/text", serial="1")
        assert found["text"] == "content"

    played(test)
