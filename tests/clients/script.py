"""What the scripted upstream answers: a request as it was read → the deltas of an answer. Pure, and without memory.

A user's text with CALL_WORD in it gets a call of a harmless tool, one of those that the client declared. The request
that brings the result gets a text with PLANTED in it and the beginning of the result. Any other request gets a text
with PLANTED in it, or an object of the schema that it asks for.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dragoman import FinishReason, Message, Role, Text, TokenUsage, ToolResult, ToolSpec
from dragoman._jsontext import encode_json
from dragoman.delta import MessageDelta
from dragoman.request import ReadRequest
from dragoman.stream import DeltaWriter

PLANTED = "quetzal"
CALL_WORD = "please-use-a-tool"
ECHOED = "marmoset"  # what the shell is asked to say
FILE = "notes.txt"
FILE_TEXT = "The animal of this file is the ocelot."
THOUGHT = "The user wants to see a tool at work."
# What the tools that we call return, one of these words each.
SEEN = (ECHOED, "ocelot", FILE)

# Fields of a thought that its own vendor wants back unchanged, by wire API.
SIGNATURES: dict[str, dict[str, str]] = {
    "anthropic-messages": {"signature": "c2lnbmVkLWJ5LXRoZS11cHN0cmVhbQ=="},
    "openai-responses": {"encrypted_content": "ZW5jcnlwdGVkLWJ5LXRoZS11cHN0cmVhbQ=="},
}


class _Kind(NamedTuple):
    """A kind of harmless tool: how its names read, and the arguments that one of them must have."""

    names: re.Pattern[str]
    needs: re.Pattern[str]


# The first kind that a client declares is called.
_KINDS = (
    _Kind(
        re.compile(r"(bash|shell|exec_command|run_shell_command|shell_command|local_shell)", re.IGNORECASE),
        re.compile("c(om)?m(an)?d"),
    ),
    _Kind(re.compile(r"(read|read_file|view)", re.IGNORECASE), re.compile("path")),
    _Kind(re.compile(r"(ls|list|list_dir|list_directory|glob)", re.IGNORECASE), re.compile("path|pattern")),
)


def answer(read: ReadRequest, api: str, *, folder: str, thinks: bool = False) -> list[MessageDelta]:
    """Return the deltas of the whole answer. `folder` is the client's project, for tools that want a path."""
    writer = DeltaWriter("upstream")
    request = read.request
    writer.start(request.config.model_id, "up_1")
    call = _find_call(request.tools, folder) if wants_call(request.messages) else None
    if thinks and call is not None:
        writer.thinking(THOUGHT, 0)
        writer.thinking("", 0, SIGNATURES.get(api))
    if call is not None:
        name, arguments = call
        call_id = f"call_{len(request.messages)}x{len(name)}"
        text = encode_json(arguments).decode()
        writer.call_start(call_id, name)
        for start in range(0, len(text), 16):
            writer.call_args(call_id, text[start : start + 16])
        writer.call_end(call_id)
    else:
        for piece in re.findall(r"\S+\s*", _say(read)):
            writer.text(piece, 0)
    writer.usage(TokenUsage(input_tokens=1200, output_tokens=24))
    writer.done(FinishReason.STOP if call is None else FinishReason.TOOL_CALLS, None)
    return writer.take()


def wants_call(messages: Sequence[Message]) -> bool:
    """Whether the request asks for a call: its new messages have the word, and no result."""
    new = newest(messages)
    return not any(message.tool_results for message in new) and any(CALL_WORD in message.text for message in new)


def newest(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after the model's last one."""
    said = [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT]
    return messages[said[-1] + 1 :] if said else messages


def result_text(messages: Sequence[Message]) -> str:
    """The text of the results among the newest messages."""
    results = [result for message in newest(messages) for result in message.tool_results]
    return "\n".join(_text(result) for result in results)


def _text(result: ToolResult) -> str:
    match result.content:
        case str() as text:
            return text
        case dict() as value:
            return encode_json(value).decode()
        case parts:
            return "\n".join(part.text for part in parts if isinstance(part, Text))


def _say(read: ReadRequest) -> str:
    schema = read.request.config.output_schema
    if schema is not None:
        return encode_json(make_value(schema, "", folder="/")).decode()
    told = result_text(read.request.messages)
    seen = next((word for word in SEEN if word in told), "")
    return f"The word is {PLANTED}. The tool said {seen or 'something else'}." if told else f"The word is {PLANTED}."


# ---------------------------------------------------------------- a call


def _find_call(tools: Sequence[ToolSpec], folder: str) -> tuple[str, dict[str, Any]] | None:
    """A harmless tool of those, and arguments that its schema takes."""
    for kind in _KINDS:
        for tool in tools:
            properties = tool.parameter_schema.get("properties") or {}
            if kind.names.fullmatch(tool.name) and any(kind.needs.search(name) for name in properties):
                return tool.name, make_value(tool.parameter_schema, "", folder=folder, needs=kind.needs)
    return None


# Names of properties, and what they get. The first that fits counts.
_VALUES: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (re.compile(r"cmd|command"), lambda folder: f"echo {ECHOED}"),
    (re.compile(r"dir|cwd"), lambda folder: folder),
    (re.compile(r"path|file"), lambda folder: f"{folder}/{FILE}"),
    (re.compile(r"pattern|glob"), lambda folder: "*.txt"),
)


def make_value(schema: Mapping[str, Any], name: str, *, folder: str, needs: re.Pattern[str] | None = None) -> Any:
    """Return a small value of the schema. Of an object: the required properties, and those that `needs` names."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return make_value(schema[choice][0], name, folder=folder)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    text = next((make(folder) for pattern, make in _VALUES if pattern.search(name)), f"a small {name}".strip())
    match kind:
        case "object":
            required = schema.get("required") or ()
            return {
                key: make_value(value, key, folder=folder)
                for key, value in (schema.get("properties") or {}).items()
                if key in required or (needs is not None and needs.fullmatch(key))
            }
        case "array":
            return text.split() if "command" in name else [make_value(schema.get("items") or {}, name, folder=folder)]
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case _:
            return text
