"""The inspector over huge and hostile records: work that is shared and ends, answers that are bounded and say so."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dragoman import MemoryStore, start_session
from dragoman.errors import StoreError
from dragoman.history import (
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
    SteeringEntry,
    ToolResultsEntry,
)
from dragoman.message import Message, MessageMeta, Role, Text, ToolCall
from dragoman.review import review_cache
from dragoman.store import Session
from dragoman.web.inspector import comparing, reading, requestviews, sessions
from dragoman.web.inspector.cachereview import FIRST_CALLS, CacheReview, Fork
from dragoman.web.inspector.calls import MOST_CALLS, NEAR, list_calls, thin_calls
from dragoman.web.inspector.contextparts import describe_parts, read_context
from dragoman.web.inspector.entrydata import ROOM, entries_data
from dragoman.web.inspector.jobs import Abandoned, Check, Jobs, ServerStops
from dragoman.web.inspector.locks import SessionLocks
from dragoman.web.inspector.records import Records

from .inspector_cases import invocation_of
from .inspector_stage import TOKEN, Stage, staged

OPUS = invocation_of("anthropic:claude-opus-4-5")
GPT = invocation_of("openai:gpt-5.2")


def played(test: Callable[[Stage, MemoryStore], Awaitable[None]]) -> None:
    """Run a test with an inspector of an empty store."""

    async def run() -> None:
        store = MemoryStore()
        async with staged(store) as stage:
            await asyncio.wait_for(test(stage, store), 60)

    asyncio.run(run())


async def talk(store: MemoryStore, turns: int, session_id: str = "talk") -> Session:
    """A session of two models in turns."""
    session = await start_session(store, session_id, system_instruction="Be short.")
    for number in range(turns):
        invocation = OPUS if number // 3 % 2 else GPT
        await session.append_model_input(f"question {number} of a long talk")
        await session.append_model_output(Message.assistant(f"answer {number} to it", invocation=invocation))
    return session


# ---------------------------------------------------------------- jobs


def test_the_same_work_is_done_once_for_all_who_wait() -> None:
    async def run() -> None:
        jobs, begun, may_end = Jobs(), [], threading.Event()

        def work(check: Check) -> int:
            begun.append(1)
            may_end.wait(20)
            return 7

        waiting = [asyncio.ensure_future(jobs.do("same", work)) for _ in range(5)]
        await asyncio.sleep(0)
        may_end.set()
        assert await asyncio.gather(*waiting) == [7] * 5
        assert len(begun) == 1

    asyncio.run(run())


def test_at_most_two_pieces_of_work_run_at_a_time() -> None:
    async def run() -> None:
        jobs, lock = Jobs(), threading.Lock()
        running, most = 0, 0
        both = threading.Barrier(2)

        def work(check: Check) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            both.wait(20)
            with lock:
                running -= 1

        await asyncio.gather(*(jobs.do(number, work) for number in range(8)))
        assert most == 2

    asyncio.run(run())


def test_work_that_nobody_waits_for_is_given_up() -> None:
    async def run() -> None:
        jobs, begun, ended = Jobs(), threading.Event(), threading.Event()

        def work(check: Check) -> None:
            begun.set()
            try:
                while True:
                    check()
            except Abandoned:
                ended.set()
                raise

        first, second = (asyncio.ensure_future(jobs.do("same", work)) for _ in range(2))
        assert await asyncio.to_thread(begun.wait, 20)
        first.cancel()
        await asyncio.wait((first,))
        assert not ended.is_set()  # another one still waits
        second.cancel()
        assert await asyncio.to_thread(ended.wait, 20)

    asyncio.run(run())


def test_a_job_whose_browser_has_gone_is_given_up() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 2)
        begun, ended = threading.Event(), threading.Event()

        def endless(entries: Any, words: str, check: Check) -> None:
            begun.set()
            try:
                while True:
                    check()
            except Abandoned:
                ended.set()
                raise

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "find_hits", endless)
            asked = asyncio.ensure_future(stage.get("/api/s/talk/search", q="word"))
            assert await asyncio.to_thread(begun.wait, 20)
            asked.cancel()
            assert await asyncio.to_thread(ended.wait, 20)

    played(test)


def test_when_the_server_ends_all_work_ends_and_is_refused() -> None:
    async def run() -> None:
        jobs, begun = Jobs(), threading.Event()

        def work(check: Check) -> None:
            begun.set()
            while True:
                check()

        waiting = asyncio.ensure_future(jobs.do("long", work))
        assert await asyncio.to_thread(begun.wait, 20)
        jobs.stop()
        with pytest.raises(ServerStops):
            await waiting
        with pytest.raises(ServerStops):
            await jobs.do("other", work)

    asyncio.run(run())


# ---------------------------------------------------------------- entries


def with_calls(count: int) -> ModelOutputEntry:
    calls = tuple(ToolCall(f"call-{number}", "bash", {"command": f"echo {number}"}) for number in range(count))
    return ModelOutputEntry(Message(Role.ASSISTANT, calls, meta=MessageMeta(invocation=OPUS)))


def test_an_answer_of_20000_tool_calls_is_cut_and_says_how_many_were_left_out() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "many")
        await session.append_model_input("do a lot")
        entry = with_calls(20_000)
        await session.append(entry)
        results = [HistoryToolCallResult.of_text(call, "done") for call in entry.tool_calls]
        await session.append(ToolResultsEntry(tuple(results)))
        address = f"{stage.address}/api/s/many/entries"
        async with stage.client.get(address, params={"token": TOKEN, "from": 0, "count": 60}) as answer:
            assert len(await answer.read()) < 1_000_000
            loaded = (await answer.json())["entries"]
        parts = next(each for each in loaded if each["entry"]["kind"] == "model_output")["entry"]["payload"]["message"]
        (more,) = [each["$more"] for each in parts["parts"] if "$more" in each]
        assert more["left"] + len(parts["parts"]) - 1 == more["length"] == 20_000
        assert more["at"].endswith("/parts")

    played(test)


def test_small_entries_stay_whole_beside_a_large_one() -> None:
    small = [ModelInputEntry((Text(f"small {number}"),), serial=number) for number in range(50)]
    told = entries_data([*small, with_calls(20_000)], 6_000)
    assert all("$more" not in str(each) and "$cut" not in str(each) for each in told[:50])
    assert "$more" in str(told[50])


@pytest.mark.parametrize(("count", "most"), [(1, ROOM), (60, ROOM), (500, 3 * ROOM)])
def test_a_range_has_a_bounded_size_whatever_its_entries_hold(count: int, most: int) -> None:
    big = {"list": ["x" * 900] * 300, "deep": [[["y" * 50] * 20] * 20], **{f"key {n}": "z" * 99 for n in range(3_000)}}
    call = ToolCall("call", "bash", {"k" * 100_000: 1, **big})
    entry = ModelOutputEntry(Message(Role.ASSISTANT, (call,)))
    assert len(msgspec.json.encode(entries_data([entry] * count, 6_000))) < most


@pytest.mark.parametrize("mark", ["$cut", "$picture", "$bytes", "$more", "$$cut", "$$$more"])
@pytest.mark.parametrize("length", [1, 10_000])
def test_no_data_is_taken_for_a_mark(mark: str, length: int) -> None:
    given = {"command": {mark: {"head": 5}}, "other": "x" * length}
    entry = ModelOutputEntry(Message(Role.ASSISTANT, (ToolCall("call", "bash", given),)))
    (told,) = entries_data([entry], 6_000)
    arguments = _find(told["entry"], "arguments")
    assert arguments["command"] == {f"${mark}": {"head": 5}}
    assert isinstance(arguments["other"], str) is (length == 1)


def test_a_name_that_is_no_mark_stays_as_it_is() -> None:
    given = {"$ref": 1, "$schema": 2, "cut": 3, "a$cut": 4, "$cuts": 5}
    (told,) = entries_data([ModelOutputEntry(Message(Role.ASSISTANT, (ToolCall("call", "bash", given),)))], 6_000)
    assert _find(told["entry"], "arguments") == given


def _find(value: Any, name: str) -> Any:
    """The first value under a name, wherever it is."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        value = list(value.values())
    found = (_find(each, name) for each in value) if isinstance(value, list) else ()
    return next((each for each in found if each is not None), None)


