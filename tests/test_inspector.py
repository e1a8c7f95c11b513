"""The endpoints of the inspector over real stores: what they give, whom they refuse, what they write."""

import asyncio
import json
import re
import sqlite3
from pathlib import Path

import aiohttp
import pytest

from dragoman import Agent, MemoryStore, SQLiteStore, start_session, tool
from dragoman.history import ModelInputEntry, ModelOutputEntry
from dragoman.message import Image, Message, ModelInvocationDescriptor, Text
from dragoman.models.recorded import FIRST_PIECE_KEY, REQUEST_KEY
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.web.inspector import session_html

from .conversations import PNG, needs_conversations
from .inspector_cases import HOSTILE, OPUS, break_entry, hostile, pay, recorded, replay, two_turns
from .inspector_stage import TOKEN, WRITES, Stage, played, staged

# ---------------------------------------------------------------- who may


def test_nothing_of_the_record_is_read_without_the_token() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        for path in ("/api/sessions", "/api/s/talk/entries", "/api/s/talk/events", "/api/models", "/api/nothing"):
            async with stage.client.get(f"{stage.address}{path}") as answer:
                assert answer.status == 401, path
        async with stage.client.get(f"{stage.address}/api/sessions", params={"token": "wrong"}) as answer:
            assert answer.status == 403

    played(test)


def test_the_token_in_the_address_becomes_a_cookie_of_this_site_alone() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        async with stage.client.get(f"{stage.address}/", params={"token": TOKEN}) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert answer.status == 200
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as client:
            async with client.get(f"{stage.address}/", params={"token": TOKEN}) as answer:
                key = re.findall('name="dragoman-key" content="([0-9a-f]{64})"', await answer.text())
            # Other programs on this machine get the cookie too: a browser sends it to all ports.
            for params, status in (({}, 401), ({"key": "0" * 64}, 401), ({"key": key[0]}, 200)):
                async with client.get(f"{stage.address}/api/sessions", params=params) as answer:
                    assert answer.status == status
            async with client.get(f"{stage.address}/") as answer:
                assert 'name="dragoman-key" content=""' in await answer.text()
        async with stage.client.get(f"{stage.address}/api/sessions", params={"key": key[0]}) as answer:
            assert answer.status == 401
        assert TOKEN not in cookie

    played(test)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "127.0.0.1:80.evil.example"}, 421),
        ({"Host": "evil.example@127.0.0.1"}, 421),
        ({"Host": "127.0.0.1/x"}, 421),
        ({"Host": "10.1.2.3:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 200),
    ],
)
def test_other_hosts_and_sites_are_refused(headers: dict[str, str], status: int) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        address = f"{stage.address}/api/sessions"
        async with stage.client.get(address, params={"token": TOKEN}, headers=headers) as answer:
            assert answer.status == status

    played(test)


def test_an_action_needs_the_header_that_no_other_site_can_send() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        address = f"{stage.address}/api/s/talk/fork"
        async with stage.client.post(address, params={"token": TOKEN}, json={"serial": 1}) as answer:
            assert answer.status == 403
        assert (await stage.post("/api/s/talk/fork", {"serial": 1}))[0] == 200

    played(test)


def test_every_answer_has_a_policy_that_allows_this_server_alone() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        for path in ("/", "/static/app.js", "/static/vendor/libraries.js", "/api/sessions", "/static/../desk.py"):
            async with stage.client.get(f"{stage.address}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"

    played(test)


def test_no_file_but_those_of_the_page_is_served() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        for path in ("..%2fdesk.py", "vendor%2f..%2f..%2fdesk.py", "manifest.json", "app.py", "%2fetc%2fpasswd"):
            async with stage.client.get(f"{stage.address}/static/{path}") as answer:
                assert answer.status in (401, 404), path

    played(test)


def test_a_read_only_inspector_writes_nothing() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await two_turns(store)
        for name in ("input", "approve", "deny", "stop", "fork", "erase"):
            status, body = await stage.post(f"/api/s/talk/{name}", {"serial": 1, "confirm": "talk", "text": "x"})
            assert (status, body["error"]["code"]) == (403, "read_only"), name
        assert (await stage.post("/api/sessions", {"text": "x"}))[0] == 403
        assert (await store.head("talk")).next_serial == len(session.entries)

    played(test, read_only=True)


# ---------------------------------------------------------------- reading


def test_sessions_are_listed_with_their_forks_and_found_by_what_was_said() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        await two_turns(store, "other")
        await store.fork("talk", 2, new_session_id="branch")
        listed = {each["id"]: each for each in (await stage.get("/api/sessions"))["sessions"]}
        assert listed["branch"]["forkedFrom"] == {"id": "talk", "serial": 2}
        assert listed["talk"]["title"] == "question 0"
        found = await stage.get("/api/sessions", q="ANSWER 1")
        assert {each["id"] for each in found["sessions"]} == {"talk", "other"}

    played(test)


def test_a_range_of_entries_has_cut_texts_whose_rest_is_fetched_by_its_place() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "long")
        await session.append_model_input("x" * 10_000 + "end")
        (found,) = (await stage.get("/api/s/long/entries", **{"from": 0, "count": 5}))["entries"]
        cut = found["entry"]["payload"]["parts"][0]["payload"]["text"]["$cut"]
        assert (cut["length"], len(cut["head"])) == (10_003, 6_000)
        rest = await stage.get("/api/s/long/entries/0/text", at=cut["at"], **{"from": 9_999})
        assert rest["text"] == "xend"

    played(test)


