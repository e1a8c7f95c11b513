"""What hosts of OpenAI's Responses API refuse though the types allow it."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from .rules import Body, Call, Request, Rule, Turn, is_object_text, name_rules, pairing_rules, repeated, with_next
from .vendor_types import check_published

__all__ = ["RULES", "check_types", "read_turns"]

CALL_ID = re.compile(r"\S{1,64}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# What the ids of items begin with, for those that conversations are made of.
ITEM_IDS = {
    "message": re.compile(r"msg_\S{1,60}"),
    "function_call": re.compile(r"fc_\S{1,61}"),
    "custom_tool_call": re.compile(r"ctc_\S{1,60}"),
    "reasoning": re.compile(r"rs_\S{1,61}"),
}
OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
OPENAI = frozenset({"openai", "azure-responses"})
_ALWAYS_REASONS = re.compile(r"(?:^|/)(?:o\d|gpt-5(?:-mini|-nano|-pro|-codex)?(?:-20\d\d|$))")


def check_types(body: Body, _: str) -> list[str]:
    """Return where the body departs from the types of OpenAI's SDK."""
    return check_published(_published, body)


def _published() -> list[Any]:
    from openai.types.responses.response_create_params import ResponseCreateParams

    return [ResponseCreateParams]


def read_turns(body: Body) -> list[Turn]:
    """Return the items as turns: what the model put out, what its tools gave back, what others said."""
    turns: list[Turn] = []
    searches = {item.get("call_id") for _, item in _items(body) if _kind(item) == "tool_search_call"}
    for path, item in _items(body):
        side = _side(item)
        if not turns or turns[-1].role != side:
            turns.append(Turn(path, side))
        if item.get("type") in OUTPUTS:
            turns[-1].calls.append(Call(item["call_id"], item["name"]))
        elif side == "tool" and item["call_id"] not in searches:
            turns[-1].results.append(item["call_id"])
    return turns


def _items(body: Body) -> Iterator[tuple[str, dict[str, Any]]]:
    given = body.get("input")
    if isinstance(given, list):
        for index, item in enumerate(given):
            yield f"input[{index}]", item


def _kind(item: dict[str, Any]) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _side(item: dict[str, Any]) -> str:
    kind = _kind(item)
    if kind in OUTPUTS.values():
        return "tool"
    return "user" if kind == "message" and item["role"] != "assistant" else "assistant"


def _declared(request: Request) -> list[str]:
    return [tool["name"] for tool in request.body.get("tools") or () if tool["type"] in ("function", "custom")]


def there_is_input(request: Request) -> Iterator[str]:
    if not request.body.get("input") and not request.continues and not request.body.get("prompt"):
        yield "input: empty"
    for path, item in _items(request.body):
        if _kind(item) == "message" and item["content"] == []:
            yield f"{path}.content: an empty list"


def item_ids_are_legal(request: Request) -> Iterator[str]:
    given = [(path, item) for path, item in _items(request.body) if item.get("id") is not None]
    for path, item in given:
        pattern = ITEM_IDS.get(_kind(item))
        if request.provider in OPENAI and pattern is not None and not pattern.fullmatch(item["id"]):
            yield f"{path}: the item id {item['id']!r} does not match {pattern.pattern}"
    yield from (f"input: the item {item_id!r} is there twice" for item_id in repeated(item["id"] for _, item in given))


def reasoning_is_followed(request: Request) -> Iterator[str]:
    for (path, item), after in with_next(list(_items(request.body))):
        if _kind(item) == "reasoning" and (after is None or _side(after[1]) != "assistant"):
            yield f"{path}: reasoning without the item that must follow it"


def ids_have_their_reasoning(request: Request) -> Iterator[str]:
    """A model that always reasons first does so before its first item after the user's: the API misses it by the id.

    Where the API stores conversations itself it knows which items belong together; from here that cannot be seen.
    """
    stores = request.body.get("store") is not False
    effort = (request.body.get("reasoning") or {}).get("effort")
    if stores or request.provider not in OPENAI or not _ALWAYS_REASONS.search(request.model):
        return
    reasoned = effort in ("none", "minimal")
    for path, item in _items(request.body):
        side = _side(item)
        reasoned = (reasoned or _kind(item) == "reasoning") and side != "user"
        if side == "assistant" and item.get("id") is not None and not reasoned:
            yield f"{path}: the id {item['id']!r} without its reasoning item"


