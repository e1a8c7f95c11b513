"""What Chat Completions hosts refuse though the types allow it. The vendors' own demands are in the table below."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from .rules import Body, Call, Request, Rule, Turn, is_object_text, name_rules, pairing_rules
from .vendor_types import check_published

__all__ = ["RULES", "check_types", "read_turns"]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}|\$.*", re.DOTALL)  # $: Moonshot's own tools
CACHE_MARKS = 4

# Mistral: the roles that may follow each (its code 3230 otherwise).
_MISTRAL_ORDER = {
    "system": {"system", "user", "assistant"},
    "user": {"system", "user", "assistant"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool"},
}
# Hosts where the model's own template decides, and most templates want the two sides to take turns.
_TAKING_TURNS = {
    "system": {"system", "user"},
    "user": {"assistant"},
    "assistant": {"user", "tool"},
    "tool": {"tool", "assistant", "user"},
}


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """What one host demands beyond the rest."""

    ids: re.Pattern[str] = re.compile(r"\S{1,256}")
    empty_lists: bool = False
    object_arguments: bool = True  # argument text must be a JSON object; OpenAI takes any text
    developer: bool = False
    order: dict[str, set[str]] = {}
    ends_with_assistant: bool = True
    plain_text: bool = False
    echoes_thinking: bool = False
    tools_for_history: bool = False


VENDORS: dict[str, Vendor] = {
    "openai-chat": Vendor(ids=re.compile(r"\S{1,40}"), object_arguments=False, developer=True),
    "azure": Vendor(ids=re.compile(r"\S{1,40}"), object_arguments=False, developer=True),
    "mistral": Vendor(
        ids=re.compile(r"[a-zA-Z0-9]{9}"), empty_lists=True, order=_MISTRAL_ORDER, ends_with_assistant=False
    ),
    "huggingface": Vendor(empty_lists=True),
    "deepseek": Vendor(plain_text=True, echoes_thinking=True),
    "vllm": Vendor(order=_TAKING_TURNS),
    "llamacpp": Vendor(order=_TAKING_TURNS),
    "openrouter": Vendor(tools_for_history=True),
    "snowflake": Vendor(tools_for_history=True),
    "heroku": Vendor(tools_for_history=True),
}
_ANY = Vendor()


def check_types(body: Body, _: str) -> list[str]:
    """Return where the body departs from the types of OpenAI's SDK."""
    return check_published(_published, body)


def _published() -> list[Any]:
    from openai.types.chat.completion_create_params import CompletionCreateParams

    return [CompletionCreateParams]


def read_turns(body: Body) -> list[Turn]:
    """Return the messages as turns; the tool messages in a row are one."""
    turns: list[Turn] = []
    for index, message in enumerate(body["messages"]):
        role, path = message["role"], f"messages[{index}]"
        if role == "tool" and turns and turns[-1].role == "tool":
            turns[-1].results.append(message["tool_call_id"])
            continue
        calls = [Call(call["id"], _function(call).get("name", "")) for call in message.get("tool_calls") or ()]
        turns.append(Turn(path, role, calls, [message["tool_call_id"]] if role == "tool" else []))
    return turns


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = call.get("function") or call.get("custom") or {}
    return function


def _vendor(request: Request) -> Vendor:
    return VENDORS.get(request.provider, _ANY)


def _messages(request: Request, *roles: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, message in enumerate(request.body["messages"]):
        if message["role"] in roles or not roles:
            yield f"messages[{index}]", message


def _declared(request: Request) -> list[str]:
    return [_function(tool)["name"] for tool in request.body.get("tools") or () if _function(tool)]


def nothing_is_empty(request: Request) -> Iterator[str]:
    if not request.body["messages"]:
        yield "messages: an empty list"
    empty = not _vendor(request).empty_lists
    if empty and request.body.get("tools") == []:
        yield "tools: an empty list"
    for path, message in _messages(request):
        if empty and message.get("tool_calls") == []:
            yield f"{path}.tool_calls: an empty list"
        if message.get("content") == [] and not message.get("tool_calls"):
            yield f"{path}.content: an empty list"


def assistants_say_something(request: Request) -> Iterator[str]:
    for path, message in _messages(request, "assistant"):
        said = message.get("content")
        other = any(message.get(name) for name in ("tool_calls", "refusal", "audio", "function_call"))
        # An empty string is taken by all but Mistral, which wants words or calls.
        if not other and (said is None or (not said and request.provider == "mistral")):
            yield f"{path}: neither content nor tool calls"


def arguments_are_objects(request: Request) -> Iterator[str]:
    if not _vendor(request).object_arguments:
        return
    for path, message in _messages(request, "assistant"):
        for call in message.get("tool_calls") or ():
            if "function" in call and not is_object_text(call["function"]["arguments"]):
                yield f"{path}: the arguments of {call['id']!r} are no JSON object"


def choices_have_tools(request: Request) -> Iterator[str]:
    body = request.body
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) not in (None, "none") and not body.get("tools"):
            yield f"{name}: there are no tools"
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and _function(choice).get("name") not in {None, *_declared(request)}:
        yield f"tool_choice: {_function(choice)['name']!r} is not declared"