def test_pictures_of_the_record_are_served_and_scripts_in_them_never() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "pictures")
        await session.append(
            ModelInputEntry((Text("see"), Image("image/png", PNG), Image("image/svg+xml", HOSTILE[1].encode())))
        )
        (found,) = (await stage.get("/api/s/pictures/entries"))["entries"]
        places = [part["payload"]["data"]["$picture"]["at"] for part in found["entry"]["payload"]["parts"][1:]]
        address = f"{stage.address}/api/s/pictures/entries/0/picture"
        async with stage.client.get(address, params={"token": TOKEN, "at": places[0]}) as answer:
            assert (await answer.read(), answer.content_type) == (PNG, "image/png")
            assert "sandbox" in answer.headers["Content-Security-Policy"]
        async with stage.client.get(address, params={"token": TOKEN, "at": places[1]}) as answer:
            assert answer.status == 400

    played(test)


def test_the_outline_grows_by_what_is_new() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await two_turns(store)
        outline = await stage.get("/api/s/talk/outline")
        kinds = [outline["kinds"][number] for number in outline["kind"]]
        assert kinds == [str(entry.kind) for entry in session.entries]
        await session.append_model_input("more")
        grown = await stage.get("/api/s/talk/outline", **{"from": len(kinds)})
        assert (grown["first"], len(grown["kind"])) == (len(kinds), 1)

    played(test)


def test_checksums_are_those_of_the_store() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        head = await store.head("talk")
        found = await stage.get(f"/api/s/talk/entries/{head.serial}/checksum")
        assert found["checksum"] == head.checksum

    played(test)


def test_a_broken_record_shows_everything_before_the_break(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "sessions.db"
        async with SQLiteStore(path) as store:
            session = await start_session(store, "torn")
            for number in range(20):
                await session.append_model_input(f"say {number}")
        break_entry(path, 12)
        async with SQLiteStore(path) as store, staged(store) as stage:
            outline = await stage.get("/api/s/torn/outline")
            assert (outline["brokenAt"], len(outline["kind"])) == (12, 12)
            entries = (await stage.get("/api/s/torn/entries", count=60))["entries"]
            assert len(entries) == 12

    asyncio.run(run())


@pytest.mark.parametrize(
    "damage", ["DELETE FROM entries WHERE serial = 19", "UPDATE entries SET serial = 40 WHERE serial = 19"]
)
def test_a_session_whose_newest_entry_is_missing_says_what_is_sound(tmp_path: Path, damage: str) -> None:
    async def run() -> None:
        path = tmp_path / "sessions.db"
        async with SQLiteStore(path) as store:
            session = await start_session(store, "torn")
            for number in range(20):
                await session.append_model_input(f"say {number}")
        break_entry(path, 19)
        with sqlite3.connect(path) as connection:
            connection.execute(damage)
        connection.close()
        async with SQLiteStore(path) as store, staged(store) as stage:
            info = await stage.get("/api/s/torn")
            assert (info["entries"], info["brokenAt"], bool(info["problem"])) == (19, 19, True)
            for name in ("outline", "entries", "calls", "cache", "summary", "search"):
                await stage.get(f"/api/s/torn/{name}", q="say")
            # A follower is told so by an event: browsers try again after an error that comes before.
            async with stage.client.get(f"{stage.address}/api/s/torn/events", params={"token": TOKEN}) as answer:
                assert answer.status == 200
                assert b"event: failed" in await answer.read()

    asyncio.run(run())


def test_a_request_is_shown_for_any_provider_and_as_curl_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-1234567890")

    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        for name in ("anthropic:claude-opus-4-5", "openai:gpt-5.1", "google:gemini-2.5-pro", "openai-chat:gpt-4.1"):
            request = await stage.get("/api/s/talk/request", model=name)
            assert "answer 1" in request["body"]
            assert request["curl"].startswith("curl ")
            assert "planted" not in json.dumps(request)
        own = await stage.get("/api/s/talk/request", at="2")
        assert "answer 0" not in own["body"]
        assert "$ANTHROPIC_API_KEY" in own["curl"]

    played(test)


def test_a_row_of_a_comparison_is_to_be_had_with_all_of_its_text() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "long", system_instruction="Be careful. " * 500)
        await session.append_model_input("hello")
        await session.append_model_output(Message.assistant("hi", invocation=OPUS))
        sides = {"a": "@anthropic:claude-opus-4-5", "b": "@openai:gpt-5"}
        rows = (await stage.get("/api/s/long/differences", **sides))["rows"]
        place = next(index for index, row in enumerate(rows) if row["key"] == "system")
        cut = rows[place]["left"]["text"]["$cut"]
        assert (len(cut["head"]), cut["length"]) == (2_000, 6_000)
        row = (await stage.get("/api/s/long/differences", **sides, row=place))["row"]
        assert row["left"]["text"] == "Be careful. " * 500
        assert row["state"] == "words"
        assert (await stage.status("/api/s/long/differences", **sides, row=9_999))[0] == 400

    played(test)


