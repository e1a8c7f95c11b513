"""Runs in a browser: followed, decided, spoken to, stopped."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dragoman import Agent, start_session, tool
from dragoman.history import ApprovalAnsweredEntry
from dragoman.message import Message
from dragoman.store import Session
from dragoman.testing import Call, ScriptedModel, Turn

from .inspector_browser import (  # noqa: F401  # the fixtures
    SECONDS,
    Reader,
    Server,
    asking,
    axe_source,
    chromium,
    hold,
    pay_with_note,
    readers,
    record_talk,
    served,
)
from .inspector_cases import OPUS
from .inspector_stage import TOKEN, staged

pytestmark = pytest.mark.slow


def test_a_run_is_followed_to_its_end_through_a_lost_connection(reader: Callable[..., Reader], server: Server) -> None:
    wait, release, reached = hold()
    model = ScriptedModel("alpha bravo charlie delta echo foxtrot golf hotel india", between=wait)

    async def begin() -> Session:
        return await start_session(server.store, "streamed", live=True)

    session = server.do(begin())
    each = reader()
    page = each.open("s/streamed/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    run = server.begin(Agent(model, session=session).run("count"))
    server.do(reached.wait())
    page.wait_for_selector(".underway >> text=bravo")
    port = server.port
    server.stop()
    page.wait_for_selector("[data-follow=lost]")
    assert page.inner_text(".liveview > .middle > [role=status]") == "connection lost, trying again"  # without seconds
    assert page.is_visible(".underway >> text=bravo")  # nothing is cleared
    server._loop.call_soon_threadsafe(release)
    run.result(SECONDS)
    server.start(port)
    page.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    page.wait_for_selector(".entry.output >> text=india")
    assert page.locator(".entry.output:not(.underway *)").count() >= 1


def test_a_call_is_approved_by_a_key_and_the_run_goes_on(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "approved")
    page = reader().open("s/approved/live", ".approval")
    page.wait_for_selector(".approval button.primary:not([disabled])")
    assert '"euros": 7' in page.inner_text(".approval pre")
    assert page.evaluate("document.activeElement === document.body")  # focus did not jump
    page.keyboard.press("a")
    page.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    page.wait_for_selector("text=7 euros are paid")
    page.wait_for_selector("text=It is done.")


def test_arguments_are_shown_whole_before_anybody_can_approve(reader: Callable[..., Reader], server: Server) -> None:
    note = "x" * 200_000 + " and then all the rest"
    server.script = [ScriptedModel(Turn(calls=(Call("pay", {"euros": 7, "note": note}, "c1"),)))]

    async def begin() -> None:
        session = await start_session(server.store, "long-arguments")
        await Agent(server.script[0], tools=[pay_with_note], session=session).run("pay")

    server.do(begin())
    page = reader().open("s/long-arguments/live", ".approval")
    page.wait_for_selector(".approval button.primary:not([disabled])")
    assert "and then all the rest" in page.inner_text(".approval pre")


def test_of_two_people_the_first_decides_and_the_other_sees_who(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "decided")
    first, second = reader(), reader()
    one, other = first.open("s/decided/live", ".approval"), second.open("s/decided/live", ".approval")
    name = one.evaluate("localStorage.getItem('dragoman-who')")
    other.route("**/events*", lambda route: route.abort())
    one.fill(".approval input", "too much")
    one.click("text=Deny")
    one.wait_for_selector("text=Run completed", timeout=SECONDS * 1000)
    if other.is_visible(".approval"):
        other.click("text=Approve")
    other.wait_for_selector(f"text={name}", timeout=SECONDS * 1000)


def test_a_fork_is_made_and_carried_on_by_a_prompt(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "origin")
    server.script = [ScriptedModel("An answer in the fork.")]
    page = reader().open("s/origin/live", ".composer textarea")
    page.click(".entryrow >> nth=0")
    page.click("text=Fork from #0")
    page.fill("dialog[open] [placeholder='a random id']", "origin-fork")
    page.click("dialog[open] button:text-is('Fork')")
    page.wait_for_url("**/s/origin-fork/live")
    page.wait_for_selector("[data-follow=following]")
    page.keyboard.press("i")
    page.keyboard.type("hello there")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=An answer in the fork.", timeout=SECONDS * 1000)


def test_a_run_is_stopped_by_escape(reader: Callable[..., Reader], server: Server) -> None:
    wait, release, reached = hold()
    server.script = [ScriptedModel("one two three four five six seven eight nine ten", between=wait)]
    server.do(_begin(server, "stopped"))
    page = reader().open("s/stopped/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    page.fill(".composer textarea", "go")
    page.click("text=Send")
    server.do(reached.wait())
    page.wait_for_selector(".underway")
    page.wait_for_selector("button.danger >> text=Stop")
    page.focus(".reading")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Run aborted", timeout=SECONDS * 1000)
    release()


async def _begin(server: Server, session_id: str) -> Session:
    return await start_session(server.store, session_id, live=True)


def test_who_decides_too_late_is_told_whose_decision_counts(reader: Callable[..., Reader], server: Server) -> None:
    asking(server, "late")
    page = reader().open("s/late/live", ".approval")
    page.route("**/events*", lambda route: route.abort())
    page.route("**/deny*", lambda route: route.fulfill(status=409, json={"error": {
        "code": "decided", "message": "decided", "decision": {
            "approved": True, "who": "Ada", "time": "2026-11-18T10:00:00Z", "reason": "", "serial": 6}}}))  # fmt: skip
    page.keyboard.press("d")
    page.wait_for_selector(".toolate >> text=You denied pay, but Ada had approved it")


def test_who_only_reads_sees_all_arguments_of_a_call_that_waits(browser: Any, server: Server) -> None:
    asking(server, "waiting")

    async def serve(stack: AsyncExitStack) -> str:
        return (await stack.enter_async_context(staged(server.store, read_only=True))).address

    stack = AsyncExitStack()
    address = server.do(serve(stack))
    page = browser.new_page()
    page.goto(f"{address}/s/waiting/live?token={TOKEN}")
    page.wait_for_selector(".approval >> text=Waits for a decision")
    page.wait_for_selector('.approval pre >> text="euros": 7')
    assert page.locator(".approval button, .composer").count() == 0
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_selector("table.list tbody tr")
    assert page.locator("text=Erase").count() == 0
    page.close()
    server.do(stack.aclose())


@tool(requires_approval=True)
def send(ids: list[int], order: int, folder: str = "") -> str:
    """Send."""
    return f"{len(ids)} sent for {order}"


HIDDEN = "a\u202eb\u200dc\ufe0fd\u00a0e\u00adf\U000e0041"  # characters that nobody sees
SENT = {"ids": list(range(2000)), "order": 9007199254740993, "folder": HIDDEN}


def send_asked(server: Server, session_id: str) -> Session:
    """Record a call that waits: more items than the page gets at once, and a number that JavaScript rounds."""
    call = Call("send", SENT, "c1")

    async def begin() -> Session:
        session = await start_session(server.store, session_id, live=True)
        await Agent(ScriptedModel(Turn(calls=(call,)), "Sent."), tools=[send], session=session).run("send")
        return session

    session: Session = server.do(begin())
    return session


def test_the_arguments_to_decide_about_are_those_that_run(reader: Callable[..., Reader], server: Server) -> None:
    session = send_asked(server, "exact-arguments")
    page = reader().open("s/exact-arguments/live", ".approval")
    page.wait_for_selector(".approval button.primary:not([disabled])")
    shown = page.inner_text(".approval pre")
    assert (shown.isascii(), json.loads(shown)) == (True, SENT)
    page.click("text=Edit arguments")
    text = page.input_value(".approval textarea")
    assert text.isascii()
    page.fill(".approval textarea", text.replace("9007199254740993", "9007199254740995"))
    with page.expect_response("**/approve*") as answered:
        page.click(".approval button.primary")
    assert answered.value.status == 200
    server.do(session.refresh())
    (decision,) = [entry for entry in session.entries if isinstance(entry, ApprovalAnsweredEntry)]
    assert decision.arguments == {**SENT, "order": 9007199254740995}


def test_arguments_that_were_opened_and_not_changed_are_no_other_arguments(
    reader: Callable[..., Reader], server: Server
) -> None:
    session = send_asked(server, "unchanged-arguments")
    page = reader().open("s/unchanged-arguments/live", ".approval")
    page.click("text=Edit arguments")
    with page.expect_response("**/approve*"):
        page.click(".approval button.primary")
    server.do(session.refresh())
    (decision,) = [entry for entry in session.entries if isinstance(entry, ApprovalAnsweredEntry)]
    assert decision.arguments is None


def test_nothing_can_be_approved_whose_arguments_did_not_come(reader: Callable[..., Reader], server: Server) -> None:
    send_asked(server, "no-arguments")
    each = reader()
    each.page.route("**/text?*", lambda route: route.abort())
    page = each.open("s/no-arguments/live", ".approval .trouble")
    assert page.is_disabled(".approval button.primary")
    page.unroute("**/text?*")
    page.click(".approval >> text=Try again")
    page.wait_for_selector(".approval button.primary:not([disabled])")


def test_the_entry_that_was_chosen_for_a_fork_stays_chosen(reader: Callable[..., Reader], server: Server) -> None:
    session = record_talk(server, "chosen-fork", 4)
    page = reader().open("s/chosen-fork/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    page.wait_for_selector("text=Fork from #7")
    server.do(session.append_model_input("one more"))
    page.wait_for_selector("text=Fork from #8")  # the newest one is chosen until a person chooses another
    page.click(".entryrow >> nth=2")
    server.do(session.append_model_output(Message.assistant("and its answer", invocation=OPUS)))
    page.wait_for_selector(".entry.output >> text=and its answer")
    assert page.is_visible("text=Fork from #2")


def test_a_growing_answer_is_spoken_by_its_sentences(reader: Callable[..., Reader], server: Server) -> None:
    wait, release, reached = hold()
    model = ScriptedModel("One is said. Two is not yet over", between=wait)
    session = server.do(_begin(server, "spoken"))
    page = reader().open("s/spoken/live", ".composer textarea")
    page.wait_for_selector("[data-follow=following]")
    run = server.begin(Agent(model, session=session).run("speak"))
    server.do(reached.wait())
    page.wait_for_selector(".underway >> text=One is said")
    spoken = page.locator(".liveview [aria-live=polite]")
    assert page.locator(".growing[aria-live]").count() == 0
    assert "Two" not in spoken.inner_text()
    server._loop.call_soon_threadsafe(release)
    run.result(SECONDS)
    page.wait_for_selector(".liveview [aria-live=polite] p >> nth=1")
    assert spoken.locator("p").all_inner_texts() == ["One is said.", "Two is not yet over"]


HALF_SAID = """
import asyncio, sys
from dragoman import Agent, SQLiteStore, start_session
from dragoman.request import AgentConfig, LoopConfig
from dragoman.testing import ScriptedModel

