"""Models on this machine by their names: when their server starts, who shares it, and that it never outlives us."""

import asyncio
import os
import signal
import struct
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Image, InvalidValue, Message, ModelError, model, render_request, tool
from dragoman.cli.chat.models import ChatModels
from dragoman.cli.settings import Settings
from dragoman.local import KNOWN_WEIGHTS
from dragoman.local.gguf import read_facts
from dragoman.models.local import OWN_OUTPUT, WINDOW
from dragoman.testing import RecordingTransport, forbid_network
from dragoman.transport import AiohttpTransport
from tests.local_stage import Stage, wait_until_gone

FRANCE = "What is the capital of France?"
ANSWERS: dict[str, list[Any]] = {
    "France": ["Paris."],
    "story": ["…"],
    "lamps": [{"name": "stock", "arguments": {"item": "lamp"}}, "7."],
}


@tool
def stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return {"lamp": 7}[item]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch, ANSWERS)
    yield made
    made.close()


def gguf(path: Path, template: str, window: int = 2048) -> Path:
    """Write the beginning of a model file: its window and its chat template."""

    def entry(key: str, kind: int, value: bytes) -> bytes:
        return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value

    said = struct.pack("<Q", len(template.encode())) + template.encode()
    entries = entry("llama.context_length", 4, struct.pack("<I", window)) + entry("tokenizer.chat_template", 8, said)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entries + bytes(100))
    return path


# ---------------------------------------------------------------- start and share


def test_making_a_model_starts_nothing_and_the_first_request_does(stage: Stage) -> None:
    agent = Agent("local:smollm2")
    render_request("local:smollm2", [Message.user(FRANCE)])
    assert stage.started == []
    assert agent.run_sync(FRANCE).output == "Paris."
    assert len(stage.started) == 1


def test_all_who_name_the_same_weights_share_a_server(stage: Stage, tmp_path: Path) -> None:
    link = tmp_path / "other.gguf"
    link.symlink_to(KNOWN_WEIGHTS["smollm2"].path)
    for name in ("local:smollm2", "local:smollm2@chat", f"local:{KNOWN_WEIGHTS['smollm2'].path}", f"local:{link}"):
        assert Agent(name).run_sync(FRANCE).output == "Paris."
    assert len(stage.started) == 1
    assert Agent("local:qwen2.5-coder").run_sync(FRANCE).output == "Paris."
    assert len(set(stage.started)) == 2


def test_threads_with_event_loops_of_their_own_share_a_server(stage: Stage) -> None:
    shared = model("local:smollm2")
    together = threading.Barrier(8)

    def ask(number: int) -> str | None:
        together.wait()
        asked = shared if number % 2 else model("local:smollm2")
        message = asyncio.run(asked.stream([Message.user(FRANCE)]).collect()).message
        return None if message is None else message.text

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"Paris."}
    assert len(stage.started) == 1


def test_a_server_that_died_is_started_again_by_the_next_request(stage: Stage) -> None:
    agent = Agent("local:smollm2")
    agent.run_sync(FRANCE)
    wait_until_gone(stage.started[0], lambda: os.kill(stage.started[0], signal.SIGKILL))
    assert agent.run_sync(FRANCE).output == "Paris."
    assert len(stage.started) == 2


