"""Requests of OpenAI's Chat Completions API. Pure and deterministic; `answers` reads the answers.

Write: a conversation that handoff has fitted → JSON. Read: the messages of a request → a conversation.
The fields of `ChatDialect` say what a vendor takes, and under which names.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ..._jsontext import encode_json
from ...errors import ModelError, UnreadableData
from ...message import (
    FileRef,
    Image,
    Message,
    ModelInvocationDescriptor,
    ProviderItem,
    ResultPart,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ...request import HostedTool, ModelConfig, ModelRequest, WireRequest
from ...stream import ConversationEncoder
from ...toolspec import OneTool, ToolChoice, ToolSpec
from ..drafts import Draft, Imported
from ..encoding import (
    argument_text,
    base64_text,
    cache_key_field,
    data_of,
    data_url,
    finish_request,
    given,
    merge_fields,
    unsupported,
)
from ..media import decoded, media_by_url, media_of_bytes, openai_file
from ..reading import JsonSource, Node, require_new_id, take_json
from ..schemas import fit_schema
from ..stored_answers import invocation_of, read_answer
from ..turns import as_json, read_back
from .dialects import AUDIO_FORMATS, SPECIFICATION, ChatDialect, MediaForm
from .text_calls import describe_tools, write_calls, write_result

__all__ = ["Encoder", "import_openai_chat", "read_part", "read_turn"]

CACHE_BREAKPOINTS = 4
_SIGNATURES = ("extra_content", "thought_signature")
_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _unsupported(dialect: ChatDialect, what: str) -> ModelError:
    return unsupported(f"{dialect.provider} cannot take {what}")


# ---------------------------------------------------------------- settings and tools


def _settings(config: ModelConfig, dialect: ChatDialect) -> dict[str, Any]:
    settings = _reasoning_settings(config, dialect)
    reasons = config.reasoning is not None and config.reasoning.effort != "off"
    if dialect.sampling_with_reasoning or not reasons:
        settings.update({"temperature": config.temperature, "top_p": config.top_p})
    settings[dialect.max_tokens_field] = config.max_tokens
    settings["stop"] = list(config.stop_sequences) or None
    if config.output_schema is not None:
        if not dialect.output_schema:
            raise _unsupported(dialect, "a schema for its output")
        settings["response_format"] = _encode_output_schema(config.output_schema, dialect)
    return given(settings)


def _reasoning_settings(config: ModelConfig, dialect: ChatDialect) -> dict[str, Any]:
    reasoning = config.reasoning
    settings: dict[str, Any] = {}
    if reasoning is None:
        return settings
    if reasoning.summary:
        settings = merge_fields(settings, dialect.thoughts)
    if reasoning.effort is not None:
        if reasoning.effort not in dialect.efforts:
            raise _unsupported(dialect, f"the reasoning effort {reasoning.effort!r}")
        settings = merge_fields(settings, dialect.efforts[reasoning.effort])
    if reasoning.budget_tokens is not None:
        if not dialect.budget_field:
            raise _unsupported(dialect, "a budget of reasoning tokens; give an effort instead")
        budget: Any = reasoning.budget_tokens
        for name in reversed(dialect.budget_field):
            budget = {name: budget}
        settings = merge_fields(settings, budget)
    return settings


def _encode_output_schema(schema: dict[str, Any], dialect: ChatDialect) -> dict[str, Any]:
    title = schema.get("title")
    name = title if isinstance(title, str) and _SCHEMA_NAME.fullmatch(title) else "output"
    schema, is_strict = fit_schema(schema, dialect.rules.schemas)
    json_schema: dict[str, Any] = {"name": name, "schema": schema}
    if is_strict and dialect.rules.schemas.keywords is not None:  # a server that takes any schema has no other mode
        json_schema["strict"] = True
    return {"type": "json_schema", "json_schema": json_schema}


def _encode_tool(tool: ToolSpec, dialect: ChatDialect) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    schema = {"type": "object", **tool.parameter_schema}
    if tool.strict is not None and dialect.strict_tools:
        schema, function["strict"] = fit_schema(schema, dialect.rules.schemas) if tool.strict else (schema, False)
    function["parameters"] = schema
    return {"type": "function", "function": function}


def _add_hosted_tools(
    body: dict[str, Any], tools: list[dict[str, Any]], hosted: Iterable[HostedTool], dialect: ChatDialect
) -> None:
    for tool in hosted:
        form = dialect.hosted_tools.get(tool.kind)
        if form is None and not dialect.other_tools:
            raise _unsupported(dialect, f"the hosted tool {tool.kind!r}")
        if form is not None and form.field is not None:
            body[form.field] = tool.options
        elif form is not None and form.options_in is not None:
            tools.append(merge_fields(form.tool, {form.options_in: tool.options}))
        else:
            tools.append(merge_fields(form.tool if form is not None else {"type": tool.kind}, tool.options))


def _encode_tool_choice(choice: ToolChoice) -> Any:
    if isinstance(choice, OneTool):
        return {"type": "function", "function": {"name": choice.tool_name}}
    return choice


# ---------------------------------------------------------------- messages


class Encoder(ConversationEncoder):
    """Messages → turns. `left_out` has the indices of messages that this API cannot hold."""

    dialect: ChatDialect
    turns: list[msgspec.Raw] = msgspec.field(default_factory=list)
    left_out: list[int] = msgspec.field(default_factory=list)

    def add(self, message: Message) -> None:
        """Encode the next message."""
        turn = _encode_message(message, self.dialect)
        if turn is not None and self.dialect.text_calls is not None and turn["role"] == "user":
            turn = self._join_user_turn(turn)
        if turn is None:
            self.left_out.append(len(self.turns) + len(self.left_out))
        else:
            self.turns.append(as_json(turn))

    def _join_user_turn(self, turn: dict[str, Any]) -> dict[str, Any] | None:
        """Join a user turn to one before it: tool results as text are user turns, and templates want one at a time.

        None where the turn has gone into the one before it.
        """
        before = read_back(self.turns[-1]) if self.turns else {}
        if before.get("role") != "user" or not isinstance(before["content"], str):
            return turn
        if isinstance(turn["content"], str):
            self.turns[-1] = as_json({**before, "content": f"{before['content']}\n{turn['content']}"})
        else:
            content = [{"type": "text", "text": before["content"]}, *turn["content"]]
            self.turns[-1] = as_json({**before, "content": content})
        return None

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request to Chat Completions."""
        config, dialect = request.config, self.dialect
        body: dict[str, Any] = {"model": config.model_id}
        choice = request.tool_choice or config.tool_choice
        if dialect.text_calls is None:
            tools = [_encode_tool(tool, dialect) for tool in request.tools]
        elif choice not in (None, "auto", "none"):
            raise _unsupported(dialect, f"tool_choice {choice!r} where the model writes its calls as text")
        else:
            tools = []
        if config.hosted_tools:
            _add_hosted_tools(body, tools, config.hosted_tools, dialect)
        if tools:
            body["tools"] = tools
            if choice is not None:
                body["tool_choice"] = _encode_tool_choice(choice)
            if config.parallel_tool_calls is not None and dialect.parallel_tool_calls:
                body["parallel_tool_calls"] = config.parallel_tool_calls
        body["messages"] = self._messages(request)
        body.update(dialect.defaults)
        body.update(_settings(config, dialect))
        if dialect.cache_key:
            body.update(cache_key_field(request))
        if request.stream:
            body["stream"] = True
            if dialect.stream_options:
                body["stream_options"] = dialect.stream_options
        path = dialect.path.format(model=config.model_id)
        return finish_request(request, dialect, path, body)

    def _messages(self, request: ModelRequest) -> list[msgspec.Raw]:
        """Return the messages with the system's in front, and with marks where the provider shall cache."""
        dialect, system = self.dialect, request.system
        choice = request.tool_choice or request.config.tool_choice
        if dialect.text_calls is not None and request.tools and choice != "none":
            described = describe_tools(request.tools, dialect.text_calls)
            system = f"{system}\n\n{described}" if system else described
        turns = self.turns
        if system:
            turns.insert(0, as_json({"role": dialect.system_role, "content": system}))
        if request.config.cache_config is not None and dialect.cache_control:
            first = int(bool(system))
            known = (anchor for anchor in request.cache_anchors if anchor < len(request.messages))
            anchors = [first + anchor - bisect_right(self.left_out, anchor) for anchor in known]
            _mark_cache(turns, anchors or [len(turns) - 1], has_system=bool(system))
        return turns


