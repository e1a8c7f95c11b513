"""The hosts of Gemini's generateContent, one dialect each. Data only."""

import msgspec

from ...target import Dialect, NameRule, TargetRules
from ..hosts import VERTEX_VARIABLES

__all__ = ["DIALECTS", "SPECIFICATION", "GeminiDialect"]

SPECIFICATION = "gemini"


class GeminiDialect(Dialect, frozen=True, kw_only=True):
    """A host of the API. `hosted_tool_parts`: it takes hosted tools beside functions if their calls are shown."""

    specification: str = SPECIFICATION
    path: str = "/v1beta/{model}:{method}"
    collection: str = "models"  # of a model that is named without one (as in tunedModels/mine, endpoints/123)
    hosted_tool_parts: bool = False


_RULES = TargetRules(
    tool_names=NameRule(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", 64),
    # Signatures are bound to the model that made them, and to the host.
    opaque_providers=frozenset({"google"}),
    opaque_same_model=True,
    # A turn with calls must come right after a user turn or after results.
    user_first=True,
    user_media=frozenset({"image/", "audio/", "video/", "text/", "application/pdf"}),
    assistant_media=frozenset({"image/"}),
)

_ABILITIES = frozenset(
    [
        "streaming",
        "tools",
        "parallel_tools",
        "structured_output",
        "reasoning",
        "images",
        "documents",
        "audio",
        "video",
        "caching",
        "hosted_tools",
    ]
)

DIALECTS: tuple[GeminiDialect, ...] = (
    GeminiDialect(
        provider="google",
        base_url="https://generativelanguage.googleapis.com",
        auth="x-goog-api-key",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        abilities=_ABILITIES,
        rules=_RULES,
        hosted_tool_parts=True,
    ),
    GeminiDialect(
        provider="google-vertex",
        base_url="https://{region}-aiplatform.googleapis.com/v1beta1/projects/{project}/locations/{region}",
        auth="token",
        address_variables=VERTEX_VARIABLES,
        abilities=_ABILITIES,
        rules=msgspec.structs.replace(_RULES, opaque_providers=frozenset({"google-vertex"})),
        global_base_url="https://aiplatform.googleapis.com/v1beta1/projects/{project}/locations/global",
        path="/{model}:{method}",
        collection="publishers/google/models",
    ),
)
