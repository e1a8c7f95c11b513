"""MCP servers over stdio, real processes all: their tools, results, failures, ends, and what they are told of us."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dragoman import AgentStatus, ErrorCode, Image, InvalidValue, MissingExtra, ToolError, ToolResult
from dragoman.agent import Agent
from dragoman.history import HistoryToolCallResult, ToolExecutionStatus
from dragoman.testing.scripted import Call, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import ToolContext
from dragoman.tools.mcp import McpServer
from tests.mcp_cases import OFFICIAL, PLAIN, TOKEN, Reports, call, plain, run, say, text_of
from tests.mcp_official_server import PNG


def time_server(**options: Any) -> McpServer:
    return McpServer.stdio(sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC", name="time", **options)


# ---------------------------------------------------------------- a real server, and an agent


def test_an_agent_asks_a_real_server_for_the_time() -> None:
    def tell(request: ScriptedRequest) -> str:
        (result,) = request.messages[-1].parts
        assert isinstance(result, ToolResult)
        assert isinstance(result.content, str)
        return str(json.loads(result.content)["datetime"])

    async def work() -> None:
        asks = Turn(calls=(Call("get_current_time", {"timezone": "Asia/Tokyo"}),))
        async with time_server() as server:
            model = ScriptedModel(asks, tell)
            result = await Agent(model, tools=[*server.tools]).run("How late is it in Tokyo?")
        assert result.status is AgentStatus.COMPLETED
        assert result.output is not None
        said = datetime.fromisoformat(result.output)
        assert said.utcoffset() == timedelta(hours=9)
        assert abs(datetime.now(UTC) - said) < timedelta(days=1)
        assert [spec.name for spec in model.requests[0].tools][:2] == ["get_current_time", "convert_time"]

    run(work())


def test_a_real_server_says_what_it_does_and_that_it_may_be_asked_twice() -> None:
    async def work() -> None:
        async with time_server(prefix="time_", include=["get_current_time"]) as server:
            (tool,) = server.tools
            assert (tool.name, tool.idempotent) == ("time_get_current_time", True)
            assert tool.description == "Get current time in a specific timezone"
            assert tool.parameter_schema["required"] == ["timezone"]
            refused = await call(server, "time_get_current_time", timezone="Nowhere")
            assert (refused.status, refused.error_code) == (ToolExecutionStatus.FAILED, ErrorCode.TOOL_FAILED)
            assert "No time zone found with key Nowhere" in text_of(refused)
            assert server.problems == ()

    run(work())


# ---------------------------------------------------------------- results, of the official package


@pytest.fixture(scope="module")
def answers() -> dict[str, HistoryToolCallResult]:
    """What the tools of the official server answer, and `grown`, which it has only after `grow`."""

    async def work() -> dict[str, HistoryToolCallResult]:
        changed = asyncio.Event()
        server = McpServer.stdio(sys.executable, OFFICIAL, on_tools_changed=lambda _server: changed.set())
        async with server:
            answers = {
                "add": await call(server, "add", a=1, b=2),
                "weather": await call(server, "weather", city="Rome"),
            }
            for name in ("names", "picture", "gallery", "bare", "broken", "grow"):
                answers[name] = await call(server, name)
            await changed.wait()
            answers["grown"] = await call(server, "grown")
            return answers

    return run(work())


def test_a_structured_result_that_is_also_text_is_told_once(answers: dict[str, HistoryToolCallResult]) -> None:
    assert text_of(answers["add"]) == "3"
    assert json.loads(text_of(answers["weather"])) == {"city": "Rome", "celsius": 9.5}
    assert text_of(answers["names"]) == "Ada\n\nGrace"


def test_a_structured_result_without_text_is_told_as_json(answers: dict[str, HistoryToolCallResult]) -> None:
    assert text_of(answers["bare"]) == '{"rows":[1,2]}'


def test_a_picture_is_an_attachment(answers: dict[str, HistoryToolCallResult]) -> None:
    assert answers["picture"].attachments == (Image("image/png", PNG),)


def test_every_kind_of_content_is_shown_or_described(answers: dict[str, HistoryToolCallResult]) -> None:
    assert text_of(answers["gallery"]).split("\n\n") == [
        "Look:",
        "[a picture, image/png: it could not be read]",
        "[audio, audio/wav, 12 bytes: not shown]",
        "memo://1\nA memo.",
        "[a resource: file://a.pdf, application/pdf, 6 bytes: not shown]",
        "[a resource: memo://2 (the other memo, text/plain)]",
        '# Structured result\n{"count":8}',
    ]
    assert answers["gallery"].attachments == (Image("image/png", PNG), Image("image/png", PNG))


def test_a_failure_that_the_tool_reports_is_told_in_its_words(answers: dict[str, HistoryToolCallResult]) -> None:
    assert answers["broken"].error_code is ErrorCode.TOOL_FAILED
    assert text_of(answers["broken"]).endswith("the gears are stuck")


def test_a_tool_that_came_later_can_be_called(answers: dict[str, HistoryToolCallResult]) -> None:
    assert text_of(answers["grown"]) == "new"


# ---------------------------------------------------------------- calls


def test_many_calls_share_a_session() -> None:
    async def work() -> None:
        async with plain() as server:
            texts = [f"text {number}" for number in range(100)]
            assert await asyncio.gather(*(say(server, "echo", text=text) for text in texts)) == texts

    run(work())


def test_a_refused_call_is_told_with_the_words_of_the_server() -> None:
    async def work() -> None:
        async with plain(name="shop") as server:
            result = await call(server, "refuse")
            assert result.error_code is ErrorCode.TOOL_FAILED
            assert text_of(result) == (
                "refuse: MCP server 'shop' refused the call (code -32000): refuse is not for sale"
            )
            assert await say(server, "echo", text="still here") == "still here"

    run(work())


def test_a_result_that_is_none_is_an_error_and_the_session_goes_on() -> None:
    async def work() -> None:
        async with plain() as server:
            pid = await say(server, "pid")
            result = await call(server, "junk")
            assert "something that is no result; the call may or may not have taken effect" in text_of(result)
            assert await say(server, "pid") == pid

    run(work())


def test_a_cancelled_call_is_cancelled_at_the_server_and_the_session_goes_on() -> None:
    async def work() -> None:
        async with Reports.listening() as reports, plain(*reports.option) as server:
            pid = await say(server, "pid")
            hanging = asyncio.create_task(call(server, "hang"))
            assert await reports.next() == "hanging"
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            assert await reports.next() == "cancelled"
            assert await say(server, "pid") == pid

    run(work())


def test_a_call_that_takes_too_long_is_cancelled_at_the_server() -> None:
    async def work() -> None:
        async with Reports.listening() as reports, plain(*reports.option, timeout_ms=300) as server:
            result = await call(server, "hang")
            assert result.error_code is ErrorCode.TOOL_TIMEOUT
            assert [await reports.next(), await reports.next()] == ["hanging", "cancelled"]
            assert await say(server, "echo", text="on time") == "on time"

    run(work())


# ---------------------------------------------------------------- a server that ends


def test_a_call_under_way_when_the_server_dies_fails_and_the_next_one_starts_it_again() -> None:
    async def work() -> None:
        async with plain(name="mortal") as server:
            pid = await say(server, "pid")
            result = await call(server, "die")
            assert result.error_code is ErrorCode.TOOL_FAILED
            assert text_of(result) == (
                "die: MCP server 'mortal' ended before it answered: the call may or may not have taken effect"
            )
            assert await say(server, "pid") != pid

    run(work())


def test_every_call_under_way_when_the_server_dies_fails() -> None:
    async def work() -> None:
        async with Reports.listening() as reports, plain(*reports.option) as server:
            hanging = asyncio.create_task(call(server, "hang"))
            assert await reports.next() == "hanging"
            results = await asyncio.gather(hanging, call(server, "die"))
            assert all("may or may not have taken effect" in text_of(result) for result in results)

    run(work())


def test_an_idempotent_call_is_made_again_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with plain() as server:
            assert await say(server, "die_once", path=str(tmp_path / "died")) == "alive again"
            assert "may or may not have taken effect" in text_of(await call(server, "die_always"))

    run(work())


def test_a_server_that_was_killed_between_calls_is_started_again() -> None:
    async def work() -> None:
        async with plain() as server:
            os.kill(int(await say(server, "pid")), signal.SIGKILL)
            assert await say(server, "echo", text="here") == "here"

    run(work())


def test_a_server_that_cannot_be_started_again_is_given_up(tmp_path: Path) -> None:
    program, source = tmp_path / "server.py", Path(PLAIN).read_bytes()
    program.write_bytes(source)

    async def work() -> None:
        async with McpServer.stdio(sys.executable, str(program), name="gone") as server:
            program.unlink()
            await call(server, "die")
            result = await call(server, "echo", text="anybody there?")
            assert text_of(result) == "MCP server 'gone' ended before it was ready"
            program.write_bytes(source)
            assert await say(server, "echo", text="back") == "back"

    run(work())


def test_a_server_that_ends_when_it_is_not_greeted_the_old_way_is_greeted_that_way() -> None:
    async def work() -> None:
        async with plain("--only-initialize") as server:
            assert await say(server, "echo", text="well met") == "well met"

    run(work())


# ---------------------------------------------------------------- opening and closing


def test_the_process_ends_with_its_block_and_calls_are_refused_after_it() -> None:
    async def work() -> None:
        async with Reports.listening() as reports:
            async with plain(*reports.option, name="short") as server:
                hanging = asyncio.create_task(call(server, "hang"))
                assert await reports.next() == "hanging"
            assert await reports.next() is None
            assert "may or may not have taken effect" in text_of(await hanging)
            assert text_of(await call(server, "echo", text="hello?")) == "echo: MCP server 'short' is closed"
            async with server:
                assert await say(server, "echo", text="again") == "again"

    run(work())


def test_whoever_is_cancelled_while_a_server_starts_leaves_no_process() -> None:
    async def work() -> None:
        async def enter(server: McpServer) -> None:
            async with server:
                raise AssertionError("it never becomes ready")

        async with Reports.listening() as reports:
            opening = asyncio.create_task(enter(plain("--mute", *reports.option)))
            await reports.connected.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert await reports.next() is None

    run(work())


def test_a_server_that_is_not_ready_in_time_is_an_error() -> None:
    async def work() -> None:
        with pytest.raises(ToolError, match=r"'slow' was not ready within 0\.5 seconds") as raised:
            async with plain("--mute", name="slow", connect_timeout_ms=500):
                pass
        assert raised.value.code is ErrorCode.TIMEOUT

    run(work())


def test_a_program_that_is_not_there_is_an_error() -> None:
    async def work() -> None:
        with pytest.raises(ToolError, match="'no-such-program' could not be started") as raised:
            async with McpServer.stdio("/nowhere/no-such-program", "--key", TOKEN):
                pass
        assert raised.value.code is ErrorCode.NOT_FOUND

    run(work())


def test_a_server_that_ends_at_once_says_why_beside_the_error() -> None:
    async def work() -> None:
        with pytest.raises(ToolError, match="ended before it was ready") as raised:
            async with plain("--broken", env={"TOKEN": TOKEN}):
                pass
        assert raised.value.code is ErrorCode.CONNECTION
        assert raised.value.provider_message == "the database is on fire [redacted]"

    run(work())


def test_a_server_is_used_in_the_loop_that_opened_it() -> None:
    async def work() -> None:
        async with plain() as server:
            results: list[HistoryToolCallResult] = []
            elsewhere = threading.Thread(target=lambda: results.append(run(call(server, "echo", text="hello"))))
            elsewhere.start()
            await asyncio.to_thread(elsewhere.join)
            assert "belongs to another event loop" in text_of(results[0])

    run(work())


def test_a_server_has_no_tools_before_it_is_open_and_opens_once() -> None:
    async def work() -> None:
        server = plain(name="early")
        with pytest.raises(InvalidValue, match="'early' has not been opened"):
            _ = server.tools
        async with server:
            with pytest.raises(InvalidValue, match="'early' is open already"):
                await server.__aenter__()

    run(work())


# ---------------------------------------------------------------- what a server is told, and what it may show


def test_a_process_gets_only_what_it_needs_to_start_and_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    monkeypatch.setenv("SOME_SETTING", TOKEN)
    monkeypatch.setenv("LANG", "C.UTF-8")

    async def work() -> dict[str, str]:
        async with plain(env={"GIVEN": "yes"}) as server:
            environment: dict[str, str] = json.loads(await say(server, "environment"))
            return environment

    environment = run(work())
    assert environment["GIVEN"] == "yes"
    assert environment["LANG"] == "C.UTF-8"
    assert TOKEN not in environment.values()
    usual = {
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "TMPDIR",
        "TZ",
    }
    assert set(environment) - usual <= {"GIVEN"}


def test_the_stderr_of_a_server_is_not_ours(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async def work() -> None:
        async with plain() as server:
            await call(server, "die")
        with (tmp_path / "errors").open("w") as errors:
            async with plain(stderr=errors) as server:
                await call(server, "die")

    run(work())
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "errors").read_text() == "it was the tool \n"


CHATTY = """
import asyncio, sys
from dragoman.tools import ToolContext
from dragoman.tools.mcp import McpServer

