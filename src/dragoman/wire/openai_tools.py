"""Tool choices and free-text tools in requests of OpenAI's two APIs, which spell them almost alike. Pure."""

from ..toolspec import OneTool, ToolChoice
from .reading import Node
from .request_reading import FREE_TEXT, RequestDraft

__all__ = ["add_free_text_tool", "read_tool_choice"]

_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tool_choice(node: Node, draft: RequestDraft) -> None:
    """Read the choice: a word, one tool by its name, or some tools of which one may or must be used."""
    if isinstance(node.value, str):
        if node.value in _CHOICES:
            draft.choose(_CHOICES[node.value])
        else:
            draft.name_unknown("tool_choice", f"{node.value[:40]!r} is not known")
        return
    kind = node.text_in("type")
    inner = node.child(kind) if isinstance(node.get(kind), dict) else node  # Chat nests them, Responses does not
    if kind in ("function", "custom"):
        draft.choose(OneTool(inner.name_in("name")))
    elif kind == "allowed_tools":
        inner.child("tools").each()
        draft.name_unknown("tool_choice", "the list of allowed tools is not carried over: all tools are allowed")
        draft.choose(_CHOICES.get(inner.text_if("mode") or "auto", "auto"))
    else:
        draft.name_unknown("tool_choice", f"{kind[:40]!r} is not known")


def add_free_text_tool(node: Node, draft: RequestDraft, call_type: str) -> None:
    """Add a tool of free text: one with the argument `input`. Its calls are written as `call_type`."""
    if node.has("format"):
        node.child("format").whole()
        draft.conversation.notes.add(node.where, "the grammar of a free-text tool is not carried over")
    draft.add_tool(node, Node(FREE_TEXT, node.where), call_fields={"type": call_type})
