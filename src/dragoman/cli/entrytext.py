"""Entries as people read them: on a terminal, one after the other with serial and level, and as Markdown.

What it writes is made safe by `output`; here nothing is hidden and nothing but length is cut.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, assert_never

from ..errors import ErrorCode
from ..history import (
    AbortRequestedEntry,
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ClientAnswerEntry,
    ClientRequestEntry,
    CompactionEntry,
    EpochEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    LevelOfDetail,
    LevelOfDetailSections,
    ModelInputEntry,
    ModelOutputEntry,
    NotebookEntry,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    ResetEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    SamplingEntry,
    SteeringEntry,
    SystemInstructionEntry,
    TakeoverEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolSetEntry,
    ToolStartedEntry,
    UnknownEntry,
    to_plain_text,
    without_live_screen,
)
from ..history.entries import AnyEntry, as_entry
from ..message import FileRef, Image, Message, Part, ProviderItem, Text, Thinking, ToolCall, ToolResult, UnknownPart
from ..usage import TokenUsage
from .output import Output, json_text, one_line, printable, unbroken

__all__ = ["local_time", "markdown_of", "part_text", "title_of", "usage_words", "write_entry"]

TITLE_LENGTH = 100
UNSHOWN_LENGTH = 200  # characters of a part that no model is shown


def write_entry(output: Output, entry: HistoryEntry, level: LevelOfDetail = LevelOfDetail.LIVE) -> None:
    """Write one entry: a line with its serial, kind, time and what is known of it, then what it says at a level."""
    known = as_entry(entry)
    facts = [*_facts(known), *_level_facts(entry, level)]
    output.write(f"#{entry.serial} ", "bold")
    output.write(unbroken(entry.kind), "cyan")
    when = local_time(entry.timestamp) if entry.timestamp else ""
    rest = "  ".join(
        [unbroken(part) for part in (when, f"run {entry.run_id[:8]}" if entry.run_id else "", *facts) if part]
    )
    output.line(f"  {rest}" if rest else "", "dim")
    for text, style in _said(known, level):
        output.indented(text, style)


def local_time(time: datetime, *, seconds: bool = True) -> str:
    """Return a time in the local time zone; in UTC if that would be beyond the years 1 to 9999."""
    try:
        time = time.astimezone()
    except (OverflowError, ValueError):
        pass
    return f"{time:%Y-%m-%d %H:%M:%S}" if seconds else f"{time:%Y-%m-%d %H:%M}"


def title_of(entries: Iterable[HistoryEntry]) -> str:
    """Return what a conversation begins with: the first words of the first input that the program did not add."""
    for entry in entries:
        if isinstance(entry, ModelInputEntry) and not entry.metadata.get("injected"):
            text = one_line(" ".join(part.text for part in entry.parts if isinstance(part, Text)))
            return text[:TITLE_LENGTH] or "(no text)"
    return ""


def usage_words(usage: TokenUsage | None) -> str:
    """Return what a call used, in a few words."""
    if usage is None:
        return ""
    words = []
    if usage.input_tokens is not None:
        cached = f" ({usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
        words.append(f"{usage.input_tokens:,} in{cached}")
    if usage.output_tokens is not None:
        words.append(f"{usage.output_tokens:,} out")
    if usage.cost is not None:
        words.append(f"${usage.cost:.4f}")
    return ", ".join(words)


def part_text(part: Part) -> str:
    """Return a part as one text; of pictures and files what they are."""
    match part:
        case Text() | Thinking():
            return part.text
        case ToolCall():
            return f"{unbroken(part.tool_name)}({part.raw_args_text})"
        case ToolResult():
            content = part.content
            if isinstance(content, tuple):
                return "\n".join(part_text(each) for each in content)
            return content if isinstance(content, str) else json_text(content)
        case Image():
            return unbroken(f"[image {part.mime_type or ''} {_size(part.data, part.url)}]")
        case FileRef():
            name = part.path or part.url or part.file_id or _size(part.data, None)
            return unbroken(f"[file {part.mime_type or ''} {name}]")
        case ProviderItem():
            return part.text or unbroken(f"[{part.item_type}]")
        case UnknownPart():
            text = one_line(f"[{part.kind}] {json_text(part.payload)}")
            return text if len(text) <= UNSHOWN_LENGTH else f"{text[:UNSHOWN_LENGTH]}…"
        case _:
            assert_never(part)


def markdown_of(session_id: str, entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield a conversation as Markdown, piece by piece; what is printed of it is safe for a terminal."""
    yield f"# {title_of(entries) or session_id}\n\n"
    yield f"Session `{printable(session_id)}`, {len(entries)} entries.\n"
    for entry in entries:
        block = _markdown(as_entry(entry))
        if block:
            yield f"\n{printable(block)}\n"


