"""OpenAI Responses items, of an input or an output, to messages here.

The API's list is flat: what the model made in a row (reasoning, texts, calls, hosted tools) is one assistant message.
"""

from typing import Any

from ..errors import UnreadableData
from ..jsontext import encode_json
from ..message import ModelInvocationDescriptor, ResultPart, Role, Text, ToolResult
from .answers import invocation_of, read_answer, require_new_id
from .imported import Draft, Imported
from .media import decoded, media_by_url, media_of_bytes, stored_file
from .reading import JsonSource, Node, take_json

__all__ = ["import_openai_responses", "read_file"]

SPECIFICATION = "openai-responses"

_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_TEXTS = frozenset({"input_text", "output_text", "text"})
_USER_FIELDS = frozenset({"type", "role", "content", "id", "status"})


def import_openai_responses(
    items: JsonSource, *, instructions: str | None = None, made_by: str | None = None
) -> Imported:
    """Return the conversation that a list of Responses items holds; raise UnreadableData where it is none.

    `instructions` are the request's own. `made_by` (`provider:model`) says which model gave the answers, if it was one:
    without it, encrypted reasoning and hosted items are kept and sent to nobody.
    """
    reader = _Reader(Draft("openai_responses"), invocation_of(made_by, SPECIFICATION))
    if instructions is not None:
        reader.draft.add_system(Node(instructions, "instructions").text())
    root = take_json(items, "items")
    for node in root.each():
        reader.read(node)
    reader.end_turn()
    return reader.draft.result(root)


class _Reader:
    """Items one by one; those of the model wait until its turn ends."""

    def __init__(self, draft: Draft, invocation: ModelInvocationDescriptor | None) -> None:
        self.draft = draft
        self._invocation = invocation
        self._turn: list[dict[str, Any]] = []
        self._began = ""
        self._seen: set[str] = set()

    def read(self, node: Node) -> None:
        kind = node.text_if("type") or ("message" if node.has("role") else "item_reference")
        if kind == "message" and node.text_in("role") != "assistant":
            self.end_turn()
            self._read_message(node)
        elif kind in _OUTPUTS:
            self.end_turn()
            node.skip("id", "status")
            self.draft.add_result(ToolResult(node.name_in("call_id"), self._read_content(node.child("output"))))
        else:
            self._began = self._began or node.where
            self._turn.append(_answer_item(node, kind, self._seen))

    def end_turn(self) -> None:
        if self._turn:
            answer = read_answer({"output": self._turn}, SPECIFICATION, self._invocation, self._began)
            self.draft.messages.append(answer)
        self._turn, self._began, self._seen = [], "", set()

    def _read_message(self, node: Node) -> None:
        content = self._read_content(node.child("content"))
        parts = (Text(content),) if isinstance(content, str) else content
        match node.text_in("role"):
            case "system" | "developer":
                self.draft.add_system("\n\n".join(part.text for part in parts if isinstance(part, Text)))
            case "user":
                self.draft.add(Role.USER, list(parts), extra=self.draft.own_fields(node, _USER_FIELDS))
            case _:
                raise UnreadableData(f"{node.where}.role must be one of system, developer, user, assistant")

    def _read_content(self, node: Node) -> str | tuple[ResultPart, ...]:
        if isinstance(node.value, list):
            return tuple(self._read_part(part) for part in node.each())
        return "" if node.value is None else node.text()

    def _read_part(self, node: Node) -> ResultPart:
        kind = node.text_in("type")
        if kind in _TEXTS:
            node.skip("annotations", "logprobs")
            return Text(node.text_in("text"))
        if kind == "input_image":
            if node.value.get("detail") == "auto":
                node.skip("detail")
            if node.has("file_id"):
                return stored_file(node.child("file_id"), "image/png")
            return media_by_url(node.child("image_url"), "image/*")
        if kind == "input_file":
            return read_file(node)
        return self.draft.unshown(node, kind)


def read_file(node: Node) -> ResultPart:
    """Return the file that an object of OpenAI's APIs says, under an id or by its bytes or address."""
    name = node.text_if("filename")
    if node.has("file_id"):
        return stored_file(node.child("file_id"), name=name)
    if node.has("file_url"):
        return media_by_url(node.child("file_url"), name=name)
    data = node.child("file_data")
    if data.text().startswith("data:"):
        return media_by_url(data, name=name)
    return media_of_bytes(decoded(data), "application/pdf", name, node.where)


def _answer_item(node: Node, kind: str, seen: set[str]) -> dict[str, Any]:
    """The item as an answer has it, once what it is made of has been seen to be there."""
    item = {**node.fields, "type": kind}
    match kind:
        case "message":
            content = node.child("content")
            if not isinstance(content.value, list):
                return {**item, "content": [{"type": "output_text", "text": content.text()}]}
            for part in content.each():
                part.text_in("refusal" if part.fields.get("type") == "refusal" else "text")
        case "function_call":
            require_new_id(node, "call_id", seen)
            node.name_in("name")
            arguments = node.child("arguments")
            if isinstance(arguments.value, dict):
                return {**item, "arguments": encode_json(arguments.value).decode()}
            if arguments.value is not None:
                arguments.text()
        case "custom_tool_call":
            require_new_id(node, "call_id", seen)
            node.name_in("name")
            node.text_in("input")
        case "reasoning":
            for name in ("summary", "content"):
                for part in node.each_in(name):
                    Node(part.fields, part.where).text_in("text")
        case _:
            pass
    return item
