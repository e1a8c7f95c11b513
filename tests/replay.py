"""Recorded follow-up requests against ours: is an answer sent back as it came?

Where a recording's later request repeats an earlier answer, that answer is decoded, handed off to the same model and
encoded. Three turns are compared: what the provider `said` (read from the body without our codecs), what we would
send, and what the recording client sent. Where the client departs from what was said, a habit of it has to explain
how; whatever no habit explains, and whatever departs from what was said in ours, is our fault.

`python -m tests.replay` prints, per protocol, how many of how many are equal, and the habits behind the others.
"""

import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple
from urllib.parse import unquote

from dragoman import Message, ModelConfig, ToolResult
from dragoman.history import hand_off
from dragoman.message import ModelInvocationDescriptor
from dragoman.request import ModelRequest
from dragoman.stream import assemble
from dragoman.target import Dialect
from dragoman.wire import find_codec, find_dialect, find_recorded_dialect
from tests.corpus import PROTOCOLS, Record, body_of, decode, records

Block = dict[str, Any]
Turn = list[Block]

_ANSWERS = re.compile(r"\w+_call_output|mcp_approval_response")
_TYPOGRAPHY = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2013\u2014", "''\"\"----")
_THOUGHTS = re.compile(r"<think>(.*?)</think>", re.DOTALL)


# What the provider said and we leave out although the client sent it, because something else says it.
_SAID_OTHERWISE = {"tool_calls: index": "the place among the calls"}


class Pair(NamedTuple):
    """An answer, and a later request that repeats it."""

    protocol: str
    answer: Record
    request: Record
    said: Turn
    ours: Turn
    recorded: Turn


# ---------------------------------------------------------------- turns of a request


def turns_of(protocol: str, body: dict[str, Any]) -> list[Turn]:
    """The assistant turns of a request, each a list of blocks; of Responses, the items between those of others."""
    if protocol == "gemini":
        return [content.get("parts") or [] for content in body["contents"] if content.get("role") == "model"]
    if protocol != "openai-responses":
        said = [message for message in body["messages"] if message["role"] == "assistant"]
        return [_chat_blocks(message) if protocol.startswith("openai") else _content(message) for message in said]
    turns: list[Turn] = [[]]
    for item in body["input"] if isinstance(body["input"], list) else ():
        if _is_answer(item):
            turns.append([])
        else:
            turns[-1].append(item)
    return [turn for turn in turns if turn]


def _content(message: Block) -> Turn:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_answer(item: Block) -> bool:
    """Whether an item of Responses is what the caller says to the model."""
    kind = item.get("type") or "message"
    client_search = kind == "tool_search_output" and item.get("execution") == "client"
    return item.get("role") in ("user", "system", "developer") or bool(_ANSWERS.fullmatch(kind)) or client_search


def _chat_blocks(message: Block) -> Turn:
    """A chat message as blocks: its further fields, its content, its calls."""
    content = message.get("content")
    further = {name: value for name, value in message.items() if name not in ("role", "content", "tool_calls")}
    blocks: Turn = [{"further": name, "value": value} for name, value in sorted(further.items()) if value]
    blocks += [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
    return blocks + (message.get("tool_calls") or [])


# ---------------------------------------------------------------- what the provider said


def said_by(protocol: str, record: Record) -> Turn:
    """The blocks of an answer, read straight from its body."""
    if record["streaming"]:
        return _STREAMED[protocol](record)
    body = json.loads(body_of(record))
    match protocol:
        case "anthropic-messages":
            return list(body["content"])
        case "bedrock-converse":
            return list(body["output"]["message"]["content"])
        case "gemini":
            return list(((body.get("candidates") or [{}])[0].get("content") or {}).get("parts") or [])
        case "openai-responses":
            return list(body["output"])
        case _:
            return _chat_blocks(body["choices"][0]["message"])


def _events(record: Record) -> list[Any]:
    lines = body_of(record).decode().splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip() != "[DONE]"]


def _streamed_anthropic(record: Record) -> Turn:
    blocks: Turn = []
    for event in _events(record):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "pieces": ""})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
            elif delta["type"] == "input_json_delta":
                block["pieces"] += delta["partial_json"]
            else:
                for name, value in delta.items():
                    if name != "type":
                        block[name] = (block.get(name) or "") + value if isinstance(value, str) else value
    for block in blocks:
        pieces = block.pop("pieces")
        if pieces:
            block["input"] = json.loads(pieces)
    return blocks


