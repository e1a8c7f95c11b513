"""The body of a request → what a provider's cache compares, in the order in which it does. Pure.

First settings, then tools, the system text, further settings, messages. Marks that ask for caching (`cache_control`,
`cachePoint`) are taken out and noted: they move from call to call and are no part of what is cached. Knows nothing of
sessions, of time, and of what a provider reports.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData

__all__ = ["CachedItem", "CachedRequest", "RequestSplitter", "Section"]

Section: TypeAlias = Literal["settings", "tools", "system", "messages"]

# What a picture or a file weighs beside texts: about the bytes of text that count as many tokens.
MEDIA_WEIGHT = 6_000
_MEDIA_SIGNS = (b'"base64"', b";base64,", b'"bytes":', b'"inlineData":', b'"input_audio":', b'"file_data":')
_SYSTEM_ROLES = frozenset({"system", "developer"})


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a request stand. A path is names with dots between them.

    `first` are settings whose change moves everything, `middle` those whose change leaves tools and system cached.
    `blocks` is the field of a message whose items count one by one. `mark` is the field that asks for caching; with
    `needs_marks` nothing is cached without one, and a prefix is found over at most `lookback` blocks.
    """

    tools: str
    system: str
    messages: str
    first: tuple[str, ...] = ()
    middle: tuple[str, ...] = ()
    blocks: str = ""
    mark: str = "cache_control"
    needs_marks: bool = False
    lookback: int | None = None


# docs/context.md has the vendors' rules. Anthropic lists what each change invalidates; OpenAI puts the schema of an
# answer before the system message.
_LAYOUTS: dict[str, _Layout] = {
    "anthropic-messages": _Layout(
        tools="tools",
        system="system",
        messages="messages",
        middle=("tool_choice", "thinking", "output_config.format"),
        blocks="content",
        needs_marks=True,
        lookback=20,
    ),
    "bedrock-converse": _Layout(
        tools="toolConfig.tools",
        system="system",
        messages="messages",
        middle=("toolConfig.toolChoice", "additionalModelRequestFields", "outputConfig"),
        blocks="content",
        mark="cachePoint",
        needs_marks=True,
        lookback=20,
    ),
    "openai-chat": _Layout(tools="tools", system="", messages="messages", first=("response_format",)),
    "openai-responses": _Layout(tools="tools", system="instructions", messages="input", first=("text.format",)),
    "gemini": _Layout(
        tools="tools",
        system="systemInstruction",
        messages="contents",
        first=("cachedContent", "generationConfig.responseJsonSchema", "generationConfig.responseSchema"),
        blocks="parts",
    ),
}


class CachedItem(msgspec.Struct, frozen=True, gc=False):
    """What a cache compares whole: a setting, a tool, a block of a message. `path` is that in its section or message.

    `weight` is the length in bytes, less for a picture or a file. `role` is given where a message begins.
    """

    path: str
    data: bytes
    weight: int
    role: str = ""


class CachedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache compares of one request, in the order in which it does.

    `sections` and `messages` say for each item where it stands: the number of its message, -1 before the messages.
    `marks` says how many items there are up to each mark; None where the API caches without marks. With
    `is_long_lived` a mark asks for an hour. `others` are the fields of the body that stand in no section.
    """

    items: tuple[CachedItem, ...]
    sections: tuple[Section, ...]
    messages: tuple[int, ...]
    names: dict[Section, str]
    marks: tuple[int, ...] | None
    lookback: int | None
    is_long_lived: bool
    others: dict[str, bytes]

    @property
    def size(self) -> int:
        """The bytes of all items."""
        return sum(len(item.data) for item in self.items)

    @property
    def weight(self) -> int:
        """What all items weigh."""
        return self.weight_of(len(self.items))

    def weight_of(self, count: int) -> int:
        """Return what the first `count` items weigh."""
        return sum(item.weight for item in self.items[:count])

    def blocks_between(self, first: int, last: int) -> int:
        """Return how many blocks there are from one item to another."""
        return sum(not item.role for item in self.items[first:last])

    def section_at(self, index: int) -> Section:
        """Return the section in which an item stands, `messages` for an index after the end."""
        return self.sections[index] if index < len(self.sections) else "messages"

    def path_at(self, index: int) -> str:
        """Return the JSON path of an item, that of the messages for an index after the end."""
        if index >= len(self.items):
            return self.names["messages"]
        item, section, message = self.items[index], self.sections[index], self.messages[index]
        if message >= 0:
            return f"{self.names['messages']}[{message}]{item.path}"
        return item.path if section == "settings" else f"{self.names[section]}{item.path}"


class _Pieces(msgspec.Struct, frozen=True):
    """Items, the number of items before each mark, and whether one of the marks asks for an hour."""

    items: tuple[CachedItem, ...] = ()
    marks: tuple[int, ...] = ()
    is_long_lived: bool = False


class RequestSplitter:
    """Splits the requests of one conversation. A message that an earlier request had too is looked at once."""

    def __init__(self, specification: str) -> None:
        layout = _LAYOUTS.get(specification)
        if layout is None:
            raise InvalidValue.of("specification", specification, f"one of {', '.join(_LAYOUTS)}")
        self._layout = layout
        self._known: dict[bytes, _Pieces] = {}

    def split(self, body: bytes | str) -> CachedRequest:
        """Return what a cache compares of a request; raise UnreadableData for a body that is no such request."""
        layout = self._layout
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            said = fields.get(layout.messages)
            messages = [] if said is None else self._messages_in(bytes(said))
        except (msgspec.DecodeError, RecursionError):
            raise UnreadableData("the body is no request: it is no JSON object with messages") from None
        used = {path.partition(".")[0] for path in (layout.tools, layout.system, *layout.first, *layout.middle) if path}
        frame = {name: decode_json(bytes(fields[name])) for name in used if name in fields}
        parts: list[tuple[Section, int, _Pieces]] = [("settings", -1, _settings(frame, layout.first))]
        parts.append(("tools", -1, _list_pieces(_tools(_value_at(frame, layout.tools)), layout)))
        parts.append(("system", -1, _list_pieces(_system(_value_at(frame, layout.system)), layout)))
        parts.append(("settings", -1, _settings(frame, layout.middle)))
        is_leading = True
        for number, pieces in enumerate(messages):
            is_leading = is_leading and pieces.items[0].role in _SYSTEM_ROLES
            parts.append(("system" if is_leading else "messages", number, pieces))
        return self._joined(parts, fields, used)

    def _messages_in(self, said: bytes) -> list[_Pieces]:
        if said.startswith(b'"'):  # the Responses API takes a text for one message
            return [_message_pieces({"role": "user", "content": decode_json(said)}, self._layout)]
        return list(map(self._message, msgspec.json.decode(said, type=list[msgspec.Raw])))

    def _message(self, raw: msgspec.Raw) -> _Pieces:
        written = bytes(raw)
        known = self._known.get(written)
        if known is None:
            known = self._known[written] = _message_pieces(decode_json(written), self._layout)
        return known

    def _joined(
        self, parts: Sequence[tuple[Section, int, _Pieces]], fields: dict[str, msgspec.Raw], used: set[str]
    ) -> CachedRequest:
        layout = self._layout
        items: list[CachedItem] = []
        sections: list[Section] = []
        messages: list[int] = []
        marks: list[int] = []
        for section, number, pieces in parts:
            marks += (len(items) + mark for mark in pieces.marks)
            items += pieces.items
            sections += [section] * len(pieces.items)
            messages += [number] * len(pieces.items)
        if layout.mark in fields:  # one for the whole request
            marks.append(len(items))
        return CachedRequest(
            items=tuple(items),
            sections=tuple(sections),
            messages=tuple(messages),
            names={"tools": layout.tools, "system": layout.system, "messages": layout.messages},
            marks=tuple(marks) if marks or layout.needs_marks else None,
            lookback=layout.lookback,
            is_long_lived=any(pieces.is_long_lived for _, _, pieces in parts)
            or (layout.mark in fields and _is_long(decode_json(bytes(fields[layout.mark])))),
            others={
                name: bytes(value)
                for name, value in fields.items()
                if name not in used and name not in (layout.messages, layout.mark)
            },
        )


# ---------------------------------------------------------------- pieces


def _value_at(frame: dict[str, Any], path: str) -> Any:
    """The value at a path; None where there is none."""
    value: Any = frame
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _settings(frame: dict[str, Any], paths: Sequence[str]) -> _Pieces:
    values = ((path, _value_at(frame, path)) for path in paths)
    return _Pieces(tuple(_item(path, value) for path, value in values if value is not None))


def _tools(value: Any) -> list[tuple[str, Any]]:
    """Each tool with its path. Gemini puts functions into one list inside of the list of tools."""
    found: list[tuple[str, Any]] = []
    for number, tool in enumerate(value if isinstance(value, list) else ()):
        functions = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        if isinstance(functions, list):
            found += ((f"[{number}].functionDeclarations[{place}]", each) for place, each in enumerate(functions))
        else:
            found.append((f"[{number}]", tool))
    return found


def _system(value: Any) -> list[tuple[str, Any]]:
    """Each block of the system text with its path."""
    if value is None:
        return []
    if isinstance(value, dict) and isinstance(value.get("parts"), list):
        return [(f".parts[{place}]", part) for place, part in enumerate(value["parts"])]
    return [(f"[{place}]", each) for place, each in enumerate(value)] if isinstance(value, list) else [("", value)]


def _message_pieces(message: Any, layout: _Layout) -> _Pieces:
    """A message as its role and its blocks, or as one piece where its API has no blocks."""
    role = message.get("role") if isinstance(message, dict) else None
    blocks = message.get(layout.blocks) if layout.blocks and isinstance(message, dict) else None
    named = role if isinstance(role, str) and role else "?"
    if blocks is None:
        clean, found = _without_marks(message, layout.mark)
        item = msgspec.structs.replace(_item("", _plain(clean)), role=named)
        return _Pieces((item,), (1,) if found else (), any(map(_is_long, found)))
    if not isinstance(blocks, list):
        blocks = [{"type": "text", "text": blocks}]  # a text means one block
    head = {name: value for name, value in message.items() if name != layout.blocks}
    numbered = [(f".{layout.blocks}[{place}]", block) for place, block in enumerate(blocks)]
    pieces = _list_pieces(numbered, layout)
    begin = msgspec.structs.replace(_item("", head), role=named)
    return _Pieces((begin, *pieces.items), tuple(mark + 1 for mark in pieces.marks), pieces.is_long_lived)


def _list_pieces(values: Sequence[tuple[str, Any]], layout: _Layout) -> _Pieces:
    items: list[CachedItem] = []
    marks: list[int] = []
    is_long_lived = False
    for path, value in values:
        clean, found = _without_marks(value, layout.mark)
        if clean != {} or not found:  # else a mark that is a block of its own
            items.append(_item(path, clean))
        if found:
            marks.append(len(items))
            is_long_lived = is_long_lived or any(map(_is_long, found))
    return _Pieces(tuple(items), tuple(marks), is_long_lived)


def _without_marks(value: Any, mark: str) -> tuple[Any, list[Any]]:
    """The value without marks, also in the lists that it holds, and those marks. Objects inside are left alone."""
    if isinstance(value, list):
        cleaned = [_without_marks(each, mark) for each in value]
        return [each for each, _ in cleaned], [each for _, found in cleaned for each in found]
    if not isinstance(value, dict):
        return value, []
    clean: dict[str, Any] = {}
    marks: list[Any] = []
    for name, inner in value.items():
        if name == mark:
            marks.append(inner)
        elif isinstance(inner, list):
            clean[name], found = _without_marks(inner, mark)
            marks += found
        else:
            clean[name] = inner
    return clean, marks


def _is_long(mark: Any) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == "1h"


def _plain(message: Any) -> Any:
    """The message with its text as text: an encoder makes a list of it where a mark must stand."""
    match message:
        case {"content": [{"type": "text", "text": str(text), **others}]} if not others:
            return {**message, "content": text}
    return message


def _item(path: str, value: Any) -> CachedItem:
    data = encode_json(value)
    is_media = len(data) > MEDIA_WEIGHT and any(sign in data for sign in _MEDIA_SIGNS)
    return CachedItem(path, data, MEDIA_WEIGHT if is_media else len(data))
