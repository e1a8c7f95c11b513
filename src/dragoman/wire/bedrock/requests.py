"""A conversation and its settings → the JSON of Bedrock's Converse API. Pure; `dialects` says what each family takes.

Parts carry `providerData` in the wire's own words (`answers` says which); it goes back as it came.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from ..._jsontext import encode_json
from ...message import FileRef, Image, Message, Part, ProviderItem, Role, Text, Thinking, ToolCall, ToolResult
from ...request import HostedTool, ModelConfig, ModelRequest, WireRequest
from ...toolspec import OneTool, ToolSpec
from ..claude import claude_max_tokens, claude_thinking, require_free_choice, thinks_by_budget
from ..encoding import argument_object, base64_text, data_of, finish_request, given, result_value, unsupported
from ..schemas import fit_schema
from ..turns import Turns, read_back
from .dialects import DOCUMENT_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS, BedrockDialect

__all__ = ["Encoder"]

CACHE_POINTS = 4
BLANK = {"text": "."}  # the API refuses content that is empty or blank
FAILED = {"text": "The tool call failed:"}  # for families whose results have no status
EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high"}
# Our words for hosted tools: one that a family has no tool for is refused, anything else is the API's own name.
_OUR_WORDS = frozenset({"web_search", "web_fetch", "code_execution", "file_search", "image_generation", "computer_use"})
_CACHE_POINT = {"cachePoint": {"type": "default"}}
# A cache point may not come right after a document, a video or thinking.
_CACHEABLE = frozenset({"text", "image", "toolUse", "toolResult", "citationsContent"})
_ATTACHMENTS = frozenset({"document", "video"})
_UNSAFE_IN_NAMES = re.compile(r"[^a-zA-Z0-9()\[\] -]+")
_NAME_LIMIT = 180


# ---------------------------------------------------------------- settings


def _inference(
    config: ModelConfig, dialect: BedrockDialect, additional: dict[str, Any], thinking: dict[str, Any] | None
) -> dict[str, Any]:
    settings: dict[str, Any] = {"maxTokens": config.max_tokens, "stopSequences": list(config.stop_sequences) or None}
    if thinks_by_budget(thinking):
        settings["maxTokens"] = claude_max_tokens(config, thinking)
    nova_effort = additional.get("reasoningConfig", {}).get("maxReasoningEffort")
    if nova_effort == "high":
        del settings["maxTokens"]  # Nova refuses a limit there
    is_thinking = nova_effort or (thinking is not None and thinking["type"] != "disabled")
    if not is_thinking:  # models that think refuse to have their sampling changed
        if config.temperature is not None:
            settings["temperature"] = min(config.temperature, 1.0)
        # Newer Claude models take one of the two at most.
        if config.temperature is None or dialect.reasoning != "thinking":
            settings["topP"] = config.top_p
    return given(settings)


def _reasoning(
    config: ModelConfig, dialect: BedrockDialect, turns: "Encoder"
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The fields that say how much to think, and Claude's `thinking` among them."""
    if dialect.reasoning == "thinking":
        thinking, effort = claude_thinking(config)
        if thinks_by_budget(thinking) and _loop_began_without_thinking(turns):
            thinking = None  # the model refuses the request otherwise; the next turn thinks again
        fields = {"thinking": thinking, "output_config": {"effort": effort} if effort else None}
        return given(fields), thinking
    wanted = config.reasoning
    if wanted is None or wanted.effort == "off" or (wanted.effort is None and wanted.budget_tokens is None):
        return {}, None
    if dialect.reasoning is None or wanted.effort is None:
        by_budget = "" if dialect.reasoning is None else " by a budget"
        raise unsupported(f"Bedrock Converse cannot take reasoning with {config.model_id}{by_budget}")
    word = EFFORTS[wanted.effort]
    if dialect.reasoning == "reasoningConfig":
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}}, None
    return {dialect.reasoning: word}, None


def _loop_began_without_thinking(turns: "Encoder") -> bool:
    if not turns.over or not turns.has("toolResult"):
        return False
    before = read_back(turns.over[-1])
    return before["role"] == "assistant" and "reasoningContent" not in before["content"][0]


def _output_config(schema: dict[str, Any], dialect: BedrockDialect) -> dict[str, Any]:
    if not dialect.structured_output:
        raise unsupported("Bedrock Converse cannot take an output schema with this model family")
    schema, _ = fit_schema(schema, dialect.rules.schemas)
    written = {"name": "output", "schema": encode_json(schema).decode()}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": written}}}


# ---------------------------------------------------------------- tools


