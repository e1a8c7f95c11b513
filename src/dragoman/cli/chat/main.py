"""The command `chat`: talk to a model at a terminal, or get one answer for a script.

This module reads the command line and puts the parts together; what it needs is loaded when it runs.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue, StoreError
from ..arguments import add_common
from ..config import configured
from ..output import Output, one_line, unbroken, wants_color, warn
from ..settings import McpServerSettings, Settings
from .options import APPROVALS, add_talk_options

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from ...store import SessionStore
    from ...tools import ToolDefinition
    from ...tools.mcp import McpServer
    from .loop import Chat
    from .talk import Talk

__all__ = ["FIRST_QUESTION", "add_arguments", "chat", "read_piped"]

# What is asked if the user asks nothing: standard input is at its end. The README promises an answer to it.
FIRST_QUESTION = "What is the capital of France?"

LARGEST_INPUT = 16 * 1024 * 1024
LAST_WORDS = 200  # characters of what was said last, when a session goes on
HISTORY_FILE = "chat_history"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, chat)
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="print one answer and end; a pipe's text goes along")
    add_talk_options(parser)
    parser.add_argument("--plain", action="store_true", help="draw nothing: plain lines, as on a dumb terminal")


def chat(chosen: argparse.Namespace) -> int:
    """Talk, or answer once; return the exit status."""
    import asyncio

    if chosen.goes_on and chosen.session is not None:
        raise InvalidValue("-c goes on with the last session and -s names one: give one of them")
    settings = configured(chosen)
    prompt = read_prompt(chosen.prompt)
    if prompt is None and chosen.json:
        raise InvalidValue("--json needs something to answer: -p TEXT, or a pipe")
    if not getattr(chosen, "debug", False):
        _silence_logs()
    return asyncio.run(_run(chosen, settings, prompt))


def read_prompt(given: str | None) -> str | None:
    """Return what to answer at once: the option and what is piped in, or the first question where there is neither.

    None at a terminal without the option: there a person types.
    """
    if given is not None:
        piped = read_piped() if _is_pipe() else ""
        return f"{given}\n\n{piped}".strip() if piped.strip() else _required(given)
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    piped = read_piped()
    if piped.strip():
        return piped.strip()
    sys.stderr.write(f"> {FIRST_QUESTION}\n")
    return FIRST_QUESTION


def _required(given: str) -> str:
    if not given.strip():
        raise InvalidValue("there is nothing to answer: the prompt is empty")
    return given


def _is_pipe() -> bool:
    """Whether standard input is something that was given on purpose: a pipe or a file, no terminal and no device."""
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_piped() -> str:
    """Return what is piped in; raise InvalidValue where that is too long."""
    if sys.stdin is None:
        return ""
    data = sys.stdin.buffer.read(LARGEST_INPUT + 1)
    if len(data) > LARGEST_INPUT:
        raise InvalidValue(f"standard input is too long: at most {LARGEST_INPUT // 1024 // 1024} MB are read")
    return data.decode("utf-8", "replace")


def _silence_logs() -> None:
    """Keep logs and warnings off the screen; `--debug` leaves them there."""
    import logging

    logging.getLogger().addHandler(logging.NullHandler())
    logging.captureWarnings(capture=True)


# ---------------------------------------------------------------- putting it together


async def _run(chosen: argparse.Namespace, settings: Settings, prompt: str | None) -> int:
    from contextlib import AsyncExitStack

    from ..localmodels import show_progress
    from ..stores import open_store
    from .models import ChatModels
    from .talk import Talk, TalkOptions

    async with AsyncExitStack() as stack:
        tools = await _open_tools(chosen, settings, stack)
        store: SessionStore = await stack.enter_async_context(open_store(settings.store, creates=True))
        models = ChatModels(settings, tell=warn, on_progress=show_progress)
        stack.push_async_callback(models.close)
        options = TalkOptions(
            instructions=chosen.system or settings.instructions,
            system=chosen.system,
            temperature=chosen.temperature,
            max_tokens=chosen.max_tokens,
            think=chosen.think,
            approval=APPROVALS[chosen.approve],
            context=settings.context,
            has_person=prompt is None,
        )
        talk = Talk(store, models, tools=tools, options=options)
        await _open_session(talk, chosen)
        why = await _open_model(talk, chosen, settings)
        if prompt is not None:
            from .once import answer_once

            return await answer_once(talk, prompt, as_json=chosen.json, wait_seconds=chosen.wait)
        await _make_chat(talk, settings, is_plain=chosen.plain, why=why).run()
    return 0


async def _open_session(talk: "Talk", chosen: argparse.Namespace) -> None:
    from ...errors import ErrorCode
    from ...store.refusals import require_new_session_id
    from ..stores import LATEST, find_latest, find_session, is_part_of_id

    goes_on = chosen.goes_on or chosen.session == LATEST
    try:
        if goes_on:
            await talk.open((await find_latest(talk.store)).session_id)
        elif chosen.session is not None:
            require_new_session_id(chosen.session, "-s")
            # A name is taken whole: `-s job1` must not go on with `job10`.
            is_part = is_part_of_id(chosen.session)
            await talk.open(await find_session(talk.store, chosen.session) if is_part else chosen.session)
    except StoreError as error:
        if error.code is not ErrorCode.NOT_FOUND or await _was_erased(talk, chosen.session):
            raise
        if goes_on:
            warn("there is no session yet: this begins one")
        else:
            warn(f"there is no session {chosen.session!r} yet: this begins it")
            talk.name_session(chosen.session)


async def _was_erased(talk: "Talk", session_id: str | None) -> bool:
    return session_id is not None and await talk.store.tombstone(session_id) is not None


async def _open_model(talk: "Talk", chosen: argparse.Namespace, settings: Settings) -> str:
    """Open the model that is meant, and return why it is that one: the option, the session's own, or the settings'."""
    from .models import choose_model
    from .talk import last_model

    if chosen.model is not None:
        name, why = chosen.model, ""
    elif talk.session is not None and (before := last_model(talk.session)) is not None:
        name, why = before, "as before"
    else:
        name, why = choose_model(settings)
    await talk.use(name)
    return why


async def _open_tools(
    chosen: argparse.Namespace, settings: Settings, stack: "AsyncExitStack"
) -> "list[ToolDefinition]":
    from .tools import builtin_tools

    tools: list[ToolDefinition] = []
    if chosen.tools is not None:
        tools += builtin_tools(chosen.tools or settings.tools_folder, settings.tools)
    elif settings.tools or settings.tools_folder is not None:
        tools += builtin_tools(settings.tools_folder, settings.tools)
    for server in _servers(chosen, settings):
        opened = await stack.enter_async_context(server)
        tools += opened.tools
        for problem in opened.problems:
            warn(problem)
    return tools


def _servers(chosen: argparse.Namespace, settings: Settings) -> "list[McpServer]":
    known = settings.mcp_servers
    wanted = chosen.mcp or ([] if chosen.no_mcp else list(known))
    return [_server(name, settings) for name in wanted]


def _server(name: str, settings: Settings) -> "McpServer":
    """An MCP server by its name in the settings, its URL, or its command. The chat asks before each call."""
    import shlex

    from ...tools.mcp import McpServer

    known = settings.mcp_servers.get(name)
    if known is not None and known.url is not None:
        return McpServer.http(known.url, known.headers, **_server_options(name, known))
    if known is not None:
        assert known.command is not None  # the settings have one of the two
        return McpServer.stdio(
            known.command,
            *known.args,
            env=known.env,
            cwd=known.cwd,
            **_server_options(name, known),
        )
    if name.startswith(("http://", "https://")):
        return McpServer.http(name, requires_approval=True)
    try:
        words = shlex.split(name)
    except ValueError:
        words = []
    if not words:
        raise InvalidValue(f"--mcp: {name[:60]!r} is no server: give a name of the settings, a URL, or a command")
    return McpServer.stdio(words[0], *words[1:], requires_approval=True)


def _server_options(name: str, known: McpServerSettings) -> Any:
    return {
        "name": name,
        "prefix": f"{name}_",
        "requires_approval": True,
        "allow_elicitation": known.allow_elicitation,
        "allow_sampling": known.allow_sampling,
    }


# ---------------------------------------------------------------- the screen


def _make_chat(talk: "Talk", settings: Settings, *, is_plain: bool, why: str) -> "Chat":
    from ..folders import state_folder
    from .commands import complete
    from .input import LineHistory, PlainEditor, PromptEditor
    from .loop import Chat
    from .plain_view import PlainView

    output = Output(color=settings.color)
    has_color = wants_color(sys.stdout, settings.color)
    history = LineHistory(state_folder() / HISTORY_FILE)
    _greet(talk, output, why)
    if is_plain or not _can_draw(output):
        return Chat(talk, PlainView(output, output), PlainEditor(history), output, prints_status=True)
    from .rich_view import RichView

    view = RichView(has_color=has_color, theme=settings.theme)
    drawn: Chat
    editor = PromptEditor(
        history,
        complete=complete,
        on_fold=lambda: drawn.toggle_thinking(),  # noqa: PLW0108  # it is made below
        has_color=has_color,
    )
    drawn = Chat(talk, view, editor, output)
    return drawn


def _can_draw(output: Output) -> bool:
    """Whether the terminal can be drawn on, and what it takes is installed."""
    from importlib.util import find_spec

    if not (sys.stdin.isatty() and output.is_terminal) or os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return False
    if find_spec("rich") is None or find_spec("prompt_toolkit") is None:
        output.line("for a better screen: pip install 'dragoman[chat]'", "dim")
        return False
    return True


def _greet(talk: "Talk", output: Output, why: str) -> None:
    output.write("dragoman", "bold")
    output.line(f" · {unbroken(talk.model_name)}{f' ({why})' if why else ''}")
    if talk.session is not None:
        output.line(f"going on with {talk.session.session_id}, {talk.session.state.next_serial} entries", "dim")
        for mark, said in talk.last_exchange():
            output.line(f"{mark} {one_line(said)[:LAST_WORDS]}", "dim")
    if talk.tools and not talk.can_use_tools:
        output.line(f"{talk.model_name} takes no tools: they are of no use here", "yellow")
    output.line("/help lists the commands, Ctrl-D leaves", "dim")
    output.line()
