"""The hosts of Anthropic's Messages API, one dialect each: where they are, how they depart from it. Data only."""

import msgspec

from ...target import Dialect, NameRule, TargetRules
from ..hosts import AWS_VARIABLES, VERTEX_VARIABLES
from ..schemas import CLAUDE_SCHEMAS

__all__ = ["DIALECTS", "DOCUMENT_TYPES", "IMAGE_TYPES", "SPECIFICATION", "AnthropicDialect"]

SPECIFICATION = "anthropic-messages"

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
DOCUMENT_TYPES = frozenset({"application/pdf", "text/"})


class AnthropicDialect(Dialect, frozen=True, kw_only=True):
    """A host of the Messages API. If its paths contain `{model}`, the body has `body_version` instead."""

    specification: str = SPECIFICATION
    output_limit_required: bool = True
    stream_path: str = "/v1/messages"
    whole_path: str = "/v1/messages"
    body_version: str | None = None
    # The body says whether the answer is streamed; elsewhere the path alone does.
    stream_field: bool = True
    # Thinking without a signature is taken back.
    unsigned_thinking: bool = False


_OWN_HOSTS = frozenset({"anthropic", "anthropic-bedrock", "anthropic-vertex"})
_IMAGES = frozenset(IMAGE_TYPES)
_MEDIA = _IMAGES | DOCUMENT_TYPES
_RULES = TargetRules(
    tool_names=NameRule(r"[a-zA-Z0-9_-]{1,128}", 128),
    opaque_providers=_OWN_HOSTS,
    final_thinking=False,
    blank_text=False,
    user_first=True,
    tools_for_history=True,
    user_media=_MEDIA,
    # The only documents by an address are PDFs: `URLPDFSource` in the types of the official SDK.
    type_sources=dict.fromkeys(("text/", "text/plain"), frozenset({"data", "file_id"})),
    # A stored file of another type is a container upload, which a tool result cannot hold.
    result_media=_IMAGES | {"application/pdf", "text/plain"},
    schemas=CLAUDE_SCHEMAS,
)
_ABILITIES = frozenset(
    [
        "streaming",
        "tools",
        "parallel_tools",
        "strict_tools",
        "structured_output",
        "reasoning",
        "images",
        "documents",
        "caching",
    ]
)
_VERTEX = "aiplatform.googleapis.com/v1/projects/{project}/locations"
_VERSION = {"anthropic-version": "2023-06-01"}

DIALECTS: tuple[AnthropicDialect, ...] = (
    AnthropicDialect(
        provider="anthropic",
        base_url="https://api.anthropic.com",
        auth="x-api-key",
        key_variables=("ANTHROPIC_API_KEY",),
        headers=_VERSION,
        abilities=_ABILITIES | {"hosted_tools"},
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-bedrock",
        base_url="https://bedrock-runtime.{region}.amazonaws.com",
        auth="aws",
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        address_variables=AWS_VARIABLES,
        stream_path="/model/{model}/invoke-with-response-stream",
        whole_path="/model/{model}/invoke",
        body_version="bedrock-2023-05-31",
        stream_field=False,
        abilities=_ABILITIES,
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-vertex",
        base_url=f"https://{{region}}-{_VERTEX}/{{region}}/publishers/anthropic/models",
        global_base_url=f"https://{_VERTEX}/global/publishers/anthropic/models",
        auth="token",
        address_variables=VERTEX_VARIABLES,
        stream_path="/{model}:streamRawPredict",
        whole_path="/{model}:rawPredict",
        body_version="vertex-2023-10-16",
        abilities=_ABILITIES | {"hosted_tools"},
        rules=_RULES,
    ),
    AnthropicDialect(
        provider="anthropic-compatible",
        base_url="",
        auth="x-api-key",
        headers=_VERSION,
        says_cut=False,  # LiteLLM in front of llama.cpp says `end_turn`
        unsigned_thinking=True,
        abilities=frozenset({"streaming", "tools", "reasoning", "images"}),
        rules=msgspec.structs.replace(
            _RULES,
            opaque_providers=frozenset({"anthropic-compatible"}),
            user_media=_IMAGES,
            result_media=_IMAGES,
        ),
    ),
    AnthropicDialect(
        provider="llamacpp-anthropic",
        base_url="http://127.0.0.1:8080",
        auth="none",
        headers=_VERSION,
        unsigned_thinking=True,
        abilities=frozenset({"streaming", "tools", "reasoning", "images"}),
        rules=msgspec.structs.replace(
            _RULES,
            opaque_providers=frozenset({"llamacpp-anthropic"}),
            user_media=_IMAGES,
            result_media=frozenset(),
        ),
    ),
)
