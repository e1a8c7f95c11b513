"""The commands of the chat: `/model`, `/undo` and the others. Each is a row of the table and a function."""

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..._nearest import nearest
from ...context import MARKER, count_message, find_counter
from ...errors import DragomanError, ErrorCode, InvalidValue
from ...history import OpenCall
from ...message import Role
from ...usage import TokenUsage
from ..entrytext import local_time, part_text, title_of
from ..output import NARROW, one_line, wrapped, write_table
from ..stores import each_session, find_session
from ..transfer import EXPORTS, written
from .loop import Chat, Leave, read_arguments
from .models import DEFAULTS, EMBEDDED
from .status import count_words, level_words

if TYPE_CHECKING:
    from ...store import SessionInfo

__all__ = ["COMMANDS", "ChatCommand", "complete", "find_command"]

MOST_SESSIONS = 20
KEYS = "Enter sends; Alt-Enter, or a backslash at the end, begins a new line; Ctrl-C stops a reply; Ctrl-D leaves"
_ENDINGS = {".jsonl": "jsonl", ".json": "openai", ".md": "markdown"}
_COMMAND = re.compile(r"/([A-Za-z?]+)(?:\s+|$)(.*)", re.DOTALL)


class ChatCommand(NamedTuple):
    """A command: its arguments, its description and its implementation."""

    usage: str
    words: str
    run: Callable[[Chat, str], Awaitable[None]]


def find_command(text: str) -> tuple[ChatCommand | None, str]:
    """Return the command in a line and the rest of the line; None if the line is something to say.

    Raises InvalidValue for an unknown command: a typing mistake is not sent to a model.
    """
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None, ""
    name = found[1].lower()
    name = _SHORT.get(name, name)
    if name not in COMMANDS:
        hint = nearest(name, COMMANDS, "/help lists them")
        raise InvalidValue(f"there is no command /{name[:30]}: {hint}")
    return COMMANDS[name], found[2].strip()


def complete(typed: str) -> Iterator[str]:
    """Yield what the last word of a line may become."""
    if not typed.startswith("/"):
        return
    first, space, rest = typed.partition(" ")
    if not space:
        yield from (f"/{name}" for name in COMMANDS if f"/{name}".startswith(first))
        return
    word = rest.rpartition(" ")[2]
    choices: dict[str, Callable[[], Iterable[str]]] = {"/model": _model_names, "/export": lambda: EXPORTS}
    if first in choices:
        yield from (each for each in choices[first]() if each.startswith(word))


def _model_names() -> Iterator[str]:
    from ...catalogue import list_models

    yield EMBEDDED
    for info in list_models():
        if info.provider in DEFAULTS:
            yield f"{info.provider}:{info.model_id}"


# ---------------------------------------------------------------- models, tools, what is known


async def _model(chat: Chat, name: str) -> None:
    if not name:
        chat.tell(f"talking to {chat.talk.model_name}; /model provider:name talks to another")
        return
    await chat.talk.use(name)
    chat.changed()
    chat.tell(f"now talking to {chat.talk.model_name}", "green")


async def _tools(chat: Chat, _argument: str) -> None:
    talk = chat.talk
    if not talk.can_use_tools:
        chat.tell(f"{talk.model_name} takes no tools", "yellow")
    own = {tool.name: tool for tool in talk.tools}
    rows = []
    for spec in talk.tool_specs:
        asks = "" if spec.name not in own or own[spec.name].requires_approval is False else "asks first"
        rows.append((spec.name, asks, spec.description or ""))
    if rows:
        _print_rows(chat, ("TOOL", "", "WHAT IT DOES"), rows)
    if not own:
        chat.tell("no tools are on: dragoman chat --tools FOLDER turns on those that read")


async def _notebook(chat: Chat, argument: str) -> None:
    session = chat.talk.session
    if session is None:
        raise InvalidValue("there is no conversation yet: say something first")
    verb, _, text = argument.partition(" ")
    if verb == "set" and text.strip():
        await session.update_memory_notebook(text.strip())
    elif verb == "clear":
        await session.update_memory_notebook(None)
    elif argument:
        raise InvalidValue("/notebook shows it, /notebook set TEXT writes it, /notebook clear empties it")
    notebook = session.state.derived.notebook
    chat.output.line(notebook or "(the notebook is empty)", "" if notebook else "dim")


