"""What Bedrock's Converse refuses though its service model allows it, and what single model families refuse."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from .rules import Body, Call, Request, Rule, Turn, pairing_rules, repeated
from .vendor_types import check_shape

__all__ = ["RULES", "check_types", "read_turns"]

CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
CACHE_POINTS = 4
DOCUMENT_NAME = re.compile(r"[a-zA-Z0-9()\[\]-]+(?: [a-zA-Z0-9()\[\]-]+)*")
SPOKEN = frozenset({"text", "image", "document", "video", "audio", "searchResult", "citationsContent"})

Block = dict[str, Any]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What the models of one maker take. The defaults are for those of which nothing is known."""

    tool_blocks_alone: bool = False  # neither results beside words nor calls beside words
    video: bool = True
    s3_images: bool = True
    result_status: bool = True
    assistant_first: bool = False
    reasoning: bool = False
    cache_points: bool = False
    prefill: bool = False


FAMILIES: dict[str, Family] = {
    "anthropic": Family(
        video=False, s3_images=False, assistant_first=True, reasoning=True, cache_points=True, prefill=True
    ),
    "amazon": Family(cache_points=True, prefill=True),
    "meta": Family(tool_blocks_alone=True),
    "mistral": Family(tool_blocks_alone=True),
    "writer": Family(result_status=False),
}
_ANY = Family()
_MAKER = re.compile(r"(?:^|[./])(" + "|".join(FAMILIES) + r")\.")


def check_types(body: Body, model: str) -> list[str]:
    """Return where the body departs from the types of botocore."""
    return check_shape("Converse", body, model)


def read_turns(body: Body) -> list[Turn]:
    """Return the messages as turns; tools that the service runs itself are left out."""
    turns: list[Turn] = []
    for path, role, blocks in _messages(body):
        turn = Turn(path, role)
        for block in blocks:
            if "toolUse" in block and "type" not in block["toolUse"]:
                turn.calls.append(Call(block["toolUse"]["toolUseId"], block["toolUse"]["name"]))
            if "toolResult" in block and "type" not in block["toolResult"]:
                turn.results.append(block["toolResult"]["toolUseId"])
        turns.append(turn)
    return turns


def _messages(body: Body) -> Iterator[tuple[str, str, list[Block]]]:
    for index, message in enumerate(body.get("messages") or ()):
        yield f"messages[{index}]", message["role"], message["content"]


def _family(request: Request) -> Family:
    found = _MAKER.search(request.model)
    if found is None:
        return FAMILIES["anthropic"] if not request.model or request.model.startswith("arn:") else _ANY
    return FAMILIES[found[1]]


def _tools(request: Request) -> list[Block]:
    tools: list[Block] = (request.body.get("toolConfig") or {}).get("tools") or []
    return tools


def _thinks(request: Request) -> bool:
    fields = request.body.get("additionalModelRequestFields") or {}
    return (fields.get("thinking") or {}).get("type") == "enabled"


def declared_names_are_unique(request: Request) -> Iterator[str]:
    names = [tool["toolSpec"]["name"] for tool in _tools(request) if "toolSpec" in tool]
    yield from (f"toolConfig: {name!r} is declared twice" for name in repeated(names))


def turns_alternate(request: Request) -> Iterator[str]:
    if not request.turns:
        yield "messages: empty"
    elif request.turns[0].role != "user" and not _family(request).assistant_first:
        yield f"{request.turns[0].path}: the first turn is not the user's"
    for before, turn in pairwise(request.turns):
        if before.role == turn.role:
            yield f"{turn.path}: two turns of the {turn.role} in a row"
    for turn in request.turns:
        if (turn.calls and turn.role != "assistant") or (turn.results and turn.role != "user"):
            yield f"{turn.path}: tool blocks of the other side"


def nothing_is_blank(request: Request) -> Iterator[str]:
    for path, _, blocks in _messages(request.body):
        if not blocks:
            yield f"{path}: no content"
        for block in blocks:
            inner = block["toolResult"]["content"] if "toolResult" in block else [block]
            if not inner:
                yield f"{path}: a tool result of nothing"
            if any("text" in part and not part["text"].strip() for part in inner):
                yield f"{path}: blank text"
    if any("text" in block and not block["text"].strip() for block in request.body.get("system") or ()):
        yield "system: blank text"


def history_has_its_tools(request: Request) -> Iterator[str]:
    if not _tools(request):
        yield from (f"{turn.path}: tool blocks, no toolConfig" for turn in request.turns if turn.calls or turn.results)


def tool_blocks_are_alone(request: Request) -> Iterator[str]:
    for path, _, blocks in _messages(request.body):
        kinds = set().union(*blocks)
        beside = kinds & SPOKEN
        if _family(request).tool_blocks_alone and beside and kinds & {"toolUse", "toolResult"}:
            yield f"{path}: {', '.join(sorted(beside))} beside tool blocks"


def media_are_taken(request: Request) -> Iterator[str]:
    family = _family(request)
    for path, _, blocks in _messages(request.body):
        parts = [part for block in blocks for part in block.get("toolResult", {}).get("content", [block])]
        if not family.video and any("video" in part for part in parts):
            yield f"{path}: this family takes no video"
        if not family.s3_images and any("s3Location" in part["image"]["source"] for part in parts if "image" in part):
            yield f"{path}: this family takes no image from S3"


