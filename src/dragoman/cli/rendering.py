"""`dragoman render`: the exact request that each model would get next, without secrets; of several, the differences."""

import argparse
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidValue, UnreadableData
from .arguments import SESSION_HELP, add_common, add_store
from .config import configured
from .output import Output, json_text, unbroken, warn

if TYPE_CHECKING:
    from ..context import ContextStats
    from ..history import AgentState, HistoryEntry
    from ..request import ContextConfig, WireRequest
    from ..store import SessionStore
    from ..toolspec import ToolSpec
    from .settings import Settings

__all__ = ["add_arguments"]

LONG_BASE64 = 200
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """What one model would be sent, and what the context says of it."""

    model: str
    request: "WireRequest"
    stats: "ContextStats"

    def lines(self, *, is_full: bool) -> list[str]:
        """Return the request as people read it: first line, headers, the body with its fields one below the other."""
        import json

        request = self.request
        body = json.loads(request.body)
        shown = json_text(body if is_full else _without_base64(body), indent=2)
        headers = [f"{name}: {value}" for name, value in sorted(request.headers.items())]
        return [f"{request.method} {request.path}", *headers, "", *shown.split("\n")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, render)
    add_store(parser)
    parser.add_argument("session", nargs="?", help=SESSION_HELP)
    parser.add_argument(
        "--file", help="a file of messages instead, in any format that `sessions import` reads; - is input"
    )
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="PROVIDER:NAME",
        help="a model; give it again for a comparison (the session's own, else the one in the settings)",
    )
    parser.add_argument("-p", "--prompt", help="what is said next, before the request")
    parser.add_argument("--tools", metavar="FILE", help="a JSON list of tools: name, description, parameterSchema")
    parser.add_argument("--unified", action="store_true", help="compare as a unified diff, not side by side")
    parser.add_argument("--full", action="store_true", help="print pictures and files, too")
    parser.add_argument("--json", action="store_true", help="as JSON, exactly as it would be sent")


def render(chosen: argparse.Namespace) -> None:
    """Print the requests, or how they differ."""
    from .modelchoice import own_model

    settings = configured(chosen)
    if (chosen.session is None) == (chosen.file is None):
        raise InvalidValue("give a session, or a file of messages with --file")
    state = _state_of_session(settings, chosen.session) if chosen.file is None else _state_of_file(chosen.file)
    own = own_model(state.entries) or settings.model
    names = chosen.models or ([own] if own else [])
    if not names:
        raise InvalidValue("for which model? Give --model provider:name, or set one in the settings")
    if chosen.prompt:
        state.append_model_input(chosen.prompt)
    tools = _read_tools(chosen.tools)
    # Messages from a file belong to no session: nothing can be recalled.
    context = settings.context if chosen.file is None else msgspec.structs.replace(settings.context, recall=False)
    rendered = [_render(settings, name, state, tools, context) for name in names]
    output = Output(color=settings.color)
    if chosen.json:
        output.json([_plain(each) for each in rendered])
    elif len(rendered) == 1:
        _write_one(output, rendered[0], is_full=chosen.full)
    else:
        _write_compared(output, rendered, is_unified=chosen.unified, is_full=chosen.full)


def _render(
    settings: "Settings", name: str, state: "AgentState", tools: "tuple[ToolSpec, ...]", context: "ContextConfig"
) -> Rendered:
    """What an agent with these tools would send: the context that fits the model."""
    from ..agent.contexts import Contexts
    from ..history.media import describe_unreadable
    from ..request import AgentConfig
    from .modelchoice import unsent_model

    model = unsent_model(settings, name)
    contexts = Contexts(AgentConfig(context=context))
    built = contexts.build_now(model, state.entries, tools)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        request = model.render(
            [describe_unreadable(message, model.rules) for message in built.messages],
            built.tool_specs,
            built.system or "",
            request_metadata={"session_id": state.session_id},
            cache_anchors=built.cache_anchors,
        )
    for note in notes:
        warn(str(note.message))
    return Rendered(model=name, request=request, stats=built.stats)


def _state_of_session(settings: "Settings", typed: str) -> "AgentState":
    from .stores import find_session, with_store

    async def load(store: "SessionStore") -> "tuple[str, tuple[HistoryEntry, ...]]":
        session_id = await find_session(store, typed)
        return session_id, await store.load(session_id)

    session_id, entries = with_store(settings.store, load)
    return _state_of(entries, session_id, has_widgets=True)


def _state_of_file(name: str) -> "AgentState":
    from .conversations import read_path

    conversations = read_path(name)
    if len(conversations) != 1:
        raise InvalidValue(f"there are {len(conversations)} conversations in {name}: import them, then name one")
    for warning in conversations[0].warnings:
        warn(warning)
    return _state_of(conversations[0].entries, conversations[0].session_id, has_widgets=False)


def _state_of(entries: "Sequence[HistoryEntry]", session_id: str, *, has_widgets: bool) -> "AgentState":
    from ..history import AgentState

    return AgentState.from_entries(entries, session_id=session_id, widgets=None if has_widgets else ())


def _read_tools(name: str | None) -> "tuple[ToolSpec, ...]":
    from .._jsontext import decode_json
    from ..toolspec import ToolSpec
    from .conversations import read_source

    if name is None:
        return ()
    try:
        return tuple(msgspec.convert(decode_json(read_source(name)), list[ToolSpec]))
    except msgspec.ValidationError as error:
        raise UnreadableData(f"{name} is no list of tools: {error}") from None


# ---------------------------------------------------------------- what is printed


def _plain(rendered: Rendered) -> dict[str, Any]:
    import json

    request = rendered.request
    return {
        "model": rendered.model,
        "method": request.method,
        "path": request.path,
        "headers": dict(sorted(request.headers.items())),
        "body": json.loads(request.body),
        "context": {
            "tokens": rendered.stats.tokens,
            "budget": rendered.stats.budget,
            "counter": rendered.stats.counter,
            "levels": {level.value: count for level, count in rendered.stats.levels.items()},
        },
    }


def _write_one(output: Output, rendered: Rendered, *, is_full: bool) -> None:
    output.line(_summary(rendered), "dim")
    for line in rendered.lines(is_full=is_full):
        output.line(line)


def _write_compared(output: Output, rendered: Sequence[Rendered], *, is_unified: bool, is_full: bool) -> None:
    """Write the first request beside each of the others."""
    from .sidebyside import write_side_by_side, write_unified

    first = rendered[0]
    left = first.lines(is_full=is_full)
    for index, other in enumerate(rendered[1:]):
        if index:
            output.line()
        output.line(_summary(first), "dim")
        output.line(_summary(other), "dim")
        right = other.lines(is_full=is_full)
        if is_unified:
            write_unified(output, left, right, (first.model, other.model))
        else:
            write_side_by_side(output, left, right)


def _summary(rendered: Rendered) -> str:
    stats = rendered.stats
    levels = ", ".join(f"{count} {level.value}" for level, count in stats.levels.items() if count)
    return (
        f"# {unbroken(rendered.model)}: about {stats.tokens:,} of {stats.budget:,} tokens; entries: {levels or 'none'}"
    )


def _without_base64(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_base64(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_base64(each) for each in value]
    if isinstance(value, str) and len(value) > LONG_BASE64:
        head, comma, data = value.rpartition(";base64,")
        if _BASE64.issuperset(data):
            return f"{head}{comma}({len(data):,} characters of Base64; --full prints them)"
    return value
