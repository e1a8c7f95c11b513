"""OpenAI Responses: the body of a request to a conversation, tools and settings. Pure; the mirror of `requests`.

The tools of a namespace are tools like the others; their calls name the namespace again. What the server keeps
(`store`, `previous_response_id`, `include` …) is in `other_fields`.
"""

from typing import Any

from ...errors import UnreadableData
from ...message import Message
from ...request import ReadRequest
from ..openai_tools import add_free_text_tool, read_tool_choice
from ..reading import Node
from ..request_reading import RequestDraft
from .requests import ItemReader

__all__ = ["read_request"]

_KNOWN = frozenset(
    [
        *("model", "stream", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
        *("max_output_tokens", "temperature", "top_p", "reasoning", "text", "prompt_cache_key", "user"),
        "safety_identifier",
    ]
)
# Fields that the server reads, and not the model.
_KEPT = ("store", "previous_response_id", "include", "metadata", "truncation", "client_metadata", "stream_options")
# Fields that name a conversation, without which there must be an input.
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")
# Fields that a response repeats.
_ECHOED = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning"),
    *("store", "temperature", "text", "tool_choice", "tools", "top_p", "truncation", "user", "prompt_cache_key"),
)


def read_request(body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
    """Return the request; raise UnreadableData where it is none of this API."""
    draft = RequestDraft(body, "openai_responses")
    root = draft.root
    root.skip(*_KEPT)
    if root.has("instructions"):
        _read_instructions(root.child("instructions"), draft)
    _read_input(root.child("input"), draft)
    if not draft.conversation.messages and not any(root.has(name) for name in _ELSEWHERE):
        raise UnreadableData("request.input must not be empty")
    for tool in root.each_in("tools"):
        _read_tool(tool, draft, {})
    if root.has("tool_choice"):
        read_tool_choice(root.child("tool_choice"), draft)
    draft.read_flag("parallel_tool_calls", "parallel_tool_calls")
    draft.read_number("max_output_tokens", "max_tokens")
    draft.read_number("temperature", "temperature")
    draft.read_number("top_p", "top_p")
    draft.read_metadata("user", "user_id")
    draft.read_metadata("safety_identifier", "user_id")
    draft.read_metadata("prompt_cache_key", "session_id")
    reasoning = root.child_if("reasoning")
    draft.think(
        effort=reasoning.text_if("effort"),
        budget=reasoning.count_in("max_tokens"),
        summary=reasoning.has("summary") or reasoning.has("generate_summary"),
    )
    _read_format(root.child_if("text").child_if("format"), draft)
    echo = {name: root.value[name] for name in _ECHOED if root.value.get(name) is not None}
    return draft.finish(
        known=_KNOWN, model=model or None, stream=stream or root.flag_in("stream"), caches=True, echo=echo
    )


def _read_instructions(node: Node, draft: RequestDraft) -> None:
    """Read the system text; a list of items is the beginning of the conversation."""
    if isinstance(node.value, str):
        draft.conversation.add_system(node.text())
    else:
        _read_input(node, draft)


def _read_input(node: Node, draft: RequestDraft) -> None:
    conversation = draft.conversation
    if isinstance(node.value, str):
        conversation.messages.append(Message.user(node.text()))
    elif node.value is not None:  # with a stored prompt or an earlier response there may be none
        reader = ItemReader(conversation, None)
        for item in node.each():
            reader.read(item)
            content = item.child("content")
            for part in content.each() if isinstance(content.value, list) else ():
                draft.mark(part, len(conversation.messages) - 1)
        reader.end_turn()


def _read_tool(node: Node, draft: RequestDraft, call_fields: dict[str, Any]) -> None:
    kind = node.text_in("type")
    if kind == "function":
        strict = node.flag_in("strict") if node.has("strict") else None
        draft.add_tool(node, node.child("parameters"), strict=strict, call_fields=call_fields)
    elif kind == "custom":
        add_free_text_tool(node, draft, "custom_tool_call")
    elif kind == "namespace":
        node.skip("description")
        for tool in node.each_in("tools"):
            _read_tool(tool, draft, {"namespace": node.name_in("name")})
    else:
        draft.add_hosted(kind, {name: value for name, value in node.whole().items() if name != "type"}, node.where)


def _read_format(node: Node, draft: RequestDraft) -> None:
    kind = node.text_if("type")
    if kind == "json_schema":
        node.skip("name", "strict", "description")
        draft.shape_output(node.child("schema"))
    elif kind not in (None, "text"):
        draft.name_unknown("text.format", f"{kind[:40]!r} is not carried over: there is no schema")
