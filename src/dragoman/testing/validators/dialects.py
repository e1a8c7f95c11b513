"""Fields and parts that vendors add to an API that is not theirs, as data: legal there, unknown to the API's own types.

Each was seen in recorded traffic that the vendor answered, or is in its documentation. A path is written like
`messages[].content[]`; a field maps to the kinds of value that it may have.
"""

from typing import Any, TypeAlias

import msgspec

__all__ = ["DIALECTS", "Additions", "without_additions"]

Fields: TypeAlias = dict[str, tuple[type, ...]]

_Kinds: TypeAlias = tuple[type, ...]
_OBJECT: _Kinds = (dict,)
_TEXT: _Kinds = (str,)
_LIST: _Kinds = (list,)
_FLAG: _Kinds = (bool,)


class Additions(msgspec.Struct, frozen=True, kw_only=True):
    """What one vendor adds: fields by path, values of known fields, and types of list entries that stand alone."""

    fields: dict[str, Fields] = {}
    values: dict[str, dict[str, frozenset[str | None]]] = {}
    entries: dict[str, frozenset[str]] = {}
    # Fields that the API's own types demand and this vendor does not, by path, and by `path:type` for single types.
    defaults: dict[str, dict[str, Any]] = {}
    # A null is the same as an absent field.
    nulls: bool = False


def _thinking_in(field: str, **further: _Kinds) -> Additions:
    return Additions(fields={"messages[]": {field: _TEXT}, "": further})


_REASONING: Fields = {"reasoning": _OBJECT}
_TEMPLATE: Fields = {"chat_template_kwargs": _OBJECT}
_HOSTED_CLAUDE = Additions(
    fields={"": {"anthropic_version": _TEXT, "temperature": (int, float), "top_p": (int, float), "top_k": (int,)}},
    defaults={"": {"model": "in the path"}},
)
# Text of another model has no item id. The SDK's types demand one, the servers do not: OpenAI's own Codex sends none.
_MESSAGE_FIELDS: dict[str, dict[str, Any]] = {"input[]:message": {"id": "msg_0", "status": "completed"}}

