"""Several calls at once: their order, limits and callbacks, and that nothing is left when they are cancelled."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import ErrorCode
from dragoman.history import (
    HistoryToolCallResult,
)
from dragoman.tools import (
    ReadyCall,
    ToolContext,
    ToolDefinition,
    ToolExecutor,
    ToolRegistry,
)
from tests.tool_cases import (
    definition,
    nothing_left,
    ready,
    returning,
    returning_async,
)


class Trace:
    """Tools that tell when they begin and end, and wait to be let go on; callbacks that tell when they are called."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.changed = asyncio.Condition()
        self.calling_back = 0

    async def note(self, event: str) -> None:
        async with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    async def until(self, *events: str) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: set(events) <= set(self.events))

    def gate(self, call_id: str) -> asyncio.Event:
        return self.gates.setdefault(call_id, asyncio.Event())

    def tool(self, name: str, **settings: Any) -> ToolDefinition:
        async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
            await self.note(f"begin {context.tool_call_id}")
            await self.gate(context.tool_call_id).wait()
            await self.note(f"end {context.tool_call_id}")
            return f"result of {context.tool_call_id}"

        return definition(name, execute, **settings)

    async def on_started(self, prepared: ReadyCall) -> None:
        await self._call_back(f"started {prepared.call.tool_call_id}")

    async def on_finished(self, prepared: ReadyCall, result: HistoryToolCallResult) -> None:
        assert prepared.call.tool_call_id == result.tool_call_id
        await self._call_back(f"finished {result.tool_call_id}")

    async def _call_back(self, event: str) -> None:
        self.calling_back += 1
        assert self.calling_back == 1, "callbacks never overlap"
        for _ in range(3):
            await asyncio.sleep(0)
        await self.note(event)
        self.calling_back -= 1


def context_of(prepared: ReadyCall) -> ToolContext[Any]:
    return ToolContext(tool_call_id=prepared.call.tool_call_id, tool_name=prepared.call.tool_name)


def start(
    trace: Trace, executor: ToolExecutor, names: Sequence[str], **callbacks: Any
) -> asyncio.Task[list[HistoryToolCallResult]]:
    calls = [ready(executor, name, call_id=f"c{place}") for place, name in enumerate(names)]
    callbacks = {"on_started": trace.on_started, "on_finished": trace.on_finished} | callbacks
    return asyncio.create_task(executor.run_all(calls, context_of, **callbacks))


def test_results_come_in_call_order_whatever_the_order_in_which_tools_end() -> None:
    async def main() -> None:
        trace = Trace()
        running = start(trace, ToolExecutor(ToolRegistry([trace.tool("a")])), ["a", "a", "a"])
        await trace.until("begin c0", "begin c1", "begin c2")
        for call_id in ("c2", "c0", "c1"):
            trace.gate(call_id).set()
            await trace.until(f"finished {call_id}")
        results = await running
        assert [result.text() for result in results] == [f"result of c{place}" for place in range(3)]
        assert [event for event in trace.events if event.startswith("finished")] == [
            "finished c2",
            "finished c0",
            "finished c1",
        ]

    asyncio.run(nothing_left(main()))


def test_a_tool_begins_only_after_its_start_has_been_recorded() -> None:
    async def main() -> list[str]:
        trace = Trace()
        running = start(trace, ToolExecutor(ToolRegistry([trace.tool("a")])), ["a"] * 5)
        for place in range(5):
            trace.gate(f"c{place}").set()
        await running
        return trace.events

    events = asyncio.run(nothing_left(main()))
    for place in range(5):
        order = [events.index(f"{word} c{place}") for word in ("started", "begin", "end", "finished")]
        assert order == sorted(order)


def test_a_result_does_not_wait_until_all_others_have_started() -> None:
    async def main() -> list[str]:
        trace = Trace()
        trace.gate("c0").set()
        running = start(trace, ToolExecutor(ToolRegistry([trace.tool("a")])), ["a"] * 5)
        await trace.until("begin c4")
        for place in range(5):
            trace.gate(f"c{place}").set()
        await running
        return trace.events

    events = asyncio.run(nothing_left(main()))
    assert events.index("finished c0") < events.index("started c2")