async def main():
    async with McpServer.stdio(sys.executable, sys.argv[1], "--chatty", include=["echo"]) as server:
        print((await server.tools[0].execute({"text": "hello"}, ToolContext())).content[0].value)

asyncio.run(main())
"""


def test_what_a_server_prints_between_its_messages_is_not_shown() -> None:
    command = [sys.executable, "-W", "error", "-c", CHATTY, PLAIN]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("hello\n", "")


def test_what_a_server_was_given_is_in_no_error_of_its(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with plain(env={"TOKEN": TOKEN}) as server:
            assert text_of(await call(server, "fail")) == "It failed. [redacted]"
            (die,) = [tool for tool in server.tools if tool.name == "die"]
            with pytest.raises(ToolError) as raised:
                await die.execute({}, ToolContext())
            assert raised.value.provider_message == "it was the tool [redacted]"
            assert TOKEN not in repr(server) + repr(server.tools)

    run(work())
    assert TOKEN not in caplog.text


# ---------------------------------------------------------------- mistakes of the caller


def test_a_missing_package_is_told_when_a_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dragoman\[mcp\]'"):
        plain()


def test_an_older_package_is_told_when_a_server_is_opened(tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("class ClientSession: ...")
    program = (
        "import asyncio; from dragoman import MissingExtra; from dragoman.tools.mcp import McpServer\n"
        "try: asyncio.run(McpServer.stdio('anything').__aenter__())\n"
        "except MissingExtra as error: print(error)"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("McpServer needs an optional package: pip install 'dragoman[mcp]'\n", "")


async def _async_policy(arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
    return True


@pytest.mark.parametrize(
    "options",
    [
        {"include": "echo"},
        {"exclude": [1]},
        {"timeout_ms": -1},
        {"connect_timeout_ms": 1.5},
        {"requires_approval": _async_policy},
        {"prefix": "a b "},
        {"prefix": 1},
        {"name": 1},
        {"env": {"KEY": 1}},
        {"env": {"A=B": "x"}},
        {"env": {"KEY": "a\0b"}},
    ],
)
def test_a_mistake_is_told_when_a_server_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        plain(**options)


@pytest.mark.parametrize("command", [("",), ("program", "a\0b"), (5,)])
def test_a_command_is_text(command: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidValue):
        McpServer.stdio(*command)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("half a pair", "\ufffd ok"),
        ("too deep", "nested too deeply to be read"),
        ("a list", "something that is no result; the call may or may not have taken effect"),
        ("no JSON", "something that is no result; the call may or may not have taken effect"),
    ],
)
def test_an_answer_that_cannot_be_read_ends_its_call_at_once(form: str, told: str) -> None:
    async def work() -> None:
        async with plain() as server:
            waiting = asyncio.ensure_future(call(server, "hang"))
            assert told in text_of(await call(server, "garble", form=form))
            assert not waiting.done()
            waiting.cancel()
            assert await say(server, "echo", text="still here") == "still here"

    run(work())
