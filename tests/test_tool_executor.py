"""One call: what is refused before it runs, where it runs, how long, and how it is cancelled."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from collections.abc import Awaitable
from datetime import date
from typing import Any

import msgspec
import pytest

from dragoman import ErrorCode, InvalidValue
from dragoman.history import (
    HistoryToolCallResult,
    ToolExecutionStatus,
)
from dragoman.tools import (
    ReadyCall,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    tool,
)
from tests.tool_cases import (
    CONTEXT,
    call,
    definition,
    nothing_left,
    ready,
    released,
    returning,
    run_one,
)

# ---------------------------------------------------------------- before a tool runs


@tool
def search(query: str, limit: int = 5) -> str:
    """Search."""
    return f"{query}/{limit}"


SEARCHING = ToolExecutor(ToolRegistry([search]))


def refusal(prepared: ReadyCall | HistoryToolCallResult) -> tuple[ErrorCode | None, str]:
    assert isinstance(prepared, HistoryToolCallResult)
    assert prepared.status is ToolExecutionStatus.FAILED
    return prepared.error_code, prepared.text()


def test_a_call_that_fits_is_ready() -> None:
    prepared = SEARCHING.prepare(call("search", {"query": "x"}))
    assert isinstance(prepared, ReadyCall)
    assert prepared.definition is search
    assert prepared.arguments == {"query": "x"}
    assert prepared.warnings == ()


def test_what_was_put_right_is_told() -> None:
    prepared = SEARCHING.prepare(call("search", {"query": "x", "limit": "3"}))
    assert isinstance(prepared, ReadyCall)
    assert prepared.arguments == {"query": "x", "limit": 3}
    assert prepared.warnings == ("limit: text was read as integer",)
    assert prepared.call.arguments == {"query": "x", "limit": "3"}, "what the model wrote stays as it is"


def test_an_unknown_tool_is_answered_with_the_names_that_there_are() -> None:
    code, text = refusal(SEARCHING.prepare(call("serach")))
    assert code is ErrorCode.UNKNOWN_TOOL
    assert text == "There is no tool 'serach'. Did you mean 'search'? There are: search."
    _, text = refusal(ToolExecutor(ToolRegistry()).prepare(call("x" * 5_000)))
    assert text == "There is no tool text of 5000 characters. There are: none."


def test_the_executor_has_its_registry() -> None:
    assert SEARCHING.registry.names == ("search",)


def test_of_many_tools_only_some_are_named() -> None:
    many = ToolExecutor(ToolRegistry(returning(None, f"tool_{number}") for number in range(100)))
    _, text = refusal(many.prepare(call("nothing")))
    assert "tool_29 and 70 more." in text


def test_arguments_that_did_not_parse_are_answered_with_the_reason() -> None:
    code, text = refusal(SEARCHING.prepare(call("search", '{"query": ')))
    assert code is ErrorCode.INVALID_ARGUMENTS
    assert text.startswith("The arguments of search could not be read: not readable as JSON:")
    assert text.endswith("Nothing was run. Call it again with arguments that fit its schema.")


def test_arguments_against_the_schema_are_answered_with_what_is_wrong() -> None:
    code, text = refusal(SEARCHING.prepare(call("search", {"limit": "many"})))
    assert code is ErrorCode.INVALID_ARGUMENTS
    assert text == (
        "The arguments of search do not fit:\n"
        "- query: is missing: give text\n"
        "- limit: must be a whole number, got 'many'\n"
        "Nothing was run. Call it again with arguments that fit its schema."
    )


def test_arguments_that_a_person_changed_take_the_place_of_the_calls_own() -> None:
    prepared = SEARCHING.prepare(call("search", {"query": "x"}), {"query": "y", "limit": 2})
    assert isinstance(prepared, ReadyCall)
    unlike = SEARCHING.prepare(call("search", {"query": "x"}), {"query": "y", "limit": "2"})
    assert isinstance(unlike, HistoryToolCallResult)  # only what a model wrote is converted
    assert prepared.arguments == {"query": "y", "limit": 2}
    broken = SEARCHING.prepare(call("search", "{"), {"query": "y"})
    assert isinstance(broken, ReadyCall)


@tool
def look(when: date, notes: dict[str, Any]) -> str:
    notes["seen"] = True
    return when.isoformat()


LOOKING = ToolExecutor(ToolRegistry([look]))


def test_arguments_that_only_their_types_refuse_are_answered_when_they_are_bound() -> None:
    prepared = LOOKING.prepare(call("look", {"when": "soon", "notes": {}}))
    assert isinstance(prepared, ReadyCall)
    refused = LOOKING.bind(prepared)
    assert isinstance(refused, HistoryToolCallResult)
    assert refusal(refused) == (
        ErrorCode.INVALID_ARGUMENTS,
        (
            "The arguments of look do not fit:\n"
            "- when: must be a date like 2026-01-31, got 'soon'\n"
            "Nothing was run. Call it again with arguments that fit its schema."
        ),
    )
    assert asyncio.run(LOOKING.run(prepared, CONTEXT)) == refused
    assert asyncio.run(LOOKING.run_all([prepared], lambda ready: CONTEXT)) == [refused]


def test_a_bound_call_stays_as_it_is_and_its_tool_changes_only_copies() -> None:
    prepared = ready(LOOKING, "look", {"when": "2026-01-31", "notes": {"a": [1]}})
    bound = LOOKING.bind(prepared)
    assert isinstance(bound, ReadyCall)
    assert LOOKING.bind(bound) is bound
    assert asyncio.run(LOOKING.run(bound, CONTEXT)).text() == "2026-01-31"
    assert prepared.arguments == {"when": "2026-01-31", "notes": {"a": [1]}}


def test_an_execute_that_a_caller_puts_around_a_functions_own_is_what_runs() -> None:
    def guarded(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        return f"guarded {arguments['query']}"

    made = msgspec.structs.replace(search, execute=guarded)
    assert run_one(made, {"query": "x"}).text() == "guarded x"


def test_a_schema_that_a_caller_puts_in_the_place_of_a_functions_own_does_not_loosen_its_types() -> None:
    loose = msgspec.structs.replace(search, parameter_schema={"type": "object"})
    result = run_one(loose, {"limit": 3})
    assert (result.error_code, result.text()) == (
        ErrorCode.INVALID_ARGUMENTS,
        (
            "The arguments of search do not fit:\n- query: is missing: give text\n"
            "Nothing was run. Call it again with arguments that fit its schema."
        ),
    )


@pytest.mark.parametrize("changed", [{"query": object()}, {"query": float("nan")}, {1: 2}, [1]])
def test_changed_arguments_that_are_no_json_are_refused(changed: Any) -> None:
    code, _ = refusal(SEARCHING.prepare(call("search", {"query": "x"}), changed))
    assert code is ErrorCode.INVALID_ARGUMENTS


def test_deep_and_huge_arguments_are_answered() -> None:
    anything = ToolExecutor(ToolRegistry([returning(None)]))
    deep: Any = 1
    for _ in range(10_000):
        deep = {"a": deep}
    code, _ = refusal(anything.prepare(call("give"), {"x": deep}))
    assert code is ErrorCode.INVALID_ARGUMENTS
    assert isinstance(anything.prepare(call("give"), {"x": "x" * 5_000_000}), ReadyCall)


@pytest.mark.parametrize(
    "settings",
    [
        {"parallel_limit": 0},
        {"parallel_limit": None},
        {"parallel_limit": True},
        {"timeout_ms": 0},
        {"timeout_ms": 1.5},
        {"grace_ms": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        ToolExecutor(ToolRegistry(), **settings)
    with pytest.raises(InvalidValue, match="registry"):
        ToolExecutor([search])  # type: ignore[arg-type]


# ---------------------------------------------------------------- tasks and threads


def test_a_sync_function_runs_in_a_daemon_thread_and_an_async_one_in_the_loop() -> None:
    seen: dict[str, Any] = {}

    def plain(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        seen["plain"] = threading.current_thread()

    async def coroutine(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        seen["async"] = threading.current_thread()

    run_one(definition("plain", plain))
    run_one(definition("coroutine", coroutine))
    assert seen["plain"] is not threading.main_thread()
    assert seen["plain"].daemon
    assert seen["plain"].name == "tool plain"
    assert seen["async"] is threading.main_thread()


def test_context_variables_reach_the_tool_and_do_not_come_back() -> None:
    variable = contextvars.ContextVar("variable", default="none")

    def plain(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        found = variable.get()
        variable.set("changed")
        return found

    async def coroutine(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        return plain(arguments, context)

    variable.set("outer")
    assert run_one(definition("plain", plain)).text() == "outer"
    assert run_one(definition("coroutine", coroutine)).text() == "outer"
    assert variable.get() == "outer"


def test_what_a_sync_function_returns_is_awaited_if_it_can_be() -> None:
    async def later() -> str:
        return "later"

    assert run_one(definition("give", lambda arguments, context: later())).text() == "later"


def test_a_tool_gets_its_context_and_arguments_of_its_own() -> None:
    def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        arguments["list"].append("mine")
        return context.tool_call_id

    made = definition("give", execute)
    executor = ToolExecutor(ToolRegistry([made]))
    prepared = ready(executor, "give", {"list": []})
    result = asyncio.run(executor.run(prepared, ToolContext(tool_call_id="c9")))
    assert result.text() == "c9"
    assert prepared.arguments == {"list": []}, "what is recorded stays as it was"
    assert prepared.call.arguments == {"list": []}


# ---------------------------------------------------------------- time


def test_a_thread_that_takes_too_long_is_left_and_the_model_is_told() -> None:
    with released() as event:
        hanging = definition("hang", lambda arguments, context: event.wait(), timeout_ms=20)
        result = run_one(hanging)
        assert result.error_code is ErrorCode.TOOL_TIMEOUT
        assert result.status is ToolExecutionStatus.FAILED
        assert result.text() == (
            "hang did not end within 0.02 seconds. It could not be stopped and may still be running: "
            "what it does may yet happen."
        )


def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    ended: list[str] = []

    async def hang(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    result = run_one(definition("hang", hang), timeout_ms=20)
    said = "hang did not end within 0.02 seconds. It was cancelled"
    assert result.text() == f"{said}: it may or may not have taken effect."
    assert run_one(definition("hang", hang, idempotent=True), timeout_ms=20).text() == f"{said}."
    assert result.error_code is ErrorCode.TOOL_TIMEOUT
    assert ended == ["cleaned up"] * 2


def test_the_tools_own_time_counts_before_the_executors() -> None:
    async def hang(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        await asyncio.Event().wait()

    result = run_one(definition("hang", hang, timeout_ms=10), timeout_ms=3_600_000)
    assert "within 0.01 seconds" in result.text()


def test_a_tool_that_swallows_its_cancellation_is_left_after_the_grace() -> None:
    async def main() -> str:
        release = asyncio.Event()
        ended = asyncio.Event()

        async def stubborn(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()

        executor = ToolExecutor(ToolRegistry([definition("stubborn", stubborn)]), timeout_ms=10, grace_ms=10)
        result = await executor.run(ready(executor, "stubborn"), CONTEXT)
        gc.collect()  # the task is still held, or asyncio would complain here
        release.set()
        await ended.wait()
        return result.text()

    assert "may still be running" in asyncio.run(nothing_left(main()))


def test_a_thread_that_never_ends_does_not_keep_the_interpreter_from_exiting() -> None:
    program = """