def test_a_server_that_does_not_start_is_told_and_may_be_tried_again(stage: Stage, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_text("broken")
    agent = Agent(f"local:{own}")
    error = agent.run_sync(FRANCE).error
    assert error is not None
    assert "the model's server did not start: RuntimeError: this is no model" in error.message
    gguf(own, "{{ tools }}")
    assert agent.run_sync(FRANCE).output == "Paris."


def test_weights_that_are_not_here_are_told_with_the_command_that_fetches_them(stage: Stage) -> None:
    KNOWN_WEIGHTS["smollm2"].path.unlink()
    error = Agent("local:smollm2").run_sync(FRANCE).error
    assert error is not None
    assert "dragoman local pull smollm2" in error.message
    assert stage.started == []


def test_where_requests_are_forbidden_no_server_starts(stage: Stage) -> None:
    with forbid_network():
        error = Agent("local:smollm2").run_sync(FRANCE).error
    assert error is not None
    assert "forbidden" in error.message
    assert stage.started == []


def test_a_transport_of_the_users_own_carries_the_requests(stage: Stage, tmp_path: Path) -> None:
    recording = RecordingTransport(AiohttpTransport(trust_env=False), tmp_path / "recorded", protocol="openai-chat")
    assert Agent(model("local:smollm2", transport=recording)).run_sync(FRANCE).output == "Paris."
    assert b"Paris." in (tmp_path / "recorded").read_bytes()


@pytest.mark.parametrize("given", [{"base_url": "http://127.0.0.1:1"}, {"api_key": "k"}, {"headers": {"a": "b"}}])
def test_what_a_local_model_cannot_take_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=f"local:smollm2 takes no {next(iter(given))}"):
        model("local:smollm2", **given)  # type: ignore[arg-type]  # one of three, each of its own type


def test_a_chat_says_that_a_server_is_still_starting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.chat.models.SIGN_SECONDS", 0.01)
    os.mkfifo(stage.folder / "loading")
    told: list[str] = []

    def tell(step: str, _done: int, _whole: int) -> None:
        if not told:
            (stage.folder / "loading").write_text("go on")
        told.append(step)

    async def use() -> None:
        models = ChatModels(Settings(store="s"), on_progress=tell)
        await models.open("local:smollm2")
        await models.close()

    asyncio.run(use())
    assert set(told) == {"starting smollm2"}


# ---------------------------------------------------------------- its end

PROGRAM = f"""
import asyncio, os, sys
from dragoman import Agent
agent = Agent("local:smollm2")
assert agent.run_sync({FRANCE!r}).output == "Paris."
"""
WAITS = """
print("ready", flush=True)
sys.stdin.read()
"""
ANSWERS_FOR_EVER = """
async def listen():
    async for event in agent.stream("Tell me a story."):
        if event.kind == "delta" and event.delta.kind == "text":
            print("ready", flush=True)
asyncio.run(listen())
"""
FORKS = (
    """
if os.fork() == 0:
    sys.stdin.read()  # holds all pipes of its parent
    os._exit(0)
"""
    + WAITS
)


@pytest.mark.parametrize(
    ("rest", "stop"),
    [(WAITS, signal.SIGKILL), (WAITS, signal.SIGTERM), (ANSWERS_FOR_EVER, signal.SIGKILL), (FORKS, signal.SIGKILL)],
    ids=["killed", "terminated", "killed in an answer", "killed with a forked child that lives on"],
)
def test_a_server_ends_with_a_process_that_is_killed(stage: Stage, rest: str, stop: signal.Signals) -> None:
    with stage.run(PROGRAM + rest) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_until_gone(stage.started[0], lambda: process.send_signal(stop))


def test_a_server_that_still_loads_ends_with_a_process_that_is_killed(stage: Stage) -> None:
    os.mkfifo(stage.folder / "loading")
    # The pipe opens when the server has begun to load.
    with stage.run(PROGRAM) as process, (stage.folder / "loading").open("w"):
        wait_until_gone(stage.started[0], process.kill)


def test_a_server_ends_with_a_process_that_ends(stage: Stage) -> None:
    with stage.run(PROGRAM + WAITS) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        wait_until_gone(stage.started[0], process.stdin.close)
        assert process.wait(60) == 0


def test_a_forked_process_has_a_server_of_its_own(stage: Stage) -> None:
    rest = f"""
pid = os.fork()
if pid == 0:
    assert Agent("local:smollm2").run_sync({FRANCE!r}).output == "Paris."
    sys.exit()  # by the way on which the servers of a process are stopped
assert os.waitpid(pid, 0)[1] == 0
assert agent.run_sync({FRANCE!r}).output == "Paris."
print("well")
"""
    with stage.run(PROGRAM + rest) as process:
        said, _ = process.communicate()
    assert said.endswith("well\n")
    assert len(stage.started) == 2


