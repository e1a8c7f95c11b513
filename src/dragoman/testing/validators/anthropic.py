"""What hosts of Anthropic's Messages API refuse though the types allow it."""

import re
from collections.abc import Iterator
from typing import Any

from .rules import Body, Call, Request, Rule, Turn, name_rules, pairing_rules
from .vendor_types import check_published

__all__ = ["RULES", "check_types", "read_turns"]

CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CACHE_MARKS = 4
LEAST_BUDGET = 1_024
THINKING = frozenset({"thinking", "redacted_thinking"})
# Hosts of other models behind this API, whose thinking has no signature.
UNSIGNED = frozenset({"anthropic-compatible", "llamacpp-anthropic"})
# These answer a conversation that ends with the assistant; newer models refuse a prefilled answer.
_PREFILL = re.compile(r"claude-(?:3-|instant|2|(?:opus|sonnet|haiku)-4(?:-[015])?(?:$|[@-]20\d{6}|-latest|-v\d))")

Block = dict[str, Any]


def check_types(body: Body, _: str) -> list[str]:
    """Return where the body departs from the types of Anthropic's SDK."""
    return check_published(_published, body)


def _published() -> list[Any]:
    from anthropic.types.beta.message_create_params import MessageCreateParams as BetaCreateParams
    from anthropic.types.message_create_params import MessageCreateParams

    return [MessageCreateParams, BetaCreateParams]


def read_turns(body: Body) -> list[Turn]:
    """Return the messages as turns; the assistant's in a row are one, and system messages may stand anywhere."""
    turns: list[Turn] = []
    for index, message in enumerate(body["messages"]):
        role = message["role"]
        if role == "system":
            continue
        if role == "user" or not turns or turns[-1].role != role:
            turns.append(Turn(f"messages[{index}]", role))
        for block in _blocks(message):
            if block["type"] == "tool_use":
                turns[-1].calls.append(Call(block["id"], block["name"]))
            elif block["type"] == "tool_result":
                turns[-1].results.append(block["tool_use_id"])
    return turns


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _messages(request: Request, *roles: str) -> Iterator[tuple[str, list[Block]]]:
    for index, message in enumerate(request.body["messages"]):
        if message["role"] in roles or not roles:
            yield f"messages[{index}]", _blocks(message)


def _thinks(request: Request) -> bool:
    return (request.body.get("thinking") or {}).get("type") == "enabled"


def _declared(request: Request) -> list[str]:
    return [tool["name"] for tool in request.body.get("tools") or () if "name" in tool]


def somebody_speaks(request: Request) -> Iterator[str]:
    if not request.turns:
        yield "messages: empty"
    for turn in request.turns:
        if (turn.calls and turn.role != "assistant") or (turn.results and turn.role != "user"):
            yield f"{turn.path}: tool blocks of the other side"


def nothing_is_blank(request: Request) -> Iterator[str]:
    for path, blocks in _messages(request):
        for index, block in enumerate(blocks):
            if block["type"] == "text" and not block["text"].strip():
                yield f"{path}.content[{index}]: blank text"
    # An assistant turn of no blocks at all is accepted.
    yield from (f"{path}.content: an empty list" for path, blocks in _messages(request, "user") if not blocks)
    system = request.body.get("system")
    texts = [system] if isinstance(system, str) else [block["text"] for block in system or ()]
    if any(not text.strip() for text in texts):
        yield "system: blank text"


def results_come_first(request: Request) -> Iterator[str]:
    for path, blocks in _messages(request, "user"):
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield f"{path}: something stands before a tool result"


def history_has_its_tools(request: Request) -> Iterator[str]:
    if not request.body.get("tools"):
        yield from (f"{turn.path}: tool blocks, and no tools" for turn in request.turns if turn.calls or turn.results)


def cache_marks_are_legal(request: Request) -> Iterator[str]:
    body, system = request.body, request.body.get("system")
    markable = [(path, block) for path, blocks in _messages(request) for block in blocks]
    markable += [("tools", tool) for tool in body.get("tools") or ()]
    markable += [("system", block) for block in (system if isinstance(system, list) else ())]
    marked = [(path, block) for path, block in markable if block.get("cache_control")]
    if len(marked) + bool(body.get("cache_control")) > CACHE_MARKS:
        yield f"cache_control: {len(marked)} marks, {CACHE_MARKS} are allowed"
    for path, block in marked:
        if block.get("type") in THINKING or block.get("defer_loading"):
            yield f"{path}: a cache mark on thinking or on a tool that is loaded later"