def _streamed_bedrock(record: Record) -> Turn:
    blocks: dict[int, Block] = {}
    pieces: dict[int, str] = defaultdict(str)
    for event in record["events"]:
        ((kind, payload),) = event.items()
        index = payload.get("contentBlockIndex")
        if kind == "contentBlockStart":
            blocks[index] = payload["start"]
        elif kind == "contentBlockDelta":
            ((name, value),) = payload["delta"].items()
            block = blocks.setdefault(index, {})
            if name == "text":
                block["text"] = block.get("text", "") + value
            elif name == "toolUse":
                pieces[index] += value["input"]
            elif name == "toolResult":
                block["toolResult"] = {**block["toolResult"], "content": value}
            elif "redactedContent" in value:
                block["reasoningContent"] = value
            else:
                inner = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
                inner.update({field: inner.get(field, "") + text for field, text in value.items()})
    for index, text in pieces.items():
        blocks[index]["toolUse"]["input"] = json.loads(text or "{}")
    return [blocks[index] for index in sorted(blocks)]


def _streamed_gemini(record: Record) -> Turn:
    """Text is joined with the text before it until a signature closes it."""
    parts: Turn = []
    for event in _events(record):
        for part in ((event.get("candidates") or [{}])[0].get("content") or {}).get("parts") or ():
            last = parts[-1] if parts else {}
            fields = set(part) | set(last)
            if part.get("thought") == last.get("thought") and "text" in part and fields <= {"text", "thought"} and last:
                last["text"] += part["text"]
            else:
                parts.append(dict(part))
    return parts


def _streamed_chat(record: Record) -> Turn:
    """The content and the calls; what vendors put beside them has no common form in a stream."""
    message: Block = {"content": [], "tool_calls": []}
    for event in _events(record):
        for choice in event.get("choices") or ():
            delta = choice["delta"]
            content = delta.get("content") or []
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                _join(message["content"], part)
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"function": {"name": "", "arguments": ""}, "type": "function"})
                known = message["tool_calls"][call["index"]]
                known["id"] = call.get("id") or known.get("id")
                for name, piece in call["function"].items():
                    known["function"][name] += piece or ""
    return _chat_blocks(message)


def _join(parts: Turn, part: Block) -> None:
    """Add a piece of text, or of Mistral's thinking, which is a list with one text in it."""
    kind = part["type"]
    if parts and parts[-1]["type"] == kind == "text":
        parts[-1]["text"] += part["text"]
    elif parts and parts[-1]["type"] == kind == "thinking":
        parts[-1]["thinking"][0]["text"] += "".join(piece["text"] for piece in part["thinking"])
    elif part.get(kind):
        parts.append(json.loads(json.dumps(part)))


def _streamed_responses(record: Record) -> Turn:
    """The items of the last event, each as its own end told it: ids and encrypted content differ between the two."""
    events = _events(record)
    ends = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    whole = next(event["response"]["output"] for event in events if event["type"] == "response.completed")
    return [ends.get(index, item) for index, item in enumerate(whole)]


_STREAMED = {
    "anthropic-messages": _streamed_anthropic,
    "bedrock-converse": _streamed_bedrock,
    "gemini": _streamed_gemini,
    "openai-responses": _streamed_responses,
    "openai-chat": _streamed_chat,
    "openai-compatible": _streamed_chat,
}


# ---------------------------------------------------------------- what we send


def model_of(record: Record) -> str:
    """The model that a request asked, by its body or its path."""
    request = record["request"]
    in_path = re.search(r"models?/([^/:]+(?:%3A\d+)?)[/:]", request["path"] or "")
    return str((request["body"] or {}).get("model") or (unquote(in_path[1]) if in_path else "unknown"))


def dialect_of(protocol: str, record: Record) -> Dialect:
    """The record of who answered."""
    if protocol == "bedrock-converse":
        return find_dialect("bedrock", model_of(record))
    return find_recorded_dialect(protocol, record["vendor"])


