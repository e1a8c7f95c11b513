"""Gemini generateContent: the body of a request to a conversation, tools and settings. Pure; the mirror of `requests`.

The address names the model and says whether the answer is streamed. Calls without an id get one of their own; their
results are matched by name and order, as the API does it. Fields may be in snake case too: the API takes both.
"""

import re
from collections import OrderedDict
from typing import Any

from msgspec.structs import replace

from ...errors import UnreadableData
from ...message import Message, MessageMeta, ResultPart, Role, Text, ToolResult
from ...request import ReadRequest
from ...toolspec import OneTool
from ..drafts import Draft
from ..media import decoded, media_by_url, media_of_bytes
from ..reading import Node
from ..request_reading import RequestDraft
from ..stored_answers import read_answer
from .dialects import SPECIFICATION
from .requests import HOSTED_TOOLS, TOOL_MODES, UNSIGNED

__all__ = ["read_request"]

_KNOWN = frozenset(["model", "stream", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"])
_SNAKE = re.compile(r"_([a-z])")
# Objects whose keys are the caller's own.
_OPAQUE = frozenset(
    ["args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels"]
)
_OWN_WORDS = {wire: word for word, wire in HOSTED_TOOLS.items()}
_CHOICES = {wire: word for word, wire in TOOL_MODES.items()}
_USUAL = {"candidateCount": 1, "responseModalities": ["TEXT"]}  # settings that say nothing new
_SCHEMA_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"properties", "$defs", "defs"})


def read_request(body: bytes, *, model: str = "", stream: bool = False) -> ReadRequest:
    """Return the request; raise UnreadableData where it is none of this API."""
    draft = RequestDraft(body, "gemini")
    draft.root = Node(_camelised(draft.root.value), draft.root.where)
    root = draft.root
    root.skip("model", "stream")
    if root.has("systemInstruction"):
        draft.conversation.add_system(_read_system(root.child("systemInstruction")))
    contents = root.child("contents")
    _Contents(draft.conversation).read(contents)
    tools = root.child("tools")
    for tool in [tools] if isinstance(tools.value, dict) else root.each_in("tools"):
        _read_tool(tool, draft)
    _read_choice(root.child_if("toolConfig").child_if("functionCallingConfig"), draft)
    settings = root.child_if("generationConfig")
    draft.read_number("temperature", "temperature", settings)
    draft.read_number("topP", "top_p", settings)
    draft.read_number("maxOutputTokens", "max_tokens", settings)
    draft.read_texts("stopSequences", "stop_sequences", settings)
    _read_output_schema(settings, draft)
    _read_thinking(settings.child_if("thinkingConfig"), draft)
    for name, usual in _USUAL.items():
        if settings.value.get(name) == usual:
            settings.skip(name)
    return draft.finish(known=_KNOWN, model=model or None, stream=stream, caches=True)