def nothing_refers_to_a_store(request: Request) -> Iterator[str]:
    if request.body.get("store") is not False:
        return
    for path, item in _items(request.body):
        kind = _kind(item)
        if kind == "item_reference":
            yield f"{path}: a reference to an item, and nothing is stored"
        if kind == "reasoning" and not item.get("encrypted_content") and not item.get("content"):
            yield f"{path}: reasoning without its encrypted content, and nothing is stored"
    if request.body.get("previous_response_id"):
        yield "previous_response_id: nothing is stored"


def json_is_spoken_of(request: Request) -> Iterator[str]:
    form = (request.body.get("text") or {}).get("format") or {}
    said = json.dumps([request.body.get("input"), request.body.get("instructions")]).lower()
    if form.get("type") == "json_object" and "json" not in said:
        yield "text.format: json_object, but no message says json"


def sides_use_their_parts(request: Request) -> Iterator[str]:
    for path, item in _items(request.body):
        if _kind(item) != "message" or not isinstance(item["content"], list):
            continue
        wanted = ("output_text", "refusal") if item["role"] == "assistant" else ("input_",)
        for index, part in enumerate(item["content"]):
            if not part["type"].startswith(wanted):
                yield f"{path}.content[{index}]: {part['type']} in a message of the {item['role']}"


def choices_have_tools(request: Request) -> Iterator[str]:
    body, choice = request.body, request.body.get("tool_choice")
    if choice not in (None, "none", "auto") and not body.get("tools"):
        yield "tool_choice: there are no tools"
    if (
        isinstance(choice, dict)
        and choice["type"] in ("function", "custom")
        and choice["name"] not in _declared(request)
    ):
        yield f"tool_choice: {choice['name']!r} is not declared"


def outputs_are_of_their_kind(request: Request) -> Iterator[str]:
    kinds = {item["call_id"]: OUTPUTS[_kind(item)] for _, item in _items(request.body) if _kind(item) in OUTPUTS}
    for path, item in _items(request.body):
        if _side(item) == "tool" and kinds.get(item["call_id"], _kind(item)) != _kind(item):
            yield f"{path}: {_kind(item)} for a call that wants {kinds[item['call_id']]}"


def arguments_are_objects(request: Request) -> Iterator[str]:
    if request.provider in OPENAI:
        return
    for path, item in _items(request.body):
        if _kind(item) == "function_call" and not is_object_text(item["arguments"]):
            yield f"{path}: the arguments are no JSON object"


def outputs_come_at_once(request: Request) -> Iterator[str]:
    """DeepSeek: nothing but further calls may stand between a call and its output."""
    if request.provider != "deepseek-responses":
        return
    for (_, before), (path, item) in pairwise(_items(request.body)):
        if _kind(before) == "function_call" and _kind(item) not in ("function_call", "function_call_output"):
            yield f"{path}: {_kind(item)} between a call and its output"


RULES: tuple[Rule, ...] = (
    *pairing_rules("R", lambda _: CALL_ID),
    *name_rules("R", "1 to 128 letters, digits, _ and -", TOOL_NAME, _declared),
    Rule("R8", "there is input, and no message is an empty list", there_is_input),
    Rule("R9", "an item's id begins with its kind (msg_, fc_, ctc_, rs_), and is there once", item_ids_are_legal),
    Rule("R10", "a reasoning item is followed by what it led to", reasoning_is_followed),
    Rule(
        "R11", "where nothing is stored, items with ids have their reasoning item before them", ids_have_their_reasoning
    ),
    Rule("R12", "with store=false nothing refers to what would be stored", nothing_refers_to_a_store),
    Rule("R13", "json_object is asked for where a message says json", json_is_spoken_of),
    Rule("R14", "assistants have output parts, the others input parts", sides_use_their_parts),
    Rule("R15", "a tool choice has tools, and names one of them", choices_have_tools),
    Rule("R16", "an output is of its call's kind", outputs_are_of_their_kind),
    Rule("R17", "argument text is a JSON object, but for OpenAI and Azure", arguments_are_objects),
    Rule("R18", "DeepSeek: nothing stands between a call and its output", outputs_come_at_once),
)