# ---------------------------------------------------------------- what stands beside and below the first line


def _facts(entry: AnyEntry) -> list[str]:
    match entry:
        case ModelOutputEntry():
            return [_model_name(entry.message), usage_words(entry.usage), _finish(entry.message)]
        case ToolStartedEntry() | ApprovalAskedEntry():
            return [entry.tool_name, f"[{entry.tool_call_id}]"]
        case ApprovalAnsweredEntry():
            return ["approved" if entry.approved else "refused", f"by a {entry.by}", f"[{entry.tool_call_id}]"]
        case QuestionAskedEntry() | QuestionAnsweredEntry() | SamplingEntry():
            return _asking_facts(entry)
        case RunRequestedEntry() | RunFinishedEntry() | TakeoverEntry():
            return _run_facts(entry)
        case ClientRequestEntry() | ClientAnswerEntry():
            return _exchange_facts(entry)
        case InterruptionEntry():
            return [entry.reason]
        case CompactionEntry():
            return [f"for #{entry.first_serial} to #{entry.last_serial}", usage_words(entry.usage)]
        case EpochEntry() | ToolSetEntry():
            return _call_facts(entry)
        case NotebookEntry():
            return [entry.operation]
        case (
            ModelInputEntry()
            | ToolResultsEntry()
            | SystemInstructionEntry()
            | ToolFinishedEntry()
            | RunStartedEntry()
            | SteeringEntry()
            | AbortRequestedEntry()
            | ResetEntry()
            | UnknownEntry()
        ):
            return []
        case _:
            assert_never(entry)


def _asking_facts(entry: QuestionAskedEntry | QuestionAnsweredEntry | SamplingEntry) -> list[str]:
    match entry:
        case QuestionAskedEntry():
            return [entry.origin, f"[{entry.question_id}]"]
        case QuestionAnsweredEntry():
            return [entry.action, f"by a {entry.by}", f"[{entry.question_id}]"]
        case SamplingEntry():
            return [entry.origin, usage_words(entry.usage), entry.error_code or "", f"[{entry.tool_call_id}]"]


def _asking_pieces(entry: QuestionAskedEntry | QuestionAnsweredEntry | SamplingEntry) -> Iterator[tuple[str, str]]:
    match entry:
        case QuestionAskedEntry():
            yield from ((text, "") for text in (entry.text, entry.url) if text)
        case QuestionAnsweredEntry():
            yield from [(json_text(entry.content), "")] if entry.content is not None else ()
        case SamplingEntry():
            yield from ((part_text(part), "dim") for message in entry.messages for part in message.parts)
            yield from _message_pieces(entry.answer) if entry.answer is not None else ()


def _run_facts(entry: RunRequestedEntry | RunFinishedEntry | TakeoverEntry) -> list[str]:
    match entry:
        case RunRequestedEntry():
            return [f"of the agent {entry.agent!r}", f"with the key {entry.key!r}" if entry.key else ""]
        case RunFinishedEntry():
            return [entry.status, entry.error_code or ""]
        case TakeoverEntry():
            return [f"{entry.owner} takes over from {entry.previous}"]


def _call_facts(entry: EpochEntry | ToolSetEntry) -> list[str]:
    match entry:
        case EpochEntry():
            return [f"because of {entry.reason}"]
        case ToolSetEntry():
            return [f"{len(entry.digests)} tools", f"for {entry.invocation.provider}:{entry.invocation.model}"]


