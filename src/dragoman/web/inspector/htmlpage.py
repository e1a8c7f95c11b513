"""A session as one HTML file that needs nothing else: no script, no network, every text escaped, pictures inside.

Folds are `<details>`, both themes are in the style sheet. The file's own policy forbids everything but that style
sheet and the pictures. Pure: entries in, text out.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from html import escape as escape_html
from importlib.resources import files
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    RunFinishedEntry,
    RunStartedEntry,
    SteeringEntry,
    SystemInstructionEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
    entry_to_json,
)
from ...jsonform import part_to_object
from ...message import FileRef, Image, Message, Part, ProviderItem, Text, Thinking, ToolCall
from .calls import list_calls, summarise_calls
from .entrydata import picture_type
from .outlines import entry_line, model_of

__all__ = ["session_html"]

FOLD_LINES = 12
LONGEST_ARGUMENTS = 200  # characters, where a band names a call
LONGEST_WORDS = 2_000  # characters of a text inside a line
LONGEST_TEXT = 1 << 20  # characters of one text; a browser must be able to open the file
LONGEST_LINE = 4_000  # characters in one block: Chromium shapes a line of joined letters for minutes
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def session_html(session_id: str, entries: Sequence[HistoryEntry], *, problem: str = "") -> Iterator[str]:
    """Yield the file piece by piece. `problem` says why the entries end where they do, for a broken record."""
    style = files(__package__).joinpath("page", "export.css").read_text("utf-8")
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    title = _safe(session_id)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape_html(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
    broken = f'<p class="warn"><b>Broken</b> after {len(entries):,} entries: {_safe(problem)}</p>\n' if problem else ""
    yield broken
    yield _head(title, entries)
    results, calls = _results(entries), _calls(entries)
    yield "<main>\n"
    for entry in entries:
        if _is_inside(entry, results):
            continue
        yield f'<section id="e{entry.serial}"><a class="serial" href="#e{entry.serial}">#{entry.serial}</a>'
        yield "".join(_entry(entry, results, calls))
        yield "</section>\n"
    yield f"{broken}</main>\n</body>\n</html>\n"


def _head(title: str, entries: Sequence[HistoryEntry]) -> str:
    calls = list_calls(entries)
    total = summarise_calls(calls)
    figures = {
        "Entries": f"{len(entries):,}",
        "Model calls": f"{total['calls']:,}",
        "Models": ", ".join(map(_safe, total["models"])) or "unknown",
        "Input tokens": _number(total["inputTokens"]),
        "From cache": _number(total["cacheReadTokens"]),
        "Output tokens": _number(total["outputTokens"]),
        "Cost": "unknown" if total["cost"] is None else f"${total['cost']:.4f}",
    }
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    turns = "".join(
        f'<li><a href="#e{entry.serial}">{_safe(entry_line(entry)) or "(no text)"}</a></li>'
        for entry in entries
        if isinstance(entry, ModelInputEntry) and not entry.metadata.get("injected")
    )
    contents = f"<details><summary>Turns</summary><ol>{turns}</ol></details>" if turns else ""
    return f"<header><h1>{title}</h1><dl>{listed}</dl>{contents}</header>\n"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


Results = Mapping[str, tuple[int, HistoryToolCallResult]]


def _results(entries: Sequence[HistoryEntry]) -> Results:
    """The result of each call, and the serial of the entry that has it: of a run that broke off, what had arrived."""
    made = {call.tool_call_id for entry in entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls}
    results: dict[str, tuple[int, HistoryToolCallResult]] = {}
    for entry in entries:
        if isinstance(entry, (ToolFinishedEntry, ToolResultsEntry)):
            arrived = (entry.result,) if isinstance(entry, ToolFinishedEntry) else entry.results
            results |= {each.tool_call_id: (entry.serial, each) for each in arrived if each.tool_call_id in made}
    return results


def _outside(entry: ToolResultsEntry, results: Results) -> list[HistoryToolCallResult]:
    """The results of an entry that stand with no call."""
    return [each for each in entry.results if results.get(each.tool_call_id, (-1,))[0] != entry.serial]


def _is_inside(entry: HistoryEntry, results: Results) -> bool:
    """Whether all that an entry says stands with its calls."""
    match entry:
        case ToolStartedEntry():
            return entry.tool_call_id in results
        case ToolFinishedEntry():
            return entry.result.tool_call_id in results
        case ToolResultsEntry():
            return not _outside(entry, results) and not entry.execute_error
        case _:
            return False


Calls = Mapping[str, tuple[ToolCall, ApprovalAnsweredEntry | None]]


def _calls(entries: Sequence[HistoryEntry]) -> Calls:
    """Each call, and what was decided about it."""
    decided = {entry.tool_call_id: entry for entry in entries if isinstance(entry, ApprovalAnsweredEntry)}
    made = (call for entry in entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls)
    return {call.tool_call_id: (call, decided.get(call.tool_call_id)) for call in made}


def _approval(entry: ApprovalAskedEntry | ApprovalAnsweredEntry, calls: Calls) -> str:
    """A question about a call, or its answer: which call, what was changed in it, and why."""
    call, _ = calls.get(entry.tool_call_id, (None, None))
    named = f"<code>{_safe(call.tool_name)} {_safe(call.raw_args_text[:LONGEST_ARGUMENTS])}</code>" if call else ""
    if isinstance(entry, ApprovalAskedEntry):
        title = f"? Asked: {_safe(entry.tool_name)}" if call is None else "? Asked"
        return f"<b>{title}</b> {named} {_safe(entry.reason)}"
    title = "✓ Approved" if entry.approved else '<span class="bad">✕ Denied</span>'
    changed = "" if entry.arguments is None else f" with other arguments: <code>{_safe(_json(entry.arguments))}</code>"
    who = entry.metadata.get("decided_by") or f"a {entry.by}"
    return f"<b>{title}</b> {named}{changed} {_safe(entry.reason)} by {_safe(str(who))}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _entry(entry: HistoryEntry, results: Results, calls: Calls) -> Iterator[str]:
    match entry:
        case ModelInputEntry() | SteeringEntry():
            yield f'<article class="said"><h2>You {_time(entry.timestamp)}</h2>'
            yield from (_part(part) for part in entry.parts)
            yield "</article>"
        case ModelOutputEntry():
            yield f'<article class="answer"><h2>{_safe(model_of(entry) or "unknown model")} {_time(entry.timestamp)}'
            yield f"<small>{_usage(entry)}</small></h2>"
            yield from _message(entry.message, results, calls)
            yield "</article>"
        case ToolResultsEntry():
            yield '<article class="answer">'
            yield from (_result(result) for result in _outside(entry, results))
            yield f"{_safe(entry.execute_error or '')}</article>"
        case ToolFinishedEntry():
            yield f'<article class="answer">{_result(entry.result)}</article>'
        case InterruptionEntry():
            yield f'<article class="band warn"><b>Interrupted</b> {_safe(entry.reason)} {_safe(entry.message)}'
            yield from _message(entry.partial, {}, {}) if entry.partial is not None else ()
            yield "</article>"
        case SystemInstructionEntry(instruction=text) | NotebookEntry(content=text) | CompactionEntry(summary=text):
            yield f'<article class="band"><b>{_safe(str(entry.kind).replace("_", " "))}</b>{_folded(text)}</article>'
        case ApprovalAskedEntry() | ApprovalAnsweredEntry():
            yield f'<article class="band">{_approval(entry, calls)} {_time(entry.timestamp)}</article>'
        case EpochEntry():
            yield f'<article class="band">{_safe(entry_line(entry))} {_time(entry.timestamp)}</article>'
        case RunStartedEntry() | RunFinishedEntry() | ToolStartedEntry():
            yield f'<p class="run">{_safe(entry_line(entry))} {_time(entry.timestamp)}</p>'
        case _:
            written = msgspec.json.format(entry_to_json(entry), indent=2).decode()
            yield f'<article class="band">{_safe(entry_line(entry))}{_details("JSON", written)}</article>'


def _message(message: Message, results: Results, calls: Calls) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, ToolCall):
            found = results.get(part.tool_call_id)
            _, decision = calls.get(part.tool_call_id, (part, None))
            yield _call(part, found[1] if found is not None else None, decision)
        else:
            yield _part(part)


def _call(call: ToolCall, result: HistoryToolCallResult | None, decision: ApprovalAnsweredEntry | None) -> str:
    given = call.raw_args_text if call.arguments is None else _json(call.arguments)
    shown = _result(result, with_name=False) if result is not None else ""
    other = decision.arguments if decision is not None else None
    changed = "" if other is None else f'<div class="warn">Run with other arguments:{_folded(_json(other))}</div>'
    return f'<div class="tool"><b>{_safe(call.tool_name)}</b>{_folded(given)}{changed}{shown}</div>'


def _result(result: HistoryToolCallResult, *, with_name: bool = True) -> str:
    name = f"<b>{_safe(result.tool_name)}</b> " if with_name else ""
    ended = "" if result.error_code is None else f'<b class="bad">{_safe(result.error_code)}</b>'
    attached = "".join(_part(part) for part in result.attachments)
    return f'<div class="result">{name}{ended}{_folded(result.text())}{attached}</div>'


def _part(part: Part) -> str:
    match part:
        case Text():
            return _block(part.text)
        case Thinking():
            return _details("Thinking", part.text)
        case Image():
            return _picture(part)
        case FileRef():
            facts = (part.name, part.path, part.url, part.file_id, part.mime_type)
            return f"<p>[a file: {_safe(', '.join(fact for fact in facts if fact) or 'without a name')}]</p>"
        case ProviderItem():
            return f"<p>[{_safe(part.item_type)}]</p>{_block(part.text) if part.text else ''}"
        case _:
            return f"<p>[{_safe(part.kind)}]</p>{_details('JSON', _json(part_to_object(part)))}"


def _picture(part: Image) -> str:
    if part.data is None:
        return f"<p>[picture, not in the record: {_safe((part.url or '')[:200])}]</p>"
    try:
        kind = picture_type(part.data)
    except InvalidValue:
        return "<p>[a picture that is not drawn]</p>"
    data = base64.b64encode(part.data).decode()
    return f'<img alt="A picture of {len(part.data):,} bytes" src="data:{kind};base64,{data}">'


def _folded(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= FOLD_LINES and len(text) < 4_000:
        return _block(text)
    head = "\n".join(lines[:FOLD_LINES])[:1_000]
    return f'<pre class="short">{_safe(head)}</pre>{_details(f"all {len(lines):,} lines", text)}'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>{_block(text)}</details>"


def _block(text: str) -> str:
    """A text with its lines; a very long line is divided into blocks of their own."""
    rest = f"\n… ({len(text):,} characters)" if len(text) > LONGEST_TEXT else ""
    blocks: list[str] = []
    short: list[str] = []
    for line in f"{text[:LONGEST_TEXT]}{rest}".split("\n"):
        if len(line) <= LONGEST_LINE:
            short.append(line)
            continue
        blocks += ["\n".join(short)] if short else []
        blocks += (line[place : place + LONGEST_LINE] for place in range(0, len(line), LONGEST_LINE))
        short = []
    blocks += ["\n".join(short)] if short else []
    return "".join(f"<pre>{_escaped(block)}</pre>" for block in blocks)


def _usage(entry: ModelOutputEntry) -> str:
    usage: Any = entry.usage
    if usage is None:
        return ""
    cached = "" if usage.cache_read_tokens is None else f", {usage.cache_read_tokens:,} cached"
    return f"{_number(usage.input_tokens)} in{cached}, {_number(usage.output_tokens)} out"


def _time(time: datetime | None) -> str:
    return "" if time is None else f"<time>{time:%Y-%m-%d %H:%M:%S} UTC</time>"


def _safe(text: str) -> str:
    """A text inside a line, as HTML; a very long one is cut and says so."""
    text = str(text)
    return _escaped(f"{text[:LONGEST_WORDS]}… ({len(text):,} characters)" if len(text) > LONGEST_WORDS else text)


def _escaped(text: str) -> str:
    """The text as HTML: nothing in it is markup, and what cannot be seen is written out as in the inspector."""
    return _UNSAFE.sub(_written, escape_html(text))


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