DIALECTS: dict[str, Additions] = {
    "deepseek": _thinking_in("reasoning_content", thinking=_OBJECT),
    "zai": Additions(
        fields={"messages[]": {"reasoning_content": _TEXT}, "": {"thinking": _OBJECT}},
        entries={"tools[]": frozenset({"web_search", "retrieval"}), "messages[].content[]": frozenset({"video_url"})},
    ),
    "moonshot": Additions(
        fields={"messages[]": {"reasoning_content": _TEXT}, "": {"thinking": _OBJECT}},
        entries={"tools[]": frozenset({"builtin_function"})},
    ),
    "fireworks": _thinking_in("reasoning_content"),
    "llamacpp": _thinking_in("reasoning_content", **_TEMPLATE),
    "openai-compatible": Additions(
        fields={"messages[]": {"reasoning_content": _TEXT}, "": {**_TEMPLATE, "thinking": _OBJECT}},
        entries={"messages[].content[]": frozenset({"video_url"})},
    ),
    "cerebras": _thinking_in("reasoning", clear_thinking=_FLAG),
    "ollama": _thinking_in("reasoning"),
    "vllm": Additions(
        fields={"messages[]": {"reasoning": _TEXT}, "": _TEMPLATE},
        entries={"messages[].content[]": frozenset({"video_url"})},
    ),
    "crusoe": _thinking_in("reasoning", **_TEMPLATE),
    "together": Additions(fields={"": _REASONING}),
    "huggingface": Additions(nulls=True),
    "groq": Additions(
        fields={"": {"reasoning_format": _TEXT, "search_settings": _OBJECT, "include_reasoning": _FLAG}},
        values={
            "": {"service_tier": frozenset({"on_demand", "performance"}), "reasoning_effort": frozenset({"default"})}
        },
        entries={"tools[]": frozenset({"browser_search", "code_interpreter"})},
    ),
    "mistral": Additions(
        fields={
            "": {"prompt_mode": _TEXT, "safe_prompt": _FLAG, "random_seed": (int,)},
            "messages[]": {"prefix": _FLAG},
            "messages[].tool_calls[]": {"index": (int,)},
        },
        values={"": {"tool_choice": frozenset({"any"})}},
        entries={"messages[].content[]": frozenset({"thinking", "document_url", "reference"})},
        defaults={"tools[]": {"type": "function"}, "messages[].tool_calls[]": {"type": "function"}},
    ),
    "openrouter": Additions(
        fields={
            "": {
                **_REASONING,
                "models": _LIST,
                "provider": _OBJECT,
                "transforms": _LIST,
                "usage": _OBJECT,
                "preset": _TEXT,
                "plugins": _LIST,
            },
            "messages[]": {"reasoning": _TEXT, "reasoning_details": _LIST, "annotations": _LIST},
            "messages[].content[]": {"cache_control": _OBJECT},
            "tools[]": {"cache_control": _OBJECT, "eager_input_streaming": _FLAG},
        },
        entries={
            "messages[].content[]": frozenset({"video_url"}),
            "tools[]": frozenset(
                {"openrouter:web_search", "openrouter:advisor", "openrouter:datetime", "openrouter:web_fetch"}
            ),
        },
    ),
    "snowflake": Additions(fields={"": _REASONING, "messages[]": {"reasoning_details": _LIST}}),
    "heroku": Additions(fields={"": {"extended_thinking": _OBJECT}}),
    "google-openai": Additions(
        fields={
            "": {"extra_body": _OBJECT},
            "messages[]": {"extra_content": _OBJECT, "thought_signature": _TEXT},
            "messages[].tool_calls[]": {"extra_content": _OBJECT},
        }
    ),
    "openai": Additions(values={"input[]": {"status": frozenset({None})}}, defaults=_MESSAGE_FIELDS),
    "openrouter-responses": Additions(
        fields={"": {"provider": _OBJECT}, "reasoning": {"max_tokens": (int,)}}, defaults=_MESSAGE_FIELDS
    ),
    **dict.fromkeys(
        (
            "azure-responses",
            "deepseek-responses",
            "bedrock-mantle",
            "llamacpp-responses",
            "openai-responses-compatible",
        ),
        Additions(defaults=_MESSAGE_FIELDS),
    ),
    # The SDK's newest types have dropped the sampling settings, which the API still takes for older models.
    "anthropic": Additions(fields={"": {"temperature": (int, float), "top_p": (int, float), "top_k": (int,)}}),
    "anthropic-compatible": Additions(fields={"": {"temperature": (int, float), "top_p": (int, float)}}),
    "llamacpp-anthropic": Additions(fields={"": {"temperature": (int, float), "top_p": (int, float)}}),
    "anthropic-bedrock": _HOSTED_CLAUDE,
    "anthropic-vertex": _HOSTED_CLAUDE,
    "google": Additions(fields={"generationConfig": {"imageConfig": _OBJECT}}),
    "google-vertex": Additions(fields={"generationConfig": {"imageConfig": _OBJECT}}),
}
_NOTHING = Additions()


def without_additions(body: dict[str, Any], provider: str) -> dict[str, Any]:
    """Return the body as the API's own types know it: what this vendor may add is taken out, at every path."""
    additions = DIALECTS.get(provider, _NOTHING)
    if additions is _NOTHING:
        return body
    plain = _plain(body, "", additions)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any, path: str, additions: Additions) -> Any:
    if isinstance(value, list):
        inside = f"{path}[]"
        own = additions.entries.get(inside, frozenset())
        return [
            _plain(entry, inside, additions)
            for entry in value
            if not (isinstance(entry, dict) and isinstance(entry.get("type"), str) and entry["type"] in own)
        ]
    if not isinstance(value, dict):
        return value
    if path.count(".") > 2:  # nothing is added further down, where the callers' own schemas and arguments are
        return value
    fields, values = additions.fields.get(path, {}), additions.values.get(path, {})
    plain = {**additions.defaults.get(path, {}), **additions.defaults.get(f"{path}:{value.get('type')}", {})}
    for name, inner in value.items():
        if (name in fields and isinstance(inner, fields[name])) or (inner is None and additions.nulls):
            continue
        if name in values and isinstance(inner, (str, type(None))) and inner in values[name]:
            continue
        plain[name] = _plain(inner, f"{path}.{name}" if path else name, additions)
    return plain
