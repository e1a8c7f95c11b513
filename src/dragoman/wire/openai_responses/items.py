"""The events and output items of OpenAI Responses, and the fields of an item that are stored with its part. Pure."""

from types import NoneType
from typing import Any, Literal, TypeAlias

from ..._jsontext import encode_json, join_surrogates, parse_arguments
from ...usage import TokenUsage, count_of
from ..wholeness import NOT_CLOSED, PIECE_LOST, contradicted, lost
from ..wholeness import says_the_same as same_arguments

__all__ = [
    "NOT_KEPT",
    "PIECES",
    "REPEATED",
    "TERMINALS",
    "WHOLES",
    "OutputItem",
    "PieceEvent",
    "changes_in",
    "content_data",
    "distinct",
    "item_of",
    "items_in",
    "matching",
    "object_of",
    "objects_in",
    "reasoning_data",
    "reasoning_texts",
    "require_same",
    "require_same_call",
    "rest_of",
    "rest_of_arguments",
    "text_in",
    "usage_in",
    "whole_in",
    "without",
]

_Words: TypeAlias = tuple[str, str, str]  # an item's type, the name of a call, and its text
PieceEvent: TypeAlias = Literal[
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
]
# Event -> the item that it adds a piece to, and which of the item's texts.
PIECES: dict[str, tuple[str, str]] = {
    "response.output_text.delta": ("message", "output_text"),
    "response.refusal.delta": ("message", "refusal"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary_text"),
    "response.reasoning_text.delta": ("reasoning", "reasoning_text"),
    "response.function_call_arguments.delta": ("function_call", "arguments"),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "input"),
}
# Event -> the item whose text it repeats whole, which of its texts that is, and the event's own field for it.
WHOLES: dict[str, tuple[str, str, str]] = {
    "response.output_text.done": ("message", "output_text", "text"),
    "response.refusal.done": ("message", "refusal", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "summary_text", "text"),
    "response.reasoning_text.done": ("reasoning", "reasoning_text", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments", "arguments"),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input", "input"),
    "response.mcp_call_arguments.done": ("mcp_call", "arguments", "arguments"),
    "response.code_interpreter_call_code.done": ("code_interpreter_call", "code", "code"),
}
TERMINALS = frozenset(f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled"))

# Events whose content the item's end or the response's end repeats.
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
REPEATED = frozenset(
    {
        "keepalive",
        "ping",
        "response.content_part.added",
        "response.output_text.annotation.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
        "response.code_interpreter_call.interpreting",
        "response.image_generation_call.generating",
        "response.image_generation_call.partial_image",
        "response.compaction.compacting",
        "response.reasoning_part.added",  # vLLM
        "response.reasoning_part.done",
        *(f"response.shell_call_command.{step}" for step in ("added", "delta", "done")),
        *(f"response.shell_call_output_content.{step}" for step in ("delta", "done")),
        *(
            f"response.{tool}.{step}"
            for tool in (*_HOSTED, "mcp_list_tools")
            for step in ("in_progress", "searching", "completed", "failed")
        ),
    }
)

# Fields that repeat the request or what deltas say already.
NOT_KEPT = frozenset(
    {
        "background",
        "error",
        "frequency_penalty",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "object",
        "order",  # a word of ours
        "output",
        "output_text",
        "parallel_tool_calls",
        "presence_penalty",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "status",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "usage",
        "user",
    }
)


_NOT_THE_SUM = "the whole that the provider repeats is not the sum of its pieces"
# Fields that requests rely on, with their types: other values are not kept.
_ITEM_FIELDS = dict.fromkeys(("id", "call_id", "type", "role", "status"), (str, NoneType))
_REASONING_FIELDS = {**_ITEM_FIELDS, **dict.fromkeys(("summary", "content"), (list, NoneType))}
_CALLS = ("function_call", "custom_tool_call")


class OutputItem:
    """An open output item: its first form, the pieces of its texts, and its final form once that is known."""

    __slots__ = (
        "call_id", "channel", "closed", "content_done", "current", "damaged", "early", "final", "held", "item_id",
        "kind", "number", "opened", "order", "part_index", "pieces", "texts", "wholes", "writing", "written",
    )  # fmt: skip

    def __init__(self, opened: dict[str, Any], number: int) -> None:
        self.opened = opened
        self.number = number  # the items count from 0 in the order in which they opened
        self.kind = str(opened.get("type") or "unknown")
        if self.kind == "message" and opened.get("role") not in (None, "assistant"):
            self.kind = "message of another role"  # a compacted history repeats what the user said
        self.item_id = text_in(opened, "id") or None
        self.final: dict[str, Any] | None = None
        self.pieces: dict[int, list[str]] = {}
        self.writing: list[str] = []  # the pieces of the content that is being written
        self.held: list[tuple[str, int, str]] = []
        self.content_done: dict[int, dict[str, Any]] = {}
        self.wholes: dict[tuple[str, int], str] = {}  # texts that an event repeated whole, by kind and index
        self.texts: dict[int, str] = {}  # of a message: the contents that are closed
        self.channel = ""  # which texts of a reasoning item are being written
        self.current: int | None = None  # which content of a message is being written
        self.part_index: int | None = None
        self.call_id: str | None = None  # of a call that has been opened
        self.order: int | None = None  # among the items, by when they were first written
        self.early: dict[str, Any] | None = None  # what a reasoning item was closed with before its end
        self.written = ""
        self.damaged = False  # whether a piece came that cannot be read
        self.closed = False

    @property
    def latest(self) -> dict[str, Any]:
        """The item as far as it is known."""
        return self.opened if self.final is None else self.final

    @property
    def is_unfinished(self) -> bool:
        """Whether the provider itself calls the item unfinished."""
        return is_unfinished(self.latest)

    def problem(self) -> str | None:
        """Return why a call must not run: the provider did not end it, or calls it unfinished."""
        if self.final is None:
            return NOT_CLOSED
        if self.damaged and not (self.wholes or self.final.get("arguments") or self.final.get("input")):
            return PIECE_LOST
        return f"the provider calls the call {text_in(self.final, 'status')!r}" if self.is_unfinished else None

    def note_whole(self, channel: str, index: int, whole: str) -> None:
        """Keep a text that an event repeats; raise ModelError where the item has another one."""
        known = self.wholes.setdefault((channel, index), whole) if whole else ""
        final = whole_in(self.latest, channel, index) if self.closed and whole else ""
        if (known and known != whole) or (final and final != whole):
            raise lost(_NOT_THE_SUM)

    def require_wholes(self) -> None:
        """Raise ModelError where the item's last form says otherwise than an event that repeated a text of it."""
        for (channel, index), whole in self.wholes.items():
            final = whole_in(self.latest, channel, index)
            if final and final != whole and not (channel == "arguments" and same_arguments(final, whole)):
                raise lost(_NOT_THE_SUM)

    def text(self) -> str:
        """All that its pieces say."""
        return join_surrogates("".join(piece for pieces in self.pieces.values() for piece in pieces))

    def words(self) -> _Words | None:
        """What it says so far, as `_words_in` finds it again in a final item that has another id."""
        latest, written = self.latest, "".join(self.writing)
        match self.kind:
            case "function_call":
                return self.kind, text_in(latest, "name"), text_in(latest, "arguments") or written
            case "message":
                said = _texts_in(latest) or written
            case "reasoning":
                said = reasoning_texts(latest)[0] or self.text()
            case _:
                return None
        return (self.kind, "", said) if said else None


def content_data(item: OutputItem, content: dict[str, Any]) -> dict[str, Any]:
    """Return the provider fields of one text: the message's further fields, and under `content` those of the text."""
    data = without(item.latest, "type", "role", "content") or {}
    further = {
        name: value
        for name, value in content.items()
        if value not in (None, [], "output_text") and not (name in ("text", "refusal") and isinstance(value, str))
    }
    return {**data, "content": further} if further else data


def object_of(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of the list under `name`, none where there is no list."""
    entries = value.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def item_of(value: object) -> dict[str, Any]:
    """The output item that an event holds, empty where it holds none."""
    return _readable(object_of(value))


def items_in(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The output items of the list under `name`, none where there is no list."""
    return [_readable(entry) for entry in objects_in(value, name)]


def _readable(item: dict[str, Any]) -> dict[str, Any]:
    """The item without ids that are not text and lists that are none: a request that sends the item back uses them."""
    fields = _REASONING_FIELDS if item.get("type") == "reasoning" else _ITEM_FIELDS
    wrong = [name for name, kinds in fields.items() if not isinstance(item.get(name), kinds)]
    return {name: value for name, value in item.items() if name not in wrong} if wrong else item


def distinct(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without those that the list has twice."""
    seen: dict[str, dict[str, Any]] = {}
    kept: list[dict[str, Any]] = []
    for item in output:
        item_id = text_in(item, "id")
        if not item_id or seen.get(item_id) != item:
            seen.setdefault(item_id, item)
            kept.append(item)
    return kept


def whole_in(item: dict[str, Any], channel: str, index: int) -> str:
    """One text of an item: of a message or reasoning by its index, of a call its arguments."""
    match channel:
        case "output_text" | "refusal" | "reasoning_text":
            entries, field = item.get("content"), "refusal" if channel == "refusal" else "text"
        case "summary_text":
            entries, field = item.get("summary"), "text"
        case _:
            arguments = item.get(channel)
            return encode_json(arguments).decode() if isinstance(arguments, dict) else text_in(item, channel)
    if not isinstance(entries, list) or not 0 <= index < len(entries):
        return ""
    return text_in(object_of(entries[index]), field)


def is_unfinished(item: dict[str, Any]) -> bool:
    """Whether the provider itself calls an item unfinished."""
    return text_in(item, "status") not in ("", "completed", "complete")


def text_in(value: dict[str, Any], name: str) -> str:
    """The text under `name`, empty where there is none."""
    text = value.get(name)
    return text if isinstance(text, str) else ""


def usage_in(response: dict[str, Any]) -> TokenUsage | None:
    """The tokens that a response says it used, if it says so."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    read, written = (_count_in(usage, "input_tokens_details", name) for name in ("cached_tokens", "cache_write_tokens"))
    input_tokens, output_tokens, total = (_count_in(usage, f"{name}_tokens") for name in ("input", "output", "total"))
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    return TokenUsage.reported(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count_in(usage, "output_tokens_details", "reasoning_tokens"),
        cost=usage.get("cost"),
    )


def _count_in(usage: dict[str, Any], *path: str) -> int | None:
    """The number at the end of the path, if it is one."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return count_of(value)


def without(item: dict[str, Any], *names: str) -> dict[str, Any] | None:
    """The other fields that have a value; None where there are none."""
    return {name: value for name, value in item.items() if name not in names and value is not None} or None


def rest_of(written: str, *wholes: str) -> str:
    """Return what of the whole is still to be written; raise ModelError where the pieces are not its beginning.

    Several wholes are the same text in another order. An empty one repeats nothing.
    """
    if not any(wholes):
        return ""
    rests = [whole[len(written) :] for whole in wholes if whole.startswith(written)]
    if not rests:
        raise lost(_NOT_THE_SUM)
    return next((rest for rest in rests if rest), "")


def rest_of_arguments(written: str, arguments: Any) -> str:
    """Return what of a call's arguments is still to be written; raise ModelError as `rest_of` does."""
    if not isinstance(arguments, dict):
        return rest_of(written, arguments if isinstance(arguments, str) else "")
    if written and parse_arguments(written).arguments == arguments:
        return ""  # a host that gives the object itself may space its text otherwise
    return rest_of(written, encode_json(arguments).decode())


def require_same(before: dict[str, Any], after: dict[str, Any], *, same_id: bool) -> None:
    """Raise ModelError where an item that had ended comes again with other words, another name or another status."""
    said = _said_in(before), _said_in(after)
    if all(said) and said[0] != said[1]:
        raise lost("the last event says otherwise than an item that had ended")
    require_same_call(before, after, same_id=same_id)
    if is_unfinished(after) and not is_unfinished(before):
        raise contradicted("an item that had ended is called unfinished later")


def require_same_call(before: dict[str, Any], after: dict[str, Any], *, same_id: bool) -> None:
    """Raise ModelError where a call comes again with another name or, where ids must be the same, another call id."""
    if before.get("type") not in _CALLS or after.get("type") != before.get("type"):
        return
    for name in ("name", "call_id") if same_id else ("name",):
        said = text_in(before, name), text_in(after, name)
        if all(said) and said[0] != said[1]:
            raise contradicted(f"a call comes again with another {name}")


def _said_in(item: dict[str, Any]) -> str:
    """The words of a message, of reasoning or of a call's arguments; empty where the item has none."""
    match item.get("type"):
        case "message":
            return _texts_in(item)
        case "reasoning":
            return reasoning_texts(item)[0]
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments")
            written = encode_json(arguments).decode() if isinstance(arguments, dict) else text_in(item, "arguments")
            return written or text_in(item, "input")
    return ""


def _words_in(final: dict[str, Any]) -> list[_Words]:
    """What a final item says, in each order that its texts may have; nothing where only an id tells it from others."""
    match final.get("type"):
        case "function_call":
            return [("function_call", text_in(final, "name"), text_in(final, "arguments"))]
        case "message":
            return [("message", "", _texts_in(final))]
        case "reasoning":
            return [("reasoning", "", said) for said in reasoning_texts(final)]
        case _:
            return []


def matching(
    output: list[dict[str, Any]],
    items: list[OutputItem],
    by_id: dict[str | None, OutputItem],
    by_index: dict[int | None, OutputItem],
) -> list[OutputItem | None]:
    """Return for each final item the open item that it completes, None for one that no event announced.

    By id, by index, or by what it says: vLLM and gateways give an item another id and another index at the end.
    """
    found: list[OutputItem | None] = [None] * len(output)
    taken: set[OutputItem] = set()

    def take(index: int, item: OutputItem | None) -> None:
        if item is not None and item not in taken and item.opened.get("type") == output[index].get("type"):
            found[index] = item
            taken.add(item)

    for index, final in enumerate(output):
        take(index, by_id.get(text_in(final, "id")))
    for index, known in enumerate(found):
        if known is None:
            take(index, by_index.get(index))
    if None in found:
        by_words: dict[_Words, list[OutputItem]] = {}
        for item in reversed(items):
            if item not in taken and (words := item.words()) is not None:
                by_words.setdefault(words, []).append(item)
        for index, final in enumerate(output):
            same = next((by_words[words] for words in _words_in(final) if by_words.get(words)), None)
            if same and found[index] is None:
                found[index] = same.pop()
    return found


def _texts_in(message: dict[str, Any]) -> str:
    contents = objects_in(message, "content")
    return "".join(text_in(content, "text") or text_in(content, "refusal") for content in contents)


def changes_in(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that changed. Encrypted content differs each time it is sent, and says the same."""
    return {
        name: value
        for name, value in after.items()
        if name not in ("id", "encrypted_content") and value is not None and value != before.get(name)
    }


def reasoning_texts(item: dict[str, Any]) -> tuple[str, str]:
    """The item's text as a reader gets it, summary first, and the same the other way round."""
    summary, content = (
        "".join(text_in(entry, "text") for entry in objects_in(item, name)) for name in ("summary", "content")
    )
    return summary + content, content + summary


def reasoning_data(item: OutputItem, written: str) -> dict[str, Any]:
    """The item without its texts, each `length` instead, if the part's text is made of just them in this order."""
    latest = item.latest
    if item.final is None and item.pieces:
        name = "summary" if item.channel == "summary_text" else "content"
        entries = [{"type": item.channel, "text": join_surrogates("".join(pieces))} for pieces in item.pieces.values()]
        latest = {"summary": [], **latest, name: entries}
        if "status" in latest:
            latest["status"] = "completed"
    data = without(latest, "type") or {}
    if reasoning_texts(latest)[0] == written:
        for name in ("summary", "content"):
            if isinstance(data.get(name), list):
                data[name] = [_measured(entry) for entry in data[name]]
    return data


def _measured(entry: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return entry
    return {**{name: value for name, value in entry.items() if name != "text"}, "length": len(entry["text"])}
