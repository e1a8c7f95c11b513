"""What OpenTelemetry's GenAI conventions call our values. Pure; imports nothing of OpenTelemetry.

The conventions are still in development and the package that has their names keeps them private, so they are copied
here. What they have no name for stands under `dragoman.`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..errors import ErrorCode, redact
from ..message import ModelInvocationDescriptor
from ..stream import Assembly
from ..usage import TokenUsage

__all__ = [
    "AttributeValue",
    "Attributes",
    "error_words",
    "model_attributes",
    "provider_name",
    "request_attributes",
    "response_attributes",
    "usage_attributes",
]

AttributeValue: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = dict[str, AttributeValue]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  # no password
ERROR_TYPE = "error.type"

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

METHOD = "http.request.method"
ROUTE = "http.route"
STATUS = "http.response.status_code"

RUN_ID = "dragoman.run.id"
RUN_STATUS = "dragoman.run.status"
CALL_INDEX = "dragoman.call.index"
CALL_ATTEMPT = "dragoman.call.attempt"
CACHE_USE = "dragoman.token.cache"
FRONT = "dragoman.gateway.front"
CLIENT = "dragoman.gateway.client"
KEY_NAME = "dragoman.gateway.key"
WAY = "dragoman.gateway.way"

CANCELLED = ErrorCode.CANCELLED.value
UNKNOWN_ERROR = "_OTHER"  # the conventions' word for an error without a name
UNKNOWN_METHOD = "_OTHER"
METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})

# Providers that the conventions know under another name; the others keep ours.
PROVIDER_NAMES = {
    "anthropic-bedrock": "aws.bedrock",
    "anthropic-vertex": "gcp.vertex_ai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-mantle": "aws.bedrock",
    "deepseek-responses": "deepseek",
    "google": "gcp.gemini",
    "google-openai": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai-chat": "openai",
    "xai": "x_ai",
}
_REQUEST = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "stop_sequences": "gen_ai.request.stop_sequences",
}
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "cost": "dragoman.usage.cost",
}
# Errors whose words may quote content: a refused value, an answer of the wrong type.
_QUOTING = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_OUTPUT})


def provider_name(provider: str) -> str:
    """Return the conventions' name of a provider; ours where they have none."""
    return PROVIDER_NAMES.get(provider, provider)


def model_attributes(invocation: ModelInvocationDescriptor) -> Attributes:
    """Return who is asked."""
    return {PROVIDER: provider_name(invocation.provider), REQUEST_MODEL: invocation.model}


def request_attributes(params: Mapping[str, Any]) -> Attributes:
    """Return the settings of a call that the conventions have a name for."""
    found: Attributes = {
        name: params[param] for param, name in _REQUEST.items() if params.get(param) is not None and params[param] != ()
    }
    if params.get("output_schema") is not None:
        found["gen_ai.output.type"] = "json"
    return found


def response_attributes(assembly: Assembly) -> Attributes:
    """Return what came back, without what it says."""
    found: Attributes = {}
    message = assembly.message or assembly.partial
    meta = message.meta if message is not None else None
    if meta is not None and meta.model_id:
        found[RESPONSE_MODEL] = meta.model_id
    if meta is not None and meta.request_id:
        found["gen_ai.response.id"] = meta.request_id
    if assembly.finish_reason is not None:
        found["gen_ai.response.finish_reasons"] = (assembly.finish_reason.value,)
    return found | usage_attributes(assembly.usage)


def usage_attributes(usage: TokenUsage | None) -> Attributes:
    """Return what was used; what was not reported is not there."""
    if usage is None:
        return {}
    return {name: value for field, name in _USAGE.items() if (value := getattr(usage, field)) is not None}


def error_words(code: ErrorCode, message: str, *, with_content: bool) -> str:
    """Return what may be told of an error: nothing of one that may quote content, unless content is wanted."""
    return "" if code in _QUOTING and not with_content else redact(message)
