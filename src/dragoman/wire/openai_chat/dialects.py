"""Vendors that speak OpenAI's Chat Completions, one dialect each: addresses, and how they depart from it. Data only."""

from typing import Any, Literal

import msgspec

from ...target import Dialect, NameRule, SchemaRules, TargetRules
from ..schemas import OPENAI_SCHEMAS, SHARED_SCHEMAS

__all__ = ["AUDIO_FORMATS", "DIALECTS", "SPECIFICATION", "ChatDialect", "HostedForm", "MediaForm"]

SPECIFICATION = "openai-chat"
AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

# How a kind of media is put into a user turn.
MediaForm = Literal["image_url", "video_url", "input_audio", "file", "document_url", "text"]


class HostedForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a vendor is asked for a tool that it runs: a field of the request, or an entry of `tools`.

    The options are the field's value, or part of the entry, under `options_in` where that is given.
    """

    field: str | None = None
    tool: dict[str, Any] = {}
    options_in: str | None = None


class ChatDialect(Dialect, frozen=True, kw_only=True):
    """A host of the Chat Completions API, and how it departs from what OpenAI wrote down."""

    specification: str = SPECIFICATION
    path: str = "/chat/completions"
    # Answers.
    finish_optional: bool = False  # some versions send no finish reason: `[DONE]` or the whole body is the finish
    completion_without_reasoning: bool = False  # `completion_tokens` leaves reasoning out, `total_tokens` does not
    reports_cost: bool = False  # `usage.cost` is in US dollars
    # What the request calls things.
    max_tokens_field: str = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    stream_options: dict[str, Any] = msgspec.field(default_factory=lambda: {"include_usage": True})
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)  # sent always
    # What goes back with an assistant turn.
    thinking_field: str | None = None
    thinking_with_calls_only: bool = False
    thinking_stand_in: str | None = None  # for a turn with calls and no thinking, which the vendor refuses
    thinking_parts: bool = False  # thinking and citations are parts of the content (Mistral)
    reasoning_details: bool = False
    file_annotations: bool = False
    refusals: bool = False
    # What the vendor can do. Each effort maps to the fields that ask for it.
    efforts: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    budget_field: tuple[str, ...] = ()
    thoughts: dict[str, Any] = msgspec.field(default_factory=dict)  # asks for readable thoughts
    sampling_with_reasoning: bool = True
    media: dict[str, MediaForm] = msgspec.field(default_factory=lambda: {"image/": "image_url"})
    media_urls: bool = True
    strict_tools: bool = True
    parallel_tool_calls: bool = True
    output_schema: bool = True
    hosted_tools: dict[str, HostedForm] = msgspec.field(default_factory=dict)
    other_tools: bool = False  # takes entries of `tools` that are no functions
    cache_key: bool = False
    cache_control: bool = False


_OPENAI_IDS = NameRule(r"[a-zA-Z0-9_-]{1,40}", 40)
_LOOSE_IDS = NameRule(r"[a-zA-Z0-9_.:-]{1,64}", 64)  # Kimi's own ids are `functions.name:0`
_MISTRAL_IDS = NameRule(r"[a-zA-Z0-9]{9}", 9, readable=False)

_IMAGES: dict[str, MediaForm] = {"image/": "image_url", "text/": "text"}
_SOUND: dict[str, MediaForm] = dict.fromkeys(AUDIO_FORMATS, "input_audio")
_OPENAI_MEDIA: dict[str, MediaForm] = {**_IMAGES, **_SOUND, "application/pdf": "file"}
_TEXT_FILES: dict[str, MediaForm] = {"text/": "text"}


# How each form can be filled; vendors with `media_urls=False` read no address at all.
_SOURCES: dict[MediaForm, frozenset[str]] = {
    "text": frozenset({"data"}),
    "input_audio": frozenset({"data"}),
    "file": frozenset({"data", "file_id"}),  # `linked` types by an address too
    "image_url": frozenset({"data", "url"}),
    "video_url": frozenset({"data", "url"}),
    "document_url": frozenset({"data", "url"}),
}


def _efforts(field: str = "reasoning_effort", /, **words: str) -> dict[str, dict[str, Any]]:
    """Our efforts as one field of the request; `words` are the vendor's where they differ from ours."""
    spoken = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high", **words}
    return {effort: {field: word} for effort, word in spoken.items()}


