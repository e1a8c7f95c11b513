"""Anthropic Messages: the body of a request to a conversation, tools and settings. Pure; the mirror of `requests`.

A cache mark anchors the message that holds its block. Marks on tools and on the system text say only that the client
wants its prefix cached: encoders mark both by themselves.
"""

from ...message import ToolResult
from ...request import ReadRequest
from ...toolspec import OneTool, ToolChoice
from ..reading import Node
from ..request_reading import RequestDraft
from .requests import DATED_TYPE, HOSTED_TOOLS, read_system, read_turn

__all__ = ["read_request"]

_KNOWN = frozenset(
    [
        *("model", "stream", "messages", "system", "max_tokens", "temperature", "top_p", "stop_sequences", "tools"),
        *("tool_choice", "thinking", "output_config", "metadata", "cache_control"),
    ]
)
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}


def read_request(body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
    """Return the request; raise UnreadableData where it is none. Hosts that name the model in the path give `model`."""
    draft = RequestDraft(body, "anthropic")
    root = draft.root
    if root.has("system"):
        system = root.child("system")
        draft.conversation.add_system(read_system(system, draft.conversation))
        for block in system.each() if isinstance(system.value, list) else ():
            draft.mark(block)
    for node in root.child("messages").some():
        _read_marked_turn(node, draft)
    for tool in root.each_in("tools"):
        draft.mark(tool)
        _read_tool(tool, draft)
    if root.has("tool_choice"):
        _read_choice(root.child("tool_choice"), draft)
    draft.read_number("max_tokens", "max_tokens")
    draft.read_number("temperature", "temperature")
    draft.read_number("top_p", "top_p")
    draft.read_texts("stop_sequences", "stop_sequences")
    _read_thinking(root.child_if("thinking"), root.child_if("output_config"), draft)
    draft.read_metadata("user_id", "user_id", root.child_if("metadata"))
    draft.mark(root)  # the newer form: the API marks the last block itself
    return draft.finish(known=_KNOWN, model=model or None, stream=stream or root.flag_in("stream"), caches=False)


def _read_marked_turn(node: Node, draft: RequestDraft) -> None:
    """Read one message. It becomes several of ours: each result is one, then what the user said."""
    messages = draft.conversation.messages
    first = len(messages)
    read_turn(node, draft.conversation, None)
    content = node.child("content")
    results = 0
    for block in content.each() if isinstance(content.value, list) else ():
        if block.value.get("type") == "tool_result":
            _mark_result(block, draft, first + results)
            results += 1
        else:
            draft.mark(block, len(messages) - 1 if len(messages) > first else None)


def _mark_result(block: Node, draft: RequestDraft, index: int) -> None:
    """A mark inside a result anchors the result."""
    assert isinstance(draft.conversation.messages[index].parts[0], ToolResult)
    draft.mark(block, index)
    content = block.child("content")
    for inner in content.each() if isinstance(content.value, list) else ():
        draft.mark(inner, index)


def _read_tool(node: Node, draft: RequestDraft) -> None:
    kind = node.text_if("type")
    if kind in (None, "custom"):
        strict = node.flag_in("strict") if node.has("strict") else None
        draft.add_tool(node, node.child("input_schema"), strict=strict)
        return
    dated = DATED_TYPE.fullmatch(kind)
    name = dated[1] if dated is not None and dated[1] in HOSTED_TOOLS else kind
    options = {key: value for key, value in node.whole().items() if key not in ("type", "name", "cache_control")}
    draft.add_hosted(name, options, node.where)


def _read_choice(node: Node, draft: RequestDraft) -> None:
    kind = node.text_in("type")
    if node.has("disable_parallel_tool_use"):
        draft.settings["parallel_tool_calls"] = not node.flag_in("disable_parallel_tool_use")
    if kind == "tool":
        draft.choose(OneTool(node.name_in("name")))
    elif kind in _CHOICES:
        draft.choose(_CHOICES[kind])
    else:
        draft.name_unknown("tool_choice", f"{kind[:40]!r} is not known")


def _read_thinking(thinking: Node, output: Node, draft: RequestDraft) -> None:
    """Adaptive thinking without an effort is what models do by themselves: it sets nothing."""
    kind, effort = thinking.text_if("type"), output.text_if("effort")
    budget = thinking.count_in("budget_tokens") if kind == "enabled" else None
    draft.think(
        effort="off" if kind == "disabled" else effort,
        budget=budget,
        summary=thinking.text_if("display") == "summarized",
    )
    form = output.child_if("format")
    if form.text_if("type") == "json_schema":
        draft.shape_output(form.child("schema"))
