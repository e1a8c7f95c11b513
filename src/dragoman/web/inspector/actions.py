"""What a person does in the page: speaks, decides, stops, forks, erases. Each is an entry first, as everywhere else.

Refused as a whole where the inspector is read-only.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import web

from ..._jsontext import parse_arguments
from ...agent import Agent
from ...errors import DragomanError, ErrorCode, IllegalAppend, InvalidValue, StoreError, report_raised
from ...history import ApprovalAnsweredEntry
from ...store import Session, SessionBusy, open_session, start_session
from .safety import refuse
from .state import STATE, InspectorState, answer, read_body, session_of

__all__ = ["DECIDED_BY", "add_actions"]

DECIDED_BY = "decided_by"  # in the metadata of a decision: who decided, in their own words
LONGEST_NAME = 80

Action = Callable[[InspectorState, Session, dict[str, Any]], Awaitable[web.Response]]


def add_actions(router: web.UrlDispatcher) -> None:
    """Add the endpoints that write."""
    router.add_post("/api/sessions", _start)
    for name, action in _ACTIONS.items():
        router.add_post(f"/api/s/{{session}}/{name}", _endpoint(action))


def _endpoint(action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def act(request: web.Request) -> web.Response:
        state = request.app[STATE]
        if state.is_read_only:
            return _read_only()
        return await _to_its_end(state, _act(state, session_of(request), action, await read_body(request)))

    return act


async def _act(state: InspectorState, session_id: str, action: Action, body: dict[str, Any]) -> web.Response:
    async with state.writing[session_id]:
        session = await open_session(state.store, session_id, live=True)
        expected = body.get("expectedSerial")
        if expected is not None and expected != session.state.next_serial:
            message = f"the session has gone on: its next serial is {session.state.next_serial}, not {expected}"
            return refuse(409, "conflict", message)
        return await action(state, session, body)


async def _to_its_end(state: InspectorState, action: Coroutine[Any, Any, web.Response]) -> web.Response:
    """Finish an action although its browser leaves: else a decision could be recorded whose run nobody carries on."""
    task = asyncio.create_task(action)
    state.actions.add(task)
    task.add_done_callback(state.actions.discard)
    return await asyncio.shield(task)


def _read_only() -> web.Response:
    return refuse(403, "read_only", "this inspector is read-only: start it without --read-only to write")


async def _start(request: web.Request) -> web.Response:
    state = request.app[STATE]
    if state.is_read_only:
        return _read_only()
    body = await read_body(request)
    if state.make_agent is None:  # a session that no agent answers is not begun
        return _no_agent()
    _require_text(body)

    async def begin() -> web.Response:
        session = await start_session(state.store, live=True)
        try:
            return await _say(state, session, body)
        except DragomanError:
            if (await state.store.head(session.session_id)).next_serial == 0:  # an agent was refused, or not made
                await state.store.erase(session.session_id)
            raise

    return await _to_its_end(state, begin())


async def _say(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    """Say something to the run under way; if there is none, begin one with the chosen model."""
    text = _require_text(body)
    if await _is_running(state, session):
        entry = await session.steer(text)
        return answer({"session": session.session_id, "serial": entry.serial, "steers": True})
    if state.make_agent is None:
        return _no_agent()
    await _carry_on(state, session, await _agent(state, session, _text(body, "model") or None), text)
    return answer({"session": session.session_id, "serial": session.state.next_serial, "steers": False})


def _require_text(body: dict[str, Any]) -> str:
    text = _text(body, "text")
    if not text.strip():
        raise InvalidValue("there is nothing to say: text is empty")
    return text


def _no_agent() -> web.Response:
    return refuse(409, "no_agent", "this server has no agent: it can show runs and speak to those under way")


async def _decide(state: InspectorState, session: Session, body: dict[str, Any], *, approved: bool) -> web.Response:
    call_id, reason, who = _text(body, "call"), _text(body, "reason"), _text(body, "who")[:LONGEST_NAME]
    arguments = _edited_arguments(body.get("arguments")) if approved else None
    model = _text(body, "model") or None
    entry = ApprovalAnsweredEntry(call_id, approved, reason, arguments, metadata={DECIDED_BY: who} if who else {})
    try:
        (recorded,) = await session.append(entry)
    except IllegalAppend:
        return _decided_before(session, call_id)
    # The decision stands, whatever becomes of the run: from here on nothing is answered with an error.
    problem = None
    if not any(call.awaits_answer for call in session.state.derived.open_calls) and await _is_left(state, session):
        try:
            problem = await _carry_decided_on(state, session, model)
        except DragomanError as error:
            problem = str(error)
    is_carried_on = problem == "" or await _is_running(state, session)
    told = {"serial": recorded.serial, "isCarriedOn": is_carried_on, "problem": "" if is_carried_on else problem or ""}
    return answer(told)


async def _carry_decided_on(state: InspectorState, session: Session, model: str | None) -> str:
    """Carry on a run whose calls are all decided; return why this server does not, empty if it does."""
    if state.make_agent is None:
        return "this server has no agent: the process that has the run's tools carries it on"
    agent = await _agent(state, session, model)
    # An agent without these tools would end the calls with an error. The process that has them carries the run on.
    wanted = {call.request.tool_name for call in session.state.derived.open_calls}
    if missing := sorted(wanted - {tool.name for tool in agent.tools}):
        return f"the agent of this server has no tool {missing[0]!r}: the process that has it carries the run on"
    await _carry_on(state, session, agent, None)
    return ""


def _edited_arguments(given: Any) -> dict[str, Any] | None:
    """The arguments that a person wrote: their JSON as text, which no browser has rounded, or an object."""
    if isinstance(given, str):
        parsed = parse_arguments(given)
        if parsed.arguments is None or parsed.warning is not None:
            raise InvalidValue(f"the arguments are not run as they are written: {parsed.error or parsed.warning}")
        return parsed.arguments
    if given is not None and not isinstance(given, dict):
        raise InvalidValue("arguments must be a JSON object, or its text")
    return given


def _decided_before(session: Session, call_id: str) -> web.Response:
    """Say who decided about the call and when, if anybody has."""
    for index in range(len(session.entries) - 1, -1, -1):
        entry = session.entries[index]
        if isinstance(entry, ApprovalAnsweredEntry) and entry.tool_call_id == call_id:
            decision = {
                "approved": entry.approved,
                "who": entry.metadata.get(DECIDED_BY) or f"a {entry.by}",
                "time": entry.timestamp,
                "reason": entry.reason,
                "serial": entry.serial,
            }
            said = {"code": "decided", "message": "somebody else has decided about this call", "decision": decision}
            return answer({"error": said}, 409)
    return refuse(409, "not_waiting", f"no call {call_id!r} waits for a decision")


async def _approve(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    return await _decide(state, session, body, approved=True)


async def _deny(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    return await _decide(state, session, body, approved=False)


async def _stop(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    """End the run under way; one of another process is asked to end."""
    running = state.runs.get(session.session_id)
    if running is not None and not running[1].done():
        await running[0].abort()
        return answer({"stopped": True})
    if not session.run_id:
        return refuse(409, "no_run", "no run is under way")
    try:
        entry = await session.request_abort(_text(body, "reason"))
    except IllegalAppend:
        return refuse(409, "no_run", "the run has ended meanwhile")
    problem = ""
    if state.make_agent is not None and await _is_left(state, session):
        try:
            await (await _agent(state, session, None)).abort()  # no process carries it on: it ends here
        except DragomanError as error:
            problem = str(error)
    return answer({"stopped": False, "serial": entry.serial, "problem": problem})


async def _fork(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    serial = body.get("serial")
    if type(serial) is not int:
        raise InvalidValue.of("serial", serial, "the last serial to share, -1 for none")
    info = await state.store.fork(session.session_id, serial, new_session_id=_text(body, "id") or None)
    return answer({"session": info.session_id})


async def _erase(state: InspectorState, session: Session, body: dict[str, Any]) -> web.Response:
    """Remove a session for good. The page sends its id once more: a person has typed it."""
    if body.get("confirm") != session.session_id:
        raise InvalidValue("confirm must be the id of the session that shall be erased")
    forks = body.get("forks", [])
    if not isinstance(forks, list) or not all(isinstance(each, str) for each in forks):
        raise InvalidValue("forks must be a list of ids")
    await state.store.erase(session.session_id, forks=forks)
    for each in (session.session_id, *forks):
        state.forget(each)
    return answer({"erased": session.session_id})


_ACTIONS: dict[str, Action] = {
    "input": _say,
    "approve": _approve,
    "deny": _deny,
    "stop": _stop,
    "fork": _fork,
    "erase": _erase,
}


# ---------------------------------------------------------------- runs


async def _carry_on(state: InspectorState, session: Session, agent: Agent[Any, Any], prompt: str | None) -> None:
    """Go on in the background, and return when that has begun: what a person does wrong is told at once."""
    begun = asyncio.Event()
    failed: list[DragomanError] = []

    async def work() -> None:
        try:
            said = prompt
            while True:
                async for _ in agent.stream(said):
                    begun.set()
                if not await _is_decided(session):
                    return
                said = None  # somebody decided before the run had stopped to wait
        except (InvalidValue, SessionBusy, StoreError) as error:
            failed.append(error)
        finally:
            begun.set()

    task = asyncio.create_task(work())
    state.runs[session.session_id] = (agent, task)
    task.add_done_callback(lambda done: _drop_run(state, session.session_id, done))
    await begun.wait()
    if failed:
        raise failed[0]


async def _is_decided(session: Session) -> bool:
    """Whether the run stopped for a decision that has come meanwhile."""
    await session.refresh()
    derived = session.state.derived
    if not session.run_id or derived.abort_request is not None:
        return False
    answered = [call for call in derived.open_calls if call.answered is not None and call.result is None]
    return bool(answered) and not any(call.awaits_answer for call in derived.open_calls)


def _drop_run(state: InspectorState, session_id: str, task: "asyncio.Task[None]") -> None:
    found = state.runs.get(session_id)
    if found is not None and found[1] is task:
        del state.runs[session_id]


async def _agent(state: InspectorState, session: Session, model: str | None) -> Agent[Any, Any]:
    """Make the agent; raise DragomanError where that fails, also for exceptions of the host's own code."""
    assert state.make_agent is not None
    try:
        made = state.make_agent(session, model)
        return await made if inspect.isawaitable(made) else made
    except DragomanError:
        raise
    except Exception as error:
        report_raised(error, "make_agent")
        message = f"the function that makes the agents of this server raised {type(error).__name__}"
        raise DragomanError(message, code=ErrorCode.INTERNAL) from error


async def _is_running(state: InspectorState, session: Session) -> bool:
    running = state.runs.get(session.session_id)
    if running is not None and not running[1].done():
        return True
    return await state.store.find_lease(session.session_id) is not None


async def _is_left(state: InspectorState, session: Session) -> bool:
    """Whether the run is left to this server: no process has it, and no worker will, because it was not requested."""
    return not await _is_running(state, session) and not await state.is_requested(session.session_id)


def _text(body: dict[str, Any], name: str) -> str:
    given = body.get(name, "")
    if not isinstance(given, str):
        raise InvalidValue(f"{name} must be text")
    return given
