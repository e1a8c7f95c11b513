"""What Gemini's generateContent refuses though the types allow it. Calls need no ids: names and order pair them."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NotRequired

from .rules import Body, Call, Request, Rule, Turn, name_rules, with_next
from .vendor_types import check_published

__all__ = ["RULES", "check_types", "read_turns"]

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
DATA = frozenset(
    {
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    }
)
CACHED = ("systemInstruction", "tools", "toolConfig")
_VERSION = re.compile(r"gemini-(\d+)")
_UNDERSCORE = re.compile(r"_([a-z])")


def check_types(body: Body, _: str) -> list[str]:
    """Return where the body departs from the types of Google's SDK."""
    return check_published(_published, body)


def _published() -> list[Any]:
    """The body as the SDK puts it together; it has types for the pieces only."""
    from google.genai import types
    from typing_extensions import TypedDict  # the one that pydantic can read in Python 3.11

    fields = {
        "contents": list[types.Content],
        "systemInstruction": NotRequired[types.Content],
        "tools": NotRequired[list[types.Tool]],
        "toolConfig": NotRequired[types.ToolConfig],
        "safetySettings": NotRequired[list[types.SafetySetting]],
        "generationConfig": NotRequired[types.GenerationConfig],
        "cachedContent": NotRequired[str],
        "labels": NotRequired[dict[str, str]],
        "modelArmorConfig": NotRequired[types.ModelArmorConfig],
        "serviceTier": NotRequired[str],
    }
    return [TypedDict("GenerateContentBody", fields)]  # type: ignore[operator]  # the fields are data here


def read_turns(body: Body) -> list[Turn]:
    """Return the contents as turns, calls in a row as one. A result is known by its function's name."""
    turns: list[Turn] = []
    for path, role, parts in _contents(body):
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if not (calls and turns and turns[-1].calls):
            turns.append(Turn(path, role))
        turns[-1].calls += [Call(call.get("id") or "", call.get("name") or "") for call in calls]
        answered = (part["functionResponse"] for part in parts if "functionResponse" in part)
        turns[-1].results += [response.get("name") or "" for response in answered]
    return turns


def _camel(fields: dict[str, Any]) -> dict[str, Any]:
    """The API takes names in both spellings."""
    return {_UNDERSCORE.sub(lambda found: found[1].upper(), name): value for name, value in fields.items()}


def _contents(body: Body) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for index, content in enumerate(body["contents"]):
        parts = [_camel(part) for part in content.get("parts") or ()]
        yield f"contents[{index}]", content.get("role") or "user", parts


def _declared(request: Request) -> list[str]:
    tools = (_camel(tool) for tool in _camel(request.body).get("tools") or ())
    return [function["name"] for tool in tools for function in tool.get("functionDeclarations") or ()]


def ids_pair(request: Request) -> Iterator[str]:
    called: dict[str, str] = {}
    for path, _, parts in _contents(request.body):
        for part in parts:
            call, response = part.get("functionCall") or {}, part.get("functionResponse") or {}
            if call.get("id") in called:
                yield f"{path}: the id {call['id']!r} is used twice"
            if call.get("id"):
                called[call["id"]] = call.get("name") or ""
            if response.get("id") and called and called.get(response["id"]) != response.get("name"):
                yield f"{path}: the response {response['id']!r} answers no call of {response.get('name')!r}"


def calls_are_answered(request: Request) -> Iterator[str]:
    for turn, after in with_next(request.turns):
        wanted = Counter(call.name for call in turn.calls)
        if wanted and (after is None or wanted != Counter(after.results)):
            yield f"{turn.path}: not every call has one response in the content right after it"


def responses_answer_calls(request: Request) -> Iterator[str]:
    before: Turn | None = None
    for turn in request.turns:
        if turn.results and (before is None or not before.calls):
            yield f"{turn.path}: function responses that follow no function calls"
        before = turn