def _switch(**options: Any) -> dict[str, dict[str, Any]]:
    """Efforts for vendors that only turn thinking on or off."""
    on = {"thinking": {"type": "enabled", **options}}
    return {"off": {"thinking": {"type": "disabled"}}, **dict.fromkeys(("minimal", "low", "medium", "high", "max"), on)}


def _rules(
    provider: str, media: dict[str, MediaForm], *, linked: frozenset[str] = frozenset(), **rules: Any
) -> TargetRules:
    given: dict[str, Any] = {
        "tool_ids": _LOOSE_IDS,
        "opaque_providers": frozenset({provider}),
        "thinking": False,
        "schemas": OPENAI_SCHEMAS,
    }
    sources = {kind: _SOURCES[form] | ({"url"} if kind in linked else set()) for kind, form in media.items()}
    return TargetRules(user_media=frozenset(media), type_sources=sources, **{**given, **rules})


_OPENAI_RULES: dict[str, Any] = {
    "tool_ids": _OPENAI_IDS,
    "opaque_providers": frozenset({"openai-chat", "azure"}),
    "prefill": True,
    "system_inside": True,
}
_OPENAI = ChatDialect(
    provider="openai-chat",
    base_url="https://api.openai.com/v1",
    key_variables=("OPENAI_API_KEY",),
    rules=_rules("openai-chat", _OPENAI_MEDIA, **_OPENAI_RULES),
    media=_OPENAI_MEDIA,
    max_tokens_field="max_completion_tokens",
    system_role="developer",
    defaults={"store": False},
    refusals=True,
    efforts=_efforts(off="none", minimal="minimal"),
    sampling_with_reasoning=False,
    hosted_tools={"web_search": HostedForm(field="web_search_options")},
    cache_key=True,
)
_AZURE = ChatDialect(
    provider="azure",
    base_url="",  # https://RESOURCE.openai.azure.com/openai/v1
    auth="api-key",
    key_variables=("AZURE_OPENAI_API_KEY",),
    rules=_rules("azure", _OPENAI_MEDIA, **_OPENAI_RULES),
    media=_OPENAI_MEDIA,
    max_tokens_field="max_completion_tokens",
    system_role="developer",
    refusals=True,
    efforts=_efforts(off="none", minimal="minimal"),
    sampling_with_reasoning=False,
    cache_key=True,
)
_GROQ = ChatDialect(
    provider="groq",
    base_url="https://api.groq.com/openai/v1",
    key_variables=("GROQ_API_KEY",),
    rules=_rules("groq", _IMAGES, system_inside=True),
    media=_IMAGES,
    max_tokens_field="max_completion_tokens",
    efforts=_efforts(off="none"),
    thoughts={"reasoning_format": "parsed"},
    strict_tools=False,
    hosted_tools={
        "web_search": HostedForm(tool={"type": "browser_search"}),
        "code_execution": HostedForm(tool={"type": "code_interpreter", "container": {"type": "auto"}}),
    },
    other_tools=True,
)
_MISTRAL_MEDIA: dict[str, MediaForm] = {**_IMAGES, "application/pdf": "document_url"}
_MISTRAL = ChatDialect(
    provider="mistral",
    base_url="https://api.mistral.ai/v1",
    key_variables=("MISTRAL_API_KEY",),
    # A user turn right after tool results is refused (its code 3230), and an id is exactly nine characters.
    rules=_rules("mistral", _MISTRAL_MEDIA, tool_ids=_MISTRAL_IDS, thinking=True, user_after_tool=False),
    media=_MISTRAL_MEDIA,
    stream_options={},  # usage is on the last chunk anyway
    thinking_parts=True,
    efforts=_efforts(off="none", minimal="high", low="high", medium="high"),
    cache_key=True,
)
_DEEPSEEK = ChatDialect(
    provider="deepseek",
    base_url="https://api.deepseek.com",
    key_variables=("DEEPSEEK_API_KEY",),
    rules=_rules("deepseek", _TEXT_FILES, thinking=True, system_inside=True),
    media=_TEXT_FILES,
    thinking_field="reasoning_content",
    thinking_with_calls_only=True,  # needed in a tool loop, refused by older models elsewhere
    thinking_stand_in="",
    efforts=_switch(),
    strict_tools=False,
    parallel_tool_calls=False,
    output_schema=False,
)
_OPENROUTER_MEDIA: dict[str, MediaForm] = {**_OPENAI_MEDIA, "video/": "video_url"}
_OPENROUTER = ChatDialect(
    provider="openrouter",
    base_url="https://openrouter.ai/api/v1",
    key_variables=("OPENROUTER_API_KEY",),
    rules=_rules(
        "openrouter",
        _OPENROUTER_MEDIA,
        linked=frozenset({"application/pdf"}),  # `file_data` may be an address: OpenRouter's guide to PDF inputs
        thinking=True,
        opaque_same_model=True,
        tools_for_history=True,
        schemas=SHARED_SCHEMAS,
    ),
    media=_OPENROUTER_MEDIA,
    reports_cost=True,
    thinking_field="reasoning",
    reasoning_details=True,
    file_annotations=True,
    efforts={
        effort: {"reasoning": {"effort": word}}
        for effort, word in (
            ("off", "none"),
            ("minimal", "minimal"),
            ("low", "low"),
            ("medium", "medium"),
            ("high", "high"),
            ("max", "xhigh"),
        )
    },
    budget_field=("reasoning", "max_tokens"),
    hosted_tools={"web_search": HostedForm(tool={"type": "openrouter:web_search"}, options_in="parameters")},
    other_tools=True,
    cache_control=True,
)
_CEREBRAS = ChatDialect(
    provider="cerebras",
    base_url="https://api.cerebras.ai/v1",
    key_variables=("CEREBRAS_API_KEY",),
    rules=_rules("cerebras", _TEXT_FILES, thinking=True),
    media=_TEXT_FILES,
    max_tokens_field="max_completion_tokens",
    thinking_field="reasoning",
    efforts=_efforts(off="none"),
)
_HUGGINGFACE = ChatDialect(
    provider="huggingface",
    base_url="https://router.huggingface.co/v1",
    key_variables=("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    rules=_rules("huggingface", _IMAGES),
    media=_IMAGES,
    efforts=_efforts(off="none"),
    strict_tools=False,
)
_GRAMMARS = SchemaRules()  # servers that write a grammar for the schema: what it cannot express, they ignore
_OLLAMA = ChatDialect(
    provider="ollama",
    base_url="http://localhost:11434/v1",
    auth="none",
    key_variables=("OLLAMA_API_KEY",),
    rules=_rules("ollama", _IMAGES, thinking=True, schemas=_GRAMMARS),
    media=_IMAGES,
    media_urls=False,
    finish_optional=True,
    thinking_field="reasoning",
    efforts=_efforts(off="none"),
    strict_tools=False,
    parallel_tool_calls=False,
)
# A model's own chat template decides here, and many refuse two turns of one role in a row.
_NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
_VLLM_MEDIA: dict[str, MediaForm] = {**_IMAGES, **_SOUND, "video/": "video_url"}
_VLLM = ChatDialect(
    provider="vllm",
    base_url="http://localhost:8000/v1",
    auth="none",
    key_variables=("VLLM_API_KEY",),
    rules=_rules("vllm", _VLLM_MEDIA, thinking=True, alternate=True, user_first=True, schemas=_GRAMMARS),
    media=_VLLM_MEDIA,
    thinking_field="reasoning",
    efforts={**_efforts(), "off": _NO_THINKING},
    strict_tools=False,
)
_LLAMACPP_MEDIA: dict[str, MediaForm] = {**_IMAGES, **_SOUND}
_LLAMACPP = ChatDialect(
    provider="llamacpp",
    base_url="http://localhost:8080/v1",
    auth="none",
    key_variables=("LLAMA_API_KEY",),
    rules=_rules("llamacpp", _LLAMACPP_MEDIA, thinking=True, alternate=True, user_first=True, schemas=_GRAMMARS),
    media=_LLAMACPP_MEDIA,
    thinking_field="reasoning_content",
    efforts={
        **{effort: {"chat_template_kwargs": fields} for effort, fields in _efforts().items()},
        "off": _NO_THINKING,
    },
    strict_tools=False,
)
_XAI = ChatDialect(
    provider="xai",
    base_url="https://api.x.ai/v1",
    key_variables=("XAI_API_KEY",),
    rules=_rules("xai", _IMAGES, system_inside=True),
    media=_IMAGES,
    max_tokens_field="max_completion_tokens",
    completion_without_reasoning=True,
    efforts=_efforts(),
    strict_tools=False,
)
_TOGETHER = ChatDialect(
    provider="together",
    base_url="https://api.together.xyz/v1",
    key_variables=("TOGETHER_API_KEY",),
    rules=_rules("together", _IMAGES),
    media=_IMAGES,
    efforts={**_efforts(), "off": {"reasoning": {"enabled": False}}},
    strict_tools=False,
)
_FIREWORKS = ChatDialect(
    provider="fireworks",
    base_url="https://api.fireworks.ai/inference/v1",
    key_variables=("FIREWORKS_API_KEY",),
    rules=_rules("fireworks", _IMAGES, thinking=True),
    media=_IMAGES,
    thinking_field="reasoning_content",
    efforts=_efforts(off="none"),
    strict_tools=False,
)
_MOONSHOT = ChatDialect(
    provider="moonshot",
    base_url="https://api.moonshot.ai/v1",
    key_variables=("MOONSHOT_API_KEY",),
    rules=_rules("moonshot", _IMAGES, thinking=True),
    media=_IMAGES,
    media_urls=False,
    thinking_field="reasoning_content",
    thinking_stand_in=" ",
    efforts=_switch(),
    hosted_tools={
        "web_search": HostedForm(tool={"type": "builtin_function", "function": {"name": "$web_search"}}),
    },
    other_tools=True,
    strict_tools=False,
    parallel_tool_calls=False,
    cache_key=True,
)
_ZAI_MEDIA: dict[str, MediaForm] = {**_IMAGES, "video/": "video_url"}
_ZAI = ChatDialect(
    provider="zai",
    base_url="https://api.z.ai/api/paas/v4",
    key_variables=("ZAI_API_KEY",),
    rules=_rules("zai", _ZAI_MEDIA, thinking=True),
    media=_ZAI_MEDIA,
    thinking_field="reasoning_content",
    efforts=_switch(clear_thinking=False),  # else it throws earlier thinking away
    hosted_tools={
        "web_search": HostedForm(tool={"type": "web_search", "web_search": {"enable": True}}, options_in="web_search")
    },
    other_tools=True,
    strict_tools=False,
    parallel_tool_calls=False,
    output_schema=False,
)
_SNOWFLAKE = ChatDialect(
    provider="snowflake",
    base_url="",  # https://<account>.snowflakecomputing.com
    path="/api/v2/cortex/v1/chat/completions",
    key_variables=("SNOWFLAKE_PAT", "SNOWFLAKE_TOKEN"),
    rules=_rules(
        "snowflake", _IMAGES, thinking=True, opaque_same_model=True, tools_for_history=True, schemas=SHARED_SCHEMAS
    ),
    media=_IMAGES,
    media_urls=False,
    max_tokens_field="max_completion_tokens",
    finish_optional=True,
    reasoning_details=True,
    efforts={effort: {"reasoning": fields} for effort, fields in _efforts("effort").items()},
    budget_field=("reasoning", "max_tokens"),
    strict_tools=False,
    parallel_tool_calls=False,
)
_CRUSOE = ChatDialect(
    provider="crusoe",
    base_url="https://managed-inference-api-proxy.crusoecloud.com/v1",
    key_variables=("CRUSOE_API_KEY",),
    rules=_rules("crusoe", _IMAGES, thinking=True),
    media=_IMAGES,
    thinking_field="reasoning",
    efforts={**_efforts(), "off": _NO_THINKING},
    strict_tools=False,
)
_HEROKU = ChatDialect(
    provider="heroku",
    base_url="https://us.inference.heroku.com/v1",
    key_variables=("HEROKU_INFERENCE_KEY", "INFERENCE_KEY"),
    rules=_rules("heroku", _TEXT_FILES, tools_for_history=True),
    media=_TEXT_FILES,
    stream_options={},
    efforts={"off": {"extended_thinking": {"enabled": False}}},
    thoughts={"extended_thinking": {"enabled": True, "include_reasoning": True}},
    budget_field=("extended_thinking", "budget_tokens"),
    strict_tools=False,
    parallel_tool_calls=False,
    output_schema=False,
)
_GOOGLE = ChatDialect(
    provider="google-openai",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    rules=_rules("google-openai", _IMAGES, thinking=True, opaque_same_model=True),
    media=_IMAGES,
    media_urls=False,
    completion_without_reasoning=True,
    efforts=_efforts(off="none", minimal="minimal"),
    budget_field=("extra_body", "google", "thinking_config", "thinking_budget"),
    thoughts={"extra_body": {"google": {"thinking_config": {"include_thoughts": True}}}},
    strict_tools=False,
    parallel_tool_calls=False,
)
_COMPATIBLE_MEDIA: dict[str, MediaForm] = {**_OPENAI_MEDIA, "video/": "video_url"}
_COMPATIBLE = ChatDialect(
    provider="openai-compatible",
    base_url="",  # the user's
    key_variables=("OPENAI_COMPATIBLE_API_KEY",),
    rules=_rules("openai-compatible", _COMPATIBLE_MEDIA, thinking=True),
    media=_COMPATIBLE_MEDIA,
    thinking_field="reasoning_content",
    thinking_with_calls_only=True,
    efforts=_efforts(off="none", minimal="minimal"),
    other_tools=True,
)

_RECORDS = (
    _OPENAI,
    _AZURE,
    _GROQ,
    _MISTRAL,
    _DEEPSEEK,
    _OPENROUTER,
    _CEREBRAS,
    _HUGGINGFACE,
    _OLLAMA,
    _VLLM,
    _LLAMACPP,
    _XAI,
    _TOGETHER,
    _FIREWORKS,
    _MOONSHOT,
    _ZAI,
    _SNOWFLAKE,
    _CRUSOE,
    _HEROKU,
    _GOOGLE,
    _COMPATIBLE,
)


def _completed(dialect: ChatDialect) -> ChatDialect:
    """Return the dialect with what follows from its other fields: media sources, ignored settings, abilities."""
    sources = dialect.rules.type_sources
    if not dialect.media_urls:
        sources = {kind: given - {"url"} for kind, given in sources.items()}
    able = {
        "parallel_tools": True,
        "strict_tools": dialect.strict_tools,
        "structured_output": dialect.output_schema,
        "reasoning": bool(dialect.efforts or dialect.budget_field),
        "images": "image/" in dialect.media,
        "documents": "application/pdf" in dialect.media,
        "audio": "audio/wav" in dialect.media,
        "video": "video/" in dialect.media,
        "caching": dialect.cache_key or dialect.cache_control,
        "hosted_tools": bool(dialect.hosted_tools),
    }
    return msgspec.structs.replace(
        dialect,
        rules=msgspec.structs.replace(dialect.rules, type_sources=sources),
        ignored=frozenset() if dialect.parallel_tool_calls else frozenset({"parallel_tool_calls"}),
        abilities=frozenset({"streaming", "tools", *(ability for ability, has in able.items() if has)}),
    )


DIALECTS: tuple[ChatDialect, ...] = tuple(map(_completed, _RECORDS))
