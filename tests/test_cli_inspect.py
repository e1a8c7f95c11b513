"""`dragoman inspect` as people run it: the line that it prints, what it opens, and how it ends."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import MemoryStore, SQLiteStore, start_session
from dragoman.cli import main
from dragoman.cli.inspecting import _agent_maker
from dragoman.cli.settings import Settings
from dragoman.history import ModelInputEntry, ModelOutputEntry
from dragoman.message import Message, Text

from .inspector_cases import invocation_of

LINE = re.compile(r"dragoman inspects (http://127\.0\.0\.1:\d+)/(\S*)\?token=([\w-]{20,})\n")


@contextmanager
def inspecting(*arguments: str) -> Iterator[tuple[str, str, str]]:
    """Give the address, the place and the token that the command prints; it must end well when it is told to."""
    command = [sys.executable, "-m", "dragoman", "inspect", "--no-browser", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = LINE.fullmatch(line)
        assert found is not None, line
        yield found[1], found[2], found[3]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout is not None
        process.stdout.close()


def get(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def write_session(folder: Path) -> Path:
    path = folder / "talk.json"
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well met"}]
    path.write_text(json.dumps(said), "utf-8")
    return path


def test_it_prints_one_line_and_serves_the_store(tmp_path: Path) -> None:
    store = str(tmp_path / "sessions.db")
    assert main(["sessions", "import", str(write_session(tmp_path)), "--id", "talk", "--store", store]) == 0
    with inspecting("talk", "--store", store) as (address, place, token):
        assert place == "s/talk"
        found = get(f"{address}/api/sessions?token={token}")
        assert (found["total"], found["isReadOnly"]) == (1, False)
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{address}/api/sessions")
        assert refused.value.code == 401
        refused.value.close()


def test_it_ends_at_once_while_it_works_for_a_reader(tmp_path: Path) -> None:
    """The review of the cache takes seconds here; the process does not wait for it."""
    store = str(tmp_path / "sessions.db")

    async def write() -> None:
        async with SQLiteStore(store) as opened:
            session = await start_session(opened, "long")
            answer = Message.assistant("an answer", invocation=invocation_of("anthropic:claude-opus-4-5"))
            for number in range(1_500):
                await session.append(ModelInputEntry((Text(f"{number} " * 50),)), ModelOutputEntry(answer))

    asyncio.run(write())
    command = [sys.executable, "-m", "dragoman", "inspect", "--no-browser", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = LINE.fullmatch(process.stdout.readline())
        assert found is not None
        address, token = found[1], found[3]
        get(f"{address}/api/s/long/outline?token={token}")
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 20) as reader:
            reader.sendall(f"GET /api/s/long/cache?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            get(f"{address}/api/s/long?token={token}")  # the request before it has arrived by now
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_sessions_of_another_program_are_opened_read_only(tmp_path: Path) -> None:
    line = {
        "type": "user", "sessionId": "s1", "uuid": "u1", "parentUuid": None, "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "hello from elsewhere"},
    }  # fmt: skip
    (tmp_path / "s1.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    with inspecting("--store", str(tmp_path)) as (address, _, token):
        found = get(f"{address}/api/sessions?token={token}&q=elsewhere")
        assert found["isReadOnly"] is True
        (session,) = found["sessions"]
        assert session["importedFrom"] == "claude-code"
        assert session["updatedAt"] == "2026-01-01T00:00:00+00:00"
        (entry, *_) = get(f"{address}/api/s/s1/entries?token={token}")["entries"]
        assert entry["entry"]["timestamp"] == "2026-01-01T00:00:00Z"


def test_a_session_is_exported_as_one_page(tmp_path: Path) -> None:
    store = str(tmp_path / "sessions.db")
    main(["sessions", "import", str(write_session(tmp_path)), "--id", "talk", "--store", store])
    page = tmp_path / "talk.html"
    assert main(["sessions", "export", "talk", "--html", "-o", str(page), "--store", store]) == 0
    text = page.read_text("utf-8")
    assert "well met" in text
    assert "<script" not in text


def test_what_is_said_in_the_page_may_ask_a_model_of_this_machine() -> None:
    async def make() -> str:
        session = await start_session(MemoryStore(), "talk")
        return repr(_agent_maker(Settings(store="sessions.db"))(session, "local:smollm2"))

    assert "local:smollm2" in asyncio.run(make())