def responses_are_alone(request: Request) -> Iterator[str]:
    for path, _, parts in _contents(request.body):
        kinds = {"functionResponse" in part for part in parts}
        if len(kinds) == 2:
            yield f"{path}: function responses beside something else"


def calls_follow_the_user(request: Request) -> Iterator[str]:
    before: Turn | None = None
    for turn in request.turns:
        if turn.calls and (before is None or before.role == "model"):
            yield f"{turn.path}: a function call that follows neither the user nor a function response"
        before = turn


def there_are_parts(request: Request) -> Iterator[str]:
    if not request.body["contents"]:
        yield "contents: empty"
    for path, role, parts in _contents(request.body):
        if not parts:
            yield f"{path}: no parts"
        if role not in ("user", "model"):
            yield f"{path}: the role {role!r}"


def parts_have_one_content(request: Request) -> Iterator[str]:
    system = _camel(request.body).get("systemInstruction")
    contents = list(_contents(request.body))
    if system is not None:
        contents.append(("systemInstruction", "", [_camel(part) for part in system.get("parts") or ()]))
    for path, _, parts in contents:
        for index, part in enumerate(parts):
            held = DATA & part.keys()
            if len(held) > 1 or not part:
                yield f"{path}.parts[{index}]: {len(held)} contents in one part"


def calls_are_signed(request: Request) -> Iterator[str]:
    """From version 3 on, the first call of each step since the user last spoke has a thought signature."""
    found = _VERSION.search(request.model)
    if found is None or int(found[1]) < 3:
        return
    steps: list[tuple[str, list[dict[str, Any]]]] = []
    for path, role, parts in _contents(request.body):
        if role == "user" and not any("functionResponse" in part for part in parts):
            steps = []
        elif any("functionCall" in part for part in parts):
            steps.append((path, parts))
    for path, parts in steps:
        first = next(part for part in parts if "functionCall" in part)
        if not first.get("thoughtSignature"):
            yield f"{path}: the first function call has no thought signature"


def caches_are_not_repeated(request: Request) -> Iterator[str]:
    body = _camel(request.body)
    if body.get("cachedContent"):
        yield from (f"{name}: is in the cached content" for name in CACHED if body.get(name))


def choices_are_declared(request: Request) -> Iterator[str]:
    settings = _camel(_camel(request.body).get("toolConfig") or {}).get("functionCallingConfig") or {}
    chosen = _camel(settings).get("allowedFunctionNames") or []
    if chosen and settings.get("mode") not in ("ANY", "VALIDATED"):
        yield "toolConfig: chosen functions in a mode that takes none"
    yield from (f"toolConfig: {name!r} is not declared" for name in chosen if name not in _declared(request))


def the_user_is_last(request: Request) -> Iterator[str]:
    if request.turns and request.turns[-1].role == "model":
        yield f"{request.turns[-1].path}: the last content is the model's"


RULES: tuple[Rule, ...] = (
    Rule("G1", "an id is used once, and a response with one names the call's function", ids_pair),
    Rule("G2", "every call has one response, of its name, in the content right after", calls_are_answered),
    Rule("G3", "function responses follow function calls", responses_answer_calls),
    Rule("G4", "function responses are alone in their content", responses_are_alone),
    Rule("G5", "a function call follows the user or a function response", calls_follow_the_user),
    *name_rules("G", "1 to 128 letters, digits, _ . : and -, the first a letter or _", TOOL_NAME, _declared),
    Rule("G8", "there are contents, with parts, of the user or the model", there_are_parts),
    Rule("G9", "a part holds one thing", parts_have_one_content),
    Rule("G10", "Gemini 3: the first call of each step has a thought signature", calls_are_signed),
    Rule("G11", "what a cache holds is not said again", caches_are_not_repeated),
    Rule("G12", "chosen functions are declared", choices_are_declared),
    Rule("G13", "the last content is the user's", the_user_is_last),
)
