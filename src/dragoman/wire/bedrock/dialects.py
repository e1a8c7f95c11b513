"""The model families on Bedrock's Converse API, one dialect each: one API, but each family refuses other things.

`family_dialect` picks the dialect by the model's id. Pure data.
"""

import re
from typing import Any, Literal

import msgspec

from ...target import Dialect, NameRule, TargetRules
from ..hosts import AWS_VARIABLES
from ..schemas import CLAUDE_SCHEMAS

__all__ = [
    "DOCUMENT_FORMATS",
    "IMAGE_FORMATS",
    "SPECIFICATION",
    "VIDEO_FORMATS",
    "BedrockDialect",
    "family_dialect",
]

SPECIFICATION = "bedrock-converse"

IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
VIDEO_FORMATS = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}


class BedrockDialect(Dialect, frozen=True, kw_only=True):
    """A model family on Converse. The defaults are for an unknown family."""

    provider: str = "bedrock"
    specification: str = SPECIFICATION
    base_url: str = "https://bedrock-runtime.{region}.amazonaws.com"
    auth: Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws", "token", "none"] = "aws"
    key_variables: tuple[str, ...] = ("AWS_BEARER_TOKEN_BEDROCK",)
    address_variables: dict[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: AWS_VARIABLES)
    # Whether it takes a system prompt. If not, the prompt begins the first user turn.
    system: bool = True
    # A tool result may say that it is an error.
    result_status: bool = False
    # Whether a turn may hold documents and videos beside tool results. If not, they go into the last result.
    media_beside_results: bool = True
    # The forms of a forced tool choice that it takes.
    forced_choices: frozenset[Literal["any", "tool"]] = frozenset()
    # The keys that a tool's schema may have at its top; None for all.
    schema_keys: frozenset[str] | None = None
    strict_tools: bool = False
    structured_output: bool = False
    # The request field that sets how much the model thinks.
    reasoning: Literal["thinking", "reasoningConfig", "reasoning_effort", "reasoning_config"] | None = None
    # Where it takes cache points.
    cache_points: frozenset[Literal["tools", "system", "messages"]] = frozenset()
    s3_media: bool = False
    # Our word for a hosted tool -> the family's name for it.
    hosted_tools: dict[str, str] = msgspec.field(default_factory=dict)


_IMAGES = frozenset(IMAGE_FORMATS)
_DOCUMENTS = frozenset(DOCUMENT_FORMATS)
_VIDEOS = frozenset(VIDEO_FORMATS)

_RULES = TargetRules(
    opaque_providers=frozenset({"bedrock"}),
    opaque_same_model=True,  # many families share this provider: a signature is for the model that made it
    thinking=False,
    blank_text=False,
    user_first=True,
    alternate=True,
    tools_for_history=True,
    user_media=frozenset(),
    media_sources=frozenset({"data"}),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html: the same for all families
    schemas=CLAUDE_SCHEMAS,
)


def _rules(media: frozenset[str] = frozenset(), **changes: Any) -> TargetRules:
    return msgspec.structs.replace(_RULES, user_media=media, **changes)


def _able(words: str) -> frozenset[str]:
    return frozenset({"streaming", *words.split()})


