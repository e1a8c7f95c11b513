"""UI messages of Vercel's AI SDK, as `useChat` keeps them (version 4 and from 5 on), to messages here.

One UI message holds all steps of an answer, each call with its result: a step becomes an assistant message and the
results of its calls.
"""

from datetime import datetime
from typing import Any, NamedTuple

from .._jsontext import encode_json
from ..errors import ErrorCode, UnreadableData
from ..message import (
    FileRef,
    Image,
    Message,
    MessageMeta,
    Part,
    ProviderItem,
    ResultPart,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..wire.drafts import Draft, Imported
from ..wire.media import decoded, media_by_url, media_of_bytes, result_content
from ..wire.reading import JsonSource, Node, reading, require_new_id, take_json

__all__ = ["import_vercel_ui"]

_KNOWN_FIELDS = frozenset(
    {"role", "parts", "content", "createdAt", "reasoning", "toolInvocations", "experimental_attachments"}
)
_STREAMING = "the call was imported while its arguments were still being written"
_FAILED = "The call failed."
_DENIED = "Not run: a person refused it."
_WAITING = frozenset(
    {"input-streaming", "input-available", "approval-requested", "approval-responded", "partial-call", "call"}
)
_UNFINISHED = frozenset({"input-streaming", "partial-call"})


def import_vercel_ui(messages: JsonSource) -> Imported:
    """Return the conversation that a list of UI messages holds; raise UnreadableData where it is none."""
    draft = Draft("vercel")
    root = take_json(messages, "messages")
    for node in root.each():
        timestamp = node.time_in("createdAt")
        parts = _parts_of(node)
        extra = draft.own_fields(node, _KNOWN_FIELDS)
        match node.text_in("role"):
            case "system":
                if extra is not None and set(extra[draft.form]) - {"id"}:
                    draft.notes.add(node.where, "the fields of a system message are not carried over")
                draft.add_system("".join(_read_text(part) for part in parts if part.text_in("type") == "text"))
            case "user":
                said = [read for part in parts for read in _user_parts(part, draft)]
                draft.add(Role.USER, list(said), timestamp=timestamp, extra=extra)
            case "assistant":
                steps = _steps(parts)
                if not steps:
                    draft.notes.add(node.where, "an answer of nothing is left out")
                for step in steps:
                    _read_step(step, draft, timestamp, extra)
                    extra = None
            case "data":
                draft.notes.add(node.where, "a data message, which no model was shown, is left out")
            case _:
                raise UnreadableData(f"{node.where}.role must be one of system, user, assistant")
    return draft.result(root)


def _parts_of(node: Node) -> list[Node]:
    """The parts of a message; of one from before there were parts, what it says in their form."""
    parts = node.each_in("parts")
    if not node.has("parts"):
        if node.has("reasoning"):
            parts.append(Node({"type": "reasoning", "text": node.text_in("reasoning")}, f"{node.where}.reasoning"))
        if node.has("content"):
            parts.append(Node({"type": "text", "text": node.text_in("content")}, f"{node.where}.content"))
        for call in node.each_in("toolInvocations"):
            parts.append(call.inside({"type": "tool-invocation", "toolInvocation": call.value}))
    for attached in node.each_in("experimental_attachments"):
        kind, name = attached.text_if("contentType"), attached.text_if("name")
        file = {"type": "file", "mediaType": kind, "url": attached.text_in("url"), "filename": name}
        parts.append(Node(file, attached.where))
    return parts


def _steps(parts: list[Node]) -> list[list[Node]]:
    steps: list[list[Node]] = [[]]
    for part in parts:
        if part.text_in("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return [step for step in steps if step]


def _user_parts(node: Node, draft: Draft) -> list[ResultPart]:
    match node.text_in("type"):
        case "text":
            return [Text(_read_text(node))]
        case "file":
            return [_read_file(node, draft)]
        case "step-start":
            return []
        case kind:
            return [draft.unshown(node, kind)]


def _read_file(node: Node, draft: Draft) -> Image | FileRef:
    name = node.text_if("filename")
    if node.has("url"):
        file = media_by_url(node.child("url"), node.text_if("mediaType"), name)
    else:
        file = media_of_bytes(decoded(node.child("data")), node.text_if("mimeType"), name, node.where)
    if isinstance(file, Image) and name:
        draft.notes.add(node.where, "the name of a picture is not carried over")
    return file


def _read_text(node: Node) -> str:
    node.skip("state", "id")
    return node.text_in("text")


# ---------------------------------------------------------------- assistant turns


class _Call(NamedTuple):
    """A call as one of the versions writes it: where its name, its arguments and its result stand."""

    node: Node
    name: str
    given: Any
    output: Any

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.node.name_in("toolCallId")


def _read_step(step: list[Node], draft: Draft, timestamp: datetime | None, extra: dict[str, Any] | None) -> None:
    parts: list[Part] = []
    results: list[tuple[ToolResult, ErrorCode | None]] = []
    seen: set[str] = set()
    for node in step:
        kind = node.text_in("type")
        call = _call_of(node, kind)
        if call is None:
            parts.append(_read_part(node, kind, draft))
            continue
        with reading(node.where):
            if call.node.flag_in("providerExecuted"):
                parts.append(ProviderItem(call.name, node.whole()))
                continue
            require_new_id(call.node, "toolCallId", seen)
            parts.append(_read_call(call))
            result = _read_result(call)
            if result is not None:
                results.append(result)
    meta = MessageMeta(extra=extra) if extra else None
    draft.messages.append(Message(Role.ASSISTANT, tuple(parts), "", timestamp, meta))
    for answer, code in results:
        draft.add_result(answer, timestamp=timestamp, error_code=code)


def _read_part(node: Node, kind: str, draft: Draft) -> Part:
    with reading(node.where):
        if kind == "text":
            return Text(_read_text(node), provider_data=_metadata(node, "providerMetadata"))
        if kind == "reasoning" and node.has("text"):
            return Thinking(_read_text(node), provider_data=_metadata(node, "providerMetadata"))
        if kind == "reasoning":  # version 4 repeats the text in its details, where a signature may stand beside it
            details = {"details": node.get("details")} if node.has("details") else None
            return Thinking(node.text_in("reasoning"), provider_data=details)
        if kind == "file":
            file = _read_file(node, draft)
            return draft.unshown(node, kind) if isinstance(file, FileRef) else file
        return draft.unshown(node, kind)


def _metadata(node: Node, name: str) -> dict[str, Any] | None:
    return node.child_if(name).fields or None


def _call_of(node: Node, kind: str) -> _Call | None:
    """The call that a part is; None for any other part."""
    if kind == "tool-invocation" and node.has("toolInvocation"):
        call = node.child("toolInvocation")
        call.skip("step")
        return _Call(call, call.name_in("toolName"), call.get("args"), call.get("result"))
    if kind == "dynamic-tool":
        return _Call(node, node.name_in("toolName"), node.get("input"), node.get("output"))
    if kind.startswith("tool-"):
        return _Call(node, kind.removeprefix("tool-"), node.get("input"), node.get("output"))
    return None


def _read_call(call: _Call) -> ToolCall:
    data = _metadata(call.node, "callProviderMetadata")
    given = call.node.get("rawInput") if call.given is None else call.given
    raw = given if isinstance(given, str) else "" if given is None else encode_json(given).decode()
    if call.node.text_in("state") in _UNFINISHED:
        return ToolCall(call.call_id, call.name, raw_args_text=raw, parse_error=_STREAMING, provider_data=data)
    if given is None or isinstance(given, dict):
        return ToolCall(call.call_id, call.name, given or {}, provider_data=data)
    return ToolCall.parse(call.call_id, call.name, raw, provider_data=data)


def _read_result(call: _Call) -> tuple[ToolResult, ErrorCode | None] | None:
    match call.node.text_in("state"):
        case "output-available" | "result":
            return ToolResult(call.call_id, result_content(call.output)), None
        case "output-error":
            # Arguments that the tool's schema refused are in `rawInput` alone, and their error may have no text.
            code = ErrorCode.INVALID_ARGUMENTS if call.given is None else None
            return ToolResult(call.call_id, call.node.text_if("errorText") or _FAILED, is_error=True), code
        case "output-denied":
            approval = call.node.child_if("approval")
            approval.skip("id", "approved")
            return ToolResult(call.call_id, approval.text_if("reason") or _DENIED, is_error=True), ErrorCode.TOOL_DENIED
        case state if state in _WAITING:
            return None
        case _:
            raise UnreadableData(f"{call.node.where}.state is not one that a call can have")
