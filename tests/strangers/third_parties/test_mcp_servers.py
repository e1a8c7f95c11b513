"""The official MCP servers of npm, over stdio and streamable HTTP: called directly, and by an agent."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Image, ToolContext, ToolResult
from dragoman.agent import QuestionAskedEvent, ToolStartedEvent
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import McpServer

from .npm import installed_packages, running

pytestmark = pytest.mark.slow
both_ways = pytest.mark.parametrize("way", ["stdio", "http"])

CONNECT = 60_000  # milliseconds; Node starts slowly on a busy machine
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)
SECRET = "planted-9d41-in-our-environment"


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the official servers."""
    return installed_packages() / "@modelcontextprotocol"


def program(programs: Path, name: str) -> str:
    return str(programs / f"server-{name}" / "dist" / "index.js")


@asynccontextmanager
async def everything(programs: Path, way: str, folder: Path, **options: Any) -> AsyncIterator[McpServer]:
    """The server that has one tool of each kind."""
    path = program(programs, "everything")
    if way == "stdio":
        async with McpServer.stdio("node", path, "stdio", connect_timeout_ms=CONNECT, **options) as server:
            yield server
        return
    socket = folder / "mcp.sock"
    with running(Path(path), "streamableHttp", env={"PORT": str(socket)}) as lines:
        _wait_until_listening(lines)
        async with (
            loopback(socket) as address,
            McpServer.http(f"{address}/mcp", connect_timeout_ms=CONNECT, **options) as server,
        ):
            yield server


@asynccontextmanager
async def loopback(socket: Path) -> AsyncIterator[str]:
    """An address on loopback that leads to a Unix socket: given a port, the server would listen to the network."""

    under_way: set[asyncio.Task[Any]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass  # either side may leave as it likes
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        try:
            there, back = await asyncio.open_unix_connection(str(socket))
            await asyncio.gather(copy(reader, back), copy(there, writer))
        except OSError:
            pass  # no server listens: the client sees the connection closed
        finally:
            writer.close()
            under_way.discard(task)

    listener = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in (open_ones := list(under_way)):
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)