def status_is_known(request: Request) -> Iterator[str]:
    if _family(request).result_status:
        return
    for path, _, blocks in _messages(request.body):
        if any("status" in block.get("toolResult", {}) for block in blocks):
            yield f"{path}: this family takes no status of a tool result"


def reasoning_is_claudes(request: Request) -> Iterator[str]:
    for path, _, blocks in _messages(request.body):
        written = [block["reasoningContent"] for block in blocks if "reasoningContent" in block]
        if written and not _family(request).reasoning:
            yield f"{path}: this family takes no reasoning back"
        if any(not inner["reasoningText"].get("signature") for inner in written if "reasoningText" in inner):
            yield f"{path}: reasoning without a signature"
        if blocks and "reasoningContent" in blocks[-1]:
            yield f"{path}: the last block of a turn is reasoning"


def cache_points_are_legal(request: Request) -> Iterator[str]:
    lists = [("toolConfig", _tools(request)), ("system", request.body.get("system") or [])]
    lists += [(path, blocks) for path, _, blocks in _messages(request.body)]
    count = sum("cachePoint" in block for _, blocks in lists for block in blocks)
    if count > CACHE_POINTS:
        yield f"cachePoint: {count} of them, {CACHE_POINTS} are allowed"
    if count and not _family(request).cache_points:
        yield "cachePoint: this family takes none"
    for path, blocks in lists:
        for before, block in pairwise([{}, *blocks]):
            if "cachePoint" in block and (not before or before.keys() & {"document", "video", "reasoningContent"}):
                yield f"{path}: a cache point after nothing, a document, a video or reasoning"


def documents_are_named(request: Request) -> Iterator[str]:
    names: list[str] = []
    for path, _, blocks in _messages(request.body):
        held = [block["document"] for block in blocks if "document" in block]
        if held and not any("text" in block or "toolResult" in block for block in blocks):
            yield f"{path}: a document without text beside it"
        for block in blocks:
            for part in block.get("toolResult", {}).get("content", ()):
                held += [part["document"]] if "document" in part else []
        for document in held:
            if not DOCUMENT_NAME.fullmatch(document["name"]):
                yield f"{path}: the document name {document['name']!r} does not match {DOCUMENT_NAME.pattern}"
        names += [document["name"] for document in held]
    yield from (f"messages: two documents are named {name!r}" for name in repeated(names))


def the_end_is_open(request: Request) -> Iterator[str]:
    messages = list(_messages(request.body))
    if not messages or messages[-1][1] != "assistant" or not messages[-1][2]:
        return
    path, _, blocks = messages[-1]
    if not _family(request).prefill:
        yield f"{path}: the last turn is the assistant's"
    if "text" in blocks[-1] and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        yield f"{path}: the last assistant text ends in white space"


def choices_are_free_to_think(request: Request) -> Iterator[str]:
    choice = (request.body.get("toolConfig") or {}).get("toolChoice") or {}
    if _thinks(request) and not choice.keys() <= {"auto"}:
        yield "toolConfig.toolChoice: a tool is forced while the model thinks"
    names = {tool["toolSpec"]["name"] for tool in _tools(request) if "toolSpec" in tool}
    if "tool" in choice and choice["tool"]["name"] not in names:
        yield f"toolConfig.toolChoice: {choice['tool']['name']!r} is not declared"


def loops_begin_with_thinking(request: Request) -> Iterator[str]:
    messages = list(_messages(request.body))
    if not _thinks(request) or len(messages) < 2 or not request.turns[-1].results:
        return
    if "reasoningContent" not in messages[-2][2][0]:
        yield f"{messages[-2][0]}: a tool loop that does not begin with thinking"


RULES: tuple[Rule, ...] = (
    *pairing_rules("B", lambda _: CALL_ID),
    Rule("B6", "no tool is declared twice", declared_names_are_unique),
    Rule("B7", "the user speaks first (but with Claude), and the two sides take turns", turns_alternate),
    Rule("B8", "no content is empty, no text is blank", nothing_is_blank),
    Rule("B9", "tools are declared where the history has tool blocks", history_has_its_tools),
    Rule("B10", "Llama, Mistral: calls and results stand alone in their turns", tool_blocks_are_alone),
    Rule("B11", "Palmyra: a result has no status", status_is_known),
    Rule("B12", "reasoning only for Claude, signed, and not at the end of a turn", reasoning_is_claudes),
    Rule("B13", "at most four cache points, where a family takes them, after something", cache_points_are_legal),
    Rule("B14", "a document has a safe name of its own, and text beside it", documents_are_named),
    Rule("B15", "the last turn is the user's, or one that the model may go on from", the_end_is_open),
    Rule("B16", "a forced tool is declared, and not forced on a model that thinks", choices_are_free_to_think),
    Rule("B17", "with a thinking budget a tool loop begins with thinking", loops_begin_with_thinking),
    Rule("B18", "Claude: no video, no image from S3", media_are_taken),
)