def _exchange_facts(entry: ClientRequestEntry | ClientAnswerEntry) -> list[str]:
    match entry:
        case ClientRequestEntry():
            return [entry.api, entry.model, f"with the key {entry.client!r}" if entry.client else ""]
        case ClientAnswerEntry():
            whole = "" if entry.is_whole else "not whole"
            return [f"to #{entry.request_serial}", entry.model, f"status {entry.status}", whole]


def _interruption_pieces(entry: InterruptionEntry) -> Iterator[tuple[str, str]]:
    if entry.message:
        yield entry.message, ""
    if entry.provider_message:
        yield f"the provider said: {entry.provider_message}", "red"
    if entry.partial is not None:
        yield from _message_pieces(entry.partial)


def _said(entry: AnyEntry, level: LevelOfDetail) -> Iterator[tuple[str, str]]:
    """What an entry says, each piece with its style."""
    match entry:
        case SystemInstructionEntry(instruction=text) | NotebookEntry(content=text):
            yield text or "(none)", ""
        case (
            CompactionEntry(summary=text)
            | ApprovalAskedEntry(reason=text)
            | ApprovalAnsweredEntry(reason=text)
            | AbortRequestedEntry(reason=text)
            | RunFinishedEntry(message=text)
        ):
            yield from [(text, "")] if text else ()
        case QuestionAskedEntry() | QuestionAnsweredEntry() | SamplingEntry():
            yield from _asking_pieces(entry)
        case SteeringEntry() | RunRequestedEntry():
            yield from ((part_text(part), "") for part in entry.parts)
        case ModelInputEntry():
            texts = map(part_text, entry.parts) if level is LevelOfDetail.LIVE else [_level_text(entry.sections, level)]
            yield from ((text, "") for text in texts)
        case ModelOutputEntry():
            yield from _message_pieces(entry.message)
        case InterruptionEntry():
            yield from _interruption_pieces(entry)
        case ToolResultsEntry():
            yield from [(entry.execute_error, "red")] if entry.execute_error else ()
            yield from (piece for result in entry.results for piece in _result_pieces(result, level))
        case ToolFinishedEntry():
            yield from _result_pieces(entry.result, level)
        case UnknownEntry():
            yield json_text(entry.payload), "dim"
        case (
            ToolStartedEntry()
            | RunStartedEntry()
            | TakeoverEntry()
            | ClientRequestEntry()  # its conversation stands in other entries
            | ClientAnswerEntry()
            | ToolSetEntry()
            | EpochEntry()
            | ResetEntry()
        ):
            pass
        case _:
            assert_never(entry)


def _message_pieces(message: Message) -> Iterator[tuple[str, str]]:
    for part in message.parts:
        if isinstance(part, Thinking):
            yield f"(thinking) {part.text or '(not shown by its provider)'}", "dim"
        elif isinstance(part, ToolCall):
            yield f"→ {part_text(part)}  [{unbroken(part.tool_call_id)}]", "magenta"
            if part.parse_error:
                yield f"  not readable: {one_line(part.parse_error)}", "yellow"
        else:
            yield part_text(part), ""
    if not message.parts:
        yield "(nothing)", "dim"


def _result_pieces(result: HistoryToolCallResult, level: LevelOfDetail) -> Iterator[tuple[str, str]]:
    took = f" in {result.elapsed_seconds:.2f} s" if result.elapsed_seconds is not None else ""
    ended = f"{result.status} ({result.error_code})" if result.error_code else str(result.status)
    if result.error_code is ErrorCode.TOOL_INTERRUPTED:
        ended = "interrupted"  # it may have run: the text says what is known
    style = "green" if result.error_code is None else "red"
    yield unbroken(f"← {result.tool_name}: {ended}{took}  [{result.tool_call_id}]"), style
    yield result.text(level), ""
    if level is LevelOfDetail.LIVE:
        yield from ((part_text(part), "") for part in result.attachments)