async def _context(chat: Chat, _argument: str) -> None:
    built = chat.talk.context()
    if built is None:
        chat.tell("nothing would be sent: nothing was said yet")
        return
    stats, output = built.stats, chat.output
    size = f"{count_words(stats.tokens)} of {count_words(stats.budget)} tokens, as {stats.counter} counts"
    chat.tell(f"{size}; entries: {level_words(stats.levels)}", "")
    counter = find_counter(*_invocation(chat))
    rows = [("", "system", count_words(counter.count(built.system)), built.system)] if built.system else []
    last = len(built.messages) - 1
    for index, message in enumerate(built.messages):
        text = " ".join(part_text(part) for part in message.parts)
        is_folded = message.role is Role.USER and text.startswith(MARKER)
        is_screen = index == last and text.startswith("# [Live Screen]")
        level = "folded" if is_folded else "screen" if is_screen else "live"
        cached = " ⚓" if index in built.cache_anchors else ""
        size = count_words(count_message(message, counter))
        rows.append((f"{level}{cached}", message.role.value, size, text[:400]))
    if built.tool_specs:
        names = ", ".join(spec.name for spec in built.tool_specs)
        rows.append(("", "tools", str(len(built.tool_specs)), names))
    write_table(output, ("LEVEL", "ROLE", "TOKENS", "SAYS"), rows, right=frozenset({2}))
    if stats.cut:
        chat.tell(f"cut because they are too long by themselves: {', '.join(f'#{each}' for each in stats.cut)}")


def _invocation(chat: Chat) -> tuple[str, str]:
    assert chat.talk.model is not None
    who = chat.talk.model.invocation
    return who.provider, who.model


async def _cost(chat: Chat, _argument: str) -> None:
    spent = chat.talk.spent()
    if not spent:
        chat.tell("nothing was spent yet")
        return
    total = TokenUsage()
    rows = []
    for each in spent:
        total += each.usage
        name = f"{each.invocation.provider}:{each.invocation.model}" if each.invocation else "(unknown)"
        rows.append(_cost_row(each.answers, each.usage, name))
    if len(spent) > 1:
        rows.append(_cost_row(sum(each.answers for each in spent), total, "all together"))
    head = ("MODEL", "ANSWERS", "IN", "CACHED", "OUT", "COST")
    _print_rows(chat, head, rows, right=frozenset(range(1, 5)))


def _cost_row(answers: int, usage: TokenUsage, name: str) -> tuple[str, ...]:
    cost = f"${usage.cost:.4f}" if usage.cost is not None else "-"
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
    return (name, str(answers), *(f"{count:,}" if count is not None else "-" for count in counts), cost)


async def _thinking(chat: Chat, _argument: str) -> None:
    chat.toggle_thinking()


# ---------------------------------------------------------------- sessions


async def _fork(chat: Chat, name: str) -> None:
    before = await chat.talk.fork(name or None)
    assert chat.talk.session is not None
    chat.changed()
    chat.tell(f"now in {chat.talk.session.session_id}, forked from {before}", "green")


async def _undo(chat: Chat, _argument: str) -> None:
    said = await chat.talk.undo()
    assert chat.talk.session is not None
    chat.changed()
    chat.tell(f"back before: {one_line(said)[:60]}", "green")
    chat.tell(f"now in {chat.talk.session.session_id}; the other session is kept")


async def _sessions(chat: Chat, typed: str) -> None:
    store = chat.talk.store
    if typed:
        await chat.talk.open(await find_session(store, typed))
        assert chat.talk.session is not None
        chat.changed()
        chat.tell(f"now in {chat.talk.session.session_id}", "green")
        return
    found = [info async for info in each_session(store) if not isinstance(info, str)]
    found.sort(key=lambda info: info.updated_at, reverse=True)
    if not found:
        chat.tell("no sessions yet")
        return
    here = chat.talk.session.session_id if chat.talk.session is not None else None
    rows = [(await _session_row(chat, info, is_here=info.session_id == here)) for info in found[:MOST_SESSIONS]]
    _print_rows(chat, ("SESSION", "", "USED", "BEGINS WITH"), rows)
    chat.tell("/sessions ID goes on with one")


async def _session_row(chat: Chat, info: "SessionInfo", *, is_here: bool) -> tuple[str, ...]:
    title = info.metadata.get("title")
    if not isinstance(title, str) or not title:
        try:
            title = title_of(await chat.talk.store.load(info.session_id, until_serial=8))
        except DragomanError as error:
            title = f"({error.code})"
    when = local_time(info.updated_at, seconds=False)
    return (info.session_id, "here" if is_here else "", when[5:], title)


async def _export(chat: Chat, argument: str) -> None:
    session = chat.talk.session
    if session is None:
        raise InvalidValue("there is no conversation yet: say something first")
    path, form = _destination(argument, session.session_id)
    _write_private(path, list(written(form, session.session_id, tuple(session.entries))))
    chat.tell(f"written to {path} as {form}", "green")


def _destination(argument: str, session_id: str) -> tuple[Path, str]:
    """The file and the format that are meant; one that is not named follows from the other."""
    words = argument.split()
    form = words.pop() if words and words[-1] in EXPORTS else None
    if not words:
        form = form or "markdown"
        ending = next((each for each, known in _ENDINGS.items() if known == form), ".json")
        return Path(f"{session_id}{ending}"), form
    path = Path(os.path.expanduser(" ".join(words)))  # noqa: PTH111  # Path's own raises where there is no such user
    form = form or _ENDINGS.get(path.suffix)
    if form is None:
        raise InvalidValue(f"which format? /export FILE {'|'.join(EXPORTS)}")
    return path, form