import asyncio, threading
from dragoman import ToolCall
from dragoman.tools import *

@tool
def hang() -> str:
    threading.Event().wait()
    return ""

async def main():
    executor = ToolExecutor(ToolRegistry([hang]), timeout_ms=20)
    call = ToolCall(tool_name="hang", tool_call_id="c", raw_args_text="{}", arguments={})
    print((await executor.run(executor.prepare(call), ToolContext())).error_code)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "tool_timeout\n"
    assert done.stderr == ""


def test_a_thread_that_ends_after_its_loop_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    async def never() -> None: ...

    threads: list[threading.Thread] = []
    with released() as event:

        def hang(arguments: dict[str, Any], context: ToolContext[Any]) -> Awaitable[None]:
            threads.append(threading.current_thread())
            event.wait()
            return never()

        run_one(definition("hang", lambda arguments, context: event.wait()), timeout_ms=20)
        late = definition("late", hang)

        async def main() -> None:
            executor = ToolExecutor(ToolRegistry([late]), timeout_ms=20)
            await executor.run(ready(executor, "late"), CONTEXT)
            event.set()
            await asyncio.to_thread(threads[0].join)
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

        asyncio.run(main())
    gc.collect()
    assert capfd.readouterr().err == ""


# ---------------------------------------------------------------- cancellation


def test_a_cancelled_run_cancels_its_tool_and_waits_for_it() -> None:
    ended: list[str] = []

    async def main() -> None:
        started = asyncio.Event()

        async def slow(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("cleaned up")

        executor = ToolExecutor(ToolRegistry([definition("slow", slow)]))
        task = asyncio.create_task(executor.run(ready(executor, "slow"), CONTEXT))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(nothing_left(main()))
    assert ended == ["cleaned up"]


def test_a_cancelled_run_does_not_wait_for_a_thread() -> None:
    with released() as event:

        async def main() -> None:
            loop = asyncio.get_running_loop()
            started = asyncio.Event()

            def hang(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
                loop.call_soon_threadsafe(started.set)
                event.wait()

            executor = ToolExecutor(ToolRegistry([definition("hang", hang)]))
            task = asyncio.create_task(executor.run(ready(executor, "hang"), CONTEXT))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(nothing_left(main()))