def test_texts_that_differ_only_far_behind_are_not_equal() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        for name, end in (("one", "a"), ("other", "b")):
            session = await start_session(store, name, system_instruction="x" * 5_000 + end)
            await session.append_model_input("hello")
            await session.append_model_output(Message.assistant("hi", invocation=OPUS))
        found = await stage.get("/api/s/one/differences", a="last", b="last", other="other")
        assert [row["state"] for row in found["rows"] if row["key"] == "system"] == ["different"]

    played(test)


@pytest.mark.parametrize("name", [".", "..", "~..", "~~.", "~"])
def test_ids_that_a_browser_takes_for_steps_are_reached_with_a_sign_before_them(name: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store, name)
        step = f"~{name}" if name.endswith(".") else name
        assert (await stage.get(f"/api/s/{step}"))["id"] == name

    played(test)


def test_sessions_are_listed_by_model_and_forks_by_their_own_first_words() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await two_turns(store)
        fork = await session.fork(2, new_session_id="fork")
        await fork.append_model_input("another way")
        await start_session(store, "empty")
        listed = (await stage.get("/api/sessions", model="anthropic:claude-opus-4-5"))["sessions"]
        assert {each["id"]: each["title"] for each in listed} == {"talk": "question 0", "fork": "another way"}

    played(test)


def test_differences_are_laid_out_by_entry() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        turns = await stage.get("/api/s/talk/differences", a="2", b="4")
        states = {row["key"]: row["state"] for row in turns["rows"]}
        assert states["headers"] == "equal"
        assert states["#3"] == "right"
        assert 0 < turns["commonBytes"] < turns["left"]["bytes"]
        providers = await stage.get("/api/s/talk/differences", a="@anthropic:claude-opus-4-5", b="@openai:gpt-5.1")
        states = {row["key"]: row["state"] for row in providers["rows"]}
        assert (states["#1"], states["settings"]) == ("words", "different")

    played(test)


def test_the_request_of_a_model_of_no_known_provider_is_shown() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await session.append_model_input("question")
        await session.append_model_output(
            Message.assistant("answer", invocation=ModelInvocationDescriptor("elsewhere", "its-own", "m"))
        )
        found = await stage.get("/api/s/talk/request", at="last")
        assert (found["model"], "question" in found["body"]) == ("elsewhere:m", True)

    played(test)


def test_the_next_call_has_the_tools_that_were_recorded_last() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await Agent(ScriptedModel("Done."), tools=[pay], session=session).run("say")
        for model in ("anthropic:claude-opus-4-5", "openai:gpt-5.1"):
            found = await stage.get("/api/s/talk/request", model=model)
            assert '"name":"pay"' in found["body"]
            assert "Not available" not in found["body"]

    played(test)


def test_two_sessions_are_compared_by_their_newest_calls() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        await store.fork("talk", 2, new_session_id="branch")
        found = await stage.get("/api/s/talk/differences", a="last", b="last", other="branch")
        same = await stage.get("/api/s/talk/differences", a="4", b="2")
        assert found["left"] == same["left"]
        assert found["right"]["bytes"] == same["right"]["bytes"]
        assert "#3" in {row["key"] for row in found["rows"] if row["state"] == "left"}

    played(test)