def ours_for(protocol: str, record: Record) -> Turn:
    """The assistant turn that we send the same model for an answer of it."""
    dialect = dialect_of(protocol, record)
    asked = ModelInvocationDescriptor(dialect.provider, dialect.specification, model_of(record))
    message = assemble(decode(protocol, record), invocation=asked).message
    assert message is not None, record["id"]
    results = [Message.tool(ToolResult(call.tool_call_id, "done")) for call in message.tool_calls]
    history = [Message.user("begin"), message, *(results or [Message.user("go on")])]
    handed = hand_off(history, target=asked, rules=dialect.rules)
    config = ModelConfig(asked.model, max_tokens=1_000)
    request = ModelRequest(config=config, messages=handed.messages, tools=handed.tools)
    body = json.loads(find_codec(dialect.specification).encode_request(request, dialect).body)
    return [block for turn in turns_of(protocol, body) for block in turn]


# ---------------------------------------------------------------- what goes back of what was said


def goes_back(protocol: str, dialect: Any, said: Turn) -> Turn:
    """What has to be sent of what was said: all but what the API refuses, has by default or has no field for.

    Written apart from the codecs, so that each departure of theirs is listed here or is a fault.
    """
    blocks = [plain(block) for block in said]
    match protocol:
        case "anthropic-messages":
            # White space alone is refused; `direct` is the default.
            blocks = [block for block in blocks if block["type"] != "text" or block["text"].strip()]
            for block in blocks:
                if block["type"] == "tool_use" and block.get("caller") == {"type": "direct"}:
                    del block["caller"]
        case "bedrock-converse":
            # As above; and thinking goes back to Claude alone, which signs it.
            blocks = [block for block in blocks if "text" not in block or block["text"].strip()]
            if not dialect.rules.thinking:
                blocks = [block for block in blocks if "reasoningContent" not in block]
            for block in blocks:
                if block.get("toolUse", {}).get("type") == "tool_use":
                    del block["toolUse"]["type"]
        case "gemini":
            blocks = [block for block in blocks if block != {"text": ""}]
        case "openai-responses":
            blocks = list(_items_back(blocks, dialect))
        case _:
            has_calls = any("function" in block for block in blocks)
            blocks = [
                block for block in blocks if "further" not in block or _field_goes_back(block, dialect, has_calls)
            ]
            for block in blocks:
                if block.get("further") == "annotations":
                    block["value"] = [note for note in block["value"] if "file" in note]
                if "function" in block:
                    block.pop("index", None)
                    block.pop("custom", None)  # of Snowflake, which sends every field, empty or not
                    block["type"] = "function"
                    block["function"].setdefault("arguments", "{}")
                    block["id"] = block["id"] or "call_0"
                block.pop("closed", None)  # of Mistral's thinking: the default
    return blocks


def _items_back(items: Turn, dialect: Any) -> Iterator[Block]:
    """Reasoning goes back only if the host can read it again; ids of what belongs to other reasoning are refused."""
    has_ids = dialect.item_ids
    for item in items:
        if _is_answer(item):
            continue
        if item["type"] == "reasoning":
            readable = item.get("encrypted_content") or (dialect.plain_reasoning and item.get("content"))
            has_ids = dialect.item_ids and bool(readable)
            if readable:
                yield item
        elif item["type"] == "message":
            for content in item["content"]:
                content.pop("logprobs", None)  # facts, not history
            text = "".join(content.get("text", "") for content in item["content"])
            phase = {"phase": item["phase"]} if "phase" in item else {}
            said = [{"type": "output_text", "text": text, "annotations": []}]
            yield item if has_ids else {"type": "message", "role": "assistant", "content": said, **phase}
        else:
            yield item if has_ids else {name: value for name, value in item.items() if name != "id"}


def _field_goes_back(block: Block, dialect: Any, has_calls: bool) -> bool:
    name = block["further"]
    if name in ("reasoning", "reasoning_content"):  # said again in the details, where there are any
        return (
            name == dialect.thinking_field
            and (has_calls or not dialect.thinking_with_calls_only)
            and not (dialect.reasoning_details)
        )
    if name == "reasoning_details":
        return bool(dialect.reasoning_details)
    if name == "annotations":  # with them OpenRouter need not read a file again
        return bool(dialect.file_annotations) and any("file" in note for note in block["value"])
    return name in ("refusal", "extra_content", "thought_signature")


def faults(protocol: str, answer: Record) -> list[str]:
    """Where the turn that we send departs from what was said and has to go back."""
    return departures(protocol, answer, ours_for(protocol, answer))