def _tool_config(
    request: ModelRequest, dialect: BedrockDialect, thinking: dict[str, Any] | None, *, in_history: bool
) -> dict[str, Any] | None:
    """The tools and the choice among them. There is no `none`: tools are left out, unless the history has calls."""
    choice = request.tool_choice or request.config.tool_choice or "auto"
    hosted = () if choice == "none" else request.config.hosted_tools
    tools = [_encode_tool(tool, dialect) for tool in request.tools]
    tools += [_encode_hosted_tool(tool, dialect) for tool in hosted]
    if not tools or (choice == "none" and not in_history):
        return None
    require_free_choice(choice, thinking)
    if choice == "auto" or choice == "none":  # `auto` is the default, and not every family takes the word
        return {"tools": tools}
    forced = {"tool": {"name": choice.tool_name}} if isinstance(choice, OneTool) else {"any": {}}
    if not dialect.forced_choices.issuperset(forced):
        raise unsupported(f"Bedrock Converse cannot take tool_choice {choice!r} with {request.config.model_id}")
    return {"tools": tools, "toolChoice": forced}


def _encode_tool(tool: ToolSpec, dialect: BedrockDialect) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameter_schema}
    if dialect.schema_keys is not None:
        schema = {name: value for name, value in schema.items() if name in dialect.schema_keys}
    may_be_strict = tool.strict and dialect.strict_tools
    schema, is_strict = fit_schema(schema, dialect.rules.schemas) if may_be_strict else (schema, False)
    encoded: dict[str, Any] = {"name": tool.name, "inputSchema": {"json": schema}}
    if tool.description and tool.description.strip():
        encoded["description"] = tool.description
    if is_strict:
        encoded["strict"] = True
    return {"toolSpec": encoded}


def _encode_hosted_tool(tool: HostedTool, dialect: BedrockDialect) -> dict[str, Any]:
    name = dialect.hosted_tools.get(tool.kind, tool.kind)
    if name in _OUR_WORDS:
        raise unsupported(f"Bedrock Converse cannot take the hosted tool {tool.kind!r} with this model family")
    return {"systemTool": {"name": name, **tool.options}}


# ---------------------------------------------------------------- turns and parts


