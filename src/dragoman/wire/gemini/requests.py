"""A conversation that handoff has fitted → the JSON of Gemini's generateContent. Pure.

`answers` says what `providerData` holds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from ...errors import ErrorCode, ModelError
from ...message import FileRef, Image, Message, Part, ProviderItem, Role, Text, Thinking, ToolCall, ToolResult
from ...request import HostedTool, ModelConfig, ModelRequest, Reasoning, WireRequest
from ...stream import ConversationEncoder
from ...toolspec import OneTool, ToolChoice, ToolSpec
from ..encoding import (
    UNREAD_FILE,
    argument_object,
    base64_text,
    data_of,
    finish_request,
    given,
    result_value,
    unsupported,
)
from ..turns import as_json
from .dialects import GeminiDialect

__all__ = ["Encoder", "always_thinks", "encode_part"]

# Our word for a hosted tool -> the API's.
HOSTED_TOOLS = {"web_search": "googleSearch", "web_fetch": "urlContext", "code_execution": "codeExecution"}

TOOL_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}

# From version 3 on a model takes a level of thinking, before that a budget of tokens.
THINKING_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"}
THINKING_BUDGETS = {"off": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}

# Google documents this signature for calls of other models: version 3 refuses a call without one.
UNSIGNED = "skip_thought_signature_validator"

# Fields that an explicit cache already holds. The API refuses a request that repeats them.
CACHED_FIELDS = ("systemInstruction", "tools", "toolConfig")

_VERSION = re.compile(r"gemini-(\d+)")


def always_thinks(model: str) -> bool:
    """Whether the model's thinking cannot be turned off."""
    return _version(model) >= 3 or "-pro" in model


def _version(model: str) -> int:
    """The main version in a model's name; a name without one (`gemini-flash-latest`) means the newest."""
    found = _VERSION.search(model)
    return int(found[1]) if found else 3


# ---------------------------------------------------------------- settings


def _generation_settings(config: ModelConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "temperature": config.temperature,
        "topP": config.top_p,
        "maxOutputTokens": config.max_tokens,
        "stopSequences": list(config.stop_sequences) or None,
    }
    if config.output_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = config.output_schema
    if config.reasoning is not None:
        settings["thinkingConfig"] = _thinking_settings(config.reasoning, config.model_id) or None
    return given(settings)