def _level_facts(entry: HistoryEntry, level: LevelOfDetail) -> list[str]:
    """How long an entry is at each level, where that differs."""
    if isinstance(entry, ModelInputEntry):
        levels = [entry.sections]
    elif isinstance(entry, ToolResultsEntry):
        levels = [result.result for result in entry.results]
    else:
        return []
    sizes = {each: sum(len(_level_text(sections, each)) for sections in levels) for each in LevelOfDetail}
    if len(set(sizes.values())) == 1:
        return [] if level is LevelOfDetail.LIVE else [f"{level} as live"]
    listed = ", ".join(f"{each} {size:,}" for each, size in sizes.items())
    return [f"levels: {listed} characters"]


def _level_text(sections: LevelOfDetailSections, level: LevelOfDetail) -> str:
    return to_plain_text(without_live_screen(sections.get_sections(level))[0])


def _model_name(message: Message) -> str:
    invocation = message.meta.invocation if message.meta else None
    if invocation is not None:
        return f"{invocation.provider}:{invocation.model}"
    return (message.meta.model_id if message.meta else None) or ""


def _finish(message: Message) -> str:
    reason = message.meta.finish_reason if message.meta else None
    return "" if reason is None or reason == "stop" else str(reason)


def _size(data: bytes | None, url: str | None) -> str:
    return f"{len(data):,} bytes" if data is not None else (url or "")


# ---------------------------------------------------------------- Markdown


def _markdown(entry: AnyEntry) -> str:
    match entry:
        case SystemInstructionEntry():
            return f"## System\n\n{entry.instruction or '(none)'}"
        case ModelInputEntry():
            return "## User\n\n" + "\n\n".join(part_text(part) for part in entry.parts)
        case ModelOutputEntry():
            name = _model_name(entry.message)
            return f"## Assistant{f' ({unbroken(name)})' if name else ''}\n\n" + _markdown_message(entry.message)
        case InterruptionEntry():
            said = _markdown_message(entry.partial) if entry.partial is not None else ""
            return f"## Assistant (cut off: {entry.reason})\n\n{said}".rstrip()
        case ToolResultsEntry():
            return "\n\n".join(_markdown_result(result) for result in entry.results)
        case NotebookEntry():
            return f"### Notebook\n\n{_fenced(entry.content or '(none)')}"
        case CompactionEntry():
            return f"### Summary of {entry.first_serial} to {entry.last_serial}\n\n{entry.summary}"
        case ResetEntry():
            return "---"
        case (
            ApprovalAskedEntry()
            | ApprovalAnsweredEntry()
            | QuestionAskedEntry()
            | QuestionAnsweredEntry()
            | SamplingEntry()
            | ToolStartedEntry()
            | ToolFinishedEntry()
            | RunStartedEntry()
            | RunFinishedEntry()
            | SteeringEntry()
            | RunRequestedEntry()
            | AbortRequestedEntry()
            | TakeoverEntry()
            | ClientRequestEntry()
            | ClientAnswerEntry()
            | ToolSetEntry()
            | EpochEntry()
            | UnknownEntry()
        ):
            return ""
        case _:
            assert_never(entry)


def _markdown_message(message: Message) -> str:
    blocks = []
    for part in message.parts:
        if isinstance(part, Thinking):
            if part.text:
                blocks.append("\n".join(f"> {line}".rstrip() for line in part.text.split("\n")))
        elif isinstance(part, ToolCall):
            blocks.append(f"Calls `{unbroken(part.tool_name)}`:\n\n{_fenced(part.raw_args_text, 'json')}")
        else:
            blocks.append(part_text(part))
    return "\n\n".join(blocks)


def _markdown_result(result: HistoryToolCallResult) -> str:
    code = f" ({result.error_code})" if result.error_code else ""
    texts: list[Any] = [result.text(), *(part_text(part) for part in result.attachments)]
    return f"### Result of `{unbroken(result.tool_name)}`{code}\n\n" + _fenced(
        "\n".join(text for text in texts if text)
    )


def _fenced(text: str, language: str = "") -> str:
    """A block that no run of backticks inside it can end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