class Encoder(Turns):
    """Messages to turns. Keeps the names of documents, which must be unique in a request."""

    dialect: BedrockDialect
    document_names: set[str] = msgspec.field(default_factory=set)
    has_calls: bool = False

    def add(self, message: Message) -> None:
        """Encode the next message."""
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        if role != self.role:
            self.begin(role)
        for part in message.parts:
            self.has_calls = self.has_calls or isinstance(part, (ToolCall, ToolResult))
            for block in self._part(part):
                self._add_block(block)
        self.ends.append(len(self.blocks))

    def has(self, kind: str) -> bool:
        """Whether the last turn has a block of this kind."""
        return any(kind in block for block in self.blocks)

    def close(self) -> None:
        """Make the open turn one that the API takes."""
        if not self.blocks or (self.has("document") and not self.has("text")):
            self.blocks.append(BLANK)

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request to Converse."""
        config = request.config
        dialect = self.dialect
        self.close()
        self._strip_last_text()
        additional, thinking = _reasoning(config, dialect, self)
        body: dict[str, Any] = {"messages": None}  # first in the body; filled in when the turns are final
        if request.system and request.system.strip():
            if dialect.system:
                body["system"] = [{"text": request.system}]
            elif self.role:
                instruction = {"text": request.system}
                self.change(0, lambda blocks: blocks.insert(0, instruction))
        body["inferenceConfig"] = _inference(config, dialect, additional, thinking)
        body["toolConfig"] = _tool_config(request, dialect, thinking, in_history=self.has_calls)
        if config.parallel_tool_calls is False and body["toolConfig"] and dialect.reasoning == "thinking":
            additional["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
        body["additionalModelRequestFields"] = additional
        if config.output_schema is not None:
            body["outputConfig"] = _output_config(config.output_schema, dialect)
        if config.cache_config is not None:
            _mark_cache(body, request.cache_anchors, self, dialect)
        body["messages"] = self.written()
        body["requestMetadata"] = request.metadata
        body = {name: value for name, value in body.items() if value}
        method = "converse-stream" if request.stream else "converse"
        path = f"/model/{quote(config.model_id, safe='')}/{method}"
        return finish_request(request, dialect, path, body)

    def _strip_last_text(self) -> None:
        """A final assistant text must not end in white space: the model goes on from there."""
        if self.role == "assistant" and "text" in self.blocks[-1]:
            self.blocks[-1] = {"text": self.blocks[-1]["text"].rstrip()}

    def _add_block(self, block: dict[str, Any]) -> None:
        if self.dialect.media_beside_results or _ATTACHMENTS.isdisjoint(block) or not self.has("toolResult"):
            self.blocks.append(block)
        else:  # into the last result; copied, since other encoders may share it
            index = max(index for index, earlier in enumerate(self.blocks) if "toolResult" in earlier)
            result = self.blocks[index]["toolResult"]
            longer = {**result, "content": [*result["content"], block]}
            self.blocks[index] = {**self.blocks[index], "toolResult": longer}

    def _part(self, part: Part) -> Iterator[dict[str, Any]]:
        data = data_of(part)
        match part:
            case Text():
                if "citations" in data:
                    yield {"citationsContent": {"content": [{"text": part.text}], **data}}
                elif part.text.strip():
                    yield {"text": part.text}
            case Thinking():
                if not self.dialect.rules.thinking:
                    return
                if "redactedContent" in data:
                    yield {"reasoningContent": {"redactedContent": data["redactedContent"]}}
                elif data.get("signature"):  # Claude refuses thinking without one
                    written = {"text": part.text, "signature": data["signature"]}
                    yield {"reasoningContent": {"reasoningText": written}}
            case ToolCall():
                call = {"toolUseId": part.tool_call_id, "name": part.tool_name, "input": argument_object(part)}
                yield {"toolUse": {**call, **data}}
            case ToolResult():
                yield {"toolResult": self._result(part)}
            case Image() | FileRef():
                yield self._media(part)
            case ProviderItem():
                yield part.item
            case _:
                return

    def _result(self, result: ToolResult) -> dict[str, Any]:
        content: list[dict[str, Any]]
        if isinstance(result.content, dict):
            value = result_value(result.content)
            content = [{"text": value}] if isinstance(value, str) else [{"json": value}]
        elif isinstance(result.content, str):
            content = [{"text": result.content}] if result.content.strip() else [BLANK]
        else:
            content = [block for part in result.content for block in self._part(part)] or [BLANK]
        encoded: dict[str, Any] = {"toolUseId": result.tool_call_id, "content": content}
        if result.is_error and self.dialect.result_status:
            encoded["status"] = "error"
        elif result.is_error:
            encoded["content"] = [FAILED, *content]
        return encoded

    def _media(self, part: Image | FileRef) -> dict[str, Any]:
        mime_type = part.mime_type or ""
        source = self._source(part)
        if mime_type in IMAGE_FORMATS:
            return {"image": {"format": IMAGE_FORMATS[mime_type], "source": source}}
        if mime_type in VIDEO_FORMATS:
            return {"video": {"format": VIDEO_FORMATS[mime_type], "source": source}}
        if mime_type in DOCUMENT_FORMATS or mime_type.startswith("text/"):
            kind = DOCUMENT_FORMATS.get(mime_type, "txt")
            name = self._document_name((part.name if isinstance(part, FileRef) else None) or "document")
            return {"document": {"format": kind, "name": name, "source": source}}
        raise unsupported(f"Bedrock Converse cannot take media of type {part.mime_type!r}")

    def _source(self, part: Image | FileRef) -> dict[str, Any]:
        if part.data is not None:
            return {"bytes": base64_text(part.data)}
        if self.dialect.s3_media and part.url is not None and part.url.startswith("s3://"):
            return {"s3Location": {"uri": part.url}}
        allowed = "bytes, or an s3:// address" if self.dialect.s3_media else "bytes"
        what = f"media by a path, an address or a file id with this model family: it takes {allowed}"
        raise unsupported(f"Bedrock Converse cannot take {what}")

    def _document_name(self, wanted: str) -> str:
        """A name in the API's narrow alphabet that no other document of the request has."""
        safe = " ".join(_UNSAFE_IN_NAMES.sub("-", wanted).split())[:_NAME_LIMIT].strip() or "document"
        name, number = safe, 1
        while name in self.document_names:
            number += 1
            name = f"{safe} ({number})"
        self.document_names.add(name)
        return name


# ---------------------------------------------------------------- cache


def _mark_cache(body: dict[str, Any], anchors: tuple[int, ...], turns: Encoder, dialect: BedrockDialect) -> None:
    """Points in the order in which the API caches: tools, system, then the newest anchors, or the last turn."""
    left = CACHE_POINTS
    if "tools" in dialect.cache_points and body["toolConfig"]:
        body["toolConfig"]["tools"].append(_CACHE_POINT)
        left -= 1
    if "system" in dialect.cache_points and "system" in body:
        body["system"].append(_CACHE_POINT)
        left -= 1
    if "messages" not in dialect.cache_points:
        return
    # From the back: an insertion moves only the indices after it.
    for turn, end in reversed(turns.anchored(anchors)[-left:]):
        turns.change(turn, partial(_insert_point, end))


def _insert_point(end: int, blocks: list[dict[str, Any]]) -> None:
    """Put a cache point after the last of the first `end` blocks that may have one behind it."""
    ends = [index + 1 for index in range(end) if not _CACHEABLE.isdisjoint(blocks[index])]
    if ends and _CACHE_POINT not in blocks[ends[-1] : ends[-1] + 1]:
        blocks.insert(ends[-1], _CACHE_POINT)
