"""Requests written down again: of a call that was made, or of the next one, for any target; as curl, without the key.

A request is cut into units (headers, settings, system, each tool, each block of an entry), so that two of them can be
laid beside each other by what they say.
"""

import shlex
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..._jsontext import decode_json
from ...context import ContextBuildInput, ContextBuildResult, ContextManager
from ...errors import InvalidValue, UnreadableData
from ...history import HistoryEntry, ModelOutputEntry, ToolSetEntry, ToolSets
from ...history.exchanges import body_of
from ...history.media import describe_unreadable
from ...models import Model
from ...request import WireRequest
from ...review import PastCall, PastRequests
from ...toolspec import ToolSpec
from ...wire import find_dialect
from .blocks import blocks_with_serials
from .contextparts import describe_parts, read_context
from .entrydata import unlike_marks
from .jobs import Check, never_abandon

__all__ = [
    "LARGEST_SHOWN",
    "Rendered",
    "Unit",
    "as_curl",
    "model_name_of",
    "render_call",
    "render_past",
    "shorten",
    "units_of",
]

LARGEST_SHOWN = 2 << 20  # bytes of a body; of a longer one the beginning is shown
LONGEST_ARGUMENT = 100_000  # bytes: Linux takes 128 KiB in one argument of a command
LONGEST_TEXT = 2_000  # characters of one text in a unit
_CONVERSATION = ("messages", "input", "contents")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_TOOLS = ("tools", "toolConfig")
_KEY_HEADERS = {
    "bearer": "Authorization: Bearer ",
    "x-api-key": "x-api-key: ",
    "api-key": "api-key: ",
    "x-goog-api-key": "x-goog-api-key: ",
    "token": "Authorization: Bearer ",
}


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A request, what it was built from, and what could not be said in it.

    `serials` are those of the entries that the context's messages come from, None for the ledger.
    """

    model: Model
    name: str
    request: WireRequest
    context: ContextBuildResult
    serials: tuple[int | None, ...]
    notes: tuple[str, ...] = ()


class Unit(msgspec.Struct, frozen=True):
    """A piece of a request: under which key it is laid beside another one, and its JSON."""

    key: str
    value: Any


def render_call(
    model: Model,
    name: str,
    entries: Sequence[HistoryEntry],
    *,
    session_id: str,
    is_past: bool = False,
    check: Check = never_abandon,
) -> Rendered:
    """Return the request of the next call after these entries, with the tools that the record says last.

    With `is_past` it is laid out as the recorded epochs say.
    """
    given = ContextBuildInput(
        entries=entries,
        now=datetime.now(UTC),
        tools=_newest_tools(entries),
        model_info=model.model_info(),
        invocation=model.invocation,
        rules=model.rules,
        screen_in_result=not model.rules.user_after_tool,
    )
    manager = ContextManager()
    if is_past:
        built = rebuilt = manager.rebuild_context(given)
    else:
        built = manager.build_context(given)
        begun = [msgspec.structs.replace(entry, serial=len(entries)) for entry in built.entries]
        rebuilt = manager.rebuild_context(msgspec.structs.replace(given, entries=[*entries, *begun]))
    check()
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        request = model.render(
            [describe_unreadable(message, model.rules) for message in built.messages],
            built.tool_specs,
            built.system or "",
            request_metadata={"session_id": session_id},
            cache_anchors=built.cache_anchors,
        )
    return Rendered(
        model=model,
        name=name,
        request=request,
        context=built,
        serials=_serials(rebuilt, entries, model),
        notes=tuple(str(note.message) for note in notes),
    )


def _newest_tools(entries: Sequence[HistoryEntry]) -> tuple[ToolSpec, ...]:
    """The tools of the newest tool set, none where the record does not say them."""
    tool_sets, newest = ToolSets(), None
    for entry in entries:
        if isinstance(entry, ToolSetEntry):
            tool_sets.add(entry)
            newest = entry
    try:
        return () if newest is None else tool_sets.tools_of(newest)
    except UnreadableData:
        return ()


def render_past(
    model: Model,
    call: PastCall,
    entries: Sequence[HistoryEntry],
    *,
    session_id: str,
    requests: PastRequests | None = None,
    check: Check = never_abandon,
) -> Rendered:
    """Return the request of a call that was made: with the recorded tools and settings, or what a client sent.

    `requests` are those of the session, where several calls are rendered in their order.
    """
    if call.request is None:
        past = (requests or PastRequests(entries, session_id=session_id)).render(call)
        notes = ("this is what was sent, to the byte",) if past.is_exact else ()
        request, context = past.request, past.context
    else:
        asked = call.request
        body = body_of(lambda serial: entries[serial] if 0 <= serial < len(entries) else None, asked)
        rebuilt = render_call(
            model, call.model, entries[: call.serial], session_id=session_id, is_past=True, check=check
        )
        request = WireRequest(path=asked.path, body=body.encode(), method=asked.method, headers=dict(asked.headers))
        context, notes = rebuilt.context, ("this is what the client sent",)
    check()
    serials = _serials(context, entries[: call.serial], model)
    return Rendered(model=model, name=call.model, request=request, context=context, serials=serials, notes=notes)


def _serials(context: ContextBuildResult, entries: Sequence[HistoryEntry], model: Model) -> tuple[int | None, ...]:
    """The serial of the entry that each message of a context comes from."""
    if context.sources or not context.messages:
        return tuple(source.serial for source in context.sources)
    parts = describe_parts(read_context(entries, model.invocation))  # the policy `simple` says no sources
    return tuple(part.serial for part in parts if part.messages)


def model_name_of(entry: HistoryEntry) -> str:
    """Return the name of the model that answered; raise InvalidValue where the record does not say it."""
    invocation = entry.invocation if isinstance(entry, ModelOutputEntry) else None
    if invocation is None:
        raise InvalidValue("the record does not say which model was asked: choose one")
    return f"{invocation.provider}:{invocation.model}"


def as_curl(rendered: Rendered) -> str:
    """Return the request as a command line, with a variable in the place of the key."""
    request, client = rendered.request, rendered.model.client
    provider, _, model_id = rendered.name.partition(":")
    lines = [f"curl -sS {shlex.quote(f'{client.host}{request.path}')}"]
    try:
        dialect = find_dialect(provider, model_id)
    except InvalidValue:
        dialect = None
    if dialect is not None and dialect.auth in _KEY_HEADERS:
        variable = next(iter(dialect.key_variables), "API_KEY")
        lines.append(f'-H "{_KEY_HEADERS[dialect.auth]}${variable}"')
    elif dialect is not None and dialect.auth == "aws":
        lines.append('--aws-sigv4 "aws:amz:$AWS_REGION:bedrock" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"')
    lines += (f"-H {shlex.quote(f'{name}: {value}')}" for name, value in sorted(request.headers.items()))
    body = request.body.decode()
    if len(request.body) <= LONGEST_ARGUMENT:
        return " \\\n  ".join([*lines, f"--data-raw {shlex.quote(body)}"])
    end = "END"
    while end in body:
        end += "_"
    return " \\\n  ".join([*lines, f"--data-binary @- <<'{end}'\n{body}\n{end}\n"])


# ---------------------------------------------------------------- units


def units_of(rendered: Rendered, check: Check = never_abandon) -> list[Unit]:
    """Return a request in pieces, in its order: headers, settings, system, tools, then the conversation."""
    request = rendered.request
    body = decode_json(request.body)
    headers = [f"{request.method} {request.path}", *(f"{name}: {value}" for name, value in request.headers.items())]
    settings: dict[str, Any] = {}
    system: list[Any] = []
    tools: list[Any] = []
    said: list[Any] = []
    for name, value in body.items():
        if name in _CONVERSATION and isinstance(value, list):
            said = value
        elif name in _SYSTEM:
            system = value if isinstance(value, list) else [{name: value}]
        elif name in _TOOLS:
            tools = list(_tools(value))
        else:
            settings[name] = value
    units = [Unit("headers", headers), Unit("settings", settings)]
    units += (Unit("system", each) for each in system)
    units += (Unit(f"tool {_tool_name(each)}", each) for each in tools)
    for serial, block in blocks_with_serials(said, rendered.context.messages, rendered.serials):
        check()
        units.append(Unit("ledger" if serial is None else f"#{serial}", block))
    return units


def _tools(value: Any) -> Iterator[Any]:
    """The tools one by one: some APIs wrap them in groups."""
    if isinstance(value, dict):
        yield from _tools(value.get("tools", []))
        return
    for tool in value if isinstance(value, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("functionDeclarations"), list):
            yield from tool["functionDeclarations"]
        else:
            yield tool


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return "?"
    for inner in (tool, *(tool.get(name) for name in ("function", "toolSpec"))):
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return str(tool.get("type", "?"))


def shorten(value: Any, longest: int = LONGEST_TEXT) -> Any:
    """Return the value with long texts cut, each as `{"$cut": {"head", "length"}}`: the whole is to be had beside."""
    if isinstance(value, str) and len(value) > longest:
        return {"$cut": {"head": value[:longest], "length": len(value)}}
    if isinstance(value, list):
        return [shorten(each, longest) for each in value]
    if isinstance(value, dict):
        return {unlike_marks(name): shorten(each, longest) for name, each in value.items()}
    return value