# ---------------------------------------------------------------- what it can do


@pytest.mark.parametrize(("name", "uses"), [("smollm2", False), ("qwen2.5-coder", True)])
def test_the_abilities_of_known_weights_are_true(name: str, uses: bool) -> None:
    known = model(f"local:{name}")
    assert known.supports("tools") is uses
    assert known.model_info().context_window == KNOWN_WEIGHTS[name].context_tokens


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_no_model_on_this_machine_is_said_to_read_pictures(api: str) -> None:
    known = model(f"local:smollm2@{api}")
    assert not [ability for ability in ("images", "audio", "video", "documents") if known.supports(ability)]
    with pytest.raises(ModelError, match="cannot read image/png"):
        known.render([Message.user("Look.", Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40))])


def test_the_abilities_of_a_file_are_those_that_it_says(tmp_path: Path) -> None:
    plain = model(f"local:{gguf(tmp_path / 'plain.gguf', '{{ messages }}')}")
    able = model(f"local:{gguf(tmp_path / 'able.gguf', '{% if tools %}', window=WINDOW * 4)}")
    assert (plain.supports("tools"), plain.model_info().context_window) == (False, 2048)
    assert (able.supports("tools"), able.model_info().context_window) == (True, WINDOW)
    assert able.get_config().max_tokens == OWN_OUTPUT


@pytest.mark.parametrize("written", [b"", b"GG", b"GGUF", b"no model", b"x.context_length\4\0\0\0", b"\0" * 200])
def test_a_file_that_is_no_model_says_nothing(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(written)
    assert read_facts(path) == (None, False)


def test_a_file_that_comes_later_is_known_then(tmp_path: Path) -> None:
    later = model(f"local:{tmp_path / 'later.gguf'}")
    assert later.supports("tools")  # until it is known, as with any server that somebody runs
    gguf(tmp_path / "later.gguf", "{{ messages }}")
    assert not later.supports("tools")


def test_a_model_that_cannot_use_tools_refuses_them_in_a_call(stage: Stage) -> None:
    with pytest.raises(ModelError, match="llamacpp:smollm2 cannot do tools"):
        model("local:smollm2").stream([Message.user("How many lamps?")], [stock.spec])


def test_an_agent_with_tools_runs_them_on_a_model_that_uses_them(stage: Stage) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = Agent("local:qwen2.5-coder", tools=[stock])
    assert agent.run_sync("How many lamps?").output == "7."


def test_tools_for_a_model_that_cannot_use_them_give_one_warning(stage: Stage) -> None:
    with pytest.warns(UserWarning, match=r"^Model\(local:smollm2\) cannot use tools, and runs without stock$") as seen:
        agent = Agent("local:smollm2", tools=[stock])
    assert [Path(warning.filename) for warning in seen] == [Path(__file__)]
    for _ in range(2):
        assert agent.run_sync(FRANCE).output == "Paris."  # and here no warning, which would be an error
    with pytest.warns(UserWarning, match="cannot use tools"):
        Agent("local:qwen2.5-coder", tools=[stock]).use("local:smollm2")


def test_an_agent_without_tools_warns_of_nothing(stage: Stage) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Agent("local:smollm2").use("local:qwen2.5-coder")


def test_the_manner_of_known_weights_never_replaces_an_instruction_of_the_user() -> None:
    def sent(*messages: Message, system: str | None = None) -> bytes:
        return render_request("local:smollm2", messages, system_prompt=system).body

    manner = (KNOWN_WEIGHTS["smollm2"].manner or "").encode()
    assert manner in sent(Message.user(FRANCE))
    assert manner not in sent(Message.user(FRANCE), system="Be brief.")
    body = sent(Message.system("Be brief."), Message.user(FRANCE))
    assert b"Be brief." in body
    assert manner not in body