# ---------------------------------------------------------------- erased


def test_what_was_erased_elsewhere_is_not_served_any_more() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 3)
        await stage.get("/api/s/talk/outline")
        await stage.get("/api/s/talk/entries", **{"from": 0, "count": 5})
        await store.erase("talk")
        for path in ("outline", "entries?from=0&count=5", "search?q=question", "calls", "calls/2", "cache", "summary"):
            name, _, query = path.partition("?")
            given = dict(pair.split("=") for pair in query.split("&") if pair)
            assert (await stage.status(f"/api/s/talk/{name}", **given))[0] == 404, path

    played(test)


@pytest.mark.parametrize("turns", [1, 3, 8])
def test_a_session_made_anew_under_the_same_id_is_read_anew(turns: int) -> None:
    class Renewed(MemoryStore):
        """A store whose session is another one from a moment on, as after erase and create."""

        now: MemoryStore

        async def head(self, session_id: str) -> Any:
            return await self.now.head(session_id)

        async def load(self, *given: Any, **named: Any) -> tuple[HistoryEntry, ...]:
            return await self.now.load(*given, **named)

    async def run() -> None:
        old, new, store = MemoryStore(), MemoryStore(), Renewed()
        await talk(old, 3)
        session = await start_session(new, "talk")
        for number in range(turns):
            await session.append_model_input(f"new {number}")
            await session.append_model_output(Message.assistant(f"new answer {number}", invocation=OPUS))
        records = Records(store)
        store.now = old
        before = await records.read("talk")
        store.now = new
        assert list(await records.load("talk", 0, 3)) == list(await new.load("talk", 0, until_serial=3))
        after = await records.read("talk")
        assert after is not before
        assert after.entries == list(session.entries)

    asyncio.run(run())