async def wait(number):
    if number == 3:
        print("begun", flush=True)
        await asyncio.Event().wait()

async def main():
    session = await start_session(SQLiteStore(sys.argv[1]), "killed", live=True)
    model = ScriptedModel("alpha bravo charlie delta echo foxtrot", between=wait)
    await Agent(model, session=session, config=AgentConfig(loop=LoopConfig(lease_seconds=1))).run("go")

asyncio.run(main())
"""


def test_a_run_whose_process_was_killed_is_left_open_and_goes_on_with_a_prompt(
    reader: Callable[..., Reader], server: Server
) -> None:
    command = [sys.executable, "-c", HALF_SAID, str(server.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        page = reader().open("s/killed/live", ".underway >> text=alpha")
        assert page.inner_text(".now .chip") == "running"
        running.kill()
    page.wait_for_selector(".leftopen >> text=Left open: its process is gone. Say something to go on from here")
    assert page.inner_text(".now .chip") == "left open"
    assert "broken off" in page.inner_text(".underway header")
    server.script = [ScriptedModel("It is carried on.")]
    page.fill(".composer textarea", "go on")
    page.click("text=Send")
    page.wait_for_selector(".entry.output >> text=It is carried on.")
    page.wait_for_selector(".leftopen", state="detached")


def test_a_decided_call_waits_for_the_process_that_has_its_tool(reader: Callable[..., Reader], server: Server) -> None:
    send_asked(server, "decided-elsewhere")
    page = reader().open("s/decided-elsewhere/live", ".approval")
    page.click(".approval button.primary:not([disabled])")
    page.wait_for_selector(".leftopen >> text=The process that has the run's tools carries it on.")


def test_an_empty_session_says_how_it_begins_and_offers_no_fork(reader: Callable[..., Reader], server: Server) -> None:
    server.do(_begin(server, "nothing-yet"))
    page = reader().open("s/nothing-yet/live", ".composer textarea")
    page.wait_for_selector(".liveview .note >> text=The session has no entry yet. What you say here begins it.")
    assert page.locator("text=Fork from").count() == 0
    assert "#-1" not in page.inner_text(".liveview")
