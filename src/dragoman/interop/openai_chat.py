"""OpenAI Chat Completions messages, as its SDK and everything compatible keep them, to messages here."""

from typing import Any

from ..errors import UnreadableData
from ..jsontext import encode_json
from ..message import ModelInvocationDescriptor, ResultPart, Role, Text, ToolResult
from .answers import invocation_of, read_answer, require_new_id
from .imported import Draft, Imported
from .media import decoded, media_by_url, media_of_bytes
from .openai_responses import read_file
from .reading import JsonSource, Node, take_json

__all__ = ["import_openai_chat"]

SPECIFICATION = "openai-chat"

_SOUND_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_TEXT_FIELDS = ("refusal", "reasoning_content", "reasoning", "reasoning_text")
_USER_FIELDS = frozenset({"role", "content"})


def import_openai_chat(messages: JsonSource, *, made_by: str | None = None) -> Imported:
    """Return the conversation that a Chat Completions message list holds; raise UnreadableData where it is none.

    `made_by` (`provider:model`) says which model gave the answers, if it was one: without it, what only that provider
    understands is kept and sent to nobody.
    """
    invocation = invocation_of(made_by, SPECIFICATION)
    draft = Draft("openai_chat")
    called: dict[str, str] = {}  # the newest call of each function in the old form, which has no ids
    root = take_json(messages, "messages")
    for node in root.each():
        match node.text_in("role"):
            case "system" | "developer":
                draft.add_system(_read_text(node.child("content")))
            case "user":
                draft.add(Role.USER, list(_read_user(node, draft)), extra=draft.own_fields(node, _USER_FIELDS))
            case "assistant":
                _read_assistant(node, draft, invocation, called)
            case "tool":
                content = _read_content(node.child("content"), draft)
                node.skip("name")
                draft.add_result(ToolResult(node.name_in("tool_call_id"), content))
            case "function":
                name = node.name_in("name")
                call_id = called.pop(name, f"function_{name}")
                draft.add_result(ToolResult(call_id, _read_content(node.child("content"), draft)))
            case _:
                raise UnreadableData(
                    f"{node.where}.role must be one of system, developer, user, assistant, tool, function"
                )
    return draft.result(root)


def _read_text(node: Node) -> str:
    """Return the text that a string, or an array of text parts, says."""
    if isinstance(node.value, list):
        return "\n\n".join(part.text_in("text") for part in node.each())
    return "" if node.value is None else node.text()


def _read_content(node: Node, draft: Draft) -> str | tuple[ResultPart, ...]:
    if isinstance(node.value, list):
        return tuple(_read_part(part, draft) for part in node.each())
    return "" if node.value is None else node.text()


def _read_user(node: Node, draft: Draft) -> tuple[ResultPart, ...]:
    content = _read_content(node.child("content"), draft)
    return (Text(content),) if isinstance(content, str) else content


def _read_part(node: Node, draft: Draft) -> ResultPart:
    match node.text_in("type"):
        case "text":
            return Text(node.text_in("text"))
        case "image_url":
            source = node.child("image_url")
            if isinstance(source.value, str):
                return media_by_url(source, "image/*")
            found = media_by_url(source.child("url"), "image/*")
            if source.value.get("detail") == "auto":
                source.skip("detail")
            return found
        case "input_audio":
            sound = node.child("input_audio")
            form = sound.text_in("format")
            return media_of_bytes(
                decoded(sound.child("data")), _SOUND_TYPES.get(form, f"audio/{form}"), None, node.where
            )
        case "file" if isinstance(node.get("file"), dict):
            return read_file(node.child("file"))
        case kind:
            return draft.unshown(node, kind)


# ---------------------------------------------------------------- assistant turns


def _read_assistant(
    node: Node, draft: Draft, invocation: ModelInvocationDescriptor | None, called: dict[str, str]
) -> None:
    message = {name: value for name, value in node.fields.items() if value is not None}
    for name in _TEXT_FIELDS:
        node.text_if(name)
    if "content" in message:
        message.update(_answer_content(node))
    seen: set[str] = set()
    message["tool_calls"] = [_read_call(call, seen) for call in node.each_in("tool_calls")]
    old_form = node.child("function_call")
    if old_form.value is not None:
        old_form.name_in("name")
        old_form.text_in("arguments")
    answer = read_answer({"choices": [{"message": message}]}, SPECIFICATION, invocation, node.where)
    if old_form.value is not None:
        called[old_form.text_in("name")] = answer.tool_calls[-1].tool_call_id
    draft.messages.append(answer)


def _answer_content(node: Node) -> dict[str, Any]:
    """What the content says, as an answer has it: a refusal among the texts stands beside them there."""
    content = node.child("content")
    if not isinstance(content.value, list):
        return {"content": content.text()}
    parts, refusals = [], []
    for part in content.each():
        kind = part.text_in("type")
        if kind == "refusal":
            refusals.append(part.text_in("refusal"))
        else:
            parts.append({"type": kind, "text": part.text_in("text")} if kind == "text" else part.fields)
    return {"content": parts, **({"refusal": "".join(refusals)} if refusals else {})}


def _read_call(node: Node, seen: set[str]) -> dict[str, Any]:
    require_new_id(node, "id", seen)
    call = {name: node.get(name) for name in ("id", "type", "extra_content") if node.has(name)}
    node.skip("index")
    if node.has("custom"):
        custom = node.child("custom")
        return {**call, "custom": {"name": custom.name_in("name"), "input": custom.text_in("input")}}
    function = node.child("function")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some hosts give the object itself
        arguments = encode_json(arguments).decode()
    elif arguments is not None:
        arguments = function.text_in("arguments")
    return {**call, "function": {"name": function.name_in("name"), "arguments": arguments or ""}}