def _write_private(path: Path, pieces: list[str]) -> None:
    try:
        # What people and models said is private: for the owner alone.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
    except FileExistsError:
        raise DragomanError(f"{path} is there already: name another file", code=ErrorCode.CONFLICT) from None
    except OSError as error:
        raise DragomanError(f"{path} cannot be written: {error.strerror}", code=ErrorCode.PERMISSION) from None


# ---------------------------------------------------------------- runs


async def _retry(chat: Chat, _argument: str) -> None:
    if not chat.talk.is_unfinished:
        raise InvalidValue("there is nothing to ask again: the last answer is whole")
    await chat.reply(None)


async def _approve(chat: Chat, argument: str) -> None:
    calls, rest = _meant(chat, argument)
    arguments = read_arguments(rest) if rest else None
    for call in calls:
        await chat.talk.agent.approve(call.tool_call_id, arguments=arguments)
    await _go_on(chat)


async def _deny(chat: Chat, argument: str) -> None:
    calls, reason = _meant(chat, argument)
    for call in calls:
        await chat.talk.agent.deny(call.tool_call_id, reason=reason)
    await _go_on(chat)


def _meant(chat: Chat, argument: str) -> tuple[list[OpenCall], str]:
    """The calls that a decision is about: the named one, all, or the only one; and the rest of the line."""
    pending = chat.talk.pending
    if not pending:
        raise InvalidValue("no call waits for an answer")
    first, _, rest = argument.partition(" ")
    if first == "all":
        return list(pending), rest.strip()
    named = [call for call in pending if call.tool_call_id == first]
    if named:
        return named, rest.strip()
    if len(pending) > 1:
        listed = ", ".join(f"{call.tool_call_id} ({call.request.tool_name})" for call in pending)
        raise InvalidValue(f"which one? {listed}; or all")
    return list(pending), argument


async def _go_on(chat: Chat) -> None:
    """Carry on when everything is answered."""
    left = chat.talk.pending
    if left:
        chat.tell(f"still waiting: {', '.join(call.tool_call_id for call in left)}")
    else:
        await chat.reply(None)


# ---------------------------------------------------------------- the rest


async def _help(chat: Chat, _argument: str) -> None:
    output = chat.output
    used = max(len(f"/{name} {command.usage}") for name, command in COMMANDS.items()) + 2
    has_columns = output.width >= used + 30
    for name, command in COMMANDS.items():
        title = f"/{name} {command.usage}".rstrip()
        indent = used if has_columns else 4
        lines = wrapped(command.words, output.width - indent - 1)
        output.write(f"{title:<{used}}" if has_columns else f"{title}\n    ", "bold")
        output.line(f"\n{' ' * indent}".join(lines))
    for line in wrapped(KEYS, output.width - 1):
        output.line(line, "dim")


def _print_rows(
    chat: Chat, head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> None:
    """Print a table, or on a narrow screen each row as a name with what is known of it below."""
    if chat.output.width >= NARROW:
        write_table(chat.output, head, rows, right=right)
        return
    for name, *facts in rows:
        chat.tell(name, "bold")
        named = zip(head[1:], facts, strict=True)
        words = [f"{fact} {title.lower()}" if fact.replace(",", "").isdecimal() else fact for title, fact in named]
        for line in wrapped(one_line(" · ".join(word for word in words if word.strip("-"))), chat.output.width - 3):
            chat.output.line(f"  {line}")


async def _quit(_chat: Chat, _argument: str) -> None:
    raise Leave


COMMANDS: dict[str, ChatCommand] = {
    "help": ChatCommand("", "list the commands", _help),
    "model": ChatCommand("provider:name", "talk to another model; the conversation stays", _model),
    "tools": ChatCommand("", "list the tools that the model has", _tools),
    "notebook": ChatCommand("[set TEXT|clear]", "show the memory notebook, or change it", _notebook),
    "context": ChatCommand("", "show what the model sees now, and at which level of detail", _context),
    "thinking": ChatCommand("", "fold or unfold what the model thinks (Ctrl-T)", _thinking),
    "cost": ChatCommand("", "show what was used, by model", _cost),
    "undo": ChatCommand("", "go back before the last turn, in a fork", _undo),
    "fork": ChatCommand("[ID]", "go on in a copy of this conversation", _fork),
    "retry": ChatCommand("", "ask again for an answer that failed or was cut off", _retry),
    "sessions": ChatCommand("[ID]", "list the sessions, or go on with one", _sessions),
    "export": ChatCommand("[FILE] [FORMAT]", f"write this conversation to a file: {', '.join(EXPORTS)}", _export),
    "approve": ChatCommand("[CALL|all] [JSON]", "let a call run that waits, with other arguments if given", _approve),
    "deny": ChatCommand("[CALL|all] [WHY]", "do not let it run, and tell the model why", _deny),
    "quit": ChatCommand("", "leave; the conversation is kept", _quit),
}
_SHORT = {"exit": "quit", "q": "quit", "h": "help", "?": "help", "m": "model"}
