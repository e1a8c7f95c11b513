"""Anthropic Messages, as its SDK keeps them, to messages here."""

from typing import Any

from ..errors import UnreadableData
from ..message import FileRef, Image, ModelInvocationDescriptor, ResultPart, Role, Text, ToolResult
from .answers import invocation_of, read_answer, require_new_id
from .imported import Draft, Imported
from .media import decoded, media_by_url, media_of_bytes, stored_file
from .reading import JsonSource, Node, take_json

__all__ = ["import_anthropic"]

SPECIFICATION = "anthropic-messages"

# Block of an answer -> its text, and what rides beside it.
_ANSWER_TEXTS: dict[str, tuple[str, str | None]] = {
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data", None),
}
_USER_FIELDS = frozenset({"role", "content"})
_CACHE_MARK = "cache_control"  # a setting of one request; sent back with every turn, it breaks the limit on them


def import_anthropic(
    messages: JsonSource, system: str | list[dict[str, Any]] | None = None, *, made_by: str | None = None
) -> Imported:
    """Return the conversation that a Messages API list holds; raise UnreadableData where it is none.

    `system` is the request's own, text or blocks. `made_by` (`provider:model`) says which model gave the answers, if it
    was one: without it, signatures and the like are kept and sent to nobody.
    """
    invocation = invocation_of(made_by, SPECIFICATION)
    draft = Draft("anthropic")
    instruction = Node("", "system")
    if system is not None:
        instruction = Node(system, "system") if isinstance(system, str) else take_json(system, "system")
        draft.add_system(_read_system(instruction))
    root = take_json(messages, "messages")
    for node in root.each():
        match node.text_in("role"):
            case "user":
                _read_user(node, draft)
            case "assistant":
                _read_assistant(node, draft, invocation)
            case "system":
                draft.add_system(_read_system(node.child("content")))
            case _:
                raise UnreadableData(f"{node.where}.role must be user or assistant")
    return draft.result(instruction, root)


def _read_system(node: Node) -> str:
    texts = []
    for block in _blocks(node):
        block.skip("type")
        texts.append(block.text_in("text"))
    return "\n\n".join(texts)


def _blocks(content: Node) -> list[Node]:
    """The blocks of a content; a text is short for one block."""
    if isinstance(content.value, list):
        return content.each()
    return [Node({"type": "text", "text": content.text()}, content.where)]


# ---------------------------------------------------------------- user turns


def _read_user(node: Node, draft: Draft) -> None:
    """Add the results first, each as its own message, then what the user said."""
    said: list[ResultPart] = []
    for block in _blocks(node.child("content")):
        if block.text_in("type") == "tool_result":
            _read_result(block, draft)
        else:
            said.append(_read_block(block, draft))
    if said:
        draft.add(Role.USER, list(said), extra=draft.own_fields(node, _USER_FIELDS))


def _read_result(node: Node, draft: Draft) -> None:
    content = node.child("content")
    said: str | tuple[ResultPart, ...] = "" if content.value is None else ()
    if isinstance(content.value, list):
        said = tuple(_read_block(block, draft) for block in content.each())
    elif content.value is not None:
        said = content.text()
    draft.add_result(ToolResult(node.name_in("tool_use_id"), said, is_error=node.flag_in("is_error")))


def _read_block(node: Node, draft: Draft) -> ResultPart:
    match node.text_in("type"):
        case "text":
            return Text(node.text_in("text"))
        case "image" | "document" as kind:
            return _read_media(node, kind, draft)
        case kind:
            return draft.unshown(node, kind)


def _read_media(node: Node, kind: str, draft: Draft) -> ResultPart:
    source, name = node.child("source"), node.text_if("title")
    default = "image/*" if kind == "image" else "application/pdf"
    match source.text_in("type"):
        case "base64":
            return media_of_bytes(decoded(source.child("data")), source.text_in("media_type"), name, node.where)
        case "text":
            source.skip("media_type")
            data = source.text_in("data").encode("utf-8", "replace")
            return FileRef(data=data, mime_type="text/plain", name=name or None)
        case "url":
            found = media_by_url(source.child("url"), default, name)
            return found if kind == "document" or isinstance(found, Image) else draft.unshown(node, kind)
        case "file":  # which picture format it is, only the provider knows; that it is a picture must be told
            return stored_file(source.child("file_id"), None if kind == "document" else "image/png", name)
        case _:
            return draft.unshown(node, kind)


# ---------------------------------------------------------------- assistant turns


def _read_assistant(node: Node, draft: Draft, invocation: ModelInvocationDescriptor | None) -> None:
    seen: set[str] = set()
    content = [_answer_block(block, seen) for block in _blocks(node.child("content"))]
    body = {**node.fields, "type": "message", "content": content}
    draft.messages.append(read_answer(body, SPECIFICATION, invocation, node.where))


def _answer_block(node: Node, seen: set[str]) -> dict[str, Any]:
    """The block as an answer has it, once what it is made of has been seen to be there."""
    kind = node.text_in("type")
    if kind in _ANSWER_TEXTS:
        text, beside = _ANSWER_TEXTS[kind]
        block: dict[str, Any] = {"type": kind, text: node.text_in(text)}
        if beside is not None and node.has(beside):
            found = node.child(beside)
            block[beside] = found.text() if beside == "signature" else [each.value for each in found.each()]
        return block
    if kind == "tool_use":
        node.name_in("name")
        require_new_id(node, "id", seen)
        arguments = node.child("input")
        if arguments.value is not None and not isinstance(arguments.value, (dict, str)):
            raise arguments.wrong("an object")
    return {name: node.get(name) for name in node.value if name != _CACHE_MARK}