def _thinking_settings(reasoning: Reasoning, model: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    newer, is_pro = _version(model) >= 3, "-pro" in model
    if reasoning.effort == "off" and always_thinks(model):
        raise unsupported(f"{model} always thinks: its reasoning cannot be turned off")
    if reasoning.budget_tokens is not None:
        settings["thinkingBudget"] = reasoning.budget_tokens
    elif reasoning.effort is not None and newer:
        effort = "low" if is_pro and reasoning.effort == "minimal" else reasoning.effort
        settings["thinkingLevel"] = THINKING_LEVELS[effort]
    elif reasoning.effort is not None:
        settings["thinkingBudget"] = THINKING_BUDGETS[reasoning.effort]
    if reasoning.summary:
        settings["includeThoughts"] = True
    return settings


def _encode_tools(tools: Sequence[ToolSpec], hosted_tools: Sequence[HostedTool]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = []
    if tools:
        encoded.append({"functionDeclarations": [_encode_tool(tool) for tool in tools]})
    encoded.extend({HOSTED_TOOLS.get(tool.kind, tool.kind): tool.options} for tool in hosted_tools)
    return encoded


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameter_schema}
    return {"name": tool.name, "description": tool.description or "", "parametersJsonSchema": schema}


def _tool_settings(request: ModelRequest, dialect: GeminiDialect) -> dict[str, Any]:
    if request.config.parallel_tool_calls is False and request.tools:
        raise unsupported("this API cannot be told to make one call at a time (parallel_tool_calls=False)")
    settings: dict[str, Any] = {}
    choice: ToolChoice = request.tool_choice or request.config.tool_choice or "auto"
    if not request.tools:
        pass  # hosted tools cannot be chosen or forbidden
    elif isinstance(choice, OneTool):
        settings["functionCallingConfig"] = {"mode": "ANY", "allowedFunctionNames": [choice.tool_name]}
    elif choice == "auto" and any(tool.strict for tool in request.tools):
        settings["functionCallingConfig"] = {"mode": "VALIDATED"}
    elif choice != "auto":
        settings["functionCallingConfig"] = {"mode": TOOL_MODES[choice]}
    if dialect.hosted_tool_parts and request.tools and request.config.hosted_tools:
        settings["includeServerSideToolInvocations"] = True
    return settings


# ---------------------------------------------------------------- conversation


class Encoder(ConversationEncoder):
    """Messages → contents. All results of a turn share one content, and so do model messages in a row.

    Contents that are over are JSON; the last one is open, and its parts are values.
    """

    dialect: GeminiDialect
    over: list[msgspec.Raw] = msgspec.field(default_factory=list)
    role: Role = Role.USER
    parts: list[dict[str, Any]] = msgspec.field(default_factory=list)
    calls: dict[str, ToolCall] = msgspec.field(default_factory=dict)

    def add(self, message: Message) -> None:
        """Encode the next message."""
        if self.parts and (message.role is not self.role or message.role is Role.USER):
            self.over.append(as_json(self._open()))
            self.parts = []
        self.role = message.role
        encoded = [piece for part in message.parts for piece in encode_part(part, self.calls, self.dialect)]
        if message.role is Role.ASSISTANT and _version(self.model) >= 3:
            _sign_first_call(encoded)
        self.parts.extend(encoded)

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request to generateContent."""
        config, dialect = request.config, self.dialect
        body: dict[str, Any] = {}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools or config.hosted_tools:
            body["tools"] = _encode_tools(request.tools, config.hosted_tools)
            body["toolConfig"] = _tool_settings(request, dialect)
        body["generationConfig"] = _generation_settings(config)
        body = {name: value for name, value in body.items() if value}
        body["contents"] = [*self.over, self._open()] if self.parts else self.over
        cached = CACHED_FIELDS if "cachedContent" in config.extensions else ()
        model = config.model_id if "/" in config.model_id else f"{dialect.collection}/{config.model_id}"
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        path = dialect.path.format(model=quote(model, safe="/:@"), method=method)
        return finish_request(request, dialect, path, body, left_out=cached)

    def _open(self) -> dict[str, Any]:
        return {"role": "model" if self.role is Role.ASSISTANT else "user", "parts": self.parts}


def _sign_first_call(parts: list[dict[str, Any]]) -> None:
    """Sign the first call of another model's turn: the API requires it. Old turns too: the prefix must not change."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and not any("thoughtSignature" in part for part in parts):
        first["thoughtSignature"] = UNSIGNED


def encode_part(part: Part, calls: dict[str, ToolCall], dialect: GeminiDialect) -> Iterator[dict[str, Any]]:
    """Yield the parts of the API that hold one of ours; `calls` are those of the conversation, for its results."""
    data = data_of(part)
    match part:
        case Text():
            if part.text or data:
                yield {"text": part.text, **data}
        case Thinking():
            if part.text or data:
                yield {"text": part.text, "thought": True, **data}
        case ToolCall():
            calls[part.tool_call_id] = part
            further = {name: value for name, value in data.items() if name not in ("id", "functionCall")}
            yield {"functionCall": _encode_call(part, data), **further}
        case ToolResult():
            yield {"functionResponse": _encode_result(part, calls, dialect)}
        case Image() | FileRef():
            yield _encode_media(part, data, dialect)
        case ProviderItem():
            yield part.item
        case _:
            return


def _encode_call(call: ToolCall, data: Mapping[str, Any]) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": call.tool_name}
    arguments = argument_object(call)
    if arguments or call.raw_args_text:
        encoded["args"] = arguments
    if wire_id := _wire_id(call):
        encoded["id"] = wire_id
    return {**encoded, **data.get("functionCall", {})}


def _wire_id(call: ToolCall) -> str:
    """The API's own id of the call. Empty where it gave none: then it matches results by name and order."""
    wire_id = (call.provider_data or {}).get("id")
    return call.tool_call_id if wire_id is None else str(wire_id)


def _encode_result(result: ToolResult, calls: Mapping[str, ToolCall], dialect: GeminiDialect) -> dict[str, Any]:
    call = calls.get(result.tool_call_id)
    if call is None:
        raise ModelError("a tool result answers no call of the conversation", code=ErrorCode.INVALID_REQUEST)
    output: Any = result.content
    media: list[dict[str, Any]] = []
    if isinstance(output, tuple):
        media = [_encode_media(part, {}, dialect) for part in output if isinstance(part, (Image, FileRef))]
        output = "\n".join(part.text for part in output if isinstance(part, Text))
    elif isinstance(output, dict):
        output = result_value(output)
    encoded: dict[str, Any] = {"name": call.tool_name, "response": {"error" if result.is_error else "output": output}}
    if wire_id := _wire_id(call):
        encoded["id"] = wire_id
    return {**encoded, "parts": media} if media else encoded


def _encode_media(part: Image | FileRef, data: Mapping[str, Any], dialect: GeminiDialect) -> dict[str, Any]:
    further = {name: value for name, value in data.items() if name != "inlineData"}
    if part.data is not None:
        if not part.mime_type:
            raise unsupported("this API takes a file's bytes only with their media type")
        blob = {"mimeType": part.mime_type, "data": base64_text(part.data)}
        return {"inlineData": {**blob, **data.get("inlineData", {})}, **further}
    uri = part.url or (part.file_id if isinstance(part, FileRef) else None)
    if uri is None:
        raise unsupported(UNREAD_FILE)
    if uri.startswith("files/"):  # the short name under which the Files API gives one out
        uri = f"{dialect.base_url}/v1beta/{uri}"
    return {"fileData": {"fileUri": uri, **({"mimeType": part.mime_type} if part.mime_type else {})}, **further}