def departures(protocol: str, answer: Record, ours: Turn) -> list[str]:
    """Where a turn departs from what an answer said and has to go back."""
    expected = goes_back(protocol, dialect_of(protocol, answer), said_by(protocol, answer))
    if answer["streaming"] and protocol.startswith("openai-c"):
        ours = [block for block in ours if "further" not in block]
    return sorted({f"ours: {path}" for path, _, _ in differences(expected, plain(ours))})


def plain(value: Any) -> Any:
    """A copy in which an absent field and a null one are the same."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if inner is not None}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def differences(left: Any, right: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two values differ, with both values; `...` stands for an absent one."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            yield from differences(left.get(name, ...), right.get(name, ...), f"{path}.{name}" if path else name)
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            sides = (side[index] if index < len(side) else ... for side in (left, right))
            yield from differences(next(sides), next(sides), f"{path}[]")
    elif left != right or type(left) is not type(right):
        yield path, left, right


# ---------------------------------------------------------------- who repeats what


def pairs(protocol: str) -> Iterator[Pair]:
    """Every answer with every later request of the same recording, to the same model, that repeats it.

    A turn repeats an answer if they share an id or a signature, or if all their words and calls are the same.
    """
    tests: dict[str, list[Record]] = defaultdict(list)
    for record in records(protocol):
        tests[record["id"].rpartition("#")[0]].append(record)
    for exchanges in tests.values():
        earlier: list[tuple[Record, Turn, Turn]] = []
        for record in exchanges:
            if record["request"] and record["request"]["body"]:
                yield from _repeated(protocol, record, earlier)
            if record["expect"] is not None and record["request"]:
                said, ours = (plain(turn) for turn in (said_by(protocol, record), ours_for(protocol, record)))
                earlier.append((record, said, ours))


def _repeated(protocol: str, request: Record, earlier: list[tuple[Record, Turn, Turn]]) -> Iterator[Pair]:
    turns = [plain(turn) for turn in turns_of(protocol, request["request"]["body"])]
    if protocol == "gemini":
        turns = respelled(turns)
    same_model = [
        known for known in earlier if (known[0]["vendor"], model_of(known[0])) == (request["vendor"], model_of(request))
    ]
    for turn in turns:
        sealed = [known for known in same_model if opaque_of(turn) & opaque_of(known[1])]
        alike = [known for known in same_model if any(words_of(turn)) and words_of(turn) == words_of(known[1])]
        if sealed or alike:
            answer, said, ours = known = (sealed or alike)[0]
            same_model.remove(known)
            yield Pair(protocol, answer, request, said, ours, turn)


def opaque_of(value: Any, name: str = "") -> set[str]:
    """The ids and sealed texts in a turn."""
    if isinstance(value, dict):
        return set().union(*(opaque_of(inner, name) for name, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(opaque_of(inner, name) for inner in value))
    sealed = re.search(r"(^|_)id$|Id$|signature$|Signature$|encrypted_content|^data$", name)
    return {value} if sealed and isinstance(value, str) and len(value) > 8 else set()


def words_of(turn: Turn) -> tuple[str, list[tuple[str, Any]]]:
    """The text of a turn, tagged thinking left out, and its calls by name and arguments."""
    text, calls = "", []
    for block in turn:
        call = block.get("function") or block.get("functionCall") or block.get("toolUse") or block
        arguments = next((call[name] for name in ("arguments", "args", "input") if name in call), None)
        if "name" in call and (arguments is not None or call is not block):
            calls.append(
                (call["name"], json.loads(arguments or "{}") if isinstance(arguments, str) else arguments or {})
            )
        elif not block.get("thought"):
            content = block.get("text") or block.get("content") or ""
            text += (
                content
                if isinstance(content, str)
                else "".join(part.get("text", "") for part in content if isinstance(part, dict))
            )
    return even(_THOUGHTS.sub("", text)).strip(), calls


# ---------------------------------------------------------------- what the client did


def respelled(value: Any, name: str = "") -> Any:
    """Gemini takes a field in both spellings, and a signature in both alphabets of Base64."""
    if isinstance(value, dict) and name not in ("args", "response"):
        camel = {re.sub(r"_(\w)", lambda found: found[1].upper(), key): inner for key, inner in value.items()}
        return {key: respelled(inner, key) for key, inner in camel.items()}
    if isinstance(value, list):
        return [respelled(inner) for inner in value]
    return value.replace("-", "+").replace("_", "/") if name == "thoughtSignature" else value


def even(text: str) -> str:
    """A text as the corpus' recorder writes it: no typographic signs, one form of Unicode."""
    return re.sub("-+", "-", unicodedata.normalize("NFKC", text.translate(_TYPOGRAPHY)))