def _camelised(value: Any) -> Any:
    """The value with all names of the API's own fields in camel case."""
    if isinstance(value, list):
        return [_camelised(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = ((_SNAKE.sub(lambda found: found[1].upper(), name), inner) for name, inner in value.items())
    return {name: inner if name in _OPAQUE else _camelised(inner) for name, inner in named}


# ---------------------------------------------------------------- conversation


def _read_system(node: Node) -> str:
    if isinstance(node.value, str):
        return node.text()
    node.skip("role")
    return "\n\n".join(part.text_in("text") for part in node.each_in("parts"))


class _Contents:
    """Reads contents into a draft. It knows the calls that wait for a result, by their name."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._waiting: dict[str, OrderedDict[str, None]] = {}
        self._results: dict[str, ToolResult] = {}  # since the model's last turn, by the ids that they came with

    def read(self, contents: Node) -> None:
        """Read all contents; a single one, or a plain text, is the user's."""
        if isinstance(contents.value, str):
            self._draft.messages.append(Message.user(contents.text()))
            return
        for node in contents.some() if isinstance(contents.value, list) else [contents]:
            role = node.text_if("role") or "user"
            if role == "model":
                self._read_model(node)
            elif role in ("user", "function", "tool"):
                self._read_user(node)
            else:
                raise UnreadableData(f"{node.where}.role must be user or model")

    def _read_model(self, node: Node) -> None:
        """Read an answer with the decoder. The number of the message makes the ids of its calls unique."""
        number = len(self._draft.messages)
        parts = [_without_made_up(part.whole()) for part in node.each_in("parts")]
        body = {"candidates": [{"content": {"role": "model", "parts": parts}}], "responseId": str(number)}
        answer = read_answer(body, SPECIFICATION, None, node.where)
        meta = replace(answer.meta or MessageMeta(), request_id=None)
        self._draft.messages.append(replace(answer, meta=None if meta == MessageMeta() else meta))
        self._waiting, self._results = {}, {}
        for call in answer.tool_calls:
            self._waiting.setdefault(call.tool_name, OrderedDict())[call.tool_call_id] = None

    def _read_user(self, node: Node) -> None:
        """Add the results, each as its own message, then what the user said."""
        said: list[ResultPart] = []
        for part in node.each_in("parts"):
            if part.has("functionResponse"):
                self._read_result(part.child("functionResponse"))
            else:
                said.append(self._read_part(part))
        if said:
            self._draft.add(Role.USER, list(said))

    def _read_result(self, node: Node) -> None:
        name = node.name_in("name")
        waiting = self._waiting.get(name, OrderedDict())
        call_id = node.text_if("id") or next(iter(waiting), f"function_{name}")
        waiting.pop(call_id, None)
        response = node.child("response")
        fields = {} if response.value is None else response.whole()
        is_error = fields.keys() == {"error"}
        inner = fields.get("error" if is_error else "output") if fields.keys() <= {"error", "output"} else None
        # Only text and objects are results; any other value is told by the whole response.
        content: Any = inner if isinstance(inner, (str, dict)) else fields
        if media := node.each_in("parts"):
            text = [Text(content)] if isinstance(content, str) and content else []
            content = (*text, *(self._read_part(part) for part in media))
        result = ToolResult(call_id, content, is_error=is_error)
        if node.text_if("id") and self._results.get(call_id) == result:
            # Gemini CLI 0.61 sends the results of a conversation that it resumes twice.
            self._draft.notes.add(node.where, f"the second result of the call {call_id[:40]!r} is left out")
            return
        self._results[call_id] = result
        self._draft.add_result(result)

    def _read_part(self, node: Node) -> ResultPart:
        node.skip("thoughtSignature", "thought")
        if isinstance(node.value, dict) and isinstance(node.value.get("text"), str):
            return Text(node.text_in("text"))
        if node.has("inlineData"):
            blob = node.child("inlineData")
            name = blob.text_if("displayName")
            return media_of_bytes(decoded(blob.child("data")), blob.text_if("mimeType"), name, node.where)
        if node.has("fileData"):
            source = node.child("fileData")
            return media_by_url(source.child("fileUri"), source.text_if("mimeType"), source.text_if("displayName"))
        kind = next(iter(node.value), "part") if isinstance(node.value, dict) else "part"
        return self._draft.unshown(node, kind)


def _without_made_up(part: dict[str, Any]) -> dict[str, Any]:
    """The part without the signature that clients put on calls that had none."""
    return {name: value for name, value in part.items() if name != "thoughtSignature" or value != UNSIGNED}


# ---------------------------------------------------------------- tools and settings


def _read_tool(node: Node, draft: RequestDraft) -> None:
    for name, value in node.fields.items():
        if name == "functionDeclarations":
            for function in node.each_in(name):
                function.skip("response", "behavior")
                _read_function(function, draft)
        elif value is not None:
            options = value if isinstance(value, dict) else {}
            draft.add_hosted(_OWN_WORDS.get(name, name), options, f"{node.where}.{name}")


def _read_function(node: Node, draft: RequestDraft) -> None:
    schema = node.child("parametersJsonSchema")
    if schema.value is None:
        older = node.child("parameters")
        schema = Node(None if older.value is None else _json_schema(older.whole()), older.where)
    elif isinstance(schema.value, dict) and not schema.value:
        schema = Node(None, schema.where)
    draft.add_tool(node, schema)


def _json_schema(schema: Any) -> Any:
    """The API's own schemas as JSON Schema: types in capitals, `nullable`, numbers as text."""
    if not isinstance(schema, dict):
        return schema
    written: dict[str, Any] = {}
    for raw_name, value in schema.items():
        name = _SNAKE.sub(lambda found: found[1].upper(), raw_name)
        if name == "type" and isinstance(value, str):
            written[name] = value.lower()
        elif name in _SCHEMA_MAPS and isinstance(value, dict):
            written[name] = {key: _json_schema(inner) for key, inner in value.items()}
        elif name in _SCHEMA_LISTS and isinstance(value, list):
            written[name] = [_json_schema(inner) for inner in value]
        elif name in ("items", "additionalProperties"):
            written[name] = _json_schema(value)
        elif name.startswith(("min", "max")) and isinstance(value, str) and value.isdecimal():
            written[name] = int(value)
        elif name not in ("nullable", "propertyOrdering"):
            written[name] = value
    if schema.get("nullable") is True and isinstance(written.get("type"), str):
        written["type"] = [written["type"], "null"]
    return written


def _read_choice(node: Node, draft: RequestDraft) -> None:
    mode, names = node.text_if("mode"), [each.text() for each in node.each_in("allowedFunctionNames")]
    if mode == "ANY" and len(names) == 1:
        draft.choose(OneTool(names[0]), "toolConfig")
    elif mode in _CHOICES and draft.tools:
        if names:
            draft.name_unknown("toolConfig", "the list of allowed tools is not carried over: all tools are allowed")
        choice: Any = _CHOICES[mode]
        draft.choose(choice, "toolConfig")
    elif mode == "VALIDATED":
        draft.tools = [replace(tool, strict=True) for tool in draft.tools]


def _read_output_schema(settings: Node, draft: RequestDraft) -> None:
    kind = settings.text_if("responseMimeType")
    if settings.has("responseJsonSchema"):
        draft.shape_output(settings.child("responseJsonSchema"))
    elif settings.has("responseSchema"):
        schema = settings.child("responseSchema")
        draft.shape_output(Node(_json_schema(schema.whole()), schema.where))
    elif kind not in (None, "", "text/plain"):
        draft.name_unknown("generationConfig", f"{kind[:40]!r} is not carried over: there is no schema")


def _read_thinking(node: Node, draft: RequestDraft) -> None:
    """A budget of -1 leaves it to the model."""
    budget = node.get("thinkingBudget")
    level = (node.text_if("thinkingLevel") or "").lower()
    draft.think(
        effort="off" if budget == 0 else level if level and level != "thinking_level_unspecified" else None,
        budget=budget if isinstance(budget, int) and budget > 0 else None,
        summary=node.flag_in("includeThoughts"),
    )