def _wait_until_listening(lines: Iterator[str]) -> None:
    printed = []
    for line in lines:
        printed.append(line)
        if "listening on port" in line:
            return
    raise RuntimeError(f"the server did not start: {''.join(printed)}")


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Await the work. What hangs is a failure, not a wait."""

    async def limited() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(limited())


async def results_of(tools: Sequence[Any], *calls: Call, **options: Any) -> list[ToolResult]:
    """What the tools returned to an agent whose model made these calls in one turn."""
    agent = Agent(ScriptedModel(Turn(calls=calls), "Done."), tools=tools, **options)
    result = await agent.run("Go on.")
    assert (result.status, result.output) == ("completed", "Done."), result.error
    assert agent.session is not None
    found = [message.parts[0] for message in agent.session.messages if message.role == "tool"]
    assert len(found) == len(calls)
    return [part for part in found if isinstance(part, ToolResult)]


def text_of(result: ToolResult) -> str:
    content = result.content
    return content if isinstance(content, str) else "\n".join(part.text for part in content if hasattr(part, "text"))


def images_of(result: ToolResult) -> list[Image]:
    return [] if isinstance(result.content, str) else [part for part in result.content if isinstance(part, Image)]


# ---------------------------------------------------------------- what a server asks


@both_ways
def test_a_person_fills_in_the_form_of_a_server(programs: Path, way: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path, allow_elicitation=True) as server:
            model = ScriptedModel(Turn(calls=(Call("trigger-elicitation-request", {}),)), "Done.")
            agent = Agent(model, tools=[*server.tools])
            fields: set[str] = set()
            async for event in agent.stream("Go."):
                if isinstance(event, QuestionAskedEvent):
                    assert event.question.schema is not None
                    fields = set(event.question.schema["properties"])
                    await agent.answer(event.question_id, {"name": "Ada", "check": True, "integer": 42})
            assert {"name", "check", "integer", "email", "firstLine"} <= fields
            (told,) = [message for message in model.requests[-1].messages if message.role == "tool"]
            assert "Ada" in str(told.parts)

    run(use)


@both_ways
def test_the_model_of_the_agent_answers_a_server(programs: Path, way: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path, allow_sampling=True) as server:
            asks = Turn(calls=(Call("trigger-sampling-request", {"prompt": "A word?", "maxTokens": 20}),))
            model = ScriptedModel(asks, "Serendipity.", "Done.")
            result = await Agent(model, tools=[*server.tools]).run("Go.")
            assert (result.output, result.usage.total_tokens) == ("Done.", 45)
            assert model.requests[1].params["max_tokens"] == 20
            (told,) = [message for message in model.requests[-1].messages if message.role == "tool"]
            assert "Serendipity." in str(told.parts)

    run(use)


# ---------------------------------------------------------------- everything


@both_ways
def test_every_kind_of_result_reaches_the_model(programs: Path, tmp_path: Path, way: str) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path) as server:
            assert all("background task" in problem for problem in server.problems)
            echo, total, picture, weather, links, blob, packed = await results_of(
                server.tools,
                Call("echo", {"message": "Grüße, 東京 \U0001f600"}),
                Call("get-sum", {"a": 2, "b": 40}),
                Call("get-tiny-image", {}),
                Call("get-structured-content", {"location": "New York"}),
                Call("get-resource-links", {"count": 2}),
                Call("get-resource-reference", {"resourceType": "Blob", "resourceId": 1}),
                Call("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hi", "outputType": "resource"}),
            )
            assert text_of(echo) == "Echo: Grüße, 東京 \U0001f600"
            assert "42" in text_of(total)
            assert [image.mime_type for image in images_of(picture)] == ["image/png"]
            assert json.loads(text_of(weather)) == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
            assert text_of(links).count("demo://resource/dynamic/") == 2
            assert "demo://resource/dynamic/blob/1" in text_of(blob)
            assert "application/gzip" in text_of(packed)
            assert not any(result.is_error for result in (echo, total, picture, weather, links, blob, packed))

    run(use)


@both_ways
def test_a_tool_called_directly_gives_what_an_agent_gets(programs: Path, tmp_path: Path, way: str) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path) as server:
            tools = {tool.name: tool for tool in server.tools}
            said = await tools["echo"].execute({"message": "hello"}, ToolContext(tool_name="echo"))
            (result,) = await results_of(server.tools, Call("echo", {"message": "hello"}))
            assert "Echo: hello" in repr(said)
            assert text_of(result) == "Echo: hello"

    run(use)


@both_ways
def test_many_calls_at_once_are_not_mixed_up(programs: Path, tmp_path: Path, way: str) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path) as server:
            calls = [Call("echo", {"message": f"number {index}"}) for index in range(40)]
            results = await results_of(server.tools, *calls)
            assert [text_of(result) for result in results] == [f"Echo: number {index}" for index in range(40)]

    run(use)


@both_ways
def test_a_call_that_takes_too_long_is_stopped_and_the_server_goes_on(programs: Path, tmp_path: Path, way: str) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path, timeout_ms=1_000) as server:
            slow = Call("trigger-long-running-operation", {"duration": 600, "steps": 600})
            late, echo = await results_of(server.tools, slow, Call("echo", {"message": "still here"}))
            assert late.is_error
            assert text_of(echo) == "Echo: still here"

    run(use)


@both_ways
def test_an_aborted_run_leaves_a_server_that_works(programs: Path, tmp_path: Path, way: str) -> None:
    async def use() -> None:
        async with everything(programs, way, tmp_path) as server:
            slow = Call("trigger-long-running-operation", {"duration": 600, "steps": 600})
            agent = Agent(ScriptedModel(Turn(calls=(slow,)), "Done."), tools=[*server.tools])
            async with agent.stream("Work.") as started:
                async for event in started:
                    if isinstance(event, ToolStartedEvent):
                        break
            assert (await started.result()).status == "aborted"
            (echo,) = await results_of(server.tools, Call("echo", {"message": "again"}))
            assert text_of(echo) == "Echo: again"

    run(use)


def test_keys_of_our_environment_do_not_reach_a_server(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    async def use() -> None:
        async with everything(programs, "stdio", tmp_path) as server:
            (seen,) = await results_of(server.tools, Call("get-env", {}))
            assert "PATH" in json.loads(text_of(seen))
            assert SECRET not in text_of(seen)

    run(use)


def test_a_server_that_was_killed_is_started_again(programs: Path, tmp_path: Path) -> None:
    def children() -> set[int]:
        tasks = Path("/proc/self/task")
        return {int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()}

    if not Path("/proc/self/task").is_dir():
        pytest.skip("the children of a process are found in /proc")

    async def use() -> None:
        before = children()
        async with everything(programs, "stdio", tmp_path) as server:
            for turn in range(2):
                (started,) = children() - before
                os.kill(started, signal.SIGKILL)
                (echo,) = await results_of(server.tools, Call("echo", {"message": f"turn {turn}"}))
                assert text_of(echo) == f"Echo: turn {turn}"

    run(use)


def test_an_http_server_that_was_restarted_is_greeted_anew(programs: Path, tmp_path: Path) -> None:
    path, socket = Path(program(programs, "everything")), tmp_path / "mcp.sock"

    async def use() -> None:
        async with loopback(socket) as address:
            with running(path, "streamableHttp", env={"PORT": str(socket)}) as lines:
                _wait_until_listening(lines)
                server = McpServer.http(f"{address}/mcp", connect_timeout_ms=CONNECT)
                await server.__aenter__()
            socket.unlink(missing_ok=True)
            with running(path, "streamableHttp", env={"PORT": str(socket)}) as lines:
                _wait_until_listening(lines)
                (echo,) = await results_of(server.tools, Call("echo", {"message": "anew"}))
                assert text_of(echo) == "Echo: anew"
                await server.__aexit__(None, None, None)

    run(use)


# ---------------------------------------------------------------- filesystem


@asynccontextmanager
async def filesystem(programs: Path, folder: Path) -> AsyncIterator[McpServer]:
    path = program(programs, "filesystem")
    async with McpServer.stdio("node", path, str(folder), connect_timeout_ms=CONNECT) as server:
        assert server.problems == ()
        yield server


def test_files_are_written_edited_and_read_back(programs: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "note.txt")
    edit = {"oldText": "two", "newText": "zwei €"}

    async def use() -> None:
        async with filesystem(programs, tmp_path) as server:
            for call in (
                Call("write_file", {"path": path, "content": "one\ntwo\n"}),
                Call("edit_file", {"path": path, "edits": [edit]}),
            ):
                (done,) = await results_of(server.tools, call)
                assert not done.is_error, text_of(done)
            read, refused, missing = await results_of(
                server.tools,
                Call("read_text_file", {"path": path}),
                Call("read_text_file", {"path": "/etc/hostname"}),
                Call("read_text_file", {"path": str(tmp_path / "none.txt")}),
            )
        assert text_of(read).count("zwei €") == 1, "the model is told the same twice"
        assert refused.is_error
        assert "outside allowed directories" in text_of(refused)
        assert missing.is_error

    run(use)
    assert Path(path).read_text(encoding="utf-8") == "one\nzwei €\n"


def test_a_picture_is_a_picture_and_not_base64_besides(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "pixel.png").write_bytes(PIXEL)

    async def use() -> None:
        async with filesystem(programs, tmp_path) as server:
            (read,) = await results_of(server.tools, Call("read_media_file", {"path": str(tmp_path / "pixel.png")}))
        (image,) = images_of(read)
        assert (image.mime_type, image.data) == ("image/png", PIXEL)
        assert re.search("[A-Za-z0-9+/]{40}", text_of(read)) is None

    run(use)


def test_a_file_of_megabytes_comes_through_one_line(programs: Path, tmp_path: Path) -> None:
    line = "0123456789abcdef é\n"
    (tmp_path / "large.txt").write_text(line * 200_000, encoding="utf-8")

    async def use() -> None:
        async with filesystem(programs, tmp_path) as server:
            tools = {tool.name: tool for tool in server.tools}
            arguments = {"path": str(tmp_path / "large.txt")}
            said = await tools["read_text_file"].execute(arguments, ToolContext(tool_name="read_text_file"))
            assert repr(said).count("0123456789abcdef é") == 200_000

    run(use)


# ---------------------------------------------------------------- memory


def test_what_one_process_of_the_memory_server_keeps_another_tells(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}

    async def ask(*calls: Call) -> list[ToolResult]:
        path = program(programs, "memory")
        env = {"MEMORY_FILE_PATH": str(file)}
        async with McpServer.stdio("node", path, env=env, connect_timeout_ms=CONNECT) as server:
            return await results_of(server.tools, *calls)

    async def use() -> None:
        await ask(Call("create_entities", {"entities": [ada]}))
        (found,) = await ask(Call("search_nodes", {"query": "programs"}))
        graph = json.loads(text_of(found))
        assert [entity["name"] for entity in graph["entities"]] == ["Ada"]

    run(use)