def _encode_message(message: Message, dialect: ChatDialect) -> dict[str, Any] | None:
    match message.role:
        case Role.SYSTEM:
            return {"role": dialect.system_role, "content": _joined_text(message.parts, "\n\n")}
        case Role.USER:
            return {"role": "user", "content": _encode_user_content(message.parts, dialect)}
        case Role.TOOL:
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            content = _encode_result_content(result, dialect)
            if dialect.text_calls is not None:
                return {"role": "user", "content": write_result(content)}
            return {"role": "tool", "tool_call_id": result.tool_call_id, "content": content}
        case Role.ASSISTANT:
            return _encode_assistant(message, dialect)


def _joined_text(parts: Iterable[Any], between: str) -> str:
    return between.join(part.text for part in parts if isinstance(part, Text) and part.text)


def _encode_user_content(parts: Sequence[Any], dialect: ChatDialect) -> str | list[dict[str, Any]]:
    """A plain string where there is only text: models behind some hosts copy the structure of their input."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    if all(isinstance(part, Text) for part in parts):
        return _joined_text(parts, "\n\n")
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                content.append({"type": "text", "text": part.text})
        elif isinstance(part, (Image, FileRef)):
            content.append(_encode_media(part, dialect))
    if all(part["type"] == "text" for part in content):  # a text file is text
        return "\n\n".join(part["text"] for part in content)
    return content


def _encode_result_content(result: ToolResult, dialect: ChatDialect) -> str:
    if isinstance(result.content, str):
        return result.content
    if isinstance(result.content, dict):
        return encode_json(result.content).decode()
    if any(isinstance(part, (Image, FileRef)) for part in result.content):
        raise _unsupported(dialect, "media in a tool result")
    return _joined_text(result.content, "\n\n")


def _encode_media(part: Image | FileRef, dialect: ChatDialect) -> dict[str, Any]:
    mime_type = part.mime_type or ("image/*" if isinstance(part, Image) else "application/octet-stream")
    name, file_id = (part.name, part.file_id) if isinstance(part, FileRef) else (None, None)
    if file_id is not None and "file" in dialect.media.values():
        return {"type": "file", "file": {"file_id": file_id}}
    form = _media_form(part, mime_type, dialect)
    data = part.data or b""
    url = part.url if part.url is not None else data_url(mime_type, data)
    match form:
        case "text":
            text = data.decode("utf-8", "replace")
            return {"type": "text", "text": f"{name}:\n\n{text}" if name else text}
        case "input_audio":
            return {
                "type": "input_audio",
                "input_audio": {"data": base64_text(data), "format": AUDIO_FORMATS[mime_type]},
            }
        case "file":
            return {"type": "file", "file": {"filename": name or "document.pdf", "file_data": url}}
        case "document_url":
            return {"type": "document_url", "document_url": url, **({"document_name": name} if name else {})}
        case "image_url" | "video_url":
            return {"type": form, form: {"url": url}}


def _media_form(part: Image | FileRef, mime_type: str, dialect: ChatDialect) -> MediaForm:
    """Return how the vendor takes media of this type from this source; raise ModelError where it cannot take it."""
    fitting = (kind for kind in dialect.media if mime_type == kind or (kind[-1] == "/" and mime_type.startswith(kind)))
    kind = next(fitting, "")
    form = dialect.media.get(kind)
    if form is None or (part.url is None and part.data is None):
        raise _unsupported(dialect, f"this {part.kind} of type {mime_type!r}")
    is_linked = form in ("image_url", "video_url", "document_url") or "url" in dialect.rules.type_sources.get(kind, ())
    if part.url is not None and not (is_linked and dialect.media_urls):
        raise _unsupported(dialect, f"a {part.kind} of type {mime_type!r} by its URL")
    if form == "input_audio" and mime_type not in AUDIO_FORMATS:
        raise _unsupported(dialect, f"sound of type {mime_type!r}; it takes wav and mp3")
    return form


# ---------------------------------------------------------------- assistant turns


def _encode_assistant(message: Message, dialect: ChatDialect) -> dict[str, Any] | None:
    """Return the turn as the provider sent it; None where this API can hold nothing of it."""
    parts: Sequence[Any] = message.parts
    calls = [_encode_call(part) for part in parts if isinstance(part, ToolCall)]
    further = _encode_further(parts, dialect, has_calls=bool(calls))
    if dialect.text_calls is not None:
        parts, calls = write_calls(parts, dialect.text_calls), []
    content: Any = _encode_content_parts(parts) if dialect.thinking_parts else None
    if content is None:
        spoken = parts if not dialect.refusals else [part for part in parts if not _is_refusal(part)]
        content = _joined_text(spoken, "") or None
    if content is None and not calls:
        if not further:
            return None
        content = None if "refusal" in further or "audio" in further else ""
    turn: dict[str, Any] = {"role": "assistant", "content": content, **further}
    if calls:
        turn["tool_calls"] = calls
    return turn


def _is_refusal(part: Any) -> bool:
    return isinstance(part, Text) and bool((part.provider_data or {}).get("refusal"))


def _encode_further(parts: Sequence[Any], dialect: ChatDialect, *, has_calls: bool) -> dict[str, Any]:
    """Return the fields beside the content of the turn: thinking, signatures, a refusal, a spoken answer."""
    thoughts = [part for part in parts if isinstance(part, Thinking)]
    further: dict[str, Any] = {}
    for part in thoughts:
        further.update({name: data_of(part)[name] for name in _SIGNATURES if name in data_of(part)})
    if dialect.file_annotations and (files := list(_file_annotations(parts))):
        further["annotations"] = files
    for part in parts:
        if isinstance(part, ProviderItem) and part.item_type == "audio" and part.item.get("id"):
            further["audio"] = {"id": part.item["id"]}
    if dialect.refusals and (refusal := _joined_text(filter(_is_refusal, parts), "")):
        further["refusal"] = refusal
    return {**further, **_encode_thinking(thoughts, dialect, has_calls=has_calls)}


def _file_annotations(parts: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield OpenRouter's notes on files that it has read. With them it need not read the same file again."""
    for part in parts:
        if isinstance(part, Text):
            notes = data_of(part).get("annotations") or ()
            yield from (note for note in notes if isinstance(note, dict) and note.get("file"))


