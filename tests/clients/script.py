"""What the scripted upstream answers: a request as it was read → the deltas of an answer. Pure, and without memory.

A user's text with the word of a wish in it gets calls of harmless tools, of those that the client declared. The request
that brings the results gets a text with PLANTED in it and with words of the results. Any other request gets a text with
PLANTED in it, or an object of the schema that it asks for.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dragoman import FinishReason, Image, Message, Role, Text, TokenUsage, ToolResult, ToolSpec
from dragoman._jsontext import encode_json
from dragoman.delta import MessageDelta
from dragoman.request import ReadRequest
from dragoman.stream import DeltaWriter

PLANTED = "quetzal"
ECHOED, ECHOED_TOO = "marmoset", "capybara"  # what the shell is asked to say
FILE = "notes.txt"
FILE_TEXT = "The animal of this file is the ocelot."
PICTURE = "picture.png"
THOUGHT = "The user wants to see a tool at work."
# Words of what the tools return.
SEEN = (ECHOED, ECHOED_TOO, "ocelot", FILE)
SEEN_PICTURE = "a-picture"

# Fields of a thought that its own vendor wants back unchanged, by wire API.
SIGNATURES: dict[str, dict[str, str]] = {
    "anthropic-messages": {"signature": "c2lnbmVkLWJ5LXRoZS11cHN0cmVhbQ=="},
    "openai-responses": {"encrypted_content": "ZW5jcnlwdGVkLWJ5LXRoZS11cHN0cmVhbQ=="},
}


class Kind(NamedTuple):
    """A kind of harmless tool: how its names read, and what properties of its arguments get, by patterns of names."""

    names: str
    values: dict[str, str]


class Wish(NamedTuple):
    """What a user may ask for: each call is of the first kind that the client has a tool of."""

    word: str
    calls: tuple[tuple[Kind, ...], ...]


def _shell(said: str) -> Kind:
    return Kind(
        r"bash|shell|exec_command|run_shell_command|shell_command|local_shell", {r"cmd|command": f"echo {said}"}
    )


def _read(file: str) -> Kind:
    return Kind(r"read|read_file|view_image|view", {r"(file_?|absolute_?)?path": f"{{folder}}/{file}"})


CALL_WORD, TWO_WORD = "please-use-a-tool", "please-use-two-tools"
PICTURE_WORD, AGENT_WORD = "please-look-at-the-picture", "please-ask-an-agent"
_LIST = Kind(r"ls|list|list_dir|list_directory", {r".*path": "{folder}"})
_AGENT = Kind(r"agent|task|spawn_agent", {r"prompt|message": f"{CALL_WORD}, then tell me the word."})
WISHES = (
    Wish(CALL_WORD, ((_shell(ECHOED), _read(FILE), _LIST),)),
    Wish(TWO_WORD, ((_shell(ECHOED),), (_shell(ECHOED_TOO),))),
    Wish(PICTURE_WORD, ((Kind("view_image", _read(PICTURE).values), _read(PICTURE)),)),
    Wish(AGENT_WORD, ((_AGENT,),)),
)


def answer(read: ReadRequest, api: str, *, folder: str, thinks: bool = False) -> list[MessageDelta]:
    """Return the deltas of the whole answer. `folder` is the client's project, for tools that want a path."""
    writer = DeltaWriter("upstream")
    request = read.request
    writer.start(request.config.model_id, "up_1")
    calls = _find_calls(request.messages, request.tools, folder)
    if thinks and calls:
        writer.thinking(THOUGHT, 0)
        writer.thinking("", 0, SIGNATURES.get(api))
    for number, (name, arguments) in enumerate(calls):
        call_id = f"call_{len(request.messages)}x{number}"
        text = encode_json(arguments).decode()
        writer.call_start(call_id, name)
        for start in range(0, len(text), 16):
            writer.call_args(call_id, text[start : start + 16])
        writer.call_end(call_id)
    if not calls:
        for piece in re.findall(r"\S+\s*", _say(read)):
            writer.text(piece, 0)
    writer.usage(TokenUsage(input_tokens=1200, output_tokens=24))
    writer.done(FinishReason.TOOL_CALLS if calls else FinishReason.STOP, None)
    return writer.take()


def newest(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after the model's last words or calls. Codex keeps the thoughts of an answer that was cut."""
    said = [
        index
        for index, message in enumerate(messages)
        if message.role is Role.ASSISTANT and (message.text or message.tool_calls)
    ]
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
        return encode_json(make_value(schema, "", {})).decode()
    told = result_text(read.request.messages)
    seen = [word for word in SEEN if word in told]
    if any(_has_picture(message) for message in newest(read.request.messages)):
        seen.append(SEEN_PICTURE)
    has_result = any(message.tool_results for message in newest(read.request.messages))
    return f"The word is {PLANTED}." + (f" The tool said {' '.join(seen) or 'something else'}." if has_result else "")


def _has_picture(message: Message) -> bool:
    """Whether a message has a picture, in a result or beside it."""
    contents = (result.content for result in message.tool_results)
    parts = [part for content in contents if isinstance(content, tuple) for part in content]
    return any(isinstance(part, Image) for part in (*message.parts, *parts))


# ---------------------------------------------------------------- calls


def _find_calls(
    messages: Sequence[Message], tools: Sequence[ToolSpec], folder: str
) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the new messages wish for, with arguments that the tools take; none where they bring results."""
    new = newest(messages)
    said = "" if any(message.tool_results for message in new) else "\n".join(message.text for message in new)
    wish = next((wish for wish in WISHES if wish.word in said), None)
    found = [_find_call(kinds, tools, folder) for kinds in wish.calls] if wish is not None else []
    return [call for call in found if call is not None]


def _find_call(kinds: Sequence[Kind], tools: Sequence[ToolSpec], folder: str) -> tuple[str, dict[str, Any]] | None:
    for kind in kinds:
        values = {pattern: value.replace("{folder}", folder) for pattern, value in kind.values.items()}
        for tool in tools:
            properties = tool.parameter_schema.get("properties") or {}
            fits = any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in values for name in properties)
            if fits and re.fullmatch(kind.names, tool.name, re.IGNORECASE):
                return tool.name, make_value(tool.parameter_schema, "", values)
    return None


def make_value(schema: Mapping[str, Any], name: str, values: Mapping[str, str]) -> Any:
    """Return a small value of the schema. Of an object: the required properties, and those that `values` names."""
    given = next((value for pattern, value in values.items() if re.fullmatch(pattern, name, re.IGNORECASE)), None)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return make_value(schema[choice][0], name, values)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match str(kind[0] if isinstance(kind, list) else kind).lower():
        case "object":
            required = schema.get("required") or ()
            made = {key: make_value(value, key, values) for key, value in (schema.get("properties") or {}).items()}
            named = [key for key in made for pattern in values if re.fullmatch(pattern, key, re.IGNORECASE)]
            return {key: value for key, value in made.items() if key in required or key in named}
        case "array":
            return given.split() if given is not None else [make_value(schema.get("items") or {}, "", {})]
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case _:
            return given if given is not None else f"a small {name}".strip()
