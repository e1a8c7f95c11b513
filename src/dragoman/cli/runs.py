"""`dragoman runs`: requested runs, for the person who operates them."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue
from .arguments import SESSION_HELP, WHOLE_ID_HELP, Tasks, add_task, add_tasks, natural, serial_number, word
from .config import configured
from .engines import add_engine, open_engine, prepare
from .output import Output, one_line, unbroken, write_table

if TYPE_CHECKING:
    from ..durable import Engine, RunHandle
    from ..store import SessionStore

__all__ = ["add_arguments", "follow_text"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    tasks = add_tasks(parser)
    submitting = add_task(tasks, "submit", "request a run of an agent; a new session is started", submit_run)
    submitting.add_argument("prompt", nargs="?", help="what the user says; without it the session is carried on")
    submitting.add_argument(
        "--agent", required=True, type=word, metavar="NAME", help="the agent's name in the workers' registry"
    )
    submitting.add_argument("--session", metavar="ID", help="the session's id (a random one, or made of --key)")
    submitting.add_argument("--key", type=_key, default="", help="your own word: the same key again gives the same run")
    listing = add_task(tasks, "list", "list requested runs, the newest first", list_runs)
    listing.add_argument("--limit", type=natural, default=50, help="how many at most, 0 for all (%(default)s)")
    listing.add_argument("--open", action="store_true", dest="open_only", help="only those that have not ended")
    showing = _add_one(tasks, "show", "show a run: its status, its entries, what it waits for", show_run)
    showing.add_argument("--follow", action="store_true", help="go on until the run ends or waits for a person")
    for name, words, run in (
        ("approve", "let a call run that waits for a person", approve_call),
        ("deny", "do not let a call run that waits for a person", deny_call),
    ):
        deciding = _add_one(tasks, name, words, run)
        deciding.add_argument("--call", metavar="ID", help="the call (the only one that waits)")
        deciding.add_argument("--reason", default="", help="what the model is told")
    aborting = _add_one(tasks, "abort", "ask a run to end; a queued run then never begins", abort_run)
    aborting.add_argument("--reason", default="", help="why")
    _add_one(tasks, "retry", "request a run that carries on where one failed", retry_run)
    for each in tasks.choices.values():
        add_engine(each)
        each.add_argument("--json", action="store_true", help="as JSON")


def _key(text: str) -> str:
    return word(text) if text else ""


def _add_one(tasks: Tasks, name: str, words: str, run: Callable[[argparse.Namespace], int | None]) -> Any:
    parser = add_task(tasks, name, words, run)
    parser.add_argument("session", help=SESSION_HELP if run is show_run else WHOLE_ID_HELP)
    parser.add_argument(
        "--serial", type=serial_number, help="of the request (the oldest run that has not ended, or the newest)"
    )
    return parser


def submit_run(chosen: argparse.Namespace) -> None:
    """Record a request, and print the run."""

    async def submit(store: "SessionStore", engine: "Engine") -> None:
        from ..durable import submit as submit_to
        from ..store.refusals import require_new_session_id

        if chosen.session is not None:
            require_new_session_id(chosen.session, "--session")
        run = await submit_to(
            store, engine, agent=chosen.agent, session=chosen.session, prompt=chosen.prompt, key=chosen.key
        )
        await _write_run(chosen, store, run)

    _with_engine(chosen, submit, creates=True)


def list_runs(chosen: argparse.Namespace) -> None:
    """Print the requested runs."""

    async def gather(store: "SessionStore", _engine: "Engine") -> list[dict[str, Any]]:
        from .describedruns import list_described

        return await list_described(store, limit=chosen.limit, open_only=chosen.open_only, with_errors=chosen.json)

    found = _with_engine(chosen, gather)
    output = Output(color=configured(chosen).color)
    if chosen.json:
        output.json(found)
    elif not found:
        output.line("no runs")
    else:
        rows = [(each["session"], str(each["serial"]), each["agent"], each["status"]) for each in found]
        write_table(output, ("SESSION", "SERIAL", "AGENT", "STATUS"), rows, right=frozenset({1}))


def show_run(chosen: argparse.Namespace) -> None:
    """Print a run, and follow it if asked."""

    async def show(run: "RunHandle") -> "RunHandle":
        from .entrytext import write_entry

        output = Output(color=configured(chosen).color)
        if chosen.follow:
            await (run.result() if chosen.json else follow_text(run, output))
        elif not chosen.json:
            from ..history import LevelOfDetail

            for entry in await run.entries():
                write_entry(output, entry, LevelOfDetail.LIVE)
                output.line()
        return run

    _with_run(chosen, show, takes_parts=True)


async def follow_text(run: "RunHandle", output: Output) -> None:
    """Print the text of the run as it comes, and a line break."""
    async for text in run.text():
        output.write(text)
        sys.stdout.flush()
    output.line()


def decide_call(chosen: argparse.Namespace, record: "Callable[[RunHandle], Callable[..., Awaitable[None]]]") -> None:
    """Record a decision about a call."""

    async def decide(run: "RunHandle") -> "RunHandle":
        await record(run)(await _waiting_call(chosen, run), reason=chosen.reason)
        return run

    _with_run(chosen, decide)


def approve_call(chosen: argparse.Namespace) -> None:
    """Let a call run."""
    decide_call(chosen, lambda run: run.approve)


def deny_call(chosen: argparse.Namespace) -> None:
    """Do not let a call run."""
    decide_call(chosen, lambda run: run.deny)


def abort_run(chosen: argparse.Namespace) -> None:
    """Ask a run to end."""

    async def abort(run: "RunHandle") -> "RunHandle":
        await run.abort(chosen.reason)
        return run

    _with_run(chosen, abort)


def retry_run(chosen: argparse.Namespace) -> None:
    """Request a run that carries on, and print it."""

    _with_run(chosen, lambda run: run.retry())


# ---------------------------------------------------------------- helpers


def _with_engine(
    chosen: argparse.Namespace, use: "Callable[[SessionStore, Engine], Awaitable[Any]]", *, creates: bool = False
) -> Any:
    from .stores import with_store

    location = configured(chosen).store

    async def run(store: "SessionStore") -> Any:
        engine = open_engine(chosen, location, store)
        try:
            if creates:
                await prepare(location, store, engine)
            return await use(store, engine)
        finally:
            await engine.close()

    return with_store(location, run, creates=creates)


def _with_run(
    chosen: argparse.Namespace, use: "Callable[[RunHandle], Awaitable[RunHandle]]", *, takes_parts: bool = False
) -> None:
    """Find the run that is meant, use it, and print the run that comes of this.

    A decision goes to the session whose whole id was typed; to look at a run, a part of an id will do.
    """

    async def run(store: "SessionStore", engine: "Engine") -> None:
        from ..durable import find_run
        from .stores import find_named, find_session

        session_id = await (find_session if takes_parts else find_named)(store, chosen.session)
        found = await find_run(store, engine, session_id, chosen.serial)
        await _write_run(chosen, store, await use(found))

    _with_engine(chosen, run)


async def _waiting_call(chosen: argparse.Namespace, run: "RunHandle") -> str:
    """Return the call that --call names, or the only one that waits."""
    waiting = [call.tool_call_id for call in await run.waiting_calls()]
    if not waiting:
        raise InvalidValue(f"no call of session {run.session_id!r} waits for a decision: see `dragoman runs show`")
    if chosen.call in waiting or (chosen.call is None and len(waiting) == 1):
        return chosen.call or waiting[0]
    raise InvalidValue(f"name the call with --call; waiting are: {', '.join(waiting)}")


async def _write_run(chosen: argparse.Namespace, store: "SessionStore", run: "RunHandle") -> None:
    from .describedruns import describe_run

    output = Output(color=configured(chosen).color)
    described = await describe_run(store, run)
    if chosen.json:
        output.json(described)
        return
    # A model chooses the ids of its calls: none of what follows may begin another line.
    output.line(unbroken(f"{run.session_id} {run.serial}: {described['status']}, agent {run.agent}, run {run.run_id}"))
    for call in described.get("waiting", ()):
        output.line(f"  waits for a decision: {unbroken(call['tool'])}  [{unbroken(call['id'])}]", "yellow")
    if "error" in described:
        output.line(f"  {described['error']['code']}: {one_line(described['error']['message'])}", "red")