def thinking_is_signed(request: Request) -> Iterator[str]:
    for path, blocks in _messages(request, "assistant"):
        for index, block in enumerate(blocks):
            if block["type"] == "thinking" and not block["signature"] and request.provider not in UNSIGNED:
                yield f"{path}.content[{index}]: thinking without a signature"


def thinking_is_not_last(request: Request) -> Iterator[str]:
    for path, blocks in _messages(request, "assistant"):
        if blocks and blocks[-1]["type"] in THINKING:
            yield f"{path}: the last block of an assistant turn is thinking"


def the_end_is_open(request: Request) -> Iterator[str]:
    if not request.turns or request.turns[-1].role != "assistant":
        return
    path, blocks = list(_messages(request, "assistant"))[-1]
    last = blocks[-1] if blocks else {"type": ""}
    # A turn that paused on one of the provider's own tools is sent back as it is.
    paused = any(block["type"] in ("server_tool_use", "mcp_tool_use", "compaction") for block in blocks)
    if not paused and request.model and not _PREFILL.search(request.model):
        yield f"{path}: the last turn is the assistant's, which this model refuses"
    if last["type"] == "text" and last["text"] != last["text"].rstrip():
        yield f"{path}: the last assistant text ends in white space"
    if not request.body.get("thinking") and not paused and any(block["type"] in THINKING for block in blocks):
        yield f"{path}: thinking in the last turn, and thinking is off"


def budgets_leave_room(request: Request) -> Iterator[str]:
    if not _thinks(request):
        return
    body, budget = request.body, request.body["thinking"]["budget_tokens"]
    if budget < LEAST_BUDGET or budget >= body["max_tokens"]:
        yield f"thinking: a budget of {budget} with max_tokens {body['max_tokens']}"
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "tool_choice: a tool is forced while the model thinks"
    if body.get("temperature", 1) != 1 or "top_k" in body:
        yield "temperature: sampling is changed while the model thinks"


def loops_begin_with_thinking(request: Request) -> Iterator[str]:
    if not _thinks(request) or len(request.turns) < 2 or not request.turns[-1].results:
        return
    path, blocks = list(_messages(request, "assistant"))[-1]
    if blocks[0]["type"] not in THINKING:
        yield f"{path}: a tool loop that does not begin with thinking"


def settings_are_in_range(request: Request) -> Iterator[str]:
    body = request.body
    if not 0 <= body.get("temperature", 0) <= 1:
        yield f"temperature: {body['temperature']} is not in 0 to 1"
    if any(not text.strip() for text in body.get("stop_sequences") or ()):
        yield "stop_sequences: white space alone"
    if body["max_tokens"] < 1:
        yield f"max_tokens: {body['max_tokens']}"


def choices_have_tools(request: Request) -> Iterator[str]:
    choice = request.body.get("tool_choice")
    if choice and not request.body.get("tools"):
        yield "tool_choice: there are no tools"
    elif choice and choice["type"] == "tool" and choice["name"] not in _declared(request):
        yield f"tool_choice: {choice['name']!r} is not declared"


def schemas_are_objects(request: Request) -> Iterator[str]:
    for index, tool in enumerate(request.body.get("tools") or ()):
        if tool.get("input_schema", {}).get("type", "object") != "object":
            yield f"tools[{index}]: the input is no object"


RULES: tuple[Rule, ...] = (
    *pairing_rules("A", lambda _: CALL_ID, reused=True),
    *name_rules("A", "1 to 128 letters, digits, _ and -", TOOL_NAME, _declared),
    Rule("A8", "there are messages, and each side has its own tool blocks", somebody_speaks),
    Rule("A9", "no text is blank, no user turn is empty", nothing_is_blank),
    Rule("A10", "tool results are the first blocks of their message", results_come_first),
    Rule("A11", "tools are declared where the history has tool blocks", history_has_its_tools),
    Rule("A12", "at most four cache marks, none on thinking or on tools that are loaded later", cache_marks_are_legal),
    Rule("A13", "thinking has its signature", thinking_is_signed),
    Rule("A14", "no assistant turn ends with thinking", thinking_is_not_last),
    Rule("A15", "the last turn is the user's, or one that the model may go on from", the_end_is_open),
    Rule("A16", "a thinking budget leaves room, and tools and sampling alone", budgets_leave_room),
    Rule("A17", "with a thinking budget a tool loop begins with thinking", loops_begin_with_thinking),
    Rule("A18", "settings are in their range", settings_are_in_range),
    Rule("A19", "a tool choice has tools, and names one of them", choices_have_tools),
    Rule("A20", "a tool's input is an object", schemas_are_objects),
)