def test_metadata_of_any_depth_is_shown() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        given = {"a": {"b": [1, {"c": None}]}, "imported_from": {"x": 1}, "title": 5}
        await start_session(store, "odd", metadata=given)
        assert (await stage.get("/api/s/odd"))["metadata"] == given
        assert (await stage.get("/api/sessions"))["total"] == 1

    played(test)


def test_metadata_in_the_place_of_a_figure_breaks_no_view() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "odd")
        await session.append_model_input("question")
        odd = {"context_tokens": {"a": {"b": 1}}, FIRST_PIECE_KEY: {"c": 2}, REQUEST_KEY: {"d": 3}}
        await session.append(ModelOutputEntry(Message.assistant("answer", invocation=OPUS), metadata=odd))
        serial = session.entries[-1].serial
        for path in ("outline", "entries", "calls", f"calls/{serial}", "summary", "cache", "request"):
            await stage.get(f"/api/s/odd/{path}")

    played(test)


def test_a_body_that_is_too_deep_is_refused() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        address = f"{stage.address}/api/sessions"
        deep = "[" * 100_000
        async with stage.client.post(address, params={"token": TOKEN}, data=deep, headers=WRITES) as answer:
            assert answer.status == 400

    played(test)


def test_no_session_is_begun_that_nobody_answers() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        assert (await stage.post("/api/sessions", {"text": "x"}))[0] == 409
        assert (await store.list()).sessions == ()

    played(test)


@needs_conversations
def test_a_context_says_parts_levels_and_what_was_folded() -> None:
    async def run() -> None:
        store = MemoryStore()
        talk = next(each for each in recorded("claude_code") if len(each["messages"]) > 300)
        session = await replay(store, "talk", talk, models=("anthropic:claude-opus-4-5", "openai:gpt-5.1"))
        async with staged(store) as stage:
            calls = (await stage.get("/api/s/talk/calls"))["calls"]
            outputs = [entry for entry in session.entries if isinstance(entry, ModelOutputEntry)]
            assert [call["serial"] for call in calls] == [entry.serial for entry in outputs]
            call = next(each for each in calls if each["epoch"] and each["sent"]["ledger"])
            found = await stage.get(f"/api/s/talk/calls/{call['serial']}")
            counted = sum(part["tokens"] for part in found["parts"])
            sent = sum(call["sent"].values())
            assert abs(counted - sent) <= sent * 0.02
            assert {"ledger", "user", "assistant", "results"} <= {part["category"] for part in found["parts"]}
            assert sum(part["isAnchor"] for part in found["parts"]) in (1, 2, 3)
            serial = found["levels"]["summary"][0]
            folded = await stage.get(f"/api/s/talk/calls/{call['serial']}/entries/{serial}")
            assert all(len(block["kept"]) <= len(block["lines"]) for block in folded["blocks"])

    asyncio.run(run())


def test_search_finds_the_words_of_calls_and_results() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        model = ScriptedModel(Turn(calls=(Call("look", {"where": "attic"}),)), "Nothing.")
        agent = Agent(model, tools=[look], session=await start_session(store, "talk"))
        await agent.run("look")
        found = await stage.get("/api/s/talk/search", q="ATTIC")
        assert found["total"] >= 2

    played(test)


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"the {where} is empty"


def test_what_is_asked_wrongly_is_refused_with_words() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        for path, status in {
            "/api/s/none/outline": 404,
            "/api/s/talk/entries?from=-1": 400,
            "/api/s/talk/entries?count=99999": 400,
            "/api/s/talk/calls/1": 400,
            "/api/s/talk/request?model=nobody:x": 400,
            "/api/s/talk/request?at=99": 400,
            "/api/s/talk/entries/99/text": 404,
            "/api/s/talk/entries/1/text?at=/payload/nothing": 400,
        }.items():
            given, _, query = path.partition("?")
            found = await stage.status(given, **dict(each.split("=", 1) for each in query.split("&") if each))
            assert found[0] == status, (path, found)
            assert found[1]["error"]["message"]

    played(test)


# ---------------------------------------------------------------- export


def test_an_exported_page_holds_no_script_and_every_text_escaped() -> None:
    async def run() -> str:
        store = MemoryStore()
        session = await hostile(store, megabytes=2, entries=50)
        return "".join(session_html(session.session_id, list(session.entries)))

    page = asyncio.run(run())
    assert "<script" not in page
    assert "onerror='" not in page
    assert "default-src 'none'; style-src" in page.replace("&#x27;", "'")
    assert "\u202e" not in page
    assert "http://example.com" in page  # as text
    assert 'src="http' not in page
