"""Transcripts of Claude Code (`~/.claude/projects/<folder>/<id>.jsonl`) to messages here.

A line holds one content block of an answer, one result or one input. The lines are a tree: the conversation is the
way from the last line back to the root, with the parallel calls and results that hang beside it.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from .._jsontext import sorted_json
from ..context import INJECTED_KEY
from ..errors import ErrorCode, UnreadableData
from ..message import MessageMeta, ModelInvocationDescriptor, Part, Role, Text
from ..wire.anthropic.requests import read_assistant, read_block, read_user
from ..wire.drafts import ERROR_CODE_KEY, Draft, Imported
from ..wire.media import decoded, media_of_bytes
from ..wire.reading import Node, reading
from .transcripts import TranscriptSource, find_path, no_conversation, read_lines, skip_line

__all__ = ["import_claude_code"]

# What the program notes on every line about itself: ids, folders, versions, and its own copy of a result.
_BOOKKEEPING = frozenset(
    {"type", "message", "attachment", "uuid", "parentUuid", "logicalParentUuid", "isSidechain", "agentId", "sessionId"}
    | {"timestamp", "cwd", "version", "gitBranch", "userType", "entrypoint", "permissionMode", "slug", "origin"}
    | {"promptId", "promptSource", "requestId", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"}
    | {"isApiErrorMessage", "sourceToolAssistantUUID", "toolUseResult", "attributionAgent"}
)
_SYNTHETIC = "<synthetic>"
_REJECTED = "User rejected tool use"
_HUMAN = "human"
_PROMPT = "prompt"


def import_claude_code(source: TranscriptSource, *, sidechain: str | None = None) -> Imported:
    """Return the conversation of a transcript: a Path, its text, or its lines; raise UnreadableData where it is none.

    What was said before a compaction is in the file, so the summary of it is left out. A subagent's lines in the same
    file are left out too: the warning names the id that `sidechain` takes to read them instead.
    """
    draft = Draft("claude_code")
    lines = read_lines(source, draft.notes)
    chains = _find_chains(lines)
    if sidechain is not None and sidechain not in chains:
        raise UnreadableData(f"{lines[0].where}: the file has no subagent {sidechain[:80]!r}")
    # The file of a subagent holds nothing else.
    wanted = sidechain or ("" if "" in chains else next(iter(chains), ""))
    kept = _select([lines[index] for index in chains.get(wanted, [])], draft)
    for line in lines:
        if "message" not in line.value and "attachment" not in line.value:
            skip_line(line, draft, f"{_kind_of(line)[:40]!r} of the program itself")
    for name, indices in chains.items():
        if name != wanted:
            first = lines[indices[0]]
            draft.notes.add(first.where, f"a conversation of {len(indices)} lines is left out: sidechain={name!r}")
    _read(kept, draft)
    if not draft.messages:
        raise no_conversation(lines, "transcript of Claude Code")
    names = [line.value.get("agentId" if wanted else "sessionId") for line in kept]
    draft.session_id = next((name for name in reversed(names) if isinstance(name, str) and name), None)
    return draft.result(*kept)


def _kind_of(line: Node) -> str:
    subtype = line.text_if("subtype")
    return f"{line.text_if('type') or 'a line'}{f' {subtype}' if subtype else ''}"


# ---------------------------------------------------------------- which lines


def _find_chains(lines: list[Node]) -> dict[str, list[int]]:
    """Return the indices of the lines of each conversation.

    The name of the main one is empty. A subagent's is its id, or in earlier versions the id of its first line.
    """
    chains: dict[str, list[int]] = {}
    roots: dict[str, str] = {}
    for index, line in enumerate(lines):
        uuid = line.text_if("uuid")
        if uuid is None:
            continue
        root = ""
        if line.flag_in("isSidechain"):
            root = line.text_if("agentId") or roots.get(line.text_if("parentUuid") or "") or uuid
        roots[uuid] = root
        chains.setdefault(root, []).append(index)
    return chains


def _select(lines: list[Node], draft: Draft) -> list[Node]:
    """Return the lines of the newest branch, each once."""
    on_path = find_path(lines, "uuid", "parentUuid", across="logicalParentUuid")
    # Calls that ran in parallel hang beside the way: their lines have the id of the answer, their results its calls.
    answers = {_answer_id(lines[index]) for index in on_path} - {None}
    chosen = on_path | {index for index, line in enumerate(lines) if _answer_id(line) in answers}
    answered = {call for index in chosen for call in _results(lines[index])}
    called = {call for index in chosen for call in _calls(lines[index])} - answered
    for index, line in enumerate(lines):
        if index not in chosen and (found := called.intersection(_results(line))):
            chosen.add(index)
            called -= found
    seen: set[str] = set()
    kept: list[Node] = []
    for index, line in enumerate(lines):
        uuid = line.text_in("uuid")
        if index in chosen and uuid not in seen:
            kept.append(line)
        elif "message" in line.value:
            skip_line(line, draft, "a copy of a line" if uuid in seen else "a line of a branch that was given up")
        seen.add(uuid)
    return kept


def _answer_id(line: Node) -> str | None:
    """Return the id of the answer that a line is a piece of."""
    message = line.value.get("message")
    found = message.get("id") if line.value.get("type") == "assistant" and isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def _blocks(line: Node) -> Iterable[dict[str, Any]]:
    message = line.value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _calls(line: Node) -> list[str]:
    return [str(block.get("id")) for block in _blocks(line) if block.get("type") == "tool_use"]


def _results(line: Node) -> list[str]:
    return [str(block.get("tool_use_id")) for block in _blocks(line) if block.get("type") == "tool_result"]


# ---------------------------------------------------------------- what they say


def _read(lines: list[Node], draft: Draft) -> None:
    pieces: dict[str, list[Node]] = {}
    for line in lines:
        if (answer := _answer_id(line)) is not None:
            pieces.setdefault(answer, []).append(line)
    for line in lines:
        since, extra = len(draft.messages), None
        with reading(line.where):
            match line.text_if("type"):
                case "user" if line.flag_in("isCompactSummary") and draft.messages:
                    skip_line(line, draft, "a summary of what is there anyhow")
                case "user":
                    read_user(line.child("message"), draft)
                    extra = {INJECTED_KEY: True} if _is_injected(line) else None
                    _mark_rejected(line, draft, since)
                case "assistant" if line.flag_in("isApiErrorMessage"):
                    skip_line(line, draft, "an error of the API, which was shown to the person")
                case "assistant":
                    group = pieces.pop(_answer_id(line) or "", []) if _answer_id(line) else [line]
                    if not group:  # the first line of the answer has read this one
                        continue
                    _read_answer(group, draft)
                case "attachment":
                    extra = _read_attachment(line.child("attachment"), draft)
                case _ if line.has("message"):
                    raise UnreadableData(f"{line.where}.type must be user or assistant")
                case _:
                    continue
            own = draft.own_fields(line, _BOOKKEEPING)
            draft.stamp(since, line.time_in("timestamp"), {**(own or {}), **(extra or {})})


def _is_injected(line: Node) -> bool:
    origin = line.get("origin")
    by_program = isinstance(origin, dict) and origin.get("kind", _HUMAN) != _HUMAN  # a background task that ended
    return by_program or line.flag_in("isMeta") or line.flag_in("isCompactSummary")


def _mark_rejected(line: Node, draft: Draft, since: int) -> None:
    if line.get("toolUseResult") == _REJECTED:
        draft.stamp(since, None, {ERROR_CODE_KEY: ErrorCode.TOOL_DENIED.value})


def _read_answer(lines: list[Node], draft: Draft) -> None:
    """Add an answer. Claude's own blocks can go back to it; a program's stand-in for an answer has no maker."""
    messages = [line.child("message") for line in lines]
    for line in lines[1:]:
        line.skip(*_BOOKKEEPING)
    model = messages[-1].text_if("model") or ""
    maker = ModelInvocationDescriptor("anthropic", "anthropic-messages", model) if model.startswith("claude") else None
    if model == _SYNTHETIC:
        messages = [message.inside({"content": message.fields.get("content")}) for message in messages]
    lacks_calls = messages[-1].value.get("stop_reason") == "tool_use" and not any(map(_calls, lines))
    if lacks_calls:  # the program was ended, or the file copied, before the lines of the calls were written
        messages = [message.inside({**message.fields, "stop_reason": None}) for message in messages]
    read_assistant(_without_copies(messages, draft), draft, maker)
    if lacks_calls:
        draft.notes.add(lines[-1].where, "the calls of this answer were never written: it is recorded as broken off")
        meta = draft.messages[-1].meta or MessageMeta()
        draft.messages[-1] = replace(draft.messages[-1], meta=replace(meta, interrupted=True))


def _without_copies(messages: list[Node], draft: Draft) -> list[Node]:
    """Return the messages without blocks that one before them has: some versions write a block twice."""
    seen: set[bytes] = set()
    kept: list[Node] = []
    for message in messages:
        content = message.get("content")
        blocks = {sorted_json(block) for block in (content if isinstance(content, list) else [content])}
        if kept and blocks <= seen:
            message.whole()
            draft.notes.add(message.where, "a copy of a block is left out")
            continue
        seen |= blocks
        kept.append(message)
    return kept


def _read_attachment(node: Node, draft: Draft) -> dict[str, Any] | None:
    """Add what the program put beside an input. Only it knows how most of these were shown; they are kept unshown."""
    kind = node.text_if("type") or "unknown"
    if kind == "queued_command":  # what was said while the model was working, by the person or by a background task
        prompt = node.child("prompt")
        said = [read_block(block, draft) for block in prompt.each()] if isinstance(prompt.value, list) else []
        draft.add(Role.USER, [*said] if said else [Text(prompt.text())])
        node.skip("timestamp")
        return None if (node.text_if("commandMode") or _PROMPT) == _PROMPT else {INJECTED_KEY: True}
    draft.add(Role.USER, (_file_parts(node) if kind == "file" else None) or [draft.unshown(node, kind)])
    return {INJECTED_KEY: True}


def _file_parts(node: Node) -> list[Part] | None:
    """Return what an attached file shows: its text or its picture; None where it is neither."""
    content = node.value.get("content")
    if not isinstance(content, dict) or not isinstance(content.get("file"), dict):
        return None
    file, name = node.child("content").child("file"), node.text_if("filename") or "A file"
    if isinstance(file.value.get("content"), str):
        node.whole()
        return [Text(f"{name}:\n{file.text_in('content')}")]
    if isinstance(file.value.get("base64"), str) and content.get("type") == "image":
        node.whole()
        picture = media_of_bytes(decoded(file.child("base64")), file.text_if("type"), None, file.where)
        return [Text(f"{name}:"), picture]
    return None
