"""What an MCP server asks of its client, read as values of ours: questions for a person, messages for the model.

Nothing that a server says is trusted. What is too large, nested, or no form of the protocol is refused by ToolError,
in words for the server's author.
"""

import base64
import binascii
from typing import TYPE_CHECKING, Any, NoReturn

from .._jsontext import encode_json
from ..errors import InvalidValue, ToolError
from ..mediatypes import guess_type
from ..message import Image, Message, Part, Role, Text
from .asking import Question, SamplingRequest
from .mismatch import quote

if TYPE_CHECKING:
    from mcp import types

__all__ = ["read_question", "read_sampling"]

LONGEST_QUESTION = 8_000  # characters
LONGEST_ADDRESS = 2_000
LARGEST_FORM = 50_000  # bytes of JSON
MOST_FIELDS = 50
MOST_MESSAGES = 100
LONGEST_MESSAGES = 500_000  # characters of text, the system prompt and stop sequences among them
LARGEST_PICTURES = 10 * 1024 * 1024  # bytes
MOST_STOP_SEQUENCES = 16

# The keywords of a form's fields, by type. A form is flat: whatever else a server writes there is left out.
_COMMON = ("type", "title", "description", "default")
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": (*_COMMON, "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": (*_COMMON, "minimum", "maximum"),
    "integer": (*_COMMON, "minimum", "maximum"),
    "boolean": _COMMON,
    "array": (*_COMMON, "minItems", "maxItems", "items"),
}


def read_question(params: "types.ElicitRequestParams", origin: str) -> Question:
    """Return what a server asks a person; raise ToolError for what no person should be shown."""
    if len(params.message) > LONGEST_QUESTION:
        _refuse(f"the question has {len(params.message)} characters, at most {LONGEST_QUESTION} are shown")
    if params.mode == "url":
        address = params.url
        if len(address) > LONGEST_ADDRESS or not address.isprintable() or " " in address:
            _refuse("the address is too long, or has characters that no address has")
        if not address.lower().startswith(("https://", "http://")):
            _refuse("the address must begin with https:// or http://")
        return Question(text=params.message, url=address, origin=origin)
    return Question(text=params.message, schema=_form(params.requested_schema), origin=origin)


def read_sampling(params: "types.CreateMessageRequestParams", origin: str) -> SamplingRequest:
    """Return what a server wants the model to answer; raise ToolError for what is not sent to a model."""
    if params.tools or params.tool_choice is not None:
        _refuse("sampling with tools is not supported: this client does not declare sampling.tools")
    if params.max_tokens < 1:
        _refuse(f"maxTokens must be at least 1, got {params.max_tokens}")
    stops = tuple(params.stop_sequences or ())
    if len(stops) > MOST_STOP_SEQUENCES or not all(stops):
        _refuse(f"at most {MOST_STOP_SEQUENCES} stop sequences are taken, and none that is empty")
    if not params.messages or len(params.messages) > MOST_MESSAGES:
        _refuse(f"from 1 to {MOST_MESSAGES} messages are taken, got {len(params.messages)}")
    if params.temperature is not None and not 0 <= params.temperature <= 2:
        _refuse("temperature must be from 0 to 2")
    _require_sizes(params, stops)
    try:
        messages = tuple(_message(message) for message in params.messages)
    except InvalidValue as error:
        raise ToolError(f"a message cannot be sent to a model: {error}") from None
    return SamplingRequest(
        messages=messages,
        max_tokens=params.max_tokens,
        system=params.system_prompt or "",
        temperature=params.temperature,
        stop_sequences=stops,
        origin=origin,
    )


# ---------------------------------------------------------------- forms


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    """The form with the keywords that the protocol has, so that no nested or costly schema is ever compiled."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict):
        _refuse("requestedSchema must be of the type object and have properties")
    if len(properties) > MOST_FIELDS:
        _refuse(f"the form has {len(properties)} fields, at most {MOST_FIELDS} are shown")
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        _refuse("required must name fields of the form")
    fields = {name: _field(name, described) for name, described in properties.items()}
    form = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    if (size := len(encode_json(form))) > LARGEST_FORM:
        _refuse(f"the form has {size} bytes, at most {LARGEST_FORM} are taken")
    return form


def _field(name: str, described: object) -> dict[str, Any]:
    kind = described.get("type") if isinstance(described, dict) else None
    if not isinstance(described, dict) or not isinstance(kind, str) or kind not in _KEYWORDS:
        _refuse(f"the field {quote(name)} is none that a form may have: {', '.join(_KEYWORDS)}")
    field = {keyword: described[keyword] for keyword in _KEYWORDS[kind] if described.get(keyword) is not None}
    for keyword, value in field.items():
        if keyword in ("items", "oneOf", "anyOf"):
            is_sound = _is_choice(value if keyword == "items" else {"anyOf": value})
        elif keyword in ("enum", "enumNames", "default") and isinstance(value, list):
            is_sound = all(isinstance(item, str) for item in value)
        else:
            is_sound = isinstance(value, (str, int, float, bool))
        if not is_sound:
            _refuse(f"the field {quote(name)}: {keyword} is nested, which a form is not")
    if kind == "array" and "items" not in field:
        _refuse(f"the field {quote(name)}: items must list what may be chosen")
    return field


def _is_choice(value: object) -> bool:
    """Whether this lists texts, as `enum`, or as constants with titles."""
    if (
        not isinstance(value, dict)
        or not set(value) <= {"type", "enum", "anyOf"}
        or value.get("type") not in (None, "string")
    ):
        return False
    listed, titled = value.get("enum"), value.get("anyOf")
    if isinstance(listed, list):
        return all(isinstance(item, str) for item in listed)
    return isinstance(titled, list) and all(
        isinstance(item, dict)
        and set(item) <= {"const", "title"}
        and all(isinstance(text, str) for text in item.values())
        for item in titled
    )


# ---------------------------------------------------------------- messages


def _require_sizes(params: "types.CreateMessageRequestParams", stops: tuple[str, ...]) -> None:
    blocks = [block for message in params.messages for block in message.content_as_list]
    characters = len(params.system_prompt or "") + sum(map(len, stops))
    characters += sum(len(block.text) for block in blocks if block.type == "text")
    if characters > LONGEST_MESSAGES:
        _refuse(f"the messages have {characters} characters, at most {LONGEST_MESSAGES} are sent")
    if sum(len(block.data) * 3 // 4 for block in blocks if block.type == "image") > LARGEST_PICTURES:
        _refuse(f"the pictures have more than {LARGEST_PICTURES} bytes")


def _message(message: "types.SamplingMessage") -> Message:
    role = Role.USER if message.role == "user" else Role.ASSISTANT
    return Message(role, tuple(_part(block) for block in message.content_as_list))


def _part(block: "types.SamplingMessageContentBlock") -> Part:
    if block.type == "text":
        return Text(block.text)
    if block.type != "image":
        _refuse(f"{block.type} content is not sent to a model here: text and pictures are")
    return _picture(block.mime_type, block.data)


def _picture(mime_type: str, encoded: str) -> Image:
    """The picture; a server that calls something a picture which is none, or is another one, is refused."""
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        _refuse("a picture is no base64")
    picture = Image(mime_type.lower(), data)
    found = guess_type(None, data)
    if found != picture.mime_type:
        _refuse(f"a picture is said to be {quote(mime_type)}, but its bytes are {found}")
    return picture


def _refuse(says: str) -> NoReturn:
    raise ToolError(says)