def habits(pair: Pair) -> list[str]:
    """How the recorded turn departs from ours, by rule; where the client sent what was said and we do not, `ours`."""
    found: list[str] = []
    recorded = pair.recorded
    ours = [_bare_if(recorded, block) for block in pair.ours]
    if ours != pair.ours:
        found.append("client dropped: everything of a message but its text")
    matcher = SequenceMatcher(None, [_kind(block) for block in recorded], [_kind(block) for block in ours], False)
    for step, start, stop, our_start, our_stop in matcher.get_opcodes():
        if step == "equal":
            for left, right in zip(recorded[start:stop], ours[our_start:our_stop], strict=True):
                found += [_habit(pair, _kind(left), *place) for place in differences(left, right)]
        else:
            found += [_addition(pair, block) for block in recorded[start:stop]]
            found += [f"client dropped: {_kind(block)}" for block in ours[our_start:our_stop]]
    return sorted(set(found))


def _kind(block: Block) -> str:
    """What a block is, in its API's word."""
    if "further" in block:
        return str(block["further"])
    if "function" in block:
        return "tool_calls"
    known = ("toolUse", "reasoningContent", "functionCall", "toolCall", "toolResponse")
    named = [name for name in known if name in block]
    return str(named[0] if named else block.get("type") or ("message" if "role" in block else "text"))


def _bare_if(recorded: Turn, block: Block) -> Block:
    """A message of Responses as bare text, where the client sent it so."""
    if _kind(block) != "message" or isinstance(block["content"], str):
        return block
    text = "".join(content.get("text", "") for content in block["content"])
    alike = [
        other for other in recorded if isinstance(other.get("content"), str) and even(other["content"]) == even(text)
    ]
    return alike[0] if alike else block


def _addition(pair: Pair, block: Block) -> str:
    if block in pair.said:
        return f"ours: left out {_kind(block)}"
    tagged = _THOUGHTS.search(str(block))
    return "client rewrote: thinking as tagged text" if tagged else f"client added: {_kind(block)}"


def _habit(pair: Pair, kind: str, path: str, recorded: Any, ours: Any) -> str:
    place = f"{kind}: {path}"
    if ours is ...:
        if place in _SAID_OTHERWISE:
            return f"client added: {place}, {_SAID_OTHERWISE[place]}"
        if _holds(pair.ours, path, recorded):
            return f"client rewrote: {place} moved to another block"
        return f"{'ours: left out' if _holds(pair.said, path, recorded) else 'client added:'} {place}"
    if recorded is ...:
        return f"client dropped: {place}"
    if isinstance(recorded, str) and isinstance(ours, str):
        if even(recorded) == even(ours):
            return "recorder normalised: typographic signs"
        if _THOUGHTS.search(recorded + ours):
            return "client rewrote: thinking as tagged text"
    return f"client rewrote an id: {place}" if path.endswith("id") else f"client rewrote: {place}"


def _holds(turn: Turn, path: str, value: Any) -> bool:
    return any((path, value) in list(_inside(block)) for block in turn)


def _inside(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside a block, with its path as `differences` writes it."""
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _inside(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _inside(inner, f"{path}[]")


def main() -> int:
    """Print the figures; the exit status is 1 if anything is our fault."""
    totals = Counter[str]()
    for protocol in PROTOCOLS:
        count, reasons = Counter[str](), Counter[str]()
        for pair in pairs(protocol):
            found = faults(protocol, pair.answer) + habits(pair)
            count.update({"pairs": 1, "equal": not found})
            count.update({reason.partition(":")[0] for reason in found})
            reasons.update(found)
        totals.update(count)
        print(f"{protocol}: {count['equal']} of {count['pairs']} equal")
        for reason, number in sorted(reasons.items()):
            print(f"    {number:4} {reason}")
    print(
        f"all: {totals.pop('equal')} of {totals.pop('pairs')} equal; pairs with a difference that is one of the kinds"
    )
    for kind in (
        "client dropped",
        "client added",
        "client rewrote",
        "client rewrote an id",
        "recorder normalised",
        "ours",
    ):
        print(f"    {totals[kind]:4} {kind}")
    return 1 if totals["ours"] else 0


if __name__ == "__main__":
    sys.exit(main())