def test_a_record_that_grows_is_read_on_and_not_anew() -> None:
    async def run() -> None:
        store = MemoryStore()
        session, records = await talk(store, 3), Records(store)
        before = await records.read("talk")
        await session.append_model_input("one more")
        assert await records.read("talk") is before
        assert before.entries == list(session.entries)

    asyncio.run(run())


class GrowingStore(MemoryStore):
    """A store to whose session something is appended as soon as it has been checked."""

    session: Session

    async def verify(self, session_id: str, **options: Any) -> Any:
        report = await super().verify(session_id, **options)
        await self.session.append_model_input("not checked")
        return report


def test_what_is_appended_while_a_record_is_checked_is_not_called_sound() -> None:
    async def run() -> None:
        store = GrowingStore()
        store.session = await talk(store, 1)
        async with staged(store) as stage:
            assert (await stage.get("/api/s/talk/verify"))["isSound"]
            assert (await stage.get("/api/s/talk"))["verified"] is None

    asyncio.run(run())


class SlowHead(MemoryStore):
    """A store whose first head comes late: `let` lets it go. Counts what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.is_slow = False
        self.loaded = 0

    async def head(self, session_id: str) -> Any:
        head = await super().head(session_id)
        if self.is_slow:
            self.is_slow = False
            await self.let.wait()
        return head

    async def load(self, *given: Any, **named: Any) -> tuple[HistoryEntry, ...]:
        entries = await super().load(*given, **named)
        self.loaded += len(entries)
        return entries


def test_a_slow_reader_replaces_no_newer_record() -> None:
    async def run() -> None:
        store = SlowHead()
        session, records = await talk(store, 3), Records(store)
        known = await records.read("talk")
        store.is_slow, store.loaded = True, 0
        slow = asyncio.create_task(records.read("talk"))
        await asyncio.sleep(0)
        await session.append_model_input("one more")
        fast = asyncio.create_task(records.read("talk"))
        for _ in range(100):  # turns of the loop, in which the fast reader reads what it can
            await asyncio.sleep(0)
        store.let.set()
        assert [await slow, await fast] == [known, known]
        assert known.entries == list(session.entries)
        assert store.loaded == 1

    asyncio.run(run())


def test_a_session_that_is_not_there_leaves_nothing_in_memory() -> None:
    async def run() -> None:
        records, locks = Records(MemoryStore()), SessionLocks()
        for number in range(3):
            with pytest.raises(StoreError):
                await records.read(f"none {number}")
            async with locks[f"none {number}"]:
                assert len(locks) == 1
        assert len(locks) == 0

    asyncio.run(run())


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("number", ["9" * 5_000, "-1", "1.5", "1e3", "٣", "0x1", "9" * 17])
def test_a_number_that_is_none_is_refused_and_no_mistake_of_ours(number: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 2)
        for path, query in (
            ("request", {"at": number}),
            ("differences", {"a": number, "b": "2"}),
            ("differences", {"a": "2", "b": f"{number}@openai:gpt-5.2"}),
            ("entries", {"from": number}),
            ("entries", {"count": number}),
            ("entries", {"cut": number}),
            ("outline", {"from": number}),
            ("calls", {"around": number}),
            ("entries/1/text", {"at": f"/payload/parts/{number}"}),
            ("entries/1/text", {"at": "/payload/parts/0", "from": number}),
            ("entries/1/picture", {"at": f"/payload/parts/{number}/payload/data"}),
        ):
            status, body = await stage.status(f"/api/s/talk/{path}", **query)
            assert status == 400, (path, body)
            assert len(str(body)) < 1_000
        for name in ("from", "count"):
            assert (await stage.status("/api/sessions", **{name: number}))[0] == 400

    played(test)


# ---------------------------------------------------------------- sessions


def test_the_list_of_sessions_has_pages_by_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PAGE", 20)

    async def test(stage: Stage, store: MemoryStore) -> None:
        for number in range(50):
            session = await start_session(store, f"s{number:02}")
            await session.append_model_input(f"hello {number}")
        first = await stage.get("/api/sessions")
        assert (first["total"], first["found"], len(first["sessions"])) == (50, 50, 20)
        pages = [await stage.get("/api/sessions", **{"from": begin}) for begin in (0, 20, 40)]
        ids = [each["id"] for page in pages for each in page["sessions"]]
        assert ids == sorted(ids, reverse=True)
        assert len(set(ids)) == 50

    played(test)


def test_a_search_without_time_left_says_how_few_sessions_it_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SEARCH_SECONDS", -1.0)

    async def test(stage: Stage, store: MemoryStore) -> None:
        for number in range(20):
            session = await start_session(store, f"s{number:02}")
            await session.append_model_input("a needle")
        found = await stage.get("/api/sessions", q="needle")
        assert found["searched"] < 20
        by_id = await stage.get("/api/sessions", q="s07")  # ids need no time
        assert [each["id"] for each in by_id["sessions"]] == ["s07"]

    played(test)


# ---------------------------------------------------------------- calls, contexts, requests


def entries_of(turns: int) -> list[HistoryEntry]:
    async def run() -> list[HistoryEntry]:
        return list((await talk(MemoryStore(), turns)).entries)

    return asyncio.run(run())


def test_a_window_of_the_review_says_the_same_as_the_whole() -> None:
    entries = entries_of(15)
    whole = review_cache(entries, session_id="talk")
    for first, last in ((0, 15), (0, 1), (7, 9), (14, 15), (4, 15)):
        assert review_cache(entries, session_id="talk", among=range(first, last)) == whole[first:last]


def test_the_review_begins_with_the_newest_calls_and_goes_on_when_it_is_asked_again() -> None:
    entries, review = entries_of(15), CacheReview()
    whole = [call.serial for call in review_cache(entries, session_id="talk")]
    reviewed = 0
    while reviewed < 15:
        found = review.look(entries, session_id="talk", fork=Fork(), seconds=0)
        assert (found["total"], len(found["calls"])) == (15, found["reviewed"])
        assert found["reviewed"] == min(reviewed + FIRST_CALLS, 15)
        reviewed = found["reviewed"]
        assert [call["serial"] for call in found["calls"]] == whole[-reviewed:]


def test_any_call_can_be_reviewed_alone() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 15)
        entries = await store.load("talk")
        whole = review_cache(entries, session_id="talk")
        found = await stage.get("/api/s/talk/cache", around=whole[3].serial)
        assert [call["sentence"] for call in found["calls"]] == [whole[3].sentence]
        assert (await stage.get("/api/s/talk/cache", around=1))["calls"] == []
        every = await stage.get("/api/s/talk/cache")
        assert [call["serial"] for call in every["calls"]] == [call.serial for call in whole]

    played(test)


def test_what_a_person_says_meanwhile_does_not_shorten_an_answer() -> None:
    async def run() -> None:
        now = [datetime(2026, 1, 1, tzinfo=UTC)]
        session = await start_session(MemoryStore(), "talk", clock=lambda: now[0])
        await session.append(RunStartedEntry(run_id="r"), ModelInputEntry((Text("go"),), run_id="r"))
        for seconds, entry in (
            (9, SteeringEntry((Text("hurry"),))),
            (1, ModelOutputEntry(Message.assistant("done", invocation=OPUS), run_id="r")),
        ):
            now[0] += timedelta(seconds=seconds)
            await session.append(entry)
        (call,) = list_calls(session.entries)
        assert call.seconds == 10.0

    asyncio.run(run())


def test_very_many_calls_are_thinned_and_those_near_a_chosen_one_are_not() -> None:
    (call,) = list_calls(entries_of(1))
    calls = [msgspec.structs.replace(call, number=number + 1, serial=2 * number) for number in range(50_000)]
    thin = thin_calls(calls, around=40_000)
    assert len(thin) <= MOST_CALLS + 3 * NEAR
    assert thin[0] is calls[0]
    assert thin[-1] is calls[-1]
    assert {calls[20_000 + near].number for near in range(-NEAR, NEAR)} <= {each.number for each in thin}
    assert thin_calls(calls[:MOST_CALLS]) == calls[:MOST_CALLS]


def test_parts_that_are_left_out_are_summed_up_by_category() -> None:
    context = read_context(entries_of(20), OPUS)
    every, some = describe_parts(context), describe_parts(context, 6)
    assert len(some) < len(every)
    assert sum(part.tokens for part in some) == sum(part.tokens for part in every)
    assert sum(part.messages for part in some) == sum(part.messages for part in every)
    assert sum(part.count for part in some) == len(every)
    assert [part for part in some if part.count == 1][-6:] == every[-6:]


@pytest.mark.parametrize(("one", "other"), [("36", "38"), ("@openai:gpt-5.2", "@anthropic:claude-opus-4-5")])
def test_long_requests_are_compared_by_their_newest_rows(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 20)
        whole = await stage.get("/api/s/talk/differences", a=one, b=other)
        monkeypatch.setattr(comparing, "MOST_ROWS", 8)
        cut = await stage.get("/api/s/talk/differences", a=one, b=other)
        assert whole["leftOut"] == 0
        assert cut["leftOut"] > 0
        assert len(cut["rows"]) < len(whole["rows"])
        assert cut["rows"][-3:] == whole["rows"][-3:]
        assert cut["commonBytes"] == whole["commonBytes"]

    played(test)


def test_a_long_body_is_cut_and_its_command_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 4)
        whole = await stage.get("/api/s/talk/request", at="last")
        assert (whole["isCut"], whole["curlProblem"]) == (False, None)
        monkeypatch.setattr(requestviews, "LARGEST_SHOWN", 100)
        cut = await stage.get("/api/s/talk/request", at="last")
        assert whole["body"].startswith(cut["body"])
        assert len(cut["body"]) <= 100
        assert (cut["isCut"], cut["curl"], cut["bytes"]) == (True, None, whole["bytes"])
        assert "too long for a command line" in cut["curlProblem"]

    played(test)


def test_a_context_of_very_many_messages_is_told_without_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await talk(store, 20)
        monkeypatch.setattr(reading, "MOST_MESSAGES", 10)
        monkeypatch.setattr(reading, "MOST_PARTS", 4)
        found = await stage.get("/api/s/talk/calls/40")
        assert found["request"] is None
        assert "is not rendered here" in found["problem"]
        assert found["leftOut"] > 20

    played(test)
