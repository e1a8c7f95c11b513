"""OpenAI Chat Completions: the body of a request to a conversation, tools and settings. Pure; mirror of `requests`."""

from ...request import ReadRequest
from ..openai_tools import add_free_text_tool, read_tool_choice
from ..reading import Node
from ..request_reading import RequestDraft
from .requests import read_turn

__all__ = ["read_request"]

_KNOWN = frozenset(
    [
        *("model", "stream", "stream_options", "messages", "tools", "tool_choice", "parallel_tool_calls", "n"),
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "response_format"),
        *("reasoning_effort", "reasoning", "prompt_cache_key", "user", "safety_identifier", "web_search_options"),
    ]
)


def read_request(body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
    """Return the request; raise UnreadableData where it is none of this API."""
    draft = RequestDraft(body, "openai_chat")
    root = draft.root
    called: dict[str, str] = {}
    for node in root.child("messages").some():
        read_turn(node, draft.conversation, None, called)
        _read_marks(node, draft)
    for tool in root.each_in("tools"):
        draft.mark(tool)
        _read_tool(tool, draft)
    if root.has("web_search_options"):
        options = root.child("web_search_options")
        draft.add_hosted("web_search", options.whole(), options.where)
    if root.has("tool_choice"):
        read_tool_choice(root.child("tool_choice"), draft)
    if root.value.get("n") == 1:
        root.skip("n")
    draft.read_flag("parallel_tool_calls", "parallel_tool_calls")
    draft.read_number("max_tokens", "max_tokens")  # the older name
    draft.read_number("max_completion_tokens", "max_tokens")
    draft.read_number("temperature", "temperature")
    draft.read_number("top_p", "top_p")
    draft.read_texts("stop", "stop_sequences")
    draft.read_metadata("user", "user_id")
    draft.read_metadata("safety_identifier", "user_id")
    draft.read_metadata("prompt_cache_key", "session_id")
    _read_reasoning(root, draft)
    _read_format(root.child_if("response_format"), draft)
    include_usage = root.child_if("stream_options").flag_in("include_usage")
    return draft.finish(
        known=_KNOWN,
        model=model or None,
        stream=stream or root.flag_in("stream"),
        caches=True,
        include_usage=include_usage,
    )


def _read_marks(node: Node, draft: RequestDraft) -> None:
    """Note the marks of a message's parts, which OpenRouter and others take. The system text has no index."""
    content = node.child("content")
    messages = draft.conversation.messages
    for part in content.each() if isinstance(content.value, list) else ():
        draft.mark(part, len(messages) - 1)


def _read_tool(node: Node, draft: RequestDraft) -> None:
    kind = node.text_if("type") or "function"
    if kind == "function":
        function = node.child("function")
        strict = function.flag_in("strict") if function.has("strict") else None
        draft.add_tool(function, function.child("parameters"), strict=strict)
    elif kind == "custom":
        add_free_text_tool(node.child("custom"), draft, "custom")
    else:
        draft.add_hosted(kind, {name: value for name, value in node.whole().items() if name != "type"}, node.where)


def _read_reasoning(root: Node, draft: RequestDraft) -> None:
    """Read OpenAI's effort, or OpenRouter's object."""
    reasoning = root.child_if("reasoning")
    effort = root.text_if("reasoning_effort") or reasoning.text_if("effort")
    if reasoning.value.get("enabled") is False:
        effort = "off"
    reasoning.skip("enabled")
    draft.think(effort=effort, budget=reasoning.count_in("max_tokens"))


def _read_format(node: Node, draft: RequestDraft) -> None:
    kind = node.text_if("type")
    if kind == "json_schema":
        form = node.child("json_schema")
        form.skip("name", "strict", "description")
        if form.has("schema"):
            draft.shape_output(form.child("schema"))
    elif kind not in (None, "text"):
        draft.name_unknown("response_format", f"{kind[:40]!r} is not carried over: there is no schema")