_CLAUDE = BedrockDialect(
    abilities=_able("tools parallel_tools strict_tools structured_output reasoning images documents caching"),
    result_status=True,
    media_beside_results=False,
    forced_choices=frozenset({"any", "tool"}),
    strict_tools=True,
    structured_output=True,
    reasoning="thinking",
    cache_points=frozenset({"tools", "system", "messages"}),
    rules=_rules(_IMAGES | _DOCUMENTS, result_media=_IMAGES | _DOCUMENTS, thinking=True, final_thinking=False),
)
_NOVA = BedrockDialect(
    abilities=_able("tools parallel_tools reasoning images documents video caching hosted_tools"),
    result_status=True,
    forced_choices=frozenset({"any", "tool"}),
    schema_keys=frozenset({"type", "properties", "required", "$defs"}),
    reasoning="reasoningConfig",
    cache_points=frozenset({"system", "messages"}),
    s3_media=True,
    hosted_tools={"code_execution": "nova_code_interpreter", "web_search": "nova_grounding"},
    rules=_rules(
        _IMAGES | _DOCUMENTS | _VIDEOS,
        result_media=_IMAGES | _DOCUMENTS,
        media_sources=frozenset({"data", "s3"}),
    ),
)
_NOVA_MICRO = msgspec.structs.replace(
    _NOVA, s3_media=False, abilities=_able("tools parallel_tools caching"), rules=_rules()
)
# Llama and Mistral refuse a turn that holds anything beside tool results or tool calls.
_ALONE: dict[str, Any] = {"user_after_tool": False, "words_beside_calls": False}
_LLAMA = BedrockDialect(
    abilities=_able("tools images documents"),
    rules=_rules(_IMAGES | _DOCUMENTS, result_media=_IMAGES | _DOCUMENTS, **_ALONE),
)
_MISTRAL = BedrockDialect(
    abilities=_able("tools structured_output images documents"),
    forced_choices=frozenset({"any"}),
    structured_output=True,
    rules=_rules(_IMAGES | _DOCUMENTS, result_media=_DOCUMENTS, **_ALONE),
)
_WITHOUT_SYSTEM = BedrockDialect(
    system=False, abilities=_able("documents"), rules=_rules(_DOCUMENTS, user_after_tool=False)
)
_TEXT_AND_DOCUMENTS = BedrockDialect(abilities=_able("tools documents"), rules=_rules(_DOCUMENTS))
_OPEN_TEXT = BedrockDialect(structured_output=True, abilities=_able("tools structured_output"), rules=_rules())
_OPEN_VISION = BedrockDialect(
    structured_output=True, abilities=_able("tools structured_output images"), rules=_rules(_IMAGES)
)
_OPEN_THINKING = msgspec.structs.replace(_OPEN_TEXT, abilities=_able("tools structured_output reasoning"))
_KIMI = msgspec.structs.replace(
    # It mints ids like functions.name:0.
    _OPEN_TEXT,
    rules=_rules(tool_ids=NameRule(r"[a-zA-Z0-9_.:-]{1,64}", 64)),
)
_UNKNOWN = BedrockDialect(rules=_rules(**_ALONE))

# How a model's id starts, after a region or the path of an ARN -> the family's dialect. The first that fits counts.
FAMILIES: dict[str, BedrockDialect] = {
    "anthropic.": _CLAUDE,
    "amazon.nova-micro": _NOVA_MICRO,
    "amazon.nova": _NOVA,
    "amazon.titan": _WITHOUT_SYSTEM,
    "meta.llama": _LLAMA,
    "mistral.mistral-7b": _WITHOUT_SYSTEM,
    "mistral.mixtral": _WITHOUT_SYSTEM,
    "mistral.": _MISTRAL,
    "deepseek.r1": _TEXT_AND_DOCUMENTS,
    "deepseek.": _OPEN_TEXT,
    "writer.palmyra": _TEXT_AND_DOCUMENTS,
    "cohere.": _TEXT_AND_DOCUMENTS,
    "ai21.": _TEXT_AND_DOCUMENTS,
    "openai.gpt-oss": msgspec.structs.replace(_OPEN_THINKING, reasoning="reasoning_effort"),
    "qwen.qwen3-vl": _OPEN_VISION,
    "qwen.": msgspec.structs.replace(_OPEN_THINKING, reasoning="reasoning_config"),
    "google.gemma": _OPEN_VISION,
    "moonshot": _KIMI,
    "minimax.": _OPEN_TEXT,
    "nvidia.": _OPEN_TEXT,
    "zai.": _OPEN_TEXT,
}
_FAMILY = re.compile("(?:^|[./])(" + "|".join(map(re.escape, FAMILIES)) + ")")


def family_dialect(model_id: str) -> BedrockDialect:
    """Return the dialect of the model's family. An ARN that does not name the model is taken for Claude's."""
    found = _FAMILY.search(model_id)
    if found is not None:
        return FAMILIES[found[1]]
    return _CLAUDE if not model_id or model_id.startswith("arn:") else _UNKNOWN


DIALECTS: tuple[BedrockDialect, ...] = (family_dialect(""),)