def settings_agree(request: Request) -> Iterator[str]:
    body = request.body
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "stream_options: the answer is not streamed"
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "max_tokens: max_completion_tokens is there too"


def roles_are_known(request: Request) -> Iterator[str]:
    if not _vendor(request).developer:
        yield from (f"{path}: only OpenAI has a developer role" for path, _ in _messages(request, "developer"))


def roles_are_in_order(request: Request) -> Iterator[str]:
    order = _vendor(request).order
    for (_, before), (path, message) in pairwise(_messages(request)):
        if message["role"] not in order.get(before["role"], {message["role"]}):
            yield f"{path}: {message['role']} after {before['role']}"


def the_last_turn_is_not_the_models(request: Request) -> Iterator[str]:
    last = request.body["messages"][-1] if request.body["messages"] else {}
    if not _vendor(request).ends_with_assistant and last.get("role") == "assistant" and not last.get("prefix"):
        yield "messages: the last is the assistant's and no prefix"


def content_is_plain_text(request: Request) -> Iterator[str]:
    if _vendor(request).plain_text:
        for path, message in _messages(request):
            if not isinstance(message.get("content"), (str, type(None))):
                yield f"{path}.content: not a string"


def thinking_is_echoed(request: Request) -> Iterator[str]:
    """DeepSeek in thinking mode: every turn with calls has the field, if only as empty text."""
    if not _vendor(request).echoes_thinking or not _thinks(request):
        return
    for path, message in _messages(request, "assistant"):
        if message.get("tool_calls") and "reasoning_content" not in message:
            yield f"{path}: a turn with calls has no reasoning_content"


def _thinks(request: Request) -> bool:
    asked = (request.body.get("thinking") or {}).get("type")
    return bool(asked == "enabled" or (asked is None and not request.model.startswith("deepseek-chat")))


def history_has_its_tools(request: Request) -> Iterator[str]:
    if _vendor(request).tools_for_history and not request.body.get("tools"):
        yield from (f"{turn.path}: calls in the history, and no tools" for turn in request.turns if turn.calls)


def cache_marks_are_few(request: Request) -> Iterator[str]:
    parts = [part for _, message in _messages(request) for part in _parts(message)]
    marked = [entry for entry in [*parts, *(request.body.get("tools") or ())] if "cache_control" in entry]
    if len(marked) > CACHE_MARKS:
        yield f"cache_control: {len(marked)} marks, {CACHE_MARKS} are allowed"


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


RULES: tuple[Rule, ...] = (
    *pairing_rules("C", lambda request: _vendor(request).ids),
    *name_rules("C", "1 to 64 letters, digits, _ and -", TOOL_NAME, _declared),
    Rule("C8", "no list of messages, tools, calls or parts is empty", nothing_is_empty),
    Rule("C9", "an assistant turn says or calls something", assistants_say_something),
    Rule("C10", "argument text is a JSON object, but for OpenAI and Azure", arguments_are_objects),
    Rule("C11", "a tool choice has tools, and names one of them", choices_have_tools),
    Rule("C12", "stream_options only with stream, one limit of tokens", settings_agree),
    Rule("C13", "the developer role is OpenAI's", roles_are_known),
    Rule("C14", "roles follow each other as the vendor demands (Mistral, llama.cpp, vLLM)", roles_are_in_order),
    Rule(
        "C15", "Mistral: the last turn is not the assistant's, unless it is a prefix", the_last_turn_is_not_the_models
    ),
    Rule("C16", "DeepSeek: content is a string", content_is_plain_text),
    Rule("C17", "DeepSeek, thinking: turns with calls have reasoning_content", thinking_is_echoed),
    Rule("C18", "OpenRouter, Snowflake, Heroku: tools are declared where the history has calls", history_has_its_tools),
    Rule("C19", "at most four cache marks", cache_marks_are_few),
)