def test_no_more_run_at_once_than_the_limit_allows() -> None:
    running = most = 0

    async def count(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    async def main() -> list[HistoryToolCallResult]:
        executor = ToolExecutor(ToolRegistry([definition("count", count)]), parallel_limit=3)
        calls = [ready(executor, "count", call_id=f"c{place}") for place in range(40)]
        return await executor.run_all(calls, context_of)

    assert len(asyncio.run(nothing_left(main()))) == 40
    assert most == 3


def test_calls_of_one_class_run_one_at_a_time_in_call_order_beside_the_others() -> None:
    async def main() -> list[str]:
        trace = Trace()
        tools = [trace.tool("read", concurrency="disk"), trace.tool("write", concurrency="disk"), trace.tool("free")]
        running = start(trace, ToolExecutor(ToolRegistry(tools)), ["write", "read", "free", "write"])
        await trace.until("begin c0", "begin c2")
        assert "begin c1" not in trace.events
        trace.gate("c2").set()
        await trace.until("finished c2")
        assert "begin c1" not in trace.events
        for place in range(4):
            trace.gate(f"c{place}").set()
        await running
        return [event for event in trace.events if event[-2:] != "c2" and event[:3] in ("beg", "end")]

    events = asyncio.run(nothing_left(main()))
    assert events == ["begin c0", "end c0", "begin c1", "end c1", "begin c3", "end c3"]


def test_a_waiting_class_does_not_take_the_places_of_others() -> None:
    async def main() -> None:
        trace = Trace()
        tools = [trace.tool("one", concurrency="only"), trace.tool("free")]
        executor = ToolExecutor(ToolRegistry(tools), parallel_limit=2)
        running = start(trace, executor, ["one", "one", "one", "free"])
        await trace.until("begin c0", "begin c3")
        for place in range(4):
            trace.gate(f"c{place}").set()
        assert len(await running) == 4

    asyncio.run(nothing_left(main()))


def test_a_thousand_calls_at_once_have_a_thousand_results() -> None:
    made = [
        definition("plain", lambda arguments, context: context.tool_call_id),
        returning_async("x", "async", concurrency="one"),
        returning(ValueError("x"), "fails"),
        returning(object(), "junk"),
    ]
    executor = ToolExecutor(ToolRegistry(made), parallel_limit=50)
    names = [made[place % 4].name for place in range(1_000)]
    calls = [ready(executor, name, call_id=f"c{place}") for place, name in enumerate(names)]
    finished: list[str] = []

    async def on_finished(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
        finished.append(result.tool_call_id)

    results = asyncio.run(nothing_left(executor.run_all(calls, context_of, on_finished=on_finished)))
    assert [result.tool_call_id for result in results] == [f"c{place}" for place in range(1_000)]
    assert sorted(finished) == sorted(result.tool_call_id for result in results)
    assert [result.error_code for result in results[:4]] == [None, None, ErrorCode.TOOL_FAILED, ErrorCode.TOOL_FAILED]


def test_no_calls_have_no_results() -> None:
    assert asyncio.run(ToolExecutor(ToolRegistry()).run_all([], context_of)) == []


@pytest.mark.parametrize("which", ["on_started", "on_finished", "make_context"])
def test_a_callback_that_raises_stops_the_others_and_propagates(which: str) -> None:
    async def main() -> list[str]:
        trace = Trace()
        executor = ToolExecutor(ToolRegistry([trace.tool("a")]))
        calls = [ready(executor, "a", call_id=f"c{place}") for place in range(3)]
        trace.gate("c1").set()

        async def broken(prepared: ReadyCall, *rest: Any) -> None:
            if prepared.call.tool_call_id == "c1":
                raise RuntimeError("the store is full")

        def context(prepared: ReadyCall) -> ToolContext[Any]:
            if which == "make_context" and prepared.call.tool_call_id == "c1":
                raise RuntimeError("the store is full")
            return context_of(prepared)

        callbacks: dict[str, Any] = {} if which == "make_context" else {which: broken}
        with pytest.raises(RuntimeError, match="the store is full"):
            await executor.run_all(calls, context, **callbacks)
        return trace.events

    events = asyncio.run(nothing_left(main()))
    assert "end c0" not in events


def test_cancelled_it_stops_what_runs_and_tells_what_has_come_in() -> None:
    async def main() -> list[str]:
        trace = Trace()
        running = start(trace, ToolExecutor(ToolRegistry([trace.tool("a")]), parallel_limit=3), ["a"] * 5)
        await trace.until("begin c0", "begin c1", "begin c2")
        trace.gate("c1").set()
        await trace.until("end c1")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return trace.events

    events = asyncio.run(nothing_left(main()))
    assert "finished c1" in events
    assert "finished c0" not in events
    assert "end c0" not in events
    assert not any(event.endswith("c4") for event in events)


@pytest.mark.parametrize("steps", range(12))
def test_cancelled_at_any_step_a_tool_that_ended_is_told_and_no_callback_is_cut_off(steps: int) -> None:
    async def main() -> None:
        events: list[str] = []

        async def quick(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
            events.append(f"end {context.tool_call_id}")
            return "x"

        async def on_started(prepared: ReadyCall) -> None:
            events.append("begin callback")
            await asyncio.sleep(0)
            events.append("end callback")

        async def on_finished(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
            events.append("begin callback")
            await asyncio.sleep(0)
            events.append("end callback")
            events.append(f"finished {result.tool_call_id}")

        executor = ToolExecutor(ToolRegistry([definition("quick", quick)]))
        calls = [ready(executor, "quick", call_id=f"c{place}") for place in range(3)]
        running = asyncio.create_task(
            executor.run_all(calls, context_of, on_started=on_started, on_finished=on_finished)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            pass
        ended = {event.split()[1] for event in events if event.startswith("end c") and event != "end callback"}
        told = {event.split()[1] for event in events if event.startswith("finished")}
        assert ended == told
        assert events.count("begin callback") == events.count("end callback")

    asyncio.run(nothing_left(main()))


def test_a_result_that_a_tool_gave_although_it_was_cancelled_is_told() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        started = asyncio.Event()

        async def careful(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "it was done already"
            return ""

        async def on_finished(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()  # timeouts in a callback would mistake it for one of their own
            told.append(result.text())

        executor = ToolExecutor(ToolRegistry([definition("careful", careful)]))
        running = asyncio.create_task(
            executor.run_all([ready(executor, "careful")], context_of, on_finished=on_finished)
        )
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return told

    assert asyncio.run(nothing_left(main())) == ["it was done already"]


@pytest.mark.parametrize("steps", range(4))
def test_a_result_that_comes_in_while_the_cancellation_is_on_its_way_is_told(steps: int) -> None:
    async def main() -> list[str]:
        told: list[str] = []
        batches: list[asyncio.Task[Any]] = []

        async def last_words(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
            batches[0].cancel()
            for _ in range(steps):
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    break
            return "done"

        async def on_finished(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
            told.append(result.text())

        executor = ToolExecutor(ToolRegistry([definition("last", last_words)]))
        calls = [ready(executor, "last")]
        batches.append(asyncio.create_task(executor.run_all(calls, context_of, on_finished=on_finished)))
        with pytest.raises(asyncio.CancelledError):
            await batches[0]
        return told

    assert asyncio.run(nothing_left(main())) == ["done"]


@pytest.mark.parametrize("tools_first", [False, True])
def test_whoever_cancels_every_task_ends_all_of_them(tools_first: bool) -> None:
    async def main() -> None:
        trace = Trace()
        running = start(trace, ToolExecutor(ToolRegistry([trace.tool("a")])), ["a", "a"])
        await trace.until("begin c0", "begin c1")
        others = asyncio.all_tasks() - {asyncio.current_task(), running}
        for task in sorted(others, key=asyncio.Task.get_name, reverse=tools_first):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(nothing_left(main()))


def test_a_callback_is_waited_for_however_often_the_batch_is_cancelled() -> None:
    async def main() -> list[str]:
        events: list[str] = []
        inside, opened = asyncio.Event(), asyncio.Event()

        async def on_started(prepared: ReadyCall) -> None:
            inside.set()
            await opened.wait()
            events.append("recorded")

        executor = ToolExecutor(ToolRegistry([returning_async("x")]))
        running = asyncio.create_task(executor.run_all([ready(executor, "give")], context_of, on_started=on_started))
        await inside.wait()
        for _ in range(5):
            running.cancel()
            await asyncio.sleep(0)
        assert not running.done()
        opened.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        return events

    assert asyncio.run(nothing_left(main())) == ["recorded"]


def test_a_callback_that_fails_while_it_is_cancelled_does_not_hide_the_cancellation() -> None:
    async def main() -> BaseException | None:
        trace = Trace()

        async def broken(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
            await trace.note("told")
            raise RuntimeError("the store is full")

        executor = ToolExecutor(ToolRegistry([trace.tool("a")]))
        running = start(trace, executor, ["a", "a"], on_finished=broken)
        await trace.until("begin c0", "begin c1")
        trace.gate("c0").set()
        await trace.until("end c0")
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await running
        return caught.value

    assert isinstance(asyncio.run(nothing_left(main())), asyncio.CancelledError)


def test_two_batches_run_side_by_side() -> None:
    async def main() -> list[list[HistoryToolCallResult]]:
        executor = ToolExecutor(ToolRegistry([returning_async("x"), returning("y", "plain")]))
        calls = [ready(executor, name, call_id=f"c{place}") for place, name in enumerate(["give", "plain"] * 10)]
        return list(await asyncio.gather(*(executor.run_all(calls, context_of) for _ in range(5))))

    for results in asyncio.run(nothing_left(main())):
        assert [result.text() for result in results] == ["x", "y"] * 10


@pytest.mark.parametrize("kind", ["a thread", "a slow finally"])
def test_a_class_is_held_until_a_tool_that_timed_out_has_really_ended(kind: str) -> None:
    async def main() -> list[str]:
        events: list[str] = []
        left, left_thread = asyncio.Event(), threading.Event()

        def in_thread(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
            events.append("first begins")
            left_thread.wait(60)
            events.append("first ends")

        async def in_task(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
            events.append("first begins")
            try:
                await asyncio.Event().wait()
            finally:
                await left.wait()
                events.append("first ends")

        async def second(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
            events.append("second")
            return "done"

        async def let_go() -> None:
            for _ in range(100):  # far more turns of the event loop than the second tool needs to begin
                await asyncio.sleep(0)
            left.set()
            left_thread.set()

        async def on_finished(prepared: ReadyCall, result: HistoryToolCallResult) -> None:
            if prepared.call.tool_name == "first":
                letting_go.append(asyncio.create_task(let_go()))

        letting_go: list[asyncio.Task[None]] = []
        tools = [
            definition("first", in_thread if kind == "a thread" else in_task, concurrency="db", timeout_ms=1),
            definition("second", second, concurrency="db"),
        ]
        executor = ToolExecutor(ToolRegistry(tools), grace_ms=1)
        results = await start(Trace(), executor, ["first", "second"], on_started=None, on_finished=on_finished)
        assert [result.error_code for result in results] == [ErrorCode.TOOL_TIMEOUT, None]
        await asyncio.gather(*letting_go)
        return events

    assert asyncio.run(nothing_left(main())) == ["first begins", "first ends", "second"]


def test_a_call_whose_class_does_not_become_free_in_time_is_not_run_and_others_are() -> None:
    left = threading.Event()

    def hang(arguments: dict[str, Any], context: ToolContext[Any]) -> None:
        left.wait(60)

    async def main() -> None:
        trace = Trace()
        tools = [
            definition("hang", hang, concurrency="db", timeout_ms=1),
            returning("never", "next", concurrency="db", timeout_ms=1),
            returning("here", "other"),
        ]
        executor = ToolExecutor(ToolRegistry(tools), grace_ms=1)
        _, blocked, other = await start(trace, executor, ["hang", "next", "other"])
        assert (blocked.error_code, other.text()) == (ErrorCode.TOOL_INTERRUPTED, "here")
        assert blocked.text() == (
            "next was not run: another tool of its concurrency class 'db' has not ended for 0.001 seconds "
            "and may still be running. Call it again later."
        )
        assert "started c1" not in trace.events
        left.set()
        (again,) = await start(trace, ToolExecutor(ToolRegistry(tools)), ["other"])
        assert again.text() == "here"

    asyncio.run(nothing_left(main()))