def _encode_thinking(thoughts: Sequence[Thinking], dialect: ChatDialect, *, has_calls: bool) -> dict[str, Any]:
    """Return the field that holds the turn's thinking; empty where the vendor takes none back."""
    details = [detail for part in thoughts for detail in data_of(part).get("reasoning_details") or ()]
    if details and dialect.reasoning_details:
        return {"reasoning_details": details}
    if dialect.thinking_field is None:
        return {}
    thought: str | None = "".join(part.text for part in thoughts)
    if not thought or (dialect.thinking_with_calls_only and not has_calls):
        thought = dialect.thinking_stand_in if has_calls else None
    return {} if thought is None else {dialect.thinking_field: thought}


def _encode_content_parts(parts: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Thinking, text and citations in their order; None where there is only text."""
    if not any((isinstance(part, Thinking) and part.text) or isinstance(part, ProviderItem) for part in parts):
        return None
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Thinking) and part.text:
            content.append({"type": "thinking", "thinking": [{"type": "text", "text": part.text}]})
        elif isinstance(part, ProviderItem):
            content.append(part.item)
    return content


def _encode_call(call: ToolCall) -> dict[str, Any]:
    data = data_of(call)
    further = {"extra_content": data["extra_content"]} if "extra_content" in data else {}
    if data.get("type") == "custom":
        custom = {"name": call.tool_name, "input": call.raw_args_text}
        return {"id": call.tool_call_id, "type": "custom", "custom": custom, **further}
    function = {"name": call.tool_name, "arguments": argument_text(call)}
    return {"id": call.tool_call_id, "type": "function", "function": function, **further}


def _mark_cache(turns: list[msgspec.Raw], anchors: list[int], *, has_system: bool) -> None:
    """Breakpoints on the system text and on the newest anchors, each on the last turn up to it that has content."""
    targets: list[int] = [0] if has_system else []
    for anchor in anchors[-(CACHE_BREAKPOINTS - len(targets)) :]:
        target = next((index for index in range(anchor, -1, -1) if read_back(turns[index]).get("content")), None)
        if target is not None and target not in targets:
            targets.append(target)
    for target in targets:
        turn = read_back(turns[target])
        content = turn["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked = {**parts[-1], "cache_control": {"type": "ephemeral"}}
        turns[target] = as_json({**turn, "content": [*parts[:-1], marked]})


# ---------------------------------------------------------------- read: a request's messages → a conversation

_SOUND_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_TEXT_FIELDS = ("refusal", "reasoning_content", "reasoning", "reasoning_text")
_USER_FIELDS = frozenset({"role", "content"})


def import_openai_chat(messages: JsonSource, *, made_by: str | None = None) -> Imported:
    """Return the conversation that a Chat Completions message list holds; raise UnreadableData where it is none.

    `made_by` (`provider:model`) says which model gave the answers, if it was one. Without it, fields
    that only that provider understands are kept but never sent.
    """
    invocation = invocation_of(made_by, SPECIFICATION)
    draft = Draft("openai_chat")
    called: dict[str, str] = {}  # the newest call of each function in the old form, which has no ids
    root = take_json(messages, "messages")
    for node in root.each():
        read_turn(node, draft, invocation, called)
    return draft.result(root)


def read_turn(node: Node, draft: Draft, invocation: ModelInvocationDescriptor | None, called: dict[str, str]) -> None:
    """Add what one message of the API holds; `called` has the newest call of each function in the old form."""
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
            raise UnreadableData(f"{node.where}.role must be one of system, developer, user, assistant, tool, function")


def _read_text(node: Node) -> str:
    """Return the text of a string or of an array of text parts."""
    if isinstance(node.value, list):
        return "\n\n".join(part.text_in("text") for part in node.each())
    return "" if node.value is None else node.text()


def _read_content(node: Node, draft: Draft) -> str | tuple[ResultPart, ...]:
    if isinstance(node.value, list):
        return tuple(read_part(part, draft) for part in node.each())
    return "" if node.value is None else node.text()


def _read_user(node: Node, draft: Draft) -> tuple[ResultPart, ...]:
    content = _read_content(node.child("content"), draft)
    return (Text(content),) if isinstance(content, str) else content


def read_part(node: Node, draft: Draft) -> ResultPart:
    """Return the part that a content part of a user turn or a result holds."""
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
            return openai_file(node.child("file"))
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
    """Return the content as an answer has it. There, a refusal is a field beside the content."""
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
